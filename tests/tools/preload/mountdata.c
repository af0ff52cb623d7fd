/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: writes the data of each mount(2), a line each, to the file MOUNT_DATA. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>

int mount(const char *source, const char *target, const char *type, unsigned long flags,
	  const void *data)
{
	__typeof__(&mount) real = (__typeof__(&mount))dlsym(RTLD_NEXT, "mount");
	FILE *f = fopen(getenv("MOUNT_DATA"), "ae");

	if (f && data)
		fprintf(f, "%s\n", (const char *)data);
	if (f)
		fclose(f);
	return real(source, target, type, flags, data);
}
