/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/remote.h"

#include <sys/random.h>

#include "base/util.h"

#define PAUSE_FIRST_MS 100
#define PAUSE_MAX_MS 5000

bool remote_identify(const struct http_response *response, struct remote *ret)
{
	int64_t size = response->status == 206 ? response->range_total : response->length;

	if (size < 0 || response->coding[0])
		return false;
	ret->size = (uint64_t)size;
	ret->etag[0] = ret->last_modified[0] = '\0';
	if (response->strong_etag)
		strcpy(ret->etag, response->etag);
	else
		strcpy(ret->last_modified, response->last_modified);
	return true;
}

void remote_request(const struct remote *r, uint64_t first, uint64_t last, struct http_request *ret)
{
	*ret = (struct http_request){
		.url = r->url,
		.trust = r->trust,
		.has_range = true,
		.first = first,
		.last = last,
		.if_match = r->etag[0] ? r->etag : NULL,
		.if_unmodified_since = !r->etag[0] && r->last_modified[0] ? r->last_modified : NULL,
	};
}

/*
 * Does the answer name the version? A 206 to a request without If-Range has all header fields of a 200
 * (RFC 9110, 15.3.7), so one without a validator comes from a server that does not check.
 */
static bool same_version(const struct remote *r, const struct http_response *a)
{
	if (r->etag[0])
		return strcmp(r->etag, a->etag) == 0;
	return !r->last_modified[0] || strcmp(r->last_modified, a->last_modified) == 0;
}

/* Logs a wrong answer, once for all who get the same one. */
static void log_wrong(struct remote *r, int status, int error)
{
	char shown[256];

	if (atomic_exchange(&r->logged_status, status) == status)
		return;
	http_url_redact(r->url, shown, sizeof(shown));
	if (error == -ESTALE)
		carton_log(CARTON_LOG_ERROR, shown,
			   "changed on its server, or the server no longer answers Range requests "
			   "(status %d); open it again",
			   status);
	else
		carton_log(CARTON_LOG_ERROR, shown, "the server answers with status %d", status);
}

int remote_check(struct remote *r, const struct http_response *a, uint64_t first, uint64_t last)
{
	int error = http_status_errno(a->status);
	uint64_t least = MIN(last, first + MIN_REMOTE_PROGRESS - 1);

	if (a->status == 206 && a->range_first == (int64_t)first &&
	    a->range_last >= (int64_t)least && a->range_last <= (int64_t)last &&
	    a->range_total == (int64_t)r->size && same_version(r, a)) {
		atomic_store(&r->logged_status, 0);
		return 0;
	}
	if (r->is_mirror)
		return error == 0 || error == -ERANGE ? -EOPNOTSUPP : error;
	if (error == 0 || error == -ERANGE)
		error = -ESTALE;
	/* the file was there: ENOENT would say that the carton does not have it */
	if (error == -ENOENT)
		error = -EIO;
	/* logged by origin.c */
	if (error != -EBUSY)
		log_wrong(r, a->status, error);
	return error;
}

bool remote_passes(int error)
{
	return error == -EAGAIN || error == -EBUSY || error == -ECONNRESET || error == -ETIMEDOUT ||
	       error == -ECONNREFUSED || error == -EHOSTUNREACH || error == -ENETUNREACH;
}

int64_t remote_pause(unsigned attempt, long retry_after_s)
{
	int64_t pause = PAUSE_FIRST_MS;
	uint32_t random = 0;

	for (unsigned i = 1; i < attempt && pause < PAUSE_MAX_MS; i++)
		pause *= 2;
	(void)!getrandom(&random, sizeof(random), 0);
	/* half of it to all of it, so that those who failed together do not come back together */
	pause = pause / 2 + random % (pause / 2 + 1);
	return MAX(pause, (int64_t)retry_after_s * 1000);
}
