/* SPDX-License-Identifier: Apache-2.0 */
/* The pool: each job once, lanes apart, and an end that leaves none behind. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "base/sleeper.h"
#include "base/workers.h"
#include "zip_help.h"

struct note {
	struct job job;
	struct pool *pool;
	atomic_uint runs;
	struct note *then; /* submits this one when it runs */
	enum lane then_lane;
};

struct pool {
	struct workers *w;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	bool shut;
	unsigned inside;
};

static void pool_init(struct pool *p)
{
	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	assert_int_equal(workers_new(&p->w), 0);
}

static void open_gate(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->shut = false;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void run_note(struct job *job)
{
	struct note *n = container_of(job, struct note, job);
	struct pool *p = n->pool;

	pthread_mutex_lock(&p->lock);
	p->inside++;
	pthread_cond_broadcast(&p->changed);
	while (p->shut)
		pthread_cond_wait(&p->changed, &p->lock);
	p->inside--;
	pthread_mutex_unlock(&p->lock);
	atomic_fetch_add(&n->runs, 1);
	if (n->then)
		workers_submit(p->w, &n->then->job, n->then_lane);
}

static void submit(struct pool *p, struct note *n, enum lane lane)
{
	n->job.run = run_note;
	n->pool = p;
	workers_submit(p->w, &n->job, lane);
}

static void test_all_run(void **state)
{
	struct note *notes = must(calloc(900, sizeof(*notes)));
	struct pool p;

	(void)state;
	pool_init(&p);
	for (unsigned i = 0; i < 900; i++)
		submit(&p, &notes[i], i % LANES);
	workers_free(p.w); /* runs what is queued */
	for (unsigned i = 0; i < 900; i++)
		assert_int_equal(notes[i].runs, 1);
	free(notes);
	workers_free(NULL);
}

/* A lane full of jobs that wait holds up no other. */
static void test_lanes(void **state)
{
	struct note *stuck = must(calloc(600, sizeof(*stuck))), quick = { 0 };
	struct pool p, q;

	(void)state;
	pool_init(&p);
	pool_init(&q);
	p.shut = true;
	for (unsigned i = 0; i < 600; i++) {
		stuck[i].job.run = run_note;
		stuck[i].pool = &p;
		workers_submit(q.w, &stuck[i].job, i % 2 ? LANE_NET : LANE_BULK);
	}
	q.shut = true;
	submit(&q, &quick, LANE_QUICK);
	pthread_mutex_lock(&q.lock);
	while (!q.inside)
		pthread_cond_wait(&q.changed, &q.lock);
	pthread_mutex_unlock(&q.lock);
	/* however many are queued, the threads are bounded */
	pthread_mutex_lock(&p.lock);
	assert_true(p.inside <= 256);
	pthread_mutex_unlock(&p.lock);
	open_gate(&q);
	open_gate(&p);
	workers_free(q.w);
	workers_free(p.w);
	for (unsigned i = 0; i < 600; i++)
		assert_int_equal(stuck[i].runs, 1);
	assert_int_equal(quick.runs, 1);
	free(stuck);
}

/* As many as a lane has threads start at once, without waiting for each other. */
static void test_at_once(void **state)
{
	static const unsigned at_least[LANES] = { 4, 2, 8, 16, 4 };
	struct note notes[16];
	struct pool p;

	(void)state;
	for (unsigned lane = 0; lane < LANES; lane++) {
		memset(notes, 0, sizeof(notes));
		pool_init(&p);
		p.shut = true;
		for (unsigned i = 0; i < at_least[lane]; i++)
			submit(&p, &notes[i], lane);
		pthread_mutex_lock(&p.lock);
		while (p.inside < at_least[lane])
			pthread_cond_wait(&p.changed, &p.lock);
		pthread_mutex_unlock(&p.lock);
		open_gate(&p);
		workers_free(p.w);
	}
}

/* Jobs that make jobs, in their own lane and in others, also while the pool ends. */
static void test_chains(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 30; round++) {
		struct note notes[40] = { 0 };
		struct pool p;

		pool_init(&p);
		for (unsigned i = 0; i < 40; i++) {
			notes[i].job.run = run_note;
			notes[i].pool = &p;
			notes[i].then = i % 10 < 9 ? &notes[i + 1] : NULL;
			notes[i].then_lane = i < 20 ? LANE_QUICK : i % LANES;
		}
		for (unsigned i = 0; i < 40; i += 10)
			workers_submit(p.w, &notes[i].job, LANE_QUICK);
		workers_free(p.w);
		for (unsigned i = 0; i < 40; i++)
			assert_int_equal(notes[i].runs, 1);
	}
}

struct submitter {
	struct pool *p;
	struct note notes[100];
};

static void *submit_all(void *arg)
{
	struct submitter *s = arg;

	for (unsigned i = 0; i < 100; i++)
		submit(s->p, &s->notes[i], i % LANES);
	return NULL;
}

static void test_many_submitters(void **state)
{
	struct submitter *s = must(calloc(8, sizeof(*s)));
	pthread_t threads[8];
	struct pool p;

	(void)state;
	pool_init(&p);
	for (unsigned i = 0; i < 8; i++) {
		s[i].p = &p;
		assert_int_equal(pthread_create(&threads[i], NULL, submit_all, &s[i]), 0);
	}
	for (unsigned i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	workers_free(p.w);
	for (unsigned i = 0; i < 800; i++)
		assert_int_equal(s[i / 100].notes[i % 100].runs, 1);
	free(s);
}

struct lone {
	struct workers *w;
	struct job job;
	atomic_bool ran;
};

static void run_lone(struct job *job)
{
	atomic_store(&container_of(job, struct lone, job)->ran, true);
}

static void *submit_lone(void *arg)
{
	struct lone *l = arg;

	workers_submit(l->w, &l->job, 0);
	return NULL;
}

/*
 * It ends as soon as the last job has run, which may be before its submitter is done; sanitizers
 * look.
 */
static void test_end_while_submitting(void **state)
{
	(void)state;
	for (int i = 0; i < 300; i++) {
		struct lone l = { .job.run = run_lone };
		pthread_t thread;

		assert_int_equal(workers_new(&l.w), 0);
		assert_int_equal(pthread_create(&thread, NULL, submit_lone, &l), 0);
		while (!atomic_load(&l.ran))
			sched_yield();
		workers_free(l.w);
		pthread_join(thread, NULL);
	}
}

/* ---- jobs that wait ---- */

struct waiting {
	struct job job;
	struct cancel *cancel;
	struct sleeper sleeper;
	atomic_uint *refused, *ended;
};

static void run_waiting(struct job *job)
{
	struct waiting *x = container_of(job, struct waiting, job);
	int r;

	sleeper_init(&x->sleeper);
	r = sleeper_wait(&x->sleeper, x->cancel);
	sleeper_finish(&x->sleeper);
	if (r == -EBUSY)
		atomic_fetch_add(x->refused, 1);
	else if (r == -ECANCELED)
		atomic_fetch_add(x->ended, 1);
}

static unsigned count_threads(void)
{
	unsigned n = 0;
	DIR *d = must(opendir("/proc/self/task"));

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/*
 * One more than may wait, and then some: they are refused, the others hold up nobody, and their
 * threads end when they do.
 */
static void test_many_wait(void **state)
{
	enum { N = MAX_BLOCKED + 20 };
	struct waiting *all = must(calloc(N, sizeof(*all)));
	atomic_uint refused = 0, ended = 0;
	struct note quick = { 0 };
	struct cancel cancel;
	struct pool p;

	(void)state;
	pool_init(&p);
	cancel_init(&cancel, NULL);
	for (unsigned i = 0; i < N; i++) {
		all[i].job.run = run_waiting;
		all[i].cancel = &cancel;
		all[i].refused = &refused;
		all[i].ended = &ended;
		workers_submit(p.w, &all[i].job, LANE_VIEWS);
	}
	while (atomic_load(&refused) < N - MAX_BLOCKED)
		sched_yield();
	submit(&p, &quick, LANE_VIEWS);
	while (!atomic_load(&quick.runs))
		sched_yield();
	assert_int_equal(atomic_load(&refused), N - MAX_BLOCKED);
	assert_int_equal(atomic_load(&ended), 0);
	assert_true(count_threads() > MAX_BLOCKED);
	cancel_fire(&cancel);
	while (atomic_load(&ended) < MAX_BLOCKED || count_threads() > MAX_BLOCKED)
		sched_yield();
	workers_free(p.w);
	cancel_finish(&cancel);
	free(all);
}

struct call {
	struct job job;
	struct sleeper *sleeper;
};

static void run_call(struct job *job)
{
	sleeper_wake(container_of(job, struct call, job)->sleeper, 7);
}

static void test_woken(void **state)
{
	struct call call = { .job.run = run_call };
	struct sleeper sleeper;
	struct cancel fired;
	struct pool p;

	(void)state;
	pool_init(&p);
	cancel_init(&fired, NULL);
	cancel_fire(&fired);
	for (int i = 0; i < 200; i++) {
		sleeper_init(&sleeper);
		call.sleeper = &sleeper;
		assert_int_equal(sleeper_wait(&sleeper, &fired), -ECANCELED);
		workers_submit(p.w, &call.job, LANE_VIEWS);
		assert_int_equal(sleeper_wait(&sleeper, NULL), 0);
		assert_int_equal(sleeper.result, 7);
		/* that it was woken says more than that nobody waits */
		assert_int_equal(sleeper_wait(&sleeper, &fired), 0);
		sleeper_finish(&sleeper);
	}
	workers_free(p.w);
	cancel_finish(&fired);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_run),		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_at_once),		cmocka_unit_test(test_chains),
		cmocka_unit_test(test_many_submitters), cmocka_unit_test(test_end_while_submitting),
		cmocka_unit_test(test_many_wait),	cmocka_unit_test(test_woken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
