// SPDX-License-Identifier: Apache-2.0
/* sb_park, and what parks a message: the reasons of sb_dispose in a queue with dead letters, and the delay and the last
 * delivery of sb_release. */
#include "sb_park.h"

#include "calls.h"
#include "cells.h"
#include "meanwhile.h"
#include "sb_limits.h"
#include "sb_release.h"
#include "sb_schedule.h"
#include "sb_wait.h"
#include "surroundings.h"
#include "system.h"

#define WITHOUT ((sb_settings)FREELY)
#define DEADLY ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS})
#define DEADLY_WITH_LIMITS ((sb_settings){{-1, 100, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS})
/* max_delivery_attempts; the three of the redelivery delay, in milliseconds and thousandths. */
#define ATTEMPTS(n, flags) ((sb_settings){{-1, -1, -1, 0, -1, -1, 0, (n), 0, 1000, -1}, (flags)})
#define DELAYS(delay, times, most) ((sb_settings){{-1, -1, -1, 0, -1, -1, 0, -1, (delay), (times), (most)}, 0})
#define MS UINT64_C(1000000)
#define LATEST_MS ((INT64_C(1) << 38) - 1) /* of the clock: the side record has no room for more */

static sb_queue *q;
static uint64_t token, entries;
static sb_taken taken;

static void begin(sb_settings settings, unsigned messages) {
  q = begin_queue("q", settings, messages);
  note_rest(q);
  entries = q->shm->schedule.tail;
}
static void take_as(unsigned state) {
  token = new_token();
  if (sb_take_oldest(q, state, SB_ANY_POSITION, token, &taken) != SB_OK) die("sb_take_oldest", (int)state);
}
static void take(void) { take_as(SB_CELL_ACQUIRED); }
static uint64_t side_of(uint64_t number) { return SB_LOAD(&cell(number)->side, SB_RELAXED); }
static void set_side(uint64_t number, unsigned count, uint64_t flags) {
  SB_STORE(&cell(number)->side, sb_side_word(taken.gen, count, flags), SB_RELAXED);
}
static uint64_t count_of(unsigned counter) { return q->ledger->counters[counter]; }
static sb_queue_facts facts(void) {
  sb_queue_facts f;
  if (sb_queue_describe(t.c, q->slot, &f) != SB_OK) die("sb_queue_describe", 0);
  return f;
}
static void expect_counts(uint64_t ready, uint64_t delivering, uint64_t scheduled, const char *what) {
  sb_queue_facts f = facts();
  expect(f.ready == ready && f.delivering == delivering && f.scheduled == scheduled,
         "%s: %d ready, %d delivering, %d scheduled", what, (int)f.ready, (int)f.delivering, (int)f.scheduled);
}
/* The queue has a schedule entry for that cell, the newest one. */
static void expect_entry(uint64_t number) {
  sb_ring r;
  sb_leaf_ref leaf;
  expect_is(q->shm->schedule.tail, ++entries, "the entries of the schedule");
  if (!sb_ring_open(t.b, q->slot, SB_RING_SCHEDULE, &r) || sb_ring_locate(t.b, NULL, &r, entries - 1, &leaf) != SB_OK)
    die("schedule", 0);
  expect_is(SB_LOAD(&sb_leaf_cell(&leaf, entries - 1)->word, SB_RELAXED), SB_CELL_ENTRY | SB_FIELD(at(number), 4),
            "the entry of the schedule");
  expect_is(q->shm->timers_lost, 0, "the timers that are lost");
}
static void expect_parked(uint64_t number, unsigned count, uint64_t flags, const char *what) {
  expect(word_of(number) == cell_word(number, SB_CELL_SCHEDULED, 0), "%s: its cell is another one", what);
  expect(side_of(number) == sb_side_word(taken.gen, count, flags), "%s: its side record is %llx", what,
         (unsigned long long)side_of(number));
  expect(held_by(token) == 0, "%s: it is held", what);
  expect((q->ledger->kind & 0xff) == SB_INTENT_NONE, "%s: the intent is there", what);
  expect_entry(number);
}

/* ---- dead messages ---- */

static const struct {
  sb_reason reason;
  sb_why why;
} DIES[] = {{SB_REASON_REJECTED, SB_WHY_REJECTED},
            {SB_REASON_EXPIRED, SB_WHY_EXPIRED},
            {SB_REASON_EVICTED, SB_WHY_MAX_LENGTH},
            {SB_REASON_EXHAUSTED, SB_WHY_DELIVERY_LIMIT}};
#define WAYS_TO_DIE (sizeof DIES / sizeof DIES[0])

static void reasons_that_park(sb_settings settings, unsigned state) {
  begin(settings, WAYS_TO_DIE);
  for (unsigned i = 0; i < WAYS_TO_DIE; i++) {
    uint64_t flags = i % 2 == 0 ? 0 : SB_SIDE_REDELIVERED;
    take_as(state);
    set_side(i, i + 3, flags);
    expect_is(sb_dispose(q, token, DIES[i].reason), SB_OK, "the status");
    expect_parked(i, i + 3, flags | sb_side_why(DIES[i].why), "a message that dies");
    expect_is(sb_dispose(q, token, DIES[i].reason), SB_SETTLED, "the status of a second time");
    expect_counts(WAYS_TO_DIE - 1 - i, 0, i + 1, "after a death");
    expect_is(count_of(SB_COUNT_SCHEDULED), i + 1, "what is scheduled");
    expect_is((uint32_t)q->ledger->holding, 0, "what is held");
  }
  for (unsigned k = SB_COUNT_ACKED; k <= SB_COUNT_REMOVED_BYTES; k++) expect_is(count_of(k), 0, "what went");
  expect_is(facts().bytes, WAYS_TO_DIE * BYTES, "the bytes in the queue");
  expect_rest("the deaths of messages");
}
static void acquired_messages_park(void) { reasons_that_park(DEADLY, SB_CELL_ACQUIRED); }
static void removed_messages_park(void) { reasons_that_park(DEADLY_WITH_LIMITS, SB_CELL_REMOVING); }

static void reasons_that_end_anyway(void) {
  const sb_reason ends[] = {SB_REASON_ACKED,      SB_REASON_KILLED,      SB_REASON_PURGED,  SB_REASON_REPLACED,
                            SB_REASON_UNREADABLE, SB_REASON_CARRIED_OUT, SB_REASON_GIVEN_UP};
  unsigned count = sizeof ends / sizeof ends[0];
  begin(DEADLY, count);
  for (unsigned i = 0; i < count; i++) {
    uint64_t before = count_of(sb_reason_counter(ends[i]));
    take();
    expect_is(sb_dispose(q, token, ends[i]), SB_OK, "the status");
    expect_is(word_of(i), cell_word(i, SB_CELL_TOMBSTONE, 0), "the cell");
    expect_is(count_of(sb_reason_counter(ends[i])), before + 1, "the counter of the reason");
  }
  expect_is(count_of(SB_COUNT_SCHEDULED), 0, "what is scheduled");
  expect_is(q->shm->schedule.tail, entries, "the entries of the schedule");
  expect_rest("the ends of messages");
}
/* A queue without dead letters, and one that was deleted meanwhile. */
static void reasons_that_end_there(sb_settings settings, bool closed) {
  begin(settings, WAYS_TO_DIE);
  for (unsigned i = 0; i < WAYS_TO_DIE; i++) {
    take();
    uint64_t before = count_of(sb_reason_counter(DIES[i].reason));
    if (closed) mark_closed(q);
    expect_is(sb_dispose(q, token, DIES[i].reason), SB_OK, "the status");
    if (closed) SB_STORE(&q->shm->state, q->state, SB_RELAXED);
    expect_is(word_of(i), cell_word(i, SB_CELL_TOMBSTONE, 0), "the cell");
    expect_is(count_of(sb_reason_counter(DIES[i].reason)), before + 1, "the counter of the reason");
  }
  expect_counts(0, 0, 0, "where nothing is parked");
  expect_rest("the ends of messages");
}
static void without_dead_letters(void) { reasons_that_end_there(WITHOUT, false); }
static void in_a_closed_queue(void) { reasons_that_end_there(DEADLY, true); }

static void look_before_the_flip(void) {
  const sb_ledger_shm *l = q->ledger;
  expect_is(word_of(0), cell_word(0, SB_CELL_ACQUIRED, t.c->id), "the cell before the flip");
  expect_is(side_of(0), sb_side_word(taken.gen, 1, sb_side_why(SB_WHY_REJECTED)), "the side record before the flip");
  expect_is(l->kind & 0xff, SB_INTENT_PARK, "the intent");
  expect_is(SB_BITS(l->kind, 8, 8), SB_COUNT_SCHEDULED, "its counter");
  expect_is(l->position, at(0), "its position");
  expect_is(l->slot, slot_of(0), "its slot");
  expect_is(l->before, 0, "the counter before");
  expect_is(count_of(SB_COUNT_SCHEDULED), 0, "what is scheduled before the flip");
}
static void the_intent_comes_first(void) {
  begin(DEADLY, 1);
  take();
  meanwhile(&cell(0)->word, BEFORE_CAS, 1, look_before_the_flip);
  expect_is(sb_park_dead(q, token, SB_WHY_REJECTED), SB_OK, "the status");
  (void)has_acted();
  expect_parked(0, 1, sb_side_why(SB_WHY_REJECTED), "a message that dies");
}
static void look_before_the_count(void) {
  expect_is(word_of(0), cell_word(0, SB_CELL_SCHEDULED, 0), "the cell before it is counted");
  expect_is(q->ledger->kind & 0xff, SB_INTENT_PARK, "the intent before it is counted");
}
static void the_count_comes_after(void) {
  begin(DEADLY, 1);
  take();
  meanwhile(&q->ledger->counters[SB_COUNT_SCHEDULED], BEFORE_STORE, 1, look_before_the_count);
  expect_is(sb_park_dead(q, token, SB_WHY_REJECTED), SB_OK, "the status");
  (void)has_acted();
}
/* Another reaper of the same dead connection was faster. */
static void flip_first(void) { set_cell(0, SB_CELL_SCHEDULED, 0); }
static void beside_another_reaper(void) {
  if (!has_steps()) return;
  begin(DEADLY, 1);
  take();
  sb_leaf_ref leaf = leaf_of(0);
  meanwhile(&cell(0)->word, BEFORE_CAS, 1, flip_first);
  sb_park_for(q, &leaf, at(0), word_of(0), sb_side_word(taken.gen, 1, sb_side_why(SB_WHY_EXPIRED)));
  expect(has_acted(), "the cell was not flipped");
  expect_is(count_of(SB_COUNT_SCHEDULED), 0, "what is scheduled");
  expect_is(q->shm->schedule.tail, entries, "the entries of the schedule");
  expect_is(q->ledger->kind & 0xff, SB_INTENT_NONE, "the intent");
}
static void the_housekeeper_is_rung(void) {
  begin(DEADLY, 2);
  sb_queue *elsewhere = make_queue("elsewhere", WITHOUT);
  uint32_t keeper = wait_at(elsewhere, FOR_ROOM, 0);
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, keeper))->wake;
  SB_STORE(&t.b->header->housekeeper_waiter, keeper, SB_RELAXED);
  for (unsigned i = 0; i < 2; i++) {
    uint32_t armed = sb_wake_arm(wake);
    take();
    expect_is(*wake, armed, "the housekeeper's word before");
    expect_is(i == 0 ? sb_park_dead(q, token, SB_WHY_REJECTED) : sb_park_delayed(q, token, 1, sb_now_ns()), SB_OK,
              "the status");
    expect(*wake != armed, "the housekeeper is not told of message %u", i);
  }
}
static void a_holding_of_nothing(void) {
  begin(DEADLY, 1);
  token = new_token();
  expect_is(sb_park_dead(q, token, SB_WHY_REJECTED), SB_SETTLED, "the status of a dead one");
  expect_is(sb_park_delayed(q, token, 1, 1), SB_SETTLED, "the status of a delayed one");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "the cell");
  expect_is(count_of(SB_COUNT_SCHEDULED), 0, "what is scheduled");
}

/* ---- delayed messages ---- */

static void become_due(uint64_t number, uint64_t due_ns, unsigned count) {
  bool ready;
  expect_is(sb_schedule_look_at(q, at(number), due_ns - 1, &ready), due_ns, "the next look");
  expect(!ready, "it is ready too early");
  expect_is(word_of(number), cell_word(number, SB_CELL_SCHEDULED, 0), "the cell before it is due");
  expect_is(sb_schedule_look_at(q, at(number), due_ns, &ready), 0, "the next look at one that is due");
  expect(ready, "it is not ready");
  expect_is(word_of(number), cell_word(number, SB_CELL_AVAILABLE, 0), "the cell when it is due");
  expect_is(side_of(number), sb_side_word(taken.gen, count, SB_SIDE_REDELIVERED), "the side record when it is due");
}
static void a_message_is_delayed(void) {
  begin(DEADLY_WITH_LIMITS, 2);
  take();
  uint64_t due_ns = 77 * MS, gen = taken.gen;
  int64_t taken_before = (int64_t)q->shm->taken;
  expect_is(sb_park_delayed(q, token, 9, due_ns), SB_OK, "the status");
  taken.gen = due_ns / MS;
  expect_parked(0, 9, SB_SIDE_REDELIVERED | SB_SIDE_DELAYED, "a message that is delayed");
  expect_counts(1, 0, 1, "while a message is delayed");
  expect_is((int64_t)q->shm->taken, taken_before, "what counts as taken");
  taken.gen = gen;
  become_due(0, due_ns, 9);
  expect_counts(2, 0, 0, "after the delay");
  expect_is((int64_t)q->shm->taken, taken_before - 1, "what counts as taken after the delay");
  expect_rest("a delay");
}
/* The side record counts milliseconds: a part of one counts whole, and what is too late is the latest. */
static void ends_of_delays(void) {
  const struct {
    uint64_t due_ns, ms;
  } ends[] = {{77 * MS, 77},
              {77 * MS + 1, 78},
              {78 * MS - 1, 78},
              {((uint64_t)LATEST_MS + 5) * MS, LATEST_MS},
              {(uint64_t)LATEST_MS * MS, LATEST_MS},
              {((uint64_t)LATEST_MS - 1) * MS, LATEST_MS - 1}};
  unsigned count = sizeof ends / sizeof ends[0];
  begin(DEADLY, count);
  for (unsigned i = 0; i < count; i++) {
    take();
    expect_is(sb_park_delayed(q, token, 1, ends[i].due_ns), SB_OK, "the status");
    expect_is(sb_side_gen(side_of(i)), ends[i].ms, "the end of the delay");
    expect_is(side_of(i) >> 38, 1 | (SB_SIDE_REDELIVERED | SB_SIDE_DELAYED) >> 38, "the rest of the side record");
  }
}
static void redelivery_is_delayed(sb_settings settings, unsigned count, uint64_t ms) {
  begin(settings, 1);
  answer_for_the_system();
  says.now_ns = 5000 * MS;
  take();
  set_side(0, count, 0);
  uint64_t gen = taken.gen;
  expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status");
  if (ms == 0) {
    expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "the cell without a delay");
    expect_is(side_of(0), sb_side_word(gen, count, SB_SIDE_REDELIVERED), "the side record without a delay");
    return;
  }
  taken.gen = 5000 + ms;
  expect_parked(0, count, SB_SIDE_REDELIVERED | SB_SIDE_DELAYED, "a message that waits");
  taken.gen = gen;
  become_due(0, (5000 + ms) * MS, count);
  expect_rest("a redelivery");
}
static void no_delay(void) { redelivery_is_delayed(DELAYS(0, 2000, -1), 3, 0); }
static void the_first_delay(void) { redelivery_is_delayed(DELAYS(100, 2000, -1), 1, 100); }
static void the_first_delay_uncounted(void) { redelivery_is_delayed(DELAYS(100, 2000, -1), 0, 100); }
static void the_third_delay(void) { redelivery_is_delayed(DELAYS(100, 1500, -1), 3, 225); }
static void the_same_delay(void) { redelivery_is_delayed(DELAYS(100, 1000, -1), 9, 100); }
/* Of many messages that return at one moment, the waits are spread over the whole width, and keep its bounds. */
static void delays_that_are_spread(void) {
  enum { COUNT = 200 };
  sb_settings settings = DELAYS(1000, 1000, 1400);
  settings.values[SB_SETTING_REDELIVERY_COLLISION] = 500;
  begin(settings, COUNT);
  answer_for_the_system();
  says.now_ns = 5000 * MS;
  unsigned low = 0, middle = 0, high = 0, capped = 0;
  for (unsigned i = 0; i < COUNT; i++) {
    take();
    set_side(i, 1, 0);
    expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status");
    uint64_t wait = sb_side_gen(side_of(i)) - 5000;
    expect(wait >= 500 && wait <= 1400, "a wait of %llu ms", (unsigned long long)wait);
    low += wait < 700;
    middle += wait >= 900 && wait < 1100;
    high += wait >= 1300;
    capped += wait == 1400;
  }
  expect(low > 10 && middle > 10 && high > 10, "%u short waits, %u middle ones, %u long ones", low, middle, high);
  expect(capped > 3 && capped < high, "%u waits are as long as allowed, of %u long ones", capped, high);
}
static void a_capped_delay(void) { redelivery_is_delayed(DELAYS(100, 2000, 250), 3, 250); }
static void a_delay_up_to_the_cap(void) { redelivery_is_delayed(DELAYS(100, 2000, 400), 3, 400); }
static void a_delay_above_the_cap(void) { redelivery_is_delayed(DELAYS(100, 2000, 60), 1, 60); }
static void a_cap_of_nothing(void) { redelivery_is_delayed(DELAYS(100, 2000, 0), 1, 0); }
static void the_longest_delay(void) { redelivery_is_delayed(DELAYS(100, 100000, -1), 65535, LATEST_MS - 5000); }
static void a_negative_delay(void) { redelivery_is_delayed(DELAYS(-1, 2000, -1), 2, 0); }

static void returns_without_a_delay(void) {
  begin(DELAYS(100, 2000, -1), 2);
  take();
  set_side(0, 4, 0);
  expect_is(sb_release_message(q, token, SB_UNDELIVER), SB_OK, "the status of a clean return");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "the cell after a clean return");
  expect_is(side_of(0), sb_side_word(taken.gen, 3, SB_SIDE_REDELIVERED), "the side record after a clean return");
  take_as(SB_CELL_REMOVING);
  expect_is(sb_release_unmarked(q, token), SB_OK, "the status of one that was spared");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "the cell of one that was spared");
  expect_rest("returns");
}
/* A full ring would replace what waits: it gets the message back now. */
static void rings(void) {
  begin((sb_settings){{2, -1, -1, 0, -1, -1, 0, -1, 100, 1000, -1}, 0}, 2);
  take();
  expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status in a ring with room");
  expect_is(word_of(0), cell_word(0, SB_CELL_SCHEDULED, 0), "the cell in a ring with room");
  expect_is(put(&t, q, 3), SB_OK, "the status of a put");
  take();
  expect_is(taken.position, at(1), "what is taken");
  expect_is(put(&t, q, 4), SB_OK, "the status of a put");
  expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status in a full ring");
  expect_is(sb_cell_state(word_of(1)), SB_CELL_AVAILABLE, "the state in a full ring");
  (void)sb_limits_enforce(q);
  expect_is(sb_cell_state(word_of(1)), SB_CELL_TOMBSTONE, "the state when the ring is trimmed");
  expect_counts(2, 0, 1, "in a ring");
  expect_rest("a ring");
}
static void rings_that_shrink(void) {
  begin((sb_settings){{2, -1, -1, 0, -1, -1, 0, -1, 100, 1000, -1}, 0}, 2);
  SB_STORE(&q->shm->bound, 4, SB_RELAXED);
  expect_is(put(&t, q, 3), SB_OK, "the status of a put");
  SB_STORE(&q->shm->bound, 4, SB_RELAXED);
  expect_is(put(&t, q, 4), SB_OK, "the status of a put");
  take();
  SB_STORE(&q->shm->bound, 4, SB_RELAXED);
  expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status below the bound");
  expect_is(sb_cell_state(word_of(0)), SB_CELL_SCHEDULED, "the state below the bound");
}

/* ---- the last delivery ---- */

static void returned_after(sb_settings settings, unsigned count, sb_disposition how, unsigned state, const char *what) {
  begin(settings, 1);
  take();
  set_side(0, count, 0);
  expect_is(sb_release_message(q, token, how), SB_OK, what);
  expect(sb_cell_state(word_of(0)) == state, "%s: the state is %u", what, sb_cell_state(word_of(0)));
  expect_is(count_of(SB_COUNT_DROPPED), state == SB_CELL_TOMBSTONE, "what was dropped");
  if (state == SB_CELL_SCHEDULED) expect_parked(0, count, sb_side_why(SB_WHY_DELIVERY_LIMIT), what);
  expect_rest(what);
}
static void one_is_left(void) {
  returned_after(ATTEMPTS(3, SB_QUEUE_DEAD_LETTERS), 2, SB_REQUEUE, SB_CELL_AVAILABLE, "one delivery is left");
}
static void none_is_left(void) {
  returned_after(ATTEMPTS(3, SB_QUEUE_DEAD_LETTERS), 3, SB_REQUEUE, SB_CELL_SCHEDULED, "no delivery is left");
}
static void fewer_are_left(void) {
  returned_after(ATTEMPTS(3, SB_QUEUE_DEAD_LETTERS), 7, SB_REQUEUE, SB_CELL_SCHEDULED, "the limit was lowered");
}
static void none_is_left_nor_dead_letters(void) {
  returned_after(ATTEMPTS(3, 0), 3, SB_REQUEUE, SB_CELL_TOMBSTONE, "no delivery is left, nor dead letters");
}
static void a_clean_return(void) {
  returned_after(ATTEMPTS(3, SB_QUEUE_DEAD_LETTERS), 3, SB_UNDELIVER, SB_CELL_AVAILABLE, "a clean return");
  expect_is(sb_side_count(side_of(0)), 2, "the deliveries after a clean return");
}
static void without_a_limit(void) {
  returned_after(ATTEMPTS(-1, SB_QUEUE_DEAD_LETTERS), 65535, SB_REQUEUE, SB_CELL_AVAILABLE, "no limit");
}
static void with_a_limit_of_nothing(void) {
  returned_after(ATTEMPTS(0, SB_QUEUE_DEAD_LETTERS), 9, SB_REQUEUE, SB_CELL_AVAILABLE, "a limit of 0 is none");
}

/* ---- the housekeeper's look ---- */

/* A connection returns what it holds when it closes. */
static void a_dead_message_is_returned(void) {
  const sb_disposition ways[] = {SB_REQUEUE, SB_UNDELIVER};
  begin(DEADLY, 1);
  take();
  expect_is(sb_dispose(q, token, SB_REASON_REJECTED), SB_OK, "the status");
  expect_entry(0);
  for (unsigned i = 0; i < 3; i++) {
    token = new_token();
    expect(sb_schedule_take(q, at(0), SB_CELL_SCHEDULED, token, &taken), "there is no dead message");
    expect_is(i < 2 ? sb_release_message(q, token, ways[i]) : sb_release_unmarked(q, token), SB_OK, "the status");
    expect_parked(0, 1, sb_side_why(SB_WHY_REJECTED), "a dead message that is returned");
  }
  expect_counts(0, 0, 1, "after the returns");
  expect_rest("the returns of a dead message");
}

static void a_dead_message_is_looked_at(void) {
  bool ready;
  begin(DEADLY, 1);
  take();
  message_of(0)->expires_ns = 1;
  expect_is(sb_dispose(q, token, SB_REASON_REJECTED), SB_OK, "the status");
  expect_is(sb_schedule_look_at(q, at(0), sb_now_ns(), &ready), SB_SCHEDULE_DEAD, "the look, though it has expired");
  expect(!ready, "it is ready");
  expect_is(word_of(0), cell_word(0, SB_CELL_SCHEDULED, 0), "the cell");
  expect_is(side_of(0), sb_side_word(taken.gen, 1, sb_side_why(SB_WHY_REJECTED)), "the side record");
}
/* Another housekeeper has it in hand. It may return it without a schedule entry, and end. */
static void a_dead_message_in_hand_is_looked_at_again(void) {
  bool ready;
  uint64_t now_ns = sb_now_ns();
  begin(DEADLY, 1);
  take();
  expect_is(sb_dispose(q, token, SB_REASON_REJECTED), SB_OK, "the status");
  token = new_token();
  expect(sb_schedule_take(q, at(0), SB_CELL_SCHEDULED, token, &taken), "there is no dead message");
  expect_is(sb_schedule_look_at(q, at(0), now_ns, &ready), now_ns + 100 * MS, "the look at one that is in hand");
  expect_is(sb_park_again(q, token, SB_WHY_REJECTED), SB_OK, "the status of its return");
  expect_is(sb_schedule_look_at(q, at(0), now_ns, &ready), SB_SCHEDULE_DEAD, "the next look");
  expect(!ready, "it is ready");
  expect_counts(0, 0, 1, "after the looks");
  expect_rest("the looks at a dead message");
}

/* It expires at a look: ready, or while it is delayed. */
static void it_expires(sb_settings settings, bool delayed, bool parks) {
  bool ready;
  uint64_t now_ns = sb_now_ns();
  begin(settings, 1);
  take();
  uint64_t gen = taken.gen;
  if (delayed) expect_is(sb_park_delayed(q, token, 1, now_ns + 5000 * MS), SB_OK, "the status of a delay");
  if (!delayed) expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status of a return");
  message_of(0)->expires_ns = now_ns;
  expect_is(sb_schedule_look_at(q, at(0), now_ns - 1, &ready), now_ns, "the look before it expires");
  expect_is(sb_schedule_look_at(q, at(0), now_ns, &ready), parks ? SB_SCHEDULE_DIED : 0,
            "the look at one that expires");
  expect(!ready, "it is ready");
  expect_is(count_of(SB_COUNT_EXPIRED), !parks, "what expired");
  expect_is(word_of(0), cell_word(0, parks ? SB_CELL_SCHEDULED : SB_CELL_TOMBSTONE, 0), "the cell");
  if (parks) {
    expect_is(side_of(0), sb_side_word(gen, 1, SB_SIDE_REDELIVERED | sb_side_why(SB_WHY_EXPIRED)), "the side record");
    expect_is(sb_schedule_look_at(q, at(0), now_ns, &ready), SB_SCHEDULE_DEAD, "the look at one that is dead");
  }
  expect_counts(0, 0, parks, "after it expired");
  expect_rest("an end of the time to live");
}
static void ready_it_expires(void) { it_expires(DEADLY, false, true); }
static void delayed_it_expires(void) { it_expires(DEADLY, true, true); }
static void ready_it_expires_without(void) { it_expires(WITHOUT, false, false); }
static void delayed_it_expires_without(void) { it_expires(WITHOUT, true, false); }

/* Another housekeeper made the delayed message ready, and a consumer has rejected it. */
static void it_dies_meanwhile(void) {
  SB_STORE(&cell(0)->side, sb_side_word(taken.gen, 2, sb_side_why(SB_WHY_REJECTED)), SB_RELAXED);
}
static void it_is_dead_by_now(void) {
  if (!has_steps()) return;
  bool ready;
  begin(DEADLY, 1);
  take();
  expect_is(sb_park_delayed(q, token, 1, MS), SB_OK, "the status of a delay");
  meanwhile(&cell(0)->word, AFTER_LOAD, 2, it_dies_meanwhile);
  expect_is(sb_schedule_look_at(q, at(0), sb_now_ns(), &ready), SB_SCHEDULE_DEAD, "the look");
  expect(has_acted(), "the cell was not read twice");
  expect(!ready, "a dead message is ready");
  expect_is(word_of(0), cell_word(0, SB_CELL_SCHEDULED, 0), "the cell");
  expect_is(side_of(0), sb_side_word(taken.gen, 2, sb_side_why(SB_WHY_REJECTED)), "the side record");
  expect_counts(0, 0, 1, "after the look");
  expect_rest("a look at one that is dead by now");
}
/* The bits of the side record mean nothing in a cell that is not parked. */
static void a_take_forgets(void) {
  begin(DEADLY, 1);
  take();
  sb_holding_give(t.c, token);
  set_cell(0, SB_CELL_AVAILABLE, 0);
  sb_ledger_hold(q->ledger, -1);
  set_side(0, 1, SB_SIDE_REDELIVERED | SB_SIDE_DELAYED | sb_side_why(SB_WHY_EXPIRED));
  mark(0);
  take();
  expect_is(side_of(0), sb_side_word(taken.gen, 2, SB_SIDE_REDELIVERED), "the side record of one that was ready");
  set_cell(0, SB_CELL_SCHEDULED, 0);
  set_side(0, 1, SB_SIDE_REDELIVERED | SB_SIDE_DELAYED | sb_side_why(SB_WHY_EXPIRED));
  expect_is(sb_take_at(q, at(0), SB_CELL_SCHEDULED, new_token(), &taken), SB_OK, "the status of a take");
  expect_is(side_of(0), sb_side_word(taken.gen, 1, SB_SIDE_REDELIVERED | sb_side_why(SB_WHY_EXPIRED)),
            "the side record of one that was parked");
}

static const test_case CASES[] = {
    {"park: reasons, acquired", "a message that dies rests in a queue with dead letters", acquired_messages_park},
    {"park: reasons, removed", "so does one that was taken to be removed", removed_messages_park},
    {"park: reasons that end", "for other reasons a message ends there, too", reasons_that_end_anyway},
    {"park: no dead letters", "without dead letters, a message that dies ends", without_dead_letters},
    {"park: closed queue", "in a queue that was deleted, a message that dies ends", in_a_closed_queue},
    {"park: intent", "intent and side record are there before the cell changes", the_intent_comes_first},
    {"park: count", "the message is counted after its cell has changed, under the intent", the_count_comes_after},
    {"park: another reaper", "a cell that another reaper has changed is not counted again", beside_another_reaper},
    {"park: housekeeper", "the housekeeper is told of each parked message", the_housekeeper_is_rung},
    {"park: no holding", "only a message that is held can be parked", a_holding_of_nothing},
    {"park: delay", "a delayed message becomes ready when the delay is over", a_message_is_delayed},
    {"park: ends of delays", "a delay never ends too early", ends_of_delays},
    {"park: delay 0", "a message comes back immediately without a delay", no_delay},
    {"park: delay negative", "a delay below 0 is none", a_negative_delay},
    {"park: delay 1", "the first return waits for redelivery_delay", the_first_delay},
    {"park: delay uncounted", "a message with no counted delivery waits for redelivery_delay",
     the_first_delay_uncounted},
    {"park: delay 3", "each later return waits longer by the multiplier", the_third_delay},
    {"park: delay same", "with a multiplier of 1, each return waits as long", the_same_delay},
    {"park: delay spread", "the collision factor spreads the waits", delays_that_are_spread},
    {"park: delay capped", "no return waits longer than max_redelivery_delay", a_capped_delay},
    {"park: delay at the cap", "a return may wait for max_redelivery_delay", a_delay_up_to_the_cap},
    {"park: delay above the cap", "max_redelivery_delay limits the first return, too", a_delay_above_the_cap},
    {"park: delay cap 0", "a limit of 0 leaves no delay", a_cap_of_nothing},
    {"park: delay longest", "a delay beyond the clock of the side record ends with it", the_longest_delay},
    {"park: no delay", "a clean return does not wait, nor does one of no consumer", returns_without_a_delay},
    {"park: ring", "a message does not wait outside of a full ring", rings},
    {"park: ring bound", "a ring that shrinks has room up to its bound", rings_that_shrink},
    {"park: attempts, one left", "a message with a delivery left comes back", one_is_left},
    {"park: attempts, none left", "a message without a delivery left is dead", none_is_left},
    {"park: attempts, lowered", "so is one that was delivered more often", fewer_are_left},
    {"park: attempts, no dead letters", "without dead letters it ends", none_is_left_nor_dead_letters},
    {"park: attempts, clean return", "a clean return gives the delivery back", a_clean_return},
    {"park: attempts, no limit", "without a limit a message always comes back", without_a_limit},
    {"park: attempts, 0", "a limit of 0 is none", with_a_limit_of_nothing},
    {"park: dead, returned", "a dead message that is returned is dead again", a_dead_message_is_returned},
    {"park: look, dead", "a look at a dead message says so, and leaves it", a_dead_message_is_looked_at},
    {"park: look, in hand", "a dead message that another housekeeper has is looked at again",
     a_dead_message_in_hand_is_looked_at_again},
    {"park: look, expires", "a ready message that expires is dead", ready_it_expires},
    {"park: look, delayed expires", "a delayed message that expires is dead", delayed_it_expires},
    {"park: look, ends", "without dead letters, a ready message that expires ends", ready_it_expires_without},
    {"park: look, delayed ends", "without dead letters, a delayed one ends", delayed_it_expires_without},
    {"park: look, dead by now", "a look does not make a message ready that has died meanwhile", it_is_dead_by_now},
    {"park: take", "a take keeps why a parked message is dead, and of other cells nothing", a_take_forgets},
};
SUBJECT(CASES)
