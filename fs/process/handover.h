/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives a FUSE device that another program has opened and mounted, over a unix socket
 * (SCM_RIGHTS). So a container without privileges can serve a mount that a privileged program has
 * made.
 */
#ifndef FS_HANDOVER_H
#define FS_HANDOVER_H

/*
 * Takes the device from descriptor _FUSE_COMMFD of the environment, as fusermount3 passes it, else
 * from the socket at `given`, an absolute path, if it is one. *mountpoint (malloc'ed) is then
 * /dev/fd/N. 0, also if there is neither; or -errno, logged. Waits until the device comes.
 *
 * The program that hands over the device can read the carton. So the socket, and the user who
 * listens there, have to be this user or root, and no other user can change the path to it; no
 * symlink is followed. -EPERM otherwise.
 */
int handover_receive(const char *given, char **mountpoint);

#endif
