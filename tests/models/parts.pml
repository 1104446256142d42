/* SPDX-License-Identifier: Apache-2.0
 *
 * A body in parts: made, published, copied by one who holds nothing, dropped; and freed, beside a sweep.
 *
 * Mirrors: sb_parts.c sb_parts_begin, sb_parts_add, look, sb_parts_copy, sb_parts_free, is_gone, free_part, sweep_chunk;
 *   sb_scatter.c sb_scatter_alloc, gather; sb_slab.c take, sb_slab_drop, sb_slab_free; sb_recover.c settle_slot,
 *   reap_connection.
 * Abstracted: slot 0 is the head, the others are parts. Who puts owns the only reference afterwards, and drops it: what its
 *   death leaves of a cell is in cell.pml, here the reaper drops it in its place. Hints and chunks are left out. Of the row of
 *   a dead one's head the reaper frees nothing itself: its sweep frees all of it.
 *
 * Claims: a part of a head that lives is freed by nobody; who copies, and finds the head's generation unchanged, copied its
 *   body; at rest every slot is free, whoever was killed, unless who should have freed it was stopped.
 *
 * quick: -DPRODUCERS=2 -DFILLER
 * quick: -DPRODUCERS=2 -DKILLS=1
 * quick: -DPRODUCERS=1 -DKILLS=2
 * quick: -DPRODUCERS=1 -DKILLS=1 -DSTOPS=1
 * full: -DPRODUCERS=2 -DKILLS=2
 * fault: -DPRODUCERS=1 -DFILLER -DFAULT_PARTS_FIRST
 * fault: -DPRODUCERS=2 -DKILLS=1 -DFAULT_NAMES_LATER
 * fault: -DPRODUCERS=1 -DKILLS=1 -DFAULT_NO_SWEEP
 * fault: -DPRODUCERS=2 -DKILLS=1 -DFAULT_NO_GENERATION
 * fault: -DPRODUCERS=2 -DKILLS=1 -DFAULT_BROKEN_ROW
 */
#include "common.h"

#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#define SLOTS 3
#define NOBODY 15

#define FREE 0
#define ALLOC 1
#define PART 2
#define PUBLISHED 3

byte state[SLOTS], gen[SLOTS], owner[SLOTS]; /* headers, one word each */
byte names[SLOTS], next_[SLOTS], body[SLOTS]; /* of parts: the head's generation, the next one, whose bytes */
byte first;
byte holds_head[PRODUCERS], holds_part[PRODUCERS], holds_gen[PRODUCERS];
bool dead_[PRODUCERS], halted_[PRODUCERS], reaped[PRODUCERS];
bool reaper_halted;

#define LIVES(g) (gen[0] == g && (state[0] == ALLOC || state[0] == PUBLISHED))

inline to_free(i) {
  state[i] = FREE; owner[i] = NOBODY; gen[i] = gen[i] + 1
}

/* free_part, by a CAS of the header that was seen */
inline free_part(i, g) {
  atomic {
    FATE;
    if
    :: state[i] == PART && gen[i] == g ->
#ifndef FAULT_PARTS_FIRST
       assert(!LIVES(names[i]));
#endif
       to_free(i)
    :: else
    fi
  }
}

/* sb_parts_sweep */
inline sweep() {
  at = 1;
  do
  :: at < SLOTS ->
     atomic { FATE; s = state[at]; g = gen[at] }
     if
     :: s == PART ->
        atomic { FATE; n = names[at] }
        atomic { FATE; seen = (state[at] == PART && gen[at] == g) }
#ifdef FAULT_NO_GENERATION
        atomic { FATE; seen = seen && state[0] == FREE }
#else
        atomic { FATE; seen = seen && !LIVES(n) }
#endif
        if
        :: seen -> free_part(at, g)
        :: else
        fi
     :: else
     fi;
     at++
  :: else -> break
  od
}

/* sb_parts_free: the row of a head of generation mine */
inline free_row() {
  broken = false;
  do
  :: row == 0 || broken -> break
  :: else ->
     atomic { FATE; s = state[row]; g = gen[row] }
     atomic { FATE; n = names[row]; to = next_[row] }
     atomic { FATE; seen = (s == PART && state[row] == PART && gen[row] == g && n == mine) }
     if
     :: seen -> free_part(row, g); row = to
     :: else -> broken = true
     fi
  od;
#ifndef FAULT_BROKEN_ROW
  if
  :: broken -> sweep()
  :: else
  fi
#endif
}

proctype Producer(byte me) {
  byte mine, i, at, row, to, s, g, n;
  bool seen, broken, taken;
  atomic { FATE; mine = gen[0]; holds_head[me] = mine }
  atomic {
    FATE;
    if
    :: state[0] == FREE && gen[0] == mine -> state[0] = ALLOC; owner[0] = me; first = 0
    :: else -> goto give
    fi
  }
  i = 1;
  do
  :: i < SLOTS ->
     atomic { FATE; g = gen[i]; holds_part[me] = i; holds_gen[me] = g }
     atomic {
       FATE;
       taken = (state[i] == FREE && gen[i] == g);
       if
       :: taken -> state[i] = ALLOC; owner[i] = me
       :: else
       fi
     }
     if
     :: taken ->
#ifdef FAULT_NAMES_LATER
        atomic { FATE; state[i] = PART; owner[i] = NOBODY }
        atomic { FATE; names[i] = mine; next_[i] = first; body[i] = mine }
#else
        atomic { FATE; names[i] = mine; next_[i] = first; body[i] = mine }
        atomic { FATE; state[i] = PART; owner[i] = NOBODY }
#endif
        atomic { FATE; first = i }
     :: else
     fi;
     i++
  :: else -> break
  od;
  atomic { FATE; assert(state[0] == ALLOC && owner[0] == me); state[0] = PUBLISHED }
  atomic { FATE; row = first }
#ifdef FAULT_PARTS_FIRST
  free_row();
  atomic { FATE; to_free(0) }
#else
  atomic { FATE; assert(state[0] == PUBLISHED && gen[0] == mine); to_free(0) }
  free_row();
#endif
give:
  atomic { FATE; holds_head[me] = NOBODY; holds_part[me] = 0 }
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { mine = 0; i = 0; at = 0; row = 0; to = 0; s = 0; g = 0; n = 0; seen = 0; broken = 0; taken = 0 }
}

/* sb_parts_copy of one who browsed: its death leaves nothing, so it is not killed */
proctype Reader() {
  byte mine, at, g, n, to, b;
  bool good, right;
  right = true;
  atomic { good = (state[0] == PUBLISHED); mine = gen[0] }
  at = first;
  do
  :: good && at != 0 ->
     atomic { good = (state[at] == PART); g = gen[at] }
     atomic { n = names[at]; to = next_[at] }
     atomic { good = good && state[at] == PART && gen[at] == g && n == mine }
     if
     :: good -> b = body[at]; right = right && (b == mine); at = to
     :: else
     fi
  :: else -> break
  od;
  assert(!good || gen[0] != mine || right);
  atomic { mine = 0; at = 0; g = 0; n = 0; to = 0; b = 0; good = 0; right = 0 }
}

/* Somebody's short body: in a slot that was a part */
#ifdef FILLER
proctype Filler() {
  bool taken;
  atomic {
    taken = (state[1] == FREE);
    if
    :: taken -> state[1] = ALLOC
    :: else
    fi
  }
  if
  :: taken -> body[1] = NOBODY; atomic { to_free(1) }
  :: else
  fi;
  taken = false
}
#endif

#if KILLS > 0
proctype Reaper() {
  byte d, at, s, g, n, p;
  bool seen;
begin_:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
#if PRODUCERS > 1
    :: dead_[1] && !reaped[1] -> d = 1
#endif
    fi
  }
  p = holds_part[d];
  atomic {
    FATE;
    if
    :: p != 0 && state[p] == ALLOC && owner[p] == d && gen[p] == holds_gen[d] -> to_free(p)
    :: else
    fi
  }
  atomic {
    FATE;
    if
    :: holds_head[d] == gen[0] && owner[0] == d && state[0] != FREE -> to_free(0)
    :: else
    fi
  }
#ifndef FAULT_NO_SWEEP
  sweep();
#endif
  atomic { FATE; reaped[d] = true; holds_head[d] = NOBODY; holds_part[d] = 0 }
  atomic { d = 0; at = 0; s = 0; g = 0; n = 0; p = 0; seen = 0 }
  goto begin_;
dead: /* the next one begins anew */
  atomic { d = 0; at = 0; s = 0; g = 0; n = 0; p = 0; seen = 0 }
  goto begin_;
halted:
  atomic { reaper_halted = true; d = 0; at = 0; s = 0; g = 0; n = 0; p = 0; seen = 0 }
}
#endif

proctype Judge() {
  byte i;
  bool excuse;
  timeout;
  atomic {
    do
    :: i < PRODUCERS ->
       assert(!dead_[i] || reaped[i] || reaper_halted);
       excuse = excuse || halted_[i] || (dead_[i] && reaper_halted);
       i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLOTS -> assert(excuse || state[i] == FREE); i++
    :: else -> break
    od
  }
}

init {
  byte i;
  atomic {
    do
    :: i < SLOTS -> owner[i] = NOBODY; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < PRODUCERS -> holds_head[i] = NOBODY; run Producer(i); i++
    :: else -> break
    od;
    i = 0;
    run Reader();
#ifdef FILLER
    run Filler();
#endif
#if KILLS > 0
    run Reaper();
#endif
    run Judge()
  }
}
