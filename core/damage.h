/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CARTON_DAMAGE_H
#define CARTON_DAMAGE_H

#include "internal.h"

/* The damaged() of the store of `carton`: tells the user of the carton which files show the object. */
void damage_found(void *carton, const struct object *o);

#endif
