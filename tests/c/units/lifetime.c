// SPDX-License-Identifier: Apache-2.0
/* sb_lifetime: the owner of an exclusive queue, when the time of a queue has come, and what its end changes. */
#include "sb_lifetime.h"

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_notify.h"
#include "sb_watch.h"
#include "system.h"

#define OWNER 77u
#define EPOCH 5u
#define A_MILLISECOND UINT64_C(1000000)
#define A_SECOND UINT64_C(1000000000)

static sb_queue *q;
static void begin(uint32_t flags) {
  q = queue_named("q", (sb_settings){{-1, -1, -1, 0, -1, (flags & SB_QUEUE_EXPIRES) != 0 ? 1000 : -1}, flags});
}
static void set_connection(unsigned id, unsigned state, uint64_t epoch) {
  SB_STORE(&t.b->connections[id], sb_conn_word(state, 0, 0, epoch), SB_RELAXED);
}
static void set_owner(uint32_t id, uint64_t epoch) {
  SB_STORE(&q->shm->owner_connection, id, SB_RELAXED);
  SB_STORE(&q->shm->owner_epoch, epoch, SB_RELAXED);
}
static void set_flags(uint32_t flags) { SB_STORE(&q->shm->flags, flags, SB_RELAXED); }
static void set_consumers(int32_t n) { SB_STORE(&q->shm->consumers, n, SB_RELAXED); }
static void had_consumer(void) { SB_STORE(&q->shm->had_consumer, 1u, SB_RELAXED); }
static bool locked(void) { return sb_lifetime_locked(t.b, q->shm, t.c->id); }
static bool is_open(void) { return SB_BITS(q->shm->state, 0, 2) == SB_QUEUE_OPEN; }
static bool over(unsigned dead) { return sb_lifetime_over(t.b, q->shm, dead); }

/* ---- owners ---- */

static void a_queue_has_an_owner(void) {
  begin(SB_QUEUE_EXCLUSIVE);
  set_owner(0, 0);
  sb_lifetime_own(q->shm, t.c);
  expect_is(q->shm->owner_connection, t.c->id, "the owner");
  expect_is(q->shm->owner_epoch, sb_conn_epoch(t.b->connections[t.c->id]), "its epoch");
  expect(q->shm->owner_epoch != 0, "a connection has no epoch");
  expect(!locked(), "it is locked for its owner");
  expect(!over(0), "its owner lives, and it is over");
}
static void when_an_owner_lives(void) {
  const struct {
    unsigned id, state;
    uint64_t epoch;
    bool lives;
  } owners[] = {{OWNER, SB_CONN_LIVE, EPOCH, true},
                {OWNER, SB_CONN_FREE, EPOCH, false},
                {OWNER, SB_CONN_LIVE, EPOCH + 1, false},
                {0, SB_CONN_LIVE, EPOCH, false}}; /* number 0 is no connection */
  begin(SB_QUEUE_EXCLUSIVE);
  for (unsigned i = 0; i < sizeof owners / sizeof owners[0]; i++) {
    set_owner(owners[i].id, EPOCH);
    set_connection(owners[i].id, owners[i].state, owners[i].epoch);
    expect(locked() == owners[i].lives, "owner %u: it is locked by %d", i, locked());
    expect(over(0) == !owners[i].lives, "owner %u: it is over by %d", i, over(0));
  }
  expect(over(OWNER), "a queue of nobody stays when another connection ends");
  set_owner(OWNER, EPOCH);
  set_connection(OWNER, SB_CONN_LIVE, EPOCH);
  expect(over(OWNER), "it is not over with its owner");
  expect(!over(OWNER + 1), "it is over with another connection");
  expect(!sb_lifetime_locked(t.b, q->shm, OWNER), "it is locked for its owner");
  set_flags(0);
  expect(!locked(), "a queue for all is locked");
}

/* ---- time ---- */

static void when_the_last_consumer_is_gone(void) {
  begin(SB_QUEUE_AUTO_DELETE);
  set_owner(OWNER, EPOCH); /* who does not live, which matters to exclusive queues only */
  expect(!over(0), "it is over, and never had a consumer");
  had_consumer();
  expect(over(0), "it is not over without a consumer");
  set_consumers(1);
  expect(!over(0), "it is over with a consumer");
  set_consumers(0);
  set_flags(SB_QUEUE_EXPIRES);
  SB_STORE(&q->shm->settings[SB_SETTING_EXPIRES_MS], 3600000, SB_RELAXED);
  SB_STORE(&q->shm->used_ns, sb_now_ns(), SB_RELAXED);
  expect(!over(0), "a queue that stays without consumers is over");
  set_flags(0);
  expect(!over(0), "a queue without an end is over");
}
static void when_it_expires(void) {
  begin(SB_QUEUE_EXPIRES);
  answer_for_the_system();
  SB_STORE(&q->shm->settings[SB_SETTING_EXPIRES_MS], 10, SB_RELAXED);
  SB_STORE(&q->shm->used_ns, says.now_ns - 10 * A_MILLISECOND + 1, SB_RELAXED);
  expect(!over(0), "it is over too early");
  SB_STORE(&q->shm->used_ns, says.now_ns - 10 * A_MILLISECOND, SB_RELAXED);
  expect(over(0), "it is not over");
  set_consumers(1);
  expect(!over(0), "it is over with a consumer");
  set_consumers(0);
  SB_STORE(&q->shm->interested, 1, SB_RELAXED);
  expect(!over(0), "it is over with a get that waits");
  SB_STORE(&q->shm->interested, 0, SB_RELAXED);
  SB_STORE(&q->shm->notified, 1, SB_RELAXED);
  expect(!over(0), "it is over with a get that was notified");
  SB_STORE(&q->shm->notified, 0, SB_RELAXED);
  expect(over(0), "it is not over without one");
}
/* The value of the setting goes before the flag that says that there is one; the process that removes it may be stopped
 * or killed between the two. */
static void when_the_setting_is_being_removed(void) {
  const uint64_t used[] = {0, 1, UINT64_C(999999)}; /* how much later than this look at the time */
  begin(SB_QUEUE_EXPIRES);
  answer_for_the_system();
  SB_STORE(&q->shm->settings[SB_SETTING_EXPIRES_MS], -1, SB_RELAXED);
  for (unsigned i = 0; i < 3; i++) {
    SB_STORE(&q->shm->used_ns, says.now_ns + used[i], SB_RELAXED);
    expect(!over(0), "%u: a queue that expires no more is over", i);
  }
  SB_STORE(&q->shm->used_ns, 0, SB_RELAXED);
  expect(!over(0), "a queue that was not used for long, and expires no more, is over");
}
static void expect_used(bool used, const char *what) {
  expect_is(q->shm->used_ns, used ? says.now_ns : 7, what);
  SB_STORE(&q->shm->used_ns, 7, SB_RELAXED);
}
static void when_a_queue_is_used(void) {
  begin(SB_QUEUE_EXPIRES);
  answer_for_the_system();
  SB_STORE(&q->shm->used_ns, 7, SB_RELAXED);
  sb_lifetime_used(q->shm);
  expect_used(true, "the time of a use");
  sb_lifetime_consumed(q);
  expect_used(true, "the time of a consumer");
  set_flags(SB_QUEUE_AUTO_DELETE);
  sb_lifetime_used(q->shm);
  sb_lifetime_consumed(q);
  expect_used(false, "the time of a queue that does not expire");
  set_flags(SB_QUEUE_EXPIRES);
  SB_STORE(&q->shm->state, q->state + 1, SB_RELAXED);
  sb_lifetime_consumed(q);
  expect_used(false, "the time of a queue that is closed");
}

static void use_a_little_later(void) {
  says.now_ns += A_MILLISECOND;
  sb_lifetime_used(q->shm);
}
/* Another process uses the queue after the last look at the time: that is no use of ages ago. */
static void a_use_that_comes_meanwhile(void) {
  begin(SB_QUEUE_EXPIRES);
  answer_for_the_system();
  (void)put(&t, q, 1);
  SB_STORE(&q->shm->used_ns, says.now_ns, SB_RELAXED);
  meanwhile(&q->shm->used_ns, BEFORE_LOAD, 1, use_a_little_later);
  expect(!sb_lifetime_end(q, 0), "it ended beside a use");
  (void)has_acted();
  SB_STORE(&q->shm->used_ns, says.now_ns + 1, SB_RELAXED);
  expect(!sb_lifetime_end(q, 0), "it ended before its last use");
  expect(is_open(), "it is closed");
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the cell of its message");
}
static void nothing(sb_target *target) { (void)target; }
static sb_watch watch;
static void arm_again(void) {
  says.now_ns += A_MILLISECOND;
  expect_is(sb_watch_want(&watch, 0), SB_OK, "the status of a watch that is armed again");
}
/* The node of a watch that was told is INTERESTED again between the looks at the two counts, and so is in neither. */
static void a_watch_that_is_armed_again_meanwhile(void) {
  static const sb_target_kind kind = {.end = nothing};
  if (!has_steps()) return;
  begin(SB_QUEUE_EXPIRES);
  answer_for_the_system();
  watch = (sb_watch){.target = {.c = t.c, .kind = &kind}, .q = q};
  if (sb_watch_begin(&watch) != SB_OK || sb_watch_want(&watch, 0) != SB_OK) die("sb_watch_want", 0);
  (void)put(&t, q, 1);
  expect(sb_watch_was_told(&watch), "it was not told");
  SB_STORE(&q->shm->used_ns, says.now_ns - 10 * A_SECOND, SB_RELAXED);
  meanwhile(&q->shm->interested, AFTER_LOAD, 1, arm_again);
  expect(!over(0), "it is over with an armed watch");
  (void)has_acted();
  expect(!over(0), "it is over with an armed watch afterwards");
}

/* ---- the end ---- */

static uint32_t node_with(uint32_t flags, unsigned state) {
  uint32_t node;
  uint64_t token;
  if (sb_node_create(t.c, q->slot, 0, flags, 0, 0, &node, &token) != SB_OK) die("sb_node_create", 0);
  if (state != SB_NODE_NOT_INTERESTED && !sb_node_move(t.c, node, SB_ANY_STATE, state)) die("sb_node_move", 0);
  return node;
}
static void expect_ended(uint32_t count) {
  expect_is(t.b->header->queues_ended, count, "the queues that ended");
  expect_is(t.b->header->queues_closed, count, "the queues that were closed");
  expect_is(is_open(), count == 0, "whether it is open");
}
static void a_queue_ends(void) {
  begin(SB_QUEUE_AUTO_DELETE);
  expect(!sb_lifetime_end(q, 0), "it ended before its time");
  expect_ended(0);
  uint32_t keeper = node_with(SB_NODE_DIRECT, SB_NODE_NOT_INTERESTED);
  uint32_t waits = node_with(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  uint32_t for_memory = node_with(SB_NODE_DIRECT | SB_NODE_ROOM | SB_NODE_MEMORY, SB_NODE_INTERESTED);
  had_consumer();
  sb_node_shm *housekeeper = sb_slot_at(t.b, keeper);
  SB_STORE(&housekeeper->queue, 0u, SB_RELAXED);
  SB_STORE(&housekeeper->registration, 0u, SB_RELAXED);
  SB_STORE(&housekeeper->wake, (uint32_t)SB_WAKE_ARMED, SB_RELAXED);
  SB_STORE(&t.b->header->housekeeper_waiter, keeper, SB_RELAXED);
  uint64_t version = t.b->header->topology_epoch;
  expect(sb_lifetime_end(q, 0), "it did not end");
  expect_ended(1);
  expect_is(t.b->header->topology_epoch, version + 1, "the version of the topology");
  expect_is(housekeeper->wake & 3u, SB_WAKE_NOTIFIED, "the housekeeper's wake word");
  expect_is(node_wakes(waits), 1, "how often a consumer was told");
  expect_is(node_state(for_memory), SB_NODE_NOTIFIED, "the state of one that waits for memory");
  expect(!sb_lifetime_end(q, 0), "it ended twice");
  expect_ended(1);
}
static void a_queue_that_was_closed(void) {
  begin(SB_QUEUE_AUTO_DELETE);
  had_consumer();
  (void)put(&t, q, 1);
  SB_STORE(&q->shm->state, q->state + 1, SB_RELAXED);
  expect(!sb_lifetime_end(q, 0), "it ended");
  expect_is(cell_state(q, 1), SB_CELL_FREE, "the cell behind its messages");
  expect_is(t.b->header->queues_ended, 0, "the queues that ended");
}
/* Its owner is gone: no other connection may consume from it, and consumers do not keep it. */
static void a_queue_without_an_owner(void) {
  begin(SB_QUEUE_EXCLUSIVE);
  set_owner(OWNER, EPOCH);
  set_connection(OWNER, SB_CONN_LIVE, EPOCH);
  set_consumers(1);
  expect(!sb_lifetime_end(q, 0), "it ended with its owner alive");
  expect(sb_lifetime_end(q, OWNER), "it did not end");
  expect_ended(1);
}
static void a_consumer_comes(void) { set_consumers(1); }
static void a_consumer_that_comes_meanwhile(void) {
  const uint32_t flags[] = {SB_QUEUE_AUTO_DELETE, SB_QUEUE_AUTO_DELETE | SB_QUEUE_EXCLUSIVE};
  if (!has_steps()) return;
  for (unsigned i = 0; i < 2; i++) {
    q = queue_named(i == 0 ? "all" : "mine", (sb_settings){{-1, -1, -1, 0, -1, -1}, flags[i]});
    set_owner(OWNER, EPOCH);
    if (i == 1) sb_lifetime_own(q->shm, t.c);
    had_consumer();
    meanwhile(&q->shm->consumers, AFTER_LOAD, 1, a_consumer_comes);
    expect(!sb_lifetime_end(q, 0), "it ended beside a consumer");
    (void)has_acted();
    expect_ended(0);
  }
}

static const test_case CASES[] = {
    {"lifetime: owner", "an exclusive queue is the connection's that declared it", a_queue_has_an_owner},
    {"lifetime: lives", "an exclusive queue is locked, and stays, while its owner lives", when_an_owner_lives},
    {"lifetime: last consumer", "an auto-delete queue is over after its last consumer", when_the_last_consumer_is_gone},
    {"lifetime: expires", "a queue that expires is over when it was unused for that long", when_it_expires},
    {"lifetime: use meanwhile", "a use that comes meanwhile keeps the queue", a_use_that_comes_meanwhile},
    {"lifetime: armed meanwhile", "a watch that is armed again meanwhile keeps the queue",
     a_watch_that_is_armed_again_meanwhile},
    {"lifetime: removed", "an expiry that is being removed ends no queue", when_the_setting_is_being_removed},
    {"lifetime: used", "only an open queue that expires notes its last use", when_a_queue_is_used},
    {"lifetime: end", "an end is counted once, and told to all who wait", a_queue_ends},
    {"lifetime: closed", "a queue that was closed does not end", a_queue_that_was_closed},
    {"lifetime: orphan", "consumers do not keep a queue without its owner", a_queue_without_an_owner},
    {"lifetime: comes", "a consumer that comes meanwhile keeps the queue", a_consumer_that_comes_meanwhile},
};
SUBJECT(CASES)
