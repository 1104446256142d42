/* SPDX-License-Identifier: Apache-2.0
 *
 * The seats of a queue: consumers that register under the topology lock, beside others that saw no seats yet, and a process
 * that gives the queue its seats.
 *
 * Mirrors: sb_admission.c sb_admission_begin, sb_admission_enter, sb_admission_prepare, registered, has_seats;
 *   sb_api_queues.c configure, sb_queue_configure; sb_api_consumers.c subscribe; sb_topology.c sb_topology_is_held.
 * Abstracted: the kernel's lock is one step, and is free when its holder is killed; a process that is stopped keeps it. The
 *   list of consumers is counted in one step for each place, as the walk reads one node after the other.
 *
 * Claims: the consumers that are attached are never more than the seats, once the setting is stored; a consumer is refused
 *   only if it saw all seats taken; a change is refused only if it saw more consumers than the seats. When all is at rest
 *   the lock is free, unless its holder was stopped.
 *
 * quick: -DCONSUMERS=2 -DROUNDS=2
 * quick: -DCONSUMERS=3 -DROUNDS=1
 * quick: -DCONSUMERS=2 -DROUNDS=1 -DKILLS=1 -DSTOPS=1
 * full: -DCONSUMERS=3 -DROUNDS=1 -DKILLS=1
 * full: -DCONSUMERS=3 -DROUNDS=2
 * fault: -DCONSUMERS=2 -DROUNDS=1 -DFAULT_NO_LOCK
 * fault: -DCONSUMERS=2 -DROUNDS=1 -DFAULT_COUNT_FIRST
 * fault: -DCONSUMERS=2 -DROUNDS=1 -DFAULT_NO_SECOND_LOOK
 */
#include "common.h"

#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#define SEATS 1
#define NOBODY 255

byte holder = NOBODY;  /* of the topology lock */
bool flag;             /* SB_QUEUE_SEATS */
bool limited;          /* the setting is stored */
bool registered[CONSUMERS], attached[CONSUMERS], killed[CONSUMERS];
byte i;

/* Nobody may be attached beyond the seats when the setting is stored. */
inline claim() {
  i = 0;
  enough = 0;
  do
  :: i < CONSUMERS -> enough = enough + (attached[i] -> 1 : 0); i++
  :: else -> break
  od;
  i = 0;
  assert(!limited || enough <= SEATS);
  enough = 0
}

inline count(which) {
  j = 0;
  n = 0;
  do
  :: j < CONSUMERS -> atomic { FATE; n = n + (registered[j] && j != which -> 1 : 0); j++ }
  :: else -> break
  od;
  j = 0
}

proctype Consumer(byte me) {
  byte round, j, n, enough;
  bool alone;
again:
  do
  :: true ->
     if
#ifndef FAULT_NO_LOCK
     :: atomic { flag && !alone && holder == NOBODY -> FATE; holder = me; alone = true }
     :: flag && !alone && stops > 0 -> goto ended /* the holder is stopped: Timeout */
#else
     :: flag && !alone -> alone = true
#endif
     :: !flag || alone
     fi;
     if
     :: flag && limited -> /* sb_admission_begin: both change only under the lock, or before the consumer has it */
        count(me);
        if
        :: n >= SEATS -> n = 0; break /* SB_NO_SEAT */
        :: else -> n = 0
        fi
     :: else
     fi;
     atomic { FATE; registered[me] = true }
#ifndef FAULT_NO_SECOND_LOOK
     if
     :: atomic { !alone && flag -> FATE; registered[me] = false } /* P30: SB_UNLOCKED, it begins again */
     :: atomic { alone || !flag -> FATE; attached[me] = true; claim() }
        break
     fi
#else
     atomic { FATE; attached[me] = true; claim() }
     break
#endif
  od;
  atomic {
    FATE;
    if
    :: alone -> holder = (holder == me -> NOBODY : holder); alone = false
    :: else
    fi
  }
  if
  :: atomic { round + 1 < ROUNDS -> FATE; attached[me] = false; registered[me] = false; round++ }
     goto again
  :: true
  fi;
  goto ended;
dead:
  atomic {
    killed[me] = true;
    if
    :: alone && holder == me -> holder = NOBODY
    :: else
    fi
  }
halted:
ended:
  atomic { round = 0; j = 0; n = 0; alone = false }
}

/* Gives the queue its seats. */
proctype Configurer() {
  byte j, n, enough;
  bool had, alone;
  if
  :: atomic { holder == NOBODY -> FATE; holder = CONSUMERS; alone = true }
  :: stops > 0 -> goto ended
  fi;
#ifdef FAULT_COUNT_FIRST
  count(NOBODY);
  atomic { FATE; flag = true }
#else
  atomic { FATE; flag = true } /* P30 */
  count(NOBODY);
#endif
  if
  :: n <= SEATS -> atomic { FATE; n = 0; limited = true; claim() }
  :: else -> atomic { FATE; n = 0; flag = false }
  fi;
  atomic { FATE; holder = NOBODY; alone = false }
  goto ended;
dead:
  atomic {
    if
    :: alone -> holder = NOBODY
    :: else
    fi
  }
halted:
ended:
  atomic { j = 0; n = 0; alone = false }
}

active proctype Reaper() {
  byte whose;
end_reaper:
  do
  :: atomic { whose < CONSUMERS && killed[whose] -> attached[whose] = false; registered[whose] = false; killed[whose] = false }
  :: whose < CONSUMERS && !killed[whose] -> whose++
  :: atomic { whose == CONSUMERS && (killed[0] || killed[CONSUMERS - 1] || killed[CONSUMERS / 2]) -> whose = 0 }
  od
}

active proctype Judge() {
end_judge:
  timeout;
  assert(stops > 0 || holder == NOBODY)
}

init {
  byte k;
  atomic {
    do
    :: k < CONSUMERS -> run Consumer(k); k++
    :: else -> break
    od;
    run Configurer()
  }
}
