/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signature of a carton, attached to its artifact: a manifest with the subject of that, whose
 * layer is the signature. Registries list what refers to an artifact; for one that cannot, the tag
 * sha256-HEX has an index of it, which others may have begun.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "import/referrers.h"
#include "import/scan.h"
#include "push/internal.h"

#define MAX_INDEX (4 * MIB) /* what registries take as a manifest */
#define EMPTY "application/vnd.oci.empty.v1+json"
#define ANNOTATIONS                                         \
	"\"annotations\":{\"dev.sigstore.bundle.content\":" \
	"\"dsse-envelope\",\"" REFERRER_PREDICATE "\":\"" REFERRER_OMS "\"}"

static int put_descriptor(struct buf *b, const char *type, const char *digest, uint64_t size)
{
	return buf_addf(b, "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%" PRIu64, type,
			digest, size);
}

static int describe(const struct push *p, const struct push_blob blobs[2], const char *subject,
		    struct buf *ret)
{
	char digest[PUSH_DIGEST];

	buf_adds(ret, "{\"schemaVersion\":2,\"mediaType\":\"" PUSH_MANIFEST
		      "\",\"artifactType\":\"" REFERRER_BUNDLE "\",\"config\":");
	put_descriptor(ret, EMPTY, push_digest(blobs[0].sha256, digest), blobs[0].size);
	buf_adds(ret, "},\"layers\":[");
	put_descriptor(ret, REFERRER_BUNDLE, push_digest(blobs[1].sha256, digest), blobs[1].size);
	buf_adds(ret, "}],\"subject\":");
	put_descriptor(ret, PUSH_MANIFEST, subject, p->artifact.len);
	return buf_adds(ret, "}," ANNOTATIONS "}");
}

/* Gets .../WHAT/WHICH into an empty buf. The status, or -errno, logged. */
static int get(struct push *p, const char *what, const char *which, struct buf *ret)
{
	struct http_request q = { .accept = REFERRER_INDEX };
	unsigned attempt = 0;
	char *url;
	int r, status = 0;

	if (asprintf(&url, "%s/v2/%s/%s/%s", p->to->server, p->to->name, what, which) < 0)
		return -ENOMEM;
	q.url = url;
	do {
		struct push_answer a = { .body = ret };

		ret->len = 0;
		r = push_ask(p, &q, &a);
		free(a.location);
		status = a.head.status;
		/* others are for the caller to judge */
		if (r == 0 && error_passes(http_status_errno(status)))
			r = http_status_errno(status);
		r = push_try_again(p, r, ++attempt);
	} while (r == -EINPROGRESS);
	free(url);
	return r < 0 ? r : status;
}

/* Where the array of manifests begins, behind its bracket; NULL: the text is no index. */
static const char *find_array(const struct buf *text, bool *ret_empty)
{
	struct scan *s = scan_new(text->data ? text->data : "", text->len);
	int r = s ? scan_begin(s, JSON_OBJECT) : -ENOMEM;
	const char *at = NULL;

	while (r > 0 && !at && (r = scan_key(s)) > 0) {
		if (!scan_is(s, "manifests"))
			r = scan_skip(s) < 0 ? -EBADMSG : 1;
		else if ((r = scan_begin(s, JSON_ARRAY)) > 0)
			at = s->json.window + s->json.at; /* the text itself */
	}
	*ret_empty = at && scan_item(s) == 0;
	scan_free(s);
	return at;
}

/* Adds a descriptor to what the tag has. */
static int add_to_index(struct buf *index, const char *descriptor, struct buf *ret)
{
	bool empty;
	const char *at = find_array(index, &empty);

	if (!at) {
		buf_adds(ret, "{\"schemaVersion\":2,\"mediaType\":\"" REFERRER_INDEX
			      "\",\"manifests\":[");
		buf_adds(ret, descriptor);
		return buf_adds(ret, "]}");
	}
	buf_add(ret, index->data, (size_t)(at - index->data));
	buf_adds(ret, descriptor);
	buf_adds(ret, empty ? "" : ",");
	return buf_add(ret, at, (size_t)(index->data + index->len - at));
}

static int put_tag(struct push *p, const char *tag, const struct buf *text)
{
	uint8_t sha256[SHA256_SIZE];
	char digest[PUSH_DIGEST];
	int r = sha256_mem(text->data, text->len, sha256);

	return r < 0 ? r :
		       push_manifest(p,
				     &(struct push_text){ "the list of signatures", REFERRER_INDEX,
							  text, push_digest(sha256, digest) },
				     tag);
}

/* The registry lists nothing: its tag does. */
static int list_by_tag(struct push *p, const char *subject, const char *digest, uint64_t size)
{
	struct buf index = buf_init(MAX_INDEX), text = buf_init(MAX_INDEX), entry = buf_init(KIB);
	char tag[PUSH_DIGEST];
	int r;

	snprintf(tag, sizeof(tag), "sha256-%s", subject + strlen("sha256:"));
	put_descriptor(&entry, PUSH_MANIFEST, digest, size);
	buf_adds(&entry, ",\"artifactType\":\"" REFERRER_BUNDLE "\"," ANNOTATIONS "}");
	r = get(p, "manifests", tag, &index);
	/* else those of others would be lost */
	if (r >= 0 && r != 200 && r != 404)
		r = log_error(-EIO, p->to->name,
			      "the registry %s does not show which signatures are attached there: "
			      "status %d",
			      p->host, r);
	if (r >= 0 && index.len > 0 && memmem(index.data, index.len, digest, strlen(digest)))
		r = 0;
	else if (r >= 0 && (r = add_to_index(&index, entry.data, &text)) == 0)
		r = put_tag(p, tag, &text);
	buf_finish(&index);
	buf_finish(&text);
	buf_finish(&entry);
	return r;
}

int push_attach(struct push *p, const struct buf *signature, const char *subject)
{
	static const struct buf empty = { .data = (char *)"{}", .len = 2 };
	struct push_blob blobs[] = { { .path = "the config of the signature", .text = &empty },
				     { .path = "the signature", .text = signature } };
	struct buf text = buf_init(64 * KIB), list = buf_init(MAX_LISTING_PAGE);
	uint8_t sha256[SHA256_SIZE];
	char digest[PUSH_DIGEST];
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(blobs) && r == 0; i++) {
		blobs[i].size = blobs[i].text->len;
		blobs[i].size_known = true;
		r = sha256_mem(blobs[i].text->data, blobs[i].text->len, blobs[i].sha256);
		if (r == 0)
			r = push_blob(p, &blobs[i]);
	}
	if (r == 0)
		r = describe(p, blobs, subject, &text);
	if (r == 0)
		r = sha256_mem(text.data, text.len, sha256);
	if (r == 0)
		r = push_manifest(p,
				  &(struct push_text){ "the signature", PUSH_MANIFEST, &text,
						       push_digest(sha256, digest) },
				  digest);
	if (r == 0)
		r = get(p, "referrers", subject, &list);
	if (r >= 0)
		r = r == 200 ? 0 : list_by_tag(p, subject, digest, text.len);
	buf_finish(&text);
	buf_finish(&list);
	return r;
}
