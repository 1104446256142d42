/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate of a connection whose threads enter it by a store, in front of the operation that takes their lock.
 *
 * Mirrors: sb_connection.h sb_lock, sb_unlock; sb_connection.c sb_lock_contended, sb_lock_by_swap, sb_gate_renew, sb_gate_ask;
 *   sb_grace.c ask, ask_all, ask_again.
 * Abstracted: each thread has a store buffer, as x86 has one: first in, first out; an operation that reads and writes waits until
 *   it is empty. `asked` is whether the counter moved on since the connection looked. One chunk, drained once; what becomes
 *   of it is in grace.pml, as is death: whoever is killed inside leaves the gate as it is.
 *
 * Claims: while a call is inside that may know the chunk, the chunk holds no body, whichever thread let which one in; the
 *   drainer is held up by calls only.
 *
 * quick: -DTHREADS=2 -DCALLS=3
 * quick: -DTHREADS=3 -DCALLS=2
 * full: -DTHREADS=3 -DCALLS=3
 * fault: -DTHREADS=2 -DCALLS=2 -DFAULT_NO_BARRIER
 * fault: -DTHREADS=2 -DCALLS=2 -DFAULT_NOT_AGAIN
 * fault: -DTHREADS=2 -DCALLS=2 -DFAULT_NO_LOOK_BACK
 * fault: -DTHREADS=2 -DCALLS=2 -DFAULT_ONE_WORD
 * fault: -DTHREADS=2 -DCALLS=2 -DFAULT_ASK_LATER
 * fault: -DTHREADS=2 -DCALLS=2 -DFAULT_LEAVE_LATER
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif

bool lock, inside, asked;
bool cached = true; /* what the handles of the connection remember; under its lock */
bool draining, body;

/* stores on their way */
#define IN 1
#define OUT 2
#define UNLOCK 3
chan buffer[THREADS] = [3] of { byte };
byte left = THREADS;

proctype Buffer(byte whose) {
  byte what;
end_empty:
  do
  :: atomic {
       buffer[whose]?what;
       if
       :: what == IN ->
          inside = true;
#ifdef FAULT_ONE_WORD /* the question was a bit of the same word */
          asked = false
#endif
       :: what == OUT -> inside = false
       :: what == UNLOCK -> lock = false
       fi;
       what = 0
     }
  od
}

proctype Thread(byte me) {
  byte calls;
  bool won, seen;
  do
  :: calls < CALLS ->
     buffer[me]!IN;
#ifdef FAULT_NO_BARRIER
     atomic { won = !lock; lock = true }
#else
     atomic { empty(buffer[me]) -> won = !lock; lock = true }
#endif
     if
     :: !won ->
        atomic { empty(buffer[me]) && !lock -> lock = true }
#ifndef FAULT_NOT_AGAIN /* who had the lock took back what we had stored */
        inside = true
#endif
     :: else ->
#ifndef FAULT_NO_LOOK_BACK /* he may have had it until after our store */
        if
        :: inside || len(buffer[me]) > 0 /* a thread sees its own stores at once */
        :: !inside && len(buffer[me]) == 0 -> inside = true
        fi
#endif
     fi;
     atomic {
       if
       :: asked -> cached = false; asked = false
       :: else
       fi
     }
     if
     :: atomic { cached -> assert(!body) }
     :: !cached
     :: atomic { seen = !draining }
        atomic {
          if
          :: seen -> assert(!body); cached = true
          :: else
          fi;
          seen = false
        }
     fi;
#ifdef FAULT_LEAVE_LATER
     buffer[me]!UNLOCK;
     buffer[me]!OUT;
#else
     buffer[me]!OUT;
     buffer[me]!UNLOCK;
#endif
     atomic { calls++; won = false }
  :: else -> break
  od;
  left--
}

proctype Drainer() {
  bool waits;
  draining = true;
again:
#ifndef FAULT_ASK_LATER
  asked = true;
#endif
  waits = inside;
  if
  :: waits ->
     atomic { !inside -> waits = false }
     goto again
  :: else
  fi;
#ifdef FAULT_ASK_LATER
  asked = true;
#endif
  body = true
}

proctype Judge() {
  timeout;
  assert(left == 0 && body && !lock && !inside)
}

init {
  byte n;
  atomic {
    do
    :: n < THREADS -> run Thread(n); run Buffer(n); n++
    :: else -> break
    od;
    run Drainer();
    run Judge()
  }
}
