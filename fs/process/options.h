/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of cartonfs.
 */
#ifndef FS_OPTIONS_H
#define FS_OPTIONS_H

#include <stdbool.h>
#include <sys/types.h>

#include "carton.h"
#include "process/fuse.h"

/* When the bytes of a file are verified; each but the last verifies all before a reader gets them. */
enum verify {
	VERIFY_AUTO, /* chunks when they are read, if the index has the file; else the file when it is opened */
	VERIFY_OPEN,	   /* the file when it is opened */
	VERIFY_MOUNT,	   /* all files before the mount appears */
	VERIFY_BACKGROUND, /* as auto, and all other files meanwhile */
	VERIFY_OFF,
};

struct options {
	struct carton_options carton; /* its strings are freed with these options */
	char *source;		      /* an absolute path if it exists, or a URL */
	char *label;		      /* the source without credentials and query, for messages */
	char *given;	  /* the mountpoint as it was named, absolute; symlinks are kept */
	char *error_file; /* where a failure is written; or NULL */
	char *mountpoint; /* an absolute path if it exists */
	int foreground, debug, help, version; /* flags */
	enum verify verify;
	const char *verify_word; /* the same as a word */
	bool nochunks;		 /* chunks=off, an old name of verify=open */
	bool nosandbox, passthrough;
	bool mount_only;
	int fake;	/* a flag; mount -f: check the arguments, and do not mount */
	int mkdir_mode; /* of a mountpoint to create if it is missing; -1: create none */
	uid_t uid;
	gid_t gid;
	mode_t umask;
	unsigned max_read;	/* bytes of one READ; 0: the kernel's limit */
	struct fuse_args fuse;	/* arguments for libfuse */
	const char *suggestion; /* an option that was perhaps meant by one of them; or NULL */
};

/*
 * Parses the command line. As mount(8) calls its helpers if argv[0] is mount.cartonfs: -f, -n, -s,
 * -v and -t TYPE have the meaning that they have there. 0, -EINVAL after printing what is wrong
 * with it, or -ENOMEM. With help or version set, nothing else is; after an error only mount_only
 * may be. The caller calls options_finish() in any case.
 */
int options_parse(int argc, char **argv, struct options *ret);
void options_finish(struct options *o);

extern const char options_help[];

#endif
