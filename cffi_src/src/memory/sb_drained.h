// SPDX-License-Identifier: Apache-2.0
/* Drained: a chunk of structures on its way to another kind.
 *
 * What: the steps from a chunk of structures whose slots are all free to one that is FREE, and back. Between the two no
 * allocation takes a slot of it, and sb_slab_object finds nothing in it. When the second step may be taken says sb_grace.h.
 *
 * Layout: a slot that was taken for this is ALLOC(drainer) with SB_SLOT_DRAINED. The chunk's word is DRAINING(drainer) with its
 * class, and SB_CHUNK_TAKEN_OVER when the one who has it is not the one whose slots these are, or clears up after that one.
 *
 * Invariants:
 *  I68 a chunk of structures is DRAINING only after each of its slots was taken, and nobody else frees one of them before the
 *      chunk was taken over, which can happen once.
 *  I69 it becomes CLAIMED by a CAS that expects its drainer, after the floors were raised (I67); from there on it is only his.
 *
 * Ordering pairs: P21 of sb_grace.h.
 *
 * Death (after -> state, repaired by the reaper of the drainer; the chunk is listed before all of it):
 *  slots taken -> CLASS, slots DRAINED(dead) -> freed.    DRAINING(dead) -> taken over, its slots freed, CLASS.
 *  taken over by one who died -> its slots freed, CLASS.  CLAIMED(dead) -> scrubbed, FREE.
 *
 * Concurrency: begin, end and give up by the drainer; take over by anybody. Each step is a CAS that has one winner.
 */
#ifndef SB_DRAINED_H
#define SB_DRAINED_H

#include "sb_chunk.h"

/* Whether all slots of a chunk of structures are free; *used: a sum that moves on when one of them was used. */
bool sb_drained_may_begin(sb_broker *b, uint32_t chunk, uint64_t *used);
/* Takes all of its slots: no call that enters from here on finds a structure there. */
bool sb_drained_begin(sb_connection *c, uint64_t token, uint32_t chunk);
/* No call knows anything of it any more: it becomes FREE. False: it was taken over. */
bool sb_drained_end(sb_connection *c, uint32_t chunk);
/* Back to its class, unless somebody else has it. */
void sb_drained_give_up(sb_connection *c, uint32_t chunk);
/* Gives a drained chunk back to the class, for one who finds no memory; false: there is none. */
bool sb_drained_take_over(sb_connection *c, unsigned cls, uint64_t token);
/* What a dead connection was doing with that chunk is undone. */
void sb_drained_recover(sb_broker *b, unsigned owner, uint32_t chunk);

#endif
