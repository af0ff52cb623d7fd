/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of views/. From the bottom up:
 *
 *	json, index		no nodes: the text of an index.json; index.toml against the tree
 *	nodes			adds generated directories and files to the tree
 *	strings			objects with the strings of a tensor in a binary form
 *	data			the data of one tensor of the index
 *	tensor_data, triton, safetensors	fill one kind of directory each
 *	views			decides which views there are
 */
#ifndef CARTON_VIEWS_INTERNAL_H
#define CARTON_VIEWS_INTERNAL_H

#include <pthread.h>

#include "content/derived.h"
#include "tensor/filename.h"
#include "views/json.h"
#include "views/views.h"

/* The derived objects of a string tensor. */
struct view_strings {
	struct object *bytes; /* the BYTES form; NULL: not added yet */
	char *later; /* the error of measuring its file when tensor_data/ was filled, or NULL */
};

struct views {
	struct views_options options; /* constant, as are `safetensors` and its length */
	struct node **safetensors;    /* files and symlinks named *.safetensors */
	size_t n_safetensors;
	struct object *loaded; /* to be pinned to have the index read */
	struct index index;    /* constant once it was, but for the problems of tensors */
	/*
	 * Guards these, and the next. Held while a directory is filled from them, but not by who
	 * waits for an object.
	 */
	pthread_mutex_t lock;
	struct view_strings *strings; /* one for each tensor of the index; NULL: none has strings */
	pthread_mutex_t kept_lock;    /* guards `kept` */
	struct view_kept *kept;	      /* see view_keep() */
};

/* ---- nodes.c: any thread ---- */

/*
 * Fills a lazy directory, on a worker. 0; -EFBIG over a limit (permanent: the directory then has
 * only an index.json with the reason); another -errno: the next lookup retries. After a failure
 * the directory is emptied.
 */
typedef int view_make_fn(struct views *v, struct node *dir, struct fill *fill, void *ctx);

/* A lazy directory, which `make` fills at the first lookup in it. */
struct view_lazy {
	const char *name;
	view_make_fn *make;
	void *ctx;
};

/* Adds one: 0 or -errno. `ret` may be NULL. */
int view_add_dir(struct views *v, struct node *parent, const struct view_lazy *d,
		 struct node **ret);

/* Adds a file of one extent. `tensor`: for its extended attributes, or NULL. */
int view_add_file(struct views *v, struct node *parent, const char *name, const struct extent *data,
		  const struct tensor_info *tensor);

/* Adds a file of extents. */
int view_add_extents(struct views *v, struct node *parent, const char *name,
		     const struct extent *extents, size_t n);

/*
 * Adds a file of literal text; or makes a text an extent of a file that will be added to `parent`.
 * Both take over `b`, also on failure.
 */
int view_add_text(struct views *v, struct node *parent, const char *name, struct buf *b);
int view_own_text(struct views *v, struct node *parent, struct buf *b, struct extent *ret);

/* Writes the text of an index.json, always the same, but not its end. 0 or -errno. */
typedef int view_index_fn(struct views *v, struct fill *fill, void *ctx, struct view_json *j);

struct view_index {
	view_index_fn *write;
	void *ctx;
	struct object *file; /* is pinned for `write`; NULL: none */
	bool lock;	     /* `write` runs with views->lock */
};

/*
 * Adds index.json, whose text of `size` bytes is made when it is opened. 0, -ENOMEM, or -EFBIG over
 * a limit.
 */
int view_add_index(struct views *v, struct node *dir, const struct view_index *index,
		   uint64_t size);

/* The files of one tensor: NAME.bin, and NAME.npy where numpy has its dtype. */
struct view_tensor {
	const struct tensor_info *info;
	struct extent data;
	const char *descr; /* numpy's name for the type of `npy_data`; NULL: no .npy */
	struct extent npy_data;
};

/*
 * Headers of .npy files of one directory, which further files with the same header share. Initially
 * all zero.
 */
struct view_headers {
	const struct file_header *headers[256];
};

/* Has the tensor a NAME.npy, with that name for its type? */
bool view_has_npy(const struct tensor_info *info, const char *descr);

int view_add_tensor(struct views *v, struct node *dir, const char *stem,
		    const struct view_tensor *t, struct view_headers *h);

/* Adds a tensor to an index.json, with the files STEM.bin and perhaps STEM.npy. */
int view_list_tensor(struct view_json *j, const struct view_json_tensor *t, const char *stem,
		     bool npy);

/* Says why a directory has nothing but an index.json. */
void view_log_empty(const struct node *dir, const char *why);

/* Makes views_free() call free_fn(p). On -ENOMEM it was called already. */
int view_keep(struct views *v, void *p, void (*free_fn)(void *));
void view_free_kept(struct views *v);

/*
 * For loops that fill a directory, or make a file of it: -ECANCELED if it has no waiters left, else
 * 0.
 */
static inline int view_cancelled(struct fill *fill)
{
	/* asking shows that the work goes on */
	return waits_work(&fill->waits, 64 * KIB);
}

/*
 * True for network failures: leave this part out and show the rest. After a temporary local error
 * the whole directory is filled again instead.
 */
static inline bool view_unreachable(int r)
{
	return r < 0 && r != -EBADMSG && r != -EFBIG && r != -ENOMEM && r != -ENOSPC &&
	       r != -EBUSY && r != -ECANCELED && r != -ENOTCONN;
}

/* ---- data.c: without views->lock, since they wait ---- */

/* Makes views->loaded. 0 or -ENOMEM. */
int view_add_load(struct views *v);

/* Has the index read. 0, or -errno if it may work later. */
int view_load(struct views *v, struct fill *fill);

/* Has the file of a string tensor measured; nothing for others. 0, or -errno as above. */
int view_measure(struct views *v, struct fill *fill, const struct tensor *t);

/* ---- data.c and strings.c: with views->lock ---- */

/* Why the size of a tensor's strings was not known when tensor_data/ was filled, or NULL. */
static inline const char *view_later(const struct views *v, const struct tensor *t)
{
	return v->strings ? v->strings[t - v->index.tensors->list].later : NULL;
}

/*
 * The data of a tensor: its bytes, or the BYTES form of strings, whose file was measured. 0;
 * -EBADMSG: it has a problem or is nested; -errno: try later.
 */
int view_data(struct views *v, struct tensor *t, struct extent *ret);

/* The same, but strings with `later` set have an extent of OBJECT_NO_SIZE bytes. */
int view_data_any(struct views *v, struct tensor *t, struct extent *ret);

/*
 * Adds an object with the strings of `t` in the form that `width` says (struct strings_output),
 * converted from their file when it is opened. `size`: OBJECT_NO_SIZE for a BYTES form that is not
 * measured yet.
 */
int view_add_strings(struct views *v, struct tensor *t, uint64_t width, uint64_t size,
		     struct object **ret);

/* ---- directories ---- */

view_make_fn view_make_tensors;	    /* tensor_data/; ctx NULL */
view_make_fn view_make_triton;	    /* triton/; ctx NULL */
view_make_fn view_make_safetensors; /* ctx: the object of the file. Takes no lock. */
view_make_fn view_make_bare;	    /* the same, and the file; ctx NULL */

/* Adds tensor_data.safetensors if a tensor can be in it. Lock held. */
int view_add_collection(struct views *v, struct node *dir);

#endif
