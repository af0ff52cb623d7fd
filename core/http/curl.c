/* SPDX-License-Identifier: Apache-2.0 */
#include "http/curl.h"

#include "base/library.h"
#include "base/util.h"

#define CURL_DEFINE(name) typeof(lazy_##name) lazy_##name;
CURL_FUNCTIONS(CURL_DEFINE)

#define CURL_FIND(name) { #name, (void **)&lazy_##name },
static const struct library_function functions[] = { CURL_FUNCTIONS(CURL_FIND) };

_Static_assert(sizeof(LIBCURL_FILE) > 1, "the Makefile has not found the library");

int http_load_curl(void)
{
	static struct library library = { .file = LIBCURL_FILE,
					  .functions = functions,
					  .n = ARRAY_SIZE(functions) };

	return library_load(&library);
}
