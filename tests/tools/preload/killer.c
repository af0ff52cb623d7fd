/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded: kills the process before, or after, the Nth call of a function that writes a file, or
 * puts it in its place; or sends it SIGTERM right before it waits for one, but not before it can
 * read a byte from standard input.
 *
 *	KILL_AT='linkat 1 after'
 *	KILL_AT='sem_wait 1 term'
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;

/* Counts a call, where it is the one that is named. True: kill when it has returned. */
static int counts(const char *name)
{
	char want[16], when[16];
	int number;
	const char *at = getenv("KILL_AT");

	if (!at || sscanf(at, "%15s %d %15s", want, &number, when) != 3 ||
	    strcmp(want, name) != 0 || atomic_fetch_add(&calls, 1) + 1 != number)
		return 0;
	if (strcmp(when, "term") == 0)
		return raise(SIGTERM);
	if (strcmp(when, "before") == 0)
		raise(SIGKILL);
	return 1;
}

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

int fsync(int fd)
{
	int kill = counts("fsync"), r = REAL(fsync)(fd);

	return kill ? raise(SIGKILL) : r;
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
	int kill = counts("pwrite64");
	ssize_t r = REAL(pwrite64)(fd, data, n, at);

	return kill ? raise(SIGKILL) : r;
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
	int kill = counts("linkat"), r = REAL(linkat)(from, old, to, new, flags);

	return kill ? raise(SIGKILL) : r;
}

int renameat(int from, const char *old, int to, const char *new)
{
	int kill = counts("renameat"), r = REAL(renameat)(from, old, to, new);

	return kill ? raise(SIGKILL) : r;
}

int sem_wait(sem_t *semaphore)
{
	char c;

	if (getenv("KILL_AT") && read(STDIN_FILENO, &c, 1) == 1)
		counts("sem_wait");
	return REAL(sem_wait)(semaphore);
}
