/* SPDX-License-Identifier: Apache-2.0 */
#include "http/hf.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/limits.h"
#include "base/util.h"
#include "http/scheme.h"

#define SCHEME "hf://"
#define HUB "https://huggingface.co"
#define MAX_TOKEN 1024
#define NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* The parts of a URL, within it. */
struct parts {
	const char *repo; /* with `datasets/` or `spaces/` */
	size_t repo_len;
	const char *revision;
	size_t revision_len; /* 0: main */
	const char *path;    /* NULL: there is none */
};

/* Is it `.` or `..`, percent-encoded or not? */
static bool is_dots(const char *text, size_t n)
{
	unsigned dots = 0;

	for (const char *end = text + n; text < end; dots++) {
		size_t one = *text == '.' ? 1 : strncasecmp(text, "%2e", 3) == 0 ? 3 : 0;

		if (!one)
			return false;
		text += one;
	}
	return dots == 1 || dots == 2;
}

/* Moves *at behind a name, to one of the characters `ends`, or to the end. */
static bool skip_name(const char **at, const char *ends)
{
	size_t n = strspn(*at, NAME);

	if (n == 0 || is_dots(*at, n) || !memchr(ends, (*at)[n], strlen(ends) + 1))
		return false;
	*at += n;
	return true;
}

static const char *split(const char *url, struct parts *ret)
{
	const char *p = url + strlen(SCHEME);

	ret->repo = p;
	if (strncmp(p, "datasets/", 9) == 0 || strncmp(p, "spaces/", 7) == 0)
		p += strcspn(p, "/") + 1;
	if (!skip_name(&p, "/") || !*p++ || !skip_name(&p, "/@"))
		return "not hf://ORG/REPO[@REVISION][/PATH]";
	ret->repo_len = (size_t)(p - ret->repo);
	ret->revision = p + (*p == '@');
	ret->revision_len = strcspn(ret->revision, "/");
	if ((*p == '@') != (ret->revision_len > 0) || is_dots(ret->revision, ret->revision_len))
		return "not hf://ORG/REPO[@REVISION][/PATH]: the revision is none";
	ret->path = NULL;
	if (!ret->revision[ret->revision_len])
		return NULL;
	ret->path = ret->revision + ret->revision_len + 1;
	if (!*ret->path)
		return "not hf://ORG/REPO[@REVISION][/PATH]: no path after the slash";
	/* libcurl would resolve these components */
	for (p = ret->path - 1; p; p = strchr(p + 1, '/'))
		if (is_dots(p + 1, strcspn(p + 1, "/")))
			return "a path with the component . or .. cannot be asked for";
	return NULL;
}

static const char *fault(const char *url)
{
	struct parts parts;
	const char *what = strlen(url) > HTTP_MAX_URL / 4 ? "the URL is too long" :
							    split(url, &parts);

	return what || parts.path ? what : "not hf://ORG/REPO[@REVISION]/PATH: there is no path";
}

/* The hub that HF_ENDPOINT names, *ret_n characters of it. */
static const char *find_hub(int *ret_n)
{
	const char *hub = getenv("HF_ENDPOINT");
	int n;

	hub = hub && *hub ? hub : HUB;
	for (n = (int)MIN(strlen(hub), (size_t)HTTP_MAX_URL); n > 0 && hub[n - 1] == '/';)
		n--;
	*ret_n = n;
	return hub;
}

static char *resolve(const char *url)
{
	struct buf out = buf_init(HTTP_MAX_URL + 1);
	const char *hub;
	struct parts p;
	int n, r;

	if (split(url, &p) || !p.path)
		return NULL;
	hub = find_hub(&n);
	r = buf_addf(&out, "%.*s/%.*s/resolve/", n, hub, (int)p.repo_len, p.repo);
	if (r == 0 && p.revision_len > 0)
		r = buf_add_encoded(&out, p.revision, p.revision_len, "-._~%");
	else if (r == 0)
		r = buf_addf(&out, "main");
	if (r == 0)
		r = buf_addc(&out, '/');
	if (r == 0)
		r = buf_add_encoded(&out, p.path, strlen(p.path), "-._~/{}");
	if (r < 0) {
		buf_finish(&out);
		return NULL;
	}
	return out.data;
}

/* ---- a repository ---- */

bool hf_is_repository(const char *url)
{
	struct parts p;

	return strncasecmp(url, SCHEME, strlen(SCHEME)) == 0 && strlen(url) <= HTTP_MAX_URL / 4 &&
	       !split(url, &p) && !p.path;
}

/* "%2F" is a slash; what is no escape stays. */
static void decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned c;

		if (*text == '%' && isxdigit((unsigned char)text[1]) &&
		    isxdigit((unsigned char)text[2]) && sscanf(text + 1, "%2x", &c) == 1) {
			*to++ = (char)c;
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

int hf_repository(const char *url, struct hf_repository *ret)
{
	const char *hub, *slash;
	struct parts p;
	int n;

	split(url, &p);
	hub = find_hub(&n);
	slash = memchr(p.repo, '/', p.repo_len);
	*ret = (struct hf_repository){ .kind = "models" };
	/* ORG/REPO, or KIND/ORG/REPO */
	if (memchr(slash + 1, '/', p.repo_len - (size_t)(slash + 1 - p.repo))) {
		ret->kind = *p.repo == 'd' ? "datasets" : "spaces";
		p.repo_len -= (size_t)(slash + 1 - p.repo);
		p.repo = slash + 1;
	}
	ret->hub = strndup(hub, (size_t)n);
	ret->name = strndup(p.repo, p.repo_len);
	ret->revision = p.revision_len ? strndup(p.revision, p.revision_len) : strdup("main");
	if (!ret->hub || !ret->name || !ret->revision) {
		hf_repository_finish(ret);
		return -ENOMEM;
	}
	decode(ret->revision);
	return 0;
}

void hf_repository_finish(struct hf_repository *r)
{
	free(r->hub);
	free(r->name);
	free(r->revision);
}

/* ---- the token ---- */

static FILE *open_saved(void)
{
	static const char *const places[][2] = { { "HF_TOKEN_PATH", "" },
						 { "HF_HOME", "/token" },
						 { "XDG_CACHE_HOME", "/huggingface/token" },
						 { "HOME", "/.cache/huggingface/token" } };
	char path[4096];

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *at = getenv(places[i][0]);

		if (!at || !*at)
			continue;
		snprintf(path, sizeof(path), "%s%s", at, places[i][1]);
		return fopen(path, "re");
	}
	return NULL;
}

static bool is_printable(const char *s)
{
	while (isgraph((unsigned char)*s))
		s++;
	return !*s;
}

static int find_header(char **ret)
{
	const char *given = getenv("HF_TOKEN");
	FILE *f = given && *given ? NULL : open_saved();
	char token[MAX_TOKEN] = "", *start = token;
	size_t n;
	int r = 0;

	*ret = NULL;
	if (f && !fgets(token, sizeof(token), f))
		*token = '\0';
	if (f)
		fclose(f);
	else if (given)
		snprintf(token, sizeof(token), "%s", given);
	start += strspn(token, " \t\r\n");
	n = strcspn(start, " \t\r\n");
	if (n > 0 && (start[n + strspn(start + n, " \t\r\n")] || n == sizeof(token) - 1 ||
		      (start[n] = '\0', !is_printable(start)))) {
		carton_log(CARTON_LOG_ERROR, NULL,
			   "HF_TOKEN or the saved token of huggingface_hub is no token");
		r = -EINVAL;
	} else if (n > 0 && asprintf(ret, "Authorization: Bearer %s", start) < 0) {
		*ret = NULL;
		r = -ENOMEM;
	}
	explicit_bzero(token, sizeof(token));
	return r;
}

/* HF_TOKEN, or what huggingface_hub has saved (HF_TOKEN_PATH, HF_HOME, ~/.cache/huggingface). */
static int login(struct login **ret)
{
	struct login *l;
	char *header;
	int r = find_header(&header);

	if (r < 0 || !header)
		return r;
	l = calloc(1, sizeof(*l));
	if (!l) {
		explicit_bzero(header, strlen(header));
		free(header);
		return -ENOMEM;
	}
	l->header = header;
	*ret = l;
	return 0;
}

static void logout(struct login *l)
{
	explicit_bzero(l->header, strlen(l->header));
	free(l->header);
	free(l);
}

const struct scheme hf_scheme = {
	.name = "hf",
	.misspelt = "not a URL of the form hf://ORG/REPO[@REVISION][/PATH]",
	.fault = fault,
	.resolve = resolve,
	.login = login,
	.logout = logout,
};
