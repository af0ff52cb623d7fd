/* SPDX-License-Identifier: Apache-2.0 */
#include "base/library.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/util.h"

#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static int load(const struct library *l)
{
	void *library = dlopen(l->file, FLAGS);
	const char *why;

	for (size_t i = 0; library && i < l->n; i++) {
		void *found = dlsym(library, l->functions[i].name);

		if (!found)
			library = NULL;
		else
			__atomic_store_n(l->functions[i].ret, found, __ATOMIC_RELEASE);
	}
	if (library)
		return 0;
	why = dlerror();
	carton_log(CARTON_LOG_ERROR, l->file, "cannot be loaded: %s; is its package installed?",
		   why ? why : "unknown error");
	return -ELIBACC;
}

int library_load(struct library *library)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int r;

	pthread_mutex_lock(&lock);
	if (!library->tried)
		library->outcome = load(library);
	library->tried = true;
	r = library->outcome;
	pthread_mutex_unlock(&lock);
	return r;
}

void library_load_optional(const char *file)
{
	(void)dlopen(file, FLAGS);
}
