/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spill.h"

#include <stdlib.h>

#include "base/util.h"

struct spill *spill_new(uint64_t size, uint64_t unit)
{
	struct spill *s = calloc(1, sizeof(*s) + (size_t)(size / unit / 8) + 1);

	if (!s)
		return NULL;
	s->refs = 1;
	s->fd = -1;
	s->unit = unit;
	return s;
}

struct spill *spill_ref(struct spill *s)
{
	if (s)
		atomic_fetch_add(&s->refs, 1);
	return s;
}

void spill_unref(struct spill *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	fd_close(s->fd);
	free(s);
}

void spill_add(struct spill *s, uint64_t off, uint64_t n)
{
	for (uint64_t i = off / s->unit; i * s->unit < off + n; i++)
		atomic_fetch_or(&s->parts[i / 8], (unsigned char)(1 << (i % 8)));
}

int spill_fd(const struct spill *s, int fd, uint64_t off, size_t *n)
{
	uint64_t i;

	/* most files have no second one */
	if (!s || atomic_load(&s->fd) < 0)
		return fd;
	i = off / s->unit;
	*n = (size_t)MIN(*n, (i + 1) * s->unit - off);
	return atomic_load(&s->parts[i / 8]) >> (i % 8) & 1 ? atomic_load(&s->fd) : fd;
}
