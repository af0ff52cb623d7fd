/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of REGISTRY/NAME. A name is refused if it could lead to another path of a URL. Whether
 * it follows the rules for names of repositories is left to the registry, since these differ.
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
 * Are these bytes a NAME: components of letters, digits and . _ ~ - with slashes between, none of
 * them empty, `.` or `..`? Such a name needs no encoding in a URL.
 */
bool reference_is_name(const char *text, size_t n);

/* The host of HOST[:PORT], without brackets, malloc'ed, or NULL; and the port, or 0. */
char *reference_host(const char *text, size_t n, unsigned *ret_port);

/* Is the host of HOST[:PORT] this machine: localhost, or a loopback address? */
bool reference_is_local(const char *text, size_t n);

#endif
