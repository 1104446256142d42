// SPDX-License-Identifier: Apache-2.0
/* sb_transaction: cells that cannot be staged, and cells that changed before the commit, or the reaper, returned to
 * them. */
#include "sb_transaction.h"

#include "meanwhile.h"
#include "staging.h"

/* ---- cells that cannot be staged ---- */

static sb_status stage_now(void) {
  uint32_t failed = 99;
  sb_status status = sb_transaction_stage(&plan, &failed);
  expect_is(failed, status == SB_OK ? 99 : 0, "which cell failed");
  return status;
}

static void expect_announced(void) {
  const sb_holding_shm *h = sb_holding_at(t.b, cells[0].token);
  expect_is(h->what, sb_holding_what(SB_HOLD_STAGED, target[0]->slot, 0), "the holding before a cell is tried");
  expect_is(h->where, UINT64_MAX, "its position before a cell is tried");
}
static void a_cell_is_announced(sb_settings settings, bool tracked) {
  begin_commit(1, settings, &NONE);
  uint64_t tail = target[0]->shm->tail;
  cells[0].position = target[0]->base + 9; /* the planner need not set it */
  meanwhile(staged_cell(0, 1), BEFORE_LOAD, 1, expect_announced);
  stage_all();
  if (has_steps()) expect(has_acted(), "no cell was tried");
  expect_is(cells[0].position, target[0]->base + 1, "the position");
  expect_is(target[0]->shm->tail, tracked ? target[0]->base + 2 : tail, "the hint of the tail");
}
static void announced_freely(void) { a_cell_is_announced(UNLIMITED, false); }
static void announced_with_limits(void) { a_cell_is_announced(LIMITED, true); }

static void a_closed_queue_gets_nothing(sb_settings settings, const sb_put_options *o, bool tracked) {
  begin_commit(1, settings, o);
  const sb_queue_shm *q = target[0]->shm;
  int64_t taken = taken_in(0), bytes_out = (int64_t)q->bytes_out;
  uint64_t admitted = q->admitted, bytes_in = q->bytes_in;
  set_bare(1, SB_CELL_CLOSED, 0);
  expect_is(stage_now(), SB_OK, "the status");
  expect_is(cells[0].token, SB_TRANSACTION_NO_TOKEN, "the holding of the cell");
  expect(!cells[0].admitted, "the cell has a place still");
  expect(!sb_queue_is_open(target[0]), "the queue is open");
  expect_is(taken_in(0), taken, "how many positions count as taken");
  expect_is((int64_t)q->bytes_out, bytes_out, "how many bytes count as taken");
  expect_is(q->admitted, admitted - tracked, "how many are admitted");
  expect_is(q->bytes_in, bytes_in - (tracked ? BYTES : 0), "how many bytes are admitted");
  expect_is(bodies[0].references, 0, "the references");
}
static void closed_freely(void) { a_closed_queue_gets_nothing(UNLIMITED, &NONE, false); }
static void closed_while_evicting(void) { a_closed_queue_gets_nothing(EVICTING, &NONE, false); }
static void closed_with_limits(void) { a_closed_queue_gets_nothing(LIMITED, &NONE, true); }
static void closed_with_timers(void) { a_closed_queue_gets_nothing(LIMITED, &LATE, true); }

static void a_deletion_that_is_refused(void) {
  begin_commit(1, UNLIMITED, &NONE);
  set_bare(1, SB_CELL_CLOSING, SB_CLOSING_IF_EMPTY);
  expect_is(stage_now(), SB_OK, "the status");
  expect_is(sb_cell_state(SB_LOAD(staged_cell(0, 1), SB_RELAXED)), SB_CELL_TOMBSTONE, "the cell of the deletion");
  expect_is(cells[0].position, target[0]->base + 2, "the position of the message");
  expect_is(staged_state(0), SB_CELL_STAGED, "its state");
  expect(sb_queue_is_open(target[0]), "the queue is closed");
}
/* The leaf that the connection knows of says CLOSED; the root does not lead there. */
static void a_closed_cell_without_a_way(void) {
  begin_commit(1, UNLIMITED, &NONE);
  set_bare(1, SB_CELL_CLOSED, 0);
  SB_STORE(&target[0]->shm->root, SB_LINK_DONE, SB_RELAXED);
  expect_is(stage_now(), SB_CORRUPT, "the status");
  expect(sb_queue_is_open(target[0]), "the queue is closed");
}
static uint64_t root_before;
static void the_way_is_there_again(void) { SB_STORE(&target[0]->shm->root, root_before, SB_RELAXED); }
static void a_way_that_comes_too_late(void) {
  if (!has_steps()) return;
  begin_commit(1, UNLIMITED, &NONE);
  set_bare(1, SB_CELL_CLOSING, SB_CLOSING_IF_EMPTY);
  root_before = target[0]->shm->root;
  SB_STORE(&target[0]->shm->root, SB_LINK_DONE, SB_RELAXED);
  meanwhile(&target[0]->shm->root, AFTER_LOAD, 2, the_way_is_there_again);
  expect_is(stage_now(), SB_CORRUPT, "the status");
  expect(has_acted(), "the root was not read twice");
}
/* The deletion of a queue that was closed otherwise is refused: the commit does not go on behind it. */
static void a_refusal_in_a_closed_queue(void) {
  begin_commit(1, UNLIMITED, &NONE);
  mark_closed(target[0]);
  set_bare(1, SB_CELL_CLOSING, SB_CLOSING_IF_EMPTY);
  expect_is(stage_now(), SB_OK, "the status");
  expect_is(cells[0].token, SB_TRANSACTION_NO_TOKEN, "the holding of the cell");
  expect_is(sb_cell_state(SB_LOAD(staged_cell(0, 2), SB_RELAXED)), SB_CELL_FREE, "the cell behind the deletion");
}
/* The leaf that the connection knows of is not the one of the queue. Its cell is free again after the last try. */
static sb_leaf_shm forged;
static void the_cell_is_free(void) {
  const sb_leaf_ref *known = &target[0]->lanes[0].tail_leaf;
  SB_STORE(&sb_leaf_cell(known, target[0]->base + 1)->word, sb_cell_bare(SB_CELL_FREE, known->gen), SB_RELAXED);
}
static void a_leaf_that_stays_closed(void) {
  if (!has_steps()) return;
  begin_commit(1, UNLIMITED, &NONE);
  sb_leaf_ref *known = &target[0]->lanes[0].tail_leaf;
  *known = staged_leaf(0, 1);
  known->leaf = &forged;
  sb_word *word = &sb_leaf_cell(known, target[0]->base + 1)->word;
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    SB_STORE(&forged.cells[i].word, sb_cell_bare(SB_CELL_CLOSED, known->gen), SB_RELAXED);
  meanwhile(word, AFTER_LOAD, SB_MAX_RETRIES + 1, the_cell_is_free);
  expect_is(stage_now(), SB_CORRUPT, "the status");
  expect(has_acted(), "the cell was not tried that often");
  expect(sb_queue_is_open(target[0]), "the queue is closed");
}
static void a_closed_queue_that_is_broken(void) {
  begin_commit(1, UNLIMITED, &NONE);
  mark_closed(target[0]);
  SB_STORE(&target[0]->shm->root, SB_LINK_DONE, SB_RELAXED);
  target[0]->lanes[0].tail_leaf = SB_NO_LEAF;
  expect_is(stage_now(), SB_CORRUPT, "the status");
}

/* ---- cells that changed ---- */

/* Cells that are no longer STAGED by this connection: of another state, of another page, of another owner. */
static void stage_and_change(uint64_t words[3], sb_settings settings) {
  begin_commit(3, settings, &NONE);
  stage_all();
  words[0] = SB_LOAD(staged_word(0), SB_RELAXED) ^ SB_CELL_STAGED ^ SB_CELL_ACQUIRED;
  words[1] = SB_LOAD(staged_word(1), SB_RELAXED) ^ SB_FIELD(1, 49);
  words[2] = SB_LOAD(staged_word(2), SB_RELAXED) ^ SB_FIELD(1, 37);
}
static void changed_cells_are_not_flipped(void) {
  uint64_t words[3];
  stage_and_change(words, LIMITED);
  sb_transaction_decide(&plan);
  for (unsigned i = 0; i < 3; i++) SB_STORE(staged_word(i), words[i], SB_RELAXED);
  sb_transaction_carry_out(&plan);
  for (unsigned i = 0; i < 3; i++) {
    expect_is(SB_LOAD(staged_word(i), SB_RELAXED), words[i], "a cell that is not flipped");
    expect_is(added_to(i), 1, "the number of messages");
  }
}
static void changed_cells_are_not_unstaged(void) {
  uint64_t words[3];
  stage_and_change(words, LIMITED);
  int64_t taken = taken_in(0);
  for (unsigned i = 0; i < 3; i++) SB_STORE(staged_word(i), words[i], SB_RELAXED);
  sb_transaction_undo(&plan);
  for (unsigned i = 0; i < 3; i++) {
    expect_is(SB_LOAD(staged_word(i), SB_RELAXED), words[i], "a cell that is not unstaged");
    expect_is(taken_in(i), taken, "how many positions count as taken");
  }
}
static void only_limits_are_counted(void) {
  begin_commit(2, EVICTING, &NONE);
  int64_t taken = taken_in(0);
  uint64_t bytes_out = target[0]->shm->bytes_out;
  stage_all();
  expect_is(taken_in(0), taken, "how many count as taken when they are staged");
  sb_transaction_decide(&plan);
  sb_transaction_carry_out(&plan);
  expect_is(taken_in(0), taken, "how many count as taken after a commit");
  expect_is(target[0]->shm->bytes_out, bytes_out, "how many bytes count as taken");
}
static void only_limits_are_counted_back(void) {
  begin_commit(1, UNLIMITED, &NONE);
  int64_t taken = taken_in(0);
  uint64_t bytes_out = target[0]->shm->bytes_out;
  stage_all();
  sb_transaction_undo(&plan);
  expect_is(taken_in(0), taken, "how many positions count as taken");
  expect_is(target[0]->shm->bytes_out, bytes_out, "how many bytes count as taken");
}

/* ---- a reaper and what does not fit ---- */

static uint64_t mark_of(unsigned end, uint64_t *position) {
  sb_taken taken;
  sb_leaf_ref leaf;
  expect(sb_settle_find(t.c, settling[end].token, &taken, &leaf), "nothing is held");
  *position = taken.position;
  return sb_holding_what(SB_HOLD_SETTLING, target[0]->slot, (uint64_t)leaf.slot | SB_FIELD(DONE, 28));
}
/* The dead connection has cells in the queue, but no ledger. */
static void a_reaper_without_a_ledger(void) {
  uint64_t position;
  begin_commit(1, UNLIMITED, &NONE);
  stage_all();
  sb_transaction_decide(&plan);
  hold_for(0, 0, SB_ACK);
  uint64_t staged = sb_holding_at(t.b, cells[0].token)->what, marked = mark_of(0, &position);
  walk.id = 99;
  sb_word *words[] = {staged_word(0), staged_cell(0, position - target[0]->base)};
  for (unsigned i = 0; i < 2; i++) {
    uint64_t word = (SB_LOAD(words[i], SB_RELAXED) & ~SB_FIELD(0xfffu, 37)) | SB_FIELD(walk.id, 37);
    SB_STORE(words[i], word, SB_RELAXED);
    sb_transaction_roll_forward(&walk, i == 0 ? staged : marked, i == 0 ? cells[0].position : position);
    expect_is(SB_LOAD(words[i], SB_RELAXED), word, "a cell whose owner has no ledger");
  }
}
/* A marked message whose cell is not ACQUIRED by the dead connection: the reaper settles nothing. */
static void marks_that_are_not_settled(void) {
  uint64_t position;
  begin_commit(1, UNLIMITED, &NONE);
  hold_for(0, 0, SB_ACK);
  uint64_t what = mark_of(0, &position), n = position - target[0]->base, raised = target[0]->ledger->kind >> 16;
  sb_word *word = staged_cell(0, n);
  uint64_t was = SB_LOAD(word, SB_RELAXED);
  SB_STORE(word, was ^ SB_FIELD(1, 49), SB_RELAXED);
  sb_transaction_roll_forward(&walk, what, position);
  expect_is(SB_LOAD(word, SB_RELAXED), was ^ SB_FIELD(1, 49), "a cell of another page");
  SB_STORE(word, was ^ SB_CELL_ACQUIRED ^ SB_CELL_REMOVING, SB_RELAXED);
  sb_transaction_roll_forward(&walk, what, position);
  expect_is(sb_cell_state(SB_LOAD(word, SB_RELAXED)), SB_CELL_AVAILABLE, "a cell that was about to be removed");
  set_bare(n, SB_CELL_TOMBSTONE, 0);
  expect(!is_finished(n), "the cell is finished");
  sb_transaction_roll_forward(&walk, what, position);
  expect(is_finished(n), "a TOMBSTONE is not finished");
  expect_is(target[0]->ledger->kind, SB_FIELD(raised, 16), "how often there was an intent");
  expect_is(counted(target[0], DONE), 0, "the number acknowledged");
}
static void a_tombstone_is_finished(void) {
  begin_commit(1, UNLIMITED, &NONE);
  stage_all();
  set_bare(1, SB_CELL_TOMBSTONE, 0);
  expect(!is_finished(1), "the cell is finished");
  each_holding(sb_transaction_roll_back);
  expect(is_finished(1), "a TOMBSTONE is not finished");
}
static void another_reaper_drops_it(void) { set_bare(1, SB_CELL_TOMBSTONE, 0); }
static void two_reapers_unstage(void) {
  if (!has_steps()) return;
  begin_commit(1, LIMITED, &NONE);
  stage_all();
  int64_t taken = taken_in(0);
  uint64_t bytes_out = target[0]->shm->bytes_out;
  meanwhile(staged_word(0), BEFORE_CAS, 1, another_reaper_drops_it);
  each_holding(sb_transaction_roll_back);
  expect(has_acted(), "the cell was not dropped");
  expect_is(taken_in(0), taken, "how many positions count as taken");
  expect_is(target[0]->shm->bytes_out, bytes_out, "how many bytes count as taken");
}

static const test_case CASES[] = {
    {"commit: announced", "a holding names the queue before a cell is tried", announced_freely},
    {"commit: announced, limits", "with limits the hint of the tail is exact", announced_with_limits},
    {"commit: closed", "a closed queue gets no cell, and the commit goes on", closed_freely},
    {"commit: closed, evicting", "without limits nothing is counted", closed_while_evicting},
    {"commit: closed, limits", "the place in a closed queue is given back", closed_with_limits},
    {"commit: closed, timers", "what counted as taken is taken back", closed_with_timers},
    {"commit: refused", "a deletion that is refused is passed", a_deletion_that_is_refused},
    {"commit: no way", "a closed cell that cannot be resolved is damage", a_closed_cell_without_a_way},
    {"commit: late", "the way to a closed cell is looked for once", a_way_that_comes_too_late},
    {"commit: refused, closed", "in a closed queue nothing is staged behind a deletion", a_refusal_in_a_closed_queue},
    {"commit: stays closed", "a cell that stays closed in an open queue is damage", a_leaf_that_stays_closed},
    {"commit: broken", "damage to a closed queue is told", a_closed_queue_that_is_broken},
    {"commit: no flip", "only cells that the connection staged are flipped", changed_cells_are_not_flipped},
    {"commit: no unstaging", "only cells that the connection staged are unstaged", changed_cells_are_not_unstaged},
    {"commit: uncounted", "a queue without limits keeps no hints", only_limits_are_counted},
    {"commit: uncounted, undone", "nor does it for a commit that is undone", only_limits_are_counted_back},
    {"commit: no ledger", "the reaper leaves alone cells of a connection without a ledger", a_reaper_without_a_ledger},
    {"commit: not settled", "the reaper settles only what the dead connection holds", marks_that_are_not_settled},
    {"commit: tombstone", "the reaper finishes a cell that was dropped", a_tombstone_is_finished},
    {"commit: two reapers", "of two reapers one counts a dropped cell", two_reapers_unstage},
};
SUBJECT(CASES)
