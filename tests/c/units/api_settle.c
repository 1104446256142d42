// SPDX-License-Identifier: Apache-2.0
/* sb_api_settle: the end of a message that a get gave, the nodes that are notified, and the bodies that are read in
 * place. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "sb_api.h"
#include "surroundings.h"

#define LONG (SB_INLINE_BODY + 64u)
#define STRIDE 3u

static char buffer[BUFFER];
static sb_queue *q;
static sb_record *record_at(uint64_t offset) { return (sb_record *)(void *)(buffer + offset); }
static void get_unsettled(char *record) {
  int64_t length = sb_queue_get(q, record, false);
  expect(length > 0, "a get failed with %d", (int)-length);
}
static uint64_t ready(void) { return (uint64_t)sb_queue_length(q); }
static unsigned delivery_count(void) { return sb_side_count(SB_LOAD(&cell(0)->side, SB_RELAXED)); }

/* ---- how a message ends ---- */

static void the_ways_to_settle(void) {
  q = begin_queue("q", UNLIMITED, 1);
  note_rest(q);
  get_unsettled(buffer);
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_OK, "the status of a requeue");
  expect_is(delivery_count(), 1, "the delivery count after a requeue");
  get_unsettled(buffer);
  expect_is(sb_queue_settle(q, buffer, SB_UNDELIVER), SB_OK, "the status of a clean return");
  expect_is(delivery_count(), 1, "the delivery count after a clean return");
  expect_is(ready(), 1, "how many are ready");
  get_unsettled(buffer);
  record_at(0)->tag |= UINT64_C(3) << SB_TAG_ACK_SLOT; /* a consumer's place stands above the token */
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_is(counted(q, SB_COUNT_ACKED), 1, "the number acknowledged");
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_SETTLED, "the status of a second acknowledgement");
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_SETTLED, "the status of a requeue of what is settled");
  expect_is(put(&t, q, 2), SB_OK, "the status of a put");
  get_unsettled(buffer);
  expect_is(sb_queue_settle(q, buffer, SB_REJECT), SB_OK, "the status of a rejection");
  expect_is(counted(q, SB_COUNT_DROPPED), 1, "the number dropped");
  expect_is(counted(q, SB_COUNT_ACKED), 1, "the number acknowledged after a rejection");
  expect_rest("four settlements");
}
static void settlements_that_are_refused(void) {
  uint32_t index = 0;
  q = begin_queue("q", UNLIMITED, 1);
  get_unsettled(buffer);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_queue_settle(q, buffer, SB_ACK), REFUSAL[i], "the status");
    expect_is(sb_queue_settle_many(q, buffer, &index, 1, 1, SB_ACK), REFUSAL[i], "the status of several");
    expect_untouched(t.c, "a settlement that is refused");
  }
  refuse(t.c, SB_OK);
  sb_ledger_shm *ledger = q->ledger;
  q->ledger = NULL;
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_SETTLED, "the status of a handle that was left");
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_SETTLED, "the status of a requeue to a handle that was left");
  q->ledger = ledger;
  expect_is(counted(q, SB_COUNT_ACKED), 0, "the number acknowledged");
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_OK, "the status at last");
}

/* ---- who is told ---- */

static void a_consumer_is_told_of_what_came_back(void) {
  q = begin_queue("q", UNLIMITED, 1);
  get_unsettled(buffer);
  uint32_t node = wait_at(q, FOR_WORK, 0);
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_OK, "the status of a requeue");
  expect(was_told(node), "a consumer is not told of what came back");
  get_unsettled(buffer);
  (void)was_told(node);
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect(!was_told(node), "a consumer is told of an acknowledgement");
  expect_is(put(&t, q, 2), SB_OK, "the status of a put");
  expect(was_told(node), "a consumer is not told of a put");
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_SETTLED, "the status of a requeue of what is settled");
  expect(!was_told(node), "a consumer is told of what did not come back");
}
static void a_producer_is_told_of_memory(void) {
  q = begin_queue("q", (sb_settings){{-1, 5, -1, 0, -1, -1}, 0}, 2);
  uint32_t node = wait_at(q, FOR_MEMORY, BYTES), room = wait_at(q, FOR_ROOM, BYTES);
  get_unsettled(buffer);
  (void)was_told(node);
  (void)was_told(room);
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_OK, "the status");
  expect(was_told(node), "a producer that waits for memory is not told");
  expect(!was_told(room), "a producer that waits for room is told of what gave no room");
}
/* What comes back to a full ring pushes the oldest one out, which makes room. */
static void what_came_back_is_too_many(void) {
  q = begin_queue("q", (sb_settings){{2, -1, -1, 0, -1, -1}, 0}, 2);
  uint32_t node = wait_at(q, FOR_MEMORY, BYTES);
  note_rest(q);
  get_unsettled(buffer);
  expect_is(put(&t, q, 3), SB_OK, "the status of a put");
  (void)was_told(node);
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_OK, "the status of a requeue");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "the number replaced");
  expect_is(ready(), 2, "how many are ready");
  expect(was_told(node), "a producer is not told of the one that went");
  get_unsettled(buffer);
  (void)was_told(node);
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_OK, "the status of a requeue that pushes none out");
  expect(!was_told(node), "a producer is told although none went");
  expect_rest("requeues to a ring");
}
static void a_corrupt_message_is_dropped(void) {
  q = begin_queue("q", (sb_settings){{-1, 5, -1, 0, -1, -1}, 0}, 1);
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  get_unsettled(buffer);
  (void)was_told(node);
  expect_is(sb_api_drop_corrupt(q, record_at(0)->tag), SB_CORRUPT, "the status");
  expect_is(counted(q, SB_COUNT_DROPPED), 1, "the number dropped");
  expect(was_told(node), "a producer that waits for room is not told");
}

/* ---- several ---- */

static uint32_t places[4 * STRIDE];
/* Gets four, of which some places of the index stay unused. */
static void get_four(void) {
  q = begin_queue("q", UNLIMITED, 4);
  note_rest(q);
  for (uint32_t i = 0; i < 4; i++) {
    places[STRIDE * i] = i * 512;
    get_unsettled(buffer + i * 512);
  }
}
/* One that was settled before does not keep the others from it. */
static void several_settlements(void) {
  get_four();
  expect_is(sb_queue_settle(q, buffer + 512, SB_ACK), SB_OK, "the status of the second");
  expect_is(sb_queue_settle_many(q, buffer, places, STRIDE, 3, SB_ACK), SB_OK, "the status of the first three");
  expect_is(counted(q, SB_COUNT_ACKED), 3, "the number acknowledged");
  expect_is(sb_queue_settle_many(q, buffer, places, STRIDE, 0, SB_ACK), SB_OK, "the status of none");
  expect_is(sb_queue_settle_many(q, buffer + 3 * 512, places, STRIDE, 1, SB_REQUEUE), SB_OK, "the status of the last");
  expect_is(ready(), 1, "how many came back");
  expect_rest("several settlements");
}
/* ---- views ---- */

static uint64_t view;
static uint64_t view_of(void) { return record_at(0)->body_address; }
static sb_status begin_view(uint64_t sequence, uint64_t address) {
  return sb_view_begin(t.c, record_at(0)->tag, sequence, address, &view);
}
static void hold_a_long_one(void) {
  const sb_put_options none = {0};
  q = begin_queue("q", (sb_settings){{-1, 5, -1, 0, -1, -1}, 0}, 1);
  expect_is(put_sized(&t, q, 2, LONG, &none), SB_OK, "the status of a put");
  note_rest(q);
  get_unsettled(buffer);
  get_unsettled(buffer);
}
/* The tag, the place and the address must be those of one message that is held. */
static void a_view_is_begun(void) {
  hold_a_long_one();
  record_at(0)->tag |= UINT64_C(3) << SB_TAG_ACK_SLOT;
  expect_is(begin_view(0, view_of()), SB_SETTLED, "the status of another place");
  expect_is(begin_view(1, view_of() + 64), SB_SETTLED, "the status of another address");
  expect_is(begin_view(1, view_of()), SB_OK, "the status");
  expect_is(sb_holding_kind(held_by(view)), SB_HOLD_VIEW, "what was taken");
  expect(!sb_view_end(t.c, view), "the connection seems to be closed");
  expect_is(held_by(view), SB_HOLD_NONE, "what is held after it ended");
  expect_is(sb_queue_settle(q, buffer, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_is(begin_view(1, view_of()), SB_SETTLED, "the status of what is settled");
}
static void views_that_are_refused(void) {
  char byte;
  hold_a_long_one();
  for (unsigned i = 0; i < 2; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(begin_view(1, view_of()), REFUSAL[i], "the status");
    expect_untouched(t.c, "a view that is refused");
  }
  expect_is(sb_view_copy(t.c, 1, &byte, 1), SB_FORKED, "the status of a copy in a forked child");
  expect(!sb_view_end(t.c, 1), "a forked child is told that the connection is closed");
  expect_untouched(t.c, "views of a forked child");
  refuse(t.c, SB_STOPPING);
  expect_is(begin_view(1, view_of()), SB_OK, "the status in a broker that stops");
  refuse(t.c, SB_OK);
  message_of(0)->body_offset = 1;
  expect_is(sb_view_end(t.c, view), false, "whether it is closed");
  sb_message_shm *m = sb_slot_at(t.b, sb_cell_slot(word_of(1)));
  m->key_length = SB_MAX_PREFIX;
  expect_is(begin_view(1, view_of()), SB_SETTLED, "the status of a damaged message");
  m->key_length = 0;
  uint64_t what = held_by(record_at(0)->tag);
  sb_word *word = &sb_holding_at(t.b, record_at(0)->tag)->what;
  SB_STORE(word, (what & ~SB_FIELD((1u << 28) - 1, 4)) | SB_FIELD(sb_cell_slot(word_of(1)), 4), SB_RELAXED);
  expect_is(begin_view(1, view_of()), SB_SETTLED, "the status of a message of no queue");
  SB_STORE(word, what, SB_RELAXED);
  expect_is(begin_view(1, view_of()), SB_OK, "the status at last");
}
/* The connection was closed while another thread held its lock. */
static void close_now(sb_connection *c) { SB_STORE(&c->closed, 1u, SB_SEQ_CST); }
static void a_view_while_it_closes(void) {
  hold_a_long_one();
  t.c->renew = close_now;
  ask_to_forget(t.c);
  expect_is(begin_view(1, view_of()), SB_SETTLED, "the status");
  expect_is(t.c->lock, 0, "the lock");
}
static void the_end_of_a_view(void) {
  hold_a_long_one();
  uint32_t node = wait_at(q, FOR_MEMORY, BYTES);
  begin_watching(t.c);
  expect_is(begin_view(1, view_of()), SB_OK, "the status");
  expect_is(times_locked(), 1, "how often the lock was taken for a view");
  begin_watching(t.c);
  expect(!sb_view_end(t.c, view), "the connection seems to be closed");
  expect_is(times_locked(), 1, "how often the lock was taken for its end");
  expect(was_told(node), "a producer that waits for memory is not told");
  expect_is(begin_view(1, view_of()), SB_OK, "the status");
  close_now(t.c);
  expect(sb_view_end(t.c, view), "the connection does not seem to be closed");
  expect_is(held_by(view), SB_HOLD_NONE, "what is held after it ended");
}

/* ---- copies of bodies in parts ---- */

#define SCATTERED 40000u
static char body[SCATTERED], copy[SCATTERED];
static void view_in_parts(void) {
  const sb_put_options o = {.key = "key", .key_length = 3};
  q = begin_queue("q", UNLIMITED, 1);
  leave_chunks(0);
  for (size_t i = 0; i < sizeof body; i++) body[i] = (char)(i % 251);
  expect_is(sb_queue_put_with(q, body, sizeof body, &o), SB_OK, "the status of a put");
  get_unsettled(buffer);
  get_unsettled(buffer);
  expect_is(view_of(), SB_IN_PARTS, "the address");
  expect_is(begin_view(1, SB_IN_PARTS), SB_OK, "the status of a view");
}
static void a_body_in_parts_is_copied(void) {
  view_in_parts();
  begin_watching(t.c);
  expect_is(sb_view_copy(t.c, view, copy, SCATTERED), SB_OK, "the status");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(t.c->lock, 0, "the lock");
  expect(memcmp(copy, body, SCATTERED) == 0, "the body is another one");
  close_now(t.c);
  expect_is(sb_view_copy(t.c, view, copy, SCATTERED), SB_OK, "the status when the connection is closed");
}
static void what_is_not_copied(void) {
  view_in_parts();
  uint64_t tag = record_at(0)->tag;
  uint32_t head = sb_cell_slot(word_of(1));
  sb_message_shm *m = sb_slot_at(t.b, head);
  memset(copy, 0x55, sizeof copy);
  expect_is(sb_view_copy(t.c, tag, copy, SCATTERED), SB_CORRUPT, "the status of what is no view");
  expect_is(sb_view_copy(t.c, view, copy, SCATTERED - 1), SB_CORRUPT, "the status of another length");
  m->flags = 0;
  expect_is(sb_view_copy(t.c, view, copy, SCATTERED), SB_CORRUPT, "the status of a body in one piece");
  m->flags = SB_MESSAGE_IN_PARTS;
  expect_is(copy[0], 0x55, "what was written");
  break_parts(head);
  expect_is(sb_view_copy(t.c, view, copy, SCATTERED), SB_CORRUPT, "the status of parts that broke");
  ((sb_message_shm *)sb_slot_at(t.b, 0))->flags = SB_MESSAGE_IN_PARTS; /* damage: slot 0 has no owner */
  SB_STORE(sb_slot_header(t.b, 0), sb_slot_word(SB_SLOT_ALLOC, UINT64_C(1) << SB_PARTS_REF, 0), SB_RELAXED);
  expect_is(sb_view_copy(t.c, tag, copy, 0), SB_CORRUPT, "the status of no bytes of what is no view");
}

static const test_case CASES[] = {
    {"api_settle: ways", "a message is acknowledged, rejected, or goes back", the_ways_to_settle},
    {"api_settle: refused", "a connection that cannot be used settles nothing", settlements_that_are_refused},
    {"api_settle: consumer", "a consumer is told of what came back", a_consumer_is_told_of_what_came_back},
    {"api_settle: memory", "a producer is told of memory that is free", a_producer_is_told_of_memory},
    {"api_settle: too many", "what comes back to a full ring pushes the oldest out", what_came_back_is_too_many},
    {"api_settle: corrupt", "a corrupt message is dropped, and makes room", a_corrupt_message_is_dropped},
    {"api_settle: several", "several are settled, also where one was before", several_settlements},
    {"api_settle: view", "a view is begun of a message that is held", a_view_is_begun},
    {"api_settle: no view", "what is not held, or damaged, has no view", views_that_are_refused},
    {"api_settle: closing", "a connection that closes meanwhile has no view", a_view_while_it_closes},
    {"api_settle: end", "the end of a view is told, with the lock", the_end_of_a_view},
    {"api_settle: copy", "a body in parts is copied through its view", a_body_in_parts_is_copied},
    {"api_settle: no copy", "what is no such body is not copied", what_is_not_copied},
};
SUBJECT(CASES)
