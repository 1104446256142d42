// SPDX-License-Identifier: Apache-2.0
/* Pages: the tree of pages that a ring consists of.
 *
 * What: an append creates the pages that it needs, and a walk from the root finds a page. A page is *retired* (unlinked
 * and freed) when everything below it is finished. A leaf covers 64 positions, an inner page 64 pages. The tree grows
 * at the root. The first root covers the base of the ring, and is as low as the first position allows: a ring that has
 * used few positions since its base has one leaf, however high the base is.
 *
 * Layout, Invariants, Ordering pairs, Death: see I16, I17 and P4 of sb_ring.h.
 *
 * Concurrency: any process walks; creating and retiring pages needs the lock of the caller's connection.
 */
#ifndef SB_PAGE_H
#define SB_PAGE_H

#include "sb_holdings.h"

#define SB_MAX_HEIGHT 10u

/* Process-local view of one ring. */
typedef struct {
  sb_word *root, *tail, *head, *base;
  sb_word *from; /* the first position of the tree, a multiple of 64: all before it have ended; of a list its base */
  sb_word *requeued; /* the flag `requeued` of the queue or lane; NULL for a list, whose entries never return */
  sb_word *ready;    /* the word with the ready bit of the lane; NULL: the queue has no priorities */
  uint64_t ready_bit;
  uint32_t object;
  uint32_t id;
  sb_word *came;     /* `came` of a queue with priorities (sb_lanes.h), else NULL */
  sb_word *returned; /* `returned` of a sorted queue (sb_sorted.h); NULL: the queue is none */
  /* of a stored queue: its flag `changed` (sb_changed.h) and its position `stored` (sb_gather.h); else NULL */
  sb_word *changed, *stored;
} sb_ring;

/* A page that a walk found. */
typedef struct {
  sb_page_shm *page;
  uint64_t gen, first;
  uint32_t slot;
  unsigned height;
} sb_page_ref;

static inline unsigned sb_page_index(unsigned height, uint64_t position) {
  return (unsigned)(position >> (6 * height)) & 63u;
}
static inline uint64_t sb_page_first(unsigned height, uint64_t position) {
  return height >= SB_MAX_HEIGHT ? 0 : position >> (6 * (height + 1)) << (6 * (height + 1));
}
/* True if the page of `height` that covers `position` covers `other` as well. */
static inline bool sb_page_covers(unsigned height, uint64_t position, uint64_t other) {
  return sb_page_first(height, position) == sb_page_first(height, other);
}
/* One child of a page of `height` covers `position`. Returns the first position that comes after this child. */
static inline uint64_t sb_page_behind(unsigned height, uint64_t position) {
  return ((position >> (6 * height)) + 1) << (6 * height);
}
static inline sb_word *sb_page_children(const sb_page_ref *p) { return ((sb_inner_shm *)(void *)p->page)->children; }

/* True if the page was not freed or reused. A walker calls this after it has read words of the page (P4). */
static inline bool sb_page_is_current(sb_broker *b, const sb_page_ref *p) {
  return sb_slot_gen(SB_LOAD(sb_slot_header(b, p->slot), SB_ACQUIRE)) == p->gen;
}

/* The slot of the queue that a ring of messages belongs to; 0: the ring is a list. */
uint32_t sb_page_queue(sb_broker *b, const sb_ring *r);
/* The SB_KIND_... of the pages of `height` in a ring. In a queue with SB_QUEUE_KEEPS the leaves of the ring of messages
 * have the kind LONG_LEAF, with one more word for each cell: the origin (sb_ring.h). All other leaves have the kind
 * LEAF. */
unsigned sb_page_kind(sb_broker *b, const sb_ring *r, unsigned height);
/* Finds the page that a link leads to. `position`: one that the page covers. False: the link leads to no page, or the
 * page was retired or reused. */
bool sb_page_of(sb_broker *b, uint64_t link, uint64_t position, sb_page_ref *p);
/* The same for a link of a ring's root. */
bool sb_page_root(sb_broker *b, uint64_t link, sb_page_ref *p);
/* Walks to the page of `height` that covers `position`; with a connection `c` it creates missing pages. SB_EMPTY: the
 * page is not created yet. SB_DONE: the page is finished and freed, or lies before the base of the ring; *skip is then
 * the height of the page with the DONE link, or of the page that would have it. SB_PAGED: the page has left the memory
 * (sb_paged.h); *skip is the height of the page with the PAGED link. */
sb_status sb_page_descend(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, unsigned height,
                          sb_page_ref *p, unsigned *skip);
/* A leaf that a connection prepares, and fills, before it links the leaf: the ring gets all cells of the leaf by one
 * CAS. `token`: the holding that lists the leaf. */
typedef struct {
  sb_page_ref leaf;
  sb_word *link;
  uint64_t expected, token;
} sb_page_fresh;
/* Prepares a leaf for the positions from `first` on, a multiple of SB_PAGE_CELLS; all positions before it are filled.
 * Creates the pages above the leaf. SB_EMPTY: the ring has a leaf there, or the leaf would be its root, or the ring is
 * one with long leaves. After SB_OK the caller calls sb_page_link_leaf, or sb_page_drop_leaf. */
sb_status sb_page_prepare_leaf(sb_connection *c, const sb_ring *r, uint64_t first, sb_page_fresh *f);
/* Links the leaf, whose cells the caller has filled. False: the ring got another leaf there, so the function freed this
 * one. */
bool sb_page_link_leaf(sb_connection *c, const sb_page_fresh *f);
void sb_page_drop_leaf(sb_connection *c, const sb_page_fresh *f);
/* Prepares a leaf for the positions of one that has left the memory. `link`: the PAGED link that the caller read. SB_DONE:
 * the link is another one by now. */
sb_status sb_page_renew_leaf(sb_connection *c, const sb_ring *r, uint64_t first, uint64_t link, sb_page_fresh *f);
/* Ends the preparation of a leaf that the caller has linked. */
void sb_page_linked(sb_connection *c, const sb_page_fresh *f);
/* Retires a page if everything in it is finished, then its parent, and so on. */
void sb_page_retire(sb_connection *c, const sb_ring *r, sb_page_ref p);
/* Retires all finished pages that are left in the ring: because a process was killed, or because many calls finished
 * cells of a leaf at the same time (sb_ring_redo). */
void sb_page_sweep(sb_connection *c, const sb_ring *r);
/* True if the page is linked in the ring, at the height and the first position that its own fields name. */
bool sb_page_links(sb_broker *b, const sb_ring *r, uint32_t slot, uint64_t gen);
/* Finishes the retirement of a page that a dead connection began, or was about to begin. A page that is still linked is
 * retired if it is finished and has all `done` bits; if bits are missing, the next sb_page_sweep retires it. A page
 * that is not linked any more is freed, and its parent is retired if that is finished. */
void sb_page_settle(sb_connection *c, const sb_ring *r, uint32_t slot, uint64_t gen);

#endif
