/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of a hub's own client: in models--ORG--NAME (or datasets--…, spaces--…),
 * snapshots/COMMIT has the files of a commit, which are symlinks to ../../blobs/HASH.
 */
#ifndef CARTON_OPEN_HUB_CACHE_H
#define CARTON_OPEN_HUB_CACHE_H

struct hub_cache {
	char *repository; /* the absolute path of models--ORG--NAME */
	char *below;	  /* "snapshots/COMMIT", the directory's path in it; in the same text */
};

/*
 * Is the directory a snapshot in such a cache? 1: *ret is filled; 0: it is not. -EINVAL, logged: it
 * is the cache of a repository, with the snapshot to name instead; or -errno, not logged.
 */
int hub_cache_find(const char *directory, struct hub_cache *ret);
void hub_cache_finish(struct hub_cache *h);

#endif
