/* SPDX-License-Identifier: Apache-2.0 */
/* The table of servers. */
#include <stdlib.h>

#include "base/pace.h"
#include "base/util.h"
#include "fetch/server_state.h"
#include "http/http.h"

#define MAX_KEPT 256 /* servers that nobody uses, but that are limited */

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

void servers_free(struct servers *all)
{
	if (!all)
		return;
	while (all->list) {
		struct server *s = all->list;

		all->list = s->next;
		server_end_incident(s);
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
		server_end_incident(s);
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

void server_name(const char *url, char ret[SERVER_NAME])
{
	char *host;

	http_url_redact(url, ret, SERVER_NAME);
	host = strstr(ret, "://");
	host = host ? host + 3 : ret;
	host[strcspn(host, "/")] = '\0';
}

struct server *server_get(struct servers *all, const char *url)
{
	struct server *s;
	char name[SERVER_NAME];

	if (!all)
		return NULL;
	server_name(url, name);
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

void server_unreached(struct servers *all, const char *url)
{
	struct server *s = server_get(all, url);

	if (!s)
		return;
	pthread_mutex_lock(&all->lock);
	s->down_ms = now_ms() + pace.mirror_down_ms;
	if (!s->unreached)
		carton_log(
			CARTON_LOG_NOTICE, s->name,
			"the mirror cannot be reached: going on without it, and looking again now "
			"and then");
	s->unreached = true;
	pthread_mutex_unlock(&all->lock);
	server_unref(s);
}

void servers_look_again(struct servers *all)
{
	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	for (struct server *s = all->list; s; s = s->next)
		queue_wake(&s->queue, true);
	pthread_mutex_unlock(&all->lock);
}
