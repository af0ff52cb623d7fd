/* SPDX-License-Identifier: Apache-2.0 */
#include "sign/signer.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"

/* ---- the other process ---- */

/* The next answer, whenever it comes: a user may be asked, or a token touched. */
static int receive(const struct signer *s, struct signer_answer *ret)
{
	ssize_t n;

	do
		n = recv(s->fd, ret, sizeof(*ret), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(*ret) || ret->n > sizeof(ret->bytes))
		return log_error(-EIO, s->key, "the process that has the key has ended");
	if (ret->r < 0)
		return log_error(ret->r, s->key, "%.*s", (int)ret->n, (const char *)ret->bytes);
	return 0;
}

static int start(const struct signer_options *options, struct signer *s)
{
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		signer_serve(options, fds[1]);
	}
	close(fds[1]);
	s->fd = fds[0];
	s->pid = pid;
	signer_show_key(options->key, s->key);
	return pid < 0 ? -EAGAIN : 0;
}

/* ---- the public key ---- */

static int read_public(struct signer *s)
{
	struct signer_answer a;
	BIO *in;
	int r = receive(s, &a);

	if (r < 0)
		return r;
	in = BIO_new_mem_buf(a.bytes, (int)a.n);
	s->open = in ? PEM_read_bio_PUBKEY(in, NULL, NULL, NULL) : NULL;
	BIO_free(in);
	s->digest = s->open ? sign_digest(s->open) : NULL;
	if (!s->digest)
		return log_error(-EINVAL, s->key, "has no public key that can be read");
	return sign_hint(s->open, s->hint);
}

static void note_readable(const char *key)
{
	struct stat st;

	if (stat(key, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & S_IROTH)
		carton_log(CARTON_LOG_WARNING, key,
			   "can be read by every user: chmod 600 makes the key yours alone");
}

int signer_start(const struct signer_options *options, struct signer *ret)
{
	struct signer s = { .fd = -1 };
	int r = start(options, &s);

	if (r == 0)
		r = read_public(&s);
	if (r == 0 && options->cert)
		r = signer_read_chain(options->cert, &s);
	if (r < 0) {
		signer_end(&s);
		return r;
	}
	note_readable(options->key);
	*ret = s;
	return 0;
}

/* ---- signing ---- */

/* The digest of the DSSE encoding. */
static int hash(const struct signer *s, const void *payload, size_t n, uint8_t ret[EVP_MAX_MD_SIZE],
		unsigned *ret_n)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	char head[DSSE_PAE_SIZE];
	bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_get_digestbyname(s->digest), NULL) == 1 &&
		  EVP_DigestUpdate(ctx, head, dsse_pae(n, head)) == 1 &&
		  EVP_DigestUpdate(ctx, payload, n) == 1 &&
		  EVP_DigestFinal_ex(ctx, ret, ret_n) == 1;

	EVP_MD_CTX_free(ctx);
	return ok ? 0 : -EIO;
}

/* Verifies the new signature: an OpenSSL provider may have used another key, or be faulty. */
static int check(const struct signer *s, const struct signer_answer *a, const uint8_t *digest,
		 size_t n)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_pkey(NULL, s->open, NULL);
	bool ok = ctx && a->n <= SIGNER_SIGNATURE && EVP_PKEY_verify_init(ctx) == 1 &&
		  EVP_PKEY_verify(ctx, a->bytes, a->n, digest, n) == 1;

	EVP_PKEY_CTX_free(ctx);
	return ok ? 0 : log_error(-EIO, s->key, "has made a signature that is not its own");
}

int signer_sign(struct signer *s, const void *payload, size_t n,
		uint8_t ret_signature[SIGNER_SIGNATURE], size_t *ret_n)
{
	uint8_t digest[EVP_MAX_MD_SIZE];
	struct signer_answer a;
	unsigned len = 0;
	int r = hash(s, payload, n, digest, &len);

	if (r == 0 && send(s->fd, digest, len, MSG_NOSIGNAL) < 0)
		r = log_error(-EIO, s->key, "the process that has the key has ended");
	if (r == 0)
		r = receive(s, &a);
	if (r == 0)
		r = check(s, &a, digest, len);
	if (r < 0)
		return r;
	memcpy(ret_signature, a.bytes, a.n);
	*ret_n = a.n;
	return 0;
}

void signer_end(struct signer *s)
{
	fd_close(s->fd);
	s->fd = -1;
	/* it waits for a digest or has ended: it ends now */
	while (s->pid > 0 && waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
	s->pid = 0;
	EVP_PKEY_free(s->open);
	for (size_t i = 0; i < s->n_chain; i++)
		OPENSSL_free(s->chain[i].der);
	s->n_chain = 0;
}
