/* SPDX-License-Identifier: Apache-2.0 */
#include "http/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "log.h"
#include "base/pace.h"
#include "base/util.h"
#include "http/helper.h"
#include "http/internal.h"
#include "http/sigv4.h"

#define SCHEME "s3://"
#define RENEW_S 300	      /* before keys expire */
#define MAX_SKEW_S 900	      /* S3 refuses what is signed by a clock that is off by more */
#define MAX_DATE 253402300799 /* the end of 9999: what is later has no place in a signature */

#define MAX_MOVED 8 /* buckets whose regions are remembered */

struct bucket {
	char name[64], region[33];
};

struct s3 {
	struct login login;
	pthread_mutex_t lock; /* guards the next two: network threads write, any thread reads */
	struct bucket moved[MAX_MOVED];
	size_t n_moved; /* how many there have been; the newest replaces the oldest */
	struct aws_environment environment;
	struct aws_place place;
	struct aws_keys keys;
	int64_t skew_s; /* the clock of S3 is ahead of ours by this, if that is too much; else 0 */
	struct helper helper;
	struct aws_found found;
};

/* ---- URLs ---- */

/* The length of the bucket's name. */
static size_t bucket_len(const char *url)
{
	return strcspn(url + strlen(SCHEME), "/");
}

static const char *fault(const char *url)
{
	const char *bucket = url + strlen(SCHEME);
	size_t n = bucket_len(url);

	if (strlen(url) > HTTP_MAX_URL / 3)
		return "the URL is too long";
	if (n < 3 || n > 63 || strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-_") < n)
		return "not s3://BUCKET/KEY: the name of a bucket has 3 to 63 of a-z, 0-9, . and -";
	if (strlen(bucket) < n + 2)
		return "not s3://BUCKET/KEY: there is no key";
	/* libcurl would resolve these components */
	for (const char *p = bucket + n; p; p = strchr(p + 1, '/')) {
		size_t len = strcspn(p + 1, "/");

		if ((len == 1 && p[1] == '.') || (len == 2 && p[1] == '.' && p[2] == '.'))
			return "a key with the component . or .. cannot be asked for";
	}
	return NULL;
}

static bool same_bucket(const char *a, const char *b)
{
	size_t n = bucket_len(a);

	return n == bucket_len(b) && strncmp(a + strlen(SCHEME), b + strlen(SCHEME), n) == 0;
}

char *s3_url_at(const struct aws_place *place, const char *url)
{
	const char *bucket = url + strlen(SCHEME);
	struct buf out = buf_init(HTTP_MAX_URL + 1);
	int n = (int)bucket_len(url), r;

	if (*place->endpoint)
		r = buf_addf(&out, "%s/%.*s", place->endpoint, n, bucket);
	else if (memchr(bucket, '.', (size_t)n))
		/* no certificate is for a name with more dots */
		r = buf_addf(&out, "https://s3.%s.amazonaws.com/%.*s", place->region, n, bucket);
	else
		r = buf_addf(&out, "https://%.*s.s3.%s.amazonaws.com", n, bucket, place->region);
	if (r == 0)
		r = buf_add_encoded(&out, bucket + n, strlen(bucket + n), "-._~/");
	if (r < 0) {
		buf_finish(&out);
		return NULL;
	}
	return out.data;
}

/* ---- regions ---- */

/* The bucket of a URL, if its region is remembered; else NULL. Lock held. */
static struct bucket *find_bucket(struct s3 *s, const char *url)
{
	size_t n = bucket_len(url);

	for (size_t i = 0; i < MIN(s->n_moved, MAX_MOVED); i++)
		if (strlen(s->moved[i].name) == n &&
		    strncmp(s->moved[i].name, url + strlen(SCHEME), n) == 0)
			return &s->moved[i];
	return NULL;
}

/* The place to ask for a URL, with the region of its bucket if that is remembered. */
static struct aws_place place_of(struct s3 *s, const char *url)
{
	struct aws_place place = s->place;
	const struct bucket *b;

	pthread_mutex_lock(&s->lock);
	b = find_bucket(s, url);
	if (b)
		strcpy(place.region, b->region);
	pthread_mutex_unlock(&s->lock);
	return place;
}

static char *request_url(struct login *l, const char *url)
{
	struct aws_place place = place_of(container_of(l, struct s3, login), url);

	return s3_url_at(&place, url);
}

/* Remembers the region of a bucket. A new one is logged. */
static void keep_region(struct s3 *s, const char *url, const char *region)
{
	struct bucket *b;
	bool known;

	pthread_mutex_lock(&s->lock);
	b = find_bucket(s, url);
	known = strcmp(b ? b->region : s->place.region, region) == 0;
	if (!known && !b)
		b = &s->moved[s->n_moved++ % MAX_MOVED];
	if (!known) {
		snprintf(b->name, sizeof(b->name), "%.*s", (int)bucket_len(url),
			 url + strlen(SCHEME));
		strcpy(b->region, region);
	}
	pthread_mutex_unlock(&s->lock);
	if (!known)
		carton_log(CARTON_LOG_NOTICE, NULL,
			   "the bucket %.*s is in the region %s, and not in %s: it is asked there; "
			   "with AWS_REGION=%s it is at once",
			   (int)bucket_len(url), url + strlen(SCHEME), region, s->place.region,
			   region);
}

/* ---- keys ---- */

/* In the process that looks for them. */
static size_t find_keys(void *ctx)
{
	struct s3 *s = ctx;

	aws_find(&s->environment, &s->found);
	return offsetof(struct aws_found, output) + s->found.n;
}

/*
 * Takes the answer of the process; waits up to `wait_ms` for it. 0; -EAGAIN: not there yet; -errno.
 */
static int receive(struct s3 *s, int wait_ms)
{
	ssize_t n = helper_receive(&s->helper, wait_ms, &s->found, sizeof(s->found));
	int r = n < 0 ? (int)n : -EPIPE;

	if (n >= (ssize_t)offsetof(struct aws_found, output) &&
	    (size_t)n == offsetof(struct aws_found, output) + s->found.n)
		r = aws_take(&s->found, &s->keys);
	explicit_bzero(&s->found, sizeof(s->found));
	return r;
}

/* Ends a login, perhaps before it was complete. */
static void logout(struct login *l)
{
	struct s3 *s = container_of(l, struct s3, login);

	helper_end(&s->helper);
	pthread_mutex_destroy(&s->lock);
	explicit_bzero(s, sizeof(*s));
	free(s);
}

/* Settings with a fault give a URL, too: log_in() logs what is wrong with them. */
static char *settled(const char *url)
{
	struct aws_environment *environment = calloc(1, sizeof(*environment));
	struct aws_place place = { .region = "" };
	char *ret = NULL;

	if (!environment)
		return NULL;
	aws_look_around(environment);
	if (aws_place(environment, &place) != -ENOMEM)
		ret = s3_url_at(&place, url);
	explicit_bzero(environment, sizeof(*environment));
	free(environment);
	return ret;
}

/* Takes as long as credential_process does. */
static int login(const char *url, const struct login_options *o, struct login **ret)
{
	struct s3 *s = calloc(1, sizeof(*s));
	int r;

	(void)url;
	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	s->helper.fd = -1;
	aws_look_around(&s->environment);
	r = aws_place(&s->environment, &s->place);
	if (r < 0) {
		logout(&s->login);
		return r;
	}
	r = helper_start(&s->helper, &(struct helper_job){ find_keys, s, &s->found }, o->stop);
	if (r == 0) {
		helper_ask(&s->helper);
		r = receive(s, pace.login_ms);
		s->helper.asked_ms = now_ms() - pace.s3_again_ms;
	}
	if (r < 0) {
		if (r != -ECANCELED)
			carton_log(CARTON_LOG_ERROR, NULL, "there are no keys for S3: %s",
				   strerror(-r));
		logout(&s->login);
		return r;
	}
	if (!*s->keys.id)
		carton_log(CARTON_LOG_NOTICE, NULL,
			   "no keys for S3 in the environment or ~/.aws: requests are not signed");
	*ret = &s->login;
	return 0;
}

/* ---- requests ---- */

/* The keys to sign with now. Never waits: keys that nearly expire are replaced by later calls. */
static const struct aws_keys *keys_now(struct s3 *s)
{
	if (s->helper.asked)
		receive(s, 0);
	if (s->keys.expiry && (int64_t)time(NULL) + s->skew_s >= s->keys.expiry - RENEW_S &&
	    now_ms() - s->helper.asked_ms >= pace.s3_again_ms)
		helper_ask(&s->helper);
	return &s->keys;
}

/* Not by libcurl, which signs by our clock. */
static int sign(struct login *l, struct http_stream *stream)
{
	struct s3 *s = container_of(l, struct s3, login);
	struct aws_place place = place_of(s, stream->signed_url);
	struct sigv4 request = {
		.keys = keys_now(s),
		.region = place.region,
		.method = stream->head_only ? "HEAD" : "GET",
		.target = &stream->target,
		.requester_pays = stream->http->requester_pays,
		.when = (int64_t)time(NULL) + s->skew_s,
	};
	struct buf lines;
	char *rest;
	int r;

	stream->skew_s = s->skew_s;
	if (!*request.keys->id)
		return 0;
	r = sigv4_headers(&request, &lines);
	for (char *line = r == 0 ? strtok_r(lines.data, "\n", &rest) : NULL; r == 0 && line;
	     line = strtok_r(NULL, "\n", &rest))
		r = http_add_line(&stream->sent, line);
	if (lines.data)
		explicit_bzero(lines.data, lines.cap);
	buf_finish(&lines);
	return r < 0 ? -ENOMEM : 0;
}

/* Other keys are loaded, at most every ten seconds; a clock that is too far off is corrected. */
static bool refused(struct login *l, const struct http_stream *stream)
{
	struct s3 *s = container_of(l, struct s3, login);
	int64_t date = stream->response_header.date, skew = date - (int64_t)time(NULL);

	if (!*s->keys.id)
		return false;
	if (date >= 0 && date <= MAX_DATE && llabs(skew - stream->skew_s) > MAX_SKEW_S) {
		/* unless that was said for another request */
		if (llabs(skew - s->skew_s) > MAX_SKEW_S)
			carton_log(
				CARTON_LOG_NOTICE, NULL,
				"the clock is %lld s %s that of S3, by which requests are signed "
				"now",
				(long long)llabs(skew), skew < 0 ? "ahead of" : "behind");
		s->skew_s = skew;
		return true;
	}
	if (now_ms() - s->helper.asked_ms >= pace.s3_again_ms)
		helper_ask(&s->helper);
	return false;
}

/* Copies what is between <NAME> and the next <, with the five entities of XML decoded. */
static void copy_element(const char *xml, const char *name, char *ret, size_t n)
{
	static const char *const entities[] = { "&lt;<", "&gt;>", "&quot;\"", "&apos;'", "&amp;&" };
	const char *at = strstr(xml, name);
	size_t len = 0;

	for (at = at ? at + strlen(name) : ""; *at && *at != '<' && len < n - 1; at++) {
		ret[len] = *at;
		for (size_t i = 0; i < ARRAY_SIZE(entities); i++) {
			size_t size = strlen(entities[i]) - 1;

			if (strncmp(at, entities[i], size) == 0) {
				ret[len] = entities[i][size];
				at += size - 1;
				break;
			}
		}
		len++;
	}
	ret[len] = '\0';
}

/*
 * 301 PermanentRedirect or 400 AuthorizationHeaderMalformed: the bucket is in another region. Only
 * its name is taken, and becomes a part of the host that we would have asked in that region.
 */
static char *moved(struct login *l, const struct http_stream *stream, const char *body)
{
	const struct http_header *header = &stream->response_header;
	const char *error = body ? strstr(body, "<Error>") : NULL;
	struct s3 *s = container_of(l, struct s3, login);
	char code[64] = "", region[64] = "";

	if (error) {
		copy_element(error, "<Code>", code, sizeof(code));
		copy_element(error, "<Region>", region, sizeof(region));
	}
	if (*header->region)
		strcpy(region, header->region);
	if (header->response.status != 301 &&
	    (header->response.status != 400 || strcmp(code, "AuthorizationHeaderMalformed") != 0))
		return NULL;
	if (!http_region_ok(region))
		return NULL;
	keep_region(s, stream->signed_url, region);
	return request_url(l, stream->signed_url);
}

/* <Error><Code>AccessDenied</Code><Message>Access Denied</Message>… */
static void reason(const char *body, char *ret, size_t n)
{
	const char *error = strstr(body, "<Error>");
	char code[64], message[256];

	*ret = '\0';
	if (!error)
		return;
	copy_element(error, "<Code>", code, sizeof(code));
	copy_element(error, "<Message>", message, sizeof(message));
	snprintf(ret, n, "%s%s%s", code, *code && *message ? ": " : "", message);
}

const struct scheme s3_scheme = {
	.name = "s3",
	.bundle = "AWS_CA_BUNDLE",
	.find_bundle = aws_bundle,
	.misspelt = "not a URL of the form s3://BUCKET/KEY",
	.fault = fault,
	.login = login,
	.logout = logout,
	.settled = settled,
	.request_url = request_url,
	.sign = sign,
	.refused = refused,
	.moved = moved,
	.reason = reason,
	.links_may = same_bucket,
	.links_fault = "refused: LINKS may lead to the bucket of an s3 carton only",
};
