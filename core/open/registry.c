/* SPDX-License-Identifier: Apache-2.0 */
/* Applies the user's settings for registries: other names, mirrors, http. */
#include <stdio.h>
#include <stdlib.h>

#include "http/oci.h"
#include "open/kind.h"

static bool is_of_registry(const char *name)
{
	return name && scheme_of(name) == &oci_scheme;
}

int registry_begin(struct carton_source *s)
{
	const struct carton_options *options = s->options;
	const char *const urls[] = { s->name, options->push_to ? options->push_to : "", NULL };
	struct carton *c = s->carton;
	int r;

	if (!is_of_registry(s->name) && !is_of_registry(options->push_to) && !options->plain_http)
		return 0;
	r = registries_load(options->plain_http, urls, &c->registries);
	if (r == 0 && is_of_registry(s->name))
		r = oci_find(c->registries, s->name, &s->place);
	if (r == 0 && s->place.url)
		s->name = s->place.url;
	return r;
}

/* The mirrors of the registry come behind those that the user has named for this mount. */
int registry_templates(const struct carton_source *s, char ***ret)
{
	char *const *own = s->options->mirrors;
	size_t n = 0;
	char **list;
	int r = 0;

	while (own && own[n])
		n++;
	list = calloc(n + s->place.n_mirrors + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		r = (list[i] = strdup(own[i])) ? 0 : -ENOMEM;
	for (size_t i = 0; i < s->place.n_mirrors && r == 0; i++)
		if (asprintf(&list[n + i], "%s/blobs/sha256:{sha256}", s->place.mirrors[i].base) <
		    0) {
			list[n + i] = NULL;
			r = -ENOMEM;
		}
	if (r < 0) {
		registry_templates_free(list);
		return r;
	}
	*ret = list;
	return 0;
}

void registry_templates_free(char **list)
{
	for (char **at = list; at && *at; at++)
		free(*at);
	free(list);
}
