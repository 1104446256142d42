/* SPDX-License-Identifier: Apache-2.0
 *
 * Sleeping and waking: the wake word of an IO thread with the flags of its connection; with ROOM the threads that wait for
 * room in a queue, or for memory; with ROW the threads that wait for a consumer's row, and its eventfd.
 *
 * Mirrors: sb_wait.c sb_wake_arm, sb_wake_disarm, sb_wake_sleep, sb_wake_ring; sb_notify.c sb_notify_node, wake_one_of,
 *   sb_notify_room_made; sb_consumer.c sb_consumer_turn (clearing of flags), push, sb_consumer_signal; sb_io.c collect,
 *   some_turns, sb_io_run, look_everywhere; sb_waiter.c sb_waiter_room, sb_waiter_leave, sb_waiter_row;
 *   sb_api_consumers.c sb_consumer_arm_event.
 * Abstracted: what a target does in its turn is to finish all its jobs; FUTEX_WAIT compares and sleeps in one step, as the
 *   kernel does; the sequence of the wake word counts modulo 4.
 *
 * Claims: nobody sleeps while there is something for him, without any bounded sleep running out; after a kill or a stop not
 *   longer than one bounded sleep, and even that only if nobody told him to the end. A wake-up is not passed around without end.
 *
 * full: -DJOBS=2
 * quick: -DJOBS=2 -DKILLS=1 -DSTOPS=1
 * quick: -DROOM -DPASSER -DKILLS=1 -DSTOPS=1
 * quick: -DROOM -DPASSER -DGIVES_BACK -DMADE=1
 * quick: -DROOM -DSLEEPERS=2 -DNEED=2
 * quick: -DROOM -DSLEEPERS=2 -DNEED=2 -DOTHER=1
 * quick: -DROOM -DMEMORY -DSLEEPERS=2
 * quick: -DROW
 * quick: -DROW -DEVENT
 * full: -DJOBS=3
 * full: -DJOBS=3 -DKILLS=1 -DSTOPS=1
 * full: -DROOM -DPASSER -DSLEEPERS=2 -DKILLS=1 -DSTOPS=1
 * bitstate: -DJOBS=3 -DNOTIFIERS=3 -DKILLS=1 -DSTOPS=1 -w33 -Q2
 * fault: -DJOBS=2 -DFAULT_NO_SECOND_LOOK
 * fault: -DJOBS=3 -DKILLS=1 -DFAULT_PENDING_IS_ENOUGH
 * fault: -DROW -DFAULT_LOOK_FIRST
 * full fault: -DJOBS=2 -DKILLS=1 -DFAULT_STOP_AT_SET_FLAG
 * full fault: -DJOBS=3 -DNOTIFIERS=3 -DKILLS=1 -DFAULT_NO_SEQUENCE
 * full fault: -DROW -DFAULT_NEVER_ODD
 * full fault: -DROW -DEVENT -DFAULT_LOOK_THEN_ARM
 * fault: -DROOM -DPASSER -DFAULT_ARM_LATER
 * fault: -DROOM -DSLEEPERS=2 -DNEED=2 -DMADE=1 -DFAULT_WAKE_ANYBODY
 * fault: -DROOM -DMEMORY -DSLEEPERS=2 -DNEED=2 -DMADE=1 -DFAULT_ALWAYS_PASS_ON
 * fault: -DROOM -DPASSER -DGIVES_BACK -DMADE=1 -DFAULT_GIVE_BACK_SILENTLY
 */
#include "common.h"

#define RUN 0
#define ARMED 1
#define PENDING 2
#define NOTIFIED 3
#ifdef FAULT_NO_SEQUENCE
#define SEQUENCE 1
#else
#define SEQUENCE 4
#endif

#ifndef SLEEPERS
#define SLEEPERS 1
#endif
byte word[SLEEPERS], sequence[SLEEPERS];
bool asleep[SLEEPERS];

inline arm(w) {
  atomic { word[w] = ARMED; sequence[w] = (sequence[w] + 1) % SEQUENCE }
}
inline disarm(w) {
  atomic { word[w] = RUN }
}
inline sleep_on(w) { /* the owner alone changes the sequence: the word is as it was armed if it is ARMED */
  atomic {
    if
    :: word[w] == ARMED -> asleep[w] = true
    :: else
    fi
  }
end_asleep:
  !asleep[w]
}

inline ring(w) { /* sb_wake_ring */
  atomic { FATE; found = word[w]; at = sequence[w] }
  do
  :: atomic { found == RUN || found == NOTIFIED -> break }
#ifdef FAULT_PENDING_IS_ENOUGH
  :: atomic { found == PENDING -> break }
#endif
  :: else ->
     atomic {
       FATE;
       if
       :: word[w] == found && sequence[w] == at -> word[w] = PENDING; found = PENDING
       :: else -> found = word[w]; at = sequence[w]; retry = true
       fi
     }
     if
     :: retry -> retry = false
     :: else ->
        atomic { FATE; asleep[w] = false }
        atomic {
          FATE;
          if
          :: word[w] == PENDING && sequence[w] == at -> word[w] = NOTIFIED
          :: else
          fi
        }
        break
     fi
  od;
  atomic { found = 0; at = 0; retry = false }
}

#if !defined(ROOM) && !defined(ROW)
/* ---- an IO thread and its notifiers ---- */
#ifndef NOTIFIERS
#define NOTIFIERS 2
#endif
#ifndef JOBS
#define JOBS 2
#endif
#define TARGETS 2
byte jobs[TARGETS]; /* targets that were moved to NOTIFIED */
bool target_bit[TARGETS], connection_bit;
bool timed_out;
byte given;
byte turns[TARGETS]; /* modulo 4 */
bool told[TARGETS]; /* for the claims: whoever moved it has told the IO thread, to the end */

proctype Notifier(byte me) {
  byte t, mine, found, at;
  bool retry;
  do
  :: atomic {
       given < JOBS -> given++;
       if
       :: t = 0
       :: t = 1
       fi;
       FATE;
       jobs[t]++;
       mine = turns[t]
     }
     /* sb_notify_node: target, connection, each on its own */
#ifdef FAULT_STOP_AT_SET_FLAG
     atomic { FATE; retry = target_bit[t]; target_bit[t] = true }
     if
     :: retry -> retry = false
     :: else -> atomic { FATE; connection_bit = true } ring(0)
     fi;
#else
     atomic { FATE; target_bit[t] = true }
     atomic { FATE; connection_bit = true }
     ring(0);
#endif
     atomic { told[t] = told[t] || turns[t] == mine; t = 0; mine = 0 }
  :: atomic { given == JOBS -> break }
  od;
dead:
halted:
  atomic { t = 0; mine = 0; found = 0; at = 0; retry = false }
}

proctype IO() {
  bool pending[TARGETS], flag;
again:
  do /* collect, then turns, until there is nothing more */
  :: atomic { flag = connection_bit; connection_bit = false }
     if
     :: flag ->
        atomic { pending[0] = pending[0] || target_bit[0]; pending[1] = pending[1] || target_bit[1]; target_bit[0] = false; target_bit[1] = false; flag = false }
     :: else
     fi;
     if
     :: pending[0] -> atomic { jobs[0] = 0; told[0] = false; turns[0] = (turns[0] + 1) % 4; pending[0] = false }
     :: pending[1] -> atomic { jobs[1] = 0; told[1] = false; turns[1] = (turns[1] + 1) % 4; pending[1] = false }
     :: else -> break
     fi
  od;
  arm(0); /* P6 */
#ifndef FAULT_NO_SECOND_LOOK
  if
  :: atomic { connection_bit -> disarm(0) } goto again
  :: else
  fi;
#endif
  sleep_on(0);
  disarm(0);
  if
  :: timed_out -> /* look_everywhere */
     timed_out = false;
     atomic { pending[0] = jobs[0] > 0 }
     atomic { pending[1] = jobs[1] > 0 }
  :: else
  fi;
  goto again
}

proctype Clock() {
  timeout;
  if
  :: atomic { jobs[0] + jobs[1] == 0 -> goto end_ }
  :: else
  fi;
#if KILLS + STOPS > 0
  assert(kills + stops > 0 && asleep[0]);
  assert(!told[0] && !told[1]); /* only what nobody told of to the end waits for the bound */
  atomic { timed_out = true; asleep[0] = false } /* the bounded sleep */
  timeout;
#endif
  assert(jobs[0] + jobs[1] == 0);
end_:
  skip
}

init {
  atomic {
    run Notifier(0);
#if NOTIFIERS > 1
    run Notifier(1);
#endif
#if NOTIFIERS > 2
    run Notifier(2);
#endif
    run IO();
    run Clock()
  }
}
#endif

#ifdef ROOM
/* ---- waiting for room: SLEEPERS producers that wait, one that does not, a consumer that makes room ---- */
#ifndef NEED
#define NEED 1
#endif
#ifndef MADE
#define MADE 2
#endif
#ifdef MEMORY
#define MEMORY_ true
#else
#define MEMORY_ false
#endif
#ifndef OTHER
#define OTHER NEED
#endif
#define NOT_INTERESTED 0
#define INTERESTED 1
#define TOLD 2
short room;
byte state[SLEEPERS], waiting, wakes;
byte need[SLEEPERS];
bool given_up;
bool done[SLEEPERS], timed_out[SLEEPERS];

inline try_room_node(n) { /* of wake_one_of */
  atomic {
    FATE;
#if defined(FAULT_WAKE_ANYBODY) || defined(MEMORY) /* two that wait for more than there is wake each other when they leave */
    ok = state[n] == INTERESTED
#else
    ok = state[n] == INTERESTED && room >= need[n]
#endif
  }
  if
  :: ok ->
     atomic { FATE; if :: state[n] == INTERESTED -> state[n] = TOLD :: else -> ok = false fi }
     if
     :: ok ->
        atomic { FATE; waiting-- }
        atomic { FATE; wakes++; assert(wakes <= 4 * SLEEPERS + 2) }
        ring(n)
     :: else
     fi
  :: else
  fi
}

inline room_made() { /* sb_notify_room_made */
  atomic { FATE; ok = waiting > 0 }
  if
  :: ok ->
#if SLEEPERS > 1
     if
     :: try_room_node(0);
        if
        :: !ok -> try_room_node(1)
        :: else
        fi
     :: try_room_node(1);
        if
        :: !ok -> try_room_node(0)
        :: else
        fi
     fi
#else
     try_room_node(0)
#endif
  :: else
  fi;
  ok = false
}

proctype Waiter(byte me) {
  byte found, at;
  bool ok, retry, told;
again:
  atomic { /* sb_limits_admit */
    FATE;
    if
    :: room >= need[me] -> room = room - need[me]; done[me] = true; wakes = 0
    :: else
    fi
  }
  if
  :: done[me] -> goto out
  :: else
  fi;
  /* sb_waiter_room */
#ifndef FAULT_ARM_LATER
  arm(me); /* P6: before the node can be told */
#endif
  atomic { FATE; waiting++ }
  atomic { FATE; state[me] = INTERESTED }
#ifdef FAULT_ARM_LATER /* told before, it sleeps with room; nobody tells it again: nobody waits by the count */
  arm(me);
#endif
#ifndef MEMORY /* whether there is memory is found by trying; the sleep is short */
  atomic { FATE; ok = room >= need[me] }
#endif
  if
  :: !ok ->
     sleep_on(me)
  :: else
  fi;
  disarm(me);
  atomic { FATE; told = state[me] == TOLD }
  /* leave */
  atomic { FATE; ok = state[me] == INTERESTED; state[me] = NOT_INTERESTED }
  if
  :: ok -> atomic { FATE; waiting-- }
  :: else
  fi;
#ifdef MEMORY
#ifdef FAULT_ALWAYS_PASS_ON
  room_made();
#endif
  if
  :: true
  :: atomic { !given_up -> given_up = true } /* its time is over */
     if
     :: told -> room_made()
     :: else
     fi;
     goto out
  fi;
#else
  atomic { FATE; ok = room >= 1 } /* sb_limits_room(q, 1, 0): the baton */
  if
  :: ok -> room_made()
  :: else
  fi;
#endif
  told = false;
  goto again;
dead:
halted:
out:
  atomic { found = 0; at = 0; ok = false; retry = false; told = false; done[me] = true }
}

proctype Passer() { /* puts without waiting; or finds out that it cannot (bytes, memory), and gives its place back */
  byte found, at;
  bool ok, retry;
  atomic { FATE; ok = room >= 1; room = room - ok }
#ifdef GIVES_BACK
  if
  :: ok ->
     atomic { FATE; room++; ok = false }
#ifndef FAULT_GIVE_BACK_SILENTLY /* it tells (prepare, take_back, admit, move). Whoever looked meanwhile saw no room, and sleeps */
     room_made()
#endif
  :: true
  fi;
#endif
dead:
halted:
  atomic { found = 0; at = 0; ok = false; retry = false }
}

proctype Taker() {
  byte i, found, at;
  bool ok, retry;
  do
  :: i < MADE -> atomic { FATE; room++; wakes = 0 } room_made(); i++
  :: else -> break
  od;
dead:
halted:
  atomic { i = 0; found = 0; at = 0; ok = false; retry = false }
}

proctype Clock() {
  byte i;
  timeout;
#if KILLS + STOPS > 0 || defined(MEMORY)
  atomic {
    do
    :: i < SLEEPERS -> if :: (kills + stops > 0 || MEMORY_) && !done[i] && asleep[i] -> asleep[i] = false :: else fi; i++
    :: else -> i = 0; break
    od
  }
  timeout;
#endif
  atomic {
    do
    :: i < SLEEPERS -> assert(!asleep[i] || room < need[i]); i++
    :: else -> break
    od
  }
}

init {
  atomic {
    need[0] = NEED;
    run Waiter(0);
#if SLEEPERS > 1
    need[1] = OTHER;
    run Waiter(1);
#endif
    run Taker();
#ifdef PASSER
    run Passer();
#endif
    run Clock()
  }
}
#endif

#ifdef ROW
/* ---- the row of a consumer: pushed by one thread, waited for by others, all of one process ---- */
#ifndef ROWS
#define ROWS 2
#endif
byte row, parity, pushed, taken_;
bool locked, sleeps[2], event_armed, readable;
byte slept_on[2];

#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false

proctype Pusher() {
  bool was_empty, odd;
  do
  :: pushed < ROWS ->
     LOCK;
     was_empty = row == 0;
     atomic { row++; pushed++ }
     if
     :: was_empty ->
        odd = parity % 2;
#ifdef FAULT_NEVER_ODD
        odd = false;
#endif
        if
        :: odd -> /* signal_row */
           parity = (parity + 1) % 16;
           atomic { sleeps[0] = false; sleeps[1] = false }
        :: else
        fi;
#ifdef EVENT
        atomic { odd = event_armed; event_armed = false }
        if
        :: odd -> readable = true
        :: else
        fi
#endif
     :: else
     fi;
     UNLOCK
  :: else -> break
  od;
  atomic { was_empty = false; odd = false }
}

proctype Application(byte me) {
  byte seen;
  bool ready;
again:
#if defined(EVENT)
  if
  :: me == 1 ->
#ifdef FAULT_LOOK_THEN_ARM
     ready = row > 0;
     event_armed = true;
#else
     LOCK; /* sb_consumer_arm_event */
     event_armed = true;
     ready = row > 0;
     UNLOCK;
#endif
     if
     :: !ready ->
end_readable:
        atomic { readable -> readable = false }
     :: else
     fi;
     goto take
  :: else
  fi;
#endif
#ifdef FAULT_LOOK_FIRST
  LOCK;
  ready = row > 0;
  UNLOCK;
  atomic { parity = parity | 1; seen = parity }
#else
  atomic { parity = parity | 1; seen = parity } /* odd: somebody sleeps */
  LOCK;
  ready = row > 0;
  UNLOCK;
#endif
  if
  :: !ready ->
     atomic { if :: parity == seen -> sleeps[me] = true :: else fi }
end_asleep:
     !sleeps[me]
  :: else
  fi;
take:
  LOCK;
  if
  :: row > 0 -> atomic { row--; taken_++ }
  :: else
  fi;
  UNLOCK;
  atomic { seen = 0; ready = false }
  goto again
}

proctype Clock() {
  timeout;
  assert(row == 0 && taken_ == ROWS)
}

init {
  atomic {
    run Pusher();
#ifndef EVENT
    run Application(0);
#endif
    run Application(1);
    run Clock()
  }
}
#endif
