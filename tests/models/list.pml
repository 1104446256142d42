/* SPDX-License-Identifier: Apache-2.0
 *
 * Node lists: rings of (node, epoch) entries in pages; moves, iterations that drop what is dead, pages that are used again.
 *
 * Mirrors: sb_nodes.c sb_node_move, append, judge, sb_nodes_next; sb_ring.c sb_ring_append, sb_ring_next_leaf, sb_ring_drop,
 *   sb_ring_advance; sb_slab.c (the generation of a page).
 * Abstracted: a page is made, found and retired in one step (pages.pml takes these apart); there is one listed state for
 *   each queue; nodes are moved by anybody, at most MOVES times in all. Two queues share the memory of their pages.
 *
 * Claims: a listed node has a live entry at or behind the head of the list of its queue, at all times; only dead entries are
 *   dropped; an iteration finds only nodes of its queue, and never ends empty if a node was listed all the while.
 *
 * quick: -DMOVES=4
 * full: -DMOVES=5
 * quick: -DMOVES=5 -DITERATORS -DONE_QUEUE
 * full: -DMOVES=6 -DITERATORS -DONE_QUEUE
 * full: -DMOVES=4 -DMOVERS -DKILLS=1 -DONE_QUEUE
 * bitstate: -DMOVES=5 -DMOVERS -DITERATORS -DKILLS=1 -DSTOPS=1 -w33 -Q2
 * fault: -DMOVES=4 -DFAULT_APPEND_LATER
 * fault: -DMOVES=4 -DFAULT_DROP_PENDING
 * fault: -DMOVES=5 -DITERATORS -DONE_QUEUE -DFAULT_TRUST_LEAF
 */
#include "common.h"

#ifndef MOVES
#define MOVES 5
#endif
#define QUEUES 2 /* node q belongs to queue q */
#define CELLS 2
#define PAGES 3 /* of a list */
#define SLOTS 3
#define NONE 15
#define DONE 14

#define FREE 0
#define TOMBSTONE 1
#define ENTRY 2 /* ENTRY + node */

#define UNLISTED 0
#define LISTED 1

byte state[QUEUES], epoch[QUEUES];
byte link[6] = NONE; /* QUEUES * PAGES */
byte gen[SLOTS], cell[6], cell_epoch[6]; /* SLOTS * CELLS */
bool used[SLOTS];
byte tail[QUEUES], head[QUEUES];
byte moves;
bool through[3]; /* node 0 was listed since this iteration began */

#define LINK(q, at) link[(q) * PAGES + (at) / CELLS]
#define AT(slot, at) ((slot) * CELLS + (at) % CELLS)

/* the claim: the entry of a listed node is there, not before the head */
inline check(n) {
  d_step {
    if
    :: state[n] == LISTED ->
       pos = 0; found = false;
       do
       :: pos < PAGES * CELLS ->
          if
          :: LINK(n, pos) != NONE && LINK(n, pos) != DONE ->
             found = found || (cell[AT(LINK(n, pos), pos)] == ENTRY + n && cell_epoch[AT(LINK(n, pos), pos)] == epoch[n] && pos >= head[n])
          :: else
          fi;
          pos++
       :: else -> break
       od;
       assert(found);
       pos = 0; found = false
    :: else
    fi
  }
}

inline new_page(q, at) { /* part of an atomic step; the model has slots enough, or the move fails */
  if
  :: !used[0] -> slot = 0
  :: else ->
     if
     :: !used[1] -> slot = 1
     :: else ->
        if
        :: !used[2] -> slot = 2
        :: else -> slot = NONE
        fi
     fi
  fi;
  if
  :: slot != NONE -> used[slot] = true; LINK(q, at) = slot; cell[slot * CELLS] = FREE; cell[slot * CELLS + 1] = FREE
  :: else
  fi
}

inline retire(q, at, s) { /* part of the step that dropped: the last one retires the page */
  if
  :: cell[s * CELLS] == TOMBSTONE && cell[s * CELLS + 1] == TOMBSTONE && LINK(q, at) == s ->
     LINK(q, at) = DONE; used[s] = false; gen[s]++
  :: else
  fi
}

inline append(n, e) { /* ok: done. FREE cells carry their generation: of another life none is taken */
  at = tail[n];
  do
  :: atomic {
       FATE;
       if
       :: at >= PAGES * CELLS -> slot = NONE
       :: else ->
          if
          :: LINK(n, at) == DONE -> slot = DONE
          :: LINK(n, at) == NONE -> new_page(n, at)
          :: else -> slot = LINK(n, at)
          fi
       fi
     }
     if
     :: slot == NONE -> ok = false; break
     :: slot == DONE -> at = (at / CELLS + 1) * CELLS
     :: else ->
        atomic {
          FATE;
          if
          :: LINK(n, at) == slot && cell[AT(slot, at)] == FREE ->
             cell[AT(slot, at)] = ENTRY + n; cell_epoch[AT(slot, at)] = e; ok = true
          :: else -> ok = false
          fi
        }
        at++;
        if
        :: ok -> atomic { FATE; tail[n] = (tail[n] > at -> tail[n] : at) } break
        :: else
        fi
     fi
  od;
  at = 0; slot = 0
}

inline move(n, from, to) { /* sb_node_move; ok tells */
  do
  :: atomic { FATE; e = epoch[n]; ok = state[n] == from }
     if
     :: !ok -> break
     :: else
     fi;
     if
#ifndef FAULT_APPEND_LATER
     :: to == LISTED ->
        append(n, e + 1);
        if
        :: !ok -> break
        :: else
        fi
#endif
     :: else
     fi;
     atomic {
       FATE;
       if
       :: state[n] == from && epoch[n] == e ->
          state[n] = to; epoch[n] = e + 1; ok = true;
          if
          :: n == 0 -> through[0] = false; through[1] = false
          :: else
          fi;
          check(n)
       :: else -> ok = false
       fi
     }
     if
     :: ok ->
#ifdef FAULT_APPEND_LATER
        if
        :: to == LISTED -> append(n, e + 1)
        :: else
        fi;
#endif
        break
     :: else
     fi
  od;
  e = 0
}

inline advance() { /* sb_ring_advance(head, what it was, at) */
  atomic {
    FATE;
    if
    :: head[q] < at -> head[q] = at; check(q)
    :: else
    fi
  }
}

proctype Mover() {
  byte e, at, slot, pos;
  bool ok, found;
  do
  :: atomic { moves < MOVES -> moves++ }
     if
     :: move(0, UNLISTED, LISTED)
     :: move(0, LISTED, UNLISTED)
     :: move(1, UNLISTED, LISTED)
     :: move(1, LISTED, UNLISTED)
     fi;
     ok = false
  :: atomic { moves == MOVES -> break }
  od;
dead:
halted:
  atomic { e = 0; at = 0; slot = 0; pos = 0; ok = false; found = false }
}

/* sb_nodes_next on the list of queue q, from the head; what it finds it moves */
proctype Iterator(byte me; byte q; byte rounds) {
  byte e, at, slot, pos, first, g, w, we;
  bool ok, found, clean, pending;
again:
  if
  :: rounds == 0 -> goto out
  :: else -> rounds--
  fi;
  atomic { FATE; at = head[q]; first = at; clean = true; through[me] = q == 0 && state[0] == LISTED }
locate:
  atomic {
    FATE;
    if
    :: at >= PAGES * CELLS -> slot = NONE
    :: else -> slot = LINK(q, at); g = (slot < DONE -> gen[slot] : 0)
    fi
  }
  if
  :: slot == DONE -> at = (at / CELLS + 1) * CELLS; goto locate
  :: slot == NONE -> goto none
  :: else
  fi;
  do
  :: atomic { FATE; w = cell[AT(slot, at)]; we = cell_epoch[AT(slot, at)]; ok = gen[slot] == g || w >= ENTRY } /* sb_cell_of */
     if
     :: w >= ENTRY ->
        atomic { /* judge */
          FATE;
          pending = false;
          if
          :: epoch[w - ENTRY] == we -> found = state[w - ENTRY] == LISTED
#ifndef FAULT_DROP_PENDING
          :: epoch[w - ENTRY] + 1 == we -> pending = true; found = false
#endif
          :: else -> found = false
          fi
        }
     :: else
     fi;
#ifndef FAULT_TRUST_LEAF /* used again, perhaps by another list: its entries are not ours, nor is its end the end of our list */
     atomic { FATE; e = gen[slot] != g }
     if
     :: e -> e = 0; found = false; pending = false; ok = false; goto locate
     :: else
     fi;
#endif
     if
     :: !ok || w == FREE -> found = false; pending = false; goto none
     :: ok && w >= ENTRY ->
        ok = false;
        if
        :: found -> goto live
        :: pending -> pending = false; if :: clean -> advance() :: else fi; clean = false
        :: else ->
           atomic { /* sb_ring_drop: what is dead is so for ever, wherever it stands */
             FATE;
             if
             :: cell[AT(slot, at)] == w && cell_epoch[AT(slot, at)] == we ->
                cell[AT(slot, at)] = TOMBSTONE; retire(q, at, slot);
                check(q)
             :: else
             fi
           }
        fi
     :: else
     fi;
     at++;
     if
     :: at % CELLS == 0 -> goto locate
     :: else
     fi
  od;
live:
  found = false;
  if
  :: clean -> advance()
  :: else
  fi;
  assert(w - ENTRY == q); /* a node of another queue would be told instead of ours */
  move(q, LISTED, UNLISTED);
  atomic { ok = false; w = 0; we = 0; slot = 0; g = 0; first = 0; at = 0 }
  goto again;
none:
  assert(!through[me]);
  if
  :: clean -> advance()
  :: else
  fi;
  atomic { ok = false; w = 0; we = 0; slot = 0; g = 0; first = 0; at = 0; found = false }
  goto again;
dead:
halted:
out:
  atomic { e = 0; at = 0; slot = 0; pos = 0; first = 0; g = 0; w = 0; we = 0; ok = false; found = false; clean = false; pending = false; rounds = 0 }
}

init {
  atomic {
    run Mover();
#ifdef MOVERS
    run Mover();
#endif
    run Iterator(0, 0, 1);
#ifdef ITERATORS
    run Iterator(1, 0, 1);
#endif
#ifndef ONE_QUEUE
    run Iterator(2, 1, 2)
#endif
  }
}
