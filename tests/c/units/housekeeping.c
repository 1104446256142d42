// SPDX-License-Identifier: Apache-2.0
/* sb_housekeeping: what a tick of the housekeeper does for a queue: what it remembers, the end of the queue, its
 * accounts. Lists: housekeeping_lists.c. Sleepers: housekeeping_told.c. Timers: housekeeping_timers.c. */
#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "sb_slab.h"
#include "sb_disposal.h"
#include "ticks.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define RING_OF(n) ((sb_settings){{(n), -1, -1, 0, -1, -1}, 0})

static sb_queue *q;
static void begin(sb_settings settings) { q = begin_ticks(settings); }

/* ---- rest ---- */

static void when_a_queue_rests(void) {
  expect(!sb_housekeeping_rests(&(sb_queue_memory){.quiet_ticks = RESTS - 1}), "it rests too early");
  expect(sb_housekeeping_rests(&(sb_queue_memory){.quiet_ticks = RESTS}), "it does not rest");
  expect(!sb_housekeeping_rests(&(sb_queue_memory){.quiet_ticks = RESTS, .wrong_ticks = 1}),
         "it rests with wrong counts");
}
static void expect_memory(uint64_t take, uint64_t tail, uint64_t quiet) {
  expect_is(remembered.last_take, take, "the last take");
  expect_is(remembered.came, tail, "the tail");
  expect_is(remembered.quiet_ticks, quiet, "the quiet ticks");
}
static void what_is_remembered(void) {
  begin(RING_OF(100));
  for (uint64_t id = 1; id <= 3; id++) (void)put(&t, q, id);
  tick_queue();
  expect_memory(0, 3, 0);
  tick_queue();
  expect_memory(0, 3, 1);
  take_from(q);
  take_from(q);
  tick_queue();
  expect_memory(1, 3, 0);
  tick_queue();
  tick_queue();
  expect_memory(1, 3, 2);
  (void)put(&t, q, 4);
  tick_queue();
  expect_memory(1, 4, 0);
}
static void a_queue_that_is_not_open(void) {
  begin(FREE_SETTINGS);
  (void)put(&t, q, 1);
  SB_STORE(&q->shm->state, (q->shm->state & ~UINT64_C(3)) | SB_QUEUE_CLOSED, SB_RELAXED);
  tick_queue();
  expect_is(remembered.quiet_ticks, 0, "the quiet ticks of a closed queue");
  uint32_t slot = sb_cell_slot(word_at(q, 0));
  sb_housekeeping_queue(t.c, slot, &remembered);
  expect_is(remembered.quiet_ticks, 0, "the quiet ticks of what is no queue");
}
static sb_word *chunk_of_queue;
static uint64_t chunk_was;
static void chunk_is_given_back(void) { SB_STORE(chunk_of_queue, chunk_was, SB_RELAXED); }
/* Its chunk was drained, and goes back to its class just after the first look. */
static void a_queue_that_comes_back(void) {
  begin(FREE_SETTINGS);
  if (!has_steps()) return;
  chunk_of_queue = &t.b->chunks[q->slot / SB_CHUNK_UNITS];
  chunk_was = SB_LOAD(chunk_of_queue, SB_RELAXED);
  SB_STORE(chunk_of_queue, sb_chunk_word(SB_CHUNK_DRAINING, 9, sb_chunk_class(chunk_was), 0), SB_RELAXED);
  meanwhile(chunk_of_queue, AFTER_LOAD, 1, chunk_is_given_back);
  sb_housekeeping_queue(t.c, q->slot, &remembered);
  expect(has_acted(), "the chunk was not looked at");
  expect_is(remembered.quiet_ticks, 0, "the quiet ticks of what was no queue");
}
/* What was wrong is known to be mended when all is right at the second quiet tick. */
static void deaths_that_are_mended(void) {
  begin(FREE_SETTINGS);
  set_deaths(DEATHS);
  be_quiet(1);
  tick_queue();
  expect_is(remembered.deaths, 0, "the deaths before traffic rests");
  tick_queue();
  expect_is(remembered.deaths, DEATHS, "the deaths when traffic rests");
  set_deaths(DEATHS + 1);
  tick_queue();
  expect_is(remembered.deaths, DEATHS, "the deaths later");
  (void)put(&t, q, 1);
  (void)put(&t, q, 2);
  SB_STORE(&q->shm->head, q->base + 1, SB_RELAXED);
  be_quiet(2);
  tick_queue();
  expect_is(remembered.deaths, DEATHS, "the deaths while a message is hidden");
  SB_STORE(&q->shm->head, q->base, SB_RELAXED);
  (void)node_with(SB_NODE_DIRECT, 0);
  for (uint64_t quiet = 1; quiet <= 2; quiet++) {
    be_quiet(quiet);
    tick_queue();
    expect_is(remembered.deaths, DEATHS + quiet - 1, "the deaths beside a consumer");
  }
}
static void an_overlooked_page(void) {
  begin(FREE_SETTINGS);
  for (uint64_t id = 1; id <= SB_PAGE_CELLS + 3; id++) (void)put(&t, q, id);
  sb_leaf_ref leaf = overlook(leaf_of_list(q->slot, SB_RING_CELLS, 0));
  be_quiet(1);
  tick_queue();
  expect(!is_freed(&leaf), "it was freed before traffic rests");
  tick_queue();
  expect(is_freed(&leaf), "it was not freed");
}

/* A process was killed, or stopped, after it dropped the last entry and before it marked the page. */
static void an_overlooked_page_of_the_schedule(void) {
  begin(FREE_SETTINGS);
  sb_put_options later = {.delay_ns = UINT64_C(1000000000000)};
  for (uint64_t id = 1; id <= SB_PAGE_CELLS + 3; id++) (void)put_sized(&t, q, id, 8, &later);
  sb_leaf_ref leaf = overlook(leaf_of_list(q->slot, SB_RING_SCHEDULE, 0));
  be_quiet(1);
  tick_queue();
  expect(!is_freed(&leaf), "it was freed before traffic rests");
  tick_queue();
  expect(is_freed(&leaf), "it was not freed");
}

/* ---- the end ---- */

static void an_old_auto_delete_queue(void) {
  begin((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_AUTO_DELETE});
  (void)put(&t, q, 1);
  SB_STORE(&q->shm->had_consumer, 1u, SB_RELAXED);
}
static bool is_open(void) { return SB_BITS(q->shm->state, 0, 2) == SB_QUEUE_OPEN; }
static void a_queue_is_ended(void) {
  an_old_auto_delete_queue();
  tick_queue();
  expect(!is_open(), "it was not ended");
  expect_is(remembered.quiet_ticks, 0, "the quiet ticks of a queue that was ended");
  expect_repairs(OF_END, 0);
  uint32_t slot = q->slot;
  (void)sb_queue_close(q);
  expect(sb_disposal_free(t.c, slot), "a connection has it open still");
}
static void an_end_that_is_explained(void) {
  an_old_auto_delete_queue();
  set_deaths(DEATHS);
  tick_queue();
  expect(!is_open(), "it was not ended");
  expect_repairs(0, OF_END);
}
/* Its users would have seen nothing: only the housekeeper ends it. */
static void a_queue_expires(void) {
  begin((sb_settings){{-1, -1, -1, 0, -1, 0}, 0});
  tick_queue();
  expect(!is_open(), "it was not ended");
  expect_repairs(0, 0);
}
static void a_queue_that_lives(void) {
  begin((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_AUTO_DELETE});
  uint32_t first = q->shm->ledgers;
  tick_queue();
  expect(is_open(), "it was ended");
  expect_is(q->shm->ledgers, first, "the first ledger: it was opened");
}
static void no_memory_for_an_end(void) {
  an_old_auto_delete_queue();
  leave_holdings(0);
  tick_queue();
  expect(is_open(), "it was ended without a holding");
  expect_is(remembered.quiet_ticks, 1, "the quiet ticks: the tick went on");
  expect_repairs(0, 0);
}
/* There is a ledger to open it with, and no page for the closing cell. */
static void no_page_for_an_end(void) {
  an_old_auto_delete_queue();
  for (uint64_t id = 2; id <= SB_PAGE_CELLS; id++) (void)put(&t, q, id);
  sb_connection *mine = t.c;
  t.c = connect_to(&t);
  (void)sb_queue_close(open_queue(&t, "q"));
  t.c = mine;
  use_all_slots(SB_KIND_INNER);
  tick_queue();
  expect(is_open(), "it was ended without a page");
  expect_is(remembered.came, SB_PAGE_CELLS, "the tail");
  expect_repairs(0, 0);
}
/* What happens while the processes are looked at, and then when the queue is opened. */
static void (*when_looked)(void), (*when_opened)(void);
static void in_the_middle(const char *site) {
  void (*looked)(void) = when_looked, (*opened)(void) = when_opened;
  if (strstr(site, "sb_repairs.c") != NULL && looked != NULL) {
    when_looked = NULL;
    looked();
  }
  if (strstr(site, "sb_queue.c") != NULL && when_looked == NULL && opened != NULL) {
    when_opened = NULL;
    opened();
  }
}
/* It ends all the same, but it was not seen to be over twice. */
static void expect_not_seen_twice(void (*looked)(void), void (*opened)(void)) {
  if (!has_steps()) return;
  when_looked = NULL; /* the first look is the tick's own */
  when_opened = opened;
  at_step = in_the_middle;
  when_looked = looked;
  tick_queue();
  at_step = NULL;
  expect(!is_open(), "it was not ended");
  expect_repairs(0, 0);
}
static unsigned skipped;
static void used_again(void) { SB_STORE(&q->shm->had_consumer, 0u, SB_RELAXED); }
static void over_again(void) { SB_STORE(&q->shm->had_consumer, 1u, SB_RELAXED); }
static void closes(void) { SB_STORE(&q->shm->state, q->state + 1, SB_RELAXED); }
static void opens(void) { SB_STORE(&q->shm->state, q->state, SB_RELAXED); }
static void expires_no_more(void) { (void)SB_AND(&q->shm->flags, ~(uint32_t)SB_QUEUE_EXPIRES, SB_RELAXED); }
/* The tick asks for the deaths first: that look at the processes is passed over. */
static void use_later(void) {
  if (skipped++ == 0) {
    when_looked = use_later;
  } else {
    used_again();
  }
}
static void close_later(void) {
  if (skipped++ == 0) {
    when_looked = close_later;
  } else {
    closes();
  }
}
static void expire_later(void) {
  if (skipped++ == 0) {
    when_looked = expire_later;
  } else {
    expires_no_more();
  }
}
static void an_end_that_is_not_seen_twice(void) {
  an_old_auto_delete_queue();
  skipped = 0;
  expect_not_seen_twice(use_later, over_again);
}
static void an_end_of_a_queue_that_was_closed(void) {
  an_old_auto_delete_queue();
  skipped = 0;
  expect_not_seen_twice(close_later, opens);
}
static void an_end_that_is_seen_late(void) {
  an_old_auto_delete_queue();
  (void)SB_OR(&q->shm->flags, SB_QUEUE_EXPIRES, SB_RELAXED);
  skipped = 0;
  expect_not_seen_twice(expire_later, NULL);
}

/* ---- accounts ---- */

/* Three messages in a ring of one, of which the accounts say that they are taken. */
static void a_wrong_account(void) {
  begin(RING_OF(5));
  for (uint64_t id = 1; id <= 3; id++) (void)put(&t, q, id);
  SB_STORE(&q->shm->taken, 2, SB_RELAXED);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 1, SB_RELAXED);
  SB_STORE(&q->shm->bound, 0, SB_RELAXED);
}
static void an_account_is_set_right(void) {
  a_wrong_account();
  be_quiet(1);
  tick_queue();
  expect_is(q->shm->taken, 2, "what is taken before traffic rests");
  tick_queue();
  expect_is(q->shm->taken, 2, "what is taken: two were evicted, which the wrong account had kept");
  expect_is(counter_in(q, SB_COUNT_REPLACED) + sb_ledger_sum(t.b, q->shm, SB_COUNT_REPLACED), 2, "what was evicted");
  expect_repairs(OF_ACCOUNT, 0);
}
/* A put changes another hint while `taken` is corrected: the correction of `taken` still has its consequences. */
static void admit_another(void) { (void)SB_ADD(&q->shm->admitted, 1, SB_SEQ_CST); }
static void an_account_is_set_right_in_part(void) {
  a_wrong_account();
  (void)SB_ADD(&q->shm->admitted, 1, SB_RELAXED);
  SB_STORE(&q->shm->tracking, SB_TRACKING_UNSURE, SB_RELAXED);
  set_deaths(DEATHS);
  be_quiet(2);
  meanwhile(&q->shm->admitted, BEFORE_CAS, 1, admit_another);
  tick_queue();
  if (!has_acted()) return;
  expect_is(sb_ledger_sum(t.b, q->shm, SB_COUNT_REPLACED), 2, "what was evicted");
  expect_repairs(0, OF_ACCOUNT);
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether all of it is sure");
  expect_is(remembered.deaths, 0, "the deaths while not all of it is right");
}
static void an_account_after_a_death(void) {
  a_wrong_account();
  set_deaths(DEATHS);
  be_quiet(2);
  tick_queue();
  expect_repairs(0, OF_ACCOUNT);
  expect_is(remembered.deaths, DEATHS, "the deaths after it was mended");
}
static void an_account_that_is_unsure(void) {
  a_wrong_account();
  SB_STORE(&q->shm->tracking, SB_TRACKING_UNSURE, SB_RELAXED);
  set_deaths(DEATHS);
  sb_ledger_hinting(q->ledger, 1);
  be_quiet(2);
  tick_queue();
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether it is sure while it changes");
  expect_is(remembered.deaths, 0, "the deaths while it changes");
  expect_repairs(0, 0);
  sb_ledger_hinting(q->ledger, -1);
  remembered.deaths = DEATHS;
  be_quiet(2);
  tick_queue();
  expect_is(q->shm->tracking, 1, "whether it is sure");
  expect_repairs(0, OF_ACCOUNT);
}
/* Somebody who is inside the core since before the queue tracked may take a message without counting it. */
static void an_account_that_somebody_may_not_know(void) {
  begin(RING_OF(5));
  sb_connection *other = connect_to(&t), *mine = t.c;
  t.c = other;
  sb_queue *its = open_queue(&t, "q");
  t.c = mine;
  expect(its != NULL, "it cannot be opened");
  SB_STORE(&q->shm->tracking, SB_TRACKING_UNSURE, SB_RELAXED);
  sb_lock(other);
  be_quiet(2);
  tick_queue();
  expect_is(q->shm->tracking, SB_TRACKING_UNSURE, "whether it is sure while somebody is inside");
  sb_unlock(other);
  sb_lock(mine);
  be_quiet(2);
  tick_queue();
  sb_unlock(mine);
  expect_is(q->shm->tracking, SB_TRACKING_SURE, "whether it is sure when only the housekeeper is");
  expect_repairs(0, 0);
}
/* Somebody was in the middle of a take when a death was looked after. Nothing moves after that, for nothing fits. */
static void an_account_is_looked_at_again(void) {
  for (unsigned waits = 0; waits <= 1; waits++) {
    static const sb_settings OF_ONE = {{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0};
    char name[] = {(char)('a' + waits), 0};
    q = begin_ticks_of(name, OF_ONE);
    uint64_t right = q->shm->admitted;
    (void)SB_ADD(&q->shm->admitted, 2, SB_RELAXED);
    set_deaths(DEATHS);
    sb_ledger_hinting(q->ledger, 1);
    be_quiet(2);
    tick_queue();
    expect_is(q->shm->admitted, right + 1, "what is admitted beside a take");
    SB_STORE(&q->shm->room_waiting, (int32_t)waits, SB_RELAXED);
    tick_queue();
    expect_is(q->shm->admitted, right + 1, "what is admitted in a later tick beside that take");
    sb_ledger_hinting(q->ledger, -1);
    tick_queue();
    expect_is(q->shm->admitted, right + 1 - waits, "what is admitted when a producer waits, or none");
    SB_STORE(&q->shm->room_waiting, 0, SB_RELAXED);
    be_quiet(RESTS + 2);
    tick_queue();
    expect_is(q->shm->admitted, right, "what is admitted in the end");
    expect_is(remembered.deaths, DEATHS, "the deaths that are looked after");
    (void)SB_ADD(&q->shm->admitted, 2, SB_RELAXED);
    SB_STORE(&q->shm->room_waiting, 1, SB_RELAXED);
    tick_queue();
    expect_is(q->shm->admitted, right + 2, "what is admitted when nobody has died since");
    SB_STORE(&q->shm->room_waiting, 0, SB_RELAXED);
  }
}

static const test_case CASES[] = {
    {"tick: rests", "a queue rests after enough quiet ticks", when_a_queue_rests},
    {"tick: remembered", "a tick is quiet if nothing came or went", what_is_remembered},
    {"tick: not open", "a queue that is not open has no ticks", a_queue_that_is_not_open},
    {"tick: comes back", "a tick does nothing for a slot that was no queue at the first look", a_queue_that_comes_back},
    {"tick: deaths", "a quiet queue that is right has no explanation for later", deaths_that_are_mended},
    {"tick: page", "a page that was overlooked goes when traffic rests", an_overlooked_page},
    {"tick: page of the schedule", "so does a page of the schedule", an_overlooked_page_of_the_schedule},
    {"tick: ended", "a queue whose life is over is ended, which counts as a defect", a_queue_is_ended},
    {"tick: ended after a death", "a death explains an end that was missed", an_end_that_is_explained},
    {"tick: expired", "a queue that expires is ended, which is no repair", a_queue_expires},
    {"tick: lives", "a queue whose life is not over is not opened", a_queue_that_lives},
    {"tick: no holding", "a queue is not ended without a holding", no_memory_for_an_end},
    {"tick: no page", "an end that fails is no repair", no_page_for_an_end},
    {"tick: used meanwhile", "an end that was not seen before and after is no repair", an_end_that_is_not_seen_twice},
    {"tick: closed meanwhile", "an end of a queue that was closed is no repair", an_end_of_a_queue_that_was_closed},
    {"tick: seen late", "an end that was seen afterwards only is no repair", an_end_that_is_seen_late},
    {"tick: account", "an account is set right when traffic rests, and limits are kept", an_account_is_set_right},
    {"tick: account in part", "an account that is set right in part keeps the limits, too",
     an_account_is_set_right_in_part},
    {"tick: account unknown", "an account is not sure while somebody may not know of it",
     an_account_that_somebody_may_not_know},
    {"tick: account after a death", "a death explains a wrong account", an_account_after_a_death},
    {"tick: account again", "after a death an account is looked at until it is right", an_account_is_looked_at_again},
    {"tick: account unsure", "an account becomes sure when nobody changes it", an_account_that_is_unsure},
};
SUBJECT(CASES)
