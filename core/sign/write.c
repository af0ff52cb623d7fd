/* SPDX-License-Identifier: Apache-2.0 */
#include "sign/write.h"

#include <stdlib.h>

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct sign_file *)a)->name, ((const struct sign_file *)b)->name);
}

/* The sha256 of all digests in order (section 6.5.1). */
static int hash_digests(const struct sign_list *l, char ret[2 * SHA256_SIZE + 1])
{
	uint8_t hash[SHA256_SIZE];
	struct sha256 *s;
	int r = sha256_new(&s);

	if (r < 0)
		return r;
	for (size_t i = 0; i < l->n && r == 0; i++)
		r = sha256_update(s, l->files[i].sha256, SHA256_SIZE);
	if (r == 0)
		r = sha256_final(s, hash);
	sha256_free(s);
	if (r == 0)
		hex_encode(hash, SHA256_SIZE, ret);
	return r;
}

static void add_string(struct buf *b, const char *s)
{
	buf_add_json(b, s, strlen(s));
}

static void add_files(const struct sign_list *l, struct buf *b)
{
	char hex[2 * SHA256_SIZE + 1];

	for (size_t i = 0; i < l->n; i++) {
		hex_encode(l->files[i].sha256, SHA256_SIZE, hex);
		buf_adds(b, i ? ",{\"name\":" : "{\"name\":");
		add_string(b, l->files[i].name);
		buf_addf(b, ",\"digest\":\"%s\",\"algorithm\":\"sha256\"}", hex);
	}
}

static void add_ignored(const struct sign_list *l, struct buf *b)
{
	for (size_t i = 0; sign_left_out[i]; i++) {
		buf_adds(b, i ? "," : "");
		add_string(b, sign_left_out[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(l->ignored) && l->ignored[i]; i++) {
		buf_addc(b, ',');
		add_string(b, l->ignored[i]);
	}
}

int sign_write_statement(struct sign_list *l, struct buf *ret)
{
	char root[2 * SHA256_SIZE + 1];
	int r;

	*ret = buf_init(MAX_SIGNATURE);
	qsort(l->files, l->n, sizeof(*l->files), by_name);
	r = hash_digests(l, root);
	if (r < 0)
		return r;
	buf_adds(ret, "{\"_type\":\"" SIGN_STATEMENT_TYPE "\",\"subject\":[{\"name\":");
	add_string(ret, l->model);
	buf_addf(ret, ",\"digest\":{\"sha256\":\"%s\"}}],", root);
	buf_adds(ret,
		 "\"predicateType\":\"" SIGN_PREDICATE_TYPE "\",\"predicate\":{\"resources\":[");
	add_files(l, ret);
	buf_addf(ret,
		 "],\"serialization\":{\"method\":\"files\",\"hash_type\":\"sha256\","
		 "\"allow_symlinks\":%s,\"ignore_paths\":[",
		 l->symlinks ? "true" : "false");
	add_ignored(l, ret);
	return buf_adds(ret, "]}}}");
}

static int add_base64(struct buf *b, const void *data, size_t n)
{
	size_t len = 4 * ((n + 2) / 3);
	int r = buf_reserve(b, len);

	if (r < 0)
		return r;
	base64_encode(data, n, b->data + b->len);
	b->len += len;
	return 0;
}

int sign_write_bundle(const struct signer *by, const struct buf *statement, const void *signature,
		      size_t n, struct buf *ret)
{
	*ret = buf_init(MAX_SIGNATURE);
	buf_adds(ret, "{\"mediaType\":\"" SIGN_BUNDLE_TYPE "\",\"verificationMaterial\":{");
	if (by->n_chain)
		buf_adds(ret, "\"x509CertificateChain\":{\"certificates\":[");
	else
		buf_addf(ret, "\"publicKey\":{\"hint\":\"%s\"}", by->hint);
	for (size_t i = 0; i < by->n_chain; i++) {
		buf_adds(ret, i ? ",{\"rawBytes\":\"" : "{\"rawBytes\":\"");
		add_base64(ret, by->chain[i].der, by->chain[i].n);
		buf_adds(ret, "\"}");
	}
	buf_adds(ret, by->n_chain ? "]},\"tlogEntries\":[]},\"dsseEnvelope\":{\"payload\":\"" :
				    ",\"tlogEntries\":[]},\"dsseEnvelope\":{\"payload\":\"");
	add_base64(ret, statement->data, statement->len);
	buf_adds(ret, "\",\"payloadType\":\"" SIGN_PAYLOAD_TYPE "\",\"signatures\":[{\"sig\":\"");
	add_base64(ret, signature, n);
	return buf_adds(ret, "\",\"keyid\":\"\"}]}}\n");
}
