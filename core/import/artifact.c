/* SPDX-License-Identifier: Apache-2.0 */
#include "import/artifact.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include "http/oci.h"
#include "import/scan.h"

/* What a layer is called that has no other name; if it is one of many, with a number. */
static const struct {
	const char *type, *stem, *end;
} by_type[] = {
	{ "application/vnd.docker.ai.gguf.v3", "model", ".gguf" },
	{ "application/vnd.docker.ai.safetensors", "model", ".safetensors" },
	{ "application/vnd.docker.ai.mmproj", "model", ".mmproj" },
	{ "application/vnd.docker.ai.license", "LICENSE", "" },
	{ "application/vnd.docker.ai.chat.template.jinja", "template", ".jinja" },
	{ "application/vnd.ollama.image.model", "model", ".gguf" },
	{ "application/vnd.ollama.image.projector", "projector", ".gguf" },
	{ "application/vnd.ollama.image.adapter", "adapter", ".gguf" },
	{ "application/vnd.ollama.image.template", "template", "" },
	{ "application/vnd.ollama.image.system", "system", "" },
	{ "application/vnd.ollama.image.params", "params", ".json" },
	{ "application/vnd.ollama.image.license", "LICENSE", "" },
};

/* What ORAS calls a file that it was told no type of. */
#define ORAS_TAR "application/vnd.oci.image.layer.v1.tar"

/* A descriptor. */
struct found {
	struct artifact_blob blob;
	char artifact_type[ARTIFACT_TYPE];
	char path[MAX_PATH_LEN + 1], title[MAX_PATH_LEN + 1], name[MAX_PATH_LEN + 1]; /* or "" */
	char os[16], architecture[16]; /* the platform of an image; or "" */
	bool has_size, unpack, attests;
};

struct reading {
	struct listing *l; /* NULL: nothing is added */
	const char *name;  /* of the artifact */
	struct artifact *a;
	struct found *f;
	size_t at; /* of the layer, from 1 */
	unsigned numbers[ARTIFACT_TYPES];
};

/* ---- descriptors ---- */

static int read_annotations(struct scan *s, struct found *f)
{
	char text[16] = "";
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "org.cncf.model.filepath")) {
			r = scan_string(s, f->path, sizeof(f->path));
		} else if (scan_is(s, "org.opencontainers.image.title")) {
			r = scan_string(s, f->title, sizeof(f->title));
		} else if (scan_is(s, "io.deis.oras.content.unpack")) {
			r = scan_string(s, text, sizeof(text));
			f->unpack = strcmp(text, "true") == 0;
		} else if (scan_is(s, "vnd.docker.reference.type")) {
			f->attests = true;
			r = scan_skip(s);
		} else {
			r = scan_skip(s);
		}
	}
	return r;
}

static int read_platform(struct scan *s, struct found *f)
{
	int r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r;
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "os"))
			r = scan_string(s, f->os, sizeof(f->os));
		else if (scan_is(s, "architecture"))
			r = scan_string(s, f->architecture, sizeof(f->architecture));
		else
			r = scan_skip(s);
	}
	return r;
}

static int read_found(struct scan *s, struct found *f)
{
	int r = 0;

	memset(f, 0, sizeof(*f));
	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "mediaType")) {
			r = scan_string(s, f->blob.type, sizeof(f->blob.type));
		} else if (scan_is(s, "artifactType")) {
			r = scan_string(s, f->artifact_type, sizeof(f->artifact_type));
		} else if (scan_is(s, "digest")) {
			r = scan_string(s, f->blob.digest, sizeof(f->blob.digest));
		} else if (scan_is(s, "size")) {
			r = scan_number(s, &f->blob.size);
			f->has_size = r > 0;
		} else if (scan_is(s, "name")) {
			r = scan_string(s, f->name, sizeof(f->name));
		} else if (scan_is(s, "annotations")) {
			r = read_annotations(s, f);
		} else if (scan_is(s, "platform")) {
			r = read_platform(s, f);
		} else {
			r = scan_skip(s);
		}
	}
	return r;
}

/* ---- layers ---- */

static int refuse(const struct reading *rd, const char *what)
{
	return log_error(-EBADMSG, rd->name, "layer %zu of the artifact (%s) %s", rd->at,
			 rd->f->blob.type, what);
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static bool is_packed(const struct found *f)
{
	const char *type = f->blob.type;

	if (strcmp(type, ORAS_TAR) == 0 && *f->title)
		return f->unpack;
	return strstr(type, ".tar") || strstr(type, "+gzip") || strstr(type, "+zstd");
}

/* The row of the table for a layer that has no other name; or -1. */
static int row_of(const struct found *f)
{
	_Static_assert(ARRAY_SIZE(by_type) <= ARTIFACT_TYPES, "a counter for each");
	for (size_t i = 0; i < ARRAY_SIZE(by_type); i++)
		if (!*f->path && !*f->title && !*f->name &&
		    strcmp(f->blob.type, by_type[i].type) == 0)
			return (int)i;
	return -1;
}

/* The path of the layer, in a buffer of f if it has none there yet; or NULL. */
static const char *path_of(struct reading *rd)
{
	struct found *f = rd->f;
	int row = row_of(f);

	if (row < 0)
		return *f->path ? f->path : *f->title ? f->title : *f->name ? f->name : NULL;
	if (rd->a->named[row] == 1)
		snprintf(f->path, sizeof(f->path), "%s%s", by_type[row].stem, by_type[row].end);
	else
		snprintf(f->path, sizeof(f->path), "%s-%05u-of-%05u%s", by_type[row].stem,
			 ++rd->numbers[row], rd->a->named[row], by_type[row].end);
	return f->path;
}

static int note_text(const struct reading *rd, struct artifact_blob *ret)
{
	if (*ret->digest)
		return log_error(-EBADMSG, rd->name, "two layers of the artifact are its %s",
				 ret == &rd->a->manifest ? "MANIFEST" : "carton.toml");
	*ret = rd->f->blob;
	return 0;
}

/* Looks at a layer, of which nothing is added yet. */
static int note_layer(struct reading *rd)
{
	const struct found *f = rd->f;
	const char *path = *f->path ? f->path : *f->title ? f->title : f->name;
	int row = row_of(f);

	rd->a->n_layers++;
	if (row >= 0)
		rd->a->named[row]++;
	if (strcmp(path, "carton.toml") == 0)
		return note_text(rd, &rd->a->carton_toml);
	return strcmp(path, "MANIFEST") == 0 ? note_text(rd, &rd->a->manifest) : 0;
}

/* Adds a layer that is an archive. Its files are added after it was read. */
static int add_packed(struct reading *rd, const uint8_t sha256[SHA256_SIZE])
{
	if (rd->l->manifest.data)
		return refuse(rd,
			      "is an archive, in an artifact that is a carton: there, each file "
			      "is a layer of its own");
	if (rd->f->blob.size > MAX_FILE_SIZE)
		return refuse(rd, "is larger than any file here may be");
	if (rd->l->n_layers == MAX_LAYERS)
		return refuse(rd, "is one of more than 1000 archives");
	return listing_add_layer(rd->l, sha256, rd->f->blob.size);
}

static int add_layer(struct reading *rd)
{
	const struct found *f = rd->f;
	uint8_t sha256[SHA256_SIZE];
	const char *path;

	if (!f->has_size || !*f->blob.digest)
		return refuse(rd, "has no digest or no size");
	if (!oci_is_digest(f->blob.digest))
		return refuse(rd, "has a digest that is not sha256, so that its bytes cannot be "
				  "verified here");
	hex_decode(f->blob.digest + strlen("sha256:"), SHA256_SIZE, sha256);
	if (is_packed(f))
		return add_packed(rd, sha256);
	path = path_of(rd);
	if (!path)
		return refuse(rd, "has no path: neither of the annotations org.cncf.model.filepath "
				  "and org.opencontainers.image.title");
	/* of a carton, these two are there already */
	if (rd->l->manifest.data &&
	    (strcmp(path, "carton.toml") == 0 || strcmp(path, "MANIFEST") == 0))
		return 0;
	return listing_add(rd->l, path, f->blob.size, NULL, sha256);
}

/* ---- the manifest ---- */

static bool is_model(const struct found *f)
{
	return begins(f->artifact_type, "application/vnd.cncf.model.") ||
	       begins(f->artifact_type, "application/vnd.docker.ai.");
}

/* Is it an image for Linux and the architecture of this machine? */
static bool is_mine(const struct found *f)
{
	struct utsname u;
	const char *machine = uname(&u) < 0 ? "" : u.machine;

	if (strcmp(machine, "x86_64") == 0)
		machine = "amd64";
	else if (strcmp(machine, "aarch64") == 0)
		machine = "arm64";
	return strcmp(f->os, "linux") == 0 && strcmp(f->architecture, machine) == 0;
}

static void note_child(struct reading *rd)
{
	const struct found *f = rd->f;

	if (is_model(f)) {
		rd->a->model = f->blob;
		rd->a->n_models++;
	} else if (!f->attests) {
		rd->a->other = f->blob;
		rd->a->n_others++;
		if (is_mine(f)) {
			rd->a->mine = f->blob;
			rd->a->n_mine++;
		}
	}
}

static int read_layers(struct reading *rd, struct scan *s)
{
	int r = scan_begin(s, JSON_ARRAY);

	rd->a->has_layers |= r > 0;
	while (r > 0 && (r = scan_item(s)) > 0) {
		r = read_found(s, rd->f);
		rd->at++;
		if (r == 0)
			r = rd->l ? add_layer(rd) : note_layer(rd);
		r = r < 0 ? r : 1;
	}
	return r;
}

static int read_children(struct reading *rd, struct scan *s)
{
	int r = scan_begin(s, JSON_ARRAY);

	while (r > 0 && (r = scan_item(s)) > 0) {
		r = read_found(s, rd->f);
		if (r == 0)
			note_child(rd);
		r = r < 0 ? r : 1;
	}
	return r;
}

static int read_members(struct reading *rd, struct scan *s)
{
	int r = scan_begin(s, JSON_OBJECT);

	while (r >= 0 && (r = scan_key(s)) > 0) {
		if (scan_is(s, "layers")) {
			r = read_layers(rd, s);
		} else if (scan_is(s, "manifests") && !rd->l) {
			r = read_children(rd, s);
		} else if (scan_is(s, "config") && !rd->l) {
			r = scan_begin(s, JSON_OBJECT);
			if (r > 0)
				r = read_found(s, rd->f);
			if (r == 0)
				rd->a->config = rd->f->blob;
		} else {
			r = scan_skip(s);
		}
	}
	return r;
}

int artifact_no_json(const char *name, const struct scan *s, const char *what)
{
	return log_error(-EBADMSG, name, "the %s of the artifact is no JSON: %s", what,
			 s->json.fault ? s->json.fault : "it is no object");
}

static int read_all(struct reading *rd, const struct buf *text)
{
	struct scan *s = scan_new(text->data ? text->data : "", text->len);
	int r;

	rd->f = malloc(sizeof(*rd->f));
	r = s && rd->f ? read_members(rd, s) : -ENOMEM;
	if (r == -EBADMSG && s->json.fault)
		artifact_no_json(rd->name, s, "manifest");
	free(rd->f);
	scan_free(s);
	return r;
}

int artifact_read(const struct listing *l, const struct buf *text, struct artifact *ret)
{
	struct reading rd = { .name = l->name, .a = ret };

	memset(ret, 0, sizeof(*ret));
	return read_all(&rd, text);
}

int artifact_add(struct listing *l, const struct buf *text, struct artifact *a)
{
	struct reading rd = { .l = l, .name = l->name, .a = a };

	return read_all(&rd, text);
}
