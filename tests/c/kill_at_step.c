// SPDX-License-Identifier: Apache-2.0
/* Kills a process at every shared step of every operation, and checks what it leaves.
 *
 * For each operation and each N, the program creates a broker. A child runs the operation, and is killed at the N-th
 * step (SB_TEST_HOOKS calls sb_test_step before every atomic operation and at every crash point). Then the survivor
 * checks what is left.
 *
 *   kill_at_step [-v] [-every N] [operation [step]]
 *
 * `-every N`: one step of N, different ones for each operation: a sample that fits into the ordinary tests.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kept_files.h"
#include "sb_atomic.h"
#include "trial.h"

#define CAME_BACK 1 /* before the step was reached: there are no more steps */
#define VISITS 16u  /* visits of a site that count as steps: long loops are not followed to their end */
#define SITES 1024u

static struct {
  volatile uint64_t done;
  const char *volatile site;
} *shared; /* what the child says of itself */
static bool armed, verbose;
static uint64_t steps, kill_at;
static struct {
  const char *site;
  unsigned visits;
} visited[SITES];

static void end_here(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

void sb_test_step(const char *site) {
  if (die_at != NULL && strcmp(site, die_at) == 0) end_here();
  if (!armed) return;
  size_t at = (size_t)(uintptr_t)site / 8 % SITES;
  while (visited[at].site != NULL && visited[at].site != site) at = (at + 1) % SITES;
  visited[at].site = site;
  if (++visited[at].visits > VISITS) return;
  shared->site = site;
  if (++steps == kill_at) end_here();
}

static void run_child(const trial *t) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    become_child(&t->broker);
    t->operation->prepare();
    sb_test_aside = false;
    armed = true;
    t->operation->run();
    armed = false;
    shared->done = 1;
    end_here();
  }
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) die("the child", status);
}

static int kill_once(const operation *o, void *step) {
  trial t;
  kill_at = *(uint64_t *)step;
  shared->done = 0;
  shared->site = "?";
  trial_begin(&t, o);
  run_child(&t);
  const char *site = shared->site, *file = strrchr(site, '/');
  int result = trial_end(&t, shared->done != 0, "killed at step %llu, before %s", (unsigned long long)kill_at,
                         file != NULL ? file + 1 : site);
  return result == TRIAL_PASSED && shared->done != 0 ? CAME_BACK : result;
}

int main(int count, char **arguments) {
  uint64_t every = 1;
  unsigned passed = 0, failed = 0;
  for (; count > 1 && arguments[1][0] == '-'; count--, arguments++) {
    if (strcmp(arguments[1], "-v") == 0) {
      verbose = true;
    } else if (strcmp(arguments[1], "-every") == 0 && count > 2) {
      every = strtoull(arguments[2], NULL, 10);
      count--;
      arguments++;
    }
  }
  if (every == 0) die("usage: kill_at_step [-v] [-every N] [operation [step]], N", 0);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  sb_test_aside = true;
  kept_files_begin();
  for (size_t i = 0; i < OPERATION_COUNT; i++) {
    const operation *o = &OPERATIONS[i];
    if (count > 1 && strcmp(arguments[1], o->name) != 0) continue;
    uint64_t step = count > 2 ? strtoull(arguments[2], NULL, 10) : 1 + i % every, last = count > 2 ? step : 100000;
    unsigned before = failed;
    for (bool more = true; more && step <= last; step += every) {
      int result = trial_run(kill_once, o, &step, 20);
      passed += result != TRIAL_FAILED;
      failed += result == TRIAL_FAILED;
      more = shared->done == 0;
    }
    if (verbose) printf("%-26s %5llu steps, %u failed\n", o->name, (unsigned long long)step, failed - before);
  }
  kept_files_end();
  printf("%u passed, %u failed\n", passed, failed);
  return failed != 0;
}
