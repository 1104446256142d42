// SPDX-License-Identifier: Apache-2.0
#include "sb_dispatch.h"

#include "sb_target.h"
#include "sb_wait.h"

#define MS UINT64_C(1000000)

/* What a walk over the consumers of a queue found. */
typedef struct {
  uint64_t end;      /* the consumers that count have earlier tickets */
  uint32_t attached; /* how many they are */
  bool open;         /* the gate is open for one of them */
  uint64_t since_ns; /* when the first of them came; UINT64_MAX: there is none */
} survey;

static bool waits(const sb_queue_shm *q, const sb_node_shm *n) {
  return (SB_LOAD(&n->flags, SB_ACQUIRE) & SB_NODE_GATED) != 0 &&
         SB_LOAD(&n->ticket, SB_ACQUIRE) >= SB_LOAD(&q->open_before, SB_SEQ_CST);
}

/* The next consumer with a ticket before `end`; NULL: there is none. *word: the word of its node. */
static sb_node_shm *next_consumer(sb_connection *c, const sb_ring *list, uint64_t end, uint64_t *position,
                                  uint32_t *slot) {
  while ((*slot = sb_nodes_next(c, list, SB_STATE_ALL, position)) != 0) {
    sb_node_shm *n = sb_slot_at(c->b, *slot);
    uint64_t ticket = SB_LOAD(&n->ticket, SB_SEQ_CST); /* P31: after the caller's own ticket */
    if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_COUNTED) != 0 && ticket != 0 && ticket < end) {
      return n;
    }
  }
  return NULL;
}

/* True if the node still has the registration under which the walk found it: what was read in between belongs to it. */
static bool is_same(const sb_node_shm *n, uint32_t registration) {
  uint64_t word = SB_LOAD(&n->word, SB_SEQ_CST);
  return SB_LOAD(&n->registration, SB_ACQUIRE) == registration && sb_node_state(word) != SB_NODE_REMOVED;
}

static survey look_at(sb_connection *c, const sb_queue_shm *q, const sb_ring *list) {
  survey s = {.end = SB_LOAD(&q->tickets, SB_SEQ_CST) + 1, .since_ns = UINT64_MAX}; /* I100: before the walk */
  uint64_t position = 0;
  uint32_t slot;
  const sb_node_shm *n;
  while ((n = next_consumer(c, list, s.end, &position, &slot)) != NULL) {
    uint32_t registration = SB_LOAD(&n->registration, SB_ACQUIRE);
    uint64_t since = SB_LOAD(&n->attached_ns, SB_ACQUIRE);
    bool passes = !waits(q, n);
    if (!is_same(n, registration)) {
      continue; /* it left meanwhile */
    }
    s.attached++;
    s.open = s.open || passes;
    if (since < s.since_ns) s.since_ns = since;
  }
  return s;
}

static void open_to(sb_queue_shm *q, uint64_t end) {
  uint64_t found = SB_LOAD(&q->open_before, SB_SEQ_CST);
  while (found < end && !SB_CAS(&q->open_before, &found, end, SB_SEQ_CST)) {
  }
}

/* When the gate opens because of its delay, if the first consumer came at `since_ns`; 0: it has none. */
static uint64_t delayed_until(const sb_queue_shm *q, uint64_t since_ns) {
  int64_t delay = sb_setting(q, SB_SETTING_DELAY_BEFORE_DISPATCH_MS);
  return delay > 0 && since_ns != UINT64_MAX ? since_ns + (uint64_t)delay * MS : 0;
}

static bool must_open(const sb_queue_shm *q, const survey *s) {
  int64_t needed = sb_setting(q, SB_SETTING_CONSUMERS_BEFORE_DISPATCH);
  uint64_t until = delayed_until(q, s->since_ns);
  return s->open || (needed > 0 && (int64_t)s->attached >= needed) || (until != 0 && sb_now_ns() >= until);
}

/* Notifies the consumers for which the gate is open, and whose owners may not know it. */
static void notify_all(sb_connection *c, const sb_ring *list, uint64_t end) {
  uint64_t position = 0;
  uint32_t slot;
  const sb_node_shm *n;
  while ((n = next_consumer(c, list, end, &position, &slot)) != NULL) {
    if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_GATED) != 0) sb_notify_node(c->b, slot);
  }
}

/* `mine`: NULL, or a consumer of this connection, which then notes when the first consumer came: the gate still counts
 * its delay from that time when the first consumer has left before the others. */
static uint64_t look(sb_connection *c, uint32_t queue, sb_node_shm *mine) {
  sb_queue_shm *q = sb_slot_at(c->b, queue);
  sb_ring list;
  if (!sb_dispatch_gated(q) || !sb_ring_open(c->b, queue, SB_RING_ALL, &list)) {
    return 0;
  }
  survey s = look_at(c, q, &list);
  if (mine != NULL && s.since_ns < SB_LOAD(&mine->attached_ns, SB_RELAXED)) {
    SB_STORE(&mine->attached_ns, s.since_ns, SB_RELEASE);
  }
  if (must_open(q, &s)) {
    open_to(q, s.end);
    SB_CRASHPOINT("dispatch.opened");
    notify_all(c, &list, s.end);
  }
  return delayed_until(q, s.since_ns);
}

uint64_t sb_dispatch_look(sb_connection *c, uint32_t queue) { return look(c, queue, NULL); }

void sb_dispatch_enter(sb_connection *c, uint32_t queue, uint32_t node) {
  sb_queue_shm *q = sb_slot_at(c->b, queue);
  sb_node_shm *n = sb_slot_at(c->b, node);
  if (sb_dispatch_gated(q)) (void)SB_OR(&n->flags, SB_NODE_GATED, SB_SEQ_CST); /* before the ticket is noted */
  SB_STORE(&n->attached_ns, sb_now_ns(), SB_RELEASE);
  uint64_t ticket = SB_ADD(&q->tickets, 1, SB_SEQ_CST) + 1;
  SB_CRASHPOINT("dispatch.drawn");
  SB_STORE(&n->ticket, ticket, SB_SEQ_CST); /* P31: before the walk */
  SB_CRASHPOINT("dispatch.attached");
  (void)look(c, queue, n);
}

bool sb_dispatch_passes(sb_connection *c, uint32_t node) {
  sb_node_shm *n = sb_slot_at(c->b, node);
  uint32_t queue = SB_LOAD(&n->queue, SB_RELAXED);
  const sb_queue_shm *q = sb_slab_queue(c->b, queue);
  if (q == NULL) {
    return false;
  }
  if (sb_dispatch_gated(q) && waits(q, n)) {
    uint64_t until = look(c, queue, n);
    if (waits(q, n)) {
      if (until != 0 && (c->dispatch_due_ns == 0 || until < c->dispatch_due_ns)) {
        c->dispatch_due_ns = until;
        sb_target_ring_io(c);
      }
      return false;
    }
  }
  (void)SB_AND(&n->flags, ~SB_NODE_GATED, SB_SEQ_CST);
  return true;
}

void sb_dispatch_open(sb_queue_shm *q) { open_to(q, SB_LOAD(&q->tickets, SB_SEQ_CST) + 1); }
