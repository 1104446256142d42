/* SPDX-License-Identifier: Apache-2.0
 *
 * Duplicate ids in the store: the storekeeper lists the ids that are known, gathers the messages, and looks for the ids of
 * these messages.
 *
 * Mirrors: sb_duplicates.c sb_duplicates_list, sb_duplicates_number, sb_duplicates_remember; sb_transaction.c
 *   sb_transaction_decide, sb_transaction_carry_out, sb_transaction_remember_ids; sb_recover.c recover_commit; sb_gather.c
 *   sb_gather_row; sb_api_store.c sb_store_look.
 * Abstracted: Remembering and Following of the storekeeper, which are in Python; the claim, which duplicates.pml has.
 *   Nothing is forgotten. The queue has one leaf. A turn is synced as a whole, when it ends. Each putter puts one message,
 *   with an id that no other has.
 *
 * Each message may be taken and acknowledged as soon as it is ready. A putter may be killed at any step, and is reaped. The
 * storekeeper may be killed at any step; the next one looks at everything. All may be lost after any turn: so the claims are
 * asserted of the disk after each turn.
 *
 * Claims: of a message that the disk has, it has the id. Of an id that the disk has, it has the message, or that has ended.
 *   A producer whose wait for a turn ends finds its id on the disk.
 *
 * quick: -DPUTTERS=2 -DTURNS=2
 * quick: -DPUTTERS=1 -DTURNS=3 -DKILLS=2
 * full: -DPUTTERS=2 -DTURNS=3
 * full: -DPUTTERS=2 -DTURNS=2 -DKILLS=1
 * fault: -DPUTTERS=1 -DTURNS=2 -DFAULT_LIST_AFTER
 * fault: -DPUTTERS=1 -DTURNS=2 -DFAULT_LIST_ONLY
 * fault: -DPUTTERS=1 -DTURNS=3 -DFAULT_CLAIMS_FORGOTTEN
 * fault: -DPUTTERS=1 -DTURNS=3 -DFAULT_ENDS_FORGOTTEN
 * fault: -DPUTTERS=1 -DTURNS=2 -DKILLS=1 -DFAULT_REAPER_ID_FIRST
 * fault: -DPUTTERS=1 -DTURNS=3 -DKILLS=1 -DFAULT_DROP_CLAIMS
 */
#include "common.h"

#ifndef PUTTERS
#define PUTTERS 2
#endif
#ifndef TURNS
#define TURNS 2
#endif

#define NOTHING 0
#define STAGED 1
#define READY 2
#define ENDED 3
#define NONE 0
#define CLAIMED 1
#define KNOWN 2

/* the memory: cells by position, ids by putter */
byte cell[PUTTERS], who[PUTTERS], tail, stored;
byte id[PUTTERS], number[PUTTERS], numbers = 1;
bool word[PUTTERS], dead_[PUTTERS];
byte begun, done;

/* the disk */
bool has_message[PUTTERS], has_id[PUTTERS];

inline flip(p) {
  d_step {
    for (i : 0 .. PUTTERS - 1) {
      if
      :: i < tail && who[i] == p && cell[i] == STAGED -> cell[i] = READY
      :: else
      fi
    }
    i = 0
  }
}

proctype Putter(byte me) {
  byte n, i;
  atomic { FATE; id[me] = CLAIMED }
  atomic { FATE; who[tail] = me; cell[tail] = STAGED; tail++ }
  atomic { FATE; word[me] = true }
  atomic { FATE; flip(me) }
  atomic { FATE; numbers++; n = numbers }
  atomic { FATE; id[me] = KNOWN; number[me] = n }
  atomic { FATE; word[me] = false }
  atomic { FATE; n = begun + 1 }
end:
  atomic { done >= n; assert(has_id[me]); goto out }
dead:
  atomic { dead_[me] = true; n = 0; i = 0 }
halted:
out:
  skip
}

inline remember(p) {
  if
  :: id[p] == CLAIMED -> id[p] = KNOWN; number[p] = numbers
  :: else
  fi
}

active proctype Reaper() {
  byte i, p;
end:
  do
  :: atomic {
       dead_[0] -> p = 0
     }
     goto reap
#if PUTTERS > 1
  :: atomic {
       dead_[1] -> p = 1
     }
     goto reap
#endif
  od;
reap:
  if
  :: word[p] ->
#ifdef FAULT_REAPER_ID_FIRST
     atomic { remember(p) }
     atomic { flip(p) }
#else
     atomic { flip(p) }
     atomic { remember(p) }
#endif
  :: else ->
     atomic {
       for (i : 0 .. PUTTERS - 1) {
         if
         :: i < tail && who[i] == p && cell[i] == STAGED -> cell[i] = ENDED
         :: else
         fi
       }
       i = 0;
       if
       :: id[p] == CLAIMED -> id[p] = NONE
       :: else
       fi
     }
  fi;
  atomic { dead_[p] = false; word[p] = false; p = 0; goto end }
}

active proctype Consumer() {
end:
  do
  :: atomic { cell[0] == READY -> cell[0] = ENDED }
#if PUTTERS > 1
  :: atomic { cell[1] == READY -> cell[1] = ENDED }
#endif
  od
}

/* Remembering.begin: what is known, and what is claimed, id by id. */
inline list() {
  atomic { FATE; latest = numbers; i = 0 }
  do
  :: i < PUTTERS ->
     atomic {
       FATE;
       known[i] = id[i] == KNOWN && number[i] >= start;
       claims[i] = id[i] == CLAIMED;
       i++
     }
  :: else -> break
  od;
  i = 0;
  do
  :: i < PUTTERS ->
     atomic {
       FATE;
       if
       :: claimed[i] && !claims[i] && id[i] == KNOWN -> known[i] = true
       :: else
       fi;
       i++
     }
  :: else -> break
  od
}

/* Of the position i: what the store lacks. */
inline gather_one() {
  if
  :: cell[i] == READY -> rows[i] = true; came[who[i]] = true; later[i] = false
  :: cell[i] == STAGED -> later[i] = true
  :: cell[i] == ENDED ->
     later[i] = false
#ifndef FAULT_ENDS_FORGOTTEN
     ; left_out = true
#endif
  :: else
  fi
}

active proctype Storekeeper() {
  byte i, turns, latest, end_, start;
  bool known[PUTTERS], claims[PUTTERS], claimed[PUTTERS], came[PUTTERS], rows[PUTTERS], later[PUTTERS];
  bool left_out, incomplete, fresh = true, work;
  atomic {
    run Putter(0);
#if PUTTERS > 1
    run Putter(1)
#endif
  }
next:
  if
  :: turns == TURNS -> goto out
  :: else
  fi;
  atomic { FATE; begun++; turns++ }
  atomic {
    FATE;
    work = fresh || tail > stored || incomplete;
    for (i : 0 .. PUTTERS - 1) {
      work = work || later[i] || claimed[i];
      came[i] = false; rows[i] = false
    }
    i = 0; left_out = false
  }
  if
  :: !work -> goto told
  :: else
  fi;
#ifndef FAULT_LIST_AFTER
  list();
#endif
  atomic { FATE; end_ = tail; i = 0 }
  do
  :: i < end_ ->
     atomic {
       FATE;
       if
       :: i >= stored || later[i] || (fresh && !has_message[i]) -> gather_one()
       :: else
       fi;
       i++
     }
  :: else -> break
  od;
#ifdef FAULT_LIST_AFTER
  list();
#endif
  i = 0;
  do
  :: i < PUTTERS ->
     atomic {
       FATE;
#ifndef FAULT_LIST_ONLY
       if
       :: came[i] && !known[i] && id[i] == KNOWN -> known[i] = true
       :: came[i] && !known[i] && id[i] == CLAIMED -> known[i] = true; claims[i] = true
       :: else
       fi;
#endif
       i++
     }
  :: else -> break
  od;
  /* the sync */
  atomic {
    FATE;
    for (i : 0 .. PUTTERS - 1) {
      has_message[i] = rows[i] || (has_message[i] && !(fresh && i >= stored));
#ifdef FAULT_DROP_CLAIMS
      has_id[i] = known[i] || (has_id[i] && !fresh)
#else
      has_id[i] = known[i] || (has_id[i] && (!fresh || claims[i]))
#endif
    }
    for (i : 0 .. PUTTERS - 1) {
      assert(i >= tail || !has_message[i] || has_id[who[i]]);
      assert(i >= tail || !has_id[who[i]] || has_message[i] || cell[i] == ENDED)
    }
    i = 0
  }
  atomic { FATE; stored = end_ }
  atomic {
    FATE;
    start = latest; incomplete = left_out; fresh = false;
    for (i : 0 .. PUTTERS - 1) {
#ifdef FAULT_CLAIMS_FORGOTTEN
      claimed[i] = false;
#else
      claimed[i] = claims[i];
#endif
      claims[i] = false; known[i] = false
    }
    i = 0
  }
told:
  atomic { FATE; done = begun; goto next }
dead:
  atomic {
    fresh = true; start = 0; incomplete = false; latest = 0; left_out = false; work = false; end_ = 0;
    for (i : 0 .. PUTTERS - 1) {
      claimed[i] = false; claims[i] = false; known[i] = false; later[i] = false; came[i] = false; rows[i] = false
    }
    i = 0;
    goto next
  }
halted:
out:
  skip
}
