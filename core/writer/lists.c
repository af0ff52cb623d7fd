/* SPDX-License-Identifier: Apache-2.0 */
#include "writer/lists.h"

#include <inttypes.h>

#include "http/http.h"

static const char place[] = "{sha256}";

/* Adds a TOML string: a JSON string in which DEL is escaped, too. */
static void add_toml(struct buf *toml, const char *text)
{
	size_t n;

	buf_addc(toml, '"');
	while (n = strcspn(text, "\x7f"), buf_add_json_part(toml, text, n), text[n]) {
		buf_adds(toml, "\\u007f");
		text += n + 1;
	}
	buf_addc(toml, '"');
}

int lists_add_string(struct buf *toml, const char *key, const char *value)
{
	buf_addf(toml, "%s = ", key);
	add_toml(toml, value);
	return buf_adds(toml, "\n");
}

int lists_add_file(struct buf *manifest, const char *path, const uint8_t sha256[SHA256_SIZE])
{
	char hex[2 * SHA256_SIZE + 1];

	hex_encode(sha256, SHA256_SIZE, hex);
	return buf_addf(manifest, "%s=%s\n", path, hex);
}

/* The template's URL for a hash, into an empty buf. */
static int fill(struct buf *url, const char *template, const char *hex)
{
	const char *at = strstr(template, place);

	*url = buf_init(HTTP_MAX_URL + 1);
	for (; at; at = strstr(template, place)) {
		buf_add(url, template, (size_t)(at - template));
		buf_adds(url, hex);
		template = at + strlen(place);
	}
	return buf_adds(url, template);
}

const char *lists_template_fault(const char *template)
{
	char hex[2 * SHA256_SIZE + 1];
	const char *fault;
	struct buf url;
	int r;

	if (!strstr(template, place))
		return "has no {sha256} in it, which stands for the hash of a file";
	memset(hex, 'a', sizeof(hex) - 1);
	hex[sizeof(hex) - 1] = '\0';
	r = fill(&url, template, hex);
	fault = r == -EFBIG ? "is too long" : r < 0 ? "no memory" : http_url_fault(url.data);
	if (!fault && http_url_has_userinfo(url.data))
		fault = "has a user name or password, which LINKS would show to everybody, and "
			"which is not sent";
	buf_finish(&url);
	return fault;
}

int lists_begin_links(struct buf *links)
{
	return buf_adds(links, "version = 1\n\n[urls]\n");
}

static bool is_among(const char *url, const char *const *templates, const char *hex)
{
	bool found = false;

	for (; *templates && !found; templates++) {
		struct buf b;

		found = fill(&b, *templates, hex) == 0 && strcmp(b.data, url) == 0;
		buf_finish(&b);
	}
	return found;
}

int lists_add_link(struct buf *links, const uint8_t sha256[SHA256_SIZE],
		   const char *const *templates, const struct link *old)
{
	char hex[2 * SHA256_SIZE + 1];
	const char *comma = "";
	int r = 0;

	hex_encode(sha256, SHA256_SIZE, hex);
	buf_addf(links, "%s = [", hex);
	for (size_t i = 0; r == 0 && templates[i]; i++, comma = ", ") {
		struct buf url;

		r = fill(&url, templates[i], hex);
		buf_adds(links, comma);
		if (r == 0)
			buf_add_json(links, url.data, url.len);
		buf_finish(&url);
	}
	for (size_t i = 0; old && i < old->n_urls; i++) {
		if (is_among(old->urls[i], templates, hex))
			continue;
		buf_adds(links, comma);
		buf_add_json(links, old->urls[i], strlen(old->urls[i]));
		comma = ", ";
	}
	return r == 0 ? buf_adds(links, "]\n") : r;
}

int lists_begin_sizes(struct buf *links)
{
	return buf_adds(links, "\n[sizes]\n");
}

int lists_add_size(struct buf *links, const uint8_t sha256[SHA256_SIZE], uint64_t size)
{
	char hex[2 * SHA256_SIZE + 1];

	hex_encode(sha256, SHA256_SIZE, hex);
	return buf_addf(links, "%s = %" PRIu64 "\n", hex, size);
}

int lists_begin_git(struct buf *links)
{
	return buf_adds(links, "\n[git]\n");
}

int lists_add_git(struct buf *links, const uint8_t name[SHA256_SIZE], const uint8_t id[SHA1_SIZE])
{
	char name_hex[2 * SHA256_SIZE + 1], id_hex[2 * SHA1_SIZE + 1];

	hex_encode(name, SHA256_SIZE, name_hex);
	hex_encode(id, SHA1_SIZE, id_hex);
	return buf_addf(links, "%s = \"%s\"\n", name_hex, id_hex);
}

int lists_add_left_out(struct buf *links, uint64_t n, const struct left_out *list)
{
	buf_addf(links, "\n[left_out]\nfiles = %" PRIu64 "\nfirst = [\n", n);
	for (uint64_t i = 0; i < MIN(n, (uint64_t)MAX_REPORTED); i++) {
		buf_adds(links, "\t[");
		add_toml(links, list[i].name);
		buf_adds(links, ", ");
		add_toml(links, list[i].why);
		buf_adds(links, "],\n");
	}
	return buf_adds(links, "]\n");
}
