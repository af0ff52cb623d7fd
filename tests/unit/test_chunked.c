/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are verified chunk by chunk, and objects that have them until the whole is hashed. */
#include "content/chunked.h"
#include "format/chunks.h"
#include "content/bytes.h"
#include "content/derived.h"
#include "content/internal.h"
#include "object_help.h"
#include "carton/opened.h"

#define CHUNK (256 * KIB)
#define TAGS (CHUNK / TAG_BLOCK) /* of a chunk */
#define SIZE (5 * CHUNK + 77)
#define LONG_SIZE (8 * MIB)

/* Adds an index that says this of a file; takes the slots. */
static void add_index(struct box *b, struct chunks_made made)
{
	struct chunks_writer w = { 0 };
	uint8_t *index;
	size_t n;

	assert_int_equal(chunks_writer_add(&w, &made), 0);
	assert_int_equal(chunks_writer_end(&w, &index, &n), 0);
	chunks_writer_finish(&w);
	box_add(b, (char *)index, n, METHOD_STORED);
}

static void make_index(struct box *b, const struct box_item *item, const char *data)
{
	add_index(b, chunks_of(data, item->entry.size, CHUNK, item->sha256));
}

/* ---- the chunks by themselves ---- */

struct fixture {
	struct box *box;
	struct chunk_index index;
	struct tagger *tagger;
	struct chunked *c;
	struct chunked_bytes bytes;
	int reads; /* of the index */
};

static int read_blob(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	struct fixture *f = ctx;

	f->reads++;
	memcpy(ret_buf, f->box->items[1].data + off, n);
	return 0;
}

static int new_chunked(struct fixture *f)
{
	return chunked_new(&f->index, &f->index.chunks->files[0], &f->bytes, "name", &f->c);
}

/* `forge` changes the slots of the index; or NULL. */
static struct fixture *fixture_forged(void (*forge)(struct chunks_made *made, const char *data))
{
	struct fixture *f = must(calloc(1, sizeof(*f)));
	struct chunks_made made;
	struct box_item *item;

	f->box = box_new();
	item = box_add_made(f->box, SIZE, 1, METHOD_STORED);
	made = chunks_of(item->data, SIZE, CHUNK, NULL);
	if (forge)
		forge(&made, item->data);
	add_index(f->box, made);
	box_start(f->box, NULL, true);
	f->index.read = read_blob;
	f->index.ctx = f;
	assert_int_equal(
		chunks_parse(f->box->items[1].entry.size, read_blob, f, NULL, &f->index.chunks), 0);
	f->reads = 0;
	assert_int_equal(tagger_new(NULL, &f->tagger), 0);
	f->bytes = (struct chunked_bytes){
		.source = f->box->source,
		.off = item->entry.header,
		.tags = must(calloc(SIZE / TAG_BLOCK + 1, TAG_SIZE)),
		.tagger = f->tagger,
	};
	assert_int_equal(new_chunked(f), 0);
	return f;
}

static struct fixture *fixture_new(void)
{
	return fixture_forged(NULL);
}

static void fixture_free(struct fixture *f)
{
	free(f->bytes.tags);
	chunked_free(f->c);
	chunked_free(NULL);
	tagger_free(f->tagger);
	chunks_free(f->index.chunks);
	box_free(f->box);
	free(f);
}

static void assert_span(const struct fixture *f, uint64_t off, size_t n, size_t want, bool verified)
{
	size_t got;
	bool is;

	assert_int_equal(chunked_span(f->c, off, n, &got, &is), 0);
	assert_int_equal(got, want);
	assert_int_equal(is, verified);
}

static int read_at(struct fixture *f, size_t n, uint64_t off)
{
	char *out = must(malloc(n));
	int r = chunked_read(f->c, out, n, off);

	if (r == 0)
		assert_memory_equal(out, f->box->items[0].data + off, n);
	free(out);
	return r;
}

static void flip(const struct fixture *f, uint64_t off)
{
	char c = (char)(f->box->items[0].data[off] ^ 1);

	assert_int_equal(pwrite_full(f->box->fd, &c, 1, f->bytes.off + off), 0);
}

static void assert_tags(const struct fixture *f, size_t first, size_t last)
{
	uint8_t tag[TAG_SIZE];

	for (size_t i = first; i <= last; i++) {
		size_t n = MIN(TAG_BLOCK, SIZE - i * TAG_BLOCK);

		assert_int_equal(
			tagger_tag(f->tagger, f->box->items[0].data + i * TAG_BLOCK, n, tag), 0);
		assert_memory_equal(f->bytes.tags[i], tag, TAG_SIZE);
	}
}

static void test_spans(void **state)
{
	struct fixture *f = fixture_new();

	(void)state;
	assert_span(f, 0, SIZE, CHUNK, false);
	assert_span(f, CHUNK - 1, 5, 1, false);
	assert_int_equal(read_at(f, 1, 2 * CHUNK + 5), 0);
	assert_tags(f, 2 * TAGS, 3 * TAGS - 1);
	assert_span(f, 2 * CHUNK, SIZE - 2 * CHUNK, CHUNK, true);
	assert_int_equal(read_at(f, 77, 5 * CHUNK), 0);
	assert_int_equal(read_at(f, CHUNK, 3 * CHUNK), 0);
	assert_tags(f, 3 * TAGS, 4 * TAGS - 1);
	assert_tags(f, 5 * TAGS, 5 * TAGS);
	assert_span(f, 2 * CHUNK + 9, SIZE - 2 * CHUNK - 9, 2 * CHUNK - 9, true);
	assert_span(f, 4 * CHUNK, CHUNK + 77, CHUNK, false);
	assert_span(f, SIZE - 1, 1, 1, true);
	/* once is enough; and the hashes are read in blocks */
	assert_int_equal(read_at(f, 1, 2 * CHUNK), 1);
	assert_int_equal(f->reads, 1);
	fixture_free(f);
}

static void test_bad_chunks(void **state)
{
	struct fixture *f = fixture_new();
	struct log_seen *seen = log_watch();

	(void)state;
	flip(f, 3 * CHUNK + 1);
	flip(f, SIZE - 1);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(read_at(f, 1, i * CHUNK), i == 3 || i == 5 ? -EBADMSG : 0);
	assert_true(chunked_failed(f->c));
	assert_int_equal(seen->n, 1);
	assert_says(seen, "bytes 786432 to 1048575 do not have the sha256");
	assert_span(f, 3 * CHUNK, 1, 1, false);
	/* cut off */
	assert_int_equal(ftruncate(f->box->fd, (off_t)(f->bytes.off + 5 * CHUNK + 1)), 0);
	assert_int_equal(read_at(f, 1, 5 * CHUNK), -EBADMSG);
	fixture_free(f);
	carton_log_set(NULL, NULL);
}

/* Chunk by chunk, for whoever reads it or for nobody: when all have passed, that is said once. */
static void test_complete(void **state)
{
	struct fixture *f = fixture_new();
	size_t n;
	bool verified;

	(void)state;
	assert_int_equal(read_at(f, 1, CHUNK), 0);
	flip(f, 3 * CHUNK + 5);
	for (uint64_t i = 0; i < 6; i++) {
		assert_false(chunked_completed(f->c));
		assert_int_equal(chunked_verify(f->c, i), i == 3 ? -EBADMSG : 0);
	}
	assert_false(chunked_is_complete(f->c));
	/* nobody has read it */
	assert_false(chunked_failed(f->c));
	assert_true(pwrite_full(f->box->fd, f->box->items[0].data, SIZE, f->bytes.off) == 0);
	assert_int_equal(chunked_verify(f->c, 3), 1);
	assert_int_equal(chunked_verify(f->c, 3), 0);
	assert_true(chunked_completed(f->c));
	assert_false(chunked_completed(f->c));
	assert_span(f, 0, SIZE, SIZE, true);
	assert_tags(f, 0, SIZE / TAG_BLOCK);
	chunked_fail(f->c);
	assert_int_equal(chunked_span(f->c, 0, 1, &n, &verified), -EBADMSG);
	fixture_free(f);
}

/* The state after chunk `i`, if hashing begins with `from`, as after `size` bytes, before it. */
static void forge_slot(struct chunks_made *made, const char *data, uint64_t i, const uint8_t *from,
		       uint64_t size)
{
	struct ingested found;
	struct hasher h;

	assert_int_equal(hasher_begin(&h, NULL, true), 0);
	hasher_resume(&h, from, size);
	assert_int_equal(hasher_feed(&h, data + i * CHUNK, CHUNK), 0);
	assert_int_equal(hasher_end_state(&h, &found), 0);
	memcpy(made->slots[i], found.sha256, SHA256_SIZE);
}

/* Each chunk begins as the first. */
static void forge_alone(struct chunks_made *made, const char *data)
{
	for (uint64_t i = 0; i < 5; i++)
		forge_slot(made, data, i, NULL, 0);
}

/* Each chunk begins with the slot of the one after. */
static void forge_shifted(struct chunks_made *made, const char *data)
{
	for (uint64_t i = 0; i < 4; i++)
		forge_slot(made, data, i, made->slots[i + 1], CHUNK);
}

/* The first chunk begins with what stands before its slot. */
static void forge_start(struct chunks_made *made, const char *data)
{
	static const uint8_t zero[SHA256_SIZE];

	forge_slot(made, data, 0, zero, CHUNK);
	for (uint64_t i = 1; i < 5; i++)
		forge_slot(made, data, i, made->slots[i - 1], i * CHUNK);
}

/*
 * A chunk is hashed from the slot before it, and the first one from the constant of SHA-256: slots
 * that would be right if it were not so are not.
 */
static void test_forged_slots(void **state)
{
	static const struct {
		void (*forge)(struct chunks_made *made, const char *data);
		const char *right; /* which chunks are */
	} list[] = {
		{ NULL, "012345" },
		{ forge_alone, "0" },
		{ forge_shifted, "5" },
		{ forge_start, "1234" },
	};

	(void)state;
	log_watch();
	for (size_t k = 0; k < ARRAY_SIZE(list); k++)
		for (uint64_t i = 0; i < 6; i++) {
			struct fixture *f = fixture_forged(list[k].forge);
			bool right = strchr(list[k].right, (int)('0' + i));

			assert_int_equal(read_at(f, 1, i * CHUNK), right ? 0 : -EBADMSG);
			fixture_free(f);
		}
	carton_log_set(NULL, NULL);
}

/* ---- several at once ---- */

/* Verifies what is not verified: 0, or -EBADMSG of some. */
static int verify_all(struct fixture *f)
{
	uint64_t i = 0;
	int r = 0;

	while (i < 6) {
		uint64_t from = i;
		int one = chunked_verify_several(f->c, i, 6, &i);

		assert_true(i > from && (one == 0 || one == -EBADMSG));
		r = one < 0 ? one : r;
	}
	return r;
}

/* Each has its own answer and its own tags, whatever those have that are hashed with it. */
static void test_several(void **state)
{
	(void)state;
	for (uint64_t bad = 0; bad < 1 << 6; bad++) {
		struct fixture *f = fixture_new();

		assert_int_equal(chunked_reserve(f->c), 0);
		for (uint64_t i = 0; i < 6; i++)
			if (bad >> i & 1)
				flip(f, i == 5 ? SIZE - 1 : (i + 1) * CHUNK - 1 - i * 7);
		assert_int_equal(verify_all(f), bad ? -EBADMSG : 0);
		for (uint64_t i = 0; i < 6; i++) {
			assert_int_equal(chunked_is_verified(f->c, i), !(bad >> i & 1));
			if (!(bad >> i & 1))
				assert_tags(f, i * TAGS, i == 5 ? i * TAGS : (i + 1) * TAGS - 1);
		}
		assert_int_equal(chunked_completed(f->c), bad == 0);
		fixture_free(f);
	}
}

/* Two chunks that have changed places, and slots that are right of none. */
static void test_several_of_an_attacker(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 4; i++) {
		struct fixture *f = fixture_new();
		const char *data = f->box->items[0].data;

		assert_int_equal(chunked_reserve(f->c), 0);
		for (uint64_t k = 0; k < 2; k++)
			assert_int_equal(pwrite_full(f->box->fd, data + (i + 1 - k) * CHUNK, CHUNK,
						     f->bytes.off + (i + k) * CHUNK),
					 0);
		assert_int_equal(verify_all(f), -EBADMSG);
		for (uint64_t k = 0; k < 6; k++)
			assert_int_equal(chunked_is_verified(f->c, k), k != i && k != i + 1);
		fixture_free(f);
	}
	for (size_t k = 0; k < 2; k++) {
		struct fixture *f = fixture_forged(k ? forge_shifted : forge_alone);

		assert_int_equal(chunked_reserve(f->c), 0);
		assert_int_equal(verify_all(f), -EBADMSG);
		for (uint64_t i = 0; i < 6; i++)
			assert_int_equal(chunked_is_verified(f->c, i), i == (k ? 5 : 0));
		fixture_free(f);
	}
}

/* Chunks that are verified are left out, and the file may end in any of them. */
static void test_several_of_some(void **state)
{
	struct fixture *f = fixture_new();
	uint64_t next;

	(void)state;
	assert_int_equal(chunked_reserve(f->c), 0);
	assert_int_equal(read_at(f, 1, CHUNK), 0);
	f->reads = 0;
	assert_int_equal(chunked_verify_several(f->c, 0, 6, &next), 0);
	assert_int_equal(next, 4);
	assert_true(chunked_is_verified(f->c, 0) && chunked_is_verified(f->c, 2) &&
		    chunked_is_verified(f->c, 3) && !chunked_is_verified(f->c, 4));
	assert_int_equal(chunked_verify_several(f->c, 4, 5, &next), 0);
	assert_int_equal(next, 5);
	assert_int_equal(ftruncate(f->box->fd, (off_t)(f->bytes.off + 5 * CHUNK + 3)), 0);
	assert_int_equal(chunked_verify_several(f->c, 0, 6, &next), -EBADMSG);
	assert_int_equal(next, 6);
	assert_false(chunked_is_complete(f->c));
	fixture_free(f);
	f = fixture_new();
	assert_int_equal(chunked_reserve(f->c), 0);
	chunked_verify_range(f->c, CHUNK + 5, CHUNK);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(chunked_is_verified(f->c, i), i == 1 || i == 2);
	fixture_free(f);
}

struct at_once {
	struct fixture *f;
	size_t seed;
};

static void *verify_somewhere(void *arg)
{
	const struct at_once *a = arg;
	size_t at = a->seed;
	uint64_t next;

	for (int i = 0; i < 30; i++) {
		at = at * 7 + 3;
		if (chunked_verify_several(a->f->c, at % 6, 6, &next) < 0 ||
		    (!chunked_is_verified(a->f->c, at % 6) && next <= at % 6))
			return arg;
	}
	return NULL;
}

/* Several threads, which want some of the same chunks: none waits for ever, and all get done. */
static void test_several_by_threads(void **state)
{
	(void)state;
	for (int n = 0; n < 10; n++) {
		struct fixture *f = fixture_new();
		struct at_once all[4];
		pthread_t threads[4];
		void *failed;

		assert_int_equal(chunked_reserve(f->c), 0);
		for (size_t i = 0; i < 4; i++) {
			all[i] = (struct at_once){ f, i };
			assert_int_equal(
				pthread_create(&threads[i], NULL, verify_somewhere, &all[i]), 0);
		}
		for (size_t i = 0; i < 4; i++) {
			pthread_join(threads[i], &failed);
			assert_null(failed);
		}
		assert_int_equal(verify_all(f), 0);
		assert_true(chunked_completed(f->c));
		assert_tags(f, 0, SIZE / TAG_BLOCK);
		fixture_free(f);
	}
}

/* ---- what is fetched ---- */

static int fetch_nothing(void *ctx, uint64_t i, uint64_t end, struct object_wait *wait)
{
	(void)ctx;
	(void)wait;
	return i < end ? -ENOTCONN : 0;
}

static void count_complete(void *ctx)
{
	++*(int *)ctx;
}

static void nothing_read(void *ctx, uint64_t i, uint64_t end)
{
	(void)ctx;
	(void)i;
	(void)end;
}

static void free_nothing(void *ctx)
{
	(void)ctx;
}

/* What is not there has to be fetched; what is written is nobody's until it is verified. */
static void test_origin(void **state)
{
	static const struct chunk_filler filler = {
		fetch_nothing,	nothing_read,	free_nothing,
		count_complete, count_complete, free_nothing,
	};
	struct fixture *f = fixture_new();
	struct log_seen *seen = log_watch();
	int completed = 0;

	(void)state;
	assert_null(chunked_filler(f->c));
	chunked_set_filler(f->c, &filler, &completed);
	assert_ptr_equal(chunked_filler(f->c), &completed);
	assert_int_equal(chunked_fetch(f->c, CHUNK - 1, 1, NULL), -ENOTCONN);
	/* what an earlier mount has left is right, or not */
	assert_int_equal(read_at(f, 5, 2 * CHUNK), 0);
	flip(f, 3 * CHUNK + 1);
	assert_int_equal(read_at(f, 5, 3 * CHUNK), -EINPROGRESS);
	/* nor is it where the file was cut off */
	assert_int_equal(ftruncate(f->box->fd, (off_t)(f->bytes.off + 4 * CHUNK + 100)), 0);
	assert_int_equal(read_at(f, 5, 4 * CHUNK), -EINPROGRESS);
	assert_false(chunked_claim(f->c, 2));
	assert_true(chunked_claim(f->c, 3));
	assert_int_equal(chunked_verify(f->c, 3), -EBADMSG);
	assert_int_equal(pwrite_full(f->box->fd, f->box->items[0].data, SIZE, f->bytes.off), 0);
	/* it is right by now, but still claimed */
	assert_int_equal(read_at(f, 5, 3 * CHUNK), -EINPROGRESS);
	assert_int_equal(chunked_verify(f->c, 3), 0);
	chunked_unclaim(f->c, 3);
	assert_int_equal(read_at(f, 5, 3 * CHUNK), 1);
	assert_tags(f, 3 * TAGS, 4 * TAGS - 1);
	for (uint64_t i = 0; i < 4; i++)
		if (i != 2 && i != 3)
			assert_int_equal(read_at(f, 1, i * CHUNK), 0);
	assert_true(chunked_claim(f->c, 4));
	assert_true(chunked_claim(f->c, 5));
	assert_int_equal(chunked_verify(f->c, 5), 0);
	assert_int_equal(chunked_verify(f->c, 4), 1);
	assert_span(f, 0, SIZE, SIZE, true);
	assert_int_equal(completed, 0);
	chunked_proven(f->c);
	assert_int_equal(completed, 1);
	assert_int_equal(seen->n, 0);
	fixture_free(f);
	carton_log_set(NULL, NULL);
}

static void use_budget(struct fixture *f, struct budget *b)
{
	chunked_free(f->c);
	f->index.budget = b;
	b->limit = 1;
	assert_int_equal(new_chunked(f), -EFBIG);
	b->limit = GIB;
	assert_int_equal(new_chunked(f), 0);
	assert_true(b->tables > SIZE / CHUNK / 4 && b->tables < 4096);
}

static void assert_doubted(struct fixture *f, uint64_t i, uint64_t before, bool want)
{
	assert_int_equal(chunked_doubt(f->c, i * CHUNK + 5, before), want);
}

/*
 * A chunk that was written to after it was verified: the first time it is fetched again, and then
 * no more; nor is one once all are verified.
 */
static void test_doubts(void **state)
{
	static const struct chunk_filler filler = {
		fetch_nothing,	nothing_read,	free_nothing,
		count_complete, count_complete, free_nothing,
	};
	struct fixture *f = fixture_new();
	struct log_seen *seen = log_watch();
	uint64_t cost, none, used;
	int completed = 0;
	struct budget b;

	(void)state;
	budget_init(&b, GIB);
	use_budget(f, &b);
	none = b.used;
	assert_int_equal(read_at(f, 1, 0), 0);
	cost = b.used - none;
	/* nobody would fetch it */
	assert_doubted(f, 0, 0, false);
	chunked_set_filler(f->c, &filler, &completed);
	for (uint64_t i = 1; i < 5; i++)
		assert_int_equal(read_at(f, 1, i * CHUNK), 0);
	used = b.used;
	assert_int_equal(chunked_verified_bytes(f->c), 5 * CHUNK);
	/* each can be doubted alone, and is as if it had never been read */
	assert_span(f, 0, SIZE, CHUNK, true);
	flip(f, 3 * CHUNK + 9);
	assert_int_equal(chunked_doubts(f->c), 0);
	assert_doubted(f, 3, 0, true);
	assert_int_equal(chunked_doubts(f->c), 1);
	assert_span(f, 3 * CHUNK, CHUNK, CHUNK, false);
	assert_span(f, 2 * CHUNK, CHUNK, CHUNK, true);
	assert_int_equal(b.used, used - cost);
	assert_int_equal(chunked_verified_bytes(f->c), 4 * CHUNK);
	assert_int_equal(read_at(f, 1, 3 * CHUNK), -EINPROGRESS);
	/* who has read it before tries again, and that doubts nothing */
	assert_doubted(f, 3, 0, true);
	assert_doubted(f, 2, 0, true);
	assert_int_equal(chunked_doubts(f->c), 1);
	/* the last one of all does not make it complete meanwhile */
	assert_int_equal(read_at(f, 1, 5 * CHUNK), 0);
	assert_false(chunked_is_complete(f->c));
	/* it comes again */
	assert_true(chunked_claim(f->c, 3));
	assert_int_equal(chunked_verify(f->c, 3), -EBADMSG);
	assert_int_equal(pwrite_full(f->box->fd, f->box->items[0].data, SIZE, f->bytes.off), 0);
	/* but not once more: another one is doubted, so that all are not verified yet */
	assert_doubted(f, 4, 1, true);
	assert_int_equal(chunked_verify(f->c, 3), 0);
	chunked_unclaim(f->c, 3);
	assert_tags(f, 3 * TAGS, 4 * TAGS - 1);
	assert_doubted(f, 3, 2, false);
	assert_int_equal(completed, 0);
	assert_int_equal(read_at(f, 1, 4 * CHUNK), 0);
	assert_int_equal(completed, 1);
	assert_true(chunked_is_complete(f->c));
	assert_span(f, 0, SIZE, SIZE, true);
	assert_doubted(f, 0, 2, false);
	assert_int_equal(chunked_doubts(f->c), 2);
	/* a line for all of it */
	assert_int_equal(seen->n, 1);
	assert_says(seen, "bytes 786432 to 1048575 were changed in the cache");
	assert_false(chunked_failed(f->c));
	chunked_free(f->c);
	f->c = NULL;
	assert_int_equal(b.used, 0);
	fixture_free(f);
	carton_log_set(NULL, NULL);
}

/* Who writes to a chunk and takes it back, all the time: each is doubted once. */
static void test_doubts_end(void **state)
{
	static const struct chunk_filler filler = {
		fetch_nothing,	nothing_read,	free_nothing,
		count_complete, count_complete, free_nothing,
	};
	struct fixture *f = fixture_new();
	struct log_seen *seen = log_watch();
	struct bytes b = { .kind = BYTES_FILE, .source = f->bytes.source, .off = f->bytes.off };
	int completed = 0, retries = 0, r;
	char out[100];

	(void)state;
	b.tags = f->bytes.tags;
	b.chunks = f->c;
	chunked_set_filler(f->c, &filler, &completed);
	assert_int_equal(bytes_read(&b, f->tagger, SIZE, out, 100, CHUNK + 50, false), 0);
	do {
		/* wrong when it is read, right when it is looked at again */
		flip(f, CHUNK + 77);
		r = bytes_read(&b, f->tagger, SIZE, out, 100, CHUNK + 50, false);
		assert_int_not_equal(r, 0);
		assert_int_equal(pwrite_full(f->box->fd, f->box->items[0].data, SIZE, f->bytes.off),
				 0);
		if (r != -EBADMSG)
			assert_int_equal(
				bytes_read(&b, f->tagger, SIZE, out, 100, CHUNK + 50, false), 0);
		assert_memory_equal(out + 60, f->box->items[0].data + CHUNK + 110, 40);
	} while (r != -EBADMSG && ++retries < 10);
	assert_int_equal(r, -EBADMSG);
	assert_int_equal(retries, 1);
	assert_int_equal(seen->n, 1);
	fixture_free(f);
	carton_log_set(NULL, NULL);
}

/* A hole is not hashed; the last chunk that a reader verifies makes it complete. */
static void test_holes(void **state)
{
	static const struct chunk_filler filler = {
		fetch_nothing,	nothing_read,	free_nothing,
		count_complete, count_complete, free_nothing,
	};
	struct fixture *f = fixture_new();
	int completed = 0, reads;

	(void)state;
	chunked_set_filler(f->c, &filler, &completed);
	assert_false(chunked_is_hole(f->c, 0));
	assert_int_equal(ftruncate(f->box->fd, 0), 0);
	assert_int_equal(ftruncate(f->box->fd, (off_t)(f->bytes.off + SIZE)), 0);
	reads = f->reads;
	assert_true(chunked_is_hole(f->c, 0));
	assert_int_equal(read_at(f, 1, 0), -EINPROGRESS);
	assert_int_equal(f->reads, reads);
	assert_int_equal(pwrite_full(f->box->fd, f->box->items[0].data, SIZE, f->bytes.off), 0);
	for (uint64_t i = 0; i < 6; i++) {
		assert_int_equal(completed, 0);
		assert_true(read_at(f, 1, i * CHUNK) >= 0);
	}
	assert_int_equal(completed, 1);
	fixture_free(f);
}

/* ---- their memory ---- */

/*
 * One chunk more than there is memory for: an error, and all that was verified before stays
 * readable.
 */
static void test_memory_of_chunks(void **state)
{
	struct fixture *f = fixture_new();
	struct log_seen *seen = log_watch();
	struct budget b;

	(void)state;
	budget_init(&b, GIB);
	use_budget(f, &b);
	b.limit = b.tables + 2 * TAGS * TAG_SIZE;
	/* buffers of fetches do not count */
	budget_charge(&b, GIB);
	assert_int_equal(read_at(f, 1, 0), 0);
	assert_int_equal(read_at(f, 1, 3 * CHUNK), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(read_at(f, 1, 2 * CHUNK), -EFBIG);
	assert_int_equal(chunked_verify(f->c, 2), -EFBIG);
	assert_int_equal(chunked_fetch(f->c, 2 * CHUNK, 1, NULL), -EFBIG);
	assert_int_equal(seen->n, 1);
	assert_says(seen, "more memory than the limit, 0 MiB; allow more with memory=");
	assert_int_equal(read_at(f, 1, 3 * CHUNK), 1);
	assert_span(f, 3 * CHUNK, CHUNK, CHUNK, true);
	/* the last one is of 77 bytes */
	b.limit += TAG_SIZE;
	assert_int_equal(read_at(f, 1, 5 * CHUNK), 0);
	assert_int_equal(read_at(f, 1, 2 * CHUNK), -EFBIG);
	budget_drop(&b, GIB);
	chunked_free(f->c);
	f->c = NULL;
	assert_int_equal(b.used, 0);
	assert_int_equal(b.tables, 0);
	fixture_free(f);
	carton_log_set(NULL, NULL);
}

/* What fails, or was there, is not counted; or all is, from the start. */
static void test_memory_is_given_back(void **state)
{
	const uint64_t cost = (SIZE / TAG_BLOCK + 1) * TAG_SIZE;
	struct fixture *f = fixture_new();
	struct budget b;
	uint64_t none;

	(void)state;
	log_watch();
	budget_init(&b, GIB);
	use_budget(f, &b);
	none = b.used;
	flip(f, 3 * CHUNK);
	assert_int_equal(read_at(f, 1, 3 * CHUNK), -EBADMSG);
	assert_int_equal(chunked_verify(f->c, 3), -EBADMSG);
	assert_int_equal(b.used, none);
	b.limit = none + cost - 1;
	assert_int_equal(chunked_reserve(f->c), -EFBIG);
	assert_int_equal(b.used, none);
	b.limit = none + cost;
	assert_int_equal(chunked_reserve(f->c), 0);
	assert_int_equal(b.used, none + cost);
	for (uint64_t i = 0; i < 6; i++)
		assert_int_equal(read_at(f, 1, i * CHUNK), i == 3 ? -EBADMSG : 0);
	assert_int_equal(b.used, none + cost);
	chunked_free(f->c);
	f->c = NULL;
	assert_int_equal(b.used, 0);
	assert_int_equal(b.tables, 0);
	fixture_free(f);
	carton_log_set(NULL, NULL);
}

/* ---- objects ---- */

struct chunked_box {
	struct box *box;
	struct box_item *item;
	struct object *index;
	struct chunks *chunks;
};

static int read_object(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	return object_read(ctx, ret_buf, n, off, false);
}

/*
 * A store whose first object is chunked; `indexed`: what the index was made from, or NULL: its
 * bytes.
 */
static struct chunked_box box_chunked_of(size_t size, const char *indexed, struct budget *budget)
{
	struct chunked_box k = { .box = box_new() };

	k.box->budget = budget;
	k.item = box_add_made(k.box, size, 1, METHOD_STORED);
	make_index(k.box, k.item, indexed ? indexed : k.item->data);
	box_start(k.box, NULL, true);
	k.index = k.box->items[1].object;
	assert_int_equal(get(k.index), 0);
	assert_int_equal(
		chunks_parse(k.box->items[1].entry.size, read_object, k.index, NULL, &k.chunks), 0);
	object_use_chunks(k.box->store, k.chunks, k.index);
	return k;
}

static struct chunked_box box_chunked_in(const char *indexed, struct budget *budget)
{
	return box_chunked_of(SIZE, indexed, budget);
}

static struct chunked_box box_chunked(const char *indexed)
{
	return box_chunked_in(indexed, NULL);
}

static void chunked_box_free(struct chunked_box *k)
{
	object_put(k->index);
	box_free(k->box);
	chunks_free(k->chunks);
}

/* Waits until the background has hashed it. */
static enum object_state state_at_end(struct object *o)
{
	while (object_state(o) == OBJECT_CHUNKED)
		sched_yield();
	return object_state(o);
}

static void test_object(void **state)
{
	struct chunked_box k = box_chunked(NULL);

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(get(k.item->object), 0);
		assert_true(reads_right(k.item, 1000, 2 * CHUNK - 500, false));
		assert_true(reads_right(k.item, SIZE, 0, false));
		assert_int_equal(state_at_end(k.item->object), OBJECT_VERIFIED);
		assert_true(reads_right(k.item, SIZE, 0, true));
		object_put(k.item->object);
	}
	chunked_box_free(&k);
}

/* The background, which makes way for readers, takes what it reads of the index for no read. */
static void test_background_reads(void **state)
{
	struct chunked_box k = box_chunked_of(LONG_SIZE, NULL, NULL);
	struct object *o = k.item->object;
	uint64_t before = atomic_load(&o->store->reads);

	(void)state;
	assert_int_equal(get(o), 0);
	assert_int_equal(state_at_end(o), OBJECT_VERIFIED);
	assert_int_equal(atomic_load(&o->store->reads), before);
	object_put(o);
	chunked_box_free(&k);
}

/* Without memory for its chunks it is hashed before it is opened, as if there were no index. */
static void test_object_without_memory(void **state)
{
	struct budget b;
	struct chunked_box k;

	(void)state;
	log_watch();
	budget_init(&b, GIB);
	k = box_chunked_in(NULL, &b);
	b.limit = b.used + 100;
	assert_int_equal(get(k.item->object), 0);
	assert_int_equal(object_state(k.item->object), OBJECT_VERIFIED);
	assert_true(reads_right(k.item, SIZE, 0, false));
	object_put(k.item->object);
	chunked_box_free(&k);
	carton_log_set(NULL, NULL);
}

/* Right chunks of wrong content: it can be read until the whole is hashed, and then no more. */
static void test_index_of_other_content(void **state)
{
	struct log_seen *seen = log_watch();
	char *other = make_bytes(SIZE, 2);
	struct chunked_box k = box_chunked(other);
	char byte;

	(void)state;
	assert_int_equal(pwrite_full(k.box->fd, other, SIZE, k.item->entry.header), 0);
	assert_int_equal(get(k.item->object), 0);
	assert_int_equal(state_at_end(k.item->object), OBJECT_CORRUPT);
	/* it is told of the pages that are to go before the log is */
	while (__atomic_load_n(&seen->n, __ATOMIC_ACQUIRE) == 0)
		sched_yield();
	assert_int_equal(seen->n, 1);
	assert_says(seen, "does not have the sha256 that MANIFEST says");
	assert_int_equal(object_read(k.item->object, &byte, 1, 0, false), -EBADMSG);
	assert_int_equal(get(k.item->object), -EBADMSG);
	object_put(k.item->object);
	/* then it is hashed before it is opened */
	assert_int_equal(get(k.item->object), -EBADMSG);
	assert_int_equal(pwrite_full(k.box->fd, k.item->data, SIZE, k.item->entry.header), 0);
	chunked_box_free(&k);
	free(other);
	carton_log_set(NULL, NULL);
}

/* ---- what is made of them ---- */

/* Makes a byte of an object. */
static int derive(void *ctx, struct fill *m, bool late)
{
	struct derived_file out;
	int r = object_get_wait(ctx, &m->waits);

	if (r < 0)
		return r;
	while (late && object_state(ctx) == OBJECT_CHUNKED)
		sched_yield();
	r = derived_begin(&out, m, 1);
	if (r == 0)
		r = derived_end(&out, derived_write(&out, "x", 1));
	object_put(ctx);
	return r;
}

static int derive_now(void *ctx, struct fill *m)
{
	return derive(ctx, m, false);
}

/* Not before all of the object was hashed. */
static int derive_late(void *ctx, struct fill *m)
{
	return derive(ctx, m, true);
}

static atomic_bool held;

static void wait_while_held(struct job *job)
{
	(void)job;
	while (atomic_load(&held))
		sched_yield();
}

/* What was made of an object before that was found damaged goes, also for who has it open. */
static void test_derived_and_open(void **state)
{
	char *other = make_bytes(SIZE, 2), byte;
	struct chunked_box k = box_chunked(other);
	struct job jobs[128] = { 0 };
	struct object *derived;

	(void)state;
	log_watch();
	assert_int_equal(pwrite_full(k.box->fd, other, SIZE, k.item->entry.header), 0);
	assert_int_equal(
		object_add_derived(k.box->store, "d", 1, derive_now, k.item->object, &derived), 0);
	object_depend(derived, k.item->object);
	/* the background does not get its turn */
	atomic_store(&held, true);
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
		jobs[i].run = wait_while_held;
		workers_submit(k.box->workers, &jobs[i], LANE_BULK);
	}
	assert_int_equal(get(derived), 0);
	assert_int_equal(object_read(derived, &byte, 1, 0, true), 0);
	assert_int_equal(object_state(k.item->object), OBJECT_CHUNKED);
	atomic_store(&held, false);
	state_at_end(k.item->object);
	assert_true(object_is_withdrawn(derived));
	assert_int_equal(object_read(derived, &byte, 1, 0, true), -EBADMSG);
	object_put(derived);
	assert_int_equal(get(derived), -EBADMSG);
	chunked_box_free(&k);
	free(other);
	carton_log_set(NULL, NULL);
}

/* What was being made of an object when that was found damaged is not given to anyone. */
static void test_derived_of_damaged(void **state)
{
	char *other = make_bytes(SIZE, 2);
	struct chunked_box k = box_chunked(other);
	struct object *of = k.item->object, *derived, *next;

	(void)state;
	log_watch();
	assert_int_equal(pwrite_full(k.box->fd, other, SIZE, k.item->entry.header), 0);
	assert_int_equal(object_add_derived(k.box->store, "d", 1, derive_late, of, &derived), 0);
	assert_int_equal(object_add_derived(k.box->store, "n", 1, derive_late, of, &next), 0);
	assert_false(object_made_of(derived, of));
	object_depend(derived, of);
	object_depend(next, of);
	assert_true(object_made_of(derived, of));
	assert_false(object_made_of(of, of));
	assert_false(object_is_withdrawn(derived));
	assert_int_equal(get(derived), -EBADMSG);
	assert_true(object_is_withdrawn(derived));
	assert_int_equal(get(derived), -EBADMSG);
	/* also when the object is right again; but what was not made yet is made of that */
	assert_int_equal(pwrite_full(k.box->fd, k.item->data, SIZE, k.item->entry.header), 0);
	assert_int_equal(get(of), 0);
	assert_int_equal(get(derived), -EBADMSG);
	assert_false(object_is_withdrawn(next));
	assert_int_equal(get(next), 0);
	object_put(next);
	object_put(of);
	chunked_box_free(&k);
	free(other);
	carton_log_set(NULL, NULL);
}

static void test_derived_of_right(void **state)
{
	struct chunked_box k = box_chunked(NULL);
	struct object *derived;

	(void)state;
	assert_int_equal(
		object_add_derived(k.box->store, "d", 1, derive_late, k.item->object, &derived), 0);
	object_depend(derived, k.item->object);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(get(derived), 0);
		object_put(derived);
	}
	chunked_box_free(&k);
}

/* Who cannot take back what it makes has all of it hashed first. */
static void test_hash_all(void **state)
{
	char *other = make_bytes(SIZE, 2);
	struct waits fired;

	(void)state;
	log_watch();
	for (int bad = 0; bad < 2; bad++) {
		struct chunked_box k = box_chunked(bad ? other : NULL);

		if (bad)
			assert_int_equal(pwrite_full(k.box->fd, other, SIZE, k.item->entry.header),
					 0);
		assert_int_equal(get(k.item->object), 0);
		waits_init(&fired, k.item->object);
		cancel_fire(&fired.cancel);
		int r = object_hash_all(k.item->object, &fired);

		/* unless the background was quicker */
		assert_true(r == -ECANCELED || r == (bad ? -EBADMSG : 0));
		assert_int_equal(object_hash_all(k.item->object, NULL), bad ? -EBADMSG : 0);
		state_at_end(k.item->object);
		assert_int_equal(object_hash_all(k.item->object, &fired), bad ? -EBADMSG : 0);
		waits_finish(&fired);
		object_put(k.item->object);
		chunked_box_free(&k);
	}
	free(other);
	carton_log_set(NULL, NULL);
}

static void not_called(void *ctx, int result)
{
	(void)ctx;
	fail_msg("done with %d", result);
}

/*
 * A read that begins when the whole has failed cannot pin the bytes, which go with the last reader.
 */
static void test_read_after_failure(void **state)
{
	char *other = make_bytes(SIZE, 2);
	struct chunked_box k = box_chunked(other);
	const struct extent all = { .object = k.item->object, .len = SIZE };
	struct carton_request *q = NULL;
	struct tree *tree;
	struct node *file;

	(void)state;
	log_watch();
	assert_int_equal(tree_new(0, &tree), 0);
	assert_int_equal(tree_add(tree, tree->root, "file", NODE_FILE, &file), 0);
	assert_int_equal(tree_set_extents(tree, file, &all, 1, NULL), 0);
	assert_int_equal(pwrite_full(k.box->fd, other, SIZE, k.item->entry.header), 0);
	assert_int_equal(get(k.item->object), 0);
	assert_int_equal(state_at_end(k.item->object), OBJECT_CORRUPT);
	assert_int_equal(carton_read_later(&(struct carton){ .workers = k.box->workers },
					   &(struct carton_range){ from_node(file), 77, 1000 },
					   not_called, NULL, &q),
			 -EBADMSG);
	assert_null(q);
	object_put(k.item->object);
	chunked_box_free(&k);
	tree_free(tree);
	free(other);
	carton_log_set(NULL, NULL);
}

/* The index is wrong, the content is right: the next open hashes all of it, and that decides. */
static void test_wrong_index(void **state)
{
	char *other = make_bytes(SIZE, 2), byte;
	struct chunked_box k = box_chunked(other);

	(void)state;
	log_watch();
	assert_int_equal(get(k.item->object), 0);
	assert_int_equal(object_read(k.item->object, &byte, 1, 0, false), -EBADMSG);
	assert_int_equal(state_at_end(k.item->object), OBJECT_CORRUPT);
	object_put(k.item->object);
	while (get(k.item->object) == -EBADMSG)
		sched_yield();
	assert_int_equal(state_at_end(k.item->object), OBJECT_VERIFIED);
	assert_true(reads_right(k.item, SIZE, 0, false));
	object_put(k.item->object);
	chunked_box_free(&k);
	free(other);
	carton_log_set(NULL, NULL);
}

/* ---- chunks that are verified ahead of who reads in order ---- */

#define READ ((size_t)(128 * KIB)) /* the size of most READs */

/* Reads [off, end) in order, as the kernel does. */
static void read_in_order(const struct chunked_box *k, uint64_t off, uint64_t end)
{
	for (; off < end; off += READ)
		assert_true(reads_right(k->item, READ, off, false));
}

/* Changes a byte of chunk `i` in the carton. */
static void change(const struct chunked_box *k, uint64_t i)
{
	const char byte = (char)(k->item->data[i * CHUNK + 5] ^ 1);

	assert_int_equal(pwrite_full(k->box->fd, &byte, 1, k->item->entry.header + i * CHUNK + 5),
			 0);
}

static int read_chunk(const struct chunked_box *k, uint64_t i)
{
	char out[1000];

	return object_read(k->item->object, out, sizeof(out), i * CHUNK, false);
}

static void wait_until_verified(const struct object *o, uint64_t i)
{
	while (!chunked_is_verified(o->bytes.chunks, i))
		sched_yield();
}

/* What was verified ahead is compared when it is read: a change since then is seen. */
static void test_changed_ahead(void **state)
{
	(void)state;
	log_watch();
	for (int back = 0; back < 2; back++) {
		struct chunked_box k = box_chunked_of(LONG_SIZE, NULL, NULL);
		struct object *o = k.item->object;
		uint64_t first = back ? 12 : 4;

		assert_int_equal(get(o), 0);
		if (back)
			for (uint64_t off = 5 * MIB; off > 4 * MIB; off -= READ)
				assert_true(reads_right(k.item, READ, off - READ, false));
		else
			read_in_order(&k, 0, MIB);
		for (uint64_t i = first; i < first + 4; i++)
			wait_until_verified(o, i);
		change(&k, first + 2);
		assert_int_equal(read_chunk(&k, first + 2), -EBADMSG);
		object_put(o);
		chunked_box_free(&k);
	}
	carton_log_set(NULL, NULL);
}

/* A chunk that is found bad ahead is an error for who reads it. */
static void test_bad_ahead(void **state)
{
	struct chunked_box k = box_chunked_of(LONG_SIZE, NULL, NULL);
	struct object *o = k.item->object;

	(void)state;
	log_watch();
	assert_int_equal(get(o), 0);
	change(&k, 6);
	read_in_order(&k, 0, MIB);
	while (!chunked_failed(o->bytes.chunks))
		sched_yield();
	assert_false(chunked_is_verified(o->bytes.chunks, 6));
	assert_int_equal(read_chunk(&k, 6), -EBADMSG);
	/* it was logged before, but its reader gets the reason, too */
	assert_non_null(strstr(carton_error(-EBADMSG), "is damaged, as was found before"));
	object_put(o);
	chunked_box_free(&k);
	carton_log_set(NULL, NULL);
}

/* Who reads here and there has nothing verified ahead; who ends meanwhile waits for no more. */
static void test_ahead_of_few(void **state)
{
	(void)state;
	for (int n = 0; n < 20; n++) {
		struct chunked_box k = box_chunked_of(LONG_SIZE, NULL, NULL);
		struct object *o = k.item->object;

		assert_int_equal(get(o), 0);
		for (uint64_t i = 0; i < 16; i += 2)
			assert_int_equal(read_chunk(&k, (i * 5) % 32), 0);
		assert_int_equal(atomic_load(&o->n_ahead), 0);
		read_in_order(&k, 0, 2 * MIB);
		object_put(o);
		chunked_box_free(&k);
	}
}

/* Ends while the background is at work, or about to be. */
static void test_stopped(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		struct chunked_box k = box_chunked(NULL);

		assert_int_equal(get(k.item->object), 0);
		object_put(k.item->object);
		chunked_box_free(&k);
	}
}

static void *read_all(void *arg)
{
	const struct chunked_box *k = arg;

	for (uint64_t off = 0; off + 1000 < SIZE; off += 50000)
		if (!reads_right(k->item, 1000, off, false))
			return arg;
	return NULL;
}

static void test_threads(void **state)
{
	struct chunked_box k = box_chunked(NULL);
	pthread_t threads[4];
	void *failed;

	(void)state;
	assert_int_equal(get(k.item->object), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_all, &k), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	object_put(k.item->object);
	chunked_box_free(&k);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_bad_chunks),
		cmocka_unit_test(test_forged_slots),
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_several_of_an_attacker),
		cmocka_unit_test(test_several_of_some),
		cmocka_unit_test(test_several_by_threads),
		cmocka_unit_test(test_complete),
		cmocka_unit_test(test_origin),
		cmocka_unit_test(test_doubts),
		cmocka_unit_test(test_doubts_end),
		cmocka_unit_test(test_holes),
		cmocka_unit_test(test_memory_of_chunks),
		cmocka_unit_test(test_memory_is_given_back),
		cmocka_unit_test(test_object),
		cmocka_unit_test(test_background_reads),
		cmocka_unit_test(test_object_without_memory),
		cmocka_unit_test(test_index_of_other_content),
		cmocka_unit_test(test_derived_and_open),
		cmocka_unit_test(test_derived_of_damaged),
		cmocka_unit_test(test_derived_of_right),
		cmocka_unit_test(test_hash_all),
		cmocka_unit_test(test_read_after_failure),
		cmocka_unit_test(test_wrong_index),
		cmocka_unit_test(test_changed_ahead),
		cmocka_unit_test(test_bad_ahead),
		cmocka_unit_test(test_ahead_of_few),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
