/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256: vectors of FIPS 180-4 and NIST, and the states between its blocks, against EVP. */
#include <openssl/evp.h>
#include <stdlib.h>

#include "base/sha256.h"
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
