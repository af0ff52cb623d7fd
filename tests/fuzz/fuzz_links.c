/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as LINKS: it parses to something that can be searched, or to a fault. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/links.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct links *l;

	if (links_parse((const char *)data, size, NULL, &l) < 0)
		return 0;
	for (size_t i = 0; i < l->n; i++) {
		const struct link *found = links_find(l, l->list[i].sha256);

		/* usable means that there is a URL */
		if (!found || (!found->fault && found->n_urls == 0))
			abort();
		/* of others */
		if (link_late(found))
			abort();
	}
	links_of_user(l);
	for (size_t i = 0; i < l->n; i++) {
		const struct late *late = link_late(&l->list[i]);
		uint8_t name[SHA256_SIZE];

		if (late &&
		    (l->list[i].size > MAX_LISTED_SMALL || git_name(late->git_id, name) < 0 ||
		     memcmp(name, l->list[i].sha256, SHA256_SIZE) != 0))
			abort();
	}
	links_free(l);
	return 0;
}
