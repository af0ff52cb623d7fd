/* SPDX-License-Identifier: Apache-2.0 */
/* An artifact of an OCI registry: its manifest, its config, and the texts of a carton. */
#include "http/oci.h"

#include <stdio.h>
#include <stdlib.h>

#include "import/artifact.h"
#include "import/internal.h"
#include "import/lister.h"

/* ---- requests ---- */

static void refused(const struct import *im, const struct listing *l, const struct http_response *a)
{
	const struct repository *repo = l->repo;
	const char *host = strstr(repo->server, "://") + 3;

	(void)im;
	if (a->status == 404)
		carton_log(CARTON_LOG_ERROR, repo->name, "the registry %s has no \"%s\" of it",
			   host, repo->revision);
	else if (http_status_errno(a->status) == -EACCES)
		carton_log(CARTON_LOG_ERROR, repo->name,
			   "the registry does not show it to you: it is private, or not there; "
			   "docker login %s or podman login %s saves who you are",
			   host, host);
	else
		carton_log(CARTON_LOG_ERROR, repo->name,
			   "the registry %s refuses it with status %d", host, a->status);
}

static int resolve(const struct import *im, struct listing *l)
{
	int r = oci_get(im, l, "manifests", l->repo->revision, &l->answer);

	_Static_assert(sizeof(l->commit) >= OCI_DIGEST_SIZE, "a digest");
	return r == 0 ? oci_digest(&l->answer, l->commit) : r;
}

/* ---- what it has ---- */

/* Replaces an index by the only manifest that it has of a model, or at all. */
static int enter_index(const struct import *im, struct listing *l, struct artifact *a)
{
	/* an index may have an image for each of several platforms; a model has only one */
	bool mine = a->n_models == 0 && a->n_others > 1 && a->n_mine == 1;
	const struct artifact_blob *to = a->n_models == 1 ? &a->model : mine ? &a->mine : &a->other;
	char which[ARTIFACT_DIGEST];
	int r;

	if (a->n_models != 1 && !mine && (a->n_models > 0 || a->n_others != 1))
		return log_error(-EBADMSG, l->name,
				 a->n_models + a->n_others == 0 ?
					 "is no manifest of an artifact: it has no layers" :
					 "is an index of several artifacts, not of one model: name "
					 "one of them by its digest");
	if (!oci_is_digest(to->digest))
		return log_error(-EBADMSG, l->name,
				 "is an index whose manifest has no digest that is sha256");
	snprintf(which, sizeof(which), "%s", to->digest);
	buf_finish(&l->answer);
	r = oci_get(im, l, "manifests", which, &l->answer);
	if (r == 0)
		r = artifact_read(l, &l->answer, a);
	if (r == 0 && !a->has_layers)
		r = log_error(-EBADMSG, l->name, "is an index that leads to no manifest");
	return r;
}

static int get_carton(const struct import *im, struct listing *l, const struct artifact *a)
{
	int r = oci_get_blob(im, l, &a->carton_toml, MAX_LISTING_PAGE, &l->carton_toml);

	return r == 0 ? oci_get_blob(im, l, &a->manifest, MAX_LISTING_PAGE, &l->manifest) : r;
}

static int get_config(const struct import *im, struct listing *l, const struct artifact *a)
{
	struct buf text = { 0 };
	int r = oci_get_blob(im, l, &a->config, MAX_LISTING_PAGE, &text);

	if (r == 0)
		r = artifact_config(l, a, &text);
	buf_finish(&text);
	return r;
}

static int list(const struct import *im, struct listing *l)
{
	struct artifact a;
	bool carton;
	int r = artifact_read(l, &l->answer, &a);

	if (r == 0 && !a.has_layers)
		r = enter_index(im, l, &a);
	if (r < 0)
		return r;
	carton = *a.carton_toml.digest && *a.manifest.digest;
	if (carton && (l->runner->name || l->runner->framework))
		r = log_error(-EINVAL, l->name,
			      "is a carton, which names its runner: no other can be given");
	if (r == 0 && carton)
		r = get_carton(im, l, &a);
	if (r == 0)
		r = artifact_add(l, &l->answer, &a);
	/* the image of a modelcar has its model in /models */
	if (r == 0 && l->n_layers > 0)
		r = im->fetch ? layers_read(im, l, artifact_is_image(&a) ? "models" : "") : -ENOENT;
	if (r == 0)
		r = listing_sort(l);
	if (r == 0)
		r = artifact_check_sizes(l);
	if (r == 0 && artifact_has_config(l, &a))
		r = get_config(im, l, &a);
	return r == 0 && carton ? artifact_check_carton(l) : r;
}

/* ---- the lister ---- */

static char *url(const struct listing *l, const struct listed *f)
{
	char hex[2 * SHA256_SIZE + 1], *text;

	hex_encode(f->sha256, SHA256_SIZE, hex);
	return asprintf(&text, "%s/v2/%s/blobs/sha256:%s", l->repo->server, l->repo->name, hex) <
			       0 ?
		       NULL :
		       text;
}

const struct lister oci_lister = {
	.takes = oci_is_artifact,
	.parse = oci_parse,
	.is_commit = oci_is_digest,
	.resolve = resolve,
	.list = list,
	.refused = refused,
	.url = url,
	.by_digest = true,
	.signatures = oci_signatures,
};
