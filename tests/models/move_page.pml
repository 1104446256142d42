/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of messages that goes to another queue by the link of one leaf.
 *
 * Mirrors: sb_move_page.c sb_move_page, take_row, fill, begin_intent, finish_row; sb_page.c sb_page_link_leaf,
 *   sb_page_drop_leaf, link_done, sb_page_retire; sb_take.c sb_take_row; sb_intent.c page_was_linked, resolve_move_page,
 *   sb_intent_release_cell; sb_recover.c settle_slot (of the leaf).
 * Abstracted: a row has two messages; the tree of the target is the link where the leaf belongs. Another producer may link
 *   a leaf of its own there, and retire it. What a consumer takes it acknowledges: it frees the slot of the message, which
 *   others use again. The slot of the leaf is used again as well. Marks that lead to returned cells are in pages.pml.
 *
 * Claims: a message is delivered once, as it was put; at rest all are delivered, the leaf is no dead one's, and both
 *   ledgers have counted the messages of the row if it was linked, else none, whoever was killed.
 *
 * quick: -DKILLS=0
 * quick: -DKILLS=1
 * quick: -DKILLS=2
 * quick: -DKILLS=1 -DSTOPS=1
 * full: -DKILLS=3
 * fault: -DKILLS=1 -DFAULT_TREE_ONLY
 * fault: -DKILLS=1 -DFAULT_NO_TOMBSTONE
 * fault: -DKILLS=1 -DFAULT_HEADER_ONCE
 * fault: -DKILLS=1 -DFAULT_RELEASE_FIRST
 * fault: -DKILLS=1 -DFAULT_LINK_FIRST
 * fault: -DFAULT_DROP
 * fault: -DKILLS=2 -DFAULT_CLEAR_FIRST
 */
#include "common.h"

#define ROW 2
/* cells */
#define VACANT 0
#define READY 1
#define REMOVING 2 /* by the mover */
#define HELD 3     /* by a consumer */
#define TOMBSTONE 4
/* the link of the target's tree */
#define EMPTY 0
#define OURS 1
#define OTHER 2
#define DONE 3
/* the header of the leaf's slot */
#define FREE 0
#define ALLOC 1
#define PUBLISHED 2
#define ANOTHERS 3 /* ALLOC or PUBLISHED by somebody else, in a later life */

byte source[ROW], leaf[ROW]; /* cells; `leaf` is the memory of the slot, whoever has it */
byte state = FREE, gen;      /* the header of the leaf's slot */
byte link_ = EMPTY;
byte life[ROW];              /* generation of the slot of a message: it is put in life 0 */
byte delivered[ROW];
bool intent, listed;         /* `listed`: the leaf is in the mover's holdings */
byte held;                   /* how many cells of the row its holdings list */
byte added, moved, before_added, before_moved;
bool mover_dead, mover_halted, reaped, reaper_halted, was_ours;

#define ALL_TOMBSTONES (leaf[0] == TOMBSTONE && leaf[1] == TOMBSTONE)

inline deliver(i) { /* acknowledged: the slot is freed, and used again by somebody */
  delivered[i]++;
  assert(delivered[i] == 1 && life[i] == 0);
  life[i]++
}

proctype Mover() {
  byte i;
  atomic { FATE; state = ALLOC; gen = 0; listed = true }
  do /* take_row */
  :: i < ROW ->
     atomic { FATE; held = i + 1 }
     atomic {
       FATE;
       if
       :: source[i] == READY -> source[i] = REMOVING; i++
       :: else -> goto back
       fi
     }
  :: else -> break
  od;
  atomic { FATE; leaf[0] = READY; leaf[1] = READY }
#ifndef FAULT_LINK_FIRST
  atomic { FATE; before_added = added; before_moved = moved; intent = true }
#endif
  atomic {
    FATE;
    if
    :: link_ == EMPTY -> link_ = OURS; was_ours = true
    :: else -> goto undo
    fi
  }
#ifdef FAULT_LINK_FIRST
  atomic { FATE; before_added = added; before_moved = moved; intent = true }
#endif
  atomic { /* link_done: by a CAS, since the leaf may be freed by now */
    FATE;
    if
    :: state == ALLOC && gen == 0 -> state = PUBLISHED
    :: else
    fi
  }
  atomic { FATE; listed = false }
  atomic { FATE; added = added + ROW }
  i = 0;
  do
  :: i < ROW ->
#ifdef FAULT_DROP /* the slot of the message, as sb_move_one does: it may be another message's by now */
     atomic { FATE; life[i]++ }
#endif
     atomic { FATE; assert(source[i] == REMOVING); source[i] = TOMBSTONE; i++ }
  :: else -> break
  od;
  atomic { FATE; moved = moved + ROW }
  atomic { FATE; intent = false }
  atomic { FATE; held = 0; i = 0 }
  goto out;
undo:
  atomic { FATE; intent = false }
back:
  i = 0;
  do
  :: i < held ->
     atomic {
       FATE;
       if
       :: source[i] == REMOVING -> source[i] = READY
       :: else
       fi;
       i++
     }
  :: else -> break
  od;
  atomic { FATE; assert(state == ALLOC && gen == 0); state = FREE; gen++ }
  atomic { FATE; listed = false; held = 0; i = 0 }
  goto out;
dead:
  atomic { mover_dead = true; i = 0 }
  goto out;
halted:
  atomic { mover_halted = true; i = 0 }
out:
  skip
}

/* of the source: what is ready there */
proctype Consumer(byte i) {
end_:
  atomic { source[i] == READY -> source[i] = HELD }
  atomic { deliver(i); source[i] = TOMBSTONE }
}

/* of the target: takes the cells of the leaf, retires it, frees it */
proctype Target(byte i) {
end_:
  atomic { link_ == OURS && gen == 0 && leaf[i] == READY -> leaf[i] = HELD }
  deliver(i);
  leaf[i] = TOMBSTONE;
  if
  :: atomic { ALL_TOMBSTONES && gen == 0 && link_ == OURS -> link_ = DONE }
     atomic { /* by a CAS that expects the generation: the reaper of the mover may have freed it */
       if
       :: gen == 0 -> state = FREE; gen++
       :: else
       fi
     }
  :: else
  fi
}

/* of the target: another leaf in the same place, which comes and goes */
proctype Producer() {
end_:
  if
  :: atomic { link_ == EMPTY -> link_ = OTHER }
     link_ = DONE
  :: link_ != EMPTY
  fi
}

/* takes the slot of the leaf after it was freed */
proctype Reuser() {
end_:
  atomic { state == FREE && gen == 1 -> state = ANOTHERS }
  leaf[0] = VACANT;
  leaf[1] = VACANT
}

#if KILLS > 0
inline release_all() {
  i = 0;
  do
  :: i < held ->
     atomic {
       FATE;
       if
       :: source[i] == REMOVING -> source[i] = READY
       :: else
       fi;
       i++
     }
  :: else -> break
  od
}

proctype Reaper() {
  byte i;
  bool linked, same;
begin_:
end_begin:
  atomic { mover_dead && !reaped -> linked = false; i = 0 }
#ifdef FAULT_RELEASE_FIRST
  release_all();
#endif
  /* page_was_linked */
  if
  :: intent ->
     atomic { FATE; same = (state == ALLOC && gen == 0) }
#ifdef FAULT_TREE_ONLY
     same = true;
#endif
     if
     :: !same -> linked = true
     :: else ->
        atomic { FATE; linked = (link_ == OURS) }
#if !defined(FAULT_NO_TOMBSTONE) && !defined(FAULT_TREE_ONLY)
        if
        :: !linked ->
           atomic { FATE; linked = (leaf[0] == TOMBSTONE) }
#ifndef FAULT_HEADER_ONCE
           atomic { FATE; linked = linked || !(state == ALLOC && gen == 0) }
#endif
        :: else
        fi
#endif
     fi;
     same = false;
     if
     :: linked ->
#ifdef FAULT_CLEAR_FIRST
        atomic { FATE; intent = false }
#endif
        atomic {
          FATE;
          if
          :: added == before_added -> added = added + ROW
          :: else
          fi
        }
        i = 0;
        do
        :: i < ROW ->
           atomic {
             FATE;
             if
             :: source[i] == REMOVING -> source[i] = TOMBSTONE
             :: else
             fi;
             i++
           }
        :: else -> break
        od;
        atomic {
          FATE;
          if
          :: moved == before_moved -> moved = moved + ROW
          :: else
          fi
        }
     :: else
     fi;
     atomic { FATE; intent = false }
  :: else
  fi;
  /* settle_slot: a leaf of the dead one is made the ring's, or freed */
  if
  :: listed ->
     atomic { FATE; same = (state == ALLOC && gen == 0) }
     if
     :: same ->
        atomic { FATE; linked = (link_ == OURS) }
        atomic {
          FATE;
          if
          :: state == ALLOC && gen == 0 && linked -> state = PUBLISHED
          :: state == ALLOC && gen == 0 && !linked -> state = FREE; gen++
          :: else
          fi
        }
     :: else
     fi
  :: else
  fi;
  release_all();
  atomic { FATE; listed = false; held = 0; reaped = true; i = 0; linked = false; same = false }
  goto begin_;
dead: /* the next one begins anew */
  atomic { i = 0; linked = false; same = false }
  goto begin_;
halted:
  atomic { reaper_halted = true; i = 0; linked = false; same = false }
}
#endif

proctype Judge() {
  byte i;
  timeout;
  atomic {
    assert(!mover_dead || reaped || reaper_halted);
    if
    :: mover_halted || reaper_halted -> goto end_
    :: else
    fi;
    assert(added == (was_ours -> ROW : 0) && moved == added && !intent);
    assert(state != ALLOC);
    do
    :: i < ROW -> assert(delivered[i] == 1 && source[i] == TOMBSTONE); i++
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
    :: i < ROW -> source[i] = READY; run Consumer(i); run Target(i); i++
    :: else -> break
    od;
    run Mover();
    run Producer();
    run Reuser();
#if KILLS > 0
    run Reaper();
#endif
    run Judge()
  }
}
