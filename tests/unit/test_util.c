/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, text, names, exact I/O, and the log that all of it goes to. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_size.h"
#include "base/names.h"
#include "zip_help.h"

/* ---- buffers ---- */

static void test_buf(void **state)
{
	struct buf b = buf_init(100);

	(void)state;
	assert_int_equal(buf_add(&b, NULL, 0), 0);
	assert_string_equal(b.data, "");
	assert_int_equal(buf_adds(&b, "abc"), 0);
	assert_int_equal(buf_addc(&b, '-'), 0);
	assert_int_equal(buf_addf(&b, "%d/%s", 42, "x"), 0);
	assert_string_equal(b.data, "abc-42/x");
	assert_int_equal(b.len, 8);
	buf_finish(&b);
	assert_null(b.data);
	assert_int_equal(buf_adds(&b, "again"), 0);
	assert_string_equal(b.data, "again");
	buf_finish(&b);
	buf_finish(NULL);
}

static void test_buf_bound(void **state)
{
	struct buf b = buf_init(8);
	char *before;

	(void)state;
	assert_int_equal(buf_adds(&b, "12345678"), 0);
	before = b.data;
	assert_int_equal(buf_addc(&b, '9'), -EFBIG);
	assert_int_equal(buf_addf(&b, "%c", '9'), -EFBIG);
	assert_int_equal(buf_reserve(&b, SIZE_MAX), -EFBIG);
	assert_int_equal(buf_add_json(&b, "", 0), -EFBIG);
	assert_ptr_equal(b.data, before);
	assert_string_equal(b.data, "12345678");
	b.len = 5;
	b.data[5] = '\0';
	/* there is room now, but something is missing before it */
	assert_int_equal(buf_addc(&b, 'x'), -EFBIG);
	assert_int_equal(buf_add_json(&b, "", 0), -EFBIG);
	assert_string_equal(b.data, "12345");
	assert_int_equal(b.len, 5);
	buf_finish(&b);
	assert_int_equal(buf_add_json(&b, "abcdef", 6), 0);
	assert_string_equal(b.data, "\"abcdef\"");
	buf_finish(&b);
	assert_int_equal(buf_add_json(&b, "abcdefg", 7), -EFBIG);
	buf_finish(&b);

	b = buf_init(SIZE_MAX);
	assert_true(buf_reserve(&b, SIZE_MAX) < 0);
	buf_finish(&b);
	assert_int_equal(buf_adds(&b, "x"), 0);
	buf_finish(&b);
}

static void test_buf_grows(void **state)
{
	struct buf b = buf_init(10000);

	(void)state;
	for (size_t i = 0; i < 10000; i++) {
		assert_int_equal(buf_addc(&b, (char)('a' + i % 26)), 0);
		assert_int_equal(b.data[i + 1], 0);
	}
	assert_int_equal(buf_addc(&b, '!'), -EFBIG);
	for (size_t i = 0; i < 10000; i++)
		assert_int_equal(b.data[i], 'a' + i % 26);
	buf_finish(&b);
}

static void test_json(void **state)
{
	static const char in[] = "\"\\\b\f\n\r\t\x01\x1f\x7f\xc3\xa9\xff\xf0\x9f\xa5\xb3\0z";
	struct buf b = buf_init(1000);

	(void)state;
	assert_int_equal(buf_add_json(&b, in, sizeof(in) - 1), 0);
	assert_string_equal(b.data,
			    "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\xef\xbf\xbd"
			    "\xf0\x9f\xa5\xb3\\u0000z\"");
	buf_finish(&b);
}

/* ---- text ---- */

static void test_utf8(void **state)
{
	static const char *const good[] = {
		"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
		"\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
	}, *const bad[] = {
		"\x80", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x7f", "\xe0\x9f\xbf", "\xe0\xa0",
		"\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80", "\xfe", "\xff", "a\xc3", "\xe2\x82x", "\xf0\x9f\xa5z",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(utf8_valid(good[i], strlen(good[i])));
		assert_int_equal(utf8_step(good[i], strlen(good[i])), strlen(good[i]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(utf8_valid(bad[i], strlen(bad[i])));
	assert_true(utf8_valid("\0", 1));
	assert_int_equal(utf8_step("a", 0), 0);
}

static void test_hex_value(void **state)
{
	(void)state;
	assert_int_equal(hex_value('0'), 0);
	assert_int_equal(hex_value('9'), 9);
	assert_int_equal(hex_value('a'), 10);
	assert_int_equal(hex_value('F'), 15);
	for (int c = -1; c < 256; c++)
		if (c < 0 || !strchr("0123456789abcdefABCDEF", c) || !c)
			assert_int_equal(hex_value(c), 16);
}

static void test_hex(void **state)
{
	uint8_t data[4] = { 0, 0x9a, 0xff, 0x10 }, got[4] = { 7, 7, 7, 7 };
	char hex[9];

	(void)state;
	hex_encode(data, 4, hex);
	assert_string_equal(hex, "009aff10");
	assert_false(hex_decode("009aff1", 4, got)); /* the NUL is no digit */
	assert_false(hex_decode("009AFF10", 4, got));
	assert_false(hex_decode("009aff1g", 4, got));
	assert_memory_equal(got, "\7\7\7\7", 4);
	assert_true(hex_decode("009aff10zz", 4, got));
	assert_memory_equal(got, data, 4);
}

static void test_path(void **state)
{
	static const char *const good[] = {
		"a", "a/b", "...", "a=b c", "model/w.bin", ".hidden", "1:2", "ab:c", "a..b/..c",
		"\xf0\x9f\xa5\xb3", "\xc2\xa0", "\xc3\x80/x",
	}, *const bad[] = {
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/./b", "a/..", "../a",
		"a\\b", "c:", "C:x", "a\n", "a\x7f", "a/\x1f", "\xff", "a/\xed\xa0\x80",
		/* beside characters that are not ASCII; and controls of C1 */
		"\xc3\xa9/../x", "\xc3\xa9//x", "\xc3\xa9\\x", "\xc3\xa9\x1f",
		"\xc3\xa9\x7f", "a\xc2\x80", "\xc2\x9b", "a/\xc2\x9f/b",
	};
	char path[MAX_PATH_LEN + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_null(path_fault(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (!path_fault(bad[i], strlen(bad[i])))
			fail_msg("\"%s\" passed", bad[i]);
	assert_non_null(path_fault("a\0b", 3));

	memset(path, 'x', sizeof(path));
	assert_null(path_fault(path, MAX_COMPONENT));
	assert_string_equal(path_fault(path, MAX_COMPONENT + 1),
			    "has a component of more than 255 bytes");
	for (size_t i = 200; i < sizeof(path); i += 200)
		path[i] = '/';
	assert_null(path_fault(path, MAX_PATH_LEN));
	assert_string_equal(path_fault(path, MAX_PATH_LEN + 1), "is longer than 4095 bytes");
}

static void test_io(void **state)
{
	int fd = memfd_create("test", MFD_CLOEXEC), pipes[2];
	char got[8] = "", more[8];

	(void)state;
	assert_int_equal(pwrite_full(fd, "hello", 5, 3), 0);
	assert_int_equal(pread_full(fd, got, 5, 3), 0);
	assert_memory_equal(got, "hello", 5);
	assert_int_equal(pread_full(fd, got, 8, 0), 0);
	assert_memory_equal(got, "\0\0\0hello", 8);
	assert_int_equal(pread_full(fd, more, 8, 1), -ENODATA);
	assert_int_equal(pread_full(fd, more, 0, 100), 0);
	assert_int_equal(pread_full(-1, more, 1, 0), -EBADF);
	assert_int_equal(pwrite_full(-1, more, 1, 0), -EBADF);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(pread_full(pipes[0], more, 1, 0), -ESPIPE);
	close(pipes[0]);
	close(pipes[1]);
	errno = 42;
	fd_close(fd);
	fd_close(-1);
	fd_close(fd); /* EBADF */
	assert_int_equal(errno, 42);
}

static void test_le(void **state)
{
	uint8_t b[9] = { 0 };

	(void)state;
	put_le64(b + 1, 0x1122334455667788);
	assert_int_equal(b[1], 0x88);
	assert_int_equal(get_le16(b + 1), 0x7788);
	assert_int_equal(get_le32(b + 1), 0x55667788);
	assert_true(get_le64(b + 1) == 0x1122334455667788);
	put_le64(b, UINT64_MAX);
	assert_true(get_le64(b) == UINT64_MAX && get_le32(b) == UINT32_MAX);
	put_le16(b, 0xfffe);
	put_le32(b + 2, 0xfffffffd);
	assert_true(get_le16(b) == 0xfffe && get_le32(b + 2) == 0xfffffffd);
	assert_true(now_ms() <= now_ms());
}

/* ---- the log ---- */

static void test_log(void **state)
{
	struct log_seen seen = { 0 };

	(void)state;
	carton_log(CARTON_LOG_ERROR, "nobody", "listens");
	carton_log_set(log_note, &seen);
	errno = 42;
	carton_log(CARTON_LOG_ERROR, "a\n\x1b[2J\x7f\xff\xc2\x9b\xc2\xa0\xc3\xa9", "%s: %d", "m\r",
		   7);
	assert_int_equal(errno, 42);
	assert_string_equal(seen.subject, "a\\x0a\\x1b[2J\\x7f\\xff\\xc2\\x9b\xc2\xa0\xc3\xa9");
	assert_string_equal(seen.message, "m\\x0d: 7");
	carton_log(CARTON_LOG_INFO, NULL, "plain");
	assert_string_equal(seen.subject, "");
	assert_int_equal(seen.n, 2);
	carton_log_set(NULL, NULL);
	carton_log(CARTON_LOG_INFO, NULL, "dropped");
	assert_int_equal(seen.n, 2);
}

static void note_length(void *ctx, enum carton_log_level level, const char *subject,
			const char *message)
{
	size_t *longest = ctx;

	(void)level;
	assert_true(utf8_valid(subject, strlen(subject)));
	assert_true(utf8_valid(message, strlen(message)));
	*longest = MAX(*longest, MAX(strlen(subject), strlen(message)));
}

/* Text of any length and kind comes out as bounded, valid UTF-8. */
static void test_log_long(void **state)
{
	size_t longest = 0;
	char *text = must(malloc(100001));

	(void)state;
	carton_log_set(note_length, &longest);
	for (size_t i = 0; i < 4; i++) {
		static const char *const units[] = { "x", "\xff", "\xf0\x9f\xa5\xb3", "\xc3\xa9" };
		size_t step = strlen(units[i]);

		for (size_t at = 0; at < 100000; at += step)
			memcpy(text + at, units[i], step);
		text[100000] = '\0';
		carton_log(CARTON_LOG_ERROR, text, "%s", text);
		carton_log(CARTON_LOG_ERROR, text + 1, "x%s", text);
	}
	carton_log_set(NULL, NULL);
	assert_in_range(longest, MAX_PATH_LEN, 4 * (MAX_PATH_LEN + 1));
	free(text);
}

/* Three names, as long as there is room for them; the first one in any case. */
static void test_names(void **state)
{
	struct names names = { 0 };
	char longest[500];

	(void)state;
	assert_string_equal(names_end(&names), "");
	names_add(&names, "a");
	names_add(&names, "b");
	names_add(&names, "c");
	assert_string_equal(names.text, "a, b, c");
	names_add(&names, "d");
	assert_string_equal(names_end(&names), "a, b, c and 1 more");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	names = (struct names){ 0 };
	for (size_t i = 0; i < 2000000; i++)
		names_add(&names, i == 1 ? "b" : longest);
	assert_int_equal(names.shown, 1);
	assert_string_equal(names_end(&names) + 127, " and 1999999 more");
	/* one that does not fit ends the list: those behind it would be out of order */
	names = (struct names){ 0 };
	names_add(&names, "a");
	names_add(&names, longest);
	names_add(&names, "c");
	assert_string_equal(names_end(&names), "a and 2 more");
}

/*
 * Beyond the limit of the size of files nothing ends this process, in which SIGXFSZ has its default
 * action, as in a host of the library.
 */
static void test_file_size(void **state)
{
	static const char text[200];
	int fd = memfd_create("limited", MFD_CLOEXEC);
	struct rlimit none, limit;
	sigset_t mask, pending, xfsz;

	(void)state;
	assert_true(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &none), 0);
	limit = (struct rlimit){ 100, none.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(file_size_limit(), 100);
	assert_int_equal(pwrite_full(fd, text, 100, 0), 0);
	assert_int_equal(pwrite_full(fd, text, 10, 95), -EFBIG);
	assert_int_equal(pwrite_full(fd, text, 1, 100), -EFBIG);
	assert_int_equal(fd_resize(fd, 101), -EFBIG);
	assert_int_equal(fd_resize(fd, 90), 0);
	assert_int_equal(lseek(fd, 0, SEEK_END), 90);
	assert_int_equal(fd_append(fd, text, 20), 10);
	assert_int_equal(fd_append(fd, text, 20), -EFBIG);
	assert_non_null(strstr(carton_write_error(-EFBIG), "ulimit -f"));
	/* the thread is as it was */
	assert_int_equal(sigpending(&pending), 0);
	assert_false(sigismember(&pending, SIGXFSZ));
	assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
	assert_false(sigismember(&mask, SIGXFSZ));
	/* a host that blocks the signal finds it, as with its own writes */
	sigemptyset(&xfsz);
	sigaddset(&xfsz, SIGXFSZ);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &xfsz, NULL), 0);
	assert_int_equal(pwrite_full(fd, text, 1, 100), -EFBIG);
	assert_int_equal(sigpending(&pending), 0);
	assert_true(sigismember(&pending, SIGXFSZ));
	assert_int_equal(sigtimedwait(&xfsz, NULL, &(struct timespec){ 0 }), SIGXFSZ);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &mask, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_int_equal(file_size_limit(), none.rlim_cur);
	assert_non_null(strstr(carton_write_error(-EFBIG), "file system"));
	assert_string_equal(carton_write_error(-ENOSPC), strerror(ENOSPC));
	close(fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hex_value), cmocka_unit_test(test_buf),
		cmocka_unit_test(test_buf_bound), cmocka_unit_test(test_buf_grows),
		cmocka_unit_test(test_json),	  cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_hex),	  cmocka_unit_test(test_path),
		cmocka_unit_test(test_io),	  cmocka_unit_test(test_le),
		cmocka_unit_test(test_log),	  cmocka_unit_test(test_log_long),
		cmocka_unit_test(test_names),	  cmocka_unit_test(test_file_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
