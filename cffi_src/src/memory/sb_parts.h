// SPDX-License-Identifier: Apache-2.0
/* Parts: a body that lies in several slots.
 *
 * What: where no slot and no run of chunks is free that holds a body in one piece, it is stored in parts: slots of any
 * class, and of differing ones. The slot that cells and views name is the *head*: it has the message header, the block and the
 * viewers' words, and its references. Exchange, key, properties and body follow each other in the parts.
 *
 * Layout: the last bytes of the head name its first part (sb_parts_shm); each part begins with the head's slot and generation,
 * and the next part (sb_part_shm). Headers: the head has the reference SB_PARTS_REF from its ALLOC on; a part is
 * ALLOC, without an owner, with SB_SLOT_PART. A head is never READ (I58): its body is copied.
 *
 * Invariants:
 *  I62 a part belongs to the head that it names while the head has that generation; afterwards anybody may free it.
 *  I63 a head is freed before its parts: a reader who finds its generation unchanged has copied nothing else.
 *  I64 a chunk that has a part has `parts` set; only who drains it takes that back.
 *
 * Ordering pairs:
 *  P18 a part's names are written before its header says that it is one (release); who reads them has read that header
 *      before (acquire), and reads it again afterwards.
 *
 * Death (after -> state, repaired by the reaper of the owner):
 *  a slot is taken for a part -> ALLOC(dead), listed -> freed.    it names the head -> PART, not in the row -> freed by a sweep.
 *  some parts are in the row -> the head is ALLOC(dead), listed -> freed, and its parts.
 *  the head is freed, some of its parts are not -> no head of that generation -> freed by the sweep that ends each reaping.
 *
 * Concurrency: take and write by the owner of the head; copy by who holds a reference, or by anybody with a second look
 *  at the head; free by who freed the head; sweep by anybody, beside all of these: a part is freed by a CAS of the header
 *  that was seen, so once. Who frees a row and finds it broken sweeps: a sweep beside him took what led to the rest.
 */
#ifndef SB_PARTS_H
#define SB_PARTS_H

#include "sb_chunk.h"

/* What a slot of that class holds as a part. */
static inline uint64_t sb_parts_room_in(unsigned cls) {
  return (uint64_t)sb_class_units(cls) * SB_UNIT - sizeof(sb_part_shm);
}
/* Does that header say that the body lies in parts? Of a published body in one piece, SB_PARTS_REF is a reference like the others. */
bool sb_parts_is_head(sb_broker *b, uint32_t slot, uint64_t header);
/* The head, of which nothing is in parts yet; the caller owns it. */
void sb_parts_begin(sb_connection *c, uint32_t head, uint64_t gen);
/* A slot that the caller owns becomes the first part of his head. */
void sb_parts_add(sb_broker *b, uint32_t head, uint64_t head_gen, uint32_t slot, uint64_t gen);
/* So many bytes, from that one on. False: there are not so many, or they cannot be believed. */
bool sb_parts_write(sb_broker *b, uint32_t head, uint64_t from, const void *bytes, uint64_t length);
bool sb_parts_copy(sb_broker *b, uint32_t head, uint64_t from, char *to, uint64_t length);
/* How many bytes they hold. */
uint64_t sb_parts_room(sb_broker *b, uint32_t head);

/* Where the row of a head begins. */
uint32_t sb_parts_first(sb_broker *b, uint32_t head);
/* What follows a part of the row, 0 = nothing. False: it is none of that head, in that generation. */
bool sb_parts_next(sb_broker *b, uint32_t head, uint64_t gen, uint32_t slot, uint32_t *following);
/* The row of a head that was freed. */
void sb_parts_free(sb_broker *b, uint32_t head, uint64_t gen, uint32_t first);
/* Is it a part whose head is gone? */
bool sb_parts_is_orphan(sb_broker *b, uint32_t slot);
/* Frees all of them. */
void sb_parts_sweep(sb_broker *b);

#endif
