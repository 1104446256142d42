// SPDX-License-Identifier: Apache-2.0
#include "sb_exclusive.h"

#include "sb_liveness.h"
#include "sb_slab.h"

#define TENTATIVE (UINT64_C(1) << 31)
#define MANY 100000u /* a claim that changes so often during one call is damaged */

static uint32_t node_of(uint64_t claim) { return (uint32_t)SB_BITS(claim, 0, 28); }
static uint64_t claim_of(const sb_node_shm *n, uint32_t slot) {
  return (uint64_t)slot | SB_FIELD(SB_LOAD(&n->registration, SB_ACQUIRE), 32);
}

static bool single_active(const sb_queue_shm *q) {
  return (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_SINGLE_ACTIVE) != 0;
}

/* True if the node of the claim is registered; *word is then the word of the node. The registration is read before and
 * after the word. Registrations are unique, so if both reads are equal, the word belongs to this registration. */
static bool is_registered(sb_broker *b, uint64_t claim, uint64_t *word) {
  const sb_node_shm *n = sb_node_at(b, node_of(claim));
  uint32_t registration = (uint32_t)(claim >> 32);
  if (n == NULL || SB_LOAD(&n->registration, SB_ACQUIRE) != registration) {
    return false;
  }
  *word = SB_LOAD(&n->word, SB_SEQ_CST); /* P16 */
  return SB_LOAD(&n->registration, SB_ACQUIRE) == registration && sb_node_state(*word) != SB_NODE_REMOVED;
}

static bool lives(sb_broker *b, uint64_t word) {
  uint64_t connection = SB_LOAD(&b->connections[sb_node_conn(word)], SB_ACQUIRE);
  return sb_conn_state(connection) == SB_CONN_LIVE && !sb_liveness_is_dead(b, sb_conn_process(connection));
}

static bool excludes(sb_broker *b, uint64_t claim) {
  uint64_t word;
  return is_registered(b, claim, &word) && lives(b, word);
}

/* ---- exclusive consumers ---- */

static bool has_ordinary_consumer(sb_connection *c, uint32_t queue) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  while (sb_ring_open(c->b, queue, SB_RING_ALL, &list) &&
         (node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
    const sb_node_shm *n = sb_slot_at(c->b, node);
    uint32_t flags = SB_LOAD(&n->flags, SB_RELAXED);
    uint64_t word = SB_LOAD(&n->word, SB_SEQ_CST); /* P16: after the claim */
    if ((flags & SB_NODE_COUNTED) != 0 && (flags & SB_NODE_EXCLUSIVE) == 0 && sb_node_state(word) != SB_NODE_REMOVED &&
        lives(c->b, word)) {
      return true;
    }
  }
  return false;
}

static sb_status claim(sb_connection *c, sb_queue_shm *q, uint32_t queue, uint32_t node) {
  uint64_t mine = claim_of(sb_slot_at(c->b, node), node), found = SB_LOAD(&q->exclusive, SB_SEQ_CST);
  do {
    if (single_active(q) || excludes(c->b, found)) {
      return SB_ACCESS;
    }
  } while (!SB_CAS(&q->exclusive, &found, mine | TENTATIVE, SB_SEQ_CST)); /* P16: before the list is read */
  SB_CRASHPOINT("claim.tentative");
  uint64_t tentative = mine | TENTATIVE;
  bool alone = !has_ordinary_consumer(c, queue);
  return SB_CAS(&q->exclusive, &tentative, alone ? mine : 0, SB_SEQ_CST) && alone ? SB_OK : SB_ACCESS;
}

static sb_status keep_out(sb_connection *c, sb_queue_shm *q) {
  uint64_t found = SB_LOAD(&q->exclusive, SB_SEQ_CST); /* P16: after the consumer was registered */
  for (unsigned tries = 0; found != 0 && excludes(c->b, found) && tries < MANY; tries++) {
    if ((found & TENTATIVE) == 0) {
      return SB_ACCESS;
    }
    if (SB_CAS(&q->exclusive, &found, 0, SB_SEQ_CST)) {
      return SB_OK; /* the CAS by which the claimant would confirm its claim fails now, so the claimant gives up */
    }
  }
  return SB_OK;
}

/* ---- a single active consumer ---- */

/* The consumer of the highest priority; of several such consumers, the one that registered first. 0 = none. */
static uint32_t next_active(sb_connection *c, uint32_t queue) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node, best = 0;
  int32_t highest = 0;
  while (sb_ring_open(c->b, queue, SB_RING_ALL, &list) &&
         (node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
    const sb_node_shm *n = sb_slot_at(c->b, node);
    int32_t priority = SB_LOAD(&n->priority, SB_RELAXED);
    if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_COUNTED) != 0 && (best == 0 || priority > highest)) {
      best = node;
      highest = priority;
    }
  }
  return best;
}

void sb_exclusive_succeed(sb_connection *c, uint32_t queue) {
  sb_queue_shm *q = sb_slot_at(c->b, queue);
  uint64_t found = SB_LOAD(&q->exclusive, SB_SEQ_CST), word;
  for (unsigned tries = 0; single_active(q) && tries < MANY; tries++) {
    if (is_registered(c->b, found, &word)) {
      if ((SB_LOAD(&((sb_node_shm *)sb_slot_at(c->b, node_of(found)))->flags, SB_RELAXED) & SB_NODE_STANDBY) != 0) {
        sb_notify_node(c->b, node_of(found)); /* I54 */
      }
      return;
    }
    uint32_t next = next_active(c, queue);
    if (next == 0) {
      return; /* the next consumer that registers sees that none is active */
    }
    if (SB_CAS(&q->exclusive, &found, claim_of(sb_slot_at(c->b, next), next), SB_SEQ_CST)) {
      SB_CRASHPOINT("claim.active");
      found = SB_LOAD(&q->exclusive, SB_SEQ_CST); /* the successor may have left meanwhile: look again */
    }
  }
}

bool sb_exclusive_activate(sb_broker *b, uint32_t node) {
  sb_node_shm *n = sb_slot_at(b, node);
  sb_queue_shm *q = sb_slab_queue(b, SB_LOAD(&n->queue, SB_RELAXED));
  if (q == NULL || SB_LOAD(&q->exclusive, SB_SEQ_CST) != claim_of(n, node)) {
    return false;
  }
  (void)SB_AND(&n->flags, ~SB_NODE_STANDBY, SB_RELAXED);
  return true;
}

/* ---- both ---- */

uint32_t sb_exclusive_flags(const sb_queue_shm *q) { return single_active(q) ? SB_NODE_STANDBY : 0; }

sb_status sb_exclusive_enter(sb_connection *c, uint32_t queue, uint32_t node) {
  sb_queue_shm *q = sb_slot_at(c->b, queue);
  if ((SB_LOAD(&((sb_node_shm *)sb_slot_at(c->b, node))->flags, SB_RELAXED) & SB_NODE_EXCLUSIVE) != 0) {
    return claim(c, q, queue, node);
  }
  if (single_active(q)) {
    sb_exclusive_succeed(c, queue);
    return SB_OK;
  }
  return keep_out(c, q);
}
