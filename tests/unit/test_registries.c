/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of docker and podman say of registries, and where that leads. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/registries.h"

#include "../must.h"

static struct registries *podman(const char *text)
{
	struct registries *r = must(registries_new());

	assert_int_equal(registries_parse_podman(r, "registries.conf", text, strlen(text)), 0);
	return r;
}

static struct registries *docker(const char *text)
{
	struct registries *r = must(registries_new());

	assert_int_equal(registries_parse_docker(r, "daemon.json", text, strlen(text)), 0);
	return r;
}

/* Where HOST/NAME is; "" where it stays; "blocked". */
static void locates(const struct registries *r, const char *host, const char *name,
		    const char *want)
{
	char *found = NULL;
	bool plain;
	int result = registries_locate(r, host, name, &found, &plain);

	assert_string_equal(result == -EPERM ? "blocked" : found ? found : "", want);
	free(found);
}

static void test_prefixes(void **state)
{
	struct registries *r = podman("[[registry]]\nprefix = \"a.example\"\nlocation = \"b:1/x\"\n"
				      "[[registry]]\nprefix = \"a.example/t/m\"\nlocation = \"c\"\n"
				      "[[registry]]\nprefix = \"*.w.example\"\nlocation = \"d/y\"\n"
				      "[[registry]]\nlocation = \"e.example:5\"\nblocked = true\n"
				      "[[registry]]\nblocked = true\n");

	(void)state;
	locates(r, "a.example", "t", "b:1/x/t");
	locates(r, "A.example", "t", "b:1/x/t");
	locates(r, "a.example", "t/m", "c");
	locates(r, "a.example", "t/m/n", "c/n");
	locates(r, "a.example", "t/mm", "b:1/x/t/mm");
	locates(r, "a.example", "T/m", "b:1/x/T/m");
	/* another port is another registry */
	locates(r, "a.example:5", "t", "");
	locates(r, "xa.example", "t", "");
	locates(r, "a.example.com", "t", "");
	locates(r, "q.w.example", "t", "d/y/t");
	locates(r, "w.example", "t", "");
	locates(r, "e.example:5", "t", "blocked");
	locates(r, "e.example", "t", "");
	locates(NULL, "e.example", "t", "");
	registries_free(r);
}

/* The last of two with one prefix counts, as of two files. */
static void test_last(void **state)
{
	static const char more[] =
		"[[registry]]\nprefix = \"a\"\nlocation = \"c\"\n[aliases]\nm = \"\"\n";
	struct registries *r = podman(
		"[[registry]]\nprefix = \"a\"\nlocation = \"b\"\nblocked = true\n"
		"[aliases]\nm = \"h/m\"\n\"o/n\" = \"h/n\"\n");

	(void)state;
	locates(r, "a", "t", "blocked");
	assert_string_equal(registries_alias(r, "m:v1", 1), "h/m");
	assert_string_equal(registries_alias(r, "o/n", 3), "h/n");
	assert_null(registries_alias(r, "o/n", 1));
	assert_int_equal(registries_parse_podman(r, "x.conf", more, strlen(more)), 0);
	locates(r, "a", "t", "c/t");
	assert_null(registries_alias(r, "m", 1));
	registries_free(r);
}

static void test_plain(void **state)
{
	static const char *const files[] = {
		"{\"insecure-registries\": [\"h:5\", \"10.0.0.0/8\", \"http://i\", \"fd00::/8\"]}",
		"{\"a\": {\"insecure-registries\": [\"h:6\"]}, \"insecure-registries\": [\"h:5\", \"i\","
		" [\"h:6\"], {\"x\": \"h:6\"}, \"10.0.0.0/8\", \"fd00::/8\", 1, null]}",
	};

	struct registries *r;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		r = docker(files[i]);
		assert_true(registries_plain(r, "h:5", NULL));
		assert_true(registries_plain(r, "H:5", NULL));
		assert_true(registries_plain(r, "i", NULL));
		assert_true(registries_plain(r, "10.1.2.3:5", NULL));
		assert_true(registries_plain(r, "[fd00::1]:5", NULL));
		assert_true(registries_plain(r, "localhost:5", NULL));
		assert_false(registries_plain(r, "h", NULL));
		assert_false(registries_plain(r, "h:6", NULL));
		assert_false(registries_plain(r, "h:55", NULL));
		assert_false(registries_plain(r, "11.1.2.3:5", NULL));
		assert_false(registries_plain(r, "10.example", NULL));
		/* that is no word of the user about passwords */
		assert_false(registries_named(r, "h", 5));
		registries_free(r);
	}
	assert_true(registries_plain(NULL, "127.0.0.1:5", NULL));
	r = podman("[[registry]]\nlocation = \"h:5/t\"\ninsecure = true\n");
	assert_true(registries_plain(r, "h:5", "t/m"));
	assert_false(registries_plain(r, "h:5", "tt") || registries_plain(r, "h:5", NULL));
	registries_free(r);
	assert_true(registries_plain(NULL, "[::1]", NULL));
	assert_false(registries_plain(NULL, "h", NULL));
}

static void test_named(void **state)
{
	static const char *const urls[] = { "oci://q:7/a:b", "oci://s/a", "https://t/x", "", NULL };
	char *const hosts[] = { (char *)"h", (char *)"i:5", (char *)"[::2]:5", (char *)"*", NULL };
	struct registries *r;

	(void)state;
	assert_int_equal(registries_load(hosts, urls, &r), 0);
	assert_true(registries_named(r, "H", 1) && registries_named(r, "i", 5));
	assert_true(registries_named(r, "::2", 5) && registries_named(r, "q", 7));
	assert_true(registries_named(r, "s", 80));
	assert_false(registries_named(r, "i", 6) || registries_named(r, "t", 80));
	assert_false(registries_named(r, "q", 8) || registries_named(r, "", 80));
	assert_true(registries_plain(r, "h:9", NULL) && registries_plain(r, "i:5", NULL));
	assert_false(registries_plain(r, "i:6", NULL) || registries_plain(r, "i", NULL));
	registries_free(r);
}

/* The bases, with the letters of what they are asked for. */
static void mirrors(const struct registries *r, const char *host, const char *name,
		    const char *want)
{
	struct registry_mirror *found = NULL;
	char text[1024] = "";
	size_t n = 0;

	assert_int_equal(registries_mirrors(r, host, name, &found, &n), 0);
	for (size_t i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s %s%s%s",
			 i ? ", " : "", found[i].base, found[i].tags ? "t" : "",
			 found[i].digests ? "d" : "", found[i].plain ? "p" : "");
	assert_string_equal(text, want);
	registry_mirrors_free(found, n);
}

static void test_mirrors(void **state)
{
	struct registries *r = podman(
		"[[registry]]\nprefix = \"a/t\"\nlocation = \"a/t\"\n"
		"[[registry.mirror]]\nlocation = \"m:5/p\"\n"
		"[[registry.mirror]]\nlocation = \"n\"\ninsecure = true\npull-from-mirror = \"tag-only\"\n"
		"[[registry.mirror]]\nlocation = \"../x\"\n[[registry.mirror]]\n"
		"[[registry]]\nprefix = \"docker.io\"\nmirror-by-digest-only = true\n"
		"mirror = [{ location = \"k\" }]\n");
	static const char more[] =
		"{\"registry-mirrors\": [\"https://j/\", \"http://i:5/q\", \"h\", "
		"\"ftp://g\", \"https://joe:pw@f\", \"https://\"]}";

	(void)state;
	mirrors(r, "a", "t/x", "https://m:5/v2/p/x td, https://n/v2/x tp");
	mirrors(r, "a", "u/x", "");
	assert_int_equal(registries_parse_docker(r, "daemon.json", more, strlen(more)), 0);
	mirrors(r, "docker.io", "library/x",
		"https://k/v2/library/x d, https://j/v2/library/x td, http://i:5/v2/q/library/x td");
	mirrors(r, "a", "t/x", "https://m:5/v2/p/x td, https://n/v2/x tp");
	registries_free(r);
}

/* Of a file with a fault nothing is used, and what was there before stays. */
static void test_faults(void **state)
{
	static const char *const texts[] = {
		"[[registry]]\nprefix = \"a\"\nblocked = true\n[[registry.mirror]]\nlocation = \"m\"\n"
		"[aliases]\nm = \"h/n\"\n[aliases]\n",
		"[[registry]\n",
		"\xff",
	};
	struct registries *r = podman("[aliases]\nm = \"h/m\"\n");

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_int_equal(registries_parse_podman(r, "x", texts[i], strlen(texts[i])),
				 -EBADMSG);
	assert_int_equal(registries_parse_docker(r, "x", "{\"insecure-registries\": [\"h\"", 27),
			 -EBADMSG);
	locates(r, "a", "t", "");
	mirrors(r, "a", "t", "");
	assert_false(registries_plain(r, "h", NULL));
	assert_string_equal(registries_alias(r, "m", 1), "h/m");
	/* other types than those that are wanted say nothing */
	registries_free(r);
	r = podman("registry = 1\n[aliases]\nm = 1\nn = [\"h/n\"]\n");
	assert_null(registries_alias(r, "m", 1));
	registries_free(r);
	r = podman(
		"[registry]\nprefix = \"a\"\nblocked = true\n[registry.mirror]\nlocation = \"m\"\n");
	locates(r, "a", "t", "");
	registries_free(r);
	r = docker(
		"{\"registry-mirrors\": \"https://j\", \"insecure-registries\": {\"x\": [\"h\"]}}");
	mirrors(r, "docker.io", "x", "");
	assert_false(registries_plain(r, "h", NULL));
	registries_free(r);
}

static void test_limits(void **state)
{
	char *text = must(malloc(REGISTRIES_MAX * 16 + 64)), *p = text;
	struct registries *r = must(registries_new());

	(void)state;
	p += sprintf(p, "{\"insecure-registries\": [\"h\"");
	for (size_t i = 1; i < REGISTRIES_MAX; i++)
		p += sprintf(p, ",\"h%zu\"", i);
	strcpy(p, "]}");
	assert_int_equal(registries_parse_docker(r, "x", text, strlen(text)), 0);
	assert_true(registries_plain(r, "h9999", NULL));
	assert_int_equal(registries_parse_docker(r, "x", text, strlen(text)), -EFBIG);
	assert_true(registries_plain(r, "h9999", NULL));
	registries_free(r);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prefixes), cmocka_unit_test(test_last),
		cmocka_unit_test(test_plain),	 cmocka_unit_test(test_named),
		cmocka_unit_test(test_mirrors),	 cmocka_unit_test(test_faults),
		cmocka_unit_test(test_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
