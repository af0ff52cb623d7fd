/* SPDX-License-Identifier: Apache-2.0 */
/* Which file follows another, for those who read files in order. Any thread. */
#ifndef FS_ORDER_H
#define FS_ORDER_H

#include "carton.h"

/*
 * The next file of the tree, which is in order of the names, behind at most `hops` directories and
 * symlinks. NULL: there is none.
 */
struct carton_node *order_next(const struct carton *c, struct carton_node *node, unsigned hops);

/*
 * The file beside this one whose name has the next number: x-2 behind x-1, which x-10 follows by
 * name. Of several numbers in the name it is the last one of which there is a next. NULL: none.
 */
struct carton_node *order_next_number(const struct carton_node *node);

#endif
