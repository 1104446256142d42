// SPDX-License-Identifier: Apache-2.0
/* sb_choice: a consumer that takes only messages that other connections published. `t.c` takes; it published a
 * message unless the case says otherwise. */
#include "sb_choice.h"

#include <string.h>

#include "calls.h"
#include "cells.h"
#include "meanwhile.h"
#include "sb_closing.h"
#include "system.h"
#include "sb_wait.h"

#define MESSAGES 5u
#define UNMADE (BROKER_CHUNKS * SB_CHUNK_UNITS - 1u) /* a slot of a segment that was never made */

static sb_queue *q;
static sb_taken taken;
static sb_choice choice = {.no_local = true};

static void make_foreign(uint64_t number) { message_of(number)->publisher = OTHER; }
static void begin(void) {
  q = begin_queue("q", UNLIMITED, MESSAGES);
  choice.cursor = 0;
}
/* Of the messages 0 to 4, 1, 2 and 4 were published by another connection. */
static void begin_mixed(void) {
  begin();
  make_foreign(1);
  make_foreign(2);
  make_foreign(4);
}
static sb_status take(void) { return sb_choice_take(q, &choice, new_token(), &taken); }
static void expect_taken(uint64_t number, uint64_t then, const char *what) {
  sb_status status = take();
  expect(status == SB_OK, "%s: the status is %d", what, (int)status);
  expect(taken.position == at(number), "%s: number %llu was taken, not %llu", what,
         (unsigned long long)(taken.position - q->base), (unsigned long long)number);
  expect(choice.cursor == at(then), "%s: the cursor is at %llu, not %llu", what,
         (unsigned long long)(choice.cursor - q->base), (unsigned long long)then);
  expect(word_of(number) == cell_word(number, SB_CELL_ACQUIRED, t.c->id), "%s: the cell is not taken", what);
}
static void expect_status(sb_status should, uint64_t then, const char *what) {
  sb_status status = take();
  expect(status == should, "%s: the status is %d, not %d", what, (int)status, (int)should);
  expect(choice.cursor == at(then), "%s: the cursor is at %llu, not %llu", what,
         (unsigned long long)(choice.cursor - q->base), (unsigned long long)then);
}

/* How often the core came to that place of sb_choice.c to which it came most. */
#define SITES 16u
static const char *sites[SITES];
static unsigned counts[SITES];
static void count_site(const char *site) {
  unsigned i = 0;
  if (strstr(site, "sb_choice.c") == NULL) return;
  while (i + 1 < SITES && sites[i] != NULL && strcmp(sites[i], site) != 0) i++;
  sites[i] = site;
  counts[i]++;
}
static unsigned most(void) {
  unsigned n = 0;
  for (unsigned i = 0; i < SITES; i++) n = counts[i] > n ? counts[i] : n;
  return n;
}
/* Damage is reported after this many looks at the same cell. */
static void expect_damage(uint64_t then, void (*step)(const char *site), const char *what) {
  memset(sites, 0, sizeof sites);
  memset(counts, 0, sizeof counts);
  at_step = step;
  expect_status(SB_CORRUPT, then, what);
  at_step = NULL;
  if (has_steps()) expect_is(most(), SB_MAX_RETRIES + 1, what);
}

/* ---- what comes next ---- */

/* Neither the handle's cursor nor the queue's head moves: the own messages are there for others. */
static void foreign_messages_in_turn(void) {
  begin_mixed();
  uint64_t handle = q->lanes[0].cursor, head = q->shm->head;
  expect_taken(1, 2, "the first one");
  expect_taken(2, 3, "the second one");
  expect_taken(4, 5, "the third one");
  expect_status(SB_EMPTY, 5, "behind all");
  expect_is(q->lanes[0].cursor, handle, "the cursor of the handle");
  expect_is(q->shm->head, head, "the head of the queue");
  for (unsigned i = 0; i < 4; i += 3) {
    expect_is(word_of(i), cell_word(i, SB_CELL_AVAILABLE, 0), "the word of an own message");
    expect_is(bits_of(i) >> at(i) % SB_PAGE_CELLS & 1, 0, "the bit of an own message");
  }
}
/* What is ready before the cursor, and no bit leads to, is not handled here. */
static void a_search_begins_at_the_cursor(void) {
  begin();
  for (unsigned i = 0; i < MESSAGES; i++) make_foreign(i);
  choice.cursor = at(2);
  expect_taken(2, 3, "at the cursor");
}
/* Page 0 is finished, and freed. */
static void pages_that_are_gone(void) {
  q = begin_queue("q", UNLIMITED, SB_PAGE_CELLS + 1);
  sb_leaf_ref leaf = leaf_of(0);
  for (uint64_t i = 0; i < SB_PAGE_CELLS; i++) sb_ring_finish(t.c, &q->lanes[0].ring, &leaf, at(i));
  set_cell(SB_PAGE_CELLS, SB_CELL_FREE, 0);
  choice.cursor = 0;
  expect_status(SB_EMPTY, SB_PAGE_CELLS, "a free cell behind a page that is gone");
}
static void cells_that_are_passed(void) {
  begin();
  make_foreign(3);
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  set_cell(1, SB_CELL_SCHEDULED, 0);
  set_cell(2, SB_CELL_TOMBSTONE, 0);
  expect_taken(3, 4, "behind cells that are not ready");
  expect_is(q->shm->requeued, 0, "`requeued`");
}
static void cells_of_another_page(void) {
  begin();
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 0, leaf_of(0).gen + 1));
  expect_damage(0, count_site, "a cell of another page");
}
/* The page was used again while it was looked at. */
static void repair(void) { set_cell(0, SB_CELL_AVAILABLE, 0); }
static void a_page_that_is_used_again(void) {
  begin();
  make_foreign(0);
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 0, leaf_of(0).gen + 1));
  meanwhile(&cell(0)->word, AFTER_LOAD, 1, repair);
  sb_status status = take();
  if (has_acted()) expect_is(status, SB_OK, "the status beside a page that is used again");
}
static void a_message_that_lies_nowhere(void) {
  begin();
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, UNMADE, 0, leaf_of(0).gen));
  expect_damage(0, count_site, "a message in memory that is not there");
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, UNMADE + 1, 0, leaf_of(0).gen));
  expect_status(SB_CORRUPT, 0, "a message behind the memory");
}

/* ---- ends ---- */

static void a_queue_that_is_paused(void) {
  begin_mixed();
  SB_STORE(&q->shm->flags, SB_QUEUE_PAUSED, SB_RELAXED);
  expect_status(SB_EMPTY, 0, "a queue that is paused");
  expect_is(word_of(1), cell_word(1, SB_CELL_AVAILABLE, 0), "the word of its message");
}
static void a_queue_that_is_closed(void) {
  begin_mixed();
  SB_STORE(&q->shm->state, q->state + SB_QUEUE_CLOSED - SB_QUEUE_OPEN, SB_RELAXED);
  expect_status(SB_DELETED, 0, "a queue that is closed");
  expect_is(word_of(1), cell_word(1, SB_CELL_AVAILABLE, 0), "the word of its message");
}
static void a_closed_cell(void) {
  begin();
  set_cell(3, SB_CELL_CLOSED, 0);
  expect_status(SB_DELETED, 3, "a closed cell");
}
static void a_deletion_is_decided(void) {
  begin();
  make_foreign(4);
  set_word(3, cell_word(3, SB_CELL_CLOSING, 0) | SB_CLOSING_IF_EMPTY);
  expect_taken(4, 5, "behind a deletion that is refused");
  expect_is(word_of(3), cell_word(3, SB_CELL_TOMBSTONE, 0), "the word of a deletion that is refused");
  choice.cursor = 0;
  set_cell(2, SB_CELL_CLOSING, 0);
  expect_status(SB_DELETED, 2, "a deletion without conditions");
  expect_is(word_of(2), cell_word(2, SB_CELL_CLOSED, 0), "the word of a deletion without conditions");
}

/* Others begin a deletion again and again. */
static void delete_again(const char *site) {
  sb_word *word = &((sb_leaf_shm *)sb_slot_at(t.b, taken.slot))->cells[at(3) % SB_PAGE_CELLS].word;
  atomic_store_explicit(word, taken.gen, memory_order_relaxed);
  count_site(site);
}
static void a_deletion_that_is_never_decided(void) {
  begin();
  taken.slot = leaf_of(3).slot;
  taken.gen = cell_word(3, SB_CELL_CLOSING, 0) | SB_CLOSING_IF_EMPTY;
  set_word(3, taken.gen);
  choice.cursor = at(3);
  if (has_steps()) expect_damage(3, delete_again, "a deletion that is never decided");
}

/* ---- what came back ---- */

static void what_came_back_before_the_cursor(void) {
  begin_mixed();
  mark(0);
  mark(1);
  mark(4);
  choice.cursor = at(3);
  expect_taken(1, 3, "what came back before the cursor, and is foreign");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "the word of an own message that came back");
  expect_taken(4, 5, "what comes next");
}
/* What came back at the cursor, or behind it, comes in its turn. */
static void what_came_back_behind_the_cursor(void) {
  begin_mixed();
  mark(2);
  choice.cursor = at(1);
  expect_taken(1, 2, "before what came back");
  expect_taken(2, 3, "what came back at the cursor");
}
static void marks_of_nothing(void) {
  begin();
  make_foreign(4);
  for (unsigned i = 0; i < 4; i++) {
    make_foreign(i);
    mark(i);
  }
  set_cell(0, SB_CELL_TOMBSTONE, 0);
  set_cell(1, SB_CELL_ACQUIRED, OTHER);
  set_word(2, sb_cell_open(SB_CELL_AVAILABLE, slot_of(2), 0, leaf_of(0).gen + 1));
  set_cell(3, SB_CELL_SCHEDULED, 0);
  uint64_t bits = bits_of(0);
  choice.cursor = at(4);
  expect_taken(4, 5, "behind marks of cells that are not ready");
  expect_is(bits_of(0), bits, "the marks");
}
/* `requeued` says that there is no bit, whatever a way says that was kept. */
static void no_mark_at_all(void) {
  begin_mixed();
  mark(1);
  mark(2);
  choice.cursor = at(4);
  expect_taken(1, 4, "what came back");
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  expect_taken(4, 5, "without a mark");
}

/* ---- commits ---- */

static void stage_first(void) {
  begin();
  make_foreign(0);
  make_foreign(2);
  set_cell(0, SB_CELL_STAGED, OTHER);
  SB_STORE(&q->shm->staged, 1, SB_RELAXED);
}
static void a_staged_cell_is_passed(void) {
  stage_first();
  expect_taken(2, 3, "behind a staged cell");
  expect(sb_requeued_is_marked(t.b, &q->lanes[0].ring, at(0)), "no bit leads back to a staged cell");
}
static void decide(void) { set_cell(0, SB_CELL_AVAILABLE, 0); }
static void a_commit_is_decided_meanwhile(void) {
  stage_first();
  meanwhile(&cell(2)->word, AFTER_LOAD, 1, decide);
  sb_status status = take();
  bool acted = has_acted();
  expect_is(status, SB_OK, "the status");
  expect_is(taken.position, at(acted ? 0 : 2), "what was taken: the message of a commit that was decided meanwhile");
}

/* ---- races and timers ---- */

static void take_it_away(void) { set_cell(1, SB_CELL_ACQUIRED, OTHER); }
static void a_message_is_taken_meanwhile(void) {
  begin_mixed();
  meanwhile(&cell(1)->word, AFTER_LOAD, 1, take_it_away);
  sb_status status = take();
  bool acted = has_acted();
  expect_is(status, SB_OK, "the status");
  expect_is(taken.position, at(acted ? 2 : 1), "what was taken when another connection was faster");
}
static void come_back(void) { set_cell(1, SB_CELL_AVAILABLE, 0); }
static void take_and_return(void) {
  take_it_away();
  meanwhile(&cell(1)->word, BEFORE_LOAD, 1, come_back);
}
static void a_message_is_taken_and_comes_back(void) {
  begin_mixed();
  meanwhile(&cell(1)->word, BEFORE_CAS, 1, take_and_return);
  expect_taken(1, 2, "a message that came back");
  (void)has_acted();
}
/* Other connections are faster, each time with another message: that is no damage. */
#define RACES (SB_MAX_RETRIES + 100u)
static unsigned races;
static void be_faster(const char *site) {
  if (strcmp(site, "queue.take.announced") != 0 || races == RACES) return;
  races++;
  at_step = NULL;
  set_word(1, cell_word(races % 2 + 1, SB_CELL_AVAILABLE, 0));
  at_step = be_faster;
}
static void many_races(void) {
  begin_mixed();
  at_step = be_faster;
  sb_status status = take();
  at_step = NULL;
  expect_is(status, SB_OK, "the status after many races");
  expect_is(races, has_steps() ? RACES : 0, "how often others were faster");
}
static void messages_that_expire(void) {
  begin_mixed();
  uint64_t expired = q->ledger->counters[SB_COUNT_EXPIRED];
  message_of(1)->expires_ns = 1;
  message_of(2)->expires_ns = sb_now_ns() + UINT64_C(3600000000000);
  expect_taken(2, 3, "behind a message that has expired");
  expect_is(word_of(1), cell_word(1, SB_CELL_TOMBSTONE, 0), "the word of a message that has expired");
  expect_is(q->ledger->counters[SB_COUNT_EXPIRED], expired + 1, "how many have expired");
}
static void a_message_that_expires_now(void) {
  begin_mixed();
  answer_for_the_system();
  message_of(1)->expires_ns = says.now_ns;
  message_of(2)->expires_ns = says.now_ns + 1;
  expect_taken(2, 3, "behind a message that expires now");
}
static void lose_the_arena(const char *site) {
  if (strcmp(site, "queue.settle.dropped") == 0) t.b->arena_bytes = 0;
}
static void no_holding_is_left(void) {
  begin_mixed();
  message_of(1)->expires_ns = 1;
  at_step = lose_the_arena;
  sb_status status = take();
  at_step = NULL;
  if (has_steps()) expect_is(status, SB_CORRUPT, "the status without a holding");
}
/* The last one of all has expired. */
static void nothing_but_what_expires(void) {
  begin();
  make_foreign(4);
  message_of(4)->expires_ns = 1;
  uint64_t token = new_token();
  expect_is(sb_choice_take(q, &choice, token, &taken), SB_EMPTY, "the status");
  expect_is(new_token(), token + 1, "the holding that is taken next");
}

static const test_case CASES[] = {
    {"no_local: in turn", "a consumer takes what others published, and hides nothing", foreign_messages_in_turn},
    {"no_local: cursor", "a search begins at the consumer's cursor", a_search_begins_at_the_cursor},
    {"no_local: pages", "the cursor passes pages that are gone", pages_that_are_gone},
    {"no_local: passed", "cells that are not ready are passed", cells_that_are_passed},
    {"no_local: another page", "a cell of another page for ever is damage", cells_of_another_page},
    {"no_local: used again", "a page that is used again is looked up anew", a_page_that_is_used_again},
    {"no_local: nowhere", "a message that lies nowhere is damage", a_message_that_lies_nowhere},
    {"no_local: paused", "a queue that is paused gives nothing", a_queue_that_is_paused},
    {"no_local: closed", "a queue that is closed gives nothing", a_queue_that_is_closed},
    {"no_local: closed cell", "a closed cell ends the search", a_closed_cell},
    {"no_local: deletion", "a consumer decides about a deletion that it meets", a_deletion_is_decided},
    {"no_local: no decision", "a deletion that is never decided is damage", a_deletion_that_is_never_decided},
    {"no_local: came back", "what came back before the cursor is next, if it is foreign",
     what_came_back_before_the_cursor},
    {"no_local: came back behind", "what came back behind the cursor comes in its turn",
     what_came_back_behind_the_cursor},
    {"no_local: marks", "marks of cells that are not ready stay", marks_of_nothing},
    {"no_local: no mark", "nothing is looked for where nothing came back", no_mark_at_all},
    {"no_local: staged", "a staged cell is marked and passed", a_staged_cell_is_passed},
    {"no_local: decided", "a message of a commit that is decided meanwhile is first", a_commit_is_decided_meanwhile},
    {"no_local: faster", "a message that another connection takes meanwhile is passed", a_message_is_taken_meanwhile},
    {"no_local: returned", "a message that was taken and came back is taken", a_message_is_taken_and_comes_back},
    {"no_local: races", "a consumer may lose any number of races", many_races},
    {"no_local: expires now", "a message expires at its time", a_message_that_expires_now},
    {"no_local: no holding", "a consumer without a holding takes nothing", no_holding_is_left},
    {"no_local: expired", "a message that has expired is removed on the way", messages_that_expire},
    {"no_local: only expired", "a consumer keeps no holding of what has expired", nothing_but_what_expires},
};
SUBJECT(CASES)
