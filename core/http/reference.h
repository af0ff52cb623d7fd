/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of REGISTRY/NAME. Names are checked for what could harm us, and not for what a registry
 * takes: that says so itself, and some take more than others.
 *
 * Threads: any.
 */
#ifndef CARTON_HTTP_REFERENCE_H
#define CARTON_HTTP_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>

/* Are these bytes HOST[:PORT]: a name, an IPv4 address, or an IPv6 address in brackets? */
bool reference_is_host(const char *text, size_t n);

/*
 * Are they a name? It means the same in a path of a URL: components of letters, digits and . _ ~ -
 * with slashes between, none of them empty, `.` or `..`.
 */
bool reference_is_name(const char *text, size_t n);

/* The host of HOST[:PORT], without brackets, malloc'ed, or NULL; and the port, or 0. */
char *reference_host(const char *text, size_t n, unsigned *ret_port);

/* Is that host this machine, by its name or address? */
bool reference_is_local(const char *text, size_t n);

#endif
