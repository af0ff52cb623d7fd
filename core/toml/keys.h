/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that a TOML document has defined so far: a tree, with one hash table for lookup. */
#ifndef CARTON_TOML_KEYS_H
#define CARTON_TOML_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"

enum toml_kind {
	TOML_KIND_NEW,	    /* added by toml_keys_get(): its caller says what it is */
	TOML_KIND_VALUE,    /* a scalar, […] or {…}: closed */
	TOML_KIND_IMPLICIT, /* a table known only from a longer header */
	TOML_KIND_HEADER,   /* a table with a header of its own */
	TOML_KIND_DOTTED,   /* a table made by a dotted key */
	TOML_KIND_TABLES,   /* an array of [[headers]]; has the keys of the last element */
};

struct budget;

struct toml_node {
	struct toml_node *parent;
	struct toml_node *child;   /* the newest one */
	struct toml_node *sibling; /* the next older one */
	struct toml_node *chain;   /* next in the hash bucket */
	uint64_t hash;
	size_t index; /* TABLES: of the last element */
	enum toml_kind kind;
	uint32_t len;
	char name[]; /* len bytes and a NUL */
};

struct toml_keys {
	struct toml_node *root;
	struct toml_node **buckets;
	size_t n_buckets; /* a power of two */
	size_t n;	  /* keys stored now */
	size_t bytes;	  /* total length of their names */
	struct budget *budget;
	struct siphash_key key;
};

/* `budget` counts the keys; it may be NULL. 0 or -ENOMEM. */
int toml_keys_init(struct toml_keys *keys, struct budget *budget);

/* Frees all keys. NULL-safe; a zeroed struct is fine. */
void toml_keys_finish(struct toml_keys *keys);

/*
 * Finds the key `name` of table `parent`, or adds it, as TOML_KIND_NEW. Returns 0, -ENOMEM, or
 * -EFBIG over TOML_MAX_KEYS, TOML_MAX_KEY, TOML_MAX_KEY_BYTES or the budget. The node lives until
 * toml_keys_empty() is called on one of its ancestors.
 */
int toml_keys_get(struct toml_keys *keys, struct toml_node *parent, const char *name, size_t len,
		  struct toml_node **ret);

/* Removes all keys below `top`. */
void toml_keys_empty(struct toml_keys *keys, struct toml_node *top);

#endif
