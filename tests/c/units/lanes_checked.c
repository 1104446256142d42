// SPDX-License-Identifier: Apache-2.0
/* sb_check_queue and sb_check_lists: what the doctor finds in the lanes of a queue with priorities. */
#include "checkup.h"
#include "queues.h"
#include "ranked.h"
#include "sb_slab.h"

enum { CELL, LANE };                      /* SB_HIDDEN_CELL */
enum { LEDGERS, LEVELS, LANES };          /* SB_BAD_CHAIN */
enum { CAME = 4 };                        /* SB_BAD_HINT */
enum { MAX_PRIORITY = 5, CLOSING };       /* SB_BAD_QUEUE */
enum { READY, DELIVERING, SCHEDULED };    /* SB_BAD_COUNT */
enum { PRIORITY = 2 };                    /* SB_BAD_MESSAGE */
enum { FIRST = 9, MIDDLE = 5, LAST = 0 }; /* priorities; their lanes are 0, 4 and 9 */

static sb_queue *q;

/* Two messages in lane 4, and one in each of the lanes 0 and 9. */
static void begin(sb_settings settings) {
  q = queue_named("q", settings);
  put_several(q, FIRST, 1);
  put_several(q, MIDDLE, 2);
  put_several(q, LAST, 1);
  start_checkup(t.b->mapped_chunks);
}
static void look(bool closed) {
  forget_what_was_seen();
  sb_check_connections(&checkup);
  checkup.count = 0;
  sb_check_queue(&checkup, q->slot, closed);
}
static void expect_sound(const char *what) {
  look(false);
  expect_no_finding(what);
}
static void expect_one(sb_finding should, const char *what) {
  look(false);
  expect_finding(should, what);
}
static void expect_chain(uint32_t at, unsigned kind, const char *what) {
  expect_one((sb_finding){SB_BAD_CHAIN, q->slot, at, LANES, 0, 0, kind, SB_KIND_LANE}, what);
}
static void expect_trouble(unsigned code, unsigned which, uint64_t found, uint64_t expected, const char *what) {
  expect_one((sb_finding){code, q->slot, 0, which, 0, 0, found, expected}, what);
}

static void sound_lanes(void) {
  begin(RANKED(9));
  expect_sound("a queue with priorities");
  expect_is(checkup.seen[lane_slot(q, 4)] & 1, 1, "what was seen of a lane");
  expect_is(checkup.seen[lane_slot(q, 9)] & 1, 1, "what was seen of the last lane");
  expect_is(checkup.seen[sb_cell_slot(ranked_word(q, 9, 0))] & 1, 1, "what was seen of a message in the last lane");
}
static void a_whole_broker_with_lanes(void) {
  begin(RANKED(9));
  expect(findings(t.c) == NULL, "the doctor finds %s", findings(t.c));
  SB_STORE(&lane_of(q, 4)->next, 0u, SB_RELAXED);
  expect(findings(t.c) != NULL, "the doctor does not find a lane that nothing leads to");
}

static void held_messages_of_lanes(void) {
  static char records[4][BUFFER];
  begin(RANKED(9));
  for (unsigned i = 0; i < 4; i++) expect(sb_queue_get(q, records[i], false) > 0, "there is no message");
  expect(findings(t.c) == NULL, "the doctor finds %s", findings(t.c));
}

/* ---- hidden messages ---- */

static void lanes_that_are_hidden(void) {
  const unsigned numbers[] = {0, 4, 9};
  begin(RANKED(9));
  for (unsigned i = 0; i < 3; i++) {
    uint32_t object = numbers[i] == 0 ? q->slot : lane_slot(q, numbers[i]);
    set_ready(q, numbers[i], false);
    expect_one((sb_finding){SB_HIDDEN_CELL, q->slot, object, LANE, 0, numbers[i], 0, 0}, "a lane without its bit");
    set_ready(q, numbers[i], true);
  }
  set_ready(q, 7, true);
  expect_sound("a bit of a lane that nobody made");
  take_from(q);
  set_ready(q, 0, false);
  expect_sound("a lane without a message, and without its bit");
}
static void cells_that_are_hidden(void) {
  begin(RANKED(9));
  sb_ring r = ring_of(q, 4);
  uint64_t base = base_of(q, 4);
  SB_STORE(r.head, base + 1, SB_RELAXED);
  expect_one((sb_finding){SB_HIDDEN_CELL, q->slot, sb_cell_slot(ranked_word(q, 4, 0)), CELL, 0, base, base + 1, 0},
             "a message before the head of its lane");
  SB_STORE(r.head, base, SB_RELAXED);
  SB_STORE(&q->shm->head, q->base + 1, SB_RELAXED);
  expect_one(
      (sb_finding){SB_HIDDEN_CELL, q->slot, sb_cell_slot(ranked_word(q, 0, 0)), CELL, 0, q->base, q->base + 1, 0},
      "a message before the head of lane 0");
  sb_ring first = ring_of(q, 0);
  sb_requeued_mark(t.b, &first, q->base);
  expect_sound("a message that is marked");
}

/* ---- the chain ---- */

static void chains_of_lanes(void) {
  begin(RANKED(9));
  uint32_t four = lane_slot(q, 4), nine = lane_slot(q, 9), ledger = sb_slot_of(t.b, q->ledger);
  sb_lane_shm *first = sb_slot_at(t.b, four), *last = sb_slot_at(t.b, nine);
  SB_STORE(&last->next, ledger, SB_RELAXED);
  expect_chain(ledger, SB_KIND_LEDGER, "a lane that is an account");
  SB_STORE(&last->next, BROKER_CHUNKS * SB_CHUNK_UNITS, SB_RELAXED);
  expect_chain(BROKER_CHUNKS * SB_CHUNK_UNITS, SB_KIND_NONE, "a lane behind the last slot");
  SB_STORE(&last->next, four, SB_RELAXED);
  expect_chain(four, SB_KIND_LANE, "a chain with a cycle");
  SB_STORE(&last->next, 0u, SB_RELAXED);
  SB_STORE(&last->queue, q->slot + SB_QUEUE_UNITS, SB_RELAXED);
  expect_chain(nine, SB_KIND_LANE, "the lane of another queue");
  SB_STORE(&last->queue, q->slot, SB_RELAXED);
  SB_STORE(&last->number, 8u, SB_RELAXED);
  expect_chain(nine, SB_KIND_LANE, "a lane whose positions have another number");
  SB_STORE(&last->number, 9u, SB_RELAXED);
  expect_sound("what was put right");
  SB_STORE(&q->shm->lanes, nine, SB_RELAXED);
  SB_STORE(&last->next, four, SB_RELAXED);
  SB_STORE(&first->next, 0u, SB_RELAXED);
  expect_chain(four, SB_KIND_LANE, "lanes in the wrong order");
}
/* A lane of the number before it: the bits of its positions agree. */
static void two_lanes_of_one_number(void) {
  begin(RANKED(9));
  uint32_t nine = lane_slot(q, 9);
  sb_lane_shm *last = sb_slot_at(t.b, nine);
  SB_STORE(&last->number, 4u, SB_RELAXED);
  SB_STORE(&last->base, sb_position_in(4, 0), SB_RELAXED);
  expect_chain(nine, SB_KIND_LANE, "a second lane of the same number");
  SB_STORE(&last->number, 0u, SB_RELAXED);
  SB_STORE(&last->base, 0, SB_RELAXED);
  SB_STORE(&q->shm->lanes, nine, SB_RELAXED);
  expect_chain(nine, SB_KIND_LANE, "a second lane 0");
}
static void numbers_above_the_highest(void) {
  begin(RANKED(9));
  uint32_t nine = lane_slot(q, 9);
  sb_lane_shm *last = sb_slot_at(t.b, nine);
  SB_STORE(&last->number, 10u, SB_RELAXED);
  SB_STORE(&last->base, sb_position_in(10, 0), SB_RELAXED);
  expect_chain(nine, SB_KIND_LANE, "a lane above the highest priority");
}
static void priorities_of_other_lanes(void) {
  begin(RANKED(9));
  sb_message_shm *m = ranked_message(q, 4, 1);
  const unsigned others[] = {0, 4, 6, 9, 255};
  for (unsigned i = 0; i < 5; i++) {
    m->priority = (uint8_t)others[i];
    expect_one((sb_finding){SB_BAD_MESSAGE, q->slot, sb_cell_slot(ranked_word(q, 4, 1)), PRIORITY, 0, base_of(q, 4) + 1,
                            others[i], MIDDLE},
               "a message among those of another priority");
  }
  m->priority = MIDDLE;
  ranked_message(q, 0, 0)->priority = 255;
  expect_sound("a priority above the highest, among those of the highest");
  q = queue_named("plain", (sb_settings)FREELY);
  if (put_ranked(q, FIRST, 1) != SB_OK) die("put_ranked", 0);
  expect_sound("a priority in a queue without priorities");
}
/* Counters are compared only where all lanes were seen. */
static void what_cannot_be_counted(void) {
  begin(RANKED_RING(50, 9));
  sb_ledger_count(q->ledger, SB_COUNT_ADDED, 1);
  expect_trouble(SB_BAD_COUNT, READY, 5, 4, "one too many");
  const unsigned numbers[] = {0, 4, 9};
  for (unsigned i = 0; i < 3; i++) {
    sb_ring r = ring_of(q, numbers[i]);
    uint64_t root = SB_LOAD(r.root, SB_RELAXED);
    SB_STORE(r.root, sb_link_word(1, q->slot, 0), SB_RELAXED);
    look(false);
    expect(checkup.count > 0, "a broken root of lane %u was not found", numbers[i]);
    for (uint32_t k = 0; k < checkup.count; k++)
      expect(checkup.findings[k].code != SB_BAD_COUNT, "counters were compared with cells that were not seen");
    SB_STORE(r.root, root, SB_RELAXED);
  }
}

/* ---- hints and settings ---- */

static void hints_of_lanes(void) {
  begin(RANKED_RING(50, 9));
  expect_sound("a queue with a ring");
  SB_ADD(&q->shm->came, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, CAME, q->base + 5, q->base + 4, "a cell of nobody");
  look(true);
  expect_no_finding("the hints of a queue that is closed");
  SB_SUB(&q->shm->came, 2, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, CAME, q->base + 3, q->base + 4, "a cell that was not counted");
  SB_ADD(&q->shm->came, 1, SB_RELAXED);
  SB_ADD(&q->shm->admitted, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, 1, q->base + 5, q->base + 4, "a place of nobody");
  SB_SUB(&q->shm->admitted, 1, SB_RELAXED);
  SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, 0, 1, 0, "one taken too many");
  sb_queue *plain = queue_named("plain", (sb_settings){{50, -1, -1, 0, -1, -1}, 0});
  q = plain;
  SB_ADD(&q->shm->came, 1, SB_RELAXED);
  expect_sound("what came by the hint of a queue without priorities");
}
static void settings_of_lanes(void) {
  begin(RANKED(255));
  _Atomic int64_t *most = &q->shm->settings[SB_SETTING_MAX_PRIORITY];
  expect_sound("the highest priority of all");
  *most = 256;
  look(false);
  expect(checkup.count > 0 && checkup.findings[checkup.count - 1].code == SB_BAD_QUEUE, "a priority above that");
  q = queue_named("plain", (sb_settings)FREELY);
  most = &q->shm->settings[SB_SETTING_MAX_PRIORITY];
  *most = -1;
  expect_sound("no highest priority");
  *most = 0;
  expect_sound("the highest priority 0");
  *most = -2;
  expect_trouble(SB_BAD_QUEUE, MAX_PRIORITY, (uint64_t)-2, 255, "a priority below none");
  look(true);
  expect_no_finding("the setting of a queue that is closed");
  *most = 5;
  expect_trouble(SB_BAD_QUEUE, MAX_PRIORITY, 5, 255, "a priority of a queue with one lane");
  *most = 0;
  SB_STORE(&q->shm->flags, SB_QUEUE_LANES, SB_RELAXED);
  expect_trouble(SB_BAD_QUEUE, MAX_PRIORITY, 0, 255, "several lanes of a queue without priorities");
  *most = 256;
  expect_trouble(SB_BAD_QUEUE, MAX_PRIORITY, 256, 255, "a priority that is too high");
}
static void closing_words(void) {
  begin(RANKED(9));
  for (unsigned state = SB_ASKED_NOT; state <= SB_ASKED_CLOSED; state++) {
    SB_STORE(&q->shm->closing, sb_closing_word(state, 7, 7), SB_RELAXED);
    expect_sound("a closing word");
  }
  uint64_t word = sb_closing_word(SB_ASKED_CLOSED + 1, 0, 7);
  SB_STORE(&q->shm->closing, word, SB_RELAXED);
  expect_trouble(SB_BAD_QUEUE, CLOSING, word, 0, "a state that there is not");
}

/* ---- timers ---- */

static void timers_of_lanes(void) {
  begin(RANKED(9));
  put_timed(q, LAST, 2, 1, 0);
  put_timed(q, FIRST, 2, 1, 0);
  sb_ring r;
  sb_leaf_ref leaf;
  expect_sound("a timer");
  if (!sb_ring_open(t.b, q->slot, SB_RING_SCHEDULE, &r) ||
      sb_ring_locate(t.b, NULL, &r, SB_LOAD(r.base, SB_RELAXED), &leaf) != SB_OK)
    die("schedule", 0);
  uint64_t where = SB_LOAD(r.base, SB_RELAXED);
  sb_word *entry = &sb_leaf_cell(&leaf, where)->word;
  const struct {
    uint64_t position, end;
  } cases[] = {{base_of(q, 9) + 2, base_of(q, 9) + 2},
               {base_of(q, 4) + 2, base_of(q, 4) + 2},
               {base_of(q, 4) + 5, base_of(q, 4) + 2},
               {sb_position_in(5, 0), 0},
               {q->base + 2, q->base + 2}};
  for (unsigned i = 0; i < 5; i++) {
    SB_STORE(entry, SB_CELL_ENTRY | SB_FIELD(cases[i].position, 4), SB_RELAXED);
    expect_one((sb_finding){SB_BAD_TIMER, q->slot, 0, 0, 0, where, cases[i].position, cases[i].end},
               "a timer of no cell");
  }
  SB_STORE(entry, SB_CELL_ENTRY | SB_FIELD(base_of(q, 4) + 1, 4), SB_RELAXED);
  expect_sound("a timer of the last cell of a lane");
  SB_STORE(&lane_of(q, 4)->tail, base_of(q, 4), SB_RELAXED);
  expect_sound("a timer behind a tail that lags");
}

static const test_case CASES[] = {
    {"lanes_checked: sound", "nothing is found where all is well", sound_lanes},
    {"lanes_checked: broker", "a lane that nothing leads to is found", a_whole_broker_with_lanes},
    {"lanes_checked: held", "messages of lanes that a connection holds are known to be its own",
     held_messages_of_lanes},
    {"lanes_checked: hidden lanes", "a lane with a message has its bit", lanes_that_are_hidden},
    {"lanes_checked: hidden cells", "no ready message lies before the head of its lane", cells_that_are_hidden},
    {"lanes_checked: chain", "the chain leads to lanes of the queue, by their numbers", chains_of_lanes},
    {"lanes_checked: twice", "no two lanes have one number", two_lanes_of_one_number},
    {"lanes_checked: above", "no lane is above the highest priority", numbers_above_the_highest},
    {"lanes_checked: priorities", "a message lies in the lane of its priority", priorities_of_other_lanes},
    {"lanes_checked: broken", "what was not seen is not counted", what_cannot_be_counted},
    {"lanes_checked: hints", "hints say what the cells of all lanes say", hints_of_lanes},
    {"lanes_checked: settings", "a queue has lanes if it has priorities", settings_of_lanes},
    {"lanes_checked: closing", "a closing word has a state", closing_words},
    {"lanes_checked: timers", "a timer is one of a cell of its lane", timers_of_lanes},
};
SUBJECT(CASES)
