// SPDX-License-Identifier: Apache-2.0
#include "sb_disposal.h"

#include "sb_closing.h"
#include "sb_duplicates.h"
#include "sb_groups.h"
#include "sb_paged.h"
#include "sb_value_index.h"
#include "sb_schedule.h"
#include "sb_slab.h"

/* Raises `hinting`, and appends the CLOSING cell. After a success the caller lowers `hinting`. */
static sb_status append_closing(sb_queue *q, uint64_t flags, uint64_t *position) {
  sb_ledger_hinting(q->ledger, 1);
  /* I23: the CLOSING cell has no message, so it counts as taken. `admitted` comes first: the other way round, a put
   * would see room for one more message in between. */
  (void)SB_ADD(&q->shm->admitted, 1, SB_SEQ_CST);
  (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST);
  sb_status status = sb_queue_append(q, &q->lanes[0], SB_CELL_CLOSING | flags, SB_APPEND_CLOSING, NULL, position);
  if (status != SB_OK) {
    bool undo = status != SB_DELETED; /* a closed queue needs no hints */
    if (undo) {
      (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
      (void)SB_SUB(&q->shm->admitted, 1, SB_SEQ_CST);
    }
    sb_ledger_hinting(q->ledger, -1);
    if (undo) (void)sb_limits_enforce(q); /* I42 */
  }
  return status;
}

/* The reason why a deletion did not close the queue: SB_IN_USE or SB_NOT_EMPTY. If one condition is set, that condition
 * failed, even if it holds by now. If a condition on consumers and one on messages are set, this call does not know which
 * of them failed, since another process may have decided the deletion. So it checks both again. SB_DONE: both hold by
 * now. `position`: of the CLOSING cell; unused in a queue with priorities. */
static sb_status why_it_stays(sb_queue *q, uint64_t flags, uint64_t position) {
  sb_broker *b = q->c->b;
  bool both = (flags & SB_CLOSING_IF_UNUSED) != 0 && flags != SB_CLOSING_IF_UNUSED;
  if ((flags & SB_CLOSING_IF_UNUSED) != 0 && (!both || SB_LOAD(&q->shm->consumers, SB_SEQ_CST) > 0)) {
    return SB_IN_USE;
  }
  if (!both) {
    return SB_NOT_EMPTY;
  }
  bool found = sb_queue_has_lanes(q) ? sb_closing_has_message(b, q->slot, flags)
                                     : sb_closing_finds_message(b, &q->lanes[0].ring, position, flags);
  return found ? SB_NOT_EMPTY : SB_DONE;
}

/* The same as close_once for a queue with priorities, which has no CLOSING cell (I79 of sb_closing.h). */
static sb_status close_lanes_once(sb_queue *q, uint64_t flags) {
  sb_broker *b = q->c->b;
  if (!sb_closing_ask(b, q->slot, flags)) {
    return SB_DELETED;
  }
  SB_CRASHPOINT("queue.close.asked");
  if (sb_closing_ends(b, q->slot)) {
    return SB_OK;
  }
  return why_it_stays(q, flags, 0);
}

static sb_status close_once(sb_queue *q, uint64_t flags) {
  uint64_t position = 0;
  if (sb_queue_has_lanes(q)) {
    return close_lanes_once(q, flags);
  }
  const sb_ring *r = &q->lanes[0].ring;
  sb_status status = append_closing(q, flags, &position);
  if (status != SB_OK) {
    return status;
  }
  SB_CRASHPOINT("queue.close.closing");
  bool decided = sb_closing_resolve(q->c->b, q->c, q->shm, r, position);
  bool stays = sb_queue_is_open(q);
  /* The queue stays, so the CLOSING cell is a TOMBSTONE by now. append_closing raised `taken` for it. The tail must
   * pass it, too, before `hinting` is lowered: then `tail` and `taken` agree again. */
  if (stays) (void)sb_ring_exact_tail(q->c->b, r);
  sb_ledger_hinting(q->ledger, -1);
  if (!stays) {
    return SB_OK;
  }
  (void)sb_limits_enforce(q); /* `taken` counted the cell before the cell was there: a put may have evicted too few */
  return decided ? why_it_stays(q, flags, position) : SB_CORRUPT;
}

void sb_disposal_decide(sb_queue *q) {
  sb_broker *b = q->c->b;
  if (sb_queue_has_lanes(q)) {
    (void)sb_closing_ends(b, q->slot);
  } else {
    (void)sb_closing_resolve(b, q->c, q->shm, &q->lanes[0].ring, sb_ring_exact_tail(b, &q->lanes[0].ring));
  }
}

#define TRIES 8u /* a queue whose users come and go so often during one call is in use */

sb_status sb_disposal_close_if(sb_queue *q, uint64_t flags, uint64_t *removed) {
  sb_status status = SB_DONE;
  *removed = 0;
  for (unsigned tries = 0; status == SB_DONE && tries < TRIES; tries++) status = close_once(q, flags);
  if (status == SB_OK) *removed = sb_disposal_empty(q);
  return status == SB_DONE ? SB_IN_USE : status;
}

sb_status sb_disposal_close(sb_queue *q, bool if_unused, bool if_empty, uint64_t *removed) {
  uint64_t flags = (if_unused ? SB_CLOSING_IF_UNUSED : 0) | (if_empty ? SB_CLOSING_IF_EMPTY : 0);
  return sb_disposal_close_if(q, flags, removed);
}

/* Empties one lane, as far as there is memory for a holding. *paged: messages have ended that were not in the memory. */
static uint64_t empty_lane(sb_queue *q, const sb_ring *r, bool *paged) {
  sb_broker *b = q->c->b;
  uint64_t removed = 0, at = SB_LOAD(r->base, SB_RELAXED);
  sb_leaf_ref leaf;
  sb_status status;
  while ((status = sb_ring_find_leaf(b, r, at, &leaf, &at)) == SB_OK || status == SB_PAGED) {
    if (status == SB_PAGED) {
      sb_paged_end(q->c, r, at);
      *paged = true;
      continue;
    }
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = sb_paged_word(b, r, &leaf, at);
      unsigned state = sb_cell_state(word);
      if (!sb_cell_of(word, leaf.gen) || state == SB_CELL_FREE || state == SB_CELL_CLOSED) {
        return removed;
      }
      if (state != SB_CELL_AVAILABLE && state != SB_CELL_SCHEDULED) {
        continue;
      }
      uint64_t token;
      sb_taken t;
      if (sb_holding_take(q->c, &token) != SB_OK) {
        return removed;
      }
      if (sb_schedule_take(q, at, state, token, &t)) {
        (void)sb_dispose(q, token, SB_REASON_KILLED);
        removed++;
      } else {
        sb_holding_give(q->c, token);
      }
    }
  }
  return removed;
}

uint64_t sb_disposal_empty(sb_queue *q) {
  uint64_t removed = 0, ready = sb_queue_count_ready(q->c->b, q->shm);
  bool paged = false;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(q->c->b, q->slot); sb_lanes_next(&all, &r);)
    removed += empty_lane(q, &r, &paged);
  return paged && removed < ready ? ready : removed;
}

/* Lists the object in `slot` in the holdings of `c`. The caller then unlinks the object, and frees it. If the caller is
 * killed between these two steps, its reaper frees the object. *gen: the generation of the object. The caller must free
 * only this generation: a process that was killed earlier may have listed the same object, and the reaper of that
 * process may free it as soon as it is unlinked. False: the slot is linked, but FREE, so the chain is broken. */
static bool let_go(sb_connection *c, uint32_t slot, uint64_t *gen) {
  uint64_t header = SB_LOAD(sb_slot_header(c->b, slot), SB_ACQUIRE);
  *gen = sb_slot_gen(header);
  sb_holding_set(c->b, c->page_token, sb_holding_what(SB_HOLD_SLOT, slot, *gen), 0);
  return sb_slot_state(header) != SB_SLOT_FREE;
}

static bool any_message(uint64_t word) { return sb_cell_has_message(word); }

static bool has_message(sb_broker *b, uint32_t slot) {
  bool found = false;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, slot); !found && sb_lanes_next(&all, &r);) {
    found = sb_ring_has(b, &r, UINT64_MAX, any_message);
  }
  return found;
}

/* Makes a CLOSED queue FREEING, then looks for an owner of a ledger (I20). Does nothing if a killed process left the
 * queue FREEING. False: a connection has opened the queue, which is CLOSED again. */
static bool begin_freeing(sb_broker *b, sb_queue_shm *q, uint64_t state) {
  if (sb_queue_state(state) == SB_QUEUE_FREEING) {
    return true;
  }
  SB_STORE(&q->state, sb_queue_word(SB_QUEUE_FREEING, sb_queue_incarnation(state)), SB_SEQ_CST);
  SB_CRASHPOINT("queue.freeing");
  bool owned = sb_ledger_owned(b, q);
  if (owned) SB_STORE(&q->state, state, SB_RELEASE);
  return !owned;
}

static void free_lanes(sb_connection *c, sb_queue_shm *q) {
  uint32_t slot = SB_LOAD(&q->lanes, SB_ACQUIRE);
  sb_ring r;
  while (sb_ring_open(c->b, slot, SB_RING_LANE, &r)) {
    sb_lane_shm *lane = sb_slot_at(c->b, slot);
    uint32_t next = SB_LOAD(&lane->next, SB_ACQUIRE);
    uint64_t gen;
    sb_ring_destroy(c, &r);
    bool whole = let_go(c, slot, &gen);
    SB_STORE(&q->lanes, next, SB_RELEASE); /* one by one: after a kill another process frees the rest */
    (void)sb_slab_free_gen(c->b, slot, gen);
    slot = whole ? next : 0;
  }
}

static void free_groups(sb_connection *c, sb_queue_shm *q) {
  uint32_t slot = SB_LOAD(&q->groups, SB_ACQUIRE);
  uint64_t gen;
  if (slot != 0 && sb_groups_at(c->b, slot) != NULL && let_go(c, slot, &gen)) {
    SB_STORE(&q->groups, 0u, SB_RELEASE);
    (void)sb_slab_free_gen(c->b, slot, gen);
  }
}

static void free_ids(sb_connection *c, sb_queue_shm *q) {
  uint32_t slot = SB_LOAD(&q->ids, SB_ACQUIRE);
  for (const sb_ids_shm *block; (block = sb_duplicates_at(c->b, slot)) != NULL;) {
    uint32_t next = SB_LOAD(&block->next, SB_ACQUIRE);
    uint64_t gen;
    bool whole = let_go(c, slot, &gen);
    SB_STORE(&q->ids, next, SB_RELEASE); /* one by one: after a kill another process frees the rest */
    (void)sb_slab_free_gen(c->b, slot, gen);
    slot = whole ? next : 0;
  }
}

static void free_levels(sb_connection *c, sb_queue_shm *q) {
  uint32_t level = SB_LOAD(&q->consumer_levels, SB_ACQUIRE);
  while (sb_slab_object(c->b, level, SB_KIND_CONSUMER_LEVEL) != NULL) {
    sb_consumer_level_shm *l = sb_slot_at(c->b, level);
    uint32_t next = SB_LOAD(&l->next, SB_ACQUIRE);
    uint64_t gen;
    sb_ring r;
    for (uint32_t id = SB_RING_INTERESTED; id <= SB_RING_NOTIFIED; id++) {
      if (sb_ring_open(c->b, level, id, &r)) sb_ring_destroy(c, &r);
    }
    bool whole = let_go(c, level, &gen);
    SB_STORE(&q->consumer_levels, next, SB_RELEASE); /* one by one: after a kill another process frees the rest */
    (void)sb_slab_free_gen(c->b, level, gen);
    level = whole ? next : 0;
  }
}

/* Frees the ledgers, and seals their list (I20). Also frees the ledgers that are linked meanwhile, by connections that
 * looked at the queue before it became FREEING. */
static void free_ledgers(sb_connection *c, sb_queue_shm *q) {
  uint32_t ledger = SB_LOAD(&q->ledgers, SB_ACQUIRE);
  while (ledger != SB_LEDGERS_SEALED) {
    const sb_ledger_shm *l = sb_ledger_at(c->b, ledger); /* NULL: the list ends here */
    uint64_t gen;
    bool whole = l != NULL && let_go(c, ledger, &gen);
    uint32_t next = whole ? SB_LOAD(&l->next, SB_ACQUIRE) : SB_LEDGERS_SEALED;
    if (SB_CAS(&q->ledgers, &ledger, next, SB_ACQ_REL)) {
      if (whole) (void)sb_slab_free_gen(c->b, ledger, gen);
      ledger = next;
    }
  }
}

bool sb_disposal_free(sb_connection *c, uint32_t slot) {
  sb_broker *b = c->b;
  sb_queue_shm *q = sb_slot_at(b, slot);
  sb_ring r;
  uint64_t gen, state = SB_LOAD(&q->state, SB_ACQUIRE);
  if (!sb_queue_is_deleted(state) || sb_ledger_owned(b, q) || sb_slab_queue(b, slot) == NULL || has_message(b, slot) ||
      !begin_freeing(b, q, state)) {
    return false;
  }
  static const uint32_t rings[] = {SB_RING_CELLS,          SB_RING_ALL,  SB_RING_NON_ACQUIRING,
                                   SB_RING_NOT_INTERESTED, SB_RING_ROOM, SB_RING_SCHEDULE};
  for (unsigned i = 0; i < sizeof rings / sizeof rings[0]; i++) {
    if (sb_ring_open(b, slot, rings[i], &r)) sb_ring_destroy(c, &r);
  }
  free_lanes(c, q);
  free_groups(c, q);
  sb_value_index_free(c, q);
  free_ids(c, q);
  free_levels(c, q);
  free_ledgers(c, q);
  (void)let_go(c, slot, &gen);
  SB_STORE(&q->state, sb_queue_word(SB_QUEUE_NONE, sb_queue_incarnation(state) + 1), SB_RELEASE);
  (void)sb_slab_free_gen(b, slot, gen);
  return true;
}
