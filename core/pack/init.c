/* SPDX-License-Identifier: Apache-2.0 */
/* Writes carton.toml for a directory of a model's files, after a look at them. */
#include "carton/opened.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/what.h"
#include "import/listing.h"
#include "open/kind.h"
#include "open/load.h"
#include "writer/lists.h"

#define TAIL MIB /* bytes at the end of a zip file in which its names are looked for */

/* ---- the name ---- */

/*
 * Copies the characters that can be shown, and others as '_'. Leading dots are left out: the name
 * is not to be that of a hidden file.
 */
static void clean(const char *s, char ret[CARTON_MAX_NAME])
{
	char shown[CARTON_ESCAPE_SIZE];
	size_t n = strlen(s), at = 0;

	s += strspn(s, ".");
	for (size_t step; *s; s += step) {
		n = strlen(s);
		step = carton_escape(CARTON_ESCAPE_TEXT, s, n, shown);
		if (strlen(shown) != step || memcmp(shown, s, step) != 0)
			strcpy(shown, "_");
		if (at + strlen(shown) >= CARTON_MAX_NAME)
			break;
		strcpy(ret + at, shown);
		at += strlen(shown);
	}
	ret[at] = '\0';
	if (!at)
		strcpy(ret, "model");
}

/* The model's name is the last part of models--ORG--NAME, or that of the directory. */
static int name_directory(const struct carton_source *s, char ret[CARTON_MAX_NAME])
{
	char *path = s->hub_cache.repository ? strdup(s->hub_cache.repository) :
					       realpath(s->name, NULL);
	const char *name = path ? strrchr(path, '/') + 1 : NULL;

	if (!path)
		return -errno;
	for (const char *p; s->hub_cache.repository && (p = strstr(name, "--")); name = p + 2)
		;
	clean(name, ret);
	free(path);
	return 0;
}

static int check_name(const char *name)
{
	char cleaned[CARTON_MAX_NAME];

	clean(name, cleaned);
	if (strlen(name) < CARTON_MAX_NAME && strcmp(name, cleaned) == 0)
		return 0;
	return log_error(-EINVAL, NULL,
			 "the name is not 1 to 240 bytes of text that can be shown, without a dot "
			 "at its start");
}

/* ---- the runner ---- */

/* Is it what torch.jit.save() writes? Other .pt files have no constants. */
static bool is_torchscript(struct container *c, const struct entry *e)
{
	static const char name[] = "/constants.pkl";
	size_t n = (size_t)MIN(e->size, TAIL);
	char *tail = malloc(n + 1);
	struct source *source = NULL;
	uint64_t off;
	bool is = tail && container_locate(c, e, &source, &off) == 0 &&
		  source_pread(source, tail, n, off + e->size - n) == 0 &&
		  memmem(tail, n, name, strlen(name));

	source_unref(source);
	free(tail);
	return is;
}

static bool is_any(struct container *c, const struct entry *e)
{
	(void)c;
	(void)e;
	return true;
}

/* The runners of Carton that load a file of one name, and nothing else of the model. */
static const struct runner {
	const char *name, *framework;
	const char *file;
	bool (*loads)(struct container *c, const struct entry *e);
} runners[] = {
	{ "torchscript", "*", "model/model.pt", is_torchscript },
	{ "wasm", "=0.0.1", "model/model.wasm", is_any },
};

/* What no runner loads by itself. */
static const struct format {
	const char *end, *name;
} formats[] = {
	{ ".safetensors", "safetensors" },
	{ ".gguf", "GGUF" },
	{ ".onnx", "ONNX" },
	{ ".pt", "PyTorch" },
	{ ".pth", "PyTorch" },
	{ "pytorch_model.bin", "PyTorch" }, /* other .bin files may have any format */
	{ ".keras", "Keras" },
	{ ".h5", "Keras" },
	{ ".tflite", "TFLite" },
	{ ".pb", "TensorFlow" },
	{ ".msgpack", "Flax" },
	{ ".py", "Python" },
	{ ".engine", "TensorRT" },
	{ ".plan", "TensorRT" },
};

static const char *find_format(const struct container *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		for (size_t k = 0; k < c->n_entries; k++)
			if (strncmp(c->entries[k].name, "model/", 6) == 0 &&
			    ends_with(c->entries[k].name, formats[i].end))
				return formats[i].name;
	return "these";
}

static void choose_runner(struct container *c, struct carton_init *i)
{
	struct carton_runner *chosen = &i->runner;

	for (size_t k = 0; k < ARRAY_SIZE(runners) && !chosen->name; k++) {
		const struct runner *r = &runners[k];
		const struct entry *e = container_find(c, r->file);

		if (!e || e->kind != ENTRY_FILE || !r->loads(c, e))
			continue;
		chosen->name = r->name;
		i->found = r->file;
		chosen->framework = chosen->framework ? chosen->framework : r->framework;
	}
	if (!chosen->name) {
		chosen->name = "noop";
		i->unloaded = find_format(c);
	}
	if (!chosen->framework)
		chosen->framework = "*";
}

/* ---- the text ---- */

static int make_text(const struct carton_init *i, struct buf *ret)
{
	static const char optional[] =
		"# short_description = \"What it does, in at most 100 characters.\"\n"
		"# model_description = \"More about it, in markdown.\"\n"
		"# license = \"Apache-2.0\"\n"
		"# repository = \"https://example.com/how-it-was-packed\"\n"
		"# homepage = \"https://example.com/model\"\n"
		"# required_platforms = [\"x86_64-unknown-linux-gnu\"]\n"
		"\n"
		"# [[input]]                     # all inputs and outputs, or none\n"
		"# name = \"x\"\n"
		"# dtype = \"float32\"\n"
		"# shape = [\"batch\", 3, 224, 224]\n"
		"\n"
		"# [[output]]\n"
		"# name = \"y\"\n"
		"# dtype = \"float32\"\n"
		"# shape = [\"batch\", 1000]\n"
		"\n"
		"# [[self_test]]                 # of tensors in tensor_data/index.toml\n"
		"# inputs = { x = \"@tensor_data/x\" }\n"
		"# expected_out = { y = \"@tensor_data/y\" }\n"
		"\n"
		"# [[example]]                   # of these, or of files in misc\n"
		"# inputs = { x = \"@misc/x.png\" }\n"
		"# sample_out = { y = \"@misc/y.txt\" }\n";

	*ret = buf_init(MAX_CARTON_TOML);
	buf_adds(ret, "spec_version = 1\n");
	lists_add_string(ret, "model_name", i->name);
	buf_adds(ret, optional);
	listing_add_runner(&i->runner, ret);
	return buf_adds(ret, "\n"
			     "# [runner.opts]                 # what the runner knows\n"
			     "# num_threads = 1\n");
}

/* Writes a file that must not be there. What cannot be written whole is removed. */
static int write_new(int dir, const struct buf *text)
{
	static const char name[] = "carton.toml";
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	int r;

	if (fd < 0)
		return -errno;
	r = pwrite_full(fd, text->data, text->len, 0);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir, name, 0);
	fd_close(fd);
	return r;
}

/* ---- all ---- */

/* What pack would refuse, whatever carton.toml says. */
static int check_files(struct container *c, const char *directory)
{
	const struct entry *there = container_find(c, "carton.toml");

	if (there)
		return log_error(-EEXIST, "carton.toml",
				 "is there already, and stays as it is; without it, init "
				 "makes another");
	for (size_t i = 0; i < c->n_entries; i++)
		if (strncmp(c->entries[i].name, "model/", 6) == 0 &&
		    c->entries[i].kind != ENTRY_DIR) {
			int r = load_check_parts(c);

			what_say_cartons(c);
			return r < 0 ? r : what_say_pointers(c);
		}
	return log_error(-EBADMSG, directory,
			 "has no files of a model, in model/ or, without that, at its top");
}

/*
 * Warns of symlinks to directories, which pack will refuse. `dir` may have the model at its top,
 * while names of entries begin with model/.
 */
static void say_directory_links(const struct container *c, int dir)
{
	unsigned found = 0;

	for (size_t i = 0; i < c->n_entries && found < MAX_REPORTED; i++) {
		const char *name = c->entries[i].name;
		struct stat st;

		if (c->entries[i].kind != ENTRY_SYMLINK)
			continue;
		if (fstatat(dir, name, &st, 0) < 0 &&
		    (strncmp(name, "model/", 6) != 0 || fstatat(dir, name + 6, &st, 0) < 0))
			continue;
		if (!S_ISDIR(st.st_mode))
			continue;
		carton_log(CARTON_LOG_WARNING, name,
			   "is a symlink to a directory, which pack refuses: --dereference packs "
			   "what is in it, --exclude=GLOB leaves it out");
		found++;
	}
}

static int look(struct carton_source *s, struct carton_init *i, int dir)
{
	struct carton_paths paths = { .source = s->reads, .writes = { s->name } };
	const struct carton_options *o = s->options;
	struct container *c;
	int r = o->confine ? o->confine(o->confine_ctx, &paths) : 0;

	if (r == 0)
		r = s->kind->entries(s, &c);
	if (r < 0)
		return r;
	r = check_files(c, s->name);
	if (r == 0)
		say_directory_links(c, dir);
	if (r == 0 && !i->name) {
		r = name_directory(s, i->of_directory);
		i->name = i->of_directory;
	}
	if (r == 0)
		choose_runner(c, i);
	container_close(c);
	return r;
}

static int check_options(const struct carton_init *i)
{
	const char *fault = listing_runner_fault(&i->runner);

	if (fault)
		return log_error(-EINVAL, NULL, "%s", fault);
	return i->name ? check_name(i->name) : 0;
}

int carton_init(const char *directory, const struct carton_options *o, struct carton_init *i)
{
	const struct carton_pack_options pack = { .exclude = i->exclude,
						  .dereference = i->dereference };
	struct carton c = { 0 };
	struct carton_source s = { .kind = &path_kind,
				   .carton = &c,
				   .options = o,
				   .name = directory,
				   .fd = -1,
				   .pack = &pack };
	struct buf text = { 0 };
	int dir = -1, r = check_options(i);

	budget_init(&c.budget, o->memory);
	if (r == 0)
		r = s.kind->begin(&s);
	if (r == 0 && !s.reads)
		r = log_error(-ENOTDIR, directory, "is not a directory");
	if (r == 0) {
		dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = dir < 0 ? -errno : look(&s, i, dir);
	}
	if (r == 0)
		r = make_text(i, &text);
	if (r == 0) {
		r = write_new(dir, &text);
		if (r < 0)
			carton_log(CARTON_LOG_ERROR, "carton.toml", "cannot be written: %s",
				   carton_write_error(r));
	}
	buf_finish(&text);
	fd_close(dir);
	fd_close(s.fd);
	free(s.hub);
	hub_cache_finish(&s.hub_cache);
	return r;
}
