/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cartonfs: mounts a carton.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "session.h"

/* Where one of the three is closed, a file of ours would take its number, and the daemon's /dev/null that. */
static int open_standard_files(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	return fd < 0 ? -1 : close(fd);
}

int main(int argc, char **argv)
{
	struct options o;
	int status = EXIT_USAGE;

	if (open_standard_files() < 0) {
		perror("cartonfs: /dev/null");
		return EXIT_SYSTEM;
	}
	if (options_parse(argc, argv, &o) == 0) {
		if (o.help) {
			fputs(options_help, stdout);
			status = EXIT_OK;
		} else if (o.version) {
			printf("cartonfs %s, libfuse %s\n", CARTON_VERSION, fuse_pkgversion());
			status = EXIT_OK;
		} else {
			status = session_run(&o);
		}
	}
	options_free(&o);
	return status;
}
