/* SPDX-License-Identifier: Apache-2.0 */
#include "base/library.h"

#include <dlfcn.h>

#include "base/util.h"

#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

int library_load(const char *file, const struct library_function *functions, size_t n)
{
	void *library = dlopen(file, FLAGS);
	const char *why;

	for (size_t i = 0; library && i < n; i++) {
		void *found = dlsym(library, functions[i].name);

		if (!found)
			library = NULL;
		else
			__atomic_store_n(functions[i].ret, found, __ATOMIC_RELEASE);
	}
	if (library)
		return 0;
	why = dlerror();
	carton_log(CARTON_LOG_ERROR, file, "cannot be loaded: %s; is its package installed?",
		   why ? why : "unknown error");
	return -ELIBACC;
}

void library_load_optional(const char *file)
{
	(void)dlopen(file, FLAGS);
}
