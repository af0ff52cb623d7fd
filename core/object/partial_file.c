/* SPDX-License-Identifier: Apache-2.0 */
#include "object/partial_file.h"

#include <unistd.h>

#include "base/util.h"
#include "cache/dest.h"
#include "object/internal.h"

/* the validator of a partial file of chunks, in place of an ETag: each chunk has a hash */
#define VALIDATOR "chunks"

static struct cache *cache_of(const struct partial_file *f)
{
	return f->object->store->options.cache;
}

/* A partial of that size, whatever is in it: it is hashed before use. */
static int adopt(struct partial_file *f)
{
	char validator[MAX_CACHE_VALIDATOR + 1];
	uint64_t len;
	int r = cache_fill_partial(f->fill, &len, validator, sizeof(validator));

	if (r == 0 && len == f->size && strcmp(validator, VALIDATOR) == 0)
		return 0;
	r = cache_fill_restart(f->fill, VALIDATOR);
	if (r == 0 && ftruncate(cache_fill_fd(f->fill), (off_t)f->size) < 0)
		r = -errno;
	return r < 0 ? r : cache_fill_progress(f->fill, f->size);
}

/* Its name in the cache is no sha256 of content: nobody finds it as an object. */
static int open_fill(struct partial_file *f)
{
	uint8_t name[sizeof(VALIDATOR) + SHA256_SIZE], key[SHA256_SIZE];
	int r;

	memcpy(name, VALIDATOR, sizeof(VALIDATOR));
	memcpy(name + sizeof(VALIDATOR), f->object->sha256, SHA256_SIZE);
	r = cache_of(f) ? sha256_mem(name, sizeof(name), key) : -ENOENT;
	if (r == 0)
		r = cache_begin(cache_of(f), key, &f->fill);
	if (r == 0)
		r = adopt(f);
	if (r == 0)
		r = fd_dup(cache_fill_fd(f->fill));
	if (r >= 0)
		return r;
	/* the bytes go elsewhere: this file must not be published */
	cache_fill_abort(f->fill, true);
	f->fill = NULL;
	return r;
}

int partial_file_open(struct partial_file *f, const struct object *o, uint64_t size,
		      struct source **ret)
{
	int fd, r = 0;

	*f = (struct partial_file){ .object = o, .size = size };
	fd = open_fill(f);
	if (fd < 0)
		r = cache_tmpfile(cache_of(f), &fd);
	if (r < 0)
		return r;
	if (ftruncate(fd, (off_t)size) < 0) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	return source_from_fd(fd, ret);
}

int partial_file_make_room(struct partial_file *f, int fd, uint64_t n)
{
	struct cache *cache = cache_of(f);

	if (f->fill && cache_reserve(cache, n) < 0 &&
	    !(keep_drop_idle(f->object->store) && cache_reserve(cache, n) == 0)) {
		cache_fill_abort(f->fill, false);
		f->fill = NULL;
	}
	return f->fill || dest_disk_has_room(fd, n, UINT64_MAX) ? 0 : -ENOSPC;
}

void partial_file_publish(struct partial_file *f)
{
	int fd;

	if (f->fill && cache_fill_publish(f->fill, f->object->sha256, f->size, &fd) == 0) {
		f->fill = NULL;
		fd_close(fd);
	}
}

void partial_file_close(struct partial_file *f)
{
	cache_fill_abort(f->fill, true);
}
