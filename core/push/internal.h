/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of this folder: describe.c writes the texts of an artifact, request.c sends
 * one request and waits, upload.c brings one blob or a manifest to the registry, attach.c a
 * signature, push.c all.
 *
 * Threads: describe.c one; the others any, each with blobs of its own.
 */
#ifndef CARTON_PUSH_INTERNAL_H
#define CARTON_PUSH_INTERNAL_H

#include <stdatomic.h>

#include "base/cancel.h"
#include "base/digest.h"
#include "base/util.h"
#include "carton/opened.h"
#include "http/repository.h"

#define PUSH_DIGEST (7 + 2 * SHA256_SIZE + 1)
#define PUSH_WHY 256
#define PUSH_MOST (32 * MIB) /* bytes of one body, to begin with */
#define PUSH_MANIFEST "application/vnd.oci.image.manifest.v1+json"

/* How the bytes of a blob are sent: in one body with PUT, or in parts with PATCH. */
enum push_way {
	PUSH_WHOLE,
	PUSH_PARTS,
	PUSH_WAYS,
};

struct push_blob {
	const char *path;	 /* NULL: the config */
	const struct node *file; /* its bytes, by pinning it; or */
	const struct buf *text;	 /* these */
	uint8_t sha256[SHA256_SIZE];
	uint64_t size;		      /* certain once it is at the registry */
	bool size_known, sent, tried; /* tried: bytes may be at `location` */
	const struct push_blob *same; /* another one with this content, which is sent; or NULL */
	/* of an upload under way */
	char *location; /* where its bytes go; owned; or NULL */
	uint64_t there; /* bytes that the registry has, counted in `done` */
	uint64_t least; /* the fewest bytes of a part, but for the last, that the registry takes */
	bool refused[PUSH_WAYS]; /* the ways in which the registry has refused the blob */
	bool lost;		 /* an upload in parts was refused after its first part */
	unsigned failed;	 /* how often its first part has met a failure of the server */
};

struct push {
	struct carton *c;
	const struct repository *to;
	const char *host;	      /* of `to`, for messages */
	const char *mount_from;	      /* another repository of the registry; or NULL */
	struct cancel cancel;	      /* fires at the first failure */
	_Atomic long retry_after_s;   /* of the last refusal, as in struct http_response */
	_Atomic uint64_t done, total; /* bytes: sent, and to be sent */
	atomic_bool logged;	      /* the first failure to reach the registry is in the log */
	/* What was learnt of this registry by its answers. */
	_Atomic uint64_t most;		/* bytes of one body; more is sent in parts */
	atomic_bool takes[PUSH_WAYS];	/* a body was taken in this way */
	atomic_bool refuses[PUSH_WAYS]; /* this way never works, but the other one does */

	struct push_blob *blobs; /* the layers in order, then the config */
	size_t n;		 /* layers */
	struct buf manifest_text, config, artifact;
};

/* ---- describe.c ---- */

/* Writes "sha256:HEX". Returns `ret`. */
char *push_digest(const uint8_t sha256[SHA256_SIZE], char ret[PUSH_DIGEST]);

/*
 * Writes the config, and the manifest of the artifact, into empty buffers. Both follow from the
 * carton alone. Errors of buf_add().
 */
int push_describe_config(struct push *p);
int push_describe(struct push *p);

/*
 * What the body of a refusal says is wrong (`errors`: `code` and `message` of the first), as
 * printable ASCII; "" if it says nothing.
 */
void push_reason(const char *body, size_t n, char ret[PUSH_WHY]);

/* ---- request.c ---- */

struct push_answer {
	struct http_response head;
	char *location;	    /* owned, or NULL */
	char why[PUSH_WHY]; /* push_reason() of a status from 400 */
	struct buf *body;   /* gets a good one; set by the caller; NULL: it is not wanted */
};

/*
 * Sends the request and waits for its answer: 0, whatever its status is; -ECANCELED; or as
 * http_answer(), logged once for all. Of `ret`, the caller sets `body`, and all else to zero.
 */
int push_ask(struct push *p, const struct http_request *q, struct push_answer *ret);

/*
 * What a request or a status has led to, at the attempt of that number, from 1. -EINPROGRESS, after
 * a pause: a failure that may pass, so try again; else `r`, or -EREMOTEIO, logged.
 */
int push_try_again(struct push *p, int r, unsigned attempt);

/* ---- upload.c ---- */

/*
 * Brings it to the registry, unless it is there. 0; -errno, logged.
 */
int push_blob(struct push *p, struct push_blob *b);

struct push_text {
	const char *what, *type; /* for messages; its media type */
	const struct buf *text;
	const char *digest; /* of the text */
};

/* Puts a manifest or an index under a tag or its digest. 0; -errno, logged. */
int push_manifest(struct push *p, const struct push_text *t, const char *reference);

/* ---- attach.c ---- */

/*
 * Attaches a signature to the artifact of that digest: a manifest that refers to it, and where the
 * registry has no list of these, the index of its tag. 0; -errno, logged.
 */
int push_attach(struct push *p, const struct buf *signature, const char *digest);

#endif
