// SPDX-License-Identifier: Apache-2.0
/* sb_api_dead_batch: dead messages are taken, sorted into kinds, carried out together, and given back. */
#include <string.h>

#include "calls.h"
#include "committing.h"
#include "heap.h"
#include "queues.h"
#include "sb_agenda.h"
#include "sb_park.h"
#include "selecting.h"

#define DEADLY ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS})
#define A_SECOND UINT64_C(1000000000)
#define FRESH "\7x-deathA\0\0\0\0"

static sb_queue *q, *b;
static sb_queue_memory memory;
static sb_dead_batch batch;
static char record[BUFFER];
static sb_dead_part part;
static sb_dead_plan plan;
static const sb_dead_plan *plans[SB_DEAD_MOST];

static void find(void) {
  (void)sb_housekeeper_new_timers(&q, &memory, 1);
  (void)sb_housekeeper_run_timers(&q, &memory, 1, 0, UINT64_MAX - 1, A_SECOND);
}
static void put_and_reject(const sb_put_options *o) {
  const sb_put_options none = {.key = NULL};
  expect_is(sb_queue_put_with(q, BODY, BYTES, o != NULL ? o : &none), SB_OK, "the status of a put");
  expect(sb_queue_get(q, got, false) > 0, "there is no message");
  expect_is(sb_queue_settle(q, got, SB_REJECT), SB_OK, "the status of a rejection");
}
static void begin_with(sb_settings targets) {
  q = queue_named("a", DEADLY);
  b = queue_named("b", targets);
  note_rest(q);
  part = (sb_dead_part){.targets = &b, .target_count = 1};
  plan = (sb_dead_plan){.exchange = "dlx",
                        .key = "dead",
                        .headers = FRESH,
                        .exchange_length = 3,
                        .key_length = 4,
                        .headers_length = sizeof FRESH - 1,
                        .part_count = 1,
                        .parts = &part};
  for (unsigned kind = 0; kind < SB_DEAD_MOST; kind++) plans[kind] = &plan;
}
static void begin(unsigned count) {
  begin_with((sb_settings)FREELY);
  for (unsigned i = 0; i < count; i++) put_and_reject(NULL);
  find();
}
static void take(bool exact, uint32_t count, uint32_t kinds) {
  expect_is(sb_dead_take_batch(q, &memory, exact, &batch), SB_OK, "the status of a take");
  expect_is(batch.count, count, "the messages of the batch");
  expect_is(batch.kinds, kinds, "the kinds");
}
static void expect_counts(const sb_queue *of, uint64_t ready, uint64_t delivering, uint64_t scheduled,
                          const char *what) {
  sb_queue_facts f;
  if (sb_queue_describe(t.c, of->slot, &f) != SB_OK) die("sb_queue_describe", 0);
  expect(f.ready == ready && f.delivering == delivering && f.scheduled == scheduled,
         "%s: %d ready, %d delivering, %d scheduled", what, (int)f.ready, (int)f.delivering, (int)f.scheduled);
}
static void expect_dead(uint64_t count) { expect_is(memory.agenda->dead_count, count, "the dead that wait"); }
static void finish(uint32_t waits) {
  expect_is(sb_dead_end_batch(q, &memory, &batch), waits, "what waits on");
  expect_is(batch.count, 0, "what the batch has after its end");
  expect_dead(waits);
  sb_housekeeper_forget(&memory);
}

/* ---- taking ---- */

static void nothing_is_dead(void) {
  begin(0);
  sb_housekeeper_forget(&memory);
  take(false, 0, 0);
  expect_is(sb_dead_end_batch(q, &memory, &batch), 0, "what waits on");
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 0), SB_OK, "the status of nothing to carry out");
}
static void equal_ones_are_of_one_kind(void) {
  begin(3);
  take(false, 3, 1);
  expect_counts(q, 0, 3, 0, "while they are held");
  for (unsigned i = 0; i < 3; i++) expect_is(batch.messages[i].state, SB_DEAD_HELD, "the state of a message");
  uint32_t why = 0;
  expect_is(sb_dead_record(q, &batch.messages[2], record, &why), sizeof(sb_record) + BYTES, "the length of a record");
  expect_is(why, SB_WHY_REJECTED, "why it is dead");
  finish(3);
  expect_counts(q, 0, 0, 3, "after they were given back");
  expect_is(sb_dead_record(q, &batch.messages[2], record, &why), -(int64_t)SB_SETTLED, "a record of one that is gone");
  expect_rest("a batch that was given back");
}
static coded with_header(const char *name, const char *value, uint32_t length) {
  coded c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&c);
  add_header(&c, name, value, length);
  end_headers(&c, begun);
  return c;
}
static void reject_with(const coded *c, const char *key, uint8_t priority) {
  const sb_put_options o = {.key = key,
                            .key_length = (uint32_t)strlen(key),
                            .properties = (const char *)c->bytes,
                            .properties_length = c->length,
                            .priority = priority};
  put_and_reject(&o);
}
/* Other headers make no kind, all that the past has does. */
static void kinds(void) {
  begin(0);
  coded none = {.length = 0}, one = with_header("n", "I\0\0\0\1", 5), two = with_header("n", "I\0\0\0\2", 5);
  coded dead = with_header("x-death", "A\0\0\0\0", 5), copied = with_header("CC", "A\0\0\0\0", 5);
  coded first = with_header("x-first-death-queue", "V", 1), expiring = properties_of(FLAG(SB_PROPERTY_EXPIRATION));
  text_property(&expiring, "60000");
  const coded *const all[] = {&none, &one, &two, &dead, &copied, &first, &expiring};
  for (unsigned i = 0; i < 7; i++) reject_with(all[i], "k", 0);
  reject_with(&one, "l", 0);
  reject_with(&one, "k", 1);
  reject_with(&two, "k", 0);
  find();
  take(false, 10, 7);
  const uint32_t should[] = {0, 0, 0, 1, 2, 3, 4, 5, 6, 0};
  for (unsigned i = 0; i < 10; i++) expect_is(batch.messages[i].kind, should[i], "the kind of a message");
  expect_is(batch.kind[4].first, 6, "the first message of a kind");
  expect_is(sb_dead_end_batch(q, &memory, &batch), 10, "what waits on");
  take(true, 10, 9);
  expect_is(batch.messages[9].kind, batch.messages[2].kind, "the kind of messages with equal properties");
  finish(10);
}
static void what_is_apart(void) {
  begin(1);
  coded twice = properties_of(FLAG(SB_PROPERTY_HEADERS)), cut = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&twice);
  for (unsigned i = 0; i < 2; i++) add_header(&twice, "CC", "V", 1);
  end_headers(&twice, begun);
  append(&cut, "\0\0\1\0", 4);
  reject_with(&twice, "", 0);
  reject_with(&cut, "", 0);
  put_and_reject(NULL);
  find();
  take(false, 4, 1);
  expect_is(batch.apart, 2, "the messages that are apart");
  expect_is(batch.messages[1].state + batch.messages[2].state, 2 * SB_DEAD_APART, "their states");
  expect_counts(q, 0, 2, 2, "while the others are held");
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 4), SB_OK, "the status");
  batch.messages[1].state = SB_DEAD_DONE;
  expect_is(sb_dead_end_batch(q, &memory, &batch), 1, "what waits on");
  expect_is(sb_agenda_dead(memory.agenda)[0], q->base + 2, "its position");
  expect_counts(b, 2, 0, 0, "the target");
  batch.count = 0;
  sb_housekeeper_forget(&memory);
}
static void a_batch_has_its_most(void) {
  begin(SB_DEAD_MOST + 1);
  take(false, SB_DEAD_MOST, 1);
  expect_is(sb_dead_end_batch(q, &memory, &batch), SB_DEAD_MOST, "what waits on");
  expect_dead(SB_DEAD_MOST + 1);
  expect_is(sb_agenda_dead(memory.agenda)[0], q->base, "the first one");
  expect_is(sb_agenda_dead(memory.agenda)[SB_DEAD_MOST], q->base + SB_DEAD_MOST, "the last one");
  sb_housekeeper_forget(&memory);
}
static void long_bodies(void) {
  static char body[3 << 20];
  begin(0);
  for (unsigned i = 0; i < 3; i++) {
    expect_is(sb_queue_put(q, body, sizeof body), SB_OK, "the status of a put");
    expect(sb_queue_get(q, got, false) > 0, "there is no message");
    expect_is(sb_queue_settle(q, got, SB_REJECT), SB_OK, "the status of a rejection");
  }
  find();
  take(false, 2, 1);
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 2), SB_OK, "the status");
  expect_is(sb_dead_end_batch(q, &memory, &batch), 0, "what waits on");
  take(false, 1, 1);
  finish(1);
}
static void gone_ones(void) {
  begin(2);
  uint32_t why;
  expect(sb_dead_take(q, q->base, record, &why) > 0, "there is no dead message");
  take(false, 2, 1);
  expect_is(batch.messages[0].state, SB_DEAD_GONE, "the state of one that another one has");
  expect_is(sb_dead_end_batch(q, &memory, &batch), 1, "what waits on");
  expect_is(sb_housekeeper_looks(&memory), 1, "the looks at one that is gone");
  sb_dead_return(q, record, why);
  find();
  expect_dead(2);
  sb_housekeeper_forget(&memory);
  expect_rest("a message that was gone");
}

/* ---- carrying out ---- */

static void they_go_together(void) {
  begin(5);
  take(false, 5, 1);
  expect_is(sb_dead_carry_out(q, &batch, plans, 1, 3), SB_OK, "the status of some");
  for (unsigned i = 0; i < 5; i++)
    expect_is(batch.messages[i].state, i == 1 || i == 2 ? SB_DEAD_DONE : SB_DEAD_HELD, "the state of a message");
  expect_counts(b, 2, 0, 0, "the target after some");
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 5), SB_OK, "the status of all");
  expect_counts(b, 5, 0, 0, "the target");
  expect_counts(q, 0, 0, 0, "the queue");
  expect_is(counted(q, SB_COUNT_DEAD_LETTERED), 5, "what was carried out");
  finish(0);
  int64_t length = sb_queue_get(b, record, true);
  sb_record r;
  memcpy(&r, record, sizeof r);
  uint32_t properties = 2 + 4 + sizeof FRESH - 1;
  expect_is(length, sizeof r + 7 + properties + BYTES, "the length of a copy");
  expect(r.exchange_length == 3 && r.key_length == 4 && r.properties_length == properties, "its lengths");
  expect(memcmp(record + sizeof r, "dlxdead\x20\0\0\0\0\15" FRESH, 7 + properties) == 0, "its head is another one");
  expect(memcmp(record + length - BYTES, BODY, BYTES) == 0, "its body is another one");
  expect_rest("a batch that was carried out");
}
static void they_go_nowhere(void) {
  begin(2);
  plan.part_count = 0;
  take(false, 2, 1);
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 2), SB_OK, "the status");
  expect_is(counted(q, SB_COUNT_DROPPED), 2, "what was dropped");
  expect_counts(b, 0, 0, 0, "the target");
  finish(0);
  expect_rest("a batch that went nowhere");
}
static void parts_of_a_plan(void) {
  begin(2);
  sb_queue *c = queue_named("c", (sb_settings){{-1, -1, -1, 0, 60000, -1}, 0}); /* message_ttl */
  sb_dead_part both[] = {{.targets = &b, .target_count = 1}, {.targets = &c, .target_count = 1}};
  plan.parts = both;
  plan.part_count = 2;
  take(false, 2, 1);
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 2), SB_OK, "the status");
  expect_counts(b, 2, 0, 0, "the first target");
  expect_counts(c, 2, 0, 0, "the second target");
  expect_is(message_at(b, 1)->expires_ns, 0, "when a copy without a limit expires");
  expect(message_at(c, 1)->expires_ns > sb_now_ns(), "a copy with a limit does not expire");
  finish(0);
}
static void without_room(void) {
  begin_with((sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  put_and_reject(NULL);
  put_and_reject(NULL);
  find();
  take(false, 2, 1);
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 2), SB_FULL, "the status of two where one has room");
  expect_counts(q, 0, 2, 0, "after a commit that failed");
  expect_counts(b, 0, 0, 0, "the target after a commit that failed");
  expect_is(sb_dead_carry_out(q, &batch, plans, 1, 2), SB_OK, "the status of one");
  plans[0] = NULL;
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 2), SB_OK, "the status of a kind without a plan");
  finish(1);
  expect_counts(q, 0, 0, 1, "after the end");
}
static void one_that_is_not_held(void) {
  begin(2);
  take(false, 2, 1);
  sb_settlement end = {.queue = q, .token = batch.messages[0].token, .disposition = SB_GIVEN_UP};
  uint32_t failed[2];
  expect_is(sb_transaction_commit(t.c, NULL, 0, &end, 1, &failed[0], &failed[1]), SB_OK, "the status of its end");
  expect_is(sb_dead_carry_out(q, &batch, plans, 0, 2), SB_OK, "the status of the other one");
  expect_counts(b, 1, 0, 0, "the target");
  finish(0);
}
static void a_deletion_meanwhile(void) {
  begin(2);
  int32_t holder;
  uint64_t removed = 0;
  take(false, 2, 1);
  expect_is(sb_queue_delete(q, false, false, UINT64_MAX, &holder, &removed), SB_OK, "the status of a deletion");
  finish(0);
  expect_is(q->ledger->counters[SB_COUNT_KILLED], 2, "what was killed");
  expect_is(sb_dead_take_batch(q, &memory, false, &batch), SB_OK, "the status of a take without an agenda");
}
static void refused(void) {
  uint32_t why;
  begin(2);
  take(false, 2, 1);
  for (unsigned i = 0; i < REFUSALS; i++) {
    static sb_dead_batch other;
    refuse(t.c, REFUSAL[i]);
    begin_watching(t.c);
    expect_is(sb_dead_take_batch(q, &memory, false, &other), REFUSAL[i], "the status of a take");
    expect_is(sb_dead_carry_out(q, &batch, plans, 0, 2), REFUSAL[i], "the status of a commit");
    expect_is(sb_dead_record(q, &batch.messages[0], record, &why), -(int64_t)REFUSAL[i], "the status of a record");
    expect_untouched(t.c, "refused calls");
    refuse(t.c, SB_OK);
  }
  finish(2);
}
static void no_memory_for_a_commit(void) {
  begin(2);
  take(false, 2, 1);
  if (!heap_exhaust()) return;
  sb_status status = sb_dead_carry_out(q, &batch, plans, 0, 2);
  heap_relieve();
  expect_is(status, SB_SYSTEM, "the status");
  expect_counts(q, 0, 2, 0, "after a commit that failed");
  finish(2);
}

static const test_case CASES[] = {
    {"api_dead_batch: nothing", "a queue without dead messages has an empty batch", nothing_is_dead},
    {"api_dead_batch: one kind", "equal messages are of one kind, and are given back", equal_ones_are_of_one_kind},
    {"api_dead_batch: kinds", "messages of one kind have the same past, or the same properties", kinds},
    {"api_dead_batch: apart", "what cannot be rewritten waits for Python", what_is_apart},
    {"api_dead_batch: most", "a batch has a limit of messages", a_batch_has_its_most},
    {"api_dead_batch: bytes", "and of bytes", long_bodies},
    {"api_dead_batch: gone", "a message that is gone is looked at once more", gone_ones},
    {"api_dead_batch: together", "messages go in one commit, with their new headers", they_go_together},
    {"api_dead_batch: nowhere", "messages without a target end", they_go_nowhere},
    {"api_dead_batch: parts", "each part of a plan gets copies with its time to live", parts_of_a_plan},
    {"api_dead_batch: full", "without room for all none goes", without_room},
    {"api_dead_batch: not held", "one that is not held any more is left out", one_that_is_not_held},
    {"api_dead_batch: deleted", "the batch of a queue that was deleted ends", a_deletion_meanwhile},
    {"api_dead_batch: refused", "a call that is refused changes nothing", refused},
    {"api_dead_batch: no memory", "without memory for a commit they are held on", no_memory_for_a_commit},
};
SUBJECT(CASES)
