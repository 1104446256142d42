// SPDX-License-Identifier: Apache-2.0
/* sb_closing and sb_disposal in a queue with priorities: the word that a deletion is asked for in, and what becomes of
 * the messages and the lanes. A deletion by a cell is in closing.c. */
#include "sb_closing.h"

#include <string.h>

#include "calls.h"
#include "cells.h"
#include "dead.h"
#include "meanwhile.h"
#include "queues.h"
#include "ranked.h"
#include "sb_disposal.h"
#include "sb_recover.h"
#include "sb_slab.h"
#include "staging.h"

enum { FIRST = 9, MIDDLE = 5, LAST = 0 }; /* priorities; their lanes are 0, 4 and 9 */
#define BOTH (SB_CLOSING_IF_UNUSED | SB_CLOSING_IF_EMPTY)
/* As the closing word has them. */
enum { IF_UNUSED = 1, IF_EMPTY = 2, IF_SETTLED = 4 };

static sb_queue *q;
static void begin(void) { q = queue_named("q", RANKED(9)); }
static void put_in_three_lanes(void) {
  const unsigned priorities[] = {FIRST, MIDDLE, LAST};
  for (unsigned i = 0; i < 3; i++) expect_is(put_ranked(q, priorities[i], i + 1), SB_OK, "the status of a put");
}
static uint64_t word(void) { return SB_LOAD(&q->shm->closing, SB_RELAXED); }
static uint64_t number(void) { return sb_closing_number(word()); }
static void set_closing(unsigned state, unsigned conditions) {
  SB_STORE(&q->shm->closing, sb_closing_word(state, conditions, number()), SB_RELAXED);
}
static unsigned queue_state(void) { return sb_queue_state(SB_LOAD(&q->shm->state, SB_RELAXED)); }
static void open_again(void) {
  SB_STORE(&q->shm->state, q->state, SB_RELAXED);
  set_closing(SB_ASKED_NOT, 0);
}
static void set_consumers(int32_t count) { SB_STORE(&q->shm->consumers, count, SB_RELAXED); }

/* ---- the closing word ---- */

static void a_deletion_is_asked_for(void) {
  const uint64_t flags[] = {0, SB_CLOSING_IF_UNUSED, SB_CLOSING_IF_EMPTY, BOTH, SB_CLOSING_IF_SETTLED};
  begin();
  uint64_t before = number();
  expect_is(sb_closing_state(word()), SB_ASKED_NOT, "the state of a fresh queue");
  for (unsigned i = 0; i < 5; i++) {
    set_closing(SB_ASKED_NOT, 0);
    expect(sb_closing_ask(t.b, q->slot, flags[i]), "the queue is closed");
    expect_is(word(), sb_closing_word(SB_ASKED, i, before + 1 + i), "the word");
    expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
  }
}
static void expect_decided(unsigned conditions, bool closes, const char *what) {
  open_again();
  set_closing(SB_ASKED, conditions);
  uint64_t before = number();
  expect(sb_closing_ends(t.b, q->slot) == closes, "%s: it ends, or does not", what);
  expect_is(word(), sb_closing_word(closes ? SB_ASKED_CLOSED : SB_ASKED_NOT, 0, before), what);
  expect_is(queue_state(), closes ? SB_QUEUE_CLOSED : SB_QUEUE_OPEN, what);
}
static void a_deletion_if_unused(void) {
  begin();
  set_consumers(1);
  put_in_three_lanes();
  expect_decided(0, true, "no condition");
  expect_decided(IF_UNUSED, false, "a consumer");
  set_consumers(0);
  expect_decided(IF_UNUSED, true, "no consumer");
  set_consumers(-1);
  expect_decided(IF_UNUSED, true, "a count below none");
}
static void a_deletion_if_empty(void) {
  const unsigned numbers[] = {0, 4, 9};
  begin();
  put_in_three_lanes();
  set_consumers(1);
  for (unsigned i = 0; i < 3; i++) {
    for (unsigned state = SB_CELL_AVAILABLE; state <= SB_CELL_STAGED; state++) {
      uint64_t words[3];
      for (unsigned k = 0; k < 3; k++) words[k] = ranked_word(q, numbers[k], 0);
      for (unsigned k = 0; k < 3; k++) set_ranked(q, numbers[k], 0, k == i ? state : SB_CELL_TOMBSTONE, OTHER);
      bool others = state == SB_CELL_ACQUIRED || state == SB_CELL_REMOVING;
      expect_decided(IF_EMPTY, others, "a cell of one lane");
      expect(sb_closing_has_message(t.b, q->slot, SB_CLOSING_IF_EMPTY) != others, "it has a message, or has none");
      expect_decided(IF_EMPTY | IF_UNUSED, false, "a consumer, and both conditions");
      for (unsigned k = 0; k < 3; k++) SB_STORE(&ranked_cell(q, numbers[k], 0)->word, words[k], SB_RELAXED);
    }
  }
  set_consumers(0);
  expect_decided(IF_EMPTY | IF_UNUSED, false, "messages, and both conditions");
  expect(sb_closing_has_message(t.b, q->slot, SB_CLOSING_IF_EMPTY), "it has no message");
  for (unsigned i = 0; i < 3; i++) set_ranked(q, numbers[i], 0, SB_CELL_TOMBSTONE, 0);
  expect(!sb_closing_has_message(t.b, q->slot, SB_CLOSING_IF_EMPTY), "it has a message");
  expect_decided(IF_EMPTY | IF_UNUSED, true, "no message, and both conditions");
}
/* Messages that a connection holds may return, so they count. */
static void a_deletion_if_settled(void) {
  const unsigned numbers[] = {0, 4, 9};
  begin();
  put_in_three_lanes();
  for (unsigned i = 0; i < 3; i++) {
    for (unsigned state = SB_CELL_AVAILABLE; state <= SB_CELL_STAGED; state++) {
      uint64_t words[3];
      for (unsigned k = 0; k < 3; k++) words[k] = ranked_word(q, numbers[k], 0);
      for (unsigned k = 0; k < 3; k++) set_ranked(q, numbers[k], 0, k == i ? state : SB_CELL_TOMBSTONE, OTHER);
      expect_decided(IF_SETTLED, false, "a message in one lane");
      expect(sb_closing_has_message(t.b, q->slot, SB_CLOSING_IF_SETTLED), "it has no message");
      for (unsigned k = 0; k < 3; k++) SB_STORE(&ranked_cell(q, numbers[k], 0)->word, words[k], SB_RELAXED);
    }
  }
  for (unsigned i = 0; i < 3; i++) set_ranked(q, numbers[i], 0, SB_CELL_TOMBSTONE, 0);
  expect_decided(IF_SETTLED | IF_UNUSED, true, "no message, and both conditions");
}
static void nothing_was_asked_for(void) {
  begin();
  uint64_t before = word();
  expect(!sb_closing_ends(t.b, q->slot), "it ends");
  expect_is(word(), before, "the word");
  expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
}
/* The process that decided was killed before it closed the queue. */
static void the_queue_follows_its_word(void) {
  begin();
  set_closing(SB_ASKED_CLOSED, 0);
  uint64_t before = word();
  expect(!sb_closing_ask(t.b, q->slot, 0), "a deletion can be asked for");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(word(), before, "the word");
  SB_STORE(&q->shm->state, q->state - SB_QUEUE_OPEN + SB_QUEUE_NONE, SB_RELAXED);
  expect(sb_closing_ends(t.b, q->slot), "it does not end");
  expect_is(queue_state(), SB_QUEUE_NONE, "the state of a queue that is gone");
}
static void an_earlier_deletion_is_decided_first(void) {
  begin();
  set_consumers(1);
  set_closing(SB_ASKED, IF_UNUSED);
  uint64_t before = number();
  expect(sb_closing_ask(t.b, q->slot, SB_CLOSING_IF_EMPTY), "the queue is closed");
  expect_is(word(), sb_closing_word(SB_ASKED, IF_EMPTY, before + 1), "the word behind one that was refused");
  set_closing(SB_ASKED, 0);
  expect(!sb_closing_ask(t.b, q->slot, SB_CLOSING_IF_EMPTY), "the queue is open");
  expect_is(word(), sb_closing_word(SB_ASKED_CLOSED, 0, before + 1), "the word behind one that closed the queue");
}

/* Another process decides, and a third one asks again: what was judged was an earlier deletion. */
static unsigned judged;
static void another_asks_again(const char *site) {
  if (strcmp(site, "closing.judged") != 0 || judged++ > 0) return;
  SB_STORE(&q->shm->closing, sb_closing_word(SB_ASKED, IF_UNUSED, number() + 1), SB_RELAXED);
}
static void a_later_deletion_is_judged_anew(void) {
  begin();
  set_consumers(1);
  set_closing(SB_ASKED, 0);
  uint64_t before = number();
  judged = 0;
  at_step = another_asks_again;
  bool ends = sb_closing_ends(t.b, q->slot);
  at_step = NULL;
  if (!has_steps()) return;
  expect(!ends, "it ends");
  expect_is(judged, 2, "how often it was judged");
  expect_is(word(), sb_closing_word(SB_ASKED_NOT, 0, before + 1), "the word");
  expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
}
/* Another process asks at the same moment: its deletion is decided first. */
static void another_asks(void) { set_closing(SB_ASKED, IF_UNUSED); }
static void two_that_ask(void) {
  begin();
  set_consumers(1);
  uint64_t before = number();
  meanwhile(&q->shm->closing, BEFORE_CAS, 1, another_asks);
  expect(sb_closing_ask(t.b, q->slot, SB_CLOSING_IF_EMPTY), "the queue is closed");
  if (has_acted()) expect_is(word(), sb_closing_word(SB_ASKED, IF_EMPTY, before + 1), "the word");
}
/* It asks before this one looks at the word: its deletion closes the queue. */
static void another_asks_for_all(void) { set_closing(SB_ASKED, 0); }
static void another_asks_first(void) {
  begin();
  uint64_t before = number();
  meanwhile(&q->shm->closing, BEFORE_LOAD, 2, another_asks_for_all);
  bool asked = sb_closing_ask(t.b, q->slot, SB_CLOSING_IF_EMPTY);
  if (!has_acted()) return;
  expect(!asked, "the queue is open");
  expect_is(word(), sb_closing_word(SB_ASKED_CLOSED, 0, before), "the word");
}

/* ---- deletions ---- */

static uint64_t removed;
static sb_status close_now(bool if_unused, bool if_empty) {
  removed = 99;
  return sb_disposal_close(q, if_unused, if_empty, &removed);
}
static void a_queue_is_closed(void) {
  begin();
  put_in_three_lanes();
  put_timed(q, LAST, 4, 1, 0);
  expect_is(close_now(false, false), SB_OK, "the status");
  expect_is(removed, 4, "how many messages went");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  const unsigned numbers[] = {0, 4, 9};
  for (unsigned i = 0; i < 3; i++)
    expect_is(ranked_state(q, numbers[i], 0), SB_CELL_TOMBSTONE, "the state of a message's cell");
  expect_is(ranked_state(q, 0, 1), SB_CELL_FREE, "the state of the cell behind: no cell closes such a queue");
  expect_is(counter_in(q, SB_COUNT_KILLED), 4, "what was killed");
  expect_is(close_now(false, false), SB_DELETED, "the status of a second deletion");
  expect_is(removed, 0, "how many messages went by it");
}
static void closing_is_refused(void) {
  begin();
  expect_is(put_ranked(q, LAST, 1), SB_OK, "the status of a put");
  expect_is(close_now(false, true), SB_NOT_EMPTY, "the status of a queue with messages");
  expect_is(removed, 0, "how many messages went");
  set_consumers(1);
  expect_is(close_now(true, false), SB_IN_USE, "the status of a queue with a consumer");
  expect_is(close_now(false, true), SB_NOT_EMPTY, "the status where consumers do not matter");
  expect_is(close_now(true, true), SB_IN_USE, "the status of a consumer and a message");
  set_consumers(0);
  expect_is(close_now(true, true), SB_NOT_EMPTY, "the status without a consumer");
  expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
  expect_is(close_now(true, false), SB_OK, "the status where messages do not matter");
  expect_is(removed, 1, "how many messages went");
}
static void the_consumer_leaves(void) { set_consumers(0); }
static void closing_is_refused_for_one_that_leaves(void) {
  begin();
  set_consumers(1);
  meanwhile(&q->shm->consumers, AFTER_LOAD, 1, the_consumer_leaves);
  sb_status status = close_now(true, false);
  if (has_acted()) expect_is(status, SB_IN_USE, "the status of an empty queue whose consumer left");
}
static void closing_is_refused_for_no_reason_that_is_left(void) {
  begin();
  set_consumers(1);
  meanwhile(&q->shm->consumers, AFTER_LOAD, 1, the_consumer_leaves);
  sb_status status = close_now(true, true);
  if (!has_acted()) return;
  expect_is(status, SB_OK, "the status of an empty queue whose consumer left");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
}
static void the_message_goes(const char *site) {
  if (strcmp(site, "closing.judged") == 0) set_ranked(q, 9, 0, SB_CELL_ACQUIRED, OTHER);
}
static void a_message_that_is_taken_meanwhile(void) {
  begin();
  expect_is(put_ranked(q, LAST, 1), SB_OK, "the status of a put");
  at_step = the_message_goes;
  sb_status status = close_now(false, true);
  at_step = NULL;
  if (has_steps()) expect_is(status, SB_NOT_EMPTY, "the status of a queue whose message was taken");
  set_ranked(q, 9, 0, SB_CELL_AVAILABLE, 0);
  at_step = the_message_goes;
  status = close_now(true, true);
  at_step = NULL;
  if (has_steps()) expect_is(status, SB_OK, "the status when both conditions hold by now");
}
/* Another process decided it, and closed the queue, before this one looked. */
static void decide_for_us(const char *site) {
  if (strcmp(site, "queue.close.asked") != 0) return;
  at_step = NULL;
  expect(sb_closing_ends(t.b, q->slot), "it does not end");
}
static void another_process_decides(void) {
  begin();
  put_in_three_lanes();
  at_step = decide_for_us;
  expect_is(close_now(false, false), SB_OK, "the status");
  at_step = NULL;
  expect_is(removed, 3, "how many messages went");
}
static void what_is_emptied(void) {
  begin();
  put_in_three_lanes();
  leave_holdings(0);
  expect_is(sb_disposal_empty(q), 0, "how many went without a holding");
  expect_is(ranked_state(q, 0, 0), SB_CELL_AVAILABLE, "the state of the first cell");
}

/* ---- puts beside a deletion ---- */

static void a_put_that_decides(void) {
  begin();
  put_in_three_lanes();
  set_closing(SB_ASKED, IF_EMPTY);
  expect_is(put_ranked(q, MIDDLE, 4), SB_OK, "the status of a put that refuses the deletion");
  expect_is(sb_closing_state(word()), SB_ASKED_NOT, "the state of the word");
  expect_is(ranked_state(q, 4, 1), SB_CELL_AVAILABLE, "the state of its cell");
  set_closing(SB_ASKED, 0);
  expect_is(put_ranked(q, MIDDLE, 5), SB_DELETED, "the status of a put that ends the queue");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(ranked_state(q, 4, 2), SB_CELL_TOMBSTONE, "the state of its cell");
  expect_is(ranked_state(q, 0, 0), SB_CELL_TOMBSTONE, "the state of an older message's cell");
  expect_is(counter_in(q, SB_COUNT_KILLED), 5, "what was killed");
}
/* The deletion was decided between the look at the queue's state and the append. */
static void close_when_marked(const char *site) {
  if (strcmp(site, "queue.append.marked") == 0) set_closing(SB_ASKED_CLOSED, 0);
}
static void a_put_that_is_too_late(void) {
  begin();
  at_step = close_when_marked;
  sb_status status = put_ranked(q, LAST, 1);
  at_step = NULL;
  if (!has_steps()) return;
  expect_is(status, SB_DELETED, "the status");
  expect_is(ranked_state(q, 9, 0), SB_CELL_TOMBSTONE, "the state of its cell");
  expect_is(put_ranked(q, LAST, 2), SB_DELETED, "the status of a later put");
}
static void a_reservation_that_is_too_late(void) {
  begin();
  sb_reservation r;
  const sb_put_options o = {.priority = MIDDLE};
  expect_is(sb_reservation_begin(q, BYTES, &o, &r), SB_OK, "the status of a reservation");
  set_closing(SB_ASKED, IF_EMPTY);
  expect_is(sb_reservation_publish(q, &r), SB_OK, "the status where the message refuses the deletion");
  expect_is(ranked_state(q, 4, 0), SB_CELL_AVAILABLE, "the state of its cell");
  expect_is(sb_reservation_begin(q, BYTES, &o, &r), SB_OK, "the status of a reservation");
  set_closing(SB_ASKED, 0);
  expect_is(sb_reservation_publish(q, &r), SB_DELETED, "the status where the queue ends");
  expect_is(ranked_state(q, 4, 1), SB_CELL_TOMBSTONE, "the state of its cell");
  expect_is(q->busy, 0, "how busy the handle is");
}
/* A queue with one lane has no closing word. */
static void a_put_without_priorities(void) {
  q = queue_named("q", UNLIMITED);
  set_closing(SB_ASKED, 0);
  sb_reservation r;
  const sb_put_options o = {.priority = MIDDLE};
  expect_is(put_ranked(q, MIDDLE, 1), SB_OK, "the status");
  expect_is(sb_reservation_begin(q, BYTES, &o, &r), SB_OK, "the status of a reservation");
  expect_is(sb_reservation_publish(q, &r), SB_OK, "the status of its end");
  expect_is(sb_closing_state(word()), SB_ASKED, "the state of the word");
}
static void a_commit_that_is_too_late(void) {
  uint32_t failed = 99;
  begin_commit(1, RANKED(9), &NONE);
  q = target[0];
  uint64_t came = q->shm->came;
  set_closing(SB_ASKED, 0);
  expect_is(sb_transaction_stage(&plan, &failed), SB_OK, "the status of staging");
  expect_is(cells[0].token, SB_TRANSACTION_NO_TOKEN, "the holding of the cell");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(q->shm->came, came + 1, "what came");
  expect_is(ranked_state(q, 9, 1), SB_CELL_TOMBSTONE, "the state of its cell");
  expect(ranked_leaf(q, 9, 0).leaf->finished[0] >> 8 & 1, "its cell is not finished");
}
static void a_commit_that_refuses_a_deletion(void) {
  uint32_t failed = 99;
  begin_commit(1, RANKED(9), &NONE);
  q = target[0];
  set_closing(SB_ASKED, IF_EMPTY);
  expect_is(sb_transaction_stage(&plan, &failed), SB_OK, "the status of staging");
  expect_is(sb_closing_state(word()), SB_ASKED_NOT, "the state of the word");
  expect_is(ranked_state(q, 9, 1), SB_CELL_STAGED, "the state of its cell");
}

/* ---- what the reaper does ---- */

static void begin_of_dead(void) {
  grow_to(BROKER_CHUNKS - 1);
  begin_dead();
  q = queue_of_dead("q", RANKED(9));
  put_several(q, LAST, 1);
}
static void the_reaper_decides(void) {
  begin_of_dead();
  set_closing(SB_ASKED, IF_EMPTY);
  sb_recover_queue(t.c, q->slot);
  expect_is(sb_closing_state(word()), SB_ASKED_NOT, "the state of a deletion that a message refuses");
  set_closing(SB_ASKED, 0);
  sb_recover_queue(t.c, q->slot);
  expect_is(sb_closing_state(word()), SB_ASKED_CLOSED, "the state of a deletion without conditions");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(ranked_state(q, 9, 0), SB_CELL_TOMBSTONE, "the state of its message's cell");
}
static void the_reaper_advances_tails(void) {
  begin_of_dead();
  SB_STORE(&lane_of(q, 9)->tail, base_of(q, 9), SB_RELAXED);
  sb_recover_queue(t.c, q->slot);
  expect_is(lane_of(q, 9)->tail, base_of(q, 9) + 1, "the tail of the lane");
}

/* ---- freeing ---- */

static uint32_t lanes[2], slot;
static sb_queue_shm *shm;
static uint64_t header_of(uint32_t of) { return SB_LOAD(sb_slot_header(t.b, of), SB_RELAXED); }
static uint64_t gens[2];
/* A closed queue with two other lanes, which had messages. */
static void closed_queue(void) {
  begin();
  put_in_three_lanes();
  lanes[0] = lane_slot(q, 4);
  lanes[1] = lane_slot(q, 9);
  for (unsigned i = 0; i < 2; i++) gens[i] = sb_slot_gen(header_of(lanes[i]));
  slot = q->slot;
  shm = q->shm;
  expect_is(close_now(false, false), SB_OK, "the status of closing");
}
static void leave_it(void) { (void)sb_queue_close(q); }
static void a_queue_is_freed(void) {
  closed_queue();
  leave_it();
  expect(sb_disposal_free(t.c, slot), "it was not freed");
  for (unsigned i = 0; i < 2; i++) {
    const sb_lane_shm *l = sb_slot_at(t.b, lanes[i]);
    expect_is(header_of(lanes[i]), sb_slot_word(SB_SLOT_FREE, 0, gens[i] + 1), "the header of a lane");
    expect_is(sb_position_place(l->base), SB_PAGE_CELLS, "where its next life begins");
    expect_is(sb_link_state(l->root), SB_LINK_EMPTY, "its root");
  }
  expect_is(shm->lanes, 0, "the first lane");
  unsigned leaves = 0; /* no page is left */
  for (uint32_t c = 0; c < t.b->mapped_chunks; c++) {
    uint64_t is = SB_LOAD(&t.b->chunks[c], SB_RELAXED);
    if (sb_chunk_state(is) != SB_CHUNK_CLASS || sb_chunk_class(is) != sb_class_of_kind(t.b, SB_KIND_LEAF)) continue;
    for (uint32_t u = 0; u + SB_LEAF_UNITS <= SB_CHUNK_UNITS; u += SB_LEAF_UNITS)
      leaves += sb_slot_state(header_of(c * SB_CHUNK_UNITS + u)) != SB_SLOT_FREE;
  }
  expect_is(leaves, 0, "the leaves that are in use");
}
static void a_message_in_a_lane_keeps_a_queue(void) {
  const unsigned numbers[] = {0, 4, 9};
  for (unsigned i = 0; i < 3; i++) {
    q = queue_named((const char *[]){"a", "b", "c"}[i], RANKED(9));
    put_in_three_lanes();
    set_ranked(q, numbers[i], 0, SB_CELL_ACQUIRED, OTHER);
    expect_is(close_now(false, false), SB_OK, "the status of closing");
    expect_is(removed, 2, "how many messages went");
    slot = q->slot;
    leave_it();
    expect(!sb_disposal_free(t.c, slot), "it was freed with a message in lane %u", numbers[i]);
  }
}
/* A chain in which a slot was freed already ends there. */
static void a_chain_that_broke(void) {
  closed_queue();
  leave_it();
  (void)sb_slab_free_gen(t.b, lanes[0], gens[0]);
  expect(sb_disposal_free(t.c, slot), "it was not freed");
  expect_is(shm->lanes, lanes[1], "the lane behind one that was freed");
  expect_is(sb_slot_state(header_of(lanes[1])), SB_SLOT_PUBLISHED, "the state of its slot");
}
/* A reaper of a process that was killed at the same place frees the lane meanwhile. */
static void free_first(void) { (void)sb_slab_free_gen(t.b, lanes[0], gens[0]); }
static void a_reaper_frees_too(void) {
  closed_queue();
  leave_it();
  meanwhile(&shm->lanes, BEFORE_STORE, 1, free_first);
  expect(sb_disposal_free(t.c, slot), "it was not freed");
  if (!has_acted()) return;
  expect_is(header_of(lanes[0]), sb_slot_word(SB_SLOT_FREE, 0, gens[0] + 1), "the header of that lane");
  expect_is(header_of(lanes[1]), sb_slot_word(SB_SLOT_FREE, 0, gens[1] + 1), "the header of the next lane");
}
/* Each lane is listed before it is unlinked. */
static unsigned announced;
static void look_at_holding(void) {
  announced = SB_LOAD(&sb_holding_at(t.b, t.c->page_token)->what, SB_RELAXED) ==
              sb_holding_what(SB_HOLD_SLOT, lanes[0], gens[0]);
}
static void a_lane_is_announced(void) {
  closed_queue();
  leave_it();
  announced = 0;
  meanwhile(&shm->lanes, BEFORE_STORE, 1, look_at_holding);
  (void)sb_disposal_free(t.c, slot);
  if (has_acted()) expect_is(announced, 1, "whether the lane was announced");
}
/* A lane of an earlier queue: its positions continue in the next one, whatever their numbers are. */
static void a_lane_is_used_again(void) {
  closed_queue();
  leave_it();
  uint64_t closing = SB_LOAD(&shm->closing, SB_RELAXED);
  expect(sb_disposal_free(t.c, slot), "it was not freed");
  q = queue_named("next", RANKED(20));
  while (q->slot != slot)
    q = queue_named((char[]){(char)('A' + (int)(q->slot % 26)), (char)('a' + (int)(q->slot % 25)), 0}, RANKED(20));
  expect_is(q->shm->lanes, 0, "the first lane");
  expect_is(q->shm->came, q->shm->base, "what came");
  expect_is(q->shm->ready[0] | q->shm->ready[1] | q->shm->ready[2] | q->shm->ready[3], 0, "the bits");
  expect_is(word(), sb_closing_word(SB_ASKED_NOT, 0, sb_closing_number(closing) + 1), "the closing word");
  put_several(q, LAST, 1);
  expect_is(sb_position_lane(base_of(q, 20)), 20, "the lane of its positions");
}

static const test_case CASES[] = {
    {"lanes_closed: asked", "a deletion is asked for, with its conditions and the next number",
     a_deletion_is_asked_for},
    {"lanes_closed: unused", "a deletion of an unused queue is refused beside a consumer", a_deletion_if_unused},
    {"lanes_closed: empty", "a deletion of an empty queue is refused by a message in any lane", a_deletion_if_empty},
    {"lanes_closed: settled", "a deletion of a settled queue is refused by a message that a connection holds",
     a_deletion_if_settled},
    {"lanes_closed: nothing", "without a question nothing is decided", nothing_was_asked_for},
    {"lanes_closed: follows", "the queue is closed once its word is", the_queue_follows_its_word},
    {"lanes_closed: earlier", "an earlier deletion is decided first", an_earlier_deletion_is_decided_first},
    {"lanes_closed: later", "what was judged does not decide a later deletion", a_later_deletion_is_judged_anew},
    {"lanes_closed: two", "of two that ask, one decides for the other", two_that_ask},
    {"lanes_closed: first", "a deletion that another asks for first is decided first", another_asks_first},
    {"lanes_closed: closed", "a deletion removes the messages of all lanes", a_queue_is_closed},
    {"lanes_closed: refused", "a deletion is refused for its conditions", closing_is_refused},
    {"lanes_closed: left", "one condition that failed has failed", closing_is_refused_for_one_that_leaves},
    {"lanes_closed: no reason", "of two conditions that hold by now neither has failed",
     closing_is_refused_for_no_reason_that_is_left},
    {"lanes_closed: taken", "a message that is taken meanwhile may have been the reason",
     a_message_that_is_taken_meanwhile},
    {"lanes_closed: decided", "a deletion that another process decides is this one's, too", another_process_decides},
    {"lanes_closed: no holding", "without a holding no lane is emptied", what_is_emptied},
    {"lanes_closed: put", "a put decides a deletion", a_put_that_decides},
    {"lanes_closed: late put", "a put that comes after the closing takes its message back", a_put_that_is_too_late},
    {"lanes_closed: reserved", "so does a reservation", a_reservation_that_is_too_late},
    {"lanes_closed: one lane", "a put without priorities reads no closing word", a_put_without_priorities},
    {"lanes_closed: late commit", "a commit drops its cell in a queue that ended", a_commit_that_is_too_late},
    {"lanes_closed: commit", "a staged message refuses a deletion", a_commit_that_refuses_a_deletion},
    {"lanes_closed: reaper", "the reaper decides a deletion", the_reaper_decides},
    {"lanes_closed: tails", "the reaper advances the tails of all lanes", the_reaper_advances_tails},
    {"lanes_closed: freed", "the lanes go with their queue, and their pages", a_queue_is_freed},
    {"lanes_closed: kept", "a message in any lane keeps a closed queue", a_message_in_a_lane_keeps_a_queue},
    {"lanes_closed: broke", "a chain ends at a lane that was freed", a_chain_that_broke},
    {"lanes_closed: reaper frees", "a lane is freed once", a_reaper_frees_too},
    {"lanes_closed: announced", "a lane is announced before it is unlinked", a_lane_is_announced},
    {"lanes_closed: again", "a new queue has no lane and no bit of an earlier one", a_lane_is_used_again},
};
SUBJECT(CASES)
