/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mount/ahead.h"
#include "process/daemon.h"
#include "process/handover.h"
#include "mount/keep.h"
#include "mount/keep_files.h"
#include "process/mounter.h"
#include "process/mountpoint.h"
#include "process/notify.h"
#include "process/place.h"
#include "mount/ops.h"
#include "mount/pages.h"
#include "mount/park.h"
#include "mount/passthrough.h"
#include "mount/report.h"
#include "common/exit_status.h"
#include "common/progress.h"
#include "process/sandbox.h"
#include "process/signals.h"
#include "mount/status_files.h"
#include "common/text.h"
#include "process/unmount.h"
#include "process/unmounted.h"
#include "process/user.h"

struct session {
	struct options *options;
	struct mount mount;
	struct place place; /* the mountpoint, until the mounter has it */
	struct mounter mounter;
	struct status counts;
	struct unmounted unmounted;
	struct keep keep;
	bool mounted;  /* by the mounter, and not unmounted since */
	bool ready;    /* the mount was usable */
	int status_fd; /* the daemon writes a byte here once it is mounted; -1 in the foreground */
	struct report report;
	const char *covers; /* what the mount covers, as a warning; or NULL */
};

/* ---- the daemon ---- */

/* Tells systemd, and a user at a terminal, what is mounted. */
static void tell_ready(const struct session *s)
{
	struct carton_totals totals;
	char hash[65], text[256];

	carton_totals(s->mount.carton, &totals);
	carton_model_hash(s->mount.carton, hash);
	snprintf(text, sizeof(text), "READY=1\nSTATUS=%llu files%s%.12s",
		 (unsigned long long)totals.files, *hash ? ", model " : "", hash);
	notify_systemd(text);
	if (s->options->values.foreground && isatty(STDERR_FILENO))
		text_line(stderr, "cartonfs: %s is mounted on %s; Ctrl-C unmounts it",
			  s->options->label, s->options->mountpoint);
}

/* Called when the mount is usable: becomes a daemon, and lets the parent process return. */
static void on_ready(void *ctx)
{
	struct session *s = ctx;

	s->ready = true;
	tell_ready(s);
	if (s->status_fd < 0)
		return;
	atomic_store(&s->report.detached, true);
	daemon_ready(s->status_fd);
	s->status_fd = -1;
}

static void on_used(void *ctx)
{
	struct session *s = ctx;

	if (s->mounted)
		mounter_read_ahead(&s->mounter);
}

/* ---- serving ---- */

/* Each large unpacked file keeps a descriptor open. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/*
 * The mount has no name any more. Requests that wait are cancelled: otherwise the process would
 * wait for them until their deadline.
 */
static void on_unmounted(void)
{
	parked_cancel_all(ENOTCONN);
}

/* True: somebody else has unmounted it. Another file system may have its device number by now. */
static bool is_unmounted(struct fuse_session *se)
{
	struct pollfd p = { fuse_session_fd(se), 0, 0 };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/*
 * The exit status after the loop. If libfuse cannot start its first thread, not every version of it
 * returns an error. So a loop that ends before the mount is ready, without a signal or an unmount,
 * has had no thread.
 */
static int status_of_loop(struct session *s, int r)
{
	/* a thread that reads a request during the unmount gets ECONNABORTED */
	bool good = r >= 0 || r == -ECONNABORTED;

	if (!s->ready && !signals_came() && !(good && is_unmounted(s->mount.session))) {
		report_not_mounted(&s->report, "%s", NO_THREAD);
		return EXIT_SYSTEM;
	}
	return good ? EXIT_GOOD : EXIT_SYSTEM;
}

static int loop(struct session *s, struct fuse_session *se)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r, status;

	if (!config)
		return EXIT_SYSTEM;
	fuse_loop_cfg_set_clone_fd(config, 0);
	r = fuse_session_loop_mt(se, config);
	signals_loop_ended();
	status = status_of_loop(s, r);
	fuse_loop_cfg_destroy(config);
	notify_systemd("STOPPING=1");
	ahead_stop(s->mount.ahead);
	/* answer parked requests while the connection is still open */
	carton_stop(s->mount.carton);
	return status;
}

/*
 * Mounts through the mounter, unless the mountpoint is an open device. The session gets the device.
 */
static int attach(struct session *s)
{
	struct fuse_session *se = s->mount.session;
	char path[32], device[32];
	int fd, r;

	if (mountpoint_is_device(s->options->mountpoint))
		return fuse_session_mount(se, s->options->mountpoint);
	r = mounter_mount(&s->mounter, &fd, device);
	if (r < 0)
		return r;
	s->mounted = true;
	unmounted_watch(&s->unmounted, device, on_unmounted);
	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	return fuse_session_mount(se, path);
}

/* If this fails, files are verified or fetched when they are opened. */
static void start_ahead(struct session *s)
{
	const struct options *o = s->options;
	int r;

	if (o->values.noahead || o->values.verify == VERIFY_OFF)
		return;
	r = ahead_new(&s->mount, o->values.verify == VERIFY_BACKGROUND, &s->mount.ahead);
	if (r < 0)
		carton_log(CARTON_LOG_WARNING, NULL, "files are not had ahead: %s", error_text(r));
}

/* Mounts, and serves until the end of the mount. */
static int serve(struct session *s)
{
	struct fuse_session *se = s->mount.session;
	int status = EXIT_MOUNT;

	if (signals_catch(se) < 0)
		return status;
	if (attach(s) == 0) {
		if (s->covers)
			report_covered(&s->report, s->covers);
		/* the next start of the service mounts anew */
		if (keep_begin(&s->keep, &s->mount, s->options) < 0)
			return EXIT_SYSTEM;
		start_ahead(s);
		/* so that the first status counts the files in the cache */
		carton_look_in_cache(s->mount.carton);
		status = loop(s, se);
		if (unmounted_close(&s->unmounted))
			s->mounted = false;
		/* before the unmount: its threads may still answer requests */
		carton_close(s->mount.carton);
		s->mount.carton = NULL;
		ahead_free(s->mount.ahead);
		if (is_unmounted(se))
			s->mounted = false;
	}
	return status;
}

/* The exit status for a carton that cannot be opened, or whose files cannot be verified. */
static int status_of(const struct options *o, int error)
{
	switch (error) {
	case -EINVAL:
		return EXIT_USAGE;
	case -ENOMEM:
	case -EAGAIN:
	case -EMFILE:
	case -ENFILE:
	case -ENOSPC:
	case -EDQUOT:
		return EXIT_SYSTEM;
	default:
		return o->values.carton.offline ? EXIT_MOUNT : exit_status(error, EXIT_MOUNT);
	}
}

static int verify_all(struct session *s)
{
	int why = 0;
	ssize_t bad = carton_materialize(s->mount.carton, NULL, progress_show, "verify", &why);

	progress_clear();
	if (bad > 0)
		report_not_mounted(&s->report, "%zd file%s failed", bad, bad == 1 ? "" : "s");
	else if (bad < 0)
		report_not_mounted(&s->report, "%s", strerror((int)-bad));
	return bad > 0 ? status_of(s->options, why) : bad < 0 ? EXIT_SYSTEM : EXIT_GOOD;
}

static int open_files(void *ctx, int listener, int memory)
{
	return mounter_open_files(ctx, listener, memory);
}

/* Opens the carton, and confines the process, perhaps as another user. 0, or -errno, logged. */
static int open_carton(struct session *s, struct sandbox_helper *helper)
{
	struct option_values *v = &s->options->values;
	char passed[32];
	int r;

	snprintf(passed, sizeof(passed), "/dev/fd/%d", s->keep.source);
	if (!v->nosandbox) {
		v->carton.confine = sandbox_enter;
		v->carton.confine_ctx = helper;
	}
	if (!v->nosandbox && user_default_cache(&v->carton.cache_dir) < 0)
		v->carton.cache_dir = NULL;
	v->carton.wait = true;
	v->carton.late = CARTON_LATE_FETCH;
	v->carton.beside = s->options->source;
	v->carton.damaged = pages_damaged;
	v->carton.damaged_ctx = &s->mount;
	if (v->nochunks && v->verify == VERIFY_OPEN)
		carton_log(CARTON_LOG_INFO, NULL, "chunks=off is an old name of verify=open");
	v->carton.date = v->dates == DATES_MOUNT ? keep_first(&s->keep) : 0;
	v->carton.progress = report_progress;
	v->carton.progress_ctx = &s->report;
	report_opening(&s->report);
	r = carton_open(s->keep.source >= 0 ? passed : s->options->source, &v->carton,
			&s->mount.carton);
	progress_clear();
	report_opened(&s->report, r == 0);
	if (r == 0 && !v->nosandbox)
		r = sandbox_opened(carton_fetches(s->mount.carton));
	if (r == 0)
		report_serving(&s->report);
	return r;
}

/* Why the carton is not open: the last failure, or the error. */
static const char *why_not(int error)
{
	const char *text = carton_error(error);

	return strcmp(text, strerror(-error)) == 0 ? error_text(error) : text;
}

/* Unmounts the mount of this process. If that fails, the mount is dead: logs what to do. */
static void detach(struct session *s)
{
	struct mountinfo_copy top;
	char why[UNMOUNT_TEXT];
	int r = mounter_unmount(&s->mounter, &top);

	if (r == -ENOTEMPTY || r == -EINTR)
		carton_log(CARTON_LOG_WARNING, s->options->mountpoint,
			   "not unmounted yet: %s; this mount, whose process has ended, then goes "
			   "by %s",
			   unmount_explain(&top, why), r == -EINTR ? "umount -l" : "itself");
	else if (r < 0)
		carton_log(CARTON_LOG_WARNING, s->options->mountpoint,
			   "not unmounted: %s; its process has ended: remove it with umount -l",
			   r == -ESTALE ? "it was not found" : strerror(-r));
}

static int open_and_serve(struct session *s)
{
	struct sandbox_helper helper = { .open_for_me = open_files,
					 .ctx = &s->mounter,
					 .denied = report_denied };
	struct options *o = s->options;
	int r, status;

	raise_file_limit();
	/* before anything is fetched, because libfuse reports unknown options */
	s->mount.session = fuse_session_new(&o->fuse, status_ops(), sizeof(mount_ops), &s->mount);
	if (!s->mount.session)
		return EXIT_USAGE;
	r = mounter_start(&(struct mounting){ s->mount.session, o, &s->place }, &s->mounter);
	place_close(&s->place);
	if (r < 0) {
		text_line(stderr, "cartonfs: %s", error_text(r));
		fuse_session_destroy(s->mount.session);
		return EXIT_SYSTEM;
	}
	if (o->values.passthrough &&
	    passthrough_new(s->mount.session, &s->mounter, &s->mount.passthrough) < 0)
		carton_log(CARTON_LOG_WARNING, NULL, "passthrough: %s", strerror(ENOMEM));
	s->counts.passthrough = s->mount.passthrough;
	notify_open();
	unmounted_open(&s->unmounted);
	if (mountpoint_is_device(o->mountpoint))
		keep_open(&s->keep);
	r = open_carton(s, &helper);
	if (r < 0) {
		report_not_mounted(&s->report, "%s",
				   r == -EBADMSG      ? "not a valid carton" :
				   r == -EKEYREJECTED ? "not signed as it has to be" :
							why_not(r));
		status = status_of(o, r);
	} else {
		status = o->values.verify == VERIFY_MOUNT ? verify_all(s) : EXIT_GOOD;
		if (status == EXIT_GOOD)
			status = serve(s);
	}
	unmounted_close(&s->unmounted);
	keep_end(&s->keep);
	carton_close(s->mount.carton);
	/* closes the device, and with it the connection: the unmount waits for no request */
	fuse_session_destroy(s->mount.session);
	status_files_finish(&s->counts);
	passthrough_free(s->mount.passthrough);
	if (s->mounted)
		detach(s);
	mounter_stop(&s->mounter);
	return status;
}

/* Prepares the mountpoint, which may be replaced by a device. 0, or -errno, logged. */
static int prepare(struct session *s)
{
	struct options *o = s->options;
	int r = keep_take(&s->keep, &o->mountpoint);

	if (r == 0)
		r = handover_receive(o->given, &o->mountpoint);
	if (r == 0 && o->values.mkdir_mode >= 0)
		r = mountpoint_create(&o->mountpoint, (mode_t)o->values.mkdir_mode);
	return r < 0 ? r : mountpoint_prepare(o->mountpoint, &s->place, &s->covers);
}

/*
 * Passes the carton to the main process, which may run as a user who cannot open it. If this step
 * cannot open it either, as when it checks the options for a reload, the stored descriptor stays.
 */
static void pass_source(const struct options *o)
{
	int fd;

	/*
	 * without it, the main process takes the first descriptor for the device: see keep_take()
	 */
	if (!getenv("RUNTIME_DIRECTORY"))
		return;
	fd = open(o->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 && errno == EACCES)
		return;
	notify_store_source(fd);
	if (fd >= 0)
		close(fd);
}

/* Mounts, and leaves the device to the service manager. */
static int mount_and_pass(struct session *s, struct fuse_session *se)
{
	const struct options *o = s->options;
	struct mountinfo_copy top;
	int r = place_mount(&s->place, se, o->mountpoint, o->helped || !mountpoint_may_mount());

	if (r < 0 && r != -ESTALE)
		return EXIT_MOUNT;
	/* drops the descriptors of an earlier mount */
	notify_forget();
	if (notify_store(fuse_session_fd(se), NOTIFY_DEVICE) == 0)
		return EXIT_GOOD;
	text_line(stderr, "cartonfs: mount_only: no service manager takes the mount");
	unmount_device(s->place.device, NULL, true, &top);
	return EXIT_MOUNT;
}

/*
 * For a service whose main process has no privileges. A mount that waits for its next process
 * stays.
 */
static int mount_only(struct session *s)
{
	struct options *o = s->options;
	struct fuse_session *se = fuse_session_new(&o->fuse, &mount_ops, sizeof(mount_ops),
						   &s->mount);
	int status = EXIT_GOOD;

	if (!se)
		return EXIT_USAGE;
	notify_open();
	if (!keep_is_kept(o->mountpoint))
		status = prepare(s) < 0 ? EXIT_MOUNT : mount_and_pass(s, se);
	if (status == EXIT_GOOD)
		pass_source(o);
	fuse_session_destroy(se);
	return status;
}

int session_run(struct options *o)
{
	struct session s = {
		.options = o,
		.place.dir = -1,
		.mount = { .owner = geteuid(),
			   .uid = o->values.uid,
			   .gid = o->values.gid,
			   .umask = o->values.umask,
			   .max_read = o->values.max_read,
			   .epoch = 1,
			   .ready = on_ready,
			   .used = on_used,
			   .first_open = PTHREAD_MUTEX_INITIALIZER,
			   .push_patience = 1 },
		.counts = { .lock = PTHREAD_MUTEX_INITIALIZER },
		.status_fd = -1,
		.report = { .options = o, .status = &s.counts, .mounter = &s.mounter },
	};
	char verify[OPTION_WORD];
	int status;

	s.mount.ctx = &s;
	s.mount.status = &s.counts;
	s.counts.source = o->label;
	s.counts.verify = option_word("verify", o->values.verify, verify);
	s.counts.started = time(NULL);
	if (!report_begin(&s.report))
		return EXIT_USAGE;
	if (o->values.mount_only)
		return report_status(&s.report, mount_only(&s));
	if (prepare(&s) < 0)
		return report_status(&s.report, EXIT_MOUNT);
	s.counts.mountpoint = o->mountpoint;
	if (o->values.foreground)
		return report_status(&s.report, open_and_serve(&s));

	/* before any thread starts; the child logs to stderr until it is mounted */
	if (!daemon_fork(&s.status_fd, &status))
		return status;
	status = report_status(&s.report, open_and_serve(&s));
	options_finish(o);
	exit(status);
}
