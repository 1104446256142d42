// SPDX-License-Identifier: Apache-2.0
/* sb_move_page: 64 messages that go to another queue by one CAS, when they do not, and what a reaper makes of it. */
#include "sb_move_page.h"

#include "dead.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_reference.h"
#include "sb_slab.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define LIMITED ((sb_settings){{-1, 1000, -1, 0, -1, -1}, 0})
#define KEEPING ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_KEEPS})
#define BODY 64u
#define ROW SB_PAGE_CELLS
#define ALL (ROW * BODY)
#define MANY (ROW + 6)

static sb_queue *q, *target;
static char record[BUFFER];
static uint64_t bytes;

static uint64_t header_of(uint32_t slot) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
/* The first page of the queue is filled and emptied: its tail is at the beginning of the second one. */
static void use_first_page(sb_queue *queue) {
  put_up_to(queue, ROW);
  for (unsigned i = 0; i < ROW; i++) take_from(queue);
}
static void two_queues(sb_settings of_source, sb_settings of_target) {
  q = queue_named("q", of_source);
  target = queue_named("target", of_target);
  use_first_page(target);
  put_up_to(q, MANY);
}
static sb_status move_below(uint64_t limit) {
  return sb_move_page(q, target, sb_ring_exact_tail(t.b, &q->lanes[0].ring), limit, &bytes);
}
static sb_status move(void) { return move_below(UINT64_MAX); }

/* ---- what is moved ---- */

static void expect_in_target(uint64_t first) {
  for (uint64_t i = 0; i < ROW; i++) {
    uint64_t id = get(&t, target, record, true);
    expect(id == first + i, "message %llu comes in place of %llu", (unsigned long long)id,
           (unsigned long long)(first + i));
  }
  expect_is(get(&t, target, record, true), 0, "what comes after the page");
}
/* `from`: how many messages were taken before, so the row lies in one page, or in two. */
static void page_is_moved(unsigned from) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  for (unsigned i = 0; i < from; i++) take_from(q);
  uint64_t slots[ROW], headers[ROW], holdings = free_holdings(), begun = intents_of(q);
  for (uint64_t i = 0; i < ROW; i++) {
    slots[i] = sb_cell_slot(word_at(q, from + i));
    headers[i] = header_of((uint32_t)slots[i]);
  }
  bytes = 1; /* what the caller had there counts for nothing */
  expect_is(move(), SB_OK, "the status");
  expect_is(bytes, ALL, "the bytes");
  expect_is(free_holdings(), holdings, "the free holdings");
  uint64_t gen = gen_at(target, ROW);
  for (uint64_t i = 0; i < ROW; i++) {
    expect_is(word_at(target, ROW + i), sb_cell_open(SB_CELL_AVAILABLE, slots[i], 0, gen), "a cell of the target");
    expect_is(header_of((uint32_t)slots[i]), headers[i], "the header of a slot");
  }
  expect_is(*(const uint64_t *)(const void *)(leaf_in(target, ROW).leaf + 1), 0, "the word behind the cells");
  for (uint64_t i = from + ROW; i < MANY; i++) expect_is(cell_state(q, i), SB_CELL_AVAILABLE, "a cell behind the row");
  for (uint64_t i = ROW; i < from + ROW; i++) expect_is(cell_state(q, i), SB_CELL_TOMBSTONE, "a cell of the row");
  sb_leaf_ref leaf;
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base, &leaf), SB_DONE, "the first page of the source");
  expect_is(q->lanes[0].cursor, q->base + from + ROW, "the cursor of the source");
  expect_is(target->shm->tail, target->base + 2 * ROW, "the tail of the target");
  expect_is(target->lanes[0].tail_cursor, target->base + 2 * ROW, "the tail of the handle");
  expect_is(sb_slot_state(header_of(leaf_in(target, ROW).slot)), SB_SLOT_PUBLISHED, "the state of the leaf");
  const sb_ledger_shm *l = q->ledger, *to = target->ledger;
  const uint64_t is[] = {l->kind,
                         l->position,
                         l->before,
                         l->before_bytes,
                         l->bytes,
                         l->target_queue,
                         l->target_position,
                         l->target_ledger,
                         l->target_before,
                         l->target_before_bytes,
                         l->slot,
                         l->gen};
  const uint64_t should[] = {(begun + 1) << 16,
                             q->base + from,
                             0,
                             from * BODY,
                             ALL,
                             target->slot,
                             target->base + ROW,
                             sb_slot_of(t.b, to),
                             ROW,
                             ALL,
                             leaf_in(target, ROW).slot,
                             gen};
  for (unsigned i = 0; i < sizeof is / sizeof is[0]; i++) expect_is(is[i], should[i], "a field of the intent");
  expect_is(counter_in(q, SB_COUNT_MOVED), ROW, "what was moved");
  expect_is(counter_in(q, SB_COUNT_REMOVED_BYTES), ALL + from * BODY, "the bytes that went");
  expect_is(counter_in(target, SB_COUNT_ADDED), 2 * ROW, "what came");
  expect_is(counter_in(target, SB_COUNT_ADDED_BYTES), 2 * ALL, "the bytes that came");
  expect_is((uint32_t)l->holding | (uint32_t)to->holding, 0, "the cells that are held");
  expect_is(SB_LOAD(&q->shm->requeued, SB_RELAXED), 0, "what returned to the source");
  expect_in_target(from + 1);
}
static void a_page_is_moved(void) { page_is_moved(0); }
static void a_row_of_two_pages_is_moved(void) { page_is_moved(3); }

/* How often a message was delivered goes with it. */
static void what_a_cell_says(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  uint64_t gen = sb_slot_gen(header_of(sb_cell_slot(word_at(q, 9))));
  sb_leaf_ref leaf = leaf_in(q, 9);
  SB_STORE(&sb_leaf_cell(&leaf, q->base + 9)->side, sb_side_word(gen, 3, SB_SIDE_REDELIVERED), SB_RELAXED);
  expect_is(move(), SB_OK, "the status");
  leaf = leaf_in(target, ROW);
  expect_is(sb_leaf_cell(&leaf, target->base + ROW + 9)->side, sb_side_word(gen, 3, SB_SIDE_REDELIVERED), "its side");
  expect_is(sb_side_count(sb_leaf_cell(&leaf, target->base + ROW + 8)->side), 0, "the count of one that was not");
}

/* ---- what is left to sb_move_one ---- */

/* Every message is ready where it was, and nothing of the try is left. `taken`: messages that had been taken. */
static void expect_left_to_one(const char *what) {
  uint64_t holdings = free_holdings(), tail = SB_LOAD(&target->shm->tail, SB_RELAXED);
  uint64_t came = counter_in(target, SB_COUNT_ADDED), ready = sb_queue_count_ready(t.b, q->shm);
  uint64_t returned = SB_LOAD(&q->shm->requeued, SB_RELAXED);
  expect(move() == SB_EMPTY, "%s: a page was moved", what);
  expect(free_holdings() == holdings, "%s: holdings are lost", what);
  expect(sb_queue_count_ready(t.b, q->shm) == ready, "%s: not all are ready", what);
  expect(SB_LOAD(&q->shm->requeued, SB_RELAXED) == returned, "%s: messages were taken, and returned", what);
  expect(SB_LOAD(&target->shm->tail, SB_RELAXED) == tail, "%s: the tail moved", what);
  expect(counter_in(target, SB_COUNT_ADDED) == came, "%s: the target counts more", what);
  expect(counter_in(q, SB_COUNT_MOVED) == 0, "%s: the source counts a move", what);
  expect((q->ledger->kind & 0xffffu) == SB_INTENT_NONE, "%s: an intent is left", what);
  expect((uint32_t)q->ledger->holding == 0, "%s: cells are held", what);
}
static void a_tail_within_a_page(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  (void)put(&t, target, 1);
  expect_left_to_one("a tail within a page");
  q = queue_named("from", FREE_SETTINGS);
  target = queue_named("new", FREE_SETTINGS);
  put_up_to(q, MANY);
  expect_left_to_one("a page that would be the root");
}
/* Another handle filled the page, and the shared tail is not exact. */
static void a_tail_that_lags(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  put_up_to(target, 5);
  SB_STORE(&target->shm->tail, target->base + ROW, SB_RELAXED);
  target->lanes[0].tail_cursor = target->base + ROW;
  uint64_t holdings = free_holdings();
  expect_is(move(), SB_EMPTY, "the status");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the first cell");
}
static void queues_of_other_kinds(void) {
  two_queues(LIMITED, FREE_SETTINGS);
  expect_left_to_one("a source with a limit");
  q = queue_named("free", FREE_SETTINGS);
  put_up_to(q, MANY);
  target = queue_named("limited", LIMITED);
  use_first_page(target);
  expect_left_to_one("a target with a limit");
  target = queue_named("keeps", KEEPING);
  use_first_page(target);
  expect_left_to_one("a target that keeps");
  target = q;
  put_up_to(q, 2 * ROW - MANY);
  (void)sb_ring_exact_tail(t.b, &q->lanes[0].ring);
  expect_left_to_one("a queue itself");
}
static void too_few_messages(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  expect_is(sb_move_page(q, target, q->base + ROW - 1, UINT64_MAX, &bytes), SB_EMPTY, "the status below 63");
  for (unsigned i = 0; i < 7; i++) take_from(q);
  expect_left_to_one("63 messages");
}
/* The last message may exceed the limit, the others may not reach it. */
static void too_many_bytes(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  expect_is(move_below(ALL - BODY), SB_EMPTY, "the status when 63 messages reach the limit");
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the first cell");
  expect_is(move_below(ALL - BODY + 1), SB_OK, "the status when only the last one does");
}
static void messages_of_other_kinds(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  message_at(q, 63)->expires_ns = 1;
  expect_left_to_one("a message that expires");
  message_at(q, 63)->expires_ns = 0;
  uint64_t word = word_at(q, 40), gen = gen_at(q, 40);
  uint32_t slot = sb_cell_slot(word);
  const uint64_t words[] = {sb_cell_open(SB_CELL_AVAILABLE, slot, SB_REF_BLOCK, gen),
                            sb_cell_open(SB_CELL_SCHEDULED, slot, 0, gen),
                            sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, 77, gen),
                            sb_cell_owned(SB_CELL_STAGED, slot, 0, 77, gen),
                            sb_cell_bare(SB_CELL_TOMBSTONE, gen),
                            sb_cell_open(SB_CELL_AVAILABLE, slot, 0, gen + 1),
                            sb_cell_open(SB_CELL_AVAILABLE, t.b->chunk_limit * SB_CHUNK_UNITS, 0, gen)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    set_cell_word(q, 40, words[i]);
    expect_left_to_one("a cell that cannot be in a row");
  }
  set_cell_word(q, 40, word);
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  expect_left_to_one("a queue to which messages returned");
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  expect_is(move(), SB_OK, "the status without all that");
}
static void no_holdings_for_a_page(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  (void)sb_ring_exact_tail(t.b, &q->lanes[0].ring);
  leave_holdings(ROW); /* the leaf needs one of them */
  expect_left_to_one("one holding too few");
  leave_holdings(0);
  expect_left_to_one("no holding");
}
/* The page above the leaf that is to be linked; makes it, and so frees the first leaf. */
static sb_page_ref parent_of_leaf(void) {
  sb_page_ref parent;
  unsigned skip;
  if (sb_page_descend(t.b, t.c, &target->lanes[0].ring, target->base + ROW, 1, &parent, &skip) != SB_OK)
    die("sb_page_descend", 0);
  return parent;
}
static void no_memory_for_a_page(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  (void)parent_of_leaf();
  use_all_slots(SB_KIND_LEAF);
  expect_left_to_one("no slot for a leaf");
}

/* ---- what others do meanwhile ---- */

static test_broker another;
static sb_queue *its_source, *its_target;
static void begin_beside(void) {
  two_queues(FREE_SETTINGS, FREE_SETTINGS);
  another = t;
  another.c = connect_to(&t);
  its_source = open_queue(&another, "q");
  its_target = open_queue(&another, "target");
}
static void another_takes_ten(void) {
  static char buffer[BUFFER];
  for (unsigned i = 0; i < 10; i++) (void)get(&another, its_source, buffer, true);
}
/* Its message is not there any more: those that were taken before it return, in their places. */
static void a_row_that_another_takes_from(void) {
  begin_beside();
  meanwhile(cell_at(q, 0), BEFORE_CAS, 1, another_takes_ten);
  uint64_t holdings = free_holdings();
  sb_status status = move();
  if (!has_acted()) return;
  expect_is(status, SB_EMPTY, "the status");
  expect_is(free_holdings(), holdings, "the free holdings");
  for (uint64_t id = 11; id <= MANY; id++) expect_is(get(&t, q, record, true), id, "the next message");
}
static void another_takes_the_sixth(void) {
  static char buffer[BUFFER];
  (void)get(&another, its_source, buffer, true);
}
static void a_row_that_breaks_in_the_middle(void) {
  begin_beside();
  meanwhile(cell_at(q, 5), BEFORE_CAS, 1, another_takes_the_sixth);
  sb_status status = move();
  if (!has_acted()) return;
  expect_is(status, SB_EMPTY, "the status");
  for (uint64_t id = 1; id <= MANY; id++) {
    if (id != 6) expect_is(get(&t, q, record, true), id, "the next message");
  }
  expect_is(get(&t, q, record, true), 0, "the message that another one took");
}
static void another_puts(void) { (void)put(&another, its_target, 99); }
/* A producer links another leaf first: its message is in the target, and the row is ready where it was. */
static void a_link_that_another_makes(void) {
  begin_beside();
  sb_page_ref parent = parent_of_leaf();
  uint64_t holdings = free_holdings();
  meanwhile(&sb_page_children(&parent)[1], BEFORE_CAS, 1, another_puts);
  sb_status status = move();
  if (!has_acted()) return;
  expect_is(status, SB_EMPTY, "the status");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(q->ledger->kind & 0xffffu, SB_INTENT_NONE, "the intent");
  expect_is(get(&t, target, record, true), 99, "what is in the target");
  expect_is(get(&t, target, record, true), 0, "what else is there");
  for (uint64_t id = 1; id <= MANY; id++) expect_is(get(&t, q, record, true), id, "the next message");
}

/* ---- what a reaper makes of it ---- */

static sb_page_fresh fresh;
/* The dead connection has written its intent, and has not linked the leaf. */
static void begin_judged(void) {
  grow_to(BROKER_CHUNKS - 1);
  static char names[2][8] = {"q0", "to0"}; /* of each beginning in a case */
  begin_dead();
  q = queue_of_dead(names[0], FREE_SETTINGS);
  target = queue_of_dead(names[1], FREE_SETTINGS);
  names[0][1]++;
  names[1][2]++;
  for (unsigned i = 0; i < MANY; i++) (void)put_by_dead(q, BODY);
  for (unsigned i = 0; i < ROW; i++) (void)put_by_dead(target, BODY);
  if (sb_page_prepare_leaf(d.c, &target->lanes[0].ring, target->base + ROW, &fresh) != SB_OK) die("prepare_leaf", 0);
  sb_cell_shm *cells = ((sb_leaf_shm *)(void *)fresh.leaf.page)->cells;
  for (uint64_t i = 0; i < ROW; i++) {
    uint32_t slot = sb_cell_slot(word_in(q, i));
    SB_STORE(&cells[i].word, sb_cell_open(SB_CELL_AVAILABLE, slot, 0, fresh.leaf.gen), SB_RELAXED);
    set_word_in(q, i, owned_in(q, i, SB_CELL_REMOVING, d.c->id));
  }
  sb_ledger_shm *l = q->ledger;
  SB_STORE(&l->target_queue, target->slot, SB_RELAXED);
  SB_STORE(&l->target_position, target->base + ROW, SB_RELAXED);
  SB_STORE(&l->target_ledger, sb_slot_of(t.b, target->ledger), SB_RELAXED);
  SB_STORE(&l->target_before, ROW, SB_RELAXED);
  SB_STORE(&l->target_before_bytes, ALL, SB_RELAXED);
  sb_ledger_begin_intent(l, SB_INTENT_MOVE_PAGE, SB_COUNT_MOVED, q->base, fresh.leaf.slot, fresh.leaf.gen, ALL);
}
static void judge(void) {
  sb_intent_resolve(&w, sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), sb_slot_of(t.b, q->ledger));
}
static void expect_judged(bool moved, const char *what) {
  judge();
  uint64_t times = moved;
  expect((q->ledger->kind & 0xffu) == SB_INTENT_NONE, "%s: the intent stands", what);
  expect(counter_in(q, SB_COUNT_MOVED) == times * ROW, "%s: the moved ones are wrong", what);
  expect(counter_in(q, SB_COUNT_REMOVED_BYTES) == times * ALL, "%s: the bytes that went are wrong", what);
  expect(counter_in(target, SB_COUNT_ADDED) == ROW + times * ROW, "%s: what came is wrong", what);
  expect(counter_in(target, SB_COUNT_ADDED_BYTES) == ALL + times * ALL, "%s: the bytes that came are wrong", what);
  sb_leaf_ref leaf;
  bool gone = sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base, &leaf) == SB_DONE;
  expect(gone == moved, "%s: the page of the row is %s", what, gone ? "gone" : "there");
  for (uint64_t i = 0; !moved && i < ROW; i++)
    expect(sb_cell_state(word_in(q, i)) == SB_CELL_REMOVING, "%s: a cell of the row was changed", what);
}
static void a_leaf_that_was_not_linked(void) {
  begin_judged();
  expect_judged(false, "a leaf that was not linked");
  expect_is(sb_slot_state(header_of(fresh.leaf.slot)), SB_SLOT_ALLOC, "the state of its slot");
}
static void store_link(uint64_t word) { SB_STORE(fresh.link, word, SB_RELAXED); }
static void a_leaf_that_was_linked(void) {
  begin_judged();
  store_link(sb_link_word(0, fresh.leaf.slot, fresh.leaf.gen));
  expect_judged(true, "a leaf that was linked");
  begin_judged();
  (void)sb_page_link_leaf(d.c, &fresh);
  set_word_in(q, 5, sb_cell_bare(SB_CELL_TOMBSTONE, leaf_in(q, 5).gen)); /* and its cell is not marked finished */
  expect_judged(true, "a leaf that was linked and published");
}
/* Another leaf is there in its place, or none any more. */
static void a_leaf_that_is_not_found(void) {
  begin_judged();
  store_link(SB_LINK_DONE);
  expect_judged(false, "a leaf in whose place another one was retired");
  begin_judged();
  store_link(SB_LINK_DONE);
  SB_STORE(&((sb_leaf_shm *)(void *)fresh.leaf.page)->cells[0].word, sb_cell_bare(SB_CELL_TOMBSTONE, fresh.leaf.gen),
           SB_RELAXED);
  expect_judged(true, "a leaf that was retired, and not freed yet");
  begin_judged();
  store_link(SB_LINK_DONE);
  (void)sb_slab_free_gen(t.b, fresh.leaf.slot, fresh.leaf.gen);
  expect_judged(true, "a leaf that was freed");
  begin_judged();
  (void)put_by_dead(target, BODY);
  SB_STORE(&target->ledger->counters[SB_COUNT_ADDED], ROW, SB_RELAXED);
  SB_STORE(&target->ledger->counters[SB_COUNT_ADDED_BYTES], ALL, SB_RELAXED);
  expect_judged(false, "a leaf in whose place there is another one");
}
static void free_the_leaf(void) { (void)sb_slab_free_gen(t.b, fresh.leaf.slot, fresh.leaf.gen); }
static void a_leaf_that_is_freed_meanwhile(void) {
  begin_judged();
  store_link(SB_LINK_DONE);
  meanwhile(&((sb_leaf_shm *)(void *)fresh.leaf.page)->cells[0].word, BEFORE_LOAD, 1, free_the_leaf);
  judge();
  if (!has_acted()) return;
  expect_is(counter_in(q, SB_COUNT_MOVED), ROW, "what was moved");
}
static void what_was_counted_already(void) {
  begin_judged();
  (void)sb_page_link_leaf(d.c, &fresh);
  SB_STORE(&target->ledger->counters[SB_COUNT_ADDED_BYTES], 2 * ALL, SB_RELAXED);
  SB_STORE(&target->ledger->counters[SB_COUNT_ADDED], 2 * ROW, SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_REMOVED_BYTES], ALL, SB_RELAXED);
  expect_judged(true, "a page that was counted");
  begin_judged();
  (void)sb_page_link_leaf(d.c, &fresh);
  SB_STORE(&q->ledger->target_ledger, 0, SB_RELAXED);
  judge();
  expect_is(counter_in(target, SB_COUNT_ADDED), ROW, "what came, without a ledger that counts it");
  expect_is(counter_in(q, SB_COUNT_MOVED), ROW, "what was moved");
}
/* A cell of another connection at the place of the row is left alone. */
static void a_cell_of_another(void) {
  begin_judged();
  (void)sb_page_link_leaf(d.c, &fresh);
  uint64_t word = sb_cell_owned(SB_CELL_REMOVING, sb_cell_slot(word_in(q, 9)), 0, d.c->id + 1, leaf_in(q, 9).gen);
  set_word_in(q, 9, word);
  set_word_in(q, ROW, owned_in(q, ROW, SB_CELL_REMOVING, d.c->id));
  judge();
  expect_is(word_in(q, 9), word, "the cell of another connection");
  expect_is(sb_cell_state(word_in(q, 8)), SB_CELL_TOMBSTONE, "the state of the cell before it");
  expect_is(sb_cell_state(word_in(q, ROW - 1)), SB_CELL_TOMBSTONE, "the state of the last cell");
  expect_is(sb_cell_state(word_in(q, ROW)), SB_CELL_REMOVING, "the state of the cell behind the row");
}

static const test_case CASES[] = {
    {"move page: moved", "64 messages are moved as they are", a_page_is_moved},
    {"move page: two pages", "the row may lie in two pages", a_row_of_two_pages_is_moved},
    {"move page: side", "the number of deliveries goes with a message", what_a_cell_says},
    {"move page: within", "the tail must be at the beginning of a page that is not the root", a_tail_within_a_page},
    {"move page: lags", "a tail that lags moves nothing", a_tail_that_lags},
    {"move page: queues", "queues with limits, and those that keep, move messages one by one", queues_of_other_kinds},
    {"move page: few", "fewer than 64 are moved one by one", too_few_messages},
    {"move page: bytes", "only the last message may exceed the limit", too_many_bytes},
    {"move page: messages", "64 messages in a row must be ready, and must not expire", messages_of_other_kinds},
    {"move page: holdings", "without 65 holdings nothing is moved", no_holdings_for_a_page},
    {"move page: memory", "without a leaf nothing is moved", no_memory_for_a_page},
    {"move page: taken", "a row is given back if another process takes its first messages",
     a_row_that_another_takes_from},
    {"move page: broken", "a row is given back if another process takes one of its messages",
     a_row_that_breaks_in_the_middle},
    {"move page: linked first", "a row is given back if a producer links another leaf", a_link_that_another_makes},
    {"move page: not linked", "the reaper leaves the row if the leaf was not linked", a_leaf_that_was_not_linked},
    {"move page: linked", "the reaper finishes the row if the leaf was linked", a_leaf_that_was_linked},
    {"move page: not found", "the reaper knows a leaf that was linked and retired", a_leaf_that_is_not_found},
    {"move page: freed", "the reaper knows a leaf that is freed while it looks", a_leaf_that_is_freed_meanwhile},
    {"move page: counted", "the reaper counts a page once", what_was_counted_already},
    {"move page: another's", "the reaper finishes only cells of the dead connection", a_cell_of_another},
};
SUBJECT(CASES)
