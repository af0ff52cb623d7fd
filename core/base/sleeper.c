/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sleeper.h"

#include <stdlib.h>

#include "base/failure.h"
#include "base/util.h"
#include "base/workers.h"

static void fire(struct cancel_hook *hook)
{
	struct sleeper *s = container_of(hook, struct sleeper, hook);

	pthread_mutex_lock(&s->lock);
	s->fired = true;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void sleeper_init(struct sleeper *s)
{
	*s = (struct sleeper){ .hook.fire = fire };
	pthread_mutex_init(&s->lock, NULL);
	cond_init(&s->changed);
}

void sleeper_finish(struct sleeper *s)
{
	free(s->failure);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
}

void sleeper_wake(struct sleeper *s, int result)
{
	pthread_mutex_lock(&s->lock);
	s->woken = true;
	s->result = result;
	if (result < 0)
		failure_keep(&s->failure);
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static int wait_here(struct sleeper *s, struct cancel *cancel)
{
	bool woken;

	s->fired = false;
	cancel_hook_add(cancel, &s->hook);
	pthread_mutex_lock(&s->lock);
	while (!s->woken && !s->fired)
		pthread_cond_wait(&s->changed, &s->lock);
	woken = s->woken;
	pthread_mutex_unlock(&s->lock);
	cancel_hook_remove(cancel, &s->hook);
	return woken ? 0 : -ECANCELED;
}

int sleeper_wait(struct sleeper *s, struct cancel *cancel)
{
	bool counted = workers_block();
	int r = counted || !cancel ? wait_here(s, cancel) : -EBUSY;

	if (counted)
		workers_unblock();
	if (r == 0)
		failure_set(s->failure);
	return r;
}

bool sleeper_wait_until(struct sleeper *s, int64_t until_ms)
{
	const struct timespec until = ms_to_timespec(until_ms);
	int r = 0;
	bool woken;

	pthread_mutex_lock(&s->lock);
	while (!s->woken && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	woken = s->woken;
	pthread_mutex_unlock(&s->lock);
	return woken;
}
