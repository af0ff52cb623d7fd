/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ways to check a whole carton, on all cores.
 *
 * carton_verify() hashes every entry, also if several have the same content; checks the entries
 * that a mount never opens; and reports everything else that can be wrong. carton_materialize()
 * pins each file, as opening it would.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "carton/opened.h"
#include "check/check_chunks.h"
#include "base/ingest.h"
#include "base/util.h"

#define PROGRESS_MS 100

struct verify {
	struct carton *c;
	struct carton_index chunks;
	uint64_t total;		/* bytes to read, as far as known */
	_Atomic uint64_t bytes; /* read by checks of entries; the object store counts its own */
	atomic_size_t problems;
	atomic_int why; /* -errno of an object: -EBADMSG if one is damaged, else of the first */
	pthread_mutex_t lock; /* guards left */
	pthread_cond_t over;  /* signalled when left decreases */
	size_t left;	      /* checks that have not ended */
};

struct file_check {
	struct job job;
	struct verify *v;
	const char *line; /* its path in MANIFEST; NULL: it has no hash */
	const struct entry *entry;
};

/* A stream that passes bytes through and computes their crc, and the hashes of their chunks. */
struct crc_stream {
	struct stream stream;
	struct stream *in;
	uint32_t crc;
	struct chunks_hasher chunks; /* with a chunk size if they are wanted */
};

static ssize_t crc_read(struct stream *s, void *ret_buf, size_t n)
{
	struct crc_stream *c = container_of(s, struct crc_stream, stream);
	ssize_t got = stream_read(c->in, ret_buf, n);

	int r = 0;

	if (got > 0)
		c->crc = crc32_update(c->crc, ret_buf, (size_t)got);
	if (got > 0 && c->chunks.chunk_size)
		r = chunks_hasher_feed(&c->chunks, ret_buf, (size_t)got);
	return r < 0 ? r : got;
}

static void crc_close(struct stream *s)
{
	stream_close(container_of(s, struct crc_stream, stream)->in);
}

static const struct stream_ops crc_ops = { crc_read, crc_close };

static void count_bytes(void *ctx, uint64_t n)
{
	struct verify *v = ctx;

	atomic_fetch_add(&v->bytes, n);
}

/* Checks the headers of a directory, which a mount never opens. */
static int check_place(struct file_check *f)
{
	struct source *source;
	uint64_t off;
	int r = container_locate(f->v->c->container, f->entry, &source, &off);

	if (r == 0)
		source_unref(source);
	return r;
}

static int check_file(struct file_check *f)
{
	struct crc_stream crc = { .stream.ops = &crc_ops };
	struct ingest job = {
		.in = &crc.stream,
		.size = f->entry->size,
		.hash = f->line != NULL,
		.progress = count_bytes,
		.ctx = f->v,
	};
	struct ingested found = { 0 };
	uint8_t sha256[SHA256_SIZE];
	int r = container_stream(f->v->c->container, f->entry, &crc.in);

	if (r < 0)
		return r;
	if (f->line) {
		manifest_hash(f->line, sha256);
		crc.chunks.chunk_size = check_chunks_size(&f->v->chunks, sha256);
	}
	r = ingest_run(&job, &found);
	stream_close(&crc.stream);
	if (r < 0) {
		chunks_hasher_finish(&crc.chunks);
		return r;
	}
	if (f->line)
		r = manifest_check_hash(f->entry->name, f->line, found.sha256);
	if (f->entry->has_crc && crc.crc != f->entry->crc)
		r = log_error(-EBADMSG, f->entry->name,
			      "crc mismatch: the zip says %08x, the bytes have %08x", f->entry->crc,
			      crc.crc);
	if (r == 0)
		r = chunks_hasher_end(&crc.chunks);
	/* a bad file was logged */
	if (r == 0 && crc.chunks.chunk_size)
		r = check_chunks_compare(&f->v->chunks, f->entry->name, sha256, &crc.chunks);
	chunks_hasher_finish(&crc.chunks);
	return r;
}

static void check_over(struct verify *v)
{
	pthread_mutex_lock(&v->lock);
	v->left--;
	pthread_cond_signal(&v->over);
	pthread_mutex_unlock(&v->lock);
}

static void run_check(struct job *job)
{
	struct file_check *f = container_of(job, struct file_check, job);
	struct verify *v = f->v;
	int r = f->entry->kind == ENTRY_DIR ? check_place(f) : check_file(f);

	if (r < 0)
		atomic_fetch_add(&v->problems, 1);
	if (r < 0 && r != -EBADMSG)
		carton_log(CARTON_LOG_ERROR, f->entry->name, "cannot be checked: %s", strerror(-r));
	check_over(v);
}

static void report_progress(const struct verify *v, carton_progress_fn *progress, void *ctx)
{
	uint64_t done = atomic_load(&v->bytes) + object_store_ingested(v->c->store);

	progress(ctx, done, MAX(v->total, done));
}

/* Waits until all checks have ended, and reports progress. */
static void wait_for_checks(struct verify *v, carton_progress_fn *progress, void *ctx)
{
	pthread_mutex_lock(&v->lock);
	while (v->left > 0) {
		struct timespec until = ms_to_timespec(now_ms() + PROGRESS_MS);

		if (pthread_cond_timedwait(&v->over, &v->lock, &until) == ETIMEDOUT && progress) {
			pthread_mutex_unlock(&v->lock);
			report_progress(v, progress, ctx);
			pthread_mutex_lock(&v->lock);
		}
	}
	pthread_mutex_unlock(&v->lock);
	if (progress)
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

static int check_files(struct verify *v, carton_progress_fn *progress, void *ctx)
{
	const struct container *c = v->c->container;
	struct file_check *checks = calloc(c->n_entries ? c->n_entries : 1, sizeof(*checks));
	size_t n = 0;

	if (!checks)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_entries; i++) {
		const struct entry *e = &c->entries[i];
		const char *line = manifest_find(v->c->manifest, e->name);

		/* symlinks were read for the tree; a directory has no headers to compare */
		if (line ? e->kind != ENTRY_FILE : !c->one_file)
			continue;
		if (line && already_logged(v, e)) {
			atomic_fetch_add(&v->problems, 1);
			continue;
		}
		checks[n++] = (struct file_check){ { .run = run_check }, v, line, e };
		v->total += e->size;
	}
	v->left = n;
	for (size_t i = 0; i < n; i++)
		workers_submit(v->c->workers, &checks[i].job,
			       checks[i].entry->size > BULK_OBJECT ? LANE_BULK : LANE_QUICK);
	wait_for_checks(v, progress, ctx);
	free(checks);
	return 0;
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
	int none = 0;

	if (result == 0) {
		object_put(k->object);
	} else {
		atomic_fetch_add(&k->v->problems, 1);
		if (result == -EBADMSG)
			atomic_store(&k->v->why, result);
		else
			atomic_compare_exchange_strong(&k->v->why, &none, result);
	}
	check_over(k->v);
}

static void object_done(struct object_wait *wait, int result)
{
	object_over(container_of(wait, struct object_check, wait), result);
}

/* `fetched`: only if no entry of the container has the object. */
static void add_check(struct verify *v, struct object_check *checks, const struct node *file,
		      bool fetched)
{
	struct object *o;

	if (fetched && file->kind == NODE_FILE && !file->has_body && file->file.entry)
		return;
	o = node_object(file);
	if (!o || (fetched && object_entry(o)))
		return;
	checks[v->left++] = (struct object_check){ { .done = object_done }, v, o };
	if (object_size(o) != OBJECT_NO_SIZE)
		v->total += object_size(o);
}

/* Verifies the objects of these files, or of the whole tree if `files` is NULL. */
static int get_objects(struct verify *v, const struct carton_files *files, bool fetched,
		       carton_progress_fn *progress, void *ctx)
{
	const struct tree *t = v->c->tree;
	size_t n_checks = files ? files->n : (size_t)t->files;
	struct object_check *checks = calloc(n_checks + 1, sizeof(*checks));

	if (!checks)
		return -ENOMEM;
	for (size_t i = 0; files && i < files->n; i++)
		add_check(v, checks, to_node(files->list[i]), fetched);
	for (struct node *f = t->root; f && !files; f = tree_next(t->root, f))
		add_check(v, checks, f, fetched);
	n_checks = v->left;
	for (size_t i = 0; i < n_checks; i++) {
		int r = object_get(checks[i].object, &checks[i].wait);

		if (r != -EINPROGRESS)
			object_over(&checks[i], r);
	}
	wait_for_checks(v, progress, ctx);
	free(checks);
	return 0;
}

/* ---- one file, outside of the carton ---- */

/* Is all of `in` equal to a file that needs no object? The sizes are equal. */
static int compare_literal(struct stream *in, struct node *file)
{
	char block[4096], want[4096];
	uint64_t off = 0;
	ssize_t n;

	while ((n = stream_read(in, block, sizeof(block))) > 0) {
		if (carton_read(from_node(file), want, (size_t)n, off, false) != n ||
		    memcmp(block, want, (size_t)n) != 0)
			return -EBADMSG;
		off += (uint64_t)n;
	}
	return (int)n;
}

static int compare_hash(struct stream *in, uint64_t size, const uint8_t sha256[SHA256_SIZE])
{
	struct ingest job = { .in = in, .size = size, .hash = true };
	struct ingested found;
	int r = ingest_run(&job, &found);

	return r < 0 ? r : memcmp(found.sha256, sha256, SHA256_SIZE) == 0 ? 0 : -EBADMSG;
}

int carton_compare(struct carton_node *file, int fd)
{
	struct node *n = to_node(file);
	struct object *o = node_object(n);
	struct source *source;
	struct stream *in;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int r = own < 0 ? -errno : source_from_fd(own, &source);

	if (r < 0)
		return r;
	if (n->kind != NODE_FILE || (!o && (node_n_extents(n) != 1 || node_extent(n, 0).object)))
		r = -EINVAL;
	else if (source->size != node_size(n) && (!o || object_size_is_certain(o)))
		r = -EBADMSG;
	else
		r = source_stream(source, 0, source->size, &in);
	if (r == 0) {
		r = o ? compare_hash(in, source->size, object_sha256(o)) : compare_literal(in, n);
		stream_close(in);
	}
	source_unref(source);
	return r;
}

/* ---- the public calls ---- */

static void verify_init(struct verify *v, struct carton *c)
{
	*v = (struct verify){ .c = c, .lock = PTHREAD_MUTEX_INITIALIZER };
	cond_init(&v->over);
}

/* The problems of what the container holds, or -errno. */
static ssize_t verify_held(struct verify *v, carton_progress_fn *progress, void *ctx)
{
	ssize_t bad_index = check_chunks_init(v->c, &v->chunks), different = 0;
	int r = bad_index < 0 ? (int)bad_index : check_files(v, progress, ctx);

	check_chunks_finish(&v->chunks);

	/* libarchive reads local headers, which those with a problem would only repeat */
	if (r == 0 && atomic_load(&v->problems) == 0)
		different = container_compare(v->c->container);
	if (r < 0 || different < 0)
		return r < 0 ? r : different;
	return (ssize_t)v->c->faults + bad_index + different;
}

ssize_t carton_verify_held(struct carton *c, carton_progress_fn *progress, void *ctx)
{
	struct verify v;
	ssize_t problems;

	verify_init(&v, c);
	problems = verify_held(&v, progress, ctx);
	return problems < 0 ? problems : problems + (ssize_t)atomic_load(&v.problems);
}

ssize_t carton_verify(struct carton *c, carton_progress_fn *progress, void *ctx)
{
	struct verify v;
	ssize_t contents = carton_check_contents(c), held, form;
	int r;

	verify_init(&v, c);
	if (contents < 0)
		return contents;
	held = verify_held(&v, progress, ctx);
	if (held < 0)
		return held;
	form = (ssize_t)check_form(c->manifest);
	r = get_objects(&v, NULL, true, progress, ctx);
	return r < 0 ? r : contents + held + form + (ssize_t)atomic_load(&v.problems);
}

ssize_t carton_materialize(struct carton *c, const struct carton_files *files,
			   carton_progress_fn *progress, void *ctx, int *ret_why)
{
	struct verify v;
	int r;

	verify_init(&v, c);
	r = get_objects(&v, files, false, progress, ctx);
	if (r == 0 && ret_why && atomic_load(&v.problems))
		*ret_why = atomic_load(&v.why);
	return r < 0 ? r : (ssize_t)atomic_load(&v.problems);
}
