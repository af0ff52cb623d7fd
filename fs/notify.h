/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

/* Tells systemd how it goes (sd_notify(3)'s protocol), where it has asked for that. */
void notify_systemd(const char *state);

#endif
