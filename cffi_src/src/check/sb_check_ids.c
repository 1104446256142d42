// SPDX-License-Identifier: Apache-2.0
/* The doctor's check of the ids that a queue remembers: the blocks, the owners of claims, and that no id is remembered
 * twice. */
#include "sb_check.h"
#include "sb_duplicates.h"

enum { BLOCK, CLAIM, NUMBER, SETTING, TWICE, PLACE }; /* `which` of SB_BAD_ID */

static void trouble(sb_checkup *k, uint32_t queue, unsigned which, uint64_t where, uint64_t found, uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_ID, queue, 0, which, 0, where, found, expected});
}

/* The number of the entry in the window of its hash, which decides where it may be. */
static unsigned place_of(const sb_id_shm *entry, uint32_t index) {
  uint64_t first = SB_LOAD(&entry->low, SB_ACQUIRE) % SB_IDS_PER_BLOCK;
  return (unsigned)((index + SB_IDS_PER_BLOCK - first) % SB_IDS_PER_BLOCK);
}

/* The block behind another one; NULL: there is none. */
static sb_ids_shm *next_of(sb_checkup *k, const sb_ids_shm *block, sb_chain *chain) {
  uint32_t slot = SB_LOAD(&block->next, SB_ACQUIRE);
  bool ends = slot == 0 || sb_chain_bites(chain, slot) || !sb_check_is(k, slot, SB_KIND_IDS);
  return ends ? NULL : sb_slot_at(k->b, slot);
}

/* True if a later cell, behind the entry in its window or in a later block, remembers the same id. */
static bool is_twice(sb_checkup *k, const sb_queue_shm *q, sb_ids_shm *block, uint32_t index) {
  const sb_id_shm *entry = &block->ids[index];
  uint64_t low = SB_LOAD(&entry->low, SB_ACQUIRE), high = SB_LOAD(&entry->high, SB_ACQUIRE);
  unsigned n = place_of(entry, index) + 1;
  sb_chain chain = {0};
  for (; block != NULL; block = next_of(k, block, &chain), n = 0) {
    for (; n < SB_IDS_WINDOW; n++) {
      const sb_id_shm *other = &block->ids[(low + n) % SB_IDS_PER_BLOCK];
      uint64_t word = SB_LOAD(&other->word, SB_ACQUIRE);
      if (other != entry && sb_id_state(word) == SB_ID_KNOWN && SB_LOAD(&other->low, SB_ACQUIRE) == low &&
          SB_LOAD(&other->high, SB_ACQUIRE) == high && sb_duplicates_remembers(q, sb_id_number(word)))
        return true;
    }
  }
  return false;
}

static void check_entry(sb_checkup *k, uint32_t slot, const sb_queue_shm *q, sb_ids_shm *block, uint32_t index) {
  uint64_t word = SB_LOAD(&block->ids[index].word, SB_ACQUIRE);
  unsigned state = sb_id_state(word);
  if (state == SB_ID_FREE) {
    return;
  }
  if (state != SB_ID_KNOWN) {
    k->owned[sb_id_owner(word)]++;
    if (!sb_check_lives(k, sb_id_owner(word))) trouble(k, slot, CLAIM, index, sb_id_owner(word), 0);
    uint64_t tags = SB_LOAD(&q->id_tags, SB_ACQUIRE);
    if (sb_id_tag(word) > tags) trouble(k, slot, NUMBER, index, sb_id_tag(word), tags);
    return;
  }
  uint64_t numbers = SB_LOAD(&q->id_numbers, SB_ACQUIRE);
  if (sb_id_number(word) > numbers) {
    trouble(k, slot, NUMBER, index, sb_id_number(word), numbers);
  } else if (sb_duplicates_remembers(q, sb_id_number(word))) {
    if (place_of(&block->ids[index], index) >= SB_IDS_WINDOW) {
      trouble(k, slot, PLACE, index, SB_LOAD(&block->ids[index].low, SB_ACQUIRE), SB_IDS_WINDOW);
    } else if (is_twice(k, q, block, index)) { /* I96 of sb_duplicates.h */
      trouble(k, slot, TWICE, index, sb_id_number(word), 0);
    }
  }
}

void sb_check_ids(sb_checkup *k, uint32_t slot) {
  sb_queue_shm *q = sb_slot_at(k->b, slot);
  int64_t most = sb_setting(q, SB_SETTING_DUPLICATE_IDS);
  bool wanted = sb_duplicates_wanted(q);
  if ((most > 0) != wanted) trouble(k, slot, SETTING, 0, (uint64_t)most, wanted);
  for (uint32_t at = SB_LOAD(&q->ids, SB_ACQUIRE); at != 0;) {
    sb_ids_shm *block = sb_check_is(k, at, SB_KIND_IDS) ? sb_slot_at(k->b, at) : NULL;
    if (block == NULL || SB_LOAD(&block->queue, SB_RELAXED) != slot || (k->seen[at] & 1u) != 0) {
      sb_check_found(k, (sb_finding){SB_BAD_ID, slot, at, BLOCK, 0, 0, sb_check_kind(k, at), SB_KIND_IDS});
      return;
    }
    k->seen[at] |= 1u;
    for (uint32_t index = 0; index < SB_IDS_PER_BLOCK; index++) check_entry(k, slot, q, block, index);
    at = SB_LOAD(&block->next, SB_ACQUIRE);
  }
}
