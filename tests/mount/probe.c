/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries things inside a running cartonfs or cartonctl, into which it is loaded by LD_PRELOAD. It
 * starts with the first thread of the program, which is confined by then; with PROBE_WAIT it comes
 * before that thread, else beside it. On the descriptor PROBE_FD it reads commands, each a line, and
 * answers each with a line: 0, or the errno.
 *
 *	read PATH | write PATH | create PATH | remove PATH	a file
 *	connect ADDRESS PORT | bind PORT | family NUMBER	a socket
 *	memory							a page that is written and run
 *	call NAME [NUMBER...]					a system call
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
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name)                \
	{                         \
#name, SYS_##name \
	}

static const struct {
	const char *name;
	long number;
} calls[] = {
	CALL(execve),
	CALL(execveat),
	CALL(ptrace),
	CALL(process_vm_readv),
	CALL(process_vm_writev),
	CALL(mount),
	CALL(umount2),
	CALL(move_mount),
	CALL(fsopen),
	CALL(pivot_root),
	CALL(chroot),
	CALL(init_module),
	CALL(finit_module),
	CALL(delete_module),
	CALL(bpf),
	CALL(keyctl),
	CALL(add_key),
	CALL(request_key),
	CALL(kexec_load),
	CALL(reboot),
	CALL(swapon),
	CALL(setns),
	CALL(unshare),
	CALL(open_by_handle_at),
	CALL(perf_event_open),
	CALL(userfaultfd),
	CALL(personality),
	CALL(io_uring_setup),
	CALL(kill),
	CALL(tgkill),
	CALL(fchmodat),
	CALL(fchownat),
	CALL(setxattr),
	CALL(mknodat),
	CALL(listen),
	CALL(accept4),
	CALL(setuid),
	CALL(setresuid),
	CALL(capset),
	CALL(clone),
	CALL(clone3),
	CALL(pidfd_getfd),
	CALL(syslog),
	CALL(getpid),
	CALL(ioctl),
	CALL(prctl),
#ifdef SYS_iopl
	CALL(iopl),
	CALL(ioperm),
#endif
};

static int try_call(char *words)
{
	char *name = strtok(words, " "), *word;
	long n[6] = { 0 };

	for (int i = 0; i < 6 && (word = strtok(NULL, " ")); i++)
		n[i] = (long)strtoul(word, NULL, 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (strcmp(calls[i].name, name) == 0)
			return (int)syscall(calls[i].number, n[0], n[1], n[2], n[3], n[4], n[5]);
	errno = ENOEXEC; /* nothing else here gives that: the command is wrong */
	return -1;
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
	if (strcmp(line, "create") == 0)
		return open(rest, O_WRONLY | O_CREAT, 0600);
	if (strcmp(line, "remove") == 0)
		return unlink(rest);
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
			number = (void *)(long)atoi(fd);
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
