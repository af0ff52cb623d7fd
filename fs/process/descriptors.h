/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_DESCRIPTORS_H
#define FS_DESCRIPTORS_H

/*
 * Closes the descriptors that this process has inherited, from 3 on, as a daemon would hold them
 * for as long as it lives: the lock of flock(1), a pipe whose end somebody waits for. Those that
 * are meant for it stay: /dev/fd/N and /proc/self/fd/N in its arguments and its environment,
 * LISTEN_FDS if they are for this process, and _FUSE_COMMFD. Call it before anything is opened.
 */
void descriptors_close_inherited(int argc, char **argv);

/*
 * Opens /dev/null for each of stdin, stdout and stderr that is closed: another file that got its
 * number would get messages, or be replaced by a daemon. Writes to such a stdout fail, so output
 * that nobody can get is an error. 0; or -1, and errno is set.
 */
int descriptors_open_standard(void);

#endif
