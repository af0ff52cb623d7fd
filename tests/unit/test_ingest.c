/* SPDX-License-Identifier: Apache-2.0 */
/* Hashing a stream, and reading back what was hashed, block by block, so that it stays verified. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "content/bytes.h"
#include "base/ingest.h"
#include "zip_help.h"

#define BLOCK ((size_t)512 * 1024)

struct steps {
	struct cancel *cancel; /* fired after so many blocks, unless it is NULL */
	unsigned blocks, cancel_at;
	uint64_t bytes;
};

static void count_bytes(void *ctx, uint64_t bytes)
{
	struct steps *s = ctx;

	s->bytes += bytes;
	if (++s->blocks == s->cancel_at)
		cancel_fire(s->cancel);
}

static void expect_thread(void *thread, uint64_t off, const void *data, size_t n)
{
	(void)off, (void)data, (void)n;
	assert_true(pthread_equal(pthread_self(), *(pthread_t *)thread));
}

/* Runs `job` over bytes in memory. */
static int run(struct ingest job, const char *data, size_t n, struct ingested *ret)
{
	int r;

	job.in = mem_stream(data, n, 100001);
	r = ingest_run(&job, ret);
	stream_close(job.in);
	return r;
}

static void test_sizes(void **state)
{
	static const size_t sizes[] = {
		0,     1,	  TAG_BLOCK - 1, TAG_BLOCK,	TAG_BLOCK + 1, BLOCK - 1,
		BLOCK, BLOCK + 1, 8 * BLOCK,	 8 * BLOCK + 1, 13 * BLOCK,    20 * BLOCK + 12345,
	};
	char *data = make_bytes(21 * BLOCK, 1);
	pthread_t self = pthread_self();
	struct tagger *tagger;

	(void)state;
	assert_int_equal(tagger_new(NULL, &tagger), 0);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t n = sizes[i];
		struct steps steps = { 0 };
		struct ingested out, same;
		uint8_t want[SHA256_SIZE], tag[TAG_SIZE];

		assert_int_equal(run((struct ingest){ .size = n,
						      .tagger = tagger,
						      .hash = true,
						      .states = TAG_BLOCK,
						      .ctx = &steps,
						      .progress = count_bytes },
				     data, n, &out),
				 0);
		assert_int_equal(out.size, n);
		assert_int_equal(steps.bytes, n);
		sha256_of(data, n, want);
		assert_memory_equal(out.sha256, want, SHA256_SIZE);
		for (size_t at = 0; at < n; at += TAG_BLOCK) {
			assert_int_equal(tagger_tag(tagger, data + at, MIN(TAG_BLOCK, n - at), tag),
					 0);
			assert_memory_equal(out.tags[at / TAG_BLOCK], tag, TAG_SIZE);
		}
		/* the same without knowing the size, on this thread alone */
		assert_int_equal(run((struct ingest){ .size = UINT64_MAX,
						      .max = n,
						      .tagger = tagger,
						      .hash = true,
						      .states = TAG_BLOCK,
						      .alone = true,
						      .observe = expect_thread,
						      .ctx = &self },
				     data, n, &same),
				 0);
		assert_int_equal(same.size, n);
		assert_memory_equal(same.sha256, want, SHA256_SIZE);
		if (n)
			assert_memory_equal(same.tags, out.tags,
					    (n + TAG_BLOCK - 1) / TAG_BLOCK * TAG_SIZE);
		if (n) {
			size_t last = (n - 1) / TAG_BLOCK;

			assert_memory_equal(same.states, out.states, (last + 1) * SHA256_SIZE);
			assert_memory_equal(out.states[last], want, SHA256_SIZE);
		}
		free(out.tags);
		free(out.states);
		free(same.tags);
		free(same.states);
	}
	tagger_free(tagger);
	free(data);
}

/* One tag for each TAG_PART, whatever the sizes of what is fed; no hash where none is wanted. */
static void test_parts(void **state)
{
	static const size_t sizes[] = {
		0, 1, TAG_PART - 1, TAG_PART, TAG_PART + 1, 2 * TAG_PART + 5
	};
	static const uint8_t zero[SHA256_SIZE];
	char *data = make_bytes(2 * TAG_PART + 5, 4);
	struct tagger *tagger;

	(void)state;
	assert_int_equal(tagger_new(NULL, &tagger), 0);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(sizes); i++) {
		size_t n = sizes[i / 2];
		uint8_t want[SHA256_SIZE], tag[TAG_SIZE];
		struct ingest job = { .size = n, .tagger = tagger, .parts = true, .hash = i & 1 };
		struct ingested out;

		assert_int_equal(run(job, data, n, &out), 0);
		sha256_of(data, n, want);
		assert_memory_equal(out.sha256, job.hash ? want : zero, SHA256_SIZE);
		for (size_t at = 0; at < n; at += TAG_PART) {
			assert_int_equal(tagger_tag(tagger, data + at, MIN(TAG_PART, n - at), tag),
					 0);
			assert_memory_equal(out.tags[at / TAG_PART], tag, TAG_SIZE);
		}
		free(out.tags);
	}
	tagger_free(tagger);
	free(data);
}

static void test_wrong_sizes(void **state)
{
	static const size_t sizes[] = { 1, BLOCK, 10 * BLOCK, 10 * BLOCK + 77 };
	char *data = make_bytes(11 * BLOCK, 1);
	struct ingested out = { .size = 4242 };
	struct tagger *tagger;

	(void)state;
	assert_int_equal(tagger_new(NULL, &tagger), 0);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct ingest job = { .tagger = tagger, .hash = true };

		job.size = sizes[i] - 1;
		assert_int_equal(run(job, data, sizes[i], &out), -EBADMSG);
		job.size = sizes[i] + 1;
		assert_int_equal(run(job, data, sizes[i], &out), -EBADMSG);
		job.size = UINT64_MAX;
		job.max = sizes[i] - 1;
		assert_int_equal(run(job, data, sizes[i], &out), -EFBIG);
	}
	assert_int_equal(out.size, 4242);
	tagger_free(tagger);
	free(data);
}

static void test_stops(void **state)
{
	char *data = make_bytes(20 * BLOCK, 1);
	struct ingested out;

	(void)state;
	/* before and after the second thread starts */
	for (unsigned at = 1; at <= 20; at += 3) {
		struct cancel cancel;
		struct steps steps = { .cancel = &cancel, .cancel_at = at };

		cancel_init(&cancel, NULL);
		assert_int_equal(run((struct ingest){ .size = 20 * BLOCK,
						      .hash = true,
						      .cancel = &cancel,
						      .ctx = &steps,
						      .progress = count_bytes },
				     data, 20 * BLOCK, &out),
				 -ECANCELED);
		assert_int_equal(steps.bytes, at * BLOCK);
		cancel_finish(&cancel);
	}
	free(data);
}

static void test_no_hash(void **state)
{
	static const uint8_t zero[SHA256_SIZE];
	char *data = make_bytes(10 * BLOCK, 1);
	struct ingested out;

	(void)state;
	assert_int_equal(run((struct ingest){ .size = 10 * BLOCK }, data, 10 * BLOCK, &out), 0);
	assert_memory_equal(out.sha256, zero, SHA256_SIZE);
	assert_null(out.tags);
	free(data);
}

static void test_cancelled(void **state)
{
	char *data = make_bytes(20 * BLOCK, 1);
	struct ingested out;
	struct cancel cancel;

	(void)state;
	cancel_init(&cancel, NULL);
	assert_int_equal(run((struct ingest){ .size = 10, .cancel = &cancel }, data, 10, &out), 0);
	cancel_fire(&cancel);
	assert_int_equal(run((struct ingest){ .size = 10, .cancel = &cancel }, data, 10, &out),
			 -ECANCELED);
	cancel_finish(&cancel);
	free(data);
}

/* Fed in pieces of any size, the same comes out. */
static void test_push(void **state)
{
	static const size_t sizes[] = {
		0, 1, TAG_BLOCK - 1, TAG_BLOCK, TAG_BLOCK + 1, 3 * BLOCK + 5
	};
	static const size_t steps[] = { 1000,	   16384,	  TAG_BLOCK - 1,
					TAG_BLOCK, TAG_BLOCK + 1, SIZE_MAX };
	char *data = make_bytes(4 * BLOCK, 2);
	struct tagger *tagger;
	struct hasher h;

	(void)state;
	assert_int_equal(tagger_new(NULL, &tagger), 0);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		for (size_t j = 0; j < ARRAY_SIZE(steps); j++) {
			size_t n = sizes[i];
			uint8_t want[SHA256_SIZE], tag[TAG_SIZE];
			struct ingested out;

			assert_int_equal(hasher_begin(&h, tagger, true), 0);
			for (size_t at = 0; at < n; at += MIN(n - at, steps[j]))
				assert_int_equal(hasher_feed(&h, data + at, MIN(n - at, steps[j])),
						 0);
			assert_int_equal(hasher_end(&h, &out), 0);
			assert_int_equal(out.size, n);
			sha256_of(data, n, want);
			assert_memory_equal(out.sha256, want, SHA256_SIZE);
			for (size_t at = 0; at < n; at += TAG_BLOCK) {
				assert_int_equal(
					tagger_tag(tagger, data + at, MIN(TAG_BLOCK, n - at), tag),
					0);
				assert_memory_equal(out.tags[at / TAG_BLOCK], tag, TAG_SIZE);
			}
			free(out.tags);
		}
	/* given up in the middle of a block */
	assert_int_equal(hasher_begin(&h, tagger, true), 0);
	assert_int_equal(hasher_feed(&h, data, TAG_BLOCK + 5), 0);
	hasher_abort(&h);
	tagger_free(tagger);
	free(data);
}

/*
 * The states on the way, whatever the steps in which the bytes come; each is where hashing goes on,
 * and the last is the hash.
 */
static void test_states(void **state)
{
	static const size_t sizes[] = { 0, 1, SHA256_BLOCK, 9 * KIB, 12 * KIB, 12 * KIB + 1 };
	static const size_t steps[] = { 1, 63, 64, 1000, 3 * KIB, 5000, SIZE_MAX };
	const size_t kept = 3 * KIB;
	char *data = make_bytes(16 * KIB, 4);
	struct ingested out, rest;
	struct hasher h;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		for (size_t j = 0; j < ARRAY_SIZE(steps); j++) {
			size_t n = sizes[i], at = 0;

			assert_int_equal(hasher_begin(&h, NULL, true), 0);
			hasher_keep_states(&h, kept);
			for (; at < n; at += MIN(n - at, steps[j]))
				assert_int_equal(hasher_feed(&h, data + at, MIN(n - at, steps[j])),
						 0);
			assert_int_equal(hasher_end(&h, &out), 0);
			assert_true(n || !out.states);
			for (at = 0; at < n; at += kept) {
				bool last = n - at <= kept;

				assert_int_equal(hasher_begin(&h, NULL, true), 0);
				hasher_resume(&h, at ? out.states[at / kept - 1] : NULL, at);
				assert_int_equal(hasher_feed(&h, data + at, MIN(n - at, kept)), 0);
				assert_int_equal(last ? hasher_end(&h, &rest) :
							hasher_end_state(&h, &rest),
						 0);
				assert_memory_equal(rest.sha256, out.states[at / kept],
						    SHA256_SIZE);
				if (last)
					assert_memory_equal(rest.sha256, out.sha256, SHA256_SIZE);
			}
			free(out.states);
		}
	free(data);
}

/*
 * Nothing is hashed that was not tagged, or not in its turn; and what was tagged has to be hashed.
 */
static void test_halves(void **state)
{
	char *data = make_bytes(3 * TAG_BLOCK, 3);
	struct tagged first, second;
	struct tagger *tagger;
	struct ingested out;
	struct hasher h;

	(void)state;
	assert_int_equal(tagger_new(NULL, &tagger), 0);
	for (unsigned with_tags = 0; with_tags < 2; with_tags++) {
		assert_int_equal(hasher_begin(&h, with_tags ? tagger : NULL, true), 0);
		assert_int_equal(hasher_tag(&h, data, TAG_BLOCK, &first), 0);
		assert_int_equal(hasher_tag(&h, data + TAG_BLOCK, TAG_BLOCK, &second), 0);
		assert_int_equal(hasher_hash(&h, &second), -EIO);
		assert_int_equal(hasher_hash(&h, &first), 0);
		assert_int_equal(hasher_hash(&h, &first), -EIO);
		assert_int_equal(hasher_end(&h, &out), -EIO);
	}
	tagger_free(tagger);
	free(data);
}

/* ---- several ---- */

#define SEVERAL 11
#define UNREADABLE 2

struct several {
	struct tagger *tagger;
	struct cancel cancelled;
	char *data;
	size_t begun, over;
	size_t of[HASHERS]; /* which one is stream i */
	struct stream *in[HASHERS];
	bool busy[HASHERS];
	uint64_t progress[SEVERAL];
	struct ingested found[SEVERAL];
	int results[SEVERAL];
};

/* One of each kind: with tags, with states, without a hash; bad ones between good ones. */
static struct ingest job_of(struct several *s, size_t k, size_t *ret_n)
{
	static const size_t sizes[SEVERAL] = {
		3 * BLOCK + 5, 0,     2 * BLOCK, BLOCK + 1, 100, 5 * BLOCK, 1,
		3 * BLOCK,     BLOCK, 7,	 777777,
	};
	struct ingest job = { .size = sizes[k], .hash = true };

	*ret_n = sizes[k];
	if (k == 0 || k == 5)
		job.tagger = s->tagger;
	if (k == 5 || k == 10)
		job.states = 100 * KIB;
	if (k == 7)
		job.hash = false;
	if (k == 3)
		job.size++;
	if (k == 8)
		job.size--;
	if (k == 9)
		job.cancel = &s->cancelled;
	return job;
}

static void count_several(void *ctx, uint64_t n)
{
	*(uint64_t *)ctx += n;
}

static bool next_of_several(void *ctx, size_t i, struct ingest *ret)
{
	struct several *s = ctx;
	size_t n, k = s->begun;

	assert_true(i < HASHERS && !s->busy[i]);
	if (k == SEVERAL)
		return false;
	*ret = job_of(s, k, &n);
	ret->in = mem_stream(s->data + k, n, 100001);
	ret->progress = count_several;
	ret->ctx = &s->progress[k];
	if (k == UNREADABLE) {
		struct source *from = container_of(ret->in, struct mem_stream, stream)->source;

		container_of(from, struct mem_source, source)->fail = -EIO;
	}
	s->busy[i] = true;
	s->in[i] = ret->in;
	s->of[i] = s->begun++;
	return true;
}

static void over_of_several(void *ctx, size_t i, int r, struct ingested *found)
{
	struct several *s = ctx;

	assert_true(s->busy[i] && (r == 0) == (found != NULL));
	s->busy[i] = false;
	stream_close(s->in[i]);
	s->results[s->of[i]] = r;
	if (found)
		s->found[s->of[i]] = *found;
	s->over++;
}

/* What each gives alone, it gives beside others, good or bad. */
static void test_several(void **state)
{
	struct several s = { .data = make_bytes(6 * BLOCK, 9) };

	(void)state;
	assert_int_equal(tagger_new(NULL, &s.tagger), 0);
	cancel_init(&s.cancelled, NULL);
	cancel_fire(&s.cancelled);
	ingest_several(&(struct ingest_queue){ &s, next_of_several, over_of_several });
	assert_int_equal(s.over, SEVERAL);
	for (size_t k = 0; k < SEVERAL; k++) {
		struct ingested alone = { 0 };
		size_t n;
		struct ingest job = job_of(&s, k, &n);
		int want = run(job, s.data + k, n, &alone);

		assert_int_equal(s.results[k], k == UNREADABLE ? -EIO : want);
		if (want < 0 || k == UNREADABLE)
			continue;
		assert_int_equal(s.found[k].size, n);
		assert_int_equal(s.progress[k], n);
		assert_memory_equal(s.found[k].sha256, alone.sha256, SHA256_SIZE);
		assert_int_equal(!s.found[k].tags, !job.tagger);
		if (job.tagger)
			assert_memory_equal(s.found[k].tags, alone.tags,
					    (n + TAG_BLOCK - 1) / TAG_BLOCK * TAG_SIZE);
		assert_int_equal(!s.found[k].states, !job.states);
		if (job.states)
			assert_memory_equal(s.found[k].states, alone.states,
					    ((n - 1) / job.states + 1) * SHA256_SIZE);
		free(s.found[k].tags);
		free(s.found[k].states);
		free(alone.tags);
		free(alone.states);
	}
	assert_int_equal(s.results[3], -EBADMSG);
	assert_int_equal(s.results[8], -EBADMSG);
	assert_int_equal(s.results[9], -ECANCELED);
	cancel_finish(&s.cancelled);
	tagger_free(s.tagger);
	free(s.data);
}

/* ---- bytes ---- */

#define HELD (5 * TAG_BLOCK + 1000)
#define BEFORE 777

struct held {
	struct tagger *tagger;
	char *data;
	struct bytes bytes;
	int fd; /* the same file, to change it */
};

/* Bytes at an odd offset of a file, as in a container. */
static int hold(void **state)
{
	struct held *h = must(calloc(1, sizeof(*h)));
	struct ingested in;

	h->data = make_bytes(BEFORE + HELD + 100, 5);
	h->fd = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(pwrite_full(h->fd, h->data, BEFORE + HELD + 100, 0), 0);
	assert_int_equal(tagger_new(NULL, &h->tagger), 0);
	assert_int_equal(run((struct ingest){ .size = HELD, .tagger = h->tagger, .hash = true },
			     h->data + BEFORE, HELD, &in),
			 0);
	h->bytes.kind = BYTES_ENTRY;
	h->bytes.off = BEFORE;
	h->bytes.tags = in.tags;
	assert_int_equal(source_from_fd(dup(h->fd), &h->bytes.source), 0);
	*state = h;
	return 0;
}

static int let_go(void **state)
{
	struct held *h = *state;

	bytes_finish(&h->bytes);
	bytes_finish(&h->bytes);
	tagger_free(h->tagger);
	close(h->fd);
	free(h->data);
	free(h);
	return 0;
}

static int read_at(struct held *h, char *out, size_t n, uint64_t off, bool nowait)
{
	return bytes_read(&h->bytes, h->tagger, HELD, out, n, off, nowait);
}

static void test_ranges(void **state)
{
	static const size_t edges[] = {
		0,
		1,
		TAG_BLOCK - 1,
		TAG_BLOCK,
		TAG_BLOCK + 1,
		2 * TAG_BLOCK,
		4 * TAG_BLOCK + 5,
		5 * TAG_BLOCK - 1,
		5 * TAG_BLOCK,
		5 * TAG_BLOCK + 1,
		HELD - 1,
		HELD,
	};
	struct held *h = *state;
	char *out = must(malloc(HELD + 1));

	for (size_t i = 0; i < ARRAY_SIZE(edges); i++)
		for (size_t j = i; j < ARRAY_SIZE(edges); j++) {
			size_t n = edges[j] - edges[i];

			memset(out, 0xee, n + 1);
			assert_int_equal(read_at(h, out, n, edges[i], false), 0);
			assert_memory_equal(out, h->data + BEFORE + edges[i], n);
			assert_int_equal((unsigned char)out[n], 0xee);
		}
	free(out);
}

/* A changed byte fails the reads of its block, and of no other. */
static void test_overwritten(void **state)
{
	struct held *h = *state;
	char *out = must(malloc(HELD));

	for (size_t block = 0; block < 6; block++) {
		size_t at = block * TAG_BLOCK + 321;
		char other = (char)(h->data[BEFORE + at] ^ 1);

		assert_int_equal(pwrite_full(h->fd, &other, 1, BEFORE + at), 0);
		assert_int_equal(read_at(h, out, HELD, 0, false), -EBADMSG);
		for (size_t i = 0; i < 6; i++) {
			size_t n = MIN(TAG_BLOCK, HELD - i * TAG_BLOCK);
			int want = i == block ? -EBADMSG : 0;

			assert_int_equal(read_at(h, out, n, i * TAG_BLOCK, false), want);
			assert_int_equal(read_at(h, out, 1, i * TAG_BLOCK + 7, false), want);
		}
		assert_int_equal(pwrite_full(h->fd, &h->data[BEFORE + at], 1, BEFORE + at), 0);
		assert_int_equal(read_at(h, out, HELD, 0, false), 0);
		assert_memory_equal(out, h->data + BEFORE, HELD);
	}
	/* what belongs to others may change */
	assert_int_equal(pwrite_full(h->fd, "x", 1, BEFORE - 1), 0);
	assert_int_equal(pwrite_full(h->fd, "x", 1, BEFORE + HELD), 0);
	assert_int_equal(read_at(h, out, HELD, 0, false), 0);
	free(out);
}

/* Blocks that change places are not what they were either. */
static void test_swapped(void **state)
{
	struct held *h = *state;
	char *out = must(malloc(HELD));

	assert_int_equal(pwrite_full(h->fd, h->data + BEFORE, TAG_BLOCK, BEFORE + TAG_BLOCK), 0);
	assert_int_equal(pwrite_full(h->fd, h->data + BEFORE + TAG_BLOCK, TAG_BLOCK, BEFORE), 0);
	assert_int_equal(read_at(h, out, 100, 0, false), -EBADMSG);
	assert_int_equal(read_at(h, out, TAG_BLOCK, TAG_BLOCK, false), -EBADMSG);
	assert_int_equal(read_at(h, out, TAG_BLOCK, 2 * TAG_BLOCK, false), 0);
	free(out);
}

static void test_cut_off(void **state)
{
	struct held *h = *state;
	char *out = must(malloc(HELD));

	assert_int_equal(ftruncate(h->fd, BEFORE + 3 * (off_t)TAG_BLOCK + 5), 0);
	assert_int_equal(read_at(h, out, 3 * TAG_BLOCK, 0, false), 0);
	assert_memory_equal(out, h->data + BEFORE, 3 * TAG_BLOCK);
	assert_int_equal(read_at(h, out, 1, 3 * TAG_BLOCK, false), -EBADMSG);
	assert_int_equal(read_at(h, out, HELD, 0, false), -EBADMSG);
	/* it only waits to find out */
	assert_int_equal(read_at(h, out, 1, 3 * TAG_BLOCK, true), -EAGAIN);
	/* zeros in place of what was there are no better */
	assert_int_equal(ftruncate(h->fd, BEFORE + HELD), 0);
	assert_int_equal(read_at(h, out, 1, 4 * TAG_BLOCK, false), -EBADMSG);
	free(out);
}

static void test_memory(void **state)
{
	struct bytes b = { .kind = BYTES_MEMORY, .memory = make_bytes(1000, 6) };
	char *want = make_bytes(1000, 6), out[1000];

	(void)state;
	assert_int_equal(bytes_read(&b, NULL, 1000, out, 1000, 0, true), 0);
	assert_memory_equal(out, want, 1000);
	assert_int_equal(bytes_read(&b, NULL, 1000, out, 3, 997, true), 0);
	assert_memory_equal(out, want + 997, 3);
	assert_int_equal(bytes_read(&b, NULL, 1000, out, 0, 1000, true), 0);
	bytes_finish(&b);
	assert_int_equal(b.kind, BYTES_NONE);
	assert_null(b.memory);
	free(want);
}

static void test_unchecked(void **state)
{
	struct held *h = *state;
	char out[100];

	free(h->bytes.tags);
	h->bytes.tags = NULL;
	assert_int_equal(bytes_read(&h->bytes, NULL, HELD, out, 100, 50, false), 0);
	assert_memory_equal(out, h->data + BEFORE + 50, 100);
	assert_int_equal(bytes_read(&h->bytes, NULL, HELD, out, 0, 0, false), 0);
	assert_int_equal(ftruncate(h->fd, BEFORE), 0);
	assert_int_equal(bytes_read(&h->bytes, NULL, HELD, out, 1, 0, false), -EBADMSG);
}

/* One thread has no other that could be free; with more, each other needs as many bytes. */
static void test_crowded(void **state)
{
	(void)state;
	assert_false(ingest_crowded(0, UINT64_MAX, 1));
	assert_true(ingest_crowded(100, 100, 2));
	assert_false(ingest_crowded(101, 100, 2));
	assert_true(ingest_crowded(100, 300, 4));
	assert_false(ingest_crowded(100, 299, 4));
	assert_false(ingest_crowded(1, 0, 2));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_wrong_sizes),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_no_hash),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_crowded),
		cmocka_unit_test(test_push),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_halves),
		cmocka_unit_test(test_several),
		cmocka_unit_test_setup_teardown(test_ranges, hold, let_go),
		cmocka_unit_test_setup_teardown(test_overwritten, hold, let_go),
		cmocka_unit_test_setup_teardown(test_swapped, hold, let_go),
		cmocka_unit_test_setup_teardown(test_cut_off, hold, let_go),
		cmocka_unit_test(test_memory),
		cmocka_unit_test_setup_teardown(test_unchecked, hold, let_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
