/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what the format modules produce, for tests written in another language:
 *
 *	npy			stdin: lines "DESCR DIM..."; the headers, one after another
 *	names			stdin: u32 length and name, repeated; a line as plain and as nested
 *	tensors DIR		DIR/tensor_data/index.toml: its index.json, sizes checked
 *	write DIR		the safetensors header of its numeric tensors
 *	triton DIR		the v2 request of its numeric tensors: JSON only
 *	read FILE		a safetensors file: its index.json
 *	measure COUNT		stdin: a string tensor; "BYTES WIDTH"
 *	bytes COUNT		the same, its BYTES form
 *	ucs4 COUNT WIDTH	the same, its <U form
 *
 * Exit 1 with one line on stderr when the input is refused.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/filename.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"
#include "tensor/strings.h"
#include "tensor/index_toml.h"
#include "tensor/triton.h"
#include "views/json.h"
#include "../must.h"

static int fail(const char *what, int r)
{
	fprintf(stderr, "%s (%s)\n", what, strerror(-r));
	return 1;
}

static int print(struct buf *b, int r)
{
	if (!r && fwrite(b->data, 1, b->len, stdout) != b->len)
		r = -EIO;
	buf_finish(b);
	return r ? fail("no output", r) : 0;
}

static ssize_t read_fd(void *ctx, void *buf, size_t n)
{
	ssize_t got = read(*(int *)ctx, buf, n);

	return got < 0 ? -errno : got;
}

/* ---- lines and names ---- */

static int cmd_npy(void)
{
	struct buf b = buf_init(GIB);
	char *line = NULL;
	size_t cap = 0;
	int r = 0;

	while (!r && getline(&line, &cap, stdin) > 0) {
		uint64_t *shape = must(calloc(strlen(line), sizeof(*shape)));
		unsigned rank = 0;
		char *descr = strtok(line, " \n"), *dim;

		while ((dim = strtok(NULL, " \n")))
			shape[rank++] = strtoull(dim, NULL, 10);
		r = npy_header(descr, shape, rank, &b);
		free(shape);
	}
	free(line);
	return print(&b, r);
}

static int cmd_names(void)
{
	char plain[TENSOR_FILENAME_SIZE], nested[TENSOR_FILENAME_SIZE];
	uint8_t len[4];
	int r = 0;

	while (!r && fread(len, 1, sizeof(len), stdin) == sizeof(len)) {
		size_t n = get_le32(len);
		char *name = must(malloc(n ? n : 1));

		if (fread(name, 1, n, stdin) != n)
			r = -EIO;
		if (!r)
			r = tensor_filename(name, n, false, plain);
		if (!r)
			r = tensor_filename(name, n, true, nested);
		if (!r)
			printf("%s\n%s\n", plain, nested);
		free(name);
	}
	return r ? fail("names", r) : 0;
}

/* ---- index.toml ---- */

static int write_out(void *ctx, const void *data, size_t n)
{
	return fwrite(data, 1, n, ctx) == n ? 0 : -EIO;
}

static int file_size(void *ctx, const char *path, uint64_t *ret)
{
	struct stat st;

	if (fstatat(*(int *)ctx, path, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EISDIR;
	*ret = (uint64_t)st.st_size;
	return 0;
}

static int load(const char *dir, struct index_toml **ret)
{
	struct reason error = { 0 };
	int root = open(dir, O_PATH | O_DIRECTORY);
	int fd = openat(root, "tensor_data/index.toml", O_RDONLY);
	int r = fd < 0 ? -errno : index_toml_parse(read_fd, &fd, NULL, ret, &error);

	if (!r) {
		r = index_toml_check_files(*ret, file_size, &root);
		if (r)
			index_toml_free(*ret);
	}
	fd_close(fd);
	fd_close(root);
	if (r)
		fprintf(stderr, "line %zu: %s\n", error.line, error.text);
	return r;
}

static int add_good(struct view_json *j, const struct tensor *t)
{
	char name[TENSOR_FILENAME_SIZE], bin[300], npy[300];
	struct view_json_text files[2] = { { bin, 0 }, { npy, 0 } };
	struct view_json_text inner[64];
	struct view_json_tensor out = { .info = &t->info, .dtype = t->info.dtype->name };
	int r = tensor_filename(t->info.name, t->info.name_len, t->info.dtype == dtype_nested,
				name);

	if (r)
		return r;
	files[0].n = (size_t)snprintf(bin, sizeof(bin), "%s.bin", name);
	files[1].n = (size_t)snprintf(npy, sizeof(npy), "%s.npy", name);
	for (size_t i = 0; i < t->n_inner && i < ARRAY_SIZE(inner); i++)
		inner[i] = (struct view_json_text){ t->inner[i].name, t->inner[i].len };
	out.files = files;
	out.n_files = t->info.dtype == dtype_nested ? 0 : t->info.dtype->npy ? 2 : 1;
	out.inner = inner;
	out.n_inner = MIN(t->n_inner, ARRAY_SIZE(inner));
	out.bytes = t->info.dtype->bits ? t->info.bytes : VIEW_JSON_UNKNOWN;
	return view_json_tensor(j, &out);
}

static int cmd_tensors(const char *dir)
{
	struct view_json j;
	struct index_toml *t;
	int r = load(dir, &t);

	if (r)
		return fail("index.toml", r);
	view_json_init(&j, write_out, stdout);
	for (size_t i = 0; i < t->n && !r; i++)
		r = t->list[i].problem ? 0 : add_good(&j, &t->list[i]);
	if (!r && t->problem)
		r = view_json_problem(&j, (struct view_json_text){ NULL, 0 }, t->problem_line,
				      t->problem);
	for (size_t i = 0; i < t->n && !r; i++) {
		const struct tensor *bad = &t->list[i];
		struct view_json_text name = { bad->info.name, bad->info.name_len };

		if (bad->problem)
			r = view_json_problem(&j, name, bad->line, bad->problem);
	}
	if (!r)
		r = view_json_end(&j);
	view_json_finish(&j);
	index_toml_free(t);
	return r ? fail("tensors", r) : 0;
}

static int cmd_write(const char *dir)
{
	struct buf b = buf_init(GIB);
	struct safetensors_item *items;
	struct index_toml *t;
	size_t n = 0;
	int r = load(dir, &t);

	if (r)
		return fail("index.toml", r);
	items = must(calloc(t->n + 1, sizeof(*items)));
	for (size_t i = 0; i < t->n; i++) {
		if (!t->list[i].problem && safetensors_can_hold(&t->list[i].info))
			items[n++].info = &t->list[i].info;
	}
	r = safetensors_header(items, n, &b);
	free(items);
	index_toml_free(t);
	return print(&b, r);
}

static int cmd_triton(const char *dir)
{
	struct buf b = buf_init(MAX_TRITON_JSON);
	struct triton_tensor *inputs;
	struct index_toml *t;
	uint64_t body;
	size_t n = 0;
	int r = load(dir, &t);

	if (r)
		return fail("index.toml", r);
	inputs = must(calloc(t->n + 1, sizeof(*inputs)));
	for (size_t i = 0; i < t->n; i++) {
		if (!t->list[i].problem && t->list[i].info.dtype->bits)
			inputs[n++] = (struct triton_tensor){ .info = t->list[i].info };
	}
	triton_sort(inputs, n);
	r = triton_request(inputs, n, &b, &body);
	free(inputs);
	index_toml_free(t);
	return print(&b, r);
}

/* ---- safetensors ---- */

static int read_at(void *ctx, void *buf, size_t n, uint64_t off)
{
	return pread_full(*(int *)ctx, buf, n, off);
}

static int cmd_read(const char *path)
{
	struct reason error = { 0 };
	struct safetensors *s;
	struct view_json j;
	struct stat st = { 0 };
	int fd = open(path, O_RDONLY);
	int r = fstat(fd, &st) ? -errno : 0;

	if (!r)
		r = safetensors_parse(
			&(struct safetensors_file){ read_at, &fd, (uint64_t)st.st_size, NULL }, &s,
			&error);
	fd_close(fd);
	if (r)
		return fail(error.text, r);
	view_json_init(&j, write_out, stdout);
	for (size_t i = 0; i < s->n && !r; i++) {
		struct view_json_tensor t = { .info = &s->list[i] };

		t.dtype = t.info->dtype->safetensors;
		t.bytes = t.info->bytes;
		r = view_json_tensor(&j, &t);
	}
	for (size_t i = 0; i < s->n_metadata && !r; i++) {
		const struct safetensors_pair *p = &s->metadata[i];

		r = view_json_pair(&j, (struct view_json_text){ p->key, p->key_len },
				   (struct view_json_text){ p->value, p->value_len });
	}
	if (!r)
		r = view_json_end(&j);
	view_json_finish(&j);
	safetensors_free(s);
	return r ? fail("read", r) : 0;
}

/* ---- strings ---- */

static int cmd_strings(const char *what, uint64_t count, uint64_t width)
{
	struct reason error = { 0 };
	struct strings_size size;
	int fd = STDIN_FILENO, r;

	if (!strcmp(what, "measure")) {
		r = strings_measure(read_fd, &fd, &size, &error);
		if (!r)
			printf("%" PRIu64 " %" PRIu64 "\n", size.bytes, size.width);
	} else {
		const struct strings_output out = {
			.count = count, .width = width, .write = write_out, .ctx = stdout
		};

		r = strings_emit(read_fd, &fd, &out, &error);
	}
	return r ? fail(error.text, r) : 0;
}

int main(int argc, char **argv)
{
	const char *cmd = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "";

	if (!strcmp(cmd, "npy"))
		return cmd_npy();
	if (!strcmp(cmd, "names"))
		return cmd_names();
	if (!strcmp(cmd, "tensors"))
		return cmd_tensors(arg);
	if (!strcmp(cmd, "write"))
		return cmd_write(arg);
	if (!strcmp(cmd, "triton"))
		return cmd_triton(arg);
	if (!strcmp(cmd, "read"))
		return cmd_read(arg);
	if (!strcmp(cmd, "measure") || !strcmp(cmd, "bytes") || !strcmp(cmd, "ucs4"))
		return cmd_strings(cmd, strtoull(arg, NULL, 10),
				   argc > 3 ? strtoull(argv[3], NULL, 10) : 0);
	fprintf(stderr, "usage: format-tool COMMAND [ARGUMENT...], see its source\n");
	return 2;
}
