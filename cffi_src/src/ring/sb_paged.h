// SPDX-License-Identifier: Apache-2.0
/* Paged: leaves of stored queues that leave the memory, and come back.
 *
 * What: a leaf whose messages are all in the store, and in nobody's hands, may leave the memory: its slots and the leaf
 * itself are freed, and the link of its parent says that its messages are in the store. The storekeeper lets leaves
 * leave, one at a time. Any connection that needs a message of such a leaf lets it come back, as a new leaf for the same
 * positions, with the same sequence numbers.
 *
 * Layout: `paging` of a leaf changes THERE -> LEAVING -> LEFT -> EMPTYING, or LEAVING -> STAYS. A leaf that comes back is
 * COMING until it has arrived; this state has the generation of the leaf, so that nobody takes another leaf in its place
 * for it. `departure` numbers the departures of a broker. The link of the parent changes PAGE -> PAGED
 * -> PAGE; see sb_words.h.
 *
 * Invariants:
 *  I126 a leaf leaves only if each cell is AVAILABLE, or TOMBSTONE and marked finished, none has a `requeued` or a `changed`
 *      bit, and no intent of a ledger names one of them. The storekeeper looks at all this after it froze the cells, after
 *      a commit of the store that has all changes which it collected. So the store has exactly what the leaf has: a
 *      connection that ends or returns a message sets the `changed` bit before the cell is finished or AVAILABLE (I119 of
 *      sb_changed.h). And no cursor has passed a message of the leaf: a message that returned behind a cursor has its
 *      `requeued` bit (I18 of sb_requeued.h), or a search has cleared the bit and deals with it (I128).
 *  I127 a search that meets a FROZEN cell does not pass it. It makes the leaf STAYS, if the leaf has not LEFT, and the cells
 *      AVAILABLE again. A leaf that STAYS never leaves: otherwise a process that was stopped before it made a cell
 *      AVAILABLE could do that in the next attempt.
 *  I128 whoever sets the `requeued` bit of a cell that it does not own, and finds that the leaf has left, marks the link:
 *      PAGED with SB_LINK_MARKED. A leaf that comes back over a marked link has all `requeued` bits. A search that clears
 *      the bit of a child reads the link again, and marks the child anew if the link has changed.
 *  I129 a connection that lets a leaf come back reads the link, then the store, and links the leaf by a CAS from this very
 *      link. The number of the departure in the link excludes that messages come back which ended meanwhile.
 *
 * Ordering pairs:
 *  P45 the storekeeper makes the leaf LEAVING, freezes, then reads the bits; others set a bit, then look at `paging`
 *     (sb_paged_stay). All are seq_cst: either the storekeeper reads the bit, or the others find the leaf LEAVING or LEFT.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the storekeeper made the leaf LEAVING, cells FROZEN or not -> whoever meets a FROZEN cell ends that; the reaper makes the
 *   leaf STAYS.
 *  LEFT, before the link is PAGED -> whoever meets a FROZEN cell changes the link; the reaper does it as well.
 *  the link is PAGED, before all slots and the leaf are freed -> the holding LEAVING -> the reaper frees them. Before the
 *   first one is freed, the side records say the generation of each slot (EMPTYING), so it is freed once.
 *  a leaf is COMING, before it is linked -> ALLOC(dead), listed in the holdings -> the reaper frees its messages and it.
 *  the leaf was linked -> a linked leaf that is COMING and ALLOC(dead) -> the reaper makes it PUBLISHED and THERE, marks
 *   its cells, and asks the housekeeper to look for timers.
 *
 * Concurrency: the storekeeper lets leaves leave; any process does the rest at any time.
 */
#ifndef SB_PAGED_H
#define SB_PAGED_H

#include "sb_ring.h"

enum {
  SB_PAGING_THERE = 0,
  SB_PAGING_LEAVING = 1,
  SB_PAGING_LEFT = 2,
  SB_PAGING_EMPTYING = 3,
  SB_PAGING_STAYS = 4,
  SB_PAGING_COMING = 5 /* 3 state | 38 generation of the leaf */
};
static inline uint64_t sb_paging_coming(uint64_t gen) { return (uint64_t)SB_PAGING_COMING | SB_FIELD(gen, 3); }

/* ---- searches ---- */

/* A search met a FROZEN cell in the leaf. True: the leaf stays, so the caller looks at the cell again. False: the leaf has
 * left, so the caller finds its positions again. */
bool sb_paged_stay(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref);
/* The word of a cell of the leaf, after FROZEN was ended. FROZEN: the leaf has left. */
static inline uint64_t sb_paged_word(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(ref, position)->word, SB_SEQ_CST);
  if (sb_cell_state(word) == SB_CELL_FROZEN && sb_cell_of(word, ref->gen) && sb_paged_stay(b, r, ref))
    word = SB_LOAD(&sb_leaf_cell(ref, position)->word, SB_SEQ_CST);
  return word;
}
/* True if a leaf at `position` has left the memory; *link: the link that says so. */
bool sb_paged_is_at(sb_broker *b, const sb_ring *r, uint64_t position, uint64_t *link);
/* Marks the link, if the leaf of the position is not in the memory (I128). False: it is. */
bool sb_paged_mark(sb_broker *b, const sb_ring *r, uint64_t position);
/* Notes that a call of this process needs the messages at `position`, and returns SB_GROW, which the call then returns. */
sb_status sb_paged_want(sb_connection *c, const sb_ring *r, uint64_t position);

/* ---- the storekeeper ---- */

/* True if the leaf may leave, as far as its words say. Changes nothing. */
bool sb_paged_may_leave(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref);
/* Begins the departure: LEAVING, and all cells with messages FROZEN. False: the leaf stays. After true the caller looks for
 * intents, and then calls sb_paged_leave or sb_paged_stay. */
bool sb_paged_freeze(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref);
/* Ends the departure, and frees the messages and the leaf. False: the leaf stays. */
bool sb_paged_leave(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref);

/* ---- coming back ---- */

/* Marks a fresh leaf as COMING, before its first cell is filled. */
void sb_paged_coming(const sb_page_fresh *f);
/* Links the leaf. False: another connection was faster, or the messages changed in the store; the leaf and its messages
 * are freed. After true the caller adds the timers of the messages, marks them if the link was marked (whoever marked it
 * may be stopped before it sets the bits), then calls sb_paged_arrived. */
bool sb_paged_arrive(sb_connection *c, sb_page_fresh *f);
void sb_paged_arrived(sb_connection *c, const sb_page_fresh *f);
/* Frees the messages of a leaf that does not come back, and the leaf. */
void sb_paged_give_up(sb_connection *c, const sb_page_fresh *f);

/* Ends the messages of a leaf that has left the memory. Only for a queue that is closed: nothing counts them. */
void sb_paged_end(sb_connection *c, const sb_ring *r, uint64_t position);

/* ---- reapers ---- */

/* A connection was killed while it let the leaf leave. */
void sb_paged_recover_leaving(sb_connection *by, const sb_ring *r, uint32_t slot, uint64_t gen);
/* A leaf that is COMING is not linked: frees its messages. */
void sb_paged_recover_coming(sb_broker *b, uint32_t slot);

#endif
