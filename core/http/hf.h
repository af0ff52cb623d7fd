/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf://ORG/REPO[@REVISION]/PATH: a file of a model hub. It stands for an https URL, which redirects
 * to where the file is; the login is a token. ORG may have `datasets/` or `spaces/` before it.
 * REVISION is `main` if it is not given.
 *
 * Threads: any; they read the environment.
 */
#ifndef CARTON_HTTP_HF_H
#define CARTON_HTTP_HF_H

#include "http/repository.h"
#include "http/scheme.h"

extern const struct scheme hf_scheme;

extern const struct repository_form hf_form;

#endif
