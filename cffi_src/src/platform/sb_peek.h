// SPDX-License-Identifier: Apache-2.0
/* Peek: reading a message that somebody else may be writing.
 *
 * What: who looks at a message without holding it (a browser, the doctor, the housekeeper, an account of bytes) may find its
 * slot freed and filled anew meanwhile. It takes a copy here, and believes it only after a second look.
 *
 * Layout: sb_message_shm of sb_layout.h.
 *
 * Invariants:
 *  I43 what was peeked at is used after the word that named the slot (its cell, or its header) was found unchanged, and, by
 *      who is in no call (sb_grace.h), after the page or record with that word was found not to have been freed; or as a
 *      guess that may be wrong, never as an address or a length that was not checked against the slot.
 *
 * Ordering pairs: the copy is loaded with acquire, so before the second look. A slot is filled after its old message left the
 *  cell and the header (P1, P2), so whoever copied something new sees at the second look that it is.
 *
 * Death: nothing is written.
 *
 * Concurrency: anybody, at any time. A body is filled by plain stores, which C has no way to race with: these functions alone
 *  are left out by ThreadSanitizer, since the second look throws away whatever they raced for.
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
SB_PEEKS uint16_t sb_peek_viewer(const _Atomic uint16_t *viewer) { return atomic_load_explicit(viewer, SB_ACQUIRE); }
SB_PEEKS void sb_peek_bytes(char *to, const uint8_t *from, uint64_t length) {
  uint64_t i = 0;
  while (i < length && ((uintptr_t)(from + i) & 7) != 0) {
    to[i] = (char)atomic_load_explicit((const _Atomic uint8_t *)from + i, SB_ACQUIRE);
    i++;
  }
  for (; i + sizeof(uint64_t) <= length; i += sizeof(uint64_t)) { /* a word each: long bodies are browsed, too */
    uint64_t word = sb_peek_word((const uint64_t *)(const void *)(from + i));
    memcpy(to + i, &word, sizeof word);
  }
  for (; i < length; i++) to[i] = (char)atomic_load_explicit((const _Atomic uint8_t *)from + i, SB_ACQUIRE);
}

static inline uint64_t sb_peek_length(const sb_broker *b, uint32_t slot) {
  return sb_peek_word(&((const sb_message_shm *)sb_slot_at(b, slot))->body_length);
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
