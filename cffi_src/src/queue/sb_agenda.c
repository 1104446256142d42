// SPDX-License-Identifier: Apache-2.0
#include "sb_agenda.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 64u

/* ---- looks ---- */

/* Gives the array the memory for `room` looks. False: this process has none; then the array is as before. */
static bool resize(sb_looks *l, uint64_t room) {
  sb_look *looks = realloc(l->looks, room * sizeof *looks);
  if (looks == NULL) return false;
  l->looks = looks;
  l->room = room;
  return true;
}

static void shrink(sb_looks *l) {
  if (l->room > LEAST_ROOM && l->count <= l->room / 4) (void)resize(l, l->room / 2);
}

static bool push(sb_looks *l, sb_look look) {
  if (l->count == l->room && !resize(l, l->room == 0 ? LEAST_ROOM : 2 * l->room)) {
    return false;
  }
  uint64_t at = l->count++;
  for (uint64_t parent; at > 0 && l->looks[parent = (at - 1) / 2].due_ns > look.due_ns; at = parent) {
    l->looks[at] = l->looks[parent];
  }
  l->looks[at] = look;
  return true;
}

static sb_look pop(sb_looks *l) {
  sb_look first = l->looks[0], last = l->looks[--l->count];
  uint64_t at = 0;
  for (uint64_t child; (child = 2 * at + 1) < l->count; at = child) {
    if (child + 1 < l->count && l->looks[child + 1].due_ns < l->looks[child].due_ns) child++;
    if (l->looks[child].due_ns >= last.due_ns) break;
    l->looks[at] = l->looks[child];
  }
  if (l->count > 0) l->looks[at] = last;
  shrink(l);
  return first;
}

static uint64_t due_of(const sb_looks *l) { return l->count > 0 ? l->looks[0].due_ns : SB_NO_LOOK; }

bool sb_agenda_note(sb_agenda *a, uint64_t due_ns, uint64_t position) {
  return push(&a->kept, (sb_look){due_ns, position});
}

uint64_t sb_agenda_due(const sb_agenda *a) {
  uint64_t kept = due_of(&a->kept), asked = due_of(&a->asked);
  return kept < asked ? kept : asked;
}

bool sb_agenda_next(sb_agenda *a, uint64_t now_ns, uint64_t *position) {
  sb_looks *earlier = due_of(&a->kept) <= due_of(&a->asked) ? &a->kept : &a->asked;
  if (earlier->count == 0 || due_of(earlier) > now_ns) {
    return false;
  }
  *position = pop(earlier).position;
  return true;
}

bool sb_agenda_checks(sb_agenda *a) {
  uint64_t most = 2 * a->needed > SB_LEAST_LOOKS ? 2 * a->needed : SB_LEAST_LOOKS;
  if (a->asked.count == 0 && a->kept.count > most) {
    sb_looks all = a->kept;
    a->kept = a->asked;
    a->asked = all;
    a->needed = 0;
  }
  return a->asked.count > 0;
}

bool sb_agenda_ask(sb_agenda *a, uint64_t *position) {
  if (a->asked.count == 0) {
    return false;
  }
  *position = a->asked.looks[--a->asked.count].position; /* without its last entry, a heap is a heap */
  shrink(&a->asked);
  return true;
}

/* ---- the dead ---- */

static uint64_t place_of(const sb_agenda *a, uint64_t position) {
  return (position * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (a->table_room - 1);
}

/* The entry of the position, or the free one where it would be. */
static uint64_t find(const sb_agenda *a, uint64_t position) {
  uint64_t at = place_of(a, position);
  while (a->table[at] != 0 && a->table[at] != position + 1) at = (at + 1) & (a->table_room - 1);
  return at;
}

/* Removes an entry, and closes the gap: moves those behind it that a search would not find any more. */
static void forget(sb_agenda *a, uint64_t position) {
  uint64_t mask = a->table_room - 1, gap = find(a, position);
  for (uint64_t at = (gap + 1) & mask; a->table[at] != 0; at = (at + 1) & mask) {
    uint64_t home = place_of(a, a->table[at] - 1);
    if (((at - home) & mask) >= ((at - gap) & mask)) {
      a->table[gap] = a->table[at];
      gap = at;
    }
  }
  a->table[gap] = 0;
}

/* Makes room for `room` dead, a power of two, and a table of twice that number. False: this process has no memory. */
static bool rebuild(sb_agenda *a, uint64_t room) {
  uint64_t *dead = malloc(room * sizeof *dead), *table = calloc(2 * room, sizeof *table);
  if (dead == NULL || table == NULL) {
    free(dead);
    free(table);
    return false;
  }
  if (a->dead_count > 0) memcpy(dead, a->dead + a->dead_first, a->dead_count * sizeof *dead);
  free(a->dead);
  free(a->table);
  a->dead = dead;
  a->table = table;
  a->dead_first = 0;
  a->dead_room = room;
  a->table_room = 2 * room;
  for (uint64_t i = 0; i < a->dead_count; i++) a->table[find(a, dead[i])] = dead[i] + 1;
  return true;
}

/* Makes room for one more of the dead. */
static bool reserve(sb_agenda *a) {
  if (a->dead_first + a->dead_count < a->dead_room) {
    return true;
  }
  if (a->dead_count >= a->dead_room / 2) {
    return rebuild(a, a->dead_room == 0 ? LEAST_ROOM : 2 * a->dead_room);
  }
  memmove(a->dead, a->dead + a->dead_first, a->dead_count * sizeof *a->dead);
  a->dead_first = 0;
  return true;
}

bool sb_agenda_add_dead(sb_agenda *a, uint64_t position) {
  if (a->table_room > 0 && a->table[find(a, position)] != 0) {
    return true;
  }
  if (!reserve(a)) {
    return false;
  }
  a->dead[a->dead_first + a->dead_count++] = position;
  a->table[find(a, position)] = position + 1;
  return true;
}

void sb_agenda_remove_dead(sb_agenda *a, uint64_t count, const uint64_t *keep, uint64_t kept) {
  for (uint64_t i = 0; i < count; i++) forget(a, a->dead[a->dead_first + i]);
  a->dead_first += count - kept;
  a->dead_count -= count - kept;
  for (uint64_t i = 0; i < kept; i++) {
    a->dead[a->dead_first + i] = keep[i];
    a->table[find(a, keep[i])] = keep[i] + 1;
  }
  uint64_t room = a->dead_room;
  while (room > LEAST_ROOM && a->dead_count <= room / 8) room /= 2;
  if (room < a->dead_room) (void)rebuild(a, room); /* without memory for smaller arrays, it keeps the larger ones */
}

void sb_agenda_end(sb_agenda *a) {
  free(a->kept.looks);
  free(a->asked.looks);
  free(a->dead);
  free(a->table);
  *a = (sb_agenda){0};
}
