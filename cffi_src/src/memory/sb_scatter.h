// SPDX-License-Identifier: Apache-2.0
/* Scatter: finding room for a body where there is none in one piece.
 *
 * What: a few messages that stay keep the chunks of their class from becoming another class's. So who finds no slot of its
 * class, and no chunk to open, takes a free slot of a larger class; and where there is none, free slots of any class, as
 * parts (sb_parts.h). A body that takes a run of chunks, and finds no run, takes single chunks.
 *
 * Layout, Invariants, Ordering pairs, Death: those of sb_slab.h and sb_parts.h. The head is listed in the holding of the
 *  caller, and each part, while it is taken, in one of its own.
 *
 * Concurrency: under the connection's lock. Two who gather at once may both find too little; each gives back what it took.
 *  Who waits for memory is not told of that, and looks again every 50 ms (sb_waiter.c).
 */
#ifndef SB_SCATTER_H
#define SB_SCATTER_H

#include "sb_holdings.h"
#include "sb_parts.h"

/* A free slot of the class or of a larger one, in the holding `token`, that hints lead to; and one, whatever hints say. */
bool sb_scatter_by_hints(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen);
bool sb_scatter_larger(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen);
/* A head with room for `front` bytes, and parts for `bytes`. SB_NO_MEMORY: there is not so much, and nothing was taken. */
sb_status sb_scatter_alloc(sb_connection *c, uint64_t front, uint64_t bytes, uint64_t token, uint32_t *slot,
                           uint64_t *gen);
/* The longest body that would find room now, if nobody else took any; a guess beside traffic. */
uint64_t sb_scatter_room(sb_broker *b);

#endif
