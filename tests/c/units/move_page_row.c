// SPDX-License-Identifier: Apache-2.0
/* sb_move_page: where the row begins and ends, and where its page goes. What is moved, and what a reaper makes of it:
 * move_page.c. */
#include "sb_move_page.h"

#include "meanwhile.h"
#include "queues.h"
#include "sb_wait.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define ROW SB_PAGE_CELLS

static test_broker another;
static sb_queue *q, *target;
static char record[BUFFER];
static uint64_t bytes;

/* The target has room at the beginning of its second page; the source has that many messages. */
static void begin(unsigned messages) {
  q = queue_named("q", FREE_SETTINGS);
  target = queue_named("target", FREE_SETTINGS);
  put_up_to(target, ROW);
  for (unsigned i = 0; i < ROW; i++) take_from(target);
  put_up_to(q, messages);
  another = t;
  another.c = connect_to(&t);
}
static sb_status move(void) {
  return sb_move_page(q, target, sb_ring_exact_tail(t.b, &q->lanes[0].ring), UINT64_MAX, &bytes);
}
static void expect_in_target(uint64_t first) {
  for (uint64_t id = first; id < first + ROW; id++) expect_is(get(&t, target, record, true), id, "the next message");
  expect_is(get(&t, target, record, true), 0, "what comes after the page");
}

/* ---- where the page goes ---- */

/* The shared tail may lag behind what the handle itself put. */
static void a_tail_that_only_the_handle_knows(void) {
  begin(ROW);
  SB_STORE(&target->shm->tail, target->base + ROW - 3, SB_RELAXED);
  expect_is(move(), SB_OK, "the status");
  expect_in_target(1);
}
static void a_tail_that_the_handle_does_not_know(void) {
  begin(ROW);
  sb_queue *its = open_queue(&another, "target");
  for (uint64_t id = 1; id <= ROW; id++) (void)put(&another, its, id);
  while (get(&another, its, record, true) != 0) {
  }
  expect_is(move(), SB_OK, "the status");
  expect_in_target(1);
}

/* ---- where the row begins and ends ---- */

/* Another handle took the first messages: this one begins at the shared head. */
static void a_row_at_the_shared_head(void) {
  begin(2 * ROW);
  sb_queue *its = open_queue(&another, "q");
  for (unsigned i = 0; i < ROW; i++) (void)get(&another, its, record, true);
  expect_is(move(), SB_OK, "the status");
  expect_in_target(ROW + 1);
}
static void all_that_is_there(void) {
  begin(ROW);
  expect_is(move(), SB_OK, "the status");
  expect_in_target(1);
  expect_is(get(&t, q, record, true), 0, "what is left");
}
static void remove_at(uint64_t number) {
  uint64_t token;
  sb_taken taken;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  if (sb_take_at(q, q->base + number, SB_CELL_AVAILABLE, token, &taken) != SB_OK) die("sb_take_at", (int)number);
  (void)sb_dispose(q, token, SB_REASON_PURGED);
}
/* The second page of the source was retired before the first one. No message of the first page is taken, not even for a
 * moment: consumers would pass it. */
static void a_row_that_breaks_at_a_retired_page(void) {
  begin(3 * ROW);
  for (uint64_t i = ROW; i < 2 * ROW; i++) remove_at(i);
  for (uint64_t i = 0; i < ROW - 4; i++) take_from(q);
  expect_is(move(), SB_EMPTY, "the status");
  expect_is(q->shm->requeued, 0, "what returned to the source");
  for (uint64_t id = ROW - 3; id <= ROW; id++) expect_is(get(&t, q, record, true), id, "the next message");
  expect_is(get(&t, q, record, true), 2 * ROW + 1, "the message behind the retired page");
}
/* A message is looked at again once it is held: what was read before was read beside other processes (I43 of sb_peek.h). */
static void let_the_tenth_expire(void) { message_at(q, 9)->expires_ns = sb_now_ns() + UINT64_C(3600000000000); }
static void a_row_that_changes_before_it_is_taken(void) {
  begin(ROW);
  uint64_t holdings = free_holdings();
  meanwhile(cell_at(q, 0), BEFORE_CAS, 1, let_the_tenth_expire);
  sb_status status = move();
  if (!has_acted()) return;
  expect_is(status, SB_EMPTY, "the status");
  expect_is(free_holdings(), holdings, "the free holdings");
  for (uint64_t id = 1; id <= ROW; id++) expect_is(get(&t, q, record, true), id, "the next message");
}
/* The root of the source is damaged just after the link: the page has moved, and what cannot be found stays as it is. */
static uint64_t whole;
static void damage_the_source(void) {
  sb_word *root = q->lanes[0].ring.root;
  whole = SB_LOAD(root, SB_RELAXED);
  SB_STORE(root, sb_link_word(sb_link_height(whole), sb_link_slot(whole), sb_link_gen(whole) + 1), SB_RELAXED);
}
static void a_row_that_is_not_found_again(void) {
  begin(ROW + 6);
  uint64_t holdings = free_holdings();
  meanwhile(&target->shm->tail, BEFORE_CAS, 1, damage_the_source);
  sb_status status = move();
  if (!has_acted()) return;
  SB_STORE(q->lanes[0].ring.root, whole, SB_RELAXED);
  expect_is(status, SB_OK, "the status");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(counter_in(q, SB_COUNT_MOVED), ROW, "what was moved");
  for (uint64_t i = 0; i < ROW; i++) expect_is(cell_state(q, i), SB_CELL_REMOVING, "a cell of the row");
  expect_is(cell_state(q, ROW), SB_CELL_AVAILABLE, "the cell behind the row");
  expect_in_target(1);
}

static const test_case CASES[] = {
    {"move page: own tail", "a page goes to the tail that the handle knows", a_tail_that_only_the_handle_knows},
    {"move page: shared tail", "a page goes to the tail that another handle moved",
     a_tail_that_the_handle_does_not_know},
    {"move page: shared head", "the row begins at the head that another handle moved", a_row_at_the_shared_head},
    {"move page: all", "64 messages are moved if there are no more", all_that_is_there},
    {"move page: gap", "a row that breaks at a retired page is not begun", a_row_that_breaks_at_a_retired_page},
    {"move page: changes", "a row that changed before it was taken is given back",
     a_row_that_changes_before_it_is_taken},
    {"move page: damaged", "a damaged source ends a move behind its link", a_row_that_is_not_found_again},
};
SUBJECT(CASES)
