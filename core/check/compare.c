/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a file outside of the carton with one of it. */
#include <fcntl.h>

#include "carton/opened.h"
#include "base/ingest.h"
#include "base/util.h"

/* Is all of `in` equal to a pinned file that has no hash of its own? The sizes are equal. */
static int compare_bytes(struct stream *in, struct node *file)
{
	char block[4096], want[4096];
	uint64_t off = 0;
	ssize_t n;

	while ((n = stream_read(in, block, sizeof(block))) > 0) {
		if (carton_read(from_node(file), want, (size_t)n, off, false) != n ||
		    memcmp(block, want, (size_t)n) != 0)
			return -EBADMSG;
		off += (uint64_t)n;
	}
	return (int)n;
}

static int compare_literal(struct stream *in, struct node *file)
{
	int r = carton_pin_wait_observed(from_node(file), NULL);

	if (r < 0)
		return r;
	r = compare_bytes(in, file);
	carton_unpin(from_node(file));
	return r;
}

static int compare_hash(struct stream *in, uint64_t size, struct object *o)
{
	struct ingest job = { .in = in, .size = size, .hash = true };
	struct ingested found;
	uint8_t sha256[SHA256_SIZE];
	int r;

	if (!object_known_sha256(o, sha256)) {
		/* the sha256 is known once the content has been read */
		r = object_get_wait(o, NULL);
		if (r < 0)
			return r;
		object_put(o);
		object_known_sha256(o, sha256);
	}
	r = ingest_run(&job, &found);
	return r < 0 ? r : memcmp(found.sha256, sha256, SHA256_SIZE) == 0 ? 0 : -EBADMSG;
}

int carton_compare(struct carton_node *file, int fd)
{
	struct node *n = to_node(file);
	struct object *o = node_object(n);
	struct source *source;
	struct stream *in;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int r = own < 0 ? -errno : source_from_fd(own, &source);

	if (r < 0)
		return r;
	if (n->kind != NODE_FILE ||
	    (!o && (node_n_extents(n) != 1 || (node_extent(n, 0).object && node_lazy_above(n)))))
		r = -EINVAL;
	else if (source->size != node_size(n) && (!o || object_size_is_certain(o)))
		r = -EBADMSG;
	else
		r = source_stream(source, 0, source->size, &in);
	if (r == 0) {
		r = o ? compare_hash(in, source->size, o) : compare_literal(in, n);
		stream_close(in);
	}
	source_unref(source);
	return r;
}
