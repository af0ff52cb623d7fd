/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user says of registries: by the option plain_http, and in the files of docker and
 * podman.
 *
 *	daemon.json of docker, /etc/docker/ and ~/.config/docker/: `insecure-registries`, which here
 *	means that http will do, never that a certificate is not checked; `registry-mirrors`, which
 *	are of Docker Hub.
 *	registries.conf of podman ($CONTAINERS_REGISTRIES_CONF, ~/.config/containers/ or
 *	/etc/containers/) and the *.conf in registries.conf.d/: of each [[registry]] `prefix`,
 *	`location`, `insecure`, `blocked` and its [[registry.mirror]]; [aliases]. Not
 *	`unqualified-search-registries`: a name would mean somebody else's registry.
 *
 * A file that cannot be parsed is named in the log, and nothing of it is used.
 *
 * Threads: constant once loaded. registries_load() reads the environment.
 */
#ifndef CARTON_HTTP_REGISTRIES_H
#define CARTON_HTTP_REGISTRIES_H

#include <stdbool.h>
#include <stddef.h>

#define REGISTRIES_MAX_FILE (1024 * 1024)
#define REGISTRIES_MAX 10000 /* entries of each kind, in all files */

struct registries;

/* One that says nothing; NULL: no memory. */
struct registries *registries_new(void);

/*
 * `plain_http`: HOST[:PORT], without a port all ports of HOST; or "*": the registries that `urls`
 * name. Both end with NULL; plain_http may be NULL. 0; -EINVAL: one is no host (logged); -ENOMEM.
 */
int registries_load(char *const *plain_http, const char *const *urls, struct registries **ret);
void registries_free(struct registries *r); /* NULL-safe */

/* Adds what a file says; `name` is for messages. 0; -EBADMSG, -EFBIG, logged; -ENOMEM. */
int registries_parse_docker(struct registries *r, const char *name, const char *text, size_t n);
int registries_parse_podman(struct registries *r, const char *name, const char *text, size_t n);

/*
 * Has the user named HOST in plain_http? Then passwords go there by http, too. `port` is the one
 * that is asked. NULL-safe, like the next one.
 */
bool registries_named(const struct registries *r, const char *host, unsigned port);

/*
 * May this registry, HOST[:PORT], be asked by http where it has no https: is it on this machine,
 * named in plain_http, or insecure by a file, for a repository (NULL: for all)?
 */
bool registries_plain(const struct registries *r, const char *host, const char *name);

/* What the `n` bytes of a name without a registry are an alias of; or NULL. */
const char *registries_alias(const struct registries *r, const char *name, size_t n);

/*
 * Where HOST/NAME is, malloc'ed. `host` is docker.io for Docker Hub, here and below. 0; -EPERM: it
 * is blocked; -ENOMEM. *ret is NULL: it is there. *ret_plain: it may be asked by http.
 */
int registries_locate(const struct registries *r, const char *host, const char *name, char **ret,
		      bool *ret_plain);

struct registry_mirror {
	char *base;	    /* SCHEME://HOST/v2/NAME */
	bool plain;	    /* has https, and may be asked by http where the host has none */
	bool tags, digests; /* what it is asked for, of manifests */
};

/* The mirrors of HOST/NAME, in their order. 0 or -ENOMEM. */
int registries_mirrors(const struct registries *r, const char *host, const char *name,
		       struct registry_mirror **ret, size_t *ret_n);
void registry_mirrors_free(struct registry_mirror *mirrors, size_t n);

#endif
