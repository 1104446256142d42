// SPDX-License-Identifier: Apache-2.0
/* sb_disposal: how a queue is closed, emptied and freed. */
#include "sb_disposal.h"
#include "sb_hints.h"

#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_chunk.h"
#include "sb_consumer.h"
#include "sb_slab.h"
#include "sb_wait.h"
#include "system.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define RING_OF(n) ((sb_settings){{(n), -1, -1, 0, -1, -1}, 0})
#define BODY 64u

static sb_queue *q;
static void begin_queue(sb_settings settings) { q = queue_named("q", settings); }

static unsigned queue_state_of(sb_queue_shm *of) { return (unsigned)SB_BITS(SB_LOAD(&of->state, SB_RELAXED), 0, 2); }
static unsigned queue_state(void) { return queue_state_of(q->shm); }
static void set_word(sb_word *word, uint64_t value) { SB_STORE(word, value, SB_RELAXED); }

/* ---- closing ---- */

static void expect_hints(uint64_t taken, uint64_t admitted, const char *when) {
  expect_is(q->shm->taken, taken, when);
  expect_is(q->shm->admitted, admitted, when);
  expect_is(depth_of_hints(q), 0, "how deep the hints are being changed");
}
static void a_queue_is_closed(void) {
  uint64_t removed = 99;
  begin_queue(RING_OF(10));
  put_up_to(q, 3);
  put_with(q, 4, 3600, 0);
  uint64_t raised = hints_raised(q), begun = intents_of(q);
  expect_is(sb_disposal_close(q, false, false, &removed), SB_OK, "the status");
  expect_is(removed, 4, "how many messages went");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(cell_state(q, 4), SB_CELL_CLOSED, "the state of its last cell");
  for (uint64_t i = 0; i < 4; i++) expect_is(cell_state(q, i), SB_CELL_TOMBSTONE, "the state of a message's cell");
  expect_is(counter_in(q, SB_COUNT_KILLED), 4, "what was killed");
  expect_is(counter_in(q, SB_COUNT_UNSCHEDULED), 1, "what left the schedule");
  expect_hints(5, 5, "what is taken, or admitted: the closing cell is a place without a message");
  expect_is(q->shm->bytes_out, 4 * BODY, "the bytes that went");
  expect_is(hints_raised(q), raised + 4, "how often hints were changed: the closing, and three that were ready");
  expect_is(intents_of(q), begun + 5, "the intents_of: four messages, and one that left the schedule");
}
static void closing_is_refused(void) {
  uint64_t removed = 99;
  begin_queue(RING_OF(10));
  put_up_to(q, 2);
  expect_is(sb_disposal_close(q, false, true, &removed), SB_NOT_EMPTY, "the status of a queue with messages");
  expect_is(removed, 0, "how many messages went");
  expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
  expect_is(cell_state(q, 2), SB_CELL_TOMBSTONE, "the state of the closing cell");
  expect_is(q->shm->tail, q->base + 3, "the tail, which passes the closing cell");
  expect_hints(1, 3, "what is taken, or admitted, after the refusal");
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  expect_is(sb_disposal_close(q, true, false, &removed), SB_IN_USE, "the status of a queue with a consumer");
  expect_is(sb_disposal_close(q, false, true, &removed), SB_NOT_EMPTY, "the status where consumers do not matter");
  SB_STORE(&q->shm->consumers, 0, SB_RELAXED);
  expect_is(sb_disposal_close(q, true, true, &removed), SB_NOT_EMPTY, "the status without a consumer");
  expect_is(sb_disposal_close(q, true, false, &removed), SB_OK, "the status where messages do not matter");
  expect_is(removed, 2, "how many messages went");
}
/* A consumer kept the queue, and leaves before the call says why the queue stays. */
static void the_consumer_leaves(void) { SB_STORE(&q->shm->consumers, 0, SB_RELAXED); }
static void closing_is_refused_for_one_that_leaves(void) {
  uint64_t removed;
  begin_queue(RING_OF(10));
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  meanwhile(&q->shm->consumers, AFTER_LOAD, 1, the_consumer_leaves);
  sb_status status = sb_disposal_close(q, true, false, &removed);
  if (has_acted()) expect_is(status, SB_IN_USE, "the status of an empty queue whose consumer left");
}
/* Nothing keeps it any more: neither reason is true, so the call closes the queue. */
static void closing_is_refused_for_no_reason_that_is_left(void) {
  uint64_t removed;
  begin_queue(RING_OF(10));
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  meanwhile(&q->shm->consumers, AFTER_LOAD, 1, the_consumer_leaves);
  sb_status status = sb_disposal_close(q, true, true, &removed);
  if (!has_acted()) return;
  expect_is(status, SB_OK, "the status of an empty queue whose consumer left");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_hints(2, 2, "what is taken, or admitted: two closing cells");
}
/* A producer counts the closing cell as taken before it is there, so it evicts nothing. */
static test_broker another;
static sb_queue *its;
static void another_puts(void) { (void)put(&another, its, 9); }
static void closing_is_refused_beside_a_put(void) {
  uint64_t removed;
  begin_queue(RING_OF(3));
  put_up_to(q, 3);
  another = t;
  another.c = connect_to(&t);
  its = open_queue(&another, "q");
  meanwhile(cell_at(q, 3), BEFORE_CAS, 1, another_puts);
  expect_is(sb_disposal_close(q, false, true, &removed), SB_NOT_EMPTY, "the status");
  if (!has_acted()) return;
  expect_is(sb_queue_ready(t.b, q->shm), 3, "how many are ready in the ring");
  expect_is(counter_in(q, SB_COUNT_REPLACED), 1, "what was replaced");
}
/* A closing cell that another process left is resolved first. */
static void another_process_closes(void) {
  uint64_t removed = 99;
  begin_queue(FREE_SETTINGS);
  put_up_to(q, 1);
  begin_to_close(q, SB_CLOSING_IF_EMPTY);
  expect_is(sb_disposal_close(q, false, false, &removed), SB_OK, "the status behind a closing that is refused");
  expect_is(cell_state(q, 1), SB_CELL_TOMBSTONE, "the state of the other closing cell");
  expect_is(removed, 1, "how many messages went");
  q = queue_named("other", RING_OF(10));
  put_up_to(q, 1);
  begin_to_close(q, 0);
  expect_is(sb_disposal_close(q, false, false, &removed), SB_DELETED, "the status behind a closing that holds");
  expect_is(removed, 0, "how many messages went by it");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(depth_of_hints(q), 0, "how deep the hints are being changed");
  q = queue_named("broken", RING_OF(10));
  put_up_to(q, 1);
  begin_to_close(q, 0);
  set_word(q->lanes[0].ring.root, sb_link_empty(0)); /* the handle knows the leaf still */
  expect_is(sb_disposal_close(q, false, false, &removed), SB_CORRUPT, "the status without a root");
  expect_is(depth_of_hints(q), 0, "how deep the hints are being changed");
}
static uint64_t lost_root;
static void lose_the_root(void) {
  lost_root = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED);
  set_word(q->lanes[0].ring.root, sb_link_empty(0));
}
/* The handle knows the leaf still, so the cell is appended. Then no process can find it, to decide it. */
static void the_closing_cell_is_lost(void) {
  uint64_t removed = 99;
  begin_queue(RING_OF(10));
  put_up_to(q, 1);
  meanwhile(q->lanes[0].ring.root, BEFORE_LOAD, 1, lose_the_root);
  expect_is(sb_disposal_close(q, false, true, &removed), SB_CORRUPT, "the status of a deletion whose cell is lost");
  if (!has_acted()) return;
  set_word(q->lanes[0].ring.root, lost_root);
  expect_is(cell_state(q, 1), SB_CELL_CLOSING, "the state of the closing cell");
  expect_is(removed, 0, "how many messages went");
  expect_is(depth_of_hints(q), 0, "how deep the hints are being changed");
}
/* What was taken and admitted for the closing cell goes back; a put may have seen too little room meanwhile. */
static void no_memory_to_close(void) {
  uint64_t removed = 99;
  begin_queue(RING_OF(100));
  put_up_to(q, SB_PAGE_CELLS);
  use_all_slots(SB_KIND_INNER);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 60, SB_RELAXED);
  set_word(&q->shm->bound, 0);
  expect_is(sb_disposal_close(q, false, false, &removed), SB_NO_MEMORY, "the status");
  expect_is(removed, 0, "how many messages went");
  expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
  expect_is(counter_in(q, SB_COUNT_REPLACED), 4, "what the ring has too many");
  expect_hints(4, SB_PAGE_CELLS, "what is taken, or admitted");
}

/* ---- what is left in a queue ---- */

/* Between two messages that are ready. */
static void expect_disposed(const char *name, uint64_t word, uint64_t should) {
  expect_is(sb_disposal_empty(q), should, name);
  expect_is(word_at(q, 1), word, name);
  expect_is(cell_state(q, 2), should == 1 ? SB_CELL_AVAILABLE : SB_CELL_TOMBSTONE, name);
}
static void three_messages(const char *name) {
  q = queue_named(name, FREE_SETTINGS);
  put_up_to(q, 3);
}
static void disposal_ends(void) {
  for (unsigned i = 0; i < 3; i++) {
    three_messages((const char *[]){"free", "closed", "foreign"}[i]);
    uint64_t gen = gen_at(q, 1);
    uint64_t words[] = {sb_cell_bare(SB_CELL_FREE, gen), sb_cell_bare(SB_CELL_CLOSED, gen), foreign_word_at(q, 1)};
    set_cell_word(q, 1, words[i]);
    expect_disposed("what was removed before the end", words[i], 1);
  }
}
static void disposal_passes_what_others_have(void) {
  for (unsigned state = SB_CELL_ACQUIRED; state <= SB_CELL_STAGED; state++) {
    three_messages((const char *[]){"acquired", "removing", "staged"}[state - SB_CELL_ACQUIRED]);
    uint64_t word = sb_cell_owned(state, sb_cell_slot(word_at(q, 1)), 0, 77, gen_at(q, 1));
    set_cell_word(q, 1, word);
    expect_disposed("what was removed beside another's", word, 2);
  }
  three_messages("tombstone");
  set_cell_word(q, 1, tombstone_at(q, 1));
  expect_disposed("what was removed beside a finished cell", tombstone_at(q, 1), 2);
}
/* A cell that cannot be taken: its holding goes back, and nothing is counter_in. */
static void what_cannot_be_disposed_of(void) {
  three_messages("held");
  uint64_t word = open_word(q, 1, SB_CELL_SCHEDULED, t.b->chunk_limit * SB_CHUNK_UNITS), holdings = free_holdings();
  set_cell_word(q, 1, word);
  expect_disposed("what was removed beside a slot that does not exist", word, 2);
  expect_is(counter_in(q, SB_COUNT_UNSCHEDULED), 0, "what left the schedule");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(q->ledger->kind & 0xffff, SB_INTENT_NONE, "the intent");
  three_messages("without");
  leave_holdings(0);
  expect_is(sb_disposal_empty(q), 0, "what was removed without a holding");
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the state of the first cell");
}

/* ---- freeing ---- */

static uint32_t levels[2], ledgers[2];
static uint32_t slot;
static sb_queue_shm *shm;
static uint64_t gens[SB_CHUNK_UNITS];

static uint64_t header_of(uint32_t of) { return SB_LOAD(sb_slot_header(t.b, of), SB_RELAXED); }
static void expect_freed(uint32_t of, const char *what) {
  expect_is(sb_slot_state(header_of(of)), SB_SLOT_FREE, what);
  expect_is(sb_slot_gen(header_of(of)), gens[of % SB_CHUNK_UNITS] + 1, what);
}
static void expect_kept(uint32_t of, const char *what) {
  expect(sb_slot_state(header_of(of)) != SB_SLOT_FREE, "%s was freed", what);
}
static void consume_with(int32_t priority) {
  sb_status status;
  sb_consumer *k = sb_consumer_open(t.c, &q, 1, 10, priority, 0, 0, &status);
  if (k == NULL) die("sb_consumer_open", (int)status);
  sb_consumer_cancel(k, true);
}
/* A queue with two levels and two ledgers, which was closed, and which no connection has open. */
static void closed_queue(void) {
  uint64_t removed;
  sb_connection *mine = t.c;
  begin_queue(FREE_SETTINGS);
  slot = q->slot;
  shm = q->shm;
  put_with(q, 1, 0, 3600);
  consume_with(1);
  consume_with(2);
  t.c = connect_to(&t);
  sb_queue *others = open_queue(&t, "q");
  (void)sb_queue_close(others);
  t.c = mine;
  levels[0] = shm->consumer_levels;
  levels[1] = sb_consumer_level_at(t.b, levels[0])->next;
  ledgers[0] = shm->ledgers;
  ledgers[1] = sb_ledger_at(t.b, ledgers[0])->next;
  for (unsigned i = 0; i < 2; i++) {
    gens[levels[i] % SB_CHUNK_UNITS] = sb_slot_gen(header_of(levels[i]));
    gens[ledgers[i] % SB_CHUNK_UNITS] = sb_slot_gen(header_of(ledgers[i]));
  }
  gens[slot % SB_CHUNK_UNITS] = sb_slot_gen(header_of(slot));
  expect_is(sb_disposal_close(q, false, false, &removed), SB_OK, "the status of closing");
  (void)sb_queue_close(q);
}
static void a_queue_is_freed(void) {
  closed_queue();
  uint64_t state = shm->state;
  expect(sb_disposal_free(t.c, slot), "it was not freed");
  const sb_word *bases[] = {&shm->base,
                            &shm->all.base,
                            &shm->non_acquiring_list.base,
                            &shm->not_interested_list.base,
                            &shm->room.base,
                            &shm->schedule.base,
                            &sb_consumer_level_at(t.b, levels[0])->interested.base,
                            &sb_consumer_level_at(t.b, levels[1])->notified.base};
  for (unsigned i = 0; i < sizeof bases / sizeof bases[0]; i++)
    expect_is(*bases[i], SB_PAGE_CELLS, "where the next life of a ring begins");
  expect_is(sb_link_state(shm->root), SB_LINK_EMPTY, "the root");
  for (unsigned i = 0; i < 2; i++) {
    expect_freed(levels[i], "the slot of a level");
    expect_freed(ledgers[i], "the slot of a ledger");
  }
  expect_freed(slot, "the slot of the queue");
  expect_is(shm->consumer_levels, 0, "its first level");
  expect_is(shm->ledgers, SB_LEDGERS_SEALED, "its first ledger");
  expect_is(shm->state, SB_QUEUE_NONE | ((state >> 2) + 1) << 2, "its state");
  expect_is(sb_holding_at(t.b, t.c->page_token)->what, sb_holding_what(SB_HOLD_SLOT, slot, gens[slot % SB_CHUNK_UNITS]),
            "what was announced last");
}
/* A chain in which a slot was freed already ends there. */
static void chains_that_broke(void) {
  closed_queue();
  (void)sb_slab_free_gen(t.b, levels[0], gens[levels[0] % SB_CHUNK_UNITS]);
  (void)sb_slab_free_gen(t.b, ledgers[0], gens[ledgers[0] % SB_CHUNK_UNITS]);
  expect(sb_disposal_free(t.c, slot), "it was not freed");
  expect_is(shm->consumer_levels, levels[1], "the level behind one that was freed");
  expect_is(shm->ledgers, SB_LEDGERS_SEALED, "the list that ended at one that was freed");
  expect_kept(levels[1], "the level behind one that was freed");
  expect_kept(ledgers[1], "the ledger behind one that was freed");
}
static uint32_t freed_meanwhile;
static void free_meanwhile(void) {
  (void)sb_slab_free_gen(t.b, freed_meanwhile, gens[freed_meanwhile % SB_CHUNK_UNITS]);
}
/* The reaper of a process that was killed while it freed the same queue frees an object that we unlink. */
static void a_reaper_frees_too(void) {
  if (!has_steps()) return;
  for (unsigned i = 0; i < 2; i++) {
    const char *what =
        i == 0 ? "the level behind one that a reaper freed" : "the ledger behind one that a reaper freed";
    closed_queue();
    const uint32_t *chain = i == 0 ? levels : ledgers;
    freed_meanwhile = chain[0];
    meanwhile(i == 0 ? &shm->consumer_levels : &shm->ledgers, i == 0 ? BEFORE_STORE : BEFORE_CAS, 1, free_meanwhile);
    expect(sb_disposal_free(t.c, slot), "it was not freed");
    expect(has_acted(), "nobody freed the one before meanwhile");
    expect_freed(chain[1], what);
  }
}
/* A connection opens the queue just before it becomes FREEING: the queue is what it was. */
static sb_queue *late;
static void open_it(void) {
  sb_status status = sb_queue_attach(another.c, slot, late, true);
  if (status != SB_OK) die("sb_queue_attach", (int)status);
}
static void somebody_opens_it_meanwhile(void) {
  sb_queue handle;
  closed_queue();
  uint64_t state = shm->state;
  another = t;
  another.c = connect_to(&t);
  late = &handle;
  meanwhile(&shm->state, BEFORE_STORE, 1, open_it);
  bool freed = sb_disposal_free(t.c, slot);
  if (!has_acted()) return;
  expect(!freed, "a queue that a connection has open was freed");
  expect_is(shm->state, state, "its state");
  expect(sb_queue_is_open(late), "the handle is of another queue");
  expect_kept(ledgers[0], "a ledger");
  expect_kept(levels[0], "a level");
  sb_queue_detach(late);
  expect(sb_disposal_free(t.c, slot), "it was not freed afterwards");
}
/* A connection that looked at the queue before that adopts a ledger afterwards: it is told that the queue is gone. */
static sb_status late_status;
static void open_it_late(void) { late_status = sb_queue_attach(another.c, slot, late, true); }
static void begin_to_free(void) { set_word(&shm->state, shm->state | SB_QUEUE_FREEING); }
static void somebody_opens_it_late(void) {
  sb_queue handle;
  closed_queue();
  another = t;
  another.c = connect_to(&t);
  late = &handle;
  uint64_t holdings = free_holdings();
  meanwhile(&shm->ledgers, BEFORE_LOAD, 1, begin_to_free);
  open_it_late();
  if (!has_acted()) return;
  expect_is(late_status, SB_DELETED, "the status");
  expect_is(free_holdings(), holdings, "the free holdings");
  expect(!sb_ledger_owned(t.b, shm), "it owns a ledger");
  expect(sb_disposal_free(t.c, slot), "what is FREEING since a process was killed was not freed");
  expect_freed(slot, "the slot of the queue");
  set_word(&shm->state, shm->state | SB_QUEUE_FREEING);
  ((sb_ledger_shm *)sb_slot_at(t.b, ledgers[0]))->owner = 77;
  SB_STORE(&shm->ledgers, ledgers[0], SB_RELAXED);
  expect(!sb_disposal_free(t.c, slot), "a queue that somebody opens was freed");
  expect_is(queue_state_of(shm), SB_QUEUE_FREEING, "its state");
}
/* A ledger that such a connection links while the others are freed is freed, too; later it links none. */
static uint32_t linked;
static void link_a_ledger(void) {
  uint64_t token;
  sb_ledger_shm *l;
  sb_status status = sb_ledger_adopt(another.c, slot, &l, &token);
  if (status != SB_OK) die("sb_ledger_adopt", (int)status);
  linked = shm->ledgers;
  gens[linked % SB_CHUNK_UNITS] = sb_slot_gen(header_of(linked));
  sb_ledger_renounce(another.c, l, token);
}
static void a_ledger_is_linked_meanwhile(void) {
  uint64_t token, free_slots;
  sb_ledger_shm *l;
  closed_queue();
  another = t;
  another.c = connect_to(&t);
  ((sb_ledger_shm *)sb_slot_at(t.b, ledgers[0]))->next = 0;
  meanwhile(&shm->ledgers, BEFORE_CAS, 2, link_a_ledger);
  expect(sb_disposal_free(t.c, slot), "it was not freed");
  if (!has_acted()) return;
  expect_freed(ledgers[0], "the slot of the first ledger");
  expect_freed(linked, "the slot of the ledger that was linked meanwhile");
  expect_is(shm->ledgers, SB_LEDGERS_SEALED, "its first ledger");
  free_slots = free_holdings();
  expect_is(sb_ledger_adopt(t.c, slot, &l, &token), SB_DELETED, "the status where none may be linked");
  expect_is(free_holdings(), free_slots, "the free holdings");
}
static void seal(void) { SB_STORE(&shm->ledgers, SB_LEDGERS_SEALED, SB_RELAXED); }
static void sealed_before_the_link(void) {
  uint64_t token;
  sb_ledger_shm *l;
  closed_queue();
  SB_STORE(&shm->ledgers, 0, SB_RELAXED);
  uint64_t holdings = free_holdings();
  meanwhile(&shm->ledgers, BEFORE_LOAD, 2, seal);
  expect_is(sb_ledger_adopt(t.c, slot, &l, &token), SB_DELETED, "the status");
  if (!has_acted()) return;
  expect_is(free_holdings(), holdings, "the free holdings");
  expect_is(shm->ledgers, SB_LEDGERS_SEALED, "the list");
}
static void what_is_not_freed(void) {
  uint64_t token, gen, removed;
  uint32_t other;
  closed_queue();
  set_word(&shm->state, (shm->state & ~UINT64_C(3)) | SB_QUEUE_OPEN);
  expect(!sb_disposal_free(t.c, slot), "an open queue was freed");
  q = queue_named("open", FREE_SETTINGS);
  expect_is(sb_disposal_close(q, false, false, &removed), SB_OK, "the status of closing");
  expect(!sb_disposal_free(t.c, q->slot), "a queue that a connection has open was freed");
  q = queue_named("full", FREE_SETTINGS);
  put_up_to(q, 1);
  set_word(&q->shm->state, (q->shm->state & ~UINT64_C(3)) | SB_QUEUE_CLOSED);
  slot = q->slot;
  (void)sb_queue_close(q);
  expect(!sb_disposal_free(t.c, slot), "a queue with a message was freed");
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  if (sb_slab_alloc(t.c, sb_class_for(t.b, 3 * SB_UNIT), token, &other, &gen) != SB_OK) die("sb_slab_alloc", 0);
  memset(sb_slot_at(t.b, other), 0, 3 * SB_UNIT);
  *(uint64_t *)sb_slot_at(t.b, other) = SB_QUEUE_CLOSED;
  expect(!sb_disposal_free(t.c, other), "what is no queue was freed");
  expect_kept(other, "a body");
}

static const test_case CASES[] = {
    {"disposal: closed", "a queue that is closed loses its messages, each is counter_in", a_queue_is_closed},
    {"disposal: refused", "a condition that does not hold keeps the queue", closing_is_refused},
    {"disposal: left", "a queue whose consumer leaves meanwhile was in use, not \"not empty\"",
     closing_is_refused_for_one_that_leaves},
    {"disposal: no reason", "a queue that nothing keeps any more is closed",
     closing_is_refused_for_no_reason_that_is_left},
    {"disposal: refused, put", "a closing that is refused keeps the bound of a ring", closing_is_refused_beside_a_put},
    {"disposal: two close", "a closing of another process is resolved first", another_process_closes},
    {"disposal: lost", "a closing cell that nobody finds is a damaged ring", the_closing_cell_is_lost},
    {"disposal: no memory", "a closing without memory takes back its hints", no_memory_to_close},
    {"disposal: end", "disposal ends at the end of the messages", disposal_ends},
    {"disposal: others'", "disposal leaves what other connections have", disposal_passes_what_others_have},
    {"disposal: stays", "disposal passes a cell that it cannot take", what_cannot_be_disposed_of},
    {"disposal: freed", "a closed queue gives back all its memory", a_queue_is_freed},
    {"disposal: broken", "freeing ends where a chain was freed already", chains_that_broke},
    {"disposal: two free", "freeing goes on behind what a reaper freed meanwhile", a_reaper_frees_too},
    {"disposal: opened", "a queue that is opened meanwhile is not freed", somebody_opens_it_meanwhile},
    {"disposal: late", "whoever opens a queue that is being freed is told that it is gone", somebody_opens_it_late},
    {"disposal: linked", "a ledger that comes late is freed, too", a_ledger_is_linked_meanwhile},
    {"disposal: sealed", "a ledger that comes too late is not linked", sealed_before_the_link},
    {"disposal: kept", "a queue in use, or with messages, is not freed", what_is_not_freed},
};
SUBJECT(CASES)
