/* SPDX-License-Identifier: Apache-2.0
 *
 * A rival: a consumer of a higher priority that wants only some of the messages, and one of a lower priority that takes the
 * others.
 *
 * Mirrors: sb_rivals.c sb_rivals_find, sb_rivals_left, look_at; sb_subscription.c end_interest, sb_subscription_take_beside,
 *   sb_subscription_take_choosy; sb_notify.c sb_notify_work_arrived, sb_notify_node; sb_nodes.c sb_node_move.
 * Abstracted: one rival, which wants every message, so all others are of no interest here. The counts of nodes are read from the
 *   nodes (notify.pml has the counts), lists are nodes (list.pml), a wake is a flag (wake.pml). A message is taken in one step
 *   (cell.pml). The reaper is one process, which is not killed itself.
 *
 * Claims: the lower consumer takes no message while the rival, as it last saw it, wants the message; when nothing moves any more,
 *   no message is ready that a living consumer with credit could have.
 *
 * With CHOOSY: the lower consumer has a selector, too, so that its node is NON_ACQUIRING, and it is flagged instead of notified.
 *
 * quick: -DMESSAGES=2
 * quick: -DMESSAGES=2 -DCHOOSY
 * quick: -DMESSAGES=2 -DKILLS=1
 * quick: -DMESSAGES=2 -DKILLS=1 -DCHOOSY
 * full: -DMESSAGES=4 -DKILLS=1
 * full: -DMESSAGES=4 -DKILLS=1 -DCHOOSY
 * fault: -DMESSAGES=2 -DFAULT_TELL_NOBODY
 * fault: -DMESSAGES=2 -DFAULT_TELL_FIRST
 * fault: -DMESSAGES=2 -DFAULT_TELL_FIRST -DCHOOSY
 * fault: -DMESSAGES=2 -DFAULT_LOOK_FIRST
 * fault: -DMESSAGES=2 -DKILLS=1 -DFAULT_REAP_SILENTLY
 * fault: -DMESSAGES=2 -DFAULT_KEEP_CURSOR
 */
#include "common.h"

#ifndef MESSAGES
#define MESSAGES 2
#endif

mtype = { NOT_INTERESTED, NON_ACQUIRING, INTERESTED, NOTIFIED };
mtype rival = NOT_INTERESTED, lower = NOT_INTERESTED;
bool rival_flag, lower_flag; /* the node asks for a turn (P9) */
byte came, taken;            /* messages; those from `taken` on are ready, except those that the rival's cursor took */
bool dead_rival, reaped, over;
byte epoch;                  /* of the rival's node */

inline tell_lower() {
#ifdef CHOOSY
  atomic {
    if
    :: lower == NON_ACQUIRING -> lower_flag = true
    :: else
    fi
  }
#else
  if
  :: lower == INTERESTED -> /* P33: loads `interested` */
     atomic {
       if
       :: lower == INTERESTED -> lower = NOTIFIED; lower_flag = true
       :: else
       fi
     }
  :: else
  fi
#endif
}

inline end_interest() {
#ifdef FAULT_TELL_FIRST
  tell_lower();
  atomic { FATE; rival = NOT_INTERESTED; epoch++ }
#else
  atomic { FATE; rival = NOT_INTERESTED; epoch++ }
#ifndef FAULT_TELL_NOBODY
  atomic { FATE };
  tell_lower()
#endif
#endif
}

proctype Producer() {
  byte n;
  do
  :: n < MESSAGES ->
     came++;
     if
     :: rival == NON_ACQUIRING -> rival_flag = true
     :: else
     fi;
     tell_lower();
     n++
  :: else -> break
  od
}

/* Takes one message for each credit, and has one credit at a time. It may end its interest at any time, and come again once. */
proctype Rival() {
  bool again = true;
come:
  atomic { FATE; rival = NON_ACQUIRING; epoch++; rival_flag = true }
end_sleep:
  do
  :: rival_flag ->
     rival_flag = false;
     atomic {
       FATE;
       if
       :: taken < came -> taken++; goto no_credit
       :: else
       fi
     }
  :: again -> goto no_credit /* it is cancelled, or suspended */
  od;
no_credit:
  end_interest();
  if
  :: again -> again = false; goto come
  :: true
  fi;
  goto done;
dead:
  dead_rival = true;
done:
  skip
}

proctype Reaper() {
end_wait:
  dead_rival;
  atomic { rival = NOT_INTERESTED; epoch++ }
  reaped = true;
#ifndef FAULT_REAP_SILENTLY
  tell_lower()
#endif
}

proctype Lower() {
  byte seen;    /* the epoch of the rival for which the cursor passed messages; 0 = none */
  bool passed;  /* the cursor is behind a ready message */
  mtype saw;
#ifdef CHOOSY
  lower = NON_ACQUIRING;
#else
  lower = INTERESTED;
#endif
  lower_flag = true;
end_sleep:
  do
  :: lower_flag ->
     lower_flag = false;
#ifdef FAULT_LOOK_FIRST
     saw = rival;
#endif
look:
     atomic {
#ifndef FAULT_LOOK_FIRST
       saw = rival; /* P33 */
#endif
#ifndef FAULT_KEEP_CURSOR
       if
       :: saw != NON_ACQUIRING || epoch != seen -> passed = false
       :: else
       fi;
#endif
       seen = (saw == NON_ACQUIRING -> epoch : 0)
     }
     atomic {
       if
       :: taken < came && saw == NON_ACQUIRING -> passed = true
       :: taken < came && saw != NON_ACQUIRING && !passed -> taken++; lower_flag = true; goto look
       :: else
       fi
     }
#ifndef CHOOSY
     atomic {
       if
       :: lower == NOTIFIED -> lower = INTERESTED; goto look
       :: else
       fi
     }
#endif
  od
}

init {
  atomic { run Producer(); run Rival(); run Reaper(); run Lower() }
  timeout; /* nothing moves any more */
  assert(taken == came)
}
