/* SPDX-License-Identifier: Apache-2.0 */
#include "open/hub_cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"

#define MAX_REF 64 /* bytes of a file in refs: a commit, in hex digits */

static bool has_directory(const char *path, const char *name)
{
	struct stat st;
	char *full;
	bool has;

	if (asprintf(&full, "%s/%s", path, name) < 0)
		return false;
	has = stat(full, &st) == 0 && S_ISDIR(st.st_mode);
	free(full);
	return has;
}

static bool is_repository(const char *path)
{
	static const char *const kinds[] = { "models--", "datasets--", "spaces--" };
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; slash && i < ARRAY_SIZE(kinds); i++)
		if (strncmp(slash + 1, kinds[i], strlen(kinds[i])) == 0)
			return has_directory(path, "blobs") && has_directory(path, "snapshots");
	return false;
}

/* The commit of main, if it is there; else "COMMIT". */
static void main_commit(const char *repository, char ret[MAX_REF + 1])
{
	ssize_t n = 0;
	char *path;
	int fd;

	if (asprintf(&path, "%s/refs/main", repository) < 0)
		path = NULL;
	/* it may be a fifo that nobody writes to */
	fd = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
	if (fd >= 0)
		n = read(fd, ret, MAX_REF);
	fd_close(fd);
	free(path);
	ret[MAX(n, 0)] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	if (!*ret || strspn(ret, "0123456789abcdef") < strlen(ret))
		strcpy(ret, "COMMIT");
}

int hub_cache_find(const char *directory, struct hub_cache *ret)
{
	char *path = realpath(directory, NULL), *below = NULL;
	char commit[MAX_REF + 1] = "";

	if (!path)
		return -errno;
	if (is_repository(path)) {
		main_commit(path, commit);
		free(path);
		return log_error(-EINVAL, directory,
				 "is what a hub's client keeps of a repository; name a commit of "
				 "it: %s/snapshots/%s",
				 directory, commit);
	}
	for (unsigned i = 0; i < 2; i++) {
		below = strrchr(path, '/');
		if (!below || below == path)
			break;
		*below = '\0';
	}
	/* PATH '\0' snapshots '\0' COMMIT */
	if (!below || strcmp(below + 1, "snapshots") != 0 || !is_repository(path)) {
		free(path);
		return 0;
	}
	below[strlen("/snapshots")] = '/';
	*ret = (struct hub_cache){ path, below + 1 };
	return 1;
}

void hub_cache_finish(struct hub_cache *h)
{
	free(h->repository);
	*h = (struct hub_cache){ 0 };
}
