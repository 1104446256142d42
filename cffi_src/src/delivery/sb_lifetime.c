// SPDX-License-Identifier: Apache-2.0
#include "sb_lifetime.h"

#include "sb_disposal.h"

static bool has_flag(const sb_queue_shm *q, uint32_t flag) { return (SB_LOAD(&q->flags, SB_RELAXED) & flag) != 0; }

void sb_lifetime_own(sb_queue_shm *q, const sb_connection *owner) {
  uint64_t word = SB_LOAD(&owner->b->connections[owner->id], SB_RELAXED); /* relaxed: the connection's own word */
  SB_STORE(&q->owner_connection, owner->id, SB_RELAXED);
  SB_STORE(&q->owner_epoch, sb_conn_epoch(word), SB_RELAXED);
}

static bool owner_lives(sb_broker *b, const sb_queue_shm *q, unsigned dead) {
  uint32_t id = SB_LOAD(&q->owner_connection, SB_RELAXED) % SB_MAX_CONNECTIONS;
  uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
  return id != 0 && id != dead && sb_conn_state(word) == SB_CONN_LIVE &&
         sb_conn_epoch(word) == SB_LOAD(&q->owner_epoch, SB_RELAXED);
}

static bool owned_by(const sb_queue_shm *q, unsigned connection) {
  return has_flag(q, SB_QUEUE_EXCLUSIVE) && SB_LOAD(&q->owner_connection, SB_RELAXED) == connection;
}

bool sb_lifetime_locked(sb_broker *b, const sb_queue_shm *q, unsigned connection) {
  return has_flag(q, SB_QUEUE_EXCLUSIVE) && !owned_by(q, connection) && owner_lives(b, q, 0);
}

bool sb_lifetime_owned(const sb_queue *q) {
  return sb_queue_is_open(q) && owned_by(q->shm, q->c->id) && owner_lives(q->c->b, q->shm, 0);
}

bool sb_lifetime_orphaned(sb_broker *b, const sb_queue_shm *q, unsigned dead) {
  return has_flag(q, SB_QUEUE_EXCLUSIVE) && !owner_lives(b, q, dead);
}

static bool unused(const sb_queue_shm *q) { return SB_LOAD(&q->consumers, SB_SEQ_CST) <= 0; }
/* True if a get waits or a watch is armed: neither is a consumer, but the node of each is INTERESTED or NOTIFIED. A
 * node that becomes INTERESTED again between the two loads is seen in neither count. Its owner has stored `used_ns`
 * before, so a caller that loads `used_ns` afterwards sees that the queue is used. */
static bool awaited(const sb_queue_shm *q) {
  return SB_LOAD(&q->interested, SB_SEQ_CST) > 0 || SB_LOAD(&q->notified, SB_SEQ_CST) > 0;
}

bool sb_lifetime_limited(const sb_queue_shm *q) {
  return has_flag(q, SB_QUEUE_EXCLUSIVE | SB_QUEUE_AUTO_DELETE | SB_QUEUE_EXPIRES);
}

/* True if the queue was last used `expires` ago, or earlier. Compares the time with a sum, since a difference could
 * wrap around: another process may have used the queue after this one read the time, so the last use may be the later
 * of the two. */
static bool has_expired(const sb_queue_shm *q) {
  int64_t life_ms = sb_setting(q, SB_SETTING_EXPIRES_MS);
  /* below 0 even with the flag: a process that removes the setting clears the flag after it stored the -1 */
  return life_ms >= 0 && sb_now_ns() >= SB_LOAD(&q->used_ns, SB_RELAXED) + (uint64_t)life_ms * UINT64_C(1000000);
}

bool sb_lifetime_over(sb_broker *b, const sb_queue_shm *q, unsigned dead) {
  uint32_t flags = SB_LOAD(&q->flags, SB_RELAXED);
  if (!sb_lifetime_limited(q)) {
    return false;
  }
  if (sb_lifetime_orphaned(b, q, dead)) {
    return true;
  }
  if ((flags & SB_QUEUE_AUTO_DELETE) != 0 && SB_LOAD(&q->had_consumer, SB_ACQUIRE) != 0 && unused(q)) {
    return true;
  }
  return (flags & SB_QUEUE_EXPIRES) != 0 && unused(q) && !awaited(q) && has_expired(q);
}

bool sb_lifetime_end(sb_queue *q, unsigned dead) {
  uint64_t removed;
  if (!sb_queue_is_open(q) || !sb_lifetime_over(q->c->b, q->shm, dead)) {
    return false;
  }
  bool orphaned = sb_lifetime_orphaned(q->c->b, q->shm, dead);
  if (sb_disposal_close(q, !orphaned, false, &removed) != SB_OK) {
    return false; /* another process closed it; or a consumer came, or no memory: the housekeeper tries again later */
  }
  (void)SB_ADD(&q->c->b->header->queues_ended, 1u, SB_ACQ_REL);
  (void)SB_ADD(&q->c->b->header->queues_closed, 1u, SB_RELEASE); /* P17 of sb_handles.h: release */
  (void)SB_ADD(&q->c->b->header->topology_epoch, 1, SB_ACQ_REL); /* no route leads there any more */
  sb_target_ring_housekeeper(q->c->b);                           /* it sweeps the name */
  sb_notify_wake_all(q->c, q->slot);
  sb_notify_room_made(q->c, NULL, 0);
  return true;
}
