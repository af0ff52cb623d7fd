/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any file of any kind in the places of a cache: notes, hints, names, the lock file, partials,
 * sidecars, seals, the key of older versions, objects. Nothing waits for a FIFO or follows a symlink,
 * what lies outside stays as it is, no note is believed that was not made with the key, a kept
 * download has the bytes that its note names, and a gc makes all of it usable again.
 *
 * The input: files, each: place, kind, size (2 bytes), then so many bytes of it. A note that is a
 * text is made with the key.
 */
#include <fcntl.h>

#include "cache/internal.h"
#include "fetch/download.h"
#include "sample.h"

#define URL "https://host/a.carton"
#define OBJECT "what was downloaded"
#define OUTSIDE "is not ours"
#define MAX_SIZE (MAX_CACHE_VALIDATOR + 2)

enum place {
	NOTE,
	HINT,
	LOCK,
	PARTIAL,
	SIDECAR,
	SEAL,
	SECRET,
	OBJECT_FILE,
	BUCKET,
	TMP,
	NAMES,
	N_PLACES
};
enum kind {
	FILE_,
	FIFO,
	LINK_OUT,
	LINK_DIR,
	LINK_SELF,
	LINK_NOTHING,
	DIR_,
	FULL_DIR,
	SOCKET,
	N_KINDS
};

struct file {
	enum kind kind;
	size_t n;
	uint8_t data[MAX_SIZE];
	bool set;
};

static struct cache *cache;
static struct file files[N_PLACES];
static const uint8_t source_key[KEY_SIZE] = { 1 };
static uint8_t url_key[SHA256_SIZE], object[SHA256_SIZE];
static char note_hex[HEX_SIZE], object_hex[HEX_SIZE], outside[80], outside_dir[80];

/* ---- files ---- */

static int find(enum place place, char ret_name[SIDECAR_NAME_SIZE + 1])
{
	char path[OBJECT_NAME_SIZE];

	strcpy(ret_name, place == NOTE ? note_hex : object_hex);
	switch (place) {
	case NOTE:
	case HINT:
		return cache->notes;
	case LOCK:
		strcpy(ret_name, LOCK_FILE);
		return cache->v1;
	case PARTIAL:
		return cache->partial;
	case SIDECAR:
		cache_sidecar_name(object, ret_name);
		return cache->partial;
	case SEAL:
		return cache->seals;
	case SECRET:
		strcpy(ret_name, OLD_SECRET);
		return cache->seals;
	case TMP:
		return cache->tmp;
	case NAMES:
		strcpy(ret_name, NAMES_FILE);
		return cache->v1;
	default:
		cache_object_name(object, path);
		path[place == BUCKET ? 2 : sizeof(path) - 1] = '\0';
		strcpy(ret_name, path);
		return cache->objects;
	}
}

/* What is there goes, with what is in it; `fd` may be that of a place. */
static void remove_at(int fd, const char *name)
{
	char path[64 + 80];

	if (unlinkat(fd, name, 0) == 0 || errno != EISDIR)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", fd, name);
	nftw(path, sample_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void put_bytes(int dir, const char *name, const void *data, size_t n, mode_t mode)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && pwrite_full(fd, data, n, 0) == 0 && fchmod(fd, mode) == 0);
	close(fd);
}

static bool has_bucket(void)
{
	const struct file *f = &files[BUCKET];

	return !f->set || f->kind == DIR_ || f->kind == FULL_DIR;
}

/* May the text have been put by who has the key? */
static bool is_note(const struct file *f)
{
	return f->set && f->kind == FILE_ && f->n <= MAX_CACHE_VALIDATOR &&
	       !memchr(f->data, '\0', f->n);
}

static void put_note(const struct file *f)
{
	char text[MAX_CACHE_VALIDATOR + 1];

	memcpy(text, f->data, f->n);
	text[f->n] = '\0';
	CHECK(cache_note_put(cache, url_key, text) == 0);
}

static void put(enum place place)
{
	const struct file *f = &files[place];
	char name[SIDECAR_NAME_SIZE + 1];
	int dir = find(place, name), fd;

	if (place == OBJECT_FILE && !has_bucket())
		return;
	remove_at(dir, name);
	switch (f->kind) {
	case FIFO:
	case SOCKET:
		CHECK(mknodat(dir, name, (f->kind == FIFO ? S_IFIFO : S_IFSOCK) | 0600, 0) == 0);
		return;
	case LINK_OUT:
	case LINK_DIR:
	case LINK_SELF:
	case LINK_NOTHING:
		CHECK(symlinkat(f->kind == LINK_OUT  ? outside :
				f->kind == LINK_DIR  ? outside_dir :
				f->kind == LINK_SELF ? name :
						       "nothing",
				dir, name) == 0);
		return;
	case DIR_:
	case FULL_DIR:
		CHECK(mkdirat(dir, name, 0700) == 0);
		if (f->kind == FULL_DIR) {
			fd = openat(dir, name, O_PATH | O_CLOEXEC);
			CHECK(fd >= 0 && symlinkat(outside_dir, fd, "link") == 0);
			CHECK(mkfifoat(fd, "fifo", 0600) == 0);
			close(fd);
		}
		return;
	default:
		if (place == NOTE && is_note(f))
			put_note(f);
		else
			put_bytes(dir, name, f->data, f->n, place == OBJECT_FILE ? 0400 : 0600);
	}
}

/* ---- what there has to be ---- */

static void check_outside(void)
{
	char got[sizeof(OUTSIDE)] = "", path[sizeof(outside_dir) + 8];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/file", outside_dir);
	for (int i = 0; i < 2; i++) {
		fd = open(i ? path : outside, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0644);
		CHECK(st.st_size == sizeof(OUTSIDE) && st.st_mtim.tv_sec == 1000);
		CHECK(pread_full(fd, got, sizeof(got), 0) == 0 && strcmp(got, OUTSIDE) == 0);
		close(fd);
	}
}

static bool is_hex(const uint8_t *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!s[i] || !strchr("0123456789abcdefABCDEF", s[i]))
			return false;
	return true;
}

/* "<sha256> <version>" of the object, as download.c says. */
static bool is_note_of_object(const struct file *f)
{
	uint8_t sha256[SHA256_SIZE];
	char hex[HEX_SIZE] = "";

	if (f->kind != FILE_ || f->n < HEX_SIZE || f->n > MAX_CACHE_VALIDATOR ||
	    f->data[64] != ' ' || !is_hex(f->data, 64))
		return false;
	memcpy(hex, f->data, 64);
	return hex_decode(hex, SHA256_SIZE, sha256) && memcmp(sha256, object, SHA256_SIZE) == 0;
}

static bool is_object(void)
{
	const struct file *f = &files[OBJECT_FILE];

	if (!has_bucket() || !f->set)
		return !files[BUCKET].set;
	return f->kind == FILE_ && f->n == strlen(OBJECT) && memcmp(f->data, OBJECT, f->n) == 0;
}

static void try_download(void)
{
	bool good = is_note(&files[NOTE]) && is_note_of_object(&files[NOTE]) && is_object();
	char got[sizeof(OBJECT)] = "";
	struct source *source;
	int r = download_kept(cache, URL, &source);

	CHECK(r == (good ? 0 : -ENOENT));
	if (r < 0)
		return;
	CHECK(source->size == strlen(OBJECT));
	CHECK(source_pread(source, got, strlen(OBJECT), 0) == 0 && strcmp(got, OBJECT) == 0);
	source_unref(source);
}

typedef int get_fn(struct cache *cache, const uint8_t key[32], char *ret_text, size_t n);

static void try_text(get_fn *get, const uint8_t key[SHA256_SIZE], const struct file *f, bool good)
{
	static char got[MAX_SIZE + 1];
	size_t room = f->n + 1;
	int r;

	memset(got, 'x', sizeof(got));
	r = get(cache, key, got, room);
	CHECK(r == (good ? 0 : -ENOENT));
	CHECK(r < 0 || (memcmp(got, f->data, f->n) == 0 && got[f->n] == '\0'));
	if (!good || f->n == 0)
		return;
	got[f->n] = 'x';
	CHECK(get(cache, key, got, room - 1) == -ERANGE && got[f->n] == 'x');
}

static void try_fill(void)
{
	char validator[MAX_CACHE_VALIDATOR + 1];
	struct cache_fill *f;
	uint64_t n;
	int fd;

	cache_is_filling(cache, object, &n);
	CHECK(cache_wait(cache, object, 0, NULL) != -ETIMEDOUT); /* nobody has the lock */
	if (cache_lookup(cache, object, &fd, &n) == 0)
		close(fd);
	if (cache_begin(cache, object, &f) < 0)
		return;
	CHECK(cache_fill_partial(f, &n, validator, sizeof(validator)) == 0);
	CHECK(n <= files[PARTIAL].n || files[PARTIAL].kind != FILE_);
	cache_fill_abort(f, true);
}

static void try_seal(void)
{
	uint8_t(*tags)[TAG_SIZE];

	/* it is not encrypted with our key */
	CHECK(cache_seal_get(cache, object, MIN_SEALED, &tags) == -ENOENT);
	CHECK(cache_seal_check(cache, object) < 0);
}

/* Sets the name of the object. */
static void find_name(struct cache_names **ret, struct cache_object *ret_object)
{
	*ret_object = (struct cache_object){ .size = 0 };
	memcpy(ret_object->sha256, object, SHA256_SIZE);
	CHECK(cache_names_read(cache, ret) == 0);
	cache_names_find(*ret, ret_object);
	CHECK(!ret_object->path == !ret_object->source);
	if (ret_object->path)
		CHECK(strlen(ret_object->path) + strlen(ret_object->source) < MAX_SIZE);
}

/* A new line is found behind all that is there, unless it continues one. */
static void try_names(void)
{
	const struct file *f = &files[NAMES];
	bool ends = !f->set || (f->kind == FILE_ && (f->n == 0 || f->data[f->n - 1] == '\n'));
	struct cache_names *names;
	struct cache_object o;

	find_name(&names, &o);
	cache_names_free(names);
	cache_name_put(cache, object, OBJECT, URL);
	find_name(&names, &o);
	if (ends)
		CHECK(o.path && strcmp(o.path, OBJECT) == 0 && strcmp(o.source, URL) == 0);
	cache_names_free(names);
}

/* As a process that comes later. */
static void reopen(void)
{
	cache_close(cache);
	CHECK(cache_open(sample_dir, 0, &cache) == 0);
	cache_use_key(cache, source_key);
}

/* After a gc nothing is in the way. */
static void check_usable(void)
{
	char note[sizeof(OBJECT)];
	struct cache_fill *f;
	int fd, r;

	CHECK(cache_gc(cache, UINT64_MAX, NULL) == 0);
	CHECK(cache_note_put(cache, url_key, OBJECT) == 0);
	CHECK(cache_note_get(cache, url_key, note, sizeof(note)) == 0 && strcmp(note, OBJECT) == 0);
	r = cache_begin(cache, object, &f);
	CHECK(r == 0 || r == -EEXIST);
	if (r < 0)
		return;
	CHECK(cache_fill_restart(f, "version") == 0);
	CHECK(pwrite_full(cache_fill_fd(f), OBJECT, strlen(OBJECT), 0) == 0);
	CHECK(cache_fill_publish(f, NULL, strlen(OBJECT), &fd) == 0);
	close(fd);
}

/* ---- the target ---- */

/* Nothing of an earlier input, and the object. */
static void reset(void)
{
	char name[SIDECAR_NAME_SIZE + 1];

	for (int i = 0; i < N_PLACES; i++) {
		int dir = find(i, name);

		files[i].set = false;
		files[i].n = 0;
		files[i].kind = FILE_;
		remove_at(dir, name);
	}
	find(BUCKET, name);
	CHECK(mkdirat(cache->objects, name, 0700) == 0);
	find(OBJECT_FILE, name);
	put_bytes(cache->objects, name, OBJECT, strlen(OBJECT), 0400);
}

static void put_outside(const char *path)
{
	const struct timespec times[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };

	put_bytes(AT_FDCWD, path, OUTSIDE, sizeof(OUTSIDE), 0644);
	CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char path[sizeof(outside_dir) + 8];
	uint8_t name[SHA256_SIZE];

	(void)argc;
	(void)argv;
	sample_mkdir();
	carton_log_set(sample_silent, NULL);
	snprintf(outside, sizeof(outside), "%s/outside", sample_dir);
	snprintf(outside_dir, sizeof(outside_dir), "%s/outside.d", sample_dir);
	snprintf(path, sizeof(path), "%s/file", outside_dir);
	put_outside(outside);
	CHECK(mkdir(outside_dir, 0700) == 0);
	put_outside(path);
	CHECK(cache_open(sample_dir, 0, &cache) == 0);
	cache_use_key(cache, source_key);
	CHECK(sha256_mem(URL, strlen(URL), url_key) == 0);
	CHECK(sha256_mem(OBJECT, strlen(OBJECT), object) == 0);
	CHECK(cache_mac(cache, "names of notes", url_key, SHA256_SIZE, name) == 0);
	hex_encode(name, SHA256_SIZE, note_hex);
	hex_encode(object, SHA256_SIZE, object_hex);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	reset();
	while (n >= 4) {
		enum place place = data[0] % N_PLACES;
		struct file *f = &files[place];
		size_t size = MIN((size_t)(data[2] | data[3] << 8), (size_t)MAX_SIZE);

		f->set = true;
		f->kind = data[1] % N_KINDS;
		data += 4;
		n -= 4;
		/* a larger file is cheap to ask for: the rest of it is zeros */
		memset(f->data, 0, size);
		memcpy(f->data, data, MIN(size, n));
		f->n = size;
		data += MIN(size, n);
		n -= MIN(size, n);
	}
	/* a bucket before what is in it */
	for (int i = N_PLACES - 1; i >= 0; i--)
		if (files[i].set)
			put(i);
	try_text(cache_note_get, url_key, &files[NOTE], is_note(&files[NOTE]));
	try_text(cache_hint_get, object, &files[HINT],
		 files[HINT].set && files[HINT].kind == FILE_);
	try_download();
	try_seal();
	try_names();
	try_fill();
	reopen();
	check_usable();
	check_outside();
	return 0;
}
