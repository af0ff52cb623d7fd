/* SPDX-License-Identifier: Apache-2.0 */
#include "http/ms.h"

#define FORM "ms://ORG/REPO[@REVISION][/PATH]"

const struct repository_form ms_form = {
	.scheme = "ms://",
	.faults = { "not " FORM, "not " FORM ": the revision is none",
		    "not ms://ORG/REPO[@REVISION]/PATH: there is no path" },
	.endpoint = "MODELSCOPE_ENDPOINT",
	.server = "https://modelscope.cn",
	.above = "models/",
	.revision = "master",
};

static const char *fault(const char *url)
{
	return repository_file_fault(&ms_form, url);
}

static char *resolve(const char *url)
{
	return repository_resolve(&ms_form, url);
}

const struct scheme ms_scheme = {
	.name = "ms",
	.bundle = "REQUESTS_CA_BUNDLE",
	.misspelt = "not a URL of the form " FORM,
	.fault = fault,
	.resolve = resolve,
};
