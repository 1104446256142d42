// SPDX-License-Identifier: Apache-2.0
/* sb_subscription: one node at one queue, whether it wants messages, and the messages that it takes. The node belongs
 * to a consumer of a channel; the channel does nothing by itself. */
#include "sb_subscription.h"

#include "calls.h"
#include "channels.h"
#include "meanwhile.h"
#include "sb_exclusive.h"
#include "sb_ledger.h"
#include "surroundings.h"

static sb_member *m;
static sb_subscription *s;
static sb_taken taken;
static uint32_t waiter; /* a producer of the other connection, which waits for memory */

static void begin(uint32_t flags) {
  begin_channels();
  m = join_channel(ch, first_queue, 0, 0, flags);
  s = &m->s;
}
static void set_state(sb_member *of, unsigned state) {
  if (member_state(of) != state && !sb_node_move(t.c, of->s.node, SB_ANY_STATE, state)) die("sb_node_move", (int)state);
}
static void set_flags(uint32_t flags) { SB_STORE(&member_node(m)->flags, flags, SB_RELAXED); }
static uint32_t flags(void) { return SB_LOAD(&member_node(m)->flags, SB_RELAXED); }
static bool flagged(const sb_member *of) { return SB_LOAD(&member_node(of)->flagged, SB_RELAXED) != 0; }
static void unflag(sb_member *of) { SB_STORE(&member_node(of)->flagged, 0, SB_RELAXED); }
static sb_member *of_stranger(int32_t priority) {
  sb_status status;
  sb_channel *of = sb_channel_open(stranger.c, 1, &status);
  return join_channel(of, strangers_queue, 0, priority, 0);
}
static uint64_t delivered(void) { return SB_LOAD(&first_queue->ledger->counters[SB_COUNT_DELIVERED], SB_RELAXED); }
static uint64_t redelivered(void) { return SB_LOAD(&first_queue->ledger->counters[SB_COUNT_REDELIVERED], SB_RELAXED); }
static uint64_t held(void) { return (uint32_t)SB_LOAD(&first_queue->ledger->holding, SB_RELAXED); }
static void let_one_wait_for_memory(void) {
  uint64_t token;
  const uint32_t kind = SB_NODE_ROOM | SB_NODE_MEMORY | SB_NODE_DIRECT;
  if (sb_node_create(stranger.c, first_queue->slot, 0, kind, 0, 1, &waiter, &token) != SB_OK) die("sb_node_create", 0);
  (void)sb_node_move(stranger.c, waiter, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
}
/* Whether the producer that waits was told of room; it waits on. */
static bool told_of_room(void) { return sb_node_move(stranger.c, waiter, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED); }
/* The free holding that the next take uses. */
static uint64_t free_holding(void) {
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(t.c, token);
  return token;
}
/* The queue evicts what is above its bound, which is lower than what is in it. */
static void bound_to(int64_t n) {
  SB_STORE(&first_queue->shm->settings[SB_SETTING_RING_SIZE], n, SB_RELAXED);
  SB_STORE(&first_queue->shm->bound, (uint64_t)n, SB_RELAXED);
}
static void begin_ring(uint32_t of) {
  sb_settings ring = FREELY;
  ring.values[SB_SETTING_RING_SIZE] = 100;
  begin_channels();
  if (declare(&t, "ring", ring) != SB_OK) die("declare", 0);
  first_queue = open_queue(&t, "ring");
  strangers_queue = open_queue(&stranger, "ring");
  m = join_channel(ch, first_queue, 0, 0, of);
  s = &m->s;
  let_one_wait_for_memory();
}

/* ---- whether it wants ---- */

static void notified_meanwhile(void) { set_state(m, SB_NODE_NOTIFIED); }
static void work_is_desired(void) {
  begin(0);
  sb_subscription_set_interested(s, false);
  expect_is(member_state(m), SB_NODE_NOT_INTERESTED, "the state when no work is desired");
  sb_subscription_set_interested(s, true);
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state beside nothing");
  expect(!flagged(m), "it is told of nothing");
  set_state(m, SB_NODE_NOT_INTERESTED);
  stranger_puts(first_queue, 1);
  sb_subscription_set_interested(s, true);
  expect_is(member_state(m), SB_NODE_NOTIFIED, "the state beside a message");
  expect(flagged(m), "it is not told of a message");
  unflag(m);
  set_state(m, SB_NODE_INTERESTED);
  expect(!sb_subscription_want(s), "it begins to want what it wants already");
  sb_subscription_set_interested(s, true);
  expect(member_state(m) == SB_NODE_INTERESTED && !flagged(m), "it is told of a message that it waits beside");
  sb_member *better = of_stranger(5);
  set_state(better, SB_NODE_INTERESTED);
  unflag(m);
  set_state(m, SB_NODE_NOT_INTERESTED);
  sb_subscription_set_interested(s, true);
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state beside a better one");
  expect(!flagged(m), "it is told beside a better one");
  set_state(better, SB_NODE_NOT_INTERESTED);
  set_state(m, SB_NODE_NOTIFIED);
  sb_member *same = of_stranger(0);
  set_state(same, SB_NODE_INTERESTED);
  sb_subscription_set_interested(s, false);
  expect_is(member_state(same), SB_NODE_NOTIFIED, "the state of the one that has the baton");
  set_state(same, SB_NODE_INTERESTED);
  sb_subscription_set_interested(s, false);
  expect_is(member_state(same), SB_NODE_INTERESTED, "the state of another one when it did not want any more");
  set_state(same, SB_NODE_NOT_INTERESTED);
  meanwhile(&first_queue->shm->consumer_levels, AFTER_LOAD, 1, notified_meanwhile);
  sb_subscription_set_interested(s, true);
  if (has_acted()) expect(!flagged(m), "it is told of what another one told it");
}
/* The node stays in the counts of those that are told, so another one is told at once. */
static void no_memory_to_be_without_interest(void) {
  begin(0);
  sb_member *other = of_stranger(0);
  set_state(other, SB_NODE_INTERESTED);
  leave_no_page_to(other->s.node, first_queue->slot, SB_RING_NOT_INTERESTED, SB_NODE_NOT_INTERESTED, true);
  stranger_puts(first_queue, 2);
  set_state(m, SB_NODE_NOTIFIED);
  for (unsigned may_grow = 0; may_grow < 2; may_grow++) {
    set_state(other, SB_NODE_INTERESTED);
    unflag(m);
    leave_none_of(SB_KIND_LEAF, may_grow != 0);
    sb_subscription_set_interested(s, false);
    expect_is(member_state(m), SB_NODE_NOTIFIED, "the state of a node without an entry");
    expect_is(member_state(other), SB_NODE_NOTIFIED, "the state of the one that has the baton");
    expect_is(t.c->must_grow, may_grow, "whether the IO thread adds a segment");
    expect_is(flagged(m), may_grow, "whether the IO thread gives it a turn then");
  }
  t.c->must_grow = false;
  unflag(m);
  set_state(m, SB_NODE_REMOVED);
  sb_subscription_set_interested(s, false);
  expect(!t.c->must_grow && !flagged(m), "there is no memory for what needs none");
}
static void begin_without_memory(bool may_grow, sb_status should) {
  begin(0);
  set_state(m, SB_NODE_NOT_INTERESTED);
  expect_is(sb_subscription_begin(s), SB_OK, "the status with memory");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state with memory");
  set_state(m, SB_NODE_NOT_INTERESTED);
  leave_no_page_to(m->s.node, member_node(m)->level, SB_RING_INTERESTED, SB_NODE_INTERESTED, may_grow);
  expect_is(sb_subscription_begin(s), should, "the status without memory");
  expect_is(member_state(m), SB_NODE_NOT_INTERESTED, "the state without memory");
  expect(!flagged(m), "it is told of nothing");
}
static void no_memory_to_begin(void) { begin_without_memory(true, SB_GROW); }
/* It tries again at its turns. */
static void no_memory_at_all_to_begin(void) { begin_without_memory(false, SB_OK); }
static void what_stands_by_does_not_want(void) {
  bool rescued = false;
  sb_settings single = FREELY;
  single.flags = SB_QUEUE_SINGLE_ACTIVE;
  begin_channels();
  if (declare(&t, "single", single) != SB_OK) die("declare", 0);
  sb_queue *at = open_queue(&t, "single");
  sb_member *active = join_channel(ch, at, 0, 0, 0);
  m = join_channel(ch, at, 0, 0, 0);
  s = &m->s;
  uint32_t standby = flags();
  expect(!sb_subscription_may_want(s) && !sb_subscription_want(s), "what stands by wants");
  expect_is(member_state(m), SB_NODE_NOT_INTERESTED, "the state of what stands by");
  expect(!sb_subscription_may_try(s, standby, &rescued) && !rescued, "what stands by may try");
  put(&t, at, 1);
  expect_is(sb_subscription_take(s, &taken), SB_EMPTY, "the status of what stands by");
  expect(sb_subscription_may_want(&active->s), "the active one does not want");
  sb_channel_end_member(active);
  expect(sb_subscription_may_try(s, standby, &rescued) && !rescued, "the next active one may not try, or is rescued");
  expect_is(flags(), standby & ~SB_NODE_STANDBY, "the flags of the next active one");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state of the next active one");
}
static void a_rescue_is_used_once(void) {
  bool rescued = false;
  begin(0);
  uint32_t before = flags();
  expect(sb_subscription_may_try(s, before, &rescued) && !rescued, "it is rescued");
  set_flags(before | SB_NODE_RESCUED);
  expect(sb_subscription_may_try(s, before | SB_NODE_RESCUED, &rescued) && rescued, "it is not rescued");
  expect_is(flags(), before, "its flags");
  sb_member *better = of_stranger(5);
  stranger_puts(first_queue, 2);
  set_state(better, SB_NODE_INTERESTED);
  set_flags(before | SB_NODE_RESCUED);
  expect_is(sb_subscription_take(s, &taken), SB_OK, "the status of a rescue beside a better one");
  expect_is(sb_subscription_take(s, &taken), SB_EMPTY, "the status beside a better one");
  expect_is(member_state(better), SB_NODE_NOTIFIED, "the state of the better one");
}
static void it_gives_way_to_a_better_one(void) {
  begin(0);
  set_state(m, SB_NODE_NOTIFIED);
  expect(sb_subscription_gives_way(s), "it goes on beside nothing");
  expect_is(member_state(m), SB_NODE_INTERESTED, "its state beside nothing");
  sb_member *better = of_stranger(5);
  stranger_puts(first_queue, 1);
  set_state(better, SB_NODE_INTERESTED);
  unflag(better);
  set_state(m, SB_NODE_NOTIFIED);
  expect(sb_subscription_gives_way(s), "it goes on beside a better one");
  expect_is(member_state(m), SB_NODE_INTERESTED, "its state beside a better one");
  expect_is(member_state(better), SB_NODE_NOTIFIED, "the state of the better one");
  expect(flagged(better), "the better one is not told");
  set_state(better, SB_NODE_NOT_INTERESTED);
  expect(!sb_subscription_gives_way(s), "it gives way to nobody");
  expect_is(member_state(m), SB_NODE_NOTIFIED, "its state when it gives way to nobody");
}

/* ---- what it takes ---- */

static void a_message_is_taken(void) {
  begin(0);
  let_one_wait_for_memory();
  uint64_t holding = free_holding();
  expect_is(sb_subscription_take(s, &taken), SB_EMPTY, "the status of nothing");
  expect_is(t.c->free_holding, holding, "the free holding");
  expect(!told_of_room(), "there is room after nothing");
  stranger_puts(first_queue, 2);
  set_state(m, SB_NODE_INTERESTED);
  expect_is(sb_subscription_take(s, &taken), SB_OK, "the status of a message");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state of one that took");
  expect_is(delivered(), 1, "what was delivered");
  expect_is(held(), 1, "what is held");
  expect(told_of_room(), "nobody was told of room");
  spoil_holdings();
  expect_is(sb_subscription_take(s, &taken), SB_CORRUPT, "the status beside damage");
  mend_holdings();
  first_queue->state ^= UINT64_C(1) << 63;
  sb_status status = sb_subscription_take(s, &taken);
  uint32_t state = member_state(m);
  first_queue->state ^= UINT64_C(1) << 63;
  expect_is(status, SB_DELETED, "the status of a deleted queue");
  expect_is(state, SB_NODE_INTERESTED, "the state at a deleted queue");
  sb_member *better = of_stranger(5);
  set_state(better, SB_NODE_NOT_INTERESTED);
  set_state(better, SB_NODE_INTERESTED);
  first_queue->state ^= UINT64_C(1) << 63;
  status = sb_subscription_take(s, &taken);
  first_queue->state ^= UINT64_C(1) << 63;
  expect_is(status, SB_DELETED, "the status of a deleted queue beside a better one");
  set_state(better, SB_NODE_NOT_INTERESTED);
  sb_consumer_level_shm *level = sb_consumer_level_at(t.b, SB_LOAD(&member_node(better)->level, SB_RELAXED));
  SB_STORE(&level->interested_count, 1, SB_RELAXED); /* a death left it too high */
  expect_is(sb_subscription_take(s, &taken), SB_OK, "the status beside a count");
}
/* P3: the last attempt is made while INTERESTED. */
static void put_one(void) { stranger_puts(first_queue, 1); }
static unsigned attempts;
static void tell_again(void) {
  attempts++;
  set_state(m, SB_NODE_NOTIFIED);
  meanwhile(&first_queue->shm->requeued, AFTER_LOAD, 1, tell_again);
}
static void the_last_attempt(void) {
  begin(0);
  set_state(m, SB_NODE_NOTIFIED);
  expect_is(sb_subscription_take(s, &taken), SB_EMPTY, "the status of nothing");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state beside nothing");
  set_state(m, SB_NODE_NOTIFIED);
  meanwhile(&member_node(m)->word, BEFORE_CAS, 1, put_one);
  sb_status status = sb_subscription_take(s, &taken);
  if (!has_acted()) return;
  expect_is(status, SB_OK, "the status of what came before it was interested");
  set_state(m, SB_NODE_NOTIFIED);
  meanwhile(&first_queue->shm->requeued, AFTER_LOAD, 1, tell_again);
  status = sb_subscription_take(s, &taken);
  meanwhile(NULL, AFTER_LOAD, 1, NULL);
  expect_is(status, SB_EMPTY, "the status of one that is told of nothing all the time");
  expect_is(attempts, SB_MAX_RETRIES, "how often it tried");
}
/* No bit leads to a message before the head: it is looked for only while the queue seems to have one. */
static void seem_ready(void) { SB_STORE(&first_queue->shm->requeued, 1, SB_RELAXED); }
static void a_hidden_message_is_found(void) {
  begin(0);
  stranger_puts(first_queue, 1);
  first_queue->lanes[0].cursor = first_queue->base + 1;
  SB_STORE(&first_queue->shm->head, first_queue->base + 1, SB_RELAXED);
  set_state(m, SB_NODE_INTERESTED);
  expect_is(sb_subscription_take(s, &taken), SB_EMPTY, "the status where nothing seems to be ready");
  expect_is(sb_subscription_take(s, &taken), SB_EMPTY, "the status where nothing was looked for");
  meanwhile(&member_node(m)->word, AFTER_LOAD, 1, seem_ready);
  sb_status status = sb_subscription_take(s, &taken);
  if (has_acted()) expect_is(status, SB_OK, "the status of a hidden message");
}
static void a_foreign_message_is_taken(void) {
  begin_ring(SB_CONSUME_NO_LOCAL);
  uint64_t holding = free_holding();
  put(&t, first_queue, 98);
  put(&t, first_queue, 99);
  expect_is(sb_subscription_take_choosy(s, &taken), SB_EMPTY, "the status of messages of its own connection");
  expect_is(t.c->free_holding, holding, "the free holding");
  expect(!told_of_room(), "there is room after nothing");
  bound_to(1);
  first_queue->state ^= UINT64_C(1) << 63;
  sb_status status = sb_subscription_take_choosy(s, &taken);
  first_queue->state ^= UINT64_C(1) << 63;
  expect_is(status, SB_DELETED, "the status of a deleted queue");
  expect(sb_queue_ready(t.b, first_queue->shm) == 2 && !told_of_room(), "a deleted queue evicts");
  expect_is(sb_subscription_take_choosy(s, &taken), SB_EMPTY, "the status above the bound");
  expect_is(sb_queue_ready(t.b, first_queue->shm), 1, "what is within the bound");
  expect(told_of_room(), "nobody was told of what was evicted");
  bound_to(100);
  stranger_puts(first_queue, 2);
  sb_member *better = of_stranger(5);
  set_state(better, SB_NODE_INTERESTED);
  expect_is(sb_subscription_take_choosy(s, &taken), SB_EMPTY, "the status beside a better one");
  set_state(better, SB_NODE_NOT_INTERESTED);
  spoil_holdings();
  expect_is(sb_subscription_take_choosy(s, &taken), SB_CORRUPT, "the status beside damage");
  mend_holdings();
  (void)told_of_room();
  expect_is(sb_subscription_take_choosy(s, &taken), SB_OK, "the status of a foreign message");
  expect_is(delivered(), 1, "what was delivered");
  expect_is(held(), 1, "what is held");
  expect(told_of_room(), "nobody was told of room");
}
static void a_message_goes_back(void) {
  begin_ring(0);
  stranger_puts(first_queue, 3);
  expect_is(sb_subscription_take(s, &taken), SB_OK, "the status of a take");
  set_state(m, SB_NODE_NOT_INTERESTED);
  (void)told_of_room();
  sb_member *another = of_stranger(0);
  set_state(another, SB_NODE_INTERESTED);
  uint64_t nothing = free_holding();
  expect_is(sb_subscription_return(first_queue, nothing, SB_UNDELIVER), SB_SETTLED, "the status of nothing");
  expect_is(member_state(another), SB_NODE_INTERESTED, "the state of another one after nothing");
  uint64_t token = taken.token;
  expect_is(sb_subscription_return(first_queue, token, SB_UNDELIVER), SB_OK, "the status");
  expect_is(sb_queue_ready(t.b, first_queue->shm), 3, "what is there");
  expect_is(member_state(another), SB_NODE_NOTIFIED, "the state of another one");
  expect(!told_of_room(), "there is room when one came back");
  set_state(m, SB_NODE_INTERESTED);
  expect_is(redelivered(), 0, "what was delivered again");
  expect_is(sb_subscription_take(s, &taken), SB_OK, "the status of a second take");
  expect_is(redelivered(), 1, "what was delivered again by a second take");
  (void)told_of_room();
  bound_to(2);
  expect_is(sb_subscription_return(first_queue, taken.token, SB_UNDELIVER), SB_OK, "the status above the bound");
  expect_is(sb_queue_ready(t.b, first_queue->shm), 2, "what is within the bound");
  expect(told_of_room(), "nobody was told of what was evicted");
}

/* ---- what others forgot ---- */

static void what_was_overlooked(void) {
  begin(0);
  sb_queue_shm *q = first_queue->shm;
  expect_is(sb_subscription_overlooked(s), 0, "beside nothing");
  stranger_puts(first_queue, 1);
  set_state(m, SB_NODE_INTERESTED);
  expect_is(sb_subscription_overlooked(s), 0, "one that is flagged");
  unflag(m);
  uint64_t word = SB_LOAD(&member_node(m)->word, SB_RELAXED);
  expect_is(sb_subscription_overlooked(s), sb_entry_word(s->node, sb_node_epoch(word)), "one that waits");
  SB_STORE(&q->notified, 1, SB_RELAXED);
  expect_is(sb_subscription_overlooked(s), 0, "one that waits while another one was told");
  SB_STORE(&q->notified, 0, SB_RELAXED);
  set_state(m, SB_NODE_NOTIFIED);
  word = SB_LOAD(&member_node(m)->word, SB_RELAXED);
  expect_is(sb_subscription_overlooked(s), sb_entry_word(s->node, sb_node_epoch(word)), "one that was told");
  sb_member *better = of_stranger(5);
  set_state(better, SB_NODE_INTERESTED);
  expect_is(sb_subscription_overlooked(s), 0, "one beside a better one");
  set_state(better, SB_NODE_NOT_INTERESTED);
  expect(sb_subscription_overlooked(s) != 0, "one without a better one is not overlooked");
  SB_STORE(&q->flags, SB_QUEUE_PAUSED, SB_RELAXED);
  expect_is(sb_subscription_overlooked(s), 0, "one at a queue that pauses");
  SB_STORE(&q->flags, 0u, SB_RELAXED);
  set_state(m, SB_NODE_NOT_INTERESTED);
  expect_is(sb_subscription_overlooked(s), 0, "one that is not interested");
  set_state(m, SB_NODE_INTERESTED);
  expect(get(&stranger, strangers_queue, last_record, true) != 0, "there is no message");
  expect_is(sb_subscription_overlooked(s), 0, "one when the message is gone");
  SB_STORE(&q->requeued, 1, SB_RELAXED); /* which leads nowhere */
  expect_is(sb_subscription_overlooked(s), 0, "one where a message only seems to be ready");
}

static const test_case CASES[] = {
    {"subscription: no page", "without memory to end its interest a node passes the baton",
     no_memory_to_be_without_interest},
    {"subscription: begin", "without memory to begin its interest a node waits for a segment", no_memory_to_begin},
    {"subscription: full", "where there will be no segment, it does not wait", no_memory_at_all_to_begin},
    {"subscription: desired", "a node is told when it wants messages that are there", work_is_desired},
    {"subscription: standby", "what stands by does not want", what_stands_by_does_not_want},
    {"subscription: rescue", "a rescue is used once", a_rescue_is_used_once},
    {"subscription: way", "a node gives way to a better one that wants", it_gives_way_to_a_better_one},
    {"subscription: takes", "a message is taken", a_message_is_taken},
    {"subscription: attempt", "the last attempt is made while the node is interested", the_last_attempt},
    {"subscription: hidden", "a hidden message is found", a_hidden_message_is_found},
    {"subscription: foreign", "a foreign message is taken", a_foreign_message_is_taken},
    {"subscription: returns", "a message goes back", a_message_goes_back},
    {"subscription: overlooked", "a node beside a message was overlooked if it was not told", what_was_overlooked},
};
SUBJECT(CASES)
