/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries things inside a running cartonfs or cartonctl, into which it is loaded by LD_PRELOAD. It
 * starts with the first thread of the program, which is confined by then; with PROBE_WAIT it comes
 * before that thread, else beside it. On the descriptor of PROBE_FD, which is /dev/fd/N, it reads
 * commands, each a line, and answers each with a line: 0, or the errno.
 *
 *	read PATH | write PATH | create PATH | remove PATH	a file
 *	truncate PATH						the same, open for reading only
 *	connect ADDRESS PORT | bind PORT | family NUMBER	a socket
 *	mode PATH OCTAL | setid PATH				fchmod() of a file, a new one with 04755
 *	memory | protect | code [PATH]				a page that is written and run, or a file's
 *	fcntl COMMAND ARGUMENT					of a pipe
 *	call NAME-OR-NUMBER [NUMBER...]				a system call
 *	old							one by the numbers of 32 bit programs
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By number; the Makefile makes it (fs/process/syscall_table.h). */
extern const char *const syscall_names[];
extern const size_t n_syscall_names;

static long number_of(const char *name)
{
	for (size_t i = 0; i < n_syscall_names; i++)
		if (syscall_names[i] && strcmp(syscall_names[i], name) == 0)
			return (long)i;
	return -1;
}

static int try_call(char *words)
{
	char *name = strtok(words, " "), *word;
	long n[6] = { 0 }, number = number_of(name);

	for (int i = 0; i < 6 && (word = strtok(NULL, " ")); i++)
		n[i] = (long)strtoul(word, NULL, 0);
	if (number < 0 && *name >= '0' && *name <= '9')
		number = strtol(name, NULL, 0);
	if (number >= 0)
		return (int)syscall(number, n[0], n[1], n[2], n[3], n[4], n[5]);
	errno = ENOEXEC; /* nothing else here gives that: the command is wrong, or the processor lacks it */
	return -1;
}

/* A call by the numbers of 32 bit programs, for which the filter has no rules: getpid(). */
static int try_old_numbers(void)
{
#ifdef __x86_64__
	int r;

	__asm__ volatile("int $0x80" : "=a"(r) : "0"(20) : "memory");
	return r;
#else
	errno = ENOEXEC;
	return -1;
#endif
}

/* Code that the process has written, or that is in a file. */
static int try_code(const char *path)
{
	int fd = *path ? open(path, O_RDONLY) : memfd_create("code", 0);

	if (fd < 0 || (!*path && write(fd, "\xc3", 1) != 1))
		return -1;
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0;
}

/* The same, by a change of what a page may be. */
static int try_protect(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return page == MAP_FAILED ? -1 : mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

/* The mode of a file that is open for reading only. */
static int try_mode(char *words)
{
	const char *path = strtok(words, " ");
	int fd = open(path, O_RDONLY);

	return fd < 0 ? -1 : fchmod(fd, (mode_t)strtoul(strtok(NULL, " "), NULL, 8));
}

static int try_fcntl(char *words)
{
	int command = atoi(strtok(words, " ")), fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	return fcntl(fds[0], command, strtol(strtok(NULL, " "), NULL, 0));
}

static int try_connect(char *words)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = inet_addr(strtok(words, " "));
	a.sin_port = htons((uint16_t)atoi(strtok(NULL, " ")));
	return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof(a));
}

static int try_bind(const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return fd < 0 ? -1 : bind(fd, (struct sockaddr *)&a, sizeof(a));
}

static int try_read(const char *path)
{
	/* glibc 2.41 extends the sign of AT_FDCWD, older versions do not */
	int fd = (int)syscall(SYS_openat, (unsigned)AT_FDCWD, path, O_RDONLY),
	    same = (int)syscall(SYS_openat, (long)AT_FDCWD, path, O_RDONLY);
	char c;

	return fd < 0 || same < 0 ? -1 : (int)read(fd, &c, 1);
}

static int try(char *line)
{
	char *rest = line + strcspn(line, " ");

	if (*rest)
		*rest++ = '\0';
	if (strcmp(line, "read") == 0)
		return try_read(rest);
	if (strcmp(line, "write") == 0)
		return open(rest, O_WRONLY);
	if (strcmp(line, "truncate") == 0)
		return open(rest, O_RDONLY | O_TRUNC);
	if (strcmp(line, "create") == 0)
		return open(rest, O_WRONLY | O_CREAT, 0600);
	if (strcmp(line, "remove") == 0)
		return unlinkat(AT_FDCWD, rest, 0);
	if (strcmp(line, "connect") == 0)
		return try_connect(rest);
	if (strcmp(line, "bind") == 0)
		return try_bind(rest);
	if (strcmp(line, "family") == 0)
		return socket(atoi(rest), SOCK_STREAM, 0);
	if (strcmp(line, "memory") == 0)
		return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ?
			       -1 :
			       0;
	if (strcmp(line, "code") == 0)
		return try_code(rest);
	if (strcmp(line, "protect") == 0)
		return try_protect();
	if (strcmp(line, "mode") == 0)
		return try_mode(rest);
	if (strcmp(line, "setid") == 0)
		return open(rest, O_WRONLY | O_CREAT, 04755);
	if (strcmp(line, "fcntl") == 0)
		return try_fcntl(rest);
	if (strcmp(line, "old") == 0)
		return try_old_numbers();
	return try_call(rest);
}

/* Not by stdio: exit() of glibc 2.41 waits for the lock of a stream that is being read. */
static bool read_line(int fd, char *ret, size_t n)
{
	for (size_t i = 0; i < n && read(fd, ret + i, 1) == 1; i++)
		if (ret[i] == '\n') {
			ret[i] = '\0';
			return true;
		}
	return false;
}

static void *serve(void *arg)
{
	int fd = (int)(long)arg;
	char line[4096];

	while (read_line(fd, line, sizeof(line))) {
		errno = 0;
		dprintf(fd, "%d\n", try(line) < 0 ? errno : 0);
	}
	return NULL;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	const char *fd = getenv("PROBE_FD");
	void *number;
	pthread_t probe;

	if (!real) {
		real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
				void *))dlsym(RTLD_NEXT, "pthread_create");
		if (fd) {
			number = (void *)(long)atoi(fd + strlen("/dev/fd/"));
			if (getenv("PROBE_WAIT"))
				serve(number);
			else
				real(&probe, NULL, serve, number);
		}
	}
	return real(thread, attr, start, arg);
}

/* With PROBE_NO_LANDLOCK, a kernel without it. */
long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long n[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		n[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_landlock_create_ruleset && getenv("PROBE_NO_LANDLOCK")) {
		errno = ENOSYS;
		return -1;
	}
	if (!real)
		real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	return real(number, n[0], n[1], n[2], n[3], n[4], n[5]);
}
