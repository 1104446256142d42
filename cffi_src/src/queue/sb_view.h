// SPDX-License-Identifier: Apache-2.0
/* View: a body that is read in place keeps its slot.
 *
 * What: a view is a further reference to a slot, listed in the holdings of its connection. It is taken while the message
 * is held; what becomes of the message afterwards (settled, returned, its queue deleted, its connection closed) is no
 * concern of the view. Only bodies longer than SB_INLINE_BODY are read in place; shorter ones are copied.
 *
 * Layout: holding VIEW: slot and generation | reference << 0, generation << 8, place in the block << 46 (sb_reference.h). A body that may be viewed has, just before
 * it, one 16-bit word for each reference: the connection that took it as a view.
 *
 * Invariants:
 *  I38 only the holder of a cell adds references to its slot, one that is clear; of a message of one queue never the first: the
 *      intent of its put reads from that being gone that the put happened. Commits and moves are judged by cells, and after
 *      an ack nobody has the cell. No two holders add the same (I49).
 *  I39 the viewer's word is written before the reference is added (0 by a cell that takes it). A set reference whose word names a connection is that
 *      connection's view; it is the proof a reaper needs, since a dropped reference may be another one's view by now.
 *
 * The holding of a reader, who holds no cell (sb_reader.h), is a VIEW too: its reference is SB_REF_READER.
 *
 * Ordering pairs: P8 of sb_connection.h for the holding; the word is written before the CAS that adds the reference
 *  (release), and read after an acquire of the header.
 *
 * Death (after -> state, repaired by the reaper of the connection, before it returns any cell):
 *  holding written -> the reference is clear, or another's -> nothing.     word written -> the same.
 *  reference added -> dropped.      reference dropped, holding still there -> clear, another's, or another generation -> nothing.
 *
 * Concurrency: take by the holder of the cell, end by the owner of the view, both under their connection's lock.
 */
#ifndef SB_VIEW_H
#define SB_VIEW_H

#include "sb_reference.h"
#include "sb_settle.h"

/* A view of a message that this connection holds. SB_LIMIT: all references are in use. */
sb_status sb_view_take(sb_connection *c, const sb_taken *t, uint64_t *token);
/* Drops it; anything that is not a view of this connection is left alone. */
void sb_view_end(sb_connection *c, uint64_t token);
/* The slot that a view of this connection keeps; 0: it is none. */
uint32_t sb_view_slot(sb_connection *c, uint64_t token);
/* The reaper's part: drops the view a holding of connection `id` names. */
void sb_view_recover(sb_broker *b, unsigned id, uint64_t what, uint64_t where);
/* The reference that a holding VIEW names, and its viewer's word; NULL when there is none. */
sb_reference sb_view_of(uint64_t what, uint64_t where);
_Atomic uint16_t *sb_view_word(sb_broker *b, const sb_reference *r);
/* The viewers' words of a slot; NULL when its body is never viewed, or its header cannot be believed. */
_Atomic uint16_t *sb_view_words(sb_broker *b, uint32_t slot);
/* That reference is about to become a cell's. */
void sb_view_not(sb_broker *b, uint32_t slot, unsigned ref);

#endif
