/* SPDX-License-Identifier: Apache-2.0 */
/* A carton file at a URL: read by Range requests, downloaded, or as the cache has kept it. */
#include <stdlib.h>
#include <time.h>

#include "archive/zip.h"
#include "fetch/download.h"
#include "fetch/remote_source.h"
#include "http/hf.h"
#include "http/http.h"
#include "http/scheme.h"
#include "open/kind.h"

static bool takes(const char *name)
{
	return http_is_url(name);
}

static int begin(struct carton_source *s)
{
	const struct scheme *scheme = scheme_of(s->name);
	const char *fault = NULL;
	char shown[256];
	int r = scheme_resolve(s->name, &s->url, &fault);

	/* a URL that stands for itself may be a template there, and is not checked */
	if (r == 0 && scheme && scheme->fault && !scheme->resolve)
		fault = scheme->fault(s->name);
	if (!fault && s->options->hub_token && scheme != &hf_scheme)
		fault = "hub_token is for a carton that is here, and this one is at a URL";
	if (!fault)
		return r;
	return log_error(-EINVAL, http_url_redact(s->name, shown, sizeof(shown)), "%s", fault);
}

static bool may_fetch(const struct carton_source *s)
{
	(void)s;
	return true;
}

/* Opens the carton offline, as it was when it was last opened, if the cache has that. */
static int open_kept(struct carton *c, const char *url, struct source **ret, int64_t *ret_mtime)
{
	char shown[256];
	int r = -ENOENT;

	if (c->cache)
		r = remote_source_restore(c->cache, url, ret);
	if (r == 0) {
		c->remote_source = source_ref(*ret);
		*ret_mtime = remote_source_mtime(*ret);
	} else if (r == -ENOENT && c->cache) {
		r = download_kept(c->cache, url, ret);
		*ret_mtime = INT64_MIN;
	}
	if (r != -ENOENT)
		return r;
	return log_error(-ENETUNREACH, http_url_redact(url, shown, sizeof(shown)),
			 "is not in the cache, and nothing is fetched when offline; run "
			 "cartonctl fetch without --offline first");
}

/*
 * As remote_source_open(). 1: also if its ranges are of coded bytes. That may not be so although
 * its server says it, such as a store that keeps what was said when it was uploaded.
 */
static int open_ranges(struct carton *c, const char *url, const char *source_url, bool hashed,
		       struct source **ret)
{
	int r = remote_source_open(&c->fetch, url, source_url, hashed, ret);

	if (r != 0 || !remote_source_is_coded(*ret))
		return r;
	r = hashed ? zip_has_end(*ret) : 0;
	if (r == 1)
		return 0;
	source_unref(*ret);
	return r < 0 ? r : 1;
}

/* Opens the carton over the network. What is read until it is open is kept for open_kept(). */
static int open_remote(struct carton *c, const char *url, struct source **ret, int64_t *ret_mtime)
{
	int r = open_ranges(c, url, NULL, c->verify, ret);

	if (r == 1)
		return download_carton(&c->fetch, c->cache, url, ret, ret_mtime);
	if (r < 0)
		return r;
	*ret_mtime = remote_source_mtime(*ret);
	c->remote_source = source_ref(*ret);
	return 0;
}

/* Another place that has all of it. -ENOENT: none. */
static int open_at_mirror(struct carton *c, const char *source_url, struct source **ret,
			  int64_t *ret_mtime)
{
	struct source *source = NULL;
	int r = -ENOENT;

	for (size_t i = 0; r < 0; i++) {
		char *url = mirrors_carton(c->mirrors, i);

		if (!url)
			return -ENOENT;
		r = open_ranges(c, url, source_url, true, &source);
		free(url);
		/* without ranges it is of no use here */
		r = r == 1 ? -ENOENT : r;
	}
	*ret_mtime = remote_source_mtime(source);
	c->remote_source = source_ref(source);
	*ret = source;
	return 0;
}

int url_open(struct carton_source *s, struct source **ret, int64_t *ret_mtime)
{
	struct carton *c = s->carton;
	bool checked = c->verify && s->options->manifest_sha256;
	int64_t mtime = INT64_MIN;
	int r = open_network(s);

	if (r < 0)
		return r;
	/*
	 * a mirror is not trusted: its MANIFEST is checked against the pinned hash, everything else
	 * against MANIFEST; where that is off, only the source URL will do
	 */
	r = checked && c->fetch.http ? open_at_mirror(c, s->url, ret, &mtime) : -ENOENT;
	if (r < 0)
		r = c->fetch.http ? open_remote(c, s->url, ret, &mtime) :
				    open_kept(c, s->url, ret, &mtime);
	if (r < 0)
		return r;
	/* a bare file that nothing verifies has the current time where its server gives none */
	if (ret_mtime)
		*ret_mtime = mtime == INT64_MIN ? time(NULL) : mtime;
	return 0;
}

static int entries(struct carton_source *s, struct container **ret)
{
	struct carton *c = s->carton;
	struct source *source;
	int r = url_open(s, &source, NULL);

	if (r < 0)
		return r;
	budget_limit_by_size(&c->budget, source->size);
	r = zip_open(source, &c->budget, ret);
	source_unref(source);
	return r;
}

const struct source_kind url_kind = {
	.takes = takes,
	.begin = begin,
	.may_fetch = may_fetch,
	.entries = entries,
};
