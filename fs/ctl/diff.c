/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cartonctl diff`: which files of two cartons differ, by their hashes, and which tensors of those.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/tensors.h"
#include "common/numbers.h"
#include "common/privacy.h"
#include "ctl/term.h"

#define BLOCK ((size_t)1 << 20)

/* One of the two cartons. */
struct side {
	struct carton *c;
	struct ctl_files files; /* in the order of their paths, without MANIFEST */
};

enum { REMOVED, ADDED, CHANGED, SAME };

struct diff {
	struct side a, b;
	struct json_writer *json; /* NULL: lines for people */
	bool all_tensors;
	uint64_t n[SAME + 1]; /* files and symlinks */
	uint64_t same_links;  /* of those that are the same: symlinks */
	uint64_t unread;      /* files whose tensors were not compared */
	bool tensor_data_changed;
	bool tensors_begun; /* in JSON: of the current file */
	int failed;	    /* -errno of the first failure */
};

/* ---- output ---- */

static const char *const words[] = { "removed", "added", "changed", "same" };

static void put_sign(int what)
{
	static const enum term_style styles[] = { TERM_BAD, TERM_GOOD, TERM_LINK, TERM_PLAIN };

	term_style(styles[what]);
	printf("%c ", "-+~ "[what]);
}

static char *file_size(const struct carton_node *node, char ret[SIZE_TEXT])
{
	struct carton_stat st;

	carton_stat(node, &st);
	if (st.kind == CARTON_SYMLINK)
		return strcpy(ret, "symlink");
	return st.size_known ? format_size(st.size, ret) : strcpy(ret, "?");
}

static void json_size(struct json_writer *w, const char *key, const struct carton_node *node)
{
	char hash[128];
	struct carton_stat st;

	if (!node)
		return;
	carton_stat(node, &st);
	json_begin(w, key, '{');
	if (carton_property(node, "user.carton.sha256", hash, sizeof(hash)) > 0)
		json_text(w, "sha256", hash);
	if (carton_target(node))
		json_text(w, "target", carton_target(node));
	else
		json_number(w, "size", st.size);
	json_end(w, '}');
}

/* One file; either may be NULL. */
static void put_file(struct diff *d, int what, const struct carton_node *a,
		     const struct carton_node *b)
{
	char path[4096], from[SIZE_TEXT], to[SIZE_TEXT];

	d->n[what]++;
	carton_path(a ? a : b, path);
	if (d->json) {
		json_line(d->json, 0);
		json_begin(d->json, NULL, '{');
		json_text(d->json, "path", path);
		json_text(d->json, "change", words[what]);
		json_size(d->json, "a", a);
		json_size(d->json, "b", b);
		return;
	}
	put_sign(what);
	term_put(path);
	term_style(TERM_PLAIN);
	printf("  %s", file_size(a ? a : b, from));
	if (what == CHANGED)
		printf(" %s %s", term_symbol("→", "->"), file_size(b, to));
	putchar('\n');
}

static void end_file(const struct diff *d)
{
	if (d->json)
		json_end(d->json, '}');
}

static void json_type(struct json_writer *w, const char *key, const struct ctl_tensor *t)
{
	if (!t)
		return;
	json_begin(w, key, '{');
	json_text(w, "dtype", t->dtype);
	json_value(w, "shape", *t->shape ? t->shape : "null");
	json_end(w, '}');
}

/* The array of tensors begins with the first one. */
static void json_tensor(struct diff *d, int what, const struct ctl_tensor *a,
			const struct ctl_tensor *b)
{
	if (!d->tensors_begun)
		json_begin(d->json, "tensors", '[');
	d->tensors_begun = true;
	json_begin(d->json, NULL, '{');
	json_text(d->json, "name", a ? a->name : b->name);
	json_text(d->json, "change", words[what]);
	json_type(d->json, "a", a);
	json_type(d->json, "b", b);
	json_end(d->json, '}');
}

static void put_tensor(struct diff *d, int what, const struct ctl_tensor *a,
		       const struct ctl_tensor *b)
{
	const struct ctl_tensor *t = a ? a : b;
	bool other = a && b && (strcmp(a->dtype, b->dtype) || strcmp(a->shape, b->shape));

	if (d->json) {
		json_tensor(d, what, a, b);
		return;
	}
	term_spaces(4);
	put_sign(what);
	term_put(t->name);
	term_style(TERM_PLAIN);
	printf("  %s %s", t->dtype, t->shape);
	if (other)
		printf(" %s %s %s", term_symbol("→", "->"), b->dtype, b->shape);
	else if (what == CHANGED)
		fputs("  other values", stdout);
	putchar('\n');
}

/* ---- tensors ---- */

/* Compares the bytes of two pinned files of the same size. 1: they differ; 0; or -errno. */
static int compare_pinned(struct carton_node *a, struct carton_node *b)
{
	char *x = malloc(2 * BLOCK), *y;
	uint64_t off = 0;
	ssize_t n = 0, m = 0;
	int differ = 0;

	if (!x)
		return -ENOMEM;
	y = x + BLOCK;
	while (!differ && (n = carton_read(a, x, BLOCK, off, false)) > 0) {
		m = carton_read(b, y, BLOCK, off, false);
		if (m < 0)
			break;
		differ = m != n || memcmp(x, y, (size_t)n) != 0;
		off += (uint64_t)n;
	}
	free(x);
	return n < 0 ? (int)n : m < 0 ? (int)m : differ;
}

static int compare_data(struct diff *d, const struct ctl_tensor *a, const struct ctl_tensor *b)
{
	int r = carton_pin_wait(d->a.c, a->data);

	if (r < 0)
		return r;
	r = carton_pin_wait(d->b.c, b->data);
	if (r == 0) {
		r = compare_pinned(a->data, b->data);
		carton_unpin(b->data);
	}
	carton_unpin(a->data);
	return r;
}

static int compare_tensor(struct diff *d, const struct ctl_tensor *a, const struct ctl_tensor *b)
{
	int r = strcmp(a->dtype, b->dtype) || strcmp(a->shape, b->shape) ? 1 :
									   compare_data(d, a, b);

	if (r > 0)
		put_tensor(d, CHANGED, a, b);
	return r < 0 ? r : 0;
}

/* Compares the tensors of a file that both cartons have, or of tensor_data. */
static void compare_tensors(struct diff *d, const char *path)
{
	struct tensor_list a = { 0 }, b = { 0 };
	int r = tensor_list_load(d->a.c, path, &a);

	d->tensors_begun = false;
	if (r == 0)
		r = tensor_list_load(d->b.c, path, &b);
	for (size_t i = 0, j = 0; r == 0 && (i < a.n || j < b.n);) {
		int order = i == a.n ? 1 : j == b.n ? -1 : strcmp(a.list[i].name, b.list[j].name);

		if (order < 0)
			put_tensor(d, REMOVED, &a.list[i++], NULL);
		else if (order > 0)
			put_tensor(d, ADDED, NULL, &b.list[j++]);
		else
			r = compare_tensor(d, &a.list[i++], &b.list[j++]);
	}
	if (d->tensors_begun)
		json_end(d->json, ']');
	if (r < 0 && d->failed == 0)
		d->failed = r;
	tensor_list_finish(&a);
	tensor_list_finish(&b);
}

/* ---- files ---- */

static void add_file(void *ctx, struct carton_node *node)
{
	struct side *side = ctx;

	if (strcmp(carton_name(node), "MANIFEST") != 0 ||
	    carton_parent(node) != carton_root(side->c))
		ctl_add_file(&side->files, node);
}

static bool same_file(const struct carton_node *a, const struct carton_node *b)
{
	const char *x = carton_target(a), *y = carton_target(b);
	char hash_a[128] = "", hash_b[128] = "";

	if (x || y)
		return x && y && strcmp(x, y) == 0;
	carton_property(a, "user.carton.sha256", hash_a, sizeof(hash_a));
	carton_property(b, "user.carton.sha256", hash_b, sizeof(hash_b));
	return *hash_a && strcmp(hash_a, hash_b) == 0;
}

static void note_change(struct diff *d, const struct carton_node *node)
{
	char path[4096];

	carton_path(node, path);
	if (strncmp(path, "tensor_data/", 12) == 0)
		d->tensor_data_changed = true;
}

static void compare_files(struct diff *d, struct carton_node *a, struct carton_node *b)
{
	char path[4096];

	if (same_file(a, b)) {
		d->n[SAME]++;
		d->same_links += carton_target(a) != NULL;
		return;
	}
	note_change(d, a);
	put_file(d, CHANGED, a, b);
	carton_path(a, path);
	if (ctl_has_tensors(a) && ctl_has_tensors(b)) {
		if (d->all_tensors || (ctl_is_cheap(d->a.c, a) && ctl_is_cheap(d->b.c, b)))
			compare_tensors(d, path);
		else
			d->unread++;
	}
	end_file(d);
}

static void compare_all(struct diff *d)
{
	const struct ctl_files *a = &d->a.files, *b = &d->b.files;

	for (size_t i = 0, j = 0; i < a->n || j < b->n;) {
		int order = i == a->n ? 1 :
			    j == b->n ? -1 :
					ctl_compare_paths(a->list[i], b->list[j]);

		if (order == 0) {
			compare_files(d, a->list[i++], b->list[j++]);
			continue;
		}
		note_change(d, order < 0 ? a->list[i] : b->list[j]);
		if (order < 0)
			put_file(d, REMOVED, a->list[i++], NULL);
		else
			put_file(d, ADDED, NULL, b->list[j++]);
		end_file(d);
	}
}

/* ---- all ---- */

static bool same_manifest(const struct diff *d)
{
	char a[65], b[65];

	carton_model_hash(d->a.c, a);
	carton_model_hash(d->b.c, b);
	return strcmp(a, b) == 0;
}

static void put_end(const struct diff *d)
{
	char count[2 * TERM_COUNT];
	uint64_t all = d->n[REMOVED] + d->n[ADDED] + d->n[CHANGED];

	if (all == 0) {
		printf("the same: %s\n",
		       ctl_count(d->n[SAME] - d->same_links, d->same_links, count));
		return;
	}
	if (d->unread)
		printf("%s with tensors not read: --tensors compares them\n",
		       term_count(d->unread, "file", count));
	printf("%s: %" PRIu64 " changed, %" PRIu64 " removed, %" PRIu64 " added; %" PRIu64
	       " the same\n",
	       term_count(all, "difference", count), d->n[CHANGED], d->n[REMOVED], d->n[ADDED],
	       d->n[SAME]);
}

static int compare(struct diff *d)
{
	ctl_walk(carton_root(d->a.c), add_file, &d->a);
	ctl_walk(carton_root(d->b.c), add_file, &d->b);
	if (d->a.files.no_memory || d->b.files.no_memory)
		return -ENOMEM;
	if (d->json) {
		json_begin(d->json, NULL, '{');
		json_begin(d->json, "files", '[');
	}
	compare_all(d);
	/* it differs wherever a file differs, so it is not listed */
	d->n[SAME] += same_manifest(d);
	if (d->json)
		json_end_line(d->json, ']');
	/* in JSON, the tensors of tensor_data are a member of the object itself */
	if (d->tensor_data_changed &&
	    (d->all_tensors || (!carton_is_remote(d->a.c) && !carton_is_remote(d->b.c))))
		compare_tensors(d, "tensor_data");
	if (d->json) {
		json_number(d->json, "same", d->n[SAME]);
		json_end(d->json, '}');
	} else if (d->failed == 0) {
		put_end(d);
	}
	return d->failed;
}

/* Both sources, and the options to open them. */
struct opening {
	struct diff *d;
	struct args *args;
	struct ctl_log *log;
	char *second;
};

/*
 * The confine function of the first carton: opens the second one, which enters the sandbox. So the
 * cache and the files of both are open before.
 */
static int open_second(void *ctx, const struct carton_paths *paths)
{
	struct opening *o = ctx;
	const char *first = o->log->source;
	char label[256];
	int r;

	o->args->sandbox.input = paths->source;
	ctl_log_source(o->log, carton_source_label(o->second, label, sizeof(label)), true);
	r = carton_open(o->second, &o->args->values.carton, &o->d->b.c);
	ctl_log_source(o->log, first, true);
	return r;
}

static int open_both(struct diff *d, char **sources, struct args *a, struct ctl_log *log)
{
	struct opening o = { d, a, log, strdup(sources[1]) };
	struct carton_options options;
	char *first = strdup(sources[0]), label[256];
	int r = -ENOMEM;

	ctl_hide_views(&a->values.carton);
	options = a->values.carton;
	options.confine = open_second;
	options.confine_ctx = &o;
	privacy_hide(sources[0]);
	privacy_hide(sources[1]);
	if (first && o.second) {
		ctl_log_source(log, carton_source_label(first, label, sizeof(label)), true);
		r = carton_open(first, &options, &d->a.c);
		if (r == 0 && (carton_is_bare(d->a.c) || carton_is_bare(d->b.c))) {
			ctl_refuse("diff", "a bare file is no carton; cartonctl info --json "
					   "says what is in it");
			log->problems++;
			r = -EINVAL;
		}
		ctl_log_source(log, NULL, false);
	}
	free(first);
	free(o.second);
	return r;
}

int ctl_diff(char **sources, int n, const struct args *args)
{
	struct ctl_log log = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct json_writer json = { .f = stdout };
	struct diff d = { .json = args->values.json ? &json : NULL,
			  .all_tensors = args->values.tensors };
	struct args a = *args;
	int r;

	if (n != 2)
		return ctl_usage("diff: two SOURCEs are needed");
	carton_log_set(ctl_on_log, &log);
	a.values.carton.confine_ctx = &a.sandbox;
	r = open_both(&d, sources, &a, &log);
	if (r == 0)
		r = compare(&d);
	if (r < 0 && !log.problems)
		ctl_failed("diff", r);
	free(d.a.files.list);
	free(d.b.files.list);
	carton_close(d.a.c);
	carton_close(d.b.c);
	if (r < 0)
		return ctl_flush(args->values.carton.offline ? EXIT_TROUBLE :
							       exit_status(r, EXIT_TROUBLE));
	return ctl_flush(d.n[REMOVED] + d.n[ADDED] + d.n[CHANGED] ? EXIT_BAD : EXIT_GOOD);
}
