/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/server.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/util.h"
#include "http/http.h"

#define PAUSE_FIRST_MS 100
#define PAUSE_LONG_MS 1000 /* no longer than this, or than a part of how long it is bad, */
#define PAUSE_PART 8	   /* so that who waits soon sees that it is well again */
#define PAUSE_MAX_MS 5000
#define INTERVAL_FIRST_US 50000 /* between requests, after the first refusal, */
#define INTERVAL_MAX_US 1000000
#define INTERVAL_MIN_US 2000 /* what is shorter is none */
#define INTERVAL_DECAY 32    /* each right answer takes off this part of it */
#define GOOD_TO_GROW 8	     /* right answers for each connection, before there is one more */
#define LIMIT_NONE 32	     /* so many connections at once are no limit any more */
#define QUIET_MS 10000	     /* without a refusal: the incident is over */
#define DOWN_MS 10000	     /* for which a mirror that is not reached is not asked */
#define MAX_KEPT 256	     /* servers that nobody uses, but that are limited */

struct servers {
	pthread_mutex_t lock; /* guards all that is here and in the servers */
	struct server *list;
	unsigned n;
	unsigned most; /* connections to one at once */
};

struct server {
	struct servers *all;
	struct server *next;
	unsigned refs;
	unsigned active;  /* requests under way, */
	unsigned asked;	  /* and those of them that have no answer yet */
	unsigned limit;	  /* of those under way; 0: none */
	unsigned good;	  /* right answers since the limit was changed */
	unsigned in_row;  /* pauses since it became bad */
	unsigned refused; /* in this incident; 0: there is none */
	unsigned limited; /* how often it got less in this incident */
	bool quick;	  /* it was away, and now gets more with each right answer */
	int error;	  /* why it is bad; 0: it is well */
	int64_t bad_ms;	  /* since when */
	int64_t interval_us;
	int64_t next_us;	       /* no request before */
	int64_t pause_us;	       /* end of the last pause */
	int64_t refused_ms, served_ms; /* last */
	int64_t down_ms;	       /* a mirror that is not asked until then */
	bool unreached;		       /* which was logged */
	struct queue queue;
	char name[];
};

/* ---- the table ---- */

int servers_new(unsigned most, struct servers **ret)
{
	struct servers *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	s->most = most;
	*ret = s;
	return 0;
}

static void end_incident(struct server *s)
{
	if (s->refused > 0)
		carton_log(CARTON_LOG_WARNING, s->name,
			   "was overloaded: %u %s had to be sent again", s->refused,
			   s->refused == 1 ? "request" : "requests");
	s->refused = s->limited = 0;
}

void servers_free(struct servers *all)
{
	if (!all)
		return;
	while (all->list) {
		struct server *s = all->list;

		all->list = s->next;
		end_incident(s);
		free(s);
	}
	pthread_mutex_destroy(&all->lock);
	free(all);
}

/* Forgets a server that nobody uses, unless it is worth remembering. Lock held. */
static void tidy(struct servers *all)
{
	struct server **at = &all->list;

	while (*at) {
		struct server *s = *at;
		bool limited = s->limit || s->interval_us || s->refused || s->unreached || s->error;

		if (s->refs > 0 || (limited && all->n <= MAX_KEPT)) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		all->n--;
		end_incident(s);
		free(s);
	}
}

static struct server *find(struct servers *all, const char *name)
{
	struct server *s = all->list;

	while (s && strcmp(s->name, name) != 0)
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(*s) + strlen(name) + 1);
	if (!s)
		return NULL;
	strcpy(s->name, name);
	s->all = all;
	s->next = all->list;
	all->list = s;
	all->n++;
	return s;
}

struct server *server_get(struct servers *all, const char *url)
{
	struct server *s;
	char name[512], *host;

	if (!all)
		return NULL;
	/* without userinfo, since it is logged */
	http_url_redact(url, name, sizeof(name));
	host = strstr(name, "://");
	host = host ? host + 3 : name;
	host[strcspn(host, "/")] = '\0';
	pthread_mutex_lock(&all->lock);
	s = find(all, name);
	if (s)
		s->refs++;
	pthread_mutex_unlock(&all->lock);
	return s;
}

struct server *server_ref(struct server *s)
{
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->all->lock);
	s->refs++;
	pthread_mutex_unlock(&s->all->lock);
	return s;
}

void server_unref(struct server *s)
{
	struct servers *all = s ? s->all : NULL;

	if (!s)
		return;
	pthread_mutex_lock(&all->lock);
	if (--s->refs == 0)
		tidy(all);
	pthread_mutex_unlock(&all->lock);
}

/* ---- requests ---- */

/* Is it bad for longer than the slot's owner waits for it? */
static bool is_lost(const struct server *s, const struct queue_slot *slot, int64_t now)
{
	bool again = slot->link && slot->seen != s->in_row;

	return s->error && ((slot->elsewhere && again) ||
			    (s->error != -EBUSY && now - s->bad_ms >= slot->patience_ms));
}

static bool is_full(const struct server *s, const struct queue_slot *slot)
{
	if (s->error)
		return s->asked > 0;
	return (s->limit && s->active >= s->limit) ||
	       (slot->yields && s->active >= s->all->most);
}

/* Is nobody in the queue before it? */
static bool is_first(const struct queue *q, const struct queue_slot *slot)
{
	return !q->first || q->first == slot || (q->first->yields && !slot->yields);
}

static int enter(struct server *s, struct queue_slot *slot, int64_t deadline_ms,
		 int64_t *ret_when_ms)
{
	int64_t now = now_ms();
	bool early = now * 1000 < s->next_us;
	bool late = s->next_us / 1000 > MAX(deadline_ms, now) || is_lost(s, slot, now);
	bool first, wait;

	if (!slot->link) {
		slot->yields = slot->patient;
	} else if (slot->yields && !slot->patient) {
		queue_remove(slot);
		slot->yields = false;
		queue_add(&s->queue, slot);
	}
	first = is_first(&s->queue, slot);
	wait = !first || early || is_full(s, slot);
	if (wait && !late) {
		if (!slot->link)
			slot->seen = s->in_row;
		queue_add(&s->queue, slot);
		/* only the first sets a timer: it wakes the next */
		*ret_when_ms = first && early ? (s->next_us + 999) / 1000 : INT64_MAX;
		return -EAGAIN;
	}
	if (wait && (slot->entered || slot->link || s->active > 0))
		return s->error ? s->error : -EBUSY;
	queue_remove(slot);
	slot->entered = true;
	s->active++;
	s->asked++;
	if (s->interval_us && s->next_us <= now * 1000)
		s->next_us = now * 1000 + s->interval_us;
	queue_wake(&s->queue, false);
	return 0;
}

int server_enter(struct server *s, struct queue_slot *slot, int64_t deadline_ms,
		 int64_t *ret_when_ms)
{
	int r;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->all->lock);
	r = enter(s, slot, deadline_ms, ret_when_ms);
	pthread_mutex_unlock(&s->all->lock);
	return r;
}

void server_heard(struct server *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->all->lock);
	s->asked--;
	queue_wake(&s->queue, false);
	pthread_mutex_unlock(&s->all->lock);
}

void server_leave(struct server *s, bool served)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->all->lock);
	s->active--;
	if (served && !s->error)
		s->served_ms = now_ms();
	queue_wake(&s->queue, false);
	pthread_mutex_unlock(&s->all->lock);
}

void server_give_up(struct server *s, struct queue_slot *slot)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->all->lock);
	if (slot->link) {
		queue_remove(slot);
		queue_wake(&s->queue, false);
	}
	pthread_mutex_unlock(&s->all->lock);
}

/* ---- answers ---- */

/* Half of it to all of it, so that those who failed together do not come back together. */
static int64_t pause_of(unsigned attempt, int64_t most_ms)
{
	int64_t pause = PAUSE_FIRST_MS;
	uint32_t random = 0;

	for (unsigned i = 1; i < attempt && pause < most_ms; i++)
		pause *= 2;
	pause = MIN(pause, most_ms);
	(void)!getrandom(&random, sizeof(random), 0);
	return pause / 2 + random % (pause / 2 + 1);
}

int64_t server_pause(unsigned attempt, long retry_after_s)
{
	return MAX(pause_of(attempt, PAUSE_LONG_MS), (int64_t)retry_after_s * 1000);
}

/* It is bad, and left alone for a while; then one request asks whether it still is. */
static void turn_bad(struct server *s, int error, int64_t now)
{
	int64_t most;

	if (!s->error) {
		s->bad_ms = now;
		s->in_row = 0;
	}
	s->error = error;
	most = MIN(MAX((now - s->bad_ms) / PAUSE_PART, PAUSE_LONG_MS), PAUSE_MAX_MS);
	s->pause_us = (now + pause_of(++s->in_row, most)) * 1000;
	s->next_us = MAX(s->next_us, s->pause_us);
}

/* It has served since it was bad: that it refuses again says how much it can do. */
static void limit(struct server *s)
{
	s->limited++;
	s->quick = false;
	s->good = 0;
	if (s->active > 1)
		s->limit = MAX((s->limit ? MIN(s->limit, s->active) : s->active) / 2, 1U);
	s->interval_us = s->interval_us ? MIN(2 * s->interval_us, INTERVAL_MAX_US) :
					  INTERVAL_FIRST_US;
}

/* Those that were under way when the pause began are part of what it is for. */
static void fail(struct server *s, int error)
{
	int64_t now = now_ms();

	if (now * 1000 >= s->pause_us)
		turn_bad(s, error, now);
}

static void refuse(struct server *s, const char *url, int status, long retry_after_s)
{
	int64_t now = now_ms();
	char shown[256];

	if (s->refused++ == 0)
		carton_log(CARTON_LOG_WARNING, http_url_redact(url, shown, sizeof(shown)),
			   "the server is overloaded (status %d): requests are sent again later, "
			   "fewer at once",
			   status);
	s->refused_ms = now;
	if (now * 1000 >= s->pause_us && !s->error)
		limit(s);
	fail(s, -EBUSY);
	/* `now` is rounded down */
	s->pause_us = MAX(s->pause_us, (now + 1 + MAX(retry_after_s, 0) * 1000) * 1000);
	s->next_us = MAX(s->next_us, s->pause_us);
}

static void serve(struct server *s)
{
	s->served_ms = now_ms();
	s->unreached = false;
	if (s->refused > 0 && s->served_ms - s->refused_ms > QUIET_MS)
		end_incident(s);
	s->interval_us -= s->interval_us / (s->quick ? 2 : INTERVAL_DECAY);
	if (s->interval_us < INTERVAL_MIN_US)
		s->interval_us = 0;
	if (!s->limit || (++s->good < GOOD_TO_GROW * s->limit && !s->quick))
		return;
	s->good = 0;
	s->limit = s->quick ? 2 * s->limit : s->limit + 1;
	if (s->limit >= LIMIT_NONE)
		s->limit = 0;
}

/* It answers. One that refuses again and again while it serves gets more little by little. */
static void turn_well(struct server *s)
{
	if (s->error)
		s->quick = s->in_row > 1 && s->limited <= 1;
	s->error = 0;
}

bool server_error_is_outage(int error)
{
	return error == -EBUSY || error == -ECONNREFUSED || error == -ECONNRESET ||
	       error == -EHOSTUNREACH || error == -ENETUNREACH || error == -ETIMEDOUT;
}

void server_answered(struct server *s, const char *url, int status, long retry_after_s)
{
	int error = http_status_errno(status);

	if (!s)
		return;
	pthread_mutex_lock(&s->all->lock);
	if (error == -EBUSY)
		refuse(s, url, status, retry_after_s);
	else if (status == 502 || status == 504)
		fail(s, -EHOSTUNREACH); /* by its gateway */
	else
		turn_well(s);
	if (error == 0)
		serve(s);
	queue_wake(&s->queue, s->error);
	pthread_mutex_unlock(&s->all->lock);
}

void server_failed(struct server *s, int error)
{
	if (!s || !server_error_is_outage(error))
		return;
	pthread_mutex_lock(&s->all->lock);
	fail(s, error);
	queue_wake(&s->queue, true);
	pthread_mutex_unlock(&s->all->lock);
}

void server_unreached(struct servers *all, const char *url)
{
	struct server *s = server_get(all, url);

	if (!s)
		return;
	pthread_mutex_lock(&all->lock);
	s->down_ms = now_ms() + DOWN_MS;
	if (!s->unreached)
		carton_log(
			CARTON_LOG_WARNING, s->name,
			"the mirror cannot be reached: going on without it, and looking again now "
			"and then");
	s->unreached = true;
	pthread_mutex_unlock(&all->lock);
	server_unref(s);
}

int64_t server_paused(struct server *s)
{
	int64_t left;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->all->lock);
	left = MAX(s->pause_us / 1000, s->down_ms) - now_ms();
	/* one asks already */
	if (s->error && s->asked > 0)
		left = MAX(left, PAUSE_MAX_MS);
	pthread_mutex_unlock(&s->all->lock);
	return MAX(left, 0);
}

int server_error(struct server *s, int64_t *ret_ms)
{
	int error;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->all->lock);
	error = s->error;
	*ret_ms = now_ms() - s->bad_ms;
	pthread_mutex_unlock(&s->all->lock);
	return error;
}

int64_t server_served(struct server *s)
{
	int64_t when;

	if (!s)
		return 0;
	pthread_mutex_lock(&s->all->lock);
	when = !s->error && s->active > s->asked ? now_ms() : s->served_ms;
	pthread_mutex_unlock(&s->all->lock);
	return when;
}
