/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where HTTP goes and what it carries there: redirects, credentials, addresses, proxies, TLS.
 * What needs other addresses than loopback runs in a network namespace of its own: this program
 * starts itself again with the argument netns.
 */
#include "http/hf.h"
#include "http_help.h"

/* ---- redirects ---- */

static void test_redirects(void **state)
{
	static const int codes[] = { 301, 302, 303, 307, 308 };
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX], to[URL_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		url_of(&main_server, to, "/size=1000/n=%zu/x?token=%zu", i, i);
		url_of(&main_server, url, "/redirect=%d/to=%s/x", codes[i], segment(to));
		assert_int_equal(get(http, url, pattern(0), &r), 1000);
		snprintf(to, sizeof(to), "\"/size=1000/n=%zu/x\", \"query\": \"token=%zu\"", i, i);
		assert_int_equal(server_saw(&main_server, to), 1);
	}
	server_clear(&main_server);
	url_of(&main_server, url, "/hops=5/size=1000/x");
	assert_int_equal(get(http, url, pattern(0), &r), 1000);
	/* Their bodies were read, and the connection kept. */
	assert_int_equal(server_connections(&main_server), 0);
	assert_int_equal(log_count(), 0);
	url_of(&main_server, url, "/hops=6/size=1000/x");
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("too many redirects");
	server_clear(&main_server);
	url_of(&main_server, url, "/loop/x");
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("circle");
	assert_int_equal(server_saw(&main_server, "\"method\""), 1);
	url_of(&main_server, url, "/redirect=302/x");
	assert_int_equal(get(http, url, NULL, &r), 4);
	assert_int_equal(r.status, 302);
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment("ftp://127.0.0.1/x?secret"));
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	assert_logged_once("only http and https");
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment("file:///etc/passwd"));
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	assert_logged_once("only http and https");
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment("http://:::/"));
	assert_int_equal(get(http, url, NULL, &r), -EPROTO);
	log_clear();
	http_free(http);
}

static void test_dl_url(void **state)
{
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX], to[URL_MAX];

	(void)state;
	server_clear(&main_server);
	url_of(&main_server, to, "/size=1000/seed=1/real");
	/* Its own body is larger than what is read to keep a connection. */
	url_of(&main_server, url, "/size=5000000/dl=%s/x", segment(to));
	assert_int_equal(get(http, url, pattern(1), &r), 1000);
	assert_int_equal(server_saw(&main_server, "/size=1000/seed=1/real"), 1);
	assert_int_equal(
		ask(http, &(struct http_request){ .url = url, .method = HTTP_HEAD }, NULL, &r), 0);
	assert_int_equal(r.length, 1000);
	assert_int_equal(server_saw(&main_server, "\"method\": \"HEAD\""), 2);
	url_of(&main_server, url, "/size=50/status=404/dl=%s/x", segment(to));
	assert_int_equal(get(http, url, NULL, &r), 50);
	assert_int_equal(r.status, 404);
	/* Counted, and seen as a circle. */
	url_of(&main_server, url, "/hops=5/size=10/dl=%s/x", segment(to));
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("too many");
	url_of(&main_server, url, "/size=10/dl=x/x");
	assert_int_equal(get(http, url, NULL, &r), -ELOOP);
	assert_logged_once("circle");
	http_free(http);
}

/* ---- credentials ---- */

static void test_origin_headers(void **state)
{
	struct server other;
	char *file = temp_file("X-Token: sesame\n", 16), origin[URL_MAX], url[URL_MAX], to[URL_MAX];
	struct http_options o = { .source_url = origin, .header_file = file };
	struct http_response r;
	struct http *http;

	(void)state;
	server_start(&other, "127.0.0.1", NULL, NULL);
	server_clear(&main_server);
	url_of(&main_server, origin, "/m.carton");
	o.private_links = true;
	http = start_with(&o);
	url_of(&main_server, url, "/need=X-Token:sesame/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	/* The same host in another spelling of trust gets them too; another port does not. */
	assert_int_equal(
		ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r), 10);
	url_of(&other, url, "/size=10/x");
	assert_int_equal(get(http, url, NULL, &r), 10);
	assert_int_equal(server_saw(&other, "sesame"), 0);
	/* Away, and back again: nothing any more. */
	server_clear(&main_server);
	url_of(&main_server, to, "/size=10/back");
	url_of(&other, url, "/redirect=302/to=%s/y", segment(to));
	snprintf(to, sizeof(to), "%s", url);
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment(to));
	assert_int_equal(get(http, url, NULL, &r), 10);
	assert_int_equal(server_saw(&other, "sesame"), 0);
	assert_int_equal(server_saw(&main_server, "\"method\""), 2);
	assert_int_equal(server_saw(&main_server, "\"sesame\""), 1);
	assert_int_equal(log_count(), 0);
	http_free(http);
	unlink(file);
	free(file);
	server_stop(&other);
}

static void test_userinfo(void **state)
{
	char origin[URL_MAX], url[URL_MAX], to[URL_MAX];
	struct http_options o = { .source_url = origin, .private_links = true };
	struct http_response r;
	struct http *http;
	struct server other;

	(void)state;
	server_start(&other, "127.0.0.1", NULL, NULL);
	snprintf(origin, sizeof(origin), "http://joe:s%%40cret@127.0.0.1:%d/m", main_server.port);
	http = start_with(&o);
	url_of(&main_server, url, "/auth=joe:s@cret/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	/* A redirect within the origin keeps them. */
	url_of(&main_server, to, "/redirect=302/to=%s/x", segment(url));
	assert_int_equal(get(http, to, pattern(0), &r), 10);
	url_of(&other, to, "/auth=joe:s@cret/size=10/x");
	assert_true(get(http, to, NULL, &r) >= 0);
	assert_int_equal(r.status, 401);
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	assert_int_equal(log_count(), 0);
	/* Those of a LINKS URL and of a redirect are never sent. */
	snprintf(url, sizeof(url), "http://eve:pw@127.0.0.1:%d/size=10/x", other.port);
	assert_int_equal(
		ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r), 10);
	assert_logged_once("are not sent");
	url_of(&main_server, to, "/redirect=302/to=%s/x", segment(url));
	assert_int_equal(get(http, to, NULL, &r), 10);
	assert_int_equal(log_count(), 0); /* which was said */
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	http_free(http);
	server_stop(&other);
}

/*
 * Credentials go nowhere else, however a redirect writes it; and what it has of its own is neither
 * sent nor shown.
 */
static void test_redirects_that_ask_for_credentials(void **state)
{
	char origin[URL_MAX], url[URL_MAX], to[URL_MAX], back[URL_MAX];
	struct login login = { .scheme = &hf_scheme, .header = (char *)"X-Key: sesame" };
	struct http_options o = { .source_url = origin,
				  .logins = &login,
				  .source_scheme = &hf_scheme,
				  .private_links = true };
	struct http_response r;
	struct http *http;
	struct server other;
	const char *const elsewhere[] = {
		"http://localhost",	       /* another host */
		"http://joe:s3cret@localhost", /* that asks with the same */
		"http://127.0.0.1.",	       /* a dot at its end */
		"http://[::ffff:127.0.0.1]",   /* the same address */
		"http:///eve:pw@localhost",    /* forms that libcurl takes */
		"//eve:pw@localhost",
		"http:\\\\eve:pw@localhost",
	};

	(void)state;
	server_start(&other, "127.0.0.1", NULL, NULL);
	snprintf(origin, sizeof(origin), "http://joe:s3cret@127.0.0.1:%d/m", main_server.port);
	http = start_with(&o);
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++) {
		int port = i == 0 ? main_server.port : other.port;

		server_clear(&main_server);
		server_clear(&other);
		snprintf(to, sizeof(to), "%s:%d/size=10/x", elsewhere[i], port);
		url_of(&main_server, url, "/redirect=302/to=%s/x", segment(to));
		get(http, url, NULL, &r);
		/* the request that was redirected, and no other */
		assert_int_equal(server_saw(&main_server, "sesame"), 1);
		assert_int_equal(server_saw(&main_server, "Authorization"), 1);
		assert_int_equal(server_saw(&other, "sesame"), 0);
		assert_int_equal(server_saw(&other, "Authorization"), 0);
		assert_false(log_has("s3cret") || log_has("sesame") || log_has("eve"));
		log_clear();
	}
	/* by another port, and from there back: they stay behind */
	server_clear(&main_server);
	server_clear(&other);
	url_of(&main_server, back, "/size=10/x");
	url_of(&other, to, "/redirect=302/to=%s/x", segment(back));
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment(to));
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(server_saw(&main_server, "sesame"), 1);
	assert_int_equal(server_saw(&other, "sesame"), 0);
	/* another case of the host is the same origin, and userinfo there changes nothing */
	snprintf(to, sizeof(to), "http://eve:pw@127.0.0.1:%d/auth=joe:s3cret/size=10/x",
		 main_server.port);
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment(to));
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(log_count(), 0);
	http_free(http);
	server_stop(&other);
}

/* libcurl quotes a proxy that it cannot read, and cuts the line: also before the @. */
static void test_password_of_a_proxy(void **state)
{
	static const char *const proxies[][2] = { { "http://joe:", "@host:port/" },
						  { "joe:", "%40host:1" },
						  { "://joe:", "@h" },
						  { "http:///joe:", "@[::1/" } };
	struct http_response r;
	char secret[400], proxy[512];

	(void)state;
	for (size_t i = 0; i < 2 * ARRAY_SIZE(proxies); i++) {
		size_t n = i % 2 ? sizeof(secret) - 1 : 6;
		struct http *http;

		memset(secret, 'Z', n);
		secret[n] = '\0';
		snprintf(proxy, sizeof(proxy), "%s%s%s", proxies[i / 2][0], secret,
			 proxies[i / 2][1]);
		setenv("http_proxy", proxy, 1);
		http = start_default();
		unsetenv("http_proxy");
		assert_true(get(http, "http://somewhere.invalid/x", NULL, &r) < 0);
		assert_true(log_count() > 0);
		assert_false(log_has("ZZZZ"));
		log_clear();
		http_free(http);
	}
}

static void test_netrc(void **state)
{
	static const char text[] = "machine 127.0.0.1 login ann password pw\n"
				   "default login any password pw\n";
	char home[] = "/tmp/test_http.XXXXXX", path[64], origin[URL_MAX], url[URL_MAX];
	char *old = getenv("HOME") ? must(strdup(getenv("HOME"))) : NULL;
	struct http_response r;
	struct server other;
	struct http *http;
	int fd;

	(void)state;
	server_start(&other, "127.0.0.1", NULL, NULL);
	assert_non_null(mkdtemp(home));
	snprintf(path, sizeof(path), "%s/.netrc", home);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	setenv("HOME", home, 1);
	http = start_with(
		&(struct http_options){ .source_url = url_of(&main_server, origin, "/m") });
	url_of(&main_server, url, "/auth=ann:pw/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	/* .netrc knows hosts, not ports: another port is another origin. */
	url_of(&other, url, "/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	http_free(http);
	http = start_default();
	url_of(&other, url, "/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(server_saw(&other, "Authorization"), 0);
	http_free(http);
	if (old)
		setenv("HOME", old, 1);
	else
		unsetenv("HOME");
	free(old);
	unlink(path);
	rmdir(home);
	server_stop(&other);
}

/* ---- addresses that are refused ---- */

static void test_links_loopback(void **state)
{
	static const char *const hosts[] = {
		"127.0.0.1", "localhost", "0x7f.1",	     "2130706433", "[::ffff:127.0.0.1]",
		"0.0.0.0",   "0",	  "127.255.255.254", "[::]",
	};
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX];

	(void)state;
	server_clear(&main_server);
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct http_request q = { .url = url, .trust = HTTP_LINKS };

		snprintf(url, sizeof(url), "http://%s:%d/size=10/x", hosts[i], main_server.port);
		log_clear();
		if (ask(http, &q, NULL, &r) != -EACCES)
			fail_msg("%s is reached", url);
		assert_logged_once("option private_links");
	}
	assert_int_equal(server_connections(&main_server), 0);
	/* A connection that the user's URL has opened is no way around. */
	url_of(&main_server, url, "/size=10/x");
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	assert_int_equal(
		ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r),
		-EACCES);
	assert_logged_once("loopback address");
	assert_int_equal(server_saw(&main_server, "\"method\""), 1);
	http_free(http);
	http = start_with(&(struct http_options){ .private_links = true });
	assert_int_equal(
		ask(http, &(struct http_request){ .url = url, .trust = HTTP_LINKS }, NULL, &r), 10);
	http_free(http);
}

/* The user's loopback URL may send us around loopback, not to other private places. */
static void test_user_redirect_class(void **state)
{
	static const char *const refused[] = {
		"http://10.0.0.1/x",	       "http://169.254.169.254/latest",
		"http://192.168.1.1/",	       "http://[fe80::1]/",
		"http://[fc00::1]/",	       "http://224.0.0.1/",
		"http://0.0.0.0:1/",	       "http://[::ffff:10.0.0.1]/",
		"http://[64:ff9b::10.0.0.1]/", "http://100.64.0.1/",
		"http://255.255.255.255/",     "http://240.0.0.1/",
		"http://[2002:a00:1::1]/",
	};
	struct http *http = start_default();
	struct http_response r;
	struct server other;
	char url[URL_MAX], to[URL_MAX];

	(void)state;
	server_start(&other, "127.0.0.2", NULL, NULL);
	url_of(&other, to, "/size=10/x");
	url_of(&main_server, url, "/redirect=302/to=%s/x", segment(to));
	assert_int_equal(get(http, url, pattern(0), &r), 10);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(refused); i++) {
		const char *how = i % 2 ? "size=3/dl" : "redirect=307/to";

		url_of(&main_server, url, "/%s=%s/x", how, segment(refused[i / 2]));
		log_clear();
		if (get(http, url, NULL, &r) != -EACCES)
			fail_msg("%s is reached", refused[i / 2]);
		assert_logged_once("a redirect leads to a ");
	}
	http_free(http);
	server_stop(&other);
}

static void test_proxy(void **state)
{
	static const char *const refused[] = {
		"http://localhost/x",
		"http://127.0.0.1/x",
		"http://10.1.2.3/x",
		"http://[::1]/x",
		"http://0x7f.1/x",
		"http://a.localhost./x",
		/* a proxy would connect to these before there is a request */
		"https://10.1.2.3/x",
		"https://[::1]/x",
		"https://localhost/x",
	};
	struct http_request q = { .trust = HTTP_LINKS };
	struct http_response r;
	struct http *http;
	char proxy[URL_MAX], url[URL_MAX];

	(void)state;
	server_clear(&main_server);
	setenv("http_proxy", url_of(&main_server, proxy, "/"), 1);
	setenv("https_proxy", proxy, 1);
	setenv("no_proxy", "direct.invalid", 1);
	http = start_default();
	unsetenv("http_proxy");
	unsetenv("https_proxy");
	unsetenv("no_proxy");
	/* The name is the proxy's to resolve, and its own loopback address is no obstacle. */
	q.url = "http://somewhere.invalid/size=10/x";
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	assert_int_equal(server_saw(&main_server, "\"somewhere.invalid\""), 1);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		q.url = refused[i];
		log_clear();
		assert_int_equal(ask(http, &q, NULL, &r), -EACCES);
		assert_logged_once("option private_links");
	}
	q.url = url;
	snprintf(url, sizeof(url), "http://somewhere.invalid/redirect=302/to=%s/x",
		 segment("http://169.254.169.254/"));
	assert_int_equal(ask(http, &q, NULL, &r), -EACCES);
	assert_logged_once("link-local");
	assert_int_equal(server_saw(&main_server, "\"method\""), 2);
	q.url = "http://direct.invalid/x";
	assert_int_equal(ask(http, &q, NULL, &r), -EHOSTUNREACH);
	log_clear();
	http_free(http);
	/* The variables count as they were at the start; libcurl does not look for itself. */
	http = start_default();
	setenv("http_proxy", proxy, 1);
	q.url = "http://somewhere.invalid/size=10/x";
	assert_int_equal(ask(http, &q, NULL, &r), -EHOSTUNREACH);
	unsetenv("http_proxy");
	log_clear();
	http_free(http);
}

/* ---- TLS ---- */

static void test_tls(void **state)
{
	char dir[] = "/tmp/test_http.XXXXXX", cert[64], key[64], command[512], url[URL_MAX];
	char to[URL_MAX];
	struct http_response r;
	struct server tls;
	struct http *http;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(cert, sizeof(cert), "%s/cert", dir);
	snprintf(key, sizeof(key), "%s/key", dir);
	snprintf(command, sizeof(command),
		 "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
		 "-addext subjectAltName=IP:127.0.0.1 -keyout %s -out %s 2>/dev/null",
		 key, cert);
	assert_int_equal(system(command), 0);
	server_start(&tls, "127.0.0.1", cert, key);
	snprintf(url, sizeof(url), "https://127.0.0.1:%d/size=3000000/x", tls.port);
	http = start_default();
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	assert_logged_once("certificate");
	http_free(http);
	http = start_with(&(struct http_options){ .cacert = cert });
	assert_int_equal(get(http, url, pattern(0), &r), 3000000);
	/* The right authority, the wrong name. */
	snprintf(url, sizeof(url), "https://127.0.0.2:%d/size=10/x", tls.port);
	assert_true(get(http, url, NULL, &r) < 0);
	snprintf(url, sizeof(url), "https://localhost:%d/size=10/x", tls.port);
	log_clear();
	assert_int_equal(get(http, url, NULL, &r), -EACCES);
	log_clear();
	server_clear(&main_server);
	url_of(&main_server, to, "/size=10/x");
	for (int i = 0; i < 2; i++) {
		snprintf(url, sizeof(url), "https://127.0.0.1:%d/%s=%s/size=4/x", tls.port,
			 i ? "dl" : "redirect=302/to", segment(to));
		assert_int_equal(get(http, url, NULL, &r), -EACCES);
		assert_logged_once("from https to http");
	}
	assert_int_equal(server_connections(&main_server), 0);
	http_free(http);
	server_stop(&tls);
	unlink(cert);
	unlink(key);
	rmdir(dir);
}

/* ---- in a network namespace of our own ---- */

static int netns_setup(void **state)
{
	run("ip link set lo up");
	/* Public, private and link-local addresses that are all ours; nothing else has a route. */
	run("ip addr add 8.1.2.3/32 dev lo");
	run("ip addr add 10.9.8.7/32 dev lo");
	run("ip addr add 169.254.169.254/32 dev lo");
	run("ip -6 addr add 2a00::1/128 dev lo nodad");
	run("ip -6 addr add fd00::1/128 dev lo nodad");
	lay_over("hosts", "127.0.0.1 localhost\n8.1.2.3 public.test\n169.254.169.254 rebound.test\n"
			  "10.9.8.7 inner.test\n::ffff:10.9.8.7 mapped.test\nfd00::1 ula.test\n"
			  "8.1.2.3 both.test\n10.9.8.7 both.test\n");
	lay_over("nsswitch.conf", "hosts: files\n");
	return main_setup(state);
}

/* Names whose addresses are not what they seem: judged by address, and nothing is sent. */
static void test_netns_links(void **state)
{
	static const char *const refused[] = {
		"rebound.test", "inner.test",	   "localhost", "mapped.test",	     "ula.test",
		"10.9.8.7",	"169.254.169.254", "[fd00::1]", "[2002:a09:807::1]",
	};
	struct server any;
	struct http *http = start_default();
	struct http_response r;
	char url[URL_MAX], to[URL_MAX];
	struct http_request q = { .url = url, .trust = HTTP_LINKS };

	(void)state;
	server_start(&any, "0.0.0.0", NULL, NULL);
	snprintf(any.host, sizeof(any.host), "127.0.0.1");
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		snprintf(url, sizeof(url), "http://%s:%d/size=10/x", refused[i], any.port);
		log_clear();
		if (ask(http, &q, NULL, &r) != -EACCES)
			fail_msg("%s is reached", url);
		assert_logged_once("option private_links");
	}
	assert_int_equal(server_connections(&any), 0);
	snprintf(url, sizeof(url), "http://public.test:%d/size=10/x", any.port);
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	/* A name with a public and a private address: the public one serves. */
	snprintf(url, sizeof(url), "http://both.test:%d/size=10/x", any.port);
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	server_clear(&any);
	/* A public host sends LINKS and the user alike to a private place: no. */
	for (size_t i = 0; i < 2 * ARRAY_SIZE(refused); i++) {
		q.trust = i % 2 ? HTTP_LINKS : HTTP_USER;
		snprintf(to, sizeof(to), "http://%s:%d/size=10/x", refused[i / 2], any.port);
		snprintf(url, sizeof(url), "http://public.test:%d/%s=%s/size=3/x", any.port,
			 i % 3 ? "dl" : "redirect=302/to", segment(to));
		log_clear();
		if (ask(http, &q, NULL, &r) != -EACCES)
			fail_msg("%s is reached", to);
		assert_logged_once("a redirect leads to a ");
	}
	assert_int_equal(server_saw(&any, "\"method\""), 2 * ARRAY_SIZE(refused));
	/* From one public place to another, and out of loopback into public. */
	snprintf(to, sizeof(to), "http://8.1.2.3:%d/size=10/x", any.port);
	snprintf(url, sizeof(url), "http://public.test:%d/redirect=302/to=%s/x", any.port,
		 segment(to));
	q.trust = HTTP_LINKS;
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/redirect=302/to=%s/x", any.port,
		 segment(to));
	q.trust = HTTP_USER;
	assert_int_equal(ask(http, &q, pattern(0), &r), 10);
	/* …but not on into loopback again. */
	snprintf(to, sizeof(to), "http://127.0.0.1:%d/size=10/x", any.port);
	snprintf(url, sizeof(url), "http://8.1.2.3:%d/redirect=302/to=%s/x", any.port, segment(to));
	snprintf(to, sizeof(to), "%s", url);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/redirect=302/to=%s/x", any.port,
		 segment(to));
	log_clear();
	assert_int_equal(ask(http, &q, NULL, &r), -EACCES);
	assert_logged_once("loopback");
	http_free(http);
	server_stop(&any);
}

/* A server that wants a token may send us for it where it may redirect to. */
static void test_netns_tokens(void **state)
{
	static const char *const refused[] = { "https://inner.test", "http://127.0.0.1",
					       "https://127.0.0.1", "https://10.9.8.7" };
	struct server any;
	struct http *http = start_default();
	char url[URL_MAX], challenge[URL_MAX];
	struct http_request q = { .url = url };
	struct http_response r;

	(void)state;
	server_start(&any, "0.0.0.0", NULL, NULL);
	snprintf(any.host, sizeof(any.host), "127.0.0.1");
	for (size_t i = 0; i < 2 * ARRAY_SIZE(refused); i++) {
		q.trust = i % 2 ? HTTP_LINKS : HTTP_USER;
		snprintf(challenge, sizeof(challenge),
			 "WWW-Authenticate:Bearer realm=\"%s:%d/text=x/token\"", refused[i / 2],
			 any.port);
		snprintf(url, sizeof(url), "http://public.test:%d/status=401/h=%s/x", any.port,
			 segment(challenge));
		log_clear();
		if (ask(http, &q, NULL, &r) != -EACCES)
			fail_msg("%s is asked", challenge);
		assert_logged_once("option private_links");
	}
	/* the first requests only */
	assert_int_equal(server_saw(&any, "\"method\""), 2 * ARRAY_SIZE(refused));
	assert_int_equal(server_connections(&any), 1);
	http_free(http);
	server_stop(&any);
}

static int netns_main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_netns_links),
		cmocka_unit_test(test_netns_tokens),
	};

	if (!enter_netns())
		return SKIPPED;
	return cmocka_run_group_tests_name("in its own network namespace", tests, netns_setup,
					   main_teardown);
}

static void test_netns(void **state)
{
	(void)state;
	run_in_netns();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_redirects),
		cmocka_unit_test(test_dl_url),
		cmocka_unit_test(test_origin_headers),
		cmocka_unit_test(test_userinfo),
		cmocka_unit_test(test_redirects_that_ask_for_credentials),
		cmocka_unit_test(test_password_of_a_proxy),
		cmocka_unit_test(test_netrc),
		cmocka_unit_test(test_links_loopback),
		cmocka_unit_test(test_user_redirect_class),
		cmocka_unit_test(test_proxy),
		cmocka_unit_test(test_tls),
		cmocka_unit_test(test_netns),
	};

	help_start();
	if (argc > 1 && !strcmp(argv[1], "netns"))
		return netns_main();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, main_setup, main_teardown);
}
