// SPDX-License-Identifier: Apache-2.0
/* What all calls share that make a message: a slot for it, and what stands in front of its body. */
#include <string.h>

#include "sb_api.h"

sb_status sb_api_claim_slot(sb_connection *c, uint64_t need, sb_reservation *r) {
  sb_status status = sb_holding_take(c, &r->token);
  if (status == SB_OK) {
    unsigned cls = sb_class_for(c->b, need);
    status = cls != 0 ? sb_slab_alloc(c, cls, r->token, &r->slot, &r->gen)
                      : sb_slab_alloc_run(c, need, r->token, &r->slot, &r->gen);
    if (status != SB_OK) sb_holding_give(c, r->token);
  }
  return status;
}

void sb_api_give_slot(sb_connection *c, const sb_reservation *r) {
  (void)sb_slab_free_gen(c->b, r->slot, r->gen);
  sb_holding_give(c, r->token);
}

void sb_api_fill(sb_connection *c, sb_reservation *r, uint64_t length, const sb_put_options *o, uint64_t ttl_ns,
                 uint64_t more) {
  sb_message_shm *m = sb_slot_at(c->b, r->slot);
  uint64_t now = ttl_ns != 0 || o->delay_ns != 0 ? sb_now_ns() : 0, offset = sb_api_body_offset(length, o, more);
  *m = (sb_message_shm){.body_length = length,
                        .body_offset = (uint32_t)offset,
                        .properties_length = o->properties_length,
                        .expires_ns = ttl_ns != 0 ? now + ttl_ns : 0,
                        .due_ns = o->delay_ns != 0 ? now + o->delay_ns : 0,
                        .timestamp_ns = sb_wall_ns(),
                        .key_length = o->key_length,
                        .publisher = (uint16_t)c->id,
                        .priority = o->priority,
                        .exchange_length = o->exchange_length};
  uint8_t *at = (uint8_t *)(m + 1);
  if (o->exchange_length != 0) at = (uint8_t *)memcpy(at, o->exchange, o->exchange_length) + o->exchange_length;
  if (o->key_length != 0) memcpy(at, o->key, o->key_length);
  if (o->properties_length != 0) memcpy(at + o->key_length, o->properties, o->properties_length);
  r->size = length;
  r->body = (uint8_t *)m + offset;
}

void sb_api_ring_housekeeper(sb_connection *c, const sb_message_shm *m) {
  uint64_t due = m->due_ns != 0 && (m->expires_ns == 0 || m->due_ns < m->expires_ns) ? m->due_ns : m->expires_ns;
  if (due != 0 && due < SB_LOAD(&c->b->header->next_due_ns, SB_SEQ_CST)) sb_notify_housekeeper(c->b);
}
