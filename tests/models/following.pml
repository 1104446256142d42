/* SPDX-License-Identifier: Apache-2.0
 *
 * A consumer that follows a non-destructive queue: its cursor, the positions that it notes, and who makes noted messages ready.
 *
 * Mirrors: sb_following.c sb_following_take, look_on, look_behind, look_at_waiting, pass; sb_reading.c sb_reading_take;
 *   sb_api_selected.c deliver_at; sb_recover.c recover.
 * Abstracted: one leaf, whose cells no process reuses (pages.pml). A notification is one flag (wake.pml). The copy of a message
 *   and its second look are one step (reader.pml has bodies that are read beside others). The looks after which the cursor
 *   passes an owned cell: it may pass at once. Returned messages, which are noted like those that it passed.
 *
 * A producer appends messages: ready ones, those of a commit (STAGED; the commit publishes or undoes it), or scheduled ones.
 *   OTHERS consumers own a ready message for a moment, to read its long body, or end it. The housekeeper makes scheduled ones
 *   ready when they are due, an administrator (EARLY) before.
 *
 * Claims: no message is read twice; at rest each ready message was read; a message of the producer is not read before an
 *   earlier one that was ready when it was appended, that nobody owned since, and that was never scheduled.
 *
 * quick: -DMESSAGES=3
 * quick: -DMESSAGES=2 -DOTHERS=1
 * quick: -DMESSAGES=1 -DEARLY=1 -DKILLS=1
 * full: -DMESSAGES=2 -DEARLY=1 -DKILLS=1
 * full: -DMESSAGES=2 -DOTHERS=1 -DEARLY=1
 * full: -DMESSAGES=3 -DOTHERS=1
 * full: -DMESSAGES=2 -DOTHERS=1 -DKILLS=1
 * full: -DMESSAGES=2 -DEARLY=1 -DKILLS=2
 * fault: -DMESSAGES=2 -DFAULT_NOT_NOTED
 * fault: -DMESSAGES=3 -DFAULT_NOT_BEHIND
 * fault: -DMESSAGES=2 -DEARLY=1 -DFAULT_NOT_RAISED
 * fault: -DMESSAGES=2 -DEARLY=1 -DFAULT_RAISED_AFTER
 * fault: -DMESSAGES=2 -DEARLY=1 -DKILLS=1 -DFAULT_REAPER_SILENT
 * fault: -DMESSAGES=2 -DFAULT_LOOK_THEN_CLEAR
 */
#include "common.h"

#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef OTHERS
#define OTHERS 0
#endif
#ifndef EARLY
#define EARLY 0
#endif

#define FREE 0
#define AVAILABLE 1
#define STAGED 2
#define SCHEDULED 3
#define REMOVING 4
#define TOMBSTONE 5

byte cell[MESSAGES];
bool due[MESSAGES];       /* its delay is over */
bool was_ready[MESSAGES]; /* when the next one was appended; false after somebody owned it, and if it was scheduled */
bool scheduled[MESSAGES];
bool got[MESSAGES];
byte early;
bool wake;
bool consumer_idle;
byte working = 2 + OTHERS + EARLY; /* processes that have not ended */
byte reap;                         /* deaths that no reaper has looked at */

inline notify() { atomic { FATE; wake = true } }

/* A process that owned no cell but perhaps that of `p` is dead; its reaper releases the cell. */
inline die(p) {
  if
  :: mine -> cell[p] = AVAILABLE
  :: mine && cell[p] == STAGED -> cell[p] = TOMBSTONE
  :: !mine
  fi;
  reap++
}

proctype Producer() {
  byte p;
  bool mine;
  do
  :: p < MESSAGES ->
     atomic {
       FATE;
       if
       :: p > 0 -> was_ready[p - 1] = cell[p - 1] == AVAILABLE && !scheduled[p - 1]
       :: else
       fi;
       if
       :: cell[p] = AVAILABLE
       :: cell[p] = STAGED; mine = true
       :: cell[p] = SCHEDULED; scheduled[p] = true
       fi
     }
     if
     :: cell[p] == STAGED ->
        atomic {
          FATE;
          if
          :: cell[p] = AVAILABLE
          :: cell[p] = TOMBSTONE
          fi;
          mine = false
        }
     :: else
     fi;
     notify();
     p++
  :: else -> break
  od;
  goto halted;
dead:
  atomic { die(p); p = 0; mine = false }
halted:
  atomic { p = 0; working-- }
}

/* The housekeeper. It is never killed here: another one takes its place (park.pml). */
proctype Housekeeper() {
  byte p;
  do
  :: p < MESSAGES ->
     if
     :: atomic { cell[p] == SCHEDULED -> due[p] = true }
        if
        :: atomic { cell[p] == SCHEDULED -> cell[p] = REMOVING; was_ready[p] = false }
           cell[p] = AVAILABLE;
           wake = true
        :: cell[p] != SCHEDULED
        fi;
        p++
     :: cell[p] == TOMBSTONE || cell[p] == AVAILABLE -> p++
     :: cell[p] == FREE && working == 1 -> p++ /* the producer was killed before */
     fi
  :: else -> break
  od;
  atomic { p = 0; working-- }
}

proctype Administrator() {
  byte p;
  bool mine;
  do
  :: p < MESSAGES ->
     atomic {
       FATE;
       mine = cell[p] == SCHEDULED && !due[p];
       if
       :: mine -> cell[p] = REMOVING; was_ready[p] = false
       :: else
       fi
     }
     if
     :: mine ->
        atomic { FATE; cell[p] = AVAILABLE; mine = false }
#ifdef FAULT_RAISED_AFTER
        notify();
        atomic { FATE; early++ }
#else
#ifndef FAULT_NOT_RAISED
        atomic { FATE; early++ }
#endif
        notify()
#endif
     :: else
     fi;
     p++
  :: else -> break
  od;
  goto halted;
dead:
  atomic { die(p); p = 0; mine = false }
halted:
  atomic { p = 0; working-- }
}

/* Another consumer that reads a long body, or an administrator that removes a message. */
proctype Other() {
  byte p;
  bool mine;
  do
  :: p < MESSAGES ->
     atomic {
       FATE;
       mine = cell[p] == AVAILABLE;
       if
       :: mine -> cell[p] = REMOVING; was_ready[p] = false
       :: else
       fi
     }
     if
     :: mine ->
        atomic {
          FATE;
          if
          :: cell[p] = AVAILABLE
          :: cell[p] = TOMBSTONE
          fi;
          mine = false
        }
        notify()
     :: else
     fi;
     p++
  :: else -> break
  od;
  goto halted;
dead:
  atomic { die(p); p = 0; mine = false }
halted:
  atomic { p = 0; working-- }
}

active proctype Reaper() {
end:
  do
  :: reap > 0 ->
#ifndef FAULT_REAPER_SILENT
     early++;
#endif
     wake = true;
     reap--
  od
}

#define NONE 0
#define PASSED 1
#define WAITS 2

/* Reads the message at `at`. */
inline read(at) {
  assert(!got[at]);
  k = 0;
  do
  :: k < at -> assert(!(was_ready[k] && cell[k] == AVAILABLE && !got[k])); k++
  :: else -> break
  od;
  k = 0;
  got[at] = true
}

inline look_behind() {
  n = 0;
  did = false;
  do
  :: n < MESSAGES && !did ->
     if
     :: note[n] == PASSED ->
        atomic {
          if
          :: cell[n] == AVAILABLE -> read(n); note[n] = NONE; did = true
          :: cell[n] == TOMBSTONE -> note[n] = NONE
          :: cell[n] == SCHEDULED && !due[n] -> note[n] = WAITS
          :: else /* owned, or due any moment: it stays */
          fi
        }
     :: else
     fi;
     n++
  :: else -> break
  od;
  n = 0
}

inline take_over(all) {
  atomic {
    n = 0;
    do
    :: n < MESSAGES ->
       if
       :: note[n] == WAITS && (all || due[n]) -> note[n] = PASSED
       :: else
       fi;
       n++
    :: else -> break
    od;
    n = 0
  }
}

active proctype Consumer() {
  byte note[MESSAGES];
  byte cursor, seen_early, now_early, n, k, seen;
  bool did, more;
end:
  do
  :: atomic { wake -> consumer_idle = false }
#ifndef FAULT_LOOK_THEN_CLEAR
     wake = false;
#endif
     more = true;
     do
     :: more ->
        more = false;
        now_early = early;
        take_over(now_early != seen_early);
        seen_early = now_early;
        now_early = 0;
        look_behind();
        if
        :: did -> more = true
        :: else ->
           do
           :: cursor < MESSAGES ->
              seen = cell[cursor];
              if
              :: seen == FREE -> break
              :: seen == AVAILABLE ->
#ifndef FAULT_NOT_BEHIND
                 look_behind();
#else
                 did = false;
#endif
                 if
                 :: did -> more = true; break
                 :: else
                 fi;
                 atomic {
                   if
                   :: cell[cursor] == AVAILABLE -> read(cursor); cursor++; more = true
                   :: else /* it changed: look again */
                   fi
                 }
                 if
                 :: more -> break
                 :: else
                 fi
              :: seen == TOMBSTONE -> cursor++
              :: seen == SCHEDULED ->
                 atomic {
                   if
                   :: cell[cursor] == SCHEDULED -> note[cursor] = WAITS; cursor++
                   :: else
                   fi
                 }
              :: else ->
#ifndef FAULT_NOT_NOTED
                 note[cursor] = PASSED;
#endif
                 cursor++
              fi
           :: else -> break
           od;
           seen = 0
        fi;
        did = false
     :: else -> break
     od;
#ifdef FAULT_LOOK_THEN_CLEAR
     wake = false;
#endif
     consumer_idle = true
  od
}

active proctype Rest() {
  byte p;
end:
  atomic {
    working == 0 && reap == 0 && !wake && consumer_idle && _nr_pr == 3 ->
    do
    :: p < MESSAGES -> assert(cell[p] != AVAILABLE || got[p]); p++
    :: else -> break
    od
  }
}

init {
  byte n;
  atomic {
    run Producer();
    run Housekeeper();
#if EARLY > 0
    run Administrator();
#endif
    do
    :: n < OTHERS -> run Other(); n++
    :: else -> break
    od;
    n = 0
  }
}
