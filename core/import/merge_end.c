/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a merge: resolves symlinks, and leaves out members that no carton can have. */
#include "base/util.h"
#include "import/merge.h"

/* Limits the length of a path; a carton puts model/ before it. */
#define MAX_MEMBER_PATH (MAX_PATH_LEN - 6)

static void leave_out(struct merge *m, struct member *f)
{
	f->gone = true;
	names_add(&m->left_out, f->path);
}

/* Is the member, which may be NULL, below `root` and not gone? */
static bool is_shown(const struct member *f, const char *root)
{
	return f && !f->gone && merge_is_below(f->path, root);
}

/* The file at the end of a chain of symlinks, or NULL. Sets link->to to the first one after it. */
static const struct member *follow(const struct merge *m, struct member *link, const char *root)
{
	char path[MAX_PATH_LEN + 1];
	struct member *at = link, *to = NULL;

	for (unsigned i = 0; i < MAX_SYMLINK_HOPS; i++) {
		if (merge_path(at->path, at->target, path) <= 0)
			return NULL;
		to = merge_find(m, path);
		if (!is_shown(to, root))
			return NULL;
		if (at == link)
			link->to = to;
		if (to->kind == TAR_FILE)
			return to;
		at = to;
	}
	return NULL;
}

static bool has_below(const struct merge *m, const char *root)
{
	for (size_t i = 0; i < m->n; i++)
		if (merge_is_below(m->list[i].path, root))
			return true;
	return false;
}

static void check_links(struct merge *m, const char *root)
{
	for (size_t i = 0; i < m->n; i++) {
		struct member *f = &m->list[i];
		const struct member *to;

		if (f->kind != TAR_SYMLINK || !is_shown(f, root))
			continue;
		to = follow(m, f, root);
		if (!to) {
			leave_out(m, f);
			continue;
		}
		f->size = to->size;
		memcpy(f->sha256, to->sha256, SHA256_SIZE);
	}
}

const char *merge_end(struct merge *m, const char *root)
{
	size_t skip;

	if (!has_below(m, root))
		root = "";
	skip = *root ? strlen(root) + 1 : 0;
	for (size_t i = 0; i < m->n; i++) {
		struct member *f = &m->list[i];
		size_t n;

		if (!is_shown(f, root)) {
			f->gone = true;
			continue;
		}
		n = strlen(f->path + skip);
		if (f->kind == TAR_OTHER || n > MAX_MEMBER_PATH || path_fault(f->path + skip, n))
			leave_out(m, f);
	}
	check_links(m, root);
	return root;
}
