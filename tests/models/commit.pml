/* SPDX-License-Identifier: Apache-2.0
 *
 * A commit: messages that go to several queues, and held messages that are acknowledged with them, all or nothing.
 *
 * Mirrors: sb_transaction.c sb_transaction_stage, sb_transaction_mark, sb_transaction_decide, flip,
 *   sb_transaction_carry_out, sb_transaction_undo, sb_transaction_roll_forward, sb_transaction_roll_back,
 *   sb_transaction_free_body; sb_intent.c resolve_commit, resolve_settle, sb_intent_release_cell; sb_take.c take_next,
 *   take_returned, sb_take_pass_staged, sb_take_passed_some; sb_settle.c finish; sb_slab.c sb_slab_drop, sb_slab_free;
 *   sb_limits.c admit; sb_recover.c recover_commit, reap_connection.
 * Abstracted: rings (a cell is found by its place, a bit leads to it, see pages.pml), notification (notify.pml), what
 *   consumers may leave when they are killed (cell.pml), bytes, timers, closing.
 *
 * Queue 0 and 1 are the targets of each message; it has one slot, and the reference of its number in each. Cell 0 of queue
 * 0 holds an older message, which the committer has in its hands and acknowledges in its first commit. One consumer for
 * each queue, and in queue 0 with LIMIT another producer: at most one message is ready there.
 *
 * Claims: a message becomes ready in all its queues or in none, and the older one is gone exactly if it did; nothing
 *   of a commit is ready before it was decided; a consumer finds its slot published, with its reference and its body;
 *   nothing is hidden from a consumer that passed a staged cell, and what was decided earlier comes earlier; after reaping nothing is staged, held or allocated by
 *   the dead; counters are exact; with LIMIT no more are ready than the limit allows.
 *
 * quick: -DCOMMITS=1 -DKILLS=2
 * quick: -DCOMMITS=2
 * quick: -DCOMMITS=1 -DSTOPS=1 -DLIMIT
 * full: -DCOMMITS=1 -DKILLS=1 -DSTOPS=1 -DLIMIT
 * full: -DCOMMITS=2 -DKILLS=1
 * full: -DCOMMITS=2 -DKILLS=2
 * full: -DCOMMITS=2 -DKILLS=3 -DSLOTS=2
 * full: -DCOMMITS=2 -DKILLS=1 -DSTOPS=1
 * full: -DCOMMITS=2 -DKILLS=1 -DSTOPS=1 -DLIMIT
 * fault: -DCOMMITS=1 -DKILLS=1 -DFAULT_FLIP_FIRST
 * fault: -DCOMMITS=1 -DFAULT_PASS_SILENTLY
 * fault: -DCOMMITS=2 -DFAULT_NO_SECOND_LOOK
 * fault: -DCOMMITS=1 -DKILLS=1 -DFAULT_NO_INTENT
 * fault: -DCOMMITS=1 -DKILLS=1 -DFAULT_UNMARKED
 * fault: -DCOMMITS=1 -DKILLS=1 -DFAULT_CELLS_FIRST
 * fault: -DCOMMITS=1 -DKILLS=1 -DFAULT_SLOT_FIRST
 * fault: -DCOMMITS=1 -DKILLS=1 -DFAULT_CLEAR_FIRST
 * fault: -DCOMMITS=1 -DKILLS=2 -DFAULT_TAKE_OVER
 * fault: -DCOMMITS=1 -DLIMIT -DFAULT_STAGED_IS_TAKEN
 */
#include "common.h"

#ifndef COMMITS
#define COMMITS 1
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifdef LIMIT
#define CELLS (COMMITS + 2)
#else
#define CELLS (COMMITS + 1)
#endif
#define C(q, p) ((q) * CELLS + (p))
#define NOWHERE 15
#define OTHERS 9 /* the message of the other producer, which has no slot here */

/* slot */
#define FREE 0
#define ALLOC 1
#define PUBLISHED 3
/* cell; ACQUIRED and STAGED are the committer's, TAKEN is a consumer's */
#define EMPTY 0
#define AVAILABLE 2
#define ACQUIRED 4
#define STAGED 6
#define TOMBSTONE 7
#define TAKEN 8
/* holdings and intents */
#define NONE 0
#define SLOT 1
#define PUBLICATION 2
#define CELL 3
#define SETTLING 4
#define COMMIT 5
#define SETTLE 6

byte h_state[SLOTS], h_refs[SLOTS], h_gen[SLOTS], body[SLOTS];
byte cell[2 * CELLS], cell_slot[2 * CELLS], cell_body[2 * CELLS];
bool bit_[2 * CELLS]; /* leads to it */

/* the committer's connection */
byte word;                                /* the commit word */
byte hold_kind, hold_slot, hold_gen;      /* of the body */
byte staged_at[2];                        /* for each queue, NOWHERE: none */
byte old_kind;                            /* of the older message: CELL, SETTLING, NONE */
byte i_kind[2], i_at[2], i_slot[2], i_gen[2], i_before[2];
byte added[2], ended[2];                  /* of its ledgers */
bool dead_, halted_, reaped, reaper_halted, committer_gone;

/* what only the claims know */
bool decided[COMMITS], tried[COMMITS];
byte ready_[2 * COMMITS], taken_by[2], gone_[2]; /* how often it became ready; by consumers: taken, finished */
bool old_acked, old_released;
byte newest[2]; /* the last one that came, plus one */
#define OLD (COMMITS)

#ifdef LIMIT
short admitted, taken;
/* without the older message: what comes back may be too many */
#define READY0 ((cell[1] == AVAILABLE) + (cell[2] == AVAILABLE) + (CELLS > 3 && cell[3 % CELLS] == AVAILABLE))
byte others; /* how many the other producer put */
#define LOWER(q) if :: q == 0 -> atomic { FATE; taken++ } :: else fi
#else
#define LOWER(q) skip
#endif

/* ---- the committer ---- */

inline flip(q) { /* one staged cell; the ledger is the committer's, whoever does it */
  atomic { FATE; p = staged_at[q]; got = p != NOWHERE && cell[C(q, p)] == STAGED }
  if
  :: got ->
     atomic {
       FATE;
       s = cell_slot[C(q, p)];
       i_at[q] = p; i_slot[q] = s; i_before[q] = added[q];
#ifndef FAULT_NO_INTENT
       i_kind[q] = COMMIT
#endif
     }
     atomic {
       FATE;
       assert(cell[C(q, p)] == STAGED && h_state[s] == PUBLISHED && body[s] == cell_body[C(q, p)]);
       cell[C(q, p)] = AVAILABLE;
       ready_[q * COMMITS + cell_body[C(q, p)]]++
#ifdef LIMIT
#ifdef FAULT_STAGED_IS_TAKEN
       ; if :: q == 0 -> taken-- :: else fi
#endif
       ; assert(READY0 <= 1)
#endif
     }
     atomic { FATE; added[q] = i_before[q] + 1 }
     atomic { FATE; i_kind[q] = NONE }
  :: else
  fi
}

inline settle_old() {
  atomic { FATE; got = cell[0] == ACQUIRED && h_state[0] == PUBLISHED }
  if
  :: got ->
     atomic { FATE; i_at[0] = 0; i_slot[0] = 0; i_gen[0] = h_gen[0]; i_before[0] = ended[0]; i_kind[0] = SETTLE }
     atomic { FATE; assert(!old_acked); h_state[0] = FREE; h_refs[0] = 0; h_gen[0]++; old_acked = true }
     atomic { FATE; if :: cell[0] == ACQUIRED -> cell[0] = TOMBSTONE :: else fi }
     atomic { FATE; ended[0] = i_before[0] + 1 }
     atomic { FATE; i_kind[0] = NONE }
  :: else
  fi
}

/* Cells first: a slot is free when nothing names it. */
inline unstage(q) {
  atomic { FATE; p = staged_at[q]; got = p != NOWHERE && cell[C(q, p)] == STAGED }
  if
  :: got ->
     atomic { FATE; if :: cell[C(q, p)] == STAGED -> cell[C(q, p)] = TOMBSTONE :: else fi }
#ifndef FAULT_STAGED_IS_TAKEN
     LOWER(q)
#endif
  :: else
  fi
}
inline free_body() {
  atomic {
    FATE;
    if
    :: h_gen[hold_slot] == hold_gen && (h_state[hold_slot] == ALLOC || h_state[hold_slot] == PUBLISHED) ->
       assert(cell[C(0, 1)] != STAGED || cell_slot[C(0, 1)] != hold_slot);
       assert(cell[C(1, 1)] != STAGED || cell_slot[C(1, 1)] != hold_slot);
       h_state[hold_slot] = FREE; h_refs[hold_slot] = 0; h_gen[hold_slot]++
    :: else
    fi
  }
}

proctype Committer() {
  byte s, p, q, m;
  bool got;
again:
  atomic {
    s = 0; p = 0; q = 0; got = false;
    if
    :: m < COMMITS -> tried[m] = true
    :: else -> goto out
    fi
  }
end_full:
  do
  :: atomic {
       if
       :: h_state[1] == FREE -> s = 1
#if SLOTS > 2
       :: h_state[2] == FREE -> s = 2
#endif
       fi;
       FATE;
       hold_kind = SLOT; hold_slot = s; hold_gen = h_gen[s]
     }
     atomic {
       FATE;
       if
       :: h_state[s] == FREE && h_gen[s] == hold_gen -> h_state[s] = ALLOC; body[s] = m; break
       :: else
       fi
     }
  od;
  atomic { FATE; hold_kind = PUBLICATION }
  q = 0;
  do
  :: q < 2 ->
#ifdef LIMIT
     if
     :: q == 0 ->
        atomic {
          FATE;
          if
          :: admitted - taken <= 0 -> admitted++
          :: else -> goto refused
          fi
        }
#ifdef FAULT_STAGED_IS_TAKEN /* its place is given to another one before the flip */
        atomic { FATE; taken++ }
#endif
     :: else
     fi;
#endif
     p = 1;
     do
     :: atomic { cell[C(q, p)] == EMPTY -> FATE; staged_at[q] = p }
        atomic {
          FATE;
          if
          :: cell[C(q, p)] == EMPTY ->
             cell[C(q, p)] = STAGED; cell_slot[C(q, p)] = s; cell_body[C(q, p)] = m;
             break
          :: else
          fi
        }
     :: atomic { cell[C(q, p)] != EMPTY -> p++ }
     od;
     q++
  :: q == 1 -> goto refused /* the second queue is full, or there is no memory */
  :: else -> break
  od;
  if
  :: m == 0 && cell[0] == ACQUIRED ->
#ifndef FAULT_UNMARKED
     atomic { FATE; old_kind = SETTLING }
#else
     skip
#endif
  :: else
  fi;
  atomic { FATE; h_state[s] = PUBLISHED; h_refs[s] = 3 }
#ifdef FAULT_FLIP_FIRST
  flip(0);
#endif
  atomic { FATE; word = 1; decided[m] = true } /* the linearisation point */
  flip(0);
  flip(1);
  if
  :: m == 0 -> settle_old()
  :: else
  fi;
#ifdef FAULT_CLEAR_FIRST
  atomic { FATE; word = 0 }
#endif
  atomic { FATE; staged_at[0] = NOWHERE }
  atomic { FATE; staged_at[1] = NOWHERE }
  atomic { FATE; if :: m == 0 -> old_kind = NONE :: else fi }
  atomic { FATE; hold_kind = NONE }
  atomic { FATE; word = 0 }
  atomic { m++; goto again }
refused:
  unstage(0);
  unstage(1);
  atomic { FATE; staged_at[0] = NOWHERE }
  atomic { FATE; staged_at[1] = NOWHERE }
  free_body();
  atomic { FATE; hold_kind = NONE }
  atomic { m++; goto again }
dead:
  atomic { dead_ = true; goto out }
halted:
  halted_ = true;
out:
  atomic { committer_gone = true; s = 0; p = 0; q = 0; m = 0; got = false }
}

/* ---- consumers: take_returned, take_next, finish ---- */

/* The lowest below that one to which a bit leads. Those that were staged when we passed them are looked at again. */
inline take_marked(end) {
  i = 0; known = NOWHERE; passed = false;
  do
  :: i < end ->
     atomic {
       if
       :: bit_[C(q, i)] && cell[C(q, i)] == AVAILABLE ->
          if
          :: passed && known != i -> known = i; passed = false; i = 0
          :: else -> p = i; break
          fi
       :: else ->
          passed = passed || (bit_[C(q, i)] && cell[C(q, i)] == STAGED);
          i++
       fi
     }
  :: else -> break
  od;
  atomic { i = 0; known = NOWHERE; passed = false }
}

proctype Consumer(byte q) {
  byte cursor, p, i, known;
  bool got, passed;
again:
  atomic { p = NOWHERE; got = false }
  take_marked(cursor);
  if
  :: p != NOWHERE ->
     bit_[C(q, p)] = false;
     goto take
  :: else
  fi;
  /* at the cursor */
  if
  :: atomic { cursor < CELLS && cell[C(q, cursor)] == AVAILABLE -> p = NOWHERE }
#ifndef FAULT_NO_SECOND_LOOK /* take_next: what is before it may have been decided before it was put */
     take_marked(cursor);
#endif
     atomic { if :: p == NOWHERE -> p = cursor; cursor++ :: else -> bit_[C(q, p)] = false fi }
     goto take
  :: atomic { cursor < CELLS && cell[C(q, cursor)] == STAGED }
#ifdef FAULT_PASS_SILENTLY
     cursor++;
#else
     bit_[C(q, cursor)] = true;
     cursor++;
#endif
     goto again
  :: atomic { cursor < CELLS && (cell[C(q, cursor)] == TOMBSTONE || cell[C(q, cursor)] == TAKEN || cell[C(q, cursor)] == ACQUIRED) -> cursor++; goto again }
  :: atomic { else -> p = 0 }
  fi;
end_wait:
  atomic {
    if
    :: cursor < CELLS && cell[C(q, cursor)] != EMPTY
    :: bit_[C(q, 0)] && cursor > 0 && cell[C(q, 0)] == AVAILABLE
    :: bit_[C(q, 1)] && cursor > 1 && cell[C(q, 1)] == AVAILABLE
#if COMMITS > 1 || defined(LIMIT)
    :: bit_[C(q, 2)] && cursor > 2 && cell[C(q, 2)] == AVAILABLE
#endif
#if COMMITS > 1 && defined(LIMIT)
    :: bit_[C(q, 3)] && cursor > 3 && cell[C(q, 3)] == AVAILABLE
#endif
    fi;
    goto again
  }
take:
  atomic {
    if
    :: cell[C(q, p)] == AVAILABLE ->
       cell[C(q, p)] = TAKEN; got = true; taken_by[q]++;
       assert(cell_body[C(q, p)] >= OLD || cell_slot[C(q, p)] == OTHERS || cell_body[C(q, p)] + 1 > newest[q]); /* in order */
       if
       :: cell_body[C(q, p)] < OLD && cell_slot[C(q, p)] != OTHERS -> newest[q] = cell_body[C(q, p)] + 1
       :: else
       fi
    :: else
    fi
  }
  if
  :: got && cell_slot[C(q, p)] != OTHERS ->
#ifdef LIMIT
     if :: q == 0 && p > 0 -> taken++ :: else fi;
#endif
     atomic {
       assert(h_state[cell_slot[C(q, p)]] == PUBLISHED && (h_refs[cell_slot[C(q, p)]] & (1 << q)) && body[cell_slot[C(q, p)]] == cell_body[C(q, p)]);
       assert(cell_body[C(q, p)] == OLD || decided[cell_body[C(q, p)]])
     }
     atomic { /* sb_slab_drop: the last reference frees */
       h_refs[cell_slot[C(q, p)]] = h_refs[cell_slot[C(q, p)]] & (3 - (1 << q));
       if
       :: h_refs[cell_slot[C(q, p)]] == 0 -> h_state[cell_slot[C(q, p)]] = FREE; h_gen[cell_slot[C(q, p)]]++
       :: else
       fi
     }
     atomic { cell[C(q, p)] = TOMBSTONE; gone_[q]++ }
  :: got && cell_slot[C(q, p)] == OTHERS ->
#ifdef LIMIT
     taken++;
#endif
     cell[C(q, p)] = TOMBSTONE
  :: else
  fi;
  goto again
}

#ifdef LIMIT
proctype Other() { /* puts one message into queue 0 when there is room */
  byte p;
end_room:
  atomic { admitted - taken <= 0 -> admitted++ }
  p = 1;
  do
  :: atomic { cell[p] == EMPTY -> cell[p] = AVAILABLE; cell_slot[p] = OTHERS; others++; assert(READY0 <= 1); break }
  :: atomic { cell[p] != EMPTY -> p++ }
  od;
  p = 0
}
#endif

/* ---- the reaper ---- */

#if KILLS > 0
inline judge(q) {
  if
  :: i_kind[q] == COMMIT ->
     atomic { FATE; got = cell[C(q, i_at[q])] != STAGED }
     if
     :: got -> atomic { FATE; if :: added[q] == i_before[q] -> added[q] = i_before[q] + 1 :: else fi }
     :: else
     fi;
     atomic { FATE; i_kind[q] = NONE }
  :: i_kind[q] == SETTLE ->
     atomic { FATE; got = h_gen[i_slot[q]] != i_gen[q] || h_refs[i_slot[q]] == 0 }
     if
     :: got ->
        atomic { FATE; if :: ended[q] == i_before[q] -> ended[q] = i_before[q] + 1 :: else fi }
        atomic { FATE; if :: cell[0] == ACQUIRED -> cell[0] = TOMBSTONE :: else fi }
     :: else
     fi;
     atomic { FATE; i_kind[q] = NONE }
  :: else
  fi
}

inline release_old() { /* sb_intent_release_cell */
  bit_[0] = true;
  atomic { FATE; if :: cell[0] == ACQUIRED -> cell[0] = AVAILABLE; old_released = true :: else fi }
}

proctype Reaper() {
  byte s, p;
  bool got;
begin:
end_begin:
  atomic { dead_ && !reaped; s = 0; p = 0; got = false }
  judge(0);
  judge(1);
#ifdef FAULT_CELLS_FIRST /* marked messages are released before anybody looks whether they are acknowledged */
  if :: old_kind == SETTLING -> release_old() :: else fi;
#endif
  atomic { FATE; got = word == 1 }
  if
  :: got ->
#ifdef FAULT_TAKE_OVER /* the counter of whoever does it, without the intent of the dead one */
     p = staged_at[0];
     if
     :: p != NOWHERE && cell[C(0, p)] == STAGED ->
        atomic { FATE; cell[C(0, p)] = AVAILABLE; ready_[cell_body[C(0, p)]]++ }
        atomic { FATE; added[0]++ }
     :: else
     fi;
#endif
     flip(0);
     flip(1);
     if
     :: old_kind == SETTLING -> settle_old()
     :: else
     fi
  :: else ->
#ifdef FAULT_SLOT_FIRST
     if :: hold_kind == PUBLICATION -> free_body() :: else fi;
#endif
     unstage(0);
     unstage(1);
     if
     :: hold_kind == PUBLICATION -> free_body()
     :: else
     fi;
     if
     :: old_kind == SETTLING -> release_old()
     :: else
     fi
  fi;
  /* settle_slot, visit_cells */
  if
  :: hold_kind == SLOT ->
     atomic {
       FATE;
       if
       :: h_state[hold_slot] == ALLOC && h_gen[hold_slot] == hold_gen -> h_state[hold_slot] = FREE; h_gen[hold_slot]++
       :: else
       fi
     }
  :: else
  fi;
  if
  :: old_kind == CELL -> release_old()
  :: else
  fi;
  atomic { FATE; reaped = true }
  atomic { s = 0; p = 0; got = false; goto begin }
dead:
  atomic { s = 0; p = 0; got = false; goto begin }
halted:
  atomic { reaper_halted = true; s = 0; p = 0; got = false }
}
#endif

/* ---- the end ---- */

proctype Judge() {
  byte i, n0, n1;
  bool excuse;
  timeout;
  atomic {
    assert(!dead_ || reaped || reaper_halted);
    excuse = halted_ || (dead_ && reaper_halted);
    i = 0;
    do
    :: i < COMMITS ->
       assert(ready_[i] <= 1 && ready_[COMMITS + i] <= 1);
       assert(decided[i] || ready_[i] + ready_[COMMITS + i] == 0);
       assert(excuse || ready_[i] == decided[i]);
       assert(excuse || ready_[COMMITS + i] == decided[i]);
       n0 = n0 + ready_[i]; n1 = n1 + ready_[COMMITS + i];
       i++
    :: else -> break
    od;
    assert(excuse || old_acked == decided[0]);
    assert(!(old_acked && old_released));
    assert(excuse || (added[0] == n0 && added[1] == n1 && ended[0] == old_acked));
    assert(excuse || !dead_ || old_acked || old_released);
    i = 0;
    do /* consumers took all that is ready; nothing is staged or held */
    :: i < 2 * CELLS -> assert(cell[i] != AVAILABLE); assert(excuse || cell[i] != STAGED); i++
    :: else -> break
    od;
    assert(excuse || cell[0] == TOMBSTONE || (!dead_ && !decided[0]));
    i = 1;
    do
    :: i < SLOTS -> assert(excuse || h_state[i] == FREE); i++
    :: else -> break
    od
#ifdef LIMIT
    ; assert(excuse || kills > 0 || admitted == taken)
#endif
  }
}

init {
  atomic {
    staged_at[0] = NOWHERE; staged_at[1] = NOWHERE;
    h_state[0] = PUBLISHED; h_refs[0] = 1; body[0] = OLD;
    cell[0] = ACQUIRED; cell_body[0] = OLD; old_kind = CELL;
    cell[C(1, 0)] = TOMBSTONE;
    run Committer();
    run Consumer(0);
    run Consumer(1);
#ifdef LIMIT
    run Other();
#endif
#if KILLS > 0
    run Reaper();
#endif
    run Judge()
  }
}
