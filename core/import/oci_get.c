/* SPDX-License-Identifier: Apache-2.0 */
/* Gets the parts of an artifact from a registry, and compares them with their digests. */
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "http/oci.h"
#include "import/internal.h"

#define ACCEPT                                                   \
	"application/vnd.oci.image.manifest.v1+json, "           \
	"application/vnd.oci.image.index.v1+json, "              \
	"application/vnd.docker.distribution.manifest.v2+json, " \
	"application/vnd.docker.distribution.manifest.list.v2+json"

int oci_digest(const struct buf *text, char ret[OCI_DIGEST_SIZE])
{
	uint8_t sha256[SHA256_SIZE];
	int r = sha256_mem(text->data ? text->data : "", text->len, sha256);

	memcpy(ret, "sha256:", 7);
	hex_encode(sha256, SHA256_SIZE, ret + 7);
	return r;
}

/* From here on, an answer takes the memory that it needs, which listing_finish() gives back. */
static int keep(const struct import *im, struct listing *l, struct buf *answer)
{
	struct buf exact = buf_init(answer->len);
	int r = budget_take(l->budget, answer->len);

	if (r == 0) {
		l->taken += answer->len;
		r = buf_add(&exact, answer->data, answer->len);
	}
	import_forget(im, answer);
	*answer = exact;
	return r;
}

/* Gets .../WHAT/WHICH. If `which` is a digest, compares it with the bytes. */
int oci_get(const struct import *im, struct listing *l, const char *what, const char *which,
	    struct buf *ret)
{
	const struct repository *repo = l->repo;
	bool manifest = strcmp(what, "manifests") == 0, pinned = oci_is_digest(which);
	struct import_question q = { .accept = manifest ? ACCEPT : NULL, .anywhere = pinned };
	char digest[OCI_DIGEST_SIZE], *url;
	int r;

	if (asprintf(&url, "%s/v2/%s/%s/%s", repo->server, repo->name, what, which) < 0)
		return -ENOMEM;
	q.url = url;
	r = import_get(im, l, &q, ret);
	free(url);
	if (r == 0)
		r = keep(im, l, ret);
	if (r == 0)
		r = oci_digest(ret, digest);
	if (r == 0 && pinned && strcmp(which, digest) != 0)
		return log_error(-EBADMSG, repo->name, "the registry sends other bytes than %s",
				 which);
	if (r == 0 && oci_is_digest(q.answer.digest) && strcmp(q.answer.digest, digest) != 0)
		return log_error(-EBADMSG, repo->name,
				 "the registry says that \"%s\" is %s, but sends other bytes",
				 which, q.answer.digest);
	return r;
}

int oci_get_blob(const struct import *im, struct listing *l, const struct artifact_blob *blob,
		 uint64_t max, struct buf *ret)
{
	if (!oci_is_digest(blob->digest))
		return log_error(-EBADMSG, l->name,
				 "a part of the artifact (%s) has no digest that is sha256",
				 blob->type);
	if (blob->size > max)
		return log_error(-EFBIG, l->name,
				 "a part of the artifact (%s) is larger than %llu KiB", blob->type,
				 (unsigned long long)(max / KIB));
	return oci_get(im, l, "blobs", blob->digest, ret);
}
