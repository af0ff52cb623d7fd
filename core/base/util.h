/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small things every module needs: bounded buffers, little-endian reads, hex, names, exact I/O.
 * Includes nothing of this project but log.h and limits.h.
 */
#ifndef CARTON_BASE_UTIL_H
#define CARTON_BASE_UTIL_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "base/limits.h"
#include "log.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Logs an error, as carton_log(). Returns `r`. */
int log_error(int r, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Logs an attempt that has failed, perhaps one of several: at any level it sets the text of the
 * thread's failure (failure.h), as errors do.
 */
void log_attempt(enum carton_log_level level, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Sets the text of the thread's failure (failure.h); an earlier call logged it. Returns `r`. */
int error_again(int r, const char *subject, const char *text);

/* Does the error mean that a server cannot be reached, or is overloaded? */
static inline bool error_is_outage(int error)
{
	return error == -EBUSY || error == -ECONNREFUSED || error == -ECONNRESET ||
	       error == -EHOSTUNREACH || error == -ENETUNREACH || error == -ENETDOWN ||
	       error == -ETIMEDOUT;
}

/* May another attempt succeed soon? Errors of the server itself, such as status 500, count too. */
static inline bool error_passes(int error)
{
	return error == -EAGAIN || error == -EREMOTEIO || error_is_outage(error);
}

/* a date is in the future if it is later by more: clocks of servers and disks differ a little */
#define CLOCK_SLACK_S 300

/* Is the clock set? It is not if it says a time before this program was built, such as 1970. */
bool clock_is_set(void);

/* Is the date, in seconds since 1970, in the future? False while the clock is not set. */
bool clock_is_future(int64_t when);

/*
 * Why an input was refused. A parser sets it where it finds the fault, returns an -errno, and logs
 * nothing; its caller, which knows the file, logs it.
 */
struct reason {
	size_t line;	/* from 1; 0: not about a line */
	char text[256]; /* one sentence, may quote hostile text; "": the -errno says why */
};

/* Sets the text, cut to fit, and returns `r`. NULL-safe. */
int reason_set(struct reason *reason, int r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- a text in memory, for a parser that pulls its text ---- */

struct mem_text {
	const char *text; /* the part that was not read yet */
	size_t n;
};

/* Reads the next `n` bytes of a struct mem_text, or fewer. Returns how many; 0 at the end. */
ssize_t mem_text_read(void *ctx, void *ret_buf, size_t n);

/* ---- little-endian integers, at any alignment ---- */

static inline uint16_t get_le16(const void *p)
{
	const uint8_t *b = p;

	return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t get_le32(const void *p)
{
	return get_le16(p) | (uint32_t)get_le16((const uint8_t *)p + 2) << 16;
}

static inline uint64_t get_le64(const void *p)
{
	return get_le32(p) | (uint64_t)get_le32((const uint8_t *)p + 4) << 32;
}

static inline void put_le16(void *p, uint16_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
}

static inline void put_le32(void *p, uint32_t v)
{
	put_le16(p, (uint16_t)v);
	put_le16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

static inline void put_le64(void *p, uint64_t v)
{
	put_le32(p, (uint32_t)v);
	put_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

/* ---- big-endian integers, at any alignment ---- */

static inline uint32_t get_be32(const void *p)
{
	return __builtin_bswap32(get_le32(p));
}

static inline void put_be32(void *p, uint32_t v)
{
	put_le32(p, __builtin_bswap32(v));
}

/* ---- a byte buffer that grows up to a bound ---- */

struct buf {
	char *data; /* always followed by a NUL that is not counted; NULL while empty */
	size_t len;
	size_t cap;
	size_t max; /* bytes it may hold; more is -EFBIG */
	int error;  /* of the first call that failed; 0: none */
};

/* An empty buffer that may hold `max` bytes. Owns nothing yet. */
static inline struct buf buf_init(size_t max)
{
	return (struct buf){ .max = max };
}

/*
 * Each returns 0, -ENOMEM or -EFBIG; on failure the buffer is unchanged. All later calls fail with
 * the same error, so that of several calls only the last one has to be checked.
 */
int buf_reserve(struct buf *b, size_t more);
int buf_add(struct buf *b, const void *data, size_t n);
int buf_addc(struct buf *b, char c);
int buf_adds(struct buf *b, const char *s);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same of n bytes, percent-encoded but for letters, digits and those in `kept`. */
int buf_add_encoded(struct buf *b, const char *s, size_t n, const char *kept);

/*
 * Appends `s` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. A failure may leave a
 * part.
 */
int buf_add_json(struct buf *b, const char *s, size_t n);

/* Appends a part of a JSON string, without quotes. */
int buf_add_json_part(struct buf *b, const char *s, size_t n);

/* Frees the bytes; the buffer is empty and can be used again. NULL-safe. */
void buf_finish(struct buf *b);

/*
 * Grows an array with room for *cap items of `size` bytes to at least `need` items. Returns the
 * array, which may have moved; NULL: out of memory, and the old array is unchanged.
 */
void *array_grow(void *array, size_t *cap, size_t need, size_t size);

/* array_grow() of the pointer `array` to `need` items. 0 or -ENOMEM. */
#define array_room(array, cap, need)                                                         \
	({                                                                                   \
		void *array_room_new = array_grow((array), (cap), (need), sizeof(*(array))); \
                                                                                             \
		(array) = array_room_new ? array_room_new : (array);                         \
		array_room_new ? 0 : -ENOMEM;                                                \
	})

/* Frees the unused end of an array of `n` items. Returns the array, which may have moved. */
void *array_fit(void *array, size_t n, size_t size);

/* ---- text ---- */

/* The length of the UTF-8 character at the start of [s, s+n); 0: it is malformed or incomplete. */
size_t utf8_step(const char *s, size_t n);

/* The code point of the character at `s`, whose length `step` utf8_step() has returned. */
uint32_t utf8_code(const char *s, size_t step);

/*
 * Writes a code point, which must not be a surrogate or above U+10FFFF. Returns its length, 1 to 4.
 */
size_t utf8_encode(uint32_t c, char ret[4]);

/* Is [s, s+n) well-formed UTF-8 (no overlong form, no surrogate, at most U+10FFFF)? */
bool utf8_valid(const char *s, size_t n);

/* How many characters of valid UTF-8 these bytes are. */
static inline size_t utf8_count(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xc0) != 0x80;
	return count;
}

bool is_ascii(const char *s);

/* How many bytes at the start of [s, s+n) are printable ASCII. */
size_t ascii_run(const char *s, size_t n);

/* Does `s` end with `end`, and begin with something else? */
bool ends_with(const char *s, const char *end);

/* How many bytes of a text a message quotes, for its "%.*s": 64, or less for whole characters. */
int utf8_quoted(const char *s, size_t n);

/* The value of a hex digit, upper or lower case; 16: not a hex digit. */
int hex_value(int c);

/* Writes 2n lower-case hex digits and a NUL. */
void hex_encode(const uint8_t *data, size_t n, char *ret_hex);

/* Are these 2n lower-case hex digits? */
bool hex_valid(const char *hex, size_t n);

/* Reads exactly 2n lower-case hex digits; false, with `ret_data` untouched, for anything else. */
bool hex_decode(const char *hex, size_t n, uint8_t *ret_data);

/*
 * Checks a path inside a carton: UTF-8, relative, no empty, "." or ".." component, no backslash,
 * drive letter, NUL or control character, component <= MAX_COMPONENT, path <= MAX_PATH_LEN.
 * Returns NULL if it is valid, else a constant text that says what is wrong.
 */
const char *path_fault(const char *path, size_t n);

/* ---- time and threads ---- */

/* CLOCK_MONOTONIC in milliseconds, in microseconds; and as a timespec. */
int64_t now_ms(void);
int64_t now_us(void);
struct timespec ms_to_timespec(int64_t ms);

/*
 * Initializes a condition variable whose pthread_cond_timedwait() takes times of CLOCK_MONOTONIC.
 */
void cond_init(pthread_cond_t *cond);

/* Starts a thread with all signals blocked: the main thread handles them. 0 or -errno. */
int thread_start(pthread_t *ret, void *(*run)(void *), void *arg);

/* ---- exact I/O ---- */

/* Reads exactly n bytes at `off`: 0, -ENODATA when the file ends before, else the read's -errno. */
int pread_full(int fd, void *ret_buf, size_t n, uint64_t off);

/* Writes all n bytes at `off`: 0 or -errno; -EFBIG: see file_size.h. */
int pwrite_full(int fd, const void *data, size_t n, uint64_t off);

/* The number of the path /dev/fd/N, which names an open file; -1: it is another path. */
int fd_named(const char *path);

/* A duplicate of `fd`, closed on exec: 0 or more, or -errno. */
int fd_dup(int fd);

/* close(2) that keeps errno and ignores -1. */
void fd_close(int fd);

#endif
