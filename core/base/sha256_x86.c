/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes by the SHA instructions of x86-64. */
#include "base/sha256_lanes.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdbool.h>

#define TARGET __attribute__((target("sha,sse4.1")))

/* The state as the instructions want it: the words A B E F and C D G H, from high to low. */
struct words {
	__m128i abef, cdgh;
};

TARGET static inline __attribute__((always_inline)) struct words load(const uint32_t *state)
{
	__m128i low = _mm_loadu_si128((const __m128i *)state);
	__m128i high = _mm_loadu_si128((const __m128i *)(state + 4));

	low = _mm_shuffle_epi32(low, 0xb1);
	high = _mm_shuffle_epi32(high, 0x1b);
	return (struct words){ _mm_alignr_epi8(low, high, 8), _mm_blend_epi16(high, low, 0xf0) };
}

TARGET static inline __attribute__((always_inline)) void save(struct words w, uint32_t *state)
{
	__m128i low = _mm_shuffle_epi32(w.abef, 0x1b), high = _mm_shuffle_epi32(w.cdgh, 0xb1);

	_mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xf0));
	_mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

/* Four rounds of one lane; `m` has the 16 words of the message that are needed next. */
TARGET static inline __attribute__((always_inline)) void four_rounds(struct words *w, __m128i *m,
								     const uint8_t *block, int i)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
	__m128i *now = &m[i % 4], *next = &m[(i + 1) % 4], *before = &m[(i + 3) % 4], sum;

	if (i < 4)
		*now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + 16 * i)), swap);
	sum = _mm_add_epi32(*now, _mm_load_si128((const __m128i *)(sha256_k + 4 * i)));
	w->cdgh = _mm_sha256rnds2_epu32(w->cdgh, w->abef, sum);
	if (i >= 3 && i < 15) {
		*next = _mm_add_epi32(*next, _mm_alignr_epi8(*now, *before, 4));
		*next = _mm_sha256msg2_epu32(*next, *now);
	}
	w->abef = _mm_sha256rnds2_epu32(w->abef, w->cdgh, _mm_shuffle_epi32(sum, 0x0e));
	if (i >= 1 && i < 13)
		*before = _mm_sha256msg1_epu32(*before, *now);
}

/* Four rounds of each lane in turn: with shorter turns, more words have to leave the registers. */
TARGET static inline __attribute__((always_inline)) void compress(uint32_t *const *states,
								  const uint8_t *const *data,
								  size_t blocks, const int lanes)
{
	struct words now[SHA256_MAX_LANES], was[SHA256_MAX_LANES];
	__m128i m[SHA256_MAX_LANES][4];

#pragma GCC unroll 3
	for (int l = 0; l < lanes; l++)
		now[l] = load(states[l]);
	for (size_t b = 0; b < blocks; b++) {
#pragma GCC unroll 3
		for (int l = 0; l < lanes; l++)
			was[l] = now[l];
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
#pragma GCC unroll 3
			for (int l = 0; l < lanes; l++)
				four_rounds(&now[l], m[l], data[l] + b * SHA256_BLOCK, i);
#pragma GCC unroll 3
		for (int l = 0; l < lanes; l++) {
			now[l].abef = _mm_add_epi32(now[l].abef, was[l].abef);
			now[l].cdgh = _mm_add_epi32(now[l].cdgh, was[l].cdgh);
		}
	}
#pragma GCC unroll 3
	for (int l = 0; l < lanes; l++)
		save(now[l], states[l]);
}

TARGET static void two(uint32_t *const *states, const uint8_t *const *data, size_t blocks)
{
	compress(states, data, blocks, 2);
}

TARGET static void three(uint32_t *const *states, const uint8_t *const *data, size_t blocks)
{
	compress(states, data, blocks, 3);
}

static bool usable;

static void look(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1))
		return;
	usable = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

const struct sha256_lanes *sha256_x86(void)
{
	static const struct sha256_lanes lanes = { "SHA-NI", two, three };
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
	return usable ? &lanes : NULL;
}

#else

const struct sha256_lanes *sha256_x86(void)
{
	return NULL;
}

#endif
