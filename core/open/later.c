/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a carton on a thread of its own, so that whoever wants it can stop waiting. */
#include <semaphore.h>
#include <stdlib.h>

#include "base/failure.h"
#include "carton/opened.h"

struct later {
	struct carton *carton;
	const char *source;
	struct carton_options options;
	carton_done_fn *done;
	void *ctx;
	sem_t begun; /* the caller has the carton */
};

static void *run(void *ctx)
{
	struct later *l = ctx;
	struct carton *c = l->carton;
	int r;

	while (sem_wait(&l->begun) < 0)
		;
	r = carton_open_into(c, l->source, &l->options, OPEN_CARTON, NULL);
	atomic_store(&c->opening, false);
	/* whatever it has ended with: nothing can be read any more */
	if (cancel_fired(&c->stop)) {
		failure_forget();
		r = -ENOTCONN;
	}
	l->done(l->ctx, r);
	sem_destroy(&l->begun);
	free(l);
	return NULL;
}

static int start(struct later *l)
{
	struct carton *c = l->carton;
	int r;

	sem_init(&l->begun, 0, 0);
	atomic_store(&c->opening, true);
	r = -pthread_create(&c->opener, NULL, run, l);
	if (r < 0) {
		atomic_store(&c->opening, false);
		sem_destroy(&l->begun);
		return r;
	}
	c->has_opener = true;
	return 0;
}

int carton_open_later(const char *source, const struct carton_options *options,
		      carton_done_fn *done, void *ctx, struct carton **ret)
{
	struct carton *c;
	struct later *l;
	int r = -ENOMEM;

	failure_forget();
	if (options->confine)
		return log_error(-EINVAL, NULL, "confine is not for a carton that is opened later");
	c = carton_new();
	l = malloc(sizeof(*l));
	if (c && l) {
		*l = (struct later){
			.carton = c, .source = source, .options = *options, .done = done, .ctx = ctx
		};
		r = start(l);
	}
	if (r < 0) {
		carton_close(c);
		free(l);
		return r;
	}
	*ret = c;
	sem_post(&l->begun);
	return -EINPROGRESS;
}
