// SPDX-License-Identifier: Apache-2.0
/* Public calls: what the consumers of a queue wait for (sb_waits.h), and what the memory has of it (sb_regions.h). */
#include "sb_api.h"
#include "sb_regions.h"
#include "sb_waits.h"

/* The last watermark that was found, and from where: consumers that share the head have the same one. */
typedef struct {
  uint64_t from, watermark; /* from UINT64_MAX: none was looked for */
} looked;

static uint64_t watermark_from(sb_broker *b, uint32_t slot, uint64_t from, looked *last) {
  uint64_t position;
  if (from != last->from) {
    bool found = sb_waits_watermark(b, slot, from, &position);
    *last = (looked){from, found ? sb_lanes_sequence(b, slot, position) : UINT64_MAX};
  }
  return last->watermark;
}

/* How far it has come, and what lies before it. */
static void describe_search(sb_broker *b, uint32_t slot, const sb_node_shm *n, looked *last, sb_consumer_facts *f) {
  uint64_t reached;
  sb_ring r;
  f->reached = f->watermark = UINT64_MAX;
  f->lag = 0;
  if (!sb_waits_reached(b, slot, n, &reached) || !sb_lanes_ring(b, slot, reached, &r)) {
    return;
  }
  uint64_t tail = sb_ring_exact_tail(b, &r);
  f->reached = sb_lanes_sequence(b, slot, reached);
  f->lag = tail > reached ? tail - reached : 0;
  f->watermark = watermark_from(b, slot, reached, last);
}

static void describe(sb_broker *b, uint32_t slot, const sb_node_shm *n, sb_waits_for plain, looked *last,
                     sb_consumer_facts *f) {
  uint64_t word = SB_LOAD(&n->word, SB_ACQUIRE);
  sb_waits_for waits = sb_waits_of(b, slot, n, plain);
  *f = (sb_consumer_facts){.connection = sb_node_conn(word),
                           .pid = SB_LOAD(&n->pid, SB_RELAXED),
                           .state = sb_node_state(word),
                           .flags = SB_LOAD(&n->flags, SB_RELAXED),
                           .prefetch = SB_LOAD(&n->prefetch, SB_RELAXED),
                           .unacked = SB_LOAD(&n->unacked, SB_RELAXED),
                           .channel = SB_LOAD(&n->channel, SB_RELAXED),
                           .priority = SB_LOAD(&n->priority, SB_RELAXED),
                           .delivered = SB_LOAD(&n->delivered, SB_RELAXED),
                           .wakes = SB_LOAD(&n->wakes, SB_RELAXED),
                           .prefetch_bytes = SB_LOAD(&n->prefetch_bytes, SB_RELAXED),
                           .waits_for = waits,
                           .still_ns = sb_waits_still_ns(sb_slot_at(b, slot), n, waits),
                           .told = (uint32_t)SB_LOAD(&n->told, SB_RELAXED)};
  describe_search(b, slot, n, last, f);
}

int64_t sb_queue_consumers(sb_connection *c, uint32_t slot, sb_consumer_facts *facts, uint32_t room) {
  sb_status status = sb_api_enter(c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  sb_ring list;
  uint64_t position = 0;
  uint32_t node, n = 0;
  if (sb_ring_open(c->b, slot, SB_RING_ALL, &list)) {
    sb_waits_for plain = sb_waits_look(c->b, slot);
    looked last = {UINT64_MAX, UINT64_MAX};
    while (n < room && (node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
      describe(c->b, slot, sb_slot_at(c->b, node), plain, &last, &facts[n++]);
    }
  }
  sb_api_leave(c);
  return n;
}

bool sb_queue_regions(sb_connection *c, uint32_t slot, sb_regions *facts) {
  bool more = false;
  if (sb_api_enter(c) == SB_OK) {
    more = sb_regions_step(c, slot, facts);
    sb_api_leave(c);
  }
  return more;
}

/* ---- the housekeeper ---- */

uint32_t sb_housekeeper_with_still(const sb_queue_memory *memories, uint32_t count, uint64_t until_ns,
                                   uint32_t *indexes, uint32_t room) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < count && found < room; i++) {
    if (memories[i].still_ns != 0 && memories[i].still_ns <= until_ns) indexes[found++] = i;
  }
  return found;
}

bool sb_housekeeper_tell_still(sb_connection *c, uint32_t slot, uint64_t until_ns, sb_consumer_facts *facts) {
  uint32_t node = 0;
  looked last = {UINT64_MAX, UINT64_MAX};
  if (sb_api_enter(c) == SB_OK) {
    if (sb_slab_queue(c->b, slot) != NULL) node = sb_waits_tell(c, slot, until_ns);
    if (node != 0) {
      describe(c->b, slot, sb_slot_at(c->b, node), sb_waits_look(c->b, slot), &last, facts);
      (void)SB_ADD(&c->b->header->stalled, 1u, SB_RELAXED); /* the next tick counts them again */
    }
    sb_api_leave(c);
  }
  return node != 0;
}
