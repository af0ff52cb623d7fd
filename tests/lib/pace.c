/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of core/base/pace.c, in what tests run. What only has to come in order is short; what a test tells
 * from the slowness of a busy machine (a stall, the timeout, a window in which two things must happen) is not.
 */
#include "base/pace.h"

const struct pace pace = {
	.name_ms = 300000,
	.connect_ms = 10000,
	.stall_ms = 10000,
	.header_file_ms = 1000,
	.helper_ms = 60000,
	.login_ms = 70000,
	.s3_again_ms = 10000,
	.oci_renew_ms = 300000,
	.oci_again_ms = 10000,
	.timeout_ms = 60000,
	.pause_first_ms = 20,
	.pause_long_ms = 200,
	.pause_max_ms = 1000,
	.pause_short_ms = 50,
	.interval_first_us = 50000,
	.interval_max_us = 1000000,
	.interval_apart_us = 500000,
	.interval_min_us = 2000,
	.calm_ms = 10000,
	.mirror_ms = 5000,
	.mirror_down_ms = 2000,
	.soon_ms = 2000,
	.repeats_ms = 500,
	.grace_ms = 500,
	.idle_ms = 500,
	.hash_ms = 10000,
	.join_ms = 1000,
	.count_ms = 10000,
	.note_ms = 1000,
	.full_ms = 600000,
};
