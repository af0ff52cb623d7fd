/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a registry is asked by https or by http. It is http only if that is allowed
 * (repository.plain) and the registry has no https: the connection is refused, or the server speaks
 * no TLS. After a certificate that is not trusted, or no answer at all, it stays https.
 *
 * Threads: one for each repository; it waits.
 */
#ifndef CARTON_FETCH_REACH_H
#define CARTON_FETCH_REACH_H

#include "fetch/version.h"
#include "http/registries.h"
#include "http/repository.h"

struct mirrors;

/* Asks the registry, and sets repo->server. 0, also without an answer; -ECANCELED; -ENOMEM. */
int fetch_reach(const struct fetch_options *options, struct repository *repo);

/*
 * The same for the mirrors of a registry: sets their bases, and replaces these in `templates` (or
 * NULL). To be called before anything is fetched.
 */
int fetch_reach_mirrors(const struct fetch_options *options, struct registry_mirror *list, size_t n,
			struct mirrors *templates);

#endif
