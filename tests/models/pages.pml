/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of pages under a row of cells: made at the tail, retired when finished, its root growing. With RETURNED: the bits
 * that lead to messages which came back.
 *
 * Mirrors: sb_page.c sb_page_descend, grow, new_page, link_page, link_done, sb_page_retire, all_done, sb_page_settle,
 *   sb_page_links, sweep; sb_ring.c sb_ring_append, sb_ring_finish, sb_ring_redo; sb_recover.c settle_slot (pages),
 *   publish_or_free, visit_slots (HOLD_PAGE); sb_intent.c sb_intent_release_cell (of a TOMBSTONE, and of a cell that is
 *   held); sb_housekeeping.c scrub_list.
 *   With RETURNED: sb_release.c sb_release_message; sb_take.c take_returned; sb_requeued.c sb_requeued_mark,
 *   sb_requeued_is_marked, sb_requeued_clear, search, clear_bit, sb_requeued_next; sb_intent.c sb_intent_release_cell.
 * Abstracted: a page has CELLS cells or two children; a link and the header it leads to are read in one step, and a link with
 *   "still" (sb_page_is_current); the lines of a page are set together with its header, while it is nobody else's. The order of finishing marks
 *   is sequentially consistent here: ten who finish the last ten cells at once can miss each other in a store buffer.
 *
 * Claims: a cell that was filled is found until it is finished; an append never fills a cell of a page's other life; what was
 *   filled comes in the order of its appender; at rest every page that is not free is linked, and no finished page (with a
 *   parent) is kept, after a kill not beyond a sweep. RETURNED: at rest every message that came back is led to by all its bits,
 *   and was found, if nobody was killed or stopped in the search.
 *
 * quick: -DPOSITIONS=3 -DFINISHERS=2
 * quick: -DPOSITIONS=4 -DCELLS=1 -DFINISHERS=1
 * quick: -DPOSITIONS=3 -DFINISHERS=1 -DKILLS=1 -DSTOPS=1
 * quick: -DPOSITIONS=3 -DFINISHERS=1 -DSWEEPER
 * quick: -DBASE=2 -DPOSITIONS=5 -DFINISHERS=1
 * quick: -DBASE=1 -DCELLS=1 -DPOSITIONS=4 -DFINISHERS=1
 * quick: -DRETURNED -DRETAKES=2
 * quick: -DRETURNED -DKILLS=1 -DSTOPS=1
 * full: -DPOSITIONS=3 -DAPPENDERS=2 -DFINISHERS=1
 * full: -DPOSITIONS=3 -DFINISHERS=2 -DKILLS=1
 * full: -DPOSITIONS=4 -DCELLS=1 -DFINISHERS=1 -DKILLS=1 -DSTOPS=1
 * full: -DBASE=2 -DPOSITIONS=5 -DAPPENDERS=2 -DFINISHERS=1
 * full: -DBASE=1 -DCELLS=1 -DPOSITIONS=4 -DFINISHERS=1 -DKILLS=1
 * full: -DRETURNED -DRELEASERS=2 -DNEIGHBOUR=1 -DKILLS=1
 * bitstate: -DPOSITIONS=3 -DCELLS=1 -DAPPENDERS=2 -DFINISHERS=1 -w32 -Q2
 * bitstate: -DPOSITIONS=3 -DAPPENDERS=2 -DFINISHERS=1 -DKILLS=1 -DSTOPS=1 -w32 -Q2
 * fault: -DPOSITIONS=3 -DFINISHERS=1 -DFAULT_FORGET_OLD_ROOT
 * fault: -DBASE=2 -DPOSITIONS=5 -DFINISHERS=1 -DFAULT_OLD_ROOT_FIRST
 * fault: -DRETURNED -DFAULT_NO_SECOND_MARK
 * full fault: -DPOSITIONS=3 -DCELLS=1 -DAPPENDERS=2 -DFINISHERS=1 -DFAULT_BARE_FREE
 * fault: -DRETURNED -DFAULT_MARK_LEAF_ONLY
 * full fault: -DRETURNED -DRELEASERS=2 -DNEIGHBOUR=1 -DSEARCHERS=1 -DFAULT_CLEAR_BLINDLY
 * fault: -DPOSITIONS=4 -DCELLS=1 -DFINISHERS=1 -DKILLS=1 -DFAULT_SWEEP_LEAVES
 * fault: -DRETURNED -DFAULT_LOOK_ONCE
 * fault: -DRETURNED -DFAULT_GIVE_BACK_ONE
 */
#include "common.h"

#ifndef RETURNED
#ifndef CELLS
#define CELLS 2
#endif
#ifndef POSITIONS
#define POSITIONS 3
#endif
#ifndef BASE /* where the ring begins */
#define BASE 0
#endif
#ifndef FINISHERS
#define FINISHERS 2
#endif
#ifndef APPENDERS
#define APPENDERS 1
#endif
#ifndef SLOTS
#define SLOTS 4
#endif
#define ACTORS (APPENDERS + FINISHERS)
#define NOWHERE 31

/* link: EMPTY, DONE, or LINKED + 8 * slot + generation modulo 8 */
#define EMPTY 0
#define DONE 1
#define LINKED 2
#define AGAIN 9
#define LINK(s, g) (LINKED + 8 * (s) + (g) % 8)
#define SLOT_OF(l) (((l) - LINKED) / 8)
#define GEN_OF(l) (((l) - LINKED) % 8)
#define FREE 0
#define ALLOC 1
#define PUBLISHED 2
/* cells */
#define VACANT 0
#define ENTRY 1
#define TOMBSTONE 2
#define HELD 3 /* HELD + actor */

byte h_state[SLOTS], h_owner[SLOTS], h_gen[SLOTS];
byte height[SLOTS], first[SLOTS], child[2 * SLOTS], cell[2 * SLOTS];
bool finished[2 * SLOTS], bit0[SLOTS], bit1[SLOTS]; /* bytes of the leaf; `done` of the page */
byte root, tail = BASE;

byte hold_slot[ACTORS] = NOWHERE, hold_slot_gen[ACTORS]; /* a page that is being made */
byte hold_page[ACTORS + 1] = NOWHERE, hold_page_gen[ACTORS + 1]; /* page_token: one that is being retired */
byte hold_cell[ACTORS] = NOWHERE;
bool dead_[ACTORS], reaped[ACTORS];
bool reaper_halted;
byte made = BASE;
bool filled[POSITIONS], over[POSITIONS];

#define SPAN(h) (CELLS << (h))
#define INDEX(h, p) ((h) == 0 -> (p) % CELLS : (p) / SPAN((h) - 1) % 2)
#define FIRST(h, p) ((p) / SPAN(h) * SPAN(h))
#define COVERS(h, p, q) (FIRST(h, p) == FIRST(h, q))

/* ---- walking: finds (s, g) of that height for position p; found tells: EMPTY, DONE, LINKED ---- */

inline descend(p, level) {
  found = AGAIN;
  do
  :: found == AGAIN ->
     atomic {
       FATE;
       if
       :: root == EMPTY -> found = EMPTY
       :: else ->
          s = SLOT_OF(root); g = GEN_OF(root); level_ = height[s];
          found = (!COVERS(level_, first[s], p) || level_ < level -> EMPTY : LINKED)
       fi
     }
  :: found == LINKED && level_ != level ->
     atomic {
       FATE;
       if
       :: h_gen[s] % 8 != g -> found = AGAIN /* still(): it is another page by now */
       :: else ->
          l = child[2 * s + INDEX(level_, p)];
          if
          :: l == EMPTY -> found = EMPTY
          :: l == DONE -> found = DONE
          :: else -> s = SLOT_OF(l); g = GEN_OF(l); level_--
          fi;
          l = 0
       fi
     }
  :: else -> break
  od
}

/* a page of that height: announced, taken, filled in; n is its slot, NOWHERE if there is no memory */
inline new_page(level, at) {
  do
  :: atomic {
       if
       :: h_state[0] == FREE -> n = 0
       :: else ->
          if
          :: h_state[1] == FREE -> n = 1
          :: else ->
             if
             :: h_state[2] == FREE -> n = 2
             :: else -> n = (h_state[3] == FREE -> 3 : NOWHERE)
             fi
          fi
       fi;
       if
       :: n == NOWHERE -> break
       :: else
       fi;
       FATE;
       hold_slot[me] = n; hold_slot_gen[me] = h_gen[n]
     }
     atomic {
       FATE;
       if
       :: h_state[n] == FREE && h_gen[n] == hold_slot_gen[me] ->
          h_state[n] = ALLOC; h_owner[n] = me; height[n] = level; first[n] = at;
          child[2 * n] = (level > 0 && at + SPAN(level - 1) <= BASE -> DONE : EMPTY); child[2 * n + 1] = EMPTY; cell[2 * n] = VACANT; cell[2 * n + 1] = VACANT;
          finished[2 * n] = false; finished[2 * n + 1] = CELLS == 1; bit0[n] = child[2 * n] == DONE; bit1[n] = level == 0 && CELLS == 1;
          break
       :: else
       fi
     }
  od
}

inline linked() {
  atomic { FATE; if :: h_state[n] == ALLOC && h_owner[n] == me -> h_state[n] = PUBLISHED :: else fi }
  atomic { FATE; hold_slot[me] = NOWHERE }
}
inline take_back() {
  atomic { FATE; h_state[n] = FREE; h_gen[n]++ }
  atomic { FATE; hold_slot[me] = NOWHERE }
}

/* ---- retiring ---- */

inline try_retire() { /* page (s, g) of height level_ with its first position p */
  do
  :: atomic { /* all_done, still; a leaf's cells do not come back from TOMBSTONE, nor links from DONE */
       FATE;
       ok = h_gen[s] % 8 == g && (level_ == 0 -> cell[2 * s] == TOMBSTONE && (CELLS == 1 || cell[2 * s + 1] == TOMBSTONE)
                                          : child[2 * s] == DONE && child[2 * s + 1] == DONE)
     }
     if
     :: !ok -> break
     :: else
     fi;
     n = s; m = g; k = level_;
     p = first[s];
     descend(p, k + 1);
     if
     :: found != LINKED -> break /* the root stays until it gets a parent */
     :: else
     fi;
     atomic { FATE; hold_page[me] = n; hold_page_gen[me] = m }
     atomic {
       FATE;
       ok = h_gen[s] % 8 == g && child[2 * s + INDEX(k + 1, p)] == LINK(n, m);
       if
       :: ok -> child[2 * s + INDEX(k + 1, p)] = DONE
       :: else
       fi
     }
     if
     :: !ok -> break
     :: else
     fi;
     atomic {
       FATE;
       if
       :: INDEX(k + 1, p) == 0 -> bit0[s] = true
       :: else -> bit1[s] = true
       fi;
       ok = bit0[s] && bit1[s]
     }
     atomic {
       FATE;
       if
       :: h_state[n] != FREE && h_gen[n] % 8 == m -> h_state[n] = FREE; h_gen[n]++
       :: else
       fi
     }
     level_ = k + 1;
     if
     :: !ok -> break
     :: else
     fi
  od;
  atomic { n = 0; m = 0; k = 0; ok = false }
}

inline redo(p0) { /* sb_ring_redo of the leaf (s, g) */
  atomic { FATE; finished[2 * s + p0 % CELLS] = true }
  atomic { FATE; if :: p0 % CELLS == 0 -> bit0[s] = true :: else -> bit1[s] = true fi }
  atomic { FATE; ok = finished[2 * s] && finished[2 * s + 1] }
  if
  :: ok ->
     atomic { FATE; bit0[s] = true; bit1[s] = true }
     level_ = 0;
     try_retire()
  :: else
  fi
}

/* ---- actors ---- */

proctype Appender(byte me) {
  byte at, s, g, l, n, m, level_, found, p, k;
  bool ok;
next:
  atomic {
    if
    :: made == POSITIONS -> goto out
    :: else -> made++
    fi
  }
  at = tail;
  do
  :: if
     :: at >= POSITIONS -> break /* the other appender was faster: nothing is left to fill */
     :: else
     fi;
     descend(at, 0);
     if
     :: found == DONE -> at++
     :: found == EMPTY && root == EMPTY ->
        k = (COVERS(0, BASE, at) -> 0 : (COVERS(1, BASE, at) -> 1 : 2));
        new_page(k, FIRST(k, BASE));
        if
        :: n == NOWHERE -> goto no_room
        :: else
        fi;
        atomic { FATE; if :: root == EMPTY -> root = LINK(n, h_gen[n]); ok = true :: else -> ok = false fi }
        if
        :: ok -> linked()
        :: else -> take_back()
        fi
     :: found == EMPTY && root != EMPTY && level_ == height[SLOT_OF(root)] && !COVERS(level_, first[s], at) ->
        /* grow: over the root (s, g) */
        p = first[s];
        new_page(level_ + 1, FIRST(level_ + 1, p));
        if
        :: n == NOWHERE -> goto no_room
        :: else
        fi;
        atomic {
          FATE;
#ifdef FAULT_OLD_ROOT_FIRST
          child[2 * n] = LINK(s, g);
#else
          child[2 * n + INDEX(level_ + 1, p)] = LINK(s, g);
#endif
          if
          :: root == LINK(s, g) -> root = LINK(n, h_gen[n]); ok = true
          :: else -> ok = false
          fi
        }
        if
        :: ok ->
           linked();
#ifdef FAULT_FORGET_OLD_ROOT
           ok = false;
#endif
           atomic { FATE; ok = ok && bit0[s] && bit1[s] && h_gen[s] % 8 == g }
           if
           :: ok -> try_retire() /* it could not be retired while it had no parent */
           :: else
           fi
        :: else -> take_back()
        fi
     :: found == EMPTY && level_ > 0 && COVERS(height[SLOT_OF(root)], first[SLOT_OF(root)], at) ->
        k = s; m = g; p = level_;
        new_page(p - 1, FIRST(p - 1, at));
        if
        :: n == NOWHERE -> goto no_room
        :: else
        fi;
        atomic { /* EMPTY carries the generation of the page it lies in */
          FATE;
          if
          :: h_gen[k] % 8 == m && child[2 * k + INDEX(p, at)] == EMPTY -> child[2 * k + INDEX(p, at)] = LINK(n, h_gen[n]); ok = true
          :: else -> ok = false
          fi
        }
        if
        :: ok -> linked()
        :: else -> take_back()
        fi
     :: found == LINKED ->
        atomic { /* a FREE word carries its page's generation */
          FATE;
          if
#ifdef FAULT_BARE_FREE
          :: cell[2 * s + at % CELLS] == VACANT ->
#else
          :: h_gen[s] % 8 == g && cell[2 * s + at % CELLS] == VACANT ->
#endif
             cell[2 * s + at % CELLS] = ENTRY; ok = true;
             assert(first[s] == FIRST(0, at) && !filled[at]);
             filled[at] = true
          :: else -> ok = false
          fi
        }
        at++;
        if
        :: ok -> atomic { FATE; tail = (tail > at -> tail : at) } break
        :: else
        fi
     :: else -> skip /* the root grew meanwhile */
     fi;
     atomic { s = 0; g = 0; n = 0; m = 0; k = 0; p = 0; found = 0; level_ = 0; ok = false }
  od;
  atomic { s = 0; g = 0; n = 0; m = 0; k = 0; p = 0; found = 0; level_ = 0; ok = false; at = 0 }
  goto next;
no_room:
  atomic { made--; s = 0; g = 0; n = 0; m = 0; k = 0; p = 0; found = 0; level_ = 0; ok = false; at = 0 }
end_no_room:
  (h_state[0] == FREE || h_state[1] == FREE || h_state[2] == FREE || h_state[3] == FREE);
  goto next;
dead:
  dead_[me] = true;
halted:
out:
  atomic { s = 0; g = 0; n = 0; m = 0; k = 0; p = 0; l = 0; found = 0; level_ = 0; ok = false; at = 0 }
}

proctype Finisher(byte me) { /* takes a filled cell, and ends it */
  byte at, s, g, l, n, m, level_, found, p, k;
  bool ok;
next:
end_next:
  if
  :: atomic { filled[0] && !over[0] -> at = 0 }
#if POSITIONS > 1
  :: atomic { filled[1] && !over[1] -> at = 1 }
#endif
#if POSITIONS > 2
  :: atomic { filled[2] && !over[2] -> at = 2 }
#endif
#if POSITIONS > 3
  :: atomic { filled[3] && !over[3] -> at = 3 }
#endif
#if POSITIONS > 4
  :: atomic { filled[4] && !over[4] -> at = 4 }
#endif
  :: atomic { made == POSITIONS -> goto out }
  fi;
  descend(at, 0);
  assert(found == LINKED || over[at]); /* what is filled is found */
  if
  :: found == LINKED ->
     atomic { FATE; hold_cell[me] = at }
     atomic { FATE; if :: h_gen[s] % 8 == g && cell[2 * s + at % CELLS] == ENTRY -> cell[2 * s + at % CELLS] = HELD + me; over[at] = true; ok = true :: else -> ok = false fi }
     if
     :: ok ->
        atomic { FATE; assert(h_gen[s] % 8 == g && cell[2 * s + at % CELLS] == HELD + me); cell[2 * s + at % CELLS] = TOMBSTONE }
        redo(at)
     :: else
     fi;
     atomic { FATE; hold_cell[me] = NOWHERE }
  :: else
  fi;
  atomic { s = 0; g = 0; n = 0; m = 0; k = 0; p = 0; found = 0; level_ = 0; ok = false; at = 0 }
  goto next;
dead:
  dead_[me] = true;
halted:
out:
  atomic { s = 0; g = 0; n = 0; m = 0; k = 0; p = 0; l = 0; found = 0; level_ = 0; ok = false; at = 0 }
}

#if KILLS > 0
proctype Reaper() {
  byte d, me, at, s, g, l, n, m, level_, found, p, k;
  bool ok;
begin:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
    :: dead_[1] && !reaped[1] -> d = 1
#if ACTORS > 2
    :: dead_[2] && !reaped[2] -> d = 2
#endif
    fi;
    me = d /* its own page_token is as free as that of the dead is after its turn */
  }
  /* settle_slot: a page in ALLOC */
  if
  :: hold_slot[d] != NOWHERE ->
     atomic { FATE; n = hold_slot[d]; ok = h_state[n] == ALLOC && h_owner[n] == d && h_gen[n] == hold_slot_gen[d]; m = h_gen[n] % 8 }
     if
     :: ok ->
        k = n; at = height[n]; p = first[n];
        descend(p, at); /* sb_page_links */
        atomic {
          FATE;
          if
          :: h_state[k] == ALLOC && h_owner[k] == d && h_gen[k] % 8 == m ->
             if
             :: found == LINKED && s == k && g == m -> h_state[k] = PUBLISHED
             :: else -> h_state[k] = FREE; h_gen[k]++
             fi
          :: else
          fi
        }
     :: else
     fi;
     n = 0; m = 0; k = 0; at = 0; p = 0
  :: else
  fi;
  /* HOLD_PAGE: sb_page_settle */
  if
  :: hold_page[d] != NOWHERE ->
     atomic { FATE; n = hold_page[d]; m = hold_page_gen[d]; ok = h_state[n] != FREE && h_gen[n] % 8 == m }
     if
     :: ok ->
        k = height[n]; p = first[n];
        descend(p, k);
        if
        :: found == LINKED && s == n && g == m ->
           atomic { FATE; ok = bit0[n] && bit1[n] }
           if
           :: ok -> level_ = k; try_retire()
           :: else
           fi
        :: else ->
           atomic { FATE; ok = h_state[n] != FREE && h_gen[n] % 8 == m; if :: ok -> h_state[n] = FREE; h_gen[n]++ :: else fi }
           if
           :: ok ->
              descend(p, k + 1);
              if
              :: found == LINKED ->
                 atomic { FATE; ok = child[2 * s + INDEX(k + 1, p)] == DONE && h_gen[s] % 8 == g }
                 if
                 :: ok ->
                    atomic {
                      FATE;
                      if
                      :: INDEX(k + 1, p) == 0 -> bit0[s] = true
                      :: else -> bit1[s] = true
                      fi;
                      ok = bit0[s] && bit1[s]
                    }
                    if
                    :: ok -> level_ = k + 1; try_retire()
                    :: else
                    fi
                 :: else
                 fi
              :: else
              fi
           :: else
           fi
        fi
     :: else
     fi;
     n = 0; m = 0; k = 0; p = 0
  :: else
  fi;
  /* sb_intent_release_cell: what is ended for good here, as resolve_settle does; and the finished mark of a
   * TOMBSTONE */
  if
  :: hold_cell[d] != NOWHERE ->
     at = hold_cell[d];
     descend(at, 0);
     if
     :: found == LINKED ->
        atomic { FATE; if :: h_gen[s] % 8 == g && cell[2 * s + at % CELLS] == HELD + d -> cell[2 * s + at % CELLS] = TOMBSTONE :: else fi }
        atomic { FATE; ok = h_gen[s] % 8 == g && cell[2 * s + at % CELLS] == TOMBSTONE }
        if
        :: ok -> redo(at)
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  atomic { FATE; reaped[d] = true }
dead:
  atomic { d = 0; me = 0; at = 0; s = 0; g = 0; l = 0; n = 0; m = 0; level_ = 0; found = 0; p = 0; k = 0; ok = false }
  goto begin;
halted:
  atomic { reaper_halted = true; d = 0; me = 0; at = 0; s = 0; g = 0; l = 0; n = 0; m = 0; level_ = 0; found = 0; p = 0; k = 0; ok = false }
}
#endif

#define IN_TREE(x) (root == LINK(x, h_gen[x]) || child[0] == LINK(x, h_gen[x]) || child[1] == LINK(x, h_gen[x]) || child[2] == LINK(x, h_gen[x]) || \
  child[3] == LINK(x, h_gen[x]) || child[4] == LINK(x, h_gen[x]) || child[5] == LINK(x, h_gen[x]) || child[6] == LINK(x, h_gen[x]) || child[7] == LINK(x, h_gen[x]))

/* sb_page_sweep: children first. Killed after a page was freed, before its parent was looked at, a retirer leaves that. */
#ifdef FAULT_SWEEP_LEAVES
#define HEIGHTS 1
#else
#define HEIGHTS 4
#endif
inline sweep() {
  do
  :: at < HEIGHTS ->
     i = 0;
     do
     :: i < SLOTS ->
        atomic {
          FATE;
          ok = h_state[i] == PUBLISHED && height[i] == at && IN_TREE(i);
          if
          :: ok -> s = i; g = h_gen[i] % 8; level_ = at; y = h_gen[i]
          :: else
          fi
        }
        if
        :: ok -> try_retire(); more = more || h_gen[i] != y; s = 0; g = 0; level_ = 0; found = 0; p = 0; y = 0
        :: else
        fi;
        i++
     :: else -> break
     od;
     at++
  :: else -> break
  od;
  i = 0; at = 0
}

#ifdef SWEEPER
proctype Sweeper(byte me) { /* beside all others, once */
  byte at, i, y, s, g, l, n, m, level_, found, p, k;
  bool ok, more;
  sweep();
dead:
halted:
  atomic { at = 0; i = 0; y = 0; s = 0; g = 0; l = 0; n = 0; m = 0; level_ = 0; found = 0; p = 0; k = 0; ok = false; more = false }
}
#endif

proctype Judge(byte me) {
  byte at, i, y, s, g, l, n, m, level_, found, p, k;
  bool ok, more, swept;
again:
  timeout;
  if
  :: !swept && (stops > 0 || reaper_halted) -> goto end_
  :: else ->
     if
     :: kills > 0 -> atomic { kills = KILLS; stops = STOPS; swept = true } sweep()
     :: else
     fi
  fi;
  if
  :: more -> more = false; goto again /* whoever waits for memory goes on */
  :: else
  fi;
  atomic {
    do
    :: i < SLOTS ->
       if
       :: h_state[i] != FREE ->
          assert(h_state[i] == PUBLISHED && IN_TREE(i)); /* nothing leaks */
          if
          :: root == LINK(i, h_gen[i]) /* stays until it gets a parent */
          :: else -> /* with a parent: not finished */
             assert(height[i] > 0 || cell[2 * i] != TOMBSTONE || (CELLS > 1 && cell[2 * i + 1] != TOMBSTONE));
             assert(height[i] == 0 || child[2 * i] != DONE || child[2 * i + 1] != DONE)
          fi
       :: else
       fi;
       i++
    :: else -> break
    od
  }
dead:
halted:
end_:
  skip
}

init {
  atomic {
    run Appender(0);
#if APPENDERS > 1
    run Appender(1);
#endif
    run Finisher(APPENDERS);
#if FINISHERS > 1
    run Finisher(APPENDERS + 1);
#endif
#if KILLS > 0
    run Reaper();
#endif
#ifdef SWEEPER
    run Sweeper(ACTORS);
#endif
    run Judge(ACTORS)
  }
}
#endif

#ifdef RETURNED
/* ---- the bits that lead to what came back: a root over two leaves of two cells; all cells are before everybody's cursor ---- */
#ifndef RELEASERS
#define RELEASERS 1
#endif
#ifndef SEARCHERS
#define SEARCHERS 2
#endif
#ifndef RETAKES /* how often what came back is released again */
#define RETAKES 1
#endif
#define POSITIONS 4
#define ACTORS (RELEASERS + SEARCHERS)
#define NOWHERE 31
#define AVAILABLE 1
#define TOMBSTONE 2
#define HELD 3

byte cell[POSITIONS];
bool leaf_bit[POSITIONS], root_bit[2], flag; /* `requeued` of the pages, and of the queue */
byte hold[ACTORS] = NOWHERE;
bool dead_[ACTORS], reaped[ACTORS], reaper_halted;
byte retakes, news; /* news: somebody is to be told, see notify.pml */

inline mark(p) { /* sb_requeued_mark: from the leaf to the root */
  atomic { FATE; leaf_bit[p] = true }
#ifndef FAULT_MARK_LEAF_ONLY
  atomic { FATE; root_bit[p / 2] = true }
#endif
  atomic { FATE; flag = true }
}

inline is_marked(p) { /* ok tells */
  atomic { FATE; ok = leaf_bit[p] }
  if
  :: ok -> atomic { FATE; ok = root_bit[p / 2] }
  :: else
  fi;
  if
  :: ok -> atomic { FATE; ok = flag }
  :: else
  fi
}

inline release(p) { /* sb_release_message */
#ifndef FAULT_FLIP_FIRST
  mark(p);
#endif
  atomic { FATE; assert(cell[p] == HELD + me); cell[p] = AVAILABLE }
#ifdef FAULT_FLIP_FIRST
  mark(p);
#else
#ifndef FAULT_NO_SECOND_MARK
  is_marked(p);
  if
  :: !ok ->
     atomic { FATE; ok = cell[p] == AVAILABLE }
     if
     :: ok -> mark(p)
     :: else
     fi
  :: else
  fi;
#endif
#endif
  ok = false;
  atomic { FATE; hold[me] = NOWHERE }
  atomic { FATE; news = SEARCHERS }
}

/* I41: whoever cleared a bit in vain hid what is below it from others meanwhile. He gives it back like a releaser, up to the
 * flag (another saw the root without bits, and cleared it), and looks himself (others saw nothing meanwhile, and rest). */
#ifdef FAULT_GIVE_BACK_ONE
#define GIVE_BACK atomic { FATE; root_bit[k] = true }
#else
#define GIVE_BACK                      \
  atomic { FATE; root_bit[k] = true } \
  atomic { FATE; flag = true }
#endif
#ifdef FAULT_LOOK_ONCE
#define SEARCH_AGAIN skip
#else
#define SEARCH_AGAIN again_ = true
#endif

/* sb_requeued_next from 0, one leaf after the other; p is what it finds, NOWHERE if nothing */
inline next_returned(from) {
  again_ = true;
  do
  :: again_ -> again_ = false; search(from)
  :: else -> break
  od
}

inline search(from) {
  p = NOWHERE;
  atomic { FATE; ok = flag }
  if
  :: ok ->
     atomic { FATE; mask0 = root_bit[0]; mask1 = root_bit[1] }
     k = 0;
     do
     :: k < 2 && p == NOWHERE && (k == 0 -> mask0 && from < 2 : mask1) ->
        atomic {
          FATE;
          if
          :: leaf_bit[2 * k] && 2 * k >= from -> p = 2 * k
          :: else ->
             if
             :: leaf_bit[2 * k + 1] && 2 * k + 1 >= from -> p = 2 * k + 1
             :: else
             fi
          fi
        }
        if
        :: p == NOWHERE && 2 * k >= from ->
           atomic { FATE; ok = leaf_bit[2 * k] || leaf_bit[2 * k + 1] }
           if
           :: !ok ->
              atomic { FATE; root_bit[k] = false }
#ifndef FAULT_CLEAR_BLINDLY
              atomic { FATE; ok = leaf_bit[2 * k] || leaf_bit[2 * k + 1] }
              if
              :: ok ->
                 GIVE_BACK
                 SEARCH_AGAIN
              :: else
              fi
#endif
           :: else
           fi
        :: else
        fi;
        k++
     :: k < 2 && p == NOWHERE && !(k == 0 -> mask0 && from < 2 : mask1) -> k++
     :: else -> break
     od;
     k = 0; mask0 = false; mask1 = false;
     if
     :: p == NOWHERE && from == 0 ->
        atomic { FATE; ok = root_bit[0] || root_bit[1] }
        if
        :: !ok ->
           atomic { FATE; flag = false }
           atomic { FATE; ok = root_bit[0] || root_bit[1] }
           if
           :: ok ->
              atomic { FATE; flag = true }
              SEARCH_AGAIN
           :: else
           fi
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  ok = false
}

proctype Releaser(byte me; byte mine) {
  byte p;
  bool ok;
  release(mine);
  goto out;
dead:
  dead_[me] = true;
  goto out;
halted:
out:
  atomic { p = 0; ok = false }
}

proctype Searcher(byte me) {
  byte p, from, k, seen;
  bool ok, mask0, mask1, again_;
again:
end_again:
  atomic { news > 0 -> news-- }
look:
  from = 0;
  do /* take_returned */
  :: next_returned(from);
     if
     :: p == NOWHERE -> break
     :: else
     fi;
     from = p + 1;
     atomic { FATE; seen = cell[p] }
     if
     :: seen >= HELD -> skip /* its holder may be about to return it: the bit must stay */
     :: else ->
        if
        :: seen == AVAILABLE -> atomic { FATE; hold[me] = p }
        :: else
        fi;
        atomic { FATE; leaf_bit[p] = false }
        atomic { FATE; seen = cell[p] }
        if
        :: seen == AVAILABLE ->
           atomic { FATE; hold[me] = p }
           atomic { FATE; if :: cell[p] == AVAILABLE -> cell[p] = HELD + me; ok = true :: else -> ok = false fi }
           if
           :: ok -> ok = false; goto taken
           :: else
           fi;
           atomic { FATE; ok = cell[p] != TOMBSTONE }
           if
           :: ok -> mark(p)
           :: else
           fi;
           ok = false
        :: else
        fi
     fi
  od;
  atomic { FATE; hold[me] = NOWHERE; p = 0; from = 0; seen = 0 }
  goto again;
taken:
  if
  :: atomic { retakes < RETAKES -> retakes++; from = 0; seen = 0 }
     release(p)
  :: atomic { FATE; cell[p] = TOMBSTONE; from = 0; seen = 0 }
     atomic { FATE; hold[me] = NOWHERE }
  fi;
  goto look;
dead:
  dead_[me] = true;
  goto out;
halted:
out:
  atomic { p = 0; from = 0; k = 0; seen = 0; ok = false; mask0 = false; mask1 = false }
}

#if KILLS > 0
proctype Reaper() {
  byte d, p;
  bool ok;
begin:
end_begin:
  atomic {
    if
    :: dead_[0] && !reaped[0] -> d = 0
    :: dead_[1] && !reaped[1] -> d = 1
#if ACTORS > 2
    :: dead_[2] && !reaped[2] -> d = 2
#endif
#if ACTORS > 3
    :: dead_[3] && !reaped[3] -> d = 3
#endif
    fi
  }
  p = hold[d];
  if
  :: p != NOWHERE ->
     if
     :: atomic { cell[p] == AVAILABLE -> FATE; skip } /* it may have cleared the bit to take the cell, and died */
        mark(p)
     :: atomic { cell[p] == HELD + d -> FATE; skip }
        mark(p);
        atomic { FATE; if :: cell[p] == HELD + d -> cell[p] = AVAILABLE :: else fi }
        is_marked(p);
        if
        :: !ok ->
           atomic { FATE; ok = cell[p] == AVAILABLE }
           if
           :: ok -> mark(p)
           :: else
           fi
        :: else
        fi
     :: else
     fi
  :: else
  fi;
  atomic { FATE; news = SEARCHERS }
  atomic { FATE; reaped[d] = true }
dead:
  atomic { d = 0; p = 0; ok = false }
  goto begin;
halted:
  atomic { reaper_halted = true; d = 0; p = 0; ok = false }
}
#endif

proctype Judge() {
  byte i;
  timeout;
  atomic {
    if
    :: stops > 0 || reaper_halted -> goto end_ /* sb_hints_resurface looks at the cells themselves */
    :: else
    fi;
    do
    :: i < POSITIONS ->
       if
       :: cell[i] == AVAILABLE ->
          /* a searcher who is killed after clearing hides it until sb_hints_resurface looks at the cells */
          assert(kills > 0 || (leaf_bit[i] && root_bit[i / 2] && flag));
          assert(kills > 0) /* somebody who looks is left, and finds it */
       :: else
       fi;
       assert(cell[i] == AVAILABLE || cell[i] == TOMBSTONE); /* nothing stays with the dead */
       i++
    :: else -> break
    od
  }
end_:
  skip
}

init {
  byte i;
  atomic {
    do
    :: i < POSITIONS -> cell[i] = TOMBSTONE; i++
    :: else -> break
    od;
    cell[0] = HELD; hold[0] = 0;
    run Releaser(0, 0);
#if RELEASERS > 1
    cell[NEIGHBOUR] = HELD + 1; hold[1] = NEIGHBOUR;
    run Releaser(1, NEIGHBOUR);
#endif
    run Searcher(RELEASERS);
#if SEARCHERS > 1
    run Searcher(RELEASERS + 1);
#endif
#if KILLS > 0
    run Reaper();
#endif
    run Judge()
  }
}
#endif
