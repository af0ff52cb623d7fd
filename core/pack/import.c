/* SPDX-License-Identifier: Apache-2.0 */
/* A repository as a carton of some KB. */
#include <stdio.h>
#include <sys/stat.h>

#include "import/lister.h"
#include "pack/packing.h"

/* Says what to do with a source that is no repository. */
static int refuse(const char *source)
{
	char shown[256];
	struct stat st;
	const char *what = http_is_url(source) || stat(source, &st) < 0 ?
				   "is no repository, such as hf://ORG/REPO, ms://ORG/REPO or "
				   "oci://REGISTRY/NAME:TAG" :
			   S_ISDIR(st.st_mode) ? "is a directory: pack makes a carton of it" :
						 "is a file, not a repository: link leaves "
						 "files out of a carton, and names their URLs";

	return log_error(-EINVAL, carton_source_label(source, shown, sizeof(shown)), "%s", what);
}

static void fill(const struct packing *p, struct carton_imported *ret)
{
	struct stat st;

	snprintf(ret->commit, sizeof(ret->commit), "%s", p->c->commit ? p->c->commit : "");
	ret->files = p->c->totals.files;
	ret->bytes = p->c->totals.bytes;
	ret->linked = p->c->links ? p->c->links->n : 0;
	ret->shared = p->others.shared;
	ret->size = fstat(p->out.fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

int carton_import(const char *source, const char *out, const struct carton_options *open,
		  const struct carton_import_options *options, struct carton_imported *ret)
{
	const struct carton_pack_options pack = {
		.mode = CARTON_IMPORT,
		/* so that it has the same bytes with any libzstd */
		.compress = CARTON_COMPRESS_STORE,
		.chunk_index = options->chunk_index,
		.runner = options->runner,
		.progress = options->progress,
		.progress_ctx = options->progress_ctx,
	};
	struct packing p = {
		.open = open,
		.options = &pack,
		.others.sources = options->also,
	};
	struct carton_imported got = { 0 };
	int r = lister_of(source) ? others_check(options->also) : refuse(source);

	if (r < 0)
		return r;
	r = packing_run(&p, source, out, got.model_hash);
	if (r == 0) {
		fill(&p, &got);
		*ret = got;
	}
	packing_finish(&p);
	return r;
}
