/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_MAX ((size_t)4 << 20)

/* Decodes the octal escapes of mountinfo in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++, to++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*to = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to = *s;
		}
	}
	*to = '\0';
}

/* Is it a mount of cartonfs? Then *ret_path points to its path in the line. `all`: also of other users. */
static bool parse_line(char *line, bool all, char **ret_path)
{
	char *type = strstr(line, " - "), *user, *path = line;

	if (!type || strncmp(type, " - fuse.cartonfs ", 17) != 0)
		return false;
	user = strstr(type, "user_id=");
	/* root does not ask those of others: they could keep it waiting */
	if (!all && (!user || strtoul(user + 8, NULL, 10) != geteuid()))
		return false;
	/* the fifth field: mount id, parent, device, root, path */
	for (int i = 0; i < 4 && path; i++) {
		path = strchr(path, ' ');
		path = path ? path + 1 : NULL;
	}
	if (!path)
		return false;
	path[strcspn(path, " ")] = '\0';
	unescape(path);
	*ret_path = path;
	return true;
}

static int add(struct ctl_mount **list, size_t *n, const char *path)
{
	struct ctl_mount *more;

	/* of several mounts at a path, the last one is on top */
	for (size_t i = 0; i < *n; i++)
		if (strcmp((*list)[i].path, path) == 0)
			return 0;
	more = realloc(*list, (*n + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	*list = more;
	more[*n].path = strdup(path);
	if (!more[*n].path)
		return -ENOMEM;
	(*n)++;
	return 0;
}

/*
 * The absolute form of a mountpoint: its parent's, and its name, because realpath(3) of a dead mount fails.
 * Malloc'ed; or NULL, and errno is set.
 */
static char *absolute(const char *path)
{
	char *full = realpath(path, NULL), *copy, *slash, *parent, *ret = NULL;

	if (full)
		return full;
	copy = strdup(path);
	if (!copy)
		return NULL;
	for (size_t len = strlen(copy); len > 1 && copy[len - 1] == '/'; len--)
		copy[len - 1] = '\0';
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

int ctl_mounts(const char *path, struct ctl_mount **ret, size_t *ret_n)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, *at, *wanted = NULL;
	struct ctl_mount *list = NULL;
	size_t n = 0, cap = 0;
	int r = f ? 0 : -errno;

	if (r == 0 && path) {
		wanted = absolute(path);
		r = wanted ? 0 : -errno;
	}
	while (r == 0 && getline(&line, &cap, f) >= 0)
		if (parse_line(line, wanted, &at) && (!wanted || strcmp(at, wanted) == 0))
			r = add(&list, &n, at);
	if (f)
		fclose(f);
	free(line);
	free(wanted);
	if (r < 0) {
		ctl_mounts_free(list, n);
		return r;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

void ctl_mounts_free(struct ctl_mount *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(list[i].path);
	free(list);
}

int ctl_mount_status(const struct ctl_mount *m, char **ret)
{
	char *path, *text = NULL;
	size_t len = 0;
	ssize_t n = 1;
	int fd, r = 0;

	if (asprintf(&path, "%s/.cartonfs/status.json", m->path) < 0)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	free(path);
	while (r == 0 && n > 0 && len < STATUS_MAX) {
		char *more = realloc(text, len + 65537);

		if (!more) {
			r = -ENOMEM;
			break;
		}
		text = more;
		n = read(fd, text + len, 65536);
		if (n < 0)
			r = -errno;
		else
			len += (size_t)n;
	}
	if (fd >= 0)
		close(fd);
	if (r < 0) {
		free(text);
		return r;
	}
	text[len] = '\0';
	*ret = text;
	return 0;
}
