/* SPDX-License-Identifier: Apache-2.0
 *
 * Store commit: what a commit changes in several stored queues is on the disk as a whole, or not at all.
 *
 * Mirrors: sb_transaction.c sb_transaction_decide, sb_transaction_carry_out, sb_transaction_roll_forward; sb_recover.c
 *   recover_commit, reap_connection; sb_turns.c sb_turns_commits, sb_turns_await_commits, sb_turns_move_begins,
 *   sb_turns_move_ends, mend_commits.
 * Abstracted: staging, undoing and settling (commit.pml), the bits that lead to changes (store.pml). A transaction of the
 *   store is one step, and is synced.
 *
 * Each committer ends a message of one queue and publishes one to another queue, in one commit. The storekeeper collects
 * ends, then messages, in as many passes as it needs.
 *
 * With MOVES, each of them moves a message instead: it is counted as a commit, and `decided` says that it has begun. The
 * reaper finishes the move of a dead mover, or undoes it if the message is not in the other queue. It need not count: the
 * mover has, before its first effect.
 *
 * Claims, at any moment, which is when the machine may lose its memory: the disk has either both changes of a commit, or
 *   neither; both if the committer was told so. At rest: the counts agree.
 *
 * quick: -DCOMMITTERS=2
 * quick: -DCOMMITTERS=2 -DKILLS=1
 * quick: -DCOMMITTERS=2 -DKILLS=1 -DMOVES
 * full: -DCOMMITTERS=2 -DKILLS=2
 * full: -DCOMMITTERS=2 -DKILLS=2 -DMOVES
 * full: -DCOMMITTERS=3
 * fault: -DCOMMITTERS=2 -DFAULT_NO_SECOND_LOOK
 * fault: -DCOMMITTERS=1 -DFAULT_COUNT_LATE
 * fault: -DCOMMITTERS=1 -DFAULT_DONE_EARLY
 * fault: -DCOMMITTERS=1 -DKILLS=1 -DFAULT_REAPER_COUNTS_NOT
 * fault: -DCOMMITTERS=2 -DKILLS=1 -DFAULT_MEND_BLINDLY
 * fault: -DCOMMITTERS=1 -DFAULT_ONE_QUEUE_LATER
 * fault: -DCOMMITTERS=1 -DMOVES -DFAULT_MEND_BLINDLY
 * fault: -DCOMMITTERS=1 -DKILLS=1 -DMOVES -DFAULT_REAPER_CLEARS_EARLY
 */
#include "common.h"

#define NOBODY 255

/* the memory: of each commit, whether its message is ready in the one queue, and that of the other queue has ended */
bit ready[COMMITTERS], over[COMMITTERS];
bit decided[COMMITTERS];      /* the commit word */
byte begun, done;             /* of the header */
bit asked[COMMITTERS];        /* read the number of the last turn that began, after its commit */
bit told[COMMITTERS];
bool died[COMMITTERS];
byte left = COMMITTERS, deaths;
/* the disk: the message that the commit publishes, the one that it ends */
bit published[COMMITTERS], ended[COMMITTERS];

#define whole(i) (published[i] == ended[i] && (!told[i] || published[i]))
#if COMMITTERS == 1
#define all_whole whole(0)
#elif COMMITTERS == 2
#define all_whole (whole(0) && whole(1))
#else
#define all_whole (whole(0) && whole(1) && whole(2))
#endif
active proctype Loss() {
end:
  atomic { !all_whole -> assert(false) }
}

/* The effects of the commit, by its owner or by a reaper: each of them once. */
inline carry_out(i) {
  atomic { FATE; ready[i] = 1 }
  atomic { FATE; over[i] = 1 }
}

proctype Committer(byte i) {
  atomic { FATE; decided[i] = 1 } /* sb_transaction_decide */
#ifndef FAULT_COUNT_LATE
  atomic { FATE; begun++ }
#ifdef FAULT_DONE_EARLY
  atomic { FATE; done++ }
#endif
  carry_out(i);
#else
  atomic { FATE; ready[i] = 1 }
  atomic { FATE; begun++ }
  atomic { FATE; over[i] = 1 }
#endif
#ifndef FAULT_DONE_EARLY
  atomic { FATE; done++ }
#endif
  atomic { FATE; decided[i] = 0 }
  atomic { FATE; asked[i] = 1 }
  atomic { left--; goto finished };
dead:
halted:
  atomic { died[i] = true; deaths++; left-- }
finished:
  skip
}

/* One reaper after the other: what one of them only remembers is lost with it. */
active proctype Reaper() {
  byte i;
  goto begin;
dead:
halted:
begin:
  i = 0;
  do
  :: i < COMMITTERS && !died[i] -> i++
  :: i < COMMITTERS && died[i] ->
     if
     :: decided[i] ->
#ifdef MOVES
#ifdef FAULT_REAPER_CLEARS_EARLY
        atomic { FATE; decided[i] = 0 }
#endif
        if
        :: ready[i] -> carry_out(i)
        :: !ready[i] /* undone */
        fi;
#else
#ifndef FAULT_REAPER_COUNTS_NOT
        atomic { FATE; begun++ }
#endif
        carry_out(i);
#ifndef FAULT_REAPER_COUNTS_NOT
        atomic { FATE; done++ }
#endif
#endif
        atomic { FATE; decided[i] = 0 }
     :: else
     fi;
     atomic { FATE; died[i] = false; deaths--; i = 0 }
  :: i == COMMITTERS && left == 0 && deaths == 0 -> break
  :: i == COMMITTERS && !(left == 0 && deaths == 0) -> i = 0
  od
}

active proctype Storekeeper() {
  byte i, were_done, were_begun, now;
  bit in_turn[COMMITTERS], seen_ready[COMMITTERS], seen_over[COMMITTERS];
  bit idle, some;
  goto begin;
dead:
halted:
begin:
  atomic {
    i = 0;
    do
    :: i < COMMITTERS -> seen_ready[i] = 0; seen_over[i] = 0; i++
    :: else -> break
    od;
    were_done = 0; were_begun = 0; now = 0; i = 0; some = 0;
    idle = (left == 0 && deaths == 0)
  }
  atomic {
    FATE;
    i = 0;
    do
    :: i < COMMITTERS -> in_turn[i] = asked[i]; i++
    :: else -> break
    od;
    i = 0
  }
pass:
  /* sb_turns_await_commits: no commit is being carried out */
  atomic { FATE; were_done = done }
  atomic { FATE; were_begun = begun }
  if
  :: were_done == were_begun
  :: were_done != were_begun ->
     /* mend_commits: a committer was killed after it counted, and its reaper counted as well */
     i = 0; some = 0;
     do
     :: i < COMMITTERS -> atomic { FATE; some = some || decided[i]; i++ }
     :: else -> break
     od;
     i = 0;
#ifdef FAULT_MEND_BLINDLY
     some = 0;
#endif
     if
     :: !some -> atomic { FATE; if :: done == were_done -> done = were_begun :: else fi }
     :: some -> (done != were_done || begun != were_begun || deaths == 0) /* waits */
     fi;
     some = 0;
     goto pass
  fi;
  /* the ends, then the messages */
  i = 0;
  do
  :: i < COMMITTERS -> atomic { FATE; seen_over[i] = over[i]; i++ }
  :: else -> break
  od;
  i = 0;
  do
  :: i < COMMITTERS -> atomic { FATE; seen_ready[i] = ready[i]; i++ }
  :: else -> break
  od;
  i = 0;
#ifndef FAULT_NO_SECOND_LOOK
  atomic { FATE; now = begun }
  if
  :: now != were_begun -> now = 0; goto pass
  :: else
  fi;
#endif
#ifdef FAULT_ONE_QUEUE_LATER
  atomic { FATE; seen_ready[0] = ready[0] }
#endif
  /* the transaction */
  atomic {
    FATE;
    i = 0;
    do
    :: i < COMMITTERS -> ended[i] = ended[i] || seen_over[i]; published[i] = published[i] || seen_ready[i]; i++
    :: else -> break
    od;
    i = 0
  }
  atomic {
    FATE;
    i = 0;
    do
    :: i < COMMITTERS -> told[i] = told[i] || in_turn[i]; i++
    :: else -> break
    od;
    i = 0
  }
  if
  :: idle -> goto rest
  :: else -> goto begin
  fi;
rest:
  do
  :: i < COMMITTERS -> assert(published[i] == ready[i] && ended[i] == over[i] && ready[i] == over[i]); i++
  :: else -> break
  od;
  assert(begun == done)
}

init {
  byte n;
  atomic {
    do
    :: n < COMMITTERS -> run Committer(n); n++
    :: else -> break
    od;
    n = 0
  }
}
