/* SPDX-License-Identifier: Apache-2.0 */
#include "import/lister.h"

static const struct lister *const listers[] = { &hub_lister, &modelscope_lister, &oci_lister };

static bool takes(const struct lister *l, const char *source)
{
	return l->form ? repository_is_whole(l->form, source) : l->takes(source);
}

const struct lister *lister_of(const char *source)
{
	for (size_t i = 0; i < ARRAY_SIZE(listers); i++)
		if (takes(listers[i], source))
			return listers[i];
	return NULL;
}

int lister_parse(const struct lister *lister, const char *source, struct repository *ret)
{
	return lister->form ? repository_parse(lister->form, source, ret) :
			      lister->parse(source, ret);
}
