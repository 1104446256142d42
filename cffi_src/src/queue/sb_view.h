// SPDX-License-Identifier: Apache-2.0
/* View: keeps a slot from being freed while its body is read in place.
 *
 * What: a view is an additional reference to a slot, listed in the holdings of its connection. A connection takes it
 * while it holds the message. The view stays valid whatever happens afterwards: the message is settled or returns to
 * its queue, the queue is deleted, the connection is closed. Only bodies longer than SB_INLINE_BODY are read in place;
 * shorter bodies are copied.
 *
 * Layout: a holding VIEW has two words. `what`: slot and generation. `where`: reference << 0, generation << 8, and for
 * a reference in a block the index of its queue in the block << 46 (sb_reference.h). In front of a body that may be
 * viewed there is a 16-bit word for each reference: the id of the connection that has the reference as a view.
 *
 * Invariants:
 *  I38 only the holder of a cell adds references to the slot of its message, and only references that are clear. If the
 *      message went to one queue, the holder never adds reference 0: from a clear reference 0 the reaper of a dead
 *      producer concludes that the put took effect (intent ENQUEUE). Other intents need no such rule: a reaper judges
 *      commits and moves by their cells; after an ack no living connection owns the cell, so none adds its reference.
 *      Holders of different cells never add the same reference (I49 of sb_reference.h).
 *  I39 the word of a reference is written before the reference is added: the viewer's id, or 0 if a cell gets the
 *      reference. A set reference whose word names a connection is that connection's view. This is the proof that a
 *      reaper needs, since a reference that the dead connection dropped may be the view of another connection by then.
 *
 * The holding of a reader without a cell (sb_reader.h) is a VIEW as well, with the reference SB_REF_READER.
 *
 * Ordering pairs: P8 of sb_connection.h for the holding. The word is written before the operation that adds the
 *  reference: a CAS of the header, or an OR of a word of the block (both release). A reaper reads the word after an
 *  acquire of the header, or of that word of the block.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the holding was written -> the reference is clear, or belongs to another connection -> the reaper leaves it alone.
 *  the word of the reference was written -> the reference is clear -> the reaper leaves it alone.
 *  the reference was added -> a reference whose word names the dead connection -> the reaper drops the reference.
 *  the reference was dropped, the holding is still there -> the reference is clear, or belongs to another connection or
 *   generation -> the reaper leaves it alone.
 *
 * Concurrency: the holder of the cell takes a view, the owner of the view ends it, each under its connection's lock.
 */
#ifndef SB_VIEW_H
#define SB_VIEW_H

#include "sb_reference.h"
#include "sb_settle.h"

/* Takes a view of message *t, which the connection holds. *token: the holding that lists the view. SB_LIMIT: no
 * reference for a view is left. SB_CORRUPT: the body is short, so it is never viewed, or its header is inconsistent.
 * Any other error is that of sb_holding_take. */
sb_status sb_view_take(sb_connection *c, const sb_taken *t, uint64_t *token);
/* Drops a view of the connection; does nothing if `token` names none. */
void sb_view_drop(sb_connection *c, uint64_t token);
/* The slot that a view of the connection keeps; 0: `token` names no view. */
uint32_t sb_view_slot(sb_connection *c, uint64_t token);
/* For a reaper: drops the view that a holding of connection `id` names, if the view still belongs to that connection.
 * `what`, `where`: the words of the holding. */
void sb_view_recover(sb_broker *b, unsigned id, uint64_t what, uint64_t where);
/* The reference that the words of a holding VIEW name. */
sb_reference sb_view_of(uint64_t what, uint64_t where);
/* The viewer's word of a reference; NULL: the reference has none. */
_Atomic uint16_t *sb_view_word(sb_broker *b, const sb_reference *r);
/* The viewers' words of a slot; NULL: its body is never viewed, or its header is inconsistent. */
_Atomic uint16_t *sb_view_words(sb_broker *b, uint32_t slot);
/* Clears the viewer's word of reference `ref` to `slot`, since the caller is about to give this reference to a cell. A
 * reaper then does not take the reference for a view (I39). */
void sb_view_not(sb_broker *b, uint32_t slot, unsigned ref);

#endif
