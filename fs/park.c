/* SPDX-License-Identifier: Apache-2.0 */
#include "park.h"

#include <errno.h>
#include <stdlib.h>

/* All that are not answered yet. */
static pthread_mutex_t parked_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct parked *parked_list;

static void list_add(struct parked *p)
{
	pthread_mutex_lock(&parked_lock);
	p->next = parked_list;
	if (p->next)
		p->next->link = &p->next;
	p->link = &parked_list;
	parked_list = p;
	pthread_mutex_unlock(&parked_lock);
}

static void list_remove(struct parked *p)
{
	pthread_mutex_lock(&parked_lock);
	*p->link = p->next;
	if (p->next)
		p->next->link = p->link;
	pthread_mutex_unlock(&parked_lock);
}

static void parked_unref(struct parked *p)
{
	bool last;

	pthread_mutex_lock(&p->lock);
	last = --p->refs == 0;
	pthread_mutex_unlock(&p->lock);
	if (!last)
		return;
	list_remove(p);
	carton_request_free(p->request);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* Ends the wait with `error`, a positive errno. True: the caller has to answer the request. */
static bool cancel(struct parked *p, int error)
{
	bool ours = false;

	pthread_mutex_lock(&p->lock);
	p->error = error;
	if (p->request)
		ours = carton_request_cancel(p->request);
	pthread_mutex_unlock(&p->lock);
	return ours;
}

/* libfuse calls it with the request locked: fuse_req_interrupt_func() would deadlock here. */
static void on_interrupt(fuse_req_t req, void *data)
{
	struct parked *p = data;

	if (!cancel(p, EINTR))
		return;
	fuse_reply_err(req, EINTR);
	parked_unref(p);
}

void parked_cancel_all(int error)
{
	struct parked *list = NULL, *p;

	pthread_mutex_lock(&parked_lock);
	for (p = parked_list; p; p = p->next) {
		pthread_mutex_lock(&p->lock);
		if (p->refs > 0 && !p->reads) {
			p->refs++;
			p->next_cancelled = list;
			list = p;
		}
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_unlock(&parked_lock);
	while ((p = list)) {
		list = p->next_cancelled;
		if (cancel(p, error)) {
			/* waits for a running on_interrupt() */
			fuse_req_interrupt_func(p->req, NULL, NULL);
			fuse_reply_err(p->req, error);
			parked_unref(p);
		}
		parked_unref(p);
	}
}

void parked_done(void *parked, int result)
{
	struct parked *p = parked;

	/* waits for a running on_interrupt(), which fails to cancel the finished request */
	fuse_req_interrupt_func(p->req, NULL, NULL);
	/* waits until park() has released it */
	pthread_mutex_lock(&p->lock);
	pthread_mutex_unlock(&p->lock);
	p->finish(p, result);
	parked_unref(p);
}

struct parked *parked_new(fuse_req_t req, struct carton_node *node,
			  void (*finish)(struct parked *p, int result))
{
	struct parked *p = calloc(1, sizeof(*p));

	if (!p) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	pthread_mutex_init(&p->lock, NULL);
	p->req = req;
	p->node = node;
	p->finish = finish;
	p->refs = 2;
	list_add(p);
	return p;
}

void park(struct parked *p, int (*start)(struct parked *p))
{
	fuse_req_t req = p->req;
	bool ours = false;
	int r, error;

	fuse_req_interrupt_func(req, on_interrupt, p);
	pthread_mutex_lock(&p->lock);
	r = start(p);
	/* cancelled before there was a request to cancel */
	if (r == -EINPROGRESS && p->error)
		ours = carton_request_cancel(p->request);
	error = p->error;
	pthread_mutex_unlock(&p->lock);
	if (r != -EINPROGRESS || ours) {
		fuse_req_interrupt_func(req, NULL, NULL);
		if (ours)
			fuse_reply_err(req, error);
		else
			p->finish(p, r);
		parked_unref(p);
	}
	parked_unref(p);
}
