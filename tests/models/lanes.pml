/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of a queue whose messages have priorities: the ready bits; with CLOSING the end of such a queue.
 *
 * Mirrors: sb_lanes.h sb_lanes_mark, sb_lanes_is_marked, sb_lanes_unmark; sb_lanes.c sb_lanes_next_ready; sb_queue.c
 *   sb_queue_append_in_lane, sb_queue_enqueue; sb_take.c find_in_lanes, find_or_unmark, find_in_lane, take_returned,
 *   take_returned_at, take_next, take_cell; sb_requeued.c sb_requeued_next, mark_from, sb_requeued_mark_owned,
 *   sb_requeued_stays_marked, sb_requeued_is_marked, sb_requeued_took; sb_release.c release; sb_intent.c resolve_enqueue,
 *   sb_intent_release_cell; sb_hints.c hides_lane, next_hidden, sb_hints_resurface. With CLOSING: sb_closing.c sb_closing_ask,
 *   sb_closing_ends, sb_closing_has_message, close_queue; sb_disposal.c close_lanes_once, empty_lane; sb_api_put.c publish;
 *   sb_recover.c correct_hints, recover.
 * Abstracted: two lanes, whose objects exist; each lane has one leaf, which is the root (pages.pml has the bits of inner
 *   pages); slots and generations (cell.pml); commits, evictions and schedules; `came` and the other hints of counts;
 *   notification. A process that changes a bit or flag only if it is not set yet does so in one step. With CLOSING the
 *   ready bits are left out (any AVAILABLE message may be found), and so is IF_UNUSED.
 *
 * Claims: when all have ended, died or stopped for good, and the dead are reaped, each AVAILABLE message can be found: the
 *   ready bit of its lane is set, and it is not before the head, or `requeued` and the bit of its cell lead to it. Excused is
 *   what a searcher hides that stopped or was killed between the clearing of a ready bit, or of `requeued`, and the end of
 *   its second look, or that stopped between the clearing of a cell's bit and its take. After the housekeeper's look there
 *   is no excuse. A message is taken by one process at a time, and none is lost. With ORDER: a take that begins when a
 *   message is in lane 0 whose put or release has returned, and which stays there, takes nothing from lane 1, unless
 *   another searcher hides messages of lane 0 meanwhile.
 *   With CLOSING: a deletion "if empty" does not end a queue with a message whose put has returned OK, or returns OK later,
 *   but for messages that somebody had since the deletion was asked for; a put that fails leaves no message that is
 *   AVAILABLE then, unless somebody returns it and removes it, and no take that begins later gets it; if nobody stopped, each deletion is decided at rest, and a
 *   closed queue has no message.
 *
 * quick: -DPRODUCERS=2 -DCONSUMERS=1
 * quick: -DPRODUCERS=1 -DCONSUMERS=2
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DKILLS=1 -DSTOPS=1
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DKILLS=2
 * quick: -DPRODUCERS=1 -DCONSUMERS=2 -DTAKES=1 -DHELDS=1 -DORDER
 * quick: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=1 -DCLOSERS=2
 * quick: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=0 -DCLOSERS=1 -DKILLS=1 -DSTOPS=1
 * quick: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=0 -DCLOSERS=1 -DKILLS=2 -DANY_CONDITION
 * full: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=1 -DCLOSERS=1 -DKILLS=1 -DANY_CONDITION
 * full: -DPRODUCERS=2 -DCONSUMERS=2 -DTAKES=1 -DRELEASES=0 -DORDER
 * full: -DPRODUCERS=0 -DCONSUMERS=2 -DHELDS=2 -DRELEASES=2
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DKILLS=1
 * full: -DPRODUCERS=1 -DCONSUMERS=2 -DTAKES=1 -DKILLS=1 -DSTOPS=1
 * full: -DPRODUCERS=1 -DCONSUMERS=3 -DTAKES=1 -DONE_LANE
 * full: -DCLOSING -DPRODUCERS=2 -DCONSUMERS=0 -DCLOSERS=2
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DFAULT_MARK_BEFORE
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DSTOPS=1 -DFAULT_MARK_AFTER
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DFAULT_NO_SECOND_SEARCH
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DKILLS=1 -DFAULT_REAPER_UNMARKING
 * fault: -DPRODUCERS=0 -DCONSUMERS=2 -DHELDS=1 -DTAKES=1 -DFAULT_RELEASE_ONCE
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DSTOPS=1 -DFAULT_NO_KEEPER
 * fault: -DCLOSING -DPRODUCERS=2 -DCONSUMERS=0 -DCLOSERS=2 -DFAULT_NO_NUMBER
 * fault: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=0 -DCLOSERS=1 -DFAULT_LOOK_FIRST
 * fault: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=0 -DCLOSERS=1 -DFAULT_LEFT_BEHIND
 * fault: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=1 -DCLOSERS=1 -DANY_CONDITION -DFAULT_RELEASE_BLINDLY
 * fault: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=1 -DCLOSERS=1 -DANY_CONDITION -DFAULT_STATE_LAST
 * fault: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=0 -DCLOSERS=1 -DKILLS=1 -DFAULT_REAPER_UNDECIDED
 * fault: -DPRODUCERS=0 -DCONSUMERS=2 -DHELDS=2 -DRELEASES=2 -DTAKES=1 -DFAULT_RESET_UNMARKED
 * fault: -DPRODUCERS=1 -DCONSUMERS=3 -DTAKES=1 -DONE_LANE -DFAULT_HEAD_TWICE
 * fault: -DCLOSING -DPRODUCERS=1 -DCONSUMERS=0 -DCLOSERS=1 -DFAULT_CLOSED_MEANWHILE
 */
#include "common.h"

#ifndef PRODUCERS
#define PRODUCERS 1
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#define ACTORS (PRODUCERS + CONSUMERS + CLOSERS)
#define NOWHERE 255

/* The state of a cell. From HELD on: HELD + the process that holds the message. */
#define FREE 0
#define AVAILABLE 1
#define TOMBSTONE 2
#define HELD 3

#ifndef CLOSING

#define CLOSERS 0
#ifndef HELDS
#define HELDS 0 /* so many messages of lane 0 are held by the first consumer at the start, after they were searched for */
#endif
#ifndef TAKES
#define TAKES 2 /* by each consumer */
#endif
#ifndef RELEASES
#define RELEASES 1 /* by all of them */
#endif
#define LENGTH (PRODUCERS + HELDS) /* the cells of a lane */
/* With ONE_LANE all messages are put into lane 0. */
#define CELL(l, n) ((l) * LENGTH + (n))

bool ready[2], requeued[2];
byte head[2];
byte cell[2 * LENGTH];
bool bit_[2 * LENGTH];
byte intent[ACTORS]; /* of a producer: the cell */
byte by[2 * LENGTH]; /* the producer of the message */
byte announced[ACTORS], listed[ACTORS]; /* holdings: the cell that is to be taken; a bit for each cell that was taken */
byte cursor[2 * ACTORS];
#define CURSOR(l) cursor[2 * me + (l)]
byte releases;
bool dead_[ACTORS], halted_[ACTORS], gone[ACTORS], reaped[ACTORS];
bool reaper_halted;

/* For the claims: who hides what, a bit for each lane. */
byte unmarks[ACTORS], zeroes[ACTORS], clears[ACTORS];
bool cleared[ACTORS]; /* a put whose bit was cleared again between its first mark and its append */
#ifdef ORDER
byte witness[ACTORS]; /* a message of lane 0 that a take should find */
bool returned[2 * LENGTH];
byte w;
#define SPOILS(l)                                            \
  w = 0;                                                     \
  do                                                         \
  :: w < ACTORS -> if                                        \
                   :: w != me && l == 0 -> witness[w] = NOWHERE \
                   :: else                                   \
                   fi; w++                                   \
  :: else -> break                                           \
  od;                                                        \
  w = 0
#define TAKEN(c)                                             \
  w = 0;                                                     \
  do                                                         \
  :: w < ACTORS -> if                                        \
                   :: witness[w] == c -> witness[w] = NOWHERE \
                   :: else                                   \
                   fi; w++                                   \
  :: else -> break                                           \
  od;                                                        \
  w = 0; returned[c] = false
#define RETURNED(c) returned[c] = true
#else
#define SPOILS(l) skip
#define TAKEN(c) skip
#define RETURNED(c) skip
#endif

inline mark(l) { atomic { FATE; ready[l] = true } }
inline requeued_mark(l, n) {
  atomic { FATE; bit_[CELL(l, n)] = true }
  atomic { FATE; requeued[l] = true }
  mark(l)
}
/* sb_requeued_stays_marked, sb_requeued_is_marked */
inline is_marked(l, n) {
  atomic { FATE; ok = bit_[CELL(l, n)] }
  if
  :: ok -> atomic { FATE; ok = requeued[l] }
     if
     :: ok -> atomic { FATE; ok = ready[l] }
     :: else
     fi
  :: else
  fi
}

/* ---- searching: lane l; got, at: the message that was taken ---- */

/* take_cell, after the cell was seen AVAILABLE; it is announced before */
inline take_cell(l, n) {
  atomic {
    FATE;
    if
    :: cell[CELL(l, n)] == AVAILABLE ->
       cell[CELL(l, n)] = HELD + me;
       listed[me] = listed[me] | (1 << CELL(l, n));
       announced[me] = NOWHERE;
       TAKEN(CELL(l, n));
#ifdef ORDER
       assert(l == 0 || witness[me] == NOWHERE);
#endif
       got = true
    :: else
    fi
  }
}

#if LENGTH == 1
#define ANY_BIT(l) bit_[CELL(l, 0)]
#elif LENGTH == 2
#define ANY_BIT(l) (bit_[CELL(l, 0)] || bit_[CELL(l, 1)])
#else
#define ANY_BIT(l) (bit_[CELL(l, 0)] || bit_[CELL(l, 1)] || bit_[CELL(l, 2)])
#endif
/* sb_requeued_next: n, or NOWHERE */
inline requeued_next(l) {
  do
  :: atomic { FATE; ok = requeued[l] }
     if
     :: !ok -> n = NOWHERE; break
     :: else
     fi;
     atomic {
       FATE;
       n = from;
       do
       :: n < LENGTH && !bit_[CELL(l, n)] -> n++
       :: else -> break
       od;
       if
       :: n == LENGTH -> n = NOWHERE
       :: else
       fi
     }
     if
     :: n != NOWHERE || from != 0 -> break
     :: else
     fi;
     atomic { FATE; ok = ANY_BIT(l) }
     if
     :: ok -> break
     :: else
     fi;
     atomic { FATE; requeued[l] = false; zeroes[me] = zeroes[me] | (1 << l); SPOILS(l) }
     atomic { FATE; ok = ANY_BIT(l) }
     if
     :: ok ->
        atomic { FATE; requeued[l] = true }
#ifndef FAULT_RESET_UNMARKED
        mark(l);
#endif
        zeroes[me] = zeroes[me] & ~(1 << l)
     :: else -> zeroes[me] = zeroes[me] & ~(1 << l); break
     fi
  od;
  ok = false
}
inline take_returned_at(l) {
  atomic {
    FATE;
    ok = cell[CELL(l, n)] < HELD;
    if
    :: cell[CELL(l, n)] == AVAILABLE -> announced[me] = CELL(l, n)
    :: else
    fi
  }
  if
  :: ok ->
     atomic { FATE; bit_[CELL(l, n)] = false; clears[me] = clears[me] | (1 << l); SPOILS(l) }
     atomic { FATE; ok = cell[CELL(l, n)] == AVAILABLE }
     if
     :: ok ->
        take_cell(l, n);
        if
        :: !got ->
           atomic { FATE; ok = cell[CELL(l, n)] != TOMBSTONE }
           if
           :: ok -> requeued_mark(l, n)
           :: else
           fi
        :: else
        fi
     :: else
     fi;
     clears[me] = clears[me] & ~(1 << l)
  :: else
  fi;
  ok = false
}

inline find_in_lane(l) {
  got = false;
  end = NOWHERE;
  atomic { FATE; ok = requeued[l] }
  if
  :: ok ->
     atomic { FATE; end = (head[l] > CURSOR(l) -> head[l] : CURSOR(l)) }
     from = 0;
     do
     :: requeued_next(l);
        if
        :: n >= end -> break /* or NOWHERE */
        :: else
        fi;
        from = n + 1;
        take_returned_at(l);
        if
        :: got -> break
        :: else
        fi
     od;
     from = 0
  :: else
  fi;
  if
  :: got
  :: !got -> /* take_next */
     n = end;
     if
#ifdef FAULT_HEAD_TWICE
     :: true ->
#else
     :: n == NOWHERE ->
#endif
        atomic { FATE; n = (head[l] > CURSOR(l) -> head[l] : CURSOR(l)) }
#ifndef FAULT_HEAD_TWICE
     :: else
#endif
     fi;
     do
     :: n < LENGTH ->
        atomic {
          FATE;
          ok = cell[CELL(l, n)] == AVAILABLE;
          if
          :: ok -> announced[me] = CELL(l, n)
          :: cell[CELL(l, n)] == FREE -> break
          :: else -> n++
          fi
        }
        if
        :: ok ->
           take_cell(l, n);
           if
           :: got ->
              atomic { FATE; bit_[CELL(l, n)] = false } /* sb_requeued_took */
              n++;
              break
           :: else
           fi
        :: else
        fi
     :: else -> break
     od;
     CURSOR(l) = n;
     if
     :: !got -> atomic { FATE; head[l] = (head[l] > n -> head[l] : n) }
     :: else
     fi
  fi;
  atomic { ok = false; end = 0; n = 0 }
}

inline find_or_unmark(l) {
  find_in_lane(l);
  if
  :: !got ->
     atomic { FATE; ready[l] = false; unmarks[me] = unmarks[me] | (1 << l); SPOILS(l) }
#ifndef FAULT_NO_SECOND_SEARCH
     find_in_lane(l);
     if
     :: got -> mark(l)
     :: else
     fi;
#endif
     unmarks[me] = unmarks[me] & ~(1 << l)
  :: else
  fi
}

/* find_in_lanes. With ORDER it begins by choosing the message that it should find before any of lane 1. */
inline take() {
#ifdef ORDER
  atomic {
    n = 0;
    do
    :: n < ACTORS && (n == me || ((unmarks[n] | zeroes[n] | clears[n]) & 1) == 0) -> n++
    :: else -> break
    od;
    if
    :: n == ACTORS ->
       n = 0;
       do
       :: n < LENGTH && !(cell[n] == AVAILABLE && returned[n]) -> n++
       :: else -> break
       od;
       witness[me] = (n < LENGTH -> n : NOWHERE)
    :: else
    fi;
    n = 0
  }
#endif
  atomic { FATE; lane = (ready[0] -> 0 : (ready[1] -> 1 : 2)) }
  got = false;
  do
  :: lane < 2 ->
     if
     :: lane == 0 -> find_or_unmark(0)
     :: else -> find_or_unmark(1)
     fi;
     if
     :: got -> break
     :: lane == 0 && !got -> atomic { FATE; lane = (ready[1] -> 1 : 2) }
     :: lane == 1 && !got -> break
     fi
  :: else -> break
  od;
  atomic {
    announced[me] = NOWHERE;
#ifdef ORDER
    witness[me] = NOWHERE;
#endif
    lane = 0; got = false
  }
}

/* release: of the message at place n of lane l */
inline release(l) {
  atomic { FATE; bit_[CELL(l, n)] = true } /* sb_requeued_mark_owned */
  atomic { FATE; requeued[l] = true }
  mark(l);
  atomic { FATE; assert(cell[CELL(l, n)] == HELD + me); cell[CELL(l, n)] = AVAILABLE }
#ifndef FAULT_RELEASE_ONCE
  is_marked(l, n);
  if
  :: !ok ->
     atomic { FATE; ok = cell[CELL(l, n)] == AVAILABLE }
     if
     :: ok -> requeued_mark(l, n)
     :: else
     fi
  :: else
  fi;
#endif
  /* the holding is given; another process may have taken the message, or have returned it */
  atomic {
    FATE;
    listed[me] = listed[me] & ~(1 << CELL(l, n));
    if
    :: cell[CELL(l, n)] == AVAILABLE -> RETURNED(CELL(l, n))
    :: else
    fi;
    ok = false
  }
}

proctype Producer(byte me) {
  byte lane;
  atomic {
    if
    :: lane = 0
#ifndef ONE_LANE
    :: lane = 1
#endif
    fi
  }
#ifndef FAULT_MARK_AFTER
  mark(lane);
#endif
  atomic { /* the append, under the intent */
    FATE;
    intent[me] = CELL(lane, 0);
    do
    :: cell[intent[me]] != FREE -> intent[me]++
    :: else -> break
    od;
    cell[intent[me]] = AVAILABLE;
#if STOPS > 0 && !defined(FAULT_MARK_AFTER)
    cleared[me] = !ready[lane];
#endif
    by[intent[me]] = me
  }
#ifndef FAULT_MARK_BEFORE
  mark(lane);
#endif
  atomic {
    FATE;
    if
    :: cell[intent[me]] == AVAILABLE -> RETURNED(intent[me])
    :: else
    fi;
    cleared[me] = false;
    intent[me] = NOWHERE
  }
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; lane = 0 }
}

#define HOLDS(c) (cell[c] == HELD + me)

proctype Consumer(byte me) {
  byte lane, n, from, end, takes;
  bool got, ok;
  do
  :: takes < TAKES ->
     takes++;
     take()
  :: listed[me] != 0 ->
     atomic {
       do
       :: !HOLDS(n) -> n++
       :: HOLDS(n) -> break
       :: HOLDS(n) && (listed[me] >> (n + 1)) != 0 -> n++ /* any of them */
       od;
       if
       :: true
       :: releases < RELEASES -> releases++; ok = true
       fi
     }
     if
     :: !ok -> atomic { FATE; cell[n] = TOMBSTONE; listed[me] = listed[me] & ~(1 << n) } /* acknowledged */
     :: ok && n < LENGTH -> release(0)
     :: ok && n >= LENGTH -> n = n - LENGTH; release(1)
     fi;
     atomic { n = 0; ok = false }
  :: takes == TAKES && listed[me] == 0 -> break
  od;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; lane = 0; n = 0; from = 0; end = 0; takes = 0; got = false; ok = false }
}

/* ---- repair ---- */

#if KILLS > 0
/* sb_intent_release_cell */
inline release_for(l) {
  atomic { FATE; is = cell[CELL(l, n)] }
  if
  :: is == AVAILABLE -> requeued_mark(l, n)
  :: is == HELD + d ->
     requeued_mark(l, n);
     atomic {
       FATE;
       ok = cell[CELL(l, n)] == HELD + d;
       if
       :: ok -> cell[CELL(l, n)] = AVAILABLE
       :: else
       fi
     }
     if
     :: ok ->
        is_marked(l, n);
        if
        :: !ok ->
           atomic { FATE; ok = cell[CELL(l, n)] == AVAILABLE }
           if
           :: ok -> requeued_mark(l, n)
           :: else
           fi
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  atomic { ok = false; is = 0 }
}

#define IS_DEAD(a) (a < ACTORS && dead_[(a) % ACTORS] && !reaped[(a) % ACTORS])
#define HAS_MESSAGE(c) (cell[c] == AVAILABLE || cell[c] >= HELD)

proctype Reaper() {
  byte d, n, c, is;
  bool ok;
begin_:
end_begin:
  atomic {
    if
    :: IS_DEAD(0) -> d = 0
    :: IS_DEAD(1) -> d = 1
    :: IS_DEAD(2) -> d = 2
    :: IS_DEAD(3) -> d = 3
    fi
  }
  if
  :: intent[d] != NOWHERE -> /* resolve_enqueue */
     c = intent[d];
     atomic { FATE; ok = HAS_MESSAGE(c) && by[c] == d }
     if
#ifdef FAULT_REAPER_UNMARKING
     :: true
#else
     :: ok && c < LENGTH -> mark(0)
     :: ok && c >= LENGTH -> mark(1)
     :: !ok
#endif
     fi;
     atomic { FATE; intent[d] = NOWHERE; ok = false }
  :: else
  fi;
  c = 0;
  do
  :: c < 2 * LENGTH ->
     if
     :: announced[d] == c || (listed[d] & (1 << c)) != 0 ->
        if
        :: c < LENGTH -> n = c; release_for(0)
        :: else -> n = c - LENGTH; release_for(1)
        fi;
        n = 0;
        atomic {
          FATE;
          listed[d] = listed[d] & ~(1 << c);
          if
          :: announced[d] == c -> announced[d] = NOWHERE
          :: else
          fi
        }
     :: else
     fi;
     c++
  :: else -> break
  od;
  atomic { FATE; reaped[d] = true; d = 0; c = 0 }
  goto begin_;
dead: /* the next one begins anew */
  atomic { d = 0; n = 0; c = 0; is = 0; ok = false }
  goto begin_;
halted:
  atomic { reaper_halted = true; d = 0; n = 0; c = 0; is = 0; ok = false }
}
#endif

#define FOUND(l, n) (ready[l] && (n >= head[l] || (requeued[l] && bit_[CELL(l, n)])))

/* When all is at rest. excused: lanes. Then comes the housekeeper: sb_hints_resurface */
proctype Judge() {
  byte i, excused;
  bool unreaped;
  timeout;
  atomic {
    do
    :: i < ACTORS ->
       assert(gone[i] && (!dead_[i] || reaped[i] || reaper_halted));
       unreaped = unreaped || (dead_[i] && !reaped[i]);
       excused = excused | unmarks[i] | zeroes[i];
       if
       :: halted_[i] || (dead_[i] && !reaped[i]) -> excused = excused | clears[i]
       :: else
       fi;
       if /* a put or a release that stopped before its second look */
       :: halted_[i] && intent[i] != NOWHERE && cleared[i] -> excused = excused | (1 << (intent[i] / LENGTH))
       :: halted_[i] && intent[i] == NOWHERE ->
          excused = excused | ((listed[i] >> LENGTH) != 0 -> 2 : 0) | ((listed[i] & ((1 << LENGTH) - 1)) != 0 -> 1 : 0)
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < 2 * LENGTH ->
       assert(cell[i] < HELD || halted_[cell[i] - HELD] || unreaped);
       assert(cell[i] != AVAILABLE || unreaped || ((excused >> (i / LENGTH)) & 1) != 0 || FOUND(i / LENGTH, i % LENGTH));
       i++
    :: else -> break
    od;
    i = 0;
#ifndef FAULT_NO_KEEPER
    do
    :: i < 2 * LENGTH ->
       if
       :: cell[i] == AVAILABLE && !ready[i / LENGTH] -> ready[i / LENGTH] = true
       :: else
       fi;
       if
       :: cell[i] == AVAILABLE && !FOUND(i / LENGTH, i % LENGTH) -> bit_[i] = true; requeued[i / LENGTH] = true
       :: else
       fi;
       i++
    :: else -> break
    od;
#endif
    i = 0;
    do
    :: i < 2 * LENGTH -> assert(cell[i] != AVAILABLE || FOUND(i / LENGTH, i % LENGTH)); i++
    :: else -> break
    od;
    i = 0; excused = 0; unreaped = false
  }
}

init {
  byte i;
  atomic {
    do
    :: i < ACTORS ->
       intent[i] = NOWHERE; announced[i] = NOWHERE;
#ifdef ORDER
       witness[i] = NOWHERE;
#endif
       i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < HELDS -> cell[i] = HELD + PRODUCERS; listed[PRODUCERS] = listed[PRODUCERS] | (1 << i); requeued[0] = true; ready[0] = true; head[0] = i + 1; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < PRODUCERS -> run Producer(i); i++
    :: i >= PRODUCERS && i < ACTORS -> run Consumer(i); i++
    :: else -> break
    od;
#if KILLS > 0
    run Reaper();
#endif
    run Judge();
    i = 0
  }
}
#endif

#ifdef CLOSING

#ifndef CLOSERS
#define CLOSERS 1
#endif
#ifndef TAKES
#define TAKES 1
#endif
#define REAPER ACTORS
#define LENGTH PRODUCERS

#define NOT 0
#define ASKED 1
#define CLOSED 2

byte state = NOT, number; /* these three are the word `closing` */
bool if_empty;
bool closed; /* the queue's `state` */
byte cell[2 * LENGTH], by[2 * LENGTH];
bool dead_[ACTORS], halted_[ACTORS], gone[ACTORS], reaped[ACTORS];
bool reaper_halted;

/* For the claims: what a put returned; messages that somebody had since the last deletion was asked for; messages that
 * a deletion "if empty" did not see. */
bool succeeded[PRODUCERS], failed[PRODUCERS], touched[2 * LENGTH], missed[PRODUCERS];

/* The next cell of a walk; the first FREE one ends a lane. */
#define NEXT(c) (cell[c] == FREE -> (c < LENGTH -> LENGTH : 2 * LENGTH) : c + 1)

/* sb_closing_ends; ends: the queue is closed */
inline closing_ends() {
  do
  :: atomic { FATE; s = state; only = if_empty; k = number }
     if
     :: s != ASKED -> break
     :: else
     fi;
     do
     :: only && n < 2 * LENGTH ->
        atomic {
          FATE;
          if
          :: cell[n] == AVAILABLE -> refuse = true; break
          :: else -> n = NEXT(n)
          fi
        }
     :: else -> break
     od;
     n = 0;
     atomic {
       FATE;
       if
#ifdef FAULT_NO_NUMBER
       :: state == ASKED && if_empty == only ->
#else
       :: state == ASKED && if_empty == only && number == k ->
#endif
          if_empty = false;
          state = (refuse -> NOT : CLOSED);
          do
          :: only && !refuse && n < 2 * LENGTH ->
             if
             :: cell[n] == AVAILABLE && !touched[n] -> assert(!succeeded[by[n]]); missed[by[n]] = true
             :: else
             fi;
             n++
          :: else -> break
          od;
          n = 0
       :: else
       fi
     }
     refuse = false
  od;
  atomic { ends = s == CLOSED; s = 0; only = false; k = 0 }
  if
#ifdef FAULT_STATE_LAST
  :: ends && me != REAPER -> empty_lanes(); atomic { FATE; closed = true }
#else
  :: ends -> atomic { FATE; closed = true }
#endif
  :: else
  fi
}

/* sb_disposal_empty; a reaper that is killed in between is reaped as others are, which is not modelled: one step */
inline empty_lanes() {
  do
  :: n < 2 * LENGTH ->
     atomic {
       FATE;
       if
       :: cell[n] == AVAILABLE -> cell[n] = (me == REAPER -> TOMBSTONE : HELD + me); touched[n] = true
       :: else
       fi
     }
     atomic {
       FATE;
       if
       :: cell[n] == HELD + me -> cell[n] = TOMBSTONE
       :: else
       fi;
       n = NEXT(n)
     }
  :: else -> break
  od;
  n = 0
}
#ifdef FAULT_STATE_LAST
#define EMPTY skip
#else
#define EMPTY empty_lanes()
#endif

proctype Producer(byte me) {
  byte s, k, n, mine;
  bool only, refuse, ends;
  atomic {
    FATE;
    if
    :: closed -> goto out
    :: else
    fi
  }
#ifdef FAULT_LOOK_FIRST
  closing_ends();
  if
  :: ends -> goto out
  :: else
  fi;
#endif
  atomic {
    FATE;
    if
    :: mine = 0
    :: mine = LENGTH
    fi;
    do
    :: cell[mine] != FREE -> mine++
    :: else -> break
    od;
    cell[mine] = AVAILABLE; touched[mine] = false; by[mine] = me
  }
#ifndef FAULT_LOOK_FIRST
#ifdef FAULT_CLOSED_MEANWHILE
  if
  :: true
  :: goto well /* another thread has closed the connection: the put does not look */
  fi;
#endif
  closing_ends();
  if
  :: ends ->
#ifndef FAULT_LEFT_BEHIND
     EMPTY;
#endif
     atomic { FATE; assert(cell[mine] != AVAILABLE || touched[mine]); failed[me] = true }
     goto out
  :: else
  fi;
#endif
well:
  atomic { FATE; assert(!missed[me] || touched[mine]); succeeded[me] = true }
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; s = 0; k = 0; n = 0; mine = 0; only = false; refuse = false; ends = false }
}

proctype Consumer(byte me) {
  byte n, takes, failed_before;
  bool ok;
  do
  :: takes < TAKES ->
     atomic {
       FATE;
       if
       :: closed -> break
       :: else
       fi;
       do
       :: n < PRODUCERS -> failed_before = failed_before | (failed[n] << n); n++
       :: else -> break
       od;
       n = 0;
       takes++
     }
     atomic {
       FATE;
       do
       :: n < 2 * LENGTH && cell[n] == AVAILABLE -> ok = true; break
       :: n < 2 * LENGTH -> n++
       :: n == 2 * LENGTH -> break
       od;
       if
       :: ok -> cell[n] = HELD + me; touched[n] = true; assert((failed_before & (1 << by[n])) == 0)
       :: else
       fi
     }
     if
     :: ok -> atomic { FATE; cell[n] = TOMBSTONE } /* acknowledged */
     :: ok ->
        atomic { FATE; ok = closed }
        if
        :: ok -> atomic { FATE; cell[n] = TOMBSTONE }
        :: else ->
           atomic { FATE; cell[n] = AVAILABLE }
#ifndef FAULT_RELEASE_BLINDLY
           atomic { FATE; ok = closed }
           if
           :: ok ->
              atomic {
                FATE;
                if
                :: cell[n] == AVAILABLE -> cell[n] = TOMBSTONE
                :: else
                fi
              }
           :: else
           fi
#endif
        fi
     :: !ok
     fi;
     atomic { n = 0; ok = false; failed_before = 0 }
  :: else -> break
  od;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; n = 0; takes = 0; failed_before = 0; ok = false }
}

/* close_lanes_once, then sb_disposal_empty */
proctype Closer(byte me) {
  byte s, k, n;
  bool only, refuse, ends, asked, want;
  if
  :: want = true
#ifdef ANY_CONDITION
  :: want = false
#endif
  fi;
  do
  :: closing_ends(); /* sb_closing_ask */
     if
     :: ends -> break
     :: else
     fi;
     atomic { FATE; s = state; k = number }
     atomic {
       FATE;
       if
       :: s == NOT && state == NOT && number == k ->
          state = ASKED; if_empty = want; asked = true;
#ifndef FAULT_NO_NUMBER
          number++;
#endif
          do
          :: n < 2 * LENGTH -> touched[n] = cell[n] != AVAILABLE && cell[n] != FREE; n++
          :: else -> break
          od;
          n = 0
       :: else
       fi;
       s = 0; k = 0
     }
     if
     :: asked -> break
     :: else
     fi
  od;
  if
  :: asked ->
     closing_ends();
     if
     :: ends -> EMPTY
     :: else
     fi
  :: else
  fi;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; s = 0; k = 0; n = 0; only = false; refuse = false; ends = false; asked = false; want = false }
}

#if KILLS > 0
#define IS_DEAD(a) (a < ACTORS && dead_[(a) % ACTORS] && !reaped[(a) % ACTORS])

proctype Reaper() {
  byte s, k, n, d, me;
  bool only, refuse, ends;
  me = REAPER;
begin_:
end_begin:
  atomic {
    if
    :: IS_DEAD(0) -> d = 0
    :: IS_DEAD(1) -> d = 1
    :: IS_DEAD(2) -> d = 2
    :: IS_DEAD(3) -> d = 3
    :: IS_DEAD(4) -> d = 4
    fi
  }
  do
  :: n < 2 * LENGTH ->
     atomic {
       FATE;
       if
       :: cell[n] == HELD + d -> cell[n] = AVAILABLE
       :: else
       fi;
       n++
     }
  :: else -> break
  od;
  n = 0;
#ifndef FAULT_REAPER_UNDECIDED
  closing_ends();
#endif
  atomic { FATE; ends = closed }
  if
  :: ends -> empty_lanes()
  :: else
  fi;
  atomic { FATE; reaped[d] = true; d = 0; ends = false }
  goto begin_;
dead: /* the next one begins anew */
  atomic { d = 0; s = 0; k = 0; n = 0; only = false; refuse = false; ends = false }
  goto begin_;
halted:
  atomic { reaper_halted = true; d = 0; s = 0; k = 0; n = 0; only = false; refuse = false; ends = false }
}
#endif

proctype Judge() {
  byte i;
  bool excused;
  timeout;
  atomic {
    do
    :: i < ACTORS ->
       assert(gone[i] && (!dead_[i] || reaped[i] || reaper_halted));
       excused = excused || halted_[i] || reaper_halted;
       i++
    :: else -> break
    od;
    i = 0;
    assert(excused || (state != ASKED && closed == (state == CLOSED)));
    do
    :: i < 2 * LENGTH -> assert(excused || (cell[i] < HELD && (!closed || cell[i] != AVAILABLE))); i++
    :: else -> break
    od;
    i = 0; excused = false
  }
}

init {
  byte i;
  atomic {
    do
    :: i < PRODUCERS -> run Producer(i); i++
    :: i >= PRODUCERS && i < PRODUCERS + CONSUMERS -> run Consumer(i); i++
    :: i >= PRODUCERS + CONSUMERS && i < ACTORS -> run Closer(i); i++
    :: else -> break
    od;
#if KILLS > 0
    run Reaper();
#endif
    run Judge();
    i = 0
  }
}
#endif
