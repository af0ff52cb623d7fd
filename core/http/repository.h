/* SPDX-License-Identifier: Apache-2.0 */
/*
 * URLs of repositories and of their files: SCHEME://ORG/REPO[@REVISION][/PATH]. A slash in REVISION
 * is written %2F, except in refs/pr/N and refs/convert/NAME of a hub. A few old repositories of a
 * hub have no ORG. Their files need a revision, REPO@REVISION/PATH, since REPO/PATH looks like
 * ORG/REPO. A scheme of repositories has a `struct repository_form`.
 *
 * Threads: any; they read the environment.
 */
#ifndef CARTON_HTTP_REPOSITORY_H
#define CARTON_HTTP_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>

struct repository_form {
	const char *scheme;    /* "hf://" */
	const char *faults[3]; /* of any part; of the revision; no path where there must be one */
	bool hub; /* `datasets/` or `spaces/` may be before ORG, and ORG may be missing */
	const char *endpoint; /* the variable that names another server */
	const char *server;   /* else this is it */
	const char *above;    /* between the server and ORG in the URL of a file: "models/" */
	const char *revision; /* if none is given */
};

/* The parts of a URL, within it. */
struct repository_parts {
	const char *repo; /* with `datasets/` or `spaces/` */
	size_t repo_len;
	const char *name; /* `repo` without that */
	const char *revision;
	size_t revision_len; /* 0: none is given */
	const char *path;    /* NULL: there is none */
};

/* What is wrong with it, as one clause; NULL: nothing. */
const char *repository_split(const struct repository_form *form, const char *url,
			     struct repository_parts *ret);

/* The same for a URL of a file. */
const char *repository_file_fault(const struct repository_form *form, const char *url);

/* The https URL of a file, SERVER/REPO/resolve/REVISION/PATH, malloc'ed; NULL: out of memory. */
char *repository_resolve(const struct repository_form *form, const char *url);

/* The base URL of the server that the user wants, malloc'ed; NULL: out of memory. */
char *repository_server(const struct repository_form *form);

/* A repository as a whole. Texts are owned, but for the kind. */
struct repository {
	char *server;	  /* base URL of the service: https://huggingface.co, or HF_ENDPOINT */
	const char *kind; /* models, datasets, spaces: in URLs of APIs */
	char *name;	  /* ORG/REPO, or REPO */
	char *revision;	  /* decoded */
	bool plain;	  /* of a registry: it may be asked by http if it has no https */
};

bool repository_is_whole(const struct repository_form *form, const char *url);

/* Makes the URL of the server one of http, or of https. */
void repository_by_http(struct repository *r, bool http);

/* Of such a URL. 0 or -ENOMEM. */
int repository_parse(const struct repository_form *form, const char *url, struct repository *ret);
void repository_finish(struct repository *r); /* leaves it empty, so it may be called twice */

#endif
