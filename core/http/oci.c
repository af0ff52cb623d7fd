/* SPDX-License-Identifier: Apache-2.0 */
#include "http/oci.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/digest.h"
#include "base/pace.h"
#include "base/util.h"
#include "http/docker.h"
#include "http/helper.h"
#include "http/policy.h"
#include "http/reference.h"

#define SCHEME "oci://"
#define FORM "not oci://REGISTRY/NAME[:TAG][@sha256:HEX]"
#define ALNUM "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define MAX_TAG 128

/* ---- references ---- */

/* The parts of a URL, within it. */
struct parts {
	const char *host, *name, *tag, *digest;
	size_t host_len, name_len, tag_len; /* 0: there is no tag */
};

bool oci_is_digest(const char *text)
{
	return strncmp(text, "sha256:", 7) == 0 && strlen(text) == 7 + 2 * SHA256_SIZE &&
	       hex_valid(text + 7, SHA256_SIZE);
}

bool oci_is_name(const char *text)
{
	return reference_is_name(text, strlen(text));
}

static const char *split(const char *url, struct parts *ret)
{
	const char *p = url + strlen(SCHEME);

	*ret = (struct parts){ .host = p, .host_len = strcspn(p, "/") };
	if (memchr(p, '@', ret->host_len))
		return "no user name can be given here: docker login or podman login saves it";
	if (!reference_is_host(p, ret->host_len) || !p[ret->host_len])
		return FORM;
	ret->name = p += ret->host_len + 1;
	ret->name_len = strcspn(p, ":@");
	if (!reference_is_name(p, ret->name_len))
		return FORM
			": a name has letters, digits and . _ - ~ with single slashes between, and "
			"no component . or ..";
	p += ret->name_len;
	if (*p == ':') {
		ret->tag = ++p;
		ret->tag_len = strcspn(p, "@");
		if (ret->tag_len == 0 || ret->tag_len > MAX_TAG || strchr("-.", *p) ||
		    strspn(p, "._-" ALNUM) < ret->tag_len)
			return FORM ": a tag has at most 128 of a-z, A-Z, 0-9, . _ and -";
		p += ret->tag_len;
	}
	if (!*p)
		return NULL;
	ret->digest = p + 1;
	return oci_is_digest(ret->digest) ? NULL :
					    FORM ": only digests sha256: with 64 hex digits are "
						 "read here";
}

bool oci_is_artifact(const char *url)
{
	struct parts p;

	return strncasecmp(url, SCHEME, strlen(SCHEME)) == 0 && !split(url, &p);
}

static const char *fault(const char *url)
{
	struct parts p;
	const char *what = split(url, &p);

	return what ? what :
		      "an artifact is a source; of LINKS and mirrors, the form is "
		      "https://REGISTRY/v2/NAME/blobs/sha256:HEX";
}

int oci_parse(const char *url, struct repository *ret)
{
	struct parts p;
	char *name = NULL;
	bool hub;

	split(url, &p);
	hub = docker_same_host(DOCKER_HUB, p.host, p.host_len);
	*ret = (struct repository){ .kind = "oci" };
	ret->plain = reference_is_local(p.host, p.host_len);
	if (asprintf(&ret->server, "https://%.*s", hub ? (int)strlen(DOCKER_HUB) : (int)p.host_len,
		     hub ? DOCKER_HUB : p.host) < 0)
		ret->server = NULL;
	if (asprintf(&name, "%s%.*s", hub && !memchr(p.name, '/', p.name_len) ? "library/" : "",
		     (int)p.name_len, p.name) < 0)
		name = NULL;
	ret->name = name;
	ret->revision = p.digest  ? strdup(p.digest) :
			p.tag_len ? strndup(p.tag, p.tag_len) :
				    strdup("latest");
	if (ret->server && ret->name && ret->revision)
		return 0;
	repository_finish(ret);
	return -ENOMEM;
}

/* ---- where the user's settings lead ---- */

/* The length of the name in NAME[:TAG][@DIGEST]; 0: the text begins with a registry. */
static size_t short_name(const char *text)
{
	size_t first = strcspn(text, "/");

	if (text[first] && (memchr(text, '.', first) || memchr(text, ':', first) ||
			    (first == 9 && strncmp(text, "localhost", 9) == 0)))
		return 0;
	return strcspn(text, ":@");
}

/* Replaces the first `n` bytes behind oci://. 0; -EINVAL: that is no artifact, logged; -ENOMEM. */
static int replace(char **url, size_t n, const char *by)
{
	char *text;

	if (asprintf(&text, SCHEME "%s%s", by, *url + strlen(SCHEME) + n) < 0)
		return -ENOMEM;
	free(*url);
	*url = text;
	if (oci_is_artifact(text))
		return 0;
	return log_error(-EINVAL, by, "is set in registries.conf, but is no REGISTRY/NAME");
}

/* Sets the mirrors of the artifact, and replaces its URL where another location is set. */
static int locate(const struct registries *r, struct oci_place *at)
{
	struct repository repo;
	struct parts p;
	char *found = NULL;
	const char *host;
	int result = oci_parse(at->url, &repo);

	if (result < 0)
		return result;
	split(at->url, &p);
	host = strstr(repo.server, "://") + 3;
	host = strcmp(host, DOCKER_HUB) == 0 ? "docker.io" : host;
	result = registries_locate(r, host, repo.name, &found, &at->plain);
	if (result == -EPERM)
		log_error(result, at->url, "is blocked in registries.conf");
	if (result == 0)
		result = registries_mirrors(r, host, repo.name, &at->mirrors, &at->n_mirrors);
	if (result == 0 && found)
		result = replace(&at->url, (size_t)(p.name + p.name_len - p.host), found);
	free(found);
	repository_finish(&repo);
	return result;
}

/* May the registry, at its location, be asked by http? */
static int find_plain(const struct registries *r, struct oci_place *at)
{
	struct repository repo;
	int result = oci_parse(at->url, &repo);

	if (result < 0)
		return result;
	at->plain |= registries_plain(r, strstr(repo.server, "://") + 3, repo.name);
	repository_finish(&repo);
	return 0;
}

int oci_find(const struct registries *r, const char *url, struct oci_place *ret)
{
	struct oci_place at = { .url = strdup(url) };
	const char *text = url + strlen(SCHEME), *alias;
	size_t n = short_name(text);
	int result = at.url ? 0 : -ENOMEM;

	alias = result == 0 && n > 0 ? registries_alias(r, text, n) : NULL;
	if (alias)
		result = replace(&at.url, n, alias);
	/* the fault of any other text is logged later */
	if (result == 0 && oci_is_artifact(at.url))
		result = locate(r, &at);
	if (result == 0 && oci_is_artifact(at.url))
		result = find_plain(r, &at);
	if (result < 0)
		oci_place_finish(&at);
	else
		*ret = at;
	return result;
}

void oci_place_finish(struct oci_place *at)
{
	free(at->url);
	registry_mirrors_free(at->mirrors, at->n_mirrors);
	*at = (struct oci_place){ 0 };
}

/* The parts of the URL of a blob, without the digest. */
static bool split_blob(const char *url, struct parts *ret)
{
	size_t scheme = strncasecmp(url, "https://", 8) == 0 ? 8 :
			strncasecmp(url, "http://", 7) == 0  ? 7 :
							       0;
	const char *path = scheme ? strchr(url + scheme, '/') : NULL, *at, *end;

	if (!path || strncmp(path, "/v2/", 4) != 0 || !(end = strstr(path + 4, "/blobs/sha256:")))
		return false;
	/* behind a user name and a password, which are not for the registry */
	at = memrchr(url, '@', (size_t)(path - url));
	*ret = (struct parts){ .host = at ? at + 1 : url + scheme, .name = path + 4 };
	ret->host_len = (size_t)(path - ret->host);
	ret->name_len = (size_t)(end - ret->name);
	return reference_is_host(ret->host, ret->host_len);
}

bool oci_is_blob(const char *url)
{
	struct parts p;

	return split_blob(url, &p);
}

/* ---- the login ---- */

/* What the process says. */
struct answer {
	int result;
	size_t n;
	char output[HELPER_MAX_OUTPUT];
};

struct registry {
	struct login login;
	const struct registries *registries;
	char server[HTTP_MAX_URL], command[128]; /* of the helper */
	struct helper helper;			 /* fd -1: no helper is configured */
	int64_t refused_ms;			 /* when the helper was run after a refusal; or 0 */
	struct answer answer;
};

static void set_header(struct registry *g, char *header)
{
	if (g->login.header) {
		explicit_bzero(g->login.header, strlen(g->login.header));
		free(g->login.header);
	}
	g->login.header = header;
}

static void logout(struct login *l)
{
	struct registry *g = container_of(l, struct registry, login);

	helper_end(&g->helper);
	set_header(g, NULL);
	free(l->host);
	free(l->file);
	explicit_bzero(g, sizeof(*g));
	free(g);
}

static int use(struct registry *g, const char *auth)
{
	char *header;

	if (asprintf(&header, "Authorization: Basic %s", auth) < 0)
		return -ENOMEM;
	g->login.version += !g->login.header || strcmp(g->login.header, header) != 0;
	set_header(g, header);
	return 0;
}

/* In the process that runs the helper. */
static size_t run_helper(void *ctx)
{
	struct registry *g = ctx;

	g->answer.result = helper_run(g->command, g->server, g->answer.output,
				      sizeof(g->answer.output), &g->answer.n);
	return offsetof(struct answer, output) + g->answer.n;
}

/* Does the helper say that it has none? Some print that, and fail. */
static bool has_none(const struct registry *g)
{
	static const char none[] = "credentials not found";

	return g->answer.result == -ECHILD && g->answer.n >= strlen(none) &&
	       strncmp(g->answer.output, none, strlen(none)) == 0;
}

/*
 * Takes the answer of the helper; waits up to `wait_ms` for it. 0; -EAGAIN: not there yet; -errno.
 */
static int receive(struct registry *g, int wait_ms)
{
	ssize_t n = helper_receive(&g->helper, wait_ms, &g->answer, sizeof(g->answer));
	char auth[DOCKER_MAX_AUTH];
	int r = n < 0 ? (int)n : -EPIPE;

	if (n >= (ssize_t)offsetof(struct answer, output) &&
	    (size_t)n == offsetof(struct answer, output) + g->answer.n)
		r = g->answer.result;
	if (r == 0)
		r = docker_output(g->answer.output, g->answer.n, auth);
	if (r == 0)
		r = use(g, auth);
	else if (has_none(g))
		r = 0;
	explicit_bzero(auth, sizeof(auth));
	explicit_bzero(&g->answer, sizeof(g->answer));
	return r;
}

/* Whether anybody may read the artifact, only the registry knows: what fails here, it says. */
static int start_helper(struct registry *g, const char *name, struct cancel *stop)
{
	int r;

	snprintf(g->command, sizeof(g->command), "exec docker-credential-%s get", name);
	r = helper_start(&g->helper, &(struct helper_job){ run_helper, g, &g->answer }, stop);
	if (r == 0) {
		helper_ask(&g->helper);
		r = receive(g, pace.login_ms);
	}
	if (r == 0 || r == -ENOMEM || r == -ECANCELED)
		return r;
	carton_log(CARTON_LOG_NOTICE, g->server,
		   "docker-credential-%s, which has the credentials, %s", name,
		   r == -ETIMEDOUT		? "has not ended after 60 s" :
		   r == -EOPNOTSUPP		? "has " DOCKER_IDENTITY :
		   r == -EBADMSG || r == -EFBIG ? "writes no JSON with Username and Secret" :
						  "has failed");
	return 0;
}

/* May passwords be sent by http? To this machine, and to what plain_http names. */
static bool may_be_read(const struct registries *r, const char *host, unsigned port)
{
	return http_host_class(host) == HTTP_ADDRESS_LOOPBACK || registries_named(r, host, port);
}

/* Sets where the login may be sent. 0; -ENOENT: nowhere, as http is not allowed; -ENOMEM. */
static int set_place(struct login *l, const char *server, const struct registries *r)
{
	bool https = strncasecmp(server, "https:", 6) == 0;
	const char *host = strstr(server, "://") + 3;
	unsigned port;

	l->host = reference_host(host, strlen(host), &port);
	if (!l->host)
		return -ENOMEM;
	l->ports[1] = https ? (port ? port : 443) : 0;
	if (may_be_read(r, l->host, port ? port : 80))
		l->ports[0] = port ? port : 80;
	return l->ports[0] || l->ports[1] ? 0 : -ENOENT;
}

/* Sets the server, and what the files of docker and podman say of the repository. */
static int set_up(struct registry *g, const struct repository *at, const struct login_options *o)
{
	struct docker_found *found = calloc(1, sizeof(*found));
	const char *host = strstr(at->server, "://") + 3;
	int r = found ? set_place(&g->login, at->server, o->registries) : -ENOMEM;

	g->registries = o->registries;
	if (r == 0) {
		snprintf(g->server, sizeof(g->server), "%s", docker_server(host));
		r = docker_find(host, at->name, found);
	}
	if (r == 0 && *found->helper) {
		r = start_helper(g, found->helper, o->stop);
	} else if (r == 0) {
		g->login.file = strdup(found->file);
		r = g->login.file ? use(g, found->auth) : -ENOMEM;
	}
	if (found)
		explicit_bzero(found, sizeof(*found));
	free(found);
	return r;
}

/* The registry and the name in the URL of a blob or of an artifact; no user name and password. */
static int find_repository(const char *url, struct repository *ret)
{
	struct parts p;

	if (!split_blob(url, &p))
		return oci_is_artifact(url) ? oci_parse(url, ret) : -ENOENT;
	*ret = (struct repository){ .kind = "oci" };
	if (asprintf(&ret->server, "%.*s%.*s", (int)(strstr(url, "://") + 3 - url), url,
		     (int)p.host_len, p.host) < 0)
		ret->server = NULL;
	ret->name = strndup(p.name, p.name_len);
	if (ret->server && ret->name)
		return 0;
	repository_finish(ret);
	return -ENOMEM;
}

static int login(const char *url, const struct login_options *o, struct login **ret)
{
	struct registry *g = calloc(1, sizeof(*g));
	struct repository at = { 0 };
	int r = g ? find_repository(url, &at) : -ENOMEM;

	if (g)
		g->helper.fd = -1;
	if (r == 0)
		r = set_up(g, &at, o);
	repository_finish(&at);
	if (r == 0)
		*ret = &g->login;
	else if (g)
		logout(&g->login);
	return r == -ENOENT ? 0 : r;
}

/* A helper, unlike a file, knows a registry as a whole: it is run once. */
static bool covers(struct login *l, const char *url)
{
	const struct registry *g = container_of(l, struct registry, login);
	struct repository at = { 0 };
	struct login other = { 0 };
	bool same = g->helper.fd >= 0 && find_repository(url, &at) == 0 &&
		    set_place(&other, at.server, g->registries) == 0 &&
		    (!other.ports[0] || other.ports[0] == l->ports[0]) &&
		    (!other.ports[1] || other.ports[1] == l->ports[1]) &&
		    strcasecmp(other.host, l->host) == 0;

	free(other.host);
	repository_finish(&at);
	return same;
}

static const char *line(struct login *l)
{
	struct registry *g = container_of(l, struct registry, login);

	if (g->helper.asked)
		receive(g, 0);
	if (g->helper.fd >= 0 && now_ms() - g->helper.asked_ms >= pace.oci_renew_ms)
		helper_ask(&g->helper);
	return g->login.header;
}

/* The passwords of some registries end after some hours. */
static bool renew(struct login *l, unsigned version)
{
	struct registry *g = container_of(l, struct registry, login);

	if (g->helper.asked)
		receive(g, 0);
	if (l->version != version || g->helper.asked)
		return true;
	if (g->helper.fd < 0 || (g->refused_ms && now_ms() - g->refused_ms < pace.oci_again_ms))
		return false;
	g->refused_ms = now_ms();
	helper_ask(&g->helper);
	return g->helper.asked;
}

const struct scheme oci_scheme = {
	.name = "oci",
	.bundle = "SSL_CERT_FILE",
	.port = true,
	.misspelt = FORM,
	.fault = fault,
	.login = login,
	.covers = covers,
	.logout = logout,
	.line = line,
	.renew = renew,
};
