/* SPDX-License-Identifier: Apache-2.0 */
#include "content/rates.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "fetch/server.h"

/* after so many slower answers the shortest time is too short by an eighth */
#define SLOWER 64
/* a rate is of at least so long */
#define RATE_US 20000

struct rated {
	struct rated *next;
	struct server_rates rates;
	char name[];
};

void server_rates_init(struct server_rates *s)
{
	*s = (struct server_rates){ .rate = 0 };
	pthread_mutex_init(&s->lock, NULL);
}

void server_rates_finish(struct server_rates *s)
{
	pthread_mutex_destroy(&s->lock);
}

/* ---- the table ---- */

void rates_init(struct rates *r)
{
	*r = (struct rates){ .n = 0 };
	pthread_mutex_init(&r->lock, NULL);
	server_rates_init(&r->others);
}

void rates_finish(struct rates *r)
{
	while (r->list) {
		struct rated *s = r->list;

		r->list = s->next;
		server_rates_finish(&s->rates);
		free(s);
	}
	server_rates_finish(&r->others);
	pthread_mutex_destroy(&r->lock);
}

/* Adds a server. NULL: there are too many, or there is no memory. Lock held. */
static struct rated *add(struct rates *r, const char *name)
{
	size_t n = strlen(name) + 1;
	struct rated *s = r->n < RATES_MAX ? calloc(1, sizeof(*s) + n) : NULL;

	if (!s)
		return NULL;
	server_rates_init(&s->rates);
	memcpy(s->name, name, n);
	s->next = r->list;
	r->list = s;
	r->n++;
	return s;
}

struct server_rates *rates_of(struct rates *r, const char *url)
{
	char name[SERVER_NAME];
	struct rated *s;

	if (!url)
		return &r->others;
	server_name(url, name);
	pthread_mutex_lock(&r->lock);
	s = r->list;
	while (s && strcmp(s->name, name) != 0)
		s = s->next;
	if (!s)
		s = add(r, name);
	pthread_mutex_unlock(&r->lock);
	return s ? &s->rates : &r->others;
}

/* ---- one server ---- */

void rates_began(struct server_rates *s)
{
	pthread_mutex_lock(&s->lock);
	s->busy++;
	s->connections = MAX(s->connections, s->busy);
	pthread_mutex_unlock(&s->lock);
}

void rates_ended(struct server_rates *s)
{
	pthread_mutex_lock(&s->lock);
	if (--s->busy == 0)
		s->since_us = s->came = 0;
	pthread_mutex_unlock(&s->lock);
}

void rates_answered(struct server_rates *s, uint64_t us)
{
	pthread_mutex_lock(&s->lock);
	if (!s->answer_us || us < s->answer_us) {
		s->answer_us = us;
		s->slower = 0;
	} else if (++s->slower == SLOWER) {
		s->answer_us += s->answer_us / 8;
		s->slower = 0;
	}
	pthread_mutex_unlock(&s->lock);
}

/* So many bytes came in that time. Lock held. */
static void measure(struct server_rates *s, uint64_t us)
{
	uint64_t rate = s->came * 1000000 / us;

	s->rates++;
	/* slower only when that lasts */
	s->rate = rate > s->rate ? rate : s->rate - (s->rate - rate) / 8;
	s->came = 0;
	s->since_us += us;
}

void rates_came(struct server_rates *s, uint64_t bytes, uint64_t now_us)
{
	pthread_mutex_lock(&s->lock);
	/* what came before the first moment took longer than is known */
	if (!s->since_us) {
		s->since_us = now_us;
	} else {
		s->came += bytes;
		/* threads may come here in another order than they looked at the clock */
		if (now_us >= s->since_us + MAX(RATE_US, s->answer_us))
			measure(s, now_us - s->since_us);
	}
	pthread_mutex_unlock(&s->lock);
}
