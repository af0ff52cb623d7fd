/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fails one allocation of a program, into which it is loaded by LD_PRELOAD: the one whose number is
 * NO_MEMORY_AT, from 1, and with NO_MEMORY_ON each one after it, too. Counts the allocations of all
 * threads and of forked processes, in the first 8 bytes of the file NO_MEMORY_COUNT.
 *
 * Allocations of libseccomp, which frees memory twice where it gets none, are neither counted nor
 * failed, nor are those of ld.so before the program begins.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* glibc's own, under names that nobody replaces */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

/* What is allocated before all libraries are there is not counted. */
static _Atomic uint64_t *count;
static uint64_t at;
static bool on;
static struct {
	uintptr_t first, last;
} seccomp;

static int find_seccomp(struct dl_phdr_info *info, size_t size, void *ctx)
{
	(void)size;
	(void)ctx;
	if (!strstr(info->dlpi_name, "libseccomp"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			seccomp.first = info->dlpi_addr + p->p_vaddr;
			seccomp.last = seccomp.first + p->p_memsz;
		}
	}
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("NO_MEMORY_COUNT"), *text = getenv("NO_MEMORY_AT");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
	void *map = MAP_FAILED;

	on = getenv("NO_MEMORY_ON") != NULL;
	at = text ? strtoull(text, NULL, 10) : 0;
	if (fd >= 0 && ftruncate(fd, sizeof(*count)) == 0)
		map = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (map == MAP_FAILED)
		_exit(99);
	dl_iterate_phdr(find_seccomp, NULL);
	count = map;
}

static bool fails(const void *caller)
{
	uintptr_t by = (uintptr_t)caller;
	uint64_t n;

	if (!count || (by >= seccomp.first && by < seccomp.last))
		return false;
	n = atomic_fetch_add(count, 1) + 1;
	if (!(n == at || (on && at && n > at)))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **ret, size_t align, size_t n)
{
	void *p = aligned_alloc(align, n);

	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}
