/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that carton.toml, tensor_data/index.toml and the tree agree with each other and with the
 * format, and reports what the reference loader would refuse. Used by `cartonctl verify`; a mount
 * does not need it.
 */
#ifndef CARTON_CHECK_H
#define CARTON_CHECK_H

#include "internal.h"

/* Logs each problem as a warning. Returns their number, or -ENOMEM. */
ssize_t check_contents(struct carton *c);

#endif
