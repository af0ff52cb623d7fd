/* SPDX-License-Identifier: Apache-2.0 */
#include "process/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/exit_status.h"
#include "common/text.h"
#include "log.h"

/*
 * The signals that the parent passes on to the child while it mounts; not those that are ignored.
 */
static void forwarded_signals(sigset_t *ret)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction now;

	sigemptyset(ret);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(ret, numbers[i]);
}

/*
 * Waits until the child has mounted or has ended: the exit status. Forwards `signals`, which are
 * blocked, to the child.
 */
static int wait_for_child(pid_t child, int fd, const sigset_t *signals)
{
	struct pollfd polls[] = { { fd, POLLIN, 0 },
				  { signalfd(-1, signals, SFD_CLOEXEC), POLLIN, 0 } };
	struct signalfd_siginfo info;
	char ok;
	ssize_t n;
	int status;

	while (poll(polls, 2, -1) < 0 || !polls[0].revents)
		if (polls[1].revents && read(polls[1].fd, &info, sizeof(info)) == sizeof(info))
			kill(child, (int)info.ssi_signo);
	do
		n = read(fd, &ok, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		return EXIT_GOOD;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_SYSTEM;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	/* over a bar that it has left, and the ^C */
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	if (!sigismember(signals, WTERMSIG(status))) {
		text_line(stderr, "cartonfs: killed by signal %d before it was mounted",
			  WTERMSIG(status));
		return EXIT_SYSTEM;
	}
	text_line(stderr, "cartonfs: interrupted; nothing is mounted");
	return EXIT_SIGNAL + WTERMSIG(status);
}

bool daemon_fork(int *ret_fd, int *ret_status)
{
	sigset_t signals, before;
	pid_t child;
	int fds[2];

	forwarded_signals(&signals);
	sigprocmask(SIG_BLOCK, &signals, &before);
	if (pipe2(fds, O_CLOEXEC) < 0 || (child = fork()) < 0) {
		text_line(stderr, "cartonfs: %s", error_text(-errno));
		*ret_status = EXIT_SYSTEM;
		return false;
	}
	if (child > 0) {
		close(fds[1]);
		*ret_status = wait_for_child(child, fds[0], &signals);
		return false;
	}
	close(fds[0]);
	sigprocmask(SIG_SETMASK, &before, NULL);
	*ret_fd = fds[1];
	return true;
}

void daemon_drop_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	if (null > STDERR_FILENO)
		close(null);
}

void daemon_ready(int fd)
{
	char ok = 1;

	setsid();
	/* all relative paths have been opened or made absolute */
	if (chdir("/") < 0)
		carton_log(CARTON_LOG_WARNING, "/", "%s", strerror(errno));
	daemon_drop_terminal();
	if (write(fd, &ok, 1) != 1)
		carton_log(CARTON_LOG_WARNING, NULL,
			   "the process that started this mount has ended");
	close(fd);
}
