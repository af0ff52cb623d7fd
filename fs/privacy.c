/* SPDX-License-Identifier: Apache-2.0 */
#include "privacy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "carton.h"

void privacy_hide_url(char *arg)
{
	size_t n = strlen(arg);
	char *label = calloc(1, n + 1);

	/*
	 * the label is cut to the length of the URL; without memory for it, the argument becomes
	 * empty
	 */
	if (label)
		carton_source_label(arg, label, n + 1);
	for (size_t i = 0; i < n; i++)
		arg[i] = label ? label[i] : '\0';
	free(label);
}

void privacy_no_core_dumps(void)
{
	/*
	 * A limit of 1 also keeps the kernel from piping a dump to a program, where it ignores 0. The
	 * sandbox, where there is one, also sets PR_SET_DUMPABLE.
	 */
	struct rlimit one = { 1, 1 };

	setrlimit(RLIMIT_CORE, &one);
}
