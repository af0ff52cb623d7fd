/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/destination.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/text.h"
#include "ctl/ctl.h"

/* The open file that the word names, other than standard input and standard error; -1: none. */
static int descriptor_of(const char *word)
{
	unsigned n;
	int end = 0;

	if (strcmp(word, "-") == 0 || strcmp(word, "/dev/stdout") == 0)
		return STDOUT_FILENO;
	if (sscanf(word, "/dev/fd/%9u%n", &n, &end) != 1 &&
	    sscanf(word, "/proc/self/fd/%9u%n", &n, &end) != 1)
		return -1;
	return word[end] || n == STDIN_FILENO || n == STDERR_FILENO ? -1 : (int)n;
}

/* Nothing that is printed may get among the bytes. */
static int print_elsewhere(void)
{
	int null;

	fflush(stdout);
	if (dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
		return 0;
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
		return -errno;
	return close(null);
}

int destination_open(const char *word, struct destination *ret)
{
	int n = descriptor_of(word), copy, r;

	*ret = (struct destination){ .path = word, .label = word, .open = n >= 0 };
	if (n < 0)
		return EXIT_GOOD;
	if (n == STDOUT_FILENO)
		ret->label = "standard output";
	if (isatty(n))
		return ctl_refuse(ret->label, "is a terminal: name a file, or a program that takes "
					      "it, such as: | ssh HOST 'cat >m.carton'");
	copy = fcntl(n, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	r = copy < 0 ? -errno : print_elsewhere();
	if (r < 0)
		return ctl_failed(ret->label, r);
	/* its reader may end: that is said, with what it has got */
	signal(SIGPIPE, SIG_IGN);
	snprintf(ret->text, sizeof(ret->text), "/dev/fd/%d", copy);
	ret->path = ret->text;
	return EXIT_GOOD;
}

void destination_failed(const struct destination *d)
{
	text_line(stderr,
		  d->open ? "cartonctl: %s has got no whole file" : "cartonctl: %s was not made",
		  d->label);
}
