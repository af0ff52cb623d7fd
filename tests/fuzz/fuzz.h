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

/* A file with these bytes: its descriptor, and its name in `ret_path` (32 bytes) for what opens files. */
static inline int fuzz_file(const void *data, size_t n, char *ret_path)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	snprintf(ret_path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

#endif
