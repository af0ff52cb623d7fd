/* SPDX-License-Identifier: Apache-2.0 */
#include "open/load_lines.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/composed.h"
#include "base/util.h"

void load_fault(struct loader *l, const char *path, const char *what)
{
	if (l->faults < MAX_REPORTED)
		carton_log(CARTON_LOG_ERROR, path, "%s", what);
	l->faults++;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

/*
 * Checks an entry that is not listed, between the paths `before` and `after` of MANIFEST: neither
 * may need a directory where the entry is a file, or the other way round. LINKS, or an entry with
 * the same bytes, may have these paths.
 */
static void check_unlisted(struct loader *l, const struct entry *e, const char *before,
			   const char *after)
{
	if (before && is_below(e->name, before))
		load_fault(l, before, "is listed in MANIFEST, but it is a directory");
	else if (after && e->kind != ENTRY_DIR && is_below(after, e->name))
		load_fault(l, after, "is listed in MANIFEST below a path that is not a directory");
}

int load_match_entries(struct loader *l)
{
	struct container *c = l->c;
	struct arena names = { 0 };
	size_t i = 0;

	for (size_t k = 0; k < c->n_entries; k++) {
		struct entry *e = &c->entries[k];
		int order = 1;

		while (i < l->m->n && (order = path_compare(manifest_path(l->m, i), e->name)) < 0)
			l->entries[i++] = NO_ENTRY;
		if (i < l->m->n && order == 0) {
			e->name = manifest_path(l->m, i);
			l->entries[i++] = (uint32_t)k;
			continue;
		}
		check_unlisted(l, e,
			       i && l->entries[i - 1] == NO_ENTRY ? manifest_path(l->m, i - 1) :
								    NULL,
			       i < l->m->n ? manifest_path(l->m, i) : NULL);
		e->name = arena_text(&names, e->name, e->name_len);
		if (!e->name) {
			arena_finish(&names);
			return -ENOMEM;
		}
	}
	while (i < l->m->n)
		l->entries[i++] = NO_ENTRY;
	arena_finish(&c->names);
	c->names = names;
	return 0;
}

static int add_special(struct loader *l, const char *target, struct object *o)
{
	if (array_room(l->special, &l->cap_special, l->n_special + 1) < 0)
		return -ENOMEM;
	l->special[l->n_special++] = (struct special){ (uint32_t)l->n, target, o };
	return 1;
}

/*
 * Each of these functions returns 1: the line has a node; 0: it has a fault and gets none; or
 * -errno.
 */

static int add_symlink(struct loader *l, const char *path, const struct entry *e)
{
	struct buf target = { 0 };
	char *copy;
	int r = container_readlink(l->c, e, &target);

	if (r == -EBADMSG || r == -EFBIG) {
		load_fault(l, path, "its target cannot be read");
		r = 0;
	} else if (r == 0 && (target.len == 0 || memchr(target.data, '\0', target.len) ||
			      !utf8_valid(target.data, target.len))) {
		load_fault(l, path, "is a symlink whose target is not a path");
	} else if (r == 0) {
		copy = arena_text(&l->tree->arena, target.data, target.len);
		r = copy ? add_special(l, copy, NULL) : -ENOMEM;
	}
	buf_finish(&target);
	return r;
}

static int links_fault(struct loader *l, size_t line, const char *what, const char *path)
{
	char at[32] = "";

	if (line)
		snprintf(at, sizeof(at), "line %zu: ", line);
	carton_log(CARTON_LOG_ERROR, "LINKS", "%s%s; needed by \"%s\"", at, what, path);
	l->faults++;
	return 0;
}

/* Logs that a bad URL of LINKS is left out, once: for the first path that has such a link. */
static void warn_bad_url(struct loader *l, const struct link *link, const char *path)
{
	if (link->bad_url && !l->said_bad_url)
		carton_log(CARTON_LOG_WARNING, "LINKS",
			   "line %zu: %s; \"%s\" is fetched from its other URLs", link->bad_line,
			   link->bad_url, path);
	l->said_bad_url |= link->bad_url != NULL;
}

/* Has the container a name that differs from `path` only in its normal form? */
static bool has_composed(const struct loader *l, const char *path)
{
	if (l->faults >= MAX_REPORTED || is_ascii(path))
		return false;
	for (size_t i = 0; i < l->c->n_entries; i++)
		if (composed_alike(path, l->c->entries[i].name))
			return true;
	return false;
}

/* Handles a path that the container lacks: the same bytes under another name, or LINKS. */
static int add_missing(struct loader *l, const char *path)
{
	uint8_t sha256[SHA256_SIZE];
	struct object *o;
	struct link *link;
	int r;

	manifest_hash(path, sha256);
	link = links_find(l->links, sha256);
	r = object_add_link(l->store, sha256, path, link, &o);
	if (r == -ENOENT && l->links && *l->links->error.text)
		return links_fault(l, l->links->error.line, l->links->error.text, path);
	if (r == -ENOENT) {
		load_fault(
			l, path,
			has_composed(l, path) ?
				"is listed in MANIFEST, but what the carton has is this name with "
				"its characters composed in another way (NFC in the one, NFD in "
				"the other): unpack it, then run cartonctl pack DIR OUT.carton" :
				"is listed in MANIFEST, but neither the carton nor LINKS has it");
		return 0;
	}
	if (r < 0)
		return r;
	if (!object_entry(o) && *l->links->error.text)
		return links_fault(l, l->links->error.line, l->links->error.text, path);
	if (!object_entry(o) && link->fault)
		return links_fault(l, link->line, link->fault, path);
	if (!object_entry(o))
		warn_bad_url(l, link, path);
	return add_special(l, NULL, o);
}

static int check_line(struct loader *l, const char *path, uint32_t at)
{
	const struct entry *e = at == NO_ENTRY ? NULL : &l->c->entries[at];

	if (!e)
		return add_missing(l, path);
	if (e->kind == ENTRY_DIR) {
		load_fault(l, path, "is listed in MANIFEST, but it is a directory");
		return 0;
	}
	return e->kind == ENTRY_FILE ? 1 : add_symlink(l, path, e);
}

/* For paths that the container lacks: another entry may have the same bytes. */
static int add_objects(struct loader *l)
{
	const struct manifest *m = l->m;
	uint8_t sha256[SHA256_SIZE];
	struct object *o;
	int r = 0;

	for (size_t i = 0; i < m->n && r == 0; i++) {
		const struct entry *e = l->entries[i] == NO_ENTRY ? NULL :
								    &l->c->entries[l->entries[i]];

		if (!e || e->kind != ENTRY_FILE)
			continue;
		manifest_hash(manifest_path(m, i), sha256);
		r = object_add(l->store, sha256, e, &o);
	}
	return r;
}

/* Begins to copy the lines, because one is left out. */
static int copy_lines(struct loader *l)
{
	if (l->good)
		return 0;
	l->lines = l->good = calloc(l->m->n, sizeof(*l->good));
	if (!l->good)
		return -ENOMEM;
	memcpy(l->good, l->m->lines, l->n * sizeof(*l->good));
	return 0;
}

int load_check_lines(struct loader *l)
{
	const struct manifest *m = l->m;
	bool missing = false;
	int r;

	for (size_t i = 0; i < m->n && !missing; i++)
		missing = l->entries[i] == NO_ENTRY;
	l->lines = m->lines;
	r = missing ? add_objects(l) : 0;
	for (size_t i = 0; i < m->n && r >= 0; i++) {
		r = check_line(l, manifest_path(m, i), l->entries[i]);
		if (r == 0)
			r = copy_lines(l);
		if (r <= 0)
			continue;
		if (l->good)
			l->good[l->n] = m->lines[i];
		l->entries[l->n++] = l->entries[i];
	}
	return MIN(r, 0);
}

const struct entry *load_find_entry(const struct container *c, const struct manifest *m,
				    const struct object *o, size_t *line)
{
	char hex[2 * SHA256_SIZE + 1];

	hex_encode(object_sha256(o), SHA256_SIZE, hex);
	while (*line < m->n) {
		const char *path = manifest_path(m, (*line)++);
		const struct entry *e;

		if (memcmp(manifest_hex(path), hex, 2 * SHA256_SIZE) != 0)
			continue;
		e = container_find(c, path);
		if (e && e->kind == ENTRY_FILE && e->size == object_size(o))
			return e;
	}
	return NULL;
}
