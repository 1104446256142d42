// SPDX-License-Identifier: Apache-2.0
#include "sb_holdings.h"

#include <string.h>

#include "sb_wait.h"

static uint64_t token_of(const sb_broker *b, const sb_holding_shm *h) {
  return (uint64_t)((const uint8_t *)h - b->arena) / sizeof(sb_holding_shm);
}

static sb_status add_chunk(sb_connection *c) {
  sb_broker *b = c->b;
  uint64_t token = c->last == NULL ? SB_TOKEN_BOOT : token_of(b, &c->last->entries[0]);
  uint32_t slot;
  uint64_t gen;
  unsigned use = c->use;
  if (use == SB_USE_DRAIN && c->tables >= SB_TABLES_TO_DRAIN) c->use = SB_USE_BOOKS;
  sb_status status = sb_slab_alloc(c, sb_class_of_kind(b, SB_KIND_HOLDINGS), token, &slot, &gen);
  c->use = use;
  if (status != SB_OK) {
    return status;
  }
  c->tables++;
  sb_holdings_shm *fresh = sb_slot_at(b, slot);
  SB_STORE(&fresh->next, 0u, SB_RELAXED);
  SB_STORE(&fresh->used, SB_HOLDINGS_FIRST, SB_RELAXED);
  SB_STORE(&fresh->entries[0].what, 0, SB_RELAXED);
  SB_CRASHPOINT("connection.holdings.allocated");
  SB_STORE(c->last == NULL ? &c->shm->holdings : &c->last->next, slot, SB_RELEASE);
  c->last = fresh;
  return SB_OK;
}

sb_status sb_holding_take_unused(sb_connection *c, uint64_t *token) {
  uint32_t used = SB_LOAD(&c->last->used, SB_RELAXED);
  if (used >= SB_HOLDINGS_PER_CHUNK) {
    sb_status status = add_chunk(c);
    if (status != SB_OK) {
      return status;
    }
    used = SB_HOLDINGS_FIRST;
  }
  sb_holding_shm *h = &c->last->entries[used];
  SB_STORE(&h->what, SB_HOLD_NONE, SB_RELAXED);
  SB_STORE(&c->last->used, used + 1, SB_RELEASE);
  *token = token_of(c->b, h);
  return SB_OK;
}

static sb_status take_id(sb_connection *c) {
  sb_broker *b = c->b;
  for (uint32_t k = 0; k < SB_MAX_CONNECTIONS; k++) { /* round robin: an id is used again as late as possible */
    uint32_t id = SB_ADD(&b->header->next_connection, 1u, SB_RELAXED) % SB_MAX_CONNECTIONS;
    uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
    if (id != 0 && sb_conn_state(word) == SB_CONN_FREE &&
        SB_CAS(&b->connections[id], &word, sb_conn_word(SB_CONN_LIVE, b->process, 0, sb_conn_epoch(word) + 1),
               SB_ACQ_REL)) {
      c->id = id;
      return SB_OK;
    }
  }
  return SB_LIMIT;
}

sb_status sb_holdings_open(sb_broker *b, sb_connection *c, const char *name, uint32_t name_length) {
  memset(c, 0, sizeof *c);
  c->b = b;
  c->gate = &c->own_gate;
  /* Stands in for the record until the record exists. If the process dies before that, the `claims` in `scratch` are
   * lost, and no reaper sets the hints again that they name. */
  sb_connection_shm scratch;
  memset(&scratch, 0, sizeof scratch);
  c->shm = &scratch;
  sb_status status = take_id(c);
  if (status != SB_OK) {
    c->shm = NULL;
    return status;
  }
  SB_CRASHPOINT("connection.id.taken");
  uint32_t record;
  uint64_t gen;
  status = sb_slab_alloc(c, sb_class_of_kind(b, SB_KIND_CONNECTION), SB_TOKEN_BOOT, &record, &gen);
  uint64_t word = SB_LOAD(&b->connections[c->id], SB_RELAXED);
  if (status != SB_OK) {
    SB_STORE(&b->connections[c->id], sb_conn_word(SB_CONN_FREE, 0, 0, sb_conn_epoch(word)), SB_RELEASE);
    SB_CRASHPOINT("connection.id.freed");
    c->shm = NULL; /* so that the caller releases nothing: another connection may have the id already */
    return status;
  }
  c->record = record;
  sb_connection_shm *shm = sb_slot_at(b, c->record);
  memset(shm, 0, sizeof *shm);
  SB_STORE(&shm->id, c->id, SB_RELAXED);
  SB_STORE(&shm->process, b->process, SB_RELAXED);
  SB_STORE(&shm->created_ns, sb_wall_ns(), SB_RELAXED);
  memcpy(shm->name, name, name_length < SB_NAME_MAX ? name_length : SB_NAME_MAX);
  memcpy((void *)shm->claims, (const void *)scratch.claims, sizeof shm->claims);
  c->shm = shm;
  c->gate = &shm->gate;
  SB_STORE(&b->connections[c->id], sb_conn_word(SB_CONN_LIVE, b->process, c->record, sb_conn_epoch(word)), SB_RELEASE);
  SB_CRASHPOINT("connection.record.linked");
  status = add_chunk(c);
  return status == SB_OK ? sb_holding_take(c, &c->page_token) : status;
}

sb_status sb_holding_object(sb_connection *c, unsigned kind, uint64_t *token, uint32_t *slot, uint64_t *gen) {
  sb_status status = sb_holding_take(c, token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_slab_alloc(c, sb_class_of_kind(c->b, kind), *token, slot, gen);
  if (status != SB_OK) {
    sb_holding_give(c, *token);
  }
  return status;
}

void *sb_holding_owned(sb_broker *b, uint32_t slot, unsigned kind, unsigned id) {
  void *object = sb_slab_object(b, slot, kind);
  uint64_t h = object != NULL ? SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE) : 0;
  return object != NULL && sb_slot_state(h) == SB_SLOT_ALLOC && sb_slot_owner(h) == id ? object : NULL;
}

sb_connection_shm *sb_connection_record(sb_broker *b, unsigned id) {
  if (id == 0 || id >= SB_MAX_CONNECTIONS) {
    return NULL;
  }
  uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
  uint32_t slot = sb_conn_slot(word);
  return sb_conn_state(word) == SB_CONN_LIVE ? sb_holding_owned(b, slot, SB_KIND_CONNECTION, id) : NULL;
}

static sb_holdings_shm *chunk_in(sb_holdings_walk *w, const sb_half *link) {
  w->slot = SB_LOAD(link, SB_ACQUIRE);
  return sb_chain_bites(&w->chain, w->slot) ? NULL : sb_holding_owned(w->b, w->slot, SB_KIND_HOLDINGS, w->id);
}

sb_holdings_shm *sb_holdings_first(sb_holdings_walk *w, sb_broker *b, const sb_connection_shm *shm, unsigned id) {
  *w = (sb_holdings_walk){.b = b, .id = id};
  return chunk_in(w, &shm->holdings);
}

sb_holdings_shm *sb_holdings_next(sb_holdings_walk *w, const sb_holdings_shm *chunk) {
  return chunk_in(w, &chunk->next);
}
