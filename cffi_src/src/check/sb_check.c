// SPDX-License-Identifier: Apache-2.0
/* Functions that several parts of the doctor use: the kinds of slots, references, and whether a connection lives. They
 * call none of these parts. */
#include "sb_check.h"

#include "sb_liveness.h"
#include "sb_slab.h"

unsigned sb_check_kind_of_class(const sb_checkup *k, unsigned cls) {
  unsigned first = sb_class_of_kind(k->b, 1);
  return cls < first ? SB_KIND_MESSAGE : cls - first + 1;
}

unsigned sb_check_kind(const sb_checkup *k, uint32_t slot) {
  uint32_t chunk = slot / SB_CHUNK_UNITS;
  if (slot == 0 || chunk >= k->chunks || sb_slab_slot_bytes(k->b, slot) == 0) {
    return SB_KIND_NONE;
  }
  uint64_t word = SB_LOAD(&k->b->chunks[chunk], SB_ACQUIRE);
  return sb_chunk_state(word) == SB_CHUNK_CLASS ? sb_check_kind_of_class(k, sb_chunk_class(word)) : SB_KIND_MESSAGE;
}

bool sb_check_is(const sb_checkup *k, uint32_t slot, unsigned kind) {
  return sb_check_kind(k, slot) == kind && sb_slot_state(sb_check_header(k, slot)) != SB_SLOT_FREE;
}

bool sb_check_is_queue(const sb_checkup *k, uint32_t slot) {
  return sb_check_is(k, slot, SB_KIND_QUEUE) || sb_check_is(k, slot, SB_KIND_LONG_QUEUE);
}

bool sb_check_has(const sb_checkup *k, const sb_reference *r) {
  sb_block block;
  uint64_t header = sb_check_header(k, r->slot);
  unsigned bit = r->ref < SB_MAX_REFS ? r->ref : 0;
  uint32_t index = r->queue;
  if (sb_slot_gen(header) != r->gen || (sb_slot_refs(header) >> bit & 1) == 0) {
    return false;
  }
  if (r->ref < SB_MAX_REFS) {
    return true;
  }
  bool found = sb_block_of(k->b, r->slot, &block) && (r->ref != SB_REF_BLOCK || sb_block_index(&block, index, &index));
  return found && sb_block_has(&block, index, r->ref == SB_REF_BLOCK ? 0 : r->ref - SB_REF_VIEW);
}

bool sb_check_count(sb_checkup *k, const sb_reference *r) {
  unsigned bit = r->ref < SB_MAX_REFS ? r->ref : 0;
  bool before = (k->seen[r->slot] >> bit & 1) != 0;
  k->seen[r->slot] |= 1u << bit;
  if (r->ref < SB_MAX_REFS) {
    return !before;
  }
  k->blocks[r->slot]++;
  return true;
}

bool sb_check_lives(const sb_checkup *k, unsigned connection) {
  return connection != 0 && connection < SB_MAX_CONNECTIONS &&
         sb_conn_state(SB_LOAD(&k->b->connections[connection], SB_ACQUIRE)) == SB_CONN_LIVE;
}

bool sb_check_dying(const sb_checkup *k, unsigned connection) {
  return sb_check_lives(k, connection) &&
         sb_liveness_is_dead(k->b, sb_conn_process(SB_LOAD(&k->b->connections[connection], SB_ACQUIRE)));
}
