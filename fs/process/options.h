/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cartonfs. */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/option_table.h"
#include "process/fuse.h"

struct options {
	struct option_values values;
	char *source;		/* an absolute path if it exists, or a URL */
	char *label;		/* the source without credentials and query, for messages */
	char *given;		/* the mountpoint as it was named, absolute; symlinks are kept */
	char *mountpoint;	/* an absolute path if it exists */
	int fake;		/* a flag; mount -f: check the arguments, and do not mount */
	bool helped;		/* auto_unmount is set: fusermount3 mounts */
	struct fuse_args fuse;	/* arguments for libfuse */
	const char *suggestion; /* an option that one of them is perhaps a typo of; or NULL */
};

/*
 * Parses the command line. As mount(8) calls its helpers if argv[0] is mount.cartonfs: -f, -n, -s,
 * -v and -t TYPE have the meaning that they have there. 0, -EINVAL after printing what is wrong, or
 * -ENOMEM. With help, version or complete set, nothing else is; after an error only
 * mount_only may be. The caller calls options_finish() in any case.
 */
int options_parse(int argc, char **argv, struct options *ret);
void options_finish(struct options *o);

/* Prints what was asked for in place of a mount: --help and the like. False: nothing was. */
bool options_print(const struct options *o);

#endif
