// SPDX-License-Identifier: Apache-2.0
/* Reader: reads a body in place without holding its message.
 *
 * What: a reader knows only the slot and the generation of a message: it browsed the queue, or another process passed
 * them on. The reader keeps the slot from being freed while it reads. Until the reader has the slot, the slot may
 * belong to another message, so the reader must not write into it; the CAS that takes the slot therefore writes the
 * reader into the slot's header. A slot has at most one reader; a second reader copies the body (sb_reader_copy).
 *
 * Layout: PUBLISHED -> READ(reader) -> PUBLISHED, in the same generation. READ has room for 12 references: a slot with
 * a higher reference, or one that many queues share, is not read in place. The holding is a VIEW with the reference
 * SB_REF_READER.
 *
 * Invariants:
 *  I58 only a slot whose body is longer than SB_INLINE_BODY becomes READ, and the last reference of such a slot is
 *      always dropped by a CAS. If the slot is READ, that CAS does not free it: the reader frees it later.
 *  I59 each READ slot is listed, with its generation, in the holdings of its reader.
 *
 * Ordering pairs: P1 of sb_slab.h: the reader acquires a PUBLISHED header before it reads the body. P8 of
 *  sb_connection.h: the reader stores the holding before the CAS. sb_reader_copy looks at the header
 *  a second time after it copied (I43 of sb_peek.h).
 *
 * Death (killed after -> what is left -> what the reaper of the reader does, by sb_reader_end):
 *  the holding was written -> the slot is not READ, or READ by another reader -> the reaper leaves the slot alone.
 *  the slot became READ -> READ(dead) -> the reaper makes the slot PUBLISHED, or frees it if no reference is left.
 *  the slot became PUBLISHED or was freed, the holding is still there -> the slot is not READ, or READ by another
 *   reader, or has another generation -> the reaper leaves the slot alone.
 *
 * Concurrency: a connection calls sb_reader_begin and sb_reader_end under its own lock. Other connections may use the
 *  message at the same time in any way. A connection has at most one reading of a slot at a time, since READ does not
 *  say which of two holdings it belongs to.
 */
#ifndef SB_READER_H
#define SB_READER_H

#include "sb_holdings.h"

#define SB_REF_READER 63u
/* A body that more queues than this share is not read in place: READ has room for only 12 references. */
#define SB_READ_TARGETS 4u

/* Keeps the slot from being freed until sb_reader_end, and lists it in a new holding, *token. SB_SETTLED: the slot has
 * another generation. SB_IN_USE: the body cannot be read in place now, so the caller must copy it. Any other error is
 * that of sb_holding_take. */
sb_status sb_reader_begin(sb_connection *c, uint32_t slot, uint64_t gen, uint64_t *token);
/* Releases the slot if `id` is its reader; else does nothing. */
void sb_reader_end(sb_broker *b, uint32_t slot, uint64_t gen, unsigned id);
/* Copies the body of `length` bytes. SB_SETTLED: the slot has another generation, or the body another length. */
sb_status sb_reader_copy(sb_broker *b, uint32_t slot, uint64_t gen, char *to, uint64_t length);

#endif
