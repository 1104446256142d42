// SPDX-License-Identifier: Apache-2.0
/* sb_release: a held message returns to its position, or ends. In a build with steps the cases also act for another
 * process inside a call. */
#include "sb_release.h"

#include "cells.h"
#include "meanwhile.h"
#include "sb_wait.h"
#include "system.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define EVICTING ((sb_settings){{100, -1, -1, 0, -1, -1}, 0})

static sb_queue *q;
static sb_taken taken;
static uint64_t token;

static void begin(sb_settings settings) {
  q = begin_queue("q", settings, 3);
  token = new_token();
  if (sb_take_oldest(q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken) != SB_OK) die("sb_take_oldest", 0);
}
static sb_status release(sb_disposition disposition) { return sb_release_message(q, token, disposition); }
static void set_side(unsigned count, uint64_t flags) {
  SB_STORE(&cell(0)->side, sb_side_word(taken.gen, count, flags), SB_RELAXED);
}
static uint64_t side(void) { return SB_LOAD(&cell(0)->side, SB_RELAXED); }
static uint64_t count_of(unsigned counter) { return q->ledger->counters[counter]; }
static bool is_marked(void) { return sb_requeued_is_marked(t.b, &q->lanes[0].ring, at(0)); }
static uint64_t next_holding(void) {
  uint64_t next = new_token();
  sb_holding_give(t.c, next);
  return next;
}

static void a_message_comes_back(void) {
  begin(EVICTING);
  uint64_t gen = leaf_of(0).gen;
  set_word(0, sb_cell_owned(SB_CELL_REMOVING, slot_of(0), 5, t.c->id, gen));
  uint32_t raised = hinting_raised();
  expect_is(release(SB_REQUEUE), SB_OK, "the status");
  expect_is(word_of(0), sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 5, gen), "the cell");
  expect(is_marked(), "no bits lead to it");
  expect_is(q->shm->taken, 0, "what is taken");
  expect_is(q->shm->bytes_out, 0, "the bytes that are taken");
  expect_is(hinting_depth(), 0, "the changes of hints that are not over");
  expect_is(hinting_raised(), raised + 1, "the changes of hints");
  expect_is((uint32_t)q->ledger->holding, 0, "what is held");
  expect_is(held_by(token), 0, "the holding");
  expect_is(next_holding(), token, "the next holding");
  expect_is(release(SB_REQUEUE), SB_SETTLED, "the status of a second time");
}
static void hints_stay_without_limits(void) {
  begin(FREE_SETTINGS);
  uint32_t raised = hinting_raised();
  expect_is(release(SB_REQUEUE), SB_OK, "the status");
  expect_is(q->shm->taken | q->shm->bytes_out, 0, "what is taken");
  expect_is(hinting_raised(), raised, "the changes of hints");
}
/* How often it was delivered: as it was, one less, or not touched at all. */
static void deliveries_are_counted(void) {
  const struct {
    bool delivered;
    sb_disposition disposition;
    unsigned count, should;
    uint64_t flags;
  } releases[] = {{true, SB_REQUEUE, 4, 4, SB_SIDE_REDELIVERED},
                  {true, SB_UNDELIVER, 4, 3, SB_SIDE_REDELIVERED},
                  {true, SB_UNDELIVER, 1, 0, SB_SIDE_REDELIVERED},
                  {true, SB_UNDELIVER, 0, 0, SB_SIDE_REDELIVERED},
                  {.count = 4, .should = 4}};
  for (unsigned i = 0; i < sizeof releases / sizeof releases[0]; i++) {
    if (i == 0) begin(FREE_SETTINGS);
    if (i > 0 && sb_take_oldest(q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token = new_token(), &taken) != SB_OK)
      die("sb_take_oldest", 0);
    set_side(releases[i].count, 0);
    expect_is(releases[i].delivered ? release(releases[i].disposition) : sb_release_unmarked(q, token), SB_OK,
              "the status");
    expect_is(side(), sb_side_word(taken.gen, releases[i].should, releases[i].flags), "the side record");
  }
}
static void what_ends_instead(void) {
  begin(FREE_SETTINGS);
  message_of(0)->expires_ns = UINT64_MAX;
  expect_is(release(SB_REQUEUE), SB_OK, "the status of one that expires later");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "its cell");
  token = new_token();
  message_of(0)->expires_ns = 0;
  if (sb_take_oldest(q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken) != SB_OK) die("sb_take_oldest", 0);
  message_of(0)->expires_ns = sb_now_ns();
  expect_is(release(SB_REQUEUE), SB_OK, "the status of one that has expired");
  expect_is(word_of(0), cell_word(0, SB_CELL_TOMBSTONE, 0), "its cell");
  expect_is(count_of(SB_COUNT_EXPIRED), 1, "what expired");
  token = new_token();
  if (sb_take_oldest(q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken) != SB_OK) die("sb_take_oldest", 0);
  q->state += 4;
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  expect_is(release(SB_REQUEUE), SB_OK, "the status in a queue that was deleted");
  expect_is(q->shm->requeued, 0, "whether there are bits: it was not ready, not even for a moment");
  expect_is(word_of(1), cell_word(1, SB_CELL_TOMBSTONE, 0), "its cell");
  expect_is(count_of(SB_COUNT_KILLED), 1, "what was killed");
}

/* ---- beside others ---- */

static bool was_marked;
static void look_at_bits(void) { was_marked = is_marked() && sb_cell_is_owned(word_of(0)); }
/* P5: the bits are set before the cell is opened, in one operation that all see. */
static void bits_come_first(void) {
  begin(FREE_SETTINGS);
  was_marked = false;
  sb_word *word = &cell(0)->word;
  meanwhile(word, BEFORE_CHANGE, 1, look_at_bits);
  note_order(word);
  expect_is(release(SB_REQUEUE), SB_OK, "the status");
  int order = noted_order();
  expect(order < 0 || order == SB_SEQ_CST, "the cell is opened in order %d", order);
  expect(!has_acted() || was_marked, "no bits lead to the cell before it is opened");
}
static void clear_bit(void) { set_bits(0, 0); }
static void a_searcher_cleared_the_bit(void) {
  begin(FREE_SETTINGS);
  meanwhile(&cell(0)->word, BEFORE_CHANGE, 1, clear_bit);
  expect_is(release(SB_REQUEUE), SB_OK, "the status");
  (void)has_acted();
  expect(is_marked(), "no bits lead to the cell whose bit was cleared");
}
/* After the cell was opened another process takes it, and the bit that led to it. */
static uint64_t word;
static void change_cell(void) {
  set_word(0, word);
  set_bits(0, 0);
}
static void what_was_taken_is_not_marked(void) {
  for (unsigned i = 0; i < 2; i++) {
    if (i == 0) begin(FREE_SETTINGS);
    uint64_t is = word_of(0);
    word = i == 0 ? cell_word(0, SB_CELL_ACQUIRED, OTHER)
                  : sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 0, leaf_of(0).gen + 1);
    meanwhile(q->lanes[0].ring.root, AFTER_LOAD, 2, change_cell);
    expect_is(release(SB_REQUEUE), SB_OK, "the status");
    if (has_acted()) expect_is(bits_of(0), 0, "the bits of what another one took, or of another page");
    set_word(0, is);
    token = new_token();
    sb_holding_set(t.b, token, sb_holding_what(SB_HOLD_CELL, q->slot, leaf_of(0).slot), at(0));
    set_bits(0, 0);
    q->lanes[0].way = (sb_requeued_way){.leaf = SB_NO_LEAF};
  }
}
/* The queue is deleted while the message comes back: the one that returned it disposes of it, unless another one took it. */
static void close_queue(void) { SB_STORE(&q->shm->state, (q->state & ~UINT64_C(3)) | SB_QUEUE_CLOSED, SB_RELAXED); }
static void closed_meanwhile(void) {
  begin(FREE_SETTINGS);
  meanwhile(&cell(0)->word, BEFORE_CHANGE, 1, close_queue);
  expect_is(release(SB_REQUEUE), SB_OK, "the status");
  if (!has_acted()) return;
  expect_is(word_of(0), cell_word(0, SB_CELL_TOMBSTONE, 0), "the cell");
  expect_is(count_of(SB_COUNT_KILLED), 1, "what was killed");
  expect_is((uint32_t)q->ledger->holding, 0, "what is held");
  expect_is(next_holding(), token, "the next holding");
}
static void close_and_take(void) {
  close_queue();
  change_cell();
}
static void closed_and_taken_meanwhile(void) {
  begin(FREE_SETTINGS);
  word = cell_word(0, SB_CELL_ACQUIRED, OTHER);
  meanwhile(q->lanes[0].ring.root, AFTER_LOAD, 2, close_and_take);
  expect_is(release(SB_REQUEUE), SB_OK, "the status");
  if (!has_acted()) return;
  expect_is(word_of(0), word, "the cell that another one took");
  expect_is(count_of(SB_COUNT_KILLED), 0, "what was killed");
  expect_is(next_holding(), token, "the next holding");
}

/* In the nanosecond that a message names it has expired. */
static void a_message_expires_now(void) {
  begin(FREE_SETTINGS);
  answer_for_the_system();
  taken.message->expires_ns = sb_now_ns();
  expect_is(release(SB_REQUEUE), SB_OK, "the status");
  expect_is(count_of(SB_COUNT_EXPIRED), 1, "what has expired");
}

static const test_case CASES[] = {
    {"release: back", "a message that comes back is ready, and bits lead to it", a_message_comes_back},
    {"release: hints", "no hints change in a queue without limits", hints_stay_without_limits},
    {"release: deliveries", "a release counts the delivery, or not", deliveries_are_counted},
    {"release: ends", "what has expired, or whose queue was deleted, ends", what_ends_instead},
    {"release: bits", "bits are set before the cell is opened", bits_come_first},
    {"release: cleared", "a bit that a searcher cleared is set again", a_searcher_cleared_the_bit},
    {"release: taken", "what another one took is not marked", what_was_taken_is_not_marked},
    {"release: closed", "what comes back to a queue that is deleted meanwhile ends", closed_meanwhile},
    {"release: closed, taken", "unless another one took it", closed_and_taken_meanwhile},
    {"release: now", "a message expires in the nanosecond that it names", a_message_expires_now},
};
SUBJECT(CASES)
