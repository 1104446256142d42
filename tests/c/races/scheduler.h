// SPDX-License-Identifier: Apache-2.0
/* Runs actors as coroutines of one thread, in every order in which their shared steps may happen.
 *
 * A run begins with the memory that was saved. Before each access to memory that several actors use, the schedule may
 * continue with the same actor, or with another one (a preemption). Before each write an actor may die for ever. A
 * store of an actor may stay invisible to the others for a while (a store buffer, as x86 has one). When an actor sleeps
 * or ends, any other actor may be next. Schedules are tried depth first until all within the bounds are done, or at
 * random (PCT: random priorities, which change at a few random moments).
 *
 * A preemption before an access that no other actor can observe gives no new behaviour, so only accesses to words count
 * that several actors use, at least one of them writing. The search is repeated until it finds no new words of this
 * kind.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#define ACTORS 6u
#define NOBODY ACTORS

typedef enum { ACTOR_ABSENT, ACTOR_LATER, ACTOR_READY, ACTOR_ASLEEP, ACTOR_DONE, ACTOR_DEAD } actor_state;

typedef struct {
  unsigned preemptions, kills;
  bool delays; /* stores may be seen late */
  bool deep;   /* as many preemptions where very many words are shared */
} bounds;

/* `later`: it begins after a death. */
void scheduler_actor(unsigned actor, const char *name, void (*run)(void), bool mortal, bool later);
void scheduler_on_death(void (*happened)(unsigned actor));
/* It dies, too: a thread of the same process. */
void scheduler_bury(unsigned actor);

/* Before the first run: what is to be tried. */
void scheduler_try_all(const bounds *b);
void scheduler_try_random(const bounds *b, uint64_t seed, uint64_t runs);
void scheduler_replay(const bounds *b, const char *schedule);
/* One run, until no actor can continue. */
void scheduler_run(void);
/* Continues with the actors that were woken since; false if there was none. */
bool scheduler_go_on(void);
/* Wakes the actors that sleep until a certain time; false if there is none. */
bool scheduler_time_passes(void);
/* False when all was tried. */
bool scheduler_next(void);
/* Runs so far, and how many words were shared in the last round. */
uint64_t scheduler_runs(void);
unsigned scheduler_words(void);
/* How many were tried: one less than was asked for where very many words are shared. */
unsigned scheduler_preemptions(void);

actor_state scheduler_state(unsigned actor);
bool scheduler_somebody_died(void);
extern unsigned scheduler_now; /* who acts; NOBODY: between runs, and after them */
static inline unsigned scheduler_current(void) { return scheduler_now; }
/* What was not the obvious choice in this run, to be replayed: "moment:action". */
const char *scheduler_schedule(void);
void scheduler_print_steps(bool yes);
/* What it did in this run, in words, as it noted them; "slept" is noted here. No part of the world. */
void scheduler_note(const char *deed);
const char *scheduler_deeds(unsigned actor);

/* ---- for the atomic operations and the system calls of the actors ---- */

/* Before an access. `site` is where. */
void scheduler_step(const char *site, const volatile void *word, bool write);
bool scheduler_delays(const volatile void *word);
/* The actor sleeps; false: it was time that woke it. */
bool scheduler_sleep(const volatile void *word, uint64_t until_ns);
void scheduler_wake(const volatile void *word);
void scheduler_yield(void);
uint64_t scheduler_now_ns(void);
uint64_t scheduler_moment(void); /* how many accesses there were in this run */

#endif
