/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as the manifest of an artifact (the first line), its config (the second) and its
 * MANIFEST (the rest, if there is any): what is accepted has a path, a hash and a size for each
 * file, each path once, and makes a carton. The manifest also as what refers to another, and all of
 * it as a refusal of a registry, of which a line is shown.
 */
#include <string.h>

#include "base/budget.h"
#include "http/oci.h"
#include "import/artifact.h"
#include "import/lister.h"
#include "import/referrers.h"
#include "push/internal.h"

#include "fuzz.h"

static struct buf part(const char **at, const char *end, bool all)
{
	const char *nl = all ? NULL : memchr(*at, '\n', (size_t)(end - *at));
	struct buf b = buf_init(MAX_LISTING_PAGE);

	CHECK(buf_add(&b, *at, (size_t)((nl ? nl : end) - *at)) == 0);
	*at = nl ? nl + 1 : end;
	return b;
}

static void check_file(const struct listing *l, const struct listed *f)
{
	CHECK(!path_fault(f->path, strlen(f->path)) && f->size <= MAX_FILE_SIZE && !f->small);
	CHECK(l->manifest.data || strncmp(f->path, "model/", 6) == 0);
}

static void check_reason(const char *text, size_t n)
{
	char why[PUSH_WHY];

	push_reason(text, n, why);
	CHECK(ascii_run(why, strlen(why)) == strlen(why));
}

/* A referrer_fn: after the third, no more are wanted. */
static int check_signature(void *ctx, const struct artifact_blob *blob)
{
	CHECK(oci_is_digest(blob->digest));
	return ++*(int *)ctx < 3 ? 0 : -EFBIG;
}

static void check_signatures(const struct buf *text)
{
	static const char *const members[] = { "manifests", "layers" };

	for (size_t i = 0; i < 2; i++) {
		struct reason why = { 0 };
		int n = 0, r = referrers_read(text, members[i], check_signature, &n, &why);

		CHECK(n <= 3 && (n == 3) == (r == -EFBIG));
		CHECK((r == -EBADMSG) == (*why.text != 0));
		CHECK(r == 0 || r == -EBADMSG || r == -EFBIG);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct repository repo = { .server = "https://h", .kind = "oci", .name = "a/b" };
	static const struct carton_runner runner;
	struct listing l = {
		.lister = &oci_lister, .repo = &repo, .name = repo.name, .runner = &runner
	};
	struct budget budget;
	const char *at = (const char *)data, *end = at + n;
	static struct artifact a;
	struct buf manifest = part(&at, end, false), config = part(&at, end, false);
	char path[32];
	int fd, r = artifact_read(&l, &manifest, &a);

	check_reason((const char *)data, n);
	check_signatures(&manifest);
	budget_init(&budget, 256 * MIB);
	l.budget = l.names.budget = &budget;
	CHECK(r == 0 || r == -EBADMSG);
	if (r == 0 && *a.carton_toml.digest && *a.manifest.digest && at < end) {
		l.manifest = part(&at, end, true);
		l.carton_toml = buf_init(64);
		CHECK(buf_adds(&l.carton_toml, "spec_version = 1\n") == 0);
	}
	if (r == 0)
		r = artifact_add(&l, &manifest, &a);
	for (size_t i = 0; i < l.n; i++)
		check_file(&l, &l.files[i]);
	CHECK(r < 0 || l.n + (l.manifest.data ? 2 : 0) <= a.n_layers + 2);
	if (r == 0)
		r = listing_sort(&l);
	for (size_t i = 1; r == 0 && i < l.n; i++)
		CHECK(strcmp(l.files[i - 1].path, l.files[i].path) < 0);
	if (r == 0)
		r = artifact_check_sizes(&l);
	if (r == 0)
		r = artifact_config(&l, &a, &config);
	if (r == 0 && l.manifest.data)
		r = artifact_check_carton(&l);
	if (r == 0) {
		fd = fuzz_file("", 0, path);
		CHECK(listing_write(&l, fd) == 0);
		fd_close(fd);
	}
	buf_finish(&manifest);
	buf_finish(&config);
	listing_finish(&l);
	return 0;
}
