// SPDX-License-Identifier: Apache-2.0
#include "sb_api_check.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  sb_connection *c;
  sb_broker *b;
  sb_finding *findings;
  uint32_t count, room;
  uint32_t *seen; /* for each slot: the reference bits that cells hold */
} checkup;

static void found(checkup *k, uint32_t code, uint32_t slot, uint64_t where, uint64_t is, uint64_t should) {
  if (k->count < k->room) {
    k->findings[k->count] = (sb_finding){code, slot, where, is, should};
  }
  k->count++;
}

static bool lives(checkup *k, unsigned id) {
  return id != 0 && sb_conn_state(SB_LOAD(&k->b->connections[id % SB_MAX_CONNECTIONS], SB_ACQUIRE)) == SB_CONN_LIVE;
}

static bool readable(checkup *k, uint32_t slot) {
  return slot != 0 && sb_slot_in_range(k->b, slot) && sb_slot_ready(k->b, slot);
}

static bool is_kind(checkup *k, uint32_t slot, uint32_t kind) {
  uint64_t chunk = readable(k, slot) ? SB_LOAD(&k->b->chunks[slot / SB_CHUNK_UNITS], SB_ACQUIRE) : 0;
  return sb_chunk_state(chunk) == SB_CHUNK_CLASS &&
         SB_LOAD(&k->b->classes[sb_chunk_class(chunk)].kind, SB_RELAXED) == kind &&
         sb_slab_slot_bytes(k->b, slot) != 0 &&
         sb_slot_state(SB_LOAD(sb_slot_header(k->b, slot), SB_ACQUIRE)) != SB_SLOT_FREE;
}

/* ---- messages and cells ---- */

static void check_message(checkup *k, uint32_t queue, uint64_t position, uint64_t word) {
  uint32_t slot = sb_cell_slot(word);
  unsigned ref = sb_cell_ref(word);
  uint64_t bytes = readable(k, slot) ? sb_slab_slot_bytes(k->b, slot) : 0;
  if (bytes == 0) {
    found(k, SB_LOST_BODY, queue, position, slot, 0);
    return;
  }
  uint64_t h = SB_LOAD(sb_slot_header(k->b, slot), SB_ACQUIRE);
  if (sb_slot_state(h) != SB_SLOT_PUBLISHED || ref >= SB_MAX_REFS || (sb_slot_refs(h) >> ref & 1) == 0) {
    found(k, SB_LOST_BODY, queue, position, slot, h);
    return;
  }
  if ((k->seen[slot] >> ref & 1) != 0) {
    found(k, SB_SHARED_REFERENCE, queue, position, slot, ref);
  }
  k->seen[slot] |= 1u << ref;
  const sb_message_shm *m = sb_slot_at(k->b, slot);
  if (m->body_offset < sizeof *m || m->body_offset > bytes || m->body_length > bytes - m->body_offset ||
      sizeof *m + (uint64_t)m->key_length + m->properties_length > m->body_offset) {
    found(k, SB_BAD_MESSAGE, queue, position, m->body_length, bytes);
  }
}

typedef struct {
  uint64_t ready, held, owned, filled;
} tally;

static bool check_cell(checkup *k, uint32_t queue, const sb_ring *r, const sb_leaf_ref *leaf, uint64_t at, tally *t) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_ACQUIRE);
  unsigned state = sb_cell_state(word);
  if (state < SB_CELL_FREE || state > SB_CELL_CLOSED || !sb_cell_of(word, leaf->gen)) {
    found(k, SB_BAD_CELL, queue, at, word, leaf->gen);
    return true;
  }
  if (state == SB_CELL_FREE || state == SB_CELL_CLOSED) {
    return false;
  }
  t->filled++;
  if (sb_cell_has_message(word)) {
    check_message(k, queue, at, word);
  }
  if (sb_cell_is_owned(word) && !lives(k, sb_cell_owner(word))) {
    found(k, SB_BAD_OWNER, queue, at, sb_cell_owner(word), 0);
  }
  t->ready += state == SB_CELL_AVAILABLE;
  t->held += state == SB_CELL_HELD;
  t->owned += state == SB_CELL_ACQUIRED || state == SB_CELL_REMOVING;
  if (state == SB_CELL_AVAILABLE && at < SB_LOAD(r->head, SB_ACQUIRE) && !sb_ring_is_marked(k->b, r, at)) {
    found(k, SB_HIDDEN_CELL, queue, at, 0, 0);
  }
  return true;
}

/* ---- pages ---- */

static void check_pages(checkup *k, const sb_ring *r, uint64_t link, unsigned height, uint64_t first, uint32_t queue) {
  uint32_t slot = sb_link_slot(link);
  if (sb_link_state(link) != SB_LINK_PAGE) {
    if (sb_link_state(link) > SB_LINK_PAGE) found(k, SB_BAD_PAGE, queue, first, link, 0);
    return;
  }
  if (!is_kind(k, slot, height == 0 ? SB_KIND_LEAF : SB_KIND_INNER) || sb_link_height(link) != height) {
    found(k, SB_BAD_PAGE, queue, first, slot, height);
    return;
  }
  sb_inner_shm *page = sb_slot_at(k->b, slot);
  if (SB_LOAD(&page->page.object, SB_RELAXED) != r->object || SB_LOAD(&page->page.first, SB_RELAXED) != first) {
    found(k, SB_BAD_PAGE, queue, first, SB_LOAD(&page->page.first, SB_RELAXED), first);
    return;
  }
  k->seen[slot] |= 1u;
  for (unsigned i = 0; height > 0 && i < SB_PAGE_CELLS; i++) {
    check_pages(k, r, SB_LOAD(&page->children[i], SB_ACQUIRE), height - 1, first + ((uint64_t)i << (6 * height)),
                queue);
  }
}

static void check_ring(checkup *k, uint32_t object, uint32_t id, uint32_t queue) {
  sb_ring r;
  if (!sb_ring_open(k->b, object, id, &r)) {
    found(k, SB_BAD_PAGE, queue, object, id, 0);
    return;
  }
  uint64_t root = SB_LOAD(r.root, SB_ACQUIRE);
  if (sb_link_state(root) == SB_LINK_PAGE && sb_link_height(root) <= 10) {
    check_pages(k, &r, root, sb_link_height(root), 0, queue);
  } else if (sb_link_state(root) != SB_LINK_EMPTY) {
    found(k, SB_BAD_PAGE, queue, 0, root, 0);
  }
}

/* ---- a queue ---- */

static void expect(checkup *k, uint32_t code, uint32_t queue, uint64_t which, uint64_t is, uint64_t should) {
  if (is != should) found(k, code, queue, which, is, should);
}

static void check_counts(checkup *k, uint32_t slot, const sb_queue_shm *q, const tally *t, uint64_t end) {
  uint64_t base = SB_LOAD(&q->base, SB_RELAXED);
  uint64_t scheduled = sb_ledger_sum(k->b, q, SB_COUNT_SCHEDULED) - sb_ledger_sum(k->b, q, SB_COUNT_UNSCHEDULED);
  expect(k, SB_BAD_COUNT, slot, 0, sb_queue_count_ready(k->b, q), t->ready);
  expect(k, SB_BAD_COUNT, slot, 1, sb_ledger_holding(k->b, q), t->owned);
  expect(k, SB_BAD_COUNT, slot, 2, scheduled, t->held);
  if (!sb_queue_tracks(q)) {
    return;
  }
  expect(k, SB_BAD_HINT, slot, 0, SB_LOAD(&q->taken, SB_ACQUIRE), end - base - t->ready);
  expect(k, SB_BAD_HINT, slot, 1, SB_LOAD(&q->admitted, SB_ACQUIRE), end);
}

static void check_lists(checkup *k, uint32_t slot, const sb_queue_shm *q) {
  static const uint32_t rings[] = {SB_RING_ALL, SB_RING_NON_ACQUIRING, SB_RING_NOT_INTERESTED, SB_RING_ROOM,
                                   SB_RING_SCHEDULE};
  for (unsigned i = 0; i < sizeof rings / sizeof rings[0]; i++) {
    check_ring(k, slot, rings[i], slot);
  }
  uint64_t interested = 0, notified = 0;
  uint32_t level = SB_LOAD(&q->levels, SB_ACQUIRE);
  for (uint32_t n = 0; level != 0 && n < 4096u; n++) {
    sb_ring list;
    if (!is_kind(k, level, SB_KIND_LEVEL)) {
      found(k, SB_BAD_LIST, slot, 9, level, 0);
      return;
    }
    k->seen[level] |= 1u;
    check_ring(k, level, SB_RING_INTERESTED, slot);
    check_ring(k, level, SB_RING_NOTIFIED, slot);
    if (sb_ring_open(k->b, level, SB_RING_INTERESTED, &list))
      interested += sb_nodes_count(k->b, &list, SB_NODE_INTERESTED);
    if (sb_ring_open(k->b, level, SB_RING_NOTIFIED, &list)) notified += sb_nodes_count(k->b, &list, SB_NODE_NOTIFIED);
    level = SB_LOAD(&((sb_level_shm *)sb_slot_at(k->b, level))->next, SB_ACQUIRE);
  }
  expect(k, SB_BAD_LIST, slot, 0, (uint64_t)(int64_t)SB_LOAD(&q->interested, SB_ACQUIRE), interested);
  expect(k, SB_BAD_LIST, slot, 1, (uint64_t)(int64_t)SB_LOAD(&q->notified, SB_ACQUIRE), notified);
}

static void check_queue(checkup *k, uint32_t slot) {
  sb_queue_shm *q = sb_slot_at(k->b, slot);
  sb_ring r;
  sb_leaf_ref leaf;
  tally t = {0, 0, 0, 0};
  k->seen[slot] |= 1u;
  if (SB_BITS(SB_LOAD(&q->state, SB_ACQUIRE), 0, 2) != SB_QUEUE_OPEN || !sb_ring_open(k->b, slot, SB_RING_CELLS, &r)) {
    found(k, SB_BAD_DIRECTORY, slot, 0, SB_LOAD(&q->state, SB_ACQUIRE), SB_QUEUE_OPEN);
    return;
  }
  uint32_t before = k->count;
  check_ring(k, slot, SB_RING_CELLS, slot);
  uint64_t at = SB_LOAD(&q->base, SB_RELAXED), end = at;
  bool more = k->count == before; /* a broken tree is not walked further */
  while (more && sb_ring_next_leaf(k->b, &r, at, &leaf, &at)) {
    for (; more && sb_leaf_covers(&leaf, at); at++) {
      more = check_cell(k, slot, &r, &leaf, at, &t);
      if (more) end = at + 1;
    }
  }
  if (k->count == before) {
    uint64_t tail = sb_ring_exact_tail(k->b, &r);
    if (end < tail && t.filled > 0 && end % SB_PAGE_CELLS != 0) found(k, SB_BAD_TAIL, slot, end, tail, end);
    check_counts(k, slot, q, &t, tail);
  }
  uint32_t ledger = SB_LOAD(&q->ledgers, SB_ACQUIRE);
  for (uint32_t n = 0; ledger != 0 && n < 65536u; n++) {
    if (!is_kind(k, ledger, SB_KIND_LEDGER)) {
      found(k, SB_BAD_LIST, slot, 10, ledger, 0);
      break;
    }
    k->seen[ledger] |= 1u;
    ledger = SB_LOAD(&((sb_ledger_shm *)sb_slot_at(k->b, ledger))->next, SB_ACQUIRE);
  }
  check_lists(k, slot, q);
}

/* ---- the slab ---- */

static void check_slot(checkup *k, uint32_t slot, uint32_t kind) {
  uint64_t h = SB_LOAD(sb_slot_header(k->b, slot), SB_ACQUIRE);
  switch (sb_slot_state(h)) {
    case SB_SLOT_FREE:
      if (sb_slot_refs(h) != 0) found(k, SB_BAD_SLOT, slot, 0, h, 0);
      break;
    case SB_SLOT_ALLOC:
      if (slot != 0 && !lives(k, sb_slot_owner(h))) found(k, SB_BAD_OWNER, slot, 0, sb_slot_owner(h), 0);
      break;
    case SB_SLOT_PUBLISHED:
      if (kind == SB_KIND_MESSAGE && (k->seen[slot] & sb_slot_refs(h)) != sb_slot_refs(h)) {
        found(k, SB_LEAKED_SLOT, slot, kind, sb_slot_refs(h), k->seen[slot]);
      } else if (kind != SB_KIND_MESSAGE && k->seen[slot] == 0) {
        found(k, SB_LEAKED_SLOT, slot, kind, h, 0);
      }
      break;
    default: found(k, SB_BAD_SLOT, slot, kind, h, 0); break;
  }
}

static void check_chunks(checkup *k) {
  for (uint32_t chunk = 0; chunk < SB_LOAD(&k->b->mapped_chunks, SB_ACQUIRE); chunk++) {
    uint64_t word = SB_LOAD(&k->b->chunks[chunk], SB_ACQUIRE);
    unsigned cls = sb_chunk_class(word), state = sb_chunk_state(word);
    uint32_t units = SB_LOAD(&k->b->classes[cls].units, SB_RELAXED);
    if (state > SB_CHUNK_CLAIMED || (state == SB_CHUNK_CLASS && (units == 0 || units > SB_CHUNK_UNITS)) ||
        (state == SB_CHUNK_RUN && (sb_chunk_run(word) == 0 || chunk + sb_chunk_run(word) > k->b->chunk_limit))) {
      found(k, SB_BAD_CHUNK, chunk, 0, word, 0);
      continue;
    }
    if ((state == SB_CHUNK_CLAIMED || state == SB_CHUNK_DRAINING) && !lives(k, sb_chunk_owner(word))) {
      found(k, SB_BAD_OWNER, chunk, 1, sb_chunk_owner(word), 0);
    }
    if (state == SB_CHUNK_RUN) check_slot(k, chunk * SB_CHUNK_UNITS, SB_KIND_MESSAGE);
    for (uint32_t u = 0; state == SB_CHUNK_CLASS && u + units <= SB_CHUNK_UNITS; u += units) {
      check_slot(k, chunk * SB_CHUNK_UNITS + u, SB_LOAD(&k->b->classes[cls].kind, SB_RELAXED));
    }
  }
}

/* References that bodies being read in place have of their own. */
static void note_views(checkup *k, sb_connection_shm *shm) {
  uint32_t at = SB_LOAD(&shm->holdings, SB_ACQUIRE);
  for (uint32_t n = 0; n < (1u << 17) && is_kind(k, at, SB_KIND_HOLDINGS); n++) {
    sb_holdings_shm *chunk = sb_slot_at(k->b, at);
    for (uint32_t i = 0; i < SB_LOAD(&chunk->used, SB_ACQUIRE) && i < SB_HOLDINGS_PER_CHUNK; i++) {
      uint64_t what = SB_LOAD(&chunk->entries[i].what, SB_ACQUIRE),
               where = SB_LOAD(&chunk->entries[i].where, SB_ACQUIRE);
      uint32_t slot = sb_holding_slot(what);
      if (sb_holding_kind(what) == SB_HOLD_VIEW && readable(k, slot) &&
          sb_slot_gen(SB_LOAD(sb_slot_header(k->b, slot), SB_ACQUIRE)) == where >> 8) {
        k->seen[slot] |= 1u << (where & 0xffu) % SB_MAX_REFS;
      }
    }
    at = SB_LOAD(&chunk->next, SB_ACQUIRE);
  }
}

static void check_connections(checkup *k) {
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    uint64_t word = SB_LOAD(&k->b->connections[id], SB_ACQUIRE);
    if (sb_conn_state(word) == SB_CONN_FREE) {
      continue;
    }
    uint32_t slot = sb_conn_slot(word);
    bool process = SB_BITS(SB_LOAD(&k->b->processes[sb_conn_process(word)].word, SB_ACQUIRE), 0, 2) == SB_PROC_LIVE;
    if (sb_conn_state(word) != SB_CONN_LIVE || !process || (slot != 0 && !is_kind(k, slot, SB_KIND_CONNECTION))) {
      found(k, SB_BAD_CONNECTION, id, slot, word, process);
    } else if (slot != 0) {
      note_views(k, sb_slot_at(k->b, slot));
    }
  }
}

uint32_t sb_check(sb_connection *c, sb_finding *findings, uint32_t room) {
  checkup k = {c, c->b, findings, 0, room, NULL};
  if (sb_api_enter(c) != SB_OK) {
    return 0;
  }
  if (!sb_segment_valid(c->b) || sb_segment_map(c->b) != SB_OK) {
    found(&k, SB_BAD_HEADER, 0, 0, SB_LOAD(&c->b->header->magic, SB_RELAXED), SB_MAGIC);
    sb_api_leave(c);
    return k.count;
  }
  k.seen = calloc((size_t)c->b->chunk_limit * SB_CHUNK_UNITS, sizeof *k.seen);
  if (k.seen == NULL) {
    sb_api_leave(c);
    return 0;
  }
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    uint64_t entry = SB_LOAD(&c->b->directory[i], SB_ACQUIRE);
    uint32_t slot = (uint32_t)SB_BITS(entry, 2, 28);
    unsigned state = (unsigned)SB_BITS(entry, 0, 2);
    if (state == SB_DIR_LIVE && !is_kind(&k, slot, SB_KIND_QUEUE)) {
      found(&k, SB_BAD_DIRECTORY, slot, i, entry, 0);
    } else if (state == SB_DIR_LIVE) {
      check_queue(&k, slot);
    } else if (state == SB_DIR_CLOSED && is_kind(&k, slot, SB_KIND_QUEUE)) {
      k.seen[slot] |= 1u;
      check_lists(&k, slot, sb_slot_at(c->b, slot));
      check_ring(&k, slot, SB_RING_CELLS, slot);
      for (uint32_t l = SB_LOAD(&((sb_queue_shm *)sb_slot_at(c->b, slot))->ledgers, SB_ACQUIRE), n = 0;
           n < 65536u && is_kind(&k, l, SB_KIND_LEDGER); n++) {
        k.seen[l] |= 1u;
        l = SB_LOAD(&((sb_ledger_shm *)sb_slot_at(c->b, l))->next, SB_ACQUIRE);
      }
    }
  }
  check_ring(&k, 0, SB_RING_MEMORY, 0);
  check_connections(&k);
  check_chunks(&k);
  free(k.seen);
  sb_api_leave(c);
  return k.count;
}
