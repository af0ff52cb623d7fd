/* SPDX-License-Identifier: Apache-2.0 */
#include "import/lister.h"

static const struct lister *const listers[] = { &hub_lister, &modelscope_lister, &oci_lister };

const struct lister *lister_of(const char *source)
{
	for (size_t i = 0; i < ARRAY_SIZE(listers); i++)
		if (listers[i]->takes(source))
			return listers[i];
	return NULL;
}
