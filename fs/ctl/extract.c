/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cartonctl extract`: a verified copy of a carton's files in a directory.
 *
 * Each file is written under a temporary name and then renamed, so no file is ever incomplete.
 * MANIFEST comes last: a directory that has it is complete. Files that are there with the right
 * hash are kept, so an interrupted extraction is resumed by running it again. No file replaces
 * another one of the carton whose name the file system takes for the same (ctl/outnames.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "ctl/outdir.h"
#include "ctl/outnames.h"
#include "common/numbers.h"
#include "common/progress.h"
#include "ctl/term.h"
#include "common/text.h"

#define THREADS 8
#define BLOCK ((size_t)1 << 20)

struct extract {
	struct carton *c;
	struct outdir out;
	struct outnames names;
	struct ctl_files files;
	atomic_size_t next; /* the index in `files` that the next thread takes */
	atomic_size_t failed, kept;
	atomic_bool bad;       /* a file has failed for good */
	atomic_bool later;     /* a file has failed, but may succeed later */
	atomic_bool full;      /* the disk is full: no further file is begun */
	_Atomic uint64_t done; /* bytes written; twice those of files that are kept */
	uint64_t total;	       /* bytes, as far as known */
	size_t n_links;	       /* of the files: symlinks */
};

/* Reports a failure that the library has not reported. Returns `r`. */
static int report(const struct extract *x, const char *path, const char *what, int r)
{
	carton_log(CARTON_LOG_ERROR, path, "cannot %s in %s: %s", what, x->out.path,
		   carton_write_error(r));
	return r;
}

/* ---- one file ---- */

/* Is the file there already? */
static bool is_there(const struct extract *x, struct carton_node *node, int parent,
		     const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct carton_stat want;
	struct stat st;
	bool same;

	if (fd < 0)
		return false;
	carton_stat(node, &want);
	same = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && outdir_trusts(&x->out, &st) &&
	       (!want.size_certain || (uint64_t)st.st_size == want.size) &&
	       carton_compare(node, fd) == 0;
	if (same && want.executable && !(st.st_mode & 0100))
		fchmod(fd, st.st_mode | ((st.st_mode & 0444) >> 2));
	close(fd);
	return same;
}

static int write_all(int fd, const char *data, size_t n, uint64_t off)
{
	while (n > 0) {
		ssize_t done = pwrite(fd, data, n, (off_t)off);

		if (done < 0 && errno != EINTR)
			return -errno;
		if (done > 0) {
			data += done;
			off += (uint64_t)done;
			n -= (size_t)done;
		}
	}
	return 0;
}

/* Writes the bytes of a file while they are verified. */
struct writing {
	struct carton_observer observer; /* the first */
	struct extract *x;
	atomic_int error; /* of the file */
	int result;	  /* all bytes are there, and right (0) */
};

static void write_bytes(struct carton_observer *observer, uint64_t off, const void *data, size_t n)
{
	struct writing *w = (struct writing *)observer;
	int r = atomic_load(&w->error) ? 0 : write_all(observer->fd, data, n, off);

	if (r < 0)
		atomic_store(&w->error, r);
	atomic_fetch_add(&w->x->done, n);
}

static void end_writing(struct carton_observer *observer, int result)
{
	((struct writing *)observer)->result = result;
}

/* Copies a pinned file. *ret_reported: the library has said why it failed. */
static int copy_bytes(struct extract *x, struct carton_node *node, int fd, bool *ret_reported)
{
	char *buf = malloc(BLOCK);
	uint64_t off = 0;
	ssize_t n = 0;
	int r = buf ? 0 : -ENOMEM;

	while (r == 0 && (n = carton_read(node, buf, BLOCK, off, false)) > 0) {
		r = write_all(fd, buf, (size_t)n, off);
		off += (uint64_t)n;
		atomic_fetch_add(&x->done, (uint64_t)n);
	}
	free(buf);
	*ret_reported = n < 0;
	return r < 0 ? r : (int)n;
}

/*
 * Writes the bytes of a file. They are right when it returns 0: those that were written while they
 * were verified; or, where they were verified before, or come from elsewhere, a copy of them.
 */
static int fill_file(struct extract *x, struct carton_node *node, int fd, bool *ret_reported)
{
	struct writing w = { { write_bytes, end_writing, fd }, x, 0, 0 };
	int r = carton_pin_wait_observed(node, &w.observer), error = atomic_load(&w.error);

	*ret_reported = r < 0 && !error;
	if (r < 0)
		return error ? error : r;
	if (error)
		r = error;
	else if (w.result < 0)
		r = ftruncate(fd, 0) < 0 ? -errno : copy_bytes(x, node, fd, ret_reported);
	carton_unpin(node);
	return r;
}

/* Makes the file under its temporary name. */
static int make_file(struct extract *x, struct carton_node *node, const char *path,
		     const char *tmp_name)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { 0 } };
	const char *target = carton_target(node);
	bool reported = false;
	struct carton_stat st;
	int fd, r;

	if (target)
		return symlinkat(target, x->out.tmp, tmp_name) < 0 ?
			       report(x, path, "be made", -errno) :
			       0;
	carton_stat(node, &st);
	times[1].tv_sec = (time_t)st.mtime;
	fd = openat(x->out.tmp, tmp_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    st.executable ? 0777 : 0666);
	r = fd < 0 ? -errno : fill_file(x, node, fd, &reported);
	if (r == 0 && futimens(fd, times) < 0)
		r = -errno;
	if (fd >= 0 && close(fd) < 0 && r == 0)
		r = -errno;
	return r < 0 && !reported ? report(x, path, "be written", r) : r;
}

static int extract_one(struct extract *x, size_t i, struct outdir_parent *p)
{
	struct carton_node *node = x->files.list[i];
	char path[4096], tmp_name[24];
	const char *name;
	int r;

	carton_path(node, path);
	r = outdir_parent(&x->out, p, path, &name);
	if (r < 0)
		return report(x, path, "be made", r);
	if (outnames_was_there(node) && !carton_target(node) && is_there(x, node, p->fd, name)) {
		struct carton_stat st;

		carton_stat(node, &st);
		atomic_fetch_add(&x->done, 2 * st.size);
		atomic_fetch_add(&x->kept, 1);
		return 0;
	}
	snprintf(tmp_name, sizeof(tmp_name), "%zu", i);
	r = make_file(x, node, path, tmp_name);
	if (r < 0) {
		unlinkat(x->out.tmp, tmp_name, 0);
		return r;
	}
	r = outnames_place(&x->names, tmp_name, p->fd, node);
	if (r < 0)
		unlinkat(x->out.tmp, tmp_name, 0);
	/* -EEXIST: two names are one file here; outnames_report() logs all such names at the end */
	return r < 0 && r != -EEXIST ? report(x, path, "be replaced", r) : r;
}

/* ---- all files ---- */

static void *run_thread(void *extract)
{
	struct extract *x = extract;
	struct outdir_parent parent;
	size_t i;

	parent.fd = -1;
	while (!atomic_load(&x->full) && (i = atomic_fetch_add(&x->next, 1)) < x->files.n) {
		int r = extract_one(x, i, &parent);

		if (r < 0)
			atomic_fetch_add(&x->failed, 1);
		if (r < 0)
			atomic_store(carton_error_passes(r) ? &x->later : &x->bad, true);
		if (r == -ENOSPC || r == -EDQUOT)
			atomic_store(&x->full, true);
	}
	if (parent.fd >= 0)
		close(parent.fd);
	return NULL;
}

/*
 * Progress counts each byte twice: once when it is verified (and perhaps fetched), once when it is
 * written.
 */
static void show_progress(const struct extract *x)
{
	struct carton_counters k;
	uint64_t done;

	if (!isatty(STDERR_FILENO))
		return;
	carton_counters(x->c, &k);
	done = (k.hashed_bytes + atomic_load(&x->done)) / 2;
	progress_show("extract", done < x->total ? done : x->total, x->total);
}

static void run_threads(struct extract *x)
{
	pthread_t threads[THREADS];
	size_t n = 0;

	while (n < THREADS && n < x->files.n &&
	       pthread_create(&threads[n], NULL, run_thread, x) == 0)
		n++;
	if (n == 0)
		run_thread(x);
	for (; n > 0; n--)
		while (!ctl_join(threads[n - 1]))
			show_progress(x);
	progress_clear();
}

static void add_file(void *ctx, struct carton_node *node)
{
	struct extract *x = ctx;
	struct carton_stat st;

	if (!outnames_choose(node))
		return;
	ctl_add_file(&x->files, node);
	carton_stat(node, &st);
	if (st.kind == CARTON_FILE)
		x->total += st.size;
	else
		x->n_links++;
}

/*
 * Lists the files that the paths name. *ret_manifest: MANIFEST, if all of the carton is extracted;
 * it comes last.
 */
static int list_files(struct extract *x, const struct args *a, struct carton_node **ret_manifest)
{
	struct carton_node *root;
	int status = EXIT_GOOD, error = ctl_root(x->c, &root);

	if (error < 0)
		return ctl_failed("extract", error);
	if (a->n_paths == 1) {
		ctl_walk(root, add_file, x);
		for (size_t i = 0; i < x->files.n; i++)
			if (carton_lookup(root, "MANIFEST", ret_manifest) == 0 &&
			    x->files.list[i] == *ret_manifest) {
				x->files.list[i] = x->files.list[--x->files.n];
				break;
			}
	}
	for (int i = 1; i < a->n_paths; i++) {
		struct carton_node *node;
		int one = ctl_resolve(x->c, a, a->paths[i], &node);

		if (one == EXIT_GOOD)
			ctl_walk(node, add_file, x);
		status = ctl_both(status, one);
	}
	return x->files.no_memory ? ctl_failed(x->out.path, -ENOMEM) : status;
}

/* ---- the command ---- */

int ctl_extract_prepare(struct args *a)
{
	const char *output = a->paths[0];

	if (mkdir(output, 0777) < 0 && errno != EEXIST) {
		int r = -errno;

		ctl_failed(output, r);
		return r;
	}
	a->sandbox.output = output;
	return 0;
}

/* Has a step of outnames failed? Reports that, except names: outnames_report() does. */
static bool names_failed(struct extract *x, int r)
{
	if (r < 0)
		atomic_store(&x->bad, true);
	if (r < 0 && r != -EEXIST)
		ctl_failed(x->out.path, r);
	return r < 0;
}

/* Reports how much was not extracted. Returns the exit status. */
static int failed(const struct extract *x)
{
	char count[TERM_COUNT];
	size_t n = atomic_load(&x->failed);

	outnames_report(&x->names);
	text_line(stderr, "cartonctl: %s not extracted%s",
		  n ? term_count(n, "file", count) : "the carton is",
		  atomic_load(&x->full)	 ? "; make room, and run it again to resume" :
		  atomic_load(&x->later) ? "; run it again to resume" :
					   "");
	return atomic_load(&x->bad) ? EXIT_BAD : EXIT_LATER;
}

/* Extracts all files; MANIFEST, if it is one of them, comes last. */
static void extract_all(struct extract *x, struct carton_node *manifest)
{
	/* after an interrupted run, much is there already */
	if (x->out.fresh)
		carton_want(&(struct carton_files){ x->files.list, x->files.n });
	run_threads(x);
	if (atomic_load(&x->failed) || atomic_load(&x->full))
		return;
	if (names_failed(x, outnames_check(&x->names, &x->files)) || !manifest)
		return;
	x->files.list[x->files.n++] = manifest; /* the list has room for it */
	atomic_store(&x->next, x->files.n - 1);
	run_thread(x);
}

static int extract(struct extract *x, const struct args *a)
{
	char count[2 * TERM_COUNT], size[SIZE_TEXT];
	struct carton_node *manifest = NULL;
	int status = list_files(x, a, &manifest);

	if (status != EXIT_GOOD)
		return status;
	if (!names_failed(x, outnames_begin(&x->names, &x->files)))
		extract_all(x, manifest);
	if (atomic_load(&x->failed) || atomic_load(&x->bad))
		return failed(x);
	printf("%s, %s in ", ctl_count(x->files.n - x->n_links, x->n_links, count),
	       format_size(x->total, size));
	term_put(x->out.path);
	if (atomic_load(&x->kept))
		printf("; %zu kept", atomic_load(&x->kept));
	putchar('\n');
	return EXIT_GOOD;
}

int ctl_extract(struct carton *c, const struct args *a)
{
	struct extract x = { .c = c,
			     .names = { .out = &x.out, .lock = PTHREAD_MUTEX_INITIALIZER } };
	int r = outdir_open(a->paths[0], &x.out), status;

	if (r == -EBUSY)
		return ctl_refuse(a->paths[0], "another process is extracting here");
	if (r < 0)
		return r == -EPERM ? EXIT_BAD : ctl_failed(a->paths[0], r);
	status = extract(&x, a);
	outnames_finish(&x.names);
	outdir_close(&x.out);
	free(x.files.list);
	return status;
}
