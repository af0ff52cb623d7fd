/* SPDX-License-Identifier: Apache-2.0 */
/* The certificates that go into a signature, checked as a verifier will. */
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "sign/signer.h"

#define SOON (30 * 86400) /* seconds before its end that a certificate is said to end */

/* Seconds since 1970. */
static int64_t time_of(const ASN1_TIME *t)
{
	struct tm tm;

	return ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static char *show_day(int64_t at, char ret[16])
{
	time_t t = (time_t)at;
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(ret, 16, "%Y-%m-%d", &tm);
	return ret;
}

static void read_subject(X509 *leaf, struct signer *s)
{
	BIO *out = BIO_new(BIO_s_mem());
	char *text = NULL;
	long n = 0;

	if (out && X509_NAME_print_ex(out, X509_get_subject_name(leaf), 0, XN_FLAG_RFC2253) >= 0)
		n = BIO_get_mem_data(out, &text);
	snprintf(s->by, sizeof(s->by), "%.*s", (int)MIN(n, SIGNER_BY - 1), text ? text : "");
	BIO_free(out);
}

static int check_dates(X509 *cert, const char *file, size_t i)
{
	int64_t from = time_of(X509_get0_notBefore(cert)), to = time_of(X509_get0_notAfter(cert));
	int64_t now = (int64_t)time(NULL);
	char day[16];

	if (now >= from && now <= to)
		return 0;
	return log_error(-EINVAL, file, "certificate %zu %s on %s", i + 1,
			 now < from ? "is valid only from" : "has ended",
			 show_day(now < from ? from : to, day));
}

static int check_leaf(X509 *leaf, const char *file, struct signer *s)
{
	uint32_t usage = X509_get_key_usage(leaf);
	char day[16];

	if (X509_check_purpose(leaf, -1, 0) != 1)
		return log_error(-EINVAL, file, "certificate 1 is malformed");
	if (EVP_PKEY_eq(X509_get0_pubkey(leaf), s->open) != 1)
		return log_error(-EINVAL, file, "its first certificate is not that of the key %s",
				 s->key);
	if (usage == UINT32_MAX || !(usage & KU_DIGITAL_SIGNATURE))
		return log_error(-EINVAL, file,
				 "the certificate of the key has no key usage digitalSignature: "
				 "no verifier would accept it");
	s->ends = time_of(X509_get0_notAfter(leaf));
	read_subject(leaf, s);
	if (s->ends - (int64_t)time(NULL) < SOON)
		carton_log(CARTON_LOG_WARNING, file,
			   "the certificate of the key ends on %s: from then on nobody can verify "
			   "the signature",
			   show_day(s->ends, day));
	return 0;
}

/* Takes the certificate that follows `before` (NULL: it is the first). */
static int take(X509 *cert, X509 *before, const char *file, struct signer *s)
{
	struct signer_cert *c = &s->chain[s->n_chain];
	int n, r = check_dates(cert, file, s->n_chain);

	if (r == 0 && before && X509_check_issued(cert, before) != X509_V_OK)
		r = log_error(-EINVAL, file,
			      "certificate %zu has not signed certificate %zu: that of the key "
			      "comes first, then each that has signed the one before",
			      s->n_chain + 1, s->n_chain);
	if (r == 0 && !before)
		r = check_leaf(cert, file, s);
	if (r < 0)
		return r;
	n = i2d_X509(cert, &c->der);
	if (n < 0)
		return -ENOMEM;
	c->n = (size_t)n;
	s->n_chain++;
	return 0;
}

int signer_read_chain(const char *file, struct signer *s)
{
	FILE *f = fopen(file, "re");
	X509 *cert, *before = NULL;
	int r = 0;

	if (!f)
		return log_error(-errno, file, "cannot open: %s", strerror(errno));
	while (r == 0 && (cert = PEM_read_X509(f, NULL, NULL, NULL))) {
		r = s->n_chain < MAX_CERTIFICATES ?
			    take(cert, before, file, s) :
			    log_error(-EINVAL, file, "has more than %d certificates",
				      MAX_CERTIFICATES);
		X509_free(before);
		before = cert;
	}
	X509_free(before);
	fclose(f);
	if (r == 0 && !s->n_chain)
		r = log_error(-EINVAL, file, "has no certificate (PEM)");
	return r;
}
