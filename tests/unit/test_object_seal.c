/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that an earlier store has verified and sealed. */
#include "cached_help.h"
#include "carton.h"
#include "content/internal.h"

#define SIZE (MIN_SEALED + 77)

/* A store with one object of SIZE bytes; `shift`: how many bytes stand before it. */
static struct box *sealed_box(struct cached *e, unsigned method, size_t shift, int seals)
{
	struct box *b = box_new();

	if (shift)
		box_add_made(b, shift, 99, METHOD_STORED);
	/* what is compressed goes into the cache if it is too large for memory */
	box_add_made(b, method == METHOD_STORED ? SIZE : MAX_MEMORY_OBJECT + SIZE, 1, method);
	b->seals = seals;
	box_start(b, e->cache, true);
	return b;
}

static struct box_item *last(struct box *b)
{
	return &b->items[b->n - 1];
}

/* Opens it, expects that state, reads all of it, closes it. */
static void expect(struct box *b, enum object_state state)
{
	struct box_item *item = last(b);

	assert_int_equal(get(item->object), 0);
	assert_int_equal(object_state(item->object), state);
	assert_true(reads_right(item, item->entry.size, 0, false));
	assert_true(reads_right(item, 100, item->entry.size - 100, false));
	object_put(item->object);
}

static bool has_seal(struct cached *e, struct box *b)
{
	return check_seal(e, last(b)->sha256) == 0;
}

static void make_seal(struct cached *e, unsigned method)
{
	struct box *b = sealed_box(e, method, 0, SEALS_USE);

	expect(b, OBJECT_VERIFIED);
	assert_true(has_seal(e, b));
	box_free(b);
}

static void test_later_store(void **state)
{
	struct cached *e = *state;

	for (int method = 0; method < 2; method++) {
		unsigned m = method ? METHOD_ZSTD : METHOD_STORED;
		struct box *b;

		make_seal(e, m);
		/* of a carton in which it stands elsewhere */
		b = sealed_box(e, m, 1234, SEALS_USE);
		expect(b, OBJECT_SEALED);
		assert_int_equal(object_store_ingested(b->store), 0);
		box_free(b);
		/* who is to hash all does so */
		b = sealed_box(e, m, 0, SEALS_MAKE);
		expect(b, OBJECT_VERIFIED);
		box_free(b);
		b = sealed_box(e, m, 0, SEALS_OFF);
		expect(b, OBJECT_VERIFIED);
		box_free(b);
	}
}

static void test_off(void **state)
{
	struct cached *e = *state;
	struct box *b = sealed_box(e, METHOD_STORED, 0, SEALS_OFF);

	expect(b, OBJECT_VERIFIED);
	assert_false(has_seal(e, b));
	box_free(b);
	b = sealed_box(e, METHOD_STORED, 0, SEALS_MAKE);
	expect(b, OBJECT_VERIFIED);
	assert_true(has_seal(e, b));
	box_free(b);
}

/* Bytes with another hash leave no seal. */
static void test_corrupt(void **state)
{
	struct cached *e = *state;
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, SIZE, 1, METHOD_STORED);

	item->sha256[0] ^= 1;
	b->seals = SEALS_USE;
	box_start(b, e->cache, true);
	assert_int_equal(get(item->object), -EBADMSG);
	assert_int_equal(check_seal(e, item->sha256), -ENOENT);
	box_free(b);
}

/*
 * A carton that was changed in place before: the first read that meets it is an error, then every
 * open.
 */
static void test_changed_before(void **state)
{
	struct cached *e = *state;
	struct log_seen *seen;
	struct box_item *item;
	struct box *b;
	char byte;

	make_seal(e, METHOD_STORED);
	b = sealed_box(e, METHOD_STORED, 0, SEALS_USE);
	item = last(b);
	assert_int_equal(pwrite_full(b->fd, "changed", 7, item->entry.header + 3 * TAG_BLOCK), 0);
	seen = log_watch();
	assert_int_equal(get(item->object), 0);
	assert_true(reads_right(item, 3 * TAG_BLOCK, 0, false));
	assert_int_equal(object_read(item->object, &byte, 1, 4 * TAG_BLOCK - 1, false), -EBADMSG);
	assert_false(has_seal(e, b));
	assert_int_equal(seen->n, 1);
	/* while it is open */
	assert_int_equal(get(item->object), 0);
	object_put(item->object);
	assert_true(reads_right(item, 100, 0, false));
	object_put(item->object);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(object_state(item->object), OBJECT_CORRUPT);
		assert_int_equal(get(item->object), -EBADMSG);
		/* hashed once more, which is final */
		assert_int_equal(box_located(b), 2);
	}
	assert_false(has_seal(e, b));
	carton_log_set(NULL, NULL);
	box_free(b);
	/* with the old bytes it is as new */
	make_seal(e, METHOD_STORED);
	b = sealed_box(e, METHOD_STORED, 0, SEALS_USE);
	expect(b, OBJECT_SEALED);
	box_free(b);
}

/* Cut off or with other bytes everywhere: nothing else is ever read. */
static void test_cut_before(void **state)
{
	struct cached *e = *state;
	struct box_item *item;
	struct box *b;
	char out[100];

	make_seal(e, METHOD_STORED);
	b = sealed_box(e, METHOD_STORED, 0, SEALS_USE);
	item = last(b);
	assert_int_equal(ftruncate(b->fd, (off_t)(item->entry.header + 2 * TAG_BLOCK)), 0);
	assert_int_equal(get(item->object), 0);
	assert_true(reads_right(item, 2 * TAG_BLOCK, 0, false));
	assert_int_equal(object_read(item->object, out, 100, SIZE - 100, false), -EBADMSG);
	object_put(item->object);
	assert_int_equal(get(item->object), -EBADMSG);
	box_free(b);
}

/* A cache entry that rotted: an error, then it is made again; one that has another size at once. */
static void test_cached_damaged(void **state)
{
	struct cached *e = *state;
	struct box_item *item;
	char path[300], byte;
	struct box *b;

	make_seal(e, METHOD_ZSTD);
	b = sealed_box(e, METHOD_ZSTD, 0, SEALS_USE);
	item = last(b);
	damage(e, item, 3 * MIB);
	assert_int_equal(get(item->object), 0);
	assert_int_equal(object_read(item->object, &byte, 1, 3 * MIB, false), -EBADMSG);
	assert_int_equal(cache_path(e->cache, item->sha256, path, sizeof(path)), -ENOENT);
	assert_false(has_seal(e, b));
	object_put(item->object);
	expect(b, OBJECT_VERIFIED);
	assert_true(has_seal(e, b));
	assert_int_equal(cache_path(e->cache, item->sha256, path, sizeof(path)), 0);
	box_free(b);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, 1000), 0);
	assert_int_equal(chmod(path, 0400), 0);
	b = sealed_box(e, METHOD_ZSTD, 0, SEALS_USE);
	expect(b, OBJECT_VERIFIED);
	box_free(b);
	/* without a seal all of it is hashed, and made again */
	b = sealed_box(e, METHOD_ZSTD, 0, SEALS_OFF);
	damage(e, last(b), 3 * MIB);
	expect(b, OBJECT_VERIFIED);
	assert_int_equal(box_located(b), 1);
	box_free(b);
	/* a seal alone is of no use */
	assert_int_equal(unlink(path), 0);
	b = sealed_box(e, METHOD_ZSTD, 0, SEALS_USE);
	expect(b, OBJECT_VERIFIED);
	assert_int_equal(box_located(b), 1);
	box_free(b);
}

/* The first of two places has other bytes: found by a read, and then the second one is used. */
static void test_other_place(void **state)
{
	struct cached *e = *state;
	struct box *b = box_new();
	struct box_item *one, *two;
	char byte;

	make_seal(e, METHOD_STORED);
	one = box_add_made(b, SIZE, 1, METHOD_STORED);
	two = box_add_made(b, SIZE, 1, METHOD_STORED);
	b->seals = SEALS_USE;
	box_start(b, e->cache, true);
	assert_ptr_equal(one->object, two->object);
	assert_int_equal(pwrite_full(b->fd, "other", 5, one->entry.header), 0);
	assert_int_equal(get(two->object), 0);
	assert_int_equal(object_read(two->object, &byte, 1, 0, false), -EBADMSG);
	object_put(two->object);
	expect(b, OBJECT_VERIFIED);
	box_free(b);
}

/* A seal of another source, of the same bytes. */
static void test_other_key(void **state)
{
	struct cached *e = *state;
	struct box *b;

	make_seal(e, METHOD_STORED);
	use_key_of(e->cache, 2);
	b = sealed_box(e, METHOD_STORED, 0, SEALS_USE);
	expect(b, OBJECT_VERIFIED);
	assert_true(has_seal(e, b));
	box_free(b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, cached_setup, cached_teardown)

/* ---- an observer with a file ---- */

struct taker {
	struct carton_observer observer;
	uint64_t up_to; /* the first bytes only are written */
	int result;
};

static void taker_bytes(struct carton_observer *observer, uint64_t off, const void *data, size_t n)
{
	struct taker *t = (struct taker *)observer;

	if (off < t->up_to)
		assert_int_equal(pwrite_full(observer->fd, data, MIN(n, t->up_to - off), off), 0);
}

static void taker_end(struct carton_observer *observer, int result)
{
	((struct taker *)observer)->result = result;
}

static int take(struct box_item *item, struct taker *t)
{
	struct waiter w;
	int r;

	*t = (struct taker){ { taker_bytes, taker_end, memfd_create("taker", MFD_CLOEXEC) },
			     t->up_to,
			     1 };
	waiter_init(&w);
	w.wait.observer = &t->observer;
	r = object_get(item->object, &w.wait);
	return r == -EINPROGRESS ? waiter_wait(&w) : r;
}

/* It is the only copy; what others write to it later is noticed, and no seal says that it is here. */
static void test_given_file(void **state)
{
	struct cached *e = *state;
	struct box *b = sealed_box(e, METHOD_ZSTD, 0, SEALS_USE);
	struct taker t = { .up_to = UINT64_MAX };
	struct box_item *item = last(b);
	struct log_seen *seen;
	char got[4];
	int fd;

	assert_int_equal(take(item, &t), 0);
	assert_int_equal(t.result, 0);
	assert_true(reads_right(item, item->entry.size, 0, false));
	assert_false(has_seal(e, b));
	assert_int_equal(cache_lookup(e->cache, item->sha256, &fd, NULL), -ENOENT);
	assert_int_equal(pread_full(t.observer.fd, got, 4, 1000), 0);
	assert_memory_equal(got, item->data + 1000, 4);

	got[0] ^= 1;
	assert_int_equal(pwrite_full(t.observer.fd, got, 4, 1000), 0);
	seen = log_watch();
	assert_int_equal(object_read(item->object, got, 4, 1000, false), -EBADMSG);
	assert_true(seen->n > 0);
	carton_log_set(NULL, NULL);
	object_put(item->object);
	/* and it is made again, elsewhere */
	assert_int_equal(get(item->object), 0);
	assert_true(reads_right(item, item->entry.size, 0, false));
	object_put(item->object);
	close(t.observer.fd);
	box_free(b);
}

/* Bytes that are wrong, or not all of them, are nobody's. */
static void test_given_file_that_fails(void **state)
{
	struct cached *e = *state;

	for (int bad = 0; bad < 2; bad++) {
		struct box *b = sealed_box(e, METHOD_ZSTD, 0, SEALS_USE);
		struct taker t = { .up_to = bad ? UINT64_MAX : 2 * MIB };
		struct box_item *item = last(b);
		struct log_seen *seen = log_watch();

		item->sha256[0] ^= (uint8_t)bad;
		((struct object *)item->object)->sha256[0] ^= (uint8_t)bad;
		assert_int_equal(take(item, &t), bad ? -EBADMSG : -EIO);
		assert_int_equal(t.result, bad ? -EBADMSG : -EIO);
		/* who gave the file says why it is not full */
		assert_int_equal(seen->n, bad);
		carton_log_set(NULL, NULL);
		assert_int_equal(get(item->object), bad ? -EBADMSG : 0);
		if (!bad)
			object_put(item->object);
		close(t.observer.fd);
		box_free(b);
	}
}

/*
 * The kernel may read by itself what was hashed since this store began, and is a file of the cache.
 * Nothing else: neither what has a seal only, nor what was found damaged, nor a part of the carton.
 */
static void test_copy_for_the_kernel(void **state)
{
	struct cached *e = *state;
	struct box *b = sealed_box(e, METHOD_ZSTD, 0, SEALS_USE);
	struct object *o = last(b)->object;
	char got[4];

	log_watch();
	assert_int_equal(get(o), 0);
	assert_int_equal(object_state(o), OBJECT_VERIFIED);
	assert_true(object_copy_fd(o) >= 0);
	assert_int_equal(pread_full(object_copy_fd(o), got, 4, 1000), 0);
	assert_memory_equal(got, last(b)->data + 1000, 4);
	damage(e, last(b), 1000);
	assert_int_equal(object_read(o, got, 4, 1000, false), -EBADMSG);
	assert_int_equal(object_copy_fd(o), -ENODATA);
	object_put(o);
	box_free(b);

	make_seal(e, METHOD_ZSTD);
	b = sealed_box(e, METHOD_ZSTD, 0, SEALS_USE);
	o = last(b)->object;
	assert_int_equal(get(o), 0);
	assert_int_equal(object_state(o), OBJECT_SEALED);
	assert_int_equal(object_copy_fd(o), -ENODATA);
	object_put(o);
	box_free(b);

	b = sealed_box(e, METHOD_STORED, 0, SEALS_OFF);
	o = last(b)->object;
	assert_int_equal(get(o), 0);
	assert_int_equal(object_copy_fd(o), -ENODATA);
	object_put(o);
	box_free(b);
	carton_log_set(NULL, NULL);
}

/* What nobody has verified is not kept for those who think that somebody has. */
static void test_unverified(void **state)
{
	struct cached *e = *state;
	struct box *b;

	for (int method = 0; method < 2; method++) {
		struct box_item *item;

		b = box_new();
		item = box_add_made(b, MAX_MEMORY_OBJECT + SIZE, 1,
				    method ? METHOD_ZSTD : METHOD_STORED);

		item->sha256[0] ^= 1;
		b->seals = SEALS_USE;
		box_start(b, e->cache, false);
		assert_int_equal(get(item->object), 0);
		assert_true(reads_right(item, item->entry.size, 0, false));
		object_put(item->object);
		assert_false(has_seal(e, b));
		assert_false(cache_has(e->cache, item->sha256));
		box_free(b);
	}
	/* nor is there a difference between what has a seal and what has none */
	make_seal(e, METHOD_STORED);
	b = box_new();
	box_add_made(b, SIZE, 1, METHOD_STORED);
	b->seals = SEALS_USE;
	box_start(b, e->cache, false);
	expect(b, OBJECT_UNVERIFIED);
	box_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_later_store),
		TEST(test_off),
		TEST(test_corrupt),
		TEST(test_changed_before),
		TEST(test_cut_before),
		TEST(test_cached_damaged),
		TEST(test_other_place),
		TEST(test_other_key),
		TEST(test_given_file),
		TEST(test_given_file_that_fails),
		TEST(test_copy_for_the_kernel),
		TEST(test_unverified),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
