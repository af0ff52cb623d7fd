/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/park.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* All parked requests that are not answered yet. */
static pthread_mutex_t parked_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static LIST_HEAD(parked_head, parked) parked_list;

static void parked_unref(struct parked *p)
{
	bool last;

	pthread_mutex_lock(&p->lock);
	last = --p->refs == 0;
	pthread_mutex_unlock(&p->lock);
	if (!last)
		return;
	pthread_mutex_lock(&parked_lock);
	LIST_REMOVE(p, all);
	pthread_mutex_unlock(&parked_lock);
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

/* libfuse calls this with the request locked, so fuse_req_interrupt_func() would deadlock here. */
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
	for (p = LIST_FIRST(&parked_list); p; p = LIST_NEXT(p, all)) {
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

static struct parked *copy(const struct parked *q)
{
	struct parked *p = malloc(sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct parked){
		.req = q->req,
		.finish = q->finish,
		.node = q->node,
		.fi = q->fi,
		.size = q->size,
		.off = q->off,
		.reads = q->reads,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.refs = 2,
	};
	memcpy(p->name, q->name, sizeof(p->name));
	pthread_mutex_lock(&parked_lock);
	LIST_INSERT_HEAD(&parked_list, p, all);
	pthread_mutex_unlock(&parked_lock);
	return p;
}

void park(const struct parked *q, int (*start)(struct parked *p))
{
	struct parked *p = copy(q);
	fuse_req_t req = q->req;
	bool ours = false;
	int r, error;

	if (!p) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	fuse_req_interrupt_func(req, on_interrupt, p);
	pthread_mutex_lock(&p->lock);
	r = start(p);
	/* cancelled before there was a carton_request to cancel */
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
