/* SPDX-License-Identifier: Apache-2.0 */
#include "process/syscall_table.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

/*
 * The kernel ignores the upper half of an int's register. glibc 2.41 extends the sign there; an
 * attacker sets any bit.
 */
#define INT(i, value)                            \
	{                                        \
		i, UINT32_MAX, (uint32_t)(value) \
	}
#define BITS(i, mask, value)   \
	{                      \
		i, mask, value \
	}
#define POINTER(i, value)            \
	{                            \
		i, UINT64_MAX, value \
	}
#define ANY_ARGUMENTS .n_arguments = 0
#define WITH(n, ...) .n_arguments = (n), .arguments = { __VA_ARGS__ }
#define ONE_OF(i, list) \
	.value_index = (i), .values = (list), .n_values = sizeof(list) / sizeof((list)[0])

#define FILES (SYSCALLS_CACHE | SYSCALLS_OUTPUT)
#define WHILE_FETCHING (PHASE_OPEN | PHASE_FETCH)

#define SOCKET_TYPE 0xf
#define MAKES_FILE (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) /* only then there is a mode */

/* The kernel's flags of a thread; those that only say where its id goes may differ. */
#define THREAD_FLAGS                                                                        \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)
#define THREAD_MASK (UINT32_MAX & ~(uint32_t)(CLONE_CHILD_SETTID | CLONE_DETACHED))
#if defined(__s390__) || defined(__CRIS__)
#define CLONE_FLAGS 1
#else
#define CLONE_FLAGS 0
#endif

/*
 * Locks, flags, pipes and seals: nothing that makes the kernel send signals (F_SETOWN, F_SETSIG,
 * F_NOTIFY, leases).
 */
static const uint32_t fcntl_commands[] = {
	F_DUPFD,
	F_DUPFD_CLOEXEC,
	F_GETFD,
	F_SETFD,
	F_GETFL,
	F_GETLK,
	F_SETLK,
	F_SETLKW,
	F_OFD_GETLK,
	F_OFD_SETLK,
	F_OFD_SETLKW,
	F_GETPIPE_SZ,
	F_SETPIPE_SZ,
	F_GET_SEALS,
	F_ADD_SEALS,
#if F_GETLK != 5
	5,
	6,
	7, /* the kernel's, on 32 bits */
#endif
};

/*
 * TCGETS2, by which isatty() asks in glibc 2.42: its structure has 44 bytes, and no header that
 * libc can include.
 */
#define TCGETS2_REQUEST _IOR('T', 0x2a, char[44])

/* Is it a terminal, and how wide? How much has the resolver's socket? */
static const uint32_t terminal_requests[] = { TCGETS, TCGETS2_REQUEST, TIOCGWINSZ };
static const uint32_t socket_requests[] = { FIONREAD, FIONBIO, SIOCGIFINDEX, SIOCGIFNAME };

/* Names of threads and of memory; what a library may do on this system. */
static const uint32_t prctl_options[] = { PR_SET_NAME,	       PR_GET_NAME,	   PR_SET_VMA,
					  PR_CAPBSET_READ,     PR_GET_DUMPABLE,	   PR_GET_SECCOMP,
					  PR_GET_NO_NEW_PRIVS, PR_SET_NO_NEW_PRIVS };

/* Of an entry that is damaged, published, filled; and of a directory. */
static const uint32_t cache_modes[] = { 0, 0400, 0600, 0700 };

static const uint32_t ip_families[] = { AF_INET, AF_INET6 };

const struct syscall_row syscall_table[] = {
	/* ---- any program ---- */
	/* memory */
	{ "brk munmap mremap madvise membarrier mincore", 0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
#ifndef SANITIZER
	/*
	 * Never executable, so no code that was read or written can run: all libraries are loaded
	 * before (base/library.h).
	 */
	{ "mmap mmap2 mprotect", 0, PHASE_ANY, EPERM, WITH(1, BITS(2, PROT_EXEC, 0)) },
#endif
/* threads, and no processes: clone3 hides its flags in memory, and fails with ENOSYS */
#ifndef SANITIZER
	{ "clone", 0, PHASE_ANY, DENIED_ENDS,
	  WITH(1, BITS(CLONE_FLAGS, THREAD_MASK, THREAD_FLAGS)) },
#endif
	{ "futex futex_time64 set_robust_list rseq set_thread_area exit exit_group sched_yield "
	  "sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_min "
	  "sched_get_priority_max getcpu",
	  0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* signals; the handler that reports denied calls stays */
	{ "rt_sigprocmask rt_sigreturn rt_sigtimedwait rt_sigtimedwait_time64 rt_sigpending "
	  "sigaltstack restart_syscall sigreturn",
	  0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* time */
	{ "nanosleep clock_nanosleep clock_nanosleep_time64 clock_gettime clock_gettime64 "
	  "clock_getres clock_getres_time64 gettimeofday time getitimer setitimer",
	  0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* the process and the system */
	{ "getpid gettid getppid getuid geteuid getgid getegid getuid32 geteuid32 getgid32 "
	  "getegid32 getresuid getresgid getresuid32 getresgid32 getgroups getgroups32 getpgrp "
	  "getpgid getsid capget uname sysinfo getrusage times getrandom umask",
	  0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* limits of itself, reading only: limits of another process can end it */
	{ "prlimit64", 0, PHASE_ANY, DENIED_ENDS, WITH(2, INT(0, 0), POINTER(2, 0)) },
	{ "getrlimit ugetrlimit", 0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	{ "prctl", 0, PHASE_ANY, EPERM, ONE_OF(0, prctl_options) },
	/* the end of the mounter, and of what was forked before */
	{ "wait4 waitid waitpid", 0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* the filter of the next phase */
	{ "seccomp", 0, PHASE_OPEN, DENIED_ENDS, ANY_ARGUMENTS },

	/* ---- files ---- */
	/* by descriptor */
	{ "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close lseek "
	  "_llseek fstat fstat64 fstatfs fstatfs64 getdents64 ftruncate ftruncate64 fallocate "
	  "fadvise64 fadvise64_64 arm_fadvise64_64 readahead fsync fdatasync sync_file_range "
	  "sync_file_range2 flock dup dup2 dup3 pipe2 poll ppoll ppoll_time64 memfd_create "
	  "copy_file_range sendfile sendfile64 close_range",
	  0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	{ "fcntl fcntl64", 0, PHASE_ANY, DENIED_ENDS, ONE_OF(1, fcntl_commands) },
	/* a terminal that is told to signal asks for O_ASYNC */
	{ "fcntl fcntl64", 0, PHASE_ANY, DENIED_ENDS,
	  WITH(2, INT(1, F_SETFL), BITS(2, O_ASYNC, 0)) },
	{ "ioctl", 0, PHASE_ANY, ENOTTY, ONE_OF(1, terminal_requests) },
	/* by name, as far as Landlock allows; nothing is made with set-id bits */
	{ "openat", 0, PHASE_ANY, DENIED_ENDS, WITH(1, BITS(2, MAKES_FILE, 0)) },
	{ "openat", 0, PHASE_ANY, DENIED_ENDS, WITH(1, BITS(3, S_ISUID | S_ISGID, 0)) },
	{ "newfstatat fstatat64 statx readlinkat readlink faccessat faccessat2 access statfs "
	  "statfs64 getcwd stat lstat stat64 lstat64",
	  0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* times by descriptor: utimensat(fd, NULL) is futimens() */
	{ "utimensat utimensat_time64", FILES, PHASE_ANY, DENIED_ENDS, WITH(1, POINTER(1, 0)) },
	/* entries of the cache; what extract and pack write */
	{ "linkat renameat renameat2 unlinkat mkdirat", FILES, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	{ "fchmod", SYSCALLS_CACHE, PHASE_ANY, DENIED_ENDS, ONE_OF(1, cache_modes) },
	{ "fchmod", SYSCALLS_OUTPUT, PHASE_ANY, DENIED_ENDS,
	  WITH(1, BITS(1, S_ISUID | S_ISGID | S_IWOTH, 0)) },
	{ "symlinkat mkdir rename unlink rmdir", SYSCALLS_OUTPUT, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* files of a directory; the kernel keeps their paths inside */
	{ "openat2", SYSCALLS_DIRECTORY, PHASE_ANY, ENOSYS, ANY_ARGUMENTS },

	/* ---- a mount ---- */
	/* becoming a daemon; what is kept across a restart */
	{ "setsid chdir unlink", SYSCALLS_MOUNT, PHASE_ANY, EPERM, ANY_ARGUMENTS },
	/* messages to the mounter and to systemd, over sockets that are open by now */
	{ "sendto recvfrom sendmsg recvmsg send recv", 0, PHASE_ANY, EPERM, ANY_ARGUMENTS },

	/* ---- the network ---- */
	{ "socket", SYSCALLS_NETWORK, WHILE_FETCHING, EACCES,
	  WITH(1, BITS(1, SOCKET_TYPE, SOCK_STREAM)), ONE_OF(0, ip_families) },
	{ "socket", SYSCALLS_NETWORK, WHILE_FETCHING, EACCES,
	  WITH(1, BITS(1, SOCKET_TYPE, SOCK_DGRAM)), ONE_OF(0, ip_families) },
	/* the resolver asks which addresses this machine has */
	{ "socket", SYSCALLS_NETWORK, WHILE_FETCHING, EACCES,
	  WITH(2, INT(0, AF_NETLINK), INT(2, NETLINK_ROUTE)) },
	/* libcurl wakes its thread; a datagram socket could be connected to another process */
	{ "socketpair", SYSCALLS_NETWORK, WHILE_FETCHING, EACCES,
	  WITH(2, INT(0, AF_UNIX), BITS(1, SOCKET_TYPE, SOCK_STREAM)) },
	{ "connect bind getsockname getpeername getsockopt setsockopt shutdown sendmmsg recvmmsg "
	  "recvmmsg_time64",
	  SYSCALLS_NETWORK, WHILE_FETCHING, EACCES, ANY_ARGUMENTS },
	{ "eventfd2 epoll_create1 epoll_ctl epoll_wait epoll_pwait select pselect6 pselect6_time64",
	  SYSCALLS_NETWORK, WHILE_FETCHING, ENOSYS, ANY_ARGUMENTS },
	{ "ioctl", SYSCALLS_NETWORK, PHASE_ANY, ENOTTY, ONE_OF(1, socket_requests) },

#ifdef SANITIZER
	/* They run llvm-symbolizer, and trace the process to find leaks. */
	{ "mmap mmap2 mprotect clone fork vfork execve ptrace process_vm_readv personality "
	  "arch_prctl mlock munlock kill tgkill tkill pipe open sched_setaffinity rt_sigaction "
	  "rt_sigsuspend prctl ioctl setrlimit prlimit64 getdents set_tid_address",
	  0, PHASE_ANY, EPERM, ANY_ARGUMENTS },
#endif
};
const size_t syscall_table_size = sizeof(syscall_table) / sizeof(syscall_table[0]);

const char *const syscalls_that_end[] = {
	/* programs and processes */
	"execve execveat fork vfork ptrace process_vm_readv process_vm_writev process_madvise",
	"process_mrelease personality pidfd_getfd pidfd_open pidfd_send_signal kcmp kill tgkill "
	"tkill",
	"rt_sigaction rt_sigqueueinfo rt_tgsigqueueinfo setrlimit setpriority setpgid timer_create",
	"sched_setaffinity sched_setattr sched_setparam sched_setscheduler ioprio_set",
	/* memory that other processes see, or that is made executable */
	"shmget shmat shmctl msgget semget mq_open remap_file_pages pkey_mprotect",
	/* mounts and namespaces */
	"mount umount umount2 pivot_root chroot move_mount open_tree open_tree_attr fsopen "
	"fsconfig",
	"fsmount fspick mount_setattr setns unshare name_to_handle_at open_by_handle_at quotactl",
	"quotactl_fd fanotify_init fanotify_mark",
	/* the kernel and the machine */
	"init_module finit_module delete_module create_module kexec_load kexec_file_load reboot",
	"swapon swapoff acct syslog nfsservctl sethostname setdomainname vhangup iopl ioperm",
	"pciconfig_read pciconfig_write pciconfig_iobase settimeofday clock_settime "
	"clock_settime64",
	"clock_adjtime clock_adjtime64 adjtimex stime uselib _sysctl sysfs vm86 vm86old modify_ldt",
	"lookup_dcookie",
	/* parts of the kernel with many past vulnerabilities */
	"bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register keyctl",
	"add_key request_key migrate_pages move_pages mbind set_mempolicy vmsplice splice tee",
	/* changes of user and group */
	"setuid setuid32 setgid setgid32 setreuid setreuid32 setregid setregid32 setresuid",
	"setresuid32 setresgid setresgid32 setgroups setgroups32 setfsuid setfsuid32 setfsgid",
	"setfsgid32 capset",
	/* changes of mode, owner, times and attributes: Landlock does not restrict them */
	"chmod fchmod fchmodat fchmodat2 chown chown32 lchown lchown32 fchown fchown32 fchownat "
	"utime",
	"utimes futimesat utimensat utimensat_time64 setxattr lsetxattr fsetxattr setxattrat",
	"removexattr lremovexattr fremovexattr removexattrat mknod mknodat file_setattr truncate",
	"truncate64",
	/* servers */
	"listen accept accept4",
};
const size_t n_syscalls_that_end = sizeof(syscalls_that_end) / sizeof(syscalls_that_end[0]);

size_t syscall_name_next(const char **at)
{
	size_t n;

	*at += strspn(*at, " ");
	n = strcspn(*at, " ");
	*at += n;
	return n;
}

static bool has_name(const char *names, const char *name)
{
	size_t n;

	for (const char *at = names; (n = syscall_name_next(&at)) > 0;)
		if (strlen(name) == n && memcmp(at - n, name, n) == 0)
			return true;
	return false;
}

int syscall_denied(const char *name)
{
	for (size_t i = 0; i < syscall_table_size; i++)
		if (has_name(syscall_table[i].names, name))
			return syscall_table[i].denied;
	for (size_t i = 0; i < n_syscalls_that_end; i++)
		if (has_name(syscalls_that_end[i], name))
			return DENIED_ENDS;
	return ENOSYS;
}
