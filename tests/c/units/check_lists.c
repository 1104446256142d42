// SPDX-License-Identifier: Apache-2.0
/* sb_check_lists: findings of the doctor in lists of consumers, and in the schedule. The queue has one consumer, and a
 * scheduled message. A case damages one word, and restores it. */
#include <string.h>

#include "checkup.h"
#include "sb_queue.h"

enum { INTERESTED, NOTIFIED, NOT_INTERESTED, NON_ACQUIRING, CONSUMERS, ROOM_WAITING, MEMORY_WAITING, OF_LEVEL };
enum { NO_NODE, FROM_LATER, ELSEWHERE };

static sb_queue *q;
static sb_node_shm *node;
static uint32_t level;

static void begin(void) {
  sb_status status = SB_OK;
  const sb_put_options later = {.delay_ns = UINT64_C(1) << 60};
  if (declare(&t, "q", (sb_settings)FREELY) != SB_OK) die("sb_queue_declare", 0);
  q = open_queue(&t, "q");
  if (put_sized(&t, q, 1, 8, &later) != SB_OK) die("sb_queue_put", 0);
  if (sb_consumer_open(t.c, &q, 1, 4, 0, 0, 0, &status) == NULL) die("sb_consumer_open", (int)status);
  level = SB_LOAD(&q->shm->consumer_levels, SB_RELAXED);
  start_checkup(t.b->mapped_chunks);
}
static sb_cell_shm *cell_of(uint32_t object, uint32_t id, unsigned i) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t at = 0;
  if (!sb_ring_open(t.b, object, id, &r) || !sb_ring_next_leaf(t.b, &r, at, &leaf, &at)) die("cell_of", (int)id);
  return &leaf.leaf->cells[i];
}
/* One more entry of a list. */
static sb_cell_shm *append(uint32_t object, uint32_t id, uint64_t word) {
  sb_ring r;
  sb_leaf_ref leaf = SB_NO_LEAF;
  uint64_t at = 0;
  if (!sb_ring_open(t.b, object, id, &r) || sb_ring_append(t.c, &r, &leaf, word, SB_APPEND_ENTRY, NULL, &at) != SB_OK)
    die("append", (int)id);
  return sb_leaf_cell(&leaf, at);
}
static sb_cell_shm *entry(void) { return cell_of(level, SB_RING_INTERESTED, 0); }
static uint32_t slot_of_node(void) { return sb_slot_of(t.b, node); }
static void find_node(void) { node = sb_slot_at(t.b, sb_cell_slot(SB_LOAD(&entry()->word, SB_RELAXED))); }
static void look(void) {
  forget_what_was_seen();
  sb_check_lists(&checkup, q->slot);
}
static void expect_sound(const char *what) {
  look();
  expect_no_finding(what);
}
static void expect_list(unsigned which, uint32_t slot, int64_t found, uint64_t expected, const char *what) {
  look();
  expect_finding((sb_finding){SB_BAD_LIST, q->slot, slot, which, 0, 0, (uint64_t)found, expected}, what);
}
static void expect_entry(unsigned ring, uint32_t slot, unsigned which, uint64_t where, uint64_t found,
                         uint64_t expected, const char *what) {
  look();
  bool there = false;
  for (uint32_t i = 0; i < checkup.count; i++) {
    const sb_finding *f = &checkup.findings[i];
    there |= f->code == SB_BAD_ENTRY && f->queue == q->slot && f->slot == slot && f->which == which && f->of == ring &&
             f->where == where && f->found == found && f->expected == expected;
  }
  expect(there, "%s was not found", what);
  found_nothing();
}

static void sound_lists(void) {
  begin();
  find_node();
  expect_sound("the lists of a queue");
  expect_is(checkup.seen[slot_of_node()], SB_KNOWN_TO_ALL | SB_KNOWN_TO_LIST, "what was seen of the consumer");
  expect_is(checkup.seen[level], 1, "what was seen of the level");
}

/* ---- entries ---- */

static void damaged_entries(void) {
  begin();
  find_node();
  uint64_t was = SB_LOAD(&entry()->word, SB_RELAXED), word = SB_LOAD(&node->word, SB_RELAXED);
  uint32_t slot = slot_of_node(), epoch = sb_node_epoch(word);
  sb_cell_shm *more = append(level, SB_RING_INTERESTED, was);
  expect_sound("two entries of a consumer");
  SB_STORE(&more->word, sb_entry_word(level, 3), SB_RELAXED);
  expect_entry(SB_RING_INTERESTED, level, NO_NODE, 1, SB_KIND_CONSUMER_LEVEL, SB_KIND_NODE, "an entry of a level");
  SB_STORE(&more->word, sb_entry_word(slot, epoch + 1), SB_RELAXED);
  expect_sound("an entry that is about to count");
  SB_STORE(&more->word, sb_entry_word(slot, epoch + 2), SB_RELAXED);
  expect_entry(SB_RING_INTERESTED, slot, FROM_LATER, 1, epoch + 2, epoch, "an entry from later");
  SB_STORE(&more->word, sb_entry_word(slot, epoch - 5), SB_RELAXED);
  expect_sound("an entry from before");
  SB_STORE(&more->word, sb_cell_bare(SB_CELL_TOMBSTONE, 0), SB_RELAXED);
  look();
  found_nothing(); /* its page may be another one's: it is no entry at all */
  SB_STORE(&more->word, was, SB_RELAXED);
  SB_STORE(&node->queue, q->slot + 1, SB_RELAXED);
  expect_entry(SB_RING_INTERESTED, slot, ELSEWHERE, 0, q->slot + 1, q->slot, "a consumer of another queue");
  SB_STORE(&node->queue, q->slot, SB_RELAXED);
  SB_STORE(&node->level, level + 1, SB_RELAXED);
  expect_entry(SB_RING_INTERESTED, slot, ELSEWHERE, 0, level + 1, q->slot, "a consumer of another level");
  SB_STORE(&node->level, level, SB_RELAXED);
  expect_sound("what was put right");
}
/* An entry counts if epoch and state are the node's, and the node is in use. */
static void entries_that_do_not_count(void) {
  begin();
  find_node();
  uint64_t word = SB_LOAD(&node->word, SB_RELAXED);
  sb_word *header = sb_slot_header(t.b, slot_of_node());
  uint64_t was = SB_LOAD(header, SB_RELAXED);
  sb_consumer_level_shm *l = sb_slot_at(t.b, level);
  l->interested_count = 0;
  q->shm->interested = 0;
  q->shm->consumers = 0;
  SB_STORE(header, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(was)), SB_RELAXED);
  expect_sound("the entries of a node that is free");
  SB_STORE(header, was, SB_RELAXED);
  SB_STORE(&node->word, sb_node_word(SB_NODE_REMOVED, sb_node_conn(word), sb_node_epoch(word)), SB_RELAXED);
  expect_sound("the entries of a node that is removed");
  SB_STORE(&node->word, word, SB_RELAXED);
  SB_STORE(&node->registration, SB_LOAD(&node->registration, SB_RELAXED) + 1, SB_RELAXED);
  SB_STORE(&node->word, sb_node_word(SB_NODE_NOTIFIED, sb_node_conn(word), sb_node_epoch(word)), SB_RELAXED);
  expect_sound("the entries of a node in another state");
  SB_STORE(&node->word, sb_node_word(SB_NODE_INTERESTED, sb_node_conn(word), sb_node_epoch(word) + 1), SB_RELAXED);
  expect_sound("the entries of a node in another epoch");
  expect_is(checkup.seen[slot_of_node()], 0, "what was seen of the node");
}

/* ---- counts ---- */

static void counts_of_lists(void) {
  begin();
  find_node();
  sb_consumer_level_shm *l = sb_slot_at(t.b, level);
  sb_queue_shm *s = q->shm;
  struct {
    _Atomic int32_t *count;
    unsigned which;
    uint32_t slot;
    int32_t holds;
  } const counts[] = {{&s->consumers, CONSUMERS, 0, 1},
                      {&s->non_acquiring, NON_ACQUIRING, 0, 0},
                      {&s->not_interested, NOT_INTERESTED, 0, 0},
                      {&s->room_waiting, ROOM_WAITING, 0, 0},
                      {&l->interested_count, OF_LEVEL + INTERESTED, level, 1},
                      {&l->notified_count, OF_LEVEL + NOTIFIED, level, 0},
                      {&s->interested, INTERESTED, 0, 1},
                      {&s->notified, NOTIFIED, 0, 0}};
  for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    int32_t was = *counts[i].count;
    expect_is(was, counts[i].holds, "a count");
    *counts[i].count = -3;
    expect_list(counts[i].which, counts[i].slot, -3, (uint64_t)counts[i].holds, "a count that is wrong");
    *counts[i].count = was;
  }
  uint64_t state = SB_LOAD(&s->state, SB_RELAXED);
  SB_STORE(&s->state, (state & ~UINT64_C(3)) | SB_QUEUE_CLOSED, SB_RELAXED);
  s->consumers = 9;
  expect_sound("a count of a queue that is closed");
  s->consumers = 1;
  SB_STORE(&s->state, state, SB_RELAXED);
  SB_STORE(&node->flags, SB_LOAD(&node->flags, SB_RELAXED) & ~(uint32_t)SB_NODE_COUNTED, SB_RELAXED);
  expect_list(CONSUMERS, 0, 1, 0, "a consumer that does not count");
}
/* A list each: where the consumer is, the others are empty. */
static void move_to(unsigned state, uint32_t object, unsigned ring) {
  uint64_t word = SB_LOAD(&node->word, SB_RELAXED);
  uint32_t epoch = sb_node_epoch(word) + 1;
  append(object, ring, sb_entry_word(slot_of_node(), epoch));
  SB_STORE(&node->word, sb_node_word(state, sb_node_conn(word), epoch), SB_RELAXED);
}
static void the_list_of_each_state(void) {
  begin();
  find_node();
  sb_consumer_level_shm *l = sb_slot_at(t.b, level);
  l->interested_count = q->shm->interested = 0;
  move_to(SB_NODE_NOTIFIED, level, SB_RING_NOTIFIED);
  l->notified_count = q->shm->notified = 1;
  expect_sound("one who was notified");
  l->notified_count = q->shm->notified = 0;
  move_to(SB_NODE_NOT_INTERESTED, q->slot, SB_RING_NOT_INTERESTED);
  q->shm->not_interested = 1;
  expect_sound("one who is not interested");
  q->shm->not_interested = 0;
  move_to(SB_NODE_NON_ACQUIRING, q->slot, SB_RING_NON_ACQUIRING);
  q->shm->non_acquiring = 1;
  expect_sound("one who browses");
  q->shm->non_acquiring = 0;
  move_to(SB_NODE_INTERESTED, q->slot, SB_RING_ROOM);
  q->shm->room_waiting = 1;
  expect_sound("one who waits for room");
}
static void expect_dispatch(unsigned which, uint64_t found, uint64_t expected, const char *what) {
  look();
  expect_finding((sb_finding){SB_BAD_DISPATCH, q->slot, 0, which, 0, 0, found, expected}, what);
}
static void the_gate_and_the_seats(void) {
  enum { TICKET, OPEN_BEFORE, SEATS, NO_SEATS, GATE };
  begin();
  find_node();
  sb_queue_shm *s = q->shm;
  expect_is(node->ticket, 1, "the ticket of the consumer");
  node->ticket = 2;
  expect_dispatch(TICKET, 2, 1, "a ticket that nobody drew");
  node->ticket = 1;
  s->open_before = 2;
  expect_sound("a gate that is open for all tickets");
  s->open_before = 3;
  expect_dispatch(OPEN_BEFORE, 3, 2, "a gate that is open for tickets that nobody drew");
  s->open_before = 0;
  s->flags |= SB_QUEUE_SEATS;
  expect_sound("a flag without a limit");
  s->settings[SB_SETTING_SEATS] = 2;
  expect_sound("one consumer in one seat");
  s->settings[SB_SETTING_SEATS] = 1;
  expect_dispatch(SEATS, 1, 0, "a consumer without a seat");
  s->settings[SB_SETTING_SEATS] = 2;
  s->flags &= ~(uint32_t)SB_QUEUE_SEATS;
  expect_dispatch(NO_SEATS, 1, 0, "a limit without the flag");
  s->settings[SB_SETTING_SEATS] = 0;
  s->settings[SB_SETTING_CONSUMERS_BEFORE_DISPATCH] = 2;
  expect_dispatch(GATE, s->flags, SB_QUEUE_GATED, "a number of consumers without the flag");
  s->settings[SB_SETTING_CONSUMERS_BEFORE_DISPATCH] = 1;
  s->settings[SB_SETTING_DELAY_BEFORE_DISPATCH_MS] = 1;
  expect_dispatch(GATE, s->flags, SB_QUEUE_GATED, "a delay without the flag");
  s->flags |= SB_QUEUE_GATED;
  expect_sound("a delay");
  s->settings[SB_SETTING_DELAY_BEFORE_DISPATCH_MS] = 0;
  expect_dispatch(GATE, s->flags, 0, "the flag alone");
}
/* Where pages are broken, what was not seen is not counted. */
static void broken_lists(void) {
  begin();
  find_node();
  sb_consumer_level_shm *l = sb_slot_at(t.b, level);
  sb_queue_shm *s = q->shm;
  sb_word *roots[] = {&s->all.root,  &s->non_acquiring_list.root, &s->not_interested_list.root,
                      &s->room.root, &l->interested.root,         &l->notified.root};
  s->consumers = s->non_acquiring = s->not_interested = s->room_waiting = 9;
  s->interested = s->notified = 9;
  l->interested_count = l->notified_count = 9;
  for (unsigned i = 0; i < 6; i++) {
    uint64_t was = SB_LOAD(roots[i], SB_RELAXED);
    SB_STORE(roots[i], SB_LINK_DONE, SB_RELAXED);
    look();
    uint32_t counts = 0;
    for (uint32_t k = 0; k < checkup.count; k++) counts += checkup.findings[k].code == SB_BAD_LIST;
    expect_is(counts, i < 4 ? 7 : 4, "the counts that were compared");
    found_nothing();
    SB_STORE(roots[i], was, SB_RELAXED);
  }
}

/* ---- levels ---- */

static void expect_chain(uint32_t at, unsigned kind, const char *what) {
  look();
  expect(checkup.count >= 1, "%s was not found", what);
  const sb_finding *f = &checkup.findings[0];
  expect(f->code == SB_BAD_CHAIN && f->queue == q->slot && f->slot == at && f->which == 1, "%s is another finding",
         what);
  expect_is(f->found, kind, what);
  expect_is(f->expected, SB_KIND_CONSUMER_LEVEL, what);
  expect_is(checkup.count, 1, what);
  found_nothing();
}
static void damaged_levels(void) {
  begin();
  sb_consumer_level_shm *l = sb_slot_at(t.b, level);
  SB_STORE(&l->queue, q->slot + 1, SB_RELAXED);
  expect_chain(level, SB_KIND_CONSUMER_LEVEL, "the level of another queue");
  SB_STORE(&l->queue, q->slot, SB_RELAXED);
  SB_STORE(&q->shm->consumer_levels, q->slot, SB_RELAXED);
  expect_chain(q->slot, SB_KIND_QUEUE, "a level that is a queue");
  SB_STORE(&q->shm->consumer_levels, level, SB_RELAXED);
  SB_STORE(&l->next, level, SB_RELAXED);
  expect_chain(level, SB_KIND_CONSUMER_LEVEL, "levels in a ring");
  SB_STORE(&l->next, 0, SB_RELAXED);
  sb_status status = SB_OK;
  if (sb_consumer_open(t.c, &q, 1, 4, 5, 0, 0, &status) == NULL) die("sb_consumer_open", (int)status);
  expect_sound("two levels");
  uint32_t first = SB_LOAD(&q->shm->consumer_levels, SB_RELAXED);
  sb_consumer_level_shm *above = sb_slot_at(t.b, first);
  expect_is(above->priority, 5, "the priority of the first level");
  SB_STORE(&l->priority, 5, SB_RELAXED);
  expect_sound("two levels of one priority");
  SB_STORE(&l->priority, 6, SB_RELAXED);
  expect_chain(level, SB_KIND_CONSUMER_LEVEL, "a level below a lower one");
  SB_STORE(&l->priority, 0, SB_RELAXED);
  sb_word *roots[] = {&above->interested.root, &l->interested.root};
  for (unsigned i = 0; i < 2; i++) { /* one of two is enough */
    uint64_t was = SB_LOAD(roots[i], SB_RELAXED);
    SB_STORE(roots[i], SB_LINK_DONE, SB_RELAXED);
    look();
    expect_is(checkup.count, 1, "the findings of a broken level");
    found_nothing();
    SB_STORE(roots[i], was, SB_RELAXED);
  }
}

/* It says all that a level would. */
static void a_level_that_is_a_node(void) {
  begin();
  find_node();
  sb_consumer_level_shm *l = sb_slot_at(t.b, level);
  *(sb_consumer_level_shm *)(void *)node = *l;
  SB_STORE(&q->shm->consumer_levels, slot_of_node(), SB_RELAXED);
  look();
  bool there = false;
  for (uint32_t i = 0; i < checkup.count; i++)
    there |= checkup.findings[i].code == SB_BAD_CHAIN && checkup.findings[i].slot == slot_of_node();
  expect(there, "a node is a level");
}

/* ---- processes that wait for memory, and the schedule ---- */

static void the_list_of_memory(void) {
  begin();
  find_node();
  sb_header_shm *h = t.b->header;
  forget_what_was_seen();
  sb_check_memory_list(&checkup);
  expect_no_finding("nobody who waits for memory");
  SB_STORE(&((sb_queue_shm *)sb_slot_at(t.b, 0))->state, SB_QUEUE_CLOSED, SB_RELAXED); /* slot 0 is no queue */
  SB_STORE(&h->memory_waiting, 2u, SB_RELAXED);
  sb_check_memory_list(&checkup);
  expect_finding((sb_finding){SB_BAD_LIST, 0, 0, MEMORY_WAITING, 0, 0, 2, 0}, "two who do not wait");
  move_to(SB_NODE_INTERESTED, 0, SB_RING_MEMORY);
  SB_STORE(&h->memory_waiting, 1u, SB_RELAXED);
  forget_what_was_seen();
  sb_check_memory_list(&checkup);
  expect_no_finding("one who waits for memory");
  SB_STORE(&h->memory_root, SB_LINK_DONE, SB_RELAXED);
  SB_STORE(&h->memory_waiting, 7u, SB_RELAXED);
  sb_check_memory_list(&checkup);
  expect_is(checkup.count, 1, "the findings of a broken list");
  expect(checkup.findings[0].code == SB_BAD_PAGE, "a broken list was counted");
}
static void the_schedule(void) {
  begin();
  expect_sound("a timer");
  sb_cell_shm *c = cell_of(q->slot, SB_RING_SCHEDULE, 0);
  SB_STORE(&c->word, SB_CELL_ENTRY | (q->base + 1) << 4, SB_RELAXED);
  look();
  expect_finding((sb_finding){SB_BAD_TIMER, q->slot, 0, 0, 0, q->shm->schedule.base, q->base + 1, q->base + 1},
                 "a timer behind the end");
  uint64_t gen = sb_slot_gen(SB_LOAD(sb_slot_header(t.b, sb_link_slot(q->shm->schedule.root)), SB_RELAXED));
  SB_STORE(&c->word, sb_cell_bare(SB_CELL_TOMBSTONE, gen), SB_RELAXED);
  expect_sound("a timer that is over");
}

static const test_case CASES[] = {
    {"check_lists: sound", "nothing is found where all is well", sound_lists},
    {"check_lists: entries", "an entry is a node's, of this list", damaged_entries},
    {"check_lists: dead", "an entry of another state or epoch does not count", entries_that_do_not_count},
    {"check_lists: counts", "counts say what lists hold", counts_of_lists},
    {"check_lists: states", "each state has a list", the_list_of_each_state},
    {"check_lists: dispatch", "tickets, the gate and the seats fit together", the_gate_and_the_seats},
    {"check_lists: broken", "what was not seen is not counted", broken_lists},
    {"check_lists: levels", "levels are a row of descending priority", damaged_levels},
    {"check_lists: no level", "a node is no level, whatever it says", a_level_that_is_a_node},
    {"check_lists: memory", "those who wait for memory are in a list", the_list_of_memory},
    {"check_lists: schedule", "a timer is of a message that is, or was, there", the_schedule},
};
SUBJECT(CASES)
