/* SPDX-License-Identifier: Apache-2.0 */
/* All transfers of a carton: their start and their end. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pace.h"
#include "http/internal.h"
#include "http/oci.h"

#define MAX_IDLE 32 /* connections that are kept, of all threads */

static void log_codings(void)
{
	const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);
	bool z = v->features & CURL_VERSION_LIBZ, br = v->features & CURL_VERSION_BROTLI;
	bool zstd = v->features & CURL_VERSION_ZSTD;

	if (!z || !br || !zstd)
		carton_log(CARTON_LOG_NOTICE, NULL,
			   "libcurl %s was built without the content codings%s%s%s: "
			   "they are not asked for, and refused when a server sends them",
			   v->version, z ? "" : " gzip deflate", br ? "" : " br",
			   zstd ? "" : " zstd");
}

static int set_source(struct http *http, const char *url)
{
	const struct scheme *scheme = scheme_of(url);
	const char *why = "out of memory";
	int r;

	if (scheme && scheme->request_url) {
		http->source_url = strdup(url);
		return http->source_url ? 0 : -ENOMEM;
	}
	r = http_target_parse(NULL, url, &http->source, &why);
	if (r < 0 && r != -ENOMEM) {
		http_log(CARTON_LOG_ERROR, url, "%s", why);
		r = -EINVAL;
	}
	return r;
}

static int set_cacert(struct http *http, const char *file, const char *from)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC), r = fd < 0 ? -errno : 0;
	struct stat st;

	if (r == 0 && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		r = -EISDIR;
	fd_close(fd);
	if (r < 0)
		return log_error(r, file, HTTP_BUNDLE_UNREAD, from ? ", which is named by " : "",
				 from ? from : "", strerror(-r));
	http->cacert = strdup(file);
	return http->cacert ? 0 : -ENOMEM;
}

static int set_authorities(struct http *http, const struct http_options *o)
{
	const char *file = curl_version_info(CURLVERSION_NOW)->cainfo;
	const struct http_bundle *b = o->bundle;

	http->no_file = file && access(file, R_OK) < 0;
	if (o->cacert) {
		http->no_system = true;
		return set_cacert(http, o->cacert, NULL);
	}
	if (!b)
		return 0;
	http->no_system = b->only;
	if (b->file)
		return set_cacert(http, b->file, b->variable);
	http->authorities = buf_init(b->text.len);
	return b->text.len > 0 ? buf_add(&http->authorities, b->text.data, b->text.len) : 0;
}

static int set_options(struct http *http, const struct http_options *o)
{
	const struct login *login = o->source_scheme ? login_of(o->logins, o->source_scheme) : NULL;
	int r = 0;

	http->name_timeout_ms = o->name_timeout_ms > 0 ? o->name_timeout_ms : pace.name_ms;
	http->connect_timeout_ms = o->connect_timeout_ms > 0 ? o->connect_timeout_ms :
							       pace.connect_ms;
	http->stall_ms = o->stall_ms > 0 ? o->stall_ms : pace.stall_ms;
	http->stall_rate = o->stall_rate > 0 ? o->stall_rate : 1024;
	http->budget = o->budget;
	http->private_links = o->private_links;
	http->requester_pays = o->requester_pays;
	http->logins = o->logins;
	http->registries = o->registries;
	http->source_is_registry = o->source_scheme == &oci_scheme;
	if (o->source_url)
		r = set_source(http, o->source_url);
	if (r == 0 && o->header_file)
		r = http_secrets_load(http, o->header_file);
	else if (r == 0 && login && login->header && !login->host)
		r = http_secrets_add(http, login->header);
	if (r == 0)
		r = set_authorities(http, o);
	return r < 0 ? r : http_proxies_load(&http->proxies);
}

static int start_threads(struct http *http, unsigned n)
{
	int r = 0;

	if (n == 0)
		n = (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
	n = MIN(n, HTTP_MAX_THREADS);

	while (r == 0 && http->n_threads < n) {
		struct http_thread *t = &http->threads[http->n_threads];

		t->multi = curl_multi_init();
		if (!t->multi)
			return -ENOMEM;
		http->n_threads++;
		t->http = http;
		t->queue_end = &t->queue;
		/*
		 * Connections are reused, HTTP/2 ones too, but parallel transfers never share one:
		 * a server that limits the speed of each connection would limit them together.
		 */
		curl_multi_setopt(t->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
		curl_multi_setopt(t->multi, CURLMOPT_MAXCONNECTS, (long)(MAX_IDLE / n));
		r = thread_start(&t->id, http_run, t);
		t->running = r == 0;
	}
	return r;
}

int http_new(const struct http_options *options, struct http **ret)
{
	struct http *http;
	int r = http_load_curl();

	if (r < 0)
		return r;
	http = calloc(1, sizeof(*http));
	if (!http)
		return -ENOMEM;
	if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
		free(http);
		return -ENOMEM;
	}
	pthread_mutex_init(&http->lock, NULL);
	pthread_mutex_init(&http->secrets, NULL);
	http->headers_version = 1;
	r = set_options(http, options);
	if (r == 0)
		r = start_threads(http, options->threads);
	if (r < 0) {
		http_free(http);
		return r;
	}
	log_codings();
	*ret = http;
	return 0;
}

void http_stop(struct http *http)
{
	pthread_mutex_lock(&http->lock);
	http->stopping = true;
	for (unsigned i = 0; i < http->n_threads; i++)
		curl_multi_wakeup(http->threads[i].multi);
	pthread_mutex_unlock(&http->lock);
	for (unsigned i = 0; i < http->n_threads; i++) {
		if (http->threads[i].running)
			pthread_join(http->threads[i].id, NULL);
		http->threads[i].running = false;
	}
}

void http_free(struct http *http)
{
	if (!http)
		return;
	http_stop(http);
	for (unsigned i = 0; i < http->n_threads; i++)
		curl_multi_cleanup(http->threads[i].multi);
	http_secrets_finish(http);
	http_target_finish(&http->source);
	free(http->source_url);
	http_proxies_finish(&http->proxies);
	free(http->cacert);
	buf_finish(&http->authorities);
	pthread_mutex_destroy(&http->lock);
	pthread_mutex_destroy(&http->secrets);
	free(http);
	curl_global_cleanup();
}

char *http_answered_by(struct http_stream *s)
{
	char *url = NULL;

	/* the network thread does not change them any more */
	pthread_mutex_lock(&s->lock);
	if ((s->ready || s->done) && s->n_seen > 0 &&
	    (s->asks || strcmp(s->seen[0], s->target.url) != 0))
		url = strdup(s->target.url);
	pthread_mutex_unlock(&s->lock);
	return url;
}
