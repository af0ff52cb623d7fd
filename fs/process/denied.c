/* SPDX-License-Identifier: Apache-2.0 */
#include "process/denied.h"

#include <errno.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include "process/syscall_table.h"

#ifdef DENIED_TRAPS

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif

#define MAX_NUMBER 1024 /* calls from here on, which no kernel has yet, share a bit of `logged` */

static syscalls_report_fn *report;
static uint64_t logged[MAX_NUMBER / 64 + 1]; /* by number: each call that fails is logged once */

/* ---- the line; no function here is unsafe in a signal handler ---- */

struct line {
	char text[256];
	size_t used;
};

static void add(struct line *l, const char *s)
{
	while (*s && l->used < sizeof(l->text) - 1)
		l->text[l->used++] = *s++;
	l->text[l->used] = '\0';
}

/* Small numbers in decimal, addresses and flags in hexadecimal. */
static void add_number(struct line *l, uint64_t n)
{
	char digits[24];
	size_t i = sizeof(digits) - 1;
	const unsigned base = n < 65536 ? 10 : 16;

	digits[i] = '\0';
	do
		digits[--i] = "0123456789abcdef"[n % base];
	while (n /= base);
	add(l, base == 16 ? "0x" : "");
	add(l, digits + i);
}

static void arguments(const ucontext_t *u, uint64_t ret[6])
{
#if defined(__x86_64__)
	static const int registers[] = { REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9 };

	for (size_t i = 0; i < 6; i++)
		ret[i] = (uint64_t)u->uc_mcontext.gregs[registers[i]];
#else
	for (size_t i = 0; i < 6; i++)
		ret[i] = u->uc_mcontext.regs[i];
#endif
}

static void describe(struct line *l, const siginfo_t *info, const char *name, const ucontext_t *u)
{
	uint64_t n[6];

	add(l, "sandbox: the system call ");
	if (name)
		add(l, name);
	else
		add_number(l, (unsigned)info->si_syscall);
	if (info->si_arch != NATIVE) {
		add(l, " of another processor type");
		return;
	}
	arguments(u, n);
	for (size_t i = 0; i < 6; i++) {
		add(l, i ? ", " : "(");
		add_number(l, n[i]);
	}
	add(l, ")");
}

static void write_line(struct line *l)
{
	struct iovec parts[] = {
		{ program_invocation_short_name, strlen(program_invocation_short_name) },
		{ (char[]){ ": " }, 2 },
		{ l->text, l->used },
		{ (char[]){ "\n" }, 1 },
	};

	if (report)
		report(l->text);
	else
		(void)!writev(STDERR_FILENO, parts, 4);
}

/* ---- the handler ---- */

/*
 * Ends the process with SIGSYS. The signal is blocked here, so another trapped call ends the
 * process, whatever its handler is.
 */
static _Noreturn void end(void)
{
	for (;;) {
		syscall(SYS_reboot, 0, 0, 0, 0);
		_exit(128 + SIGSYS);
	}
}

static bool is_first(unsigned number)
{
	const unsigned bit = number < MAX_NUMBER ? number : MAX_NUMBER;
	const uint64_t mask = UINT64_C(1) << bit % 64;

	return !(__atomic_fetch_or(&logged[bit / 64], mask, __ATOMIC_RELAXED) & mask);
}

static void on_denied(int signal, siginfo_t *info, void *context)
{
	const bool native = info->si_arch == NATIVE;
	const unsigned number = (unsigned)info->si_syscall;
	const char *name = native && number < n_syscall_names ? syscall_names[number] : NULL;
	/* a number of the x32 ABI ends it too */
	const bool known = native && number < MAX_NUMBER;
	const int error = name ? syscall_denied(name) : known ? ENOSYS : DENIED_ENDS;
	const int saved = errno;
	ucontext_t *u = context;
	struct line l = { .used = 0 };

	(void)signal;
	/* SYS_SECCOMP: others could only send it by kill(2) */
	if (info->si_code != 1)
		end();
	if (error == DENIED_ENDS || is_first(number)) {
		describe(&l, info, name, u);
		add(&l, " is not allowed; ");
		add(&l, error == DENIED_ENDS ? "the process ends" : "it fails with ");
		add(&l, error == DENIED_ENDS ? "" : strerrorname_np(error));
		write_line(&l);
	}
	if (error == DENIED_ENDS)
		end();
#if defined(__x86_64__)
	u->uc_mcontext.gregs[REG_RAX] = -error;
#else
	u->uc_mcontext.regs[0] = (uint64_t)-error;
#endif
	errno = saved;
}

int denied_catch(syscalls_report_fn *fn)
{
	struct sigaction a = { .sa_sigaction = on_denied, .sa_flags = SA_SIGINFO };

	report = fn;
	sigfillset(&a.sa_mask);
	return sigaction(SIGSYS, &a, NULL) < 0 ? -errno : 0;
}

#else

int denied_catch(syscalls_report_fn *report)
{
	(void)report;
	return 0;
}

#endif
