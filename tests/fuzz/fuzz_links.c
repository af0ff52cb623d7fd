/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as LINKS: it parses to something that can be searched, or to a fault. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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
	}
	links_free(l);
	return 0;
}
