// SPDX-License-Identifier: Apache-2.0
#include "sb_handles.h"

#include <stdlib.h>

#include "sb_wait.h"

#define LOOKS_AT_ONCE 64u /* handles that one call looks at; the next calls look at the others */
#define AGAIN_NS UINT64_C(250000000)
#define NEVER_CALM UINT64_MAX /* no value of `queues_closed` */

void sb_handle_add(sb_queue *q) {
  sb_connection *c = q->c;
  q->previous = NULL;
  q->next = c->queues;
  if (q->next != NULL) q->next->previous = q;
  c->queues = q;
  c->handle_count++;
  /* An unfinished round of looks may spend one of its looks on this new handle. So the round gets one look more, and
   * still reaches all the other handles. */
  c->handles_due += c->handles_due > 0;
}

/* Every detached handle points to this queue object, which is never open: the memory of the object of its deleted queue
 * may hold bodies now. */
static sb_queue_shm no_queue;

static void forget_pages(sb_queue *q) {
  for (unsigned i = 0; i <= q->others; i++) sb_lane_forget_pages(q->lanes + i);
  q->schedule_leaf = q->looked_leaf = SB_NO_LEAF;
}

void sb_handles_forget_pages(sb_connection *c) {
  for (sb_queue *q = c->queues; q != NULL; q = q->next) forget_pages(q);
}

bool sb_handle_needs_groups(const sb_queue *q) { return (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_GROUPS) != 0; }

sb_groups *sb_handle_groups_of_another(const sb_queue *q) {
  const sb_queue *other = q->c->queues;
  while (other != NULL && (other->slot != q->slot || other->state != q->state)) other = other->next;
  return other != NULL ? other->groups : NULL;
}

void sb_handle_use_groups(sb_queue *q, sb_groups *groups) {
  q->groups = groups;
  groups->tell = sb_notify_work_arrived;
  groups->handles++;
}

static void leave_groups(sb_queue *q) {
  if (q->groups != NULL && --q->groups->handles == 0) {
    if (sb_queue_is_open(q)) sb_groups_leave_all(q);
    sb_firsts_free(&q->groups->firsts);
    free(q->groups);
  }
  q->groups = NULL;
}

static void take_out(sb_queue *q) {
  sb_connection *c = q->c;
  if (c->handles_next == q) c->handles_next = q->next;
  *(q->previous != NULL ? &q->previous->next : &c->queues) = q->next;
  if (q->next != NULL) q->next->previous = q->previous;
  c->handle_count--;
}

static bool consumed(const sb_connection *c, const sb_queue *q) {
  for (const sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
    const sb_consumer *k = t->kind->is_consumer ? (const sb_consumer *)(const void *)t : NULL; /* others raise `busy` */
    for (uint32_t i = 0; k != NULL && i < k->subscription_count; i++) {
      if (k->subscriptions[i].q == q) return true;
    }
  }
  return false;
}

bool sb_handle_is_idle(const sb_queue *q) {
  return (uint32_t)SB_LOAD(&q->ledger->holding, SB_RELAXED) == 0 && q->busy == 0 && !consumed(q->c, q);
}

void sb_handle_leave(sb_queue *q) {
  take_out(q);
  sb_waiter_close(q);
  leave_groups(q);
  sb_sorted_free(&q->sorted);
  sb_queue_detach(q);
  q->shm = &no_queue;
  q->state = UINT64_MAX; /* no queue ever has this state word, so later calls find the queue deleted */
  forget_pages(q);
  if (q->orphaned) {
    free(q);
  }
}

static void look(sb_connection *c, uint32_t closed) {
  if (closed != c->handles_seen || (c->handles_again_ns != 0 && sb_now_ns() >= c->handles_again_ns)) {
    c->handles_seen = closed;
    c->handles_again_ns = 0;
    c->handles_due = c->handle_count;
  }
  for (uint32_t n = 0; n < LOOKS_AT_ONCE && c->handles_due > 0; n++) {
    sb_queue *q = c->handles_next != NULL ? c->handles_next : c->queues;
    if (q == NULL) {
      c->handles_due = 0;
      return;
    }
    c->handles_due--;
    c->handles_next = q->next;
    if (sb_queue_is_open(q)) {
      continue;
    }
    if (sb_handle_is_idle(q)) {
      sb_handle_leave(q);
    } else if (c->handles_again_ns == 0) {
      c->handles_again_ns = sb_now_ns() + AGAIN_NS; /* the handle is still in use: look again later */
    }
  }
}

void sb_handles_look(sb_connection *c) {
  uint32_t closed = SB_LOAD(&c->b->header->queues_closed, SB_ACQUIRE); /* P17 acquire */
  if (!c->handles_stay) look(c, closed);
  c->handles_calm = c->handles_due == 0 && c->handles_again_ns == 0 ? closed : NEVER_CALM;
}

void sb_handles_look_at_all(sb_connection *c) {
  if (sb_handles_stir(c)) sb_handles_look(c);
  while (c->handles_due > 0 && !c->handles_stay) sb_handles_look(c);
}
