/* SPDX-License-Identifier: Apache-2.0 */
#include "park.h"

#include <errno.h>
#include <stdlib.h>

static void parked_unref(struct parked *p)
{
	bool last;

	pthread_mutex_lock(&p->lock);
	last = --p->refs == 0;
	pthread_mutex_unlock(&p->lock);
	if (!last)
		return;
	carton_request_free(p->request);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* libfuse calls it with the request locked: fuse_req_interrupt_func() would deadlock here. */
static void on_interrupt(fuse_req_t req, void *data)
{
	struct parked *p = data;
	bool ours = false;

	pthread_mutex_lock(&p->lock);
	p->interrupted = true;
	if (p->request)
		ours = carton_request_cancel(p->request);
	pthread_mutex_unlock(&p->lock);
	if (!ours)
		return;
	fuse_reply_err(req, EINTR);
	parked_unref(p);
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
	return p;
}

void park(struct parked *p, int (*start)(struct parked *p))
{
	fuse_req_t req = p->req;
	bool ours = false;
	int r;

	fuse_req_interrupt_func(req, on_interrupt, p);
	pthread_mutex_lock(&p->lock);
	r = start(p);
	/* interrupted before there was a request to cancel */
	if (r == -EINPROGRESS && p->interrupted)
		ours = carton_request_cancel(p->request);
	pthread_mutex_unlock(&p->lock);
	if (r != -EINPROGRESS || ours) {
		fuse_req_interrupt_func(req, NULL, NULL);
		if (ours)
			fuse_reply_err(req, EINTR);
		else
			p->finish(p, r);
		parked_unref(p);
	}
	parked_unref(p);
}
