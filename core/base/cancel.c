/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cancel.h"

#include "base/util.h"

static void fire_child(struct cancel_hook *hook)
{
	cancel_fire(container_of(hook, struct cancel, in_parent));
}

void cancel_init(struct cancel *c, struct cancel *parent)
{
	*c = (struct cancel){ .parent = parent, .in_parent.fire = fire_child };
	pthread_mutex_init(&c->lock, NULL);
	cond_init(&c->changed);
	cancel_hook_add(parent, &c->in_parent);
}

void cancel_finish(struct cancel *c)
{
	cancel_hook_remove(c->parent, &c->in_parent);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
}

static void unlink_hook(struct cancel_hook *hook)
{
	*hook->link = hook->next;
	if (hook->next)
		hook->next->link = hook->link;
	hook->link = NULL;
}

void cancel_fire(struct cancel *c)
{
	if (atomic_exchange(&c->fired, true))
		return;
	pthread_mutex_lock(&c->lock);
	c->runner = pthread_self();
	pthread_cond_broadcast(&c->changed);
	while (c->hooks) {
		struct cancel_hook *hook = c->hooks;

		unlink_hook(hook);
		c->running = hook;
		pthread_mutex_unlock(&c->lock);
		hook->fire(hook);
		pthread_mutex_lock(&c->lock);
		c->running = NULL;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
}

void cancel_hook_add(struct cancel *c, struct cancel_hook *hook)
{
	bool now;

	hook->link = NULL;
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	/* Read under the lock: cancel_fire() sets it before it takes the lock to look for hooks. */
	now = atomic_load(&c->fired);
	if (!now) {
		hook->next = c->hooks;
		hook->link = &c->hooks;
		if (hook->next)
			hook->next->link = &hook->next;
		c->hooks = hook;
	}
	pthread_mutex_unlock(&c->lock);
	if (now)
		hook->fire(hook);
}

void cancel_hook_remove(struct cancel *c, struct cancel_hook *hook)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	if (hook->link)
		unlink_hook(hook);
	while (c->running == hook && !pthread_equal(c->runner, pthread_self()))
		pthread_cond_wait(&c->changed, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

int cancel_sleep(struct cancel *c, int64_t ms)
{
	struct timespec until = ms_to_timespec(now_ms() + ms);
	int r = 0;

	if (!c) {
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
			;
		return 0;
	}
	pthread_mutex_lock(&c->lock);
	while (r == 0 && !atomic_load(&c->fired))
		r = pthread_cond_timedwait(&c->changed, &c->lock, &until);
	pthread_mutex_unlock(&c->lock);
	return cancel_fired(c) ? -ECANCELED : 0;
}
