/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mount has found out of chunks, for later ones: seals, that the whole agrees, that the index
 * lies. Each is of one file and of one index.
 */
#include "cached_help.h"
#include "content/internal.h"
#include "format/chunks.h"

#define CHUNK (256 * KIB)
#define SIZE (5 * CHUNK + 77)
#define HELD 128 /* more than a lane has threads */

struct hold {
	struct job job;
	const struct cancel *until;
};

/* Two files of one size, and their index. */
struct two {
	struct box *box;
	struct box_item *a, *b;
	struct object *index;
	struct chunks *chunks;
	struct hold held[HELD];
};

static void index_add(struct chunks_writer *w, const struct box_item *item, const char *data)
{
	struct chunks_made made = chunks_of(data ? data : item->data, SIZE, CHUNK, item->sha256);

	assert_int_equal(chunks_writer_add(w, &made), 0);
}

static int read_index(void *ctx, void *ret_buf, size_t n, uint64_t off)
{
	return object_read(ctx, ret_buf, n, off, false);
}

/*
 * Begins a mount; `a`, `b`: what the carton has in place of their bytes, and its index says of
 * them, or NULL.
 */
static struct two *two_new(struct cached *e, const char *a, const char *b)
{
	struct two *t = must(calloc(1, sizeof(*t)));
	struct chunks_writer w = { 0 };
	uint8_t *index;
	size_t n;

	t->box = box_new();
	t->a = box_add_made(t->box, SIZE, 1, METHOD_STORED);
	t->b = box_add_made(t->box, SIZE, 2, METHOD_STORED);
	index_add(&w, t->a, a);
	index_add(&w, t->b, b);
	assert_int_equal(chunks_writer_end(&w, &index, &n), 0);
	chunks_writer_finish(&w);
	box_add(t->box, (char *)index, n, METHOD_STORED);
	t->box->seals = SEALS_USE;
	box_start(t->box, e->cache, true);
	if (a)
		assert_int_equal(pwrite_full(t->box->fd, a, SIZE, t->a->entry.header), 0);
	if (b)
		assert_int_equal(pwrite_full(t->box->fd, b, SIZE, t->b->entry.header), 0);
	t->index = t->box->items[2].object;
	assert_int_equal(get(t->index), 0);
	assert_int_equal(chunks_parse(n, read_index, t->index, NULL, &t->chunks), 0);
	object_use_chunks(t->box->store, t->chunks, t->index);
	return t;
}

static void hold(struct job *job)
{
	while (!cancel_fired(container_of(job, struct hold, job)->until))
		sched_yield();
}

/* Nothing is hashed in the background before this mount ends. */
static void hold_background(struct two *t)
{
	for (size_t i = 0; i < HELD; i++) {
		t->held[i] = (struct hold){ { .run = hold }, &t->box->store->stop };
		workers_submit(t->box->workers, &t->held[i].job, LANE_BULK);
	}
}

static void two_free(struct two *t)
{
	object_put(t->index);
	box_free(t->box);
	chunks_free(t->chunks);
	free(t);
}

static bool is_verified(const struct box_item *item, uint64_t i)
{
	return chunked_is_verified(item->object->bytes.chunks, i);
}

static void open_chunked(const struct box_item *item)
{
	assert_int_equal(get(item->object), 0);
	assert_int_equal(object_state(item->object), OBJECT_CHUNKED);
}

static enum object_state state_at_end(struct object *o)
{
	while (object_state(o) == OBJECT_CHUNKED)
		sched_yield();
	return object_state(o);
}

/* Reads chunk 1 of `a`, and leaves its seal. */
static void seal_a(struct cached *e, const char *a)
{
	struct two *t = two_new(e, a, NULL);
	char out[1000];

	hold_background(t);
	open_chunked(t->a);
	assert_false(is_verified(t->a, 1));
	assert_int_equal(object_read(t->a->object, out, sizeof(out), CHUNK, false), 0);
	assert_memory_equal(out, (a ? a : t->a->data) + CHUNK, sizeof(out));
	object_put(t->a->object);
	two_free(t);
}

static void test_seal_is_of_the_file(void **state)
{
	struct two *t;

	seal_a(*state, NULL);
	t = two_new(*state, NULL, NULL);
	hold_background(t);
	open_chunked(t->b);
	assert_false(is_verified(t->b, 1));
	assert_true(reads_right(t->b, 1000, CHUNK, false));
	object_put(t->b->object);
	open_chunked(t->a);
	assert_true(is_verified(t->a, 1));
	assert_true(reads_right(t->a, 1000, CHUNK, false));
	object_put(t->a->object);
	two_free(t);
}

static void test_seal_is_of_the_index(void **state)
{
	char *other = make_bytes(SIZE, 3);
	struct two *t;

	seal_a(*state, other);
	t = two_new(*state, NULL, NULL);
	hold_background(t);
	open_chunked(t->a);
	assert_false(is_verified(t->a, 1));
	assert_true(reads_right(t->a, 1000, CHUNK, false));
	object_put(t->a->object);
	two_free(t);
	free(other);
}

/* Reads all of `a`, whose whole agrees with the index, and leaves the note of that. */
static void agree_a(struct cached *e, const char *b)
{
	struct two *t = two_new(e, NULL, b);

	open_chunked(t->a);
	assert_true(reads_right(t->a, SIZE, 0, false));
	assert_int_equal(state_at_end(t->a->object), OBJECT_VERIFIED);
	assert_true(agreed_find(t->a->object));
	object_put(t->a->object);
	two_free(t);
}

/* The item has other bytes, which the index has, too: they are read until the whole is hashed. */
static void expect_lie(struct two *t, const struct box_item *item)
{
	char *out = must(malloc(SIZE));

	assert_false(agreed_find(item->object));
	open_chunked(item);
	/* unless the background is quicker */
	object_read(item->object, out, SIZE, 0, false);
	assert_int_equal(state_at_end(item->object), OBJECT_CORRUPT);
	assert_int_equal(object_read(item->object, out, 1, 0, false), -EBADMSG);
	object_put(item->object);
	two_free(t);
	free(out);
}

static void test_agreement_is_of_the_file(void **state)
{
	char *other = make_bytes(SIZE, 3);
	struct two *t;

	log_watch();
	agree_a(*state, other);
	t = two_new(*state, NULL, other);
	expect_lie(t, t->b);
	free(other);
	carton_log_set(NULL, NULL);
}

static void test_agreement_is_of_the_index(void **state)
{
	char *other = make_bytes(SIZE, 3);
	struct two *t;

	log_watch();
	agree_a(*state, NULL);
	/* else it has a seal of the whole, which is used first */
	t = two_new(*state, other, NULL);
	cache_seal_drop(t->box->store->options.cache, t->a->sha256);
	expect_lie(t, t->a);
	free(other);
	carton_log_set(NULL, NULL);
}

/* Chunks that nobody has read: the hash of the whole says nothing of what the index has of them. */
static void test_agreement_is_of_what_was_read(void **state)
{
	struct two *t = two_new(*state, NULL, NULL);

	open_chunked(t->a);
	assert_true(reads_right(t->a, 1000, CHUNK, false));
	assert_int_equal(state_at_end(t->a->object), OBJECT_VERIFIED);
	assert_false(agreed_find(t->a->object));
	object_put(t->a->object);
	two_free(t);
}

/* An index lied of `a`: no byte of it is read before it is hashed, whatever others have found. */
static void test_doubt(void **state)
{
	char *other = make_bytes(SIZE, 3);
	struct two *t;

	log_watch();
	t = two_new(*state, other, NULL);
	expect_lie(t, t->a);
	/* another file of that index */
	t = two_new(*state, other, NULL);
	hold_background(t);
	open_chunked(t->b);
	object_put(t->b->object);
	assert_int_equal(get(t->a->object), -EBADMSG);
	two_free(t);
	/* that file, by another index */
	t = two_new(*state, NULL, NULL);
	hold_background(t);
	open_chunked(t->a);
	object_put(t->a->object);
	two_free(t);
	t = two_new(*state, other, NULL);
	assert_int_equal(get(t->a->object), -EBADMSG);
	two_free(t);
	free(other);
	carton_log_set(NULL, NULL);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, cached_setup, cached_teardown)
	static const struct CMUnitTest tests[] = {
		TEST(test_seal_is_of_the_file),		  TEST(test_seal_is_of_the_index),
		TEST(test_agreement_is_of_the_file),	  TEST(test_agreement_is_of_the_index),
		TEST(test_agreement_is_of_what_was_read), TEST(test_doubt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
