/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a signature (behind a `b`), which is then checked with a key and an authority, as far
 * as it gets; or as its statement (behind any other byte), as if the signature were right: the
 * lines of MANIFEST that are kept are listed in it, each with its hash, and no line is lost.
 */
#include <stdlib.h>
#include <string.h>

#include "sign/internal.h"

#include "fuzz.h"

static const char key[] = "-----BEGIN PUBLIC KEY-----\n"
			  "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEyAdMreR2QT9Pmg7RRYfDBD2GF55V\n"
			  "Kl+SisPsVaNabC40H3dYNo3UYV1NlXVlemiClCH8jFTFXKx4YpPnQej+Nw==\n"
			  "-----END PUBLIC KEY-----\n";

static const char authority[] = "-----BEGIN CERTIFICATE-----\n"
				"MIIBhTCCASugAwIBAgIUbwcEobyljCVoqTjdoI586zzMaJYwCgYIKoZIzj0EAwIw\n"
				"DzENMAsGA1UEAwwEcm9vdDAgFw0yNjExMjMyMTM5MjBaGA8yMTI2MTAzMDIxMzky\n"
				"MFowDzENMAsGA1UEAwwEcm9vdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFCQ\n"
				"EfzSLTPHikUU8ElHIxrccpU+j+AOaNgOoLKDMRc3ZHV/wg1R+oOXrEjQkGY8cD4k\n"
				"9CBJ3eGutmCNDGrLNUujYzBhMB0GA1UdDgQWBBTV9K95+a+OM5hIeA8iPGrdiSvq\n"
				"LjAfBgNVHSMEGDAWgBTV9K95+a+OM5hIeA8iPGrdiSvqLjAPBgNVHRMBAf8EBTAD\n"
				"AQH/MA4GA1UdDwEB/wQEAwICBDAKBggqhkjOPQQDAgNIADBFAiAqEK4r7IuN9nNY\n"
				"mLXNsXlrwg5psPDiklLQzgzcXaIFLQIhAL7lG7Zl1oAz++nPN2856S+wWhQnUD1m\n"
				"1v3z4YdskBme\n"
				"-----END CERTIFICATE-----\n";

static const char manifest[] =
	"carton.toml=1111111111111111111111111111111111111111111111111111111111111111\n"
	"misc/model.sig=5555555555555555555555555555555555555555555555555555555555555555\n"
	"model/a=2222222222222222222222222222222222222222222222222222222222222222\n"
	"model/a.b=3333333333333333333333333333333333333333333333333333333333333333\n"
	"model/d/e=4444444444444444444444444444444444444444444444444444444444444444\n";

static const struct trust *user(void)
{
	static struct trust *t;
	char paths[2][32];
	char *keys[] = { paths[0], NULL }, *authorities[] = { paths[1], NULL };
	struct carton_options o = { .verify_keys = keys,
				    .verify_cas = authorities,
				    .signer = "CN=Models,O=Acme" };

	if (t)
		return t;
	fuzz_file(key, strlen(key), paths[0]);
	fuzz_file(authority, strlen(authority), paths[1]);
	CHECK(trust_new(&o, &t) == 0 && t);
	return t;
}

static void check_bundle(const char *text, size_t n)
{
	struct carton_signature by = { .checked = false };
	struct reason why = { 0 };
	struct bundle b;

	if (bundle_parse(text, n, &b, &why) == 0) {
		CHECK(b.key != b.chain && !b.sigstore && b.payload.len && b.signature.len);
		CHECK(trust_check(user(), &b, &by, &why) < 0 ? *why.text != 0 : *by.by != 0);
	} else {
		CHECK(*why.text);
	}
	bundle_finish(&b);
}

static void check_statement(const char *text, size_t n)
{
	struct reason why = { 0 };
	struct manifest *m;
	size_t all;

	CHECK(manifest_parse(strdup(manifest), strlen(manifest), NULL, &m) == 0);
	all = m->n;
	if (statement_check(text, n, m, &why) < 0) {
		CHECK(*why.text && m->n == all && m->left_out == 0);
	} else {
		CHECK(m->n > 0 && m->n + m->left_out == all);
		for (size_t i = 0; i < m->n && !memchr(text, '\\', n); i++)
			CHECK(memmem(text, n, manifest_hex(manifest_path(m, i)), 64));
	}
	manifest_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *text = (const char *)data + 1;

	if (n > 0 && data[0] == 'b')
		check_bundle(text, n - 1);
	else if (n > 0)
		check_statement(text, n - 1);
	return 0;
}
