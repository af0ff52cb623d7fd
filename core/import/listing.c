/* SPDX-License-Identifier: Apache-2.0 */
#include "import/listing.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"
#include "base/limits.h"
#include "base/source.h"
#include "cache/file.h"

#define POINTER                                        \
	"version https://git-lfs.github.com/spec/v1\n" \
	"oid sha256:%s\nsize %" PRIu64 "\n"

/* ---- files ---- */

static int refuse(const struct listing *l, int r, const char *path, const char *what)
{
	return log_error(r, path, "listed by the repository %s, %s", l->name, what);
}

/* Is that the id which git gives the LFS pointer to this content? */
static bool is_pointer(const uint8_t oid[SHA1_SIZE], const uint8_t sha256[SHA256_SIZE],
		       uint64_t size)
{
	char hex[2 * SHA256_SIZE + 1], text[256];
	uint8_t id[SHA1_SIZE];
	int n;

	hex_encode(sha256, SHA256_SIZE, hex);
	n = snprintf(text, sizeof(text), POINTER, hex, size);
	return git_blob_id(text, (size_t)n, id) == 0 && memcmp(id, oid, SHA1_SIZE) == 0;
}

bool listing_is_commit(const char *text)
{
	return strlen(text) == 2 * SHA1_SIZE && hex_valid(text, SHA1_SIZE);
}

/* Leaves out a file with an odd name. Of a carton, whose MANIFEST has all names, it is a fault. */
static int leave_out(struct listing *l, const char *path, const char *fault)
{
	struct left_out *o;

	if (l->manifest.data)
		return refuse(l, -EBADMSG, path, fault);
	if (l->n_left_out++ >= MAX_REPORTED)
		return 1;
	o = &l->left_out[l->n_left_out - 1];
	if (!*path)
		path = "\"\"";
	*o = (struct left_out){ arena_text(&l->names, path, strlen(path)), fault };
	return o->name ? 1 : arena_error(&l->names);
}

int listing_add(struct listing *l, const char *path, uint64_t size, const uint8_t oid[SHA1_SIZE],
		const uint8_t *sha256)
{
	const char *fault = path_fault(path, strlen(path));
	char full[MAX_PATH_LEN + 1];
	struct listed *f;
	int r;

	if (!fault && snprintf(full, sizeof(full), "%s%s", l->manifest.data ? "" : "model/", path) >
			      MAX_PATH_LEN)
		fault = "is longer than 4089 bytes";
	if (fault)
		return leave_out(l, path, fault);
	if (size > MAX_FILE_SIZE)
		return refuse(l, -EFBIG, path, "is larger than any file here may be");
	if (sha256 && oid && !is_pointer(oid, sha256, size))
		return refuse(l, -EBADMSG, path,
			      "has a sha256 and a size that are not those of its git id: the "
			      "listing contradicts itself");
	if (!sha256 && (size > MAX_LISTED_SMALL || l->small + size > MAX_LISTED_SMALL_ALL))
		return refuse(l, -EFBIG, path,
			      "has no sha256 there: such files may have 16 MiB, and 4 GiB "
			      "together");
	if (l->n == MAX_LISTED)
		return log_error(-EFBIG, l->name, "the repository has more than %d files",
				 MAX_LISTED);
	r = budget_room(l->budget, &l->taken, l->files, &l->cap, l->n + 1);
	if (r < 0)
		return r;
	f = &l->files[l->n];
	*f = (struct listed){ .size = size, .small = !sha256 };
	f->path = arena_text(&l->names, full, strlen(full));
	if (!f->path)
		return arena_error(&l->names);
	if (oid)
		memcpy(f->oid, oid, SHA1_SIZE);
	if (sha256)
		memcpy(f->sha256, sha256, SHA256_SIZE);
	else
		l->small += size;
	l->n++;
	return 0;
}

int listing_add_layer(struct listing *l, const uint8_t blob[SHA256_SIZE], uint64_t size)
{
	int r = budget_room(l->budget, &l->taken, l->layers, &l->cap_layers, l->n_layers + 1);

	if (r < 0)
		return r;
	l->layers[l->n_layers] = (struct listed_layer){ .blob_size = size };
	memcpy(l->layers[l->n_layers++].blob, blob, SHA256_SIZE);
	return 0;
}

int listing_license(struct listing *l, const char *text)
{
	for (const char *p = text; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-.+ ()", *p))
			return 0;
	if (*text && !l->license && !(l->license = strdup(text)))
		return -ENOMEM;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct listed *)a)->path, ((const struct listed *)b)->path);
}

/* The file with the path of a directory above a file; NULL: there is none. */
static struct listed *find_above(const struct listing *l, const struct listed *f, size_t n)
{
	char path[MAX_PATH_LEN + 1];
	const struct listed above = { .path = path };

	memcpy(path, f->path, n);
	path[n] = '\0';
	return bsearch(&above, l->files, l->n, sizeof(*l->files), by_path);
}

/*
 * Leaves out each file that has files below it: no tree has both, and these have their hashes all
 * the same. Sorted.
 */
static int leave_out_above(struct listing *l)
{
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < l->n; i++) {
		const char *path = l->files[i].path;

		for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
			struct listed *f = find_above(l, &l->files[i], (size_t)(p - path));

			if (f)
				f->above = true;
		}
	}
	for (size_t i = 0; i < l->n && r >= 0; i++) {
		struct listed *f = &l->files[i];

		if (f->above)
			r = leave_out(l, f->path + (l->manifest.data ? 0 : strlen("model/")),
				      "is that of a directory, too");
		else
			l->files[kept++] = *f;
	}
	if (r >= 0)
		l->n = kept;
	return MIN(r, 0);
}

int listing_sort(struct listing *l)
{
	if (l->n == 0 && l->n_left_out)
		return log_error(-EBADMSG, l->name,
				 "the repository has no files but such as %s, whose name %s: that "
				 "cannot be in MANIFEST",
				 l->left_out[0].name, l->left_out[0].why);
	if (l->n == 0)
		return log_error(-EBADMSG, l->name, "the repository has no files");
	qsort(l->files, l->n, sizeof(*l->files), by_path);
	for (size_t i = 1; i < l->n; i++)
		if (by_path(&l->files[i - 1], &l->files[i]) == 0)
			return refuse(l, -EBADMSG, l->files[i].path, "is there twice");
	return leave_out_above(l);
}

int listing_take(struct listing *l, struct listed *f, const void *data)
{
	uint8_t id[SHA1_SIZE];
	int r = git_blob_id(data, f->size, id);

	if (r == 0 && memcmp(id, f->oid, SHA1_SIZE) != 0)
		r = -EBADMSG;
	if (r == 0)
		r = sha256_mem(data, f->size, f->sha256);
	f->unknown = r < 0;
	return r < 0 || !f->size ? r : file_write(l->bytes, data, f->size, f->at);
}

int listing_name_small(struct listing *l)
{
	int r = 0;

	for (size_t i = 0; i < l->n && r == 0; i++) {
		struct listed *f = &l->files[i];

		if (!f->small)
			continue;
		f->unknown = f->size > 0;
		r = f->size ? git_name(f->oid, f->sha256) : listing_take(l, f, "");
		if (r == -EBADMSG)
			refuse(l, r, f->path, "is empty, but has the git id of another file");
	}
	return r;
}

void listing_finish(struct listing *l)
{
	file_abort(l->bytes, false);
	for (size_t i = 0; i < l->n_layers; i++)
		source_unref(l->layers[i].source);
	budget_give(l->budget, l->taken);
	for (size_t i = 0; i < l->n_texts; i++)
		buf_finish(&l->texts[i].text);
	free(l->texts);
	free(l->files);
	free(l->layers);
	free(l->license);
	buf_finish(&l->answer);
	buf_finish(&l->carton_toml);
	buf_finish(&l->manifest);
	arena_finish(&l->names);
}
