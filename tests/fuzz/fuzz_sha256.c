/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several streams at once, cut as the input says, have the hashes that OpenSSL's EVP computes of
 * each by itself, with lanes and without. The first byte is how many streams there are; then
 * follow, for each call and each stream, two bytes of a length and one of where its bytes begin,
 * until the input ends. The bytes are those of the input, over and over.
 */
#include <openssl/evp.h>
#include <string.h>

#include "base/sha256_lanes.h"
#include "base/util.h"

#include "fuzz.h"

#define MAX_STREAMS 8
/* bytes of a call: more than a turn of the lanes */
#define MAX_LENGTH 20000
#define MAX_CALLS 16

struct streams {
	size_t n;
	struct sha256 *ours[MAX_STREAMS];
	EVP_MD_CTX *evp[MAX_STREAMS];
};

static uint8_t pool[MAX_LENGTH + 256];

/* One call as the records at `data` say. */
static void call(struct streams *s, const struct sha256_lanes *how, const uint8_t *data)
{
	struct sha256_part parts[MAX_STREAMS];

	for (size_t i = 0; i < s->n; i++, data += 3) {
		size_t n = get_le16(data) % (MAX_LENGTH + 1);
		const uint8_t *bytes = pool + data[2];

		parts[i] = (struct sha256_part){ s->ours[i], bytes, n, NULL };
		CHECK(EVP_DigestUpdate(s->evp[i], bytes, n) == 1);
	}
	CHECK(sha256_update_by(how, parts, s->n) == 0);
}

static void run(const struct sha256_lanes *how, size_t streams, const uint8_t *data, size_t n)
{
	uint8_t found[SHA256_SIZE], want[SHA256_SIZE];
	struct streams s = { .n = streams };

	for (size_t i = 0; i < s.n; i++) {
		CHECK(sha256_new(&s.ours[i]) == 0);
		CHECK((s.evp[i] = EVP_MD_CTX_new()) != NULL);
		CHECK(EVP_DigestInit_ex(s.evp[i], EVP_sha256(), NULL) == 1);
	}
	for (size_t calls = 0; n >= 3 * s.n && calls < MAX_CALLS; calls++) {
		call(&s, how, data);
		data += 3 * s.n;
		n -= 3 * s.n;
	}
	for (size_t i = 0; i < s.n; i++) {
		CHECK(sha256_final(s.ours[i], found) == 0);
		CHECK(EVP_DigestFinal_ex(s.evp[i], want, NULL) == 1);
		CHECK(memcmp(found, want, SHA256_SIZE) == 0);
		sha256_free(s.ours[i]);
		EVP_MD_CTX_free(s.evp[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const struct sha256_lanes *here = sha256_x86() ? sha256_x86() : sha256_arm();

	if (n == 0)
		return 0;
	for (size_t i = 0; i < sizeof(pool); i++)
		pool[i] = data[i % n];
	run(NULL, 1 + data[0] % MAX_STREAMS, data + 1, n - 1);
	if (here)
		run(here, 1 + data[0] % MAX_STREAMS, data + 1, n - 1);
	return 0;
}
