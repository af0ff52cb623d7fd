/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An unpacked carton in a directory of its own, which is removed at exit: small and large files,
 * one that is damaged, a symlink, a directory of many, tensors with views.
 */
#ifndef TESTS_FUZZ_SAMPLE_H
#define TESTS_FUZZ_SAMPLE_H

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "carton.h"
#include "base/digest.h"
#include "base/util.h"

#include "fuzz.h"

#define SAMPLE_BIG (600 * 1024 + 7) /* is pushed, and has several blocks */
#define SAMPLE_SMALL 1000
#define SAMPLE_MANY 150

static char sample_dir[64];
static char sample_big[SAMPLE_BIG]; /* what is in model/big; its start is in model/small */

static inline int sample_remove_one(const char *path, const struct stat *st, int type,
				    struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static inline void sample_remove(void)
{
	nftw(sample_dir, sample_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes an empty directory, in memory if there is such a place. */
static inline void sample_mkdir(void)
{
	const char *place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

	snprintf(sample_dir, sizeof(sample_dir), "%s/cartonfs-fuzz-XXXXXX", place);
	CHECK(mkdtemp(sample_dir));
	atexit(sample_remove);
}

static inline void sample_put(FILE *manifest, const char *name, const void *data, size_t n)
{
	uint8_t hash[SHA256_SIZE];
	char path[128], hex[2 * SHA256_SIZE + 1];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", sample_dir, name);
	f = fopen(path, "w");
	CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
	CHECK(sha256_mem(data, n, hash) == 0);
	hash[0] ^= strstr(name, "bad") != NULL;
	hex_encode(hash, sizeof(hash), hex);
	fprintf(manifest, "%s=%s\n", name, hex);
}

static inline void sample_put_text(FILE *manifest, const char *name, const char *text)
{
	sample_put(manifest, name, text, strlen(text));
}

static inline void sample_write(void)
{
	static const char *const dirs[] = { "model", "model/many", "tensor_data", "cache" };
	char path[128];
	FILE *manifest;

	sample_mkdir();
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", sample_dir, dirs[i]);
		/* the cache is no part of the carton */
		CHECK(mkdir(path, 0700) == 0);
	}
	snprintf(path, sizeof(path), "%s/MANIFEST", sample_dir);
	manifest = fopen(path, "w");
	CHECK(manifest);
	sample_put_text(manifest, "carton.toml", "spec_version = 1\n");
	sample_put_text(manifest, "model/bad", "bad");
	for (size_t i = 0; i < sizeof(sample_big); i++)
		sample_big[i] = (char)(i * 7 + i / 251 + i / 65537);
	sample_put(manifest, "model/big", sample_big, sizeof(sample_big));
	sample_put_text(manifest, "model/empty", "");
	for (int i = 0; i < SAMPLE_MANY; i++) {
		snprintf(path, sizeof(path), "model/many/%03d", i);
		sample_put_text(manifest, path, path);
	}
	sample_put(manifest, "model/small", sample_big, SAMPLE_SMALL);
	sample_put_text(manifest, "tensor_data/index.toml",
			"[[tensor]]\nname = 'x'\ndtype = 'string'\nshape = [1]\nfile = 'x.toml'\n"
			"inner = []\n");
	sample_put_text(manifest, "tensor_data/x.toml", "data = ['a']\n");
	CHECK(fclose(manifest) == 0);
}

static inline void sample_silent(void *ctx, enum carton_log_level level, const char *subject,
				 const char *message)
{
	(void)ctx;
	(void)level;
	(void)subject;
	(void)message;
}

/* Opens it, as a mount does. */
static inline struct carton *sample_open(void)
{
	char cache[96];
	struct carton_options o = { .offline = true, .views = "views", .cache_dir = cache };
	struct carton *c;

	sample_write();
	carton_log_set(sample_silent, NULL);
	snprintf(cache, sizeof(cache), "%s/cache", sample_dir);
	CHECK(carton_open(sample_dir, &o, &c) == 0);
	return c;
}

#endif
