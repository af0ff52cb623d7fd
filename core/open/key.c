/* SPDX-License-Identifier: Apache-2.0 */
#include "open/key.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "fetch/mirrors.h"
#include "http/http.h"
#include "http/scheme.h"

/* ---- what the source is ---- */

/* Adds a text with its name and length, so that no text looks like several. NULL: adds nothing. */
static int add(struct buf *to, const char *name, const char *text)
{
	return text ? buf_addf(to, "%s %zu:%s\n", name, strlen(text), text) : 0;
}

/* Adds the path of a file, without symlinks if it is there. */
static int add_path(struct buf *to, const char *name, const char *path)
{
	char *real = realpath(path, NULL);
	int r = add(to, name, real ? real : path);

	free(real);
	return r;
}

static int add_paths(struct buf *to, const char *name, char *const *paths)
{
	int r = 0;

	for (; paths && *paths && r == 0; paths++)
		r = add_path(to, name, *paths);
	return r;
}

/* Adds a hash in lower case. */
static int add_hash(struct buf *to, const char *name, const char *hex)
{
	char lower[2 * SHA256_SIZE + 1];
	size_t n = hex ? strnlen(hex, sizeof(lower)) : 0;

	if (n != sizeof(lower) - 1)
		return add(to, name, hex);
	for (size_t i = 0; i <= n; i++)
		lower[i] = (char)tolower((unsigned char)hex[i]);
	return add(to, name, lower);
}

static int add_repository(struct buf *to, const struct repository *repo)
{
	int r = add(to, "server", repo->server);

	if (r == 0)
		r = add(to, "kind", repo->kind);
	if (r == 0)
		r = add(to, "name", repo->name);
	if (r == 0)
		r = add(to, "revision", repo->revision);
	return r == 0 && repo->plain ? add(to, "plain", "") : r;
}

/* Adds a URL without its signature: one that is signed again leads to the same file. */
static int add_url(struct buf *to, const char *url)
{
	const struct scheme *scheme = scheme_of(url);
	char *plain, *asked = NULL;
	int r = -ENOMEM;

	if (scheme && scheme->settled && !(asked = scheme->settled(url)))
		return r;
	plain = http_url_unsigned(asked ? asked : url);
	if (plain)
		r = add(to, "url", plain);
	free(plain);
	free(asked);
	return r;
}

static int add_source(struct buf *to, const struct carton_source *s)
{
	const struct scheme *scheme = scheme_of(s->name);
	const char *path = s->options->beside ? s->options->beside : s->name;
	int r;

	if (s->repository.server) {
		r = add(to, "scheme", scheme ? scheme->name : "");
		return r == 0 ? add_repository(to, &s->repository) : r;
	}
	return s->url ? add_url(to, s->url) : add_path(to, "path", path);
}

static int describe(const struct carton_source *s, struct buf *to)
{
	const struct carton_options *o = s->options;
	int r = buf_adds(to, "cartonfs source 1\n");

	if (r == 0)
		r = add_source(to, s);
	if (r == 0)
		r = add_hash(to, "manifest_sha256", o->manifest_sha256);
	if (r == 0)
		r = add_hash(to, "sha256", o->sha256);
	if (r == 0)
		r = add_paths(to, "verify_key", o->verify_keys);
	if (r == 0)
		r = add_paths(to, "verify_ca", o->verify_cas);
	if (r == 0)
		r = add(to, "signer", o->signer);
	return r == 0 ? add(to, "signature", o->signature) : r;
}

/* ---- the key ---- */

/* Which directory that this process reads or writes has the key in it? NULL: none. */
static const char *find_reader(const struct carton_source *s, char *top)
{
	const char *const *mirrors = mirrors_directories(s->carton->mirrors);
	const struct key_file *k = &s->key;

	if (key_file_is_below(k, top))
		return "the cache";
	if (s->reads && key_file_is_below(k, s->reads))
		return "the source";
	for (; mirrors && *mirrors; mirrors++)
		if (key_file_is_below(k, *mirrors))
			return "a mirror";
	return NULL;
}

/* 0; -EINVAL: a carton might reach the key; -ENOMEM. */
static int check_place(const struct carton_source *s, char why[OWN_WHY])
{
	/* without the /v1 */
	const char *v1 = cache_directory(s->carton->cache), *reader;
	char *top = strndup(v1, strlen(v1) - strlen("/v1"));

	if (!top) {
		snprintf(why, OWN_WHY, "cannot be read: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	reader = find_reader(s, *top ? top : (char *)"/");
	free(top);
	if (reader)
		snprintf(why, OWN_WHY, "lies in the directory of %s, which a carton might reach",
			 reader);
	return reader ? -EINVAL : 0;
}

static int derive(const struct carton_source *s, const uint8_t key[KEY_SIZE])
{
	struct buf text = buf_init(SIZE_MAX);
	uint8_t derived[KEY_SIZE];
	int r = describe(s, &text);

	if (r == 0)
		r = key_derive(key, text.data, derived);
	if (r == 0)
		cache_use_key(s->carton->cache, derived);
	explicit_bzero(derived, sizeof(derived));
	buf_finish(&text);
	return r;
}

/* Does without the key, because of the error `r`. 0; or `r`, if the option names the key. */
static int refuse(const struct carton_source *s, int r, const char *why)
{
	const char *path = s->key.path ? s->key.path : "the key of the cache";

	cache_use_key(s->carton->cache, NULL);
	if (s->options->cache_key)
		return log_error(r, path, "cannot be the key of the cache: it %s", why);
	carton_log(CARTON_LOG_NOTICE, path,
		   "cannot be the key of the cache: it %s. So nothing that was verified or found "
		   "before is used again; cache_key= names another file",
		   why);
	return 0;
}

int source_key_begin(struct carton_source *s)
{
	char why[OWN_WHY] = "cannot be read: out of memory";
	uint8_t key[KEY_SIZE];
	int r = key_file_find(s->options->cache_key, &s->key, why);

	if (r == 0)
		r = check_place(s, why);
	if (r == 0)
		r = key_file_read(&s->key, key, why);
	if (r == 0)
		r = derive(s, key);
	explicit_bzero(key, sizeof(key));
	fd_close(s->key.dir);
	s->key.dir = -1;
	if (r == 0)
		s->has_key = true;
	return r < 0 ? refuse(s, r, why) : 0;
}

const char *source_key_path(const struct carton_source *s)
{
	return s->has_key ? s->key.path : NULL;
}

int source_key_exposed(struct carton_source *s)
{
	return refuse(s, -EINVAL, "can be opened by the process that reads the carton");
}

void source_key_finish(struct carton_source *s)
{
	key_file_finish(&s->key);
}
