/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/queue.h"

#include <stddef.h>

void queue_add(struct queue *q, struct queue_slot *slot)
{
	struct queue_slot **at = &q->first;

	if (slot->link)
		return;
	while (*at && (slot->yields || !(*at)->yields))
		at = &(*at)->next;
	slot->next = *at;
	if (slot->next)
		slot->next->link = &slot->next;
	slot->link = at;
	*at = slot;
}

void queue_remove(struct queue_slot *slot)
{
	if (!slot->link)
		return;
	*slot->link = slot->next;
	if (slot->next)
		slot->next->link = slot->link;
	slot->link = NULL;
}

void queue_wake(const struct queue *q, bool all)
{
	for (struct queue_slot *slot = q->first; slot; slot = all ? slot->next : NULL)
		task_wake(slot->task);
}
