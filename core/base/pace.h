/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses, deadlines and windows: the times that somebody waits for. Programs have those of pace.c.
 * What tests run is linked with those of tests/lib/pace.c in their place: so nothing at run time
 * shortens a deadline or a rate.
 */
#ifndef CARTON_BASE_PACE_H
#define CARTON_BASE_PACE_H

#include <stdint.h>

struct pace {
	/* ---- http/ ---- */
	int64_t connect_ms;	/* name, connection and TLS together */
	int64_t stall_ms;	/* a transfer that is too slow for so long fails */
	int64_t header_file_ms; /* how often the header file is looked at */
	int64_t helper_ms;	/* a program that the user names for a login may run so long, */
	int64_t login_ms;	/* and the login waits so long for its first answer */
	int64_t s3_again_ms;	/* between two requests for keys of S3 */
	int64_t oci_renew_ms;	/* an older answer of a helper is asked for again when it is used */
	int64_t oci_again_ms;	/* after a refusal, a helper is not asked more often */

	/* ---- fetch/ ---- */
	int64_t timeout_ms; /* without a byte, if the user gives no timeout */
	/* before a server or a URL is asked again: twice as long each time, */
	int64_t pause_first_ms;
	int64_t pause_long_ms; /* no longer than this, or than a part of how long it is bad, */
	int64_t pause_max_ms;
	int64_t pause_short_ms;	   /* one that is not worth another URL */
	int64_t interval_first_us; /* between requests, after the first refusal, */
	int64_t interval_max_us;
	int64_t interval_apart_us; /* from here on requests are far apart */
	int64_t interval_min_us;   /* what is shorter is none */
	int64_t calm_ms;	   /* without a refusal: the incident is over */
	int64_t mirror_ms;	   /* that a mirror has until its first byte, */
	int64_t mirror_down_ms;	   /* and is not asked if it was not reached */
	/* who does not wait for a server that is not reached is told after this */
	int64_t soon_ms;

	/* ---- content/ ---- */
	/* the kernel repeats what failed within this: the second one gets the same answer */
	int64_t repeats_ms;
	int64_t grace_ms; /* a fetch that times out by itself says better why, so it gets to */
	int64_t idle_ms;  /* a hash job begins, and goes on, once nobody has read for so long, */
	/* but no later: who reads all the time gets a whole that was compared, too */
	int64_t hash_ms;
	int64_t join_ms; /* that another process may keep a file of chunks from being opened */

	/* ---- cache/ ---- */
	int64_t count_ms; /* the space is counted anew after so long */
	int64_t note_ms;  /* a partial's length is noted so often */
	int64_t full_ms;  /* without a copy that had no room: the incident is over */
};

extern const struct pace pace;

#endif
