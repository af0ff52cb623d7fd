/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reason.h"

#include <stdarg.h>
#include <stdio.h>

int reason_set(struct reason *reason, int r, const char *fmt, ...)
{
	va_list args;

	if (!reason)
		return r;
	va_start(args, fmt);
	vsnprintf(reason->text, sizeof(reason->text), fmt, args);
	va_end(args);
	return r;
}
