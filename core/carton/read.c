/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading pinned files, at once, or by a request that waits for a disk or for bytes that have to be
 * fetched.
 */
#include <stdlib.h>

#include "base/failure.h"
#include "carton/request.h"

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

/* A part of a file. Of bytes that have to be fetched: their object, and their offset in it. */
struct part {
	struct node *file;
	uint64_t off;
	size_t n;
	enum {
		READ_NOW,   /* bytes in memory only */
		READ_HERE,  /* also those on the disk */
		READ_FETCH, /* also those of a server */
	} how;
	struct object *missing;
	uint64_t missing_off;
	size_t missing_n;
};

static int read_object(struct part *p, char *out, struct object *o, uint64_t off, size_t n)
{
	int r = p->how == READ_FETCH ? object_read_wait(o, out, n, off, NULL) :
				       object_read(o, out, n, off, p->how == READ_NOW);

	if (r == -EINPROGRESS) {
		p->missing = o;
		p->missing_off = off;
		p->missing_n = n;
	}
	return r;
}

static ssize_t read_part(struct part *p, char *out)
{
	uint64_t size = node_size(p->file);
	size_t done = 0;
	int withdrawn = request_check_withdrawn(p->file);

	/* also if the file is pinned: its literal bytes were made of damaged ones */
	if (withdrawn < 0)
		return withdrawn;
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
			r = read_object(p, out + done, x.object, x.off + from, step);
		if (r < 0)
			return r;
		done += step;
	}
	return (ssize_t)p->n;
}

ssize_t carton_read(struct carton_node *file, void *ret_buf, size_t n, uint64_t off, bool nowait)
{
	struct part p = { to_node(file), off, n, .how = nowait ? READ_NOW : READ_FETCH };

	failure_forget();
	return read_part(&p, ret_buf);
}

static void read_over(struct carton_request *q, ssize_t got)
{
	bool tell;

	pthread_mutex_lock(&q->lock);
	tell = !q->cancelled;
	q->finished = true;
	pthread_mutex_unlock(&q->lock);
	/* from here on a cancel does not put the pins */
	request_put_pins(q);
	if (tell)
		q->done(q->ctx, (int)got);
	request_unref(q);
}

/*
 * Called when some bytes were fetched, or the fetch failed: reads again if all wanted bytes are
 * there.
 */
static void read_fetched(struct object_wait *wait, int result)
{
	struct carton_request *q = container_of(wait, struct carton_request, wait);

	pthread_mutex_lock(&q->lock);
	q->round++;
	q->waiting = false;
	q->error = result;
	if (result < 0)
		failure_keep(&q->failure);
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
	failure_set(q->error < 0 ? q->failure : NULL);
	round = ++q->round;
	pthread_mutex_unlock(&q->lock);
	if (r < 0)
		return r;
	/* thousands of requests may wait, with 1 MiB each */
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
	return q->data ? read_part(p, q->data) : -ENOMEM;
}

static void run_read(struct job *job)
{
	struct carton_request *q = container_of(job, struct carton_request, job);
	struct part p = { q->file, q->off, q->n, .how = READ_HERE };
	ssize_t got;

	while ((got = read_here(q, &p)) == -EINPROGRESS) {
		got = fetch_part(q, &p);
		if (got < 0)
			break;
	}
	if (got != -EINPROGRESS)
		read_over(q, got);
}

int carton_read_later(struct carton *c, const struct carton_range *range, carton_done_fn *done,
		      void *ctx, struct carton_request **ret)
{
	struct node *file = to_node(range->file);
	uint64_t size = node_size(file), off = range->off;
	size_t first = off < size ? find_extent(file, off) : 0;
	/* the last byte wanted, or where it would be: reading nothing ends before it begins */
	size_t last = off < size ? find_extent(file, MIN(MAX(range->n, (size_t)1), size - off) +
							     off - 1) :
				   0;
	struct carton_request *q = request_new(last - first + 1, done, ctx);

	failure_forget();
	if (!q)
		return -ENOMEM;
	q->file = file;
	q->off = off;
	q->n = range->n;
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
			request_put_pins(q);
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

void carton_follow(struct carton_node *file, struct carton_node *next)
{
	struct object *o = node_object(to_node(file));

	if (o)
		object_follow(o, next ? node_object(to_node(next)) : NULL);
}
