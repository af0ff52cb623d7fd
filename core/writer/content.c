/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/content.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/ingest.h"
#include "base/util.h"
#include "format/manifest.h"

#define COPY_BLOCK MIB
/* the disk begins to write after so many bytes, while others are still read and hashed */
#define WRITE_STEP (8 * MIB)

/* Passes bytes through, to their reader and to `sink`. */
struct tee {
	struct stream stream;
	struct stream *in;
	uint32_t crc;
	int (*sink)(struct tee *tee, const void *data, size_t n); /* or NULL */
	bool store;	       /* blocks that were read are written to their place */
	atomic_int sink_error; /* also of these */

	/* used by the sinks */
	const struct content *content;
	struct encoder *encoder;
	char *memory;
	uint64_t at; /* the offset of the next byte: in memory, or in the file */
};

/* Writes; and lets the disk begin where a step is full. */
static int write_out(int fd, const void *data, size_t n, uint64_t at)
{
	uint64_t full = (at + n) / WRITE_STEP * WRITE_STEP;
	int r = pwrite_full(fd, data, n, at);

	/* best effort: it is all written in the end */
	if (r == 0 && full > at && full >= WRITE_STEP)
		sync_file_range(fd, (off_t)(full - WRITE_STEP), WRITE_STEP, SYNC_FILE_RANGE_WRITE);
	return r;
}

int content_write_error(struct pack_job *job, int r)
{
	/* that of the others is the same */
	if (atomic_exchange(&job->write_failed, true))
		return r;
	return log_error(r, NULL, "the output cannot be written: %s", carton_write_error(r));
}

static ssize_t tee_read(struct stream *s, void *ret_buf, size_t n)
{
	struct tee *t = container_of(s, struct tee, stream);
	ssize_t got = stream_read(t->in, ret_buf, n);
	int r;

	if (got <= 0)
		return got;
	t->crc = crc32_update(t->crc, ret_buf, (size_t)got);
	if (t->sink)
		atomic_store(&t->sink_error, t->sink(t, ret_buf, (size_t)got));
	r = atomic_load(&t->sink_error);
	return r < 0 ? r : got;
}

static const struct stream_ops tee_ops = { .read = tee_read };

static int to_memory(struct tee *t, const void *data, size_t n)
{
	if (n > t->content->item->zip.size - t->at)
		return -EBADMSG;
	memcpy(t->memory + t->at, data, n);
	t->at += n;
	return 0;
}

static int to_file(struct tee *t, const void *data, size_t n)
{
	int r = write_out(t->content->job->zip.fd, data, n, t->at);

	t->at += n;
	return r;
}

static int encoded_to_file(void *tee, const void *data, size_t n)
{
	return to_file(tee, data, n);
}

static int to_encoder(struct tee *t, const void *data, size_t n)
{
	return encoder_feed(t->encoder, data, n, false);
}

/* Writes a block to its place: the thread that hashes, or reads, whichever has time. */
static void store(void *tee, uint64_t off, const void *data, size_t n)
{
	struct tee *t = tee;
	int r = write_out(t->content->job->zip.fd, data, n, t->at + off);

	if (r < 0)
		atomic_store(&t->sink_error, r);
}

static void count(const struct content *c, uint64_t n)
{
	atomic_fetch_add(c->done, n);
	if (c->tick)
		c->tick(c->ctx);
}

static void count_read(void *tee, uint64_t n)
{
	count(((struct tee *)tee)->content, n);
}

int content_read_error(const char *name, int r)
{
	if (r == -ENODATA)
		carton_log(CARTON_LOG_ERROR, name, "became shorter while it was read");
	else if (r != -EBADMSG && r != -EOPNOTSUPP)
		carton_log(CARTON_LOG_ERROR, name, "cannot be read: %s", strerror(-r));
	return r == -ENODATA ? -EBADMSG : r;
}

/* ---- an item: begin, read, end ---- */

/* Begins to read all of it, through `t` to its sink. 0 or -errno, logged: nothing is to end. */
static int begin(const struct content *c, struct tee *t, struct ingest *ret)
{
	struct pack_item *item = c->item;
	int r;

	*ret = (struct ingest){
		.in = &t->stream,
		.size = item->zip.size,
		.tagger = c->job->tagger,
		.parts = true,
		.hash = true,
		/* the encoder's threads have to be fed */
		.alone = item->crowded && !t->encoder,
		.progress = count_read,
		.observe = t->store ? store : NULL,
		.ctx = t,
	};
	if (c->job->chunks && item->zip.size > CHUNKS_MIN_FILE)
		ret->states = chunks_size_for(item->zip.size);
	t->stream.ops = &tee_ops;
	t->content = c;
	r = c->job->ops->open(c->job->ctx, item, &t->in);
	return r < 0 ? content_read_error(item->zip.name, r) : 0;
}

/* Ends the item with the result `r`: hash, states and tags of `found` become those of the item. */
static int end(struct tee *t, const struct ingest *job, int r, const struct ingested *found)
{
	struct pack_item *item = t->content->item;
	int sink_error = atomic_load(&t->sink_error);

	stream_close(t->in);
	if (r == 0) {
		item->tags = found->tags;
		item->chunks = (struct chunks_made){ job->size, job->states, found->states };
	}
	if (sink_error < 0)
		return content_write_error(t->content->job, r < 0 ? r : sink_error);
	if (r < 0)
		return content_read_error(item->zip.name, r);
	item->zip.crc = t->crc;
	memcpy(item->sha256, found->sha256, SHA256_SIZE);
	return item->line ? manifest_check_hash(item->zip.name, item->line, found->sha256) : 0;
}

static int run(const struct content *c, struct tee *t)
{
	struct ingested found;
	struct ingest job;
	int r = begin(c, t, &job);

	if (r < 0)
		return r;
	r = ingest_run(&job, &found);
	return end(t, &job, r, &found);
}

/* To memory if the item has that, else to its place. */
static struct tee store_tee(const struct pack_item *item)
{
	if (item->data)
		return (struct tee){ .sink = to_memory, .memory = item->data };
	return (struct tee){ .store = true, .at = item->zip.data };
}

int content_store(const struct content *c)
{
	struct tee t = store_tee(c->item);

	return run(c, &t);
}

struct several {
	const struct content_queue *queue;
	struct {
		struct content content;
		struct tee tee;
		struct ingest job;
	} of[HASHERS];
};

static bool next_of(void *several, size_t i, struct ingest *ret)
{
	struct several *s = several;
	struct content *c = &s->of[i].content;

	while (s->queue->next(s->queue->ctx, c)) {
		int r;

		s->of[i].tee = store_tee(c->item);
		r = begin(c, &s->of[i].tee, &s->of[i].job);
		if (r == 0) {
			*ret = s->of[i].job;
			return true;
		}
		s->queue->done(s->queue->ctx, c, r);
	}
	return false;
}

static void one_done(void *several, size_t i, int r, struct ingested *found)
{
	struct several *s = several;

	r = end(&s->of[i].tee, &s->of[i].job, r, found);
	s->queue->done(s->queue->ctx, &s->of[i].content, r);
}

void content_store_several(const struct content_queue *queue)
{
	struct several s = { .queue = queue };

	ingest_several(&(struct ingest_queue){ &s, next_of, one_done });
}

int content_digest(const struct content *c)
{
	struct tee t = { 0 };

	return run(c, &t);
}

int content_encode(const struct content *c, struct encoder *e)
{
	struct tee t = { .sink = to_encoder, .encoder = e, .at = c->item->zip.data };
	int r = encoder_begin(e, c->item->zip.size, encoded_to_file, &t);

	if (r == 0)
		r = run(c, &t);
	if (r < 0)
		return r;
	r = encoder_feed(e, NULL, 0, true);
	c->item->zip.stored = t.at - c->item->zip.data;
	return r < 0 ? content_write_error(c->job, r) : 0;
}

int content_copy(const struct content *c)
{
	const struct entry *e = c->item->entry;
	uint64_t left = e->stored, at = c->item->zip.data, off;
	char *block = malloc(COPY_BLOCK);
	struct source *source;
	int r = -ENOMEM;

	if (block)
		r = container_locate(c->job->container, e, &source, &off);
	if (r < 0) {
		free(block);
		return content_read_error(c->item->zip.name, r);
	}
	while (left > 0 && r == 0) {
		size_t n = (size_t)MIN(left, COPY_BLOCK);

		r = source_pread(source, block, n, off);
		if (r < 0) {
			r = content_read_error(c->item->zip.name, r);
			break;
		}
		r = write_out(c->job->zip.fd, block, n, at);
		if (r < 0)
			content_write_error(c->job, r);
		left -= n;
		off += n;
		at += n;
	}
	if (r == 0 && !c->item->chunks.slots)
		count(c, c->item->zip.size);
	source_unref(source);
	free(block);
	return r;
}
