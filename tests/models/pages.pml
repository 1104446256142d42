/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of pages under a row of cells: made at the tail, retired when finished, its root growing. With RETURNED: the bits
 * that lead to messages which came back.
 *
 * Mirrors: sb_ring.c descend, grow, new_page, link_page, link_done, sb_ring_append, sb_ring_finish, sb_ring_redo, try_retire,
 *   all_done, sb_ring_settle_page, sb_ring_links; sb_recover.c settle_slot (pages), publish_or_free, visit_slots
 *   (HOLD_PAGE), release_cell (of a TOMBSTONE, and of a cell that is held); sb_housekeeping.c and sb_ring_sweep.
 *   With RETURNED: sb_queue.c sb_queue_release, take_returned; sb_ring.c sb_ring_mark_returned, sb_ring_is_marked,
 *   sb_ring_clear_returned, search, clear_bit, sb_ring_next_returned; sb_recover.c release_cell.
 * Abstracted: a page has CELLS cells or two children; a link and the header it leads to are read in one step, and a link with
 *   "still"; the lines of a page are set together with its header, while it is nobody else's. The order of finishing marks
 *   is sequentially consistent here: ten who finish the last ten cells at once can miss each other in a store buffer.
 *
 * Claims: a cell that was filled is found until it is finished; an append never fills a cell of a page's other life; what was
 *   filled comes in the order of its appender; at rest every page that is not free is linked, and no finished page (with a
 *   parent) is kept. RETURNED: at rest every message that came back is led to by all its bits.
 */
#include "common.h"

#ifndef RETURNED
#ifndef CELLS
#define CELLS 2
#endif
#ifndef POSITIONS
#define POSITIONS 3
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
byte root, tail;

byte hold_slot[ACTORS] = NOWHERE, hold_slot_gen[ACTORS]; /* a page that is being made */
byte hold_page[ACTORS] = NOWHERE, hold_page_gen[ACTORS]; /* page_token: one that is being retired */
byte hold_cell[ACTORS] = NOWHERE;
bool dead_[ACTORS], reaped[ACTORS];
bool reaper_halted, swept;
byte made;
bool filled[POSITIONS], over[POSITIONS];

#define SPAN(h) (CELLS << (h))
#define INDEX(h, p) ((h) == 0 -> (p) % CELLS : (p) / SPAN((h) - 1) % 2)
#define FIRST(h, p) ((p) / SPAN(h) * SPAN(h))

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
          found = (p >= SPAN(level_) || level_ < level -> EMPTY : LINKED)
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
          child[2 * n] = EMPTY; child[2 * n + 1] = EMPTY; cell[2 * n] = VACANT; cell[2 * n + 1] = VACANT;
          finished[2 * n] = false; finished[2 * n + 1] = CELLS == 1; bit0[n] = false; bit1[n] = level == 0 && CELLS == 1;
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
#ifdef FAULT_TRUST_BITS
       ok = true
#endif
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
        new_page((at < SPAN(0) -> 0 : (at < SPAN(1) -> 1 : 2)), 0);
        if
        :: n == NOWHERE -> goto no_room
        :: else
        fi;
        atomic { FATE; if :: root == EMPTY -> root = LINK(n, h_gen[n]); ok = true :: else -> ok = false fi }
        if
        :: ok -> linked()
        :: else -> take_back()
        fi
     :: found == EMPTY && root != EMPTY && level_ == height[SLOT_OF(root)] && at >= SPAN(level_) ->
        /* grow: over the root (s, g) */
        new_page(level_ + 1, 0);
        if
        :: n == NOWHERE -> goto no_room
        :: else
        fi;
        atomic {
          FATE;
          child[2 * n] = LINK(s, g);
          if
          :: root == LINK(s, g) -> root = LINK(n, h_gen[n]); ok = true
          :: else -> ok = false
          fi
        }
        if
        :: ok ->
           linked();
           atomic { FATE; ok = bit0[s] && bit1[s] && h_gen[s] % 8 == g }
           if
           :: ok -> try_retire() /* it could not be retired while it had no parent */
           :: else
           fi
        :: else -> take_back()
        fi
     :: found == EMPTY && level_ > 0 && at < SPAN(height[SLOT_OF(root)]) ->
        k = s; m = g; p = level_;
        new_page(p - 1, FIRST(p - 1, at));
        if
        :: n == NOWHERE -> goto no_room
        :: else
        fi;
        atomic { /* EMPTY carries the generation of the page it lies in */
          FATE;
#ifdef FAULT_BARE_EMPTY
          if
          :: child[2 * k + INDEX(p, at)] == EMPTY -> child[2 * k + INDEX(p, at)] = LINK(n, h_gen[n]); ok = true
#else
          if
          :: h_gen[k] % 8 == m && child[2 * k + INDEX(p, at)] == EMPTY -> child[2 * k + INDEX(p, at)] = LINK(n, h_gen[n]); ok = true
#endif
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
          :: h_gen[s] % 8 == g && cell[2 * s + at % CELLS] == VACANT ->
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
        descend(p, at); /* sb_ring_links */
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
  /* HOLD_PAGE: sb_ring_settle_page */
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
  /* release_cell: what is ended for good here, as judge_settle does; and the finished mark of a TOMBSTONE */
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

proctype Judge() {
  byte i;
  timeout;
  atomic {
    if
    :: stops > 0 || reaper_halted -> goto end_
    :: else
    fi;
    do
    :: i < SLOTS ->
       if
       :: h_state[i] != FREE ->
          assert(h_state[i] == PUBLISHED && IN_TREE(i)); /* nothing leaks */
          if
          :: root == LINK(i, h_gen[i])
#ifndef DEFECT_INNER_STAYS
          :: root != LINK(i, h_gen[i]) && kills > 0 && height[i] > 0 /* an inner page may stay until the row is destroyed */
#endif
#ifndef DEFECT_LEAF_STAYS
          :: root != LINK(i, h_gen[i]) && kills > 0 && height[i] == 0
#endif
          :: else ->
             assert(!(height[i] == 0 -> cell[2 * i] == TOMBSTONE && (CELLS == 1 || cell[2 * i + 1] == TOMBSTONE)
                                      : child[2 * i] == DONE && child[2 * i + 1] == DONE))
          fi
       :: else
       fi;
       i++
    :: else -> break
    od
  }
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
    run Judge()
  }
}
#endif
