/* SPDX-License-Identifier: Apache-2.0 */
#include "base/semaphore.h"

#include "base/util.h"

void semaphore_init(struct semaphore *s, unsigned count)
{
	*s = (struct semaphore){ .lock = PTHREAD_MUTEX_INITIALIZER, .count = count };
	cond_init(&s->raised);
}

void semaphore_finish(struct semaphore *s)
{
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->raised);
}

void semaphore_post(struct semaphore *s)
{
	pthread_mutex_lock(&s->lock);
	s->count++;
	pthread_cond_signal(&s->raised);
	pthread_mutex_unlock(&s->lock);
}

bool semaphore_wait(struct semaphore *s, int64_t until_ms)
{
	struct timespec until = ms_to_timespec(until_ms);
	bool taken;

	pthread_mutex_lock(&s->lock);
	while (s->count == 0 && pthread_cond_timedwait(&s->raised, &s->lock, &until) == 0)
		;
	taken = s->count > 0;
	s->count -= taken;
	pthread_mutex_unlock(&s->lock);
	return taken;
}
