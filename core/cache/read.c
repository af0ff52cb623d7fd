/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/read.h"

#include <stdlib.h>

#include "base/util.h"

static int hash_all(struct source *source, const struct ingest *how, struct ingested *ret)
{
	struct ingest job = *how;
	int r = source_stream(source, 0, source->size, &job.in);

	if (r < 0)
		return r;
	job.size = source->size;
	job.hash = true;
	r = ingest_run(&job, ret);
	stream_close(job.in);
	return r;
}

int cache_check(struct source *source, const uint8_t sha256[SHA256_SIZE], const struct ingest *how,
		struct ingested *ret_in)
{
	struct ingested in = { 0 };
	int r;

	/* a wrong size is enough: the file may be a terabyte */
	if (how->size != UINT64_MAX && how->size != source->size)
		return -EBADMSG;
	r = hash_all(source, how, &in);
	if (r == 0 && memcmp(in.sha256, sha256, SHA256_SIZE) != 0)
		r = -EBADMSG;
	if (r < 0)
		free(in.tags);
	else
		*ret_in = in;
	return r;
}

int cache_read(struct cache *cache, const uint8_t sha256[SHA256_SIZE], const struct ingest *how,
	       struct source **ret, struct ingested *ret_in)
{
	struct source *source;
	int r = cache_source(cache, sha256, &source);

	if (r < 0)
		return r == -EMFILE || r == -ENFILE || r == -ENOMEM ? r : -ENOENT;
	r = cache_check(source, sha256, how, ret_in);
	if (r < 0) {
		if (r != -ECANCELED && r != -ENOMEM) {
			cache_drop(cache, sha256, source->fd);
			r = -EBADMSG;
		}
		source_unref(source);
		return r;
	}
	*ret = source;
	return 0;
}
