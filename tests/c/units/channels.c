// SPDX-License-Identifier: Apache-2.0
#include "channels.h"

#include <stdlib.h>
#include <string.h>

#include "sb_slab.h"
#include "sb_wait.h"
#include "surroundings.h"

#define CHUNKS_IN_USE 24u

test_broker stranger;
sb_queue *first_queue, *second_queue, *strangers_queue;
sb_channel *ch;
char last_record[BUFFER];
const sb_target_kind NO_CHANNEL = {.turn = NULL};

static uint64_t last_id, free_holding;
static sb_deliveries places;

sb_channel *open_channel(uint64_t user) {
  sb_status status;
  sb_channel *new = sb_channel_open(t.c, user, &status);
  if (new == NULL) die("sb_channel_open", (int)status);
  return new;
}

void begin_channels(void) {
  const sb_settings free_settings = FREELY;
  grow_to(CHUNKS_IN_USE - 1);
  if (declare(&t, "q", free_settings) != SB_OK || declare(&t, "p", free_settings) != SB_OK) die("declare", 0);
  stranger = t;
  stranger.c = connect_to(&t);
  first_queue = open_queue(&t, "q");
  second_queue = open_queue(&t, "p");
  strangers_queue = open_queue(&stranger, "q");
  ch = open_channel(1);
}

sb_member *join_channel(sb_channel *of, sb_queue *at, uint32_t prefetch, int32_t priority, uint32_t flags) {
  uint32_t number = 0;
  sb_status status = sb_channel_consume(of, at, prefetch, priority, flags, &number);
  if (status != SB_OK) die("sb_channel_consume", (int)status);
  return of->members[number];
}

void stranger_puts(const sb_queue *at, unsigned n) {
  static sb_queue *second;
  if (second == NULL) second = open_queue(&stranger, "p");
  sb_queue *by = at == second_queue ? second : strangers_queue;
  for (unsigned i = 0; i < n; i++) {
    if (put(&stranger, by, ++last_id) != SB_OK) die("put", 0);
  }
}

uint64_t id_of_record(int64_t length) {
  const sb_record *r = (const sb_record *)(const void *)last_record;
  return length < 0 ? 0 : id_at(body_of(last_record, length), r->body_length);
}
uint64_t next_of(sb_channel *of) { return id_of_record(sb_channel_next(of, last_record)); }

void end_delivery(sb_channel *of, uint64_t tag) {
  sb_unacked *h = sb_deliveries_find(&of->deliveries, tag);
  if (h == NULL) die("finding a delivery", (int)tag);
  sb_channel_drop(of, h);
}
void give_and_drop(sb_channel *of, unsigned n) {
  for (unsigned i = 0; i < n; i++) end_delivery(of, sb_channel_give(of));
}

sb_node_shm *member_node(const sb_member *m) { return sb_subscription_node(&m->s); }
unsigned member_state(const sb_member *m) { return sb_node_state(SB_LOAD(&member_node(m)->word, SB_RELAXED)); }
void expect_member(const sb_member *m, const char *what, uint32_t held, uint32_t waiting, bool willing) {
  expect(m->held == held, "%s: it holds %u, not %u", what, m->held, held);
  expect(m->waiting == waiting, "%s: %u wait, not %u", what, m->waiting, waiting);
  expect(m->willing == willing, "%s: it is %s", what, willing ? "not willing" : "willing");
  expect(SB_LOAD(&member_node(m)->unacked, SB_RELAXED) == held, "%s: its node says %u", what, member_node(m)->unacked);
}

static sb_half *wake_of(uint32_t node) { return &((sb_node_shm *)sb_slot_at(t.b, node))->wake; }
void arm_wake(uint32_t node) { SB_STORE(wake_of(node), SB_WAKE_ARMED, SB_RELAXED); }
bool was_rung(uint32_t node) { return SB_LOAD(wake_of(node), SB_RELAXED) != SB_WAKE_ARMED; }

void put_behind(sb_channel *of, sb_member *m) {
  sb_member **members = calloc(of->room + 1, sizeof *members);
  if (members == NULL) die("calloc", 0);
  memcpy((void *)members, (const void *)of->members, of->room * sizeof *members);
  members[of->room] = m;
  free((void *)of->members);
  of->members = members;
}

void add_no_channel(sb_member *m) {
  static sb_channel none;
  static sb_member *members[1];
  members[0] = m;
  none = (sb_channel){.target = {.c = t.c, .kind = &NO_CHANNEL}, .members = members, .room = 1, .member_count = 1};
  sb_target_add(&none.target);
}

void leave_no_holding(bool may_grow) {
  leave_none_of(SB_KIND_HOLDINGS, may_grow);
  t.c->free_holding = 0;
  SB_STORE(&t.c->last->used, SB_HOLDINGS_PER_CHUNK, SB_RELAXED);
}
void spoil_holdings(void) {
  free_holding = t.c->free_holding;
  t.c->free_holding = t.b->arena_bytes / sizeof(sb_holding_shm);
}
void mend_holdings(void) { t.c->free_holding = free_holding; }

void leave_no_place(sb_channel *of) {
  places = of->deliveries;
  of->deliveries.free = 0;
  of->deliveries.room = 1u << 30;
}
void mend_places(sb_channel *of) { of->deliveries = places; }
