// SPDX-License-Identifier: Apache-2.0
/* Peek: copies a message that another process may be overwriting.
 *
 * What: a reader that does not hold a message (a browser, the doctor, the housekeeper, a count of a queue's bytes)
 * copies it here. The message's slot may be freed and reused during the copy. The reader therefore validates the copy
 * with a second look at the word that led to the slot.
 *
 * Layout: sb_message_shm of sb_layout.h.
 *
 * Invariants:
 *  I43 a reader uses a copy only after a second look at the word that led it to the slot (the cell that names the slot,
 *      or the header of the slot) found that word unchanged. A reader that is not inside a call (sb_grace.h) also
 *      checks that the page or record that contains this word was not freed. Without these checks a copy is only a
 *      guess. No reader uses a guess as an address, nor as a length that it did not check against the slot.
 *
 * Ordering pairs: the copy is loaded with acquire, so it comes before the second look. A producer fills a slot only
 *  after the old message left the cell and the header (P1 of sb_slab.h, P2 of sb_ring.h), so a reader that copied new
 *  bytes sees the change at its second look.
 *
 * Death: a reader writes nothing shared, so a killed reader leaves nothing.
 *
 * Concurrency: any thread, at any time. Producers fill bodies with plain stores, and in C a load that races with a
 *  plain store has undefined behaviour. The attribute of SB_PEEKS excludes these functions, and no others, from the
 *  checks of ThreadSanitizer: the second look discards every copy that raced.
 */
#ifndef SB_PEEK_H
#define SB_PEEK_H

#include <string.h>

#include "sb_segment.h"

#ifdef __SANITIZE_THREAD__
#define SB_PEEKS static __attribute__((unused, noinline, no_sanitize("thread")))
#else
#define SB_PEEKS static inline
#endif

SB_PEEKS uint64_t sb_peek_word(const uint64_t *word) {
  return atomic_load_explicit((const _Atomic uint64_t *)(const void *)word, SB_ACQUIRE);
}
SB_PEEKS uint32_t sb_peek_half(const uint32_t *half) {
  return atomic_load_explicit((const _Atomic uint32_t *)(const void *)half, SB_ACQUIRE);
}
SB_PEEKS uint8_t sb_peek_byte(const uint8_t *byte) {
  return atomic_load_explicit((const _Atomic uint8_t *)byte, SB_ACQUIRE);
}
SB_PEEKS uint16_t sb_peek_viewer(const _Atomic uint16_t *viewer) { return atomic_load_explicit(viewer, SB_ACQUIRE); }
SB_PEEKS void sb_peek_bytes(char *to, const uint8_t *from, uint64_t length) {
  uint64_t i = 0;
  while (i < length && ((uintptr_t)(from + i) & 7) != 0) {
    to[i] = (char)atomic_load_explicit((const _Atomic uint8_t *)from + i, SB_ACQUIRE);
    i++;
  }
  for (; i + sizeof(uint64_t) <= length; i += sizeof(uint64_t)) { /* a word at a time: a body may be long */
    uint64_t word = sb_peek_word((const uint64_t *)(const void *)(from + i));
    memcpy(to + i, &word, sizeof word);
  }
  for (; i < length; i++) to[i] = (char)atomic_load_explicit((const _Atomic uint8_t *)from + i, SB_ACQUIRE);
}

static inline uint64_t sb_peek_length(const sb_broker *b, uint32_t slot) {
  return sb_peek_word(&((const sb_message_shm *)sb_slot_at(b, slot))->body_length);
}
static inline uint32_t sb_peek_group(const sb_broker *b, uint32_t slot) {
  const uint32_t *hash = &((const sb_message_shm *)sb_slot_at(b, slot))->group_hash;
  return sb_peek_half(hash);
}
static inline sb_message_shm sb_peek_message(const sb_broker *b, uint32_t slot) {
  sb_message_shm m;
  uint64_t words[sizeof m / sizeof(uint64_t)];
  for (unsigned i = 0; i < sizeof m / sizeof(uint64_t); i++) {
    words[i] = sb_peek_word((const uint64_t *)sb_slot_at(b, slot) + i);
  }
  memcpy(&m, words, sizeof m);
  return m;
}

#endif
