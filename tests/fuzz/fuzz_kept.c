/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor keeps for the next process, after its last one was in other hands: the state,
 * and the notes behind it. The next process goes on or refuses; nothing but notifications go to the
 * device; each generated node is found by the number that the kernel is told for it, and numbers of
 * earlier processes lead to generated nodes.
 *
 * The input: changes of a good state, each
 *	1, offset (2 bytes), size, bytes
 * then 0 and the notes, or 2 and the size of the file (2 bytes).
 */
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "mount/keep.h"
#include "process/notify.h"
#include "process/options.h"
#include "sample.h"
#include "mount/status_files.h"

#define MAX_STATE 8192
#define RESEND 7

static struct carton *carton;
static struct status counts = { .lock = PTHREAD_MUTEX_INITIALIZER };
static const struct options options;
static char state[MAX_STATE];
static size_t n_state;

/* Generated nodes, and one that is not. */
static const char *const paths[] = { "views", "views/tensor_data", "views/tensor_data/x.npy",
				     "views/tensor_data/x.bin", "model/small" };
static struct carton_node *nodes[ARRAY_SIZE(paths)];

static void nothing(void *ctx)
{
	(void)ctx;
}

/* Silences libfuse. */
static void no_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
}

static void mount_new(struct mount *m)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	CHECK(fuse_opt_add_arg(&args, "fuzz") == 0);
	*m = (struct mount){ .carton = carton,
			     .status = &counts,
			     .epoch = 1,
			     .ready = nothing,
			     .used = nothing,
			     .first_open = PTHREAD_MUTEX_INITIALIZER };
	m->session = fuse_session_new(&args, status_ops(), sizeof(struct fuse_lowlevel_ops), m);
	fuse_opt_free_args(&args);
	CHECK(m->session);
}

/* The environment of a main process, whose descriptors have these numbers. */
static void pass(int device, int memory)
{
	char names[256] = "";

	for (int fd = 3; fd <= device || fd <= memory; fd++)
		sprintf(names + strlen(names), "%s%s", fd == 3 ? "" : ":",
			fd == device ? NOTIFY_DEVICE :
			fd == memory ? NOTIFY_STATE :
				       "other");
	setenv("LISTEN_FDNAMES", names, 1);
}

static char *path_of(int device)
{
	char *path;

	CHECK(asprintf(&path, "/dev/fd/%d", device) > 0);
	return path;
}

/* The process and its mount, to be ended by end(). `pair` is the device, and the kernel's side. */
static int begin(struct keep *k, struct mount *m, int pair[2], int memory)
{
	char *mountpoint;
	int r;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	mountpoint = path_of(pair[0]);
	pass(pair[0], memory);
	r = keep_take(k, &mountpoint);
	CHECK(r == 0);
	mount_new(m);
	/* the session closes its device */
	CHECK(fuse_session_mount(m->session, mountpoint) == 0);
	free(mountpoint);
	keep_open(k);
	return keep_begin(k, m, &options);
}

static void end(struct keep *k, struct mount *m)
{
	inode_notes_free(m->notes);
	fuse_session_destroy(m->session);
	if (k->state)
		munmap(k->state, n_state ? n_state : MAX_STATE);
	if (k->memory >= 0)
		close(k->memory);
	close(k->marker);
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		__atomic_store_n(carton_mark(nodes[i]), 0, __ATOMIC_SEQ_CST);
}

/* ---- a good state, as the first process leaves it ---- */

static int manager; /* its socket */

static void listen_to_all(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", sample_dir);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	CHECK(bind(manager, (struct sockaddr *)&address, sizeof(address)) == 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	setenv("RUNTIME_DIRECTORY", sample_dir, 1);
	notify_open();
}

static void hear_all(void)
{
	char text[256];

	while (recv(manager, text, sizeof(text), 0) > 0)
		;
}

static void make_state(void)
{
	struct {
		struct fuse_in_header head;
		struct fuse_init_in in;
	} init = { .head = { .len = sizeof(init), .opcode = FUSE_INIT, .unique = 2 },
		   /* the last flag is FUSE_HAS_RESEND */
		   .in = { 7, 39, 65536, 0x7fffffff, 1U << 7, { 0 } } };
	struct fuse_buf buf = { 0 };
	struct stat st;
	struct mount m;
	struct keep k;
	int pair[2];

	CHECK(begin(&k, &m, pair, -1) == 0 && k.wanted && !k.resumed);
	CHECK(send(pair[1], &init, sizeof(init), 0) == sizeof(init));
	CHECK(fuse_session_receive_buf(m.session, &buf) == (int)sizeof(init));
	fuse_session_process_buf(m.session, &buf);
	free(buf.mem);
	CHECK(k.wanted && fstat(k.memory, &st) == 0 && st.st_size <= MAX_STATE);
	CHECK(pread(k.memory, state, MAX_STATE, 0) == st.st_size);
	n_state = (size_t)st.st_size;
	end(&k, &m);
	close(pair[1]);
	hear_all();
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char pid[16];

	(void)argc;
	(void)argv;
	fuse_set_log_func(no_log);
	carton = sample_open();
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		CHECK(carton_resolve(carton, paths[i], &nodes[i]) == 0);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	listen_to_all();
	make_state();
	return 0;
}

/* ---- the next process ---- */

/* Writes the state with its changes, and the notes. */
static int change(const uint8_t *data, size_t n)
{
	int fd = memfd_create("state", MFD_CLOEXEC);
	char changed[MAX_STATE];

	memcpy(changed, state, n_state);
	CHECK(fd >= 0);
	fuzz_patch(changed, n_state, &data, &n);
	CHECK(pwrite(fd, changed, n_state, 0) == (ssize_t)n_state);
	if (n >= 3 && data[0] == 2)
		CHECK(ftruncate(fd, data[1] | data[2] << 8) == 0);
	else if (n > 1)
		CHECK(pwrite(fd, data + 1, n - 1, (off_t)n_state) == (ssize_t)n - 1);
	return fd;
}

static void check_device(int fd)
{
	struct fuse_out_header out;

	while (recv(fd, &out, sizeof(out), MSG_DONTWAIT) > 0)
		CHECK(out.unique == 0 &&
		      (out.error == RESEND || out.error == FUSE_NOTIFY_INVAL_INODE));
}

static void check_nodes(const struct mount *m)
{
	CHECK(m->epoch > 1 && m->epoch <= INT16_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		uint64_t ino = mount_ino(m, nodes[i]);

		CHECK(ino > 1 && mount_node(m, ino) == nodes[i]);
	}
}

/* Each number of the notes is that of a generated node, or of none. */
static void check_notes(const struct mount *m, const uint8_t *data, size_t n)
{
	for (size_t i = 0; i + 8 <= n; i++) {
		const struct carton_node *found;
		uint64_t ino;

		memcpy(&ino, data + i, sizeof(ino));
		found = inode_notes_find(m->notes, ino);
		if (!found)
			continue;
		CHECK(ino >> 48 && ino >> 48 < m->epoch && mount_is_generated(m, found));
		CHECK(inode_notes_ino(m->notes, found));
	}
}

/* A number from outside, as of a file handle that was forged, leads to a node or nowhere. */
static void check_forged(const struct mount *m, const uint8_t *data, size_t n)
{
	for (size_t i = 0; i + 8 <= n; i++) {
		struct carton_node *node;
		uint64_t ino;

		memcpy(&ino, data + i, sizeof(ino));
		node = mount_node(m, ino);
		CHECK(!node || carton_by_number(m->carton, carton_number(m->carton, node)) == node);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	int memory = change(data, n), pair[2];
	struct mount m;
	struct keep k;

	if (begin(&k, &m, pair, memory) == 0) {
		CHECK(k.resumed && k.failed == 0);
		check_nodes(&m);
		check_notes(&m, data, n);
		check_forged(&m, data, n);
	}
	check_device(pair[1]);
	end(&k, &m);
	close(pair[1]);
	hear_all();
	return 0;
}
