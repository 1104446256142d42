/* SPDX-License-Identifier: Apache-2.0
 *
 * Parked messages: what a holder parks as dead or delayed, the housekeeper finds, and carries out, gives back, or makes ready.
 *
 * Mirrors: sb_park.c flip, park, sb_park_dead, sb_park_delayed, sb_park_for; sb_take.c take_cell, took;
 *   sb_schedule.c sb_schedule_take, sb_schedule_make_ready, sb_schedule_look_at; sb_release.c release; sb_settle.c settle;
 *   sb_queue.c sb_queue_schedule; sb_housekeeping.c find_timers; sb_api_dead.c sb_dead_take, sb_dead_return;
 *   sb_transaction.c sb_transaction_mark, sb_transaction_carry_out, settle_for; sb_intent.c sb_intent_release_cell, resolve_park,
 *   resolve_due, resolve_settle; sb_disposal.c empty_lane; sb_recover.c recover, reap_connection.
 * Abstracted: the staging and the decision of a commit are one step, which publishes the copies (commit.pml); slots and
 *   references (cell.pml); rings and their pages; the time: a delay may be over at each look; what the housekeeper sleeps on.
 *   The schedule list is, for each message, whether it has an entry that this housekeeper has not read.
 *
 * A holder takes messages, and acknowledges, returns, delays or rejects them, alone or in a commit. With MOST, a message
 *   that is returned, or whose holder dies, is dead after so many deliveries. With EVICTORS another producer evicts. A
 *   housekeeper that was killed is followed by another one, which begins with the whole list; with KEEPERS=2 one stands in
 *   beside the other. With CLOSING the queue is deleted meanwhile; there is no sweep of the directory. Once an entry of the
 *   schedule finds no memory.
 *
 * Claims: a message that is dead is never ready again, says why, and ends only by the housekeeper; a message ends once, and
 *   its copy is published exactly if it ended as carried out; at rest nothing is held by the dead, nothing is parked that
 *   the housekeeper should have found, the counters of what is scheduled and of what ended are exact, and a queue that was
 *   closed has nothing but what was parked beside its end, which the next sweep of the directory removes.
 *
 * quick: -DMESSAGES=1 -DKILLS=1
 * quick: -DMESSAGES=1 -DKILLS=1 -DMOST=1
 * quick: -DMESSAGES=1 -DKILLS=2 -DGETS=1 -DBACKS=0
 * quick: -DMESSAGES=2 -DBACKS=0
 * quick: -DMESSAGES=1 -DKEEPERS=2 -DBACKS=0
 * quick: -DMESSAGES=1 -DEVICTORS=1 -DKILLS=1 -DMOST=1 -DGETS=1 -DBACKS=0
 * full: -DMESSAGES=1 -DKEEPERS=2
 * full: -DMESSAGES=1 -DKEEPERS=2 -DKILLS=1 -DGETS=1 -DBACKS=0
 * full: -DMESSAGES=1 -DCLOSING -DKILLS=1 -DGETS=1 -DBACKS=0
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_NO_INTENT
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_FLIP_FIRST
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_NOT_LOST
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_RELEASE_DEAD
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_FORGET_WHY
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_NO_DUE
 * fault: -DMESSAGES=1 -DKILLS=2 -DGETS=1 -DBACKS=0 -DFAULT_ADD
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_MARK_DROPPED
 * fault: -DMESSAGES=1 -DKILLS=1 -DFAULT_SETTLE_ANY
 * fault: -DMESSAGES=1 -DKILLS=1 -DMOST=1 -DFAULT_BOTH_REASONS
 * fault: -DMESSAGES=1 -DKEEPERS=2 -DFAULT_LOOK_BLINDLY
 * fault: -DMESSAGES=1 -DFAULT_CLOSE_RELEASES
 */
#include "common.h"

#ifndef MESSAGES
#define MESSAGES 1
#endif
#ifndef HOLDERS
#define HOLDERS 1
#endif
#ifndef KEEPERS
#define KEEPERS 1
#endif
#ifndef EVICTORS
#define EVICTORS 0
#endif
#ifndef GETS
#define GETS 2
#endif
#ifndef BACKS
#define BACKS 1 /* how often a housekeeper gives back */
#endif
#ifndef MOST
#define MOST 9
#endif
#define KEEPER0 HOLDERS
#define EVICTOR0 (HOLDERS + KEEPERS)
#define ACTORS (HOLDERS + KEEPERS + EVICTORS + 1)
#define DELETER (ACTORS - 1)
#define NOWHERE 15

/* cell */
#define AVAILABLE 2
#define SCHEDULED 3
#define ACQUIRED 4
#define REMOVING 5
#define TOMBSTONE 7
#define OWNED(p, a) ((cell[p] == ACQUIRED || cell[p] == REMOVING) && owner[p] == (a))
/* why a message is dead: sb_why */
#define ALIVE 0
#define REJECTED 1
#define MAX_LENGTH 3
#define LIMIT 4
/* intents */
#define NONE 0
#define PARK 1
#define DUE 2
#define SETTLE 3
/* holdings; those that are SETTLING name a counter */
#define CELL 1
#define SETTLING 2
#define DEAD_LETTERED 1
#define DROPPED 2
#define ACKED 3

byte cell[MESSAGES], owner[MESSAGES];
byte why[MESSAGES], count[MESSAGES]; /* the side record */
bool delayed[MESSAGES];
bool gone[MESSAGES]; /* the reference was dropped */

byte hold_kind[ACTORS], hold[ACTORS], hold_counter[ACTORS];
bool word[ACTORS]; /* of the commit */
byte i_kind[ACTORS], i_at[ACTORS], i_before[ACTORS];
byte scheduled[ACTORS], unscheduled[ACTORS], ended[ACTORS];
bool dead_[ACTORS], reaped[ACTORS];

bool listed[MESSAGES];                                   /* has an entry in the schedule list */
bool fresh[KEEPERS * MESSAGES], known[KEEPERS * MESSAGES]; /* an entry that is not read; a timer of the housekeeper */
byte lost, lost_seen[KEEPERS];
bool closed;
byte backs, unlisted;

/* what only the claims know */
bool died[MESSAGES], carried[MESSAGES];
byte copies[MESSAGES];

#define FORGET p = 0; got = false

/* ---- steps of all ---- */

inline hold_nothing() { hold_kind[me] = NONE; hold[me] = NOWHERE; hold_counter[me] = 0 }

inline make_ready() {
  assert(!died[p]);
  cell[p] = AVAILABLE;
  owner[p] = NOWHERE
}

inline take(from, to) { /* under an intent, if it is SCHEDULED */
  if
#ifndef FAULT_NO_DUE
  :: from == SCHEDULED -> atomic { FATE; i_at[me] = p; i_before[me] = unscheduled[me]; i_kind[me] = DUE }
#endif
  :: else
  fi;
  atomic { FATE; hold[me] = p; hold_kind[me] = CELL }
  atomic {
    FATE;
    got = cell[p] == from;
    if
    :: got -> cell[p] = to; owner[p] = me
    :: else
    fi
  }
  if
  :: got ->
     atomic {
       FATE;
       delayed[p] = false;
#ifdef FAULT_FORGET_WHY
       why[p] = ALIVE;
#else
       if
       :: from != SCHEDULED -> why[p] = ALIVE
       :: else
       fi;
#endif
       if
       :: to == ACQUIRED -> count[p]++
       :: else
       fi
     }
     if
     :: from == SCHEDULED -> atomic { FATE; unscheduled[me]++ }
     :: else
     fi
  :: else -> atomic { FATE; hold_nothing() }
  fi;
  if
  :: from == SCHEDULED -> atomic { FATE; i_kind[me] = NONE }
  :: else
  fi
}

inline flip(w, d) { /* of a cell that `me` owns; a reaper does it in the place of `me` */
#ifndef FAULT_NO_INTENT
  atomic { FATE; i_at[me] = p; i_before[me] = scheduled[me]; i_kind[me] = PARK }
#endif
#ifndef FAULT_FLIP_FIRST
  atomic { FATE; why[p] = w; delayed[p] = d }
#endif
  atomic {
    FATE;
    assert(OWNED(p, me));
    cell[p] = SCHEDULED;
    owner[p] = NOWHERE;
    died[p] = died[p] || w != ALIVE
  }
#ifdef FAULT_FLIP_FIRST
  atomic { FATE; why[p] = w; delayed[p] = d }
#endif
  atomic { FATE; scheduled[me]++ }
  if
  :: atomic { FATE; listed[p] = true; fresh[p] = true
#if KEEPERS > 1
       ; fresh[MESSAGES + p] = true
#endif
     }
  :: atomic { unlisted < 1 -> FATE; unlisted++; lost++ } /* no memory */
  fi;
  atomic { FATE; i_kind[me] = NONE }
}

inline settle(counter) {
  atomic { FATE; i_at[me] = p; i_before[me] = ended[me]; i_kind[me] = SETTLE }
  atomic { FATE; assert(!gone[p] && (closed || !died[p] || cell[p] == REMOVING)); gone[p] = true; carried[p] = counter == DEAD_LETTERED }
  atomic { FATE; cell[p] = TOMBSTONE; owner[p] = NOWHERE }
  atomic { FATE; ended[me]++ }
  atomic { FATE; i_kind[me] = NONE }
}

inline park(w, d) {
  flip(w, d);
  atomic { FATE; hold_nothing() }
}

inline end_message(counter) {
  settle(counter);
  atomic { FATE; hold_nothing() }
}

inline dispose(w) { /* a reason for which a message is dead */
  atomic { FATE; got = closed }
  if
  :: got -> end_message(DROPPED)
  :: else -> park(w, false)
  fi
}

inline release() { /* without a delay */
  atomic { FATE; got = closed }
  if
  :: got -> end_message(DROPPED)
#ifndef FAULT_CLOSE_RELEASES
  :: !got && why[p] != ALIVE -> park(why[p], false)
  :: !got && why[p] == ALIVE ->
#else
  :: else ->
#endif
     atomic { FATE; make_ready() }
     atomic { FATE; hold_nothing(); got = closed }
     if
     :: got -> /* it was closed meanwhile */
        take(AVAILABLE, REMOVING);
        if
        :: got -> end_message(DROPPED)
        :: else
        fi
     :: else
     fi
  fi
}

inline decide(counter) { /* a commit that ends one message; the copies become visible in the same step */
  atomic { FATE; hold_kind[me] = SETTLING; hold_counter[me] = counter }
  atomic {
    FATE;
    word[me] = true;
    if
    :: cell[p] == ACQUIRED -> died[p] = true /* it is rejected */
    :: cell[p] == REMOVING && counter == DEAD_LETTERED -> copies[p]++
    :: else
    fi
  }
}

/* ---- holders ---- */

proctype Holder(byte me) {
  byte p, gets;
  bool got;
end_again:
  do
  :: gets < GETS ->
end_wait:
     atomic {
       if
       :: cell[0] == AVAILABLE && !closed -> p = 0
#if MESSAGES > 1
       :: cell[1] == AVAILABLE && !closed -> p = 1
#endif
       fi;
       gets++
     }
     take(AVAILABLE, ACQUIRED);
     if
     :: got ->
        if
        :: true -> end_message(ACKED)
        :: true -> dispose(REJECTED)
        :: count[p] < MOST -> park(ALIVE, true)
        :: count[p] < MOST -> release()
        :: count[p] >= MOST -> dispose(LIMIT)
        :: !closed ->
#ifdef FAULT_MARK_DROPPED
           decide(DROPPED);
#else
           decide(DEAD_LETTERED);
#endif
           dispose(REJECTED);
           atomic { FATE; word[me] = false }
        fi
     :: else
     fi
  :: else -> break
  od;
  goto out;
dead:
  atomic { dead_[me] = true; FORGET }
  goto out;
out:
  atomic { FORGET; gets = 0 }
}

#if EVICTORS > 0
proctype Evictor(byte me) {
  byte p;
  bool got;
  atomic {
    if
    :: cell[0] == AVAILABLE -> p = 0
#if MESSAGES > 1
    :: cell[1] == AVAILABLE -> p = 1
#endif
    :: true -> goto out
    fi
  }
  take(AVAILABLE, REMOVING);
  if
  :: got -> dispose(MAX_LENGTH)
  :: else
  fi;
  goto out;
dead:
  dead_[me] = true;
out:
  atomic { FORGET }
}
#endif

/* ---- the housekeeper ---- */

#define KNOWN(m) known[(k) * MESSAGES + (m)]
#define FRESH(m) fresh[(k) * MESSAGES + (m)]
#define FIND(m) :: atomic { FRESH(m) -> FATE; FRESH(m) = false; KNOWN(m) = true }
#define TIMER(m) :: atomic { KNOWN(m) -> KNOWN(m) = false; p = m } goto look

proctype Keeper(byte me) {
  byte p, k, at, saw_why;
  bool got, saw_delayed;
  k = me - KEEPER0;
end_again:
  do
  FIND(0)
  TIMER(0)
#if MESSAGES > 1
  FIND(1)
  TIMER(1)
#endif
  :: atomic { lost_seen[k] != lost -> FATE; lost_seen[k] = lost; at = 0 }
     do
     :: at < MESSAGES -> atomic { FATE; KNOWN(at) = KNOWN(at) || cell[at] == SCHEDULED; at++ }
     :: else -> break
     od;
     at = 0
  od;
look: /* sb_schedule_look_at */
  atomic { FATE; got = cell[p] == SCHEDULED && !closed }
  if
  :: !got -> goto next
  :: else
  fi;
  atomic { FATE; saw_why = why[p]; saw_delayed = delayed[p] }
  atomic { FATE; got = cell[p] == SCHEDULED }
  if
  :: !got -> KNOWN(p) = true; goto next
  :: else
  fi;
  if
  :: saw_why != ALIVE -> /* sb_dead_take */
     take(SCHEDULED, REMOVING);
     if
     :: !got
     :: got && why[p] == ALIVE -> release()
     :: got && why[p] != ALIVE ->
        atomic { assert(why[p] == REJECTED || why[p] == MAX_LENGTH || why[p] == LIMIT); assert(died[p]) }
        if
        :: true -> decide(DEAD_LETTERED); end_message(DEAD_LETTERED); atomic { FATE; word[me] = false }
        :: true -> decide(DROPPED); end_message(DROPPED); atomic { FATE; word[me] = false }
        :: atomic { backs < BACKS -> backs++ } park(why[p], false) /* sb_dead_return */
        :: atomic { backs < BACKS -> backs++ } release()           /* its connection closes */
        fi
     fi
  :: else ->
     take(SCHEDULED, REMOVING);
     if
     :: !got -> KNOWN(p) = true
#ifndef FAULT_LOOK_BLINDLY
     :: got && why[p] != ALIVE -> park(why[p], false)
     :: got && why[p] == ALIVE -> release()
#else
     :: got -> atomic { FATE; make_ready() } atomic { FATE; hold_nothing() }
#endif
     fi
  fi;
next:
  atomic { FORGET; saw_why = 0; saw_delayed = false }
  goto end_again;
dead:
  atomic { dead_[me] = true; FORGET; at = 0; saw_why = 0; saw_delayed = false }
end_dead:
  atomic { /* the next housekeeper begins with the whole list */
    reaped[me];
    dead_[me] = false; reaped[me] = false; lost_seen[k] = 0; at = 0;
    do
    :: at < MESSAGES -> FRESH(at) = listed[at]; KNOWN(at) = false; at++
    :: else -> at = 0; break
    od
  }
  goto end_again
}

/* ---- the end of the queue ---- */

inline dispose_all() { /* sb_disposal_empty */
  p = 0;
  do
  :: p < MESSAGES ->
     if
     :: cell[p] == AVAILABLE ->
        take(AVAILABLE, REMOVING);
        if
        :: got -> end_message(DROPPED)
        :: else
        fi
     :: cell[p] == SCHEDULED ->
        take(SCHEDULED, REMOVING);
        if
        :: got -> end_message(DROPPED)
        :: else
        fi
     :: else
     fi;
     p++
  :: else -> break
  od;
  p = 0
}

#ifdef CLOSING
proctype Deleter(byte me) {
  byte p;
  bool got;
  atomic { FATE; closed = true }
  dispose_all();
  goto out;
dead:
  dead_[me] = true; /* the reaper empties the queue */
out:
  atomic { FORGET }
}
#endif

/* ---- reaper ---- */

#if KILLS > 0
#ifdef FAULT_ADD
#define RAISE(counter) atomic { FATE; counter = counter + 1 }
#else
#define RAISE(counter)                                         \
  atomic {                                                     \
    FATE;                                                      \
    if                                                         \
    :: counter == i_before[me] -> counter = i_before[me] + 1   \
    :: else                                                    \
    fi                                                         \
  }
#endif

inline release_for() { /* sb_intent_release_cell */
  atomic { FATE; got = OWNED(p, me); saw = why[p]; acquired = cell[p] == ACQUIRED; late = delayed[p] }
  if
  :: got ->
     if
#ifdef FAULT_BOTH_REASONS
     :: acquired && count[p] >= MOST -> saw = saw | LIMIT
#else
     :: acquired && count[p] >= MOST && saw == ALIVE -> saw = LIMIT
#endif
     :: else
     fi;
#ifdef FAULT_RELEASE_DEAD
     if
     :: false
#else
     if
     :: (saw != ALIVE || late) && !closed -> flip(saw, late)
#endif
     :: else ->
        atomic {
          FATE;
          if
          :: OWNED(p, me) -> assert(!died[p] || closed); cell[p] = AVAILABLE; owner[p] = NOWHERE
          :: else
          fi
        }
     fi
  :: else
  fi
}

proctype Reaper() {
  byte me, p, saw;
  bool got, acquired, late;
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> me = 0
    :: dead_[1] && !reaped[1] -> me = 1
#if ACTORS > 2
    :: dead_[2] && !reaped[2] -> me = 2
#endif
#if ACTORS > 3
    :: dead_[3] && !reaped[3] -> me = 3
#endif
    fi
  }
  p = i_at[me];
  if
  :: i_kind[me] == PARK ->
     atomic { FATE; got = OWNED(p, me) }
     if
     :: !got ->
#ifndef FAULT_NOT_LOST
        atomic { FATE; lost++ }
#endif
        RAISE(scheduled[me])
     :: else
     fi
  :: i_kind[me] == DUE ->
     atomic { FATE; got = OWNED(p, me) }
     if
     :: got -> RAISE(unscheduled[me])
     :: else
     fi
  :: i_kind[me] == SETTLE ->
     atomic { FATE; got = gone[p] }
     if
     :: got ->
        RAISE(ended[me])
        atomic { FATE; if :: OWNED(p, me) -> cell[p] = TOMBSTONE; owner[p] = NOWHERE :: else fi }
     :: else
     fi
  :: else
  fi;
  atomic { FATE; i_kind[me] = NONE }
  p = hold[me];
  if
  :: hold_kind[me] == SETTLING && word[me] -> /* settle_for */
     atomic { FATE; saw = why[p]; got = OWNED(p, me); acquired = cell[p] == ACQUIRED }
     if
#ifdef FAULT_SETTLE_ANY
     :: got && hold_counter[me] == DEAD_LETTERED && saw == ALIVE && false
     :: got ->
#else
     :: got && acquired && saw == ALIVE && hold_counter[me] == DEAD_LETTERED ->
        atomic { FATE; why[p] = REJECTED }
        release_for()
     :: got && ((!acquired && saw != ALIVE) || (acquired && saw == ALIVE && hold_counter[me] != DEAD_LETTERED)) ->
#endif
        settle(hold_counter[me])
     :: else -> release_for()
     fi
  :: hold_kind[me] == CELL || (hold_kind[me] == SETTLING && !word[me]) -> release_for()
  :: else
  fi;
#ifdef CLOSING
  if
  :: closed ->
     atomic { FATE; got = true; hold_nothing() }
     dispose_all()
  :: else
  fi;
#endif
  atomic { FATE; hold_nothing(); word[me] = false; reaped[me] = true }
  atomic { me = 0; p = 0; saw = 0; got = false; acquired = false; late = false }
  goto end_begin;
dead:
  atomic { me = 0; p = 0; saw = 0; got = false; acquired = false; late = false }
  goto end_begin
}
#endif

/* ---- the end ---- */

proctype Judge() {
  byte i;
  short sum, rest;
  timeout;
  atomic {
    do
    :: i < MESSAGES ->
       assert(cell[i] == AVAILABLE || cell[i] == TOMBSTONE || (closed && cell[i] == SCHEDULED)); /* what was parked was carried out, or became ready */
       assert(cell[i] == TOMBSTONE || !died[i] || closed);
       assert(gone[i] == (cell[i] == TOMBSTONE));
       assert(copies[i] == carried[i]);
       assert(!closed || cell[i] == TOMBSTONE || cell[i] == SCHEDULED);
       rest = rest + (cell[i] == SCHEDULED);
       i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < ACTORS -> sum = sum + scheduled[i]; sum = sum - unscheduled[i]; i++
    :: else -> break
    od;
    assert(sum == rest);
    i = 0; sum = 0;
    do
    :: i < ACTORS -> sum = sum + ended[i]; i++
    :: else -> break
    od;
    rest = 0; i = 0;
    do
    :: i < MESSAGES -> rest = rest + (cell[i] == TOMBSTONE); i++
    :: else -> break
    od;
    assert(sum == rest)
  }
}

init {
  byte i;
  atomic {
    do
    :: i < MESSAGES -> cell[i] = AVAILABLE; owner[i] = NOWHERE; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < ACTORS -> hold[i] = NOWHERE; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < HOLDERS -> run Holder(i); i++
    :: i >= KEEPER0 && i < EVICTOR0 -> run Keeper(i); i++
#if EVICTORS > 0
    :: i >= EVICTOR0 && i < DELETER -> run Evictor(i); i++
#endif
    :: i >= DELETER -> break
    od;
#ifdef CLOSING
    run Deleter(DELETER);
#endif
#if KILLS > 0
    run Reaper();
#endif
    run Judge();
    i = 0
  }
}
