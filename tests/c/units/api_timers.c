// SPDX-License-Identifier: Apache-2.0
/* sb_api_timers: one call looks at the messages of all queues that are due. */
#include "calls.h"
#include "committing.h"
#include "heap.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_agenda.h"

#define DEADLY ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS})
#define A_SECOND UINT64_C(1000000000)
#define AN_HOUR (UINT64_C(3600) * A_SECOND)

static sb_queue *queues[3];
static sb_queue_memory memories[3];

static void begin(sb_settings settings) {
  for (unsigned i = 0; i < 3; i++) queues[i] = queue_named((const char *[]){"a", "b", "c"}[i], settings);
}
static void put_timed(unsigned queue, uint64_t delay_ns, uint64_t ttl_ns) {
  const sb_put_options o = {.delay_ns = delay_ns, .ttl_ns = ttl_ns};
  expect_is(sb_queue_put_with(queues[queue], BODY, BYTES, &o), SB_OK, "the status of a put");
}
static uint32_t run(uint64_t due_ns, uint64_t nanoseconds) {
  (void)sb_housekeeper_new_timers(queues, memories, 3);
  return sb_housekeeper_run_timers(queues, memories, 3, 0, due_ns, nanoseconds);
}
static uint64_t due(void) { return sb_housekeeper_due(memories, 3); }
static void expect_counts(unsigned queue, uint64_t ready, uint64_t scheduled, const char *what) {
  sb_queue_facts f;
  if (sb_queue_describe(t.c, queues[queue]->slot, &f) != SB_OK) die("sb_queue_describe", 0);
  expect(f.ready == ready && f.scheduled == scheduled, "%s: %d ready, %d scheduled", what, (int)f.ready,
         (int)f.scheduled);
}
static void end(void) {
  for (unsigned i = 0; i < 3; i++) sb_housekeeper_forget(&memories[i]);
}

static void nothing_to_do(void) {
  begin((sb_settings)FREELY);
  expect_is(due(), UINT64_MAX, "when there is something to do");
  expect_is(run(UINT64_MAX - 1, A_SECOND), 0, "the queues with dead messages");
  expect_is(due(), UINT64_MAX, "when there is something to do after a run");
  expect(memories[0].agenda == NULL, "a queue without timers has an agenda");
  expect_is(sb_housekeeper_looks(&memories[0]), 0, "its looks");
}
static void messages_become_ready(void) {
  begin((sb_settings)FREELY);
  for (unsigned i = 0; i < 3; i++) put_timed(0, 1, 0);
  put_timed(2, 1, 0);
  put_timed(2, AN_HOUR, 0);
  uint64_t later = message_at(queues[2], 1)->due_ns;
  expect_is(run(0, A_SECOND), 0, "the queues with dead messages");
  expect_counts(0, 3, 0, "what was due at once");
  expect_counts(2, 1, 1, "what is due in an hour");
  expect_is(due(), later, "when there is something to do");
  expect_is(sb_housekeeper_looks(&memories[2]), 1, "the looks");
  expect_is(run(later - 1, A_SECOND), 0, "the queues with dead messages");
  expect_is(due(), later, "when there is something to do after a run before that");
  message_at(queues[2], 1)->due_ns = 1;
  expect_is(run(later, A_SECOND), 0, "the queues with dead messages");
  expect_counts(2, 2, 0, "what was due in an hour");
  expect_is(due(), UINT64_MAX, "when there is something to do at last");
  end();
}
static void one_that_expires_is_dead(void) {
  begin(DEADLY);
  put_timed(1, 0, 1);
  expect_is(run(0, A_SECOND), 1, "the queues with dead messages");
  expect_counts(1, 0, 1, "a message that has expired");
  expect_is(memories[1].agenda->dead_count, 1, "the dead");
  expect_is(run(0, A_SECOND), 1, "the queues with dead messages after its second entry was read");
  expect_is(memories[1].agenda->dead_count, 1, "the dead that are found twice");
  expect_is(due(), UINT64_MAX, "when there is something to do");
  end();
}
static void dead_ones_wait(void) {
  uint32_t indexes[3];
  begin(DEADLY);
  for (unsigned i = 0; i < 2; i++) put_timed(1, 0, 0);
  for (unsigned i = 0; i < 2; i++) {
    expect(sb_queue_get(queues[1], got, false) > 0, "there is no message");
    expect_is(sb_queue_settle(queues[1], got, SB_REJECT), SB_OK, "the status of a rejection");
  }
  expect_is(run(0, A_SECOND), 1, "the queues with dead messages");
  expect_is(due(), UINT64_MAX, "when there is something to do");
  expect_is(sb_housekeeper_with_dead(memories, 3, indexes, 3), 1, "those that are written");
  expect_is(indexes[0], 1, "its number");
  expect_is(sb_housekeeper_with_dead(memories, 3, indexes, 0), 0, "those that are written without room");
  expect_is(memories[1].agenda->dead_count, 2, "the dead");
  expect_is(run(0, A_SECOND), 1, "the queues with dead messages that wait on");
  end();
  expect_is(sb_housekeeper_with_dead(memories, 3, indexes, 3), 0, "those that are written after the end");
}
/* The first of a queue expired, the second was rejected before: it was dead when the housekeeper came. */
static void the_dead_go_before_those_that_die(void) {
  begin(DEADLY);
  put_timed(1, 0, AN_HOUR);
  put_timed(1, 0, 0);
  char records[2][BUFFER];
  for (unsigned i = 0; i < 2; i++) expect(sb_queue_get(queues[1], records[i], false) > 0, "there is no message");
  expect_is(sb_queue_settle(queues[1], records[1], SB_REJECT), SB_OK, "the status of a rejection");
  expect_is(sb_queue_settle(queues[1], records[0], SB_UNDELIVER), SB_OK, "the status of a return");
  message_at(queues[1], 0)->expires_ns = 1;
  expect_is(run(0, A_SECOND), 1, "the queues with dead messages");
  expect_is(memories[1].agenda->dead_count, 2, "the dead");
  const uint64_t *dead = sb_agenda_dead(memories[1].agenda);
  expect(dead[0] == queues[1]->base + 1 && dead[1] == queues[1]->base, "they are carried out as %d, %d",
         (int)(dead[0] - queues[1]->base), (int)(dead[1] - queues[1]->base));
  end();
}
static void it_ends(void) { /* without the lock, which the call has */
  uint64_t token;
  sb_taken taken;
  if (sb_holding_take(t.c, &token) != SB_OK ||
      sb_take_oldest(queues[0], SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken) != SB_OK ||
      sb_dispose(queues[0], token, SB_REASON_ACKED) != SB_OK)
    die("it does not end", 0);
}
static void it_changes_during_the_look(void) {
  begin((sb_settings)FREELY);
  put_timed(0, 0, AN_HOUR);
  meanwhile(cell_at(queues[0], 0), AFTER_LOAD, 1, it_ends);
  (void)run(0, A_SECOND);
  expect_is(sb_housekeeper_looks(&memories[0]), has_acted() ? 0 : 1, "the looks at it");
  end();
}
/* A call ends after its time: the rest is due, and the next call begins with another queue. */
static void other_work_has_its_turn(void) {
  begin((sb_settings)FREELY);
  for (unsigned i = 0; i < 300; i++) put_timed(0, 1, 0);
  put_timed(1, 1, 0);
  expect_is(run(0, 0), 0, "the queues with dead messages");
  expect_counts(0, 128, 172, "after a run without time");
  expect_counts(1, 0, 1, "a queue that had no turn");
  expect_is(due(), 0, "when there is something to do");
  (void)sb_housekeeper_new_timers(queues, memories, 3);
  (void)sb_housekeeper_run_timers(queues, memories, 3, 1, 0, 0);
  expect_counts(1, 1, 0, "a queue that comes first");
  (void)run(0, A_SECOND);
  expect_counts(0, 300, 0, "after a run with time");
  end();
}
static void needless_looks_are_forgotten(void) {
  begin((sb_settings)FREELY);
  for (unsigned i = 0; i <= SB_LEAST_LOOKS; i++) {
    put_timed(0, 0, AN_HOUR);
    if (i % 2 == 0) expect(sb_queue_get(queues[0], got, true) > 0, "there is no message");
  }
  (void)run(0, A_SECOND);
  expect_is(sb_housekeeper_looks(&memories[0]), SB_LEAST_LOOKS / 2, "the looks at those that are there");
  for (unsigned i = 0; i <= SB_LEAST_LOOKS / 2; i++) put_timed(0, 0, AN_HOUR);
  (void)run(0, A_SECOND);
  uint64_t removed;
  expect_is(sb_queue_purge(queues[0], &removed), SB_OK, "the status of a purge");
  expect_is(sb_housekeeper_looks(&memories[0]), SB_LEAST_LOOKS + 1, "the looks after a purge");
  for (unsigned i = 0; i < 5; i++) {
    put_timed(0, 0, AN_HOUR);
    (void)run(0, A_SECOND);
  }
  /* 1024 of them were asked for before the purge */
  expect_is(sb_housekeeper_looks(&memories[0]), 1024 + 5, "the looks that are left");
  end();
}
static void refused(void) {
  begin((sb_settings)FREELY);
  put_timed(0, 1, 0);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    (void)sb_housekeeper_new_timers(queues, memories, 3);
    begin_watching(t.c);
    (void)sb_housekeeper_run_timers(queues, memories, 3, 0, 0, A_SECOND);
    expect_untouched(t.c, "a run that is refused");
    refuse(t.c, SB_OK);
    expect_counts(0, 0, 1, "after a run that is refused");
  }
  (void)run(0, A_SECOND);
  expect_counts(0, 1, 0, "after one that is not");
  end();
}
/* Without memory for a look the queue asks for a scan of all cells, which finds the message again. */
static void no_memory_for_a_look(void) {
  begin((sb_settings)FREELY);
  put_timed(0, 1, 0);
  (void)run(0, A_SECOND); /* the agenda is there */
  put_timed(0, AN_HOUR, 0);
  sb_agenda_end(memories[0].agenda);
  uint64_t lost = queues[0]->shm->timers_lost;
  if (!heap_exhaust()) return;
  (void)run(0, A_SECOND);
  heap_relieve();
  expect_is(queues[0]->shm->timers_lost, lost + 1, "the scans that are asked for");
  (void)run(0, A_SECOND);
  expect_is(sb_housekeeper_looks(&memories[0]), 1, "the looks after a scan");
  end();
}

static const test_case CASES[] = {
    {"api_timers: nothing", "queues without timers cost nothing", nothing_to_do},
    {"api_timers: ready", "what is due becomes ready, and what is not says when it is", messages_become_ready},
    {"api_timers: expired", "a message that expires in a queue with dead letters is dead, once",
     one_that_expires_is_dead},
    {"api_timers: dead", "dead messages wait for the housekeeper's program", dead_ones_wait},
    {"api_timers: died", "what was dead is carried out before what dies", the_dead_go_before_those_that_die},
    {"api_timers: changed", "what changes during a look is looked at again at once", it_changes_during_the_look},
    {"api_timers: time", "a call ends after its time", other_work_has_its_turn},
    {"api_timers: forgotten", "looks at messages that are gone are forgotten", needless_looks_are_forgotten},
    {"api_timers: refused", "a call that is refused changes nothing", refused},
    {"api_timers: no memory", "without memory a scan is asked for", no_memory_for_a_look},
};
SUBJECT(CASES)
