/* SPDX-License-Identifier: Apache-2.0 */
#include "http/registries.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/json.h"
#include "base/util.h"
#include "http/docker.h"
#include "http/policy.h"
#include "http/reference.h"
#include "toml/toml.h"

/* Longer hosts, locations and names in a file are ignored. */
#define MAX_TEXT 512
#define CONF_D "registries.conf.d"
#define NO_RULE SIZE_MAX /* in place of the index of a rule */

/* A table [[registry]] of registries.conf. */
struct rule {
	char *prefix, *location;
	bool insecure, blocked, digests_only;
};

struct mirror {
	size_t rule; /* the index of its [[registry]]; NO_RULE: it is a mirror of Docker Hub */
	char *location;
	bool insecure;	    /* may be asked by http if it has no https */
	bool plain;	    /* its URL in daemon.json begins with http:// */
	bool tags, digests; /* may be asked for manifests by tag, by digest */
};

struct alias {
	char *name, *value; /* value "": a file has removed the alias */
};

/* An array that grows. */
struct list {
	void *items;
	size_t n, cap;
};

struct registries {
	struct list named, insecure; /* char * */
	struct list rules, mirrors, aliases;
};

#define ITEM(list, type, i) (&((type *)(list).items)[i])
#define LAST(list, type) ITEM(list, type, (list).n - 1)

/* ---- lists ---- */

/* Appends a zeroed item. 0; -EFBIG: there are REGISTRIES_MAX; -ENOMEM. */
static int grow(struct list *l, size_t size)
{
	void *items;

	if (l->n == REGISTRIES_MAX)
		return -EFBIG;
	items = array_grow(l->items, &l->cap, l->n + 1, size);
	if (!items)
		return -ENOMEM;
	l->items = items;
	memset((char *)items + l->n++ * size, 0, size);
	return 0;
}

static int add_text(struct list *l, const char *text, size_t n)
{
	int r = grow(l, sizeof(char *));

	if (r < 0)
		return r;
	*LAST(*l, char *) = strndup(text, n);
	return *LAST(*l, char *) ? 0 : -ENOMEM;
}

/* Shortens each list to the length that it has in `to`. */
static void shrink(struct registries *r, const struct registries *to)
{
	while (r->named.n > to->named.n)
		free(*ITEM(r->named, char *, --r->named.n));
	while (r->insecure.n > to->insecure.n)
		free(*ITEM(r->insecure, char *, --r->insecure.n));
	while (r->rules.n > to->rules.n) {
		struct rule *rule = ITEM(r->rules, struct rule, --r->rules.n);

		free(rule->prefix);
		free(rule->location);
	}
	while (r->mirrors.n > to->mirrors.n)
		free(ITEM(r->mirrors, struct mirror, --r->mirrors.n)->location);
	while (r->aliases.n > to->aliases.n) {
		struct alias *a = ITEM(r->aliases, struct alias, --r->aliases.n);

		free(a->name);
		free(a->value);
	}
}

struct registries *registries_new(void)
{
	return calloc(1, sizeof(struct registries));
}

void registries_free(struct registries *r)
{
	static const struct registries none;

	if (!r)
		return;
	shrink(r, &none);
	free(r->named.items);
	free(r->insecure.items);
	free(r->rules.items);
	free(r->mirrors.items);
	free(r->aliases.items);
	free(r);
}

/*
 * Ends the parsing of the file `name`. If that has failed, drops all that the file has added since
 * `before`, and logs why. Returns `result`.
 */
static int ended(struct registries *r, const struct registries *before, int result,
		 const struct reason *why, const char *name)
{
	if (result == 0)
		return 0;
	shrink(r, before);
	if (result == -ENOMEM)
		return result;
	carton_log(CARTON_LOG_NOTICE, name, "is not used: %s",
		   result == -EFBIG ? "it is too large" : why->text);
	return result;
}

/* ---- daemon.json ---- */

static int add_docker_mirror(struct registries *r, const char *url, size_t n)
{
	bool https = n > 8 && strncasecmp(url, "https://", 8) == 0;
	bool plain = n > 7 && strncasecmp(url, "http://", 7) == 0;
	size_t scheme = https ? 8 : plain ? 7 : 0;
	struct mirror *m;
	int result;

	while (n > scheme && url[n - 1] == '/')
		n--;
	if (!scheme || n - scheme > MAX_TEXT)
		return 0;
	result = grow(&r->mirrors, sizeof(*m));
	if (result < 0)
		return result;
	m = LAST(r->mirrors, struct mirror);
	*m = (struct mirror){ .rule = NO_RULE, .plain = plain, .tags = true, .digests = true };
	m->location = strndup(url + scheme, n - scheme);
	return m->location ? 0 : -ENOMEM;
}

static int take_docker(struct registries *r, const char *key, const char *text, size_t n)
{
	if (strcmp(key, "registry-mirrors") == 0)
		return add_docker_mirror(r, text, n);
	if (strcmp(key, "insecure-registries") == 0 && n > 0 && n <= MAX_TEXT)
		return add_text(&r->insecure, text, n);
	return 0;
}

/* Takes each string of the arrays that are members of the outermost object. */
static int read_docker(struct registries *r, struct json *j)
{
	enum json_event e = JSON_OTHER;
	char key[32] = "";
	int result = 0;

	while (result == 0 && (result = json_next(j, &e)) == 0 && e != JSON_EOF) {
		size_t n = e == JSON_KEY || e == JSON_STRING ? json_text_len(j) : 0;
		const char *text = n > 0 ? j->text->data + j->kept : "";

		if (e == JSON_KEY && j->depth == 1)
			snprintf(key, sizeof(key), "%.*s", n < sizeof(key) ? (int)n : 0, text);
		else if (e == JSON_OBJECT && j->depth == 2)
			key[0] = '\0';
		else if (e == JSON_STRING && j->depth == 2 && !memchr(text, '\0', n))
			result = take_docker(r, key, text, n);
	}
	return result;
}

int registries_parse_docker(struct registries *r, const char *name, const char *text, size_t n)
{
	struct registries before = *r;
	struct buf token = buf_init(REGISTRIES_MAX_FILE);
	struct mem_text in = { text, n };
	struct json *j = calloc(1, sizeof(*j));
	struct reason why = { 0, "it is no JSON" };
	int result;

	if (!j)
		return -ENOMEM;
	while (in.n > 0 && strchr("\r\n\t ", in.text[in.n - 1])) /* not taken by the scanner */
		in.n--;
	*j = (struct json){ .read = mem_text_read, .ctx = &in, .text = &token };
	result = in.n > 0 ? read_docker(r, j) : 0;
	if (result < 0 && j->fault)
		reason_set(&why, 0, "it is no JSON: %s", j->fault);
	buf_finish(&token);
	free(j);
	return ended(r, &before, result, &why, name);
}

/* ---- registries.conf ---- */

static int set_text(char **field, const struct toml_value *v)
{
	if (v->type != TOML_STRING || v->len > MAX_TEXT || strlen(v->str) != v->len)
		return 0;
	free(*field);
	*field = strdup(v->str);
	return *field ? 0 : -ENOMEM;
}

static int begin_podman(void *ctx, const struct toml_path *path, enum toml_type type, size_t line)
{
	struct registries *r = ctx;
	int result = 0;

	(void)line;
	if (type != TOML_TABLE)
		return 0;
	if (toml_path_is(path, "registry[]"))
		return grow(&r->rules, sizeof(struct rule));
	if (toml_path_is(path, "registry[].mirror[]")) {
		result = grow(&r->mirrors, sizeof(struct mirror));
		if (result == 0)
			*LAST(r->mirrors, struct mirror) = (struct mirror){ .rule = r->rules.n - 1,
									    .tags = true,
									    .digests = true };
	}
	return result;
}

/* Takes a member of the table of `m`, the mirror that was added last. */
static int take_mirror(struct mirror *m, const struct toml_path *path, const struct toml_value *v)
{
	const struct toml_step *last = &path->steps[path->n - 1];

	if (toml_is_key(last, "location"))
		return set_text(&m->location, v);
	if (toml_is_key(last, "insecure"))
		m->insecure = v->type == TOML_BOOL && v->boolean;
	else if (toml_is_key(last, "pull-from-mirror") && v->type == TOML_STRING) {
		m->tags &= strcmp(v->str, "digest-only") != 0;
		m->digests &= strcmp(v->str, "tag-only") != 0;
	}
	return 0;
}

/* Takes a member of the table of `rule`, which was added last. */
static int take_rule(struct rule *rule, const struct toml_path *path, const struct toml_value *v)
{
	const struct toml_step *last = &path->steps[path->n - 1];
	bool yes = v->type == TOML_BOOL && v->boolean;

	if (toml_is_key(last, "prefix"))
		return set_text(&rule->prefix, v);
	if (toml_is_key(last, "location"))
		return set_text(&rule->location, v);
	if (toml_is_key(last, "insecure"))
		rule->insecure = yes;
	else if (toml_is_key(last, "blocked"))
		rule->blocked = yes;
	else if (toml_is_key(last, "mirror-by-digest-only"))
		rule->digests_only = yes;
	return 0;
}

static int take_alias(struct registries *r, const struct toml_step *key, const struct toml_value *v)
{
	struct alias *a;
	int result;

	if (key->len > MAX_TEXT || strlen(key->key) != key->len)
		return 0;
	result = grow(&r->aliases, sizeof(*a));
	if (result < 0)
		return result;
	a = LAST(r->aliases, struct alias);
	a->name = strdup(key->key);
	result = set_text(&a->value, v);
	return a->name ? result : -ENOMEM;
}

static int take_podman(void *ctx, const struct toml_path *path, const struct toml_value *v)
{
	struct registries *r = ctx;

	if (toml_path_is(path, "registry[].mirror[].*"))
		return take_mirror(LAST(r->mirrors, struct mirror), path, v);
	if (toml_path_is(path, "registry[].*"))
		return take_rule(LAST(r->rules, struct rule), path, v);
	if (toml_path_is(path, "aliases.*"))
		return take_alias(r, &path->steps[1], v);
	/* the older form of the file, version 1 */
	if (toml_path_is(path, "registries.insecure.registries[]") && v->type == TOML_STRING &&
	    v->len > 0 && v->len <= MAX_TEXT && strlen(v->str) == v->len)
		return add_text(&r->insecure, v->str, v->len);
	return 0;
}

/*
 * Completes the tables [[registry]] from number `from` on: the prefix defaults to the location, and
 * mirror-by-digest-only applies to each mirror.
 */
static int complete(struct registries *r, size_t from)
{
	for (size_t i = from; i < r->rules.n; i++) {
		struct rule *rule = ITEM(r->rules, struct rule, i);

		if (!rule->prefix && rule->location && !(rule->prefix = strdup(rule->location)))
			return -ENOMEM;
	}
	for (size_t i = 0; i < r->mirrors.n; i++) {
		struct mirror *m = ITEM(r->mirrors, struct mirror, i);

		if (m->rule != NO_RULE && m->rule >= from)
			m->tags &= !ITEM(r->rules, struct rule, m->rule)->digests_only;
	}
	return 0;
}

int registries_parse_podman(struct registries *r, const char *name, const char *text, size_t n)
{
	static const struct toml_events events = { .begin = begin_podman, .value = take_podman };
	struct registries before = *r;
	struct reason error, why = { 0, "it is no TOML" };
	int result = toml_parse_mem(text, n, &events, r, &error);

	if (result == 0)
		result = complete(r, before.rules.n);
	if (*error.text)
		reason_set(&why, 0, "line %zu: %s", error.line, error.text);
	return ended(r, &before, result, &why, name);
}

/* ---- the files ---- */

typedef int parse_fn(struct registries *r, const char *name, const char *text, size_t n);

/* Loads a file. 0, also if it does not exist or cannot be used; -ENOMEM. *ret_there: it exists. */
static int load(struct registries *r, const char *path, parse_fn *parse, bool *ret_there)
{
	struct buf text = buf_init(REGISTRIES_MAX_FILE + 1);
	int result = docker_read_file(path, REGISTRIES_MAX_FILE, &text);

	*ret_there = result != -ENOENT;
	if (result == 0)
		result = parse(r, path, text.data, text.len);
	else if (*ret_there && result != -ENOMEM)
		carton_log(result == -EACCES ? CARTON_LOG_DEBUG : CARTON_LOG_NOTICE, path,
			   "is not used: %s", strerror(-result));
	buf_finish(&text);
	return result == -ENOMEM ? result : 0;
}

static int is_conf(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return n > 5 && strcmp(e->d_name + n - 5, ".conf") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int load_directory(struct registries *r, const char *directory)
{
	struct dirent **list;
	int n = scandir(directory, &list, is_conf, by_name), result = 0;
	bool there;

	for (int i = 0; i < n; i++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/%s", directory, list[i]->d_name);
		if (result == 0 && i < REGISTRIES_MAX)
			result = load(r, path, registries_parse_podman, &there);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return result;
}

static int load_docker(struct registries *r, const char *config)
{
	char path[4096];
	bool there;
	int result = load(r, "/etc/docker/daemon.json", registries_parse_docker, &there);

	snprintf(path, sizeof(path), "%s/docker/daemon.json", config);
	return result == 0 && *config ? load(r, path, registries_parse_docker, &there) : result;
}

/* Loads the first registries.conf that exists; the one that the user names is never passed over. */
static int load_conf(struct registries *r, const char *config)
{
	const char *named = getenv("CONTAINERS_REGISTRIES_CONF");
	char path[4096];
	bool there = false;
	int result = 0;

	if (named && *named)
		return load(r, named, registries_parse_podman, &there);
	snprintf(path, sizeof(path), "%s/containers/registries.conf", config);
	if (*config)
		result = load(r, path, registries_parse_podman, &there);
	if (result < 0 || there)
		return result;
	return load(r, "/etc/containers/registries.conf", registries_parse_podman, &there);
}

/* Later settings win: those of the directories over registries.conf, the user's over /etc. */
static int load_podman(struct registries *r, const char *config)
{
	char path[4096];
	int result = load_conf(r, config);

	if (result == 0)
		result = load_directory(r, "/etc/containers/" CONF_D);
	snprintf(path, sizeof(path), "%s/containers/" CONF_D, config);
	return result == 0 && *config ? load_directory(r, path) : result;
}

/* Finds the user's directory for configuration files; "": the environment names none. */
static void find_config(char *ret, size_t n)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	*ret = '\0';
	if (config && *config)
		snprintf(ret, n, "%s", config);
	else if (home && *home)
		snprintf(ret, n, "%s/.config", home);
}

/* ---- plain_http ---- */

/* Adds the registry of each oci:// URL to those that plain_http names. */
static int name_registries(struct registries *r, const char *const *urls)
{
	int result = 0;

	for (; *urls && result == 0; urls++)
		if (strncasecmp(*urls, "oci://", 6) == 0)
			result = add_text(&r->named, *urls + 6, strcspn(*urls + 6, "/"));
	return result;
}

/* Adds what plain_http names. 0; -EINVAL, logged; -ENOMEM. */
static int name_hosts(struct registries *r, char *const *hosts, const char *const *urls)
{
	int result = 0;

	for (; hosts && *hosts && result == 0; hosts++) {
		if (strcmp(*hosts, "*") == 0)
			result = name_registries(r, urls);
		else if (reference_is_host(*hosts, strlen(*hosts)))
			result = add_text(&r->named, *hosts, strlen(*hosts));
		else
			result = log_error(-EINVAL, NULL,
					   "plain_http=%s is no registry: HOST or HOST:PORT",
					   *hosts);
	}
	return result == -EFBIG ? -EINVAL : result;
}

int registries_load(char *const *plain_http, const char *const *urls, struct registries **ret)
{
	struct registries *r = registries_new();
	char config[2048];
	int result = r ? name_hosts(r, plain_http, urls) : -ENOMEM;

	find_config(config, sizeof(config));
	if (result == 0)
		result = load_docker(r, config);
	if (result == 0)
		result = load_podman(r, config);
	if (result < 0)
		registries_free(r);
	else
		*ret = r;
	return result;
}

/* ---- hosts ---- */

bool registries_named(const struct registries *r, const char *host, unsigned port)
{
	for (size_t i = 0; r && i < r->named.n; i++) {
		const char *text = *ITEM(r->named, char *, i);
		unsigned wanted;
		char *name = reference_host(text, strlen(text), &wanted);
		bool same = name && strcasecmp(name, host) == 0 && (!wanted || wanted == port);

		free(name);
		if (same)
			return true;
	}
	return false;
}

/*
 * Is a registry in `insecure-registries`, whose entries are HOST[:PORT] or ADDRESS/BITS? `host` is
 * HOST[:PORT], `name` just the host.
 */
static bool is_insecure(const struct registries *r, const char *host, const char *name)
{
	for (size_t i = 0; i < r->insecure.n; i++) {
		const char *entry = *ITEM(r->insecure, char *, i), *scheme = strstr(entry, "://");

		entry = scheme ? scheme + 3 : entry;
		if (strcasecmp(entry, host) == 0 ||
		    (strchr(entry, '/') && http_in_network(name, entry)))
			return true;
	}
	return false;
}

/* How many bytes of `ref`, HOST/NAME, match the prefix of a [[registry]]; 0: it does not match. */
static size_t match(const char *prefix, const char *ref)
{
	size_t n = prefix ? strlen(prefix) : 0, host = strcspn(ref, "/");

	if (n > 2 && prefix[0] == '*' && prefix[1] == '.')
		return host > n - 1 && strncasecmp(ref + host - (n - 1), prefix + 1, n - 1) == 0 ?
			       host :
			       0;
	if (n == 0 || strlen(ref) < n || !memchr("/", ref[n], 2) ||
	    strncasecmp(ref, prefix, MIN(n, host)) != 0 ||
	    (n > host && strncmp(ref + host, prefix + host, n - host) != 0))
		return 0;
	return n;
}

/* The [[registry]] with the longest prefix that matches, of several the last; or NO_RULE. */
static size_t find_rule(const struct registries *r, const char *ref)
{
	size_t best = NO_RULE, longest = 0;

	for (size_t i = 0; i < r->rules.n; i++) {
		const char *prefix = ITEM(r->rules, struct rule, i)->prefix;

		if (match(prefix, ref) && strlen(prefix) >= longest) {
			best = i;
			longest = strlen(prefix);
		}
	}
	return best;
}

/* Is the [[registry]] of HOST/NAME, or of HOST, insecure? */
static bool has_insecure_rule(const struct registries *r, const char *host, const char *name)
{
	char *ref;
	size_t rule;

	if (asprintf(&ref, "%s%s%s", host, name ? "/" : "", name ? name : "") < 0)
		return false;
	rule = find_rule(r, ref);
	free(ref);
	return rule != NO_RULE && ITEM(r->rules, struct rule, rule)->insecure;
}

bool registries_plain(const struct registries *r, const char *host, const char *name)
{
	unsigned port;
	char *text;
	bool plain = reference_is_local(host, strlen(host));

	if (plain || !r)
		return plain;
	text = reference_host(host, strlen(host), &port);
	plain = text && (registries_named(r, text, port ? port : 80) ||
			 (!port && registries_named(r, text, 443)) || is_insecure(r, host, text));
	free(text);
	return plain || has_insecure_rule(r, host, name);
}

/* ---- names ---- */

const char *registries_alias(const struct registries *r, const char *name, size_t n)
{
	const char *value = NULL;

	for (size_t i = 0; r && i < r->aliases.n; i++) {
		const struct alias *a = ITEM(r->aliases, struct alias, i);

		if (strlen(a->name) == n && strncmp(a->name, name, n) == 0)
			value = a->value;
	}
	return value && *value ? value : NULL;
}

/* The text with `by` in place of its first `n` bytes: malloc'ed, or NULL. */
static char *replace(const char *ref, size_t n, const char *by)
{
	char *text;

	return asprintf(&text, "%s%s", by, ref + n) < 0 ? NULL : text;
}

int registries_locate(const struct registries *r, const char *host, const char *name, char **ret,
		      bool *ret_plain)
{
	const struct rule *rule;
	int result = 0;
	size_t i;
	char *ref;

	if (asprintf(&ref, "%s/%s", host, name) < 0)
		return -ENOMEM;
	i = r ? find_rule(r, ref) : NO_RULE;
	rule = i != NO_RULE ? ITEM(r->rules, struct rule, i) : NULL;
	if (rule && rule->blocked) {
		free(ref);
		return -EPERM;
	}
	*ret_plain = rule && rule->insecure;
	*ret = NULL;
	if (rule && rule->location && *rule->location &&
	    strcmp(rule->location, rule->prefix) != 0) {
		*ret = replace(ref, match(rule->prefix, ref), rule->location);
		result = *ret ? 0 : -ENOMEM;
	}
	free(ref);
	return result;
}

/* Adds a mirror at SCHEME://HOST/v2/NAME; nothing if `ref` is not HOST/NAME. */
static int add_base(struct list *to, const struct mirror *m, const char *scheme, const char *ref)
{
	const char *name = strchr(ref, '/');
	struct registry_mirror *at;
	int r;

	if (!name || !reference_is_host(ref, (size_t)(name - ref)) ||
	    !reference_is_name(name + 1, strlen(name + 1)))
		return 0;
	r = grow(to, sizeof(*at));
	if (r < 0)
		return r;
	at = LAST(*to, struct registry_mirror);
	*at = (struct registry_mirror){ .tags = m->tags, .digests = m->digests };
	if (asprintf(&at->base, "%s://%.*s/v2%s", scheme, (int)(name - ref), ref, name) < 0) {
		at->base = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Adds where the mirror has `ref`, of which the first `matched` bytes are its registry's prefix. */
static int add_mirror(const struct registries *r, struct list *to, const struct mirror *m,
		      const char *ref, size_t matched)
{
	char *at = replace(ref, matched, m->location);
	char *host = at ? strndup(at, strcspn(at, "/")) : NULL;
	size_t n = to->n;
	int result = host ? add_base(to, m, m->plain ? "http" : "https", at) : -ENOMEM;

	if (to->n > n)
		LAST(*to, struct registry_mirror)->plain = !m->plain &&
							   (m->insecure ||
							    registries_plain(r, host, NULL));
	free(host);
	free(at);
	return result;
}

int registries_mirrors(const struct registries *r, const char *host, const char *name,
		       struct registry_mirror **ret, size_t *ret_n)
{
	struct list found = { 0 };
	size_t rule, matched;
	char *ref;
	int result = 0;

	if (asprintf(&ref, "%s/%s", host, name) < 0)
		return -ENOMEM;
	rule = r ? find_rule(r, ref) : NO_RULE;
	for (size_t i = 0; r && i < r->mirrors.n && result == 0; i++) {
		const struct mirror *m = ITEM(r->mirrors, struct mirror, i);

		matched = m->rule == NO_RULE ? match("docker.io", ref) :
			  m->rule == rule ? match(ITEM(r->rules, struct rule, rule)->prefix, ref) :
					    0;
		if (matched && m->location && *m->location)
			result = add_mirror(r, &found, m, ref, matched);
	}
	free(ref);
	if (result < 0) {
		registry_mirrors_free(found.items, found.n);
		return result == -EFBIG ? -ENOMEM : result;
	}
	*ret = found.items;
	*ret_n = found.n;
	return 0;
}

void registry_mirrors_free(struct registry_mirror *mirrors, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(mirrors[i].base);
	free(mirrors);
}
