/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container is a set of named entries: a zip file (zip.h), an unpacked directory (dir.h), or a
 * zip file together with ranges of layers (import/packed.h).
 *
 * All entries are read, checked and sorted by name when it is opened. Names are valid (path_fault)
 * and unique, and no name is used both as a file and as a directory. Content is not verified here
 * (object.h).
 *
 * Threads: immutable once open; all functions below may be called from any thread.
 */
#ifndef CARTON_ARCHIVE_CONTAINER_H
#define CARTON_ARCHIVE_CONTAINER_H

#include <stdint.h>

#include "base/arena.h"
#include "base/budget.h"
#include "base/source.h"
#include "base/util.h"

enum entry_kind {
	ENTRY_FILE,
	ENTRY_DIR,
	ENTRY_SYMLINK,
};

/* How a zip archive writes the name of an entry. */
enum entry_raw {
	RAW_SAME,
	RAW_DOT,     /* "./" is before the name */
	RAW_UNICODE, /* the name is in a code page; the extra field 0x7075 has it in UTF-8 */
};

/* There may be millions: 48 bytes. */
struct entry {
	const char *name;    /* NUL-terminated, no trailing slash */
	uint64_t size;	     /* bytes of its content; of a symlink: of its target */
	uint64_t stored;     /* bytes of its data in the container, compressed or not */
	uint64_t header;     /* zip: offset of its local header */
	int64_t mtime : 40;  /* seconds since 1970; valid if the container is `dated` */
	uint64_t flags : 12; /* zip: general purpose bits */
	uint64_t method : 8; /* enum decode_method */
	uint64_t kind : 2;   /* enum entry_kind */
	uint64_t has_crc : 1;
	uint64_t executable : 1;
	union {
		uint32_t crc;	/* zip, with has_crc */
		uint32_t layer; /* import/packed.c, without has_crc: number of the layer */
	};
	uint32_t room : 17; /* zip: bytes around the data, up to the next entry: see entry_end() */
	uint32_t name_len : 12;
	uint32_t raw : 2; /* enum entry_raw */
};

#define MAX_TIME ((INT64_C(1) << 39) - 1) /* of 40 bits */
#define ENTRY_DESCRIPTOR (1 << 3)	  /* bit of `flags`: a data descriptor follows the data */

/* zip: the offset of the next entry, or of the central directory. */
static inline uint64_t entry_end(const struct entry *e)
{
	return e->header + e->stored + e->room;
}

/* zip: where the data begins, if no descriptor follows it and the local header is right. */
static inline uint64_t entry_data(const struct entry *e)
{
	return e->header + e->room;
}

struct container {
	const struct container_ops *ops;
	struct entry *entries; /* sorted by path_compare */
	size_t n_entries;
	struct arena names;    /* of entries whose name is not in another text */
	struct budget *budget; /* counts the tables of the container; outlives it; may be NULL */
	int64_t mtime;	       /* of the directory or the bare file; valid if `dated` */
	bool dated;    /* the mtimes are those of files on disk, not chosen by who packed a zip */
	bool remote;   /* reads are requests to a server */
	bool one_file; /* all entries are ranges of one source, which stays open */
};

struct stat;

struct container_ops {
	int (*locate)(struct container *c, const struct entry *e, struct source **ret_source,
		      uint64_t *ret_off);
	int (*locate_in)(struct container *c, const struct entry *e, struct source *part,
			 uint64_t *ret_off); /* of a remote one, else NULL */
	int (*peek)(struct container *c, const struct entry *e, void *buf,
		    const void **ret_stored); /* or NULL */
	int (*readlink)(struct container *c, const struct entry *e, struct buf *ret);
	int (*prefetch)(struct container *c, const struct entry **list, size_t n); /* or NULL */
	ssize_t (*compare)(struct container *c);				   /* or NULL */
	void (*damaged)(struct container *c, const struct entry *e);		   /* or NULL */
	void (*free)(struct container *c);
};

/*
 * Orders paths so that the contents of a directory follow it directly: bytewise, with '/' before
 * any other byte. Returns <0, 0 or >0.
 */
int path_compare(const char *a, const char *b);

/* The entry of that name, or NULL. */
const struct entry *container_find(const struct container *c, const char *name);

/*
 * Finds the stored bytes of a file or symlink: a source (the caller gets a reference), and the
 * offset where entry->stored bytes begin in it. Checks the local header of a zip entry. 0; -EBADMSG
 * if the header disagrees with the central directory; -EIO if a listed file is gone; errors of the
 * system.
 */
int container_locate(struct container *c, const struct entry *e, struct source **ret_source,
		     uint64_t *ret_off);

/*
 * The same in a copy of a part of a zip: `part` begins with the entry's local header, and has all
 * bytes up to entry_end(), or, if no data descriptor follows the data, at least the local header.
 */
int container_locate_in(struct container *c, const struct entry *e, struct source *part,
			uint64_t *ret_off);

/*
 * Reads the stored bytes of a file if that needs no wait: *ret_stored points to them in `buf`,
 * which has room for entry_end(e) - e->header bytes. 0; -EAGAIN: not in memory, not a local zip, or
 * a faulty entry, which container_locate() logs.
 */
int container_peek(struct container *c, const struct entry *e, void *buf, const void **ret_stored);

/* The decoded content of an entry as a stream; errors of container_locate and decode.h. */
int container_stream(struct container *c, const struct entry *e, struct stream **ret);

/*
 * Reads a whole entry that no hash covers (MANIFEST, LINKS, the target of a zip symlink), at most
 * `max` bytes, and checks its crc if the container has one. `ret` must be empty; it is
 * NUL-terminated on success. The text is counted in the budget as long as the container is open. 0;
 * -EBADMSG; -EFBIG for a larger entry (both logged); errors of container_stream.
 */
int container_read(struct container *c, const struct entry *e, size_t max, struct buf *ret);

/* Reads the target of a symlink, at most MAX_PATH_LEN bytes. Errors of container_read. */
int container_readlink(struct container *c, const struct entry *e, struct buf *ret);

/*
 * Announces that these entries will be read next. A remote container fetches neighbouring ones in
 * one request. Reorders `list`. 0 or the error of the request.
 */
int container_prefetch(struct container *c, const struct entry **list, size_t n);

/*
 * May the file or directory behind `fd` have an entry called `name`, which is ASCII, below no
 * directory? False: it has no such entry, or cannot be opened as a container. The function only
 * searches for bytes and trusts no offset in the file, so it may be called before the process is
 * confined.
 */
bool container_may_have(int fd, const struct stat *st, const char *name);

/*
 * Loads libarchive for container_compare(), before the process is confined. If that fails (logged),
 * container_compare() fails too.
 */
void container_prepare_compare(void);

/*
 * Lists a local zip with another reader too (compare.c), and logs differences. Returns their
 * number, 0 for other containers, or -ENOMEM.
 */
ssize_t container_compare(struct container *c);

/*
 * Reports that the bytes of an entry do not match its hash. If they come from a layer in the cache,
 * drops that layer, so that the next mount fetches it again. Any thread.
 */
void container_damaged(struct container *c, const struct entry *e);

/*
 * For implementations: sorts the entries, drops those of the container's own directory, which have
 * no name, and repeated ones of a directory, and checks the others against each other. 0 or
 * -EBADMSG, logged.
 */
int container_index(struct container *c);

/* NULL-safe. */
void container_close(struct container *c);

#endif
