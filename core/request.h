/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: what the outside waits for. Pinning a file waits for the objects of all its extents;
 * a late read waits for a disk. See carton.h for what they promise.
 */
#ifndef CARTON_REQUEST_H
#define CARTON_REQUEST_H

#include "carton.h"
#include "tree/tree.h"
#include "base/workers.h"

/* As carton_pin(), carton_unpin(), carton_size(), carton_list(), carton_read() and carton_read_later(). */
int request_pin(struct node *file, carton_done_fn *done, void *ctx, struct carton_request **ret);
int request_pin_tapped(struct node *file, struct carton_tap *tap, carton_done_fn *done, void *ctx,
		       struct carton_request **ret);
void request_unpin(struct node *file);
int request_list(struct node *dir, carton_done_fn *done, void *ctx, struct carton_request **ret);
int request_size(struct node *file, carton_done_fn *done, void *ctx, struct carton_request **ret);
ssize_t request_read(struct node *file, void *ret_buf, size_t n, uint64_t off, bool nowait);
int request_read_later(struct workers *w, struct node *file, size_t n, uint64_t off,
		       carton_done_fn *done, void *ctx, struct carton_request **ret);

#endif
