/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The key of a source, and small texts: hints and notes. The file of a note is named by a MAC of
 * the key of the note. It begins with a code, a MAC of that key and the text, in 64 hex digits.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cache/internal.h"

#define CODE_SIZE (2 * SHA256_SIZE) /* of the code, in front of the text */

/* ---- the key ---- */

void cache_use_key(struct cache *c, const uint8_t *key)
{
	c->has_key = key != NULL;
	if (key)
		memcpy(c->key, key, KEY_SIZE);
	else
		explicit_bzero(c->key, KEY_SIZE);
}

int cache_tag_key(const struct cache *c, uint8_t ret_key[KEY_SIZE])
{
	return c->has_key ? key_derive(c->key, "tags", ret_key) : -ENOENT;
}

int cache_mac(const struct cache *c, const char *purpose, const void *of, size_t n,
	      uint8_t ret_mac[SHA256_SIZE])
{
	uint8_t key[KEY_SIZE];
	int r = c->has_key ? key_derive(c->key, purpose, key) : -ENOENT;

	if (r == 0)
		r = hmac_sha256(key, sizeof(key), of, n, ret_mac);
	explicit_bzero(key, sizeof(key));
	return r;
}

/* ---- hints ---- */

static int put(struct cache *c, const uint8_t key[32], const char *text, size_t n)
{
	char name[HEX_SIZE];

	hex_encode(key, 32, name);
	return cache_put_file(c, c->notes, name, text, n);
}

int cache_hint_put(struct cache *c, const uint8_t key[32], const char *text)
{
	size_t n = strlen(text);

	return n > MAX_CACHE_VALIDATOR ? -EFBIG : put(c, key, text, n);
}

int cache_hint_get(struct cache *c, const uint8_t key[32], char *ret_text, size_t n)
{
	const struct timespec used[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_nsec = UTIME_NOW } };
	char name[HEX_SIZE];
	struct stat st;
	int fd, r;

	hex_encode(key, 32, name);
	r = cache_open_file(c->notes, name, O_RDONLY, &fd);
	if (r < 0)
		return r == -EISDIR ? -ENOENT : r;
	r = fstat(fd, &st) < 0 ? -errno : (uint64_t)st.st_size >= n ? -ERANGE : 0;
	if (r == 0)
		r = pread_full(fd, ret_text, (size_t)st.st_size, 0);
	if (r == 0) {
		ret_text[st.st_size] = '\0';
		futimens(fd, used); /* best effort: a hint is kept for some time after its use */
	}
	fd_close(fd);
	return r;
}

void cache_hint_drop(struct cache *c, const uint8_t key[32])
{
	char name[HEX_SIZE];

	hex_encode(key, 32, name);
	unlinkat(c->notes, name, 0);
}

/* ---- notes ---- */

/*
 * A note in memory: its key, and the code and the text as in its file. The code is made of the key,
 * too, so a copy of the file under another name is no note.
 */
struct note {
	uint8_t key[32];
	char code[CODE_SIZE], text[MAX_CACHE_VALIDATOR + 1];
};

static int name_of(const struct cache *c, const uint8_t key[32], uint8_t ret_name[32])
{
	return cache_mac(c, "names of notes", key, 32, ret_name);
}

static int code_of(const struct cache *c, const struct note *note, char ret[CODE_SIZE + 1])
{
	struct buf of = buf_init(sizeof(*note));
	uint8_t mac[SHA256_SIZE];
	int r = buf_add(&of, note->key, sizeof(note->key));

	if (r == 0)
		r = buf_adds(&of, note->text);
	if (r == 0)
		r = cache_mac(c, "notes", of.data, of.len, mac);
	buf_finish(&of);
	if (r == 0)
		hex_encode(mac, sizeof(mac), ret);
	return r;
}

int cache_note_put(struct cache *c, const uint8_t key[32], const char *text)
{
	size_t n = strlen(text);
	uint8_t name[32];
	char code[CODE_SIZE + 1];
	struct note *note;
	int r = n > MAX_CACHE_VALIDATOR ? -EFBIG : name_of(c, key, name);

	if (r < 0)
		return r;
	note = malloc(sizeof(*note));
	if (!note)
		return -ENOMEM;
	memcpy(note->key, key, sizeof(note->key));
	memcpy(note->text, text, n + 1);
	r = code_of(c, note, code);
	if (r == 0) {
		memcpy(note->code, code, CODE_SIZE);
		r = put(c, name, note->code, CODE_SIZE + n);
	}
	free(note);
	return r;
}

/* Reads a note. -ENOENT: there is none, or its file was made with another key. */
static int get(struct cache *c, const uint8_t key[32], struct note *note)
{
	uint8_t name[32];
	char code[CODE_SIZE + 1];
	int r = name_of(c, key, name);

	if (r == 0)
		r = cache_hint_get(c, name, note->code, CODE_SIZE + sizeof(note->text));
	if (r < 0)
		return r == -ERANGE ? -ENOENT : r;
	if (strnlen(note->code, CODE_SIZE) < CODE_SIZE)
		return -ENOENT;
	memcpy(note->key, key, sizeof(note->key));
	r = code_of(c, note, code);
	return r == 0 && !mac_matches(note->code, code, CODE_SIZE) ? -ENOENT : r;
}

int cache_note_get(struct cache *c, const uint8_t key[32], char *ret_text, size_t n)
{
	struct note *note = malloc(sizeof(*note));
	int r = note ? get(c, key, note) : -ENOMEM;

	if (r == 0 && strlen(note->text) >= n)
		r = -ERANGE;
	if (r == 0)
		memcpy(ret_text, note->text, strlen(note->text) + 1);
	free(note);
	return r;
}

void cache_note_drop(struct cache *c, const uint8_t key[32])
{
	uint8_t name[32];

	if (name_of(c, key, name) == 0)
		cache_hint_drop(c, name);
}
