// SPDX-License-Identifier: Apache-2.0
/* sb_api_queues: messages that are moved from one queue to another, and the nodes that are notified. */
#include "calls.h"
#include "sb_api.h"

#define EVERYTHING UINT64_MAX

static void delete(sb_queue *q) {
  int32_t holder;
  uint64_t removed;
  if (sb_queue_delete(q, false, false, FOREVER, &holder, &removed) != SB_OK) die("delete", 0);
}
static int64_t move(sb_queue *from, sb_queue *to, uint64_t limit, sb_status should, const char *what) {
  uint64_t bytes = EVERYTHING;
  sb_status status = SB_SYSTEM;
  int64_t n = sb_queue_move(from, to, limit, &bytes, &status);
  expect_is(status, should, what);
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, what);
  return n;
}
static void messages_are_moved(void) {
  uint64_t bytes = A_MESSAGE + 1;
  sb_status status = SB_SYSTEM;
  sb_queue *q = open_new("q", UNLIMITED), *to = open_new("to", UNLIMITED);
  for (unsigned i = 0; i < 4; i++) put(&t, q, i);
  sb_watch *work = armed_watch(q, false), *arrival = armed_watch(to, false);
  expect_is(move(q, to, 1, SB_OK, "the status of one move"), 1, "how many were moved of one");
  expect_not_told(work, "what waits for a message where none came back");
  expect_told(arrival, "what waits for a message where one came");
  expect_is(sb_queue_move(q, to, EVERYTHING, &bytes, &status), 2, "how many were moved until the bytes were reached");
  expect_is(bytes, 0, "the bytes that are left");
  bytes = 3 * A_MESSAGE;
  expect_is(sb_queue_move(q, to, EVERYTHING, &bytes, &status), 1, "how many were moved until none was left");
  expect_is(status, SB_OK, "the status when none is left");
  expect_is(bytes, 2 * A_MESSAGE, "the bytes that are left when no message is");
  expect_is(move(q, to, 0, SB_OK, "the status of no move"), 0, "how many were moved of none");
  bytes = 0;
  expect_is(sb_queue_move(to, q, EVERYTHING, &bytes, &status), 0, "how many were moved for no bytes");
}
static void a_queue_is_moved_onto_itself(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  for (unsigned i = 0; i < 3; i++) put(&t, q, i);
  expect_is(move(q, q, 100, SB_OK, "the status"), 3, "how many were moved");
}
static void a_move_into_a_ring(void) {
  sb_queue *q = open_new("q", UNLIMITED), *to = open_new("to", OF_RING(1));
  put(&t, q, 1);
  put(&t, to, 2);
  expect_is(move(q, to, 1, SB_OK, "the status"), 1, "how many were moved");
  expect_is(to->ledger->counters[SB_COUNT_REPLACED], 1, "how many were replaced");
}
static void a_move_into_a_full_queue(void) {
  sb_queue *q = open_new("q", UNLIMITED), *to = open_new("to", AT_MOST(1));
  put(&t, q, 1);
  put(&t, to, 2);
  sb_watch *work = armed_watch(q, false);
  expect_is(move(q, to, 9, SB_FULL, "the status"), 0, "how many were moved");
  expect_told(work, "what waits for the message that came back");
}
static void a_move_makes_room(void) {
  sb_queue *q = open_new("q", AT_MOST(1)), *to = open_new("to", AT_MOST(9));
  put(&t, q, 1);
  sb_watch *room = armed_watch(q, true), *other = armed_watch(to, true);
  expect_is(move(q, to, 1, SB_OK, "the status"), 1, "how many were moved");
  expect_told(room, "what waits for room where a message went");
  expect_not_told(other, "what waits for room where a message came");
  expect_is(move(q, to, 1, SB_OK, "the status of an empty queue"), 0, "how many were moved of none");
  expect_told(other, "what waits for room where no message came");
}
static void a_move_beside_returned_messages(void) {
  sb_queue *q = open_new("q", UNLIMITED), *to = open_new("to", UNLIMITED);
  char records[2][4096];
  for (unsigned i = 0; i < 2; i++) put(&t, q, i);
  for (unsigned i = 0; i < 2; i++) (void)get(&t, q, records[i], false);
  for (unsigned i = 0; i < 2; i++)
    expect_is(sb_queue_settle(q, records[i], SB_REQUEUE), SB_OK, "the status of a return");
  sb_watch *work = armed_watch(q, false);
  expect_is(move(q, to, 1, SB_OK, "the status"), 1, "how many were moved");
  expect_told(work, "what waits where a message may have come back");
}
static void a_move_that_is_refused(void) {
  sb_queue *q = open_new("q", UNLIMITED), *to = open_new("to", UNLIMITED);
  put(&t, q, 1);
  for (unsigned i = 0; i < REFUSALS; i++) {
    uint64_t bytes = EVERYTHING;
    sb_status status = SB_SYSTEM;
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_queue_move(q, to, 9, &bytes, &status), 0, "how many were moved");
    expect_is(status, REFUSAL[i], "the status of a refusal");
    expect_is(bytes, EVERYTHING, "the bytes that are left");
    expect_untouched(t.c, "a refused move");
  }
}
/* Handles of deleted queues are let go: then there is nothing behind them. */
static void moves_of_deleted_queues(void) {
  sb_queue *q = open_new("q", UNLIMITED), *gone = open_new("gone", UNLIMITED);
  sb_queue_shm *shm = gone->shm;
  put(&t, q, 1);
  put(&t, gone, 1);
  delete(gone);
  SB_STORE(&shm->tail, SB_LOAD(&shm->base, SB_RELAXED), SB_RELAXED);
  expect_is(move(q, gone, 9, SB_DELETED, "the status of a target that is deleted"), 0, "how many were moved into it");
  expect_is(move(gone, q, 9, SB_DELETED, "the status of a source that is deleted"), 0, "how many were moved out of it");
  expect_is(shm->tail, SB_LOAD(&shm->base, SB_RELAXED), "the hint of a deleted queue");
  expect_is(q->shm->requeued, 0, "whether a message came back");
  expect_is(sb_queue_length(q), 1, "how many are left");
}
/* Nothing that waits in a deleted queue is told by a move: who deleted it tells all. */
static void a_move_tells_nothing_in_deleted_queues(void) {
  sb_queue *q = open_new("q", AT_MOST(9)), *gone = open_new("gone", AT_MOST(9));
  put(&t, gone, 1);
  sb_watch *work = armed_watch(gone, false), *room = armed_watch(gone, true);
  close_by_hand(gone);
  expect_is(move(q, gone, 9, SB_DELETED, "the status of a target that is deleted"), 0, "how many were moved into it");
  expect_is(move(gone, q, 9, SB_DELETED, "the status of a source that is deleted"), 0, "how many were moved out of it");
  expect_not_told(work, "what waits for a message in a deleted queue");
  expect_not_told(room, "what waits for room in a deleted queue");
}

static const test_case CASES[] = {
    {"api_queues: move", "a move stops at its limit, at its bytes, and at the end", messages_are_moved},
    {"api_queues: itself", "a move onto the same queue ends", a_queue_is_moved_onto_itself},
    {"api_queues: move, ring", "a move into a ring replaces", a_move_into_a_ring},
    {"api_queues: move, full", "a move into a full queue puts its message back", a_move_into_a_full_queue},
    {"api_queues: move, room", "a move makes room, or tells of the room that it leaves", a_move_makes_room},
    {"api_queues: move, returned", "a move tells of messages that may have come back", a_move_beside_returned_messages},
    {"api_queues: no move", "a move that is refused changes nothing", a_move_that_is_refused},
    {"api_queues: move, gone", "a move from or to a deleted queue touches nothing of it", moves_of_deleted_queues},
    {"api_queues: move, quiet", "a move tells nothing in a deleted queue", a_move_tells_nothing_in_deleted_queues},
};
SUBJECT(CASES)
