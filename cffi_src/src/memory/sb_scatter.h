// SPDX-License-Identifier: Apache-2.0
/* Scatter: finds memory for a body if no slot of its class and no chunk is free.
 *
 * What: a few long-lived messages keep whole chunks in their class. A producer that finds no slot of its class, and no
 * chunk to open, therefore takes a free slot of a larger class. If there is none, it takes free slots of any class, as
 * parts (sb_parts.h). A body that needs a run of chunks, and finds none, takes single chunks.
 *
 * Layout, Invariants, Ordering pairs, Death: those of sb_slab.h and sb_parts.h. The caller's holding lists the head,
 *  the slot that names the first part; while a part is taken, a second holding lists the part.
 *
 * Concurrency: under the connection's lock. Two connections that collect parts at the same time may both find too
 *  little; each returns the slots that it took. Producers that wait for memory are not notified of these slots; they
 *  look again every 50 ms (sb_waiter.c).
 */
#ifndef SB_SCATTER_H
#define SB_SCATTER_H

#include "sb_holdings.h"
#include "sb_parts.h"

/* Both functions take a free slot of the class or of a larger one, and list it in the holding `token`.
 * sb_scatter_by_hints looks only where hints are set. sb_scatter_larger looks there first, then in all headers.
 * False: no slot was found. */
bool sb_scatter_by_hints(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen);
bool sb_scatter_larger(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen);
/* Allocates a head with room for `prefix` bytes, and parts with room for `bytes`. *slot and *gen: those of the head,
 * which the holding `token` lists. SB_NO_MEMORY: too little is free, and nothing was taken. */
sb_status sb_scatter_alloc(sb_connection *c, uint64_t prefix, uint64_t bytes, uint64_t token, uint32_t *slot,
                           uint64_t *gen);
/* The length of the longest body for which a plain put finds memory now, including segments that can still be added,
 * without the reserve (sb_reserve.h). While other calls allocate or free, the result is an estimate. */
uint64_t sb_scatter_room(sb_broker *b);

#endif
