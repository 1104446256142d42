// SPDX-License-Identifier: Apache-2.0
/* sb_api_dead: the housekeeper's program takes a dead message, and carries it out in a commit, or gives it back. */
#include <string.h>

#include "calls.h"
#include "committing.h"
#include "meanwhile.h"
#include "queues.h"
#include "ranked.h"
#include "sb_park.h"
#include "sb_schedule.h"
#include "sb_wait.h"

#define LETTERS SB_QUEUE_DEAD_LETTERS
#define DEADLY ((sb_settings){{-1, -1, -1, 0, -1, -1}, LETTERS})
#define UNTOUCHED 4711u

static sb_queue *q;
static char record[BUFFER];
static uint32_t why;

static sb_record header(void) {
  sb_record r;
  memcpy(&r, record, sizeof r);
  return r;
}
static int64_t take(uint64_t number) {
  why = UNTOUCHED;
  return sb_dead_take(q, q->base + number, record, &why);
}
static void expect_counts(uint64_t ready, uint64_t delivering, uint64_t scheduled, const char *what) {
  sb_queue_facts f;
  if (sb_queue_describe(t.c, q->slot, &f) != SB_OK) die("sb_queue_describe", 0);
  expect(f.ready == ready && f.delivering == delivering && f.scheduled == scheduled,
         "%s: %d ready, %d delivering, %d scheduled", what, (int)f.ready, (int)f.delivering, (int)f.scheduled);
}
static void reject_one(void) {
  expect(sb_queue_get(q, record, false) > 0, "there is no message");
  expect_is(sb_queue_settle(q, record, SB_REJECT), SB_OK, "the status of a rejection");
}
/* Queue `a` with dead letters, where the first of two messages was rejected; the queue `b` gets the copies. */
static void begin(void) {
  make_targets(1, DEADLY);
  target[1] = make_queue("b", (sb_settings)FREELY);
  q = target[0];
  put_into(0);
  put_into(0);
  reject_one();
  note_rest(q);
}

/* ---- taking, and giving back ---- */

static void a_dead_message_is_taken(void) {
  begin();
  expect_counts(1, 0, 1, "while it is dead");
  expect_is(take(0), sizeof(sb_record) + BYTES, "the length");
  expect_is(why, SB_WHY_REJECTED, "why it is dead");
  expect(memcmp(record + sizeof(sb_record), BODY, BYTES) == 0, "the body is another one");
  expect_is(header().delivery_count, 1, "how often it was delivered");
  expect_is(cell_state(q, 0), SB_CELL_REMOVING, "the state of its cell");
  expect_counts(1, 1, 0, "while it is carried out");
  expect_is(take(0), -(int64_t)SB_EMPTY, "the status of a second take");
  sb_dead_return(q, record, why);
}
static void a_dead_message_is_given_back(void) {
  begin();
  for (unsigned i = SB_WHY_REJECTED; i <= SB_WHY_DELIVERY_LIMIT; i++) {
    expect(take(0) > 0, "there is no dead message");
    sb_dead_return(q, record, i);
    expect_counts(1, 0, 1, "after it was given back");
    expect_is(cell_state(q, 0), SB_CELL_SCHEDULED, "the state of its cell");
    sb_dead_return(q, record, i);
    expect_counts(1, 0, 1, "after it was given back twice");
    expect(take(0) > 0, "it is not dead again");
    expect_is(why, i, "why it is dead");
    sb_dead_return(q, record, why);
  }
  expect_rest("the returns of a dead message");
}
/* Only four bits of the reason count. */
static void a_reason_out_of_range(void) {
  begin();
  expect(take(0) > 0, "there is no dead message");
  sb_dead_return(q, record, 16 * 7 + SB_WHY_EXPIRED);
  expect(take(0) > 0, "it is not dead again");
  expect_is(why, SB_WHY_EXPIRED, "why it is dead");
  sb_dead_return(q, record, why);
  expect_rest("a return");
}
static void what_cannot_be_taken(void) {
  begin();
  expect_is(take(1), -(int64_t)SB_EMPTY, "the status of one that is ready");
  expect_is(take(2), -(int64_t)SB_EMPTY, "the status of a cell that is free");
  expect_is(take(64 * 64), -(int64_t)SB_EMPTY, "the status of no page");
  expect_is(why, UNTOUCHED, "why it is dead");
  expect(sb_queue_get(q, got, false) > 0, "there is no message");
  expect_is(take(1), -(int64_t)SB_EMPTY, "the status of one that is held");
  expect_is(sb_queue_settle(q, got, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_is(take(1), -(int64_t)SB_EMPTY, "the status of one that has ended");
  expect_rest("takes of nothing");
}
static void a_delayed_message_becomes_ready(void) {
  begin();
  expect(sb_queue_get(q, got, false) > 0, "there is no message");
  expect_is(sb_park_delayed(q, ((sb_record *)(void *)got)->tag, 1, FOREVER / 2), SB_OK, "the status of a delay");
  expect_is(take(1), -(int64_t)SB_EMPTY, "the status of one that is delayed");
  expect_is(cell_state(q, 1), SB_CELL_AVAILABLE, "the state of its cell");
  expect_counts(1, 0, 1, "after the take");
  expect_rest("a take of a delayed message");
}
static void calls_that_are_refused(void) {
  begin();
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(take(0), -(int64_t)REFUSAL[i], "the status of a take");
    expect_untouched(t.c, "a take that is refused");
  }
  refuse(t.c, SB_OK);
  expect(take(0) > 0, "there is no dead message");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_dead_return(q, record, why);
    expect_untouched(t.c, "a return that is refused");
    expect_is(cell_state(q, 0), SB_CELL_REMOVING, "the state of the cell after a return that is refused");
  }
  refuse(t.c, SB_OK);
  sb_ledger_shm *ledger = q->ledger;
  q->ledger = NULL;
  sb_dead_return(q, record, why);
  q->ledger = ledger;
  expect_is(cell_state(q, 0), SB_CELL_REMOVING, "the state of the cell after a return by a handle that is left");
  sb_dead_return(q, record, why);
  mark_closed(q);
  expect_is(take(0), -(int64_t)SB_DELETED, "the status in a queue that was deleted");
  SB_STORE(&q->shm->state, q->state, SB_RELAXED);
  expect_rest("calls that are refused");
}
static void calls_take_the_lock(void) {
  if (!has_steps()) return;
  begin();
  expect_locked_in(t.c, "sb_take.c");
  expect(take(0) > 0, "there is no dead message");
  was_locked("a take");
  expect_locked_in(t.c, "sb_park.c");
  sb_dead_return(q, record, why);
  was_locked("a return");
}
static void no_memory_for_a_take(void) {
  begin();
  leave_holdings(0);
  int64_t status = take(0);
  expect(status == -(int64_t)SB_GROW || status == -(int64_t)SB_NO_MEMORY, "the status is %d", (int)-status);
  expect_is(cell_state(q, 0), SB_CELL_SCHEDULED, "the state of its cell");
}
static void damaged(void (*damage)(sb_message_shm *m)) {
  begin();
  uint32_t slot = slot_in(0, 0);
  damage(sb_slot_at(t.b, slot));
  expect_is(take(0), -(int64_t)SB_CORRUPT, "the status");
  expect_is(cell_state(q, 0), SB_CELL_TOMBSTONE, "the state of its cell");
  expect_is(counted(q, SB_COUNT_DROPPED), 1, "what was dropped");
  expect_counts(1, 0, 0, "after a damaged message");
}
static void break_offset(sb_message_shm *m) { m->body_offset = 1; }
static void a_damaged_header(void) { damaged(break_offset); }

/* ---- carrying out ---- */

static sb_status carry_out(sb_disposition how, uint32_t publications) {
  sb_publication p = first_targets(1, 1);
  settling[0] = (sb_settlement){.queue = q, .token = header().tag, .disposition = how};
  return commit_now(&p, publications, 1);
}
static void a_commit_ends_it(sb_disposition how, unsigned counter) {
  uint32_t publications = how == SB_CARRIED_OUT;
  begin();
  expect(take(0) > 0, "there is no dead message");
  expect_is(carry_out(how, publications), SB_OK, "the status of a commit");
  expect_is(cell_state(q, 0), SB_CELL_TOMBSTONE, "the state of its cell");
  expect_is(counted(q, counter), 1, "what the reason counts");
  expect_is(counted(q, SB_COUNT_DROPPED) + counted(q, SB_COUNT_DEAD_LETTERED), 1, "what went");
  expect_is(counted(q, SB_COUNT_REMOVED_BYTES), BYTES, "the bytes that went");
  expect_is(added_to(1), publications, "the copies");
  expect_counts(1, 0, 0, "after it was carried out");
  expect_is(carry_out(how, publications), SB_SETTLED, "the status of a second commit");
  expect_is(added_to(1), publications, "the copies after a second commit");
  sb_dead_return(q, record, why);
  expect_counts(1, 0, 0, "after a return of what was carried out");
  expect_rest("a dead message was carried out");
}
static void carried_out(void) { a_commit_ends_it(SB_CARRIED_OUT, SB_COUNT_DEAD_LETTERED); }
static void given_up(void) { a_commit_ends_it(SB_GIVEN_UP, SB_COUNT_DROPPED); }
static void another_way(void) {
  begin();
  expect(take(0) > 0, "there is no dead message");
  expect_is(carry_out((sb_disposition)(SB_TRANSFER + 1), 1), SB_INVALID, "the status");
  expect_is(added_to(1), 0, "the copies");
  sb_dead_return(q, record, why);
  expect_rest("a disposition that does not exist");
}
static void a_commit_that_fails(void) {
  begin();
  target[1] = make_queue("full", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  note_rest(q);
  put_into(1);
  expect(take(0) > 0, "there is no dead message");
  expect_is(carry_out(SB_CARRIED_OUT, 1), SB_FULL, "the status");
  expect_counts(1, 1, 0, "after a commit that failed");
  sb_dead_return(q, record, why);
  expect(take(0) > 0, "it is not dead again");
  expect_is(why, SB_WHY_REJECTED, "why it is dead");
  sb_dead_return(q, record, why);
  expect_rest("a commit that failed");
}
/* A rejection in a commit is marked so that a reaper parks the message, too. */
static unsigned marked_as;
static void look_at_the_mark(void) {
  marked_as =
      sb_holding_counter(SB_LOAD(&sb_holding_at(t.b, header().tag & ((UINT64_C(1) << 40) - 1))->what, SB_RELAXED));
}
static void a_commit_rejects(sb_settings settings, unsigned counter, unsigned state) {
  make_targets(1, settings);
  q = target[0];
  put_into(0);
  expect(sb_queue_get(q, record, false) > 0, "there is no message");
  settling[0] = (sb_settlement){.queue = q, .token = header().tag, .disposition = SB_REJECT};
  meanwhile(&t.c->shm->commit, BEFORE_STORE, 1, look_at_the_mark);
  expect_is(commit_now(NULL, 0, 1), SB_OK, "the status of a commit");
  if (has_acted()) expect_is(marked_as, counter, "the counter of its mark");
  expect_is(cell_state(q, 0), state, "the state of its cell");
  expect_rest("a rejection in a commit");
}
static void a_commit_parks(void) { a_commit_rejects(DEADLY, SB_COUNT_DEAD_LETTERED, SB_CELL_SCHEDULED); }
static void a_commit_drops(void) { a_commit_rejects((sb_settings)FREELY, SB_COUNT_DROPPED, SB_CELL_TOMBSTONE); }

/* ---- kinds of queues ---- */

static void too_many(sb_settings settings, bool parks) {
  make_targets(1, settings);
  q = target[0];
  for (unsigned i = 0; i < 4; i++) put_into(0);
  expect_counts(3, 0, parks, "one is too many");
  if (parks) {
    expect(take(0) > 0, "there is no dead message");
    expect_is(why, SB_WHY_MAX_LENGTH, "why it is dead");
    sb_dead_return(q, record, why);
    expect_counts(3, 0, 1, "after it was given back");
  }
  expect_is(counted(q, SB_COUNT_REPLACED), !parks, "what was replaced");
  expect_is(counted(q, SB_COUNT_DROPPED), 0, "what was dropped");
  for (unsigned i = 0; i < 3; i++) expect(sb_queue_get(q, got, true) > 0, "message %u is not there", i);
  expect_is(sb_queue_get(q, got, true), -(int64_t)SB_EMPTY, "the status of a get at last");
  expect_rest("a queue that was too full");
}
static void a_full_queue_parks(void) {
  too_many((sb_settings){{-1, 3, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, LETTERS}, true);
}
static void full_of_bytes(void) {
  too_many((sb_settings){{-1, -1, 3 * BYTES, SB_OVERFLOW_DROP_HEAD, -1, -1}, LETTERS}, true);
}
static void a_ring_replaces(void) { too_many((sb_settings){{3, -1, -1, 0, -1, -1}, LETTERS}, false); }

static void a_get_finds_one_expired(void) {
  make_targets(1, DEADLY);
  q = target[0];
  put_into(0);
  put_into(0);
  ((sb_message_shm *)sb_slot_at(t.b, slot_in(0, 0)))->expires_ns = 1;
  expect(sb_queue_get(q, got, true) > 0, "there is no message");
  expect_counts(0, 0, 1, "after a get");
  expect(take(0) > 0, "there is no dead message");
  expect_is(why, SB_WHY_EXPIRED, "why it is dead");
  sb_dead_return(q, record, why);
  expect_rest("a get");
}
static void priorities(void) {
  q = queue_named("q", (sb_settings){{-1, -1, -1, 0, -1, -1, 9}, LETTERS});
  note_rest(q);
  expect_is(put_ranked(q, 5, 1), SB_OK, "the status of a put");
  expect_is(put_ranked(q, 0, 2), SB_OK, "the status of a put");
  reject_one();
  expect_is(ranked_state(q, 4, 0), SB_CELL_SCHEDULED, "the state of its cell");
  bool ready;
  uint64_t position = base_of(q, 4);
  expect_is(sb_schedule_look_at(q, position, sb_now_ns(), &ready), SB_SCHEDULE_DEAD, "the look");
  why = UNTOUCHED;
  expect(sb_dead_take(q, position, record, &why) > 0, "there is no dead message");
  expect_is(why, SB_WHY_REJECTED, "why it is dead");
  expect_is(header().priority, 5, "its priority");
  sb_dead_return(q, record, why);
  expect_is(ranked_state(q, 4, 0), SB_CELL_SCHEDULED, "the state of its cell when it was given back");
  reject_one();
  expect_is(ranked_state(q, 9, 0), SB_CELL_SCHEDULED, "the state of the last one's cell");
  expect_counts(0, 0, 2, "after two rejections");
  expect_is(sb_queue_get(q, got, true), -(int64_t)SB_EMPTY, "the status of a get at last");
  expect_rest("a queue with priorities");
}
static void a_purge_leaves_them(void) {
  uint64_t removed = 0;
  begin();
  expect_is(sb_queue_purge(q, &removed), SB_OK, "the status of a purge");
  expect_is(removed, 1, "what a purge removes");
  expect_counts(0, 0, 1, "after a purge");
  expect_is(counted(q, SB_COUNT_KILLED), 1, "what was killed");
  expect_rest("a purge");
}
static void a_deletion_ends_them(void) {
  begin();
  int32_t holder;
  uint64_t removed = 0;
  sb_ledger_shm *l = q->ledger;
  expect_is(sb_queue_delete(q, false, true, FOREVER, &holder, &removed), SB_NOT_EMPTY, "the status if it is empty");
  expect_is(sb_queue_delete(q, false, false, FOREVER, &holder, &removed), SB_OK, "the status of a deletion");
  expect_is(removed, 2, "what a deletion removes");
  expect_is(l->counters[SB_COUNT_KILLED], 2, "what was killed");
  const char *trouble = findings(t.c);
  expect(trouble == NULL, "%s", trouble);
}
/* The housekeeper holds a dead message while its queue is deleted: a return ends the message. */
static void a_deletion_meanwhile(void) {
  begin();
  int32_t holder;
  uint64_t removed = 0;
  expect(take(0) > 0, "there is no dead message");
  expect_is(sb_queue_delete(q, false, false, FOREVER, &holder, &removed), SB_OK, "the status of a deletion");
  expect_is(removed, 1, "what a deletion removes");
  sb_dead_return(q, record, why);
  expect_is(cell_state(q, 0), SB_CELL_TOMBSTONE, "the state of its cell");
  expect_is(q->ledger->counters[SB_COUNT_KILLED], 2, "what was killed");
}

/* Queue `a` rejects what is beyond one message, which it has. */
static void begin_full(void) {
  make_targets(1, (sb_settings){{-1, 1, -1, SB_OVERFLOW_REJECT_PUBLISH_DLX, -1, -1}, LETTERS});
  target[1] = make_queue("b", (sb_settings)FREELY);
  q = target[0];
  put_into(0);
  note_rest(q);
}
static const sb_put_options DEAD = {.dead = 1, .delay_ns = UINT64_C(1) << 60, .key = "key", .key_length = 3};
static void expect_dead_from_the_start(void) {
  bool ready;
  expect_counts(1, 0, 1, "after it was put");
  expect_is(cell_state(q, 1), SB_CELL_SCHEDULED, "the state of its cell");
  expect_is(sb_schedule_look_at(q, q->base + 1, 1, &ready), SB_SCHEDULE_DEAD, "what the housekeeper finds");
  expect(take(1) > 0, "it is not dead");
  expect_is(why, SB_WHY_MAX_LENGTH, "why it is dead");
  expect_is(header().delivery_count, 0, "how often it was delivered");
  sb_dead_return(q, record, why);
  expect_is(cell_state(q, 1), SB_CELL_SCHEDULED, "the state of its cell after it was given back");
  expect(take(1) > 0, "it is not dead again");
  expect_is(why, SB_WHY_MAX_LENGTH, "why it still is dead");
  sb_dead_return(q, record, why);
}
static void dead_from_the_start(void) {
  begin_full();
  expect_is(sb_queue_put(q, BODY, BYTES), SB_REJECTED, "the status of a put");
  expect_counts(1, 0, 0, "after a put that is rejected");
  expect_is(counted(q, SB_COUNT_REFUSED), 0, "what went nowhere");
  expect_is(sb_queue_put_with(q, BODY, BYTES, &DEAD), SB_OK, "the status of a put of a dead message");
  expect_dead_from_the_start();
  expect_rest("puts into a full queue");
  expect(sb_queue_get(q, got, false) > 0, "there is no message");
  expect_is(sb_queue_settle(q, got, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_is(sb_queue_put(q, BODY, BYTES), SB_OK, "the status of a put beside dead ones");
}
static void dead_from_the_start_in_a_commit(void) {
  uint32_t failed[2];
  begin_full();
  sb_publication p = {.body = BODY, .length = BYTES, .targets = target, .target_count = 1};
  expect_is(sb_transaction_commit(t.c, &p, 1, NULL, 0, &failed[0], &failed[1]), SB_REJECTED, "the status of a commit");
  expect(failed[0] == 0 && failed[1] == 0, "the queue is not named");
  expect_counts(1, 0, 0, "after a commit that is rejected");
  p.options = &DEAD;
  expect_is(sb_transaction_commit(t.c, &p, 1, NULL, 0, &failed[0], &failed[1]), SB_OK,
            "the status with a dead message");
  expect_dead_from_the_start();
  expect_rest("commits into a full queue");
}

static const test_case CASES[] = {
    {"api_dead: take", "a dead message is taken once", a_dead_message_is_taken},
    {"api_dead: give back", "one that is given back is dead as before", a_dead_message_is_given_back},
    {"api_dead: reason", "a reason out of range cannot damage the side record", a_reason_out_of_range},
    {"api_dead: nothing to take", "nothing but a dead message is taken", what_cannot_be_taken},
    {"api_dead: delayed", "a take of a delayed message makes it ready", a_delayed_message_becomes_ready},
    {"api_dead: refused", "a call that is refused changes nothing", calls_that_are_refused},
    {"api_dead: lock", "both calls hold the lock of the connection", calls_take_the_lock},
    {"api_dead: no memory", "a take without memory leaves the message", no_memory_for_a_take},
    {"api_dead: damaged", "a damaged dead message is dropped", a_damaged_header},
    {"api_dead: carried out", "a commit publishes a copy and ends the message, once", carried_out},
    {"api_dead: given up", "a commit ends a message that goes nowhere", given_up},
    {"api_dead: another way", "a commit refuses an unknown disposition", another_way},
    {"api_dead: commit fails", "after a commit that fails, the message is still held", a_commit_that_fails},
    {"api_dead: commit rejects", "a rejection in a commit parks the message", a_commit_parks},
    {"api_dead: commit drops", "without dead letters it ends the message", a_commit_drops},
    {"api_dead: full", "a message that is evicted is dead", a_full_queue_parks},
    {"api_dead: rejected", "a message that is rejected is dead from the start", dead_from_the_start},
    {"api_dead: rejected, commit", "so is one in a commit", dead_from_the_start_in_a_commit},
    {"api_dead: full of bytes", "so is one that is evicted for its bytes", full_of_bytes},
    {"api_dead: ring", "a ring replaces its messages, which end", a_ring_replaces},
    {"api_dead: get expired", "a message that a get finds expired is dead", a_get_finds_one_expired},
    {"api_dead: priorities", "dead messages rest in the lanes of their priorities", priorities},
    {"api_dead: purge", "a purge leaves dead messages", a_purge_leaves_them},
    {"api_dead: delete", "a deletion ends dead messages, and a queue with some is not empty", a_deletion_ends_them},
    {"api_dead: deleted meanwhile", "a return to a queue that was deleted ends the message", a_deletion_meanwhile},
};
SUBJECT(CASES)
