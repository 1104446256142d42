// SPDX-License-Identifier: Apache-2.0
/* sb_choice with a selector, and the copy of it that a consumer has (sb_api_wish). A message's priority is its number. */
#include "sb_choice.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "sb_api.h"
#include "sb_subscription.h"
#include "selecting.h"
#include "surroundings.h"

static coded wanted;
static sb_wish *wish;
static sb_queue *q;
static sb_choice choice;
static sb_taken taken;

static void put_ranked(uint8_t priority) {
  static const char body[64];
  const sb_put_options o = {.priority = priority};
  sb_status status;
  while ((status = sb_queue_put_with(q, body, sizeof body, &o)) == SB_GROW) expect(grow(t.b, t.path), "no memory");
  expect_is(status, SB_OK, "the status of a put");
}
/* A consumer that wants the priorities from 2 on. */
static void begin(void) {
  q = open_new("q", UNLIMITED);
  wanted = program_of();
  op_property(&wanted, SB_PROPERTY_PRIORITY);
  op_integer(&wanted, 2);
  op(&wanted, SB_OP_GREATER_OR_EQUAL);
  expect_is(sb_api_wish((const char *)wanted.bytes, wanted.length, &wish), SB_OK, "the status of a selector");
  choice = (sb_choice){.wish = wish};
}
static sb_status take(void) {
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  sb_status status = sb_choice_take(q, &choice, token, &taken);
  if (status != SB_OK) sb_holding_give(t.c, token);
  return status;
}
static void expect_ranks(const char *what, unsigned count, const uint8_t *priorities) {
  for (unsigned i = 0; i < count; i++) {
    expect_is(take(), SB_OK, what);
    expect_is(taken.message->priority, priorities[i], what);
  }
  expect_is(take(), SB_EMPTY, what);
}

static void selected_messages_in_turn(void) {
  static const uint8_t priorities[] = {5, 2, 3};
  begin();
  put_ranked(0);
  put_ranked(5);
  put_ranked(1);
  put_ranked(2);
  put_ranked(3);
  expect_ranks("what it wants", 3, priorities);
  expect(!choice.unfinished, "a search to the end counts as unfinished");
  expect_is(sb_queue_ready(t.b, q->shm), 2, "what is left for others");
}
static void a_damaged_message_is_left(void) {
  static const uint8_t priorities[] = {3};
  begin();
  put_ranked(2);
  put_ranked(3);
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base, &leaf) != SB_OK) die("sb_ring_locate", 0);
  uint32_t slot = sb_cell_slot(SB_LOAD(&sb_leaf_cell(&leaf, q->base)->word, SB_RELAXED));
  ((sb_message_shm *)sb_slot_at(t.b, slot))->properties_length = UINT32_MAX;
  expect_ranks("what is not damaged", 1, priorities);
  expect_is(sb_queue_ready(t.b, q->shm), 1, "what is damaged");
}
static void a_long_search_pauses(void) {
  begin();
  for (unsigned i = 0; i < SB_CHOICE_LOOKS + 1; i++) put_ranked(0);
  put_ranked(7);
  expect_is(take(), SB_EMPTY, "the status after so many messages");
  expect(choice.unfinished, "the search counts as finished");
  expect_is(choice.cursor, q->base + SB_CHOICE_LOOKS, "where it goes on");
  expect_is(take(), SB_OK, "the status of the rest");
  expect_is(taken.message->priority, 7, "what it wants");
}
/* The node of the consumer asks for another turn. */
static void a_pause_asks_for_a_turn(void) {
  begin();
  for (unsigned i = 0; i < SB_CHOICE_LOOKS + 1; i++) put_ranked(0);
  sb_subscription s = sb_subscription_to(q, 0, false, wish);
  expect(s.choosy, "a consumer with a selector takes all");
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_COUNTED, 0, 1, &s.node, &s.token) != SB_OK) die("sb_node_create", 0);
  expect(sb_subscription_want(&s), "it is not interested");
  sb_node_shm *n = sb_subscription_node(&s);
  expect_is(sb_node_state(SB_LOAD(&n->word, SB_RELAXED)), SB_NODE_NON_ACQUIRING, "the state of its node");
  SB_STORE(&n->flagged, 0, SB_RELAXED);
  expect_is(sb_subscription_take(&s, &taken), SB_EMPTY, "the status of the first part");
  expect_is(SB_LOAD(&n->flagged, SB_RELAXED), 1, "whether it asks for a turn");
  SB_STORE(&n->flagged, 0, SB_RELAXED);
  expect_is(sb_subscription_take(&s, &taken), SB_EMPTY, "the status of the rest");
  expect_is(SB_LOAD(&n->flagged, SB_RELAXED), 0, "whether it asks again");
}
static void a_consumer_has_a_copy(void) {
  sb_wish *none = (sb_wish *)&wanted;
  expect_is(sb_api_wish(NULL, 0, &none), SB_OK, "the status without a selector");
  expect(none == NULL, "there is a selector");
  none = (sb_wish *)&wanted;
  expect_is(sb_api_wish("no program", 10, &none), SB_INVALID, "the status of what is no program");
  expect(none == NULL, "it is kept");
  begin();
  memset(wanted.bytes, 0xff, wanted.length);
  put_ranked(1);
  put_ranked(2);
  expect_is(take(), SB_OK, "the status when the caller's selector is gone");
  expect_is(taken.message->priority, 2, "what it wants");
  free(wish);
}

static const test_case CASES[] = {
    {"choice_selected: in turn", "selected messages come in order, others stay", selected_messages_in_turn},
    {"choice_selected: damaged", "a message with damaged properties is left alone", a_damaged_message_is_left},
    {"choice_selected: pause", "a long search pauses, and goes on there", a_long_search_pauses},
    {"choice_selected: turn", "a pause asks for another turn, an end does not", a_pause_asks_for_a_turn},
    {"choice_selected: copy", "a consumer has a copy of a valid selector", a_consumer_has_a_copy},
};
SUBJECT(CASES)
