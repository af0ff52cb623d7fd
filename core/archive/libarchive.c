/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/libarchive.h"

#include "base/library.h"
#include "base/util.h"

#define ARCHIVE_DEFINE(name) typeof(lazy_##name) lazy_##name;
ARCHIVE_FUNCTIONS(ARCHIVE_DEFINE)

#define ARCHIVE_FIND(name) { #name, (void **)&lazy_##name },
static const struct library_function functions[] = { ARCHIVE_FUNCTIONS(ARCHIVE_FIND) };

_Static_assert(sizeof(LIBARCHIVE_FILE) > 1, "the Makefile has not found the library");

static int outcome;

static void load(void)
{
	outcome = library_load(LIBARCHIVE_FILE, functions, ARRAY_SIZE(functions));
}

int archive_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return outcome;
}
