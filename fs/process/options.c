/* SPDX-License-Identifier: Apache-2.0 */
#include "process/options.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/numbers.h"
#include "process/mountpoint.h"
#include "process/notify.h"
#include "common/option_table.h"
#include "common/text.h"

/* Fits 24 lines of 80 columns. */
const char options_help[] =
	"usage: cartonfs [-f] [-d] [-o OPTION,...] SOURCE MOUNTPOINT\n"
	"\n"
	"Mounts the carton SOURCE (a file, an unpacked directory or an http(s) URL)\n"
	"read-only. A file is checked against its sha256 when it is first opened; if it\n"
	"does not match, open fails with \"Input/output error\". Unmount with umount(8).\n"
	"\n"
	"  -f  run in the foreground           -d  the same, and log each FUSE request\n"
	"  -h, --help  show this help          -V, --version\n"
	"  -o verify=mount       all files first; =open: each whole; =background, =off\n"
	"  -o manifest_sha256=H  mount only the model whose MANIFEST has this sha256\n"
	"  -o seals=off          check files again in each mount, without seals\n"
	"  -o cache_dir=DIR      keep unpacked and fetched files in DIR\n"
	"  -o cache_size=20G     limit the cache; memory=2G: limit the use of memory\n"
	"  -o offline            make no network requests, use only the cache\n"
	"  -o connections=N      parallel requests for a file (8); max_size=2T: its bytes\n"
	"  -o timeout=SECONDS    fail a request that gets no data for so long (60)\n"
	"  -o private_links      private addresses in LINKS; mirror=URL: ask it first\n"
	"  -o cacert=FILE        trusted CAs; header_file=FILE: request headers to send\n"
	"  -o noviews            no generated directory views/; views=NAME: rename it\n"
	"  -o allow_other        let other users read it; auto_unmount: even if killed\n"
	"  -o uid=N,gid=N,umask=OCTAL  owner of the files, permission bits to remove\n"
	"  -o mkdir              create MOUNTPOINT; passthrough: the kernel reads itself\n"
	"Options of mount(8) work too. See cartonfs(1) for all, and cartonctl(1).\n"
	"Exit: 0 mounted, 1 usage, 2 system error, 32 mount failed, 75 try again later\n";

/* The options, and what the command line says of those that are not in them as they were given. */
struct raw {
	struct options o;
	char *verify, *views, *fsname;
	bool noviews;
	char *paths[2];
	int n_paths;
};

#define SPEC(name, kind, expected, max)                                         \
	{                                                                       \
#name, OPTION_##kind, offsetof(struct raw, name), expected, max \
	}

#define OWN(name, kind, expected, max)                                            \
	{                                                                         \
#name, OPTION_##kind, offsetof(struct raw, o.name), expected, max \
	}

/* The options that cartonctl does not have. */
static const struct option_spec mount_table[] = {
	SPEC(verify, TEXT, "auto, open, mount, background or off", 0),
	{ "chunks", OPTION_UNLESS, offsetof(struct raw, o.nochunks), "on or off", 0 },
	SPEC(noviews, FLAG, "no value", 0),
	SPEC(views, TEXT, "a name, or hidden", 0),
	OWN(uid, NUMBER, "a number", UINT_MAX - 1),
	OWN(gid, NUMBER, "a number", UINT_MAX - 1),
	OWN(umask, OCTAL, "an octal number such as 022", 0777),
	SPEC(fsname, TEXT, NULL, 0),
	OWN(error_file, TEXT, "a file", 0),
	OWN(nosandbox, FLAG, "no value", 0),
	OWN(passthrough, FLAG, "no value", 0),
	OWN(mount_only, FLAG, "no value", 0),
	OWN(max_read, NUMBER, "a number of bytes", UINT_MAX),
	{ .name = NULL },
};

#define FLAG(text, field)                              \
	{                                              \
		text, offsetof(struct raw, o.field), 1 \
	}

static const struct fuse_opt flags[] = {
	FLAG("-f", foreground), FLAG("-d", debug),   FLAG("debug", debug),	 FLAG("-h", help),
	FLAG("--help", help),	FLAG("-V", version), FLAG("--version", version), FUSE_OPT_END,
};

/* Those of a mount helper: see NOTES in mount(8). */
static const struct fuse_opt helper_flags[] = {
	FLAG("-f", fake),
	FUSE_OPT_KEY("-n", FUSE_OPT_KEY_DISCARD),
	FUSE_OPT_KEY("-s", FUSE_OPT_KEY_DISCARD),
	FUSE_OPT_KEY("-v", FUSE_OPT_KEY_DISCARD),
	FUSE_OPT_KEY("-t ", FUSE_OPT_KEY_DISCARD),
	FLAG("debug", debug),
	FLAG("-h", help),
	FLAG("--help", help),
	FLAG("-V", version),
	FLAG("--version", version),
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

/* Remembers a similar option of ours, for the message if libfuse refuses this one. */
static void suggest(struct raw *raw, const char *option)
{
	static const struct option_spec *const tables[] = { mount_table, carton_option_table };
	/* the most used ones of libfuse and the kernel */
	static const char *const others[] = { "allow_other", "auto_unmount", "noexec", "noatime" };
	char name[32];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(option, "="), option);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && !raw->o.suggestion; i++) {
		if (strcmp(name, others[i]) == 0)
			return;
		if (option_similar(name, others[i]))
			raw->o.suggestion = others[i];
	}
	for (size_t i = 0; i < 2 && !raw->o.suggestion; i++)
		for (const struct option_spec *s = tables[i]; s->name; s++)
			if (option_similar(name, s->name))
				raw->o.suggestion = s->name;
}

/*
 * libfuse would show it. A comma in a password begins another option. 1: it is left to libfuse; -1.
 */
static int check_unknown(const char *text)
{
	if (!strchr(text, '@') && !strstr(text, "://"))
		return 1;
	usage_error("an unknown option has an @ or a URL in it, and is not shown; write \\, for a "
		    "comma "
		    "in the value of an option");
	return -1;
}

/*
 * `text` is NAME or NAME=VALUE. 1: it is left to libfuse; 0: done; -1: it was wrong, and reported.
 */
static int set_option(struct raw *raw, const char *text)
{
	size_t n = strcspn(text, "=");
	const struct option_spec *spec = option_find(mount_table, text, n);
	void *target = raw;
	char shown[256];
	int r;

	if (!spec) {
		spec = option_find(carton_option_table, text, n);
		target = &raw->o.carton;
	}
	if (!spec) {
		suggest(raw, text);
		return check_unknown(text);
	}
	r = option_set(spec, target, text[n] ? text + n + 1 : NULL);
	if (r == -EINVAL)
		usage_error("-o %s: expected %s", carton_source_label(text, shown, sizeof(shown)),
			    spec->expected);
	/* libfuse has to know this one as well */
	return r < 0 ? -1 : strcmp(spec->name, "max_read") == 0;
}

/*
 * mkdir and mkdir=MODE, also with the names that mount(8) has for it. False: it is another option.
 */
static bool is_mkdir(const char *option, const char **ret_mode)
{
	static const char *const names[] = { "mkdir", "X-mount.mkdir", "x-mount.mkdir" };
	size_t n = strcspn(option, "=");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == n && strncmp(option, names[i], n) == 0) {
			*ret_mode = option[n] ? option + n + 1 : NULL;
			return true;
		}
	return false;
}

static int set_mkdir(struct raw *raw, const char *option, const char *mode)
{
	unsigned long n = 0755;
	char shown[256];

	if (mode && !parse_number(mode, 8, 0777, &n))
		return usage_error("-o %s: expected an octal number such as 0755",
				   carton_source_label(option, shown, sizeof(shown))),
		       -1;
	raw->o.mkdir_mode = (int)n;
	return 0;
}

/* A fuse_opt_proc_t. */
static int on_option(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	struct raw *raw = data;
	const char *mode;
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
	if (arg[0] == '-') /* what follows may be a URL */
		return usage_error("unknown option: %.*s", (int)strcspn(arg, "=:/?#@"), arg), -1;
	if (strcmp(arg, "remount") == 0)
		return usage_error("-o remount: a mount cannot be changed; unmount it, and mount "
				   "it again"),
		       -1;
	if (is_mkdir(arg, &mode))
		return set_mkdir(raw, arg, mode);
	return is_ignored(arg) ? 0 : set_option(raw, arg);
}

static int check_verify(const char *verify, struct options *o)
{
	static const char *const words[] = {
		[VERIFY_AUTO] = "auto",	  [VERIFY_OPEN] = "open",
		[VERIFY_MOUNT] = "mount", [VERIFY_BACKGROUND] = "background",
		[VERIFY_OFF] = "off",
	};
	size_t i = 0, n = sizeof(words) / sizeof(words[0]);
	char shown[256];

	while (verify && i < n && strcmp(verify, words[i]) != 0)
		i++;
	if (i == n)
		return usage_error("-o verify=%s: expected auto, open, mount, background or off",
				   carton_source_label(verify, shown, sizeof(shown)));
	o->verify = i == VERIFY_AUTO && o->nochunks ? VERIFY_OPEN : (enum verify)i;
	o->verify_word = words[o->verify];
	o->carton.verify = i == VERIFY_OFF ? CARTON_VERIFY_OFF : CARTON_VERIFY_OPEN;
	o->carton.hash_all = i == VERIFY_MOUNT;
	o->carton.chunks = !o->nochunks && (i == VERIFY_AUTO || i == VERIFY_BACKGROUND);
	return 0;
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
		return usage_error("MOUNTPOINT is missing");
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
#define MAX_READ "131072"

/* Adds the mount options that are always set, fsname, and max_read unless the user has set it. */
static int add_mount_options(struct raw *raw)
{
	struct options *o = &raw->o;
	char *text = NULL, *fsname = NULL, label[4096];
	int r = 0;

	if (fuse_opt_add_opt(&text, "ro,nosuid,nodev,default_permissions,subtype=cartonfs") < 0)
		return -ENOMEM;
	if (o->max_read == 0) {
		o->max_read = (unsigned)strtoul(MAX_READ, NULL, 10);
		if (fuse_opt_add_opt(&text, "max_read=" MAX_READ) < 0)
			r = -ENOMEM;
	}
	carton_source_label(raw->fsname ? raw->fsname : o->label, label, sizeof(label));
	if (asprintf(&fsname, "fsname=%s", label) < 0)
		fsname = NULL;
	/*
	 * then only fusermount3 can open /dev/fuse. With auto_unmount libfuse calls it at once,
	 * else only if mount(2) fails
	 */
	if (access("/dev/fuse", R_OK | W_OK) < 0 && !mountpoint_is_device(o->mountpoint) &&
	    fuse_opt_add_opt(&text, "auto_unmount") < 0)
		r = -ENOMEM;
	if (!fsname || fuse_opt_add_opt_escaped(&text, fsname) < 0 ||
	    fuse_opt_add_arg(&o->fuse, "-o") < 0 || fuse_opt_add_arg(&o->fuse, text) < 0)
		r = -ENOMEM;
	if (r == 0 && o->debug && fuse_opt_add_arg(&o->fuse, "-d") < 0)
		r = -ENOMEM;
	free(fsname);
	free(text);
	return r;
}

/* Files that are opened again after the daemon has changed its directory. */
static int make_absolute(struct carton_options *c)
{
	const char *cacert = c->cacert, *header_file = c->header_file;
	int r;

	c->header_file = header_file ? absolute_name(header_file) : NULL;
	c->cacert = cacert ? absolute_name(cacert) : NULL;
	r = (cacert && !c->cacert) || (header_file && !c->header_file) ? -ENOMEM : 0;
	free((char *)header_file);
	free((char *)cacert);
	return r;
}

static int complete(struct raw *raw)
{
	struct options *o = &raw->o;
	int r = check_paths(raw);

	if (r == 0)
		r = make_absolute(&o->carton);
	if (r == 0)
		r = check_verify(raw->verify, o);
	/* "hidden" is no name: views/ is found by its usual name, but not listed */
	o->carton.views_hidden = raw->views && strcmp(raw->views, "hidden") == 0;
	if (!raw->noviews)
		o->carton.views = strdup(raw->views && !o->carton.views_hidden ? raw->views :
										 "views");
	if (r == 0 && !raw->noviews && !o->carton.views)
		r = -ENOMEM;
	return r == 0 ? add_mount_options(raw) : r;
}

/*
 * libfuse leaves a -- at the end where there are options for it. What is added behind it would be
 * no option.
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

int options_parse(int argc, char **argv, struct options *ret)
{
	struct raw raw = { .o = { .uid = getuid(),
				  .gid = getgid(),
				  .mkdir_mode = -1,
				  .fuse = FUSE_ARGS_INIT(argc, argv) } };
	const struct fuse_opt *letters = is_helper(argv[0]) ? helper_flags : flags;
	int r = fuse_opt_parse(&raw.o.fuse, &raw, letters, on_option) < 0 ? -EINVAL : 0;

	if (r == 0)
		remove_dashes(&raw.o.fuse);
	raw.o.foreground |= raw.o.debug;
	if (r == 0 && !raw.o.help && !raw.o.version)
		r = complete(&raw);
	free(raw.verify);
	free(raw.views);
	free(raw.fsname);
	free(raw.paths[0]);
	free(raw.paths[1]);
	*ret = raw.o;
	return r;
}

void options_finish(struct options *o)
{
	fuse_opt_free_args(&o->fuse);
	option_finish(carton_option_table, &o->carton);
	free((char *)o->carton.views);
	free(o->source);
	free(o->label);
	free(o->mountpoint);
	free(o->given);
	free(o->error_file);
}
