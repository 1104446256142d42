// SPDX-License-Identifier: Apache-2.0
/* Drained: turns a chunk of structures into a FREE chunk.
 *
 * What: two steps lead from a chunk of structures whose slots are all free to a FREE chunk; each can be undone. Between
 * the steps no allocation takes a slot of the chunk, and sb_slab_object finds no structure in it. sb_grace.h decides
 * when the second step is safe.
 *
 * Layout: the *drainer* is the connection that drains. Each slot that it took is ALLOC(drainer) with SB_SLOT_DRAINED.
 * The chunk's word is DRAINING(drainer) with its class. SB_CHUNK_TAKEN_OVER marks a chunk whose owner is not the owner
 * of its slots any more, or clears up after that one.
 *
 * Invariants:
 *  I68 a chunk of structures is DRAINING only after its drainer took each of its slots. No other connection frees one
 *      of these slots before it took the chunk over, which happens at most once.
 *  I69 the chunk becomes CLAIMED by a CAS that expects the drainer, after its floors were raised (I67); from then on it
 *      belongs to the drainer alone.
 *
 * Ordering pairs: P21 of sb_grace.h.
 *
 * Death (after -> state, repaired by the reaper of the drainer; the drainer lists the chunk before the first step):
 *  slots taken -> CLASS, slots DRAINED(dead) -> freed.           DRAINING(dead) -> taken over, its slots freed, CLASS.
 *  taken over by a connection that died -> its slots freed, CLASS.    CLAIMED(dead) -> scrubbed, FREE.
 *
 * Concurrency: the drainer begins, ends and gives up; any connection takes over. Each step is a CAS with one winner.
 */
#ifndef SB_DRAINED_H
#define SB_DRAINED_H

#include "sb_chunk.h"

/* True if all slots of a chunk of structures are free. *used: a checksum that changes when one of them is used. */
bool sb_drained_may_begin(sb_broker *b, uint32_t chunk, uint64_t *used);
/* Takes all slots of the chunk: a call that enters the core after this finds no structure there. */
bool sb_drained_begin(sb_connection *c, uint64_t token, uint32_t chunk);
/* Makes the chunk FREE, when no call can know a structure in it any more. False: another connection took it over. */
bool sb_drained_end(sb_connection *c, uint32_t chunk);
/* Returns the chunk to its class, unless another connection took it over. */
void sb_drained_give_up(sb_connection *c, uint32_t chunk);
/* Returns a chunk that another connection drains to its class, for a caller that finds no memory. False: there is
 * none. */
bool sb_drained_take_over(sb_connection *c, unsigned cls, uint64_t token);
/* Undoes the draining of a dead connection. */
void sb_drained_recover(sb_broker *b, unsigned owner, uint32_t chunk);

#endif
