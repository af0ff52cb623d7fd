/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index.json of a view: its tensors, their files, and the problems found.
 *
 *	{
 *	 "tensors": [
 *	  {"name": "x", "dtype": "float32", "shape": [6], "bytes": 24, "files": ["x.bin", "x.npy"]},
 *	  {"name": "n", "dtype": "nested", "inner": ["x"], "bytes": 24, "files": ["n/0.bin"]}
 *	 ],
 *	 "metadata": {"format": "pt"},
 *	 "problems": [
 *	  {"name": "y", "line": 9, "problem": "it has no shape"}
 *	 ]
 *	}
 *
 * One tensor, pair or problem per line. "tensors" and "problems" are always present, "metadata"
 * only if not empty. dtypes are named as in their source. An unknown size is null.
 */
#ifndef CARTON_VIEWS_JSON_H
#define CARTON_VIEWS_JSON_H

#include "tensor/dtype.h"
#include "base/util.h"

/* The parts of the text, in their order. */
enum view_json_part { VIEW_JSON_NONE, VIEW_JSON_TENSORS, VIEW_JSON_METADATA, VIEW_JSON_PROBLEMS };

/* Takes the next bytes of the text, as derived_write() does: 0 or -errno. */
typedef int view_json_write_fn(void *ctx, const void *data, size_t n);

struct view_json {
	view_json_write_fn *write; /* NULL: the text is only counted */
	void *ctx;
	uint64_t size;		  /* of the text so far */
	enum view_json_part part; /* the current one */
	bool any;		  /* it has an element */
	struct buf text;	  /* not written yet */
};

#define VIEW_JSON_UNKNOWN UINT64_MAX /* a size that is not known */

/* A text with its length; may hold NUL. */
struct view_json_text {
	const char *s;
	size_t n;
};

struct view_json_tensor {
	const struct tensor_info *info;
	const char *dtype;		    /* its name in the source */
	uint64_t bytes;			    /* of its .bin files, or VIEW_JSON_UNKNOWN */
	const struct view_json_text *files; /* paths from the directory of index.json */
	size_t n_files;
	const struct view_json_text *inner; /* names, of a nested tensor */
	size_t n_inner;
};

/*
 * Call view_json_init(), then tensor, pair and problem any number of times in that order, then end;
 * and view_json_finish() in any case. Each returns 0, -ENOMEM, -EINVAL if called out of order, or
 * the error of `write`; the first failure stays.
 */
void view_json_init(struct view_json *j, view_json_write_fn *write, void *ctx);
int view_json_tensor(struct view_json *j, const struct view_json_tensor *t);
int view_json_pair(struct view_json *j, struct view_json_text key, struct view_json_text value);

/* `name.s` NULL: no particular tensor; `line` 0: no particular line. */
int view_json_problem(struct view_json *j, struct view_json_text name, size_t line,
		      const char *problem);
int view_json_end(struct view_json *j);
void view_json_finish(struct view_json *j);

#endif
