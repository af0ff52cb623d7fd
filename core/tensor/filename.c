/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/filename.h"

#include "base/digest.h"
#include "base/util.h"

/* Bytes of a shortened name before its hash. */
#define START 100

struct encoder {
	char out[TENSOR_FILENAME_SIZE];
	size_t n;
	size_t start; /* whole characters within the first START bytes of `out` */
	bool full;
};

/* Appends one character, percent-encoded or not. Sets `full` for good when it does not fit. */
static void add(struct encoder *e, const char *s, size_t n, bool encode)
{
	static const char digits[] = "0123456789ABCDEF";
	size_t need = encode ? 3 * n : n;

	if (e->full || need >= sizeof(e->out) - e->n) {
		e->full = true;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (encode) {
			e->out[e->n++] = '%';
			e->out[e->n++] = digits[(unsigned char)s[i] >> 4];
			e->out[e->n++] = digits[s[i] & 0xf];
		} else {
			e->out[e->n++] = s[i];
		}
	}
	if (e->n <= START)
		e->start = e->n;
}

/* The position of the dot of a suffix ".bin", ".npy" or ".json"; `n` if it has none. */
static size_t suffix_dot(const char *name, size_t n)
{
	static const char *const suffixes[] = { ".bin", ".npy", ".json" };

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		size_t len = strlen(suffixes[i]);

		if (n >= len && !memcmp(name + n - len, suffixes[i], len))
			return n - len;
	}
	return n;
}

/* C0, DEL or C1? The names of files in views/ depend on it: it stays as it is. */
static bool is_control(const char *s, size_t step)
{
	uint32_t c = utf8_code(s, step);

	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

static void encode(struct encoder *e, const char *name, size_t n, bool nested)
{
	size_t dot = nested ? suffix_dot(name, n) : n;
	bool leading = true;

	for (size_t i = 0, step; i < n && !e->full; i += step ? step : 1) {
		step = utf8_step(name + i, n - i);
		leading = leading && name[i] == '.';
		add(e, name + i, step ? step : 1,
		    leading || i == dot || name[i] == '%' || name[i] == '/' || !step ||
			    is_control(name + i, step));
	}
}

int tensor_filename(const char *name, size_t n, bool nested, char ret[TENSOR_FILENAME_SIZE])
{
	struct encoder e = { .full = false };
	uint8_t hash[SHA256_SIZE];
	int r;

	encode(&e, name, n, nested);
	if (!n) {
		strcpy(ret, "%~empty");
		return 0;
	}
	if (e.full) {
		r = sha256_mem(name, n, hash);
		if (r)
			return r;
		e.n = e.start;
		memcpy(e.out + e.n, "%~", 2);
		hex_encode(hash, sizeof(hash), e.out + e.n + 2);
		e.n += 2 + 2 * sizeof(hash);
	}
	memcpy(ret, e.out, e.n);
	ret[e.n] = '\0';
	return 0;
}
