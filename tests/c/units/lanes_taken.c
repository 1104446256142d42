// SPDX-License-Identifier: Apache-2.0
/* sb_take, sb_limits, sb_choice and sb_queue in a queue with priorities: which message is taken or evicted, and what
 * becomes of the ready bits. The lanes themselves are in lanes.c. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "heap.h"
#include "meanwhile.h"
#include "queues.h"
#include "ranked.h"
#include "sb_limits.h"
#include "sb_choice.h"
#include "sb_release.h"
#include "staging.h"
#include "system.h"

#define DROPPING(bytes) ((sb_settings){{-1, -1, (bytes), SB_OVERFLOW_DROP_HEAD, -1, -1, 9}, 0})
enum { FIRST = 9, MIDDLE = 5, LAST = 0 }; /* priorities; their lanes are 0, 4 and 9 */

static sb_queue *q;
static sb_taken taken;

static void begin(sb_settings settings) { q = queue_named("q", settings); }
static sb_status take_before(uint64_t before) {
  return sb_take_oldest(q, SB_CELL_ACQUIRED, before, new_token(), &taken);
}
static sb_status take(void) { return take_before(SB_ANY_POSITION); }
static void expect_id(sb_status status, uint64_t id, const char *what) {
  expect(status == SB_OK, "%s: the status is %d", what, (int)status);
  if (status == SB_OK) expect_is(id_of(&taken), id, what);
}
/* The lanes whose ready bits are set. */
static void expect_ready(uint64_t bits, const char *what) { expect_is(q->shm->ready[0], bits, what); }
#define BIT(number) (UINT64_C(1) << (number))
static void put_each(const unsigned *priorities, unsigned count) {
  for (unsigned i = 0; i < count; i++) expect_is(put_ranked(q, priorities[i], i + 1), SB_OK, "the status of a put");
}

/* ---- the order of takes ---- */

static void messages_by_priority(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST, FIRST, MIDDLE, FIRST, LAST}, 5);
  expect_ready(BIT(0) | BIT(4) | BIT(9), "the lanes with messages");
  const uint64_t in_order[] = {2, 4, 3, 1, 5};
  const unsigned lanes[] = {0, 0, 4, 9, 9};
  for (unsigned i = 0; i < 5; i++) {
    expect_id(take(), in_order[i], "a message in its turn");
    expect_is(sb_position_lane(taken.position), lanes[i], "the lane of its position");
    expect_is(q->shm->last_take, taken.position, "the last acquisition");
  }
  expect_is(take(), SB_EMPTY, "the status when all are taken");
}
static void a_later_message_of_a_higher_priority(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST, LAST}, 2);
  expect_id(take(), 1, "the first one");
  expect_is(put_ranked(q, MIDDLE, 3), SB_OK, "the status of a put");
  expect_id(take(), 3, "one of a higher priority");
  expect_id(take(), 2, "the rest");
}
static void a_take_before_a_position(void) {
  begin(RANKED(9));
  put_each((unsigned[]){FIRST, MIDDLE, MIDDLE, LAST}, 4);
  uint64_t base = base_of(q, 4);
  expect_is(take_before(base), SB_EMPTY, "the status of none before the first of a lane");
  expect_id(take_before(base + 1), 2, "the one before that position");
  expect_is(take_before(base + 1), SB_EMPTY, "the status when it is taken");
  expect_id(take_before(base + 2), 3, "the next one of that lane");
  expect_ready(BIT(0) | BIT(4) | BIT(9), "the bits, which stay");
  expect_id(take_before(q->base + 1), 1, "the one in lane 0");
}

/* ---- ready bits ---- */

static void bits_of_lanes_without_messages(void) {
  begin(RANKED(9));
  put_each((unsigned[]){FIRST, MIDDLE, LAST}, 3);
  expect_id(take(), 1, "the first one");
  expect_ready(BIT(0) | BIT(4) | BIT(9), "the bits when the first lane was not searched since");
  expect_id(take(), 2, "the second one");
  expect_ready(BIT(4) | BIT(9), "the bits when the first lane had none");
  expect_id(take(), 3, "the third one");
  expect_ready(BIT(9), "the bits when two lanes had none");
  expect_is(take(), SB_EMPTY, "the status when all are taken");
  expect_ready(0, "the bits when no lane has a message");
  expect_is(put_ranked(q, MIDDLE, 4), SB_OK, "the status of a put");
  expect_ready(BIT(4), "the bits after a put");
  expect_id(take(), 4, "what was put");
}
/* A bit that no lane of the handle has, as damage may set it. */
static void a_bit_behind_the_last_lane(void) {
  begin(RANKED(9));
  set_ready(q, 10, true);
  set_ready(q, 255, true);
  expect_is(take(), SB_EMPTY, "the status");
  put_each((unsigned[]){MIDDLE}, 1);
  expect_id(take(), 1, "a message");
}
static sb_connection *other;
static sb_queue *theirs;
static void open_theirs(void) {
  other = connect_to(&t);
  test_broker of_other = t;
  of_other.c = other;
  theirs = open_queue(&of_other, "q");
}
/* Another process puts a message just after this one cleared the bit. A third one clears the bit again. */
static void put_and_hide(const char *site) {
  if (strcmp(site, "queue.take.unmarked_lane") != 0) return;
  at_step = NULL;
  expect_ready(0, "the bit while the lane is searched again");
  expect_is(put_ranked(theirs, MIDDLE, 2), SB_OK, "the status of their put");
  set_ready(q, 4, false);
}
static void a_message_that_comes_meanwhile(void) {
  begin(RANKED(9));
  open_theirs();
  put_each((unsigned[]){MIDDLE}, 1);
  expect_id(take(), 1, "the first one");
  at_step = put_and_hide;
  sb_status status = take();
  at_step = NULL;
  if (!has_steps()) return;
  expect_id(status, 2, "the one that came meanwhile");
  expect_ready(BIT(4), "the bit");
}
static void clear_when_counted(const char *site) {
  if (strcmp(site, "queue.append.marked") == 0) expect_ready(BIT(4), "the bit before the append");
  if (strcmp(site, "queue.append.counted") == 0) set_ready(q, 4, false);
}
static void a_bit_that_a_search_clears_meanwhile(void) {
  begin(RANKED(9));
  at_step = clear_when_counted;
  put_each((unsigned[]){MIDDLE}, 1);
  at_step = NULL;
  expect_ready(BIT(4), "the bit after the put");
  expect_is(q->shm->came, q->base + 1, "what came");
}
static void an_append_without_memory(void) {
  begin(RANKED(9));
  put_each((unsigned[]){MIDDLE}, 1);
  for (unsigned i = 1; i < SB_PAGE_CELLS; i++) expect_is(put_ranked(q, MIDDLE, i + 1), SB_OK, "the status of a put");
  use_all_slots(SB_KIND_LEAF);
  use_all_slots(SB_KIND_INNER);
  expect_is(put_ranked(q, MIDDLE, 99), SB_NO_MEMORY, "the status without a page");
  expect_is(q->shm->came, q->base + SB_PAGE_CELLS, "what came");
}

/* ---- messages that return ---- */

static void a_message_that_returns(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST, LAST, MIDDLE}, 3);
  expect_id(take(), 3, "the first one");
  expect_id(take(), 1, "the second one");
  uint64_t token = taken.token;
  expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status of a release");
  expect_is(q->shm->requeued, 0, "the flag of lane 0");
  expect_is(lane_of(q, 9)->requeued, 1, "the flag of its lane");
  expect_id(take(), 1, "what returned");
  expect_id(take(), 2, "what is behind it");
  token = taken.token;
  expect_is(take(), SB_EMPTY, "the status when all are taken");
  expect_ready(0, "the bits");
  expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status of a release");
  expect_ready(BIT(9), "the bit after a release");
  expect_id(take(), 2, "what returned to an empty queue");
}
/* A search clears the bit between the marks and the change of the cell. */
static void hide_last(void) { set_ready(q, 9, false); }
static void a_message_that_returns_meanwhile(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST}, 1);
  expect_id(take(), 1, "the first one");
  meanwhile(&ranked_cell(q, 9, 0)->word, BEFORE_CHANGE, 1, hide_last);
  expect_is(sb_release_message(q, taken.token, SB_REQUEUE), SB_OK, "the status of a release");
  if (has_acted()) expect_ready(BIT(9), "the bit");
}
/* The bit is set before the message is ready: a process that is killed behind it hides nothing. */
static void look_before_the_release(const char *site) {
  if (strcmp(site, "queue.release.marked") == 0) expect_ready(BIT(9), "the bit before the release");
}
static void a_bit_before_a_release(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST}, 1);
  expect_id(take(), 1, "the first one");
  set_ready(q, 9, false);
  at_step = look_before_the_release;
  expect_is(sb_release_message(q, taken.token, SB_REQUEUE), SB_OK, "the status of a release");
  at_step = NULL;
}
static void a_mark_needs_the_bit(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST}, 1);
  sb_ring r = ring_of(q, 9);
  uint64_t at = base_of(q, 9);
  sb_requeued_mark(t.b, &r, at);
  expect(sb_requeued_is_marked(t.b, &r, at), "a marked message is not");
  set_ready(q, 9, false);
  expect(!sb_requeued_is_marked(t.b, &r, at), "a message in a hidden lane is marked");
  sb_requeued_mark(t.b, &r, at);
  expect_ready(BIT(9), "the bit after a mark");
}
/* The bit of a cell goes with the cell, whoever takes it. */
static void a_mark_of_what_is_taken(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST, LAST}, 2);
  sb_ring r = ring_of(q, 9);
  uint64_t at = base_of(q, 9);
  sb_requeued_mark(t.b, &r, at);
  sb_requeued_mark(t.b, &r, at + 1);
  expect_is(sb_take_at(q, at, SB_CELL_AVAILABLE, new_token(), &taken), SB_OK, "the status");
  expect_is(ranked_leaf(q, 9, 0).leaf->page.requeued, 2, "the bits of the leaf");
}

/* ---- commits ---- */

/* A commit of one message of the lowest priority, behind a message that was put. */
static void begin_staged(void) {
  begin_commit(1, RANKED(9), &NONE);
  q = target[0];
  stage_all();
}
static void a_staged_message(void) {
  begin_staged();
  expect_is(ranked_state(q, 9, 1), SB_CELL_STAGED, "the state of its cell");
  expect_is(q->shm->came, q->base + 2, "what came");
  sb_status status = take();
  expect_is(status, SB_OK, "the status of the message before it");
  expect_is(take(), SB_EMPTY, "the status beside a staged one");
  expect_ready(0, "the bits");
  sb_transaction_decide(&plan);
  sb_transaction_carry_out(&plan);
  expect_ready(BIT(9), "the bits when the commit was carried out");
  expect_is(take(), SB_OK, "the status of its message");
  expect_is(taken.position, base_of(q, 9) + 1, "its position");
}
static void hide_the_lane(void) { set_ready(q, 9, false); }
static void a_search_beside_a_flip(void) {
  begin_staged();
  sb_transaction_decide(&plan);
  meanwhile(staged_word(0), BEFORE_CAS, 1, hide_the_lane);
  sb_transaction_carry_out(&plan);
  if (has_acted()) expect_ready(BIT(9), "the bit");
}
/* At the flip the bit is set already: a process that is killed behind it hides nothing. */
static void look_before_the_flip(void) { expect_ready(BIT(9), "the bit before the flip"); }
static void a_bit_before_a_flip(void) {
  begin_staged();
  hide_the_lane();
  sb_transaction_decide(&plan);
  meanwhile(staged_word(0), BEFORE_CAS, 1, look_before_the_flip);
  sb_transaction_carry_out(&plan);
  (void)has_acted();
}
static void a_commit_without_a_lane(void) {
  begin_commit(1, RANKED(9), &NONE);
  uint32_t failed = 99;
  ((sb_message_shm *)sb_slot_at(t.b, bodies[0].slot))->priority = MIDDLE;
  use_all_slots(SB_KIND_LANE);
  expect_is(sb_transaction_stage(&plan, &failed), SB_NO_MEMORY, "the status without a lane");
  expect_is(failed, 0, "what failed");
  sb_transaction_undo(&plan);
  expect_is(target[0]->shm->came, target[0]->base + 1, "what came");
}

/* ---- eviction ---- */

static uint64_t count_of(unsigned counter) { return q->ledger->counters[counter]; }
static void the_lowest_priority_is_evicted(void) {
  begin(RANKED_RING(3, 9));
  put_each((unsigned[]){FIRST, LAST, LAST, MIDDLE}, 4);
  expect_is(ranked_state(q, 9, 0), SB_CELL_TOMBSTONE, "the oldest of the lowest priority");
  expect_is(ranked_state(q, 9, 1), SB_CELL_AVAILABLE, "the next one of that priority");
  expect_is(put_ranked(q, FIRST, 5), SB_OK, "the status of a put");
  expect_is(ranked_state(q, 9, 1), SB_CELL_TOMBSTONE, "the last one of that priority");
  expect_is(put_ranked(q, FIRST, 6), SB_OK, "the status of a put");
  expect_is(ranked_state(q, 4, 0), SB_CELL_TOMBSTONE, "the one of the middle priority");
  expect_ready(BIT(0) | BIT(4), "the bits: an eviction searches upwards");
  expect_is(put_ranked(q, LAST, 7), SB_OK, "the status of a put");
  expect_is(ranked_state(q, 9, 2), SB_CELL_TOMBSTONE, "the new one, which has the lowest priority");
  expect_is(put_ranked(q, FIRST, 8), SB_OK, "the status of a put");
  expect_is(ranked_state(q, 0, 0), SB_CELL_TOMBSTONE, "the oldest of the highest priority");
  expect_is(count_of(SB_COUNT_REPLACED), 5, "how many were replaced");
  expect_is(q->shm->taken, 5, "how many are gone by the hints");
  expect_is(q->shm->came, q->base + 8, "what came");
  expect_is(sb_queue_ready(t.b, q->shm), 3, "how many are ready");
}
/* A message that returned is evicted first. */
static void what_returned_is_evicted(void) {
  begin(RANKED_RING(3, 9));
  put_each((unsigned[]){LAST, LAST}, 2);
  expect_id(take(), 1, "the first one");
  expect_id(take(), 2, "the second one");
  expect_is(sb_release_message(q, taken.token, SB_REQUEUE), SB_OK, "the status of a release");
  put_each((unsigned[]){LAST, FIRST, FIRST}, 3);
  expect_is(ranked_state(q, 9, 1), SB_CELL_TOMBSTONE, "what returned");
  expect_is(ranked_state(q, 9, 2), SB_CELL_AVAILABLE, "what was put later");
}
/* The queue seems to have too many, but no cell is ready: the bits of all lanes go, those of lane 0 last. */
static void no_victim_in_any_lane(void) {
  begin(RANKED_RING(9, 9));
  put_each((unsigned[]){FIRST, LAST}, 2);
  set_ranked(q, 0, 0, SB_CELL_ACQUIRED, OTHER);
  set_ranked(q, 9, 0, SB_CELL_ACQUIRED, OTHER);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 1, SB_RELAXED);
  expect_is(sb_limits_enforce(q), 0, "how many were evicted");
  expect_ready(0, "the bits");
  expect_is(q->shm->taken, 0, "the payment, which was taken back");
}
static sb_status put_long(unsigned priority, uint64_t length) {
  static char body[512];
  sb_put_options o = {.priority = (uint8_t)priority};
  return sb_queue_put_with(q, body, length, &o);
}
static uint64_t paid;
static void look_at_payment(const char *site) {
  if (strcmp(site, "limits.evict.paid_bytes") == 0) paid = SB_LOAD(&q->shm->bytes_out, SB_RELAXED);
}
static void bytes_of_the_lowest_priority(void) {
  begin(DROPPING(1000));
  expect_is(put_long(FIRST, 100) | put_long(LAST, 30) | put_long(MIDDLE, 50), SB_OK, "the status of the puts");
  expect_is(sb_queue_oldest_bytes(q), 30, "the bytes of the next victim");
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_BYTES], 170, SB_RELAXED);
  at_step = look_at_payment;
  expect_is(sb_limits_enforce(q), 1, "how many were evicted");
  at_step = NULL;
  if (has_steps()) expect_is(paid, 30, "what was paid for it");
  expect_is(ranked_state(q, 9, 0), SB_CELL_TOMBSTONE, "the one of the lowest priority");
  expect_is(q->shm->bytes_out, 30, "the bytes that went");
}
static void bytes_of_what_returned(void) {
  begin(RANKED(9));
  expect_is(put_long(FIRST, 100) | put_long(LAST, 30) | put_long(LAST, 40), SB_OK, "the status of the puts");
  expect_is(take(), SB_OK, "the status of the first one");
  expect_is(take(), SB_OK, "the status of the second one");
  expect_is(sb_queue_oldest_bytes(q), 40, "the bytes of what was not taken");
  SB_STORE(ring_of(q, 9).head, base_of(q, 9) + 1, SB_RELAXED);
  expect_is(sb_release_message(q, taken.token, SB_REQUEUE), SB_OK, "the status of a release");
  expect_is(sb_queue_oldest_bytes(q), 30, "the bytes of what returned");
  for (unsigned n = 0; n < 10; n++) set_ready(q, n, false);
  expect_is(sb_queue_oldest_bytes(q), 1, "the bytes when no lane is ready");
}
static void older_messages_of_a_lane(void) {
  begin(RANKED(9));
  put_each((unsigned[]){FIRST, LAST, LAST}, 3);
  sb_ring first = ring_of(q, 0), last = ring_of(q, 9);
  uint64_t base = base_of(q, 9);
  sb_requeued_mark(t.b, &first, q->base);
  expect(!sb_queue_older_ready(q, base + 1), "one in another lane is older");
  sb_requeued_mark(t.b, &last, base);
  expect(sb_queue_older_ready(q, base + 1), "none is older");
  expect(!sb_queue_older_ready(q, base), "one is older than itself");
}

/* ---- doubt ---- */

static void shrink(int64_t ring) { SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], ring, SB_RELAXED); }
static void what_fits_in_all_lanes(void) {
  begin(RANKED_RING(9, 9));
  put_each((unsigned[]){FIRST, FIRST, MIDDLE, MIDDLE, LAST}, 5);
  uint64_t removed = 0;
  expect(!sb_limits_keep(q, &removed), "there is no doubt in a queue with lanes");
  shrink(5);
  expect(!sb_limits_in_doubt(q), "five are more than five");
  shrink(4);
  expect(sb_limits_in_doubt(q), "five are not more than four");
  set_ranked(q, 4, 0, SB_CELL_ACQUIRED, OTHER);
  expect(!sb_limits_in_doubt(q), "one that is taken in a lane counts");
  expect_is(sb_queue_lane_of(q, 4)->cursor, base_of(q, 4) + 1, "the cursor of that lane");
  shrink(3);
  expect(sb_limits_in_doubt(q), "four are not more than three");
  set_ranked(q, 0, 0, SB_CELL_TOMBSTONE, 0);
  expect(!sb_limits_in_doubt(q), "one that is gone in lane 0 counts");
  shrink(2);
  set_ranked(q, 9, 0, SB_CELL_REMOVING, OTHER);
  expect(!sb_limits_in_doubt(q), "one that is taken in the last lane counts");
}
static void doubt_where_a_message_returned(void) {
  begin(RANKED_RING(9, 9));
  put_each((unsigned[]){FIRST, MIDDLE}, 2);
  expect(!sb_limits_in_doubt(q), "two are more than nine");
  SB_STORE(&lane_of(q, 4)->requeued, 1, SB_RELAXED);
  expect(sb_limits_in_doubt(q), "there is no doubt although a message returned");
}

/* ---- whether it looks ready ---- */

static void what_looks_ready(void) {
  begin(RANKED(9));
  sb_leaf_ref leaf = SB_NO_LEAF;
  expect(!sb_queue_looks_ready(q) && !sb_queue_seems_ready(q, &leaf), "an empty queue looks ready");
  set_ready(q, 4, true);
  expect(sb_queue_looks_ready(q) && sb_queue_seems_ready(q, &leaf), "a queue with a bit does not look ready");
  expect(sb_queue_may_hide(q), "a queue with lanes hides nothing");
  sb_queue *plain = queue_named("plain", UNLIMITED);
  expect(!sb_queue_may_hide(plain), "a queue without lanes hides something");
  SB_STORE(&plain->shm->requeued, 1, SB_RELAXED);
  expect(sb_queue_may_hide(plain), "a queue to which a message returned hides nothing");
}

/* ---- handles ---- */

static void the_lanes_of_a_handle(void) {
  begin(RANKED(9));
  sb_lane *lane = NULL;
  expect(sb_queue_has_lanes(q), "it has one lane");
  expect_is(q->last_lane, 9, "the number of the last lane");
  expect_is(q->others, 9, "how many other lanes it remembers");
  expect(sb_queue_other_lane(q, 4) == &q->lanes[0], "there is a lane that nobody made");
  expect(sb_queue_other_lane(q, 10) == &q->lanes[0], "there is a lane behind the last");
  expect_is(sb_queue_lane_for(q, 200, &lane), SB_OK, "the status of the highest priority");
  expect(lane == &q->lanes[0], "the highest priority has another lane");
  expect_is(q->shm->lanes, 0, "the first lane");
  expect_is(sb_queue_lane_for(q, MIDDLE, &lane), SB_OK, "the status of a new lane");
  expect(lane == &q->lanes[4] && lane->ring.object == lane_slot(q, 4), "it is another lane");
  expect(lane->tail_leaf.leaf == NULL && lane->head_leaf.leaf == NULL, "it knows a page");
  expect_is(lane->tail_leaf.first, UINT64_MAX, "the first position of its leaf");
  lane->cursor = 77;
  expect_is(sb_queue_lane_for(q, MIDDLE, &lane), SB_OK, "the status of the lane once more");
  expect_is(lane->cursor, 77, "its cursor");
  expect(sb_queue_lane(q, base_of(q, 4) + 3) == lane, "its position is in another lane");
  open_theirs();
  expect(sb_queue_lane_of(theirs, 4) == &theirs->lanes[4], "another handle does not find it");
  expect_is(sb_queue_lane_for(theirs, LAST, &lane), SB_OK, "the status of a lane that another handle makes");
  expect(sb_queue_lane_of(q, 9) == &q->lanes[9], "the lane that another handle made is not found");
}
static void lanes_that_cannot_be(void) {
  begin(RANKED(9));
  sb_lane *lane = NULL;
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_PRIORITY], 20, SB_RELAXED);
  expect_is(sb_queue_lane_for(q, 0, &lane), SB_CORRUPT, "the status of a lane behind the last of the handle");
  expect_is(q->shm->lanes, 0, "the first lane");
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_PRIORITY], 9, SB_RELAXED);
  use_all_slots(SB_KIND_LANE);
  expect_is(sb_queue_lane_for(q, 0, &lane), SB_NO_MEMORY, "the status without memory");
  uint64_t begun = intents_of(q);
  expect_is(put_ranked(q, LAST, 1), SB_NO_MEMORY, "the status of a put without memory for its lane");
  expect_is(intents_of(q), begun, "the intents");
  SB_STORE(&q->shm->lanes, q->slot, SB_RELAXED);
  expect_is(sb_queue_lane_for(q, 0, &lane), SB_CORRUPT, "the status in a damaged chain");
  sb_queue *plain = queue_named("plain", UNLIMITED);
  expect(!sb_queue_has_lanes(plain), "a queue without priorities has lanes");
  SB_STORE(&plain->shm->settings[SB_SETTING_MAX_PRIORITY], 9, SB_RELAXED);
  expect_is(sb_queue_lane_for(plain, 7, &lane), SB_OK, "the status without priorities");
  expect(lane == &plain->lanes[0], "a queue without priorities has another lane");
}
/* The object names no queue, so the handle cannot open it. */
static void a_lane_that_has_no_ring(void) {
  begin(RANKED(9));
  sb_lane *lane = NULL;
  open_theirs();
  expect_is(sb_queue_lane_for(theirs, LAST, &lane), SB_OK, "the status of a lane");
  SB_STORE(&lane_of(q, 9)->queue, lane_slot(q, 9), SB_RELAXED);
  expect_is(sb_queue_lane_for(q, LAST, &lane), SB_CORRUPT, "the status of a lane of no queue");
}
static void ends_of_lanes(void) {
  begin(RANKED(9));
  put_each((unsigned[]){FIRST, FIRST, MIDDLE, LAST, LAST, LAST}, 6);
  uint64_t middle = base_of(q, 4) + 1, last = base_of(q, 9) + 3;
  expect_is(sb_queue_end_of(q, 0), q->base + 2, "the end of lane 0");
  expect_is(sb_queue_end_of(q, middle + 20), middle, "the end of lane 4");
  expect_is(sb_queue_next_end(q, 0), middle, "the end behind lane 0");
  expect_is(sb_queue_next_end(q, sb_position_in(3, 0)), middle, "the end behind lane 3");
  expect_is(sb_queue_next_end(q, middle), last, "the end behind lane 4");
  expect_is(sb_queue_next_end(q, last), 0, "the end behind the last lane");
  SB_STORE(&lane_of(q, 9)->tail, base_of(q, 9), SB_RELAXED);
  expect_is(sb_queue_next_end(q, middle), last, "the end behind a tail that lags");
}
static void numbers_of_a_handle(void) {
  begin(RANKED(9));
  put_each((unsigned[]){LAST}, 1);
  q->base = 3;
  expect_is(sb_queue_sequence(q, 70), 67, "the number of a position of lane 0");
  expect_is(sb_queue_sequence(q, base_of(q, 9) + 5), sb_position_in(9, 5), "the number of a position of lane 9");
  expect_is(sb_queue_sequence(q, sb_position_in(2, 5)), UINT64_MAX, "the number in a lane that nobody made");
}
/* Lanes 1 and 17 have one place in the handle. */
static void some_lanes_are_remembered(void) {
  begin(RANKED(255));
  sb_lane *first = NULL, *other = NULL;
  expect_is(q->others, SB_OTHERS_MOST, "how many lanes it remembers");
  expect_is(sb_queue_lane_for(q, 254, &first), SB_OK, "the status of lane 1");
  first->cursor = 77;
  expect_is(sb_queue_lane_for(q, 238, &other), SB_OK, "the status of lane 17");
  expect(other == first && other->number == 17, "it has another place");
  expect_is(other->cursor, 0, "its cursor");
  expect(sb_queue_lane_of(q, 1)->ring.object == lane_slot(q, 1), "lane 1 is not found again");
  expect_is(sb_queue_others(t.b, q->slot), SB_OTHERS_MOST, "how many lanes of it a handle remembers");
  expect_is(sb_queue_others(t.b, queue_named("plain", UNLIMITED)->slot), 1, "how many of a queue with one lane");
  expect_is(sb_queue_others(t.b, 0), 1, "how many of no queue");
}
static void one_lane_on_the_stack(void) {
  begin(RANKED(9));
  sb_queue probe;
  sb_lane *lane = NULL;
  expect_is(sb_queue_stand_in(t.c, q->slot, &probe, q->ledger), SB_OK, "the status");
  expect_is(probe.others, 1, "how many other lanes it remembers");
  expect_is(sb_queue_lane_for(&probe, MIDDLE, &lane), SB_OK, "the status of a lane");
  expect(lane == &probe.lanes[1], "it has another place");
  expect_is(sb_queue_lane_for(&probe, LAST, &lane), SB_OK, "the status of another lane");
  expect(lane == &probe.lanes[1] && lane->ring.object == lane_slot(q, 9), "it is another lane");
}
static void pages_are_forgotten(void) {
  begin(RANKED(9));
  put_each((unsigned[]){FIRST, MIDDLE, LAST}, 3);
  for (unsigned i = 0; i < 3; i++) expect_is(take(), SB_OK, "the status of a take");
  expect(sb_queue_lane_of(q, 9)->head_leaf.leaf != NULL && q->lanes[0].head_leaf.leaf != NULL, "no page is known");
  ask_to_forget(t.c);
  expect_is(purge_count(q), 0, "how many were purged");
  const unsigned numbers[] = {0, 4, 9};
  for (unsigned i = 0; i < 3; i++)
    expect(sb_queue_lane_of(q, numbers[i])->head_leaf.leaf == NULL, "a page of lane %u is known", numbers[i]);
}

/* ---- consumers with no_local ---- */

static sb_choice choice;
static uint64_t cursor_in(unsigned number) { return choice.others[(number - 1) % SB_CHOICE_OTHERS]; }
static sb_status take_foreign(void) { return sb_choice_take(q, &choice, new_token(), &taken); }
static void foreign(unsigned number, uint64_t n) { ranked_message(q, number, n)->publisher = OTHER; }
static void foreign_messages_by_priority(void) {
  begin(RANKED(9));
  choice = (sb_choice){.no_local = true};
  put_each((unsigned[]){FIRST, LAST, MIDDLE, FIRST, MIDDLE, LAST}, 6);
  foreign(0, 1);
  foreign(4, 1);
  foreign(9, 0);
  expect_id(take_foreign(), 4, "the foreign one of the highest priority");
  expect_is(choice.cursor, q->base + 2, "the cursor in lane 0");
  expect_id(take_foreign(), 5, "the foreign one of the middle priority");
  expect_is(choice.cursor, q->base + 2, "the cursor in lane 0 after a search of others");
  expect_is(cursor_in(4), base_of(q, 4) + 2, "the cursor in lane 4");
  put_each((unsigned[]){FIRST}, 1);
  foreign(0, 2);
  expect_is(take_foreign(), SB_OK, "the status of one that came at the cursor of lane 0");
  expect_is(taken.position, q->base + 2, "its place");
  expect_id(take_foreign(), 2, "the foreign one of the lowest priority");
  expect_is(take_foreign(), SB_EMPTY, "the status when only own ones are left");
  expect_ready(BIT(0) | BIT(4) | BIT(9), "the bits, which stay");
  expect_is(cursor_in(9), base_of(q, 9) + 2, "the cursor in lane 9");
}
static void a_foreign_message_that_returned(void) {
  begin(RANKED(9));
  choice = (sb_choice){.no_local = true};
  put_each((unsigned[]){LAST, LAST, LAST}, 3);
  foreign(9, 0);
  foreign(9, 2);
  expect_id(take_foreign(), 1, "the first one");
  expect_is(sb_release_message(q, taken.token, SB_REQUEUE), SB_OK, "the status of a release");
  expect_id(take_foreign(), 1, "what returned");
  expect_id(take_foreign(), 3, "the next one");
  expect_is(take_foreign(), SB_EMPTY, "the status when only an own one is left");
}
static void a_search_begins_at_the_cursor(void) {
  begin(RANKED(9));
  choice = (sb_choice){.no_local = true};
  put_each((unsigned[]){LAST, LAST}, 2);
  foreign(9, 0);
  foreign(9, 1);
  choice.others[8] = base_of(q, 9) + 1;
  expect_id(take_foreign(), 2, "the one at the cursor");
}
/* The head of a lane is passed by all: the search begins there. */
static void a_search_begins_at_the_head_of_a_lane(void) {
  begin(RANKED(9));
  choice = (sb_choice){.no_local = true};
  put_each((unsigned[]){LAST, LAST}, 2);
  foreign(9, 0);
  foreign(9, 1);
  SB_STORE(ring_of(q, 9).head, base_of(q, 9) + 1, SB_RELAXED);
  expect_id(take_foreign(), 2, "the one at the head");
}
static void foreign_messages_of_few_lanes(void) {
  begin(RANKED(9));
  choice = (sb_choice){.no_local = true};
  set_ready(q, 10, true);
  expect_is(take_foreign(), SB_EMPTY, "the status of a bit behind the last lane");
  expect_is(choice.cursor, 0, "the cursor");
  set_ready(q, 4, true);
  put_each((unsigned[]){LAST}, 1);
  foreign(9, 0);
  expect_id(take_foreign(), 1, "behind the bit of a lane that nobody made");
}

static const test_case CASES[] = {
    {"lanes_taken: order", "messages are taken by priority, then by age", messages_by_priority},
    {"lanes_taken: later", "a later message of a higher priority comes first", a_later_message_of_a_higher_priority},
    {"lanes_taken: before", "a take before a position is a take in its lane", a_take_before_a_position},
    {"lanes_taken: bits", "a search clears the bits of lanes without a message", bits_of_lanes_without_messages},
    {"lanes_taken: stray bit", "a bit behind the last lane leads to nothing", a_bit_behind_the_last_lane},
    {"lanes_taken: meanwhile", "a search that cleared a bit looks again, and sets it again",
     a_message_that_comes_meanwhile},
    {"lanes_taken: cleared", "a put sets the bit before and after its append", a_bit_that_a_search_clears_meanwhile},
    {"lanes_taken: no page", "a put without a page counts nothing", an_append_without_memory},
    {"lanes_taken: returned", "a message that returns is the first of its lane", a_message_that_returns},
    {"lanes_taken: returns", "a release sets the bit once more after it", a_message_that_returns_meanwhile},
    {"lanes_taken: before release", "a release sets the bit before its message is ready", a_bit_before_a_release},
    {"lanes_taken: mark", "a message is marked only if its lane is", a_mark_needs_the_bit},
    {"lanes_taken: took", "the mark of a message goes when it is taken", a_mark_of_what_is_taken},
    {"lanes_taken: staged", "a commit leads searches to its message", a_staged_message},
    {"lanes_taken: flip", "a commit sets the bit once more after it", a_search_beside_a_flip},
    {"lanes_taken: before flip", "a commit sets the bit before its message is ready", a_bit_before_a_flip},
    {"lanes_taken: no lane", "a commit fails without memory for a lane", a_commit_without_a_lane},
    {"lanes_taken: evicted", "the oldest of the lowest priority is evicted", the_lowest_priority_is_evicted},
    {"lanes_taken: evicts returned", "what returned is evicted first in its lane", what_returned_is_evicted},
    {"lanes_taken: no victim", "an eviction that finds none has searched all lanes", no_victim_in_any_lane},
    {"lanes_taken: bytes", "the bytes of the lowest priority are paid", bytes_of_the_lowest_priority},
    {"lanes_taken: oldest bytes", "the next victim is the oldest one of the lowest lane", bytes_of_what_returned},
    {"lanes_taken: older", "an older message is one of the same lane", older_messages_of_a_lane},
    {"lanes_taken: doubt", "what may be ready is the sum of all lanes", what_fits_in_all_lanes},
    {"lanes_taken: returned doubt", "a lane to which a message returned leaves doubt", doubt_where_a_message_returned},
    {"lanes_taken: looks", "a queue looks ready if a lane does", what_looks_ready},
    {"lanes_taken: handle", "a handle finds lanes, and makes those that it needs", the_lanes_of_a_handle},
    {"lanes_taken: impossible", "a lane is refused without memory, and in a damaged queue", lanes_that_cannot_be},
    {"lanes_taken: no ring", "a lane of no queue is damage", a_lane_that_has_no_ring},
    {"lanes_taken: ends", "the ends of all lanes come one after the other", ends_of_lanes},
    {"lanes_taken: numbers", "a position has a number in its lane", numbers_of_a_handle},
    {"lanes_taken: some", "a handle remembers some lanes, and finds the others again", some_lanes_are_remembered},
    {"lanes_taken: stack", "a handle on the stack remembers one lane", one_lane_on_the_stack},
    {"lanes_taken: forgets", "a handle forgets the pages of all lanes", pages_are_forgotten},
    {"lanes_taken: no_local", "foreign messages come by priority", foreign_messages_by_priority},
    {"lanes_taken: no_local returned", "a foreign message that returned is next", a_foreign_message_that_returned},
    {"lanes_taken: no_local cursor", "a search in the lane of the cursor begins there", a_search_begins_at_the_cursor},
    {"lanes_taken: no_local head", "a search begins at the head of a lane", a_search_begins_at_the_head_of_a_lane},
    {"lanes_taken: no_local bits", "bits of lanes that are not there are passed", foreign_messages_of_few_lanes},
};
SUBJECT(CASES)
