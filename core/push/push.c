/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carton_push(): a carton as an artifact of a registry. The tag is set last, when all blobs are
 * there. No byte is sent before it was verified.
 */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "fetch/reach.h"
#include "http/http.h"
#include "http/oci.h"
#include "push/internal.h"

#define PROGRESS_MS 100
#define SIGNATURE "misc/model.sig"
#define MAX_ARTIFACT (4 * MIB) /* what registries take as a manifest */

/* The threads that send. */
struct crew {
	struct push *p;
	struct push_blob **list; /* each content once */
	size_t n;
	atomic_size_t next;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t over;
	size_t running;
	int error; /* of the first that failed */
};

/* ---- where to ---- */

static const char *target_fault(const char *to)
{
	if (!oci_is_artifact(to))
		return strncasecmp(to, "oci://", 6) == 0 ?
			       oci_scheme.fault(to) :
			       "is no artifact of a registry: oci://REGISTRY/NAME:TAG";
	if (strchr(to, '@'))
		return "names a digest, which follows from the carton: name a tag, "
		       "oci://REGISTRY/NAME:TAG";
	return strrchr(to, ':') < strrchr(to, '/') ? "has no tag: oci://REGISTRY/NAME:TAG" : NULL;
}

/* ---- what ---- */

static int add_file(struct push *p, const char *path, const char *hash_of)
{
	struct push_blob *b = &p->blobs[p->n++];
	struct node *file = tree_resolve(tree_find(p->c->tree, path));

	if (!file || file->kind != NODE_FILE)
		return log_error(-EBADMSG, path, "is listed in MANIFEST, but is no file here");
	b->path = path;
	b->file = file;
	b->size = node_size(file);
	b->size_known = node_size_is_certain(file);
	manifest_hash(hash_of, b->sha256);
	return 0;
}

static int add_text(struct push_blob *b, const char *path, const struct buf *text)
{
	b->path = path;
	b->text = text;
	b->size = text->len;
	b->size_known = true;
	return sha256_mem(text->data, text->len, b->sha256);
}

static int by_hash(const void *a, const void *b)
{
	return memcmp((*(struct push_blob *const *)a)->sha256,
		      (*(struct push_blob *const *)b)->sha256, SHA256_SIZE);
}

/* Each content is sent once, whatever has it. */
static int find_same(struct crew *w)
{
	struct push *p = w->p;

	w->list = calloc(p->n + 1, sizeof(struct push_blob *));
	if (!w->list)
		return -ENOMEM;
	for (size_t i = 0; i <= p->n; i++)
		w->list[i] = &p->blobs[i];
	qsort(w->list, p->n + 1, sizeof(struct push_blob *), by_hash);
	for (size_t i = 0; i <= p->n; i++) {
		struct push_blob *b = w->list[i], *last = w->n ? w->list[w->n - 1] : NULL;

		if (last && memcmp(last->sha256, b->sha256, SHA256_SIZE) == 0) {
			b->same = last;
			continue;
		}
		w->list[w->n++] = b;
		p->total += b->size_known ? b->size : 0;
	}
	return 0;
}

/* The layers and the config; the manifest is written once, to see whether it can be. */
static int plan(struct crew *w)
{
	struct push *p = w->p;
	const struct manifest *m = p->c->manifest;
	int r = 0;

	p->blobs = calloc(m->n + 2, sizeof(*p->blobs));
	if (!p->blobs)
		return -ENOMEM;
	for (size_t i = 0; i < m->n && r == 0; i++)
		r = add_file(p, manifest_path(m, i), manifest_path(m, i));
	if (r == 0)
		r = carton_slurp(p->c, "MANIFEST", MAX_LISTING_PAGE, &p->manifest_text);
	if (r == 0)
		r = add_text(&p->blobs[p->n++], "MANIFEST", &p->manifest_text);
	if (r == 0)
		r = push_describe_config(p);
	if (r == 0)
		r = add_text(&p->blobs[p->n], NULL, &p->config);
	if (r == 0)
		r = push_describe(p);
	return r == 0 ? find_same(w) : r;
}

/* ---- the threads ---- */

static void *send_some(void *ctx)
{
	struct crew *w = ctx;
	size_t i;
	int r = 0;

	while (r == 0 && !cancel_fired(&w->p->cancel) && (i = atomic_fetch_add(&w->next, 1)) < w->n)
		r = push_blob(w->p, w->list[i]);
	pthread_mutex_lock(&w->lock);
	if (r < 0 && w->error == 0)
		w->error = r;
	w->running--;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->lock);
	if (r < 0)
		cancel_fire(&w->p->cancel);
	return NULL;
}

static void report(const struct push *p, const struct carton_push_options *o)
{
	uint64_t done = atomic_load(&p->done);

	if (o->progress)
		o->progress(o->progress_ctx, done, MAX(done, atomic_load(&p->total)));
}

static int run(struct crew *w, const struct carton_push_options *o)
{
	pthread_t threads[MAX_PUSH_THREADS];
	size_t most = MIN(MIN(w->p->c->fetch.connections, MAX_PUSH_THREADS), w->n), n = 0;
	int r = 0;

	w->running = most;
	while (n < most && r == 0)
		r = thread_start(&threads[n], send_some, w), n += r == 0;
	pthread_mutex_lock(&w->lock);
	w->running -= most - n;
	while (w->running > 0) {
		struct timespec until = ms_to_timespec(now_ms() + PROGRESS_MS);

		if (pthread_cond_timedwait(&w->over, &w->lock, &until) == ETIMEDOUT) {
			pthread_mutex_unlock(&w->lock);
			report(w->p, o);
			pthread_mutex_lock(&w->lock);
		}
	}
	pthread_mutex_unlock(&w->lock);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return n > 0 ? w->error : r;
}

/* ---- the call ---- */

static void count(const struct crew *w, struct carton_pushed *ret)
{
	ret->files = w->p->n;
	ret->blobs = w->n;
	for (size_t i = 0; i < w->n; i++) {
		ret->bytes += w->list[i]->size;
		ret->sent += w->list[i]->sent;
		ret->sent_bytes += w->list[i]->sent ? w->list[i]->size : 0;
	}
}

/* What is beside the carton, else what is in it. */
static int attach(struct push *p, const struct carton_push_options *o, const char *digest,
		  bool *ret_done)
{
	struct buf text = { 0 };
	const struct buf given = { .data = (char *)o->signature, .len = o->signature_len };
	int r = o->signature ? 0 : carton_slurp(p->c, SIGNATURE, MAX_LISTING_PAGE, &text);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = push_attach(p, o->signature ? &given : &text, digest);
	buf_finish(&text);
	*ret_done = r == 0;
	return r;
}

static int push(struct crew *w, const struct carton_push_options *o, struct carton_pushed *ret)
{
	struct push *p = w->p;
	struct carton_pushed got = { .files = 0 };
	uint8_t sha256[SHA256_SIZE];
	int r = plan(w);

	if (r == -EFBIG)
		return log_error(
			r, p->to->name,
			"has too many files: registries take manifests of at most %llu MiB",
			MAX_ARTIFACT / MIB);
	if (r == 0)
		r = run(w, o);
	/* by now all sizes are certain */
	p->artifact.len = 0;
	if (r == 0)
		r = push_describe(p);
	if (r == 0)
		r = sha256_mem(p->artifact.data, p->artifact.len, sha256);
	if (r < 0)
		return r;
	push_digest(sha256, got.digest);
	r = push_manifest(
		p, &(struct push_text){ "the manifest", PUSH_MANIFEST, &p->artifact, got.digest },
		p->to->revision);
	if (r == 0)
		r = attach(p, o, got.digest, &got.has_signature);
	if (r < 0)
		return r;
	snprintf(got.pin, sizeof(got.pin), "oci://%s/%s@%s", p->host, p->to->name, got.digest);
	count(w, &got);
	*ret = got;
	return 0;
}

int carton_push(struct carton *c, const char *to, const struct carton_push_options *options,
		struct carton_pushed *ret)
{
	const char *fault = options->mount_from && !oci_is_name(options->mount_from) ?
				    "mount_from is no name of a repository, such as team/model" :
			    c->bare	   ? "a bare file is no carton: pack makes one of it" :
			    !c->verify	   ? "nothing is pushed that is not verified" :
			    !c->fetch.http ? "nothing can be pushed offline" :
					     target_fault(to);
	struct push p = { .c = c,
			  .manifest_text = { 0 },
			  .config = buf_init(MAX_LISTING_PAGE),
			  .artifact = buf_init(MAX_ARTIFACT) };
	struct crew w = { .p = &p, .lock = PTHREAD_MUTEX_INITIALIZER };
	struct repository at = { 0 };
	char shown[256];
	int r;

	if (fault)
		return log_error(-EINVAL, http_source_label(to, shown, sizeof(shown)), "%s", fault);
	r = oci_parse(to, &at);
	if (r < 0)
		return r;
	at.plain = registries_plain(c->registries, strstr(at.server, "://") + 3, at.name);
	r = fetch_reach(&c->fetch, &at);
	if (r < 0) {
		repository_finish(&at);
		return r;
	}
	p.to = &at;
	p.host = strstr(at.server, "://") + 3;
	p.mount_from = options->mount_from;
	p.most = PUSH_MOST;
	cancel_init(&p.cancel, &c->stop);
	cond_init(&w.over);
	r = push(&w, options, ret);
	cancel_finish(&p.cancel);
	pthread_cond_destroy(&w.over);
	free(w.list);
	free(p.blobs);
	buf_finish(&p.manifest_text);
	buf_finish(&p.config);
	buf_finish(&p.artifact);
	repository_finish(&at);
	return r;
}
