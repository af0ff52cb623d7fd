/* SPDX-License-Identifier: Apache-2.0 */
/* The process that has the private key. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/store.h>
#include <openssl/ui.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "sign/signer.h"

/* The context of give_passphrase(). */
struct asking {
	const struct signer_options *options;
	const char *fault; /* of the passphrase; NULL: none was needed */
};

char *signer_show_key(const char *key, char ret[SIGNER_NAME])
{
	snprintf(ret, SIGNER_NAME, "%.*s", (int)strcspn(key, "?"), key);
	return ret;
}

static int refuse(struct signer_answer *a, int r, const char *what)
{
	a->r = r;
	a->n = (uint32_t)snprintf((char *)a->bytes, sizeof(a->bytes), "%s", what);
	return r;
}

static const char *openssl_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return reason ? reason : "it found nothing";
}

/* ---- the passphrase ---- */

static int read_line(const char *path, char *ret, int n)
{
	FILE *f = fopen(path, "re");
	bool got = f && fgets(ret, n, f);

	if (f)
		fclose(f);
	if (!got)
		return -1;
	ret[strcspn(ret, "\r\n")] = '\0';
	return (int)strlen(ret);
}

/* A pem_password_cb. */
static int give_passphrase(char *ret, int n, int writing, void *ctx)
{
	struct asking *k = ctx;
	const struct signer_options *o = k->options;
	char prompt[SIGNER_NAME + 32], shown[SIGNER_NAME];
	int tty, len;

	(void)writing;
	if (o->passphrase_file) {
		len = read_line(o->passphrase_file, ret, n);
		k->fault = len < 0 ? "needs a passphrase, and the file that was named has none" :
				     "cannot be read with this passphrase";
		return len;
	}
	tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
	fd_close(tty);
	k->fault = tty < 0 ? "needs a passphrase, and there is no terminal to ask at: name a file "
			     "that has it, --passphrase-file=FILE" :
			     "cannot be read with this passphrase";
	snprintf(prompt, sizeof(prompt), "Passphrase of %s: ", signer_show_key(o->key, shown));
	if (tty < 0 || EVP_read_pw_string_min(ret, 0, n, prompt, 0) != 0)
		return -1;
	return (int)strlen(ret);
}

/* ---- the key ---- */

/* The first private key there. NULL: there is none, or OpenSSL's queue says why. */
static EVP_PKEY *load(struct asking *k)
{
	UI_METHOD *ui = UI_UTIL_wrap_read_pem_callback(give_passphrase, 0);
	OSSL_STORE_CTX *store = OSSL_STORE_open(k->options->key, ui, k, NULL, NULL);
	EVP_PKEY *key = NULL;

	if (store)
		OSSL_STORE_expect(store, OSSL_STORE_INFO_PKEY);
	while (store && !key && !OSSL_STORE_eof(store) && !OSSL_STORE_error(store)) {
		OSSL_STORE_INFO *info = OSSL_STORE_load(store);

		if (info && OSSL_STORE_INFO_get_type(info) == OSSL_STORE_INFO_PKEY)
			key = OSSL_STORE_INFO_get1_PKEY(info);
		OSSL_STORE_INFO_free(info);
	}
	OSSL_STORE_close(store);
	UI_destroy_method(ui);
	return key;
}

/* A file is checked first: OpenSSL says of one that is not there that it knows no such scheme. */
static int check_file(const char *key, struct signer_answer *a)
{
	int fd, r = 0;

	if (strchr(key, ':'))
		return 0;
	fd = open(key, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		r = refuse(a, -errno, strerror(errno));
	fd_close(fd);
	return r;
}

static EVP_PKEY *open_key(const struct signer_options *o, struct signer_answer *a)
{
	struct asking k = { o, NULL };
	EVP_PKEY *key;
	char text[256];

	if (check_file(o->key, a) < 0)
		return NULL;
	ERR_clear_error();
	key = load(&k);
	if (key)
		return key;
	snprintf(text, sizeof(text), "has no private key that OpenSSL can read (%s)",
		 openssl_reason());
	refuse(a, -EINVAL, k.fault ? k.fault : text);
	return NULL;
}

static int put_public(EVP_PKEY *key, struct signer_answer *a)
{
	BIO *out = BIO_new(BIO_s_mem());
	char *text;
	long n;

	if (!sign_digest(key))
		refuse(a, -EINVAL,
		       "is no key on P-256, P-384 or P-521; make one: "
		       "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256");
	else if (!out || PEM_write_bio_PUBKEY(out, key) != 1 ||
		 (n = BIO_get_mem_data(out, &text)) > (long)sizeof(a->bytes))
		refuse(a, -EINVAL, "does not give its public key");
	else
		memcpy(a->bytes, text, a->n = (uint32_t)n);
	BIO_free(out);
	return a->r;
}

static void sign(EVP_PKEY *key, const uint8_t *digest, size_t n, struct signer_answer *a)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
	size_t len = sizeof(a->bytes);

	ERR_clear_error();
	if (ctx && EVP_PKEY_sign_init(ctx) == 1 &&
	    EVP_PKEY_sign(ctx, a->bytes, &len, digest, n) == 1)
		a->n = (uint32_t)len;
	else
		refuse(a, -EIO, openssl_reason());
	EVP_PKEY_CTX_free(ctx);
}

_Noreturn void signer_serve(const struct signer_options *options, int fd)
{
	struct signer_answer a = { 0 };
	uint8_t digest[64];
	EVP_PKEY *key;
	ssize_t n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	/* the user's openssl.cnf, which may name providers */
	OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
	key = open_key(options, &a);
	if (key)
		put_public(key, &a);
	while (send(fd, &a, sizeof(a), MSG_NOSIGNAL) >= 0 && a.r == 0 &&
	       (n = recv(fd, digest, sizeof(digest), 0)) > 0) {
		a = (struct signer_answer){ 0 };
		sign(key, digest, (size_t)n, &a);
	}
	_exit(0);
}
