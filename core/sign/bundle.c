/* SPDX-License-Identifier: Apache-2.0 */
/* The outer file: a Sigstore bundle, as JSON. */
#include "base/util.h"
#include "sign/internal.h"

/* Reads base64: decodes it where it is. */
static int take_base64(struct scan *s, const char *key, struct buf *ret, struct reason *why)
{
	int r;
	ssize_t n;

	buf_finish(ret);
	r = scan_take(s, ret);
	if (r <= 0)
		return r;
	n = base64_decode(ret->data, ret->len);
	ret->len = n > 0 ? (size_t)n : 0;
	return n > 0 ? 0 :
		       reason_set(why, -EBADMSG,
				  "base64: \"%s\" is empty, or is not in the standard alphabet, "
				  "with padding and without spaces",
				  key);
}

static int read_key(struct scan *s, struct bundle *b, struct reason *why)
{
	static const char *const keys[] = { "hint", NULL };
	struct fields f = { keys, 0 };
	int r;

	while ((r = fields_next(s, &f, why)) > 0) {
		r = scan_string(s, b->hint, sizeof(b->hint));
		if (r < 0)
			return r;
	}
	return r;
}

static int read_certificate(struct scan *s, struct bundle *b, struct reason *why)
{
	static const char *const keys[] = { "rawBytes", NULL };
	struct fields f = { keys, 0 };
	int r;

	if (b->n_certificates == MAX_CERTIFICATES)
		return reason_set(why, -EFBIG, "chain: it has more than %d certificates",
				  MAX_CERTIFICATES);
	b->n_certificates++;
	while ((r = fields_next(s, &f, why)) > 0) {
		r = take_base64(s, keys[0], &b->certificates[b->n_certificates - 1], why);
		if (r < 0)
			return r;
	}
	return r;
}

/* Reads each element of an array. An array that is null is as one that is empty. */
static int read_array(struct scan *s, struct bundle *b, struct reason *why,
		      int (*read)(struct scan *s, struct bundle *b, struct reason *why))
{
	int r = scan_begin(s, JSON_ARRAY);

	while (r > 0 && (r = scan_item(s)) > 0) {
		r = read(s, b, why);
		if (r < 0)
			return r;
		r = 1;
	}
	return r;
}

static int read_chain(struct scan *s, struct bundle *b, struct reason *why)
{
	static const char *const keys[] = { "certificates", NULL };
	struct fields f = { keys, 0 };
	int r;

	while ((r = fields_next(s, &f, why)) > 0) {
		r = read_array(s, b, why, read_certificate);
		if (r < 0)
			return r;
	}
	return r;
}

/* A key that is null is as one that is not there. */
static int read_material(struct scan *s, struct bundle *b, struct reason *why)
{
	static const char *const keys[] = { "publicKey", "x509CertificateChain", "certificate",
					    NULL };
	struct fields f = { keys, 0 };
	int k, r;

	while ((k = fields_next(s, &f, why)) > 0) {
		r = scan_begin(s, JSON_OBJECT);
		*(k == 1 ? &b->key : k == 2 ? &b->chain : &b->sigstore) = r > 0;
		if (r > 0)
			r = k == 1 ? read_key(s, b, why) :
			    k == 2 ? read_chain(s, b, why) :
				     fields_next(s, &(struct fields){ keys + 3, 0 }, why);
		if (r < 0)
			return r;
	}
	return k;
}

static int read_signature(struct scan *s, struct bundle *b, struct reason *why)
{
	static const char *const keys[] = { "sig", NULL };
	struct fields f = { keys, 0 };
	int r;

	b->n_signatures++;
	while ((r = fields_next(s, &f, why)) > 0) {
		r = take_base64(s, keys[0], &b->signature, why);
		if (r < 0)
			return r;
	}
	return r;
}

static int read_envelope(struct scan *s, struct bundle *b, struct reason *why)
{
	static const char *const keys[] = { "payload", "payloadType", "signatures", NULL };
	struct fields f = { keys, 0 };
	int k, r;

	b->envelope = true;
	while ((k = fields_next(s, &f, why)) > 0) {
		r = k == 1 ? take_base64(s, keys[0], &b->payload, why) :
		    k == 2 ? scan_string(s, b->payload_type, sizeof(b->payload_type)) :
			     read_array(s, b, why, read_signature);
		if (r < 0)
			return r;
	}
	return k;
}

static int read_bundle(struct scan *s, struct bundle *b, struct reason *why)
{
	static const char *const keys[] = { "mediaType", "verificationMaterial", "dsseEnvelope",
					    NULL };
	struct fields f = { keys, 0 };
	enum json_event end;
	int k, r = scan_begin(s, JSON_OBJECT);

	if (r <= 0)
		return r < 0 ? r : reason_set(why, -EBADMSG, "JSON: it is no object");
	while ((k = fields_next(s, &f, why)) > 0) {
		r = k == 1 ? scan_string(s, b->type, sizeof(b->type)) : scan_begin(s, JSON_OBJECT);
		if (r > 0 && k > 1)
			r = k == 2 ? read_material(s, b, why) : read_envelope(s, b, why);
		if (r < 0)
			return r;
	}
	return k < 0 ? k : json_next(&s->json, &end);
}

/* What it is, in the order of the format. */
static int check_bundle(const struct bundle *b, struct reason *why)
{
	int n = b->key + b->chain + b->sigstore;

	if (strcmp(b->type, SIGN_BUNDLE_TYPE) != 0)
		return reason_set(why, -EBADMSG, "media type: it is \"%.64s\", and not %s", b->type,
				  SIGN_BUNDLE_TYPE);
	if (n != 1 || (b->chain && b->n_certificates == 0))
		return reason_set(
			why, -EBADMSG,
			"verification material: there is %s; it needs one publicKey or one "
			"x509CertificateChain",
			n > 1 ? "more than one" : "none");
	if (b->sigstore)
		return reason_set(why, -EBADMSG,
				  "verification material: it is of sigstore, which is not checked "
				  "here; use cosign, or a signature with a key or certificates");
	if (!b->envelope)
		return reason_set(why, -EBADMSG, "envelope: there is no dsseEnvelope");
	if (strcmp(b->payload_type, SIGN_PAYLOAD_TYPE) != 0)
		return reason_set(why, -EBADMSG, "envelope: its payload is \"%.64s\", and not %s",
				  b->payload_type, SIGN_PAYLOAD_TYPE);
	if (b->payload.len == 0)
		return reason_set(why, -EBADMSG, "envelope: it has no payload");
	if (b->n_signatures != 1 || b->signature.len == 0)
		return reason_set(why, -EBADMSG, "envelope: it has %zu signatures, and not one",
				  b->signature.len ? b->n_signatures : 0);
	return 0;
}

int bundle_parse(const char *text, size_t n, struct bundle *ret, struct reason *why)
{
	static const char pem[] = "-----BEGIN ";
	struct scan *s;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (n >= sizeof(pem) - 1 && memcmp(text, pem, sizeof(pem) - 1) == 0)
		return reason_set(why, -EBADMSG,
				  "is a key or a certificate, not a signature, which "
				  "cartonctl sign makes");
	s = fields_scan(text, n);
	if (!s)
		return -ENOMEM;
	r = fields_fault(s, read_bundle(s, ret, why), why);
	scan_free(s);
	return r < 0 ? r : check_bundle(ret, why);
}

void bundle_finish(struct bundle *b)
{
	for (size_t i = 0; i < b->n_certificates; i++)
		buf_finish(&b->certificates[i]);
	buf_finish(&b->payload);
	buf_finish(&b->signature);
}
