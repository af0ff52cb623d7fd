/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server and its token server say when a request needs a token (the token authentication of
 * OCI registries): hostile text in, bounded values out. Private to this folder and its tests. Any
 * thread.
 */
#ifndef CARTON_HTTP_CHALLENGE_H
#define CARTON_HTTP_CHALLENGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHALLENGE_MAX_REALM 2048
#define CHALLENGE_MAX_VALUE 1024
#define TOKEN_MAX_TEXT (16 * 1024)
#define TOKEN_SECONDS 60	/* of a token that does not say it */
#define TOKEN_MAX_SECONDS 86400 /* more is cut to it */

struct challenge {
	char realm[CHALLENGE_MAX_REALM + 1];
	char service[CHALLENGE_MAX_VALUE + 1], scope[CHALLENGE_MAX_VALUE + 1]; /* or "" */
};

/*
 * Reads the value of WWW-Authenticate (RFC 9110, 11.6.1), several of them joined by commas. Returns
 * the first challenge of the scheme Bearer. 0; -ENOENT: there is none; -EBADMSG: the text is no
 * list of challenges, or that of Bearer has no realm, a parameter twice, or a value that is longer
 * than above or has a control character.
 */
int challenge_parse(const char *text, struct challenge *ret);

/* Does the text ask for a user name and a password, and for no token? */
bool challenge_is_basic(const char *text);

/*
 * Adds `repository:NAME:ACTIONS` to the scopes, unless one of them allows that, or there is no
 * room. Empty scopes, such as `::`, and one for the first of the actions are dropped; with `alone`,
 * all others are, too. Returns whether there were others.
 */
bool challenge_need(struct challenge *c, const char *name, size_t n, const char *actions,
		    bool alone);

/* The URL to ask for a token: malloc'ed, NULL: out of memory. */
char *challenge_url(const struct challenge *c);

/*
 * Reads the answer, JSON with `token` or `access_token`, and perhaps `expires_in`. *ret_token is
 * malloc'ed, of printable ASCII without spaces. 0; -EBADMSG; -ENOMEM.
 */
int token_parse(const char *json, size_t n, char **ret_token, int64_t *ret_seconds);

#endif
