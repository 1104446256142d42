// SPDX-License-Identifier: Apache-2.0
/* Runs the C core in every order of its shared steps, within bounds, and in random orders beyond them.
 *
 *   races [-quick | -full] [-most N] [-random RUNS] [-seed N] [-kind plain|orders|kills|kills+1|delays|random]
 *         [SCENARIO ...]
 *   races -replay KIND SCHEDULE SCENARIO
 *
 * Each scenario is first run without interruption. Then each role must do what the scenario expects of it, so that no
 * scenario tests nothing. Then it is run in up to five ways: all orders; one death at any write, and its reaping beside
 * the other actors; the same with one preemption more; all orders where stores become visible late; random orders with
 * deaths. For each way, a line has the number of schedules, the number of different final memories, the number of words
 * that several actors used, and the bound within which all schedules were tried; "cut off" if a search was ended
 * before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scenarios.h"
#include "world.h"

#define PROGRAM "races"
#define PLAIN "plain"
#define REAPER (ACTORS - 1)
#define SEEN (1u << 20)

typedef struct {
  const char *name;
  bounds two, three; /* by the number of actors */
  uint64_t runs;     /* at random; 0: all */
  uint64_t most;     /* schedules of a scenario; 0: until all were tried */
} way;

static const way FULL[] = {
    {PLAIN, {0, 0, false}, {0, 0, false}, 0, 0},
    {"orders", {3, 0, false}, {2, 0, false}, 0, 20000},
    {"kills", {0, 1, false}, {0, 1, false}, 0, 0},
    {"kills+1", {1, 1, false}, {1, 1, false}, 0, 4000},
    {"delays", {2, 0, true}, {2, 0, true}, 0, 20000},
    {"random", {0, 2, false}, {0, 2, false}, 20000, 0},
    {NULL, {0}, {0}, 0, 0},
};
static const way QUICK[] = {
    {PLAIN, {0, 0, false}, {0, 0, false}, 0, 0},      {"orders", {2, 0, false}, {1, 0, false}, 0, 0},
    {"kills", {0, 1, false}, {0, 1, false}, 0, 0},    {"delays", {1, 0, true}, {1, 0, true}, 0, 0},
    {"random", {0, 2, false}, {0, 2, false}, 300, 0}, {NULL, {0}, {0}, 0, 0},
};

static const scenario *now;
static uint64_t seed = 1, most, seen[SEEN], states;

static void somebody_died(unsigned actor) {
  player_dies(player_of[actor]);
  for (unsigned i = 0; i < REAPER; i++) {
    if (player_of[i] == player_of[actor]) scheduler_bury(i);
  }
}

static bool is_new(uint64_t state) {
  uint64_t at = state % SEEN;
  while (seen[at] != 0 && seen[at] != state) at = (at + 1) % SEEN;
  bool new = seen[at] == 0;
  if (new && ++states < SEEN / 2) seen[at] = state;
  return new;
}

/* The same memory, after the same fates, needs no second look. */
static void one_run(void) {
  static uint64_t verdict;
  cast_begin();
  scheduler_run();
  verdict = world_state();
  for (unsigned i = 0; i < ACTORS; i++) verdict = verdict * 31 + scheduler_state(i);
  if (complaint[0] == 0 && is_new(verdict | 1)) {
    cast_settle(now->verify, now->bound, now->idle);
  }
  cast_end();
  world_go_back();
}

static unsigned actors_of(const scenario *s) {
  unsigned n = 0;
  while (n < REAPER && s->roles[n].run != NULL) n++;
  return n;
}

static void set_up(const scenario *s) {
  char name[64];
  now = s;
  name_apart(name, sizeof name, PROGRAM);
  cast_make(name, &s->settings);
  scheduler_on_death(somebody_died);
  s->prepare();
  act_as(KEEPER);
  for (unsigned i = 0; i < REAPER && s->roles[i].run != NULL; i++) {
    player_of[i] = s->roles[i].player;
    scheduler_actor(i, s->roles[i].name, s->roles[i].run, true, false);
  }
  player_of[REAPER] = LAST;
  if (!s->reaped) scheduler_actor(REAPER, "reaper", reap, true, true);
  world_keep();
}

static double seconds(void) {
  struct timespec t;
  (void)timespec_get(&t, TIME_UTC);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int try_it(const scenario *s, const way *w) {
  set_up(s);
  bounds b = actors_of(s) > 2 || s->reaped ? w->three : w->two;
  b.deep = s->deep;
  if (b.preemptions > 0 && b.kills == 0 && b.preemptions < s->preemptions) b.preemptions = s->preemptions;
  double begin = seconds();
  if (w->runs > 0) {
    scheduler_try_random(&b, seed, w->runs);
  } else {
    scheduler_try_all(&b);
  }
  uint64_t limit = most != 0 ? most : w->most;
  bool more;
  do {
    one_run();
    more = complaint[0] == 0 && scheduler_next();
  } while (more && (limit == 0 || scheduler_runs() < limit));
  char bound[32];
  snprintf(bound, sizeof bound, w->runs > 0 ? "at random" : "<= %u", scheduler_preemptions());
  printf("%-4s %-22s %-7s %9llu schedules %7llu ends %4u words %9s preemptions %6.1f s%s\n",
         complaint[0] == 0 ? "ok" : "FAIL", s->name, w->name, (unsigned long long)scheduler_runs(),
         (unsigned long long)states, scheduler_words(), bound, seconds() - begin, more ? ", cut off" : "");
  if (complaint[0] != 0)
    printf("     %s\n     %s\n     -replay %s %s '%s'\n", s->holds, complaint, w->name, scheduler_schedule(), s->name);
  cast_remove();
  return complaint[0] != 0;
}

static int plainly(const scenario *s) {
  const bounds none = {0};
  set_up(s);
  scheduler_replay(&none, "-");
  one_run();
  for (unsigned i = 0; i < actors_of(s); i++) {
    if (strcmp(scheduler_deeds(i), s->roles[i].deeds) != 0)
      complain("%s: \"%s\", not \"%s\"", s->roles[i].name, scheduler_deeds(i), s->roles[i].deeds);
  }
  printf("%-4s %-22s %-7s", complaint[0] == 0 ? "ok" : "FAIL", s->name, PLAIN);
  for (unsigned i = 0; i < actors_of(s); i++)
    printf("%s %s: %s", i > 0 ? ";" : "", s->roles[i].name, scheduler_deeds(i));
  printf("\n%s%s%s", complaint[0] != 0 ? "     " : "", complaint, complaint[0] != 0 ? "\n" : "");
  cast_remove();
  return complaint[0] != 0;
}

static int replay(const scenario *s, const way *w, const char *schedule) {
  set_up(s);
  scheduler_replay(&w->two, schedule);
  scheduler_print_steps(true);
  one_run();
  printf("%s: %s\n", s->name, complaint[0] != 0 ? complaint : "nothing is wrong");
  cast_remove();
  return complaint[0] != 0;
}

typedef struct {
  const scenario *s;
  const way *w;
  const char *schedule; /* NULL: all of them */
} job;
static int do_job(void *which) {
  const job *j = which;
  if (j->schedule != NULL) return replay(j->s, j->w, j->schedule);
  return strcmp(j->w->name, PLAIN) == 0 ? plainly(j->s) : try_it(j->s, j->w);
}

static bool guarded(const scenario *s, const way *w, const char *schedule) {
  int signal_number;
  job j = {s, w, schedule};
  int result = apart(PROGRAM, schedule != NULL ? 60 : 3000, do_job, &j, &signal_number);
  if (signal_number != 0) printf("FAIL %-22s %-7s signal %d\n", s->name, w->name, signal_number);
  return result == 0;
}

/* NULL behind the last one. */
static const scenario *scenario_at(unsigned i) {
  static const subject *const subjects[] = {
      &MESSAGE_SCENARIOS, &CONSUMER_SCENARIOS, &COMMIT_SCENARIOS, &HOUSEKEEPING_SCENARIOS, &CHANNEL_SCENARIOS,
      &MEMORY_SCENARIOS,  &LANE_SCENARIOS,     &GROUP_SCENARIOS,  &VALUE_SCENARIOS,        &ADMISSION_SCENARIOS,
      &ID_SCENARIOS,      &LETTER_SCENARIOS,   &CHOICE_SCENARIOS, &STORE_SCENARIOS,        &PAGED_SCENARIOS};
  for (unsigned k = 0; k < sizeof subjects / sizeof subjects[0]; k++) {
    if (i < subjects[k]->count) return &subjects[k]->scenarios[i];
    i -= subjects[k]->count;
  }
  return NULL;
}

int main(int count, char **arguments) {
  const way *ways = QUICK;
  const char *kind = NULL, *schedule = NULL;
  uint64_t runs = 0;
  unsigned passed = 0, failed = 0;
  for (count--, arguments++; count > 0 && arguments[0][0] == '-'; count--, arguments++) {
    const char *option = arguments[0];
    if (strcmp(option, "-full") == 0) {
      ways = FULL;
    } else if (strcmp(option, "-quick") == 0) {
      ways = QUICK;
    } else if (strcmp(option, "-replay") == 0 && count > 3) {
      kind = arguments[1];
      schedule = arguments[2];
      count -= 2, arguments += 2;
    } else if (count > 1 && (strcmp(option, "-most") == 0 || strcmp(option, "-random") == 0 ||
                             strcmp(option, "-seed") == 0 || strcmp(option, "-kind") == 0)) {
      if (option[1] == 'm') most = strtoull(arguments[1], NULL, 10);
      if (option[1] == 'r') runs = strtoull(arguments[1], NULL, 10);
      if (option[1] == 's') seed = strtoull(arguments[1], NULL, 10);
      if (option[1] == 'k') kind = arguments[1];
      count--, arguments++;
    } else {
      fprintf(stderr, "races [-quick | -full] [-most N] [-random RUNS] [-seed N] [-kind KIND] [-replay KIND SCHEDULE] "
                      "[SCENARIO ...]\n");
      return 2;
    }
  }
  const scenario *s;
  for (unsigned i = 0; (s = scenario_at(i)) != NULL; i++) {
    if (!asked_for(s->name, count, arguments)) continue;
    for (unsigned k = 0; ways[k].name != NULL; k++) {
      way w = ways[k];
      if (kind != NULL && strcmp(kind, w.name) != 0) continue;
      if (w.runs > 0 && runs > 0) w.runs = runs;
      bool good = guarded(s, &w, schedule);
      passed += good;
      failed += !good;
    }
  }
  printf("%u passed, %u failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
