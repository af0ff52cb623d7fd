/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The authorities that the user's environment names. A file is read whenever libcurl needs it. What
 * is in directories is read here, once: a confined process could not follow their symlinks, and
 * libcurl would look only for names that are hashes, where other programs take all files.
 */
#include <dirent.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/internal.h"

/* bytes of a file of a directory, files of it, and certificates together */
#define MAX_ONE (4 * MIB)
#define MAX_FILES 10000
#define MAX_ALL (16 * MIB)

/* ---- the certificates of a file ---- */

/*
 * Can a block of PEM be used? libcurl takes all blocks or none, so a broken one must not be among
 * them.
 */
static bool is_certificate(const char *name, const unsigned char *der, long n)
{
	static const char *const names[] = { PEM_STRING_X509, PEM_STRING_X509_OLD,
					     PEM_STRING_X509_TRUSTED };
	X509 *certificate = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(names) && !certificate; i++)
		if (strcmp(name, names[i]) == 0)
			certificate = d2i_X509(NULL, &der, n);
	X509_free(certificate);
	return certificate != NULL;
}

/* Adds the next block of a text if it is a certificate that can be used. 0 or -ENOMEM. */
static int add_block(BIO *from, BIO *to)
{
	char *name = NULL, *header = NULL;
	unsigned char *der = NULL;
	long n = 0;
	int r = 0;

	if (PEM_read_bio(from, &name, &header, &der, &n) != 1)
		return 0;
	if (is_certificate(name, der, n) && PEM_write_bio(to, name, "", der, n) <= 0)
		r = -ENOMEM;
	OPENSSL_free(name);
	OPENSSL_free(header);
	OPENSSL_free(der);
	return r;
}

/* Adds the certificates of a text, which may have keys and comments, too. */
static int add_certificates(const char *text, size_t n, struct buf *ret)
{
	BIO *from = BIO_new_mem_buf(text, (int)n), *to = BIO_new(BIO_s_mem());
	int r = from && to ? 0 : -ENOMEM;
	char *found;
	long len;

	/* a broken block is read over */
	for (size_t left = SIZE_MAX; r == 0 && BIO_ctrl_pending(from) < left;) {
		left = BIO_ctrl_pending(from);
		r = add_block(from, to);
	}
	ERR_clear_error();
	if (r == 0) {
		len = BIO_get_mem_data(to, &found);
		r = buf_add(ret, found, (size_t)len);
	}
	BIO_free(from);
	BIO_free(to);
	return r;
}

/* Adds those of a regular file; it may have none. */
static int add_file(int dir, const char *name, struct buf *ret)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int r = fd < 0 ? -errno : 0;
	char *text = NULL;
	struct stat st;

	if (r == 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
		r = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if (r == 0 && st.st_size > (off_t)MAX_ONE)
		r = -EFBIG;
	if (r == 0 && !(text = malloc((size_t)st.st_size + 1)))
		r = -ENOMEM;
	if (r == 0)
		r = pread_full(fd, text, (size_t)st.st_size, 0);
	if (r == 0)
		r = add_certificates(text, (size_t)st.st_size, ret);
	free(text);
	fd_close(fd);
	return r;
}

/* ---- directories ---- */

/* Is it a symlink to another name of the directory? c_rehash(1) makes one for each certificate. */
static bool is_link_beside(int dir, const char *name)
{
	char to[256];
	ssize_t n = readlinkat(dir, name, to, sizeof(to));

	return n > 0 && n < (ssize_t)sizeof(to) && !memchr(to, '/', (size_t)n) && to[0] != '.';
}

/* Adds what can be read in a directory. */
static int add_directory(const char *path, struct buf *ret)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	size_t n = 0;
	int r = dir ? 0 : -errno;

	while (r == 0 && (d = readdir(dir))) {
		if (d->d_name[0] == '.' || is_link_beside(dirfd(dir), d->d_name))
			continue;
		r = ++n > MAX_FILES ? -EFBIG : add_file(dirfd(dir), d->d_name, ret);
		/* what cannot be read, or is no such file, is left out */
		if (r != -ENOMEM && n <= MAX_FILES)
			r = ret->error;
	}
	if (dir)
		closedir(dir);
	return r;
}

/* Adds those of a list with colons. What cannot be read is left out; -ENODATA: that is all. */
static int add_directories(const char *list, struct buf *ret)
{
	int r = 0;

	for (size_t n; *list && r == 0; list += n + (list[n] == ':')) {
		char *path;

		n = strcspn(list, ":");
		path = strndup(list, n);
		r = path ? add_directory(path, ret) : -ENOMEM;
		r = r == -ENOMEM || r == -EFBIG ? r : 0;
		free(path);
	}
	return r == 0 && ret->len == 0 ? -ENODATA : r;
}

/* ---- the environment ---- */

/* What it says. */
struct named {
	const char *variable;
	const char *file;	 /* or NULL */
	const char *directory;	 /* or NULL */
	const char *directories; /* a list with colons; or NULL */
	char path[4096];	 /* of a configuration */
};

/* The value of a variable of the environment; NULL: it is not set, or empty. */
static const char *value_of(const char *name)
{
	const char *value = name ? getenv(name) : NULL;

	return value && *value ? value : NULL;
}

/* A path is of a file or of a directory of files. */
static void tell_directory(struct named *n)
{
	struct stat st;

	if (!n->file || stat(n->file, &st) < 0 || !S_ISDIR(st.st_mode))
		return;
	n->directory = n->file;
	n->file = NULL;
}

static bool find_in(const char *name, struct named *ret)
{
	*ret = (struct named){ .variable = name, .file = value_of(name) };
	if (name && strcmp(name, "SSL_CERT_FILE") == 0) {
		ret->directories = value_of("SSL_CERT_DIR");
		if (!ret->file)
			ret->variable = "SSL_CERT_DIR";
	} else {
		tell_directory(ret);
	}
	return ret->file || ret->directory || ret->directories;
}

/* What the configuration of the scheme names, whatever variables other programs have. */
static bool find_configured(const struct scheme *scheme, struct named *ret)
{
	*ret = (struct named){ .variable = "the configuration of the service", .file = ret->path };
	if (!scheme || !scheme->find_bundle || !scheme->find_bundle(ret->path, sizeof(ret->path)))
		return false;
	tell_directory(ret);
	return true;
}

static bool find(const char *source, struct named *ret)
{
	static const char *const common[] = { "CURL_CA_BUNDLE", "SSL_CERT_FILE",
					      "REQUESTS_CA_BUNDLE" };
	const struct scheme *scheme = scheme_of(source);
	bool found = find_in(scheme ? scheme->bundle : NULL, ret) || find_configured(scheme, ret);

	for (size_t i = 0; !found && i < ARRAY_SIZE(common); i++)
		found = find_in(common[i], ret);
	return found;
}

/* It is read again after the process has left its directory. */
static int absolute(const char *path, char **ret)
{
	char *here = NULL;
	int n;

	if (*path != '/' && !(here = getcwd(NULL, 0)))
		return -errno;
	n = asprintf(ret, "%s%s%s", here ? here : "", here ? "/" : "", path);
	free(here);
	if (n < 0)
		*ret = NULL;
	return n < 0 ? -ENOMEM : 0;
}

/* Failures are logged. */
static int read_all(const struct named *named, struct buf *ret)
{
	const char *at = named->file ? named->file : named->directory;
	int r = named->file ? add_file(AT_FDCWD, named->file, ret) : 0;

	if (r == 0 && named->directory)
		r = add_directory(named->directory, ret);
	if (r == 0 && at && ret->len == 0)
		r = -ENODATA;
	if (r == 0 && named->directories) {
		at = named->directories;
		r = add_directories(at, ret);
		/* as for others who know it, the system's authorities do not depend on it */
		if (r == -ENODATA) {
			carton_log(CARTON_LOG_WARNING, at,
				   "SSL_CERT_DIR has no certificate that can be read");
			r = 0;
		}
	}
	return r < 0 ? log_error(r, at, HTTP_BUNDLE_UNREAD, ", which is named by ", named->variable,
				 r == -ENODATA ? "it has no certificate" : strerror(-r)) :
		       0;
}

int http_bundle(const char *source, struct http_bundle *ret)
{
	struct named named;

	*ret = (struct http_bundle){ .text = buf_init(MAX_ALL) };
	if (!find(source, &named))
		return 0;
	ret->variable = named.variable;
	/* OpenSSL has two variables, each in place of one of its two defaults */
	ret->only = strcmp(named.variable, "SSL_CERT_DIR") != 0 &&
		    (strcmp(named.variable, "SSL_CERT_FILE") != 0 || named.directories);
	if (named.file && !named.directories)
		return absolute(named.file, &ret->file);
	return read_all(&named, &ret->text);
}

int http_bundle_file(const char *source, char **ret)
{
	struct named named;

	if (!find(source, &named) || !named.file || named.directories)
		return 0;
	return absolute(named.file, ret);
}

void http_bundle_finish(struct http_bundle *b)
{
	free(b->file);
	buf_finish(&b->text);
}
