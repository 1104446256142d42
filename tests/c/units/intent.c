// SPDX-License-Identifier: Apache-2.0
/* sb_intent: what the reaper does with the cells that a dead connection held, and with each intent that it left. */
#include "sb_intent.h"

#include "dead.h"
#include "meanwhile.h"
#include "system.h"

#define BYTES 72u
#define LIMITED ((sb_settings){{-1, 100, -1, 0, -1, -1}, 0}) /* such a queue keeps `taken` and `bytes_out` */
#define FREE ((sb_settings)FREELY)
#define BESIDE (d.c->id + 1) /* another connection */

static sb_queue *q;
static uint32_t slot;    /* of the message at position `base` */
static uint64_t message; /* the generation of its slot */

static void begin(sb_settings settings) {
  begin_dead();
  q = queue_of_dead("q", settings);
  slot = put_by_dead(q, BYTES);
  (void)put_by_dead(q, BYTES);
  message = sb_slot_gen(slot_word(slot));
}
static void set_hints(uint64_t taken, uint64_t bytes_out) {
  SB_STORE(&q->shm->taken, taken, SB_RELAXED);
  SB_STORE(&q->shm->bytes_out, bytes_out, SB_RELAXED);
}
static void expect_hints(uint64_t taken, uint64_t bytes_out, const char *what) {
  expect(q->shm->taken == taken, "%s: `taken` is %llu, not %llu", what, (unsigned long long)q->shm->taken,
         (unsigned long long)taken);
  expect(q->shm->bytes_out == bytes_out, "%s: `bytes_out` is %llu", what, (unsigned long long)q->shm->bytes_out);
}

/* ---- cells ---- */

static void what_stands_at_a_position(void) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  begin(FREE);
  expect(sb_intent_find_cell(&w, q->slot, q->base, &r, &leaf, &word), "the cell is not found");
  expect_is(word, word_in(q, 0), "its word");
  expect(r.root == &q->shm->root && leaf.leaf == leaf_in(q, 0).leaf, "its ring or leaf is another one");
  expect(!sb_intent_find_cell(&w, slot, q->base, &r, &leaf, &word), "a message is a queue");
  expect(!sb_intent_find_cell(&w, q->slot, q->base + 64 * 64, &r, &leaf, &word), "a page is found that was never made");
  set_word_in(q, 0, sb_cell_open(SB_CELL_AVAILABLE, slot, 0, leaf_in(q, 0).gen + 1));
  expect(!sb_intent_find_cell(&w, q->slot, q->base, &r, &leaf, &word), "a cell of another page is found");
}

static void held_is_returned(unsigned state, bool tracked) {
  SB_STORE(&q->shm->tracking, tracked, SB_RELAXED);
  SB_STORE(&leaf_in(q, 0).leaf->page.requeued, 0, SB_RELAXED);
  uint64_t gen = leaf_in(q, 0).gen, side = sb_side_word(message, 3, 0);
  set_hints(9, 1000);
  SB_STORE(&cell_in(q, 0)->side, side, SB_RELAXED);
  set_word_in(q, 0, sb_cell_owned(state, slot, 5, d.c->id, gen));
  sb_intent_release_cell(&w, q->slot, q->base);
  expect_is(word_in(q, 0), sb_cell_open(SB_CELL_AVAILABLE, slot, 5, gen), "the word of a cell that was held");
  expect_is(cell_in(q, 0)->side, state == SB_CELL_ACQUIRED ? side | SB_SIDE_REDELIVERED : side, "its side record");
  expect(marked_in(q, 0), "no bit leads to it");
  expect_hints(tracked ? 8 : 9, tracked ? 1000 - BYTES : 1000, "a cell that was held");
  expect(!finished_in(q, 0), "it is finished");
}
static void a_held_cell_is_returned(void) {
  begin(LIMITED);
  held_is_returned(SB_CELL_ACQUIRED, false);
  held_is_returned(SB_CELL_ACQUIRED, true);
  held_is_returned(SB_CELL_REMOVING, false);
  held_is_returned(SB_CELL_REMOVING, true);
}

static void expect_left_alone(uint64_t word, const char *what) {
  sb_leaf_ref leaf = leaf_in(q, 0);
  SB_STORE(&leaf.leaf->page.requeued, 0, SB_RELAXED);
  SB_STORE(&leaf.leaf->finished[0], 0, SB_RELAXED);
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  SB_STORE(&cell_in(q, 0)->side, 5, SB_RELAXED);
  set_hints(9, 1000);
  set_word_in(q, 0, word);
  sb_intent_release_cell(&w, q->slot, q->base);
  expect(word_in(q, 0) == word, "%s: it is another word now", what);
  expect(cell_in(q, 0)->side == 5, "%s: its side record was written", what);
  expect(leaf.leaf->page.requeued == 0 && q->shm->requeued == 0, "%s: it was marked", what);
  expect(!finished_in(q, 0), "%s: it was finished", what);
  expect_hints(9, 1000, what);
}
static void cells_that_are_left_alone(void) {
  begin(LIMITED);
  uint64_t gen = leaf_in(q, 0).gen;
  uint32_t behind = t.b->chunk_limit * SB_CHUNK_UNITS, unmade = behind - SB_CHUNK_UNITS;
  expect_left_alone(sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, BESIDE, gen), "acquired by another connection");
  expect_left_alone(sb_cell_owned(SB_CELL_STAGED, slot, 0, d.c->id, gen), "staged by the dead one");
  expect_left_alone(sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, d.c->id, gen + 1), "of another page");
  expect_left_alone(sb_cell_owned(SB_CELL_ACQUIRED, behind, 0, d.c->id, gen), "with a slot behind the last one");
  expect_left_alone(sb_cell_owned(SB_CELL_ACQUIRED, unmade, 0, d.c->id, gen), "with a slot that was never made");
  expect_left_alone(sb_cell_bare(SB_CELL_FREE, gen), "free");
  expect_left_alone(sb_cell_bare(SB_CELL_CLOSED, gen), "closed");
  w.id = gen & 0xfffu; /* the bits where an owned cell has its owner */
  expect_left_alone(sb_cell_open(SB_CELL_SCHEDULED, slot, 0, gen), "held back");
  expect_left_alone(sb_cell_owned(SB_CELL_STAGED, slot, 0, w.id, gen), "staged");
  sb_intent_release_cell(&w, q->slot, q->base + 64 * 64);
  sb_intent_release_cell(&w, slot, q->base);
  expect_hints(9, 1000, "no cell");
}
/* Its holder may have been killed after its last change of the cell, before what belongs to that. */
static void what_the_holder_had_begun_is_finished(void) {
  begin(LIMITED);
  sb_leaf_ref leaf = leaf_in(q, 0);
  set_hints(9, 1000);
  set_word_in(q, 0, sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen));
  sb_intent_release_cell(&w, q->slot, q->base);
  expect(finished_in(q, 0), "a tombstone is not finished");
  expect(!marked_in(q, 0), "a tombstone is marked");
  uint64_t ready = word_in(q, 1);
  sb_intent_release_cell(&w, q->slot, q->base + 1);
  expect(marked_in(q, 1), "no bit leads to a cell that is ready");
  expect_is(word_in(q, 1), ready, "the word of a cell that is ready");
  expect_hints(9, 1000, "cells that nobody holds");
}

/* The housekeeper looked at the timer of a message that was held when it expired, and looks at it no more. */
static void returned_at(uint64_t word, uint64_t expires_ns, int lost, const char *what) {
  ((sb_message_shm *)sb_slot_at(t.b, slot))->expires_ns = expires_ns;
  SB_STORE(&q->shm->timers_lost, 0, SB_RELAXED);
  set_word_in(q, 0, word);
  sb_intent_release_cell(&w, q->slot, q->base);
  expect(q->shm->timers_lost == lost, "%s: %d timers are lost", what, (int)q->shm->timers_lost);
}
static void an_expired_message_is_returned(void) {
  begin(FREE);
  uint64_t gen = leaf_in(q, 0).gen;
  const uint64_t held = sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, d.c->id, gen),
                 taken = sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, gen),
                 ready = sb_cell_open(SB_CELL_AVAILABLE, slot, 0, gen),
                 beside = sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, BESIDE, gen);
  answer_for_the_system();
  returned_at(held, says.now_ns, 1, "a message that expired while it was held");
  returned_at(taken, says.now_ns, 1, "a message that expired while it was removed");
  returned_at(ready, says.now_ns, 1, "a message that an earlier reaper made ready");
  returned_at(beside, says.now_ns, 0, "a message that another connection holds");
  returned_at(held, says.now_ns + 1, 0, "a message that expires later");
  returned_at(ready, says.now_ns + 1, 0, "a ready message that expires later");
  returned_at(held, 0, 0, "a message that never expires");
}
/* A look of the housekeeper between the two steps would find the message held: the request comes after the flip. */
static int lost_before;
static void note_the_timers(void) { lost_before = SB_LOAD(&q->shm->timers_lost, SB_RELAXED); }
static void a_scan_is_asked_for_after_the_flip(void) {
  begin(FREE);
  set_word_in(q, 0, sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, d.c->id, leaf_in(q, 0).gen));
  ((sb_message_shm *)sb_slot_at(t.b, slot))->expires_ns = 1;
  meanwhile(&cell_in(q, 0)->word, BEFORE_CAS, 1, note_the_timers);
  sb_intent_release_cell(&w, q->slot, q->base);
  if (has_acted()) expect_is(lost_before, 0, "how many timers are lost before the flip");
  expect_is(q->shm->timers_lost, 1, "how many timers are lost");
}

/* ---- intents ---- */

static sb_ledger_shm *l; /* of the dead connection */
static const uint64_t COUNTED = 100;

/* Counter i is COUNTED + i. */
static void begin_intents(sb_settings settings) {
  begin(settings);
  l = q->ledger;
  for (unsigned i = 0; i < SB_COUNTERS; i++) SB_STORE(&l->counters[i], COUNTED + i, SB_RELAXED);
  SB_STORE(&l->target_queue, 0, SB_RELAXED);
}
static void intend(unsigned kind, unsigned counter, uint64_t position, uint64_t what) {
  for (unsigned i = 0; i < SB_COUNTERS; i++) SB_STORE(&l->counters[i], COUNTED + i, SB_RELAXED);
  SB_STORE(&q->shm->timers_lost, 0, SB_RELAXED);
  sb_ledger_begin_intent(l, kind, counter, position, what, message, BYTES);
}
static void judge(void) { sb_intent_resolve(&w, sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), sb_slot_of(t.b, l)); }

/* It happened: these counters were raised, and no others; or it did not, with `none`. And the intent is gone. */
#define NONE SB_COUNTERS
static void expect_counted(unsigned counter, unsigned bytes, unsigned third, const char *what) {
  for (unsigned i = 0; i < SB_COUNTERS; i++) {
    uint64_t raised = i == bytes ? BYTES : i == counter || i == third;
    expect(l->counters[i] == COUNTED + i + raised, "%s: counter %u was raised by %lld, not by %llu", what, i,
           (long long)(l->counters[i] - COUNTED - i), (unsigned long long)raised);
  }
  expect((l->kind & 0xffffu) == 0 && l->kind != 0, "%s: the intent is still there", what);
}
static void expect_timers_lost(int lost, const char *what) {
  expect(q->shm->timers_lost == lost, "%s: %d timers are lost", what, (int)q->shm->timers_lost);
}
static void expect_added(const char *what) { expect_counted(SB_COUNT_ADDED, SB_COUNT_ADDED_BYTES, NONE, what); }
static void expect_none(const char *what) { expect_counted(NONE, NONE, NONE, what); }
static sb_message_shm *message_at(uint32_t at) { return sb_slot_at(t.b, at); }

static void put_intended(uint64_t header, uint64_t position) {
  set_slot_word(slot, header);
  intend(SB_INTENT_ENQUEUE, SB_COUNT_ADDED, position, slot);
  judge();
}
#define PUBLISHED sb_slot_word(SB_SLOT_PUBLISHED, 1, message)
#define TAKEN_BACK sb_slot_word(SB_SLOT_ALLOC, d.c->id, message)

static void a_put_that_happened(void) {
  begin_intents(FREE);
  put_intended(PUBLISHED, q->base);
  expect_added("its cell is there");
  expect_is(slot_word(slot), PUBLISHED, "the header of a message that is there");
  expect_timers_lost(0, "a message without a timer");
  put_intended(sb_slot_word(SB_SLOT_PUBLISHED, 2, message), UINT64_MAX);
  expect_added("its reference was dropped");
  put_intended(sb_slot_word(SB_SLOT_PUBLISHED, 1, message + 1), UINT64_MAX);
  expect_added("its slot has another message");
  put_intended(sb_slot_word(SB_SLOT_ALLOC, d.c->id, message + 1), UINT64_MAX);
  expect_added("its slot was taken again");
  expect_is(slot_word(slot), sb_slot_word(SB_SLOT_ALLOC, d.c->id, message + 1), "the header of another message");
  SB_STORE(&l->target_queue, 1, SB_RELAXED);
  SB_STORE(&l->target_position, COUNTED + SB_COUNT_SCHEDULED, SB_RELAXED);
  put_intended(PUBLISHED, q->base);
  expect_counted(SB_COUNT_ADDED, SB_COUNT_ADDED_BYTES, SB_COUNT_SCHEDULED, "a message that is held back");
}
/* The dead producer may not have noted it in the schedule. */
static void a_put_with_a_timer(void) {
  begin_intents(FREE);
  message_at(slot)->due_ns = 1;
  put_intended(PUBLISHED, q->base);
  expect_added("a message that is due later");
  expect_timers_lost(1, "a message that is due later");
  message_at(slot)->due_ns = 0;
  message_at(slot)->expires_ns = 1;
  put_intended(PUBLISHED, q->base);
  expect_timers_lost(1, "a message that expires");
  put_intended(PUBLISHED, UINT64_MAX);
  expect_timers_lost(0, "a message that was not put");
}
static void put_did_not_happen(uint64_t position, const char *what) {
  put_intended(PUBLISHED, position);
  expect_none(what);
  expect(slot_word(slot) == TAKEN_BACK, "%s: its slot is not the dead connection's again", what);
}
static void a_put_that_did_not_happen(void) {
  begin_intents(FREE);
  uint64_t gen = leaf_in(q, 0).gen, word = word_in(q, 0);
  for (unsigned owner = 2; owner <= 3; owner++) { /* in the bits where a published slot has its references */
    uint64_t taken = sb_slot_word(SB_SLOT_ALLOC, owner, message);
    put_intended(taken, UINT64_MAX);
    expect_none("it was not published");
    if (owner == d.c->id) expect_is(slot_word(slot), taken, "the header of what was not published");
  }
  put_did_not_happen(UINT64_MAX, "it had no position");
  put_did_not_happen(q->base + 2, "the cell is free");
  put_did_not_happen(q->base + 64 * 64, "there is no page");
  put_did_not_happen(q->base + 1, "the cell has another message");
  set_word_in(q, 0, sb_cell_open(SB_CELL_AVAILABLE, slot, 1, gen));
  put_did_not_happen(q->base, "the cell has another reference");
  set_word_in(q, 0, sb_cell_open(SB_CELL_AVAILABLE, slot, 0, gen + 1));
  put_did_not_happen(q->base, "the cell is of another page");
  slot = (uint32_t)(gen & 0xfffffffu); /* the bits where a cell with a message has its slot */
  set_word_in(q, 0, sb_cell_bare(SB_CELL_TOMBSTONE, gen));
  put_did_not_happen(q->base, "the cell has no message");
  set_word_in(q, 0, word);
}

static void settle_intended(uint64_t refs, uint64_t position) {
  set_slot_word(slot, sb_slot_word(SB_SLOT_PUBLISHED, refs, message));
  intend(SB_INTENT_SETTLE, SB_COUNT_ACKED, position, slot | SB_FIELD(3, 32));
  judge();
}
static void expect_acked(const char *what) { expect_counted(SB_COUNT_ACKED, SB_COUNT_REMOVED_BYTES, NONE, what); }
static void a_settlement_that_happened(void) {
  begin_intents(FREE);
  sb_leaf_ref leaf = leaf_in(q, 0);
  const unsigned states[] = {SB_CELL_ACQUIRED, SB_CELL_REMOVING};
  for (unsigned i = 0; i < 2; i++) {
    set_word_in(q, i, sb_cell_owned(states[i], slot, 3, d.c->id, leaf.gen));
    settle_intended(1, q->base + i);
    expect_acked("its reference was dropped");
    expect_is(word_in(q, i), sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen), "the word of its cell");
    expect(finished_in(q, i), "its cell is not finished");
  }
  const uint64_t others[] = {sb_cell_owned(SB_CELL_ACQUIRED, slot, 3, BESIDE, leaf.gen),
                             sb_cell_owned(SB_CELL_STAGED, slot, 3, d.c->id, leaf.gen),
                             sb_cell_owned(SB_CELL_ACQUIRED, slot, 3, d.c->id, leaf.gen + 1)};
  for (unsigned i = 0; i < 3; i++) {
    set_word_in(q, 2, others[i]);
    settle_intended(1, q->base + 2);
    expect_acked("its cell is another one's");
    expect_is(word_in(q, 2), others[i], "the word of another one's cell");
  }
  settle_intended(1, q->base + 64 * 64);
  expect_acked("its page is gone");
}
static void a_settlement_that_did_not_happen(void) {
  begin_intents(FREE);
  uint64_t word = sb_cell_owned(SB_CELL_ACQUIRED, slot, 3, d.c->id, leaf_in(q, 0).gen);
  set_word_in(q, 0, word);
  settle_intended(8, q->base);
  expect_none("its reference is there");
  expect_is(word_in(q, 0), word, "the word of its cell");
}

static void due_intended(uint64_t word) {
  set_word_in(q, 0, word);
  intend(SB_INTENT_DUE, SB_COUNT_UNSCHEDULED, q->base, slot);
  judge();
  expect_is(word_in(q, 0), word, "the word of the cell that is due");
}
static void a_message_that_was_due(void) {
  begin_intents(FREE);
  uint64_t gen = leaf_in(q, 0).gen;
  due_intended(sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, gen));
  expect_counted(SB_COUNT_UNSCHEDULED, NONE, NONE, "the dead connection has its cell");
  due_intended(sb_cell_open(SB_CELL_SCHEDULED, slot, 0, gen));
  expect_none("it is held back");
  due_intended(sb_cell_owned(SB_CELL_REMOVING, slot, 0, BESIDE, gen));
  expect_none("another one has its cell");
  due_intended(sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, d.c->id, gen));
  expect_none("its cell was acquired");
  due_intended(sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, gen + 1));
  expect_none("its page is another one");
}

static void commit_intended(uint64_t word) {
  set_word_in(q, 0, word);
  intend(SB_INTENT_COMMIT, SB_COUNT_ADDED, q->base, slot);
  judge();
  expect_is(word_in(q, 0), word, "the word of a cell of a commit");
}
static void a_message_of_a_commit(void) {
  begin_intents(FREE);
  uint64_t gen = leaf_in(q, 0).gen;
  commit_intended(sb_cell_owned(SB_CELL_STAGED, slot, 0, d.c->id, gen));
  expect_none("it is staged");
  commit_intended(sb_cell_open(SB_CELL_AVAILABLE, slot, 0, gen));
  expect_added("it was made ready");
  expect_timers_lost(0, "a message without a timer");
  message_at(slot)->due_ns = 1;
  commit_intended(sb_cell_open(SB_CELL_SCHEDULED, slot, 0, gen));
  expect_timers_lost(1, "a message that is due later");
  commit_intended(sb_cell_bare(SB_CELL_TOMBSTONE, gen));
  expect_added("it was removed again");
  expect_timers_lost(0, "a message that was removed again");
  commit_intended(sb_cell_open(SB_CELL_AVAILABLE, slot, 0, gen + 1));
  expect_added("its page is another one");
  expect_timers_lost(0, "a message of another page");
  message_at(slot)->due_ns = 0;
  message_at(slot)->expires_ns = 1;
  commit_intended(sb_cell_owned(SB_CELL_STAGED, slot, 0, BESIDE, gen));
  expect_added("another one has staged it");
  expect_timers_lost(1, "a message that expires");
  commit_intended(sb_cell_owned(SB_CELL_STAGED, slot, 0, d.c->id, gen + 1));
  expect_added("another page has a staged one");
  SB_STORE(&l->target_queue, 1, SB_RELAXED);
  SB_STORE(&l->target_position, COUNTED + SB_COUNT_SCHEDULED, SB_RELAXED);
  commit_intended(sb_cell_open(SB_CELL_SCHEDULED, slot, 0, gen));
  expect_counted(SB_COUNT_ADDED, SB_COUNT_ADDED_BYTES, SB_COUNT_SCHEDULED, "a message that is held back");
}

/* ---- moves: of the message of `q` to a queue that keeps sequences ---- */

#define TARGET_REF 4u
#define BOTH (1u | 1u << TARGET_REF)
static sb_queue *to;

static void begin_move(uint32_t flags) {
  begin_intents(LIMITED);
  to = queue_of_dead("to", (sb_settings){{-1, -1, -1, 0, -1, -1}, flags});
  (void)put_by_dead(to, BYTES);
}
static uint64_t target_word(unsigned owner, uint32_t of, unsigned ref, uint64_t gen) {
  return sb_cell_owned(SB_CELL_REMOVING, of, ref, owner, gen);
}
static void move_intended(uint64_t source, uint64_t target, uint64_t target_position) {
  sb_leaf_ref leaf = leaf_in(to, 0);
  set_slot_word(slot, sb_slot_word(SB_SLOT_PUBLISHED, BOTH, message));
  set_word_in(q, 0, source);
  set_word_in(to, 0, target);
  SB_STORE(&cell_in(to, 0)->side, 0, SB_RELAXED);
  sb_word *origin = sb_ring_origin(t.b, &leaf, to->base);
  if (origin != NULL) SB_STORE(origin, SB_NO_ORIGIN, SB_RELAXED);
  SB_STORE(&to->shm->timers_lost, 0, SB_RELAXED);
  SB_STORE(&to->ledger->counters[SB_COUNT_ADDED], 7, SB_RELAXED);
  SB_STORE(&to->ledger->counters[SB_COUNT_ADDED_BYTES], 8, SB_RELAXED);
  SB_STORE(&l->target_queue, to->slot, SB_RELAXED);
  SB_STORE(&l->target_position, target_position, SB_RELAXED);
  SB_STORE(&l->target_ledger, sb_slot_of(t.b, to->ledger), SB_RELAXED);
  SB_STORE(&l->target_before, 7, SB_RELAXED);
  SB_STORE(&l->target_before_bytes, 8, SB_RELAXED);
  intend(SB_INTENT_MOVE, SB_COUNT_MOVED, q->base, slot | SB_FIELD(TARGET_REF, 40));
}
static uint64_t refs(void) { return sb_slot_refs(slot_word(slot)); }
static void expect_moved(bool accounted, uint64_t origin, const char *what) {
  sb_leaf_ref leaf = leaf_in(to, 0);
  expect_counted(SB_COUNT_MOVED, SB_COUNT_REMOVED_BYTES, NONE, what);
  expect(refs() == 1u << TARGET_REF, "%s: the references are %llx", what, (unsigned long long)refs());
  expect(word_in(to, 0) == sb_cell_open(SB_CELL_AVAILABLE, slot, TARGET_REF, leaf.gen), "%s: it is not ready", what);
  expect(cell_in(to, 0)->side == sb_side_word(message, 0, SB_SIDE_REDELIVERED), "%s: its side record is wrong", what);
  expect(marked_in(to, 0), "%s: no bit leads to it", what);
  const sb_word *at = sb_ring_origin(t.b, &leaf, to->base);
  uint64_t is = at != NULL ? SB_LOAD(at, SB_RELAXED) : SB_NO_ORIGIN;
  expect(is == origin, "%s: its origin is %llu, not %llu", what, (unsigned long long)is, (unsigned long long)origin);
  expect(to->ledger->counters[SB_COUNT_ADDED] == 7u + accounted, "%s: it was not counted where it went", what);
  expect(to->ledger->counters[SB_COUNT_ADDED_BYTES] == 8u + accounted * BYTES, "%s: its bytes are wrong", what);
}
static void a_move_that_happened(void) {
  begin_move(SB_QUEUE_KEEPS);
  uint64_t gen = leaf_in(q, 0).gen, source = sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, gen);
  uint64_t target = target_word(d.c->id, slot, TARGET_REF, leaf_in(to, 0).gen);
  move_intended(source, target, to->base);
  judge();
  expect_moved(true, 0, "both cells are there");
  expect_is(word_in(q, 0), sb_cell_bare(SB_CELL_TOMBSTONE, gen), "the word of the source");
  expect(finished_in(q, 0), "the source is not finished");
  expect_is(to->shm->timers_lost, 0, "the timers that are lost");
  message_at(slot)->expires_ns = 1;
  move_intended(source, target, to->base);
  SB_STORE(&l->target_ledger, 0, SB_RELAXED);
  judge();
  expect_moved(false, 0, "the target has no account");
  expect_is(to->shm->timers_lost, 1, "the timers that are lost of a message that expires");
  message_at(slot)->expires_ns = UINT64_MAX;
  move_intended(source, target, to->base);
  judge();
  expect_is(to->shm->timers_lost, 2, "the timers that are lost of a message that expires later");
  const uint64_t gone[] = {sb_cell_bare(SB_CELL_TOMBSTONE, gen), sb_cell_owned(SB_CELL_REMOVING, slot, 0, BESIDE, gen),
                           sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, gen + 1)};
  for (unsigned i = 0; i < 3; i++) {
    move_intended(gone[i], target, to->base);
    judge();
    expect_moved(true, SB_NO_ORIGIN, "the source is gone");
    expect_is(word_in(q, 0), gone[i], "the word of the source that is gone");
  }
}
/* How often it was delivered stays as it was: the mover wrote that in the target's side record, or had it in the source's. */
static void what_a_moved_message_was(void) {
  begin_move(SB_QUEUE_KEEPS);
  uint64_t gen = leaf_in(q, 0).gen, source = sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, gen);
  uint64_t target = target_word(d.c->id, slot, TARGET_REF, leaf_in(to, 0).gen);
  const uint64_t gone = sb_cell_bare(SB_CELL_TOMBSTONE, gen), never = sb_side_word(message, 0, 0),
                 often = sb_side_word(message, 3, SB_SIDE_REDELIVERED),
                 unknown = sb_side_word(message, 0, SB_SIDE_REDELIVERED), another = sb_side_word(message + 1, 7, 0);
  const struct {
    uint64_t source, of_source, of_target, should;
  } k[] = {{source, often, never, never},      {source, never, often, often},   {gone, another, never, never},
           {gone, another, often, often},      {source, never, another, never}, {source, often, 0, often},
           {source, another, another, unknown}};
  for (unsigned i = 0; i < sizeof k / sizeof k[0]; i++) {
    move_intended(k[i].source, target, to->base);
    SB_STORE(&cell_in(q, 0)->side, k[i].of_source, SB_RELAXED);
    SB_STORE(&cell_in(to, 0)->side, k[i].of_target, SB_RELAXED);
    judge();
    expect(cell_in(to, 0)->side == k[i].should, "%u: the side record is %llx, not %llx", i,
           (unsigned long long)cell_in(to, 0)->side, (unsigned long long)k[i].should);
  }
}
static void a_move_to_a_queue_that_keeps_nothing(void) {
  begin_move(0);
  uint64_t source = sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, leaf_in(q, 0).gen);
  move_intended(source, target_word(d.c->id, slot, TARGET_REF, leaf_in(to, 0).gen), to->base);
  judge();
  expect_moved(true, SB_NO_ORIGIN, "its pages have no origins");
}
static void a_move_that_did_not_happen(void) {
  begin_move(SB_QUEUE_KEEPS);
  uint64_t gen = leaf_in(to, 0).gen, source = sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, leaf_in(q, 0).gen);
  const uint64_t targets[] = {target_word(BESIDE, slot, TARGET_REF, gen),
                              target_word(d.c->id, slot + 1, TARGET_REF, gen),
                              target_word(d.c->id, slot, TARGET_REF + 1, gen),
                              target_word(d.c->id, slot, TARGET_REF, gen + 1),
                              sb_cell_owned(SB_CELL_ACQUIRED, slot, TARGET_REF, d.c->id, gen),
                              target_word(d.c->id, slot, TARGET_REF, gen)};
  for (unsigned i = 0; i < 6; i++) {
    move_intended(source, targets[i], i < 5 ? to->base : UINT64_MAX);
    judge();
    expect_none("the target is not there");
    expect_is(refs(), 1, "the references when it did not happen");
    expect_is(word_in(q, 0), source, "the word of the source");
    expect_is(word_in(to, 0), targets[i], "the word of the target");
  }
  move_intended(sb_cell_bare(SB_CELL_TOMBSTONE, leaf_in(q, 0).gen), targets[0], to->base);
  judge(); /* an earlier reaper released the target, and another connection has it */
  expect_none("the source is gone, too");
  expect_is(refs(), BOTH, "the references when an earlier reaper did it");
  message_at(slot)->expires_ns = 1; /* ... or nobody has it: the reaper was killed before its last steps */
  move_intended(sb_cell_bare(SB_CELL_TOMBSTONE, leaf_in(q, 0).gen),
                sb_cell_open(SB_CELL_AVAILABLE, slot, TARGET_REF, gen), to->base);
  SB_STORE(&leaf_in(to, 0).leaf->page.requeued, 0, SB_RELAXED);
  judge();
  expect_none("an earlier reaper released the target");
  expect(marked_in(to, 0), "no bit leads to a target that an earlier reaper released");
  expect_is(to->shm->timers_lost, 1, "the timers that are lost of a message that has expired");
}

/* ---- which intents ---- */

static void intents_of_nothing(void) {
  begin_intents(FREE);
  uint32_t behind = t.b->chunk_limit * SB_CHUNK_UNITS;
  const uint32_t bad[] = {behind, behind - SB_CHUNK_UNITS};
  for (unsigned i = 0; i < 2; i++) {
    intend(SB_INTENT_SETTLE, SB_COUNT_ACKED, q->base, bad[i]);
    uint64_t kind = l->kind;
    judge();
    expect_is(l->kind, kind, "the intent of a slot that lies nowhere");
    expect_is(l->counters[SB_COUNT_ACKED], COUNTED + SB_COUNT_ACKED, "its counter");
  }
  sb_ledger_end_intent(l);
  uint64_t kind = l->kind;
  judge();
  expect_is(l->kind, kind, "no intent");
  intend(77, SB_COUNT_ACKED, q->base, slot);
  judge();
  expect_none("an intent of no kind");
  kind = SB_FIELD(SB_COUNT_ACKED, 8) | SB_FIELD(7, 16);
  SB_STORE(&l->kind, kind, SB_RELAXED);
  judge();
  expect_is(l->kind, kind, "no intent, with a counter that damage left");
}
static void whose_ledger_it_is(void) {
  begin_intents(FREE);
  uint64_t what = sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), where = sb_slot_of(t.b, l);
  expect(sb_intent_ledger(&w, what, where) == l, "the ledger of the dead connection is none");
  expect(sb_intent_ledger(&w, sb_holding_what(SB_HOLD_SLOT, q->slot, 0), where) == NULL, "a slot is a ledger");
  expect(sb_intent_ledger(&w, what, where + (UINT64_C(1) << 32)) == NULL, "no slot is a ledger");
  expect(sb_intent_ledger(&w, what, slot) == NULL, "a message is a ledger");
  w.id = BESIDE;
  expect(sb_intent_ledger(&w, what, where) == NULL, "the ledger is of another connection");
  intend(SB_INTENT_DUE, SB_COUNT_UNSCHEDULED, q->base, slot);
  uint64_t kind = l->kind;
  judge();
  expect_is(l->kind, kind, "the intent of another connection");
}

static const test_case CASES[] = {
    {"intent: find", "the reaper finds the cell at a position of a queue", what_stands_at_a_position},
    {"intent: held", "the reaper makes a cell ready that the dead connection held", a_held_cell_is_returned},
    {"intent: expired", "the reaper asks for a scan when it returns an expired message",
     an_expired_message_is_returned},
    {"intent: asked after", "the reaper asks for a scan after it made the message ready",
     a_scan_is_asked_for_after_the_flip},
    {"intent: others", "the reaper changes no cell of another connection or page", cells_that_are_left_alone},
    {"intent: begun", "the reaper marks ready cells and finishes tombstones", what_the_holder_had_begun_is_finished},
    {"intent: put", "the reaper counts a put whose message was delivered", a_put_that_happened},
    {"intent: put, timer", "the reaper asks for a scan when a put had a timer", a_put_with_a_timer},
    {"intent: no put", "the reaper takes back a message that has no cell", a_put_that_did_not_happen},
    {"intent: settled", "the reaper counts a settlement whose reference was dropped", a_settlement_that_happened},
    {"intent: not settled", "the reaper leaves a cell whose reference is there", a_settlement_that_did_not_happen},
    {"intent: due", "the reaper counts a due message whose cell the dead connection took", a_message_that_was_due},
    {"intent: commit", "the reaper counts a message that is not staged any more", a_message_of_a_commit},
    {"intent: moved", "the reaper completes a move whose target was linked", a_move_that_happened},
    {"intent: moved, counted", "the reaper of a move keeps how often the message was delivered",
     what_a_moved_message_was},
    {"intent: plain move", "the reaper writes an origin only where the page has one",
     a_move_to_a_queue_that_keeps_nothing},
    {"intent: not moved", "the reaper drops the second reference of a move without a target",
     a_move_that_did_not_happen},
    {"intent: nothing", "the reaper judges intents of known kinds and slots only", intents_of_nothing},
    {"intent: whose", "the reaper judges ledgers of the dead connection only", whose_ledger_it_is},
};
SUBJECT(CASES)
