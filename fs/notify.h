/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

/* Connects to $NOTIFY_SOCKET, if set. Call it before the sandbox is entered. */
void notify_open(void);

/*
 * Gives the FUSE device of a mount to the service manager, which passes it to the main process of the
 * service as descriptor 3 (FileDescriptorStoreMax=). 0 or -errno.
 */
int notify_store_device(int fd);

/* Makes the service manager close the stored device, so that the mount ends with the main process. */
void notify_forget_device(void);

/* Sends `state` to the service manager, as sd_notify(3) does. */
void notify_systemd(const char *state);

#endif
