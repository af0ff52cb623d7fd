/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256-lanes: compares the compress functions for several streams with a plain one, which is
 * FIPS 180-4 word by word. It needs no library, so it also runs where there is only a compiler: for
 * aarch64 under qemu, make check-arm64-sha256. Prints the instructions that were found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256_lanes.h"

#define MAX_BLOCKS 40
#define RUNS 2000

static uint32_t turn(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

static void plain(uint32_t *state, const uint8_t *p)
{
	uint32_t w[64], v[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
		       (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] +
		       (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(v, state, sizeof(v));
	for (int i = 0; i < 64; i++) {
		uint32_t t = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) +
			     ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha256_k[i] + w[i];
		uint32_t u = (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) +
			     ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(v[0]));
		v[4] += t;
		v[0] = t + u;
	}
	for (int i = 0; i < 8; i++)
		state[i] += v[i];
}

/* "abc", padded: the example of FIPS 180-4, so that what is compared with is right. */
static int plain_is_right(void)
{
	static const uint32_t want[8] = { 0xba7816bf, 0x8f01cfea, 0x414140de, 0x5dae2223,
					  0xb00361a3, 0x96177a9c, 0xb410ff61, 0xf20015ad };
	uint32_t state[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
			      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
	uint8_t block[SHA256_BLOCK] = { 'a', 'b', 'c', 0x80, [63] = 24 };

	plain(state, block);
	return memcmp(state, want, sizeof(want)) == 0;
}

static int compare(const struct sha256_lanes *how, int lanes)
{
	static uint8_t bytes[SHA256_MAX_LANES][MAX_BLOCKS * SHA256_BLOCK + 64];
	uint32_t states[SHA256_MAX_LANES][8], want[SHA256_MAX_LANES][8], *in[SHA256_MAX_LANES];
	size_t blocks = (size_t)random() % (MAX_BLOCKS + 1);
	const uint8_t *data[SHA256_MAX_LANES];

	for (int l = 0; l < lanes; l++) {
		for (size_t i = 0; i < sizeof(bytes[l]); i++)
			bytes[l][i] = (uint8_t)random();
		for (int i = 0; i < 8; i++)
			states[l][i] = want[l][i] = (uint32_t)random() << 1 ^ (uint32_t)random();
		data[l] = bytes[l] + random() % 64;
		in[l] = states[l];
		for (size_t i = 0; i < blocks; i++)
			plain(want[l], data[l] + i * SHA256_BLOCK);
	}
	(lanes == 2 ? how->two : how->three)(in, data, blocks);
	return memcmp(states, want, (size_t)lanes * sizeof(states[0])) == 0;
}

int main(void)
{
	const struct sha256_lanes *how = NULL;

	if (!plain_is_right()) {
		fputs("sha256-lanes: the plain function is wrong\n", stderr);
		return 1;
	}
#ifdef __x86_64__
	how = sha256_x86();
#elif defined(__aarch64__)
	how = sha256_arm();
#endif
	for (int i = 0; how && i < RUNS; i++) {
		int lanes = 2 + i % 2;

		if (!compare(how, lanes)) {
			fprintf(stderr, "sha256-lanes: %s: %d lanes are wrong (run %d)\n",
				how->name, lanes, i);
			return 1;
		}
	}
	printf("%s\n", how ? how->name : "none");
	return 0;
}
