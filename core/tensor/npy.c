/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ALIGN 64
/* numpy reserves room for the first dimension to grow to any 64-bit number. */
#define GROWTH_DIGITS 21

static void add_shape(struct buf *b, const uint64_t *shape, unsigned rank)
{
	buf_addc(b, '(');
	for (unsigned i = 0; i < rank; i++)
		buf_addf(b, "%s%" PRIu64, i ? ", " : "", shape[i]);
	buf_adds(b, rank == 1 ? ",)" : ")");
}

/* The dictionary as Python prints it, with sorted keys and space for the shape to grow. */
static int add_dict(struct buf *b, const char *descr, const uint64_t *shape, unsigned rank)
{
	int digits = rank ? snprintf(NULL, 0, "%" PRIu64, shape[0]) : GROWTH_DIGITS;

	buf_addf(b, "{'descr': '%s', 'fortran_order': False, 'shape': ", descr);
	add_shape(b, shape, rank);
	return buf_addf(b, ", }%*s", GROWTH_DIGITS - digits, "");
}

/* The value of the length field for a dictionary of `n` bytes after `prefix` bytes. */
static uint64_t padded(uint64_t n, unsigned prefix)
{
	n++; /* the newline; numpy then pads by 1 to 64 bytes, never by 0 */
	return n + ALIGN - (prefix + n) % ALIGN;
}

static int add_header(struct buf *b, const struct buf *dict)
{
	uint8_t prefix[12] = "\x93NUMPY\x01";
	unsigned n = 10;
	uint64_t len = padded(dict->len, n);

	if (len > UINT16_MAX) {
		prefix[6] = 2;
		n = 12;
		len = padded(dict->len, n);
		if (len > UINT32_MAX)
			return -EFBIG;
		put_le32(prefix + 8, (uint32_t)len);
	} else {
		put_le16(prefix + 8, (uint16_t)len);
	}
	buf_reserve(b, n + len);
	buf_add(b, prefix, n);
	buf_add(b, dict->data, dict->len);
	return buf_addf(b, "%*s\n", (int)(len - dict->len - 1), "");
}

bool npy_can_hold(const char *descr, const uint64_t *shape, unsigned rank)
{
	uint64_t bytes = strtoull(descr + 2, NULL, 10) * (descr[1] == 'U' ? 4 : 1);

	for (unsigned i = 0; i < rank; i++)
		if (shape[i] && __builtin_mul_overflow(bytes, shape[i], &bytes))
			return false;
	return bytes <= INT64_MAX;
}

int npy_header(const char *descr, const uint64_t *shape, unsigned rank, struct buf *b)
{
	struct buf dict = buf_init(b->max);
	int r = add_dict(&dict, descr, shape, rank);

	if (!r)
		r = add_header(b, &dict);
	buf_finish(&dict);
	return r;
}

int npy_string_descr(uint64_t width, char ret_descr[16])
{
	if (width > INT32_MAX / 4)
		return -EFBIG;
	snprintf(ret_descr, 16, "<U%" PRIu64, width ? width : 1);
	return 0;
}
