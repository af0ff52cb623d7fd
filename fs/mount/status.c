/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/json_writer.h"
#include "common/text.h"
#include "mount/passthrough.h"

void status_error(struct status *s, bool warning, const char *subject, const char *message)
{
	struct status_error *e;

	pthread_mutex_lock(&s->lock);
	e = &s->last[s->n_errors++ % STATUS_ERRORS];
	e->when = time(NULL);
	e->warning = warning;
	snprintf(e->text, sizeof(e->text), "%s%s%s", subject ? subject : "", subject ? ": " : "",
		 message);
	pthread_mutex_unlock(&s->lock);
}

static uint64_t count_errors(struct status *s)
{
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	n = s->n_errors;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* Ends `f`, which has written to `text`. */
static int end_text(FILE *f, struct status_text *text, struct status_text *ret)
{
	int r = text_close(f, &text->data);

	if (r == 0)
		*ret = *text;
	return r;
}

/* ---- JSON: one member or element a line, for cartonctl ---- */

static void put_waiting(void *ctx, const struct carton_waiting *waiting)
{
	struct json_writer *w = ctx;

	json_line(w, 2);
	json_begin(w, NULL, '{');
	json_text(w, "path", waiting->path);
	json_text(w, "state", waiting->fetching ? "fetching" : "verifying");
	json_number(w, "done", waiting->done);
	json_number(w, "size", waiting->size);
	json_number(w, "opens", waiting->opens);
	json_end(w, '}');
}

static void put_errors(struct json_writer *w, struct status *s)
{
	pthread_mutex_lock(&s->lock);
	for (uint64_t i = s->n_errors > STATUS_ERRORS ? s->n_errors - STATUS_ERRORS : 0;
	     i < s->n_errors; i++) {
		const struct status_error *e = &s->last[i % STATUS_ERRORS];

		json_line(w, 2);
		json_begin(w, NULL, '{');
		json_time(w, "time", e->when);
		json_text(w, "level", e->warning ? "warning" : "error");
		json_text(w, "message", e->text);
		json_end(w, '}');
	}
	pthread_mutex_unlock(&s->lock);
}

static void put_number(struct json_writer *w, const char *name, uint64_t value)
{
	json_line(w, 1);
	json_number(w, name, value);
}

static void put_text(struct json_writer *w, const char *name, const char *value)
{
	json_line(w, 1);
	json_text(w, name, value);
}

static void begin_list(struct json_writer *w, const char *name)
{
	json_line(w, 1);
	json_begin(w, name, '[');
}

static void put_left_out(void *ctx, const char *name, const char *why)
{
	struct json_writer *w = ctx;

	json_line(w, 2);
	json_begin(w, NULL, '{');
	json_text(w, "path", name);
	json_text(w, "fault", why);
	json_end(w, '}');
}

static void put_lists(struct json_writer *w, struct status *s, struct carton *c)
{
	begin_list(w, "left_out");
	carton_left_out(c, put_left_out, w);
	json_end(w, ']');
	begin_list(w, "waiting");
	carton_waiting(c, put_waiting, w);
	json_end(w, ']');
	begin_list(w, "last_errors");
	put_errors(w, s);
	json_end(w, ']');
}

int status_json(struct status *s, struct carton *c, struct status_text *ret)
{
	struct carton_counters k;
	struct status_text text;
	FILE *f = open_memstream(&text.data, &text.len);
	struct json_writer w = { .f = f, .spaced = true };
	const struct carton_signature *signature = carton_signed(c);
	char hash[65];
	uint64_t passed;
	bool on;

	if (!f)
		return -ENOMEM;
	carton_counters(c, &k);
	carton_model_hash(c, hash);
	json_begin(&w, NULL, '{');
	put_text(&w, "mountpoint", s->mountpoint);
	put_text(&w, "source", s->source);
	put_text(&w, "model_hash", hash);
	if (carton_commit(c))
		put_text(&w, "commit", carton_commit(c));
	put_text(&w, "signed_by", signature->checked ? signature->by : NULL);
	if (signature->ends)
		put_number(&w, "signed_until", (uint64_t)signature->ends);
	put_text(&w, "verify", carton_is_verified(c) ? s->verify : "off");
	put_text(&w, "version", CARTON_VERSION);
	put_number(&w, "pid", (uint64_t)getpid());
	put_number(&w, "started", (uint64_t)s->started);
	if (s->passthrough) {
		on = passthrough_count(s->passthrough, &passed);
		json_line(&w, 1);
		json_bool(&w, "passthrough", on);
		put_number(&w, "passthrough_files", passed);
	}
	put_number(&w, "files", k.files);
	put_number(&w, "bytes", k.bytes);
	put_number(&w, "verified_files", k.verified_files);
	put_number(&w, "verified_bytes", k.verified_bytes);
	put_number(&w, "corrupt_files", k.corrupt_files);
	put_number(&w, "corrupt_bytes", k.corrupt_bytes);
	put_number(&w, "unread_files", k.files - k.verified_files - k.corrupt_files);
	put_number(&w, "unread_bytes", k.bytes - k.verified_bytes - k.corrupt_bytes);
	put_number(&w, "cached_bytes", k.cached_bytes);
	put_number(&w, "remote_bytes", k.remote_bytes);
	put_number(&w, "linked_files", k.linked_files);
	put_number(&w, "linked_bytes", k.linked_bytes);
	put_number(&w, "unsized_files", k.unsized_files);
	put_number(&w, "late_files", k.late_files);
	put_number(&w, "hashed_bytes", k.hashed_bytes);
	put_number(&w, "fetched_bytes", k.fetched_bytes);
	put_number(&w, "cache_hits", k.cache_hits);
	put_number(&w, "cache_misses", k.cache_misses);
	put_number(&w, "errors", count_errors(s));
	put_number(&w, "left_out_files", carton_left_out(c, NULL, NULL));
	put_lists(&w, s, c);
	json_end_line(&w, '}');
	return end_text(f, &text, ret);
}

/* ---- Prometheus: names, units and suffixes follow its conventions ---- */

static void put_family(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP cartonfs_%s %s\n# TYPE cartonfs_%s %s\n", name, help, name, type);
}

static void put_metric(FILE *f, const char *name, const char *type, const char *help,
		       uint64_t value)
{
	put_family(f, name, type, help);
	fprintf(f, "cartonfs_%s %" PRIu64 "\n", name, value);
}

static void put_states(FILE *f, const char *name, const uint64_t values[3])
{
	static const char *const states[] = { "verified", "corrupt", "unread" };

	for (size_t i = 0; i < 3; i++)
		fprintf(f, "cartonfs_%s{state=\"%s\"} %" PRIu64 "\n", name, states[i], values[i]);
}

static void put_info(FILE *f, const struct status *s, const struct carton *c)
{
	char hash[65];

	carton_model_hash(c, hash);
	put_family(f, "info", "gauge", "The carton that is mounted; always 1.");
	fputs("cartonfs_info{source=", f);
	json_label(f, s->source);
	fputs(",mountpoint=", f);
	json_label(f, s->mountpoint);
	fprintf(f, ",model_hash=\"%s\",version=\"%s\"} 1\n", hash, CARTON_VERSION);
}

int status_metrics(struct status *s, struct carton *c, struct status_text *ret)
{
	struct carton_counters k;
	struct status_text text;
	FILE *f = open_memstream(&text.data, &text.len);

	if (!f)
		return -ENOMEM;
	carton_counters(c, &k);
	put_info(f, s, c);
	put_metric(f, "start_time_seconds", "gauge", "When it was mounted, since 1970.",
		   (uint64_t)s->started);
	put_family(f, "files", "gauge", "Files of the carton by their state.");
	put_states(f, "files",
		   (uint64_t[]){ k.verified_files, k.corrupt_files,
				 k.files - k.verified_files - k.corrupt_files });
	put_family(f, "files_size_bytes", "gauge", "Sizes of these files together.");
	put_states(f, "files_size_bytes",
		   (uint64_t[]){ k.verified_bytes, k.corrupt_bytes,
				 k.bytes - k.verified_bytes - k.corrupt_bytes });
	put_metric(f, "left_out_files", "gauge",
		   "Files of the repository that MANIFEST cannot list for their names.",
		   carton_left_out(c, NULL, NULL));
	put_metric(f, "cached_bytes", "gauge",
		   "Files that a local carton does not have and that were fetched, or are in the "
		   "cache.",
		   k.cached_bytes);
	put_metric(f, "remote_bytes", "gauge", "Files that have to be fetched.", k.remote_bytes);
	put_metric(f, "hashed_bytes_total", "counter", "Bytes read to be verified.",
		   k.hashed_bytes);
	put_metric(f, "fetched_bytes_total", "counter", "Bytes that came from servers.",
		   k.fetched_bytes);
	put_metric(f, "cache_hits_total", "counter", "Contents that the cache had.", k.cache_hits);
	put_metric(f, "cache_misses_total", "counter", "Contents that the cache had not.",
		   k.cache_misses);
	put_metric(f, "waiting_opens", "gauge", "Opens that wait for a file.", k.waiting);
	put_metric(f, "errors_total", "counter", "Errors and warnings that were logged.",
		   count_errors(s));
	return end_text(f, &text, ret);
}
