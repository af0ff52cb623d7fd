/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/control.h"
#include "ctl/ctl.h"
#include "ctl/ask.h"
#include "common/privacy.h"
#include "common/text.h"
#include "ctl/term.h"

/*
 * A ctl_question, whose answer has no text: asks the mount of words[0] to fetch from the URL
 * words[1] from now on.
 */
static int refresh(const void *words, char **ret)
{
	char *const *w = words;
	struct control_refresh q = { .url = "" };
	int fd = open(w[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	snprintf(q.url, sizeof(q.url), "%s", w[1]);
	if (strlen(w[1]) >= sizeof(q.url))
		r = -EINVAL;
	else if (ioctl(fd, CONTROL_REFRESH, &q) < 0)
		r = -errno;
	close(fd);
	(void)ret;
	return r;
}

int ctl_refresh(char **words, int n, const struct args *a)
{
	char *copies[2];
	struct ctl_question q = { .ask = refresh, .ctx = copies };
	const char *why;
	int r;

	(void)a;
	if (n != 2)
		return ctl_usage("refresh: expected MOUNTPOINT URL");
	copies[0] = words[0];
	copies[1] = strdup(words[1]);
	privacy_hide(words[1]);
	if (copies[1])
		ctl_ask(&q, 1);
	r = copies[1] ? q.r : -ENOMEM;
	free(copies[1]);
	free(q.text);
	if (r == 0) {
		term_put(words[0]);
		puts(": the next request goes to the new URL; cartonctl status shows if it fails");
		return ctl_flush(EXIT_GOOD);
	}
	why = r == -ENOTTY     ? "is not a mount of cartonfs" :
	      r == -EOPNOTSUPP ? "its carton does not come from a server" :
	      r == -ETIMEDOUT  ? CTL_NO_ANSWER :
	      r == -EINVAL     ? "the URL cannot be used" :
	      r == -EPERM      ? "only root and the user who has mounted may do this" :
				 strerror(-r);
	text_line(stderr, "cartonctl: refresh: %s: %s", words[0], why);
	return EXIT_BAD;
}
