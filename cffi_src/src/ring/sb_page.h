// SPDX-License-Identifier: Apache-2.0
/* Pages: the tree that a ring is made of.
 *
 * What: a page is made where somebody appends, found by walking down from the root, and retired when everything below it
 * is finished. A leaf covers 64 positions, an inner page 64 pages; the root grows upwards.
 *
 * Layout, invariants, ordering pairs, kill table: sb_ring.h (I16, I17, P4).
 *
 * Concurrency: walking by anybody; making and retiring under the caller's connection lock.
 */
#ifndef SB_PAGE_H
#define SB_PAGE_H

#include "sb_holdings.h"

#define SB_MAX_HEIGHT 10u

/* Process-local view of one ring. */
typedef struct {
  sb_word *root, *tail, *head, *base;
  sb_word *returned; /* NULL for lists: nothing returns there */
  uint32_t object;
  uint32_t id;
} sb_ring;

/* A page that somebody walked to. */
typedef struct {
  sb_page_shm *page;
  uint64_t gen, first;
  uint32_t slot;
  unsigned height;
} sb_page_ref;

static inline bool sb_page_covers(unsigned height, uint64_t position) {
  return height >= SB_MAX_HEIGHT || position >> (6 * (height + 1)) == 0;
}
static inline unsigned sb_page_index(unsigned height, uint64_t position) {
  return (unsigned)(position >> (6 * height)) & 63u;
}
static inline uint64_t sb_page_first(unsigned height, uint64_t position) {
  return height >= SB_MAX_HEIGHT ? 0 : position >> (6 * (height + 1)) << (6 * (height + 1));
}
/* The first position behind what a link in a page of that height covers. */
static inline uint64_t sb_page_behind(unsigned height, uint64_t position) {
  return ((position >> (6 * height)) + 1) << (6 * height);
}
static inline sb_word *sb_page_children(const sb_page_ref *p) { return ((sb_inner_shm *)(void *)p->page)->children; }

static inline bool sb_page_is_current(sb_broker *b,
                                      const sb_page_ref *p) { /* P4: read after what was read from the page */
  return sb_slot_gen(SB_LOAD(sb_slot_header(b, p->slot), SB_ACQUIRE)) == p->gen;
}

/* The kind of a ring's pages of that height: leaves are long where messages keep the sequence they had elsewhere. */
unsigned sb_page_kind(sb_broker *b, const sb_ring *r, unsigned height);
/* The page behind a link; false when it is not that page any more. */
bool sb_page_of(sb_broker *b, uint64_t link, uint64_t position, sb_page_ref *p);
/* Walks to the page of that height, with `c` makes those that are missing. *skip is the height of the link that ended the
 * walk early. SB_EMPTY: nothing there yet; SB_DONE: finished and freed. */
sb_status sb_page_descend(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, unsigned height,
                          sb_page_ref *p, unsigned *skip);
/* Retires a page if everything in it is finished, then its parent, and so on. */
void sb_page_retire(sb_connection *c, const sb_ring *r, sb_page_ref p);
/* Retires all pages that are finished and were overlooked: somebody was killed before it could. */
void sb_page_sweep(sb_connection *c, const sb_ring *r);
/* Is this page (by its own description) linked in the ring it claims to be of? */
bool sb_page_links(sb_broker *b, const sb_ring *r, uint32_t slot, uint64_t gen);
/* What a dead connection was retiring is retired. */
void sb_page_settle(sb_connection *c, const sb_ring *r, uint32_t slot, uint64_t gen);

#endif
