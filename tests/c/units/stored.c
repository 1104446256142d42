// SPDX-License-Identifier: Apache-2.0
/* sb_changed, sb_changes, sb_gather and sb_api_store: what the storekeeper finds in a stored queue, and the rows that it
 * gets. The queue has a tree of three heights where a case needs one. */
#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "ranked.h"
#include "sb_changes.h"
#include "sb_gather.h"

#define STORED ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE})
#define EXCLUSIVE ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE | SB_QUEUE_EXCLUSIVE})
#define MOST 300u
#define LEAF 64u
#define HEADS 65536u
#define BODIES 65536u

static sb_queue *q, *others; /* others: the handle of another connection */
static sb_store_change found[MOST];
static uint32_t count;
static char heads[HEADS], bodies[BODIES];
static sb_store_row row;
static uint64_t next;

static void begin(unsigned messages) {
  sb_broker_set_stores(t.b, SB_STORES_READY);
  q = queue_named("q", STORED);
  put_up_to(q, messages);
}
static void settle_first(unsigned messages) {
  while (messages-- > 0) take_from(q);
}
static void begin_beside_another(unsigned messages) {
  sb_status status;
  begin(messages);
  others = sb_queue_open(connect_to(&t), q->slot, &status);
  if (others == NULL) die("sb_queue_open", (int)status);
}
static void another_settles(unsigned messages) {
  while (messages-- > 0) take_from(others);
}
static bool look(bool all) { return sb_store_changes(q, 0, all, found, MOST, &count); }
static void expect_nothing(const char *what) {
  expect(look(false), "%s: there is more", what);
  expect_is(count, 0, what);
}
static void expect_change(unsigned which, uint64_t first, uint64_t span, uint64_t ended, uint64_t live) {
  expect_is(found[which].first, first, "the first one of a change");
  expect_is(found[which].span, span, "the span of a change");
  expect_is(found[which].ended, ended, "what ended");
  expect_is(found[which].live, live, "what is there");
  expect_is(found[which].whole, span != LEAF || (ended | live) == 0, "whether everything ended");
}
static sb_status gather_with(uint64_t from, uint64_t end, uint64_t heads_size, uint64_t bodies_size) {
  row = (sb_store_row){.heads = heads, .bodies = bodies, .heads_size = heads_size, .bodies_size = bodies_size};
  next = from;
  return sb_store_gather(q, &next, end, &row);
}
static void gather(uint64_t from, uint64_t end) {
  expect_is(gather_with(from, end, HEADS, BODIES), SB_OK, "the status of a gathering");
}
static sb_row_head head(void) {
  sb_row_head h;
  memcpy(&h, heads, sizeof h);
  return h;
}
/* The n-th entry of a row without names. */
static sb_row_entry entry(unsigned n) {
  sb_row_entry e;
  memcpy(&e, heads + sizeof(sb_row_head) + n * sizeof e, sizeof e);
  return e;
}

/* ---- which queues ---- */

static void only_durable_queues_of_a_broker_with_a_store(void) {
  sb_queue *before = queue_named("before", STORED);
  expect(!sb_queue_is_stored(before), "a queue of a broker without a store is stored");
  expect_is(sb_broker_stores(t.b), SB_STORES_NONE, "the store of the broker");
  put_up_to(before, 3);
  take_from(before);
  expect(sb_store_changes(before, 0, true, found, MOST, &count), "there is more of a queue that is not stored");
  expect_is(count, 0, "the changes of a queue that is not stored");
  sb_broker_set_stores(t.b, SB_STORES_READY);
  expect_is(sb_broker_stores(t.b), SB_STORES_READY, "the store of the broker, then");
  expect(sb_queue_is_stored(queue_named("durable", STORED)), "a durable queue is not stored");
  expect(!sb_queue_is_stored(queue_named("exclusive", EXCLUSIVE)), "an exclusive queue is stored");
  expect(!sb_queue_is_stored(queue_named("transient", (sb_settings)FREELY)), "a transient queue is stored");
}

/* ---- changes ---- */

static void what_ended_is_found_once(void) {
  begin(3);
  expect_nothing("changes after puts");
  settle_first(2);
  expect(look(false), "there is more");
  expect_is(count, 1, "the changes");
  expect_change(0, 0, LEAF, 3, 0);
  expect_nothing("changes that were found");
}
static void a_leaf_that_is_gone_ended_as_a_whole(void) {
  begin(3 * LEAF);
  settle_first(LEAF + 2);
  expect(look(false), "there is more");
  expect_is(count, 2, "the changes");
  expect_change(0, 0, LEAF, 0, 0);
  expect_change(1, LEAF, LEAF, 3, 0);
  expect_nothing("changes that were found");
  settle_first(2 * LEAF - 2);
  expect(look(false), "there is more");
  expect_is(count, 2, "the changes of the rest");
  expect_change(0, LEAF, LEAF, 0, 0);
  expect_change(1, 2 * LEAF, LEAF, 0, 0);
}
static void a_page_that_is_gone_ended_as_a_whole(void) {
  begin(LEAF * LEAF + 1);
  settle_first(LEAF * LEAF);
  expect(look(false), "there is more");
  expect_is(count, 1, "the changes");
  expect_change(0, 0, LEAF * LEAF, 0, 0);
}
static void a_returned_message_changed(void) {
  char record[BUFFER];
  begin(2);
  expect(get(&t, q, record, false) != 0, "there is no message");
  expect_nothing("changes after a get");
  expect_is(sb_queue_settle(q, record, SB_REQUEUE), SB_OK, "the status of a return");
  expect(look(false), "there is more");
  expect_is(count, 1, "the changes");
  expect_change(0, 0, LEAF, 0, 1);
  expect_is(found[0].returned, 1, "what has a delivery count");
  gather(0, 1);
  expect_is(entry(0).delivery_count, 1, "the deliveries of the returned message");
  expect_is(entry(0).marks, SB_ROW_REDELIVERED, "its marks");
}
static void everything_counts_as_changed(void) {
  begin(LEAF + 3);
  settle_first(LEAF + 1);
  expect(look(false), "there is more");
  expect(look(true), "there is more of everything");
  expect_is(count, 2, "the changes of everything");
  expect_change(0, 0, LEAF, 0, 0);
  expect_change(1, LEAF, LEAF, 1, 6);
  expect_is(found[1].returned, 0, "what has a delivery count");
  expect(look(true), "there is more, again");
  expect_is(count, 2, "the changes of everything, again");
}
static void what_has_no_room_is_found_later(void) {
  begin(LEAF * LEAF + 3 * LEAF);
  settle_first(3 * LEAF + 1);
  for (uint32_t n = 0; n < 3; n++) {
    expect(!sb_store_changes(q, 0, false, found, 1, &count), "there is no more");
    expect_is(count, 1, "the changes that have room");
    expect_change(0, n * LEAF, LEAF, 0, 0);
  }
  expect(sb_store_changes(q, 0, false, found, 1, &count), "there is more than all");
  expect_change(0, 3 * LEAF, LEAF, 1, 0);
  expect_nothing("changes that were found");
}
/* The root gets a parent while the bits are set. */
static void bits_lead_from_a_new_root(void) {
  begin(2);
  settle_first(1);
  for (uint64_t id = 3; id <= LEAF + 1; id++) (void)put(&t, q, id);
  expect(look(false), "there is more");
  expect_is(count, 1, "the changes");
  expect_change(0, 0, LEAF, 1, 0);
}
static void end_another(void) { another_settles(1); }
/* A change that comes after the bit was cleared and the cell was read has its bit. */
static void a_change_during_the_look(void) {
  begin_beside_another(3);
  settle_first(1);
  meanwhile(cell_at(q, 0), AFTER_LOAD, 1, end_another);
  expect(look(false), "there is more");
  if (has_acted()) {
    expect_is(count, 1, "the changes");
    expect_change(0, 0, LEAF, 1, 0);
    expect(look(false), "there is more");
    expect_is(count, 1, "the later changes");
    expect_change(0, 0, LEAF, 2, 0);
  }
}
static void end_the_leaf(void) { another_settles(LEAF - 1); }
/* The leaf is retired between the look at its bits and the look at its cells. */
static void a_leaf_that_goes_during_the_look(void) {
  begin_beside_another(LEAF + 1);
  settle_first(1);
  meanwhile(cell_at(q, 0), AFTER_LOAD, 1, end_the_leaf);
  expect(look(false), "there is more");
  if (has_acted()) {
    expect_is(count, 1, "the changes");
    expect_change(0, 0, LEAF, 0, 0);
  }
}

/* ---- which queues ---- */

static sb_store_work work[4];
static uint64_t all;
static void expect_work(uint32_t queues, const char *what) {
  expect_is(sb_store_look(t.c, work, 4, &all), queues, what);
}
static void only_queues_with_work_are_found(void) {
  begin(0);
  sb_queue *ordinary = queue_named("transient", (sb_settings)FREELY);
  put_up_to(ordinary, 1);
  expect_work(0, "the queues when nothing was put");
  uint64_t one = all;
  put_up_to(q, 3);
  expect_work(1, "the queues when something was put");
  expect_is(work[0].slot, q->slot, "the slot");
  expect_is(work[0].incarnation, SB_LOAD(&q->shm->state, SB_RELAXED) >> 2, "the incarnation");
  sb_store_advance(q, 2);
  expect_work(1, "the queues while a message is not stored");
  sb_store_advance(q, 3);
  expect_work(0, "the queues when everything is stored");
  settle_first(1);
  expect_work(1, "the queues when a message ended");
  (void)look(false);
  expect_work(0, "the queues when its end was collected");
  expect_is(all, one, "which queues there are");
  sb_queue *second = queue_named("second", STORED);
  expect_work(0, "the queues with a new one");
  expect(all != one, "a new queue is not seen");
  put_up_to(second, 1);
  put_up_to(q, 4);
  work[1].slot = 0;
  expect_is(sb_store_look(t.c, work, 1, &all), 2, "the queues that have no room");
  expect_is(work[1].slot, 0, "what is behind the room");
}
static void each_lane_of_a_queue_is_looked_at(void) {
  begin(0);
  sb_settings ranked = RANKED(9);
  ranked.flags = SB_QUEUE_DURABLE;
  sb_queue *of = queue_named("ranked", ranked);
  expect_work(0, "the queues when nothing was put");
  expect_is(put_ranked(of, 3, 1), SB_OK, "the status of a put");
  expect_work(1, "the queues when a message of a priority was put");
  sb_store_lane lane;
  (void)sb_store_lanes(of, &lane, 1);
  expect_is(lane.tail, lane.stored, "the messages without a priority");
}

/* ---- rows ---- */

static void a_row_has_the_messages_of_a_leaf(void) {
  begin(LEAF + 2);
  settle_first(1);
  sb_store_lane lane;
  expect_is(sb_store_lanes(q, &lane, 1), 1, "the lanes");
  expect_is(lane.stored, 0, "what is stored");
  expect_is(lane.tail, LEAF + 2, "the tail");
  gather(0, lane.tail);
  expect_is(next, LEAF, "where the next row begins");
  expect_is(row.count, LEAF - 1, "the messages of the row");
  expect_is(head().format, SB_ROW_FORMAT, "the format");
  expect_is(head().count, LEAF - 1, "the messages, as the row says");
  expect_is(head().first, 0, "the first position of the row");
  expect_is(entry(0).index, 1, "the index of the first message");
  expect_is(entry(LEAF - 2).index, LEAF - 1, "the index of the last message");
  expect_is(entry(0).origin, SB_NO_ORIGIN, "its origin");
  expect_is(row.heads_length, sizeof(sb_row_head) + (LEAF - 1) * sizeof(sb_row_entry), "the length of the heads");
  expect_is(row.bodies_length, head().bodies_length, "the length of the bodies");
  gather(next, lane.tail);
  expect_is(row.count, 2, "the messages of the second row");
  expect_is(head().first, LEAF, "its first position");
  expect_is(next, lane.tail, "where it ends");
  sb_store_advance(q, next);
  (void)sb_store_lanes(q, &lane, 1);
  expect_is(lane.stored, LEAF + 2, "what is stored then");
}
static void a_row_is_as_long_as_the_buffers_allow(void) {
  begin(3);
  uint64_t body = message_at(q, 0)->body_length;
  expect_is(gather_with(0, 3, HEADS, 2 * body + 1), SB_OK, "the status of a gathering");
  expect_is(row.count, 2, "the messages that have room");
  expect_is(next, 2, "where the next row begins");
  expect_is(gather_with(2, 3, HEADS, body - 1), SB_FULL, "the status without room");
  expect_is(row.bodies_size, body, "the bytes that the message needs");
  expect_is(next, 2, "where it stays");
  expect_is(gather_with(2, 3, sizeof(sb_row_head) + sizeof(sb_row_entry) - 1, body), SB_FULL, "the status");
  expect_is(row.heads_size, sizeof(sb_row_head) + sizeof(sb_row_entry), "the bytes that the head needs");
  expect_is(gather_with(2, 3, row.heads_size, body), SB_OK, "the status with enough room");
  expect_is(row.count, 1, "the last message");
}
static void what_ended_is_in_no_row(void) {
  begin(2 * LEAF);
  settle_first(2 * LEAF);
  gather(0, LEAF);
  expect_is(row.count, 0, "the messages of a leaf that is gone");
  expect_is(next, LEAF, "where the next row begins");
}
/* Puts a message with these properties, given as the text of a literal. */
#define PUT(text) expect_is(put_properties(text, sizeof(text) - 1), SB_OK, "the status of a put")
static sb_status put_properties(const char *text, size_t length) {
  const sb_put_options o = {.properties = text, .properties_length = (uint32_t)length};
  return sb_queue_put_with(q, "body", 4, &o);
}
#define MODE_1 "\x10\x00\x01"
#define MODE_2 "\x10\x00\x02"
static void gather_which(uint64_t from, uint64_t end, uint32_t which) {
  row = (sb_store_row){.heads = heads, .bodies = bodies, .heads_size = HEADS, .bodies_size = BODIES, .which = which};
  next = from;
  expect_is(sb_store_gather(q, &next, end, &row), SB_OK, "the status of a gathering");
}
static void transient_messages_are_told_apart(void) {
  begin(1);
  PUT(MODE_1);
  PUT(MODE_2);
  PUT("\xf0\x00\x01x\x01y\x00\x00\x00\x00\x01"); /* behind a type, an encoding and headers */
  PUT("\x80\x00\x01\x01");                       /* another property */
  PUT("\x10\x00");                               /* damaged: there is no mode */
  gather_which(0, 6, SB_STORE_DURABLE);
  expect_is(row.transient, 10, "the transient ones");
  expect_is(row.count, 4, "the messages that survive");
  expect_is(head().members, 53, "which these are");
  expect_is(row.bodies_length, head().bodies_length, "the length of the bodies");
  gather_which(0, 6, SB_STORE_TRANSIENT);
  expect_is(row.transient, 10, "the transient ones");
  expect_is(row.count, 2, "the messages that do not survive");
  expect_is(head().members, 10, "which these are");
  gather_which(0, 6, SB_STORE_ALL);
  expect_is(row.transient, 10, "the transient ones");
  expect_is(head().members, 63, "all messages");
}
static void leaves_without_a_transient_message_are_passed(void) {
  begin(2 * LEAF + 3);
  PUT(MODE_1);
  put_up_to(q, LEAF - 3);
  PUT(MODE_1);
  gather_which(0, 3 * LEAF + 2, SB_STORE_TRANSIENT);
  expect_is(row.count, 1, "the messages of the row");
  expect_is(row.first, 2 * LEAF, "where it begins");
  expect_is(head().first, 2 * LEAF, "where it begins, as it says");
  expect_is(head().members, 8, "which message it is");
  expect_is(next, 3 * LEAF, "where the next row begins");
  gather_which(next, 3 * LEAF + 1, SB_STORE_TRANSIENT);
  expect_is(row.count, 0, "the messages before the next one");
  expect_is(next, 3 * LEAF + 1, "where that ends");
  gather_which(next, 3 * LEAF + 2, SB_STORE_TRANSIENT);
  expect_is(row.first, 3 * LEAF + 1, "where the last row begins");
  expect_is(head().members, 1, "which message it is");
}
static void what_ended_is_passed(void) {
  begin(2 * LEAF);
  PUT(MODE_1);
  settle_first(2 * LEAF);
  gather_which(0, 2 * LEAF + 1, SB_STORE_TRANSIENT);
  expect_is(row.first, 2 * LEAF, "where the row begins");
  expect_is(row.count, 1, "its messages");
}
static void a_transient_message_needs_no_room_for_its_body(void) {
  begin(0);
  PUT(MODE_1);
  expect_is(gather_with(0, 1, HEADS, 0), SB_OK, "the status");
  expect_is(row.transient, 1, "the transient ones");
  expect_is(next, 1, "where the next row begins");
}
static void who_waits_for_the_store(void) {
  const sb_put_options none = {0}, transient = {.properties = MODE_1, .properties_length = 3},
                       lasting = {.properties = MODE_2, .properties_length = 3};
  begin(0);
  expect(sb_put_waits_for_store(q, NULL), "nobody waits for a message without options");
  expect(sb_put_waits_for_store(q, &none), "nobody waits for a message without properties");
  expect(sb_put_waits_for_store(q, &lasting), "nobody waits for a message that survives");
  expect(!sb_put_waits_for_store(q, &transient), "a publisher waits for a transient message");
  expect(!sb_put_waits_for_store(queue_named("memory", (sb_settings)FREELY), NULL), "a publisher waits for no store");
}
static void damaged_messages_are_left_out(void) {
  begin(3);
  message_at(q, 1)->body_length = UINT64_C(1) << 40;
  gather(0, 3);
  expect_is(row.count, 2, "the messages");
  expect_is(row.damaged, 1, "the damaged messages");
  expect_is(next, 3, "where the row ends");
}
static void a_staged_message_is_named(void) {
  begin(3);
  uint64_t word = word_at(q, 1);
  set_cell_word(q, 1, sb_cell_owned(SB_CELL_STAGED, sb_cell_slot(word), 0, t.c->id, gen_at(q, 1)));
  gather(0, 3);
  expect_is(row.count, 2, "the messages");
  expect_is(row.staged, 2, "the staged ones");
  set_cell_word(q, 1, word);
  gather(1, 2);
  expect_is(row.count, 1, "the message, once it is there");
  expect_is(head().first, 1, "its position");
  expect_is(row.staged, 0, "the staged ones");
}
static void stage(unsigned number) {
  uint64_t word = word_at(q, number);
  set_cell_word(q, number, sb_cell_owned(SB_CELL_STAGED, sb_cell_slot(word), 0, t.c->id, gen_at(q, number)));
}
static void no_row_begins_with_a_staged_message(void) {
  begin(4);
  stage(0);
  stage(2);
  gather(0, 4);
  expect_is(row.count, 0, "the messages of no row");
  expect_is(row.staged, 1, "the staged one before it");
  expect_is(next, 1, "where the row ends");
  gather(1, 4);
  expect_is(row.count, 2, "the messages behind the staged one");
  expect_is(head().first, 1, "the position of the first one");
  expect_is(row.staged, 2, "the staged one between them");
  expect_is(next, 4, "where that row ends");
}
static void times_are_those_of_the_wall_clock(void) {
  const uint64_t second = UINT64_C(1000000000);
  begin(1);
  put_with(q, 2, 100, 0);
  put_with(q, 3, 0, 200);
  gather(0, 3);
  uint64_t written = head().written_ns;
  expect_is(entry(0).expires_ns + entry(0).due_ns, 0, "the times of a message without");
  expect_is((entry(1).due_ns - written + second / 2) / second, 100, "the seconds until it is due");
  expect_is(entry(1).expires_ns, 0, "its end");
  expect_is((entry(2).expires_ns - written + second / 2) / second, 200, "the seconds until it expires");
  expect_is(entry(2).due_ns, 0, "its due time");
}
static void lanes_have_rows_of_their_own(void) {
  sb_store_lane lanes[4];
  sb_settings settings = RANKED(9);
  settings.flags = SB_QUEUE_DURABLE;
  sb_broker_set_stores(t.b, SB_STORES_READY);
  q = queue_named("q", settings);
  expect_is(put_ranked(q, 9, 1), SB_OK, "the status of a put");
  expect_is(put_ranked(q, 0, 2), SB_OK, "the status of a put");
  expect_is(sb_store_lanes(q, lanes, 4), 2, "the lanes");
  uint64_t low = sb_position_in(9, 0);
  expect_is(lanes[1].stored, low, "what is stored of the lower one");
  expect_is(lanes[1].tail, low + 1, "its tail");
  gather(low, low + 1);
  expect_is(row.count, 1, "its messages");
  expect_is(head().first, low, "its first position");
  sb_store_advance(q, low + 1);
  expect_is(sb_store_lanes(q, lanes, 4), 2, "the lanes");
  expect_is(lanes[0].stored, 0, "what is stored of the higher one");
  expect_is(lanes[1].stored, low + 1, "what is stored of the lower one");
  settle_first(2);
  expect(sb_store_changes(q, low, false, found, MOST, &count), "there is more");
  expect_is(count, 1, "its changes");
  expect_change(0, low, LEAF, 1, 0);
}
static void take_the_second(void) { another_settles(2); }
/* The message ends while it is copied, and its slot may have another one then. */
static void a_message_that_ends_during_the_copy(void) {
  begin_beside_another(2);
  meanwhile(cell_at(q, 1), AFTER_LOAD, 1, take_the_second);
  gather(0, 2);
  if (has_acted()) {
    expect_is(row.count, 1, "the messages: the first one was copied before");
    expect_is(entry(0).index, 0, "its index");
  }
}

static const test_case CASES[] = {
    {"stored: which queues", "durable ones that are not exclusive, of a broker with a store",
     only_durable_queues_of_a_broker_with_a_store},
    {"stored: work", "only queues with something to store are found", only_queues_with_work_are_found},
    {"stored: work of lanes", "each lane of a queue is looked at", each_lane_of_a_queue_is_looked_at},
    {"stored: ends", "are found once", what_ended_is_found_once},
    {"stored: leaves", "that are gone ended as a whole", a_leaf_that_is_gone_ended_as_a_whole},
    {"stored: pages", "that are gone ended as a whole", a_page_that_is_gone_ended_as_a_whole},
    {"stored: returns", "are changes, and count", a_returned_message_changed},
    {"stored: everything", "counts as changed when the storekeeper begins", everything_counts_as_changed},
    {"stored: many changes", "are found in several calls", what_has_no_room_is_found_later},
    {"stored: a new root", "leads to the bits below the old one", bits_lead_from_a_new_root},
    {"stored: a change during the look", "is found by the next one", a_change_during_the_look},
    {"stored: a leaf that goes during the look", "ended as a whole", a_leaf_that_goes_during_the_look},
    {"stored: rows", "have the messages of a leaf", a_row_has_the_messages_of_a_leaf},
    {"stored: buffers", "bound a row, and are asked for", a_row_is_as_long_as_the_buffers_allow},
    {"stored: what ended", "is in no row", what_ended_is_in_no_row},
    {"stored: transient messages", "are told apart by their delivery_mode", transient_messages_are_told_apart},
    {"stored: transient, passed", "leaves without a transient message are passed",
     leaves_without_a_transient_message_are_passed},
    {"stored: transient, ended", "leaves that have ended are passed", what_ended_is_passed},
    {"stored: transient, room", "a message that is left out needs no room",
     a_transient_message_needs_no_room_for_its_body},
    {"stored: waiting", "publishers wait for messages that survive", who_waits_for_the_store},
    {"stored: damaged messages", "are left out, and counted", damaged_messages_are_left_out},
    {"stored: staged messages", "are named, and gathered later", a_staged_message_is_named},
    {"stored: staged, first", "no row has the key of a row that comes later", no_row_begins_with_a_staged_message},
    {"stored: times", "are those of the wall clock", times_are_those_of_the_wall_clock},
    {"stored: lanes", "have rows of their own", lanes_have_rows_of_their_own},
    {"stored: a message that ends during the copy", "is in no row", a_message_that_ends_during_the_copy},
};
SUBJECT(CASES)
