/* SPDX-License-Identifier: Apache-2.0 */
#include "format/links.h"

#include <stdlib.h>

#include "http/http.h"
#include "http/scheme.h"
#include "base/util.h"

#define LEFT_OUT_TEXT (MAX_PATH_LEN + 2)

/* A line of [sizes]. */
struct size_line {
	uint8_t sha256[SHA256_SIZE];
	uint64_t size; /* LINKS_NO_SIZE: it is none */
	size_t line;
};

/* A line of [git]. */
struct git_line {
	uint8_t name[SHA256_SIZE], id[SHA1_SIZE];
};

struct reader {
	struct links *l;
	size_t cap; /* allocated elements of l->list */
	struct size_line *sizes;
	size_t n_sizes, cap_sizes;
	struct git_line *git;
	size_t n_git, cap_git;
	size_t total; /* URLs of all lists */
	bool in_list; /* the current list is that of the last link; else its key is malformed */
	bool has_version;
};

/* Sets the fault of the file, unless it has one; is 0. */
#define set_error(l, at, ...)                                    \
	({                                                       \
		if (!*(l)->error.text) {                         \
			(l)->error.line = (at);                  \
			reason_set(&(l)->error, 0, __VA_ARGS__); \
		}                                                \
		0;                                               \
	})

static int set_fault(struct link *link, size_t line, const char *fault)
{
	if (!link->fault) {
		link->fault = fault;
		link->line = line;
	}
	return 0;
}

/* False: it is no hash, which is the fault of the file. */
static bool read_hash(struct reader *rd, const struct toml_step *key, size_t line,
		      uint8_t ret[SHA256_SIZE])
{
	if (key->len == 2 * SHA256_SIZE && hex_decode(key->key, SHA256_SIZE, ret))
		return true;
	set_error(rd->l, line, "\"%.80s\" is not 64 lower-case hex digits", key->key);
	return false;
}

static int add_link(struct reader *rd, const struct toml_step *key, size_t line)
{
	struct links *l = rd->l;
	struct link *link;
	uint8_t sha256[SHA256_SIZE];

	rd->in_list = read_hash(rd, key, line, sha256);
	if (!rd->in_list)
		return 0;
	if (array_room(l->list, &rd->cap, l->n + 1) < 0)
		return -ENOMEM;
	link = &l->list[l->n++];
	memset(link, 0, sizeof(*link));
	memcpy(link->sha256, sha256, SHA256_SIZE);
	link->size = LINKS_NO_SIZE;
	link->line = line;
	return 0;
}

static int add_size(struct reader *rd, const struct toml_step *key, const struct toml_value *v)
{
	struct size_line s = { .size = LINKS_NO_SIZE, .line = v->line };

	if (rd->n_sizes >= MAX_LINK_URLS)
		return -EFBIG;
	if (!read_hash(rd, key, v->line, s.sha256))
		return 0;
	if (v->type == TOML_INTEGER && v->integer >= 0 && v->integer <= (int64_t)MAX_FILE_SIZE)
		s.size = (uint64_t)v->integer;
	if (array_room(rd->sizes, &rd->cap_sizes, rd->n_sizes + 1) < 0)
		return -ENOMEM;
	rd->sizes[rd->n_sizes++] = s;
	return 0;
}

/* A text that is no URL that we can ask is never asked, so it counts as a URL that fails. */
static int leave_out_url(struct link *link, size_t line, const char *why)
{
	if (!link->bad_url) {
		link->bad_url = why;
		link->bad_line = line;
	}
	return 0;
}

/* Ignores a malformed line: then the name is taken as the sha256, which no content has. */
static int add_git(struct reader *rd, const struct toml_step *key, const struct toml_value *v)
{
	struct git_line g;

	if (rd->n_git >= MAX_LINK_URLS)
		return -EFBIG;
	if (v->type != TOML_STRING || v->len != 2 * SHA1_SIZE ||
	    !hex_decode(v->str, SHA1_SIZE, g.id) || !read_hash(rd, key, v->line, g.name))
		return 0;
	if (array_room(rd->git, &rd->cap_git, rd->n_git + 1) < 0)
		return -ENOMEM;
	rd->git[rd->n_git++] = g;
	return 0;
}

static int add_url(struct reader *rd, struct link *link, const struct toml_value *v)
{
	const char *fault = v->type != TOML_STRING	 ? "a URL that is not a string" :
			    memchr(v->str, '\0', v->len) ? "a URL that contains a NUL character" :
							   http_url_fault(v->str);
	char **urls;
	int r;

	if (rd->total++ >= MAX_LINK_URLS)
		return -EFBIG;
	if (fault)
		return v->type == TOML_STRING ? leave_out_url(link, v->line, fault) :
						set_fault(link, v->line, fault);
	_Static_assert(MAX_HASH_URLS == 256, "as the message says");
	if (link->n_urls == MAX_HASH_URLS)
		return set_fault(link, v->line, "more than 256 URLs");
	/* capacity doubles whenever the count is a power of two */
	if ((link->n_urls & (link->n_urls - 1)) == 0) {
		urls = reallocarray(link->urls, link->n_urls ? 2 * link->n_urls : 1, sizeof(*urls));
		if (!urls)
			return -ENOMEM;
		link->urls = urls;
	}
	r = scheme_resolve(v->str, &link->urls[link->n_urls], &fault);
	link->n_urls += r == 0;
	return r;
}

/* Is the path below [urls]? */
static bool in_urls(const struct toml_path *path)
{
	return path->n >= 2 && path->steps[1].key && toml_is_key(&path->steps[0], "urls");
}

static int on_begin(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct reader *rd = ctx;

	if (!in_urls(path))
		return 0;
	if (path->n == 2 && type == TOML_ARRAY)
		return add_link(rd, &path->steps[1], line);
	return set_error(rd->l, line, "[urls] contains something other than lists of URLs");
}

/* Takes a value of [left_out]. Those that are not known, or too long, are ignored. */
static int add_left_out(struct links *l, const struct toml_path *path, const struct toml_value *v)
{
	size_t i = path->n == 4 ? path->steps[2].index : MAX_REPORTED;
	const char **text;

	if (toml_path_is(path, "left_out.files") && v->type == TOML_INTEGER && v->integer > 0)
		l->n_left_out = (uint64_t)v->integer;
	if (!toml_path_is(path, "left_out.first[][]") || i >= MAX_REPORTED ||
	    path->steps[3].index > 1 || v->type != TOML_STRING || v->len >= LEFT_OUT_TEXT)
		return 0;
	text = path->steps[3].index ? &l->left_out[i].why : &l->left_out[i].name;
	*text = strdup(v->str);
	return *text ? 0 : -ENOMEM;
}

static int on_value(void *ctx, const struct toml_path *path, const struct toml_value *v)
{
	struct reader *rd = ctx;
	struct links *l = rd->l;

	if (toml_path_is(path, "version")) {
		rd->has_version = true;
		if (v->type != TOML_INTEGER || v->integer != 1)
			return set_error(l, v->line, "version is not 1");
		return 0;
	}
	if (path->n == 2 && path->steps[1].key && toml_is_key(&path->steps[0], "sizes"))
		return add_size(rd, &path->steps[1], v);
	if (path->n == 2 && path->steps[1].key && toml_is_key(&path->steps[0], "git"))
		return add_git(rd, &path->steps[1], v);
	if (toml_is_key(&path->steps[0], "left_out"))
		return add_left_out(l, path, v);
	if (!in_urls(path))
		return 0;
	if (path->n != 3 || path->steps[2].key)
		return set_error(l, v->line, "[urls] contains something other than lists of URLs");
	return rd->in_list ? add_url(rd, &l->list[l->n - 1], v) : 0;
}

static int compare_key(const void *key, const void *link)
{
	return memcmp(key, ((const struct link *)link)->sha256, SHA256_SIZE);
}

struct link *links_find(const struct links *l, const uint8_t sha256[SHA256_SIZE])
{
	return l && l->n ? bsearch(sha256, l->list, l->n, sizeof(*l->list), compare_key) : NULL;
}

static int compare_links(const void *a, const void *b)
{
	return memcmp(((const struct link *)a)->sha256, ((const struct link *)b)->sha256,
		      SHA256_SIZE);
}

/* The list is sorted. */
static void join_sizes(struct reader *rd)
{
	for (size_t i = 0; i < rd->n_sizes; i++) {
		const struct size_line *s = &rd->sizes[i];
		struct link *link = links_find(rd->l, s->sha256);

		if (!link)
			continue;
		link->size = s->size;
		if (s->size == LINKS_NO_SIZE)
			set_fault(link, s->line, "a size that no file can have");
	}
}

static void set_no_url(struct link *link)
{
	if (link->bad_url)
		set_fault(link, link->bad_line, link->bad_url);
	else
		set_fault(link, link->line, "no URL");
}

/* Gives links their git ids. Only content that is small and has a size can be compared with one. */
static int join_git(struct reader *rd)
{
	for (size_t i = 0; i < rd->n_git; i++) {
		const struct git_line *g = &rd->git[i];
		struct link *link = links_find(rd->l, g->name);
		uint8_t name[SHA256_SIZE];
		int r = git_name(g->id, name);

		if (r < 0)
			return r;
		if (!link || link->late || link->size > MAX_LISTED_SMALL ||
		    memcmp(name, g->name, SHA256_SIZE) != 0)
			continue;
		link->late = calloc(1, sizeof(*link->late));
		if (!link->late)
			return -ENOMEM;
		memcpy(link->late->git_id, g->id, SHA1_SIZE);
	}
	return 0;
}

int links_parse(const char *text, size_t n, struct budget *budget, struct links **ret)
{
	const struct toml_events events = { .begin = on_begin,
					    .value = on_value,
					    .budget = budget };
	struct reader rd = { .l = calloc(1, sizeof(*rd.l)) };
	struct reason error;
	int r;

	if (!rd.l)
		return -ENOMEM;
	r = toml_parse_mem(text, n, &events, &rd, &error);
	if ((r == -EBADMSG || r == -EFBIG) && error.text[0])
		r = set_error(rd.l, error.line, "%s", error.text);
	else if (r == 0 && !rd.has_version)
		set_error(rd.l, 0, "it has no version");
	for (size_t i = 0; i < rd.l->n && r == 0; i++)
		if (rd.l->list[i].n_urls == 0)
			set_no_url(&rd.l->list[i]);
	if (r == 0 && rd.l->n)
		qsort(rd.l->list, rd.l->n, sizeof(*rd.l->list), compare_links);
	if (r == 0) {
		join_sizes(&rd);
		r = join_git(&rd);
	}
	free(rd.sizes);
	free(rd.git);
	if (r < 0) {
		links_free(rd.l);
		return r;
	}
	*ret = rd.l;
	return 0;
}

void links_of_user(struct links *l)
{
	for (size_t i = 0; l && i < l->n; i++)
		l->list[i].user = true;
}

void links_free(struct links *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++) {
		for (size_t j = 0; j < l->list[i].n_urls; j++)
			free(l->list[i].urls[j]);
		free(l->list[i].urls);
		free(l->list[i].late);
	}
	for (size_t i = 0; i < MAX_REPORTED; i++) {
		free((char *)l->left_out[i].name);
		free((char *)l->left_out[i].why);
	}
	free(l->list);
	free(l);
}
