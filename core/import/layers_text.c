/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text LAYERS of a kept carton: its layers, and the files that are ranges of their tars.
 *
 *	layers 1
 *	layer TAR SIZE BLOB SIZE
 *	file LAYER OFFSET SIZE x PATH
 *
 * TAR and BLOB are sha256 hashes. LAYER is the number of a layer, from 1. A file that is not
 * executable has - in place of x.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "import/internal.h"

#define HEX (2 * SHA256_SIZE)

int layers_write(const struct listing *l, struct buf *ret)
{
	char tar[HEX + 1], blob[HEX + 1];
	int r = buf_adds(ret, "layers 1\n");

	for (size_t i = 0; i < l->n_layers; i++) {
		const struct listed_layer *y = &l->layers[i];

		hex_encode(y->tar, SHA256_SIZE, tar);
		hex_encode(y->blob, SHA256_SIZE, blob);
		r = buf_addf(ret, "layer %s %" PRIu64 " %s %" PRIu64 "\n", tar, y->size, blob,
			     y->blob_size);
	}
	for (size_t i = 0; i < l->n; i++) {
		const struct listed *f = &l->files[i];

		if (f->layer && !f->target)
			r = buf_addf(ret, "file %u %" PRIu64 " %" PRIu64 " %c %s\n", f->layer,
				     f->off, f->size, f->executable ? 'x' : '-', f->path);
	}
	return r;
}

/* ---- reading ---- */

struct line {
	const char *at, *end; /* the rest, which is not parsed yet */
};

static bool take_word(struct line *ln, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(ln->end - ln->at) < n || memcmp(ln->at, word, n) != 0)
		return false;
	ln->at += n;
	return true;
}

/* Parses a number, and the space after it unless the line ends there. */
static bool take_number(struct line *ln, uint64_t max, uint64_t *ret)
{
	const char *begin = ln->at;
	uint64_t v = 0;

	while (ln->at < ln->end && *ln->at >= '0' && *ln->at <= '9') {
		v = 10 * v + (uint64_t)(*ln->at++ - '0');
		if (v > max)
			return false;
	}
	*ret = v;
	if (ln->at == begin)
		return false;
	return ln->at == ln->end || *ln->at++ == ' ';
}

static bool take_hash(struct line *ln, uint8_t ret[SHA256_SIZE])
{
	if (ln->end - ln->at <= HEX || ln->at[HEX] != ' ' || !hex_decode(ln->at, SHA256_SIZE, ret))
		return false;
	ln->at += HEX + 1;
	return true;
}

static int malformed(const struct listing *l)
{
	return log_error(-EBADMSG, l->name, "what the cache has noted of its layers is damaged");
}

static int parse_layer(struct listing *l, struct line *ln)
{
	struct listed_layer y;
	int r;

	if (l->n_layers == MAX_LAYERS || !take_hash(ln, y.tar) ||
	    !take_number(ln, MAX_FILE_SIZE, &y.size) || !take_hash(ln, y.blob) ||
	    !take_number(ln, MAX_FILE_SIZE, &y.blob_size) || ln->at != ln->end)
		return malformed(l);
	r = listing_add_layer(l, y.blob, y.blob_size);
	if (r < 0)
		return r;
	memcpy(l->layers[l->n_layers - 1].tar, y.tar, SHA256_SIZE);
	l->layers[l->n_layers - 1].size = y.size;
	return 0;
}

static int parse_file(const struct listing *l, struct line *ln, struct layers_file *ret)
{
	uint64_t layer, size;

	if (!take_number(ln, l->n_layers, &layer) || layer == 0 ||
	    !take_number(ln, MAX_FILE_SIZE, &ret->off) ||
	    !take_number(ln, MAX_FILE_SIZE, &ret->size))
		return malformed(l);
	ret->executable = take_word(ln, "x ");
	if (!ret->executable && !take_word(ln, "- "))
		return malformed(l);
	size = l->layers[layer - 1].size;
	ret->layer = (uint32_t)layer;
	ret->path = ln->at;
	ret->n_path = (size_t)(ln->end - ln->at);
	if (ret->size > size || ret->off > size - ret->size || path_fault(ret->path, ret->n_path))
		return malformed(l);
	return 0;
}

int layers_parse(struct listing *l, const struct buf *text,
		 int (*file)(void *ctx, const struct layers_file *f), void *ctx)
{
	const char *at = text->data ? text->data : "", *end = at + text->len;
	struct layers_file f;
	int r = 0;

	for (bool first = true; at < end && r == 0; first = false) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		struct line ln = { at, nl };

		if (!nl || (first && !take_word(&ln, "layers 1")))
			return malformed(l);
		at = nl + 1;
		if (first)
			r = ln.at == ln.end ? 0 : malformed(l);
		else if (take_word(&ln, "layer "))
			r = parse_layer(l, &ln);
		else
			r = take_word(&ln, "file ") ? parse_file(l, &ln, &f) : malformed(l);
		if (r == 0 && !first && ln.at != ln.end)
			r = file(ctx, &f);
	}
	return r;
}
