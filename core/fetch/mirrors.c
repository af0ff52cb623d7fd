/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch/mirrors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/util.h"
#include "http/http.h"
#include "http/scheme.h"

#define CACHE_LAYOUT "/v1/objects/{ab}/{sha256}"

struct template
{
	char *text;
	bool local;
	bool of_carton; /* {source} and nothing else */
};

struct mirrors {
	struct template *list;
	size_t n;
	char *source;
	const char **directories;
};

enum value {
	VALUE_SHA256,
	VALUE_AB,
	VALUE_PATH,
	VALUE_SOURCE,
	N_VALUES,
};

static const char *const names[N_VALUES] = { "{sha256}", "{ab}", "{path}", "{source}" };

/* ---- expansion ---- */

/* The placeholder at `text`, or N_VALUES. */
static enum value value_at(const char *text)
{
	enum value v = 0;

	while (v < N_VALUES && strncmp(text, names[v], strlen(names[v])) != 0)
		v++;
	return v;
}

static bool has(const char *text, enum value v)
{
	return strstr(text, names[v]) != NULL;
}

/* malloc'ed; NULL: out of memory, or too long. */
static char *expand(const struct template *t, const char *const values[N_VALUES])
{
	struct buf out = buf_init(t->local ? MAX_PATH_LEN + 1 : HTTP_MAX_URL + 1);
	bool query = false;
	int r = 0;

	for (const char *p = t->text; *p && r == 0;) {
		enum value v = value_at(p);

		query |= *p == '?';
		if (v == N_VALUES) {
			r = buf_add(&out, p++, 1);
			continue;
		}
		p += strlen(names[v]);
		if (t->local)
			r = buf_add(&out, values[v], strlen(values[v]));
		else
			r = buf_add_encoded(&out, values[v], strlen(values[v]),
					    query	      ? "-._~" :
					    v == VALUE_SOURCE ? "-._~/:" :
								"-._~/");
	}
	if (r == 0)
		r = buf_add(&out, "", 1);
	if (r < 0) {
		buf_finish(&out);
		return NULL;
	}
	return out.data;
}

static char *expand_object(const struct mirrors *m, const struct template *t,
			   const uint8_t sha256[SHA256_SIZE], const char *path)
{
	char hex[2 * SHA256_SIZE + 1], ab[3];
	const char *const values[] = { hex, ab, path, m->source };

	hex_encode(sha256, SHA256_SIZE, hex);
	snprintf(ab, sizeof(ab), "%.2s", hex);
	return expand(t, values);
}

/* ---- making ---- */

int mirrors_replace(struct mirrors *m, const char *before, const char *after)
{
	size_t len = strlen(before);

	for (size_t i = 0; m && i < m->n; i++) {
		struct template *t = &m->list[i];
		char *text;

		if (strncmp(t->text, before, len) != 0)
			continue;
		if (asprintf(&text, "%s%s", after, t->text + len) < 0)
			return -ENOMEM;
		free(t->text);
		t->text = text;
	}
	return 0;
}

static int refuse(const char *text, const char *why)
{
	char shown[256];

	carton_log(CARTON_LOG_ERROR, http_url_redact(text, shown, sizeof(shown)),
		   "is no template for a mirror: %s", why);
	return -EINVAL;
}

/* Does the carton say which server, bucket or user it is, as a path stands there? */
static bool has_path_as_host(const char *text)
{
	const char *p = strstr(text, "://"), *path = strstr(text, names[VALUE_PATH]);

	if (!p || !path)
		return false;
	p += 3;
	/* libcurl takes more slashes for two */
	p += strspn(p, "/");
	return path < p + strcspn(p, "/?#");
}

/* A template with something wrong between braces, or none; NULL: it is fine. */
static const char *fault_of(const struct template *t)
{
	bool any = false;

	for (const char *p = t->text; (p = strchr(p, '{')); p++) {
		if (value_at(p) == N_VALUES)
			return "known are {sha256}, {ab}, {path} and {source}";
		any = true;
	}
	if (!any)
		return "it has none of {sha256}, {path} and {source}";
	if (!t->local && has_path_as_host(t->text))
		return "{path} cannot be a part of the host";
	return t->local && has(t->text, VALUE_SOURCE) ? "{source} is for URLs" : NULL;
}

static int add(struct mirrors *m, const char *text)
{
	static const char *const sample[] = { "0", "0", "x", "http://x" };
	struct template *t = &m->list[m->n];
	const char *fault;
	char *url;
	int r = 0;

	t->local = *text == '/';
	if (t->local && !strchr(text, '{'))
		r = asprintf(&t->text, "%s" CACHE_LAYOUT, text) < 0 ? -ENOMEM : 0;
	else
		r = scheme_resolve(text, &t->text, &fault);
	if (r < 0)
		return r == -EINVAL ? refuse(text, fault) : r;
	m->n++;
	fault = fault_of(t);
	if (fault)
		return refuse(text, fault);
	t->of_carton = has(t->text, VALUE_SOURCE) && !has(t->text, VALUE_SHA256) &&
		       !has(t->text, VALUE_PATH);
	url = expand(t, sample);
	if (!url)
		return -ENOMEM;
	fault = t->local ? NULL : http_url_fault(url);
	free(url);
	return fault ? refuse(text, fault) : 0;
}

/* The directory before the first placeholder. */
static char *directory_of(const struct template *t)
{
	size_t n = strcspn(t->text, "{");

	while (n > 1 && t->text[n - 1] != '/')
		n--;
	return strndup(t->text, n);
}

static int find_directories(struct mirrors *m)
{
	size_t n = 0;

	m->directories = calloc(m->n + 1, sizeof(*m->directories));
	if (!m->directories)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++)
		if (m->list[i].local && !(m->directories[n++] = directory_of(&m->list[i])))
			return -ENOMEM;
	return 0;
}

int mirrors_new(char *const *templates, const char *source, struct mirrors **ret)
{
	struct mirrors *m = calloc(1, sizeof(*m));
	size_t n = 0;
	int r;

	if (!m)
		return -ENOMEM;
	while (templates[n])
		n++;
	m->list = calloc(n + 1, sizeof(*m->list));
	m->source = http_url_public(source);
	r = m->list && m->source ? 0 : -ENOMEM;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = add(m, templates[i]);
	if (r == 0)
		r = find_directories(m);
	if (r < 0)
		mirrors_free(m);
	else
		*ret = m;
	return r;
}

void mirrors_free(struct mirrors *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++)
		free(m->list[i].text);
	for (const char **d = m->directories; d && *d; d++)
		free((char *)*d);
	free(m->directories);
	free(m->list);
	free(m->source);
	free(m);
}

/* ---- use ---- */

static bool of_objects(const struct template *t)
{
	return !t->local && !t->of_carton;
}

bool mirrors_have_urls(const struct mirrors *m)
{
	for (size_t i = 0; m && i < m->n; i++)
		if (of_objects(&m->list[i]))
			return true;
	return false;
}

int mirrors_login(const struct mirrors *m, struct login **list, const struct login_options *o)
{
	int r = 0;

	for (size_t i = 0; m && i < m->n && r == 0; i++)
		r = login_add(list, m->list[i].text, o);
	return r;
}

int mirrors_urls(const struct mirrors *m, const uint8_t sha256[SHA256_SIZE], const char *path,
		 char ***ret)
{
	char **urls = calloc(m->n + 1, sizeof(*urls)), **at = urls;

	if (!urls)
		return -ENOMEM;
	/* one that becomes too long is left out */
	for (size_t i = 0; i < m->n; i++)
		if (of_objects(&m->list[i]) && (*at = expand_object(m, &m->list[i], sha256, path)))
			at++;
	*ret = urls;
	return 0;
}

char *mirrors_carton(const struct mirrors *m, size_t index)
{
	const char *values[] = { "", "", "", m ? m->source : "" };

	for (size_t i = 0; m && i < m->n; i++)
		if (m->list[i].of_carton && index-- == 0)
			return expand(&m->list[i], values);
	return NULL;
}

int mirrors_open(const struct mirrors *m, const uint8_t sha256[SHA256_SIZE], const char *path,
		 size_t *index, int *ret_fd)
{
	struct stat st;

	for (; m && *index < m->n; (*index)++) {
		const struct template *t = &m->list[*index];
		char *name = t->local ? expand_object(m, t, sha256, path) : NULL;
		int fd = name ? open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;

		free(name);
		if (fd < 0)
			continue;
		if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
			*ret_fd = fd;
			return 0;
		}
		fd_close(fd);
	}
	return -ENOENT;
}

const char *const *mirrors_directories(const struct mirrors *m)
{
	return m && m->directories && m->directories[0] ? m->directories : NULL;
}
