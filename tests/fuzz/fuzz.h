/* SPDX-License-Identifier: Apache-2.0 */
/* What all fuzz targets need. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define CHECK(what)              \
	do {                     \
		if (!(what))     \
			abort(); \
	} while (0)

/*
 * A file with these bytes: its descriptor, and its name in `ret_path` (32 bytes) for what opens
 * files.
 */
static inline int fuzz_file(const void *data, size_t n, char *ret_path)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	snprintf(ret_path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

/*
 * Changes `size` bytes as the input says, which begins with any number of: a byte 1, an offset in
 * two bytes, a length, the new bytes. Moves *data and *n behind them.
 */
__attribute__((unused)) static void fuzz_patch(void *bytes, size_t size, const uint8_t **data,
					       size_t *n)
{
	while (*n >= 4 && (*data)[0] == 1) {
		size_t at = (size_t)((*data)[1] | (*data)[2] << 8) % size, len = (*data)[3];

		*data += 4;
		*n -= 4;
		if (len > *n)
			len = *n;
		if (len > size - at)
			len = size - at;
		memcpy((char *)bytes + at, *data, len);
		*data += len;
		*n -= len;
	}
}

#endif
