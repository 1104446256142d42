// SPDX-License-Identifier: Apache-2.0
/* Public calls: the timers of the housekeeper. One call looks at all messages of all queues that are due. */
#include <stdlib.h>

#include "sb_agenda.h"
#include "sb_api.h"
#include "sb_schedule.h"

#define AT_ONCE 128u               /* looks under one lock, and with one reading of the clock */
#define ASKED_AT_ONCE 1024u        /* looks of a check (sb_agenda.h) in one call */
#define RETRY_NS UINT64_C(1000000) /* until the next look at a message that a look could not decide */

/* Lock held. Looks at a message; again, if it changed during the look. */
static uint64_t look(sb_queue *q, uint64_t position, uint64_t now_ns) {
  uint64_t next = now_ns;
  for (unsigned tries = 0; next == now_ns && tries < SB_MAX_RETRIES; tries++) {
    bool ready;
    next = sb_schedule_look_at(q, position, now_ns, &ready);
    if (ready) sb_notify_work_arrived(q);
  }
  return next;
}

/* If there was no memory for a note, a scan of all cells finds the message again. */
static void noted(sb_queue *q, bool is_noted) {
  if (!is_noted) (void)SB_ADD(&q->shm->timers_lost, 1, SB_RELEASE);
}

/* Looks at up to AT_ONCE messages, and notes what is to be done for them next. Those that die by the looks are carried
 * out after those that were dead. Returns how many of them have another look. */
static uint32_t look_at(sb_queue *q, sb_agenda *a, const uint64_t *positions, uint32_t count) {
  uint64_t died[AT_ONCE];
  uint32_t needed = 0, died_count = 0;
  if (count == 0 || sb_api_enter(q->c) != SB_OK) {
    return 0;
  }
  uint64_t now = sb_now_ns();
  for (uint32_t i = 0; i < count; i++) {
    uint64_t next = look(q, positions[i], now);
    if (next == SB_SCHEDULE_DIED) {
      died[died_count++] = positions[i];
    } else if (next == SB_SCHEDULE_DEAD) {
      noted(q, sb_agenda_add_dead(a, positions[i]));
    } else if (next != 0) {
      noted(q, sb_agenda_note(a, next > now ? next : now + RETRY_NS, positions[i]));
      needed++;
    }
  }
  for (uint32_t i = 0; i < died_count; i++) noted(q, sb_agenda_add_dead(a, died[i]));
  sb_notify_room_made(q->c, q->shm, q->slot);
  sb_api_leave(q->c);
  return needed;
}

static uint32_t next_ones(sb_agenda *a, uint64_t now_ns, uint64_t *positions) {
  uint32_t n = 0;
  while (n < AT_ONCE && sb_agenda_next(a, now_ns, &positions[n])) n++;
  return n;
}

static uint32_t asked_ones(sb_agenda *a, uint64_t *positions) {
  uint32_t n = 0;
  while (n < AT_ONCE && sb_agenda_ask(a, &positions[n])) n++;
  return n;
}

/* Takes a step of the check whether the looks of a queue are still needed. */
static void check_some(sb_queue *q, sb_agenda *a) {
  uint64_t positions[AT_ONCE];
  bool at_work = sb_agenda_checks(a);
  for (uint32_t asked = 0; at_work && asked < ASKED_AT_ONCE; asked += AT_ONCE) {
    uint32_t n = asked_ones(a, positions);
    a->needed += look_at(q, a, positions, n);
    at_work = n == AT_ONCE;
  }
}

static int by_position(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return a < b ? -1 : a > b;
}

/* Looks at the new messages of a queue, and at those that are due. False: the time is over, and some are left. */
static bool turn(sb_queue *q, sb_queue_memory *m, uint64_t due_ns, uint64_t stop_ns) {
  uint64_t positions[AT_ONCE];
  uint32_t n;
  if (sb_usable(q->c) != SB_OK) {
    return false; /* no look is taken off the agenda that no call could make */
  }
  while (m->new_timers != 0) {
    n = sb_housekeeping_timers(q, m->cursors, positions, AT_ONCE);
    qsort(positions, n, sizeof *positions,
          by_position); /* of those that died together, the oldest is carried out first */
    (void)look_at(q, m->agenda, positions, n);
    m->new_timers = n == AT_ONCE;
    if (sb_now_ns() >= stop_ns) return false;
  }
  while ((n = next_ones(m->agenda, due_ns, positions)) > 0) {
    (void)look_at(q, m->agenda, positions, n);
    if (sb_now_ns() >= stop_ns) return false;
  }
  check_some(q, m->agenda);
  return true;
}

static bool is_due(const sb_queue_memory *m, uint64_t due_ns) {
  return m->new_timers != 0 ||
         (m->agenda != NULL && (m->agenda->asked.count > 0 || sb_agenda_due(m->agenda) <= due_ns));
}

static bool has_agenda(sb_queue_memory *m) {
  if (m->agenda == NULL) m->agenda = calloc(1, sizeof *m->agenda);
  return m->agenda != NULL; /* without memory, a later call tries again */
}

uint32_t sb_housekeeper_run_timers(sb_queue *const *queues, sb_queue_memory *memories, uint32_t count, uint32_t first,
                                   uint64_t due_ns, uint64_t nanoseconds) {
  uint64_t stop_ns = sb_now_ns() + nanoseconds;
  uint32_t dead = 0;
  bool time_left = true;
  for (uint32_t i = 0; time_left && i < count; i++) {
    uint32_t at = (first + i) % count;
    if (is_due(&memories[at], due_ns) && has_agenda(&memories[at]))
      time_left = turn(queues[at], &memories[at], due_ns, stop_ns);
  }
  for (uint32_t i = 0; i < count; i++) dead += memories[i].agenda != NULL && memories[i].agenda->dead_count > 0;
  return dead;
}

uint64_t sb_housekeeper_due(const sb_queue_memory *memories, uint32_t count) {
  uint64_t due = UINT64_MAX;
  for (uint32_t i = 0; i < count && due > 0; i++) {
    if (is_due(&memories[i], 0)) due = 0;
    if (memories[i].agenda != NULL && sb_agenda_due(memories[i].agenda) < due) due = sb_agenda_due(memories[i].agenda);
  }
  return due;
}

uint32_t sb_housekeeper_with_dead(const sb_queue_memory *memories, uint32_t count, uint32_t *indexes, uint32_t room) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count && n < room; i++) {
    if (memories[i].agenda != NULL && memories[i].agenda->dead_count > 0) indexes[n++] = i;
  }
  return n;
}

uint64_t sb_housekeeper_looks(const sb_queue_memory *memory) {
  return memory->agenda == NULL ? 0 : memory->agenda->kept.count + memory->agenda->asked.count;
}

void sb_housekeeper_forget(sb_queue_memory *memory) {
  if (memory->agenda != NULL) sb_agenda_end(memory->agenda);
  free(memory->agenda);
  memory->agenda = NULL;
}
