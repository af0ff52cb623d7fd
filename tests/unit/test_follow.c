/* SPDX-License-Identifier: Apache-2.0 */
/* Hashing a file as it fills: each block is read once, whatever happens to it after that. */
#include "cache/follow.h"

#include <semaphore.h>

#include "zip_help.h"

#define SIZE (3 * MIB + 12345)
#define HALF (1 * MIB)

struct fixture {
	struct workers *workers;
	struct events *events;
	struct tagger *tagger;
	struct task task;
	sem_t woken;
	atomic_bool over;
	char *data, *other;
	struct follow follow;
};

static bool step(struct task *t)
{
	struct fixture *f = container_of(t, struct fixture, task);
	bool over = f->over;

	if (over)
		task_finish(t);
	sem_post(&f->woken);
	return !over;
}

static void fixture_init(struct fixture *f)
{
	*f = (struct fixture){ .data = make_bytes(SIZE, 1), .other = make_bytes(SIZE, 2) };
	assert_int_equal(workers_new(&f->workers), 0);
	assert_int_equal(events_new(f->workers, &f->events), 0);
	assert_int_equal(tagger_new(NULL, &f->tagger), 0);
	sem_init(&f->woken, 0, 0);
	task_init(&f->task, f->events, LANE_NET, step);
	f->follow.workers = f->workers;
	f->follow.tagger = f->tagger;
	f->follow.hash = true;
	assert_int_equal(file_unnamed(NULL, &f->follow.dest), 0);
	follow_init(&f->follow);
	assert_int_equal(follow_begin(&f->follow, &f->task), 0);
}

static void fixture_end(struct fixture *f)
{
	file_abort(f->follow.dest, false);
	follow_finish(&f->follow);
	f->over = true;
	task_wake(&f->task);
	/* the pool ends when the last step has returned */
	workers_free(f->workers);
	events_free(f->events);
	tagger_free(f->tagger);
	free(f->data);
	free(f->other);
}

static void follow_all(struct fixture *f, uint64_t arrived, bool all)
{
	while (follow_on(&f->follow, arrived, all))
		if (follow_is_busy(&f->follow))
			sem_wait(&f->woken);
}

/* All is hashed: are hash and tags those of f->data? */
static void check_right(struct fixture *f)
{
	struct ingested in, want;
	struct hasher h;

	assert_int_equal(follow_end(&f->follow, &in), 0);
	assert_int_equal(hasher_begin(&h, f->tagger, true), 0);
	assert_int_equal(hasher_feed(&h, f->data, SIZE), 0);
	assert_int_equal(hasher_end(&h, &want), 0);
	assert_int_equal(in.size, SIZE);
	assert_memory_equal(in.sha256, want.sha256, SHA256_SIZE);
	assert_memory_equal(in.tags, want.tags, (SIZE + TAG_BLOCK - 1) / TAG_BLOCK * TAG_SIZE);
	free(in.tags);
	free(want.tags);
}

/* Who writes to the file afterwards changes neither the hash nor a tag. */
static void test_block_is_read_once(void **state)
{
	struct fixture f;

	(void)state;
	fixture_init(&f);
	assert_int_equal(file_write(f.follow.dest, f.data, HALF, 0), 0);
	follow_all(&f, HALF, false);
	assert_int_equal(file_write(f.follow.dest, f.other, HALF, 0), 0);
	assert_int_equal(file_write(f.follow.dest, f.data + HALF, SIZE - HALF, HALF), 0);
	follow_all(&f, SIZE, true);
	assert_int_equal(file_write(f.follow.dest, f.other, SIZE, 0), 0);
	check_right(&f);
	fixture_end(&f);
}

/* Another try: nothing of the one before is in the hash, but what it has left is. */
static void test_begins_again(void **state)
{
	struct fixture f;

	(void)state;
	fixture_init(&f);
	assert_int_equal(file_write(f.follow.dest, f.other, SIZE, 0), 0);
	follow_all(&f, SIZE, true);
	assert_int_equal(file_write(f.follow.dest, f.data, SIZE, 0), 0);
	assert_int_equal(follow_begin(&f.follow, &f.task), 0);
	follow_all(&f, SIZE, true);
	check_right(&f);
	fixture_end(&f);
}

static void test_limit(void **state)
{
	struct fixture f;
	struct ingested in;
	uint64_t first;

	(void)state;
	fixture_init(&f);
	first = follow_limit(&f.follow);
	assert_true(first >= MIB && first < UINT64_MAX);
	assert_int_equal(file_write(f.follow.dest, f.data, SIZE, 0), 0);
	follow_all(&f, SIZE, true);
	assert_int_equal(follow_limit(&f.follow), first + SIZE);
	/* what has been cut off cannot be hashed, and holds up nobody */
	follow_all(&f, 2 * SIZE, true);
	assert_int_equal(follow_limit(&f.follow), UINT64_MAX);
	assert_int_equal(follow_end(&f.follow, &in), -ENOSPC);
	assert_int_equal(follow_limit(NULL), UINT64_MAX);
	assert_false(follow_on(NULL, 1, true) || follow_is_busy(NULL));
	assert_int_equal(follow_begin(NULL, &f.task), 0);
	fixture_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_block_is_read_once),
		cmocka_unit_test(test_begins_again),
		cmocka_unit_test(test_limit),
	};

	return cmocka_run_group_tests_name("follow", tests, NULL, NULL);
}
