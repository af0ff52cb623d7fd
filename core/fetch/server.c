/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/server_state.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/pace.h"
#include "base/util.h"
#include "http/http.h"

/* the longest pause, of how long it is bad: that it is well again is seen soon */
#define PAUSE_PART 8
#define INTERVAL_DECAY 32 /* each right answer takes off this part of it */
#define GOOD_TO_GROW 8	  /* right answers for each connection, before there is one more */
#define LIMIT_NONE 32	  /* so many connections at once are no limit any more */
#define FEW_ANSWERS 8	  /* they say nothing yet; */
#define MANY_ANSWERS 32	  /* later ones count more than earlier ones */

void server_end_incident(struct server *s)
{
	if (s->refused > 0)
		carton_log(CARTON_LOG_NOTICE, s->name, "was overloaded: %u %s had to be sent again",
			   s->refused, s->refused == 1 ? "request" : "requests");
	s->refused = s->limited = 0;
	s->close = s->apart = (struct refusals){ 0 };
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
	return (s->limit && s->active >= s->limit) || (slot->yields && s->active >= s->all->most);
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
		slot->yields = slot->background;
	} else if (slot->yields && !slot->background) {
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
	int64_t pause = pace.pause_first_ms;
	uint32_t random = 0;

	for (unsigned i = 1; i < attempt && pause < most_ms; i++)
		pause *= 2;
	pause = MIN(pause, most_ms);
	(void)!getrandom(&random, sizeof(random), 0);
	return pause / 2 + random % (pause / 2 + 1);
}

int64_t server_pause(unsigned attempt, long retry_after_s)
{
	return MAX(pause_of(attempt, pace.pause_long_ms), (int64_t)retry_after_s * 1000);
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
	most = MIN(MAX((now - s->bad_ms) / PAUSE_PART, pace.pause_long_ms), pace.pause_max_ms);
	s->pause_us = (now + pause_of(++s->in_row, most)) * 1000;
	s->next_us = MAX(s->next_us, s->pause_us);
}

static void count(struct server *s, bool refused)
{
	struct refusals *r = s->interval_us < pace.interval_apart_us ? &s->close : &s->apart;

	if (r->of >= MANY_ANSWERS) {
		r->of /= 2;
		r->n /= 2;
	}
	r->of++;
	r->n += refused;
}

/*
 * Does the server refuse because requests are close to each other? Not if it refuses as many of
 * those that are far apart, or more than half the share: as when one of several machines behind it
 * is bad. Yes as long as too few answers are known, and while it refuses most close requests.
 */
static bool is_pace(const struct server *s)
{
	const struct refusals *close = &s->close, *apart = &s->apart;

	if (close->of < FEW_ANSWERS || apart->of < FEW_ANSWERS || 8 * close->n > 5 * close->of)
		return true;
	return 2 * apart->n * close->of < close->n * apart->of;
}

static void set_pace(struct server *s)
{
	if (!s->interval_us)
		s->interval_us = pace.interval_first_us;
	else if (is_pace(s))
		s->interval_us = MIN(2 * s->interval_us, pace.interval_max_us);
	else
		s->interval_us = MAX(s->interval_us / 2, pace.interval_first_us);
}

/* It has served since it was bad: that it refuses again says how much it can do. */
static void limit(struct server *s)
{
	s->limited++;
	s->quick = false;
	s->good = 0;
	if (s->active > 1)
		s->limit = MAX((s->limit ? MIN(s->limit, s->active) : s->active) / 2, 1U);
	set_pace(s);
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
		carton_log(CARTON_LOG_NOTICE, http_url_redact(url, shown, sizeof(shown)),
			   "the server is overloaded (status %d): requests are sent again later, "
			   "fewer at once, until the timeout",
			   status);
	s->refused_ms = now;
	if (now * 1000 >= s->pause_us)
		count(s, true);
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
	count(s, false);
	if (s->refused > 0 && s->served_ms - s->refused_ms > pace.calm_ms)
		server_end_incident(s);
	s->interval_us -= s->interval_us / (s->quick ? 2 : INTERVAL_DECAY);
	if (s->interval_us < pace.interval_min_us)
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
	if (!s || !error_is_outage(error))
		return;
	pthread_mutex_lock(&s->all->lock);
	fail(s, error);
	queue_wake(&s->queue, true);
	pthread_mutex_unlock(&s->all->lock);
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
		left = MAX(left, pace.pause_max_ms);
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
