// SPDX-License-Identifier: Apache-2.0
/* sb_ledger: the owner of a ledger, its intent, and the sums over all ledgers of a queue. The queue belongs to the
 * broker; the cases create its ledgers. */
#include "sb_ledger.h"

#include <string.h>

#include "calls.h"
#include "cases.h"
#include "meanwhile.h"
#include "sb_queue.h"
#include "sb_slab.h"
#include "system.h"

#define ANOTHER 55u /* connections */
#define THIRD 56u

static sb_queue *q;
static sb_ledger_shm *own;
static uint64_t token;

/* A queue that no connection has open. */
static void make_queue(void) {
  if (declare(&t, "q", (sb_settings)FREELY) != SB_OK) die("sb_queue_declare", 0);
  q = open_queue(&t, "q");
  own = q->ledger;
}
static uint64_t word_of(unsigned connection, uint64_t epoch) { return connection | SB_FIELD(epoch, 12); }
static void set_owner(sb_ledger_shm *l, unsigned connection) {
  SB_STORE(&l->owner, word_of(connection, 7), SB_RELAXED);
}
static void set_hinting(sb_ledger_shm *l, uint64_t raised, uint64_t depth) {
  SB_STORE(&l->hinting, SB_FIELD(raised, 32) | depth, SB_RELAXED);
}
static uint64_t what_of(uint64_t of) { return SB_LOAD(&sb_holding_at(t.b, of)->what, SB_RELAXED); }
static uint64_t next_holding(void) {
  uint64_t next;
  if (sb_holding_take(t.c, &next) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(t.c, next);
  return next;
}
static sb_ledger_shm *one_more(void) {
  sb_ledger_shm *l;
  expect_is(sb_ledger_adopt(t.c, q->slot, &l, &token), SB_OK, "the status");
  sb_ledger_start(l);
  return l;
}

static void expect_adopted(sb_ledger_shm *l, uint64_t epoch) {
  uint32_t slot = sb_slot_of(t.b, l);
  expect_is(SB_LOAD(&l->owner, SB_RELAXED), word_of(t.c->id, epoch), "the owner");
  expect_is(SB_LOAD(&l->holding, SB_RELAXED), SB_FIELD(epoch, 32), "what it holds");
  expect_is(SB_LOAD(&l->hinting, SB_RELAXED) & SB_HINTING_DEPTH, 0, "its depth");
  expect_is(what_of(token), sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), "the holding");
  expect_is(SB_LOAD(&sb_holding_at(t.b, token)->where, SB_RELAXED), slot, "where it is");
}
/* The first of a queue, in a slot that had something else before; another one is added in front. */
static void a_new_ledger(void) {
  make_queue();
  sb_ledger_shm *waste = one_more();
  memset(waste, 0xff, sizeof *waste);
  SB_STORE(&waste->next, sb_slot_of(t.b, own), SB_RELAXED);
  set_owner(waste, ANOTHER);
  SB_STORE(&q->shm->ledgers, sb_slot_of(t.b, own), SB_RELAXED); /* as if it had gone */
  sb_slab_free_now(t.b, sb_slot_of(t.b, waste));
  sb_slab_return_cache(t.c);
  sb_ledger_shm *l = one_more();
  expect(l != own, "a ledger that has an owner was adopted");
  expect_adopted(l, 1);
  uint32_t slot = sb_slot_of(t.b, l);
  expect_is(SB_LOAD(&q->shm->ledgers, SB_RELAXED), slot, "the first ledger");
  expect_is(SB_LOAD(&l->next, SB_RELAXED), sb_slot_of(t.b, own), "the next one");
  expect_is(SB_LOAD(&l->queue, SB_RELAXED), q->slot, "its queue");
  expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)), SB_SLOT_PUBLISHED, "its slot");
  for (unsigned i = 0; i < SB_COUNTERS; i++) expect_is(l->counters[i], 0, "a counter");
  expect_is(l->kind | l->bytes | l->target_ledger, 0, "its intent");
}
/* Its counters go on; what it held, and the depth its owner died at, do not. */
static void a_ledger_that_is_free(void) {
  make_queue();
  sb_ledger_shm *l = one_more();
  SB_STORE(&l->owner, word_of(0, 7), SB_RELAXED);
  SB_STORE(&l->holding, SB_FIELD(7, 32) | 5, SB_RELAXED);
  SB_STORE(&l->counters[SB_COUNT_ACKED], 9, SB_RELAXED);
  set_hinting(l, 3, 2);
  expect(one_more() == l, "another ledger was adopted");
  expect_adopted(l, 8);
  expect_is(l->counters[SB_COUNT_ACKED], 9, "its counter");
  expect_is(l->hinting >> 32, 3, "how often it raised hints");
  sb_ledger_leave(t.c, l, token);
  expect_is(SB_LOAD(&l->owner, SB_RELAXED), word_of(0, 8), "the owner when it was left");
  expect_is(what_of(token), SB_HOLD_NONE, "the holding");
}
static void a_ledger_is_left(void) {
  make_queue();
  sb_ledger_shm *l = one_more();
  set_hinting(l, 3, 2);
  sb_ledger_leave(t.c, l, token);
  expect_is(l->hinting, SB_FIELD(3, 32), "the depth when it was left");
  l = one_more();
  set_owner(l, ANOTHER);
  set_hinting(l, 3, 2);
  sb_ledger_leave(t.c, l, token);
  expect_is(SB_LOAD(&l->owner, SB_RELAXED), word_of(ANOTHER, 7), "another owner");
  expect_is(l->hinting, SB_FIELD(3, 32) | 2, "another one's depth");
  expect_is(what_of(token), SB_HOLD_NONE, "the holding");
}
static void the_ledger_of_a_dead_one(void) {
  make_queue();
  sb_ledger_shm *l = one_more();
  set_owner(l, ANOTHER);
  set_hinting(l, 3, 2);
  uint64_t next = next_holding();
  expect_is(sb_ledger_inherit(t.c, q->slot, l, THIRD, &token), SB_SETTLED, "the status of one who does not own it");
  expect_is(next_holding(), next, "the next holding");
  expect_is(sb_ledger_inherit(t.c, q->slot, l, ANOTHER, &token), SB_OK, "the status");
  expect_adopted(l, 8);
}
/* What others read of memory that was damaged ends. */
static void damaged_ledgers(void) {
  sb_ledger_shm *l;
  make_queue();
  uint64_t next = next_holding();
  SB_STORE(&own->next, sb_slot_of(t.b, own), SB_RELAXED); /* it bites its own tail */
  expect_is(sb_ledger_adopt(t.c, q->slot, &l, &token), SB_CORRUPT, "the status of a ring");
  SB_STORE(&own->counters[SB_COUNT_ACKED], 4, SB_RELAXED);
  expect(sb_ledger_sum(t.b, q->shm, SB_COUNT_ACKED) >= 4, "the sum of a ring is too small");
  expect_is(sb_ledger_holding(t.b, q->shm), 0, "what a ring holds");
  expect_is(sb_ledger_changes(t.b, q->shm, NULL).depth, 0, "the depth of a ring");
  expect(sb_ledger_of(t.b, q->shm, ANOTHER) == NULL, "a ring has another one's ledger");
  SB_STORE(&own->next, q->slot, SB_RELAXED); /* that is no ledger */
  expect_is(sb_ledger_adopt(t.c, q->slot, &l, &token), SB_CORRUPT, "the status of what is no ledger");
  expect_is(next_holding(), next, "the next holding");
  expect_is(sb_ledger_sum(t.b, q->shm, SB_COUNT_ACKED), 4, "the sum up to what is no ledger");
}
static void no_chunk(void) {
  sb_slab_return_cache(t.c);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    grow_to(i);
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
}
static void no_memory_for_a_ledger(void) {
  uint32_t slot;
  uint64_t gen, of_slot;
  sb_ledger_shm *l = NULL;
  make_queue();
  no_chunk();
  if (sb_holding_take(t.c, &of_slot) != SB_OK) die("sb_holding_take", 0);
  while (sb_slab_alloc(t.c, sb_class_of_kind(t.b, SB_KIND_LEDGER), of_slot, &slot, &gen) == SB_OK) {
  }
  uint64_t next = next_holding();
  expect_is(sb_ledger_adopt(t.c, q->slot, &l, &token), SB_NO_MEMORY, "the status without a slot");
  expect_is(next_holding(), next, "the next holding");
  expect(l == NULL, "there is a ledger");
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  set_owner(own, 0);
  expect_is(sb_ledger_adopt(t.c, q->slot, &l, &token), SB_NO_MEMORY, "the status without a holding");
  expect_is(sb_ledger_inherit(t.c, q->slot, own, 0, &token), SB_NO_MEMORY, "the status of a reaper without a holding");
  expect_is(SB_LOAD(&own->owner, SB_RELAXED), word_of(0, 7), "the owner");
}

/* ---- together ---- */

static sb_ledger_shm *three[3];
static void make_three(void) {
  make_queue();
  for (unsigned i = 0; i < 3; i++) {
    three[i] = i == 0 ? own : one_more();
    set_owner(three[i], 0);
    SB_STORE(&three[i]->owner, word_of(ANOTHER + i, 7), SB_RELAXED);
  }
}
static void sums(void) {
  make_three();
  for (unsigned i = 0; i < 3; i++) {
    SB_STORE(&three[i]->counters[SB_COUNT_ACKED], 1u << i, SB_RELAXED);
    SB_STORE(&three[i]->holding, SB_FIELD(9, 32) | 10u << i, SB_RELAXED);
  }
  expect_is(sb_ledger_sum(t.b, q->shm, SB_COUNT_ACKED), 7, "the sum of a counter");
  expect_is(sb_ledger_sum(t.b, q->shm, SB_COUNT_EXPIRED), 0, "the sum of another");
  expect_is(sb_ledger_holding(t.b, q->shm), 70, "what is held");
  for (unsigned i = 0; i < 3; i++)
    expect(sb_ledger_of(t.b, q->shm, ANOTHER + i) == three[i], "ledger %u is another one's", i);
  expect(sb_ledger_of(t.b, q->shm, 99) == NULL, "somebody has a ledger who has none");
  expect(sb_ledger_owned(t.b, q->shm), "nobody owns one");
  set_owner(three[1], 0);
  set_owner(three[2], 0);
  expect(sb_ledger_owned(t.b, q->shm), "nobody owns the last one");
  set_owner(three[0], 0);
  expect(!sb_ledger_owned(t.b, q->shm), "somebody owns one");
}
static void hints_that_rest(void) {
  make_three();
  for (unsigned i = 0; i < 3; i++) set_hinting(three[i], 10 + i, 0);
  sb_changes before = sb_ledger_changes(t.b, q->shm, NULL);
  expect_is(before.depth, 0, "the depth of hints that rest");
  expect_is(before.raised, 33, "how often they were raised");
  for (unsigned i = 0; i < 3; i++) {
    set_hinting(three[i], 10 + i, 1);
    sb_changes now = sb_ledger_changes(t.b, q->shm, NULL);
    expect_is(now.depth, 1, "the depth while one ledger changes them");
    expect(!sb_changes_same(&before, &now), "nothing seems to have changed");
    set_hinting(three[i], 10 + i, 0);
    now = sb_ledger_changes(t.b, q->shm, NULL);
    expect(sb_changes_same(&before, &now), "something seems to have changed");
    set_hinting(three[i], 11 + i, 0);
    now = sb_ledger_changes(t.b, q->shm, NULL);
    expect(!sb_changes_same(&before, &now), "a change that has ended is not seen");
    set_hinting(three[i], 10 + i, 0);
  }
}
/* What is half made: a reservation of room for 5 bytes and one for 6, a take, and both a take and a reservation. */
static void changes_that_are_half_made(void) {
  make_three();
  for (unsigned i = 0; i < 2; i++) sb_ledger_reserve(three[0], 1, 5 + i);
  set_hinting(three[0], 7, 2);
  sb_changes before = sb_ledger_changes(t.b, q->shm, NULL);
  expect_is(before.depth, 2, "the depth of two reservations");
  expect_is(before.unknown_bytes, 0, "how many bytes are unknown beside reservations");
  expect_is(before.reserved_bytes, 11, "the bytes of two reservations");
  set_hinting(three[1], 7, 1);
  sb_changes now = sb_ledger_changes(t.b, q->shm, NULL);
  expect_is(now.unknown_bytes, 1, "how many bytes are unknown beside a take");
  expect(!sb_changes_same(&before, &now), "a take is not seen");
  set_hinting(three[1], 7, 0);
  sb_ledger_reserve(three[1], 1, 3); /* it has begun to reserve, and changes no hint yet */
  set_hinting(three[2], 7, 1);
  expect_is(sb_ledger_changes(t.b, q->shm, NULL).unknown_bytes, 1, "a reservation of another one hides a take");
  set_hinting(three[2], 7, 3);
  sb_ledger_reserve(three[2], 1, 1);
  expect_is(sb_ledger_changes(t.b, q->shm, NULL).unknown_bytes, 2, "a reservation of its own hides a take");
  expect_is(sb_ledger_changes(t.b, q->shm, NULL).reserved_bytes, 15, "all bytes");
  now = sb_ledger_changes(t.b, q->shm, three[2]);
  expect_is(now.depth, 2, "the depth without the last ledger");
  expect_is(now.raised, 14, "how often the others were raised");
  expect_is(now.unknown_bytes, 0, "how many bytes are unknown without the last ledger");
  expect_is(now.reserved_bytes, 14, "the bytes without the last ledger");
  sb_ledger_reserve(three[0], -1, 5);
  sb_ledger_reserve(three[0], -1, 6);
  expect_is(three[0]->admitting, 0, "what is reserved in the end");
  sb_ledger_hinting_ended(three[2]);
  expect_is(three[2]->admitting, 0, "what somebody reserves who is gone");
}
static bool is_third(sb_broker *b, unsigned connection) {
  (void)b;
  return connection == THIRD;
}
static bool is_any(sb_broker *b, unsigned connection) {
  (void)b;
  (void)connection;
  return true;
}
static bool is_nobody(sb_broker *b, unsigned connection) {
  (void)b;
  return connection == 0;
}
/* Who is in the middle of a change, and stays there; not the one who asks. */
static void who_is_stuck(void) {
  make_three();
  for (unsigned i = 0; i < 3; i++) set_hinting(three[i], 4, 0);
  expect(sb_ledger_any_owner(t.b, q->shm, is_third), "the third has no ledger");
  expect(!sb_ledger_any_owner(t.b, q->shm, is_nobody), "nobody has a ledger");
  expect_is(sb_ledger_stuck(t.b, q->shm, 1, is_third), 0, "who is stuck when all rest");
  set_hinting(three[0], 4, 1);
  expect_is(sb_ledger_stuck(t.b, q->shm, 1, is_third), 0, "who is stuck when it is another one");
  set_hinting(three[1], 4, 1);
  expect_is(sb_ledger_stuck(t.b, q->shm, 1, is_third), THIRD, "who is stuck");
  expect_is(sb_ledger_stuck(t.b, q->shm, THIRD, is_third), 0, "who is stuck but oneself");
  set_owner(three[1], 0);
  expect(!sb_ledger_any_owner(t.b, q->shm, is_nobody), "a ledger that is free has an owner");
  expect_is(sb_ledger_stuck(t.b, q->shm, 1, is_any), ANOTHER, "who is stuck, but nobody");
}

/* ---- intents ---- */

static void an_intent_says_what_is_done(void) {
  static sb_ledger_shm l;
  for (unsigned i = 0; i < SB_COUNTERS; i++) SB_STORE(&l.counters[i], 100 + i, SB_RELAXED);
  SB_STORE(&l.kind, SB_FIELD(6, 16), SB_RELAXED);
  sb_ledger_begin_intent(&l, 3, SB_COUNT_ACKED, 11, 12, 13, 14);
  expect_is(l.kind, 3 | SB_FIELD(SB_COUNT_ACKED, 8) | SB_FIELD(7, 16), "the intent");
  expect_is(l.position, 11, "its position");
  expect_is(l.slot, 12, "its slot");
  expect_is(l.gen, 13, "its generation");
  expect_is(l.bytes, 14, "its bytes");
  expect_is(l.before, 100 + SB_COUNT_ACKED, "the counter before");
  expect_is(l.before_bytes, 100 + SB_COUNT_REMOVED_BYTES, "the bytes before");
  sb_ledger_end_intent(&l);
  expect_is(l.kind, SB_FIELD(7, 16), "no intent");
  sb_ledger_begin_intent(&l, 2, SB_COUNT_ADDED, 1, 2, 3, 4);
  expect_is(l.kind, 2 | SB_FIELD(SB_COUNT_ADDED, 8) | SB_FIELD(8, 16), "the next intent");
  expect_is(l.before_bytes, 100 + SB_COUNT_ADDED_BYTES, "the bytes before an enqueue");
}
static void how_deep_hints_are(void) {
  static sb_ledger_shm l;
  sb_ledger_hinting(&l, 1);
  expect_is(l.hinting, SB_FIELD(1, 32) | 1, "once");
  sb_ledger_hinting(&l, 1);
  expect_is(l.hinting, SB_FIELD(2, 32) | 2, "twice");
  sb_ledger_hinting(&l, -1);
  expect_is(l.hinting, SB_FIELD(2, 32) | 1, "one of two");
  sb_ledger_hinting_ended(&l);
  expect_is(l.hinting, SB_FIELD(2, 32), "the end of all");
  sb_ledger_count(&l, SB_COUNT_ACKED, 3);
  sb_ledger_count(&l, SB_COUNT_ACKED, 2);
  expect_is(l.counters[SB_COUNT_ACKED], 5, "a counter");
  SB_STORE(&l.holding, SB_FIELD(9, 32) | 1, SB_RELAXED);
  sb_ledger_hold(&l, 2);
  expect_is(l.holding, SB_FIELD(9, 32) | 3, "two more");
  sb_ledger_hold(&l, -3);
  expect_is(l.holding, SB_FIELD(9, 32), "three less");
}

/* ---- what other connections do meanwhile ---- */

static sb_ledger_shm *raced;
static void another_one_takes_it(void) { set_owner(raced, ANOTHER); }
static void a_ledger_that_another_one_takes(void) {
  make_queue();
  raced = one_more();
  sb_ledger_leave(t.c, raced, token);
  meanwhile(&raced->owner, BEFORE_CAS, 1, another_one_takes_it);
  sb_ledger_shm *l = one_more();
  if (!has_acted()) return;
  expect(l != raced, "a ledger was adopted twice");
  expect_is(raced->owner, word_of(ANOTHER, 7), "the owner of the ledger of another connection");
  expect_adopted(l, 1);
  uint64_t next = next_holding();
  set_owner(raced, THIRD);
  meanwhile(&raced->owner, BEFORE_CAS, 1, another_one_takes_it);
  sb_status status = sb_ledger_inherit(t.c, q->slot, raced, THIRD, &token);
  if (!has_acted()) return;
  expect_is(status, SB_SETTLED, "the status of an heir that comes late");
  expect_is(next_holding(), next, "the next holding");
}
static void another_one_is_linked(void) {
  SB_STORE(&raced->next, sb_slot_of(t.b, own), SB_RELAXED);
  SB_STORE(&q->shm->ledgers, sb_slot_of(t.b, raced), SB_RELAXED);
}
static void a_ledger_is_linked_meanwhile(void) {
  make_queue();
  raced = one_more();
  SB_STORE(&q->shm->ledgers, sb_slot_of(t.b, own), SB_RELAXED); /* as if it was not linked yet */
  meanwhile(&q->shm->ledgers, BEFORE_CAS, 1, another_one_is_linked);
  sb_ledger_shm *l = one_more();
  if (!has_acted()) return;
  expect_is(q->shm->ledgers, sb_slot_of(t.b, l), "the first ledger");
  expect_is(l->next, sb_slot_of(t.b, raced), "the second ledger");
}
static void go_on(void) {
  if (says.pauses == 4) set_hinting(three[1], 5, 1);
}
/* A connection that goes on while it is looked at is not stuck. */
static void an_owner_that_goes_on(void) {
  make_three();
  answer_for_the_system();
  for (unsigned i = 0; i < 3; i++) set_hinting(three[i], 4, 0);
  set_hinting(three[1], 4, 1);
  says.paused = go_on;
  expect_is(sb_ledger_stuck(t.b, q->shm, 1, is_third), 0, "the connection that is stuck, of those that go on");
  expect_is(says.pauses, 4, "how often it was looked at");
  expect_is(sb_ledger_stuck(t.b, q->shm, 1, is_third), THIRD, "the connection that is stuck");
}

static const test_case CASES[] = {
    {"ledger: new", "a new ledger is empty, its owner's, and the first of its queue", a_new_ledger},
    {"ledger: free", "a ledger that is free goes on with its counters", a_ledger_that_is_free},
    {"ledger: left", "who leaves a ledger leaves it free, if it is his", a_ledger_is_left},
    {"ledger: inherited", "a reaper takes the ledger of a dead owner", the_ledger_of_a_dead_one},
    {"ledger: damaged", "a row that was damaged ends", damaged_ledgers},
    {"ledger: no memory", "without memory nothing is adopted, or kept", no_memory_for_a_ledger},
    {"ledger: sums", "the accounts of a queue are added up", sums},
    {"ledger: rest", "hints rest while nobody changes them", hints_that_rest},
    {"ledger: half made", "changes that are half made are added up", changes_that_are_half_made},
    {"ledger: stuck", "who is stuck is in the middle of a change, and another one", who_is_stuck},
    {"ledger: intent", "an intent has all that its repair needs", an_intent_says_what_is_done},
    {"ledger: hinting", "changes of hints nest, and are counted", how_deep_hints_are},
    {"ledger: race", "a ledger is taken by one connection", a_ledger_that_another_one_takes},
    {"ledger: linked", "two ledgers that are linked at one time are both linked", a_ledger_is_linked_meanwhile},
    {"ledger: goes on", "a connection that goes on is not stuck", an_owner_that_goes_on},
};
SUBJECT(CASES)
