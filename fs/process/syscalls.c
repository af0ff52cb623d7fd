/* SPDX-License-Identifier: Apache-2.0 */
#include "process/syscalls.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process/denied.h"
#include "process/syscall_table.h"

#ifdef DENIED_TRAPS
#define DENY SCMP_ACT_TRAP
#else
#define DENY SCMP_ACT_ERRNO(EPERM)
#endif

#define MAX_NAME 32

static struct scmp_arg_cmp compare(const struct syscall_argument *a)
{
	return (struct scmp_arg_cmp){ a->index, SCMP_CMP_MASKED_EQ, a->mask, a->is };
}

/* Names that this libseccomp or processor does not know are skipped. */
static int add_rule(scmp_filter_ctx f, uint32_t action, int call, const struct scmp_arg_cmp *args,
		    unsigned n)
{
	int r = call == __NR_SCMP_ERROR ? 0 : seccomp_rule_add_array(f, action, call, n, args);

	return r == -EDOM || r == -EINVAL ? 0 : r;
}

/* One system call of a row: a rule for each value that its argument may have. */
static int add_call(scmp_filter_ctx f, uint32_t action, int call, const struct syscall_row *row)
{
	struct scmp_arg_cmp args[3];
	unsigned n = 0;
	int r = 0;

	for (; n < row->n_arguments; n++)
		args[n] = compare(&row->arguments[n]);
	if (!row->values)
		return add_rule(f, action, call, args, n);
	for (unsigned i = 0; r == 0 && i < row->n_values; i++) {
		args[n] = compare(
			&(struct syscall_argument){ row->value_index, UINT32_MAX, row->values[i] });
		r = add_rule(f, action, call, args, n + 1);
	}
	return r;
}

static int add_row(scmp_filter_ctx f, uint32_t action, const struct syscall_row *row)
{
	char name[MAX_NAME];
	size_t n;
	int r = 0;

	for (const char *at = row->names; r == 0 && (n = syscall_name_next(&at)) > 0;) {
		if (n >= sizeof(name))
			return -ENAMETOOLONG;
		memcpy(name, at - n, n);
		name[n] = '\0';
		r = add_call(f, action, seccomp_syscall_resolve_name(name), row);
	}
	return r;
}

static int add_names(scmp_filter_ctx f, uint32_t action, const char *names)
{
	return add_row(f, action, &(struct syscall_row){ .names = names });
}

static int add_table(scmp_filter_ctx f, unsigned features, unsigned phases)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < syscall_table_size; i++) {
		const struct syscall_row *row = &syscall_table[i];

		if ((!row->features || row->features & features) && row->phases & phases)
			r = add_row(f, SCMP_ACT_ALLOW, row);
	}
	return r;
}

/* Signals to itself, and handlers of all signals but the one that reports denied calls. */
static int add_signals(scmp_filter_ctx f)
{
#ifdef SANITIZER
	(void)f;
	return 0;
#else
	const struct syscall_row self = {
		.names = "kill tgkill",
		.n_arguments = 1,
		.arguments = { { 0, UINT32_MAX, (uint32_t)getpid() } },
	};
	const struct scmp_arg_cmp last = { 0, SCMP_CMP_MASKED_EQ, UINT32_MAX, 64 };
	int r = add_row(f, SCMP_ACT_ALLOW, &self);

	/*
	 * A signal below 64 that differs in a bit, and 64. SCMP_CMP_NE compares the upper half of
	 * the register too; with a rule for each signal the filter took .2 ms longer to make.
	 */
	for (uint32_t bit = 1; r == 0 && bit < 64; bit <<= 1) {
		const struct scmp_arg_cmp other = compare(&(struct syscall_argument){
			0, ~UINT32_C(63) | bit, bit & ~(uint32_t)SIGSYS });

		r = add_rule(f, SCMP_ACT_ALLOW, SCMP_SYS(rt_sigaction), &other, 1);
	}
	if (r == 0)
		r = add_rule(f, SCMP_ACT_ALLOW, SCMP_SYS(rt_sigaction), &last, 1);
	return r;
#endif
}

/* Refuses calls that libraries try everywhere and do not need, without a line in the log. */
static int add_refused(scmp_filter_ctx f)
{
	const struct scmp_arg_cmp local = { 0, SCMP_CMP_MASKED_EQ, UINT32_MAX, AF_UNIX };
	int r = add_names(f, SCMP_ACT_ERRNO(ENOSYS), "clone3");

	/*
	 * services of the system, some of which run programs on request: the name service tries
	 * some
	 */
	return r == 0 ? add_rule(f, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), &local, 1) : r;
}

/* Loads the rules, unless one could not be made. */
static int load(scmp_filter_ctx f, int r)
{
	/* system call numbers of another architecture would bypass all rules */
	if (r == 0)
		r = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH,
				     DENY == SCMP_ACT_TRAP ? DENY : SCMP_ACT_KILL_PROCESS);
	/* return the kernel's errno, not a generic one */
	if (r == 0)
		r = seccomp_attr_set(f, SCMP_FLTATR_API_SYSRAWRC, 1);
	/* a binary tree: faster than comparing with each rule in turn */
	if (r == 0)
		seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = seccomp_load(f);
	return r == -EINVAL || r == -EOPNOTSUPP ? -ENOSYS : r;
}

/* A separate filter: in the other one there would be two actions for openat. */
int syscalls_listen(int *ret_listener)
{
	const scmp_datum_t other = O_ACCMODE | O_CREAT | O_DIRECTORY | O_PATH;
	const struct scmp_arg_cmp args[] = {
		{ 0, SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint32_t)AT_FDCWD },
		{ 2, SCMP_CMP_MASKED_EQ, other, O_RDONLY },
	};
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int r = f ? add_rule(f, SCMP_ACT_NOTIFY, SCMP_SYS(openat), args, 2) : -ENOMEM;

	r = f ? load(f, r) : r;
	if (r == 0)
		*ret_listener = seccomp_notify_fd(f);
	seccomp_release(f);
	/* libseccomp returns this for an errno that it does not know */
	return r == -EFAULT ? -EBUSY : r;
}

/*
 * Loads the library that pthread_cancel() needs, with which libfuse ends its threads; without it
 * glibc aborts.
 */
static void load_unwinder(void)
{
	void *frame;

	backtrace(&frame, 1);
}

int syscalls_confine(unsigned features, syscalls_report_fn *report)
{
	const unsigned phases = features & SYSCALLS_NETWORK ? PHASE_ANY : PHASE_OPEN | PHASE_LOCAL;
	scmp_filter_ctx f = seccomp_init(DENY);
	int r = f ? denied_catch(report) : -ENOMEM;

	load_unwinder();
	if (r == 0)
		r = add_table(f, features, phases);
	if (r == 0)
		r = add_signals(f);
	if (r == 0)
		r = add_refused(f);
	r = f ? load(f, r) : r;
	seccomp_release(f);
	return r;
}

int syscalls_opened(bool fetches)
{
	const unsigned phase = fetches ? PHASE_FETCH : PHASE_LOCAL;
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	int r = f ? seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < syscall_table_size; i++)
		if (!(syscall_table[i].phases & phase))
			r = add_names(f, DENY, syscall_table[i].names);
	r = f ? load(f, r) : r;
	seccomp_release(f);
	return r;
}
