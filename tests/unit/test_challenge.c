/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of WWW-Authenticate and of the answer of a token server, to each bound. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "http/challenge.h"

#include "../must.h"

static void test_challenges(void **state)
{
	static const struct {
		const char *text;
		int want;
		const char *realm, *service, *scope;
	} cases[] = {
		{ "Bearer realm=\"https://h/t\",service=\"s\",scope=\"repository:a/b:pull\"", 0,
		  "https://h/t", "s", "repository:a/b:pull" },
		{ "bearer scope=x , realm = r", 0, "r", "", "x" },
		{ "BEARER\tREALM=r", 0, "r", "", "" },
		{ ",, ,Bearer realm=r,,", 0, "r", "", "" },
		{ "Basic realm=\"Bearer realm=x\", Bearer realm=\"r\"", 0, "r", "", "" },
		{ "Negotiate a/b+c==, Bearer realm=r", 0, "r", "", "" },
		{ "Bearer, Basic realm=r", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=r, Bearer realm=q", 0, "r", "", "" },
		{ "Bearer realm=r, Basic scope=q", 0, "r", "", "" },
		{ "Bearer realm=\"a\\\"b\\\\c\"", 0, "a\"b\\c", "", "" },
		{ "Bearer realm=\"a,b=c\",error=\"x\"", 0, "a,b=c", "", "" },
		{ "Bearer realm=\"\xc3\xa9\ta\"", 0, "\xc3\xa9\ta", "", "" },
		{ "", -ENOENT, NULL, NULL, NULL },
		{ "Basic realm=r", -ENOENT, NULL, NULL, NULL },
		{ "Bearers realm=r", -ENOENT, NULL, NULL, NULL },
		{ "Bearer", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=\"\"", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=r,realm=r", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=r,scope=a,scope=b", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=r scope=a", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=\"r", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=\"r\\", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=\"r\"x", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=\"a\x01\"", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=\"a\\\x7f\"", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer\"x\"", -EBADMSG, NULL, NULL, NULL },
		{ "realm=r", -EBADMSG, NULL, NULL, NULL },
		{ "\"Bearer\" realm=r", -EBADMSG, NULL, NULL, NULL },
		{ "Bearer realm=r, =x", -EBADMSG, NULL, NULL, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct challenge c = { .realm = "untouched" };

		if (challenge_parse(cases[i].text, &c) != cases[i].want)
			fail_msg("%s", cases[i].text);
		assert_string_equal(c.realm, cases[i].realm ? cases[i].realm : "untouched");
		assert_string_equal(c.service, cases[i].service ? cases[i].service : "");
		assert_string_equal(c.scope, cases[i].scope ? cases[i].scope : "");
	}
}

/* What is needed is added to the scopes of a challenge, or replaces them. */
static void test_need(void **state)
{
	static const struct {
		const char *scope, *actions, *more, *alone;
		bool others;
	} cases[] = {
		{ "", "pull", "repository:o/m:pull", "repository:o/m:pull", false },
		{ "::", "pull", "repository:o/m:pull", "repository:o/m:pull", false },
		{ " : :: ", "pull", "repository:o/m:pull", "repository:o/m:pull", false },
		{ "repository:o/m:pull", "pull", "repository:o/m:pull", "repository:o/m:pull",
		  false },
		{ "repository:o/m:push,pull", "pull,push", "repository:o/m:push,pull",
		  "repository:o/m:push,pull", false },
		{ "repository:o/m:*", "pull,push", "repository:o/m:*", "repository:o/m:*", false },
		{ "repository:o/m:pull", "pull,push", "repository:o/m:pull,push",
		  "repository:o/m:pull,push", false },
		{ "repository:o/m:push", "pull,push",
		  "repository:o/m:push repository:o/m:pull,push", "repository:o/m:pull,push",
		  true },
		{ "repository:o/m:pushpull", "pull", "repository:o/m:pushpull repository:o/m:pull",
		  "repository:o/m:pull", true },
		{ "repository:o/mm:pull", "pull", "repository:o/mm:pull repository:o/m:pull",
		  "repository:o/m:pull", true },
		{ "repository:o/m", "pull", "repository:o/m repository:o/m:pull",
		  "repository:o/m:pull", true },
		{ "all repository:o/m:pull", "pull", "all repository:o/m:pull",
		  "repository:o/m:pull", true },
	};
	struct challenge c = { .realm = "r" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		strcpy(c.scope, cases[i].scope);
		assert_int_equal(challenge_need(&c, "o/m?", 3, cases[i].actions, false),
				 cases[i].others);
		assert_string_equal(c.scope, cases[i].more);
		strcpy(c.scope, cases[i].scope);
		challenge_need(&c, "o/m?", 3, cases[i].actions, true);
		assert_string_equal(c.scope, cases[i].alone);
	}
	/* there is no room for it beside the others */
	memset(c.scope, 'x', CHALLENGE_MAX_VALUE);
	c.scope[CHALLENGE_MAX_VALUE] = '\0';
	assert_true(challenge_need(&c, "o/m", 3, "pull", false));
	assert_int_equal(strspn(c.scope, "x"), CHALLENGE_MAX_VALUE);
	assert_int_equal(strlen(c.scope), CHALLENGE_MAX_VALUE);
	challenge_need(&c, "o/m", 3, "pull", true);
	assert_string_equal(c.scope, "repository:o/m:pull");
}

/* A challenge with a value of n bytes. */
static int parse_long(const char *name, size_t n)
{
	struct challenge c;
	char *text = must(malloc(n + 64)), *p = text;
	int r;

	p += sprintf(p, "Bearer %s%s=\"", strcmp(name, "realm") ? "realm=r," : "", name);
	memset(p, 'x', n);
	strcpy(p + n, "\"");
	r = challenge_parse(text, &c);
	free(text);
	return r;
}

static void test_bounds(void **state)
{
	(void)state;
	assert_int_equal(parse_long("realm", CHALLENGE_MAX_REALM), 0);
	assert_int_equal(parse_long("realm", CHALLENGE_MAX_REALM + 1), -EBADMSG);
	assert_int_equal(parse_long("service", CHALLENGE_MAX_VALUE), 0);
	assert_int_equal(parse_long("service", CHALLENGE_MAX_VALUE + 1), -EBADMSG);
	assert_int_equal(parse_long("scope", CHALLENGE_MAX_VALUE), 0);
	assert_int_equal(parse_long("scope", CHALLENGE_MAX_VALUE + 1), -EBADMSG);
	assert_int_equal(parse_long("error", 50000), 0);
}

static void test_urls(void **state)
{
	static const struct {
		struct challenge c;
		const char *want;
	} cases[] = {
		{ { "https://h/t", "s", "a:b/c:pull" }, "https://h/t?service=s&scope=a:b/c:pull" },
		{ { "https://h/t?a=b", "", "x y&z=#%" },
		  "https://h/t?a=b&scope=x&scope=y%26z%3D%23%25" },
		{ { "https://h/t#f", "s", "" }, "https://h/t?service=s" },
		{ { "https://h", "@evil/", "" }, "https://h?service=%40evil/" },
		{ { "https://h/t", "", "" }, "https://h/t" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *url = challenge_url(&cases[i].c);

		assert_string_equal(url, cases[i].want);
		free(url);
	}
}

static void test_tokens(void **state)
{
	static const struct {
		const char *text;
		int want;
		const char *token;
		int64_t seconds;
	} cases[] = {
		{ "{\"token\":\"a.b-c\"}\n", 0, "a.b-c", 60 },
		{ "{\"access_token\":\"a\",\"expires_in\":300}", 0, "a", 300 },
		{ "{\"token\":\"\",\"access_token\":\"a\"}", 0, "a", 60 },
		{ "{\"token\":\"a\",\"access_token\":\"b\"}", 0, "a", 60 },
		{ "{\"token\":\"a\",\"expires_in\":0}", 0, "a", 60 },
		{ "{\"token\":\"a\",\"expires_in\":-5}", 0, "a", 60 },
		{ "{\"token\":\"a\",\"expires_in\":1}", 0, "a", 1 },
		{ "{\"token\":\"a\",\"expires_in\":1e300}", 0, "a", TOKEN_MAX_SECONDS },
		{ "{\"token\":\"a\",\"expires_in\":86401}", 0, "a", TOKEN_MAX_SECONDS },
		{ "{\"token\":\"a\",\"expires_in\":\"300\"}", 0, "a", 60 },
		{ "{\"token\":\"a\",\"expires_in\":1111111111111111}", 0, "a", 60 },
		{ "{\"x\":{\"token\":\"b\"},\"token\":\"a\"}", 0, "a", 60 },
		{ "", -EBADMSG, NULL, 0 },
		{ "{}", -EBADMSG, NULL, 0 },
		{ "{\"token\":\"\"}", -EBADMSG, NULL, 0 },
		{ "{\"token\":5}", -EBADMSG, NULL, 0 },
		{ "{\"token\":[\"a\"]}", -EBADMSG, NULL, 0 },
		{ "[{\"token\":\"a\"}]", -EBADMSG, NULL, 0 },
		{ "{\"token\":\"a b\"}", -EBADMSG, NULL, 0 },
		{ "{\"token\":\"a\\r\\nX: y\"}", -EBADMSG, NULL, 0 },
		{ "{\"token\":\"a\\u0000b\"}", -EBADMSG, NULL, 0 },
		{ "{\"token\":\"\xc3\xa9\"}", -EBADMSG, NULL, 0 },
		{ "{\"token\":\"a\"", -EBADMSG, NULL, 0 },
		{ "{\"token\":\"a\"} x", -EBADMSG, NULL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *token = NULL;
		int64_t seconds = 0;

		if (token_parse(cases[i].text, strlen(cases[i].text), &token, &seconds) !=
		    cases[i].want)
			fail_msg("%s", cases[i].text);
		assert_int_equal(seconds, cases[i].seconds);
		assert_int_equal(!token, !cases[i].token);
		if (token)
			assert_string_equal(token, cases[i].token);
		free(token);
	}
}

static void test_long_token(void **state)
{
	char *text = must(malloc(TOKEN_MAX_TEXT + 64)), *token;
	int64_t seconds;

	(void)state;
	for (size_t n = TOKEN_MAX_TEXT; n <= TOKEN_MAX_TEXT + 1; n++) {
		int len = sprintf(text, "{\"token\":\"%0*d\"}", (int)n, 0);
		int r = token_parse(text, (size_t)len, &token, &seconds);

		assert_int_equal(r, n > TOKEN_MAX_TEXT ? -EBADMSG : 0);
		if (r == 0)
			free(token);
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_challenges), cmocka_unit_test(test_need),
		cmocka_unit_test(test_bounds),	   cmocka_unit_test(test_urls),
		cmocka_unit_test(test_tokens),	   cmocka_unit_test(test_long_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
