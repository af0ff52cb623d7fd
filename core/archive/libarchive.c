/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/libarchive.h"

#include <pthread.h>

#include "base/library.h"
#include "base/util.h"

struct libarchive la;

#define FIND(name) { #name, (void **)&la.name },
static const struct library_function functions[] = { LIBARCHIVE_FUNCTIONS(FIND) };

_Static_assert(sizeof(LIBARCHIVE_FILE) > 1, "the Makefile has not found the library");

static int outcome;

static void load(void)
{
	outcome = library_load(LIBARCHIVE_FILE, functions, ARRAY_SIZE(functions));
}

int libarchive_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return outcome;
}
