// SPDX-License-Identifier: Apache-2.0
/* sb_transaction: the steps of a commit, one by one, and what a reaper does after each. The reaper is another
 * connection of this process. The case runs the commit, and stops it between two steps. */
#include "sb_transaction.h"

#include "meanwhile.h"
#include "staging.h"

/* ---- by its owner ---- */

static void a_body_is_staged(void) {
  begin_commit(2, UNLIMITED, &NONE);
  expect_is(sb_holding_kind(sb_holding_at(t.b, bodies[0].token)->what), SB_HOLD_SLOT, "the holding before");
  stage_all();
  expect_is(sb_holding_at(t.b, bodies[0].token)->what,
            sb_holding_what(SB_HOLD_PUBLICATION, bodies[0].slot, bodies[0].gen), "the holding of the body");
  for (unsigned i = 0; i < 2; i++) {
    expect_is(staged_state(i), SB_CELL_STAGED, "the state of the cell");
    expect_is(cells[i].position, target[i]->base + 1, "its position");
    expect_is(target[i]->lanes[0].tail_cursor, cells[i].position + 1, "where the next put looks first");
    expect_is(sb_holding_at(t.b, cells[i].token)->what,
              sb_holding_what(SB_HOLD_STAGED, target[i]->slot, cells[i].leaf.slot), "the holding of the cell");
    expect_is(sb_holding_at(t.b, cells[i].token)->where, cells[i].position, "where it is");
    expect_is(target[i]->shm->staged, 1, "whether commits put messages there");
  }
  expect_is(bodies[0].references, 3, "the references");
  note_order(&t.c->shm->commit);
  sb_transaction_decide(&plan);
  if (has_steps()) expect_is(noted_order(), SB_SEQ_CST, "the order of the store that decides");
  expect_is(t.c->shm->commit, 1, "the word of the commit");
  expect_is(body_header(0), sb_slot_word(SB_SLOT_PUBLISHED, 3, bodies[0].gen), "the header");
  expect(sb_transaction_is_decided(t.c->shm), "it is not decided");
  sb_transaction_carry_out(&plan);
  expect(!sb_transaction_is_decided(t.c->shm), "it is decided still");
  for (unsigned i = 0; i < 2; i++) expect_is(added_to(i), 2, "the number of messages");
  expect_rest("a commit");
}
static void a_commit_is_undone(sb_settings settings, const sb_put_options *o) {
  begin_commit(3, settings, o);
  stage_all();
  for (unsigned i = 0; i < 3; i++) hold_for(i, i, SB_ACK);
  finish[0] = (sb_transaction_end){target[0], settling[0].token, SB_REASON_ACKED};
  plan.end_count = 1;
  expect_is(sb_transaction_mark(&plan), SB_OK, "the status of a mark");
  expect_is(sb_holding_kind(sb_holding_at(t.b, settling[0].token)->what), SB_HOLD_SETTLING, "the mark");
  sb_transaction_undo(&plan);
  expect_is(sb_holding_kind(sb_holding_at(t.b, settling[0].token)->what), SB_HOLD_CELL, "the mark, when it is undone");
  for (unsigned i = 0; i < 3; i++) {
    expect(cells[i].token == SB_TRANSACTION_NO_TOKEN && !cells[i].admitted, "cell %u is staged still", i);
    expect(staged_state(i) == SB_CELL_TOMBSTONE, "cell %u is in state %u", i, staged_state(i));
    expect_is(sb_queue_settle(target[i], (const char *)&settling[i].token, SB_REQUEUE), SB_OK,
              "the status of a requeue");
    expect_is(added_to(i), 1, "the number of messages");
    expect_is(sb_queue_length(target[i]), 1, "the number ready");
  }
  expect_is(bodies[0].token, SB_TRANSACTION_NO_TOKEN, "the holding of the body");
  expect_is(sb_slot_state(body_header(0)), SB_SLOT_FREE, "its slot");
  expect_rest("a commit that was undone");
}
static void undone_freely(void) { a_commit_is_undone(UNLIMITED, &NONE); }
static void undone_with_limits(void) { a_commit_is_undone((sb_settings){{-1, 9, 999, 0, -1, -1}, 0}, &NONE); }
static void undone_in_rings(void) { a_commit_is_undone((sb_settings){{9, -1, -1, 0, -1, -1}, 0}, &NONE); }
static void undone_with_timers(void) { a_commit_is_undone((sb_settings){{-1, 9, 999, 0, -1, -1}, 0}, &LATE); }

/* ---- by a reaper ---- */

static void rolled_back(sb_settings settings, const sb_put_options *o) {
  begin_commit(2, settings, o);
  int64_t before = taken_in(0);
  stage_all();
  each_holding(sb_transaction_roll_back);
  each_holding(sb_transaction_free_body);
  bool tracked = settings.values[SB_SETTING_RING_SIZE] >= 0 || settings.values[SB_SETTING_MAX_LENGTH] >= 0;
  for (unsigned i = 0; i < 2; i++) {
    expect_is(staged_state(i), SB_CELL_TOMBSTONE, "the state of the cell");
    expect_is(taken_in(i), before + tracked, "how many positions count as taken");
    expect_is(target[i]->shm->bytes_out, tracked ? BYTES : 0, "how many bytes count as taken");
    expect_is(added_to(i), 1, "the number of messages");
  }
  expect_is(sb_slot_state(body_header(0)), SB_SLOT_FREE, "the slot of the body");
  each_holding(sb_transaction_roll_back); /* a reaper that died is followed by another one */
  each_holding(sb_transaction_free_body);
  expect_is(taken_in(0), before + tracked, "how many count as taken, after it was done twice");
}
static void rolled_back_freely(void) { rolled_back(UNLIMITED, &NONE); }
static void rolled_back_with_limits(void) { rolled_back((sb_settings){{-1, 9, 999, 0, -1, -1}, 0}, &NONE); }
static void rolled_back_in_rings(void) { rolled_back((sb_settings){{9, -1, -1, 0, -1, -1}, 0}, &NONE); }
static void rolled_back_with_timers(void) { rolled_back((sb_settings){{-1, 9, 999, 0, -1, -1}, 0}, &LATE); }

static void rolled_forward(sb_settings settings, const sb_put_options *o) {
  begin_commit(2, settings, o);
  int64_t before = taken_in(0);
  hold_for(1, 0, SB_ACK);
  finish[0] = (sb_transaction_end){target[1], settling[0].token, SB_REASON_ACKED};
  plan.end_count = 1;
  stage_all();
  expect_is(sb_transaction_mark(&plan), SB_OK, "the status of a mark");
  sb_transaction_decide(&plan);
  bool held = o->delay_ns != 0,
       tracked = settings.values[SB_SETTING_RING_SIZE] >= 0 || settings.values[SB_SETTING_MAX_LENGTH] >= 0;
  bool timer = held || o->ttl_ns != 0;
  uint64_t entries = target[0]->shm->schedule.tail;
  for (int twice = 0; twice < 2; twice++) { /* a reaper that died is followed by another one */
    each_holding(sb_transaction_roll_forward);
    for (unsigned i = 0; i < 2; i++) {
      expect_is(staged_state(i), held ? SB_CELL_SCHEDULED : SB_CELL_AVAILABLE, "the state of the cell");
      expect_is(added_to(i), 2, "the number of messages");
      expect_is(counted(target[i], SB_COUNT_ADDED_BYTES), 2 * BYTES, "the number of bytes");
      expect_is(counted(target[i], SB_COUNT_SCHEDULED), held, "the number of messages that are not due");
      expect_is(target[i]->shm->schedule.tail != entries, timer, "whether it is in the schedule");
      expect_is(target[i]->ledger->kind & 0xff, SB_INTENT_NONE, "the intent");
    }
    expect_is(taken_in(0), before + (tracked && held), "how many positions count as taken");
    expect_is(counted(target[1], DONE), 1, "the number acknowledged");
    expect_is(counted(target[1], SB_COUNT_REMOVED_BYTES), BYTES, "the number of bytes that went");
  }
}
static void rolled_forward_freely(void) { rolled_forward(UNLIMITED, &NONE); }
static void rolled_forward_with_limits(void) { rolled_forward((sb_settings){{-1, 9, 999, 0, -1, -1}, 0}, &NONE); }
static void rolled_forward_in_rings(void) { rolled_forward((sb_settings){{9, -1, -1, 0, -1, -1}, 0}, &NONE); }
static void rolled_forward_with_timers(void) { rolled_forward((sb_settings){{-1, 9, 999, 0, -1, -1}, 0}, &LATE); }

static void rolled_forward_with_expiry(void) { rolled_forward(UNLIMITED, &EXPIRING); }
static void rolled_forward_late(void) { rolled_forward(UNLIMITED, &LATE); }
static void rolled_forward_while_evicting(void) { rolled_forward(EVICTING, &NONE); }

/* What is another one's by now, or leads nowhere, is left alone. */
static void what_a_reaper_leaves_alone(void) {
  begin_commit(1, UNLIMITED, &NONE);
  stage_all();
  uint64_t word = SB_LOAD(staged_word(0), SB_RELAXED), what = sb_holding_at(t.b, cells[0].token)->what;
  const uint64_t nowhere = BROKER_CHUNKS * SB_CHUNK_UNITS, unmapped = nowhere - SB_CHUNK_UNITS;
  const uint64_t words[] = {word ^ SB_FIELD(1, 37), word ^ SB_FIELD(1, 49),
                            (word & ~SB_FIELD((1u << 28) - 1, 4)) | SB_FIELD(nowhere, 4),
                            (word & ~SB_FIELD((1u << 28) - 1, 4)) | SB_FIELD(unmapped, 4)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    SB_STORE(staged_word(0), words[i], SB_RELAXED);
    sb_transaction_roll_back(&walk, what, cells[0].position);
    expect_is(SB_LOAD(staged_word(0), SB_RELAXED), words[i], "a cell that is rolled back");
    sb_transaction_roll_forward(&walk, what, cells[0].position);
    expect_is(SB_LOAD(staged_word(0), SB_RELAXED), words[i], "a cell that is rolled forward");
  }
  SB_STORE(staged_word(0), word, SB_RELAXED);
  sb_transaction_roll_back(&walk, what, UINT64_MAX);
  sb_transaction_roll_forward(&walk, what, UINT64_MAX);
  sb_transaction_roll_back(&walk, sb_holding_what(SB_HOLD_VIEW, target[0]->slot, 0), cells[0].position);
  sb_transaction_roll_forward(&walk, sb_holding_what(SB_HOLD_VIEW, target[0]->slot, 0), cells[0].position);
  expect_is(SB_LOAD(staged_word(0), SB_RELAXED), word, "a cell that no holding names");
  uint64_t header = body_header(0);
  sb_transaction_free_body(&walk, sb_holding_what(SB_HOLD_SLOT, bodies[0].slot, bodies[0].gen), 0);
  sb_transaction_free_body(&walk, sb_holding_what(SB_HOLD_PUBLICATION, bodies[0].slot, bodies[0].gen + 1), 0);
  sb_transaction_free_body(&walk, sb_holding_what(SB_HOLD_PUBLICATION, (uint32_t)nowhere, bodies[0].gen), 0);
  sb_transaction_free_body(&walk, sb_holding_what(SB_HOLD_PUBLICATION, (uint32_t)unmapped, bodies[0].gen), 0);
  walk.id++;
  sb_transaction_free_body(&walk, sb_holding_what(SB_HOLD_PUBLICATION, bodies[0].slot, bodies[0].gen), 0);
  expect_is(body_header(0), header, "the header of a body that is another one's");
  SB_STORE(sb_slot_header(t.b, bodies[0].slot), sb_slot_word(SB_SLOT_FREE, 0, bodies[0].gen), SB_RELAXED);
  sb_transaction_free_body(&walk, sb_holding_what(SB_HOLD_PUBLICATION, bodies[0].slot, bodies[0].gen), 0);
  expect_is(body_header(0), sb_slot_word(SB_SLOT_FREE, 0, bodies[0].gen), "a header that is free");
}

/* What the intent of a flip and of a settlement said stays in the ledger. */
static void the_intents_of_a_reaper(void) {
  begin_commit(1, UNLIMITED, &LATE);
  sb_ledger_shm *l = target[0]->ledger;
  stage_all();
  sb_transaction_decide(&plan);
  uint64_t raised = l->kind >> 16;
  SB_STORE(&l->target_position, 99, SB_RELAXED);
  each_holding(sb_transaction_roll_forward);
  expect_is(l->kind, SB_FIELD(raised + 1, 16), "how often there was an intent");
  expect_is(l->position, cells[0].position, "the position of the flip");
  expect_is(l->slot, bodies[0].slot, "its slot");
  expect_is(l->gen, bodies[0].gen, "its generation");
  expect_is(l->target_queue, 1, "whether it is not due");
  expect_is(l->target_position, 0, "how many were not due before");
  hold_for(0, 0, SB_ACK);
  sb_taken taken;
  sb_leaf_ref leaf;
  expect(sb_settle_find(t.c, settling[0].token, &taken, &leaf), "nothing is held");
  uint64_t what = sb_holding_what(SB_HOLD_SETTLING, target[0]->slot, (uint64_t)leaf.slot | SB_FIELD(DONE, 28));
  sb_word *word = &sb_leaf_cell(&leaf, taken.position)->word;
  uint64_t was = SB_LOAD(word, SB_RELAXED);
  raised = l->kind >> 16;
  const uint64_t slots = SB_FIELD((1u << 28) - 1, 4);
  const uint64_t words[] = {was ^ SB_FIELD(1, 37), was ^ SB_CELL_ACQUIRED ^ SB_CELL_REMOVING ^ SB_FIELD(1, 37),
                            (was & ~slots) | SB_FIELD((BROKER_CHUNKS - 1) * SB_CHUNK_UNITS, 4)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    SB_STORE(word, words[i], SB_RELAXED);
    sb_transaction_roll_forward(&walk, what, taken.position);
    expect_is(SB_LOAD(word, SB_RELAXED), words[i], "a cell that is not settled");
    expect_is(l->kind, SB_FIELD(raised, 16), "how often there was an intent, when nothing is settled");
  }
  SB_STORE(word, was, SB_RELAXED);
  sb_transaction_roll_forward(&walk, what, taken.position);
  expect_is(l->kind, SB_FIELD(raised + 1, 16), "how often there was an intent, when it is settled");
  expect_is(l->position, taken.position, "the position of the settlement");
  expect_is(l->slot, taken.slot, "its slot");
  expect_is(l->gen, taken.gen, "its generation");
}
static void marks_that_are_refused(void) {
  begin_commit(2, UNLIMITED, &NONE);
  hold_for(0, 0, SB_ACK);
  plan.end_count = 1;
  finish[0] = (sb_transaction_end){target[1], settling[0].token, SB_REASON_ACKED};
  expect_is(sb_transaction_mark(&plan), SB_SETTLED, "the status of a message of another queue");
  finish[0] = (sb_transaction_end){target[0], bodies[0].token, SB_REASON_ACKED};
  expect_is(sb_transaction_mark(&plan), SB_SETTLED, "the status of what is no message");
  expect_is(plan.marked, 0, "how many were marked");
  finish[0] = (sb_transaction_end){target[0], settling[0].token, SB_REASON_ACKED};
  sb_word *word = staged_cell(0, 0);
  SB_STORE(word, SB_LOAD(word, SB_RELAXED) ^ SB_FIELD(1, 37), SB_RELAXED);
  expect_is(sb_transaction_mark(&plan), SB_SETTLED, "the status of a message that another connection took");
  expect_is(plan.marked, 0, "how many were marked");
}
static void no_holding_for_a_cell(void) {
  uint32_t failed = 99;
  uint64_t token;
  begin_commit(2, UNLIMITED, &NONE);
  leave_chunks(0);
  take_slots(sb_class_of_kind(t.b, SB_KIND_HOLDINGS));
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  cells[0].token = 77;
  expect_is(sb_transaction_stage(&plan, &failed), SB_NO_MEMORY, "the status");
  expect_is(failed, 0, "which cell failed");
  expect_is(cells[0].token, SB_TRANSACTION_NO_TOKEN, "its holding");
}

static const test_case CASES[] = {
    {"transaction: forward, expiry", "a message that expires is in the schedule", rolled_forward_with_expiry},
    {"transaction: forward, late", "without limits a message that is not due is not counted as taken",
     rolled_forward_late},
    {"transaction: forward, evicting", "without limits the reaper counts nothing as taken",
     rolled_forward_while_evicting},
    {"transaction: intents", "a reaper announces each flip and each settlement", the_intents_of_a_reaper},
    {"transaction: no mark", "only a message of that queue is marked", marks_that_are_refused},
    {"transaction: no holding", "without a holding no cell is staged", no_holding_for_a_cell},
    {"transaction: steps", "each step of a commit leaves what the next one needs", a_body_is_staged},
    {"transaction: undone", "a commit that is undone leaves nothing", undone_freely},
    {"transaction: undone, limits", "nor does it in queues with limits", undone_with_limits},
    {"transaction: undone, rings", "nor in rings", undone_in_rings},
    {"transaction: undone, timers", "nor with a message that is not due", undone_with_timers},
    {"transaction: back", "a reaper rolls back what was not decided", rolled_back_freely},
    {"transaction: back, limits", "also in queues with limits", rolled_back_with_limits},
    {"transaction: back, rings", "and in rings", rolled_back_in_rings},
    {"transaction: back, timers", "and messages that are not due", rolled_back_with_timers},
    {"transaction: forward", "a reaper carries out what was decided, once", rolled_forward_freely},
    {"transaction: forward, limits", "also in queues with limits", rolled_forward_with_limits},
    {"transaction: forward, rings", "and in rings", rolled_forward_in_rings},
    {"transaction: forward, timers", "and messages that are not due", rolled_forward_with_timers},
    {"transaction: alone", "a reaper leaves alone what is another one's", what_a_reaper_leaves_alone},
};
SUBJECT(CASES)
