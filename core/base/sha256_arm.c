/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes by the SHA2 instructions of aarch64. */
#include "base/sha256_lanes.h"

/* clang has these functions only where all of a file is compiled for such processors */
#if defined(__aarch64__) && defined(__AARCH64EL__) && \
	(!defined(__clang__) || defined(__ARM_FEATURE_SHA2))

#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#ifdef __clang__
#define TARGET
#else
#define TARGET __attribute__((target("+crypto")))
#endif

TARGET static inline __attribute__((always_inline)) void load_block(uint32x4_t *m,
								    const uint8_t *block)
{
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		m[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(block + 16 * i)));
}

/* Four rounds of one lane; `m` has the 16 words of the message that are needed next. */
TARGET static inline __attribute__((always_inline)) void four_rounds(uint32x4_t *state,
								     uint32x4_t *m, int i)
{
	uint32x4_t *now = &m[i % 4], was = state[0];
	uint32x4_t sum = vaddq_u32(*now, vld1q_u32(sha256_k + 4 * i));

	if (i < 12)
		*now = vsha256su0q_u32(*now, m[(i + 1) % 4]);
	state[0] = vsha256hq_u32(state[0], state[1], sum);
	state[1] = vsha256h2q_u32(state[1], was, sum);
	if (i < 12)
		*now = vsha256su1q_u32(*now, m[(i + 2) % 4], m[(i + 3) % 4]);
}

TARGET static inline __attribute__((always_inline)) void compress(uint32_t *const *states,
								  const uint8_t *const *data,
								  size_t blocks, const int lanes)
{
	uint32x4_t now[SHA256_MAX_LANES][2], was[SHA256_MAX_LANES][2], m[SHA256_MAX_LANES][4];

#pragma GCC unroll 3
	for (int l = 0; l < lanes; l++) {
		now[l][0] = vld1q_u32(states[l]);
		now[l][1] = vld1q_u32(states[l] + 4);
	}
	for (size_t b = 0; b < blocks; b++) {
#pragma GCC unroll 3
		for (int l = 0; l < lanes; l++) {
			load_block(m[l], data[l] + b * SHA256_BLOCK);
			was[l][0] = now[l][0];
			was[l][1] = now[l][1];
		}
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++)
#pragma GCC unroll 3
			for (int l = 0; l < lanes; l++)
				four_rounds(now[l], m[l], i);
#pragma GCC unroll 3
		for (int l = 0; l < lanes; l++) {
			now[l][0] = vaddq_u32(now[l][0], was[l][0]);
			now[l][1] = vaddq_u32(now[l][1], was[l][1]);
		}
	}
#pragma GCC unroll 3
	for (int l = 0; l < lanes; l++) {
		vst1q_u32(states[l], now[l][0]);
		vst1q_u32(states[l] + 4, now[l][1]);
	}
}

TARGET static void two(uint32_t *const *states, const uint8_t *const *data, size_t blocks)
{
	compress(states, data, blocks, 2);
}

TARGET static void three(uint32_t *const *states, const uint8_t *const *data, size_t blocks)
{
	compress(states, data, blocks, 3);
}

const struct sha256_lanes *sha256_arm(void)
{
	static const struct sha256_lanes lanes = { "SHA2 of ARMv8", two, three };

	return getauxval(AT_HWCAP) & HWCAP_SHA2 ? &lanes : NULL;
}

#else

const struct sha256_lanes *sha256_arm(void)
{
	return NULL;
}

#endif
