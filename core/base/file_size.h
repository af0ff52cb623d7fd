/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of the size of files: RLIMIT_FSIZE, which is ulimit -f. Who writes beyond it gets
 * SIGXFSZ, and that ends a process which does not ignore it. What a program does at signals is its
 * own affair. So each call of this library that lets a file grow blocks SIGXFSZ for its thread, and
 * fails with -EFBIG: pwrite_full() of util.h, and those here.
 *
 * Memory files have the limit, too.
 */
#ifndef CARTON_BASE_FILE_SIZE_H
#define CARTON_BASE_FILE_SIZE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How many bytes a file may have; UINT64_MAX: any number. */
uint64_t file_size_limit(void);

/* Between the two calls SIGXFSZ waits, if there is a limit. One that came in between is dropped. */
struct file_size_guard {
	bool blocked;  /* by file_size_guard() */
	sigset_t mask; /* of the thread before */
};
void file_size_guard(struct file_size_guard *ret);
void file_size_release(const struct file_size_guard *guard);

/* ftruncate(2): 0 or -errno. */
int fd_resize(int fd, uint64_t size);

/* One write(2): the bytes that were written, or -errno. */
ssize_t fd_append(int fd, const void *data, size_t n);

#endif
