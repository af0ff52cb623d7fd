/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cartonctl info` of a file below a mount of cartonfs: its extended attributes, which the mount
 * does not list.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "common/mountinfo.h"
#include "common/numbers.h"
#include "ctl/ask.h"
#include "ctl/ctl.h"
#include "ctl/mounts.h"
#include "ctl/term.h"
#include "common/text.h"

static const char *const names[] = {
	"sha256", "state", "storage", "dtype", "shape", "passthrough"
};
#define N_NAMES (sizeof(names) / sizeof(*names))

struct file {
	char device[32]; /* as in mountinfo */
	char kind;	 /* 'f': a file; 'd': a directory; 'r': the root of a file system */
	uint64_t bytes;
	char values[N_NAMES][256]; /* "": the file does not have this attribute */
};

/* A ctl_question. Its text is a line with device, kind and size, and a line for each attribute. */
static int look(const void *path, char **ret)
{
	struct stat st;
	FILE *f;
	size_t n;
	int kind;

	/* after an error the path is opened as a carton, which reports the error */
	if (stat(path, &st) < 0)
		return -errno;
	f = open_memstream(ret, &n);
	if (!f)
		return -ENOMEM;
	kind = !S_ISDIR(st.st_mode) ? 'f' : st.st_ino == 1 ? 'r' : 'd';
	fprintf(f, "%u:%u %c %llu\n", major(st.st_dev), minor(st.st_dev), kind,
		(unsigned long long)st.st_size);
	for (size_t i = 0; i < N_NAMES; i++) {
		char name[64], value[256];
		ssize_t got;

		snprintf(name, sizeof(name), "user.carton.%s", names[i]);
		got = kind == 'r' ? -1 : getxattr(path, name, value, sizeof(value) - 1);
		fprintf(f, "%.*s\n", got < 0 ? 0 : (int)got, value);
	}
	return text_close(f, ret);
}

/* Copies the line at *at, and moves *at behind it. False: there is no line, or it is too long. */
static bool next_line(const char **at, char *ret, size_t size)
{
	size_t n = strcspn(*at, "\n");

	if ((*at)[n] != '\n' || n >= size)
		return false;
	memcpy(ret, *at, n);
	ret[n] = '\0';
	*at += n + 1;
	return true;
}

static bool parse(const char *text, struct file *ret)
{
	unsigned long long bytes;
	char line[128];

	if (!next_line(&text, line, sizeof(line)) ||
	    sscanf(line, "%31s %c %llu", ret->device, &ret->kind, &bytes) != 3)
		return false;
	ret->bytes = bytes;
	for (size_t i = 0; i < N_NAMES; i++)
		if (!next_line(&text, ret->values[i], sizeof(ret->values[i])))
			return false;
	return true;
}

/* Is a mount of cartonfs on this device? */
static bool is_mounted(const char *device)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct mountinfo_copy mount;
	bool is = f && mountinfo_find(f, NULL, device, &mount) > 0 &&
		  strcmp(mount.type, MOUNTINFO_TYPE) == 0;

	if (f)
		fclose(f);
	return is;
}

static void put_json(const char *path, const struct file *file)
{
	struct json_writer w = { .f = stdout };

	json_begin(&w, NULL, '{');
	json_text(&w, "file", path);
	json_number(&w, "bytes", file->bytes);
	for (size_t i = 0; i < N_NAMES; i++)
		if (*file->values[i])
			json_text(&w, names[i], file->values[i]);
	json_end(&w, '}');
}

static void put_text(const char *path, const struct file *file)
{
	const unsigned columns = term_columns(80);
	char size[SIZE_TEXT];

	term_style(TERM_TITLE);
	term_wrap(path, 0, columns);
	term_style(TERM_PLAIN);
	fputs("\n\n", stdout);
	term_row("size", format_size(file->bytes, size), columns);
	for (size_t i = 0; i < N_NAMES; i++)
		if (*file->values[i])
			term_row(names[i], file->values[i], columns);
}

bool ctl_info_mounted(const char *path, const struct args *a, int *ret_status)
{
	struct ctl_question q = { .ask = look, .ctx = path };
	struct file file = { 0 };
	char *above = NULL;
	bool mounted;

	ctl_ask(&q, 1);
	if (q.r == -ETIMEDOUT && (above = ctl_mount_above(path))) {
		*ret_status = ctl_refuse(above, CTL_NO_ANSWER);
		free(above);
		return true;
	}
	mounted = q.r == 0 && parse(q.text, &file) && file.kind != 'r' && is_mounted(file.device);
	free(q.text);
	if (!mounted)
		return false;
	if (file.kind == 'd') {
		*ret_status = ctl_refuse(ctl_shown(path),
					 "is a directory of a mount: info takes a file of it, "
					 "its mountpoint, or a carton");
		return true;
	}
	(a->values.json ? put_json : put_text)(path, &file);
	*ret_status = EXIT_GOOD;
	return true;
}
