// SPDX-License-Identifier: Apache-2.0
/* sb_api_get: what a get hands over, what a failed get leaves, and which nodes it notifies. The record itself:
 * api_get_record.c. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "sb_api.h"
#include "surroundings.h"

#define LONG (SB_INLINE_BODY + 64u)
#define ONE_RECORD (sizeof(sb_record) + 65536u + SB_INLINE_BODY) /* the room that a get of several wants for one */
#define UNKNOWN 12345u
#define HOUR_NS UINT64_C(3600000000000)

static char buffer[BUFFER];
static sb_queue *q;
static const sb_record *record_at(uint64_t offset) { return (const sb_record *)(const void *)(buffer + offset); }
static uint64_t id_of(int64_t length) { return length < 0 ? 0 : id_at(body_of(buffer, length), BYTES); }
static uint64_t got(void) { return id_of(sb_queue_get(q, buffer, true)); }
static uint64_t ready(void) { return (uint64_t)sb_queue_length(q); }
static sb_wait wait_until(uint64_t deadline_ns) { return (sb_wait){.deadline_ns = deadline_ns, .look_ns = UINT64_MAX}; }
static void put_long(uint64_t bytes) {
  const sb_put_options none = {0};
  expect_is(put_sized(&t, q, 1, bytes, &none), SB_OK, "the status of a put");
}
static void requeue(void) { expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_OK, "the status of a requeue"); }

/* ---- what is handed over ---- */

static void a_message_is_counted(void) {
  q = begin_queue("q", UNLIMITED, 2);
  note_rest(q);
  expect_is(id_of(sb_queue_get(q, buffer, false)), 1, "the first message");
  expect_is(counted(q, SB_COUNT_DELIVERED), 1, "the number delivered");
  expect_is(counted(q, SB_COUNT_REDELIVERED), 0, "the number redelivered");
  expect_is(counted(q, SB_COUNT_ACKED), 0, "the number acknowledged");
  requeue();
  expect_is(got(), 1, "the message that came back");
  expect_is(counted(q, SB_COUNT_DELIVERED), 2, "the number delivered, twice");
  expect_is(counted(q, SB_COUNT_REDELIVERED), 1, "the number redelivered, once");
  expect_is(counted(q, SB_COUNT_ACKED), 1, "the number acknowledged, once");
  expect_is(got(), 2, "the second message");
  expect_is(counted(q, SB_COUNT_REDELIVERED), 1, "the number redelivered, after the second");
  expect_is(sb_queue_get(q, buffer, true), -(int64_t)SB_EMPTY, "the status of a get of nothing");
  expect_rest("gets");
}
/* What is settled is read through a view, unless its record has it all. */
static void a_long_message_is_viewed(void) {
  q = begin_queue("q", UNLIMITED, 0);
  note_rest(q);
  put_long(SB_INLINE_BODY);
  expect_is(sb_queue_get(q, buffer, true), sizeof(sb_record) + SB_INLINE_BODY, "the length of a short body");
  expect_rest("a get of a short body");
  put_long(LONG);
  expect_is(sb_queue_get(q, buffer, true), sizeof(sb_record), "the length of a long body");
  expect_is(sb_holding_kind(held_by(record_at(0)->tag)), SB_HOLD_VIEW, "what the tag names");
  expect_is(id_at(body_of(buffer, sizeof(sb_record)), LONG), 1, "the body");
  sb_view_end(t.c, record_at(0)->tag);
  put_long(LONG);
  (void)sb_queue_get(q, buffer, false);
  expect_is(sb_holding_kind(held_by(record_at(0)->tag)), SB_HOLD_CELL, "what the tag of one that is not settled names");
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_OK, "the status of its settlement");
  expect_rest("gets of long bodies");
}
static void a_read_renews_the_queue(void) {
  q = begin_queue("q", (sb_settings){{-1, -1, -1, 0, -1, 100000}, 0}, 0);
  SB_STORE(&q->shm->used_ns, 1, SB_RELAXED);
  (void)sb_queue_get(q, buffer, true);
  expect(q->shm->used_ns > 1, "a get is no use of the queue");
}

/* ---- who is told ---- */

static void a_producer_is_told(void) {
  q = begin_queue("q", (sb_settings){{-1, 2, -1, 0, -1, -1}, 0}, 2);
  uint32_t node = wait_at(q, FOR_ROOM, BYTES), memory = wait_at(q, FOR_MEMORY, BYTES);
  expect_is(got(), 1, "the message");
  expect(was_told(node), "a producer that waits for room is not told");
  expect(was_told(memory), "a producer that waits for memory is not told");
}
/* More came back than was taken: others may have seen none of it. */
static void another_consumer_is_told(void) {
  uint64_t tags[2];
  q = begin_queue("q", UNLIMITED, 3);
  uint32_t node = wait_at(q, FOR_WORK, 0);
  for (int i = 0; i < 2; i++) {
    (void)sb_queue_get(q, buffer, false);
    tags[i] = record_at(0)->tag;
    expect(!was_told(node), "another consumer is told of nothing");
  }
  for (int i = 0; i < 2; i++) expect_is(sb_release_message(q, tags[i], SB_REQUEUE), SB_OK, "a release");
  expect_is(got(), 1, "the message that came back");
  expect(was_told(node), "another consumer is not told that one more came back");
  mark_closed(q);
  expect_is(sb_queue_get(q, buffer, true), -(int64_t)SB_DELETED, "the status of a closed queue");
  expect(!was_told(node), "another consumer is told of what cannot be taken");
}

/* ---- what cannot be handed over ---- */

static void a_closed_connection_gets_nothing(void) {
  uint32_t places[4] = {UNKNOWN};
  uint64_t used = UNKNOWN;
  sb_wait wait = wait_until(FOREVER);
  q = begin_queue("q", UNLIMITED, 1);
  for (unsigned i = 0; i < REFUSALS; i++) {
    int64_t should = -(int64_t)REFUSAL[i];
    refuse(t.c, REFUSAL[i]);
    expect(sb_queue_get(q, buffer, true) == should, "a get is not refused with %d", (int)REFUSAL[i]);
    expect(sb_queue_get_spin(q, 0, buffer, true) == should, "a get in a moment is not refused with %d",
           (int)REFUSAL[i]);
    expect(sb_queue_get_wait(q, buffer, true, &wait) == should, "a get that waits is not refused with %d",
           (int)REFUSAL[i]);
    expect(sb_queue_get_many(q, 1, true, buffer, sizeof buffer, places, &used) == should,
           "several are not refused with %d", (int)REFUSAL[i]);
    expect(sb_queue_get_many_wait(q, 1, true, buffer, sizeof buffer, places, &used, &wait) == should,
           "a wait for several is not refused with %d", (int)REFUSAL[i]);
    expect_untouched(t.c, "gets that are refused");
  }
  expect(used == UNKNOWN && places[0] == UNKNOWN, "what is refused writes something");
  refuse(t.c, SB_FORKED);
  sb_queue_end_wait(q, &wait);
  expect_untouched(t.c, "the end of a wait of a forked child");
  refuse(t.c, SB_OK);
  expect_is(ready(), 1, "the number of messages");
}
/* A message whose header is damaged would be the next one for ever: the first of a call ends as one that is rejected. */
static void a_damaged_message_ends(void) {
  q = begin_queue("q", (sb_settings){{-1, 5, -1, 0, -1, -1}, 0}, 3);
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  note_rest(q);
  message_of(0)->body_offset = 1;
  expect_is(sb_queue_get(q, buffer, true), -(int64_t)SB_CORRUPT, "the status");
  expect_is(counted(q, SB_COUNT_DROPPED), 1, "the number dropped");
  expect_is(counted(q, SB_COUNT_DELIVERED), 0, "the number delivered");
  expect(was_told(node), "a producer that waits for room is not told");
  expect_is(got(), 2, "the next message");
  expect_rest("a get of a damaged message");
}
/* The reference of a view is in use, or so it seems: the message goes back to its place, and others are told. */
static void no_view_is_left(void) {
  q = begin_queue("q", UNLIMITED, 0);
  put_long(LONG);
  sb_word *header = sb_slot_header(t.b, sb_cell_slot(word_of(0)));
  uint32_t node = wait_at(q, FOR_WORK, 0);
  note_rest(q);
  uint64_t before = SB_LOAD(header, SB_RELAXED);
  SB_STORE(header, before | SB_FIELD((1u << SB_MAX_REFS) - 1, 2), SB_RELAXED);
  expect_is(sb_queue_get(q, buffer, true), -(int64_t)SB_LIMIT, "the status");
  expect_is(ready(), 1, "the number of messages");
  expect_is(counted(q, SB_COUNT_DELIVERED), 0, "the number delivered");
  expect(was_told(node), "another consumer is not told that it came back");
  SB_STORE(header, before, SB_RELAXED);
  expect_rest("a get without a view");
}
static void no_holding_is_left(void) {
  uint64_t token = UNKNOWN;
  q = begin_queue("q", UNLIMITED, 1);
  leave_chunks(0);
  take_slots(sb_class_of_kind(t.b, SB_KIND_HOLDINGS));
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  expect_is(sb_queue_get(q, buffer, true), -(int64_t)SB_NO_MEMORY, "the status");
  expect_is(ready(), 1, "the number of messages");
}
/* Its parts break after they were found to be long enough. */
static uint32_t head;
static void break_them(void) { break_parts(head); }
static void parts_that_break(bool auto_ack) {
  char *record = untouched(BUFFER);
  q = begin_queue("q", UNLIMITED, 0);
  put_long(BYTES); /* there are short slots */
  leave_chunks(0);
  const sb_put_options o = {.properties = buffer, .properties_length = 30000};
  note_rest(q);
  expect_is(put_sized(&t, q, 2, auto_ack ? LONG : BYTES, &o), SB_OK, "the status of a put");
  expect_is(got(), 1, "the message in one piece");
  head = sb_cell_slot(word_of(1));
  at_touch(record, break_them);
  expect_is(sb_queue_get(q, record, auto_ack), -(int64_t)SB_CORRUPT, "the status");
  expect_is(touches, 1, "how often the record was written");
  expect_is(counted(q, SB_COUNT_DROPPED), 1, "the number dropped");
  expect_calm("a get whose parts broke");
}
static void parts_that_break_unsettled(void) { parts_that_break(false); }
static void parts_that_break_before_they_are_viewed(void) { parts_that_break(true); }

/* ---- several ---- */

static uint32_t places[3 * 8 + 1];
static uint64_t used;
static int64_t get_many(uint32_t count, uint64_t size) {
  memset(places, 0xff, sizeof places);
  used = UNKNOWN;
  return sb_queue_get_many(q, count, true, buffer, size, places, &used);
}
static void expect_place(uint32_t i, uint64_t offset, uint64_t body, uint64_t end) {
  expect_is(places[3 * i], offset, "where a record begins");
  expect_is(places[3 * i + 1], body, "where its body begins");
  expect_is(places[3 * i + 2], end, "where its body ends");
}
/* Records lie behind each other, each at a multiple of 8; a body that is read in place takes no room. */
static void several_messages(void) {
  q = begin_queue("q", UNLIMITED, 0);
  note_rest(q);
  put_long(13);
  put_long(LONG);
  put_long(16);
  const uint64_t r = sizeof(sb_record);
  expect_is(get_many(3, sizeof buffer), 3, "how many were taken");
  expect_place(0, 0, r, r + 13);
  expect_place(1, r + 16, 2 * r + 16, 2 * r + 16);
  expect_place(2, 2 * r + 16, 3 * r + 16, 3 * r + 32);
  expect_is(places[9], 1, "how many bodies are read in place");
  expect_is(places[10], UINT32_MAX, "what is behind the index");
  expect_is(used, 3 * r + 32, "how much was used");
  expect(record_at(0)->body_length == 13 && record_at(r + 16)->body_length == LONG, "these are other messages");
  sb_view_end(t.c, record_at(r + 16)->tag);
  expect_rest("a get of several");
}
static void as_many_as_there_are(void) {
  q = begin_queue("q", UNLIMITED, 3);
  expect_is(get_many(2, sizeof buffer), 2, "how many of three were taken");
  expect_is(places[6], 0, "how many bodies are read in place");
  expect_is(get_many(2, sizeof buffer), 1, "how many of one were taken");
  expect_is(get_many(2, sizeof buffer), -(int64_t)SB_EMPTY, "the status of none");
  expect(used == 0 && places[6] == 0, "something was written of none");
}
static void as_many_as_fit(void) {
  q = begin_queue("q", UNLIMITED, 3);
  expect_is(get_many(3, ONE_RECORD - 1), 0, "how many fit into too short a buffer");
  expect(used == 0 && places[9] == 0, "something was written into too short a buffer");
  expect_is(get_many(3, ONE_RECORD), 1, "how many fit into a buffer of one");
  expect_is(get_many(3, ONE_RECORD + sizeof(sb_record) + BYTES), 2, "how many fit into a longer buffer");
}
/* The second one is damaged: this call ends before it, the next one says so. */
static void several_with_a_damaged_one(void) {
  q = begin_queue("q", (sb_settings){{-1, 5, -1, 0, -1, -1}, 0}, 3);
  note_rest(q);
  message_of(1)->body_offset = 1;
  expect_is(get_many(3, sizeof buffer), 1, "how many were taken");
  expect_is(ready(), 2, "how many are left");
  expect_is(get_many(3, sizeof buffer), -(int64_t)SB_CORRUPT, "the status of the damaged one");
  expect_is(get_many(3, sizeof buffer), 1, "how many were taken after it");
  expect_is(id_at(body_of(buffer, places[2]), BYTES), 3, "the last message");
  expect_rest("gets of several with a damaged one");
}

/* ---- waiting ---- */

static unsigned locked;
static void look(void) { locked = SB_LOAD(&t.c->lock, SB_RELAXED); }
static void a_message_that_was_waited_for(void) {
  sb_wait wait = wait_until(FOREVER);
  char *record = untouched(BUFFER);
  q = begin_queue("q", UNLIMITED, 3);
  note_rest(q);
  at_touch(record, look);
  expect_is(sb_queue_get_wait(q, record, true, &wait), sizeof(sb_record) + BYTES, "the length");
  expect(touches == 1 && locked == 1, "the record was written without the lock");
  expect_is(id_at(body_of(record, sizeof(sb_record) + BYTES), BYTES), 1, "the message");
  expect_is(id_of(sb_queue_get_spin(q, HOUR_NS, buffer, true)), 2, "the message that came in a moment");
  expect_is(id_of(sb_queue_get_wait(q, buffer, true, &wait)), 3, "the last message");
  wait = wait_until(AT_ONCE);
  expect_is(sb_queue_get_wait(q, buffer, true, &wait), -(int64_t)SB_TIMEOUT, "the status when it took too long");
  expect_is(sb_queue_get_spin(q, 0, buffer, true), -(int64_t)SB_EMPTY, "the status when none came in a moment");
  note_rest(q); /* the node of the wait stays with the queue */
  expect_rest("waits");
}
static void several_that_were_waited_for(void) {
  sb_wait wait = wait_until(FOREVER);
  char *records = untouched(BUFFER);
  q = begin_queue("q", UNLIMITED, 3);
  note_rest(q);
  at_touch(records, look);
  expect_is(sb_queue_get_many_wait(q, 8, true, records, BUFFER, places, &used, &wait), 3, "how many were taken");
  expect(touches == 1 && locked == 1, "the records were written without the lock");
  for (uint32_t i = 0; i < 3; i++) expect_is(id_at(records + places[3 * i + 1], BYTES), i + 1, "a message");
  expect_rest("a wait for several");
  wait = wait_until(AT_ONCE);
  expect_is(sb_queue_get_many_wait(q, 8, true, records, BUFFER, places, &used, &wait), -(int64_t)SB_TIMEOUT,
            "the status when it took too long");
}
/* A caller that only looked around keeps its node; the end of the wait gives it up, with the lock. */
static void a_wait_that_ends(void) {
  sb_wait wait = {.deadline_ns = FOREVER, .look_ns = AT_ONCE};
  q = begin_queue("q", UNLIMITED, 0);
  expect_is(sb_queue_get_wait(q, buffer, true, &wait), -(int64_t)SB_TICK, "the status");
  expect(wait.node != 0 && q->busy == 1, "the wait has no node");
  at_touch(sb_slot_at(t.b, wait.node), look);
  sb_queue_end_wait(q, &wait);
  expect(touches == 1 && locked == 1, "the wait ended without the lock");
  expect(wait.node == 0 && q->busy == 0 && t.c->lock == 0, "the wait goes on");
}

/* ---- closed meanwhile ---- */

/* After the message was taken, and before it is handed over: closing puts it back. */
static void close_when_taken(const char *site) {
  (void)site;
  if (t.c->lock != 0 || (uint32_t)q->ledger->holding == 0) return; /* no SB_LOAD, which is a step */
  at_step = NULL;
  (void)sb_connection_close(t.c);
}
static void closed_after_it_was_taken(bool several) {
  sb_wait wait = wait_until(FOREVER);
  if (!has_steps()) return;
  q = begin_queue("q", UNLIMITED, 1);
  at_step = close_when_taken;
  int64_t n = several ? sb_queue_get_many_wait(q, 8, true, buffer, sizeof buffer, places, &used, &wait)
                      : sb_queue_get_wait(q, buffer, true, &wait);
  expect(at_step == NULL, "nothing was taken");
  expect_is(n, -(int64_t)SB_CLOSED, "the status");
  expect_is(sb_queue_ready(t.b, q->shm), 1, "the number of messages");
  expect_is(counted(q, SB_COUNT_DELIVERED), 0, "the number delivered");
}
static void one_that_was_taken(void) { closed_after_it_was_taken(false); }
static void several_that_were_taken(void) { closed_after_it_was_taken(true); }
/* While the connection reaps a producer that died in debt, another thread closes it. */
static void close_while_reaping(const char *site) {
  if (strcmp(site, "recover.begun") != 0) return;
  at_step = NULL;
  (void)sb_connection_close(t.c);
}
/* The ring holds a message too many, and seems not to: a producer died in debt. */
static void begin_in_debt(void) {
  q = begin_queue("q", (sb_settings){{3, -1, -1, 0, -1, -1}, 0}, 3);
  note_rest(q);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
  die_in_debt("q");
}
static void closed_while_it_reaps(bool several) {
  if (!has_steps()) return;
  begin_in_debt();
  at_step = close_while_reaping;
  expect_is(several ? get_many(1, sizeof buffer) : sb_queue_get(q, buffer, true), -(int64_t)SB_CLOSED, "the status");
  expect(at_step == NULL, "no producer was reaped");
  expect_is(counted(q, SB_COUNT_DELIVERED), 0, "the number delivered");
}
static void one_while_it_reaps(void) { closed_while_it_reaps(false); }
static void several_while_it_reaps(void) { closed_while_it_reaps(true); }
/* What is too many goes before the get. */
static void a_debt_is_paid(bool several) {
  begin_in_debt();
  expect_is(several ? get_many(1, sizeof buffer) : sb_queue_get(q, buffer, true),
            several ? 1 : sizeof(sb_record) + BYTES, "what was taken");
  expect_is(id_at(buffer + sizeof(sb_record), BYTES), 2, "the message");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "the number replaced");
  expect_rest("a debt that was paid");
}
static void a_debt_is_paid_by_one(void) { a_debt_is_paid(false); }
static void a_debt_is_paid_by_several(void) { a_debt_is_paid(true); }

static const test_case CASES[] = {
    {"api_get: counted", "a message is counted as delivered, and as redelivered when it came back",
     a_message_is_counted},
    {"api_get: viewed", "a long body that is settled is read through a view", a_long_message_is_viewed},
    {"api_get: used", "a get renews a queue that expires", a_read_renews_the_queue},
    {"api_get: producer", "a producer that waits for room or memory is told", a_producer_is_told},
    {"api_get: consumer", "another consumer is told when more came back", another_consumer_is_told},
    {"api_get: refused", "a connection that cannot be used gets nothing", a_closed_connection_gets_nothing},
    {"api_get: damaged", "a damaged message ends as one that is rejected", a_damaged_message_ends},
    {"api_get: no view", "without a view the message goes back", no_view_is_left},
    {"api_get: no holding", "without a holding nothing is taken", no_holding_is_left},
    {"api_get: broken", "a message whose parts break ends", parts_that_break_unsettled},
    {"api_get: broken, viewed", "a view of parts that break ends", parts_that_break_before_they_are_viewed},
    {"api_get: several", "records of several lie behind each other", several_messages},
    {"api_get: count", "several are as many as there are", as_many_as_there_are},
    {"api_get: fit", "several are as many as fit", as_many_as_fit},
    {"api_get: several, damaged", "several end before a damaged one", several_with_a_damaged_one},
    {"api_get: waited", "a message that was waited for is handed over with the lock", a_message_that_was_waited_for},
    {"api_get: several waited", "several follow the one that was waited for", several_that_were_waited_for},
    {"api_get: end", "a wait that ends gives its node up with the lock", a_wait_that_ends},
    {"api_get: closed", "a message that was taken goes back when the connection closes", one_that_was_taken},
    {"api_get: several closed", "so does the first of several", several_that_were_taken},
    {"api_get: closed reaping", "a connection that closes while it reaps gets nothing", one_while_it_reaps},
    {"api_get: several reaping", "nor does it get several", several_while_it_reaps},
    {"api_get: debt", "a get pays the debt of a dead producer first", a_debt_is_paid_by_one},
    {"api_get: several, debt", "so does a get of several messages", a_debt_is_paid_by_several},
};
SUBJECT(CASES)
