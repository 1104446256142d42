// SPDX-License-Identifier: Apache-2.0
/* Kills or stops a process after every instruction of every operation, and checks what other processes find.
 *
 * The core is the shared library that users load, optimised, without hooks. For each operation a survey finds the
 * instructions after which a killed process leaves another state than after the instruction before (stepper.h defines
 * these, and why no others matter). For each of them, the program creates a broker, and brings a child that runs the
 * operation to the point just behind that instruction. There SIGKILL kills the child. Then the survivor checks what is
 * left (aftermath.h).
 *
 * Then the same with SIGSTOP: the child is stopped there, other processes work beside it (bystanders.h), and the child
 * continues to the end. Then the operation must have had its effect. A stopped process continues with the values that
 * it has read, so the child is also stopped just before each of these instructions: then these values are as old as
 * possible.
 *
 *   kill_at_instruction [-kill | -stop] [-all] [-short] [-every N] [operation [place]]
 *
 * `-kill`, `-stop`: only this one. `-all`: kill or stop after instruction 1, 2, 3 ..., whatever the instructions do,
 * which needs no complete survey; only for short operations, since it takes long. `-every N`: one place of N, different
 * ones for each operation. `-short`: without the slow operations, a sample that fits into the ordinary tests. Exit
 * status: 0 all passed, 1 a failure, 77 ptrace is not permitted here.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bystanders.h"
#include "kept_files.h"
#include "stepper.h"

#define SECONDS 120u         /* for one trial */
#define SECONDS_TO_LOOK 600u /* for a survey */
#define TRIES 5
#define SURVEYS 4
#define TRIAL_NOWHERE 3 /* the child went another way */
#define TRIAL_AFTER_END 4
#define SKIPPED 77

typedef struct {
  unsigned passed, failed;
} tally;

typedef struct {
  bool kill, stop, all, without_slow;
  uint32_t every;
  const char *operation, *place; /* NULL: each */
} options;

static stepper_survey *survey; /* shared with the processes that survey */
static bool stopping;          /* in the trials that follow */

/* ---- the child ---- */

/* A place in the code that is reached when the operation has come back. */
__attribute__((noinline)) static void over(void) { __asm__ volatile("" ::: "memory"); }

static pid_t start_child(const trial *t) {
  stepper_stay_here();
  pid_t pid = fork();
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    become_child(&t->broker);
    t->operation->prepare();
    stepper_offer();
    t->operation->run();
    over();
    _exit(0);
  }
  stepper_take(pid, (uintptr_t)t->operation->run);
  return pid;
}

static void end_child(pid_t pid) {
  int status;
  kill(pid, SIGKILL);
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) die("the child", status);
}

static void let_it_finish(pid_t pid) {
  int status;
  if (waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != 0) complain("the stopped one did not stay so");
  kill(pid, SIGCONT);
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
    complain("the stopped one did not come to its end: status %x", (unsigned)status);
}

/* ---- trials ---- */

static int look(const operation *o, void *unused) {
  trial t;
  char prefix[128];
  (void)unused;
  trial_begin(&t, o);
  snprintf(prefix, sizeof prefix, "/dev/shm%s.", t.broker.path);
  pid_t pid = start_child(&t);
  stepper_look(pid, (uintptr_t)over, prefix, survey);
  end_child(pid);
  return trial_end(&t, true, "watched");
}

static operation beside_others(const operation *o) {
  operation beside = *o;
  beside.disturbed = true;
  if (o->must_beside != 0) beside.must_done = o->must_beside;
  if (o->deletes_beside) {
    beside.must_done = 0;
    beside.deletes = true;
  }
  return beside;
}

/* The child stands where it is to be killed or stopped. */
static void end_or_stop(const trial *t, pid_t pid) {
  if (stopping) {
    stepper_leave_stopped(pid);
    bystanders_work(t, pid);
    let_it_finish(pid);
  } else {
    end_child(pid);
  }
}

/* Places where a child is stopped: just before a state, and in it. */
static int try_state(const operation *o, void *which) {
  trial t;
  uint32_t place = *(const uint32_t *)which, i = stopping ? place / 2 : place;
  bool early = stopping && place % 2 == 0;
  operation beside = beside_others(o);
  const stepper_state *state = &survey->states[i];
  trial_begin(&t, stopping ? &beside : o);
  pid_t pid = start_child(&t);
  if (stepper_go(pid, state, early) == STEPPER_ELSEWHERE) {
    end_child(pid);
    kept_files_take(t.broker.path);
    return TRIAL_NOWHERE;
  }
  end_or_stop(&t, pid);
  return trial_end(&t, stopping || i + 1 == survey->count, "%s at place %u: %s instruction %llu, at %p",
                   stopping ? "stopped" : "killed", place, early ? "before" : "after",
                   (unsigned long long)state->instruction, (void *)state->pc);
}

static int try_instruction(const operation *o, void *which) {
  trial t;
  uint32_t instructions = *(const uint32_t *)which;
  operation beside = beside_others(o);
  trial_begin(&t, stopping ? &beside : o);
  pid_t pid = start_child(&t);
  bool before_end = stepper_count(pid, instructions, (uintptr_t)over);
  end_or_stop(&t, pid);
  int result =
      trial_end(&t, stopping || !before_end, "%s after %u instructions", stopping ? "stopped" : "killed", instructions);
  return result == TRIAL_PASSED && !before_end ? TRIAL_AFTER_END : result;
}

/* ---- an operation ---- */

/* A survey may have gone a way that is rarely taken: then another one is made. */
static int try_again(const operation *o, uint32_t place) {
  int result = TRIAL_NOWHERE;
  for (int i = 0; i < SURVEYS * TRIES && result == TRIAL_NOWHERE; i++) {
    if (i > 0 && i % TRIES == 0) {
      result = trial_run(look, o, NULL, SECONDS_TO_LOOK);
      if (result != TRIAL_PASSED) return result;
      place %= stopping ? 2 * survey->count : survey->count;
    }
    result = trial_run(try_state, o, &place, SECONDS);
  }
  if (result == TRIAL_NOWHERE) {
    const stepper_state *state = &survey->states[stopping ? place / 2 : place];
    printf("FAIL %s, place %u: never found again: visit %u of %p, which changes %p\n", o->name, place, state->visit,
           (void *)state->pc, (void *)state->where);
  }
  return result;
}

/* One place of `every`; if it is stopped there, other ones than if it is killed. */
static tally try_places(const operation *o, const options *how, uint32_t offset) {
  tally found = {0, 0};
  int result = TRIAL_PASSED;
  uint32_t places = how->all ? UINT32_MAX : stopping ? 2 * survey->count : survey->count;
  uint32_t first = stopping ? (offset + how->every / 2) % how->every : offset % how->every;
  if (how->place != NULL) first = (uint32_t)strtoul(how->place, NULL, 10);
  for (uint32_t place = first; result != TRIAL_AFTER_END && place < places; place += how->every) {
    result = how->all ? trial_run(try_instruction, o, &place, SECONDS) : try_again(o, place);
    bool passed = result == TRIAL_PASSED || result == TRIAL_AFTER_END;
    found.passed += passed;
    found.failed += !passed;
    if (how->place != NULL) break;
  }
  return found;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static tally try_operation(const operation *o, const options *how, uint32_t offset) {
  double begun = now();
  tally killed = {0, 0}, stopped = {0, 0};
  bool seen = trial_run(look, o, NULL, SECONDS_TO_LOOK) == TRIAL_PASSED;
  stopping = false;
  if (seen && how->kill) killed = try_places(o, how, offset);
  stopping = true;
  if (seen && how->stop && !o->keeps_group) stopped = try_places(o, how, offset);
  tally both = {killed.passed + stopped.passed, killed.failed + stopped.failed + !seen};
  printf("%-24s %12llu %7u %9llu %7u %7u %7u %8.1f\n", o->name, (unsigned long long)survey->instructions, survey->count,
         (unsigned long long)survey->left_out, killed.passed + killed.failed, stopped.passed + stopped.failed,
         both.failed, now() - begun);
  fflush(stdout);
  return both;
}

static options options_of(int count, char **arguments) {
  options how = {.kill = true, .stop = true, .every = 1};
  for (; count > 1 && arguments[1][0] == '-'; count--, arguments++) {
    const char *option = arguments[1];
    if (strcmp(option, "-kill") == 0) {
      how.stop = false;
    } else if (strcmp(option, "-stop") == 0) {
      how.kill = false;
    } else if (strcmp(option, "-all") == 0) {
      how.all = true;
    } else if (strcmp(option, "-short") == 0) {
      how.without_slow = true;
    } else if (strcmp(option, "-every") == 0 && count > 2) {
      how.every = (uint32_t)strtoul(arguments[2], NULL, 10);
      count--;
      arguments++;
    } else {
      how.every = 0;
    }
  }
  how.operation = count > 1 ? arguments[1] : NULL;
  how.place = count > 2 ? arguments[2] : NULL;
  if (how.every == 0)
    die("usage: kill_at_instruction [-kill | -stop] [-all] [-short] [-every N] [operation [place]]", 0);
  return how;
}

int main(int count, char **arguments) {
  options how = options_of(count, arguments);
  tally whole = {0, 0};
  if (!stepper_permitted()) {
    printf("ptrace is not permitted here\n");
    return SKIPPED;
  }
  survey = mmap(NULL, sizeof *survey, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  kept_files_begin();
  printf("%-24s %12s %7s %9s %7s %7s %7s %8s\n", "operation", "instructions", "states", "left out", "killed", "stopped",
         "failed", "seconds");
  for (uint32_t i = 0; i < OPERATION_COUNT; i++) {
    const operation *o = &OPERATIONS[i];
    if ((how.operation != NULL && strcmp(how.operation, o->name) != 0) || (how.without_slow && o->slow) ||
        o->dies_at != NULL)
      continue;
    tally of = try_operation(o, &how, i);
    whole.passed += of.passed;
    whole.failed += of.failed;
  }
  kept_files_end();
  printf("%u passed, %u failed\n", whole.passed, whole.failed);
  return whole.failed != 0 || whole.passed == 0;
}
