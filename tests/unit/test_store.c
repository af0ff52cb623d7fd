/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the AWS command line say, hf:// and s3:// URLs, and the table of schemes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/digest.h"
#include "base/util.h"
#include "http/http.h"
#include "http/s3.h"

/* Where a config file with this region leads, and an empty file of credentials. */
static int place_of(const char *region, struct aws_place *ret)
{
	struct aws_environment e = { .profile = "default", .credentials = "/dev/null" };
	int fd = memfd_create("config", MFD_CLOEXEC), r;

	assert_true(fd >= 0 && dprintf(fd, "[default]\nregion = %s\n", region) > 0);
	snprintf(e.config, sizeof(e.config), "/proc/self/fd/%d", fd);
	r = aws_place(&e, ret);
	fd_close(fd);
	return r;
}

/* It is a part of the host that is asked with the user's keys. */
static void test_region(void **state)
{
	static const char *const bad[] = { "evil.example/", "x.y", "a b", "a:b",
					   "\xc3\xa9",	    "x?",  "x#" };
	struct aws_place place = { .region = "" };
	char *url;

	(void)state;
	unsetenv("AWS_REGION");
	unsetenv("AWS_DEFAULT_REGION");
	unsetenv("AWS_ENDPOINT_URL");
	unsetenv("AWS_ENDPOINT_URL_S3");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (place_of(bad[i], &place) != -EINVAL)
			fail_msg("taken: %s", bad[i]);
	assert_int_equal(place_of("eu-central-1", &place), 0);
	url = s3_url_at(&place, "s3://bucket/a b");
	assert_string_equal(url, "https://bucket.s3.eu-central-1.amazonaws.com/a%20b");
	free(url);
}

/* They are sent in headers: none may begin another line. */
static void test_keys(void **state)
{
	static const struct {
		const char *output;
		int want;
	} cases[] = {
		{ "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"SessionToken\": \"T\"}",
		  0 },
		{ "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"SessionToken\": \"\"}",
		  0 },
		{ "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"SessionToken\": \"T\\r\\nX: y\"}",
		  -EINVAL },
		{ "{\"AccessKeyId\": \"A\\n\", \"SecretAccessKey\": \"S\"}", -EINVAL },
		{ "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\\u007f\"}", -EINVAL },
		{ "{\"AccessKeyId\": \"A\"}", -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		static struct aws_found found;
		struct aws_keys keys = { .expiry = 0 };

		found = (struct aws_found){ .ran = true, .n = strlen(cases[i].output) };
		memcpy(found.output, cases[i].output, found.n);
		if (aws_take(&found, &keys) != cases[i].want)
			fail_msg("%s", cases[i].output);
		assert_int_equal(!*keys.id, cases[i].want != 0);
	}
}

/* A server may undo percent-encoding before it resolves dots. */
static void test_revision(void **state)
{
	static const char *const bad[] = { "..", "%2e%2e", ".%2E", "%2e", "." };
	char url[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(url, sizeof(url), "hf://org/repo@%s/x", bad[i]);
		if (!http_url_fault(url))
			fail_msg("taken: %s", url);
	}
	assert_null(http_url_fault("hf://org/repo@refs%2Fpr%2F1/x"));
	assert_null(http_url_fault("hf://org/repo@refs/pr/1/x"));
	assert_null(http_url_fault("hf://repo@refs/convert/x-y/x"));
	assert_non_null(http_url_fault("hf://repo@main"));
	assert_non_null(http_url_fault("ms://repo@main/x"));
	assert_null(http_url_fault("hf://org/repo@.../x"));
	assert_null(http_url_fault("hf://org/repo@%2e%2e%2e/x"));
	assert_null(http_url_fault("hf://org/repo@v1.0/a..b/x"));
}

static void test_schemes(void **state)
{
	static const struct {
		const char *text, *exact, *like;
	} cases[] = {
		{ "http://h/x", "http", "http" },  { "HTTPS://h", "https", "https" },
		{ "s3://bucket/x", "s3", "s3" },   { "hF://org/repo/x", "hf", "hf" },
		{ "ms://org/repo/x", "ms", "ms" }, { "ms:org/repo", NULL, "ms" },
		{ "OCI://h/a:b", "oci", "oci" },   { "oci:h/a", NULL, "oci" },
		{ "http:/h", NULL, "http" },	   { " s 3 : //x", NULL, "s3" },
		{ "s3x://bucket/x", NULL, NULL },  { "ftp://h/x", NULL, NULL },
		{ "/a/http://h", NULL, NULL },	   { "://h", NULL, NULL },
		{ "x/s3://bucket/k", NULL, NULL }, { "", NULL, NULL },
	};
	char names[64], cut[8];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct scheme *exact = scheme_of(cases[i].text),
				    *like = scheme_like(cases[i].text);

		if (!exact != !cases[i].exact || (exact && strcmp(exact->name, cases[i].exact)))
			fail_msg("\"%s\" is %s", cases[i].text, exact ? exact->name : "none");
		if (!like != !cases[i].like || (like && strcmp(like->name, cases[i].like)))
			fail_msg("\"%s\" is like %s", cases[i].text, like ? like->name : "none");
	}
	assert_string_equal(scheme_names(names, sizeof(names)), "http, https, s3, hf, ms and oci");
	assert_string_equal(scheme_names(cut, sizeof(cut)), "http, h");
}

/* The message shows the form of the scheme that was meant. */
static void test_misspelt(void **state)
{
	(void)state;
	assert_string_equal(http_url_fault("s3:bucket/key"),
			    "not a URL of the form s3://BUCKET/KEY");
	assert_string_equal(http_url_fault("hf:org/repo/x"),
			    "not a URL of the form hf://ORG/REPO[@REVISION][/PATH]");
	assert_string_equal(http_url_fault("https:/host/x"),
			    "not a URL of the form http://HOST/PATH");
	assert_string_equal(http_url_fault("ftp://h/x"), "only http and https are allowed");
}

/* A revision ends at a slash, but for two kinds; a name without one is a repository by itself. */
static const char *const hub_files[][2] = {
	{ "hf://me/m@refs/pr/12/a/b", "https://hub.example/me/m/resolve/refs%2Fpr%2F12/a/b" },
	{ "hf://me/m@refs/convert/parquet/x",
	  "https://hub.example/me/m/resolve/refs%2Fconvert%2Fparquet/x" },
	{ "hf://me/m@refs/pr/1x/a", "https://hub.example/me/m/resolve/refs/pr/1x/a" },
	{ "hf://me/m@refs/heads/a", "https://hub.example/me/m/resolve/refs/heads/a" },
	{ "hf://gpt2@main/a", "https://hub.example/gpt2/resolve/main/a" },
	{ "hf://datasets/squad@refs/pr/1/a",
	  "https://hub.example/datasets/squad/resolve/refs%2Fpr%2F1/a" },
	{ "hf://datasets/me/d/a", "https://hub.example/datasets/me/d/resolve/main/a" },
	{ "hf://gpt2/a/b", "https://hub.example/gpt2/a/resolve/main/b" },
};

/* Which URL is used in place of another, and which needs a login of the user. */
static void test_places(void **state)
{
	const char *fault = NULL;
	char *url;

	(void)state;
	assert_int_equal(setenv("HF_ENDPOINT", "https://hub.example//", 1), 0);
	assert_int_equal(scheme_resolve("hf://me/m@v1/{path}", &url, &fault), 0);
	assert_string_equal(url, "https://hub.example/me/m/resolve/v1/{path}");
	free(url);
	for (size_t i = 0; i < ARRAY_SIZE(hub_files); i++) {
		assert_int_equal(scheme_resolve(hub_files[i][0], &url, &fault), 0);
		assert_string_equal(url, hub_files[i][1]);
		free(url);
	}
	assert_int_equal(unsetenv("MODELSCOPE_ENDPOINT"), 0);
	assert_int_equal(scheme_resolve("ms://me/m/a b", &url, &fault), 0);
	assert_string_equal(url, "https://modelscope.cn/models/me/m/resolve/master/a%20b");
	free(url);
	assert_int_equal(scheme_resolve("ms://me/m@../b", &url, &fault), -EINVAL);
	assert_string_equal(fault, "not ms://ORG/REPO[@REVISION][/PATH]: the revision is none");
	assert_int_equal(scheme_resolve("s3://bucket/{sha256}", &url, &fault), 0);
	assert_string_equal(url, "s3://bucket/{sha256}");
	free(url);
	assert_int_equal(scheme_resolve("hf://me/", &url, &fault), -EINVAL);
	assert_string_equal(fault, "not hf://ORG/REPO[@REVISION]/PATH: there is no path");
	assert_int_equal(scheme_resolve("ms://me/", &url, &fault), -EINVAL);
	assert_string_equal(fault, "not ms://ORG/REPO[@REVISION][/PATH]");
	assert_int_equal(scheme_resolve("ms://me", &url, &fault), -EINVAL);
	assert_string_equal(fault, "not ms://ORG/REPO[@REVISION][/PATH]");
	assert_int_equal(scheme_resolve("hf://me", &url, &fault), -EINVAL);
	assert_string_equal(fault, "not hf://ORG/REPO[@REVISION]/PATH: there is no path");
	assert_true(login_missing(NULL, "s3://bucket/x"));
	assert_false(login_missing(NULL, "hf://me/m/x"));
	assert_false(login_missing(NULL, "https://h/x"));
	assert_false(login_missing(&(struct login){ .scheme = &s3_scheme }, "s3://bucket/x"));
	assert_true(s3_scheme.links_may("s3://bucket/a", "s3://bucket/b/c"));
	assert_false(s3_scheme.links_may("s3://bucket/a", "s3://bucket2/a"));
	assert_false(s3_scheme.links_may("s3://bucket/a", "s3://bucke/a"));
}

static void test_hmac(void **state)
{
	/* RFC 4231, cases 2 and 6: a short key, and one that is longer than a block */
	static const struct {
		const char *data, *want;
		size_t n_key;
	} cases[] = {
		{ "what do ya want for nothing?",
		  "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", 4 },
		{ "Test Using Larger Than Block-Size Key - Hash Key First",
		  "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", 131 },
	};
	uint8_t key[131], mac[SHA256_SIZE];
	char text[2 * SHA256_SIZE + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		memset(key, 0xaa, sizeof(key));
		if (i == 0)
			memcpy(key, "Jefe", 4);
		assert_int_equal(
			hmac_sha256(key, cases[i].n_key, cases[i].data, strlen(cases[i].data), mac),
			0);
		hex_encode(mac, sizeof(mac), text);
		assert_string_equal(text, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_region),	 cmocka_unit_test(test_keys),
		cmocka_unit_test(test_revision), cmocka_unit_test(test_schemes),
		cmocka_unit_test(test_misspelt), cmocka_unit_test(test_places),
		cmocka_unit_test(test_hmac),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
