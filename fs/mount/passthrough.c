/* SPDX-License-Identifier: Apache-2.0 */
#include "mount/passthrough.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256

/* A file that is open. */
struct opened {
	const struct carton_node *file;
	unsigned opens;
	int id; /* the backing id of the kernel; 0: not passed through */
	struct opened *next;
};

struct passthrough {
	struct fuse_session *session;
	struct mounter *mounter;
	/* guards what follows, and the answers of the mounter once it is mounted */
	pthread_mutex_t lock;
	bool on;
	uint64_t n_passed;
	struct opened *buckets[BUCKETS];
};

int passthrough_new(struct fuse_session *session, struct mounter *mounter, struct passthrough **ret)
{
	struct passthrough *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->session = session;
	p->mounter = mounter;
	pthread_mutex_init(&p->lock, NULL);
	*ret = p;
	return 0;
}

void passthrough_free(struct passthrough *p)
{
	struct opened *o;

	if (!p)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		while ((o = p->buckets[i])) {
			p->buckets[i] = o->next;
			free(o);
		}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static void turn_off(struct passthrough *p, const char *why)
{
	p->on = false;
	carton_log(CARTON_LOG_INFO, NULL, "passthrough is off: %s", why);
}

void passthrough_negotiate(struct passthrough *p, struct fuse_conn_info *conn)
{
	if (!p)
		return;
#ifdef FUSE_CAP_PASSTHROUGH
	if (conn->capable & FUSE_CAP_PASSTHROUGH) {
		conn->want |= FUSE_CAP_PASSTHROUGH;
		p->on = true;
	} else {
		turn_off(p, "the kernel is older than Linux 6.9");
	}
#else
	(void)conn;
	turn_off(p, "built with a libfuse older than 3.17");
#endif
}

/* The slot of the file, or where it would be inserted. Lock held. */
static struct opened **find(struct passthrough *p, const struct carton_node *file)
{
	struct opened **at = &p->buckets[((uintptr_t)file >> 4) % BUCKETS];

	while (*at && (*at)->file != file)
		at = &(*at)->next;
	return at;
}

/* Lock held. */
static int backing_of(struct passthrough *p, const struct carton_node *file)
{
	int fd = carton_copy_fd(file), id;

	if (fd < 0)
		return 0;
	id = mounter_backing_open(p->mounter, fuse_session_fd(p->session), fd);
	if (id > 0)
		return id;
	turn_off(p, id == -EPERM ? "it needs CAP_SYS_ADMIN" : strerror(-id));
	return 0;
}

bool passthrough_open(struct passthrough *p, struct carton_node *file, struct fuse_file_info *fi)
{
	struct opened **at, *o;
	int id = 0;

	if (!p)
		return false;
	pthread_mutex_lock(&p->lock);
	at = find(p, file);
	o = *at;
	if (!o && (o = calloc(1, sizeof(*o)))) {
		o->file = file;
		o->id = p->on ? backing_of(p, file) : 0;
		p->n_passed += o->id > 0;
		*at = o;
	}
	if (o) {
		o->opens++;
		id = o->id;
	} else {
		/* no memory for the count of its opens */
		turn_off(p, strerror(ENOMEM));
	}
	pthread_mutex_unlock(&p->lock);
#ifdef FUSE_CAP_PASSTHROUGH
	if (id > 0) {
		fi->backing_id = id;
		fi->keep_cache = 0;
	}
#else
	(void)fi;
#endif
	return id > 0;
}

void passthrough_close(struct passthrough *p, const struct carton_node *file)
{
	struct opened **at, *o;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	at = find(p, file);
	o = *at;
	if (o && --o->opens == 0) {
		if (o->id > 0) {
			mounter_backing_close(p->mounter, fuse_session_fd(p->session), o->id);
			p->n_passed--;
		}
		*at = o->next;
		free(o);
	}
	pthread_mutex_unlock(&p->lock);
}

bool passthrough_has(struct passthrough *p, const struct carton_node *file)
{
	struct opened *o;
	bool has;

	pthread_mutex_lock(&p->lock);
	o = *find(p, file);
	has = o && o->id > 0;
	pthread_mutex_unlock(&p->lock);
	return has;
}

bool passthrough_count(struct passthrough *p, uint64_t *ret_files)
{
	bool on;

	pthread_mutex_lock(&p->lock);
	on = p->on;
	*ret_files = p->n_passed;
	pthread_mutex_unlock(&p->lock);
	return on;
}
