// SPDX-License-Identifier: Apache-2.0
/* sb_following and sb_reading: a consumer that reads a non-destructive queue, and takes nothing. */
#include "sb_following.h"

#include <string.h>

#include "calls.h"
#include "cells.h"
#include "meanwhile.h"
#include "sb_closing.h"
#include "sb_view.h"
#include "sb_wait.h"
#include "surroundings.h"
#include "system.h"

#define MESSAGES 5u
#define UNMADE (BROKER_CHUNKS * SB_CHUNK_UNITS - 1u) /* a slot of a segment that was never made */
#define HOUR UINT64_C(3600000000000)
#define LONG (SB_INLINE_BODY + 1u)

static sb_queue *q;
static sb_following *f;
static sb_choice choice;
static sb_taken taken;

static void begin_of(unsigned messages, uint64_t bytes) {
  sb_settings settings = UNLIMITED;
  settings.flags |= SB_QUEUE_NON_DESTRUCTIVE;
  q = begin_queue_of("q", settings, messages, bytes);
  choice = (sb_choice){0};
  f = sb_following_begin(q);
  if (f == NULL) die("sb_following_begin", 0);
}
static void begin_with(unsigned messages) { begin_of(messages, BYTES); }
static void begin(void) { begin_with(MESSAGES); }
/* `what` is at the cell of that number: it was read, and the cell is what it was. */
static uint64_t expect_read(uint64_t number, const char *what) {
  uint64_t token = new_token(), word = word_of(number);
  sb_status status = sb_following_take(q, f, &choice, token, &taken);
  expect(status == SB_OK, "%s: the status is %d", what, (int)status);
  expect(taken.position == at(number), "%s: number %llu was read, not %llu", what,
         (unsigned long long)(taken.position - q->base), (unsigned long long)number);
  expect_is(word_of(number), word, what);
  return token;
}
static void expect_status(sb_status should, const char *what) {
  sb_status status = sb_following_take(q, f, &choice, new_token(), &taken);
  expect(status == should, "%s: the status is %d, not %d", what, (int)status, (int)should);
}
static void schedule(uint64_t number, uint64_t due_ns) {
  message_of(number)->due_ns = due_ns;
  set_cell(number, SB_CELL_SCHEDULED, 0);
}
static void raise_early(void) { (void)SB_ADD(&q->shm->early, 1, SB_SEQ_CST); }
/* The cursor is at an owned cell: so many looks end there. The time of its patience passes with the first one. */
static void look_in_vain(unsigned looks) {
  answer_for_the_system();
  for (unsigned i = 0; i < looks; i++) {
    expect_status(SB_EMPTY, "at an owned cell");
    expect(choice.unfinished, "the caller is not told to look again");
    if (i == 0) says.now_ns += SB_FOLLOWING_PATIENCE_NS;
  }
}

/* ---- the cursor ---- */

static void each_message_once(void) {
  begin();
  uint64_t head = q->shm->head, handle = q->lanes[0].cursor;
  for (unsigned i = 0; i < MESSAGES; i++) (void)expect_read(i, "in turn");
  expect_status(SB_EMPTY, "behind all");
  expect(!choice.unfinished, "nothing is left to look at");
  expect_is(q->shm->head, head, "the head of the queue");
  expect_is(q->lanes[0].cursor, handle, "the cursor of the handle");
}
/* The head may be behind a message that is scheduled, or came back. */
static void it_begins_with_the_oldest(void) {
  begin();
  sb_following_end(f);
  SB_STORE(&q->shm->head, at(3), SB_RELAXED);
  q->lanes[0].cursor = at(4);
  f = sb_following_begin(q);
  (void)expect_read(0, "the first one");
}
static void pages_that_are_gone(void) {
  begin_with(SB_PAGE_CELLS + 1);
  sb_leaf_ref leaf = leaf_of(0);
  for (uint64_t i = 0; i < SB_PAGE_CELLS; i++) sb_ring_finish(t.c, &q->lanes[0].ring, &leaf, at(i));
  (void)expect_read(SB_PAGE_CELLS, "behind a page that is gone");
}
static void cells_without_messages(void) {
  begin();
  set_cell(0, SB_CELL_TOMBSTONE, 0);
  set_cell(1, SB_CELL_TOMBSTONE, 0);
  (void)expect_read(2, "behind what is gone");
}
static void many_that_it_does_not_want(void) {
  begin_with(0);
  for (unsigned i = 0; i <= SB_CHOICE_LOOKS; i++) {
    if (put(&t, q, i + 1) != SB_OK) die("put", (int)i);
    sb_message_shm *m = sb_slot_at(t.b, sb_cell_slot(word_of(i)));
    if (i < SB_CHOICE_LOOKS) m->expires_ns = 1;
  }
  expect_status(SB_EMPTY, "many that have expired");
  expect(choice.unfinished, "the search is over");
  (void)expect_read(SB_CHOICE_LOOKS, "the one behind them");
}
static void its_own_messages(void) {
  begin();
  choice.no_local = true;
  message_of(2)->publisher = OTHER;
  (void)expect_read(2, "what another connection published");
  expect_status(SB_EMPTY, "its own ones");
}
static void one_that_expires_now(void) {
  begin();
  answer_for_the_system();
  message_of(0)->expires_ns = says.now_ns;
  message_of(1)->expires_ns = says.now_ns + 1;
  (void)expect_read(1, "behind one that expires now");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "the cell of the one that has expired");
}

/* ---- ends ---- */

static void a_queue_that_is_paused(void) {
  begin();
  SB_STORE(&q->shm->flags, SB_QUEUE_PAUSED | SB_QUEUE_NON_DESTRUCTIVE, SB_RELAXED);
  expect_status(SB_EMPTY, "a queue that is paused");
  SB_STORE(&q->shm->flags, SB_QUEUE_NON_DESTRUCTIVE, SB_RELAXED);
  (void)expect_read(0, "afterwards");
}
static void a_queue_that_is_closed(void) {
  begin();
  SB_STORE(&q->shm->state, q->state + SB_QUEUE_CLOSED - SB_QUEUE_OPEN, SB_RELAXED);
  expect_status(SB_DELETED, "a queue that is closed");
}
static void a_deletion_is_decided(void) {
  begin();
  (void)expect_read(0, "before a deletion");
  set_word(1, cell_word(1, SB_CELL_CLOSING, 0) | SB_CLOSING_IF_EMPTY);
  (void)expect_read(2, "behind a deletion that is refused");
  set_cell(3, SB_CELL_CLOSED, 0);
  expect_status(SB_DELETED, "at a closed cell");
}
static void nobody_gets_one(void) {
  begin();
  expect_is(sb_take_for_consumer(q, new_token(), &taken), SB_STAYS, "the status of a get");
  SB_STORE(&q->shm->flags, SB_QUEUE_PAUSED | SB_QUEUE_NON_DESTRUCTIVE, SB_RELAXED);
  expect_is(sb_take_for_consumer(q, new_token(), &taken), SB_STAYS, "the same while it is paused");
}

/* ---- cells that others own ---- */

static void a_cell_that_is_owned_stops_it(void) {
  begin();
  set_cell(1, SB_CELL_REMOVING, OTHER);
  (void)expect_read(0, "before it");
  look_in_vain(SB_FOLLOWING_STOPS - 1);
  set_cell(1, SB_CELL_AVAILABLE, 0);
  (void)expect_read(1, "when it is free");
  set_cell(2, SB_CELL_STAGED, OTHER);
  look_in_vain(SB_FOLLOWING_STOPS - 1); /* counted anew */
}
static void it_is_passed_in_the_end(void) {
  begin();
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  look_in_vain(SB_FOLLOWING_STOPS - 1);
  (void)expect_read(1, "behind an owned cell");
  (void)expect_read(2, "the next one, without a stop");
  set_cell(0, SB_CELL_AVAILABLE, 0);
  (void)expect_read(0, "when the owner gives it back");
  (void)expect_read(3, "then the next one");
}
static void an_owner_without_a_processor(void) {
  begin();
  answer_for_the_system();
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  set_cell(1, SB_CELL_ACQUIRED, OTHER);
  for (unsigned i = 0; i < 2 * SB_FOLLOWING_STOPS; i++) expect_status(SB_EMPTY, "in its time");
  says.now_ns += SB_FOLLOWING_PATIENCE_NS - 1;
  expect_status(SB_EMPTY, "at the end of its time");
  says.now_ns++;
  for (unsigned i = 1; i < SB_FOLLOWING_STOPS; i++) expect_status(SB_EMPTY, "at the next cell");
  (void)expect_read(2, "behind both");
  set_cell(3, SB_CELL_ACQUIRED, OTHER);
  for (unsigned i = 0; i < 2 * SB_FOLLOWING_STOPS; i++) expect_status(SB_EMPTY, "it is patient anew");
}
static void decide(void) { set_cell(0, SB_CELL_AVAILABLE, 0); }
static void a_commit_that_returned_comes_first(void) {
  begin();
  set_cell(0, SB_CELL_STAGED, OTHER);
  look_in_vain(SB_FOLLOWING_STOPS - 1);
  meanwhile(&cell(1)->word, AFTER_LOAD, 1, decide);
  sb_status status = sb_following_take(q, f, &choice, new_token(), &taken);
  bool acted = has_acted();
  expect_is(status, SB_OK, "the status");
  expect_is(taken.position, at(acted ? 0 : 1), "what was read");
}
static void one_that_was_passed_ends(void) {
  begin();
  set_cell(0, SB_CELL_STAGED, OTHER);
  look_in_vain(SB_FOLLOWING_STOPS - 1);
  (void)expect_read(1, "behind it");
  set_cell(0, SB_CELL_TOMBSTONE, 0);
  (void)expect_read(2, "the next one");
  expect_is(f->notes->passed.count, 0, "what is noted");
}
static void a_page_that_was_passed_is_freed(void) {
  begin_with(SB_PAGE_CELLS + 2);
  set_cell(0, SB_CELL_STAGED, OTHER);
  look_in_vain(SB_FOLLOWING_STOPS - 1);
  for (uint64_t i = 1; i < SB_PAGE_CELLS; i++) (void)expect_read(i, "behind it");
  sb_leaf_ref leaf = leaf_of(0);
  for (uint64_t i = 0; i < SB_PAGE_CELLS; i++) sb_ring_finish(t.c, &q->lanes[0].ring, &leaf, at(i));
  (void)expect_read(SB_PAGE_CELLS, "on the next page");
  expect_is(f->notes->passed.count, 0, "what is noted");
}

/* ---- delays ---- */

static void one_that_is_scheduled(void) {
  begin();
  answer_for_the_system();
  schedule(0, says.now_ns + HOUR);
  schedule(2, says.now_ns + HOUR / 2);
  (void)expect_read(1, "behind a scheduled one");
  (void)expect_read(3, "behind the next one");
  set_cell(0, SB_CELL_AVAILABLE, 0);
  set_cell(2, SB_CELL_AVAILABLE, 0);
  (void)expect_read(4, "it does not know that they are ready");
  says.now_ns += HOUR / 2;
  (void)expect_read(2, "when its delay is over");
  says.now_ns += HOUR / 2;
  (void)expect_read(0, "the other one");
  expect_status(SB_EMPTY, "behind all");
  expect_is(f->notes->waiting.count + f->notes->passed.count, 0, "what is noted");
}
static void one_that_is_due_but_not_ready(void) {
  begin();
  answer_for_the_system();
  schedule(0, says.now_ns + HOUR);
  (void)expect_read(1, "behind it");
  says.now_ns += HOUR;
  (void)expect_read(2, "the housekeeper is late");
  set_cell(0, SB_CELL_AVAILABLE, 0);
  (void)expect_read(0, "then it is first");
}
static void one_that_an_administrator_delivers(void) {
  begin();
  answer_for_the_system();
  schedule(0, says.now_ns + HOUR);
  schedule(1, says.now_ns + HOUR);
  (void)expect_read(2, "behind them");
  set_cell(1, SB_CELL_AVAILABLE, 0);
  raise_early();
  (void)expect_read(1, "before its time");
  (void)expect_read(3, "the other one waits");
  expect_is(f->notes->waiting.count, 1, "how many wait");
  raise_early();
  (void)expect_read(4, "nothing is ready");
  expect_is(f->notes->waiting.count, 1, "how many wait then");
}
/* A process that had the queue open was killed: perhaps it had made a message ready before its time. */
static void a_reaper_that_does_not_know(void) {
  begin();
  answer_for_the_system();
  schedule(0, says.now_ns + HOUR);
  (void)expect_read(1, "behind it");
  set_cell(0, SB_CELL_AVAILABLE, 0);
  die_in_debt("q");
  (void)sb_housekeeper_reap(t.c);
  (void)expect_read(0, "after the reaping");
}
static void what_was_early_before_it_came(void) {
  begin();
  sb_following_end(f);
  raise_early();
  f = sb_following_begin(q);
  answer_for_the_system();
  schedule(0, says.now_ns + HOUR);
  (void)expect_read(1, "behind it");
  (void)expect_read(2, "the next one");
  expect_is(f->notes->waiting.count, 1, "it waits");
}
static void one_that_is_dead(void) {
  begin();
  schedule(0, sb_now_ns() + HOUR);
  SB_STORE(&cell(0)->side, SB_LOAD(&cell(0)->side, SB_RELAXED) | sb_side_why(SB_WHY_REJECTED), SB_RELAXED);
  (void)expect_read(1, "behind a dead one");
  expect_is(f->notes->waiting.count + f->notes->passed.count, 0, "what is noted");
}
static void notes_in_their_order(void) {
  sb_note_heap heap = {NULL, 0, 0};
  static const uint64_t keys[] = {5, 9, 1, 7, 3, 8, 2, 6, 4, 5, 1, 9, 0};
  unsigned n = sizeof keys / sizeof keys[0];
  for (unsigned i = 0; i < n; i++) {
    expect(sb_note_reserve(&heap, 1), "no memory");
    sb_note_add(&heap, (sb_note){keys[i], 100 + keys[i], i});
  }
  uint64_t last = 0;
  for (unsigned i = 0; i < n; i++) {
    sb_note note = sb_note_first(&heap);
    expect(note.key >= last && note.position == 100 + note.key, "note %u: key %llu", i, (unsigned long long)note.key);
    last = note.key;
  }
  expect_is(heap.count, 0, "what is left");
  expect_is(last, 9, "the last one");
}

/* ---- readings ---- */

static void a_copy_of_the_message(void) {
  begin();
  message_of(0)->priority = 7;
  uint64_t token = expect_read(0, "a short one");
  expect(taken.message != message_of(0), "it is not copied");
  expect_is(taken.message->priority, 7, "its priority");
  expect_is(taken.message->body_length, BYTES, "its length");
  expect(memcmp((char *)taken.message + taken.message->body_offset, (char *)message_of(0) + message_of(0)->body_offset,
                BYTES) == 0,
         "its body is another one");
  expect_is(sb_side_count(taken.side), 1, "how often it was delivered");
  expect_is(taken.side & SB_SIDE_REDELIVERED, 0, "whether it was before");
  sb_taken found;
  expect(sb_reading_find(t.c, token, &found) && found.message == taken.message, "it is not found by its token");
  set_cell(0, SB_CELL_TOMBSTONE, 0);
  expect_is(sb_settle_message(q, token, SB_COUNT_ACKED), SB_OK, "the status of the ack");
  expect_is(q->ledger->counters[SB_COUNT_ACKED], 0, "how many were acknowledged");
  expect(!sb_reading_find(t.c, token, &found), "it is found after it has ended");
  expect_is(sb_settle_message(q, token, SB_COUNT_ACKED), SB_SETTLED, "the status of a second ack");
}
static void others_that_end_a_reading(void) {
  begin();
  expect_is(sb_dispose(q, expect_read(0, "first"), SB_REASON_REJECTED), SB_OK, "the status of a rejection");
  SB_STORE(&q->shm->flags, SB_QUEUE_DEAD_LETTERS | SB_QUEUE_NON_DESTRUCTIVE, SB_RELAXED);
  expect_is(sb_dispose(q, expect_read(1, "second"), SB_REASON_REJECTED), SB_OK, "the same with dead letters");
  expect_is(sb_release_message(q, expect_read(2, "third"), SB_UNDELIVER), SB_OK, "the status of a return");
  expect_is(sb_release_unmarked(q, expect_read(3, "fourth")), SB_SETTLED, "the status of a return to the queue");
  for (unsigned i = 0; i < 4; i++) expect_is(word_of(i), cell_word(i, SB_CELL_AVAILABLE, 0), "a cell");
}
static void one_that_shall_come_again(void) {
  begin();
  uint64_t first = expect_read(0, "first"), second = expect_read(1, "second");
  expect_is(sb_release_message(q, second, SB_REQUEUE), SB_OK, "the status");
  expect_is(sb_release_message(q, first, SB_REQUEUE), SB_OK, "the status");
  (void)expect_read(0, "the lower one, again");
  expect_is(sb_side_count(taken.side), 2, "how often it was delivered");
  expect(taken.side & SB_SIDE_REDELIVERED, "it is not marked");
  second = expect_read(1, "the other one, again");
  expect_is(sb_release_message(q, second, SB_REQUEUE), SB_OK, "the status");
  (void)expect_read(1, "a third time");
  expect_is(sb_side_count(taken.side), 3, "how often it was delivered then");
  (void)expect_read(2, "then the next one");
}
static void one_that_is_gone_does_not_come_again(void) {
  begin();
  uint64_t first = expect_read(0, "first");
  set_cell(0, SB_CELL_TOMBSTONE, 0);
  expect_is(sb_release_message(q, first, SB_REQUEUE), SB_OK, "the status");
  (void)expect_read(1, "the next one");
}
static void its_consumer_is_over(void) {
  begin();
  uint64_t first = expect_read(0, "first"), second = expect_read(1, "second");
  sb_following_end(f);
  expect_is(sb_release_message(q, first, SB_REQUEUE), SB_OK, "the status of a return");
  expect_is(sb_settle_message(q, second, SB_COUNT_ACKED), SB_OK, "the status of an ack");
}
/* Each reading may come again, whatever is noted meanwhile. */
static void there_is_room_for_notes(void) {
  begin_with(40);
  uint64_t tokens[20];
  for (unsigned i = 0; i < 20; i++) tokens[i] = expect_read(i, "in turn");
  for (unsigned i = 20; i < 30; i++) set_cell(i, SB_CELL_STAGED, OTHER);
  look_in_vain(10 * (SB_FOLLOWING_STOPS - 1)); /* it passes them one by one */
  fail_allocation(1);                          /* returning needs none */
  for (unsigned i = 0; i < 20; i++) expect_is(sb_release_message(q, tokens[i], SB_REQUEUE), SB_OK, "the status");
  expect(f->notes->passed.count <= f->notes->passed.room, "there are more notes than room");
}
static void the_message_changes_during_the_copy(void) {
  begin();
  meanwhile(sb_slot_header(t.b, slot_of(0)), AFTER_LOAD, 1, decide);
  (void)expect_read(0, "unchanged");
  (void)has_acted();
}
static void remove_first(void) { set_cell(0, SB_CELL_TOMBSTONE, 0); }
static void it_is_removed_during_the_copy(void) {
  begin();
  meanwhile(sb_slot_header(t.b, slot_of(0)), AFTER_LOAD, 1, remove_first);
  sb_status status = sb_following_take(q, f, &choice, new_token(), &taken);
  bool acted = has_acted();
  expect_is(status, SB_OK, "the status");
  expect_is(taken.position, at(acted ? 1 : 0), "what was read");
}
static void use_again(void) {
  sb_word *header = sb_slot_header(t.b, slot_of(0));
  uint64_t h = SB_LOAD(header, SB_RELAXED);
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, sb_slot_refs(h), sb_slot_gen(h) + 1), SB_RELAXED);
}
static void its_slot_is_used_again_during_the_copy(void) {
  begin();
  meanwhile(sb_slot_header(t.b, slot_of(0)), AFTER_LOAD, 1, use_again);
  uint64_t gen = sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot_of(0)), SB_RELAXED));
  sb_status status = sb_following_take(q, f, &choice, new_token(), &taken);
  expect_is(status, SB_OK, "the status");
  expect_is(taken.gen, gen + has_acted(), "the generation of what was copied");
}
static void a_damaged_header(void) {
  begin();
  message_of(0)->properties_length = SB_MAX_PREFIX;
  uint64_t dropped = q->ledger->counters[SB_COUNT_DROPPED];
  (void)expect_read(1, "behind a damaged one");
  expect_is(word_of(0), cell_word(0, SB_CELL_TOMBSTONE, 0), "its cell");
  expect_is(q->ledger->counters[SB_COUNT_DROPPED], dropped + 1, "how many were dropped");
}
static void a_message_that_lies_nowhere(void) {
  begin();
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, UNMADE, 0, leaf_of(0).gen));
  expect_status(SB_CORRUPT, "a message in memory that is not there");
  set_word(0, sb_cell_open(SB_CELL_SCHEDULED, UNMADE, 0, leaf_of(0).gen));
  expect_status(SB_CORRUPT, "a scheduled one");
}
static void memory_of_the_process(void) {
  begin();
  uint64_t token = new_token();
  for (unsigned nth = 1; nth <= 2; nth++) { /* for its note, and for the copy */
    fail_allocation(nth);
    expect_is(sb_following_take(q, f, &choice, token, &taken), SB_SYSTEM, "the status without memory");
  }
  (void)expect_read(0, "with memory");
  for (unsigned nth = 1; nth <= 2; nth++) {
    fail_allocation(nth);
    expect(sb_following_begin(q) == NULL, "it begins without memory");
  }
}

/* ---- long bodies ---- */

static void begin_long(void) { begin_of(3, LONG); }
static uint64_t refs_of(uint64_t number) {
  return sb_slot_refs(SB_LOAD(sb_slot_header(t.b, slot_of(number)), SB_RELAXED));
}
static unsigned bits_in(uint64_t word) { return (unsigned)__builtin_popcountll(word); }
static void a_view_of_a_long_body(void) {
  begin_long();
  uint32_t slot = slot_of(0);
  uint64_t token = expect_read(0, "a long one");
  expect(taken.message == sb_slot_at(t.b, slot), "it is copied");
  expect_is(bits_in(refs_of(0)), 2, "how many references there are");
  expect_is((uint32_t)q->ledger->holding, 0, "how many messages are held");
  expect_is(sb_settle_message(q, token, SB_COUNT_ACKED), SB_OK, "the status of the ack");
  expect_is(bits_in(refs_of(0)), 1, "how many references there are afterwards");
}
static void a_view_that_is_lent(void) {
  begin_long();
  uint64_t token = expect_read(0, "a long one");
  uint32_t slot = slot_of(0);
  expect_is(sb_reading_slot(t.c, token), 0, "the slot before it is lent");
  expect_is(sb_reading_lend(t.c, token), SB_OK, "the status of the first loan");
  expect_is(sb_reading_lend(t.c, token), SB_OK, "the status of the second loan");
  expect_is(sb_settle_message(q, token, SB_COUNT_ACKED), SB_OK, "the status of the ack");
  expect_is(sb_settle_message(q, token, SB_COUNT_ACKED), SB_SETTLED, "the status of a second ack");
  expect_is(sb_reading_lend(t.c, token), SB_SETTLED, "the status of a loan afterwards");
  expect_is(sb_reading_slot(t.c, token), slot, "the slot that is lent");
  expect(sb_reading_unlend(t.c, token), "it is not lent");
  expect_is(bits_in(refs_of(0)), 2, "how many references there are while it is lent");
  expect(sb_reading_unlend(t.c, token), "it is not lent any more");
  expect_is(bits_in(refs_of(0)), 1, "how many references there are at the end");
  expect(!sb_reading_unlend(t.c, token), "it is lent for ever");
  expect(!sb_reading_unlend(t.c, 0) && !sb_reading_unlend(t.c, UINT64_MAX), "no token at all");
}
static void a_short_body_is_not_lent(void) {
  begin();
  uint64_t token = expect_read(0, "a short one");
  expect_is(sb_reading_lend(t.c, token), SB_CORRUPT, "the status");
  expect_is(sb_reading_lend(t.c, 0), SB_SETTLED, "the status of no reading");
}
static void as_many_views_as_there_can_be(void) {
  begin_long();
  uint64_t all = (UINT64_C(1) << SB_MAX_REFS) - 1;
  set_references(0, all);
  expect_status(SB_LIMIT, "no view is left");
  expect(f->stuck, "nobody looks again");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "its cell");
  set_references(0, 1);
  (void)expect_read(0, "when there is one");
  expect(!f->stuck, "it is stuck for ever");
}
static void others_are_told_of_what_it_owned(void) {
  begin_long();
  uint32_t node = wait_at(q, FOR_WORK, 0);
  (void)expect_read(0, "a long one");
  expect(was_told(node), "others that met the owned cell are not told");
}
static void take_first(void) { set_cell(0, SB_CELL_REMOVING, OTHER); }
static void another_one_owns_it_meanwhile(void) {
  begin_long();
  meanwhile(&cell(0)->word, BEFORE_CAS, 1, take_first);
  sb_status status = sb_following_take(q, f, &choice, new_token(), &taken);
  if (has_acted()) {
    expect_is(status, SB_EMPTY, "the status");
    expect(choice.unfinished, "nobody looks again");
  }
}

static const test_case CASES[] = {
    {"following: in turn", "a consumer reads each message once, and changes nothing", each_message_once},
    {"following: oldest", "a consumer begins with the oldest message, wherever the head is", it_begins_with_the_oldest},
    {"following: pages", "the cursor passes pages that are gone", pages_that_are_gone},
    {"following: tombstones", "the cursor passes what is gone", cells_without_messages},
    {"following: many", "a long search lets others use the connection", many_that_it_does_not_want},
    {"following: no_local", "a consumer reads what it wants", its_own_messages},
    {"following: expired", "a message that has expired is passed, and left", one_that_expires_now},
    {"following: paused", "a queue that is paused shows nothing", a_queue_that_is_paused},
    {"following: closed", "a queue that is closed shows nothing", a_queue_that_is_closed},
    {"following: deletion", "a consumer decides about a deletion that it meets", a_deletion_is_decided},
    {"following: get", "nobody gets a message", nobody_gets_one},
    {"following: owned", "the cursor waits at an owned cell", a_cell_that_is_owned_stops_it},
    {"following: patience", "an owner that has no processor for a while is waited for, and a stopped one once",
     an_owner_without_a_processor},
    {"following: passed", "the cursor passes an owned cell in the end, and comes back", it_is_passed_in_the_end},
    {"following: commit", "the message of a commit that returned comes first", a_commit_that_returned_comes_first},
    {"following: ends", "a message that was passed may end", one_that_was_passed_ends},
    {"following: freed", "the page of a message that was passed may be freed", a_page_that_was_passed_is_freed},
    {"following: scheduled", "a scheduled message comes when its delay is over", one_that_is_scheduled},
    {"following: late", "a message that is due is looked at until it is ready", one_that_is_due_but_not_ready},
    {"following: early", "a message that is ready before its time comes at once", one_that_an_administrator_delivers},
    {"following: reaped", "after a death a consumer looks at what waits", a_reaper_that_does_not_know},
    {"following: early before", "what was early before a consumer came is nothing to it",
     what_was_early_before_it_came},
    {"following: dead", "a dead message never comes", one_that_is_dead},
    {"following: notes", "the note with the lowest key comes first", notes_in_their_order},
    {"reading: copy", "a short message is copied, and its end changes nothing", a_copy_of_the_message},
    {"reading: ends", "whatever ends a reading, the message stays", others_that_end_a_reading},
    {"reading: again", "a returned message comes again, the lowest first", one_that_shall_come_again},
    {"reading: gone", "a returned message that is gone does not come", one_that_is_gone_does_not_come_again},
    {"reading: over", "readings outlast their consumer", its_consumer_is_over},
    {"reading: room", "each reading may come again without memory", there_is_room_for_notes},
    {"reading: unchanged", "a copy beside others that change nothing", the_message_changes_during_the_copy},
    {"reading: removed", "a message that is removed during the copy is none", it_is_removed_during_the_copy},
    {"reading: used again", "a slot that is used again during the copy is looked at anew",
     its_slot_is_used_again_during_the_copy},
    {"reading: damaged", "a damaged message is dropped", a_damaged_header},
    {"reading: nowhere", "a message that lies nowhere is damage", a_message_that_lies_nowhere},
    {"reading: memory", "without memory of the process nothing is lost", memory_of_the_process},
    {"reading: view", "a long body is read in place", a_view_of_a_long_body},
    {"reading: lent", "a body that is lent outlasts the reading", a_view_that_is_lent},
    {"reading: not lent", "a short body is not lent", a_short_body_is_not_lent},
    {"reading: limit", "without a view a consumer looks again later", as_many_views_as_there_can_be},
    {"reading: told", "others are told of a cell that was owned", others_are_told_of_what_it_owned},
    {"reading: lost race", "another process may own the cell meanwhile", another_one_owns_it_meanwhile},
};
SUBJECT(CASES)
