/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a carton can be opened from. A kind of source is a file with one struct source_kind, and its
 * row in the table of open.c. It gives a container: entries, and their bytes (archive/container.h).
 * Loading, verifying and packing ask that, and never what the source was.
 *
 * A kind that only has lists of paths, hashes, sizes and URLs gives the container that says the
 * same: with a MANIFEST, a LINKS and the small files that the lists have no hash of.
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_OPEN_KIND_H
#define CARTON_OPEN_KIND_H

#include <semaphore.h>
#include <sys/stat.h>

#include "archive/dir.h"
#include "cache/key.h"
#include "carton/opened.h"
#include "http/http.h"
#include "http/oci.h"
#include "import/lister.h"
#include "open/hub_cache.h"

/* The signature that is checked while a carton is opened (open/signature.h). */
struct signature {
	struct trust *trust; /* NULL: none is checked */
	char *name;	     /* a file, a URL, or a path in the carton; for messages too */
	bool remote;	     /* `name` is a URL, */
	bool found;	     /* or `text` has it */
	struct buf text;
	uint64_t taken;	   /* of the budget */
	struct reason why; /* what is wrong with the first that was checked */

	/* A file is read by a job, while the lists are opened: then these are its results. */
	struct job job;
	bool started;
	sem_t done;
	int r;
	struct carton_signature by;
	struct buf payload;
};

/* A source while it is opened. */
struct carton_source {
	const struct source_kind *kind;
	struct carton *carton;
	const struct carton_options *options;
	const char *name;			/* as the user gives it */
	const struct carton_pack_options *pack; /* what is made of it; NULL: nothing */

	/* What begin() leaves for later. */
	char *url; /* that it is asked for; NULL: it is no URL */
	char *hub; /* of no URL: what LINKS has there is asked for with the user's token */
	struct http_bundle bundle; /* the authorities that the environment names */
	int fd;			   /* of the file or directory, until entries() takes it; else -1 */
	struct stat st;		   /* of that */
	struct oci_place place;	   /* of oci:// */
	struct repository repository;
	struct hub_cache hub_cache;
	struct signature signature;
	struct key_file key;	/* the user's; its directory is open for source_key_begin() only */
	bool has_key;		/* the cache has that of the source */
	struct dir_rules rules; /* how a directory that is to be packed is listed */
	const char *reads;	/* a directory that a confined process may go on reading; or NULL */
};

struct source_kind {
	/* Is this the kind of `name`? The first in the table that says so; the last must. */
	bool (*takes)(const char *name);

	/*
	 * Opens what a confined process cannot. Nothing of the source is parsed. 0, or -errno,
	 * logged.
	 */
	int (*begin)(struct carton_source *s);

	/* May libcurl be needed? Then it is loaded before the process is confined. */
	bool (*may_fetch)(const struct carton_source *s);

	/* May a tar be read? Then libarchive is loaded before that, too. NULL: never. */
	bool (*may_unpack)(const struct carton_source *s);

	/*
	 * Gives the entries. The process is confined, and has its cache and its threads; what
	 * begin() left is freed afterwards, however this ends. 0, or -errno, logged.
	 */
	int (*entries)(struct carton_source *s, struct container **ret);

	/*
	 * Gives signatures that come with the source, beside what entries() gives, to `take`, as
	 * import_signatures(). After entries(). NULL: there are none.
	 */
	int (*signatures)(struct carton_source *s, import_signature_fn *take, void *ctx);

	/* LINKS is made here, of URLs of a server that the user has named. */
	bool own_links;

	/*
	 * Makes MANIFEST and LINKS of the carton, after entries(), for a bare file: its hash comes
	 * from the user, or from nobody. NULL: the container has both as entries. 0 or -errno,
	 * logged.
	 */
	int (*lists)(struct carton_source *s);
};

extern const struct source_kind path_kind; /* a file or a directory */
extern const struct source_kind url_kind;  /* a file at a URL */
extern const struct source_kind bare_kind; /* a safetensors file, of both */
extern const struct source_kind hub_kind;  /* a repository of a hub */

/* ---- registry.c ---- */

/* Loads the user's settings for registries, and replaces s->name by them. 0 or -errno, logged. */
int registry_begin(struct carton_source *s);

/* The templates of the user's mirrors and of the registry's, ending with NULL. 0 or -ENOMEM. */
int registry_templates(const struct carton_source *s, char ***ret);
void registry_templates_free(char **list); /* NULL-safe */

/* ---- network.c ---- */

/*
 * Starts what fetching needs, unless nothing may be fetched, or it was done. 0, or -errno, logged.
 */
int open_network(const struct carton_source *s);

/*
 * Opens the file at s->url, as it is or was kept: 0, and when it was last modified (seconds since
 * 1970; ret_mtime may be NULL); or -errno, logged.
 */
int url_open(struct carton_source *s, struct source **ret, int64_t *ret_mtime);

#endif
