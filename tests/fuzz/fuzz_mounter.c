/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any datagrams to the mounter, as from a daemon in other hands. What it would do to the system is
 * replaced (WRAP in the Makefile), and must be what its list of requests names: the mountpoint of
 * the command line, two ioctls of a FUSE device, five files of /etc and those of the options, the
 * readahead of its own mount. It answers each request that asks for it once, and keeps no
 * descriptor.
 *
 * The input: how poll(2) shows the listener, in 8 bytes; then datagrams, each
 *	kind, form, descriptors, size of the text, the text
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <syslog.h>
#include <unistd.h>

#include "process/mounter.h"
#include "process/writer.h"

#include "fuzz.h"

#define MOUNTPOINT "/proc"
#define MAX_DATAGRAMS 16 /* whose answers the socket holds until they are read */
#define MAX_TEXT 2048	 /* of the mounter */
#define HEADER_FILE "/h/f"
#define NETRC "/h/.netrc"
#define MAX_FDS 48 /* that a run may have open */

/* The requests, as fs/process/mounter.c numbers them. */
enum { MOUNT, UNMOUNT, LOG, OPEN_FILES, READ_AHEAD, BACKING_OPEN, BACKING_CLOSE, QUIT, LOST };

struct header {
	int kind, priority;
};

struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define IOC_BACKING_OPEN _IOW(229, 1, struct backing_map)
#define IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)

static int kinds
	[4]; /* descriptors to send: FUSE, a listener, memory, another device; -1: cannot be had */

static struct {
	const uint8_t *polls;
	unsigned n_polls;
	int device; /* of the session; -1: not mounted */
	bool mounted, refuse;
	unsigned asked[LOST + 1], done[LOST + 1], listens;
	int opened; /* a file of /etc; -1 */
} run;

static bool is_device(int fd, unsigned major_, unsigned minor_)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(major_, minor_);
}

static bool is_listener(int fd)
{
	struct stat st, genuine;
	char path[32], name[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fstat(fd, &st) == 0 && fstat(kinds[1], &genuine) == 0 &&
	       readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "seccomp");
}

/* ---- what it would do ---- */

int __real_poll(struct pollfd *p, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_ioctl(int fd, unsigned long command, void *arg);
void __wrap_syslog(int priority, const char *fmt, ...);
pid_t __wrap_setsid(void);
int __wrap_place_mount(struct place *p, struct fuse_session *se, const char *path, bool helped);
int __wrap_unmount_device(const char *device, const char *path, bool lazy,
			  struct mountinfo_copy *ret_top);
int __wrap_fuse_session_fd(struct fuse_session *se);

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout)
{
	unsigned what = run.n_polls < 8 ? run.polls[run.n_polls++] % 4 : 0;

	CHECK(n == 2);
	/* nothing may end with less than a look at the socket */
	if (p[1].fd < 0 || what == 0)
		return __real_poll(p, n, timeout);
	CHECK(is_listener(p[1].fd));
	p[0].revents = 0;
	p[1].revents = what == 1 ? POLLHUP : POLLIN;
	return 1;
}

int __wrap_open64(const char *path, int flags, ...)
{
	static const char *const listed[] = { "/etc/resolv.conf",
					      "/etc/hosts",
					      "/etc/host.conf",
					      "/etc/nsswitch.conf",
					      "/etc/gai.conf",
					      HEADER_FILE,
					      NETRC };
	struct stat st;
	char bdi[64];

	if (strcmp(path, "/dev/null") == 0)
		return __real_open64(path, flags);
	if (strncmp(path, "/sys/", 5) == 0) {
		CHECK(run.mounted && stat(MOUNTPOINT, &st) == 0);
		snprintf(bdi, sizeof(bdi), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev),
			 minor(st.st_dev));
		CHECK(strcmp(path, bdi) == 0 && (flags & O_ACCMODE) == O_WRONLY);
		run.done[READ_AHEAD]++;
		return __real_open64("/dev/null", O_WRONLY | O_CLOEXEC);
	}
	/* a FIFO must not keep it waiting */
	CHECK(flags == (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	for (size_t i = 0; i < sizeof(listed) / sizeof(listed[0]); i++)
		if (strcmp(path, listed[i]) == 0)
			return run.opened = run.polls[6] & 2 ? __real_open64("/dev/null",
									     O_RDONLY | O_CLOEXEC) :
							       memfd_create("listed", MFD_CLOEXEC);
	abort();
}

static int on_listener(int fd, unsigned long command, void *arg)
{
	CHECK(is_listener(fd));
	if (command == SECCOMP_IOCTL_NOTIF_RECV) {
		struct seccomp_notif *q = arg;

		for (size_t i = 0; i < sizeof(*q); i++)
			CHECK(((const char *)q)[i] == 0); /* the kernel demands it */
		run.listens++;
		q->id = 7;
		q->data.args[1] = run.polls[7] & 0x1f;
		return run.polls[6] & 1 ? (errno = ENOENT, -1) : 0;
	}
	if (command == SECCOMP_IOCTL_NOTIF_ADDFD) {
		const struct seccomp_notif_addfd *add = arg;

		CHECK(add->id == 7 && run.opened >= 0 && add->srcfd == (unsigned)run.opened);
		CHECK(!(run.polls[6] & 2)); /* that is no regular file */
		CHECK(add->newfd == 0 && add->newfd_flags == O_CLOEXEC);
		return 0;
	}
	CHECK(command == SECCOMP_IOCTL_NOTIF_SEND);
	CHECK(((const struct seccomp_notif_resp *)arg)->error == 0);
	return 0;
}

int __wrap_ioctl(int fd, unsigned long command, void *arg)
{
	const struct backing_map *map = arg;

	if (command != IOC_BACKING_OPEN && command != IOC_BACKING_CLOSE)
		return on_listener(fd, command, arg);
	CHECK(is_device(fd, 10, 229));
	run.done[command == IOC_BACKING_OPEN ? BACKING_OPEN : BACKING_CLOSE]++;
	if (command == IOC_BACKING_CLOSE)
		return 0;
	CHECK(map->flags == 0 && map->padding == 0 && map->fd > 2);
	CHECK(!(fcntl(map->fd, F_GETFL) & (O_PATH | O_WRONLY)));
	return 5;
}

void __wrap_syslog(int priority, const char *fmt, ...)
{
	const char *text;
	va_list ap;

	if (strcmp(fmt, "%u " WRITER_LOST) == 0) {
		CHECK(run.asked[LOST]);
		return;
	}
	va_start(ap, fmt);
	text = va_arg(ap, const char *);
	va_end(ap);
	CHECK((priority & ~LOG_PRIMASK) == 0 && strcmp(fmt, "%s") == 0);
	CHECK(strlen(text) < 2 * MAX_TEXT);
	/* nothing that a terminal would obey */
	for (; *text; text++)
		CHECK((unsigned char)*text >= ' ' && *text != 0x7f);
	run.done[LOG]++;
}

pid_t __wrap_setsid(void)
{
	CHECK(run.mounted);
	return 1;
}

int __wrap_place_mount(struct place *p, struct fuse_session *se, const char *path, bool helped)
{
	struct stat st;

	(void)helped;
	CHECK(!se && !run.mounted && !*p->device && strcmp(path, MOUNTPOINT) == 0);
	run.done[MOUNT]++;
	if (run.refuse)
		return -EIO;
	CHECK(stat(MOUNTPOINT, &st) == 0);
	snprintf(p->device, sizeof(p->device), "%u:%u", major(st.st_dev), minor(st.st_dev));
	run.device = __real_open64("/dev/null", O_RDWR | O_CLOEXEC);
	run.mounted = true;
	return 0;
}

int __wrap_unmount_device(const char *device, const char *path, bool lazy,
			  struct mountinfo_copy *ret_top)
{
	struct stat st;
	char own[32];

	CHECK(run.mounted && !path && lazy && ret_top && stat(MOUNTPOINT, &st) == 0);
	snprintf(own, sizeof(own), "%u:%u", major(st.st_dev), minor(st.st_dev));
	CHECK(strcmp(device, own) == 0);
	run.done[UNMOUNT]++;
	return 0;
}

int __wrap_fuse_session_fd(struct fuse_session *se)
{
	CHECK(!se && run.device >= 0);
	return run.device;
}

/* ---- what is asked ---- */

/*
 * 0: the end of the run: the mounter takes no bytes for the end of the daemon; or the socket is
 * full.
 */
static size_t send_one(int socket, const uint8_t **at, size_t n)
{
	uint8_t kind = (*at)[0], form = (*at)[1], which = (*at)[2];
	size_t text = (*at)[3] < n - 4 ? (*at)[3] : n - 4, size = sizeof(struct header) + text;
	struct header header = { (int)(kind <= LOST + 1 ? kind : kind * 0x01010101U),
				 (int)(form * 0x01020408U) };
	char all[sizeof(header) + 2 * MAX_TEXT] = { 0 },
				      control[CMSG_SPACE(3 * sizeof(int))] = { 0 };
	struct iovec iov = { all, size };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[3], count = 0;

	memcpy(all, &header, sizeof(header));
	memcpy(all + sizeof(header), *at + 4, text);
	*at += 4 + text;
	if (form & 1)
		iov.iov_len = size = form >> 4;
	else if (form & 2)
		iov.iov_len = size = sizeof(all) - (form >> 4);
	for (int i = 0; i < (which & 3); i++)
		if (kinds[which >> (2 + 2 * i) & 3] >= 0)
			fds[count++] = kinds[which >> (2 + 2 * i) & 3];
	if (count > 0) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(count * sizeof(int));
		*CMSG_FIRSTHDR(&m) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)),
						       .cmsg_level = SOL_SOCKET,
						       .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, count * sizeof(int));
	}
	if (sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		CHECK(errno == EAGAIN);
		return 0;
	}
	if (size >= sizeof(header) && header.kind >= 0 && header.kind <= LOST)
		run.asked[header.kind]++;
	return run.asked[QUIT] ? 0 : size;
}

static void check_answers(int socket)
{
	unsigned want = run.asked[MOUNT] + run.asked[UNMOUNT] + run.asked[BACKING_OPEN];
	char control[CMSG_SPACE(4 * sizeof(int))], text[8192] = { 0 };
	unsigned got = 0, with_fd = 0;

	for (;;) {
		struct iovec iov = { text, sizeof(text) };
		struct msghdr m = { .msg_iov = &iov,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;

		if (n <= 0)
			break;
		CHECK(n == sizeof(int) + sizeof(struct mountinfo_copy));
		got++;
		if (c) {
			CHECK(c->cmsg_len == CMSG_LEN(sizeof(int)));
			close(*(const int *)CMSG_DATA(c));
			with_fd++;
		}
	}
	CHECK(got == want && with_fd == run.mounted);
	CHECK(run.done[LOG] == run.asked[LOG] && run.done[MOUNT] <= run.asked[MOUNT]);
	for (int i = 0; i < QUIT; i++)
		CHECK(run.done[i] <= run.asked[i]);
	CHECK(run.listens == 0 || run.asked[OPEN_FILES]);
}

/* ---- the target ---- */

static uint64_t open_fds(void)
{
	uint64_t set = 0;

	for (int fd = 0; fd < MAX_FDS; fd++)
		set |= (uint64_t)(fcntl(fd, F_GETFD) >= 0) << fd;
	return set;
}

/* The thread of the listener lives as long as the process. */
static void *make_listener(void *ret)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { 1, &allow };
	int fd = -1;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				  SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	__atomic_store_n((int *)ret, fd, __ATOMIC_RELEASE);
	while (fd >= 0)
		pause();
	return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const char names[] = "/etc/hosts\0" HEADER_FILE "\0/etc/shadow";
	pthread_t thread;

	(void)argc;
	(void)argv;
	CHECK(setenv("HOME", "/h", 1) == 0);
	kinds[0] = __real_open64("/dev/fuse", O_RDWR | O_CLOEXEC);
	kinds[1] = -2;
	CHECK(pthread_create(&thread, NULL, make_listener, &kinds[1]) == 0);
	while (__atomic_load_n(&kinds[1], __ATOMIC_ACQUIRE) == -2)
		sched_yield();
	kinds[2] = memfd_create("memory", MFD_CLOEXEC);
	CHECK(write(kinds[2], names, sizeof(names)) == sizeof(names));
	kinds[3] = __real_open64("/dev/zero", O_RDWR | O_CLOEXEC);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct options o = {
		.source = "m.carton",
		.mountpoint = MOUNTPOINT,
		.values.foreground = true,
		.values.carton.header_file = HEADER_FILE,
	};
	const uint8_t *at = data + 8, *end = data + n;
	struct place place = { .dir = -1 };
	uint64_t before = open_fds();
	int pair[2];
	bool quit;

	if (n < 8)
		return 0;
	memset(&run, 0, sizeof(run));
	run.polls = data;
	run.device = run.opened = -1;
	run.refuse = data[5] & 0x80;
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	for (int i = 0; i < MAX_DATAGRAMS && end - at >= 4; i++)
		if (send_one(pair[0], &at, (size_t)(end - at)) == 0)
			break;
	shutdown(pair[0], SHUT_WR);
	quit = mounter_serve(&(struct mounting){ NULL, &o, &place }, pair[1]);
	CHECK(quit == (run.asked[QUIT] > 0));
	check_answers(pair[0]);
	close(pair[0]);
	close(pair[1]);
	if (run.device >= 0)
		close(run.device);
	CHECK(open_fds() == before);
	return 0;
}
