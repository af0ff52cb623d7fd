/* SPDX-License-Identifier: Apache-2.0 */
#include "process/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "log.h"
#include "common/mountinfo.h"
#include "common/numbers.h"
#include "process/place.h"
#include "process/unmount.h"
#include "process/user.h"

#define DEVICE "/dev/fd/" /* and its number */

/* Is a cartonfs on top at `path`? Then *ret is that mount. */
static bool find_own(const char *path, struct mountinfo_copy *ret)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found = f && mountinfo_find(f, path, NULL, ret) > 0;

	if (f)
		fclose(f);
	return found && strcmp(ret->type, MOUNTINFO_TYPE) == 0;
}

bool mountpoint_is_cartonfs(const char *path)
{
	struct mountinfo_copy top;

	return find_own(path, &top);
}

int mountpoint_set_device(char **path, int fd)
{
	char *device;

	if (asprintf(&device, DEVICE "%d", fd) < 0)
		return -ENOMEM;
	free(*path);
	*path = device;
	return 0;
}

bool mountpoint_is_device(const char *path)
{
	return strncmp(path, DEVICE, strlen(DEVICE)) == 0;
}

static int make_directories(char *path, mode_t mode)
{
	/* not the leading slash */
	for (char *p = path + 1;; p++) {
		char end = *p;
		int r;

		if (end != '/' && end != '\0')
			continue;
		*p = '\0';
		r = mkdir(path, mode) < 0 && errno != EEXIST ? -errno : 0;
		*p = end;
		if (r < 0 || end == '\0')
			return r;
	}
}

int mountpoint_create(char **path, mode_t mode)
{
	struct stat st;
	char *found;
	int r;

	/* anything but "not there" is reported by mountpoint_prepare() */
	if (mountpoint_is_device(*path) || lstat(*path, &st) == 0 || errno != ENOENT)
		return 0;
	r = **path ? make_directories(*path, mode) : -ENOENT;
	found = r < 0 ? NULL : realpath(*path, NULL);
	if (!found) {
		r = r < 0 ? r : -errno;
		carton_log(CARTON_LOG_ERROR, *path, "cannot create the mountpoint: %s",
			   strerror(-r));
		return r;
	}
	free(*path);
	*path = found;
	return 0;
}

bool mountpoint_is_fuse(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(10, 229);
}

/*
 * Checks that the descriptor is a FUSE device: libfuse takes any, and would wait for requests from
 * a file of this process that has the number by now.
 */
static int check_device(const char *path)
{
	unsigned long fd;

	if (parse_number(path + strlen(DEVICE), 10, INT_MAX, &fd) && mountpoint_is_fuse((int)fd))
		return 0;
	carton_log(CARTON_LOG_ERROR, path,
		   "is not an open FUSE device; was the step that opens and mounts it killed?");
	return -EBADF;
}

/* Has the directory files? One of autofs is not read: that would mount what belongs there. */
static bool has_files(const struct place *place, const struct statfs *fs)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = fs->f_type == AUTOFS_SUPER_MAGIC ? -1 : openat(place->dir, ".", flags);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	bool has = false;

	for (const struct dirent *d; dir && !has && (d = readdir(dir));)
		has = strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return has;
}

bool mountpoint_may_mount(void)
{
	return geteuid() == 0 || user_may(CAP_SYS_ADMIN);
}

/* Is there a fusermount3 that libfuse can run, where libfuse looks for it? */
static bool has_fusermount(void)
{
	const char *path = getenv("PATH");
	char *dirs = NULL, *next, *dir;
	bool has = access("/usr/bin/fusermount3", X_OK) == 0;

	if (!has)
		dirs = strdup(path ? path : "/bin");
	for (next = dirs; !has && (dir = strsep(&next, ":"));) {
		char file[PATH_MAX];

		snprintf(file, sizeof(file), "%s/fusermount3", *dir ? dir : ".");
		has = access(file, X_OK) == 0;
	}
	free(dirs);
	return has;
}

/* Checks that /dev/fuse, and for users fusermount3, is there. 0; or -errno, logged with advice. */
static int check_means(void)
{
	if (access("/dev/fuse", F_OK) < 0 && errno == ENOENT)
		return carton_log(CARTON_LOG_ERROR, "/dev/fuse",
				  "is missing; run modprobe fuse as root, or start the container "
				  "with --device /dev/fuse"),
		       -ENODEV;
	if (!mountpoint_may_mount() && access("/dev/fuse", R_OK | W_OK) < 0 && errno == EACCES)
		return carton_log(CARTON_LOG_ERROR, "/dev/fuse",
				  "is not for you to use; its mode should be 666: run chmod 666 "
				  "/dev/fuse as root"),
		       -EACCES;
	if (!mountpoint_may_mount() && !has_fusermount())
		return carton_log(CARTON_LOG_ERROR, "fusermount3",
				  "is missing, which mounts for users: install the package fuse3, "
				  "or mount as root"),
		       -ENOENT;
	return 0;
}

/* Looks at what the mount will cover: see mountpoint_prepare(). 0; or -EBUSY, logged. */
static int check_covered(const char *path, const struct place *place, const struct statfs *fs,
			 const char **ret_covers)
{
	struct mountinfo_copy top;
	char word[PATH_MAX];

	if (!find_own(path, &top)) {
		if (has_files(place, fs))
			*ret_covers = "is not empty: the carton covers its files until it is "
				      "unmounted";
		return 0;
	}
	/* fusermount3 is another user, setuid root, who may not look at the mountpoint then */
	if (!mountpoint_may_mount() && !top.shared) {
		carton_log(CARTON_LOG_ERROR, path,
			   "a carton is mounted there already; first unmount it with cartonctl "
			   "stop %s",
			   carton_shell_word(path, word, sizeof(word)));
		return -EBUSY;
	}
	*ret_covers = "a carton is mounted there already; this one covers it, and each has to be "
		      "unmounted";
	return 0;
}

/* Opens the directory. 0; -ENOTCONN: a dead mount is there; or -errno. */
static int open_directory(const char *path, struct place *place, struct statfs *ret)
{
	struct stat st;
	int r = place_open(place, path);

	if (r < 0)
		return r;
	/* on a dead mount stat(2) may still succeed, from the kernel's cache; statfs(2) fails */
	if (fstatfs(place->dir, ret) < 0 || fstat(place->dir, &st) < 0)
		r = -errno;
	else if (!S_ISDIR(st.st_mode))
		r = S_ISLNK(st.st_mode) ? -ELOOP : -ENOTDIR;
	if (r < 0)
		place_close(place);
	return r;
}

/*
 * The path has a symlink, although symlinks were resolved at the start. Either the symlink is new:
 * -ESTALE; or the path could not be resolved: the -errno of that.
 */
static int why_symlink(const char *path)
{
	char *now = realpath(path, NULL);
	int r = now ? -ESTALE : -errno;

	free(now);
	return r;
}

/* Unmounts a dead cartonfs mount. 0; -ENOTCONN: it is one of another program; or -errno. */
static int remove_dead(const char *path)
{
	struct mountinfo_copy dead, top;
	int r = find_own(path, &dead) ? unmount_device(dead.device, path, true, &top) : -ENOTCONN;

	if (r == 0)
		carton_log(CARTON_LOG_INFO, path, "removed a dead cartonfs mount");
	return r;
}

int mountpoint_prepare(const char *path, struct place *place, const char **ret_covers)
{
	struct statfs fs;
	int r;

	place->dir = -1;
	if (mountpoint_is_device(path))
		return check_device(path);
	r = check_means();
	if (r < 0)
		return r;
	r = open_directory(path, place, &fs);
	if (r == -ENOTCONN)
		r = remove_dead(path);
	if (r == 0 && place->dir < 0)
		r = open_directory(path, place, &fs);
	if (r == 0)
		return check_covered(path, place, &fs, ret_covers);
	if (r == -ELOOP)
		r = why_symlink(path);
	if (r == -ENOENT)
		carton_log(CARTON_LOG_ERROR, path, "no such directory; create it with mkdir -p");
	else if (r == -ENOTDIR)
		carton_log(CARTON_LOG_ERROR, path, "is not a directory");
	else if (r == -ESTALE)
		carton_log(CARTON_LOG_ERROR, path,
			   "cannot be used as a mountpoint: it was replaced by a symlink just now");
	else
		carton_log(CARTON_LOG_ERROR, path, "cannot be used as a mountpoint: %s",
			   strerror(-r));
	return r;
}

void mountpoint_explain(void)
{
	/* where libfuse looks, if it is as the distributions build it; it tries PATH as well */
	static const char helper[] = "/usr/bin/fusermount3";
	struct stat st;

	if (user_may(CAP_SYS_ADMIN))
		return;
	if (geteuid() == 0)
		carton_log(
			CARTON_LOG_ERROR, NULL,
			"root of this container may not mount, as it has no CAP_SYS_ADMIN: start "
			"the container with --cap-add SYS_ADMIN --device /dev/fuse, or mount "
			"outside "
			"and pass the directory in, or a device (CONTAINERS in cartonfs(7))");
	else if (stat(helper, &st) == 0 && S_ISREG(st.st_mode) &&
		 (st.st_uid != 0 || !(st.st_mode & S_ISUID)))
		carton_log(CARTON_LOG_ERROR, helper,
			   "is not setuid root, so it cannot mount for users other than root");
	else if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		carton_log(CARTON_LOG_ERROR, NULL,
			   "fusermount3 gets no rights of root here: start this without "
			   "no-new-privileges, or pass a device (CONTAINERS in cartonfs(7))");
	else if (!getpwuid(geteuid()))
		carton_log(CARTON_LOG_ERROR, NULL,
			   "uid %u has no name here, which fusermount3 needs: add the user to "
			   "/etc/passwd, or run this as one that is there",
			   (unsigned)geteuid());
}
