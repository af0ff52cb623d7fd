/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults for the sanitizers to find. It is linked to the cartonfs of a build with sanitizers, as a
 * program of its own (the Makefile's faulty-cartonfs). There statfs(2) of a mount makes the fault
 * that FAULT in the environment names.
 */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "process/fuse.h"

#define FAULT __attribute__((noipa)) static

static volatile int counter;
static void *volatile kept;

FAULT void *fault_race(void *arg)
{
	for (int i = 0; i < 1000; i++)
		counter++;
	return arg;
}

FAULT void race(void)
{
	pthread_t other;

	if (pthread_create(&other, NULL, fault_race, NULL))
		abort();
	fault_race(NULL);
	pthread_join(other, NULL);
}

FAULT void fault_overflow(size_t n)
{
	volatile char *p = malloc(n);

	if (p)
		p[n] = 1;
	free((void *)p);
}

FAULT void fault_leak(size_t n)
{
	kept = malloc(n);
	kept = NULL;
}

FAULT int fault_undefined(int n)
{
	return INT_MAX + n;
}

int __real_fuse_reply_statfs(fuse_req_t req, const struct statvfs *st);
int __wrap_fuse_reply_statfs(fuse_req_t req, const struct statvfs *st);
int __wrap_fuse_reply_statfs(fuse_req_t req, const struct statvfs *st)
{
	const char *kind = getenv("FAULT");

	if (kind && strcmp(kind, "race") == 0)
		race();
	else if (kind && strcmp(kind, "overflow") == 0)
		fault_overflow(10 + st->f_namemax);
	else if (kind && strcmp(kind, "leak") == 0)
		fault_leak(10 + st->f_namemax);
	else if (kind && strcmp(kind, "undefined") == 0)
		counter = fault_undefined((int)st->f_namemax);
	return __real_fuse_reply_statfs(req, st);
}
