/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faulty-disk DIRECTORY CONTROL [FUSE ARGUMENT…] MOUNTPOINT: a file system that has what DIRECTORY
 * has, and the faults that the file CONTROL asks for. It is read at each operation, and has a line
 *
 *	FAULT NUMBER [PART]
 *
 * and concerns paths that contain PART, or all:
 *
 *	none		no fault; so does an empty or missing file
 *	eio N		every Nth read fails with EIO
 *	flip N		every Nth read has a bit that is not on the disk
 *	forge N		the same, with other bits that leave the crc32 of a file as it is
 *	short N		a read gives from 1 to N bytes, never more
 *	slow N		a read takes N milliseconds
 *	hold N		a read of what lies behind N bytes waits as long as the line is there
 *	shrink N	files end after N bytes
 *	write N		every Nth write fails with EIO, and every fsync
 *	full N		every Nth write or creation fails with ENOSPC
 *	dead		all fails with EIO
 *	fold		names are the same without regard to case; dots at their end are
 *			dropped, and an e with a combining acute is kept as one letter
 *
 * Nothing is kept in the page cache: each read of a reader is one here.
 */
#define FUSE_USE_VERSION 31

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <dirent.h>

enum fault {
	NONE,
	EIO_READ,
	FLIP,
	FORGE,
	SHORT,
	SLOW,
	HOLD,
	SHRINK,
	WRITE,
	FULL,
	DEAD,
	FOLD,
	FAULTS
};

static const char *const fault_names[FAULTS] = { "none",  "eio",  "flip", "forge",
						 "short", "slow", "hold", "shrink",
						 "write", "full", "dead", "fold" };

/* The polynomial of zip's crc32, as bytes. */
static const char no_crc[] = { 0x41, 0x06, 0x71, (char)0xdb, 0x01 };

static int base;		/* a descriptor of DIRECTORY */
static const char *control;	/* an absolute path */
static atomic_ulong operations; /* that could have failed */

/* The fault for a path, and its number: 1 unless the line has one. */
static enum fault fault_of(const char *path, long *ret_number)
{
	char line[256] = "", name[16] = "", part[200] = "";
	int fd = open(control, O_RDONLY | O_CLOEXEC);

	*ret_number = 1;
	if (fd < 0)
		return NONE;
	if (read(fd, line, sizeof(line) - 1) < 0)
		line[0] = 0;
	close(fd);
	if (sscanf(line, "%15s %ld %199s", name, ret_number, part) < 1 || *ret_number < 1 ||
	    !strstr(path, part))
		return NONE;
	for (enum fault f = NONE; f < FAULTS; f++)
		if (strcmp(name, fault_names[f]) == 0)
			return f;
	return NONE;
}

static bool is(const char *path, enum fault fault, long *ret_number)
{
	return fault_of(path, ret_number) == fault;
}

static bool is_dead(const char *path)
{
	long number;

	return is(path, DEAD, &number);
}

/* Whether this is an Nth operation. */
static bool due(long number)
{
	return atomic_fetch_add(&operations, 1) % (unsigned long)number == 0;
}

/* 0 or -errno of something that adds to the disk. */
static int room_for(const char *path)
{
	long number;
	enum fault f = fault_of(path, &number);

	return f == DEAD ? -EIO : f == FULL && due(number) ? -ENOSPC : 0;
}

/* Appends to the path `at` the name by which its directory has the name `name`, of `n` bytes. */
static void add_folded(char *at, const char *name, size_t n)
{
	char wanted[256] = "", *composed;
	struct dirent *de;
	int fd = openat(base, *at ? at : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	while (n > 0 && name[n - 1] == '.')
		n--;
	memcpy(wanted, name, n < sizeof(wanted) ? n : sizeof(wanted) - 1);
	while ((composed = strstr(wanted, "e\xcc\x81"))) {
		memcpy(composed, "\xc3\xa9", 2);
		memmove(composed + 2, composed + 3, strlen(composed + 3) + 1);
	}
	while (dir && (de = readdir(dir)))
		if (strcasecmp(de->d_name, wanted) == 0)
			strcpy(wanted, de->d_name);
	if (dir)
		closedir(dir);
	if (*at)
		strcat(at, "/");
	strcat(at, wanted);
}

/* The path beneath DIRECTORY. It stays until the second call after this one on this thread. */
static const char *below(const char *path)
{
	static _Thread_local char folded[2][4096 + 256];
	static _Thread_local unsigned turn;
	char *to = folded[turn++ % 2];
	long number;

	if (!path[1])
		return ".";
	if (fault_of(path, &number) != FOLD)
		return path + 1;
	*to = 0;
	while (*path++ && strlen(to) < 4096) {
		size_t n = strcspn(path, "/");

		add_folded(to, path, n);
		path += n;
	}
	return to;
}

static int result(int r)
{
	return r < 0 ? -errno : 0;
}

static int disk_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	long number;
	int r;

	if (is_dead(path))
		return -EIO;
	r = fi ? fstat((int)fi->fh, st) : fstatat(base, below(path), st, AT_SYMLINK_NOFOLLOW);
	if (r == 0 && S_ISREG(st->st_mode) && is(path, SHRINK, &number) && st->st_size > number)
		st->st_size = number;
	return result(r);
}

static int disk_readlink(const char *path, char *target, size_t size)
{
	ssize_t n = readlinkat(base, below(path), target, size - 1);

	if (n < 0)
		return -errno;
	target[n] = 0;
	return 0;
}

static int disk_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
			struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	struct dirent *de;
	DIR *dir;
	int fd;

	(void)off;
	(void)fi;
	(void)flags;
	if (is_dead(path))
		return -EIO;
	fd = openat(base, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return -errno;
	while ((de = readdir(dir)))
		fill(buf, de->d_name, NULL, 0, 0);
	closedir(dir);
	return 0;
}

static int open_file(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int fd = openat(base, below(path), fi->flags | O_CLOEXEC | O_NOFOLLOW, mode);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	fi->direct_io = 1;
	return 0;
}

static int disk_open(const char *path, struct fuse_file_info *fi)
{
	return is_dead(path) ? -EIO : open_file(path, 0, fi);
}

static int disk_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int r = room_for(path);

	if (r == 0)
		fi->flags |= O_CREAT;
	return r < 0 ? r : open_file(path, mode, fi);
}

static int disk_read(const char *path, char *buf, size_t size, off_t off, struct fuse_file_info *fi)
{
	long number;
	enum fault f = fault_of(path, &number);
	ssize_t n;

	while (f == HOLD && off + (off_t)size > number && !fuse_interrupted()) {
		usleep(1000);
		f = fault_of(path, &number);
	}
	if (f == DEAD || (f == EIO_READ && due(number)))
		return -EIO;
	if (f == SLOW)
		usleep((useconds_t)number * 1000);
	if (f == SHRINK)
		size = off >= number		  ? 0 :
		       (off_t)size > number - off ? (size_t)(number - off) :
						    size;
	if (f == SHORT && size > 1) {
		size_t some = 1 + atomic_fetch_add(&operations, 7919) % (unsigned long)number;

		size = some < size ? some : size;
	}
	n = pread((int)fi->fh, buf, size, off);
	if (n > 0 && f == FLIP && due(number))
		buf[n / 2] ^= 4;
	if (n > 10 && f == FORGE && due(number))
		for (size_t i = 0; i < sizeof(no_crc); i++)
			buf[n / 2 + (ssize_t)i] ^= no_crc[i];
	return n < 0 ? -errno : (int)n;
}

static int disk_write(const char *path, const char *buf, size_t size, off_t off,
		      struct fuse_file_info *fi)
{
	long number;
	int r = room_for(path);
	ssize_t n;

	if (r < 0)
		return r;
	if (is(path, WRITE, &number) && due(number))
		return -EIO;
	n = pwrite((int)fi->fh, buf, size, off);
	return n < 0 ? -errno : (int)n;
}

static int disk_fsync(const char *path, int data, struct fuse_file_info *fi)
{
	long number;

	(void)data;
	if (is_dead(path) || is(path, WRITE, &number))
		return -EIO;
	return result(fsync((int)fi->fh));
}

static int disk_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

static int disk_mkdir(const char *path, mode_t mode)
{
	int r = room_for(path);

	return r < 0 ? r : result(mkdirat(base, below(path), mode));
}

static int disk_unlink(const char *path)
{
	return is_dead(path) ? -EIO : result(unlinkat(base, below(path), 0));
}

static int disk_rmdir(const char *path)
{
	return is_dead(path) ? -EIO : result(unlinkat(base, below(path), AT_REMOVEDIR));
}

static int disk_rename(const char *from, const char *to, unsigned flags)
{
	int r = room_for(to);

	return r < 0 ? r : result(renameat2(base, below(from), base, below(to), flags));
}

static int disk_symlink(const char *target, const char *path)
{
	int r = room_for(path);

	return r < 0 ? r : result(symlinkat(target, base, below(path)));
}

static int disk_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	if (is_dead(path))
		return -EIO;
	return result(fi ? fchmod((int)fi->fh, mode) : fchmodat(base, below(path), mode, 0));
}

static int disk_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	int fd, r;

	if (is_dead(path))
		return -EIO;
	if (fi)
		return result(ftruncate((int)fi->fh, size));
	fd = openat(base, below(path), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	r = result(ftruncate(fd, size));
	close(fd);
	return r;
}

static int disk_fallocate(const char *path, int mode, off_t off, off_t n, struct fuse_file_info *fi)
{
	int r = room_for(path);

	return r < 0 ? r : result(fallocate((int)fi->fh, mode, off, n));
}

static int disk_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
	if (is_dead(path))
		return -EIO;
	return result(fi ? futimens((int)fi->fh, times) :
			   utimensat(base, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int disk_statfs(const char *path, struct statvfs *vfs)
{
	return is_dead(path) ? -EIO : result(fstatvfs(base, vfs));
}

static void *disk_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	(void)conn;
	config->attr_timeout = 0;
	config->entry_timeout = 0;
	config->negative_timeout = 0;
	config->use_ino = 1;
	return NULL;
}

static const struct fuse_operations disk = {
	.init = disk_init,
	.getattr = disk_getattr,
	.readlink = disk_readlink,
	.readdir = disk_readdir,
	.open = disk_open,
	.create = disk_create,
	.read = disk_read,
	.write = disk_write,
	.fsync = disk_fsync,
	.release = disk_release,
	.mkdir = disk_mkdir,
	.unlink = disk_unlink,
	.rmdir = disk_rmdir,
	.rename = disk_rename,
	.symlink = disk_symlink,
	.chmod = disk_chmod,
	.truncate = disk_truncate,
	.fallocate = disk_fallocate,
	.utimens = disk_utimens,
	.statfs = disk_statfs,
};

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr,
			"usage: faulty-disk DIRECTORY CONTROL [FUSE ARGUMENT...] MOUNTPOINT\n");
		return 1;
	}
	base = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	control = argv[2];
	if (base < 0) {
		perror(argv[1]);
		return 1;
	}
	umask(0);
	argv[2] = argv[0];
	return fuse_main(argc - 2, argv + 2, &disk, NULL);
}
