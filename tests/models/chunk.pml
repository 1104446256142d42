/* SPDX-License-Identifier: Apache-2.0
 *
 * One chunk and its first slot: a run of one chunk, a chunk of bodies, FREE; made, used and drained beside each other.
 *
 * Mirrors: sb_chunk.c sb_chunk_claim, sb_chunk_claim_class, chunk_fill, chunk_open, all_free, sb_chunk_drain, undrain,
 *   free_first, sb_chunk_recover; sb_slab.c take, claim_run, sb_slab_free; sb_recover.c settle_slot, reap_connection.
 * Abstracted: the chunk has one slot. A body has one reference, which its producer drops; a reaper drops it in place of a
 *   dead producer. Hints are left out. A chunk of structures is a chunk that was filled in and given back: sb_drained.c is
 *   in grace.pml.
 *
 * Claims: the chunk keeps what it is (RUN, or of a class) as long as its slot has a body; nobody else writes the header of
 *   a slot that somebody took; at rest the slot of a RUN or of a class is FREE, and no chunk is CLAIMED or DRAINING, whoever
 *   was killed.
 *
 * quick: -DUSERS=1 -DROUNDS=2 -DDRAINERS=1
 * quick: -DUSERS=1 -DROUNDS=1 -DDRAINERS=1 -DKILLS=1
 * quick: -DUSERS=1 -DROUNDS=2 -DDRAINERS=1 -DSTOPS=1
 * full: -DUSERS=1 -DROUNDS=2 -DDRAINERS=2
 * full: -DUSERS=1 -DROUNDS=2 -DDRAINERS=1 -DKILLS=2
 * full: -DUSERS=2 -DROUNDS=1 -DDRAINERS=1 -DKILLS=1 -DSTOPS=1
 * fault: -DUSERS=1 -DROUNDS=2 -DDRAINERS=2 -DFAULT_NO_GENERATION
 * fault: -DUSERS=2 -DROUNDS=2 -DDRAINERS=1 -DFAULT_NO_LOOK_BACK
 * fault: -DUSERS=1 -DROUNDS=1 -DDRAINERS=1 -DKILLS=1 -DFAULT_NOT_MARKED
 */
#include "common.h"

#ifndef USERS
#define USERS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef DRAINERS
#define DRAINERS 1
#endif
#define FILLER (USERS + DRAINERS)
#define PROCESSES (USERS + DRAINERS + 1)
#define NOBODY 15

/* states of the chunk */
#define FREE 0
#define CLASS 1
#define RUN 2
#define DRAINING 3
#define CLAIMED 4
/* states of the slot */
#define OPEN 0
#define ALLOC 1
#define PUBLISHED 2

byte k_state, k_owner = NOBODY, k_run, k_gen;                    /* the chunk's word */
byte s_state = ALLOC, s_owner = NOBODY, s_gen; bool s_of_run;    /* the slot's header */
byte holds_gen[PROCESSES];
bool holds_slot[PROCESSES], holds_chunk[PROCESSES], dead_[PROCESSES], halted_[PROCESSES], reaped[PROCESSES];
bool reaper_halted;

inline set_chunk(becomes, by, length, slot_gen) {
  k_state = becomes; k_owner = by; k_run = length; k_gen = slot_gen
}
inline open_slot() {
  s_state = OPEN; s_owner = NOBODY; s_of_run = false; s_gen = s_gen + 1
}

/* The slot becomes FREE if it is still ALLOC of this owner, with this mark; a load and a CAS. */
inline free_first(him, marked) {
  atomic { FATE; hg = s_gen; same = (s_state == ALLOC && s_owner == him && s_of_run == marked) }
  if
  :: same ->
     atomic {
       FATE;
       if
       :: s_state == ALLOC && s_owner == him && s_of_run == marked && s_gen == hg -> open_slot()
       :: else
       fi
     }
  :: else
  fi
}

/* undrain, for the drainer and for its reaper */
inline undrain(him) {
  atomic { FATE; hg = s_gen; same = (s_state == ALLOC && (s_owner == him || s_owner == NOBODY)) }
  if
  :: same ->
     atomic {
       FATE;
       if
       :: s_state == ALLOC && s_gen == hg && (s_owner == him || s_owner == NOBODY) -> open_slot()
       :: else
       fi
     }
  :: else
  fi;
  atomic {
    FATE;
    if
    :: k_state == DRAINING && k_owner == him && k_run == 0 -> set_chunk(CLASS, NOBODY, 0, 0)
    :: else
    fi
  }
}

/* sb_chunk_recover */
inline recover(him) {
  atomic { FATE; ws = k_state; wo = k_owner; wr = k_run }
  if
  :: ws == DRAINING && wo == him
  :: else ->
#ifdef FAULT_NOT_MARKED
     skip
#else
     free_first(him, true)
#endif
  fi;
  if
  :: ws == RUN || ws == CLASS -> free_first(him, false)
  :: ws == DRAINING && wo == him && wr == 0 -> undrain(him)
  :: (ws == CLAIMED && wo == him) || (ws == DRAINING && wo == him && wr != 0) ->
     if
     :: wr != 0 ->
        atomic { FATE; hg = s_gen; same = (s_state == ALLOC && s_owner == him) }
        if
        :: same ->
           atomic {
             FATE;
             if
             :: s_state == ALLOC && s_owner == him && s_gen == hg -> s_owner = NOBODY; s_of_run = false
             :: else
             fi
           }
        :: else
        fi
     :: else
     fi;
     atomic {
       FATE;
       if
       :: k_state == ws && k_owner == him && k_run == wr -> set_chunk(FREE, NOBODY, 0, 0)
       :: else
       fi
     }
  :: else
  fi
}

inline forget() {
  ws = 0; wo = 0; wr = 0; wg = 0; hg = 0; same = 0; got = 0
}

/* Puts bodies: takes the slot of a run or of a class, or makes a run; then drops the body. */
proctype User(byte me) {
  byte ws, wo, wr, wg, hg, round;
  bool same, got;
  do
  :: round < ROUNDS ->
     round++;
     got = false;
     atomic { FATE; ws = k_state }
     if
     :: ws == RUN || ws == CLASS ->
        atomic { FATE; hg = s_gen; got = (s_state == OPEN); holds_gen[me] = s_gen; holds_slot[me] = true }
        if
        :: got ->
           atomic {
             FATE;
             got = (s_state == OPEN && s_gen == hg);
             if
             :: got -> s_state = ALLOC; s_owner = me
             :: else
             fi
           }
           if
           :: got ->
              atomic { FATE; got = (k_state == ws || (ws == CLASS && k_state == DRAINING && k_run == 0)) }
              if
              :: !got ->
                 atomic {
                   FATE;
                   if
                   :: s_state == ALLOC && s_owner == me && !s_of_run && s_gen == hg -> open_slot()
                   :: else
                   fi
                 }
              :: else
              fi;
#ifndef FAULT_NO_LOOK_BACK
              atomic { FATE; got = got && s_state == ALLOC && s_owner == me && !s_of_run && s_gen == hg }
#endif
           :: else
           fi
        :: else
        fi
     :: ws == FREE -> /* claim_run */
        atomic {
          FATE;
          holds_chunk[me] = true;
          got = (k_state == FREE);
          if
          :: got -> set_chunk(CLAIMED, me, 1, 0)
          :: else
          fi
        }
        if
        :: got ->
           ws = RUN;
           atomic { FATE; hg = s_gen + 1 }
           atomic { FATE; s_state = ALLOC; s_owner = me; s_of_run = false; s_gen = hg }
#ifdef FAULT_NO_GENERATION
           /* A drainer reads RUN, and stops. Others drain the run; the chunk is filled in for a class. Now the drainer
            * takes the slot. The chunk is given back, and becomes a run again, with a body. The drainer goes on: its CAS
            * of the chunk's word succeeds. */
           atomic { FATE; set_chunk(RUN, NOBODY, 1, 0) }
#else
           atomic { FATE; set_chunk(RUN, NOBODY, 1, hg) }
#endif
           atomic { FATE; holds_gen[me] = hg; holds_slot[me] = true }
        :: else
        fi
     :: else
     fi;
     if
     :: got ->
        atomic { FATE; assert(s_state == ALLOC && s_owner == me && !s_of_run && s_gen == hg); s_state = PUBLISHED }
        atomic {
          FATE;
          assert(s_state == PUBLISHED && s_owner == me && s_gen == hg);
          assert(k_state == ws || (ws == CLASS && k_state == DRAINING && k_run == 0));
          open_slot()
        }
     :: else
     fi;
     atomic { FATE; holds_slot[me] = false; holds_chunk[me] = false }
  :: else -> break
  od;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { forget(); round = 0 }
}

/* sb_chunk_drain, twice */
proctype Drainer(byte me) {
  byte ws, wo, wr, wg, hg, round;
  bool same, got;
  do
  :: round < 2 ->
     round++;
     atomic { FATE; ws = k_state; wg = k_gen }
     atomic { FATE; hg = s_gen; got = (s_state == OPEN && (ws == RUN || ws == CLASS)) }
     if
     :: got && ws == CLASS ->
        atomic {
          FATE;
          holds_chunk[me] = true;
          got = (k_state == CLASS);
          if
          :: got -> set_chunk(DRAINING, me, 0, 0)
          :: else
          fi
        }
        if
        :: got ->
           atomic { FATE; hg = s_gen; got = (s_state == OPEN) }
           atomic {
             FATE;
             got = (got && s_state == OPEN && s_gen == hg);
             if
             :: got -> s_state = ALLOC; s_owner = me
             :: else
             fi
           }
           if
           :: got ->
              atomic { FATE; s_owner = NOBODY }
              atomic { FATE; set_chunk(FREE, NOBODY, 0, 0) }
           :: else -> undrain(me)
           fi
        :: else
        fi
     :: got && ws == RUN ->
        atomic {
          FATE;
          holds_chunk[me] = true;
          got = (s_state == OPEN && s_gen == hg);
          if
          :: got -> s_state = ALLOC; s_owner = me; s_of_run = true
          :: else
          fi
        }
        if
        :: got ->
           atomic {
             FATE;
             got = (k_state == RUN && k_gen == wg);
             if
             :: got -> set_chunk(DRAINING, me, 1, 0)
             :: else
             fi
           }
           if
           :: got -> recover(me)
           :: else -> free_first(me, true)
           fi
        :: else
        fi
     :: else
     fi;
     atomic { FATE; holds_chunk[me] = false }
  :: else -> break
  od;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { forget(); round = 0 }
}

/* sb_chunk_claim_class: fills the chunk in, and opens it, or gives it back since another one has room */
proctype Filler(byte me) {
  byte ws, wo, wr, wg, hg;
  bool same, got;
  atomic {
    FATE;
    holds_chunk[me] = true;
    got = (k_state == FREE);
    if
    :: got -> set_chunk(CLAIMED, me, 0, 0)
    :: else
    fi
  }
  if
  :: got ->
     atomic { FATE; hg = s_gen + 1 }
     atomic { FATE; s_state = OPEN; s_owner = NOBODY; s_of_run = false; s_gen = hg }
     if
     :: atomic { FATE; set_chunk(CLASS, NOBODY, 0, 0) }
     :: atomic { FATE; set_chunk(FREE, NOBODY, 0, 0) }
     fi
  :: else
  fi;
  atomic { FATE; holds_chunk[me] = false }
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { forget() }
}

#if KILLS > 0
proctype Reaper() {
  byte d, ws, wo, wr, wg, hg;
  bool same, got;
begin_:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
    :: dead_[1] && !reaped[1] -> d = 1
    :: dead_[2] && !reaped[2] -> d = 2
#if PROCESSES > 3
    :: dead_[3] && !reaped[3] -> d = 3
#endif
    fi
  }
  /* settle_slot */
  if
  :: holds_slot[d] ->
     atomic {
       FATE;
       if
       :: s_owner == d && s_gen == holds_gen[d] && (s_state == PUBLISHED || (s_state == ALLOC && !s_of_run)) -> open_slot()
       :: else
       fi
     }
  :: else
  fi;
  if
  :: holds_chunk[d] -> recover(d)
  :: else
  fi;
  atomic { FATE; reaped[d] = true; d = 0; forget() }
  goto begin_;
dead:
  atomic { d = 0; forget() }
  goto begin_;
halted:
  atomic { reaper_halted = true; d = 0; forget() }
}
#endif

proctype Judge() {
  byte i;
  bool excuse;
  timeout;
  atomic {
    do
    :: i < PROCESSES ->
#if KILLS > 0
       assert(!dead_[i] || reaped[i] || reaper_halted);
#endif
       excuse = excuse || halted_[i] || (dead_[i] && reaper_halted);
       i++
    :: else -> break
    od;
    assert(excuse || k_state == FREE || k_state == RUN || k_state == CLASS);
    assert(excuse || k_state == FREE || s_state == OPEN)
  }
}

init {
  byte i;
  atomic {
    do
    :: i < USERS -> run User(i); i++
    :: else -> break
    od;
    do
    :: i < USERS + DRAINERS -> run Drainer(i); i++
    :: else -> break
    od;
    run Filler(FILLER);
#if KILLS > 0
    run Reaper();
#endif
    run Judge()
  }
}
