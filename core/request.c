/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests: what the outside waits for. Pinning a file waits for the objects of all its extents; a late
 * read waits for a disk, or for bytes that have to be fetched.
 */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/util.h"

/* One extent of a file that is being pinned. */
struct pin {
	struct object_wait wait;
	struct carton_request *request;
	struct object *object; /* NULL: literal bytes need no pin */
	enum { PIN_NONE, PIN_WAITING, PIN_DONE } state;
};

struct carton_request {
	atomic_uint refs; /* the caller's handle, and who will call `done` */
	carton_done_fn *done;
	void *ctx;
	pthread_mutex_t lock; /* guards what follows */
	bool cancelled, finished;
	int result;
	size_t pending; /* pins being waited for */
	bool holds;	/* what is waited for is a pin, to be put when all fails */

	struct node *file; /* NULL: not about one */

	struct workers *workers; /* of a late read; else NULL */
	struct job job;
	struct object_wait wait; /* for what has to be fetched */
	unsigned round;		 /* how often a wait has begun or ended; guarded by the lock, as */
	bool waiting;		 /* now */
	int error;		 /* of the last wait */
	uint64_t off;
	size_t n;
	char *data; /* NULL while it waits */

	size_t n_pins; /* when pinning: one for each extent */
	struct pin pins[];
};

static struct carton_request *request_new(size_t n_pins, carton_done_fn *done, void *ctx)
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

static void request_unref(struct carton_request *q)
{
	if (atomic_fetch_sub(&q->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&q->lock);
	free(q->data);
	free(q);
}

/* Was the directory that it is in generated from what has turned out to be damaged? Its text comes from there. */
static bool is_withdrawn(const struct node *file)
{
	const struct gate *gate = file->has_body ? node_gate_above(file) : NULL;

	return gate && object_is_withdrawn(gate->object);
}

/* ---- pinning ---- */

static void put_pins(struct carton_request *q)
{
	for (size_t i = 0; i < q->n_pins && q->holds; i++)
		if (q->pins[i].state == PIN_DONE) {
			q->pins[i].state = PIN_NONE;
			object_put(q->pins[i].object);
		}
}

/*
 * What is fetched has the right hash, but may still have another size than a view over it was made
 * for. Checked once all is pinned.
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
			return log_error(-EBADMSG, tree_path(file, path),
					 "needs %llu bytes at %llu of a file that has %llu",
					 (unsigned long long)x.len, (unsigned long long)x.off,
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
		put_pins(q);
	if (tell)
		q->done(q->ctx, result);
	request_unref(q);
}

/* A tap that was not taken gets nothing. */
static void end_tap(struct carton_tap *tap)
{
	if (tap)
		tap->end(tap, -EALREADY);
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
		end_tap(pin->wait.tap);
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
		put_pins(q);
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

/* Pins what is ready; on failure nothing. */
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

/* Waits for something of one object that need not be put back. */
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

int carton_pin_tapped(struct carton_node *node, struct carton_tap *tap, carton_done_fn *done,
		      void *ctx, struct carton_request **ret)
{
	struct node *file = to_node(node);
	struct carton_request *q = NULL;
	int r = 0;

	if (file->kind != NODE_FILE)
		r = file->kind == NODE_DIR ? -EISDIR : -ELOOP;
	if (r == 0 && is_withdrawn(file))
		r = -EBADMSG;
	if (r == 0)
		r = node_make_object(file);
	if (r == 0 && done) {
		q = request_new(node_n_extents(file), done, ctx);
		r = q ? 0 : -ENOMEM;
	}
	/* a tap gets the bytes of one object, so a file of several ones cannot have it */
	if (!q || !node_object(file)) {
		end_tap(tap);
		tap = NULL;
	}
	if (r < 0 || !done)
		return r < 0 ? r : try_pins(file);
	q->file = file;
	for (size_t i = 0; i < q->n_pins; i++)
		q->pins[i].object = node_extent(file, i).object;
	if (tap)
		q->pins[0].wait.tap = tap;
	return begin(q, object_get, ret);
}

int carton_pin(struct carton *c, struct carton_node *file, carton_done_fn *done, void *ctx,
	       struct carton_request **ret)
{
	(void)c;
	return carton_pin_tapped(file, NULL, done, ctx, ret);
}

int carton_size(struct carton *c, struct carton_node *node, carton_done_fn *done, void *ctx,
		struct carton_request **ret)
{
	const struct node *file = to_node(node);

	(void)c;
	if (file->kind != NODE_FILE || node_size(file) != OBJECT_NO_SIZE)
		return 0;
	return done ? await(node_extent(file, 0).object, object_get_size, done, ctx, ret) : -EAGAIN;
}

int carton_list(struct carton *c, struct carton_node *dir, carton_done_fn *done, void *ctx,
		struct carton_request **ret)
{
	struct object *gate = node_gate(to_node(dir));
	int r;

	(void)c;
	if (!gate)
		return 0;
	/* a gate never closes again, so pins of it need not be counted */
	r = object_get(gate, NULL);
	return r != -EAGAIN || !done ? r : await(gate, object_get, done, ctx, ret);
}

void carton_unpin(struct carton_node *file)
{
	put_extents(to_node(file), node_n_extents(to_node(file)));
}

/* ---- reading ---- */

/* The extent that holds byte `off`, which lies within the file. */
static size_t find_extent(const struct node *file, uint64_t off)
{
	size_t low = 0, high = node_n_extents(file) - 1;

	while (low < high) {
		size_t mid = low + (high - low + 1) / 2;

		if (node_extent(file, mid).start <= off)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

static void read_literal(char *ret_buf, const struct extent *x, uint64_t from, size_t n)
{
	char *nul = ret_buf, *end = ret_buf + n;

	memcpy(ret_buf, (const char *)x->literal + from, n);
	while (x->nul && (nul = memchr(nul, '\0', (size_t)(end - nul))))
		*nul++ = x->nul;
}

/* Bytes of a file; when they have to be fetched, of which object, and where they are in it. */
struct part {
	struct node *file;
	uint64_t off;
	size_t n;
	struct object *missing;
	uint64_t missing_off;
	size_t missing_n;
};

enum how {
	READ_NOW,   /* what is in memory */
	READ_HERE,  /* and on the disk */
	READ_FETCH, /* and elsewhere */
};

static int read_object(struct part *p, char *out, struct object *o, uint64_t off, size_t n,
		       enum how how)
{
	int r = how == READ_FETCH ? object_read_wait(o, out, n, off) :
				    object_read(o, out, n, off, how == READ_NOW);

	if (r == -EINPROGRESS) {
		p->missing = o;
		p->missing_off = off;
		p->missing_n = n;
	}
	return r;
}

static ssize_t read_part(struct part *p, char *out, enum how how)
{
	uint64_t size = node_size(p->file);
	size_t done = 0;

	/* pinned or not: its literal bytes were made of the damaged ones */
	if (is_withdrawn(p->file))
		return -EBADMSG;
	if (p->off >= size)
		return 0;
	p->n = (size_t)MIN(p->n, size - p->off);
	for (size_t i = find_extent(p->file, p->off); done < p->n; i++) {
		const struct extent x = node_extent(p->file, i);
		uint64_t from = p->off + done - x.start;
		size_t step = (size_t)MIN(p->n - done, x.len - from);
		int r = 0;

		if (x.literal)
			read_literal(out + done, &x, from, step);
		else if (step > 0)
			r = read_object(p, out + done, x.object, x.off + from, step, how);
		if (r < 0)
			return r;
		done += step;
	}
	return (ssize_t)p->n;
}

ssize_t carton_read(struct carton_node *file, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	struct part p = { .file = to_node(file), .off = off, .n = n };

	return read_part(&p, ret_buf, nowait ? READ_NOW : READ_FETCH);
}

static void read_over(struct carton_request *q, ssize_t got)
{
	bool tell;

	pthread_mutex_lock(&q->lock);
	tell = !q->cancelled;
	q->finished = true;
	pthread_mutex_unlock(&q->lock);
	/* a cancel that comes now leaves the pins alone */
	put_pins(q);
	if (tell)
		q->done(q->ctx, (int)got);
	request_unref(q);
}

/*
 * Called when some bytes were fetched, or the fetch failed: looks whether the wanted ones are
 * there.
 */
static void read_fetched(struct object_wait *wait, int result)
{
	struct carton_request *q = container_of(wait, struct carton_request, wait);

	pthread_mutex_lock(&q->lock);
	q->round++;
	q->waiting = false;
	q->error = result;
	pthread_mutex_unlock(&q->lock);
	workers_submit(q->workers, &q->job, LANE_READS);
}

/* The wait has begun, and perhaps ended. False: it was cancelled before. */
static bool await_fetch(struct carton_request *q, unsigned round)
{
	bool gone = false;

	pthread_mutex_lock(&q->lock);
	if (q->round == round && q->cancelled)
		gone = object_wait_cancel(&q->wait);
	else if (q->round == round)
		q->waiting = true;
	pthread_mutex_unlock(&q->lock);
	return !gone;
}

/* Starts the fetch; no thread waits for it. -EINPROGRESS: `q` may already be freed. */
static int fetch_part(struct carton_request *q, const struct part *p)
{
	unsigned round;
	int r;

	pthread_mutex_lock(&q->lock);
	r = q->cancelled ? -ECANCELED : q->error;
	round = ++q->round;
	pthread_mutex_unlock(&q->lock);
	if (r < 0)
		return r;
	/* thousands may wait, with 1 MiB each */
	free(q->data);
	q->data = NULL;
	atomic_fetch_add(&q->refs, 1);
	q->wait.done = read_fetched;
	r = object_fetch(p->missing, p->missing_off, p->missing_n, &q->wait);
	if (r == -EINPROGRESS && !await_fetch(q, round))
		r = -ECANCELED;
	request_unref(q);
	return r;
}

static ssize_t read_here(struct carton_request *q, struct part *p)
{
	if (!q->data)
		q->data = malloc(q->n ? q->n : 1);
	return q->data ? read_part(p, q->data, READ_HERE) : -ENOMEM;
}

static void run_read(struct job *job)
{
	struct carton_request *q = container_of(job, struct carton_request, job);
	struct part p = { .file = q->file, .off = q->off, .n = q->n };
	ssize_t got;

	while ((got = read_here(q, &p)) == -EINPROGRESS) {
		got = fetch_part(q, &p);
		if (got < 0)
			break;
	}
	if (got != -EINPROGRESS)
		read_over(q, got);
}

int carton_read_later(struct carton *c, struct carton_node *node, size_t n, uint64_t off,
		      carton_done_fn *done, void *ctx, struct carton_request **ret)
{
	struct node *file = to_node(node);
	uint64_t size = node_size(file);
	size_t first = off < size ? find_extent(file, off) : 0;
	/* the last byte wanted, or where it would be: reading nothing ends before it begins */
	size_t last = off < size ? find_extent(file, MIN(MAX(n, (size_t)1), size - off) + off - 1) :
				   0;
	struct carton_request *q = request_new(last - first + 1, done, ctx);

	if (!q)
		return -ENOMEM;
	q->file = file;
	q->off = off;
	q->n = n;
	/* pinned once more, since the reader may be gone before the disk answers */
	for (size_t i = first; i <= last && i < node_n_extents(file); i++) {
		struct pin *pin = &q->pins[i - first];
		int r;

		pin->object = node_extent(file, i).object;
		if (!pin->object)
			continue;
		/*
		 * fails for an open file, if the whole file turned out to have another sha256 than
		 * its chunks
		 */
		r = object_get(pin->object, NULL);
		if (r < 0) {
			put_pins(q);
			q->refs = 1;
			request_unref(q);
			return r;
		}
		pin->state = PIN_DONE;
	}
	*ret = q;
	q->workers = c->workers;
	q->job.run = run_read;
	workers_submit(q->workers, &q->job, LANE_READS);
	return -EINPROGRESS;
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
		put_pins(q);
		request_unref(q);
	}
	return cancelled;
}

void carton_request_free(struct carton_request *request)
{
	if (request)
		request_unref(request);
}
