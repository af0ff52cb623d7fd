/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where and as whom to ask S3: what the AWS command line reads too.
 *
 *	keys	AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; else the profile in
 *		~/.aws/credentials, then in ~/.aws/config; else the output of its credential_process
 *	region	AWS_REGION, AWS_DEFAULT_REGION, the profile's region, us-east-1
 *	server	AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url; else Amazon's
 *
 * The profile is AWS_PROFILE or default; AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name other
 * files. All else (SSO, instance metadata, web identity) is what credential_process is for.
 *
 * Threads: any, but aws_load() may run a program and reads the environment: before there are threads.
 */
#ifndef CARTON_HTTP_AWS_H
#define CARTON_HTTP_AWS_H

#include <stdbool.h>
#include <stdint.h>

#define AWS_MAX_KEY 256
#define AWS_MAX_TOKEN 8192

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

void aws_place(struct aws_place *ret);

/* 0; -EINVAL, logged: what credential_process has written is no such thing; -ETIMEDOUT; -errno. */
int aws_load(struct aws_keys *ret);

#endif
