/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cartonfs: mounts a carton.
 */
#include <stdio.h>

#include "session.h"

int main(int argc, char **argv)
{
	struct options o;
	int status = EXIT_USAGE;

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
