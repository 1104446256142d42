// SPDX-License-Identifier: Apache-2.0
#include "cast.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sb_housekeeping.h"
#include "sb_liveness.h"
#include "sb_topology.h"
#include "world.h"

#define RECORD_BYTES 8192u
#define TICKS 8
#define LONGEST_BODY 8192u
#define LONGEST_SLEEPS 8

typedef struct {
  bool tried, accepted, acked, may_go, shared;
  uint8_t instead_of; /* the message that is acknowledged with it */
  uint8_t delivered;
  uint8_t acking; /* by actor, plus one */
} fate;

/* Part of the world: at the beginning of a run it says what was put and taken before. */
typedef struct {
  player players[PLAYERS];
  fate fates[MESSAGES];
  bool any_order, consumers;
  bool acks_at_once[ACTORS + 1];             /* is in a get that acknowledges whatever comes */
  uint64_t newest[ACTORS + 1][MESSAGES / 8]; /* that came to an actor from a producer, for the first time */
} account;

player *players;
unsigned player_of[ACTORS];
static account *book;
static bool dead[PLAYERS], dead_before[PLAYERS]; /* now; when the world was kept */
static unsigned acting = KEEPER;
static char *drained;
static sb_queue_memory *ticked; /* what the housekeeper remembers */
static char lock_file[160];

static void open_lock_as(int wanted) {
  int fd = open(lock_file, O_RDWR | O_CLOEXEC);
  if (fd < 0 || (fd != wanted && dup2(fd, wanted) < 0)) die("the lock file", fd);
  if (fd != wanted) close(fd);
}

static void make_player(unsigned which, const player *first) {
  player *p = &players[which];
  if (which > 0) {
    sb_broker *b = world_allocate(NOBODY, sizeof *b); /* the same mapping, a process of its own */
    *b = *first->t.b;
    b->lock_fd = b->topology_fd = -1;
    b->guard = NULL;
    sb_status status = sb_liveness_attach(b);
    if (status != SB_OK) die("sb_liveness_attach", (int)status);
    p->t = first->t;
    p->t.b = b;
  }
  p->lock_fd = p->t.b->lock_fd;
  p->topology_fd = p->t.b->topology_fd;
  p->first = world_allocate(NOBODY, RECORD_BYTES);
  p->second = world_allocate(NOBODY, RECORD_BYTES);
  p->t.c = connect_to(&p->t);
}

static void warm_up_with(player *p, sb_queue *q, uint64_t bytes) {
  sb_put_options none = {0};
  if (put_sized(&p->t, q, 1, bytes, &none) != SB_OK || get(&p->t, q, p->first, true) != 1) die("warming up", 0);
}

/* Chunks for bodies, levels and pages exist: to make one touches more words than all that is looked at here. */
static void warm_up(player *p) {
  sb_wait at_once = {1, UINT64_MAX, 0, 0};
  sb_status status;
  for (int i = 0; i < 70; i++) warm_up_with(p, p->other, 64);
  warm_up_with(p, p->other, 6000);
  warm_up_with(p, p->q, 64);
  (void)sb_queue_get_wait(p->q, p->first, true, &at_once);
  for (int32_t priority = 0; priority <= 5; priority += 5) {
    sb_consumer *k = sb_consumer_open(p->t.c, &p->q, 1, 1, priority, 0, 0, &status);
    if (k == NULL) die("warming up", (int)status);
    sb_consumer_cancel(k, true);
  }
}

void cast_make(const char *name, const sb_settings *settings) {
  book = world_allocate(NOBODY, sizeof *book);
  players = book->players;
  player *first = &players[0];
  make_broker(&first->t, name, CHUNKS_PER_SEGMENT);
  file_name(lock_file, sizeof lock_file, first->t.path, "lock");
  attach(&first->t);
  (void)grow(first->t.b, first->t.path);
  if ((settings->flags & SB_QUEUE_DURABLE) != 0) sb_broker_set_stores(first->t.b, SB_STORES_READY);
  for (unsigned i = 0; i < PLAYERS; i++) make_player(i, first);
  sb_settings of_other = FREELY;
  of_other.flags |= settings->flags & SB_QUEUE_DURABLE;
  if (declare(&first->t, "q", *settings) != SB_OK || declare(&first->t, "other", of_other) != SB_OK)
    die("sb_queue_declare", 0);
  for (unsigned i = 0; i < PLAYERS; i++) {
    players[i].q = open_queue(&players[i].t, "q");
    players[i].other = open_queue(&players[i].t, "other");
  }
  drained = world_allocate(NOBODY, RECORD_BYTES);
  ticked = world_allocate(NOBODY, sizeof(sb_queue_memory));
  warm_up(&players[KEEPER]);
  sb_broker *b = first->t.b;
  world_add(b->base, SB_SEGMENT0_BYTES);
  world_add(b->meta, b->mapped_chunks * SB_CHUNK_META_BYTES);
  world_add(b->arena, b->mapped_chunks * SB_CHUNK_BYTES);
}

void cast_remove(void) { remove_files(players[0].t.path); }

player *me(void) { return &players[scheduler_current() == NOBODY ? acting : player_of[scheduler_current()]]; }
void act_as(unsigned which) { acting = which; }

void player_dies(unsigned which) {
  player *p = &players[which];
  dead[which] = true;
  dead_before[which] = !world_is_kept();
  close(p->lock_fd);
  close(p->topology_fd);
  /* /proc shows us, not it: as if it lived in another namespace, where the lock alone decides */
  atomic_store(&p->t.b->processes[p->t.b->process].pid_namespace, 0);
}

bool player_is_dead(unsigned which) { return dead[which]; }

void cast_begin(void) {
  for (unsigned i = 0; i < PLAYERS; i++) {
    player *p = &players[i];
    if (dead[i] && !dead_before[i]) {
      open_lock_as(p->lock_fd);
      open_lock_as(p->topology_fd);
      if (!sb_lock_byte(p->lock_fd, SB_LOCK_PROCESS + (long)p->t.b->process))
        die("the lock of the dead is taken", (int)i);
      dead[i] = false;
    }
  }
}

/* A thread remembers that it holds the lock of the topology, and all actors are of one thread: it would remember this of a
 * dead actor in the next run, too. It forgets when another player takes the lock. */
void cast_end(void) {
  int32_t holder;
  sb_broker *b = players[KEEPER].t.b;
  if (scheduler_somebody_died() && sb_topology_lock(b, 0, &holder) == SB_OK) sb_topology_unlock(b, false);
}

/* ---- messages ---- */

static unsigned actor(void) { return scheduler_current(); } /* NOBODY is one, too: its messages were there before */
static fate *fate_of(uint64_t id) {
  if (id == 0 || id >= MESSAGES) {
    complain("a message that nobody put: %llu", (unsigned long long)id);
    return &book->fates[0];
  }
  return &book->fates[id];
}

void may_go(uint64_t id) { book->fates[id].may_go = true; }
void consumers_may_return(void) { book->consumers = true; }
void any_order(void) { book->any_order = true; }
void everything_may_go(void) {
  for (unsigned id = 0; id < MESSAGES; id++) book->fates[id].may_go = true;
}

void note_put(uint64_t id, bool done) {
  book->fates[id].tried = true;
  book->fates[id].accepted = done;
}
bool newest_was_taken(void) {
  bool taken = false;
  for (uint64_t id = 1, newest = 0; id < IN_OTHER; id++) {
    if (book->fates[id].accepted) newest = id;
    if (PRODUCED_BY(id) != PRODUCED_BY(id + 1)) {
      taken = taken || book->fates[newest].delivered > 0;
      newest = 0;
    }
  }
  return taken;
}

bool put_message_with(uint64_t id, uint64_t bytes, const sb_put_options *options) {
  player *p = me();
  book->fates[id].tried = true;
  sb_status status = put_sized(&p->t, p->q, id, bytes, options);
  book->fates[id].accepted = status == SB_OK;
  scheduler_note(status == SB_OK ? "put" : status == SB_FULL ? "full" : "not-put");
  return status == SB_OK;
}
bool put_message(uint64_t id) {
  sb_put_options none = {0};
  return put_message_with(id, 64, &none);
}

void put_messages(uint64_t first, unsigned count) {
  uint64_t ids[8];
  sb_piece pieces[8];
  sb_put_options none = {0};
  sb_status status;
  for (unsigned i = 0; i < count; i++) {
    ids[i] = first + i;
    book->fates[ids[i]].tried = true;
    pieces[i] = (sb_piece){(const char *)&ids[i], sizeof ids[i]};
  }
  int64_t n = sb_queue_put_many(me()->q, pieces, count, &none, &status);
  for (unsigned i = 0; i < n; i++) {
    book->fates[ids[i]].accepted = true;
    scheduler_note("put");
  }
}

static uint64_t delivered(uint64_t id, const char *record, bool settled) {
  const sb_record *r = (const sb_record *)(const void *)record;
  fate *f = fate_of(id);
  if (f->acked && !f->may_go) complain("message %llu is delivered after it was acknowledged", (unsigned long long)id);
  if (!f->tried) complain("message %llu is delivered, and nobody put it", (unsigned long long)id);
  if (f->delivered > 0 && (r->marks & SB_MARK_REDELIVERED) == 0)
    complain("message %llu comes again, and is not marked", (unsigned long long)id);
  if (f->delivered == 0 && (r->marks & SB_MARK_REDELIVERED) != 0 && !scheduler_somebody_died() && !book->consumers)
    complain("message %llu is marked, and comes for the first time", (unsigned long long)id);
  uint64_t *last = &book->newest[actor()][PRODUCED_BY(id) % (MESSAGES / 8)];
  uint64_t *newest_of_all = &book->newest[NOBODY][PRODUCED_BY(id) % (MESSAGES / 8)];
  if ((r->marks & SB_MARK_REDELIVERED) == 0) {
    if (id < *last && !book->any_order && !scheduler_somebody_died())
      complain("message %llu comes after %llu", (unsigned long long)id, (unsigned long long)*last);
    *last = id;
    if (id > *newest_of_all) *newest_of_all = id; /* what is left in the end was overtaken if it is older */
  }
  f->delivered++;
  f->acked = f->acked || settled;
  return id;
}

static uint64_t id_in_body(const char *record, int64_t length) {
  uint64_t id;
  memcpy(&id, body_of(record, length), sizeof id);
  return id;
}

/* A message that went to both queues is another one in the other queue. */
static uint64_t id_in(const sb_queue *q, const char *record, int64_t length) {
  uint64_t id = id_in_body(record, length);
  bool of_other = q->slot == players[KEEPER].other->slot && id < IN_OTHER && book->fates[id].shared;
  return of_other ? id + IN_OTHER : id;
}

/* What a call gave from this queue: a record of that length, or none. */
static uint64_t given(const sb_queue *q, const char *record, int64_t n, bool settled) {
  scheduler_note(n >= 0             ? settled ? "took" : "got"
                 : n == -SB_DELETED ? "deleted"
                 : n == -SB_CLOSED  ? "closed"
                                    : "nothing");
  return n < 0 ? 0 : delivered(id_in(q, record, n), record, settled);
}

uint64_t get_message(sb_queue *q, char *record) { return given(q, record, sb_queue_get(q, record, false), false); }

uint64_t get_and_ack(sb_queue *q) {
  char *record = me()->second;
  unsigned a = actor();
  book->acks_at_once[a] = true;
  int64_t n = sb_queue_get(q, record, true);
  book->acks_at_once[a] = false;
  return given(q, record, n, true);
}

uint64_t wait_for_message(sb_queue *q, char *record) {
  sb_wait wait = {UINT64_MAX, UINT64_MAX, 0, 0};
  return given(q, record, sb_queue_get_wait(q, record, false, &wait), false);
}

uint64_t next_message(char *record) {
  return given(me()->q, record, sb_consumer_next(me()->consumer, record, false), false);
}

static fate *settling(const sb_queue *q, const char *record) {
  const sb_record *r = (const sb_record *)(const void *)record;
  fate *f = fate_of(id_in(
      q, record, (int64_t)(sizeof *r + r->exchange_length + r->key_length + r->properties_length + r->body_length)));
  f->acking = (uint8_t)(actor() + 1);
  return f;
}

void ack(sb_queue *q, char *record) {
  fate *f = settling(q, record);
  sb_status status = sb_queue_settle(q, record, SB_ACK);
  f->acking = 0;
  if (status == SB_OK && f->acked) complain("a message is acknowledged twice");
  if (status == SB_OK) f->acked = true;
  scheduler_note(status == SB_OK ? "acked" : "not-acked");
}
void nack(sb_queue *q, char *record) {
  scheduler_note(sb_queue_settle(q, record, SB_REQUEUE) == SB_OK ? "returned" : "not-returned");
}
void ack_next(char *record) {
  fate *f = settling(me()->q, record);
  sb_status status = sb_consumer_settle(me()->consumer, record, SB_ACK);
  f->acking = 0;
  if (status == SB_OK) f->acked = true;
  scheduler_note(status == SB_OK ? "acked" : "not-acked");
}

/* The IO thread fills a row. */
bool __real_sb_consumer_turn(sb_consumer *k);
bool __wrap_sb_consumer_turn(sb_consumer *k);
bool __wrap_sb_consumer_turn(sb_consumer *k) {
  uint64_t before = k->row_end;
  bool more = __real_sb_consumer_turn(k);
  if (k->row_end != before) scheduler_note("filled");
  return more;
}
/* The thread that pulls for a channel does. */
void __real_sb_deliveries_pulled(sb_deliveries *d, uint64_t token, sb_queue *q, sb_member *of);
void __wrap_sb_deliveries_pulled(sb_deliveries *d, uint64_t token, sb_queue *q, sb_member *of);
void __wrap_sb_deliveries_pulled(sb_deliveries *d, uint64_t token, sb_queue *q, sb_member *of) {
  __real_sb_deliveries_pulled(d, token, q, of);
  scheduler_note("pulled");
}

uint64_t token_of_record(const char *record) {
  return ((const sb_record *)(const void *)record)->tag & ((UINT64_C(1) << 40) - 1);
}

sb_status commit_message(uint64_t id, uint64_t bytes, const sb_settlement *ends, uint32_t count) {
  uint64_t body[LONGEST_BODY / sizeof id];
  sb_queue *targets[2] = {me()->q, me()->other};
  sb_publication publication = {(const char *)body, bytes, NULL, targets, 2};
  uint32_t failed, target;
  for (size_t i = 0; i < bytes / sizeof id; i++) body[i] = id;
  book->fates[id].shared = true;
  note_put(id, false);
  note_put(id + IN_OTHER, false);
  sb_status status = sb_transaction_commit(me()->t.c, &publication, 1, ends, count, &failed, &target);
  note_put(id, status == SB_OK);
  note_put(id + IN_OTHER, status == SB_OK);
  scheduler_note(status == SB_OK ? "committed" : status == SB_FULL ? "full" : "not-committed");
  return status;
}

sb_status commit_with_ack(uint64_t id, char *record) {
  fate *f = settling(me()->q, record);
  sb_settlement end = {me()->q, token_of_record(record), SB_ACK};
  book->fates[id].instead_of = (uint8_t)(f - book->fates);
  sb_status status = commit_message(id, 64, &end, 1);
  f->acking = 0;
  if (status == SB_OK) f->acked = true;
  if (status == SB_OK) scheduler_note("acked");
  return status;
}

uint64_t next_delivery(sb_channel *channel, char *record) {
  return given(me()->q, record, sb_channel_next(channel, record), false);
}
uint64_t wait_for_delivery(sb_channel *channel, char *record) {
  sb_wait wait = {UINT64_MAX, UINT64_MAX, 0, 0};
  return given(me()->q, record, sb_channel_get_wait(channel, me()->q, record, false, &wait), false);
}
void ack_delivery(sb_channel *channel, char *record) {
  fate *f = settling(me()->q, record);
  sb_status status = sb_channel_settle(channel, ((const sb_record *)(const void *)record)->tag, false, SB_ACK);
  f->acking = 0;
  if (status == SB_OK && f->acked) complain("a delivery is acknowledged twice");
  if (status == SB_OK) f->acked = true;
  scheduler_note(status == SB_OK ? "acked" : "not-acked");
}

/* ---- afterwards ---- */

void have_tick(void) {
  sb_housekeeper_tick(me()->t.c, me()->q->slot, ticked);
  scheduler_note(ticked->quiet_ticks == 2 ? "reconciled" : "ticked");
}

void come_to_rest(void) {
  act_as(KEEPER);
  do {
    have_tick();
  } while (ticked->quiet_ticks != 1);
}

void have_ticks(void) {
  sb_queue_memory memory = {0};
  for (int i = 0; i < TICKS; i++) {
    sb_housekeeper_tick(players[KEEPER].t.c, players[KEEPER].q->slot, &memory);
    (void)scheduler_go_on();
  }
}

void reap(void) {
  for (unsigned i = 0; i < KEEPER; i++) {
    if (dead[i] && sb_housekeeper_reap_one(me()->t.c, players[i].t.b->process)) scheduler_note("reaped");
  }
}

static bool somebody_sleeps(void) {
  for (unsigned i = 0; i < ACTORS; i++) {
    if (scheduler_state(i) == ACTOR_ASLEEP) return true;
  }
  return false;
}

/* The reaper and the housekeeper come by. A sleep that is too long only because of a death ends by its own bound. */
static void clear_up(void) {
  player *keeper = &players[KEEPER];
  if (!scheduler_somebody_died()) return;
  while (sb_housekeeper_reap(keeper->t.c) > 0) {
  }
  (void)scheduler_go_on();
  (void)sb_housekeeper_sweep(keeper->t.c, UINT64_MAX); /* who has the topology lock next finishes what was begun */
  have_ticks();
  for (int i = 0; i < LONGEST_SLEEPS && somebody_sleeps(); i++) (void)scheduler_time_passes();
}

static void check_memory(const char *when) {
  const char *found = findings(players[KEEPER].t.c);
  if (found != NULL) complain("%s, %s", when, found);
}

static uint64_t drain(sb_queue *q, bool *there) {
  uint64_t count = 0;
  int64_t n;
  while ((n = sb_queue_get(q, drained, true)) >= 0) {
    uint64_t id = id_in(q, drained, n);
    if (id < MESSAGES && there[id]) complain("message %llu is there twice", (unsigned long long)id);
    if (id < MESSAGES) there[id] = true;
    (void)delivered(id, drained, false);
    count++;
    const sb_record *r = (const sb_record *)(const void *)drained;
    if (r->body_address != 0) (void)sb_view_end(players[KEEPER].t.c, r->tag);
  }
  return count;
}

/* What went to both queues was seen in both or in none, and what was acknowledged with it is gone or came back. */
static void expect_whole_commits(const bool *there) {
  for (unsigned id = 1; id < IN_OTHER; id++) {
    const fate *f = &book->fates[id], *in_other = &book->fates[id + IN_OTHER], *old = &book->fates[f->instead_of];
    bool seen = f->delivered > 0, requeued = there[f->instead_of] || old->delivered > 1;
    if (!f->shared || f->may_go) continue;
    if (seen != (in_other->delivered > 0)) complain("message %u is in one of its queues only", id);
    if (f->instead_of != 0 && seen == requeued)
      complain("message %u and %u: one of them must be there", id, f->instead_of);
  }
}
/* How many messages the queue says it gave up: evicted, purged, expired. UINT64_MAX: it is deleted. */
static uint64_t given_up(void) {
  sb_queue_facts f;
  if (sb_queue_describe(players[KEEPER].t.c, players[KEEPER].q->slot, &f) != SB_OK ||
      !sb_queue_is_open(players[KEEPER].q))
    return UINT64_MAX;
  return f.killed + f.replaced + f.dropped + f.expired;
}

static void draw_up(const bool *there) {
  unsigned gone = 0, may_be_gone = 0;
  uint64_t away = 0, explained = given_up();
  for (unsigned i = 0; i < ACTORS; i++) may_be_gone += book->acks_at_once[i];
  for (unsigned id = 1; id < MESSAGES; id++) {
    const fate *f = &book->fates[id];
    bool expected = f->accepted && !f->acked && !f->may_go && f->acking == 0;
    gone += expected && !there[id];
    away += f->accepted && !f->acked && !there[id];
    if (there[id] && f->acked && !f->may_go) complain("message %u was acknowledged, and is there", id);
  }
  if (gone > may_be_gone) complain("%u messages are lost", gone);
  if (may_be_gone == 0) expect_whole_commits(there);
  if (!scheduler_somebody_died() && explained != UINT64_MAX && away != explained)
    complain("%llu messages are gone, and the queue gave up %llu", (unsigned long long)away,
             (unsigned long long)explained);
}

uint64_t ready_messages(void) {
  player *keeper = &players[KEEPER];
  bool before = sb_test_aside;
  sb_test_aside = true; /* it only reads */
  uint64_t n = sb_queue_count_ready(keeper->t.b, keeper->q->shm);
  sb_test_aside = before;
  return n;
}

/* Everybody has ended, or sleeps: whatever is mended now was left so, and a death alone explains that. */
static void expect_no_repairs(void) {
  sb_broker *b = players[KEEPER].t.b;
  uint64_t before = repairs_of(b);
  if (scheduler_somebody_died() || !sb_queue_is_open(players[KEEPER].q)) return;
  have_ticks();
  if (repairs_of(b) != before) complain("upkeep mends what somebody left who lives");
}

void cast_settle(void (*verify)(void), int64_t bound, bool idle) {
  player *keeper = &players[KEEPER];
  bool there[MESSAGES] = {false};
  clear_up();
  if (verify != NULL) verify();
  uint64_t ready = ready_messages();
  if (ready > 0 && !idle && somebody_sleeps()) complain("somebody sleeps beside %u messages", (unsigned)ready);
  bool requeued = scheduler_somebody_died() &&
                  keeper->q->shm->settings[SB_SETTING_RING_SIZE] < 0; /* to a queue that is full: it stays */
  if (bound >= 0 && !requeued && ready > (uint64_t)bound)
    complain("%u messages are ready, not %d", (unsigned)ready, (int)bound);
  check_memory("when nobody acts");
  expect_no_repairs();
  for (unsigned i = 0; i < KEEPER; i++) {
    if (!dead[i]) (void)sb_connection_close(players[i].t.c);
  }
  (void)drain(keeper->q, there);
  (void)drain(keeper->other, there);
  draw_up(there);
  check_memory("when all is taken");
}
