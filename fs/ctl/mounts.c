/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/mountinfo.h"
#include "common/text.h"
#include "ctl/ctl.h"

#define STATUS_MAX ((size_t)4 << 20)

struct search {
	const char *wanted; /* the path of the mount, of any user; NULL: all of this user */
	struct ctl_mount *list;
	size_t n;
	bool failed; /* no memory */
};

/* Is it a mount of this user? Root asks no mounts of others: they could keep root waiting. */
static bool is_own(const struct mountinfo *mount)
{
	const char *user = strstr(mount->options, "user_id=");

	return user && strtoul(user + 8, NULL, 10) == geteuid();
}

static void add(void *ctx, const struct mountinfo *mount)
{
	struct search *s = ctx;
	struct ctl_mount *more, *m = NULL;
	char *path;

	if (strcmp(mount->type, MOUNTINFO_TYPE) != 0 ||
	    (s->wanted ? strcmp(mount->path, s->wanted) != 0 : !is_own(mount)))
		return;
	/* of several at one path the last one is on top */
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->list[i].path, mount->path) == 0)
			m = &s->list[i];
	if (!m) {
		path = strdup(mount->path);
		more = path ? realloc(s->list, (s->n + 1) * sizeof(*more)) : NULL;
		if (!more) {
			free(path);
			s->failed = true;
			return;
		}
		s->list = more;
		m = &more[s->n++];
		m->path = path;
	}
	m->own = is_own(mount);
	snprintf(m->device, sizeof(m->device), "%s", mount->device);
}

/* A copy without slashes at its end; NULL: out of memory. */
static char *without_slashes(const char *path)
{
	char *copy = strdup(path);

	for (size_t len = copy ? strlen(copy) : 0; len > 1 && copy[len - 1] == '/'; len--)
		copy[len - 1] = '\0';
	return copy;
}

/*
 * The absolute form of a mountpoint: its parent's, and its name, because realpath(3) of a dead
 * mount fails. Malloc'ed; or NULL, and errno is set.
 */
static char *resolve(const char *path)
{
	/* a slash at its end would ask the mount whether it is a directory */
	char *copy = without_slashes(path), *full, *slash, *parent, *ret = NULL;

	full = copy ? realpath(copy, NULL) : NULL;
	if (full || !copy) {
		free(copy);
		return full;
	}
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	parent = realpath(!slash ? "." : *copy ? copy : "/", NULL);
	if (parent && asprintf(&ret, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
			       slash ? slash + 1 : copy) < 0)
		ret = NULL;
	free(parent);
	free(copy);
	return ret;
}

/* A ctl_question: the absolute form of a path. */
static int answer_path(const void *path, char **ret)
{
	*ret = resolve(path);
	return *ret ? 0 : -errno;
}

/* Makes a path absolute without asking any file system. Malloc'ed; NULL: out of memory. */
static char *from_cwd(const char *path)
{
	char *name = without_slashes(path), *cwd, *ret;

	if (!name || *name == '/')
		return name;
	cwd = getcwd(NULL, 0);
	if (!cwd || asprintf(&ret, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, name) < 0)
		ret = NULL;
	free(cwd);
	free(name);
	return ret;
}

/* The absolute form of a path, which may lead through a mount that does not answer. 0 or -errno. */
static int absolute(const char *path, char **ret)
{
	struct ctl_question q = { .ask = answer_path, .ctx = path };

	ctl_ask(&q, 1);
	if (q.r == -ETIMEDOUT) {
		q.text = from_cwd(path);
		q.r = q.text ? 0 : -ENOMEM;
	}
	if (q.r == 0)
		*ret = q.text;
	return q.r;
}

int ctl_mounts(const char *path, struct ctl_mount **ret, size_t *ret_n)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct search s = { 0 };
	char *wanted = NULL;
	int r = 0;

	if (!f)
		return -errno;
	if (path)
		r = absolute(path, &wanted);
	s.wanted = wanted;
	if (r == 0 && !mountinfo_each(f, add, &s))
		r = -EIO;
	if (s.failed)
		r = -ENOMEM;
	fclose(f);
	free(wanted);
	if (r < 0) {
		ctl_mounts_free(s.list, s.n);
		return r;
	}
	*ret = s.list;
	*ret_n = s.n;
	return 0;
}

void ctl_mounts_free(struct ctl_mount *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i].path);
	free(list);
}

/*
 * Opens a file of .cartonfs/ of the mount. Any user can make a mount of this type: a symlink in it
 * could lead to files that only the user of this process may read, and a FIFO would block.
 */
static int open_file(const struct ctl_mount *m, const char *name)
{
	const int directory = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int root = open(m->path, directory), at = -1, fd = -1, r;
	struct stat st;

	/* another user may have changed what the path leads to since it was listed */
	if (root >= 0 && mountinfo_is_on(root, "", m->device))
		at = openat(root, ".cartonfs", directory);
	else if (root >= 0)
		errno = ENOENT;
	if (at >= 0)
		fd = openat(at, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 || fstat(fd, &st) < 0 ? -errno : S_ISREG(st.st_mode) ? 0 : -ELOOP;
	if (root >= 0)
		close(root);
	if (at >= 0)
		close(at);
	if (r < 0 && fd >= 0)
		close(fd);
	return r < 0 ? r : fd;
}

static int read_file(const struct ctl_mount *m, const char *name, char **ret)
{
	int fd = open_file(m, name), r;
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char *text = f ? malloc(STATUS_MAX + 1) : NULL;

	r = fd < 0 ? fd : !text ? -ENOMEM : 0;
	if (r == 0) {
		text[fread(text, 1, STATUS_MAX, f)] = '\0';
		/* no text: the process has ended meanwhile */
		r = ferror(f) ? -errno : *text ? 0 : -ENOENT;
	}
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	if (r < 0)
		free(text);
	else
		*ret = text;
	return r;
}

/* Each a ctl_question. */
static int read_status(const void *mount, char **ret)
{
	return read_file(mount, "status.json", ret);
}

static int read_metrics(const void *mount, char **ret)
{
	return read_file(mount, "metrics", ret);
}

void ctl_mounts_ask(const struct ctl_mount *list, size_t n, enum ctl_mount_file file,
		    struct ctl_question *ret)
{
	for (size_t i = 0; i < n; i++)
		ret[i] = (struct ctl_question){
			.ask = file == CTL_METRICS ? read_metrics : read_status,
			.ctx = &list[i],
		};
	ctl_ask(ret, n);
}

/* A ctl_question: does the path exist? */
static int answer_access(const void *path, char **ret)
{
	*ret = NULL;
	return access(path, F_OK) == 0 ? 0 : -errno;
}

char *ctl_mount_above(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mountinfo_copy found;
	char *at = NULL, *slash;
	int r = f ? absolute(path, &at) : -ENOENT;

	while (r == 0 && (slash = strrchr(at, '/')) && slash > at) {
		*slash = '\0';
		r = mountinfo_find(f, at, NULL, &found);
	}
	if (f)
		fclose(f);
	if (r == 1 && strcmp(found.type, MOUNTINFO_TYPE) == 0)
		return at;
	free(at);
	return NULL;
}

int ctl_refuse_no_mount(const char *path)
{
	struct ctl_question q = { .ask = answer_access, .ctx = path };
	const char *why = "is not a mount of cartonfs";
	char *above = NULL;

	ctl_ask(&q, 1);
	/* a path in a mount that does not answer in time exists */
	if (q.r < 0 && q.r != -ETIMEDOUT)
		why = strerror(-q.r);
	else
		above = ctl_mount_above(path);
	if (above)
		text_line(stderr,
			  "cartonctl: %s: is in a mount of cartonfs; name the mountpoint, %s", path,
			  above);
	else
		ctl_refuse(path, why);
	free(above);
	free(q.text);
	return EXIT_BAD;
}
