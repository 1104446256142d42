// SPDX-License-Identifier: Apache-2.0
/* sb_rivals: consumers of a higher priority that want some of the messages, as others see them. A message's priority is
 * its number; a rival wants numbers from 5 on. */
#include "sb_rivals.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "sb_api.h"
#include "sb_slab.h"
#include "sb_subscription.h"
#include "selecting.h"
#include "surroundings.h"

static sb_queue *q;
static sb_subscription low, high;
static sb_taken taken;

static void put_ranked(uint8_t priority) {
  static const char body[64];
  const sb_put_options o = {.priority = priority};
  sb_status status;
  while ((status = sb_queue_put_with(q, body, sizeof body, &o)) == SB_GROW) expect(grow(t.b, t.path), "no memory");
  expect_is(status, SB_OK, "the status of a put");
}
static sb_wish *wish_from(int64_t number) {
  coded wanted = program_of();
  sb_wish *wish;
  op_property(&wanted, SB_PROPERTY_PRIORITY);
  op_integer(&wanted, number);
  op(&wanted, SB_OP_GREATER_OR_EQUAL);
  expect_is(sb_api_wish((const char *)wanted.bytes, wanted.length, &wish), SB_OK, "the status of a selector");
  return wish;
}
static sb_subscription subscribe(int32_t priority, bool no_local, sb_wish *wish) {
  sb_subscription s = sb_subscription_to(q, priority, no_local, wish);
  if (sb_node_create(t.c, q->slot, priority, SB_NODE_COUNTED, 0, 1, &s.node, &s.token) != SB_OK)
    die("sb_node_create", 0);
  expect_is(sb_rivals_announce(t.c, s.node, &s.choice, &s.wish_token), SB_OK, "the status of an announcement");
  return s;
}
static void begin(void) {
  q = open_new("q", UNLIMITED);
  low = subscribe(0, false, NULL);
  high = subscribe(1, false, wish_from(5));
}
static void begin_interested(void) {
  begin();
  sb_subscription_set_interested(&high, true);
  sb_subscription_set_interested(&low, true);
}
static sb_node_shm *node_of(const sb_subscription *s) { return sb_subscription_node(s); }
static void take_next(sb_subscription *s, uint8_t number) {
  expect_is(sb_subscription_take(s, &taken), SB_OK, "the status of a take");
  expect_is(taken.message->priority, number, "what is taken");
}
static void take_none(sb_subscription *s) {
  expect_is(sb_subscription_take(s, &taken), SB_EMPTY, "the status of a take");
}
static uint32_t rivals_of(int32_t priority) {
  sb_choice choice = {.cursor = 0};
  expect_is(sb_rivals_find(q, priority, &choice), SB_OK, "the status of a look");
  uint32_t count = choice.rivals.count;
  sb_rivals_forget(&choice);
  return count;
}

static void a_selector_is_announced(void) {
  begin();
  const sb_node_shm *n = node_of(&high);
  uint32_t slot = SB_LOAD(&n->wish, SB_RELAXED);
  expect(slot != 0 && high.wish_token != 0, "no slot has the selector");
  expect_is(SB_LOAD(&n->wish_length, SB_RELAXED), high.choice.wish->program.length, "its length");
  expect(memcmp(sb_slot_at(t.b, slot), high.choice.wish->code, high.choice.wish->program.length) == 0, "it is another");
  expect_is(SB_LOAD(&n->wish_gen, SB_RELAXED), sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)), "its slot");
  expect_is(SB_LOAD(&node_of(&low)->wish, SB_RELAXED), 0, "the selector of a plain consumer");
  sb_node_destroy(t.c, high.node, high.token);
  sb_subscription_leave(&high);
  expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)), SB_SLOT_FREE, "the slot afterwards");
  sb_subscription local = subscribe(1, true, NULL);
  expect((SB_LOAD(&node_of(&local)->flags, SB_RELAXED) & SB_NODE_NO_LOCAL) != 0, "no_local is not announced");
}
static void who_is_a_rival(void) {
  begin();
  expect_is(rivals_of(0), 0, "the rivals while it is not interested");
  expect(!sb_rivals_possible(q, node_of(&low)), "there may be a rival");
  sb_subscription_set_interested(&high, true);
  expect(sb_rivals_possible(q, node_of(&low)), "there may be no rival");
  expect(!sb_rivals_possible(q, node_of(&high)), "the highest priority has rivals");
  expect_is(rivals_of(0), 1, "the rivals of a lower priority");
  expect_is(rivals_of(1), 0, "the rivals of the same priority");
  expect_is(rivals_of(2), 0, "the rivals of a higher priority");
  sb_subscription_set_interested(&high, false);
  expect_is(rivals_of(0), 0, "the rivals without credit");
}
static void what_a_rival_wants_is_left(void) {
  begin_interested();
  put_ranked(5);
  put_ranked(1);
  put_ranked(7);
  put_ranked(2);
  take_next(&low, 1);
  take_next(&low, 2);
  take_none(&low);
  expect_is(node_state(low.node), SB_NODE_INTERESTED, "the state of its node");
  take_next(&high, 5);
  take_next(&high, 7);
  take_none(&high);
}
static void a_rival_that_leaves_makes_room(void) {
  begin_interested();
  put_ranked(5);
  take_none(&low);
  uint64_t before = node_wakes(low.node);
  sb_subscription_set_interested(&high, false);
  expect_is(node_wakes(low.node), before + 1, "how often the other is told");
  expect_is(node_state(low.node), SB_NODE_NOTIFIED, "the state of its node");
  take_next(&low, 5);
}
static void a_choosy_one_is_told(void) {
  begin();
  sb_subscription choosy = subscribe(0, false, wish_from(3));
  sb_subscription equal = subscribe(1, false, wish_from(3));
  sb_subscription_set_interested(&high, true);
  sb_subscription_set_interested(&choosy, true);
  sb_subscription_set_interested(&equal, true);
  put_ranked(5);
  put_ranked(4);
  take_none(&choosy);
  uint64_t before = node_wakes(choosy.node), beside = node_wakes(equal.node);
  sb_subscription_set_interested(&high, false);
  expect_is(node_wakes(choosy.node), before + 1, "how often the other is told");
  expect_is(node_wakes(equal.node), beside, "how often one of the same priority is told");
  take_none(&choosy);
  sb_subscription_set_interested(&equal, false);
  take_next(&choosy, 5);
  take_next(&choosy, 4);
}
static void the_cursor_begins_again(void) {
  begin_interested();
  for (unsigned i = 0; i < 3; i++) put_ranked(6);
  put_ranked(1);
  take_next(&low, 1);
  expect_is(low.choice.cursor, q->base + 4, "the cursor");
  sb_subscription more = subscribe(2, false, wish_from(9));
  sb_subscription_set_interested(&more, true);
  take_none(&low);
  expect_is(low.choice.rivals.count, 2, "its rivals");
  expect_is(low.choice.cursor, q->base + 4, "the cursor when a rival came");
  sb_subscription_set_interested(&high, false);
  take_next(&low, 6);
  expect_is(low.choice.cursor, q->base + 1, "the cursor when a rival left");
  sb_subscription_set_interested(&more, false);
  take_next(&low, 6);
  take_next(&low, 6);
}
/* A program that is damaged, or whose slot has another use by now, is none. */
static void damage_is_no_rival(void) {
  begin();
  sb_subscription_set_interested(&high, true);
  sb_node_shm *n = node_of(&high);
  uint32_t slot = SB_LOAD(&n->wish, SB_RELAXED), length = SB_LOAD(&n->wish_length, SB_RELAXED);
  SB_STORE(&n->wish_gen, SB_LOAD(&n->wish_gen, SB_RELAXED) + 1, SB_RELAXED);
  expect_is(rivals_of(0), 0, "the rivals whose slot is another one");
  SB_STORE(&n->wish_gen, SB_LOAD(&n->wish_gen, SB_RELAXED) - 1, SB_RELAXED);
  expect_is(rivals_of(0), 1, "the rivals");
  SB_STORE(&n->wish_length, 0u, SB_RELAXED);
  expect_is(rivals_of(0), 0, "the rivals without a length");
  SB_STORE(&n->wish_length, UINT32_MAX, SB_RELAXED);
  expect_is(rivals_of(0), 0, "the rivals of an impossible length");
  SB_STORE(&n->wish_length, length - 1, SB_RELAXED);
  expect_is(rivals_of(0), 0, "the rivals with half a program");
  SB_STORE(&n->wish_length, length, SB_RELAXED);
  SB_STORE(&n->wish, (1u << 28) - 1, SB_RELAXED);
  expect_is(rivals_of(0), 0, "the rivals in a slot that is none");
  SB_STORE(&n->wish, slot, SB_RELAXED);
  *(uint8_t *)sb_slot_at(t.b, slot) ^= 0xff;
  expect_is(rivals_of(0), 0, "the rivals with damaged bytes");
}
static void no_local_of_a_rival(void) {
  begin();
  sb_subscription local = subscribe(2, true, NULL);
  sb_subscription_set_interested(&local, true);
  sb_subscription_set_interested(&low, true);
  put_ranked(1);
  take_next(&low, 1);
  ((sb_node_shm *)sb_slot_at(t.b, local.node))->flags &= ~SB_NODE_NO_LOCAL;
  sb_subscription_set_interested(&local, false);
  sb_subscription_set_interested(&local, true);
  put_ranked(1);
  take_none(&low);
}
static void a_rescue_takes_anything(void) {
  begin_interested();
  put_ranked(5);
  take_none(&low);
  (void)SB_OR(&node_of(&low)->flags, SB_NODE_RESCUED, SB_SEQ_CST);
  take_next(&low, 5);
}
static void nothing_was_overlooked(void) {
  begin_interested();
  put_ranked(5);
  take_none(&low);
  SB_STORE(&node_of(&low)->flagged, 0, SB_RELAXED);
  expect_is(sb_subscription_overlooked(&low), 0, "what was overlooked beside a rival");
}
static sb_choice without;
static void find_without_memory(void) {
  expect_is(sb_rivals_find(q, 0, &without), SB_NO_MEMORY, "the status of a look without memory");
}
static void without_memory_for_a_copy(void) {
  begin_interested();
  without = (sb_choice){.cursor = 0};
  without_memory(find_without_memory);
  expect_is(without.rivals.count, 0, "the rivals");
  sb_rivals_forget(&without);
  put_ranked(5);
  take_none(&low);
}
static void without_memory_for_an_announcement(void) {
  q = open_new("q", UNLIMITED);
  sb_subscription s = sb_subscription_to(q, 1, false, wish_from(5));
  if (sb_node_create(t.c, q->slot, 1, SB_NODE_COUNTED, 0, 1, &s.node, &s.token) != SB_OK) die("sb_node_create", 0);
  leave_chunks(0);
  take_slots(sb_class_for(t.b, s.choice.wish->program.length));
  sb_status status = sb_rivals_announce(t.c, s.node, &s.choice, &s.wish_token);
  expect(status == SB_NO_MEMORY || status == SB_GROW, "the status is %d", (int)status);
  expect_is(s.wish_token, 0, "the holding");
  sb_rivals_withdraw(t.c, s.wish_token);
}

static const test_case CASES[] = {
    {"rivals: announced", "a selector lies where others read it, until its consumer leaves", a_selector_is_announced},
    {"rivals: who", "a rival has a higher priority and credit", who_is_a_rival},
    {"rivals: left", "what a rival wants is left to it, the rest is taken", what_a_rival_wants_is_left},
    {"rivals: leaves", "a rival that leaves notifies a plain consumer", a_rival_that_leaves_makes_room},
    {"rivals: choosy", "a rival that leaves notifies choosy consumers of lower priorities", a_choosy_one_is_told},
    {"rivals: cursor", "when a rival left, the search begins at the head", the_cursor_begins_again},
    {"rivals: damage", "a damaged selector makes no rival", damage_is_no_rival},
    {"rivals: no_local", "a rival with no_local leaves its own messages", no_local_of_a_rival},
    {"rivals: rescue", "a rescue takes any message", a_rescue_takes_anything},
    {"rivals: overlooked", "a consumer with a rival has overlooked nothing", nothing_was_overlooked},
    {"rivals: no memory", "without memory of the process nothing is lost", without_memory_for_a_copy},
    {"rivals: full", "without memory of the broker nothing is announced", without_memory_for_an_announcement},
};
SUBJECT(CASES)
