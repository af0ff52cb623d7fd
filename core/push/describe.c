/* SPDX-License-Identifier: Apache-2.0 */
/* A carton as an artifact of the CNCF ModelPack: raw layers, each a file, named by its path. */
#include <inttypes.h>
#include <stdio.h>

#include "import/scan.h"
#include "push/internal.h"

#define MODEL "application/vnd.cncf.model."
#define CONFIG_TYPE MODEL "config.v1+json"
#define CONFIG_JSON "application/vnd.oci.image.manifest.v1+json"

/* The kind of a file by the end of its path. All else is a weight. */
static const struct {
	const char *kind, *ends;
} kinds[] = {
	{ "weight.config", ".json .toml .yaml .yml .config .ini .model .tiktoken .jinja .vocab "
			   ".merges /vocab.txt /merges.txt MANIFEST " },
	{ "doc", ".md .txt .pdf .html .rst .png .jpg /LICENSE /README /NOTICE " },
	{ "code", ".py .sh .ipynb .c .h .cc .cpp .cu .rs .go .js .ts .java .lua " },
	{ "dataset", ".csv .tsv .jsonl .parquet .arrow " },
};

static bool ends_as(const char *path, const char *ends)
{
	size_t len = strlen(path);

	for (size_t n; *ends; ends += n + 1) {
		n = strcspn(ends, " ");
		if (len >= n && strncasecmp(path + len - n, ends, n) == 0)
			return true;
	}
	return false;
}

static const char *kind_of(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (ends_as(path, kinds[i].ends))
			return kinds[i].kind;
	return "weight";
}

char *push_digest(const uint8_t sha256[SHA256_SIZE], char ret[PUSH_DIGEST])
{
	memcpy(ret, "sha256:", 7);
	hex_encode(sha256, SHA256_SIZE, ret + 7);
	return ret;
}

int push_describe_config(struct push *p)
{
	const char *name = p->c->meta->model_name;
	struct buf *b = &p->config;
	char digest[PUSH_DIGEST];

	buf_adds(b, "{\"descriptor\":{");
	if (name) {
		buf_adds(b, "\"name\":");
		buf_add_json(b, name, strlen(name));
	}
	buf_adds(b, "},\"config\":{},\"modelfs\":{\"type\":\"layers\",\"diffIds\":[");
	for (size_t i = 0; i < p->n; i++)
		buf_addf(b, "%s\"%s\"", i ? "," : "", push_digest(p->blobs[i].sha256, digest));
	return buf_adds(b, "]}}");
}

static int put_descriptor(struct buf *b, const char *kind, const char *end,
			  const struct push_blob *of)
{
	char digest[PUSH_DIGEST];

	return buf_addf(b, "{\"mediaType\":\"" MODEL "%s%s\",\"digest\":\"%s\",\"size\":%" PRIu64,
			kind, end, push_digest(of->sha256, digest),
			of->same ? of->same->size : of->size);
}

int push_describe(struct push *p)
{
	struct buf *b = &p->artifact;

	buf_adds(b, "{\"schemaVersion\":2,\"mediaType\":\"" CONFIG_JSON
		    "\",\"artifactType\":\"" MODEL "manifest.v1+json\",\"config\":");
	put_descriptor(b, "config", ".v1+json", &p->blobs[p->n]);
	buf_adds(b, "},\"layers\":[");
	for (size_t i = 0; i < p->n; i++) {
		const struct push_blob *layer = &p->blobs[i];

		if (i > 0)
			buf_adds(b, ",");
		put_descriptor(b, kind_of(layer->path), ".v1.raw", layer);
		buf_adds(b, ",\"annotations\":{\"org.cncf.model.filepath\":");
		buf_add_json(b, layer->path, strlen(layer->path));
		buf_adds(b, "}}");
	}
	return buf_adds(b, "]}");
}

/* ---- what a registry says ---- */

static int read_error(struct scan *s, char code[PUSH_WHY], char message[PUSH_WHY])
{
	int r = 1;

	while (r >= 0 && (r = scan_key(s)) > 0)
		r = scan_is(s, "code")	  ? scan_string(s, code, PUSH_WHY) :
		    scan_is(s, "message") ? scan_string(s, message, PUSH_WHY) :
					    scan_skip(s);
	return r;
}

void push_reason(const char *body, size_t n, char ret[PUSH_WHY])
{
	char code[PUSH_WHY] = "", message[PUSH_WHY] = "";
	struct scan *s = scan_new(body, n);
	int r = s ? scan_begin(s, JSON_OBJECT) : -ENOMEM;

	while (r > 0 && (r = scan_key(s)) > 0) {
		bool errors = scan_is(s, "errors");

		r = errors ? scan_begin(s, JSON_ARRAY) : scan_skip(s);
		if (errors && r > 0 && (r = scan_item(s)) > 0)
			r = read_error(s, code, message);
		r = *code || *message ? 0 : r < 0 ? r : 1;
		if (errors)
			break;
	}
	scan_free(s);
	snprintf(ret, PUSH_WHY, "%.60s%s%.180s", code, *code && *message ? ": " : "", message);
	for (char *c = ret; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
}
