/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf://ORG/REPO[@REVISION]/PATH: a file of a model hub. It is a template for an https URL, which
 * redirects to where the file is, and a token. ORG may have `datasets/` or `spaces/` before it.
 * REVISION is `main` if it is not given; a slash in it is written %2F.
 *
 * Threads: any; they read the environment.
 */
#ifndef CARTON_HTTP_HF_H
#define CARTON_HTTP_HF_H

#include <stdbool.h>

bool hf_is_url(const char *url);

/* The fault of such a URL, or NULL. */
const char *hf_url_fault(const char *url);

/*
 * Its https URL, at the hub that HF_ENDPOINT names, malloc'ed. Placeholders of mirror templates in
 * braces stay. NULL: out of memory.
 */
char *hf_http_url(const char *url);

/*
 * The header with the user's token: HF_TOKEN, or what huggingface_hub has saved (HF_TOKEN_PATH,
 * HF_HOME, ~/.cache/huggingface). Malloc'ed; *ret is NULL if there is none. 0; -ENOMEM; -EINVAL: it
 * is no token (logged).
 */
int hf_header(char **ret);

#endif
