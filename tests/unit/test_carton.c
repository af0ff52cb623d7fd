/* SPDX-License-Identifier: Apache-2.0 */
/* An open carton as a whole: what carton.toml says, what was read of it, where its bytes are. */
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "carton.h"
#include "base/digest.h"
#include "zip_help.h"

#define TOML                                                                        \
	"spec_version = 1\nmodel_name = 'm'\nrequired_platforms = ['p', 'q']\n"     \
	"[[input]]\nname = 'x'\ndtype = 'float32'\nshape = ['batch', 3, 'a,\"b']\n" \
	"[[output]]\nname = 'y'\ndtype = 'int8'\nshape = '*'\n"                     \
	"[[self_test]]\nname = 't'\n"                                               \
	"[runner]\nrunner_name = 'r'\n[runner.opts]\n'a b' = [1, { c = true }]\n"

/* An unpacked carton with model/good, and with model/bad, whose hash is wrong. */
struct env {
	char dir[64];
	FILE *manifest;
	struct carton *c;
};

static void write_file(struct env *e, const char *name, const char *text, bool good)
{
	uint8_t hash[SHA256_SIZE];
	char path[128], hex[2 * SHA256_SIZE + 1];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", e->dir, name);
	f = must(fopen(path, "w"));
	fputs(text, f);
	fclose(f);
	assert_int_equal(sha256_mem(text, strlen(text), hash), 0);
	hash[0] ^= !good;
	hex_encode(hash, sizeof(hash), hex);
	fprintf(e->manifest, "%s=%s\n", name, hex);
}

static struct env *env_new(const char *views)
{
	struct carton_options options = { .offline = true, .views = views };
	struct env *e = must(calloc(1, sizeof(*e)));
	char path[128];

	snprintf(e->dir, sizeof(e->dir), "/tmp/carton-test-XXXXXX");
	must(mkdtemp(e->dir));
	snprintf(path, sizeof(path), "%s/model", e->dir);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/MANIFEST", e->dir);
	e->manifest = must(fopen(path, "w"));
	write_file(e, "carton.toml", TOML, true);
	write_file(e, "model/bad", "bad", false);
	write_file(e, "model/good", "good bytes", true);
	if (views) {
		snprintf(path, sizeof(path), "%s/tensor_data", e->dir);
		assert_int_equal(mkdir(path, 0755), 0);
		write_file(e, "tensor_data/index.toml",
			   "[[tensor]]\nname = 'x'\ndtype = 'string'\nshape = [1]\n"
			   "file = 'x.toml'\ninner = []\n",
			   true);
		write_file(e, "tensor_data/x.toml", "data = ['a']\n", true);
	}
	fclose(e->manifest);
	options.cache_dir = e->dir;
	assert_int_equal(carton_open(e->dir, &options, &e->c), 0);
	return e;
}

static int setup(void **state)
{
	*state = env_new(NULL);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static int teardown(void **state)
{
	struct env *e = *state;

	carton_close(e->c);
	nftw(e->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(e);
	return 0;
}

static struct carton_node *find(const struct env *e, const char *path)
{
	struct carton_node *node;

	assert_int_equal(carton_resolve(e->c, path, &node), 0);
	return node;
}

/* ---- carton.toml ---- */

static void add_fact(void *ctx, const struct carton_fact *f)
{
	char *all = ctx;

	sprintf(all + strlen(all), "%d|%s|%s|%s|%s\n", f->kind, f->name ? f->name : "",
		f->text ? f->text : "", f->dtype ? f->dtype : "", f->shape ? f->shape : "");
}

static void test_facts(void **state)
{
	struct env *e = *state;
	char all[2000] = "", *json;

	assert_int_equal(carton_facts(e->c, add_fact, all), 0);
	assert_string_equal(all, "0|model_name|m||\n"
				 "0|platform|p||\n"
				 "0|platform|q||\n"
				 "0|runner_name|r||\n"
				 "1||\"a b\" = [1, { c = true }]||\n"
				 "2|x||float32|[batch, 3, a,\\\"b]\n"
				 "3|y||int8|*\n"
				 "4|t|||\n");
	assert_int_equal(carton_info(e->c, &json), 0);
	assert_non_null(strstr(json, "\"model_name\":\"m\""));
	free(json);
}

/* ---- counters ---- */

static void test_counters(void **state)
{
	struct env *e = *state;
	struct carton_counters k;
	char text[64];

	carton_counters(e->c, &k);
	/* MANIFEST and carton.toml were read to open it */
	assert_int_equal(k.files, 4);
	assert_int_equal(k.verified_files, 2);
	assert_int_equal(k.corrupt_files + k.waiting + k.remote_bytes + k.cached_bytes, 0);
	assert_int_equal(carton_pin_wait(e->c, find(e, "model/good")), 0);
	carton_unpin(find(e, "model/good"));
	assert_int_equal(carton_pin_wait(e->c, find(e, "model/bad")), -EBADMSG);
	carton_counters(e->c, &k);
	assert_int_equal(k.verified_files, 3);
	assert_int_equal(k.corrupt_files, 1);
	assert_int_equal(k.corrupt_bytes, strlen("bad"));
	assert_int_equal(k.bytes, k.verified_bytes + k.corrupt_bytes);
	assert_int_equal(k.hashed_bytes, strlen(TOML) + strlen("good bytes") + strlen("bad"));
	assert_int_equal(k.fetched_bytes + k.cache_hits, 0);
	assert_true(carton_property(find(e, "model/bad"), "user.carton.state", text, sizeof(text)) >
		    0);
	assert_string_equal(text, "corrupt");
}

static void on_waiting(void *ctx, const struct carton_waiting *w)
{
	(void)w;
	++*(int *)ctx;
}

static void test_nothing_waits(void **state)
{
	struct env *e = *state;
	struct carton_places places;
	int n = 0;

	carton_waiting(e->c, on_waiting, &n);
	assert_int_equal(n, 0);
	carton_places(e->c, &places);
	assert_int_equal(places.cached + places.remote, 0);
	assert_true(places.local > strlen(TOML));
	assert_false(carton_is_remote(e->c));
}

/* ---- a file outside of the carton ---- */

static int compare(const struct env *e, const char *name, const char *text, size_t n)
{
	char path[] = "/tmp/carton-test-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), n);
	r = carton_compare(find(e, name), fd);
	close(fd);
	unlink(path);
	return r;
}

/* What views have in memory is counted until the carton is closed. */
static void test_views(void **state)
{
	struct env *e = env_new("views");
	void *ends = e;
	struct carton_node *n;

	(void)state;
	assert_int_equal(carton_resolve(e->c, "views/tensor_data/x.bin", &n), 0);
	assert_int_equal(carton_pin_wait(e->c, n), 0);
	carton_unpin(n);
	teardown(&ends);
}

/* The same in each open of the same carton, but for what is generated. */
static void test_numbers(void **state)
{
	struct env *e = env_new("views"), *other = env_new("views"), *plain = env_new(NULL);
	void *ends[] = { e, other, plain };
	char layout[65], layout2[65], layout3[65];
	struct carton_node *views, *n;
	size_t count = 0;

	(void)state;
	for (n = carton_root(e->c); n; n = carton_next(e->c, n)) {
		uint64_t number = carton_number(e->c, n);
		struct carton_node *twin = carton_by_number(other->c, number);
		char path[4096], path2[4096];

		assert_ptr_equal(carton_by_number(e->c, number), n);
		carton_path(n, path);
		carton_path(must(twin), path2);
		assert_string_equal(path, path2);
		count++;
	}
	/* "", carton.toml, MANIFEST, model, bad, good, tensor_data, index.toml, x.toml, views */
	assert_int_equal(count, 10);
	assert_int_equal(carton_number(e->c, carton_root(e->c)), 1);
	assert_null(carton_by_number(e->c, 0));
	assert_null(carton_by_number(e->c, count + 1000));
	assert_null(carton_by_number(e->c, UINT64_MAX));
	assert_int_equal(carton_resolve(e->c, "views/tensor_data/x.bin", &views), 0);
	assert_true(carton_number(e->c, views) & CARTON_GENERATED);
	assert_ptr_equal(carton_by_number(e->c, carton_number(e->c, views)), views);
	assert_null(carton_by_number(plain->c, carton_number(e->c, views)));
	assert_null(carton_by_number(e->c, (uint64_t)(uintptr_t)views));
	assert_null(carton_by_number(e->c, CARTON_GENERATED | (uint64_t)(uintptr_t)views));

	assert_int_equal(carton_layout(e->c, layout), 0);
	assert_int_equal(carton_layout(e->c, layout2), 0);
	assert_string_equal(layout, layout2);
	assert_int_equal(carton_layout(plain->c, layout3), 0);
	assert_string_not_equal(layout, layout3);
	assert_int_equal(strlen(layout), 64);
	for (size_t i = 0; i < 3; i++)
		teardown(&ends[i]);
}

static void test_compare(void **state)
{
	struct env *e = *state;
	char text[512], path[128];
	ssize_t n;
	int fd;

	assert_int_equal(compare(e, "model/good", "good bytes", 10), 0);
	assert_int_equal(compare(e, "model/good", "good byteS", 10), -EBADMSG);
	assert_int_equal(compare(e, "model/good", "good bytes ", 11), -EBADMSG);
	assert_int_equal(compare(e, "model/good", "", 0), -EBADMSG);
	/* by its hash: the carton's own bytes do not count */
	assert_int_equal(compare(e, "model/bad", "bad", 3), -EBADMSG);
	snprintf(path, sizeof(path), "%s/MANIFEST", e->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text));
	close(fd);
	assert_true(n > 0);
	assert_int_equal(compare(e, "MANIFEST", text, (size_t)n), 0);
	text[0] ^= 1;
	assert_int_equal(compare(e, "MANIFEST", text, (size_t)n), -EBADMSG);
	assert_int_equal(carton_compare(carton_root(e->c), STDIN_FILENO), -EINVAL);
}

/* ---- why a call has failed ---- */

struct told {
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	int result;
	char text[512]; /* carton_error() of the callback; "": it was not called yet */
};

#define TOLD                                                               \
	{                                                                  \
		PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, "" \
	}

static void tell(void *ctx, int result)
{
	struct told *t = ctx;

	pthread_mutex_lock(&t->lock);
	t->result = result;
	snprintf(t->text, sizeof(t->text), "%s", carton_error(result));
	pthread_cond_signal(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

static void await(struct told *t)
{
	pthread_mutex_lock(&t->lock);
	while (!t->text[0])
		pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

/* Why the first pin of a damaged file fails, as its callback sees it. */
static void pin_damaged(const struct env *e, char ret[512])
{
	struct told t = TOLD;
	struct carton_request *q;

	assert_int_equal(carton_pin(e->c, find(e, "model/bad"), tell, &t, &q), -EINPROGRESS);
	await(&t);
	carton_request_free(q);
	memcpy(ret, t.text, sizeof(t.text));
}

static void *pin_again(void *ctx)
{
	const struct env *e = ctx;

	assert_int_equal(carton_pin_wait(e->c, find(e, "model/bad")), -EBADMSG);
	return must(strdup(carton_error(-EBADMSG)));
}

static void test_error(void **state)
{
	const struct carton_options options = { .offline = true };
	struct env *e = *state;
	struct carton_node *node;
	struct carton *none;
	char first[512], *again;
	pthread_t thread;

	pin_damaged(e, first);
	assert_memory_equal(first, "model/bad: sha256 mismatch", 26);
	/* this thread had no failure; an older text goes with the next call */
	assert_int_equal(carton_open("/none\n.carton", &options, &none), -ENOENT);
	assert_non_null(strstr(carton_error(-ENOENT), "/none\\x0a.carton"));
	assert_int_equal(carton_lookup(carton_root(e->c), "none", &node), -ENOENT);
	assert_string_equal(carton_error(-ENOENT), strerror(ENOENT));
	/* not logged a second time, and told all the same */
	assert_int_equal(pthread_create(&thread, NULL, pin_again, e), 0);
	assert_int_equal(pthread_join(thread, (void **)&again), 0);
	assert_string_equal(again, first);
	free(again);
	assert_string_equal(carton_error(-ENOENT), strerror(ENOENT));
	again = pin_again(e);
	assert_string_equal(again, first);
	free(again);
}

/* ---- opened later ---- */

static int never_confined(void *ctx, const struct carton_paths *paths)
{
	(void)ctx;
	(void)paths;
	fail();
	return 0;
}

static void test_later(void **state)
{
	const struct carton_options options = { .offline = true };
	const struct env *e = *state;
	struct told good = TOLD, bad = TOLD;
	struct carton *c, *none, *untouched = NULL;
	struct carton_node *node;

	assert_int_equal(carton_open_later(e->dir, &options, tell, &good, &c), -EINPROGRESS);
	assert_int_equal(carton_open_later("/none.carton", &options, tell, &bad, &none),
			 -EINPROGRESS);
	await(&good);
	assert_int_equal(good.result, 0);
	assert_int_equal(carton_resolve(c, "model/good", &node), 0);
	assert_int_equal(carton_pin_wait(c, node), 0);
	carton_unpin(node);
	carton_close(c);
	await(&bad);
	assert_int_equal(bad.result, -ENOENT);
	assert_non_null(strstr(bad.text, "/none.carton: "));
	carton_close(none);
	assert_int_equal(carton_open_later(e->dir,
					   &(struct carton_options){ .confine = never_confined },
					   tell, &good, &untouched),
			 -EINVAL);
	assert_null(untouched);
}

/* A server takes connections and never answers: a stop or a close ends the open all the same. */
static void test_later_is_stopped(void **state)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct env *e = *state;
	const struct carton_options options = { .cache_dir = e->dir };
	int server = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t n = sizeof(at);

	assert_int_equal(bind(server, (struct sockaddr *)&at, n), 0);
	assert_int_equal(listen(server, 8), 0);
	assert_int_equal(getsockname(server, (struct sockaddr *)&at, &n), 0);
	for (int stop = 0; stop < 2; stop++) {
		struct told t = TOLD;
		struct carton *c;
		char url[64];
		int connection;

		snprintf(url, sizeof(url), "http://127.0.0.1:%u/m.carton", ntohs(at.sin_port));
		assert_int_equal(carton_open_later(url, &options, tell, &t, &c), -EINPROGRESS);
		/* so it is waiting for the answer, or soon will */
		connection = accept(server, NULL, NULL);
		assert_true(connection >= 0);
		if (stop)
			carton_stop(c);
		else
			carton_close(c);
		await(&t);
		assert_int_equal(t.result, -ENOTCONN);
		assert_string_equal(t.text, strerror(ENOTCONN));
		if (stop)
			carton_close(c);
		close(connection);
	}
	close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_facts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counters, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_waits, setup, teardown),
		cmocka_unit_test(test_views),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test_setup_teardown(test_compare, setup, teardown),
		cmocka_unit_test_setup_teardown(test_error, setup, teardown),
		cmocka_unit_test_setup_teardown(test_later, setup, teardown),
		cmocka_unit_test_setup_teardown(test_later_is_stopped, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
