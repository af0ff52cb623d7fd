/* SPDX-License-Identifier: Apache-2.0 */
#include "http/aws.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "http/landing.h"

#define MAX_AWS_FILE (1 * MIB)
#define MAX_OUTPUT (64 * KIB)
#define PROCESS_MS 60000

/* ---- the files ---- */

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static FILE *open_file(const char *variable_name, const char *name)
{
	const char *given = variable(variable_name), *home = variable("HOME");
	char path[4096];

	if (!given && !home)
		return NULL;
	snprintf(path, sizeof(path), "%s%s%s", given ? given : home, given ? "" : "/.aws/",
		 given ? "" : name);
	return fopen(path, "re");
}

static char *trim(char *text)
{
	size_t n;

	text += strspn(text, " \t");
	n = strlen(text);
	while (n > 0 && strchr(" \t\r\n", text[n - 1]))
		text[--n] = '\0';
	return text;
}

/* Is the line the header of the profile's section? In config it is [profile NAME], but [default]. */
static bool is_section(char *line, bool config)
{
	const char *profile = variable("AWS_PROFILE");
	char *end = strchr(line, ']');

	if (!profile)
		profile = "default";
	if (!end)
		return false;
	*end = '\0';
	line = trim(line + 1);
	if (config && strncmp(line, "profile", 7) == 0 && strchr(" \t", line[7]))
		line = trim(line + 7);
	return strcmp(line, profile) == 0;
}

/* The value of a key in the section of the profile; false: there is none. */
static bool read_value(bool config, const char *key, char *ret, size_t n)
{
	FILE *f = config ? open_file("AWS_CONFIG_FILE", "config") :
			   open_file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
	bool found = false, inside = false;
	char line[16384];

	while (f && !found && fgets(line, sizeof(line), f)) {
		/* lines with a space before them belong to a nested section */
		char *value = strchr("#; \t\r\n", *line) ? NULL : strchr(line, '=');

		if (*line == '[')
			inside = is_section(line, config);
		if (*line == '[' || !inside || !value)
			continue;
		*value++ = '\0';
		value = trim(value);
		found = strcasecmp(trim(line), key) == 0 && *value && strlen(value) < n;
		if (found)
			strcpy(ret, value);
	}
	explicit_bzero(line, sizeof(line));
	if (f)
		fclose(f);
	return found;
}

static void copy(char *to, size_t n, const char *value)
{
	snprintf(to, n, "%s", value ? value : "");
}

void aws_place(struct aws_place *ret)
{
	const char *region = variable("AWS_REGION"), *server = variable("AWS_ENDPOINT_URL_S3");
	size_t n;

	region = region ? region : variable("AWS_DEFAULT_REGION");
	server = server ? server : variable("AWS_ENDPOINT_URL");
	copy(ret->region, sizeof(ret->region), region);
	copy(ret->endpoint, sizeof(ret->endpoint), server);
	if (!region && !read_value(true, "region", ret->region, sizeof(ret->region)))
		copy(ret->region, sizeof(ret->region), "us-east-1");
	if (!server)
		read_value(true, "endpoint_url", ret->endpoint, sizeof(ret->endpoint));
	for (n = strlen(ret->endpoint); n > 0 && ret->endpoint[n - 1] == '/';)
		ret->endpoint[--n] = '\0';
}

/* ---- credential_process ---- */

/* Runs the command in a group of its own; all it writes, up to MAX_OUTPUT. 0 or -errno. */
static int run(const char *command, struct buf *ret)
{
	int64_t deadline = now_ms() + PROCESS_MS;
	int fds[2], status = 0, r = 0;
	char block[4096];
	ssize_t n = 1;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		signal(SIGPIPE, SIG_DFL);
		dup2(fds[1], STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	fd_close(fds[1]);
	while (pid > 0 && r == 0 && n > 0) {
		struct pollfd p = { fds[0], POLLIN, 0 };

		if (poll(&p, 1, (int)MAX(deadline - now_ms(), 0)) == 0)
			r = -ETIMEDOUT;
		else
			n = read(fds[0], block, sizeof(block));
		if (r == 0 && n > 0)
			r = buf_add(ret, block, (size_t)n);
	}
	explicit_bzero(block, sizeof(block));
	fd_close(fds[0]);
	if (pid < 0)
		return -EAGAIN;
	if (r < 0)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return r < 0 ? r : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

struct input {
	const struct buf *text;
	size_t at;
};

static ssize_t read_text(void *ctx, void *ret_buf, size_t n)
{
	struct input *in = ctx;

	n = MIN(n, in->text->len - in->at);
	memcpy(ret_buf, in->text->data + in->at, n);
	in->at += n;
	return (ssize_t)n;
}

/* The text of the current token, if it fits. */
static void take(const struct json *j, char *ret, size_t n)
{
	size_t len = json_text_len(j);

	if (len < n && memchr(j->text->data + j->kept, '\0', len) == NULL) {
		memcpy(ret, j->text->data + j->kept, len);
		ret[len] = '\0';
	}
}

/* {"Version": 1, "AccessKeyId": …, "SecretAccessKey": …, "SessionToken": …, "Expiration": …} */
static int parse(const struct buf *output, struct aws_keys *ret)
{
	struct buf text = buf_init(MAX_OUTPUT);
	struct input in = { output, 0 };
	struct json *j = calloc(1, sizeof(*j));
	char key[32] = "", time[64] = "";
	enum json_event e;
	unsigned depth = 0;
	int r = 0;

	if (!j)
		return -ENOMEM;
	*j = (struct json){ .read = read_text, .ctx = &in, .text = &text };
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
	ret->expiry = http_parse_time(time);
	if (text.data)
		explicit_bzero(text.data, text.cap);
	buf_free(&text);
	free(j);
	return r < 0 ? r : *ret->id && *ret->secret ? 0 : -EBADMSG;
}

static int from_process(const char *command, struct aws_keys *ret)
{
	struct buf output = buf_init(MAX_OUTPUT);
	int r = run(command, &output);

	/* the scanner takes no newline behind the value */
	while (r == 0 && output.len > 0 && strchr("\r\n\t", output.data[output.len - 1]))
		output.len--;
	if (r == 0)
		r = parse(&output, ret);
	if (output.data)
		explicit_bzero(output.data, output.cap);
	buf_free(&output);
	if (r == 0 || r == -ENOMEM)
		return r;
	carton_log(CARTON_LOG_ERROR, "credential_process",
		   r == -ETIMEDOUT ? "the command of ~/.aws/config has not ended after 60 s" :
		   r == -ECHILD	   ? "the command of ~/.aws/config has failed" :
				     "the command of ~/.aws/config writes no JSON with AccessKeyId "
				     "and SecretAccessKey");
	return r == -ETIMEDOUT ? r : -EINVAL;
}

/* ---- all ---- */

static bool from_file(bool config, struct aws_keys *ret)
{
	if (!read_value(config, "aws_access_key_id", ret->id, sizeof(ret->id)) ||
	    !read_value(config, "aws_secret_access_key", ret->secret, sizeof(ret->secret)))
		return false;
	read_value(config, "aws_session_token", ret->token, sizeof(ret->token));
	return true;
}

int aws_load(struct aws_keys *ret)
{
	const char *id = variable("AWS_ACCESS_KEY_ID");
	const char *secret = variable("AWS_SECRET_ACCESS_KEY");
	struct aws_keys none = { .expiry = 0 };
	char command[4096];

	*ret = none;
	if (id && secret) {
		copy(ret->id, sizeof(ret->id), id);
		copy(ret->secret, sizeof(ret->secret), secret);
		copy(ret->token, sizeof(ret->token), variable("AWS_SESSION_TOKEN"));
		return 0;
	}
	if (from_file(false, ret) || from_file(true, ret))
		return 0;
	*ret = none;
	if (read_value(true, "credential_process", command, sizeof(command)) ||
	    read_value(false, "credential_process", command, sizeof(command)))
		return from_process(command, ret);
	return 0;
}
