/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer and the reader of a signature share, and the lives of their process and threads. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/util.h"
#include "sign/check.h"
#include "sign/write.h"

/* What base64_decode() returns for a text, of which it must make `want`. */
static ssize_t decode(const char *text, const char *want)
{
	char copy[64];
	ssize_t n;

	strcpy(copy, text);
	n = base64_decode(copy, strlen(text));
	if (n >= 0)
		assert_true((size_t)n == strlen(want) && memcmp(copy, want, (size_t)n) == 0);
	return n;
}

static void test_base64(void **state)
{
	static const char *const wrong[] = {
		"TQ",	"TQ=",	   "TQ===", "TR==",	"TWF=",	    "TWE",     "=",
		"==",	"====",	   "A===",  "TQ==TQ==", "T Q=",	    "TWFu\n",  "TWF-",
		"TWF_", "TWF\x80", "TW=u",  " TWFu",	"TQ\r\n==", "TWFuTWE", "TWF*",
	};

	(void)state;
	assert_int_equal(decode("", ""), 0);
	assert_int_equal(decode("TQ==", "M"), 1);
	assert_int_equal(decode("TWE=", "Ma"), 2);
	assert_int_equal(decode("TWFu", "Man"), 3);
	assert_int_equal(decode("+/+/TWFu", "\xfb\xff\xbfMan"), 6);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(decode(wrong[i], ""), -EBADMSG);
}

/* It reads back what is written, of each length. */
static void test_base64_both_ways(void **state)
{
	uint8_t data[200];
	char text[300];

	(void)state;
	for (size_t n = 0; n < sizeof(data); n++) {
		for (size_t i = 0; i < n; i++)
			data[i] = (uint8_t)(n * 31 + i * 7);
		base64_encode(data, n, text);
		assert_int_equal(base64_decode(text, strlen(text)), n);
		assert_memory_equal(text, data, n);
	}
}

static void test_encoding(void **state)
{
	char head[DSSE_PAE_SIZE];

	(void)state;
	assert_int_equal(dsse_pae(12345, head), 45);
	assert_string_equal(head, "DSSEv1 28 application/vnd.in-toto+json 12345 ");
	assert_true(dsse_pae(SIZE_MAX, head) < DSSE_PAE_SIZE);
}

static void test_left_out(void **state)
{
	static const char *const out[] = { ".git",	 ".git/config",	   ".github/a/b",
					   ".gitignore", ".gitattributes", "misc/model.sig",
					   "model.sig" };
	static const char *const in[] = { ".gitmodules", "sub/.git",	    ".git2/x",
					  "model.sig/x", "misc/model.sig2", "a" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(out); i++)
		assert_true(sign_leaves_out(out[i]));
	for (size_t i = 0; i < ARRAY_SIZE(in); i++)
		assert_false(sign_leaves_out(in[i]));
}

/* ---- a process that signs, and a thread that checks ---- */

/* OpenSSL draws random numbers for this curve, and so keeps a generator in each thread. */
static const char private_key[] =
	"-----BEGIN PRIVATE KEY-----\n"
	"MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDAKqm1NBGqC1U7iLItY\n"
	"wSrmrUiX15MHcGtXjwUCSaLFjyeVCnCyfeOAy0FI1yoGKLChZANiAASKPzvTpUcl\n"
	"JIYTCcjDZ0THITF6spal/bIEDxRg/s783lVBRFO5tjsOrok3ibE9H1UyYjshz6WD\n"
	"OBx2fkSBI6pWWB20v1V883izK46XhgG40gVS4AIIRP2EEIVUB4vtDMQ=\n"
	"-----END PRIVATE KEY-----\n";

static const char public_key[] =
	"-----BEGIN PUBLIC KEY-----\n"
	"MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEij8706VHJSSGEwnIw2dExyExerKWpf2y\n"
	"BA8UYP7O/N5VQURTubY7Dq6JN4mxPR9VMmI7Ic+lgzgcdn5EgSOqVlgdtL9VfPN4\n"
	"syuOl4YBuNIFUuACCET9hBCFVAeL7QzE\n"
	"-----END PUBLIC KEY-----\n";

static void write_file(const char *text, char path[32])
{
	int fd;

	strcpy(path, "/tmp/test_sign.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(pwrite_full(fd, text, strlen(text), 0), 0);
	close(fd);
}

/* The bundle of some text. The process that has signed it is gone. */
static void sign_text(const char *text, struct buf *ret)
{
	struct buf payload = { .data = (char *)text, .len = strlen(text) };
	uint8_t signature[SIGNER_SIGNATURE];
	char path[32];
	const struct signer_options options = { .key = path };
	struct signer s;
	size_t n;

	write_file(private_key, path);
	assert_int_equal(signer_start(&options, &s), 0);
	assert_int_equal(signer_sign(&s, payload.data, payload.len, signature, &n), 0);
	assert_int_equal(sign_write_bundle(&s, &payload, signature, n, ret), 0);
	signer_end(&s);
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	assert_int_equal(errno, ECHILD);
	unlink(path);
}

static void write_new_key(char path[32])
{
	EVP_PKEY *key = EVP_EC_gen("P-384");
	BIO *out = BIO_new(BIO_s_mem());
	char text[1024] = "";

	assert_true(key && out &&
		    PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1);
	assert_in_range(BIO_read(out, text, sizeof(text) - 1), 1, sizeof(text) - 2);
	write_file(text, path);
	BIO_free(out);
	EVP_PKEY_free(key);
}

/* The process that has the key signs with another one, as a provider might: that is not taken. */
static void test_another_signature(void **state)
{
	uint8_t signature[SIGNER_SIGNATURE];
	char path[32], other[32];
	struct signer s, t;
	size_t n;
	int fd;

	(void)state;
	write_file(private_key, path);
	write_new_key(other);
	assert_int_equal(signer_start(&(struct signer_options){ .key = path }, &s), 0);
	assert_int_equal(signer_start(&(struct signer_options){ .key = other }, &t), 0);
	fd = s.fd;
	s.fd = t.fd;
	assert_int_equal(signer_sign(&s, "text", 4, signature, &n), -EIO);
	s.fd = fd;
	assert_int_equal(signer_sign(&s, "text", 4, signature, &n), 0);
	/* its process has a copy of s.fd, which was open when it began */
	signer_end(&t);
	signer_end(&s);
	unlink(path);
	unlink(other);
}

struct reader {
	const struct trust *trust;
	struct buf text, payload;
	int r;
	sem_t done, end;
};

static void *read_bundle(void *arg)
{
	struct reader *t = arg;
	struct carton_signature by;
	struct reason why = { 0 };

	t->r = sign_read(t->trust, &t->text, &by, &t->payload, &why);
	sem_post(&t->done);
	while (sem_wait(&t->end) < 0)
		;
	return NULL;
}

/* What it has used of OpenSSL is still there when it ends. */
static void test_thread_outlives_trust(void **state)
{
	char path[32], *keys[] = { path, NULL };
	const struct carton_options options = { .verify_keys = keys };
	struct reader reader = { .r = -1 };
	struct trust *trust;
	pthread_t thread;

	(void)state;
	sign_text("text", &reader.text);
	write_file(public_key, path);
	assert_int_equal(trust_new(&options, &trust), 0);
	unlink(path);
	reader.trust = trust;
	sem_init(&reader.done, 0, 0);
	sem_init(&reader.end, 0, 0);
	assert_int_equal(thread_start(&thread, read_bundle, &reader), 0);
	while (sem_wait(&reader.done) < 0)
		;
	trust_free(trust);
	sem_post(&reader.end);
	pthread_join(thread, NULL);
	assert_int_equal(reader.r, 0);
	assert_int_equal(reader.payload.len, 4);
	buf_finish(&reader.payload);
	buf_finish(&reader.text);
	sem_destroy(&reader.done);
	sem_destroy(&reader.end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base64),
		cmocka_unit_test(test_base64_both_ways),
		cmocka_unit_test(test_encoding),
		cmocka_unit_test(test_left_out),
		cmocka_unit_test(test_another_signature),
		cmocka_unit_test(test_thread_outlives_trust),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
