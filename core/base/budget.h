/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that one carton may take: tables (what the carton lists, the tree, views), and kept
 * content, which gives way to tables. Buffers of a fixed size per thread are not counted.
 *
 * Tables have a second limit, so that a small carton cannot make large ones.
 *
 * Threads: any, once it is set up.
 */
#ifndef CARTON_BASE_BUDGET_H
#define CARTON_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct budget {
	uint64_t limit;	       /* of all, in bytes */
	uint64_t tables_limit; /* of tables, at most `limit` */
	bool chosen;	       /* the user has set the limit, and no other holds */
	_Atomic uint64_t used, tables;

	/* Drops kept content, at least `n` bytes if there is so much; NULL: none is kept. Not with locks. */
	void (*make_room)(void *ctx, uint64_t n);
	void *ctx;
};

/* `limit` 0: half of what the control group may use, or a quarter of the machine's memory. */
void budget_init(struct budget *b, uint64_t limit);

/* Limits tables by the size of the file that they are made from. */
void budget_limit_tables(struct budget *b, uint64_t file_size);

/*
 * Counts `n` bytes for tables, before they are allocated. 0; -EFBIG: more than the limit, which is logged
 * with the number that is needed. `b` may be NULL, here and below: no limit.
 */
int budget_take(struct budget *b, uint64_t n);
void budget_give(struct budget *b, uint64_t n);

/* Counts `n` bytes of kept content; false: there is no room. */
bool budget_keep(struct budget *b, uint64_t n);
void budget_drop(struct budget *b, uint64_t n);

/* Bytes that are free now. */
uint64_t budget_left(const struct budget *b);

/*
 * The least limit in the control groups of `groups`, a file as /proc/self/cgroup, and all above them, below
 * the directory `root` (/sys/fs/cgroup). UINT64_MAX: none.
 */
uint64_t budget_group_limit(const char *groups, const char *root);

#endif
