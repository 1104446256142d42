// SPDX-License-Identifier: Apache-2.0
#include "bystanders.h"

#include <string.h>

#include "sb_queue.h"

#define MESSAGES 1000u
#define FIRST_ID 1000u
#define HANDS 128u

typedef struct {
  test_broker as;
  sb_queue *q, *other;
} bystander;

static bystander producer, consumer;
static sb_record held[HANDS];
static uint32_t count;
static _Alignas(64) char buffer[BUFFER];

static void join(bystander *b, const test_broker *t) {
  b->as = *t;
  b->as.c = connect_to(&b->as);
  b->q = open_queue(&b->as, "q");
  b->other = open_queue(&b->as, "other");
}

static void leave(bystander *b) {
  (void)sb_connection_close(b->as.c);
  if (!sb_connection_release(b->as.c)) complain("a bystander cannot leave");
  sb_connection_free(b->as.c);
}

static void expect_alive(const trial *t, pid_t stopped) {
  int32_t pids[16];
  uint32_t reaped = sb_housekeeper_reap(t->broker.c), n = sb_broker_pids(t->broker.b, pids, 16);
  bool there = false;
  for (uint32_t i = 0; i < n && i < 16; i++) there = there || pids[i] == (int32_t)stopped;
  if (!there || reaped > t->operation->reaps) complain("the stopped one was reaped");
}

static bool stays(const sb_queue *q) { return (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_NON_DESTRUCTIVE) != 0; }
static uint64_t take_one(sb_queue *from, bool ends) {
  if (!stays(from)) return get(&consumer.as, from, buffer, ends);
  return ends ? take_away(&consumer.as, from, buffer) : take_out(&consumer.as, from, buffer);
}
static bool is_deleted(sb_queue *q) { return q == NULL || sb_queue_get(q, buffer, false) == -SB_DELETED; }

static void take_what_is_there(void) {
  while (consumer.q != NULL && take_one(consumer.q, false) != 0) {
    if (count == HANDS) die("more messages than hands", (int)count);
    memcpy(&held[count++], buffer, sizeof *held);
  }
}

static void give_back(void) {
  for (uint32_t i = 0; i < count; i++) {
    if (stays(consumer.q)) {
      sb_queue_put_back(consumer.q, (const char *)&held[i]);
    } else {
      (void)sb_queue_settle(consumer.q, (const char *)&held[i], SB_UNDELIVER);
    }
  }
  count = 0;
}

static bool pass(const operation *o, uint64_t id, sb_queue *from, sb_queue *to) {
  sb_status status = from != NULL ? put(&producer.as, from, id) : SB_DELETED;
  if (status == SB_DELETED) {
    return false;
  }
  if (status == SB_NO_MEMORY && o->takes_all) {
    return true; /* the stopped one has what is left */
  }
  if (status != SB_OK) complain("put %llu beside the stopped one: status %d", (unsigned long long)id, (int)status);
  uint64_t got = to != NULL ? take_one(to, true) : 0;
  if (got == 0 && is_deleted(to)) {
    return false;
  }
  if (got != id)
    complain("get beside the stopped one: message %llu, not %llu", (unsigned long long)got, (unsigned long long)id);
  return true;
}

static void pass_messages(const operation *o) {
  bool gone = false;
  for (uint64_t id = FIRST_ID; id < FIRST_ID + MESSAGES && complaint[0] == 0; id++) {
    bool passed = pass(o, id, producer.q, consumer.q);
    if (passed && gone) complain("a deleted queue came back");
    gone = !passed;
    if (gone && !o->deletes) complain("the queue is deleted");
    if (gone && !pass(o, id, producer.other, consumer.other)) complain("the other queue is deleted");
  }
}

void bystanders_work(const trial *t, pid_t stopped) {
  expect_alive(t, stopped);
  join(&producer, &t->broker);
  join(&consumer, &t->broker);
  take_what_is_there();
  pass_messages(t->operation);
  housekeep(&producer.as);
  give_back();
  expect_alive(t, stopped);
  leave(&producer);
  leave(&consumer);
}
