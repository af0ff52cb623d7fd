/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/keep_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process/mountpoint.h"

#define FAILED "failed"

char *keep_file(const char *name)
{
	const char *directory = getenv("RUNTIME_DIRECTORY");
	char *path;

	return directory && asprintf(&path, "%s/%s", directory, name) >= 0 ? path : NULL;
}

void keep_leave_status(int status)
{
	char *path = keep_file(FAILED);
	FILE *f;

	if (!path)
		return;
	unlink(path);
	f = status ? fopen(path, "wxe") : NULL;
	if (f) {
		/* not by the umask: the main process may be another user */
		fchmod(fileno(f), 0644);
		fprintf(f, "%d\n", status);
		fclose(f);
	}
	free(path);
}

bool keep_take_status(int *ret)
{
	char *path = keep_file(FAILED);
	FILE *f = path ? fopen(path, "re") : NULL;
	bool found = f && fscanf(f, "%d", ret) == 1;

	if (f)
		fclose(f);
	free(path);
	return found;
}

bool keep_is_kept(const char *mountpoint)
{
	char *path = keep_file(KEEP_MARKER);
	struct stat st;
	bool kept;

	if (!path)
		return false;
	kept = stat(path, &st) == 0 && st.st_size > 0 && mountpoint_is_cartonfs(mountpoint);
	free(path);
	return kept;
}
