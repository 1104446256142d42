// SPDX-License-Identifier: Apache-2.0
/* Floors: what must not begin anew when a chunk of structures has had another kind for a while.
 *
 * What: a handle names a queue by its incarnation, and positions go on for ever (I4). Both live in the slots themselves, from
 * one life of a slot to the next. Before slots of queues and levels become memory for bodies, the highest of each is kept in
 * the chunk's metadata; whoever opens the chunk for structures again begins there.
 *
 * Layout: `floors` of sb_chunk_meta_shm: of incarnations, of positions. 0: nothing was ever kept.
 *
 * Invariants:
 *  I67 a floor only rises, and is not below what any slot of the chunk had before the chunk became FREE.
 *
 * Ordering pairs: none of its own. The chunk's word, which becomes FREE (release) and CLAIMED (seq_cst), orders both ends.
 *
 * Death: a floor that was raised for nothing costs numbers. A chunk becomes FREE only after all were raised.
 *
 * Concurrency: raised by CAS; applied by the one who has claimed the chunk.
 */
#ifndef SB_FLOORS_H
#define SB_FLOORS_H

#include "sb_segment.h"

/* Raises the floors of a chunk of that kind, whose slots have so many units. */
void sb_floors_raise(sb_broker *b, uint32_t chunk, unsigned kind, unsigned units);
/* Its slots, all zero, begin above them. */
void sb_floors_apply(sb_broker *b, uint32_t chunk, unsigned kind, unsigned units);

#endif
