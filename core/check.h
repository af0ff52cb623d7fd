/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a carton make sense? What carton.toml and tensor_data/index.toml say, held against each other
 * and against the tree. None of it stops a mount; `cartonctl verify` tells it.
 */
#ifndef CARTON_CHECK_H
#define CARTON_CHECK_H

#include "internal.h"

/* Logs each problem as a warning. Returns how many, or -ENOMEM. */
ssize_t check_contents(struct carton *c);

#endif
