/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bare safetensors file, at a path or a URL, in place of a carton. With its sha256 it is as a
 * file of one: an entry of a local container, or for a URL an object that LINKS names. Without, its
 * bytes are read where they are, of one version, and nothing is verified: no carton comes here.
 */
#include <stdio.h>
#include <stdlib.h>

#include "archive/decode.h"
#include "archive/what.h"
#include "fetch/remote_source.h"
#include "http/http.h"
#include "open/kind.h"
#include "open/load.h"
#include "writer/lists.h"

#define SUFFIX ".safetensors"
/* fetched by the first request for it: the headers of most files are shorter */
#define HEAD (256 * KIB)

/* The last component of a path or URL, without what follows the path of a URL. */
static const char *base_name(const char *name, size_t *ret_n)
{
	size_t end = http_is_url(name) ? strcspn(name, "?#") : strlen(name), at = end;

	while (at && name[at - 1] != '/')
		at--;
	*ret_n = end - at;
	return name + at;
}

static bool takes(const char *name)
{
	size_t n, end = strlen(SUFFIX);
	const char *base = base_name(name, &n);
	struct stat st;

	/* a directory of that name is an unpacked carton */
	return n > end && memcmp(base + n - end, SUFFIX, end) == 0 &&
	       (http_is_url(name) || stat(name, &st) < 0 || !S_ISDIR(st.st_mode));
}

static int begin(struct carton_source *s)
{
	return http_is_url(s->name) ? url_kind.begin(s) : path_kind.begin(s);
}

static bool may_fetch(const struct carton_source *s)
{
	return s->url;
}

/* ---- a local file that nothing verifies: it must stay as it is ---- */

struct watched {
	struct source source;
	struct source *file;
	struct stat before;
	atomic_bool changed;
};

static int watched_read(struct source *base, void *ret_buf, size_t n, uint64_t off)
{
	struct watched *w = container_of(base, struct watched, source);
	int same, r = source_pread(w->file, ret_buf, n, off);

	/* also when it was cut off */
	same = source_is_same(w->file, &w->before);
	if (same > 0)
		return r;
	if (same == 0 && !atomic_exchange(&w->changed, true))
		carton_log(CARTON_LOG_ERROR, NULL,
			   "the file has changed since it was opened; mount it again");
	return same < 0 ? same : -ESTALE;
}

static void watched_free(struct source *base)
{
	struct watched *w = container_of(base, struct watched, source);

	source_unref(w->file);
	free(w);
}

/* Takes over `file`, also on failure. */
static int watch(struct source *file, const struct stat *st, struct source **ret)
{
	static const struct source_ops ops = { watched_read, source_part, watched_free, NULL };
	struct watched *w = calloc(1, sizeof(*w));

	if (!w) {
		source_unref(file);
		return -ENOMEM;
	}
	w->source = (struct source){ .ops = &ops, .refs = 1, .size = file->size, .fd = -1 };
	w->file = file;
	w->before = *st;
	*ret = &w->source;
	return 0;
}

/* ---- the container: one entry, or none if LINKS has the file ---- */

struct bare {
	struct container container;
	struct source *source; /* NULL: none */
	struct entry entry;
	char name[MAX_COMPONENT + 1];
};

static int bare_locate(struct container *c, const struct entry *e, struct source **ret_source,
		       uint64_t *ret_off)
{
	(void)e;
	*ret_source = source_ref(container_of(c, struct bare, container)->source);
	*ret_off = 0;
	return 0;
}

static void bare_free(struct container *c)
{
	struct bare *b = container_of(c, struct bare, container);

	source_unref(b->source);
	free(b);
}

static int bare_new(struct carton_source *s, struct source *source, int64_t mtime,
		    struct bare **ret)
{
	static const struct container_ops ops = { .locate = bare_locate, .free = bare_free };
	struct bare *b = calloc(1, sizeof(*b));
	const char *name;
	size_t n;

	if (!b) {
		source_unref(source);
		return -ENOMEM;
	}
	name = base_name(s->name, &n);
	/* the name at a server may be none of a file here */
	if (path_fault(name, n)) {
		name = "model" SUFFIX;
		n = strlen(name);
	}
	memcpy(b->name, name, n);
	b->source = source;
	b->entry = (struct entry){
		.name = b->name,
		.size = source ? source->size : 0,
		.stored = source ? source->size : 0,
		.mtime = mtime,
		.method = METHOD_STORED,
		.kind = ENTRY_FILE,
		.name_len = (uint32_t)n,
	};
	b->container = (struct container){
		.ops = &ops,
		.entries = &b->entry,
		.n_entries = source != NULL,
		.budget = &s->carton->budget,
		.mtime = mtime,
		.dated = source != NULL,
		.one_file = true,
	};
	*ret = b;
	return 0;
}

/* ---- opening ---- */

/* Does it begin as a safetensors file? All of its header is fetched with a request or two. */
static int check_head(struct source *source)
{
	uint8_t head[9] = { 0 };
	uint64_t n;
	int r = source_prefetch(source, 0, MIN(source->size, (uint64_t)HEAD), 0);

	if (r == 0)
		r = source_pread(source, head, (size_t)MIN(source->size, sizeof(head)), 0);
	if (r < 0)
		return r;
	n = get_le64(head);
	if (n > MAX_SAFETENSORS_HEADER || head[8] != '{')
		return what_refuse(source, "is not a safetensors file");
	return n < HEAD ? 0 : source_prefetch(source, 0, MIN(source->size, n + 8), 0);
}

/* Opens a local file, or one at a URL that nothing verifies. */
static int open_file(struct carton_source *s, struct bare **ret)
{
	int64_t mtime = s->st.st_mtime;
	struct source *source;
	int r;

	if (s->url) {
		r = url_open(s, &source, &mtime);
	} else {
		r = source_from_fd(s->fd, &source);
		s->fd = -1;
		if (r == 0 && !s->options->sha256)
			r = watch(source, &s->st, &source);
	}
	if (r < 0)
		return r;
	r = check_head(source);
	if (r < 0) {
		source_unref(source);
		return r;
	}
	budget_limit_by_size(&s->carton->budget, source->size);
	return bare_new(s, source, mtime, ret);
}

static int entries(struct carton_source *s, struct container **ret)
{
	struct carton *c = s->carton;
	struct bare *b;
	char label[256];
	int r;

	c->bare = true;
	if (!s->options->sha256 && c->verify) {
		c->verify = false;
		carton_log(CARTON_LOG_WARNING, http_source_label(s->name, label, sizeof(label)),
			   "a bare file is not verified; with its hash, by the option sha256, it "
			   "is, before a byte is read");
	}
	r = s->url && s->options->sha256 ? bare_new(s, NULL, 0, &b) : open_file(s, &b);
	if (r < 0)
		return r;
	*ret = &b->container;
	return 0;
}

/* ---- MANIFEST and LINKS ---- */

/*
 * Something in place of the hash of what has none, which is another one for another version: the
 * next process compares it (carton_layout()).
 */
static int name_version(const struct bare *b, const struct stat *st, uint8_t ret[SHA256_SIZE])
{
	const char *version = b->source->version ? b->source->version : "";
	char text[MAX_CACHE_VALIDATOR + 128];
	int n = snprintf(text, sizeof(text), "unverified %llu %lld %lld %lu %s",
			 (unsigned long long)b->source->size, (long long)b->entry.mtime,
			 (long long)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
			 (unsigned long)st->st_ino, version);

	return sha256_mem(text, MIN((size_t)n, sizeof(text) - 1), ret);
}

/* LINKS leads to the URL as the user has given it. */
static int make_links(const struct carton_source *s, const uint8_t sha256[SHA256_SIZE])
{
	static const char *const none[] = { NULL };
	char *urls[] = { (char *)s->name };
	const struct link link = { .urls = urls, .n_urls = 1 };
	struct buf text = buf_init(MAX_LINKS_FILE);
	struct carton *c = s->carton;
	int r = lists_begin_links(&text);

	if (r == 0)
		r = lists_add_link(&text, sha256, none, &link);
	if (r == 0)
		r = links_parse(text.data, text.len, &c->budget, &c->links);
	buf_finish(&text);
	return r;
}

static int lists(struct carton_source *s)
{
	struct carton *c = s->carton;
	const struct bare *b = container_of(c->container, struct bare, container);
	struct buf text = buf_init(MAX_MANIFEST);
	uint8_t hash[SHA256_SIZE];
	int r = s->options->sha256 ? load_pin("sha256", s->options->sha256, hash) :
				     name_version(b, &s->st, hash);

	if (r == 0 && !b->source)
		r = make_links(s, hash);
	if (r == 0)
		r = lists_add_file(&text, b->name, hash);
	if (r < 0) {
		buf_finish(&text);
		return r;
	}
	return manifest_parse(text.data, text.len, &c->budget, &c->manifest);
}

const struct source_kind bare_kind = {
	.takes = takes,
	.begin = begin,
	.may_fetch = may_fetch,
	.entries = entries,
	.own_links = true,
	.lists = lists,
};
