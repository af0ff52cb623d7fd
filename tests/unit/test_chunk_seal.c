/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mount has found out of chunks, for later ones: a seal of the whole once all have passed,
 * and that the index lies, which is of one file and of one index.
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

static bool has_seal(const struct two *t, const struct box_item *item)
{
	uint8_t(*tags)[TAG_SIZE];

	if (cache_seal_get(t->box->store->options.cache, item->sha256, SIZE, &tags) < 0)
		return false;
	free(tags);
	return true;
}

/* The last chunk that passes, whoever reads it, proves the whole: it is sealed then, not before. */
static void test_seal_of_all_chunks(void **state)
{
	struct two *t = two_new(*state, NULL, NULL);

	hold_background(t);
	open_chunked(t->a);
	for (uint64_t i = 0; i < 5; i++) {
		assert_true(reads_right(t->a, 1000, i * CHUNK, false));
		assert_int_equal(object_state(t->a->object), OBJECT_CHUNKED);
		assert_false(has_seal(t, t->a));
	}
	assert_true(reads_right(t->a, 77, 5 * CHUNK, false));
	assert_int_equal(object_state(t->a->object), OBJECT_VERIFIED);
	assert_true(has_seal(t, t->a) && !has_seal(t, t->b));
	object_put(t->a->object);
	two_free(t);
	t = two_new(*state, NULL, NULL);
	hold_background(t);
	assert_int_equal(get(t->a->object), 0);
	assert_int_equal(object_state(t->a->object), OBJECT_SEALED);
	assert_true(reads_right(t->a, SIZE, 0, false));
	object_put(t->a->object);
	two_free(t);
}

/* A chunk was changed after it had passed: what its tags say is not sealed for others. */
static void test_no_seal_of_what_changed(void **state)
{
	char out[1000], byte;
	struct two *t = two_new(*state, NULL, NULL);

	log_watch();
	hold_background(t);
	open_chunked(t->a);
	for (uint64_t i = 0; i < 5; i++)
		assert_true(reads_right(t->a, 1000, i * CHUNK, false));
	byte = (char)(t->a->data[CHUNK + 5] ^ 1);
	assert_int_equal(pwrite_full(t->box->fd, &byte, 1, t->a->entry.header + CHUNK + 5), 0);
	assert_int_equal(object_read(t->a->object, out, sizeof(out), CHUNK, false), -EBADMSG);
	assert_true(reads_right(t->a, 77, 5 * CHUNK, false));
	assert_false(has_seal(t, t->a));
	object_put(t->a->object);
	two_free(t);
	carton_log_set(NULL, NULL);
}

/*
 * The item has other bytes, which the index has, too, but for the last chunk: the background finds
 * that.
 */
static void expect_lie(struct two *t, const struct box_item *item)
{
	char *out = must(malloc(SIZE));

	open_chunked(item);
	/* unless the background is quicker */
	object_read(item->object, out, CHUNK, 0, false);
	assert_int_equal(state_at_end(item->object), OBJECT_CORRUPT);
	assert_int_equal(object_read(item->object, out, 1, 0, false), -EBADMSG);
	assert_false(has_seal(t, item));
	object_put(item->object);
	two_free(t);
	free(out);
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

/* As a reader finds before the background has begun. */
static void test_doubt_of_reader(void **state)
{
	char *other = make_bytes(SIZE, 3), out[100];
	struct two *t;

	log_watch();
	t = two_new(*state, other, NULL);
	hold_background(t);
	open_chunked(t->a);
	assert_int_equal(object_read(t->a->object, out, 10, 0, false), 0);
	assert_int_equal(object_read(t->a->object, out, 10, 5 * CHUNK, false), -EBADMSG);
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
		TEST(test_seal_of_all_chunks),
		TEST(test_no_seal_of_what_changed),
		TEST(test_doubt),
		TEST(test_doubt_of_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
