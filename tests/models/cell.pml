/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of one queue: slab slot and ring cell together.
 *
 * Mirrors: sb_slab.c take, sb_slab_free, sb_slab_drop, sb_slab_drop_last; sb_queue.c sb_queue_enqueue; sb_take.c
 *   take_cell, is_excess, took, sb_take_oldest, sb_take_victim; sb_settle.c finish, settle; sb_release.c
 *   sb_release_message; sb_view.c sb_view_drop; sb_limits.c sb_limits_enforce, evict, sb_limits_remove (purge);
 *   sb_hints.c sb_hints_reconcile; sb_ledger.h sb_ledger_hinting; sb_ledger.c sb_ledger_changes, sb_ledger_inherit;
 *   sb_intent.c resolve_enqueue, resolve_settle, sb_intent_release_cell; sb_recover.c settle_slot, visit_slots,
 *   visit_cells, correct_hints, end_hinting, visit_ledgers, recover.
 * Abstracted: pages and hints (any AVAILABLE cell may be found, see pages.pml), notification (notify.pml), bytes,
 *   the further references of a moved message. With EVICT=n a ring of n; with KEEPER somebody reconciles beside all others.
 *
 * Claims: a message is given to nobody after its end, and ended once (no double ack); whoever holds a message finds its
 *   slot published and its payload unchanged; a message whose put returned is there, ended, or in the hands of somebody
 *   stopped; after reaping no slot and no cell is owned by the dead, and added = ended + there, exactly. With EVICT=n: never
 *   is anything evicted when less than n remain, and at rest no more than n are pending; `taken` is never too low, and
 *   exact at rest, if nobody was killed. While it is too high because of somebody dead, his ledger is marked, or others are. A consumer passes no message over that comes back from an eviction afterwards,
 *   unless somebody returned an older one.
 *
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=1 -DSTOPS=1 -DVIEWS
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=2 -DSLOTS=1 -DVIEWS
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=0
 * quick: -DPRODUCERS=1 -DCONSUMERS=2 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKEEPER
 * quick: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKILLS=1
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DKEEPER
 * full: -DPRODUCERS=1 -DCONSUMERS=2 -DMESSAGES=2 -DEVICT=1
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DPURGERS=1 -DMESSAGES=2 -DEVICT=1
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=3 -DEVICT=1
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DKILLS=1 -DSTOPS=1
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKILLS=2
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=1 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKILLS=1 -DKEEPER
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=2 -DVIEWS
 * full: -DPRODUCERS=2 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=1 -DSTOPS=1
 * full: -DPRODUCERS=1 -DCONSUMERS=2 -DMESSAGES=2 -DKILLS=1 -DSTOPS=1
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DPURGERS=1 -DMESSAGES=2 -DKILLS=1
 * full: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=3 -DKILLS=2 -DSTOPS=1 -DVIEWS
 * bitstate: -DPRODUCERS=2 -DCONSUMERS=2 -DMESSAGES=2 -DKILLS=1 -DSTOPS=1 -DVIEWS -w33 -Q2
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=1 -DFAULT_NO_INTENT
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=1 -DFAULT_ROLL_BACK
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=2 -DSLOTS=1 -DVIEWS -DFAULT_NO_GENERATION
 * full fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=1 -DKILLS=1 -DFAULT_ADD
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DKILLS=2 -DFAULT_FREE_AT_ONCE
 * fault: -DPRODUCERS=1 -DCONSUMERS=2 -DMESSAGES=2 -DEVICT=1 -DFAULT_NO_SECOND_LOOK
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DFAULT_TAKEN_FIRST
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DFAULT_TAKE_THEN_SPARE
 * full fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKEEPER -DFAULT_IGNORE_MARKS
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKILLS=2 -DFAULT_GIVE_UP_FIRST
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKILLS=1 -DFAULT_UNMARK_FIRST
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKEEPER -DFAULT_MARKS_AFTER
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKEEPER -DFAULT_PAY_UNMARKED
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=1 -DEVICT=1 -DNACKS=0 -DPOLLS=0 -DKILLS=1 -DKEEPER -DFAULT_REAP_UNMARKED
 * fault: -DPRODUCERS=1 -DCONSUMERS=1 -DMESSAGES=2 -DEVICT=1 -DFAULT_LOWERED_SILENTLY
 */
#include "common.h"

#ifndef PRODUCERS
#define PRODUCERS 1
#endif
#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef PURGERS
#define PURGERS 0
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef NACKS
#define NACKS 1
#endif
#define ACTORS (PRODUCERS + CONSUMERS + PURGERS)
#define NOBODY 15
#define NOWHERE 15

/* slot header: state, reference or owner, generation */
#define FREE 0
#define ALLOC 1
#define PUBLISHED 3
/* cell */
#define EMPTY 0
#define AVAILABLE 2
#define ACQUIRED 4
#define REMOVING 5
#define SETTLED 6
#define TOMBSTONE 7
/* intent */
#define NONE 0
#define ENQUEUE 1
#define SETTLE 2

byte h_state[SLOTS], h_owner[SLOTS], h_gen[SLOTS]; /* a published slot has one reference; without it, it is FREE */
byte body[SLOTS];
byte cell_state[MESSAGES], cell_slot[MESSAGES], cell_owner[MESSAGES], cell_gen[MESSAGES]; /* cell_gen: the side record */
bool cell_redelivered[MESSAGES];

/* each connection's holdings and ledger */
byte hold_slot[ACTORS], hold_gen[ACTORS];            /* NOWHERE: none */
byte hold_cell[ACTORS];
byte i_kind[ACTORS], i_position[ACTORS], i_slot[ACTORS], i_gen[ACTORS], i_before[ACTORS];
byte added[ACTORS], ended[ACTORS];
bool dead_[ACTORS], halted_[ACTORS], reaped[ACTORS], gone[ACTORS];
byte reaper_halted;

/* what only the claims know */
byte made, nacks, cell_body[MESSAGES], ends[MESSAGES];
bool returned_[MESSAGES];
#ifdef EVICT
bool passed[MESSAGES]; /* a consumer took a newer one while this one was taken to be evicted */
#define TAIL ((cell_state[0] != EMPTY) + (MESSAGES > 1 && cell_state[1 % MESSAGES] != EMPTY) + (MESSAGES > 2 && cell_state[2 % MESSAGES] != EMPTY))
#define READY ((cell_state[0] == AVAILABLE) + (MESSAGES > 1 && cell_state[1 % MESSAGES] == AVAILABLE) + (MESSAGES > 2 && cell_state[2 % MESSAGES] == AVAILABLE))
short taken; /* the hint; the tail is counted from the cells */
#define NEVER_TOO_LOW assert(TAIL - taken <= READY) /* I23: nothing more is evicted than has to be */
#define LOWER_TAKEN atomic { FATE; taken--; NEVER_TOO_LOW }
byte polls;
#endif

/* The marks of ledgers: how deep, and for each reconciler whether it was raised since he looked (in C a count of that). */
#ifdef EVICT
#if KILLS > 0 || defined(KEEPER)
#define HINTS
#define REAPING 0
#define KEEPING 1
byte hinting[ACTORS];
bool quiet[2 * ACTORS];
#define MARK(a) atomic { FATE; hinting[a]++; quiet[a] = false; quiet[ACTORS + a] = false }
#define UNMARK(a) atomic { FATE; hinting[a]-- }
#define MARKED(a) ((a) < ACTORS && hinting[(a) % ACTORS] != 0)
#define MARKED_OR_RIGHT assert(!r_right || MARKED(0) || MARKED(1) || MARKED(2) || MARKED(3) || TAIL - taken == READY)
#endif
#endif
#ifndef HINTS
#define MARK(a) skip
#define UNMARK(a) skip
#endif
/* An evictor is marked from before it pays until it has its victim. Reconciled in between, `taken` is one too low:
 * of two in a ring of one it evicts both. */
#ifdef FAULT_PAY_UNMARKED
#define MARK_PAYING skip
#define UNMARK_PAYING skip
#define MARK_INSIDE MARK(me)
#define UNMARK_INSIDE UNMARK(me)
#else /* what is inside is marked already */
#define MARK_PAYING MARK(me)
#define UNMARK_PAYING UNMARK(me)
#define MARK_INSIDE skip
#define UNMARK_INSIDE skip
#endif

#define OWNED(p) (cell_state[p] == ACQUIRED || cell_state[p] == REMOVING || cell_state[p] == SETTLED)
#define END(m) ends[m]++; assert(ends[m] == 1)

/* ---- slab ---- */

inline drop(p) { /* finish() up to the reference; the slot is s, its generation g */
  atomic {
    FATE;
    fast = h_state[s] == PUBLISHED && h_gen[s] == g
  }
  if
  :: fast -> /* sb_slab_drop_last: a plain store */
     atomic {
       FATE;
       assert(h_state[s] == PUBLISHED && h_gen[s] == g); /* nobody but its holder writes that header */
       if
       :: cell_state[p] != SETTLED -> END(cell_body[p])
       :: else
       fi;
       h_state[s] = FREE; h_gen[s] = g + 1
     }
  :: else -> assert(false)
  fi;
  atomic {
    FATE;
    assert(cell_owner[p] == me && OWNED(p));
    cell_state[p] = TOMBSTONE
  }
}

/* ---- queue ---- */

inline enqueue() { /* of slot s with generation g; p is where it goes */
  atomic {
    FATE;
    i_position[me] = NOWHERE; i_slot[me] = s; i_gen[me] = g; i_before[me] = added[me];
#ifndef FAULT_NO_INTENT
    i_kind[me] = ENQUEUE
#endif
  }
  atomic { FATE; h_state[s] = PUBLISHED; h_owner[s] = NOBODY }
  p = 0;
  do
  :: atomic { cell_state[p] == EMPTY -> FATE; i_position[me] = p }
     atomic {
       FATE;
       if
       :: cell_state[p] == EMPTY ->
          cell_state[p] = AVAILABLE; cell_slot[p] = s; cell_owner[p] = NOBODY; cell_body[p] = body[s];
          break
       :: else
       fi
     }
  :: atomic { cell_state[p] != EMPTY -> p++ }
  od;
  atomic { FATE; added[me] = i_before[me] + 1 }
  atomic { FATE; i_kind[me] = NONE }
  atomic { FATE; hold_slot[me] = NOWHERE; returned_[body_of] = true }
}

/* takes position p, which was seen AVAILABLE, into state `to`; got tells */
inline take(to) {
  atomic { FATE; hold_cell[me] = p }
  atomic {
    FATE;
    if
    :: cell_state[p] == AVAILABLE ->
       cell_state[p] = to; cell_owner[p] = me; got = true; s = cell_slot[p];
#ifdef EVICT
       passed[0] = passed[0] || (to == ACQUIRED && p > 0 && cell_state[0] == REMOVING);
       passed[1 % MESSAGES] = passed[1 % MESSAGES] || (to == ACQUIRED && p > 1 && cell_state[1 % MESSAGES] == REMOVING);
#endif
       assert(ends[cell_body[p]] == 0)
    :: else -> got = false
    fi
  }
  if
  :: got ->
     atomic {
       FATE;
       assert(h_state[s] == PUBLISHED);
       g = h_gen[s];
       cell_gen[p] = g
     }
  :: else -> atomic { FATE; hold_cell[me] = NOWHERE }
  fi
}

inline settle() {
  atomic {
    FATE;
    i_position[me] = p; i_slot[me] = s; i_gen[me] = g; i_before[me] = ended[me]; i_kind[me] = SETTLE
  }
  drop(p);
  atomic { FATE; ended[me] = i_before[me] + 1 }
  atomic { FATE; i_kind[me] = NONE }
  atomic { FATE; hold_cell[me] = NOWHERE }
}

inline settle_keeping_view() {
  atomic {
    FATE;
    i_position[me] = p; i_slot[me] = s; i_gen[me] = g; i_before[me] = ended[me]; i_kind[me] = SETTLE
  }
  atomic { FATE; assert(cell_owner[p] == me); cell_state[p] = SETTLED; END(cell_body[p]) }
  atomic { FATE; ended[me] = i_before[me] + 1 }
  atomic { FATE; i_kind[me] = NONE }
  assert(h_state[s] == PUBLISHED && body[s] == cell_body[p]); /* the view */
  drop(p);
  atomic { FATE; hold_cell[me] = NOWHERE }
}

inline release(mark) {
  atomic { FATE; cell_redelivered[p] = cell_redelivered[p] || mark }
  flip()
  atomic { FATE; hold_cell[me] = NOWHERE }
}

inline flip() {
  atomic {
    FATE;
    assert(cell_owner[p] == me && OWNED(p));
    cell_state[p] = AVAILABLE; cell_owner[p] = NOBODY
  }
#ifdef EVICT
  LOWER_TAKEN
#endif
}

inline oldest() { /* any cell may be the first AVAILABLE one for somebody: cursors differ */
  if
  :: cell_state[0] == AVAILABLE -> p = 0
#if MESSAGES > 1
  :: cell_state[1] == AVAILABLE -> p = 1
#endif
#if MESSAGES > 2
  :: cell_state[2] == AVAILABLE -> p = 2
#endif
#if MESSAGES > 3
  :: cell_state[3] == AVAILABLE -> p = 3
#endif
  :: else -> p = NOWHERE
  fi
}

#ifdef EVICT
/* sb_limits_enforce: pay, then take the victim. What was seen when it was paid for may be over: a consumer took the older one.
 * So the evictor looks again just before it takes the victim (is_excess), and leaves it if that was not too many. It puts it
 * back if an older one came back meanwhile. In both cases it begins anew, since somebody may have relied on what was paid. An
 * eviction is right if as many as the limit remained when it was decided. */
#define DECIDED right = READY - (cell_state[p] == AVAILABLE) >= EVICT
inline enforce() {
  do
  :: atomic { FATE; before = taken }
     if
     :: atomic { TAIL - before <= EVICT -> break }
     :: atomic { else -> skip }
     fi;
     MARK_PAYING;
     atomic {
       FATE;
       if
       :: taken == before -> taken++; got = true
       :: else -> got = false
       fi
     }
     if
     :: got ->
        MARK_INSIDE;
        do
        :: atomic {
             if
             :: cell_state[0] == AVAILABLE -> p = 0
             :: else ->
                if
                :: cell_state[1 % MESSAGES] == AVAILABLE -> p = 1 % MESSAGES
                :: else ->
                   if
                   :: cell_state[2 % MESSAGES] == AVAILABLE -> p = 2 % MESSAGES
                   :: else -> p = NOWHERE
                   fi
                fi
             fi
           }
           if
           :: p == NOWHERE -> got = false; break
           :: else ->
#ifdef FAULT_TAKEN_FIRST /* a message that comes, and one that goes, between the two: more seem to remain than ever did */
              atomic { FATE; before = taken }
              atomic { FATE; fast = TAIL - before >= EVICT; DECIDED }
#else
              atomic { FATE; before = TAIL }
              atomic {
                FATE;
                fast = before - taken >= EVICT;
#ifdef FAULT_NO_SECOND_LOOK /* 1 of 2 is paid for, a consumer takes the older one, and the newer one is the victim */
                fast = true;
#endif
                DECIDED
              }
#endif
#ifndef FAULT_TAKE_THEN_SPARE /* while it is taken, a consumer takes a newer one, and gets this one afterwards */
              if
              :: !fast -> got = false; break
              :: else
              fi;
#endif
              take(REMOVING);
              if
              :: got -> assert(!fast || right); /* I24 */ break
              :: else
              fi
           fi
        od;
        UNMARK_INSIDE;
        if
        :: got ->
           atomic { FATE; fast = fast && !((p > 0 && cell_state[0] == AVAILABLE) || (p > 1 && cell_state[1 % MESSAGES] == AVAILABLE)) }
           if
           :: fast -> settle()
           :: else ->
              MARK_INSIDE;
              atomic { assert(!passed[p] || nacks > 0); passed[p] = false } /* I24 */
              release(false);
              UNMARK_INSIDE
           fi
        :: else ->
           LOWER_TAKEN
#ifdef FAULT_LOWERED_SILENTLY
           UNMARK_PAYING;
           break
#endif
        fi
     :: else
     fi;
     UNMARK_PAYING;
     atomic { got = false; p = 0; s = 0; g = 0; before = 0; fast = false; right = false }
  od;
  atomic { got = false; p = 0; s = 0; g = 0; before = 0; fast = false; right = false }
}
/* I42: whoever lowers `taken` without a message that is gone (a get that found nothing, a purge that leaves the rest alone,
 * an evictor without a victim) looks whether that is too many now. Producers who saw it raised did not evict: get
 * raises and finds nothing, two puts see one pending, get lowers; two remain in a ring of one. */
#ifdef FAULT_LOWERED_SILENTLY
#define ENFORCE_AFTER skip
#else
#define ENFORCE_AFTER enforce()
#endif

/* sb_take_oldest: before the CAS, in queues that evict; got tells */
inline get(to) {
  MARK(me);
  atomic { FATE; taken++ }
  do
  :: oldest();
     if
     :: p == NOWHERE -> got = false; break
     :: p != NOWHERE
     :: p != NOWHERE && to == REMOVING -> got = false; break /* a purge: it came after that began */
     fi;
     take(to);
     if
     :: got -> break
     :: else
     fi
  od;
  if
  :: !got -> LOWER_TAKEN
  :: else
  fi;
  UNMARK(me)
}
#else
inline enforce() { skip }
#define ENFORCE_AFTER skip
inline get(to) { take(to) }
#endif

/* ---- actors ---- */

#define FALL dead_[me] = true
#ifndef POLLS
#define POLLS 1
#endif

proctype Producer(byte me) {
  byte s, g, p, body_of;
  short before;
  bool got, fast, right;
again:
  atomic {
    if
    :: made < MESSAGES -> body_of = made; made++
    :: else -> goto out
    fi
  }
end_full:
  do /* sb_slab.c take: announced, then CAS FREE -> ALLOC(me) */
  :: atomic {
       if
       :: h_state[0] == FREE -> s = 0
#if SLOTS > 1
       :: h_state[1] == FREE -> s = 1
#endif
#if SLOTS > 2
       :: h_state[2] == FREE -> s = 2
#endif
       fi;
       FATE;
       g = h_gen[s]; hold_slot[me] = s; hold_gen[me] = g
     }
     atomic {
       FATE;
       if
       :: h_state[s] == FREE && h_gen[s] == g -> h_state[s] = ALLOC; h_owner[s] = me; body[s] = body_of; break
       :: else
       fi
     }
  od;
  enqueue();
  p = 0; s = 0; g = 0; body_of = 0;
  enforce();
  goto again;
dead:
  atomic { FALL }
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; s = 0; g = 0; p = 0; body_of = 0; before = 0; got = false; fast = false; right = false }
}

proctype Consumer(byte me) {
  byte s, g, p;
  bool got, fast, right;
#ifdef EVICT
  short before;
#endif
again:
#ifdef EVICT
end_again:
  if
  :: atomic { READY > 0 }
  :: atomic { polls < POLLS -> polls++ } /* it does not wait */
  :: atomic { true -> goto out } /* it leaves: nobody but evictors takes what is there then */
  fi;
#else
  atomic {
    oldest();
    if
    :: p == NOWHERE -> p = 0; goto wait
    :: else
    fi
  }
#endif
  get(ACQUIRED);
  if
  :: got ->
     atomic {
       assert(h_state[s] == PUBLISHED && h_gen[s] == g && body[s] == cell_body[p]);
       if
       :: true -> got = false
       :: nacks < NACKS -> nacks++
       fi
     }
     if
     :: got ->
        MARK(me);
        release(true);
        UNMARK(me);
        atomic { got = false; s = 0; g = 0; p = 0 }
        enforce()
     :: else ->
        if
        :: settle()
#ifdef VIEWS
        :: settle_keeping_view()
#endif
        fi
     fi
  :: else -> ENFORCE_AFTER
  fi;
  atomic { s = 0; g = 0; p = 0; got = false; fast = false; right = false }
  goto again;
#ifndef EVICT
wait:
end_wait:
  (cell_state[0] == AVAILABLE || (MESSAGES > 1 && cell_state[1 % MESSAGES] == AVAILABLE) ||
   (MESSAGES > 2 && cell_state[2 % MESSAGES] == AVAILABLE) || (MESSAGES > 3 && cell_state[3 % MESSAGES] == AVAILABLE));
  goto again;
#endif
dead:
  atomic { FALL }
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; s = 0; g = 0; p = 0; got = false; fast = false; right = false }
}

#if PURGERS > 0
proctype Purger(byte me) { /* one pass of sb_limits_remove; it leaves alone what came after it began, which may be any */
  byte s, g, p;
  bool got, fast, right;
#ifdef EVICT
  short before;
#endif
again:
#ifndef EVICT
  atomic {
    oldest();
    if
    :: goto out
    :: p != NOWHERE
    fi
  }
#endif
  get(REMOVING);
  if
  :: got -> settle()
  :: else ->
#ifdef EVICT
     ENFORCE_AFTER;
     goto out
#else
     skip
#endif
  fi;
  atomic { s = 0; g = 0; p = 0; got = false; fast = false; right = false }
  goto again;
dead:
  atomic { FALL }
  goto out;
halted:
  halted_[me] = true;
out:
  atomic { gone[me] = true; s = 0; g = 0; p = 0; got = false; fast = false; right = false }
}
#endif

#ifdef HINTS
/* sb_hints_reconcile: sets `taken` right by what the cells say. If no ledger is marked before, and none was raised
 * since, however short. Marks that are looked at only afterwards say nothing: a consumer raises `taken`, both readings see
 * that and the cell AVAILABLE, it takes the cell and lowers its mark; `taken` is lowered, and the next put evicts itself. */
inline read_queue() {
  atomic { FATE; r_tail = TAIL }
  atomic { FATE; r_taken = taken }
  r_ready = 0; r_at = 0;
  do
  :: r_at < r_tail -> atomic { FATE; r_ready = r_ready + (cell_state[r_at] == AVAILABLE); r_at++ }
  :: else -> break
  od;
  r_at = 0
}
inline reconcile(k, but) { /* the marks of `but`, who is dead and holds no cell any more, say nothing */
  r_ok = true;
#if !defined(FAULT_MARKS_AFTER) && !defined(FAULT_IGNORE_MARKS)
  r_at = 0;
  do
  :: r_ok && r_at < ACTORS ->
     atomic { FATE; r_ok = hinting[r_at] == 0 || r_at == but; quiet[(k) * ACTORS + r_at] = r_ok; r_at++ }
  :: else -> break
  od;
#endif
  if
  :: r_ok ->
     read_queue();
#if defined(FAULT_MARKS_AFTER) || defined(FAULT_IGNORE_MARKS)
     r_was = r_taken + 16 * r_tail + 64 * r_ready;
     read_queue();
     r_ok = r_was == r_taken + 16 * r_tail + 64 * r_ready;
#endif
#ifdef FAULT_MARKS_AFTER
     do
     :: r_ok && r_at < ACTORS -> atomic { FATE; r_ok = hinting[r_at] == 0; r_at++ }
     :: else -> break
     od;
#elif !defined(FAULT_IGNORE_MARKS)
     do
     :: r_ok && r_at < ACTORS -> atomic { FATE; r_ok = quiet[(k) * ACTORS + r_at]; r_at++ }
     :: else -> break
     od;
#endif
     if
     :: r_ok && r_taken != r_tail - r_ready ->
        atomic { FATE; if :: taken == r_taken -> taken = r_tail - r_ready; NEVER_TOO_LOW :: else -> r_ok = false fi }
     :: else
     fi
  :: else
  fi;
  atomic {
    r_right = r_ok; r_ok = false; r_at = 0; r_tail = 0; r_taken = 0; r_ready = 0; r_was = 0; r_any = 0;
    do
    :: r_any < ACTORS -> quiet[(k) * ACTORS + r_any] = false; r_any++
    :: else -> r_any = 0; break
    od
  }
}
#define RECONCILES byte r_at, r_any; short r_tail, r_taken, r_ready, r_was; bool r_ok, r_right
#endif

#ifdef KEEPER
proctype Keeper() { /* a tick of the housekeeper, at any time */
  RECONCILES;
  reconcile(KEEPING, NOWHERE);
  goto out;
dead:
halted:
out:
  atomic { r_ok = false; r_at = 0; r_tail = 0; r_taken = 0; r_ready = 0; r_was = 0; r_any = 0 }
}
#endif

/* ---- reaper: whoever has the lock of the dead; killed, another begins from the start ---- */

#if KILLS > 0
#ifdef FAULT_ADD
#define RAISE(counter) atomic { FATE; counter++ }
#else
#define RAISE(counter) /* raise_to: CAS before -> before + 1 */ \
  atomic {                                                       \
    FATE;                                                        \
    if                                                           \
    :: counter == i_before[d] -> counter = i_before[d] + 1       \
    :: else                                                      \
    fi                                                           \
  }
#endif

#ifdef EVICT
#define FORGET d = 0; s = 0; p = 0; g = 0; hs = 0; hg = 0; happened = false; found = false; there = false; \
  me = 0; before = 0; got = false; fast = false; r_ok = false; r_at = 0; r_any = 0; r_tail = 0; r_taken = 0; r_ready = 0; r_was = 0
#else
#define FORGET d = 0; s = 0; p = 0; g = 0; hs = 0; hg = 0; happened = false; found = false; there = false
#endif

proctype Reaper() {
  byte d, s, p, g, hs, hg;
  bool happened, found, there;
#ifdef EVICT
  byte me;
  short before;
  bool got, fast, right;
  RECONCILES;
#endif
begin:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
#if ACTORS > 1
    :: dead_[1] && !reaped[1] -> d = 1
#endif
#if ACTORS > 2
    :: dead_[2] && !reaped[2] -> d = 2
#endif
#if ACTORS > 3
    :: dead_[3] && !reaped[3] -> d = 3
#endif
    fi
  }
  /* judge: the dead's own line does not change under us */
  if
  :: i_kind[d] == ENQUEUE ->
     s = i_slot[d];
     do
     :: atomic { FATE; hs = h_state[s]; hg = h_gen[s] }
        if
        :: hg == i_gen[d] && hs == ALLOC -> break /* freed with the other slots */
        :: else
        fi;
        if
        :: hg == i_gen[d] && hs == PUBLISHED ->
           atomic {
             FATE;
             p = i_position[d];
             there = false;
             if
             :: p != NOWHERE -> there = (cell_state[p] == AVAILABLE || OWNED(p)) && cell_slot[p] == s
             :: else
             fi
           }
#ifdef FAULT_ROLL_BACK
           there = false;
#endif
           if
           :: !there ->
              atomic {
                FATE;
                if
                :: h_state[s] != hs || h_gen[s] != hg -> skip /* it went while we looked: again */
                :: else -> happened = true /* here: not happened, to be freed */
                fi
              }
              if
              :: happened ->
                 happened = false;
                 atomic {
                   FATE;
                   if
#ifdef FAULT_FREE_AT_ONCE /* killed before the intent is cleared; the next reaper sees another generation: it had happened */
                   :: h_state[s] == hs && h_gen[s] == hg -> h_state[s] = FREE; h_gen[s] = hg + 1
#else
                   :: h_state[s] == hs && h_gen[s] == hg -> h_state[s] = ALLOC; h_owner[s] = d
#endif
                   :: else
                   fi
                 }
                 break
              :: else -> goto continue_
              fi
           :: else
           fi
        :: else
        fi;
        RAISE(added[d]);
        break;
continue_:
        skip
     od;
     atomic { FATE; i_kind[d] = NONE }
  :: i_kind[d] == SETTLE ->
     s = i_slot[d]; p = i_position[d];
     atomic { FATE; happened = !(h_state[s] == PUBLISHED && h_gen[s] == i_gen[d]) }
     atomic { FATE; found = OWNED(p) && cell_owner[p] == d; there = cell_state[p] == SETTLED && cell_owner[p] == d }
     if
     :: happened || there ->
        RAISE(ended[d]);
        if
        :: happened && found -> atomic { FATE; if :: OWNED(p) && cell_owner[p] == d -> cell_state[p] = TOMBSTONE :: else fi }
        :: else
        fi
     :: else
     fi;
     atomic { FATE; i_kind[d] = NONE }
  :: else
  fi;
  /* settle_slot */
  if
  :: hold_slot[d] != NOWHERE ->
     s = hold_slot[d];
     atomic { FATE; happened = h_state[s] == ALLOC && h_owner[s] == d && h_gen[s] == hold_gen[d] }
     if
     :: happened ->
        atomic {
          FATE;
          if
          :: h_state[s] == ALLOC && h_owner[s] == d && h_gen[s] == hold_gen[d] ->
             h_state[s] = FREE; h_owner[s] = NOBODY; h_gen[s] = hold_gen[d] + 1
          :: else
          fi
        }
     :: else
     fi
  :: else
  fi;
  /* sb_intent_release_cell */
#if defined(EVICT) && !defined(FAULT_REAP_UNMARKED) /* reconciled between the flip and the hint, `taken` is lowered twice */
  MARK(d);
#endif
  if
  :: hold_cell[d] != NOWHERE ->
     p = hold_cell[d];
     atomic { FATE; hs = cell_state[p]; found = OWNED(p) && cell_owner[p] == d; s = cell_slot[p]; g = cell_gen[p] }
     if
     :: found && hs == SETTLED ->
        atomic { /* sb_slab_drop: checks the generation of the side record */
          FATE;
#ifdef FAULT_NO_GENERATION
          if
          :: h_state[s] == PUBLISHED -> h_gen[s] = h_gen[s] + 1; h_state[s] = FREE
#else
          if
          :: h_state[s] == PUBLISHED && h_gen[s] == g -> h_state[s] = FREE; h_gen[s] = g + 1
#endif
          :: else
          fi
        }
        atomic { FATE; if :: cell_state[p] == SETTLED && cell_owner[p] == d -> cell_state[p] = TOMBSTONE :: else fi }
     :: found && hs != SETTLED ->
        if
        :: hs == ACQUIRED -> atomic { FATE; cell_redelivered[p] = true }
        :: else
        fi;
        atomic { FATE; if :: cell_state[p] == hs && cell_owner[p] == d -> cell_state[p] = AVAILABLE; cell_owner[p] = NOBODY :: else fi }
#ifdef EVICT
        LOWER_TAKEN
#endif
     :: else
     fi
  :: else
  fi;
#ifdef EVICT
  /* visit_ledgers: the ledger is the reaper's from here on; killed, it leaves it to its own reaper, who begins anew (so d is he) */
  me = d; p = 0; s = 0; g = 0; hs = 0; hg = 0; happened = false; found = false; there = false;
  /* A put that doubts `taken` looks for a mark of the dead: there is one until the hint is right, or others are changing it */
#ifdef FAULT_UNMARK_FIRST
  r_right = true;
#else
  reconcile(REAPING, d);
#endif
  atomic {
    FATE;
    hinting[d] = 0;
    MARKED_OR_RIGHT
  }
#ifdef FAULT_GIVE_UP_FIRST /* killed here, nobody goes on */
  atomic { reaped[d] = true; FATE; reaped[d] = false }
#endif
  if
  :: r_right
  :: else -> reconcile(REAPING, NOWHERE)
  fi;
  r_right = false;
  enforce();
#endif
  atomic { FATE; reaped[d] = true }
  atomic { FORGET }
  goto begin;
dead:
  atomic { FORGET }
  goto begin;
halted:
  atomic { reaper_halted = true; FORGET }
}
#endif

/* ---- the end ---- */

/* `excused`: somebody stopped, or dead and not reaped since the reaper stopped, may hold it */
#define EXCUSED(a) (halted_[a] || (dead_[a] && reaper_halted))

proctype Judge() {
  byte i, j, sum;
  bool there, excuse;
  timeout;
  atomic {
    i = 0;
    do
    :: i < ACTORS -> assert(!dead_[i] || reaped[i] || reaper_halted); i++
    :: else -> break
    od;
    i = 0;
    do /* no cell is owned by the dead */
    :: i < MESSAGES ->
       if
       :: OWNED(i) -> assert(EXCUSED(cell_owner[i]))
       :: else
       fi;
       if
       :: cell_state[i] == AVAILABLE -> /* nobody is left to take it */
          j = PRODUCERS; there = false;
          do
          :: j < PRODUCERS + CONSUMERS -> there = there || !gone[j]; j++
          :: else -> break
          od;
          assert(!there)
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    do /* nothing is lost: what was put is there, or ended */
    :: i < MESSAGES ->
       if
       :: returned_[i] && ends[i] == 0 ->
          there = false; j = 0;
          do
          :: j < MESSAGES -> there = there || ((cell_state[j] == AVAILABLE || OWNED(j)) && body[cell_slot[j]] == i && cell_body[j] == i); j++
          :: else -> break
          od;
          assert(there)
       :: else
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    do /* nothing leaks: a slot is free, or a cell names it, or somebody stopped has it */
    :: i < SLOTS ->
       there = h_state[i] == FREE; j = 0;
       do
       :: j < MESSAGES -> there = there || ((cell_state[j] == AVAILABLE || OWNED(j)) && cell_slot[j] == i); j++
       :: else -> break
       od;
       j = 0;
       do
       :: j < ACTORS -> there = there || (EXCUSED(j) && hold_slot[j] == i); j++
       :: else -> break
       od;
       assert(there);
       i++
    :: else -> break
    od;
    /* accounts are exact, if nobody stopped in the middle of one */
    excuse = false; i = 0; sum = 0;
    do
    :: i < ACTORS -> excuse = excuse || EXCUSED(i); sum = sum + added[i]; sum = sum - ended[i]; i++
    :: else -> break
    od;
    i = 0; j = 0;
    do
    :: i < MESSAGES -> j = j + (cell_state[i] == AVAILABLE || cell_state[i] == ACQUIRED || cell_state[i] == REMOVING); i++
    :: else -> break
    od;
    assert(excuse || sum == j);
#ifdef EVICT
    NEVER_TOO_LOW;
    assert(excuse || kills > 0 || TAIL - taken == READY);
    assert(excuse || TAIL - taken <= EVICT)
#endif
  }
}

init {
  byte i;
  atomic {
    i = 0;
    do
    :: i < MESSAGES -> cell_owner[i] = NOBODY; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < SLOTS -> h_owner[i] = NOBODY; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < ACTORS -> hold_slot[i] = NOWHERE; hold_cell[i] = NOWHERE; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < PRODUCERS -> run Producer(i); i++
    :: else -> break
    od;
    do
    :: i < PRODUCERS + CONSUMERS -> run Consumer(i); i++
    :: else -> break
    od;
#if PURGERS > 0
    run Purger(i);
#endif
    i = 0;
#if KILLS > 0
    run Reaper();
#endif
#ifdef KEEPER
    run Keeper();
#endif
    run Judge()
  }
}
