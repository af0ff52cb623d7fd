/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An unpacked carton: a directory as a container, under the same rules as a zip file.
 *
 * Every file is opened beneath the root with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS):
 * nothing outside of the root is ever read, even if the directory changes while in use. Where
 * symlinks are followed, the kernel follows them at each open: beneath the root only, unless the
 * rules let them lead anywhere.
 */
#ifndef CARTON_ARCHIVE_DIR_H
#define CARTON_ARCHIVE_DIR_H

#include "archive/container.h"

enum dir_links {
	DIR_LINKS_KEPT,	    /* a symlink is an entry */
	DIR_LINKS_BENEATH,  /* its target is the entry, and has to be beneath the root */
	DIR_LINKS_ANYWHERE, /* its target is the entry */
};

/*
 * How a directory is listed that is to be packed, or signed. To be packed: if it has no directory
 * model, misc or tensor_data, all its files but carton.toml are those of the model: FILE is the
 * entry model/FILE.
 */
struct dir_rules {
	enum dir_links links;
	const char *below; /* the directory's path beneath the root; NULL: it is the root */
	bool flat;	   /* all files are of the model, also if there is a directory model */
	const char *const *exclude; /* see leave_out.h; used in dir_open() only */
	/*
	 * to be signed: just these paths are left out, and all others keep their names; ends with
	 * NULL; used in dir_open() only. NULL: to be packed
	 */
	const char *const *signed_but;
};

/*
 * Lists the directory `fd`, which the container owns from now on, also on failure. 0; -EBADMSG if
 * it contains something that a carton may not (logged); -EFBIG over MAX_ENTRIES (logged); -ENOMEM;
 * or an error of the file system. `rules`: it is to be packed; NULL: a carton was unpacked into it.
 */
int dir_open(int fd, const struct dir_rules *rules, struct budget *budget, struct container **ret);

#endif
