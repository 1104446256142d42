// SPDX-License-Identifier: Apache-2.0
/* Cases of consumers that were parked while their process was stopped (sb_stopped.h), and continue. */
#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_channel.h"

static void put_one(void) { put_by(&one, 1); }

/* As sb_stopped_park does: the node is not notified of a message until it is interested again. */
static void park(uint32_t node) {
  expect(sb_node_move(keeper.c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOT_INTERESTED), "nobody is parked");
  sb_notify_node(t.b, node);
}

static void consumer_goes_on(void) {
  waiting = consume(&two, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  park(waiting->subscriptions[0].node);
  meanwhile(ANYWHERE, put_one);
  sb_lock(two.c); /* as its IO thread does */
  while (sb_consumer_turn(waiting)) {
  }
  sb_unlock(two.c);
  afterwards();
  expect(waiting->row_first != waiting->row_end || told(waiting), "the consumer sleeps beside a message");
  expect(next(waiting) == 1, "the message was not delivered");
  sb_consumer_cancel(waiting, true);
}

static void channel_goes_on(void) {
  sb_status status;
  uint32_t subscription;
  sb_channel *ch = sb_channel_open(two.c, 1, &status);
  if (ch == NULL) die("sb_channel_open", (int)status);
  status = sb_channel_consume(ch, two.q, 1, 0, 0, &subscription);
  if (status != SB_OK) die("sb_channel_consume", (int)status);
  uint32_t node = 0;
  for (uint32_t i = 0; i < ch->room; i++) {
    if (ch->members[i] != NULL) node = ch->members[i]->s.node;
  }
  sb_lock(two.c);
  while (sb_channel_turn(ch)) {
  }
  park(node);
  meanwhile(ANYWHERE, put_one);
  while (sb_channel_turn(ch)) {
  }
  sb_unlock(two.c);
  afterwards();
  expect(sb_channel_waiting(ch) == 1 || state_of(node) == SB_NODE_NOTIFIED, "the channel sleeps beside a message");
  sb_channel_close(ch);
  sb_channel_free(ch);
  expect_left(1);
}

/* A consumer of a channel was told of what another one took by now, and it is the turn of a second one. */
static void channel_steps_back(void) {
  sb_status status;
  uint32_t subscription, nodes[2];
  sb_channel *ch = sb_channel_open(two.c, 1, &status);
  if (ch == NULL) die("sb_channel_open", (int)status);
  for (unsigned i = 0; i < 2; i++) {
    status = sb_channel_consume(ch, two.q, 0, 0, 0, &subscription);
    if (status != SB_OK) die("sb_channel_consume", (int)status);
    nodes[i] = ch->members[subscription]->s.node;
  }
  sb_lock(two.c);
  while (sb_channel_turn(ch)) {
  }
  expect(sb_node_move(two.c, nodes[1], SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED), "the second one is not told");
  sb_notify_node(t.b, nodes[1]);
  meanwhile(ANYWHERE, put_one);
  while (sb_channel_turn(ch)) {
  }
  sb_unlock(two.c);
  afterwards();
  bool is_told = state_of(nodes[0]) == SB_NODE_NOTIFIED || state_of(nodes[1]) == SB_NODE_NOTIFIED;
  expect(sb_channel_waiting(ch) == 1 || is_told, "the channel sleeps beside a message");
  sb_channel_close(ch);
  sb_channel_free(ch);
  expect_left(1);
}

static const test_case CASES[] = {
    {"parked, goes on", "a consumer that was parked finds what comes while it becomes interested again", FREELY,
     consumer_goes_on},
    {"parked, channel goes on", "the same of a consumer of a channel", FREELY, channel_goes_on},
    {"parked, channel steps back", "a channel that was told of nothing finds what comes meanwhile", FREELY,
     channel_steps_back},
};
const subject PARKED_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
