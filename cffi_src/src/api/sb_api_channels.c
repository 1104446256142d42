// SPDX-License-Identifier: Apache-2.0
/* Public calls: channels (sb_channel.h). A member is a consumer of a channel. The row of a channel has the messages
 * that were pulled for its members, and not given to the application yet. */
#include <stdlib.h>
#include <string.h>

#include "sb_api.h"

#define FIRST_ROOM 4u
#define MOST_MEMBERS SB_BY_GET
#define SETTLED_AT_ONCE 1024u /* after so many settled deliveries the lock is dropped for a moment, for other threads */

static sb_connection *connection_of(const sb_channel *ch) { return ch->target.c; }

/* Takes the connection's lock, and returns SB_OK. Any other status: the channel is not usable, the lock is not held. */
static sb_status enter(sb_channel *ch) {
  sb_status status = sb_api_enter(connection_of(ch));
  if (status == SB_OK && SB_LOAD(&ch->closed, SB_RELAXED) != 0) {
    sb_api_leave(connection_of(ch));
    status = SB_CLOSED;
  }
  return status;
}

static void leave(sb_channel *ch) { sb_api_leave(connection_of(ch)); }

/* ---- opening and closing ---- */

static sb_channel *channel_of(sb_target *t) { return (sb_channel *)(void *)t; /* `target` is its first field */ }
static bool turn(sb_target *t) { return sb_channel_turn(channel_of(t)); }
static bool wants_work(sb_target *t) { return sb_channel_wants_work(channel_of(t)); }
static void end(sb_target *t) { sb_channel_close_all(channel_of(t)); }
static uint64_t overlooked(sb_target *t, const sb_queue **q) { return sb_channel_overlooked(channel_of(t), q); }
static const sb_target_kind CHANNELS = {
    .turn = turn, .wants_work = wants_work, .overlooked = overlooked, .end = end, .is_channel = true};

sb_channel *sb_channel_open(sb_connection *c, uint64_t number, sb_status *status) {
  sb_channel *ch = calloc(1, sizeof *ch);
  *status = ch == NULL ? SB_SYSTEM : sb_api_enter(c);
  if (*status != SB_OK) {
    free(ch);
    return NULL;
  }
  *ch = (sb_channel){.target = {.c = c, .kind = &CHANNELS}, .number = number};
  (void)SB_ADD(&c->handles, 1u, SB_RELAXED);
  sb_target_add(&ch->target);
  sb_api_leave(c);
  return ch;
}

/* Also works while the broker is being purged. Does nothing after the connection was closed, since the close has closed
 * the channel. Does nothing in a forked child either, where the lock may be taken for ever. */
void sb_channel_close(sb_channel *ch) {
  sb_connection *c = connection_of(ch);
  if (!sb_closed(c) && !sb_forked(c->b)) {
    sb_lock(c);
    sb_channel_close_all(ch);
    sb_unlock(c);
  }
}

void sb_channel_free(sb_channel *ch) {
  sb_channel_close(ch);
  free((void *)ch->members);
  sb_connection_free(connection_of(ch));
  free(ch);
}

/* ---- consumers ---- */

static bool is_reserved(const sb_channel *ch, uint32_t number) {
  const sb_member *m = ch->members[number];
  for (const sb_member *k = ch->cancelled_first; m == NULL && k != NULL; k = k->next) {
    if (k->number == number) m = k;
  }
  return m != NULL;
}

/* Counts the subscription numbers in use: those of consumers, and those of ended consumers that the application does
 * not know of yet (sb_channel_next_cancelled). */
static uint32_t reserved(const sb_channel *ch) {
  uint32_t n = ch->member_count;
  for (const sb_member *k = ch->cancelled_first; k != NULL; k = k->next) n++;
  return n;
}

/* Makes sure that a subscription number is free: enlarges `members` when half of its numbers are in use. SB_LIMIT: all
 * MOST_MEMBERS numbers are in use. */
static sb_status make_room(sb_channel *ch) {
  uint32_t room = ch->room == 0 ? FIRST_ROOM : 2 * ch->room, used = reserved(ch);
  if (2 * used < ch->room) {
    return SB_OK;
  }
  if (room > MOST_MEMBERS) room = MOST_MEMBERS;
  if (room == ch->room) {
    return used < room ? SB_OK : SB_LIMIT;
  }
  sb_member **members = calloc(room, sizeof *members);
  if (members == NULL) {
    return SB_SYSTEM;
  }
  if (ch->room > 0) memcpy((void *)members, (void *)ch->members, ch->room * sizeof *members);
  free((void *)ch->members);
  ch->members = members;
  ch->room = room;
  return SB_OK;
}

/* Finds a free subscription number. Searches after the last assigned one, to reuse each as late as possible. */
static sb_status new_number(sb_channel *ch, uint32_t *number) {
  sb_status status = make_room(ch);
  if (status != SB_OK) {
    return status;
  }
  do {
    *number = ch->next_number % ch->room;
    ch->next_number = *number + 1;
  } while (is_reserved(ch, *number));
  return SB_OK;
}

/* Registers a member at its queue. Even a member that is refused has a node for a moment: other consumers must see the
 * node while claims to exclusive use are checked (sb_exclusive.h). */
static sb_status subscribe(sb_channel *ch, sb_member *m, bool exclusive) {
  sb_queue *q = m->s.q;
  sb_status status = sb_queue_is_open(q) ? new_number(ch, &m->number) : SB_DELETED;
  if (status == SB_OK && !sb_round_robin_join(m)) status = SB_SYSTEM;
  if (status != SB_OK) {
    return status;
  }
  bool alone = sb_topology_is_held(q->c->b);
  uint32_t flags;
  status = sb_admission_begin(q->c, q->slot, alone, &flags);
  flags |= SB_NODE_MEMBER | (exclusive ? SB_NODE_EXCLUSIVE : 0u);
  if (status == SB_OK)
    status =
        sb_node_create(q->c, q->slot, m->s.priority, flags, ch->target.number, m->prefetch, &m->s.node, &m->s.token);
  if (status == SB_OK) {
    /* Relaxed: only sb_queue_consumers reads `channel`. If it reads before this store, it reports no channel. */
    SB_STORE(&sb_subscription_node(&m->s)->channel, (uint32_t)ch->number, SB_RELAXED);
    status = sb_rivals_announce(q->c, m->s.node, &m->s.choice, &m->s.wish_token);
    if (status == SB_OK) status = sb_admission_enter(q->c, q->slot, m->s.node, alone);
    if (status == SB_OK && sb_admission_ended(q)) status = SB_DELETED;
    if (status == SB_OK && sb_channel_may_want(m)) status = sb_subscription_begin(&m->s);
    if (status != SB_OK) {
      sb_node_destroy(q->c, m->s.node, m->s.token);
      sb_rivals_withdraw(q->c, m->s.wish_token);
      sb_exclusive_succeed(q->c, q->slot); /* if this node was the active one, another becomes active */
      (void)sb_lifetime_end(q, 0);         /* if this node was the last one, an auto-delete queue ends */
    }
  }
  if (status == SB_OK) sb_admission_done(q->shm);
  if (status != SB_OK) sb_round_robin_leave(m);
  return status;
}

sb_status sb_channel_consume(sb_channel *ch, sb_queue *q, uint32_t prefetch, int32_t priority, uint32_t flags,
                             uint32_t *subscription) {
  return sb_channel_consume_selected(ch, q, prefetch, priority, flags, NULL, 0, subscription);
}

static sb_status consume_once(sb_channel *ch, sb_queue *q, uint32_t prefetch, int32_t priority, uint32_t flags,
                              const char *selector, uint32_t selector_length, uint32_t *subscription) {
  sb_member *m = calloc(1, sizeof *m);
  sb_wish *wish = NULL;
  sb_status status = m == NULL ? SB_SYSTEM : sb_api_wish(selector, selector_length, &wish);
  if (status == SB_OK) status = enter(ch);
  if (status != SB_OK) {
    free(wish);
    free(m);
    return status;
  }
  *m = (sb_member){.s = sb_subscription_to(q, priority, (flags & SB_CONSUME_NO_LOCAL) != 0, wish),
                   .channel = ch,
                   .prefetch = prefetch,
                   .auto_ack = (flags & SB_CONSUME_AUTO_ACK) != 0};
  status = subscribe(ch, m, (flags & SB_CONSUME_EXCLUSIVE) != 0);
  if (status == SB_OK) {
    *subscription = m->number;
    sb_channel_start(m);
  } else {
    free(wish);
    free(m);
  }
  sb_slab_return_cache(connection_of(ch)); /* cached slots would lie idle, as in sb_queue_open */
  leave(ch);
  return status;
}

sb_status sb_channel_consume_selected(sb_channel *ch, sb_queue *q, uint32_t prefetch, int32_t priority, uint32_t flags,
                                      const char *selector, uint32_t selector_length, uint32_t *subscription) {
  sb_status status = consume_once(ch, q, prefetch, priority, flags, selector, selector_length, subscription);
  if (status == SB_NO_SEAT && sb_recover_all(q->c) > 0) { /* as in sb_consumer_open_with */
    status = consume_once(ch, q, prefetch, priority, flags, selector, selector_length, subscription);
  }
  return status;
}

sb_status sb_channel_cancel(sb_channel *ch, uint32_t subscription) {
  sb_status status = enter(ch);
  if (status == SB_OK) {
    if (subscription < ch->room && ch->members[subscription] != NULL) {
      sb_channel_end_member(ch->members[subscription]);
    } else {
      status = SB_NOT_FOUND;
    }
    leave(ch);
  }
  return status;
}

bool sb_channel_next_cancelled(sb_channel *ch, uint32_t *subscription) {
  bool found = enter(ch) == SB_OK;
  if (found) {
    found = sb_channel_report(ch, subscription);
    leave(ch);
  }
  return found;
}

sb_status sb_channel_set_prefetch(sb_channel *ch, uint32_t prefetch) {
  sb_status status = enter(ch);
  if (status == SB_OK) {
    ch->limit = prefetch;
    sb_channel_limits_changed(connection_of(ch), ch);
    leave(ch);
  }
  return status;
}

sb_status sb_connection_set_prefetch(sb_connection *c, uint32_t prefetch) {
  sb_status status = sb_api_enter(c);
  if (status == SB_OK) {
    c->limit = prefetch;
    sb_channel_limits_changed(c, NULL);
    sb_api_leave(c);
  }
  return status;
}

/* ---- deliveries ---- */

/* True if the message is settled immediately, and a view keeps its body. */
static bool views(const sb_taken *t, uint8_t settled) {
  return settled == SB_GIVEN_SETTLED && t->message->body_length > SB_INLINE_BODY;
}

/* If the message is settled immediately (SB_GIVEN_SETTLED) and its body is long, takes a view, which keeps the body,
 * and stores the view in *tag. Otherwise stores the token of the message in *tag. If no view is left, or no memory for
 * one, the message is given SB_GIVEN_UNREAD: it must not wait until the views of earlier deliveries end, or memory is
 * free. If the process is killed before it has read the body, the message returns to its queue as any unacked one. */
static sb_status view_of(sb_connection *c, const sb_taken *t, uint8_t *settled, uint64_t *tag) {
  *tag = t->token;
  if (!views(t, *settled)) {
    return SB_OK;
  }
  sb_status status = sb_api_view(c, t, tag);
  if (status != SB_LIMIT && status != SB_NO_MEMORY) {
    return status;
  }
  *settled = SB_GIVEN_UNREAD;
  *tag = t->token;
  return SB_OK;
}

/* Writes the record of a delivery to `buffer`, and settles the message if SB_GIVEN_SETTLED. With a long body, `tag` is
 * written where a short body would be: the token, or the view of a settled message. Returns the length, or minus
 * SB_CORRUPT. */
static int64_t hand_over(sb_queue *q, const sb_taken *t, uint64_t delivery_tag, uint32_t subscription, uint8_t settled,
                         uint64_t tag, char *buffer) {
  int64_t length = sb_api_record(q, t, delivery_tag, subscription, buffer);
  if (length < 0) {
    return length;
  }
  sb_record *record = (sb_record *)(void *)buffer;
  if (record->body_address != 0) {
    memcpy(buffer + length, &tag, sizeof tag);
    length += (int64_t)sizeof tag;
  }
  record->settled = settled;
  if (settled == SB_GIVEN_SETTLED) (void)sb_dispose(q, t->token, SB_REASON_ACKED);
  return length;
}

/* Removes a message that cannot be read, and ends its delivery `h` (NULL: it has none). Returns minus SB_CORRUPT. */
static int64_t drop_corrupt(sb_channel *ch, sb_unacked *h, sb_queue *q, uint64_t token) {
  if (h != NULL) sb_channel_drop(ch, h);
  return -(int64_t)sb_api_drop_corrupt(q, token);
}

/* Gives the first message of the row to the application: writes its record to `buffer`. The row is not empty. */
static int64_t give(sb_channel *ch, char *buffer) {
  sb_connection *c = connection_of(ch);
  sb_unacked *h = sb_deliveries_at(&ch->deliveries, ch->deliveries.row.first);
  uint8_t settled = h->of->auto_ack ? SB_GIVEN_SETTLED : 0;
  uint32_t number = h->of->number;
  sb_queue *q = h->q;
  uint64_t tag, token = h->token;
  sb_taken t;
  if (!sb_api_held(c, token, &t)) {
    return drop_corrupt(ch, h, q, token);
  }
  sb_status status = view_of(c, &t, &settled, &tag);
  if (status != SB_OK) { /* the message stays the first of the row, unless it is corrupt */
    ch->stuck = status != SB_CORRUPT;
    return status == SB_CORRUPT ? drop_corrupt(ch, h, q, token) : -(int64_t)status;
  }
  bool given = settled != SB_GIVEN_SETTLED; /* the message stays in the deliveries */
  uint64_t delivery_tag = given ? sb_channel_give_unsettled(ch) : sb_channel_give(ch);
  int64_t length = hand_over(q, &t, delivery_tag, number, settled, tag, buffer);
  if (length < 0) {
    if (views(&t, settled)) sb_api_view_drop(c, tag);
    if (given) sb_channel_take_back(ch, h);
    length = drop_corrupt(ch, given ? h : NULL, q, token);
  }
  return length;
}

int64_t sb_channel_next(sb_channel *ch, char *buffer) {
  sb_status status = enter(ch);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  ch->stuck = false;
  if (ch->deliveries.row.count == 0) status = sb_channel_pull(ch);
  int64_t length = ch->deliveries.row.count > 0 ? give(ch, buffer) : -(int64_t)(status != SB_OK ? status : SB_EMPTY);
  sb_channel_resume(ch);
  leave(ch);
  return length;
}

/* Lock held. A get took the message `t`: gives it to the application, with the next delivery tag of the channel.
 * Returns the length of the record, or minus a status. */
static int64_t got(sb_channel *ch, sb_queue *q, const sb_taken *t, char *buffer, bool auto_ack) {
  sb_connection *c = connection_of(ch);
  uint64_t tag;
  uint8_t settled = auto_ack ? SB_GIVEN_SETTLED : 0;
  if (!sb_api_plausible(c->b, t)) {
    return drop_corrupt(ch, NULL, q, t->token);
  }
  sb_status status = view_of(c, t, &settled, &tag);
  bool given = settled != SB_GIVEN_SETTLED; /* the message is added to the deliveries */
  if (status == SB_OK && given && !sb_deliveries_reserve(&ch->deliveries)) status = SB_SYSTEM;
  if (status == SB_CORRUPT) {
    return drop_corrupt(ch, NULL, q, t->token);
  }
  if (status != SB_OK) {
    (void)sb_subscription_return(q, t->token, SB_UNDELIVER);
    return -(int64_t)status;
  }
  uint64_t delivery_tag = given ? sb_deliveries_got(&ch->deliveries, t->token, q) : ++ch->deliveries.last_tag;
  int64_t length = hand_over(q, t, delivery_tag, SB_BY_GET, settled, tag, buffer);
  if (length < 0) {
    if (views(t, settled)) sb_api_view_drop(c, tag);
    length = drop_corrupt(ch, sb_deliveries_find(&ch->deliveries, given ? delivery_tag : 0), q, t->token);
  }
  sb_subscription_took(c, q, t);
  if (sb_queue_may_hide(q)) sb_notify_work_arrived(q);
  return length;
}

int64_t sb_channel_get(sb_channel *ch, sb_queue *q, char *buffer, bool auto_ack) {
  sb_taken t;
  uint64_t token;
  sb_status status = enter(ch);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  if (sb_queue_tracks(q->shm) && (!sb_api_look_at_bound(q) || SB_LOAD(&ch->closed, SB_RELAXED) != 0)) {
    leave(ch);
    return -(int64_t)SB_CLOSED; /* closed while the lock was dropped */
  }
  sb_lifetime_consumed(q);
  status = sb_holding_take(q->c, &token);
  if (status == SB_OK) {
    status = sb_choice_get(q, token, &t);
    if (status != SB_OK) {
      sb_holding_give(q->c, token);
      sb_notify_ended(q);
    }
  }
  int64_t length = status == SB_OK ? got(ch, q, &t, buffer, auto_ack) : -(int64_t)status;
  leave(ch);
  return length;
}

static void link_wait(sb_channel *ch, sb_channel_wait *w) {
  w->next = ch->waits;
  if (w->next != NULL) w->next->previous = w;
  ch->waits = w;
}

static void unlink_wait(sb_channel *ch, const sb_channel_wait *w) {
  *(w->previous != NULL ? &w->previous->next : &ch->waits) = w->next;
  if (w->next != NULL) w->next->previous = w->previous;
}

/* Ends a wait whose channel or connection was closed. If the wait took a message, puts the message back into the queue;
 * if the connection was closed, the close did that already. */
static int64_t not_wanted(sb_channel *ch, sb_queue *q, sb_status status, const sb_taken *t, sb_wait *wait) {
  if (status == SB_OK && !sb_closed(connection_of(ch))) {
    (void)sb_subscription_return(q, t->token, SB_UNDELIVER);
  }
  sb_waiter_end(q, wait);
  return -(int64_t)SB_CLOSED;
}

int64_t sb_channel_get_wait(sb_channel *ch, sb_queue *q, char *buffer, bool auto_ack, sb_wait *wait) {
  sb_connection *c = connection_of(ch);
  sb_channel_wait w = {.node = &wait->node};
  sb_taken t;
  sb_status status = sb_api_enter(c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  link_wait(ch, &w);
  sb_api_leave(c);
  status = sb_waiter_get(q, wait, &ch->closed, &t);
  sb_lock(c);
  unlink_wait(ch, &w);
  bool closed = sb_closed(c) || SB_LOAD(&ch->closed, SB_RELAXED) != 0;
  int64_t length = closed            ? not_wanted(ch, q, status, &t, wait)
                   : status == SB_OK ? got(ch, q, &t, buffer, auto_ack)
                                     : -(int64_t)status;
  sb_unlock(c);
  return length;
}

/* ---- settling ---- */

/* The first delivery that `tag` and `multiple` select; NULL: there is none. */
static sb_unacked *first_of(sb_channel *ch, uint64_t tag, bool multiple) {
  sb_unacked *h = multiple ? sb_deliveries_at(&ch->deliveries, ch->deliveries.given.first)
                           : sb_deliveries_find(&ch->deliveries, tag);
  return h != NULL && (!multiple || tag == 0 || h->tag <= tag) ? h : NULL;
}

/* True if the caller selects all deliveries, or if the delivery with the tag exists. */
static bool is_known(sb_channel *ch, uint64_t tag, bool multiple) {
  return (multiple && tag == 0) || sb_deliveries_find(&ch->deliveries, tag) != NULL;
}

/* Ends a delivery, and settles its message. If the message was settled before, or was removed with its queue, only the
 * delivery ends. SB_UNDELIVER puts the delivery back into the row, unless a get took the message, or the consumer has
 * ended. */
static void settle(sb_channel *ch, sb_unacked *h, sb_disposition disposition) {
  sb_queue *q = h->q;
  uint64_t token = h->token;
  if (disposition == SB_UNDELIVER) {
    if (h->of != NULL && !h->of->ended) {
      sb_channel_take_back(ch, h);
      return;
    }
    if (h->tag == ch->deliveries.last_tag) ch->deliveries.last_tag--;
  }
  sb_channel_drop(ch, h);
  (void)sb_api_end(q, token, disposition);
}

sb_status sb_channel_settle(sb_channel *ch, uint64_t delivery_tag, bool multiple, sb_disposition disposition) {
  sb_status status = enter(ch);
  if (status != SB_OK) {
    return status;
  }
  if (!is_known(ch, delivery_tag, multiple)) status = SB_SETTLED;
  sb_unacked *h;
  for (uint32_t n = 1; status == SB_OK && (h = first_of(ch, delivery_tag, multiple)) != NULL; n++) {
    settle(ch, h, disposition);
    if (!multiple) break;
    if (n % SETTLED_AT_ONCE == 0) {
      leave(ch);
      status = enter(ch);
      if (status != SB_OK) return status;
    }
  }
  sb_deliveries_trim(&ch->deliveries);
  sb_channel_resume(ch);
  leave(ch);
  return status;
}

int64_t sb_channel_collect(sb_channel *ch, uint64_t delivery_tag, bool multiple, sb_disposition disposition,
                           sb_settlement *settlements, uint32_t room) {
  sb_status status = enter(ch);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  int64_t count = is_known(ch, delivery_tag, multiple) ? 0 : -(int64_t)SB_SETTLED;
  sb_unacked *h = count == 0 ? first_of(ch, delivery_tag, multiple) : NULL;
  while (h != NULL) {
    if (count < room) settlements[count] = (sb_settlement){h->q, h->token, disposition, h->tag};
    count++;
    h = multiple ? sb_deliveries_at(&ch->deliveries, h->next) : NULL;
    if (h != NULL && delivery_tag != 0 && h->tag > delivery_tag) h = NULL;
  }
  leave(ch);
  return count;
}

void sb_channel_forget(sb_channel *ch, uint64_t delivery_tag, bool multiple) {
  sb_unacked *h;
  if (enter(ch) != SB_OK) {
    return;
  }
  while ((h = first_of(ch, delivery_tag, multiple)) != NULL) sb_channel_drop(ch, h);
  sb_deliveries_trim(&ch->deliveries);
  sb_channel_resume(ch);
  leave(ch);
}

/* ---- facts ---- */

uint32_t sb_channel_unacked(sb_channel *ch) { return ch->deliveries.given.count; }
uint32_t sb_channel_waiting(sb_channel *ch) { return ch->deliveries.row.count; }
uint64_t sb_channel_delivered(sb_channel *ch) { return ch->delivered; }

/* ---- hand-over ---- */

bool sb_channel_arm(sb_channel *ch) {
  if (enter(ch) != SB_OK) {
    return true; /* the next call returns the reason */
  }
  bool there = sb_channel_has_something(ch);
  if (!there) {
    sb_channel_unready(ch); /* takes the channel off the list of ready channels, if the IO thread did not yet */
    ch->armed = true;
  }
  leave(ch);
  return there;
}

uint64_t sb_connection_next_ready(sb_connection *c) {
  uint64_t number = 0;
  if (sb_api_enter(c) == SB_OK) {
    sb_channel *ch = c->ready_first;
    if (ch != NULL) {
      number = ch->number;
      sb_channel_unready(ch);
    }
    sb_api_leave(c);
  }
  return number;
}
