// SPDX-License-Identifier: Apache-2.0
/* Drained: turns a chunk of structures into a FREE chunk.
 *
 * What: two steps turn a chunk of structures whose slots are all free into a FREE chunk: sb_drained_begin and
 * sb_drained_end. Between the steps no allocation takes a slot of the chunk, and sb_slab_object finds no structure in
 * it. sb_grace.h decides when the second step is safe. Until then a connection can *take over* the chunk: it returns
 * the chunk to its class, and the second step fails.
 *
 * Layout: the *drainer* is the connection that drains. Each slot that it took is ALLOC(drainer) with SB_SLOT_DRAINED.
 * The chunk's word is DRAINING(drainer) with the chunk's class. A connection that takes over the chunk stores its own
 * id there, with SB_CHUNK_TAKEN_OVER. The slots stay ALLOC(drainer) until that connection frees them.
 *
 * Invariants:
 *  I68 the drainer makes the chunk DRAINING only after it has taken every slot of the chunk. While the chunk is
 *      DRAINING, these slots are freed only by a connection that has taken over the chunk. Only one connection can take
 *      over the chunk, since the CAS that does so expects a word without SB_CHUNK_TAKEN_OVER.
 *  I69 the drainer first raises the floors of the chunk (the numbers from which later queues in it continue, I67 of
 *      sb_floors.h). Then it makes the chunk CLAIMED, by a CAS that fails if a connection has taken over
 *      the chunk. A CLAIMED chunk belongs to the drainer alone.
 *
 * Ordering pairs: P21 of sb_grace.h.
 *
 * Death (killed after -> what is left -> what the reaper of the dead connection does):
 *  the drainer took some or all slots -> the chunk is CLASS, these slots are ALLOC(dead) with SB_SLOT_DRAINED -> the
 *   reaper frees these slots.
 *  the drainer made the chunk DRAINING -> DRAINING(dead) -> the reaper takes over the chunk, frees its slots, and
 *   returns it to its class.
 *  another connection took over the chunk -> DRAINING(dead) with SB_CHUNK_TAKEN_OVER -> the reaper of that connection
 *   frees the slots, and returns the chunk to its class.
 *  the drainer made the chunk CLAIMED -> CLAIMED(dead) -> the reaper resets the slot headers and hints of the chunk,
 *   and makes it FREE.
 * The drainer lists the chunk in its holdings before its first step; so does a connection before it takes over a chunk.
 *
 * Concurrency: only the drainer calls sb_drained_begin, sb_drained_end and sb_drained_give_up. Any connection calls
 *  sb_drained_take_over. If two connections want to change the chunk's word, a CAS lets one of them do so.
 */
#ifndef SB_DRAINED_H
#define SB_DRAINED_H

#include "sb_chunk.h"

/* True if the chunk can be drained: it is one of structures, but not of nodes and not chunk 0, and all its slots are
 * free. *used: a checksum that changes when one of them is used. */
bool sb_drained_may_begin(sb_broker *b, uint32_t chunk, uint64_t *used);
/* The first step. The entry `token` of the holdings lists the chunk. True: the chunk is DRAINING, and a call that
 * enters the core from now on finds no structure there. False: the chunk stays as it was, for example because a slot is
 * used. */
bool sb_drained_begin(sb_connection *c, uint64_t token, uint32_t chunk);
/* The second step: makes the chunk FREE. The caller knows that no call can refer to a structure in it any more. False:
 * the chunk was taken over. */
bool sb_drained_end(sb_connection *c, uint32_t chunk);
/* Undoes the first step: returns the chunk to its class, unless it was taken over. */
void sb_drained_give_up(sb_connection *c, uint32_t chunk);
/* For a caller that finds no memory: takes over a chunk of the class that is being drained, and returns it to the
 * class. False: there is no such chunk. */
bool sb_drained_take_over(sb_connection *c, unsigned cls, uint64_t token);
/* Undoes what the dead connection `owner` did to drain or take over the chunk. sb_chunk_recover then makes a CLAIMED
 * chunk FREE. */
void sb_drained_recover(sb_broker *b, unsigned owner, uint32_t chunk);

#endif
