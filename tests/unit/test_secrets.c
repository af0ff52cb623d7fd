/* SPDX-License-Identifier: Apache-2.0 */
/* What of a URL is shown, given to a mirror, and left on a command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "carton.h"
#include "base/util.h"
#include "fetch/mirrors.h"
#include "http/http.h"
#include "writer/lists.h"

#include "../must.h"

/* of another program */
#include "common/privacy.c"

#define HIDDEN "(unreadable)"

/* Forms of which libcurl takes one or another as a URL, some of it where others see no password. */
static const char *const odd[][2] = {
	{ "http:///joe:secret@host/", "http://" HIDDEN },
	{ "https:////joe:secret@host/", "https://" HIDDEN },
	{ "http:/joe:secret@host/", "http://" HIDDEN },
	{ "http:joe:secret@host/", "http://" HIDDEN },
	{ "HTTP:///secret@host/", "http://" HIDDEN },
	{ "http:\\\\joe:secret@host/", "http://" HIDDEN },
	{ "http:/\\joe:secret@host/", "http://" HIDDEN },
	{ "http://joe:sec\\ret@host/", "http://" HIDDEN },
	{ "http://joe:sec ret@host/", "http://" HIDDEN },
	{ "http://joe:sec\tret@host/", "http://" HIDDEN },
	{ " http://joe:secret@host/", "http://" HIDDEN },
	{ "ht\ntp://joe:secret@host/", "http://" HIDDEN },
	{ "http\t://joe:secret@host/", "http://" HIDDEN },
	{ "http://joe:sec/ret@host/", "http://" HIDDEN },
	{ "http://joe:sec?ret@host/", "http://" HIDDEN },
	{ "http://joe:secret%40host/", "http://" HIDDEN },
	{ "http://joe%3Asecret%40host/", "http://" HIDDEN },
	{ "http://joe:secret\xef\xbc\xa0host/", "http://" HIDDEN }, /* a fullwidth @ */
	{ "http://secret\xef\xbc\xa0host/", "http://" HIDDEN },
	{ "http://joe\xef\xbc\x9asecret@host/", "http://host/" },
	{ "s3://ID:1/secret@bucket/key", "s3://" HIDDEN },
	{ "s3://ID:secret@bucket/key", "s3://bucket/key" },
	{ "hf://joe:secret@org/repo/x", "hf://org/repo/x" },
	{ "hf://hf_secret@org/repo/x", "hf://org/repo/x" },
	{ "hf://API_org_secret@org/repo/x", "hf://org/repo/x" },
	{ "hf://gpt2@refs/pr/1/x", "hf://gpt2@refs/pr/1/x" },
	{ "hf://gpt2@refs%2Fpr%2F1", "hf://gpt2@refs%2Fpr%2F1" },
	{ "s3:/ID:secret@bucket/key", "s3://" HIDDEN },
	{ "ftp:///joe:secret@host/", "ftp://" HIDDEN },
	{ "git+ssh://joe:secret@host/x?secret", "git+ssh://host/x" },
	{ "//joe:secret@host/", HIDDEN },
	{ "joe:secret@host/", HIDDEN },
	{ "joe:sec/ret@host/", HIDDEN },
	{ "\t//joe:secret@host/", HIDDEN },
	{ "1http://joe:secret@host/", "1http://" HIDDEN },
	{ ".http://joe:secret@host/", ".http://" HIDDEN },
	{ "mirror=http://joe:secret@host/", HIDDEN },
	{ "host/x?token=secret", "host/x" },
	{ "host/x?id=5&X-Amz-Signature=secret", "host/x" },
	/* what is fine */
	{ "http://joe:secret@host/x", "http://host/x" },
	{ "HTTPS://joe:a@secret@Host:8/x?secret#secret", "HTTPS://Host:8/x" },
	{ "http://joe:secret@[::1]:80/x", "http://[::1]:80/x" },
	{ "http://secret@[fe80::1%25lo]/x", "http://[fe80::1%25lo]/x" },
	{ "http://b\xc3\xbc"
	  "cher.example/x",
	  "http://b\xc3\xbc"
	  "cher.example/x" },
	{ "http://host/a:b@c", "http://host/a:b@c" },
	{ "hf://org/repo@rev/x", "hf://org/repo@rev/x" },
};

static void test_shown(void **state)
{
	char out[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
		assert_string_equal(carton_source_label(odd[i][0], out, sizeof(out)), odd[i][1]);
		assert_string_equal(http_url_redact(odd[i][0], out, sizeof(out)), odd[i][1]);
	}
	/* files are shown as they are */
	for (const char *const *p =
		     (const char *const[]){ "/a/joe:secret@x", "/a/x?token=5#6", "./joe:x@y",
					    "model@v2", "a:b", "what?.carton", "x#1", "../a?key=b",
					    "a//b", NULL };
	     *p; p++)
		assert_string_equal(carton_source_label(*p, out, sizeof(out)), *p);
	/* cut, with its end */
	assert_string_equal(http_url_redact("http:///joe:secret@host/", out, 12), "http://(unr");
}

/* What is shown as unreadable is not opened either: it says so, in one line without the secret. */
static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
		if (strncmp(odd[i][1], "http", 4) == 0 && strstr(odd[i][1], HIDDEN))
			assert_string_equal(http_url_fault(odd[i][0]),
					    "not a URL of the form http://HOST/PATH");
	assert_null(http_url_fault("http://joe:secret@host/x?a=b#c"));
	assert_null(http_url_fault("http://joe:secret@[::1]:80/x"));
}

static void test_public(void **state)
{
	static const char *const cases[][2] = {
		{ "http://joe:secret@h:8/x?id=5#secret", "http://h:8/x?id=5" },
		{ "HTTP://secret@H/x", "HTTP://H/x" },
		{ "http://h/get?id=5&v=2", "http://h/get?id=5&v=2" },
		{ "http://h/x?", "http://h/x?" },
		{ "http://h/x?5", "http://h/x?5" },
		{ "http://h/x?monkey=1&author=2&design=3&keyboard=4&compass=5",
		  "http://h/x?monkey=1&author=2&design=3&keyboard=4&compass=5" },
		/* S3, GCS, CloudFront, Azure */
		{ "https://b/k?X-Amz-Date=1&X-Amz-Credential=s&X-Amz-Security-Token=s&X-Amz-Signature=s&"
		  "versionId=7",
		  "https://b/k?versionId=7" },
		{ "https://b/k?AWSAccessKeyId=s&Signature=s&Expires=3", "https://b/k" },
		{ "https://b/k?X-Goog-Algorithm=a&X-Goog-Signature=s", "https://b/k" },
		{ "https://d/k?Policy=s&Signature=s&Key-Pair-Id=s&id=5", "https://d/k?id=5" },
		{ "https://b/k?sv=1&se=2&sr=b&sp=r&sig=s&snapshot=3", "https://b/k?snapshot=3" },
		{ "https://b/k?OSSAccessKeyId=s&Expires=1&Signature=s", "https://b/k" },
		/* by their names */
		{ "http://h/x?token=s", "http://h/x" },
		{ "http://h/x?a=1&access_token=s&b=2", "http://h/x?a=1&b=2" },
		{ "http://h/x?accessToken=s&X-Api-Key=s&apikey=s&key=s&auth[pass]=s",
		  "http://h/x" },
		{ "http://h/x?password=s&passwd=s&pwd=s&client_secret=s&jwt=s&sid=s",
		  "http://h/x" },
		{ "http://h/x?TOKEN=s&tokeN=s&Sig=s&hmac=s&__token__=s&hdnts=s", "http://h/x" },
		/* however they are written */
		{ "http://h/x?to%6ben=s&id=5", "http://h/x?id=5" },
		{ "http://h/x?to%256ben=s&X-Amz%2DSignature=s", "http://h/x" },
		{ "http://h/x?a=1;token=s&amp;sig=s&id=5", "http://h/x?id=5" },
		{ "http://h/x?id=5?token=s", "http://h/x" },
		{ "http://h/x?of=http%3A%2F%2Fjoe%3Asecret%40h%2F&id=5", "http://h/x?id=5" },
		{ "http://h/x?of=http%253A%252F%252Fjoe%253Asecret%2540h", "http://h/x" },
		{ "http://h/x?of=http%3A%2F%2Fh%2F%3Ftoken%3Ds&id=5", "http://h/x?id=5" },
		{ "http://h/x?of=http%3A%2F%2Fh%2Fy&id=5",
		  "http://h/x?of=http%3A%2F%2Fh%2Fy&id=5" },
		/* what is refused */
		{ "http:///joe:secret@h/x", "http://" HIDDEN },
		{ "http:joe:secret@h/x", "http://" HIDDEN },
		/* other places */
		{ "s3://bucket/key", "s3://bucket/key" },
		{ "/a/m.carton?token=x", "/a/m.carton?token=x" },
	};
	char *got, *again;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		got = must(http_url_public(cases[i][0]));
		assert_string_equal(got, cases[i][1]);
		again = must(http_url_public(got));
		assert_string_equal(again, got);
		free(again);
		free(got);
	}
	/* one byte past the longest name that is looked at */
	got = must(http_url_public(
		"http://h/x?"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1"));
	assert_non_null(strchr(got, '?'));
	free(got);
	got = must(http_url_public(
		"http://h/x?"
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1"));
	assert_string_equal(got, "http://h/x");
	free(got);
}

/* Two sources that differ only in what is secret are the same place at a mirror. */
static void test_mirror(void **state)
{
	static const char *const sources[] = {
		"https://joe:secret@h/m.carton?id=5&X-Amz-Signature=s&v=1",
		"https://h/m.carton?id=5&X-Amz-Signature=other&v=1",
		"https://eve@h/m.carton?token=s&id=5&v=1#x"
	};
	char *templates[] = { "http://m/{source}", "http://m/?of={source}", NULL };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		struct mirrors *m;
		char *url;

		assert_int_equal(mirrors_new(templates, sources[i], &m), 0);
		url = must(mirrors_carton(m, 0));
		assert_string_equal(url, "http://m/https://h/m.carton%3Fid%3D5%26v%3D1");
		free(url);
		url = must(mirrors_carton(m, 1));
		assert_string_equal(url,
				    "http://m/?of=https%3A%2F%2Fh%2Fm.carton%3Fid%3D5%26v%3D1");
		free(url);
		mirrors_free(m);
	}
}

static void test_command_line(void **state)
{
	static const char *const cases[][2] = {
		{ "http://joe:secret@h/x?token=s", "http://h/x" },
		{ "http://joe:sec,ret=1@h/x", "http://h/x" },
		{ "mirror=http://joe:secret@h/{sha256}", "mirror=http://h/{sha256}" },
		{ "-omirror=http://joe:secret@h/{sha256}", "-omirror=http://h/{sha256}" },
		{ "allow_other,timeout=5,mirror=https://joe:secret@h/{sha256}?s,memory=1G",
		  "allow_other,timeout=5,mirror=https://h/{sha256}" },
		{ "mirror=http://h/{sha256},mirror=http://i/{sha256},timeout=5",
		  "mirror=http://h/{sha256},mirror=http://i/{sha256},timeout=5" },
		{ "--mirror=http://joe:secret@h/{sha256}", "--mirror=http://h/{sha256}" },
		{ "mirror=http:///joe:secret@h/{sha256},x", "mirror=http://" HIDDEN },
		/* a comma begins another option, and ends a password */
		{ "mirror=http://joe:sec,ret@h/{sha256}", "mirror=" HIDDEN },
		{ "mirror=http://joe:s@ec,ret@h/{sha256}", "mirror=" HIDDEN },
		{ "mirror=http://joe:sec\\,ret@h/{sha256}", "mirror=http://" HIDDEN },
		{ "mirror=http://sec,ret@h/{sha256},timeout=5", "mirror=" HIDDEN },
		{ "timeout=5,ret@h", "timeout=5," HIDDEN },
		{ "cache_dir=/home/joe@work,header_file=/a:b,ro",
		  "cache_dir=/home/joe@work,header_file=/a:b,ro" },
		{ "-f", "-f" },
		{ "", "" },
		{ "/a/b@c,d=e", "/a/b@c,d=e" },
	};
	char arg[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t n = strlen(cases[i][0]), shown;

		memset(arg, 'x', sizeof(arg));
		memcpy(arg, cases[i][0], n + 1);
		privacy_hide(arg);
		shown = strlen(arg);
		/* as long as it was: the room of the argument is all there is */
		if (shown > n || strncmp(arg, cases[i][1], shown) != 0)
			fail_msg("%s: %s", cases[i][0], arg);
		assert_true(shown <= n && strncmp(arg, cases[i][1], shown) == 0);
		assert_true(shown == strlen(cases[i][1]) || shown == n);
		for (size_t k = shown; k <= n; k++)
			assert_int_equal(arg[k], 0);
		assert_int_equal(arg[n + 1], 'x');
	}
}

/* LINKS can be read by everybody who has the carton. */
static void test_link_template(void **state)
{
	(void)state;
	assert_null(lists_template_fault("https://h/{sha256}?x=y"));
	assert_non_null(strstr(lists_template_fault("https://joe:secret@h/{sha256}"),
			       "user name or password"));
	assert_non_null(
		strstr(lists_template_fault("https://joe@h/{sha256}"), "user name or password"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shown),	     cmocka_unit_test(test_refused),
		cmocka_unit_test(test_public),	     cmocka_unit_test(test_mirror),
		cmocka_unit_test(test_command_line), cmocka_unit_test(test_link_template),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
