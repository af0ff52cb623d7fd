/* SPDX-License-Identifier: Apache-2.0 */
/* Requests over files of several extents: pinned as a whole or not at all, read across edges. */
#include "carton/opened.h"
#include "object_help.h"

/* ---- a file of literals and objects ---- */

#define OBJECTS 4

struct mixed {
	struct box *b;
	struct tree *tree;
	struct node *file;
	struct extent extents[8];
	size_t n;
	char *want; /* its bytes */
	uint64_t size;
};

static void add_extent(struct mixed *x, const void *literal, struct box_item *item, uint64_t off,
		       uint64_t len)
{
	x->extents[x->n++] = (struct extent){
		.literal = literal, .object = item ? item->object : NULL, .off = off, .len = len
	};
	x->want = must(realloc(x->want, x->size + len + 1));
	memcpy(x->want + x->size, literal ? (const char *)literal : item->data + off, len);
	x->size += len;
}

/* header, object 0, nothing, a part of 1, some of 2, 2, 0 again, 3 (large); `bad`: its hash is */
static void mixed_init(struct mixed *x, int bad)
{
	static const size_t sizes[OBJECTS] = { 1000, 300000, 128 * KIB, 9 * MIB };

	memset(x, 0, sizeof(*x));
	x->b = box_new();
	for (size_t i = 0; i < OBJECTS; i++)
		box_add_made(x->b, sizes[i], i + 1, i % 2 ? METHOD_STORED : METHOD_ZSTD);
	if (bad >= 0)
		x->b->items[bad].sha256[0] ^= 1;
	box_start(x->b, NULL, true);
	assert_int_equal(tree_new(0, &x->tree), 0);
	add_extent(x, "HEADER", NULL, 0, 6);
	add_extent(x, NULL, &x->b->items[0], 0, 1000);
	add_extent(x, NULL, &x->b->items[2], 5, 0);
	add_extent(x, NULL, &x->b->items[1], 1234, 200000);
	add_extent(x, NULL, &x->b->items[2], 99, 3);
	add_extent(x, NULL, &x->b->items[2], 0, 128 * KIB);
	add_extent(x, NULL, &x->b->items[0], 990, 10);
	add_extent(x, NULL, &x->b->items[3], 1, 9 * MIB - 1);
	assert_int_equal(tree_add(x->tree, x->tree->root, "file", NODE_FILE, &x->file), 0);
	assert_int_equal(tree_set_extents(x->tree, x->file, x->extents, x->n, NULL), 0);
}

static void mixed_free(struct mixed *x)
{
	box_free(x->b);
	tree_free(x->tree);
	free(x->want);
}

/* No object of the file is pinned: all of them can be dropped by stopping, or have failed. */
static void expect_pins(const struct mixed *x, bool ready)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		int r = object_get(x->b->items[i].object, NULL);

		if (ready)
			assert_int_equal(r, 0);
		if (r == 0)
			object_put(x->b->items[i].object);
	}
}

struct end {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned calls;
	int result;
};

static void end_init(struct end *e)
{
	memset(e, 0, sizeof(*e));
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
}

static void on_done(void *ctx, int result)
{
	struct end *e = ctx;

	pthread_mutex_lock(&e->lock);
	e->calls++;
	e->result = result;
	pthread_cond_broadcast(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

static int wait_end(struct end *e)
{
	int r;

	pthread_mutex_lock(&e->lock);
	while (!e->calls)
		pthread_cond_wait(&e->changed, &e->lock);
	r = e->calls == 1 ? e->result : -EINVAL;
	pthread_mutex_unlock(&e->lock);
	return r;
}

/* Pins it, however long that takes. */
static int pin(struct node *file)
{
	struct carton_request *q = NULL;
	struct end e;
	int r;

	end_init(&e);
	r = carton_pin(NULL, from_node(file), on_done, &e, &q);
	if (r == -EINPROGRESS)
		r = wait_end(&e);
	carton_request_free(q);
	return r;
}

static void test_ranges(void **state)
{
	struct mixed x;
	char *out;

	(void)state;
	mixed_init(&x, -1);
	out = must(malloc(x.size + 100));
	assert_int_equal(carton_pin(NULL, from_node(x.file), NULL, NULL, NULL), -EAGAIN);
	assert_int_equal(pin(x.file), 0);
	assert_int_equal(carton_pin(NULL, from_node(x.file), NULL, NULL, NULL), 0);
	carton_unpin(from_node(x.file));
	/* across and at every edge */
	assert_int_equal(node_n_extents(x.file), 8);
	for (size_t i = 0; i < 8; i++) {
		uint64_t at = node_extent(x.file, i).start;

		for (uint64_t off = at < 3 ? 0 : at - 3; off <= at + 3 && off <= x.size; off++)
			for (size_t n = 0; n < 300000; n = n * 7 + 1) {
				size_t want = (size_t)MIN(n, x.size - off);

				assert_int_equal(carton_read(from_node(x.file), out, n, off, false),
						 want);
				assert_memory_equal(out, x.want + off, want);
			}
	}
	assert_int_equal(carton_read(from_node(x.file), out, x.size + 100, 0, false), x.size);
	assert_memory_equal(out, x.want, x.size);
	assert_int_equal(carton_read(from_node(x.file), out, 10, x.size - 1, false), 1);
	assert_int_equal(carton_read(from_node(x.file), out, 10, x.size, false), 0);
	assert_int_equal(carton_read(from_node(x.file), out, 10, UINT64_MAX, false), 0);
	/* literal bytes and small objects are in memory */
	assert_int_equal(carton_read(from_node(x.file), out, 1006, 0, true), 1006);
	assert_memory_equal(out, x.want, 1006);
	carton_unpin(from_node(x.file));
	free(out);
	mixed_free(&x);
}

static void test_one_fails(void **state)
{
	(void)state;
	for (int bad = 0; bad < OBJECTS; bad++) {
		struct mixed x;
		int r;

		mixed_init(&x, bad);
		assert_int_equal(pin(x.file), -EBADMSG);
		assert_int_equal(pin(x.file), -EBADMSG);
		/* the wait for the others was given up: they may not be ready */
		r = carton_pin(NULL, from_node(x.file), NULL, NULL, NULL);
		assert_true(r == -EBADMSG || r == -EAGAIN);
		mixed_free(&x);
	}
}

static void test_transient(void **state)
{
	struct mixed x;
	int r = -ENOSPC;

	(void)state;
	mixed_init(&x, -1);
	box_fail(x.b, -ENOSPC);
	assert_int_equal(pin(x.file), -ENOSPC);
	box_fail(x.b, 0);
	/* each of the others may have been under way, and its failure is told to who joins it */
	for (int i = 0; i < OBJECTS && r == -ENOSPC; i++)
		r = pin(x.file);
	assert_int_equal(r, 0);
	carton_unpin(from_node(x.file));
	expect_pins(&x, true);
	mixed_free(&x);
}

static void test_kinds(void **state)
{
	const struct extent abc = { .literal = "abc", .len = 3 };
	struct mixed x;
	struct node *n;
	char out[4];

	(void)state;
	mixed_init(&x, -1);
	assert_int_equal(carton_pin(NULL, from_node(x.tree->root), on_done, NULL, NULL), -EISDIR);
	assert_int_equal(tree_add(x.tree, x.tree->root, "link", NODE_SYMLINK, &n), 0);
	assert_int_equal(carton_pin(NULL, from_node(n), on_done, NULL, NULL), -ELOOP);
	assert_int_equal(tree_add(x.tree, x.tree->root, "none", NODE_FILE, &n), 0);
	assert_int_equal(carton_pin(NULL, from_node(n), NULL, NULL, NULL), 0);
	assert_int_equal(carton_read(from_node(n), out, 4, 0, true), 0);
	assert_int_equal(tree_set_extents(x.tree, n, &abc, 1, NULL), 0);
	assert_int_equal(carton_pin(NULL, from_node(n), NULL, NULL, NULL), 0);
	assert_int_equal(carton_read(from_node(n), out, 4, 1, true), 2);
	assert_memory_equal(out, "bc", 2);
	carton_unpin(from_node(n));
	mixed_free(&x);
}

static void test_cancel(void **state)
{
	struct carton_request *q = NULL;
	struct mixed x;
	struct end e;

	(void)state;
	mixed_init(&x, -1);
	end_init(&e);
	/* with some ready and some not */
	assert_int_equal(get(x.b->items[2].object), 0);
	box_gate(x.b, true);
	assert_int_equal(carton_pin(NULL, from_node(x.file), on_done, &e, &q), -EINPROGRESS);
	box_wait_inside(x.b, 1);
	assert_true(carton_request_cancel(q));
	assert_false(carton_request_cancel(q));
	carton_request_free(q);
	box_gate(x.b, false);
	assert_int_equal(pin(x.file), 0);
	carton_unpin(from_node(x.file));
	object_put(x.b->items[2].object);
	assert_int_equal(e.calls, 0);
	mixed_free(&x);
	carton_request_free(NULL);
}

static void test_stop(void **state)
{
	struct carton_request *q[10];
	struct mixed x;
	struct end e[10];

	(void)state;
	mixed_init(&x, -1);
	box_gate(x.b, true);
	for (size_t i = 0; i < 10; i++) {
		end_init(&e[i]);
		assert_int_equal(carton_pin(NULL, from_node(x.file), on_done, &e[i], &q[i]),
				 -EINPROGRESS);
	}
	box_wait_inside(x.b, 1);
	object_store_stop(x.b->store);
	box_gate(x.b, false);
	for (size_t i = 0; i < 10; i++) {
		assert_int_equal(wait_end(&e[i]), -ENOTCONN);
		assert_false(carton_request_cancel(q[i]));
		carton_request_free(q[i]);
	}
	assert_int_equal(pin(x.file), -ENOTCONN);
	mixed_free(&x);
}

/* ---- late reads ---- */

static void test_read_later(void **state)
{
	static const struct {
		uint64_t off;
		size_t n;
	} list[] = {
		{ 0, 10 },   { 1000, 300000 }, { 1005, 1 },	     { 1006, 0 },
		{ 1007, 0 }, { 0, 0 },	       { 300000, 10 * MIB }, { 20 * MIB, 10 },
	};
	struct mixed x;

	(void)state;
	mixed_init(&x, -1);
	assert_int_equal(pin(x.file), 0);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		uint64_t left = list[i].off < x.size ? x.size - list[i].off : 0;
		size_t want = (size_t)MIN(list[i].n, left);
		struct carton_request *q;
		struct end e;

		end_init(&e);
		assert_int_equal(carton_read_later(&(struct carton){ .workers = x.b->workers },
						   &(struct carton_range){ from_node(x.file),
									   list[i].off, list[i].n },
						   on_done, &e, &q),
				 -EINPROGRESS);
		assert_int_equal(wait_end(&e), want);
		assert_memory_equal(carton_request_data(q), x.want + MIN(list[i].off, x.size),
				    want);
		assert_false(carton_request_cancel(q));
		carton_request_free(q);
	}
	/* changed beneath: an error, not other bytes */
	struct carton_request *q;
	struct end e;

	end_init(&e);
	assert_int_equal(ftruncate(x.b->fd, (off_t)x.b->items[1].entry.header), 0);
	assert_int_equal(carton_read_later(&(struct carton){ .workers = x.b->workers },
					   &(struct carton_range){ from_node(x.file), 0, 300000 },
					   on_done, &e, &q),
			 -EINPROGRESS);
	assert_int_equal(wait_end(&e), -EBADMSG);
	carton_request_free(q);
	carton_unpin(from_node(x.file));
	mixed_free(&x);
}

/* However many files are being opened, one that is open is read. */
static void test_read_later_beside_opens(void **state)
{
	enum { COLD = 300 }; /* more than any lane has threads */
	struct waiter *waiters = must(calloc(COLD, sizeof(*waiters)));
	struct box *b = box_new();
	struct carton_request *q;
	struct tree *t;
	struct node *file;
	struct end e;

	(void)state;
	end_init(&e);
	for (size_t i = 0; i <= COLD; i++)
		box_add_made(b, i ? 100 : 300000, i + 1, METHOD_STORED);
	box_start(b, NULL, true);
	assert_int_equal(tree_new(0, &t), 0);
	assert_int_equal(tree_add(t, t->root, "file", NODE_FILE, &file), 0);
	tree_set_object(t, file, b->items[0].object);
	assert_int_equal(pin(file), 0);
	box_gate(b, true);
	for (size_t i = 0; i < COLD; i++) {
		waiter_init(&waiters[i]);
		assert_int_equal(object_get(b->items[i + 1].object, &waiters[i].wait),
				 -EINPROGRESS);
	}
	assert_int_equal(carton_read_later(&(struct carton){ .workers = b->workers },
					   &(struct carton_range){ from_node(file), 77, 1000 },
					   on_done, &e, &q),
			 -EINPROGRESS);
	assert_int_equal(wait_end(&e), 1000);
	assert_memory_equal(carton_request_data(q), b->items[0].data + 77, 1000);
	carton_request_free(q);
	carton_unpin(from_node(file));
	box_gate(b, false);
	for (size_t i = 0; i < COLD; i++) {
		assert_int_equal(waiter_wait(&waiters[i]), 0);
		object_put(b->items[i + 1].object);
	}
	tree_free(t);
	box_free(b);
	free(waiters);
}

/* The reader may unpin and go before the disk answers. */
static void test_read_later_gone(void **state)
{
	struct mixed x;

	(void)state;
	mixed_init(&x, -1);
	for (unsigned i = 0; i < 200; i++) {
		struct carton_request *q;
		struct end e;
		bool cancelled;

		end_init(&e);
		assert_int_equal(pin(x.file), 0);
		assert_int_equal(
			carton_read_later(&(struct carton){ .workers = x.b->workers },
					  &(struct carton_range){ from_node(x.file), i, 300000 },
					  on_done, &e, &q),
			-EINPROGRESS);
		cancelled = carton_request_cancel(q);
		carton_unpin(from_node(x.file));
		if (!cancelled)
			assert_int_equal(wait_end(&e), 300000);
		carton_request_free(q);
		if (cancelled)
			assert_int_equal(e.calls, 0);
	}
	mixed_free(&x);
}

/* ---- many threads ---- */

struct reader {
	struct mixed *x;
	unsigned seed, wrong;
	bool bad;
};

static void *pin_cancel_read(void *arg)
{
	struct reader *rd = arg;
	struct mixed *x = rd->x;
	char *out = must(malloc(400000));

	for (unsigned i = 0; i < 60; i++) {
		uint64_t off = (uint64_t)rand_r(&rd->seed) % x->size;
		struct carton_request *q = NULL;
		struct end e;
		int r;

		end_init(&e);
		r = carton_pin(NULL, from_node(x->file), on_done, &e, &q);
		if (r == -EINPROGRESS && rand_r(&rd->seed) % 2 && carton_request_cancel(q))
			r = -ECANCELED;
		else if (r == -EINPROGRESS)
			r = wait_end(&e);
		carton_request_free(q);
		if (r == 0) {
			size_t n = (size_t)MIN((uint64_t)400000, x->size - off);

			rd->wrong += carton_read(from_node(x->file), out, n, off, false) !=
					     (ssize_t)n ||
				     memcmp(out, x->want + off, n) != 0;
			carton_unpin(from_node(x->file));
		}
		rd->wrong += r != -ECANCELED && r != (rd->bad ? -EBADMSG : 0);
	}
	free(out);
	return NULL;
}

static void test_crowd(void **state)
{
	(void)state;
	for (int bad = -1; bad < OBJECTS; bad++) {
		struct reader readers[6];
		pthread_t threads[6];
		struct mixed x;

		mixed_init(&x, bad);
		for (unsigned i = 0; i < 6; i++) {
			readers[i] = (struct reader){ .x = &x, .seed = i + 1, .bad = bad >= 0 };
			assert_int_equal(
				pthread_create(&threads[i], NULL, pin_cancel_read, &readers[i]), 0);
		}
		for (unsigned i = 0; i < 6; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(readers[i].wrong, 0);
		}
		mixed_free(&x);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_one_fails),
		cmocka_unit_test(test_transient),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_read_later),
		cmocka_unit_test(test_read_later_beside_opens),
		cmocka_unit_test(test_read_later_gone),
		cmocka_unit_test(test_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
