// SPDX-License-Identifier: Apache-2.0
/* sb_api_channels: channels and their consumers, and what every call of a channel refuses. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "channels.h"
#include "surroundings.h"
#include "heap.h"
#include "meanwhile.h"
#include "sb_exclusive.h"
#include "sb_directory.h"
#include "sb_slab.h"

#define MOST 65535u
#define UNTOUCHED 77u

static sb_status consumed(sb_channel *of, sb_queue *at, uint32_t flags, uint32_t *number) {
  return sb_channel_consume(of, at, 3, 0, flags, number);
}
static sb_queue *special(const char *name, uint32_t flags) {
  sb_settings s = FREELY;
  s.flags = flags;
  if (declare(&t, name, s) != SB_OK) die("declare", 0);
  return open_queue(&t, name);
}
/* The member that a case ends, or makes, in the middle of a call. */
static sb_channel *acting;
static sb_queue *acting_at;
static sb_member *ends, *comes;
static sb_channel *stranger_opens(void) {
  sb_status status;
  sb_channel *new = sb_channel_open(stranger.c, 8, &status);
  if (new == NULL) die("sb_channel_open", (int)status);
  return new;
}

/* ---- refusals ---- */

static void expect_refused(sb_status why, const char *what) {
  uint32_t number = UNTOUCHED;
  sb_status status = SB_OK;
  sb_wait at_once = {AT_ONCE, UINT64_MAX, 0, 0};
  sb_settlement all[2];
  if (why != SB_OK) {
    expect(sb_channel_open(t.c, 5, &status) == NULL, "%s: a channel was opened", what);
    expect_is(status, why, what);
    expect_is(sb_connection_set_prefetch(t.c, 1), why, what);
    expect_is(sb_connection_next_ready(t.c), 0, what);
    expect_is(sb_channel_get_wait(ch, first_queue, last_record, false, &at_once), -(int64_t)why, what);
  } else {
    why = SB_CLOSED; /* of the channel alone */
  }
  expect_is(consumed(ch, first_queue, 0, &number), why, what);
  expect_is(sb_channel_cancel(ch, 0), why, what);
  expect_is(sb_channel_set_prefetch(ch, 1), why, what);
  expect_is(sb_channel_next(ch, last_record), -(int64_t)why, what);
  expect_is(sb_channel_get(ch, first_queue, last_record, false), -(int64_t)why, what);
  expect(!sb_channel_next_cancelled(ch, &number), "%s: one is reported", what);
  expect_is(sb_channel_settle(ch, 1, false, SB_ACK), why, what);
  expect_is(sb_channel_collect(ch, 0, true, SB_ACK, all, 2), -(int64_t)why, what);
  sb_channel_forget(ch, 1, false);
  expect(sb_channel_arm(ch), "%s: it is armed", what);
  expect_is(number, UNTOUCHED, what);
}
static void calls_are_refused(void) {
  begin_channels();
  sb_member *a = join_channel(ch, first_queue, 2, 0, 0), *b = join_channel(ch, second_queue, 0, 0, 0);
  stranger_puts(first_queue, 5);
  expect(sb_channel_next(ch, last_record) > 0, "nothing is given");
  b->s.q->state ^= UINT64_C(1) << 63;
  b->busy = true;
  (void)sb_channel_turn(ch);
  b->s.q->state ^= UINT64_C(1) << 63;
  uint32_t handles = t.c->handles;
  for (unsigned i = 0; i < 2 * REFUSALS; i++) {
    SB_STORE(&ch->closed, i >= REFUSALS, SB_RELAXED);
    refuse(t.c, REFUSAL[i % REFUSALS]);
    expect_refused(REFUSAL[i % REFUSALS], "a connection that cannot be used");
    expect_untouched(t.c, "a connection that cannot be used");
    refuse(t.c, SB_OK);
  }
  SB_STORE(&ch->closed, 1u, SB_RELAXED);
  expect_refused(SB_OK, "a channel that is closed");
  expect_is(t.c->lock, 0, "the lock");
  SB_STORE(&ch->closed, 0u, SB_RELAXED);
  expect_is(t.c->handles, handles, "what points to the connection");
  expect_member(a, "after all refusals", 2, 1, false);
  expect(ch->limit == 0 && t.c->limit == 0 && !ch->armed && ch->cancelled_first == b, "something was done");
  expect_is(ch->member_count, 1, "consumers after all refusals");
}

/* ---- channels come and go ---- */

static void open_and_free(void) {
  uint32_t number;
  sb_channel *new = open_channel(3);
  for (unsigned i = 0; i < 3; i++) join_channel(new, first_queue, 0, 0, 0);
  first_queue->state ^= UINT64_C(1) << 63;
  if (consumed(new, first_queue, 0, &number) != SB_DELETED) die("consuming a deleted queue", 0);
  first_queue->state ^= UINT64_C(1) << 63;
  sb_channel_free(new);
  refuse(t.c, SB_STOPPING);
  sb_status status;
  (void)sb_channel_open(t.c, 3, &status);
  (void)consumed(ch, first_queue, 0, &number);
  refuse(t.c, SB_OK);
}
static void channels_come_and_go(void) {
  sb_status status = SB_SYSTEM;
  begin_channels();
  uint32_t handles = t.c->handles, targets = t.c->target_count;
  sb_channel *new = sb_channel_open(t.c, 5, &status);
  expect_is(status, SB_OK, "the status");
  expect(new->number == 5 && new->target.c == t.c && new->target.listed, "it is another one's");
  expect_is(t.c->handles, handles + 1, "what points to the connection");
  expect_is(t.c->target_count, targets + 1, "targets");
  expect(new->target.kind->is_channel && !new->target.kind->is_consumer, "it is no channel");
  sb_member *m = join_channel(new, first_queue, 0, 0, 0);
  expect(!new->target.kind->wants_work(&new->target), "it wants work");
  stranger_puts(first_queue, 1);
  expect(new->target.kind->wants_work(&new->target), "it wants no work");
  expect(new->target.kind->turn(&new->target) && m->held == 1, "it had no turn");
  begin_watching(t.c);
  sb_channel_close(new);
  expect_is(times_locked(), 1, "how often the lock was taken to close it");
  expect_is(new->closed, 1, "whether it is closed");
  expect_is(t.c->lock, 0, "the lock");
  sb_channel_free(new);
  expect_is(t.c->handles, handles, "what points to the connection after its end");
  expect_is(t.c->target_count, targets, "targets after its end");
  expect_is(heap_kept_by(open_and_free), 0, "what is kept of memory");
}
static void a_child_closes_nothing(void) {
  int status;
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  pid_t pid = fork();
  if (pid == 0) {
    sb_channel_close(ch);
    _exit(ch->closed != 0);
  }
  (void)waitpid(pid, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child closed it");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state of its consumer");
}

/* ---- consumers ---- */

static void what_others_see_of_a_consumer(void) {
  uint32_t number = UNTOUCHED;
  begin_channels();
  expect_is(sb_channel_consume(ch, first_queue, 3, -7, 0, &number), SB_OK, "the status");
  sb_member *m = ch->members[number];
  const sb_node_shm *n = member_node(m);
  expect_is(n->flags, SB_NODE_COUNTED | SB_NODE_MEMBER, "the flags of its node");
  expect_is(n->channel, 1, "the channel of its node");
  expect_is(n->prefetch, 3, "the prefetch of its node");
  expect_is(n->target, ch->target.number, "the target of its node");
  expect_is(n->priority, -7, "the priority of its node");
  expect(!m->auto_ack && !m->s.choice.no_local && m->prefetch == 3 && m->number == number, "it is another consumer");
  for (unsigned i = 0; i < SB_MAX_CLASSES; i++) expect_is(t.c->cache[i].mask, 0, "slots that are kept for later");
  m = join_channel(ch, first_queue, 0, 0, SB_CONSUME_AUTO_ACK | SB_CONSUME_NO_LOCAL);
  expect(m->auto_ack && m->s.choice.no_local, "it is no auto-ack consumer of foreign messages");
  m = join_channel(ch, special("single", SB_QUEUE_SINGLE_ACTIVE), 0, 0, 0);
  expect_is(member_node(m)->flags, SB_NODE_COUNTED | SB_NODE_MEMBER, "the flags of an active one");
}
/* A number is used again as late as possible, and not before its end was reported. */
static void numbers_of_consumers(void) {
  uint32_t number;
  begin_channels();
  const uint32_t rooms[] = {4, 4, 8, 8, 16, 16, 16, 16, 32};
  for (uint32_t i = 0; i < 9; i++) {
    expect_is(join_channel(ch, first_queue, 0, 0, 0)->number, i, "its number");
    expect_is(ch->room, rooms[i], "the room of the table");
  }
  expect_is(sb_channel_cancel(ch, 3), SB_OK, "the status of a cancel");
  expect(ch->members[3] == NULL, "what was cancelled is still there");
  expect_is(sb_channel_cancel(ch, 3), SB_NOT_FOUND, "the status of a second cancel");
  expect_is(join_channel(ch, first_queue, 0, 0, 0)->number, 9, "the number after one was cancelled");
  ch->next_number = 0;
  expect_is(join_channel(ch, first_queue, 0, 0, 0)->number, 3, "the first number that is free");
  ch->next_number = ch->room;
  sb_channel_end_member(ch->members[0]);
  expect_is(join_channel(ch, first_queue, 0, 0, 0)->number, 0, "the number behind the last one");
  sb_member *late = join_channel(ch, second_queue, 0, 0, 0);
  second_queue->state ^= UINT64_C(1) << 63;
  late->busy = true;
  (void)sb_channel_turn(ch);
  second_queue->state ^= UINT64_C(1) << 63;
  ch->next_number = 10;
  expect_is(late->number, 1 + 9, "the number of what was cancelled by the broker");
  expect_is(join_channel(ch, first_queue, 0, 0, 0)->number, 11, "the number while another one is to be reported");
  expect(sb_channel_next_cancelled(ch, &number) && number == 10, "it is not reported");
  expect_is(t.c->lock, 0, "the lock");
  expect(!sb_channel_next_cancelled(ch, &number), "it is reported twice");
  ch->next_number = 10;
  expect_is(join_channel(ch, first_queue, 0, 0, 0)->number, 10, "the number after it was reported");
  put_behind(ch, ch->members[0]);
  expect_is(sb_channel_cancel(ch, ch->room), SB_NOT_FOUND, "the status of a number behind the table");
  expect_is(sb_channel_cancel(ch, 31), SB_NOT_FOUND, "the status of a number that is free");
}
/* Numbers of consumers that the broker cancelled are in use until they are reported. */
static void many_are_to_be_reported(void) {
  uint32_t number;
  begin_channels();
  for (uint32_t i = 0; i < 9; i++) {
    number = UNTOUCHED;
    expect_is(consumed(ch, first_queue, 0, &number), SB_OK, "the status while others are to be reported");
    expect_is(number, i, "the number while others are to be reported");
    first_queue->state ^= UINT64_C(1) << 63;
    (void)sb_channel_pull(ch);
    first_queue->state ^= UINT64_C(1) << 63;
    expect_is(ch->member_count, 0, "consumers that are left");
  }
  for (uint32_t i = 0; i < 9; i++) {
    expect(sb_channel_next_cancelled(ch, &number), "one is not reported");
    expect_is(number, i, "the number that is reported");
  }
}
static void the_most_consumers(void) {
  uint32_t number;
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  ch->members = realloc((void *)ch->members, 40000 * sizeof *ch->members);
  if (ch->members == NULL) die("realloc", 0);
  for (unsigned i = 0; i < 40000; i++) ch->members[i] = m;
  ch->room = 40000;
  ch->member_count = 20000;
  expect_is(consumed(ch, first_queue, 0, &number), SB_OK, "the status of one more");
  expect_is(ch->room, MOST, "the longest table");
  expect_is(number, 40000, "its number");
  for (unsigned i = 0; i < MOST; i++) ch->members[i] = i == 50000 ? NULL : m;
  ch->member_count = MOST - 1;
  sb_member **table = ch->members;
  expect_is(consumed(ch, first_queue, 0, &number), SB_OK, "the status of the last one");
  expect_is(number, 50000, "the last number");
  expect(ch->members == table && ch->room == MOST, "the longest table was moved");
  expect_is(ch->member_count, MOST, "the most consumers");
  expect_is(consumed(ch, first_queue, 0, &number), SB_LIMIT, "the status of one too many");
}
static void a_consumer_of_a_deleted_queue(void) {
  uint32_t number = UNTOUCHED;
  begin_channels();
  first_queue->state ^= UINT64_C(1) << 63;
  expect_is(consumed(ch, first_queue, 0, &number), SB_DELETED, "the status");
  first_queue->state ^= UINT64_C(1) << 63;
  expect_is(number, UNTOUCHED, "the number");
  expect(ch->room == 0 && ch->member_count == 0, "it is a member");
  for (unsigned i = 0; i < SB_ROUND_ROBINS; i++) expect(t.c->round_robins[i] == NULL, "it has a turn");
  expect_is(t.c->lock, 0, "the lock");
}
static sb_status without[3];
static void opens_without_memory(void) {
  uint32_t number;
  if (sb_channel_open(t.c, 5, &without[0]) != NULL) without[0] = SB_OK;
  without[1] = consumed(ch, first_queue, 0, &number);
}
static void without_memory_of_the_process(void) {
  uint32_t number = UNTOUCHED;
  void *blocks[64];
  begin_channels();
  for (unsigned i = 0; i < 8; i++) (void)join_channel(ch, first_queue, 0, 0, 0);
  without_memory(opens_without_memory);
  if (without[0] == SB_OK) return; /* in a build with a sanitizer, which always has memory */
  expect_is(without[0], SB_SYSTEM, "the status of a channel");
  expect_is(without[1], SB_SYSTEM, "the status of a consumer");
  for (unsigned part = 0; part < 2;
       part++) { /* there is memory for the consumer, and not for its number, or its turn */
    ch->member_count -= part;
    for (unsigned i = 0; i < 64; i++) blocks[i] = malloc(sizeof(sb_member));
    if (!heap_exhaust()) return;
    for (unsigned i = 0; i < 16; i += 2) free(blocks[i]);
    sb_status status = consumed(ch, part == 0 ? first_queue : second_queue, 0, &number);
    heap_relieve();
    ch->member_count += part;
    expect_is(status, SB_SYSTEM, part == 0 ? "the status without memory for a number" : "... for a turn");
    expect_is(number, UNTOUCHED, "its number");
    expect_is(ch->room, 16, "the room of the table");
  }
  expect_is(second_queue->shm->consumers, 0, "consumers of the queue");
  expect_is(second_queue->busy, 0, "what its handle is used by");
  expect_is(t.c->lock, 0, "the lock");
  expect_is(consumed(ch, second_queue, 0, &number), SB_OK, "the status with memory");
}

static void without_memory_of_the_broker(void) {
  uint32_t number = UNTOUCHED;
  begin_channels();
  leave_no_holding(true);
  expect_is(consumed(ch, second_queue, 0, &number), SB_GROW, "the status");
  expect_is(number, UNTOUCHED, "the number");
  expect_is(ch->member_count, 0, "consumers");
  for (unsigned i = 0; i < SB_ROUND_ROBINS; i++) expect(t.c->round_robins[i] == NULL, "it has a turn");
  expect_is(t.c->lock, 0, "the lock");
}

/* Else its queue might drop what is put after it was admitted. */
static void without_memory_of_the_broker_for_its_interest(void) {
  uint32_t number = UNTOUCHED;
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  if (!sb_node_move(t.c, m->s.node, SB_ANY_STATE, SB_NODE_NOT_INTERESTED)) die("sb_node_move", 0);
  leave_no_page_to(m->s.node, member_node(m)->level, SB_RING_INTERESTED, SB_NODE_INTERESTED, true);
  expect_is(consumed(ch, first_queue, 0, &number), SB_GROW, "the status");
  expect_is(number, UNTOUCHED, "the number");
  expect_is(ch->member_count, 1, "consumers");
  expect_is(first_queue->shm->consumers, 1, "consumers of the queue");
  expect_is(m->rank->members, 1, "those that have turns");
  ch->blocked = true; /* a channel without credit wants nothing, so its consumers need no entry */
  expect_is(consumed(ch, first_queue, 0, &number), SB_OK, "the status without credit");
}

/* ---- consumers that may not be here ---- */

static void what_may_not_be_here(void) {
  uint32_t number = UNTOUCHED;
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, SB_CONSUME_EXCLUSIVE);
  expect_is(member_node(m)->flags, SB_NODE_COUNTED | SB_NODE_MEMBER | SB_NODE_EXCLUSIVE, "the flags of its node");
  uint64_t holding = t.c->free_holding;
  sb_channel *second = open_channel(2);
  expect_is(consumed(second, first_queue, 0, &number), SB_ACCESS, "the status of another one");
  expect_is(number, UNTOUCHED, "its number");
  expect_is(second->member_count, 0, "consumers of its channel");
  expect_is(first_queue->shm->consumers, 1, "consumers of the queue");
  expect_is(m->rank->members, 1, "those that have turns");
  expect(holding == 0 || t.c->free_holding != 0, "its holding was lost");
  expect_is(m->s.q->busy, 1, "what the handle is used by");
}
static void end_the_active_one(void) {
  sb_channel_end_member(ends);
  comes = join_channel(acting, acting_at, 0, 0, 0);
}
/* It was registered for a moment, and made the active one: the next one is named when it goes. */
static void it_was_active_for_a_moment(void) {
  uint32_t number = UNTOUCHED;
  begin_channels();
  sb_queue *at = special("single", SB_QUEUE_SINGLE_ACTIVE);
  acting = stranger_opens();
  acting_at = open_queue(&stranger, "single");
  ends = join_channel(acting, acting_at, 0, 0, 0);
  meanwhile(&at->shm->exclusive, AFTER_LOAD, 1, end_the_active_one);
  expect_is(consumed(ch, at, SB_CONSUME_EXCLUSIVE, &number), SB_ACCESS, "the status");
  if (!has_acted()) return;
  expect_is(SB_LOAD(&at->shm->exclusive, SB_RELAXED) & 0xfffffff, comes->s.node, "the active one");
}
static void end_the_last_one(void) { sb_channel_end_member(ends); }
/* It was the last consumer of an auto-delete queue for a moment. */
static void it_was_the_last_for_a_moment(void) {
  uint32_t number = UNTOUCHED;
  begin_channels();
  sb_queue *at = special("auto", SB_QUEUE_AUTO_DELETE);
  acting = stranger_opens();
  acting_at = open_queue(&stranger, "auto");
  ends = join_channel(acting, acting_at, 0, 0, SB_CONSUME_EXCLUSIVE);
  meanwhile(&at->shm->consumers, BEFORE_CHANGE, 2, end_the_last_one);
  expect_is(consumed(ch, at, 0, &number), SB_ACCESS, "the status");
  if (!has_acted()) return;
  expect(!sb_queue_is_open(at), "the queue is still open");
}

static const test_case CASES[] = {
    {"api_channels: refused", "no call does anything when it is refused", calls_are_refused},
    {"api_channels: open", "a channel points to its connection until it is freed", channels_come_and_go},
    {"api_channels: child", "a child closes nothing", a_child_closes_nothing},
    {"api_channels: seen", "others see what a consumer is", what_others_see_of_a_consumer},
    {"api_channels: numbers", "a number is used again as late as possible", numbers_of_consumers},
    {"api_channels: reported", "there is a number while consumers are to be reported", many_are_to_be_reported},
    {"api_channels: most", "a channel has so many consumers at most", the_most_consumers},
    {"api_channels: deleted", "a deleted queue gets no consumer", a_consumer_of_a_deleted_queue},
    {"api_channels: no memory", "nothing is left of what has no memory", without_memory_of_the_process},
    {"api_channels: grows", "nothing is left of what waits for a broker that grows", without_memory_of_the_broker},
    {"api_channels: interest", "a consumer that cannot say that it wants messages waits for a segment, too",
     without_memory_of_the_broker_for_its_interest},
    {"api_channels: access", "a consumer that may not be here leaves nothing", what_may_not_be_here},
    {"api_channels: active", "a consumer that may not be here names the next one", it_was_active_for_a_moment},
    {"api_channels: last", "a consumer that may not be here ends its queue", it_was_the_last_for_a_moment},
};
SUBJECT(CASES)
