/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the tests' own. */
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>

/* `p` of malloc() and the like; without memory the test ends. */
static inline void *must(void *p)
{
	if (!p) {
		perror("test");
		abort();
	}
	return p;
}

#endif
