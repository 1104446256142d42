// SPDX-License-Identifier: Apache-2.0
#include "sb_recover.h"

#include "sb_closing.h"
#include "sb_transaction.h"
#include "sb_turns.h"
#include "sb_directory.h"
#include "sb_disposal.h"
#include "sb_drained.h"
#include "sb_groups.h"
#include "sb_value_index.h"
#include "sb_hints.h"
#include "sb_intent.h"
#include "sb_lifetime.h"
#include "sb_liveness.h"
#include "sb_paged.h"
#include "sb_parts.h"
#include "sb_slab.h"
#include "sb_view.h"
#include "sb_wait.h"

typedef void (*visitor)(sb_reap_context *w, uint64_t what, uint64_t where);

static void each_holding(sb_reap_context *w, sb_connection_shm *shm, visitor visit) {
  sb_entries_walk all = sb_entries_of(w->b, shm, w->id, 0);
  for (sb_holding_shm *h; (h = sb_entries_next(&all)) != NULL;) {
    uint64_t what = SB_LOAD(&h->what, SB_ACQUIRE); /* P8 acquire */
    if (sb_holding_kind(what) != SB_HOLD_NONE) visit(w, what, SB_LOAD(&h->where, SB_ACQUIRE));
  }
}

/* ---- slots, pages, nodes ---- */

static unsigned kind_of(sb_broker *b, uint32_t slot) {
  uint64_t chunk = SB_LOAD(&b->chunks[slot / SB_CHUNK_UNITS], SB_ACQUIRE);
  if (sb_chunk_state(chunk) != SB_CHUNK_CLASS) {
    return SB_KIND_MESSAGE;
  }
  return SB_LOAD(&b->classes[sb_chunk_class(chunk)].kind, SB_RELAXED);
}

static void publish_or_free(sb_reap_context *w, uint32_t slot, uint64_t h, bool linked) {
  if (linked) {
    (void)SB_CAS(sb_slot_header(w->b, slot), &h, sb_slot_word(SB_SLOT_PUBLISHED, 1, sb_slot_gen(h)), SB_ACQ_REL);
  } else {
    (void)sb_slab_free(w->b, slot, h);
  }
}

static bool level_linked(sb_broker *b, uint32_t slot) {
  sb_consumer_level_shm *level = sb_slot_at(b, slot);
  uint32_t queue = SB_LOAD(&level->queue, SB_RELAXED);
  if (sb_slab_queue(b, queue) == NULL) {
    return false;
  }
  sb_level_cursor at = sb_levels_of(sb_slot_at(b, queue));
  while (sb_level_next(b, &at) != NULL && at.slot != slot) {
  }
  return at.slot == slot;
}

static bool ledger_linked(sb_broker *b, uint32_t slot) {
  sb_ledger_shm *ledger = sb_slot_at(b, slot);
  uint32_t queue = SB_LOAD(&ledger->queue, SB_RELAXED);
  if (sb_slab_queue(b, queue) == NULL) {
    return false;
  }
  uint32_t at = SB_LOAD(&((sb_queue_shm *)sb_slot_at(b, queue))->ledgers, SB_ACQUIRE);
  sb_chain chain = {0};
  while (at != slot && !sb_chain_bites(&chain, at) && sb_ledger_at(b, at) != NULL) {
    at = SB_LOAD(&sb_ledger_at(b, at)->next, SB_ACQUIRE);
  }
  return at == slot;
}

static void disown(sb_reap_context *w, uint32_t slot) {
  sb_ledger_shm *l = sb_slot_at(w->b, slot);
  uint64_t owner = SB_LOAD(&l->owner, SB_ACQUIRE);
  if (SB_BITS(owner, 0, 12) == w->id) (void)SB_CAS(&l->owner, &owner, owner >> 12 << 12, SB_ACQ_REL);
}

/* True if a sweep of a closed queue unlinked the slot, and did not free it yet. */
static bool is_garbage(sb_broker *b, uint32_t slot) {
  switch (kind_of(b, slot)) {
    case SB_KIND_CONSUMER_LEVEL: return !level_linked(b, slot);
    case SB_KIND_LEDGER: return !ledger_linked(b, slot);
    case SB_KIND_LANE: return !sb_lanes_links(b, slot);
    case SB_KIND_GROUPS: return !sb_groups_links(b, slot);
    case SB_KIND_VALUE_NODE: return !sb_value_index_links(b, slot);
    case SB_KIND_IDS: return !sb_duplicates_links(b, slot);
    case SB_KIND_QUEUE:
    case SB_KIND_LONG_QUEUE:
      return sb_queue_state(SB_LOAD(&((sb_queue_shm *)sb_slot_at(b, slot))->state, SB_ACQUIRE)) == SB_QUEUE_NONE;
    default: return false;
  }
}

static void settle_slot(sb_reap_context *w, uint32_t slot, uint32_t gen) {
  uint64_t h = SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE);
  if (sb_slot_state(h) == SB_SLOT_PUBLISHED && (uint32_t)sb_slot_gen(h) == gen) {
    if (is_garbage(w->b, slot)) {
      (void)sb_slab_free(w->b, slot, h);
    } else if (kind_of(w->b, slot) == SB_KIND_LEDGER) {
      disown(w, slot); /* published, but its holding is still SLOT, not LEDGER: visit_ledgers does not find it */
    }
    return;
  }
  if (sb_slot_state(h) != SB_SLOT_ALLOC || sb_slot_owner(h) != w->id || (uint32_t)sb_slot_gen(h) != gen) {
    return;
  }
  sb_page_shm *page = sb_slot_at(w->b, slot);
  sb_ring r;
  switch (kind_of(w->b, slot)) {
    case SB_KIND_MESSAGE: (void)sb_slab_free(w->b, slot, h); break;
    case SB_KIND_LEAF:
    case SB_KIND_LONG_LEAF:
    case SB_KIND_INNER: {
      bool known = sb_ring_open(w->b, SB_LOAD(&page->object, SB_RELAXED), SB_LOAD(&page->ring, SB_RELAXED) & 0xffu, &r);
      bool linked = known && sb_page_links(w->b, &r, slot, sb_slot_gen(h));
      uint64_t coming = sb_paging_coming(sb_slot_gen(h));
      if (SB_LOAD(&page->paging, SB_ACQUIRE) == coming) {
        sb_queue_shm *q = sb_slab_queue(w->b, known ? sb_page_queue(w->b, &r) : 0);
        if (linked) sb_requeued_mark_leaf(w->b, &r, SB_LOAD(&page->first, SB_RELAXED)); /* if its link was marked */
        if (linked && q != NULL) (void)SB_ADD(&q->timers_lost, 1, SB_RELEASE);
        SB_CRASHPOINT("paging.recovered");
        /* last: this reaper may die, too */
        if (linked) (void)SB_CAS(&page->paging, &coming, SB_PAGING_THERE, SB_SEQ_CST);
        if (!linked) sb_paged_recover_coming(w->b, slot);
      }
      publish_or_free(w, slot, h, linked);
      break;
    }
    case SB_KIND_CONSUMER_LEVEL: publish_or_free(w, slot, h, level_linked(w->b, slot)); break;
    case SB_KIND_LANE: publish_or_free(w, slot, h, sb_lanes_links(w->b, slot)); break;
    case SB_KIND_GROUPS: publish_or_free(w, slot, h, sb_groups_links(w->b, slot)); break;
    case SB_KIND_VALUE_NODE: publish_or_free(w, slot, h, sb_value_index_links(w->b, slot)); break;
    case SB_KIND_IDS: publish_or_free(w, slot, h, sb_duplicates_links(w->b, slot)); break;
    case SB_KIND_LEDGER:
      if (ledger_linked(w->b, slot)) {
        disown(w, slot);
        publish_or_free(w, slot, h, true);
      } else {
        publish_or_free(w, slot, h, false);
      }
      break;
    case SB_KIND_QUEUE:
    case SB_KIND_LONG_QUEUE: publish_or_free(w, slot, h, sb_directory_links(w->b, slot)); break;
    case SB_KIND_NODE: sb_node_destroy(w->by, slot, 0); break;
    default: break; /* blocks of holdings and the record are freed last */
  }
}

static void visit_slots(sb_reap_context *w, uint64_t what, uint64_t where) {
  uint32_t slot = sb_holding_slot(what);
  if (sb_holding_kind(what) == SB_HOLD_CHUNK && where < w->b->chunk_limit) {
    sb_drained_recover(w->b, w->id, (uint32_t)where);
    sb_chunk_recover(w->b, w->id, (uint32_t)where);
  }
  if (!sb_slot_in_range(w->b, slot) || !sb_slot_ready(w->b, slot)) {
    return;
  }
  if (sb_holding_kind(what) == SB_HOLD_SLOT) {
    settle_slot(w, slot, sb_holding_gen(what));
  } else if (sb_holding_kind(what) == SB_HOLD_PAGE || sb_holding_kind(what) == SB_HOLD_LEAVING) {
    uint64_t h = SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE);
    sb_page_shm *page = sb_slot_at(w->b, slot);
    sb_ring r;
    if (sb_slot_state(h) != SB_SLOT_FREE && (uint32_t)sb_slot_gen(h) == sb_holding_gen(what) &&
        sb_ring_open(w->b, SB_LOAD(&page->object, SB_RELAXED), SB_LOAD(&page->ring, SB_RELAXED) & 0xffu, &r)) {
      if (sb_holding_kind(what) == SB_HOLD_LEAVING) {
        sb_paged_recover_leaving(w->by, &r, slot, sb_slot_gen(h));
      } else {
        sb_page_settle(w->by, &r, slot, sb_slot_gen(h));
      }
    }
  }
}

static void visit_views(sb_reap_context *w, uint64_t what, uint64_t where) {
  if (sb_holding_kind(what) == SB_HOLD_VIEW) {
    sb_view_recover(w->b, w->id, what, where);
  }
}

/* Marks a ledger of the dead connection as changing hints. Until visit_ledgers clears this mark, no process corrects
 * the queue's hints, except for the room that dead connections had reserved (I74 of sb_hints.h). The dead connection
 * may have been killed between two changes of hints that belong together. The reaper makes such changes, too, when it
 * releases cells. */
static void mark_ledgers(sb_reap_context *w, uint64_t what, uint64_t where) {
  sb_ledger_shm *l = sb_intent_ledger(w, what, where);
  if (l != NULL) sb_ledger_hinting(l, 1);
}

static void visit_cells(sb_reap_context *w, uint64_t what, uint64_t where) {
  if (sb_holding_kind(what) == SB_HOLD_CELL) {
    sb_intent_release_cell(w, sb_holding_slot(what), where);
  }
}

/* Corrects the hints of a queue; `but` as for sb_hints_reconcile. First decides a deletion that a killed process may have
 * asked for. False: the hints may still be wrong, since others are changing them. */
static bool correct_hints(sb_queue *q, const sb_ledger_shm *but) {
  sb_disposal_decide(q);
  sb_hints found = sb_hints_reconcile(q->c->b, q->shm, but);
  return found == SB_HINTS_RIGHT || found == SB_HINTS_SET_RIGHT;
}

/* Corrects those counts of a queue's nodes whose error could suppress a wake. Notifies its waiting nodes. The caller
 * has corrected the hints. `dead`: a connection that is ending, and counts as gone; 0 = none. `removes`: the handle has
 * its own ledger, so the function may close the queue and remove messages. Without `removes`, the function does only
 * what needs no memory: the housekeeper then closes a queue whose time has come, the sweep of the directory empties a
 * closed queue, and the next put evicts. */
static void recover(sb_queue *q, unsigned dead, bool removes) {
  sb_connection *by = q->c;
  (void)sb_nodes_recount(by->b, q->slot, SB_RECOUNT_HARMFUL);
  if (removes && sb_queue_state(q->state) == SB_QUEUE_OPEN) (void)sb_lifetime_end(q, dead);
  if (sb_queue_is_open(q) && sb_queue_state(q->state) == SB_QUEUE_OPEN) {
    if (removes) (void)sb_limits_enforce(q); /* a producer may have been killed between its append and the eviction */
    (void)sb_lanes_count(by->b, q->slot);    /* advances the tails */
    sb_exclusive_succeed(by, q->slot);
    (void)sb_dispatch_look(by, q->slot);
    (void)SB_ADD(&q->shm->early, 1, SB_SEQ_CST);  /* P32 of sb_following.h: perhaps the dead process did not */
    SB_STORE(&q->shm->held_back, 1u, SB_SEQ_CST); /* P39 of sb_window.h: perhaps the dead process told nobody */
    sb_notify_backlog_arrived(q);
  } else {
    if (removes) (void)sb_disposal_empty(q);
    sb_notify_wake_all(by, q->slot);
  }
  sb_notify_room_made(by, q->shm, q->slot);
}

/* Recovers the queue of a ledger, for a reaper that has no memory for a holding of its own. The dead connection stays
 * the owner of the ledger, and so keeps the queue object from being freed (I20 of sb_ledger.h). */
static void recover_in_its_name(sb_reap_context *w, sb_ledger_shm *l) {
  sb_queue q;
  if (sb_queue_stand_in(w->by, SB_LOAD(&l->queue, SB_ACQUIRE), &q, l) == SB_OK) recover(&q, w->id, false);
}

/* Corrects the hints of the ledger's queue, and ends the changes of hints that the ledger marks. In this order: until
 * the hints are right, the ledger is marked and has a dead owner, so that a call that doubts the counts finds it
 * (sb_ledger_stuck), even if this reaper is killed. Two reapers that correct one queue wait for each other in this way:
 * then each of them tries again after its mark is gone, and the last one succeeds. */
static void end_hinting(sb_reap_context *w, sb_ledger_shm *l) {
  sb_queue q;
  bool there = sb_queue_stand_in(w->by, SB_LOAD(&l->queue, SB_ACQUIRE), &q, l) == SB_OK;
  bool right = there && correct_hints(&q, l);
  SB_CRASHPOINT("recover.hints.corrected");
  sb_ledger_hinting_ended(l);
  if (there && !right) (void)correct_hints(&q, NULL);
}

static void visit_ledgers(sb_reap_context *w, uint64_t what, uint64_t where) {
  sb_ledger_shm *l = sb_intent_ledger(w, what, where);
  if (l == NULL) {
    return;
  }
  uint64_t holding = SB_LOAD(&l->holding, SB_ACQUIRE); /* visit_cells released the cells: their number becomes 0 */
  (void)SB_CAS(&l->holding, &holding, holding >> 32 << 32, SB_ACQ_REL);
  const sb_queue_shm *shm = sb_slab_queue(w->b, SB_LOAD(&l->queue, SB_ACQUIRE));
  if (shm != NULL)
    sb_groups_end_dead(w->b, shm, w->id); /* I93 of sb_groups.h: visit_cells made its messages AVAILABLE */
  end_hinting(w, l);
  sb_queue q; /* inherits the ledger: if this process is killed, too, its reaper continues */
  sb_status status = sb_queue_inherit(w->by, SB_LOAD(&l->queue, SB_ACQUIRE), &q, l, w->id);
  if (status == SB_OK) {
    SB_CRASHPOINT("recover.ledger.inherited");
    recover(&q, w->id, true);
    sb_queue_detach(&q);
  } else if (status != SB_SETTLED) {
    recover_in_its_name(w, l); /* does nothing if the queue is gone */
    SB_CRASHPOINT("recover.ledger.unowned");
    disown(w, (uint32_t)where); /* last: if this reaper is killed before, the next one recovers the queue */
  }
}

void sb_recover_queue(sb_connection *by, uint32_t slot) {
  sb_queue q;
  sb_status status = sb_queue_attach(by, slot, &q, true);
  bool attached = status == SB_OK;
  if (!attached && status != SB_DELETED) status = sb_queue_stand_in(by, slot, &q, NULL);
  if (status == SB_OK) {
    (void)correct_hints(&q, NULL);
    recover(&q, 0, attached);
    sb_queue_detach(&q);
  }
}

/* ---- connections and processes ---- */

/* Frees the blocks of holdings, the last one first, so that after a kill the next reaper finds the blocks that are
 * left. */
static void free_holdings(sb_reap_context *w, sb_connection_shm *shm) {
  uint32_t last[64], n;
  do {
    sb_holdings_walk h;
    n = 0;
    for (sb_holdings_shm *k = sb_holdings_first(&h, w->b, shm, w->id); k != NULL; k = sb_holdings_next(&h, k)) {
      last[n++ % 64] = h.slot;
    }
    for (uint32_t i = n; i > 0 && i + 64 > n; i--) {
      sb_slab_free_now(w->b, last[(i - 1) % 64]);
      SB_CRASHPOINT("recover.holdings.freed");
    }
  } while (n > 64);
  SB_STORE(&shm->holdings, 0u, SB_RELEASE);
}

static bool in_chain(sb_reap_context *w, sb_connection_shm *shm, uint32_t slot) {
  sb_holdings_walk h;
  sb_holdings_shm *k = sb_holdings_first(&h, w->b, shm, w->id);
  while (k != NULL && h.slot != slot) k = sb_holdings_next(&h, k);
  return k != NULL;
}

/* Frees the slot that `what` announces, if it is a block of holdings or a record, and was never linked. `what` is entry
 * 0 of a block, or the entry `boot` of the process slot. */
static void free_stray(sb_reap_context *w, sb_connection_shm *shm, uint64_t what) {
  uint32_t slot = sb_holding_slot(what);
  if (sb_holding_kind(what) == SB_HOLD_CHUNK || sb_holding_kind(what) != SB_HOLD_SLOT ||
      !sb_slot_in_range(w->b, slot) || !sb_slot_ready(w->b, slot)) {
    return;
  }
  uint64_t h = SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE);
  bool ours = sb_slot_state(h) == SB_SLOT_ALLOC && sb_slot_owner(h) == w->id &&
              (uint32_t)sb_slot_gen(h) == sb_holding_gen(what);
  unsigned kind = kind_of(w->b, slot);
  if (ours && ((kind == SB_KIND_HOLDINGS && (shm == NULL || !in_chain(w, shm, slot))) ||
               (kind == SB_KIND_CONNECTION && shm != sb_slot_at(w->b, slot)))) {
    (void)sb_slab_free(w->b, slot, h);
  }
}

static void end_connection(sb_reap_context *w, sb_connection_shm *shm, const sb_holding_shm *boot) {
  uint64_t word = SB_LOAD(&w->b->connections[w->id], SB_ACQUIRE);
  uint64_t booted = SB_LOAD(&boot->what, SB_ACQUIRE);
  if (sb_holding_kind(booted) == SB_HOLD_CHUNK) {
    sb_drained_recover(w->b, w->id, (uint32_t)SB_LOAD(&boot->where, SB_ACQUIRE));
    sb_chunk_recover(w->b, w->id, (uint32_t)SB_LOAD(&boot->where, SB_ACQUIRE));
  }
  free_stray(w, shm, booted);
  if (shm != NULL) {
    sb_holdings_walk h;
    for (sb_holdings_shm *k = sb_holdings_first(&h, w->b, shm, w->id); k != NULL; k = sb_holdings_next(&h, k)) {
      free_stray(w, shm, SB_LOAD(&k->entries[0].what, SB_ACQUIRE));
    }
    sb_slab_restore_claims(w->b, shm);
    free_holdings(w, shm);
    if (w->by->id == w->id) sb_gate_leave_record(w->by);
    sb_slab_free_now(w->b, sb_slot_of(w->b, shm));
  }
  SB_CRASHPOINT("recover.connection.freed");
  (void)SB_CAS(&w->b->connections[w->id], &word, sb_conn_word(SB_CONN_FREE, 0, 0, sb_conn_epoch(word)), SB_ACQ_REL);
}

/* Rolls the commit of the dead connection forward or back, as the commit word decides. The caller visits the other
 * slots and cells of the connection afterwards. */
static void recover_commit(sb_reap_context *w, sb_connection_shm *shm) {
  if (sb_transaction_is_decided(shm)) {
    bool stored = SB_LOAD(&shm->commit, SB_RELAXED) == SB_COMMIT_STORED;
    if (stored)
      sb_turns_commit_begins(w->b); /* I125 of sb_turns.h: the dead connection may have raised the number, or not */
    each_holding(w, shm, sb_transaction_roll_forward);
    each_holding(w, shm, sb_transaction_remember_ids); /* I132 of sb_duplicates.h */
    if (stored) sb_turns_commit_ends(w->b);
  } else {
    each_holding(w, shm, sb_transaction_roll_back);
    each_holding(w, shm, sb_transaction_free_body);
  }
}

static void reap_connection(sb_connection *by, unsigned id, const sb_holding_shm *boot) {
  sb_reap_context w = {by, by->b, id, false};
  sb_connection_shm *shm = sb_connection_record(by->b, id);
  if (shm != NULL) {
    SB_STORE(&shm->waiter, 0u, SB_RELEASE);
    each_holding(&w, shm, sb_intent_resolve);
    each_holding(&w, shm, mark_ledgers);
    recover_commit(&w, shm);
    each_holding(&w, shm, visit_slots);
    each_holding(&w, shm, visit_views);
    each_holding(&w, shm, visit_cells);
    each_holding(&w, shm, visit_ledgers);
  }
  sb_parts_sweep(by->b); /* parts that the dead connection, or its earlier reaper, did not finish freeing */
  end_connection(&w, shm, boot);
}

bool sb_recover_process(sb_connection *by, uint32_t process) {
  sb_broker *b = by->b;
  if (!sb_liveness_begin_reaping(b, process)) {
    return false;
  }
  if (!sb_segments_ready(b)) { /* what the dead process owns may lie in a segment that this process cannot map */
    sb_liveness_end_reaping(b, process, false);
    return false;
  }
  SB_CRASHPOINT("recover.begun");
  sb_lock(by);
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
    if (sb_conn_state(word) == SB_CONN_LIVE && sb_conn_process(word) == process) {
      reap_connection(by, id, &b->processes[process].boot);
    }
  }
  SB_STORE(&b->processes[process].boot.what, SB_HOLD_NONE, SB_RELEASE);
  (void)SB_ADD(&b->header->reaped, 1, SB_RELAXED);
  sb_notify_room_made(by, NULL, 0);
  sb_unlock(by);
  sb_liveness_end_reaping(b, process, true);
  return true;
}

uint32_t sb_recover_all(sb_connection *by) {
  uint32_t reaped = 0;
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) {
    if (sb_liveness_is_dead(by->b, i)) {
      reaped += sb_recover_process(by, i);
    }
  }
  return reaped;
}

/* ---- a connection that closes ---- */

/* True if `what` names the slot of a reservation: the application may still write into that slot. */
static bool is_written(const sb_reap_context *w, uint64_t what) {
  uint32_t slot = sb_holding_slot(what);
  bool is_slot = sb_holding_kind(what) == SB_HOLD_SLOT && sb_slot_in_range(w->b, slot) && sb_slot_ready(w->b, slot);
  uint64_t h = is_slot ? SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE) : 0;
  return is_slot && sb_slot_state(h) == SB_SLOT_ALLOC && sb_slot_owner(h) == w->id &&
         (uint32_t)sb_slot_gen(h) == sb_holding_gen(what) && kind_of(w->b, slot) == SB_KIND_MESSAGE;
}

static void find_views(sb_reap_context *w, uint64_t what, uint64_t where) {
  (void)where;
  w->views_live = w->views_live || sb_holding_kind(what) == SB_HOLD_VIEW || is_written(w, what);
}

bool sb_recover_close(sb_connection *c) {
  sb_reap_context w = {c, c->b, c->id, false};
  each_holding(&w, c->shm, find_views);
  if (w.views_live) {
    return false;
  }
  sb_slab_return_cache(c);
  static const sb_holding_shm nothing;
  end_connection(&w, c->shm, &nothing);
  return true;
}
