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
	int64_t name_ms;	/* the deadline for the lookup of a name, if its owner has none */
	int64_t connect_ms;	/* the deadline for connection and TLS together */
	int64_t stall_ms;	/* a transfer fails after it was too slow for this long */
	int64_t header_file_ms; /* the interval at which the header file is checked for changes */
	int64_t helper_ms;	/* the deadline for one run of a login program */
	int64_t login_ms;	/* the deadline for the first answer of a login's process */
	int64_t s3_again_ms;	/* the interval between two requests for S3 keys */
	int64_t oci_renew_ms;	/* credentials of a registry are renewed at this age, if in use */
	int64_t oci_again_ms;	/* the interval between two renewals after refused credentials */

	/* ---- fetch/ ---- */
	int64_t timeout_ms;	/* the default of the option timeout */
	int64_t pause_first_ms; /* the first pause before a retry; each next one is twice as long */
	int64_t pause_long_ms;	/* the longest pause for a server that has just begun to fail */
	int64_t pause_max_ms;	/* the longest pause for a server that has failed for long */
	int64_t pause_short_ms; /* a fetch waits for a pause up to this, and changes no URL */
	int64_t interval_first_us; /* the interval between requests after a first refusal */
	int64_t interval_max_us;   /* the longest interval between requests */
	int64_t interval_apart_us; /* refusals at longer intervals are counted apart */
	int64_t interval_min_us;   /* an interval that has shrunk below this is removed */
	int64_t calm_ms;	   /* an incident ends after this long without a refusal */
	int64_t mirror_ms;	   /* the deadline for the first byte from a mirror */
	int64_t mirror_down_ms;	   /* a mirror that cannot be reached is skipped for this long */
	int64_t soon_ms; /* the deadline to reach a server, for callers that do not wait for it */

	/* ---- content/ ---- */
	int64_t repeats_ms; /* a read that the kernel repeats within this time fails as before */
	int64_t grace_ms;   /* a wait exceeds the timeout by this: the fetch reports the reason */
	int64_t idle_ms;    /* a hash job runs while nobody has read for this long */
	int64_t hash_ms;    /* a hash job of this age runs beside reads, too */
	int64_t join_ms;    /* the deadline to open a file of chunks that another process holds */

	/* ---- cache/ ---- */
	int64_t count_ms; /* the used space is counted again after this long */
	int64_t note_ms;  /* the interval at which the length of a partial file is noted */
	int64_t full_ms;  /* a full cache is logged again after this long with room for all */
};

extern const struct pace pace;

#endif
