// SPDX-License-Identifier: Apache-2.0
#include "trial.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "kept_files.h"
#include "paged_operations.h"

#define PROGRAM "kill"
#define PLENTY 32u /* chunks of memory */

static void await_death(pid_t pid) {
  int status;
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) die("the child", status);
}

static void have_somebody_killed(const test_broker *t, const operation *o) {
  pid_t pid = fork();
  if (pid == 0) {
    become_child(t);
    die_at = o->dies_at;
    if (o->dies_in != NULL)
      o->dies_in();
    else if (o->leases)
      move();
    else if (o->dies_at != NULL)
      take_part_in_a_transaction(o->many != 0);
    else
      take_all_sorts_of_things();
    kill(getpid(), SIGKILL);
  }
  await_death(pid);
}

void trial_begin(trial *t, const operation *o) {
  char name[64];
  sb_broker_facts f;
  sb_put_options none = {0};
  test_broker *b = &t->broker;
  t->operation = o;
  complaint[0] = 0;
  name_apart(name, sizeof name, PROGRAM);
  make_broker(b, name, o->chunks != 0 ? o->chunks : PLENTY);
  attach(b);
  b->c = connect_to(b);
  sb_broker_describe(b->b, &f, true);
  t->memory = f.memory_used;
  sb_settings of_other = FREELY;
  if ((o->settings.flags & SB_QUEUE_DURABLE) != 0) sb_broker_set_stores(b->b, SB_STORES_READY);
  of_other.flags |= o->settings.flags & SB_QUEUE_DURABLE;
  if (o->leases) of_other.flags = SB_QUEUE_KEEPS | (o->settings.flags & SB_QUEUE_DURABLE);
  if (declare(b, "q", o->settings) != SB_OK || declare(b, "other", of_other) != SB_OK) die("declare", 0);
  sb_queue *here = open_queue(b, "q");
  for (unsigned i = 0; o->leases && i < FINISHED; i++) {
    (void)put(b, here, OTHERS);
    (void)get(b, here, spare, true);
  }
  for (uint64_t id = 1; id <= o->messages; id++)
    (void)put_sized(b, here, id <= SETUP ? id : OTHERS, o->bytes != 0 ? o->bytes : 64, &none);
  if (o->has_store) begin_a_store(b, here);
  (void)sb_queue_close(here);
  if (o->reaps) have_somebody_killed(b, o);
}

int trial_end(trial *t, bool done, const char *where, ...) {
  test_broker *b = &t->broker;
  verify(b, t->operation, done, t->memory);
  if (complaint[0] != 0) {
    va_list list;
    va_start(list, where);
    printf("FAIL %s, ", t->operation->name);
    vprintf(where, list);
    printf("%s: %s\n", done ? ", when it had come back" : "", complaint);
    va_end(list);
  }
  leave_broker(b);
  kept_files_take(b->path);
  return complaint[0] != 0 ? TRIAL_FAILED : TRIAL_PASSED;
}

typedef struct {
  int (*what)(const operation *, void *);
  const operation *o;
  void *how;
} job;
static int do_job(void *which) {
  const job *j = which;
  return j->what(j->o, j->how);
}

int trial_run(int (*what)(const operation *, void *), const operation *o, void *how, unsigned seconds) {
  int signal_number;
  job j = {what, o, how};
  int result = apart(PROGRAM, seconds, do_job, &j, &signal_number);
  if (signal_number != 0) printf("FAIL %s: the survivor got signal %d\n", o->name, signal_number);
  return result >= 0 ? result : TRIAL_FAILED;
}
