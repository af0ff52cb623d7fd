/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/objects.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/hasher.h"
#include "base/own.h"
#include "carton/opened.h"
#include "writer/newfile.h"

#define COPY_BLOCK MIB

/* Reads a pinned file: into `fd`, or -1, and into `h`, or NULL. */
static int copy_object(struct node *file, int fd, char *block, struct hasher *h)
{
	uint64_t at = 0;
	ssize_t got;
	int r = 0;

	while (r == 0 && (got = carton_read(from_node(file), block, COPY_BLOCK, at, false)) != 0) {
		r = got < 0 ? (int)got : 0;
		if (r == 0 && fd >= 0)
			r = pwrite_full(fd, block, (size_t)got, at);
		if (r == 0 && h)
			r = hasher_feed(h, block, (size_t)got);
		at += got > 0 ? (uint64_t)got : 0;
	}
	return r;
}

/* Copies it to the directory of the objects, if there is one, and to the hasher. */
static int put_object(const struct pack_plan *p, struct node *file, char *block, struct hasher *h)
{
	char hex[2 * SHA256_SIZE + 1], *path;
	struct newfile out;
	int r;

	if (!p->options->objects)
		return h ? copy_object(file, -1, block, h) : 0;
	hex_encode(object_sha256(node_object(file)), SHA256_SIZE, hex);
	if (asprintf(&path, "%s/%s", p->options->objects, hex) < 0)
		return -ENOMEM;
	r = newfile_begin(path, &out);
	if (r == 0) {
		r = copy_object(file, out.fd, block, h);
		if (r == 0)
			r = newfile_publish(&out);
		else
			carton_log(CARTON_LOG_ERROR, path, "cannot be written: %s",
				   carton_write_error(r));
		newfile_end(&out);
	}
	free(path);
	return r;
}

/* A file that is left out, pinned. */
static int put_linked(const struct pack_plan *p, struct chunks_writer *writer, struct node *file,
		      char *block)
{
	struct chunks_made made = { node_size(file), chunks_size_for(node_size(file)), NULL };
	struct ingested found;
	struct hasher h;
	int r;

	if (!p->index || node_size(file) <= CHUNKS_MIN_FILE)
		return put_object(p, file, block, NULL);
	r = hasher_begin(&h, NULL, true);
	if (r < 0)
		return r;
	hasher_keep_states(&h, made.chunk_size);
	r = put_object(p, file, block, &h);
	if (r < 0) {
		hasher_abort(&h);
		return r;
	}
	r = hasher_end(&h, &found);
	if (r < 0)
		return r;
	made.size = found.size;
	made.slots = found.states;
	r = chunks_writer_add(writer, &made);
	chunks_made_finish(&made);
	return r;
}

uint64_t objects_fetched(const struct pack_plan *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < p->n_linked && p->options->mode == CARTON_IMPORT; i++)
		sum += node_size(p->linked[i]);
	return sum;
}

/* Of one file after the other. */
struct fetched {
	carton_progress_fn *progress;
	void *ctx;
	uint64_t before; /* bytes of earlier files, */
	uint64_t start;	 /* and what the carton had read by then */
};

static void show_fetched(void *ctx, uint64_t done, uint64_t total)
{
	const struct fetched *f = ctx;

	f->progress(f->ctx, f->before + done - f->start, total);
}

/* Fetches a file as a whole: as it is pinned, its chunks may be read without that. */
static int fetch_object(const struct pack_plan *p, struct node *file, struct fetched *f)
{
	struct carton_node *node = from_node(file);
	const struct carton_files one = { &node, 1 };
	int why = 0;
	ssize_t bad;

	f->start = object_store_ingested(p->c->store);
	bad = carton_materialize(p->c, &one, show_fetched, f, &why);
	f->before += node_size(file);
	return bad < 0 ? (int)bad : bad ? why : 0;
}

int objects_put(const struct pack_plan *p, struct chunks_writer *chunks,
		carton_progress_fn *progress, void *ctx)
{
	struct fetched fetched = { .progress = progress, .ctx = ctx };
	bool fetches = p->options->mode == CARTON_IMPORT;
	char *block = malloc(COPY_BLOCK);
	int r = block ? 0 : -ENOMEM;

	for (size_t i = 0; i < p->n_linked && r == 0; i++) {
		struct node *file = p->linked[i];

		if (!p->options->objects && !file->file.entry && !fetches)
			continue;
		r = fetches ? fetch_object(p, file, &fetched) : 0;
		if (r == 0)
			r = carton_pin_wait(p->c, from_node(file));
		if (r < 0)
			break;
		r = put_linked(p, chunks, file, block);
		carton_unpin(from_node(file));
	}
	free(block);
	return r;
}

int objects_directory(const char *path)
{
	int r = path ? own_make_dir(AT_FDCWD, path, 0777) : 0;

	if (r == 0 || r == -EEXIST)
		return 0;
	return log_error(r, path, "cannot be made: %s", strerror(-r));
}
