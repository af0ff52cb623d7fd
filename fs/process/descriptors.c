/* SPDX-License-Identifier: Apache-2.0 */
#include "process/descriptors.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST (STDERR_FILENO + 1) /* also of LISTEN_FDS */
#define MAX_KEPT 1024

extern char **environ;

struct kept {
	unsigned n, list[MAX_KEPT];
};

static void keep(struct kept *k, unsigned long fd)
{
	if (fd >= FIRST && fd < INT_MAX && k->n < MAX_KEPT)
		k->list[k->n++] = (unsigned)fd;
}

/* Keeps the descriptors that a word names: it may be a path, an option with a value, or a list. */
static void keep_named(struct kept *k, const char *word)
{
	static const char *const forms[] = { "/dev/fd/", "/proc/self/fd/" };

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		for (const char *at = word; (at = strstr(at, forms[i]));) {
			at += strlen(forms[i]);
			if (*at >= '0' && *at <= '9')
				keep(k, strtoul(at, NULL, 10));
		}
}

/* The number in an environment variable; 0: none. */
static unsigned long number_of(const char *variable)
{
	const char *value = getenv(variable);

	return value ? strtoul(value, NULL, 10) : 0;
}

static int compare(const void *a, const void *b)
{
	const unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return (x > y) - (x < y);
}

void descriptors_close_inherited(int argc, char **argv)
{
	struct kept k = { 0 };
	unsigned long passed = 0;
	unsigned from = FIRST;

	for (int i = 1; i < argc; i++)
		keep_named(&k, argv[i]);
	for (char **variable = environ; *variable; variable++)
		keep_named(&k, *variable);
	keep(&k, number_of("_FUSE_COMMFD"));
	if (number_of("LISTEN_PID") == (unsigned long)getpid())
		passed = number_of("LISTEN_FDS");
	for (unsigned long i = 0; i < passed && i < MAX_KEPT; i++)
		keep(&k, FIRST + i);
	qsort(k.list, k.n, sizeof(k.list[0]), compare);
	for (unsigned i = 0; i < k.n; i++) {
		if (k.list[i] > from)
			syscall(SYS_close_range, from, k.list[i] - 1, 0);
		from = k.list[i] + 1;
	}
	syscall(SYS_close_range, from, ~0U, 0);
}

int descriptors_open_standard(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) < 0)
			return -1;
	return 0;
}
