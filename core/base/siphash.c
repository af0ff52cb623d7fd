/* SPDX-License-Identifier: Apache-2.0 */
#include "base/siphash.h"

#include <sys/random.h>

#include "base/util.h"

void siphash_key_init(struct siphash_key *key)
{
	if (getrandom(key->seed, sizeof(key->seed), GRND_NONBLOCK) != sizeof(key->seed))
		key->seed[0] = (uintptr_t)key;
}

static inline uint64_t rotate(uint64_t x, int n)
{
	return x << n | x >> (64 - n);
}

static inline void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] = rotate(v[2], 32);
}

uint64_t siphash(const struct siphash_key *key, uint64_t prefix, const void *data, size_t n)
{
	const uint8_t *end = (const uint8_t *)data + n, *tail = end - n % 8;
	uint64_t v[4] = {
		key->seed[0] ^ 0x736f6d6570736575ULL,
		key->seed[1] ^ 0x646f72616e646f6dULL,
		key->seed[0] ^ 0x6c7967656e657261ULL,
		key->seed[1] ^ 0x7465646279746573ULL,
	};
	uint64_t word = prefix;
	size_t left = n;

	for (;;) {
		v[3] ^= word;
		sip_round(v);
		v[0] ^= word;
		if (left < 8)
			break;
		word = get_le64(end - left);
		left -= 8;
	}
	word = (uint64_t)n << 56;
	for (size_t i = 0; i < left; i++)
		word |= (uint64_t)tail[i] << 8 * i;
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
