/* SPDX-License-Identifier: Apache-2.0 */
/* The file of authorities that the user's environment names in place of the system's. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "http/internal.h"

/* The value of a variable of the environment; NULL: it is not set, or empty. */
static const char *value_of(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

int http_bundle(const char *source, char **ret, const char **ret_variable)
{
	static const char *const common[] = { "CURL_CA_BUNDLE", "SSL_CERT_FILE",
					      "REQUESTS_CA_BUNDLE" };
	const struct scheme *scheme = scheme_of(source);
	const char *name = scheme ? scheme->bundle : NULL, *value = name ? value_of(name) : NULL;
	char *here = NULL;
	int n;

	for (size_t i = 0; !value && i < ARRAY_SIZE(common); i++) {
		name = common[i];
		value = value_of(name);
	}
	if (!value)
		return 0;
	/* it is read again after the process has left its directory */
	if (*value != '/' && !(here = getcwd(NULL, 0)))
		return -errno;
	n = asprintf(ret, "%s%s%s", here ? here : "", here ? "/" : "", value);
	free(here);
	if (n < 0)
		*ret = NULL;
	*ret_variable = name;
	return n < 0 ? -ENOMEM : 0;
}
