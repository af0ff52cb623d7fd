/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that one carton may take: tables (entries, the tree, views), tags, buffers whose size
 * the carton names, buffers of fetches, and kept content, which is dropped when others need the
 * memory. Buffers of a fixed size per thread are not counted.
 *
 * Unless the user has set the limit, a small carton has a small limit, so that a small file cannot
 * take much memory.
 *
 * Threads: any, once it is set up.
 */
#ifndef CARTON_BASE_BUDGET_H
#define CARTON_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct budget {
	uint64_t limit; /* in bytes */
	bool chosen;	/* the user has set the limit, so no other applies */
	_Atomic uint64_t used;
	_Atomic uint64_t tables; /* of `used`, for messages */

	/*
	 * Drops kept content, at least `n` bytes if there is so much; NULL: none is kept. Called
	 * without locks.
	 */
	void (*make_room)(void *ctx, uint64_t n);
	void *ctx;
};

/* `limit` 0: half of the limit of the control group, or a quarter of the machine's memory. */
void budget_init(struct budget *b, uint64_t limit);

/* Limits the budget by the size of the carton's file. */
void budget_limit_by_size(struct budget *b, uint64_t file_size);

/*
 * Counts `n` bytes for tables, before they are allocated. 0; -EFBIG: more than the limit, which is
 * logged with the number that is needed. A small table is refused only because of other tables, not
 * because of buffers, which are freed soon. `b` may be NULL, here and below: no limit.
 */
int budget_take(struct budget *b, uint64_t n);

/* Logs that `n` bytes more are too much, as budget_take() does. -EFBIG. */
int budget_refuse(const struct budget *b, uint64_t n);

void budget_give(struct budget *b, uint64_t n);

/*
 * The same, but not logged, and a table of any size is refused only because of other tables. False:
 * more than the limit. Not with locks.
 */
bool budget_try(struct budget *b, uint64_t n);

/*
 * Counts a table of *cap items of `size` bytes before array_grow() to `need`, and adds that to
 * *taken.
 */
int budget_grow(struct budget *b, uint64_t *taken, size_t cap, size_t need, size_t size);

/* budget_grow(), then array_grow() of the pointer `array` (util.h). 0, -ENOMEM or -EFBIG. */
#define budget_room(b, taken, array, cap, need)                                       \
	({                                                                            \
		int budget_r = budget_grow(b, taken, *(cap), need, sizeof(*(array))); \
                                                                                      \
		budget_r < 0 ? budget_r : array_room(array, cap, need);               \
	})

/* Counts `n` bytes of kept content; false: there is no room. */
bool budget_keep(struct budget *b, uint64_t n);

/*
 * Counts `n` bytes of a buffer; drops kept content for it. False: there is no room. Not with locks.
 */
bool budget_hold(struct budget *b, uint64_t n);

/* Counts `n` bytes that cannot be refused, even over the limit; later calls get less. */
void budget_charge(struct budget *b, uint64_t n);

/* Gives back `n` bytes that budget_keep(), budget_hold() or budget_charge() has counted. */
void budget_drop(struct budget *b, uint64_t n);

/* Bytes that are free now. */
uint64_t budget_left(const struct budget *b);

/*
 * The least limit in the control groups of `groups`, a file as /proc/self/cgroup, and all above
 * them, below the directory `root` (/sys/fs/cgroup). UINT64_MAX: none.
 */
uint64_t budget_group_limit(const char *groups, const char *root);

#endif
