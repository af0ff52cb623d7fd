/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/libarchive.h"

#include "base/library.h"
#include "base/util.h"

struct libarchive la;

#define FIND(name) { #name, (void **)&la.name },
static const struct library_function functions[] = { LIBARCHIVE_FUNCTIONS(FIND) };

_Static_assert(sizeof(LIBARCHIVE_FILE) > 1, "the Makefile has not found the library");

int libarchive_load(void)
{
	static struct library library = { .file = LIBARCHIVE_FILE,
					  .functions = functions,
					  .n = ARRAY_SIZE(functions) };

	return library_load(&library);
}
