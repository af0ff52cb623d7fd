/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip-read: what core/archive reads in zip archives, for tests/fuzz/differential.py.
 *
 * Reads archives from stdin, each after its length as 4 little-endian bytes. Prints a line of JSON
 * for each: {"refused": WHY}, or {"entries": [[NAME, KIND, SIZE, SHA256]]}, where an entry that
 * cannot be read has null instead of a hash.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "archive/container.h"
#include "archive/zip.h"
#include "base/digest.h"
#include "base/source.h"
#include "base/util.h"

#define MAX_READ (8 * MIB) /* of one entry; a larger one counts as unreadable */

static char why[512];

static void keep_message(void *ctx, enum carton_log_level level, const char *subject,
			 const char *message)
{
	(void)ctx;
	(void)level;
	snprintf(why, sizeof(why), "%s: %s", subject ? subject : "", message);
}

/* Reads the content of a file or symlink, or checks a directory. False: it cannot be read. */
static bool read_entry(struct container *c, const struct entry *e, struct buf *ret)
{
	struct source *source;
	uint64_t off;
	int r;

	if (e->kind != ENTRY_DIR)
		return container_read(c, e, MAX_READ, ret) == 0 &&
		       (e->kind == ENTRY_FILE ||
			(!memchr(ret->data, '\0', ret->len) && utf8_valid(ret->data, ret->len)));
	r = container_locate(c, e, &source, &off);
	if (r == 0)
		source_unref(source);
	return r == 0;
}

static void print_entry(struct container *c, const struct entry *e, struct buf *line)
{
	static const char *const kinds[] = { "file", "dir", "symlink" };
	struct buf content = { 0 };
	uint8_t sha256[SHA256_SIZE];
	char hex[2 * SHA256_SIZE + 1];

	buf_addc(line, '[');
	buf_add_json(line, e->name, e->name_len);
	buf_addf(line, ",\"%s\",%llu,", kinds[e->kind], (unsigned long long)e->size);
	if (read_entry(c, e, &content) &&
	    sha256_mem(content.data ? content.data : "", content.len, sha256) == 0) {
		hex_encode(sha256, SHA256_SIZE, hex);
		buf_addf(line, "\"%s\"],", hex);
	} else {
		buf_adds(line, "null],");
	}
	buf_finish(&content);
}

static void read_zip(int fd, struct buf *line)
{
	struct container *c;
	struct source *source;

	if (source_from_fd(fd, &source) < 0)
		exit(2);
	if (zip_open(source, NULL, &c) < 0) {
		buf_adds(line, "{\"refused\":");
		buf_add_json(line, why, strlen(why));
		buf_adds(line, "}");
	} else {
		buf_adds(line, "{\"entries\":[");
		for (size_t i = 0; i < c->n_entries; i++)
			print_entry(c, &c->entries[i], line);
		if (c->n_entries)
			line->len--;
		buf_adds(line, "]}");
		container_close(c);
	}
	source_unref(source);
}

int main(void)
{
	struct buf line = buf_init(SIZE_MAX / 2);
	uint8_t length[4];

	carton_log_set(keep_message, NULL);
	while (fread(length, sizeof(length), 1, stdin) == 1) {
		size_t n = get_le32(length);
		char *data = malloc(n + 1);
		int fd = memfd_create("zip", MFD_CLOEXEC);

		if (!data || fd < 0 || fread(data, 1, n, stdin) != n ||
		    pwrite_full(fd, data, n, 0) < 0)
			return 2;
		free(data);
		line.len = 0;
		read_zip(fd, &line);
		puts(line.data);
		fflush(stdout);
	}
	buf_finish(&line);
	return 0;
}
