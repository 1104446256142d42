// SPDX-License-Identifier: Apache-2.0
/* sb_api_channels: the messages that a channel gives, and their ends. */
#include <string.h>

#include "calls.h"
#include "channels.h"
#include "meanwhile.h"
#include "sb_holdings.h"
#include "sb_ledger.h"
#include "sb_view.h"

#define LONG_BODY (SB_INLINE_BODY + 64u)

static const sb_record *given(void) { return (const sb_record *)(const void *)last_record; }
static uint64_t held_of(const sb_queue *at) { return (uint32_t)SB_LOAD(&at->ledger->holding, SB_RELAXED); }
static uint64_t counted(const sb_queue *at, unsigned counter) {
  return SB_LOAD(&at->ledger->counters[counter], SB_RELAXED);
}
static void put_long(uint64_t id, uint64_t bytes) {
  const sb_put_options none = {0};
  if (put_sized(&stranger, strangers_queue, id, bytes, &none) != SB_OK) die("put", 0);
}
/* The message of a holding, which a case spoils. */
static sb_message_shm *message_of(uint64_t token) {
  sb_leaf_ref leaf;
  sb_taken taken;
  if (!sb_settle_find(t.c, token, &taken, &leaf)) die("sb_settle_find", 0);
  return sb_slot_at(t.b, taken.slot);
}
static const sb_unacked *first_of_row(void) { return sb_deliveries_at(&ch->deliveries, ch->deliveries.row.first); }
static sb_unacked *by_tag(uint64_t tag) { return sb_deliveries_find(&ch->deliveries, tag); }
/* What the longer record of a long body ends with. */
static uint64_t behind(int64_t length) {
  uint64_t tag;
  memcpy(&tag, last_record + length - sizeof tag, sizeof tag);
  return tag;
}

static unsigned views(void) {
  sb_holdings_walk w;
  unsigned n = 0;
  for (sb_holdings_shm *h = sb_holdings_first(&w, t.b, t.c->shm, t.c->id); h != NULL; h = sb_holdings_next(&w, h)) {
    for (uint32_t i = 0; i < SB_LOAD(&h->used, SB_RELAXED); i++)
      n += sb_holding_kind(SB_LOAD(&h->entries[i].what, SB_RELAXED)) == SB_HOLD_VIEW;
  }
  return n;
}

/* ---- what consumers get ---- */

static void messages_are_given(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_EMPTY, "what is given of nothing");
  stranger_puts(first_queue, 2);
  expect_is(next_of(ch), 1, "the first message");
  expect_is(given()->tag, 1, "its tag");
  expect_is(given()->settled, 0, "whether it is settled");
  expect_is(given()->subscription, m->number, "its consumer");
  expect_member(m, "when one was given", 2, 1, true);
  stranger_puts(first_queue, 1);
  expect_is(next_of(ch), 2, "the second message");
  expect_member(m, "when the last one that waited was given", 2, 0, true);
  expect_is(next_of(ch), 3, "the third message");
  expect_is(sb_channel_unacked(ch), 3, "what was given");
  expect_is(sb_channel_waiting(ch), 0, "what waits");
  expect_is(sb_channel_delivered(ch), 3, "what was delivered");
  expect_is(t.c->lock, 0, "the lock");
  stranger_puts(first_queue, 1);
  leave_no_place(ch);
  expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_SYSTEM, "what is given without memory of the process");
  mend_places(ch);
}
/* A body of up to SB_INLINE_BODY lies in the record; behind the record of a longer one is what reads it. */
static void long_bodies_are_read_in_place(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 1, 0, 0);
  put_long(1, LONG_BODY);
  put_long(2, SB_INLINE_BODY);
  put_long(3, LONG_BODY);
  put_long(4, SB_INLINE_BODY);
  (void)sb_channel_pull(ch);
  uint64_t token = first_of_row()->token;
  int64_t length = sb_channel_next(ch, last_record);
  expect_is(length, sizeof(sb_record) + sizeof(uint64_t), "the length of a record of a long body");
  expect_is(behind(length), token, "what reads it");
  expect_is(id_at((const char *)(uintptr_t)given()->body_address, LONG_BODY), 1, "the body in its place");
  expect_is(sb_channel_settle(ch, 1, false, SB_ACK), SB_OK, "the status of its end");
  expect_is(sb_channel_next(ch, last_record), sizeof(sb_record) + SB_INLINE_BODY,
            "the length of a record with its body");
  expect_is(given()->body_address, 0, "the address of a body in the record");
  (void)sb_channel_settle(ch, 2, false, SB_ACK);
  sb_channel_end_member(m);
  m = join_channel(ch, first_queue, 0, 0, SB_CONSUME_AUTO_ACK);
  length = sb_channel_next(ch, last_record);
  expect_is(given()->settled, 1, "whether it is settled");
  expect_is(id_at((const char *)(uintptr_t)given()->body_address, LONG_BODY), 3, "the body of one that is settled");
  expect(sb_view_slot(t.c, behind(length)) != 0, "there is no view of it");
  sb_view_end(t.c, behind(length));
  expect_is(sb_channel_next(ch, last_record), sizeof(sb_record) + SB_INLINE_BODY, "the length of one that is settled");
  expect_is(held_of(first_queue), 0, "what is held");
  expect_is(counted(first_queue, SB_COUNT_ACKED), 4, "what was settled");
  expect_member(m, "an auto-ack consumer at last", 0, 0, true);
}
static void what_cannot_be_read_is_dropped(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 2);
  (void)sb_channel_pull(ch);
  message_of(first_of_row()->token)->body_length = SB_MAX_BODY + 1;
  expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_CORRUPT, "the status of what cannot be read");
  expect_member(m, "what is left", 1, 1, true);
  expect_is(held_of(first_queue), 1, "what is held");
  expect_is(counted(first_queue, SB_COUNT_DROPPED), 1, "what was dropped");
  expect_is(next_of(ch), 2, "the next message");
  (void)sb_channel_settle(ch, 1, false, SB_ACK);
  stranger_puts(first_queue, 1);
  message_of(first_of_row() != NULL ? first_of_row()->token : (sb_channel_pull(ch), first_of_row()->token))->flags =
      SB_MESSAGE_IN_PARTS;
  expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_CORRUPT, "the status of what has no parts");
  stranger_puts(first_queue, 1);
  (void)sb_channel_pull(ch);
  (void)sb_dispose(first_queue, first_of_row()->token, SB_REASON_ACKED);
  expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_CORRUPT, "the status of what was settled elsewhere");
  expect_member(m, "when all was dropped", 0, 0, true);
  sb_channel_end_member(m);
  stranger_puts(first_queue, 1);
  expect(sb_channel_get(ch, first_queue, last_record, false) > 0, "nothing is got");
  message_of(by_tag(ch->deliveries.last_tag)->token)->body_length = SB_MAX_BODY + 1;
  expect_is(sb_channel_settle(ch, 0, true, SB_REQUEUE), SB_OK, "the status of what goes back");
  expect_is(sb_channel_get(ch, first_queue, last_record, false), -(int64_t)SB_CORRUPT, "the status of what is got");
  expect_is(held_of(first_queue), 0, "what is held at last");
}
/* What was settled when it was given counts no more: the channel goes on. */
static void a_channel_goes_on_when_it_gives(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, SB_CONSUME_AUTO_ACK);
  expect_is(sb_channel_set_prefetch(ch, 1), SB_OK, "the status of a limit");
  stranger_puts(first_queue, 3);
  expect_is(next_of(ch), 1, "the first message");
  expect_member(m, "when it was given", 1, 1, false);
  sb_channel_end_member(m);
  m = join_channel(ch, first_queue, 1, 0, 0);
  expect_is(next_of(ch), 2, "the second message");
  expect_member(m, "when its prefetch is used up", 1, 0, false);
  expect_is(sb_channel_settle(ch, given()->tag, false, SB_ACK), SB_OK, "the status of its end");
  expect_member(m, "when it was settled", 1, 1, false);
}
/* A view that cannot be had leaves the message where it is, unless its viewers cannot be believed. */
static void what_cannot_be_viewed_stays(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, SB_CONSUME_AUTO_ACK);
  put_long(1, LONG_BODY);
  put_long(2, LONG_BODY);
  (void)sb_channel_pull(ch);
  uint64_t first = first_of_row()->token;
  leave_no_holding(true);
  expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_GROW, "the status without a holding");
  expect_is(first_of_row()->token, first, "the next one");
  expect_member(m, "when a view could not be had", 2, 2, true);
  message_of(first)->body_offset = 64; /* no room for viewers before it */
  expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_CORRUPT, "the status without viewers");
  expect_member(m, "when one was dropped", 1, 1, true);
  expect_is(held_of(first_queue), 1, "what is held");
}

/* A message that cannot be given, since its view cannot be had, does not keep the channel from its rest: else the
 * application would ask for the message again and again. The next look of the IO thread hands the channel over. */
static void what_cannot_be_given_is_tried_again_later(void) {
  begin_channels();
  (void)join_channel(ch, first_queue, 0, 0, SB_CONSUME_AUTO_ACK);
  put_long(1, LONG_BODY);
  (void)sb_channel_pull(ch);
  expect(sb_channel_arm(ch), "a channel that has a message rests");
  leave_no_holding(true);
  for (unsigned times = 0; times < 2; times++) {
    expect_is(sb_channel_next(ch, last_record), -(int64_t)SB_GROW, "the status without a holding");
    expect(!sb_channel_arm(ch), "the channel does not rest");
    expect(ch->armed && !ch->ready, "it is handed over at once");
    (void)sb_channel_wants_work(ch);
    expect(!ch->armed && ch->ready, "the look does not hand it over");
    expect(sb_channel_arm(ch), "the message is not tried again");
    sb_channel_unready(ch);
  }
}

/* A message that is spoiled after it was looked at, as by damage: it cannot be put into a record. */
static sb_message_shm *spoiled;
static void spoil(void) {
  spoiled->flags = SB_MESSAGE_IN_PARTS;
  memset((char *)spoiled + sizeof *spoiled, 0, 64);
}
static void what_is_spoiled_is_dropped(void) {
  begin_channels();
  const uint32_t kinds[] = {0, SB_CONSUME_AUTO_ACK};
  for (unsigned i = 0; i < 4; i++) {
    sb_member *m = join_channel(ch, first_queue, 0, 0, kinds[i % 2]);
    put_long(1, i < 2 ? 64 : LONG_BODY);
    (void)sb_channel_pull(ch);
    spoiled = message_of(first_of_row()->token);
    uint64_t last = ch->deliveries.last_tag, dropped = counted(first_queue, SB_COUNT_DROPPED);
    meanwhile(&member_node(m)->delivered, BEFORE_STORE, 1, spoil);
    int64_t length = sb_channel_next(ch, last_record);
    if (!has_acted()) return;
    expect_is(length, -(int64_t)SB_CORRUPT, "the status of what was spoiled");
    expect_member(m, "when it was dropped", 0, 0, true);
    expect_is(ch->deliveries.last_tag, i % 2 == 0 ? last : last + 1, "the last tag");
    expect_is(held_of(first_queue), 0, "what is held");
    expect_is(counted(first_queue, SB_COUNT_DROPPED), dropped + 1, "what was dropped");
    expect_is(views(), 0, "views that are left");
    expect_is(sb_channel_unacked(ch), 0, "what was given");
    sb_channel_end_member(m);
  }
}

/* ---- gets ---- */

static void messages_are_got(void) {
  uint64_t token;
  begin_channels();
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(t.c, token);
  expect_is(sb_channel_get(ch, first_queue, last_record, false), -(int64_t)SB_EMPTY, "what is got of nothing");
  expect_is(t.c->free_holding, token, "the holding that is free");
  spoil_holdings();
  expect_is(sb_channel_get(ch, first_queue, last_record, false), -(int64_t)SB_CORRUPT, "the status beside damage");
  mend_holdings();
  stranger_puts(first_queue, 4);
  expect_is(id_of_record(sb_channel_get(ch, first_queue, last_record, false)), 1, "what is got");
  expect_is(given()->tag, 1, "its tag");
  expect_is(given()->subscription, SB_BY_GET, "its consumer");
  expect(by_tag(1) != NULL && by_tag(1)->of == NULL && by_tag(1)->q == first_queue, "it is not held");
  expect_is(counted(first_queue, SB_COUNT_DELIVERED), 1, "what was delivered");
  leave_no_place(ch);
  expect_is(id_of_record(sb_channel_get(ch, first_queue, last_record, true)), 2, "what is got and settled");
  expect_is(ch->deliveries.last_tag, 2, "its tag");
  mend_places(ch);
  ch->deliveries.last_tag = 2;
  leave_no_place(ch);
  expect_is(sb_channel_get(ch, first_queue, last_record, false), -(int64_t)SB_SYSTEM, "the status without memory");
  mend_places(ch);
  expect_is(held_of(first_queue), 1, "what is held");
  expect_is(counted(first_queue, SB_COUNT_DELIVERED), 2, "what was delivered with what was not");
  expect_is(id_of_record(sb_channel_get(ch, first_queue, last_record, false)), 3, "what came back");
  expect_is(given()->delivery_count, 1, "how often it was delivered");
  expect_is(t.c->lock, 0, "the lock");
}
static void one_holding_left(void) {
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  leave_no_holding(true);
  sb_holding_give(t.c, token);
}
static void long_bodies_are_got(void) {
  begin_channels();
  for (uint64_t id = 1; id <= 3; id++) put_long(id, LONG_BODY);
  int64_t length = sb_channel_get(ch, first_queue, last_record, true);
  expect(sb_view_slot(t.c, behind(length)) != 0, "there is no view");
  sb_view_end(t.c, behind(length));
  length = sb_channel_get(ch, first_queue, last_record, false);
  expect_is(behind(length), by_tag(2)->token, "what reads a long body");
  expect_is(sb_channel_settle(ch, 2, false, SB_REQUEUE), SB_OK, "the status of one that goes back");
  one_holding_left();
  expect_is(sb_channel_get(ch, first_queue, last_record, true), -(int64_t)SB_GROW, "the status without a view");
  expect_is(held_of(first_queue), 0, "what is held without a view");
  expect_is(ch->deliveries.last_tag, 2, "the last tag");
  length = sb_channel_get(ch, first_queue, last_record, false);
  expect_is(id_at((const char *)(uintptr_t)given()->body_address, LONG_BODY), 2, "what came back");
  message_of(by_tag(3)->token)->body_offset = 64; /* no room for viewers before it */
  expect_is(sb_channel_settle(ch, 3, false, SB_REQUEUE), SB_OK, "the status of another one that goes back");
  expect_is(sb_channel_get(ch, first_queue, last_record, true), -(int64_t)SB_CORRUPT, "the status without viewers");
  expect_is(counted(first_queue, SB_COUNT_DROPPED), 1, "what was dropped");
  expect_is(held_of(first_queue), 0, "what is held at last");
}
/* Deliveries that the application keeps have every view that a body can have. */
static void take_all_views(void) {
  uint64_t view;
  sb_status status = SB_OK;
  int64_t length = sb_channel_get(ch, first_queue, last_record, false);
  while (status == SB_OK) {
    status = sb_view_begin(t.c, behind(length), given()->sequence, given()->body_address, &view);
  }
  expect_is(status, SB_LIMIT, "the status of one view too many");
  expect_is(sb_channel_settle(ch, 0, true, SB_UNDELIVER), SB_OK, "the status of what goes back");
}
static void expect_unread(int64_t length, uint64_t tag) {
  static char copy[LONG_BODY];
  sb_place place;
  expect_is(given()->settled, SB_GIVEN_UNREAD, "whether it is settled");
  expect_is(given()->tag, tag, "its tag");
  expect_is(behind(length), by_tag(tag)->token, "what reads it");
  expect_is(sb_view_place(t.c, behind(length), given()->sequence + 1, given()->body_address, &place), SB_SETTLED,
            "the status of another message");
  expect_is(sb_view_place(t.c, behind(length), given()->sequence, given()->body_address, &place), SB_OK,
            "the status of its place");
  expect_is(sb_place_copy_body(t.c, &place, copy), SB_OK, "the status of a copy");
  expect_is(id_at(copy, LONG_BODY), 1, "the copy");
}
static void a_body_without_a_view_is_given_unread(void) {
  begin_channels();
  put_long(1, LONG_BODY);
  take_all_views();
  unsigned before = views();
  expect_unread(sb_channel_get(ch, first_queue, last_record, true), 1);
  expect_is(sb_channel_settle(ch, 1, false, SB_UNDELIVER), SB_OK, "the status of one that was not read");
  sb_member *m = join_channel(ch, first_queue, 1, 0, SB_CONSUME_AUTO_ACK);
  (void)sb_channel_pull(ch);
  for (unsigned i = 0; i < 2; i++) {
    expect_unread(sb_channel_next(ch, last_record), 1);
    expect_member(m, "when it was given", 1, 0, true);
    if (i == 0) (void)sb_channel_settle(ch, 1, false, SB_UNDELIVER);
    expect_member(m, "when it came back, if it did", 1, i == 0, true);
  }
  expect_is(sb_channel_settle(ch, 1, false, SB_ACK), SB_OK, "the status of its end");
  expect_member(m, "at last", 0, 0, true);
  expect_is(sb_channel_delivered(ch), 1, "what was delivered");
  expect_is(counted(first_queue, SB_COUNT_ACKED), 1, "what was settled");
  expect_is(views(), before, "the views");
  put_long(2, LONG_BODY);
  expect_is(behind(sb_channel_next(ch, last_record)) != 0 && given()->settled == SB_GIVEN_SETTLED, 1, "the next one");
  expect_is(given()->tag, 2, "its tag");
}
static void a_body_without_a_view_needs_a_place(void) {
  begin_channels();
  put_long(1, LONG_BODY);
  take_all_views();
  leave_no_place(ch);
  expect_is(sb_channel_get(ch, first_queue, last_record, true), -(int64_t)SB_SYSTEM, "the status without memory");
  mend_places(ch);
  expect_is(held_of(first_queue), 0, "what is held");
  expect_unread(sb_channel_get(ch, first_queue, last_record, true), 1);
}
/* The n-th look at the chunk of the message is the last one before it is put into a record. */
static void what_is_spoiled_is_not_got(void) {
  begin_channels();
  for (unsigned i = 0; i < 48; i++) {
    bool auto_ack = i % 2 != 0;
    put_long(1, i % 4 < 2 ? 64 : LONG_BODY);
    expect(sb_channel_get(ch, first_queue, last_record, false) > 0, "nothing is got");
    uint64_t tag = ch->deliveries.last_tag;
    spoiled = message_of(by_tag(tag)->token);
    (void)sb_channel_settle(ch, tag, false, SB_REQUEUE);
    uint32_t chunk = sb_slot_of(t.b, spoiled) / SB_CHUNK_UNITS;
    uint64_t done = counted(first_queue, SB_COUNT_DROPPED) + counted(first_queue, SB_COUNT_ACKED);
    meanwhile(&t.b->chunks[chunk], AFTER_LOAD, i / 4 + 1, spoil);
    int64_t length = sb_channel_get(ch, first_queue, last_record, auto_ack);
    if (length > 0 && given()->body_address != 0 && auto_ack) sb_view_end(t.c, behind(length));
    meanwhile(NULL, AFTER_LOAD, 1, NULL);
    if (length > 0 && !auto_ack) (void)sb_channel_settle(ch, 0, true, SB_ACK);
    expect_is(sb_channel_unacked(ch), 0, "what is given");
    expect_is(held_of(first_queue), 0, "what is held");
    expect_is(views(), 0, "views that are left");
    expect_is(counted(first_queue, SB_COUNT_DROPPED) + counted(first_queue, SB_COUNT_ACKED), done + 1, "what is over");
  }
}
/* Messages that came back while a get searched: others may have seen no bit. */
static void a_get_tells_others_of_what_came_back(void) {
  begin_channels();
  sb_channel *second = open_channel(2);
  stranger_puts(first_queue, 3);
  expect(sb_channel_get(ch, first_queue, last_record, false) > 0, "nothing is got");
  expect(sb_channel_get(ch, first_queue, last_record, false) > 0, "nothing is got");
  expect(sb_channel_get(ch, first_queue, last_record, false) > 0, "nothing is got");
  sb_member *m = join_channel(second, first_queue, 0, 0, 0);
  (void)sb_release_message(first_queue, by_tag(1)->token, SB_UNDELIVER); /* and no consumer is notified */
  (void)sb_release_message(first_queue, by_tag(2)->token, SB_UNDELIVER);
  SB_STORE(&first_queue->shm->requeued, 0, SB_RELAXED);
  SB_STORE(&first_queue->shm->requeued, 1, SB_RELAXED);
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state of another one before");
  expect_is(id_of_record(sb_channel_get(ch, first_queue, last_record, true)), 1, "what came back");
  expect_is(member_state(m), SB_NODE_NOTIFIED, "the state of another one");
  m = join_channel(second, second_queue, 0, 0, 0);
  stranger_puts(second_queue, 2);
  (void)sb_node_move(t.c, m->s.node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  expect(sb_channel_get(ch, second_queue, last_record, true) > 0, "nothing is got");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state of another one where nothing came back");
}
static void limits_of_queues_that_are_got_from(void) {
  begin_channels();
  sb_settings ring = FREELY, timed = FREELY;
  ring.values[SB_SETTING_RING_SIZE] = 5;
  timed.values[SB_SETTING_EXPIRES_MS] = 1000000;
  if (declare(&t, "ring", ring) != SB_OK || declare(&t, "timed", timed) != SB_OK) die("declare", 0);
  sb_queue *of_ring = open_queue(&t, "ring"), *of_time = open_queue(&t, "timed");
  for (uint64_t id = 1; id <= 5; id++) put(&t, of_ring, id);
  SB_STORE(&of_ring->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
  SB_STORE(&of_ring->shm->bound, 2, SB_RELAXED); /* and the process that set it was killed before it evicted */
  expect_is(id_of_record(sb_channel_get(ch, of_ring, last_record, true)), 4, "the first one within the bound");
  SB_STORE(&of_time->shm->used_ns, 1, SB_RELAXED);
  expect_is(sb_channel_get(ch, of_time, last_record, true), -(int64_t)SB_EMPTY, "what is got of nothing");
  expect(SB_LOAD(&of_time->shm->used_ns, SB_RELAXED) > 1, "the queue was not used");
}
static sb_half *closes;
static void close_it(void) { SB_STORE(closes, 1u, SB_RELAXED); }
static void a_channel_is_closed_before_a_get(void) {
  begin_channels();
  sb_settings ring = FREELY;
  ring.values[SB_SETTING_RING_SIZE] = 5;
  if (declare(&t, "ring", ring) != SB_OK) die("declare", 0);
  sb_queue *of_ring = open_queue(&t, "ring");
  put(&t, of_ring, 1);
  for (unsigned i = 0; i < 2; i++) {
    closes = i == 0 ? &ch->closed : &t.c->closed;
    meanwhile(&of_ring->shm->tracking, AFTER_LOAD, 1, close_it);
    int64_t length = sb_channel_get(ch, of_ring, last_record, true);
    if (!has_acted()) return;
    SB_STORE(closes, 0u, SB_RELAXED);
    expect_is(length, -(int64_t)SB_CLOSED, "the status");
    expect_is(t.c->lock, 0, "the lock");
    expect_is(sb_queue_length(of_ring), 1, "what is there");
  }
}

static const test_case CASES[] = {
    {"api_channels_given: next", "messages are given in order", messages_are_given},
    {"api_channels_given: long", "long bodies are read in their place", long_bodies_are_read_in_place},
    {"api_channels_given: corrupt", "what cannot be read is dropped", what_cannot_be_read_is_dropped},
    {"api_channels_given: goes on", "a channel goes on with what it gave", a_channel_goes_on_when_it_gives},
    {"api_channels_given: viewed", "what cannot be viewed stays", what_cannot_be_viewed_stays},
    {"api_channels_given: later", "what cannot be given is tried again later",
     what_cannot_be_given_is_tried_again_later},
    {"api_channels_given: spoiled", "what is spoiled meanwhile is dropped", what_is_spoiled_is_dropped},
    {"api_channels_given: got", "a get has a tag of the channel", messages_are_got},
    {"api_channels_given: got long", "long bodies are got", long_bodies_are_got},
    {"api_channels_given: got spoiled", "what is spoiled meanwhile is not got", what_is_spoiled_is_not_got},
    {"api_channels_given: unread", "a body without a view is read first", a_body_without_a_view_is_given_unread},
    {"api_channels_given: no place", "what is read first needs a place", a_body_without_a_view_needs_a_place},
    {"api_channels_given: returned", "a get tells others of what came back", a_get_tells_others_of_what_came_back},
    {"api_channels_given: limits", "a get looks at the limits of its queue", limits_of_queues_that_are_got_from},
    {"api_channels_given: closed", "a channel that is closed meanwhile gets nothing", a_channel_is_closed_before_a_get},
};
SUBJECT(CASES)
