/* SPDX-License-Identifier: Apache-2.0 */
#include "http/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pace.h"
#include "base/util.h"

/* ---- the process: async-signal-safe ---- */

/* Of this process: whoever asks. Without them, no answer is worth waiting for. */
static int asker = -1;

/* Waits until something is to be had of `fd`. 0; -ETIMEDOUT; -ECANCELED: who has asked is gone. */
static int wait_for(int fd, int64_t deadline)
{
	struct pollfd p[] = { { fd, POLLIN, 0 }, { asker, 0, 0 } };

	if (poll(p, 2, (int)MAX(deadline - now_ms(), 0)) == 0)
		return -ETIMEDOUT;
	return p[1].revents ? -ECANCELED : 0;
}

/* Takes what the program writes, until it ends its output. 0 or -errno. */
static int take_output(int fd, int64_t deadline, char *ret, size_t max, size_t *ret_n)
{
	ssize_t n = 1;
	int r = 0;

	while (r == 0 && n > 0) {
		r = wait_for(fd, deadline);
		if (r == 0 && *ret_n == max)
			r = -EFBIG;
		n = r == 0 ? read(fd, ret + *ret_n, max - *ret_n) : 0;
		if (n > 0)
			*ret_n += (size_t)n;
	}
	return r;
}

/* Waits until the program has ended, which may be later than its output. 0 or -errno. */
static int wait_for_end(pid_t pid, int64_t deadline)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	int r = fd < 0 ? 0 : wait_for(fd, deadline);

	fd_close(fd);
	return r;
}

_Noreturn static void run_child(const char *command, const int in[2], int out)
{
	setpgid(0, 0);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	if (in[0] >= 0)
		dup2(in[0], STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	/* the command may start a daemon, which would keep inherited descriptors open */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

/* A pipe with a short text in it; none for NULL. 0 or -errno. */
static int open_input(const char *text, int ret[2])
{
	int r = 0;

	ret[0] = ret[1] = -1;
	if (!text)
		return 0;
	if (pipe2(ret, O_CLOEXEC) < 0)
		return -errno;
	if (write(ret[1], text, strlen(text)) < 0)
		r = -errno;
	fd_close(ret[1]);
	if (r < 0)
		fd_close(ret[0]);
	return r;
}

int helper_run(const char *command, const char *input, char *ret, size_t n, size_t *ret_n)
{
	int in[2], out[2], status = 0, r = open_input(input, in);
	int64_t deadline = now_ms() + pace.helper_ms;
	pid_t pid;

	*ret_n = 0;
	if (r < 0)
		return r;
	if (pipe2(out, O_CLOEXEC) < 0) {
		r = -errno;
		fd_close(in[0]);
		return r;
	}
	pid = _Fork();
	if (pid == 0)
		run_child(command, in, out[1]);
	fd_close(in[0]);
	fd_close(out[1]);
	if (pid > 0)
		r = take_output(out[0], deadline, ret, n, ret_n);
	fd_close(out[0]);
	if (pid < 0)
		return -EAGAIN;
	if (r == 0)
		r = wait_for_end(pid, deadline);
	if (r < 0)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return r < 0 ? r : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* Callers may wait for the end of the output. */
static void drop_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	fd_close(null);
}

_Noreturn static void serve(const struct helper_job *job, int fd, int parent_end)
{
	char byte;

	carton_rename_process("cartonfs: keys", "cartonfs-keys");
	close(parent_end);
	setsid();
	signal(SIGPIPE, SIG_IGN);
	if (fd != 3)
		dup3(fd, 3, O_CLOEXEC);
	syscall(SYS_close_range, 4, ~0U, 0);
	asker = 3;
	while (recv(3, &byte, 1, 0) == 1) {
		size_t n = job->find(job->ctx);

		if (send(3, job->message, n, MSG_NOSIGNAL) < 0)
			break;
		drop_terminal();
	}
	_exit(0);
}

/* ---- who asks ---- */

int helper_start(struct helper *h, const struct helper_job *job, struct cancel *stop)
{
	int fds[2];
	pid_t pid;

	*h = (struct helper){ .fd = -1, .stop = stop };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		serve(job, fds[1], fds[0]);
	fd_close(fds[1]);
	if (pid < 0) {
		fd_close(fds[0]);
		return -EAGAIN;
	}
	h->fd = fds[0];
	return 0;
}

void helper_end(struct helper *h)
{
	fd_close(h->fd);
	h->fd = -1;
}

void helper_ask(struct helper *h)
{
	if (h->asked)
		return;
	h->asked_ms = now_ms();
	h->asked = send(h->fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

struct receiving {
	struct cancel_hook hook;
	int fd;
};

static void end_receiving(struct cancel_hook *hook)
{
	shutdown(container_of(hook, struct receiving, hook)->fd, SHUT_RD);
}

/* Is there something by then, or nothing to come? */
static bool wait_for_answer(const struct helper *h, int wait_ms)
{
	struct receiving r = { { .fire = end_receiving }, h->fd };
	struct pollfd p = { h->fd, POLLIN, 0 };
	int64_t deadline = now_ms() + wait_ms;
	int n;

	cancel_hook_add(h->stop, &r.hook);
	do
		n = poll(&p, 1, (int)MAX(deadline - now_ms(), 0));
	while (n < 0 && errno == EINTR);
	cancel_hook_remove(h->stop, &r.hook);
	return n > 0;
}

ssize_t helper_receive(struct helper *h, int wait_ms, void *ret, size_t max)
{
	ssize_t n;

	if (wait_ms && !wait_for_answer(h, wait_ms))
		return -ETIMEDOUT;
	n = recv(h->fd, ret, max, MSG_DONTWAIT);
	if (n < 0)
		return -EAGAIN;
	if (n > 0)
		h->asked = false;
	return n > 0 ? n : h->stop && cancel_fired(h->stop) ? -ECANCELED : -EPIPE;
}
