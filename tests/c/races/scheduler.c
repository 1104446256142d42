// SPDX-License-Identifier: Apache-2.0
#include "scheduler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "../harness.h"
#include "sb_atomic.h"
#include "store_buffer.h"
#include "words.h"
#include "world.h"

#define STACK_BYTES (256u << 10)
#define MOMENTS 60000u /* more accesses than that: some actor loops without end */
#define CHOICES 4096u
#define CHANGES 3u /* of priorities, in a random run */
#define EXCEPTIONS 64u
#define YIELDS 3000u
#define PAUSE_NS 1000000u
#define LEARNING 60u    /* runs */
#define MANY_WORDS 100u /* where this many are shared, there is one preemption less: pages are made, or objects */

typedef struct {
  const char *name;
  void (*run)(void);
  bool mortal, later;
  actor_state state;
  bool timed_out;
  const volatile void *sleeps_on;
  uint64_t until_ns;
  ucontext_t context;
  uint8_t *stack;
  char deeds[80];
} actor;

typedef enum { TRY_ALL, TRY_RANDOM, TRY_GIVEN } manner;
typedef enum { ACT_RUN, ACT_KILL, ACT_KEEP } action_kind; /* who goes on; the actor dies; which stores stay behind */
typedef struct {
  uint64_t moment;
  action_kind kind;
  unsigned which;
} action;

static actor actors[ACTORS];
static ucontext_t outside;
unsigned scheduler_now = NOBODY;
#define current scheduler_now
static void (*on_death)(unsigned actor);
static bool print_steps;

static bounds limit, left;
static manner how;
static uint64_t moment, runs, yields, clock_ns = 1000000000000u;
static bool died, running; /* not what follows a run */

/* ---- choices ---- */

static struct {
  uint16_t picked, options;
} choices[CHOICES];
static unsigned choice_count, choice_at;
static action exceptions[EXCEPTIONS]; /* what was not the first option: taken in this run, or to be replayed */
static unsigned exception_count, exception_at;
static bool then_all;
static uint64_t chance, random_runs, change_at[CHANGES], kill_at, longest = 1000;
static unsigned priority[ACTORS];

static uint64_t random_number(uint64_t below) { /* xorshift64* */
  chance ^= chance >> 12;
  chance ^= chance << 25;
  chance ^= chance >> 27;
  return (chance * UINT64_C(0x2545f4914f6cdd1d) >> 20) % below;
}

static unsigned next_in_depth(unsigned options) {
  if (choice_at == choice_count) {
    if (choice_count == CHOICES) {
      complain("more than %u choices", CHOICES);
      return 0;
    }
    choices[choice_count].picked = 0;
    choices[choice_count++].options = (uint16_t)options;
  } else if (choices[choice_at].options != options) {
    complain("a schedule cannot be repeated: %u options instead of %u", options, choices[choice_at].options);
  }
  return choices[choice_at++].picked;
}

static unsigned next_given(const action *options, unsigned count) {
  if (exception_at < exception_count && exceptions[exception_at].moment == moment) {
    for (unsigned i = 0; i < count; i++) {
      if (options[i].kind == exceptions[exception_at].kind && options[i].which == exceptions[exception_at].which) {
        exception_at++;
        return i;
      }
    }
  }
  return 0;
}

/* The highest priority goes on; one change of priorities was due if this is a moment for it. */
static unsigned next_at_random(const action *options, unsigned count) {
  unsigned best = 0;
  for (unsigned i = 0; i < CHANGES; i++) {
    if (change_at[i] <= moment && change_at[i] != 0 && current != NOBODY) {
      change_at[i] = 0;
      for (unsigned a = 0; a < ACTORS; a++) priority[a] += priority[a] < priority[current];
      priority[current] = 0;
    }
  }
  for (unsigned i = 0; i < count; i++) {
    if (options[i].kind == ACT_KILL && kill_at != 0 && kill_at <= moment) {
      kill_at = 0;
      return i;
    }
    if (options[i].kind == ACT_KEEP) return (unsigned)random_number(count);
    if (options[i].kind == ACT_RUN && priority[options[i].which] > priority[options[best].which]) best = i;
  }
  return best;
}

static action choose(const action *options, unsigned count) {
  unsigned picked = count == 1          ? 0
                    : how == TRY_ALL    ? next_in_depth(count)
                    : how == TRY_RANDOM ? next_at_random(options, count)
                                        : next_given(options, count);
  action chosen = options[picked];
  if (picked != 0 && how != TRY_GIVEN && exception_count < EXCEPTIONS) exceptions[exception_count++] = chosen;
  if (print_steps && count > 1 && picked != 0) {
    printf("      %llu: %s %s %u\n", (unsigned long long)moment, current == NOBODY ? "-" : actors[current].name,
           chosen.kind == ACT_RUN    ? "makes way for"
           : chosen.kind == ACT_KILL ? "dies"
                                     : "keeps stores:",
           chosen.which);
  }
  return chosen;
}

/* ---- actors ---- */

static void any_of(bool others, bool death);
static void body(int which) {
  actor *a = &actors[which];
  a->run();
  if (delayed_count((unsigned)which) > 0) {
    moment++;
    any_of(true, false);
  }
  delayed_write((unsigned)which, 0);
  a->state = ACTOR_DONE;
  current = NOBODY;
  setcontext(&outside);
}

static void go_to(unsigned next) {
  actor *from = &actors[current];
  current = next;
  if (print_steps) printf("    %s:\n", actors[next].name);
  if (from != &actors[next]) swapcontext(&from->context, &actors[next].context);
}

static unsigned ready_actors(action *options, unsigned except) {
  unsigned n = 0;
  for (unsigned i = 0; i < ACTORS; i++) {
    if (actors[i].state == ACTOR_READY && i != except) options[n++] = (action){moment, ACT_RUN, i};
  }
  return n;
}

/* The current actor cannot go on for now: it goes on here when it is chosen again. */
static void make_way(void) {
  action options[ACTORS];
  delayed_write(current, 0);
  unsigned n = ready_actors(options, current);
  if (n > 0) {
    go_to(choose(options, n).which);
  } else {
    actor *from = &actors[current];
    current = NOBODY;
    swapcontext(&from->context, &outside);
  }
}

static void die(void) {
  actor *a = &actors[current];
  left.kills--;
  died = true;
  delayed_write(current, 0); /* instructions that were done are seen at last */
  a->state = ACTOR_DEAD;
  for (unsigned i = 0; i < ACTORS; i++) {
    if (actors[i].state == ACTOR_LATER) actors[i].state = ACTOR_READY;
  }
  unsigned victim = current;
  current = NOBODY;
  sb_test_aside = true;
  on_death(victim); /* which may bury others of its process */
  sb_test_aside = false;
  current = victim;
  make_way();
  abort(); /* a dead actor is never chosen */
}

/* Stores that other actors do not see while they continue: those since the moment `which`. */
static void keep_some_back(void) {
  action options[DELAYED_MAX + 1] = {{moment, ACT_KEEP, 0}};
  unsigned n = delayed_count(current);
  for (unsigned i = 0; i < n; i++) options[n - i] = (action){moment, ACT_KEEP, (unsigned)delayed_since(current, i)};
  action chosen = choose(options, n + 1);
  unsigned keep = n;
  while (keep > 0 && chosen.which != options[keep].which) keep--;
  delayed_write(current, keep);
}

/* The others may go on, or the actor dies, before what comes next. */
static void any_of(bool others, bool death) {
  for (;;) {
    action options[ACTORS + 1] = {{moment, ACT_RUN, current}};
    unsigned n = 1;
    if (others && left.preemptions > 0) n += ready_actors(options + 1, current);
    if (death && left.kills > 0 && actors[current].mortal) options[n++] = (action){moment, ACT_KILL, current};
    action chosen = choose(options, n);
    if (chosen.kind == ACT_KILL) die();
    if (chosen.which == current) return;
    left.preemptions--;
    unsigned who = current;
    keep_some_back();
    go_to(chosen.which);
    if (delayed_count(who) == 0) return; /* else it may make way again, with fewer stores kept back */
  }
}

void scheduler_step(const char *site, const volatile void *word, bool write) {
  if (current == NOBODY || !world_contains(word)) return;
  bool shared = words_note(word, current, write);
  if (++moment > MOMENTS) {
    complain("%s does not come to an end, at %s", actors[current].name, site);
    current = NOBODY;
    setcontext(&outside);
  }
  if (print_steps) printf("      %llu: %s %s\n", (unsigned long long)moment, write ? "write" : "read ", site);
  bool seen_late = write && delayed_count(current) > 0; /* a barrier, perhaps: others see then what it stored before */
  any_of(shared || seen_late || how == TRY_GIVEN, write);
}

bool scheduler_delays(const volatile void *word) {
  return current != NOBODY && limit.delays && world_contains(word) && (how == TRY_GIVEN || words_is_shared(word));
}

bool scheduler_sleep(const volatile void *word, uint64_t until_ns) {
  actor *a = &actors[current];
  a->state = ACTOR_ASLEEP;
  a->sleeps_on = word;
  a->until_ns = until_ns;
  a->timed_out = false;
  scheduler_note("slept");
  make_way();
  return !a->timed_out;
}

void scheduler_note(const char *deed) {
  if (current == NOBODY || !running) return;
  char *deeds = actors[current].deeds;
  size_t n = strlen(deeds), room = sizeof actors[current].deeds - n;
  (void)snprintf(deeds + n, room, "%s%s", n > 0 ? " " : "", deed);
}
const char *scheduler_deeds(unsigned which) { return actors[which].deeds; }

void scheduler_bury(unsigned which) {
  delayed_write(which, 0);
  if (actors[which].state != ACTOR_ABSENT) actors[which].state = ACTOR_DEAD;
}

void scheduler_wake(const volatile void *word) {
  if (current != NOBODY) delayed_write(current, 0);
  for (unsigned i = 0; i < ACTORS; i++) {
    if (actors[i].state == ACTOR_ASLEEP && actors[i].sleeps_on == word) actors[i].state = ACTOR_READY;
  }
}

void scheduler_yield(void) {
  if (current == NOBODY) return;
  action options[ACTORS];
  if (++yields > YIELDS) {
    complain("%s waits for ever", actors[current].name);
    current = NOBODY;
    setcontext(&outside);
  }
  clock_ns += PAUSE_NS;
  if (ready_actors(options, current) > 0) make_way();
}

uint64_t scheduler_now_ns(void) { return clock_ns; }
uint64_t scheduler_moment(void) { return moment; }
actor_state scheduler_state(unsigned i) { return actors[i].state; }
bool scheduler_somebody_died(void) { return died; }
uint64_t scheduler_runs(void) { return runs; }
unsigned scheduler_words(void) { return words_shared(); }
unsigned scheduler_preemptions(void) { return limit.preemptions; }
void scheduler_print_steps(bool yes) { print_steps = yes; }
void scheduler_on_death(void (*happened)(unsigned actor)) { on_death = happened; }

/* ---- runs ---- */

void scheduler_actor(unsigned i, const char *name, void (*run)(void), bool mortal, bool later) {
  actor *a = &actors[i];
  if (a->stack == NULL) a->stack = malloc(STACK_BYTES);
  a->name = name;
  a->run = run;
  a->mortal = mortal;
  a->later = later;
}

static void go(void) {
  action options[ACTORS];
  for (;;) {
    unsigned n = ready_actors(options, NOBODY);
    if (n == 0 || complaint[0] != 0) return;
    current = choose(options, n).which;
    if (print_steps) printf("    %s:\n", actors[current].name);
    sb_test_aside = false;
    swapcontext(&outside, &actors[current].context);
    sb_test_aside = true;
    current = NOBODY;
  }
}

static void begin_random_run(void) {
  for (unsigned i = 0; i < ACTORS; i++) priority[i] = i + 1;
  for (unsigned i = ACTORS - 1; i > 0; i--) {
    unsigned k = (unsigned)random_number(i + 1), p = priority[i];
    priority[i] = priority[k];
    priority[k] = p;
  }
  for (unsigned i = 0; i < CHANGES; i++) change_at[i] = 1 + random_number(longest);
  kill_at = limit.kills > 0 && random_number(2) == 0 ? 1 + random_number(longest) : 0;
}

void scheduler_run(void) {
  runs++;
  moment = yields = 0;
  clock_ns = 2 * UINT64_C(1000000000000); /* what was to be due is */
  died = false;
  left = limit;
  choice_at = exception_at = 0;
  if (how != TRY_GIVEN) exception_count = 0;
  if (how == TRY_RANDOM) {
    begin_random_run();
    left.preemptions = UINT32_MAX;
  }
  for (volatile unsigned i = 0; i < ACTORS; i++) { /* getcontext may return twice, says the compiler */
    actor *a = &actors[i];
    a->deeds[0] = 0;
    a->state = a->run == NULL ? ACTOR_ABSENT : a->later ? ACTOR_LATER : ACTOR_READY;
    if (a->run == NULL) continue;
    getcontext(&a->context);
    a->context.uc_stack.ss_sp = a->stack;
    a->context.uc_stack.ss_size = STACK_BYTES;
    a->context.uc_link = NULL;
    makecontext(&a->context, (void (*)(void))body, 1, (int)i);
  }
  running = true;
  go();
  running = false;
}

bool scheduler_go_on(void) {
  action options[ACTORS];
  bool somebody = ready_actors(options, NOBODY) > 0;
  go();
  return somebody;
}

bool scheduler_time_passes(void) {
  uint64_t earliest = UINT64_MAX;
  for (unsigned i = 0; i < ACTORS; i++) {
    if (actors[i].state == ACTOR_ASLEEP && actors[i].until_ns < earliest) earliest = actors[i].until_ns;
  }
  if (earliest > clock_ns && earliest != UINT64_MAX) clock_ns = earliest;
  for (unsigned i = 0; i < ACTORS && earliest != UINT64_MAX; i++) {
    if (actors[i].state == ACTOR_ASLEEP && actors[i].until_ns <= clock_ns) {
      actors[i].timed_out = true;
      actors[i].state = ACTOR_READY;
    }
  }
  return scheduler_go_on();
}

/* ---- what is tried ---- */

static void begin_trying(const bounds *b, manner m) {
  limit = *b;
  how = m;
  runs = 0;
  choice_count = exception_count = 0;
  then_all = false;
  words_forget();
}
/* Some runs at random tell most of the words that are shared; so one round is enough, as a rule. */
void scheduler_try_all(const bounds *b) {
  begin_trying(b, TRY_RANDOM);
  chance = 1;
  random_runs = LEARNING;
  then_all = true;
}
void scheduler_try_random(const bounds *b, uint64_t seed, uint64_t runs_wanted) {
  begin_trying(b, TRY_RANDOM);
  chance = seed * 2 + 1;
  random_runs = runs_wanted;
}

bool scheduler_next(void) {
  if (how == TRY_GIVEN) return false;
  if (moment > longest) longest = moment;
  if (how == TRY_RANDOM) {
    if (words_found_more()) words_begin_round();
    if (runs < random_runs) return true;
    if (!then_all) return false;
    how = TRY_ALL;
    then_all = false;
    if (words_shared() > MANY_WORDS && limit.preemptions > 1 && !limit.deep) limit.preemptions--;
    return true;
  }
  while (choice_count > 0 && choices[choice_count - 1].picked + 1u == choices[choice_count - 1].options) choice_count--;
  if (choice_count > 0) {
    choices[choice_count - 1].picked++;
    return true;
  }
  if (!words_found_more()) return false;
  words_begin_round();
  return true;
}

/* ---- schedules as text ---- */

const char *scheduler_schedule(void) {
  static char text[EXCEPTIONS * 16];
  size_t n = 0;
  text[0] = 0;
  for (unsigned i = 0; i < exception_count; i++) {
    const action *a = &exceptions[i];
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%llu%c%u", i == 0 ? "" : ",", (unsigned long long)a->moment,
                          "rkd"[a->kind], a->which);
  }
  return exception_count == 0 ? "-" : text;
}

void scheduler_replay(const bounds *b, const char *schedule) {
  begin_trying(b, TRY_GIVEN);
  limit = (bounds){UINT32_MAX, UINT32_MAX, b->delays, false};
  for (const char *at = schedule; *at != 0 && *at != '-' && exception_count < EXCEPTIONS; exception_count++) {
    char *end;
    action *a = &exceptions[exception_count];
    a->moment = strtoull(at, &end, 10);
    a->kind = *end == 'k' ? ACT_KILL : *end == 'd' ? ACT_KEEP : ACT_RUN;
    a->which = (unsigned)strtoul(end + 1, &end, 10);
    at = *end == ',' ? end + 1 : end;
  }
}
