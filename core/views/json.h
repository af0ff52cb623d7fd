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
 * One tensor, pair or problem per line. "tensors" and "problems" are always present, "metadata" only if
 * not empty. dtypes are named as in their source. An unknown size is null.
 */
#ifndef CARTON_VIEWS_JSON_H
#define CARTON_VIEWS_JSON_H

#include "tensor/dtype.h"
#include "base/util.h"

/* The parts of the text, in their order. */
enum view_json_part { VIEW_JSON_NONE, VIEW_JSON_TENSORS, VIEW_JSON_METADATA, VIEW_JSON_PROBLEMS };

struct view_json {
	struct buf *b;
	enum view_json_part part; /* the current one */
	bool any;		  /* it has an element */
	struct budget *budget;	  /* counts the text until its end; may be NULL */
	uint64_t taken;
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
 * Call begin, then tensor, pair and problem any number of times in that order, then end. The text is
 * appended to `b`, which the caller owns. Each returns 0, -ENOMEM, -EFBIG when `b` is full, or -EINVAL if
 * called out of order. Discard the text after a failure.
 */
int view_json_begin(struct view_json *j, struct buf *b, struct budget *budget);
int view_json_tensor(struct view_json *j, const struct view_json_tensor *t);
int view_json_pair(struct view_json *j, struct view_json_text key, struct view_json_text value);

/* `name.s` NULL: no particular tensor; `line` 0: no particular line. */
int view_json_problem(struct view_json *j, struct view_json_text name, size_t line,
		      const char *problem);
int view_json_end(struct view_json *j);

/* Counts the text no longer. After end, or a failure. */
void view_json_free(struct view_json *j);

#endif
