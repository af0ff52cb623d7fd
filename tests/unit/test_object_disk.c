/* SPDX-License-Identifier: Apache-2.0 */
/* Objects and what is beneath them: budgets of memory and files, full disks, files that change. */
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "archive/dir.h"
#include "content/derived.h"
#include "content/internal.h"
#include "cached_help.h"
#include "mount_help.h"

/* ---- budgets ---- */

#define PINNED 64

static struct budget budget;

/* A box whose first PINNED objects fill their share of the budget to its last byte. */
static struct box *full_box(size_t more)
{
	struct box *b = box_new();

	for (size_t i = 0; i < PINNED; i++) {
		char *data = must(calloc(1, MAX_MEMORY_OBJECT));

		data[0] = (char)i;
		box_add(b, data, MAX_MEMORY_OBJECT, METHOD_ZSTD);
	}
	for (size_t i = 0; i < more; i++)
		box_add_made(b, 100, i + 1, METHOD_STORED);
	budget_init(&budget, PINNED * MAX_MEMORY_OBJECT * KEPT_SHARE);
	b->budget = &budget;
	box_start(b, NULL, true);
	for (size_t i = 0; i < PINNED; i++)
		assert_int_equal(get(b->items[i].object), 0);
	return b;
}

static void test_memory_budget(void **state)
{
	struct box *b = full_box(2);
	struct box_item *one = &b->items[PINNED], *two = one + 1;
	size_t fds = count_fds();

	(void)state;
	/* all of it pinned: the next one, however small, goes to a file */
	assert_int_equal(get(one->object), 0);
	assert_int_equal(count_fds(), fds + 1);
	assert_true(reads_right(one, 100, 0, false));
	/* with the oldest idle, it goes in its place */
	object_put(b->items[7].object);
	assert_int_equal(object_get(b->items[7].object, NULL), 0);
	object_put(b->items[7].object);
	assert_int_equal(get(two->object), 0);
	assert_int_equal(count_fds(), fds + 1);
	assert_true(reads_right(two, 100, 0, true));
	assert_int_equal(object_get(b->items[7].object, NULL), -EAGAIN);
	assert_int_equal(object_state(b->items[7].object), OBJECT_VERIFIED);
	/* what was dropped comes back, verified again, now to a file */
	assert_int_equal(get(b->items[7].object), 0);
	assert_true(reads_right(&b->items[7], MAX_MEMORY_OBJECT, 0, false));
	assert_int_equal(count_fds(), fds + 2);
	for (size_t i = 0; i < b->n; i++)
		object_put(b->items[i].object);
	box_free(b);
}

/* Idle copies go by their last use, not by their first, when they take more than their share. */
static void test_lru(void **state)
{
	const size_t first = PINNED - PINNED * KEPT_SHARE / IDLE_SHARE;
	struct box *b = full_box(1);

	(void)state;
	for (size_t i = 0; i < PINNED; i++)
		object_put(b->items[i].object);
	for (size_t i = first; i < PINNED; i++) {
		if (i == first + 1)
			continue;
		assert_int_equal(object_get(b->items[i].object, NULL), 0);
		object_put(b->items[i].object);
	}
	/* one byte over the share would do */
	assert_int_equal(get(b->items[PINNED].object), 0);
	object_put(b->items[PINNED].object);
	for (size_t i = 0; i < PINNED; i++) {
		int r = object_get(b->items[i].object, NULL);

		assert_int_equal(r, i < first || i == first + 1 ? -EAGAIN : 0);
		if (r == 0)
			object_put(b->items[i].object);
	}
	box_free(b);
}

static void test_file_budget(void **state)
{
	struct box *b = full_box(MAX_OBJECT_FILES + 2);
	size_t fds = count_fds();

	(void)state;
	/* pinned ones may be more */
	for (size_t i = 0; i < MAX_OBJECT_FILES + 2; i++)
		assert_int_equal(get(b->items[PINNED + i].object), 0);
	assert_int_equal(count_fds(), fds + MAX_OBJECT_FILES + 2);
	for (size_t i = 0; i < MAX_OBJECT_FILES + 2; i++)
		object_put(b->items[PINNED + i].object);
	assert_int_equal(count_fds(), fds + MAX_OBJECT_FILES);
	assert_int_equal(object_get(b->items[PINNED].object, NULL), -EAGAIN);
	assert_int_equal(object_get(b->items[PINNED + 1].object, NULL), -EAGAIN);
	assert_int_equal(object_get(b->items[PINNED + 2].object, NULL), 0);
	object_put(b->items[PINNED + 2].object);
	for (size_t i = 0; i < PINNED; i++)
		object_put(b->items[i].object);
	box_free(b);
}

/* A file that notices whether anybody else could use the store while it is closed. */
struct heavy {
	struct source source;
	struct object_store *store;
	unsigned closed, locked;
};

static void close_heavy(struct source *source)
{
	struct heavy *h = container_of(source, struct heavy, source);

	h->closed++;
	if (pthread_mutex_trylock(&h->store->lock) == 0)
		pthread_mutex_unlock(&h->store->lock);
	else
		h->locked++;
}

static int derive_heavy(void *ctx, struct fill *m)
{
	static const struct source_ops ops = { .free = close_heavy };
	struct heavy *h = ctx;

	h->source = (struct source){ .ops = &ops, .refs = 1, .fd = -1 };
	h->store = m->object->store;
	m->bytes = (struct bytes){ .kind = BYTES_FILE, .source = &h->source };
	return 0;
}

/* To close a large file takes long: whichever way it goes, nobody waits for that. */
static void test_closed_without_lock(void **state)
{
	enum { N = MAX_OBJECT_FILES + 3 };
	struct heavy *heavy = must(calloc(N, sizeof(*heavy)));
	struct object *objects[N];
	struct box *b = box_new();

	(void)state;
	box_start(b, NULL, true);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(object_add_derived(b->store, "heavy", 0, derive_heavy, &heavy[i],
						    &objects[i]),
				 0);
		assert_int_equal(get(objects[i]), 0);
		if (i == 0)
			object_put(objects[i]);
	}
	/* the one idle copy went when there were too many, two more go when they are let go */
	assert_int_equal(heavy[0].closed, 1);
	for (size_t i = 1; i < N; i++)
		object_put(objects[i]);
	assert_int_equal(heavy[1].closed + heavy[2].closed, 2);
	assert_true(keep_drop_idle(b->store));
	assert_false(keep_drop_idle(b->store));
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(heavy[i].closed, 1);
		assert_int_equal(heavy[i].locked, 0);
	}
	box_free(b);
	free(heavy);
}

/* ---- the carton's file changes ---- */

static void test_overwritten(void **state)
{
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 5 * TAG_BLOCK + 99, 1, METHOD_STORED);
	uint64_t at = item->entry.header + 2 * TAG_BLOCK + 50;
	struct log_seen *seen = log_watch();
	char out[100];

	(void)state;
	box_start(b, NULL, true);
	assert_int_equal(get(item->object), 0);
	assert_int_equal(pwrite_full(b->fd, "changed!", 8, at), 0);
	assert_int_equal(object_read(item->object, out, 100, 2 * TAG_BLOCK, false), -EBADMSG);
	assert_int_equal(object_read(item->object, out, 1, 3 * TAG_BLOCK - 1, false), -EBADMSG);
	assert_true(object_read(item->object, out, 1, 3 * TAG_BLOCK - 1, true) < 0);
	assert_true(reads_right(item, 2 * TAG_BLOCK, 0, false));
	assert_true(reads_right(item, 2 * TAG_BLOCK + 99, 3 * TAG_BLOCK, false));
	assert_int_equal(seen->n, 1);
	assert_says(seen, "changed on disk");
	/* the old bytes again are the right bytes again */
	assert_int_equal(pwrite_full(b->fd, item->data + 2 * TAG_BLOCK + 50, 8, at), 0);
	assert_true(reads_right(item, item->entry.size, 0, false));
	object_put(item->object);
	carton_log_set(NULL, NULL);
	box_free(b);
}

static void test_cut_off(void **state)
{
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 5 * TAG_BLOCK, 1, METHOD_STORED),
			*later = box_add_made(b, 5 * TAG_BLOCK, 2, METHOD_STORED);
	char out[100];

	(void)state;
	box_start(b, NULL, true);
	assert_int_equal(get(item->object), 0);
	assert_int_equal(ftruncate(b->fd, (off_t)(item->entry.header + 3 * TAG_BLOCK)), 0);
	assert_true(reads_right(item, 3 * TAG_BLOCK, 0, false));
	assert_int_equal(object_read(item->object, out, 100, 3 * TAG_BLOCK, false), -EBADMSG);
	assert_int_equal(object_read(item->object, out, 100, 3 * TAG_BLOCK - 50, false), -EBADMSG);
	object_put(item->object);
	/* one that was not verified before that */
	assert_int_equal(get(later->object), -EBADMSG);
	assert_int_equal(object_state(later->object), OBJECT_CORRUPT);
	box_free(b);
}

/* Overwritten again and again while it is hashed and read: never other bytes. */
static void *scribble(void *arg)
{
	struct box *b = arg;
	char other[64];

	memset(other, 'x', sizeof(other));
	for (unsigned i = 0; i < 300; i++) {
		uint64_t at = 1 + i * 7919 % (8 * TAG_BLOCK - 64);

		pwrite_full(b->fd, other, sizeof(other), at);
		pwrite_full(b->fd, b->blob.data + at, sizeof(other), at);
	}
	return NULL;
}

static void test_scribbled(void **state)
{
	unsigned right = 0, refused = 0;

	(void)state;
	for (unsigned round = 0; round < 5; round++) {
		struct box *b = box_new();
		struct box_item *item = box_add_made(b, 8 * TAG_BLOCK, round, METHOD_STORED);
		char *out = must(malloc(8 * TAG_BLOCK));
		pthread_t thread;

		box_start(b, NULL, true);
		assert_int_equal(pthread_create(&thread, NULL, scribble, b), 0);
		if (get(item->object) == 0) {
			for (unsigned i = 0; i < 100; i++) {
				int r = object_read(item->object, out, 8 * TAG_BLOCK, 0, i % 2);

				assert_true(r == 0 || r == -EBADMSG || (i % 2 && r == -EAGAIN));
				if (r == 0)
					assert_memory_equal(out, item->data, 8 * TAG_BLOCK);
				right += r == 0;
				refused += r != 0;
			}
			object_put(item->object);
		} else {
			refused++;
		}
		pthread_join(thread, NULL);
		free(out);
		box_free(b);
	}
	assert_true(right + refused >= 5);
}

/* ---- an unpacked directory ---- */

/* Files too large for memory are read in place, each by its own descriptor: not all stay open. */
static void test_directory(void **state)
{
	const unsigned n = MAX_OBJECT_FILES + 20;
	char dir[] = "/tmp/object-test-XXXXXX", name[32], command[100], *data;
	struct container *c;
	struct object_options options = { .verify = true };
	struct object_store *store;
	struct object *o;
	uint8_t sha256[SHA256_SIZE];
	size_t fds;
	int root;

	(void)state;
	assert_non_null(mkdtemp(dir));
	root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	data = make_bytes(MAX_SMALL_STORED + 1, 1);
	for (unsigned i = 0; i < n; i++) {
		int fd;

		snprintf(name, sizeof(name), "%u", i);
		fd = openat(root, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		put_le32(data, i);
		assert_int_equal(pwrite_full(fd, data, MAX_SMALL_STORED + 1, 0), 0);
		close(fd);
	}
	assert_int_equal(dir_open(root, NULL, NULL, &c), 0);
	assert_int_equal(workers_new(&options.workers), 0);
	assert_int_equal(events_new(options.workers, &options.events), 0);
	options.container = c;
	assert_int_equal(object_store_new(&options, &store), 0);
	fds = count_fds();
	for (unsigned i = 0; i < n; i++) {
		char out[4];

		snprintf(name, sizeof(name), "%u", i);
		put_le32(data, i);
		sha256_of(data, MAX_SMALL_STORED + 1, sha256);
		assert_int_equal(object_add(store, sha256, container_find(c, name), &o), 0);
		assert_int_equal(get(o), 0);
		assert_int_equal(object_read(o, out, 4, 0, false), 0);
		assert_memory_equal(out, data, 4);
		object_put(o);
	}
	assert_true(count_fds() <= fds + MAX_OBJECT_FILES);
	object_store_stop(store);
	workers_free(options.workers);
	events_free(options.events);
	object_store_free(store);
	container_close(c);
	free(data);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
}

/* ---- the cache ---- */

static void test_cached(void **state)
{
	struct cached *e = *state;

	for (int round = 0; round < 3; round++) {
		struct box *b = box_new();
		struct box_item *item = box_add_made(b, 5 * MIB, 1, METHOD_ZSTD);
		struct log_seen *seen = log_watch();

		box_start(b, e->cache, true);
		assert_int_equal(get(item->object), 0);
		/*
		 * made in the first round, found in the second, damaged and made anew in the third
		 */
		assert_int_equal(box_located(b), round != 1);
		assert_int_equal(seen->n > 0, round == 2);
		assert_true(reads_right(item, 5 * MIB, 0, false));
		if (round == 1)
			damage(e, item, 3 * MIB);
		object_put(item->object);
		carton_log_set(NULL, NULL);
		box_free(b);
	}
}

/* Those who have it open get an error; it leaves the cache at once, and the next one a good one. */
static void test_cached_and_damaged_while_open(void **state)
{
	struct cached *e = *state;
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 5 * MIB, 1, METHOD_ZSTD);
	char path[300], byte;

	box_start(b, e->cache, true);
	assert_int_equal(get(item->object), 0);
	assert_int_equal(get(item->object), 0);
	damage(e, item, 3 * MIB);
	assert_int_equal(object_read(item->object, &byte, 1, 3 * MIB, false), -EBADMSG);
	assert_int_equal(cache_path(e->cache, item->sha256, path, sizeof(path)), -ENOENT);
	object_put(item->object);
	assert_int_equal(object_read(item->object, &byte, 1, 3 * MIB, false), -EBADMSG);
	object_put(item->object);
	assert_int_equal(object_state(item->object), OBJECT_UNVERIFIED);
	assert_int_equal(get(item->object), 0);
	assert_int_equal(box_located(b), 2);
	assert_true(reads_right(item, 5 * MIB, 0, false));
	assert_int_equal(cache_path(e->cache, item->sha256, path, sizeof(path)), 0);
	object_put(item->object);
	box_free(b);
}

/* What is corrupt never gets into the cache. */
static void test_corrupt_not_cached(void **state)
{
	struct cached *e = *state;
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 5 * MIB, 1, METHOD_ZSTD);
	char path[300];

	item->sha256[0] ^= 1;
	box_start(b, e->cache, true);
	assert_int_equal(get(item->object), -EBADMSG);
	assert_int_equal(cache_path(e->cache, item->sha256, path, sizeof(path)), -ENOENT);
	box_free(b);
}

/* Puts a directory with a file in it where the cache would keep the item, or its bucket. */
static void block_cache(struct cached *e, const struct box_item *item, bool bucket)
{
	char hex[2 * SHA256_SIZE + 1], path[300];

	hex_encode(item->sha256, SHA256_SIZE, hex);
	snprintf(path, sizeof(path), "%s/v1/objects/%.2s", e->dir, hex);
	if (bucket) {
		assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
		return;
	}
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/v1/objects/%.2s/%s", e->dir, hex, hex);
	assert_int_equal(mkdir(path, 0700), 0);
	strcat(path, "/x");
	assert_int_equal(mkdir(path, 0700), 0);
}

/* Where the cache cannot take an object, it is read all the same. */
static void test_blocked_cache(void **state)
{
	struct cached *e = *state;

	for (int bucket = 0; bucket < 2; bucket++) {
		struct box *b = box_new();
		struct box_item *item = box_add_made(b, 5 * MIB, 1 + (uint64_t)bucket, METHOD_ZSTD);

		block_cache(e, item, bucket);
		box_start(b, e->cache, true);
		assert_int_equal(get(item->object), 0);
		assert_true(reads_right(item, 5 * MIB, 0, false));
		object_put(item->object);
		box_free(b);
	}
}

/* The same when it shows only once all bytes are there: they are verified, and not thrown away. */
static void test_blocked_while_filled(void **state)
{
	struct cached *e = *state;
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 5 * MIB, 1, METHOD_ZSTD);
	char hex[2 * SHA256_SIZE + 1], path[300];
	struct waiter w;

	box_start(b, e->cache, true);
	box_gate(b, true);
	waiter_init(&w);
	assert_int_equal(object_get(item->object, &w.wait), -EINPROGRESS);
	box_wait_inside(b, 1);
	hex_encode(item->sha256, SHA256_SIZE, hex);
	snprintf(path, sizeof(path), "%s/v1/objects/%.2s/%s", e->dir, hex, hex);
	assert_int_equal(mkdir(path, 0700), 0);
	box_gate(b, false);
	assert_int_equal(waiter_wait(&w), 0);
	assert_true(reads_right(item, 5 * MIB, 0, false));
	object_put(item->object);
	box_free(b);
}

/* A file of another size than the object's is dropped as it is: reading it could take for ever. */
static void test_wrong_size(void **state)
{
	struct cached *e = *state;
	struct box *b = box_new();
	struct box_item *item = box_add_made(b, 5 * MIB, 1, METHOD_ZSTD);
	char path[300];

	box_start(b, e->cache, true);
	assert_int_equal(get(item->object), 0);
	object_put(item->object);
	assert_int_equal(cache_path(e->cache, item->sha256, path, sizeof(path)), 0);
	box_free(b);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, 1LL << 40), 0);
	b = box_new();
	item = box_add_made(b, 5 * MIB, 1, METHOD_ZSTD);
	box_start(b, e->cache, true);
	assert_int_equal(get(item->object), 0);
	assert_int_equal(object_store_ingested(b->store), 5 * MIB);
	assert_true(reads_right(item, 5 * MIB, 0, false));
	object_put(item->object);
	box_free(b);
}

/*
 * Descriptors are used up: those of idle copies are closed; without any, the error says what it is.
 */
static void test_descriptors(void **state)
{
	enum { KEPT = 8 };
	struct cached *e = *state;
	struct box *b = box_new();
	struct rlimit limit, few;
	int fds[64];
	size_t n = 0;

	for (uint64_t i = 0; i <= KEPT; i++)
		box_add_made(b, 5 * MIB, i, METHOD_ZSTD);
	box_start(b, e->cache, true);
	for (size_t i = 0; i < KEPT; i++)
		assert_int_equal(get(b->items[i].object), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = ARRAY_SIZE(fds);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while ((fds[n] = dup(0)) >= 0)
		n++;
	assert_int_equal(get(b->items[KEPT].object), -EMFILE);
	for (size_t i = 0; i < KEPT; i++)
		object_put(b->items[i].object);
	assert_int_equal(get(b->items[KEPT].object), 0);
	assert_true(reads_right(&b->items[KEPT], 5 * MIB, 0, false));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	object_put(b->items[KEPT].object);
	while (n > 0)
		close(fds[--n]);
	box_free(b);
}

/*
 * No room for one large object: that attempt fails, others work, and with room the next one works.
 * A small tmpfs where we may mount one, else a limit on the size of files. In a child.
 */
static int full_disk(const char *dir)
{
	bool mounted = own_mounts(0) && mount("tmpfs", dir, "tmpfs", 0, "size=8m,mode=700") == 0;
	struct rlimit limit = { 6 * MIB, RLIM_INFINITY }, none;
	struct box *b = box_new();
	struct box_item *large = box_add_made(b, 20 * MIB, 1, METHOD_ZSTD),
			*small = box_add_made(b, 1000, 2, METHOD_ZSTD);
	struct cache *cache;
	int r, status = 0;

	signal(SIGXFSZ, SIG_IGN);
	setenv("TMPDIR", dir, 1);
	if (cache_open_keyed(dir, 0, &cache) < 0)
		return 10;
	box_start(b, cache, true);
	getrlimit(RLIMIT_FSIZE, &none);
	limit.rlim_max = none.rlim_max;
	if (!mounted)
		setrlimit(RLIMIT_FSIZE, &limit);
	for (int i = 0; i < 3 && !status; i++) {
		r = get(large->object);
		if (r != (mounted ? -ENOSPC : -EFBIG))
			status = 11;
		if (object_state(large->object) != OBJECT_UNVERIFIED)
			status = 12;
		if (get(small->object) != 0 || !reads_right(small, 1000, 0, false))
			status = 13;
		else
			object_put(small->object);
	}
	if (mounted && mount("none", dir, NULL, MS_REMOUNT, "size=100m") < 0)
		status = 14;
	if (!mounted)
		setrlimit(RLIMIT_FSIZE, &none);
	if (!status && (get(large->object) != 0 || !reads_right(large, 20 * MIB, 0, false)))
		status = 15;
	if (!status)
		object_put(large->object);
	box_free(b);
	cache_close(cache);
	return status;
}

static void test_full_disk(void **state)
{
	struct cached *e = *state;
	char dir[80];
	int status;
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s/full", e->dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(full_disk(dir));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_budget),
		cmocka_unit_test(test_lru),
		cmocka_unit_test(test_file_budget),
		cmocka_unit_test(test_closed_without_lock),
		cmocka_unit_test(test_overwritten),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_scribbled),
		cmocka_unit_test(test_directory),
		cmocka_unit_test_setup_teardown(test_cached, cached_setup, cached_teardown),
		cmocka_unit_test_setup_teardown(test_cached_and_damaged_while_open, cached_setup,
						cached_teardown),
		cmocka_unit_test_setup_teardown(test_corrupt_not_cached, cached_setup,
						cached_teardown),
		cmocka_unit_test_setup_teardown(test_blocked_cache, cached_setup, cached_teardown),
		cmocka_unit_test_setup_teardown(test_blocked_while_filled, cached_setup,
						cached_teardown),
		cmocka_unit_test_setup_teardown(test_wrong_size, cached_setup, cached_teardown),
		cmocka_unit_test_setup_teardown(test_descriptors, cached_setup, cached_teardown),
		cmocka_unit_test_setup_teardown(test_full_disk, cached_setup, cached_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
