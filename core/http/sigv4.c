/* SPDX-License-Identifier: Apache-2.0 */
#include "http/sigv4.h"

#include <stdio.h>
#include <time.h>

#include "base/digest.h"
#include "base/util.h"

#define MAX_TEXT (HTTP_MAX_URL + AWS_MAX_TOKEN + 4096)
#define PAYLOAD "UNSIGNED-PAYLOAD"
#define NAMES "host;x-amz-content-sha256;x-amz-date"
#define PAYER "x-amz-request-payer"
#define TOKEN "x-amz-security-token"

/* The value of Host, as libcurl sends it. */
static int add_host(struct buf *b, const struct http_target *t)
{
	bool v6 = strchr(t->host, ':');
	int n = (int)strcspn(t->host, "%"); /* without the zone */
	int r = buf_addf(b, v6 ? "[%.*s]" : "%.*s", n, t->host);

	if (r == 0 && t->port != (t->https ? 443 : 80))
		r = buf_addf(b, ":%u", t->port);
	return r;
}

/* What is signed of the request, as one hash. */
static int request_hash(const struct sigv4 *s, const char *time, char ret[2 * SHA256_SIZE + 1])
{
	const char *path = strstr(s->target->url, "://") + 3, *query;
	struct buf b = buf_init(MAX_TEXT);
	uint8_t hash[SHA256_SIZE];
	int r;

	path += strcspn(path, "/?");
	query = path + strcspn(path, "?");
	r = buf_addf(&b, "%s\n%.*s\n%s\nhost:", s->method, (int)(query - path), path,
		     *query ? query + 1 : "");
	if (r == 0)
		r = add_host(&b, s->target);
	if (r == 0)
		r = buf_addf(&b, "\nx-amz-content-sha256:" PAYLOAD "\nx-amz-date:%s\n", time);
	if (r == 0 && s->requester_pays)
		r = buf_adds(&b, PAYER ":requester\n");
	if (r == 0 && *s->keys->token)
		r = buf_addf(&b, TOKEN ":%s\n", s->keys->token);
	if (r == 0)
		r = buf_addf(&b, "\n" NAMES "%s%s\n" PAYLOAD, s->requester_pays ? ";" PAYER : "",
			     *s->keys->token ? ";" TOKEN : "");
	if (r == 0)
		r = sha256_mem(b.data, b.len, hash);
	if (r == 0)
		hex_encode(hash, SHA256_SIZE, ret);
	if (b.data)
		explicit_bzero(b.data, b.cap);
	buf_finish(&b);
	return r;
}

/* The key of the day for the region: a chain of HMACs. */
static int signing_key(const struct sigv4 *s, const char *time, uint8_t ret[SHA256_SIZE])
{
	const char *const parts[] = { s->region, "s3", "aws4_request" };
	char first[AWS_MAX_KEY + 4];
	int r, n = snprintf(first, sizeof(first), "AWS4%s", s->keys->secret);

	r = hmac_sha256(first, (size_t)n, time, 8, ret);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(parts); i++)
		r = hmac_sha256(ret, SHA256_SIZE, parts[i], strlen(parts[i]), ret);
	explicit_bzero(first, sizeof(first));
	return r;
}

int sigv4_headers(const struct sigv4 *s, struct buf *ret)
{
	char time[32] = "", hash[2 * SHA256_SIZE + 1], mac_text[2 * SHA256_SIZE + 1];
	char scope[128], text[512];
	uint8_t key[SHA256_SIZE], mac[SHA256_SIZE];
	time_t when = (time_t)s->when;
	struct tm tm;
	int r;

	*ret = buf_init(MAX_TEXT);
	if (!gmtime_r(&when, &tm) || strftime(time, sizeof(time), "%Y%m%dT%H%M%SZ", &tm) != 16)
		return -EFBIG;
	snprintf(scope, sizeof(scope), "%.8s/%s/s3/aws4_request", time, s->region);
	r = request_hash(s, time, hash);
	if (r == 0)
		r = signing_key(s, time, key);
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", time, scope, hash);
	r = hmac_sha256(key, sizeof(key), text, strlen(text), mac);
	explicit_bzero(key, sizeof(key));
	if (r < 0)
		return r;
	hex_encode(mac, sizeof(mac), mac_text);
	r = buf_addf(ret, "x-amz-date: %s\nx-amz-content-sha256: " PAYLOAD "\n", time);
	if (r == 0 && s->requester_pays)
		r = buf_adds(ret, PAYER ": requester\n");
	if (r == 0 && *s->keys->token)
		r = buf_addf(ret, TOKEN ": %s\n", s->keys->token);
	if (r == 0)
		r = buf_addf(
			ret,
			"Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=" NAMES
			"%s%s, Signature=%s",
			s->keys->id, scope, s->requester_pays ? ";" PAYER : "",
			*s->keys->token ? ";" TOKEN : "", mac_text);
	return r;
}
