/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of carton.toml with a syntax of their own, as the reference loader parses them. Each
 * returns NULL if the text is well-formed, else a constant sentence.
 */
#ifndef CARTON_FORMAT_VALUES_H
#define CARTON_FORMAT_VALUES_H

/* required_framework_version: a version requirement of the semver crate, such as ">=1.2, <2". */
const char *version_req_fault(const char *text);

/*
 * An item of required_platforms: a target triple, ARCH[-VENDOR][-OS][-ENVIRONMENT][-FORMAT], each
 * part one of those that the target-lexicon crate knows; a vendor may also be another lower-case
 * name.
 */
const char *platform_fault(const char *text);

#endif
