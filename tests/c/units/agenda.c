// SPDX-License-Identifier: Apache-2.0
/* sb_agenda: looks by time, the check whether they are needed, and the dead in their order. */
#include "sb_agenda.h"

#include "cases.h"
#include "heap.h"

#define MANY 10000u

static sb_agenda a;

static uint64_t chance_state = 1;
static uint64_t chance(void) {
  chance_state = chance_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return chance_state >> 33;
}
static uint64_t next_at(uint64_t now) {
  uint64_t position = UINT64_MAX;
  return sb_agenda_next(&a, now, &position) ? position : UINT64_MAX;
}

/* ---- looks ---- */

static void nothing_is_due(void) {
  expect_is(sb_agenda_due(&a), SB_NO_LOOK, "when the first look is due");
  expect_is(next_at(UINT64_MAX), UINT64_MAX, "a look of an empty agenda");
  expect(!sb_agenda_checks(&a), "an empty agenda is checked");
  uint64_t position;
  expect(!sb_agenda_ask(&a, &position), "a check asks for nothing");
}
static void the_earliest_comes_first(void) {
  for (uint64_t i = 0; i < MANY; i++) {
    uint64_t due = chance() % 5000;
    expect(sb_agenda_note(&a, due, due), "there is no memory");
  }
  uint64_t last = 0;
  for (uint64_t i = 0; i < MANY; i++) {
    uint64_t due = sb_agenda_due(&a), got = next_at(due);
    expect(got == due && due >= last, "look %d is due at %d, after %d", (int)i, (int)got, (int)last);
    last = due;
  }
  nothing_is_due();
  expect(a.kept.room <= 64, "%d places stay for no looks", (int)a.kept.room);
  sb_agenda_end(&a);
}
static void what_is_not_due_stays(void) {
  expect(sb_agenda_note(&a, 10, 1) && sb_agenda_note(&a, 20, 2), "there is no memory");
  expect_is(next_at(9), UINT64_MAX, "a look before its time");
  expect_is(next_at(10), 1, "a look at its time");
  expect_is(next_at(19), UINT64_MAX, "the next one before its time");
  expect_is(sb_agenda_due(&a), 20, "when it is due");
  sb_agenda_end(&a);
  nothing_is_due();
}
static void note_many(uint64_t count) {
  for (uint64_t i = 0; i < count; i++) expect(sb_agenda_note(&a, 1000 + i, i), "there is no memory");
}
static void few_looks_are_not_checked(void) {
  note_many(SB_LEAST_LOOKS);
  expect(!sb_agenda_checks(&a), "a check begins too early");
  note_many(1);
  expect(sb_agenda_checks(&a), "no check begins");
  expect_is(a.asked.count, SB_LEAST_LOOKS + 1, "the looks that are asked for");
  sb_agenda_end(&a);
}
/* A check asks for each look once; those that are due meanwhile come, too. */
static void a_check_asks_for_all(void) {
  static uint8_t seen[SB_LEAST_LOOKS + 1];
  uint64_t position, asked = 0;
  note_many(sizeof seen);
  expect(sb_agenda_checks(&a), "no check begins");
  expect(sb_agenda_note(&a, 5, sizeof seen), "there is no memory");
  expect_is(next_at(1000), sizeof seen, "a look that was noted meanwhile");
  expect_is(next_at(1000), 0, "the first look");
  while (sb_agenda_ask(&a, &position)) {
    expect_is(seen[position]++, 0, "how often a look was asked for");
    if (position % 2 == 0) {
      sb_agenda_needs(&a);
      expect(sb_agenda_note(&a, 1000 + position, position), "there is no memory");
    }
    asked++;
  }
  expect_is(asked, sizeof seen - 1, "the looks that were asked for");
  expect_is(a.needed, SB_LEAST_LOOKS / 2, "those that are needed");
  expect_is(a.kept.count, SB_LEAST_LOOKS / 2, "those that stay");
  expect(!sb_agenda_checks(&a), "another check begins");
  note_many(SB_LEAST_LOOKS / 2);
  expect(!sb_agenda_checks(&a), "a check begins with twice as many as needed");
  note_many(1);
  expect(sb_agenda_checks(&a), "no check begins with more than twice as many");
  sb_agenda_end(&a);
}

/* ---- the dead ---- */

static void add(uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) expect(sb_agenda_add_dead(&a, first + i), "there is no memory");
}
static void expect_dead(uint64_t count, const uint64_t *positions, const char *what) {
  expect_is(a.dead_count, count, what);
  for (uint64_t i = 0; i < count && i < a.dead_count; i++) expect_is(sb_agenda_dead(&a)[i], positions[i], what);
}
static void the_dead_keep_their_order(void) {
  add(7, 3);
  add(1, 2);
  add(8, 1);
  expect_dead(5, (uint64_t[]){7, 8, 9, 1, 2}, "the dead");
  sb_agenda_remove_dead(&a, 2, NULL, 0);
  expect_dead(3, (uint64_t[]){9, 1, 2}, "the dead without two");
  add(7, 1);
  expect_dead(4, (uint64_t[]){9, 1, 2, 7}, "the dead with one that came again");
  sb_agenda_remove_dead(&a, 3, (uint64_t[]){9, 2}, 2);
  expect_dead(3, (uint64_t[]){9, 2, 7}, "the dead, some of which were kept");
  add(9, 1);
  add(1, 1);
  expect_dead(4, (uint64_t[]){9, 2, 7, 1}, "the dead, of which one is known");
  sb_agenda_end(&a);
}
/* Against a plain list: positions come and go, in groups. */
static void many_dead(void) {
  static uint64_t plain[3 * MANY];
  uint64_t first = 0, end = 0;
  for (unsigned round = 0; round < 300; round++) {
    for (uint64_t n = chance() % 200; n > 0; n--) {
      uint64_t position = chance() % 4000 << (round % 3) * 20, known = first;
      while (known < end && plain[known] != position) known++;
      if (known == end) plain[end++] = position;
      add(position, 1);
    }
    uint64_t gone = chance() % 150;
    if (gone > end - first) gone = end - first;
    uint64_t kept = gone / 3, keep[64];
    for (uint64_t i = 0; i < kept; i++) keep[i] = plain[first + 2 * i];
    sb_agenda_remove_dead(&a, gone, keep, kept);
    first += gone - kept;
    for (uint64_t i = 0; i < kept; i++) plain[first + i] = keep[i];
    expect_dead(end - first, plain + first, "the dead");
  }
  sb_agenda_remove_dead(&a, a.dead_count, NULL, 0);
  expect(a.table_room <= 1u << 12, "%d entries stay for no dead", (int)a.table_room);
  sb_agenda_end(&a);
}

static void without_memory(void) {
  if (!heap_exhaust()) return;
  bool noted = sb_agenda_note(&a, 1, 1), added = sb_agenda_add_dead(&a, 1);
  heap_relieve();
  expect(!noted && !added, "there is memory");
  nothing_is_due();
  expect_is(a.dead_count, 0, "the dead");
  add(1, 1);
  expect(sb_agenda_note(&a, 1, 1), "there is no memory");
  sb_agenda_end(&a);
}
static void round_of_all(void) {
  note_many(2000);
  add(0, 2000);
  sb_agenda_end(&a);
}
static void memory_is_freed(void) { expect_is(heap_kept_by(round_of_all), 0, "the bytes that stay"); }

static const test_case CASES[] = {
    {"agenda: empty", "an empty agenda has nothing to do", nothing_is_due},
    {"agenda: order", "the earliest look comes first, and memory goes with the looks", the_earliest_comes_first},
    {"agenda: time", "a look comes at its time, not before", what_is_not_due_stays},
    {"agenda: few", "a check begins with more than SB_LEAST_LOOKS looks", few_looks_are_not_checked},
    {"agenda: check", "a check asks for each look once, and the next one waits", a_check_asks_for_all},
    {"agenda: dead", "the dead keep their order, and none is there twice", the_dead_keep_their_order},
    {"agenda: many dead", "so do many", many_dead},
    {"agenda: no memory", "without memory nothing is noted, and nothing is lost", without_memory},
    {"agenda: memory", "an agenda that ends keeps no memory", memory_is_freed},
};
SUBJECT(CASES)
