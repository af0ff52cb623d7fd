/* SPDX-License-Identifier: Apache-2.0 */
/* cartonfs: mounts a carton. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mount/keep_files.h"
#include "process/descriptors.h"
#include "process/mountpoint.h"
#include "common/end_first.h"
#include "common/exit_status.h"
#include "common/privacy.h"
#include "mount/session.h"
#include "common/text.h"
#include "common/umask.h"

/* Flushes stdout. Returns the exit status: output that cannot be written is an error. */
static int flush(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_GOOD;
	text_line(stderr, "cartonfs: cannot write: %s", carton_write_error(-errno));
	return EXIT_SYSTEM;
}

int main(int argc, char **argv)
{
	struct options o;
	int r, status = EXIT_USAGE;

	umask_keeps_owner();
	signals_begin();
	privacy_no_core_dumps();
	descriptors_close_inherited(argc, argv);
	if (descriptors_open_standard() < 0) {
		perror("cartonfs: /dev/null");
		return EXIT_SYSTEM;
	}
	/* the main process of a service, whose mount_only step has failed and has logged why */
	if (argc > 1 && mountpoint_is_device(argv[argc - 1]) && keep_take_status(&status))
		return status;
	r = options_parse(argc, argv, &o);
	for (int i = 1; i < argc; i++)
		privacy_hide(argv[i]);
	if (r == -ENOMEM) {
		text_line(stderr, "cartonfs: %s", strerror(ENOMEM));
		status = EXIT_SYSTEM;
	} else if (r == 0 && options_print(&o)) {
		status = flush();
	} else if (r == 0) {
		status = o.fake ? EXIT_GOOD : session_run(&o);
	}
	if (o.values.mount_only)
		keep_leave_status(status);
	options_finish(&o);
	return status;
}
