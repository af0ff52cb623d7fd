/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What refers to an artifact of a registry, and is a signature by OpenSSF Model Signing (OMS): a
 * manifest of the artifact type of sigstore bundles, whose layer is the bundle. Nothing of it is
 * trusted.
 *
 * Threads: any, with a text of its own.
 */
#ifndef CARTON_IMPORT_REFERRERS_H
#define CARTON_IMPORT_REFERRERS_H

#include "import/artifact.h"

#define REFERRER_INDEX "application/vnd.oci.image.index.v1+json"
#define REFERRER_BUNDLE "application/vnd.dev.sigstore.bundle.v0.3+json"
#define REFERRER_BUNDLE_ENCODED "application%2Fvnd.dev.sigstore.bundle.v0.3%2Bjson"
/* the annotation that says which kind of statement a bundle has, and the kind of OMS */
#define REFERRER_PREDICATE "dev.sigstore.bundle.predicateType"
#define REFERRER_OMS "https://model_signing/signature/v1.0"

/* Gets a signature of a list, which has a digest. 0, or -errno, which ends the reading. */
typedef int referrer_fn(void *ctx, const struct artifact_blob *blob);

/*
 * Calls `take` for each signature in the array `member` of a JSON object: `manifests` of an index,
 * or `layers` of a manifest. 0; -EBADMSG: the text is no JSON, and `why` says where; -ENOMEM; or
 * the result of `take`.
 */
int referrers_read(const struct buf *text, const char *member, referrer_fn *take, void *ctx,
		   struct reason *why);

#endif
