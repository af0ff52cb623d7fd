/* SPDX-License-Identifier: Apache-2.0 */
#include "process/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process/mountpoint.h"
#include "process/notify.h"
#include "process/quotes.h"
#include "common/option_list.h"
#include "common/text.h"

/* Fits 24 lines of 80 columns. */
static const char help_begin[] =
	"usage: cartonfs [-f] [-d] [-o OPTION,...] SOURCE MOUNTPOINT\n"
	"\n"
	"Mounts SOURCE read-only: file, directory, https://, s3://, hf://ORG/REPO, ms://\n"
	"or oci://HOST/NAME:TAG. A file is checked against its sha256 when it is first\n"
	"opened; if it differs, open fails with \"Input/output error\". Unmount: umount(8).\n"
	"\n";
static const char help_end[] =
	"Options of mount(8) work too. See cartonfs(1) for all, and cartonctl(1).\n"
	"Exit: 0 mounted, 1 usage, 2 system error, 32 mount failed, 75 try again later\n";

/* The options, and what the command line says that is not in them as it was given. */
struct raw {
	struct options o;
	char *paths[2];
	int n_paths;
	bool writable; /* with rw, */
	bool by_mount; /* which mount(8) and mount.fuse3 always say, that one with dev and suid */
};

static const struct fuse_opt flags[] = { FUSE_OPT_END };

#define KEY_NAMESPACE 1 /* mount -N */

/* Those of a mount helper, where they differ: see NOTES in mount(8). */
static const struct fuse_opt helper_flags[] = {
	{ "-f", offsetof(struct raw, o.fake), 1 },
	FUSE_OPT_KEY("-n", FUSE_OPT_KEY_DISCARD),
	FUSE_OPT_KEY("-s", FUSE_OPT_KEY_DISCARD),
	FUSE_OPT_KEY("-v", FUSE_OPT_KEY_DISCARD),
	FUSE_OPT_KEY("-t ", FUSE_OPT_KEY_DISCARD),
	FUSE_OPT_KEY("-N ", KEY_NAMESPACE),
	FUSE_OPT_END,
};

/* Options without effect. One that ends in = or - stands for all that begin with it. */
static const char *const ignored[] = {
	/* the mount is always read-only, without devices and setuid bits */
	"rw", "dev", "suid",
	/* in fstab lines, for other programs */
	"defaults", "auto", "noauto", "nofail", "user", "user=", "nouser", "users", "owner",
	"group", "_netdev", "comment=", "x-", "X-",
	/* defaults that not every libfuse knows */
	"atime", "symfollow",
	/* for file systems whose times and contents change */
	"relatime", "norelatime", "strictatime", "nostrictatime", "diratime", "nodiratime",
	"lazytime", "nolazytime", "iversion", "noiversion", "mand", "nomand", "silent", "loud"
};

__attribute__((format(printf, 1, 2))) static int usage_error(const char *fmt, ...)
{
	bool journal = notify_is_journal();
	va_list ap;

	va_start(ap, fmt);
	fputs(journal ? "<3>cartonfs: " : "cartonfs: ", stderr);
	text_vline(stderr, fmt, ap);
	if (!journal)
		fputs("Try 'cartonfs --help'.\n", stderr);
	va_end(ap);
	return -EINVAL;
}

static void note_writable(struct raw *raw, const char *option)
{
	raw->writable |= strcmp(option, "rw") == 0;
	raw->writable &= strcmp(option, "ro") != 0;
	raw->by_mount |= strcmp(option, "dev") == 0 || strcmp(option, "suid") == 0;
}

static bool is_ignored(const char *option)
{
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
		size_t n = strlen(ignored[i]);
		bool prefix = strchr("=-", ignored[i][n - 1]) != NULL;

		if (strncmp(option, ignored[i], prefix ? n : n + 1) == 0)
			return true;
	}
	return false;
}

/* Remembers a similar option, for the message if libfuse refuses this one. */
static void suggest(struct raw *raw, const char *option)
{
	const struct option_spec *s = option_near(option, strcspn(option, "="), "cartonfs");

	if (s && s->name[0] != '-' && !raw->o.suggestion)
		raw->o.suggestion = s->name;
}

/*
 * Refuses an unknown option that may have a secret, since libfuse would show it: a comma in a
 * password begins another option. 1: left to libfuse; -1: refused.
 */
static int check_unknown(const char *text)
{
	if (!strchr(text, '@') && !strstr(text, "://"))
		return 1;
	usage_error("an unknown option has an @ or a URL in it, and is not shown; write \\, for a "
		    "comma in the value of an option");
	return -1;
}

/*
 * `text` is NAME or NAME=VALUE. 1: it is left to libfuse; 0: done; -1: it was wrong, and reported.
 */
static int set_option(struct raw *raw, const char *text)
{
	size_t n = strcspn(text, "=");
	const struct option_spec *spec = option_find(text, n);
	char shown[256], expected[OPTION_EXPECTED];
	int r;

	if (!spec) {
		suggest(raw, text);
		return check_unknown(text);
	}
	if (spec->kind == OPTION_PASSED) {
		raw->o.helped |= strcmp(spec->name, "auto_unmount") == 0;
		return check_unknown(text);
	}
	r = option_set(spec, &raw->o.values, text[n] ? text + n + 1 : NULL);
	/* with an @, it may be what is left of a URL with a password, which was cut at a comma */
	if (r == -EINVAL)
		usage_error("-o %.*s: expected %s", strchr(text, '@') ? (int)n : (int)sizeof(shown),
			    carton_source_label(text, shown, sizeof(shown)),
			    option_expected(spec, expected));
	return r < 0 ? -1 : 0;
}

/* 0: done; -1: there is no such option, which was reported. */
static int set_word(struct raw *raw, const char *word)
{
	const struct option_spec *spec = option_find_word(word);
	size_t n = strcspn(word, "=:/?#@"); /* what follows may be a URL */
	size_t dashes = strspn(word, "-");
	bool of_mount = !spec && option_find(word + dashes, n - dashes);
	const struct option_spec *near = spec ? NULL : option_near(word, n, "cartonfs");

	if (of_mount)
		usage_error("unknown option: %.*s; write -o %.*s", (int)n, word, (int)(n - dashes),
			    word + dashes);
	else if (near)
		usage_error("unknown option: %.*s; did you mean %s%s?", (int)n, word,
			    near->name[0] == '-' ? "" : "-o ", near->name);
	else if (!spec && strcmp(word, "-") == 0)
		usage_error(
			"- is not taken here: a carton is read at any place, and its end first: "
			"save it to a file; a file called so is ./-");
	else if (!spec)
		usage_error("unknown option: %.*s", (int)n, word);
	if (!spec)
		return -1;
	return option_set(spec, &raw->o.values, NULL);
}

/* A fuse_opt_proc_t. */
static int on_option(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	struct raw *raw = data;
	char shown[256];

	(void)outargs;
	if (key == FUSE_OPT_KEY_NONOPT) {
		if (raw->n_paths == 2)
			return usage_error("too many arguments: %s",
					   carton_source_label(arg, shown, sizeof(shown))),
			       -1;
		raw->paths[raw->n_paths++] = strdup(arg);
		return 0;
	}
	if (key == KEY_NAMESPACE)
		return usage_error(
			       "-N: no mount is made in another namespace; run this in it: nsenter "
			       "--mount=NAMESPACE mount -t cartonfs SOURCE MOUNTPOINT"),
		       -1;
	if (arg[0] == '-')
		return set_word(raw, arg);
	if (strcmp(arg, "remount") == 0)
		return usage_error("-o remount: a mount cannot be changed; unmount it, and mount "
				   "it again"),
		       -1;
	note_writable(raw, arg);
	/* X-mount.mkdir is an option, and others that begin with X- are not */
	if (!option_find(arg, strcspn(arg, "=")) && is_ignored(arg))
		return 0;
	return set_option(raw, arg);
}

/* What verify= and views= say to the library. 0 or -ENOMEM. */
static int translate(struct option_values *v)
{
	if (v->verify == VERIFY_AUTO && v->nochunks)
		v->verify = VERIFY_OPEN;
	v->carton.verify = v->verify == VERIFY_OFF ? CARTON_VERIFY_OFF : CARTON_VERIFY_OPEN;
	v->carton.hash_all = v->verify == VERIFY_MOUNT;
	v->carton.chunks = !v->nochunks &&
			   (v->verify == VERIFY_AUTO || v->verify == VERIFY_BACKGROUND);
	/* "hidden" is no name: views/ is found by its usual name, but not listed */
	v->carton.views_hidden = v->views && strcmp(v->views, "hidden") == 0;
	if (!v->noviews)
		v->carton.views = strdup(v->views && !v->carton.views_hidden ? v->views : "views");
	return v->noviews || v->carton.views ? 0 : -ENOMEM;
}

/*
 * The absolute path of an existing file: a daemon changes its directory. A URL and an open FUSE
 * device (mount.fuse3 -o drop_privileges) are returned unchanged. A missing file is reported when
 * it is opened.
 */
static char *absolute(const char *path)
{
	char *found = strncmp(path, "/dev/fd/", 8) == 0 ? NULL : realpath(path, NULL);

	return found ? found : strdup(path);
}

/* The same without following symlinks: the file may be replaced later. NULL: out of memory. */
static char *absolute_name(const char *path)
{
	char *cwd = *path == '/' ? NULL : getcwd(NULL, 0), *name;

	if (!cwd || asprintf(&name, "%s/%s", cwd, path) < 0)
		name = cwd ? NULL : strdup(path);
	free(cwd);
	return name;
}

static int check_paths(struct raw *raw)
{
	struct options *o = &raw->o;
	char label[4096];

	if (raw->n_paths == 0)
		return usage_error("SOURCE and MOUNTPOINT are missing");
	if (raw->n_paths == 1)
		return usage_error(
			"MOUNTPOINT is missing%s",
			strcmp(raw->paths[0], "help") == 0    ? "; did you mean --help?" :
			strcmp(raw->paths[0], "version") == 0 ? "; did you mean --version?" :
								"");
	if (!*raw->paths[0] || !*raw->paths[1])
		return usage_error("%s is empty", *raw->paths[0] ? "MOUNTPOINT" : "SOURCE");
	o->source = absolute(raw->paths[0]);
	o->mountpoint = absolute(raw->paths[1]);
	o->given = absolute_name(raw->paths[1]);
	o->label = o->source ? strdup(carton_source_label(o->source, label, sizeof(label))) : NULL;
	return o->label && o->mountpoint && o->given ? 0 : -ENOMEM;
}

/*
 * The kernel divides a read-ahead into requests of this size, and several threads answer them at
 * once. Requests of 1 MiB take 1.9 times as long with O_DIRECT, and 1.3 times in sequential reads.
 */
#define MAX_READ 131072

/* Adds the mount options that are always set, fsname and max_read. */
static int add_mount_options(struct raw *raw)
{
	struct options *o = &raw->o;
	const char *name = o->values.fsname;
	char *text = NULL, *fsname = NULL, label[4096], max_read[32];
	int r = 0;

	if (fuse_opt_add_opt(&text, "ro,nosuid,nodev,default_permissions,subtype=cartonfs") < 0)
		return -ENOMEM;
	if (o->values.max_read == 0)
		o->values.max_read = MAX_READ;
	snprintf(max_read, sizeof(max_read), "max_read=%u", o->values.max_read);
	if (fuse_opt_add_opt(&text, max_read) < 0)
		r = -ENOMEM;
	carton_source_label(name ? name : o->label, label, sizeof(label));
	if (asprintf(&fsname, "fsname=%s", label) < 0)
		fsname = NULL;
	/*
	 * then only fusermount3 can open /dev/fuse. With auto_unmount libfuse calls it at once,
	 * else only if mount(2) fails
	 */
	if (access("/dev/fuse", R_OK | W_OK) < 0 && !mountpoint_is_device(o->mountpoint)) {
		o->helped = true;
		if (fuse_opt_add_opt(&text, "auto_unmount") < 0)
			r = -ENOMEM;
	}
	if (!fsname || fuse_opt_add_opt_escaped(&text, fsname) < 0 ||
	    fuse_opt_add_arg(&o->fuse, "-o") < 0 || fuse_opt_add_arg(&o->fuse, text) < 0)
		r = -ENOMEM;
	if (r == 0 && o->values.debug && fuse_opt_add_arg(&o->fuse, "-d") < 0)
		r = -ENOMEM;
	free(fsname);
	free(text);
	return r;
}

/* Files that are opened again after the daemon has changed its directory. */
static int make_absolute(struct carton_options *c)
{
	const char **files[] = { &c->cacert, &c->header_file };

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		const char *given = *files[i];

		*files[i] = given ? absolute_name(given) : NULL;
		free((char *)given);
		if (given && !*files[i])
			return -ENOMEM;
	}
	return 0;
}

static int complete(struct raw *raw)
{
	struct options *o = &raw->o;
	int r = check_paths(raw);

	if (r == 0)
		r = make_absolute(&o->values.carton);
	if (r == 0)
		r = translate(&o->values);
	return r == 0 ? add_mount_options(raw) : r;
}

/*
 * Removes a -- at the end, which libfuse leaves where there are options for it: an argument added
 * behind it would be no option.
 */
static void remove_dashes(struct fuse_args *args)
{
	char *last = args->argv[args->argc - 1];

	if (args->argc < 2 || strcmp(last, "--") != 0)
		return;
	args->argv[--args->argc] = NULL;
	free(last);
}

static bool is_helper(const char *argv0)
{
	const char *slash = strrchr(argv0, '/');

	return strcmp(slash ? slash + 1 : argv0, "mount.cartonfs") == 0;
}

/* Copies the words of the command line, and removes the quotes in options. 0 or -ENOMEM. */
static int copy_words(int argc, char **argv, struct fuse_args *ret)
{
	bool ended = false, options = false;

	*ret = (struct fuse_args)FUSE_ARGS_INIT(0, NULL);
	for (int i = 0; i < argc; i++) {
		char *copy = NULL;
		int r;

		if (!ended && (options || strncmp(argv[i], "-o", 2) == 0))
			copy = quotes_remove(argv[i]);
		ended |= !options && strcmp(argv[i], "--") == 0;
		options = !options && strcmp(argv[i], "-o") == 0;
		r = fuse_opt_add_arg(ret, copy ? copy : argv[i]);
		free(copy);
		if (r < 0)
			return -ENOMEM;
	}
	return 0;
}

int options_parse(int argc, char **argv, struct options *ret)
{
	struct raw raw = { 0 };
	struct option_values *v = &raw.o.values;
	const struct fuse_opt *letters = is_helper(argv[0]) ? helper_flags : flags;
	int r;

	v->uid = getuid();
	v->gid = getgid();
	v->mkdir_mode = -1;
	r = copy_words(argc, argv, &raw.o.fuse);
	if (r == 0 && fuse_opt_parse(&raw.o.fuse, &raw, letters, on_option) < 0)
		r = -EINVAL;
	if (r == 0)
		remove_dashes(&raw.o.fuse);
	v->foreground |= v->debug;
	if (r == 0 && raw.writable && !raw.by_mount && letters == flags)
		r = usage_error(
			"-o rw: a carton is never writable; leave it out, and put overlayfs "
			"on the mount for a program that writes");
	if (r == 0 && !v->help && !v->version && !v->complete)
		r = complete(&raw);
	free(raw.paths[0]);
	free(raw.paths[1]);
	*ret = raw.o;
	return r;
}

void options_finish(struct options *o)
{
	fuse_opt_free_args(&o->fuse);
	option_finish(&o->values);
	free((char *)o->values.carton.views);
	free(o->source);
	free(o->label);
	free(o->mountpoint);
	free(o->given);
}

bool options_print(const struct options *o)
{
	if (o->values.help) {
		fputs(help_begin, stdout);
		option_put_help(stdout, "cartonfs", true);
		fputs("Options of -o:\n", stdout);
		option_put_help(stdout, "cartonfs", false);
		fputs(help_end, stdout);
	} else if (o->values.version) {
		printf("cartonfs %s, libfuse %s\n", CARTON_VERSION, fuse_pkgversion());
	} else if (o->values.complete) {
		option_put_words(stdout, "cartonfs", NULL);
	}
	return o->values.help || o->values.version || o->values.complete;
}
