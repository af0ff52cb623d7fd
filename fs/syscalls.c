/* SPDX-License-Identifier: Apache-2.0 */
#include "syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * A deny list, not an allow list: the harmless calls of libc, libcurl and OpenSSL differ between versions,
 * and an update must not kill the daemon. Names that this libseccomp or processor does not know are
 * skipped.
 */
static const char *const killed[] = {
#ifndef SANITIZER
	/* programs and processes */
	"execve", "execveat", "fork", "vfork", "ptrace", "process_vm_readv", "personality",
#endif
	"process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd", "kcmp",
	"pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tkill",
	/* mounts and namespaces */
	"mount", "umount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree",
	"open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "setns",
	"unshare", "open_by_handle_at", "quotactl", "quotactl_fd", "fanotify_init",
	/* the kernel and the machine */
	"init_module", "finit_module", "delete_module", "create_module", "kexec_load",
	"kexec_file_load", "reboot", "swapon", "swapoff", "acct", "syslog", "nfsservctl",
	"sethostname", "setdomainname", "vhangup", "iopl", "ioperm", "pciconfig_read",
	"pciconfig_write", "pciconfig_iobase", "settimeofday", "clock_settime", "clock_settime64",
	"clock_adjtime", "clock_adjtime64", "adjtimex", "stime", "uselib", "_sysctl", "sysfs",
	"vm86", "vm86old", "modify_ldt", "lookup_dcookie",
	/* parts of the kernel with many past vulnerabilities */
	"bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
	"io_uring_register", "keyctl", "add_key", "request_key", "migrate_pages", "move_pages",
	/* changes of user and group */
	"setuid", "setuid32", "setgid", "setgid32", "setreuid", "setreuid32", "setregid",
	"setregid32", "setresuid", "setresuid32", "setresgid", "setresgid32", "setgroups",
	"setgroups32", "setfsuid", "setfsuid32", "setfsgid", "setfsgid32", "capset",
	/* changes to files that Landlock does not restrict */
	"chmod", "fchmodat", "fchmodat2", "chown", "chown32", "lchown", "lchown32", "fchown",
	"fchown32", "fchownat", "utime", "utimes", "futimesat", "setxattr", "lsetxattr",
	"fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
	"mknod", "mknodat", "file_setattr",
	/* servers */
	"listen", "accept", "accept4"
};

static int by_name(scmp_filter_ctx f, uint32_t action, const char *name, unsigned n,
		   const struct scmp_arg_cmp *args)
{
	int call = seccomp_syscall_resolve_name(name);
	int r = call == __NR_SCMP_ERROR ? 0 : seccomp_rule_add_array(f, action, call, n, args);

	/* not a system call of this processor */
	return r == -EDOM || r == -EINVAL ? 0 : r;
}

#define RULE(f, action, name, ...)                                                            \
	by_name(f, action, name,                                                              \
		sizeof((struct scmp_arg_cmp[]){ __VA_ARGS__ }) / sizeof(struct scmp_arg_cmp), \
		(struct scmp_arg_cmp[]){ __VA_ARGS__ })

/*
 * For an int: the kernel ignores the upper half of the register, and SCMP_CMP_EQ would not. glibc 2.41
 * extends the sign of AT_FDCWD; an attacker could set any bit.
 */
#define EQUAL_INT(value) SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)(value)

#if defined(__s390__) || defined(__CRIS__)
#define CLONE_FLAGS(op, ...) SCMP_A1_64(op, __VA_ARGS__)
#else
#define CLONE_FLAGS(op, ...) SCMP_A0_64(op, __VA_ARGS__)
#endif

/* Threads, but no processes. clone3 hides its flags in memory; without it libc uses clone. */
static int add_threads(scmp_filter_ctx f)
{
	int r = by_name(f, SCMP_ACT_ERRNO(ENOSYS), "clone3", 0, NULL);

#ifndef SANITIZER
	if (r == 0)
		r = RULE(f, SCMP_ACT_KILL_PROCESS, "clone",
			 CLONE_FLAGS(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
	/* memory that is writable and executable */
	if (r == 0)
		r = RULE(f, SCMP_ACT_ERRNO(EPERM), "mmap",
			 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_WRITE | PROT_EXEC,
				    PROT_WRITE | PROT_EXEC));
	if (r == 0)
		r = RULE(f, SCMP_ACT_ERRNO(EPERM), "mmap2",
			 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_WRITE | PROT_EXEC,
				    PROT_WRITE | PROT_EXEC));
	if (r == 0)
		r = RULE(f, SCMP_ACT_ERRNO(EPERM), "mprotect",
			 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC));
	if (r == 0)
		r = RULE(f, SCMP_ACT_ERRNO(EPERM), "pkey_mprotect",
			 SCMP_A2_32(SCMP_CMP_MASKED_EQ, PROT_EXEC, PROT_EXEC));
#endif
	/* signals to itself only */
	if (r == 0)
		r = RULE(f, SCMP_ACT_KILL_PROCESS, "kill",
			 SCMP_A0_32(SCMP_CMP_NE, (scmp_datum_t)getpid()));
	if (r == 0)
		r = RULE(f, SCMP_ACT_KILL_PROCESS, "tgkill",
			 SCMP_A0_32(SCMP_CMP_NE, (scmp_datum_t)getpid()));
	return r;
}

/* Times may only be set by descriptor; no input may be injected into a terminal. */
static int add_files(scmp_filter_ctx f)
{
	int r = RULE(f, SCMP_ACT_KILL_PROCESS, "utimensat", SCMP_A1_64(SCMP_CMP_NE, 0));

	if (r == 0)
		r = RULE(f, SCMP_ACT_KILL_PROCESS, "utimensat_time64", SCMP_A1_64(SCMP_CMP_NE, 0));
	if (r == 0)
		r = RULE(f, SCMP_ACT_KILL_PROCESS, "ioctl", SCMP_A1_64(EQUAL_INT(TIOCSTI)));
	if (r == 0)
		r = RULE(f, SCMP_ACT_KILL_PROCESS, "ioctl", SCMP_A1_64(EQUAL_INT(TIOCLINUX)));
	return r;
}

/*
 * AF_UNIX reaches system services, some of which run programs on request. The name service tries to
 * connect to some, but works without. Connected socket pairs are harmless.
 */
static int add_sockets(scmp_filter_ctx f, bool network)
{
	const uint32_t refused = SCMP_ACT_ERRNO(EACCES);
	const scmp_datum_t type = 0xf;
	int r = RULE(f, refused, "socket", SCMP_A0_32(SCMP_CMP_LT, AF_INET));

	if (!network)
		return r == 0 ? by_name(f, refused, "socket", 0, NULL) : r;
	for (int family = AF_INET + 1; r == 0 && family < AF_NETLINK; family++)
		if (family != AF_INET6)
			r = RULE(f, refused, "socket",
				 SCMP_A0_32(SCMP_CMP_EQ, (scmp_datum_t)family));
	if (r == 0)
		r = RULE(f, refused, "socket", SCMP_A0_32(SCMP_CMP_GT, AF_NETLINK));
	if (r == 0)
		r = RULE(f, refused, "socket", SCMP_A0_32(SCMP_CMP_EQ, AF_NETLINK),
			 SCMP_A2_32(SCMP_CMP_NE, NETLINK_ROUTE));
	if (r == 0)
		r = RULE(f, refused, "socketpair",
			 SCMP_A1_32(SCMP_CMP_MASKED_EQ, type, SOCK_DGRAM));
	return r;
}

/* Loads the rules, unless one could not be made. */
static int load(scmp_filter_ctx f, int r, int *ret_listener)
{
	/* system call numbers of another architecture would bypass all rules */
	if (r == 0)
		r = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	/* return the kernel's errno, not a generic one */
	if (r == 0)
		r = seccomp_attr_set(f, SCMP_FLTATR_API_SYSRAWRC, 1);
	/* a binary tree: faster than comparing with each rule in turn */
	if (r == 0)
		seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = seccomp_load(f);
	if (r == 0 && ret_listener)
		*ret_listener = seccomp_notify_fd(f);
	seccomp_release(f);
	return r == -EINVAL || r == -EOPNOTSUPP ? -ENOSYS : r;
}

static int add_listener(scmp_filter_ctx f)
{
	const scmp_datum_t other = O_ACCMODE | O_CREAT | O_DIRECTORY | O_PATH;

	return RULE(f, SCMP_ACT_NOTIFY, "openat", SCMP_A0_64(EQUAL_INT(AT_FDCWD)),
		    SCMP_A2_32(SCMP_CMP_MASKED_EQ, other, O_RDONLY));
}

int syscalls_confine(bool network, int *ret_listener)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int r = 0;

	if (!f)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < sizeof(killed) / sizeof(killed[0]); i++)
		r = by_name(f, SCMP_ACT_KILL_PROCESS, killed[i], 0, NULL);
	if (r == 0)
		r = add_threads(f);
	if (r == 0)
		r = add_files(f);
	if (r == 0)
		r = add_sockets(f, network);
	if (r == 0 && ret_listener)
		r = add_listener(f);
	return load(f, r, ret_listener);
}

int syscalls_cut_network(void)
{
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int r;

	if (!f)
		return -ENOMEM;
	r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = by_name(f, SCMP_ACT_ERRNO(EACCES), "socket", 0, NULL);
	return load(f, r, NULL);
}
