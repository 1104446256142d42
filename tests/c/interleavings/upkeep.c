// SPDX-License-Identifier: Apache-2.0
/* Cases of upkeep: what it reads changes between two of its reads. The steps are those of sb_hints.c and sb_schedule.c,
 * in their order. */
#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_closing.h"
#include "sb_disposal.h"
#include "sb_hints.h"
#include "sb_schedule.h"

#define FAR (UINT64_MAX / 2)

static sb_word *cell_of(uint64_t number) {
  sb_leaf_ref leaf;
  uint64_t position = keeper.q->base + number;
  if (sb_ring_locate(t.b, NULL, &keeper.q->lanes[0].ring, position, &leaf) != SB_OK) die("sb_ring_locate", 0);
  return &sb_leaf_cell(&leaf, position)->word;
}
static uint32_t slot_of(uint64_t number) { return sb_cell_slot(SB_LOAD(cell_of(number), SB_SEQ_CST)); }
static sb_message_shm *message_in(uint64_t number) { return sb_slot_at(t.b, slot_of(number)); }

/* ---- two readings of a queue ---- */

/* A reading loads what is taken, admitted, came and went, the tail, the base, and each cell: this many steps. */
#define MESSAGES 2u
#define READING (6u + MESSAGES)

static sb_word *changed;
static uint64_t was;
static void one_more(void) {
  was = SB_LOAD(changed, SB_SEQ_CST);
  SB_STORE(changed, was + 1, SB_SEQ_CST);
}
static void another_has_it(void) {
  was = SB_LOAD(changed, SB_SEQ_CST);
  SB_STORE(changed, sb_cell_owned(SB_CELL_REMOVING, sb_cell_slot(was), 0, 77, 0) | (was >> 37) << 49, SB_SEQ_CST);
}
static void raises(void) { sb_ledger_hinting(two.q->ledger, 1); }
static void raises_and_lowers(void) {
  sb_ledger_hinting(two.q->ledger, 1);
  sb_ledger_hinting(two.q->ledger, -1);
}
/* A closing that is refused, of a process that does not say that it changes hints. */
static void fills_a_cell(void) {
  sb_leaf_ref leaf = SB_NO_LEAF;
  uint64_t position = 0;
  if (sb_ring_append(two.c, &two.q->lanes[0].ring, &leaf, SB_CELL_CLOSING, SB_APPEND_CLOSING, NULL, &position) != SB_OK)
    die("sb_ring_append", 0);
  (void)sb_ring_drop(two.c, &two.q->lanes[0].ring, &leaf, position, sb_cell_bare(SB_CELL_CLOSING, leaf.gen));
}
static const char *name_of(sb_hints h) {
  return h == SB_HINTS_RIGHT ? "right" : h == SB_HINTS_SET_RIGHT ? "set right" : "busy";
}
/* What a change at that step gives: seen by both readings, by the second one only, or by none. `read` is the step of the
 * first reading that would see it: a change before it is seen. */
static void expect_result(int64_t read, int64_t read_again, sb_hints both, sb_hints none, void (*what)(void)) {
  meanwhile("sb_hints.c", what);
  int64_t step = (int64_t)plan.choice[0];
  sb_hints should = step <= read ? both : step <= read_again ? SB_HINTS_BUSY : none;
  sb_hints is = sb_hints_reconcile(t.b, keeper.q->shm, NULL);
  expect(is == should, "the hints are %s, not %s", name_of(is), name_of(should));
  afterwards();
}
static void two_messages(void) {
  for (uint64_t id = 1; id <= MESSAGES; id++) put_by(&one, id);
}
static void set_all_right(void) {
  while (sb_hints_reconcile(t.b, keeper.q->shm, NULL) == SB_HINTS_SET_RIGHT) {
  }
}
static void changes(sb_word *word, int64_t read, sb_hints both, void (*what)(void)) {
  two_messages();
  changed = word;
  expect_result(read, read + READING, both, SB_HINTS_RIGHT, what);
  set_all_right();
}
static void taken_changes(void) { changes(&keeper.q->shm->taken, 0, SB_HINTS_SET_RIGHT, one_more); }
static void admitted_changes(void) { changes(&keeper.q->shm->admitted, 1, SB_HINTS_SET_RIGHT, one_more); }
static void bytes_in_change(void) { changes(&keeper.q->shm->bytes_in, 2, SB_HINTS_SET_RIGHT, one_more); }
static void bytes_out_change(void) { changes(&keeper.q->shm->bytes_out, 3, SB_HINTS_SET_RIGHT, one_more); }
static void count_changes(void) {
  changes(&two.q->ledger->counters[SB_COUNT_ADDED], 3, SB_HINTS_RIGHT, one_more);
  SB_STORE(changed, was, SB_SEQ_CST);
}
/* A message of no bytes: how many are ready changes, and nothing else. */
static void ready_changes(void) {
  two_messages();
  uint64_t bytes = message_in(1)->body_length;
  message_in(1)->body_length = 0;
  set_all_right();
  changed = cell_of(1);
  expect_result(7, 7 + READING, SB_HINTS_SET_RIGHT, SB_HINTS_RIGHT, another_has_it);
  SB_STORE(changed, was, SB_SEQ_CST);
  message_in(1)->body_length = bytes;
  set_all_right();
}
static void longer(void) { message_in(1)->body_length += 8; }
static void ready_bytes_change(void) {
  two_messages();
  expect_result(7, 7 + READING, SB_HINTS_SET_RIGHT, SB_HINTS_RIGHT, longer);
  message_in(1)->body_length -= 8;
  set_all_right();
}
/* The tail is looked for before the first step of a reading. */
static void tail_changes(void) {
  two_messages();
  expect_result(-1, READING - 1, SB_HINTS_BUSY, SB_HINTS_RIGHT, fills_a_cell);
  set_all_right();
}
static void another_begins(void) {
  two_messages();
  expect_result(-1, 2 * READING - 1, SB_HINTS_BUSY, SB_HINTS_RIGHT, raises);
  sb_ledger_hinting(two.q->ledger, -1);
}
static void another_changed_hints(void) {
  two_messages();
  expect_result(-1, 2 * READING - 1, SB_HINTS_BUSY, SB_HINTS_RIGHT, raises_and_lowers);
}
/* What was read is not there any more: it is left alone. The base, and then the word, follow the two readings. */
static void changed_before_it_is_set(void) {
  two_messages();
  changed = &keeper.q->shm->taken;
  one_more();
  bool late = plan.choice[0] > READING && plan.choice[0] <= 2 * READING + 1;
  expect_result(0, READING, SB_HINTS_SET_RIGHT, late ? SB_HINTS_BUSY : SB_HINTS_SET_RIGHT, one_more);
  set_all_right();
}

/* At no step of a deletion that is refused do the hints seem wrong to another process: the closing cell counts as taken
 * before the tail has passed it. */
static void finds_none_wrong(void) {
  expect(sb_hints_reconcile(t.b, keeper.q->shm, NULL) != SB_HINTS_SET_RIGHT, "a hint seemed wrong");
}
static void refused_deletion(void) {
  uint64_t removed;
  put_by(&one, 1);
  meanwhile(ANYWHERE, finds_none_wrong);
  expect(sb_disposal_close(one.q, false, true, &removed) == SB_NOT_EMPTY, "a queue with a message was deleted");
  afterwards();
  expect_left(1);
}

/* ---- looks at a message ---- */

static uint64_t looked_at(uint64_t number, uint64_t now, void (*what)(void), bool *ready) {
  meanwhile("sb_schedule.c", what);
  uint64_t then = sb_schedule_look_at(one.q, one.q->base + number, now, ready);
  afterwards();
  return then;
}
static void two_takes(void) { got = take(&two); }
/* What was read of it may be another message's by then. */
static void taken_while_looked_at(void) {
  bool ready;
  put_by(&one, 1);
  message_in(0)->expires_ns = FAR;
  uint64_t then = looked_at(0, 1000, two_takes, &ready);
  uint64_t should = plan.choice[0] == 0 ? 0 : plan.choice[0] <= 2 ? 1000 : FAR;
  expect(then == should, "it is looked at again at %llu, not %llu", (unsigned long long)then,
         (unsigned long long)should);
  expect(!ready && got == 1, "it was made ready, or not taken");
}
static void two_removes(void) {
  uint64_t token;
  sb_taken taken;
  if (sb_holding_take(two.c, &token) != SB_OK) die("sb_holding_take", 0);
  if (sb_take_at(two.q, two.q->base, SB_CELL_SCHEDULED, token, &taken) == SB_OK) {
    (void)sb_dispose(two.q, token, SB_REASON_KILLED);
    sb_ledger_count(two.q->ledger, SB_COUNT_UNSCHEDULED, 1);
  } else {
    sb_holding_give(two.c, token);
  }
}
static uint64_t next_holding(void) {
  uint64_t token;
  if (sb_holding_take(one.c, &token) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(one.c, token);
  return token;
}
/* Its holding goes back, and the limits are kept (I42). */
static void removed_while_looked_at(void) {
  bool ready;
  sb_put_options later = {.delay_ns = UINT64_C(3600000000000)};
  if (put_sized(&t, one.q, 1, 64, &later) != SB_OK) die("put", 0);
  message_in(0)->due_ns = 999;
  for (uint64_t id = 2; id <= 4; id++) put_by(&one, id);
  SB_STORE(&keeper.q->shm->settings[SB_SETTING_RING_SIZE], 1, SB_SEQ_CST);
  SB_STORE(&keeper.q->shm->bound, 0, SB_SEQ_CST);
  uint64_t next = next_holding();
  uint64_t then = looked_at(0, 1000, two_removes, &ready);
  uint64_t should = plan.choice[0] == 0 ? 0 : plan.choice[0] <= 3 ? 1000 : 0;
  expect(then == should, "it is looked at again at %d, not %d", (int)then, (int)should);
  expect(ready == (plan.choice[0] > 3), "it was made ready by %d", (int)ready);
  expect(next_holding() == next, "the holding is lost");
  if (plan.choice[0] == 3) expect(one.q->ledger->counters[SB_COUNT_REPLACED] == 2, "the limits were not kept");
  (void)sb_limits_enforce(one.q);
}

/* ---- hidden messages ---- */

static void two_marks(void) { sb_requeued_mark(t.b, &two.q->lanes[0].ring, two.q->base); }
/* It is no repair if another process marks the message meanwhile. */
static void marked_while_looked_at(void) {
  two_messages();
  put_by(&one, 3);
  SB_STORE(&keeper.q->shm->head, keeper.q->base + 2, SB_SEQ_CST);
  uint32_t before = t.b->header->repairs[SB_REPAIR_MARK] + t.b->header->explained_repairs[SB_REPAIR_MARK];
  uint64_t deaths = sb_repairs_deaths(t.b);
  meanwhile("sb_liveness.c", two_marks); /* who else has the queue open, and may be halted */
  (void)sb_hints_resurface(t.b, one.q->shm, &one.q->lanes[0].ring, deaths);
  bool reached = plan.what == NULL;
  afterwards();
  uint32_t after = t.b->header->repairs[SB_REPAIR_MARK] + t.b->header->explained_repairs[SB_REPAIR_MARK];
  expect(after - before == !reached, "%d repairs are counted", (int)(after - before));
  expect(!sb_hints_hide_ready(t.b, &keeper.q->lanes[0].ring), "a message is hidden");
}

/* ---- a closing at the end of a page ---- */

static uint64_t closing_at;
static sb_leaf_ref closing_leaf;
static void two_resolves(void) { (void)sb_closing_resolve(t.b, two.c, two.q->shm, &two.q->lanes[0].ring, closing_at); }
/* The page is another queue's by now, which is closed at the same place. */
static void two_resolves_and_another_closes(void) {
  two_resolves();
  if (sb_slot_gen(SB_LOAD(sb_slot_header(t.b, closing_leaf.slot), SB_SEQ_CST)) == closing_leaf.gen)
    return; /* not yet */
  SB_STORE(&sb_leaf_cell(&closing_leaf, closing_at)->word, sb_cell_bare(SB_CELL_CLOSED, closing_leaf.gen + 1),
           SB_SEQ_CST);
}
/* A closing that is refused is the last cell of a page to be finished: the page goes while another process looks at it. */
static void refused_while_looked_at(void (*what)(void)) {
  for (unsigned i = 0; i + 1 < 2 * SB_PAGE_CELLS; i++) {
    put_by(&one, 1);
    (void)take(&one);
  }
  SB_STORE(&keeper.q->shm->consumers, 1, SB_SEQ_CST);
  closing_at = 0;
  closing_leaf = SB_NO_LEAF;
  if (sb_ring_append(two.c, &two.q->lanes[0].ring, &closing_leaf, SB_CELL_CLOSING | SB_CLOSING_IF_UNUSED,
                     SB_APPEND_CLOSING, NULL, &closing_at) != SB_OK)
    die("sb_ring_append", 0);
  meanwhile(ANYWHERE, what);
  sb_status status = put(&t, one.q, 2);
  afterwards();
  expect(status == SB_OK, "a put beside a closing gives %d", (int)status);
  SB_STORE(&keeper.q->shm->consumers, 0, SB_SEQ_CST);
  expect_left(2);
}
static void page_gone(void) { refused_while_looked_at(two_resolves); }
static void page_reused(void) { refused_while_looked_at(two_resolves_and_another_closes); }

static const test_case CASES[] = {
    {"reading, taken", "hints are busy if what is taken changes", RING(9), taken_changes},
    {"reading, admitted", "hints are busy if what is admitted changes", RING(9), admitted_changes},
    {"reading, bytes in", "hints are busy if the bytes that came change", RING(9), bytes_in_change},
    {"reading, bytes out", "hints are busy if the bytes that went change", RING(9), bytes_out_change},
    {"reading, added", "hints are busy if a ledger counts one more", RING(9), count_changes},
    {"reading, ready", "hints are busy if a message is taken", RING(9), ready_changes},
    {"reading, ready bytes", "hints are busy if a message is replaced", RING(9), ready_bytes_change},
    {"reading, tail", "hints are busy if the tail moves", RING(9), tail_changes},
    {"reading, begun", "hints are busy while a process changes them", RING(9), another_begins},
    {"reading, ended", "hints are busy if a process changed them", RING(9), another_changed_hints},
    {"reading, set", "a hint that changes before it is set right is left", RING(9), changed_before_it_is_set},
    {"reading, refused", "no hint seems wrong beside a deletion that is refused", RING(9), refused_deletion},
    {"look, taken", "a message that is taken is looked at again", FREELY, taken_while_looked_at},
    {"look, removed", "a scheduled message that goes gives its holding back", RING(9), removed_while_looked_at},
    {"look, marked", "what is marked meanwhile is no repair", FREELY, marked_while_looked_at},
    {"closing, page gone", "a put passes a closing that was refused", FREELY, page_gone},
    {"closing, page reused", "another queue that is closed says nothing of this one", FREELY, page_reused},
};
const subject UPKEEP_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
