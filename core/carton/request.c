/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that pin: they wait for the objects of all extents of a file. Also the handles of all
 * requests.
 */
#include "carton/request.h"

#include <stdlib.h>

#include "base/failure.h"

struct carton_request *request_new(size_t n_pins, carton_done_fn *done, void *ctx)
{
	struct carton_request *q = calloc(1, sizeof(*q) + n_pins * sizeof(struct pin));

	if (!q)
		return NULL;
	pthread_mutex_init(&q->lock, NULL);
	q->refs = 2;
	q->done = done;
	q->ctx = ctx;
	q->n_pins = n_pins;
	q->holds = true;
	return q;
}

void request_unref(struct carton_request *q)
{
	if (atomic_fetch_sub(&q->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&q->lock);
	free(q->failure);
	free(q->data);
	free(q);
}

int request_check_withdrawn(const struct node *file)
{
	const struct lazy_dir *lazy = file->has_body ? node_lazy_above(file) : NULL;
	char path[MAX_PATH_LEN + 1];

	if (!lazy || !object_is_withdrawn(lazy->object))
		return 0;
	return error_again(-EBADMSG, tree_path(file, path), "is made of a damaged file");
}

/* ---- pinning ---- */

void request_put_pins(struct carton_request *q)
{
	for (size_t i = 0; i < q->n_pins && q->holds; i++)
		if (q->pins[i].state == PIN_DONE) {
			q->pins[i].state = PIN_NONE;
			object_put(q->pins[i].object);
		}
}

/*
 * Checks, once all extents are pinned, that each lies in its object. A fetched object has the right
 * hash, but may have another size than the server said when the view was made.
 */
static int check_extents(const struct node *file)
{
	char path[MAX_PATH_LEN + 1];

	for (size_t i = 0; i < node_n_extents(file); i++) {
		const struct extent x = node_extent(file, i);
		uint64_t size = x.object ? object_size(x.object) : 0;

		if (!x.object)
			continue;
		if (x.off > size || x.len > size - x.off || (x.whole && x.len != size))
			return log_error(
				-EBADMSG, tree_path(file, path),
				"the view needs bytes %llu to %llu, but the file it is made of has "
				"%llu (does LINKS serve another size?)",
				(unsigned long long)x.off, (unsigned long long)(x.off + x.len),
				(unsigned long long)size);
	}
	return 0;
}

/* Stops waiting where that is still possible. Lock held. */
static void cancel_waits(struct carton_request *q)
{
	for (size_t i = 0; i < q->n_pins; i++)
		if (q->pins[i].state == PIN_WAITING && object_wait_cancel(&q->pins[i].wait)) {
			q->pins[i].state = PIN_NONE;
			q->pending--;
		}
}

static void pin_done(struct object_wait *wait, int result)
{
	struct pin *pin = container_of(wait, struct pin, wait);
	struct carton_request *q = pin->request;
	bool last, tell;

	pthread_mutex_lock(&q->lock);
	pin->state = result == 0 ? PIN_DONE : PIN_NONE;
	q->pending--;
	if (result < 0 && q->result == 0) {
		q->result = result;
		failure_keep(&q->failure);
		cancel_waits(q);
	}
	last = q->pending == 0;
	if (last && q->holds && q->result == 0 && q->file)
		q->result = check_extents(q->file);
	tell = last && !q->cancelled;
	result = q->result;
	q->finished = q->finished || tell;
	pthread_mutex_unlock(&q->lock);
	if (!last)
		return;
	if (result < 0 || !tell)
		request_put_pins(q);
	failure_set(q->failure);
	if (tell)
		q->done(q->ctx, result);
	request_unref(q);
}

/* Ends an observer that got no bytes. */
static void end_observer(struct carton_observer *observer)
{
	if (observer)
		observer->end(observer, -EALREADY);
}

typedef int get_fn(struct object *o, struct object_wait *wait);

static int start_pins(struct carton_request *q, get_fn *get)
{
	int r = 0;

	pthread_mutex_lock(&q->lock);
	for (size_t i = 0; i < q->n_pins && r == 0; i++) {
		struct pin *pin = &q->pins[i];

		if (!pin->object)
			continue;
		pin->request = q;
		pin->wait.done = pin_done;
		r = get(pin->object, &pin->wait);
		end_observer(pin->wait.observer);
		if (r == 0) {
			pin->state = PIN_DONE;
		} else if (r == -EINPROGRESS) {
			pin->state = PIN_WAITING;
			q->pending++;
			r = 0;
		}
	}
	if (r < 0) {
		q->cancelled = true;
		q->result = r;
		cancel_waits(q);
	} else if (q->pending == 0 && q->holds && q->file)
		r = check_extents(q->file);
	/* for waits whose `done` is already being called, that call releases the pins */
	if (q->pending > 0)
		r = r < 0 ? r : -EINPROGRESS;
	else if (r < 0)
		request_put_pins(q);
	if (q->pending == 0)
		request_unref(q);
	pthread_mutex_unlock(&q->lock);
	return r;
}

/* Unpins the first `n` extents. */
static void put_extents(struct node *file, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct object *o = node_extent(file, i).object;

		if (o)
			object_put(o);
	}
}

/* Pins all extents if they are ready, else none. */
static int try_pins(struct node *file)
{
	int r = 0;

	for (size_t i = 0; i < node_n_extents(file); i++) {
		struct object *o = node_extent(file, i).object;

		r = o ? object_get(o, NULL) : 0;
		if (r < 0) {
			put_extents(file, i);
			return r;
		}
	}
	r = check_extents(file);
	if (r < 0)
		put_extents(file, node_n_extents(file));
	return r;
}

/* Begins to wait. The caller gets the handle only if it has to wait. */
static int begin(struct carton_request *q, get_fn *get, struct carton_request **ret)
{
	int r = start_pins(q, get);

	if (r == -EINPROGRESS)
		*ret = q;
	else
		request_unref(q);
	return r;
}

/* Waits for one object, without a pin that must be given back. */
static int await(struct object *o, get_fn *get, carton_done_fn *done, void *ctx,
		 struct carton_request **ret)
{
	struct carton_request *q = request_new(1, done, ctx);

	if (!q)
		return -ENOMEM;
	q->holds = false;
	q->pins[0].object = o;
	return begin(q, get, ret);
}

int carton_pin_observed(struct carton_node *node, struct carton_observer *observer,
			carton_done_fn *done, void *ctx, struct carton_request **ret)
{
	struct node *file = to_node(node);
	struct carton_request *q = NULL;
	int r = 0;

	failure_forget();
	if (file->kind != NODE_FILE)
		r = file->kind == NODE_DIR ? -EISDIR : -ELOOP;
	if (r == 0)
		r = request_check_withdrawn(file);
	if (r == 0)
		r = node_make_object(file);
	if (r == 0 && done) {
		q = request_new(node_n_extents(file), done, ctx);
		r = q ? 0 : -ENOMEM;
	}
	/* an observer gets the bytes of one object, so a file of several ones cannot have it */
	if (!q || !node_object(file)) {
		end_observer(observer);
		observer = NULL;
	}
	if (r < 0 || !done)
		return r < 0 ? r : try_pins(file);
	q->file = file;
	for (size_t i = 0; i < q->n_pins; i++)
		q->pins[i].object = node_extent(file, i).object;
	if (observer)
		q->pins[0].wait.observer = observer;
	return begin(q, object_get, ret);
}

int carton_pin(struct carton *c, struct carton_node *file, carton_done_fn *done, void *ctx,
	       struct carton_request **ret)
{
	(void)c;
	return carton_pin_observed(file, NULL, done, ctx, ret);
}

int carton_size(struct carton *c, struct carton_node *node, carton_done_fn *done, void *ctx,
		struct carton_request **ret)
{
	const struct node *file = to_node(node);

	(void)c;
	failure_forget();
	if (file->kind != NODE_FILE || node_size(file) != OBJECT_NO_SIZE)
		return 0;
	return done ? await(node_extent(file, 0).object, object_get_size, done, ctx, ret) : -EAGAIN;
}

int carton_list(struct carton *c, struct carton_node *dir, carton_done_fn *done, void *ctx,
		struct carton_request **ret)
{
	struct object *children = node_lazy_object(to_node(dir));
	int r;

	(void)c;
	failure_forget();
	if (!children)
		return 0;
	/* the children stay once they are made, so pins of them need not be counted */
	r = object_get(children, NULL);
	return r != -EAGAIN || !done ? r : await(children, object_get, done, ctx, ret);
}

void carton_unpin(struct carton_node *file)
{
	put_extents(to_node(file), node_n_extents(to_node(file)));
}

const void *carton_request_data(const struct carton_request *request)
{
	return request->data;
}

bool carton_request_cancel(struct carton_request *q)
{
	bool cancelled, over, read_over;

	pthread_mutex_lock(&q->lock);
	cancelled = !q->finished && !q->cancelled;
	if (cancelled) {
		q->cancelled = true;
		cancel_waits(q);
	}
	read_over = cancelled && q->waiting && object_wait_cancel(&q->wait);
	/* a running late read, and a pin whose `done` is being called, clean up by themselves */
	over = cancelled && q->pending == 0 && (!q->workers || read_over);
	pthread_mutex_unlock(&q->lock);
	if (over) {
		request_put_pins(q);
		request_unref(q);
	}
	return cancelled;
}

void carton_request_free(struct carton_request *request)
{
	if (request)
		request_unref(request);
}
