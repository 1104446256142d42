// SPDX-License-Identifier: Apache-2.0
/* sb_api_queues: the content of a queue, and how it is emptied: facts, counts, purges, and the consumers of the
 * queue. */
#include <string.h>

#include "calls.h"
#include "queues.h"
#include "sb_api.h"

/* ---- facts ---- */

static char longest[SB_NAME_MAX + 1];
static void describe_the_longest(sb_queue *q, sb_queue_facts *f) {
  memset(f, 0xff, sizeof *f);
  expect_is(sb_queue_describe(t.c, q->slot, f), SB_OK, "the status");
}
static void texts_of_a_queue(void) {
  static char texts[SB_TEXTS_MAX + 1], read[SB_TEXTS_MAX + 1];
  sb_queue_facts f;
  uint32_t slot;
  int32_t holder;
  sb_settings s = {{7, -1, -1, 0, -1, -1}, 0, SB_TEXTS_MAX, texts};
  memset(texts, 't', SB_TEXTS_MAX);
  sb_queue *q = open_new("q", s), *without = open_new("without", UNLIMITED);
  describe_the_longest(q, &f);
  expect_is(f.settings.texts_length, SB_TEXTS_MAX, "the length of its texts");
  expect_is(f.settings.values[SB_SETTING_RING_SIZE], 7, "ring_size");
  expect_is(sb_texts(t.c, q->slot, read), SB_TEXTS_MAX, "what is read of its texts");
  expect(memcmp(read, texts, SB_TEXTS_MAX) == 0, "its texts are others");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  s.values[SB_SETTING_RING_SIZE] = 8;
  s.texts_length = 0;
  expect_is(sb_queue_configure(q, &s, false, FOREVER, &holder), SB_OK, "the status of a change");
  expect_is(sb_texts(t.c, q->slot, read), SB_TEXTS_MAX, "what is left of its texts");
  sb_long_queue_shm *shm = sb_slab_object(t.b, q->slot, SB_KIND_LONG_QUEUE);
  SB_STORE(&shm->texts_length, SB_TEXTS_MAX + 1, SB_RELAXED);
  expect_is(sb_texts(t.c, q->slot, read), 0, "what is read of texts with a damaged length");
  describe_the_longest(without, &f);
  expect_is(f.settings.texts_length, 0, "the length of no texts");
  expect_is(sb_texts(t.c, without->slot, read), 0, "what is read of no texts");
  s.texts_length = SB_TEXTS_MAX + 1;
  expect_is(sb_queue_declare(t.c, "long", 4, &s, FOREVER, &slot, &holder), SB_INVALID,
            "the status of texts that are too long");
  expect_is(sb_queue_find(t.c, "long", 4, &slot), SB_NOT_FOUND, "what is found of them");
}
static void facts_of_a_queue(void) {
  sb_queue_facts f;
  memset(longest, 'n', SB_NAME_MAX);
  sb_queue *q = open_new(longest, ((sb_settings){{1, 2, 3, SB_OVERFLOW_DROP, 4, 5}, 0}));
  begin_watching(t.c);
  describe_the_longest(q, &f);
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  expect_is(f.name_length, SB_NAME_MAX, "the length of its name");
  expect(strcmp(f.name, longest) == 0, "its name is %s", f.name);
  expect_is(f.slot, q->slot, "its slot");
  expect_is(f.incarnation, q->state >> 2, "its incarnation");
  expect_is(f.settings.values[SB_SETTING_RING_SIZE], 1, "ring_size");
  expect_is(f.settings.values[SB_SETTING_MAX_LENGTH], 2, "max_length");
  expect_is(f.settings.values[SB_SETTING_MAX_BYTES], 3, "max_bytes");
  expect_is(f.settings.values[SB_SETTING_OVERFLOW], SB_OVERFLOW_DROP, "overflow");
  expect_is(f.settings.flags, SB_QUEUE_TTL | SB_QUEUE_EXPIRES, "flags");
  expect_is(f.settings.values[SB_SETTING_MESSAGE_TTL_MS], 4, "message_ttl_ms");
  expect_is(f.settings.values[SB_SETTING_EXPIRES_MS], 5, "expires_ms");
  SB_STORE(&q->shm->name_length, SB_NAME_MAX + 4, SB_RELAXED); /* a broken one: no name is so long */
  describe_the_longest(q, &f);
  expect_is(f.name_length, 3, "the length of a name that is too long");
  expect(strcmp(f.name, "nnn") == 0, "a name that is too long is %s", f.name);
}
static void owner_of_a_queue(void) {
  sb_queue_facts f;
  sb_queue *q = open_new("q", UNLIMITED);
  SB_STORE(&q->shm->owner_connection, t.c->id, SB_RELAXED);
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_OK, "the status");
  expect_is(f.owner, 0, "the owner of a queue that is not exclusive");
  SB_STORE(&q->shm->flags, (uint32_t)SB_QUEUE_EXCLUSIVE, SB_RELAXED);
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_OK, "the status of an exclusive queue");
  expect_is(f.owner, t.c->id, "its owner");
  expect_is(f.locked, 0, "whether it is locked for its owner");
  sb_connection *other = connect_to(&t);
  expect_is(sb_queue_describe(other, q->slot, &f), SB_OK, "the status of the queue of another connection");
  expect_is(f.owner, t.c->id, "its owner, of another connection");
  expect_is(f.locked, 1, "whether it is locked for another connection");
}
/* Each counter has a bit of its own. */
static void counts_of_a_queue(void) {
  sb_queue_facts f;
  sb_queue *q = open_new("q", UNLIMITED);
  for (unsigned i = 0; i < SB_COUNTERS; i++) SB_STORE(&q->ledger->counters[i], UINT64_C(1) << i, SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_ADDED_BYTES], 0x500000, SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_REMOVED_BYTES], 0x200000, SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_ADDED], 0x100000, SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_UNSCHEDULED], 5, SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_SCHEDULED], 8, SB_RELAXED);
  SB_STORE(&q->ledger->holding, 9, SB_RELAXED);
  SB_STORE(&q->shm->rescues, 21, SB_RELAXED);
  SB_STORE(&q->shm->base, 64, SB_RELAXED);
  SB_STORE(&q->shm->tail, 86, SB_RELAXED);
  SB_STORE(&q->shm->created_ns, 23, SB_RELAXED);
  SB_STORE(&q->shm->consumers, 24, SB_RELAXED);
  SB_STORE(&q->shm->interested, 25, SB_RELAXED);
  SB_STORE(&q->shm->notified, 26, SB_RELAXED);
  SB_STORE(&q->shm->not_interested, 27, SB_RELAXED);
  SB_STORE(&q->shm->non_acquiring, 28, SB_RELAXED);
  SB_STORE(&q->shm->room_waiting, 29, SB_RELAXED);
  memset(&f, 0xff, sizeof f);
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_OK, "the status");
  const uint64_t refused = 1u << SB_COUNT_REFUSED;
  expect_is(f.added, 0x100000 + refused, "added");
  expect_is(f.acked, 1u << SB_COUNT_ACKED, "acked");
  expect_is(f.expired, 1u << SB_COUNT_EXPIRED, "expired");
  expect_is(f.killed, 1u << SB_COUNT_KILLED, "killed");
  expect_is(f.replaced, 1u << SB_COUNT_REPLACED, "replaced");
  expect_is(f.dropped, (1u << SB_COUNT_DROPPED) + refused, "dropped");
  expect_is(f.dead_lettered, 1u << SB_COUNT_DEAD_LETTERED, "dead_lettered");
  expect_is(f.moved, 1u << SB_COUNT_MOVED, "moved");
  expect_is(f.redelivered, 1u << SB_COUNT_REDELIVERED, "redelivered");
  expect_is(f.delivered, 1u << SB_COUNT_DELIVERED, "delivered");
  expect_is(f.delivering, 9, "delivering");
  expect_is(f.scheduled, 3, "scheduled");
  expect_is(f.bytes, 0x300000, "bytes");
  expect_is(f.ready, sb_queue_count_ready(t.b, q->shm), "ready");
  expect_is(f.rescues, 21, "rescues");
  expect_is(f.tail, 22, "tail");
  expect_is(f.created_ns, 23, "created_ns");
  expect_is(f.consumers, 24, "consumers");
  expect_is(f.interested, 25, "interested");
  expect_is(f.notified, 26, "notified");
  expect_is(f.not_interested, 27, "not_interested");
  expect_is(f.non_acquiring, 28, "non_acquiring");
  expect_is(f.room_waiting, 29, "room_waiting");
  SB_STORE(&q->ledger->counters[SB_COUNT_SCHEDULED], 4, SB_RELAXED); /* read before the other one was raised */
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_OK, "the status with fewer scheduled than due");
  expect_is(f.scheduled, 0, "scheduled, with more due");
  SB_STORE(&q->ledger->counters[SB_COUNT_ADDED], 0,
           SB_RELAXED); /* of a consumer that has counted the end, and still the hold */
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_OK, "the status with more that left than came");
  expect_is(f.ready, 0, "ready, with more that left than came");
}
static void no_facts(void) {
  sb_queue_facts f, none;
  memset(&none, 0, sizeof none);
  sb_queue *q = open_new("q", UNLIMITED);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    memset(&f, 0xff, sizeof f);
    expect_is(sb_queue_describe(t.c, q->slot, &f), REFUSAL[i], "the status of a refusal");
    expect(memcmp(&f, &none, sizeof f) == 0, "there are facts in state %u", i);
    expect_untouched(t.c, "a refused description");
  }
  refuse(t.c, SB_OK);
  const struct {
    uint32_t slot;
    sb_status status;
  } others[] = {{0, SB_DELETED},
                {q->slot + 1, SB_DELETED},
                {t.c->record, SB_DELETED},
                {BROKER_CHUNKS * SB_CHUNK_UNITS, SB_CORRUPT}};
  for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
    memset(&f, 0xff, sizeof f);
    expect_is(sb_queue_describe(t.c, others[i].slot, &f), others[i].status, "the status of what is no queue");
    expect(memcmp(&f, &none, sizeof f) == 0, "there are facts of slot %u", others[i].slot);
    expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  }
  close_by_hand(q);
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_DELETED, "the status of a deleted queue");
  expect_is(f.slot, q->slot, "its slot all the same");
}
/* The counters move one by one: while they do, they are read again. */
static sb_queue *put_into;
static unsigned steps_to_go;
static void put_in_the_middle(const char *site) {
  (void)site;
  if (steps_to_go-- > 0) return;
  at_step = NULL;
  sb_connection *c = t.c;
  t.c = put_into->c;
  (void)put(&t, put_into, 2);
  t.c = c;
}
static void counts_of_one_moment(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  sb_connection *c = t.c;
  t.c = connect_to(&t);
  put_into = open_queue(&t, "q");
  (void)put(&t, put_into, 1);
  t.c = c;
  if (!has_steps()) return;
  bool in_the_middle = true;
  for (unsigned n = 0; in_the_middle; n++) {
    sb_queue_facts f;
    steps_to_go = n;
    at_step = put_in_the_middle;
    (void)sb_queue_describe(t.c, q->slot, &f);
    in_the_middle = at_step == NULL;
    at_step = NULL;
    expect(f.bytes == A_MESSAGE * f.added, "%u messages of %u bytes, changed before step %u", (unsigned)f.added,
           (unsigned)f.bytes, n);
  }
}

/* ---- how many are ready ---- */

static void messages_are_counted(void) {
  sb_queue *plain = open_new("plain", UNLIMITED), *limited = open_new("limited", AT_MOST(9));
  sb_queue *unlimited = open_new("dropping", ((sb_settings){{-1, -1, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}));
  sb_queue *all[] = {plain, limited, unlimited};
  for (unsigned i = 0; i < 3; i++) {
    for (unsigned n = 0; n < 2 + i; n++) put(&t, all[i], n);
    begin_watching(t.c);
    expect_is(sb_queue_length(all[i]), 2 + i, "how many are ready");
    expect_untouched(t.c, "a count of a queue that evicts nothing");
  }
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(-sb_queue_length(plain), REFUSAL[i], "minus the status of a refusal");
    expect_untouched(t.c, "a refused count");
  }
}
static void a_count_evicts(void) {
  sb_queue *q = open_new("q", OF_RING(9));
  for (unsigned i = 0; i < 5; i++) put(&t, q, i);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
  begin_watching(t.c);
  expect_is(sb_queue_length(q), 2, "how many are ready in a ring of two");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  expect_is(q->ledger->counters[SB_COUNT_REPLACED], 3, "how many were replaced");
}
static sb_queue *closing;
static void close_when_locked(sb_connection *c) {
  (void)c;
  close_by_hand(closing);
}
static void a_count_of_a_deleted_queue(void) {
  closing = open_new("q", OF_RING(9));
  put(&t, closing, 1);
  ask_to_forget(t.c);
  t.c->renew = close_when_locked;
  expect_is(-sb_queue_length(closing), SB_DELETED, "minus the status of a queue that is deleted meanwhile");
  begin_watching(t.c);
  expect_is(-sb_queue_length(closing), SB_DELETED, "minus the status of a deleted queue");
  expect_untouched(t.c, "a count of a deleted queue");
}

static void close_connection_when_locked(sb_connection *c) { SB_STORE(&c->closed, 1u, SB_SEQ_CST); }
static void a_count_of_a_connection_that_is_closed_meanwhile(void) {
  sb_queue *q = open_new("q", OF_RING(9));
  for (unsigned i = 0; i < 5; i++) put(&t, q, i);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
  ask_to_forget(t.c);
  t.c->renew = close_connection_when_locked;
  expect_is(sb_queue_length(q), 5, "how many are ready");
  expect_is(q->ledger->counters[SB_COUNT_REPLACED], 0, "how many were replaced");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}

/* ---- purging ---- */

static void a_queue_is_purged(void) {
  uint64_t removed = 0;
  sb_queue *q = open_new("q", UNLIMITED), *limited = open_new("limited", AT_MOST(1));
  for (unsigned i = 0; i < 3; i++) put(&t, q, i);
  sb_watch *w = armed_watch(q, false);
  expect_is(purge_count(q), 3, "how many were removed");
  expect_is(q->ledger->counters[SB_COUNT_KILLED], 3, "how many were killed");
  expect_told(w, "what waits for a message");
  put(&t, limited, 1);
  w = armed_watch(limited, true);
  expect_is(purge_count(limited), 1, "how many were removed of a full queue");
  expect_told(w, "what waits for room");
  expect_is(purge_count(limited), 0, "how many were removed of an empty queue");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_queue_purge(q, &removed), REFUSAL[i], "the status of a refusal");
    expect_untouched(t.c, "a refused purge");
  }
  refuse(t.c, SB_OK);
  close_by_hand(q);
  expect_is(sb_queue_purge(q, &removed), SB_DELETED, "the status of a deleted queue");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock after a deleted queue");
  refuse(t.c, SB_CLOSED);
  expect_is(sb_queue_purge(q, &removed), SB_CLOSED, "the status of a deleted queue of a closed connection");
  expect_untouched(t.c, "a refused purge of a deleted queue");
}
/* Between two steps of a purge another call of the connection puts a message: it stays. */
static bool put_between;
static void put_when_unlocked(const char *site) {
  (void)site;
  bool locked = atomic_load_explicit(&t.c->lock, memory_order_relaxed) != 0;
  if (locked) put_between = true;
  if (locked || !put_between) return;
  at_step = NULL;
  (void)put(&t, put_into, 2);
}
static void a_purge_in_steps(void) {
  put_into = open_new("q", UNLIMITED);
  for (unsigned i = 0; i < 1030; i++) put(&t, put_into, 1);
  at_step = put_when_unlocked;
  expect_is(purge_count(put_into), 1030, "how many were removed");
  at_step = NULL;
  expect_is(sb_queue_length(put_into), has_steps() ? 1 : 0, "how many are left of those that came later");
}
/* All holdings of the connection are used, so no message can be taken to remove it. */
static void a_purge_without_a_holding(void) {
  uint64_t token, removed = 7;
  sb_queue *q = open_new("q", UNLIMITED), *full = open_new("full", UNLIMITED);
  for (unsigned i = 0; i < 6; i++) put(&t, i < 3 ? q : full, i);
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  expect_is(sb_queue_purge(q, &removed), SB_GROW, "the status while the broker may grow");
  expect_is(removed, 7, "how many were removed then");
  expect_is(sb_queue_length(q), 3, "how many are left then");
  (void)grow(t.b, t.path);
  expect_is(sb_queue_purge(q, &removed), SB_OK, "the status after it grew");
  expect_is(removed, 7 + 3, "how many were removed then: they are added");
  leave_holdings(0);
  expect_is(sb_queue_purge(full, &removed), SB_NO_MEMORY, "the status of a broker that is full");
  expect_is(removed, 7 + 3, "how many were removed then");
  expect_is(sb_queue_length(full), 3, "how many are left then");
}

/* ---- consumers ---- */

static void consumers_are_listed(void) {
  sb_consumer_facts f[3];
  sb_status status;
  sb_queue *q = open_new("q", UNLIMITED);
  memset(f, 0xff, sizeof f);
  expect_is(sb_queue_consumers(t.c, q->slot, f, 3), 0, "how many there are before the first one");
  sb_consumer *k = sb_consumer_open(t.c, &q, 1, 5, -3, 0, 0, &status),
              *other = sb_consumer_open(t.c, &q, 1, 6, 2, 0, 0, &status);
  if (k == NULL || other == NULL) die("consume", (int)status);
  sb_node_shm *node = sb_slot_at(t.b, k->subscriptions[0].node);
  SB_STORE(&node->unacked, 2u, SB_RELAXED);
  SB_STORE(&node->channel, 7u, SB_RELAXED);
  SB_STORE(&node->delivered, 8, SB_RELAXED);
  SB_STORE(&node->wakes, 9, SB_RELAXED);
  SB_STORE(&node->pid, 10u, SB_RELAXED);
  expect_is(sb_queue_consumers(t.c, q->slot, f, 1), 1, "how many fit");
  expect_is(f[0].connection, t.c->id, "connection");
  expect_is(f[0].pid, 10, "pid");
  expect_is(f[0].state, SB_NODE_INTERESTED, "state");
  expect_is(f[0].flags, SB_NODE_COUNTED, "flags");
  expect_is(f[0].prefetch, 5, "prefetch");
  expect_is(f[0].unacked, 2, "unacked");
  expect_is(f[0].channel, 7, "channel");
  expect_is(f[0].priority, -3, "priority");
  expect_is(f[0].delivered, 8, "delivered");
  expect_is(f[0].wakes, 9, "wakes");
  expect_is(f[1].wakes, UINT64_MAX, "what lies behind the room");
  expect_is(sb_queue_consumers(t.c, q->slot, f, 3), 2, "how many there are");
  expect_is(f[1].prefetch, 6, "prefetch of the second one");
  const uint32_t others[] = {0, q->slot + 1, t.c->record, BROKER_CHUNKS * SB_CHUNK_UNITS, UINT32_MAX};
  for (unsigned i = 0; i < 5; i++)
    expect_is(sb_queue_consumers(t.c, others[i], f, 3), 0, "consumers of what is no queue");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(-sb_queue_consumers(t.c, q->slot, f, 3), REFUSAL[i], "minus the status of a refusal");
    expect_untouched(t.c, "a refused list");
  }
}

static const test_case CASES[] = {
    {"api_queues: texts", "texts are kept as they were declared, beside other settings", texts_of_a_queue},
    {"api_queues: facts", "a description gives name and settings", facts_of_a_queue},
    {"api_queues: owner", "an exclusive queue has an owner, and is locked for others", owner_of_a_queue},
    {"api_queues: counts", "a description gives each count", counts_of_a_queue},
    {"api_queues: no facts", "what is no queue has no facts", no_facts},
    {"api_queues: moment", "the counts of a description belong together", counts_of_one_moment},
    {"api_queues: length", "a count of a queue that evicts nothing takes no lock", messages_are_counted},
    {"api_queues: evicted", "a count restores the bound of a ring", a_count_evicts},
    {"api_queues: no length", "a deleted queue has no length, also if it is deleted meanwhile",
     a_count_of_a_deleted_queue},
    {"api_queues: closed", "a count evicts nothing after the connection was closed",
     a_count_of_a_connection_that_is_closed_meanwhile},
    {"api_queues: purge", "a purge removes what is ready, and tells what waits", a_queue_is_purged},
    {"api_queues: purge, no holding", "a purge that cannot take a message says why", a_purge_without_a_holding},
    {"api_queues: steps", "a purge removes what was there when it began", a_purge_in_steps},
    {"api_queues: consumers", "consumers are listed, as many as there is room for", consumers_are_listed},
};
SUBJECT(CASES)
