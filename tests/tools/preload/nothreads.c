/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit of threads: a program into which it is loaded by LD_PRELOAD can start THREADS of them;
 * pthread_create() then fails with EAGAIN.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	static _Atomic int started;

	if (!real)
		real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
				void *))dlsym(RTLD_NEXT, "pthread_create");
	if (started++ >= atoi(getenv("THREADS")))
		return EAGAIN;
	return real(thread, attr, start, arg);
}
