/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the signature of a carton that is opened, and has it checked (sign/check.h). Where it comes
 * from is trusted for nothing: a signature= of the user, else a file of the source's name and .sig,
 * else misc/model.sig or model/model.sig of what is opened.
 *
 * Threads: the one that opens the carton.
 */
#ifndef CARTON_OPEN_SIGNATURE_H
#define CARTON_OPEN_SIGNATURE_H

#include "open/kind.h"

/*
 * Reads the files that the user has named, and one beside the source, before the process is
 * confined: parses keys only. 0, also if nothing is to be checked; or -errno, logged.
 */
int signature_begin(struct carton_source *s);

/* There are threads: begins to check a file that signature_begin() has read. */
void signature_start(struct carton_source *s);

/* A URL that may be asked for it, or NULL. */
const char *signature_url(const struct carton_source *s);

/*
 * The lists are open: checks them. 0, and lines of MANIFEST that are not signed are gone; or
 * -EKEYREJECTED and the like, logged.
 */
int signature_check(struct carton_source *s);
void signature_finish(struct carton_source *s);

#endif
