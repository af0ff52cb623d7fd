/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oci://REGISTRY/NAME[:TAG][@sha256:HEX]: an artifact of an OCI registry, as a whole. The registry
 * is asked by https; one on this machine by http. docker.io means registry-1.docker.io, and there a
 * name without a slash is in library/. The tag is `latest` if neither is given; a digest wins.
 *
 * Its login is what docker and podman have saved for the registry (docker.h). It is sent when the
 * registry asks for it: to the registry itself, or to the server that it names for tokens.
 *
 * Threads: any.
 */
#ifndef CARTON_HTTP_OCI_H
#define CARTON_HTTP_OCI_H

#include "http/repository.h"
#include "http/scheme.h"

extern const struct scheme oci_scheme;

/* Is it a URL of the scheme without a fault? */
bool oci_is_artifact(const char *url);

/* Of such a URL: `revision` is the tag or the digest. 0 or -ENOMEM. */
int oci_parse(const char *url, struct repository *ret);

/* Is it a URL of a blob of a registry, or a template of them? Then the login is for it, too. */
bool oci_is_blob(const char *url);

/* Is it the name of a repository? */
bool oci_is_name(const char *text);

/* Is the text a digest that is understood here? */
bool oci_is_digest(const char *text);

#endif
