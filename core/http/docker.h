/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials for registries, from the files of docker and podman: $REGISTRY_AUTH_FILE, which is
 * podman's, $DOCKER_CONFIG/config.json or ~/.docker/config.json, then
 * $XDG_RUNTIME_DIR/containers/auth.json. The first that says anything of the registry: a helper of
 * its own (`credHelpers`), what is saved for it (`auths`), the helper for all (`credsStore`).
 *
 * Threads: any; docker_find() reads the environment.
 */
#ifndef CARTON_HTTP_DOCKER_H
#define CARTON_HTTP_DOCKER_H

#include <stdbool.h>
#include <stddef.h>

#define DOCKER_HUB "registry-1.docker.io" /* where docker.io is */
#define DOCKER_MAX_FILE (1024 * 1024)
#define DOCKER_MAX_AUTH (16 * 1024)
/* for messages */
#define DOCKER_IDENTITY \
	"an identity token, which cannot be used here: log in with a password or an access token"

struct docker_found {
	char auth[DOCKER_MAX_AUTH]; /* base64 of USER:PASSWORD; or "" */
	char helper[64];	    /* else docker-credential-NAME has them; or "" */
	char file[4096];	    /* set by docker_find(): the file that has them */
};

struct buf;

/* Do the `n` bytes of a text name the registry `host`? All names of Docker Hub are DOCKER_HUB. */
bool docker_same_host(const char *host, const char *text, size_t n);

/* Reads a file of fewer than `max` bytes. 0; -ENOENT: it is not there; -EFBIG; -errno. */
int docker_read_file(const char *path, size_t max, struct buf *ret);

/*
 * What a file says of the repository `name` of a registry. `host` is as the user writes it, with
 * the port. 0; -ENOENT: nothing; -EBADMSG: it is no JSON, or says what cannot be used;
 * -EOPNOTSUPP: an identity token; -ENOMEM.
 */
int docker_parse(const char *text, size_t n, const char *host, const char *name,
		 struct docker_found *ret);

/* The same of the files. 0; -ENOENT, also where an identity token was logged; or -errno, logged. */
int docker_find(const char *host, const char *name, struct docker_found *ret);

/* By what name a helper knows the registry. */
const char *docker_server(const char *host);

/*
 * Reads what a helper writes, JSON with Username and Secret. 0; -EBADMSG: that is not there, or
 * too long; -EOPNOTSUPP: a token that is no password; -ENOMEM.
 */
int docker_output(const char *text, size_t n, char ret_auth[DOCKER_MAX_AUTH]);

#endif
