/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system user that root's process changes to before it reads a carton, so that a bug in a
 * parser gives no access to root's files. The packages make it (systemd/sysusers.conf).
 */
#ifndef FS_USER_H
#define FS_USER_H

#include <stdbool.h>
#include <sys/types.h>

struct user {
	uid_t uid;
	gid_t gid;
};

/* Does this process have the capability in its effective set? */
bool user_may(int capability);

/*
 * Finds the user. False: this process is not root's, or may not change to another user (a
 * container), or there is no such user, and the process goes on as it is. Reads only local files,
 * once: call it before any thread is started, and before the process changes to the user.
 */
bool user_find(struct user *ret);

/*
 * If there is such a user, sets a cache directory that is NULL to the user's, unless XDG_CACHE_HOME
 * names one. The caller frees it. 0 or -ENOMEM.
 */
int user_default_cache(const char **cache_dir);

/*
 * Makes `user` the owner of the cache at `path`, and of all files below it that belong to root.
 * Does nothing if `path` belongs to another user, or if others may write to it or to its parent
 * directory. 0 or -errno. Call it as root.
 */
int user_give_cache(const struct user *user, const char *path);

/*
 * Changes all ids and drops all groups, but keeps permitted capabilities. Before any thread is
 * started. 0 or -errno.
 */
int user_become(const struct user *user);

#endif
