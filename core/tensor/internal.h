/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by safetensors.c (the parser) and safetensors_check.c (checks across all tensors). */
#ifndef CARTON_TENSOR_INTERNAL_H
#define CARTON_TENSOR_INTERNAL_H

#include "tensor/safetensors.h"

/* A tensor in a message. */
#define TENSOR_FMT "tensor '%.*s'"
#define TENSOR_ARG(i) utf8_quoted((i)->name, (i)->name_len), (i)->name

/* Sets the reason for a duplicate key. Returns -EBADMSG. */
int safetensors_duplicate(const char *key, size_t n, struct reason *reason);

/*
 * Checks all tensors together: no name twice, and their data covers the `data` bytes without hole
 * or overlap. 0; -EBADMSG with the reason set; -ENOMEM.
 */
int safetensors_check(const struct safetensors *s, uint64_t data, struct reason *reason);

#endif
