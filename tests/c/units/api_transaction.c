// SPDX-License-Identifier: Apache-2.0
/* sb_api_transaction: the commits that it accepts, the effect on their messages, and what a failed commit leaves. What
 * happens during a commit: api_commit_meanwhile.c. */
#include <string.h>

#include "committing.h"

static void expect_nothing_added_to(unsigned count, const char *after) {
  for (unsigned i = 0; i < count; i++) expect(added_to(i) == 0, "after %s: queue %u got a message", after, i);
  expect_rest(after);
}

/* ---- what is in order ---- */

static void publications_out_of_order(void) {
  static sb_queue *same[SB_MAX_TARGETS + 1];
  const sb_put_options longest = {.key = got, .key_length = SB_MAX_PREFIX - sizeof(sb_message_shm)};
  const sb_put_options longer = {.key = got, .key_length = longest.key_length + 1};
  make_targets(3, UNLIMITED);
  sb_publication p[2] = {first_targets(0, 1), first_targets(1, 0)};
  p[1].length = SB_MAX_BODY;
  expect_blamed(commit_now(p + 1, 1, 0), SB_OK, NOBODY, NOBODY, "the longest body, which goes nowhere");
  p[1].length++;
  expect_blamed(commit_now(p, 2, 0), SB_TOO_LARGE, 1, NOBODY, "a longer body");
  p[1] = first_targets(1, 0);
  p[1].options = &longest;
  expect_blamed(commit_now(p + 1, 1, 0), SB_OK, NOBODY, NOBODY, "the longest front");
  p[1].options = &longer;
  expect_blamed(commit_now(p, 2, 0), SB_INVALID, 1, NOBODY, "a longer front");
  for (unsigned i = 0; i <= SB_MAX_TARGETS; i++) same[i] = target[0];
  p[1] = (sb_publication){.body = BODY, .length = BYTES, .targets = same, .target_count = SB_MAX_TARGETS};
  expect_blamed(commit_now(p, 2, 0), SB_INVALID, 1, NOBODY, "a queue that is named very often");
  p[1].target_count++;
  expect_blamed(commit_now(p, 2, 0), SB_LIMIT, 1, NOBODY, "too many targets");
  p[1].target_count = UINT32_MAX;
  expect_blamed(commit_now(p + 1, 1, 0), SB_LIMIT, NOBODY, NOBODY, "more targets than can be counted");
  sb_queue *twice[] = {target[2], target[0], target[1], target[2]};
  p[1] = (sb_publication){.body = BODY, .length = BYTES, .targets = twice, .target_count = 4};
  expect_blamed(commit_now(p, 2, 0), SB_INVALID, 1, NOBODY, "a queue that is named twice");
  p[0] = p[1];
  p[1] = first_targets(0, 1);
  expect_blamed(commit_now(p, 2, 0), SB_INVALID, 0, NOBODY, "a queue that is named twice by the first");
  sb_connection *another = connect_to(&t);
  sb_queue foreign = *target[1];
  foreign.c = another;
  sb_queue *strange[] = {target[0], &foreign};
  p[1] = (sb_publication){.body = BODY, .length = BYTES, .targets = strange, .target_count = 2};
  p[0] = first_targets(0, 1);
  expect_blamed(commit_now(p, 2, 0), SB_INVALID, 1, 1, "another connection's queue");
  expect_nothing_added_to(3, "publications out of order");
}
static void settlements_out_of_order(void) {
  make_targets(2, UNLIMITED);
  for (int i = 0; i < 4; i++) put_into(0);
  sb_publication wrong = first_targets(0, 1);
  wrong.length = SB_MAX_BODY + 1;
  hold_for(0, 0, SB_ACK);
  hold_for(0, 1, NO_WAY);
  note_rest(target[0]);
  expect_blamed(commit_now(NULL, 0, 2), SB_INVALID, NOBODY, NOBODY, "no way to settle");
  settling[1].disposition = SB_ACK;
  settling[1].queue = target[1];
  expect_is(commit_now(NULL, 0, 2), SB_SETTLED, "the status of a message of another queue");
  sb_queue foreign = *target[0];
  foreign.c = NULL;
  settling[1].queue = &foreign;
  expect_is(commit_now(NULL, 0, 2), SB_INVALID, "the status of another connection's queue");
  settling[1] = settling[0];
  expect_is(commit_now(NULL, 0, 2), SB_SETTLED, "the status of one that is named twice");
  settling[1].token += 1u << 20;
  expect_is(commit_now(NULL, 0, 2), SB_SETTLED, "the status of what is not held");
  expect_is(commit_now(&wrong, 1, 2), SB_SETTLED, "the status of what is not held, before that of a body");
  expect_is(counted(target[0], SB_COUNT_ACKED), 0, "the number acknowledged");
  settling[1] = settling[0];
  settling[1].token = target[0]->ledger_token;
  expect_is(commit_now(NULL, 0, 2), SB_SETTLED, "the status of what is no message");
  settling[1] = settling[0];
  settling[0].disposition = SB_REQUEUE;
  settling[0].queue = target[1];
  expect_is(commit_now(NULL, 0, 1), SB_SETTLED, "the status of a requeue to another queue");
  settling[0].queue = target[0];
  sb_word *what = &sb_holding_at(t.b, settling[0].token)->what;
  uint64_t was = SB_LOAD(what, SB_RELAXED);
  SB_STORE(what, was ^ SB_HOLD_CELL ^ SB_HOLD_SETTLING, SB_RELAXED);
  expect_is(commit_now(NULL, 0, 1), SB_SETTLED, "the status of a requeue of what is being settled");
  SB_STORE(what, was, SB_RELAXED);
  sb_leaf_ref leaf;
  sb_taken taken;
  expect(sb_settle_find(t.c, settling[0].token, &taken, &leaf), "it is not held");
  sb_word *cell = &sb_leaf_cell(&leaf, taken.position)->word;
  SB_STORE(cell, SB_LOAD(cell, SB_RELAXED) ^ SB_FIELD(1, 37), SB_RELAXED);
  expect_is(commit_now(NULL, 0, 1), SB_SETTLED, "the status of a requeue of another one's message");
  SB_STORE(cell, SB_LOAD(cell, SB_RELAXED) ^ SB_FIELD(1, 37), SB_RELAXED);
  settling[0].disposition = SB_ACK;
  settling[0].token |= UINT64_C(3) << SB_TAG_ACK_SLOT;
  expect_is(commit_now(NULL, 0, 1), SB_OK, "the status of one that is held");
  expect_is(counted(target[0], SB_COUNT_ACKED), 1, "the number acknowledged at last");
}
static void commits_that_are_refused(void) {
  make_targets(1, UNLIMITED);
  sb_publication p = first_targets(0, 1);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_blamed(commit_now(&p, 1, 0), REFUSAL[i], NOBODY, NOBODY, "a connection that cannot be used");
    expect_untouched(t.c, "a commit that is refused");
  }
  refuse(t.c, SB_OK);
  expect_is(added_to(0), 0, "the number of messages");
}
static void no_plan(void) {
  sb_publication p = first_targets(0, 2);
  expect_blamed(commit_now(&p, 1, 0), SB_SYSTEM, NOBODY, NOBODY, "no memory of the process");
}
static void no_memory_of_the_process(void) {
  static sb_queue *many[2000];
  make_targets(2, UNLIMITED);
  for (unsigned i = 0; i < 2000; i++) many[i] = target[0];
  sb_publication p = {.body = BODY, .length = BYTES, .targets = many, .target_count = 2000};
  uint64_t used = allocated_bytes();
  expect_is(commit_now(&p, 1, 0), SB_INVALID, "the status of a long plan");
  expect_is(allocated_bytes(), used, "the private memory");
  without_memory(no_plan);
  expect_nothing_added_to(2, "a commit without memory of the process");
}

/* ---- what becomes of it ---- */

/* Up to eight queues have a reference each in the header of the slot; more share a block. */
static void targets_of_a_body(uint32_t count) {
  make_targets(count, UNLIMITED);
  sb_publication p = first_targets(0, count);
  uint32_t node = wait_at(target[count - 1], FOR_WORK, 0);
  sb_queue *last = target[0];
  target[0] = target[count - 1]; /* in no order */
  target[count - 1] = last;
  note_rest(target[0]);
  expect_blamed(commit_now(&p, 1, 0), SB_OK, NOBODY, NOBODY, "a commit to several queues");
  uint32_t slot = slot_in(0, 0);
  const sb_message_shm *m = sb_slot_at(t.b, slot);
  uint64_t references = count > 8 ? 1 : (UINT64_C(1) << count) - 1;
  expect_is(m->targets, count, "the number of targets");
  expect_is(sb_slot_refs(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)), references, "the references");
  expect(was_told(node), "a consumer is not told");
  expect_is(t.c->shm->commit, 0, "the word of the commit");
  const char *trouble = findings(t.c);
  expect(trouble == NULL, "%s", trouble);
  for (uint32_t i = 0; i < count; i++) {
    expect_is(added_to(i), 1, "the number of messages");
    expect_is(target[i]->shm->staged, 1, "whether commits put messages there");
    expect_is(sb_queue_get(target[i], got, true), sizeof(sb_record) + BYTES, "the length");
    expect(memcmp(got + sizeof(sb_record), BODY, BYTES) == 0, "the body is another one");
  }
  sb_slab_flush_freed(t.c);
  expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)), SB_SLOT_FREE, "the slot at last");
  expect_rest("a commit to several queues");
}
static void a_body_for_eight(void) { targets_of_a_body(8); }
static void a_body_for_nine(void) { targets_of_a_body(9); }
/* The block names the queues of its own publication, not those of the next one; and what was sorted before does not count. */
static void publications_beside_each_other(void) {
  make_targets(MOST_TARGETS, UNLIMITED);
  sb_publication p[3] = {first_targets(0, 9), first_targets(7, 2), first_targets(9, 1)};
  expect_blamed(commit_now(p, 3, 0), SB_OK, NOBODY, NOBODY, "three publications");
  for (uint32_t i = 0; i < 9; i++) {
    expect(sb_queue_get(target[i], got, true) > 0, "queue %u has no message", i);
  }
  expect_rest("the ends of messages that share a body");
}
static void a_body_for_one(void) { targets_of_a_body(1); }

static void publications_and_settlements(void) {
  make_targets(3, UNLIMITED);
  for (int i = 0; i < 4; i++) put_into(0);
  note_rest(target[0]);
  const sb_disposition dispositions[] = {SB_ACK, SB_REJECT, SB_REQUEUE, SB_UNDELIVER};
  for (unsigned i = 0; i < 4; i++) hold_for(0, i, dispositions[i]);
  uint32_t node = wait_at(target[0], FOR_WORK, 0), memory = wait_at(target[0], FOR_MEMORY, BYTES);
  uint32_t second = wait_at(target[0], FOR_MEMORY, BYTES);
  note_rest(target[1]);
  sb_publication p[3] = {first_targets(1, 2), first_targets(1, 0), first_targets(2, 1)};
  expect_blamed(commit_now(p, 3, 4), SB_OK, NOBODY, NOBODY, "a transaction");
  expect(added_to(1) == 1 && added_to(2) == 2, "the queues have other messages");
  expect_is(counted(target[0], SB_COUNT_ACKED), 1, "the number acknowledged");
  expect_is(counted(target[0], SB_COUNT_DROPPED), 1, "the number dropped");
  expect_is(sb_queue_length(target[0]), 2, "the number that came back");
  expect(was_told(node), "a consumer is not told of what came back");
  expect(was_told(memory), "a producer that waits for memory is not told");
  expect(!was_told(second), "a second producer is told, too");
  p[0] = first_targets(1, 1);
  expect_is(commit_now(p, 1, 0), SB_OK, "the status without settlements");
  expect(!was_told(memory), "a producer is told of memory although nothing was settled");
}
/* A queue that is deleted is as if it were not bound; one that is full and drops counts the message. */
static void targets_that_get_nothing(void) {
  make_targets(2, UNLIMITED);
  target[2] = make_queue("drops", (sb_settings){{-1, 1, 100, SB_OVERFLOW_DROP, -1, -1}, 0});
  put_into(2);
  note_rest(target[0]);
  sb_publication p[2] = {first_targets(0, 3), first_targets(2, 1)};
  uint32_t node = wait_at(target[2], FOR_WORK, 0);
  mark_closed(target[0]);
  note_rest(target[1]);
  expect_blamed(commit_now(p, 2, 0), SB_OK, NOBODY, NOBODY, "targets that get nothing");
  expect(!was_told(node), "a consumer is told of what went nowhere");
  expect(added_to(0) == 0 && added_to(1) == 1 && added_to(2) == 1, "other queues got it");
  expect_is(counted(target[2], SB_COUNT_REFUSED), 2, "the number that went nowhere");
  SB_STORE(&target[0]->shm->state, target[0]->state, SB_RELAXED);
  expect_rest("targets that get nothing");
  char large[101] = "";
  p[0] = first_targets(1, 2);
  p[0].body = large;
  p[0].length = sizeof large;
  expect_blamed(commit_now(p, 1, 0), SB_TOO_LARGE, 0, 1, "a body that is too long for a queue that drops");
  expect_rest("a body that is too long");
}
/* A queue that drops has no room for a message that is transferred to it: the message stays where it is. */
static void a_transfer_is_not_dropped(void) {
  make_targets(1, (sb_settings){{-1, 1, -1, SB_OVERFLOW_DROP, -1, -1}, 0});
  put_into(0);
  hold_for(0, 0, SB_TRANSFER);
  put_into(0);
  note_rest(target[0]);
  const sb_publication p = first_targets(0, 1);
  expect_blamed(commit_now(&p, 1, 1), SB_FULL, 0, 0, "a transfer to a full queue");
  expect_is(counted(target[0], SB_COUNT_REFUSED), 0, "the number that was refused");
  expect_is(counted(target[0], SB_COUNT_MOVED), 0, "the number that was moved");
  expect_rest("a transfer that found no room");
}
static void a_body_that_goes_nowhere(void) {
  make_targets(1, UNLIMITED);
  target[1] = make_queue("drops", (sb_settings){{-1, 1, -1, SB_OVERFLOW_DROP, -1, -1}, 0});
  put_into(1);
  sb_publication p[2] = {first_targets(1, 1), first_targets(0, 1)};
  leave_chunks(0);
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, wait_at(target[0], FOR_ROOM, 0)))->wake;
  note_rest(target[0]);
  uint32_t armed = sb_wake_arm(wake);
  SB_STORE(&t.b->header->next_due_ns, UINT64_MAX, SB_RELAXED);
  SB_STORE(&t.b->header->housekeeper_waiter, sb_slot_of(t.b, (char *)wake - offsetof(sb_node_shm, wake)), SB_RELAXED);
  const sb_put_options timed = {.ttl_ns = UINT64_C(1) << 50};
  p[0].options = &timed;
  p[0].length = SB_CHUNK_BYTES; /* there is no memory for it, and none is needed */
  expect_blamed(commit_now(p, 2, 0), SB_OK, NOBODY, NOBODY, "a body that goes nowhere");
  expect_is(*wake, armed, "the housekeeper's word");
  expect_rest("a body that goes nowhere");
}
static void the_timers_of_a_body(void) {
  make_targets(1, UNLIMITED);
  uint32_t keeper = wait_at(target[0], FOR_ROOM, 0);
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, keeper))->wake;
  SB_STORE(&t.b->header->housekeeper_waiter, keeper, SB_RELAXED);
  SB_STORE(&t.b->header->next_due_ns, UINT64_MAX, SB_RELAXED);
  const sb_put_options o[] = {{.priority = 1}, {.ttl_ns = UINT64_C(1) << 50}, {.delay_ns = UINT64_C(1) << 50}};
  note_rest(target[0]);
  for (unsigned i = 0; i < 3; i++) {
    sb_publication p = first_targets(0, 1);
    p.options = &o[i];
    uint32_t armed = sb_wake_arm(wake);
    expect_is(commit_now(&p, 1, 0), SB_OK, "the status");
    expect((*wake != armed) == (i > 0), "the housekeeper is%s told of message %u", i > 0 ? " not" : "", i);
  }
  expect_is(counted(target[0], SB_COUNT_SCHEDULED), 1, "how many are not due");
  expect_is(sb_queue_length(target[0]), 2, "how many are ready");
  expect_rest("messages with timers");
}
/* A ring evicts what is too many, with the bytes and the places right; a queue with a limit keeps its place. */
static void limits_of_targets(void) {
  make_targets(2, (sb_settings){{1, -1, -1, 0, -1, -1}, 0});
  target[2] = make_queue("limited", (sb_settings){{-1, 5, 1000, 0, -1, -1}, 0});
  uint32_t memory = wait_at(target[0], FOR_MEMORY, BYTES);
  const sb_put_options late = {.delay_ns = UINT64_C(1) << 50};
  note_rest(target[0]);
  for (unsigned i = 0; i < 2; i++) {
    sb_publication p[2] = {first_targets(0, 3), first_targets(0, 3)};
    p[1].options = &late;
    (void)was_told(memory);
    expect_is(commit_now(p, 2, 0), SB_OK, "the status");
    expect_rest("a commit to rings and limits");
    expect(was_told(memory) == (i > 0), "a producer is%s told of what was evicted", i > 0 ? " not" : "");
  }
  expect_is(counted(target[0], SB_COUNT_REPLACED), 1, "the number replaced");
  expect_is(sb_queue_length(target[2]), 2, "the number ready in the limited queue");
  expect_is(target[2]->shm->admitted - target[2]->base, 4, "the places taken");
}

/* ---- what does not happen ---- */

static void a_limit_is_to_blame(void) {
  make_targets(2, UNLIMITED);
  target[2] = make_queue("full", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  target[3] = make_queue("limited", (sb_settings){{-1, 2, -1, 0, -1, -1}, 0});
  put_into(2);
  put_into(3);
  uint32_t room = wait_at(target[3], FOR_ROOM, BYTES), memory = wait_at(target[0], FOR_MEMORY, BYTES);
  sb_queue *targets[] = {target[3], target[0], target[2]};
  sb_publication p[2] = {first_targets(1, 1), {.body = BODY, .length = BYTES, .targets = targets, .target_count = 3}};
  note_rest(target[0]);
  expect_blamed(commit_now(p, 2, 0), SB_FULL, 1, 2, "a queue that is full");
  expect_is(target[3]->shm->admitted - target[3]->base, 1, "the places taken");
  expect_is(counted(target[2], SB_COUNT_REFUSED), 0, "the number that went nowhere");
  expect(was_told(room), "a producer that waits for room is not told");
  expect(was_told(memory), "a producer that waits for memory is not told");
  expect_nothing_added_to(2, "a commit to a full queue");
}
/* There is no page for a cell of the second target of the second publication. */
static void a_page_is_to_blame(void) {
  make_targets(4, (sb_settings){{-1, 5, -1, 0, -1, -1}, 0});
  put_into(0);
  put_into(1);
  put_into(2);
  leave_chunks(sb_reserve_chunks(t.b));
  take_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  sb_publication p[2] = {first_targets(0, 2), first_targets(2, 2)};
  note_rest(target[0]);
  expect_blamed(commit_now(p, 2, 0), SB_NO_MEMORY, 1, 1, "a queue without a page");
  for (unsigned i = 0; i < 4; i++) {
    expect_is(added_to(i), i < 3, "the number of messages");
    expect_is(sb_queue_length(target[i]), i < 3, "the number ready");
  }
  expect_rest("a commit without a page");
  p[1] = first_targets(3, 1);
  expect_blamed(commit_now(p, 2, 0), SB_NO_MEMORY, 1, 0, "the first target of the second");
  p[0] = first_targets(3, 1);
  expect_blamed(commit_now(p, 1, 0), SB_NO_MEMORY, 0, 0, "the first target");
  sb_publication long_one = first_targets(0, 1);
  long_one.body = untouched(3 * SB_CHUNK_BYTES);
  long_one.length = 3 * SB_CHUNK_BYTES;
  expect_blamed(commit_now(&long_one, 1, 0), SB_NO_MEMORY, 0, NOBODY, "a body without a slot");
  p[0] = long_one;
  p[1] = first_targets(0, 1);
  expect_blamed(commit_now(p, 2, 0), SB_NO_MEMORY, 0, NOBODY, "the first body, without a slot");
  expect_rest("a commit without a slot");
}
/* What is settled in one of the broker's own queues may be published with the memory that is kept for notes. */
static void notes_take_of_the_reserve(void) {
  make_targets(1, UNLIMITED);
  target[1] = make_queue("notes", (sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_NOTES});
  put_into(1);
  put_into(0);
  hold_for(1, 0, SB_ACK);
  hold_for(0, 1, SB_ACK);
  target[2] = make_queue("without a page", UNLIMITED);
  leave_chunks(sb_reserve_chunks(t.b));
  take_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  sb_publication p = first_targets(2, 1);
  expect_blamed(commit_now(&p, 1, 0), SB_NO_MEMORY, 0, 0, "a plain commit");
  expect_is(commit_now(&p, 1, 2), SB_OK, "the status of notes");
  expect_is(t.c->use, SB_USE_DRAIN, "the use of memory");
  expect(added_to(2) == 1 && counted(target[1], SB_COUNT_ACKED) == 1, "it did not happen");
}
/* The last eighth of a chunk of the reserve is for notes: a body that is no note gets none of it, whatever it is
 * published together with. */
static void a_body_takes_nothing_kept_for_notes(void) {
  make_targets(1, UNLIMITED);
  target[1] = make_queue("notes", (sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_NOTES});
  put_into(1);
  put_into(0);
  hold_for(1, 0, SB_ACK);
  leave_chunks(2);
  unsigned cls = sb_class_for(t.b, sizeof(sb_message_shm) + BYTES);
  take_slots(cls);
  uint64_t token, gen;
  uint32_t slot, slots = SB_CHUNK_UNITS / sb_class_units(cls);
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  for (uint32_t i = 0; i < slots - slots / 16; i++) {
    if (sb_slab_alloc(t.c, cls, token, &slot, &gen) != SB_OK) die("sb_slab_alloc", (int)i);
  }
  sb_publication p = first_targets(0, 1);
  expect_blamed(commit_now(&p, 1, 1), SB_NO_MEMORY, 0, NOBODY, "a body for a queue of the user");
  p = first_targets(1, 1);
  expect_is(commit_now(&p, 1, 1), SB_OK, "the status of a note");
}
/* What ends as many messages as it adds, with bodies as long, has memory that is kept for staging. */
static void as_much_as_it_ends_takes_of_the_reserve(void) {
  make_targets(2, UNLIMITED);
  for (int i = 0; i < 3; i++) put_into(0);
  hold_for(0, 0, SB_REQUEUE); /* so it is not ended */
  hold_for(0, 1, SB_ACK);
  hold_for(0, 2, SB_REJECT);
  leave_chunks(sb_reserve_chunks(t.b));
  take_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  sb_publication p[3] = {first_targets(1, 1), first_targets(1, 1), first_targets(1, 1)};
  expect_blamed(commit_now(p, 1, 1), SB_NO_MEMORY, 0, 0, "what ends nothing");
  expect_blamed(commit_now(p, 3, 3), SB_NO_MEMORY, 0, 0, "more messages than it ends");
  for (unsigned i = 0; i < 3; i++) p[i].length = 1;
  expect_blamed(commit_now(p, 3, 3), SB_NO_MEMORY, 0, 0, "more messages than it ends, with short bodies");
  for (unsigned i = 0; i < 3; i++) p[i].length = BYTES;
  p[1].body = got;
  p[1].length = BYTES + 1;
  expect_blamed(commit_now(p, 2, 3), SB_NO_MEMORY, 0, 0, "longer bodies than it ends");
  p[1].length = BYTES;
  expect_is(commit_now(p, 2, 3), SB_OK, "the status of two for two");
  expect_is(t.c->use, SB_USE_DRAIN, "the use of memory");
  expect_is(added_to(1), 2, "the number of messages");
}

static const test_case CASES[] = {
    {"api_transaction: publications", "a publication that is out of order is to blame", publications_out_of_order},
    {"api_transaction: settlements", "only what is held is settled, once", settlements_out_of_order},
    {"api_transaction: refused", "a connection that cannot be used commits nothing", commits_that_are_refused},
    {"api_transaction: no plan", "without memory of the process nothing happens", no_memory_of_the_process},
    {"api_transaction: one", "a body for one queue", a_body_for_one},
    {"api_transaction: eight", "a body for eight queues has eight references", a_body_for_eight},
    {"api_transaction: nine", "a body for nine queues has a block", a_body_for_nine},
    {"api_transaction: three", "each publication has its own queues", publications_beside_each_other},
    {"api_transaction: both", "publications and settlements happen together", publications_and_settlements},
    {"api_transaction: nothing", "a closed queue and a full one get nothing", targets_that_get_nothing},
    {"api_transaction: transfer", "a message that is transferred is not dropped", a_transfer_is_not_dropped},
    {"api_transaction: nowhere", "a body that goes nowhere is not made", a_body_that_goes_nowhere},
    {"api_transaction: timers", "messages with timers are scheduled, and the housekeeper told", the_timers_of_a_body},
    {"api_transaction: limits", "limits of targets are kept", limits_of_targets},
    {"api_transaction: full", "a full queue is to blame, and nothing happens", a_limit_is_to_blame},
    {"api_transaction: no page", "a queue without a page is to blame, and nothing happens", a_page_is_to_blame},
    {"api_transaction: notes", "notes take of the reserve", notes_take_of_the_reserve},
    {"api_transaction: for notes", "a body that is no note takes nothing that is kept for notes",
     a_body_takes_nothing_kept_for_notes},
    {"api_transaction: no more", "what adds no more than it ends takes of the reserve",
     as_much_as_it_ends_takes_of_the_reserve},
};
SUBJECT(CASES)
