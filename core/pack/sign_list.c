/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/sign_list.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/ingest.h"
#include "base/util.h"

#define PROGRESS_MS 100

struct hashing {
	struct container *c;
	struct sign_file *files;
	size_t n;
	atomic_size_t next;
	_Atomic uint64_t bytes;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t over;  /* signalled when running decreases */
	size_t running;	      /* threads */
	int error;
};

int sign_list_manifest(const struct manifest *m, struct sign_list *ret)
{
	ret->files = calloc(m->n + 1, sizeof(*ret->files));
	if (!ret->files)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++) {
		const char *path = manifest_path(m, i);

		if (strcmp(path, SIGN_IN_CARTON) == 0)
			continue;
		ret->files[ret->n].name = path;
		manifest_hash(path, ret->files[ret->n++].sha256);
	}
	return 0;
}

/* ---- a directory ---- */

static void count_bytes(void *ctx, uint64_t n)
{
	struct hashing *h = ctx;

	atomic_fetch_add(&h->bytes, n);
}

static int hash_file(struct hashing *h, struct sign_file *f)
{
	const struct entry *e = container_find(h->c, f->name);
	struct ingest job = { .size = e->size, .hash = true, .progress = count_bytes, .ctx = h };
	struct ingested found = { 0 };
	int r = container_stream(h->c, e, &job.in);

	/* that was logged */
	if (r < 0)
		return r;
	r = ingest_run(&job, &found);
	stream_close(job.in);
	if (r < 0)
		return log_error(r, f->name, "cannot be hashed: %s",
				 r == -EBADMSG ? "it changes meanwhile" : strerror(-r));
	memcpy(f->sha256, found.sha256, SHA256_SIZE);
	return 0;
}

static void *hash_files(void *arg)
{
	struct hashing *h = arg;
	int r = 0;

	for (size_t i; r == 0 && (i = atomic_fetch_add(&h->next, 1)) < h->n;)
		r = hash_file(h, &h->files[i]);
	if (r < 0)
		atomic_store(&h->next, h->n);
	pthread_mutex_lock(&h->lock);
	h->error = h->error ? h->error : r;
	h->running--;
	pthread_cond_signal(&h->over);
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/* Waits for the threads, and reports progress. */
static void wait_for_threads(struct hashing *h, uint64_t total, carton_progress_fn *progress,
			     void *ctx)
{
	pthread_mutex_lock(&h->lock);
	while (h->running) {
		struct timespec until = ms_to_timespec(now_ms() + PROGRESS_MS);

		if (pthread_cond_timedwait(&h->over, &h->lock, &until) == ETIMEDOUT && progress)
			progress(ctx, MIN(atomic_load(&h->bytes), total), total);
	}
	pthread_mutex_unlock(&h->lock);
}

static int hash_all(struct hashing *h, uint64_t total, carton_progress_fn *progress, void *ctx)
{
	size_t most = (size_t)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1), n = 0;
	pthread_t *threads = calloc(most, sizeof(*threads));
	int r = threads ? 0 : -ENOMEM;

	cond_init(&h->over);
	h->running = r == 0 ? MIN(most, h->n) : 0;
	for (most = h->running; n < most && r == 0; n += r == 0)
		r = thread_start(&threads[n], hash_files, h);
	/* if a thread cannot be started, the others take longer */
	pthread_mutex_lock(&h->lock);
	h->running -= most - n;
	pthread_mutex_unlock(&h->lock);
	if (n) {
		wait_for_threads(h, total, progress, ctx);
		r = h->error;
	}
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_cond_destroy(&h->over);
	free(threads);
	return r;
}

int sign_list_hash(struct container *c, carton_progress_fn *progress, void *ctx,
		   struct sign_list *ret)
{
	struct hashing h = { .c = c, .lock = PTHREAD_MUTEX_INITIALIZER };
	uint64_t total = 0;

	ret->files = h.files = calloc(c->n_entries + 1, sizeof(*h.files));
	if (!h.files)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_entries; i++) {
		const struct entry *e = &c->entries[i];

		if (e->kind == ENTRY_SYMLINK)
			return log_error(-EBADMSG, e->name,
					 "is a symlink: --dereference signs what it leads to");
		if (e->kind == ENTRY_DIR)
			continue;
		h.files[h.n++].name = e->name;
		total += e->size;
	}
	ret->n = h.n;
	return hash_all(&h, total, progress, ctx);
}
