/* SPDX-License-Identifier: Apache-2.0
 *
 * Room in a queue with a limit that refuses: reservations, and what is left of them when a process dies.
 *
 * Mirrors: sb_limits.c admit, sb_limits_admit, sb_limits_published, sb_limits_unadmit; sb_ledger.h sb_ledger_hinting; sb_ledger.c
 *   sb_ledger_changes; sb_hints.c sb_hints_reconcile, free_room, read_queue; sb_recover.c mark_ledgers, visit_ledgers, recover.
 * Abstracted: cells are counted in one step (cell.pml counts them one by one), bytes (they go the way of the messages),
 *   notification (wake.pml with ROOM). A producer reserves room for TOGETHER messages before it publishes the first, as a commit
 *   does, and may give all of it back. With KEEPER somebody reconciles beside all others.
 *
 * Claims: never are more messages ready than the limit, but for those that came back to the queue; when all have ended, died or
 *   stopped for good, and the dead are reaped, no room is taken but by ready messages and by those who stopped in the middle of a
 *   change, as deep as they are in it; if nobody did, the hints are right.
 *
 * quick: -DPRODUCERS=2 -DCONSUMERS=0 -DKEEPER
 * quick: -DPRODUCERS=2 -DCONSUMERS=0 -DTOGETHER=2 -DLIMIT=3 -DKILLS=1 -DSTOPS=1
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DKILLS=1
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DKEEPER
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DKILLS=1 -DSTOPS=1
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DTOGETHER=2 -DLIMIT=3 -DKILLS=1
 * full: -DPRODUCERS=3 -DCONSUMERS=0 -DTOGETHER=2 -DLIMIT=3 -DKILLS=1
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DKILLS=2
 * fault: -DPRODUCERS=2 -DCONSUMERS=0 -DTOGETHER=2 -DLIMIT=3 -DKILLS=1 -DSTOPS=1 -DFAULT_WAIT_FOR_ALL
 * fault: -DPRODUCERS=2 -DCONSUMERS=1 -DKILLS=1 -DFAULT_IGNORE_DEPTH
 * fault: -DPRODUCERS=2 -DCONSUMERS=1 -DKILLS=1 -DFAULT_RESERVE_FIRST
 * fault: -DPRODUCERS=2 -DCONSUMERS=1 -DKILLS=1 -DFAULT_PUBLISHED_FIRST
 * fault: -DPRODUCERS=2 -DCONSUMERS=0 -DKEEPER -DFAULT_ONE_READING
 * full fault: -DPRODUCERS=3 -DCONSUMERS=0 -DTOGETHER=2 -DLIMIT=3 -DKILLS=1 -DFAULT_STORE
 */
#include "common.h"

#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#ifndef TOGETHER
#define TOGETHER 1
#endif
#ifndef LIMIT
#define LIMIT 1
#endif
#define ACTORS (PRODUCERS + CONSUMERS)

short admitted, taken; /* the hints; the base is 0 */
byte tail, ready;      /* the truth: cells */
byte depth[ACTORS], raised[ACTORS];
bool holds[ACTORS]; /* a message that was taken */
bool dead_[ACTORS], halted_[ACTORS], gone[ACTORS], reaped[ACTORS];
byte returned; /* what the claim allows beyond the limit */
bool kept;

#define MARK(a) atomic { FATE; depth[a]++; raised[a]++ }
#define UNMARK(a) atomic { FATE; depth[a]-- }

proctype Producer(byte me) {
  short seen;
  byte n, published;
  bool refused, won;
  do
  :: n < TOGETHER && !refused ->
#ifndef FAULT_RESERVE_FIRST
     MARK(me);
#endif
     won = false;
     do
     :: !won && !refused ->
        atomic { FATE; seen = admitted }
        atomic { FATE; refused = seen - taken >= LIMIT }
        if
        :: !refused ->
           atomic {
             FATE;
             if
             :: admitted == seen -> admitted++; won = true
             :: else
             fi
           }
        :: else
        fi
     :: else -> break
     od;
#ifdef FAULT_RESERVE_FIRST
     MARK(me);
#endif
     if
     :: refused -> UNMARK(me)
     :: else -> n++
     fi
  :: else -> break
  od;
  if
  :: refused -> n = n /* another one that is refused gives back what it has */
  :: !refused ->
     if
     :: true
     :: refused = true /* it is abandoned */
     fi
  fi;
  do
  :: published < n ->
     if
     :: refused ->
        atomic { FATE; admitted-- }
        UNMARK(me)
     :: else ->
#ifdef FAULT_PUBLISHED_FIRST
        UNMARK(me);
#endif
        atomic { FATE; tail++; ready++; assert(ready <= LIMIT + returned) }
#ifndef FAULT_PUBLISHED_FIRST
        UNMARK(me)
#endif
     fi;
     published++
  :: else -> break
  od;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; seen = 0; n = 0; published = 0; refused = false; won = false }
}

proctype Consumer(byte me) {
  bool got;
  MARK(me);
  atomic {
    FATE;
    if
    :: ready > 0 -> ready--; holds[me] = true; got = true
    :: else
    fi
  }
  if
  :: got -> atomic { FATE; taken++ }
  :: else
  fi;
  UNMARK(me);
  if
  :: got -> atomic { FATE; holds[me] = false } /* acknowledged */
  :: got ->
     MARK(me);
     atomic { FATE; holds[me] = false; ready++; returned++ }
     atomic { FATE; taken-- }
     UNMARK(me)
  :: !got
  fi;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; got = false }
}

/* What a reconciler has read. */
#define READS byte r_at, r_depth, r_raised, r_tail, r_ready, r_depth2, r_raised2, r_tail2, r_ready2; \
  short r_taken, r_admitted, r_taken2, r_admitted2
#define FORGET r_at = 0; r_depth = 0; r_raised = 0; r_tail = 0; r_ready = 0; r_depth2 = 0; r_raised2 = 0; r_tail2 = 0; \
  r_ready2 = 0; r_taken = 0; r_admitted = 0; r_taken2 = 0; r_admitted2 = 0

inline read_changes(deep, often) {
  r_at = 0;
  do
  :: r_at < ACTORS -> atomic { deep = deep + depth[r_at]; often = often + raised[r_at]; r_at++ }
  :: else -> break
  od;
  r_at = 0
}
inline read_queue(t, k, a, n) {
  t = tail;
  k = taken;
  a = admitted;
  n = ready
}
inline reconcile() {
  read_changes(r_depth, r_raised);
  read_queue(r_tail, r_taken, r_admitted, r_ready);
#ifdef FAULT_ONE_READING
  atomic { r_tail2 = r_tail; r_taken2 = r_taken; r_admitted2 = r_admitted; r_ready2 = r_ready; r_depth2 = r_depth; r_raised2 = r_raised }
#else
  read_queue(r_tail2, r_taken2, r_admitted2, r_ready2);
  read_changes(r_depth2, r_raised2);
#endif
  if
  :: r_tail != r_tail2 || r_taken != r_taken2 || r_admitted != r_admitted2 || r_ready != r_ready2 || r_depth != r_depth2 ||
     r_raised != r_raised2
  :: else ->
     if
     :: r_depth == 0 ->
        atomic {
          if
          :: r_taken != r_tail - r_ready && taken == r_taken -> taken = r_tail - r_ready
          :: else
          fi
        }
        atomic {
          if
          :: r_admitted != r_tail && admitted == r_admitted -> admitted = r_tail
          :: else
          fi
        }
     :: else ->
#ifndef FAULT_WAIT_FOR_ALL
#ifdef FAULT_IGNORE_DEPTH
        r_depth = 0;
#endif
        atomic {
          if
#ifdef FAULT_STORE /* whatever others have reserved since */
          :: r_admitted > r_taken + r_ready + r_depth -> admitted = r_taken + r_ready + r_depth
#else
          :: r_admitted > r_taken + r_ready + r_depth && admitted == r_admitted -> admitted = r_taken + r_ready + r_depth
#endif
          :: else
          fi
        }
#else
        skip
#endif
     fi
  fi;
  atomic { FORGET }
}

#ifdef KEEPER
proctype Keeper() { /* a tick of the housekeeper, at any time */
  READS;
  reconcile();
  kept = true
}
#endif

#define IS_DEAD(a) (a < ACTORS && dead_[a % ACTORS] && !reaped[a % ACTORS])
#define AT_REST(a) (a >= ACTORS || (gone[a % ACTORS] && (!dead_[a % ACTORS] || reaped[a % ACTORS])))

/* Reaps whoever has died, at any time after that, until all have come to rest. */
proctype Reaper() {
  READS;
  byte d;
  do
  :: atomic {
       if
       :: IS_DEAD(0) -> d = 0
       :: IS_DEAD(1) -> d = 1
       :: IS_DEAD(2) -> d = 2
       fi;
       depth[d]++;
       raised[d]++
     }
     if
     :: holds[d] ->
        atomic { holds[d] = false; ready++; returned++ }
        taken--
     :: else
     fi;
     depth[d] = 0;
     reconcile();
     atomic { reaped[d] = true; d = 0 }
  :: AT_REST(0) && AT_REST(1) && AT_REST(2) -> break
  od;
#ifdef KEEPER
  kept;
#endif
  reconcile(); /* when all have come to rest */
  read_changes(r_depth, r_raised);
  atomic {
    assert(admitted - taken <= ready + r_depth);
    assert(r_depth != 0 || (admitted == tail && taken == tail - ready));
    FORGET;
    d = 0
  }
}

init {
  byte i;
  atomic {
    do
    :: i < PRODUCERS -> run Producer(i); i++
    :: i >= PRODUCERS && i < ACTORS -> run Consumer(i); i++
    :: else -> break
    od;
#ifdef KEEPER
    run Keeper();
#endif
    run Reaper();
    i = 0
  }
}
