/* SPDX-License-Identifier: Apache-2.0 */
#include "http/curl.h"

#include <pthread.h>

#include "base/library.h"
#include "base/util.h"

#define CURL_DEFINE(name) typeof(lazy_##name) lazy_##name;
CURL_FUNCTIONS(CURL_DEFINE)

#define CURL_FIND(name) { #name, (void **)&lazy_##name },
static const struct library_function functions[] = { CURL_FUNCTIONS(CURL_FIND) };

_Static_assert(sizeof(LIBCURL_FILE) > 1, "the Makefile has not found the library");

static int outcome;

static void load(void)
{
	outcome = library_load(LIBCURL_FILE, functions, ARRAY_SIZE(functions));
}

int http_load_curl(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return outcome;
}
