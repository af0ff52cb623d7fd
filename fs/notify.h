/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

/* Sends `state` to the service manager, as sd_notify(3) does; nothing without $NOTIFY_SOCKET. */
void notify_systemd(const char *state);

#endif
