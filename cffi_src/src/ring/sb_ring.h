// SPDX-License-Identifier: Apache-2.0
/* Ring: an endless row of cells in a tree of pages.
 *
 * What: positions count up for ever. A leaf page covers 64 positions, an inner page 64 pages; pages are made where the
 * tail goes and freed where everything is finished, so one old cell pins its path and nothing else. Queues keep their
 * messages in a ring, consumer lists their nodes, the schedule its positions.
 *
 * Layout: `root` links the top page; a page links its children: EMPTY (not reached yet), PAGE (slot and generation),
 * DONE (everything below it is finished and its memory is gone). A leaf cell is a word and a side record. The leaves of a
 * queue that KEEPS are long: behind the cells stands, for each, the origin of its message.
 *
 * Invariants:
 *  I15 appending is one CAS FREE -> something at the first FREE cell; the tail passes filled cells only: no holes.
 *  I16 a link goes EMPTY -> PAGE -> DONE, each by CAS, and never back; a FREE word carries its page's full generation.
 *  I17 a page is retired only after each of its cells (children) was read TOMBSTONE or CLOSED (DONE); `done` bits only
 *      say when to try, so a lost or a stray bit does no harm.
 *
 * Ordering pairs:
 *  P2 the append CAS (seq_cst) publishes what the word names; readers load the word with acquire.
 *  P4 a page is initialised before the CAS that links it (release); a walker loads the link with acquire, and reads the
 *     page's generation again after what it read from the page.
 *
 * Death (after -> state, repaired by):
 *  page allocated -> ALLOC(dead), listed -> linked? PUBLISHED : freed.     linked, still ALLOC -> the same.
 *  tombstone, before `done` -> page stays -> the reaper of the holder sets the bit again and tries to retire.
 *  PAGE->DONE, before freeing -> page listed as HOLD_PAGE -> freed by generation.      new root, old not retired -> the same.
 *
 * Concurrency: everything by anybody at any time; `locate(create)` and `tombstone` need the caller's connection lock.
 */
#ifndef SB_RING_H
#define SB_RING_H

#include "sb_page.h"

/* A leaf somebody looked up; `first` is its first position. */
typedef struct {
  sb_leaf_shm *leaf;
  uint64_t first, gen;
  uint32_t slot;
} sb_leaf_ref;

#define SB_MAX_STRANGE 1000u /* a page is not used again that often under one look: the word is broken */
#define SB_NO_LEAF ((sb_leaf_ref){NULL, UINT64_MAX, 0, 0})

/* SB_OK; SB_EMPTY: nothing there yet; SB_DONE: finished and freed, up to ref->first. With `c` it creates the page (also
 * SB_GROW ...). */
sb_status sb_ring_locate(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, sb_leaf_ref *ref);
/* Appends; `word` gets the 27-bit generation when `open` is set, the 38-bit one when `bare`. *announce takes each
 * position before it is tried. *position: where to begin on the way in (0 = at the tail), where it went on the way out.
 * LAZILY lets the shared tail lag behind by up to 8. SB_CLOSED_CELL: a CLOSING or CLOSED cell is in the way (*position). */
enum { SB_APPEND_PLAIN = 0, SB_APPEND_OPEN = 1, SB_APPEND_OWNED = 2, SB_APPEND_BARE = 3, SB_APPEND_LAZILY = 8 };
sb_status sb_ring_append(sb_connection *c, const sb_ring *r, sb_leaf_ref *cache, uint64_t word, unsigned how,
                         sb_word *announce, uint64_t *position);
/* Ends a cell: its word becomes TOMBSTONE (unless it is already), its `done` bit is set, full pages are retired. */
void sb_ring_finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position);
/* Sets the `done` bit of a TOMBSTONE again (its holder may have died before it did) and retires the page if full. */
void sb_ring_redo(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position);
/* CAS of a list entry to TOMBSTONE, then finish. */
bool sb_ring_drop(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position, uint64_t word);
/* First position >= from whose leaf exists; false at the end. */
bool sb_ring_next_leaf(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position);
/* Is there such a cell before `end`? A look: beside traffic it may come or go. */
bool sb_ring_has(sb_broker *b, const sb_ring *r, uint64_t end, bool (*is)(uint64_t word));
uint64_t sb_ring_exact_tail(sb_broker *b, const sb_ring *r);
/* The same, where `cache` is the leaf of the tail most of the time; it is kept so. */
uint64_t sb_ring_exact_tail_near(sb_broker *b, const sb_ring *r, sb_leaf_ref *cache);
void sb_ring_advance(sb_word *hint, uint64_t from, uint64_t to);
/* Frees every page; the ring must be unreachable for others by then (cells may still be CASed: they fail). */
void sb_ring_destroy(sb_connection *c, const sb_ring *r);
/* Where the ring of an object is: resolves (object slot, ring id). */
bool sb_ring_open(sb_broker *b, uint32_t object, uint32_t id, sb_ring *r);
/* The origin of that cell, written only as its side record is; NULL of a leaf that is not long. */
sb_word *sb_ring_origin(sb_broker *b, const sb_leaf_ref *ref, uint64_t position);
/* The sequence of the message at that position: of the place where it was put, although it was moved here since. */
uint64_t sb_ring_sequence(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position);
bool sb_ring_valid(sb_broker *b, const sb_ring *r, char *why, size_t size);

static inline sb_cell_shm *sb_leaf_cell(const sb_leaf_ref *ref, uint64_t position) {
  return &ref->leaf->cells[position % SB_PAGE_CELLS];
}
static inline bool sb_leaf_covers(const sb_leaf_ref *ref, uint64_t position) {
  return ref->leaf != NULL && position - ref->first < SB_PAGE_CELLS;
}
/* Whether that leaf shows that the shared tail is exact. */
static inline bool sb_ring_tail_is_exact(const sb_ring *r, const sb_leaf_ref *ref) {
  uint64_t tail = SB_LOAD(r->tail, SB_SEQ_CST);
  return sb_leaf_covers(ref, tail) &&
         SB_LOAD(&sb_leaf_cell(ref, tail)->word, SB_SEQ_CST) == sb_cell_bare(SB_CELL_FREE, ref->gen);
}

#endif
