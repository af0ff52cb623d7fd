/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the two halves of tensors.h: one tensor as it is read (tensors.c), and all of them
 * together and against the carton (tensors_check.c).
 */
#ifndef CARTON_TENSORS_PARTS_H
#define CARTON_TENSORS_PARTS_H

#include "tensors.h"

/*
 * Finds the problems that show only when all tensors are read: sorts the names, faults duplicates,
 * links nested tensors to their inner ones. Once for each index. Returns 0 or -ENOMEM.
 */
int tensors_judge(struct tensors *t);

#endif
