// SPDX-License-Identifier: Apache-2.0
/* sb_repairs: what explains a repair: a death, a broker without memory, a stopped process. */
#include "sb_repairs.h"

#include <sys/wait.h>
#include <unistd.h>

#include "halted.h"
#include "queues.h"
#include "sb_chunk.h"

#define OTHER 77u  /* a connection */
#define PROCESS 9u /* its process slot */

static sb_queue *q;
/* One other connection has the queue open. */
static void begin(void) {
  q = queue_named("q", (sb_settings)FREELY);
  SB_STORE(&q->ledger->owner, OTHER | UINT64_C(1) << 12, SB_RELAXED);
}
/* It has ended, and /proc shows it still. */
static pid_t zombie(void) {
  siginfo_t how;
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  if (waitid(P_PID, (id_t)pid, &how, WEXITED | WNOWAIT) != 0) die("waitid", 0);
  return pid;
}
static void expect_explained(bool should, const char *what) {
  expect(sb_repairs_explained(t.b, q->shm, sb_repairs_deaths(t.b)) == should, "%s explains it by %d", what, !should);
}
static void processes_that_are_halted(void) {
  begin();
  pid_t pid = start_stopped();
  take_process_slot(PROCESS, pid, 0);
  take_connection(OTHER, PROCESS);
  expect(sb_repairs_somebody_halted(t.b, q->shm), "a process that is stopped is not halted");
  expect_explained(true, "a process that is stopped");
  SB_STORE(&t.b->connections[OTHER], sb_conn_word(SB_CONN_FREE, PROCESS, 0, 1), SB_RELAXED);
  expect(!sb_repairs_somebody_halted(t.b, q->shm), "a connection that is closed is halted");
  take_connection(OTHER, t.b->process);
  expect(!sb_repairs_somebody_halted(t.b, q->shm), "this process is halted");
  expect_explained(false, "this process");
  end_stopped(pid);
  take_process_slot(PROCESS, ended_process(), 0);
  take_connection(OTHER, PROCESS);
  expect(sb_repairs_somebody_halted(t.b, q->shm), "a process that is dead is not halted");
  pid = zombie();
  take_process_slot(PROCESS, pid, 0);
  expect(sb_repairs_somebody_halted(t.b, q->shm), "a process that its parent has not waited for is not halted");
  (void)waitpid(pid, NULL, 0);
}
static void deaths_and_memory(void) {
  begin();
  SB_STORE(&q->ledger->owner, UINT64_C(1) << 12, SB_RELAXED);
  expect_explained(false, "nothing");
  expect(sb_repairs_explained(t.b, q->shm, sb_repairs_deaths(t.b) + 1), "a death explains nothing");
  uint32_t reserve = sb_reserve_chunks(t.b), spare = sb_chunk_spare(t.b);
  expect(reserve > 0, "there is no reserve");
  for (uint32_t i = 0; i < BROKER_CHUNKS && spare > reserve; i++) {
    expect_explained(false, "a broker with more than its reserve");
    if (sb_chunk_state(t.b->chunks[i]) != SB_CHUNK_FREE) continue;
    SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
    spare--;
  }
  expect_explained(true, "a broker with its reserve alone");
  SB_STORE(&t.b->header->segments, SB_LOAD(&t.b->header->segments, SB_RELAXED) - 1, SB_RELAXED);
  expect_explained(false, "a broker that may grow");
}
static void repairs_are_counted(void) {
  const sb_header_shm *h = t.b->header;
  sb_repairs_count(t.b, SB_REPAIR_END, false);
  sb_repairs_count(t.b, SB_REPAIR_ROOM, true);
  for (unsigned kind = 0; kind < SB_REPAIRS; kind++) {
    expect_is(h->repairs[kind], kind == SB_REPAIR_END, "the defects of a kind");
    expect_is(h->explained_repairs[kind], kind == SB_REPAIR_ROOM, "the explained repairs of a kind");
  }
}

static const test_case CASES[] = {
    {"repairs: halted", "a process that is stopped or dead explains a repair", processes_that_are_halted},
    {"repairs: memory", "a death, or memory that is short, explains a repair", deaths_and_memory},
    {"repairs: counted", "repairs are counted by kind, the explained ones apart", repairs_are_counted},
};
SUBJECT(CASES)
