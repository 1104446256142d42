/* SPDX-License-Identifier: Apache-2.0
 *
 * Message groups: claims on buckets of groups, beside searches that pass messages of buckets that others have claimed.
 *
 * Mirrors: sb_groups.c claim, end_claim, others_passed, sb_groups_pass_for_others, leaves_to_others, sb_groups_admits, sb_groups_behind, sb_groups_took, sb_groups_ended,
 *   sb_groups_begin, sb_groups_end, sb_groups_leave, sb_groups_end_dead; sb_choice.c take_returned, take_behind, may_go_on, take_next,
 *   walk_again, search, sb_choice_take; sb_notify.c sb_notify_group_arrived; sb_release.c release; sb_settle.c settle; sb_recover.c visit_ledgers.
 * Abstracted: one leaf, whose cells no process reuses (pages.pml); `requeued` and the bits above a cell's bit, and how a
 *   bit is cleared (lanes.pml); slots (cell.pml); commits. A notification is a flag for each consumer.
 *
 * Producers append messages of the buckets 0, 1, 0 ... A consumer takes messages while it has credit; it acknowledges or
 *   returns each, or holds one for ever. With STICKY it keeps a bucket until it leaves. With LEAVES it leaves an unclaimed bucket
 *   to others, as one does that has more than its share. With WALKS each message has a lane of its own, they come in
 *   any order, and a consumer walks again (I113); where in its lane a message lies plays no part there.
 *
 * Claims: no message is taken while another consumer holds one of its bucket, nor while an older one of its bucket is
 *   ready; at rest a message is ready only if no consumer has credit, or if another consumer holds a message of its bucket
 *   (STICKY: has the bucket), and no claim is left of the dead or of a consumer that has none of its messages.
 *
 * full: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0
 * full: -DMESSAGES=3 -DRETURNS=0
 * quick: -DMESSAGES=2 -DRETURNS=0 -DSTICKY
 * full: -DMESSAGES=2 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DKILLS=1
 * full: -DMESSAGES=2 -DRETURNS=0 -DHOLDERS=0 -DKILLS=1
 * full: -DMESSAGES=2 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DKILLS=2
 * full: -DMESSAGES=2 -DONE_BUCKET -DCREDIT=2
 * full: -DMESSAGES=2 -DRETURNS=0 -DHOLDERS=0 -DKILLS=1 -DSTICKY
 * full: -DMESSAGES=2 -DRETURNS=0 -DSTICKY -DLEAVES=1
 * full: -DMESSAGES=2 -DRETURNS=0 -DLEAVES=2
 * full: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0 -DLEAVES=1
 * full: -DMESSAGES=2 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DLEAVES=1 -DKILLS=1
 * full: -DMESSAGES=2 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DWALKS
 * full: -DMESSAGES=2 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DSTICKY -DLEAVERS=1
 * fault: -DMESSAGES=2 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DSTICKY -DLEAVERS=1 -DFAULT_TELLS_CLAIMANT_ONLY
 * fault: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0 -DFAULT_GOES_ON
 * fault: -DMESSAGES=3 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DWALKS -DFAULT_FORGETS
 * fault: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0 -DFAULT_NOT_FREED
 * fault: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0 -DFAULT_NO_RESTART
 * fault: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0 -DFAULT_NOT_RAISED
 * fault: -DMESSAGES=3 -DRETURNS=0 -DFAULT_PASS_BLINDLY
 * fault: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0 -DFAULT_IGNORE_FREED
 * fault: -DMESSAGES=2 -DONE_BUCKET -DHOLDERS=0 -DFAULT_FREE_BEFORE
 * fault: -DMESSAGES=2 -DONE_BUCKET -DRETURNS=0 -DHOLDERS=0 -DKILLS=1 -DFAULT_CLAIMS_FIRST
 */
#include "common.h"

#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef CREDIT
#define CREDIT 1
#endif
#ifndef RETURNS
#define RETURNS 1
#endif
#ifndef HOLDERS
#define HOLDERS 1 /* how many hold a message for ever */
#endif
#ifndef LEAVERS
#define LEAVERS CONSUMERS /* with STICKY: how many may leave */
#endif
#ifdef ONE_BUCKET
#define BUCKETS 1
#define BUCKET(p) 0
#else
#define BUCKETS 2
#define BUCKET(p) ((p) % 2)
#endif

#define FREE 0
#define AVAILABLE 1
#define TOMBSTONE 2
#define HELD 3 /* + the consumer */

#define PASSED 8
#define OWNER(word) ((word) & 7)

byte cell[MESSAGES];
bool marked[MESSAGES];
byte claims[BUCKETS]; /* 0, or consumer + 1, with PASSED */
byte low[BUCKETS], high[BUCKETS];
bool freed[BUCKETS];
bool wake[CONSUMERS];
bool dead_[CONSUMERS], reaped[CONSUMERS], left_[CONSUMERS], keeps[CONSUMERS], idle[CONSUMERS];
byte returns, keepers;
#ifndef LEAVES
#define LEAVES 0 /* how often a consumer leaves a bucket to others */
#endif
#if LEAVES > 0
byte left_to_others;
#endif

inline tell() {
  wake[0] = true;
  wake[1] = true
#if CONSUMERS > 2
  ; wake[2] = true
#endif
}
inline notify_all() { atomic { FATE; tell() } }

/* end_claim */
inline free_claim(b) {
  atomic { FATE; low[b] = pos[b] }
  atomic {
    FATE;
    assert(OWNER(claims[b]) == me + 1);
    word = claims[b];
    claims[b] = 0
  }
#ifdef WALKS
  atomic { FATE; if :: inherits[b] || freed[b] -> word = PASSED :: else fi }
  inherits[b] = false;
#else
  atomic { FATE; if :: high[b] > pos[b] -> word = PASSED :: else fi }
#endif
  if
  :: word >= PASSED ->
#ifndef FAULT_NOT_FREED
     atomic { FATE; freed[b] = true }
#endif
     notify_all()
  :: else
  fi;
  atomic { word = 0; provisional[b] = false; pos[b] = 0; bound[b] = 0 }
}

/* claim: true in `got` */
inline claim(b) {
  atomic {
    FATE;
    got = claims[b] == 0;
    if
    :: got -> claims[b] = me + 1
    :: else
    fi
  }
  if
  :: got ->
#ifdef WALKS
     atomic { FATE; inherits[b] = freed[b]; freed[b] = false; provisional[b] = true }
#else
     atomic { FATE; freed[b] = false }
     atomic { FATE; pos[b] = low[b]; provisional[b] = true }
     atomic { FATE; bound[b] = high[b] }
#endif
  :: else
  fi
}

/* sb_groups_admits: sets `verdict`. */
#define OK 1
#define PASS 2
#define AGAIN 3 /* the bucket was claimed just now: search from the beginning */
inline admits(p, by_cursor) {
  verdict = 0;
  do
  :: verdict == 0 ->
     atomic { FATE; word = claims[BUCKET(p)] }
     if
     :: OWNER(word) == me + 1 -> verdict = OK
#if LEAVES > 0
     :: atomic { word == 0 && left_to_others < LEAVES -> left_to_others++ } /* it has more than its share */
        if
        :: by_cursor -> atomic { FATE; if :: high[BUCKET(p)] < p + 1 -> high[BUCKET(p)] = p + 1 :: else fi }
        :: else
        fi;
        atomic { FATE; got = freed[BUCKET(p)]; freed[BUCKET(p)] = true }
        atomic { FATE; if :: !got -> tell() :: else -> wake[me] = true fi; got = false } /* sb_groups_searches_again */
        verdict = PASS
#endif
     :: word == 0 ->
        claim(BUCKET(p));
        if
#ifdef FAULT_NO_RESTART
        :: got -> verdict = OK
#else
        :: got -> verdict = AGAIN
#endif
        :: else
        fi
     :: else ->
#ifndef FAULT_NOT_RAISED
        if
        :: by_cursor -> atomic { FATE; if :: high[BUCKET(p)] < p + 1 -> high[BUCKET(p)] = p + 1 :: else fi }
        :: else
        fi;
#endif
#ifdef FAULT_PASS_BLINDLY
        verdict = PASS
#else
        atomic {
          FATE;
          if
          :: claims[BUCKET(p)] == word -> claims[BUCKET(p)] = word | PASSED; verdict = PASS
          :: else
          fi
        }
#endif
     fi
  :: else -> break
  od;
  word = 0
}

inline judge_take() {
  k = 0;
  do
  :: k < MESSAGES ->
     assert(BUCKET(k) != BUCKET(p) || cell[k] < HELD || cell[k] == HELD + me);
#ifndef WALKS
     assert(BUCKET(k) != BUCKET(p) || k >= p || cell[k] != AVAILABLE);
#endif
     k++
  :: else -> break
  od;
  k = 0
}

inline take(p) { /* got: it was taken */
  atomic {
    FATE;
    got = cell[p] == AVAILABLE;
    if
    :: got -> cell[p] = HELD + me; marked[p] = false; judge_take()
    :: else
    fi
  }
}

inline took(p) {
  atomic {
    inflight[BUCKET(p)]++;
    used++;
    provisional[BUCKET(p)] = false;
    took_one = true
  }
}

inline end_provisional() {
  b = 0;
  do
  :: b < BUCKETS ->
     if
     :: provisional[b] ->
#ifdef WALKS
        atomic { if :: !got -> inherits[b] = false :: else fi }
#endif
        free_claim(b)
     :: else
     fi;
     b++
  :: else -> break
  od;
  b = 0
}

/* may_go_on: true in `got` */
inline may_go_on(bucket) {
  atomic {
    FATE;
    got = pos[bucket] >= bound[bucket];
#ifndef FAULT_GOES_ON
    k = 0;
    do
    :: k < MESSAGES -> got = got && !marked[k]; k++
    :: else -> break
    od;
    k = 0
#else
    got = true
#endif
  }
}

#ifdef WALKS
inline forget_seen() {
  k = 0;
  do
  :: k < MESSAGES -> seen[k] = false; k++
  :: else -> break
  od;
  k = 0;
  passed[0] = false;
  passed[BUCKETS - 1] = false
}
#endif

/* After the message of cell p ended or returned. */
inline ended(p) {
  b = BUCKET(p);
  inflight[b]--; used--;
#ifndef STICKY
  if
  :: inflight[b] == 0 -> free_claim(b)
  :: else
  fi;
#endif
  b = 0
}

proctype Consumer(byte me) {
  byte cursor, p, b, k, word, verdict, used;
  byte pos[BUCKETS], bound[BUCKETS], inflight[BUCKETS];
  bool provisional[BUCKETS], got, took_one;
#ifdef WALKS
  bool inherits[BUCKETS], passed[BUCKETS], seen[MESSAGES];
#endif
end_loop:
  do
  :: used < CREDIT && !took_one && cursor != 255 ->
search:
     atomic { FATE; wake[me] = false }
again:
#ifndef FAULT_IGNORE_FREED
     b = 0;
     do
     :: b < BUCKETS ->
        atomic { FATE; got = freed[b] && claims[b] == 0 }
        if
        :: got -> claim(b)
        :: else
        fi;
        b++
     :: else -> break
     od;
     b = 0;
#endif
#if defined(WALKS) && !defined(FAULT_FORGETS)
     do
     :: b < BUCKETS ->
        atomic {
          if
          :: passed[b] && provisional[b] -> forget_seen()
          :: else
          fi
        }
        b++
     :: else -> break
     od;
     b = 0;
#endif
     /* returned messages */
     p = 0;
     do
     :: p < MESSAGES && !took_one ->
        atomic { FATE; got = marked[p] && cell[p] == AVAILABLE }
        if
        :: got ->
           admits(p, false);
           if
           :: verdict == AGAIN -> p = 0; goto again
           :: verdict == OK ->
              take(p);
              if
              :: got -> took(p)
              :: else -> p++
              fi
           :: else -> p++
           fi
        :: else -> p++
        fi
     :: else -> break
     od;
     if
     :: took_one -> goto found
     :: else -> p = 0
     fi;
#ifndef WALKS
     /* behind the cursor */
     b = 0;
     do
     :: b < BUCKETS && !took_one ->
        atomic { FATE; got = OWNER(claims[b]) == me + 1 }
        do
        :: got && !took_one && pos[b] < bound[b] && pos[b] < cursor ->
           p = pos[b];
           if
           :: BUCKET(p) == b -> take(p); if :: got -> took(p) :: else fi; got = true
           :: else
           fi;
           pos[b] = p + 1
        :: else -> break
        od;
        b++
     :: else -> break
     od;
     if
     :: took_one -> p = pos[0]; b = 0; goto found_behind
     :: else -> p = 0; b = 0
     fi;
#endif
     /* from the cursor on */
#ifdef WALKS
     do
     :: p < MESSAGES && !took_one ->
        atomic { FATE; got = cell[p] == AVAILABLE && !seen[p]; if :: !got && cell[p] != FREE -> seen[p] = true :: else fi }
        if
        :: !got -> p++
        :: got ->
           admits(p, false);
           if
           :: verdict == AGAIN -> p = 0; goto again
           :: verdict == OK ->
              take(p);
              if
              :: got -> took(p); seen[p] = true
              :: else
              fi
           :: else -> atomic { seen[p] = true; passed[BUCKET(p)] = true; p++ }
           fi
        fi
     :: else -> break
     od;
#else
     do
     :: cursor < MESSAGES && !took_one ->
        atomic { FATE; got = cell[cursor] == AVAILABLE; verdict = (cell[cursor] == FREE) }
        if
        :: !got && verdict -> break
        :: !got && !verdict -> cursor++
        :: got ->
           admits(cursor, true);
           if
           :: verdict == AGAIN ->
              may_go_on(BUCKET(cursor));
              if
              :: !got -> goto again
              :: else -> verdict = OK
              fi
           :: else
           fi;
           if
           :: verdict == OK ->
              p = cursor;
              take(p);
              if
              :: got -> took(p); pos[BUCKET(p)] = p + 1; cursor = p + 1
              :: else
              fi;
              p = 0
           :: else -> cursor++
           fi
        fi
     :: else -> break
     od;
#endif
     verdict = 0;
     atomic { got = took_one; p = 0 }
     goto finish;
found_behind:
found:
     p = 0;
finish:
     end_provisional();
     got = false;
     if
     :: took_one -> took_one = false
     :: else -> /* EMPTY: sleeps, while it has credit */
        idle[me] = used < CREDIT;
end_wait:
        if
        :: atomic { wake[me] -> idle[me] = false; goto search }
        :: atomic { used > 0 -> idle[me] = false }
#ifdef STICKY
        :: atomic { used == 0 && !left_[me] && !keeps[me] && me < LEAVERS -> idle[me] = false; left_[me] = true; goto leave }
#endif
        fi
     fi
  :: used > 0 && !keeps[me] -> /* ends one of its messages */
     p = 0;
     do
     :: p < MESSAGES && cell[p] != HELD + me -> p++
     :: else -> break
     od;
     assert(p < MESSAGES);
     if
     :: true -> atomic { FATE; cell[p] = TOMBSTONE }
        ended(p)
     :: atomic { returns < RETURNS -> returns++ }
#ifdef FAULT_FREE_BEFORE
        ended(p);
        atomic { FATE; marked[p] = true }
        atomic { FATE; cell[p] = AVAILABLE }
#else
        atomic { FATE; marked[p] = true }
        atomic { FATE; cell[p] = AVAILABLE }
        ended(p);
#endif
        notify_all()
     :: atomic { keepers < HOLDERS -> keepers++; keeps[me] = true }
     fi;
     p = 0
  :: keeps[me] && used >= CREDIT -> break
  od;
  goto out;
#ifdef STICKY
leave:
  b = 0;
  do
  :: b < BUCKETS ->
     atomic { FATE; got = OWNER(claims[b]) == me + 1 }
     if
     :: got -> free_claim(b)
     :: else
     fi;
     b++
  :: else -> break
  od;
  goto out;
#endif
dead:
  atomic { dead_[me] = true; idle[me] = false }
out:
  atomic { p = 0; b = 0; k = 0; word = 0; verdict = 0; got = false; took_one = false; cursor = 0 }
}

inline tell_all() {
  wake[0] = true; wake[1] = true
#if CONSUMERS > 2
  ; wake[2] = true
#endif
}

/* P36: sb_notify_group_arrived */
inline put(at) {
  cell[at] = AVAILABLE;
  owner = OWNER(claims[BUCKET(at)]);
  if
  :: owner == 0 -> atomic { tell_all() }
  :: else ->
     wake[owner - 1] = true;
#ifndef FAULT_TELLS_CLAIMANT_ONLY
     atomic {
       if
       :: OWNER(claims[BUCKET(at)]) == owner ->
          if :: claims[BUCKET(at)] < PASSED -> claims[BUCKET(at)] = claims[BUCKET(at)] | PASSED :: else fi
       :: else -> tell_all()
       fi
     }
#endif
  fi;
  owner = 0
}

proctype Producer() {
  byte p, owner;
#ifdef WALKS
  do
  :: p < MESSAGES -> put(MESSAGES - 1 - p); p++ /* the highest priority comes last */
  :: else -> break
  od;
#else
  do
  :: p < MESSAGES -> put(p); p++
  :: else -> break
  od;
#endif
  p = 0
}

#if KILLS > 0
proctype Reaper() {
  byte me, p, b, k;
  bool got;
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> me = 0
    :: dead_[1] && !reaped[1] -> me = 1
#if CONSUMERS > 2
    :: dead_[2] && !reaped[2] -> me = 2
#endif
    fi
  }
#ifdef FAULT_CLAIMS_FIRST
#define FIRST 1
#else
#define FIRST 0
#endif
  if
  :: FIRST -> goto buckets
  :: else
  fi;
cells:
  do
  :: p < MESSAGES ->
     if
     :: cell[p] == HELD + me ->
        atomic { FATE; marked[p] = true }
        atomic { FATE; if :: cell[p] == HELD + me -> cell[p] = AVAILABLE :: else fi }
     :: else
     fi;
     p++
  :: else -> break
  od;
  p = 0;
  if
  :: FIRST -> goto notify
  :: else
  fi;
buckets:
  do
  :: b < BUCKETS ->
     atomic { FATE; if :: OWNER(claims[b]) == me + 1 -> claims[b] = 0 :: else fi }
     atomic { FATE; if :: claims[b] == 0 -> freed[b] = true :: else fi }
     b++
  :: else -> break
  od;
  b = 0;
  if
  :: FIRST -> goto cells
  :: else
  fi;
notify:
  notify_all();
  atomic { FATE; reaped[me] = true; me = 0 }
  goto end_begin;
dead:
  atomic { me = 0; p = 0; b = 0; k = 0; got = false }
  goto end_begin
}
#endif

proctype Judge() {
  byte p, k;
  bool credit;
  timeout;
  atomic {
    do
    :: k < CONSUMERS -> credit = credit || idle[k]; k++
    :: else -> break
    od;
    do
    :: p < MESSAGES ->
       assert(cell[p] != FREE || kills > 0);
       assert(cell[p] != AVAILABLE || !credit || claims[BUCKET(p)] != 0);
       assert(cell[p] != AVAILABLE || !credit || !idle[OWNER(claims[BUCKET(p)]) - 1]);
       p++
    :: else -> break
    od;
    p = 0;
    do
    :: p < BUCKETS ->
       assert(claims[p] == 0 || !dead_[OWNER(claims[p]) - 1]);
#ifndef STICKY
       assert(claims[p] == 0 || keeps[OWNER(claims[p]) - 1]);
#else
       assert(claims[p] == 0 || !left_[OWNER(claims[p]) - 1]);
#endif
       p++
    :: else -> break
    od
  }
}

init {
  byte i;
  atomic {
    do
    :: i < CONSUMERS -> run Consumer(i); i++
    :: else -> break
    od;
    run Producer();
#if KILLS > 0
    run Reaper();
#endif
    run Judge();
    i = 0
  }
}
