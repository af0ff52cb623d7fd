/* SPDX-License-Identifier: Apache-2.0 */
/* Content of which only the id that git gives it is known at first. */
#include "cached_help.h"
#include "carton.h"
#include "cache/file.h"
#include "content/internal.h"
#include "content/late.h"
#include "format/links.h"

static const char good[] = "what the commit has", evil[] = "what somebody wants";

/* LINKS of one such content, for the user's own repository if `user`. */
static struct links *links_of(const char *size, const uint8_t name[SHA256_SIZE], const char *id,
			      bool user)
{
	char hex[2 * SHA256_SIZE + 1], text[1000];
	struct links *l;

	hex_encode(name, SHA256_SIZE, hex);
	snprintf(
		text, sizeof(text),
		"version = 1\n[urls]\n%s = [\"https://hub/x\"]\n[sizes]\n%s = %s\n[git]\n%s = %s\n",
		hex, hex, size, hex, id);
	assert_int_equal(links_parse(text, strlen(text), NULL, &l), 0);
	assert_int_equal(l->n, 1);
	if (user)
		links_of_user(l);
	return l;
}

static void id_of(const char *text, char ret[2 * SHA1_SIZE + 3], uint8_t ret_name[SHA256_SIZE])
{
	uint8_t id[SHA1_SIZE];

	assert_int_equal(git_blob_id(text, strlen(text), id), 0);
	assert_int_equal(git_name(id, ret_name), 0);
	ret[0] = '"';
	hex_encode(id, SHA1_SIZE, ret + 1);
	strcat(ret, "\"");
}

static void test_which_links_are_late(void **state)
{
	char id[2 * SHA1_SIZE + 3], other[2 * SHA1_SIZE + 3];
	uint8_t name[SHA256_SIZE], other_name[SHA256_SIZE], plain[SHA256_SIZE];
	const struct {
		const char *size, *id;
		const uint8_t *name;
		bool user, late;
	} all[] = {
		{ "19", id, name, true, true },
		{ "16777216", id, name, true, true },
		/* what others say */
		{ "19", id, name, false, false },
		/* what nobody would compare in memory */
		{ "16777217", id, name, true, false },
		{ "-1", id, name, true, false },
		/* the name is not made of that id: it may be a sha256 of MANIFEST */
		{ "19", other, name, true, false },
		{ "19", id, plain, true, false },
		{ "19", "\"0123\"", name, true, false },
		{ "19", "5", name, true, false },
	};

	(void)state;
	id_of(good, id, name);
	id_of(evil, other, other_name);
	sha256_of(good, strlen(good), plain);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct links *l = links_of(all[i].size, all[i].name, all[i].id, all[i].user);

		assert_int_equal(link_late(&l->list[0]) != NULL, all[i].late);
		links_free(l);
	}
	assert_null(link_late(NULL));
}

struct fixture {
	struct links *links;
	struct box *box;
	struct object *object;
	uint8_t name[SHA256_SIZE], sha256[SHA256_SIZE]; /* of `good` */
};

/* A store that is offline, with the object. */
static struct fixture late_of(struct cached *e)
{
	char id[2 * SHA1_SIZE + 3];
	struct fixture f = { .box = box_new() };

	id_of(good, id, f.name);
	sha256_of(good, strlen(good), f.sha256);
	f.links = links_of("19", f.name, id, true);
	f.box->seals = SEALS_USE;
	box_start(f.box, e->cache, true);
	assert_int_equal(
		object_add_link(f.box->store, f.name, "model/x", &f.links->list[0], &f.object), 0);
	assert_non_null(f.object->late);
	return f;
}

static void late_end(struct fixture *f)
{
	box_free(f->box);
	links_free(f->links);
}

/* Puts the text into the cache, and a hint that leads from `name` to it. */
static void keep(struct cached *e, const uint8_t name[SHA256_SIZE], const char *text)
{
	char hex[2 * SHA256_SIZE + 1];
	uint8_t sha256[SHA256_SIZE];
	struct source *source;
	struct file *file;

	sha256_of(text, strlen(text), sha256);
	assert_int_equal(file_cache(e->cache, sha256, &file), 0);
	assert_int_equal(file_write(file, text, strlen(text), 0), 0);
	assert_int_equal(file_commit(file, NULL, strlen(text), &source), 0);
	source_unref(source);
	hex_encode(sha256, SHA256_SIZE, hex);
	assert_int_equal(cache_hint_put(e->cache, name, hex), 0);
}

static void test_from_the_cache(void **state)
{
	struct cached *e = *state;
	struct fixture f = late_of(e);
	char text[sizeof(good)] = "";
	uint8_t found[SHA256_SIZE];

	assert_int_equal(get(f.object), -ENETUNREACH);
	assert_false(object_known_sha256(f.object, found) || object_cache_name(f.object, found));
	keep(e, f.name, good);
	assert_false(object_known_sha256(f.object, found));
	assert_true(object_cache_name(f.object, found));
	assert_int_equal(get(f.object), 0);
	assert_int_equal(object_read(f.object, text, strlen(good), 0, false), 0);
	assert_string_equal(text, good);
	assert_true(object_known_sha256(f.object, found));
	assert_memory_equal(found, f.sha256, SHA256_SIZE);
	object_put(f.object);
	late_end(&f);
}

/* The hint of somebody who writes to the cache leads to other bytes, of the same size. */
static void test_a_note_of_others(void **state)
{
	struct cached *e = *state;
	struct fixture f = late_of(e);
	uint8_t found[SHA256_SIZE];
	char hint[MAX_CACHE_VALIDATOR + 1];

	keep(e, f.name, evil);
	assert_int_equal(get(f.object), -ENETUNREACH);
	assert_false(object_known_sha256(f.object, found));
	assert_int_equal(cache_hint_get(e->cache, f.name, hint, sizeof(hint)), -ENOENT);
	late_end(&f);
}

/* Bytes that were changed between the pass that tagged them and the one that compares git's id. */
static void test_two_passes(void **state)
{
	struct fixture f = late_of(*state);
	struct ingested in = { .size = strlen(good) };
	uint8_t found[SHA256_SIZE];
	struct file *file;

	assert_int_equal(file_memory(100, &file), 0);
	assert_int_equal(file_write(file, good, strlen(good), 0), 0);
	sha256_of(evil, strlen(evil), in.sha256);
	assert_int_equal(late_check(f.object, file, &in), -EBADMSG);
	assert_false(object_known_sha256(f.object, found));
	in.size = strlen(good);
	sha256_of(good, strlen(good), in.sha256);
	assert_int_equal(late_check(f.object, file, &in), 0);
	assert_true(object_known_sha256(f.object, found));
	assert_memory_equal(found, f.sha256, SHA256_SIZE);
	file_abort(file, false);
	late_end(&f);
}

/* Once a sha256 is known, MANIFEST may have it: no other bytes will do, whatever their sha1. */
static void test_the_first_hash_counts(void **state)
{
	struct fixture f = late_of(*state);
	struct late *l = f.object->late;
	struct ingested in = { .size = strlen(good) };
	struct file *file;

	sha256_of(evil, strlen(evil), l->sha256);
	atomic_store(&l->known, true);
	assert_int_equal(file_memory(100, &file), 0);
	assert_int_equal(file_write(file, good, strlen(good), 0), 0);
	sha256_of(good, strlen(good), in.sha256);
	assert_int_equal(late_check(f.object, file, &in), -EBADMSG);
	file_abort(file, false);
	late_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_which_links_are_late),
		cmocka_unit_test_setup_teardown(test_from_the_cache, cached_setup, cached_teardown),
		cmocka_unit_test_setup_teardown(test_a_note_of_others, cached_setup,
						cached_teardown),
		cmocka_unit_test_setup_teardown(test_two_passes, cached_setup, cached_teardown),
		cmocka_unit_test_setup_teardown(test_the_first_hash_counts, cached_setup,
						cached_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
