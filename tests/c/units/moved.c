// SPDX-License-Identifier: Apache-2.0
/* sb_schedule, sb_move: what a look at a scheduled message does, and how a message is moved to another queue. */
#include "meanwhile.h"
#include "queues.h"
#include "sb_slab.h"
#include "sb_move.h"
#include "sb_schedule.h"
#include "sb_view.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define RING_OF(n) ((sb_settings){{(n), -1, -1, 0, -1, -1}, 0})
#define BODY 64u
#define NOW UINT64_C(1000)
#define FAR (UINT64_MAX / 2)

static sb_queue *q;
static void begin_queue(sb_settings settings) { q = queue_named("q", settings); }

static uint64_t header_of(uint32_t slot) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
static void set_header(uint32_t slot, uint64_t word) { SB_STORE(sb_slot_header(t.b, slot), word, SB_RELAXED); }
static sb_leaf_ref leaf_of(const sb_queue *queue, uint64_t number) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, &queue->lanes[0].ring, queue->base + number, &leaf) != SB_OK) die("sb_ring_locate", 0);
  return leaf;
}

/* ---- a look at a message ---- */

static bool made_ready;
static uint64_t look(uint64_t number) {
  made_ready = true;
  return sb_schedule_look_at(q, q->base + number, NOW, &made_ready);
}
static void set_times(uint64_t number, uint64_t due, uint64_t expires) {
  message_at(q, number)->due_ns = due;
  message_at(q, number)->expires_ns = expires;
}
/* It stays as it is, and is looked at again then. */
static void expect_left(uint64_t number, uint64_t then, const char *what) {
  uint64_t word = word_at(q, number), begun = intents_of(q);
  expect_is(look(number), then, what);
  expect(!made_ready, "%s: it was made ready", what);
  expect_is(word_at(q, number), word, what);
  expect_is(intents_of(q), begun, what);
}
static void a_message_that_is_not_due(void) {
  begin_queue(FREE_SETTINGS);
  put_with(q, 1, 3600, 0);
  set_times(0, NOW + 1, 0);
  expect_left(0, NOW + 1, "a message that is due later");
  set_times(0, NOW + 9, NOW + 5);
  expect_left(0, NOW + 5, "a message that expires before it is due");
  set_times(0, NOW + 5, NOW + 9);
  expect_left(0, NOW + 5, "a message that expires after it is due");
}
static void a_message_that_is_due(void) {
  begin_queue(FREE_SETTINGS);
  put_with(q, 1, 3600, 0);
  set_times(0, NOW, FAR);
  expect_is(look(0), FAR, "when it expires");
  expect(made_ready, "it was not made ready");
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the state of its cell");
  expect(sb_requeued_is_marked(t.b, &q->lanes[0].ring, q->base), "no bit leads to it");
  expect_is(counter_in(q, SB_COUNT_UNSCHEDULED), 1, "what left the schedule");
  expect_is(counter_in(q, SB_COUNT_EXPIRED), 0, "what expired");
}
/* It loses by age: the ring keeps the newer message. */
static void a_message_that_is_due_in_a_full_ring(void) {
  begin_queue(RING_OF(1));
  (void)put(&t, q, 1);
  put_with(q, 2, 3600, 0);
  set_times(1, NOW, 0);
  expect_is(look(1), 0, "when it expires");
  expect_is(counter_in(q, SB_COUNT_REPLACED), 1, "what was replaced");
  expect_is(cell_state(q, 0), SB_CELL_TOMBSTONE, "the state of the older cell");
  expect_is(cell_state(q, 1), SB_CELL_AVAILABLE, "the state of the newer cell");
}
static void a_message_that_expires(void) {
  begin_queue(FREE_SETTINGS);
  (void)put(&t, q, 1);
  put_with(q, 2, 3600, 0);
  set_times(0, 0, 0);
  expect_left(0, 0, "a message that never expires");
  set_times(0, NOW + 1, NOW + 2);
  expect_left(0, NOW + 2, "a message that expires later");
  set_times(0, 0, NOW);
  set_times(1, NOW + 5, NOW);
  for (uint64_t i = 0; i < 2; i++) {
    expect_is(look(i), 0, "when an expired message is looked at again");
    expect(!made_ready, "an expired message was made ready");
    expect_is(cell_state(q, i), SB_CELL_TOMBSTONE, "the state of its cell");
    expect_is(counter_in(q, SB_COUNT_EXPIRED), i + 1, "what expired");
    expect_is(counter_in(q, SB_COUNT_UNSCHEDULED), i, "what left the schedule");
  }
}
/* In a queue that keeps its messages time counts only for what is scheduled. */
static void a_queue_that_keeps(void) {
  begin_queue(FREE_SETTINGS);
  (void)put(&t, q, 1);
  put_with(q, 2, 3600, 0);
  (void)SB_OR(&q->shm->flags, SB_QUEUE_KEEPS, SB_RELAXED);
  set_times(0, 0, NOW);
  expect_left(0, 0, "an expired message of a queue that keeps");
  set_times(0, 0, NOW + 1);
  expect_left(0, 0, "a message that would expire later");
  set_times(1, NOW, FAR);
  expect_is(look(1), FAR, "when it expires");
  expect(made_ready, "it was not made ready");
}
static void a_message_of_another(void) {
  begin_queue(FREE_SETTINGS);
  (void)put(&t, q, 1);
  for (unsigned state = SB_CELL_ACQUIRED; state <= SB_CELL_STAGED; state++) {
    set_cell_word(q, 0, sb_cell_owned(state, sb_cell_slot(word_at(q, 0)), 0, 77, leaf_of(q, 0).gen));
    set_times(0, 0, NOW);
    expect_left(0, 0, "an expired message that another connection has");
    set_times(0, 0, NOW + 1);
    expect_left(0, NOW + 1, "a message that another connection has");
  }
}
/* The page gets that generation, and none of its cells was used. */
static void give_generation(uint64_t gen) {
  sb_leaf_ref leaf = leaf_of(q, 0);
  set_header(leaf.slot, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen));
  SB_STORE(q->lanes[0].ring.root, sb_link_word(0, leaf.slot, gen), SB_RELAXED);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    SB_STORE(&leaf.leaf->cells[i].word, sb_cell_bare(SB_CELL_FREE, gen), SB_RELAXED);
}
static void what_is_no_message(void) {
  if (declare(&t, "q", FREE_SETTINGS) != SB_OK) die("sb_queue_declare", 0);
  q = open_queue(&t, "q"); /* only the first segment exists */
  expect_is(look(0), 0, "a position without a page");
  expect(!made_ready, "what is not there was made ready");
  put_with(q, 1, 0, 3600);
  uint32_t slot = sb_cell_slot(word_at(q, 0)), behind = t.b->chunk_limit * SB_CHUNK_UNITS;
  uint64_t gen = leaf_of(q, 0).gen;
  set_times(0, 0, NOW);
  set_cell_word(q, 0, sb_cell_open(SB_CELL_AVAILABLE, slot, 0, gen + 1));
  expect_left(0, 0, "a cell of another page");
  set_cell_word(q, 0, sb_cell_open(SB_CELL_AVAILABLE, behind, 0, gen));
  expect_left(0, 0, "a slot that does not exist");
  set_cell_word(q, 0, sb_cell_open(SB_CELL_AVAILABLE, behind - SB_CHUNK_UNITS, 0, gen));
  expect_left(0, 0, "a slot that is not mapped");
  ((sb_message_shm *)sb_slot_at(t.b, slot))->expires_ns = NOW + 1;
  give_generation(slot); /* a number that would be the slot of the message */
  expect_left(0, 0, "a cell that is FREE");
  set_cell_word(q, 0, sb_cell_bare(SB_CELL_TOMBSTONE, slot));
  expect_left(0, 0, "a cell that is finished");
}
static void no_holding_for_a_look(void) {
  begin_queue(FREE_SETTINGS);
  put_with(q, 1, 3600, 0);
  set_times(0, NOW, 0);
  leave_holdings(0);
  expect_left(0, NOW + 100000000, "a message without a holding to take it");
}

/* ---- moving ---- */

static sb_queue *target;
static uint64_t size;
static sb_status move(void) { return sb_move_one(q, target, SB_ANY_POSITION, &size); }
static void two_queues(sb_settings of_target) {
  begin_queue(RING_OF(100));
  target = queue_named("target", of_target);
}

static void a_message_is_moved(void) {
  static char buffer[BUFFER];
  two_queues(RING_OF(100));
  (void)put(&t, q, 1);
  (void)put(&t, q, 2);
  expect_is(move(), SB_OK, "the status of the first one");
  if (get(&t, q, buffer, false) != 2) die("sb_queue_get", 0);
  (void)sb_queue_settle(q, buffer, SB_REQUEUE);
  uint32_t slot = sb_cell_slot(word_at(q, 1));
  uint64_t gen = sb_slot_gen(header_of(slot)), begun = intents_of(q), holdings = free_holdings();
  size = 0;
  expect_is(move(), SB_OK, "the status");
  expect_is(size, BODY, "the size of the message");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(cell_state(q, 1), SB_CELL_TOMBSTONE, "the state of its old cell");
  sb_leaf_ref leaf = leaf_of(target, 1);
  expect_is(word_at(target, 1), sb_cell_open(SB_CELL_AVAILABLE, slot, 1, leaf.gen), "its new cell");
  expect_is(sb_leaf_cell(&leaf, target->base + 1)->side, sb_side_word(gen, 1, SB_SIDE_REDELIVERED), "what it says");
  expect_is(header_of(slot), sb_slot_word(SB_SLOT_PUBLISHED, 2, gen), "the header of its slot");
  const sb_ledger_shm *from = q->ledger, *to = target->ledger;
  const uint64_t is[] = {from->kind,
                         from->position,
                         from->slot,
                         from->gen,
                         from->before,
                         from->bytes,
                         from->target_queue,
                         from->target_position,
                         from->target_ledger,
                         from->target_before,
                         from->target_before_bytes};
  const uint64_t should[] = {(begun + 1) << 16, q->base + 1,      slot | UINT64_C(1) << 40, gen, 1,   BODY,
                             target->slot,      target->base + 1, sb_slot_of(t.b, to),      1,   BODY};
  for (unsigned i = 0; i < sizeof is / sizeof is[0]; i++) expect_is(is[i], should[i], "a field of the intent");
  expect_is(counter_in(q, SB_COUNT_MOVED), 2, "what was moved");
  expect_is(counter_in(q, SB_COUNT_REMOVED_BYTES), 2 * BODY, "the bytes that went");
  expect_is(counter_in(target, SB_COUNT_ADDED), 2, "what came");
  expect_is(counter_in(target, SB_COUNT_ADDED_BYTES), 2 * BODY, "the bytes that came");
  expect_is((uint32_t)from->holding | (uint32_t)to->holding, 0, "the cells that are held");
  expect_is(target->shm->admitted, 2, "what was admitted");
  expect_is(target->shm->bytes_in, 2 * BODY, "the bytes that were admitted");
  expect_is(target->shm->taken | target->shm->bytes_out, 0, "what is taken there");
  expect_is(q->shm->taken, 2, "what was taken here");
  expect_is(depth_of_hints(q) | depth_of_hints(target), 0, "how deep hints are being changed");
  expect_is(target->shm->schedule.tail, 0, "the schedule");
}
static void a_message_is_moved_with_its_time(void) {
  sb_ring r;
  sb_leaf_ref leaf;
  two_queues(FREE_SETTINGS);
  put_with(q, 1, 0, 3600);
  expect_is(move(), SB_OK, "the status");
  expect_is(target->shm->schedule.tail, 1, "the schedule");
  if (!sb_ring_open(t.b, target->slot, SB_RING_SCHEDULE, &r) || sb_ring_locate(t.b, NULL, &r, 0, &leaf) != SB_OK)
    die("sb_ring_locate", 0);
  expect_is(leaf.leaf->cells[0].word, SB_CELL_ENTRY | SB_FIELD(target->base, 4), "its entry");
  expect_is(target->shm->taken | target->shm->bytes_out, 0, "hints of a queue that has none");
}
/* Its new reference was a view before. */
static void a_reference_that_was_a_view(void) {
  const sb_put_options none = {0};
  two_queues(FREE_SETTINGS);
  if (put_sized(&t, q, 1, SB_INLINE_BODY + 8, &none) != SB_OK) die("sb_queue_put", 0);
  _Atomic uint16_t *viewers = sb_view_words(t.b, sb_cell_slot(word_at(q, 0)));
  SB_STORE(&viewers[1], 77, SB_RELAXED);
  expect_is(move(), SB_OK, "the status");
  expect_is(SB_LOAD(&viewers[1], SB_RELAXED), 0, "who views it");
}

/* The message is ready where it was, and nothing of the try is left. */
static void expect_refused(sb_status should, const char *what) {
  uint32_t slot = sb_cell_slot(word_at(q, 0));
  uint64_t header = header_of(slot), holdings = free_holdings(), admitted = target->shm->admitted;
  uint64_t in = target->shm->bytes_in, out = target->shm->bytes_out, taken = target->shm->taken;
  expect_is(move(), should, what);
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, what);
  expect_is(header_of(slot), header, what);
  expect_is(free_holdings(), holdings, what);
  expect_is(target->shm->admitted, admitted, what);
  expect_is(target->shm->bytes_in, in, what);
  expect_is(target->shm->bytes_out, out, what);
  expect_is(target->shm->taken, taken, what);
  expect_is(depth_of_hints(q) | depth_of_hints(target), 0, what);
  expect_is(q->ledger->kind & 0xffff, SB_INTENT_NONE, what);
  expect_is((uint32_t)q->ledger->holding | (uint32_t)target->ledger->holding, 0, what);
  expect_is(counter_in(q, SB_COUNT_MOVED), 0, what);
  expect_is(q->shm->taken | q->shm->bytes_out, 0, what);
}
static void no_holdings_for_a_move(void) {
  two_queues(RING_OF(100));
  (void)put(&t, q, 1);
  (void)put(&t, target, 2); /* it has a page */
  leave_holdings(1);
  expect_refused(SB_NO_MEMORY, "a move with one holding");
  leave_holdings(0);
  expect_refused(SB_NO_MEMORY, "a move without a holding");
}
/* I42: a put that saw too many taken may have left one too many. */
static void nothing_to_move(void) {
  two_queues(FREE_SETTINGS);
  for (uint64_t id = 1; id <= 3; id++) (void)put(&t, q, id);
  uint64_t holdings = free_holdings();
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 1, SB_RELAXED);
  SB_STORE(&q->shm->bound, 0, SB_RELAXED);
  expect_is(sb_move_one(q, target, q->base, &size), SB_EMPTY, "the status where nothing is old enough");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(counter_in(q, SB_COUNT_REPLACED), 2, "what the ring had too many");
}
static void no_room_for_a_move(void) {
  two_queues((sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  (void)put(&t, q, 1);
  (void)put(&t, target, 2);
  expect_refused(SB_FULL, "a move to a full queue");
  SB_STORE(&target->shm->settings[SB_SETTING_OVERFLOW], SB_OVERFLOW_DROP, SB_RELAXED);
  expect_refused(SB_FULL, "a move to a full queue that drops new messages");
}
/* A ring that was made smaller gets smaller with each message that leaves it, and stays as it is when none does. */
static void the_bound_of_a_ring(void) {
  two_queues((sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  q = queue_named("ring", RING_OF(100));
  for (uint64_t id = 1; id <= 5; id++) (void)put(&t, q, id);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 1, SB_RELAXED);
  sb_limits_set_bound(q, false);
  expect_is(move(), SB_OK, "the status of a move");
  expect_is(q->shm->bound, 4, "the bound after a move");
  expect_is(move(), SB_FULL, "the status of a move to a full queue");
  expect_is(q->shm->bound, 4, "the bound after a move to a full queue");
  uint64_t removed = 0;
  expect_is(sb_limits_remove(q, SB_REASON_KILLED, SB_ANY_POSITION, 2, &removed), SB_OK, "the status of a removal");
  expect_is(q->shm->bound, 2, "the bound after a removal");
}
static void no_reference_for_a_move(void) {
  two_queues(RING_OF(100));
  (void)put(&t, q, 1);
  uint32_t slot = sb_cell_slot(word_at(q, 0));
  uint64_t gen = sb_slot_gen(header_of(slot));
  set_header(slot, sb_slot_word(SB_SLOT_PUBLISHED, (1u << SB_MAX_REFS) - 1, gen));
  expect_refused(SB_LIMIT, "a move of a message with all references");
  set_header(slot, sb_slot_word(SB_SLOT_READ, ((1u << SB_READ_REFS) - 1) | SB_FIELD(9, SB_READ_REFS), gen));
  expect_refused(SB_LIMIT, "a move of a message with all references beside a reader");
}
static void no_memory_for_a_move(void) {
  for (unsigned tracked = 0; tracked < 2; tracked++) {
    q = queue_named(tracked ? "from tracked" : "from", RING_OF(100));
    target = queue_named(tracked ? "to tracked" : "to", tracked ? RING_OF(100) : FREE_SETTINGS);
    (void)put(&t, q, 1);
    for (uint64_t i = 0; i < SB_PAGE_CELLS; i++) (void)put(&t, target, i + 2);
    if (tracked == 0) use_all_chunks();
  }
  use_all_slots(SB_KIND_INNER);
  SB_STORE(&q->ledger->target_position, 99, SB_RELAXED);
  expect_refused(SB_NO_MEMORY, "a move without memory, to a queue that counts");
  expect_is(q->ledger->target_position, UINT64_MAX, "where the message was about to go");
  q = open_queue(&t, "from");
  target = open_queue(&t, "to");
  expect_refused(SB_NO_MEMORY, "a move without memory");
}
static void a_target_that_is_being_closed(void) {
  two_queues(FREE_SETTINGS);
  (void)put(&t, q, 1);
  (void)put(&t, target, 2);
  begin_to_close(target, SB_CLOSING_IF_EMPTY);
  expect_is(move(), SB_OK, "the status behind a closing that is refused");
  expect_is(cell_state(target, 2), SB_CELL_AVAILABLE, "the state of the cell behind it");
  q = queue_named("other", RING_OF(100));
  (void)put(&t, q, 1);
  target = queue_named("other target", RING_OF(100));
  begin_to_close(target, 0);
  expect_refused(SB_DELETED, "a move to a queue that is closed");
  target = queue_named("broken", RING_OF(100));
  (void)put(&t, target, 1);
  begin_to_close(target, 0);
  SB_STORE(target->lanes[0].ring.root, sb_link_empty(0), SB_RELAXED); /* the handle knows the leaf still */
  expect_refused(SB_CORRUPT, "a move to a queue without a root");
}
/* Another producer takes the last cell of the leaf. It counts the message that is being moved as taken, so it evicts
 * nothing. Then there is no memory for the next leaf. */
static test_broker another;
static sb_queue *its;
static void another_puts(void) { (void)put(&another, its, 9); }
static void a_move_that_loses_the_last_cell(void) {
  uint64_t size = 0;
  begin_queue(FREE_SETTINGS);
  (void)put(&t, q, 1);
  sb_queue *ring = queue_named("ring", RING_OF(SB_PAGE_CELLS - 1));
  for (uint64_t id = 1; id < SB_PAGE_CELLS; id++) (void)put(&t, ring, id);
  another = t;
  another.c = connect_to(&t);
  its = open_queue(&another, "ring");
  use_all_slots(SB_KIND_INNER);
  meanwhile(cell_at(ring, SB_PAGE_CELLS - 1), BEFORE_CAS, 1, another_puts);
  sb_status status = sb_move_one(q, ring, q->base + 1, &size);
  if (!has_acted()) return;
  expect_is(status, SB_NO_MEMORY, "the status");
  expect_is(sb_queue_ready(t.b, q->shm), 1, "how many are left where it came from");
  expect_is(sb_queue_ready(t.b, ring->shm), SB_PAGE_CELLS - 1, "how many are ready in the ring");
  expect_is(counter_in(ring, SB_COUNT_REPLACED), 1, "what was replaced");
}

static const test_case CASES[] = {
    {"schedule: later", "a message that is not due is looked at again then", a_message_that_is_not_due},
    {"schedule: due", "a message that is due becomes ready", a_message_that_is_due},
    {"schedule: full ring", "an older message makes room for one that is due", a_message_that_is_due_in_a_full_ring},
    {"schedule: expires", "a message that expired is removed", a_message_that_expires},
    {"schedule: keeps", "a queue that keeps removes none that is ready", a_queue_that_keeps},
    {"schedule: others'", "a message that another connection has is left to it", a_message_of_another},
    {"schedule: none", "a cell without a message is not looked at again", what_is_no_message},
    {"schedule: no holding", "a look without a holding comes again", no_holding_for_a_look},
    {"move: whole", "a moved message is counter_in, and its intent is complete", a_message_is_moved},
    {"move: time", "a moved message that expires is scheduled there", a_message_is_moved_with_its_time},
    {"move: view", "a moved message has a reference that no view has", a_reference_that_was_a_view},
    {"move: no holding", "a move without holdings changes nothing", no_holdings_for_a_move},
    {"move: nothing", "a move that finds nothing keeps the limits", nothing_to_move},
    {"move: no room", "a move to a full queue changes nothing", no_room_for_a_move},
    {"move: no reference", "a move without a reference changes nothing", no_reference_for_a_move},
    {"move: no memory", "a move without memory changes nothing", no_memory_for_a_move},
    {"move: closing", "a move resolves a closing of its target", a_target_that_is_being_closed},
    {"moved: bound", "a ring that was made smaller keeps its bound when a move fails", the_bound_of_a_ring},
    {"moved: last cell", "a move that fails keeps the bound of its target", a_move_that_loses_the_last_cell},
};
SUBJECT(CASES)
