/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256-rate MIB: hashes so many MiB on one thread, by one stream of OpenSSL, by two lanes and by
 * three, in turns of a few milliseconds. Prints the CPU seconds of each, as NAME SECONDS. What the
 * processor has no lanes for is not printed.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/sha256_lanes.h"
#include "base/util.h"

#define BLOCK ((size_t)512 * 1024)

static void need(bool ok)
{
	if (!ok)
		abort();
}

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Hashes six blocks, in so many lanes; 0: all by EVP. */
static double turn(size_t lanes, const uint8_t *blocks, struct sha256 **hashes, EVP_MD_CTX *evp)
{
	struct sha256_part parts[SHA256_MAX_LANES];
	double begin = cpu();

	for (size_t i = 0; i < 6; i += MAX(lanes, 1)) {
		if (lanes == 0)
			need(EVP_DigestUpdate(evp, blocks + i * BLOCK, BLOCK) == 1);
		for (size_t l = 0; l < lanes; l++)
			parts[l] = (struct sha256_part){ hashes[l], blocks + (i + l) * BLOCK, BLOCK,
							 NULL };
		need(sha256_update_many(parts, lanes) == 0);
	}
	return cpu() - begin;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "evp", "one", "two", "three" };
	size_t most = sha256_x86() || sha256_arm() ? SHA256_MAX_LANES : 1;
	size_t turns = argc > 1 ? strtoul(argv[1], NULL, 10) / 3 : 0;
	struct sha256 *hashes[SHA256_MAX_LANES];
	uint8_t *blocks = malloc(6 * BLOCK);
	EVP_MD_CTX *evp = EVP_MD_CTX_new();
	double seconds[4] = { 0 };

	need(blocks && evp && turns && EVP_DigestInit_ex(evp, EVP_sha256(), NULL) == 1);
	for (size_t i = 0; i < 6 * BLOCK; i++)
		blocks[i] = (uint8_t)(i * 2654435761u >> 13);
	for (size_t i = 0; i < SHA256_MAX_LANES; i++)
		need(sha256_new(&hashes[i]) == 0);
	for (size_t i = 0; i < turns; i++)
		for (size_t lanes = 0; lanes <= most; lanes++)
			seconds[lanes] += turn(lanes, blocks, hashes, evp);
	for (size_t lanes = 0; lanes <= most; lanes++)
		printf("%s %.6f\n", names[lanes], seconds[lanes]);
	for (size_t i = 0; i < SHA256_MAX_LANES; i++)
		sha256_free(hashes[i]);
	EVP_MD_CTX_free(evp);
	free(blocks);
	return 0;
}
