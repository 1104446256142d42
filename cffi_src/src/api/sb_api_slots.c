// SPDX-License-Identifier: Apache-2.0
/* Helpers of the calls that create a message: claim its slot, and write what precedes its body. */
#include <string.h>

#include "sb_api.h"

#define CROWDED_NS UINT64_C(20000000)
#define NOTE_BYTES 4096u /* least slot length of a note from the reserve: so short notes share a class and its chunks */

/* Claims a slot for a note (a message of an internal queue of the broker). Tries in this order: to allocate as for a
 * plain body; to take a free slot of the class or of a larger one; to allocate with the memory of the reserve. */
static __attribute__((noinline, cold)) sb_status claim_for_note(sb_connection *c, unsigned cls, sb_reservation *r) {
  c->use = SB_USE_PLAIN;
  sb_status status = sb_slab_alloc(c, cls, r->token, &r->slot, &r->gen);
  c->use = SB_USE_BOOKS;
  for (unsigned longer = cls; status == SB_NO_MEMORY && longer <= SB_MESSAGE_CLASSES; longer++) {
    if (sb_slab_alloc_spare(c, longer, false, r->token, &r->slot, &r->gen)) return SB_OK;
  }
  unsigned common = sb_class_for(c->b, NOTE_BYTES);
  return status == SB_NO_MEMORY ? sb_slab_alloc(c, cls < common ? common : cls, r->token, &r->slot, &r->gen) : status;
}

/* For a nearly full broker: claims a slot where hints show free ones (sb_scatter.h). A moment ago no chunk could be
 * opened or drained, so a search of all chunks would be in vain. False: no slot was claimed; the caller allocates. */
static __attribute__((noinline, cold)) bool claim_by_hints(sb_connection *c, unsigned cls, sb_reservation *r) {
  if (sb_now_ns() >= c->crowded_until_ns) {
    c->crowded_until_ns = 0;
    return false;
  }
  return cls != 0 && c->use != SB_USE_BOOKS && sb_scatter_by_hints(c, cls, r->token, &r->slot, &r->gen);
}

sb_status sb_api_claim_slot(sb_connection *c, uint64_t need, sb_reservation *r) {
  sb_status status = sb_holding_take(c, &r->token);
  r->scattered = false;
  if (status == SB_OK) {
    unsigned cls = sb_class_for(c->b, need);
    if (c->crowded_until_ns != 0 && claim_by_hints(c, cls, r)) {
      return SB_OK;
    }
    status = cls == 0                 ? sb_slab_alloc_run(c, need, r->token, &r->slot, &r->gen)
             : c->use == SB_USE_BOOKS ? claim_for_note(c, cls, r)
                                      : sb_slab_alloc(c, cls, r->token, &r->slot, &r->gen);
    if (status != SB_OK) sb_holding_give(c, r->token);
  }
  return status;
}

/* The number of bytes in the head of a scattered message: message header, block (`more` bytes), viewers' words. */
static uint64_t head_bytes(uint64_t length, uint64_t more) {
  return sizeof(sb_message_shm) + more + (length > SB_INLINE_BODY ? SB_VIEWERS_BYTES : 0);
}

sb_status sb_api_claim_elsewhere(sb_connection *c, sb_status status, uint64_t length, const sb_put_options *o,
                                 uint64_t more, sb_reservation *r) {
  unsigned cls = sb_class_for(c->b, sb_api_body_offset(length, o, more) + length);
  if (status != SB_NO_MEMORY || sb_holding_take(c, &r->token) != SB_OK) {
    return status;
  }
  if (cls != 0 && sb_scatter_larger(c, cls, r->token, &r->slot, &r->gen)) {
    c->crowded_until_ns = sb_now_ns() + CROWDED_NS;
    return SB_OK;
  }
  uint64_t names = sb_api_prefix_bytes(o) - sizeof(sb_message_shm);
  status = sb_scatter_alloc(c, head_bytes(length, more), names + length, r->token, &r->slot, &r->gen);
  r->scattered = status == SB_OK;
  if (status != SB_OK) sb_holding_give(c, r->token);
  return status;
}

bool sb_api_write_parts(sb_connection *c, const sb_reservation *r, const char *body) {
  return sb_parts_write(c->b, r->slot, sb_api_names(sb_slot_at(c->b, r->slot)), body, r->size);
}

void sb_api_give_slot(sb_connection *c, const sb_reservation *r) {
  (void)sb_slab_free_gen(c->b, r->slot, r->gen);
  sb_holding_give(c, r->token);
}

/* Writes exchange, key and properties into the parts. */
static void fill_names(sb_connection *c, const sb_reservation *r, const sb_put_options *o) {
  uint64_t key = o->exchange_length, properties = key + o->key_length;
  (void)sb_parts_write(c->b, r->slot, 0, o->exchange, o->exchange_length);
  (void)sb_parts_write(c->b, r->slot, key, o->key, o->key_length);
  (void)sb_parts_write(c->b, r->slot, properties, o->properties, o->properties_length);
}

SB_HOT void fill_header(const sb_connection *c, sb_message_shm *m, uint64_t length, uint64_t offset,
                        const sb_put_options *o, uint64_t ttl_ns) {
  bool scheduled = o->delay_ns != 0 || o->dead != 0;
  uint64_t now = ttl_ns != 0 || scheduled ? sb_now_ns() : 0;
  *m = (sb_message_shm){.body_length = length,
                        .body_offset = (uint32_t)offset,
                        .properties_length = o->properties_length,
                        .expires_ns = ttl_ns != 0 ? now + ttl_ns : 0,
                        .due_ns = scheduled ? now + o->delay_ns : 0,
                        .timestamp_ns = sb_wall_ns(),
                        .flags = o->dead != 0 ? SB_MESSAGE_REJECTED : 0,
                        .key_length = o->key_length,
                        .publisher = (uint16_t)c->id,
                        .priority = o->priority,
                        .exchange_length = o->exchange_length};
  if (SB_LOAD(&c->b->header->grouped, SB_RELAXED) != 0) sb_groups_describe(m, o->properties, o->properties_length);
}

SB_COLD void fill_scattered(sb_connection *c, sb_reservation *r, uint64_t length, const sb_put_options *o,
                            uint64_t ttl_ns, uint64_t more) {
  sb_message_shm *m = sb_slot_at(c->b, r->slot);
  fill_header(c, m, length, head_bytes(length, more), o, ttl_ns);
  m->flags |= SB_MESSAGE_IN_PARTS;
  r->size = length;
  r->body = NULL;
  fill_names(c, r, o);
}

void sb_api_fill(sb_connection *c, sb_reservation *r, uint64_t length, const sb_put_options *o, uint64_t ttl_ns,
                 uint64_t more) {
  if (r->scattered) {
    fill_scattered(c, r, length, o, ttl_ns, more);
    return;
  }
  sb_message_shm *m = sb_slot_at(c->b, r->slot);
  uint64_t offset = sb_api_body_offset(length, o, more);
  fill_header(c, m, length, offset, o, ttl_ns);
  r->size = length;
  uint8_t *at = (uint8_t *)(m + 1);
  if (o->exchange_length != 0) at = (uint8_t *)memcpy(at, o->exchange, o->exchange_length) + o->exchange_length;
  if (o->key_length != 0) memcpy(at, o->key, o->key_length);
  if (o->properties_length != 0) memcpy(at + o->key_length, o->properties, o->properties_length);
  r->body = (uint8_t *)m + offset;
}

void sb_api_ring_housekeeper(sb_connection *c, const sb_message_shm *m) {
  uint64_t due = m->due_ns != 0 && (m->expires_ns == 0 || m->due_ns < m->expires_ns) ? m->due_ns : m->expires_ns;
  if (due != 0 && due < SB_LOAD(&c->b->header->next_due_ns, SB_SEQ_CST)) sb_target_ring_housekeeper(c->b);
}
