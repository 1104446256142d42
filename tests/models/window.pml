/* SPDX-License-Identifier: Apache-2.0
 *
 * Consumers with a window of bytes, for which the next message may be too large.
 *
 * Mirrors: sb_window.c sb_window_hold_back, sb_window_go_on; sb_subscription.c look_twice, end_interest, sb_subscription_go_on;
 *   sb_consumer.c sb_consumer_turn, may_look_again, lets_some_go_on; sb_notify.c sb_notify_held_back, sb_notify_room_made,
 *   sb_notify_work_arrived, sb_notify_pass_baton; sb_recover.c recover.
 * Abstracted: `requeued` is not cleared, so whoever makes a message ready tells those that are held back (overtaken). A look at the
 *   queue, with the take of what fits, is one step (cell.pml has the take); so is passing the baton, whose counts and lists
 *   notify.pml and list.pml have; a wake is a flag (wake.pml). A get takes any message. The reaper is one process, which is not killed
 *   itself. One consumer may settle what it held at the beginning.
 *
 * The queue: message 0 is small, and held by a process that returns it; 1 is large; 2 is small. A small one needs 1 of the window, the
 *   large one 2. Each consumer has a window of 2, and holds 1.
 *
 * Claims: a consumer takes no message that does not fit; when nothing moves any more, each consumer that is held back has a next
 *   message, which does not fit, and no message is ready for a consumer that is not held back; while nothing is taken, returned or
 *   settled, and nobody is told, consumers look in vain only so often.
 *
 * quick: -DGETS=1
 * quick: -DGETS=0 -DRETURN
 * quick: -DGETS=1 -DKILLS=1
 * full: -DGETS=0 -DRETURN -DKILLS=1
 * full: -DGETS=2
 * full: -DGETS=1 -DRETURN
 * bitstate: -DGETS=1 -DRETURN -DKILLS=1 -w32 -Q10
 * fault: -DGETS=1 -DFAULT_LOOK_ONCE
 * fault: -DGETS=1 -DFAULT_TELL_BEFORE_TAKE
 * fault: -DGETS=0 -DRETURN -DFAULT_TELL_NOBODY_OF_RETURNS
 * fault: -DGETS=0 -DFAULT_KEEP_THE_BATON
 * fault: -DGETS=0 -DFAULT_STAY_INTERESTED
 * fault: -DGETS=1 -DRETURN -DFAULT_ANY_WAKE
 * fault: -DGETS=1 -DKILLS=1 -DFAULT_REAP_SILENTLY
 */
#include "common.h"

#ifndef GETS
#define GETS 1
#endif
/* with RETURN: message 0 is returned, too */
#define CONSUMERS 2
#define NONE 3
#define WINDOW 2
#define SIZE(m) ((m) == 1 -> 2 : 1)
#define MOST_LOOKS 8

mtype = { NOT_INTERESTED, INTERESTED, NOTIFIED };
mtype state[CONSUMERS] = INTERESTED;
bool flagged[CONSUMERS];   /* the node asks for a turn (P9) */
bool marked[CONSUMERS];    /* SB_NODE_HELD_BACK */
byte used[CONSUMERS] = 1;
byte lacks[CONSUMERS];     /* process-local */
bool settles[CONSUMERS];   /* it will settle what it held at the beginning */
bool died[CONSUMERS];
bool ready[NONE];
bool held_back;
bool killed, gone, returned; /* a process was; the return is over; message 0 came back */
byte looks;                /* in vain, since anything else happened */

#define NEXT (ready[0] -> 0 : (ready[1] -> 1 : (ready[2] -> 2 : NONE)))
#define FITS(m, n) (SIZE(m) <= WINDOW - used[n])
#ifdef FAULT_ANY_WAKE
#define MAY_LOOK(n) true
#else
#define MAY_LOOK(n) (!marked[n] || !held_back) /* may_look_again */
#endif

/* sb_notify_held_back */
inline tell_held_back(n) {
  if
  :: held_back ->
     atomic { FATE; held_back = false; looks = 0; n = 0 }
     do
     :: n < CONSUMERS ->
        if
        :: marked[n] ->
           atomic { FATE; marked[n] = false; looks = 0 }
           atomic { FATE; flagged[n] = true }
        :: else
        fi;
        n++
     :: else -> break
     od;
     n = 0
  :: else
  fi
}

/* sb_notify_one, by a process that finds the queue ready */
inline notify_one() {
  if
  :: NEXT != NONE && state[0] == INTERESTED -> state[0] = NOTIFIED; flagged[0] = true
  :: NEXT != NONE && state[0] != INTERESTED && state[1] == INTERESTED -> state[1] = NOTIFIED; flagged[1] = true
  :: else
  fi
}

proctype Consumer(byte me) {
  byte m = NONE, n;
  bool settled, twice;
end_idle:
  do
  :: atomic { flagged[me] -> flagged[me] = false }
     goto turn
  :: atomic { settles[me] && lacks[me] == 2 -> settles[me] = false; settled = true; used[me] = 0; looks = 0 }
     goto turn /* lets_some_go_on: what it lacks fits now */
  :: lacks[me] != 0 && (!marked[me] || !held_back) -> /* wants_work */
turn:
     if
     :: lacks[me] != 0 && !settled && !MAY_LOOK(me) -> goto rest
     :: lacks[me] != 0 && (settled || MAY_LOOK(me)) -> /* sb_subscription_go_on */
        atomic { lacks[me] = 0; marked[me] = false; settled = false }
        atomic {
          if
          :: state[me] == NOT_INTERESTED -> state[me] = INTERESTED
          :: else
          fi
        }
     :: lacks[me] == 0
     fi;
look:
     atomic {
       m = NEXT;
       if
       :: m != NONE && FITS(m, me) ->
          ready[m] = false; used[me] = used[me] + SIZE(m); assert(used[me] <= WINDOW); looks = 0; goto took
       :: m != NONE && !FITS(m, me) -> goto too_large
       :: m == NONE
       fi
     }
     if
     :: twice -> marked[me] = false; twice = false
     :: else
     fi;
     atomic {
       if
       :: state[me] == NOTIFIED -> state[me] = INTERESTED; goto look /* P3 */
       :: else -> goto rest
       fi
     };
took:
     if
     :: twice -> marked[me] = false; twice = false
     :: else
     fi;
     m = NONE;
     tell_held_back(n);
     goto look;
too_large:
     if
#ifndef FAULT_LOOK_ONCE
     :: !twice ->
        marked[me] = true;
        held_back = true;
        twice = true;
        goto look
     :: twice
#else
     :: marked[me] = true; held_back = true
#endif
     fi;
     atomic { lacks[me] = SIZE(m); m = NONE; twice = false; looks++; assert(looks < MOST_LOOKS) }
     /* end_interest: the baton */
#ifndef FAULT_STAY_INTERESTED
     state[me] = NOT_INTERESTED;
#endif
#ifndef FAULT_KEEP_THE_BATON
     atomic { notify_one() }
#endif
rest:
     atomic { m = NONE; twice = false }
  od;
dead:
  atomic { killed = true; died[me] = true; m = NONE; n = 0; twice = false; settled = false }
}

/* A process that gets messages. */
proctype Get() {
  byte m = NONE, n, gets;
  do
  :: gets < GETS ->
     gets++;
#ifdef FAULT_TELL_BEFORE_TAKE
     tell_held_back(n);
#endif
     atomic {
       FATE;
       m = NEXT;
       if
       :: m != NONE -> ready[m] = false; looks = 0
       :: else
       fi
     }
#ifndef FAULT_TELL_BEFORE_TAKE
     if
     :: m != NONE -> tell_held_back(n)
     :: else
     fi
#endif
  :: gets == GETS -> break
  od;
  goto over;
dead:
  killed = true;
over:
  atomic { m = NONE; n = 0; gets = 0 }
}

/* A process that returns message 0. */
proctype Return() {
  byte n;
  atomic { FATE; ready[0] = true; returned = true; looks = 0 }
#ifndef FAULT_TELL_NOBODY_OF_RETURNS
  tell_held_back(n);
#endif
  atomic { notify_one() } /* sb_notify_work_arrived */
  goto over;
dead:
  killed = true;
over:
  atomic { gone = true; n = 0 }
}

proctype Reaper() {
  byte n;
end_reaper:
  killed;
  atomic { /* the message that the dead process held */
    if
    :: gone && !returned -> ready[0] = true; returned = true; looks = 0
    :: else
    fi
  }
  atomic { /* the node of a dead consumer; its messages are settled here */
    if
    :: died[0] -> state[0] = NOT_INTERESTED; lacks[0] = 0
    :: died[1] -> state[1] = NOT_INTERESTED; lacks[1] = 0
    :: else
    fi
  }
#ifndef FAULT_REAP_SILENTLY
  held_back = true;
  tell_held_back(n);
#endif
  atomic { notify_one() }
  goto over;
dead:
  skip;
over:
  n = 0
}

active proctype Claim() {
end_claim:
  timeout; /* nothing moves any more */
  assert(!(lacks[0] != 0 && (NEXT == NONE || FITS(NEXT, 0))));
  assert(!(lacks[1] != 0 && (NEXT == NONE || FITS(NEXT, 1))));
  assert(!(NEXT != NONE && (state[0] != NOT_INTERESTED || state[1] != NOT_INTERESTED)))
}

init {
  atomic {
    ready[1] = true;
    ready[2] = true;
    state[0] = NOTIFIED;
    flagged[0] = true;
    if
    :: settles[0] = true
    :: skip
    fi;
    run Consumer(0);
    run Consumer(1);
#if GETS > 0
    run Get();
#endif
#ifdef RETURN
    run Return();
#endif
    run Reaper()
  }
}
