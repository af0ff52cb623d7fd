/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_size.h"

int buf_reserve(struct buf *b, size_t more)
{
	size_t need, cap;
	char *data;

	if (b->error)
		return b->error;
	if (__builtin_add_overflow(b->len, more, &need) || need > b->max || need == SIZE_MAX)
		return b->error = -EFBIG;
	if (b->data && need < b->cap)
		return 0;
	cap = MAX(need + 1, MIN(b->max, b->cap + b->cap / 2) + 1);
	cap = MAX(cap, (size_t)32);
	data = realloc(b->data, cap);
	if (!data)
		return b->error = -ENOMEM;
	data[b->len] = '\0';
	b->data = data;
	b->cap = cap;
	return 0;
}

int buf_add(struct buf *b, const void *data, size_t n)
{
	int r = buf_reserve(b, n);

	if (r < 0)
		return r;
	if (n)
		memcpy(b->data + b->len, data, n);
	b->len += n;
	b->data[b->len] = '\0';
	return 0;
}

int buf_addc(struct buf *b, char c)
{
	return buf_add(b, &c, 1);
}

int buf_adds(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s));
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n, r;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	r = buf_reserve(b, (size_t)n);
	if (r < 0)
		return r;
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

int buf_add_encoded(struct buf *b, const char *s, size_t n, const char *kept)
{
	static const char digits[] = "0123456789ABCDEF";
	int r = 0;

	for (size_t run; n > 0 && r == 0; s += run, n -= run) {
		for (run = 0; run < n &&
			      (isalnum((unsigned char)s[run]) || (s[run] && strchr(kept, s[run])));)
			run++;
		if (run > 0) {
			r = buf_add(b, s, run);
		} else {
			const uint8_t c = (uint8_t)*s;

			r = buf_add(b, (char[]){ '%', digits[c >> 4], digits[c & 15] }, 3);
			run = 1;
		}
	}
	return r;
}

void buf_finish(struct buf *b)
{
	if (!b)
		return;
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
	b->error = 0;
}

void *array_grow(void *array, size_t *cap, size_t need, size_t size)
{
	size_t more = MAX(need, MAX(2 * *cap, (size_t)4));
	void *grown;

	if (need <= *cap)
		return array;
	grown = reallocarray(array, more, size);
	if (grown)
		*cap = more;
	return grown;
}

void *array_fit(void *array, size_t n, size_t size)
{
	void *fit = n ? reallocarray(array, n, size) : NULL;

	return fit ? fit : array;
}

size_t utf8_step(const char *s, size_t n)
{
	const unsigned char *u = (const unsigned char *)s;
	size_t len;
	unsigned char low = 0x80, high = 0xbf;

	if (n == 0)
		return 0;
	if (u[0] < 0x80)
		return 1;
	if (u[0] < 0xc2 || u[0] > 0xf4)
		return 0;
	len = u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : 4;
	if (len > n)
		return 0;
	/* the second byte shows overlong forms, surrogates and code points above U+10FFFF */
	if (u[0] == 0xe0)
		low = 0xa0;
	else if (u[0] == 0xed)
		high = 0x9f;
	else if (u[0] == 0xf0)
		low = 0x90;
	else if (u[0] == 0xf4)
		high = 0x8f;
	if (u[1] < low || u[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((u[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

uint32_t utf8_code(const char *s, size_t step)
{
	static const uint8_t lead[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	uint32_t c = (uint8_t)s[0] & lead[step];

	for (size_t i = 1; i < step; i++)
		c = c << 6 | ((uint8_t)s[i] & 0x3f);
	return c;
}

size_t utf8_encode(uint32_t c, char ret[4])
{
	static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		ret[i] = (char)(0x80 | (c & 0x3f));
	ret[0] = (char)(lead[n] | c);
	return n;
}

bool utf8_valid(const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t step = utf8_step(s + i, n - i);

		if (step == 0)
			return false;
		i += step;
	}
	return true;
}

bool is_ascii(const char *s)
{
	while (*s && !(*s & 0x80))
		s++;
	return !*s;
}

bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n > m && strcmp(s + n - m, end) == 0;
}

int utf8_quoted(const char *s, size_t n)
{
	size_t end = MIN(n, (size_t)64);

	while (end && end < n && ((uint8_t)s[end] & 0xc0) == 0x80)
		end--;
	return (int)end;
}

int hex_value(int c)
{
	int lower = c | 0x20;

	if (c >= '0' && c <= '9')
		return c - '0';
	return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
}

void hex_encode(const uint8_t *data, size_t n, char *ret_hex)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		ret_hex[2 * i] = digits[data[i] >> 4];
		ret_hex[2 * i + 1] = digits[data[i] & 15];
	}
	ret_hex[2 * n] = '\0';
}

/* A digit's value + 1; 0: no digit. A table, since a MANIFEST has 64 of them a line. */
static const uint8_t hex_digits[256] = {
	['0'] = 1,  ['1'] = 2,	['2'] = 3,  ['3'] = 4,	['4'] = 5,  ['5'] = 6,
	['6'] = 7,  ['7'] = 8,	['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12,
	['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

bool hex_valid(const char *hex, size_t n)
{
	for (size_t i = 0; i < 2 * n; i++)
		if (!hex_digits[(uint8_t)hex[i]])
			return false;
	return true;
}

bool hex_decode(const char *hex, size_t n, uint8_t *ret_data)
{
	if (!hex_valid(hex, n))
		return false;
	for (size_t i = 0; i < n; i++)
		ret_data[i] = (uint8_t)((hex_digits[(uint8_t)hex[2 * i]] - 1) << 4 |
					(hex_digits[(uint8_t)hex[2 * i + 1]] - 1));
	return true;
}

size_t ascii_run(const char *s, size_t n)
{
	const uint64_t ones = 0x0101010101010101ULL;
	size_t i = 0;
	uint64_t x;

	for (; n - i >= 8; i += 8) {
		memcpy(&x, s + i, 8);
		/* >= 0x80, < 0x20 or 0x7f; a borrow flags only bytes behind such a one */
		if ((x | ((x - 0x20 * ones) & ~x) | (x + ones)) & (0x80 * ones))
			break;
	}
	while (i < n && s[i] >= 0x20 && s[i] < 0x7f)
		i++;
	return i;
}

static const char *component_fault(const char *s, size_t n)
{
	if (n == 0)
		return "has an empty component";
	if (n == 1 && s[0] == '.')
		return "has a \".\" component";
	if (n == 2 && s[0] == '.' && s[1] == '.')
		return "has a \"..\" component";
	if (n > MAX_COMPONENT)
		return "has a component of more than 255 bytes";
	return NULL;
}

const char *path_fault(const char *path, size_t n)
{
	size_t start = 0;
	bool plain;

	if (n == 0)
		return "is empty";
	if (n > MAX_PATH_LEN)
		return "is longer than 4095 bytes";
	if (path[0] == '/')
		return "is absolute";
	if (n >= 2 && path[1] == ':' && ((path[0] | 32) >= 'a' && (path[0] | 32) <= 'z'))
		return "begins with a drive letter";
	plain = ascii_run(path, n) == n && !memchr(path, '\\', n);
	if (!plain && !utf8_valid(path, n))
		return "is not UTF-8";
	for (size_t i = 0; i <= n; i++) {
		const char *slash = plain ? memchr(path + i, '/', n - i) : NULL;

		if (plain)
			i = slash ? (size_t)(slash - path) : n;
		if (i == n || path[i] == '/') {
			const char *fault = component_fault(path + start, i - start);

			if (fault)
				return fault;
			start = i + 1;
		} else if (path[i] == '\\') {
			return "has a backslash";
		} else if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f ||
			   ((unsigned char)path[i] == 0xc2 && (unsigned char)path[i + 1] < 0xa0)) {
			/* C0, DEL and C1 (U+0080 to U+009F) */
			return "has a control character";
		}
	}
	return NULL;
}

int64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

bool clock_is_set(void)
{
	return (int64_t)time(NULL) >= CARTON_BUILT;
}

bool clock_is_future(int64_t when)
{
	return clock_is_set() && when > (int64_t)time(NULL) + CLOCK_SLACK_S;
}

int64_t now_ms(void)
{
	return now_us() / 1000;
}

struct timespec ms_to_timespec(int64_t ms)
{
	return (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
}

void cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* else a denied call cannot be logged */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(ret, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

int pread_full(int fd, void *ret_buf, size_t n, uint64_t off)
{
	char *p = ret_buf;

	while (n > 0) {
		ssize_t got = pread(fd, p, n, (off_t)off);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		p += got;
		n -= (size_t)got;
		off += (uint64_t)got;
	}
	return 0;
}

int pwrite_full(int fd, const void *data, size_t n, uint64_t off)
{
	const char *p = data;
	struct file_size_guard guard;
	int r = 0;

	file_size_guard(&guard);
	while (n > 0 && r == 0) {
		ssize_t put = pwrite(fd, p, n, (off_t)off);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0) {
			r = put < 0 ? -errno : -EIO;
			break;
		}
		p += put;
		n -= (size_t)put;
		off += (uint64_t)put;
	}
	file_size_release(&guard);
	return r;
}

int fd_named(const char *path)
{
	unsigned fd;
	int end = 0;

	return sscanf(path, "/dev/fd/%9u%n", &fd, &end) == 1 && !path[end] ? (int)fd : -1;
}

int fd_dup(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return copy < 0 ? -errno : copy;
}

void fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
}

ssize_t mem_text_read(void *ctx, void *ret_buf, size_t n)
{
	struct mem_text *m = ctx;

	n = MIN(n, m->n);
	if (n == 0) /* its text may be NULL */
		return 0;
	memcpy(ret_buf, m->text, n);
	m->text += n;
	m->n -= n;
	return (ssize_t)n;
}
