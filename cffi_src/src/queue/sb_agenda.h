// SPDX-License-Identifier: Apache-2.0
/* Agenda: what the housekeeper is to do for the messages of one queue, and when.
 *
 * What: two lists of positions. The *looks* say when to look at which message (sb_schedule.h), the earliest first. The
 * *dead* wait to be carried out (sb_park.h), in the order in which they were found. A message that ends does not remove
 * its look. So when there are more than SB_LEAST_LOOKS looks, and more than twice as many as the last check found to be
 * needed, the caller checks them all, in steps: it asks for each one (sb_agenda_ask), looks at the message, and notes
 * the look again if the message needs it.
 *
 * Layout: process-local. Two binary heaps: `kept`, and `asked` with the looks that a check has still to ask for. The dead
 * in an array, `dead_count` of them from `dead_first` on, and a hash table of the same positions plus one (0: free).
 * Each array has twice the memory that it needs at most, and gives memory back when it needs a quarter of it.
 *
 * Invariants: a position is among the dead once at most. Each child in a heap is due no earlier than its parent.
 *
 * Ordering pairs: none; nothing is shared.
 *
 * Death: a housekeeper that ends takes its agendas with it. The next one reads the schedule list from its beginning, and
 * the cells.
 *
 * Concurrency: one thread.
 */
#ifndef SB_AGENDA_H
#define SB_AGENDA_H

#include <stdbool.h>
#include <stdint.h>

#define SB_LEAST_LOOKS 4096u
#define SB_NO_LOOK UINT64_MAX

typedef struct {
  uint64_t due_ns, position;
} sb_look;
typedef struct {
  sb_look *looks;
  uint64_t count, room;
} sb_looks;

typedef struct sb_agenda {
  sb_looks kept, asked;
  uint64_t needed; /* how many looks the last check, or the one at work, found to be needed */
  uint64_t *dead, *table;
  uint64_t dead_first, dead_count, dead_room, table_room;
} sb_agenda;

/* Notes when to look at a message. False: this process has no memory for it. */
bool sb_agenda_note(sb_agenda *a, uint64_t due_ns, uint64_t position);
/* The time of the earliest look; SB_NO_LOOK: there is none. */
uint64_t sb_agenda_due(const sb_agenda *a);
/* Removes the earliest look, if it is due at `now_ns`. False: none is. */
bool sb_agenda_next(sb_agenda *a, uint64_t now_ns, uint64_t *position);
/* Begins a check of all looks, if there are too many of them. True: a check is at work. */
bool sb_agenda_checks(sb_agenda *a);
/* Removes the next look that the check asks for. The caller notes it again if the message needs it, and says so. False:
 * the check is at its end. */
bool sb_agenda_ask(sb_agenda *a, uint64_t *position);
static inline void sb_agenda_needs(sb_agenda *a) { a->needed++; }

/* Adds a message to the dead; one that is among them keeps its place. False: this process has no memory for it. */
bool sb_agenda_add_dead(sb_agenda *a, uint64_t position);
/* The positions of the dead, the first one first. */
static inline const uint64_t *sb_agenda_dead(const sb_agenda *a) { return a->dead + a->dead_first; }
/* Removes the first `count` of the dead, except for the `kept` positions that `keep` has: they stay, in that order, in
 * front of the others. They are some of those that the call removes. */
void sb_agenda_remove_dead(sb_agenda *a, uint64_t count, const uint64_t *keep, uint64_t kept);
/* Frees the memory of the agenda. */
void sb_agenda_end(sb_agenda *a);

#endif
