/* SPDX-License-Identifier: Apache-2.0 */
/* What a file or directory is that is no carton, and what its user can do about it. */
#ifndef CARTON_ARCHIVE_WHAT_H
#define CARTON_ARCHIVE_WHAT_H

#include "archive/container.h"

/*
 * Logs what a file is by its first bytes, else `otherwise`; -EBADMSG. Or the error of reading them,
 * which is not logged here.
 */
int what_refuse(struct source *source, const char *otherwise);

/*
 * The same of the open directory `fd` without MANIFEST, before it is listed: it may be large, and
 * have names that no carton has. 0: it has one.
 */
int what_refuse_directory(int fd);

/* The same of a container without MANIFEST: a directory, or a zip file. */
int what_refuse_container(const struct container *c);

/* Warns of each directory in a container that is a carton. The container is to be packed. */
void what_say_cartons(const struct container *c);

/*
 * Logs which files are git-lfs pointers: a clone without git-lfs has them in place of its large
 * files. Reads only files of the size of a pointer, and none of a remote container. 0 or -ENOMEM.
 */
int what_say_pointers(struct container *c);

#endif
