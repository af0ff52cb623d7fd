/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of entries of a remote carton. Nothing here waits: a large Stored entry is fetched into
 * its destination, and can be resumed; any other is fetched as it is into a scratch destination
 * first, and decoded from there, as a local one.
 */
#include <stdlib.h>

#include "archive/container.h"
#include "archive/decode.h"
#include "base/ingest.h"
#include "base/util.h"
#include "fetch/fetcher.h"
#include "fetch/mirrors.h"
#include "fetch/remote_source.h"
#include "object/internal.h"

/* a Stored entry up to here costs one request, a larger one another one for its local header */
#define WHOLE (8 * MIB)
#define SCRATCH_MEMORY (256 * KIB)

struct remote_copy {
	struct copy *copy;
	const struct entry *entry;
	struct dest *dest, *scratch;
	struct source *part; /* the scratch, once it is there */
	char **urls;	     /* of mirrors; or NULL */
	bool by_mirror;	     /* the carton is read from a mirror, which may have other bytes */
	struct job job;
};

static const struct object_options *options_of(const struct remote_copy *rc)
{
	return &rc->copy->making->object->store->options;
}

bool copy_is_direct(const struct entry *e)
{
	return e->method == METHOD_STORED && entry_end(e) - e->header > WHOLE &&
	       !(e->flags & ENTRY_DESCRIPTOR);
}

static void fetch_entry(struct remote_copy *rc);

/*
 * The end; `in` may be NULL on failure. Wrong bytes of a mirror are asked for once more at the
 * source URL.
 */
static void remote_over(struct remote_copy *rc, int r, struct ingested *in)
{
	struct ingested none = { 0 };
	struct copy *c = rc->copy;

	if (r == -EBADMSG && rc->by_mirror && dest_restart(rc->dest, NULL) == 0) {
		atomic_store(&remote_source_version(options_of(rc)->source)->gone, true);
		source_unref(rc->part);
		rc->part = NULL;
		fetch_entry(rc);
		return;
	}
	source_unref(rc->part);
	free(rc->urls);
	free(rc);
	copy_filled(c, r, in ? in : &none);
}

static struct fetch fetch_of(struct remote_copy *rc, uint64_t off, uint64_t n, struct dest *dest)
{
	const struct object_options *o = options_of(rc);

	return (struct fetch){
		.options = o->fetch,
		.cancel = &rc->copy->making->cancel,
		.what = FETCH_RANGE,
		.trust = HTTP_USER,
		.version = remote_source_version(o->source),
		.off = off,
		.n = n,
		.dest = dest,
		.arrived = making_arrived,
		.progress_ctx = rc->copy->making,
		.ctx = rc,
	};
}

/* ---- a large Stored entry ---- */

static void data_done(void *ctx, int result, struct ingested *in)
{
	struct remote_copy *rc = ctx;

	if (result == 0)
		result = making_check(rc->copy->making, in->sha256);
	if (result < 0)
		free(in->tags);
	remote_over(rc, result, in);
}

/* How much an earlier fill has left of this very version. */
static uint64_t find_partial(const struct remote_copy *rc, const char *version)
{
	char validator[MAX_CACHE_VALIDATOR + 1];
	uint64_t len;

	if (!version || dest_partial(rc->dest, &len, validator, sizeof(validator)) < 0 ||
	    strcmp(validator, version) != 0 || len > rc->entry->size)
		return 0;
	return len;
}

static int fetch_data(struct remote_copy *rc, uint64_t off)
{
	const struct object_store *s = rc->copy->making->object->store;
	const char *version = s->options.source->version;
	uint64_t size = rc->entry->size, have = find_partial(rc, version);
	struct fetch f = fetch_of(rc, off, size, rc->dest);
	int r = have ? 0 : dest_restart(rc->dest, version);

	if (r == 0)
		r = dest_reserve(rc->dest, size, true);
	f.have = have;
	f.hash = s->options.verify;
	f.tagger = s->tagger;
	f.progress = making_count;
	f.done = data_done;
	return r < 0 ? r : fetch_start(&f);
}

/* ---- any other ---- */

static int decode(struct remote_copy *rc, uint64_t off, struct ingested *ret)
{
	const struct entry *e = rc->entry;
	struct stream *in = NULL;
	int r = dest_restart(rc->dest, NULL);

	if (r == 0)
		r = dest_reserve(rc->dest, e->size, true);
	if (r == 0)
		r = source_stream(rc->part, off, e->stored, &in);
	if (r == 0)
		r = decode_open(in, e->method, e->stored, e->size, e->name, &in);
	if (r == 0)
		decode_count(in, options_of(rc)->budget);
	if (r == 0)
		r = dest_stream(rc->dest, 0, in, &in);
	return r < 0 ? r : making_verify(rc->copy->making, in, ret);
}

/* The scratch is there: what the container says of the entry is checked, and it is read. */
static void run_job(struct job *job)
{
	struct remote_copy *rc = container_of(job, struct remote_copy, job);
	struct container *c = options_of(rc)->container;
	const struct entry *e = rc->entry;
	struct ingested in = { 0 };
	uint64_t off;
	int r = container_locate_in(c, e, rc->part, &off);

	if (r == 0 && copy_is_direct(e)) {
		r = fetch_data(rc, e->header + off);
		if (r == 0)
			return;
	} else if (r == 0) {
		r = decode(rc, off, &in);
	}
	remote_over(rc, r, &in);
}

static void scratch_done(void *ctx, int result, struct ingested *in)
{
	struct remote_copy *rc = ctx;
	const struct entry *e = rc->entry;

	if (result == 0)
		result = dest_commit(rc->scratch, NULL, in->size, &rc->part);
	else
		dest_abort(rc->scratch, false);
	if (result < 0) {
		remote_over(rc, result, NULL);
		return;
	}
	rc->job.run = run_job;
	workers_submit(options_of(rc)->workers, &rc->job,
		       MAX(e->size, e->stored) > BULK_OBJECT ? LANE_BULK : LANE_QUICK);
}

static int open_scratch_file(struct remote_copy *rc, struct cache *cache, uint64_t n)
{
	int r = dest_file(cache, NULL, &rc->scratch);

	if (r == 0)
		r = dest_reserve(rc->scratch, n, true);
	if (r < 0) {
		dest_abort(rc->scratch, false);
		rc->scratch = NULL;
	}
	return r;
}

static int open_scratch(struct remote_copy *rc, uint64_t n)
{
	struct cache *cache = options_of(rc)->cache;
	int r;

	if (n <= SCRATCH_MEMORY)
		return dest_memory(n, &rc->scratch);
	r = open_scratch_file(rc, cache, n);
	return r == -ENOSPC && cache ? open_scratch_file(rc, NULL, n) : r;
}

/* What opening the carton has left of it. */
static int copy_held(struct remote_copy *rc, uint64_t off, uint64_t n)
{
	char *data = malloc((size_t)n + 1);
	int r = data ? -ENOENT : -ENOMEM;

	if (r == -ENOENT && remote_source_cached(options_of(rc)->source, data, n, off))
		r = dest_write(rc->scratch, data, (size_t)n, 0);
	free(data);
	return r;
}

/* From the carton: what of it says where the data is, or all of it. */
static void fetch_entry(struct remote_copy *rc)
{
	const struct entry *e = rc->entry;
	uint64_t n = entry_end(e) - e->header - (copy_is_direct(e) ? e->stored : 0);
	struct ingested in = { .size = n };
	struct fetch f;
	const struct version *version = remote_source_version(options_of(rc)->source);
	bool held = n <= WHOLE && !(version && version->gone);
	int r = open_scratch(rc, n);

	rc->by_mirror = version && version->other && !version->gone;
	if (r == 0 && held)
		r = copy_held(rc, e->header, n);
	if (r == 0 && held) {
		scratch_done(rc, 0, &in);
		return;
	}
	if (r == 0 || r == -ENOENT) {
		f = fetch_of(rc, e->header, n, rc->scratch);
		f.done = scratch_done;
		r = fetch_start(&f);
	}
	if (r < 0) {
		dest_abort(rc->scratch, false);
		remote_over(rc, r, NULL);
	}
}

/* ---- mirrors ---- */

static void mirror_done(void *ctx, int result, struct ingested *in)
{
	struct remote_copy *rc = ctx;

	/*
	 * the carton lies about one of them; a read by its size would give a part as if it were all
	 */
	if (result == 0 && in->size != rc->entry->size) {
		free(in->tags);
		result = -EBADMSG;
	}
	if (result == 0 || result == -ECANCELED || result == -ENOMEM || result == -ENOSPC)
		remote_over(rc, result, in);
	else
		fetch_entry(rc);
}

/* 0: a mirror is asked; -ENOENT: there is none. */
static int ask_mirrors(struct remote_copy *rc)
{
	const struct object *o = rc->copy->making->object;
	const struct object_options *options = options_of(rc);
	struct fetch f = fetch_of(rc, 0, o->size, rc->dest);
	int r = -ENOENT;

	if (options->verify && mirrors_have_urls(options->mirrors) &&
	    !remote_source_cached(options->source, NULL, rc->entry->stored, rc->entry->header))
		r = mirrors_urls(options->mirrors, o->sha256, object_name(o), NULL, 0, &rc->urls,
				 &f.n_by_hash);
	if (r < 0)
		return r;
	f.what = FETCH_FILE;
	f.max = rc->entry->size;
	f.urls = rc->urls;
	f.n_urls = f.n_by_hash;
	f.version = NULL;
	f.sha256 = o->sha256;
	f.hash = true;
	f.tagger = o->store->tagger;
	f.progress = making_count;
	f.done = mirror_done;
	return f.n_urls ? fetch_start(&f) : -ENOENT;
}

void copy_remote(struct copy *c, const struct entry *e, struct dest *dest)
{
	struct remote_copy *rc = calloc(1, sizeof(*rc));
	struct ingested none = { 0 };

	if (!rc) {
		copy_filled(c, -ENOMEM, &none);
		return;
	}
	*rc = (struct remote_copy){ .copy = c, .entry = e, .dest = dest };
	if (ask_mirrors(rc) < 0)
		fetch_entry(rc);
}
