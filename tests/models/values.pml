/* SPDX-License-Identifier: Apache-2.0
 *
 * Last values: of all messages with one key, the newest one stays ready, and the older ones are replaced.
 *
 * Mirrors: sb_values.c sb_values_came, settle, replace, supersede; sb_api_put.c publish; sb_release.c release;
 *   sb_intent.c sb_intent_settle_value, sb_intent_release_cell, resolve_enqueue.
 * Abstracted: one key, so one word of the index; the tree of the index and keys that share a word (races/values.c); the
 *   intents of an append and of a settle are one step with what they announce (cell.pml, ledger.pml). A killed process is
 *   followed by a reaper, which may be killed as well: the next one begins again.
 *
 * Producers put messages; consumers take the oldest ready one, and acknowledge it or return it.
 *
 * Claims: a message is replaced only if a newer one was put; at rest at most one message is ready, the index names it, and
 *   it is the newest one of those that are not acknowledged, unless it was replaced by one that was; nothing is held.
 *
 * quick: -DPRODUCERS=2 -DPUTS=1 -DCONSUMERS=1
 * quick: -DPRODUCERS=2 -DPUTS=1 -DCONSUMERS=1 -DKILLS=1
 * quick: -DPRODUCERS=1 -DPUTS=2 -DCONSUMERS=1 -DKILLS=2
 * quick: -DPRODUCERS=1 -DPUTS=3 -DCONSUMERS=1 -DTAKES=2
 * full: -DPRODUCERS=2 -DPUTS=2 -DCONSUMERS=1 -DKILLS=1
 * full: -DPRODUCERS=2 -DPUTS=1 -DCONSUMERS=1 -DTAKES=2 -DKILLS=2
 * full: -DPRODUCERS=3 -DPUTS=1 -DCONSUMERS=1 -DKILLS=1
 * fault: -DPRODUCERS=1 -DPUTS=2 -DCONSUMERS=1 -DFAULT_NO_SECOND_LOOK
 * fault: -DPRODUCERS=1 -DPUTS=2 -DCONSUMERS=1 -DFAULT_RETURN_BLINDLY
 * fault: -DPRODUCERS=2 -DPUTS=1 -DCONSUMERS=1 -DKILLS=1 -DFAULT_NOT_NAMED
 * fault: -DPRODUCERS=2 -DPUTS=1 -DCONSUMERS=1 -DKILLS=1 -DFAULT_OLDER_NOT_NAMED
 * fault: -DPRODUCERS=2 -DPUTS=1 -DCONSUMERS=0 -DFAULT_ANY_IS_NEWER
 * fault: -DPRODUCERS=2 -DPUTS=1 -DCONSUMERS=1 -DKILLS=1 -DFAULT_REAP_ONLY_CELLS
 */
#include "common.h"

#ifndef TAKES
#define TAKES 1
#endif
#define ALL (PRODUCERS * PUTS)
#define REAPER (PRODUCERS + CONSUMERS)
#define NOBODY 255

#define FREE 0
#define READY 1
#define HELD 2     /* ACQUIRED */
#define REMOVING 3
#define ACKED 4
#define REPLACED 5

byte state[ALL + 1];
byte owner[ALL + 1] = NOBODY;
byte tail;                   /* positions are 1 to ALL */
byte entry;                  /* of the index: 0 or a position */
byte named[REAPER + 1];      /* holding or intent of each process: a position that it is about to settle */
byte older[REAPER + 1];      /* holding: the position of the held message that it superseded */
bool died[REAPER + 1];
byte left = PRODUCERS + CONSUMERS, deaths;

#define over(p) (state[p] == ACKED || state[p] == REPLACED)

/* sb_take_at and sb_dispose of a message that is not the newest one */
inline replace(p) {
  atomic { FATE };
  if
  :: atomic { state[p] == READY -> state[p] = REMOVING; owner[p] = me }
     atomic {
       FATE;
       assert(tail > p);
       state[p] = REPLACED;
       owner[p] = NOBODY
     }
  :: state[p] != READY
  fi
}

/* Settles which message of the key of position p stays. */
inline came(p) {
  done = false;
  do
  :: done -> break
  :: !done ->
     atomic { FATE; e = entry }
     if
     :: e == p -> done = true
     :: e != p && (e == 0 || over(e)) ->
        atomic {
          FATE;
          if
          :: entry == e -> entry = p; done = true
          :: else
          fi
        }
#ifdef FAULT_ANY_IS_NEWER
     :: e != 0 && e != p && !over(e) && false -> skip
     :: e != 0 && e != p && !over(e) ->
#else
     :: e > p && !over(e) -> replace(p); done = true
     :: e != 0 && e < p && !over(e) ->
#endif
        if
        :: state[e] == READY -> replace(e)
        :: state[e] != READY ->
#ifndef FAULT_OLDER_NOT_NAMED
           older[me] = e;
#endif
           atomic {
             FATE;
             if
             :: entry == e -> entry = p; done = true
             :: else
             fi
           }
#ifndef FAULT_NO_SECOND_LOOK
           if
           :: done -> replace(e)
           :: else
           fi;
#endif
           atomic { FATE; older[me] = 0 }
        fi
     fi
  od;
  atomic { done = false; e = 0 }
}

proctype Producer(byte me) {
  byte n, p, e;
  bool done;
  do
  :: n < PUTS ->
     atomic {
       FATE;
       tail++;
       p = tail;
       state[p] = READY;
#ifndef FAULT_NOT_NAMED
       named[me] = p
#endif
     }
     came(p);
     atomic { FATE; named[me] = 0; p = 0; n++ }
  :: else -> break
  od;
  goto end;
dead:
  atomic { died[me] = true; deaths++ }
halted:
end:
  atomic { n = 0; p = 0; e = 0; done = false; left-- }
}

proctype Consumer(byte me) {
  byte n, p, e;
  bool done;
  do
  :: n < TAKES && p == 0 ->
     atomic {
       FATE;
       p = 1;
       do
       :: p <= ALL && state[p] != READY -> p++
       :: else -> break
       od;
       if
       :: p <= ALL -> state[p] = HELD; owner[p] = me; n++
       :: else -> p = 0; break
       fi
     }
  :: p != 0 -> /* acknowledged */
     atomic { FATE; state[p] = ACKED; owner[p] = NOBODY; p = 0 }
  :: p != 0 -> /* returned */
     atomic { FATE; state[p] = READY; owner[p] = NOBODY; named[me] = p }
#ifndef FAULT_RETURN_BLINDLY
     came(p);
#endif
     atomic { FATE; named[me] = 0; p = 0 }
  :: n == TAKES && p == 0 -> break
  od;
  goto end;
dead:
  atomic { died[me] = true; deaths++ }
halted:
end:
  atomic { n = 0; p = 0; e = 0; done = false; left-- }
}

active proctype Reaper() {
  byte w, p, e, me = REAPER;
  bool done;
  goto begin;
dead:
halted: /* the next reaper finds what this one left */
  atomic { if :: !died[REAPER] -> died[REAPER] = true; deaths++ :: else fi; done = false; e = 0 }
begin:
  if
  :: died[REAPER] -> w = REAPER /* first: its names would be overwritten */
  :: else -> w = 0
  fi;
  do
  :: w <= REAPER && !died[w] -> w++
  :: w <= REAPER && died[w] ->
     p = 1;
     do
     :: p <= ALL ->
        if
        :: atomic { owner[p] == w && (state[p] == HELD || state[p] == REMOVING) -> state[p] = READY; owner[p] = NOBODY;
                    if
                    :: named[REAPER] == 0 -> named[REAPER] = p
                    :: else
                    fi }
           came(p);
           named[REAPER] = 0
        :: owner[p] != w
        fi;
        p++
     :: else -> break
     od;
#ifndef FAULT_REAP_ONLY_CELLS
     p = named[w];
     if
     :: p != 0 && state[p] == READY -> came(p)
     :: else
     fi;
     named[w] = 0;
     p = older[w];
     if
     :: p != 0 && state[p] == READY -> came(p)
     :: else
     fi;
     older[w] = 0;
#endif
     atomic { died[w] = false; deaths--; w = 0 }
  :: w > REAPER && left == 0 && deaths == 0 -> break
  :: w > REAPER && !(left == 0 && deaths == 0) -> w = 0
  od;
  /* at rest */
  p = 1;
  w = 0;
  do
  :: p <= ALL ->
     assert(state[p] != HELD && state[p] != REMOVING);
     if
     :: state[p] == READY -> w++; assert(entry == p)
     :: else
     fi;
     p++
  :: else -> break
  od;
  assert(w <= 1)
}

init {
  byte n;
  atomic {
    do
    :: n < PRODUCERS -> run Producer(n); n++
    :: else -> break
    od;
    do
    :: n < PRODUCERS + CONSUMERS -> run Consumer(n); n++
    :: else -> break
    od;
    n = 0
  }
}
