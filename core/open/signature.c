/* SPDX-License-Identifier: Apache-2.0 */
#include "open/signature.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/file.h"
#include "fetch/fetcher.h"
#include "http/http.h"
#include "http/scheme.h"
#include "sign/check.h"
#include "sign/sign.h"

static int too_large(const char *name)
{
	char shown[256];

	return log_error(-EFBIG, http_source_label(name, shown, sizeof(shown)),
			 "is larger than %llu MiB, the most that a signature may be",
			 (unsigned long long)(MAX_SIGNATURE / MIB));
}

/* Counts the memory for a signature of `size` bytes, until signature_finish(). */
static int take(struct carton_source *s, uint64_t size)
{
	int r = budget_take(&s->carton->budget, SIGNATURE_EXPANSION * size);

	if (r == 0)
		s->signature.taken += SIGNATURE_EXPANSION * size;
	return r;
}

/* ---- files ---- */

/* All of a file, if it is a regular one: 0, -ENOENT, or -errno, logged. */
static int read_file(struct carton_source *s)
{
	struct signature *g = &s->signature;
	int fd = open(g->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r = fd < 0 ? -errno : 0;
	struct stat st;

	g->text = buf_init(MAX_SIGNATURE);
	if (r == 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
		r = -EINVAL;
	if (r == 0 && (uint64_t)st.st_size > MAX_SIGNATURE)
		r = too_large(g->name);
	else if (r == -ENOTDIR || r == -ENAMETOOLONG)
		r = -ENOENT;
	else if (r < 0 && r != -ENOENT)
		log_error(r, g->name, "cannot be read: %s", strerror(-r));
	if (r == 0)
		r = take(s, (uint64_t)st.st_size);
	if (r == 0)
		r = buf_reserve(&g->text, (size_t)st.st_size);
	if (r == 0)
		r = pread_full(fd, g->text.data, (size_t)st.st_size, 0);
	if (r == 0) {
		g->text.len = (size_t)st.st_size;
		g->found = true;
	}
	fd_close(fd);
	return r;
}

/* NAME.sig; of a URL, before what follows its path. Of a repository there is none. NULL: none. */
static char *name_beside(const struct carton_source *s)
{
	const char *name = s->options->beside ? s->options->beside : s->name;
	size_t n = s->url ? strcspn(name, "?#") : strlen(name);
	char *ret;

	while (n > 1 && name[n - 1] == '/')
		n--;
	if (asprintf(&ret, "%.*s%s%s", (int)n, name, SIGN_SUFFIX, s->url ? name + n : "") < 0)
		return NULL;
	return ret;
}

int signature_begin(struct carton_source *s)
{
	const struct carton_options *o = s->options;
	struct signature *g = &s->signature;
	char shown[256];
	int r = trust_new(o, &g->trust);

	if (r < 0 || !g->trust)
		return r;
	if (s->kind->lists)
		return log_error(-EINVAL, NULL,
				 "verify_key and verify_ca are of a carton; of a bare file it is "
				 "sha256=");
	if (o->signature || !s->repository.server)
		g->name = o->signature ? strdup(o->signature) : name_beside(s);
	if (!g->name)
		return s->repository.server && !o->signature ? 0 : -ENOMEM;
	g->remote = http_is_url(g->name);
	r = g->remote ? 0 : read_file(s);
	if (r == -ENOENT && o->signature)
		return log_error(r, http_source_label(g->name, shown, sizeof(shown)),
				 "cannot be read: %s", strerror(-r));
	return r == -ENOENT ? 0 : r;
}

const char *signature_url(const struct carton_source *s)
{
	return s->signature.remote ? s->signature.name : NULL;
}

/* ---- what has to be fetched ---- */

static void refused(void *ctx, const struct http_response *answer)
{
	*(int *)ctx = answer->status;
}

static int fetch_to(struct carton *c, struct fetch_place *place, struct file *dest, int *ret_status)
{
	const struct fetch f = {
		.options = &c->fetch,
		.cancel = c->fetch.cancel,
		.what = FETCH_FILE,
		.places = place,
		.n_places = 1,
		.plain = true,
		.deadline_ms = now_ms() + c->fetch.timeout_ms,
		.dest = dest,
		.refused = refused,
		.ctx = ret_status,
	};
	uint64_t size;
	int r = fetch_run(&f, &size);

	return r < 0 ? r : (int)size;
}

/* The bytes at a URL: 0; -ENOENT: it has none, or does not show them; or -errno, logged. */
static int fetch(struct carton_source *s, const char *url)
{
	struct fetch_place place = { .url = url, .trust = HTTP_USER };
	struct signature *g = &s->signature;
	struct carton *c = s->carton;
	struct file *dest;
	int status = 0, r = file_memory(MAX_SIGNATURE, &dest), size;

	if (r < 0)
		return r;
	route_init(&place.route);
	size = fetch_to(c, &place, dest, &status);
	route_finish(&place.route);
	r = MIN(size, 0);
	if (r == 0)
		r = take(s, (uint64_t)size);
	buf_finish(&g->text);
	g->text = buf_init(MAX_SIGNATURE);
	if (r == 0)
		r = buf_reserve(&g->text, (size_t)size);
	if (r == 0)
		r = file_read(dest, g->text.data, (size_t)size, 0);
	if (r == 0) {
		g->text.len = (size_t)size;
		g->found = true;
	}
	file_abort(dest, false);
	if (r == -ENOSPC || r == -EFBIG)
		return too_large(url);
	return status == 403 || status == 404 || status == 410 ? -ENOENT : r;
}

static int fetch_named(struct carton_source *s)
{
	struct signature *g = &s->signature;
	char shown[256], *url;
	const char *fault = NULL;
	int r = scheme_resolve(g->name, &url, &fault);

	http_url_redact(g->name, shown, sizeof(shown));
	if (r == -EINVAL || (r == 0 && (fault = http_url_fault(url)))) {
		if (r == 0)
			free(url);
		return log_error(-EINVAL, shown, "%s", fault);
	}
	if (r == 0 && !s->carton->fetch.http)
		r = s->options->signature ?
			    log_error(-ENETUNREACH, shown, "is not fetched when offline") :
			    -ENOENT;
	else if (r == 0)
		r = fetch(s, url);
	free(url);
	if (r == -ENOENT && s->options->signature)
		return log_error(-ENOENT, shown, "there is no signature");
	return r;
}

/* All of a file of the carton that only LINKS has. As read_inside(). */
static int read_linked(struct carton_source *s, const char *line, struct link *link)
{
	struct signature *g = &s->signature;
	uint8_t sha256[SHA256_SIZE];
	struct object *o;
	uint64_t size;
	int r;

	manifest_hash(line, sha256);
	r = object_add_link(s->carton->store, sha256, line, link, &o);
	if (r == 0)
		r = object_get_wait(o, NULL);
	if (r < 0)
		return r;
	size = object_size(o);
	r = size > MAX_SIGNATURE ? too_large(line) : take(s, size);
	buf_finish(&g->text);
	g->text = buf_init(MAX_SIGNATURE);
	if (r == 0)
		r = buf_reserve(&g->text, size);
	if (r == 0)
		r = object_read_wait(o, g->text.data, size, 0, NULL);
	if (r == 0) {
		g->text.len = size;
		g->found = true;
	}
	object_put(o);
	return r;
}

/* One that is in what is opened, or that its LINKS leads to: 0, -ENOENT, or -errno, logged. */
static int read_inside(struct carton_source *s, const char *path)
{
	struct carton *c = s->carton;
	const struct entry *e = container_find(c->container, path);
	const char *line = manifest_find(c->manifest, path);
	uint8_t sha256[SHA256_SIZE];
	struct link *l;
	int r;

	free(s->signature.name);
	s->signature.name = strdup(path);
	if (!s->signature.name)
		return -ENOMEM;
	if (e && e->kind == ENTRY_FILE) {
		buf_finish(&s->signature.text);
		r = take(s, MIN(e->size, MAX_SIGNATURE));
		if (r < 0)
			return r;
		r = container_read(c->container, e, MAX_SIGNATURE, &s->signature.text);
		s->signature.found = r == 0;
		return r;
	}
	if (!line)
		return -ENOENT;
	manifest_hash(line, sha256);
	l = links_find(c->links, sha256);
	return l && !l->fault ? read_linked(s, line, l) : -ENOENT;
}

/* ---- all ---- */

/* The first place that has one is the place. */
static int find(struct carton_source *s)
{
	static const char *const inside[] = { SIGN_IN_CARTON, "model/" SIGN_IN_MODEL };
	struct signature *g = &s->signature;
	int r = g->remote ? fetch_named(s) : -ENOENT;

	if (g->found)
		return 0;
	for (size_t i = 0; r == -ENOENT && i < ARRAY_SIZE(inside); i++)
		r = read_inside(s, inside[i]);
	return r;
}

static void read_text(struct signature *g, const struct buf *text, struct reason *why)
{
	buf_finish(&g->payload);
	g->r = sign_read(g->trust, text, &g->by, &g->payload, why);
}

static void run(struct job *job)
{
	struct signature *g = container_of(job, struct signature, job);

	read_text(g, &g->text, &g->why);
	sem_post(&g->done);
}

void signature_start(struct carton_source *s)
{
	struct signature *g = &s->signature;

	if (!g->found)
		return;
	sem_init(&g->done, 0, 0);
	g->started = true;
	g->job.run = run;
	workers_submit(s->carton->workers, &g->job, LANE_BULK);
}

/* The job ends soon: it waits for nothing. */
static void wait_for_job(struct signature *g)
{
	while (g->started && sem_wait(&g->done) < 0)
		;
	if (g->started)
		sem_destroy(&g->done);
	g->started = false;
}

/* 1: it is right; 0: it is not; -ENOMEM. `text` NULL: the one that the job has read. */
static int check(struct carton_source *s, const struct buf *text)
{
	struct signature *g = &s->signature;
	struct reason why = { 0 };

	if (text)
		read_text(g, text, &why);
	if (g->r == 0)
		g->r = sign_compare(&g->payload, s->carton->manifest, &why);
	if (g->r == 0)
		s->carton->signature = g->by;
	if (g->r < 0 && !*g->why.text)
		g->why = why;
	return g->r == 0 ? 1 : g->r == -ENOMEM ? -ENOMEM : 0;
}

/*
 * An import_signature_fn: whoever may write to a registry can attach some. The memory for one is
 * given back before the next one, and one that is too large for it does not hide the right one.
 */
static int check_attached(void *source, const struct buf *text)
{
	struct carton_source *s = source;
	struct signature *g = &s->signature;
	const uint64_t n = SIGNATURE_EXPANSION * (uint64_t)text->len;
	int r;

	if (!budget_hold(&s->carton->budget, n)) {
		reason_set(&g->why, -EFBIG,
			   "%llu KiB of memory are not there to read one of them: memory= gives it",
			   (unsigned long long)(n / KIB));
		return 0;
	}
	r = check(s, text);
	buf_finish(&g->payload);
	budget_drop(&s->carton->budget, n);
	return r;
}

int signature_check(struct carton_source *s)
{
	struct signature *g = &s->signature;
	struct carton *c = s->carton;
	const char *name = "the signature in the registry";
	char shown[256];
	bool started;
	int r;

	if (!g->trust)
		return 0;
	started = g->started;
	wait_for_job(g);
	r = find(s);
	if (r == 0) {
		name = http_source_label(g->name, shown, sizeof(shown));
		r = check(s, started ? NULL : &g->text);
	} else if (r == -ENOENT) {
		r = s->kind->signatures ? s->kind->signatures(s, check_attached, s) : 0;
	}
	if (r == 0 && *g->why.text)
		return log_error(-EKEYREJECTED, name, "%s", g->why.text);
	if (r == 0)
		return log_error(-EKEYREJECTED, NULL,
				 "there is no signature %s it or in it (misc/model.sig); "
				 "name one: signature=",
				 s->kind->signatures ? "attached to" : "beside");
	if (r > 0 && c->manifest->left_out)
		carton_log(CARTON_LOG_INFO, name, "leaves out %zu file%s of MANIFEST: not shown",
			   c->manifest->left_out, c->manifest->left_out == 1 ? "" : "s");
	return MIN(r, 0);
}

void signature_finish(struct carton_source *s)
{
	wait_for_job(&s->signature);
	budget_give(&s->carton->budget, s->signature.taken);
	buf_finish(&s->signature.payload);
	buf_finish(&s->signature.text);
	trust_free(s->signature.trust);
	free(s->signature.name);
}
