/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of carton.toml, MANIFEST and LINKS (carton format v1). */
#ifndef CARTON_WRITER_LISTS_H
#define CARTON_WRITER_LISTS_H

#include "base/digest.h"
#include "base/util.h"
#include "format/links.h"

/* Adds `key = "value"`. Errors of buf_add(). */
int lists_add_string(struct buf *toml, const char *key, const char *value);

/* Adds a line of MANIFEST. Lines come in alphabetical order (strcmp). Errors of buf_add(). */
int lists_add_file(struct buf *manifest, const char *path, const uint8_t sha256[SHA256_SIZE]);

/*
 * Checks a template: a URL that has {sha256} in place of the hash. NULL, or what is wrong with it.
 */
const char *lists_template_fault(const char *url);

/*
 * Begins LINKS, then adds the URLs of a hash: those of the templates, then those of `old` (NULL:
 * none) that are not among them. Hashes come in order. -EFBIG over the limits of links.h; -ENOMEM.
 */
int lists_begin_links(struct buf *links);
int lists_add_link(struct buf *links, const uint8_t sha256[SHA256_SIZE],
		   const char *const *templates, const struct link *old);

/* Then the sizes, if they are known: begins them, and adds one. Errors of buf_add(). */
int lists_begin_sizes(struct buf *links);
int lists_add_size(struct buf *links, const uint8_t sha256[SHA256_SIZE], uint64_t size);

/* Then git's ids of contents whose sha256 is not known; the name is git_name() of the id. */
int lists_begin_git(struct buf *links);
int lists_add_git(struct buf *links, const uint8_t name[SHA256_SIZE], const uint8_t id[SHA1_SIZE]);

/* Adds [left_out], the last table: of `n` files, `list` has the first. Errors of buf_add(). */
int lists_add_left_out(struct buf *links, uint64_t n, const struct left_out *list);

#endif
