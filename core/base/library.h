/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared libraries that are loaded when they are first needed. A local carton needs neither libcurl
 * nor libarchive, and loading them with all that they depend on takes longer than mounting it.
 */
#ifndef CARTON_BASE_LIBRARY_H
#define CARTON_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct library_function {
	const char *name;
	void **ret; /* its address */
};

struct library {
	const char *file; /* a name as in DT_NEEDED */
	const struct library_function *functions;
	size_t n;

	/* private */
	bool tried;
	int outcome;
};

/*
 * Loads the library and finds its functions, in the first call; the library is never unloaded. 0,
 * or -ELIBACC, which the first call logs. Any thread.
 */
int library_load(struct library *library);

/* Loads `file` if it is installed, so that another library finds it loaded. */
void library_load_optional(const char *file);

#endif
