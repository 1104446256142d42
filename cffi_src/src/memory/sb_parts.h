// SPDX-License-Identifier: Apache-2.0
/* Parts: bodies that are stored in several slots.
 *
 * What: if no free slot and no run of chunks holds a body in one piece, the body is stored in *parts*: slots for
 * messages, of any length. The *head* is the slot that cells and views name. It has the message header, the block of
 * references (sb_reference.h), the viewers' words (sb_view.h), and the references in the slot's header. Exchange name,
 * routing key, properties and body lie in the parts, one after the other.
 *
 * Layout: the last bytes of the head name its first part (sb_parts_shm). Each part begins with the head's slot and
 * generation and the next part (sb_part_shm). The header of a head has the reference SB_PARTS_REF, also while the head
 * is still ALLOC. The header of a part is ALLOC without an owner, with SB_SLOT_PART. A head is never READ
 * (sb_reader.h): readers copy its body.
 *
 * Invariants:
 *  I62 a part belongs to the head that it names while the head has the generation that the part names. Afterwards any
 *      process may free the part.
 *  I63 a head is freed before its parts. So a reader that copied the parts, and then finds the generation of the head
 *      unchanged, has copied the body of that head.
 *  I64 while a chunk has a part, `parts` of the chunk's metadata is set. Only the connection that drains the chunk
 *      clears `parts`.
 *
 * Ordering pairs:
 *  P18 the producer writes sb_part_shm into a slot, then stores the header that marks the slot as a part (release). A
 *      reader loads that header (acquire), reads sb_part_shm, and loads the header again.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a slot was taken for a part -> ALLOC(dead), listed in the holdings -> the reaper of the owner frees the slot.
 *  the slot became a part, which names the head -> a part that the head does not link -> a sweep frees the part, after
 *   the reaper freed the head.
 *  some parts were linked -> the head is ALLOC(dead), listed in the holdings -> the reaper frees the head, then its
 *   parts.
 *  the head was freed, some of its parts were not -> parts that name an earlier generation of the head -> the sweep
 *   that ends each reaping frees these parts.
 *
 * Concurrency: the owner of the head takes and writes parts. A process that holds a reference of the head copies its
 *  body; any other process does so, too, and then checks that the head kept its generation. The process that freed
 *  the head frees its parts. Any process may sweep at the same time as all of these: each part is freed once, by a CAS
 *  that expects the part's header. A process that frees parts and finds their chain broken sweeps as well, since
 *  another sweep may have freed the part that links the rest.
 */
#ifndef SB_PARTS_H
#define SB_PARTS_H

#include "sb_chunk.h"

/* The number of bytes that a part in a slot of the class holds. */
static inline uint64_t sb_parts_room_in(unsigned cls) {
  return (uint64_t)sb_class_units(cls) * SB_UNIT - sizeof(sb_part_shm);
}
/* True if `header`, read from `slot`, is that of a head. The bit SB_PARTS_REF alone does not tell that: a published
 * body in one piece uses it for an ordinary reference. */
bool sb_parts_is_head(sb_broker *b, uint32_t slot, uint64_t header);
/* Turns a slot of the caller into a head without parts. */
void sb_parts_begin(sb_connection *c, uint32_t head, uint64_t gen);
/* Turns a slot of the caller into a part of `head`, and puts it in front of the parts that `head` already has. */
void sb_parts_add(sb_broker *b, uint32_t head, uint64_t head_gen, uint32_t slot, uint64_t gen);
/* sb_parts_write writes `length` bytes into the parts of a head, sb_parts_copy copies them out. `from`: offset of the
 * first byte in the parts, taken one after the other. False: the parts have fewer bytes, or are inconsistent. */
bool sb_parts_write(sb_broker *b, uint32_t head, uint64_t from, const void *bytes, uint64_t length);
bool sb_parts_copy(sb_broker *b, uint32_t head, uint64_t from, char *to, uint64_t length);
/* The number of bytes that the parts of a head hold. */
uint64_t sb_parts_room(sb_broker *b, uint32_t head);

/* The first part of a head, 0 = none. */
uint32_t sb_parts_first(sb_broker *b, uint32_t head);
/* *following: the part after `slot`, 0 = none. False: `slot` is no part of `head` in the generation `gen`. */
bool sb_parts_next(sb_broker *b, uint32_t head, uint64_t gen, uint32_t slot, uint32_t *following);
/* Frees the parts of a head that was freed. `gen`, `first`: the generation and the first part of the head before it was
 * freed. */
void sb_parts_free(sb_broker *b, uint32_t head, uint64_t gen, uint32_t first);
/* True if the slot is a part whose head is gone. */
bool sb_parts_is_orphan(sb_broker *b, uint32_t slot);
/* Frees all parts whose head is gone. */
void sb_parts_sweep(sb_broker *b);

#endif
