// SPDX-License-Identifier: Apache-2.0
/* Cases of limits: which messages are counted, admitted and evicted. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_disposal.h"

#define BODY 64

static void reconcile(void) { (void)sb_hints_reconcile(t.b, keeper.q->shm, NULL); }
static void put_4_5(void) {
  put_by(&three, 4);
  put_by(&three, 5);
}
static void take_older(void) { got = take(&two); }

static void reconciled(void) {
  put_by(&one, 1);
  meanwhile(ANYWHERE, reconcile);
  put_by(&one, 2);
  afterwards();
  expect_left(2);
}

static void take_both(void) {
  expect(take(&two) == 1 && take(&two) == 2, "the consumers did not get 1 and 2");
  meanwhile(ANYWHERE, put_4_5);
}
static void none_found(void) {
  put_by(&one, 1);
  meanwhile("limits.evict.paid", take_both);
  put_by(&one, 2);
  afterwards();
  expect_at_most(1);
  expect_left(5);
}

static void empty_take(void) {
  meanwhile(ANYWHERE, put_4_5);
  got = take(&one);
  afterwards();
  expect_at_most(1);
  expect_left(got == 5 ? 0 : 5);
}

static void look_for_newest(void) {
  waiting = consume(&three, 0);
  got = next(waiting);
}
static void take_older_then_look(void) {
  expect(take(&two) == 1, "the consumer did not get the older one");
  meanwhile(ANYWHERE, look_for_newest);
}
static void newest_spared(void) {
  put_by(&one, 1);
  meanwhile("limits.evict.paid", take_older_then_look);
  put_by(&one, 2);
  afterwards();
  if (got == 0) {
    expect(told(waiting), "the consumer is not told of what was spared");
    got = next(waiting);
  }
  expect(got == 2, "the newest message was not delivered");
  sb_consumer_cancel(waiting, true);
  expect_left(0);
}

static void return_older(void) { expect(sb_queue_settle(two.q, held_a, SB_REQUEUE) == SB_OK, "nothing to return"); }
static void hold_older(void) {
  expect(get(&t, two.q, held_a, false) == 1, "the consumer did not get the older one");
  meanwhile(ANYWHERE, return_older);
}
static void older_returns(void) {
  put_by(&one, 1);
  meanwhile(keeper.q->shm->settings[SB_SETTING_RING_SIZE] > 0 ? "limits.evict.paid" : "limits.evict.paid_bytes",
            hold_older);
  put_by(&one, 2);
  afterwards();
  expect_at_most(1);
  expect_left(2);
}

static void older_stays_away(void) {
  put_by(&one, 1);
  meanwhile(ANYWHERE, take_older);
  put_by(&one, 2);
  afterwards();
  expect_left(got == 2 ? 0 : 2);
}

static void put_2_to_5(void) {
  for (uint64_t id = 2; id <= 5; id++) put_by(&two, id);
}
static void bytes_taken(void) {
  put_by(&one, 1);
  meanwhile(ANYWHERE, put_2_to_5);
  got = take(&one);
  afterwards();
  expect_at_most(1);
  expect_left(got == 5 ? 0 : 5);
}

static int64_t ready_bytes(void) { return (int64_t)(keeper.q->shm->bytes_in - keeper.q->shm->bytes_out); }
static void delayed(void) {
  sb_put_options delay = {.delay_ns = 1};
  for (uint64_t id = 1; id <= 15; id++) {
    expect(put_sized(&t, one.q, id, 64, &delay) == SB_OK, "delayed message %d does not fit", (int)id);
    while (sb_housekeeper_look_at(keeper.q, keeper.q->shm->tail - 1) != 0) {
    }
    expect(ready_bytes() == 64, "due are %d bytes", (int)ready_bytes());
    expect(take(&two) == id && ready_bytes() == 0, "%d bytes after message %d", (int)ready_bytes(), (int)id);
  }
  for (uint64_t id = 1; id <= 15; id++) put_by(&one, id % 9 + 1);
  expect(put(&t, one.q, 16) == SB_FULL, "16 messages of 64 bytes fit into 1000");
  (void)left();
}

static void put_3_4(void) {
  put_small_by(&three, 3);
  put_small_by(&three, 4);
}
static void take_older_then_put(void) {
  take_older();
  meanwhile(ANYWHERE, put_3_4);
}
static void spared_by_bytes(void) {
  put_by(&one, 1);
  meanwhile("limits.evict.paid_bytes", take_older_then_put);
  put_by(&one, 2);
  afterwards();
  expect_at_most(2);
  expect_left(34);
}

static void put_9(void) { put_by(&three, 9); }
static void put_8_then_9(void) {
  put_by(&two, 8);
  meanwhile(ANYWHERE, put_9);
}
static void purge_puts_back(void) {
  put_by(&one, 1);
  meanwhile("queue.settle.dropped", put_8_then_9);
  expect(purge_count(one.q) == 1, "the purge removed more than there was");
  afterwards();
  expect_at_most(1);
  expect_left(9);
}

static void shrunk_lazily(void) {
  int32_t holder;
  sb_settings smaller = RING(1);
  for (uint64_t id = 1; id <= 5; id++) put_by(&one, id);
  (void)sb_queue_configure(keeper.q, &smaller, false, FOREVER, &holder);
  meanwhile(ANYWHERE, take_older);
  put_by(&one, 6);
  afterwards();
  uint64_t is = left(); /* one was taken, and at most one evicted, in whichever order */
  expect(is == 3456 || is == 23456, "left are %d, not 3456", (int)is);
}

/* A producer that was killed when it had paid for an eviction: the ring seems to hold one less than it does. */
static void end_here(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}
static void be_killed_evicting(void) {
  actor victim = {0};
  attach(&t);
  join(&victim);
  meanwhile("limits.evict.paid", end_here);
  put_by(&victim, 2);
  _exit(0);
}
static void exceed(void) {
  int status;
  put_by(&two, 1);
  pid_t pid = fork();
  if (pid == 0) be_killed_evicting();
  (void)waitpid(pid, &status, 0);
  expect(WIFSIGNALED(status), "the producer was not killed");
}

/* Another thread of this process reaps and is held up: calls do not all wait for that. */
static unsigned waits;
static void count_wait(void) {
  waits++;
  plan.depth = 0;
  meanwhile("bound.beside", count_wait);
}
static void beside_another_reaper(void) {
  exceed();
  pthread_mutex_lock(&t.b->reap_lock);
  waits = 0;
  meanwhile("bound.beside", count_wait);
  for (int i = 0; i < 100; i++) put_by(&one, 3);
  plan.what = NULL;
  plan.depth = 0;
  pthread_mutex_unlock(&t.b->reap_lock);
  expect(waits > 0 && waits < 1000, "100 puts waited %u times", waits);
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
  expect_at_most(1);
  expect_left(3);
}

static void got_by_a_channel(void) {
  sb_status status;
  uint64_t id = 0;
  exceed();
  sb_channel *ch = sb_channel_open(one.c, 0, &status);
  expect(ch != NULL && sb_channel_get(ch, one.q, buffer, true) > 0, "the channel gets nothing");
  memcpy(&id, buffer + sizeof(sb_record), sizeof id);
  expect(id == 2, "the channel gets message %d, which is too many", (int)id);
  sb_channel_free(ch);
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
  expect_left(0);
}

static actor closing;
static void close_it(void) { (void)sb_connection_close(closing.c); }
static int64_t put_pieces(sb_status *status) {
  static const char body[8] = "";
  const sb_piece pieces[] = {{body, sizeof body}, {body, sizeof body}, {body, sizeof body}};
  const sb_put_options none = {0};
  return sb_queue_put_many(closing.q, pieces, 3, &none, status);
}
static int64_t put_rows(sb_status *status) {
  char bodies[] = "345";
  int32_t ends[] = {0, 1, 2, 3};
  sb_columns columns = {.body = {.bytes = bodies, .ends = ends}};
  return sb_queue_put_columns(closing.q, &columns, 0, 3, status);
}
static void closed_beside(int64_t (*put_three)(sb_status *status)) {
  sb_status status;
  exceed();
  closing = (actor){0};
  join(&closing);
  meanwhile("recover.begun", close_it);
  int64_t done = put_three(&status);
  expect(plan.what == NULL, "nobody was reaped");
  expect(done == 1 && status == SB_CLOSED, "%d were put, status %d", (int)done, (int)status);
  expect(sb_connection_release(closing.c), "the connection keeps something");
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
  expect_at_most(1);
  (void)left();
}
/* A connection that was closed while its put restored the bound touches the queue no more: it tells no waiting consumer, which
 * is left to the next actor. Another thread reaps, so that this put does not. */
static void closed_and_not_told(void) {
  uint32_t node;
  uint64_t token;
  exceed();
  closing = (actor){0};
  join(&closing);
  if (sb_node_create(two.c, two.q->slot, 0, SB_NODE_DIRECT, 0, 1, &node, &token) != SB_OK) die("sb_node_create", 0);
  (void)sb_node_move(two.c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  pthread_mutex_lock(&t.b->reap_lock);
  meanwhile("bound.beside", close_it);
  expect(sb_queue_put(closing.q, "a body", 6) == SB_OK, "the put failed");
  expect(plan.what == NULL, "the put waited for no reaper");
  expect(state_of(node) == SB_NODE_INTERESTED, "a closed connection has told a consumer");
  pthread_mutex_unlock(&t.b->reap_lock);
  sb_node_destroy(two.c, node, token);
  expect(sb_connection_release(closing.c), "the connection keeps something");
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
  expect_at_most(1);
  (void)left();
}
/* A process was killed after it had reserved room for two messages, and was reaped. */
static void be_killed_with_room(void) {
  actor victim = {0};
  sb_reservation first, second;
  sb_put_options none = {0};
  plan.what = NULL; /* in this process nothing happens inside a step */
  attach(&t);
  join(&victim);
  (void)sb_reservation_begin(victim.q, BODY, &none, &first);
  (void)sb_reservation_begin(victim.q, BODY, &none, &second);
  end_here();
}
static void kill_with_room(void) {
  int status;
  pid_t pid = fork();
  if (pid == 0) be_killed_with_room();
  (void)waitpid(pid, &status, 0);
  expect(WIFSIGNALED(status), "the producer was not killed");
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
}
static sb_status try_to_put(actor *a, uint64_t id) {
  sb_put_options none = {0};
  return put_sized(&t, a->q, id, BODY, &none);
}
static void kill_then_put(void) {
  kill_with_room();
  expect(try_to_put(&two, 2) == SB_OK, "a dead process keeps room");
  for (uint64_t id = 3; id <= 5; id++) (void)try_to_put(&two, id);
}
static void at_rest(void) {
  (void)left();
  expect(sb_hints_reconcile(t.b, keeper.q->shm, NULL) != SB_HINTS_BUSY, "somebody changes hints");
}
/* The message of `one` counts once, or twice while `one` is between its append and the end of its reservation: in a queue
 * of three there is room for another one, whatever the dead reserved. */
static void room_of_the_dead(void) {
  meanwhile(ANYWHERE, kill_then_put);
  (void)try_to_put(&one, 1);
  afterwards();
  expect_at_most(3);
  at_rest();
  for (uint64_t id = 6; id <= 8; id++) expect(try_to_put(&one, id) == SB_OK, "an empty queue of three has no room");
  expect(try_to_put(&one, 9) == SB_FULL, "a queue of three has room for four");
  expect_left(678);
}
/* One that takes a message counts it twice at most, and so does one that returns it. */
static void room_beside_a_take(void) {
  put_by(&one, 7);
  meanwhile(ANYWHERE, kill_then_put);
  expect(get(&t, one.q, held_a, false) == 7, "nothing to take");
  afterwards();
  expect_at_most(3);
  at_rest();
  (void)sb_queue_settle(one.q, held_a, SB_ACK);
}
static void room_beside_a_return(void) {
  put_by(&one, 7);
  expect(get(&t, one.q, held_a, false) == 7, "nothing to take");
  meanwhile(ANYWHERE, kill_then_put);
  expect(sb_queue_settle(one.q, held_a, SB_REQUEUE) == SB_OK, "nothing to return");
  afterwards();
  expect_at_most(4); /* a message that returns needs no room */
  at_rest();
}

static void put_into_full(void) { expect(try_to_put(&two, 2) == SB_FULL, "a full queue has room while it is closed"); }
static void full_beside_a_close(void) {
  uint64_t removed;
  put_by(&one, 1);
  meanwhile(ANYWHERE, put_into_full);
  expect(sb_disposal_close(one.q, false, true, &removed) == SB_NOT_EMPTY, "a queue that is not empty was closed");
  afterwards();
  expect_left(1);
}

static void closed_beside_many(void) { closed_beside(put_pieces); }
static void closed_beside_columns(void) { closed_beside(put_rows); }

static const test_case CASES[] = {
    {"closed beside many", "a batch ends where its connection was closed while the bound was restored", RING(1),
     closed_beside_many},
    {"beside another reaper", "puts do not wait, each, for a thread of their process that reaps", RING(1),
     beside_another_reaper},
    {"got by a channel", "a get of a channel restores the bound, too", RING(1), got_by_a_channel},
    {"closed, not told", "a connection that was closed while it restored the bound tells no consumer", RING(1),
     closed_and_not_told},
    {"closed beside columns", "the same of columns", RING(1), closed_beside_columns},
    {"reconciled", "hints are set right beside a payer: the newest message stays", RING(1), reconciled},
    {"none found", "the payer finds none, and others put: the bound holds", RING(1), none_found},
    {"empty take", "a take finds none, and others put: the bound holds", RING(1), empty_take},
    {"newest spared", "a consumer took the older one: the newest is spared, and delivered", RING(1), newest_spared},
    {"older returns", "a consumer took the older one, and returns it: the newest stays", RING(1), older_returns},
    {"older returns, bytes",
     "the same where bytes are limited",
     {{-1, -1, 100, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0},
     older_returns},
    {"older stays away", "a consumer takes the newest from beside an eviction: no older one comes back", RING(1),
     older_stays_away},
    {"bytes taken",
     "puts beside a consumer do not evict themselves",
     {{-1, -1, 100, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0},
     bytes_taken},
    {"delayed", "delayed messages leave the account of bytes as it was", {{-1, -1, 1000, 0, -1, -1}, 0}, delayed},
    {"spared by bytes",
     "an eviction by bytes is taken back, a put relied on it: the bound holds",
     {{2, -1, 100, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0},
     spared_by_bytes},
    {"purge puts back", "a purge puts back what came later, beside a put: the bound holds", RING(1), purge_puts_back},
    {"room of the dead",
     "room that a dead process reserved is free, also while another one reserves",
     {{-1, 3, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0},
     room_of_the_dead},
    {"room beside a take",
     "the same while another one takes",
     {{-1, 3, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0},
     room_beside_a_take},
    {"room beside a return",
     "the same while another one returns a message",
     {{-1, 3, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0},
     room_beside_a_return},
    {"bytes of the dead",
     "the same where bytes are limited",
     {{-1, -1, 3 * BODY, SB_OVERFLOW_BLOCK, -1, -1}, 0},
     room_of_the_dead},
    {"full beside a close",
     "a close that comes to nothing shows no room that there is not",
     {{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0},
     full_beside_a_close},
    {"shrunk lazily", "a put to a ring that was shrunk lazily evicts one, also beside a consumer", FREELY,
     shrunk_lazily},
};
const subject LIMIT_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
