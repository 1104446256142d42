// SPDX-License-Identifier: Apache-2.0
/* Cases of takes: what another actor does to a cell between the steps of the actor that takes it. The taker calls
 * sb_take itself. The cases write STAGED cells directly, since they do not test commits. */
#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_take.h"

#define OTHER 99u /* a connection that does not exist */
#define BYTES 64u
#define EVICTING {{100, -1, -1, 0, -1, -1}, 0}
#define REFUSING {{-1, 100, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}

static sb_taken taken;
static uint64_t token;
static sb_status status;

static uint64_t at(uint64_t number) { return keeper.q->base + number; }
static sb_leaf_ref leaf(void) {
  sb_leaf_ref ref;
  if (sb_ring_locate(t.b, NULL, &keeper.q->lanes[0].ring, at(0), &ref) != SB_OK) die("sb_ring_locate", 0);
  return ref;
}
static uint64_t word_of(uint64_t number) {
  sb_leaf_ref ref = leaf();
  return SB_LOAD(&sb_leaf_cell(&ref, at(number))->word, SB_SEQ_CST);
}
static void set_word(uint64_t number, uint64_t word) {
  sb_leaf_ref ref = leaf();
  SB_STORE(&sb_leaf_cell(&ref, at(number))->word, word, SB_SEQ_CST);
}
static bool marked(uint64_t number) { return sb_requeued_is_marked(t.b, &keeper.q->lanes[0].ring, at(number)); }
static void mark(uint64_t number) { sb_requeued_mark(t.b, &keeper.q->lanes[0].ring, at(number)); }
static bool names(uint64_t number) { /* whether the taker's holding does */
  sb_leaf_ref ref = leaf();
  const sb_holding_shm *h = sb_holding_at(t.b, token);
  return SB_LOAD(&h->what, SB_SEQ_CST) == sb_holding_what(SB_HOLD_CELL, one.q->slot, ref.slot) &&
         SB_LOAD(&h->where, SB_SEQ_CST) == at(number);
}
static void new_token(void) {
  if (sb_holding_take(one.c, &token) != SB_OK) die("sb_holding_take", 0);
}
/* What was taken is acknowledged; else the holding is given back. */
static uint64_t end_take(void) {
  if (status != SB_OK) {
    sb_holding_give(one.c, token);
    return 0;
  }
  (void)sb_dispose(one.q, token, SB_REASON_ACKED);
  return taken.position - at(0) + 1;
}
static void expect_counted(uint64_t messages) {
  const sb_queue_shm *q = keeper.q->shm;
  uint64_t counted = q->tracking != 0 ? messages : 0;
  expect(q->taken == counted && q->bytes_out == counted * BYTES, "taken are %d messages of %d bytes", (int)q->taken,
         (int)q->bytes_out);
}

typedef enum { OLDEST, AT, FOR_CONSUMER_AT, RETURNED_AT, METHODS } method;
static void take_first_by(method how) {
  new_token();
  switch (how) {
    case OLDEST: status = sb_take_oldest(one.q, SB_CELL_ACQUIRED, at(1), token, &taken); break;
    case AT: status = sb_take_at(one.q, at(0), SB_CELL_AVAILABLE, token, &taken); break;
    case FOR_CONSUMER_AT:
      status = sb_take_for_consumer_at(one.q, &one.q->lanes[0].head_leaf, at(0), false, token, &taken);
      break;
    default: status = sb_take_for_consumer_at(one.q, &one.q->lanes[0].head_leaf, at(0), true, token, &taken); break;
  }
}

/* ---- before the cell is taken ---- */

static void look_at_hints(void) {
  bool evicts = keeper.q->shm->settings[SB_SETTING_RING_SIZE] >= 0;
  expect(names(0), "the holding does not name the cell before it is taken");
  expect(keeper.q->shm->taken == (evicts ? 1u : 0u), "taken before are %d", (int)keeper.q->shm->taken);
  expect(keeper.q->shm->bytes_out == 0, "the bytes are counted before the second look");
}
static void counted_in_time(method how) {
  put_by(&three, 1);
  if (how == RETURNED_AT) mark(0);
  meanwhile("queue.take.announced", look_at_hints);
  take_first_by(how);
  afterwards();
  expect(status == SB_OK, "the status is %d", (int)status);
  expect_counted(1);
  expect(end_take() == 1, "another message was taken");
}
static void oldest_counted(void) { counted_in_time(OLDEST); }
static void place_counted(void) { counted_in_time(AT); }
static void consumer_counted(void) { counted_in_time(FOR_CONSUMER_AT); }
static void returned_counted(void) { counted_in_time(RETURNED_AT); }

/* ---- two that take ---- */

static void take_beside(void) { got = take(&two); }
static void one_of_two(method how) {
  put_by(&three, 1);
  put_by(&three, 2);
  if (how == RETURNED_AT) mark(0);
  meanwhile(ANYWHERE, take_beside);
  take_first_by(how);
  uint64_t mine = end_take();
  afterwards();
  expect(mine <= 1 && got == (mine == 1 ? 2 : 1), "one took %d, the other one %d", (int)mine, (int)got);
  expect_counted(mine == 1 ? 2 : 1);
  expect_left(mine == 1 ? 0 : 2);
}
static void oldest_beside(void) { one_of_two(OLDEST); }
static void place_beside(void) { one_of_two(AT); }
static void consumer_beside(void) { one_of_two(FOR_CONSUMER_AT); }
static void returned_beside(void) { one_of_two(RETURNED_AT); }

/* The one that came too late goes on to the next message. */
static void next_beside(void) {
  put_by(&three, 1);
  put_by(&three, 2);
  meanwhile(ANYWHERE, take_beside);
  new_token();
  status = sb_take_oldest(one.q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken);
  uint64_t mine = end_take();
  afterwards();
  expect(mine + got == 3 && mine != 0, "one took %d, the other one %d", (int)mine, (int)got);
  expect_counted(2);
  expect_left(0);
}
/* The bytes of what was taken meanwhile are not counted, not even for a moment. */
static void look_at_bytes(void) {
  expect(keeper.q->shm->bytes_out == BYTES, "%d bytes are counted", (int)keeper.q->shm->bytes_out);
}
static void take_then_look(void) {
  take_beside();
  meanwhile(ANYWHERE, look_at_bytes);
}
static void bytes_beside(void) {
  put_by(&three, 1);
  meanwhile("queue.take.announced", take_then_look);
  take_first_by(OLDEST);
  afterwards();
  expect(status == SB_EMPTY && got == 1, "both took it");
  (void)end_take();
  expect_counted(1);
}

/* ---- a message that came back ---- */

static void look_at_holding(void) { expect(names(0), "the holding does not name the cell when its bit is gone"); }
static void bit_after_holding(void) {
  put_by(&three, 1);
  mark(0);
  meanwhile("queue.take.cleared", look_at_holding);
  take_first_by(RETURNED_AT);
  afterwards();
  expect(end_take() == 1, "nothing was taken");
}
/* The bits were set before a message was put there: the taker looks a second time. */
static void put_first(void) { put_by(&three, 2); }
static void put_beside(void) {
  put_by(&three, 1);
  expect(take(&two) == 1, "nothing to take");
  mark(1);
  meanwhile("queue.take.cleared", put_first);
  new_token();
  status = sb_take_for_consumer_at(one.q, &one.q->lanes[0].head_leaf, at(1), true, token, &taken);
  afterwards();
  expect(end_take() == 2, "the message was not taken");
}
/* What another one has may come back: the bit that leads to it is set again. What has ended does not. */
static void hold_beside(void) { expect(get(&t, two.q, held_a, false) == 1, "nothing to hold"); }
static void held_beside(void) {
  put_by(&three, 1);
  mark(0);
  meanwhile("queue.take.announced", hold_beside);
  take_first_by(RETURNED_AT);
  afterwards();
  expect(status == SB_EMPTY, "both took it");
  expect(marked(0), "no bit leads to what is held");
  (void)end_take();
  expect(sb_queue_settle(two.q, held_a, SB_ACK) == SB_OK, "nothing was held");
}
static void ended_beside(void) {
  put_by(&three, 1);
  mark(0);
  meanwhile("queue.take.announced", take_beside);
  take_first_by(RETURNED_AT);
  afterwards();
  expect(status == SB_EMPTY, "both took it");
  expect(!marked(0), "a bit leads to what has ended");
  (void)end_take();
}
/* The page was used again: a word of another generation is not taken, nor marked. */
static uint64_t before;
static void use_again(void) {
  before = word_of(0);
  set_word(0, before + (UINT64_C(1) << 37));
}
static void used_again(const char *where) {
  put_by(&three, 1);
  mark(0);
  meanwhile(where, use_again);
  take_first_by(RETURNED_AT);
  afterwards();
  expect(status == SB_EMPTY, "a cell of another page was taken");
  expect(word_of(0) == before + (UINT64_C(1) << 37), "a cell of another page was changed");
  expect(!marked(0), "a cell of another page was marked");
  (void)end_take();
  set_word(0, before);
  expect_left(1);
}
static void used_again_cleared(void) { used_again("queue.take.cleared"); }
static void used_again_announced(void) { used_again("queue.take.announced"); }

/* ---- beside a commit ---- */

static uint64_t ready[2];
static void stage(unsigned number) {
  ready[number] = word_of(number);
  set_word(number, sb_cell_owned(SB_CELL_STAGED, sb_cell_slot(ready[number]), 0, OTHER, leaf().gen));
}
/* A commit is carried out, and then another one of the same producer. */
static void carry_out_both(void) {
  for (unsigned i = 0; i < 2; i++) set_word(i, ready[i]);
}
static void expect_in_order(void) {
  new_token();
  status = sb_take_oldest(one.q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken);
  uint64_t first = end_take();
  afterwards();
  expect(first <= 1, "message %d was taken first", (int)first);
  expect_left(first == 1 ? 2 : 12);
  SB_STORE(&keeper.q->shm->staged, 0, SB_SEQ_CST);
}
static void staged_before(void) {
  for (unsigned i = 0; i < 2; i++) {
    put_by(&three, i + 1);
    stage(i);
    mark(i);
  }
  SB_STORE(&keeper.q->shm->staged, 1, SB_SEQ_CST);
  one.q->lanes[0].cursor = at(2);
  meanwhile(ANYWHERE, carry_out_both);
  expect_in_order();
}
/* The same where the taker has just passed what is staged. */
static void carry_out_and_put(void) {
  set_word(0, ready[0]);
  put_by(&three, 2);
}
static void staged_at_cursor(void) {
  put_by(&three, 1);
  stage(0);
  SB_STORE(&keeper.q->shm->staged, 1, SB_SEQ_CST);
  meanwhile(ANYWHERE, carry_out_and_put);
  expect_in_order();
}

/* ---- beside a put ---- */

static bool raised;
static void put_seeing_taken(void) {
  raised = keeper.q->shm->taken != 0;
  put_by(&three, 1);
}
/* A put that saw `taken` raised evicted nothing: the take in vain looks again, and takes what was put. */
static void empty_beside_put(void) {
  raised = false;
  meanwhile(ANYWHERE, put_seeing_taken);
  new_token();
  status = sb_take_oldest(one.q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken);
  expect(!raised || status == SB_OK, "what was put beside the take was not taken");
  uint64_t first = end_take();
  afterwards();
  expect_left(first == 1 ? 0 : 1);
}

static const test_case CASES[] = {
    {"oldest counted", "the oldest is counted before its cell is taken, in a queue that evicts", EVICTING,
     oldest_counted},
    {"oldest counted after", "the same after it, in a queue that refuses", REFUSING, oldest_counted},
    {"place counted", "what is removed from its place is counted before, in a queue that evicts", EVICTING,
     place_counted},
    {"place counted after", "the same after it, in a queue that refuses", REFUSING, place_counted},
    {"consumer counted", "what a consumer takes from its place is counted before, in a queue that evicts", EVICTING,
     consumer_counted},
    {"consumer counted after", "the same after it, in a queue that refuses", REFUSING, consumer_counted},
    {"returned counted", "what came back is counted before it is taken, in a queue that evicts", EVICTING,
     returned_counted},
    {"returned counted after", "the same after it, in a queue that refuses", REFUSING, returned_counted},
    {"oldest beside", "of two that take the oldest one gets it, and it is counted once", EVICTING, oldest_beside},
    {"place beside", "the same where one removes it from its place", EVICTING, place_beside},
    {"consumer beside", "the same where one takes it from its place", REFUSING, consumer_beside},
    {"returned beside", "the same where it came back", EVICTING, returned_beside},
    {"next beside", "an actor that comes too late takes the next message", EVICTING, next_beside},
    {"bytes beside", "bytes of what another one took are not counted a second time", EVICTING, bytes_beside},
    {"bit after holding", "the holding names a message that came back before its bit goes", FREELY, bit_after_holding},
    {"put beside", "a message that is put when the bit goes is taken", FREELY, put_beside},
    {"held beside", "the bit of what another one holds is set again", FREELY, held_beside},
    {"ended beside", "the bit of what has ended is not set again", FREELY, ended_beside},
    {"used again when cleared", "a cell of a page that was used again is left alone", FREELY, used_again_cleared},
    {"used again when announced", "the same after the second look", FREELY, used_again_announced},
    {"staged before", "what was committed first is taken first, among what came back", FREELY, staged_before},
    {"staged at the cursor", "what was committed first is taken before what was put afterwards", FREELY,
     staged_at_cursor},
    {"empty beside a put", "a take in vain takes what was put beside it, in a queue that evicts", EVICTING,
     empty_beside_put},
};
const subject TAKE_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
