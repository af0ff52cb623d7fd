/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program into which it is loaded by LD_PRELOAD takes CLOCK, seconds since 1970, for the time of
 * day. Clocks that measure how long something takes are unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static time_t now(void)
{
	return (time_t)atoll(getenv("CLOCK"));
}

time_t time(time_t *ret)
{
	if (ret)
		*ret = now();
	return now();
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	(void)zone;
	*ret = (struct timeval){ .tv_sec = now() };
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
	static int (*real)(clockid_t, struct timespec *);

	if (clock == CLOCK_REALTIME) {
		*ret = (struct timespec){ .tv_sec = now() };
		return 0;
	}
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	return real(clock, ret);
}
