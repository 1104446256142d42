// SPDX-License-Identifier: Apache-2.0
/* Floors: incarnations and positions that must not repeat, kept while their chunk serves another purpose.
 *
 * What: a handle names a queue by its incarnation, and positions never repeat (I4 of sb_layout.h). Both numbers live in
 * the slots, and continue when a slot is reused. Before slots of queues and consumer levels become memory for bodies,
 * the highest incarnation and the highest position in the chunk are stored in the chunk's metadata, as its *floors*.
 * The connection that opens the chunk for structures again starts from there.
 *
 * Layout: `floors` of sb_chunk_meta_shm has two words: the floor of the incarnations, and the floor of the positions.
 * Each is 0 until it is stored.
 *
 * Invariants:
 *  I67 a floor only rises. When a chunk of queues or levels becomes FREE, no slot of the chunk has a number that is
 *      higher than the floor.
 *
 * Ordering pairs: none of their own. Floors are raised before the chunk's word becomes FREE (release), and applied
 *  after it becomes CLAIMED (seq_cst).
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the floors were raised, before the chunk became FREE -> floors that may be higher than necessary -> nothing to
 *   repair: later queues and levels skip some numbers.
 * No number is lost: a chunk becomes FREE only after its floors were raised.
 *
 * Concurrency: the connection that drains a chunk raises the chunk's floors, by CAS. The connection that claimed a
 *  chunk applies them.
 */
#ifndef SB_FLOORS_H
#define SB_FLOORS_H

#include "sb_segment.h"

/* Raises the floors of a chunk to the highest incarnation and position in its slots. The slots are of `kind` and have
 * `units` units each. */
void sb_floors_raise(sb_broker *b, uint32_t chunk, unsigned kind, unsigned units);
/* Sets the numbers in all slots of a chunk to the chunk's floors. The caller has filled the slots with zeros. */
void sb_floors_apply(sb_broker *b, uint32_t chunk, unsigned kind, unsigned units);

#endif
