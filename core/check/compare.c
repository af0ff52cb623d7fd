/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a file outside of the carton with one of it. */
#include <fcntl.h>

#include "carton/opened.h"
#include "base/ingest.h"
#include "base/util.h"

/* Is all of `in` equal to a file that needs no object? The sizes are equal. */
static int compare_literal(struct stream *in, struct node *file)
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

static int compare_hash(struct stream *in, uint64_t size, const uint8_t sha256[SHA256_SIZE])
{
	struct ingest job = { .in = in, .size = size, .hash = true };
	struct ingested found;
	int r = ingest_run(&job, &found);

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
	if (n->kind != NODE_FILE || (!o && (node_n_extents(n) != 1 || node_extent(n, 0).object)))
		r = -EINVAL;
	else if (source->size != node_size(n) && (!o || object_size_is_certain(o)))
		r = -EBADMSG;
	else
		r = source_stream(source, 0, source->size, &in);
	if (r == 0) {
		r = o ? compare_hash(in, source->size, object_sha256(o)) : compare_literal(in, n);
		stream_close(in);
	}
	source_unref(source);
	return r;
}
