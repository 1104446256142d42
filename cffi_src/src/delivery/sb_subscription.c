// SPDX-License-Identifier: Apache-2.0
#include "sb_subscription.h"

#include "sb_chunk.h"
#include "sb_waits.h"

sb_subscription sb_subscription_to(sb_queue *q, int32_t priority, bool no_local, sb_wish *wish) {
  sb_subscription s = {.q = q, .priority = priority};
  s.choosy = no_local || wish != NULL || q->groups != NULL || sb_following_is_for(q);
  s.choice = (sb_choice){.cursor = SB_LOAD(&q->shm->head, SB_ACQUIRE), .wish = wish, .no_local = no_local};
  if (q->groups != NULL) s.choice.consumer = sb_groups_join(q);
  return s;
}

void sb_subscription_leave(sb_subscription *s) {
  if (s->following != NULL) sb_following_end(s->following);
  s->following = NULL;
  sb_sorted_free(&s->choice.sorted);
  sb_sorted_free(&s->q->sorted); /* another consumer of the handle makes a new one */
  sb_rivals_forget(&s->choice);
  sb_rivals_withdraw(s->q->c, s->wish_token);
  s->wish_token = 0;
  if (s->choosy && sb_queue_is_open(s->q)) sb_rivals_left(s->q, s->priority); /* end_interest may have lacked memory */
  if (s->q->groups != NULL && sb_queue_is_open(s->q)) sb_groups_leave(s->q, s->choice.consumer);
}

/* I54: if the node stands by, reads the claim of the queue (sb_exclusive.h). A node that has become active stands by no
 * longer. I100 of sb_dispatch.h: if it waits for the gate, looks whether
 * the gate is open. */
bool sb_subscription_may_want(const sb_subscription *s) {
  uint32_t flags = SB_LOAD(&sb_subscription_node(s)->flags, SB_RELAXED);
  return ((flags & SB_NODE_STANDBY) == 0 || sb_exclusive_activate(s->q->c->b, s->node)) &&
         ((flags & SB_NODE_GATED) == 0 || sb_dispatch_passes(s->q->c, s->node));
}

bool sb_subscription_want(sb_subscription *s) {
  return sb_subscription_may_want(s) && sb_node_move(s->q->c, s->node, SB_IN(SB_NODE_NOT_INTERESTED),
                                                     s->choosy ? SB_NODE_NON_ACQUIRING : SB_NODE_INTERESTED);
}

bool sb_subscription_go_on(sb_subscription *s) {
  if (s->choice.lacks != 0) {
    s->choice.lacks = 0;
    sb_window_go_on(s->q, s->node);
  }
  return sb_subscription_want(s);
}

static bool is_interested(const sb_subscription *s) {
  unsigned state = sb_node_state(SB_LOAD(&sb_subscription_node(s)->word, SB_SEQ_CST));
  return state == SB_NODE_INTERESTED || state == SB_NODE_NOTIFIED;
}

static bool is_a_rival(const sb_subscription *s) {
  return sb_node_state(SB_LOAD(&sb_subscription_node(s)->word, SB_SEQ_CST)) == SB_NODE_NON_ACQUIRING;
}

/* Ends the interest of the node, and passes the baton. If there is no memory for its list entry, the node stays as it
 * is, and the baton is passed all the same: the owner of the node will take nothing. Each later turn of the owner tries
 * again; if the broker may grow, the IO thread adds a segment, then takes such a turn. */
static void end_interest(sb_subscription *s) {
  sb_connection *c = s->q->c;
  if (s->choosy) { /* it never has the baton, but others may have left messages to it */
    if (sb_node_move(c, s->node, SB_IN(SB_NODE_NON_ACQUIRING), SB_NODE_NOT_INTERESTED)) {
      sb_rivals_left(s->q, s->priority);
    } else if (is_a_rival(s) && sb_chunk_may_grow(c->b)) {
      c->must_grow = true;
      sb_notify_node(c->b, s->node);
    }
    return;
  }
  bool moved = sb_node_move(c, s->node, SB_IN(SB_NODE_INTERESTED) | SB_IN(SB_NODE_NOTIFIED), SB_NODE_NOT_INTERESTED);
  if (!moved && !is_interested(s)) {
    return; /* it had no interest; or another process parked it (I61 of sb_stopped.h), and notifies another node */
  }
  if (!moved && sb_chunk_may_grow(c->b)) {
    c->must_grow = true;
    sb_notify_node(c->b, s->node);
  }
  sb_notify_pass_baton(s->q);
}

/* False: the node is as it was. */
static bool begin_interest(sb_subscription *s) {
  sb_connection *c = s->q->c;
  if (!sb_subscription_want(s)) {
    return false;
  }
  if (s->choosy) {
    sb_notify_node(c->b, s->node);                                                        /* P3: after the CAS */
  } else if (sb_notify_looks_ready(s->q) && !sb_notify_better_wants(s->q, s->priority)) { /* P3: after the CAS */
    if (sb_node_move(c, s->node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) {
      sb_notify_node(c->b, s->node);
    }
  }
  return true;
}

void sb_subscription_set_interested(sb_subscription *s, bool desired) {
  if (desired) {
    (void)begin_interest(s);
  } else {
    end_interest(s);
  }
}

sb_status sb_subscription_begin(sb_subscription *s) {
  return sb_subscription_may_want(s) && !begin_interest(s) && sb_chunk_may_grow(s->q->c->b) ? SB_GROW : SB_OK;
}

/* I32: a node of a higher priority that wants the message goes first. This node changes its state, then looks at the
 * queue (I31), since the other node may have left meanwhile. This node stays interested, so it passes the baton only to
 * higher priorities. */
bool sb_subscription_gives_way(sb_subscription *s) {
  sb_connection *c = s->q->c;
  (void)sb_node_move(c, s->node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  if (!sb_notify_looks_ready(s->q)) {
    return true;
  }
  if (sb_notify_better_wants(s->q, s->priority)) {
    (void)sb_notify_above(c, s->q->slot, s->priority, false);
    return true;
  }
  return !sb_node_move(c, s->node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
}

bool sb_subscription_may_try(sb_subscription *s, uint32_t flags, bool *rescued) {
  sb_node_shm *node = sb_subscription_node(s);
  if ((flags & SB_NODE_RESCUED) != 0) {
    (void)SB_AND(&node->flags, ~SB_NODE_RESCUED, SB_RELAXED);
    *rescued = true;
  }
  if ((flags & (SB_NODE_STANDBY | SB_NODE_GATED)) != 0) {
    if (!sb_subscription_may_want(s)) {
      return false;
    }
    (void)sb_node_move(s->q->c, s->node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  }
  return true;
}

sb_status sb_subscription_take(sb_subscription *s, sb_taken *t) { return sb_subscription_take_now(s->q->c, s, t); }

/* Takes a message for a choosy subscription, or reads one (sb_following.h). */
static sb_status choose(sb_subscription *s, uint64_t token, sb_taken *t) {
  if (!sb_following_is_for(s->q)) {
    return sb_choice_take(s->q, &s->choice, token, t);
  }
  if (s->following == NULL) s->following = sb_following_begin(s->q);
  if (s->following == NULL) {
    return SB_SYSTEM;
  }
  sb_status status = sb_following_take(s->q, s->following, &s->choice, token, t);
  s->choice.reached = s->following->cursor + 1;
  return status;
}

/* P39 of sb_window.h: the next message did not fit. */
static sb_status look_twice(sb_subscription *s, uint64_t token, sb_taken *t) {
  sb_window_hold_back(s->q, s->node);
  s->choice.lacks = 0;
  sb_status status = choose(s, token, t);
  if (status != SB_NO_CREDIT) sb_window_go_on(s->q, s->node);
  return status;
}

/* Takes a message that the subscription, and none of its rivals, wants. */
static sb_status take_chosen(sb_subscription *s, sb_taken *t) {
  sb_queue *q = s->q;
  uint64_t token;
  sb_status status = sb_holding_take(q->c, &token);
  if (status != SB_OK) {
    return status;
  }
  status = choose(s, token, t);
  if (status == SB_NO_CREDIT) status = look_twice(s, token, t);
  bool again = s->choice.unfinished || (q->groups != NULL && sb_groups_searches_again(q));
  if (status == SB_EMPTY && again) sb_notify_node(q->c->b, s->node);
  if (status != SB_OK) {
    sb_holding_give(q->c, token);
    /* I42 of sb_queue.h */
    if (status == SB_EMPTY && sb_limits_enforce(q) > 0) sb_notify_room_made(q->c, q->shm, q->slot);
    sb_notify_ended(q);
    return status;
  }
  sb_subscription_took(q->c, q, t);
  return SB_OK;
}

static sb_status take_beside(sb_subscription *s, sb_taken *t) {
  sb_status status = SB_OK;
  if (s->choice.window == NULL || sb_rivals_possible(s->q, sb_subscription_node(s)) || s->choice.rivals.count > 0) {
    status = sb_rivals_find(s->q, s->priority, &s->choice);
  }
  if (status != SB_OK) {
    return status;
  }
  return s->choice.rivals.count > 0 || s->choice.window != NULL ? take_chosen(s, t)
                                                                : sb_subscription_acquire(s->q->c, s->q, t);
}

/* Notes for listings how a search ended. */
static sb_status noted(const sb_subscription *s, sb_status status) {
  sb_waits_note(sb_subscription_node(s), status, s->choice.reached, s->choice.away);
  return status;
}

sb_status sb_subscription_take_beside(sb_subscription *s, sb_taken *t) { return noted(s, take_beside(s, t)); }

/* I32: this NON_ACQUIRING node gives way to nodes of higher priorities that take any message. I107 of sb_rivals.h: it leaves to its
 * rivals what they want, as lower priorities leave to this node what it wants. */
static sb_status take_choosy(sb_subscription *s, sb_taken *t) {
  sb_queue *q = s->q;
  if (!sb_queue_is_open(q)) {
    return SB_DELETED;
  }
  if (!sb_subscription_may_want(s)) {
    return SB_EMPTY;
  }
  if (sb_following_is_for(q)) { /* nobody takes anything from anybody, so priorities do not matter */
    return take_chosen(s, t);
  }
  if (sb_notify_better_wants(q, s->priority)) {
    return SB_EMPTY;
  }
  sb_status status = SB_OK;
  if (sb_rivals_possible(q, sb_subscription_node(s)) || s->choice.rivals.count > 0) {
    status = sb_rivals_find(q, s->priority, &s->choice);
  }
  return status == SB_OK ? take_chosen(s, t) : status;
}

sb_status sb_subscription_take_choosy(sb_subscription *s, sb_taken *t) { return noted(s, take_choosy(s, t)); }

sb_status sb_subscription_return(sb_queue *q, uint64_t token, sb_disposition disposition) {
  sb_status status = sb_release_message(q, token, disposition);
  if (status == SB_OK) {
    if (sb_limits_enforce(q) > 0) sb_notify_room_made(q->c, q->shm, q->slot);
    sb_notify_work_arrived(q);
  }
  return status;
}

uint64_t sb_subscription_overlooked(const sb_subscription *s) {
  sb_queue *q = s->q;
  sb_broker *b = q->c->b;
  const sb_node_shm *n = sb_subscription_node(s);
  uint64_t word = SB_LOAD(&n->word, SB_SEQ_CST);
  bool told = sb_node_state(word) == SB_NODE_NOTIFIED, waits = sb_node_state(word) == SB_NODE_INTERESTED;
  if ((!told && !waits) || !sb_notify_looks_ready(q) || SB_LOAD(&n->flagged, SB_SEQ_CST) != 0 ||
      (waits && SB_LOAD(&q->shm->notified, SB_SEQ_CST) > 0) || sb_notify_better_wants(q, s->priority) ||
      sb_rivals_possible(q, n) || !sb_hints_any_has_ready(b, q->slot, SB_ANY_END)) {
    return 0;
  }
  return sb_entry_word(s->node, sb_node_epoch(word));
}
