/* SPDX-License-Identifier: Apache-2.0 */
/* Loads code before the process is confined: afterwards no memory can be made executable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "http/internal.h"

#define MAX_SERVICE 32

/* glibc has these in itself */
static bool is_built_in(const char *service)
{
	return strcmp(service, "files") == 0 || strcmp(service, "dns") == 0;
}

/*
 * The modules of a line such as `hosts: files mymachines [NOTFOUND=return] dns`, after its colon.
 */
static void load_services(char *line)
{
	char file[MAX_SERVICE + 16], *rest;

	for (char *s = strtok_r(line, " \t\n", &rest); s; s = strtok_r(NULL, " \t\n", &rest)) {
		if (*s == '#')
			return;
		/* an action such as [NOTFOUND=return]; it may have spaces, but names no file */
		if (strlen(s) > MAX_SERVICE || strpbrk(s, "[]=/!") || is_built_in(s))
			continue;
		snprintf(file, sizeof(file), "libnss_%s.so.2", s);
		library_load_optional(file);
	}
}

/*
 * Loads the modules that find hosts, and the home directory with .netrc. A module that is not
 * loaded now counts as unavailable, and the next one in the line is asked.
 */
static void load_name_services(void)
{
	const bool users = !getenv("HOME");
	FILE *f = fopen("/etc/nsswitch.conf", "re");
	size_t cap = 0;
	char *line = NULL;

	while (f && getline(&line, &cap, f) > 0)
		if (strncmp(line, "hosts:", 6) == 0 || (users && strncmp(line, "passwd:", 7) == 0))
			load_services(strchr(line, ':') + 1);
	free(line);
	if (f)
		fclose(f);
}

int http_prepare(void)
{
	int r = http_load_curl();

	if (r < 0)
		return r;
	/* OpenSSL then reads its configuration, which may name modules too */
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	load_name_services();
	return 0;
}
