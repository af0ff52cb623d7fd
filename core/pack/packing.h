/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A carton that is being made: from the source to a file that is complete, verified and in its
 * place.
 *
 * Threads: one.
 */
#ifndef CARTON_PACK_PACKING_H
#define CARTON_PACK_PACKING_H

#include "pack/others.h"
#include "pack/plan.h"
#include "writer/newfile.h"

struct packing {
	const struct carton_options *open;
	const struct carton_pack_options *options;
	struct others others; /* whose sources are set, of an import */
	struct carton *c;     /* the source */
	struct pack_plan plan;
	struct newfile out;
	struct tagger *tagger;	     /* what is written is compared with its tags */
	struct chunks_writer chunks; /* of the index, if there is to be one */
	int old_signature;	     /* old_signature_beside() */
	uint64_t total; /* bytes to read, each of them twice: the new carton is verified */
};

/* As carton_pack(). What the source was stays there until packing_finish(), also on failure. */
int packing_run(struct packing *p, const char *source, const char *out, char ret_model_hash[65]);
void packing_finish(struct packing *p);

#endif
