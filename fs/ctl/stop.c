/* SPDX-License-Identifier: Apache-2.0 */
/* `cartonctl stop`: unmounts, or lists the processes that prevent it. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/mounts.h"
#include "common/text.h"
#include "process/unmount.h"

#define END_MS 30000 /* that the daemon may take to end */
#define STEP_MS 20   /* between two tries to unmount while somebody asks for the status */

/* ---- processes that use the mount ---- */

static bool is_beneath(const char *path, const char *mountpoint)
{
	size_t n = strlen(mountpoint);

	return strncmp(path, mountpoint, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Does the link /proc/PID/NAME lead into the mount? */
static bool link_is_beneath(const char *pid, const char *name, const char *mountpoint)
{
	char link[300], target[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%s/%s", pid, name);
	n = readlink(link, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = '\0';
	return is_beneath(target, mountpoint);
}

/* `status`: its files do not count. */
static bool has_open(const char *pid, const char *mountpoint, const char *status)
{
	char path[300];
	const struct dirent *e;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	while (dir && !found && (e = readdir(dir))) {
		char name[280];

		snprintf(name, sizeof(name), "fd/%s", e->d_name);
		found = link_is_beneath(pid, name, mountpoint) &&
			!(status && link_is_beneath(pid, name, status));
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool has_mapped(const char *pid, const char *mountpoint)
{
	char path[300], *line = NULL;
	size_t cap = 0;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	f = fopen(path, "re");
	while (f && !found && getline(&line, &cap, f) >= 0) {
		char *at = strchr(line, '/');

		if (at)
			at[strcspn(at, "\n")] = '\0';
		found = at && is_beneath(at, mountpoint);
	}
	if (f)
		fclose(f);
	free(line);
	return found;
}

/* How a process uses the mount, or NULL; `status` as for has_open(). */
static const char *use_of(const char *pid, const char *mountpoint, const char *status)
{
	if (link_is_beneath(pid, "cwd", mountpoint))
		return "has its working directory there";
	if (link_is_beneath(pid, "root", mountpoint))
		return "has its root in it";
	if (link_is_beneath(pid, "exe", mountpoint))
		return "runs from it";
	if (has_open(pid, mountpoint, status))
		return "has files open";
	return has_mapped(pid, mountpoint) ? "has files mapped" : NULL;
}

static void put_process(const char *pid, const char *use)
{
	char path[300], name[64] = "?";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	f = fopen(path, "re");
	if (f && fgets(name, sizeof(name), f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
	text_line(stderr, "  %8s  %-16s  %s", pid, name, use);
}

typedef void user_fn(const char *pid, const char *use);

/*
 * Calls `fn` for the processes that use the mount, as far as this user may see them. False: there
 * are none.
 */
static bool each_user(const char *mountpoint, const char *status, user_fn *fn)
{
	DIR *dir = opendir("/proc");
	const struct dirent *e;
	bool any = false;

	while (dir && (e = readdir(dir))) {
		const char *use = e->d_name[0] >= '1' && e->d_name[0] <= '9' ?
					  use_of(e->d_name, mountpoint, status) :
					  NULL;

		if (use && fn)
			fn(e->d_name, use);
		any = any || use;
	}
	if (dir)
		closedir(dir);
	return any;
}

/* ---- unmounting ---- */

/* Does a process use more of it than the status, which nobody reads for long? */
static bool is_in_use(const char *path)
{
	char *status;
	bool any;

	if (asprintf(&status, "%s/.cartonfs", path) < 0)
		return true;
	any = each_user(path, status, NULL);
	free(status);
	return any;
}

/* Unmounts, but first waits for those who ask for the status of the mount, as this program does. */
static int unmount_after_status(const struct ctl_mount *m, struct mountinfo_copy *ret_top)
{
	int r = unmount_device(m->device, m->path, false, ret_top);

	for (int ms = 0; r == -EBUSY && ms < CTL_ANSWER_MS && !is_in_use(m->path); ms += STEP_MS) {
		poll(NULL, 0, STEP_MS);
		r = unmount_device(m->device, m->path, false, ret_top);
	}
	return r;
}

/*
 * The process that serves the mount, as a pidfd; -1: not known. *ret_silent: it does not answer. A
 * mount of another user is not asked: it may name any process.
 */
static int open_daemon(const struct ctl_mount *m, bool *ret_silent)
{
	struct ctl_question q;
	const char *at;
	int fd = -1;

	*ret_silent = false;
	if (!m->own)
		return -1;
	ctl_mounts_ask(m, 1, CTL_STATUS, &q);
	*ret_silent = q.r == -ETIMEDOUT;
	at = q.r == 0 ? strstr(q.text, "\n \"pid\": ") : NULL;
	if (at)
		fd = (int)syscall(SYS_pidfd_open, (pid_t)strtol(at + 9, NULL, 10), 0);
	free(q.text);
	return fd;
}

/* Is a part of the file system mounted elsewhere in this namespace, as by mount --bind? */
static bool is_elsewhere(const struct ctl_mount *m, struct mountinfo_copy *ret)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found = f && mountinfo_find(f, NULL, m->device, ret) > 0 &&
		     strcmp(ret->type, MOUNTINFO_TYPE) == 0;

	if (f)
		fclose(f);
	return found;
}

static int stop(const struct ctl_mount *m)
{
	bool silent;
	struct pollfd daemon = { .fd = open_daemon(m, &silent), .events = POLLIN };
	struct mountinfo_copy top;
	char why[UNMOUNT_TEXT], word[PATH_MAX];
	int r, status = EXIT_GOOD;

	/* this process may have been started in the mount */
	r = chdir("/") < 0 ? -errno : unmount_after_status(m, &top);
	if (r == -ENOTEMPTY) {
		text_line(stderr, "cartonctl: %s: not unmounted: %s", m->path,
			  unmount_explain(&top, why));
		status = EXIT_BAD;
	} else if (r == -EBUSY) {
		text_line(stderr, "cartonctl: %s: not unmounted; it is in use by", m->path);
		if (!each_user(m->path, NULL, put_process))
			fputs("  processes of other users\n", stderr);
		status = EXIT_BAD;
	} else if (r < 0) {
		status = ctl_failed(m->path, r);
	} else if (silent) {
		ctl_refuse(m->path, "unmounted; " CTL_NO_ANSWER " It ends when it goes on");
	} else if (is_elsewhere(m, &top) && (daemon.fd < 0 || poll(&daemon, 1, 0) == 0)) {
		text_line(stderr,
			  "cartonctl: %s: unmounted, but it is also mounted at %s: run umount %s, "
			  "so that its process ends",
			  m->path, top.path, carton_shell_word(top.path, word, sizeof(word)));
	} else if (daemon.fd >= 0 && poll(&daemon, 1, END_MS) == 0) {
		ctl_refuse(m->path, "unmounted, but its process has not ended: another mount "
				    "namespace, such as a "
				    "container's, may have a copy of the mount");
	}
	if (daemon.fd >= 0)
		close(daemon.fd);
	return status;
}

int ctl_stop(char **words, int n_words, const struct args *a)
{
	struct ctl_mount *list;
	int r, status;
	size_t n;

	(void)a;
	if (n_words != 1)
		return ctl_usage("stop: %s",
				 n_words ? "too many arguments" : "MOUNTPOINT is missing");
	r = ctl_mounts(words[0], &list, &n);
	if (r < 0)
		return ctl_failed(words[0], r);
	if (n == 0)
		status = ctl_refuse_no_mount(words[0]);
	else if (!list[0].own && geteuid() != 0)
		status = ctl_refuse(
			words[0],
			"not unmounted; only root and the user who has mounted may do this");
	else
		status = stop(&list[0]);
	ctl_mounts_free(list, n);
	return ctl_flush(status);
}
