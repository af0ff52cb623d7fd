/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any file in place of a seal, and in place of what stands beside a partial: a seal gives the tags
 * that were put, or nothing, and a damaged one is gone; a partial has what its sidecar says, and no
 * more than its file.
 *
 * The input: a seal's file: changes of a good one, each 1, offset (2 bytes), size, bytes; or 2 and
 * its size (2 bytes); or 3, and all that follows is the file. Or 4, the size of a partial (1 byte),
 * and its sidecar.
 */
#include <fcntl.h>

#include "base/hasher.h"
#include "cache/internal.h"
#include "sample.h"

#define SIZE (MIN_SEALED + 5) /* of the object */
#define N_TAGS ((SIZE + TAG_BLOCK - 1) / TAG_BLOCK)
#define MAX_SEAL 4096

static struct cache *cache;
static const uint8_t key[SHA256_SIZE] = { 1, 2, 3 }, other[SHA256_SIZE] = { 4, 5, 6 };
static const uint8_t source_key[KEY_SIZE] = { 1 };
static uint8_t name[SHA256_SIZE]; /* of the seal's file */
static char hex[HEX_SIZE], partial[HEX_SIZE], sidecar[SIDECAR_NAME_SIZE];
static uint8_t tags[N_TAGS][TAG_SIZE], seal[MAX_SEAL];
static size_t n_seal;

static void put(int dir, const char *name, const void *data, size_t n)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && pwrite_full(fd, data, n, 0) == 0);
	close(fd);
}

static bool is_there(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static size_t change(uint8_t *all, const uint8_t *data, size_t n)
{
	size_t size = n_seal;

	if (n > 0 && data[0] == 3) {
		size = MIN(n - 1, (size_t)MAX_SEAL);
		memcpy(all, data + 1, size);
		return size;
	}
	memcpy(all, seal, n_seal);
	fuzz_patch(all, n_seal, &data, &n);
	if (n >= 3 && data[0] == 2)
		size = (size_t)(data[1] | data[2] << 8) % MAX_SEAL;
	return size;
}

static void try_seal(const uint8_t *data, size_t n)
{
	static const uint64_t sizes[] = { SIZE, SIZE - 1, SIZE + TAG_BLOCK, MIN_SEALED,
					  MAX_SEALED };
	uint8_t all[MAX_SEAL] = { 0 }, (*got)[TAG_SIZE];
	size_t size = change(all, data, n);
	int r;
	/* the sha256 at the end is for who lacks the key */
	bool opens = size == n_seal && memcmp(all, seal, size - SHA256_SIZE) == 0;
	bool good = opens && memcmp(all, seal, size) == 0;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		put(cache->seals, hex, all, size);
		r = cache_seal_get(cache, key, sizes[i], &got);
		CHECK(r == (opens && i == 0 ? 0 : -ENOENT));
		CHECK(is_there(cache->seals, hex) == (r == 0));
		if (r == 0) {
			CHECK(memcmp(got, tags, sizeof(tags)) == 0);
			free(got);
		}
	}
	put(cache->seals, hex, all, size);
	/* who has no key may take a forged one for good, whose sha256 at the end is right */
	r = cache_seal_check(cache, name);
	CHECK(good ? r == 0 : r == 0 || r == -EBADMSG);
	CHECK(is_there(cache->seals, hex) == (r == 0));
	/* it is no other object's */
	CHECK(cache_seal_name(cache, other, (char *)all) == 0);
	put(cache->seals, (char *)all, seal, n_seal);
	CHECK(cache_seal_get(cache, other, SIZE, &got) == -ENOENT);
}

/* What fill.c says of its sidecars, once more. */
static bool is_good(const uint8_t *data, size_t n)
{
	return n > 20 && memcmp(data, "cfspart1", 8) == 0 && get_le32(data + 16) == n - 20 &&
	       n - 20 <= MAX_CACHE_VALIDATOR && !memchr(data + 20, '\0', n - 20);
}

static void try_partial(const uint8_t *data, size_t n)
{
	static const uint8_t bytes[256];
	char validator[MAX_CACHE_VALIDATOR + 1];
	uint64_t len, want = 0;
	struct cache_fill *f;
	struct stat st;

	put(cache->partial, partial, bytes, data[0]);
	put(cache->partial, sidecar, data + 1, n - 1);
	CHECK(cache_begin(cache, key, &f) == 0);
	CHECK(cache_fill_partial(f, &len, validator, sizeof(validator)) == 0);
	if (is_good(data + 1, n - 1))
		want = MIN(get_le64(data + 9), (uint64_t)data[0]);
	CHECK(len == want && strlen(validator) == (want ? n - 21 : 0));
	CHECK(memcmp(validator, want ? data + 21 : data, strlen(validator)) == 0);
	CHECK(fstat(cache_fill_fd(f), &st) == 0 && (uint64_t)st.st_size == want);
	cache_fill_abort(f, true);
	CHECK(is_there(cache->partial, partial) == (want > 0));
	CHECK(is_there(cache->partial, sidecar) == (want > 0));
	CHECK(cache_lock_is_held(cache, key) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct stat st;
	int fd;

	(void)argc;
	(void)argv;
	sample_mkdir();
	carton_log_set(sample_silent, NULL);
	CHECK(cache_open(sample_dir, 0, &cache) == 0);
	cache_use_key(cache, source_key);
	CHECK(cache_seal_name(cache, key, hex) == 0 && hex_decode(hex, sizeof(name), name));
	hex_encode(key, sizeof(key), partial);
	cache_sidecar_name(key, sidecar);
	for (size_t i = 0; i < sizeof(tags); i++)
		((uint8_t *)tags)[i] = (uint8_t)(i * 7);
	CHECK(cache_seal_put(cache, key, SIZE, tags) == 0);
	fd = openat(cache->seals, hex, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &st) == 0 && st.st_size <= MAX_SEAL);
	n_seal = (size_t)st.st_size;
	CHECK(pread_full(fd, seal, n_seal, 0) == 0);
	close(fd);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n >= 2 && data[0] == 4)
		try_partial(data + 1, n - 1);
	else
		try_seal(data, n);
	return 0;
}
