// SPDX-License-Identifier: Apache-2.0
#include "sb_changed.h"

#include "sb_slab.h"

/* The pages from the root down to the lowest one that covers a position. */
typedef struct {
  uint64_t root;
  sb_word *bits[SB_MAX_HEIGHT + 1];
  unsigned lowest, highest;
} way;

/* False: the ring has no page yet, or its root changed during the walk. */
static bool find_way(sb_broker *b, const sb_ring *r, uint64_t position, way *w) {
  sb_page_ref p;
  uint64_t link = w->root = SB_LOAD(r->root, SB_SEQ_CST);
  unsigned height = sb_link_height(link);
  if (!sb_page_root(b, link, &p) || !sb_page_covers(p.height, p.first, position)) {
    return false;
  }
  w->highest = height;
  for (;;) {
    w->bits[height] = &p.page->changed;
    w->lowest = height;
    if (height == 0) break;
    sb_page_ref child;
    link = SB_LOAD(&sb_page_children(&p)[sb_page_index(height, position)], SB_SEQ_CST);
    if (!sb_page_of(b, link, position, &child) || child.height + 1 != height) break;
    p = child;
    height--;
  }
  return true;
}

static void set(sb_word *bits, uint64_t bit) {
  if ((SB_LOAD(bits, SB_SEQ_CST) & bit) != bit) (void)SB_OR(bits, bit, SB_SEQ_CST); /* P41 */
}

void sb_changed_mark(sb_broker *b, const sb_ring *r, uint64_t position, uint64_t cells) {
  way w;
  do {
    if (!find_way(b, r, position, &w)) continue;
    for (unsigned height = w.lowest; height <= w.highest; height++) {
      uint64_t bit = height == 0 ? cells : UINT64_C(1) << sb_page_index(height, position);
      if (height == w.lowest) {
        (void)SB_OR(w.bits[height], bit, SB_SEQ_CST); /* P41: even if the bit is set, after the store of the cell */
      } else {
        set(w.bits[height], bit);
      }
      SB_CRASHPOINT("changed.marked");
    }
  } while (SB_LOAD(r->root, SB_SEQ_CST) != w.root); /* a new root lies above the old one, and may lack the bit */
  set(r->changed, 1);
}
