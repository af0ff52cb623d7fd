/* SPDX-License-Identifier: Apache-2.0 */
#include "http/docker.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/digest.h"
#include "base/json.h"

#define MAX_KEY 512
#define ALNUM "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* ---- members of a JSON object ---- */

/* A string, the keys that lead to it (cut ones are ""), and how many these are. */
typedef int take_fn(void *ctx, char key[3][MAX_KEY], unsigned depth, const char *text, size_t n);

/* Calls `take` for each string in objects that are in no array. 0, -EBADMSG or -errno of `take`. */
static int read_strings(const char *text, size_t n, take_fn *take, void *ctx)
{
	struct buf token = buf_init(DOCKER_MAX_FILE);
	struct mem_text in = { text, n };
	struct json *j = calloc(1, sizeof(*j));
	char key[3][MAX_KEY] = { "" };
	enum json_event e = JSON_OTHER;
	unsigned arrays = 0; /* that are open, or what is in them */
	int r = j ? 0 : -ENOMEM;

	while (in.n > 0 && strchr("\r\n\t ", in.text[in.n - 1])) /* not taken by the scanner */
		in.n--;
	if (j)
		*j = (struct json){ .read = mem_text_read, .ctx = &in, .text = &token };
	while (r == 0 && (r = json_next(j, &e)) == 0 && e != JSON_EOF) {
		size_t len = e == JSON_KEY || e == JSON_STRING ? json_text_len(j) : 0;
		const char *at = len > 0 ? token.data + j->kept : "";

		if (e == JSON_ARRAY && !arrays)
			arrays = j->depth;
		else if (e == JSON_END && j->depth < arrays)
			arrays = 0;
		if (arrays || j->depth == 0 || j->depth > 3)
			continue;
		if (e == JSON_KEY)
			snprintf(key[j->depth - 1], MAX_KEY, "%.*s", len < MAX_KEY ? (int)len : 0,
				 at);
		else if (e == JSON_STRING && !memchr(at, '\0', len))
			r = take(ctx, key, j->depth, at, len);
	}
	if (token.data)
		explicit_bzero(token.data, token.cap);
	buf_finish(&token);
	if (j)
		explicit_bzero(j, sizeof(*j));
	free(j);
	return r == -EFBIG ? -EBADMSG : r;
}

/* ---- the files ---- */

struct search {
	const char *host, *name;
	size_t best, identity; /* of the keys of ret->auth and an identity token: see rank() */
	char store[sizeof(((struct docker_found *)0)->helper)];
	struct docker_found *ret;
};

bool docker_same_host(const char *host, const char *text, size_t n)
{
	static const char *const hub[] = { "docker.io", "index.docker.io" };

	if (strlen(host) == n && strncasecmp(text, host, n) == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(hub); i++)
		if (strcmp(host, DOCKER_HUB) == 0 && strlen(hub[i]) == n &&
		    !strncasecmp(text, hub[i], n))
			return true;
	return false;
}

/*
 * How well a key of `auths` fits, 0: not at all. It is a host, perhaps with a path of the first
 * API, or, as podman has it, with the beginning of a repository's name.
 */
static size_t rank(const struct search *s, const char *key)
{
	const char *scheme = strstr(key, "://"), *path;
	size_t n;

	key = scheme ? scheme + 3 : key;
	n = strcspn(key, "/");
	if (!docker_same_host(s->host, key, n))
		return 0;
	path = key + n + (key[n] == '/');
	if (!*path || scheme)
		return 1;
	n = strlen(path);
	return strncmp(s->name, path, n) == 0 && (!s->name[n] || s->name[n] == '/') ? 1 + n : 0;
}

/* Is it the name of a program? It becomes a part of a command. */
static int take_helper(const char *text, size_t n, char *ret, size_t room)
{
	if (n == 0)
		return 0;
	if (n >= room || strspn(text, "._-" ALNUM) < n)
		return -EBADMSG;
	memcpy(ret, text, n);
	ret[n] = '\0';
	return 0;
}

static bool is_base64(const char *text, size_t n)
{
	size_t len = strspn(text, "+/" ALNUM);

	return len + strspn(text + len, "=") >= n;
}

static int take(void *ctx, char key[3][MAX_KEY], unsigned depth, const char *text, size_t n)
{
	struct search *s = ctx;
	bool auth;
	size_t fit;

	if (depth == 1 && strcmp(key[0], "credsStore") == 0)
		return take_helper(text, n, s->store, sizeof(s->store));
	if (depth == 2 && strcmp(key[0], "credHelpers") == 0 &&
	    docker_same_host(s->host, key[1], strlen(key[1])))
		return take_helper(text, n, s->ret->helper, sizeof(s->ret->helper));
	auth = strcmp(key[2], "auth") == 0;
	if (depth != 3 || strcmp(key[0], "auths") != 0 || n == 0 ||
	    (!auth && strcmp(key[2], "identitytoken") != 0))
		return 0;
	fit = rank(s, key[1]);
	if (!auth)
		s->identity = MAX(s->identity, fit);
	if (!auth || fit <= s->best)
		return 0;
	if (n >= sizeof(s->ret->auth) || !is_base64(text, n))
		return -EBADMSG;
	memcpy(s->ret->auth, text, n);
	s->ret->auth[n] = '\0';
	s->best = fit;
	return 0;
}

int docker_parse(const char *text, size_t n, const char *host, const char *name,
		 struct docker_found *ret)
{
	struct search s = { .host = host, .name = name, .ret = ret };
	int r;

	explicit_bzero(ret, sizeof(*ret));
	r = read_strings(text, n, take, &s);
	if (r < 0)
		explicit_bzero(ret, sizeof(*ret));
	/* it is in place of a password, which `auth` then has not */
	if (r == 0 && (*ret->helper || s.identity >= MAX(s.best, 1)))
		explicit_bzero(ret->auth, sizeof(ret->auth));
	if (r == 0 && !*ret->helper && !*ret->auth)
		strcpy(ret->helper, s.store);
	return r < 0 ? r : *ret->helper || *ret->auth ? 0 : s.identity ? -EOPNOTSUPP : -ENOENT;
}

int docker_read_file(const char *path, size_t max, struct buf *ret)
{
	FILE *f = fopen(path, "re");
	size_t n;
	int r = f ? buf_reserve(ret, max) : -errno;

	if (!f)
		return r == -ENOTDIR ? -ENOENT : r;
	setvbuf(f, NULL, _IONBF, 0);
	n = r == 0 ? fread(ret->data, 1, max, f) : 0;
	ret->len = n;
	if (r == 0)
		r = ferror(f) ? -EIO : n == max ? -EFBIG : 0;
	fclose(f);
	return r;
}

int docker_find(const char *host, const char *name, struct docker_found *ret)
{
	static const char *const places[][2] = { { "REGISTRY_AUTH_FILE", "" },
						 { "DOCKER_CONFIG", "/config.json" },
						 { "HOME", "/.docker/config.json" },
						 { "XDG_RUNTIME_DIR", "/containers/auth.json" } };
	const char *docker = getenv("DOCKER_CONFIG");
	int r = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(places) && r == -ENOENT; i++) {
		const char *at = getenv(places[i][0]);
		struct buf text = buf_init(DOCKER_MAX_FILE + 1);
		char path[4096];

		if (!at || !*at || (i == 2 && docker && *docker))
			continue;
		snprintf(path, sizeof(path), "%s%s", at, places[i][1]);
		r = docker_read_file(path, DOCKER_MAX_FILE, &text);
		if (r == 0)
			r = docker_parse(text.data, text.len, host, name, ret);
		if (text.data)
			explicit_bzero(text.data, text.cap);
		buf_finish(&text);
		snprintf(ret->file, sizeof(ret->file), "%s", path);
		if (r == -EOPNOTSUPP) {
			carton_log(CARTON_LOG_NOTICE, path, "has for %s " DOCKER_IDENTITY, host);
			r = -ENOENT;
		}
		if (r < 0 && r != -ENOENT)
			return log_error(r, path,
					 "the credentials for %s cannot be read from it: %s", host,
					 r == -EBADMSG ? "it is no JSON as docker and podman write "
							 "it" :
							 strerror(-r));
	}
	return r;
}

/* ---- helpers ---- */

const char *docker_server(const char *host)
{
	return strcmp(host, DOCKER_HUB) == 0 ? "https://index.docker.io/v1/" : host;
}

struct output {
	struct buf user, secret;
};

static int take_output(void *ctx, char key[3][MAX_KEY], unsigned depth, const char *text, size_t n)
{
	struct output *o = ctx;
	struct buf *b = depth != 1			? NULL :
			strcmp(key[0], "Username") == 0 ? &o->user :
			strcmp(key[0], "Secret") == 0	? &o->secret :
							  NULL;

	if (!b)
		return 0;
	b->len = 0;
	return buf_add(b, text, n);
}

/* USER:SECRET in base64. */
static int encode(const struct output *o, char ret[DOCKER_MAX_AUTH])
{
	struct buf both = buf_init(DOCKER_MAX_AUTH);
	int r = -EBADMSG;

	if (o->user.len == 0 || o->secret.len == 0 || strchr(o->user.data, ':'))
		return r;
	/* of docker login to a registry that gives such tokens: they are sent in another way */
	if (strcmp(o->user.data, "<token>") == 0)
		return -EOPNOTSUPP;
	if (4 * (o->user.len + o->secret.len + 3) / 3 + 4 < DOCKER_MAX_AUTH &&
	    (r = buf_reserve(&both, o->user.len + o->secret.len + 1)) == 0) {
		buf_adds(&both, o->user.data);
		buf_addc(&both, ':');
		buf_adds(&both, o->secret.data);
		base64_encode(both.data, both.len, ret);
		explicit_bzero(both.data, both.cap);
	}
	buf_finish(&both);
	return r;
}

int docker_output(const char *text, size_t n, char ret_auth[DOCKER_MAX_AUTH])
{
	struct output o = { buf_init(DOCKER_MAX_AUTH), buf_init(DOCKER_MAX_AUTH) };
	struct buf *all[] = { &o.user, &o.secret };
	int r = 0;

	/* so that nothing is left where a buffer was before it grew */
	for (size_t i = 0; i < ARRAY_SIZE(all) && r == 0; i++)
		r = buf_reserve(all[i], DOCKER_MAX_AUTH - 1);
	if (r == 0)
		r = read_strings(text, n, take_output, &o);
	if (r == 0)
		r = encode(&o, ret_auth);
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (all[i]->data)
			explicit_bzero(all[i]->data, all[i]->cap);
		buf_finish(all[i]);
	}
	return r;
}
