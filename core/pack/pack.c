/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/packing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/decode.h"
#include "archive/encode.h"
#include "base/names.h"
#include "cache/room.h"
#include "writer/lists.h"
#include "pack/objects.h"
#include "pack/old_signature.h"

#define DEFAULT_ALIGN 4096

/* ---- options ---- */

static int refuse(const char *subject, const char *what)
{
	return log_error(-EINVAL, subject, "%s", what);
}

static int check_urls(const struct carton_pack_options *o)
{
	const char *fault;
	char shown[256];

	if (o->mode != CARTON_LINK)
		return o->urls || o->paths || o->objects ?
			       refuse(NULL,
				      "only link takes URLs, paths and a directory of objects") :
			       0;
	if (!o->urls || !o->urls[0])
		return refuse(NULL, "link needs a URL with {sha256} in it");
	for (size_t i = 0; o->urls[i]; i++) {
		fault = i < MAX_HASH_URLS ? lists_template_fault(o->urls[i]) :
					    "is one of more than 256 URLs";
		if (fault)
			return refuse(http_url_redact(o->urls[i], shown, sizeof(shown)), fault);
	}
	return 0;
}

static int check_options(const struct carton_pack_options *o)
{
	if (o->align > ZIP_MAX_ALIGN || (o->align & (o->align - 1)))
		return refuse(NULL, "the alignment has to be a power of two from 1 to 32768");
	if (o->level > ENCODE_MAX_LEVEL)
		return refuse(NULL, "the level of zstd has to be from 1 to 19");
	for (size_t i = 0; o->exclude && o->exclude[i]; i++)
		if (i == MAX_PATTERNS)
			return refuse(NULL, "at most 64 patterns exclude files");
	if (o->mode != CARTON_PACK && (o->exclude || o->dereference))
		return refuse(NULL, "only pack excludes files and follows symlinks");
	if (o->mode == CARTON_EMBED && o->chunk_index)
		return refuse(NULL, "embed makes no chunk index; repack does");
	return check_urls(o);
}

static enum compression compression_of(const struct carton_pack_options *o)
{
	switch (o->compress) {
	case CARTON_COMPRESS_STORE:
		return COMPRESS_STORE;
	case CARTON_COMPRESS_ZSTD:
		return COMPRESS_ZSTD;
	case CARTON_COMPRESS_AUTO:
		return COMPRESS_AUTO;
	default:
		return COMPRESS_KEEP;
	}
}

static unsigned threads_of(const struct carton_pack_options *o)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return o->jobs ? o->jobs : n > 0 ? (unsigned)n : 1;
}

/* ---- progress ---- */

struct shown {
	const struct packing *p;
	uint64_t before; /* bytes of earlier steps */
};

static void show(void *ctx, uint64_t done)
{
	const struct shown *s = ctx;
	const struct carton_pack_options *o = s->p->options;
	uint64_t total = s->p->total - s->p->plan.bytes; /* bytes read twice are shown once */

	done = MIN(s->before + done, s->p->total);
	if (o->progress && total)
		o->progress(o->progress_ctx,
			    (uint64_t)((double)done * (double)total / (double)s->p->total), total);
}

/* Where files are fetched for their index, that is first. */
static void show_fetched(void *ctx, uint64_t done, uint64_t total)
{
	const struct packing *p = ctx;

	(void)total;
	show(&(struct shown){ p, 0 }, done);
}

static void show_verified(void *ctx, uint64_t done, uint64_t total)
{
	(void)total;
	show(ctx, done);
}

/* ---- the source ---- */

struct confining {
	struct packing *p;
	struct carton_options options; /* of the source, and of the others */
	const char *writes[2];
};

static int confine(void *ctx, const struct carton_paths *paths)
{
	struct confining *k = ctx;
	const struct carton_options *open = k->p->open;
	struct carton_paths more = *paths;

	if (others_next(&k->p->others))
		return others_open(&k->p->others, &k->options);
	if (!open->confine)
		return 0;
	memcpy(more.writes, k->writes, sizeof(more.writes));
	return open->confine(open->confine_ctx, &more);
}

static int check_directory(const char *source)
{
	char shown[4096];
	struct stat st;
	int r = stat(source, &st) < 0 ? -errno : 0;

	http_source_label(source, shown, sizeof(shown));
	if (r < 0)
		return log_error(r, shown, "cannot open: %s", strerror(-r));
	if (!S_ISDIR(st.st_mode))
		return log_error(-ENOTDIR, shown, "is not a directory; a carton can be repacked");
	return 0;
}

/* Refuses a source that a mount, or the reference loader, would refuse as a carton. */
static int check_source(struct carton *c)
{
	ssize_t problems = carton_check_contents(c);

	if (problems < 0)
		return (int)problems;
	return problems ? -EBADMSG : 0;
}

/* Refuses an output in the packed directory: the next pack would include it. */
static int check_outside(const char *source, const char *directory, const char *out)
{
	char *above = realpath(source, NULL), *below = realpath(directory, NULL);
	size_t n = above ? strlen(above) : 0;
	struct stat st;
	int r = 0;

	if (above && below && stat(above, &st) == 0 && S_ISDIR(st.st_mode) &&
	    strncmp(above, below, n) == 0 && (below[n] == '/' || below[n] == '\0' || n == 1))
		r = log_error(-EINVAL, out,
			      "lies in %s, of which it is made; write it to another directory",
			      above);
	free(above);
	free(below);
	return r;
}

static int open_source(struct packing *p, const char *source)
{
	const char *directory = p->out.directory;
	struct confining k = { p,
			       *p->open,
			       { p->out.to < 0 ? directory : NULL, p->options->objects } };
	char shown[256];
	struct carton_options *o = &k.options;
	int r = directory ? check_outside(source, directory, p->out.path) : 0;

	o->views = NULL;
	if (o->confine || others_next(&p->others)) {
		/* the new carton is verified */
		container_prepare_compare();
		o->confine = confine;
		o->confine_ctx = &k;
	}
	if (r == 0 && p->options->mode == CARTON_PACK) {
		r = check_directory(source);
		if (r == 0)
			r = carton_open_as(OPEN_UNHASHED, source, o, p->options, &p->c);
		if (r == 0)
			r = check_source(p->c);
	} else if (r == 0) {
		r = carton_open_as(OPEN_CARTON, source, o, p->options, &p->c);
	}
	if (r == 0 && p->c->bare)
		r = log_error(
			-EOPNOTSUPP, carton_source_label(source, shown, sizeof(shown)),
			"is a bare file: cartonctl init DIR and cartonctl pack DIR OUT.carton "
			"make a carton of a directory with it");
	return r;
}

/*
 * Fetches the files that are not local and will be in the new carton: then their sizes are known.
 */
static int fetch_source(struct packing *p)
{
	const struct tree *t = p->c->tree;
	struct carton_node **list;
	struct carton_files files = { 0 };
	int why = 0;
	ssize_t bad;

	if (!carton_fetches(p->c) && p->options->mode != CARTON_EMBED)
		return 0;
	files.list = list = calloc((size_t)t->n_nodes + 1, sizeof(struct carton_node *));
	if (!list)
		return -ENOMEM;
	for (struct node *f = t->root; f; f = tree_next(t->root, f))
		if (f->kind == NODE_FILE && node_object(f) &&
		    (!f->file.entry || p->c->container->remote) && plan_includes(p->options, f))
			list[files.n++] = from_node(f);
	bad = files.n ? carton_materialize(p->c, &files, p->options->progress,
					   p->options->progress_ctx, &why) :
			0;
	free(list);
	return bad < 0 ? (int)bad : why;
}

/* ---- the new carton ---- */

/* Says of which files the user has asked for an index that no reader of this carton can use. */
static void note_useless(const struct packing *p)
{
	struct names names = { 0 };

	for (size_t i = 0; i < p->plan.n && p->options->chunk_index; i++) {
		const struct zip_entry *e = &p->plan.items[i].zip;

		if (e->size > CHUNKS_MIN_FILE && e->method != METHOD_STORED)
			names_add(&names, e->name);
	}
	if (names.n)
		carton_log(CARTON_LOG_WARNING, p->out.path,
			   "the chunk index does nothing for compressed files; "
			   "--compress=store stores them: %s",
			   names_end(&names));
}

/* Adds the chunks of the items to those of linked files; writes the index, and hashes it. */
static int put_index(struct packing *p, struct pack_job *job, struct zip_entry *e,
		     uint8_t ret_hash[SHA256_SIZE])
{
	struct buf data = { 0 };
	uint8_t *bytes = NULL;
	int r = 0;

	for (size_t i = 0; i < p->plan.n && r == 0; i++)
		r = chunks_writer_add(&p->chunks, &p->plan.items[i].chunks);
	if (r == 0)
		r = chunks_writer_end(&p->chunks, &bytes, &data.len);
	data.data = (char *)bytes;
	if (r == 0)
		r = sha256_mem(data.data, data.len, ret_hash);
	if (r == 0)
		r = zip_writer_literal(&job->zip, e, data.data, data.len, false);
	free(bytes);
	return r;
}

/* Puts an entry in its place among `n` that are sorted. */
static void insert(const struct zip_entry **entries, size_t n, const struct zip_entry *e)
{
	for (; n && strcmp(entries[n - 1]->name, e->name) > 0; n--)
		entries[n] = entries[n - 1];
	entries[n] = e;
}

/* The chunk index, LINKS, MANIFEST, the directory. */
static int finish(struct packing *p, struct pack_job *job, char ret_hash[65])
{
	const struct zip_entry **entries = calloc(p->plan.n + 3, sizeof(*entries));
	struct zip_entry links = { .name = "LINKS" }, manifest = { .name = "MANIFEST" },
			 index = { .name = CHUNKS_PATH };
	struct buf links_text = { 0 }, text = { 0 };
	uint8_t index_hash[SHA256_SIZE];
	uint8_t hash[SHA256_SIZE];
	size_t n = p->plan.n;
	int r = entries ? plan_links(&p->plan, &links_text) : -ENOMEM;

	if (r == 0 && p->plan.index)
		r = put_index(p, job, &index, index_hash);
	if (r == 0)
		r = plan_manifest(&p->plan, p->plan.index ? index_hash : NULL, &text);
	if (r == 0)
		r = sha256_mem(text.data, text.len, hash);
	if (r < 0)
		goto out;
	hex_encode(hash, SHA256_SIZE, ret_hash);
	for (size_t i = 0; i < n; i++)
		entries[i] = &p->plan.items[i].zip;
	if (p->plan.index)
		insert(entries, n++, &index);
	if (links_text.len) {
		r = zip_writer_literal(&job->zip, &links, links_text.data, links_text.len, false);
		entries[n++] = &links;
	}
	if (r == 0)
		r = zip_writer_literal(&job->zip, &manifest, text.data, text.len, true);
	entries[n++] = &manifest;
	if (r == 0)
		r = zip_writer_end(&job->zip, entries, n);
	if (r < 0)
		carton_log(CARTON_LOG_ERROR, p->out.path, "cannot be written: %s",
			   carton_write_error(r));
out:
	buf_finish(&links_text);
	buf_finish(&text);
	free(entries);
	return r;
}

static int write_carton(struct packing *p, char ret_hash[65])
{
	const struct carton_pack_options *o = p->options;
	struct shown shown = { p, objects_fetched(&p->plan) };
	struct pack_job job = {
		.zip = { p->out.fd, 0, o->align ? o->align : DEFAULT_ALIGN },
		.items = p->plan.items,
		.n = p->plan.n,
		.chunks = p->plan.index,
		.tagger = p->tagger,
		.container = p->c->container,
		.ops = &plan_ops,
		.ctx = &p->plan,
		.compress = compression_of(o),
		.level = o->level,
		.threads = threads_of(o),
		.memory = budget_left(&p->c->budget) / 2,
		.progress = show,
		.progress_ctx = &shown,
	};
	int r = pack_run(&job);

	return r == 0 ? finish(p, &job, ret_hash) : r;
}

/* Opens the new carton as a reader does, and verifies all of it. */
static int verify_carton(struct packing *p, const char *hash)
{
	struct carton_options o = {
		.manifest_sha256 = hash,
		.memory = p->open->memory,
		.offline = true,
	};
	const struct pack_tags made = { p->plan.items, p->plan.n, p->tagger, p->plan.index };
	struct shown shown = { p, p->total - p->plan.bytes };
	struct carton *c;
	ssize_t problems;
	char self[32];
	int r;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", p->out.fd);
	r = carton_open_as(OPEN_HELD, self, &o, NULL, &c);
	if (r < 0)
		return r;
	problems = carton_verify_held(c, &made, show_verified, &shown);
	if (problems == 0)
		p->old_signature = old_signature_beside(&p->out, c->manifest, &c->budget);
	carton_close(c);
	return problems < 0 ? (int)problems : problems ? -EBADMSG : 0;
}

/* ---- all ---- */

static int run(struct packing *p, const char *source, char ret_hash[65])
{
	int r = open_source(p, source);

	if (r == 0)
		r = fetch_source(p);
	if (r == 0)
		r = plan_make(p->c, p->options, &p->plan);
	if (r < 0)
		return r;
	p->plan.others = &p->others;
	p->total = 2 * p->plan.bytes + objects_fetched(&p->plan);
	r = objects_put(&p->plan, &p->chunks, show_fetched, p);
	if (r == 0)
		r = tagger_new(NULL, &p->tagger);
	if (r == 0)
		r = write_carton(p, ret_hash);
	if (p->out.to >= 0 && room_is_full(r))
		carton_log(CARTON_LOG_NOTICE, p->out.path,
			   "is first made in a temporary file: TMPDIR names a directory on a disk "
			   "with room for it, in place of /var/tmp");
	if (r == 0)
		r = verify_carton(p, ret_hash);
	if (r == 0)
		r = newfile_publish(&p->out);
	if (r == 0 && p->old_signature)
		old_signature_set_aside(&p->out, p->old_signature);
	if (r == 0)
		note_useless(p);
	return r;
}

int packing_run(struct packing *p, const char *source, const char *out, char ret_model_hash[65])
{
	char hash[2 * SHA256_SIZE + 1];
	int r = check_options(p->options);

	if (r == 0)
		r = objects_directory(p->options->objects);
	if (r == 0)
		r = newfile_begin(out, &p->out);
	if (r == 0)
		r = run(p, source, hash);
	if (r == 0)
		memcpy(ret_model_hash, hash, sizeof(hash));
	return r;
}

void packing_finish(struct packing *p)
{
	tagger_free(p->tagger);
	chunks_writer_finish(&p->chunks);
	plan_finish(&p->plan);
	carton_close(p->c);
	others_close(&p->others);
	newfile_end(&p->out);
}

int carton_pack(const char *source, const char *out, const struct carton_options *open,
		const struct carton_pack_options *options, char ret_model_hash[65])
{
	struct packing p = { .open = open, .options = options };
	int r = packing_run(&p, source, out, ret_model_hash);

	packing_finish(&p);
	return r;
}
