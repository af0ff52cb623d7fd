/* SPDX-License-Identifier: Apache-2.0 */
/* The process that looks for credentials: who waits for its answer. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "http/helper.h"

#define FOREVER_MS 600000
#define SIGNALS 5000

/* In memory that the process shares: it answers when it may. */
struct gate {
	sem_t open;
};

struct waiter {
	struct helper helper;
	struct gate *gate;
	struct cancel stop;
	pthread_t thread;
	atomic_bool over;
	ssize_t result;
	char answer[8];
};

static size_t answer(void *ctx)
{
	struct gate *g = ctx;

	while (sem_wait(&g->open) < 0)
		;
	return 5;
}

static void *receive(void *arg)
{
	struct waiter *w = arg;

	helper_ask(&w->helper);
	w->result = helper_receive(&w->helper, FOREVER_MS, w->answer, sizeof(w->answer));
	atomic_store(&w->over, true);
	return NULL;
}

static void begin(struct waiter *w)
{
	*w = (struct waiter){ .gate = mmap(NULL, sizeof(struct gate), PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
	assert_ptr_not_equal(w->gate, MAP_FAILED);
	assert_int_equal(sem_init(&w->gate->open, 1, 0), 0);
	cancel_init(&w->stop, NULL);
	assert_int_equal(helper_start(&w->helper, &(struct helper_job){ answer, w->gate, "hello" },
				      &w->stop),
			 0);
	assert_int_equal(pthread_create(&w->thread, NULL, receive, w), 0);
}

/* Lets the process answer, so that it sees that nobody asks any more. */
static void end(struct waiter *w)
{
	sem_post(&w->gate->open);
	assert_int_equal(pthread_join(w->thread, NULL), 0);
	helper_end(&w->helper);
	cancel_finish(&w->stop);
	munmap(w->gate, sizeof(struct gate));
}

static void nothing(int number)
{
	(void)number;
}

/* As those of a program that uses the library, such as a profiler's. */
static void test_signals(void **state)
{
	struct sigaction act = { .sa_handler = nothing }, old;
	struct waiter w;
	bool early;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &act, &old), 0);
	begin(&w);
	for (int i = 0; i < SIGNALS && !atomic_load(&w.over); i++) {
		pthread_kill(w.thread, SIGUSR1);
		sched_yield();
	}
	early = atomic_load(&w.over);
	end(&w);
	assert_false(early);
	assert_int_equal(w.result, 5);
	assert_memory_equal(w.answer, "hello", 5);
	sigaction(SIGUSR1, &old, NULL);
}

/* A program that is run has them as if it were started by hand, whatever this one ignores. */
static void test_signals_of_a_program(void **state)
{
	const unsigned long mine = 1UL << (SIGPIPE - 1) | 1UL << (SIGXFSZ - 1);
	char out[64] = "";
	size_t n;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(helper_run("sed -n 's/^SigIgn:[^0-9a-f]*//p' /proc/self/status", NULL, out,
				    sizeof(out) - 1, &n),
			 0);
	assert_in_range(n, 16, 17);
	assert_int_equal(strtoul(out, NULL, 16) & mine, 0);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
}

/* While it waits, or before. */
static void test_stop(void **state)
{
	struct waiter w;

	(void)state;
	begin(&w);
	cancel_fire(&w.stop);
	assert_int_equal(pthread_join(w.thread, NULL), 0);
	assert_int_equal(w.result, -ECANCELED);
	assert_int_equal(pthread_create(&w.thread, NULL, receive, &w), 0);
	end(&w);
	assert_int_equal(w.result, -ECANCELED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_signals_of_a_program),
		cmocka_unit_test(test_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
