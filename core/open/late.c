/* SPDX-License-Identifier: Apache-2.0 */
#include "open/late.h"

#include <stdlib.h>

#include "cache/cache.h"
#include "content/derived.h"

bool late_is_wanted(const struct carton_source *s)
{
	const struct carton_options *o = s->options;

	return o->late && !s->pack && !o->manifest_sha256 && !o->verify_keys && !o->verify_cas &&
	       !o->hash_all && !o->keep_going && !o->push_to;
}

/* ---- MANIFEST ---- */

/*
 * Writes the sha256 of each late file into the text of MANIFEST, in place of its name. 0; -EAGAIN:
 * the sha256 of a file is not known yet.
 */
static int put_hashes(const struct carton *c, char *text)
{
	const struct manifest *m = c->manifest;
	uint8_t sha256[SHA256_SIZE];

	for (size_t i = 0; i < m->n; i++) {
		const char *path = manifest_path(m, i);
		char hex[2 * SHA256_SIZE + 1], *at = text + (manifest_hex(path) - m->text);
		const struct late *l;

		at[-1] = '=';
		manifest_hash(path, sha256);
		l = link_late(links_find(c->links, sha256));
		if (!l)
			continue;
		if (!atomic_load(&l->known))
			return -EAGAIN;
		hex_encode(l->sha256, SHA256_SIZE, hex);
		memcpy(at, hex, 2 * SHA256_SIZE);
	}
	return 0;
}

static int write_manifest(struct carton *c, struct fill *f, char *text)
{
	const struct manifest *m = c->manifest;
	struct carton_late *late = &c->late;
	uint8_t hash[SHA256_SIZE];
	struct derived_file out;
	int r;

	memcpy(text, m->text, m->size);
	r = put_hashes(c, text);
	if (r == 0)
		r = sha256_mem(text, m->size, hash);
	if (r == 0)
		r = derived_begin(&out, f, m->size);
	if (r < 0)
		return r;
	r = derived_end(&out, derived_write(&out, text, m->size));
	/* set once: other threads read it, and it is the same each time */
	if (r == 0 && !atomic_load(&late->known)) {
		memcpy(late->model_hash, hash, SHA256_SIZE);
		atomic_store(&late->known, true);
	}
	return r;
}

/* An object_derive_fn. */
static int make_manifest(void *ctx, struct fill *f)
{
	struct carton *c = ctx;
	const uint64_t size = c->manifest->size;
	char *text;
	int r = object_get_each(c->late.list, c->late.n, &f->waits);

	/* the file that cannot be read was logged */
	f->quiet = r < 0;
	if (r < 0)
		return r;
	if (!budget_hold(&c->budget, size))
		return -ENOMEM;
	text = malloc(size + 1);
	r = text ? write_manifest(c, f, text) : -ENOMEM;
	free(text);
	budget_drop(&c->budget, size);
	return r;
}

/* ---- */

int late_prepare(struct carton *c)
{
	size_t n = 0;

	for (size_t i = 0; c->links && i < c->links->n; i++)
		n += link_late(&c->links->list[i]) != NULL;
	if (n == 0)
		return 0;
	c->late.list = calloc(n, sizeof(*c->late.list));
	return c->late.list ? object_add_derived(c->store, "MANIFEST", c->manifest->size,
						 make_manifest, c, &c->late.manifest) :
			      -ENOMEM;
}

/* Can all late files be fetched, or are they in the cache? Else each would log a failure. */
static bool can_have_all(const struct carton *c)
{
	uint8_t sha256[SHA256_SIZE];
	size_t i = 0;

	while (i < c->late.n && (c->fetch.http || (object_cache_name(c->late.list[i], sha256) &&
						   cache_has(c->cache, sha256))))
		i++;
	return i == c->late.n;
}

/* A done() of the fetch in the background. A failure was logged. */
static void fetched(struct object_wait *wait, int result)
{
	if (result == 0)
		object_put(wait->object);
}

int late_begin(struct carton *c, bool fetch)
{
	struct carton_late *late = &c->late;
	struct object *o;
	int r;

	for (size_t i = 0; late->manifest && i < c->links->n; i++) {
		struct link *link = &c->links->list[i];

		if (!link_late(link) || object_add_link(c->store, link->sha256, NULL, NULL, &o) < 0)
			continue;
		late->list[late->n++] = o;
	}
	if (!late->manifest || !fetch || !can_have_all(c))
		return 0;
	late->wait = (struct object_wait){ .done = fetched, .background = true };
	r = object_get(late->manifest, &late->wait);
	if (r == 0)
		object_put(late->manifest);
	return r == -ENOMEM ? r : 0;
}
