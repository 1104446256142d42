/* SPDX-License-Identifier: Apache-2.0
 *
 * A slot that is read in place by those who know it, and its generation, but hold no cell of it.
 *
 * Mirrors: sb_reader.c is_there, sb_reader_begin, sb_reader_end; sb_slab.c take, sb_slab_drop, sb_slab_free, sb_slab_add;
 *   sb_settle.c finish; sb_view.c sb_view_recover (of a reader).
 * Abstracted: the cell: its holder settles it once, and may add a reference before (a view, or the second one of a move),
 *   which he drops later; then he fills the slot anew, if it is free. What his own death leaves is in cell.pml.
 *
 * Claims: who has begun to read finds the body of his generation, until he ends; a slot is freed when nobody keeps it,
 *   by one alone; at rest no slot names a reader, and none is without references but FREE, whoever of the readers was killed.
 *
 * quick: -DREADERS=2
 * quick: -DREADERS=2 -DKILLS=2
 * quick: -DREADERS=2 -DKILLS=1 -DSTOPS=1
 * full: -DREADERS=3 -DKILLS=2
 * fault: -DREADERS=1 -DFAULT_STORE
 * fault: -DREADERS=1 -DFAULT_FREE_READ
 * fault: -DREADERS=1 -DFAULT_NO_GENERATION
 * fault: -DREADERS=2 -DKILLS=1 -DFAULT_ANY_READER
 * fault: -DREADERS=1 -DKILLS=1 -DFAULT_LEAVE
 */
#include "common.h"

#ifndef READERS
#define READERS 2
#endif
#define NOBODY 15

#define FREE 0
#define ALLOC 1
#define READ 2
#define PUBLISHED 3

byte state = PUBLISHED, refs = 1, reader = NOBODY, gen = 0; /* the header, one word */
byte body = 1;
byte holds[READERS];      /* a generation, NOBODY: no holding */
bool reading[READERS];    /* for the claims: between begin and end */
bool dead_[READERS], halted_[READERS], reaped[READERS];
bool reaper_halted;

#define SAME(s, r, n, g) (state == s && refs == r && reader == n && gen == g)
#define BODY_OF(g) (g + 1)

/* sb_slab_free: by a CAS of what was seen */
inline to_free() {
  assert(refs == 0 || refs == 1 || refs == 2);
  state = FREE; refs = 0; reader = NOBODY; gen++
}

/* sb_slab_drop of one bit */
inline drop(which) {
  done = false;
  do
  :: done -> break
  :: else ->
  atomic { s = state; r = refs; n = reader; g = gen }
  assert((r & which) != 0 && g == mine);
#ifdef FAULT_FREE_READ
  if
  :: r == which ->
#else
  if
  :: r == which && s == PUBLISHED ->
#endif
     atomic {
#ifdef FAULT_STORE /* the plain store of short bodies, which a reader may have gone before */
       to_free(); done = true
#else
       if
       :: SAME(s, r, n, g) -> to_free(); done = true
       :: else
       fi
#endif
     }
  :: else ->
     atomic {
       if
       :: SAME(s, r, n, g) -> refs = r - which; done = true
       :: else
       fi
     }
  fi
  od
}

proctype Holder() {
  byte s, r, n, g, mine;
  bool added, done;
  mine = 0;
  do
  :: !added -> /* sb_slab_add: whatever the state, the bit is one of the lower twelve */
more:
     atomic { s = state; r = refs; n = reader; g = gen }
     atomic {
       if
       :: SAME(s, r, n, g) -> refs = r + 2; added = true
       :: else -> goto more
       fi
     }
  :: break
  od;
  if
  :: added -> drop(2)
  :: else
  fi;
  drop(1);
  /* somebody fills it anew, once it is free */
  if
  :: atomic { state == FREE -> state = ALLOC }
     body = BODY_OF(gen);
     atomic { state = PUBLISHED; refs = 1 }
  :: true
  fi
}

proctype Reader(byte me) {
  byte s, r, n, g;
  atomic { FATE; holds[me] = 0 }
begin_:
  atomic { FATE; s = state; r = refs; n = reader; g = gen }
#ifdef FAULT_NO_GENERATION
  if
  :: s == PUBLISHED ->
#else
  if
  :: s == PUBLISHED && g == 0 ->
#endif
     atomic {
       FATE;
       if
       :: SAME(s, r, n, g) -> state = READ; reader = me; reading[me] = true
       :: else -> goto begin_
       fi
     }
  :: else -> goto give /* gone, or somebody reads it: it is copied */
  fi;
  atomic { FATE; assert(body == BODY_OF(0) && state == READ && reader == me) }
  atomic { FATE; assert(body == BODY_OF(0)) }
end_:
  atomic { FATE; s = state; r = refs; n = reader; g = gen }
  assert(s == READ && n == me && g == 0);
  atomic {
    FATE;
    if
    :: SAME(s, r, n, g) ->
       reading[me] = false;
       if
       :: r == 0 -> to_free()
       :: else -> state = PUBLISHED; reader = NOBODY
       fi
    :: else -> goto end_
    fi
  }
give:
  atomic { FATE; holds[me] = NOBODY }
  goto out;
dead:
  atomic { dead_[me] = true; reading[me] = false }
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { s = 0; r = 0; n = 0; g = 0 }
}

#if KILLS > 0
proctype Reaper() {
  byte d, s, r, n, g;
begin_:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
#if READERS > 1
    :: dead_[1] && !reaped[1] -> d = 1
#endif
#if READERS > 2
    :: dead_[2] && !reaped[2] -> d = 2
#endif
    fi
  }
  if
  :: holds[d] != NOBODY ->
again:
     atomic { FATE; s = state; r = refs; n = reader; g = gen }
#ifdef FAULT_LEAVE
     s = FREE;
#endif
#ifdef FAULT_ANY_READER
     if
     :: s == READ && g == holds[d] ->
#else
     if
     :: s == READ && g == holds[d] && n == d ->
#endif
        atomic {
          FATE;
          if
          :: SAME(s, r, n, g) ->
             assert(!reading[n]);
             if
             :: r == 0 -> to_free()
             :: else -> state = PUBLISHED; reader = NOBODY
             fi
          :: else -> goto again
          fi
        }
     :: else
     fi
  :: else
  fi;
  atomic { FATE; holds[d] = NOBODY; reaped[d] = true }
  atomic { d = 0; s = 0; r = 0; n = 0; g = 0 }
  goto begin_;
dead: /* the next one begins anew */
  atomic { d = 0; s = 0; r = 0; n = 0; g = 0 }
  goto begin_;
halted:
  atomic { reaper_halted = true; d = 0; s = 0; r = 0; n = 0; g = 0 }
}
#endif

proctype Judge() {
  byte i;
  bool excuse;
  timeout;
  atomic {
    do
    :: i < READERS ->
       assert(!dead_[i] || reaped[i] || reaper_halted);
       excuse = excuse || halted_[i] || (dead_[i] && reaper_halted);
       i++
    :: else -> break
    od;
    assert(excuse || state != READ);
    assert(state == FREE || refs != 0 || (excuse && state == READ));
    assert(gen <= 1)
  }
}

init {
  byte i;
  atomic {
    do
    :: i < READERS -> holds[i] = NOBODY; run Reader(i); i++
    :: else -> break
    od;
    i = 0;
    run Holder();
#if KILLS > 0
    run Reaper();
#endif
    run Judge()
  }
}
