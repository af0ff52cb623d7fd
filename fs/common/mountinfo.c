/* SPDX-License-Identifier: Apache-2.0 */
#include "common/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Replaces the octal escapes, such as \040 for a space. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
		    s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

/* Fields 1 to 3 and 5, and behind a "-" the type, the source and the options. False: malformed. */
static bool parse(char *line, struct mountinfo *ret)
{
	char *fields[5], *rest = line, *field;

	for (int i = 0; i < 5; i++)
		fields[i] = strsep(&rest, " ");
	if (!fields[4])
		return false;
	do
		field = strsep(&rest, " ");
	while (field && strcmp(field, "-") != 0);
	unescape(fields[4]);
	ret->id = (unsigned)strtoul(fields[0], NULL, 10);
	ret->parent = (unsigned)strtoul(fields[1], NULL, 10);
	ret->device = fields[2];
	ret->path = fields[4];
	ret->type = strsep(&rest, " ");
	strsep(&rest, " ");
	ret->options = rest;
	return ret->type && ret->options;
}

bool mountinfo_each(FILE *f, mountinfo_fn *use, void *ctx)
{
	struct mountinfo mount;
	char *line = NULL;
	size_t size = 0;
	bool all;

	rewind(f);
	while (getline(&line, &size, f) > 0)
		if (parse(line, &mount))
			use(ctx, &mount);
	all = !ferror(f);
	free(line);
	return all;
}

void mountinfo_copy(const struct mountinfo *mount, struct mountinfo_copy *ret)
{
	ret->id = mount->id;
	snprintf(ret->device, sizeof(ret->device), "%s", mount->device);
	snprintf(ret->type, sizeof(ret->type), "%s", mount->type);
	snprintf(ret->path, sizeof(ret->path), "%s", mount->path);
	ret->shared = strstr(mount->options, ",allow_other");
}

bool mountinfo_is_on(int dir, const char *name, const char *device)
{
	const int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT |
			  AT_STATX_DONT_SYNC;
	char found[32];
	struct statx st;

	if (statx(dir, name, flags, 0, &st) < 0)
		return false;
	snprintf(found, sizeof(found), "%u:%u", st.stx_dev_major, st.stx_dev_minor);
	return strcmp(found, device) == 0;
}

struct search {
	const char *path, *device;
	struct mountinfo_copy copy;
	bool found;
};

static void compare(void *ctx, const struct mountinfo *mount)
{
	struct search *s = ctx;

	if (strcmp(s->path ? mount->path : mount->device, s->path ? s->path : s->device) != 0)
		return;
	s->found = true;
	mountinfo_copy(mount, &s->copy);
}

int mountinfo_find(FILE *f, const char *path, const char *device, struct mountinfo_copy *ret)
{
	struct search s = { .path = path, .device = device };

	if (!mountinfo_each(f, compare, &s))
		return -EIO;
	if (s.found)
		*ret = s.copy;
	return s.found;
}
