/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SipHash-1-3: the hash of every hash table here. Under a random key no input can choose names or
 * hashes that make a long chain.
 */
#ifndef CARTON_BASE_SIPHASH_H
#define CARTON_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
	uint64_t seed[2];
};

/* Makes a random key, or one from an address if there is no entropy yet (early at boot). */
void siphash_key_init(struct siphash_key *key);

/* The hash of `prefix`, then `n` bytes. */
uint64_t siphash(const struct siphash_key *key, uint64_t prefix, const void *data, size_t n);

#endif
