/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this folder, lowest first: ask, page, kept, again, small, oci_get,
 * referrers, layer_read, layer, merge, layers, layers_text, write, listers, packed, import.
 */
#ifndef CARTON_IMPORT_INTERNAL_H
#define CARTON_IMPORT_INTERNAL_H

#include "archive/tar.h"
#include "base/limits.h"
#include "base/util.h"
#include "import/artifact.h"
#include "import/import.h"
#include "import/listing.h"

/* ---- ask.c ---- */

/*
 * Sends a GET of `url`. Puts the answer, at most MAX_LISTING_PAGE bytes, into a zeroed buf, and the
 * URL of the next page, or "", into ret_next. The budget counts the memory for reading the answer
 * until import_forget(), or until import_uncount(), after which the caller counts and frees it. 0;
 * or as fetch_run(), logged, and the buf is empty.
 */
int import_ask(const struct import *im, const struct listing *l, const char *url, struct buf *ret,
	       char ret_next[HTTP_MAX_NEXT]);
void import_forget(const struct import *im, struct buf *answer);
void import_uncount(const struct import *im, const struct buf *answer);

struct import_question {
	const char *url;
	const char *accept; /* media types; or NULL */
	bool anywhere;	    /* a redirect may lead to another server: the bytes have a hash */
	uint64_t max;	    /* bytes that it may have; 0: as many as a page */
	bool mirror;	    /* the server is a mirror */
	bool quiet;	    /* no failure is logged that is of this answer */
	bool may_lack;	    /* a URL that the server does not know (404, 400 ...) is not logged */
	struct http_response answer; /* out: the headers of a good answer */
};

/* The same with more to say. */
int import_get(const struct import *im, const struct listing *l, struct import_question *q,
	       struct buf *ret);

/* ---- page.c ---- */

/*
 * The URL of the page after the one at `asked`: the same, but with the query of `next`, the link
 * that the server gave, which may be relative. 0, malloc'ed; -EBADMSG: the last component of its
 * path is another one, so it leads to another list; -ENOMEM.
 */
int import_next(const char *asked, const char *next, char **ret);

/* ---- kept.c ---- */

/*
 * The carton that was made of l->commit, which is now the one of the revision; "": of the last one
 * that the revision was known to have, which l->commit is then. 0; -ENOENT; -ENOMEM.
 */
int kept_open(const struct import *im, struct listing *l, struct source **ret);

/* Keeps the carton, if there is room; then `fd` is of no use. 0 and its file; or -errno. */
int kept_put(const struct import *im, const struct listing *l, int fd, struct source **ret);

/* Takes the content of a small file from the cache, if it has that id. 0; else -ENOENT. */
int kept_small(const struct import *im, struct listing *l, struct listed *f);
void kept_put_small(const struct import *im, const struct listed *f, const void *data);

/*
 * kept_text() reads the text with that sha256, such as the manifest of an artifact, into an empty
 * buf, and counts its length for the caller, who gives it back. 0; -ENOENT: no such text of at most
 * MAX_LISTING_PAGE bytes is kept; -EFBIG, logged: the budget has no room. kept_put_texts() keeps
 * l->texts, if there is room.
 */
int kept_text(const struct import *im, const uint8_t sha256[SHA256_SIZE], struct buf *ret);
void kept_put_texts(const struct import *im, const struct listing *l);

/*
 * The signature that was kept of l->commit: as kept_text().
 */
int kept_signature(const struct import *im, const struct listing *l, struct buf *ret);
void kept_put_signature(const struct import *im, const struct listing *l, const struct buf *text);

/* ---- again.c ---- */

/*
 * Fills the listing from the late carton that the cache has of l->commit, or of the revision, as
 * kept_open(). 0; -ENOENT: there is none; or -errno.
 */
int import_again(const struct import *im, struct listing *l);

/* ---- small.c ---- */

/*
 * Gets the bytes of all small files; `one`: only of the first, to see whether the hub gives them.
 * 0, or -errno of the first that failed, logged.
 */
int import_small(const struct import *im, struct listing *l, bool one);

/* ---- oci_get.c ---- */

#define OCI_DIGEST_SIZE (7 + 2 * SHA256_SIZE + 1)

/* Writes sha256:HEX of the text. 0 or -errno. */
int oci_digest(const struct buf *text, char ret[OCI_DIGEST_SIZE]);

/*
 * Gets .../WHAT/WHICH of the registry. If `which` is a digest, compares it with the bytes. The
 * caller frees the text, also of a failure; l->taken counts its length in the budget. A text with a
 * digest is taken from the cache if that has it. A text that is fetched is added to l->texts. 0;
 * -ENOENT: it is not in the cache, and nothing is fetched when offline; or -errno, logged.
 */
int oci_get(const struct import *im, struct listing *l, const char *what, const char *which,
	    struct buf *ret);

/* The same of a blob that should have at most `max` bytes. */
int oci_get_blob(const struct import *im, struct listing *l, const struct artifact_blob *blob,
		 uint64_t max, struct buf *ret);

/*
 * The same of something that others may have attached. No more of it is read than its size, or
 * ATTACHED_COST if that is more. It is not added to l->texts.
 */
struct oci_part {
	const char *what, *digest; /* `manifests` or `blobs` */
	uint64_t size;		   /* as it is said */
	bool quiet;		   /* that it is wrong, too large or not shown is not logged */
};
int oci_get_attached(const struct import *im, struct listing *l, const struct oci_part *part,
		     struct buf *ret);

/* ---- referrers.c ---- */

/* The `signatures` of the lister of registries. */
int oci_signatures(const struct import *im, struct listing *l, import_signature_fn *take,
		   void *ctx);

/* ---- layer.c ---- */

/* Gets the entries of a layer. None of them is verified before layer_get() returns 0. */
struct layer_scan {
	int (*begin)(void *ctx); /* called before the first entry, each time the tar is read */
	int (*entry)(void *ctx, const struct tar_entry *e);
	const struct tagger *tagger; /* or NULL */
	void *ctx;
};

/*
 * Opens the tar of a layer as layer->source. Takes it from the cache, or fetches the blob, and
 * unpacks it if it is compressed. With `scan`, reads all of the tar, and compares the blob with its
 * digest. Without, layer->tar is known, and a tar that is in the cache is neither read nor hashed.
 * 0; -EBADMSG: the bytes are not those of the digest, or are no tar; -EFBIG: it unpacks to too many
 * bytes; -ENETUNREACH: offline (all logged); -ENOSPC; or errors of tar_scan() and fetch_run().
 */
int layer_get(const struct import *im, const struct listing *l, struct listed_layer *layer,
	      const struct layer_scan *scan);

/* ---- layers.c ---- */

/*
 * Reads all layers of the artifact that are tars, and adds the merged files to the listing. `root`
 * is passed to merge_end(). 0, or errors of layer_get().
 */
int layers_read(const struct import *im, struct listing *l, const char *root);

/* ---- layers_text.c ---- */

/* Name of the entry of a kept carton that tells which of its files are in layers, and where. */
#define LAYERS "LAYERS"

/* Writes the text of that entry. Errors of buf_add(). */
int layers_write(const struct listing *l, struct buf *ret);

/* A file of that text, into which `path` points. */
struct layers_file {
	const char *path;
	size_t n_path;
	uint32_t layer; /* from 1 */
	uint64_t off, size;
	bool executable;
};

/*
 * Parses that text. Adds its layers to `l`, and calls `file` for each file, whose range is within
 * its tar. 0; -EBADMSG, logged; -ENOMEM; -EFBIG; or the error of `file`.
 */
int layers_parse(struct listing *l, const struct buf *text,
		 int (*file)(void *ctx, const struct layers_file *f), void *ctx);

/* ---- hub.c ---- */

/* The two answers, for fuzzing: as they are read by the lister. */
int hub_read_revision(struct listing *l, const struct buf *text);
int hub_read_page(struct listing *l, const struct buf *text);

/* ---- modelscope.c ---- */

/* The answer, likewise: sets the commit, too. */
int modelscope_read(struct listing *l, const struct buf *text);

#endif
