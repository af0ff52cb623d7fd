/* SPDX-License-Identifier: Apache-2.0 */
#include "base/names.h"

#include <stdio.h>
#include <string.h>

#define SHOWN 3
#define ROOM_FOR_MORE 32 /* " and 2000000 more" */

void names_add(struct names *names, const char *name)
{
	size_t used = strlen(names->text), room = sizeof(names->text) - ROOM_FOR_MORE - used;

	/* the first one is there in any case, perhaps cut */
	if (names->shown == names->n && names->shown < SHOWN &&
	    (names->shown == 0 || strlen(name) + strlen(", ") < room)) {
		snprintf(names->text + used, room, "%s%s", names->shown ? ", " : "", name);
		names->shown++;
	}
	names->n++;
}

const char *names_end(struct names *names)
{
	size_t used = strlen(names->text);

	if (names->n > names->shown)
		snprintf(names->text + used, sizeof(names->text) - used, " and %zu more",
			 names->n - names->shown);
	return names->text;
}
