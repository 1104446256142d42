// SPDX-License-Identifier: Apache-2.0
#include "sb_reference.h"

#include <string.h>

#include "sb_peek.h"

#define QUEUES_A_WORD (64u / SB_REFS_OF_QUEUE)

/* ---- blocks ---- */

static uint64_t table_bytes(uint32_t targets) { return ((uint64_t)targets * sizeof(uint32_t) + 7) / 8 * 8; }
static uint32_t word_count(uint32_t targets) { return (targets + QUEUES_A_WORD - 1) / QUEUES_A_WORD; }

uint64_t sb_block_bytes(uint32_t targets, uint64_t body_length) {
  if (targets <= SB_PLAIN_TARGETS) {
    return 0;
  }
  uint64_t viewers = body_length > SB_INLINE_BODY ? (uint64_t)targets * SB_REFS_OF_QUEUE * sizeof(uint16_t) : 0;
  return (table_bytes(targets) + (word_count(targets) + SB_MAX_REFS) * sizeof(uint64_t) + viewers + 63) / 64 * 64;
}

bool sb_block_of(sb_broker *b, uint32_t slot, sb_block *k) {
  /* This is only a peek: if a reaper calls, the slot may have been reused for another message. */
  sb_message_shm m = sb_peek_message(b, slot);
  bool viewed = m.body_length > SB_INLINE_BODY;
  uint64_t behind = sb_block_bytes(m.targets, m.body_length) + (viewed ? SB_VIEWERS_BYTES : 0);
  if (m.targets <= SB_PLAIN_TARGETS || m.targets > SB_MAX_TARGETS || m.body_offset % 64 != 0 ||
      m.body_offset < sizeof m + behind || m.body_offset > sb_slab_slot_bytes(b, slot)) {
    return false;
  }
  uint8_t *at = (uint8_t *)sb_slot_at(b, slot) + m.body_offset - behind;
  k->count = m.targets;
  k->queues = (const uint32_t *)(void *)at;
  k->bits = (sb_word *)(void *)(at + table_bytes(m.targets));
  k->claims = k->bits + word_count(m.targets);
  k->viewers = viewed ? (_Atomic uint16_t *)(void *)(k->claims + SB_MAX_REFS) : NULL;
  return true;
}

void sb_block_fill(const sb_block *k, const uint32_t *queues) {
  memcpy((void *)(uintptr_t)k->queues, queues, k->count * sizeof *queues);
  /* relaxed: no other process knows the block yet */
  for (uint32_t i = 0; i < word_count(k->count); i++) SB_STORE(&k->bits[i], 0, SB_RELAXED);
  for (uint32_t i = 0; i < SB_MAX_REFS; i++) SB_STORE(&k->claims[i], 0, SB_RELAXED); /* relaxed: as above */
}

bool sb_block_index(const sb_block *k, uint32_t queue, uint32_t *index) {
  uint32_t low = 0, high = k->count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (k->queues[middle] < queue) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  *index = low;
  return low < k->count && k->queues[low] == queue;
}

static uint64_t bit_of(uint32_t index, unsigned ref) {
  return UINT64_C(1) << (index % QUEUES_A_WORD * SB_REFS_OF_QUEUE + ref % SB_REFS_OF_QUEUE);
}

bool sb_block_has(const sb_block *k, uint32_t index, unsigned ref) {
  return index < k->count && (SB_LOAD(&k->bits[index / QUEUES_A_WORD], SB_SEQ_CST) & bit_of(index, ref)) != 0;
}

void sb_block_set(const sb_block *k, uint32_t index, unsigned ref) {
  /* I48: no other process sets this bit */
  (void)SB_OR(&k->bits[index / QUEUES_A_WORD], bit_of(index, ref), SB_ACQ_REL);
}

uint32_t sb_block_count(const sb_block *k) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < word_count(k->count); i++) {
    n += (uint32_t)__builtin_popcountll(SB_LOAD(&k->bits[i], SB_ACQUIRE));
  }
  return n;
}

/* ---- dropping ---- */

/* Drops bit 0 of the header if no bit of the block is set. Does nothing if the slot was reused, and has another
 * generation. */
static void drop_empty(sb_broker *b, const sb_reference *r) {
  sb_block k;
  bool freed;
  uint64_t h = SB_LOAD(sb_slot_header(b, r->slot), SB_SEQ_CST);
  if (sb_slot_gen(h) != r->gen || !sb_slot_is_published(h) || (sb_slot_refs(h) & 1) == 0 ||
      !sb_block_of(b, r->slot, &k)) {
    return;
  }
  for (uint32_t i = 0; i < word_count(k.count); i++) {
    if (SB_LOAD(&k.bits[i], SB_SEQ_CST) != 0) return; /* P14 */
  }
  (void)sb_slab_drop(b, r->slot, r->gen, 0, &freed);
}

/* Finds the bit of a reference in the block. False: the bit is not set, or the slot was reused. */
static bool in_block(sb_broker *b, const sb_reference *r, sb_block *k, uint32_t *index, unsigned *ref) {
  uint64_t h = SB_LOAD(sb_slot_header(b, r->slot), SB_SEQ_CST);
  bool same = sb_slot_gen(h) == r->gen && sb_slot_is_published(h) && (sb_slot_refs(h) & 1) != 0;
  if (!same || !sb_block_of(b, r->slot, k)) {
    return false;
  }
  *index = r->queue;
  *ref = r->ref == SB_REF_BLOCK ? 0 : r->ref - SB_REF_VIEW;
  bool found = r->ref == SB_REF_BLOCK ? sb_block_index(k, r->queue, index) : r->queue < k->count;
  bool set = found && sb_block_has(k, *index, *ref);
  /* I43 of sb_peek.h: the second look */
  return set && sb_slot_gen(SB_LOAD(sb_slot_header(b, r->slot), SB_SEQ_CST)) == r->gen;
}

bool sb_reference_drop(sb_broker *b, const sb_reference *r) {
  sb_block k;
  uint32_t index;
  unsigned ref;
  bool freed;
  if (r->ref < SB_MAX_REFS) {
    return sb_slab_drop(b, r->slot, r->gen, r->ref, &freed);
  }
  bool there = in_block(b, r, &k, &index, &ref);
  if (there) { /* while this bit is set the slot is not freed, so the block stays */
    (void)SB_AND(&k.bits[index / QUEUES_A_WORD], ~bit_of(index, ref), SB_SEQ_CST); /* P14: before all bits are read */
    SB_CRASHPOINT("reference.cleared");
  }
  drop_empty(b, r);
  return there;
}

bool sb_reference_gone(sb_broker *b, const sb_reference *r) {
  sb_block k;
  uint32_t index;
  unsigned ref;
  if (r->ref < SB_MAX_REFS) {
    uint64_t h = SB_LOAD(sb_slot_header(b, r->slot), SB_SEQ_CST);
    return sb_slot_gen(h) != r->gen || (sb_slot_refs(h) >> r->ref & 1) == 0;
  }
  bool gone = !in_block(b, r, &k, &index, &ref);
  if (gone) drop_empty(b, r); /* I48 */
  return gone;
}

/* ---- adding ---- */

static unsigned claim(sb_broker *b, uint32_t slot, unsigned connection) {
  sb_block k;
  bool has = sb_block_of(b, slot, &k), in_parts = sb_slot_in_parts(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE));
  for (unsigned ref = 1; has && ref < (in_parts ? SB_PARTS_REF : SB_MAX_REFS); ref++) {
    uint64_t nobody = 0;
    if (SB_CAS(&k.claims[ref], &nobody, connection, SB_ACQ_REL)) { /* I49: two connections never add the same bit */
      return ref;
    }
  }
  return SB_MAX_REFS;
}

unsigned sb_reference_clear(sb_broker *b, uint32_t slot, unsigned cell_ref, unsigned connection) {
  const sb_message_shm *m = sb_slot_at(b, slot);
  unsigned n = m->targets > 1 ? m->targets : 1;
  if (sb_reference_has_block(m)) {
    return claim(b, slot, connection);
  }
  uint64_t refs = sb_slot_refs(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE));
  /* I38 of sb_view.h: never bit 0 if n is 1 */
  for (unsigned ref = cell_ref % n + (n == 1); ref < SB_MAX_REFS; ref += n) {
    if ((refs >> ref & 1) == 0) {
      return ref;
    }
  }
  return SB_MAX_REFS;
}
