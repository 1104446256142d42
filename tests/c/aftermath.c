// SPDX-License-Identifier: Apache-2.0
#include "aftermath.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "id_operations.h"
#include "sb_queue.h"
#include "stored_operations.h"

#define TRIED 20u /* messages that are put to see how many fit */

static char *buffer;

static void expect_sound(test_broker *t, const char *when) {
  const char *found = findings(t->c);
  if (found != NULL) complain("%s %s", when, found);
}

/* ---- messages ---- */

static uint64_t next_of(test_broker *t, sb_queue *from) {
  bool stays = (SB_LOAD(&from->shm->flags, SB_RELAXED) & SB_QUEUE_NON_DESTRUCTIVE) != 0;
  return stays ? take_away(t, from, buffer) : get(t, from, buffer, true);
}
static uint64_t drain(test_broker *t, sb_queue *from, uint64_t seen, uint64_t *count) {
  uint64_t id;
  while (from != NULL && (id = next_of(t, from)) != 0) {
    if (id >= 64) {
      complain("message %llu is damaged", (unsigned long long)id);
    } else if ((seen & ID(id)) != 0 && id != OTHERS) {
      complain("message %llu is there twice", (unsigned long long)id);
    } else {
      seen |= ID(id);
    }
    ++*count;
  }
  return seen;
}

/* A message that was moved to a queue that KEEPS has the sequence there that it was given when it was put. */
static void expect_sequences(sb_queue *keeps) {
  uint64_t position = 0, id;
  int64_t size;
  while ((size = sb_queue_browse(keeps, &position, buffer, BUFFER)) > 0) {
    sb_record r;
    memcpy(&r, buffer, sizeof r);
    memcpy(&id, buffer + size - r.body_length, sizeof id);
    if (r.sequence != id - 1 + FINISHED)
      complain("message %llu has sequence %llu", (unsigned long long)id, (unsigned long long)r.sequence);
  }
}

static void expect_many(test_broker *t, const operation *o, uint64_t seen);

static void expect_messages(test_broker *t, const operation *o, bool done, sb_queue *here, sb_queue *there) {
  uint64_t must = done ? o->must_done : o->must, may = done ? o->may_done : o->may, in_q = 0, in_other = 0;
  uint64_t seen_here = drain(t, here, 0, &in_q), seen_there = drain(t, there, 0, &in_other);
  uint64_t seen = seen_here | seen_there, twice = seen_here & seen_there & ~(o->both | o->twice | ID(OTHERS));
  if (twice != 0) complain("messages %llx are in both queues", (unsigned long long)twice);
  uint64_t all = seen_here & o->both;
  if (((seen_here ^ seen_there) & o->both) != 0 || (all != 0 && all != o->both))
    complain("of %llx are left %llx and %llx", (unsigned long long)o->both, (unsigned long long)all,
             (unsigned long long)(seen_there & o->both));
  if (o->many != 0) expect_many(t, o, seen_here);
  if ((seen & o->instead) != (all != 0 ? 0 : o->instead))
    complain("left are %llx, and %llx", (unsigned long long)all, (unsigned long long)(seen & o->instead));
  if ((seen & must) != must)
    complain("lost: left are %llx, must be %llx", (unsigned long long)seen, (unsigned long long)must);
  if ((seen & ~may) != 0)
    complain("too many: left are %llx, may be %llx", (unsigned long long)seen, (unsigned long long)may);
  if (o->exactly != 0 && in_q != o->exactly)
    complain("%llu messages are left, not %llu", (unsigned long long)in_q, (unsigned long long)o->exactly);
  if (o->total != 0 && in_q + in_other != o->total)
    complain("%llu and %llu messages are left, not %llu together", (unsigned long long)in_q,
             (unsigned long long)in_other, (unsigned long long)o->total);
}

static uint64_t capacity(const sb_settings *s) {
  int64_t limit = s->values[SB_SETTING_RING_SIZE] >= 0    ? s->values[SB_SETTING_RING_SIZE]
                  : s->values[SB_SETTING_MAX_LENGTH] >= 0 ? s->values[SB_SETTING_MAX_LENGTH]
                  : s->values[SB_SETTING_MAX_BYTES] >= 0  ? s->values[SB_SETTING_MAX_BYTES] / 64
                                                          : (int64_t)TRIED;
  return (uint64_t)limit;
}

/* As many as the settings say fit into the empty queue, no more and no fewer. */
static void expect_limits(test_broker *t, const operation *o, sb_queue *here) {
  for (uint64_t i = 0; i < TRIED; i++) (void)put(t, here, i % 60 + 1);
  uint64_t fits = 0;
  (void)drain(t, here, 0, &fits);
  if (!o->resizes && fits != capacity(&o->settings))
    complain("of %u messages %llu fit, not %llu", TRIED, (unsigned long long)fits,
             (unsigned long long)capacity(&o->settings));
}

static void expect_content(test_broker *t, const operation *o, bool done) {
  sb_queue *here = open_queue(t, "q"), *there = open_queue(t, "other");
  if ((o->settings.flags & SB_QUEUE_KEEPS) != 0) expect_sequences(here);
  if (o->leases) expect_sequences(there);
  if (o->again == AGAIN_PUT) put_with_id(t, here);
  if (o->again == AGAIN_COMMIT) commit_with_id(t, here, there);
  expect_messages(t, o, done, here, there);
  if (here == NULL) { /* deleted: its name is free again, at the latest after one change of the topology */
    (void)declare(t, "unrelated", o->settings);
    sb_status status = declare(t, "q", o->settings);
    if (status != SB_OK) complain("the deleted queue cannot be declared again: %d", (int)status);
    here = open_queue(t, "q");
  }
  if (here != NULL) expect_limits(t, o, here);
  if (here != NULL) (void)sb_queue_close(here);
  if (there != NULL) (void)sb_queue_close(there);
}

static void name_of_many(char *name, size_t size, unsigned i) { snprintf(name, size, "t%u", i); }

/* Each of many queues has what "q" had, of what goes to all. */
static void expect_many(test_broker *t, const operation *o, uint64_t seen) {
  for (unsigned i = 0; i < o->many; i++) {
    char name[16];
    name_of_many(name, sizeof name, i);
    sb_queue *one = open_queue(t, name);
    uint64_t count = 0, there = drain(t, one, 0, &count);
    if (there != (seen & o->both))
      complain("%llx are left in %s, and %llx in the first", (unsigned long long)there, name,
               (unsigned long long)(seen & o->both));
    if (one != NULL) (void)sb_queue_close(one);
  }
}

/* ---- memory ---- */

static void remove_queue(test_broker *t, const char *name) {
  sb_queue *gone = open_queue(t, name);
  int32_t holder;
  uint64_t removed;
  if (gone != NULL) {
    (void)sb_queue_delete(gone, false, false, FOREVER, &holder, &removed);
    (void)sb_queue_close(gone);
  }
}

static void expect_nothing_kept(test_broker *t, uint64_t memory) {
  sb_broker_facts f;
  for (unsigned i = 0; i < MANY; i++) {
    char name[16];
    name_of_many(name, sizeof name, i);
    remove_queue(t, name);
  }
  const char *names[] = {"q", "other", "new", "unrelated"};
  for (int i = 0; i < 4; i++) remove_queue(t, names[i]);
  for (int i = 0; i < 3; i++) (void)sb_housekeeper_sweep(t->c, FOREVER);
  sb_broker_describe(t->b, &f, true);
  if (f.memory_used != memory)
    complain("memory: %llu bytes in use, %llu before", (unsigned long long)f.memory_used, (unsigned long long)memory);
  if (f.queues != 0) complain("%d queues are counted, there are none", (int)f.queues);
  if (f.connections != 1 || f.processes != 1)
    complain("%u connections, %u processes are left", f.connections, f.processes);
}

/* A new connection makes a new queue out of what was freed: nothing of the past may come back to it. */
static void live_on(test_broker *t) {
  test_broker fresh = *t;
  fresh.c = connect_to(&fresh);
  sb_status status = declare(&fresh, "last", (sb_settings)FREELY);
  sb_queue *last = status == SB_OK ? open_queue(&fresh, "last") : NULL;
  if (last == NULL) {
    complain("no queue can be declared any more: %d", (int)status);
    return;
  }
  for (uint64_t id = 1; id <= 3; id++) (void)put(&fresh, last, id);
  (void)sb_housekeeper_sweep(t->c, FOREVER);
  uint64_t left = 0, seen = drain(&fresh, last, 0, &left);
  if (seen != (ID(1) | ID(2) | ID(3)))
    complain("a sweep took messages of a new queue: %llu of 3 are left", (unsigned long long)left);
}

void housekeep(test_broker *t) {
  uint32_t index = 0, slot;
  while ((slot = sb_queue_next(t->c, &index)) != 0) {
    sb_queue_memory memory = {0};
    for (int i = 0; i < 8; i++) sb_housekeeper_tick(t->c, slot, &memory);
  }
}

/* The next operation of another process, before any reaping. */
static void expect_bound(test_broker *t, const operation *o) {
  sb_queue *here = open_queue(t, "q");
  uint64_t position = 0, count = 0;
  if (here == NULL) {
    complain("the queue is gone");
    return;
  }
  if (o->next == NEXT_PUTS) (void)put(t, here, OTHERS);
  int64_t length = sb_queue_length(here);
  while (sb_queue_browse(here, &position, buffer, BUFFER) > 0) count++;
  sb_queue_facts f = {0};
  uint32_t slot = 0;
  if (sb_queue_find(t->c, "q", 1, &slot) != SB_OK || sb_queue_describe(t->c, slot, &f) != SB_OK)
    complain("the queue has no statistics");
  if (length > (int64_t)capacity(&o->settings) || count > capacity(&o->settings) || f.ready > capacity(&o->settings))
    complain("the next operation finds %lld messages, browses %llu, and counts %llu", (long long)length,
             (unsigned long long)count, (unsigned long long)f.ready);
  (void)sb_queue_close(here);
}

void verify(test_broker *t, const operation *o, bool done, uint64_t memory) {
  buffer = malloc(BUFFER);
  if (o->next != NO_NEXT) expect_bound(t, o);
  while (sb_housekeeper_reap(t->c) > 0) {
  }
  uint64_t repairs = repairs_of(t->b);
  housekeep(t);
  if (done && !o->disturbed && repairs_of(t->b) != repairs)
    complain("upkeep mends what an operation left that had come back");
  (void)sb_housekeeper_sweep(t->c, FOREVER); /* the next holder of the topology lock finishes what the last one began */
  expect_sound(t, "after reaping");
  sb_queue *stored = open_queue(t, "q");
  if (stored != NULL) {
    expect_changes_found(stored);
    expect_commits_counted(stored);
    (void)sb_queue_close(stored);
  }
  expect_content(t, o, done);
  repairs = repairs_of(t->b);
  housekeep(t);
  if (repairs_of(t->b) != repairs) complain("upkeep mends what no death explains");
  expect_sound(t, "after use");
  expect_nothing_kept(t, memory);
  live_on(t);
  free(buffer);
}
