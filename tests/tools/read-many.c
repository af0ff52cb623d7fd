/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read-many: reads one file of each of many cartons in one process, for tests that try thousands
 * of damaged cartons. What `cartonctl cat CARTON PATH` does, without starting a process for each.
 *
 * stdin has a line "CARTON\tPATH" for each. stdout has, for each, a line "RESULT ERRORS LENGTH" and
 * LENGTH bytes of content. RESULT is 0 or -errno; ERRORS counts the errors that were logged.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "carton.h"

static atomic_uint errors;

static void count_errors(void *ctx, enum carton_log_level level, const char *subject,
			 const char *message)
{
	(void)ctx;
	(void)subject;
	(void)message;
	if (level == CARTON_LOG_ERROR)
		errors++;
}

/* Appends all of a pinned file. */
static int read_all(struct carton_node *file, struct buf *content)
{
	char block[4096];
	uint64_t off = 0;
	ssize_t n;
	int r = 0;

	while (!r && (n = carton_read(file, block, sizeof(block), off, false)) != 0) {
		r = n < 0 ? (int)n : buf_add(content, block, (size_t)n);
		off += n < 0 ? 0 : (uint64_t)n;
	}
	return r;
}

static int read_one(const char *source, const char *path, struct buf *content)
{
	static const struct carton_options options;
	struct carton_node *file;
	struct carton *c;
	int r = carton_open(source, &options, &c);

	if (r < 0)
		return r;
	r = carton_resolve(c, path, &file);
	if (r == 0)
		r = carton_pin_wait(c, file);
	if (r == 0) {
		r = read_all(file, content);
		carton_unpin(file);
	}
	carton_close(c);
	return r;
}

int main(void)
{
	char *line = NULL, *path;
	size_t cap = 0;
	ssize_t n;

	carton_log_set(count_errors, NULL);
	while ((n = getline(&line, &cap, stdin)) > 0) {
		struct buf content = buf_init(MIB);
		int r;

		line[n - 1] = '\0';
		path = strchr(line, '\t');
		if (!path)
			return 2;
		*path++ = '\0';
		errors = 0;
		r = read_one(line, path, &content);
		printf("%d %u %zu\n", r, (unsigned)errors, content.len);
		if (content.len)
			fwrite(content.data, 1, content.len, stdout);
		buf_finish(&content);
		if (fflush(stdout))
			return 2;
	}
	free(line);
	return 0;
}
