// SPDX-License-Identifier: Apache-2.0
/* Cases of the wake word: which actor arms it, which one rings, and which one sleeps. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_wait.h"

#define STATE(word) ((word) & 3u)

static sb_half *word;
static uint32_t bed;
static uint64_t token;

static void make_bed(void) {
  sb_status status = sb_node_create(one.c, one.q->slot, 0, SB_NODE_DIRECT, 0, 1, &bed, &token);
  if (status != SB_OK) die("sb_node_create", (int)status);
  word = &((sb_node_shm *)sb_slot_at(t.b, bed))->wake;
}
static uint32_t now(void) { return SB_LOAD(word, SB_SEQ_CST); }

static void each_state(void) {
  make_bed();
  expect(STATE(now()) == SB_WAKE_RUN && !sb_wake_ring(word), "who runs is rung");
  uint32_t first = sb_wake_arm(word);
  expect(first == now() && STATE(first) == SB_WAKE_ARMED, "the word is not armed");
  expect(sb_wake_ring(word), "who is armed is not rung");
  uint32_t rung = now();
  expect(STATE(rung) == SB_WAKE_NOTIFIED && (rung | 3u) == (first | 3u), "a ring leaves %x of %x", rung, first);
  expect(sb_wake_ring(word) && now() == rung, "a second ring changes the word");
  sb_wake_disarm(word);
  expect(STATE(now()) == SB_WAKE_RUN && (now() | 3u) == (first | 3u), "the word is not disarmed");
  uint32_t second = sb_wake_arm(word);
  expect(second != first && STATE(second) == SB_WAKE_ARMED, "armed twice with the same sequence");
  (void)SB_SWAP(word, (second & ~3u) | SB_WAKE_PENDING, SB_SEQ_CST); /* as one does that is killed while it rings */
  expect(sb_wake_ring(word) && STATE(now()) == SB_WAKE_NOTIFIED, "a ring that was begun is not finished");
  sb_wake_disarm(word);
  sb_node_destroy(one.c, bed, token);
}

/* Another one arms again before the ringer goes on: its late step must not mark the next sleep. */
static uint32_t rearmed;
static void arm_again(void) { rearmed = sb_wake_arm(word); }
static void late_ringer(void) {
  make_bed();
  (void)sb_wake_arm(word);
  rearmed = 0;
  meanwhile("wait.ring.pending", arm_again);
  expect(sb_wake_ring(word), "who is armed is not rung");
  afterwards();
  expect(rearmed != 0 && now() == rearmed, "a late ringer marks the next sleep");
  sb_wake_disarm(word);
  sb_node_destroy(one.c, bed, token);
}

static void ends_of_sleep(void) {
  bool interrupted = true;
  make_bed();
  uint32_t armed = sb_wake_arm(word);
  expect(!sb_wake_sleep(word, armed, sb_now_ns() + 1, &interrupted), "who is not rung says so");
  expect(!interrupted, "a sleep whose time is up is interrupted");
  (void)sb_wake_ring(word);
  interrupted = true;
  expect(sb_wake_sleep(word, armed, UINT64_MAX / 2, &interrupted) && !interrupted, "who is rung does not say so");
  sb_wake_disarm(word);
  expect(sb_wake_sleep(word, armed, UINT64_MAX / 2, &interrupted), "a word that changed is slept on");
  sb_node_destroy(one.c, bed, token);
}

static void ignore(int number) { (void)number; }
static void signalled(void) {
  struct sigaction mine = {.sa_handler = ignore}, before;
  bool interrupted = false;
  int status;
  make_bed();
  uint32_t armed = sb_wake_arm(word);
  (void)sigaction(SIGUSR1, &mine, &before);
  pid_t pid = fork();
  if (pid == 0) {
    for (; getppid() != 1 && kill(getppid(), SIGUSR1) == 0;) usleep(1000);
    _exit(0);
  }
  expect(!sb_wake_sleep(word, armed, UINT64_MAX / 2, &interrupted), "a signal is taken for a ring");
  expect(interrupted, "a signal is not told");
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, &status, 0);
  (void)sigaction(SIGUSR1, &before, NULL);
  sb_wake_disarm(word);
  sb_node_destroy(one.c, bed, token);
}

static bool is_asleep(pid_t pid) {
  char name[64], state = 0;
  snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(name, "r");
  if (file != NULL) {
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    fclose(file);
  }
  return state == 'S';
}
static void rung_asleep(void) {
  int status = -1;
  make_bed();
  uint32_t armed = sb_wake_arm(word);
  pid_t pid = fork();
  if (pid == 0) {
    bool interrupted;
    _exit(sb_wake_sleep(word, armed, UINT64_MAX / 2, &interrupted) ? 0 : 1);
  }
  while (!is_asleep(pid)) usleep(1000);
  expect(sb_wake_ring(word), "who is armed is not rung");
  (void)waitpid(pid, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "who was rung does not say so");
  sb_wake_disarm(word);
  sb_node_destroy(one.c, bed, token);
}

static const test_case CASES[] = {
    {"each state", "arm, ring and disarm lead from each state to the next", FREELY, each_state},
    {"late ringer", "who rings late does not mark the next sleep", FREELY, late_ringer},
    {"ends of sleep", "a sleep says whether it was rung", FREELY, ends_of_sleep},
    {"signalled", "a signal ends a sleep, and is told", FREELY, signalled},
    {"rung asleep", "a ring wakes who sleeps in the kernel", FREELY, rung_asleep},
};
const subject WAKE_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
