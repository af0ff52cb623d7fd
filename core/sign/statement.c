/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The payload: an in-toto statement, whose predicate lists the files. It is parsed once, and no
 * list of it is kept: each file is compared when its turn comes.
 */
#include <stdlib.h>

#include "archive/container.h"
#include "base/util.h"
#include "format/chunks.h"
#include "sign/internal.h"

#define MODEL "model/"
#define TOML "carton.toml"

/* The list compared with MANIFEST, where its names are relative to one directory. */
struct reading {
	size_t next;	    /* the line of MANIFEST behind that of the last file */
	uint8_t *listed;    /* a bit for each line of MANIFEST */
	struct reason file; /* the first fault of a file; "": none */
};

/*
 * Which reading counts follows from the signature alone: MANIFEST is the attacker's, and could
 * show the same files in other places. The list of a carton has its TOML, at any place in the list.
 * So both readings are made; the wrong one mostly ends at its first file.
 */
struct statement {
	struct scan *s;
	struct manifest *m;
	struct reason *why;
	char type[256], predicate[256], method[64], hash[64];
	char *ignored[MAX_IGNORED];
	size_t n_ignored;
	bool lists_toml;	      /* so `carton` counts, else `model` */
	struct reading carton, model; /* the directory to which names are relative */
	size_t n;		      /* files so far */
	/* The last two names, and their place in a buffer with MODEL before each. */
	char names[2][sizeof(MODEL) + MAX_PATH_LEN];
	bool by_bytes, by_parts; /* the order so far may be this one */
	struct reason file;	 /* the first fault that both readings have; "": none */
};

/* ---- one file ---- */

struct resource {
	char digest[2 * SHA256_SIZE + 2], algorithm[64];
	bool named;
};

static int fault(struct statement *st, const char *name, const char *what)
{
	return reason_set(&st->file, -EBADMSG, "resources: %.160s %s", name, what);
}

/*
 * Names are ordered by their bytes. Older signers order them by their parts, as MANIFEST is; both
 * orders have no name twice.
 */
static int check_order(struct statement *st, const char *last, const char *name)
{
	if (st->n > 0) {
		st->by_bytes = st->by_bytes && strcmp(last, name) < 0;
		st->by_parts = st->by_parts && path_compare(last, name) < 0;
	}
	if (st->by_bytes || st->by_parts)
		return 0;
	return fault(st, name, strcmp(last, name) == 0 ? "is listed twice" : "is out of order");
}

/* Both lists have nearly the same order: the line behind the last one is looked at first. */
static size_t find_line(const struct manifest *m, size_t next, const char *path)
{
	if (next < m->n && strcmp(manifest_path(m, next), path) == 0)
		return next;
	return manifest_line(m, path);
}

static void compare(struct reading *in, const struct manifest *m, const char *path,
		    const char *digest)
{
	size_t i;

	if (*in->file.text)
		return;
	i = find_line(m, in->next, path);
	if (i == m->n) {
		reason_set(&in->file, -EBADMSG,
			   "resources: %.160s is signed, and MANIFEST does not list it", path);
		return;
	}
	if (strlen(digest) != 2 * SHA256_SIZE ||
	    memcmp(digest, manifest_hex(manifest_path(m, i)), 2 * SHA256_SIZE) != 0) {
		reason_set(&in->file, -EBADMSG,
			   "resources: %.160s is signed with another sha256 than MANIFEST has",
			   path);
		return;
	}
	in->listed[i / 8] |= (uint8_t)(1 << i % 8);
	in->next = i + 1;
}

static int check_resource(struct statement *st, const struct resource *f)
{
	char *path = st->names[st->n % 2], *name = path + strlen(MODEL);
	const char *last = st->names[(st->n + 1) % 2] + strlen(MODEL);
	int r;

	if (!f->named || !*name)
		return fault(st, "a file", "has no name, or one that is too long");
	r = check_order(st, last, name);
	if (r < 0)
		return r;
	if (strcmp(f->algorithm, "sha256") != 0)
		return reason_set(&st->file, -EBADMSG,
				  "resources: %.160s is hashed with \"%s\"; only sha256 can be "
				  "compared with MANIFEST",
				  name, f->algorithm);
	st->lists_toml |= strcmp(name, TOML) == 0;
	compare(&st->carton, st->m, name, f->digest);
	compare(&st->model, st->m, path, f->digest);
	return 0;
}

static int read_resource(struct statement *st)
{
	static const char *const keys[] = { "name", "digest", "algorithm", NULL };
	struct fields f = { keys, 0 };
	struct resource file = { .named = false };
	char *path = st->names[st->n % 2];
	int k, r;

	while ((k = fields_next(st->s, &f, st->why)) > 0) {
		r = k == 1 ? scan_string(st->s, path + strlen(MODEL), MAX_PATH_LEN + 1) :
		    k == 2 ? scan_string(st->s, file.digest, sizeof(file.digest)) :
			     scan_string(st->s, file.algorithm, sizeof(file.algorithm));
		if (r < 0)
			return r;
		file.named |= k == 1 && r > 0;
	}
	/* what is wrong with the list as a whole is said first */
	if (k == 0 && !*st->file.text)
		check_resource(st, &file);
	st->n++;
	return k;
}

static int read_resources(struct statement *st)
{
	int r = scan_begin(st->s, JSON_ARRAY);

	while (r > 0 && (r = scan_item(st->s)) > 0) {
		r = read_resource(st);
		if (r < 0)
			return r;
		r = 1;
	}
	return r;
}

/* ---- the rest ---- */

static int read_ignored(struct statement *st)
{
	char path[MAX_PATH_LEN + 1];
	int r = scan_begin(st->s, JSON_ARRAY);

	while (r > 0 && (r = scan_string_item(st->s, path, sizeof(path))) > 0) {
		if (st->n_ignored == MAX_IGNORED)
			return reason_set(st->why, -EFBIG,
					  "serialization: more than %d ignore_paths", MAX_IGNORED);
		if (*path && !(st->ignored[st->n_ignored++] = strdup(path)))
			return -ENOMEM;
	}
	return r;
}

static int read_serialization(struct statement *st)
{
	static const char *const keys[] = { "method", "hash_type", "ignore_paths", NULL };
	struct fields f = { keys, 0 };
	int k, r;

	while ((k = fields_next(st->s, &f, st->why)) > 0) {
		r = k == 1 ? scan_string(st->s, st->method, sizeof(st->method)) :
		    k == 2 ? scan_string(st->s, st->hash, sizeof(st->hash)) :
			     read_ignored(st);
		if (r < 0)
			return r;
	}
	return k;
}

static int read_predicate(struct statement *st)
{
	static const char *const keys[] = { "resources", "serialization", NULL };
	struct fields f = { keys, 0 };
	int k, r;

	while ((k = fields_next(st->s, &f, st->why)) > 0) {
		r = k == 1 ? read_resources(st) : scan_begin(st->s, JSON_OBJECT);
		if (r > 0 && k == 2)
			r = read_serialization(st);
		if (r < 0)
			return r;
	}
	return k;
}

static int read_statement(struct statement *st)
{
	static const char *const keys[] = { "_type", "predicateType", "predicate", NULL };
	struct fields f = { keys, 0 };
	enum json_event end;
	int k, r = scan_begin(st->s, JSON_OBJECT);

	if (r <= 0)
		return r < 0 ? r : reason_set(st->why, -EBADMSG, "JSON: it is no object");
	while ((k = fields_next(st->s, &f, st->why)) > 0) {
		r = k == 1 ? scan_string(st->s, st->type, sizeof(st->type)) :
		    k == 2 ? scan_string(st->s, st->predicate, sizeof(st->predicate)) :
			     scan_begin(st->s, JSON_OBJECT);
		if (r > 0 && k == 3)
			r = read_predicate(st);
		if (r < 0)
			return r;
	}
	return k < 0 ? k : json_next(&st->s->json, &end);
}

static int check_types(const struct statement *st)
{
	if (strcmp(st->type, SIGN_STATEMENT_TYPE) != 0)
		return reason_set(st->why, -EBADMSG, "statement: it is \"%.64s\", and not %s",
				  st->type, SIGN_STATEMENT_TYPE);
	if (strcmp(st->predicate, SIGN_PREDICATE_TYPE) != 0)
		return reason_set(st->why, -EBADMSG, "predicate type: it is \"%.64s\", and not %s",
				  st->predicate, SIGN_PREDICATE_TYPE);
	if (strcmp(st->method, "files") != 0)
		return reason_set(st->why, -EBADMSG,
				  "serialization: its method is \"%s\"; only \"files\" can be "
				  "compared with MANIFEST",
				  st->method);
	if (strcmp(st->hash, "sha256") != 0)
		return reason_set(st->why, -EBADMSG,
				  "serialization: its hash_type is \"%s\"; only sha256 can be "
				  "compared with MANIFEST",
				  st->hash);
	if (st->n == 0)
		return reason_set(st->why, -EBADMSG, "resources: no file is listed");
	return 0;
}

/* ---- each line of MANIFEST ---- */

static const struct reading *chosen_reading(const struct statement *st)
{
	return st->lists_toml ? &st->carton : &st->model;
}

/* Sets the reason if a file is not as MANIFEST says. */
static int check_files(const struct statement *st)
{
	const struct reading *in = chosen_reading(st);

	if (*st->file.text)
		return reason_set(st->why, -EBADMSG, "%s", st->file.text);
	if (!*in->file.text)
		return 0;
	return reason_set(st->why, -EBADMSG, "%s%s", in->file.text,
			  st->lists_toml && !*st->model.file.text ?
				  "; it is of model/, which has a " TOML
				  " of its own: sign the carton" :
				  "");
}

/* Of model/ alone, what makes a carton of it is not part of what is signed. */
static bool is_made(const char *path)
{
	return strcmp(path, TOML) == 0 || strcmp(path, CHUNKS_PATH) == 0 ||
	       strcmp(path, SIGN_IN_CARTON) == 0;
}

static bool is_left_out(const struct statement *st, const char *path)
{
	if (!st->lists_toml && strncmp(path, MODEL, strlen(MODEL)) != 0)
		return is_made(path);
	path += st->lists_toml ? 0 : strlen(MODEL);
	if (sign_leaves_out(path))
		return true;
	for (size_t i = 0; i < st->n_ignored; i++)
		if (sign_is_below(path, st->ignored[i]))
			return true;
	return false;
}

static bool is_listed(const struct statement *st, size_t i)
{
	return chosen_reading(st)->listed[i / 8] >> i % 8 & 1;
}

/* Puts the lines that are not listed behind the others; both stay in their order. */
static int take_out(const struct statement *st)
{
	struct manifest *m = st->m;
	uint32_t *out = malloc(m->n * sizeof(*out));
	size_t n = 0, k = 0;

	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++)
		*(is_listed(st, i) ? &m->lines[n++] : &out[k++]) = m->lines[i];
	memcpy(m->lines + n, out, k * sizeof(*out));
	free(out);
	m->n = n;
	m->left_out = k;
	return 0;
}

static int check_lines(const struct statement *st)
{
	const struct manifest *m = st->m;
	size_t out = 0;

	for (size_t i = 0; i < m->n; i++) {
		if (is_listed(st, i))
			continue;
		if (!is_left_out(st, manifest_path(m, i)))
			return reason_set(st->why, -EBADMSG,
					  "MANIFEST: it lists %.160s, and the signature does not",
					  manifest_path(m, i));
		out++;
	}
	return out ? take_out(st) : 0;
}

int statement_check(const char *payload, size_t n, struct manifest *m, struct reason *why)
{
	struct statement *st = calloc(1, sizeof(*st));
	int r = -ENOMEM;

	if (!st)
		return r;
	*st = (struct statement){ .m = m, .why = why, .by_bytes = true, .by_parts = true };
	memcpy(st->names[0], MODEL, strlen(MODEL));
	memcpy(st->names[1], MODEL, strlen(MODEL));
	st->s = fields_scan(payload, n);
	st->carton.listed = calloc(m->n / 8 + 1, 1);
	st->model.listed = calloc(m->n / 8 + 1, 1);
	if (st->s && st->carton.listed && st->model.listed)
		r = fields_fault(st->s, read_statement(st), why);
	if (r == 0)
		r = check_types(st);
	if (r == 0)
		r = check_files(st);
	if (r == 0)
		r = check_lines(st);
	for (size_t i = 0; i < st->n_ignored; i++)
		free(st->ignored[i]);
	scan_free(st->s);
	free(st->carton.listed);
	free(st->model.listed);
	free(st);
	return r;
}
