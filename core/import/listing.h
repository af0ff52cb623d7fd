/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lister says of a repository at one commit, and the carton that says the same: carton.toml,
 * MANIFEST, LINKS with sizes, and the small files that have no sha256 in the listing.
 *
 * Version 1 of the rule: a file of the repository is `model/PATH`; carton.toml is as
 * listing_carton_toml() writes it. So MANIFEST, and its hash, follow from the commit alone: they
 * are the same on each machine and in each later release. cartonfs(7) has the rule for
 * users.
 *
 * Nothing that a hub says is trusted: paths, sizes and counts are checked as they come.
 *
 * Threads: one at a time.
 */
#ifndef CARTON_IMPORT_LISTING_H
#define CARTON_IMPORT_LISTING_H

#include <stdbool.h>

#include "carton.h"
#include "base/arena.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/util.h"
#include "format/links.h"

struct budget;
struct file;
struct source;
struct lister;
struct repository;

/* Is it the name of a commit of git: a sha1 in lower-case hex? */
bool listing_is_commit(const char *text);

/* Bytes of the name of a commit, or of a digest, with its NUL. */
#define LISTING_COMMIT 80

/* Bytes of a path with its NUL. A path that is cut to this size is still seen to be too long. */
#define LISTING_NAME (MAX_PATH_LEN + 2)

struct listed {
	const char *path; /* `model/PATH` */
	uint64_t size;
	bool small;		     /* the listing has no sha256 of it: */
	uint8_t oid[SHA1_SIZE];	     /* this is the id that git gives its content, */
	uint64_t at;		     /* which is at this offset of listing.bytes, once fetched */
	uint8_t sha256[SHA256_SIZE]; /* of a small file, known once it is fetched */
	const char *commit;	     /* in its URL, of the listing's names; NULL: the listing's */
	uint32_t layer;		     /* number of the layer that has the file, from 1; 0: none */
	uint64_t off;		     /* where it begins in the tar of that layer */
	bool executable;
	bool above;	    /* it has the path of a directory of others */
	bool unknown;	    /* `sha256` is a name made of the git id (git_name()) */
	const char *target; /* of a symlink, to a file with this size and hash; else NULL */
};

/* A layer of an artifact that is a tar, perhaps compressed. */
struct listed_layer {
	uint8_t blob[SHA256_SIZE]; /* hash of the blob of the registry */
	uint64_t blob_size;
	uint8_t tar[SHA256_SIZE]; /* hash of the tar in it; all zero until it is known */
	uint64_t size;		  /* of the tar */
	bool estargz;		  /* the blob says so, at its end */
	struct source *source;	  /* the tar, owned; NULL: not open */
};

/* A text of an artifact, such as its manifest. */
struct listed_text {
	uint8_t sha256[SHA256_SIZE];
	struct buf text;
};

struct listing {
	const struct lister *lister;
	struct repository *repo;
	const char *name; /* what people call it: ORG/REPO */
	const struct carton_runner *runner;
	bool late;    /* the late carton is wanted */
	bool gated;   /* the hub gives the files only to users with access */
	char id[256]; /* the name as the hub writes it; "" until it has said so */
	char commit[LISTING_COMMIT];
	char *license;	   /* owned; NULL: none is said */
	struct buf answer; /* what resolve() leaves for list() */
	/* Of a carton, as it is: its texts, and paths are those that it has. Else empty. */
	struct buf carton_toml, manifest;
	struct listed_text *texts; /* the texts that were fetched, to be kept under their digests */
	size_t n_texts, cap_texts;
	struct listed *files; /* sorted by path, once it is complete */
	size_t n, cap;
	struct listed_layer *layers;
	size_t n_layers, cap_layers;
	uint64_t small;	    /* sum of the sizes of all small files */
	struct file *bytes; /* content of all small files; owned; NULL before it is fetched */
	struct arena names; /* counted */
	/* The number of files that MANIFEST cannot hold, and the first of these files. */
	uint64_t n_left_out;
	struct left_out left_out[MAX_REPORTED];
	struct budget *budget;
	uint64_t taken; /* of the budget, for `files` */
};

/*
 * Adds a file that is at `path` in the repository. `sha256` NULL: it is a small one. `oid` is the
 * id of its content, else of the pointer that git has in its place, which follows from hash and
 * size and is compared; then it may be NULL. 0; 1: MANIFEST cannot hold such a path, so the file is
 * left out; -EBADMSG, -EFBIG, logged; -ENOMEM.
 */
int listing_add(struct listing *l, const char *path, uint64_t size, const uint8_t oid[SHA1_SIZE],
		const uint8_t *sha256);

/* Adds a layer without its files. 0, -ENOMEM or -EFBIG. */
int listing_add_layer(struct listing *l, const uint8_t blob[SHA256_SIZE], uint64_t size);

/* Keeps the first license that is said, if it is written as one of SPDX. 0 or -ENOMEM. */
int listing_license(struct listing *l, const char *text);

/* All were added: sorts them. 0; -EBADMSG: a path is there twice (logged). */
int listing_sort(struct listing *l);

/*
 * Compares `data`, f->size bytes, with the id of that small file. Writes them to l->bytes, and sets
 * f->sha256. 0; -EBADMSG: they differ; or errors of file_write(). Any thread, one for each file.
 */
int listing_take(struct listing *l, struct listed *f, const void *data);

/* What is wrong with a runner; NULL: nothing. */
const char *listing_runner_fault(const struct carton_runner *runner);

/* Adds the table [runner] of carton.toml. Errors of buf_add(). */
int listing_add_runner(const struct carton_runner *runner, struct buf *ret);

/*
 * Gives each small file a name made of its git id, in place of its sha256; an empty file gets its
 * sha256. Before any small file is fetched. 0; -EBADMSG: an empty file with the id of another
 * (logged); or -errno.
 */
int listing_name_small(struct listing *l);

/*
 * Writes the carton to an empty file: a late one if l->late is set, after listing_name_small();
 * else all small files are in l->bytes. 0 or -errno, logged.
 */
int listing_write(const struct listing *l, int fd);

void listing_finish(struct listing *l);

#endif
