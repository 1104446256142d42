// SPDX-License-Identifier: Apache-2.0
/* sb_api_paging: rows of the store that become a leaf again, what a call refuses, and what it leaves then. What browsers
 * and gets do about it: api_paging_used.c. */
#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "ranked.h"
#include "sb_slab.h"
#include "sb_wait.h"
#include "surroundings.h"

#define LANE_END (UINT64_C(1) << 40) /* a sequence number behind all messages of a lane */
#define HEADS 16384u

static sb_queue *q;
static char record[BUFFER];
static sb_stored_row rows[3]; /* that a case changes */
static char heads[3][HEADS];
static uint64_t memory, holdings;

/* Copies of the row that the store has. */
static void copy_row(unsigned which) {
  rows[which] = *row_of(0);
  memcpy(heads[which], rows[which].heads, rows[which].heads_length);
  rows[which].heads = heads[which];
}
static uint64_t used(void) {
  sb_broker_facts f;
  sb_broker_describe(t.b, &f, true);
  return f.memory_used;
}
static void begin(sb_settings settings) {
  q = begin_left(settings, LEAF + 1);
  for (unsigned i = 0; i < 3; i++) copy_row(i);
  memory = used();
  holdings = free_holdings();
}
static sb_row_entry entry_of(unsigned which, unsigned n) {
  sb_row_entry e;
  memcpy(&e, heads[which] + sizeof(sb_row_head) + n * sizeof e, sizeof e);
  return e;
}
static void set_entry(unsigned which, unsigned n, sb_row_entry e) {
  memcpy(heads[which] + sizeof(sb_row_head) + n * sizeof e, &e, sizeof e);
}
static void set_head(unsigned which, sb_row_head h) { memcpy(heads[which], &h, sizeof h); }
static sb_row_head head_of(unsigned which) {
  sb_row_head h;
  memcpy(&h, heads[which], sizeof h);
  return h;
}
static sb_status come_back(uint32_t count) { return sb_store_come_back(q, 0, link_of(0), rows, count); }
/* The call refuses, and leaves nothing. */
static void expect_refused(uint32_t count, sb_status should, const char *what) {
  const uint64_t link = link_of(0);
  expect_is(come_back(count), should, what);
  expect_is(link_of(0), link, "the link after that");
  expect_is(used(), memory, "the memory in use after that");
  expect_is(free_holdings(), holdings, "the free holdings after that");
}
static void expect_got(uint64_t id) { expect_is(get(&t, q, record, true), id, "the message that a get finds"); }
static const sb_record *got(void) { return (const sb_record *)(const void *)record; }

/* ---- which leaves ---- */

static void a_leaf_that_is_absent(void) {
  uint64_t sequence = 0, link = 0;
  q = begin_stored(STORED, 4 * LEAF + 1);
  store_everything();
  expect_is(sb_store_absent(q, &sequence, FOREVER, &link), SB_EMPTY, "the status when all are there");
  expect(let_leave(1) && let_leave(3), "the leaves stay");
  expect_is(sb_store_absent(q, &sequence, FOREVER, &link), SB_OK, "the status");
  expect_is(sequence, LEAF, "the first sequence number");
  expect_is(link, link_of(1), "the link");
  sequence = LEAF + 9;
  expect_is(sb_store_absent(q, &sequence, LEAF + 10, &link), SB_OK, "the status within a leaf");
  expect_is(sequence, LEAF, "the first sequence number of that leaf");
  sequence = 0;
  expect_is(sb_store_absent(q, &sequence, LEAF, &link), SB_EMPTY, "the status before the leaf");
  expect_is(sequence, 0, "a sequence number that stays");
  expect_is(sb_store_absent(q, &sequence, LEAF + 1, &link), SB_OK, "the status from the first message of the leaf on");
  sequence = 2 * LEAF;
  expect_is(sb_store_absent(q, &sequence, FOREVER, &link), SB_OK, "the status behind the leaf");
  expect_is(sequence, 3 * LEAF, "the first sequence number of the other one");
  expect_is(link, link_of(3), "its link");
  sequence = 4 * LEAF;
  expect_is(sb_store_absent(q, &sequence, FOREVER, &link), SB_EMPTY, "the status behind both");
  sequence = sb_position_in(3, 0);
  expect_is(sb_store_absent(q, &sequence, FOREVER, &link), SB_EMPTY, "the status in a lane that is not there");
}

/* ---- coming back ---- */

static void messages_come_back(void) {
  begin(STORED);
  const uint64_t old = link_of(0);
  expect_is(come_back(1), SB_OK, "the status");
  expect_is(sb_link_state(link_of(0)), SB_LINK_PAGE, "the state of the link");
  expect_is(paging_of(0), SB_PAGING_THERE, "the state of the leaf");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(sb_store_come_back(q, 0, old, rows, 1), SB_DONE, "the status of another load");
  for (uint64_t id = 1; id <= LEAF; id++) {
    expect_got(id);
    expect_is(got()->sequence, id - 1, "its sequence number");
    expect_is(got()->delivery_count, 1, "its deliveries");
    expect_is(got()->marks & SB_MARK_REDELIVERED, 0, "its mark");
  }
  expect_is(link_of(0), SB_LINK_DONE, "the link when all have ended");
  expect_got(LEAF + 1);
  expect(findings(t.c) == NULL, "%s", findings(t.c));
}
static void messages_of_several_rows(void) {
  begin(STORED);
  rows[0].ended = 0xffffffff;
  rows[1].ended = ~UINT64_C(0xffffffff) | 5;
  expect_is(come_back(2), SB_OK, "the status");
  expect_is(cell_state(q, 0), SB_CELL_TOMBSTONE, "the state of a cell whose message has ended");
  expect_got(2);
  for (uint64_t id = 4; id <= LEAF; id++) expect_got(id);
  expect_is(link_of(0), SB_LINK_DONE, "the link when all have ended");
}
static void rows_that_contradict_each_other(void) {
  begin(STORED);
  expect_refused(2, SB_CORRUPT, "the status of two rows with the same messages");
  rows[0].ended = ~UINT64_C(1);
  expect_refused(2, SB_CORRUPT, "the status of two rows with one message in both");
  expect_refused(0, SB_CORRUPT, "the status without rows");
  rows[0].ended = ~UINT64_C(0);
  expect_refused(1, SB_CORRUPT, "the status when all have ended");
}
static void rows_of_other_messages(void) {
  const uint64_t firsts[] = {1, LEAF, UINT64_MAX, sb_position_in(1, 0)};
  begin(STORED);
  for (unsigned i = 0; i < 4; i++) {
    sb_row_head h = head_of(0);
    h.first = firsts[i];
    set_head(0, h);
    expect_refused(1, SB_CORRUPT, "the status of a row of another leaf");
  }
}
static void rows_that_are_damaged(void) {
  begin(STORED);
  rows[0].heads_length--;
  expect_refused(1, SB_CORRUPT, "the status of heads that are cut short");
  rows[0].heads_length = sizeof(sb_row_head) - 1;
  expect_refused(1, SB_CORRUPT, "the status without a head");
  copy_row(0);
  rows[0].bodies_length--;
  expect_refused(1, SB_CORRUPT, "the status of bodies that are cut short");
  copy_row(0);
  heads[0][0]++;
  expect_refused(1, SB_CORRUPT, "the status of another format");
  copy_row(0);
  sb_row_entry e = entry_of(0, 3);
  e.index = LEAF;
  set_entry(0, 3, e);
  expect_refused(1, SB_CORRUPT, "the status of an index behind the leaf");
  copy_row(0);
  expect_is(come_back(1), SB_OK, "the status of the row as it was");
}
static void a_link_that_changed(void) {
  begin(STORED);
  const uint64_t link = link_of(0);
  SB_STORE(link_to(0), link | SB_LINK_MARKED, SB_RELAXED);
  expect_is(sb_store_come_back(q, 0, link, rows, 1), SB_DONE, "the status of an old link");
  expect_is(used(), memory, "the memory in use");
  expect_is(sb_store_come_back(q, sb_position_in(1, 0), link, rows, 1), SB_CORRUPT, "that of a lane that is not there");
  expect_is(come_back(1), SB_OK, "the status of the link");
}
static void mark_the_link(void) {
  if (!sb_paged_mark(t.b, stored_ring(), q->base)) die("sb_paged_mark", 0);
}
static void a_link_that_changes_meanwhile(void) {
  begin(STORED);
  meanwhile(link_to(0), BEFORE_CAS, 1, mark_the_link);
  sb_status status = come_back(1);
  if (has_acted()) {
    expect_is(status, SB_DONE, "the status");
    expect_is(used(), memory, "the memory in use");
    expect_is(free_holdings(), holdings, "the free holdings");
  }
}
static void messages_without_memory(void) {
  begin(STORED);
  for (unsigned cls = 0; cls < SB_MESSAGE_CLASSES; cls++) take_slots(cls);
  leave_chunks(0);
  memory = used();
  holdings = free_holdings();
  expect_refused(1, SB_NO_MEMORY, "the status without memory for messages");
}
static void a_leaf_without_memory(void) {
  begin(STORED);
  leave_none_of(SB_KIND_LEAF, false);
  memory = used();
  holdings = free_holdings();
  expect_refused(1, SB_NO_MEMORY, "the status without memory for the leaf");
  use_all_slots(SB_KIND_LEAF);
}
static void a_marked_link(void) {
  begin(STORED);
  mark_the_link();
  expect_is(come_back(1), SB_OK, "the status");
  sb_leaf_ref leaf = leaf_numbered(0);
  expect_is(SB_LOAD(&leaf.leaf->page.requeued, SB_RELAXED), ~UINT64_C(0), "the requeued bits");
  expect(sb_requeued_is_marked(t.b, stored_ring(), q->base), "the bits above are not set");
}

/* ---- what messages have ---- */

static void counts_and_origins(void) {
  begin(STORED);
  sb_row_entry e = entry_of(0, 0);
  e.delivery_count = 3;
  e.marks = SB_ROW_REDELIVERED;
  set_entry(0, 0, e);
  expect_is(come_back(1), SB_OK, "the status");
  expect_got(1);
  expect_is(got()->delivery_count, 4, "the deliveries of the returned one");
  expect_is(got()->marks & SB_MARK_REDELIVERED, SB_MARK_REDELIVERED, "its mark");
}
static void times(void) {
  begin(STORED);
  sb_row_entry e = entry_of(0, 0);
  const uint64_t written = head_of(0).written_ns;
  e.due_ns = written + 1;
  set_entry(0, 0, e);
  e = entry_of(0, 1);
  e.expires_ns = written + UINT64_C(3600000000000);
  set_entry(0, 1, e);
  expect_is(come_back(1), SB_OK, "the status");
  expect_is(cell_state(q, 0), SB_CELL_SCHEDULED, "the state of one that is due later");
  expect(message_at(q, 1)->expires_ns > sb_now_ns(), "the life of a message is over, or has no end");
  expect(sb_ring_exact_tail(t.b, &(sb_ring){.root = &q->shm->schedule.root,
                                            .tail = &q->shm->schedule.tail,
                                            .head = &q->shm->schedule.head,
                                            .base = &q->shm->schedule.base,
                                            .from = &q->shm->schedule.base,
                                            .object = q->slot,
                                            .id = SB_RING_SCHEDULE}) == SB_LOAD(&q->shm->schedule.base, SB_RELAXED) + 2,
         "the timers are not two");
  (void)sb_housekeeper_look_at(q, q->base);
  expect_got(1);
  expect_got(2);
}
static void long_bodies(void) {
  static char body[20000];
  q = begin_stored(STORED, LEAF - 1);
  fill_body(body, sizeof body, LEAF);
  sb_put_options none = {0};
  if (sb_queue_put_with(q, body, sizeof body, &none) != SB_OK) die("sb_queue_put_with", 0);
  (void)put(&t, q, LEAF + 1);
  store_everything();
  expect(let_leave(0), "the leaf stays");
  expect_is(let_come_back(0), SB_OK, "the status");
  for (uint64_t id = 1; id <= LEAF + 1; id++) expect_got(id);
}
static void a_lane_comes_back(void) {
  sb_settings ranked = RANKED(9);
  const uint64_t first = sb_position_in(5, 0);
  ranked.flags = SB_QUEUE_DURABLE;
  q = begin_stored(ranked, 0);
  for (uint64_t id = 1; id <= LEAF + 1; id++) expect_is(put_ranked(q, 4, id), SB_OK, "the status of a put");
  look_at_lane(5);
  store_everything();
  expect(let_leave(0), "the leaf stays");
  uint64_t sequence = 0, link;
  expect_is(sb_store_absent(q, &sequence, LEAF, &link), SB_EMPTY, "the status in another lane");
  expect_is(get_loading(record, true), 1, "the first message");
  expect_is(got()->sequence, first, "its sequence number");
  expect_is(got()->priority, 4, "its priority");
  for (uint64_t id = 2; id <= LEAF + 1; id++) expect_got(id);
}

/* ---- closed queues ---- */

static void close_it(void) { mark_closed(q); }
static void a_queue_that_is_closed(void) {
  begin(STORED);
  meanwhile(link_to(0), BEFORE_CAS, 1, close_it);
  sb_status status = come_back(1);
  if (has_acted()) {
    expect_is(status, SB_OK, "the status");
    expect(sb_link_state(link_of(0)) == SB_LINK_DONE, "messages came back to a closed queue");
  }
}
static void a_queue_that_was_deleted(void) {
  int32_t holder;
  uint64_t removed = 0, sequence = 0, link;
  begin(STORED);
  expect_is(sb_queue_delete(q, false, true, FOREVER, &holder, &removed), SB_NOT_EMPTY,
            "the status of a careful deletion");
  expect_is(sb_queue_delete(q, false, false, FOREVER, &holder, &removed), SB_OK, "the status of a deletion");
  expect_is(removed, LEAF + 1, "the messages that it removed");
  expect_is(sb_store_absent(q, &sequence, LEAF, &link), SB_EMPTY, "the status of a look then");
}

/* ---- leaving ---- */

static void leaves_behind_the_head(void) {
  q = begin_stored(STORED, 4 * LEAF + 1);
  expect_is(sb_store_leave(q, LANE_END, 0, 9, NULL, NULL), 0, "how many leave that are not stored");
  store_everything();
  const uint32_t waits = wait_at(q, FOR_MEMORY, 64);
  expect_is(sb_store_leave(q, 4 * LEAF - 1, 2 * LEAF + 1, 9, NULL, NULL), 0,
            "how many leave that the store has in part");
  expect_is(sb_store_leave(q, 4 * LEAF, 2 * LEAF + 1, 9, NULL, NULL), 1, "how many leave behind the first messages");
  expect(was_told(waits), "nobody was told that there is memory");
  expect_is(sb_store_leave(q, LANE_END, 2 * LEAF, 9, NULL, NULL), 1, "how many leave then");
  for (unsigned i = 0; i < LEAF; i++) take_from(q);
  (void)was_told(waits);
  expect_is(sb_store_leave(q, LANE_END, LEAF, 9, NULL, NULL), 0, "how many leave behind the head");
  expect(!was_told(waits), "somebody was told of memory that is not there");
  expect_is(sb_store_leave(q, sb_position_in(1, LANE_END), 0, 9, NULL, NULL), 0,
            "how many leave of a lane that is not there");
}

static void a_connection_that_cannot_be_used(void) {
  uint64_t sequence, link;
  begin(STORED);
  for (unsigned i = 0; i < REFUSALS; i++) {
    sequence = 0;
    const uint64_t there = link_of(0);
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_store_absent(q, &sequence, LEAF, &link), REFUSAL[i], "the status of a look");
    expect_is(sb_store_come_back(q, 0, there, rows, 1), REFUSAL[i], "the status of a load");
    expect_is(sb_store_leave(q, LANE_END, 0, 1, NULL, NULL), 0, "how many leave");
    expect_untouched(t.c, "a call that is refused");
    refuse(t.c, SB_OK);
  }
  begin_watching(t.c);
  expect_is(come_back(1), SB_OK, "the status of a load then");
  expect_is(times_locked(), 1, "how often the lock was taken");
}

/* ---- wishes ---- */

static void a_wish_is_taken_once(void) {
  begin(STORED);
  uint32_t made = sb_store_wishes(t.b);
  uint64_t sequence = 7;
  expect(!sb_store_take_wish(q, &sequence), "there is a wish before the first one");
  expect_is(sequence, 7, "what the call leaves alone then");
  sb_store_wish(q, 5);
  sb_store_wish(q, 0);
  expect_is(sb_store_wishes(t.b), made + 2, "how many were made");
  expect(sb_store_take_wish(q, &sequence), "there is no wish");
  expect_is(sequence, 0, "the later one");
  expect(!sb_store_take_wish(q, &sequence), "the wish is there again");
}

/* ---- a start ---- */

static void leaves_without_their_messages(void) {
  const sb_absent_leaf leaves[] = {{LEAF, 3, 30}, {3 * LEAF, 64, 640}, {2 * LEAF, 1, 1}};
  uint32_t done = 0;
  uint64_t sequence = 0, link = 0;
  sb_queue_facts f;
  begin(STORED);
  sb_queue *made = queue_named("made", STORED);
  if (sb_store_resume(made, 0) != SB_OK) die("sb_store_resume", 0);
  expect_is(sb_store_restore_absent(made, leaves, 3, &done), SB_CORRUPT, "the status of a leaf that is too late");
  expect_is(done, 2, "how many leaves are there");
  expect_is(sb_store_skip(made, 5 * LEAF), SB_OK, "the status of the end");
  sb_store_resumed(made);
  expect_is(sb_store_absent(made, &sequence, 5 * LEAF, &link), SB_OK, "the status of a look");
  expect_is(sequence, LEAF, "the first of them");
  sequence = 2 * LEAF;
  expect_is(sb_store_absent(made, &sequence, 5 * LEAF, &link), SB_OK, "the status of another look");
  expect_is(sequence, 3 * LEAF, "the second of them");
  sb_queue_describe(t.c, made->slot, &f);
  expect_is(f.ready, 67, "how many messages there are");
  expect_is(f.bytes, 670, "their bytes");
}

static const test_case CASES[] = {
    {"api paging: absent", "the first leaf that is not in the memory is found", a_leaf_that_is_absent},
    {"api paging: wishes", "the storekeeper gets the last one of a queue, once", a_wish_is_taken_once},
    {"api paging: start", "leaves without their messages count, and are where they were",
     leaves_without_their_messages},
    {"api paging: messages", "come back at their sequence numbers", messages_come_back},
    {"api paging: rows", "several rows are one leaf, without what has ended", messages_of_several_rows},
    {"api paging: contradictions", "rows with a message twice, or none, are refused", rows_that_contradict_each_other},
    {"api paging: other rows", "rows of another leaf are refused", rows_of_other_messages},
    {"api paging: damaged rows", "are refused, and leave nothing", rows_that_are_damaged},
    {"api paging: changed link", "what was read for another link does not come back", a_link_that_changed},
    {"api paging: late change", "a link that changes meanwhile is seen", a_link_that_changes_meanwhile},
    {"api paging: no memory", "leaves nothing of the messages", messages_without_memory},
    {"api paging: no leaf", "leaves nothing of the leaf", a_leaf_without_memory},
    {"api paging: marked", "a search finds what came back over a marked link", a_marked_link},
    {"api paging: counts", "deliveries are those of the row", counts_and_origins},
    {"api paging: times", "messages with timers have them", times},
    {"api paging: bodies", "long bodies come back", long_bodies},
    {"api paging: lanes", "messages with a priority come back", a_lane_comes_back},
    {"api paging: closed", "what comes back to a closed queue ends", a_queue_that_is_closed},
    {"api paging: deleted", "a deletion ends what is not in the memory, unless it must be empty",
     a_queue_that_was_deleted},
    {"api paging: leave", "leaves behind the head leave, and the memory is told of", leaves_behind_the_head},
    {"api paging: refused", "a connection that cannot be used changes nothing", a_connection_that_cannot_be_used},
};
SUBJECT(CASES)
