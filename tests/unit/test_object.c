/* SPDX-License-Identifier: Apache-2.0 */
/* Objects: verified once, kept within bounds, shared by all who wait, and never other bytes. */
#include "content/derived.h"
#include "carton.h"
#include "object_help.h"

/* ---- right and wrong bytes ---- */

/* A small object whose bytes are in memory is verified by the thread that asks, without a job. */
static void test_quick(void **state)
{
	static const unsigned methods[] = { METHOD_STORED, METHOD_DEFLATE, METHOD_ZSTD };
	struct log_seen *seen;

	(void)state;
	for (int verify = 0; verify < 2; verify++)
		for (size_t m = 0; m < 3; m++) {
			struct box *b = box_new();
			struct box_item *empty = box_add_made(b, 0, 1, methods[m]),
					*item = box_add_made(b, 60000, 2, methods[m]),
					*large = box_add_made(b, QUICK_OBJECT + 1, 3, methods[m]),
					*bad = box_add_made(b, 1000, 4, methods[m]);

			b->quick = true;
			bad->sha256[0] ^= 1;
			box_start(b, NULL, verify);
			seen = log_watch();
			assert_int_equal(object_get(empty->object, NULL), 0);
			assert_int_equal(object_get(item->object, NULL), 0);
			assert_true(reads_right(item, 60000, 0, true));
			assert_int_equal(object_state(item->object),
					 verify ? OBJECT_VERIFIED : OBJECT_UNVERIFIED);
			assert_int_equal(object_get(item->object, NULL), 0);
			assert_int_equal(b->n_peeked, 2);
			assert_int_equal(object_get(large->object, NULL), -EAGAIN);
			/* what is wrong is found out, and logged, by a job */
			assert_int_equal(object_get(bad->object, NULL), verify ? -EAGAIN : 0);
			assert_int_equal(seen->n, 0);
			assert_int_equal(b->n_peeked, 3);
			assert_int_equal(get(bad->object), verify ? -EBADMSG : 0);
			assert_int_equal(seen->n, verify);
			assert_int_equal(object_get(bad->object, NULL), verify ? -EBADMSG : 0);
			assert_int_equal(b->n_peeked, 3);
			carton_log_set(NULL, NULL);
			for (int i = 0; i < 2; i++) {
				object_put(item->object);
				if (!verify)
					object_put(bad->object);
			}
			if (!verify)
				object_put(bad->object);
			object_put(empty->object);
			object_store_stop(b->store);
			/* an object that is ready stays so; nothing new is begun */
			assert_int_equal(object_get(large->object, NULL), -ENOTCONN);
			box_free(b);
		}
}

/* While a job has the object, and by several threads at once. */
static void *get_quickly(void *object)
{
	int r;

	for (size_t i = 0; i < 1000; i++) {
		r = object_get(object, NULL);
		assert_int_equal(r, 0);
		object_put(object);
	}
	return NULL;
}

static void test_quick_and_others(void **state)
{
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 5000, 1, METHOD_DEFLATE),
			*other = box_add_made(b, 5000, 2, METHOD_DEFLATE);
	pthread_t threads[4];
	struct waiter w;

	(void)state;
	b->quick = true;
	box_start(b, NULL, true);
	box_gate(b, true);
	waiter_init(&w);
	assert_int_equal(object_get(item->object, &w.wait), -EINPROGRESS);
	assert_int_equal(object_get(item->object, NULL), -EAGAIN);
	assert_int_equal(b->n_peeked, 0);
	box_gate(b, false);
	assert_int_equal(waiter_wait(&w), 0);
	assert_int_equal(object_get(item->object, NULL), 0);
	object_put(item->object);
	object_put(item->object);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, get_quickly, other->object), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_in_range(b->n_peeked, 1, 4);
	assert_int_equal(box_located(b), 1);
	box_free(b);
}

static void test_kept(void **state)
{
	static const struct {
		size_t n;
		unsigned method;
	} list[] = {
		{ 0, METHOD_STORED },
		{ 1, METHOD_STORED },
		{ MAX_SMALL_STORED, METHOD_STORED },
		{ MAX_SMALL_STORED + 1, METHOD_STORED },
		{ 3 * MAX_SMALL_STORED, METHOD_STORED },
		{ 9 * MIB, METHOD_STORED },
		{ 100000, METHOD_DEFLATE },
		{ MAX_MEMORY_OBJECT, METHOD_ZSTD },
		{ MAX_MEMORY_OBJECT + 1, METHOD_ZSTD },
		{ 9 * MIB, METHOD_DEFLATE },
	};

	(void)state;
	for (int verify = 0; verify < 2; verify++) {
		struct box *b = box_new();

		for (size_t i = 0; i < ARRAY_SIZE(list); i++)
			box_add_made(b, list[i].n, i + 1, list[i].method);
		box_start(b, NULL, verify);
		for (size_t i = 0; i < b->n; i++) {
			struct box_item *item = &b->items[i];
			size_t n = list[i].n;

			assert_int_equal(object_state(item->object), OBJECT_UNVERIFIED);
			assert_int_equal(object_get(item->object, NULL), -EAGAIN);
			assert_int_equal(get(item->object), 0);
			assert_int_equal(object_state(item->object),
					 verify ? OBJECT_VERIFIED : OBJECT_UNVERIFIED);
			assert_int_equal(object_get(item->object, NULL), 0);
			assert_int_equal(object_size(item->object), n);
			assert_true(reads_right(item, n, 0, false) &&
				    reads_right(item, n, 0, true));
			assert_true(reads_right(item, n / 2, n / 3, false));
			assert_true(reads_right(item, n / 2, n / 3, true));
			assert_true(reads_right(item, 0, n, false));
			object_put(item->object);
			object_put(item->object);
		}
		box_free(b);
	}
}

/* ---- observers ---- */

struct observer {
	struct carton_observer observer;
	struct waiter *waiter; /* must not have been told before the end; or NULL */
	char *got;
	_Atomic uint64_t bytes;
	unsigned ends;
	int result;
};

static void observer_bytes(struct carton_observer *observer, uint64_t off, const void *data,
			   size_t n)
{
	struct observer *t = container_of(observer, struct observer, observer);

	assert_int_equal(t->ends, 0);
	memcpy(t->got + off, data, n);
	t->bytes += n;
}

static void observer_end(struct carton_observer *observer, int result)
{
	struct observer *t = container_of(observer, struct observer, observer);

	t->ends++;
	t->result = result;
	if (t->waiter) {
		pthread_mutex_lock(&t->waiter->lock);
		assert_int_equal(t->waiter->calls, 0);
		pthread_mutex_unlock(&t->waiter->lock);
	}
}

static struct observer observer_of(struct waiter *w, char *got)
{
	return (struct observer){ .observer = { observer_bytes, observer_end, -1 },
				  .waiter = w,
				  .got = got };
}

/* Who begins to wait gets each byte, and the verdict before anyone is told. */
static void test_observer(void **state)
{
	static const size_t sizes[] = { 2 * MAX_SMALL_STORED, 5 * MIB, 17 * MIB + 1 };
	char *got = must(malloc(17 * MIB + 1));

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		for (unsigned method = 0; method <= METHOD_ZSTD; method += METHOD_ZSTD)
			for (int bad = 0; bad < 2; bad++) {
				struct box *b = box_new();
				struct box_item *item = box_add_made(b, sizes[i], 1, method);
				bool observed = method == METHOD_STORED ||
						sizes[i] > MAX_MEMORY_OBJECT;
				struct waiter first, second;
				struct observer t = observer_of(&first, got),
						late = observer_of(NULL, NULL);

				item->sha256[0] ^= (uint8_t)bad;
				box_start(b, NULL, true);
				box_gate(b, true);
				waiter_init(&first);
				waiter_init(&second);
				first.wait.observer = &t.observer;
				second.wait.observer = &late.observer;
				assert_int_equal(object_get(item->object, &first.wait),
						 -EINPROGRESS);
				assert_null(first.wait.observer);
				assert_int_equal(object_get(item->object, &second.wait),
						 -EINPROGRESS);
				assert_ptr_equal(second.wait.observer, &late.observer);
				box_gate(b, false);
				assert_int_equal(waiter_wait(&first), bad ? -EBADMSG : 0);
				assert_int_equal(waiter_wait(&second), bad ? -EBADMSG : 0);
				assert_int_equal(t.ends, 1);
				assert_int_equal(t.result, bad	    ? -EBADMSG :
							   observed ? 0 :
								      -EALREADY);
				assert_int_equal(t.bytes, observed ? sizes[i] : 0);
				if (observed)
					assert_memory_equal(got, item->data, sizes[i]);
				assert_int_equal(late.ends, 0);
				for (int n = 0; n < 2 && !bad; n++)
					object_put(item->object);
				box_free(b);
			}
	free(got);
}

/* The only one gives up: what the observer got is to be forgotten, whoever comes next. */
static void test_observer_cancelled(void **state)
{
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 9 * MIB, 1, METHOD_STORED);
	struct waiter first, second;
	struct observer t = observer_of(NULL, NULL);

	(void)state;
	box_start(b, NULL, true);
	box_gate(b, true);
	waiter_init(&first);
	waiter_init(&second);
	first.wait.observer = &t.observer;
	assert_int_equal(object_get(item->object, &first.wait), -EINPROGRESS);
	box_wait_inside(b, 1);
	assert_true(object_wait_cancel(&first.wait));
	assert_int_equal(object_get(item->object, &second.wait), -EINPROGRESS);
	box_gate(b, false);
	assert_int_equal(waiter_wait(&second), 0);
	assert_int_equal(t.ends, 1);
	assert_true(t.result < 0);
	assert_int_equal(t.bytes, 0);
	object_put(item->object);
	box_free(b);
}

static void test_corrupt_stays(void **state)
{
	static const size_t sizes[] = { 1000, 2 * MAX_SMALL_STORED, 5 * MIB };
	struct log_seen *seen;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (unsigned method = 0; method <= METHOD_ZSTD; method += METHOD_ZSTD) {
			struct box *b = box_new();
			struct box_item *item = box_add_made(b, sizes[i], 1, method);
			unsigned located;

			item->sha256[31] ^= 1;
			box_start(b, NULL, true);
			seen = log_watch();
			assert_int_equal(get(item->object), -EBADMSG);
			assert_int_equal(seen->n, 1);
			assert_says(seen, "sha256 mismatch");
			located = box_located(b);
			assert_int_equal(get(item->object), -EBADMSG);
			assert_int_equal(object_get(item->object, NULL), -EBADMSG);
			assert_int_equal(object_state(item->object), OBJECT_CORRUPT);
			assert_int_equal(box_located(b), located);
			assert_int_equal(seen->n, 1);
			carton_log_set(NULL, NULL);
			box_free(b);
		}
}

/* Bytes that are no valid stream, or of another length, are as corrupt. */
static void test_damaged_stream(void **state)
{
	struct box *b = box_new();
	struct box_item *cut = box_add_made(b, 300000, 1, METHOD_ZSTD),
			*longer = box_add_made(b, 300000, 2, METHOD_DEFLATE),
			*big = box_add_made(b, 5 * MIB, 3, METHOD_ZSTD);

	(void)state;
	cut->entry.stored--;
	longer->entry.size--;
	big->entry.size++;
	box_start(b, NULL, true);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(get(b->items[i].object), -EBADMSG);
		assert_int_equal(object_state(b->items[i].object), OBJECT_CORRUPT);
	}
	box_free(b);
}

/* Any other failure is over with the attempt. */
static void test_transient(void **state)
{
	static const int errors[] = { -EIO, -ENOMEM, -ENOSPC, -EHOSTUNREACH, -EOPNOTSUPP };
	static const size_t sizes[] = { 1000, 2 * MAX_SMALL_STORED, 5 * MIB };
	struct box *b = box_new();

	(void)state;
	for (size_t i = 0; i < 3; i++)
		box_add_made(b, sizes[i], i, i == 2 ? METHOD_ZSTD : METHOD_STORED);
	box_start(b, NULL, true);
	for (size_t i = 0; i < 3; i++) {
		struct box_item *item = &b->items[i];

		for (size_t e = 0; e < ARRAY_SIZE(errors); e++) {
			box_fail(b, errors[e]);
			assert_int_equal(get(item->object), errors[e]);
			assert_int_equal(object_state(item->object), OBJECT_UNVERIFIED);
		}
		box_fail(b, 0);
		assert_int_equal(get(item->object), 0);
		assert_true(reads_right(item, item->entry.size, 0, false));
		object_put(item->object);
	}
	box_free(b);
}

/* ---- several entries, one content ---- */

static void test_two_origins(void **state)
{
	for (int bad = 0; bad < 2; bad++) {
		struct box *b = box_new();
		struct box_item *one = box_add_made(b, 200000, 1, METHOD_STORED),
				*two = box_add_made(b, 200000, 1, METHOD_ZSTD);

		(void)state;
		b->blob.data[b->items[bad].entry.header + 20] ^= 4;
		box_start(b, NULL, true);
		assert_ptr_equal(one->object, two->object);
		assert_int_equal(get(one->object), 0);
		assert_int_equal(object_state(one->object), OBJECT_VERIFIED);
		assert_true(reads_right(one, 200000, 0, false));
		object_put(one->object);
		box_free(b);
	}
}

static void test_all_origins_bad(void **state)
{
	struct box *b = box_new();

	(void)state;
	for (int i = 0; i < 3; i++) {
		box_add_made(b, 1000, 1, i ? METHOD_DEFLATE : METHOD_STORED);
		b->blob.data[b->items[i].entry.header + 20] ^= 4;
	}
	box_start(b, NULL, true);
	assert_int_equal(get(b->items[0].object), -EBADMSG);
	assert_int_equal(box_located(b), 3);
	assert_int_equal(object_state(b->items[2].object), OBJECT_CORRUPT);
	box_free(b);
}

/* One origin is bad, but the other could not be asked: not corrupt yet. */
static void test_bad_and_unknown(void **state)
{
	struct box *b = box_new();
	struct box_item *one = box_add_made(b, 1000, 1, METHOD_STORED),
			*two = box_add_made(b, 1000, 1, METHOD_STORED);

	(void)state;
	b->blob.data[one->entry.header + 20] ^= 4;
	box_start(b, NULL, true);
	/* at an offset that no file has: reading fails, which says nothing of the bytes */
	two->entry.header += 1ULL << 63;
	assert_int_equal(get(one->object), -EINVAL);
	assert_int_equal(object_state(one->object), OBJECT_UNVERIFIED);
	two->entry.header -= 1ULL << 63;
	assert_int_equal(get(one->object), 0);
	assert_true(reads_right(two, 1000, 0, false));
	object_put(one->object);
	box_free(b);
}

static void test_same_hash_other_size(void **state)
{
	struct box *b = box_new();
	struct box_item *one = box_add_made(b, 1000, 1, METHOD_STORED),
			*two = box_add_made(b, 999, 1, METHOD_STORED);

	(void)state;
	memcpy(two->sha256, one->sha256, SHA256_SIZE);
	box_start(b, NULL, true);
	assert_ptr_not_equal(one->object, two->object);
	assert_int_equal(get(two->object), -EBADMSG);
	assert_int_equal(get(one->object), 0);
	object_put(one->object);
	box_free(b);
}

/* So many that the table grows; each is found again. */
static void test_many(void **state)
{
	struct box *b = box_new();
	struct entry *entries = must(calloc(5000, sizeof(*entries)));
	struct object **objects = must(calloc(5000, sizeof(struct object *))), *again;
	uint8_t sha256[SHA256_SIZE];

	(void)state;
	box_start(b, NULL, true);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 5000; i++) {
			entries[i].name = (char *)(uintptr_t) "e";
			entries[i].size = i % 3;
			sha256_of(&i, sizeof(i), sha256);
			assert_int_equal(object_add(b->store, sha256, &entries[i], &again), 0);
			assert_memory_equal(object_sha256(again), sha256, SHA256_SIZE);
			if (round)
				assert_ptr_equal(again, objects[i]);
			objects[i] = again;
		}
	box_free(b);
	free(entries);
	free(objects);
}

/* ---- waiting ---- */

static void test_cancel_the_only_one(void **state)
{
	static const size_t sizes[] = { 1000, 12 * MIB };
	struct waiter w;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct box *b = box_new();
		struct box_item *item = box_add_made(b, sizes[i], 1, METHOD_STORED);

		box_start(b, NULL, true);
		waiter_init(&w);
		box_gate(b, true);
		assert_int_equal(object_get(item->object, &w.wait), -EINPROGRESS);
		box_wait_inside(b, 1);
		assert_true(object_wait_cancel(&w.wait));
		assert_false(object_wait_cancel(&w.wait));
		/* the next one comes while the job is about to give up, or has */
		box_gate(b, false);
		assert_int_equal(get(item->object), 0);
		assert_true(reads_right(item, sizes[i], 0, false));
		object_put(item->object);
		box_free(b);
		assert_int_equal(w.calls, 0);
	}
}

/* A large job that nobody waits for any more ends without its result. */
static void test_cancel_ends_the_job(void **state)
{
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 12 * MIB, 1, METHOD_STORED);
	struct waiter w;

	(void)state;
	box_start(b, NULL, true);
	waiter_init(&w);
	box_gate(b, true);
	assert_int_equal(object_get(item->object, &w.wait), -EINPROGRESS);
	box_wait_inside(b, 1);
	assert_true(object_wait_cancel(&w.wait));
	box_gate(b, false);
	workers_free(b->workers);
	b->workers = NULL;
	assert_int_equal(object_state(item->object), OBJECT_UNVERIFIED);
	assert_int_equal(object_get(item->object, NULL), -EAGAIN);
	assert_int_equal(w.calls, 0);
	box_free(b);
}

static void test_cancel_one_of_many(void **state)
{
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 500000, 1, METHOD_STORED);
	struct waiter w[10];

	(void)state;
	box_start(b, NULL, true);
	box_gate(b, true);
	for (size_t i = 0; i < 10; i++) {
		waiter_init(&w[i]);
		assert_int_equal(object_get(item->object, &w[i].wait), -EINPROGRESS);
	}
	/* the first, the last, and some between */
	for (size_t i = 0; i < 10; i += 3)
		assert_true(object_wait_cancel(&w[i].wait));
	box_gate(b, false);
	for (size_t i = 0; i < 10; i++) {
		if (i % 3 == 0)
			continue;
		assert_int_equal(waiter_wait(&w[i]), 0);
		assert_true(reads_right(item, 500000, 0, false));
		assert_false(object_wait_cancel(&w[i].wait));
		object_put(item->object);
	}
	assert_int_equal(box_located(b), 1);
	box_free(b);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(w[i].calls, i % 3 != 0);
}

static void test_stop(void **state)
{
	struct box *b = box_new();
	struct waiter w[40];

	(void)state;
	/* small and large ones, more than there are threads, two waiters each */
	for (size_t i = 0; i < 20; i++)
		box_add_made(b, i % 2 ? 1000 : 9 * MIB, i, METHOD_STORED);
	box_start(b, NULL, true);
	assert_int_equal(get(b->items[1].object), 0);
	box_gate(b, true);
	for (size_t i = 0; i < 40; i++) {
		waiter_init(&w[i]);
		assert_int_equal(object_get(b->items[i / 2].object, &w[i].wait),
				 i / 2 == 1 ? 0 : -EINPROGRESS);
	}
	box_wait_inside(b, 2);
	object_store_stop(b->store);
	box_gate(b, false);
	for (size_t i = 0; i < 40; i++) {
		/* a small one at the gate may have been read to its end */
		int r = i / 2 == 1 ? 0 : waiter_wait(&w[i]);

		assert_true(r == -ENOTCONN || (r == 0 && i / 2 % 2 == 1));
		if (r == 0)
			object_put(b->items[i / 2].object);
	}
	object_put(b->items[1].object);
	assert_int_equal(get(b->items[0].object), -ENOTCONN);
	box_free(b);
}

/* ---- many threads ---- */

#define THREADS 8
#define ROUNDS 150

struct crowd {
	struct box *b;
	unsigned seed;
	unsigned wrong;
	unsigned pinned, cancelled;
};

static void *pin_and_cancel(void *arg)
{
	struct crowd *c = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct box_item *item = &c->b->items[rand_r(&c->seed) % c->b->n];
		bool bad = item->entry.flags;
		struct waiter w;
		int r;

		waiter_init(&w);
		r = object_get(item->object, &w.wait);
		if (r == -EINPROGRESS && rand_r(&c->seed) % 3 == 0 && object_wait_cancel(&w.wait)) {
			c->wrong += w.calls;
			c->cancelled++;
			continue;
		}
		if (r == -EINPROGRESS)
			r = waiter_wait(&w);
		c->wrong += r != (bad ? -EBADMSG : 0);
		if (r < 0)
			continue;
		c->wrong += !reads_right(item, item->entry.size / 2, item->entry.size / 4, i % 2);
		c->pinned++;
		object_put(item->object);
	}
	return NULL;
}

static void test_crowd(void **state)
{
	static const size_t sizes[] = { 0, 10, 1000, 100000, 200000, 700000, 4 * MIB + 1 };
	struct crowd crowd[THREADS];
	pthread_t threads[THREADS];
	unsigned pinned = 0;

	(void)state;
	for (unsigned round = 0; round < 4; round++) {
		struct box *b = box_new();

		for (size_t i = 0; i < 3 * ARRAY_SIZE(sizes); i++) {
			struct box_item *item = box_add_made(b, sizes[i / 3], i,
							     i % 3 ? METHOD_STORED : METHOD_ZSTD);

			if (i % 5 == 4) { /* `flags` is free here: it marks the bad ones */
				item->sha256[0] ^= 1;
				item->entry.flags = 1;
			}
		}
		box_start(b, NULL, true);
		for (unsigned i = 0; i < THREADS; i++) {
			crowd[i] = (struct crowd){ .b = b, .seed = round * THREADS + i };
			assert_int_equal(
				pthread_create(&threads[i], NULL, pin_and_cancel, &crowd[i]), 0);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(crowd[i].wrong, 0);
			pinned += crowd[i].pinned;
		}
		box_free(b);
	}
	assert_true(pinned > 100);
}

/* ---- deadlines ---- */

static int wait_for_gate(void *ctx, struct fill *m)
{
	struct box *b = ctx;

	pthread_mutex_lock(&b->lock);
	b->inside++;
	pthread_cond_broadcast(&b->changed);
	while (b->shut && !cancel_fired(&m->waits.cancel))
		pthread_cond_wait(&b->changed, &b->lock);
	b->inside--;
	pthread_mutex_unlock(&b->lock);
	if (cancel_fired(&m->waits.cancel))
		return -ECANCELED;
	m->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	return 0;
}

/* Each waiter has a timeout of its own, from when it came, whoever waits with it. */
static void test_deadlines(void **state)
{
	struct box *b = box_new();
	struct waiter first, second, third;
	struct object *o;
	int64_t came;

	(void)state;
	b->timeout_ms = 200;
	box_start(b, NULL, true);
	box_gate(b, true);
	assert_int_equal(object_add_derived(b->store, "slow", 0, wait_for_gate, b, &o), 0);
	waiter_init(&first);
	waiter_init(&second);
	waiter_init(&third);
	assert_int_equal(object_get(o, &first.wait), -EINPROGRESS);
	box_wait_inside(b, 1);
	assert_int_equal(cancel_sleep(NULL, 100), 0);
	came = now_ms();
	assert_int_equal(object_get(o, &second.wait), -EINPROGRESS);
	assert_int_equal(waiter_wait(&first), -ETIMEDOUT);
	assert_int_equal(waiter_wait(&second), -ETIMEDOUT);
	assert_true(now_ms() - came >= b->timeout_ms);
	assert_false(object_wait_cancel(&second.wait));
	/* progress keeps a waiter waiting, and a late one gets what the others did not wait for */
	assert_int_equal(object_get(o, &third.wait), -EINPROGRESS);
	box_gate(b, false);
	assert_int_equal(waiter_wait(&third), 0);
	object_put(o);
	box_free(b);
}

static int work_on(void *ctx, struct fill *m)
{
	int64_t end = now_ms() + *(int64_t *)ctx;

	while (now_ms() < end && !cancel_fired(&m->waits.cancel)) {
		waits_progress(&m->waits, 1000);
		cancel_sleep(&m->waits.cancel, 10);
	}
	m->bytes = (struct bytes){ .kind = BYTES_ENTRY };
	return cancel_fired(&m->waits.cancel) ? -ECANCELED : 0;
}

static void test_progress(void **state)
{
	struct box *b = box_new();
	int64_t work_ms = 1500;
	struct object *o;

	(void)state;
	b->timeout_ms = 100;
	box_start(b, NULL, true);
	assert_int_equal(object_add_derived(b->store, "busy", 0, work_on, &work_ms, &o), 0);
	assert_int_equal(get(o), 0);
	object_put(o);
	box_free(b);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quick),
		cmocka_unit_test(test_quick_and_others),
		cmocka_unit_test(test_observer),
		cmocka_unit_test(test_observer_cancelled),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_corrupt_stays),
		cmocka_unit_test(test_damaged_stream),
		cmocka_unit_test(test_transient),
		cmocka_unit_test(test_two_origins),
		cmocka_unit_test(test_all_origins_bad),
		cmocka_unit_test(test_bad_and_unknown),
		cmocka_unit_test(test_same_hash_other_size),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_cancel_the_only_one),
		cmocka_unit_test(test_cancel_ends_the_job),
		cmocka_unit_test(test_cancel_one_of_many),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_deadlines),
		cmocka_unit_test(test_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
