/* SPDX-License-Identifier: Apache-2.0 */
#include "http/landing.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "http/internal.h"

/* A landing is left this part of its life before its end, */
#define MARGIN_PART 10
#define MARGIN_MAX_S 30 /* but not earlier */
#define MAX_LIFE_S (100L * 365 * 24 * 3600)

/* ---- signed URLs ---- */

/* The value of a parameter of the query, cut to n - 1 bytes; false: there is none. */
static bool parameter(const char *url, const char *name, char *ret, size_t n)
{
	const char *p = strchr(url, '?');
	size_t len = strlen(name);

	for (; p && *p && *p != '#'; p += strcspn(p, "&#")) {
		p++;
		if (strncasecmp(p, name, len) == 0 && p[len] == '=') {
			snprintf(ret, n, "%.*s", (int)MIN(strcspn(p + len + 1, "&#"), n),
				 p + len + 1);
			return true;
		}
	}
	return false;
}

int64_t http_parse_time(const char *text)
{
	struct tm tm = { 0 };
	char digits[16];
	size_t n = 0;

	for (; *text && n < sizeof(digits) - 1; text++) {
		if (strncasecmp(text, "%3a", 3) == 0)
			text += 2;
		else if (*text >= '0' && *text <= '9')
			digits[n++] = *text;
	}
	digits[n] = '\0';
	if (n < 14 || sscanf(digits, "%4d%2d%2d%2d%2d%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
			     &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6)
		return 0;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	return MAX((int64_t)timegm(&tm), 0);
}

int64_t http_url_expiry(const char *url)
{
	static const char *const signers[][2] = { { "X-Amz-Date", "X-Amz-Expires" },
						  { "X-Goog-Date", "X-Goog-Expires" } };
	char from[40], value[40];
	int64_t when;

	for (size_t i = 0; i < ARRAY_SIZE(signers); i++) {
		if (!parameter(url, signers[i][0], from, sizeof(from)) ||
		    !parameter(url, signers[i][1], value, sizeof(value)))
			continue;
		when = http_parse_time(from);
		/* a server may say anything */
		return when ? when + MIN(MAX(strtol(value, NULL, 10), 0), MAX_LIFE_S) : 0;
	}
	if (parameter(url, "Expires", value, sizeof(value)))
		return MAX(strtol(value, NULL, 10), 0);
	return parameter(url, "se", value, sizeof(value)) ? http_parse_time(value) : 0;
}

/* Such names mean something else in the query of a URL that is not signed so. */
static bool is_signature(const char *url, const char *name, size_t n)
{
	static const char *const prefixes[] = { "x-amz-", "x-goog-" };
	static const char *const names[] = { "expires",	      "signature",	"key-pair-id",
					     "policy",	      "awsaccesskeyid", "googleaccessid",
					     "hash-algorithm" };
	/* Azure's shared access signatures */
	static const char *const azure[] = { "sv",  "ss",  "srt", "sp",	 "st",	  "se",
					     "sr",  "sig", "sip", "spr", "skoid", "sktid",
					     "skt", "ske", "sks", "skv" };
	char value[1];

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (n > strlen(prefixes[i]) && !strncasecmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(names) && parameter(url, "Signature", value, 1); i++)
		if (n == strlen(names[i]) && !strncasecmp(name, names[i], n))
			return true;
	for (size_t i = 0; i < ARRAY_SIZE(azure) && parameter(url, "sig", value, 1); i++)
		if (n == strlen(azure[i]) && !strncmp(name, azure[i], n))
			return true;
	return false;
}

char *http_url_unsigned(const char *url)
{
	char *copy = strdup(url), *query = copy ? strchr(copy, '?') : NULL, *to = query;
	bool first = true;

	if (!query)
		return copy;
	for (const char *p = query; *p && *p != '#';) {
		size_t n = strcspn(++p, "&#");

		if (!is_signature(url, p, MIN(n, strcspn(p, "=")))) {
			*to++ = first ? '?' : '&';
			memmove(to, p, n);
			to += n;
			first = false;
		}
		p += n;
	}
	*to = '\0';
	return copy;
}

/* ---- landings ---- */

struct http_landing *http_landing(struct http_stream *s)
{
	struct http_landing *l = NULL;
	int64_t now = (int64_t)time(NULL), left;

	/* the network thread does not change them after it has published the response */
	pthread_mutex_lock(&s->lock);
	if (s->ready && s->n_seen > 1)
		l = calloc(1, sizeof(*l));
	if (l) {
		atomic_init(&l->refs, 1);
		l->url = strdup(s->target.url);
		l->allowed = s->allowed;
		l->left_origin = s->left_origin;
	}
	pthread_mutex_unlock(&s->lock);
	if (l && !l->url) {
		free(l);
		return NULL;
	}
	if (!l)
		return NULL;
	l->expiry = http_url_expiry(l->url);
	left = l->expiry - now;
	/* a clock that differs by more than its life: only the server can tell */
	if (left <= 0)
		l->expiry = 0;
	else
		l->expiry -= MIN(left / MARGIN_PART, MARGIN_MAX_S);
	return l;
}

struct http_landing *http_landing_ref(struct http_landing *l)
{
	if (l)
		atomic_fetch_add(&l->refs, 1);
	return l;
}

void http_landing_unref(struct http_landing *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	free(l->url);
	free(l);
}

const char *http_landing_url(const struct http_landing *l)
{
	return l->url;
}

bool http_landing_expired(const struct http_landing *l)
{
	return l->expiry && (int64_t)time(NULL) >= l->expiry;
}
