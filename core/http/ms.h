/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ms://ORG/REPO[@REVISION]/PATH: a file of a model at ModelScope. It stands for an https URL, which
 * redirects to where the file is; there is no login. REVISION is `master` if it is not given.
 *
 * Threads: any; they read the environment.
 */
#ifndef CARTON_HTTP_MS_H
#define CARTON_HTTP_MS_H

#include "http/repository.h"
#include "http/scheme.h"

extern const struct scheme ms_scheme;
extern const struct repository_form ms_form;

#endif
