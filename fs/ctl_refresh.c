/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "control.h"
#include "ctl.h"
#include "privacy.h"
#include "text.h"

static int refresh(const char *mountpoint, const char *url)
{
	struct control_refresh q = { .url = "" };
	int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	snprintf(q.url, sizeof(q.url), "%s", url);
	if (strlen(url) >= sizeof(q.url))
		r = -EINVAL;
	else if (ioctl(fd, CONTROL_REFRESH, &q) < 0)
		r = -errno;
	close(fd);
	return r;
}

int ctl_refresh(char **words, int n, const struct args *a)
{
	const char *why;
	int r;

	(void)a;
	if (n != 2)
		return ctl_usage("refresh: expected MOUNTPOINT URL");
	r = refresh(words[0], words[1]);
	privacy_hide_url(words[1]);
	if (r == 0)
		return ctl_finish(EXIT_GOOD);
	why = r == -ENOTTY     ? "is not a mount of cartonfs" :
	      r == -EOPNOTSUPP ? "its carton does not come from a server" :
	      r == -EINVAL     ? "the URL cannot be used" :
	      r == -EPERM      ? "only root and the user who has mounted may do this" :
				 strerror(-r);
	text_line(stderr, "cartonctl: refresh: %s: %s", words[0], why);
	return EXIT_BAD;
}
