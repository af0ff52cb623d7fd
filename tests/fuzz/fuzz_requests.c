/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any requests of a FUSE device that another program has opened: to a real carton, through libfuse,
 * which decodes them. Each is answered once, with no more than it asked for, and in time; it takes
 * no more memory than there is to answer; what is read is right; a damaged file is not read.
 *
 * As the kernel does, it names inodes of this process only after it was told them, and so with open
 * files; all other numbers are any.
 *
 * The input: requests of 12 bytes each: what, the inode or open file, form, size of the name, a
 * number; the name.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sanitizer/allocator_interface.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>

#include "sample.h"
#include "mount/status_files.h"

#define REPLY_S 20	    /* without an answer: it hangs */
#define MAX_BLOCK (8 << 20) /* bytes of memory, whatever is asked for */
#define MAX_REQUESTS 64
#define MAX_OPEN 16
#define MAX_INODES 256
#define EPOCH 2
#define INTERRUPT (1ULL << 62) /* of its number: libfuse may answer it later, or not at all */
#define ROOM (10 * 1024)       /* of a request: what libfuse reads behind it is zero */

struct asked {
	uint64_t unique, ino, off, fh;
	uint32_t opcode, size;
	bool answered, lost; /* lost: the kernel has given the request up */
};

static struct mount mount = {
	.epoch = EPOCH,
	.first_open = PTHREAD_MUTEX_INITIALIZER,
	.push_patience = 1,
};
static struct status counts = {
	.lock = PTHREAD_MUTEX_INITIALIZER, .source = "s", .mountpoint = "m", .verify = "auto"
};
static fuse_ino_t big, small, bad;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct asked asked[MAX_REQUESTS];
static size_t n_asked, n_left;
static uint64_t unique = 2;
static uint64_t inodes[MAX_INODES] = { 1, 2, 3, 4 };
static size_t n_inodes = 4;
static struct opened {
	uint64_t ino, fh;
} opened[MAX_OPEN];
static size_t n_opened;

/* ---- answers ---- */

static void learn(uint64_t ino)
{
	for (size_t i = 0; i < n_inodes; i++)
		if (inodes[i] == ino)
			return;
	if (ino && n_inodes < MAX_INODES)
		inodes[n_inodes++] = ino;
}

static void check_bytes(const struct asked *q, const char *data, size_t n)
{
	CHECK(n <= q->size && q->ino != bad);
	if (q->ino != big && q->ino != small)
		return;
	CHECK(n == 0 || q->off + n <= (q->ino == big ? SAMPLE_BIG : SAMPLE_SMALL));
	CHECK(n == 0 || memcmp(data, sample_big + q->off, n) == 0);
}

static void check_name(const char *name, size_t n)
{
	CHECK(n > 0 && n <= 255 && !memchr(name, '/', n) && !memchr(name, '\0', n));
}

static void check_list(const struct asked *q, const char *data, size_t n)
{
	const bool plus = q->opcode == FUSE_READDIRPLUS;
	uint64_t last = q->off;

	CHECK(n <= q->size);
	for (size_t at = 0; at < n;) {
		const struct fuse_entry_out *e = (const void *)(data + at);
		const struct fuse_dirent *d = plus ? (const void *)(e + 1) : (const void *)e;
		size_t size = (plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET) + d->namelen;

		CHECK(size <= n - at && d->off > last);
		check_name(d->name, d->namelen);
		last = d->off;
		if (plus)
			learn(e->nodeid);
		at += FUSE_DIRENT_ALIGN(size);
	}
}

static void check_answer(struct asked *q, const struct fuse_out_header *out, const char *data,
			 size_t n)
{
	if (out->error) {
		CHECK(n == 0 && out->error < 0 && out->error > -1000);
		return;
	}
	switch (q->opcode) {
	case FUSE_READ:
		check_bytes(q, data, n);
		break;
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		check_list(q, data, n);
		break;
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
		CHECK(q->size == 0 ? n == sizeof(struct fuse_getxattr_out) : n <= q->size);
		break;
	case FUSE_LOOKUP:
		CHECK(n == sizeof(struct fuse_entry_out));
		learn(((const struct fuse_entry_out *)(const void *)data)->nodeid);
		break;
	case FUSE_OPEN:
		CHECK(n == sizeof(struct fuse_open_out) && q->ino != bad);
		if (q->lost)
			break;
		CHECK(n_opened < MAX_OPEN);
		opened[n_opened++] = (struct opened){
			q->ino, ((const struct fuse_open_out *)(const void *)data)->fh
		};
		break;
	case FUSE_READLINK:
		CHECK(n <= 4096);
		break;
	case FUSE_IOCTL:
		CHECK(n <= sizeof(struct fuse_ioctl_out) + q->size);
		break;
	}
}

static ssize_t on_writev(int fd, struct iovec *iov, int n, void *userdata)
{
	const struct fuse_out_header *out = iov[0].iov_base;
	char *all = malloc(out->len), *end = all;
	struct asked *q = NULL;
	bool lost;

	(void)fd;
	(void)userdata;
	CHECK(all && iov[0].iov_len >= sizeof(*out));
	for (int i = 0; i < n; i++) {
		CHECK(iov[i].iov_len <= out->len - (size_t)(end - all));
		end = mempcpy(end, iov[i].iov_base, iov[i].iov_len);
	}
	CHECK(out->len == (size_t)(end - all));
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n_asked && out->unique; i++)
		if (asked[i].unique == out->unique)
			q = &asked[i];
	if (out->unique & INTERRUPT)
		CHECK(out->error == -EAGAIN && out->len == sizeof(*out));
	else /* a notification has no request */
		CHECK(!out->unique == !q && (!q || !q->answered));
	if (q) {
		q->answered = true;
		n_left--;
		check_answer(q, out, all + sizeof(*out), (size_t)(end - all) - sizeof(*out));
		pthread_cond_signal(&changed);
	}
	lost = q && q->lost;
	pthread_mutex_unlock(&lock);
	free(all);
	return lost ? (errno = ENOENT, -1) : end - all;
}

static ssize_t on_read(int fd, void *buf, size_t n, void *userdata)
{
	(void)fd;
	(void)buf;
	(void)n;
	(void)userdata;
	abort();
}

static void wait_all(void)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += REPLY_S;
	pthread_mutex_lock(&lock);
	while (n_left > 0)
		CHECK(pthread_cond_timedwait(&changed, &lock, &end) == 0);
	pthread_mutex_unlock(&lock);
}

/* ---- requests ---- */

struct message {
	struct fuse_in_header head;
	char body[ROOM];
};

static void send_request(struct message *m, size_t body, struct asked *q)
{
	struct fuse_buf buf = { .mem = m, .size = sizeof(m->head) + body };

	m->head.len = (uint32_t)buf.size;
	m->head.opcode = q->opcode;
	unique += 2;
	m->head.unique = q->unique = unique | (q->opcode == FUSE_INTERRUPT ? INTERRUPT : 0);
	m->head.nodeid = q->ino;
	if (q->opcode != FUSE_FORGET && q->opcode != FUSE_BATCH_FORGET &&
	    q->opcode != FUSE_INTERRUPT) {
		pthread_mutex_lock(&lock);
		CHECK(n_asked < MAX_REQUESTS);
		asked[n_asked++] = *q;
		n_left++;
		pthread_mutex_unlock(&lock);
	}
	fuse_session_process_buf(mount.session, &buf);
}

/* What the kernel was told, or any number that this process cannot have told it. */
static uint64_t choose_inode(uint8_t which, uint64_t number)
{
	uint64_t ino;

	pthread_mutex_lock(&lock);
	ino = inodes[which % n_inodes];
	pthread_mutex_unlock(&lock);
	if (which < 0xf0)
		return ino;
	return (number & 0xffffffffffff) | (which & 1 ? (uint64_t)(EPOCH + which) << 48 : 0);
}

static size_t fill_io(struct message *m, struct asked *q, uint8_t which, uint8_t form)
{
	struct fuse_read_in *in = (struct fuse_read_in *)m->body;

	/* a file that an earlier process has opened */
	q->fh = EPOCH - 1;
	if (q->opcode == FUSE_READ && n_opened > 0 && form & 1) {
		q->ino = opened[which % n_opened].ino;
		q->fh = opened[which % n_opened].fh;
	}
	in->fh = q->fh;
	in->offset = q->off;
	in->size = q->size;
	return sizeof(*in);
}

static void release(size_t i)
{
	struct message *m = calloc(1, sizeof(*m));
	struct asked q = { .opcode = FUSE_RELEASE, .ino = opened[i].ino };

	CHECK(m);
	/* the kernel sends it after all others of the file */
	wait_all();
	((struct fuse_release_in *)m->body)->fh = opened[i].fh;
	opened[i] = opened[--n_opened];
	send_request(m, sizeof(struct fuse_release_in), &q);
	free(m);
	wait_all();
}

static const uint32_t opcodes[] = {
	FUSE_LOOKUP,	  FUSE_FORGET,	  FUSE_BATCH_FORGET, FUSE_GETATTR,
	FUSE_READLINK,	  FUSE_OPEN,	  FUSE_READ,	     FUSE_RELEASE,
	FUSE_OPENDIR,	  FUSE_READDIR,	  FUSE_STATFS,	     FUSE_GETXATTR,
	FUSE_READDIRPLUS, FUSE_INTERRUPT, FUSE_IOCTL,	     FUSE_LISTXATTR,
};

/* Those that are not answered here: libfuse says ENOSYS. */
static bool is_other(uint32_t opcode)
{
	return opcode == FUSE_SETATTR || (opcode >= FUSE_SYMLINK && opcode <= FUSE_LINK) ||
	       opcode == FUSE_FSYNC || opcode == FUSE_ACCESS || opcode == FUSE_CREATE ||
	       opcode == FUSE_FALLOCATE || opcode == FUSE_LSEEK ||
	       opcode > FUSE_COPY_FILE_RANGE + 2;
}

/* Its body; the name is at its end. */
static size_t fill(struct message *m, struct asked *q, const uint8_t *r, const char *name)
{
	size_t len = strlen(name) + 1;

	switch (q->opcode) {
	case FUSE_LOOKUP:
		memcpy(m->body, name, len);
		return len;
	case FUSE_OPEN:
		((struct fuse_open_in *)m->body)->flags = r[2] & 2 ? (uint32_t)q->off : O_RDONLY;
		q->lost = r[2] & 4;
		return sizeof(struct fuse_open_in);
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		return fill_io(m, q, r[1], r[2]);
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
		((struct fuse_getxattr_in *)m->body)->size = q->size;
		memcpy(m->body + sizeof(struct fuse_getxattr_in), name, len);
		return sizeof(struct fuse_getxattr_in) + len;
	case FUSE_INTERRUPT:
		((struct fuse_interrupt_in *)m->body)->unique = unique - 2 * (q->off % 8);
		return sizeof(struct fuse_interrupt_in);
	case FUSE_IOCTL:
		*(struct fuse_ioctl_in *)m->body = (struct fuse_ioctl_in){
			.cmd = r[2] & 1 ? _IOW('C', 1, char[8192]) : (uint32_t)(q->off >> 32),
			.in_size = r[2] & 2 ? 8192 : (uint32_t)(q->off & 0x1fff),
			.out_size = q->size
		};
		memcpy(m->body + sizeof(struct fuse_ioctl_in), name, len);
		return sizeof(struct fuse_ioctl_in) + 8192;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		memset(m->body, 0xff, 16);
		return 16;
	default:
		return 128;
	}
}

static void send_one(const uint8_t *r, const char *name)
{
	static const uint32_t sizes[] = { 0, 1, 16, 100, 4096, 131072, 1 << 20, UINT32_MAX };
	struct message *m = calloc(1, sizeof(*m));
	struct asked q = { .opcode = r[0] < 0x80 ? opcodes[r[0] % ARRAY_SIZE(opcodes)] :
						   r[0] & 0x3f };
	size_t body;

	CHECK(m);
	memcpy(&q.off, r + 4, sizeof(q.off));
	q.ino = choose_inode(r[1], q.off);
	q.size = r[2] & 8 ? (uint32_t)(q.off >> 40) : sizes[r[2] >> 5];
	/* the offset of a list is one that was given, or none at all */
	if (q.opcode == FUSE_RELEASE && n_opened > 0) {
		release(r[1] % n_opened);
	} else if (q.opcode == FUSE_OPEN && n_opened + n_left >= MAX_OPEN) {
		wait_all();
	} else if (q.opcode != FUSE_RELEASE && (r[0] < 0x80 || is_other(q.opcode))) {
		m->head.uid = r[2] & 16 ? 0 : 12345;
		body = fill(m, &q, r, name);
		send_request(m, body, &q);
		if (!(r[3] & 0x80))
			wait_all();
	}
	free(m);
}

/* ---- the target ---- */

static void nothing(void *ctx)
{
	(void)ctx;
}

static atomic_bool running;

static void on_malloc(const volatile void *p, size_t n)
{
	(void)p;
	CHECK(n <= MAX_BLOCK || !atomic_load(&running));
}

static void on_free(const volatile void *p)
{
	(void)p;
}

static fuse_ino_t inode_of(const char *path)
{
	struct carton_node *node;

	CHECK(carton_resolve(mount.carton, path, &node) == 0);
	inodes[n_inodes++] = mount_ino(&mount, node);
	return mount_ino(&mount, node);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static const struct fuse_custom_io io = { .writev = on_writev, .read = on_read };
	static struct fuse_args args; /* libfuse allocates in it */
	struct message *m = calloc(1, sizeof(*m));
	struct asked q = { .opcode = FUSE_INIT };

	(void)argc;
	args = (struct fuse_args)FUSE_ARGS_INIT(1, *argv);
	CHECK(m);
	mount.ready = mount.used = nothing;
	mount.status = &counts;
	mount.carton = sample_open();
	mount.session = fuse_session_new(&args, status_ops(), sizeof(struct fuse_lowlevel_ops),
					 &mount);
	CHECK(mount.session);
	CHECK(fuse_session_custom_io(mount.session, &io, open("/dev/null", O_RDWR)) == 0);
	*(struct fuse_init_in *)m->body = (struct fuse_init_in){
		7, 36, 65536, 0x7fffffff, 0, { 0 }
	};
	send_request(m, sizeof(struct fuse_init_in), &q);
	free(m);
	wait_all();
	n_asked = 0;
	big = inode_of("model/big");
	small = inode_of("model/small");
	bad = inode_of("model/bad");
	inode_of("model");
	inode_of("model/many");
	inode_of("views");
	CHECK(__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	atomic_store(&running, true);
	for (int i = 0; i < 24 && n >= 12; i++) {
		char name[128];
		size_t len = data[3] & 0x7f;

		len = len > n - 12 ? n - 12 : len;
		memcpy(name, data + 12, len);
		name[len] = '\0';
		send_one(data, name);
		data += 12 + len;
		n -= 12 + len;
	}
	wait_all();
	while (n_opened > 0)
		release(0);
	wait_all();
	n_asked = 0;
	atomic_store(&running, false);
	return 0;
}
