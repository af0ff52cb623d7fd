/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256: vectors of FIPS 180-4 and NIST, the states between its blocks, and several streams at
 * once, against EVP.
 */
#include <openssl/evp.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sha256_lanes.h"
#include "base/util.h"
#include "zip_help.h"

static void assert_hash(const void *data, size_t n, const char *want)
{
	uint8_t hash[SHA256_SIZE];
	char hex[2 * SHA256_SIZE + 1];

	assert_int_equal(sha256_mem(data, n, hash), 0);
	hex_encode(hash, SHA256_SIZE, hex);
	assert_string_equal(hex, want);
}

/* The examples of FIPS 180-4, and the first short messages of NIST's SHA256ShortMsg.rsp. */
static void test_vectors(void **state)
{
	static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	char *a = malloc(1000000);

	(void)state;
	assert_non_null(a);
	memset(a, 'a', 1000000);
	assert_hash("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	assert_hash("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_hash(two, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	assert_hash(a, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	assert_hash("\xd3", 1, "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1");
	free(a);
}

static void assert_hex(const char *message, const char *want)
{
	uint8_t data[256];
	size_t n = strlen(message) / 2;

	assert_true(n <= sizeof(data) && hex_decode(message, n, data));
	assert_hash(data, n, want);
}

/* Of SHA256ShortMsg.rsp and SHA256LongMsg.rsp. */
static void test_longer_vectors(void **state)
{
	(void)state;
	assert_hex("3ebfb06db8c38d5ba037f1363e118550aad94606e26835a01af05078533cc25f"
		   "2f39573c04b632f62f68c294ab31f2a3e2a1a0d8c2be51",
		   "6595a2ef537a69ba8583dfbf7f5bec0ab1f93ce4c8ee1916eff44a93af5749c4");
	assert_hex("2d52447d1244d2ebc28650e7b05654bad35b3a68eedc7f8515306b496d75f3e7"
		   "3385dd1b002625024b81a02f2fd6dffb6e6d561cb7d0bd7a",
		   "cfb88d6faf2de3a69d36195acec2e255e2af2b7d933997f348e09f6ce5758360");
	assert_hex("5a86b737eaea8ee976a0a24da63e7ed7eefad18a101c1211e2b3650c5187c2a8"
		   "a650547208251f6d4237e661c7bf4c77f335390394c37fa1a9f9be836ac28509",
		   "42e61e174fbb3897d6dd6cef3dd2802fe67b331953b06114a65c772859dfc1aa");
	assert_hex("451101250ec6f26652249d59dc974b7361d571a8101cdfd36aba3b5854d3ae08"
		   "6b5fdd4597721b66e3c0dc5d8c606d9657d0e323283a5217d1f53f2f284f57b8"
		   "5c8a61ac8924711f895c5ed90ef17745ed2d728abd22a5f7a13479a462d71b56"
		   "c19a74a40b655c58edfe0a188ad2cf46cbf30524f65d423c837dd1ff2bf462ac"
		   "4198007345bb44dbb7b1c861298cdf61982a833afc728fae1eda2f87aa2c9480"
		   "858bec",
		   "3c593aa539fdcdae516cdf2f15000f6634185c88f505b39775fb9ab137a10aa2");
}

/* The state at each block, and the hash when it is resumed there. */
static void test_states(void **state)
{
	uint8_t data[1000], want[SHA256_SIZE], found[SHA256_SIZE], at[SHA256_SIZE];
	struct sha256 *whole, *rest;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7919 >> 3);
	assert_int_equal(EVP_Digest(data, sizeof(data), want, NULL, EVP_sha256(), NULL), 1);
	assert_int_equal(sha256_new(&whole), 0);
	assert_int_equal(sha256_new(&rest), 0);
	for (size_t n = 0; n < sizeof(data); n += SHA256_BLOCK) {
		sha256_state(whole, at);
		sha256_resume(rest, at, n);
		assert_int_equal(sha256_update(rest, data + n, sizeof(data) - n), 0);
		assert_int_equal(sha256_final(rest, found), 0);
		assert_memory_equal(found, want, SHA256_SIZE);
		if (n + SHA256_BLOCK < sizeof(data))
			assert_int_equal(sha256_update(whole, data + n, SHA256_BLOCK), 0);
	}
	sha256_free(whole);
	sha256_free(rest);
}

/* The length is part of the hash: beyond 2^32 bits, and 2^32 bytes, it has two words. */
static void test_lengths(void **state)
{
	static const uint64_t sizes[] = { 1ull << 29, (1ull << 29) + 64, 1ull << 32, 1ull << 50 };
	uint8_t start[SHA256_SIZE] = { 1 }, block[2 * SHA256_BLOCK] = { 'x', 0x80 };
	uint8_t found[SHA256_SIZE], want[SHA256_SIZE];
	struct sha256 *s;

	(void)state;
	assert_int_equal(sha256_new(&s), 0);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t bits = (sizes[i] + 1) * 8;

		sha256_resume(s, start, sizes[i]);
		assert_int_equal(sha256_update(s, "x", 1), 0);
		assert_int_equal(sha256_final(s, found), 0);
		/* the same block, padded by hand: its state is the hash */
		put_be32(block + 56, (uint32_t)(bits >> 32));
		put_be32(block + 60, (uint32_t)bits);
		sha256_resume(s, start, SHA256_BLOCK);
		assert_int_equal(sha256_update(s, block, SHA256_BLOCK), 0);
		sha256_state(s, want);
		assert_memory_equal(found, want, SHA256_SIZE);
	}
	sha256_free(s);
}

/* ---- several at once ---- */

#define MAX_PARTS 8
#define POOL 65536

/* All ways on this machine: each test takes them in turn. */
static size_t ways(const struct sha256_lanes *ret[2])
{
	const struct sha256_lanes *here = sha256_x86() ? sha256_x86() : sha256_arm();

	ret[0] = NULL; /* OpenSSL */
	ret[1] = here;
	if (!here)
		print_message("this processor has no lanes: only OpenSSL is tested\n");
	return here ? 2 : 1;
}

/* SHA256Monte.rsp: a chain of 100,000 messages; so many chains at once, which are the same. */
static void run_chains(const struct sha256_lanes *how, size_t chains, struct sha256 **hashes)
{
	static const char *const want[] = {
		[0] = "e93c330ae5447738c8aa85d71a6c80f2a58381d05872d26bdd39f1fcd4f2b788",
		[1] = "2e78f8c8772ea7c9331d41ed3f9cdf27d8f514a99342ee766ee3b8b0d0b121c0",
		[99] = "6a912ba4188391a78e6f13d88ed2d14e13afce9db6f7dcbf4a48c24f3db02778",
	};
	uint8_t seed[SHA256_SIZE], m[MAX_PARTS][4][SHA256_SIZE];
	struct sha256_part parts[MAX_PARTS];
	char hex[2 * SHA256_SIZE + 1];

	assert_true(hex_decode("6d1e72ad03ddeb5de891e572e2396f8da015d899ef0e79503152d6010a3fe691",
			       SHA256_SIZE, seed));
	for (size_t i = 0; i < 100; i++) {
		for (size_t k = 0; k < chains * 3; k++)
			memcpy(m[k / 3][k % 3], seed, SHA256_SIZE);
		for (size_t j = 0; j < 1000; j++) {
			for (size_t k = 0; k < chains; k++) {
				sha256_resume(hashes[k], NULL, 0);
				parts[k] = (struct sha256_part){ hashes[k], m[k], 3 * SHA256_SIZE,
								 NULL };
			}
			assert_int_equal(sha256_update_by(how, parts, chains), 0);
			for (size_t k = 0; k < chains; k++) {
				assert_int_equal(sha256_final(hashes[k], m[k][3]), 0);
				memmove(m[k][0], m[k][1], 3 * SHA256_SIZE);
			}
		}
		memcpy(seed, m[0][2], SHA256_SIZE);
		hex_encode(seed, SHA256_SIZE, hex);
		if (want[i])
			assert_string_equal(hex, want[i]);
		for (size_t k = 1; k < chains; k++)
			assert_memory_equal(m[k][2], seed, SHA256_SIZE);
	}
}

static void test_monte_carlo(void **state)
{
	const struct sha256_lanes *list[2];
	struct sha256 *hashes[3];
	size_t n = ways(list);

	(void)state;
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(sha256_new(&hashes[i]), 0);
	run_chains(list[0], 1, hashes);
	if (n > 1) {
		run_chains(list[1], 2, hashes);
		run_chains(list[1], 3, hashes);
	}
	for (size_t i = 0; i < 3; i++)
		sha256_free(hashes[i]);
}

/* A hash of the lanes, and EVP's of the same bytes. */
struct pair {
	struct sha256 *ours;
	EVP_MD_CTX *evp;
};

static size_t random_length(void)
{
	static const size_t most[] = { 4, 80, 300, 1000, 20000 };

	/* the longest seldom: many short ones find more in the same time */
	return (size_t)random() % (most[random() % 40 ? random() % 4 : 4] + 1);
}

/* Some rounds of parts of any lengths and alignments. */
static void compare_some(const struct sha256_lanes *how, struct pair *pairs, size_t n)
{
	static uint8_t pool[POOL];
	struct sha256_part parts[MAX_PARTS];
	uint8_t want[SHA256_SIZE], found[SHA256_SIZE];

	for (size_t i = 0; !pool[0] && i < POOL; i++)
		pool[i] = (uint8_t)(random() | (i == 0));
	for (size_t i = 0; i < n; i++) {
		sha256_resume(pairs[i].ours, NULL, 0);
		assert_int_equal(EVP_DigestInit_ex(pairs[i].evp, NULL, NULL), 1);
	}
	for (long rounds = 1 + random() % 3; rounds > 0; rounds--) {
		for (size_t i = 0; i < n; i++) {
			size_t len = random_length();
			/* some end where the pool does, which asan guards */
			size_t at = random() % 8 ? (size_t)random() % (POOL - len) : POOL - len;

			parts[i] = (struct sha256_part){ pairs[i].ours, pool + at, len, NULL };
			assert_int_equal(EVP_DigestUpdate(pairs[i].evp, pool + at, len), 1);
		}
		assert_int_equal(sha256_update_by(how, parts, n), 0);
	}
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(sha256_final(pairs[i].ours, found), 0);
		assert_int_equal(EVP_DigestFinal_ex(pairs[i].evp, want, NULL), 1);
		assert_memory_equal(found, want, SHA256_SIZE);
	}
}

/* SHA256_COMPARISONS: so many hashes in place of those that take a moment. */
static void test_random(void **state)
{
	const char *many = getenv("SHA256_COMPARISONS");
	size_t left = many ? strtoul(many, NULL, 10) : 150000, n_ways, n;
	const struct sha256_lanes *list[2];
	struct pair pairs[MAX_PARTS];

	(void)state;
	n_ways = ways(list);
	srandom(many ? (unsigned)getpid() : 1);
	for (size_t i = 0; i < MAX_PARTS; i++) {
		assert_int_equal(sha256_new(&pairs[i].ours), 0);
		pairs[i].evp = EVP_MD_CTX_new();
		assert_non_null(pairs[i].evp);
		assert_int_equal(EVP_DigestInit_ex(pairs[i].evp, EVP_sha256(), NULL), 1);
	}
	if (many)
		print_message("%zu comparisons, seed %d\n", left, (int)getpid());
	for (; left > 0; left -= MIN(left, n)) {
		n = 1 + (size_t)random() % MAX_PARTS;
		compare_some(list[(size_t)random() % 4 ? n_ways - 1 : 0], pairs, n);
	}
	for (size_t i = 0; i < MAX_PARTS; i++) {
		sha256_free(pairs[i].ours);
		EVP_MD_CTX_free(pairs[i].evp);
	}
}

/* What lanes count is in the padding, also beyond 2^32 bits, and their states go on anywhere. */
static void test_lengths_of_lanes(void **state)
{
	static const uint64_t size = (1ull << 29) - SHA256_BLOCK;
	const struct sha256_lanes *list[2];
	uint8_t start[SHA256_SIZE] = { 7 }, data[2][4 * SHA256_BLOCK + 1] = { { 1 }, { 2 } };
	uint8_t want[SHA256_SIZE], found[SHA256_SIZE];
	struct sha256 *hashes[2], *one;

	(void)state;
	assert_int_equal(sha256_new(&hashes[0]), 0);
	assert_int_equal(sha256_new(&hashes[1]), 0);
	assert_int_equal(sha256_new(&one), 0);
	for (size_t way = ways(list); way-- > 0;) {
		struct sha256_part parts[2];

		for (size_t i = 0; i < 2; i++) {
			sha256_resume(hashes[i], start, size);
			parts[i] = (struct sha256_part){ hashes[i], data[i], sizeof(data[i]),
							 NULL };
		}
		assert_int_equal(sha256_update_by(list[way], parts, 2), 0);
		for (size_t i = 0; i < 2; i++) {
			sha256_resume(one, start, size);
			assert_int_equal(sha256_update(one, data[i], sizeof(data[i])), 0);
			assert_int_equal(sha256_final(one, want), 0);
			assert_int_equal(sha256_final(hashes[i], found), 0);
			assert_memory_equal(found, want, SHA256_SIZE);
		}
	}
	sha256_free(hashes[0]);
	sha256_free(hashes[1]);
	sha256_free(one);
}

/* The public call, with what it finds. */
static void test_many(void **state)
{
	static char text[3][1000];
	uint8_t want[SHA256_SIZE], found[SHA256_SIZE];
	struct sha256_part parts[3];

	(void)state;
	assert_int_equal(sha256_update_many(NULL, 0), 0);
	for (size_t i = 0; i < 3; i++) {
		memset(text[i], 'a' + (int)i, sizeof(text[i]));
		parts[i] = (struct sha256_part){ .data = text[i], .n = sizeof(text[i]) - 100 * i };
		assert_int_equal(sha256_new(&parts[i].s), 0);
	}
	assert_int_equal(sha256_update_many(parts, 3), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(sha256_final(parts[i].s, found), 0);
		assert_int_equal(EVP_Digest(text[i], sizeof(text[i]) - 100 * i, want, NULL,
					    EVP_sha256(), NULL),
				 1);
		assert_memory_equal(found, want, SHA256_SIZE);
		sha256_free(parts[i].s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),		 cmocka_unit_test(test_longer_vectors),
		cmocka_unit_test(test_states),		 cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_monte_carlo),	 cmocka_unit_test(test_random),
		cmocka_unit_test(test_lengths_of_lanes), cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
