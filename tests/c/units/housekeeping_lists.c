// SPDX-License-Identifier: Apache-2.0
/* sb_housekeeping: what a tick does for the lists of consumers and their counts. */
#include <string.h>

#include "calls.h"
#include "ticks.h"

#define FREE_SETTINGS ((sb_settings)FREELY)

static sb_queue *q;
static void begin(sb_settings settings) { q = begin_ticks(settings); }

#define SCRUBS 4u

static unsigned entry_state(uint32_t object, uint32_t id, uint64_t position) {
  return sb_cell_state(leaf_of_list(object, id, position).leaf->cells[position].word);
}
/* ---- lists ---- */

static void dead_entries_are_dropped(void) {
  begin(FREE_SETTINGS);
  uint32_t a = node_with(SB_NODE_DIRECT, 0), level = q->shm->consumer_levels;
  (void)node_with(SB_NODE_DIRECT, 0);
  uint64_t token;
  uint32_t c;
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT, 0, 0, &c, &token) != SB_OK) die("sb_node_create", 0);
  move_to(a, SB_NODE_INTERESTED);
  move_to(a, SB_NODE_NOTIFIED);
  move_to(a, SB_NODE_NON_ACQUIRING);
  move_to(a, SB_NODE_NOT_INTERESTED);
  sb_node_destroy(t.c, c, token);
  uint32_t room = node_with(SB_NODE_ROOM, 0);
  move_to(room, SB_NODE_INTERESTED);
  move_to(room, SB_NODE_NOT_INTERESTED);
  be_quiet(SCRUBS - 1);
  tick_queue();
  expect(entry_state(q->slot, SB_RING_ROOM, 0) == SB_CELL_ENTRY, "it was dropped by each tick");
  tick_queue();
  const struct {
    uint32_t object, id;
    uint64_t at;
    unsigned state;
  } entries[] = {{q->slot, SB_RING_ALL, 1, SB_CELL_ENTRY},
                 {q->slot, SB_RING_ALL, 2, SB_CELL_TOMBSTONE},
                 {q->slot, SB_RING_NOT_INTERESTED, 0, SB_CELL_TOMBSTONE},
                 {q->slot, SB_RING_NOT_INTERESTED, 1, SB_CELL_ENTRY},
                 {q->slot, SB_RING_NOT_INTERESTED, 2, SB_CELL_TOMBSTONE},
                 {q->slot, SB_RING_NON_ACQUIRING, 0, SB_CELL_TOMBSTONE},
                 {q->slot, SB_RING_ROOM, 0, SB_CELL_TOMBSTONE},
                 {level, SB_RING_INTERESTED, 0, SB_CELL_TOMBSTONE},
                 {level, SB_RING_NOTIFIED, 0, SB_CELL_TOMBSTONE}};
  for (unsigned i = 0; i < sizeof entries / sizeof entries[0]; i++)
    expect(entry_state(entries[i].object, entries[i].id, entries[i].at) == entries[i].state,
           "entry %u is not in state %u", i, entries[i].state);
}
/* Of each level; and a page of a list that was overlooked goes. */
static void lists_of_two_levels(void) {
  begin(FREE_SETTINGS);
  (void)node_with(SB_NODE_DIRECT, 1);
  uint32_t low = node_with(SB_NODE_DIRECT, 0), level = sb_consumer_level_at(t.b, q->shm->consumer_levels)->next;
  for (unsigned i = 0; i <= SB_PAGE_CELLS; i++) {
    move_to(low, SB_NODE_INTERESTED);
    move_to(low, SB_NODE_NOT_INTERESTED);
  }
  sb_leaf_ref leaf = overlook(leaf_of_list(level, SB_RING_INTERESTED, 0));
  be_quiet(SCRUBS);
  tick_queue();
  expect(is_freed(&leaf), "the page of a list was not freed");
}
static void the_list_of_those_that_wait_for_memory(void) {
  begin(FREE_SETTINGS);
  uint32_t node = node_with(SB_NODE_ROOM | SB_NODE_MEMORY, 0);
  for (unsigned i = 0; i <= SB_PAGE_CELLS; i++) {
    move_to(node, SB_NODE_INTERESTED);
    move_to(node, SB_NODE_NOT_INTERESTED);
  }
  sb_leaf_ref leaf = overlook(leaf_of_list(0, SB_RING_MEMORY, 0));
  sb_housekeeping_scrub_waiting(t.c);
  expect(is_freed(&leaf), "the page of a list was not freed");
}
static void expect_counted_for_memory(uint32_t count, const char *what) {
  sb_housekeeping_scrub_waiting(t.c);
  expect_is(t.b->header->memory_waiting, count, what);
}
/* A process that was killed between the count and the move, in either direction, leaves the count one too high. A process
 * that lives may be between the two, so the count must be wrong twice over the same list. */
static void the_count_of_those_that_wait_for_memory(void) {
  begin(FREE_SETTINGS);
  uint32_t node = node_with(SB_NODE_ROOM | SB_NODE_MEMORY, 0);
  move_to(node, SB_NODE_INTERESTED);
  expect_counted_for_memory(1, "a count that is right");
  SB_STORE(&t.b->header->memory_waiting, 2u, SB_RELAXED);
  expect_counted_for_memory(2, "a count that is wrong for the first time");
  move_to(node, SB_NODE_NOT_INTERESTED);
  move_to(node, SB_NODE_INTERESTED);
  expect_counted_for_memory(2, "a count over a list that has changed");
  expect_counted_for_memory(1, "a count that is wrong twice");
  move_to(node, SB_NODE_NOT_INTERESTED);
  SB_STORE(&t.b->header->memory_waiting, UINT32_MAX, SB_RELAXED);
  expect_counted_for_memory(UINT32_MAX, "a count that is too low for the first time");
  SB_STORE(&t.b->header->memory_waiting, 1u, SB_RELAXED);
  expect_counted_for_memory(1, "another count that is wrong");
  expect_counted_for_memory(0, "another count that is wrong twice");
  SB_STORE(&t.b->header->memory_waiting, 1u, SB_RELAXED);
  expect_counted_for_memory(1, "a count that was right in between");
}
/* Ticks of a queue that rests look at its lists now and then only, unless something was wrong. */
static void when_lists_are_looked_at(void) {
  const struct {
    uint64_t quiet, wrong;
    bool looked;
  } ticks[] = {{RESTS - 1, 0, true},      {RESTS, 0, true},     {RESTS + 1, 0, false},
               {2 * RESTS - 1, 0, false}, {2 * RESTS, 0, true}, {RESTS + 1, 1, true}};
  begin(FREE_SETTINGS);
  (void)node_with(SB_NODE_DIRECT, 0);
  for (unsigned i = 0; i < sizeof ticks / sizeof ticks[0]; i++) {
    SB_STORE(&q->shm->consumers, -1, SB_RELAXED);
    be_quiet(ticks[i].quiet);
    remembered.wrong_ticks = ticks[i].wrong;
    tick_queue();
    expect_is(q->shm->consumers, ticks[i].looked ? 0 : -1, "how many consumers there are");
  }
}
static void a_queue_without_consumers(void) {
  begin(FREE_SETTINGS);
  SB_STORE(&q->shm->consumers, -1, SB_RELAXED);
  tick_queue();
  expect_is(q->shm->consumers, -1, "the consumers of a queue that nobody waits at");
  SB_STORE(&q->shm->room_waiting, -1, SB_RELAXED);
  tick_queue();
  expect_is(q->shm->room_waiting, 0, "the producers of a queue where some waited");
}

/* ---- recounting ---- */

static void a_count_is_mended(void) {
  begin(FREE_SETTINGS);
  (void)node_with(SB_NODE_DIRECT, 0);
  SB_STORE(&q->shm->interested, -1, SB_RELAXED);
  set_deaths(DEATHS);
  be_quiet(2);
  remembered.deaths = DEATHS;
  set_deaths(DEATHS);
  tick_queue();
  expect_is(q->shm->interested, 0, "how many are interested");
  expect_is(remembered.wrong_ticks, 1, "the ticks at which it was wrong");
  expect_repairs(OF_COUNT, 0);
  tick_queue();
  expect_is(remembered.wrong_ticks, 0, "the ticks at which it was wrong, when it is right");
}
/* Not before it was found right: who found it wrong does not know what else is. */
static void deaths_beside_a_wrong_count(void) {
  begin(FREE_SETTINGS);
  (void)node_with(SB_NODE_DIRECT, 0);
  SB_STORE(&q->shm->interested, -1, SB_RELAXED);
  set_deaths(DEATHS);
  be_quiet(2);
  tick_queue();
  expect_is(remembered.deaths, 0, "the deaths when a count was mended");
  expect_repairs(0, OF_COUNT);
}
static void a_count_that_does_no_harm(void) {
  begin(FREE_SETTINGS);
  (void)node_with(SB_NODE_DIRECT, 0);
  SB_STORE(&q->shm->not_interested, 7, SB_RELAXED);
  for (uint64_t wrong = 1; wrong <= 3; wrong++) {
    tick_queue();
    expect_is(q->shm->not_interested, 7, "a count that is too high");
    expect_is(remembered.wrong_ticks, wrong, "the ticks at which it was wrong");
  }
  tick_queue();
  expect_is(q->shm->not_interested, 0, "the count after three ticks");
  expect_repairs(OF_COUNT, 0);
}
static void a_count_that_became_right(void) {
  begin(FREE_SETTINGS);
  (void)node_with(SB_NODE_DIRECT, 0);
  set_deaths(DEATHS);
  be_quiet(2);
  remembered.wrong_ticks = 3;
  tick_queue();
  expect_is(remembered.wrong_ticks, 0, "the ticks at which it was wrong");
  expect_is(remembered.deaths, DEATHS, "the deaths when it was found right");
}
/* Each look at the processes, of which a tick makes one itself, is one step after a death. */
static unsigned looks;
static void count_looks(const char *site) { looks += strstr(site, "sb_repairs.c") != NULL; }
static void change_at_looks(const char *site) {
  count_looks(site);
  if (strstr(site, "sb_repairs.c") != NULL && looks > 1 && looks < 20) (void)SB_SUB(&q->shm->interested, 1, SB_RELAXED);
}
static unsigned looks_of_tick(void (*step)(const char *site)) {
  looks = 0;
  at_step = step;
  tick_queue();
  at_step = NULL;
  return looks;
}
static void lists_that_do_not_rest(void) {
  if (!has_steps()) return;
  begin(FREE_SETTINGS);
  (void)node_with(SB_NODE_DIRECT, 0);
  set_deaths(DEATHS);
  expect_is(looks_of_tick(count_looks), 1, "the looks where all is right");
  SB_STORE(&q->shm->interested, -1, SB_RELAXED);
  expect_is(looks_of_tick(count_looks), 3, "the looks where the same is wrong twice, and what counts it");
  expect_repairs(0, OF_COUNT);
  SB_STORE(&q->shm->interested, -1, SB_RELAXED);
  remembered.wrong_ticks = 0;
  expect_is(looks_of_tick(change_at_looks), 5, "the looks where counts go on changing");
  expect_is(remembered.wrong_ticks, 1, "the ticks at which it was wrong");
  expect_is(q->shm->interested, -5, "a count that is changing");
  expect_repairs(0, OF_COUNT);
  remembered.wrong_ticks = 3;
  expect_is(looks_of_tick(change_at_looks), 5, "the looks of one that is patient");
  expect_is(q->shm->interested, 0, "a count that was changing for long");
  expect_repairs(0, OF_COUNT);
  expect_is(remembered.deaths, SB_DEATHS_UNKNOWN, "the deaths: what was mended may be wrong");
}

static const test_case CASES[] = {
    {"tick: entries", "dead entries of all lists are dropped", dead_entries_are_dropped},
    {"tick: levels", "the lists of each level are swept", lists_of_two_levels},
    {"scrub: memory", "so is the list of those that wait for memory", the_list_of_those_that_wait_for_memory},
    {"scrub: memory count", "the count of those that wait for memory is mended when it stays wrong",
     the_count_of_those_that_wait_for_memory},
    {"tick: due", "a queue that rests is looked at now and then", when_lists_are_looked_at},
    {"tick: nobody", "lists are looked at where somebody waits", a_queue_without_consumers},
    {"tick: count", "a count that could suppress a wake is mended", a_count_is_mended},
    {"tick: count and deaths", "a wrong count keeps the explanation", deaths_beside_a_wrong_count},
    {"tick: harmless count", "a count that only costs wakes is mended after ticks", a_count_that_does_no_harm},
    {"tick: right again", "counts that became right explain nothing any more", a_count_that_became_right},
    {"tick: no rest", "counts that go on changing are believed after ticks", lists_that_do_not_rest},
};
SUBJECT(CASES)
