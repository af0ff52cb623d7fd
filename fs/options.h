/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of cartonfs.
 */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

#include <stdbool.h>
#include <sys/types.h>

#include "carton.h"
#include "fuse.h"

struct options {
	struct carton_options carton; /* its strings belong to these options */
	char *source;		      /* absolute, if it exists; or a URL */
	char *label;		      /* the source as others may see it, without a password */
	char *mountpoint;	      /* absolute, if it exists */
	bool foreground, debug, help, version;
	bool verify_at_mount;
	bool allow_other;
	uid_t uid;
	gid_t gid;
	mode_t umask;
	unsigned max_read;     /* bytes; 0: as large as the kernel makes them */
	struct fuse_args fuse; /* what is left for libfuse */
};

/*
 * Reads the command line. 0, or -EINVAL after saying what is wrong with it. With help or version
 * set nothing else is. The caller frees it in any case.
 */
int options_parse(int argc, char **argv, struct options *ret);
void options_free(struct options *o);

extern const char options_help[];

#endif
