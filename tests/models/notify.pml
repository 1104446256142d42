/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is told of work: node states, the counts, notification, credit, the baton, two priorities, rescue.
 *
 * Mirrors: sb_notify.c sb_notify_work_arrived, sb_notify_backlog_arrived, sb_notify_one, sb_notify_node,
 *   sb_notify_higher_wants, sb_notify_above, sb_notify_pass_baton; sb_subscription.c sb_subscription_gives_way,
 *   sb_subscription_set_interested, sb_subscription_may_try; sb_consumer.c sb_consumer_deliver_one, starve,
 *   sb_consumer_turn, sb_consumer_pull, sb_consumer_resume, sb_consumer_wants_work, sb_consumer_detach; sb_nodes.c
 *   sb_node_move, count, sb_node_destroy, sb_nodes_recount, correct; sb_recover.c settle_slot (nodes), visit_cells,
 *   visit_ledgers, recover; sb_housekeeping.c sb_housekeeping_queue, ring_notified; sb_io.c look_everywhere.
 * Abstracted: a list is the set of nodes in that state, looked through one by one in any order (list.pml); a ring of the
 *   wake word and the flags of the connection are one flag that wakes for certain (wake.pml); the row of cells is the
 *   number of what is ready (cell.pml, pages.pml); the epoch of a node's word is a reservation that every change breaks.
 *   A count of a queue and that of its level change in one step, unless SPLIT. The clock ticks when all is at rest, so that the
 *   keeper need not compare what it sees with its last look (I37).
 *
 * Claims: nobody rests while a message is ready and somebody alive has credit: without faults never, after a kill or a stop
 *   not beyond TICKS ticks of the housekeeper, or one bounded sleep if it is the housekeeper who stopped; the wakes without a message taken or put are bounded.
 *
 * quick: -DMESSAGES=2
 * quick: -DMESSAGES=2 -DPRIORITIES
 * full: -DMESSAGES=2 -DSTOPS=1 -DSETTLES=0
 * full: -DMESSAGES=2 -DPREFETCH=2
 * full: -DMESSAGES=2 -DSTALE
 * full: -DMESSAGES=2 -DCLOSES=1
 * full: -DMESSAGES=2 -DPRIORITIES -DPREFETCH=2
 * full: -DMESSAGES=1 -DPRIORITIES -DSPLIT
 * full: -DMESSAGES=1 -DKILLS=1
 * full: -DMESSAGES=1 -DSETTLES=0 -DPRIORITIES -DKILLS=1
 * full: -DMESSAGES=2 -DSETTLES=0 -DPRODUCERS=2
 * full: -DMESSAGES=1 -DSETTLES=0 -DPRIORITIES -DKILLS=1 -DSTOPS=1
 * full: -DMESSAGES=1 -DSETTLES=0 -DKILLS=1 -DSTOPS=1
 * bitstate: -DMESSAGES=2 -DPRIORITIES -DKILLS=1 -DSTOPS=1 -w33 -Q2
 * bitstate: -DMESSAGES=2 -DPRODUCERS=2 -DKILLS=1 -DSTOPS=1 -w33 -Q2
 * fault: -DMESSAGES=2 -DSETTLES=0 -DFAULT_NO_BATON
 * fault: -DMESSAGES=1 -DSETTLES=0 -DFAULT_LOOK_FIRST
 * fault: -DMESSAGES=2 -DFAULT_LAST_ATTEMPT_NOTIFIED
 * fault: -DMESSAGES=2 -DPRIORITIES -DFAULT_BATON_DOWN
 * fault: -DMESSAGES=1 -DSETTLES=0 -DSTOPS=1 -DFAULT_ASK_ACCOUNTS
 * fault: -DMESSAGES=2 -DPRIORITIES -DKILLS=1 -DSTOPS=1 -DFAULT_BELIEVE_COUNTS
 */
#include "common.h"

#ifndef CONSUMERS
#define CONSUMERS 2
#endif
#ifndef PRODUCERS
#define PRODUCERS 1
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef PREFETCH
#define PREFETCH 1
#endif
#ifdef PRIORITIES
#define LEVELS 2
#define LEVEL(k) (k)
#else
#define LEVELS 1
#define LEVEL(k) 0
#endif
#ifndef SETTLES /* how many messages the applications settle in all */
#define SETTLES 1
#endif
#ifndef CLOSES
#define CLOSES 0
#endif
#ifndef TICKS
#define TICKS 5
#endif
#define PATIENCE 3
#ifndef WAKES
#define WAKES (3 * CONSUMERS + 2)
#endif
#define ACTORS (CONSUMERS + PRODUCERS + 2)
#define REAPER (CONSUMERS + PRODUCERS)
#define KEEPER (CONSUMERS + PRODUCERS + 1)

#define REMOVED 0
#define NOT_INTERESTED 1
#define INTERESTED 2
#define NOTIFIED 3

byte state[CONSUMERS];
byte watched[ACTORS]; /* the node whose word this actor read, plus one; 0 when the word changed since */
short level_interested[LEVELS], level_notified[LEVELS], interested, notified;
byte ready, held[CONSUMERS];
bool work[CONSUMERS], rescued[CONSUMERS], timed_out[CONSUMERS];
bool can_take[CONSUMERS]; /* alive, with credit */
bool dead_[CONSUMERS + PRODUCERS], owned[CONSUMERS + PRODUCERS], reaped[CONSUMERS + PRODUCERS];
bool reaper_halted, keeper_halted, tick;
#ifdef FAULT_ASK_ACCOUNTS
byte uncounted;
#endif
byte made, settles, closes, ticks, wakes;

/* ---- nodes ---- */

#ifdef SPLIT
#define ADD(n, which, by)                                                \
  atomic { FATE; level_##which[LEVEL(n)] = level_##which[LEVEL(n)] + by } \
  atomic { FATE; which = which + by }
#else
#define ADD(n, which, by) \
  atomic { FATE; level_##which[LEVEL(n)] = level_##which[LEVEL(n)] + by; which = which + by }
#endif

inline word_changes(n) {
  watched[0] = (watched[0] == n + 1 -> 0 : watched[0]);
  watched[1] = (watched[1] == n + 1 -> 0 : watched[1]);
  watched[2] = (watched[2] == n + 1 -> 0 : watched[2]);
  watched[3] = (watched[3] == n + 1 -> 0 : watched[3]);
#if ACTORS > 4
  watched[4] = (watched[4] == n + 1 -> 0 : watched[4]);
#endif
#if ACTORS > 5
  watched[5] = (watched[5] == n + 1 -> 0 : watched[5])
#endif
}

/* sb_node_move, taken apart by where from and where to (constants in C, so each is one path); ok tells */
inline read_word(n, one, other) {
  atomic { FATE; was = state[n]; ok = was == one || was == other; watched[self] = (ok -> n + 1 : 0) }
}
inline change_word(n, to) {
  atomic {
    FATE;
    if
    :: watched[self] == n + 1 -> word_changes(n); state[n] = to; ok = true
    :: else -> ok = false
    fi
  }
}

inline to_notified(n) { /* from INTERESTED */
  do
  :: read_word(n, INTERESTED, INTERESTED);
     if
     :: !ok -> break
     :: else
     fi;
     change_word(n, NOTIFIED);
     if
     :: ok -> ADD(n, notified, 1) ADD(n, interested, -1) break
     :: else
     fi
  od;
  was = 0
}

inline to_interested(n) { /* from NOT_INTERESTED */
  do
  :: read_word(n, NOT_INTERESTED, NOT_INTERESTED);
     if
     :: !ok -> break
     :: else
     fi;
     ADD(n, interested, 1) /* I29 */
     change_word(n, INTERESTED);
     if
     :: ok -> break
     :: else -> ADD(n, interested, -1)
     fi
  od;
  was = 0
}

inline back_to_interested(n) { /* from NOTIFIED */
  do
  :: read_word(n, NOTIFIED, NOTIFIED);
     if
     :: !ok -> break
     :: else
     fi;
     ADD(n, interested, 1)
     ADD(n, notified, -1)
     change_word(n, INTERESTED);
     if
     :: ok -> break
     :: else -> ADD(n, interested, -1) ADD(n, notified, 1)
     fi
  od;
  was = 0
}

inline leave(n, from, to) { /* from INTERESTED, NOTIFIED or that state */
  do
  :: atomic { FATE; was = state[n]; ok = was == INTERESTED || was == NOTIFIED || was == from; watched[self] = (ok -> n + 1 : 0) }
     if
     :: !ok -> break
     :: else
     fi;
     if
     :: was == NOTIFIED -> ADD(n, notified, -1)
     :: else
     fi;
     change_word(n, to);
     if
     :: ok ->
        if
        :: was == INTERESTED -> ADD(n, interested, -1)
        :: else
        fi;
        break
     :: else ->
        if
        :: was == NOTIFIED -> ADD(n, notified, 1)
        :: else
        fi
     fi
  od;
  was = 0
}

/* ---- the queue's side ---- */

inline sb_notify_node(n) {
  atomic {
    FATE;
    work[n] = true;
    wakes++;
    assert(wakes <= WAKES) /* nobody plays ping-pong */
  }
}

inline try_node(n) { /* one entry of a list; ok: told */
  atomic { FATE; ok = state[n] == INTERESTED }
  if
  :: ok ->
     if
     :: rescue -> atomic { FATE; rescued[n] = true }
     :: else
     fi;
     to_notified(n);
     if
     :: ok -> sb_notify_node(n)
     :: else
     fi
  :: else
  fi
}

inline notify_one(as_rescue) { /* sb_notify_one */
  rescue = as_rescue;
#ifdef PRIORITIES
  try_node(0);
  if
  :: !ok ->
     if
     :: !rescue -> atomic { FATE; ok = level_notified[0] > 0 } /* I32 */
     :: else
     fi;
     if
     :: !ok -> try_node(1)
     :: else
     fi
  :: else
  fi;
#else
  if
  :: node = 0
  :: node = 1
  fi;
  try_node(node);
  if
  :: !ok -> node = 1 - node; try_node(node)
  :: else
  fi;
  node = 0;
#endif
  rescue = false; ok = false
}

inline work_arrived() {
  atomic { FATE; ok = interested > 0 } /* P3: after the append */
  if
  :: ok ->
     atomic { FATE; seen = notified }
     atomic { FATE; ok = seen <= 0 || ready > seen; seen = 0 }
     if
     :: ok -> notify_one(false)
     :: else
     fi
  :: else
  fi;
  ok = false
}

#ifdef STALE /* a `requeued` bit whose message somebody holds: it looks as if something were there */
#define LOOKS_READY true
#else
#define LOOKS_READY (ready > 0)
#endif

inline pass_baton() { /* I31: after the own state was flipped */
#ifndef FAULT_NO_BATON
  atomic { FATE; ok = interested > 0 }
  if
  :: ok ->
     atomic { FATE; ok = LOOKS_READY }
     if
     :: ok -> notify_one(false)
     :: else
     fi
  :: else
  fi;
#endif
  ok = false
}

/* ---- the consumer's side ---- */

inline higher_wants() {
#ifdef PRIORITIES
  if
  :: self == 0 -> ok = false
  :: else ->
     atomic { FATE; ok = level_interested[0] > 0 }
     if
     :: !ok -> atomic { FATE; ok = level_notified[0] > 0 }
     :: else
     fi
  fi
#else
  ok = false
#endif
}

/* The counts, then the lists: killed in sb_node_move between the count and the CAS, a better one leaves a count too high,
 * which a reaper is not patient enough to lower; whoever believes it waits for a patient tick, or for ever. */
inline better_wants() {
  higher_wants();
#if defined(PRIORITIES) && !defined(FAULT_BELIEVE_COUNTS)
  if
  :: ok ->
     atomic { FATE; ok = state[0] == INTERESTED }
     if
     :: !ok -> atomic { FATE; ok = state[0] == NOTIFIED }
     :: else
     fi
  :: else
  fi
#endif
}

inline desired() { /* sb_subscription_set_interested(true) */
#ifdef FAULT_LOOK_FIRST
  atomic { FATE; more = LOOKS_READY }
  to_interested(self);
  ok = more;
  more = false;
#else
  to_interested(self);
  atomic { FATE; ok = LOOKS_READY } /* P3: after the CAS */
#endif
  if
  :: ok ->
     better_wants();
     if
     :: !ok ->
        to_notified(self);
        if
        :: ok -> sb_notify_node(self)
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  ok = false
}

inline undesired() { /* sb_subscription_set_interested(false) */
  leave(self, INTERESTED, NOT_INTERESTED);
  if
  :: ok -> pass_baton()
  :: else
  fi
}

#define CREDIT (PREFETCH - held[self])

inline deliver() { /* sb_consumer_deliver_one; more: one was taken and there is credit left */
  more = false;
  if
  :: atomic { CREDIT == 0 || state[self] == REMOVED -> skip }
     if
     :: !starved -> starved = true; undesired()
     :: else
     fi
  :: else ->
     do
     :: atomic { FATE; free_pass = rescued[self]; rescued[self] = false }
        if
        :: !free_pass ->
           higher_wants();
           if
           :: ok -> /* I32 */
              back_to_interested(self);
#ifdef FAULT_BATON_DOWN /* the one it finds may be itself, as long as the better one is only about to be interested */
              pass_baton();
              break
#else
              /* may_take: the baton goes up only; and flipped first, then looked: the better one may have left meanwhile */
              ok = false;
              atomic { FATE; ok = LOOKS_READY }
              if
              :: !ok -> break
              :: else
              fi;
              better_wants();
              if
              :: ok -> try_node(0); break
              :: else
              fi;
              to_notified(self);
              if
              :: !ok -> break
              :: else
              fi
#endif
           :: else
           fi
        :: else
        fi;
        free_pass = false;
        atomic { /* acquire_into_row */
          FATE;
          if
          :: ready > 0 -> ready--; held[self]++; can_take[self] = CREDIT > 0; wakes = 0; ok = true
          :: else -> ok = false
          fi
        }
        if
        :: ok ->
           to_notified(self);
           ok = false;
           if
           :: CREDIT == 0 -> starved = true; undesired()
           :: else -> more = true
           fi;
           break
        :: else
        fi;
#ifdef FAULT_LAST_ATTEMPT_NOTIFIED /* what came since it was made was told to nobody: interested was 0 */
        back_to_interested(self);
        if
        :: !ok -> break
        :: else
        fi;
        atomic { FATE; ok = LOOKS_READY }
        if
        :: ok -> to_notified(self)
        :: else
        fi;
        if
        :: !ok -> break
        :: else
        fi;
        /* sb_hints_rescan finds nothing: what came is not behind the head, or it was done less than 250 ms ago */
        back_to_interested(self);
        ok = false;
        break
#else
        /* the last attempt to take is made while INTERESTED; then sb_hints_rescan finds nothing */
        back_to_interested(self);
        if
        :: !ok -> break
        :: else
        fi
#endif
     od
  fi;
  ok = false; free_pass = false
}

inline pull() {
  do
  :: deliver();
     if
     :: more
     :: else -> break
     fi
  od;
  more = false
}

proctype Consumer(byte self) {
  byte was;
  short seen;
  byte node;
  bool ok, more, starved, free_pass, rescue;
  desired();
idle:
end_idle:
  if
  :: atomic { work[self] -> FATE; work[self] = false } /* sb_consumer_turn until there is nothing more */
  :: atomic { timed_out[self] -> timed_out[self] = false; ok = state[self] == NOTIFIED || (state[self] == INTERESTED && LOOKS_READY) }
     if
     :: ok -> ok = false
     :: else -> goto idle
     fi
  :: atomic { held[self] > 0 && settles < SETTLES -> FATE; settles++; held[self]--; can_take[self] = true; wakes = 0 } /* the application settles */
     if
     :: starved -> /* sb_consumer_resume */
        starved = false;
        to_interested(self);
        ok = false
     :: else -> goto idle
     fi
#if CLOSES > 0
  :: atomic { closes < CLOSES && held[self] == 0 -> closes++; can_take[self] = false }
     undesired();
     leave(self, NOT_INTERESTED, REMOVED);
     goto out
#endif
  fi;
  pull();
  goto idle;
dead:
  atomic { dead_[self] = true; can_take[self] = false; watched[self] = 0 }
  goto out;
halted:
  atomic { can_take[self] = false; watched[self] = 0 }
out:
  atomic { was = 0; seen = 0; ok = false; more = false; starved = false; free_pass = false; rescue = false }
}

proctype Producer(byte self) {
  byte was;
  short seen;
  byte node;
  bool ok, rescue;
  do
  :: atomic {
       made < MESSAGES -> FATE;
       made++; ready++; wakes = 0;
#ifdef FAULT_ASK_ACCOUNTS
       uncounted++
#endif
     }
#ifdef FAULT_ASK_ACCOUNTS
     atomic { FATE; uncounted-- }
#endif
     work_arrived()
  :: atomic { made == MESSAGES -> goto out }
  od;
dead:
  dead_[self] = true;
halted:
out:
  atomic { was = 0; seen = 0; ok = false; rescue = false; watched[self] = 0 }
}

/* ---- repair ---- */

/* correct(): high_is_harmless tells which error waits for patience. */
#define CORRECT(hint, in_state, level, high_is_harmless)                                                          \
  atomic {                                                                                                        \
    FATE;                                                                                                         \
    seen = (state[0] == in_state && (level == 9 || LEVEL(0) == level)) +                                           \
           (state[1] == in_state && (level == 9 || LEVEL(1) == level))                                             \
  }                                                                                                               \
  atomic {                                                                                                        \
    FATE;                                                                                                         \
    if                                                                                                            \
    :: hint != seen && (patient || (hint < seen) == high_is_harmless) -> hint = seen                               \
    :: else                                                                                                       \
    fi;                                                                                                           \
    seen = 0                                                                                                      \
  }


inline recount() {
  CORRECT(level_interested[0], INTERESTED, 0, true);
  CORRECT(level_notified[0], NOTIFIED, 0, false);
#if LEVELS > 1
  CORRECT(level_interested[1], INTERESTED, 1, true);
  CORRECT(level_notified[1], NOTIFIED, 1, false);
#endif
  CORRECT(interested, INTERESTED, 9, true);
  CORRECT(notified, NOTIFIED, 9, false)
}

#if KILLS > 0
proctype Reaper() {
  byte d, was, self, n;
  short seen;
  byte node;
  bool ok, rescue, patient;
  self = REAPER;
begin:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
    :: dead_[1] && !reaped[1] -> d = 1
    :: dead_[2] && !reaped[2] -> d = 2
#if CONSUMERS + PRODUCERS > 3
    :: dead_[3] && !reaped[3] -> d = 3
#endif
    fi
  }
  if
  :: d < CONSUMERS ->
     leave(d, NOT_INTERESTED, REMOVED); /* sb_node_destroy */
     ok = false;
     do
     :: atomic { held[d] > 0 -> FATE; held[d]--; ready++; wakes = 0 }
     :: else -> break
     od
  :: else
  fi;
  /* visit_ledgers */
  if
  :: owned[d] -> /* inherited: killed in between, the reaper leaves it to its own, who begins anew */
     recount();
     n = 0;
     do /* sb_notify_backlog_arrived */
     :: atomic { FATE; ok = n < MESSAGES && ready > notified && interested > 0 }
        if
        :: ok -> notify_one(false); n++
        :: else -> break
        fi
     od;
     n = 0;
     atomic { FATE; owned[d] = false }
  :: else
  fi;
  atomic { FATE; reaped[d] = true; d = 0; ok = false }
  goto begin;
dead:
  atomic { d = 0; was = 0; n = 0; seen = 0; ok = false; rescue = false; watched[self] = 0 }
  goto begin;
halted:
  atomic { reaper_halted = true; d = 0; was = 0; n = 0; seen = 0; ok = false; rescue = false; watched[self] = 0 }
}
#endif

/* sb_hints_has_ready asks the cells. The accounts hide a message for as long as somebody is stopped before he counted
 * it. */
#ifdef FAULT_ASK_ACCOUNTS
#define KEEPER_SEES (ready > uncounted)
#else
#define KEEPER_SEES (ready > 0)
#endif

/* The housekeeper ticks when all is at rest, and again while that did not help; at last the sleepers' bound is over. */
#if KILLS + STOPS > 0
proctype Keeper() {
  byte was, self;
  short seen;
  byte node;
  bool ok, rescue, patient;
  self = KEEPER;
again:
end_again:
  atomic { tick -> tick = false; patient = ticks > PATIENCE; wakes = 0 }
  recount();
  atomic { FATE; ok = (interested > 0 || notified > 0) && KEEPER_SEES }
  if
  :: ok ->
     atomic { FATE; ok = state[0] == NOTIFIED }
     if
     :: ok -> sb_notify_node(0)
     :: else
     fi;
     atomic { FATE; ok = state[1] == NOTIFIED }
     if
     :: ok -> sb_notify_node(1)
     :: else
     fi;
     atomic { FATE; ok = interested > 0 }
     if
     :: ok -> notify_one(true)
     :: else
     fi
  :: else
  fi;
  ok = false;
  goto again;
dead: /* the next housekeeper */
  atomic { was = 0; seen = 0; ok = false; rescue = false; watched[self] = 0 }
  goto again;
halted:
  atomic { was = 0; seen = 0; ok = false; rescue = false; watched[self] = 0; keeper_halted = true; ticks = TICKS }
}
#endif

#define SOMEBODY_CAN (can_take[0] || can_take[1])

proctype Clock() {
again:
  timeout;
  if
  :: atomic { ready == 0 || !SOMEBODY_CAN -> goto end_ }
  :: else
  fi;
#if KILLS + STOPS > 0
  if
  :: atomic { kills + stops > 0 && ticks < TICKS -> ticks++; tick = true; goto again }
#if STOPS > 0
  :: atomic { keeper_halted && ticks == TICKS -> ticks++; timed_out[0] = true; timed_out[1] = true; wakes = 0; goto again }
#endif
  :: else
  fi;
#endif
  assert(false); /* a message is ready, somebody has credit, and everybody sleeps */
end_:
  skip
}

init {
  byte i;
  atomic {
    i = 0;
    do
    :: i < CONSUMERS -> state[i] = NOT_INTERESTED; can_take[i] = true; run Consumer(i); owned[i] = true; i++
    :: else -> break
    od;
    do
    :: i < CONSUMERS + PRODUCERS -> run Producer(i); owned[i] = true; i++
    :: else -> break
    od;
    i = 0;
#if KILLS > 0
    run Reaper();
#endif
#if KILLS + STOPS > 0
    run Keeper();
#endif
    run Clock()
  }
}
