/* SPDX-License-Identifier: Apache-2.0
 *
 * Store: the storekeeper follows a durable queue, and writes its messages and their ends into the store in batches.
 *
 * Mirrors: sb_changed.c sb_changed_mark; sb_changes.c sb_changes_visit; sb_ring.c sb_ring_redo; sb_page.c
 *   sb_page_retire; sb_gather.c sb_gather_row; sb_turns.c sb_turns_ask, sb_turns_begin, sb_turns_end; sb_api_store.c
 *   sb_store_look, sb_store_changes, sb_store_advance.
 * Abstracted: two leaves of two cells below one root, whose word `above` stands for the bits of all inner pages and for the
 *   flag of the queue; pages that are used again (pages.pml); the slots of the messages (cell.pml). One transaction of the
 *   store is one step, and is synced. In this model each killed process is followed by a reaper or by another storekeeper,
 *   which may be killed as well.
 *
 * Producers append messages, and are told when a turn of the storekeeper is done that began after that. Consumers take the oldest ready one, and
 * acknowledge it, return it with a raised count, or (MOVE) append it to a second queue and then end it here.
 *
 * Claims, at any moment, which is when the machine may lose its memory: a message whose producer was told is on the disk,
 *   unless it is acknowledged; a moved one is on the disk in one of the queues. At rest: the disk has the messages that
 *   the memory has, with the same counts, and no others.
 *
 * quick: -DPUTS=2 -DTAKES=2
 * quick: -DPUTS=2 -DTAKES=1 -DKILLS=1
 * quick: -DPUTS=2 -DTAKES=1 -DMOVE -DKILLS=1
 * full: -DPUTS=3 -DTAKES=1 -DKILLS=1
 * full: -DPUTS=2 -DTAKES=2 -DKILLS=2
 * full: -DPUTS=2 -DTAKES=2 -DMOVE -DKILLS=1
 * full: -DPUTS=2 -DTAKES=1 -DCONSUMERS=2 -DKILLS=1
 * fault: -DPUTS=2 -DTAKES=2 -DFAULT_LOOK_FIRST
 * fault: -DPUTS=2 -DTAKES=2 -DFAULT_READ_FIRST
 * fault: -DPUTS=2 -DTAKES=2 -DFAULT_FINISH_FIRST
 * fault: -DPUTS=2 -DTAKES=2 -DFAULT_FROM_ABOVE
 * fault: -DPUTS=2 -DTAKES=2 -DFAULT_MARK_FIRST
 * fault: -DPUTS=2 -DTAKES=2 -DKILLS=1 -DFAULT_NO_REDO
 * fault: -DPUTS=2 -DTAKES=2 -DKILLS=1 -DFAULT_NO_FRESH_START
 * fault: -DPUTS=2 -DTAKES=2 -DKILLS=1 -DFAULT_TRUST_BITS
 * fault: -DPUTS=2 -DTAKES=2 -DKILLS=1 -DFAULT_NOT_AGAIN
 * fault: -DPUTS=2 -DTAKES=1 -DKILLS=1 -DFAULT_STORED_FIRST
 * fault: -DPUTS=2 -DTAKES=1 -DFAULT_BEGIN_LATE
 * fault: -DPUTS=2 -DTAKES=2 -DMOVE -DFAULT_MESSAGES_FIRST
 * fault: -DPUTS=2 -DTAKES=2 -DMOVE -DFAULT_ONE_PASS
 * fault: -DPUTS=2 -DTAKES=2 -DMOVE -DFAULT_BLIND
 */
#include "common.h"

#ifndef CONSUMERS
#define CONSUMERS 1
#endif
#define LEAVES 2
#define CELLS 2
#define ALL 4                 /* positions 0 to 3 */
#define REAPER CONSUMERS
#define NOBODY 255

#define FREE 0
#define READY 1
#define HELD 2
#define TOMBSTONE 3

byte state[ALL];
byte owner[ALL] = NOBODY;
bit counted[ALL];             /* the side record: a crash or a return raised the count */
bit finished[ALL];
bit changed[ALL];             /* of the leaf */
bit retired[LEAVES];          /* the link of the leaf is DONE: its cells and bits are gone */
bit above[LEAVES];            /* the bits of the pages above it */
byte tail;
byte stored;                  /* all positions before it are in the store, or need not be */
bit asked[ALL];               /* its producer has read the number of the last turn that began */
bit told[ALL];                /* a later turn is done */
/* the store */
bit disk[ALL], disk_counted[ALL];

#ifdef MOVE
/* a second queue: a message that was moved there has the index of its old position. It never ends there. */
bit moved[ALL];               /* is in the second queue */
bit other_disk[ALL];
#endif

bool died[CONSUMERS + 1];
byte left = 1 + CONSUMERS, deaths, keepers;
bool resting;                 /* all others have ended: the storekeeper ends when it finds nothing to do */
byte working[CONSUMERS + 1] = NOBODY; /* the holding of each consumer: the position whose cell it ends or returns */

#define leaf(p) (p / CELLS)
#define copy(to, from) to[0] = from[0]; to[1] = from[1]; to[2] = from[2]; to[3] = from[3]
/* What a storekeeper looks at. To one that has just begun everything counts as changed: its predecessor may have been killed
 * between clearing a bit and the second look. */
#ifdef FAULT_TRUST_BITS
#define visits(l) above[l]
#define looks(p) changed[p]
#else
#define visits(l) (fresh || above[l])
#define looks(p) (fresh || changed[p])
#endif
#define live(p) (state[p] == READY || state[p] == HELD)
#ifndef MOVE
#define SAW skip
#elif defined(FAULT_BLIND)
#define SAW skip
#else
#define SAW saw = saw || !live(p) /* a cell that is passed was seen as ended */
#endif

/* At any moment. */
#define kept(p) (!told[p] || state[p] == TOMBSTONE || disk[p])
#ifdef MOVE
#define not_lost(p) (!told[p] || !moved[p] || disk[p] || other_disk[p])
#else
#define not_lost(p) true
#endif
active proctype Loss() {
end:
  atomic { !(kept(0) && kept(1) && kept(2) && kept(3) && not_lost(0) && not_lost(1) && not_lost(2) && not_lost(3)) -> assert(false) }
}

/* sb_changed_mark: from the leaf to the root */
inline mark(p) {
#ifdef FAULT_FROM_ABOVE
  atomic { FATE; above[leaf(p)] = 1 }
  atomic { FATE; changed[p] = 1 }
#else
  atomic { FATE; changed[p] = 1 }
  atomic { FATE; above[leaf(p)] = 1 }
#endif
}

/* sb_ring_redo: the cell is TOMBSTONE */
inline redo(p) {
#ifndef FAULT_FINISH_FIRST
  mark(p);
#endif
  atomic {
    FATE;
    finished[p] = 1;
    if
    :: finished[leaf(p) * CELLS] && finished[leaf(p) * CELLS + 1] ->
       retired[leaf(p)] = 1;
       changed[leaf(p) * CELLS] = 0;
       changed[leaf(p) * CELLS + 1] = 0
    :: else
    fi
  }
#ifdef FAULT_FINISH_FIRST
  if
  :: retired[leaf(p)]
  :: else -> mark(p)
  fi
#endif
}

proctype Producer() {
  byte p;
  do
  :: tail < PUTS -> atomic { p = tail; state[p] = READY; tail++ }
     asked[p] = 1
  :: else -> break
  od;
  atomic { p = 0; left-- }
}

proctype Consumer(byte me) {
  byte n, p;
  do
  :: n < TAKES && working[me] == NOBODY ->
     atomic {
       FATE;
       p = 0;
       do
       :: p < ALL && state[p] != READY -> p++
       :: else -> break
       od;
       if
       :: p < ALL -> state[p] = HELD; owner[p] = me; working[me] = p; n++
       :: else -> p = 0; break
       fi
     }
  :: working[me] != NOBODY -> /* acknowledged */
#ifdef FAULT_MARK_FIRST
     mark(p);
#endif
     atomic { FATE; state[p] = TOMBSTONE; owner[p] = NOBODY }
#ifdef FAULT_MARK_FIRST
     atomic {
       FATE;
       finished[p] = 1;
       if
       :: finished[leaf(p) * CELLS] && finished[leaf(p) * CELLS + 1] -> retired[leaf(p)] = 1
       :: else
       fi
     }
#else
     redo(p);
#endif
     atomic { FATE; working[me] = NOBODY; p = 0 }
  :: working[me] != NOBODY -> /* returned, and counted */
     atomic { FATE; counted[p] = 1 }
     atomic { FATE; state[p] = READY; owner[p] = NOBODY }
     if
     :: !retired[leaf(p)] -> mark(p)
     :: else
     fi;
     atomic { FATE; working[me] = NOBODY; p = 0 }
#ifdef MOVE
  :: working[me] != NOBODY ->
     atomic { FATE; moved[p] = 1 }
     atomic { FATE; state[p] = TOMBSTONE; owner[p] = NOBODY }
     redo(p);
     atomic { FATE; working[me] = NOBODY; p = 0 }
#endif
  :: n == TAKES && working[me] == NOBODY -> break
  od;
  goto end;
dead:
  atomic { died[me] = true; deaths++ }
halted:
end:
  atomic { n = 0; p = 0; left-- }
}

/* Returns what the dead held, and repeats the end of what they were ending. */
active proctype Reaper() {
  byte w, p;
  goto begin;
dead:
halted:
begin:
  w = 0;
  do
  :: w < REAPER && !died[w] -> w++
  :: w < REAPER && died[w] ->
     p = working[w];
     if
     :: p != NOBODY && owner[p] == w ->
#ifdef MOVE
        if
        :: moved[p] -> /* the intent of the move says that it took effect */
           atomic { FATE; state[p] = TOMBSTONE; owner[p] = NOBODY }
           redo(p)
        :: !moved[p] ->
#endif
        atomic { FATE; counted[p] = 1 }
        atomic { FATE; state[p] = READY; owner[p] = NOBODY }
        mark(p)
#ifdef MOVE
        fi
#endif
     :: p != NOBODY && owner[p] != w && state[p] == TOMBSTONE && !finished[p] ->
#ifdef FAULT_NO_REDO
        atomic {
          FATE;
          finished[p] = 1;
          if
          :: finished[leaf(p) * CELLS] && finished[leaf(p) * CELLS + 1] -> retired[leaf(p)] = 1
          :: else
          fi
        }
#else
        redo(p)
#endif
     :: p != NOBODY && owner[p] != w && state[p] != TOMBSTONE && !retired[leaf(p)] -> mark(p)
     :: else
     fi;
     atomic { FATE; working[w] = NOBODY; died[w] = false; deaths--; w = 0; p = 0 }
  :: w == REAPER && left == 0 && deaths == 0 -> break
  :: w == REAPER && !(left == 0 && deaths == 0) -> w = 0
  od;
  resting = true
}

/* One storekeeper after the other: what one of them only remembers is lost with it. */
active proctype Storekeeper() {
  byte p, l, cursor, limit;
  bit seen[ALL];       /* its changed bit was set when the cell was read */
  bit ended[ALL];      /* and it was TOMBSTONE, or its leaf was retired */
  bit was_counted[ALL];
  bit row[ALL];        /* has a message that goes into the store */
  bit range[LEAVES];   /* the leaf was retired */
  bit in_turn[ALL];    /* was asked for before the turn began */
  bit fresh;           /* the first batch of this storekeeper */
  bit idle;
#ifdef MOVE
  bit other[ALL];
  bit saw;             /* a message was seen as ended */
#endif
  fresh = 1;
  goto begin;
dead:
halted:
  fresh = 1;
begin:
  atomic {
    p = 0;
    do
    :: p < ALL -> seen[p] = 0; ended[p] = 0; was_counted[p] = 0; row[p] = 0; p++
    :: else -> break
    od;
    range[0] = 0; range[1] = 0;
    cursor = stored; p = 0; l = 0; idle = resting
  }
  atomic { FATE; copy(in_turn, asked) }
#ifdef FAULT_MESSAGES_FIRST
  atomic { FATE; copy(other, moved) }
#endif
  /* sb_changes_visit: from the root to the cells, each bit is cleared before what it leads to is read */
  l = 0;
  do
  :: l < LEAVES && !visits(l) -> l++
  :: l < LEAVES && visits(l) ->
     idle = 0;
#ifndef FAULT_LOOK_FIRST
     atomic { FATE; above[l] = 0 }
#endif
     if
     :: atomic { retired[l] -> FATE; range[l] = 1 }
     :: !retired[l] ->
        p = l * CELLS;
        do
        :: p < l * CELLS + CELLS ->
           if
           :: !retired[l] && looks(p) ->
#ifdef FAULT_READ_FIRST
              atomic { FATE; seen[p] = 1; ended[p] = (state[p] == TOMBSTONE); was_counted[p] = counted[p] }
              atomic { FATE; changed[p] = 0 }
#else
              atomic { FATE; changed[p] = 0 }
              atomic { FATE; seen[p] = 1; ended[p] = (state[p] == TOMBSTONE); was_counted[p] = counted[p] }
#endif
           :: retired[l] || !looks(p)
           fi;
           p++
        :: else -> break
        od;
#ifndef FAULT_NOT_AGAIN
        if
        :: retired[l] -> range[l] = 1 /* meanwhile: the link is read again */
        :: else
        fi
#endif
     fi;
#ifdef FAULT_LOOK_FIRST
     atomic { FATE; above[l] = 0 }
#endif
     l++
  :: else -> break
  od;
  /* sb_gather_row, from `stored` on. In the end the second queue once more, if a message was seen as ended here: it
   * may have gone there. */
#if defined(MOVE) && !defined(FAULT_MESSAGES_FIRST)
  atomic {
    FATE;
    copy(other, moved);
    saw = range[0] || range[1] || ended[0] || ended[1] || ended[2] || ended[3]
  }
#endif
  atomic { FATE; limit = tail; p = cursor }
#ifdef FAULT_STORED_FIRST
  atomic { FATE; stored = limit }
#endif
#ifdef FAULT_BEGIN_LATE
  atomic { FATE; copy(in_turn, asked) }
#endif
  do
  :: p < limit -> atomic { FATE; row[p] = live(p); SAW; was_counted[p] = counted[p]; p++; idle = 0 }
  :: else -> break
  od;
#if defined(MOVE) && !defined(FAULT_ONE_PASS) && !defined(FAULT_MESSAGES_FIRST)
  if
  :: saw -> atomic { FATE; copy(other, moved); saw = 0 }
  :: else
  fi;
#endif
  /* the transaction */
  atomic {
    FATE;
    p = 0;
    do
    :: p < ALL ->
       if
#ifdef FAULT_NO_FRESH_START
       :: p >= cursor && p < limit -> disk[p] = disk[p] || row[p]; disk_counted[p] = was_counted[p]
#else
       :: p >= cursor && p < limit -> disk[p] = row[p]; disk_counted[p] = was_counted[p]
       :: p >= limit && fresh -> disk[p] = 0
#endif
       :: p < cursor && (range[leaf(p)] || (seen[p] && ended[p])) -> disk[p] = 0
       :: p < cursor && !range[leaf(p)] && seen[p] && !ended[p] -> disk_counted[p] = was_counted[p]
       :: else
       fi;
#ifdef MOVE
       other_disk[p] = other_disk[p] || other[p];
#endif
       p++
    :: else -> break
    od;
    p = 0;
    fresh = 0
  }
  atomic {
    FATE;
    told[0] = told[0] || in_turn[0]; told[1] = told[1] || in_turn[1];
    told[2] = told[2] || in_turn[2]; told[3] = told[3] || in_turn[3]
  };
#ifndef FAULT_STORED_FIRST
  atomic { FATE; stored = limit };
#endif
  if
  :: idle && !above[0] && !above[1] -> goto rest
  :: else -> goto begin
  fi;
rest:
  /* at rest */
  p = 0;
  do
  :: p < ALL ->
     assert(disk[p] == live(p));
     assert(!live(p) || disk_counted[p] == counted[p]);
#ifdef MOVE
     assert(other_disk[p] == moved[p]);
#endif
     p++
  :: else -> break
  od
}

init {
  byte n;
  atomic {
    run Producer();
    do
    :: n < CONSUMERS -> run Consumer(n); n++
    :: else -> break
    od;
    n = 0
  }
}
