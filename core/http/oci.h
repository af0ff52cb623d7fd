/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oci://REGISTRY/NAME[:TAG][@sha256:HEX]: an artifact of an OCI registry, as a whole. The registry
 * is asked by https; by http only where it has none, and is on this machine or the user allows it
 * (registries.h). docker.io means registry-1.docker.io, and there a name without a slash is in
 * library/. The tag is `latest` if neither is given; a digest wins.
 *
 * Its login is what docker and podman have saved for the registry (docker.h). It is sent when the
 * registry asks for it: to the registry itself, or to the server that it names for tokens.
 *
 * Threads: any.
 */
#ifndef CARTON_HTTP_OCI_H
#define CARTON_HTTP_OCI_H

#include "http/registries.h"
#include "http/repository.h"
#include "http/scheme.h"

extern const struct scheme oci_scheme;

/* Is it a URL of the scheme without a fault? */
bool oci_is_artifact(const char *url);

/* Of such a URL: `revision` is the tag or the digest. 0 or -ENOMEM. */
int oci_parse(const char *url, struct repository *ret);

/* Where a URL leads by the user's settings (registries.h). */
struct oci_place {
	char *url;  /* after aliases and locations have been replaced */
	bool plain; /* its registry may be asked by http if it has no https */
	struct registry_mirror *mirrors;
	size_t n_mirrors;
};

/*
 * Finds that place. `url` begins with oci://; one with a fault stays as it is. 0; -EPERM: the
 * artifact is blocked; -EINVAL: its alias or location is none (both are logged); -ENOMEM.
 */
int oci_find(const struct registries *r, const char *url, struct oci_place *ret);
void oci_place_finish(struct oci_place *at);

/* Is it a URL of a blob of a registry, or a template of them? Then the login is for it, too. */
bool oci_is_blob(const char *url);

/* Is it the name of a repository? */
bool oci_is_name(const char *text);

/* Is the text a digest that is understood here? */
bool oci_is_digest(const char *text);

#endif
