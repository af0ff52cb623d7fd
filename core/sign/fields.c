/* SPDX-License-Identifier: Apache-2.0 */
#include "sign/internal.h"

struct scan *fields_scan(const char *text, size_t n)
{
	struct scan *s;

	while (n > 0 && strchr(" \t\r\n", text[n - 1]) && text[n - 1])
		n--;
	s = scan_new(text, n);
	if (s)
		s->token.max = MAX_SIGNATURE;
	return s;
}

int fields_fault(const struct scan *s, int r, struct reason *why)
{
	if (r == -EBADMSG && s->json.fault && !*why->text)
		reason_set(why, r, "JSON: %s", s->json.fault);
	if (r == -EFBIG && !*why->text)
		reason_set(why, r, "JSON: a text in it is too long");
	return r;
}

int fields_next(struct scan *s, struct fields *f, struct reason *why)
{
	for (;;) {
		int r = scan_key(s);

		if (r <= 0)
			return r;
		for (int i = 0; f->keys[i]; i++) {
			if (!scan_is(s, f->keys[i]))
				continue;
			if (f->seen >> i & 1)
				return reason_set(why, -EBADMSG,
						  "JSON: the key \"%s\" is there twice",
						  f->keys[i]);
			f->seen |= 1U << i;
			return i + 1;
		}
		r = scan_skip(s);
		if (r < 0)
			return r;
	}
}
