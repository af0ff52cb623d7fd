/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's settings for registries: the option plain_http, and the files of docker and podman.
 *
 *	daemon.json of docker, in /etc/docker/ and ~/.config/docker/. `insecure-registries` may be
 *	asked by http; by https their certificates are checked like all others. `registry-mirrors`
 *	are mirrors of Docker Hub.
 *
 *	registries.conf of podman ($CONTAINERS_REGISTRIES_CONF, ~/.config/containers/ or
 *	/etc/containers/) and the files *.conf in registries.conf.d/: `prefix`, `location`,
 *	`insecure`, `blocked` and [[registry.mirror]] of each [[registry]], and [aliases].
 *	`unqualified-search-registries` is ignored: a short name could lead to another's registry.
 *
 * A file that cannot be parsed is ignored as a whole, and logged.
 *
 * Threads: constant once loaded. registries_load() reads the environment.
 */
#ifndef CARTON_HTTP_REGISTRIES_H
#define CARTON_HTTP_REGISTRIES_H

#include <stdbool.h>
#include <stddef.h>

#define REGISTRIES_MAX_FILE (1024 * 1024) /* bytes */
#define REGISTRIES_MAX 10000		  /* entries of each kind, in all files */

struct registries;

/* An empty one; NULL: out of memory. */
struct registries *registries_new(void);

/*
 * Loads the option and the files. An element of `plain_http` is HOST[:PORT], without a port for all
 * ports of HOST; or "*" for the registries in `urls`. Both lists end with NULL; plain_http may be
 * NULL. 0; -EINVAL: an element is no host, logged; -ENOMEM.
 */
int registries_load(char *const *plain_http, const char *const *urls, struct registries **ret);
void registries_free(struct registries *r); /* NULL-safe */

/*
 * Parses the text of a file, and adds its settings. `name` is the name of the file, for the log. 0;
 * -EBADMSG, -EFBIG: the file has a fault, which is logged, and nothing is added; -ENOMEM.
 */
int registries_parse_docker(struct registries *r, const char *name, const char *text, size_t n);
int registries_parse_podman(struct registries *r, const char *name, const char *text, size_t n);

/*
 * Does plain_http name this port of HOST? Then passwords may be sent there by http, too. NULL-safe,
 * like registries_plain() and registries_alias().
 */
bool registries_named(const struct registries *r, const char *host, unsigned port);

/*
 * May a registry, HOST[:PORT], be asked by http if it has no https? It may if it is on this
 * machine, is named in plain_http, or is insecure by a file: as a whole (`name` NULL), or for the
 * repository `name`.
 */
bool registries_plain(const struct registries *r, const char *host, const char *name);

/* The value of the alias with a name of `n` bytes; NULL: there is no such alias. */
const char *registries_alias(const struct registries *r, const char *name, size_t n);

/*
 * Looks HOST/NAME up in the files; `host` is docker.io for Docker Hub, here and below. *ret is the
 * location that replaces HOST/NAME, malloc'ed, or NULL: none does. *ret_plain: http is allowed. 0;
 * -EPERM: the repository is blocked; -ENOMEM.
 */
int registries_locate(const struct registries *r, const char *host, const char *name, char **ret,
		      bool *ret_plain);

struct registry_mirror {
	char *base;	    /* SCHEME://HOST/v2/NAME */
	bool plain;	    /* SCHEME is https; http is allowed if the host has no https */
	bool tags, digests; /* manifests are asked for by tag, by digest */
};

/* The mirrors of HOST/NAME, in the order of the files. 0 or -ENOMEM. */
int registries_mirrors(const struct registries *r, const char *host, const char *name,
		       struct registry_mirror **ret, size_t *ret_n);
void registry_mirrors_free(struct registry_mirror *mirrors, size_t n);

#endif
