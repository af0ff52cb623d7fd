/* SPDX-License-Identifier: Apache-2.0 */
#include "common/end_first.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "common/exit_status.h"

void signal_ends_first(int number)
{
	if (getpid() == 1)
		_exit(EXIT_SIGNAL + number);
}

/* A forked child has inherited this handler, and is not process 1: the signal ends it as usual. */
static void on_signal(int number)
{
	signal_ends_first(number);
	signal(number, SIG_DFL);
	raise(number);
}

void signals_begin(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
	struct sigaction old;

	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; getpid() == 1 && i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			signal(numbers[i], on_signal);
}
