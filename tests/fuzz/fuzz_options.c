/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any command line: it ends with options or with usage and a text that says so. Whatever is asked
 * for, libfuse is given ro, nosuid and nodev last. No password of a URL is printed, or is in an
 * option of libfuse, which all users see in the table of mounts.
 *
 * The input: how the program is called (1 byte: 1 as mount.cartonfs), then its arguments, each with
 * a NUL. The byte 1 stands for a URL with a password, up to its @; 2 for a URL with a token; once
 * in an argument, behind names of options: in the path of another URL it is no secret. The secret
 * follows from the input, so that no input can have it elsewhere, escaped or not.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "process/options.h"

#include "fuzz.h"

#define MAX_ARGS 40
#define MAX_TEXT 65536 /* of all arguments */
#define NAMES "-_=,abcdefghijklmnopqrstuvwxyz0123456789"

/* What libfuse takes for a mount flag, in its own way: the last one counts. */
struct flags {
	int ro, nosuid, nodev;
};

#define FLAG(text, field, value)                            \
	{                                                   \
		text, offsetof(struct flags, field), value, \
	}

static const struct fuse_opt flag_table[] = {
	FLAG("ro", ro, 1),
	FLAG("rw", ro, 0),
	FLAG("nosuid", nosuid, 1),
	FLAG("suid", nosuid, 0),
	FLAG("nodev", nodev, 1),
	FLAG("dev", nodev, 0),
	FUSE_OPT_END,
};

static char secret[17];

/* The hash of the input (FNV-1a), in letters. */
static void make_secret(const uint8_t *data, size_t n)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ data[i]) * 0x100000001b3;
	for (size_t i = 0; i < sizeof(secret) - 1; i++, hash >>= 4)
		secret[i] = (char)('A' + (hash & 15));
}

/* The arguments of the input, with a NUL after each, in `text`. */
static int make_args(const uint8_t *data, size_t n, char *text, char **argv)
{
	int argc = 0;
	size_t len = 0;

	argv[argc++] = n && data[0] == 1 ? "/sbin/mount.cartonfs" : "cartonfs";
	for (size_t i = 1; i < n && argc < MAX_ARGS && len + 64 < MAX_TEXT; i++) {
		if (i == 1 || data[i - 1] == 0)
			argv[argc++] = text + len;
		text[len] = '\0';
		if ((data[i] == 1 || data[i] == 2) &&
		    !argv[argc - 1][strspn(argv[argc - 1], NAMES)]) {
			len += (size_t)sprintf(text + len,
					       data[i] == 1 ? "https://user:%s@" :
							      "https://host/a?token=%s",
					       secret);
		} else {
			text[len++] = (char)data[i];
		}
	}
	text[len] = '\0';
	argv[argc] = NULL;
	return argc;
}

static void check_flags(const struct options *o)
{
	struct fuse_args copy = FUSE_ARGS_INIT(o->fuse.argc, o->fuse.argv);
	struct flags f = { 0 };

	CHECK(fuse_opt_parse(&copy, &f, flag_table, NULL) == 0);
	fuse_opt_free_args(&copy);
	CHECK(f.ro && f.nosuid && f.nodev);
}

static void check_options(struct options *o)
{
	static const struct fuse_lowlevel_ops none;
	struct fuse_session *session;

	CHECK(o->source && o->mountpoint && o->given && o->label);
	CHECK(*o->source && *o->mountpoint && *o->given == '/' && o->values.max_read > 0);
	CHECK(o->values.umask <= 0777 && o->values.mkdir_mode >= -1 &&
	      o->values.mkdir_mode <= 0777);
	CHECK(o->values.carton.connections <= 32 && o->values.carton.timeout_s <= 86400);
	CHECK(!strstr(o->label, secret));
	for (int i = 0; i < o->fuse.argc; i++)
		CHECK(!strstr(o->fuse.argv[i], secret));
	check_flags(o);
	/* what is left is known to libfuse, or it says what is not */
	session = fuse_session_new(&o->fuse, &none, sizeof(none), NULL);
	if (session)
		fuse_session_destroy(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char text[MAX_TEXT];
	char *argv[MAX_ARGS + 1], *printed = NULL;
	FILE *before = stderr, *out;
	struct options o = { 0 };
	size_t n_printed;
	int r;

	make_secret(data, n);
	out = open_memstream(&printed, &n_printed);
	CHECK(out);
	stderr = out;
	r = options_parse(make_args(data, n, text, argv), argv, &o);
	fflush(out);
	CHECK(r == 0 || r == -EINVAL);
	CHECK((r == -EINVAL) == (n_printed > 0));
	CHECK(r == 0 || strcmp(printed + n_printed - 1, "\n") == 0);
	if (r == 0 && !o.values.help && !o.values.version && !o.values.complete)
		check_options(&o);
	options_finish(&o);
	stderr = before;
	fclose(out);
	CHECK(!strstr(printed, secret));
	free(printed);
	return 0;
}
