/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared libraries that are loaded when they are first needed. A local carton needs neither libcurl
 * nor libarchive, and loading them with all that they depend on takes longer than mounting it.
 */
#ifndef CARTON_BASE_LIBRARY_H
#define CARTON_BASE_LIBRARY_H

#include <stddef.h>

struct library_function {
	const char *name;
	void **ret; /* its address */
};

/*
 * Loads `file` (a name as in DT_NEEDED) and finds its functions; it is never unloaded. 0, or
 * -ELIBACC, logged. Any thread; harmless if it was loaded before.
 */
int library_load(const char *file, const struct library_function *functions, size_t n);

/* Loads `file` if it is installed, so that another library finds it loaded. */
void library_load_optional(const char *file);

#endif
