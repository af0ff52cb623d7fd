/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/route.h"

#include <stdlib.h>

#include "base/util.h"

void route_init(struct route *r)
{
	*r = (struct route){ .landing = NULL };
	pthread_mutex_init(&r->lock, NULL);
}

void route_destroy(struct route *r)
{
	http_landing_unref(r->landing);
	free(r->url);
	pthread_mutex_destroy(&r->lock);
}

/* Lock held. */
static void leave_landing(struct route *r)
{
	http_landing_unref(r->landing);
	r->landing = NULL;
}

static int enter(struct route *r, const void *who, struct turn *t, struct http_landing **ret,
		 char **ret_url)
{
	char *url = NULL;

	if (r->landing && http_landing_expired(r->landing))
		leave_landing(r);
	if (!r->landing && r->moves && r->pathfinder && r->pathfinder != who) {
		queue_add(&r->queue, t);
		return -EAGAIN;
	}
	if (!r->landing && r->url) {
		url = strdup(r->url);
		if (!url)
			return -ENOMEM;
	}
	if (!r->landing && r->moves)
		r->pathfinder = who;
	queue_remove(t);
	*ret = http_landing_ref(r->landing);
	*ret_url = url;
	return 0;
}

int route_enter(struct route *r, const void *who, struct turn *t, struct http_landing **ret,
		char **ret_url)
{
	int result;

	pthread_mutex_lock(&r->lock);
	result = enter(r, who, t, ret, ret_url);
	pthread_mutex_unlock(&r->lock);
	return result;
}

/* Lock held. */
static void end_search(struct route *r, const void *who)
{
	if (r->pathfinder != who)
		return;
	r->pathfinder = NULL;
	queue_wake(&r->queue, true);
}

void route_found(struct route *r, const void *who, struct http_landing *landing)
{
	pthread_mutex_lock(&r->lock);
	if (landing) {
		leave_landing(r);
		r->landing = landing;
	}
	r->moves = r->landing;
	end_search(r, who);
	pthread_mutex_unlock(&r->lock);
}

void route_failed(struct route *r, const void *who, const struct http_landing *began)
{
	pthread_mutex_lock(&r->lock);
	if (began && r->landing == began)
		leave_landing(r);
	end_search(r, who);
	pthread_mutex_unlock(&r->lock);
}

void route_give_up(struct route *r, struct turn *t)
{
	pthread_mutex_lock(&r->lock);
	queue_remove(t);
	pthread_mutex_unlock(&r->lock);
}

int route_replace(struct route *r, const char *url)
{
	char *copy = strdup(url);

	if (!copy)
		return -ENOMEM;
	pthread_mutex_lock(&r->lock);
	free(r->url);
	r->url = copy;
	leave_landing(r);
	r->moves = false;
	pthread_mutex_unlock(&r->lock);
	return 0;
}
