/* SPDX-License-Identifier: Apache-2.0 */
#include "http/hf.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/limits.h"
#include "base/util.h"
#include "http/policy.h"
#include "http/scheme.h"

#define FORM "hf://ORG/REPO[@REVISION][/PATH]"
#define MAX_TOKEN 1024
#define BLANK " \t\r\n"

const struct repository_form hf_form = {
	.scheme = "hf://",
	.faults = { "not " FORM, "not " FORM ": the revision is none",
		    "not hf://ORG/REPO[@REVISION]/PATH: there is no path" },
	.hub = true,
	.endpoint = "HF_ENDPOINT",
	.server = "https://huggingface.co",
	.above = "",
	.revision = "main",
};

static const char *fault(const char *url)
{
	return repository_file_fault(&hf_form, url);
}

static char *resolve(const char *url)
{
	return repository_resolve(&hf_form, url);
}

/* Is it the name of a repository? A token there, as userinfo, is none. */
static bool is_name(const char *text, size_t n)
{
	static const char *const tokens[] = { "hf_", "api_" };

	for (size_t i = 0; i < ARRAY_SIZE(tokens); i++)
		if (strncasecmp(text, tokens[i], strlen(tokens[i])) == 0)
			return false;
	while (n > 0 && (isalnum((unsigned char)text[n - 1]) || strchr("-_.", text[n - 1])))
		n--;
	return n == 0;
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

/* Copies the first line of the saved token, with its newline; "": there is none. */
static void read_saved(char ret[MAX_TOKEN])
{
	FILE *f = open_saved();

	if (!f || !fgets(ret, MAX_TOKEN, f))
		*ret = '\0';
	if (f)
		fclose(f);
}

/* The variable that has a token, in the order of huggingface_hub; or NULL. */
static const char *find_variable(void)
{
	static const char *const names[] = { "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);

		/* the first that is not empty counts, even if it is blank */
		if (value && *value)
			return value[strspn(value, BLANK)] ? names[i] : NULL;
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
	const char *from = find_variable();
	char token[MAX_TOKEN] = "", *start = token;
	size_t n;
	int r = 0;

	*ret = NULL;
	if (from)
		snprintf(token, sizeof(token), "%s", getenv(from));
	else
		read_saved(token);
	start += strspn(token, BLANK);
	n = strcspn(start, BLANK);
	if (n > 0 && (start[n + strspn(start + n, BLANK)] || n == sizeof(token) - 1 ||
		      (start[n] = '\0', !is_printable(start)))) {
		carton_log(CARTON_LOG_ERROR, NULL, "%s is no token",
			   from ? from : "what hf auth login has saved");
		r = -EINVAL;
	} else if (n > 0 && asprintf(ret, "Authorization: Bearer %s", start) < 0) {
		*ret = NULL;
		r = -ENOMEM;
	}
	explicit_bzero(token, sizeof(token));
	return r;
}

/* Is it a secret what is sent to the hub? It is with https, or on this machine. */
static bool is_secret(const char *hub)
{
	char host[256];
	size_t n;

	if (strncasecmp(hub, "https://", 8) == 0)
		return true;
	if (strncasecmp(hub, "http://", 7) != 0)
		return false;
	hub += 7;
	hub += *hub == '[';
	n = strspn(hub, hub[-1] == '[' ? "0123456789abcdefABCDEF:" :
					 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789-.");
	snprintf(host, sizeof(host), "%.*s", (int)n, hub);
	hub += n;
	hub += *hub == ']';
	if (*hub == ':')
		hub += 1 + strspn(hub + 1, "0123456789");
	return (!*hub || *hub == '/') && n < sizeof(host) &&
	       http_host_class(host) == HTTP_ADDRESS_LOOPBACK;
}

static void logout(struct login *l)
{
	if (l->header)
		explicit_bzero(l->header, strlen(l->header));
	free(l->header);
	free(l);
}

/*
 * HF_TOKEN, HUGGING_FACE_HUB_TOKEN, or what huggingface_hub has saved (HF_TOKEN_PATH, HF_HOME,
 * ~/.cache/huggingface).
 */
static int login(const char *url, const struct login_options *o, struct login **ret)
{
	struct login *l = calloc(1, sizeof(*l));
	char *hub = repository_server(&hf_form);
	int r = l && hub ? find_header(&l->header) : -ENOMEM;

	(void)url, (void)o;
	if (r == 0 && l->header && !is_secret(hub)) {
		carton_log(CARTON_LOG_NOTICE, "HF_ENDPOINT",
			   "has no https: the hub is asked without your token, which others could "
			   "read on the way");
		explicit_bzero(l->header, strlen(l->header));
		free(l->header);
		l->header = NULL;
	}
	free(hub);
	if (r == 0 && l->header)
		*ret = l;
	else if (l)
		logout(l);
	return r;
}

const struct scheme hf_scheme = {
	.name = "hf",
	.bundle = "REQUESTS_CA_BUNDLE",
	.is_name = is_name,
	.misspelt = "not a URL of the form " FORM,
	.fault = fault,
	.resolve = resolve,
	.login = login,
	.logout = logout,
};
