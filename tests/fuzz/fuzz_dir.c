/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any tree in place of an unpacked carton: the reader lists all of it or says that it may not be,
 * gives the bytes that were written, and never those of a file outside, also when what it listed is
 * replaced afterwards by a symlink to there. It waits for no FIFO. As root the reader has the
 * rights of nobody, so that there are files it may not read.
 *
 * The input: items, each: kind, directory it goes into (or the item that is replaced), form and
 * size of its name, the name, and one byte more.
 */
#include <fcntl.h>
#include <sys/fsuid.h>

#include "archive/dir.h"
#include "sample.h"

#define MAX_ITEMS 48
#define MAX_DIRS 24
#define NAME_SIZE (MAX_COMPONENT + 1)
#define PATH_SIZE (MAX_DIRS * NAME_SIZE)
#define NOBODY 65534
#define OUTSIDE 'M' /* each byte of a file outside; no byte of one inside */

enum kind {
	REG,
	SPARSE,
	DIR_,
	LINK,
	LINK_OUT,
	HARD_LINK,
	FIFO,
	SOCKET,
	DEVICE,
	LOCKED,
	REPLACE,
	N_KINDS
};

struct item {
	enum kind kind;
	bool replaced;
	unsigned dir;	   /* of dirs */
	unsigned made_dir; /* of a directory */
	unsigned content;  /* of a file: the item that was written */
	bool locked;	   /* of that item, or of a directory */
	uint64_t size;
	char name[NAME_SIZE], target[NAME_SIZE], path[PATH_SIZE];
};

struct input {
	const uint8_t *at;
	size_t n;
};

static struct item items[MAX_ITEMS];
static unsigned n_items, n_dirs;
static struct {
	int fd;
	unsigned item; /* its own; not of the root */
} dirs[MAX_DIRS];
static int top, outside; /* beside the tree */
static bool is_root;

static uint8_t next(struct input *in)
{
	if (in->n == 0)
		return 0;
	in->n--;
	return *in->at++;
}

static void as_nobody(bool yes)
{
	if (is_root)
		setfsuid(yes ? NOBODY : 0);
}

/* ---- making ---- */

static char byte_of(const struct item *it, uint64_t i)
{
	if (it->kind == SPARSE)
		return i + 1 == it->size ? 'e' : 0;
	return (char)('a' + (i + (uint64_t)(it - items)) % 26);
}

/* False: such a name cannot be. */
static bool make_name(struct input *in, char *ret)
{
	uint8_t form = next(in), size = next(in);
	size_t n = MIN(in->n, (size_t)size);

	memcpy(ret, in->at, n);
	ret[n] = '\0';
	in->at += n;
	in->n -= n;
	for (size_t i = n; form == 1 && n > 0 && i <= MAX_COMPONENT; i++) /* as long as it may be */
		ret[i] = (char)(i < MAX_COMPONENT ? ret[i % n] : '\0');
	if (form == 2 && n_items > 0) { /* the name of another one, in the other case */
		strcpy(ret, items[size % n_items].name);
		for (char *p = ret; *p; p++)
			*p = (char)(*p ^ ((*p | 32) >= 'a' && (*p | 32) <= 'z' ? 32 : 0));
	}
	return *ret && !strchr(ret, '/') && strcmp(ret, ".") != 0 && strcmp(ret, "..") != 0;
}

static int write_file(int dir, const struct item *it)
{
	int fd = openat(dir, it->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	char data[256];

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < it->size && it->kind == REG; i++)
		data[i] = byte_of(it, i);
	if (it->kind == SPARSE)
		CHECK(it->size == 0 || pwrite_full(fd, "e", 1, it->size - 1) == 0);
	else
		CHECK(pwrite_full(fd, data, it->size, 0) == 0);
	close(fd);
	return 0;
}

static int make_dir(int dir, struct item *it)
{
	int fd;

	if (n_dirs == MAX_DIRS || mkdirat(dir, it->name, 0700) < 0)
		return -1;
	fd = openat(dir, it->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CHECK(fd >= 0);
	it->made_dir = n_dirs;
	dirs[n_dirs].fd = fd;
	dirs[n_dirs++].item = n_items;
	return 0;
}

/* A symlink that leads somewhere: to itself, up, out, around. */
static const char *way_out(const struct item *it, unsigned which, char ret[128])
{
	static const char *const ways[] = { ".",	  "..",
					    "../outside", "../../outside",
					    "/dev/zero",  "/proc/self/root" };

	snprintf(ret, 128, "%s/outside/file", sample_dir);
	which %= ARRAY_SIZE(ways) + 2;
	return which == 0 ? it->name : which == 1 ? ret : ways[which - 2];
}

static int make_link(int dir, struct item *it, uint8_t more)
{
	char way[128];

	if (it->kind == LINK_OUT)
		strcpy(it->target, way_out(it, more, way));
	else
		memcpy(it->target, it->name, NAME_SIZE);
	it->size = strlen(it->target);
	return symlinkat(it->target, dir, it->name);
}

static int link_to(int dir, struct item *it, uint8_t more)
{
	const struct item *to = n_items ? &items[more % n_items] : it;

	if (to == it || (to->kind != REG && to->kind != SPARSE))
		return -1;
	it->kind = to->kind;
	it->content = to->content;
	it->size = to->size;
	return linkat(dirs[to->dir].fd, to->name, dir, it->name, 0);
}

static int make_device(int dir, const struct item *it)
{
	int r;

	as_nobody(false);
	r = mknodat(dir, it->name, S_IFCHR | 0666, 0x103 /* null */);
	as_nobody(true);
	return r;
}

static int make_node(int dir, struct item *it, uint8_t more)
{
	switch (it->kind) {
	case REG:
		it->size = more;
		return write_file(dir, it);
	case SPARSE:
		it->size = (uint64_t)more * 509;
		return write_file(dir, it);
	case DIR_:
		return make_dir(dir, it);
	case LINK:
	case LINK_OUT:
		return make_link(dir, it, more);
	case HARD_LINK:
		return link_to(dir, it, more);
	case FIFO:
		return mknodat(dir, it->name, S_IFIFO | 0600, 0);
	case SOCKET:
		return mknodat(dir, it->name, S_IFSOCK | 0600, 0);
	default:
		return make_device(dir, it);
	}
}

/* Takes the rights to read an item away. */
static void lock(struct item *it)
{
	struct item *of = it->kind == DIR_ ? it : &items[it->content];

	if (it->kind != DIR_ && it->kind != REG && it->kind != SPARSE)
		return;
	/* it may be in a directory that is locked itself */
	if (fchmodat(dirs[it->dir].fd, it->name, 0, 0) == 0)
		of->locked = true;
}

static void make(struct input *in)
{
	struct item *it = &items[n_items];
	unsigned kind = next(in) % N_KINDS, which = next(in);
	uint8_t more;

	if (kind == LOCKED || kind == REPLACE) {
		if (n_items > 0 && kind == LOCKED)
			lock(&items[which % n_items]);
		else if (n_items > 0)
			items[which % n_items].replaced = true;
		return;
	}
	*it = (struct item){ .kind = kind, .dir = which % n_dirs, .content = n_items };
	if (!make_name(in, it->name))
		return;
	more = next(in);
	if (make_node(dirs[it->dir].fd, it, more) < 0)
		return;
	snprintf(it->path, sizeof(it->path), "%s%s%s",
		 it->dir ? items[dirs[it->dir].item].path : "", it->dir ? "/" : "", it->name);
	n_items++;
}

/* ---- reading ---- */

/* May it fail so, and not otherwise? */
static void check_refusal(int r)
{
	bool bad = false, locked = false;

	for (unsigned i = 0; i < n_items; i++) {
		bad |= items[i].kind >= FIFO || path_fault(items[i].path, strlen(items[i].path));
		locked |= items[i].kind == DIR_ && items[i].locked;
	}
	CHECK(r == 0 ? !bad && !locked : (r == -EBADMSG && bad) || (r == -EACCES && locked));
}

static void check_entry(const struct container *c, const struct item *it)
{
	const struct entry *e = container_find(c, it->path);

	CHECK(e && e->size == (it->kind == DIR_ ? 0 : it->size) && !e->executable);
	CHECK(e->kind == (it->kind == DIR_			   ? ENTRY_DIR :
			  it->kind == LINK || it->kind == LINK_OUT ? ENTRY_SYMLINK :
								     ENTRY_FILE));
	CHECK(!path_fault(e->name, e->name_len) && strlen(e->name) == e->name_len);
}

/* The bytes of an entry, as it was made; or an error where it may be one. */
static void read_one(struct container *c, const struct item *it, bool changed)
{
	const struct entry *e = container_find(c, it->path);
	bool is_link = it->kind == LINK || it->kind == LINK_OUT;
	struct buf got = { 0 };
	int r;

	if (is_link) {
		r = container_readlink(c, e, &got);
		CHECK(changed ? r <= 0 : r == 0 && got.len == it->size);
		CHECK(changed || memcmp(got.data, it->target, got.len) == 0);
		buf_finish(&got);
		got = (struct buf){ 0 };
	}
	r = container_read(c, e, SIZE_MAX - 1, &got);
	if (is_link || it->kind == DIR_)
		CHECK(r < 0);
	else if (!changed)
		CHECK(r == (items[it->content].locked ? -EACCES : 0));
	for (size_t i = 0; r == 0 && i < it->size; i++)
		CHECK(got.len == it->size && got.data[i] == byte_of(&items[it->content], i));
	buf_finish(&got);
}

static int open_tree(struct container **ret)
{
	return dir_open(fcntl(dirs[0].fd, F_DUPFD_CLOEXEC, 0), NULL, NULL, ret);
}

static void compare_lists(const struct container *a, const struct container *b)
{
	CHECK(a->n_entries == b->n_entries);
	for (size_t i = 0; i < a->n_entries; i++) {
		CHECK(strcmp(a->entries[i].name, b->entries[i].name) == 0);
		CHECK(a->entries[i].size == b->entries[i].size);
		CHECK(a->entries[i].kind == b->entries[i].kind);
		CHECK(i == 0 || path_compare(a->entries[i - 1].name, a->entries[i].name) < 0);
	}
}

/* ---- replacing ---- */

/* A file outside that is as large as that one. */
static void put_outside(const char *name, uint64_t size)
{
	int fd = openat(outside, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char data[256];

	CHECK(fd >= 0);
	memset(data, OUTSIDE, sizeof(data));
	for (uint64_t at = 0; at < size; at += sizeof(data))
		CHECK(pwrite_full(fd, data, MIN(sizeof(data), size - at), at) == 0);
	close(fd);
}

/* Moves an item out of the way, and puts a symlink to the outside in its place. */
static void replace(struct item *it)
{
	int dir = dirs[it->dir].fd;
	char target[128];

	as_nobody(false);
	put_outside("file", it->size);
	for (unsigned i = 0; i < n_items && it->kind == DIR_; i++)
		if (items[i].dir == it->made_dir &&
		    (items[i].kind == REG || items[i].kind == SPARSE))
			put_outside(items[i].name, items[i].size);
	snprintf(target, sizeof(target), "%s/outside%s", sample_dir,
		 it->kind == DIR_ ? "" : "/file");
	CHECK(renameat(dir, it->name, top, "aside") == 0);
	CHECK(symlinkat(target, dir, it->name) == 0);
	as_nobody(true);
}

static void put_back(const struct item *it)
{
	int dir = dirs[it->dir].fd;

	as_nobody(false);
	CHECK(unlinkat(dir, it->name, 0) == 0);
	CHECK(renameat(top, "aside", dir, it->name) == 0);
	for (unsigned i = 0; i < n_items; i++)
		unlinkat(outside, items[i].name, 0);
	as_nobody(true);
}

/* ---- the target ---- */

static void read_tree(void)
{
	struct container *c, *again;
	int r = open_tree(&c);

	check_refusal(r);
	if (r < 0)
		return;
	CHECK(c->n_entries == n_items);
	for (unsigned i = 0; i < n_items; i++)
		check_entry(c, &items[i]);
	for (unsigned i = 0; i < n_items; i++)
		read_one(c, &items[i], false);
	CHECK(open_tree(&again) == 0);
	compare_lists(c, again);
	container_close(again);
	for (unsigned i = 0; i < n_items; i++) {
		if (!items[i].replaced)
			continue;
		replace(&items[i]);
		for (unsigned j = 0; j < n_items; j++)
			read_one(c, &items[j], true);
		put_back(&items[i]);
	}
	container_close(c);
}

static void remove_all(void)
{
	as_nobody(false);
	for (unsigned i = 0; i < n_items; i++) /* nobody but root comes into a locked one */
		if (items[i].kind == DIR_)
			fchmod(dirs[items[i].made_dir].fd, 0700);
	while (n_items-- > 0) {
		struct item *it = &items[n_items];

		CHECK(unlinkat(dirs[it->dir].fd, it->name, it->kind == DIR_ ? AT_REMOVEDIR : 0) ==
		      0);
		if (it->kind == DIR_)
			close(dirs[it->made_dir].fd);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char path[80];

	(void)argc;
	(void)argv;
	sample_mkdir();
	carton_log_set(sample_silent, NULL);
	is_root = geteuid() == 0;
	snprintf(path, sizeof(path), "%s/outside", sample_dir);
	CHECK(mkdir(path, 0755) == 0 && chmod(sample_dir, 0755) == 0);
	top = open(sample_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	outside = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/tree", sample_dir);
	CHECK(mkdir(path, 0700) == 0 && (!is_root || chown(path, NOBODY, 0) == 0));
	dirs[0].fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(top >= 0 && outside >= 0 && dirs[0].fd >= 0);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct input in = { data, n };

	n_items = 0;
	n_dirs = 1;
	as_nobody(true);
	while (in.n > 0 && n_items < MAX_ITEMS)
		make(&in);
	read_tree();
	remove_all();
	return 0;
}
