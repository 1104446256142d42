// SPDX-License-Identifier: Apache-2.0
/* sb_api_browse, sb_api_queues, sb_api_get and sb_api_chunks in a queue with priorities: what browsers see, what a purge
 * or a move takes, and what facts say. */
#include <string.h>

#include "calls.h"
#include "heap.h"
#include "meanwhile.h"
#include "queues.h"
#include "ranked.h"
#include "sb_api.h"
#include "sb_move.h"

enum { FIRST = 9, MIDDLE = 5, LAST = 0 }; /* priorities; their lanes are 0, 4 and 9 */
#define ALL UINT64_MAX
#define SOME_LOOKS 1000u

static sb_queue *q;
static char buffer[BUFFER];

static void put_each(sb_queue *to, const unsigned *priorities, unsigned count) {
  for (unsigned i = 0; i < count; i++) expect_is(put_ranked(to, priorities[i], i + 1), SB_OK, "the status of a put");
}
/* Ids by lane: 2 and 4; 3 and 6; 1 and 5. */
static void begin(sb_settings settings) {
  q = queue_named("q", settings);
  put_each(q, (unsigned[]){LAST, FIRST, MIDDLE, FIRST, LAST, MIDDLE}, 6);
}
static const sb_record *record(void) { return (const sb_record *)(const void *)buffer; }

/* ---- browsers ---- */

static uint64_t position;
static int64_t browse_sized(uint64_t size) { return sb_queue_browse(q, &position, buffer, size); }
static void expect_seen(uint64_t id, uint64_t sequence, const char *what) {
  int64_t length = browse_sized(BUFFER);
  expect(length > 0, "%s: the status is %d", what, (int)-length);
  if (length <= 0) return;
  expect_is(id_at(body_of(buffer, length), BYTES), id, what);
  expect_is(record()->sequence, sequence, what);
  expect_is(position, sequence + 1, what);
}
static void expect_end(uint64_t then, const char *what) {
  expect_is(browse_sized(BUFFER), -(int64_t)SB_EMPTY, what);
  expect_is(position, then, what);
}
static uint64_t in(unsigned lane, uint64_t n) { return sb_position_in(lane, n); }
static void messages_of_all_lanes(void) {
  begin(RANKED(9));
  position = 0;
  const uint64_t ids[] = {2, 4, 3, 6, 1, 5}, numbers[] = {in(0, 0), in(0, 1), in(4, 0), in(4, 1), in(9, 0), in(9, 1)};
  for (unsigned i = 0; i < 6; i++) expect_seen(ids[i], numbers[i], "a message in its turn");
  expect_end(in(9, 2), "the end of the last lane");
  expect_is(put_ranked(q, MIDDLE, 7), SB_OK, "the status of a put");
  expect_end(in(9, 2), "a message in a lane before");
  expect_is(put_ranked(q, LAST, 8), SB_OK, "the status of a put");
  expect_seen(8, in(9, 2), "a message in the last lane");
}
static void from_a_position(void) {
  begin(RANKED(9));
  position = in(4, 1);
  expect_seen(6, in(4, 1), "from the middle of a lane");
  position = in(4, 99);
  expect_seen(1, in(9, 0), "from behind the end of a lane");
  position = in(1, 7);
  expect_seen(3, in(4, 0), "from a lane that nobody made");
  position = in(10, 0);
  expect_end(in(9, 2), "from behind the last lane");
  position = in(255, 3);
  expect_end(in(9, 2), "from the last lane of all");
  position = in(9, 1);
  expect_seen(5, in(9, 1), "from the last message");
}
/* Only lane 0 is there. */
static void from_behind_the_only_lane(void) {
  q = queue_named("q", RANKED(9));
  put_each(q, (unsigned[]){FIRST, FIRST}, 2);
  position = in(3, 0);
  expect_end(2, "from behind lane 0");
  SB_STORE(&q->shm->tail, q->base, SB_RELAXED);
  position = in(3, 0);
  expect_end(2, "from behind lane 0, whose tail lags");
}
/* Positions of a lane that had an earlier life begin above 0. Browsers count from its base. */
static void bases_of_lanes(void) {
  q = queue_named("q", RANKED(9));
  uint32_t slot = 0;
  expect_is(sb_lanes_make(t.c, q->slot, 1, &slot), SB_OK, "the status of a lane");
  for (uint32_t s = slot / SB_CHUNK_UNITS * SB_CHUNK_UNITS; s % SB_CHUNK_UNITS != SB_CHUNK_UNITS - 1; s++)
    if (s != slot) SB_STORE(&((sb_lane_shm *)sb_slot_at(t.b, s))->base, 3 * SB_PAGE_CELLS, SB_RELAXED);
  put_each(q, (unsigned[]){LAST, LAST}, 2);
  expect_is(base_of(q, 9), in(9, 3 * SB_PAGE_CELLS), "the base of the lane");
  position = 0;
  expect_seen(1, in(9, 0), "the first one");
  expect_seen(2, in(9, 1), "the second one");
  expect_end(in(9, 2), "the end");
  expect_is(sb_queue_get(q, buffer, true) > 0, 1, "whether a get returns one");
  expect_is(record()->sequence, in(9, 0), "its number");
}
static void a_short_buffer(void) {
  begin(RANKED(9));
  position = in(4, 0);
  expect_is(browse_sized(sizeof(sb_record)), -(int64_t)SB_FULL, "the status");
  expect_is(position, in(4, 0), "the position of what did not fit");
}
static void as_columns(void) {
  int64_t numbers[8] = {0};
  sb_columns columns = {.sequence = numbers};
  sb_status status = SB_SYSTEM;
  begin(RANKED(9));
  position = 0;
  expect_is(sb_queue_browse_columns(q, &position, 4, &columns, &status), 4, "the rows");
  expect_is(status, SB_OK, "the status");
  expect_is(position, in(4, 2), "the position");
  const uint64_t should[] = {in(0, 0), in(0, 1), in(4, 0), in(4, 1), in(9, 0), in(9, 1)};
  for (unsigned i = 0; i < 4; i++) expect_is(numbers[i], should[i], "the number of a row");
  expect_is(sb_queue_browse_columns(q, &position, 8, &columns, &status), 2, "the other rows");
  expect_is(position, in(9, 2), "the position at the end");
  for (unsigned i = 0; i < 2; i++) expect_is(numbers[i], should[4 + i], "the number of another row");
}
/* A queue that keeps the numbers of messages that were moved there. */
static void numbers_that_are_kept(void) {
  begin(RANKED(9));
  sb_settings keeping = RANKED(9);
  keeping.flags = SB_QUEUE_KEEPS;
  sb_queue *keeps = queue_named("keeps", keeping);
  expect_is(put_ranked(keeps, MIDDLE, 9), SB_OK, "the status of a put");
  uint64_t bytes = ALL;
  sb_status status;
  expect_is(sb_queue_move(q, keeps, ALL, &bytes, &status), 6, "how many were moved");
  q = keeps;
  position = in(4, 0);
  expect_seen(9, in(4, 0), "what was put");
  int64_t length = browse_sized(BUFFER);
  expect(length > 0, "nothing is seen");
  expect_is(id_at(body_of(buffer, length), BYTES), 3, "what was moved");
  expect_is(record()->sequence, in(4, 0), "the number that it had");
  expect_is(position, in(4, 2), "the next position");
}

/* ---- purges ---- */

static void all_lanes_are_purged(void) {
  begin(RANKED(9));
  expect_is(purge_count(q), 6, "how many were purged");
  expect_is(counter_in(q, SB_COUNT_KILLED), 6, "what was purged");
  expect_is(sb_queue_length(q), 0, "how many are ready");
  expect_is(purge_count(q), 0, "how many were purged then");
}
/* More than one step removes, in a lane behind an empty one. */
static void many_are_purged(void) {
  q = queue_named("q", RANKED(9));
  put_each(q, (unsigned[]){FIRST, MIDDLE}, 2);
  expect_is(purge_count(q), 2, "how many were purged of two");
  put_several(q, MIDDLE, 1100);
  put_several(q, LAST, 3);
  expect_is(purge_count(q), 1103, "how many were purged");
}
/* What comes meanwhile stays. */
static sb_queue *theirs;
static bool comes;
static void another_comes(const char *site) {
  if (!comes || strcmp(site, "queue.take.announced") != 0) return;
  comes = false;
  expect_is(put_ranked(theirs, FIRST, 77), SB_OK, "the status of their put");
}
static void what_comes_meanwhile_stays(void) {
  begin(RANKED(9));
  test_broker other = t;
  other.c = connect_to(&t);
  theirs = open_queue(&other, "q");
  comes = true;
  at_step = another_comes;
  int64_t count = purge_count(q);
  at_step = NULL;
  if (!has_steps()) return;
  expect_is(count, 6, "how many were purged");
  expect_is(ranked_state(q, 0, 2), SB_CELL_AVAILABLE, "the state of what came meanwhile");
  expect_is(ranked_state(q, 9, 1), SB_CELL_TOMBSTONE, "the state of the last one");
}
static void no_memory_to_purge(void) {
  uint64_t removed = 0;
  begin(RANKED(9));
  leave_holdings(0);
  expect_is(sb_queue_purge(q, &removed), SB_NO_MEMORY, "the status");
  expect_is(removed, 0, "how many were purged");
}

/* ---- moves ---- */

static int64_t move_some(sb_queue *to, uint64_t limit, sb_status should, const char *what) {
  uint64_t bytes = ALL;
  sb_status status = SB_SYSTEM;
  int64_t n = sb_queue_move(q, to, limit, &bytes, &status);
  expect_is(status, should, what);
  return n;
}
static uint64_t next_of(sb_queue *of) { return get(&t, of, buffer, true); }
static void messages_are_moved_by_priority(void) {
  begin(RANKED(9));
  sb_queue *to = queue_named("to", UNLIMITED);
  expect_is(move_some(to, 3, SB_OK, "the status of a move with a limit"), 3, "how many were moved");
  expect_is(move_some(to, ALL, SB_OK, "the status of the rest"), 3, "how many were moved of the rest");
  expect_is(move_some(to, ALL, SB_OK, "the status when none is left"), 0, "how many were moved of none");
  const uint64_t ids[] = {2, 4, 3, 6, 1, 5};
  for (unsigned i = 0; i < 6; i++) expect_is(next_of(to), ids[i], "a message in its turn");
}
static void messages_are_moved_into_lanes(void) {
  q = queue_named("q", UNLIMITED);
  put_each(q, (unsigned[]){LAST, FIRST, MIDDLE, FIRST}, 4);
  sb_queue *to = queue_named("to", RANKED(9));
  expect_is(move_some(to, ALL, SB_OK, "the status"), 4, "how many were moved");
  expect_is(to->shm->came, to->base + 4, "what came");
  expect_is(to->shm->ready[0], 1 | 16 | 512, "the lanes with messages");
  const uint64_t ids[] = {2, 4, 3, 1};
  for (unsigned i = 0; i < 4; i++) expect_is(next_of(to), ids[i], "a message by its priority");
}
/* Between queues of one page each, a row is moved at once only if neither has lanes. */
static void no_page_is_moved(void) {
  for (unsigned i = 0; i < 2; i++) {
    q = queue_named(i == 0 ? "a" : "b", i == 0 ? RANKED(9) : UNLIMITED);
    sb_queue *to = queue_named(i == 0 ? "to a" : "to b", i == 0 ? UNLIMITED : RANKED(9));
    for (unsigned n = 0; n < SB_PAGE_CELLS; n++) expect_is(put_ranked(q, n % 2 ? FIRST : LAST, n + 1), SB_OK, "a put");
    expect_is(move_some(to, ALL, SB_OK, "the status"), SB_PAGE_CELLS, "how many were moved");
    for (unsigned n = 0; n < SB_PAGE_CELLS; n++) {
      uint64_t half = SB_PAGE_CELLS / 2, id = n < half ? 2 * n + 2 : 2 * (n - half) + 1;
      expect_is(next_of(to), id, "a message by its priority");
    }
  }
}
static void a_queue_is_moved_onto_itself(void) {
  begin(RANKED(9));
  expect_is(move_some(q, 100, SB_OK, "the status"), 6, "how many were moved");
  expect_is(sb_queue_length(q), 6, "how many are ready");
}
static void no_memory_for_a_lane(void) {
  q = queue_named("q", UNLIMITED);
  put_each(q, (unsigned[]){LAST}, 1);
  sb_queue *to = queue_named("to", RANKED(9));
  use_all_slots(SB_KIND_LANE);
  expect_is(move_some(to, ALL, SB_NO_MEMORY, "the status"), 0, "how many were moved");
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the state of its cell");
  expect_is(to->shm->came, to->base, "what came");
}
static void a_move_from_a_lane_that_is_empty(void) {
  uint64_t size = 0;
  begin(RANKED(9));
  sb_queue *to = queue_named("to", UNLIMITED);
  expect_is(sb_move_one(q, to, base_of(q, 4), &size), SB_EMPTY, "the status before the first of a lane");
  expect_is(sb_move_one(q, to, base_of(q, 4) + 1, &size), SB_OK, "the status of the first of a lane");
  expect_is(next_of(to), 3, "what was moved");
}

/* ---- gets ---- */

static void a_get_tells_of_what_it_hid(void) {
  begin(RANKED(9));
  sb_watch *w = armed_watch(q, false);
  expect_is(next_of(q), 2, "the first message");
  expect_told(w, "what waits for a message that the search may have hidden");
}
static void the_number_of_a_message(void) {
  begin(RANKED(9));
  const uint64_t numbers[] = {in(0, 0), in(0, 1), in(4, 0), in(4, 1), in(9, 0), in(9, 1)};
  for (unsigned i = 0; i < 6; i++) {
    expect(next_of(q) != 0, "there is none");
    expect_is(record()->sequence, numbers[i], "its number");
  }
}

/* ---- facts ---- */

static void what_came(void) {
  sb_queue_facts f;
  begin(RANKED(9));
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_OK, "the status");
  expect_is(f.tail, 6, "what came into all lanes");
  expect_is(f.settings.values[SB_SETTING_MAX_PRIORITY], 9, "the highest priority");
}
static void slots_of_all_lanes(void) {
  static sb_chunk_facts facts[SB_CHUNK_FACTS];
  begin(RANKED(9));
  expect_is(sb_broker_describe_chunks(t.c, SOME_LOOKS, facts), SB_OK, "the status");
  uint32_t chunk = sb_cell_slot(ranked_word(q, 9, 0)) / SB_CHUNK_UNITS;
  const sb_chunk_facts *f = &facts[sb_chunk_class(SB_LOAD(&t.b->chunks[chunk], SB_RELAXED))];
  expect_is(f->queue, q->slot, "the queue that has most of them");
  expect_is(f->held, 6, "how many it has");
}
/* A producer was killed in the middle of its put: the counts show no excess, but the cells do. */
static void a_bound_that_is_looked_at(void) {
  begin(RANKED_RING(9, 9));
  SB_STORE(&lane_of(q, 9)->tail, base_of(q, 9), SB_RELAXED);
  expect(sb_api_look_at_bound(q), "the connection is closed");
  expect_is(lane_of(q, 9)->tail, base_of(q, 9) + 2, "the tail of the last lane");
}

static const test_case CASES[] = {
    {"lanes_api: browse", "a browser sees all lanes, by their numbers", messages_of_all_lanes},
    {"lanes_api: from", "a browser begins anywhere", from_a_position},
    {"lanes_api: only lane", "a browser behind the only lane is at its end", from_behind_the_only_lane},
    {"lanes_api: bases", "numbers begin at 0 in each lane", bases_of_lanes},
    {"lanes_api: short", "what does not fit keeps its number", a_short_buffer},
    {"lanes_api: columns", "columns have rows of all lanes", as_columns},
    {"lanes_api: kept", "a message keeps the number that it had in a lane", numbers_that_are_kept},
    {"lanes_api: purge", "a purge removes the messages of all lanes", all_lanes_are_purged},
    {"lanes_api: purge many", "a purge goes on lane by lane", many_are_purged},
    {"lanes_api: purge meanwhile", "what comes meanwhile is not purged", what_comes_meanwhile_stays},
    {"lanes_api: purge fails", "a purge ends without a holding", no_memory_to_purge},
    {"lanes_api: move", "messages are moved by their priority", messages_are_moved_by_priority},
    {"lanes_api: move into", "a message that is moved comes into its lane", messages_are_moved_into_lanes},
    {"lanes_api: pages", "no page is moved from lanes, or into them", no_page_is_moved},
    {"lanes_api: itself", "a queue is moved onto itself once", a_queue_is_moved_onto_itself},
    {"lanes_api: no lane", "a message stays if its lane cannot be made", no_memory_for_a_lane},
    {"lanes_api: move one", "a move before a position is one in its lane", a_move_from_a_lane_that_is_empty},
    {"lanes_api: told", "a get tells of what it may have hidden", a_get_tells_of_what_it_hid},
    {"lanes_api: numbers", "a message has a number in its lane", the_number_of_a_message},
    {"lanes_api: came", "facts count what came into all lanes", what_came},
    {"lanes_api: chunks", "slots are counted in all lanes", slots_of_all_lanes},
    {"lanes_api: bound", "a look at the bound advances all tails", a_bound_that_is_looked_at},
};
SUBJECT(CASES)
