/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ways to check a whole carton, on all cores.
 *
 * carton_verify() hashes every entry, also if several have the same content; checks the entries
 * that a mount never opens; and reports all else. carton_materialize() pins files as an open does.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "archive/decode.h"
#include "carton/opened.h"
#include "archive/what.h"
#include "check/check_entry.h"
#include "base/ingest.h"
#include "base/util.h"
#include "fetch/version.h"

#define PROGRESS_MS 100
/* objects that are got at once: each has files open, and waits for its turn at a server */
#define MAX_AT_ONCE 64
/* the same for entries of a remote container, of which small ones are fetched together */
#define MAX_REMOTE 8
#define MAX_TOGETHER (1 * MIB)

struct verify {
	struct carton *c;
	struct file_check *checks;
	size_t n_checks;
	atomic_size_t seen; /* of these: none before can be taken as a partner */
	struct carton_index chunks;
	bool away; /* nothing is fetched: only the cache has bytes of its entries */
	const struct pack_tags *made; /* see struct check_entry */
	uint64_t total;		      /* bytes to read, as far as known */
	_Atomic uint64_t bytes; /* read by checks of entries; the object store counts its own */
	atomic_size_t problems;
	atomic_int why;	      /* -errno of the worst */
	pthread_mutex_t lock; /* guards left */
	pthread_cond_t over;  /* signalled when left decreases */
	size_t left;	      /* checks that have not ended */
};

struct file_check {
	struct job job;
	size_t n; /* this many from here on are checked by this job */
	struct verify *v;
	const char *line; /* its path in MANIFEST; NULL: it has no hash */
	const struct entry *entry;
	atomic_bool taken;	   /* somebody checks it, or has */
	bool crowded;		   /* the checks behind it keep all other processors busy */
	struct check_parts *parts; /* of which this is one; NULL: all of the entry is checked */
	size_t part;
};

struct check_list {
	struct file_check *list;
	size_t n, cap;
};

static void count_bytes(void *ctx, uint64_t n)
{
	struct verify *v = ctx;

	atomic_fetch_add(&v->bytes, n);
}

/* Checks the headers of a directory, which a mount never opens. */
static int check_place(const struct file_check *f)
{
	struct source *source;
	uint64_t off;
	int r = container_locate(f->v->c->container, f->entry, &source, &off);

	if (r == 0)
		source_unref(source);
	return r;
}

static struct check_entry entry_of(const struct file_check *f)
{
	return (struct check_entry){
		.container = f->v->c->container,
		.chunks = &f->v->chunks,
		.entry = f->entry,
		.line = f->line,
		.made = f->v->made,
		.crowded = f->crowded,
		.progress = count_bytes,
		.ctx = f->v,
	};
}

static int check_file(const struct file_check *f)
{
	const struct check_entry k = entry_of(f);

	if (f->entry->kind == ENTRY_DIR)
		return check_place(f);
	return f->parts ? check_part(f->parts, f->part) : check_entry(&k);
}

static int badness(int error)
{
	return error == -EBADMSG ? 3 : error == 0 ? 0 : error_passes(error) ? 1 : 2;
}

static void count_problem(struct verify *v, int error)
{
	int why = atomic_load(&v->why);

	atomic_fetch_add(&v->problems, 1);
	while (badness(error) > badness(why) && !atomic_compare_exchange_weak(&v->why, &why, error))
		;
}

static void check_over(struct verify *v)
{
	pthread_mutex_lock(&v->lock);
	v->left--;
	pthread_cond_signal(&v->over);
	pthread_mutex_unlock(&v->lock);
}

/* Best effort: what is not there is fetched alone, and says why it cannot be. */
static void fetch_together(const struct file_check *f, size_t n)
{
	const struct entry **list = calloc(n, sizeof(*list));

	for (size_t i = 0; i < n && list; i++)
		list[i] = f[i].entry;
	if (list)
		container_prefetch(f->v->c->container, list, n);
	free(list);
}

static void note_result(const struct file_check *f, int r)
{
	if (r < 0)
		count_problem(f->v, r);
	if (r < 0 && r != -EBADMSG)
		carton_log(CARTON_LOG_ERROR, f->entry->name, "cannot be checked: %s", strerror(-r));
}

/* ---- several files by one worker, which hashes them together ---- */

struct together {
	struct file_check *first; /* the check to begin with; NULL once it has begun */
	struct verify *v;
	struct {
		struct file_check *f;
		struct entry_check check;
	} of[HASHERS];
};

/*
 * May it be checked with others? Not if other processors would have nothing to do meanwhile, if it
 * may wait for a server, or if it needs the memory of a decoder, which one of several would lack.
 */
static bool has_partners(const struct file_check *f)
{
	return f->crowded && !f->parts && f->entry->kind == ENTRY_FILE &&
	       f->entry->method == METHOD_STORED && !f->v->c->container->remote;
}

/* Takes the next check that nobody has taken, if there is one. */
static struct file_check *take_partner(struct verify *v)
{
	for (size_t i; (i = atomic_fetch_add(&v->seen, 1)) < v->n_checks;) {
		struct file_check *f = &v->checks[i];

		if (has_partners(f) && !atomic_exchange(&f->taken, true))
			return f;
	}
	return NULL;
}

static bool next_check(void *together, size_t i, struct ingest *ret)
{
	struct together *t = together;
	struct file_check *f = t->first ? t->first : take_partner(t->v);

	for (t->first = NULL; f; f = take_partner(t->v)) {
		const struct check_entry k = entry_of(f);
		int r = check_entry_begin(&k, &t->of[i].check);

		if (r == 0) {
			t->of[i].f = f;
			*ret = t->of[i].check.job;
			return true;
		}
		note_result(f, r);
	}
	return false;
}

static void check_done(void *together, size_t i, int r, struct ingested *found)
{
	struct together *t = together;

	note_result(t->of[i].f, check_entry_end(&t->of[i].check, r, found));
}

static void check_together(struct file_check *first)
{
	struct together t = { .first = first, .v = first->v };

	ingest_several(&(struct ingest_queue){ &t, next_check, check_done });
}

static void run_check(struct job *job)
{
	struct file_check *f = container_of(job, struct file_check, job), *end = f + f->n;
	struct verify *v = f->v;

	if (f->n > 1)
		fetch_together(f, f->n);
	for (; f < end; f++) {
		if (atomic_exchange(&f->taken, true))
			continue;
		if (has_partners(f))
			check_together(f);
		else
			note_result(f, check_file(f));
	}
	check_over(v);
}

static void report_progress(const struct verify *v, carton_progress_fn *progress, void *ctx)
{
	uint64_t done = atomic_load(&v->bytes) + object_store_ingested(v->c->store);

	progress(ctx, done, MAX(v->total, done));
}

/* Waits until no more than `most` checks have not ended, and reports progress. */
static void wait_for_checks(struct verify *v, size_t most, carton_progress_fn *progress, void *ctx)
{
	pthread_mutex_lock(&v->lock);
	while (v->left > most) {
		struct timespec until = ms_to_timespec(now_ms() + PROGRESS_MS);

		if (pthread_cond_timedwait(&v->over, &v->lock, &until) == ETIMEDOUT && progress) {
			pthread_mutex_unlock(&v->lock);
			report_progress(v, progress, ctx);
			pthread_mutex_lock(&v->lock);
		}
	}
	pthread_mutex_unlock(&v->lock);
	if (progress && most == 0)
		report_progress(v, progress, ctx);
}

/* Was this entry found to be damaged and logged earlier? */
static bool already_logged(const struct verify *v, const struct entry *e)
{
	const struct node *n = tree_find(v->c->tree, e->name);
	/* made by whoever read it */
	struct object *o = n ? node_known_object(n) : NULL;

	return o && object_entry(o) == e && object_state(o) == OBJECT_CORRUPT;
}

static int compare_offsets(const void *a, const void *b)
{
	const struct entry *x = ((const struct file_check *)a)->entry;
	const struct entry *y = ((const struct file_check *)b)->entry;

	return (x->header > y->header) - (x->header < y->header);
}

/* How many of the `n` checks one job does: those of small entries that lie together. */
static size_t count_together(const struct file_check *f, size_t n)
{
	size_t k = 1;

	while (k < n && f->v->c->container->remote &&
	       entry_end(f[k].entry) - f->entry->header <= MAX_TOGETHER)
		k++;
	return k;
}

/* Begins a check as soon as no more than `most` others are under way. */
static void wait_to_begin(struct verify *v, size_t most, carton_progress_fn *progress, void *ctx)
{
	wait_for_checks(v, most, progress, ctx);
	pthread_mutex_lock(&v->lock);
	v->left++;
	pthread_mutex_unlock(&v->lock);
}

/* Adds the check of an entry to the `n` that there are; or those of its parts. 0 or -errno. */
static int add_entry(struct verify *v, struct check_list *l, const struct entry *e,
		     const char *line)
{
	struct file_check f = { .job.run = run_check, .n = 1, .v = v, .line = line, .entry = e };
	const struct check_entry k = entry_of(&f);
	size_t parts = check_parts(&k);
	int r = array_room(l->list, &l->cap, l->n + MAX(parts, 1));

	/* where that fails, a check of the whole says why */
	if (r == 0 && parts && check_parts_new(&k, &f.parts) < 0)
		parts = 0;
	for (; r == 0 && f.part < MAX(parts, 1); f.part++)
		l->list[l->n++] = f;
	v->total += e->size;
	return r;
}

static int list_checks(struct verify *v, struct check_list *l)
{
	const struct container *c = v->c->container;
	int r = 0;

	for (size_t i = 0; i < c->n_entries && r == 0; i++) {
		const struct entry *e = &c->entries[i];
		const char *line = manifest_find(v->c->manifest, e->name);

		/* symlinks were read for the tree; a directory has no headers to compare */
		if (line ? e->kind != ENTRY_FILE : !c->one_file)
			continue;
		if (line && already_logged(v, e))
			count_problem(v, -EBADMSG);
		else
			r = add_entry(v, l, e, line);
	}
	return r;
}

static int check_files(struct verify *v, carton_progress_fn *progress, void *ctx)
{
	const struct container *c = v->c->container;
	size_t most = c->remote ? MAX_REMOTE - 1 : SIZE_MAX;
	unsigned processors = (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 2);
	struct check_list checks = { 0 };
	uint64_t behind = 0;
	int r = list_checks(v, &checks);
	struct file_check *f = checks.list;

	if (c->remote && checks.n)
		qsort(f, checks.n, sizeof(*f), compare_offsets);
	for (size_t i = checks.n; i-- > 0; behind += f[i].part ? 0 : f[i].entry->size)
		f[i].crowded = ingest_crowded(f[i].entry->size, behind, processors);
	for (size_t i = 0; i < checks.n && r < 0; i++)
		check_parts_drop(f[i].parts);
	v->checks = f;
	v->n_checks = checks.n;
	for (size_t i = 0; i < checks.n && r == 0; i += f[i].n) {
		f[i].n = count_together(&f[i], checks.n - i);
		wait_to_begin(v, most, progress, ctx);
		workers_submit(v->c->workers, &f[i].job,
			       f[i].entry->size > BULK_OBJECT ? LANE_BULK : LANE_QUICK);
	}
	wait_for_checks(v, 0, progress, ctx);
	free(f);
	return r;
}

static size_t check_form(const struct manifest *m)
{
	if (m->unsorted_line)
		carton_log(CARTON_LOG_WARNING, "MANIFEST", "line %zu is not in alphabetical order",
			   m->unsorted_line);
	if (m->no_final_newline)
		carton_log(CARTON_LOG_WARNING, "MANIFEST", "does not end with a newline");
	return (size_t)(m->unsorted_line != 0) + (size_t)m->no_final_newline;
}

/* ---- objects, verified as by opening their files ---- */

struct object_check {
	struct object_wait wait;
	struct verify *v;
	struct object *object;
};

static void object_over(struct object_check *k, int result)
{
	if (result == 0)
		object_put(k->object);
	else
		count_problem(k->v, result);
	check_over(k->v);
}

static void object_done(struct object_wait *wait, int result)
{
	object_over(container_of(wait, struct object_check, wait), result);
}

/*
 * Adds a check to the `n` that there are, and returns how many there are then. `fetched`: only if
 * no entry of the container has the object.
 */
static size_t add_check(struct verify *v, struct object_check *checks, size_t n,
			const struct node *file, bool fetched)
{
	struct object *o;

	if (fetched && file->kind == NODE_FILE && !file->has_body && file->file.entry)
		return n;
	o = node_object(file);
	if (!o || (fetched && object_entry(o)))
		return n;
	object_want(o);
	checks[n] = (struct object_check){ { .done = object_done }, v, o };
	if (object_size(o) != OBJECT_NO_SIZE)
		v->total += object_size(o);
	return n + 1;
}

/* Begins a check in its turn. */
static void start_check(struct object_check *k, carton_progress_fn *progress, void *ctx)
{
	int r;

	wait_to_begin(k->v, MAX_AT_ONCE - 1, progress, ctx);
	r = object_get(k->object, &k->wait);
	if (r != -EINPROGRESS)
		object_over(k, r);
}

/* Verifies the objects of these files, or of the whole tree if `files` is NULL. */
static int get_objects(struct verify *v, const struct carton_files *files, bool fetched,
		       carton_progress_fn *progress, void *ctx)
{
	const struct tree *t = v->c->tree;
	size_t n_checks = files ? files->n : (size_t)t->files, n = 0;
	struct object_check *checks = calloc(n_checks + 1, sizeof(*checks));

	if (!checks)
		return -ENOMEM;
	for (size_t i = 0; files && i < files->n; i++)
		n = add_check(v, checks, n, to_node(files->list[i]), fetched);
	for (struct node *f = t->root; f && !files; f = tree_next(t->root, f))
		n = add_check(v, checks, n, f, fetched);
	for (size_t i = 0; i < n; i++)
		start_check(&checks[i], progress, ctx);
	wait_for_checks(v, 0, progress, ctx);
	free(checks);
	return 0;
}

/* ---- the public calls ---- */

static void verify_init(struct verify *v, struct carton *c)
{
	*v = (struct verify){ .c = c, .lock = PTHREAD_MUTEX_INITIALIZER };
	v->away = c->container->remote && !c->fetch.http;
	cond_init(&v->over);
}

/* The problems of what the container holds, or -errno. */
static ssize_t verify_held(struct verify *v, carton_progress_fn *progress, void *ctx)
{
	ssize_t bad_index = check_chunks_init(v->c, &v->chunks), different = 0;
	int r = bad_index < 0 ? (int)bad_index : v->away ? 0 : check_files(v, progress, ctx);

	check_chunks_finish(&v->chunks);
	/* libarchive reads local headers, which those with a problem would only repeat */
	if (r == 0 && atomic_load(&v->problems) == 0 && !v->away)
		different = container_compare(v->c->container);
	if (r < 0 || different < 0)
		return r < 0 ? r : different;
	return (ssize_t)v->c->faults + bad_index + different;
}

ssize_t carton_verify_held(struct carton *c, const struct pack_tags *made,
			   carton_progress_fn *progress, void *ctx)
{
	struct verify v;
	ssize_t problems;

	verify_init(&v, c);
	v.made = made;
	problems = verify_held(&v, progress, ctx);
	return problems < 0 ? problems : problems + (ssize_t)atomic_load(&v.problems);
}

ssize_t carton_verify(struct carton *c, carton_progress_fn *progress, void *ctx, int *ret_why)
{
	struct verify v;
	ssize_t contents = carton_check_contents(c), held, form;
	int r;

	verify_init(&v, c);
	/* it was said when it was opened */
	if (c->bare && !c->verify)
		return 1;
	if (contents < 0)
		return contents;
	held = what_say_pointers(c->container);
	if (held == 0)
		held = verify_held(&v, progress, ctx);
	if (held < 0)
		return held;
	form = (ssize_t)check_form(c->manifest);
	if (contents + held + form > 0)
		atomic_store(&v.why, -EBADMSG);
	r = get_objects(&v, NULL, !v.away, progress, ctx);
	if (ret_why)
		*ret_why = atomic_load(&v.why);
	return r < 0 ? r : contents + held + form + (ssize_t)atomic_load(&v.problems);
}

void carton_want(const struct carton_files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		struct object *o = node_object(to_node(files->list[i]));

		if (o)
			object_want(o);
	}
}

ssize_t carton_materialize(struct carton *c, const struct carton_files *files,
			   carton_progress_fn *progress, void *ctx, int *ret_why)
{
	struct verify v;
	int r;

	verify_init(&v, c);
	r = get_objects(&v, files, false, progress, ctx);
	if (r == 0 && ret_why)
		*ret_why = atomic_load(&v.why);
	return r < 0 ? r : (ssize_t)atomic_load(&v.problems);
}
