/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "carton.h"

static _Thread_local char last[2048];

void failure_forget(void)
{
	last[0] = '\0';
}

void failure_set(const char *text)
{
	if (text && text != last)
		snprintf(last, sizeof(last), "%s", text);
}

char *failure_copy(void)
{
	return last[0] ? strdup(last) : NULL;
}

void failure_keep(char **text)
{
	char *copy = failure_copy();

	if (!copy)
		return;
	free(*text);
	*text = copy;
}

const char *carton_error(int error)
{
	char buf[128];

	if (!last[0])
		failure_set(strerror_r(-error, buf, sizeof(buf)));
	return last;
}
