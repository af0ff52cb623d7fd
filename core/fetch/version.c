/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/version.h"

#include <stdlib.h>

#include "base/util.h"

/* ---- versions ---- */

bool version_identify(const struct http_response *response, struct version *ret)
{
	int64_t size = response->status == 206 ? response->range_total : response->length;

	/* ranges are of the coded bytes, which may be the file's own, whatever the server says */
	if (size < 0 || (response->coding[0] && response->status != 206))
		return false;
	ret->size = (uint64_t)size;
	ret->etag[0] = ret->last_modified[0] = '\0';
	if (response->strong_etag)
		strcpy(ret->etag, response->etag);
	else
		strcpy(ret->last_modified, response->last_modified);
	return true;
}

bool version_asks(const struct version *r)
{
	return (r->etag[0] || r->last_modified[0]) && !atomic_load(&r->unconditional) &&
	       !atomic_load(&r->untrusted);
}

void version_request(const struct version *r, uint64_t first, uint64_t last,
		     struct http_request *ret)
{
	bool asks = version_asks(r);

	*ret = (struct http_request){
		.has_range = true,
		.first = first,
		.last = last,
		.if_match = asks && r->etag[0] ? r->etag : NULL,
		.if_unmodified_since = asks && !r->etag[0] ? r->last_modified : NULL,
	};
}

/*
 * A 206 to a request without If-Range has all header fields of a 200 (RFC 9110, 15.3.7), so one
 * without a validator comes from a server that does not check.
 */
bool version_is_named(const struct version *r, const struct http_response *a)
{
	if (r->etag[0])
		return strcmp(r->etag, a->etag) == 0;
	return !r->last_modified[0] || strcmp(r->last_modified, a->last_modified) == 0;
}

bool version_can_tell(const struct version *r, const struct http_response *a)
{
	/* of bytes without a hash, the validators must say it */
	return r->end_n > 0 && !atomic_load(&r->untrusted) &&
	       (r->hashed || (a->status == 412 && !atomic_load(&r->unconditional)));
}

void version_trust(struct version *r, bool same)
{
	/* a server that contradicts a second time, or sends another validator, has several */
	if (atomic_exchange(&r->unconditional, true) || !same)
		atomic_store(&r->untrusted, r->hashed);
}

void version_distrust(struct version *r)
{
	atomic_store(&r->unconditional, false);
	atomic_store(&r->untrusted, false);
}

void version_log(struct version *r, const struct http_response *a, int error)
{
	int status = a ? a->status : 412;
	char shown[256];

	/* -EBUSY: logged by server.c */
	if (r->one_of_several || error == -EBUSY ||
	    atomic_exchange(&r->logged_status, status) == status)
		return;
	http_url_redact(r->url, shown, sizeof(shown));
	if (error == -ESTALE)
		carton_log(CARTON_LOG_ERROR, shown,
			   "changed on its server, or the server no longer answers Range requests "
			   "(status %d); open it again",
			   status);
	else
		carton_log(CARTON_LOG_ERROR, shown, "the server answers with status %d%s%s", status,
			   *a->reason ? ": " : "", a->reason);
}

int version_check(struct version *r, const struct http_response *a, uint64_t first, uint64_t last)
{
	int error = http_status_errno(a->status);
	uint64_t least = MIN(last, first + MIN_FETCH_PROGRESS - 1);

	if (a->status == 206 && a->range_first == (int64_t)first &&
	    a->range_last >= (int64_t)least && a->range_last <= (int64_t)last &&
	    a->range_total == (int64_t)r->size) {
		if (!atomic_load(&r->untrusted) && !version_is_named(r, a))
			return VERSION_UNSURE;
		atomic_store(&r->logged_status, 0);
		return 0;
	}
	if (r->one_of_several)
		return error == 0 || error == -ERANGE ? -EOPNOTSUPP : error;
	if (a->status == 412)
		return VERSION_UNSURE;
	if (error == 0 || error == -ERANGE)
		error = -ESTALE;
	/* the file was there: ENOENT would say that the carton does not have it */
	if (error == -ENOENT)
		error = -EIO;
	return error;
}

/* ---- routes ---- */

void route_init(struct route *r)
{
	*r = (struct route){ .redirect = NULL };
	pthread_mutex_init(&r->lock, NULL);
}

void route_finish(struct route *r)
{
	http_redirect_unref(r->redirect);
	free(r->url);
	pthread_mutex_destroy(&r->lock);
}

/* Lock held. */
static void leave_redirect(struct route *r)
{
	http_redirect_unref(r->redirect);
	r->redirect = NULL;
}

static int enter(struct route *r, const void *who, struct queue_slot *slot,
		 struct http_redirect **ret, char **ret_url)
{
	char *url = NULL;

	if (r->redirect && http_redirect_expired(r->redirect))
		leave_redirect(r);
	if (!r->redirect && r->moves && r->pathfinder && r->pathfinder != who) {
		queue_add(&r->queue, slot);
		return -EAGAIN;
	}
	if (!r->redirect && r->url) {
		url = strdup(r->url);
		if (!url)
			return -ENOMEM;
	}
	if (!r->redirect && r->moves)
		r->pathfinder = who;
	queue_remove(slot);
	*ret = http_redirect_ref(r->redirect);
	*ret_url = url;
	return 0;
}

int route_enter(struct route *r, const void *who, struct queue_slot *slot,
		struct http_redirect **ret, char **ret_url)
{
	int result;

	pthread_mutex_lock(&r->lock);
	result = enter(r, who, slot, ret, ret_url);
	pthread_mutex_unlock(&r->lock);
	return result;
}

/* Lock held. */
static void end_search(struct route *r, const void *who)
{
	if (r->pathfinder != who)
		return;
	r->pathfinder = NULL;
	queue_wake(&r->queue, true);
}

void route_found(struct route *r, const void *who, struct http_redirect *redirect)
{
	pthread_mutex_lock(&r->lock);
	if (redirect) {
		leave_redirect(r);
		r->redirect = redirect;
	}
	r->moves = r->redirect;
	end_search(r, who);
	pthread_mutex_unlock(&r->lock);
}

void route_failed(struct route *r, const void *who, const struct http_redirect *began)
{
	pthread_mutex_lock(&r->lock);
	if (began && r->redirect == began)
		leave_redirect(r);
	end_search(r, who);
	pthread_mutex_unlock(&r->lock);
}

void route_give_up(struct route *r, struct queue_slot *slot)
{
	pthread_mutex_lock(&r->lock);
	queue_remove(slot);
	pthread_mutex_unlock(&r->lock);
}

int route_replace(struct route *r, const char *url)
{
	char *copy = strdup(url);

	if (!copy)
		return -ENOMEM;
	pthread_mutex_lock(&r->lock);
	free(r->url);
	r->url = copy;
	leave_redirect(r);
	r->moves = false;
	pthread_mutex_unlock(&r->lock);
	return 0;
}
