/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "dirops.h"
#include "mountpoint.h"
#include "notify.h"
#include "ops.h"
#include "progress.h"

struct session {
	struct options *options;
	struct mount mount;
	int status_fd; /* to tell the parent that it may go; -1: there is none */
	bool detached; /* stderr is gone: log to syslog */
};

/* ---- log ---- */

static void on_log(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	static const char *const prefixes[] = { "", "warning: ", "", "" };
	const struct session *s = ctx;

	if (level == CARTON_LOG_DEBUG && !s->options->debug)
		return;
	if (__atomic_load_n(&s->detached, __ATOMIC_ACQUIRE)) {
		syslog(priorities[level], "%s: %s%s%s", s->options->label, subject ? subject : "",
		       subject ? ": " : "", message);
		return;
	}
	progress_clear();
	fprintf(stderr, "cartonfs: %s%s%s%s\n", prefixes[level], subject ? subject : "",
		subject ? ": " : "", message);
}

/* libfuse's own words, by the same way. */
__attribute__((format(printf, 2, 0))) static void on_fuse_log(enum fuse_log_level level,
							      const char *fmt, va_list ap)
{
	static _Thread_local char text[512];
	size_t used = strlen(text);
	char *newline;

	/* a line comes in pieces */
	vsnprintf(text + used, sizeof(text) - used, fmt, ap);
	newline = strchr(text, '\n');
	if (!newline && strlen(text) < sizeof(text) - 1)
		return;
	if (newline)
		*newline = '\0';
	carton_log(level <= FUSE_LOG_ERR     ? CARTON_LOG_ERROR :
		   level <= FUSE_LOG_WARNING ? CARTON_LOG_WARNING :
		   level <= FUSE_LOG_INFO    ? CARTON_LOG_INFO :
					       CARTON_LOG_DEBUG,
		   NULL, "%s", text);
	text[0] = '\0';
}

/* ---- the daemon ---- */

/* The tree is there: the parent may return, and this process needs no terminal any more. */
static void on_ready(void *ctx)
{
	struct session *s = ctx;
	char ok = 1;
	int null;

	notify_systemd("READY=1");
	if (s->status_fd < 0)
		return;
	openlog("cartonfs", LOG_PID, LOG_DAEMON);
	__atomic_store_n(&s->detached, true, __ATOMIC_RELEASE);
	setsid();
	/* whatever is named relative to it has been opened */
	if (chdir("/") < 0)
		syslog(LOG_WARNING, "/: %m");
	null = open("/dev/null", O_RDWR);
	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		if (null > STDERR_FILENO)
			close(null);
	}
	if (write(s->status_fd, &ok, 1) != 1)
		syslog(LOG_WARNING, "nobody waits for this mount");
	close(s->status_fd);
	s->status_fd = -1;
}

/* The signals by which somebody ends the start: he means the child too. Those ignored stay so. */
static void ending_signals(sigset_t *ret)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction now;

	sigemptyset(ret);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(ret, ends[i]);
}

/* What the child says, or how it ended when it says nothing. Passes on `signals`, which are blocked. */
static int wait_for_child(pid_t child, int fd, const sigset_t *signals)
{
	struct pollfd polls[] = { { fd, POLLIN, 0 },
				  { signalfd(-1, signals, SFD_CLOEXEC), POLLIN, 0 } };
	struct signalfd_siginfo info;
	char ok;
	ssize_t n;
	int status;

	while (poll(polls, 2, -1) < 0 || !polls[0].revents)
		if (polls[1].revents && read(polls[1].fd, &info, sizeof(info)) == sizeof(info))
			kill(child, (int)info.ssi_signo);
	do
		n = read(fd, &ok, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		return EXIT_OK;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_SYSTEM;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "cartonfs: ended by signal %d before the mount was there\n",
		WTERMSIG(status));
	return EXIT_SYSTEM;
}

/* ---- serving ---- */

/* Each large file that was unpacked takes a descriptor. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int loop(struct session *s, struct fuse_session *se)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config)
		return EXIT_SYSTEM;
	fuse_loop_cfg_set_clone_fd(config, 0);
	r = fuse_session_loop_mt(se, config);
	fuse_loop_cfg_destroy(config);
	notify_systemd("STOPPING=1");
	/* whoever still waits is told before the connection goes */
	carton_stop(s->mount.carton);
	/*
	 * A signal (r > 0) ends it as well as an unmount does. Who was just taking a request when that
	 * came is told that the connection was aborted.
	 */
	return r < 0 && r != -ECONNABORTED ? EXIT_SYSTEM : EXIT_OK;
}

static int serve(struct session *s)
{
	struct options *o = s->options;
	struct fuse_session *se;
	int status = EXIT_MOUNT;

	se = fuse_session_new(&o->fuse, &mount_ops, sizeof(mount_ops), &s->mount);
	if (!se)
		return EXIT_USAGE;
	s->mount.session = se;
	if (fuse_set_signal_handlers(se) == 0) {
		if (fuse_session_mount(se, o->mountpoint) == 0) {
			dirops_parallel(&s->mount);
			status = loop(s, se);
			/* its threads answer requests until they have ended: on a connection that is open */
			carton_close(s->mount.carton);
			s->mount.carton = NULL;
			fuse_session_unmount(se);
		}
		fuse_remove_signal_handlers(se);
	}
	fuse_session_destroy(se);
	return status;
}

static int verify_all(struct session *s)
{
	const char *label = s->options->label;
	ssize_t bad = carton_materialize(s->mount.carton, NULL, 0, progress_show, "verify");

	progress_clear();
	if (bad > 0)
		fprintf(stderr, "cartonfs: %s: not mounted: %zd file%s failed\n", label, bad,
			bad == 1 ? "" : "s");
	else if (bad < 0)
		fprintf(stderr, "cartonfs: %s: not mounted: %s\n", label, strerror((int)-bad));
	return bad > 0 ? EXIT_MOUNT : bad < 0 ? EXIT_SYSTEM : EXIT_OK;
}

static int open_and_serve(struct session *s)
{
	struct options *o = s->options;
	int r, status;

	raise_file_limit();
	r = carton_open(o->source, &o->carton, &s->mount.carton);
	if (r < 0) {
		fprintf(stderr, "cartonfs: %s: not mounted: %s\n", o->label,
			r == -EBADMSG ? "not a good carton" : strerror(-r));
		return r == -EINVAL ? EXIT_USAGE : r == -ENOMEM ? EXIT_SYSTEM : EXIT_MOUNT;
	}
	status = o->verify_at_mount ? verify_all(s) : EXIT_OK;
	if (status == EXIT_OK)
		status = serve(s);
	carton_close(s->mount.carton);
	return status;
}

int session_run(struct options *o)
{
	struct session s = {
		.options = o,
		.mount = { .uid = o->uid,
			   .gid = o->gid,
			   .umask = o->umask,
			   .max_read = o->max_read,
			   .ready = on_ready,
			   .first_open = PTHREAD_MUTEX_INITIALIZER },
		.status_fd = -1,
	};
	sigset_t signals, before;
	int fds[2], status;
	pid_t child;

	s.mount.ctx = &s;
	carton_log_set(on_log, &s);
	fuse_set_log_func(on_fuse_log);
	if (mountpoint_prepare(o->mountpoint) < 0)
		return EXIT_MOUNT;
	if (o->foreground)
		return open_and_serve(&s);

	/* fork before any thread is started; the child keeps the terminal until it is ready */
	ending_signals(&signals);
	sigprocmask(SIG_BLOCK, &signals, &before);
	if (pipe2(fds, O_CLOEXEC) < 0 || (child = fork()) < 0) {
		perror("cartonfs");
		return EXIT_SYSTEM;
	}
	if (child > 0) {
		close(fds[1]);
		return wait_for_child(child, fds[0], &signals);
	}
	close(fds[0]);
	sigprocmask(SIG_SETMASK, &before, NULL);
	s.status_fd = fds[1];
	status = open_and_serve(&s);
	options_free(o);
	exit(status);
}
