/* SPDX-License-Identifier: Apache-2.0 */
#include "http/scheme.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "http/hf.h"
#include "http/ms.h"
#include "http/oci.h"
#include "http/s3.h"

#define MISSPELT "not a URL of the form http://HOST/PATH"

static const struct scheme http_scheme = { .name = "http", .port = true, .misspelt = MISSPELT };
static const struct scheme https_scheme = { .name = "https", .port = true, .misspelt = MISSPELT };

/* In the order in which messages name them. */
static const struct scheme *const schemes[] = { &http_scheme, &https_scheme, &s3_scheme,
						&hf_scheme,   &ms_scheme,    &oci_scheme };

/* ---- URLs ---- */

const struct scheme *scheme_of(const char *url)
{
	size_t n = strcspn(url, ":");

	if (strncmp(url + n, "://", 3) != 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (strlen(schemes[i]->name) == n && strncasecmp(url, schemes[i]->name, n) == 0)
			return schemes[i];
	return NULL;
}

const struct scheme *scheme_like(const char *text)
{
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		const char *p = text, *name = schemes[i]->name;

		for (; *p && (*name || *p != ':'); p++) {
			if ((unsigned char)*p <= ' ')
				continue;
			if (tolower((unsigned char)*p) != *name)
				break;
			name++;
		}
		if (*p == ':' && !*name)
			return schemes[i];
	}
	return NULL;
}

char *scheme_names(char *ret, size_t n)
{
	size_t len = 0;

	*ret = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(schemes) && len < n; i++)
		len += (size_t)snprintf(ret + len, n - len, "%s%s",
					i == 0			    ? "" :
					i < ARRAY_SIZE(schemes) - 1 ? ", " :
								      " and ",
					schemes[i]->name);
	return ret;
}

const char *scheme_near(const char *typed, size_t n)
{
	char lower[16];

	if (n >= sizeof(lower))
		return NULL;
	for (size_t i = 0; i < n; i++)
		lower[i] = (char)tolower((unsigned char)typed[i]);
	lower[n] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (carton_similar(lower, schemes[i]->name))
			return schemes[i]->name;
	return NULL;
}

int scheme_resolve(const char *url, char **ret, const char **ret_fault)
{
	const struct scheme *scheme = scheme_of(url);
	char *text;

	if (!scheme || !scheme->resolve) {
		text = strdup(url);
	} else {
		*ret_fault = scheme->fault(url);
		if (*ret_fault)
			return -EINVAL;
		text = scheme->resolve(url);
	}
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

/* ---- logins ---- */

static bool is_covered(struct login *list, const struct scheme *scheme, const char *url)
{
	while (list && !(list->scheme == scheme && (!scheme->covers || scheme->covers(list, url))))
		list = list->next;
	return list;
}

int login_add(struct login **list, const char *url, const struct login_options *o)
{
	const struct scheme *scheme = oci_is_blob(url) ? &oci_scheme : scheme_of(url);
	struct login *l = NULL;
	int r;

	if (!scheme || !scheme->login || is_covered(*list, scheme, url))
		return 0;
	r = scheme->login(url, o, &l);
	if (r < 0 || !l)
		return r;
	l->scheme = scheme;
	l->next = *list;
	*list = l;
	return 0;
}

struct login *login_of(struct login *list, const struct scheme *scheme)
{
	while (list && list->scheme != scheme)
		list = list->next;
	return list;
}

bool login_missing(struct login *list, const char *url)
{
	const struct scheme *scheme = scheme_of(url);

	return scheme && scheme->request_url && !login_of(list, scheme);
}

void login_free(struct login *list)
{
	struct login *next;

	for (; list; list = next) {
		next = list->next;
		list->scheme->logout(list);
	}
}
