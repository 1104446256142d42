// SPDX-License-Identifier: Apache-2.0
#include "io_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "sb_wait.h"

/* ---- targets ---- */

uint32_t turn_of[64];
unsigned turns;

static fake_target *asked(sb_target *target) {
  fake_target *f = (fake_target *)(void *)target;
  f->locked = f->locked && SB_LOAD(&target->c->lock, SB_RELAXED) != 0;
  return f;
}
static bool turn(sb_target *target) {
  fake_target *f = asked(target);
  f->turns++;
  turn_of[turns++ % 64] = target->number;
  f->locked = f->locked && target->c->taking_turns;
  if (f->in_turn != NULL) f->in_turn(f);
  return f->more;
}
static bool wants_work(sb_target *target) {
  fake_target *f = asked(target);
  f->wants_asked++;
  return f->wants;
}
static uint64_t overlooked(sb_target *target, const sb_queue **queue) {
  fake_target *f = asked(target);
  f->overlooked_asked++;
  if (f->looked != NULL) f->looked(f);
  *queue = f->queue;
  return f->entry;
}
static void signal_fake(sb_target *target) { asked(target)->signals++; }

static const sb_target_kind FAKES = {
    .turn = turn, .wants_work = wants_work, .overlooked = overlooked, .signal = signal_fake};
static const sb_target_kind PLAIN_FAKES = {.turn = turn, .wants_work = wants_work};

static fake_target *add(sb_connection *c, const sb_target_kind *kind) {
  fake_target *f = calloc(1, sizeof *f);
  if (f == NULL) die("calloc", 0);
  f->as_consumer.target = (sb_target){.c = c, .kind = kind};
  f->as_consumer.c = c;
  f->as_consumer.ack_count = 1;
  f->locked = true;
  sb_target_add(&f->as_consumer.target);
  return f;
}
fake_target *add_fake(sb_connection *c) { return add(c, &FAKES); }
fake_target *add_plain_fake(sb_connection *c) { return add(c, &PLAIN_FAKES); }

void tell(sb_connection *c, uint32_t number) {
  uint32_t bit = number % SB_MAX_TARGETS;
  (void)SB_OR(&c->shm->work_targets[bit / 64], UINT64_C(1) << (bit % 64), SB_SEQ_CST);
  (void)SB_OR(&c->shm->work, UINT64_C(1) << (bit / 64), SB_SEQ_CST);
}

/* ---- the thread ---- */

uint64_t slept_ns[128];
static struct {
  sb_connection *c;
  unsigned sleeps, last;
  void (*during)(unsigned sleep);
  sigset_t signals;
} run;

static sb_half *wake_word(const sb_connection *c) { return &node_shm(c->io_node)->wake; }
unsigned io_word_state(const sb_connection *c) { return SB_LOAD(wake_word(c), SB_RELAXED) & 3u; }

void ring_after(uint64_t ns) {
  says.now_ns += ns;
  says.error = 0;
  (void)sb_wake_ring(wake_word(run.c));
}
static void sleep_begins(void) {
  (void)pthread_sigmask(SIG_SETMASK, &run.signals, NULL); /* else the watchdog of the case would be blocked */
  says.error = ETIMEDOUT;
  slept_ns[++run.sleeps % 128] = says.until_ns - says.now_ns;
  if (run.sleeps < run.last) {
    if (run.during != NULL) run.during(run.sleeps);
  } else {
    SB_STORE(&run.c->closed, 1u, SB_SEQ_CST);
    ring_after(0);
  }
}
sb_status run_io(sb_connection *c, unsigned sleeps, void (*during)(unsigned sleep)) {
  answer_for_the_system();
  run.c = c;
  run.sleeps = 0;
  run.last = sleeps;
  run.during = during;
  turns = 0;
  says.slept = sleep_begins;
  (void)pthread_sigmask(SIG_SETMASK, NULL, &run.signals);
  sb_status status = sb_io_run(c);
  (void)pthread_sigmask(SIG_SETMASK, &run.signals, NULL);
  expect(SB_LOAD(&c->lock, SB_RELAXED) == 0, "the IO thread ended with the lock");
  expect_is(io_word_state(c), SB_WAKE_RUN, "the wake word of an IO thread that ended");
  return status;
}
