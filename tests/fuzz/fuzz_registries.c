/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as daemon.json, or after a byte 1 as registries.conf: what it says of a name leads to the
 * API of a registry and nowhere else, or is refused; of a file with a fault nothing stays.
 */
#include <string.h>

#include "http/internal.h"
#include "http/oci.h"

#include "fuzz.h"

static void check_base(const char *base)
{
	struct http_target t;
	const char *why;

	CHECK(strncmp(base, "https://", 8) == 0 || strncmp(base, "http://", 7) == 0);
	/* a number that is no port, or no address, is refused by libcurl */
	if (http_target_parse(NULL, base, &t, &why) < 0)
		return;
	CHECK(!t.user && !t.password && !strpbrk(t.url, "?#%{}"));
	CHECK(strcmp(strstr(strstr(t.url, "://") + 3, "/"), strstr(strstr(base, "://") + 3, "/")) ==
	      0);
	CHECK(strncmp(strstr(strstr(t.url, "://") + 3, "/"), "/v2/", 4) == 0);
	http_target_finish(&t);
}

static void check_place(const struct registries *r, const char *url)
{
	struct oci_place at;
	int result = oci_find(r, url, &at);

	CHECK(result == 0 || result == -EPERM || result == -EINVAL);
	if (result < 0)
		return;
	CHECK(strcmp(at.url, url) == 0 || oci_is_artifact(at.url));
	for (size_t i = 0; i < at.n_mirrors; i++)
		check_base(at.mirrors[i].base);
	oci_place_finish(&at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const urls[] = { "oci://a/b:v1", "oci://docker.io/x", "oci://x:v1",
					    "oci://q.w/a/b@sha256:0", "oci://" };
	struct registries *r = registries_new();
	bool podman = n > 0 && *data == 1;
	const char *text = (const char *)data + podman;
	int result;

	CHECK(http_load_curl() == 0 && r);
	result = podman ? registries_parse_podman(r, "x", text, n - 1) :
			  registries_parse_docker(r, "x", text, n);
	CHECK(result == 0 || result == -EBADMSG || result == -EFBIG);
	CHECK(!registries_named(r, "a", 443));
	CHECK(result == 0 || (!registries_plain(r, "a", NULL) && !registries_alias(r, "x", 1)));
	for (size_t i = 0; i < ARRAY_SIZE(urls); i++)
		check_place(r, urls[i]);
	registries_free(r);
	return 0;
}
