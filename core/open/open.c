/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a carton, from wherever it is, and closing it. */
#include "carton/opened.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "archive/dir.h"
#include "fetch/download.h"
#include "open/load.h"
#include "http/scheme.h"
#include "fetch/remote_source.h"
#include "archive/zip.h"

/* The length of the scheme of a URL that cannot be read here; 0: `source` is not one. */
static int foreign_scheme(const char *source)
{
	size_t n = strspn(source,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");

	return n > 0 && strncmp(source + n, "://", 3) == 0 && !http_is_url(source) ? (int)n : 0;
}

/* Starts what fetching needs, unless nothing may be fetched. */
static int open_network(struct carton *c, const char *source, const struct carton_options *options)
{
	struct http_options http = {
		.private_links = options->private_links,
		.cacert = options->cacert,
		.header_file = options->header_file,
		.source_url = http_is_url(source) ? source : NULL,
		.logins = c->logins,
		.budget = &c->budget,
	};
	int r;

	if (options->offline || c->fetch.http)
		return 0;
	c->fetch.timeout_ms = (options->timeout_s ? options->timeout_s : 60) * 1000;
	c->fetch.connections = options->connections ? options->connections : 8;
	c->fetch.max_size = options->max_size;
	c->fetch.extra = &c->extra_connections;
	c->fetch.budget = &c->budget;
	r = servers_new(&c->servers);
	if (r < 0)
		return r;
	c->fetch.servers = c->servers;
	c->fetch.cancel = &c->stop;
	c->fetch.workers = c->workers;
	c->fetch.events = c->events;
	return http_new(&http, &c->fetch.http);
}

/*
 * Finds the cache; with `start`, begins to use the one that was found. Between the two calls, root
 * may have changed to another user: see cache_find().
 */
static int open_cache(struct carton *c, const struct carton_options *options, bool start)
{
	int r = start ? cache_start(c->cache, options->cache_size) :
			cache_find(options->cache_dir, &c->cache);

	if (r < 0) {
		cache_close(c->cache);
		c->cache = NULL;
	}
	if (r < 0 && options->cache_dir)
		return log_error(r, options->cache_dir, "cannot be used as a cache: %s",
				 strerror(-r));
	if (r < 0)
		carton_log(CARTON_LOG_INFO, NULL,
			   "no cache directory (%s): unpacked files go to $TMPDIR or /var/tmp",
			   strerror(-r));
	return 0;
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
			 "cartonctl fetch first");
}

/* Opens the carton over the network. What is read until it is open is kept for open_kept(). */
static int open_remote(struct carton *c, const char *url, struct source **ret, int64_t *ret_mtime)
{
	int r = remote_source_open(&c->fetch, url, NULL, ret);

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
		r = remote_source_open(&c->fetch, url, source_url, &source);
		free(url);
		/* without ranges it is of no use here */
		r = r == 1 ? -ENOENT : r;
	}
	*ret_mtime = remote_source_mtime(source);
	c->remote_source = source_ref(source);
	*ret = source;
	return 0;
}

static int open_url(struct carton *c, const char *url, bool checked, struct container **ret)
{
	struct source *source;
	int64_t mtime;
	int r;

	/*
	 * a mirror is not trusted: its MANIFEST is checked against the pinned hash, everything else
	 * against MANIFEST; where that is off, only the source URL will do
	 */
	r = checked && c->fetch.http ? open_at_mirror(c, url, &source, &mtime) : -ENOENT;
	if (r < 0)
		r = c->fetch.http ? open_remote(c, url, &source, &mtime) :
				    open_kept(c, url, &source, &mtime);
	if (r < 0)
		return r;
	/* if the server gives no date, the current time is used */
	budget_limit_by_size(&c->budget, source->size);
	r = zip_open(source, mtime == INT64_MIN ? time(NULL) : mtime, &c->budget, ret);
	source_unref(source);
	return r;
}

/* An inherited descriptor is used as it is: whoever opened it may be another user. */
static int open_or_inherit(const char *path)
{
	unsigned fd;
	int end = 0;

	if (sscanf(path, "/dev/fd/%9u%n", &fd, &end) == 1 && !path[end])
		return fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* The file or directory at `path`, of which nothing is read yet. */
static int open_path(const char *path, int *ret_fd, struct stat *ret_st)
{
	int fd = open_or_inherit(path), r = 0;
	int scheme = foreign_scheme(path);
	char shown[4096], known[256];

	if (fd < 0 && errno == ENOENT && scheme)
		return log_error(-EOPNOTSUPP, http_url_redact(path, shown, sizeof(shown)),
				 "URLs with %.*s:// cannot be read here, only %s", MIN(scheme, 32),
				 path, scheme_names(known, sizeof(known)));
	if (fd < 0 || fstat(fd, ret_st) < 0) {
		r = -errno;
		carton_log(CARTON_LOG_ERROR, http_source_label(path, shown, sizeof(shown)),
			   "cannot open: %s", strerror(-r));
	} else if (!S_ISDIR(ret_st->st_mode) && !S_ISREG(ret_st->st_mode)) {
		r = log_error(-EBADMSG, http_source_label(path, shown, sizeof(shown)),
			      "is neither a carton file nor a directory");
	}
	if (r < 0)
		fd_close(fd);
	else
		*ret_fd = fd;
	return r;
}

static int open_local(struct carton *c, int fd, const struct stat *st, struct container **ret)
{
	struct source *source;
	int r;

	if (S_ISDIR(st->st_mode))
		return dir_open(fd, &c->budget, ret);
	r = source_from_fd(fd, &source);
	if (r < 0)
		return r;
	budget_limit_by_size(&c->budget, source->size);
	r = zip_open(source, st->st_mtime, &c->budget, ret);
	source_unref(source);
	return r;
}

/* carton.toml says which version of the format this is: without it nothing else makes sense. */
static int open_meta(struct carton *c)
{
	struct buf text = { 0 };
	int r = carton_slurp(c, "carton.toml", MAX_CARTON_TOML, &text);

	if (r == -ENOENT)
		r = log_error(
			-EBADMSG, "carton.toml",
			"is not listed in MANIFEST as a regular file, so this is not a carton");
	if (r == 0)
		r = budget_take(&c->budget, META_EXPANSION * text.len);
	if (r == 0)
		r = meta_parse(text.data, text.len, &c->budget, &c->meta);
	buf_finish(&text);
	if (r < 0)
		return r;
	if (!c->meta->has_spec_version)
		return log_error(-EBADMSG, "carton.toml", "has no spec_version; it must be 1");
	if (c->meta->spec_version != 1)
		return log_error(-EOPNOTSUPP, "carton.toml",
				 "spec_version is %" PRId64 "; this program reads version 1",
				 c->meta->spec_version);
	return 0;
}

static const struct entry *find_entry(void *ctx, const struct object *o, size_t *at)
{
	const struct carton *c = ctx;

	return load_find_entry(c->container, c->manifest, o, at);
}

static int open_store(struct carton *c, const struct carton_options *options)
{
	struct object_options o = {
		.container = c->container,
		.cache = c->cache,
		.source = c->remote_source,
		.fetch = c->fetch.http ? &c->fetch : NULL,
		.mirrors = c->mirrors,
		.timeout_ms = c->fetch.timeout_ms,
		.budget = &c->budget,
		.find_entry = find_entry,
		.damaged = carton_damage_found,
		.ctx = c,
		.verify = c->verify,
		.seals = options->noseals  ? SEALS_OFF :
			 options->hash_all ? SEALS_MAKE :
					     SEALS_USE,
		.workers = c->workers,
		.events = c->events,
	};

	return object_store_new(&o, &c->store);
}

static int confine(const struct carton *c, const char *directory,
		   const struct carton_options *options)
{
	struct carton_paths paths = {
		.source = directory,
		.cache = c->cache ? cache_directory(c->cache) : NULL,
		.files = { options->cacert, options->header_file },
		.mirrors = mirrors_directories(c->mirrors),
		.network = !options->offline,
	};

	return options->confine ? options->confine(options->confine_ctx, &paths) : 0;
}

/*
 * Loads the libraries that the source may need: a confined process cannot. A local carton needs
 * libcurl only for LINKS, and it takes longer to load than such a carton to mount.
 */
static int load_libraries(const char *source, int fd, const struct stat *st,
			  const struct carton_options *options)
{
	if (!options->confine)
		return 0;
	if (options->keep_going && !S_ISDIR(st->st_mode))
		container_prepare_compare();
	return http_is_url(source) || options->mirrors || container_may_have(fd, st, "LINKS") ?
		       http_prepare() :
		       0;
}

/*
 * Opens the source. Nothing of it is parsed before the process is confined. It is only searched for
 * the name LINKS.
 */
static int open_container(struct carton *c, const char *source,
			  const struct carton_options *options)
{
	bool url = http_is_url(source);
	struct stat st = { 0 };
	int fd = -1, r = url ? 0 : open_path(source, &fd, &st);

	if (r == 0 && options->mirrors)
		r = mirrors_new(options->mirrors, source, &c->mirrors);
	/* forks, and reads files that are not allowed later */
	if (r == 0 && !options->offline)
		r = mirrors_login(c->mirrors, &c->logins);
	if (r == 0)
		r = load_libraries(source, fd, &st, options);
	if (r == 0)
		r = confine(c, S_ISDIR(st.st_mode) ? source : NULL, options);
	if (r == 0 && c->cache)
		r = open_cache(c, options, true);
	/* threads are confined as the one that starts them */
	if (r == 0)
		r = workers_new(&c->workers);
	if (r == 0)
		r = events_new(c->workers, &c->events);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	if (!url)
		return open_local(c, fd, &st, &c->container);
	r = open_network(c, source, options);
	return r < 0 ? r :
		       open_url(c, source, c->verify && options->manifest_sha256, &c->container);
}

/* What the carton is made of, up to its tree. */
static int open_parts(struct carton *c, enum opening how, const char *source,
		      const struct carton_options *options)
{
	int r = how == OPEN_CARTON ? open_cache(c, options, false) : 0;

	if (r == 0)
		r = open_container(c, source, options);
	if (r == 0)
		r = load_ahead(c->container);
	if (r == 0)
		r = how == OPEN_UNHASHED ?
			    load_listing(c->container, &c->manifest) :
			    load_manifest(c->container, options->manifest_sha256, &c->manifest);
	if (r == 0)
		r = load_links(c->container, &c->links);
	if (r == 0 && (c->links || mirrors_have_urls(c->mirrors)))
		r = open_network(c, source, options);
	if (r == 0)
		r = open_store(c, options);
	if (r == 0)
		r = load_tree(c->container, c->manifest, c->links, c->store, options->keep_going,
			      &c->tree, &c->faults);
	if (r == 0 && c->remote_source)
		remote_source_opened(c->remote_source, c->cache);
	return r;
}

/*
 * The same, of the URL that the user's stands for, with the login that belongs to it, for which
 * files may be read.
 */
static int open_resolved(struct carton *c, enum opening how, const char *source,
			 const struct carton_options *options)
{
	const char *fault = NULL;
	char *url, shown[256];
	int r = scheme_resolve(source, &url, &fault);

	if (r < 0)
		return fault ? log_error(r, http_url_redact(source, shown, sizeof(shown)), "%s",
					 fault) :
			       r;
	if (!options->offline)
		r = login_add(&c->logins, source);
	if (r == 0)
		r = open_parts(c, how, url, options);
	free(url);
	return r;
}

/* A failure here is harmless: without the index, files are verified as a whole. */
static void open_chunks(struct carton *c)
{
	struct node *n = tree_find(c->tree, CHUNKS_PATH);

	if (!n || n->kind != NODE_FILE || carton_pin_wait(c, from_node(n)) < 0)
		return;
	if (load_chunks(n, &c->budget, &c->chunks) < 0) {
		carton_unpin(from_node(n));
		return;
	}
	c->index = n;
	object_use_chunks(c->store, c->chunks, node_object(n));
}

static int open_views(struct carton *c, const struct carton_options *options)
{
	struct views_options v = {
		.tree = c->tree,
		.store = c->store,
		.meta = c->meta,
		.name = options->views,
		.hidden = options->views_hidden,
	};

	c->totals = (struct carton_totals){ c->tree->files, c->tree->n_nodes, c->tree->bytes };
	if (!options->views)
		return 0;
	if (path_fault(options->views, strlen(options->views)) || strchr(options->views, '/'))
		return log_error(-EINVAL, NULL, "views=%s is not the name of a directory",
				 options->views);
	return views_new(&v, &c->views);
}

int carton_open_as(enum opening how, const char *source, const struct carton_options *options,
		   struct carton **ret)
{
	struct carton *c = calloc(1, sizeof(*c));
	char label[256];
	int r;

	if (!c)
		return -ENOMEM;
	cancel_init(&c->stop, NULL);
	c->damaged = options->damaged;
	c->damaged_ctx = options->damaged_ctx;
	c->verify = options->verify == CARTON_VERIFY_OPEN && how != OPEN_UNHASHED;
	budget_init(&c->budget, options->memory);
	if (!c->verify && how != OPEN_UNHASHED)
		carton_log(CARTON_LOG_WARNING, carton_source_label(source, label, sizeof(label)),
			   "verify=off: nothing that is read is checked against MANIFEST");
	r = open_resolved(c, how, source, options);
	if (r == 0)
		r = open_meta(c);
	if (r < 0 && options->keep_going && c->tree) {
		c->faults++;
		r = 0;
	}
	if (r == 0 && options->chunks && c->verify)
		open_chunks(c);
	if (r == 0)
		r = open_views(c, options);
	if (r < 0)
		carton_close(c);
	else
		*ret = c;
	return r;
}

int carton_open(const char *source, const struct carton_options *options, struct carton **ret)
{
	return carton_open_as(OPEN_CARTON, source, options, ret);
}

bool carton_fetches(const struct carton *c)
{
	return c->fetch.http != NULL;
}

int carton_refresh(struct carton *c, const char *url)
{
	char shown[256], *at;
	const char *fault;
	int r;

	/* first: for a local carton, libcurl was not loaded, and cannot be any more */
	if (!c->remote_source || login_missing(c->logins, url))
		return -EOPNOTSUPP;
	http_url_redact(url, shown, sizeof(shown));
	fault = http_url_fault(url);
	if (fault)
		return log_error(-EINVAL, shown, "%s", fault);
	r = scheme_resolve(url, &at, &fault);
	if (r < 0)
		return r;
	r = remote_source_refresh(c->remote_source, at);
	free(at);
	if (r == 0)
		carton_log(CARTON_LOG_INFO, shown, "the carton is fetched from here now");
	return r;
}

bool carton_is_remote(const struct carton *c)
{
	return c->container->remote;
}

void carton_stop(struct carton *c)
{
	cancel_fire(&c->stop);
	if (c->store)
		object_store_stop(c->store);
	if (c->fetch.http)
		http_stop(c->fetch.http);
}

void carton_close(struct carton *c)
{
	if (!c)
		return;
	carton_stop(c);
	workers_free(c->workers);
	events_free(c->events);
	if (c->index)
		carton_unpin(from_node(c->index));
	meta_free(c->meta);
	views_free(c->views);
	tree_free(c->tree);
	object_store_free(c->store);
	chunks_free(c->chunks);
	manifest_free(c->manifest);
	links_free(c->links);
	container_close(c->container);
	source_unref(c->remote_source);
	http_free(c->fetch.http);
	servers_free(c->servers);
	mirrors_free(c->mirrors);
	login_free(c->logins);
	cache_close(c->cache);
	cancel_finish(&c->stop);
	free(c);
}

char *carton_source_label(const char *source, char *ret, size_t n)
{
	return http_source_label(source, ret, n);
}
