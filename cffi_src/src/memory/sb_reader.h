// SPDX-License-Identifier: Apache-2.0
/* Reader: a body that is read in place by somebody who does not hold its message.
 *
 * What: who knows the slot of a message and its generation, and no more (he browsed, or was told by one who did), keeps the
 * slot from being freed while he reads. He never touches the slot before he has it, for it may be another message's by
 * then; so whose it is stands in the header, written by the CAS that takes it. A slot has one reader at a time; another one
 * copies the body, which is what sb_reader_copy does.
 *
 * Layout: PUBLISHED -> READ(me) -> PUBLISHED, of the same generation. READ has room for 12 references: a slot with higher
 * ones is not read in place, nor one that many queues share. Holding VIEW with the reference SB_REF_READER.
 *
 * Invariants:
 *  I58 only bodies longer than SB_INLINE_BODY are READ, so only their last reference is dropped by a CAS; it leaves READ
 *      without references, which its reader frees.
 *  I59 a slot that is READ has a holding of its reader, which names its generation.
 *
 * Ordering pairs: P1 of sb_slab.h: the body is read after an acquire of the header that says PUBLISHED; P8 of
 *  sb_connection.h for the holding. A copy: the second look of sb_peek.h (I43).
 *
 * Death (after -> state, repaired by the reaper of the reader, who calls sb_reader_end too):
 *  holding written -> not READ, or another's -> nothing.          READ -> PUBLISHED, or freed if no reference is left.
 *  PUBLISHED, or freed, holding still there -> not READ, another's, or another generation -> nothing.
 *
 * Concurrency: begin and end by a connection under its lock, beside everybody. The same connection does not read a slot
 *  twice at a time: it would not know which of its two holdings READ is for.
 */
#ifndef SB_READER_H
#define SB_READER_H

#include "sb_holdings.h"

#define SB_REF_READER 63u
#define SB_READ_TARGETS 4u /* of a body that is read in place: for more of them, 12 references are not enough */

/* Keeps the slot. SB_SETTLED: it is not of that generation any more. SB_IN_USE: this body is to be copied. */
sb_status sb_reader_begin(sb_connection *c, uint32_t slot, uint64_t gen, uint64_t *token);
/* What `id` has taken; anything else is left alone. */
void sb_reader_end(sb_broker *b, uint32_t slot, uint64_t gen, unsigned id);
/* Copies so many bytes from the start of the body. SB_SETTLED: as above, or the body has another length. */
sb_status sb_reader_copy(sb_broker *b, uint32_t slot, uint64_t gen, char *to, uint64_t length);

#endif
