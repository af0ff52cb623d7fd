/* SPDX-License-Identifier: Apache-2.0 */
/* A carton file, or a directory into which one was unpacked. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/dir.h"
#include "archive/what.h"
#include "archive/zip.h"
#include "http/hf.h"
#include "http/http.h"
#include "http/scheme.h"
#include "open/kind.h"

static bool takes(const char *name)
{
	(void)name;
	return true;
}

/* The length of the scheme of a URL that cannot be read here; 0: `source` is not one. */
static int foreign_scheme(const char *source)
{
	size_t n = strspn(source,
			  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");

	return n > 0 && strncmp(source + n, "://", 3) == 0 && !http_is_url(source) ? (int)n : 0;
}

/* `n`: the length of the scheme. */
static int refuse_scheme(const char *url, int n)
{
	const char *meant = scheme_near(url, (size_t)n);
	char shown[4096], known[256];

	return log_error(-EOPNOTSUPP, http_url_redact(url, shown, sizeof(shown)),
			 "URLs with %.*s:// cannot be read here, only %s%s%s%s", MIN(n, 32), url,
			 scheme_names(known, sizeof(known)), meant ? "; did you mean " : "",
			 meant ? meant : "", meant ? "://?" : "");
}

/* An inherited descriptor is used as it is: whoever opened it may be another user. */
static int open_or_inherit(const char *path)
{
	int fd = fd_named(path);

	if (fd >= 0)
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* The users are numbers: their names may be on a server, and this may not wait. */
static int refuse_open(const char *path, int error)
{
	char shown[4096];
	struct stat st;

	http_source_label(path, shown, sizeof(shown));
	if (error != EACCES)
		return log_error(-error, shown, "cannot open: %s", strerror(error));
	if (stat(path, &st) < 0)
		return log_error(-error, shown,
				 "cannot open: %s: a directory above it may not be entered by "
				 "uid %u",
				 strerror(error), (unsigned)geteuid());
	return log_error(-error, shown,
			 "cannot open: %s: it belongs to uid %u with mode %04o, and this is uid %u",
			 strerror(error), (unsigned)st.st_uid, (unsigned)st.st_mode & 07777,
			 (unsigned)geteuid());
}

static bool is_packed(const struct carton_source *s)
{
	return s->pack && s->pack->mode == CARTON_PACK;
}

/*
 * Finds out how to list a directory that is to be packed. In the cache of a hub's client symlinks
 * are followed, but not out of what that has of the repository.
 */
static int begin_packing(struct carton_source *s)
{
	int r = hub_cache_find(s->name, &s->hub_cache);

	s->rules.exclude = s->pack->exclude;
	s->rules.flat = r > 0;
	if (s->pack->dereference) {
		s->rules.links = DIR_LINKS_ANYWHERE;
		s->reads = "/";
	} else if (r > 0) {
		fd_close(s->fd);
		s->fd = open(s->hub_cache.repository, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s->fd < 0)
			return log_error(-errno, s->hub_cache.repository, "cannot open: %s",
					 strerror(errno));
		s->rules.links = DIR_LINKS_BENEATH;
		s->rules.below = s->hub_cache.below;
		s->reads = s->hub_cache.repository;
		carton_log(CARTON_LOG_WARNING, s->name,
			   "is in a hub's cache: its symlinks are followed, as with --dereference");
	}
	return MIN(r, 0);
}

static int begin(struct carton_source *s)
{
	const char *path = s->name;
	int fd = open_or_inherit(path), r = 0;
	int scheme = foreign_scheme(path);
	char shown[4096];

	if (fd < 0 && errno == ENOENT && scheme)
		return refuse_scheme(path, scheme);
	if (fd < 0 || fstat(fd, &s->st) < 0) {
		r = refuse_open(path, errno);
	} else if (!S_ISDIR(s->st.st_mode) && !S_ISREG(s->st.st_mode)) {
		r = log_error(-EBADMSG, http_source_label(path, shown, sizeof(shown)),
			      "is neither a carton file nor a directory");
	}
	s->fd = fd;
	if (r == 0 && s->options->hub_token && !(s->hub = repository_server(&hf_form)))
		r = -ENOMEM;
	if (r < 0 || !S_ISDIR(s->st.st_mode))
		return r;
	s->reads = path;
	return is_packed(s) ? begin_packing(s) : 0;
}

static bool may_fetch(const struct carton_source *s)
{
	return container_may_have(s->fd, &s->st, "LINKS");
}

static int entries(struct carton_source *s, struct container **ret)
{
	struct budget *budget = &s->carton->budget;
	struct source *source;
	int fd = s->fd, r = s->reads && !is_packed(s) ? what_refuse_directory(fd) : 0;

	if (r < 0)
		return r;
	s->fd = -1;
	if (s->reads)
		return dir_open(fd, is_packed(s) ? &s->rules : NULL, budget, ret);
	r = source_from_fd(fd, &source);
	if (r < 0)
		return r;
	budget_limit_by_size(budget, source->size);
	r = zip_open(source, budget, ret);
	source_unref(source);
	return r;
}

const struct source_kind path_kind = {
	.takes = takes,
	.begin = begin,
	.may_fetch = may_fetch,
	.entries = entries,
};
