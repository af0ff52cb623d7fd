/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

/* Connects to $NOTIFY_SOCKET, if there is one: a confined process cannot. */
void notify_open(void);

/* Sends `state` to the service manager, as sd_notify(3) does. */
void notify_systemd(const char *state);

#endif
