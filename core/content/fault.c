/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/failure.h"
#include "base/util.h"
#include "content/internal.h"

#define MAX_FAULTS 256 /* texts; of the oldest only the name is told */

static void drop(struct fault **at)
{
	struct fault *f = *at;

	*at = f->next;
	free(f->text);
	free(f);
}

void fault_keep(const struct object *o)
{
	struct fault **at = &o->store->faults, *f;
	char *text = failure_copy();

	f = text ? calloc(1, sizeof(*f)) : NULL;
	if (!f) {
		free(text);
		return;
	}
	*f = (struct fault){ .next = *at, .object = o, .text = text };
	*at = f;
	at = &f->next;
	for (size_t n = 1; *at; n++) {
		if (n >= MAX_FAULTS || (*at)->object == o)
			drop(at);
		else
			at = &(*at)->next;
	}
}

int fault_again(const struct object *o)
{
	for (const struct fault *f = o->store->faults; f; f = f->next)
		if (f->object == o) {
			failure_set(f->text);
			return -EBADMSG;
		}
	return error_again(-EBADMSG, o->name, "was found damaged before; get it again");
}

void fault_finish(struct object_store *s)
{
	while (s->faults)
		drop(&s->faults);
}
