/* SPDX-License-Identifier: Apache-2.0
 *
 * Paging: a leaf of a stored queue leaves the memory, and comes back, beside consumers that take, end and return its
 * messages.
 *
 * Mirrors: sb_paged.c sb_paged_leave, sb_paged_stay, sb_paged_arrive; sb_requeued.c sb_requeued_mark, search,
 *   clear_bit; sb_take.c take_next, take_returned_at; sb_release.c release; sb_ring.c sb_ring_redo; sb_changes.c
 *   visit_leaf; sb_hints.c sb_hints_resurface; sb_intent.c release_cell; sb_recover.c settle_slot.
 * Abstracted: pages above the parent of the leaf; the slots of messages, which sb_reference.h frees once whoever does
 *   it how often; the log in front of the database: a leaf leaves only after a commit.
 *
 * One leaf of CELLS messages. Each load makes another leaf for the same positions; a leaf that left is freed, and its words
 * may be another page's from then on. Takers remember a cursor and the last leaf.
 *
 * A taker stands for whoever takes the oldest message: a get, a consumer, an eviction, a purge. What expires leaves no memory
 * (I130 of sb_departure.h).
 *
 * Claims: each message is ended once, and delivered to nobody after that; the second delivery says that it is one; no
 *   taker sleeps for ever while a message is ready, in the memory or on the disk; a leaf does not leave while the store
 *   lacks something of it.
 *
 * quick: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=0
 * full: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1
 * quick: -DCELLS=2 -DTAKERS=1 -DOUTS=1 -DRETURNS=1 -DKILLS=2
 * full: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=2
 * full: -DCELLS=1 -DTAKERS=2 -DOUTS=2 -DRETURNS=0 -DKILLS=1
 * full: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=0 -DKILLS=2
 * full: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DKILLS=1
 * full: -DCELLS=2 -DTAKERS=1 -DOUTS=2 -DRETURNS=1 -DKILLS=2
 * bitstate: -DCELLS=2 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -w33 -Q4
 * bitstate: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DKILLS=2 -w33 -Q4
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DFAULT_NO_LOOK_AT_CHANGED
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DFAULT_NO_LOOK_AT_BITS
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DFAULT_PASS_FROZEN
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DFAULT_THAW_FIRST
 * fault: -DCELLS=2 -DTAKERS=2 -DOUTS=2 -DRETURNS=0 -DFAULT_NO_NUMBER
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DFAULT_MARK_BLINDLY
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DFAULT_LOADER_MARKS_NOT
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=1 -DFAULT_CLEAR_BLINDLY
 * fault: -DCELLS=1 -DTAKERS=2 -DOUTS=1 -DRETURNS=0 -DFAULT_UNFINISHED_LEAVES
 * fault: -DCELLS=2 -DTAKERS=1 -DOUTS=1 -DRETURNS=1 -DKILLS=1 -DFAULT_NEXT_KEEPER_TRUSTS_BITS
 */
#include "common.h"

#ifndef CELLS
#define CELLS 2
#endif
#define LEAVES (OUTS + TAKERS * OUTS + 1)
#define NONE 99
/* the link of the leaf: PAGE(leaf) is the number of the leaf; PAGED(number, marked) is
 * 50 + 2 * the number of the page-out + 1 if takers may have passed messages of it */
#define PAGED 50
/* states of cells; ACQUIRED + taker */
#define AVAILABLE 0
#define FROZEN 1
#define TOMBSTONE 2
#define STALE 3 /* the page serves other positions by now */
#define ACQUIRED 10
/* `paging` of a leaf */
#define IS_THERE 0
#define LEAVING 1
#define LEFT 2
#define STAYS 3
#define ALL ((1 << CELLS) - 1)

byte link;
byte paging[LEAVES], number[LEAVES], word[LEAVES * CELLS];
byte bits[LEAVES], changed[LEAVES], done_[LEAVES]; /* bit c: cell c */
bit side[LEAVES * CELLS];                              /* redelivered */
bit gone[LEAVES];                                      /* freed: its words may be another page's */
byte leaves = 1, outs;
bit parent_bit, flag; /* `requeued` of the parent, of the queue */
/* the disk */
byte live = ALL, sided;
/* of each taker: what its holdings list */
byte holds[TAKERS], loads[TAKERS];
bit wake[TAKERS], asleep[TAKERS];
bool died[TAKERS];
byte deaths, left_ = TAKERS, returns;
/* what only the claims know */
byte ends[CELLS], ended;
bit delivered[CELLS];
bool over; /* all messages have ended */

#define W(l, c) word[(l) * CELLS + (c)]
#define S(l, c) side[(l) * CELLS + (c)]

/* Reads the word of a cell. The leaf may be gone. */
inline look(l, c, w) {
  if
  :: w = W(l, c)
  :: gone[l] -> w = STALE
  fi
}

inline wake_all() {
  wake[0] = 1;
#if TAKERS > 1
  wake[1] = 1
#endif
}

/* sb_paged_stay: whoever meets a frozen cell ends the attempt. is_left: it was too late. */
inline stay(l, is_left) {
#ifdef FAULT_THAW_FIRST
  i = 0;
  do
  :: i < CELLS -> atomic { FATE; if :: W(l, i) == FROZEN -> W(l, i) = AVAILABLE :: else fi; i++ }
  :: else -> break
  od;
#endif
  atomic {
    FATE;
    if
    :: paging[l] == LEAVING -> paging[l] = STAYS
    :: else
    fi;
    is_left = (paging[l] == LEFT)
  }
  if
  :: is_left -> atomic { FATE; if :: link == l -> link = PAGED + 2 * number[l] :: else fi } /* helps */
  :: else ->
     i = 0;
     do
     :: i < CELLS -> atomic { FATE; if :: W(l, i) == FROZEN -> W(l, i) = AVAILABLE :: else fi; i++ }
     :: else -> break
     od
  fi;
  i = 0
}

/* sb_requeued_mark, by one that does not own the cell. `m`: cells */
inline mark(m) {
  do
  :: atomic { FATE; l1 = link }
     if
     :: l1 < PAGED ->
        atomic { FATE; bits[l1] = bits[l1] | m }
#ifndef FAULT_MARK_BLINDLY
        atomic {
          FATE;
          if
          :: paging[l1] == LEAVING -> paging[l1] = STAYS
          :: else
          fi;
          again = (paging[l1] == LEFT || gone[l1])
        }
#endif
     :: else ->
        atomic { FATE; again = (link != l1); if :: !again -> link = link | 1 :: else fi }
#ifdef FAULT_MARK_BLINDLY
        again = 0
#endif
     fi;
     if
     :: !again -> break
     :: else -> atomic { FATE; if :: link == l1 && l1 < PAGED -> link = PAGED + 2 * number[l1] :: else fi }; again = 0
     fi
  od;
  atomic { FATE; parent_bit = 1 }
  atomic { FATE; flag = 1; l1 = 0; again = 0 }
}

/* sb_paged_arrive */
inline load(n) {
  atomic { FATE; d_live = live; d_sided = sided }
  atomic {
    FATE;
    assert(leaves < LEAVES);
    mine = leaves; leaves++;
    loads[me] = mine;
    i = 0;
#ifndef FAULT_LOADER_MARKS_NOT
    bits[mine] = ((n & 1) -> ALL : 0);
#endif
    do
    :: i < CELLS ->
       if
       :: (d_live >> i) & 1 -> W(mine, i) = AVAILABLE; S(mine, i) = (d_sided >> i) & 1
       :: else -> W(mine, i) = TOMBSTONE; done_[mine] = done_[mine] | (1 << i)
       fi;
       i++
    :: else -> break
    od;
    i = 0
  }
  atomic {
    FATE;
#ifdef FAULT_NO_NUMBER
    if
    :: link >= PAGED -> link = mine; ok = 1
#else
    if
    :: link == n -> link = mine; ok = 1
#endif
    :: else -> ok = 0; loads[me] = NONE; gone[mine] = 1
    fi
  }
  if
  :: ok ->
     atomic { FATE; loads[me] = NONE; wake_all() }
  :: else
  fi;
  atomic { mine = 0; ok = 0; d_live = 0; d_sided = 0 }
}

/* Ends, or returns, the message that the taker holds: cell c of leaf l. */
inline use(l, c) {
  assert(!ends[c] && (!delivered[c] || S(l, c)));
  if
  :: returns < RETURNS ->
     returns++;
     delivered[c] = 1;
     atomic { FATE; S(l, c) = 1 }
     atomic { FATE; changed[l] = changed[l] | (1 << c) } /* I119 */
     atomic { FATE; bits[l] = bits[l] | (1 << c) }
     atomic { FATE; parent_bit = 1 }
     atomic { FATE; flag = 1 }
     atomic { FATE; W(l, c) = AVAILABLE }
     /* sb_requeued_stays_marked */
     atomic { FATE; missed = (gone[l] || paging[l] == LEFT || !((bits[l] >> c) & 1) || !parent_bit || !flag) }
     if
     :: missed ->
        atomic { FATE; look(l, c, w) }
        if
        :: w == AVAILABLE || w == FROZEN || w == STALE -> mark(1 << c)
        :: else
        fi
     :: else
     fi;
     missed = 0;
     atomic { FATE; holds[me] = NONE; wake_all() }
  :: true ->
     atomic { FATE; W(l, c) = TOMBSTONE; ends[c]++; ended++; over = (ended == CELLS) }
     atomic { FATE; changed[l] = changed[l] | (1 << c) }
     atomic { FATE; done_[l] = done_[l] | (1 << c) }
     atomic { FATE; holds[me] = NONE }
  fi
}

proctype Taker(byte me) {
  byte cursor, at, l, l1, w, n, i, mine, d_live, d_sided, m;
  bit ok, again, is_left, found, missed;
begin:
  do
  :: over -> goto ready
  :: else ->
     atomic { wake[me] = 0; found = 0; asleep[me] = 0 }
     /* what returned */
     if
     :: flag ->
        atomic { FATE; n = link }
        if
        :: n >= PAGED ->
           if
           :: parent_bit && (n & 1) -> load(n); goto begin
           :: parent_bit && !(n & 1) -> /* a stray bit */
              atomic { FATE; parent_bit = 0 }
              atomic { FATE; missed = (link != n) }
              if
              :: missed -> mark(ALL)
              :: else
              fi;
              missed = 0;
              goto begin
           :: else
           fi
        :: else ->
           l = n;
           atomic { FATE; m = bits[l] }
           at = 0;
           do
           :: at < cursor && !((m >> at) & 1) -> at++
           :: else -> break
           od;
           if
           :: at < cursor -> /* take_returned_at */
              atomic { look(l, at, w) }
              if
              :: w >= ACQUIRED -> skip
              :: else ->
                 atomic { FATE; holds[me] = at }
                 atomic { FATE; bits[l] = bits[l] & (ALL - (1 << at)) }
                 atomic { FATE; look(l, at, w) }
                 if
                 :: w == AVAILABLE ->
                    atomic {
                      FATE;
                      if
                      :: W(l, at) == AVAILABLE && !gone[l] -> W(l, at) = ACQUIRED + me; found = 1
                      :: else
                      fi
                    }
                    if
                    :: found -> use(l, at); goto begin
                    :: else -> mark(1 << at)
                    fi
                 :: w == FROZEN || w == STALE ->
                    if
                    :: w == FROZEN -> stay(l, is_left)
                    :: else
                    fi;
                    mark(1 << at);
                    holds[me] = NONE;
                    goto begin
                 :: w >= ACQUIRED -> mark(1 << at)
                 :: else
                 fi;
                 holds[me] = NONE
              fi
           :: m == 0 && parent_bit -> /* clear_bit of the parent */
              atomic { FATE; parent_bit = 0 }
              atomic { FATE; missed = (link != n) } /* the leaf left: a bit may have been set that leads to it */
#ifdef FAULT_CLEAR_BLINDLY
              missed = 0;
#endif
              if
              :: missed -> mark(ALL)
              :: else ->
                 atomic { FATE; missed = (bits[l] != 0) }
                 if
                 :: missed -> atomic { FATE; parent_bit = 1 } ; atomic { FATE; flag = 1 }
                 :: else
                 fi
              fi;
              missed = 0;
              goto begin
           :: m == 0 && !parent_bit ->
              atomic { FATE; flag = 0 }
              atomic { FATE; missed = parent_bit }
              if
              :: missed -> atomic { FATE; flag = 1 }
              :: else
              fi;
              missed = 0
           :: else
           fi
        fi
     :: else
     fi;
     /* take_next */
     atomic { at = 0; l = 0; w = 0; m = 0 }
     do
     :: cursor == CELLS -> break
     :: else ->
        atomic { FATE; n = link }
        if
        :: n >= PAGED -> load(n); goto begin
        :: else
        fi;
        l = n;
        atomic { FATE; look(l, cursor, w) }
        if
        :: w == AVAILABLE ->
           atomic { FATE; holds[me] = cursor }
           atomic {
             FATE;
             if
             :: W(l, cursor) == AVAILABLE && !gone[l] -> W(l, cursor) = ACQUIRED + me; found = 1
             :: else
             fi
           }
           if
           :: found -> cursor++; use(l, cursor - 1); goto begin
           :: else -> holds[me] = NONE
           fi
        :: w == FROZEN ->
#ifdef FAULT_PASS_FROZEN
           cursor++
#else
           stay(l, is_left)
#endif
        :: w == STALE
        :: else -> cursor++
        fi
     od;
     /* sb_queue_looks_ready, then sleeps */
     if
     :: flag && parent_bit && link >= PAGED && (link & 1) -> skip
     :: flag && bits[(link < PAGED -> link : 0)] != 0 && link < PAGED && parent_bit -> skip
     :: else -> asleep[me] = 1; (wake[me] || over)
     fi;
     asleep[me] = 0
  od;
dead:
halted:
  atomic { died[me] = true; deaths++; goto last }
ready:
last:
  atomic { left_--; cursor = 0; at = 0; l = 0; l1 = 0; w = 0; n = 0; i = 0; mine = 0; d_live = 0; d_sided = 0; m = 0; ok = 0; again = 0; is_left = 0; found = 0; missed = 0; asleep[me] = 0 }
}

/* One reaper after the other. Its own death is that of any process between two of its steps. */
active proctype Reaper() {
  byte me, l, l1, i, c;
  bit again;
  goto begin;
dead:
halted:
begin:
  atomic { me = 0; l = 0; l1 = 0; i = 0; c = 0; again = 0 }
  do
  :: deaths > 0 ->
     me = 0;
     do
     :: died[me] -> break
     :: else -> me++
     od;
     /* the leaf that it was loading */
     if
     :: loads[me] != NONE ->
        l = loads[me];
        if
        :: link == l -> mark(ALL); wake_all()
        :: link != l && paging[l] != LEFT -> gone[l] = 1
        :: else
        fi;
        atomic { FATE; loads[me] = NONE }
     :: else
     fi;
     /* the cell that it took, or was about to take */
     if
     :: holds[me] != NONE ->
        c = holds[me];
        atomic { FATE; l = link }
        if
        :: l >= PAGED -> mark(1 << c)
        :: l < PAGED && W(l, c) == TOMBSTONE ->
           atomic { FATE; changed[l] = changed[l] | (1 << c) }
           atomic { FATE; done_[l] = done_[l] | (1 << c) }
        :: l < PAGED && (W(l, c) == AVAILABLE || W(l, c) == FROZEN) -> mark(1 << c)
        :: l < PAGED && W(l, c) == ACQUIRED + me ->
           delivered[c] = 1;
           atomic { FATE; S(l, c) = 1 }
           atomic { FATE; changed[l] = changed[l] | (1 << c) }
           mark(1 << c);
           atomic { FATE; W(l, c) = AVAILABLE }
           if
           :: !(((bits[l] >> c) & 1) && parent_bit && flag) -> mark(1 << c)
           :: else
           fi
        :: else
        fi;
        atomic { FATE; holds[me] = NONE }
     :: else
     fi;
     mark(ALL); /* sb_hints_resurface: the dead taker may have cleared a bit, and not looked again */
     atomic { FATE; wake_all(); died[me] = false; deaths-- }
  :: deaths == 0 && left_ == 0 -> break
  od
}

active proctype Storekeeper() {
  byte l, c, b_live, b_sided;
  bit afresh = 0, fits, i;
  goto begin;
dead:
halted:
  atomic {
#ifndef FAULT_NEXT_KEEPER_TRUSTS_BITS
    afresh = 1;
#endif
    l = 0; c = 0; b_live = 0; b_sided = 0; fits = 0
  }
begin:
  do
  :: over || left_ == 0 -> break
  :: outs < OUTS || afresh ->
     /* a turn, which ends with a commit */
     atomic { FATE; l = link }
     if
     :: l >= PAGED -> atomic { afresh = 0; (link != l || over || left_ == 0) }; goto begin
     :: else
     fi;
     atomic { b_live = live; b_sided = sided; c = 0 }
     do
     :: c < CELLS ->
        if
        :: afresh || ((changed[l] >> c) & 1) ->
           atomic { FATE; changed[l] = changed[l] & (ALL - (1 << c)) }
           atomic {
             FATE;
             if
             :: W(l, c) == TOMBSTONE -> b_live = b_live & (ALL - (1 << c))
             :: W(l, c) != TOMBSTONE && S(l, c) -> b_sided = b_sided | (1 << c)
             :: else
             fi
           }
        :: else
        fi;
        c++
     :: else -> break
     od;
     atomic { FATE; live = b_live; sided = b_sided; b_live = 0; b_sided = 0; afresh = 0; c = 0 }
     /* sb_paged_leave: first a look without any change */
     fits = (paging[l] == IS_THERE || paging[l] == LEAVING) && live != 0;
#ifndef FAULT_NO_LOOK_AT_BITS
     fits = fits && bits[l] == 0;
#endif
     if
     :: fits && outs < OUTS ->
        atomic { FATE; if :: paging[l] == IS_THERE -> outs++; number[l] = outs; paging[l] = LEAVING :: else fi }
        do
        :: c < CELLS && fits ->
           atomic {
             FATE;
             if
             :: W(l, c) == AVAILABLE -> W(l, c) = FROZEN
             :: W(l, c) == FROZEN
#ifdef FAULT_UNFINISHED_LEAVES
             :: W(l, c) == TOMBSTONE
#else
             :: W(l, c) == TOMBSTONE && ((done_[l] >> c) & 1)
             :: W(l, c) == TOMBSTONE && !((done_[l] >> c) & 1) -> fits = 0
#endif
             :: W(l, c) >= ACQUIRED -> fits = 0
             fi
           }
           c++
        :: else -> break
        od;
#ifndef FAULT_NO_LOOK_AT_CHANGED
        atomic { FATE; fits = fits && changed[l] == 0 }
#endif
#ifndef FAULT_NO_LOOK_AT_BITS
        atomic { FATE; fits = fits && bits[l] == 0 }
#endif
        atomic {
          FATE;
          if
          :: fits && paging[l] == LEAVING ->
             paging[l] = LEFT;
             c = 0;
             do
             :: c < CELLS ->
                assert(W(l, c) != FROZEN || ((live >> c) & 1) && (S(l, c) == ((sided >> c) & 1)));
                assert(W(l, c) != TOMBSTONE || !((live >> c) & 1));
                assert(W(l, c) == FROZEN || W(l, c) == TOMBSTONE);
                c++
             :: else -> break
             od
          :: else -> fits = 0; if :: paging[l] == LEAVING -> paging[l] = STAYS :: else fi
          fi;
          c = 0
        }
        if
        :: fits || paging[l] == LEFT ->
           atomic { FATE; if :: link == l -> link = PAGED + 2 * number[l] :: else fi }
           atomic { FATE; gone[l] = 1 }
        :: else ->
           do
           :: c < CELLS -> atomic { FATE; if :: W(l, c) == FROZEN -> W(l, c) = AVAILABLE :: else fi; c++ }
           :: else -> break
           od
        fi
     :: else ->
        if
        :: outs < OUTS && !over && left_ > 0 && (paging[l] == STAYS) -> goto finished
        :: else
        fi
     fi;
     c = 0; fits = 0
  :: outs == OUTS && !afresh -> goto finished
  od;
finished:
  skip
}

init {
  byte n;
  atomic {
    do
    :: n < TAKERS -> holds[n] = NONE; loads[n] = NONE; n++
    :: else -> break
    od;
    n = 0;
    do
    :: n < TAKERS -> run Taker(n); n++
    :: else -> break
    od
  }
#if KILLS == 0
  (left_ == 0);
  assert(over)
#endif
}
