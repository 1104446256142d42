// SPDX-License-Identifier: Apache-2.0
#include "sb_grace.h"

#include "sb_wait.h"

#define LOOKS 2000u /* the most reads of a gate in search of a gap between two calls: they take 0.1 ms in all */
#define TENANTS 8u  /* the most attempts to ask an id whose connection changes each time */

static void wait_for_a_gap(const sb_gate_shm *gate) {
  for (unsigned n = 0; n < LOOKS && SB_LOAD(&gate->inside, SB_RELAXED) != 0; n++) sb_pause(); /* relaxed: a hint */
}

/* Asks the connection `id`. True: a call of that connection may be inside and may know a drained slot, so the drainer
 * must wait for this connection. */
static bool ask(sb_connection *c, unsigned id) {
  sb_broker *b = c->b;
  for (unsigned tenants = 0; tenants < TENANTS; tenants++) {
    uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE), same = word;
    if (sb_conn_state(word) != SB_CONN_LIVE) {
      if (SB_CAS(&b->connections[id], &same, word, SB_SEQ_CST)) return false; /* P21 release: writes the same word */
      continue;
    }
    sb_connection_shm *shm = sb_connection_record(b, id);
    if (shm == NULL) {
      return true; /* it is being opened, or closed */
    }
    wait_for_a_gap(&shm->gate);
    bool inside = sb_gate_ask(&shm->gate);
    if (SB_LOAD(&b->connections[id], SB_ACQUIRE) == word) {
      return inside;
    }
  }
  return true;
}

static void ask_all(sb_connection *c) {
  sb_gate_renew(c); /* c, the drainer, is not asked below: here it drops the pages that its own handles remember */
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    bool waits = id != c->id && ask(c, id);
    c->grace->waits[id] = waits;
    c->grace->waiting += waits;
  }
}

static void ask_again(sb_connection *c) {
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    if (c->grace->waits[id] && !ask(c, id)) {
      c->grace->waits[id] = false;
      c->grace->waiting--;
    }
  }
}

static bool begin_one(sb_connection *c, uint32_t chunk) {
  sb_grace *g = c->grace;
  uint64_t token;
  if (sb_holding_take(c, &token) != SB_OK) {
    return false;
  }
  if (!sb_drained_begin(c, token, chunk)) {
    sb_holding_give(c, token);
    return false;
  }
  g->drained[g->count].chunk = chunk;
  g->drained[g->count++].token = token;
  return true;
}

/* Begins to drain chunks of which no slot was used since the last look. A chunk that was used since then is not
 * drained, even if all its slots are free: its class would soon open a new chunk instead. */
static void begin(sb_connection *c) {
  sb_grace *g = c->grace;
  uint32_t n = sb_chunk_count(c->b);
  for (uint32_t chunk = 1; chunk < n && g->count < SB_GRACE_CHUNKS; chunk++) {
    uint64_t used, before = g->used[chunk];
    g->used[chunk] = sb_drained_may_begin(c->b, chunk, &used) ? used + 1 : 0;
    if (g->used[chunk] != 0 && g->used[chunk] == before && begin_one(c, chunk)) g->used[chunk] = 0;
  }
}

static void end_all(sb_connection *c) {
  sb_grace *g = c->grace;
  for (; g->count > 0; g->count--) {
    bool freed = sb_drained_end(c, g->drained[g->count - 1].chunk);
    sb_holding_give(c, g->drained[g->count - 1].token);
    if (freed) sb_notify_room_made(c, NULL, 0);
  }
}

bool sb_grace_step(sb_connection *c) {
  sb_grace *g = c->grace;
  if (g->count > 0) {
    ask_again(c);
  } else {
    g->waiting = 0;
    begin(c);
    if (g->count > 0) ask_all(c);
  }
  SB_CRASHPOINT("grace.asked");
  if (g->waiting == 0) end_all(c);
  return g->count > 0;
}

void sb_grace_give_up(sb_connection *c) {
  sb_grace *g = c->grace;
  for (; g != NULL && g->count > 0; g->count--) {
    sb_drained_give_up(c, g->drained[g->count - 1].chunk);
    sb_holding_give(c, g->drained[g->count - 1].token);
  }
}
