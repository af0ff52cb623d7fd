/* SPDX-License-Identifier: Apache-2.0 */
#include "common/option_table.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/numbers.h"

#define FIELD(name) offsetof(struct option_values, name)
#define MOUNT "cartonfs"
#define BOTH "cartonfs cartonctl"
#define CACHE BOTH " cache" /* which has no use for the other options of all commands */
#define SIGNED "cartonfs info verify extract fetch"
#define PACK "pack repack link embed"

/* In the order of --help. */
const struct option_spec option_table[] = {
	/* the command line */
	{ "-f", 'f', MOUNT, OPTION_FLAG, FIELD(foreground), .help = "run in foreground" },
	{ "-d", 'd', MOUNT, OPTION_FLAG, FIELD(debug), .help = "log FUSE requests" },
	{ "--help", 'h', BOTH, OPTION_FLAG, FIELD(help), .help = "show this help" },
	{ "--version", 'V', BOTH, OPTION_FLAG, FIELD(version), .help = "show the version" },
	{ "--x-words", 0, BOTH, OPTION_FLAG, FIELD(complete), .help = NULL },

	/* what is verified */
	{ "verify", 0, MOUNT, OPTION_CHOICE, FIELD(verify), "auto|open|mount|background|off",
	  .help = "when files are verified" },
	{ "manifest_sha256", 0, BOTH, OPTION_TEXT, FIELD(carton.manifest_sha256), "H",
	  "64 hexadecimal digits", .help = "only this model" },
	{ "verify_key", 0, SIGNED, OPTION_LIST, FIELD(carton.verify_keys), "PEM",
	  "a file with public keys, at most 64 times", 64, .help = "only what it signed" },
	{ "sha256", 0, BOTH, OPTION_TEXT, FIELD(carton.sha256), "H", "64 hexadecimal digits",
	  .help = "of a bare file", .rare = true },
	{ "verify_ca", 0, SIGNED, OPTION_LIST, FIELD(carton.verify_cas), "PEM",
	  "a file with certificates, at most 64 times", 64,
	  .help = "only what signer signed, below this CA", .rare = true },
	{ "signer", 0, SIGNED, OPTION_TEXT, FIELD(carton.signer), "NAME",
	  "the subject of a certificate, or another name in it", .help = "whose certificate it is",
	  .rare = true },
	{ "signature", 0, SIGNED, OPTION_TEXT, FIELD(carton.signature), "FILE", "a file or a URL",
	  .help = "where it is (SOURCE.sig)", .rare = true },
	{ "seals", 0, BOTH, OPTION_UNLESS, FIELD(carton.noseals), "on|off",
	  .help = "off: hash every time" },

	/* what is kept */
	{ "cache_dir", 0, CACHE, OPTION_TEXT, FIELD(carton.cache_dir), "DIR", "a directory",
	  .help = "where the cache is" },
	{ "cache_size", 0, CACHE, OPTION_SIZE, FIELD(carton.cache_size), "SIZE",
	  "a size such as 500M or 20G", .help = "the most it may take" },
	{ "cache_key", 0, BOTH, OPTION_TEXT, FIELD(carton.cache_key), "FILE", "a file",
	  .help = "where its key is", .rare = true },
	{ "memory", 0, BOTH, OPTION_SIZE, FIELD(carton.memory), "SIZE", "a size such as 64M or 2G",
	  .help = "limit of memory" },

	/* the network */
	{ "offline", 0, BOTH, OPTION_FLAG, FIELD(carton.offline), .help = "no network requests" },
	{ "connections", 0, BOTH, OPTION_COUNT, FIELD(carton.connections), "N",
	  "a number from 1 to 32", 32, .help = "parallel requests" },
	{ "timeout", 0, BOTH, OPTION_COUNT, FIELD(carton.timeout_s), "SECONDS",
	  "seconds from 1 to 86400", 86400, .help = "without data (60)" },
	{ "max_size", 0, BOTH, OPTION_SIZE, FIELD(carton.max_size), "SIZE",
	  "a size such as 500M or 2T", .help = "of a fetched file" },
	{ "private_links", 0, BOTH, OPTION_FLAG, FIELD(carton.private_links),
	  .help = "LINKS to private IPs" },
	{ "ahead", 0, MOUNT, OPTION_UNLESS, FIELD(noahead), "on|off",
	  .help = "off: only what opens" },
	{ "requester_pays", 0, BOTH, OPTION_FLAG, FIELD(carton.requester_pays),
	  .help = "for S3 buckets", .rare = true },
	{ "plain_http", 0, BOTH, OPTION_LIST, FIELD(carton.plain_http), "HOST",
	  "a registry, HOST or HOST:PORT, at most 64 times", 64, .help = "no TLS there",
	  .rare = true, .unsaid = "*" },
	{ "cacert", 0, BOTH, OPTION_TEXT, FIELD(carton.cacert), "FILE", "a file",
	  .help = "CAs to trust" },
	{ "header_file", 0, BOTH, OPTION_TEXT, FIELD(carton.header_file), "FILE", "a file",
	  .help = "headers to send" },
	{ "hub_token", 0, BOTH, OPTION_FLAG, FIELD(carton.hub_token),
	  .help = "for LINKS of the hub", .rare = true },
	{ "mirror", 0, BOTH, OPTION_LIST, FIELD(carton.mirrors), "URL",
	  "a URL or an absolute path, with {sha256}", .help = "a place to ask first" },

	/* what is shown, and to whom */
	{ "noviews", 0, MOUNT, OPTION_FLAG, FIELD(noviews), .help = "no directory views/" },
	{ "views", 0, MOUNT, OPTION_TEXT, FIELD(views), "NAME|hidden", "a name, or hidden",
	  .help = "rename or hide it" },
	{ "dates", 0, MOUNT, OPTION_CHOICE, FIELD(dates), "content|mount",
	  .help = "which dates files show", .rare = true },
	{ "allow_other", 0, MOUNT, OPTION_PASSED, 0, .help = "others may read, too" },
	{ "auto_unmount", 0, MOUNT, OPTION_PASSED, 0, .help = "unmount when killed" },
	{ "uid", 0, MOUNT, OPTION_NUMBER, FIELD(uid), "N", "a number", UINT_MAX - 1,
	  .help = "owner of the files" },
	{ "gid", 0, MOUNT, OPTION_NUMBER, FIELD(gid), "N", "a number", UINT_MAX - 1,
	  .help = "group of the files" },
	{ "umask", 0, MOUNT, OPTION_OCTAL, FIELD(umask), "OCTAL", "an octal number such as 022",
	  0777, .help = "bits to remove" },
	{ "mkdir", 0, MOUNT, OPTION_MODE, FIELD(mkdir_mode), "MODE", "an octal number such as 0755",
	  0777, .help = "create MOUNTPOINT", .unsaid = "0755" },
	{ "passthrough", 0, MOUNT, OPTION_FLAG, FIELD(passthrough), .help = "kernel reads itself" },
	{ "fsname", 0, MOUNT, OPTION_TEXT, FIELD(fsname), "NAME", .help = "the source to show",
	  .rare = true },
	{ "max_read", 0, MOUNT, OPTION_NUMBER, FIELD(max_read), "BYTES", "a number of bytes",
	  UINT_MAX, .help = "of one request", .rare = true },
	{ "noexec", 0, MOUNT, OPTION_PASSED, 0, .help = "start no programs", .rare = true },
	{ "noatime", 0, MOUNT, OPTION_PASSED, 0, .help = "no access times", .rare = true },
	{ "error_file", 0, MOUNT, OPTION_TEXT, FIELD(error_file), "FILE", "a file",
	  .help = "gets why it failed", .rare = true },
	{ "mount_only", 0, MOUNT, OPTION_FLAG, FIELD(mount_only), .help = "pass the mount on",
	  .rare = true },
	{ "nosandbox", 0, CACHE, OPTION_FLAG, FIELD(nosandbox), .help = "keep privileges",
	  .rare = true },

	/* commands of cartonctl */
	{ "json", 'j', "info ls diff verify fetch import push sign status cache", OPTION_FLAG,
	  FIELD(json), .help = "print JSON" },
	{ "long", 'l', "ls", OPTION_FLAG, FIELD(is_long),
	  .help = "sizes in bytes, and the whole sha256" },
	{ "-0", '0', "ls", OPTION_FLAG, FIELD(nul),
	  .help = "only paths, each with a NUL behind it" },
	{ "sort", 0, "ls", OPTION_CHOICE, FIELD(sort), "path|size",
	  .help = "size: the largest first" },
	{ "depth", 0, "tree", OPTION_COUNT, FIELD(depth), "N", "a number from 1 to 1000", 1000,
	  .help = "levels of directories to draw" },
	{ "top", 0, "tree", OPTION_COUNT, FIELD(top), "N", "a number from 1 to 1000000", 1000000,
	  .help = "of each directory only the N largest" },
	{ "tensors", 0, "info diff", OPTION_FLAG, FIELD(tensors),
	  .help = "also read tensors that are large or have to be fetched" },
	{ "metrics", 0, "status", OPTION_FLAG, FIELD(metrics), .help = "as text for Prometheus" },
	{ "watch", 'w', "status", OPTION_FLAG, FIELD(watch), .help = "show it again each second" },
	{ "compress", 0, PACK, OPTION_TEXT, FIELD(compress), "auto|store|zstd[:LEVEL]",
	  "auto, store, zstd or zstd:LEVEL from 1 to 19",
	  .help = "auto: zstd if below 8 MiB, and it saves" },
	{ "align", 0, PACK, OPTION_POWER, FIELD(align), "BYTES", "a power of two from 1 to 32768",
	  32768, .help = "of files (4096)" },
	{ "jobs", 0, PACK, OPTION_COUNT, FIELD(jobs), "N", "a number from 1 to 1024", 1024,
	  .help = "threads (the CPUs)" },
	{ "chunk_index", 0, "pack repack link import", OPTION_FLAG, FIELD(chunk_index),
	  .help = "hash the parts of large files too; changes the model hash" },
	{ "name", 0, "init", OPTION_TEXT, FIELD(name), "NAME", "a name",
	  .help = "of the model (that of the directory)" },
	{ "runner", 0, "init import", OPTION_TEXT, FIELD(runner), "NAME[@VERSION]", "a name",
	  .help = "what loads it (init: by the files; noop)" },
	{ "framework", 0, "init import", OPTION_TEXT, FIELD(framework), "VERSION", "a version",
	  .help = "a requirement, such as =1.12.1 (any)" },
	{ "exclude", 0, "init pack", OPTION_LIST, FIELD(exclude), "GLOB",
	  "a pattern, at most 64 times", 64,
	  .help = "leave out paths that match; * matches / too" },
	{ "dereference", 0, "init pack sign", OPTION_FLAG, FIELD(dereference),
	  .help = "take what symlinks lead to, wherever it is" },
	{ "url", 0, "link", OPTION_LIST, FIELD(urls), "URL",
	  "a URL with {sha256} in place of the hash, at most 256 times", 256,
	  .help = "has {sha256} in place of the hash of a file" },
	{ "also", 0, "import", OPTION_LIST, FIELD(also), "REPOSITORY",
	  "another repository, at most 8 times", 8,
	  .help = "where it has the same files, name its URLs too" },
	{ "mount_from", 0, "push", OPTION_TEXT, FIELD(mount_from), "NAME",
	  "a repository of the registry",
	  .help = "take files from that repository, if it has them" },
	{ "min_size", 0, "link", OPTION_BYTES, FIELD(min_size), "SIZE", "a size such as 64K or 0",
	  .help = "of files to link; smaller ones stay (1M)" },
	{ "objects", 0, "link", OPTION_TEXT, FIELD(objects), "DIR", "a directory",
	  .help = "write the files there, under their hashes" },
	{ "key", 0, "sign", OPTION_TEXT, FIELD(key), "FILE|URI", "a file or a URI",
	  .help = "a private key on P-256, P-384 or P-521 (PEM)" },
	{ "passphrase_file", 0, "sign", OPTION_TEXT, FIELD(passphrase_file), "FILE", "a file",
	  .help = "has that of the key (else it is asked for)" },
	{ "cert", 0, "sign", OPTION_TEXT, FIELD(cert), "FILE", "a file",
	  .help = "certificates, that of the key first (PEM)" },
	{ "output", 0, "sign", OPTION_TEXT, FIELD(output), "FILE", "a file, or -",
	  .help = "the signature (SOURCE.sig, DIR/model.sig); - is stdout" },

	/* other names */
	{ "debug", 0, MOUNT, OPTION_FLAG, FIELD(debug), .help = NULL },
	{ "chunks", 0, MOUNT, OPTION_UNLESS, FIELD(nochunks), "on|off", .help = NULL },
	{ "X-mount.mkdir", 0, MOUNT, OPTION_MODE, FIELD(mkdir_mode), "MODE",
	  "an octal number such as 0755", 0777, .help = NULL, .unsaid = "0755" },
	{ "x-mount.mkdir", 0, MOUNT, OPTION_MODE, FIELD(mkdir_mode), "MODE",
	  "an octal number such as 0755", 0777, .help = NULL, .unsaid = "0755" },
	{ .name = NULL },
};

_Static_assert(sizeof(option_table) / sizeof(*option_table) <= OPTION_MAX, "the table is full");

/* ---- finding ---- */

/* Which of the `words`, between which there is `end`, is `word`? -1: none. */
static int find_word(const char *words, char end, const char *word)
{
	const char set[] = { end, '\0' };
	size_t n;

	for (int i = 0;; i++, words += n + 1) {
		n = strcspn(words, set);
		if (strlen(word) == n && strncmp(words, word, n) == 0)
			return i;
		if (!words[n])
			return -1;
	}
}

bool option_is_for(const struct option_spec *spec, const char *taker)
{
	return find_word(spec->takers, ' ', taker) >= 0;
}

const struct option_spec *option_find(const char *name, size_t n)
{
	for (const struct option_spec *s = option_table; s->name; s++)
		if (strncmp(s->name, name, n) == 0 && s->name[n] == '\0' && *name != '-' &&
		    option_is_for(s, MOUNT))
			return s;
	return NULL;
}

const struct option_spec *option_find_word(const char *word)
{
	const char letter[] = { '-', word[0] ? word[1] : '\0', '\0' };

	for (const struct option_spec *s = option_table; s->name; s++)
		if (s->name[0] == '-' && option_is_for(s, MOUNT) &&
		    (strcmp(word, s->name) == 0 ||
		     (s->letter && s->letter == letter[1] && strcmp(word, letter) == 0)))
			return s;
	return NULL;
}

/* ---- setting ---- */

static int set_text(char **field, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

static int add_to_list(char ***field, const char *value, size_t max)
{
	size_t n = 0;
	char **list;

	while (*field && (*field)[n])
		n++;
	if (max && n == max)
		return -EINVAL;
	list = reallocarray(*field, n + 2, sizeof(*list));
	if (!list)
		return -ENOMEM;
	*field = list;
	list[n] = strdup(value);
	list[n + 1] = NULL;
	return list[n] ? 0 : -ENOMEM;
}

static int set_number(const struct option_spec *spec, unsigned *field, const char *value)
{
	bool octal = spec->kind == OPTION_OCTAL || spec->kind == OPTION_MODE;
	bool positive = spec->kind == OPTION_COUNT || spec->kind == OPTION_POWER;
	unsigned long n;

	if (!parse_number(value, octal ? 8 : 10, spec->max, &n) || (n == 0 && positive) ||
	    (spec->kind == OPTION_POWER && n & (n - 1)))
		return -EINVAL;
	*field = (unsigned)n;
	return 0;
}

static int set_word(const struct option_spec *spec, void *field, const char *value)
{
	int i = find_word(spec->value, '|', value);

	if (i < 0)
		return -EINVAL;
	if (spec->kind == OPTION_UNLESS)
		*(bool *)field = i > 0;
	else
		*(unsigned *)field = (unsigned)i;
	return 0;
}

static int set_size(uint64_t *field, const char *value, uint64_t least)
{
	uint64_t size;

	if (!parse_size(value, &size) || size < least)
		return -EINVAL;
	*field = size;
	return 0;
}

/* Is it one of a file or a directory? */
static bool is_path(const struct option_spec *spec)
{
	return spec->expected && (strcmp(spec->expected, "a file") == 0 ||
				  strncmp(spec->expected, "a file ", 7) == 0 ||
				  strcmp(spec->expected, "a directory") == 0);
}

int option_set(const struct option_spec *spec, struct option_values *values, const char *value)
{
	void *field = (char *)values + spec->offset;

	if (spec->kind == OPTION_FLAG) {
		if (value)
			return -EINVAL;
		*(bool *)field = true;
		return 0;
	}
	value = value ? value : spec->unsaid;
	if (!value)
		return -EINVAL;
	/* not standard input, nor a file that nobody meant; ./- is one */
	if (strcmp(value, "-") == 0 && is_path(spec))
		return -EINVAL;
	switch (spec->kind) {
	case OPTION_UNLESS:
	case OPTION_CHOICE:
		return set_word(spec, field, value);
	case OPTION_TEXT:
		return *value || !spec->expected ? set_text(field, value) : -EINVAL;
	case OPTION_LIST:
		return *value ? add_to_list(field, value, spec->max) : -EINVAL;
	case OPTION_SIZE:
	case OPTION_BYTES:
		return set_size(field, value, spec->kind == OPTION_SIZE);
	default:
		return set_number(spec, field, value);
	}
}

void option_finish(struct option_values *values)
{
	for (const struct option_spec *s = option_table; s->name; s++) {
		void *field = (char *)values + s->offset;

		if (s->kind == OPTION_TEXT)
			free(*(char **)field);
		for (char **p = s->kind == OPTION_LIST ? *(char ***)field : NULL; p && *p; p++)
			free(*p);
		if (s->kind == OPTION_LIST)
			free(*(char ***)field);
	}
}

/* ---- texts ---- */

const char *option_expected(const struct option_spec *spec, char ret[OPTION_EXPECTED])
{
	size_t used = 0, n;

	if (spec->kind == OPTION_FLAG)
		return "no value";
	if (spec->expected)
		return spec->expected;
	for (const char *word = spec->value;; word += n + 1) {
		n = strcspn(word, "|");
		used += (size_t)snprintf(ret + used, OPTION_EXPECTED - used, "%s%.*s",
					 word == spec->value ? "" :
					 word[n]	     ? ", " :
							       " or ",
					 (int)n, word);
		if (!word[n])
			return ret;
	}
}

const char *option_word(const char *name, unsigned choice, char ret[OPTION_WORD])
{
	const char *word = option_find(name, strlen(name))->value;

	for (; choice > 0; choice--)
		word += strcspn(word, "|") + 1;
	snprintf(ret, OPTION_WORD, "%.*s", (int)strcspn(word, "|"), word);
	return ret;
}
