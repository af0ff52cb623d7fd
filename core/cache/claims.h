/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who fetches which bytes of a sparse file that several processes fill (cache_join()): they are
 * claimed by a lock of just these bytes of the file (fcntl(2), F_OFD_SETLK), so a claim ends with
 * its process. It is a promise among friends, which saves fetching twice: no claim says that bytes
 * are right, or keeps anybody from writing.
 *
 * Claims are of open files: threads that have the same one do not see each other's. Threads: any.
 */
#ifndef CARTON_CACHE_CLAIMS_H
#define CARTON_CACHE_CLAIMS_H

#include <stdbool.h>
#include <stdint.h>

/* Claims [off, off+n), which may be claimed already. False: another one has some of it. */
bool claim_take(int fd, uint64_t off, uint64_t n);
void claim_give(int fd, uint64_t off, uint64_t n);

/* Has another one claimed some of [off, off+n)? */
bool claim_is_taken(int fd, uint64_t off, uint64_t n);

#endif
