/* SPDX-License-Identifier: Apache-2.0 */
#include "process/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Missing in the headers of the oldest distribution. The kernel accepts the longer structure. */
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif
#ifndef LANDLOCK_ACCESS_NET_BIND_TCP
#define LANDLOCK_ACCESS_NET_BIND_TCP (1ULL << 0)
#endif
#ifndef LANDLOCK_SCOPE_SIGNAL
#define LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define LANDLOCK_SCOPE_SIGNAL (1ULL << 1)
#endif

struct ruleset {
	uint64_t fs, net, scoped;
};

/* The first version that can allow renames between directories, which the cache needs. */
#define MIN_ABI 2

#define READ_FILES LANDLOCK_ACCESS_FS_READ_FILE
#define READ (READ_FILES | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE_FILES (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)
#define CHANGE                                                            \
	(LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |      \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | \
	 LANDLOCK_ACCESS_FS_REFER)
/* the only rights that a rule on a file may have */
#define OF_FILES (READ_FILES | WRITE_FILES)

/* All rights that the kernel knows: a right that is not handled stays allowed. */
static uint64_t handled(int abi)
{
	uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

	if (abi >= 2)
		rights |= LANDLOCK_ACCESS_FS_REFER;
	if (abi >= 3)
		rights |= LANDLOCK_ACCESS_FS_TRUNCATE;
	if (abi >= 5)
		rights |= LANDLOCK_ACCESS_FS_IOCTL_DEV;
	return rights;
}

/* Asked once: each rule needs it. Called before any thread starts. */
static int abi_of_kernel(void)
{
	static int abi; /* 0: not asked yet */

	if (abi == 0)
		abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0,
				   LANDLOCK_CREATE_RULESET_VERSION);
	return abi;
}

int landlock_new(int *ret_set)
{
	int abi = abi_of_kernel(), fd;
	struct ruleset rules = {
		.fs = handled(abi),
		.net = abi >= 4 ? LANDLOCK_ACCESS_NET_BIND_TCP : 0,
		.scoped = abi >= 6 ? LANDLOCK_SCOPE_SIGNAL | LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET :
				     0,
	};

	if (abi < MIN_ABI)
		return -ENOSYS;
	fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
	if (fd < 0)
		return -errno;
	*ret_set = fd;
	return 0;
}

int landlock_allow(int set, const char *path, enum landlock_use use)
{
	static const uint64_t rights[] = {
		[LANDLOCK_USE_READ] = READ,
		[LANDLOCK_USE_WRITE] = READ | WRITE_FILES | CHANGE,
		[LANDLOCK_USE_OUTPUT] = READ | WRITE_FILES | CHANGE | LANDLOCK_ACCESS_FS_MAKE_SYM,
		[LANDLOCK_USE_TMP] = OF_FILES,
		[LANDLOCK_USE_FILE] = OF_FILES,
	};
	struct landlock_path_beneath_attr rule = {
		.allowed_access = rights[use],
		.parent_fd = open(path, O_PATH | O_CLOEXEC),
	};
	struct stat st;
	int r = 0;

	if (rule.parent_fd < 0)
		return 0;
	rule.allowed_access &= handled(abi_of_kernel());
	if (fstat(rule.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode))
		rule.allowed_access &= OF_FILES;
	if (syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		r = -errno;
	close(rule.parent_fd);
	return r;
}

int landlock_enter(int set)
{
	int r = syscall(SYS_landlock_restrict_self, set, 0) < 0 ? -errno : 0;

	close(set);
	return r;
}
