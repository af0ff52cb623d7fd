/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an open carton, for the files that implement carton.h. */
#ifndef CARTON_OPENED_H
#define CARTON_OPENED_H

#include "carton.h"
#include "archive/container.h"
#include "base/budget.h"
#include "format/chunks.h"
#include "format/links.h"
#include "format/manifest.h"
#include "format/meta.h"
#include "content/object.h"
#include "fetch/mirrors.h"
#include "fetch/server.h"
#include "fetch/version.h"
#include "tree/tree.h"
#include "views/views.h"
#include "base/cancel.h"
#include "base/workers.h"

/* The chunk index of a carton, read and verified; zeroed: there is none that can be used. */
struct carton_index {
	struct chunks *chunks; /* owned */
	struct node *file;     /* pinned */
};

/* Of files whose sha256 is not known yet (open/late.h). */
struct carton_late {
	struct object *manifest; /* NULL: there are none */
	struct object **list;	 /* their contents, owned */
	size_t n;
	uint8_t model_hash[SHA256_SIZE]; /* constant once `known` is set */
	atomic_bool known;
	struct object_wait wait; /* of the background, for MANIFEST */
};

struct carton {
	struct budget budget;
	struct container *container;
	struct manifest *manifest;
	struct links *links;	      /* NULL: there are none */
	const struct links *left_out; /* `links` of a repository, which count what is left out */
	struct workers *workers;
	struct events *events;
	struct cache *cache;	       /* NULL: there is none */
	struct fetch_options fetch;    /* its http is NULL while nothing can be fetched */
	atomic_uint extra_connections; /* fetch.extra points to it */
	_Atomic uint64_t fetched;      /* fetch.fetched points to it */
	struct servers *servers;       /* those of fetch.servers, owned here */
	struct mirrors *mirrors;       /* NULL: the user names none */
	struct login *logins;	       /* for its http */
	struct registries *registries; /* the user's settings for registries; or NULL */
	struct cancel stop;	       /* fired when the carton is closed */
	pthread_t opener;	       /* the thread that carton_open_later() started */
	bool has_opener;	       /* carton_open_later() has started that thread */
	atomic_bool opening;	       /* that thread is still opening the carton */
	struct object_store *store;
	struct tree *tree;
	struct carton_index index;    /* what opens use, if anything */
	struct carton_totals totals;  /* of all nodes but generated ones */
	struct views *views;	      /* NULL: there are none */
	struct meta *meta;	      /* NULL: could not be read (keep_going only) */
	size_t faults;		      /* found while opening (keep_going only) */
	struct source *remote_source; /* of a remote carton (remote_source.h); or NULL */
	struct carton_late late;
	char *commit; /* of a repository; NULL: there is none */
	char *label;  /* the source, as it may be shown */
	struct carton_signature signature;
	struct job look;	       /* a search of the cache: carton_look_in_cache() */
	atomic_bool looking;	       /* `look` is queued, or runs */
	_Atomic int64_t look_after_ms; /* when the next may begin, by now_ms() */
	atomic_bool *_Atomic in_cache; /* by place of the tree; NULL: before the first search */
	bool verify;
	bool bare; /* a file in place of a carton: no carton.toml, and MANIFEST is not shown */
	carton_damaged_fn *damaged; /* NULL: none */
	void *damaged_ctx;
};

/* A carton_node of carton.h is a node of the tree. */
static inline struct node *to_node(const struct carton_node *n)
{
	return (struct node *)n;
}

static inline struct carton_node *from_node(const struct node *n)
{
	return (struct carton_node *)n;
}

/*
 * All bytes of a regular file of the tree, verified, at most `max`, into an empty buf. 0, -ENOENT,
 * -EFBIG, or as carton_pin_wait() and carton_read().
 */
int carton_slurp(struct carton *c, const char *path, size_t max, struct buf *ret);

enum opening {
	/* carton_open() */
	OPEN_CARTON,
	/*
	 * A directory that is to be packed: instead of its MANIFEST, if it has one, all its files
	 * count, with hashes that are not known yet, and nothing is verified. -EBADMSG, logged, for
	 * what does not belong into a carton. No cache.
	 */
	OPEN_UNHASHED,
	/* To look at what the container holds: no cache, nothing is fetched. */
	OPEN_HELD,
};

/* Errors of carton_open(). `pack`: what is made of the source; NULL: nothing. */
int carton_open_as(enum opening how, const char *source, const struct carton_options *options,
		   const struct carton_pack_options *pack, struct carton **ret);

/*
 * Returns a carton that is not open yet, or NULL if there is no memory. The caller closes it with
 * carton_close(), whether or not it was opened.
 */
struct carton *carton_new(void);

/* Opens a new one, as carton_open_as(). It is to be closed, also after a failure. */
int carton_open_into(struct carton *c, const char *source, const struct carton_options *options,
		     enum opening how, const struct carton_pack_options *pack);

/*
 * The damaged() of the store of `carton`: tells the user of the carton which files show the object.
 */
void carton_damage_found(void *carton, const struct object *o);

/*
 * Checks that carton.toml, tensor_data/index.toml and the tree agree with each other and with the
 * format, as the reference loader does; a mount does not need it. Logs each problem as a warning.
 * Returns their number, or -ENOMEM.
 */
ssize_t carton_check_contents(struct carton *c);

/*
 * As carton_verify(), but only for the bytes and headers of the container: nothing is fetched or
 * parsed. `made`: of a carton that was just made, the tags of its content, which spare the hashes
 * (check/check_entry.h); or NULL.
 */
struct pack_tags;
ssize_t carton_verify_held(struct carton *c, const struct pack_tags *made,
			   carton_progress_fn *progress, void *ctx);

#endif
