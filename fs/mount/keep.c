/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "mount/keep_files.h"
#include "process/mountpoint.h"
#include "process/notify.h"
#include "common/numbers.h"
#include "process/options.h"

/* flags of Linux 6.9, which older headers do not have */
#define INIT_HAS_RESEND (1U << (39 - 32))
#define NOTIFY_RESEND 7
#define FIRST_FD 3
/* of struct keep_state; a state of another version is not read */
#define STATE_VERSION 4
/* after so many restarts in so many seconds, some request kills each process */
#define MAX_RESTARTS 8
#define RESTARTS_S 60

struct keep_state {
	uint32_t version;
	uint32_t epoch;		 /* of the process that serves now */
	uint32_t n_init;	 /* bytes of `init`; 0: the rest is not set */
	uint32_t n_reply;	 /* of `reply` */
	char program[32];	 /* its version: another version may generate other files */
	char identity[256];	 /* of the carton and options: equal in the next process */
	unsigned char init[256]; /* the INIT request, and its reply without the header */
	unsigned char reply[256];
	_Atomic uint64_t pushes[MAX_PUSHES]; /* see struct mount */
	int64_t restarts[MAX_RESTARTS];	     /* when: seconds since the boot; by epoch */
	int64_t first;			     /* when the first process began, since 1970 */
};

static int failed(const char *what, int r)
{
	carton_log(CARTON_LOG_ERROR, NULL, "cannot take over the mount of the last process: %s: %s",
		   what, strerror(-r));
	return r;
}

/* ---- what the service manager passes ---- */

/*
 * Takes the descriptor called `name`: its number. `names` lists descriptors from FIRST_FD on, with
 * colons between; -1: none.
 */
static int take_passed(const char *names, const char *name)
{
	size_t len = strlen(name);
	int found = -1;

	for (int fd = FIRST_FD; names; fd++) {
		if (strncmp(names, name, len) == 0 && (names[len] == ':' || names[len] == '\0'))
			found = fd;
		names = strchr(names, ':');
		names = names ? names + 1 : NULL;
	}
	if (found >= 0)
		fcntl(found, F_SETFD, FD_CLOEXEC);
	return found;
}

static int map(struct keep *k)
{
	void *p = mmap(NULL, sizeof(*k->state), PROT_READ | PROT_WRITE, MAP_SHARED, k->memory, 0);

	if (p == MAP_FAILED)
		return -errno;
	k->state = p;
	return 0;
}

/* Maps the state of an earlier process. */
static int take_state(struct keep *k, int fd)
{
	struct stat st;
	int r;

	k->memory = fd;
	if (fstat(fd, &st) < 0)
		return failed("state", -errno);
	r = st.st_size >= (off_t)sizeof(*k->state) ? map(k) : -EPROTO;
	if (r == 0 && (k->state->version != STATE_VERSION || !k->state->n_init ||
		       !k->state->epoch || k->state->n_init > sizeof(k->state->init) ||
		       k->state->n_reply > sizeof(k->state->reply) || k->state->epoch >= INT16_MAX))
		r = -EPROTO;
	if (r < 0)
		return failed("state", r);
	k->resumed = true;
	return 0;
}

int keep_take(struct keep *k, char **mountpoint)
{
	const char *pid = getenv("LISTEN_PID"), *names = getenv("LISTEN_FDNAMES");
	unsigned long n;
	char *path;
	int device, state;

	*k = (struct keep){ .memory = -1, .marker = -1, .source = -1 };
	if (!mountpoint_is_device(*mountpoint) || !getenv("RUNTIME_DIRECTORY") || !names || !pid ||
	    !parse_number(pid, 10, INT_MAX, &n) || (pid_t)n != getpid())
		return 0;
	device = take_passed(names, NOTIFY_DEVICE);
	state = take_passed(names, NOTIFY_STATE);
	k->source = take_passed(names, NOTIFY_SOURCE);
	if (device < 0)
		return 0;
	path = keep_file(KEEP_MARKER);
	if (!path)
		return -ENOMEM;
	k->marker = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	free(path);
	k->wanted = k->marker >= 0;
	if (state >= 0)
		k->failed = take_state(k, state);
	return mountpoint_set_device(mountpoint, device);
}

/* Maps a state that the next process will get. */
static bool make_state(struct keep *k)
{
	k->memory = memfd_create("cartonfs-state", MFD_CLOEXEC);
	if (k->memory < 0 || ftruncate(k->memory, sizeof(*k->state)) < 0 || map(k) < 0)
		return false;
	k->state->first = time(NULL);
	return true;
}

void keep_open(struct keep *k)
{
	if (k->failed < 0)
		return;
	if (k->wanted && !k->resumed)
		k->wanted = make_state(k) && notify_store(k->memory, NOTIFY_STATE) == 0;
	if (!k->wanted)
		notify_forget();
}

int64_t keep_first(const struct keep *k)
{
	return k->state ? k->state->first : time(NULL);
}

void keep_end(struct keep *k)
{
	if (!k->wanted && !k->resumed)
		return;
	k->wanted = k->resumed = false;
	if (k->mount) {
		inode_notes_free(k->mount->notes);
		k->mount->notes = NULL;
	}
	/* readers get ENOTCONN once the service manager has closed the device */
	notify_forget();
	if (k->marker >= 0 && ftruncate(k->marker, 0) < 0)
		failed(KEEP_MARKER, -errno);
}

/* ---- the exchange with the kernel ---- */

/*
 * Writes the identity: if it differs, the kernel may have cached names or bytes of another carton.
 */
static int identify(const struct keep *k, const struct options *o, char ret[256])
{
	const struct mount *m = k->mount;
	char layout[65];
	int r = carton_layout(m->carton, layout);

	if (r < 0)
		return failed("layout", r);
	memset(ret, 0, 256);
	snprintf(ret, 256, "%s %u:%u %o %u %d %d %d", layout, m->uid, m->gid, m->umask, m->max_read,
		 (int)o->values.carton.verify, o->values.carton.chunks,
		 o->values.carton.views_hidden);
	return 0;
}

/* The reply to INIT is a header and a fuse_init_out. Only one thread runs until it is sent. */
static struct fuse_init_out *init_reply(const struct iovec *iov, int n)
{
	return n == 2 && iov[1].iov_len >= sizeof(struct fuse_init_out) ? iov[1].iov_base : NULL;
}

static void save_reply(struct keep *k, const struct iovec *iov, int n)
{
	if (!init_reply(iov, n) || iov[1].iov_len > sizeof(k->state->reply))
		return;
	k->state->n_reply = (uint32_t)iov[1].iov_len;
	memcpy(k->state->reply, iov[1].iov_base, iov[1].iov_len);
}

/* The kernel already has a reply to INIT: this one must be equal to it. */
static bool is_same_reply(const struct keep_state *s, const struct iovec *iov, int n)
{
	return init_reply(iov, n) && iov[1].iov_len == s->n_reply &&
	       memcmp(iov[1].iov_base, s->reply, s->n_reply) == 0;
}

static bool has_resend(const unsigned char *message, size_t n)
{
	struct fuse_init_in in;

	if (n < sizeof(struct fuse_in_header) + sizeof(in))
		return false;
	memcpy(&in, message + sizeof(struct fuse_in_header), sizeof(in));
	return in.flags & FUSE_INIT_EXT && in.flags2 & INIT_HAS_RESEND;
}

static int mark(const struct keep *k)
{
	static const char text[] = "this mount outlives the process\n";

	return write(k->marker, text, strlen(text)) < 0 ? failed(KEEP_MARKER, -errno) : 0;
}

/* Decides whether the mount outlives the process. */
static void settle(struct keep *k, bool possible)
{
	if (possible && mark(k) == 0)
		return;
	carton_log(CARTON_LOG_INFO, NULL,
		   "readers will not survive a restart: that needs Linux 6.9");
	keep_end(k);
}

static ssize_t on_writev(int fd, struct iovec *iov, int n, void *userdata)
{
	struct mount *m = userdata;
	struct keep *k = m->keep;
	struct fuse_init_out *init = m->in_init ? init_reply(iov, n) : NULL;
	ssize_t sent;

	if (!m->in_init)
		return writev(fd, iov, n);
	m->in_init = false;
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 17)
	/* libfuse before 3.17 ignores FUSE_CAP_PARALLEL_DIROPS: add the flag to its reply */
	if (init)
		init->flags |= FUSE_PARALLEL_DIROPS;
#endif
	if (k && k->resumed) {
		k->failed = is_same_reply(k->state, iov, n) ? 0 : -EPROTO;
		return (ssize_t)(iov[0].iov_len + (n == 2 ? iov[1].iov_len : 0));
	}
	if (k && k->wanted)
		save_reply(k, iov, n);
	sent = writev(fd, iov, n);
	if (k && k->wanted)
		settle(k, sent >= 0 && init && k->state->n_reply &&
				  has_resend(k->state->init, k->state->n_init));
	return sent;
}

/* The first request is INIT. */
static ssize_t on_read(int fd, void *buf, size_t n, void *userdata)
{
	const struct mount *m = userdata;
	struct keep *k = m->keep;
	ssize_t got = read(fd, buf, n);

	if (k && k->wanted && !k->state->n_init && got > 0 &&
	    (size_t)got <= sizeof(k->state->init)) {
		memcpy(k->state->init, buf, (size_t)got);
		k->state->n_init = (uint32_t)got;
	}
	return got;
}

/* Drops pages that were pushed but not verified. They have no readers: see push.h. */
static int drop_pushed(const struct keep *k)
{
	for (size_t i = 0; i < MAX_PUSHES; i++) {
		fuse_ino_t ino = k->state->pushes[i];
		int r = ino ? fuse_lowlevel_notify_inval_inode(k->mount->session, ino, 0, 0) : 0;

		if (r < 0 && r != -ENOENT)
			return failed("page cache", r);
		k->state->pushes[i] = 0;
	}
	return 0;
}

static int ask_again(int fd)
{
	struct fuse_out_header out = { .len = sizeof(out), .error = NOTIFY_RESEND };

	return write(fd, &out, sizeof(out)) < 0 ? failed("resend", -errno) : 0;
}

/* Generated files can be found by inode number only if this program generates the same ones. */
static int open_known(struct keep *k)
{
	struct mount *m = k->mount;
	off_t start = (off_t)sizeof(*k->state);
	int r = 0;

	if (strcmp(k->state->program, CARTON_VERSION) != 0 && ftruncate(k->memory, start) < 0)
		r = -errno;
	if (r == 0)
		r = inode_notes_new(k->memory, start, m, &m->notes);
	strcpy(k->state->program, CARTON_VERSION);
	return r < 0 ? failed("generated files", r) : 0;
}

/*
 * Counts this restart. The kernel sends unanswered requests again, and one of them may end each
 * process.
 */
static int count_restart(struct keep_state *s)
{
	int64_t *earlier = &s->restarts[s->epoch % MAX_RESTARTS];
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	if (*earlier && *earlier > now.tv_sec - RESTARTS_S) {
		carton_log(
			CARTON_LOG_ERROR, NULL,
			"the process has ended %d times within %d s: the mount is made anew, and "
			"its readers get ENOTCONN",
			MAX_RESTARTS, RESTARTS_S);
		return -EAGAIN;
	}
	*earlier = now.tv_sec;
	return 0;
}

static int resume(struct keep *k)
{
	struct fuse_session *se = k->mount->session;
	unsigned char init[sizeof(k->state->init)];
	struct fuse_buf buf = { .mem = init, .size = k->state->n_init };
	int r;

	r = count_restart(k->state);
	if (r < 0)
		return r;
	k->mount->epoch = (uint16_t)++k->state->epoch;
	r = open_known(k);
	if (r < 0)
		return r;
	memcpy(init, k->state->init, sizeof(init));
	/* on_writev() compares the reply of libfuse, and does not send it */
	k->mount->in_init = true;
	k->failed = -EPROTO;
	fuse_session_process_buf(se, &buf);
	k->mount->in_init = false;
	if (k->failed < 0)
		return failed("libfuse negotiated other INIT options than the previous process",
			      k->failed);
	r = drop_pushed(k);
	if (r == 0)
		r = ask_again(fuse_session_fd(se));
	if (r == 0)
		r = mark(k);
	if (r == 0)
		carton_log(CARTON_LOG_INFO, NULL, "took over the mount of the last process");
	return r;
}

int keep_begin(struct keep *k, struct mount *m, const struct options *o)
{
	static const struct fuse_custom_io io = { .writev = on_writev, .read = on_read };
	bool old = FUSE_VERSION < FUSE_MAKE_VERSION(3, 17);
	char identity[256];
	int r;

	if (k->failed < 0)
		return k->failed;
	/*
	 * with passthrough the kernel reads open files by itself, and the next process would not
	 * know of them
	 */
	if (m->passthrough) {
		if (k->resumed)
			return failed("passthrough", -EOPNOTSUPP);
		keep_end(k);
	}
	k->mount = m;
	m->keep = k;
	if (k->wanted) {
		r = identify(k, o, identity);
		if (r < 0)
			return r;
		m->pushes = k->state->pushes;
	}
	/*
	 * without these hooks readers do not survive, and with an old libfuse lookups stay serial
	 */
	if ((old || k->wanted) &&
	    fuse_session_custom_io(m->session, &io, fuse_session_fd(m->session)) < 0)
		keep_end(k);
	if (!k->wanted)
		return 0;
	if (k->resumed)
		return memcmp(k->state->identity, identity, sizeof(identity)) == 0 ?
			       resume(k) :
			       failed("the carton or its options have changed", -ESTALE);
	memcpy(k->state->identity, identity, sizeof(identity));
	k->state->version = STATE_VERSION;
	k->state->epoch = m->epoch;
	return open_known(k);
}
