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
	int64_t connect_ms;	/* limits name lookup, connection and TLS handshake together */
	int64_t stall_ms;	/* a transfer that stays too slow for this long fails */
	int64_t header_file_ms; /* between two looks at the header file */
	int64_t helper_ms;	/* limits one run of a login helper */
	int64_t login_ms;	/* limits the wait of a login for the helper's first answer */
	int64_t s3_again_ms;	/* between two requests for keys of S3 */
	int64_t oci_renew_ms;	/* the use of an older answer asks the helper again */
	int64_t oci_again_ms;	/* between two questions to a helper after a refusal */

	/* ---- fetch/ ---- */
	int64_t timeout_ms; /* default of the timeout= option: a fetch without a byte fails */
	/* a retry pause starts at pause_first_ms and doubles */
	int64_t pause_first_ms;
	int64_t pause_long_ms;	   /* limits the retry pause of a server that has just failed */
	int64_t pause_max_ms;	   /* limits the retry pause of any server */
	int64_t pause_short_ms;	   /* a shorter pause does not lead to another URL */
	int64_t interval_first_us; /* between two requests after the first refusal */
	int64_t interval_max_us;   /* limits the interval between two requests */
	int64_t interval_apart_us; /* from this interval on, requests are far apart */
	int64_t interval_min_us;   /* a shorter interval becomes none */
	int64_t calm_ms;	   /* an incident is over after this long without a refusal */
	int64_t mirror_ms;	   /* limits the wait for the first byte of a mirror */
	int64_t mirror_down_ms;	   /* a mirror that was not reached is not asked for this long */
	int64_t soon_ms; /* a caller that does not wait for unreachable servers fails after this */

	/* ---- content/ ---- */
	int64_t repeats_ms; /* the kernel's repeat of a failed request gets the same answer */
	int64_t grace_ms;   /* a waiter lets a fetch time out first, which knows the reason */
	int64_t idle_ms;    /* a hash job runs after this long without a read, */
	int64_t hash_ms;    /* or at the latest after this, also beside reads */
	int64_t join_ms;    /* limits the wait for another process that opens a file of chunks */

	/* ---- cache/ ---- */
	int64_t count_ms; /* a count of the used space is valid for this long */
	int64_t note_ms;  /* between two notes of the length of a partial entry */
	int64_t full_ms;  /* the cache was full: the incident is over after this long */
};

extern const struct pace pace;

#endif
