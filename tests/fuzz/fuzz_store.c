/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as the key of an s3:// URL (the first line) and as the files of the AWS command line
 * (the second and the rest are one each, see below): the URL leads to the bucket's host, to just
 * this key; values are those of an independent reader, are one line each, and keys can be sent in a
 * header.
 *
 * The first byte: 0 a URL, 1 a file, 2 the output of credential_process, 3 the body of a refusal.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "http/internal.h"
#include "http/s3.h"

#include "fuzz.h"

static void check_at(const struct aws_place *place, const char *url, const char *host)
{
	char *text = s3_url_at(place, url);
	struct http_target t;
	const char *why;

	CHECK(text && http_target_parse(NULL, text, &t, &why) == 0);
	CHECK(strcmp(t.url, text) == 0 && !t.user && !t.password);
	CHECK(strlen(t.host) >= strlen(host));
	CHECK(strcmp(t.host + strlen(t.host) - strlen(host), host) == 0);
	CHECK(!strpbrk(t.url, "?#"));
	http_target_finish(&t);
	free(text);
}

static void check_url(const uint8_t *data, size_t n)
{
	struct aws_place amazon = { .region = "eu-central-1" };
	struct aws_place own = { .region = "r", .endpoint = "http://store.example:99/x" };
	char *url;

	CHECK(asprintf(&url, "s3://%.*s", (int)n, (const char *)data) >= 0);
	CHECK(scheme_of(url) == &s3_scheme);
	if (!s3_scheme.fault(url)) {
		CHECK(!http_url_fault(url) && s3_scheme.links_may(url, url));
		check_at(&amazon, url, ".eu-central-1.amazonaws.com");
		check_at(&own, url, "store.example");
	} else {
		CHECK(http_url_fault(url));
	}
	free(url);
}

static void check_value(const char *text, size_t room)
{
	CHECK(memchr(text, '\0', room));
	CHECK(!*text || http_header_value_ok(text));
}

static void check_keys(const struct aws_keys *keys)
{
	check_value(keys->id, sizeof(keys->id));
	check_value(keys->secret, sizeof(keys->secret));
	check_value(keys->token, sizeof(keys->token));
	CHECK(!*keys->id == !*keys->secret && keys->expiry >= 0);
}

/* ---- files ---- */

static size_t trim(const char **p, size_t n)
{
	while (n > 0 && strchr(" \t", **p))
		(*p)++, n--;
	while (n > 0 && strchr(" \t\r", (*p)[n - 1]))
		n--;
	return n;
}

/* Is `line` the header of [default] or [profile default]? */
static bool is_ours(const char *line, size_t n)
{
	const char *end = memchr(line, ']', n), *p = line + 1;
	size_t len;

	if (!end)
		return false;
	len = trim(&p, (size_t)(end - p));
	if (len > 7 && strncmp(p, "profile", 7) == 0 && strchr(" \t", p[7])) {
		p += 7;
		len = trim(&p, len - 7);
	}
	return len == 7 && strncmp(p, "default", 7) == 0;
}

/* The value of a key in the text of a config file, in all of which no line is too long. */
static bool reference(const char *text, size_t n, const char *key, const char **ret, size_t *ret_n)
{
	bool inside = false;

	for (const char *end = text + n; text < end;) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		size_t len = nl ? (size_t)(nl - text) : (size_t)(end - text);
		const char *line = text, *equals = memchr(line, '=', len);

		text += len + (nl != NULL);
		if (len > 0 && *line == '[') {
			inside = is_ours(line, len);
		} else if (inside && equals && !strchr("#; \t\r", *line)) {
			const char *name = line, *value = equals + 1;
			size_t name_n = trim(&name, (size_t)(equals - name));
			size_t value_n = trim(&value, len - (size_t)(value - line));

			if (name_n == strlen(key) && strncasecmp(name, key, name_n) == 0 &&
			    value_n > 0) {
				*ret = value;
				*ret_n = value_n;
				return true;
			}
		}
	}
	return false;
}

static struct aws_found found;

static void check_file(const uint8_t *data, size_t n)
{
	struct aws_environment e = { .profile = "default" };
	int fd = fuzz_file(data, n, e.config);
	const char *value;
	struct aws_place place = { .region = "" };
	struct aws_keys keys;
	char command[4096], host[128];
	size_t len;
	int r;

	/* the first file has no such profile */
	strcpy(e.credentials, "/dev/null");
	r = aws_place(&e, &place);
	CHECK(*place.region || r < 0);
	CHECK(memchr(place.region, '\0', sizeof(place.region)));
	CHECK(memchr(place.endpoint, '\0', sizeof(place.endpoint)) &&
	      !strchr(place.endpoint, '\n'));
	CHECK(!*place.endpoint || place.endpoint[strlen(place.endpoint) - 1] != '/');
	place.endpoint[0] = '\0';
	snprintf(host, sizeof(host), ".%s.amazonaws.com", place.region);
	if (r == 0)
		check_at(&place, "s3://bucket/key", host);
	found.keys = (struct aws_keys){ .expiry = 0 };
	found.ran = false;
	found.n = 0;
	if (aws_file_keys(&e, &found.keys)) {
		r = aws_take(&found, &keys);
		CHECK(r == 0 || r == -EINVAL);
		if (r == 0)
			check_keys(&keys);
	} else {
		CHECK(!*found.keys.id && !*found.keys.secret && !*found.keys.token);
	}
	if (aws_file_command(&e, command, sizeof(command)))
		CHECK(*command && memchr(command, '\0', sizeof(command)) && !strchr(command, '\n'));
	if (n < 16000 && !memchr(data, '\0', n) &&
	    reference((const char *)data, n, "credential_process", &value, &len) &&
	    len < sizeof(command))
		CHECK(aws_file_command(&e, command, sizeof(command)) && strlen(command) == len &&
		      memcmp(command, value, len) == 0);
	fd_close(fd);
}

/* ---- output ---- */

static void check_output(const uint8_t *data, size_t n)
{
	struct aws_keys keys = { .expiry = 0 };
	int r;

	memset(&found, 0, sizeof(found));
	found.ran = true;
	found.n = MIN(n, sizeof(found.output));
	memcpy(found.output, data, found.n);
	r = aws_take(&found, &keys);
	CHECK(r == 0 || r == -EINVAL);
	if (r == 0) {
		check_keys(&keys);
		CHECK(*keys.id);
	} else {
		CHECK(!*keys.id && !*keys.secret && !*keys.token);
	}
}

/* ---- refusals ---- */

static void check_reason(const uint8_t *data, size_t n)
{
	char *body = strndup((const char *)data, n), *text;
	size_t room = n % 300 + 1;

	/* on the heap, so that the sanitizer sees its end */
	text = malloc(room);
	CHECK(body && text);
	s3_scheme.reason(body, text, room);
	CHECK(memchr(text, '\0', room));
	CHECK(!*text || strstr(body, "<Error>"));
	free(text);
	free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const names[] = { "AWS_REGION", "AWS_DEFAULT_REGION",
					     "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL" };

	CHECK(http_load_curl() == 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	if (n < 1)
		return 0;
	if (data[0] % 4 == 0)
		check_url(data + 1, n - 1);
	else if (data[0] % 4 == 1)
		check_file(data + 1, n - 1);
	else if (data[0] % 4 == 2)
		check_output(data + 1, n - 1);
	else
		check_reason(data + 1, n - 1);
	return 0;
}
