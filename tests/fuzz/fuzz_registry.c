/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After the first byte, any text as 0 an oci:// URL: what is accepted leads to the registry that the
 * user named, to just this repository; 1 a file of docker's: what it gives can be sent in a header,
 * or run as a program; 2 the output of a helper, which can be sent, too; 3 the URL of a mirror.
 */
#include <string.h>
#include <strings.h>

#include "http/docker.h"
#include "http/internal.h"
#include "http/oci.h"

#include "fuzz.h"

#define BASE64 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/="

static void check_url(const char *data, size_t n)
{
	struct repository repo;
	struct http_target t;
	char *url, *text, *host;
	const char *why;

	CHECK(asprintf(&url, "oci://%.*s", (int)n, data) >= 0);
	CHECK(scheme_of(url) == &oci_scheme && http_url_fault(url));
	if (oci_is_artifact(url)) {
		CHECK(oci_parse(url, &repo) == 0);
		CHECK(asprintf(&text, "%s/v2/%s/manifests/%s", repo.server, repo.name,
			       repo.revision) >= 0);
		host = strndup(url + 6, strcspn(url + 6, "/"));
		/* a number that is no port, or no address, is refused by libcurl */
		if (http_target_parse(NULL, text, &t, &why) == 0) {
			CHECK(!t.user && !t.password && !strpbrk(t.url, "?#%"));
			CHECK(strcmp(strstr(strstr(t.url, "://") + 3, "/"),
				     strstr(text + strlen(repo.server), "/")) == 0);
			CHECK(strstr(repo.server, DOCKER_HUB) ||
			      strcmp(strstr(repo.server, "://") + 3, host) == 0);
			CHECK(t.https);
			http_target_finish(&t);
		}
		free(host);
		free(text);
		repository_finish(&repo);
	}
	free(url);
}

/* Nothing is saved for it here. */
static void check_mirror(const char *data, size_t n)
{
	char *url = strndup(data, n);
	struct login *list = NULL;

	unsetenv("HOME");
	unsetenv("DOCKER_CONFIG");
	unsetenv("XDG_RUNTIME_DIR");
	if (oci_is_blob(url))
		CHECK(login_add(&list, url, &(struct login_options){ 0 }) == 0 && !list);
	free(url);
}

static void check_auth(const char *auth)
{
	CHECK(memchr(auth, '\0', DOCKER_MAX_AUTH) && !auth[strspn(auth, BASE64)]);
}

static void check_file(const char *data, size_t n)
{
	static struct docker_found found;
	int r = docker_parse(data, n, "h.example:5000", "org/repo", &found);

	CHECK(r == 0 || r == -ENOENT || r == -EBADMSG || r == -EOPNOTSUPP);
	check_auth(found.auth);
	CHECK(memchr(found.helper, '\0', sizeof(found.helper)));
	for (const char *p = found.helper; *p; p++)
		CHECK(*p != '/' && !strchr(" \t\r\n;&|<>()$`\\\"'*?[]#~=%!{}", *p) && *p > ' ');
	CHECK((r == 0) == (*found.auth || *found.helper));
	CHECK(!*found.auth || !*found.helper);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static char auth[DOCKER_MAX_AUTH];
	const char *text = (const char *)data + 1;

	CHECK(http_load_curl() == 0);
	auth[0] = '\0';
	if (n == 0)
		return 0;
	if (data[0] == 0)
		check_url(text, n - 1);
	else if (data[0] == 1)
		check_file(text, n - 1);
	else if (data[0] == 3)
		check_mirror(text, n - 1);
	else if (docker_output(text, n - 1, auth) == 0)
		CHECK(*auth);
	check_auth(auth);
	return 0;
}
