/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/util.h"
#include "http/http.h"

#define PAUSE_FIRST_MS 100
#define PAUSE_MAX_MS 5000
#define INTERVAL_FIRST_US 50000 /* between requests, after the first refusal, */
#define INTERVAL_MAX_US 5000000
#define INTERVAL_MIN_US 2000 /* what is shorter is none */
#define INTERVAL_DECAY 32    /* each right answer takes off this part of it */
#define GOOD_TO_GROW 8	     /* right answers for each connection, before there is one more */
#define LIMIT_NONE 32	     /* so many connections at once are no limit any more */
#define QUIET_MS 10000	     /* without a refusal: the incident is over */
#define DOWN_MS 10000	     /* for which a mirror that is not reached is not asked */
#define MAX_KEPT 256	     /* origins that nobody uses, but that are limited */

struct origins {
	pthread_mutex_t lock; /* guards all that is here and in the origins */
	struct origin *list;
	unsigned n;
};

struct origin {
	struct origins *all;
	struct origin *next;
	unsigned refs;
	unsigned active;  /* requests under way */
	unsigned limit;	  /* of them; 0: none */
	unsigned good;	  /* right answers since the limit was changed */
	unsigned in_row;  /* pauses since the last right answer */
	unsigned refused; /* in this incident; 0: there is none */
	int64_t interval_us;
	int64_t next_us;	       /* no request before */
	int64_t pause_us;	       /* end of the last pause */
	int64_t refused_ms, served_ms; /* last */
	int64_t down_ms;	       /* a mirror that is not asked until then */
	bool unreached;		       /* which was logged */
	struct queue queue;
	char name[];
};

/* ---- queues ---- */

void queue_add(struct queue *q, struct turn *t)
{
	struct turn **at = &q->first;

	if (t->link)
		return;
	while (*at)
		at = &(*at)->next;
	t->next = NULL;
	t->link = at;
	*at = t;
}

void queue_remove(struct turn *t)
{
	if (!t->link)
		return;
	*t->link = t->next;
	if (t->next)
		t->next->link = t->link;
	t->link = NULL;
}

void queue_wake(const struct queue *q, bool all)
{
	for (struct turn *t = q->first; t; t = all ? t->next : NULL)
		task_wake(t->task);
}

/* ---- the table ---- */

int origins_new(struct origins **ret)
{
	struct origins *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	pthread_mutex_init(&o->lock, NULL);
	*ret = o;
	return 0;
}

static void end_incident(struct origin *o)
{
	if (o->refused > 0)
		carton_log(CARTON_LOG_WARNING, o->name,
			   "was overloaded: %u %s had to be sent again", o->refused,
			   o->refused == 1 ? "request" : "requests");
	o->refused = 0;
}

void origins_free(struct origins *all)
{
	if (!all)
		return;
	while (all->list) {
		struct origin *o = all->list;

		all->list = o->next;
		end_incident(o);
		free(o);
	}
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* Forgets an origin that nobody uses, unless it is worth remembering. Lock held. */
static void tidy(struct origins *all)
{
	struct origin **at = &all->list;

	while (*at) {
		struct origin *o = *at;
		bool limited = o->limit || o->interval_us || o->refused || o->unreached;

		if (o->refs > 0 || (limited && all->n <= MAX_KEPT)) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		all->n--;
		end_incident(o);
		free(o);
	}
}

static struct origin *find(struct origins *all, const char *name)
{
	struct origin *o = all->list;

	while (o && strcmp(o->name, name) != 0)
		o = o->next;
	if (o)
		return o;
	o = calloc(1, sizeof(*o) + strlen(name) + 1);
	if (!o)
		return NULL;
	strcpy(o->name, name);
	o->all = all;
	o->next = all->list;
	all->list = o;
	all->n++;
	return o;
}

struct origin *origin_get(struct origins *all, const char *url)
{
	struct origin *o;
	char name[512], *host;

	if (!all)
		return NULL;
	/* without userinfo, since it is logged */
	http_url_redact(url, name, sizeof(name));
	host = strstr(name, "://");
	host = host ? host + 3 : name;
	host[strcspn(host, "/")] = '\0';
	pthread_mutex_lock(&all->lock);
	o = find(all, name);
	if (o)
		o->refs++;
	pthread_mutex_unlock(&all->lock);
	return o;
}

struct origin *origin_ref(struct origin *o)
{
	if (!o)
		return NULL;
	pthread_mutex_lock(&o->all->lock);
	o->refs++;
	pthread_mutex_unlock(&o->all->lock);
	return o;
}

void origin_unref(struct origin *o)
{
	struct origins *all = o ? o->all : NULL;

	if (!o)
		return;
	pthread_mutex_lock(&all->lock);
	if (--o->refs == 0)
		tidy(all);
	pthread_mutex_unlock(&all->lock);
}

/* ---- requests ---- */

static int enter(struct origin *o, struct turn *t, int64_t deadline_ms, int64_t *ret_when_ms)
{
	int64_t now = now_ms();
	bool first = !o->queue.first || o->queue.first == t;

	if (o->next_us / 1000 > MAX(deadline_ms, now)) {
		if (t->entered || t->link || o->active > 0)
			return -EBUSY;
	} else if (!first || now * 1000 < o->next_us || (o->limit && o->active >= o->limit)) {
		queue_add(&o->queue, t);
		/* only the first sets a timer: it wakes the next */
		*ret_when_ms = first && now * 1000 < o->next_us ? (o->next_us + 999) / 1000 :
								  INT64_MAX;
		return -EAGAIN;
	}
	queue_remove(t);
	t->entered = true;
	o->active++;
	if (o->interval_us && o->next_us <= now * 1000)
		o->next_us = now * 1000 + o->interval_us;
	queue_wake(&o->queue, false);
	return 0;
}

int origin_enter(struct origin *o, struct turn *t, int64_t deadline_ms, int64_t *ret_when_ms)
{
	int r;

	if (!o)
		return 0;
	pthread_mutex_lock(&o->all->lock);
	r = enter(o, t, deadline_ms, ret_when_ms);
	pthread_mutex_unlock(&o->all->lock);
	return r;
}

void origin_leave(struct origin *o)
{
	if (!o)
		return;
	pthread_mutex_lock(&o->all->lock);
	o->active--;
	queue_wake(&o->queue, false);
	pthread_mutex_unlock(&o->all->lock);
}

void origin_give_up(struct origin *o, struct turn *t)
{
	if (!o)
		return;
	pthread_mutex_lock(&o->all->lock);
	if (t->link) {
		queue_remove(t);
		queue_wake(&o->queue, false);
	}
	pthread_mutex_unlock(&o->all->lock);
}

/* ---- answers ---- */

int64_t origin_pause(unsigned attempt, long retry_after_s)
{
	int64_t pause = PAUSE_FIRST_MS;
	uint32_t random = 0;

	for (unsigned i = 1; i < attempt && pause < PAUSE_MAX_MS; i++)
		pause *= 2;
	(void)!getrandom(&random, sizeof(random), 0);
	/* half of it to all of it, so that those who failed together do not come back together */
	pause = pause / 2 + random % (pause / 2 + 1);
	return MAX(pause, (int64_t)retry_after_s * 1000);
}

static void refuse(struct origin *o, const char *url, int status, long retry_after_s)
{
	int64_t now = now_ms();
	char shown[256];

	if (o->refused++ == 0)
		carton_log(CARTON_LOG_WARNING, http_url_redact(url, shown, sizeof(shown)),
			   "the server is overloaded (status %d): requests are sent again later, "
			   "fewer at once",
			   status);
	o->refused_ms = now;
	/* those that were under way when the pause began are part of what it is for */
	if (now * 1000 >= o->pause_us) {
		o->in_row++;
		o->limit = MAX((o->limit ? MIN(o->limit, o->active) : o->active) / 2, 1U);
		o->good = 0;
		o->interval_us = o->interval_us ? MIN(2 * o->interval_us, INTERVAL_MAX_US) :
						  INTERVAL_FIRST_US;
		o->pause_us = (now + origin_pause(o->in_row, 0)) * 1000;
	}
	o->pause_us = MAX(o->pause_us, (now + MAX(retry_after_s, 0) * 1000) * 1000);
	o->next_us = MAX(o->next_us, o->pause_us);
}

static void serve(struct origin *o)
{
	o->served_ms = now_ms();
	o->unreached = false;
	o->in_row = 0;
	if (o->refused > 0 && o->served_ms - o->refused_ms > QUIET_MS)
		end_incident(o);
	o->interval_us -= o->interval_us / INTERVAL_DECAY;
	if (o->interval_us < INTERVAL_MIN_US)
		o->interval_us = 0;
	if (!o->limit || ++o->good < GOOD_TO_GROW * o->limit)
		return;
	o->good = 0;
	if (++o->limit >= LIMIT_NONE)
		o->limit = 0;
	queue_wake(&o->queue, false);
}

void origin_answered(struct origin *o, const char *url, int status, long retry_after_s)
{
	int error = http_status_errno(status);

	if (!o || (error != 0 && error != -EBUSY))
		return;
	pthread_mutex_lock(&o->all->lock);
	if (error == 0)
		serve(o);
	else
		refuse(o, url, status, retry_after_s);
	pthread_mutex_unlock(&o->all->lock);
}

void origin_unreached(struct origins *all, const char *url)
{
	struct origin *o = origin_get(all, url);

	if (!o)
		return;
	pthread_mutex_lock(&all->lock);
	o->down_ms = now_ms() + DOWN_MS;
	if (!o->unreached)
		carton_log(
			CARTON_LOG_WARNING, o->name,
			"the mirror cannot be reached: going on without it, and looking again now "
			"and then");
	o->unreached = true;
	pthread_mutex_unlock(&all->lock);
	origin_unref(o);
}

int64_t origin_paused(struct origin *o)
{
	int64_t left;

	if (!o)
		return 0;
	pthread_mutex_lock(&o->all->lock);
	left = MAX(o->pause_us / 1000, o->down_ms) - now_ms();
	pthread_mutex_unlock(&o->all->lock);
	return MAX(left, 0);
}

int64_t origin_served(struct origin *o)
{
	int64_t when;

	if (!o)
		return 0;
	pthread_mutex_lock(&o->all->lock);
	when = o->served_ms;
	pthread_mutex_unlock(&o->all->lock);
	return when;
}
