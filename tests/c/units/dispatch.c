// SPDX-License-Identifier: Apache-2.0
/* sb_dispatch: the gate of a queue, which the number of its consumers or a delay opens, and the end of which is the end of
 * the last consumer. */
#include "sb_dispatch.h"

#include "calls.h"
#include "consuming.h"
#include "dead.h"
#include "meanwhile.h"
#include "sb_nodes.h"
#include "system.h"

#define MS UINT64_C(1000000)
#define CONSUMER (SB_NODE_DIRECT | SB_NODE_COUNTED)
#define GATED(n, ms) \
  ((sb_settings){{-1, -1, -1, 0, -1, -1, [SB_SETTING_CONSUMERS_BEFORE_DISPATCH] = (n), \
                  [SB_SETTING_DELAY_BEFORE_DISPATCH_MS] = (ms)}, \
                 0})

static sb_queue *q;
static sb_queue_shm *shm;

static void begin(int64_t consumers, int64_t delay_ms) {
  answer_for_the_system();
  q = new_queue("q", GATED(consumers, delay_ms));
  shm = q->shm;
}
static uint32_t unattached(void) { return make_node(q->slot, 0, CONSUMER, 1, SB_NODE_NOT_INTERESTED); }
static uint32_t attach_one(void) {
  uint32_t node = unattached();
  sb_dispatch_enter(t.c, q->slot, node);
  return node;
}
static void leave(uint32_t node) { set_node_state(node, SB_NODE_REMOVED); }
static bool waits(uint32_t node) {
  const sb_node_shm *n = node_shm(node);
  return (n->flags & SB_NODE_GATED) != 0 && n->ticket >= shm->open_before;
}
static void configure(int64_t consumers, int64_t delay_ms) {
  sb_settings s = GATED(consumers, delay_ms);
  int32_t holder;
  expect_is(sb_queue_configure(q, &s, false, FOREVER, &holder), SB_OK, "the status of a change");
}
static void expect_passes(uint32_t node, bool should, const char *what) {
  expect(sb_dispatch_passes(t.c, node) == should, "%s: it %s", what, should ? "waits" : "does not wait");
  expect(((node_shm(node)->flags & SB_NODE_GATED) == 0) == should, "%s: its flags are %x", what, node_shm(node)->flags);
}

/* ---- which queues have a gate ---- */

static void queues_without_a_gate(void) {
  const int64_t without[][2] = {{-1, -1}, {0, 0}, {1, 0}, {1, -1}};
  for (unsigned i = 0; i < 4; i++) {
    char name[2] = {(char)('a' + i), 0};
    q = new_queue(name, GATED(without[i][0], without[i][1]));
    shm = q->shm;
    expect(!sb_dispatch_gated(shm), "the queue has a gate with %d, %d", (int)without[i][0], (int)without[i][1]);
    uint32_t node = attach_one();
    expect_is(node_shm(node)->flags, CONSUMER, "the flags of a consumer");
    expect_is(node_shm(node)->ticket, 1, "its ticket");
    expect_is(shm->open_before, 0, "the tickets that the gate is open for");
    expect_is(sb_dispatch_look(t.c, q->slot), 0, "when the gate opens");
    expect_passes(node, true, "a consumer of a queue without a gate");
  }
}

/* ---- the number of consumers ---- */

static void the_last_of_them_opens_the_gate(void) {
  begin(3, 0);
  uint32_t first = attach_one(), second = attach_one();
  expect_is(node_shm(second)->ticket, 2, "the second ticket");
  expect(waits(first) && waits(second), "two of three do not wait");
  expect_passes(first, false, "the first of three");
  expect_is(t.c->dispatch_due_ns, 0, "when it looks again, without a delay");
  uint64_t wakes = node_wakes(first);
  uint32_t third = attach_one();
  expect_is(shm->open_before, 4, "the tickets that the gate is open for");
  expect_is(node_wakes(first), wakes + 1, "how often the first was notified");
  expect_is(node_wakes(third), 1, "how often the third was notified");
  expect_passes(first, true, "the first of three that are attached");
  expect_passes(third, true, "the third");
  wakes = node_wakes(second);
  (void)sb_dispatch_look(t.c, q->slot);
  expect_is(node_wakes(second), wakes + 1, "how often one was notified that has not looked yet");
  expect_is(node_wakes(first), 1, "how often one was notified that knows");
}
static void who_comes_later_passes_until_all_have_left(void) {
  begin(2, 0);
  uint32_t first = attach_one(), second = attach_one();
  expect_passes(second, true, "one of two");
  leave(first);
  uint32_t third = attach_one();
  expect_passes(third, true, "one that comes while the gate is open");
  leave(second);
  leave(third);
  uint32_t fourth = attach_one();
  expect_passes(fourth, false, "one that comes after all have left");
  expect_is(shm->open_before, 4, "the tickets that the gate is open for");
  expect_passes(attach_one(), true, "one more");
  expect_passes(fourth, true, "the one that waited");
}
static void what_is_no_consumer(void) {
  begin(2, 0);
  uint32_t first = attach_one();
  uint32_t waiter = make_node(q->slot, 0, SB_NODE_DIRECT, 1, SB_NODE_INTERESTED);
  SB_STORE(&node_shm(waiter)->ticket, 1, SB_RELAXED);
  (void)unattached(); /* the queue has not admitted it yet */
  expect_passes(first, false, "one consumer beside a get that waits");
  expect_passes(first, false, "one consumer beside one that is not admitted");
}

/* ---- the delay ---- */

static void the_delay_counts_from_the_first(void) {
  begin(3, 10);
  uint64_t start = says.now_ns;
  uint32_t first = attach_one();
  expect_is(sb_dispatch_look(t.c, q->slot), start + 10 * MS, "when the gate opens");
  says.now_ns = start + 4 * MS;
  uint32_t second = attach_one();
  leave(first); /* the second notes when the first came */
  expect_is(node_shm(second)->attached_ns, start, "when the first came");
  says.now_ns = start + 10 * MS - 1;
  expect_passes(second, false, "just before");
  expect_is(t.c->dispatch_due_ns, start + 10 * MS, "when it looks again");
  says.now_ns++;
  expect_passes(second, true, "when the delay is over");
  leave(second);
  uint32_t third = attach_one();
  expect_passes(third, false, "after all have left");
  expect_is(t.c->dispatch_due_ns, start + 10 * MS, "when it looks again, which is the earliest time");
  t.c->dispatch_due_ns = 0;
  expect_passes(third, false, "once more");
  expect_is(t.c->dispatch_due_ns, start + 20 * MS, "when it looks again");
}
static void a_delay_without_a_number(void) {
  const int64_t numbers[] = {-1, 0};
  for (unsigned i = 0; i < 2; i++) {
    answer_for_the_system();
    char name[2] = {(char)('a' + i), 0};
    q = new_queue(name, GATED(numbers[i], 10));
    shm = q->shm;
    uint32_t first = attach_one();
    expect_passes(attach_one(), false, "before the delay is over, whatever the number of consumers");
    says.now_ns += 10 * MS;
    expect_passes(first, true, "after the delay");
    leave(first);
  }
}
static void one_is_a_number(void) {
  begin(1, 10);
  expect_passes(attach_one(), true, "the first of one, before the delay is over");
}
static void nobody_is_there(void) {
  begin(2, 10);
  says.now_ns = UINT64_MAX - 1;
  expect_is(sb_dispatch_look(t.c, q->slot), 0, "when the gate opens without a consumer");
  expect_is(shm->open_before, 0, "the tickets that the gate is open for");
}

/* ---- settings that change ---- */

static void fewer_are_enough(void) {
  begin(3, 0);
  uint32_t first = attach_one(), second = attach_one();
  configure(2, 0);
  expect_passes(first, true, "one of two, which are enough now");
  expect_passes(second, true, "the other one");
}
static void one_leaves_before_another_looks(void) {
  begin(3, 0);
  uint32_t first = attach_one(), second = attach_one();
  configure(2, 0);
  leave(first);
  expect_passes(second, true, "one of two that were enough when the number became smaller");
}
static void a_queue_gets_its_gate(void) {
  begin(0, 0);
  uint32_t first = attach_one();
  configure(3, 0);
  expect_passes(attach_one(), true, "one that comes to another that gets messages");
  leave(first);
  expect_passes(attach_one(), true, "another one");
}
static void a_queue_loses_its_gate(void) {
  begin(3, 0);
  uint32_t first = attach_one();
  configure(0, 0);
  configure(3, 0);
  expect_passes(first, true, "one that waited before the queue had no gate for a while");
  begin_dead();
}

/* ---- races and deaths ---- */

static uint32_t racer;
static void racer_comes(void) { racer = attach_one(); }
static uint32_t last;
static void all_leave_and_one_comes(void) {
  leave(racer);
  leave(last);
  racer = attach_one();
}
static void another_comes_meanwhile(void) {
  begin(2, 0);
  uint32_t first = unattached();
  meanwhile(&node_shm(first)->ticket, BEFORE_STORE, 1, racer_comes);
  sb_dispatch_enter(t.c, q->slot, first);
  if (has_acted()) {
    expect_is(node_shm(racer)->ticket, 2, "the ticket of the one that came later");
    expect_passes(first, true, "the one that noted its ticket last");
    expect_passes(racer, true, "the other one");
  }
}
/* All have left before the gate opens for those that were seen: it is closed for the next one. */
static void all_leave_before_it_opens(void) {
  begin(2, 0);
  racer = attach_one();
  last = unattached();
  meanwhile(&shm->open_before, BEFORE_CAS, 1, all_leave_and_one_comes);
  sb_dispatch_enter(t.c, q->slot, last);
  if (has_acted()) {
    expect_is(shm->open_before, 3, "the tickets that the gate is open for");
    expect(waits(racer), "one that came after the gate had to be open does not wait");
  }
}
static void a_later_opening_stands(void) {
  begin(2, 0);
  SB_STORE(&shm->open_before, 9, SB_RELAXED);
  sb_dispatch_open(shm);
  expect_is(shm->open_before, 9, "the tickets that the gate is open for");
  SB_STORE(&shm->tickets, 9, SB_RELAXED);
  sb_dispatch_open(shm);
  expect_is(shm->open_before, 10, "the tickets that the gate is open for, when there are more");
}
static void leave_first(void) { leave(racer); }
static void one_that_leaves_while_it_is_counted(void) {
  begin(2, 0);
  racer = attach_one();
  uint32_t second = unattached();
  meanwhile(&node_shm(racer)->attached_ns, AFTER_LOAD, 1, leave_first);
  sb_dispatch_enter(t.c, q->slot, second);
  if (has_acted()) expect(waits(second), "the second does not wait, though the first has left");
}
/* The dead process opened the gate, and notified nobody. */
static void the_reaper_notifies(void) {
  begin_dead();
  sb_queue *of_dead = queue_of_dead("q", GATED(2, 0));
  q = open_queue(&t, "q");
  shm = q->shm;
  uint32_t first = attach_one(), dead;
  uint64_t token;
  if (sb_node_create(d.c, of_dead->slot, 0, CONSUMER, 0, 1, &dead, &token) != SB_OK) die("sb_node_create", 0);
  SB_STORE(&node_shm(dead)->ticket, SB_ADD(&shm->tickets, 1, SB_RELAXED) + 1, SB_RELAXED);
  SB_STORE(&shm->open_before, 3, SB_RELAXED);
  uint64_t wakes = node_wakes(first);
  recover_dead();
  expect(node_wakes(first) > wakes, "the first was not notified");
  expect_passes(first, true, "the first");
}
static void a_damaged_node(void) {
  begin(2, 0);
  uint32_t first = attach_one();
  SB_STORE(&node_shm(first)->queue, UINT32_MAX, SB_RELAXED);
  expect_passes(first, false, "a consumer of a queue that does not exist");
}

/* ---- consumers ---- */

static void a_consumer_that_waits_takes_nothing(void) {
  begin(2, 0);
  queues[0] = q;
  put_some(0, 1, 3);
  sb_consumer *first = consume(1, 4, 0, ALONE);
  expect_is(consumer_state(first, 0), SB_NODE_NOT_INTERESTED, "the state of its node");
  sb_consumer_pull(first);
  expect(!first->target.kind->wants_work(&first->target), "it wants a turn");
  expect_is(in_row(first), 0, "its messages");
  expect_is(shm->interested, 0, "the interested consumers, whom a put would notify");
  sb_consumer *second = consume(1, 1, 0, ALONE);
  sb_consumer_pull(second);
  expect_is(in_row(second), 1, "the messages of the second");
  expect(first->target.kind->turn(&first->target), "the first has nothing to do");
  sb_consumer_pull(first);
  expect_is(in_row(first), 2, "the messages of the first");
}

static const test_case CASES[] = {
    {"dispatch: none", "a queue without a gate makes no consumer wait", queues_without_a_gate},
    {"dispatch: number", "the gate opens when the last of so many consumers is attached",
     the_last_of_them_opens_the_gate},
    {"dispatch: reset", "the gate is open until all consumers have left", who_comes_later_passes_until_all_have_left},
    {"dispatch: others", "gets, and consumers that are not admitted, do not count", what_is_no_consumer},
    {"dispatch: delay", "the delay counts from the first consumer, also if it leaves", the_delay_counts_from_the_first},
    {"dispatch: one", "a number of one is reached with the first, whatever the delay", one_is_a_number},
    {"dispatch: only delay", "without a number only the delay counts", a_delay_without_a_number},
    {"dispatch: nobody", "without consumers no gate opens", nobody_is_there},
    {"dispatch: fewer", "a number that falls may open the gate", fewer_are_enough},
    {"dispatch: looks", "... also if one leaves before another one looks", one_leaves_before_another_looks},
    {"dispatch: begins", "consumers that got messages before get them further", a_queue_gets_its_gate},
    {"dispatch: ends", "a queue that loses its gate opens it", a_queue_loses_its_gate},
    {"dispatch: two come", "of two that come at the same time one opens the gate", another_comes_meanwhile},
    {"dispatch: late", "a gate that opens late opens for those that were attached", all_leave_before_it_opens},
    {"dispatch: rises", "the tickets that the gate is open for only become more", a_later_opening_stands},
    {"dispatch: leaves", "a consumer that leaves while it is counted does not count",
     one_that_leaves_while_it_is_counted},
    {"dispatch: reaper", "a reaper notifies consumers of a gate that is open", the_reaper_notifies},
    {"dispatch: damaged", "a node of a queue that does not exist waits", a_damaged_node},
    {"dispatch: consumer", "a consumer that waits is not interested", a_consumer_that_waits_takes_nothing},
};
SUBJECT(CASES)
