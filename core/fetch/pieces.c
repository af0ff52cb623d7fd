/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a large file into pieces for several connections.
 *
 * Bytes that are not contiguous with the start are lost when the fetch ends early. So pieces begin
 * small, and grow only as long as each takes a fraction of a second; and none is larger than its share
 * of what is left, so that all connections end at about the same time. Pieces begin and end at multiples
 * of their size, as caches on the way cut files.
 */
#include "base/util.h"
#include "fetch/internal.h"

#define PIECE_MIN (256 * KIB)
#define PIECE_MAX (4 * MIB)
#define PIECE_QUICK_MS 250 /* a piece that takes less may be larger next time, */
#define PIECE_SLOW_MS 1000 /* one that takes more smaller */
/* up to here it is one piece */
#define SHORT (8 * MIB)
/* how many pieces of PIECE_MAX, besides one for each connection, may be ahead of what is contiguous */
#define AHEAD 2

void pieces_begin(struct pieces *p, uint64_t off, uint64_t end, unsigned connections)
{
	bool one = end - off <= SHORT;

	*p = (struct pieces){ .next = off, .end = end, .size = PIECE_FIRST };
	p->max = p->want = one ? 1 : MIN(MAX(connections, 1U), MAX_CONNECTIONS);
	if (one)
		p->size = SHORT;
}

static struct piece cut(const struct pieces *p)
{
	uint64_t left = p->end - p->next, unit = PIECE_MIN;
	uint64_t most = MIN((uint64_t)p->size, MAX(left / p->max, PIECE_MIN));

	if (p->max == 1 && left <= p->size)
		return (struct piece){ p->next, p->end };
	while (2 * unit <= most)
		unit *= 2;
	return (struct piece){ p->next, MIN((p->next / unit + 1) * unit, p->end) };
}

bool pieces_follow(struct pieces *p, uint64_t off, struct piece *ret)
{
	if (off != p->next || p->next == p->end)
		return false;
	*ret = cut(p);
	p->next = ret->end;
	return true;
}

bool pieces_take(struct pieces *p, uint64_t arrived, struct piece *ret)
{
	if (p->n_returned > 0) {
		*ret = p->returned[--p->n_returned];
		return true;
	}
	if (p->next > arrived && p->next - arrived > (p->max + AHEAD) * PIECE_MAX)
		return false;
	return pieces_follow(p, p->next, ret);
}

void pieces_return(struct pieces *p, struct piece left)
{
	if (left.off < left.end)
		p->returned[p->n_returned++] = left;
}

void pieces_learn(struct pieces *p, uint64_t n, int64_t ms)
{
	p->want = MIN(p->want + 1, p->max);
	/* a smaller one, at the end or of an earlier size, says nothing new */
	if (n != p->size)
		return;
	if (ms < PIECE_QUICK_MS)
		p->size = (size_t)MIN(2 * n, PIECE_MAX);
	else if (ms > PIECE_SLOW_MS)
		p->size = (size_t)MAX(n / 2, PIECE_MIN);
}
