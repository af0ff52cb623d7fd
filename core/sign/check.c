/* SPDX-License-Identifier: Apache-2.0 */
#include "sign/check.h"

#include "base/util.h"
#include "sign/internal.h"

int sign_read(const struct trust *t, const struct buf *text, struct carton_signature *ret,
	      struct buf *ret_payload, struct reason *why)
{
	struct carton_signature made = { .checked = true };
	struct bundle b;
	int r = bundle_parse(text->data, text->len, &b, why);

	if (r == 0)
		r = trust_check(t, &b, &made, why);
	if (r == 0) {
		*ret = made;
		*ret_payload = b.payload;
		b.payload = (struct buf){ 0 };
	}
	bundle_finish(&b);
	return r;
}

int sign_compare(const struct buf *payload, struct manifest *m, struct reason *why)
{
	return statement_check(payload->data, payload->len, m, why);
}

int sign_lists(const struct buf *text, struct manifest *m, struct reason *why)
{
	struct bundle b;
	int r = bundle_parse(text->data, text->len, &b, why);

	if (r == 0)
		r = sign_compare(&b.payload, m, why);
	bundle_finish(&b);
	return r;
}
