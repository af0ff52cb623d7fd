/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirrors that the user names (`-o mirror=TEMPLATE`): places that may have an object, asked for
 * it by its hash before the URLs of LINKS and the source URL. What they have is hashed like all
 * else, so nothing of them is trusted.
 *
 * A template is a URL, or an absolute path of a directory that is read in place and never written:
 *
 *	{sha256}  64 hex digits    {ab}      the first two of them
 *	{path}    of the file      {source}  the URL of the carton, as http_url_public() gives it
 *
 * A path without any of these is the cache directory of another cartonfs. Values are
 * percent-encoded in URLs; slashes are not, before a `?`. A template with {source} and none of the
 * others is for the carton itself.
 *
 * Threads: constant once made, but for mirrors_replace(), before anything is fetched.
 */
#ifndef CARTON_FETCH_MIRRORS_H
#define CARTON_FETCH_MIRRORS_H

#include <stdbool.h>

#include "base/digest.h"

struct login;
struct login_options;
struct mirrors;

/*
 * `templates` ends with NULL; `source` is copied. 0; -EINVAL: one makes no sense (logged); -ENOMEM.
 */
int mirrors_new(char *const *templates, const char *source, struct mirrors **ret);
void mirrors_free(struct mirrors *m); /* NULL-safe */

/* In templates that begin with `before`, replaces that by `after`. 0 or -ENOMEM. */
int mirrors_replace(struct mirrors *m, const char *before, const char *after);

/* The URLs of an object: an array that ends with NULL, of malloc'ed texts. 0 or -ENOMEM. */
int mirrors_urls(const struct mirrors *m, const uint8_t sha256[SHA256_SIZE], const char *path,
		 char ***ret);

/* Is there a URL for objects? All functions from here on take NULL mirrors. */
bool mirrors_have_urls(const struct mirrors *m);

/* Adds the logins that requests for its URLs may need: see login_add() in http/scheme.h. */
int mirrors_login(const struct mirrors *m, struct login **list, const struct login_options *o);

/* The URL of the carton at the `index`th mirror that has a template for it, malloc'ed; or NULL. */
char *mirrors_carton(const struct mirrors *m, size_t index);

/*
 * Opens an object in the `index`th directory or behind: *ret_index is where it was. The caller owns
 * *ret_fd and verifies the bytes. 0; -ENOENT: none has a regular file of that name that can be
 * opened.
 */
int mirrors_open(const struct mirrors *m, const uint8_t sha256[SHA256_SIZE], const char *path,
		 size_t *index, int *ret_fd);

/*
 * The directories that mirrors_open() reads, ending with NULL; they live as long as `m`. NULL:
 * none.
 */
const char *const *mirrors_directories(const struct mirrors *m);

#endif
