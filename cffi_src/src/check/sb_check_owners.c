// SPDX-License-Identifier: Apache-2.0
/* The doctor's check of connections, and of the objects that their holdings list (I10 of sb_connection.h). */
#include "sb_check.h"

#include "sb_lanes.h"
#include "sb_liveness.h"
#include "sb_reader.h"
#include "sb_slab.h"

/* Values of `which` in a finding: the first enum for SB_BAD_CONNECTION, the second for SB_BAD_HOLDING. */
enum { WORD, PROCESS, RECORD, IDENTITY, WAITER };
enum { CHUNK, USED, ENTRY, CELL, SLOT, PAGE, LEDGER, NO_CHUNK, CELLS, VIEW };

static void bad(sb_checkup *k, unsigned id, unsigned what, uint64_t where, uint64_t found, uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_HOLDING, 0, id, what, 0, where, found, expected});
}

static bool is_leaf(unsigned kind) { return kind == SB_KIND_LEAF || kind == SB_KIND_LONG_LEAF; }

/* The slot of the queue, or of its lane, that has the ring of a position; 0: there is none. */
static uint32_t object_of(const sb_checkup *k, uint32_t queue, uint64_t position) {
  unsigned lane = sb_position_lane(position);
  return lane == 0 ? queue : sb_lanes_find(k->b, sb_slot_at(k->b, queue), lane);
}

/* True if the entry names a cell that the connection owns. */
static bool owns_cell(const sb_checkup *k, unsigned id, uint64_t what, uint64_t position) {
  uint32_t leaf_slot = sb_holding_leaf(what), queue = sb_holding_slot(what);
  if (!sb_check_is_queue(k, queue) || !is_leaf(sb_check_kind(k, leaf_slot))) {
    return false;
  }
  const sb_leaf_shm *leaf = sb_slot_at(k->b, leaf_slot);
  uint64_t word = SB_LOAD(&leaf->cells[position % SB_PAGE_CELLS].word, SB_ACQUIRE);
  return SB_LOAD(&leaf->page.object, SB_RELAXED) == object_of(k, queue, position) &&
         SB_LOAD(&leaf->page.first, SB_RELAXED) == position / SB_PAGE_CELLS * SB_PAGE_CELLS && sb_cell_is_owned(word) &&
         sb_cell_owner(word) == id;
}

static bool owns_slot(const sb_checkup *k, unsigned id, uint64_t what) {
  uint32_t slot = sb_holding_slot(what);
  if (sb_check_kind(k, slot) == SB_KIND_NONE) {
    return false;
  }
  uint64_t header = sb_check_header(k, slot);
  return sb_slot_state(header) == SB_SLOT_ALLOC && sb_slot_owner(header) == id &&
         (uint32_t)sb_slot_gen(header) == sb_holding_gen(what);
}

static bool owns_ledger(const sb_checkup *k, unsigned id, uint64_t where) {
  return where < UINT32_MAX && sb_check_is(k, (uint32_t)where, SB_KIND_LEDGER) &&
         SB_BITS(SB_LOAD(&((sb_ledger_shm *)sb_slot_at(k->b, (uint32_t)where))->owner, SB_ACQUIRE), 0, 12) == id;
}

/* True if the entry names a view that the connection holds (I39 of sb_view.h): a reference of a published slot whose
 * viewer is the connection, or a READ slot whose reader is the connection. */
static bool owns_view(const sb_checkup *k, unsigned id, uint64_t what, uint64_t where) {
  uint32_t slot = sb_holding_slot(what);
  if (!sb_check_is(k, slot, SB_KIND_MESSAGE)) {
    return false;
  }
  sb_reference r = sb_view_of(what, where);
  uint64_t header = sb_check_header(k, slot);
  if (r.ref == SB_REF_READER) {
    return sb_slot_state(header) == SB_SLOT_READ && sb_slot_gen(header) == r.gen && sb_slot_reader(header) == id;
  }
  const _Atomic uint16_t *viewer = sb_view_word(k->b, &r);
  return viewer != NULL && sb_slot_is_published(header) && sb_check_has(k, &r) && sb_peek_viewer(viewer) == id;
}

/* True if the entry names the claim of a duplicate id that the connection has (I97 of sb_duplicates.h). */
static bool owns_claim(const sb_checkup *k, unsigned id, uint64_t what, uint64_t where) {
  uint32_t slot = sb_holding_leaf(what), index = sb_id_place_index(where);
  if (!sb_check_is(k, slot, SB_KIND_IDS) || index >= SB_IDS_PER_BLOCK) {
    return false;
  }
  const sb_ids_shm *block = sb_slot_at(k->b, slot);
  uint64_t word = SB_LOAD(&block->ids[index].word, SB_ACQUIRE), tag = sb_id_place_tag(where);
  return SB_LOAD(&block->queue, SB_RELAXED) == sb_holding_slot(what) &&
         (word == sb_id_word(SB_ID_WRITING, id, tag) || word == sb_id_word(SB_ID_CLAIMED, id, tag));
}

/* Checks an entry of the holdings of connection `id`. `stale`: the entry may name an object that the connection does
 * not own, for one of two reasons. The connection may have died between writing the entry and the CAS that the entry
 * announces. Or it is an entry that the connection never clears: entry 0 of each block announces the next block, and
 * entry 1 of the first block announces a page or another structure that is about to be unlinked and freed (`page_token`
 * of sb_connection). */
static void check_entry(sb_checkup *k, unsigned id, uint64_t what, uint64_t where, bool stale) {
  uint32_t slot = sb_holding_slot(what);
  unsigned kind = sb_check_kind(k, slot);
  switch (sb_holding_kind(what)) {
    case SB_HOLD_NONE: break;
    case SB_HOLD_READING:
      if (kind != SB_KIND_QUEUE && kind != SB_KIND_LONG_QUEUE && !stale) bad(k, id, SLOT, slot, kind, 0);
      break;
    case SB_HOLD_STAGED: /* the entry may name no cell yet; sb_check_cells_owned finds cells without an entry */
      if (owns_cell(k, id, what, where)) k->named[id]++;
      break;
    case SB_HOLD_ID: /* as for STAGED: the claim may not be made yet */
      if (owns_claim(k, id, what, where)) k->named[id]++;
      break;
    case SB_HOLD_PUBLICATION:
      if (owns_slot(k, id, what)) k->seen[slot] |= SB_KNOWN_TO_OWNER;
      break;
    case SB_HOLD_SETTLING:
    case SB_HOLD_CELL:
      if (owns_cell(k, id, what, where)) {
        k->named[id]++;
      } else if (!stale) {
        sb_check_found(k, (sb_finding){SB_BAD_HOLDING, slot, id, CELL, 0, where, sb_holding_gen(what), 0});
      }
      break;
    case SB_HOLD_SLOT:
      if (owns_slot(k, id, what)) {
        k->seen[slot] |= SB_KNOWN_TO_OWNER;
      } else if (!stale) {
        bad(k, id, SLOT, slot, kind, sb_holding_gen(what));
      }
      break;
    case SB_HOLD_LEAVING:
    case SB_HOLD_PAGE:
      /* only the kind is checked: the page may have been freed since */
      if (!stale && !is_leaf(kind) && kind != SB_KIND_INNER) bad(k, id, PAGE, slot, kind, 0);
      break;
    case SB_HOLD_LEDGER:
      if (owns_ledger(k, id, where)) {
        k->seen[where] |= SB_KNOWN_TO_OWNER;
      } else if (!stale) {
        bad(k, id, LEDGER, where, 0, 0);
      }
      break;
    case SB_HOLD_VIEW:
      if (owns_view(k, id, what, where)) {
        sb_reference r = sb_view_of(what, where);
        if (r.ref == SB_REF_READER) {
          k->seen[slot] |= SB_KNOWN_TO_OWNER;
        } else {
          (void)sb_check_count(k, &r);
        }
      } else if (!stale) {
        bad(k, id, VIEW, slot, where & 0xffu, 0);
      }
      break;
    case SB_HOLD_CHUNK:
      if (where >= k->b->chunk_limit) bad(k, id, NO_CHUNK, where, what, k->b->chunk_limit);
      break;
    default: bad(k, id, ENTRY, where, what, 0); break;
  }
}

static void check_holdings(sb_checkup *k, unsigned id, uint32_t first, bool dying) {
  for (uint32_t at = first; at != 0;) {
    uint64_t header = sb_check_kind(k, at) == SB_KIND_HOLDINGS ? sb_check_header(k, at) : 0;
    if (sb_slot_state(header) != SB_SLOT_ALLOC || sb_slot_owner(header) != id ||
        (k->seen[at] & 1u) != 0) { /* a chain with a cycle ends here, too */
      bad(k, id, CHUNK, at, header, 0);
      return;
    }
    k->seen[at] |= 1u | SB_KNOWN_TO_OWNER;
    const sb_holdings_shm *chunk = sb_slot_at(k->b, at);
    uint32_t used = SB_LOAD(&chunk->used, SB_ACQUIRE);
    if (used < SB_HOLDINGS_FIRST || used > SB_HOLDINGS_PER_CHUNK) {
      bad(k, id, USED, at, used, SB_HOLDINGS_PER_CHUNK);
      used = 0;
    }
    for (uint32_t i = 0; i < used; i++) {
      uint64_t what = SB_LOAD(&chunk->entries[i].what, SB_ACQUIRE);
      bool aside = i < SB_HOLDINGS_FIRST || (at == first && i == SB_HOLDINGS_FIRST);
      check_entry(k, id, what, SB_LOAD(&chunk->entries[i].where, SB_ACQUIRE), dying || aside);
    }
    at = SB_LOAD(&chunk->next, SB_ACQUIRE);
  }
}

static void bad_connection(sb_checkup *k, unsigned id, unsigned what, uint64_t where, uint64_t found,
                           uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_CONNECTION, 0, id, what, 0, where, found, expected});
}

static void check_connection(sb_checkup *k, unsigned id, uint64_t word) {
  uint32_t record = sb_conn_slot(word), process = sb_conn_process(word);
  if (sb_conn_state(word) != SB_CONN_LIVE) {
    bad_connection(k, id, WORD, 0, word, word);
    return;
  }
  if (sb_proc_state(SB_LOAD(&k->b->processes[process].word, SB_ACQUIRE)) != SB_PROC_LIVE) {
    bad_connection(k, id, PROCESS, process, process, word);
    return;
  }
  if (record == 0) {
    return; /* it is being opened */
  }
  uint64_t header = sb_check_kind(k, record) == SB_KIND_CONNECTION ? sb_check_header(k, record) : 0;
  if (sb_slot_state(header) != SB_SLOT_ALLOC || sb_slot_owner(header) != id) {
    bad_connection(k, id, RECORD, record, header, word);
    return;
  }
  k->seen[record] |= 1u | SB_KNOWN_TO_OWNER;
  const sb_connection_shm *shm = sb_slot_at(k->b, record);
  uint32_t waiter = SB_LOAD(&shm->waiter, SB_ACQUIRE);
  if (SB_LOAD(&shm->id, SB_RELAXED) != id || SB_LOAD(&shm->process, SB_RELAXED) != process) {
    bad_connection(k, id, IDENTITY, record, SB_LOAD(&shm->id, SB_RELAXED), SB_LOAD(&shm->process, SB_RELAXED));
  }
  if (waiter != 0 && !sb_check_is(k, waiter, SB_KIND_NODE)) bad_connection(k, id, WAITER, record, waiter, word);
  check_holdings(k, id, SB_LOAD(&shm->holdings, SB_ACQUIRE), sb_liveness_is_dead(k->b, process));
}

void sb_check_connections(sb_checkup *k) {
  for (unsigned id = 0; id < SB_MAX_CONNECTIONS; id++) {
    uint64_t word = SB_LOAD(&k->b->connections[id], SB_ACQUIRE);
    if (id == 0 && word != 0) {
      bad_connection(k, id, WORD, 0, word, word); /* id 0 is no connection */
    } else if (sb_conn_state(word) != SB_CONN_FREE) {
      check_connection(k, id, word);
    }
  }
}

void sb_check_cells_owned(sb_checkup *k) {
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    if (k->owned[id] != k->named[id] && !sb_check_dying(k, id)) bad(k, id, CELLS, 0, k->named[id], k->owned[id]);
  }
}
