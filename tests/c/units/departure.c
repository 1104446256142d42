// SPDX-License-Identifier: Apache-2.0
/* sb_departure: which queues and which leaves let messages leave the memory, and in which order. */
#include "sb_departure.h"

#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "sb_lanes.h"
#include "sb_schedule.h"
#include "sb_wait.h"
#include "surroundings.h"

#define LANE_END (UINT64_C(1) << 40) /* a sequence number behind all messages of a lane */
#define WITH(flag) ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE | (flag)})

static sb_queue *q;

static void begin(unsigned messages) {
  q = begin_stored(STORED, messages);
  store_everything();
}
static uint64_t end_of(unsigned n) { return q->base + (uint64_t)(n + 1) * LEAF; }
static uint32_t run(uint64_t from, uint64_t end, uint32_t most) {
  sb_lock(t.c);
  uint32_t left = sb_departure_run(q, stored_ring(), from, end, most, NULL, NULL);
  sb_unlock(t.c);
  return left;
}
static bool has_left(unsigned n) { return sb_link_state(link_of(n)) == SB_LINK_PAGED; }
/* Of the leaves 0 to 3, bit n: leaf n. */
static void expect_left(unsigned leaves, const char *what) {
  for (unsigned n = 0; n < 4; n++)
    expect(has_left(n) == ((leaves >> n & 1) != 0), "%s: leaf %u has left, or not", what, n);
}

/* ---- which queues ---- */

static void queues_that_may(void) {
  begin(LEAF + 1);
  expect(sb_queue_may_leave(q), "messages of a stored queue stay");
  expect(sb_store_may_leave(q), "messages of a stored queue stay, says the call");
  const uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED);
  const uint32_t keeping[] = {SB_QUEUE_GROUPS, SB_QUEUE_LAST_VALUE, SB_QUEUE_SORTED, SB_QUEUE_NON_DESTRUCTIVE,
                              SB_QUEUE_KEEPS};
  for (unsigned i = 0; i < 5; i++) {
    SB_STORE(&q->shm->flags, flags | keeping[i], SB_RELAXED);
    expect(!sb_queue_may_leave(q), "messages leave in spite of flag %x", keeping[i]);
    expect_is(run(q->base, end_of(0), 1), 0, "how many leave");
  }
  SB_STORE(&q->shm->flags, flags | SB_QUEUE_PAUSED, SB_RELAXED);
  expect(sb_queue_may_leave(q), "messages of a paused queue stay");
  SB_STORE(&q->shm->flags, flags, SB_RELAXED);
  mark_closed(q);
  expect(!sb_queue_may_leave(q), "messages of a closed queue leave");
  expect_is(run(q->base, end_of(0), 1), 0, "how many leave then");
}
static void queues_with_limits(void) {
  const sb_settings limited[] = {{{100, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE},
                                 {{-1, 100, -1, 0, -1, -1}, SB_QUEUE_DURABLE},
                                 {{-1, -1, 100000, 0, -1, -1}, SB_QUEUE_DURABLE}};
  (void)begin_stored(STORED, 0);
  for (unsigned i = 0; i < 3; i++) {
    char name[] = {'l', (char)('0' + i), 0};
    expect(!sb_queue_may_leave(queue_named(name, limited[i])), "messages leave in spite of limit %u", i);
  }
  expect(!sb_queue_may_leave(queue_named("transient", (sb_settings)FREELY)), "messages that nobody stores leave");
  expect(!sb_queue_may_leave(queue_named("exclusive", WITH(SB_QUEUE_EXCLUSIVE))), "those of an exclusive queue leave");
}

/* ---- which leaves ---- */

static void the_newest_leave_first(void) {
  begin(4 * LEAF + 1);
  expect_is(run(q->base, end_of(3), 2), 2, "how many leave");
  expect_left(12, "two leave");
  expect_is(run(q->base, end_of(3), 1), 1, "how many leave then");
  expect_left(14, "another one leaves");
  expect_is(run(q->base, end_of(3), 9), 1, "how many leave last");
  expect_left(15, "all have left");
  expect_is(run(q->base, end_of(3), 9), 0, "how many leave when all have left");
}
static void only_whole_leaves_leave(void) {
  begin(4 * LEAF + 1);
  expect_is(run(q->base + 1, end_of(3) - 1, 9), 2, "how many leave");
  expect_left(6, "the others lie between the bounds in part");
  expect_is(run(q->base + LEAF, end_of(0), 9), 0, "how many leave of none");
  expect_is(run(q->base, end_of(0), 0), 0, "how many leave of none, then");
  expect_is(run(end_of(3), end_of(4), 9), 0, "how many leave that are not full");
  expect_is(run(q->base, end_of(4), 9), 2, "how many leave of the rest");
}
static void below_several_pages(void) {
  begin(LEAF * LEAF + 3 * LEAF + 1);
  expect_is(run(q->base, end_of(LEAF + 2), 4), 4, "how many leave");
  for (unsigned n = LEAF - 2; n < LEAF + 3; n++) expect(has_left(n) == (n >= LEAF - 1), "leaf %u has left, or not", n);
  expect_is(run(q->base, q->base + 2 * LEAF, 9), 2, "how many leave of the first ones");
  expect_left(3, "the first ones");
}
static void a_ring_without_pages(void) {
  q = begin_stored(STORED, 0);
  expect_is(run(q->base, end_of(0), 1), 0, "how many leave of an empty queue");
  (void)put(&t, q, 1);
  expect_is(run(q->base, end_of(0), 1), 0, "how many leave of one leaf");
}

/* ---- messages that stay ---- */

static void expect_stays(const char *why) {
  expect_is(run(q->base, end_of(0), 1), 0, why);
  expect(!has_left(0), "%s: it has left", why);
}
static void messages_with_timers(void) {
  begin(LEAF + 1);
  sb_message_shm *m = message_at(q, 7);
  m->expires_ns = 5;
  expect_stays("a message that expires");
  m->expires_ns = 0;
  expect_is(paging_of(0), SB_PAGING_THERE, "the state of a leaf that did not begin to leave");
  expect_is(run(q->base, end_of(0), 1), 1, "how many leave without a reason to stay");
}
static void give_it_a_life(void) { message_at(q, 7)->expires_ns = 5; }
static void a_timer_that_comes_while_it_freezes(void) {
  begin(LEAF + 1);
  meanwhile(cell_at(q, 63), BEFORE_CAS, 1, give_it_a_life);
  uint32_t left = run(q->base, end_of(0), 1);
  if (has_acted()) {
    expect_is(left, 0, "how many leave");
    expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the state of a cell");
    expect_is(paging_of(0), SB_PAGING_STAYS, "the state of the leaf");
  }
}

/* ---- messages that expire ---- */

#define SECOND UINT64_C(1000000000)
#define HOUR (3600 * SECOND)

static void leaves_with_messages_that_expire(void) {
  begin(4 * LEAF + 1);
  const uint64_t now = sb_now_ns();
  sb_expiring expiring[4] = {{0, 0}};
  uint32_t count = 0;
  message_at(q, LEAF + 7)->expires_ns = now + HOUR;
  message_at(q, LEAF + 9)->expires_ns = now + HOUR / 2;
  message_at(q, LEAF + 11)->expires_ns = now + HOUR;
  message_at(q, 3 * LEAF)->expires_ns = now + SECOND / 2;
  sb_lock(t.c);
  expect_is(sb_departure_run(q, stored_ring(), q->base, end_of(3), 4, expiring, &count), 3, "how many leave");
  sb_unlock(t.c);
  expect_left(7, "one expires soon");
  expect_is(count, 1, "how many of them expire");
  expect_is(expiring[0].sequence, q->base + LEAF, "the position of the one that does");
  expect_is(expiring[0].expires_ns, now + HOUR / 2, "when its first message does");
}
static void what_the_storekeeper_learns(void) {
  begin(3 * LEAF + 1);
  const uint64_t now = sb_now_ns();
  sb_expiring expiring[4] = {{0, 0}};
  uint32_t count = 7;
  message_at(q, LEAF - 1)->expires_ns = now + HOUR;
  message_at(q, 2 * LEAF)->expires_ns = now + 2 * HOUR;
  expect_is(sb_store_leave(q, LANE_END, 0, 4, expiring, &count), 3, "how many leave");
  expect_is(count, 2, "how many of them expire");
  expect_is(expiring[0].sequence, 2 * LEAF, "the first sequence number of the last one");
  expect_is(expiring[0].expires_ns, now + 2 * HOUR, "its time");
  expect_is(expiring[1].sequence, 0, "that of the first one");
  expect_is(expiring[1].expires_ns, now + HOUR, "its time");
  expect_is(sb_store_leave(q, LANE_END, 0, 4, expiring, &count), 0, "how many leave when all have left");
  expect_is(count, 0, "how many of them expire");
}
static uint64_t look(uint64_t number, uint64_t now_ns) {
  bool ready;
  sb_lock(t.c);
  uint64_t next = sb_schedule_look_at(q, q->base + number, now_ns, &ready);
  sb_unlock(t.c);
  return next;
}
static void a_look_at_one_that_is_leaving(void) {
  begin(LEAF + 1);
  const uint64_t word = word_at(q, 7);
  message_at(q, 7)->expires_ns = 50;
  set_cell_word(q, 7, (word & ~UINT64_C(15)) | SB_CELL_FROZEN);
  expect_is(look(7, 49), 50, "the next look before it expires");
  expect_is(look(7, 50), 50 + SECOND / 10, "the next look when it has");
  set_cell_word(q, 7, word);
  expect_is(look(7, 50), 0, "the next look at one that stayed");
  expect_is(cell_state(q, 7), SB_CELL_TOMBSTONE, "its state");
}
static void a_look_at_one_that_came_back(void) {
  begin(LEAF + 1);
  const uint64_t expires_ns = sb_now_ns() + HOUR;
  message_at(q, 7)->expires_ns = expires_ns;
  expect_is(look(7, 1), expires_ns, "the next look");
  expect(let_leave(0), "the leaf stays");
  expect_is(look(7, 1), 0, "the next look at one that has left");
  expect_is(let_come_back(0), SB_OK, "the status of a load");
  message_at(q, 7)->expires_ns = expires_ns;
  expect_is(look(7, 1), expires_ns, "the next look at one that came back");
}

static void a_message_that_cannot_be_read(void) {
  begin(LEAF + 1);
  const uint64_t word = word_at(q, 7);
  set_cell_word(q, 7, open_word(q, 7, SB_CELL_AVAILABLE, (1u << 28) - 1));
  expect_stays("a message outside the memory");
  set_cell_word(q, 7, word);
  expect_is(run(q->base, end_of(0), 1), 1, "how many leave then");
}

/* ---- intents ---- */

static void intend(sb_ledger_shm *l, unsigned kind, uint64_t number) {
  SB_STORE(&l->position, q->base + number, SB_RELAXED);
  SB_STORE(&l->kind, kind | 5u << 16, SB_RELAXED);
}
static void cells_that_an_intent_names(void) {
  begin(2 * LEAF + 1);
  sb_ledger_shm *of_mine = q->ledger;
  sb_status status;
  sb_queue *others = sb_queue_open(connect_to(&t), q->slot, &status);
  if (others == NULL) die("sb_queue_open", (int)status);
  intend(of_mine, SB_INTENT_NONE, 7);
  intend(others->ledger, SB_INTENT_SETTLE, LEAF);
  expect_is(run(q->base, end_of(0), 1), 1, "how many leave that no intent names");
  intend(others->ledger, SB_INTENT_SETTLE, 2 * LEAF - 1);
  expect_is(run(q->base, end_of(1), 9), 0, "how many leave that an intent names");
  expect_is(cell_state(q, LEAF), SB_CELL_AVAILABLE, "the state of a cell");
  expect_is(paging_of(1), SB_PAGING_STAYS, "the state of the leaf");
  intend(others->ledger, SB_INTENT_NONE, 0);
  expect_is(run(q->base, end_of(1), 9), 0, "how many leave later");
}

/* ---- lanes ---- */

static void messages_of_a_priority(void) {
  sb_settings ranked = {{-1, -1, -1, 0, -1, -1, 9}, SB_QUEUE_DURABLE};
  q = begin_stored(ranked, 0);
  sb_put_options options = {.priority = 4};
  for (unsigned i = 0; i < 2 * LEAF + 1; i++) {
    if (sb_queue_put_with(q, "12345678", 8, &options) != SB_OK) die("sb_queue_put_with", (int)i);
  }
  look_at_lane(5);
  store_everything();
  const uint64_t first = sb_position_in(5, 0);
  expect_is(sb_store_leave(q, first + LANE_END, 0, 1, NULL, NULL), 1, "how many leave");
  expect(has_left(1) && !has_left(0), "another leaf has left");
  expect_is(sb_store_leave(q, LANE_END, 0, 9, NULL, NULL), 0, "how many leave of another lane");
  expect_is(sb_store_leave(q, first + LANE_END, 1, 9, NULL, NULL), 0, "how many leave behind the first message");
  expect_is(sb_store_leave(q, first + LANE_END, 0, 9, NULL, NULL), 1, "how many leave of the rest");
}

static const test_case CASES[] = {
    {"departure: queues", "only searches along the ring find messages of one that may", queues_that_may},
    {"departure: limits", "a queue with a limit keeps its messages, and one that is not stored", queues_with_limits},
    {"departure: newest", "the newest leaves leave first, and not more than asked for", the_newest_leave_first},
    {"departure: bounds", "a leaf leaves that lies between the bounds as a whole", only_whole_leaves_leave},
    {"departure: pages", "leaves of several pages leave", below_several_pages},
    {"departure: no pages", "a leaf without a page above it stays", a_ring_without_pages},
    {"departure: timers", "a leaf stays with a message that has a timer", messages_with_timers},
    {"departure: late timers", "a timer that comes while a leaf freezes is seen", a_timer_that_comes_while_it_freezes},
    {"departure: expiring", "leaves leave whose messages expire later, and the caller learns when",
     leaves_with_messages_that_expire},
    {"departure: learnt", "the storekeeper learns it by sequence number", what_the_storekeeper_learns},
    {"departure: look", "a message that expires while it leaves is looked at again", a_look_at_one_that_is_leaving},
    {"departure: looks", "a look finds a message where it came back", a_look_at_one_that_came_back},
    {"departure: damaged", "a leaf stays with a message that cannot be read", a_message_that_cannot_be_read},
    {"departure: intents", "a leaf stays that an intent names", cells_that_an_intent_names},
    {"departure: lanes", "a lane lets its own leaves leave", messages_of_a_priority},
};
SUBJECT(CASES)
