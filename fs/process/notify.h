/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

#include <stdbool.h>

/* Connects to $NOTIFY_SOCKET, if set. Call it before the sandbox is entered. */
void notify_open(void);

/* Names of descriptors: the FUSE device of a mount, the memfd of keep.h, and the carton. */
#define NOTIFY_DEVICE "cartonfs"
#define NOTIFY_STATE "cartonfs-state"
#define NOTIFY_SOURCE "cartonfs-source"

/*
 * Gives a descriptor to the service manager, which passes it to the main process of the service
 * (FileDescriptorStoreMax=). 0 or -errno.
 */
int notify_store(int fd, const char *name);

/* Stores the carton in place of an earlier one; fd < 0: removes the stored one. */
void notify_store_source(int fd);

/*
 * Makes the service manager close the stored descriptors, so that the mount ends with the main
 * process.
 */
void notify_forget(void);

/* Sends `state` to the service manager, as sd_notify(3) does. */
void notify_systemd(const char *state);

/*
 * Does stderr go to the journal? As sd-daemon(3) says. Lines there may begin with a priority, such
 * as "<3>".
 */
bool notify_is_journal(void);

#endif
