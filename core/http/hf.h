/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf://ORG/REPO[@REVISION]/PATH: a file of a model hub. It stands for an https URL, which redirects
 * to where the file is; the login is a token. ORG may have `datasets/` or `spaces/` before it.
 * REVISION is `main` if it is not given; a slash in it is written %2F.
 *
 * Threads: any; they read the environment.
 */
#ifndef CARTON_HTTP_HF_H
#define CARTON_HTTP_HF_H

#include "http/scheme.h"

extern const struct scheme hf_scheme;

/* A repository as a whole: hf://ORG/REPO[@REVISION]. */
struct hf_repository {
	char *hub;	  /* where it is asked for: https://huggingface.co, or HF_ENDPOINT */
	const char *kind; /* models, datasets, spaces: in the API's URLs */
	char *name;	  /* ORG/REPO */
	char *revision;	  /* decoded */
};

bool hf_is_repository(const char *url);

/* Of such a URL. 0 or -ENOMEM. */
int hf_repository(const char *url, struct hf_repository *ret);
void hf_repository_finish(struct hf_repository *r);

#endif
