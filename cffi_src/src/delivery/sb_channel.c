// SPDX-License-Identifier: Apache-2.0
#include "sb_channel.h"

#include <stdlib.h>

#include "sb_lifetime.h"

#define PULLS_AT_ONCE 256u /* then other threads get the lock */

static sb_connection *connection_of(const sb_channel *ch) { return ch->target.c; }
static sb_channel *channel_of(sb_target *t) { return (sb_channel *)(void *)t; /* its first field */ }

/* ---- hand-over ---- */

bool sb_channel_has_something(const sb_channel *ch) {
  return (ch->deliveries.row.count > 0 && !ch->stuck) || ch->cancelled_first != NULL;
}

void sb_channel_unready(sb_channel *ch) {
  sb_connection *c = connection_of(ch);
  if (!ch->ready) {
    return;
  }
  ch->ready = false;
  *(ch->previous_ready != NULL ? &ch->previous_ready->next_ready : &c->ready_first) = ch->next_ready;
  *(ch->next_ready != NULL ? &ch->next_ready->previous_ready : &c->ready_last) = ch->previous_ready;
  /* Relaxed: if the IO thread still reads the old 1, it only looks once for nothing. */
  if (c->ready_first == NULL) SB_STORE(&c->ready, 0u, SB_RELAXED);
}

/* Makes an armed channel ready (I52), and rings the IO thread. While the IO thread gives turns to targets
 * (sb_target.h), it needs no ring: it looks for ready channels after the turns. */
static void hand_over(sb_channel *ch) {
  sb_connection *c = connection_of(ch);
  if (!ch->armed) {
    return;
  }
  ch->armed = false;
  ch->ready = true;
  ch->next_ready = NULL;
  ch->previous_ready = c->ready_last;
  *(c->ready_last != NULL ? &c->ready_last->next_ready : &c->ready_first) = ch;
  c->ready_last = ch;
  SB_STORE(&c->ready, 1u, SB_SEQ_CST); /* P6 of sb_wait.h: before the ring */
  if (!c->taking_turns) sb_target_ring_io(c);
}

/* ---- credit ---- */

static bool is_full(const sb_channel *ch) {
  return ch->deliveries.row.count >= SB_ROW_MAX || (ch->limit != 0 && ch->unacked >= ch->limit);
}
static bool connection_full(const sb_connection *c) { return c->limit != 0 && c->unacked >= c->limit; }

/* I51: true if `used` leaves so much of `limit` free that moving nodes is worthwhile. `limit` 0: there is no limit.
 * `row_is_empty`: one free place is enough. */
static bool enough(uint32_t used, uint32_t limit, bool row_is_empty) {
  uint32_t credit = used < limit ? limit - used : 0, half = limit > 1 ? limit / 2 : 1;
  return limit == 0 || credit >= half || (credit > 0 && row_is_empty);
}

static bool own_enough(const sb_member *m) { return enough(m->held, m->prefetch, m->waiting == 0); }
static bool channel_enough(const sb_channel *ch) {
  return SB_LOAD(&ch->closed, SB_RELAXED) == 0 && enough(ch->deliveries.row.count, SB_ROW_MAX, false) &&
         enough(ch->unacked, ch->limit, ch->deliveries.row.count == 0);
}
static bool an_empty_row_waits(sb_connection *c) {
  for (sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
    if (t->kind->is_channel && channel_of(t)->member_count > 0 && channel_of(t)->deliveries.row.count == 0) return true;
  }
  return false;
}
static bool connection_enough(sb_connection *c) {
  return enough(c->unacked, c->limit, false) || (!connection_full(c) && an_empty_row_waits(c));
}

bool sb_channel_may_want(const sb_member *m) {
  const sb_channel *ch = m->channel;
  return !m->starved && !ch->blocked && !connection_of(ch)->limited;
}

static void unwant(sb_member *m) {
  if (m->willing) {
    sb_round_robin_willing(m, false);
    sb_subscription_set_interested(&m->s, false);
  }
}

/* Makes a member willing if nothing prevents that, and its node INTERESTED (if choosy: NON_ACQUIRING). True: this
 * call made the member willing, so the caller looks at the queue now (P3). */
static bool want(sb_member *m) {
  if (m->willing || !sb_channel_may_want(m) || !sb_subscription_may_want(&m->s)) {
    return false;
  }
  sb_round_robin_willing(m, true);
  (void)sb_subscription_want(&m->s);
  return true;
}

static void block_channel(sb_channel *ch) {
  ch->blocked = true;
  for (uint32_t i = 0; i < ch->room; i++) {
    if (ch->members[i] != NULL) unwant(ch->members[i]);
  }
}

static void block_connection(sb_connection *c) {
  c->limited = true;
  for (sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
    for (uint32_t i = 0; t->kind->is_channel && i < channel_of(t)->room; i++) {
      if (channel_of(t)->members[i] != NULL) unwant(channel_of(t)->members[i]);
    }
  }
}

static void count(sb_member *m, int32_t by) {
  sb_channel *ch = m->channel;
  m->held += (uint32_t)by;
  ch->unacked += (uint32_t)by;
  connection_of(ch)->unacked += (uint32_t)by;
  if (!m->ended) SB_STORE(&sb_subscription_node(&m->s)->unacked, m->held, SB_RELAXED);
}

/* ---- pulling ---- */

static void push(sb_member *m, uint64_t token) {
  sb_channel *ch = m->channel;
  sb_connection *c = connection_of(ch);
  sb_deliveries_pulled(&ch->deliveries, token, m->s.q, m);
  m->waiting++;
  count(m, 1);
  sb_round_robin_served(m);
  if (!m->auto_ack && m->prefetch != 0 && m->held >= m->prefetch) {
    m->starved = true;
    unwant(m);
  }
  if (is_full(ch)) block_channel(ch);
  if (connection_full(c)) block_connection(c);
  hand_over(ch);
}

static sb_status take(sb_member *m) {
  sb_taken t;
  if (!sb_deliveries_reserve(&m->channel->deliveries)) {
    return SB_SYSTEM;
  }
  sb_status status = sb_subscription_take(&m->s, &t);
  if (status == SB_OK) push(m, t.token);
  return status;
}

/* Moves the flag SB_NODE_RESCUED, if the node of `from` has it, to the node of `to`, the member whose turn it is. The
 * flag lets a node take a message although a higher priority wants messages. */
static void pass_rescue(sb_member *from, sb_member *to) {
  if ((SB_LOAD(&sb_subscription_node(&from->s)->flags, SB_RELAXED) & SB_NODE_RESCUED) != 0) {
    (void)SB_AND(&sb_subscription_node(&from->s)->flags, ~SB_NODE_RESCUED, SB_RELAXED);
    (void)SB_OR(&sb_subscription_node(&to->s)->flags, SB_NODE_RESCUED, SB_RELAXED);
  }
}

/* Takes one message from the queue of `m`. The message goes to the member whose turn it is at this queue, which may be
 * another member than `m`; if `m` is choosy, it goes to `m`. SB_NO_CREDIT: no member that may get it is willing. */
static sb_status deal(sb_member *m) {
  if (!sb_queue_is_open(m->s.q)) {
    return SB_DELETED;
  }
  (void)want(m); /* if m was on standby, it may have become active since: ask for messages again */
  if (m->s.choosy) {
    return m->willing ? take(m) : SB_NO_CREDIT;
  }
  for (unsigned tries = 0; tries < SB_MAX_RETRIES; tries++) {
    sb_member *whose = sb_round_robin_next(m->rank->deal);
    if (whose == NULL) {
      return SB_NO_CREDIT;
    }
    if (whose != m) pass_rescue(m, whose);
    sb_status status = take(whose);
    if (status != SB_EMPTY || whose == m) {
      return status;
    }
    /* P3: as long as the node of `m` is NOTIFIED, producers possibly notify no other node. So make the node INTERESTED,
     * then look at the queue again. */
    if (!sb_node_move(connection_of(m->channel), m->s.node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED) ||
        !sb_notify_looks_ready(m->s.q)) {
      return SB_EMPTY;
    }
  }
  return SB_EMPTY;
}

static bool lacks_memory(sb_status status) {
  return status == SB_GROW || status == SB_NO_MEMORY || status == SB_SYSTEM;
}

static void orphan(sb_member *m);
static void resume_after_orphans(sb_connection *c);

/* Pulls from the queue of `m` until the queue is empty, or no member is willing. Leaves the rest to the IO thread after
 * PULLS_AT_ONCE messages, or if memory is missing; the IO thread also asks for more memory. Returns SB_OK, or the
 * status that tells which memory is missing. */
static sb_status pull(sb_member *m) {
  sb_status status = SB_OK;
  for (unsigned n = 0; status == SB_OK && n < PULLS_AT_ONCE; n++) status = deal(m);
  if (status == SB_DELETED) {
    orphan(m);
  } else if (status == SB_OK || lacks_memory(status)) {
    m->busy = true;
    sb_notify_node(connection_of(m->channel)->b, m->s.node);
  }
  return lacks_memory(status) ? status : SB_OK;
}

sb_status sb_channel_pull(sb_channel *ch) {
  sb_status status = SB_OK;
  for (uint32_t i = 0; i < ch->room; i++) {
    sb_member *m = ch->members[(ch->rotation + i) % ch->room];
    sb_status one = m != NULL ? pull(m) : SB_OK;
    if (one != SB_OK) status = one;
  }
  ch->rotation++;
  resume_after_orphans(connection_of(ch));
  return status;
}

/* True if the member needs a turn: it is busy, its node is flagged, or its node is NOTIFIED. Clears the flag, before
 * the caller looks at the queue (P9). */
static bool has_turn(sb_member *m) {
  sb_node_shm *n = sb_subscription_node(&m->s);
  bool told = SB_LOAD(&n->flagged, SB_SEQ_CST) != 0 && SB_SWAP(&n->flagged, 0, SB_SEQ_CST) != 0;
  return told || m->busy || sb_node_state(SB_LOAD(&n->word, SB_SEQ_CST)) == SB_NODE_NOTIFIED;
}

bool sb_channel_turn(sb_channel *ch) {
  bool more = false;
  for (uint32_t i = 0; i < ch->room; i++) {
    sb_member *m = ch->members[(ch->rotation + i) % ch->room];
    if (m == NULL || !has_turn(m)) {
      continue;
    }
    sb_status status = deal(m);
    if (status == SB_DELETED) {
      orphan(m);
      continue;
    }
    /* an earlier attempt may have lacked memory (I30) */
    if (!m->willing) sb_subscription_set_interested(&m->s, false);
    m->busy = status == SB_OK || status == SB_GROW;
    /* the node was parked (I61 of sb_stopped.h): the member looks at the queue once more */
    if (status == SB_EMPTY && m->willing && sb_subscription_want(&m->s)) m->busy = true;
    more = more || m->busy;
    if (status == SB_GROW) connection_of(ch)->must_grow = true;
  }
  ch->rotation++;
  resume_after_orphans(connection_of(ch));
  return more;
}

bool sb_channel_wants_work(sb_channel *ch) {
  bool wants = false;
  if (ch->stuck) {
    ch->stuck = false;
    hand_over(ch);
  }
  for (uint32_t i = 0; i < ch->room; i++) {
    sb_member *m = ch->members[i];
    if (m == NULL) {
      continue;
    }
    unsigned state = sb_node_state(SB_LOAD(&sb_subscription_node(&m->s)->word, SB_SEQ_CST));
    if (!m->willing) {
      /* a process may have made m active, and died before it notified m */
      if (!want(m)) sb_subscription_set_interested(&m->s, false); /* an earlier attempt may have lacked memory (I30) */
    } else if (state == SB_NODE_NOT_INTERESTED) {
      /* its node was parked (I61 of sb_stopped.h), or there was no memory for its list entry */
      (void)sb_subscription_want(&m->s);
    }
    if (!sb_queue_is_open(m->s.q) || state == SB_NODE_NOTIFIED || (m->willing && sb_notify_looks_ready(m->s.q))) {
      m->busy = wants = true;
    }
  }
  return wants;
}

uint64_t sb_channel_overlooked(const sb_channel *ch, const sb_queue **q) {
  uint64_t entry = 0;
  for (uint32_t i = 0; i < ch->room && entry == 0; i++) {
    const sb_member *m = ch->members[i];
    if (m != NULL && m->willing && !m->busy && !m->s.choosy) {
      entry = sb_subscription_overlooked(&m->s);
      *q = m->s.q;
    }
  }
  return entry;
}

/* ---- credit that returns ---- */

static void pull_all(sb_channel *ch) {
  for (uint32_t i = 0; i < ch->room; i++) {
    if (ch->members[i] != NULL && ch->members[i]->willing) (void)pull(ch->members[i]);
  }
}

static void want_all(sb_channel *ch) {
  for (uint32_t i = 0; i < ch->room; i++) {
    if (ch->members[i] != NULL) (void)want(ch->members[i]);
  }
}

static void unlimit(sb_connection *c) {
  c->limited = false;
  for (sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
    if (t->kind->is_channel) want_all(channel_of(t));
  }
  for (sb_target *t = sb_target_after(c, NULL); t != NULL && !c->limited; t = sb_target_after(c, t)) {
    if (t->kind->is_channel) pull_all(channel_of(t));
  }
}

static void resume(sb_channel *ch) {
  sb_connection *c = connection_of(ch);
  sb_member *woken = ch->woken;
  bool all = ch->several_woken;
  ch->woken = NULL;
  ch->several_woken = false;
  if (ch->blocked && channel_enough(ch)) {
    ch->blocked = false;
    all = true;
  }
  if (c->limited && connection_enough(c)) {
    unlimit(c);
  } else if (all) {
    want_all(ch);
    pull_all(ch);
  } else if (woken != NULL && want(woken)) {
    (void)pull(woken);
  }
}

/* Pulls with the credit that `orphan` freed. Does so for all channels, since a limit of the connection stops all of
 * them. A call that pulls does this when its pulls have ended. `orphan` itself does not, since it runs inside a pull:
 * the pulls would nest, once for each member that they cancel. The loop ends, since each repetition follows the end of
 * a member. */
static void resume_after_orphans(sb_connection *c) {
  while (c->orphaned) {
    c->orphaned = false;
    for (sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
      if (t->kind->is_channel) resume(channel_of(t));
    }
  }
}

void sb_channel_resume(sb_channel *ch) {
  resume(ch);
  resume_after_orphans(connection_of(ch));
}

static void wake(sb_member *m) {
  if (m->starved && own_enough(m)) {
    sb_channel *ch = m->channel;
    m->starved = false;
    if (ch->woken == NULL) {
      ch->woken = m;
    } else {
      ch->several_woken = ch->several_woken || ch->woken != m;
    }
  }
}

void sb_channel_limits_changed(sb_connection *c, sb_channel *ch) {
  if (ch != NULL && is_full(ch)) block_channel(ch);
  if (connection_full(c)) block_connection(c);
  if (ch != NULL) {
    sb_channel_resume(ch);
  } else if (c->limited && connection_enough(c)) {
    unlimit(c);
    resume_after_orphans(c);
  }
}

/* ---- deliveries ---- */

static void count_given(sb_member *m) {
  m->channel->delivered++;
  SB_STORE(&sb_subscription_node(&m->s)->delivered, ++m->delivered, SB_RELAXED);
}

uint64_t sb_channel_give_unsettled(sb_channel *ch) {
  sb_member *m = sb_deliveries_at(&ch->deliveries, ch->deliveries.row.first)->of;
  count_given(m);
  m->waiting--;
  wake(m);
  return sb_deliveries_give(&ch->deliveries);
}

uint64_t sb_channel_give(sb_channel *ch) {
  sb_unacked *h = sb_deliveries_at(&ch->deliveries, ch->deliveries.row.first);
  if (!h->of->auto_ack) {
    return sb_channel_give_unsettled(ch);
  }
  count_given(h->of);
  sb_channel_drop(ch, h);
  return ++ch->deliveries.last_tag;
}

void sb_channel_take_back(sb_channel *ch, sb_unacked *h) {
  sb_member *m = h->of;
  ch->delivered--;
  SB_STORE(&sb_subscription_node(&m->s)->delivered, --m->delivered, SB_RELAXED);
  m->waiting++;
  sb_deliveries_take_back(&ch->deliveries, h);
  hand_over(ch); /* another thread may have armed the channel after the message was given */
}

/* Frees an ended member, unless it still holds messages, or its end must still be reported to the application. */
static void free_if_over(sb_member *m) {
  if (m->held == 0 && !m->unreported) {
    free(m->s.choice.wish);
    free(m);
  }
}

void sb_channel_drop(sb_channel *ch, sb_unacked *h) {
  sb_member *m = h->of;
  if (m != NULL && h->tag == 0) m->waiting--;
  sb_deliveries_drop(&ch->deliveries, h);
  if (m == NULL) {
    return;
  }
  count(m, -1);
  if (m->ended) {
    free_if_over(m);
  } else {
    wake(m);
  }
}

/* ---- consumers that come and go ---- */

void sb_channel_start(sb_member *m) {
  sb_channel *ch = m->channel;
  m->s.q->busy++;
  ch->members[m->number] = m;
  ch->member_count++;
  if (want(m) && sb_notify_looks_ready(m->s.q)) {
    m->busy = true;
    sb_notify_node(connection_of(ch)->b, m->s.node); /* the IO thread pulls */
  }
}

static void return_row_of(sb_member *m) {
  sb_channel *ch = m->channel;
  for (uint32_t at = ch->deliveries.row.first; m->waiting > 0 && at != 0;) {
    sb_unacked *h = sb_deliveries_at(&ch->deliveries, at);
    uint64_t token = h->token;
    at = h->next;
    if (h->of == m) {
      m->waiting--;
      count(m, -1);
      sb_deliveries_drop(&ch->deliveries, h);
      (void)sb_subscription_return(m->s.q, token, SB_UNDELIVER);
    }
  }
}

static void detach(sb_member *m) {
  sb_channel *ch = m->channel;
  sb_queue *q = m->s.q;
  unwant(m); /* this passes the baton, before the node leaves the lists */
  sb_round_robin_leave(m);
  if (ch->woken == m) ch->woken = NULL;
  ch->members[m->number] = NULL;
  ch->member_count--;
  return_row_of(m);
  m->ended = true;
  sb_node_destroy(q->c, m->s.node, m->s.token);
  sb_subscription_leave(&m->s);
  sb_exclusive_succeed(q->c, q->slot);
  q->busy--;
  (void)sb_lifetime_end(q, 0); /* m may have been the last consumer of an auto-delete queue */
}

void sb_channel_end_member(sb_member *m) {
  sb_channel *ch = m->channel;
  detach(m);
  free_if_over(m);
  sb_channel_resume(ch);
}

/* Cancels a member whose queue was deleted, and lists the member for sb_channel_report. Removes the member's messages
 * in the row. Those that were given to the application stay deliveries until the application settles them. The credit
 * of the removed messages is used by resume_after_orphans. */
static void orphan(sb_member *m) {
  sb_channel *ch = m->channel;
  detach(m);
  m->unreported = true;
  m->next = NULL;
  *(ch->cancelled_last != NULL ? &ch->cancelled_last->next : &ch->cancelled_first) = m;
  ch->cancelled_last = m;
  connection_of(ch)->orphaned = true;
  hand_over(ch);
}

bool sb_channel_report(sb_channel *ch, uint32_t *number) {
  sb_member *m = ch->cancelled_first;
  if (m == NULL) {
    return false;
  }
  ch->cancelled_first = m->next;
  if (m->next == NULL) ch->cancelled_last = NULL;
  *number = m->number;
  m->unreported = false;
  free_if_over(m);
  return true;
}

/* ---- the end ---- */

static void return_given(sb_channel *ch) {
  sb_unacked *h;
  while ((h = sb_deliveries_at(&ch->deliveries, ch->deliveries.given.first)) != NULL) {
    sb_queue *q = h->q;
    uint64_t token = h->token;
    sb_channel_drop(ch, h);
    (void)sb_subscription_return(q, token, SB_REQUEUE);
  }
}

void sb_channel_close_all(sb_channel *ch) {
  uint32_t number;
  if (SB_LOAD(&ch->closed, SB_RELAXED) != 0) {
    return;
  }
  SB_STORE(&ch->closed, 1u, SB_SEQ_CST); /* P6 of sb_wait.h: before the rings below */
  block_channel(ch);
  /* The given messages are older than those in the row, except those that a get took. So the given messages go back
   * first: a consumer that takes messages meanwhile gets them in order. */
  return_given(ch);
  for (uint32_t i = 0; i < ch->room; i++) {
    sb_member *m = ch->members[i];
    if (m != NULL) {
      detach(m);
      free_if_over(m);
    }
  }
  while (sb_channel_report(ch, &number)) {
  }
  sb_deliveries_free(&ch->deliveries);
  ch->armed = false;
  sb_channel_unready(ch);
  sb_target_remove(&ch->target);
  for (sb_channel_wait *w = ch->waits; w != NULL; w = w->next) {
    if (*w->node != 0) (void)sb_wake_ring(&((sb_node_shm *)sb_slot_at(connection_of(ch)->b, *w->node))->wake);
  }
  sb_connection *c = connection_of(ch);
  if (c->limited && connection_enough(c)) unlimit(c);
  resume_after_orphans(c);
}
