// SPDX-License-Identifier: Apache-2.0
/* Reader: reads a body in place without holding its message.
 *
 * What: a reader knows only the slot and the generation of a message: it browsed the queue, or another process passed
 * them on. It keeps the slot from being freed while it reads. Until it has the slot it must not write to the slot
 * itself, which may belong to another message by then; the CAS that takes the slot therefore writes the reader into the
 * header. A slot has at most one reader; a second reader copies the body (sb_reader_copy).
 *
 * Layout: PUBLISHED -> READ(reader) -> PUBLISHED, in the same generation. READ has room for 12 references: a slot with
 * a higher reference, or one that many queues share, is not read in place. The holding is a VIEW with the reference
 * SB_REF_READER.
 *
 * Invariants:
 *  I58 only bodies longer than SB_INLINE_BODY become READ, and their last reference is always dropped by a CAS. That
 *      CAS leaves a READ slot without references, which its reader frees.
 *  I59 the holdings of its reader list each READ slot, with its generation.
 *
 * Ordering pairs: P1 of sb_slab.h: the reader acquires a PUBLISHED header before it reads the body; P8 of
 *  sb_connection.h for the holding. A copy: the second look of sb_peek.h (I43).
 *
 * Death (after -> state, repaired by the reaper of the reader, which also calls sb_reader_end):
 *  holding written -> not READ, or by another reader -> nothing.     READ -> PUBLISHED, or freed if no reference is
 *  left. PUBLISHED or freed, holding still there -> not READ, by another reader, or another generation -> nothing.
 *
 * Concurrency: a connection begins and ends under its lock, beside any other operation. A connection reads a slot only
 *  once at a time, since READ does not say which of two holdings it belongs to.
 */
#ifndef SB_READER_H
#define SB_READER_H

#include "sb_holdings.h"

#define SB_REF_READER 63u
#define SB_READ_TARGETS 4u /* most queues of a body that is read in place: 12 references are not enough for more */

/* Keeps the slot from being freed until sb_reader_end, and lists it in a new holding, *token. SB_SETTLED: the slot has
 * another generation. SB_IN_USE: the caller must copy the body. */
sb_status sb_reader_begin(sb_connection *c, uint32_t slot, uint64_t gen, uint64_t *token);
/* Releases the slot if `id` is its reader; else does nothing. */
void sb_reader_end(sb_broker *b, uint32_t slot, uint64_t gen, unsigned id);
/* Copies the body of `length` bytes. SB_SETTLED: the slot has another generation, or the body another length. */
sb_status sb_reader_copy(sb_broker *b, uint32_t slot, uint64_t gen, char *to, uint64_t length);

#endif
