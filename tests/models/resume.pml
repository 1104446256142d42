/* SPDX-License-Identifier: Apache-2.0
 *
 * A queue that was full stops its producers until it has emptied to a share of its limit.
 *
 * Mirrors: sb_limits.c sb_limits_room, reserve, reserve_or_stop; sb_resume.c sb_resume_stops, sb_resume_passes,
 *   sb_resume_stop; sb_notify.c wake_one_of, sb_notify_room_in; sb_waiter.c wait_listed, sb_waiter_leave.
 * Abstracted: `admitted` and `taken` are one count of what the queue holds, since a look reads them one after the other and
 *   room.pml has them apart; the wake word (wake.pml): a producer that was told wakes. A killed producer's reaper wakes one
 *   producer, as it does after each death. Nobody wakes a producer but a get, a producer that leaves the list, and the reaper.
 *
 * Claims: the queue never holds more than its limit; while it is stopped, no put is admitted above the share, but by a put that
 *   looked before the stop began; when the consumer has taken what it takes, no producer sleeps while the queue has room for it.
 *
 * quick: -DTAKES=2
 * full: -DTAKES=3
 * full: -DTAKES=2 -DKILLS=1
 * fault: -DTAKES=2 -DFAULT_NO_SECOND_LOOK
 * fault: -DTAKES=2 -DFAULT_STOP_FIRST_THEN_HINTS
 * fault: -DTAKES=2 -DFAULT_NO_BATON
 */
#include "common.h"

#define PRODUCERS 2
#ifndef TAKES
#define TAKES 2
#endif
#define LIMIT 3
#define SHARE 1

byte held = LIMIT; /* what the queue holds: it is full in the beginning */
byte phase;        /* odd: stopped */
bool listed[PRODUCERS], told[PRODUCERS];
bool asleep[PRODUCERS], gone[PRODUCERS + 1];
byte waiting;      /* the count `room_waiting` */

#define STOPPED (phase % 2 == 1)

/* A look: the hints, then `stops` (P38). */
inline look(room, seen, odd) {
#ifdef FAULT_STOP_FIRST_THEN_HINTS
  odd = STOPPED;
  seen = held;
#else
  seen = held;
  odd = STOPPED;
#endif
  room = seen < LIMIT && !(odd && seen > SHARE)
}

/* wake_one_of: the first producer of the list, if there is room */
inline wake(room, seen, odd, n) {
  if
  :: waiting > 0 ->
     look(room, seen, odd);
     n = 0;
     do
     :: room && n < PRODUCERS ->
        atomic {
          if
          :: listed[n] && !told[n] -> told[n] = true; room = false
          :: else -> n++
          fi
        }
     :: else -> break
     od
  :: else
  fi
}

proctype Producer(byte me) {
  byte seen, before, n;
  bool room, odd, put, passes;
  do
  :: put -> break
  :: !put ->
     /* reserve_or_stop */
     do
     :: atomic { FATE; seen = held }
        atomic { FATE; before = phase; passes = before % 2 == 0 || seen <= SHARE }
        if
        :: passes && before % 2 == 1 ->
           atomic {
             FATE;
             if
             :: phase == before -> phase = (phase + 1) % 8; break
             :: else /* again */
             fi
           }
        :: else -> break
        fi
     od;
     if
     :: passes ->
        atomic {
          FATE;
          if
          :: held < LIMIT -> held++; assert(held <= LIMIT); put = true
          :: else
          fi
        }
        if
        :: !put ->
           atomic { FATE; seen = held }
           atomic { FATE; before = phase }
           if
           :: before % 2 == 0 && seen > SHARE ->
              atomic {
                FATE;
                if
                :: phase == before -> phase = (phase + 1) % 8
                :: else
                fi
              }
           :: else
           fi
        :: else
        fi
     :: else
     fi;
     if
     :: !put -> /* wait_listed */
        atomic { FATE; listed[me] = true; told[me] = false; waiting++ }
#ifndef FAULT_NO_SECOND_LOOK
        look(room, seen, odd);
#else
        room = false;
#endif
        if
        :: room
        :: else ->
           asleep[me] = true;
end_asleep:
           told[me];
           asleep[me] = false
        fi;
        atomic { listed[me] = false; waiting-- }
#ifndef FAULT_NO_BATON
        look(room, seen, odd); /* sb_waiter_leave: the baton */
        if
        :: room -> wake(room, seen, odd, n)
        :: else
        fi
#endif
     :: else
     fi
  od;
  goto over;
dead:
  atomic { /* the reaper */
    if
    :: listed[me] -> listed[me] = false; waiting--
    :: else
    fi
  }
  wake(room, seen, odd, n);
over:
  atomic { gone[me] = true; seen = 0; before = 0; n = 0; room = false; odd = false; passes = false }
}

proctype Consumer() {
  byte taken, seen, n;
  bool room, odd;
  do
  :: taken < TAKES && held > 0 ->
     held--;
     wake(room, seen, odd, n);
     taken++
  :: taken == TAKES -> break
  od;
  atomic { gone[PRODUCERS] = true; taken = 0; seen = 0; n = 0; room = false; odd = false }
}

#define ROOM (held < LIMIT && !(STOPPED && held > SHARE))
#define ASLEEP(n) (asleep[n] && !told[n])
#define AT_REST(n) (gone[n] || ASLEEP(n))

active proctype Claim() {
end_claim:
  gone[PRODUCERS] && AT_REST(0) && AT_REST(1);
  /* what a queue that is left stopped above its share is waiting for is another get */
  assert(!(ROOM && (ASLEEP(0) || ASLEEP(1))))
}

init {
  byte n;
  atomic {
    do
    :: n < PRODUCERS -> run Producer(n); n++
    :: else -> break
    od;
    n = 0;
    run Consumer()
  }
}
