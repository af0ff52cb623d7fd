/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/leave_out.h"

#include <fnmatch.h>
#include <string.h>

#include "base/util.h"

static bool is_of_tools(const char *path)
{
	static const char *const names[] = { ".git", ".cache", "__pycache__" };
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(slash ? slash + 1 : path, names[i]) == 0)
			return true;
	return false;
}

/* The pattern that matches, or NULL. */
static const char *match(struct leave_out *l, const char *path)
{
	const char *found = NULL;

	/* all of them: each is to be known as used */
	for (unsigned i = 0; l->patterns && l->patterns[i]; i++)
		if (fnmatch(l->patterns[i], path, 0) == 0) {
			l->used |= UINT64_C(1) << i;
			found = l->patterns[i];
		}
	return found;
}

int leave_out(struct leave_out *l, const char *path)
{
	const char *pattern = match(l, path);

	if (pattern && strcmp(path, "carton.toml") == 0)
		return log_error(-EINVAL, path,
				 "has to be in a carton, but --exclude=%s matches it", pattern);
	if (pattern || !is_of_tools(path))
		return pattern != NULL;
	names_add(&l->names, path);
	return 1;
}

void leave_out_end(struct leave_out *l)
{
	if (l->names.n)
		carton_log(CARTON_LOG_WARNING, NULL, "left out: %s", names_end(&l->names));
	for (unsigned i = 0; l->patterns && l->patterns[i]; i++)
		if (!(l->used >> i & 1))
			carton_log(CARTON_LOG_WARNING, NULL, "--exclude=%s matches nothing",
				   l->patterns[i]);
}
