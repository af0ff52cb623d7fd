/* SPDX-License-Identifier: Apache-2.0 */
#include "http/challenge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/limits.h"

#define ALNUM "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define TCHAR "!#$%&'*+-.^_`|~" ALNUM
#define TOKEN68 "-._~+/" ALNUM

/* ---- challenges ---- */

static const char *skip_space(const char *p)
{
	return p + strspn(p, " \t");
}

/* Reads a token or a quoted string; cut to n - 1 bytes: -EBADMSG. With `ret` NULL, any length. */
static int read_value(const char **p, char *ret, size_t n)
{
	const char *s = *p;
	bool quoted = *s == '"';
	size_t len = 0;

	for (s += quoted; quoted ? *s != '"' : *s && strchr(TCHAR, *s); s++) {
		if (quoted && *s == '\\')
			s++;
		if (((unsigned char)*s < ' ' && *s != '\t') || *s == 0x7f)
			return -EBADMSG; /* the end, too */
		if (ret && len == n - 1)
			return -EBADMSG;
		if (ret)
			ret[len] = *s;
		len++;
	}
	if (ret)
		ret[len] = '\0';
	*p = s + quoted;
	return len > 0 || quoted ? 0 : -EBADMSG;
}

/* The field for a parameter of Bearer; NULL: it is not needed. */
static char *field_of(struct challenge *c, const char *name, size_t n, size_t *ret_n)
{
	*ret_n = sizeof(c->service);
	if (n == 7 && strncasecmp(name, "service", n) == 0)
		return c->service;
	if (n == 5 && strncasecmp(name, "scope", n) == 0)
		return c->scope;
	*ret_n = sizeof(c->realm);
	return n == 5 && strncasecmp(name, "realm", n) == 0 ? c->realm : NULL;
}

/* Reads `=value`, into `c` unless that is NULL. */
static int read_param(const char **p, const char *name, size_t n, struct challenge *c)
{
	size_t room = 0;
	char *field = c ? field_of(c, name, n, &room) : NULL;

	*p = skip_space(*p + 1);
	if (field && *field)
		return -EBADMSG;
	return read_value(p, field, room);
}

/* Moves `p` behind credentials of the form token68, if that is what stands there alone. */
static bool skip_token68(const char **p)
{
	const char *end = *p + strspn(*p, TOKEN68);

	end = skip_space(end + strspn(end, "="));
	if (*end && *end != ',')
		return false;
	*p = end;
	return true;
}

static int parse(const char *p, struct challenge *ret, bool *ret_basic)
{
	struct challenge *c = NULL; /* if it is the one that is wanted */
	bool any = false, found = false;
	int r = 0;

	while (r == 0 && *(p += strspn(p, ", \t"))) {
		const char *name = p;
		size_t n = strspn(p, TCHAR);

		p = skip_space(p + n);
		if (n == 0)
			return -EBADMSG;
		if (*p == '=') {
			r = any ? read_param(&p, name, n, c) : -EBADMSG;
		} else {
			any = true;
			*ret_basic |= n == 5 && strncasecmp(name, "Basic", n) == 0;
			c = !found && n == 6 && strncasecmp(name, "Bearer", n) == 0 ? ret : NULL;
			found |= c != NULL;
			if (p > name + n && *p && !skip_token68(&p))
				continue; /* its first parameter */
		}
		p = skip_space(p);
		if (r == 0 && *p && *p != ',')
			r = -EBADMSG;
	}
	return r < 0 ? r : !found ? -ENOENT : *ret->realm ? 0 : -EBADMSG;
}

int challenge_parse(const char *text, struct challenge *ret)
{
	struct challenge c = { .realm = "" };
	bool basic = false;
	int r = parse(text, &c, &basic);

	if (r == 0)
		*ret = c;
	return r;
}

bool challenge_is_basic(const char *text)
{
	struct challenge c = { .realm = "" };
	bool basic = false;

	return parse(text, &c, &basic) == -ENOENT && basic;
}

/* Has the list [have, have + n) all actions of the list `wanted`, or `*`? Commas separate them. */
static bool has_actions(const char *have, size_t n, const char *wanted)
{
	for (size_t len; *wanted; wanted += len + (wanted[len] == ',')) {
		bool found = false;

		len = strcspn(wanted, ",");
		for (size_t at = 0, one; at < n && !found; at += one + 1) {
			const char *comma = memchr(have + at, ',', n - at);

			one = comma ? (size_t)(comma - have) - at : n - at;
			found = (one == len && strncmp(have + at, wanted, len) == 0) ||
				(one == 1 && have[at] == '*');
		}
		if (!found)
			return false;
	}
	return true;
}

/* Does a scope of `n` bytes allow these actions on the repository? */
static bool grants(const char *scope, size_t n, const char *name, size_t name_n,
		   const char *actions)
{
	static const char kind[] = "repository:";
	size_t head = strlen(kind) + name_n + 1;

	return n > head && strncmp(scope, kind, strlen(kind)) == 0 &&
	       strncmp(scope + strlen(kind), name, name_n) == 0 && scope[head - 1] == ':' &&
	       has_actions(scope + head, n - head, actions);
}

bool challenge_need(struct challenge *c, const char *name, size_t n, const char *actions,
		    bool alone)
{
	struct buf b = buf_init(sizeof(c->scope));
	bool there = false, others = false;
	char *need;
	int r = 0;

	if (asprintf(&need, "repository:%.*s:%s", (int)n, name, actions) < 0)
		return false;
	for (const char *p = c->scope; *(p += strspn(p, " "));) {
		size_t len = strcspn(p, " ");
		bool ours = grants(p, len, name, n, actions);
		/* the first of the actions, which are asked for together */
		bool less = strncmp(need, p, len) == 0 && need[len] == ',';
		bool keep = strspn(p, ":") < len && !less;

		there |= ours;
		others |= !ours && keep;
		if (r == 0 && keep && (ours || !alone))
			r = buf_addf(&b, "%s%.*s", b.len > 0 ? " " : "", (int)len, p);
		p += len;
	}
	if (r == 0 && !there)
		r = buf_addf(&b, "%s%s", b.len > 0 ? " " : "", need);
	if (r == 0)
		r = buf_addc(&b, '\0');
	/* scopes that would be too long stay as they are */
	if (r == 0)
		memcpy(c->scope, b.data, b.len);
	buf_finish(&b);
	free(need);
	return others;
}

/* Each scope is a parameter of its own; a service is one, whatever is in it. */
static int add_value(struct buf *b, char before, const char *name, const char *value)
{
	bool scopes = strcmp(name, "scope") == 0;
	int r = 0;

	for (size_t n; r == 0 && *value; value += n + (value[n] == ' ' && scopes)) {
		n = scopes ? strcspn(value, " ") : strlen(value);
		if (n == 0)
			continue;
		buf_addf(b, "%c%s=", before, name);
		r = buf_add_encoded(b, value, n, "-._~/:");
		before = '&';
	}
	return r;
}

char *challenge_url(const struct challenge *c)
{
	struct buf b = buf_init(2 * HTTP_MAX_URL);
	const char *const values[][2] = { { "service", c->service }, { "scope", c->scope } };
	bool query = strchr(c->realm, '?');
	int r = buf_add(&b, c->realm, strcspn(c->realm, "#"));

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (r < 0 || !*values[i][1])
			continue;
		r = add_value(&b, query ? '&' : '?', values[i][0], values[i][1]);
		query = true;
	}
	if (r < 0) {
		buf_finish(&b);
		return NULL;
	}
	return b.data;
}

/* ---- tokens ---- */

static bool is_printable(const char *s, size_t n)
{
	while (n > 0 && *s > ' ' && *s < 0x7f)
		s++, n--;
	return n == 0;
}

/* Takes a member of the object: what it is, is in `key`. */
static int take(const struct json *j, enum json_event e, const char *key, char **token,
		int64_t *seconds)
{
	size_t n = json_text_len(j);
	const char *text = n > 0 ? j->text->data + j->kept : "";

	if (e == JSON_STRING && (!strcmp(key, "token") || !strcmp(key, "access_token"))) {
		if (n == 0 || *token) /* both are there, and the same */
			return 0;
		if (n > TOKEN_MAX_TEXT || !is_printable(text, n))
			return -EBADMSG;
		*token = strndup(text, n);
		return *token ? 0 : -ENOMEM;
	}
	if (e == JSON_NUMBER && !strcmp(key, "expires_in") && n > 0 && n < 16) {
		char number[16];
		double value;

		memcpy(number, text, n);
		number[n] = '\0';
		value = strtod(number, NULL);
		if (value >= 1)
			*seconds = (int64_t)MIN(value, (double)TOKEN_MAX_SECONDS);
	}
	return 0;
}

static int read_members(struct json *j, char **token, int64_t *seconds)
{
	enum json_event e = JSON_OTHER;
	char key[16] = "";
	unsigned depth = 0;
	int r = 0;

	while (r == 0 && (r = json_next(j, &e)) == 0 && e != JSON_EOF) {
		size_t n = e == JSON_KEY ? json_text_len(j) : 0;

		depth += e == JSON_OBJECT || e == JSON_ARRAY;
		depth -= e == JSON_END;
		if (e == JSON_KEY && depth == 1) {
			n = n < sizeof(key) ? n : 0;
			if (n > 0)
				memcpy(key, j->text->data + j->kept, n);
			key[n] = '\0';
		} else if (depth == 1 && (e == JSON_STRING || e == JSON_NUMBER)) {
			r = take(j, e, key, token, seconds);
		}
	}
	return r;
}

int token_parse(const char *json, size_t n, char **ret_token, int64_t *ret_seconds)
{
	struct buf text = buf_init(n + 1);
	struct mem_text in = { json, n };
	struct json *j = calloc(1, sizeof(*j));
	int64_t seconds = TOKEN_SECONDS;
	char *token = NULL;
	int r;

	if (!j)
		return -ENOMEM;
	while (in.n > 0 && strchr("\r\n\t ", in.text[in.n - 1])) /* not taken by the scanner */
		in.n--;
	*j = (struct json){ .read = mem_text_read, .ctx = &in, .text = &text };
	r = read_members(j, &token, &seconds);
	if (r == 0 && !token)
		r = -EBADMSG;
	if (text.data)
		explicit_bzero(text.data, text.cap);
	buf_finish(&text);
	explicit_bzero(j, sizeof(*j));
	free(j);
	if (r < 0) {
		free(token);
		return r == -ENOMEM ? r : -EBADMSG;
	}
	*ret_token = token;
	*ret_seconds = seconds;
	return 0;
}
