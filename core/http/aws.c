/* SPDX-License-Identifier: Apache-2.0 */
#include "http/aws.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/json.h"
#include "base/util.h"
#include "http/helper.h"

#define REGION "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

/* ---- the environment ---- */

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* Copies a value without white space at its end, cut to n - 1 bytes. */
static void copy(char *to, size_t n, const char *value)
{
	size_t len = value ? strnlen(value, n - 1) : 0;

	while (len > 0 && strchr(" \t\r\n", value[len - 1]))
		len--;
	if (len > 0)
		memcpy(to, value, len);
	to[len] = '\0';
}

static void find_file(const char *variable_name, const char *name, char *ret, size_t n)
{
	const char *given = variable(variable_name), *home = variable("HOME");

	if (given || home)
		snprintf(ret, n, "%s%s%s", given ? given : home, given ? "" : "/.aws/",
			 given ? "" : name);
}

void aws_look_around(struct aws_environment *ret)
{
	const char *id = variable("AWS_ACCESS_KEY_ID");
	const char *secret = variable("AWS_SECRET_ACCESS_KEY");
	const char *profile = variable("AWS_PROFILE");

	*ret = (struct aws_environment){ .keys = { .expiry = 0 } };
	copy(ret->profile, sizeof(ret->profile), profile ? profile : "default");
	find_file("AWS_CONFIG_FILE", "config", ret->config, sizeof(ret->config));
	find_file("AWS_SHARED_CREDENTIALS_FILE", "credentials", ret->credentials,
		  sizeof(ret->credentials));
	if (!id || !secret)
		return;
	copy(ret->keys.id, sizeof(ret->keys.id), id);
	copy(ret->keys.secret, sizeof(ret->keys.secret), secret);
	copy(ret->keys.token, sizeof(ret->keys.token), variable("AWS_SESSION_TOKEN"));
}

/* ---- the files: async-signal-safe ---- */

/* A file by lines. */
struct lines {
	int fd;
	size_t at, n;
	char block[4096];
};

/*
 * The next line without its end; the part that does not fit is a line of its own. False: the end.
 */
static bool next_line(struct lines *l, char *ret, size_t n)
{
	size_t len = 0;

	for (;;) {
		if (l->at == l->n) {
			ssize_t got = read(l->fd, l->block, sizeof(l->block));

			l->at = 0;
			l->n = got > 0 ? (size_t)got : 0;
		}
		if (l->n == 0 || l->block[l->at] == '\n' || len == n - 1)
			break;
		ret[len++] = l->block[l->at++];
	}
	ret[len] = '\0';
	if (l->n == 0)
		return len > 0;
	l->at += l->block[l->at] == '\n';
	return true;
}

static char *trim(char *text)
{
	size_t n;

	text += strspn(text, " \t");
	n = strlen(text);
	while (n > 0 && strchr(" \t\r", text[n - 1]))
		text[--n] = '\0';
	return text;
}

/*
 * Is the line the header of the profile's section? In config it is [profile NAME], but [default].
 */
static bool is_section(const struct aws_environment *e, char *line, bool config)
{
	char *end = strchr(line, ']');

	if (!end)
		return false;
	*end = '\0';
	line = trim(line + 1);
	if (config && strncmp(line, "profile", 7) == 0 && strchr(" \t", line[7]))
		line = trim(line + 7);
	return strcmp(line, e->profile) == 0;
}

/* The value of a key in the section of the profile; false: there is none. */
static bool read_value(const struct aws_environment *e, bool config, const char *key, char *ret,
		       size_t n)
{
	const char *path = config ? e->config : e->credentials;
	struct lines l = { .fd = *path ? open(path, O_RDONLY | O_CLOEXEC) : -1 };
	bool found = false, inside = false;
	char line[16384];

	while (l.fd >= 0 && !found && next_line(&l, line, sizeof(line))) {
		/* lines with a space before them belong to a nested section */
		char *value = strchr("#; \t\r", *line) ? NULL : strchr(line, '=');

		if (*line == '[')
			inside = is_section(e, line, config);
		if (*line == '[' || !inside || !value)
			continue;
		*value++ = '\0';
		value = trim(value);
		found = strcasecmp(trim(line), key) == 0 && *value && strlen(value) < n;
		if (found)
			strcpy(ret, value);
	}
	explicit_bzero(line, sizeof(line));
	explicit_bzero(&l.block, sizeof(l.block));
	fd_close(l.fd);
	return found;
}

int aws_place(const struct aws_environment *e, struct aws_place *ret)
{
	const char *region = variable("AWS_REGION"), *server = variable("AWS_ENDPOINT_URL_S3");
	size_t n;

	region = region ? region : variable("AWS_DEFAULT_REGION");
	server = server ? server : variable("AWS_ENDPOINT_URL");
	copy(ret->region, sizeof(ret->region), region);
	copy(ret->endpoint, sizeof(ret->endpoint), server);
	if (!region && !read_value(e, true, "region", ret->region, sizeof(ret->region)))
		copy(ret->region, sizeof(ret->region), "us-east-1");
	if (!server)
		read_value(e, true, "endpoint_url", ret->endpoint, sizeof(ret->endpoint));
	for (n = strlen(ret->endpoint); n > 0 && ret->endpoint[n - 1] == '/';)
		ret->endpoint[--n] = '\0';
	/* the region becomes a part of a host name, and of the signature */
	if (!*ret->region || ret->region[strspn(ret->region, REGION)]) {
		carton_log(CARTON_LOG_ERROR, ret->region,
			   "is no AWS region: the name has a-z, 0-9 and - only");
		return -EINVAL;
	}
	return 0;
}

bool aws_bundle(char *ret, size_t n)
{
	struct aws_environment e;
	bool found;

	aws_look_around(&e);
	found = read_value(&e, true, "ca_bundle", ret, n);
	explicit_bzero(&e, sizeof(e));
	return found;
}

static bool from_file(const struct aws_environment *e, bool config, struct aws_keys *ret)
{
	if (!read_value(e, config, "aws_access_key_id", ret->id, sizeof(ret->id)) ||
	    !read_value(e, config, "aws_secret_access_key", ret->secret, sizeof(ret->secret)))
		return false;
	read_value(e, config, "aws_session_token", ret->token, sizeof(ret->token));
	return true;
}

bool aws_file_keys(const struct aws_environment *e, struct aws_keys *ret)
{
	bool found;

	explicit_bzero(ret, sizeof(*ret));
	found = from_file(e, false, ret) || from_file(e, true, ret);
	if (!found)
		explicit_bzero(ret, sizeof(*ret));
	return found;
}

bool aws_file_command(const struct aws_environment *e, char *ret, size_t n)
{
	return read_value(e, true, "credential_process", ret, n) ||
	       read_value(e, false, "credential_process", ret, n);
}

void aws_find(const struct aws_environment *e, struct aws_found *ret)
{
	char command[4096];

	explicit_bzero(ret, sizeof(*ret));
	ret->keys = e->keys;
	if (*ret->keys.id || aws_file_keys(e, &ret->keys))
		return;
	ret->ran = aws_file_command(e, command, sizeof(command));
	if (ret->ran)
		ret->result = helper_run(command, NULL, ret->output, sizeof(ret->output), &ret->n);
}

/* ---- the output of credential_process ---- */

int64_t aws_time(const char *text)
{
	struct tm tm = { 0 };
	char digits[16];
	size_t n = 0;

	for (; *text && n < sizeof(digits) - 1; text++) {
		if (strncasecmp(text, "%3a", 3) == 0)
			text += 2;
		else if (*text >= '0' && *text <= '9')
			digits[n++] = *text;
	}
	digits[n] = '\0';
	if (n < 14 || sscanf(digits, "%4d%2d%2d%2d%2d%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
			     &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6)
		return 0;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	return MAX((int64_t)timegm(&tm), 0);
}

/* The text of the current token, if it fits. */
static void take(const struct json *j, char *ret, size_t n)
{
	size_t len = json_text_len(j);

	if (len > 0 && len < n && memchr(j->text->data + j->kept, '\0', len) == NULL) {
		memcpy(ret, j->text->data + j->kept, len);
		ret[len] = '\0';
	}
}

/* {"Version": 1, "AccessKeyId": …, "SecretAccessKey": …, "SessionToken": …, "Expiration": …} */
static int parse(const struct aws_found *found, struct aws_keys *ret)
{
	struct buf text = buf_init(AWS_MAX_OUTPUT);
	struct mem_text in = { found->output, found->n };
	struct json *j = calloc(1, sizeof(*j));
	char key[32] = "", time[64] = "";
	enum json_event e;
	unsigned depth = 0;
	int r = 0;

	if (!j)
		return -ENOMEM;
	*j = (struct json){ .read = mem_text_read, .ctx = &in, .text = &text };
	while (r == 0 && (r = json_next(j, &e)) == 0 && e != JSON_EOF) {
		depth += e == JSON_OBJECT || e == JSON_ARRAY;
		depth -= e == JSON_END;
		if (e == JSON_KEY && depth == 1) {
			key[0] = '\0';
			take(j, key, sizeof(key));
		} else if (e == JSON_STRING && depth == 1) {
			if (!strcmp(key, "AccessKeyId"))
				take(j, ret->id, sizeof(ret->id));
			else if (!strcmp(key, "SecretAccessKey"))
				take(j, ret->secret, sizeof(ret->secret));
			else if (!strcmp(key, "SessionToken"))
				take(j, ret->token, sizeof(ret->token));
			else if (!strcmp(key, "Expiration"))
				take(j, time, sizeof(time));
		}
	}
	ret->expiry = aws_time(time);
	if (text.data)
		explicit_bzero(text.data, text.cap);
	buf_finish(&text);
	free(j);
	return r < 0 ? r : *ret->id && *ret->secret ? 0 : -EBADMSG;
}

static bool is_line(const char *text)
{
	while ((unsigned char)*text >= ' ' && *text != 0x7f)
		text++;
	return !*text;
}

/* Keys are sent in headers: a line break would begin another one. */
static bool keys_ok(const struct aws_keys *k)
{
	return is_line(k->id) && is_line(k->secret) && is_line(k->token);
}

int aws_take(struct aws_found *found, struct aws_keys *ret)
{
	int r = found->result;

	if (r == 0 && found->ran)
		r = parse(found, &found->keys);
	if (r == 0 && !keys_ok(&found->keys)) {
		carton_log(CARTON_LOG_ERROR, NULL, "a key for S3 has a control character");
		return -EINVAL;
	}
	if (r == 0)
		*ret = found->keys;
	if (r == 0 || r == -ENOMEM)
		return r;
	carton_log(CARTON_LOG_ERROR, "credential_process",
		   r == -ETIMEDOUT ? "the command of ~/.aws/config has not ended after 60 s" :
		   r == -ECHILD	   ? "the command of ~/.aws/config has failed" :
				     "the command of ~/.aws/config writes no JSON with AccessKeyId "
				     "and SecretAccessKey");
	return r == -ETIMEDOUT ? r : -EINVAL;
}
