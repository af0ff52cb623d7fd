/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a carton from a file, a directory or a URL. */
#include "carton/opened.h"

#include <inttypes.h>
#include <stdlib.h>

#include "archive/tar.h"
#include "base/failure.h"
#include "fetch/remote_source.h"
#include "http/hf.h"
#include "http/http.h"
#include "http/scheme.h"
#include "open/key.h"
#include "open/kind.h"
#include "open/late.h"
#include "open/load.h"
#include "open/signature.h"

static const struct source_kind *const kinds[] = { &hub_kind, &bare_kind, &url_kind, &path_kind };

/* Says that there is no cache, and which options therefore do nothing. */
static void say_no_cache(const struct carton_options *o, int r)
{
	const char *idle = o->cache_size && o->cache_key ?
				   ", and cache_size= and cache_key= have no effect" :
			   o->cache_size ? ", and cache_size= has no effect" :
			   o->cache_key	 ? ", and cache_key= has no effect" :
					   "";

	carton_log(*idle ? CARTON_LOG_NOTICE : CARTON_LOG_INFO, NULL,
		   "no cache directory (%s): unpacked files go to $TMPDIR or /var/tmp%s",
		   strerror(-r), idle);
}

/*
 * Finds the cache; with `start`, begins to use the one that was found. Between the two calls, root
 * may have changed to another user: see cache_find().
 */
static int open_cache(struct carton *c, const struct carton_options *options, bool start)
{
	int r = start ? cache_start(c->cache, options->cache_size) :
			cache_find(options->cache_dir, true, &c->cache);

	if (r < 0) {
		cache_close(c->cache);
		c->cache = NULL;
	}
	/* it was logged why */
	if (r < 0 && options->cache_dir)
		return r;
	if (r < 0)
		say_no_cache(options, r);
	return 0;
}

/* carton.toml says which version of the format this is: without it nothing else makes sense. */
static int open_meta(struct carton *c)
{
	struct buf text = buf_init(MAX_CARTON_TOML);
	int r;

	/* what is not signed is not read: the model has no metadata then */
	if (c->signature.checked && !manifest_find(c->manifest, "carton.toml"))
		r = buf_adds(&text, "spec_version = 1\n");
	else
		r = carton_slurp(c, "carton.toml", MAX_CARTON_TOML, &text);
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

static struct object *object_of(void *ctx, const struct entry *e, bool make)
{
	const struct carton *c = ctx;
	const struct node *n = c->tree ? tree_find(c->tree, e->name) : NULL;
	struct object *o = !n ? NULL : make ? node_object(n) : node_known_object(n);

	return o && object_entry(o) == e ? o : NULL;
}

static int open_store(struct carton *c, const struct carton_options *options)
{
	struct object_options o = {
		.label = c->label,
		.container = c->container,
		.cache = c->cache,
		.source = c->remote_source,
		.fetch = c->fetch.http ? &c->fetch : NULL,
		.mirrors = c->mirrors,
		.timeout_ms = c->fetch.timeout_ms,
		.stop = &c->stop,
		.budget = &c->budget,
		.find_entry = find_entry,
		.object_of = object_of,
		.damaged = carton_damage_found,
		.ctx = c,
		.pin = c->bare ? "sha256=" : NULL,
		.verify = c->verify,
		.seals = options->noseals  ? SEALS_OFF :
			 options->hash_all ? SEALS_MAKE :
					     SEALS_USE,
		.workers = c->workers,
		.events = c->events,
	};

	return object_store_new(&o, &c->store);
}

static int confine(struct carton_source *s)
{
	const struct carton_options *options = s->options;
	const struct carton *c = s->carton;
	struct carton_paths paths = {
		.source = s->reads,
		.cache = c->cache ? cache_directory(c->cache) : NULL,
		.files = { options->cacert ? options->cacert : s->bundle.file,
			   options->header_file },
		.mirrors = mirrors_directories(c->mirrors),
		.network = !options->offline,
		.key = source_key_path(s),
	};
	int r = options->confine ? options->confine(options->confine_ctx, &paths) : 0;

	return r > 0 ? source_key_exposed(s) : r;
}

/*
 * Loads the libraries that the source may need: a confined process cannot. A local carton needs
 * libcurl only for LINKS, and it takes longer to load than such a carton to mount.
 */
static int load_libraries(const struct carton_source *s)
{
	const struct carton_options *options = s->options;
	const struct carton *c = s->carton;

	if (!options->confine)
		return 0;
	if (options->keep_going && !s->reads)
		container_prepare_compare();
	if (s->kind->may_unpack && s->kind->may_unpack(s))
		tar_prepare();
	return c->mirrors || options->push_to || signature_url(s) || s->kind->may_fetch(s) ?
		       http_prepare() :
		       0;
}

/* Gets the user's logins, once all URLs are known to have no fault. */
static int log_in(const struct carton_source *s)
{
	const struct carton_options *options = s->options;
	struct carton *c = s->carton;
	const struct login_options o = { &c->stop, c->registries };
	int r = 0;

	if (options->offline)
		return 0;
	if (s->url || s->hub)
		r = login_add(&c->logins, s->url ? s->name : "hf://", &o);
	if (r == 0 && s->hub && !options->header_file && !login_of(c->logins, &hf_scheme))
		r = log_error(-EINVAL, NULL,
			      "hub_token: there is no token; set HF_TOKEN, or run hf auth login");
	if (r == 0 && options->push_to)
		r = login_add(&c->logins, options->push_to, &o);
	if (r == 0 && signature_url(s))
		r = login_add(&c->logins, signature_url(s), &o);
	return r < 0 ? r : mirrors_login(c->mirrors, &c->logins, &o);
}

static int find_mirrors(struct carton_source *s)
{
	char **templates;
	int r = registry_templates(s, &templates);

	if (r < 0)
		return r;
	r = mirrors_new(templates, s->url ? s->url : s->name, &s->carton->mirrors);
	registry_templates_free(templates);
	return r;
}

/*
 * Opens the source. Nothing of it is parsed before the process is confined. It is only searched for
 * the name LINKS.
 */
static int open_container(struct carton_source *s, enum opening how)
{
	const struct carton_options *options = s->options;
	struct carton *c = s->carton;
	int r = s->kind->begin(s);

	if (r == 0)
		r = signature_begin(s);
	/* all that verifying reads of a local carton is hashed anew: it needs no cache */
	if (r == 0 && how == OPEN_CARTON &&
	    (!options->keep_going || options->mirrors || s->kind->may_fetch(s)))
		r = open_cache(c, options, false);
	if (r == 0 && (options->mirrors || s->place.n_mirrors > 0))
		r = find_mirrors(s);
	if (r == 0)
		r = log_in(s);
	if (r == 0)
		r = load_libraries(s);
	if (r == 0 && c->cache)
		r = source_key_begin(s);
	if (r == 0)
		r = confine(s);
	if (r == 0 && c->cache)
		r = open_cache(c, options, true);
	/* threads are confined as the one that starts them */
	if (r == 0)
		r = workers_new(&c->workers);
	if (r == 0)
		r = events_new(c->workers, &c->events);
	if (r == 0)
		signature_start(s);
	return r < 0 ? r : s->kind->entries(s, &c->container);
}

/* MANIFEST and LINKS. */
static int open_lists(struct carton_source *s, enum opening how)
{
	struct carton *c = s->carton;
	int r;

	if (s->kind->lists)
		return s->kind->lists(s);
	r = load_ahead(c->container);
	if (r == 0)
		r = how == OPEN_UNHASHED ?
			    load_listing(c->container, s->name, &c->manifest) :
			    load_manifest(c->container, s->options->manifest_sha256, &c->manifest);
	return r < 0 ? r : load_links(c->container, &c->links);
}

static void warn_left_out(void *ctx, const char *name, const char *why)
{
	(void)ctx;
	carton_log(CARTON_LOG_NOTICE, name, CARTON_LEFT_OUT, why);
}

static void say_left_out(const struct carton *c)
{
	uint64_t n = carton_left_out(c, warn_left_out, NULL);

	if (n > MAX_REPORTED)
		carton_log(CARTON_LOG_NOTICE, NULL, CARTON_LEFT_OUT_MORE, n - MAX_REPORTED);
}

/* What the carton is made of, up to its tree. */
static int open_parts(struct carton_source *s, enum opening how)
{
	const struct carton_options *options = s->options;
	struct carton *c = s->carton;
	int r = open_container(s, how);

	if (r == 0)
		r = open_lists(s, how);
	if (r == 0 && s->kind->own_links) {
		links_of_user(c->links);
		c->left_out = c->links;
		say_left_out(c);
	}
	if (r == 0 &&
	    (c->links || mirrors_have_urls(c->mirrors) || options->push_to || signature_url(s)))
		r = open_network(s);
	if (r == 0)
		r = open_store(c, options);
	/* a signature is checked against the same lists that the tree is made of */
	if (r == 0)
		r = signature_check(s);
	if (r == 0)
		r = late_prepare(c);
	if (r == 0)
		r = load_tree(&(struct load_input){ c->container, c->manifest, c->links, c->store,
						    c->late.manifest, options->keep_going, c->bare,
						    options->date, how == OPEN_HELD },
			      &c->tree, &c->faults);
	if (r == 0 && c->remote_source)
		remote_source_opened(c->remote_source, c->cache);
	return r;
}

/* A hash that would not be compared must not look as if it had been. */
static int check_pins(const struct carton_source *s)
{
	const struct carton_options *options = s->options;

	if (s->kind->lists && options->manifest_sha256)
		return log_error(-EINVAL, NULL,
				 "manifest_sha256 is of a carton; of a bare file it is sha256=");
	if (!s->kind->lists && options->sha256)
		return log_error(
			-EINVAL, NULL,
			"the option sha256 is of a bare .safetensors file; of a carton it is "
			"manifest_sha256");
	if (s->kind->lists && !options->sha256 && options->hash_all && !options->keep_going)
		return log_error(-EINVAL, NULL, "a bare file can be verified only with sha256=HEX");
	return 0;
}

static int open_source(struct carton_source *s, enum opening how)
{
	const struct carton_options *options = s->options;
	size_t i = 0;
	int r = registry_begin(s);

	while (!kinds[i]->takes(s->name))
		i++;
	s->kind = kinds[i];
	if (r == 0)
		r = check_pins(s);
	if (r == 0 && !options->offline && !options->cacert)
		r = http_bundle(s->name, &s->bundle);
	if (r == 0)
		r = open_parts(s, how);
	fd_close(s->fd);
	free(s->url);
	free(s->hub);
	http_bundle_finish(&s->bundle);
	hub_cache_finish(&s->hub_cache);
	source_key_finish(s);
	signature_finish(s);
	repository_finish(&s->repository);
	oci_place_finish(&s->place);
	return r;
}

/* A failure here is harmless: without the index, files are verified as a whole. */
static void open_chunks(struct carton *c)
{
	if (load_index(c, &c->index) == 0 && c->index.chunks)
		object_use_chunks(c->store, c->index.chunks, node_object(c->index.file));
}

static int open_views(struct carton *c, const struct carton_options *options)
{
	struct views_options v = {
		.tree = c->tree,
		.store = c->store,
		.meta = c->meta,
		.name = c->bare ? "" : options->views, /* "" is shown as the root */
		.hidden = options->views_hidden,
		.bare = c->bare,
	};

	c->totals = (struct carton_totals){ c->tree->files, c->tree->n_nodes, c->tree->bytes };
	if (c->bare)
		return views_new(&v, &c->views);
	if (!options->views)
		return 0;
	if (path_fault(options->views, strlen(options->views)) || strchr(options->views, '/'))
		return log_error(-EINVAL, NULL, "views=%s is not the name of a directory",
				 options->views);
	return views_new(&v, &c->views);
}

int carton_open_into(struct carton *c, const char *source, const struct carton_options *options,
		     enum opening how, const struct carton_pack_options *pack)
{
	struct carton_source s = { .carton = c,
				   .options = options,
				   .name = source,
				   .fd = -1,
				   .pack = pack,
				   .key = { .dir = -1 } };
	char label[256];
	int r;

	c->label = strdup(carton_source_label(source, label, sizeof(label)));
	c->damaged = options->damaged;
	c->damaged_ctx = options->damaged_ctx;
	c->verify = options->verify == CARTON_VERIFY_OPEN && how != OPEN_UNHASHED;
	budget_init(&c->budget, options->memory);
	if (!c->verify && how != OPEN_UNHASHED)
		carton_log(CARTON_LOG_WARNING, label,
			   "verify=off: nothing that is read is checked against MANIFEST");
	r = open_source(&s, how);
	if (r == 0 && !c->bare)
		r = open_meta(c);
	if (r < 0 && options->keep_going && c->tree) {
		c->faults++;
		r = 0;
	}
	if (r == 0 && options->chunks && c->verify)
		open_chunks(c);
	if (r == 0)
		r = open_views(c, options);
	if (r == 0)
		r = tree_number(c->tree);
	c->fetch.progress = NULL;
	atomic_store(&c->fetch.wait, options->wait);
	return r < 0 ? r : late_begin(c, options->late == CARTON_LATE_FETCH);
}

int carton_open_as(enum opening how, const char *source, const struct carton_options *options,
		   const struct carton_pack_options *pack, struct carton **ret)
{
	struct carton *c = carton_new();
	int r;

	failure_forget();
	if (!c)
		return -ENOMEM;
	r = carton_open_into(c, source, options, how, pack);
	if (r < 0)
		carton_close(c);
	else
		*ret = c;
	return r;
}

int carton_open(const char *source, const struct carton_options *options, struct carton **ret)
{
	return carton_open_as(OPEN_CARTON, source, options, NULL, ret);
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

bool carton_has_room(struct carton *c, uint64_t bytes)
{
	return c->cache && cache_reserve(c->cache, bytes) == 0;
}

char *carton_authorities(const char *source)
{
	char *path = NULL;

	return http_bundle_file(source, &path) == 0 ? path : NULL;
}

char *carton_source_label(const char *source, char *ret, size_t n)
{
	return http_source_label(source, ret, n);
}
