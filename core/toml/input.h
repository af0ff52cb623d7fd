/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a TOML document, read in blocks, with encoding and line ends checked. */
#ifndef CARTON_TOML_INPUT_H
#define CARTON_TOML_INPUT_H

#include "toml/toml.h"
#include "base/util.h"

#define TOML_BUFFER (64 * KIB)

/*
 * A window on the document. A byte-order mark at the start is dropped, and CRLF becomes LF. A
 * control character (except tab and LF), a lone CR or ill-formed UTF-8 ends the text and sets
 * `fault`. The window never contains a NUL, so a NUL marks its end.
 */
struct toml_input {
	toml_read_fn *read;
	void *read_ctx;
	char *p;	   /* the next byte; NUL: call toml_input_fill */
	size_t line;	   /* of p, from 1; the code that advances p updates it */
	const char *fault; /* why the text ends at the end of the window, or NULL */
	bool started;	   /* the byte-order mark, if any, has been skipped */
	bool ended;	   /* read has returned 0 */
	unsigned n_tail; /* bytes of an incomplete UTF-8 sequence, or a CR, read past the window */
	char tail[4];
	char buf[TOML_BUFFER + 1];
};

void toml_input_init(struct toml_input *in, toml_read_fn *read, void *read_ctx);

/*
 * Replaces the exhausted window by the next one. Returns 1; 0 at the end of the document; -EBADMSG
 * with `fault` set; or the error of `read`.
 */
int toml_input_fill(struct toml_input *in);

#endif
