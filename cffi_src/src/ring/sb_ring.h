// SPDX-License-Identifier: Apache-2.0
/* Ring: an unbounded sequence of cells in a tree of pages.
 *
 * What: positions count up and never wrap. A leaf page covers 64 positions, an inner page 64 pages. Pages are created
 * at the tail and freed when everything in them is finished, so one old cell keeps only the pages on its path. Queues
 * keep their messages in a ring, consumer lists their nodes, and the schedule its positions.
 *
 * Layout: `root` links the top page. A page links its children: EMPTY (not created yet), PAGE (slot and generation),
 * DONE (everything below is finished and freed). A cell of a leaf is a word and a side record. In a queue with
 * SB_QUEUE_KEEPS the leaves of the ring of messages are long: after the cells they have one word more for each cell,
 * the *origin*. If the message was moved here from another queue, its origin is the sequence number that it had there.
 * A message that was put into this queue has none (SB_NO_ORIGIN).
 *
 * Invariants:
 *  I15 an append is one CAS of the first FREE cell, and the tail passes only filled cells. So a ring has no holes. A
 *      leaf whose cells are all filled may also be linked as a whole, at a tail before which all cells are filled
 *      (sb_move_page.h).
 *  I16 a link in a page changes from EMPTY to PAGE, and from PAGE to DONE, each by a CAS, and never back. The link
 *      `root` changes by a CAS from EMPTY to PAGE, and later to each new top page; it is never DONE. Links are stored
 *      without a CAS only in a page that is not linked yet, by sb_ring_destroy, and in `root` before the queue or level
 *      is used. The word of a FREE cell has the full generation of its page, so that no append succeeds in a page that
 *      was reused.
 *  I17 a page is retired only after each of its cells was read as TOMBSTONE, or each of its children as DONE. The
 *      `done` bits, and the `finished` marks of a leaf, only tell when to try to retire the page: a lost or a stray one
 *      does no harm.
 *
 * Ordering pairs:
 *  P2 the append CAS (seq_cst) publishes the object that the word names; readers load the word with acquire.
 *  P4 a page is initialised before the CAS that links it (release); a walker loads the link with acquire, reads words
 *     of the page, then reads the page's generation again.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a page was allocated, before it was linked -> ALLOC(dead), listed in the holdings -> the reaper frees the page.
 *  the page was linked -> a linked page that is ALLOC(dead) -> the reaper makes the page PUBLISHED.
 *  a cell became TOMBSTONE, before it was marked finished -> the page stays -> the reaper of the cell's holder marks
 *   the cell, and tries to retire the page. An entry of a list and a CLOSING cell (sb_closing.h) have no holder: the
 *   next sb_page_sweep retires the page.
 *  a link became DONE, before its page was freed -> the page is listed as SB_HOLD_PAGE -> the reaper frees the page if
 *   its generation is unchanged.
 *  a new root was linked, before the finished old root was retired -> the old root stays -> the next sb_page_sweep
 *   retires it.
 *
 * Concurrency: any process calls any function at any time. But sb_ring_finish needs a cell that the caller owns, and
 *  sb_ring_destroy a ring that no other process reaches. A function that takes a connection needs the lock of that
 *  connection; sb_ring_locate without a connection (NULL) needs no lock.
 */
#ifndef SB_RING_H
#define SB_RING_H

#include "sb_page.h"

/* A leaf that a walk found; `first` is its first position. */
typedef struct {
  sb_leaf_shm *leaf;
  uint64_t first, gen;
  uint32_t slot;
} sb_leaf_ref;

#define SB_MAX_RETRIES \
  1000u /* retries after which a word counts as damaged: a page is not reused so often during one look */
#define SB_NO_LEAF ((sb_leaf_ref){NULL, UINT64_MAX, 0, 0})

/* Finds the leaf of a position. `c`: the connection that creates missing pages, or NULL; with a connection the call may
 * return SB_GROW or SB_NO_MEMORY. SB_EMPTY: `c` is NULL, and the leaf is not created yet. SB_DONE: the leaf is finished
 * and freed; ref->first is the first position after the freed pages. SB_PAGED: the same, but the messages are in the
 * store (sb_paged.h). */
sb_status sb_ring_locate(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, sb_leaf_ref *ref);
/* The forms of a cell's word. An append adds bits of the page's generation to the word: none to WHOLE, 27 to OPEN, 15
 * to OWNED, 38 to BARE (sb_words.h). */
typedef enum { SB_WORD_WHOLE, SB_WORD_OPEN, SB_WORD_OWNED, SB_WORD_BARE } sb_word_form;
/* After an append, the shared tail is advanced if it lags behind the end of the ring by this many cells or more. */
#define SB_TAIL_EXACT 1u
#define SB_TAIL_LAZY 8u
#define SB_TAIL_STAYS UINT32_MAX
typedef struct {
  sb_word_form form;
  uint32_t lag;   /* SB_TAIL_... */
  uint64_t bytes; /* of the body of a large message, which lies apart from others (sb_spacing.h); 0: it is not large */
} sb_append;
#define SB_APPEND_ENTRY ((sb_append){SB_WORD_WHOLE, SB_TAIL_EXACT, 0}) /* an entry of a list */
/* The tail stays at the CLOSING cell: an append begins at the tail, and so meets the cell until it is decided. */
#define SB_APPEND_CLOSING ((sb_append){SB_WORD_BARE, SB_TAIL_STAYS, 0})
/* Appends `word`, and adds the page's generation to it. Before each attempt the function stores the position in
 * *announce, unless `announce` is NULL. *position: on entry 0, or a position before which each cell is filled; the
 * function first tries this position or the shared tail, whichever is later. On return *position is the position of the
 * cell. *cache: on entry a leaf that may be the right one, or SB_NO_LEAF; on return the leaf of the cell.
 * SB_CLOSED_CELL: the cell at *position is CLOSING or CLOSED, so nothing was appended. */
sb_status sb_ring_append(sb_connection *c, const sb_ring *r, sb_leaf_ref *cache, uint64_t word, sb_append how,
                         sb_word *announce, uint64_t *position);
/* Finishes a cell: makes its word TOMBSTONE, marks it in `finished` of the leaf, and retires finished pages. */
void sb_ring_finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position);
/* Finishes `count` cells of one leaf, from `position` on. */
void sb_ring_finish_row(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position, unsigned count);
/* Repeats the end of sb_ring_finish, for a TOMBSTONE whose holder may have been killed before it marked the cell
 * finished. */
void sb_ring_redo(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position);
/* Makes a cell TOMBSTONE by a CAS that expects `word`, then finishes it: an entry of a list, a CLOSING cell, or the
 * cell of a message that the caller, or a dead connection that it reaps, owns. False: the CAS failed. */
bool sb_ring_drop(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position, uint64_t word);
/* Finds the first position >= `from` whose leaf is not finished, and that leaf. SB_EMPTY: there is none. SB_PAGED: the leaf
 * has left the memory; *position lies in it. Any other status: the ring is damaged. */
sb_status sb_ring_find_leaf(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position);
/* The same, but passes over leaves that have left the memory. False: there is none. */
bool sb_ring_next_leaf(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position);
/* True if a cell before `end` satisfies `is`, or has left the memory. If other processes change cells meanwhile, the answer may be outdated. */
bool sb_ring_has(sb_broker *b, const sb_ring *r, uint64_t end, bool (*is)(uint64_t word));
/* Advances the shared tail to the first position that is not filled, and returns that position. Its cell is FREE,
 * CLOSING or CLOSED, or does not exist yet. */
uint64_t sb_ring_exact_tail(sb_broker *b, const sb_ring *r);
/* As sb_ring_exact_tail, but first tries the leaf *cache (SB_NO_LEAF: none), and keeps the leaf of the tail there. */
uint64_t sb_ring_exact_tail_near(sb_broker *b, const sb_ring *r, sb_leaf_ref *cache);
void sb_ring_advance(sb_word *hint, uint64_t from, uint64_t to);
/* Frees every page. The caller knows that no other process can find the ring. The CAS of an append that
 * found one of its cells earlier fails. */
void sb_ring_destroy(sb_connection *c, const sb_ring *r);
/* Finds ring `id` of the queue or consumer level in slot `object` (0 for SB_RING_MEMORY). False: there is no such
 * ring. */
bool sb_ring_open(sb_broker *b, uint32_t object, uint32_t id, sb_ring *r);
/* The origin of a cell. Only the owner of the cell writes it, like the side record. NULL: the leaf is not long. */
sb_word *sb_ring_origin(sb_broker *b, const sb_leaf_ref *ref, uint64_t position);
/* The sequence number of the message at a position: its origin, if any, else the position minus the ring's base, in the
 * lane of the ring (sb_lanes_sequence). */
uint64_t sb_ring_sequence(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position);

static inline sb_cell_shm *sb_leaf_cell(const sb_leaf_ref *ref, uint64_t position) {
  return &ref->leaf->cells[position % SB_PAGE_CELLS];
}
static inline bool sb_leaf_covers(const sb_leaf_ref *ref, uint64_t position) {
  return ref->leaf != NULL && position - ref->first < SB_PAGE_CELLS;
}
/* True if the leaf was not freed or reused. A walker of a list calls this after it has read the word of an entry, which
 * has no generation of its own (P4). */
static inline bool sb_leaf_is_current(sb_broker *b, const sb_leaf_ref *ref) {
  return sb_slot_gen(SB_LOAD(sb_slot_header(b, ref->slot), SB_ACQUIRE)) == ref->gen;
}
/* True if the shared tail is certainly exact: leaf `ref` covers it, and its cell is FREE. */
static inline bool sb_ring_tail_is_exact(const sb_ring *r, const sb_leaf_ref *ref) {
  uint64_t tail = SB_LOAD(r->tail, SB_SEQ_CST);
  return sb_leaf_covers(ref, tail) &&
         SB_LOAD(&sb_leaf_cell(ref, tail)->word, SB_SEQ_CST) == sb_cell_bare(SB_CELL_FREE, ref->gen);
}

#endif
