// SPDX-License-Identifier: Apache-2.0
/* sb_api_bound: messages beyond the bound of a queue that evicts are removed, also when a process was killed while it
 * changed the counts. */
#include <string.h>

#include "calls.h"
#include "sb_api.h"
#include "sb_wait.h"

#define SIZE 2   /* of the ring */
#define MANY 17u /* processes; one call reaps 16 */

static sb_queue *ring; /* has one message too many, which a dead process hides */

/* As a process does that is killed after it paid for a victim, and before it evicts it. */
static void pay_and_die(test_broker *own) {
  sb_queue *q = open_queue(own, "ring");
  if (q == NULL) die("open", 0);
  sb_ledger_hinting(q->ledger, 1);
}
static void pay(void) { (void)SB_ADD(&ring->shm->taken, 1, SB_SEQ_CST); }
static void make_ring(void) {
  ring = open_new("ring", OF_RING(9));
  for (unsigned i = 0; i <= SIZE; i++) put(&t, ring, i);
  SB_STORE(&ring->shm->settings[SB_SETTING_RING_SIZE], (int64_t)SIZE, SB_SEQ_CST);
}
static uint32_t hide_one(void) {
  make_ring();
  pay();
  return die_attached(pay_and_die);
}
static uint64_t evicted(void) { return sb_ledger_sum(t.b, ring->shm, SB_COUNT_REPLACED); }
static uint64_t reaped(void) { return SB_LOAD(&t.b->header->reaped, SB_RELAXED); }
/* Calls it with the lock, as others do. True: the lock was given up meanwhile. */
static bool keep(void) {
  uint32_t busy = ring->busy;
  sb_lock(t.c);
  ask_to_forget(t.c);
  sb_api_keep_bound(ring);
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 1, "the lock");
  expect_is(ring->busy, busy, "how often the handle is used");
  bool given_up = !is_asked(t.c);
  sb_unlock(t.c);
  return given_up;
}

/* ---- the bound alone ---- */

static void what_is_too_many_goes(void) {
  make_ring();
  expect(!keep(), "the lock was given up");
  expect_is(evicted(), 1, "how many were evicted");
  expect_is(sb_queue_length(ring), SIZE, "how many are left");
}
static void room_is_told_of_when_there_is_some(void) {
  ring = open_new("ring", OF_RING(9));
  for (unsigned i = 0; i <= SIZE; i++) put(&t, ring, i);
  sb_watch *w = armed_watch(ring, true);
  (void)keep();
  expect_not_told(w, "what waits for room where nothing was evicted");
  SB_STORE(&ring->shm->settings[SB_SETTING_RING_SIZE], (int64_t)SIZE, SB_SEQ_CST);
  (void)keep();
  expect_told(w, "what waits for room");
}

/* ---- the dead ---- */

static void the_dead_are_reaped(void) {
  (void)hide_one();
  expect(keep(), "the lock was kept while a process was reaped");
  expect_is(reaped(), 1, "how many were reaped");
  expect_is(evicted(), 1, "how many were evicted");
  expect_is(ring->reap_again_ns, 0, "until when none is reaped");
}
static void the_living_are_not(void) {
  make_ring();
  pay();
  sb_connection *own = t.c;
  t.c = connect_to(&t);
  pay_and_die(&t);
  t.c = own;
  expect(!keep(), "the lock was given up for a process that lives");
  expect_is(reaped(), 0, "how many were reaped");
}
static void nobody_is(void) {
  make_ring();
  pay();
  expect(!keep(), "the lock was given up for nobody");
  expect_is(reaped(), 0, "how many were reaped");
}
/* Its number is free again: a reaper was killed before it took its ledgers away. */
static void a_number_that_is_free(void) {
  uint32_t dead = hide_one();
  for (uint32_t id = 1; id < SB_MAX_CONNECTIONS; id++) {
    uint64_t word = SB_LOAD(&t.b->connections[id], SB_RELAXED);
    if (sb_conn_state(word) == SB_CONN_LIVE && sb_conn_process(word) == dead)
      SB_STORE(&t.b->connections[id], word & ~UINT64_C(3), SB_SEQ_CST);
  }
  expect(!keep(), "the lock was given up");
  expect_is(reaped(), 0, "how many were reaped");
}
static void where_none_is_looked_for(void) {
  (void)hide_one();
  ring->reap_again_ns = FOREVER;
  expect(!keep(), "the lock was given up before the time");
  ring->reap_again_ns = 0;
  SB_STORE(&t.c->closed, 1u, SB_SEQ_CST);
  expect(!keep(), "the lock was given up for a closed connection");
  SB_STORE(&t.c->closed, 0u, SB_SEQ_CST);
  close_by_hand(ring);
  expect(!keep(), "the lock was given up for a deleted queue");
  SB_STORE(&ring->shm->state, ring->state, SB_SEQ_CST);
  expect_is(reaped(), 0, "how many were reaped");
  /* Bytes are limited, and no length: what is too large is seen by the counts alone. */
  SB_STORE(&ring->shm->settings[SB_SETTING_RING_SIZE], (int64_t)-1, SB_SEQ_CST);
  SB_STORE(&ring->shm->settings[SB_SETTING_OVERFLOW], (uint32_t)SB_OVERFLOW_DROP_HEAD, SB_SEQ_CST);
  SB_STORE(&ring->shm->settings[SB_SETTING_MAX_BYTES], (int64_t)1 << 20, SB_SEQ_CST);
  expect(!keep(), "the lock was given up for a limit of bytes");
  expect_is(reaped(), 0, "how many were reaped at the end");
}
static void many_dead_are_left_to_others(void) {
  make_ring();
  for (unsigned i = 0; i < MANY; i++) {
    pay();
    (void)die_attached(pay_and_die);
  }
  expect(keep(), "the lock was kept");
  expect_is(reaped(), MANY - 1, "how many were reaped by one call");
}

/* ---- beside another thread that reaps ---- */

static void (*meanwhile)(void);
static unsigned times_beside, times_busy;
static void beside_another(const char *site) {
  if (strcmp(site, "bound.beside") != 0) return;
  times_beside++;
  times_busy += ring->busy == 1 && atomic_load_explicit(&t.c->lock, memory_order_relaxed) == 0;
  if (meanwhile != NULL) meanwhile();
  meanwhile = NULL;
}
/* This call waits for a moment, in vain. On a busy machine that moment may be over before the call waits at all: the call
 * is made again then. */
static void keep_in_vain(void (*what)(void)) {
  meanwhile = what;
  times_beside = times_busy = 0;
  pthread_mutex_lock(&t.b->reap_lock);
  at_step = beside_another;
  do {
    ring->reap_again_ns = 0;
    expect(keep(), "the lock was kept while another thread reaped");
  } while (has_steps() && times_beside == 0);
  at_step = NULL;
  pthread_mutex_unlock(&t.b->reap_lock);
  expect_is(reaped(), 0, "how many were reaped");
}
static void another_thread_reaps(void) {
  (void)hide_one();
  uint64_t before = sb_now_ns();
  keep_in_vain(NULL);
  expect(ring->reap_again_ns >= before + UINT64_C(50000000), "the next call waits, too");
  if (has_steps()) expect(times_beside > 0, "it did not wait at all");
  expect_is(times_busy, times_beside, "how often it waited with the handle used, and without the lock");
  expect(!keep(), "the next call gives up the lock");
  expect_is(evicted(), 0, "how many were evicted");
}
static void shrink(void) { SB_STORE(&ring->shm->settings[SB_SETTING_RING_SIZE], (int64_t)SIZE - 1, SB_SEQ_CST); }
static void shrink_and_close(void) {
  shrink();
  SB_STORE(&t.c->closed, 1u, SB_SEQ_CST);
}
static void shrink_and_delete(void) {
  shrink();
  close_by_hand(ring);
}
static void afterwards_the_bound_is_kept(void) {
  if (!has_steps()) return;
  (void)hide_one();
  keep_in_vain(shrink);
  expect_is(evicted(), 1, "how many were evicted of a ring that became smaller");
}
static void afterwards_the_connection_is_closed(void) {
  if (!has_steps()) return;
  (void)hide_one();
  keep_in_vain(shrink_and_close);
  expect_is(evicted(), 0, "how many were evicted after the connection was closed");
}
static void afterwards_the_queue_is_deleted(void) {
  if (!has_steps()) return;
  (void)hide_one();
  keep_in_vain(shrink_and_delete);
  expect_is(evicted(), 0, "how many were evicted after the queue was deleted");
}
static sb_connection *reaper;
static uint32_t to_be_reaped;
static void reap_first(const char *site) {
  if (strstr(site, "sb_api_bound.c:") == NULL || atomic_load_explicit(&t.c->lock, memory_order_relaxed) != 0) return;
  at_step = NULL;
  expect(sb_housekeeper_reap_one(reaper, to_be_reaped), "the other connection did not reap it");
}
static void another_was_quicker(void) {
  if (!has_steps()) return;
  to_be_reaped = hide_one();
  reaper = connect_to(&t);
  at_step = reap_first;
  (void)keep();
  expect(at_step == NULL, "the other connection did not come before");
  expect_is(ring->reap_again_ns, 0, "until when none is reaped");
  expect_is(reaped(), 1, "how many were reaped");
}

/* ---- queues that others look at ---- */

static bool look_at(sb_queue *q) {
  sb_lock(t.c);
  bool open = sb_api_look_at_bound(q);
  sb_unlock(t.c);
  return open;
}
static void a_tail_that_lags_behind(void) {
  make_ring();
  SB_STORE(&ring->shm->tail, ring->base, SB_SEQ_CST); /* the producers were killed before they advanced it */
  expect(look_at(ring), "the connection is closed");
  expect_is(ring->shm->tail, ring->base + SIZE + 1, "the tail");
  expect_is(evicted(), 1, "how many were evicted");
  SB_STORE(&t.c->closed, 1u, SB_SEQ_CST);
  expect(!look_at(ring), "the connection is open");
}
static void queues_that_are_not_looked_at(void) {
  sb_queue *all[] = {open_new("unlimited", UNLIMITED), open_new("limited", AT_MOST(9)),
                     open_new("dropping", ((sb_settings){{-1, -1, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}))};
  for (unsigned i = 0; i < 3; i++) {
    put(&t, all[i], 1);
    SB_STORE(&all[i]->shm->tail, all[i]->base, SB_SEQ_CST);
    expect(look_at(all[i]), "the connection is closed");
    expect_is(all[i]->shm->tail, all[i]->base, "the tail of a queue that does not evict by counts");
  }
  make_ring();
  close_by_hand(ring);
  SB_STORE(&ring->shm->tail, ring->base, SB_SEQ_CST);
  expect(look_at(ring), "the connection is closed");
  expect_is(ring->shm->tail, ring->base, "the tail of a deleted queue");
  expect_is(evicted(), 0, "how many were evicted of a deleted queue");
}

/* ---- statistics ---- */

/* As a process does that is killed after it took a victim, and before its ledger counts that. */
static void take_and_die(test_broker *own) {
  sb_queue *q = open_queue(own, "ring");
  uint64_t token;
  sb_taken victim;
  if (q == NULL || sb_holding_take(own->c, &token) != SB_OK ||
      sb_take_oldest(q, SB_CELL_REMOVING, SB_ANY_POSITION, token, &victim) != SB_OK)
    die("take", 0);
  sb_ledger_hold(q->ledger, -1);
}
static uint64_t ready(void) {
  sb_queue_facts f;
  expect_is(sb_queue_describe(t.c, ring->slot, &f), SB_OK, "the status");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  return f.ready;
}
static void a_victim_that_was_not_counted(void) {
  make_ring();
  (void)die_attached(take_and_die);
  expect_is(ready(), SIZE, "how many are ready");
  expect_is(reaped(), 1, "how many were reaped");
}
static void more_victims_than_a_call_reaps(void) {
  ring = open_new("ring", OF_RING(99));
  for (unsigned i = 0; i < SIZE + MANY; i++) put(&t, ring, i);
  SB_STORE(&ring->shm->settings[SB_SETTING_RING_SIZE], (int64_t)SIZE, SB_SEQ_CST);
  for (unsigned i = 0; i < MANY; i++) (void)die_attached(take_and_die);
  expect_is(ready(), SIZE + 1, "how many are ready");
  expect_is(reaped(), MANY - 1, "how many were reaped by one call");
  expect_is(ready(), SIZE, "how many are ready the next time");
}
static void statistics_wait_for_none_that_lives(void) {
  make_ring();
  sb_connection *own = t.c;
  t.c = connect_to(&t);
  take_and_die(&t);
  t.c = own;
  expect_is(ready(), SIZE + 1, "how many are ready");
}
static void statistics_wait_in_vain(void) {
  make_ring();
  (void)die_attached(take_and_die);
  pthread_mutex_lock(&t.b->reap_lock);
  times_beside = 0;
  at_step = beside_another;
  expect_is(ready(), SIZE + 1, "how many are ready while another thread reaps");
  at_step = NULL;
  pthread_mutex_unlock(&t.b->reap_lock);
  if (has_steps()) expect(times_beside > 0, "it did not wait at all");
  expect_is(ready(), SIZE, "how many are ready afterwards");
}

/* ---- beside another process that reaps ---- */

static test_broker elsewhere; /* attached as another process is */
static uint32_t in_hand;
static void begin_elsewhere(uint32_t process) {
  elsewhere = t;
  attach(&elsewhere);
  in_hand = process;
  expect(sb_liveness_begin_reaping(elsewhere.b, process), "it is reaped already");
}
static void end_elsewhere(void) {
  sb_liveness_end_reaping(elsewhere.b, in_hand, false);
  (void)sb_housekeeper_reap_one(connect_to(&elsewhere), in_hand);
}
static void a_put_waits_for_another_process(void) {
  if (!has_steps()) return;
  begin_elsewhere(hide_one());
  meanwhile = end_elsewhere;
  times_beside = 0;
  at_step = beside_another;
  expect(keep(), "the lock was kept");
  at_step = NULL;
  expect_is(times_beside, 1, "how often it waited");
  expect_is(reaped(), 1, "how many were reaped");
  expect_is(evicted(), 1, "how many were evicted");
  expect_is(ring->reap_again_ns, 0, "until when none is reaped");
}
static void statistics_wait_for_another_process(void) {
  if (!has_steps()) return;
  make_ring();
  begin_elsewhere(die_attached(take_and_die));
  meanwhile = end_elsewhere;
  at_step = beside_another;
  expect_is(ready(), SIZE, "how many are ready");
  at_step = NULL;
  expect_is(reaped(), 1, "how many were reaped");
}
/* The ledger of the dead has another owner already, and the eviction is not counted yet. */
static void count_it(void) {
  sb_ledger_shm *l = sb_ledger_at(t.b, ring->shm->ledgers);
  sb_ledger_count(l, SB_COUNT_REPLACED, 1);
}
static void statistics_wait_for_one_that_counts(void) {
  if (!has_steps()) return;
  statistics_wait_for_none_that_lives();
  meanwhile = count_it;
  at_step = beside_another;
  expect_is(ready(), SIZE, "how many are ready after the eviction was counted");
  at_step = NULL;
}
static void statistics_within_the_bound(void) {
  make_ring();
  SB_STORE(&ring->shm->settings[SB_SETTING_RING_SIZE], (int64_t)SIZE + 1, SB_SEQ_CST);
  (void)die_attached(take_and_die);
  expect_is(ready(), SIZE + 1, "how many are ready in a ring of as many");
  SB_STORE(&ring->shm->settings[SB_SETTING_RING_SIZE], (int64_t)-1, SB_SEQ_CST);
  expect_is(ready(), SIZE + 1, "how many are ready without a bound");
  SB_STORE(&ring->shm->settings[SB_SETTING_MAX_LENGTH], (int64_t)SIZE, SB_SEQ_CST);
  expect_is(ready(), SIZE + 1, "how many are ready where a limit refuses");
  expect_is(reaped(), 0, "how many were reaped");
  SB_STORE(&ring->shm->settings[SB_SETTING_OVERFLOW], (uint32_t)SB_OVERFLOW_DROP_HEAD, SB_SEQ_CST);
  expect_is(ready(), SIZE, "how many are ready where a limit evicts");
}

static const test_case CASES[] = {
    {"api_bound: evict", "what is too many goes", what_is_too_many_goes},
    {"api_bound: room", "room is told of where something was evicted", room_is_told_of_when_there_is_some},
    {"api_bound: dead", "a dead process that hides what is too many is reaped", the_dead_are_reaped},
    {"api_bound: living", "a process that lives is not waited for", the_living_are_not},
    {"api_bound: nobody", "a doubt that no process explains stays", nobody_is},
    {"api_bound: free", "a number that is free is no dead process", a_number_that_is_free},
    {"api_bound: not now", "where the bound is kept, or of no account, no process is looked for",
     where_none_is_looked_for},
    {"api_bound: many", "one call reaps sixteen", many_dead_are_left_to_others},
    {"api_bound: in vain", "a call waits in vain once, and the next ones do not", another_thread_reaps},
    {"api_bound: after", "after a wait in vain the bound is kept as far as the counts say",
     afterwards_the_bound_is_kept},
    {"api_bound: closed", "after a wait nothing of a closed connection is touched",
     afterwards_the_connection_is_closed},
    {"api_bound: deleted", "after a wait nothing of a deleted queue is touched", afterwards_the_queue_is_deleted},
    {"api_bound: quicker", "another connection may be quicker", another_was_quicker},
    {"api_bound: tail", "a tail that lags behind hides nothing", a_tail_that_lags_behind},
    {"api_bound: others", "queues that do not evict are left alone", queues_that_are_not_looked_at},
    {"api_bound: not counted", "statistics reap a process that did not count its victim",
     a_victim_that_was_not_counted},
    {"api_bound: sixteen", "statistics reap sixteen", more_victims_than_a_call_reaps},
    {"api_bound: evicting", "statistics reap no process that lives", statistics_wait_for_none_that_lives},
    {"api_bound: beside", "statistics wait for a thread that reaps, and in vain once", statistics_wait_in_vain},
    {"api_bound: elsewhere", "a call waits for another process that reaps", a_put_waits_for_another_process},
    {"api_bound: statistics elsewhere", "statistics wait for another process that reaps",
     statistics_wait_for_another_process},
    {"api_bound: counting", "statistics wait for a process that counts", statistics_wait_for_one_that_counts},
    {"api_bound: within", "within the bound, statistics reap none", statistics_within_the_bound},
};
SUBJECT(CASES)
