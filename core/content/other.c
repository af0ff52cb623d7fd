/* SPDX-License-Identifier: Apache-2.0 */
#include "content/other.h"

#include "base/util.h"
#include "cache/cache.h"
#include "content/internal.h"

static void on_cancel(struct cancel_hook *hook)
{
	task_wake(&container_of(hook, struct other, hook)->task);
}

static int look(struct other *o)
{
	int64_t now = now_ms();
	uint64_t at;
	int r;

	if (cancel_fired(&o->waits->cancel))
		return -ECANCELED;
	r = o->look(o, &at);
	if (r != -EAGAIN)
		return r;
	if (at > o->at || !o->until_ms) {
		waits_progress(o->waits, at - MIN(at, o->at));
		o->at = at;
		o->until_ms = now + o->patience_ms;
	}
	return now < o->until_ms ? -EAGAIN : -ETIMEDOUT;
}

static bool step(struct task *t)
{
	struct other *o = container_of(t, struct other, task);
	int r;

	/* in a step: a hook that fires at once cannot end the task while it is being started */
	if (!o->hook.fire) {
		o->hook.fire = on_cancel;
		cancel_hook_add(&o->waits->cancel, &o->hook);
	}
	r = look(o);
	if (r == -EAGAIN) {
		o->step_ms = MIN(MAX(2 * o->step_ms, 1), CACHE_WAIT_STEP_MS);
		task_wake_at(t, now_ms() + o->step_ms);
		return true;
	}
	cancel_hook_remove(&o->waits->cancel, &o->hook);
	task_finish(t);
	o->done(o, r);
	return false;
}

void other_wait(struct other *o)
{
	const struct object *object = o->waits->object;

	o->hook.fire = NULL;
	o->until_ms = o->step_ms = 0;
	task_init(&o->task, object->store->options.events, object->ops->lane(object), step);
	task_wake(&o->task);
}
