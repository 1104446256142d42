/* SPDX-License-Identifier: Apache-2.0
 *
 * The turn of a producer that needs more room than others: a large message in a queue that small ones keep full.
 *
 * Mirrors: sb_turn.c sb_turn_stops, sb_turn_take, sb_turn_ends; sb_waiter.c sleep_for_room; sb_api_put.c admit; sb_limits.c
 *   sb_limits_admit.
 * Abstracted: time. The turn of a dead or stopped owner is over at some moment; with LATE a living owner may be late as well.
 *   The limit is one number (room.pml has its hints), and a producer looks again at any time (wake.pml has the notifications).
 *   Whether others passed: a producer may always take the turn.
 *
 * Claims: in a turn each small producer is admitted at most once, since it looked before the turn was taken; the limit is kept;
 *   when all have ended, every living producer has put its messages, also those that waited for the turn of a dead one.
 *
 * quick: -DLARGE=1 -DSMALL=2
 * quick: -DLARGE=2 -DSMALL=1
 * quick: -DLARGE=1 -DSMALL=2 -DKILLS=1
 * quick: -DLARGE=1 -DSMALL=1 -DSTOPS=1 -DLATE
 * full: -DLARGE=2 -DSMALL=2 -DKILLS=1 -DLATE
 * fault: -DLARGE=1 -DSMALL=2 -DFAULT_NO_TURN
 * fault: -DLARGE=1 -DSMALL=1 -DKILLS=1 -DFAULT_FOR_EVER
 * fault: -DLARGE=1 -DSMALL=1 -DFAULT_NOT_ENDED
 */
#include "common.h"

#ifndef LARGE
#define LARGE 1
#endif
#ifndef SMALL
#define SMALL 1
#endif
#define LIMIT 3
#define NEED 3
#define PUTS 3
#define NOBODY 255

byte used;               /* of the limit */
byte turn = NOBODY;      /* its owner; in C the time of its end */
bool gone[LARGE];        /* dead or stopped: does not prolong its turn */
byte passed[SMALL];      /* how often a small producer was admitted in this turn */
byte left = LARGE + SMALL;
byte i;

inline end_turn() {
  turn = NOBODY;
  i = 0;
  do
  :: i < SMALL -> passed[i] = 0; i++
  :: else -> break
  od;
  i = 0
}

proctype Small(byte me) {
  byte n;
  do
  :: n < PUTS ->
#ifndef FAULT_NO_TURN
     turn == NOBODY; /* sb_turn_stops */
#endif
     atomic {
       if
       :: used + 1 <= LIMIT ->
          used++;
          n++;
          if
          :: turn != NOBODY -> passed[me]++; assert(passed[me] <= 1)
          :: else
          fi
       :: else
       fi
     }
  :: else -> break
  od;
  atomic { n = 0; left-- }
}

proctype Large(byte me) {
  bool put;
  do
  :: !put && used + NEED <= LIMIT ->
     atomic {
       FATE;
       if
       :: used + NEED <= LIMIT -> used = used + NEED; put = true
       :: else
       fi
     }
     atomic {
       FATE;
#ifndef FAULT_NOT_ENDED
       if
       :: put && turn != NOBODY -> end_turn() /* sb_turn_ends: whoever has the turn needs no more than this one */
       :: else
       fi
#endif
     }
  :: !put && used + NEED > LIMIT && turn == NOBODY ->
     atomic {
       FATE;
       if
       :: turn == NOBODY -> turn = me /* sb_turn_take */
       :: else
       fi
     }
  :: put -> break
  od;
  goto over;
dead:
halted:
over:
  atomic {
    put = false;
#ifndef FAULT_NOT_ENDED
    gone[me] = true; /* nobody prolongs its turn any more */
#endif
    left--
  }
}

/* The consumer, and the clock. */
active proctype World() {
  do
  :: atomic { used > 0 -> used-- }
#ifndef FAULT_FOR_EVER
#ifdef LATE
  :: atomic { turn != NOBODY -> end_turn() }
#else
  :: atomic { turn != NOBODY && gone[turn] -> end_turn() }
#endif
#endif
  :: left == 0 && used == 0 -> break
  od
}

active proctype Claim() {
  assert(used <= LIMIT)
}

init {
  byte n;
  atomic {
    do
    :: n < LARGE -> run Large(n); n++
    :: else -> break
    od;
    n = 0;
    do
    :: n < SMALL -> run Small(n); n++
    :: else -> break
    od;
    n = 0
  }
}
