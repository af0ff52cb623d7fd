/* SPDX-License-Identifier: Apache-2.0 */
/* What an artifact says of its layers in other places: its config, and the MANIFEST of a carton. */
#include <stdio.h>
#include <stdlib.h>

#include "format/manifest.h"
#include "http/oci.h"
#include "import/artifact.h"
#include "import/scan.h"

#define DOCKER_CONFIG "application/vnd.docker.ai.model.config.v0." /* and 1+json, 2+json */

/* ---- the config ---- */

bool artifact_is_image(const struct artifact *a)
{
	return strcmp(a->config.type, "application/vnd.oci.image.config.v1+json") == 0 ||
	       strcmp(a->config.type, "application/vnd.docker.container.image.v1+json") == 0;
}

bool artifact_has_config(const struct listing *l, const struct artifact *a)
{
	return strcmp(a->config.type, "application/vnd.cncf.model.config.v1+json") == 0 ||
	       strncmp(a->config.type, DOCKER_CONFIG, strlen(DOCKER_CONFIG)) == 0 ||
	       (l->n_layers > 0 && artifact_is_image(a));
}

struct layers {
	const struct artifact *a;
	const struct listing *l;
	const struct listed **sorted; /* by hash */
	size_t n, said;
	char digest[ARTIFACT_DIGEST]; /* that the config has and the manifest has not; or "" */
	bool lists;
};

static int by_hash(const void *a, const void *b)
{
	const struct listed *x = *(const struct listed *const *)a;
	const struct listed *y = *(const struct listed *const *)b;

	return memcmp(x->sha256, y->sha256, SHA256_SIZE);
}

/* malloc'ed; NULL: out of memory. */
static const struct listed **sort_by_hash(const struct listing *l)
{
	const struct listed **sorted = calloc(l->n + 1, sizeof(*sorted));

	for (size_t i = 0; sorted && i < l->n; i++)
		sorted[i] = &l->files[i];
	if (sorted)
		qsort(sorted, l->n, sizeof(*sorted), by_hash);
	return sorted;
}

int artifact_check_sizes(const struct listing *l)
{
	const struct listed **sorted = sort_by_hash(l);
	int r = sorted ? 0 : -ENOMEM;

	for (size_t i = 1; i < l->n && r == 0; i++)
		if (by_hash(&sorted[i - 1], &sorted[i]) == 0 &&
		    sorted[i - 1]->size != sorted[i]->size)
			r = log_error(-EBADMSG, sorted[i]->path,
				      "in the artifact %s, has the digest of %s, but another size",
				      l->name, sorted[i - 1]->path);
	free(sorted);
	return r;
}

static bool has_layer(const struct layers *all, const char *digest)
{
	struct listed like = { .path = "" };
	const struct listed *key = &like;

	if (!oci_is_digest(digest))
		return false;
	if (!strcmp(digest, all->a->carton_toml.digest) || !strcmp(digest, all->a->manifest.digest))
		return true;
	hex_decode(digest + strlen("sha256:"), SHA256_SIZE, like.sha256);
	/* a config has the digest of the uncompressed tar, not of the blob */
	for (size_t i = 0; i < all->l->n_layers; i++)
		if (memcmp(all->l->layers[i].tar, like.sha256, SHA256_SIZE) == 0)
			return true;
	return bsearch(&key, all->sorted, all->n, sizeof(*all->sorted), by_hash);
}

/* A raw layer is what it unpacks to, so the two digests are the same. */
static int read_digests(struct scan *s, struct layers *all)
{
	char digest[ARTIFACT_DIGEST];
	int r = scan_begin(s, JSON_ARRAY);

	all->lists |= r > 0;
	while (r > 0 && (r = scan_string_item(s, digest, sizeof(digest))) > 0) {
		all->said++;
		if (!*all->digest && !has_layer(all, digest))
			snprintf(all->digest, sizeof(all->digest), "%s", *digest ? digest : "?");
	}
	return r;
}

/* The member `key` of the object that follows: `read` gets it. */
static int read_within(struct scan *s, const char *key, int (*read)(struct scan *, void *),
		       void *ctx)
{
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0)
		r = scan_is(s, key) ? read(s, ctx) : scan_skip(s);
	return r;
}

static int on_digests(struct scan *s, void *ctx)
{
	return read_digests(s, ctx);
}

static int on_licenses(struct scan *s, void *ctx)
{
	char license[128];
	int r = scan_begin(s, JSON_ARRAY);

	while (r > 0 && (r = scan_string_item(s, license, sizeof(license))) > 0) {
		r = listing_license(ctx, license);
		r = r < 0 ? r : 1;
	}
	return r;
}

static int read_config(struct scan *s, struct listing *l, struct layers *all)
{
	int r = scan_begin(s, JSON_OBJECT);

	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "descriptor"))
			r = read_within(s, "licenses", on_licenses, l);
		else if (scan_is(s, "modelfs"))
			r = read_within(s, "diffIds", on_digests, all);
		else if (scan_is(s, "rootfs"))
			r = read_within(s, "diff_ids", on_digests, all);
		else
			r = scan_skip(s);
	}
	return r;
}

int artifact_config(struct listing *l, const struct artifact *a, const struct buf *text)
{
	struct layers all = { .a = a, .l = l, .n = l->n };
	struct scan *s = scan_new(text->data ? text->data : "", text->len);
	int r;

	all.sorted = sort_by_hash(l);
	r = s && all.sorted ? read_config(s, l, &all) : -ENOMEM;
	if (r == -EBADMSG)
		artifact_no_json(l->name, s, "config");
	else if (r == 0 && *all.digest)
		r = log_error(-EBADMSG, l->name,
			      "the config contradicts the manifest: it has the layer %s, which the "
			      "manifest has not",
			      all.digest);
	else if (r == 0 && all.lists && all.said != a->n_layers)
		r = log_error(
			-EBADMSG, l->name,
			"the config contradicts the manifest: it has %zu layers, the manifest "
			"has %zu",
			all.said, a->n_layers);
	free(all.sorted);
	scan_free(s);
	return r;
}

/* ---- a carton ---- */

static int check_file(const struct listing *l, const struct manifest *m, const char *path,
		      const uint8_t sha256[SHA256_SIZE])
{
	const char *line = manifest_find(m, path);
	uint8_t listed[SHA256_SIZE];

	if (line)
		manifest_hash(line, listed);
	if (line && memcmp(listed, sha256, SHA256_SIZE) == 0)
		return 0;
	return log_error(-EBADMSG, path, "in the artifact %s, %s in its MANIFEST", l->name,
			 line ? "has another sha256 than" : "is not listed");
}

int artifact_check_carton(const struct listing *l)
{
	struct buf text = buf_init(MAX_LISTING_PAGE);
	struct manifest *m;
	uint8_t sha256[SHA256_SIZE];
	int r = buf_add(&text, l->manifest.data, l->manifest.len);

	if (r == 0)
		r = manifest_parse(text.data, text.len, l->budget, &m);
	if (r < 0)
		return r;
	r = sha256_mem(l->carton_toml.data, l->carton_toml.len, sha256);
	if (r == 0)
		r = check_file(l, m, "carton.toml", sha256);
	for (size_t i = 0; i < l->n && r == 0; i++)
		r = check_file(l, m, l->files[i].path, l->files[i].sha256);
	if (r == 0 && m->n != l->n + 1)
		r = log_error(-EBADMSG, l->name,
			      "is no whole carton: MANIFEST lists %zu files, the artifact has %zu",
			      m->n, l->n + 1);
	manifest_free(m);
	return r;
}
