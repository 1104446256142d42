/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids by which a queue knows that a message was put before: claims, the commit that decides about a message and its id,
 * numbers, and the ids that are forgotten.
 *
 * Mirrors: sb_duplicates.c look, verdict_of, look_beside, take_cell, make, sb_duplicates_claim, sb_duplicates_withdraw,
 *   sb_duplicates_remember, sb_duplicates_end_dead; sb_api_duplicates.c sb_api_enqueue_once; sb_transaction.c
 *   sb_transaction_carry_out; sb_recover.c recover_commit.
 * Abstracted: the message, which is stored by the step that decides (commit.pml has the cells). Any cell is right for any
 *   id, and there are enough of them, in one block. A put that waits looks again at any time.
 *
 * Each putter puts the ids 1 to PUTS, one after the other. A put may fail for another reason after its claim. It claims an
 * id TRIES times at most.
 *
 * Claims: no put decides while the id is remembered, or another decided claim of it exists; a put that returns says that
 *   the message is stored; when all have ended and the dead are reaped, no claim is left, an id is known exactly if its
 *   message was stored, and at least the last KEPT ids are remembered.
 *
 * quick: -DPUTTERS=2 -DPUTS=1 -DKILLS=1
 * quick: -DPUTTERS=2 -DPUTS=1 -DKILLS=1 -DSTOPS=1 -DTRIES=1
 * quick: -DPUTTERS=2 -DPUTS=2 -DTRIES=1 -DKEPT=1
 * full: -DPUTTERS=2 -DPUTS=2 -DTRIES=1
 * full: -DPUTTERS=2 -DPUTS=1 -DKILLS=2
 * full: -DPUTTERS=2 -DPUTS=2 -DTRIES=1 -DKEPT=1 -DKILLS=1
 * full: -DPUTTERS=2 -DPUTS=2 -DTRIES=1 -DKEPT=2 -DKILLS=1
 * fault: -DPUTTERS=2 -DPUTS=1 -DFAULT_NO_SECOND_LOOK
 * fault: -DPUTTERS=2 -DPUTS=1 -DFAULT_BESIDE_YOUNGER
 * fault: -DPUTTERS=2 -DPUTS=2 -DTRIES=1 -DFAULT_TRUST_COMMIT
 * fault: -DPUTTERS=2 -DPUTS=1 -DKILLS=1 -DTRIES=1 -DFAULT_HOLD_LATER
 * fault: -DPUTTERS=2 -DPUTS=1 -DKILLS=1 -DTRIES=1 -DFAULT_ID_FIRST
 * fault: -DPUTTERS=2 -DPUTS=1 -DKILLS=1 -DTRIES=1 -DFAULT_MESSAGE_FIRST
 * fault: -DPUTTERS=2 -DPUTS=1 -DKILLS=1 -DTRIES=1 -DFAULT_CLEAR_FIRST
 * fault: -DPUTTERS=2 -DPUTS=2 -DTRIES=1 -DKEPT=2 -DKILLS=1 -DFAULT_NEW_NUMBER
 */
#include "common.h"

#ifndef PUTTERS
#define PUTTERS 2
#endif
#ifndef PUTS
#define PUTS 1
#endif
#ifndef KEPT
#define KEPT 9 /* duplicate_ids: more than there are */
#endif
#ifndef TRIES
#define TRIES 2
#endif
#define CELLS (PUTTERS + PUTS)
#define NOTHING 15

/* an entry */
#define FREE 0
#define WRITING 1
#define CLAIMED 2
#define KNOWN 3

byte state[CELLS], owner[CELLS], tag[CELLS], number[CELLS], hash[CELLS];
byte numbers = 1, tags;

/* of the connections */
bool word[PUTTERS];                       /* the commit word */
byte hold[PUTTERS], hold_tag[PUTTERS];    /* the holding: a cell, and the tag of the claim */
bool dead_[PUTTERS], reaped[PUTTERS];

/* what only the claims know */
byte stored[PUTS + 1], left = PUTTERS;
bool said[PUTS + 1]; /* a put of the id came back */

#define REMEMBERED(i) (numbers - number[i] < KEPT)

/* verdict: 0 new, 1 undecided, 2 duplicate. mine: the tag of the own claim. An undecided one that is younger counts only
 * as such while there is no older one. */
inline look(id, mine) {
  verdict = 0; older = false; i = 0;
  do
  :: i < CELLS ->
     atomic { s = state[i]; o = owner[i]; t = tag[i]; n = number[i] }
     if
     :: (s == CLAIMED && t != mine) || s == KNOWN ->
        if
        :: hash[i] == id ->
           if
           :: s == CLAIMED -> known = word[o]
           :: else -> known = REMEMBERED(i) && n == number[i]
           fi;
           atomic {
             if
#ifndef FAULT_TRUST_COMMIT
             :: state[i] != s || owner[i] != o || tag[i] != t || number[i] != n -> skip /* looks at the cell again */
#endif
             :: else ->
                if
                :: known -> verdict = 2; i = CELLS
                :: !known && s == CLAIMED ->
                   verdict = 1;
                   older = older || t < mine;
                   i++
                :: else -> i++
                fi
             fi
           }
        :: else -> i++
        fi
     :: else -> i++
     fi
  :: else -> break
  od;
  atomic { i = 0; s = 0; o = 0; t = 0; n = 0; known = false }
}

/* No other entry says that the message of the id is there. */
inline expect_new(id, but) {
  i = 0;
  do
  :: i < CELLS ->
     assert(i == but || hash[i] != id || !((state[i] == KNOWN && REMEMBERED(i)) || (state[i] == CLAIMED && word[owner[i]])));
     i++
  :: else -> break
  od;
  i = 0
}

inline decide(id) {
  atomic { FATE; expect_new(id, at); word[me] = true; stored[id]++ }
}

proctype Putter(byte me) {
  byte id = 1, at, mine, verdict, i, s, o, t, n, tries;
  bool older, known;
again:
  look(id, 0);
  if
  :: verdict == 2 -> atomic { assert(stored[id] > 0); said[id] = true; goto next }
  :: verdict == 1 -> goto again
  :: else
  fi;
#ifdef FAULT_MESSAGE_FIRST
  at = NOTHING;
  decide(id);
#endif
  atomic { FATE; tags++; mine = tags; tries++ }
  do
  :: atomic {
       if
       :: state[0] == FREE || (state[0] == KNOWN && !REMEMBERED(0)) -> at = 0
       :: state[1] == FREE || (state[1] == KNOWN && !REMEMBERED(1)) -> at = 1
#if CELLS > 2
       :: state[2] == FREE || (state[2] == KNOWN && !REMEMBERED(2)) -> at = 2
#endif
#if CELLS > 3
       :: state[3] == FREE || (state[3] == KNOWN && !REMEMBERED(3)) -> at = 3
#endif
#if CELLS > 4
       :: state[4] == FREE || (state[4] == KNOWN && !REMEMBERED(4)) -> at = 4
#endif
       fi;
       n = state[at]; t = number[at]
     }
#ifndef FAULT_HOLD_LATER
     atomic { FATE; hold[me] = at; hold_tag[me] = mine }
#endif
     atomic {
       FATE;
       if
       :: state[at] == n && number[at] == t ->
          state[at] = WRITING; owner[at] = me; tag[at] = mine; number[at] = 0; n = 0; t = 0;
          break
       :: else
       fi
     }
  od;
#ifdef FAULT_HOLD_LATER
  atomic { FATE; hold[me] = at; hold_tag[me] = mine }
#endif
  atomic { FATE; hash[at] = id }
  atomic { FATE; state[at] = CLAIMED }
#ifdef FAULT_ID_FIRST
  atomic { FATE; numbers++; number[at] = numbers; state[at] = KNOWN; hold[me] = NOTHING; owner[at] = 0; tag[at] = 0 }
#endif
#ifndef FAULT_NO_SECOND_LOOK
wait:
  look(id, mine);
  if
  :: verdict == 2 || (verdict == 1 && older) -> goto withdraw
#ifdef FAULT_BESIDE_YOUNGER
  :: verdict == 1 && !older -> verdict = 0
#else
  :: verdict == 1 && !older -> goto wait
#endif
  :: verdict == 1 -> goto withdraw /* its patience is at an end */
  :: else
  fi;
#endif
  if
  :: true -> goto withdraw /* it fails for another reason */
  :: true
  fi;
#ifndef FAULT_MESSAGE_FIRST
  decide(id);
#endif
#ifdef FAULT_CLEAR_FIRST
  atomic { FATE; word[me] = false }
#endif
#ifndef FAULT_ID_FIRST
  atomic { FATE; numbers++; n = numbers }
  atomic { FATE; state[at] = KNOWN; number[at] = n; owner[at] = 0; tag[at] = 0; n = 0 }
#endif
  atomic { FATE; hold[me] = NOTHING }
  atomic { FATE; word[me] = false }
  atomic { said[id] = true; goto next }
withdraw:
  atomic { FATE; state[at] = FREE; owner[at] = 0; tag[at] = 0; hash[at] = 0 }
  atomic { FATE; hold[me] = NOTHING }
  if
  :: verdict == 0 || tries == TRIES -> goto next /* it failed */
  :: else -> goto again
  fi;
next:
  atomic {
    at = 0; mine = 0; verdict = 0; older = false; tries = 0;
    if
    :: id < PUTS -> id++; goto again
    :: else -> goto out
    fi
  }
dead:
  atomic { dead_[me] = true; goto out }
halted:
  skip;
out:
  atomic { left--; id = 0; at = 0; mine = 0; verdict = 0; older = false; i = 0; s = 0; o = 0; t = 0; n = 0; tries = 0; known = false }
}

#if PUTTERS > 2
#define ALL_REAPED ((!dead_[0] || reaped[0]) && (!dead_[1] || reaped[1]) && (!dead_[2] || reaped[2]))
#else
#define ALL_REAPED ((!dead_[0] || reaped[0]) && (!dead_[1] || reaped[1]))
#endif

/* Reapers, one after the other: a killed one is followed by the next. */
active proctype Reaper() {
  byte p, at, to;
again:
  atomic {
    at = 0; to = 0;
    if
    :: dead_[0] && !reaped[0] -> p = 0
    :: dead_[1] && !reaped[1] -> p = 1
#if PUTTERS > 2
    :: dead_[2] && !reaped[2] -> p = 2
#endif
    :: left == 0 && stops == 0 && ALL_REAPED -> goto out
    :: left == 0 && stops > 0 -> goto halted
    fi
  }
  at = hold[p];
  if
  :: at != NOTHING ->
     if
     :: word[p] ->
#ifdef FAULT_NEW_NUMBER
        atomic { FATE; numbers++; to = numbers }
#else
        to = numbers;
#endif
        atomic {
          FATE;
          if
          :: state[at] == CLAIMED && owner[at] == p && tag[at] == hold_tag[p] ->
             state[at] = KNOWN; number[at] = to; owner[at] = 0; tag[at] = 0
          :: else
          fi
        }
     :: else ->
        atomic {
          FATE;
          if
          :: (state[at] == CLAIMED || state[at] == WRITING) && owner[at] == p && tag[at] == hold_tag[p] ->
             state[at] = FREE; owner[at] = 0; tag[at] = 0; hash[at] = 0
          :: else
          fi
        }
     fi
  :: else
  fi;
  atomic { reaped[p] = true; p = 0; goto again }
dead:
  goto again;
out:
  /* nothing moves any more */
  atomic {
    p = 1; at = 0; to = 0;
    do
    :: at < CELLS ->
       assert(state[at] == FREE || state[at] == KNOWN);
       if
       :: state[at] == KNOWN && REMEMBERED(at) -> to++
       :: else
       fi;
       at++
    :: else -> break
    od;
    at = 0;
    do
    :: p <= PUTS ->
       assert(!said[p] || stored[p] > 0);
       assert(KEPT <= PUTS || stored[p] <= 1);
       at = at + stored[p];
       p++
    :: else -> break
    od;
    assert(to >= (at < KEPT -> at : KEPT));
    assert(KEPT <= PUTS || to == at);
    p = 0; at = 0; to = 0
  }
halted:
  skip
}

init {
  byte p;
  atomic {
    do
    :: p < PUTTERS -> hold[p] = NOTHING; run Putter(p); p++
    :: else -> break
    od;
    p = 0
  }
}
