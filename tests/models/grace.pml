/* SPDX-License-Identifier: Apache-2.0
 *
 * A chunk of structures that becomes FREE for any kind, beside calls that are inside the core.
 *
 * Mirrors: sb_connection.h sb_lock, sb_unlock; sb_connection.c sb_gate_renew; sb_handles.c sb_handles_forget_pages; sb_grace.c begin_one, ask, ask_all,
 *   ask_again, end_all; sb_drained.c take_all, sb_drained_begin, sb_drained_end, take_over, back_to_class, sb_drained_recover;
 *   sb_floors.c sb_floors_raise, sb_floors_apply; sb_chunk.c sb_chunk_claim, chunk_fill; sb_slab.c take, sb_slab_object.
 * Abstracted: a chunk of one slot. Three ways lead to it: `link`, a word that is cleared before the slot is freed (a page's link,
 *   the chain of ledgers); `entry`, which nobody clears (of the directory, a holding of the dead), and which is judged by the kind
 *   of the chunk and the incarnation in the slot; `cached`, what a handle of a connection remembers of a leaf. A call of a connection is
 *   what lies between its entering and leaving the gate; which thread of the connection runs it, and how it enters, is in gate.pml.
 *   `asked` is whether the counter moved on since that connection looked. A body is
 *   written, and its chunk goes to structures again. What a dead connection has in the slot is freed by its reaper, which
 *   has a gate of its own.
 *
 * Claims: no call reads or writes, as a structure, memory that holds a body; no entry of an earlier life is believed; at
 *   rest the chunk is nobody's and its slot is not DRAINED, whoever was killed; a call that is stopped holds the chunk up
 *   and nothing else.
 *
 * quick: -DUSERS=2 -DCALLS=2
 * quick: -DUSERS=2 -DCALLS=1 -DKILLS=1 -DTAKER
 * quick: -DUSERS=1 -DCALLS=2 -DKILLS=2
 * quick: -DUSERS=1 -DCALLS=2 -DSTOPS=1 -DTAKER
 * quick: -DUSERS=1 -DCALLS=2 -DKILLS=1 -DSTOPS=1
 * quick: -DUSERS=1 -DCALLS=4
 * full: -DUSERS=2 -DCALLS=2 -DKILLS=1 -DTAKER
 * full: -DUSERS=2 -DCALLS=2 -DKILLS=1 -DSTOPS=1
 * full: -DUSERS=1 -DCALLS=3 -DKILLS=2 -DTAKER
 * fault: -DUSERS=2 -DCALLS=2 -DFAULT_NO_WAIT
 * fault: -DUSERS=1 -DCALLS=3 -DFAULT_DRAINED_SEEN
 * fault: -DUSERS=2 -DCALLS=2 -DFAULT_ENTER_BY_STORE
 * fault: -DUSERS=2 -DCALLS=2 -DFAULT_ASK_FIRST
 * fault: -DUSERS=1 -DCALLS=3 -DFAULT_CACHE_STAYS
 * fault: -DUSERS=1 -DCALLS=3 -DFAULT_ASK_LATER
 * fault: -DUSERS=2 -DCALLS=2 -DFAULT_LINK_LAST
 * fault: -DUSERS=1 -DCALLS=2 -DFAULT_TAKE_NONE
 * fault: -DUSERS=1 -DCALLS=4 -DFAULT_EPOCH_ANEW
 * fault: -DUSERS=1 -DCALLS=4 -DKILLS=1 -DFAULT_FLOOR_LATER
 * fault: -DUSERS=1 -DCALLS=2 -DTAKER -DFAULT_CLAIM_BLINDLY
 * fault: -DUSERS=1 -DCALLS=2 -DTAKER -DFAULT_FREE_FIRST
 */
#include "common.h"

#ifndef USERS
#define USERS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define NOBODY 15
#define RECLAIMER 8
#define TAKER_ID 9

/* the chunk's word */
#define CLASS 0
#define DRAINING 1
#define CLAIMED 2
#define FREE_CHUNK 3
#define BODY 4
byte chunk = CLASS, drainer = NOBODY;
bool taken; /* over: by one who is not who drained its slots */
byte floor;

/* the slot's header, and its memory: an epoch that no two lives share */
#define FREE 0
#define ALLOC 1
#define LIVE 2
#define DRAINED 3
byte slot = FREE, gen = 1, owner = NOBODY;
byte epoch;
#define ANYTHING 200 /* what a body has there: it matches whatever somebody expects */

/* what leads there */
bool link;
byte entry = NOBODY, entry_life;
byte life; /* of the memory: how often it became a body; for the claims */

/* gates */
bool inside[USERS], asked[USERS];
bool dead_[USERS], halted_[USERS], gone[USERS];
bool r_dead, r_halted, r_holds, t_dead, t_halted, t_holds, reaper_halted;

#define STRUCTURE (chunk != BODY && chunk != FREE_CHUNK)
#define TOUCH assert(STRUCTURE)

inline enter() {
#ifdef FAULT_ENTER_BY_STORE /* it is seen by others only later */
  atomic { FATE; buffered = true }
#else
  atomic { FATE; inside[me] = true }
#endif
#ifdef FAULT_CACHE_STAYS
  atomic { FATE; asked[me] = false }
#else
  atomic { FATE; if :: asked[me] -> cached = false; asked[me] = false :: else fi }
#endif
}

inline drain_buffer() {
#ifdef FAULT_ENTER_BY_STORE
  if
  :: buffered -> atomic { inside[me] = true; buffered = false }
  :: else
  fi
#else
  skip
#endif
}

inline leave() {
  drain_buffer();
  atomic { FATE; inside[me] = false }
}

/* a slot is taken, filled, linked */
inline make() {
  atomic {
    FATE;
    seen = (slot == FREE); /* a hint may be older than the chunk's word */
    g = gen
  }
  if
  :: seen ->
     atomic {
       FATE;
       if
       :: slot == FREE && gen == g -> slot = ALLOC; owner = me
       :: else -> seen = false
       fi
     }
  :: else
  fi;
  if
  :: seen ->
     atomic { FATE; seen = (chunk == CLASS || chunk == DRAINING) }
     if
     :: seen ->
        atomic { FATE; TOUCH; epoch++; life++ }
        atomic {
          FATE;
          if
          :: entry == NOBODY -> TOUCH; entry = epoch; entry_life = life
          :: else
          fi
        }
        atomic { FATE; TOUCH; link = true; slot = LIVE; cached = true }
     :: else -> atomic { FATE; slot = FREE; owner = NOBODY; gen++ }
     fi
  :: else
  fi
}

/* the owner unlinks it, moves its epoch on, and frees it */
inline unmake() {
  if
  :: atomic { slot == LIVE && owner == me -> skip } ->
#ifndef FAULT_LINK_LAST
     atomic { FATE; link = false }
#endif
     atomic { FATE; TOUCH; epoch++ }
     atomic { FATE; slot = FREE; owner = NOBODY; gen++ }
#ifdef FAULT_LINK_LAST
     atomic { FATE; link = false }
#endif
  :: else
  fi
}

proctype User(byte me) {
  byte g, calls, e, l;
  bool seen, cached, buffered;
  do
  :: calls < CALLS ->
     enter();
     if
     :: true -> make()
     :: true -> unmake()
     :: /* along a word that is cleared before the slot is freed: no look at the chunk */
        atomic { FATE; seen = link }
        if
        :: seen -> atomic { FATE; TOUCH }
        :: else
        fi
     :: /* along an entry: the kind of the chunk, then the epoch, then a CAS of it */
        atomic { FATE; e = entry; l = entry_life }
#ifdef FAULT_DRAINED_SEEN
        seen = (e != NOBODY);
#else
        atomic { FATE; seen = (e != NOBODY && chunk == CLASS) }
#endif
        if
        :: seen ->
           atomic { FATE; TOUCH; seen = (epoch == e) }
           atomic { FATE; if :: seen -> TOUCH; assert(epoch != e || life == l) :: else fi }
        :: else
        fi
     :: true -> /* what a handle remembers of a leaf: a CAS that expects its generation */
        if
        :: cached -> atomic { FATE; TOUCH }
        :: else
        fi
     fi;
     leave();
     atomic { calls++; seen = 0; g = 0; e = 0; l = 0 }
  :: else -> break
  od;
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { g = 0; calls = 0; e = 0; l = 0; seen = 0; cached = 0; buffered = 0 }
}

/* undrain, by who has the chunk's word */
inline undrain(who) {
  atomic { FATE; if :: slot == DRAINED -> slot = FREE; owner = NOBODY; gen++ :: else fi }
  atomic { FATE; if :: chunk == DRAINING && drainer == who && taken -> chunk = CLASS; drainer = NOBODY; taken = false :: else fi }
}

/* ask: true if nobody is inside. The next call of that connection finds that it was asked */
inline ask_all() {
  n = 0;
  do
  :: n < USERS ->
#ifdef FAULT_ASK_LATER
     atomic { FATE; waits = (inside[n] && !gone[n]) }
     atomic { FATE; asked[n] = true }
#else
     atomic { FATE; asked[n] = true }
     atomic { FATE; waits = (inside[n] && !gone[n]) }
#endif
#ifndef FAULT_NO_WAIT
     do
     :: waits -> /* at each tick; a connection that closed, or was reaped, is not waited for */
end_wait:
        atomic { !inside[n] || gone[n] || chunk != DRAINING -> skip }
        atomic { FATE; asked[n] = true }
        atomic { FATE; waits = (inside[n] && !gone[n] && chunk == DRAINING) }
     :: else -> break
     od;
#endif
     n++
  :: else -> break
  od
}

inline set_floor() {
  atomic { FATE; if :: epoch > floor && chunk == DRAINING && drainer == RECLAIMER -> floor = epoch :: else fi }
}

proctype Reclaimer() {
  byte n, g;
  bool seen, waits;
  if
  :: atomic { chunk == CLASS && slot == FREE -> g = gen }
  :: goto out
  fi;
  atomic { FATE; r_holds = true }
#ifdef FAULT_ASK_FIRST
  ask_all();
#endif
#ifndef FAULT_TAKE_NONE
  atomic {
    FATE;
    if
    :: slot == FREE && gen == g -> slot = DRAINED; owner = RECLAIMER
    :: else -> goto give
    fi
  }
#endif
  atomic { FATE; if :: chunk == CLASS -> chunk = DRAINING; drainer = RECLAIMER :: else -> goto give fi }
#ifndef FAULT_ASK_FIRST
  ask_all();
#endif
#if !defined(FAULT_FLOOR_LATER) && !defined(FAULT_EPOCH_ANEW)
  set_floor();
#endif
#ifdef FAULT_CLAIM_BLINDLY
  atomic { FATE; chunk = CLAIMED; drainer = RECLAIMER }
#else
  atomic {
    FATE;
    if
    :: chunk == DRAINING && drainer == RECLAIMER && !taken -> chunk = CLAIMED
    :: else -> goto give /* it was taken over */
    fi
  }
#endif
#ifdef FAULT_FLOOR_LATER
  atomic { FATE; if :: epoch > floor -> floor = epoch :: else fi }
#endif
  atomic { FATE; slot = ALLOC; owner = NOBODY }
  atomic { FATE; assert(chunk == CLAIMED && drainer == RECLAIMER); chunk = FREE_CHUNK; drainer = NOBODY }
give:
  atomic { FATE; r_holds = false }
  goto out;
dead:
  r_dead = true;
  goto out;
halted:
  r_halted = true;
out:
  atomic { n = 0; g = 0; seen = 0; waits = 0 }
}

/* Who finds no memory takes a chunk over that is being drained, and gives it back to its class. */
#ifdef TAKER
proctype Taker() {
  bool seen;
end_unused:
  (chunk == DRAINING && drainer == RECLAIMER);
  atomic { FATE; t_holds = true }
#ifdef FAULT_FREE_FIRST
  atomic { FATE; if :: slot == DRAINED -> slot = FREE; owner = NOBODY; gen++ :: else fi }
#endif
  atomic {
    FATE;
    seen = (chunk == DRAINING && drainer == RECLAIMER && !taken);
    if
    :: seen -> drainer = TAKER_ID; taken = true
    :: else
    fi
  }
  if
  :: seen -> undrain(TAKER_ID)
  :: else
  fi;
  atomic { FATE; t_holds = false }
  goto out;
dead:
  t_dead = true;
  goto out;
halted:
  t_halted = true;
out:
  seen = 0
}
#endif

/* A body gets the chunk; when that is free, structures get it again. */
proctype Body() {
end_unused:
  if
  :: atomic { chunk == FREE_CHUNK -> chunk = BODY }
     epoch = ANYTHING;
     atomic { chunk = CLAIMED }
     /* chunk_fill: zeroed, then the floors */
#ifdef FAULT_EPOCH_ANEW
     epoch = 0;
#else
     epoch = floor + 1;
#endif
     atomic { slot = FREE; owner = NOBODY; gen++; life = life + 16 }
     atomic { chunk = CLASS }
  fi
}

#if KILLS > 0
proctype Reaper() {
  byte d;
begin_:
end_begin:
  atomic {
    if
    :: dead_[0] && !gone[0] -> d = 0
#if USERS > 1
    :: dead_[1] && !gone[1] -> d = 1
#endif
    :: r_dead && r_holds -> d = RECLAIMER
    :: t_dead && t_holds -> d = TAKER_ID
    fi
  }
  if
  :: d < USERS ->
     if
     :: slot == ALLOC && owner == d -> atomic { FATE; slot = FREE; owner = NOBODY; gen++ }
     :: slot == LIVE && owner == d ->
        atomic { FATE; link = false }
        atomic { FATE; TOUCH; epoch++ }
        atomic { FATE; slot = FREE; owner = NOBODY; gen++ }
     :: else
     fi;
     atomic { FATE; gone[d] = true }
  :: else ->
     /* sb_grace_recover */
     if
     :: chunk == CLAIMED && drainer == d ->
        atomic { FATE; slot = ALLOC; owner = NOBODY }
        atomic { FATE; chunk = FREE_CHUNK; drainer = NOBODY }
     :: chunk == DRAINING && drainer == d ->
        atomic { FATE; if :: chunk == DRAINING && drainer == d -> taken = true :: else -> goto given fi }
        undrain(d)
     :: else -> atomic { FATE; if :: chunk == CLASS && slot == DRAINED && owner == d -> slot = FREE; owner = NOBODY; gen++ :: else fi }
     fi;
given:
     atomic { FATE; if :: d == RECLAIMER -> r_holds = false :: else -> t_holds = false fi }
  fi;
  d = 0;
  goto begin_;
dead: /* the next one begins anew */
  d = 0;
  goto begin_;
halted:
  atomic { reaper_halted = true; d = 0 }
}
#endif

proctype Judge() {
  byte i;
  bool excuse;
  timeout;
  atomic {
    excuse = r_halted || t_halted || reaper_halted;
    do
    :: i < USERS ->
       assert(!dead_[i] || gone[i] || reaper_halted);
       excuse = excuse || halted_[i];
       i++
    :: else -> break
    od;
    assert(excuse || (chunk != DRAINING && chunk != CLAIMED));
    assert(excuse || chunk != CLASS || slot != DRAINED)
  }
}

init {
  atomic {
    run User(0);
#if USERS > 1
    run User(1);
#endif
    run Reclaimer();
    run Body();
#ifdef TAKER
    run Taker();
#endif
#if KILLS > 0
    run Reaper();
#endif
    run Judge()
  }
}
