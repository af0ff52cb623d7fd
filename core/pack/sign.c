/* SPDX-License-Identifier: Apache-2.0 */
/* Signs a carton or a directory: the key, the list, the file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/dir.h"
#include "carton/opened.h"
#include "http/http.h"
#include "http/scheme.h"
#include "pack/sign_list.h"
#include "sign/signer.h"
#include "writer/newfile.h"

#define HEAD 4096 /* bytes at the start of a bundle, which have its type */

struct signing {
	const char *source;
	const struct carton_options *open;
	const struct carton_sign_options *options;
	struct carton_new_signature *ret;
	bool directory; /* without MANIFEST */
	struct newfile out;
	struct signer signer;
	struct carton *c;	     /* or */
	struct container *container; /* of a directory */
	struct budget budget;	     /* for that */
	struct sign_list list;
	char *inside, *unfinished; /* the signature in the directory; NULL: it is elsewhere */
};

/* ---- where to ---- */

/* A directory with a MANIFEST is a carton. */
static bool is_plain_directory(const char *source)
{
	char path[MAX_PATH_LEN + 16];
	struct stat st;

	snprintf(path, sizeof(path), "%s/MANIFEST", source);
	return stat(source, &st) == 0 && S_ISDIR(st.st_mode) && stat(path, &st) < 0;
}

static int name_out(struct signing *s, const char *out)
{
	size_t n = strlen(s->source), max = sizeof(s->ret->out);
	int len;

	while (n > 1 && s->source[n - 1] == '/')
		n--;
	if (!out && http_is_url(s->source))
		return log_error(-EINVAL, NULL,
				 "where does the signature of a URL go? --output=FILE says so");
	len = out ? snprintf(s->ret->out, max, "%s", out) :
		    snprintf(s->ret->out, max, "%.*s%s", (int)n, s->source,
			     s->directory ? "/" SIGN_IN_MODEL : SIGN_SUFFIX);
	return len >= (int)max ? -ENAMETOOLONG : 0;
}

/* A mistyped name must not cost a model. */
static int check_old(struct signing *s)
{
	char head[HEAD];
	ssize_t n;
	int fd;

	if (s->out.to >= 0)
		return 0;
	fd = openat(s->out.dir, s->out.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ?
			       0 :
			       log_error(-errno, s->ret->out, "cannot open: %s", strerror(errno));
	n = pread(fd, head, sizeof(head), 0);
	fd_close(fd);
	s->ret->replaced = true;
	/* that of any version */
	if (n > 0 && memmem(head, (size_t)n, SIGN_BUNDLE_TYPE, strcspn(SIGN_BUNDLE_TYPE, "0")))
		return 0;
	return log_error(-EEXIST, s->ret->out, "is there and is no signature: it stays as it is");
}

/* The part of `path`, a real path, that is beneath the real path `root`; NULL: none. */
static const char *beneath(const char *path, const char *root)
{
	size_t n = strlen(root);

	if (strncmp(path, root, n) != 0 || (path[n] != '/' && path[n] != '\0'))
		return NULL;
	return path + n + (path[n] == '/');
}

/* A signature in the directory, and the file that it is until it is complete, are not signed. */
static int find_inside(struct signing *s)
{
	char *root = realpath(s->source, NULL), *parent;
	const char *at;
	int r;

	/* an open file that is none of a directory */
	if (root && !s->out.directory) {
		free(root);
		return 0;
	}
	parent = root ? realpath(s->out.directory, NULL) : NULL;
	at = parent ? beneath(parent, root) : NULL;
	r = parent ? 0 : -errno;
	if (at && (asprintf(&s->inside, "%s%s%s", at, *at ? "/" : "", s->out.name) < 0 ||
		   asprintf(&s->unfinished, "%s%s%s", at, *at ? "/" : "", s->out.temporary) < 0))
		r = -ENOMEM;
	free(root);
	free(parent);
	return r;
}

/* ---- what is signed ---- */

static int confine(void *ctx, const struct carton_paths *paths)
{
	const struct signing *s = ctx;
	struct carton_paths more = *paths;

	more.writes[0] = s->out.to < 0 ? s->out.directory : NULL;
	return s->open->confine ? s->open->confine(s->open->confine_ctx, &more) : 0;
}

/* The last component, of a directory such as "." that of its path. */
static int name_model(struct signing *s)
{
	char shown[4096], *real = s->directory ? realpath(s->source, NULL) : NULL;
	const char *slash;
	size_t n;

	http_source_label(real ? real : s->source, shown, sizeof(shown));
	free(real);
	n = strlen(shown);
	while (n > 1 && shown[n - 1] == '/')
		shown[--n] = '\0';
	slash = strrchr(shown, '/');
	s->list.model = strdup(slash && slash[1] ? slash + 1 : shown);
	return s->list.model ? 0 : -ENOMEM;
}

static int list_directory(struct signing *s)
{
	const char *but[8] = { s->inside, s->unfinished };
	const struct dir_rules rules = {
		.links = s->options->dereference ? DIR_LINKS_ANYWHERE : DIR_LINKS_KEPT,
		.signed_but = s->inside ? but : but + 2,
	};
	const struct carton_paths paths = { .source = s->options->dereference ? "/" : s->source };
	int fd = open(s->source, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	for (size_t i = 0; sign_left_out[i]; i++)
		but[2 + i] = sign_left_out[i];
	if (fd < 0)
		return log_error(-errno, s->source, "cannot open: %s", strerror(errno));
	budget_init(&s->budget, s->open->memory);
	r = confine(s, &paths);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	s->list.symlinks = s->options->dereference;
	s->list.ignored[0] = s->inside;
	r = dir_open(fd, &rules, &s->budget, &s->container);
	if (r == 0)
		r = sign_list_hash(s->container, s->options->progress, s->options->progress_ctx,
				   &s->list);
	return r;
}

static int list_carton(struct signing *s)
{
	struct carton_options o = *s->open;
	int r;

	o.views = NULL;
	o.confine = s->open->confine ? confine : NULL;
	o.confine_ctx = s;
	r = carton_open_as(OPEN_CARTON, s->source, &o, NULL, &s->c);
	if (r == 0 && s->c->bare)
		r = log_error(
			-EOPNOTSUPP, NULL,
			"is a bare file, which has no list: sign the directory that it is in");
	if (r < 0)
		return r;
	for (struct node *n = s->c->tree->root; n; n = tree_next(s->c->tree->root, n))
		s->list.symlinks |= n->kind == NODE_SYMLINK;
	/* what other tools find where the carton was unpacked, or is mounted */
	s->list.ignored[0] = "LINKS";
	s->list.ignored[1] = "MANIFEST";
	s->list.ignored[2] = SIGN_IN_CARTON;
	return sign_list_manifest(s->c->manifest, &s->list);
}

/* ---- all ---- */

static int write_signature(struct signing *s)
{
	uint8_t signature[SIGNER_SIGNATURE];
	struct buf statement = { 0 }, bundle = { 0 };
	size_t n;
	int r = sign_write_statement(&s->list, &statement);

	if (r == 0)
		r = signer_sign(&s->signer, statement.data, statement.len, signature, &n);
	if (r == 0)
		r = sign_write_bundle(&s->signer, &statement, signature, n, &bundle);
	buf_finish(&statement);
	if (r == -EFBIG)
		carton_log(CARTON_LOG_ERROR, NULL,
			   "has too many files: a signature may have %llu MiB",
			   MAX_SIGNATURE / MIB);
	if (r == 0) {
		r = pwrite_full(s->out.fd, bundle.data, bundle.len, 0);
		if (r < 0)
			carton_log(CARTON_LOG_ERROR, s->ret->out, "cannot be written: %s",
				   carton_write_error(r));
	}
	buf_finish(&bundle);
	return r == 0 ? newfile_publish(&s->out) : r;
}

static int run(struct signing *s, const char *out)
{
	const struct carton_sign_options *o = s->options;
	const struct signer_options key = { o->key, o->passphrase_file, o->cert };
	int r = name_out(s, out);

	if (r == 0)
		r = newfile_begin(s->ret->out, &s->out);
	if (r == 0)
		r = check_old(s);
	if (r == 0)
		r = signer_start(&key, &s->signer);
	if (r == 0 && s->directory)
		r = find_inside(s);
	if (r == 0)
		r = name_model(s);
	if (r == 0)
		r = s->directory ? list_directory(s) : list_carton(s);
	if (r == 0 && s->list.n == 0)
		r = log_error(-EBADMSG, NULL, "has no file that could be signed");
	if (r < 0)
		return r;
	s->ret->files = s->list.n;
	s->ret->ends = s->signer.ends;
	memcpy(s->ret->hint, s->signer.hint, sizeof(s->ret->hint));
	snprintf(s->ret->by, sizeof(s->ret->by), "%s", s->signer.by);
	return write_signature(s);
}

int carton_sign(const char *source, const char *out, const struct carton_options *open,
		const struct carton_sign_options *options, struct carton_new_signature *ret)
{
	struct carton_new_signature made = { 0 };
	struct signing s = {
		.source = source,
		.open = open,
		.options = options,
		.ret = &made,
		.directory = is_plain_directory(source),
		.signer.fd = -1,
	};
	int r = run(&s, out);

	if (r == 0)
		*ret = made;
	signer_end(&s.signer);
	newfile_end(&s.out);
	free(s.list.files);
	free((char *)s.list.model);
	container_close(s.container);
	carton_close(s.c);
	free(s.inside);
	free(s.unfinished);
	return r;
}
