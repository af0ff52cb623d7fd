/* SPDX-License-Identifier: Apache-2.0 */
#include "process/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "process/landlock.h"
#include "process/opener.h"
#include "process/syscalls.h"
#include "process/user.h"

static int failed(const char *what, int r)
{
	carton_log(CARTON_LOG_ERROR, NULL, "sandbox: %s: %s; nosandbox runs without one", what,
		   strerror(-r));
	return r;
}

static void missing(const char *what)
{
	carton_log(CARTON_LOG_INFO, NULL, "sandbox: %s", what);
}

/* ---- user and capabilities ---- */

struct capabilities {
	struct __user_cap_data_struct of[2]; /* 32 each */
};

static int capset_of_process(const struct capabilities *c)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capset, &header, c->of) < 0 ? -errno : 0;
}

static int capget_of_process(struct capabilities *ret)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &header, ret->of) < 0 ? -errno : 0;
}

static bool is_denied(const char *path, int mode)
{
	return path && faccessat(AT_FDCWD, path, mode, AT_EACCESS) < 0 && errno == EACCES;
}

/*
 * Files that this process opens itself, unless the helper does: those of options, and .netrc. NULL:
 * none.
 */
struct own_files {
	const char *of[3];
	char *netrc; /* the last of the files, malloc'ed */
};

/* Call it as root: the .netrc may be in a directory that no other user can search. */
static void own_files_find(struct own_files *own, const struct carton_paths *paths, bool helped)
{
	*own = (struct own_files){ 0 };
	if (helped)
		return;
	own->of[0] = paths->files[0];
	own->of[1] = paths->files[1];
	own->netrc = paths->network ? opener_netrc() : NULL;
	if (own->netrc && faccessat(AT_FDCWD, own->netrc, R_OK, AT_EACCESS) == 0)
		own->of[2] = own->netrc;
}

/*
 * Must this process, with no effective capability, read files of other users? A source directory
 * may contain such files anywhere, and so may one of a mirror.
 */
static bool must_read(const struct carton_paths *paths, const struct sandbox_helper *helper,
		      const struct own_files *own)
{
	bool need = paths->source || is_denied(helper->input, R_OK);

	for (size_t k = 0; k < sizeof(own->of) / sizeof(own->of[0]); k++)
		need = need || is_denied(own->of[k], R_OK);
	for (size_t k = 0; paths->mirrors && paths->mirrors[k]; k++)
		need = need || is_denied(paths->mirrors[k], R_OK | X_OK);
	return need;
}

/* Likewise, make files in their directories? */
static bool must_write(const struct carton_paths *paths, const struct sandbox_helper *helper)
{
	bool need = is_denied(helper->output, W_OK | X_OK);

	for (size_t k = 0; k < sizeof(paths->writes) / sizeof(paths->writes[0]); k++)
		need = need || is_denied(paths->writes[k], W_OK | X_OK);
	return need;
}

/*
 * Changes to `user`, unless that is NULL, and drops all capabilities, except CAP_DAC_READ_SEARCH
 * and CAP_DAC_OVERRIDE where root has to open files of other users.
 */
static int drop_privileges(const struct user *user, const struct carton_paths *paths,
			   const struct sandbox_helper *helper, const struct own_files *own)
{
	struct capabilities have, none = { 0 }, keep = { 0 };
	const int i = CAP_TO_INDEX(CAP_DAC_READ_SEARCH), w = CAP_TO_INDEX(CAP_DAC_OVERRIDE);
	int r = capget_of_process(&have);

	if (r < 0)
		return failed("capget", r);
	/* a service may have none, and may not call capset() */
	if (!(have.of[0].permitted | have.of[1].permitted))
		return 0;
	/* fails without CAP_SETPCAP, which is harmless: no_new_privs is set */
	for (int c = 0; c < 64; c++)
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno == EINVAL)
			break; /* the kernel has no capability of this number, nor of higher ones */
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

	r = user ? user_become(user) : 0;
	if (r < 0)
		return failed("change to the system user", r);
	/* check which files are readable with no effective capability */
	for (size_t k = 0; k < 2; k++)
		none.of[k].permitted = have.of[k].permitted;
	r = capset_of_process(&none);
	if (must_read(paths, helper, own))
		keep.of[i].permitted |= have.of[i].effective & CAP_TO_MASK(CAP_DAC_READ_SEARCH);
	if (must_write(paths, helper))
		keep.of[w].permitted |= have.of[w].effective & CAP_TO_MASK(CAP_DAC_OVERRIDE);
	for (size_t k = 0; k < 2; k++)
		keep.of[k].effective = keep.of[k].permitted;
	if (r == 0)
		r = capset_of_process(&keep);
	return r < 0 ? failed("capset", r) : 0;
}

/* ---- files ---- */

/*
 * Read by system libraries: shared objects, locales, time zones, certificates; and by sysconf(3).
 */
static const char *const system_files[] = { "/usr",
					    "/lib",
					    "/lib64",
					    "/etc/ld.so.cache",
					    "/etc/localtime",
					    "/dev/urandom",
					    "/dev/random",
					    "/proc/self",
					    "/proc/meminfo",
					    "/proc/stat",
					    "/sys/devices/system/cpu",
					    "/sys/fs/cgroup" };

/* Read to resolve names and to check certificates. Some are symlinks to files in /run. */
static const char *const network_files[] = {
	"/etc/resolv.conf",	"/etc/hosts",		"/etc/host.conf",  "/etc/gai.conf",
	"/etc/nsswitch.conf",	"/etc/services",	"/etc/passwd",	   "/etc/ssl/certs",
	"/etc/ssl/openssl.cnf", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"
};

static int allow_all(int set, const char *const *paths, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (paths[i])
			r = landlock_allow(set, paths[i], LANDLOCK_USE_READ);
	return r;
}

/*
 * Allows .netrc alone, as its directory may have other secrets. If it is replaced later, only the
 * helper can open the new file.
 */
static int allow_netrc(int set)
{
	char *path = opener_netrc();
	int r = path ? landlock_allow(set, path, LANDLOCK_USE_READ) : 0;

	free(path);
	return r;
}

static int allow_network(int set, const struct carton_paths *paths, bool root)
{
	static const char *const etc[] = { "/etc" };
	int r = allow_all(set, network_files, sizeof(network_files) / sizeof(network_files[0]));

	/*
	 * A rule covers an inode, and resolv.conf is often replaced by a new one. So allow all of
	 * /etc, unless we are root: other users cannot read secrets there anyway.
	 */
	if (r == 0 && !root)
		r = allow_all(set, etc, 1);
	if (r == 0)
		r = allow_all(set, paths->files, sizeof(paths->files) / sizeof(paths->files[0]));
	return r == 0 ? allow_netrc(set) : r;
}

static int allow_tmp(int set)
{
	const char *dir = getenv("TMPDIR");
	int r = dir && *dir ? landlock_allow(set, dir, LANDLOCK_USE_TMP) : 0;

	return r == 0 ? landlock_allow(set, "/var/tmp", LANDLOCK_USE_TMP) : r;
}

/*
 * Makes the rules for files: -1 in *ret_set if the kernel has no Landlock. They cover files that
 * exist now.
 */
static int make_rules(const struct carton_paths *paths, const struct sandbox_helper *helper,
		      int *ret_set)
{
	int set, r = landlock_new(&set);

	*ret_set = -1;
	if (r < 0) {
		missing("the kernel has no Landlock: access to files is not restricted");
		return 0;
	}
	r = allow_all(set, system_files, sizeof(system_files) / sizeof(system_files[0]));
#ifdef SANITIZER
	if (r == 0)
		r = landlock_allow(set, "/proc", LANDLOCK_USE_READ);
	if (r == 0)
		r = landlock_allow(set, "/proc/self/exe", LANDLOCK_USE_READ);
	if (r == 0 && getenv("SANITIZER_REPORTS"))
		r = landlock_allow(set, getenv("SANITIZER_REPORTS"), LANDLOCK_USE_WRITE);
#endif
	if (r == 0)
		r = landlock_allow(set, "/dev/null", LANDLOCK_USE_FILE);
	if (r == 0 && paths->network)
		r = allow_network(set, paths, geteuid() == 0);
	if (r == 0)
		r = allow_all(set, &paths->source, 1);
	for (size_t i = 0; r == 0 && paths->mirrors && paths->mirrors[i]; i++)
		r = allow_all(set, &paths->mirrors[i], 1);
	if (r == 0 && paths->cache)
		r = landlock_allow(set, paths->cache, LANDLOCK_USE_WRITE);
	if (r == 0)
		r = allow_all(set, &helper->input, 1);
	if (r == 0 && helper->output)
		r = landlock_allow(set, helper->output, LANDLOCK_USE_OUTPUT);
	for (size_t i = 0; r == 0 && i < sizeof(paths->writes) / sizeof(paths->writes[0]); i++)
		if (paths->writes[i])
			r = landlock_allow(set, paths->writes[i], LANDLOCK_USE_WRITE);
	/* for files that do not fit in the cache */
	if (r == 0)
		r = allow_tmp(set);
	if (r == 0) {
		*ret_set = set;
		return 0;
	}
	close(set);
	return failed("Landlock", r);
}

/* ---- all ---- */

/*
 * Asks the helper to open files for this process that replace a file of a Landlock rule, or that
 * only root can read. *ret: it does. Without the helper, the files from the start stay in use.
 */
static int ask_helper(const struct sandbox_helper *helper, int memory, bool *ret)
{
	int listener = -1, r = memory < 0 ? 0 : syscalls_listen(&listener);

	/* a process has one such listener, and a container may have it already */
	if (r == -EBUSY)
		missing("another program sees which files are opened: files that are replaced "
			"later are not read again");
	if (r == 0 && listener >= 0) {
		r = helper->open_for_me(helper->ctx, listener, memory);
		close(listener);
		*ret = r == 0;
	}
	return r == -EBUSY || r == -ENOSYS ? 0 : r < 0 ? failed("seccomp", r) : 0;
}

static int confine_syscalls(const struct carton_paths *paths, const struct sandbox_helper *helper)
{
	const bool directory = paths->source || helper->input,
		   output = helper->output || paths->writes[0];
	const unsigned features = (paths->network ? SYSCALLS_NETWORK : 0) |
				  (paths->cache ? SYSCALLS_CACHE : 0) |
				  (directory ? SYSCALLS_DIRECTORY : 0) |
				  (output ? SYSCALLS_OUTPUT : 0) |
				  (helper->open_for_me ? SYSCALLS_MOUNT : 0);
	int r = syscalls_confine(features, helper->denied);

	if (r == -ENOSYS) {
		missing("the kernel has no seccomp filters: system calls are not limited");
		return 0;
	}
	return r < 0 ? failed("seccomp", r) : 0;
}

/* Can this confined process open the file? Tries it: the rules alone do not tell. */
static bool can_open(const char *path)
{
	static const int modes[] = { O_RDONLY, O_WRONLY };
	bool can = false;

	for (size_t i = 0; path && !can && i < sizeof(modes) / sizeof(modes[0]); i++) {
		int fd = open(path, modes[i] | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

		can = fd >= 0;
		if (fd >= 0)
			close(fd);
	}
	return can;
}

/*
 * Drops the rights of root, and the access to files that are not needed. The Landlock rules are
 * made first, by the user who can open all of these files. *ret_exposed: the process can still open
 * the user's key. False without Landlock, where it could do so wherever the key is.
 */
static int confine_access(const struct carton_paths *paths, const struct sandbox_helper *helper,
			  bool helped, bool *ret_exposed)
{
	/* a process that writes files of its user must stay that user */
	bool writes = helper->output || paths->writes[0] || paths->writes[1];
	struct own_files own;
	struct user user;
	bool change = !writes && user_find(&user);
	int set = -1, r = 0;

	if (change && paths->cache)
		r = user_give_cache(&user, paths->cache);
	if (r < 0)
		return failed(paths->cache, r);
	r = make_rules(paths, helper, &set);
	own_files_find(&own, paths, helped);
	if (r == 0)
		r = drop_privileges(change ? &user : NULL, paths, helper, &own);
	free(own.netrc);
	if (r < 0) {
		if (set >= 0)
			close(set);
		return r;
	}
	r = set >= 0 ? landlock_enter(set) : 0;
	*ret_exposed = r == 0 && set >= 0 && can_open(paths->key);
	return r < 0 ? failed("Landlock", r) : 0;
}

#ifdef __SANITIZE_ADDRESS__
/*
 * UBSan reads its options when it has something to report. It looks in /proc/self/environ, which
 * the user of a process that is not dumpable cannot read, and here before that.
 */
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void)
{
	const char *options = getenv("UBSAN_OPTIONS");

	return options ? options : "";
}
#endif

/*
 * Gives malloc(3) the limit of arenas that it has by itself, unless the user has set one. Without a
 * limit, it asks for the number of processors when it makes an arena: it would open a file, which
 * the helper does from now on, while a thread holds a lock that others need. They would all wait
 * for the helper.
 */
static void settle_malloc(void)
{
	const char *tunables = getenv("GLIBC_TUNABLES");

	if (!getenv("MALLOC_ARENA_MAX") && !(tunables && strstr(tunables, "arena_max")))
		mallopt(M_ARENA_MAX, 8 * get_nprocs());
}

int sandbox_enter(void *ctx, const struct carton_paths *paths)
{
	static const struct sandbox_helper none;
	const struct sandbox_helper *helper = ctx ? ctx : &none;
	bool helped = false, exposed = false;
	int memory = -1, r;

	settle_malloc();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return failed("no new privileges", -errno);
	/* before the sandbox forbids it; the helper reads file names from it */
	if (helper->open_for_me && paths->network)
		memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	r = ask_helper(helper, memory, &helped);
	if (memory >= 0)
		close(memory);
	if (r == 0)
		r = confine_access(paths, helper, helped, &exposed);
	/* no core dumps, regardless of the limit, and no ptrace by other processes of the user */
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		r = failed("dumpable", -errno);
	if (r == 0)
		r = confine_syscalls(paths, helper);
	return r == 0 ? exposed : r;
}

int sandbox_opened(bool fetches)
{
	int r = syscalls_opened(fetches);

	return r < 0 && r != -ENOSYS ? failed("seccomp", r) : 0;
}
