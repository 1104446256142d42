// SPDX-License-Identifier: Apache-2.0
/* Kills a process after every instruction of every operation, or stops it there, and looks at what others find.
 *
 * The core is the shared library that users load, optimised, without hooks. For each operation a survey finds the
 * instructions after which a killed process leaves something else than after the one before (stepper.h says which these
 * are, and why no others). For each of them: a fresh broker; a child that does the operation is brought to just behind that
 * instruction, and is killed there with SIGKILL. Then the survivor looks at what is left (aftermath.h).
 *
 *   kill_at_instruction [-stop] [-all] [-every N] [operation [state]]
 *
 * `-stop`: it is stopped there with SIGSTOP; others work beside it (bystanders.h); then it goes on to the end, and must have
 * done what it should. `-all`: it is killed after instruction 1, 2, 3 ... indeed, whatever they do; long operations take
 * long. `-every N` takes one state of N, other ones for each operation. Exit status: 0 all passed, 1 not, 77 ptrace is not
 * permitted here.
 */
#include <sys/prctl.h>
#include <time.h>

#include "bystanders.h"
#include "stepper.h"

#define SECONDS 30u          /* for one trial */
#define SECONDS_TO_LOOK 600u /* for a survey */
#define TRIES 5
#define TRIAL_NOWHERE 3 /* the child went another way */
#define TRIAL_AFTER_END 4
#define SKIPPED 77

typedef struct {
  unsigned passed, failed;
} tally;

static stepper_survey *survey; /* shared with those who survey */
static bool stopping, all;

/* ---- the child ---- */

/* A place in the code that is reached when the operation has come back. */
__attribute__((noinline)) static void over(void) { __asm__ volatile("" ::: "memory"); }

static pid_t start_child(const trial *t) {
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

static int try_state(const operation *o, void *which) {
  trial t;
  uint32_t i = *(const uint32_t *)which;
  const stepper_state *state = &survey->states[i];
  trial_begin(&t, o);
  pid_t pid = start_child(&t);
  if (stepper_go(pid, state) == STEPPER_ELSEWHERE) {
    end_child(pid);
    remove_files(t.broker.path);
    return TRIAL_NOWHERE;
  }
  bool done = stopping || i + 1 == survey->count;
  if (stopping) {
    stepper_leave_stopped(pid);
    bystanders_work(&t, pid);
    let_it_finish(pid);
  } else {
    end_child(pid);
  }
  return trial_end(&t, done, "state %u, after instruction %llu at %p", i, (unsigned long long)state->instruction,
                   (void *)state->pc);
}

static int try_instruction(const operation *o, void *which) {
  trial t;
  uint64_t instructions = *(const uint64_t *)which;
  trial_begin(&t, o);
  pid_t pid = start_child(&t);
  bool before_end = stepper_count(pid, instructions, (uintptr_t)over);
  end_child(pid);
  int result = trial_end(&t, !before_end, "after %llu instructions", (unsigned long long)instructions);
  return result == TRIAL_PASSED && !before_end ? TRIAL_AFTER_END : result;
}

/* ---- an operation ---- */

static int try_state_again(const operation *o, uint32_t state) {
  int result = TRIAL_NOWHERE;
  for (int i = 0; i < TRIES && result == TRIAL_NOWHERE; i++) result = trial_run(try_state, o, &state, SECONDS);
  if (result == TRIAL_NOWHERE) printf("FAIL %s, state %u: never found again\n", o->name, state);
  return result;
}

static void count_one(tally *of, int result) {
  of->passed += result == TRIAL_PASSED || result == TRIAL_AFTER_END;
  of->failed += result != TRIAL_PASSED && result != TRIAL_AFTER_END;
}

static tally try_states(const operation *o, uint32_t first, uint32_t every) {
  tally found = {0, 0};
  for (uint32_t state = first; state < survey->count; state += every) count_one(&found, try_state_again(o, state));
  return found;
}

static tally try_instructions(const operation *o, uint32_t first, uint32_t every) {
  tally found = {0, 0};
  int result = TRIAL_PASSED;
  for (uint64_t n = first; result != TRIAL_AFTER_END && n <= 2 * survey->instructions; n += every) {
    result = trial_run(try_instruction, o, &n, SECONDS);
    count_one(&found, result);
  }
  return found;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static tally try_operation(const operation *o, uint32_t first, uint32_t every) {
  double begun = now();
  tally found = {0, 0};
  if (trial_run(look, o, NULL, SECONDS_TO_LOOK) == TRIAL_PASSED) {
    found = all ? try_instructions(o, first, every) : try_states(o, first, every);
  } else {
    found.failed = 1;
  }
  printf("%-24s %12llu %7u %9llu %7u %7u %8.1f\n", o->name, (unsigned long long)survey->instructions, survey->count,
         (unsigned long long)survey->left_out, found.passed, found.failed, now() - begun);
  fflush(stdout);
  return found;
}

int main(int count, char **arguments) {
  uint32_t every = 1;
  tally whole = {0, 0};
  for (; count > 1 && arguments[1][0] == '-'; count--, arguments++) {
    stopping = stopping || strcmp(arguments[1], "-stop") == 0;
    all = all || strcmp(arguments[1], "-all") == 0;
    if (strcmp(arguments[1], "-every") == 0 && count > 2) {
      every = (uint32_t)strtoul(arguments[2], NULL, 10);
      count--;
      arguments++;
    }
  }
  if (every == 0 || (stopping && all))
    die("usage: kill_at_instruction [-stop | -all] [-every N] [operation [state]]", 0);
  if (!stepper_permitted()) {
    printf("ptrace is not permitted here\n");
    return SKIPPED;
  }
  survey = mmap(NULL, sizeof *survey, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  printf("%-24s %12s %7s %9s %7s %7s %8s\n", "operation", "instructions", "states", "left out", "passed", "failed",
         "seconds");
  for (uint32_t i = 0; i < OPERATION_COUNT; i++) {
    if (count > 1 && strcmp(arguments[1], OPERATIONS[i].name) != 0) continue;
    bool one = count > 2;
    uint32_t first = one ? (uint32_t)strtoul(arguments[2], NULL, 10) : i % every;
    tally of = try_operation(&OPERATIONS[i], first, one ? STEPPER_STATES : every);
    whole.passed += of.passed;
    whole.failed += of.failed;
  }
  printf("%u passed, %u failed\n", whole.passed, whole.failed);
  return whole.failed != 0 || whole.passed == 0;
}
