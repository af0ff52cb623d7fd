/* SPDX-License-Identifier: Apache-2.0 */
#include "archive/what.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

#define HEAD 512
#define PACK "cartonctl init DIR and cartonctl pack DIR OUT.carton"
#define PUT "put it into a directory DIR, then run " PACK
#define UNPACK "unpack it to a directory DIR, then run " PACK

#define HTML                                                                             \
	"is an HTML page: the URL is wrong, or needs a login; a repository of a hub is " \
	"hf://ORG/REPO"
#define POINTER "version https://git-lfs"
#define LFS                                                                          \
	"is a git-lfs pointer, not the file: run git lfs pull, or cartonctl import " \
	"hf://ORG/REPO OUT.carton"
#define POINTER_MIN 100 /* bytes: a version, an oid and a size take more */
#define POINTER_MAX 1024
#define POINTERS_READ 10000 /* most files that the search opens */
#define NAMES_READ 1000	    /* most names that the search reads in one directory */
#define PICKLE "is a pickle, which runs code when it is loaded: save the model as safetensors"

/* The first that fits. Text is compared in any case of letters, and behind white space. */
static const struct magic {
	size_t at;
	const char *bytes;
	size_t n; /* 0: text */
	const char *what;
} magics[] = {
	{ 0, "<!doctype html", 0, HTML },
	{ 0, "<html", 0, HTML },
	{ 0, "<?xml", 0, "is an XML text, perhaps an error of its server: is the URL right?" },
	{ 0, POINTER, 0, LFS },
	{ 0, "GGUF", 4, "is a GGUF model, not a carton: " PUT },
	{ 257, "ustar", 5, "is a tar archive, not a carton: " UNPACK },
	{ 0, "\x1f\x8b", 2, "is a gzip file, not a carton: " UNPACK },
	{ 0, "\x28\xb5\x2f\xfd", 4, "is a zstd file, not a carton: " UNPACK },
	{ 0, "\xfd\x37zXZ", 5, "is an xz file, not a carton: " UNPACK },
	{ 0, "BZh", 3, "is a bzip2 file, not a carton: " UNPACK },
	{ 0, "\x89HDF", 4, "is an HDF5 file, not a carton: " PUT },
	{ 0, "\x93NUMPY", 6, "is an array of numpy, not a carton: " PUT },
	{ 0, "\x80\x02", 2, PICKLE },
	{ 0, "\x80\x03", 2, PICKLE },
	{ 0, "\x80\x04", 2, PICKLE },
	{ 0, "\x80\x05", 2, PICKLE },
};

static bool fits(const struct magic *m, const char *head, size_t n)
{
	if (m->n)
		return n >= m->at + m->n && memcmp(head + m->at, m->bytes, m->n) == 0;
	head += strspn(head, " \t\r\n");
	return strncasecmp(head, m->bytes, strlen(m->bytes)) == 0;
}

int what_refuse(struct source *source, const char *otherwise)
{
	size_t n = (size_t)MIN(source->size, (uint64_t)HEAD);
	char head[HEAD + 1] = "";
	int r = source_pread(source, head, n, 0);

	if (r < 0)
		return r;
	if (n == 0)
		return log_error(-EBADMSG, NULL, "is empty: was it downloaded to its end?");
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
		if (fits(&magics[i], head, n))
			return log_error(-EBADMSG, NULL, "%s", magics[i].what);
	/* a safetensors file begins with the length of its header, then JSON */
	if (n > 8 && get_le64((const uint8_t *)head) <= MAX_SAFETENSORS_HEADER && head[8] == '{')
		otherwise = "is a safetensors file: with a name in .safetensors it can be mounted";
	return log_error(-EBADMSG, NULL, "%s", otherwise);
}

static int refuse_unpacked(bool has_toml)
{
	return log_error(-EBADMSG, NULL, "has no MANIFEST, so it is not a carton: %s",
			 has_toml ? "run cartonctl pack DIR OUT.carton" : "run " PACK);
}

static bool has_carton(int fd, const char *dir)
{
	static const char *const names[] = { "MANIFEST", "carton.toml" };
	char path[MAX_COMPONENT + 16];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (snprintf(path, sizeof(path), "%s/%s", dir, names[i]) >= (int)sizeof(path) ||
		    fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			return false;
	return true;
}

/* Finds a directory in `fd` that is a carton. False: none is, of the first NAMES_READ names. */
static bool find_unpacked(int fd, char ret[MAX_COMPONENT + 1])
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	bool found = false;

	if (!stream) {
		fd_close(copy);
		return false;
	}
	for (unsigned i = 0; i < NAMES_READ && !found && (entry = readdir(stream)); i++) {
		found = entry->d_name[0] != '.' && has_carton(fd, entry->d_name);
		if (found)
			snprintf(ret, MAX_COMPONENT + 1, "%s", entry->d_name);
	}
	closedir(stream);
	return found;
}

int what_refuse_directory(int fd)
{
	char below[MAX_COMPONENT + 1];
	struct stat st;
	bool has_toml;

	if (fstatat(fd, "MANIFEST", &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return 0;
	has_toml = fstatat(fd, "carton.toml", &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!has_toml && find_unpacked(fd, below))
		return log_error(-EBADMSG, NULL,
				 "has no MANIFEST, but a carton lies in %s/: name that directory",
				 below);
	return refuse_unpacked(has_toml);
}

/*
 * Finds the next carton.toml, from entry *at on, whose directory also has an entry `other`. Returns
 * its path, of which the first *ret_n bytes are the directory. NULL: there is none.
 */
static const char *next_below(const struct container *c, const char *other, size_t *at,
			      size_t *ret_n)
{
	static const char toml[] = "/carton.toml";
	char path[MAX_PATH_LEN + 1];

	while (*at < c->n_entries) {
		const char *name = c->entries[(*at)++].name;
		size_t n = strlen(name);

		if (!ends_with(name, toml))
			continue;
		n -= strlen(toml);
		if (snprintf(path, sizeof(path), "%.*s/%s", (int)n, name, other) >=
		    (int)sizeof(path))
			continue;
		if (!container_find(c, path))
			continue;
		*ret_n = n;
		return name;
	}
	return NULL;
}

void what_say_cartons(const struct container *c)
{
	size_t at = 0, n, found = 0;
	const char *name;

	while (found < MAX_REPORTED && (name = next_below(c, "MANIFEST", &at, &n))) {
		carton_log(CARTON_LOG_WARNING, name,
			   "there is a MANIFEST beside it, so %.*s is a carton, and this makes a "
			   "carton in a carton; to pack that one, name its directory",
			   (int)n, name);
		found++;
	}
}

int what_refuse_container(const struct container *c)
{
	const char *todo = UNPACK, *below;
	size_t at = 0, n;

	if (!c->one_file)
		return refuse_unpacked(container_find(c, "carton.toml"));
	below = next_below(c, "MANIFEST", &at, &n);
	at = 0;
	if (!below) /* not packed yet, as a forge has it */
		below = next_below(c, "model", &at, &n);
	if (below)
		return log_error(-EBADMSG, NULL,
				 "has no MANIFEST, but a carton lies in %.*s/: the directory was "
				 "zipped, not what is in it; unpack it, then run cartonctl pack "
				 "%.*s OUT.carton",
				 (int)n, below, (int)n, below);
	for (size_t i = 0; i < c->n_entries; i++)
		if (ends_with(c->entries[i].name, "/data.pkl"))
			todo = "it is a checkpoint of PyTorch and " PICKLE;
	return log_error(-EBADMSG, NULL, "has no MANIFEST, so it is not a carton: %s", todo);
}

static int is_pointer(struct container *c, const struct entry *e, bool *ret)
{
	struct buf text = { 0 };
	/* an entry that cannot be read is reported where it is used */
	int r = container_read(c, e, POINTER_MAX, &text);

	*ret = r == 0 && strncmp(text.data, POINTER, strlen(POINTER)) == 0;
	buf_finish(&text);
	return r == -ENOMEM ? r : 0;
}

int what_say_pointers(struct container *c)
{
	size_t found = 0, read = 0;
	bool is;
	int r = 0;

	for (size_t i = 0; i < c->n_entries && !c->remote && read < POINTERS_READ; i++) {
		const struct entry *e = &c->entries[i];

		if (e->kind != ENTRY_FILE || e->size < POINTER_MIN || e->size > POINTER_MAX)
			continue;
		read++;
		r = is_pointer(c, e, &is);
		if (r < 0)
			return r;
		if (is && found++ < MAX_REPORTED)
			carton_log(CARTON_LOG_NOTICE, e->name,
				   "is a git-lfs pointer, not the file: run git lfs pull where the "
				   "repository was cloned, and pack that");
	}
	if (found > MAX_REPORTED)
		carton_log(CARTON_LOG_NOTICE, NULL, "%zu more files are git-lfs pointers",
			   found - MAX_REPORTED);
	return 0;
}
