/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"

/* Within 24 lines of 80 columns. */
const char options_help[] =
	"usage: cartonfs [-f] [-d] [-o OPTION,...] SOURCE MOUNTPOINT\n"
	"\n"
	"Mounts the carton SOURCE, a file, a directory or an http(s) URL, read-only, and\n"
	"returns when its tree is there. A file that is not what MANIFEST says cannot be\n"
	"opened: \"Input/output error\", never wrong bytes. Unmount it with umount(8).\n"
	"\n"
	"  -f  stay in the foreground          -d  the same, and show each FUSE request\n"
	"  -h, --help  this text               -V, --version\n"
	"  -o verify=WHEN        open: each file when it is first opened (the default);\n"
	"                        mount: all before the mount appears; off: nothing\n"
	"  -o manifest_sha256=H  only the model whose MANIFEST has this sha256\n"
	"  -o cache_dir=DIR      for what is unpacked and fetched; cache_size=20G at most\n"
	"  -o offline            fetch nothing: only what the cache has\n"
	"  -o connections=N      at once for a large file (8); timeout=S of silence (60)\n"
	"  -o private_links      let LINKS lead to private addresses\n"
	"  -o cacert=FILE        authorities to trust; header_file=FILE lines to send\n"
	"  -o noviews            no views/ with tensors as .bin, .npy, Triton requests...\n"
	"  -o views=NAME         call it NAME; views=hidden: found by name, not listed\n"
	"  -o allow_other        for other users too; auto_unmount: even if killed\n"
	"  -o uid=N,gid=N,umask=OCTAL   who owns the files, what nobody may do\n"
	"  and the usual options of mount(8); more in cartonfs(1). See also cartonctl(1).\n"
	"\n"
	"exit status: 0 mounted, 1 usage, 2 system error, 32 it cannot be mounted\n";

/* What fuse_opt fills by offset; checked and moved to struct options afterwards. */
struct raw {
	char *verify, *manifest_sha256, *cache_dir, *cache_size;
	char *cacert, *header_file, *connections, *timeout;
	char *views;
	int offline, private_links, noviews;
	char *uid, *gid, *umask, *fsname, *max_read;
	int foreground, debug, help, version, allow_other;
	char *paths[2];
	int n_paths;
	bool failed;
};

#define RAW(text, field)                             \
	{                                            \
		text, offsetof(struct raw, field), 1 \
	}

static const struct fuse_opt specs[] = {
	RAW("-f", foreground),
	RAW("-d", debug),
	RAW("debug", debug),
	RAW("-h", help),
	RAW("--help", help),
	RAW("-V", version),
	RAW("--version", version),
	RAW("verify=%s", verify),
	RAW("manifest_sha256=%s", manifest_sha256),
	RAW("cache_dir=%s", cache_dir),
	RAW("cache_size=%s", cache_size),
	RAW("noviews", noviews),
	RAW("views=%s", views),
	RAW("offline", offline),
	RAW("connections=%s", connections),
	RAW("timeout=%s", timeout),
	RAW("private_links", private_links),
	RAW("cacert=%s", cacert),
	RAW("header_file=%s", header_file),
	RAW("uid=%s", uid),
	RAW("gid=%s", gid),
	RAW("umask=%s", umask),
	RAW("fsname=%s", fsname),
	RAW("max_read=%s", max_read),
	FUSE_OPT_KEY("max_read=", FUSE_OPT_KEY_KEEP),
	RAW("allow_other", allow_other),
	FUSE_OPT_KEY("allow_other", FUSE_OPT_KEY_KEEP),
	FUSE_OPT_END,
};

/* Options that change nothing here. One that ends in = or - stands for all that begin with it. */
static const char *const ignored[] = {
	/* the mount is read-only and without devices and setuid bits, whatever mount(8) adds */
	"rw", "dev", "suid",
	/* what fstab lines hold for others to read */
	"defaults", "auto", "noauto", "nofail", "user", "user=", "nouser", "users", "owner",
	"group", "_netdev", "comment=", "x-", "X-",
	/* of times that never change, and of writing */
	"relatime", "norelatime", "strictatime", "nostrictatime", "diratime", "nodiratime",
	"lazytime", "nolazytime", "iversion", "noiversion", "mand", "nomand", "silent", "loud"
};

static void complain(const char *what, const char *value)
{
	fprintf(stderr, "cartonfs: %s%s%s%s; see cartonfs --help\n", what, value ? ": \"" : "",
		value ? value : "", value ? "\"" : "");
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

static int on_option(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	struct raw *raw = data;

	(void)outargs;
	if (key == FUSE_OPT_KEY_OPT && is_ignored(arg))
		return 0;
	if (key == FUSE_OPT_KEY_OPT && arg[0] == '-') {
		complain("there is no option", arg);
		raw->failed = true;
		return -1;
	}
	if (key != FUSE_OPT_KEY_NONOPT)
		return 1; /* libfuse and mount(2) know the rest, or refuse it */
	if (raw->n_paths == 2) {
		complain("one argument too many", arg);
		raw->failed = true;
		return -1;
	}
	raw->paths[raw->n_paths++] = strdup(arg);
	return 0;
}

static int check_numbers(const struct raw *raw, struct options *o)
{
	unsigned long n;

	if (raw->uid) {
		if (!parse_number(raw->uid, 10, UINT_MAX - 1, &n))
			return complain("uid is not a number", raw->uid), -EINVAL;
		o->uid = (uid_t)n;
	}
	if (raw->gid) {
		if (!parse_number(raw->gid, 10, UINT_MAX - 1, &n))
			return complain("gid is not a number", raw->gid), -EINVAL;
		o->gid = (gid_t)n;
	}
	if (raw->umask) {
		if (!parse_number(raw->umask, 8, 0777, &n))
			return complain("umask is not an octal number", raw->umask), -EINVAL;
		o->umask = (mode_t)n;
	}
	if (raw->connections) {
		if (!parse_count(raw->connections, 32, &o->carton.connections))
			return complain("connections is not a number from 1 to 32",
					raw->connections),
			       -EINVAL;
	}
	if (raw->timeout) {
		if (!parse_count(raw->timeout, 86400, &o->carton.timeout_s))
			return complain("timeout is not a number of seconds", raw->timeout),
			       -EINVAL;
	}
	if (raw->max_read) {
		if (!parse_number(raw->max_read, 10, UINT_MAX, &n))
			return complain("max_read is not a number", raw->max_read), -EINVAL;
		o->max_read = (unsigned)n;
	}
	if (raw->cache_dir && !*raw->cache_dir)
		return complain("cache_dir is empty", NULL), -EINVAL;
	if (raw->cache_size &&
	    (!parse_size(raw->cache_size, &o->carton.cache_size) || !o->carton.cache_size))
		return complain("cache_size is not a size like 500M or 20G", raw->cache_size),
		       -EINVAL;
	return 0;
}

static int check_verify(const char *verify, struct options *o)
{
	if (!verify || strcmp(verify, "open") == 0)
		return 0;
	if (strcmp(verify, "mount") == 0)
		o->verify_at_mount = true;
	else if (strcmp(verify, "off") == 0)
		o->carton.verify = CARTON_VERIFY_OFF;
	else
		return complain("verify is neither open, mount nor off", verify), -EINVAL;
	return 0;
}

/*
 * What cannot be found is reported by who needs it, with more to say; a URL is no path. An open FUSE
 * device (mount.fuse3 -o drop_privileges) goes by its number.
 */
static char *absolute(const char *path)
{
	char *found = strncmp(path, "/dev/fd/", 8) == 0 ? NULL : realpath(path, NULL);

	return found ? found : strdup(path);
}

static int check_paths(const struct raw *raw, struct options *o)
{
	char label[4096];

	if (raw->n_paths < 2) {
		complain(raw->n_paths ? "MOUNTPOINT is missing" :
					"SOURCE and MOUNTPOINT are missing",
			 NULL);
		return -EINVAL;
	}
	o->source = absolute(raw->paths[0]);
	o->mountpoint = absolute(raw->paths[1]);
	o->label = o->source ? strdup(carton_source_label(o->source, label, sizeof(label))) : NULL;
	return o->label && o->mountpoint ? 0 : -ENOMEM;
}

/* What mount(2) is told, besides what the user said. */
static int add_mount_options(const struct raw *raw, struct options *o)
{
	char *text = NULL, *fsname = NULL;
	int r = 0;

	if (fuse_opt_add_opt(&text, "ro,nosuid,nodev,default_permissions,subtype=cartonfs") < 0)
		return -ENOMEM;
	if (asprintf(&fsname, "fsname=%s", raw->fsname ? raw->fsname : o->label) < 0)
		fsname = NULL;
	if (!fsname || fuse_opt_add_opt_escaped(&text, fsname) < 0 ||
	    fuse_opt_add_arg(&o->fuse, "-o") < 0 || fuse_opt_add_arg(&o->fuse, text) < 0)
		r = -ENOMEM;
	if (r == 0 && o->debug && fuse_opt_add_arg(&o->fuse, "-d") < 0)
		r = -ENOMEM;
	free(fsname);
	free(text);
	return r;
}

int options_parse(int argc, char **argv, struct options *ret)
{
	struct raw raw = { 0 };
	struct options o = { .uid = getuid(), .gid = getgid() };
	int r = -EINVAL;

	o.fuse = (struct fuse_args)FUSE_ARGS_INIT(argc, argv);
	if (fuse_opt_parse(&o.fuse, &raw, specs, on_option) < 0 || raw.failed)
		goto out;
	o.foreground = raw.foreground || raw.debug;
	o.debug = raw.debug;
	o.help = raw.help;
	o.version = raw.version;
	o.allow_other = raw.allow_other;
	r = o.help || o.version ? 0 : check_paths(&raw, &o);
	if (r == 0)
		r = check_numbers(&raw, &o);
	o.carton.manifest_sha256 = raw.manifest_sha256;
	o.carton.cache_dir = raw.cache_dir;
	/* the one file that is opened again once the daemon has left its directory */
	o.carton.cacert = raw.cacert ? absolute(raw.cacert) : NULL;
	o.carton.header_file = raw.header_file;
	raw.manifest_sha256 = raw.cache_dir = raw.header_file = NULL;
	/* "hidden" is a way to show them, any other word is their name */
	o.carton.views_hidden = raw.views && strcmp(raw.views, "hidden") == 0;
	if (!raw.noviews) {
		o.carton.views = raw.views && !o.carton.views_hidden ? raw.views : strdup("views");
		if (o.carton.views == raw.views)
			raw.views = NULL;
	}
	o.carton.offline = raw.offline;
	o.carton.private_links = raw.private_links;
	if (r == 0)
		r = check_verify(raw.verify, &o);
	if (r == 0 && o.source)
		r = add_mount_options(&raw, &o);
out:
	free(raw.verify);
	free(raw.manifest_sha256);
	free(raw.cache_dir);
	free(raw.cache_size);
	free(raw.cacert);
	free(raw.views);
	free(raw.header_file);
	free(raw.connections);
	free(raw.timeout);
	free(raw.uid);
	free(raw.gid);
	free(raw.umask);
	free(raw.fsname);
	free(raw.max_read);
	free(raw.paths[0]);
	free(raw.paths[1]);
	*ret = o;
	return r;
}

void options_free(struct options *o)
{
	fuse_opt_free_args(&o->fuse);
	free((char *)o->carton.manifest_sha256);
	free((char *)o->carton.cache_dir);
	free((char *)o->carton.cacert);
	free((char *)o->carton.views);
	free((char *)o->carton.header_file);
	free(o->source);
	free(o->label);
	free(o->mountpoint);
}
