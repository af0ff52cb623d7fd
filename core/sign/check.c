/* SPDX-License-Identifier: Apache-2.0 */
#include "sign/check.h"

#include "base/util.h"
#include "sign/internal.h"

int sign_check(const struct trust *t, const struct buf *text, struct manifest *m,
	       struct carton_signature *ret, struct reason *why)
{
	struct carton_signature made = { .checked = true };
	struct bundle b;
	int r = bundle_parse(text->data, text->len, &b, why);

	if (r == 0)
		r = trust_check(t, &b, &made, why);
	/* of nobody who is trusted, it is not looked at */
	if (r == 0)
		r = statement_check(b.payload.data, b.payload.len, m, why);
	bundle_finish(&b);
	if (r == 0)
		*ret = made;
	return r;
}
