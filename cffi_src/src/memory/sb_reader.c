// SPDX-License-Identifier: Apache-2.0
#include "sb_reader.h"

#include "sb_parts.h"
#include "sb_peek.h"

/* True if the slot has a message of the generation `gen`; then *header is the slot's header. `slot` and `gen` may come
 * from another process, so they are checked. */
static bool is_there(sb_broker *b, uint32_t slot, uint64_t gen, uint64_t *header) {
  if (slot == 0 || !sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot) || sb_slab_slot_bytes(b, slot) == 0) {
    return false;
  }
  uint64_t chunk = SB_LOAD(&b->chunks[slot / SB_CHUNK_UNITS], SB_ACQUIRE);
  if (sb_chunk_state(chunk) == SB_CHUNK_CLASS && sb_chunk_class(chunk) > SB_MESSAGE_CLASSES) {
    return false;
  }
  *header = SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE); /* P1 acquire */
  return sb_slot_is_published(*header) && sb_slot_gen(*header) == gen;
}

/* True if the body may be read in place (I58). A slot whose body lies in parts (sb_parts.h) has the reference
 * SB_PARTS_REF, which READ has no room for: false. The answer is only a hint, until the caller's CAS finds the header
 * unchanged (I43). */
static bool may_be_read(sb_broker *b, uint32_t slot, uint64_t h) {
  sb_message_shm m = sb_peek_message(b, slot);
  return sb_slot_state(h) == SB_SLOT_PUBLISHED && sb_slot_refs(h) >> SB_READ_REFS == 0 &&
         m.body_length > SB_INLINE_BODY && m.targets <= SB_READ_TARGETS;
}

sb_status sb_reader_begin(sb_connection *c, uint32_t slot, uint64_t gen, uint64_t *token) {
  sb_broker *b = c->b;
  uint64_t h;
  if (!is_there(b, slot, gen, &h)) {
    return SB_SETTLED;
  }
  sb_status status = sb_holding_take(c, token);
  if (status != SB_OK) {
    return status;
  }
  sb_holding_set(b, *token, sb_holding_what(SB_HOLD_VIEW, slot, gen), SB_REF_READER | SB_FIELD(gen, 8)); /* I59 */
  SB_CRASHPOINT("reader.announced");
  for (status = SB_SETTLED; is_there(b, slot, gen, &h); status = SB_SETTLED) {
    status = SB_IN_USE;
    if (!may_be_read(b, slot, h)) {
      break;
    }
    uint64_t mine = sb_slot_word(SB_SLOT_READ, sb_slot_refs(h) | SB_FIELD(c->id, SB_READ_REFS), gen);
    if (SB_CAS(sb_slot_header(b, slot), &h, mine, SB_ACQ_REL)) { /* P1 acquire; the linearisation point */
      SB_CRASHPOINT("reader.begun");
      return SB_OK;
    }
  }
  sb_holding_give(c, *token);
  return status;
}

void sb_reader_end(sb_broker *b, uint32_t slot, uint64_t gen, unsigned id) {
  sb_word *header = sb_slot_header(b, slot);
  uint64_t h = SB_LOAD(header, SB_ACQUIRE);
  while (sb_slot_state(h) == SB_SLOT_READ && sb_slot_gen(h) == gen && sb_slot_reader(h) == id) {
    if (sb_slot_refs(h) == 0) {
      /* no reference is left that another process could drop or copy, so no other process changes the header */
      (void)sb_slab_free(b, slot, h);
      return;
    }
    if (SB_CAS(header, &h, sb_slot_word(SB_SLOT_PUBLISHED, sb_slot_refs(h), gen), SB_ACQ_REL)) {
      return;
    }
  }
}

sb_status sb_reader_copy(sb_broker *b, uint32_t slot, uint64_t gen, char *to, uint64_t length) {
  uint64_t h, again;
  if (!is_there(b, slot, gen, &h)) {
    return SB_SETTLED;
  }
  sb_message_shm m = sb_peek_message(b, slot);
  uint64_t room = sb_slab_slot_bytes(b, slot);
  bool fits = m.body_length == length;
  if (fits && (m.flags & SB_MESSAGE_IN_PARTS) != 0) {
    fits = sb_parts_copy(b, slot, (uint64_t)m.exchange_length + m.key_length + m.properties_length, to, length);
  } else if (fits && (fits = m.body_offset <= room && length <= room - m.body_offset)) {
    sb_peek_bytes(to, (const uint8_t *)sb_slot_at(b, slot) + m.body_offset, length);
  }
  return fits && is_there(b, slot, gen, &again) ? SB_OK : SB_SETTLED;
}
