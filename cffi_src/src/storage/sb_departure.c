// SPDX-License-Identifier: Apache-2.0
#include "sb_departure.h"

#include "sb_peek.h"
#include "sb_wait.h"

/* True if a message of the leaf expires before `soon_ns`, or cannot be read; or if all of them together
 * have more bytes than the memory can be expected to have room for at once, when they come back. *expires_ns: when the
 * first of them expires; 0: none does. */
static bool keeps_some(sb_broker *b, const sb_leaf_ref *ref, uint64_t soon_ns, uint64_t *expires_ns) {
  *expires_ns = 0;
  uint64_t bytes = 0, most = SB_LOAD(&b->header->memory_limit, SB_RELAXED) / SB_LEAF_SHARE;
  for (uint64_t at = ref->first; at < ref->first + SB_PAGE_CELLS; at++) {
    uint64_t word = SB_LOAD(&sb_leaf_cell(ref, at)->word, SB_ACQUIRE);
    uint32_t slot = sb_cell_slot(word);
    if (!sb_cell_has_message(word)) continue;
    if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
      return true;
    }
    sb_message_shm m = sb_peek_message(b, slot);
    bytes += m.body_length;
    if (m.expires_ns != 0 && (*expires_ns == 0 || m.expires_ns < *expires_ns)) *expires_ns = m.expires_ns;
    if ((m.expires_ns != 0 && m.expires_ns < soon_ns) || bytes > most) {
      return true;
    }
  }
  return false;
}

/* True if the intent of a ledger of the queue names a cell of the leaf: its reaper would look at the cell. */
static bool is_intended(sb_broker *b, const sb_queue_shm *q, const sb_leaf_ref *ref) {
  uint32_t slot = SB_LOAD(&q->ledgers, SB_ACQUIRE);
  sb_chain chain = {0};
  for (const sb_ledger_shm *l; !sb_chain_bites(&chain, slot) && (l = sb_ledger_at(b, slot)) != NULL;) {
    bool idle = (SB_LOAD(&l->kind, SB_SEQ_CST) & 0xffu) == SB_INTENT_NONE;
    if (!idle && SB_LOAD(&l->position, SB_SEQ_CST) - ref->first < SB_PAGE_CELLS) {
      return true;
    }
    slot = SB_LOAD(&l->next, SB_ACQUIRE);
  }
  return false;
}

typedef struct {
  sb_queue *q;
  const sb_ring *ring;
  uint64_t from, end, soon_ns;
  uint32_t most, left;
  sb_expiring *expiring;
  uint32_t *count; /* NULL: nobody asks for `expiring` */
} departure;

static bool leave(const departure *d, const sb_page_ref *p) {
  sb_broker *b = d->q->c->b;
  sb_leaf_ref ref = {(sb_leaf_shm *)(void *)p->page, p->first, p->gen, p->slot};
  uint64_t expires_ns;
  if (!sb_paged_may_leave(b, d->ring, &ref) || keeps_some(b, &ref, d->soon_ns, &expires_ns) ||
      !sb_paged_freeze(d->q->c, d->ring, &ref)) {
    return false;
  }
  if (is_intended(b, d->q->shm, &ref) || keeps_some(b, &ref, d->soon_ns, &expires_ns)) {
    (void)sb_paged_stay(b, d->ring, &ref);
    return false;
  }
  if (!sb_paged_leave(d->q->c, d->ring, &ref)) {
    return false;
  }
  if (expires_ns != 0 && d->count != NULL) d->expiring[(*d->count)++] = (sb_expiring){ref.first, expires_ns};
  return true;
}

static void walk(departure *d, const sb_page_ref *p) {
  uint64_t span = UINT64_C(1) << (6 * p->height);
  for (unsigned i = SB_PAGE_CELLS; i-- > 0 && d->left < d->most;) {
    uint64_t first = p->first + i * span;
    uint64_t link = SB_LOAD(&sb_page_children(p)[i], SB_SEQ_CST);
    sb_page_ref child;
    if (first >= d->end || first + span <= d->from || !sb_page_is_current(d->q->c->b, p) ||
        !sb_page_of(d->q->c->b, link, first, &child) || child.height + 1 != p->height) {
      continue;
    }
    if (child.height > 0) {
      walk(d, &child);
    } else if (first >= d->from && first + span <= d->end) {
      d->left += leave(d, &child);
    }
  }
}

uint32_t sb_departure_run(sb_queue *q, const sb_ring *r, uint64_t from, uint64_t end, uint32_t most,
                          sb_expiring *expiring, uint32_t *count) {
  departure d = {.q = q,
                 .ring = r,
                 .from = from,
                 .end = end,
                 .soon_ns = sb_now_ns() + SB_SOON_NS,
                 .most = most,
                 .expiring = expiring,
                 .count = count};
  sb_page_ref root;
  if (sb_queue_may_leave(q) && sb_page_root(q->c->b, SB_LOAD(r->root, SB_SEQ_CST), &root) && root.height > 0) {
    walk(&d, &root);
  }
  return d.left;
}
