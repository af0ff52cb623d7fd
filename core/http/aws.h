/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys, region and server of S3, from the places that the AWS command line reads too.
 *
 *	keys	AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else the profile in
 *		~/.aws/credentials, then in ~/.aws/config; else the output of its credential_process
 *	region	AWS_REGION, AWS_DEFAULT_REGION, the profile's region, us-east-1
 *	server	AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url; else Amazon's
 *	authorities	AWS_CA_BUNDLE (scheme.h), the profile's ca_bundle
 *
 * The profile is AWS_PROFILE or default; AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name other
 * files. Other kinds of keys (SSO, instance metadata, web identity) come through
 * credential_process.
 *
 * Threads: any, but the environment is read by aws_look_around(), aws_place() and aws_bundle()
 * only. aws_find() is for a process that was forked: it is async-signal-safe.
 */
#ifndef CARTON_HTTP_AWS_H
#define CARTON_HTTP_AWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/helper.h"

#define AWS_MAX_KEY 256
#define AWS_MAX_TOKEN 8192
#define AWS_MAX_OUTPUT HELPER_MAX_OUTPUT

struct aws_keys {
	char id[AWS_MAX_KEY]; /* "": there are none, so requests are not signed */
	char secret[AWS_MAX_KEY];
	char token[AWS_MAX_TOKEN]; /* or "" */
	int64_t expiry;		   /* in seconds since 1970; 0: never */
};

struct aws_place {
	char region[64];
	char endpoint[1024]; /* without a slash at its end; "": Amazon's */
};

/* The settings of the environment. */
struct aws_environment {
	char profile[256];
	char config[4096], credentials[4096]; /* the files; "": none */
	struct aws_keys keys;
};

/*
 * The result of the process that looks for keys; plain memory. The first `n` bytes of `output` are
 * used.
 */
struct aws_found {
	int result; /* 0; -ETIMEDOUT, -ECHILD, -EFBIG, -errno: of credential_process */
	bool ran;   /* credential_process ran, and `output` is its output */
	struct aws_keys keys;
	size_t n;
	char output[AWS_MAX_OUTPUT];
};

void aws_look_around(struct aws_environment *ret);

/*
 * Returns region and endpoint. 0; -EINVAL, logged: the region has a character that no region has.
 */
int aws_place(const struct aws_environment *e, struct aws_place *ret);

/* The ca_bundle of the profile, a path. False: it has none. Reads the environment, too. */
bool aws_bundle(char *ret, size_t n);

/*
 * Parses 20250131T235959Z, or with - and : (perhaps as %3A): seconds since 1970; 0: not a time of
 * this form.
 */
int64_t aws_time(const char *text);

/*
 * Read the keys, and the command of credential_process, of the profile from the files. False: none.
 */
bool aws_file_keys(const struct aws_environment *e, struct aws_keys *ret);
bool aws_file_command(const struct aws_environment *e, char *ret, size_t n);

/* Looks for keys; may run a program, and takes as long as the program does. */
void aws_find(const struct aws_environment *e, struct aws_found *ret);

/*
 * Returns the keys that were found. 0; -EINVAL, logged: the output has no keys, or keys that cannot
 * be sent; -ETIMEDOUT, logged; -ENOMEM.
 */
int aws_take(struct aws_found *found, struct aws_keys *ret);

#endif
