// SPDX-License-Identifier: Apache-2.0
/* sb_window: consumers whose next message is too large for their window, and the operations that let them look again. Unless
 * the case says otherwise, a consumer has a window of 100 bytes, holds a message of 80, and is held back by one of 50. */
#include "sb_window.h"

#include "../sort_operations.h"
#include "consuming.h"
#include "dead.h"
#include "meanwhile.h"
#include "ranked.h"
#include "sb_recover.h"
#include "selecting.h"
#include "surroundings.h"

#define WINDOW 100u

static char record[BUFFER];

static void put_with(unsigned which, uint64_t id, uint64_t bytes, const sb_put_options *o) {
  uint64_t body[128];
  sb_status status;
  fill_body(body, bytes, id);
  do {
    status = sb_queue_put_with(queue_number(which), (const char *)body, bytes, o);
  } while (status == SB_GROW && grow(t.b, t.path));
  expect_is(status, SB_OK, "the status of a put");
}
static void put_bytes(unsigned which, uint64_t id, uint64_t bytes) {
  const sb_put_options none = {0};
  put_with(which, id, bytes, &none);
}
static sb_consumer *open_with(uint32_t count, const sb_consumer_options *o) {
  sb_status status;
  sb_consumer *k;
  for (uint32_t i = 0; i < count; i++) (void)queue_number(i);
  do {
    k = sb_consumer_open_with(t.c, queues, count, o, &status);
  } while (status == SB_GROW && grow(t.b, t.path));
  if (k == NULL) die("sb_consumer_open_with", (int)status);
  return k;
}
static sb_consumer *windowed(uint32_t count, uint32_t batch) {
  const sb_consumer_options o = {
      .prefetch = 10, .ack_batch = batch, .ack_interval_ns = PATIENCE, .prefetch_bytes = WINDOW};
  return open_with(count, &o);
}
static bool is_flagged(const sb_consumer *k, uint32_t i) {
  return (SB_LOAD(&consumer_node(k, i)->flags, SB_RELAXED) & SB_NODE_HELD_BACK) != 0;
}
static uint32_t held_back(unsigned which) { return SB_LOAD(&queues[which]->shm->held_back, SB_RELAXED); }
static void expect_held_back(const sb_consumer *k, uint32_t i) {
  expect(sb_subscription_is_held_back(&k->subscriptions[i]), "it is not held back");
  expect_is(consumer_state(k, i), SB_NODE_NOT_INTERESTED, "the state of its node");
  expect(is_flagged(k, i), "its node has no flag");
  expect_is(held_back(i), 1, "held_back of the queue");
}
static void expect_told_once(const sb_consumer *k, uint64_t wakes, const char *what) {
  expect(!is_flagged(k, 0), "%s: the flag stays", what);
  expect(consumer_node(k, 0)->flagged != 0, "%s: no turn is asked for", what);
  expect_is(consumer_node(k, 0)->wakes, wakes + 1, what);
  expect_is(held_back(0), 0, what);
}
/* The consumer holds 80 bytes, and a message of 50 holds it back; more of them lie behind. */
static sb_consumer *held_back_with(uint32_t batch) {
  sb_consumer *k = windowed(1, batch);
  put_bytes(0, 1, 80);
  for (uint64_t id = 2; id <= 4; id++) put_bytes(0, id, 50);
  sb_consumer_pull(k);
  expect_is(in_row(k), 1, "the messages in the row");
  expect_held_back(k, 0);
  expect(!sb_consumer_wants_work(k), "it wants a turn");
  return k;
}
static void settle_first(sb_consumer *k) { sb_consumer_free_ack_slot(k, hand_out(k)); }

static void what_fits(void) {
  static const struct {
    sb_window w;
    uint64_t length;
    bool fits;
  } rows[] = {
      {{100, 0}, 0, true},
      {{100, 0}, 1000, true},
      {{100, 1}, 99, true},
      {{100, 1}, 100, false},
      {{100, 100}, 0, true},
      {{100, 100}, 1, false},
      {{100, 101}, 1, false},
      {{1, 1}, 1, false},
      {{100, 500}, 0, true},
      {{UINT64_MAX, 1}, UINT64_MAX - 1, true},
      {{UINT64_MAX, 1}, UINT64_MAX, false},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
    expect(sb_window_fits(&rows[i].w, rows[i].length) == rows[i].fits, "row %u of the table", i);
}
static void what_is_refused(void) {
  const sb_window w = {WINDOW, 80};
  put_bytes(0, 1, 50);
  put_bytes(0, 2, 20);
  sb_queue *q = queues[0];
  uint32_t slot = sb_cell_slot(word_in(q, 0));
  sb_message_shm *m = sb_slot_at(t.b, slot);
  expect_is(sb_window_refuses(q, &w, slot), 50, "one that is too long");
  expect_is(sb_window_refuses(q, &w, sb_cell_slot(word_in(q, 1))), 0, "one that fits");
  expect_is(sb_window_refuses(q, &w, (1u << 28) - 1), 0, "a slot that is none");
  m->expires_ns = 1;
  expect_is(sb_window_refuses(q, &w, slot), 0, "one that has expired");
  m->expires_ns = UINT64_MAX;
  expect_is(sb_window_refuses(q, &w, slot), 50, "one that expires later");
  m->expires_ns = 0;
  m->body_length = 0;
  expect_is(sb_window_refuses(q, &w, slot), 0, "an empty one");
  m->body_length = 50;
}
static void it_is_held_back(void) {
  sb_consumer *k = held_back_with(ALONE);
  expect_is(k->subscriptions[0].choice.lacks, 50, "what it lacks");
  expect_is(ready_in(0), 3, "the messages in the queue");
  expect_is(k->window.used, 80, "the bytes that it holds");
}
static void another_takes(void) { expect_is(get(&t, queues[0], record, true), 2, "what the other takes"); }
static void the_second_look_sees_another(void) {
  sb_consumer *k = windowed(1, ALONE);
  put_bytes(0, 1, 80);
  put_bytes(0, 2, 50);
  put_bytes(0, 3, 20);
  meanwhile(&queue_number(0)->shm->held_back, BEFORE_STORE, 1, another_takes);
  sb_consumer_pull(k);
  bool acted = has_acted();
  expect_is(in_row(k), acted ? 2 : 1, "the messages in the row");
  if (!acted) return;
  expect_is(id_in_row(k, 1), 3, "the second of them");
  expect(!is_flagged(k, 0), "the flag stays");
  expect(!sb_subscription_is_held_back(k->subscriptions), "it is held back");
}

static void the_second_look_finds_nothing(void) {
  sb_consumer *k = windowed(1, ALONE);
  put_bytes(0, 1, 80);
  put_bytes(0, 2, 50);
  meanwhile(&queue_number(0)->shm->held_back, BEFORE_STORE, 1, another_takes);
  sb_consumer_pull(k);
  if (!has_acted()) return;
  expect_is(in_row(k), 1, "the messages in the row");
  expect(!is_flagged(k, 0), "the flag stays");
  expect(!sb_subscription_is_held_back(k->subscriptions), "it is held back");
  expect(consumer_state(k, 0) != SB_NODE_NOT_INTERESTED, "it lost its interest");
}

/* ---- who tells ---- */

static void a_get_tells(void) {
  sb_consumer *k = held_back_with(ALONE);
  uint64_t wakes = consumer_node(k, 0)->wakes;
  another_takes();
  expect_told_once(k, wakes, "a get");
}
static void a_purge_tells(void) {
  sb_consumer *k = held_back_with(ALONE);
  uint64_t wakes = consumer_node(k, 0)->wakes;
  expect_is(purge_count(queues[0]), 3, "what a purge removes");
  expect(!is_flagged(k, 0) && held_back(0) == 0, "a purge tells nobody");
  expect(consumer_node(k, 0)->wakes > wakes, "a purge does not wake");
}
static void an_expiry_tells(void) {
  sb_consumer *k = held_back_with(ALONE);
  uint64_t wakes = consumer_node(k, 0)->wakes;
  for (unsigned n = 1; n <= 3; n++) {
    sb_message_shm *m = sb_slot_at(t.b, sb_cell_slot(word_in(queues[0], n)));
    m->expires_ns = 1;
  }
  expect_is(get(&t, queues[0], record, true), 0, "what a get finds");
  expect_told_once(k, wakes, "a get that only ends messages");
}
static void a_put_behind_tells_nobody(void) {
  sb_consumer *k = held_back_with(ALONE);
  uint64_t wakes = consumer_node(k, 0)->wakes;
  put_bytes(0, 5, 1);
  expect_is(consumer_node(k, 0)->wakes, wakes, "how often it is woken");
  expect_held_back(k, 0);
  expect(!sb_consumer_turn(k), "a turn gives it more");
  expect_is(in_row(k), 1, "the messages in the row");
  expect_held_back(k, 0);
}
static void a_return_tells(void) {
  put_bytes(0, 7, 10);
  expect_is(get(&t, queues[0], record, false), 7, "what a get takes");
  sb_consumer *k = held_back_with(ALONE);
  uint64_t wakes = consumer_node(k, 0)->wakes;
  expect_is(sb_queue_settle(queues[0], record, SB_REQUEUE), SB_OK, "the status of a return");
  expect_told_once(k, wakes, "a return");
  sb_consumer_pull(k);
  expect_is(id_in_row(k, 1), 7, "what it takes then");
}
static void a_put_with_priority_tells(void) {
  queues[0] = new_queue("a", RANKED(9));
  sb_consumer *k = held_back_with(ALONE);
  uint64_t wakes = consumer_node(k, 0)->wakes;
  const sb_put_options first = {.priority = 5};
  put_with(0, 9, 10, &first);
  expect_told_once(k, wakes, "a put into a queue with priorities");
  sb_consumer_pull(k);
  expect_is(id_in_row(k, 1), 9, "what it takes then");
  expect_held_back(k, 0);
}
static void a_put_into_groups_with_priorities_tells(void) {
  queues[0] = new_queue("a", (sb_settings){{-1, -1, -1, 0, -1, -1, 9, [SB_SETTING_MESSAGE_GROUPS] = SB_GROUPS_SHARED,
                                            [SB_SETTING_GROUP_BUCKETS] = 4},
                                           0});
  sb_consumer *k = held_back_with(ALONE);
  const sb_put_options first = {.priority = 5};
  put_with(0, 9, 10, &first);
  expect(!is_flagged(k, 0) && held_back(0) == 0, "a put tells nobody");
  sb_consumer_pull(k);
  expect_is(id_in_row(k, 1), 9, "what it takes then");
  expect_held_back(k, 0);
}
static void a_move_tells(void) {
  queues[0] = new_queue("a", RANKED(9));
  queues[1] = new_queue("b", RANKED(9));
  sb_consumer *k = held_back_with(ALONE);
  const sb_put_options first = {.priority = 5};
  uint64_t wakes = consumer_node(k, 0)->wakes, bytes = UINT64_MAX;
  sb_status status;
  put_with(1, 8, 10, &first);
  put_with(1, 9, 10, &first);
  expect_is(sb_queue_move(queues[1], queues[0], 2, &bytes, &status), 2, "what is moved");
  expect_told_once(k, wakes, "a move of several messages");
  sb_consumer_pull(k);
  expect_is(id_in_row(k, 1), 8, "what it takes then");
}
static void put_key(uint64_t bytes, unsigned key) {
  char properties[13];
  sb_put_options o = sort_options(properties, key);
  put_with(0, key, bytes, &o);
}
static void a_sorted_put_tells(void) {
  queues[0] = new_queue("a", (sb_settings)SORTED);
  sb_consumer *k = windowed(1, ALONE);
  put_key(80, 3);
  sb_consumer_pull(k);
  put_key(50, 4);
  sb_consumer_pull(k);
  expect_held_back(k, 0);
  uint64_t wakes = consumer_node(k, 0)->wakes;
  put_key(10, 2);
  expect_told_once(k, wakes, "a put into a sorted queue");
  sb_consumer_pull(k);
  expect_is(id_in_row(k, 1), 2, "what it takes then");
  expect_held_back(k, 0);
}

/* ---- two consumers ---- */

static void the_baton_goes_no_further(void) {
  sb_consumer *a = held_back_with(ALONE), *b = windowed(1, ALONE);
  sb_consumer_pull(b); /* takes the one of 50, then the next one fits, too: 100 bytes */
  expect_is(in_row(b), 2, "what the second holds");
  put_bytes(0, 5, 50);
  for (unsigned i = 0; i < 3; i++) {
    sb_consumer_pull(a);
    sb_consumer_pull(b);
  }
  expect_held_back(a, 0);
  expect_held_back(b, 0);
  uint64_t of_a = consumer_node(a, 0)->wakes, of_b = consumer_node(b, 0)->wakes;
  uint32_t epoch = node_epoch(a->subscriptions[0].node);
  for (unsigned i = 0; i < 5; i++) {
    sb_notify_node(t.b, a->subscriptions[0].node); /* a baton that was on its way */
    sb_consumer_pull(a);
    sb_consumer_pull(b);
  }
  of_a += 5;
  expect_is(node_epoch(a->subscriptions[0].node), epoch, "the epoch of its node");
  expect_is(consumer_node(a, 0)->wakes, of_a, "how often the first is woken");
  expect_is(consumer_node(b, 0)->wakes, of_b, "how often the second is woken");
  expect(!sb_consumer_wants_work(a) && !sb_consumer_wants_work(b), "one wants a turn");
}
static void only_lower_priorities_are_told(void) {
  const sb_consumer_options lower = {.prefetch = 10, .ack_batch = 1, .prefetch_bytes = WINDOW, .priority = 0};
  const sb_consumer_options higher = {.prefetch = 10, .ack_batch = 1, .prefetch_bytes = WINDOW, .priority = 2};
  sb_consumer *low = open_with(1, &lower);
  put_bytes(0, 1, 80);
  sb_consumer_pull(low);
  sb_consumer *high = open_with(1, &higher);
  put_bytes(0, 2, 80);
  sb_consumer_pull(high);
  put_bytes(0, 3, 50);
  sb_consumer_pull(high);
  sb_consumer_pull(low);
  expect_held_back(low, 0);
  expect_held_back(high, 0);
  uint64_t of_low = consumer_node(low, 0)->wakes, of_high = consumer_node(high, 0)->wakes;
  sb_notify_held_back_below(queues[0], 0);
  expect_is(consumer_node(low, 0)->wakes, of_low, "how often an equal priority is told");
  sb_notify_held_back_below(queues[0], 2);
  expect_is(consumer_node(low, 0)->wakes, of_low + 1, "how often the lower priority is told");
  expect_is(consumer_node(high, 0)->wakes, of_high, "how often the same priority is told");
  expect(!is_flagged(low, 0) && is_flagged(high, 0), "the flags");
}

/* ---- the consumer itself ---- */

static void what_it_settles_lets_it_go_on(void) {
  const uint64_t sizes[] = {70, 69};
  for (unsigned i = 0; i < 2; i++) { /* holds 70 or 69, and 30; lacks 71 */
    sb_queue *q = queues[0] = new_queue(i == 0 ? "x" : "y", (sb_settings)FREELY);
    sb_consumer *k = windowed(1, ALONE);
    put_bytes(0, 1, 100 - sizes[i]);
    put_bytes(0, 2, sizes[i]);
    put_bytes(0, 3, 100 - 30);
    sb_consumer_pull(k);
    expect_is(in_row(k), 2, "the messages in the row");
    expect_held_back(k, 0);
    (void)hand_out(k);
    uint32_t place = hand_out(k);
    sb_consumer_free_ack_slot(k, place); /* 30 stay; or 31, which is a byte too much */
    expect_is(in_row(k), i == 0 ? 1 : 0, "the messages in the row after a settlement");
    expect(sb_subscription_is_held_back(k->subscriptions) == (i == 1), "whether it is held back");
    expect_is(SB_LOAD(&q->shm->held_back, SB_RELAXED), i == 1, "held_back of the queue");
  }
}
static void the_batch_is_flushed(void) {
  sb_consumer *k = held_back_with(5);
  expect(sb_consumer_next(k, record, false) > 0, "the first message");
  expect_is(sb_consumer_settle(k, record, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_held_back(k, 0);
  expect_is(k->ack_count, 1, "the acknowledgements that wait");
  expect(sb_consumer_next(k, record, false) > 0, "the next message");
  expect_is(k->ack_count, 0, "the acknowledgements that wait afterwards");
  expect_is(k->window.used, 100, "the bytes that it holds");
}
static void suspended_while_held_back(void) {
  sb_consumer *k = held_back_with(ALONE);
  sb_consumer_suspend(k, true);
  expect_held_back(k, 0);
  sb_consumer_suspend(k, false);
  expect_held_back(k, 0);
  sb_consumer_suspend(k, true);
  settle_first(k);
  expect_is(in_row(k), 0, "what a suspended consumer takes");
  sb_consumer_suspend(k, false);
  sb_consumer_pull(k);
  expect_is(in_row(k), 2, "what it takes when it goes on");
}
static void one_of_two_queues(void) {
  sb_consumer *k = windowed(2, ALONE);
  put_bytes(0, 1, 80);
  put_bytes(0, 2, 50);
  sb_consumer_pull(k);
  expect_held_back(k, 0);
  put_bytes(1, 3, 10);
  sb_consumer_pull(k);
  expect_is(in_row(k), 2, "the messages in the row");
  expect_is(id_in_row(k, 1), 3, "that of the other queue");
  expect_held_back(k, 0);
  expect(!sb_subscription_is_held_back(&k->subscriptions[1]), "the other queue holds it back");
  settle_first(k);
  expect_is(in_row(k), 2, "the messages in the row after a settlement");
}
static void a_selector_passes_what_is_long(void) {
  coded wanted = program_of();
  op_property(&wanted, SB_PROPERTY_PRIORITY);
  op_integer(&wanted, 5);
  op(&wanted, SB_OP_GREATER_OR_EQUAL);
  const sb_consumer_options o = {.prefetch = 10,
                                 .ack_batch = 1,
                                 .prefetch_bytes = WINDOW,
                                 .selector = (const char *)wanted.bytes,
                                 .selector_length = wanted.length};
  const sb_put_options selected = {.priority = 5}, not_selected = {.priority = 1};
  sb_consumer *k = open_with(1, &o);
  put_with(0, 1, 80, &selected);
  put_with(0, 2, 1000, &not_selected);
  put_with(0, 3, 15, &selected);
  put_with(0, 4, 10, &selected);
  sb_consumer_pull(k);
  expect_is(in_row(k), 2, "the messages in the row");
  expect_is(id_in_row(k, 1), 3, "the one behind what it does not want");
  expect_held_back(k, 0);
  settle_first(k);
  expect_is(id_in_row(k, 1), 4, "what held it back");
}
/* It reads messages that stay in the queue; or takes those of a queue with message groups. */
static void choosy_with(sb_settings settings) {
  queues[0] = new_queue("a", settings);
  sb_consumer *k = windowed(1, ALONE);
  put_bytes(0, 1, 80);
  put_bytes(0, 2, 50);
  put_bytes(0, 3, 10);
  sb_consumer_pull(k);
  expect_is(in_row(k), 1, "the messages in the row");
  expect_held_back(k, 0);
  expect(!sb_consumer_turn(k), "a turn gives it more");
  settle_first(k);
  expect_is(in_row(k), 2, "the messages in the row after a settlement");
  expect_is(k->ack_slots[place_in_row(k, 0)].bytes, 50, "the length of what held it back");
  expect_is(k->ack_slots[place_in_row(k, 1)].bytes, 10, "the length of the one behind it");
  expect(!is_flagged(k, 0), "the flag stays");
}
static void a_following_one(void) { choosy_with((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_NON_DESTRUCTIVE}); }
static void one_in_groups(void) {
  choosy_with((sb_settings){
      {-1, -1, -1, 0, -1, -1, [SB_SETTING_MESSAGE_GROUPS] = SB_GROUPS_SHARED, [SB_SETTING_GROUP_BUCKETS] = 4}, 0});
}

/* ---- ends of messages, and deaths ---- */

static void what_expires_makes_room(void) {
  queues[0] = new_queue("a", AT_MOST(1));
  put_bytes(0, 1, 10);
  uint32_t node = wait_at(queues[0], FOR_ROOM, 10);
  sb_message_shm *m = sb_slot_at(t.b, sb_cell_slot(word_in(queues[0], 0)));
  m->expires_ns = 1;
  expect_is(get(&t, queues[0], record, true), 0, "what a get finds");
  expect(was_told(node), "a producer that waits for room is not told");
  expect(!queues[0]->ended_some, "the handle still says so");
}
static void the_reaper_tells(void) {
  sb_consumer *k = held_back_with(ALONE);
  begin_dead();
  sb_queue *of_dead = open_queue(&d, "a");
  if (of_dead == NULL) die("open_queue", 0);
  SB_STORE(&queues[0]->shm->held_back, 0u, SB_RELAXED); /* it died before it removed the flag */
  uint64_t wakes = consumer_node(k, 0)->wakes;
  recover_dead();
  expect(!is_flagged(k, 0), "the flag stays");
  expect(consumer_node(k, 0)->wakes > wakes, "nobody wakes it");
}
static void it_looks_by_itself(void) {
  sb_consumer *k = held_back_with(ALONE);
  SB_STORE(&queues[0]->shm->held_back, 0u, SB_RELAXED);
  expect(sb_consumer_wants_work(k), "it wants no turn although somebody was about to tell it");
  expect(!sb_consumer_turn(k), "the turn gives it something");
  expect_held_back(k, 0);
  (void)SB_AND(&consumer_node(k, 0)->flags, ~SB_NODE_HELD_BACK, SB_RELAXED);
  expect(sb_consumer_wants_work(k), "it wants no turn although its flag was removed");
  expect(!sb_consumer_turn(k), "the turn gives it something");
  expect_held_back(k, 0);
}

static const test_case CASES[] = {
    {"window: fits", "what fits into a window", what_fits},
    {"window: refuses", "only a ready message that is too long is refused", what_is_refused},
    {"window: held back", "a message that does not fit stays, and ends the interest", it_is_held_back},
    {"window: twice", "the second look sees what another process changed", the_second_look_sees_another},
    {"window: nothing", "a second look that finds nothing leaves no flag", the_second_look_finds_nothing},
    {"window: get", "a get tells those that are held back", a_get_tells},
    {"window: purge", "a purge tells them", a_purge_tells},
    {"window: expiry", "a get that ends expired messages only tells them", an_expiry_tells},
    {"window: put", "a put behind the next message tells nobody", a_put_behind_tells_nobody},
    {"window: return", "a message that returns tells them", a_return_tells},
    {"window: priorities", "a put into a queue with priorities tells them", a_put_with_priority_tells},
    {"window: lanes of groups", "a put into groups with priorities tells them",
     a_put_into_groups_with_priorities_tells},
    {"window: move", "a move of several messages tells them", a_move_tells},
    {"window: sorted", "a put into a sorted queue tells them", a_sorted_put_tells},
    {"window: baton", "two that are held back do not wake each other", the_baton_goes_no_further},
    {"window: below", "a rival that leaves tells lower priorities", only_lower_priorities_are_told},
    {"window: settle", "a settlement lets it go on, unless a byte is missing", what_it_settles_lets_it_go_on},
    {"window: batch", "a call for the next message settles what was acknowledged", the_batch_is_flushed},
    {"window: suspended", "suspending changes nothing about a consumer that is held back", suspended_while_held_back},
    {"window: queues", "one queue holds it back, the other does not", one_of_two_queues},
    {"window: selector", "what a selector leaves may be of any length", a_selector_passes_what_is_long},
    {"window: following", "a non-destructive queue holds back, too", a_following_one},
    {"window: groups", "a queue with message groups holds back, too", one_in_groups},
    {"window: room", "a get that only ends messages wakes a producer", what_expires_makes_room},
    {"window: reaper", "the reaper tells those that the dead process did not tell", the_reaper_tells},
    {"window: itself", "a consumer that another process was about to tell looks by itself", it_looks_by_itself},
};
SUBJECT(CASES)
