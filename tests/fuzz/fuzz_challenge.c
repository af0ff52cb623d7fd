/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as WWW-Authenticate: what was understood is bounded, and, written again in one way,
 * understood to be the same; service and scope do not change which server is asked. Or, after a byte
 * 1, as the answer of a token server: a token can be sent in a header.
 */
#include <string.h>

#include "base/util.h"
#include "http/challenge.h"
#include "http/internal.h"

#include "fuzz.h"

static void add_quoted(struct buf *b, const char *name, const char *value)
{
	CHECK(buf_addf(b, "%s%s=\"", b->len > 7 ? "," : "", name) == 0);
	for (; *value; value++)
		CHECK((!strchr("\"\\", *value) || buf_addc(b, '\\') == 0) &&
		      buf_addc(b, *value) == 0);
	CHECK(buf_addc(b, '"') == 0);
}

static void check_again(const struct challenge *c)
{
	static struct challenge again;
	struct buf b = buf_init(64 * KIB);

	CHECK(buf_adds(&b, "bEARER ") == 0);
	add_quoted(&b, "realm", c->realm);
	add_quoted(&b, "Scope", c->scope);
	add_quoted(&b, "service", c->service);
	CHECK(buf_adds(&b, ", Basic x==") == 0);
	CHECK(challenge_parse(b.data, &again) == 0);
	CHECK(strcmp(c->realm, again.realm) == 0 && strcmp(c->service, again.service) == 0 &&
	      strcmp(c->scope, again.scope) == 0);
	buf_finish(&b);
}

static void check_value(const char *text, size_t room)
{
	CHECK(memchr(text, '\0', room));
	CHECK(!*text || http_header_value_ok(text));
}

static void check_url(const struct challenge *c)
{
	struct http_target realm, whole;
	char *url = challenge_url(c), *bare = strndup(c->realm, strcspn(c->realm, "#"));
	const char *why;

	CHECK(url && bare);
	if (http_target_parse(NULL, url, &whole, &why) == 0) {
		CHECK(http_target_parse(NULL, bare, &realm, &why) == 0);
		CHECK(http_same_origin(&realm, &whole));
		http_target_finish(&realm);
		http_target_finish(&whole);
	}
	free(url);
	free(bare);
}

/* What is needed is a scope of its own then, or there was no room for it. */
static void check_need(const struct challenge *c)
{
	static const char need[] = "repository:a/b:pull,push";
	static struct challenge more;
	const char *at;

	for (int alone = 0; alone < 2; alone++) {
		more = *c;
		challenge_need(&more, "a/b", 3, "pull,push", alone);
		check_value(more.scope, sizeof(more.scope));
		CHECK(strcmp(more.realm, c->realm) == 0 && strcmp(more.service, c->service) == 0);
		at = strstr(more.scope, "repository:a/b:");
		CHECK(at || strcmp(more.scope, c->scope) == 0);
		CHECK(!alone || !strstr(more.scope, " ") || strstr(c->scope, "repository:a/b:"));
		if (!strstr(c->scope, "a/b") && at)
			CHECK(strncmp(at, need, strlen(need)) == 0);
	}
}

static void check_challenge(const uint8_t *data, size_t n)
{
	static struct challenge c;
	char *text = strndup((const char *)data, n);
	int r;

	CHECK(text);
	r = challenge_parse(text, &c);
	CHECK(r == 0 || r == -ENOENT || r == -EBADMSG);
	if (r == 0) {
		CHECK(*c.realm);
		check_value(c.realm, sizeof(c.realm));
		check_value(c.service, sizeof(c.service));
		check_value(c.scope, sizeof(c.scope));
		check_again(&c);
		check_need(&c);
		check_url(&c);
	}
	free(text);
}

static void check_token(const uint8_t *data, size_t n)
{
	int64_t seconds = 0;
	char *token = NULL;
	int r = token_parse((const char *)data, n, &token, &seconds);

	CHECK(r == 0 || r == -EBADMSG);
	CHECK((r == 0) == (token != NULL));
	if (r == 0) {
		CHECK(http_header_value_ok(token) && !strpbrk(token, " \t"));
		CHECK(strlen(token) <= TOKEN_MAX_TEXT);
		CHECK(seconds > 0 && seconds <= TOKEN_MAX_SECONDS);
	}
	free(token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	CHECK(http_load_curl() == 0);
	if (n > 0 && *data == 1)
		check_token(data + 1, n - 1);
	else
		check_challenge(data, n);
	return 0;
}
