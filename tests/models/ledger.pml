/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger of one connection and queue: counters of a single writer, the intent, its repair, its next owner; and live
 * readers of the statistics.
 *
 * Mirrors: sb_ledger.h sb_ledger_begin_intent, sb_ledger_end_intent, sb_ledger_count, sb_ledger_hold; sb_ledger.c
 *   sb_ledger_adopt, sb_ledger_leave, sb_ledger_left, sb_ledger_came, sb_ledger_holding; sb_queue.c sb_queue_enqueue;
 *   sb_take.c took; sb_settle.c settle; sb_release.c sb_release_message (what they write to the ledger, and when);
 *   sb_queue.c sb_queue_count_ready; sb_intent.c raise_to, resolve, resolve_enqueue, resolve_settle; sb_recover.c visit_ledgers;
 *   sb_api_put.c put_one.
 * Abstracted: slot and cell are one evidence for each message (it happened, or not), which is what cell.pml proves of them;
 *   one counter for all ways out; one message at a time in a ledger's hands; bytes of every message are 2.
 *
 * Claims: counters only rise; at rest added = ended + ready, in messages and in bytes, whoever was killed; `holding` is 0 in
 *   a ledger without owner; a connection never writes a ledger that another owns; a live reading of what is ready is
 *   too low by no more than one for each connection that is in the middle of an operation.
 *
 * full: -DMESSAGES=2 -DKILLS=1 -DSTOPS=1
 * quick: -DMESSAGES=2 -DKILLS=2 -DLEDGERS=1
 * quick: -DMESSAGES=1 -DREADER
 * full: -DMESSAGES=2 -DREADER
 * full: -DMESSAGES=1 -DKILLS=2 -DDROPPER
 * full: -DMESSAGES=2 -DREADER -DSTOPS=1
 * full: -DMESSAGES=3 -DKILLS=2 -DSTOPS=1
 * bitstate: -DMESSAGES=3 -DOWNERS=3 -DKILLS=2 -DSTOPS=1 -w33 -Q2
 * fault: -DMESSAGES=2 -DKILLS=1 -DFAULT_ADD
 * fault: -DMESSAGES=2 -DKILLS=1 -DFAULT_FORGET
 * fault: -DMESSAGES=1 -DKILLS=1 -DDROPPER -DFAULT_REFUSED_IS_ADDED
 * full fault: -DMESSAGES=3 -DREADER -DFAULT_ADDED_FIRST
 */
#include "common.h"

#ifndef OWNERS
#define OWNERS 2
#endif
#ifndef LEDGERS
#define LEDGERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef RELEASES
#define RELEASES 1
#endif
#define NOBODY 15
#define BYTES 2

#define NONE 0
#define ENQUEUE 1
#define SETTLE 2

/* evidence for a message: not there, ready, acquired by owner - ACQUIRED, gone */
#define ABSENT 0
#define READY 1
#define GONE 2
#define ACQUIRED 3
byte message[MESSAGES];

byte owner[LEDGERS], kind[LEDGERS], what[LEDGERS], before[LEDGERS], before_bytes[LEDGERS], holding[LEDGERS];
byte added[LEDGERS], ended[LEDGERS], added_bytes[LEDGERS], ended_bytes[LEDGERS];
byte ledger_of[OWNERS]; /* the holding */
bool dead_[OWNERS], halted_[OWNERS], reaped[OWNERS];
bool reaper_halted;
byte made, releases, refused;
bool counted[MESSAGES], steady[MESSAGES]; /* for the claims: its put was counted; ready since the reading began */

#define READY_NOW ((message[0] == READY) + (MESSAGES > 1 && message[1 % MESSAGES] == READY) + (MESSAGES > 2 && message[2 % MESSAGES] == READY))

#define MINE assert(owner[l] == me)

inline begin(k, counter, bytes) {
  atomic { FATE; MINE; what[l] = m; before[l] = counter; before_bytes[l] = bytes; kind[l] = k }
}
inline count(counter, by) { atomic { FATE; MINE; counter = counter + by } }
inline finish() { atomic { FATE; MINE; kind[l] = NONE } }
inline hold(by) { atomic { FATE; MINE; holding[l] = holding[l] + by } }

proctype Owner(byte me) {
  byte l, m;
  /* sb_ledger_adopt: the holding first, then the CAS */
  l = 0;
  do
  :: l < LEDGERS ->
     if
     :: atomic { owner[l] == NOBODY -> FATE; ledger_of[me] = l }
        atomic {
          FATE;
          if
          :: owner[l] == NOBODY -> owner[l] = me; goto open
          :: else
          fi
        }
     :: atomic { owner[l] != NOBODY }
     fi;
     l++
  :: else -> goto out
  od;
open:
  atomic { FATE; MINE; holding[l] = 0 }
working:
  if
  :: atomic { made < MESSAGES -> m = made; made++ } /* sb_queue_enqueue */
     begin(ENQUEUE, added[l], added_bytes[l]);
     atomic { FATE; message[m] = READY }
     count(added_bytes[l], BYTES);
     atomic { FATE; MINE; added[l]++; counted[m] = true }
     finish();
     m = 0;
     goto working
  :: atomic { message[0] == READY -> m = 0 }
#if MESSAGES > 1
  :: atomic { message[1] == READY -> m = 1 }
#endif
#if MESSAGES > 2
  :: atomic { message[2] == READY -> m = 2 }
#endif
  :: true -> goto leave
  fi;
  atomic {
    FATE;
    if
    :: message[m] == READY -> message[m] = ACQUIRED + me; steady[m] = false
    :: else -> m = 0; goto working
    fi
  }
  hold(1);
  if
  :: /* settle */
     begin(SETTLE, ended[l], ended_bytes[l]);
     atomic { FATE; assert(message[m] == ACQUIRED + me); message[m] = GONE }
     count(ended_bytes[l], BYTES);
     count(ended[l], 1); /* for a moment the message counts as ended and as held */
     hold(-1);
     finish()
  :: atomic { releases < RELEASES -> releases++ } /* sb_release_message */
     atomic { FATE; message[m] = READY } /* for a moment it is ready and counts as held */
     hold(-1)
  fi;
  m = 0;
  goto working;
leave: /* sb_ledger_leave */
  atomic { FATE; MINE; assert(holding[l] == 0 && kind[l] == NONE); owner[l] = NOBODY }
  atomic { FATE; ledger_of[me] = NOBODY }
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { l = 0; m = 0 }
}

#ifdef DROPPER /* overflow=drop: what was refused is counted apart, so that one step is all there is */
proctype Dropper() {
  byte me, l, m;
  atomic { me = OWNERS - 1; l = LEDGERS - 1; owner[l] == NOBODY -> owner[l] = me; ledger_of[me] = l }
#ifdef FAULT_REFUSED_IS_ADDED /* killed between the counters, it leaves the accounts one off */
  count(added_bytes[l], BYTES);
  count(ended_bytes[l], BYTES);
  count(ended[l], 1);
  count(added[l], 1);
#else
  count(refused, 1);
#endif
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { l = 0; m = 0; me = 0 }
}
#endif

#ifdef FAULT_ADD
#define RAISE(counter, from, by) atomic { FATE; counter = counter + by }
#else
#define RAISE(counter, from, by) \
  atomic {                       \
    FATE;                        \
    if                           \
    :: counter == from -> counter = from + by \
    :: else                      \
    fi                           \
  }
#endif

#if KILLS > 0
proctype Reaper() {
  byte d, l, m, k, h;
  bool happened;
begin_:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
#if OWNERS > 1
    :: dead_[1] && !reaped[1] -> d = 1
#endif
#if OWNERS > 2
    :: dead_[2] && !reaped[2] -> d = 2
#endif
    fi
  }
  l = ledger_of[d];
  if
  :: l != NOBODY && owner[l] == d ->
     /* sb_intent_resolve */
     atomic { FATE; k = kind[l]; m = what[l] }
     if
     :: k == ENQUEUE ->
        atomic { FATE; happened = message[m] != ABSENT }
#ifdef FAULT_FORGET
        happened = false;
#endif
        if
        :: happened ->
           RAISE(added_bytes[l], before_bytes[l], BYTES);
           RAISE(added[l], before[l], 1)
        :: else
        fi;
        atomic { FATE; kind[l] = NONE }
     :: k == SETTLE ->
        atomic { FATE; happened = message[m] == GONE }
        if
        :: happened ->
           RAISE(ended_bytes[l], before_bytes[l], BYTES);
           RAISE(ended[l], before[l], 1)
        :: else
        fi;
        atomic { FATE; kind[l] = NONE }
     :: else
     fi;
     /* visit_cells */
     m = 0;
     do
     :: m < MESSAGES -> atomic { FATE; if :: message[m] == ACQUIRED + d -> message[m] = READY :: else fi } m++
     :: else -> break
     od;
     /* visit_ledgers: the reaper inherits it, and is d from here on, if it is killed too; so cell.pml has it */
     atomic { FATE; h = holding[l] }
     atomic { FATE; if :: holding[l] == h -> holding[l] = 0 :: else fi }
     atomic { FATE; if :: owner[l] == d -> owner[l] = NOBODY :: else fi }
  :: else
  fi;
  atomic { FATE; reaped[d] = true }
  atomic { d = 0; l = 0; m = 0; k = 0; h = 0; happened = false }
  goto begin_;
dead:
  atomic { d = 0; l = 0; m = 0; k = 0; h = 0; happened = false }
  goto begin_;
halted:
  atomic { reaper_halted = true; d = 0; l = 0; m = 0; k = 0; h = 0; happened = false }
}
#endif

#ifdef READER
/* sb_queue_count_ready: what left, what is held, what came */
proctype Reader() {
  byte i;
  short n;
  atomic {
    do
    :: i < MESSAGES -> steady[i] = message[i] == READY && counted[i]; i++
    :: else -> i = 0; break
    od
  }
#ifdef FAULT_ADDED_FIRST /* what comes and goes in between counts as gone only */
  do
  :: atomic { i < LEDGERS -> n = n + added[i]; i++ }
  :: else -> i = 0; break
  od;
#endif
  do
  :: atomic { i < LEDGERS -> n = n - ended[i]; i++ }
  :: else -> i = 0; break
  od;
  do
  :: atomic { i < LEDGERS -> n = n - holding[i]; i++ }
  :: else -> i = 0; break
  od;
#ifndef FAULT_ADDED_FIRST
  do
  :: atomic { i < LEDGERS -> n = n + added[i]; i++ }
  :: else -> i = 0; break
  od;
#endif
  atomic {
    do
    :: i < MESSAGES -> n = n - steady[i]; i++
    :: else -> i = 0; break
    od;
    assert(n + OWNERS >= 0);
    n = 0
  }
}
#endif

proctype Judge() {
  byte i, in, out_, in_bytes, out_bytes;
  bool excuse;
  timeout;
  atomic {
    i = 0;
    do
    :: i < OWNERS -> assert(!dead_[i] || reaped[i] || reaper_halted); excuse = excuse || halted_[i] || (dead_[i] && reaper_halted); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < LEDGERS ->
       in = in + added[i]; out_ = out_ + ended[i]; in_bytes = in_bytes + added_bytes[i]; out_bytes = out_bytes + ended_bytes[i];
       assert(owner[i] != NOBODY || (holding[i] == 0 && kind[i] == NONE));
       i++
    :: else -> break
    od;
    assert(excuse || in == out_ + READY_NOW);
    assert(excuse || in_bytes == out_bytes + BYTES * READY_NOW)
  }
}

init {
  byte i;
  atomic {
    i = 0;
    do
    :: i < LEDGERS -> owner[i] = NOBODY; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < OWNERS -> ledger_of[i] = NOBODY; i++
    :: else -> break
    od;
    i = 0;
    do
#ifdef DROPPER
    :: i < OWNERS - 1 -> run Owner(i); i++
#else
    :: i < OWNERS -> run Owner(i); i++
#endif
    :: else -> break
    od;
    i = 0;
#ifdef DROPPER
    run Dropper();
#endif
#if KILLS > 0
    run Reaper();
#endif
#ifdef READER
    run Reader();
#endif
    run Judge()
  }
}
