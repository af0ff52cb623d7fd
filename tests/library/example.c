/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a runner uses libcarton: lists a carton, or writes the verified bytes of one of its files.
 *
 *	cc -o example example.c $(pkg-config --cflags --libs carton)
 *	./example CARTON [PATH]
 */
#include <carton.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_log(void *ctx, enum carton_log_level level, const char *subject, const char *message)
{
	(void)ctx;
	if (level <= CARTON_LOG_NOTICE)
		fprintf(stderr, "%s%s%s\n", subject ? subject : "", subject ? ": " : "", message);
}

/* What a thread waits for; a runner with an event loop would write to an eventfd instead. */
struct waiter {
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	bool done;
	int result;
};

static void on_done(void *ctx, int result)
{
	struct waiter *w = ctx;

	pthread_mutex_lock(&w->lock);
	w->done = true;
	w->result = result;
	pthread_cond_signal(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

/* Verifies the file, fetching it if needed, so that it can be read. */
static int pin(struct carton *c, struct carton_node *file)
{
	struct waiter w = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, 0 };
	struct carton_request *request;
	int r = carton_pin(c, file, on_done, &w, &request);

	if (r != -EINPROGRESS)
		return r;
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.changed, &w.lock);
	pthread_mutex_unlock(&w.lock);
	carton_request_free(request);
	return w.result;
}

static int write_file(struct carton *c, const char *path)
{
	static char block[1 << 20];
	struct carton_node *file;
	uint64_t at = 0;
	ssize_t n;
	int r = carton_resolve(c, path, &file);

	if (r == 0)
		r = pin(c, file);
	if (r < 0)
		return r;
	while ((n = carton_read(file, block, sizeof(block), at, false)) > 0) {
		if (fwrite(block, 1, (size_t)n, stdout) != (size_t)n) {
			n = -EIO;
			break;
		}
		at += (uint64_t)n;
	}
	carton_unpin(file);
	return n < 0 ? (int)n : 0;
}

static void list(struct carton *c)
{
	char path[4096], hash[65];
	struct carton_stat st;

	carton_model_hash(c, hash);
	printf("%s\n", hash);
	for (struct carton_node *n = carton_root(c); n; n = carton_next(c, n)) {
		carton_stat(n, &st);
		carton_path(n, path);
		if (st.kind != CARTON_DIR)
			printf("%10llu  %s\n", (unsigned long long)st.size, path);
	}
}

int main(int argc, char **argv)
{
	const struct carton_options options = { .views = "views" };
	struct carton *c;
	int r;

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: example CARTON [PATH]\n");
		return 1;
	}
	carton_log_set(on_log, NULL);
	r = carton_open(argv[1], &options, &c);
	if (r == 0) {
		if (argc == 2)
			list(c);
		else
			r = write_file(c, argv[2]);
		carton_close(c);
	}
	if (r < 0)
		fprintf(stderr, "%s: %s\n", argv[argc - 1], strerror(-r));
	return r < 0 ? 1 : 0;
}
