/* SPDX-License-Identifier: Apache-2.0 */
#include "process/mounter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "process/daemon.h"
#include "process/opener.h"
#include "process/message.h"
#include "process/mountpoint.h"
#include "process/unmount.h"
#include "process/writer.h"
#include "common/text.h"

#define MAX_TEXT 2048
/* in the process: the number of its socket, and that of the mountpoint */
#define SOCKET 3
#define DIRECTORY 4
/*
 * With 512 instead of 128, a loader that copies tensors out of a mapping takes 0.75 of the time, a
 * sequential reader 0.8. More gains little, and each random fault reads as much.
 */
#define READ_AHEAD_KIB "512"

enum request_kind {
	REQUEST_MOUNT,
	REQUEST_UNMOUNT,
	REQUEST_LOG,
	REQUEST_OPEN_FILES, /* with the two descriptors */
	REQUEST_READ_AHEAD,
	REQUEST_BACKING_OPEN,  /* with the device and the file */
	REQUEST_BACKING_CLOSE, /* with the device; the text is the id */
	REQUEST_QUIT,
	REQUEST_LOST, /* the text is how many lines were not sent */
};

/* One datagram; only the used part of `text` is sent. */
struct request {
	int kind;
	int priority;
	char text[MAX_TEXT];
};

#define HEADER_SIZE offsetof(struct request, text)

/* ---- the process ---- */

/* Each answer to the daemon. */
struct answer {
	int result;
	struct mountinfo_copy mount; /* the new mount (its device only), or the one on top of it */
};

struct state {
	const struct mounting *mounting;
	bool mounted, unmounted;
	bool covered; /* the mount could not be unmounted: another is on it or in it */
	int socket;
	struct opener opener;
	struct writer *log; /* to syslog(3), which waits for as long as nobody reads /dev/log */
};

/*
 * Closes the device in this process, so that the connection ends with the daemon. libfuse closes
 * the descriptor number when it unmounts, so /dev/null gets this number.
 */
static void give_up_device(int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0)
		close(fd);
	close(null);
}

static void close_both(int fds[2])
{
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

/* Ignores errors: if the daemon has ended, the next message_receive() returns 0. */
static void put_answer(int socket, const struct answer *a, int fd)
{
	message_send(socket, a, sizeof(*a), &fd, fd >= 0);
}

static void reply(int socket, int result)
{
	const struct answer a = { .result = result };

	put_answer(socket, &a, -1);
}

/* Without the right or without sysfs, the readahead stays at 128 KiB. */
static void read_ahead(const struct state *s)
{
	char path[64];
	int fd;

	if (!*s->mounting->place->device)
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", s->mounting->place->device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)!write(fd, READ_AHEAD_KIB, strlen(READ_AHEAD_KIB));
	close(fd);
}

static void do_mount(struct state *s)
{
	const struct options *o = s->mounting->options;
	struct place *place = s->mounting->place;
	struct answer a = { .result = -EIO };
	int fd;

	if (!s->mounted)
		a.result = place_mount(place, s->mounting->session, o->mountpoint,
				       o->helped || !mountpoint_may_mount());
	if (a.result < 0 && a.result != -ESTALE) {
		mountpoint_explain();
		reply(s->socket, -EIO);
		return;
	}
	s->mounted = true;
	a.result = 0;
	strcpy(a.mount.device, place->device);
	place_close(place);
	fd = fuse_session_fd(s->mounting->session);
	put_answer(s->socket, &a, fd);
	give_up_device(fd);
	/*
	 * Not earlier: an automounter (autofs, systemd) identifies the process that mounts by its
	 * process group, and makes all others wait at the mountpoint.
	 */
	setsid();
	if (!o->values.foreground)
		daemon_drop_terminal();
}

/* Blocks or unblocks SIGTERM: it ends this process once that has nothing to do but to wait. */
static void change_term(int how)
{
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(how, &term, NULL);
}

/* Did SIGTERM come, as when all processes of a service are ended? */
static bool shall_end(void)
{
	sigset_t came;

	return sigpending(&came) == 0 && sigismember(&came, SIGTERM) == 1;
}

static void do_unmount(struct state *s)
{
	const char *device = s->mounting->place->device;
	struct answer a = { .result = 0 };

	/* after the unmount, another file system may get the number */
	if (s->mounted && !*device)
		a.result = -ESTALE;
	else if (s->mounted && !s->unmounted)
		a.result = unmount_device(device, NULL, true, &a.mount);
	s->unmounted = a.result == 0;
	if (a.result == -ENOTEMPTY && shall_end())
		a.result = -EINTR;
	s->covered = a.result == -ENOTEMPTY;
	put_answer(s->socket, &a, -1);
}

/*
 * Unmounts the file system as soon as nothing is mounted on it or in it: poll(2) tells when the
 * list of mounts changes. SIGTERM ends this.
 */
static void wait_until_free(const char *device)
{
	struct pollfd p = { open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC), POLLPRI, 0 };
	struct mountinfo_copy top;

	while (p.fd >= 0 && unmount_device(device, NULL, true, &top) == -ENOTEMPTY)
		while (poll(&p, 1, -1) < 0 && errno == EINTR)
			;
	if (p.fd >= 0)
		close(p.fd);
}

/*
 * Is the file open for reading? For a file that is open as a path only, the kernel checks no right
 * of the daemon, and opens it with the rights of this process.
 */
static bool is_readable(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_WRONLY;
}

/*
 * Registers a file. The device must be that of this mount: another device may understand the same
 * ioctl number differently.
 */
static void backing_open(const struct state *s, const int fds[2])
{
	struct fuse_backing_map map = { .fd = fds[1] };
	int id = -EBADF;

	if (mountpoint_is_fuse(fds[0]) && is_readable(fds[1])) {
		id = ioctl(fds[0], FUSE_DEV_IOC_BACKING_OPEN, &map);
		id = id < 0 ? -errno : id;
	}
	reply(s->socket, id);
}

static void backing_close(const struct request *q, size_t size, int device)
{
	uint32_t id;

	if (size != HEADER_SIZE + sizeof(id) || !mountpoint_is_fuse(device))
		return;
	memcpy(&id, q->text, sizeof(id));
	ioctl(device, FUSE_DEV_IOC_BACKING_CLOSE, &id);
}

/* A writer_fn. */
static void write_log(void *ctx, const struct writer_line *line)
{
	(void)ctx;
	if (line->lost)
		syslog(LOG_WARNING, "%u " WRITER_LOST, line->lost);
	if (line->text)
		syslog(line->priority, "%s", line->text);
}

/*
 * Logs a line of the daemon. It is escaped here: a daemon that a carton has taken over may send
 * anything.
 */
static void put_log(struct state *s, const struct request *q, int n)
{
	struct writer_line line = { .priority = q->priority & LOG_PRIMASK };
	char text[2 * MAX_TEXT];

	if (!s->log)
		s->log = writer_start(write_log, NULL);
	if (!s->log)
		return;
	line.text = strdup(text_format(text, sizeof(text), "%.*s", n, q->text));
	writer_put(s->log, &line, false);
}

/* Counts lines that the daemon could not send: a line that says so might be lost itself. */
static void put_lost(struct state *s, const struct request *q, size_t size)
{
	unsigned n;

	if (size != HEADER_SIZE + sizeof(n))
		return;
	if (!s->log)
		s->log = writer_start(write_log, NULL);
	memcpy(&n, q->text, sizeof(n));
	if (s->log)
		writer_lost(s->log, n);
}

/*
 * Takes the descriptors, once, and only if the first is a seccomp listener: poll(2) may report
 * another file as readable for ever.
 */
static void open_files(struct state *s, int fds[2])
{
	if (s->opener.fds[0] >= 0 || !opener_is_listener(fds[0]))
		return;
	memcpy(s->opener.fds, fds, sizeof(s->opener.fds));
	fds[0] = fds[1] = -1;
}

/*
 * Does one of the requests of the enum, and nothing else, as a carton may have taken over the
 * daemon. False: REQUEST_QUIT.
 */
static bool serve(struct state *s, const struct request *q, size_t size, int fds[2])
{
	if (size < HEADER_SIZE)
		return true;
	switch (q->kind) {
	case REQUEST_MOUNT:
		do_mount(s);
		break;
	case REQUEST_UNMOUNT:
		do_unmount(s);
		break;
	case REQUEST_READ_AHEAD:
		read_ahead(s);
		break;
	case REQUEST_LOG:
		put_log(s, q, (int)(size - HEADER_SIZE));
		break;
	case REQUEST_LOST:
		put_lost(s, q, size);
		break;
	case REQUEST_OPEN_FILES:
		open_files(s, fds);
		break;
	case REQUEST_BACKING_OPEN:
		backing_open(s, fds);
		break;
	case REQUEST_BACKING_CLOSE:
		backing_close(q, size, fds[0]);
		break;
	case REQUEST_QUIT:
		return false;
	}
	return true;
}

/*
 * The daemon was killed. fusermount3 with auto_unmount waits for this process to end, then checks
 * whether the mount is dead. The mount is dead once the kernel has closed the daemon's descriptors,
 * so this waits for that.
 */
static void wait_for_end(int daemon)
{
	struct pollfd p = { daemon, POLLIN, 0 };

	while (daemon >= 0 && poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

/* True: the daemon has sent REQUEST_QUIT; false: it has ended. */
static bool run(struct state *s)
{
	struct request q;
	bool more = true;
	int fds[2];
	ssize_t n;

	while (more) {
		struct pollfd p[] = { { s->socket, POLLIN, 0 }, { s->opener.fds[0], POLLIN, 0 } };

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[1].revents & POLLIN)
			opener_answer(&s->opener);
		else if (p[1].revents)
			close_both(s->opener.fds);
		if (!p[0].revents)
			continue;
		n = message_receive(s->socket, &q, sizeof(q), fds);
		if (n <= 0) {
			close_both(fds);
			return false;
		}
		more = serve(s, &q, (size_t)n, fds);
		close_both(fds);
	}
	return true;
}

bool mounter_serve(const struct mounting *m, int socket)
{
	const struct options *o = m->options;
	struct state s = { .mounting = m, .socket = socket };
	bool quit;

	opener_init(&s.opener, &o->values.carton, o->source);
	quit = run(&s);
	close_both(s.opener.fds);
	opener_finish(&s.opener);
	writer_stop(s.log);
	if (s.covered) {
		/* this may take days: nobody should wait for the end of the output meanwhile */
		daemon_drop_terminal();
		change_term(SIG_UNBLOCK);
		wait_until_free(m->place->device);
	}
	return quit;
}

static void ignore_signals(void)
{
	static const int signals[] = { SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2 };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_IGN);
	change_term(SIG_BLOCK);
	signal(SIGTERM, SIG_DFL);
}

/*
 * Closes all descriptors of the daemon but the socket and the mountpoint: the process that started
 * the daemon waits for the end of a pipe.
 */
static void keep_two(int socket, int *dir)
{
	int copy = *dir < 0 ? -1 : fcntl(*dir, F_DUPFD_CLOEXEC, DIRECTORY + 1);

	if (socket != SOCKET)
		dup3(socket, SOCKET, O_CLOEXEC);
	if (copy >= 0)
		dup3(copy, DIRECTORY, O_CLOEXEC);
	*dir = copy < 0 ? -1 : DIRECTORY;
	syscall(SYS_close_range, copy < 0 ? DIRECTORY : DIRECTORY + 1, ~0U, 0);
}

/* Survives the end of the terminal. */
_Noreturn static void process(const struct mounting *m, int fd, pid_t daemon)
{
	static char ident[32];
	int pidfd; /* -1: the kernel has none */

	ignore_signals();
	keep_two(fd, &m->place->dir);
	pidfd = (int)syscall(SYS_pidfd_open, daemon, 0);
	carton_rename_process("cartonfs: mounter", "cartonfs-mount");
	(void)!chdir("/");
	snprintf(ident, sizeof(ident), "cartonfs[%d]", (int)daemon);
	openlog(ident, 0, LOG_DAEMON);
	if (!mounter_serve(m, SOCKET))
		wait_for_end(pidfd);
	_exit(0);
}

/* ---- its caller ---- */

int mounter_start(const struct mounting *m, struct mounter *ret)
{
	pid_t daemon = getpid(), pid;
	int fds[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		process(m, fds[1], daemon);
	r = -errno;
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return r;
	}
	*ret = (struct mounter){ .fd = fds[0], .pid = pid };
	return 0;
}

static int ask(const struct mounter *m, enum request_kind kind, const int *fds, size_t n)
{
	const struct request q = { .kind = kind };

	return message_send(m->fd, &q, HEADER_SIZE, fds, n);
}

/* Receives an answer. ret_fd and ret_mount may be NULL; *ret_fd is set only if the result is 0. */
static int answer(const struct mounter *m, int *ret_fd, struct mountinfo_copy *ret_mount)
{
	struct answer a;
	int fds[2];
	ssize_t n = message_receive(m->fd, &a, sizeof(a), fds);

	if (n != sizeof(a))
		return n < 0 ? (int)n : -EPIPE;
	if (ret_mount)
		*ret_mount = a.mount;
	if (a.result == 0 && ret_fd) {
		if (fds[0] < 0)
			return -EPROTO;
		*ret_fd = fds[0];
	}
	return a.result;
}

int mounter_mount(struct mounter *m, int *ret_fd, char ret_device[32])
{
	struct mountinfo_copy mount;
	int r = ask(m, REQUEST_MOUNT, NULL, 0);

	r = r < 0 ? r : answer(m, ret_fd, &mount);
	if (r == 0)
		strcpy(ret_device, mount.device);
	return r;
}

int mounter_unmount(struct mounter *m, struct mountinfo_copy *ret_top)
{
	int r = ask(m, REQUEST_UNMOUNT, NULL, 0);

	r = r < 0 ? r : answer(m, NULL, ret_top);
	m->lingers = r == -ENOTEMPTY;
	return r;
}

/* Lines that the socket had no room for. */
static _Atomic unsigned lost;

/* Says how many were lost. Safe in a signal handler. */
static void send_lost(const struct mounter *m)
{
	struct request q = { .kind = REQUEST_LOST };
	const unsigned n = atomic_exchange(&lost, 0);

	memcpy(q.text, &n, sizeof(n));
	if (n && datagram_send(m->fd, &q, HEADER_SIZE + sizeof(n)) < 0)
		lost += n;
}

/*
 * Sends a line, or counts it as lost if the socket has no room. How many were lost follows the next
 * one that is sent. Safe in a signal handler.
 */
static void send_log(const struct mounter *m, struct request *q, size_t n)
{
	if (datagram_send(m->fd, q, HEADER_SIZE + n) < 0)
		lost++;
	else
		send_lost(m);
}

void mounter_log(const struct mounter *m, int priority, const char *fmt, ...)
{
	struct request q = { .kind = REQUEST_LOG, .priority = priority };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(q.text, sizeof(q.text), fmt, ap);
	va_end(ap);
	send_log(m, &q, strlen(q.text));
}

void mounter_log_line(const struct mounter *m, int priority, const char *subject, const char *line)
{
	struct request q = { .kind = REQUEST_LOG, .priority = priority };
	const char *const parts[] = { subject, ": ", line };
	size_t used = 0;

	for (size_t i = 0; i < 3; i++)
		for (const char *p = parts[i]; *p && used < sizeof(q.text); p++)
			q.text[used++] = *p;
	send_log(m, &q, used);
}

void mounter_read_ahead(struct mounter *m)
{
	ask(m, REQUEST_READ_AHEAD, NULL, 0);
}

int mounter_open_files(struct mounter *m, int listener, int memory)
{
	return ask(m, REQUEST_OPEN_FILES, (int[]){ listener, memory }, 2);
}

int mounter_backing_open(const struct mounter *m, int device, int fd)
{
	int r = ask(m, REQUEST_BACKING_OPEN, (int[]){ device, fd }, 2);

	return r < 0 ? r : answer(m, NULL, NULL);
}

void mounter_backing_close(const struct mounter *m, int device, int id)
{
	struct request q = { .kind = REQUEST_BACKING_CLOSE };
	const uint32_t number = (uint32_t)id;

	memcpy(q.text, &number, sizeof(number));
	message_send(m->fd, &q, HEADER_SIZE + sizeof(number), &device, 1);
}

void mounter_stop(struct mounter *m)
{
	if (m->fd < 0)
		return;
	/* no next line says so */
	send_lost(m);
	ask(m, REQUEST_QUIT, NULL, 0);
	close(m->fd);
	m->fd = -1;
	while (!m->lingers && waitpid(m->pid, NULL, 0) < 0 && errno == EINTR)
		;
}
