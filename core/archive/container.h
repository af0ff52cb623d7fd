/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container is a set of named entries: a zip file (zip.h) or an unpacked directory (dir.h).
 *
 * All entries are known, checked and sorted by name once it is open. It promises that names are
 * good (path_fault), unique, and that none is used both as a file and as a directory. It says
 * nothing about what the bytes should be: that is MANIFEST's (manifest.h, object.h).
 */
#ifndef CARTON_ARCHIVE_CONTAINER_H
#define CARTON_ARCHIVE_CONTAINER_H

#include <stdint.h>

#include "base/source.h"
#include "base/util.h"

enum entry_kind {
	ENTRY_FILE,
	ENTRY_DIR,
	ENTRY_SYMLINK,
};

struct entry {
	char *name;	 /* NUL-terminated, no trailing slash */
	uint64_t size;	 /* bytes of its content; of a symlink: of its target */
	uint64_t stored; /* bytes it takes in the container */
	uint64_t header; /* zip: offset of its local header */
	uint64_t end;	 /* zip: where the next entry or the central directory begins */
	int64_t mtime;	 /* seconds since 1970; NO_TIME: not said */
	uint32_t crc;	 /* zip */
	uint16_t method; /* enum decode_method */
	uint16_t flags;	 /* zip: general purpose bits */
	uint16_t name_len;
	bool has_crc;
	bool executable;
	enum entry_kind kind;
};

#define NO_TIME INT64_MIN

struct container {
	const struct container_ops *ops;
	struct entry *entries; /* sorted by path_compare */
	size_t n_entries;
	int64_t mtime; /* of the file or directory itself */
	bool remote;   /* reading costs requests */
	bool one_file; /* all entries lie in one source, which is open anyway */
};

struct container_ops {
	int (*locate)(struct container *c, const struct entry *e, struct source **ret_source,
		      uint64_t *ret_off);
	int (*readlink)(struct container *c, const struct entry *e, struct buf *ret);
	int (*prefetch)(struct container *c, const struct entry **list, size_t n); /* or NULL */
	void (*free)(struct container *c);
};

/*
 * Orders paths so that a directory's contents stand together right after it: bytewise, with '/'
 * before any other byte. Returns <0, 0 or >0.
 */
int path_compare(const char *a, const char *b);

/* The entry of that name, or NULL. */
const struct entry *container_find(const struct container *c, const char *name);

/*
 * Where the stored bytes of a file or symlink lie: a source (a reference for the caller) and the
 * offset of entry->stored bytes in it. This is where a zip entry's local header is checked.
 * 0; -EBADMSG when it disagrees; -EIO when what was listed is gone; the system's errors.
 */
int container_locate(struct container *c, const struct entry *e, struct source **ret_source,
		     uint64_t *ret_off);

/* The decoded content of an entry as a stream; errors of container_locate and decode.h. */
int container_stream(struct container *c, const struct entry *e, struct stream **ret);

/*
 * Reads a whole entry that no hash covers (MANIFEST, LINKS, a zip's symlink), at most `max` bytes,
 * and checks its crc where the container has one. `ret` must be empty; NUL-terminated on success.
 * 0; -EBADMSG; -EFBIG with a log line for a larger one; errors of container_stream.
 */
int container_read(struct container *c, const struct entry *e, size_t max, struct buf *ret);

/* The target of a symlink, at most MAX_PATH_LEN bytes, as container_read does. */
int container_readlink(struct container *c, const struct entry *e, struct buf *ret);

/*
 * Says that these entries will be read next: where each would cost a request, those that stand
 * together cost one. Reorders `list`. 0, or what the request gives.
 */
int container_prefetch(struct container *c, const struct entry **list, size_t n);

/*
 * For those who build one: sorts the entries and checks them against each other. Logs what is
 * wrong; 0 or -EBADMSG.
 */
int container_index(struct container *c);

/* NULL-safe. */
void container_free(struct container *c);

#endif
