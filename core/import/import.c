/* SPDX-License-Identifier: Apache-2.0 */
#include "import/import.h"

#include <stdio.h>

#include "archive/zip.h"
#include "base/budget.h"
#include "base/source.h"
#include "cache/cache.h"
#include "fetch/reach.h"
#include "import/internal.h"
#include "import/packed.h"

/* A failure is not logged. */
static int write(const struct import *im, const struct listing *l, struct source **ret)
{
	int fd, r = cache_tmpfile(im->cache, &fd);

	if (r < 0)
		return r;
	r = listing_write(l, fd);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	/* offline, each open makes the carton again, of what is kept */
	if (!im->fetch)
		return source_from_fd(fd, ret);
	kept_put_texts(im, l);
	return kept_put(im, l, fd, ret);
}

static int write_wanted(const struct import *im, const struct listing *l, struct source **ret)
{
	int r = write(im, l, ret);

	return r < 0 ? log_error(r, l->name, "cannot be written: %s", carton_write_error(r)) : 0;
}

static int make_late(const struct import *im, struct listing *l, struct source **ret)
{
	/* a gated repository may refuse its files: the first one is fetched while the user waits */
	int r = l->gated ? import_small(im, l, true) : 0;

	if (r == 0)
		r = listing_name_small(l);
	return r == 0 ? write_wanted(im, l, ret) : r;
}

/* Keeps a late carton beside the one with all hashes: an offline mount may want it. Best effort. */
static void keep_late(const struct import *im, struct listing *l)
{
	struct source *late;
	int r;

	l->late = true;
	r = write(im, l, &late);
	l->late = false;
	if (r == 0)
		source_unref(late);
	else
		carton_log(CARTON_LOG_WARNING, l->name,
			   "the cache cannot keep its list for mounts that do not wait for small "
			   "files: %s",
			   strerror(-r));
}

/* `both`: and keeps the other. */
static int make_all(const struct import *im, struct listing *l, bool both, struct source **ret)
{
	int r = listing_name_small(l);

	if (r == 0 && both && l->lister->git_ids && im->cache)
		keep_late(im, l);
	if (r == 0)
		r = import_small(im, l, false);
	return r == 0 ? write_wanted(im, l, ret) : r;
}

static int make(const struct import *im, struct listing *l, struct source **ret)
{
	int r = l->lister->list(im, l);

	if (r == 0)
		r = listing_sort(l);
	if (r < 0)
		return r;
	return l->late ? make_late(im, l, ret) : make_all(im, l, true, ret);
}

/*
 * Makes the carton from the texts of the artifact, such as its manifest, that the cache has under
 * their digests. *ret_layers: the artifact has layers, and no text lists the files in a layer. 0;
 * -ENOENT: the cache lacks a text, or there are layers; or -errno, logged.
 */
static int make_of_kept(const struct import *im, struct listing *l, struct source **ret,
			bool *ret_layers)
{
	struct import here = *im;
	struct listing mine = {
		.lister = l->lister,
		.repo = l->repo,
		.name = l->name,
		.runner = l->runner,
		.budget = l->budget,
	};
	int r;

	here.fetch = NULL;
	mine.names.budget = l->budget;
	r = l->lister->resolve(&here, &mine);
	if (r == 0)
		r = make(&here, &mine, ret);
	if (r == 0)
		memcpy(l->commit, mine.commit, sizeof(l->commit));
	*ret_layers = mine.n_layers > 0;
	listing_finish(&mine);
	return r;
}

/* The hub cannot be asked: without it, there may still be what it said before. */
static int point_to_kept(const struct import *im, struct listing *l, int error)
{
	struct source *source;

	*l->commit = '\0';
	if (error == -ENOENT || error == -EACCES || error == -EBADMSG || error == -ECANCELED ||
	    kept_open(im, l, &source) < 0)
		return error;
	source_unref(source);
	return log_error(error, l->name,
			 "is in the cache as it was when it was last opened: the option offline "
			 "opens that");
}

/*
 * Switches the registry to http, if that is allowed. Cartons and signatures are cached under the
 * URL of their registry, so before a request has shown its scheme, the cache is searched for both.
 */
static bool try_by_http(struct repository *repo)
{
	bool other = repo->plain && strncmp(repo->server, "https:", 6) == 0;

	if (other)
		repository_by_http(repo, true);
	return other;
}

/*
 * Opens the carton that the cache has kept. If that is a late carton and the caller wants all
 * hashes, fetches the small files and makes the carton with all hashes.
 */
static int kept_or_late(const struct import *im, struct listing *l, struct source **ret)
{
	int r = kept_open(im, l, ret);

	if (r != -ENOENT)
		return r;
	r = import_again(im, l);
	if (r < 0)
		return r;
	r = make_all(im, l, false, ret);
	/* the hub no longer has a file of this commit: another request for the list is no use */
	return r == -ENOENT ? -EIO : r;
}

static int find_kept(const struct import *im, struct listing *l, struct source **ret)
{
	int r = kept_or_late(im, l, ret);

	if (r != -ENOENT || !try_by_http(l->repo))
		return r;
	r = kept_or_late(im, l, ret);
	if (r < 0)
		repository_by_http(l->repo, false);
	return r;
}

/*
 * Finds out by the notes whether a registry that may be asked by https or http was asked by http.
 * True: l->repo says how it was asked, or offline it does not matter.
 */
static bool find_scheme(const struct import *im, struct listing *l)
{
	struct source *source;
	int r = l->repo->plain ? find_kept(im, l, &source) : -ENOENT;

	if (r == 0)
		source_unref(source);
	/* offline nothing is asked */
	return r == 0 || !l->repo->plain || !im->fetch;
}

/* The carton of a commit, without asking the service. -ENOENT: it is not in the cache. */
static int find_commit(const struct import *im, struct listing *l, struct source **ret)
{
	bool layers = true;
	int r = -ENOENT;

	snprintf(l->commit, sizeof(l->commit), "%s", l->repo->revision);
	if (l->lister->by_digest && find_scheme(im, l))
		r = make_of_kept(im, l, ret, &layers);
	return r == -ENOENT && layers ? find_kept(im, l, ret) : r;
}

static int open_at_commit(const struct import *im, struct listing *l, struct source **ret)
{
	const char *revision = l->repo->revision;
	int r = -ENOENT;

	if (l->lister->is_commit(revision))
		r = find_commit(im, l, ret);
	if (r != -ENOENT)
		return r;
	*l->commit = '\0';
	r = fetch_reach(im->fetch, l->repo);
	if (r < 0)
		return r;
	r = l->lister->resolve(im, l);
	if (r < 0)
		return point_to_kept(im, l, r);
	r = -ENOENT;
	if (l->lister->by_digest && l->lister->is_commit(revision)) {
		kept_put_texts(im, l);
		r = find_commit(im, l, ret);
	} else if (*l->commit) {
		r = kept_or_late(im, l, ret);
	}
	if (r != -ENOENT)
		return r;
	r = make(im, l, ret);
	if (r == 0)
		carton_log(CARTON_LOG_INFO, l->name, "is at %s, with %zu files",
			   *l->commit ? l->commit : "an unknown commit", l->n);
	return r;
}

/* Opens the carton in `source`. */
static int open_entries(const struct import *im, struct listing *l, struct source *source,
			struct container **ret)
{
	struct container *zip;
	/* without budget_limit_by_size(): the zip is small, but its files may be large */
	int r = zip_open(source, im->budget, &zip);

	return r < 0 ? r : packed_open(im, l, zip, ret);
}

static int open_kept_or_ask(const struct import *im, struct listing *l, struct source **ret)
{
	if (im->fetch)
		return open_at_commit(im, l, ret);
	return l->lister->is_commit(l->repo->revision) ? find_commit(im, l, ret) :
							 find_kept(im, l, ret);
}

int import_repository(const struct import *im, const struct lister *lister, struct repository *repo,
		      char ret_commit[LISTING_COMMIT], struct container **ret)
{
	struct listing l = {
		.lister = lister,
		.repo = repo,
		.name = repo->name,
		.runner = &im->runner,
		.late = im->late && lister->git_ids,
		.budget = im->budget,
	};
	const char *fault = listing_runner_fault(&im->runner);
	struct source *source;
	int r;

	if (fault)
		return log_error(-EINVAL, NULL, "%s", fault);
	l.names.budget = im->budget;
	r = open_kept_or_ask(im, &l, &source);
	/* a release without late cartons may have kept the carton with all hashes */
	if (r == -ENOENT && !im->fetch && l.late) {
		l.late = false;
		r = open_kept_or_ask(im, &l, &source);
	}
	if (r == -ENOENT && !im->fetch)
		r = log_error(-ENETUNREACH, repo->name,
			      "is not in the cache, and nothing is fetched when offline; mount "
			      "it once while the hub can be reached");
	if (r == 0) {
		memcpy(ret_commit, l.commit, sizeof(l.commit));
		r = open_entries(im, &l, source, ret);
		source_unref(source);
	}
	listing_finish(&l);
	return r;
}

/* ---- signatures ---- */

struct giving {
	const struct import *im;
	const struct listing *l;
	const struct import_signed *of;
};

static int find_signature(const struct import *im, struct listing *l, struct buf *ret)
{
	int r = kept_signature(im, l, ret);

	if (r < 0 && try_by_http(l->repo)) {
		r = kept_signature(im, l, ret);
		if (r < 0)
			repository_by_http(l->repo, false);
	}
	return r;
}

static int give(void *ctx, const struct buf *text)
{
	const struct giving *g = ctx;
	int r = g->of->take(g->of->ctx, text);

	if (r > 0)
		kept_put_signature(g->im, g->l, text);
	return r;
}

int import_signatures(const struct import *im, const struct import_signed *of)
{
	struct listing l = {
		.lister = of->lister, .repo = of->repo, .name = of->repo->name, .budget = im->budget
	};
	struct giving g = { im, &l, of };
	struct buf text = buf_init(MAX_LISTING_PAGE);
	int r;

	l.names.budget = im->budget;
	snprintf(l.commit, sizeof(l.commit), "%s", of->commit);
	r = find_signature(im, &l, &text) == 0 ? of->take(of->ctx, &text) : 0;
	budget_give(im->budget, text.len);
	buf_finish(&text);
	if (r == 0 && im->fetch && of->lister->signatures)
		r = fetch_reach(im->fetch, of->repo);
	if (r == 0 && im->fetch && of->lister->signatures)
		r = of->lister->signatures(im, &l, give, &g);
	listing_finish(&l);
	return r;
}
