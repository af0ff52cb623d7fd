/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as what a hub answers: the first line as a revision, each other one as a page of files;
 * behind the line "ms" all of it as what ModelScope answers; behind "next" as where a list goes on.
 * What is accepted makes a carton that opens, with a path, a hash and a size for each file.
 */
#include <string.h>
#include <unistd.h>

#include "archive/zip.h"
#include "base/budget.h"
#include "cache/file.h"
#include "import/internal.h"

#include "fuzz.h"

static void check_file(const struct listed *f)
{
	CHECK(strncmp(f->path, "model/", 6) == 0 && !path_fault(f->path, strlen(f->path)));
	CHECK(f->size <= MAX_FILE_SIZE && (!f->small || f->size <= MAX_LISTED_SMALL));
}

/* Small files get bytes of no meaning: nobody compares them here. */
static void check_carton(struct listing *l)
{
	struct container *c;
	struct source *source;
	char path[32], *zeros;
	int fd, r;

	CHECK((zeros = calloc(1, l->small + 1)) != NULL);
	CHECK(file_memory(l->small, &l->bytes) == 0 &&
	      file_write(l->bytes, zeros, l->small, 0) == 0);
	free(zeros);
	fd = fuzz_file("", 0, path);
	CHECK(listing_write(l, fd) == 0);
	CHECK(source_from_fd(fd, &source) == 0);
	r = zip_open(source, l->budget, &c);
	/* a path may be a file and a directory */
	CHECK(r == 0 || r == -EBADMSG);
	if (r == 0) {
		CHECK(container_find(c, "MANIFEST") && container_find(c, "carton.toml"));
		container_close(c);
	}
	source_unref(source);
}

/* ORG/REPO or REPO, which can stand in a URL. */
static bool is_name(const char *name)
{
	const char *set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
	size_t org = strspn(name, set), repo = name[org] == '/' ? strspn(name + org + 1, set) : 0;

	if (!name[org])
		return org > 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
	if (strncmp(name, "datasets/", 9) == 0 || strncmp(name, "spaces/", 7) == 0)
		return false;
	return org > 0 && repo > 0 && !name[org + 1 + repo] && strncmp(name, "../", 3) != 0 &&
	       strncmp(name, "./", 2) != 0 && strcmp(name + org, "/..") != 0 &&
	       strcmp(name + org, "/.") != 0;
}

static int read_hub(struct listing *l, const char *at, const char *end)
{
	bool first = true;
	int r = 0;

	while (at < end && r == 0) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		struct buf line = buf_init(MAX_LISTING_PAGE);

		CHECK(buf_add(&line, at, (size_t)((nl ? nl : end) - at)) == 0 &&
		      buf_adds(&line, "") == 0);
		r = first ? hub_read_revision(l, &line) : hub_read_page(l, &line);
		if (first && r == 0)
			CHECK(strlen(l->commit) == 40 && is_name(l->name));
		first = false;
		buf_finish(&line);
		at = nl ? nl + 1 : end;
	}
	return r;
}

static int read_modelscope(struct listing *l, const char *at, const char *end)
{
	struct buf text = buf_init(MAX_LISTING_PAGE);
	int r;

	CHECK(buf_add(&text, at, (size_t)(end - at)) == 0 && buf_adds(&text, "") == 0);
	r = modelscope_read(l, &text);
	buf_finish(&text);
	CHECK(strlen(l->commit) == 40 || !*l->commit || r < 0);
	for (size_t i = 0; i < l->n; i++)
		CHECK(!l->files[i].small && (l->files[i].commit || *l->commit || r < 0));
	return r;
}

#define ASKED "https://hub/base/api/models/org/repo/tree/1c"

/* Wherever it is said to go on, it is asked for there. */
static int read_next(const char *at, const char *end)
{
	char *next = strndup(at, (size_t)(end - at)), *url = NULL;

	CHECK(next);
	if (import_next(ASKED "?recursive=true", next, &url) == 0) {
		CHECK(strncmp(url, ASKED, strlen(ASKED)) == 0);
		CHECK(!url[strlen(ASKED)] || url[strlen(ASKED)] == '?');
		CHECK(!strchr(url, '#') && strlen(url) <= strlen(ASKED) + strlen(next));
	}
	free(url);
	free(next);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct repository repo = {
		.server = "https://hub", .kind = "models", .name = "org/repo", .revision = "main"
	};
	const struct carton_runner runner = { 0 };
	struct listing l = { .repo = &repo, .name = repo.name, .runner = &runner };
	const char *text = (const char *)data;
	bool ms = n >= 3 && memcmp(text, "ms\n", 3) == 0;
	struct budget budget;
	int r;

	if (n >= 5 && memcmp(text, "next\n", 5) == 0)
		return read_next(text + 5, text + n);
	budget_init(&budget, 256 * MIB);
	l.budget = l.names.budget = &budget;
	l.lister = ms ? &modelscope_lister : &hub_lister;
	r = ms ? read_modelscope(&l, text + 3, text + n) : read_hub(&l, text, text + n);
	for (size_t i = 0; i < l.n; i++)
		check_file(&l.files[i]);
	if (r == 0 && l.small < MIB && listing_sort(&l) == 0)
		check_carton(&l);
	listing_finish(&l);
	return 0;
}
