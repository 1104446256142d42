// SPDX-License-Identifier: Apache-2.0
#include "sb_turns.h"

#include <time.h>

#include "sb_holdings.h"
#include "sb_slab.h"
#include "sb_wait.h"

static void ring(sb_broker *b) {
  sb_node_shm *keeper = sb_slab_object(b, SB_LOAD(&b->header->storekeeper_waiter, SB_ACQUIRE), SB_KIND_NODE);
  if (keeper != NULL) (void)sb_wake_ring(&keeper->wake);
}

uint32_t sb_turns_ask(sb_broker *b) {
  uint32_t number = SB_LOAD(&b->header->turns_begun, SB_SEQ_CST) + 1; /* P42 */
  uint32_t asked = SB_LOAD(&b->header->turns_asked, SB_SEQ_CST);
  while (!sb_turns_reached(asked, number) && !SB_CAS(&b->header->turns_asked, &asked, number, SB_SEQ_CST)) { /* P43 */
  }
  SB_CRASHPOINT("turns.asked");
  ring(b);
  return number;
}

bool sb_turns_are_done(const sb_broker *b, uint32_t number) {
  return sb_turns_reached(SB_LOAD(&b->header->turns_done, SB_ACQUIRE), number);
}

/* A purge does not wake the threads that wait for a turn: they look from time to time. */
#define LOOK_NS UINT64_C(200000000)

sb_status sb_turns_wait(sb_broker *b, uint32_t number, uint64_t deadline_ns) {
  sb_half *done = &b->header->turns_done;
  for (;;) {
    uint32_t found = SB_LOAD(done, SB_ACQUIRE);
    uint64_t now = sb_now_ns(), until = now + LOOK_NS < deadline_ns ? now + LOOK_NS : deadline_ns;
    bool interrupted;
    if (sb_turns_reached(found, number)) {
      return SB_OK;
    }
    if (SB_LOAD(&b->header->closing, SB_RELAXED) != 0) {
      return SB_STOPPING;
    }
    if (!sb_wake_sleep(done, found, until, &interrupted) && !sb_turns_are_done(b, number)) {
      if (interrupted) return SB_INTERRUPTED;
      if (until == deadline_ns) return SB_TIMEOUT;
    }
  }
}

bool sb_turns_are_asked(const sb_broker *b) {
  uint32_t done = SB_LOAD(&b->header->turns_done, SB_RELAXED);
  return !sb_turns_reached(done, SB_LOAD(&b->header->turns_asked, SB_SEQ_CST)); /* P43 */
}

uint32_t sb_turns_begin(sb_broker *b) { return SB_ADD(&b->header->turns_begun, 1, SB_SEQ_CST) + 1; /* P42 */ }

void sb_turns_end(sb_broker *b, uint32_t number) {
  SB_STORE(&b->header->turns_done, number, SB_RELEASE);
  SB_CRASHPOINT("turns.ended");
  sb_wake_all(&b->header->turns_done);
}

/* ---- commits of several stored messages ---- */

#define AWAIT_NS UINT64_C(20000000)
#define HOLD_NS UINT64_C(20000000) /* a storekeeper that is killed meanwhile holds nobody back for longer */

static void pause_shortly(void) {
  const struct timespec shortly = {0, 20000};
  nanosleep(&shortly, NULL);
}

void sb_turns_pass_hold(sb_broker *b) {
  while (SB_LOAD(&b->header->commits_held_ns, SB_RELAXED) > sb_now_ns()) pause_shortly();
}

void sb_turns_hold_commits(sb_broker *b, bool held) {
  SB_STORE(&b->header->commits_held_ns, held ? sb_now_ns() + HOLD_NS : 0, SB_RELAXED);
}

void sb_turns_commit_begins(sb_broker *b) {
  (void)SB_ADD(&b->header->commits_begun, 1, SB_SEQ_CST); /* P44 */
  SB_CRASHPOINT("turns.commit.begun");
}

void sb_turns_commit_ends(sb_broker *b) {
  (void)SB_ADD(&b->header->commits_done, 1, SB_SEQ_CST);
  SB_CRASHPOINT("turns.commit.done");
}

void sb_turns_move_begins(sb_connection *c) {
  sb_turns_pass_hold(c->b);
  SB_STORE(&c->shm->commit, SB_COMMIT_MOVING, SB_SEQ_CST);
  SB_CRASHPOINT("turns.move.announced");
  sb_turns_commit_begins(c->b);
}

void sb_turns_move_ends(sb_connection *c) {
  sb_turns_commit_ends(c->b);
  SB_STORE(&c->shm->commit, SB_COMMIT_NONE, SB_RELEASE);
}

uint32_t sb_turns_commits(const sb_broker *b) { return SB_LOAD(&b->header->commits_begun, SB_SEQ_CST); /* P44 */ }

/* A connection was killed after it had raised `commits_begun`, and its reaper raised it as well. */
static bool mend_commits(sb_broker *b, uint32_t begun, uint32_t done) {
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    const sb_connection_shm *c = sb_connection_record(b, id);
    uint64_t commit = c != NULL ? SB_LOAD(&c->commit, SB_SEQ_CST) : SB_COMMIT_NONE;
    if (commit == SB_COMMIT_STORED || commit == SB_COMMIT_MOVING) return false;
  }
  return SB_CAS(&b->header->commits_done, &done, begun, SB_SEQ_CST);
}

uint32_t sb_turns_await_commits(sb_broker *b) {
  uint64_t until = sb_now_ns() + AWAIT_NS;
  for (;;) {
    uint32_t done = SB_LOAD(&b->header->commits_done, SB_SEQ_CST), begun = sb_turns_commits(b);
    if (done == begun || mend_commits(b, begun, done) || sb_now_ns() > until) {
      return begun;
    }
    pause_shortly();
  }
}
