/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate of a queue that waits for consumers: tickets, and the number below which the gate is open.
 *
 * Mirrors: sb_dispatch.c sb_dispatch_enter, sb_dispatch_passes, look, look_at, must_open, open_to, notify_all; sb_nodes.c
 *   sb_node_create, sb_node_destroy; sb_subscription.c sb_subscription_may_want; sb_recover.c recover.
 * Abstracted: the list of all consumers is an array with a place for each process; a process that comes again has the same
 *   node. There is no delay, which would open the gate at any moment. A bounded sleep does not end: each consumer that
 *   passes was notified, or looked when it came.
 *
 * Claims: a consumer gets messages only if enough consumers were attached at the same time while it was, or if it came while
 *   one of them was still there; one that comes after all have left begins anew. When all is at rest and enough are attached,
 *   each of them gets messages; so does each for which the gate was opened, or that is attached beside one that gets
 *   messages. A killed process counts until it is reaped.
 *
 * quick: -DCONSUMERS=2 -DROUNDS=3
 * quick: -DCONSUMERS=2 -DROUNDS=2 -DKILLS=1
 * quick: -DCONSUMERS=2 -DROUNDS=1 -DKILLS=1 -DSTOPS=1
 * full: -DCONSUMERS=3 -DROUNDS=1
 * full: -DCONSUMERS=2 -DROUNDS=2 -DKILLS=1 -DSTOPS=1
 * full: -DCONSUMERS=2 -DROUNDS=2 -DKILLS=2
 * full: -DCONSUMERS=3 -DROUNDS=1 -DKILLS=1
 * fault: -DCONSUMERS=2 -DROUNDS=2 -DFAULT_LOOK_FIRST
 * fault: -DCONSUMERS=2 -DROUNDS=2 -DKILLS=1 -DFAULT_END_LAST
 * fault: -DCONSUMERS=2 -DROUNDS=2 -DKILLS=1 -DFAULT_STATE
 * fault: -DCONSUMERS=2 -DROUNDS=2 -DFAULT_OPEN_SILENTLY
 * fault: -DCONSUMERS=2 -DROUNDS=1 -DKILLS=1 -DFAULT_REAP_SILENTLY
 */
#include "common.h"

#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define ENOUGH 2

byte tickets, open_before;
bool live[CONSUMERS], told[CONSUMERS], passes[CONSUMERS], killed[CONSUMERS], stopped[CONSUMERS], rests[CONSUMERS];
byte ticket[CONSUMERS];
bool over;

/* What the queue owes its consumers; no process reads it. A consumer is attached from the draw of its ticket on. */
byte attached;
bool open, in[CONSUMERS], lawful[CONSUMERS];
byte k;

inline comes(whose) {
  in[whose] = true;
  attached++;
  if
  :: attached >= ENOUGH -> open = true
  :: else
  fi;
  k = 0;
  do
  :: k < CONSUMERS -> lawful[k] = lawful[k] || (open && in[k]); k++
  :: else -> break
  od;
  k = 0
}
inline goes(whose) {
  live[whose] = false;
  passes[whose] = false;
  told[whose] = false;
  if
  :: in[whose] -> attached--; in[whose] = false
  :: else
  fi;
  lawful[whose] = false;
  if
  :: attached == 0 ->
     open = false;
#ifdef FAULT_STATE /* the gate is a state, and the last consumer that leaves closes it */
     open_before = 0
#endif
  :: else
  fi
}

inline look() {
  n = 0;
  j = 0;
  seen_open = false;
#ifndef FAULT_END_LAST
  atomic { FATE; end = tickets + 1 }
#else
  end = 255; /* it counts those that come during the walk */
#endif
  do
  :: j < CONSUMERS ->
     atomic { /* is_same: what was read of a node belongs together */
       FATE;
       if
       :: live[j] && ticket[j] != 0 && ticket[j] < end -> n++; seen_open = seen_open || ticket[j] < open_before
       :: else
       fi;
       j++
     }
  :: else -> break
  od;
#ifdef FAULT_END_LAST
  atomic { FATE; end = tickets + 1 }
#endif
  if
  :: n >= ENOUGH || seen_open ->
     atomic {
       FATE;
#ifdef FAULT_STATE
       open_before = 255
#else
       if
       :: open_before < end -> open_before = end
       :: else
       fi
#endif
     }
     j = 0;
     do
     :: j < CONSUMERS ->
#ifndef FAULT_OPEN_SILENTLY
        atomic {
          FATE;
          told[j] = told[j] || (live[j] && ticket[j] != 0 && ticket[j] < end);
          j++
        }
#else
        j++
#endif
     :: else -> break
     od
  :: else
  fi;
  atomic { n = 0; j = 0; seen_open = false; end = 0 }
}

inline try_to_pass() {
  atomic {
    FATE;
    if
    :: ticket[me] < open_before -> passes[me] = true; assert(lawful[me])
    :: else
    fi
  }
}

proctype Consumer(byte me) {
  byte round, n, j, end, mine;
  bool seen_open;
again:
  atomic { FATE; live[me] = true; ticket[me] = 0; told[me] = false }
  atomic { FATE; tickets++; mine = tickets; comes(me) }
#ifdef FAULT_LOOK_FIRST
  look();
  atomic { FATE; ticket[me] = mine; mine = 0 }
#else
  atomic { FATE; ticket[me] = mine; mine = 0 } /* P31 */
  look();
#endif
  try_to_pass();
  do
  :: !passes[me] && told[me] ->
     atomic { FATE; told[me] = false }
     look(); /* sb_dispatch_passes looks only if the gate is closed: to look more often does no harm */
     try_to_pass()
  :: round + 1 < ROUNDS ->
     atomic { FATE; goes(me); round++ }
     goto again
  :: round + 1 >= ROUNDS && !rests[me] ->
     if
     :: rests[me] = true
     :: atomic { FATE; goes(me) }
        goto ended
     fi
  :: over && rests[me] -> goto ended
  od;
dead:
  killed[me] = true;
  goto ended;
halted:
  stopped[me] = true;
ended:
  atomic { round = 0; n = 0; j = 0; end = 0; mine = 0; seen_open = false }
}

/* There is always a process that reaps, which may be killed as well; a stopped one is replaced by the next. */
active proctype Reaper() {
  byte n, j, end, whose;
  bool seen_open;
again:
  do
  :: whose < CONSUMERS && killed[whose] ->
     atomic { FATE; goes(whose) }
#ifndef FAULT_REAP_SILENTLY
     look();
#endif
     atomic { FATE; killed[whose] = false; whose = 0 }
  :: whose < CONSUMERS && !killed[whose] -> whose++
  :: atomic { whose == CONSUMERS && (killed[0] || killed[CONSUMERS - 1] || killed[CONSUMERS / 2]) -> whose = 0 }
  :: over -> break
  od;
  goto ended;
dead:
halted:
  atomic { whose = 0; n = 0; j = 0; end = 0; seen_open = false }
  goto again;
ended:
  whose = 0
}

inline judge() {
  i = 0;
  do
  :: i < CONSUMERS ->
     if
     :: live[i] && ticket[i] != 0 && (rests[i] || stopped[i]) -> rest++; got = got || passes[i] || ticket[i] < open_before
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0;
  do
  :: i < CONSUMERS -> assert(!(live[i] && rests[i] && !stopped[i] && (rest >= ENOUGH || got)) || passes[i]); i++
  :: else -> break
  od
}

/* A process that is stopped may have kept a notification to itself: the bounded sleep of the others ends. */
active proctype Judge() {
  byte i, rest;
  bool got;
  timeout;
  atomic {
    if
    :: stops > 0 ->
       i = 0;
       do
       :: i < CONSUMERS -> told[i] = live[i]; i++
       :: else -> break
       od
    :: else
    fi
  }
  timeout;
  atomic { judge(); over = true }
}

init {
  atomic {
    k = 0;
    do
    :: k < CONSUMERS -> run Consumer(k); k++
    :: else -> break
    od;
    k = 0
  }
}
