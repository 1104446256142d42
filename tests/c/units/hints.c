// SPDX-License-Identifier: Apache-2.0
/* sb_hints: how the hints of a queue are corrected. */
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

static test_broker another;
static sb_queue *its;
static void set_word(sb_word *word, uint64_t value) { SB_STORE(word, value, SB_RELAXED); }

/* ---- messages that no bit leads to ---- */

/* Three messages below the head, and nothing says that one came back. */
static void three_hidden(void) {
  begin_queue(FREE_SETTINGS);
  put_up_to(q, 4);
  set_word(&q->shm->head, q->base + 3);
}
static void hidden_messages(void) {
  three_hidden();
  expect(sb_hints_hide_ready(t.b, &q->lanes[0].ring), "none is hidden");
  for (uint64_t i = 0; i < 3; i++) {
    sb_requeued_mark(t.b, &q->lanes[0].ring, q->base + i);
    expect(sb_hints_hide_ready(t.b, &q->lanes[0].ring) == (i < 2), "with %u marked", (unsigned)i + 1);
  }
  q = queue_named("finished", FREE_SETTINGS);
  put_up_to(q, 3);
  set_word(&q->shm->head, q->base + 2);
  set_cell_word(q, 0, foreign_word_at(q, 0));
  expect(!sb_hints_hide_ready(t.b, &q->lanes[0].ring), "one behind a cell of another page is hidden");
  set_cell_word(q, 0, tombstone_at(q, 0));
  set_cell_word(q, 1, tombstone_at(q, 1));
  expect(!sb_hints_hide_ready(t.b, &q->lanes[0].ring), "a finished cell is hidden");
}
static void hidden_messages_come_up(void) {
  three_hidden();
  uint64_t deaths = sb_repairs_deaths(t.b);
  sb_requeued_mark(t.b, &q->lanes[0].ring, q->base + 1);
  expect_is(sb_hints_resurface(t.b, q->shm, &q->lanes[0].ring, deaths + 1), 2, "how many were found");
  for (uint64_t i = 0; i < 3; i++)
    expect(sb_requeued_is_marked(t.b, &q->lanes[0].ring, q->base + i), "message %u is not marked", (unsigned)i);
  expect(!sb_requeued_is_marked(t.b, &q->lanes[0].ring, q->base + 3), "a message behind the head is marked");
  expect_is(t.b->header->explained_repairs[SB_REPAIR_MARK], 1, "the repairs that a death explains");
  expect_is(t.b->header->repairs[SB_REPAIR_MARK], 0, "the defects");
  expect_is(sb_hints_resurface(t.b, q->shm, &q->lanes[0].ring, deaths + 1), 0, "how many are found again");
  expect_is(t.b->header->explained_repairs[SB_REPAIR_MARK], 1, "the repairs when nothing was wrong");
}
static void a_rescan(void) {
  three_hidden();
  q->rescanned_ns = sb_now_ns();
  q->rescanned_deaths = 77;
  expect_is(sb_hints_rescan(q), 0, "what is found so soon");
  expect_is(q->rescanned_deaths, 77, "the deaths at the last scan");
  uint64_t before = sb_now_ns();
  q->rescanned_ns = before - UINT64_C(300000000);
  SB_STORE(&t.b->header->reaped, 5, SB_RELAXED);
  expect_is(sb_hints_rescan(q), 3, "what is found later");
  expect(q->rescanned_ns >= before, "the scan is not noted");
  expect_is(q->rescanned_deaths, 5, "the deaths by then");
  expect_is(t.b->header->explained_repairs[SB_REPAIR_MARK], 1, "the repairs that a death explains");
}
static void rescans_at_the_interval(void) {
  three_hidden();
  answer_for_the_system();
  q->rescanned_ns = says.now_ns - UINT64_C(250000000);
  expect_is(sb_hints_rescan(q), 3, "what is found when the interval is just over");
}
static bool looked_at_deaths;
static void note_look(void) { looked_at_deaths = true; }
/* It reads the state of each process that has the queue open. */
static void nothing_hidden_asks_for_no_explanation(void) {
  begin_queue(FREE_SETTINGS);
  put_up_to(q, 3);
  looked_at_deaths = false;
  meanwhile(&t.b->header->reaped, BEFORE_LOAD, 1, note_look);
  expect_is(sb_hints_resurface(t.b, q->shm, &q->lanes[0].ring, 0), 0, "how many were found");
  meanwhile(NULL, BEFORE_LOAD, 0, NULL);
  expect(!looked_at_deaths, "an explanation was looked for, and nothing was wrong");
}
static void what_is_ready(void) {
  begin_queue(FREE_SETTINGS);
  put_up_to(q, 3);
  uint64_t base = q->base;
  expect(sb_hints_has_ready(t.b, &q->lanes[0].ring, base + 1), "the first message is not ready");
  expect(!sb_hints_has_ready(t.b, &q->lanes[0].ring, base), "one is ready before the first");
  set_cell_word(q, 0, tombstone_at(q, 0));
  expect(!sb_hints_has_ready(t.b, &q->lanes[0].ring, base + 1), "a finished cell is ready, or one behind the end");
  set_cell_word(q, 0, foreign_word_at(q, 0));
  expect(!sb_hints_has_ready(t.b, &q->lanes[0].ring, base + 1), "a cell of another page is ready");
  set_word(&q->shm->head, base + 3);
  expect(!sb_hints_has_ready(t.b, &q->lanes[0].ring, base + 3), "one below the head is ready, and none came back");
  set_word(&q->shm->requeued, 1);
  expect(sb_hints_has_ready(t.b, &q->lanes[0].ring, base + 3), "one that came back is not ready");
}
/* The page behind the last one is not there yet: its positions are not those of the last one. */
static void what_is_ready_in_one_page(void) {
  begin_queue(FREE_SETTINGS);
  put_up_to(q, SB_PAGE_CELLS);
  for (uint64_t i = 1; i < SB_PAGE_CELLS; i++) set_cell_word(q, i, tombstone_at(q, i));
  set_word(&q->shm->head, q->base + 1);
  expect(!sb_hints_has_ready(t.b, &q->lanes[0].ring, q->base + 2 * SB_PAGE_CELLS), "one is ready behind the page");
}

/* ---- hints ---- */

static void expect_account(uint64_t taken, uint64_t admitted, uint64_t bytes_in) {
  expect_is(q->shm->taken, taken, "what is taken");
  expect_is(q->shm->admitted, admitted, "what is admitted");
  expect_is(q->shm->bytes_in, bytes_in, "the bytes that came");
}
/* Two pages, of whose first only one cell is ready. */
static void two_pages(void) {
  begin_queue(RING_OF(1000));
  put_up_to(q, SB_PAGE_CELLS + 3);
  for (unsigned i = 0; i + 1 < SB_PAGE_CELLS; i++) take_from(q);
}
static void hints_are_set_right(void) {
  two_pages();
  uint64_t taken = SB_PAGE_CELLS - 1, admitted = SB_PAGE_CELLS + 3, in = admitted * BODY;
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_RIGHT, "what was found right");
  sb_word *hints[] = {&q->shm->taken, &q->shm->admitted, &q->shm->bytes_in};
  for (unsigned i = 0; i < 3; i++) {
    (void)SB_ADD(hints[i], 3, SB_RELAXED);
    expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_SET_RIGHT, "what was found wrong");
    expect_account(taken, admitted, in);
  }
  (void)SB_ADD(&q->shm->bytes_out, 3, SB_RELAXED);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_SET_RIGHT, "what was found beside other bytes that left");
  expect_account(taken, admitted, in + 3);
}
static void hints_of_one_who_changes_them(void) {
  two_pages();
  (void)SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  sb_ledger_hinting(q->ledger, 1);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_BUSY, "what was found while they are being changed");
  expect_is(sb_hints_reconcile(t.b, q->shm, q->ledger), SB_HINTS_SET_RIGHT, "what was found beside a dead connection");
  expect_is(q->shm->taken, SB_PAGE_CELLS - 1, "what is taken beside a dead connection");
  (void)SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  sb_hints_start_tracking(q);
  expect_is(q->shm->tracking, SB_TRACKING_SURE, "whether they are sure where they count already");
  SB_STORE(&q->shm->tracking, 0, SB_RELAXED);
  note_order(&q->shm->tracking);
  sb_hints_start_tracking(q);
  if (has_steps()) expect_is(noted_order(), SB_SEQ_CST, "the order of the store that all must see");
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether they are sure");
  expect_account(SB_PAGE_CELLS, SB_PAGE_CELLS + 3, (SB_PAGE_CELLS + 3) * BODY);
  sb_ledger_hinting(q->ledger, -1);
  sb_hints_start_tracking(q);
  expect_is(q->shm->tracking, SB_TRACKING_SURE, "whether they are sure after another call");
  expect_is(q->shm->taken, SB_PAGE_CELLS - 1, "what is taken");
  SB_STORE(&q->shm->tracking, 0, SB_RELAXED);
  (void)SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_RIGHT, "what was found where they do not count");
  expect_is(q->shm->taken, SB_PAGE_CELLS, "what is taken there");
}
#define OF_THREE {{-1, 3, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}
static void begin_one_taken(sb_settings settings) {
  begin_queue(settings);
  put_up_to(q, 3);
  take_from(q);
}
/* Somebody else reserves room for 5 bytes, or takes, when the dead have left room for four messages and 100 bytes. */
static void leave_room(uint64_t depth, uint64_t reserved) {
  SB_STORE(&q->ledger->hinting, depth, SB_RELAXED);
  SB_STORE(&q->ledger->admitting, reserved, SB_RELAXED);
  (void)SB_ADD(&q->shm->admitted, 4, SB_RELAXED);
  (void)SB_ADD(&q->shm->bytes_in, 100, SB_RELAXED);
}
static void room_that_the_dead_reserved(void) {
  begin_one_taken((sb_settings)OF_THREE);
  uint64_t right = q->shm->admitted, in = q->shm->bytes_in;
  leave_room(1, SB_FIELD(1, 40) | 5);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_BUSY, "what was found beside a reservation");
  expect_account(1, right + 1, in + 5);
  (void)SB_SUB(&q->shm->admitted, 1, SB_RELAXED); /* it is about to reserve, and others have published */
  (void)SB_SUB(&q->shm->bytes_in, 5, SB_RELAXED);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_BUSY, "what was found beside a reservation");
  expect_account(1, right, in);
  leave_room(2, SB_FIELD(1, 40) | 5);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_BUSY, "what was found beside a take");
  expect_account(1, right + 2, in + 100);
  leave_room(0, SB_FIELD(1, 40) | 5);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_SET_RIGHT, "what was found beside one that only begins");
  expect_account(1, right, in);
}
static void room_in_a_ring(void) {
  begin_one_taken(RING_OF(10));
  uint64_t right = q->shm->admitted, in = q->shm->bytes_in;
  leave_room(1, SB_FIELD(1, 40) | 5);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_BUSY, "what was found in a queue that evicts");
  expect_account(1, right + 4, in + 100);
}
/* Another one publishes its message between the readings, and a last one begins a change: both are traffic. */
static void publish_meanwhile(void) { SB_STORE(&q->ledger->hinting, SB_FIELD(1, 32), SB_RELAXED); }
static void room_beside_traffic(void) {
  begin_one_taken((sb_settings)OF_THREE);
  uint64_t right = q->shm->admitted, in = q->shm->bytes_in;
  leave_room(SB_FIELD(1, 32) | 1, SB_FIELD(1, 40) | 5);
  meanwhile(&q->shm->admitted, BEFORE_LOAD, 2, publish_meanwhile);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_BUSY, "what was found beside traffic");
  if (has_acted()) expect_account(1, right + 4, in + 100);
  meanwhile(NULL, BEFORE_LOAD, 0, NULL);
}
/* Another process changes a hint after the readings: whether it is right is not known. */
static void admit_another(void) { (void)SB_ADD(&q->shm->admitted, 1, SB_SEQ_CST); }
static void a_hint_that_changes_meanwhile(void) {
  begin_one_taken((sb_settings)OF_THREE);
  uint64_t right = q->shm->admitted, in = q->shm->bytes_in;
  leave_room(0, 0);
  meanwhile(&q->shm->admitted, BEFORE_CAS, 1, admit_another);
  sb_hints found = sb_hints_reconcile(t.b, q->shm, NULL);
  expect_is(found, has_acted() ? SB_HINTS_BUSY : SB_HINTS_SET_RIGHT, "what was found");
  if (has_acted()) expect_account(1, right + 5, in + 100);
}
/* A put changes `admitted` after `taken` was corrected: what is corrected is told, although not all is known. */
static void some_hints_that_are_set_right(void) {
  begin_one_taken((sb_settings)OF_THREE);
  uint64_t right = q->shm->admitted, in = q->shm->bytes_in;
  (void)SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  (void)SB_ADD(&q->shm->admitted, 1, SB_RELAXED);
  meanwhile(&q->shm->admitted, BEFORE_CAS, 1, admit_another);
  sb_hints found = sb_hints_reconcile(t.b, q->shm, NULL);
  if (!has_acted()) return;
  expect(found != SB_HINTS_BUSY && found != SB_HINTS_RIGHT, "nothing was corrected, it says (%d)", (int)found);
  expect_account(1, right + 2, in);
}
/* ---- a queue that gets its first limit ---- */

/* A consumer has read that the queue does not track, and is about to take. */
static const sb_settings A_RING = {{10, -1, -1, 0, -1, -1}, 0};
static void another_sets_limits(void) {
  int32_t holder;
  expect_is(sb_queue_configure(its, &A_RING, false, FOREVER, &holder), SB_OK, "the status of new settings");
}
static void begin_without_limits(void) {
  begin_queue(FREE_SETTINGS);
  put_up_to(q, 3);
  another = t;
  another.c = connect_to(&t);
  its = open_queue(&another, "q");
}
static void limits_beside_a_take(void) {
  begin_without_limits();
  meanwhile(cell_at(q, 0), BEFORE_CAS, 1, another_sets_limits);
  take_from(q);
  if (!has_acted()) return;
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether the hints are sure");
}
static void limits_beside_a_return(void) {
  static char record[BUFFER];
  begin_without_limits();
  if (get(&t, q, record, false) != 1) die("sb_queue_get", 0);
  meanwhile(cell_at(q, 0), BEFORE_CHANGE, 1, another_sets_limits);
  expect_is(sb_queue_settle(q, record, SB_REQUEUE), SB_OK, "the status of a return");
  if (!has_acted()) return;
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether the hints are sure");
}
/* The consumer goes on, and ends its call, while the other one waits for it. */
static void the_call_ends(void) {
  if (says.pauses == 3) SB_STORE(&another.c->gate->inside, 0, SB_RELEASE);
}
static void limits_wait_for_a_call(void) {
  begin_without_limits();
  answer_for_the_system();
  says.paused = the_call_ends;
  SB_STORE(&another.c->gate->inside, 1, SB_RELAXED);
  SB_STORE(&t.c->gate->inside, 1, SB_RELAXED);
  sb_hints_start_tracking(q);
  SB_STORE(&t.c->gate->inside, 0, SB_RELAXED);
  expect_is(q->shm->tracking, SB_TRACKING_SURE, "whether the hints are sure after the call");
  expect_is(says.pauses, 3, "how often it waited");
}
static void end_hinting(void) { SB_STORE(&q->ledger->hinting, 0, SB_RELAXED); }
/* The count of what was raised goes round after 2^32 times: 0 is a number as any other. */
static void hints_of_one_whose_count_went_round(void) {
  two_pages();
  (void)SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  SB_STORE(&q->ledger->hinting, 1, SB_RELAXED);
  meanwhile(&q->shm->admitted, BEFORE_LOAD, 1, end_hinting);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_BUSY, "what was found while they are being changed");
  meanwhile(NULL, BEFORE_LOAD, 0, NULL);
  expect_is(q->shm->taken, SB_PAGE_CELLS, "what is taken");
}
/* Each try that finds another connection in the middle of a change reads its word once. */
static void tracking_is_left_to_the_housekeeper(void) {
  two_pages();
  sb_ledger_hinting(q->ledger, 1);
  meanwhile(&q->ledger->hinting, BEFORE_LOAD, 1001, end_hinting);
  SB_STORE(&q->shm->tracking, 0, SB_RELAXED);
  sb_hints_start_tracking(q);
  meanwhile(NULL, BEFORE_LOAD, 0, NULL);
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether they are sure after a thousand tries");
}
/* Nor does it read the cells then: a try that did would read the word of that connection more than once. */
static void tracking_reads_no_cells_in_vain(void) {
  begin_one_taken((sb_settings)OF_THREE);
  sb_ledger_hinting(q->ledger, 1);
  meanwhile(&q->ledger->hinting, BEFORE_LOAD, 1001, end_hinting);
  SB_STORE(&q->shm->tracking, 0, SB_RELAXED);
  sb_hints_start_tracking(q);
  meanwhile(NULL, BEFORE_LOAD, 0, NULL);
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether they are sure after a thousand tries");
}
/* Cells that have no message of this page are not ready, nor is what lies behind the tail, or in no memory. */
static void cells_that_do_not_count(void) {
  if (declare(&t, "q", RING_OF(10)) != SB_OK) die("sb_queue_declare", 0);
  q = open_queue(&t, "q"); /* only the first segment exists */
  put_up_to(q, 4);
  uint64_t gen = gen_at(q, 0);
  uint32_t behind = t.b->chunk_limit * SB_CHUNK_UNITS, slots[] = {behind, behind - SB_CHUNK_UNITS};
  for (unsigned i = 0; i < 2; i++) {
    set_cell_word(q, 1, open_word(q, 1, SB_CELL_AVAILABLE, slots[i]));
    set_word(&q->shm->taken, 77);
    expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_SET_RIGHT, "what was found wrong");
    expect_is(q->shm->taken, 1, "what is taken beside a slot that does not exist, or is not mapped");
  }
  set_cell_word(q, 0, foreign_word_at(q, 0)); /* the tail is known */
  (void)sb_hints_reconcile(t.b, q->shm, NULL);
  expect_is(q->shm->taken, 2, "what is taken beside a cell of another page");
  set_cell_word(q, 2, sb_cell_bare(SB_CELL_CLOSED, gen));
  set_word(&q->shm->tail, q->base + 1);
  (void)sb_hints_reconcile(t.b, q->shm, NULL);
  expect_is(q->shm->taken, 2, "what is taken before the end");
  expect_is(q->shm->admitted, q->base + 2, "what is admitted before the end");
}

static const test_case CASES[] = {
    {"hints: hidden", "a ready message below the head is hidden without a mark", hidden_messages},
    {"hints: resurfaced", "hidden messages are marked and counter_in", hidden_messages_come_up},
    {"hints: rescan", "a consumer looks for hidden messages once per interval", a_rescan},
    {"hints: interval", "the next look may come when the interval is just over", rescans_at_the_interval},
    {"hints: none hidden", "where nothing is hidden no process is looked at", nothing_hidden_asks_for_no_explanation},
    {"hints: ready", "a message before the end is ready if its cell says so", what_is_ready},
    {"hints: one page", "cells behind the last page are no messages", what_is_ready_in_one_page},
    {"hints: hints", "hints are set right from the cells", hints_are_set_right},
    {"hints: busy", "hints that are being changed are left alone", hints_of_one_who_changes_them},
    {"hints: room of the dead", "room that the dead reserved is free while another one reserves, or takes",
     room_that_the_dead_reserved},
    {"hints: room in a ring", "in a queue that evicts it stays until the hints rest", room_in_a_ring},
    {"hints: not in vain", "nothing is read while the hints could not be found right", tracking_reads_no_cells_in_vain},
    {"hints: changes meanwhile", "a hint that changes after it was read is not right", a_hint_that_changes_meanwhile},
    {"hints: partly", "hints of which some were set right are not right, and not untouched",
     some_hints_that_are_set_right},
    {"hints: limits, take", "hints are not sure while a connection may take without them", limits_beside_a_take},
    {"hints: limits, return", "... or return a message without them", limits_beside_a_return},
    {"hints: limits, wait", "who sets limits waits for the calls that may not know of them", limits_wait_for_a_call},
    {"hints: room, traffic", "nothing is freed by what was read beside traffic", room_beside_traffic},
    {"hints: went round", "hints that are being changed are left alone, whatever the count says",
     hints_of_one_whose_count_went_round},
    {"hints: tries", "what cannot be counted after a thousand tries is left to the housekeeper",
     tracking_is_left_to_the_housekeeper},
    {"hints: no message", "cells without a message here do not count", cells_that_do_not_count},
};
SUBJECT(CASES)
