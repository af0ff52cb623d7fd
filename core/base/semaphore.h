/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A semaphore whose waits end by a time of now_ms(). The thread sanitizer does not know
 * sem_clockwait(3).
 *
 * Threads: any.
 */
#ifndef CARTON_BASE_SEMAPHORE_H
#define CARTON_BASE_SEMAPHORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct semaphore {
	pthread_mutex_t lock; /* guards count */
	pthread_cond_t raised;
	unsigned count;
};

void semaphore_init(struct semaphore *s, unsigned count);

/* The caller makes sure that no thread waits or posts any more. */
void semaphore_finish(struct semaphore *s);

void semaphore_post(struct semaphore *s);

/* Lowers the count by one; waits until `until_ms` for a count above 0. False: it stayed 0. */
bool semaphore_wait(struct semaphore *s, int64_t until_ms);

#endif
