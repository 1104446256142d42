// SPDX-License-Identifier: Apache-2.0
/* Public calls: read in place, or copy, the body of a message that the caller does not hold but knows the place of. */
#include "sb_api.h"
#include "sb_reader.h"

/* Stores the address of a body. The caller keeps its slot from being freed. False: the slot has no such message. */
static bool address_of(sb_broker *b, const sb_place *p, uint64_t *address) {
  sb_taken t = {.slot = p->slot, .message = sb_slot_at(b, p->slot)};
  *address = (uint64_t)(uintptr_t)t.message + t.message->body_offset;
  return t.message->body_length == p->length && sb_api_plausible(b, &t);
}

sb_status sb_place_begin_view(sb_connection *c, const sb_place *place, uint64_t *view, uint64_t *address) {
  sb_status status = sb_api_enter(c);
  if (status != SB_OK) {
    return status;
  }
  status = sb_reader_begin(c, place->slot, place->generation, view);
  if (status == SB_OK && !address_of(c->b, place, address)) {
    sb_view_drop(c, *view);
    status = SB_SETTLED;
  }
  sb_api_leave(c);
  return status;
}

sb_status sb_place_copy_body(sb_connection *c, const sb_place *place, char *to) {
  sb_status status = sb_usable(c);
  return status == SB_OK ? sb_reader_copy(c->b, place->slot, place->generation, to, place->length) : status;
}
