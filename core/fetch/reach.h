/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a registry is reached: by https, and by http only where that is allowed (repository.plain)
 * and the registry has none, since the connection is refused, or it speaks no TLS. A certificate
 * that is not trusted, or a server that does not answer, is no reason.
 *
 * Threads: one for each repository; it waits.
 */
#ifndef CARTON_FETCH_REACH_H
#define CARTON_FETCH_REACH_H

#include "fetch/version.h"
#include "http/registries.h"
#include "http/repository.h"

struct mirrors;

/*
 * Finds that out, and sets repo->server. 0, also where it was not found out; -ECANCELED; -ENOMEM.
 */
int fetch_reach(const struct fetch_options *options, struct repository *repo);

/*
 * The same of the mirrors of a registry: sets their bases, and the templates of `templates` (or
 * NULL) that are made of them. Before anything is fetched.
 */
int fetch_reach_mirrors(const struct fetch_options *options, struct registry_mirror *list, size_t n,
			struct mirrors *templates);

#endif
