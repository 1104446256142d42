// SPDX-License-Identifier: Apache-2.0
#include "halted.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t start_stopped(void) {
  int status;
  pid_t pid = fork();
  if (pid < 0) die("fork", pid);
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) (void)raise(SIGSTOP);
  }
  if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) die("a child that stops", status);
  return pid;
}
void end_stopped(pid_t pid) {
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, NULL, 0);
}
pid_t ended_process(void) {
  pid_t pid = fork();
  if (pid < 0) die("fork", pid);
  if (pid == 0) _exit(0);
  (void)waitpid(pid, NULL, 0);
  return pid;
}

void take_process_slot(uint32_t i, pid_t pid, uint32_t flags) {
  sb_process_shm *p = &t.b->processes[i];
  sb_process_facts facts = sb_process_look(pid);
  SB_STORE(&p->pid, (int32_t)pid, SB_RELAXED);
  SB_STORE(&p->start_ticks, facts.start_ticks, SB_RELAXED);
  SB_STORE(&p->stack, facts.stack, SB_RELAXED);
  SB_STORE(&p->pid_namespace, t.b->pid_namespace, SB_RELAXED);
  SB_STORE(&p->flags, flags, SB_RELAXED);
  SB_STORE(&p->word, SB_PROC_LIVE | SB_FIELD(1, 2), SB_RELAXED);
}
void take_connection(unsigned id, uint32_t i) {
  SB_STORE(&t.b->connections[id], sb_conn_word(SB_CONN_LIVE, i, 0, 1), SB_RELAXED);
}
void give_node_to(uint32_t node, unsigned id) {
  sb_node_shm *n = sb_slot_at(t.b, node);
  uint64_t word = SB_LOAD(&n->word, SB_RELAXED);
  SB_STORE(&n->word, sb_node_word(sb_node_state(word), id, sb_node_epoch(word)), SB_RELAXED);
}
