/* SPDX-License-Identifier: Apache-2.0 */
/* MANIFEST: what is a line, what is refused and with which number, and the model hash. */
#include "format/manifest.h"
#include "zip_help.h"

#define H0 "0000000000000000000000000000000000000000000000000000000000000000"
#define H1 "1111111111111111111111111111111111111111111111111111111111111111"
#define HA "abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdefabcd"

static int parse_n(const char *text, size_t n, struct manifest **ret)
{
	char *copy = must(malloc(n + 1));

	memcpy(copy, text, n);
	return manifest_parse(copy, n, NULL, ret);
}

static int parse(const char *text, struct manifest **ret)
{
	return parse_n(text, strlen(text), ret);
}

static void test_lines(void **state)
{
	static const char text[] = "a=" H0 "\nb/c=d=e=" HA "\nb/x y=" H1 "\n";
	uint8_t model[SHA256_SIZE], hash[SHA256_SIZE], found[SHA256_SIZE];
	const char *line;
	struct manifest *m;

	(void)state;
	assert_int_equal(parse(text, &m), 0);
	assert_int_equal(m->n, 3);
	line = manifest_find(m, "b/c=d=e");
	assert_non_null(line);
	assert_string_equal(line, "b/c=d=e");
	assert_ptr_equal(line, manifest_path(m, 1));
	assert_true(hex_decode(HA, SHA256_SIZE, hash));
	manifest_hash(line, found);
	assert_memory_equal(found, hash, SHA256_SIZE);
	manifest_hash(strrchr(line, '/') + 1, found);
	assert_memory_equal(found, hash, SHA256_SIZE);
	assert_null(manifest_find(m, "b/c"));
	assert_null(manifest_find(m, ""));
	assert_null(manifest_find(m, "b"));
	sha256_of(text, strlen(text), model);
	assert_memory_equal(m->model_hash, model, SHA256_SIZE);
	assert_int_equal(m->unsorted_line, 0);
	assert_false(m->no_final_newline);
	manifest_free(m);
	manifest_free(NULL);
}

/* The budget has again what was counted for the lines, also of a MANIFEST that is refused. */
static void test_budget(void **state)
{
	static const char *const texts[] = { "a=" HA "\nb=" HA "\n", "a=" HA "\na=" HA "\n" };
	struct manifest *m;
	struct budget b;

	(void)state;
	budget_init(&b, MIB);
	for (int i = 0; i < 2; i++) {
		char *text = must(strdup(texts[i]));
		int r = manifest_parse(text, strlen(texts[i]), &b, &m);

		assert_int_equal(r, i == 0 ? 0 : -EBADMSG);
		assert_true((budget_left(&b) < MIB) == (r == 0));
		if (r == 0)
			manifest_free(m);
		assert_int_equal(budget_left(&b), MIB);
	}
}

static void test_empty(void **state)
{
	struct manifest *m;

	(void)state;
	assert_int_equal(parse("", &m), 0);
	assert_int_equal(m->n, 0);
	assert_null(manifest_find(m, "a"));
	assert_false(m->no_final_newline);
	manifest_free(m);
}

/* Accepted, and told to those who ask. */
static void test_form(void **state)
{
	struct manifest *m;

	(void)state;
	assert_int_equal(parse("a=" H0 "\nc=" H0 "\nb=" H1 "\na/"
			       "b"
			       "=" H0,
			       &m),
			 -EBADMSG);
	assert_int_equal(parse("a=" H0 "\nc=" H0 "\nb=" H1 "\nab=" H0, &m), 0);
	assert_int_equal(m->n, 4);
	assert_int_equal(m->unsorted_line, 3);
	assert_true(m->no_final_newline);
	assert_string_equal(manifest_path(m, 0), "a");
	assert_string_equal(manifest_path(m, 1), "ab");
	assert_string_equal(manifest_path(m, 2), "b");
	manifest_free(m);
	/* names that only look like those of MANIFEST and LINKS */
	assert_int_equal(parse("LINK=" H0 "\nLINKS /a=" H0 "\nMANIFESTS=" H0 "\na/MANIFEST=" H0
			       "\nb/LINKS/c=" H0 "\n",
			       &m),
			 0);
	assert_int_equal(m->n, 5);
	manifest_free(m);
	/* sorted bytewise, which is not the order of the tree */
	assert_int_equal(parse("a b=" H0 "\na/b=" H0 "\na0=" H0 "\n", &m), 0);
	assert_int_equal(m->unsorted_line, 0);
	assert_string_equal(manifest_path(m, 0), "a/b");
	manifest_free(m);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} list[] = {
		{ "\n", "line 1 is not path=sha256" },
		{ "a=" H0 "\n\nb=" H0 "\n", "line 2 is not path=sha256" },
		{ "a\n", "line 1 is not" },
		{ H0 "\n", "line 1 is not" },
		{ "=" H0 "\n", "line 1 is empty" },
		{ "a=" H0 "0\n", "line 1 is not" },
		{ "a=0"
		  "\n",
		  "line 1 is not" },
		{ "a=0000000000000000000000000000000000000000000000000000000000000\n",
		  "line 1 is not" },
		{ "a=ABCDEF0000000000000000000000000000000000000000000000000000000000\n",
		  "line 1 is not" },
		{ "a=g000000000000000000000000000000000000000000000000000000000000000\n",
		  "line 1 is not" },
		{ "a " H0 "\n", "line 1 is not" },
		{ "a=" H0 " \n", "line 1 is not" },
		{ "a=" H0 "\r\n", "line 1 ends with a carriage return" },
		{ "a=" H0 "\nb=" H0 "\r", "line 2 ends with a carriage return" },
		{ "\xef\xbb\xbf"
		  "a=" H0 "\na=" H0 "\na=" H1,
		  "line 3 is a duplicate of line 2: \"a\"" },
		{ "b=" H0 "\na=" H0 "\nb=" H0 "\n", "line 3 is a duplicate of line 1" },
		{ "a/b=" H0 "\na=" H0 "\n", "line 1 uses the file of line 2 as a directory" },
		{ "a=" H0 "\na b=" H0 "\na/b/c=" H0 "\n", "line 3 uses the file of line 1" },
		{ "MANIFEST=" H0 "\n", "lists MANIFEST, LINKS or a path below" },
		{ "LINKS=" H0 "\n", "lists MANIFEST, LINKS or a path below" },
		{ "a=" H0 "\nMANIFEST/a=" H0 "\n", "line 2 lists MANIFEST, LINKS" },
		{ "LINKS/a/b=" H0 "\n", "line 1 lists MANIFEST, LINKS" },
		{ "/a=" H0 "\n", "line 1 is absolute" },
		{ "a/../b=" H0 "\n", "line 1 has a \"..\" component" },
		{ "a\\b=" H0 "\n", "line 1 has a backslash" },
		{ "\xff=" H0 "\n", "line 1 is not UTF-8" },
		{ "a\t=" H0 "\n", "line 1 has a control character" },
	};
	struct log_seen *seen = log_watch();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		struct manifest *m = NULL;

		seen->n = 0;
		if (parse(list[i].text, &m) != -EBADMSG)
			fail_msg("\"%s\" passed", list[i].text);
		assert_null(m);
		assert_int_equal(seen->n, 1);
		assert_string_equal(seen->subject, "MANIFEST");
		assert_says(seen, list[i].says);
	}
	carton_log_set(NULL, NULL);
}

static void test_nul(void **state)
{
	static const char text[] = "a\0b=" H0 "\n", late[] = "a=" H0 "\0\n";
	struct log_seen *seen = log_watch();
	struct manifest *m;

	(void)state;
	assert_int_equal(parse_n(text, sizeof(text) - 1, &m), -EBADMSG);
	assert_says(seen, "line 1 contains a NUL byte");
	assert_int_equal(parse_n(late, sizeof(late) - 1, &m), -EBADMSG);
	assert_says(seen, "line 1 contains a NUL byte");
	/* names like theirs are plain names */
	assert_int_equal(parse("a/MANIFEST=" H0 "\nlinks=" H0 "\n", &m), 0);
	manifest_free(m);
	carton_log_set(NULL, NULL);
}

static void test_reported(void **state)
{
	struct log_seen *seen = log_watch();
	struct buf b = buf_init(100000);
	struct manifest *m;

	(void)state;
	for (size_t i = 0; i < 3 * MAX_REPORTED; i++)
		buf_adds(&b, "bad\n");
	assert_int_equal(parse(b.data, &m), -EBADMSG);
	assert_int_equal(seen->n, MAX_REPORTED);
	b.len = 0;
	for (size_t i = 0; i < 3 * MAX_REPORTED; i++)
		buf_adds(&b, "same=" H0 "\n");
	seen->n = 0;
	assert_int_equal(parse(b.data, &m), -EBADMSG);
	assert_int_equal(seen->n, MAX_REPORTED);
	buf_finish(&b);
	carton_log_set(NULL, NULL);
}

static void test_long_path(void **state)
{
	struct buf b = buf_init(10000);
	struct manifest *m;

	(void)state;
	for (size_t i = 0; i < MAX_PATH_LEN; i++)
		buf_addc(&b, i % 200 == 199 ? '/' : 'p');
	buf_adds(&b, "=" H0);
	assert_int_equal(parse(b.data, &m), 0);
	assert_int_equal(strlen(manifest_path(m, 0)), MAX_PATH_LEN);
	manifest_free(m);
	b.len -= 65;
	buf_adds(&b, "p=" H0);
	assert_int_equal(parse(b.data, &m), -EBADMSG);
	buf_finish(&b);
}

/* One line more than MAX_ENTRIES is over the limit, however short; one less is only bad. */
static void test_entries(void **state)
{
	struct log_seen *seen = log_watch();
	char *text = must(malloc(MAX_ENTRIES + 1));
	struct manifest *m;

	(void)state;
	memset(text, '\n', MAX_ENTRIES + 1);
	assert_int_equal(parse_n(text, MAX_ENTRIES + 1, &m), -EFBIG);
	assert_int_equal(seen->n, 1);
	assert_says(seen, "more than 2000000 lines");
	assert_int_equal(parse_n(text, MAX_ENTRIES, &m), -EBADMSG);
	assert_says(seen, "is not path=sha256");
	free(text);
	carton_log_set(NULL, NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_budget),	 cmocka_unit_test(test_lines),
		cmocka_unit_test(test_empty),	 cmocka_unit_test(test_form),
		cmocka_unit_test(test_refused),	 cmocka_unit_test(test_nul),
		cmocka_unit_test(test_reported), cmocka_unit_test(test_long_path),
		cmocka_unit_test(test_entries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
