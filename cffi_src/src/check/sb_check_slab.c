// SPDX-License-Identifier: Apache-2.0
/* The doctor's check of classes, chunks and slots. */
#include "sb_check.h"

#include "sb_parts.h"
#include "sb_slab.h"

/* Values of `which` of SB_BAD_CHUNK. */
enum { STATE, CLASS, RUN, TAIL, BEYOND };
#define SHARED_BLOCK 1u /* value of `which` of SB_SHARED_REFERENCE: a block. 0: two positions (sb_check_queue.c) */

/* ---- classes ---- */

void sb_check_classes(sb_checkup *k) {
  sb_class_shm right[SB_MAX_CLASSES] = {0};
  sb_class_format(right);
  for (unsigned cls = 1; cls <= sb_class_of_kind(k->b, SB_KIND_COUNT - 1); cls++) {
    const sb_class_shm *is = &k->b->classes[cls];
    uint32_t units = SB_LOAD(&is->units, SB_RELAXED), should = SB_LOAD(&right[cls].units, SB_RELAXED);
    uint32_t kind = SB_LOAD(&is->kind, SB_RELAXED), should_be = SB_LOAD(&right[cls].kind, SB_RELAXED);
    uint32_t hint = SB_LOAD(&is->hint_chunk, SB_RELAXED);
    if (units != should) sb_check_found(k, (sb_finding){SB_BAD_CLASS, 0, cls, 0, 0, 0, units, should});
    if (kind != should_be) sb_check_found(k, (sb_finding){SB_BAD_CLASS, 0, cls, 1, 0, 0, kind, should_be});
    if (hint > k->b->chunk_limit) {
      sb_check_found(k, (sb_finding){SB_BAD_CLASS, 0, cls, 2, 0, 0, hint, k->b->chunk_limit});
    }
  }
}

/* ---- slots ---- */

static void check_owned(sb_checkup *k, uint32_t slot, unsigned kind, unsigned owner) {
  if (!sb_check_lives(k, owner)) {
    sb_check_found(k, (sb_finding){SB_BAD_OWNER, 0, slot, 0, kind, 0, owner, 0});
  } else if ((k->seen[slot] & SB_KNOWN_TO_OWNER) == 0) {
    sb_check_found(k, (sb_finding){SB_UNLISTED, 0, slot, 0, kind, 0, owner, 0});
  }
}

/* Checks that a node is in its lists: a consumer that is in no list is never notified. */
static void check_node(sb_checkup *k, uint32_t slot, uint64_t header) {
  sb_node_shm *n = sb_slot_at(k->b, slot);
  uint64_t word = SB_LOAD(&n->word, SB_ACQUIRE);
  uint32_t queue = SB_LOAD(&n->queue, SB_RELAXED), flags = SB_LOAD(&n->flags, SB_RELAXED);
  unsigned state = sb_node_state(word), connection = sb_node_conn(word);
  bool waits = (flags & SB_NODE_ROOM) != 0, has_list = !waits || state == SB_NODE_INTERESTED;
  if (state > SB_NODE_NON_ACQUIRING || (state != SB_NODE_REMOVED && connection != sb_slot_owner(header))) {
    sb_check_found(k, (sb_finding){SB_LOST_NODE, queue, slot, 0, 0, connection, word, sb_slot_owner(header)});
  } else if (state == SB_NODE_REMOVED) {
    return; /* being registered or removed, or the node of an IO thread */
  } else if (has_list && (k->seen[slot] & SB_KNOWN_TO_LIST) == 0) {
    sb_check_found(k, (sb_finding){SB_LOST_NODE, queue, slot, 1, 0, connection, state, 0});
  } else if (!waits && (k->seen[slot] & SB_KNOWN_TO_ALL) == 0) {
    sb_check_found(k, (sb_finding){SB_LOST_NODE, queue, slot, 2, 0, connection, state, 0});
  }
}

/* ---- references ---- */

/* Compares the number of references in the block with the number of cells and views that use one. If the first number
 * is higher, a reference has no user; if the second is higher, two users share a reference. */
static void check_block(sb_checkup *k, uint32_t slot, unsigned kind) {
  sb_block block;
  uint32_t is = sb_block_of(k->b, slot, &block) ? sb_block_count(&block) : 0;
  if (is > k->blocks[slot]) {
    sb_check_found(k, (sb_finding){SB_LEAKED_SLOT, 0, slot, 0, kind, 0, is, k->blocks[slot]});
  } else if (is < k->blocks[slot]) {
    sb_check_found(k, (sb_finding){SB_SHARED_REFERENCE, 0, slot, SHARED_BLOCK, 0, 0, k->blocks[slot], is});
  }
}

static void check_published(sb_checkup *k, uint32_t slot, unsigned kind, uint64_t header) {
  uint64_t refs = sb_slot_refs(header), seen = k->seen[slot] & ((1u << SB_MAX_REFS) - 1u);
  if (sb_parts_is_head(k->b, slot, header)) refs &= ~(UINT64_C(1) << SB_PARTS_REF); /* this bit has no holder */
  bool may = kind != SB_KIND_NODE && kind != SB_KIND_CONNECTION && kind != SB_KIND_HOLDINGS;
  if (!may || (kind != SB_KIND_MESSAGE && refs != 1)) {
    sb_check_found(k, (sb_finding){SB_BAD_SLOT, 0, slot, 1, kind, 0, header, 0});
  } else if ((refs == 0 && sb_slot_state(header) != SB_SLOT_READ) || (seen & refs) != refs) {
    sb_check_found(k, (sb_finding){SB_LEAKED_SLOT, 0, slot, 0, kind, 0, refs, seen});
  } else if (k->blocks[slot] != 0) {
    check_block(k, slot, kind);
  }
}

static void check_slot(sb_checkup *k, uint32_t slot, unsigned kind, uint64_t header) {
  switch (sb_slot_state(header)) {
    case SB_SLOT_FREE:
      if (sb_slot_refs(header) != 0) sb_check_found(k, (sb_finding){SB_BAD_SLOT, 0, slot, 0, kind, 0, header, 0});
      break;
    case SB_SLOT_ALLOC:
      if (slot == 0 ||
          (kind != SB_KIND_MESSAGE && sb_slot_is_drained(header) && sb_check_lives(k, sb_slot_owner(header)))) {
        break; /* slot 0 has no owner; the holdings of a drainer list the chunk, not its slots (sb_drained.h) */
      }
      if (kind == SB_KIND_MESSAGE && sb_slot_is_part(header)) { /* only its head refers to it */
        if (sb_parts_is_orphan(k->b, slot)) sb_check_found(k, (sb_finding){SB_LEAKED_SLOT, 0, slot, 0, kind, 0, 0, 0});
        break;
      }
      check_owned(k, slot, kind, sb_slot_owner(header));
      if (kind == SB_KIND_NODE) check_node(k, slot, header);
      break;
    case SB_SLOT_READ:
      if (kind != SB_KIND_MESSAGE) {
        sb_check_found(k, (sb_finding){SB_BAD_SLOT, 0, slot, 2, kind, 0, header, 0});
        break;
      }
      check_owned(k, slot, kind, sb_slot_reader(header));
      check_published(k, slot, kind, header);
      break;
    default: check_published(k, slot, kind, header); break;
  }
}

/* ---- chunks ---- */

static void bad_chunk(sb_checkup *k, uint32_t chunk, unsigned what, uint64_t word, uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_CHUNK, 0, chunk, what, 0, 0, word, expected});
}

static void check_class_chunk(sb_checkup *k, uint32_t chunk, uint64_t word) {
  unsigned cls = sb_chunk_class(word);
  uint64_t bytes = sb_slab_slot_bytes(k->b, chunk * SB_CHUNK_UNITS);
  if (bytes == 0) {
    bad_chunk(k, chunk, CLASS, word, cls);
    return;
  }
  uint32_t units = (uint32_t)(bytes / SB_UNIT), first = chunk * SB_CHUNK_UNITS;
  unsigned kind = sb_check_kind_of_class(k, cls);
  const sb_word *headers = sb_slot_header(k->b, first);
  for (uint32_t u = 0; u + units <= SB_CHUNK_UNITS; u += units) {
    if (units == 1 && (u = sb_skip_without(headers, u, SB_CHUNK_UNITS, SB_SLOT_IN_USE)) == SB_CHUNK_UNITS) break;
    uint64_t header = SB_LOAD(&headers[u], SB_ACQUIRE);
    if ((header & SB_SLOT_IN_USE) != 0) check_slot(k, first + u, kind, header);
  }
}

/* Checks the head of a run, and the chunks that belong to the run. */
static void check_run(sb_checkup *k, uint32_t chunk, uint64_t word) {
  uint32_t run = sb_chunk_run(word);
  if (run == 0 || run > k->chunks - chunk || chunk == 0) {
    bad_chunk(k, chunk, RUN, word, run);
    return;
  }
  for (uint32_t i = 1; i < run; i++) {
    uint64_t tail = SB_LOAD(&k->b->chunks[chunk + i], SB_ACQUIRE);
    if (sb_chunk_state(tail) != SB_CHUNK_TAIL || sb_chunk_run(tail) != i) bad_chunk(k, chunk + i, TAIL, tail, i);
  }
  check_slot(k, chunk * SB_CHUNK_UNITS, SB_KIND_MESSAGE, sb_check_header(k, chunk * SB_CHUNK_UNITS));
}

static bool in_a_run(const sb_checkup *k, uint32_t chunk, uint64_t word) {
  uint32_t distance = sb_chunk_run(word);
  if (distance == 0 || distance > chunk) {
    return false;
  }
  uint64_t head = SB_LOAD(&k->b->chunks[chunk - distance], SB_ACQUIRE);
  unsigned state = sb_chunk_state(head); /* CLAIMED, DRAINING: the run is being taken, or freed */
  return (state == SB_CHUNK_RUN || state == SB_CHUNK_CLAIMED || state == SB_CHUNK_DRAINING) &&
         sb_chunk_run(head) > distance;
}

void sb_check_chunks(sb_checkup *k) {
  for (uint32_t chunk = 0; chunk < k->chunks; chunk++) {
    uint64_t word = SB_LOAD(&k->b->chunks[chunk], SB_ACQUIRE);
    switch (sb_chunk_state(word)) {
      case SB_CHUNK_FREE: break;
      case SB_CHUNK_CLASS: check_class_chunk(k, chunk, word); break;
      case SB_CHUNK_RUN: check_run(k, chunk, word); break;
      case SB_CHUNK_TAIL:
        if (!in_a_run(k, chunk, word)) bad_chunk(k, chunk, TAIL, word, 0);
        break;
      case SB_CHUNK_DRAINING:
      case SB_CHUNK_CLAIMED:
        if (!sb_check_lives(k, sb_chunk_owner(word))) {
          sb_check_found(k, (sb_finding){SB_BAD_OWNER, 0, chunk, 1, 0, 0, sb_chunk_owner(word), 0});
        }
        break;
      default: bad_chunk(k, chunk, STATE, word, 0); break;
    }
  }
  const sb_word *chunks = k->b->chunks;
  for (uint32_t chunk = k->chunks; (chunk = sb_skip_zeros(chunks, chunk, SB_MAX_CHUNKS)) < SB_MAX_CHUNKS; chunk++) {
    uint64_t word = SB_LOAD(&chunks[chunk], SB_ACQUIRE);
    if (sb_chunk_state(word) != SB_CHUNK_FREE) bad_chunk(k, chunk, BEYOND, word, k->chunks);
  }
}
