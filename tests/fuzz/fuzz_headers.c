/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a header file: what is accepted is lines `Name: value` that cannot be taken for two,
 * nor change what the request means; written again, they are the same.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "http/policy.h"

#include "fuzz.h"

static int load(const void *data, size_t n, char ***ret)
{
	char path[32];
	int fd = fuzz_file(data, n, path), r = http_headers_load(path, ret);

	CHECK(r == 0 || r == -EINVAL || r == -EFBIG);
	fd_close(fd);
	return r;
}

static void check_line(const char *line)
{
	static const char *const refused[] = {
		"host:",       "range:",    "content-length:", "transfer-encoding:",
		"connection:", "if-range:", "accept-encoding:"
	};
	const char *colon = strchr(line, ':');
	size_t n;

	CHECK(colon && colon > line);
	/* a token, as RFC 9110 has it */
	for (const char *p = line; p < colon; p++)
		CHECK((unsigned char)*p > ' ' && (unsigned char)*p < 0x7f &&
		      !strchr("()<>@,;:\\\"/[]?={}", *p));
	CHECK(colon[1 + strspn(colon + 1, " \t")]);
	for (const char *p = colon + 1; *p; p++)
		CHECK(((unsigned char)*p >= ' ' || *p == '\t') && *p != 0x7f);
	n = (size_t)(colon - line) + 1;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		CHECK(strlen(refused[i]) != n || strncasecmp(line, refused[i], n) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct buf text = buf_init(2 * HTTP_MAX_HEADER_FILE);
	char **headers, **again;
	size_t count = 0;

	if (load(data, n, &headers) < 0)
		return 0;
	CHECK(n <= HTTP_MAX_HEADER_FILE);
	for (; headers[count]; count++) {
		check_line(headers[count]);
		CHECK(buf_addf(&text, "%s\r\n", headers[count]) == 0);
	}
	CHECK(count <= HTTP_MAX_FILE_HEADERS);
	/* the two bytes at the end of each line may be too many */
	if (text.len <= HTTP_MAX_HEADER_FILE) {
		CHECK(load(text.data, text.len, &again) == 0);
		for (size_t i = 0; i <= count; i++)
			CHECK(i == count ? !again[i] : strcmp(again[i], headers[i]) == 0);
		http_headers_free(again);
	}
	http_headers_free(headers);
	buf_finish(&text);
	return 0;
}
