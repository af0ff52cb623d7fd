/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/util.h"
#include "cache/internal.h"

#define NAME "cache.key"
#define OF_ROOT "/var/lib/cartonfs"
#define TEXT_SIZE (2 * KEY_SIZE + 1) /* the digits and a newline */
#define FLAGS (O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

/* ---- where it is ---- */

/* The default directory, malloc'ed. */
static int default_dir(char **ret)
{
	const char *xdg = secure_getenv("XDG_STATE_HOME");

	if (geteuid() != 0 || (xdg && *xdg == '/'))
		return cache_user_dir("XDG_STATE_HOME", ".local/state", ret);
	*ret = strdup(OF_ROOT);
	return *ret ? 0 : -ENOMEM;
}

/* Splits the path `file` into the path of its directory, malloc'ed, and its last component. */
static int split(const char *file, char **ret_dir, const char **ret_name)
{
	const char *slash = strrchr(file, '/');

	*ret_name = slash ? slash + 1 : file;
	*ret_dir = slash ? strndup(file, slash == file ? 1 : (size_t)(slash - file)) : strdup(".");
	return *ret_dir ? 0 : -ENOMEM;
}

/* Opens the directory, and sets the path of the file in it. */
static int open_dir(const char *dir, const char *name, struct key_file *ret)
{
	char *real;
	int r = 0;

	ret->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	real = ret->dir < 0 ? NULL : realpath(dir, NULL);
	if (!real)
		return -errno;
	free(ret->path);
	ret->path = NULL;
	if (asprintf(&ret->path, "%s%s%s", real, strcmp(real, "/") == 0 ? "" : "/", name) < 0) {
		ret->path = NULL;
		r = -ENOMEM;
	}
	free(real);
	return r;
}

/* Makes the default directory. 0; or -errno, and ret_why says why. */
static int make_dir(char *dir, char ret_why[OWN_WHY])
{
	char *above = NULL;
	uid_t owner;
	int r = cache_check_home(dir, &above, &owner);

	if (r == -EPERM)
		snprintf(ret_why, OWN_WHY,
			 "cannot be made: root makes no directory in one of uid %u",
			 (unsigned)owner);
	free(above);
	return r == 0 ? cache_make_dirs(dir) : r;
}

int key_file_find(const char *file, struct key_file *ret, char ret_why[OWN_WHY])
{
	const char *name = NAME;
	char *dir = NULL;
	int r;

	*ret = (struct key_file){ .dir = -1 };
	*ret_why = '\0';
	r = file ? split(file, &dir, &name) : default_dir(&dir);
	if (r == 0 && !file)
		r = make_dir(dir, ret_why);
	if (r == 0)
		r = open_dir(dir, name, ret);
	if (r < 0 && dir && !ret->path && asprintf(&ret->path, "%s/%s", dir, name) < 0)
		ret->path = NULL;
	free(dir);
	if (r < 0 && !*ret_why)
		snprintf(ret_why, OWN_WHY, "cannot be made: %s", strerror(-r));
	return r;
}

void key_file_finish(struct key_file *k)
{
	fd_close(k->dir);
	free(k->path);
}

bool key_file_is_below(const struct key_file *k, const char *directory)
{
	char *real = realpath(directory, NULL);
	size_t n = real ? strlen(real) : 0;
	bool below;

	if (!real)
		return false;
	/* "/" ends with a slash, other paths do not */
	n -= real[n - 1] == '/';
	below = strncmp(k->path, real, n) == 0 && k->path[n] == '/';
	free(real);
	return below;
}

/* ---- reading ---- */

/*
 * Refuses a key that others may read: they could make seals and notes that are believed. Root may
 * use the key of the user who owns its directory. 0; -EBADMSG; or -errno, and ret_why says why.
 */
static int check(const struct key_file *k, int fd, char ret_why[OWN_WHY])
{
	struct stat st, above;

	if (fstat(fd, &st) < 0 || fstat(k->dir, &above) < 0) {
		snprintf(ret_why, OWN_WHY, "cannot be examined: %s", strerror(errno));
		return -errno;
	}
	if (!S_ISREG(st.st_mode) || st.st_size != TEXT_SIZE)
		return -EBADMSG;
	if (st.st_uid != geteuid() && !(geteuid() == 0 && st.st_uid == above.st_uid)) {
		snprintf(ret_why, OWN_WHY, "belongs to uid %u, not to uid %u of this process",
			 (unsigned)st.st_uid, (unsigned)geteuid());
		return -EPERM;
	}
	if (st.st_mode & 077) {
		snprintf(ret_why, OWN_WHY, "has mode %04o, so others may read it: chmod 600 helps",
			 (unsigned)(st.st_mode & 07777));
		return -EPERM;
	}
	return 0;
}

/* 0; -ENOENT: there is no file; or -errno, and ret_why says why. */
static int read_key(const struct key_file *k, uint8_t ret_key[KEY_SIZE], char ret_why[OWN_WHY])
{
	char text[TEXT_SIZE];
	int fd = openat(k->dir, strrchr(k->path, '/') + 1, O_RDONLY | FLAGS);
	int r = fd < 0 ? -errno : check(k, fd, ret_why);

	if (fd < 0 && r != -ENOENT)
		snprintf(ret_why, OWN_WHY, "cannot be read: %s%s", strerror(-r),
			 r == -ELOOP ? " (it has to be the file, not a link to it)" : "");
	if (r == 0 && (r = pread_full(fd, text, sizeof(text), 0)) < 0)
		snprintf(ret_why, OWN_WHY, "cannot be read: %s", strerror(-r));
	if (r == 0 && text[TEXT_SIZE - 1] != '\n')
		r = -EBADMSG;
	text[TEXT_SIZE - 1] = '\0';
	if (r == 0 && !hex_decode(text, KEY_SIZE, ret_key))
		r = -EBADMSG;
	if (r == -EBADMSG)
		snprintf(ret_why, OWN_WHY, "is no such key; a file that is not there is made");
	explicit_bzero(text, sizeof(text));
	fd_close(fd);
	return r;
}

/* ---- making ---- */

/* Writes a new key to the file, for the owner of its directory. */
static int write_key(const struct key_file *k, int fd)
{
	char text[TEXT_SIZE + 1];
	uint8_t key[KEY_SIZE];
	struct stat above;
	int r = getrandom(key, sizeof(key), 0) == sizeof(key) ? 0 : -EIO;

	hex_encode(key, KEY_SIZE, text);
	text[TEXT_SIZE - 1] = '\n';
	if (r == 0)
		r = pwrite_full(fd, text, TEXT_SIZE, 0);
	explicit_bzero(key, sizeof(key));
	explicit_bzero(text, sizeof(text));
	/* the umask may have taken rights away */
	if (r == 0 && fchmod(fd, 0600) < 0)
		r = -errno;
	if (r == 0 && geteuid() == 0 &&
	    (fstat(k->dir, &above) < 0 ||
	     (above.st_uid != 0 && fchown(fd, above.st_uid, above.st_gid) < 0)))
		r = -errno;
	/* after a power cut, too, no file has the name without its bytes */
	return r == 0 && fsync(fd) < 0 ? -errno : r;
}

/* Gives the file its name, unless another process was faster: -EEXIST. */
static int name_it(const struct key_file *k, const char *tmp)
{
	const char *name = strrchr(k->path, '/') + 1;

	if (renameat2(k->dir, tmp, k->dir, name, RENAME_NOREPLACE) == 0)
		return 0;
	/* a file system without RENAME_NOREPLACE, such as NFS */
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	return linkat(k->dir, tmp, k->dir, name, 0) < 0 ? -errno : 0;
}

static int make_key(const struct key_file *k)
{
	uint8_t id[8];
	char hex[2 * sizeof(id) + 1], tmp[sizeof(hex) + 5];
	int fd, r;

	if (getrandom(id, sizeof(id), 0) != sizeof(id))
		return -EIO;
	hex_encode(id, sizeof(id), hex);
	snprintf(tmp, sizeof(tmp), ".key.%.*s", (int)sizeof(hex) - 1, hex);
	fd = openat(k->dir, tmp, O_WRONLY | O_CREAT | O_EXCL | FLAGS, 0600);
	if (fd < 0)
		return -errno;
	r = write_key(k, fd);
	if (r == 0)
		r = name_it(k, tmp);
	unlinkat(k->dir, tmp, 0);
	fd_close(fd);
	fsync(k->dir);
	return r;
}

int key_file_read(const struct key_file *k, uint8_t ret_key[KEY_SIZE], char ret_why[OWN_WHY])
{
	int r = read_key(k, ret_key, ret_why);

	if (r != -ENOENT)
		return r;
	r = make_key(k);
	if (r == 0 || r == -EEXIST)
		r = read_key(k, ret_key, ret_why);
	else
		snprintf(ret_why, OWN_WHY, "cannot be made: %s", carton_write_error(r));
	/* another process has removed the file meanwhile */
	if (r == -ENOENT)
		snprintf(ret_why, OWN_WHY, "cannot be made: %s", strerror(-r));
	return r;
}
