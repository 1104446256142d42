// SPDX-License-Identifier: Apache-2.0
/* Hash: 128 bits that stand for bytes of any length, such as an id or a key of messages.
 *
 * What: SipHash-2-4 with 128 bits of result (Aumasson and Bernstein). Of a million values, two have the same hash with a
 * probability below 1e-26. The key separates uses; it is no secret, so the hash protects nobody from a producer who
 * searches for two values with one hash.
 *
 * Layout: process-local.
 *
 * Invariants: none of its own. Every byte is read once.
 *
 * Ordering pairs: none of their own. The bytes are read by sb_peek_byte: of a message that the caller does not hold, the
 *  hash is a guess until the second look (I43 of sb_peek.h).
 *
 * Death: a reader writes nothing shared, so a killed reader leaves nothing.
 *
 * Concurrency: any thread.
 */
#ifndef SB_HASH_H
#define SB_HASH_H

#include "sb_peek.h"

typedef struct {
  uint64_t low, high;
} sb_hash;
static inline bool sb_hash_equal(const sb_hash *a, const sb_hash *b) { return a->low == b->low && a->high == b->high; }
/* The hash of the bytes with the key `low`, `high`. */
sb_hash sb_hash_of(const void *bytes, uint64_t length, uint64_t low, uint64_t high);

#endif
