// SPDX-License-Identifier: Apache-2.0
/* sb_io: the turns that an IO thread gives, when it sleeps, and what it checks when its wait times out. */
#include "sb_io.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "io_thread.h"
#include "sb_slab.h"
#include "waiting.h"

#define ONE_BIT 3u /* of two targets */
#define SIGNALS 64

static sb_connection *c;
static fake_target *fakes[80];

/* There is a housekeeper, and this process is the only one. */
static void begin(unsigned count) {
  c = t.c;
  SB_STORE(&t.b->keeps_house, 1u, SB_RELAXED);
  for (unsigned i = 0; i < count; i++) fakes[i] = add_fake(c);
}
static void close_it(fake_target *f) { SB_STORE(&f->as_consumer.c->closed, 1u, SB_RELAXED); }
static void expect_turns(const uint32_t *should, unsigned count, const char *what) {
  expect_is(turns, count, what);
  for (unsigned i = 0; i < count && i < turns; i++) expect_is(turn_of[i], should[i], what);
}

/* ---- its node ---- */

static void its_node(void) {
  uint32_t other = make_node(queue_number(0)->slot, 0, 0, 0, SB_NODE_NOT_INTERESTED);
  uint32_t units = sb_class_units(sb_class_of_kind(t.b, SB_KIND_NODE)), first = other / SB_CHUNK_UNITS * SB_CHUNK_UNITS;
  for (uint32_t slot = first; slot + units <= first + SB_CHUNK_UNITS; slot += units) {
    if (sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)) == SB_SLOT_FREE)
      memset(sb_slot_at(t.b, slot), 0x55, units * SB_UNIT);
  }
  expect_is(sb_io_prepare(t.c), SB_OK, "the status");
  expect_is(t.c->shm->waiter, t.c->io_node, "whom notifiers ring");
  expect_is(node_shm(t.c->io_node)->flags, SB_NODE_DIRECT, "its flags");
  expect_is(node_shm(t.c->io_node)->queue, 0, "its queue");
  expect_is(sb_holding_slot(SB_LOAD(&sb_holding_at(t.b, t.c->io_token)->what, SB_RELAXED)), t.c->io_node,
            "its holding");
}
static void no_room_for_its_node(void) {
  uint32_t before = t.c->shm->waiter;
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_NODE));
  expect_is(sb_io_prepare(t.c), SB_NO_MEMORY, "the status");
  expect_is(t.c->shm->waiter, before, "whom notifiers ring");
}

/* ---- turns ---- */

static void end_after_two_rounds(fake_target *f) {
  if (turns == 8) close_it(f);
  f->more = turns <= 4;
}
static void targets_in_rotation(void) {
  const uint32_t should[] = {3, 5, 70, 0, 3, 5, 70, 0};
  begin(80);
  for (unsigned i = 0; i < 4; i++) {
    fakes[should[i]]->in_turn = end_after_two_rounds;
    tell(c, should[i]);
  }
  expect_is(run_io(c, 1, NULL), SB_CLOSED, "the status");
  expect_turns(should, 8, "the turns: those that have more to do come again");
  for (unsigned i = 0; i < 4; i++) expect(fakes[should[i]]->locked, "a turn without the lock");
  expect(!c->taking_turns, "turns are being taken when it ended");
  expect_is(says.sleeps, 0, "the sleeps");
}
/* Two targets of one bit have their turns together, as long as either has more to do. */
static void targets_of_one_bit(void) {
  begin(ONE_BIT + 1);
  c->target_count += SB_MAX_TARGETS;
  c->next_target = SB_MAX_TARGETS + ONE_BIT;
  fake_target *second = add_fake(c);
  c->target_count -= SB_MAX_TARGETS;
  const uint32_t should[] = {ONE_BIT, SB_MAX_TARGETS + ONE_BIT, ONE_BIT, SB_MAX_TARGETS + ONE_BIT};
  fakes[ONE_BIT]->more = true;
  fakes[ONE_BIT]->in_turn = end_after_two_rounds;
  second->in_turn = NULL;
  tell(c, ONE_BIT);
  expect_is(run_io(c, 1, NULL), SB_CLOSED, "the status");
  expect(turns >= 4, "the second turn did not come: %u turns", turns);
  for (unsigned i = 0; i < 4; i++) expect_is(turn_of[i], should[i], "the turns of one bit");
}
static void tell_another(fake_target *f) {
  if (f->turns == 1) tell(f->as_consumer.c, 1);
  close_it(f);
}
static void some_turns_for_each_lock(void) {
  begin(2);
  fakes[0]->more = true;
  fakes[0]->in_turn = close_it;
  tell(c, 0);
  expect_is(run_io(c, 1, NULL), SB_CLOSED, "the status");
  expect_is(turns, 16, "the turns before it sees that it is closed");
}
static void work_that_comes_in_a_turn(void) {
  begin(2);
  fakes[0]->in_turn = tell_another;
  tell(c, 0);
  expect_is(run_io(c, 1, NULL), SB_CLOSED, "the status");
  expect_is(fakes[1]->turns, 1, "the turns of what came in a turn");
}
static void a_closed_connection_takes_no_turns(void) {
  begin(1);
  sb_queue *deleted = queue_number(0);
  remove_queue(0);
  c->acks_tick_ns = 1;
  tell(c, 0);
  SB_STORE(&c->closed, 1u, SB_RELAXED);
  uint32_t handles = c->handle_count;
  expect_is(run_io(c, 1, NULL), SB_CLOSED, "the status");
  expect_is(turns, 0, "the turns");
  expect_is(c->acks_idle, 0, "its looks at acknowledgements");
  expect_is(c->handle_count, handles, "its handles");
  expect(deleted->shm != NULL, "its queue");
}
static void handles_of_deleted_queues(void) {
  begin(0);
  (void)queue_number(0);
  (void)queue_number(1);
  remove_queue(0);
  expect_is(c->handle_count, 2, "the handles");
  expect_is(run_io(c, 1, NULL), SB_CLOSED, "the status");
  expect_is(c->handle_count, 1, "the handles that are left");
}

static void needs_memory(fake_target *f) { f->as_consumer.c->must_grow = true; }
static void memory_is_asked_for(void) {
  begin(2);
  fakes[0]->more = true;
  fakes[0]->in_turn = needs_memory;
  tell(c, 0);
  tell(c, 1);
  expect_is(run_io(c, 1, NULL), SB_GROW, "the status");
  expect_is(turns, 2, "the turns: that of target 1, and one of target 0");
  expect(!c->must_grow, "it asks again");
  sb_channel *channel = (sb_channel *)(void *)fakes[1];
  c->ready_first = channel;
  c->must_grow = true;
  expect_is(run_io(c, 1, NULL), SB_READY, "the status when a channel is to be handed over, too");
  expect(!c->must_grow, "it asks again after it handed over");
}

/* ---- sleeps ---- */

/* What comes between the last look and the sleep is seen before the sleep. */
static enum { WORK, READY, CLOSED } what_comes;
static void comes_when_armed(const char *site) {
  if (strstr(site, "sb_wait.c") == NULL) return;
  at_step = NULL;
  if (what_comes == WORK) tell(c, 0);
  if (what_comes == CLOSED) SB_STORE(&c->closed, 1u, SB_RELAXED);
  if (what_comes == READY) {
    c->ready_first = (sb_channel *)(void *)fakes[1];
    SB_STORE(&c->ready, 1u, SB_RELAXED);
  }
}
static void what_comes_before_a_sleep(void) {
  static const sb_status should[] = {SB_CLOSED, SB_READY, SB_CLOSED};
  begin(2);
  if (!has_steps()) return;
  fakes[0]->in_turn = close_it;
  for (what_comes = WORK; what_comes <= CLOSED; what_comes++) {
    SB_STORE(&c->closed, 0u, SB_RELAXED);
    c->ready_first = NULL;
    SB_STORE(&c->ready, 0u, SB_RELAXED);
    at_step = comes_when_armed;
    expect_is(run_io(c, 2, NULL), should[what_comes], "the status");
    expect_is(says.sleeps, 0, "the sleeps");
  }
  expect_is(fakes[0]->turns, 1, "the turns");
}
static void the_broker_is_being_stopped(void) {
  begin(2);
  fake_target *plain = add_plain_fake(c);
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  expect_is(run_io(c, 1, NULL), SB_STOPPING, "the status");
  expect_is(fakes[0]->signals, 1, "the signals of the first target");
  expect_is(fakes[1]->signals, 1, "the signals of the second target");
  expect(fakes[0]->locked && fakes[1]->locked, "signals without the lock");
  expect_is(plain->signals, 0, "the signals of a target that nobody waits for");
  expect_is(says.sleeps, 0, "the sleeps");
}
static bool blocked[SIGNALS + 1];
static void note_signals(fake_target *f) {
  sigset_t now;
  (void)pthread_sigmask(SIG_SETMASK, NULL, &now);
  for (int i = 1; i <= SIGNALS; i++) blocked[i] = sigismember(&now, i) == 1;
  close_it(f);
}
static void signals_are_for_other_threads(void) {
  const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGWINCH, 40, SIGNALS};
  begin(1);
  fakes[0]->in_turn = note_signals;
  tell(c, 0);
  (void)run_io(c, 1, NULL);
  for (unsigned i = 0; i < sizeof signals / sizeof signals[0]; i++) {
    expect(blocked[signals[i]], "signal %d is not blocked in the IO thread", signals[i]);
  }
}

/* ---- looks ---- */

static unsigned looks_at[16];
static void ring_now_and_then(unsigned sleep) {
  static const uint64_t after[] = {0, 0, 500, 1, 499, 100, 0, 100, 400, 600};
  looks_at[sleep] = fakes[0]->wants_asked;
  if (after[sleep] != 0) ring_after(after[sleep] * MILLISECONDS);
}
/* It looks everywhere when its time is up, which begins with each look, and when it has not for longer than that. */
static void when_it_looks(void) {
  static const unsigned should[] = {0, 0, 1, 1, 2, 2, 3, 4, 4, 4};
  static const uint64_t sleeps[] = {0, 500, 500, 0, 500, 1, 500, 500, 400, 0};
  begin(1);
  expect_is(run_io(c, 10, ring_now_and_then), SB_CLOSED, "the status");
  for (unsigned i = 1; i < 10; i++) {
    expect_is(slept_ns[i], sleeps[i] * MILLISECONDS, "how long it sleeps");
    expect_is(looks_at[i], should[i], "the looks before a sleep");
  }
  expect_is(fakes[0]->wants_asked, 5, "the looks in the end");
  expect(fakes[0]->locked, "a look without the lock");
}
static void who_wants_a_turn_has_it(void) {
  begin(3);
  fake_target *plain = add_plain_fake(c);
  fakes[1]->wants = plain->wants = true;
  expect_is(run_io(c, 2, NULL), SB_CLOSED, "the status");
  const uint32_t should[] = {1, 3};
  expect_turns(should, 2, "the turns of those that want one");
}

static uint32_t repairs(bool explained) {
  return SB_LOAD(explained ? &t.b->header->explained_repairs[SB_REPAIR_NOTIFICATION]
                           : &t.b->header->repairs[SB_REPAIR_NOTIFICATION],
                 SB_RELAXED);
}
static void something_else_is_overlooked(fake_target *f) { f->entry += f->overlooked_asked == 2; }
static void it_is_told_meanwhile(fake_target *f) {
  if (f->overlooked_asked == 2) tell(f->as_consumer.c, 40);
}
static void another_queue_is_overlooked(fake_target *f) {
  if (f->overlooked_asked == 2) f->queue = queue_number(1);
}
static void somebody_dies(fake_target *f) { (void)SB_ADD(&t.b->header->reaped, f->overlooked_asked == 1, SB_RELAXED); }
/* A consumer that was not woken: a defect, unless something explains it, or it goes away while we look. */
static void expect_judged(void (*looked)(fake_target *f), uint64_t entry, unsigned asked, unsigned defects,
                          unsigned explained, const char *what) {
  SB_STORE(&t.b->header->repairs[SB_REPAIR_NOTIFICATION], 0u, SB_RELAXED);
  SB_STORE(&t.b->header->explained_repairs[SB_REPAIR_NOTIFICATION], 0u, SB_RELAXED);
  SB_STORE(&c->closed, 0u, SB_RELAXED);
  fakes[0]->overlooked_asked = 0;
  fakes[0]->looked = looked;
  fakes[0]->entry = entry;
  fakes[0]->queue = queue_number(0);
  (void)run_io(c, 2, NULL);
  expect_is(fakes[0]->overlooked_asked, asked, what);
  expect_is(repairs(false), defects, what);
  expect_is(repairs(true), explained, what);
}
static void what_was_overlooked_is_counted(void) {
  begin(1);
  (void)queue_number(0);
  (void)queue_number(1);
  expect_judged(NULL, 0, 1, 0, 0, "nothing is overlooked");
  expect_judged(NULL, 7, 2, 1, 0, "something is overlooked");
  expect_judged(something_else_is_overlooked, 7, 2, 0, 0, "something else is overlooked");
  expect_judged(another_queue_is_overlooked, 7, 2, 0, 0, "something is overlooked in another queue");
  expect_judged(it_is_told_meanwhile, 7, 2, 0, 0, "it is told meanwhile");
  c->looked_deaths = 5; /* another number than now */
  expect_judged(NULL, 7, 2, 0, 1, "somebody died since the last look");
  expect_is(c->looked_deaths, 0, "the deaths that are known");
  expect_judged(somebody_dies, 7, 2, 0, 1, "somebody dies during the look");
  expect_is(c->looked_deaths, 0, "the deaths that are known: those when the look began");
}
/* Of one bit: the first has a turn to come, so the second is not asked what it overlooked. */
static void who_has_a_turn_is_not_judged(void) {
  begin(1);
  c->target_count += SB_MAX_TARGETS;
  c->next_target = SB_MAX_TARGETS;
  fake_target *second = add_fake(c);
  c->target_count -= SB_MAX_TARGETS;
  fakes[0]->wants = true;
  expect_is(run_io(c, 2, NULL), SB_CLOSED, "the status");
  expect_is(fakes[0]->overlooked_asked, 1, "how often the first one was asked");
  expect_is(second->overlooked_asked, 0, "how often the second one was asked");
  expect_is(second->wants_asked, 1, "how often the second one was asked for work");
}

/* ---- acknowledgements ---- */

static sb_consumer *k;
static unsigned acks_at[8], idle_at[8];
static void note_acks(unsigned sleep) {
  acks_at[sleep] = k->ack_count;
  idle_at[sleep] = c->acks_idle;
}
static void one_acknowledgement(uint64_t due_after) {
  k = consume(1, 4, 0, 4);
  put_some(0, 1, 1);
  sb_consumer_pull(k);
  (void)sb_consumer_ack(k, hand_out(k));
  k->acks_due_ns = UINT64_C(1000) * 1000 * MILLISECONDS + due_after; /* the time of answer_for_the_system */
}
static void acknowledgements_that_are_due(void) {
  begin(1);
  one_acknowledgement(10 * MILLISECONDS);
  c->acks_tick_ns = 5 * MILLISECONDS;
  expect_is(run_io(c, 4, note_acks), SB_CLOSED, "the status");
  for (unsigned i = 1; i <= 3; i++) expect_is(slept_ns[i], 5 * MILLISECONDS, "how long it sleeps");
  expect_is(acks_at[1], 1, "what waits before the first sleep");
  expect_is(acks_at[2], 1, "what waits before it is due");
  expect_is(acks_at[3], 0, "what waits when it is due");
  expect_is(idle_at[2], 0, "the looks that found nothing, while something waits");
  expect_is(idle_at[3], 0, "the looks that found nothing, when it was sent");
  expect_is(c->acks_idle, 1, "the looks that found nothing, after that");
  expect_is(fakes[0]->as_consumer.ack_count, 1, "what is no consumer's");
  expect_is(fakes[0]->wants_asked, 0, "the looks everywhere");
}
static void nobody_acknowledges(void) {
  begin(0);
  k = consume(1, 4, 0, 4);
  c->acks_tick_ns = 5 * MILLISECONDS;
  c->acks_idle = 48;
  expect_is(run_io(c, 3, note_acks), SB_CLOSED, "the status");
  expect_is(idle_at[1], 49, "the looks that found nothing");
  expect_is(idle_at[2], 50, "the last look that found nothing");
  expect_is(c->acks_tick_ns, 0, "how often it looks from then on");
  expect_is(c->acks_idle, 0, "the looks that are counted from then on");
  expect_is(slept_ns[2], 5 * MILLISECONDS, "how long it slept before");
  expect_is(slept_ns[3], LOWEST_SLEEP - 10 * MILLISECONDS, "how long it sleeps after that");
}
static void without_ticks_nobody_looks(void) {
  begin(1);
  k = consume(1, 4, 0, 4);
  expect_is(run_io(c, 2, NULL), SB_CLOSED, "the status");
  expect_is(c->acks_idle, 0, "the looks at acknowledgements");
  SB_STORE(&c->closed, 0u, SB_RELAXED);
  c->acks_tick_ns = LOWEST_SLEEP; /* as long as the sleep, which looks everywhere when it is over */
  fakes[0]->wants_asked = 0;
  expect_is(run_io(c, 2, NULL), SB_CLOSED, "the status with long ticks");
  expect_is(slept_ns[1], LOWEST_SLEEP, "how long it sleeps with long ticks");
  expect_is(fakes[0]->wants_asked, 1, "the looks everywhere with long ticks");
  SB_STORE(&c->closed, 0u, SB_RELAXED);
  c->acks_tick_ns = 3 * LOWEST_SLEEP;
  expect_is(run_io(c, 2, NULL), SB_CLOSED, "the status with longer ticks");
  expect_is(slept_ns[1], LOWEST_SLEEP, "how long it sleeps with longer ticks");
  expect_is(fakes[0]->wants_asked, 2, "the looks everywhere with longer ticks");
}

/* ---- gates ---- */

static uint64_t gate_due_ns;
static void note_gate(unsigned sleep) {
  if (sleep == 1) gate_due_ns = c->dispatch_due_ns;
}
/* It sleeps until the gate is due; then it looks everywhere, once. */
static void a_gate_that_is_due(void) {
  begin(1);
  fakes[0]->wants = true;
  c->dispatch_due_ns = UINT64_C(1000) * 1000 * MILLISECONDS + 20 * MILLISECONDS;
  expect_is(run_io(c, 2, note_gate), SB_CLOSED, "the status");
  expect(gate_due_ns != 0, "the gate is not due while it sleeps");
  expect_is(slept_ns[1], 20 * MILLISECONDS, "how long it sleeps before the gate is due");
  expect_is(c->dispatch_due_ns, 0, "when the gate is due afterwards");
  expect_is(fakes[0]->wants_asked, 1, "the looks everywhere");
  expect_is(fakes[0]->turns, 1, "the turns");
  expect_is(slept_ns[2], LOWEST_SLEEP - 20 * MILLISECONDS, "how long it sleeps after that");
}

static const test_case CASES[] = {
    {"io: node", "notifiers find the node of the IO thread", its_node},
    {"io: no node", "without a node there is no IO thread", no_room_for_its_node},
    {"io: rotation", "targets have their turns in rotation", targets_in_rotation},
    {"io: one bit", "targets of one bit have their turns together", targets_of_one_bit},
    {"io: lock", "a few turns are taken for each hold of the lock", some_turns_for_each_lock},
    {"io: in a turn", "work that comes in a turn is collected after it", work_that_comes_in_a_turn},
    {"io: closed", "the IO thread of a closed connection does nothing", a_closed_connection_takes_no_turns},
    {"io: handles", "handles of deleted queues are let go", handles_of_deleted_queues},
    {"io: memory", "turns end when memory is to be asked for", memory_is_asked_for},
    {"io: armed", "what comes while the wake word is armed is seen", what_comes_before_a_sleep},
    {"io: stopping", "all that wait are told when the broker stops", the_broker_is_being_stopped},
    {"io: signals", "signals are for other threads", signals_are_for_other_threads},
    {"io: looks", "it looks everywhere when its time is up", when_it_looks},
    {"io: wants", "a target that wants a turn has it", who_wants_a_turn_has_it},
    {"io: judged", "a consumer that was overlooked is counted, and explained if it can be",
     what_was_overlooked_is_counted},
    {"io: has a turn", "a target that has a turn to come was not overlooked", who_has_a_turn_is_not_judged},
    {"io: acks", "acknowledgements are sent when they are due", acknowledgements_that_are_due},
    {"io: idle", "ticks end when nobody acknowledges", nobody_acknowledges},
    {"io: no ticks", "without ticks nobody looks at acknowledgements", without_ticks_nobody_looks},
    {"io: gates", "when the gate of a queue is due the thread looks everywhere", a_gate_that_is_due},
};
SUBJECT(CASES)
