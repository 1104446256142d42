// SPDX-License-Identifier: Apache-2.0
/* sb_admission: the seats of a queue, and the lock that consumers need to take one. */
#include "sb_admission.h"

#include "calls.h"
#include "channels.h"
#include "consuming.h"
#include "dead.h"
#include "meanwhile.h"
#include "sb_topology.h"

#define SEATS(n) ((sb_settings){{-1, -1, -1, 0, -1, -1, [SB_SETTING_SEATS] = (n) + 1}, 0})
#define CONSUMER (SB_NODE_DIRECT | SB_NODE_COUNTED)

static sb_queue *q;

static void begin(int64_t most) { q = queues[0] = new_queue("q", SEATS(most)); }
static uint32_t consumer(void) { return make_node(q->slot, 0, CONSUMER, 1, SB_NODE_NOT_INTERESTED); }
static void expect_begin(bool alone, sb_status should, const char *what) {
  uint32_t flags;
  expect_is(sb_admission_begin(t.c, q->slot, alone, &flags), should, what);
  expect_is(flags, SB_NODE_COUNTED | sb_exclusive_flags(q->shm), "the flags of its node");
}
static void lock(void) {
  int32_t holder;
  expect_is(sb_topology_begin(t.c, FOREVER, &holder), SB_OK, "the status of the lock");
}
static sb_consumer *open_consumer(sb_status *status) {
  return sb_consumer_open(t.c, queues, 1, 1, 0, ALONE, 0, status);
}
static void expect_status(sb_status should, const char *what) {
  sb_status status = SB_OK;
  sb_consumer *k = open_consumer(&status);
  expect_is(status, should, what);
  expect((k != NULL) == (should == SB_OK), "%s: there is %s consumer", what, k != NULL ? "a" : "no");
}
static sb_status configure(int64_t most) {
  sb_settings s = SEATS(most);
  int32_t holder;
  return sb_queue_configure(q, &s, false, FOREVER, &holder);
}
static bool flagged(void) { return (q->shm->flags & SB_QUEUE_SEATS) != 0; }

/* ---- seats ---- */

static void a_queue_without_seats(void) {
  begin(-1);
  expect(!flagged(), "the queue has seats");
  expect_begin(false, SB_OK, "the status without the lock");
  expect_is(sb_admission_enter(t.c, q->slot, consumer(), false), SB_OK, "the status of a consumer");
  expect_is(q->shm->tickets, 1, "the tickets that were drawn");
}
static void each_consumer_has_a_seat(void) {
  begin(2);
  expect(flagged(), "the queue has no seats");
  expect_begin(false, SB_UNLOCKED, "the status without the lock");
  (void)make_node(q->slot, 0, SB_NODE_DIRECT, 1, SB_NODE_INTERESTED); /* a get that waits */
  for (unsigned i = 0; i < 2; i++) {
    expect_begin(true, SB_OK, "the status of one that has a seat");
    expect_is(sb_admission_enter(t.c, q->slot, consumer(), true), SB_OK, "the status of a consumer");
  }
  expect_begin(true, SB_NO_SEAT, "the status of one that has none");
}
static void no_seat_at_all(void) {
  begin(0);
  lock();
  expect_status(SB_NO_SEAT, "the status of a consumer");
  expect_is(q->shm->had_consumer, 0, "whether the queue had a consumer");
  sb_topology_end(t.c);
}
static void consumers_take_the_lock(void) {
  begin(1);
  sb_status status;
  expect_status(SB_UNLOCKED, "the status without the lock");
  lock();
  sb_consumer *k = open_consumer(&status);
  expect_is(status, SB_OK, "the status with the lock");
  expect_status(SB_NO_SEAT, "the status of the second");
  sb_consumer_free(k);
  expect_status(SB_OK, "the status after the first has left");
  sb_topology_end(t.c);
  expect(!sb_topology_is_held(t.b), "the lock is held");
}
static void channels_take_the_lock(void) {
  begin(1);
  uint32_t number;
  sb_status status;
  sb_channel *channel = sb_channel_open(t.c, 1, &status);
  expect_is(sb_channel_consume(channel, q, 1, 0, 0, &number), SB_UNLOCKED, "the status without the lock");
  expect_is(q->shm->consumers, 0, "the consumers");
  lock();
  expect_is(sb_channel_consume(channel, q, 1, 0, 0, &number), SB_OK, "the status with the lock");
  expect_is(sb_channel_consume(channel, q, 1, 0, 0, &number), SB_NO_SEAT, "the status of the second");
  sb_topology_end(t.c);
}
static void the_dead_give_up_their_seats(void) {
  begin_dead();
  (void)queue_of_dead("q", SEATS(1));
  q = queues[0] = open_queue(&t, "q");
  uint32_t node;
  uint64_t token;
  if (sb_node_create(d.c, q->slot, 0, CONSUMER, 0, 1, &node, &token) != SB_OK) die("sb_node_create", 0);
  lock();
  expect_status(SB_NO_SEAT, "the status beside a consumer that lives");
  process_is_gone();
  expect_is(configure(0), SB_OK, "the status of a change beside one that is dead");
  sb_topology_end(t.c);
}
static void a_seat_of_the_dead(void) {
  begin_dead();
  (void)queue_of_dead("q", SEATS(1));
  q = queues[0] = open_queue(&t, "q");
  uint32_t node, number;
  uint64_t token;
  sb_status status;
  if (sb_node_create(d.c, q->slot, 0, CONSUMER, 0, 1, &node, &token) != SB_OK) die("sb_node_create", 0);
  process_is_gone();
  lock();
  sb_channel *channel = sb_channel_open(t.c, 1, &status);
  expect_is(sb_channel_consume(channel, q, 1, 0, 0, &number), SB_OK, "the status of a channel's consumer");
  expect_is(q->shm->consumers, 1, "the consumers");
  sb_topology_end(t.c);
}

/* ---- settings that change ---- */

static void fewer_than_there_are(void) {
  begin(-1);
  sb_status status;
  sb_consumer *first = open_consumer(&status);
  (void)open_consumer(&status);
  expect_is(configure(1), SB_NO_SEAT, "the status of one seat for two");
  expect(!flagged(), "the queue has seats after a change that was refused");
  expect_is(sb_setting(q->shm, SB_SETTING_SEATS), 0, "the setting");
  expect_is(configure(2), SB_OK, "the status of two seats for two");
  expect(flagged(), "the queue has no seats");
  expect_is(configure(1), SB_NO_SEAT, "the status of one seat instead of two");
  expect(flagged(), "the queue lost its seats by a change that was refused");
  expect_is(sb_setting(q->shm, SB_SETTING_SEATS), 3, "the setting");
  sb_consumer_free(first);
  expect_is(configure(1), SB_OK, "the status of one seat for one");
  expect_is(configure(-1), SB_OK, "the status of no limit");
  expect(!flagged(), "the queue has seats without a limit");
}
static uint32_t racer;
static void one_registers(void) { racer = consumer(); }
/* It registers without the lock when there are no seats yet: it is counted, or it sees the flag. */
static void one_registers_meanwhile(void) {
  begin(-1);
  meanwhile(&q->shm->flags, BEFORE_CHANGE, 1, one_registers);
  sb_status status = sb_admission_prepare(t.c, q->slot, 1);
  if (has_acted()) {
    expect_is(status, SB_NO_SEAT, "the status of a change beside one that registers before the flag");
    expect_is(sb_admission_enter(t.c, q->slot, racer, false), SB_OK, "the status of that consumer");
  }
  begin_dead();
}
static void the_flag_comes_meanwhile(void) {
  begin(-1);
  racer = consumer();
  expect_is(sb_admission_prepare(t.c, q->slot, 2), SB_OK, "the status of a change");
  expect_is(sb_admission_enter(t.c, q->slot, racer, false), SB_UNLOCKED, "the status of one that has no lock");
  expect_is(node_shm(racer)->ticket, 0, "its ticket");
  SB_STORE(&q->shm->settings[SB_SETTING_SEATS], 0, SB_RELAXED);
  expect_begin(true, SB_OK, "the status beside a flag without a limit, as a kill may leave it");
  expect_is(sb_admission_prepare(t.c, q->slot, 0), SB_OK, "the status of no limit");
  expect_is(sb_admission_prepare(t.c, q->slot, -1), SB_OK, "the status of none");
}

static const test_case CASES[] = {
    {"admission: none", "a queue without seats admits all, and takes no lock", a_queue_without_seats},
    {"admission: seats", "a consumer without a seat is refused", each_consumer_has_a_seat},
    {"admission: zero", "a queue without any seat has no consumer", no_seat_at_all},
    {"admission: lock", "a consumer registers under the topology lock", consumers_take_the_lock},
    {"admission: channel", "so does a consumer of a channel", channels_take_the_lock},
    {"admission: change, dead", "a change beside a dead consumer reaps it", the_dead_give_up_their_seats},
    {"admission: dead", "one that finds no seat reaps the dead", a_seat_of_the_dead},
    {"admission: fewer", "a setting that is too low is refused, and changes nothing", fewer_than_there_are},
    {"admission: registers", "one that registers before the flag is counted", one_registers_meanwhile},
    {"admission: flag", "one that sees the flag and has no lock is refused", the_flag_comes_meanwhile},
};
SUBJECT(CASES)
