// SPDX-License-Identifier: Apache-2.0
#include "sb_hash.h"

static uint64_t turned(uint64_t x, unsigned by) { return x << by | x >> (64 - by); }

static void mix(uint64_t *v, unsigned rounds) {
  while (rounds-- > 0) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turned(v[1], 13) ^ v[0];
    v[3] = turned(v[3], 16) ^ v[2];
    v[0] = turned(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = turned(v[1], 17) ^ v[2];
    v[3] = turned(v[3], 21) ^ v[0];
    v[2] = turned(v[2], 32);
  }
}

static uint64_t little_endian(const uint8_t *at, uint64_t count) {
  uint64_t number = 0;
  for (uint64_t i = count; i > 0; i--) number = number << 8 | sb_peek_byte(at + i - 1);
  return number;
}

static void absorb(uint64_t *v, uint64_t word) {
  v[3] ^= word;
  mix(v, 2);
  v[0] ^= word;
}

sb_hash sb_hash_of(const void *bytes, uint64_t length, uint64_t low, uint64_t high) {
  const uint8_t *at = bytes;
  uint64_t v[4] = {low ^ UINT64_C(0x736f6d6570736575), high ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                   low ^ UINT64_C(0x6c7967656e657261), high ^ UINT64_C(0x7465646279746573)};
  uint64_t whole = length / 8 * 8;
  for (uint64_t i = 0; i < whole; i += 8) absorb(v, little_endian(at + i, 8));
  absorb(v, little_endian(at + whole, length - whole) | SB_FIELD(length & 0xff, 56));
  sb_hash h;
  v[2] ^= 0xee;
  mix(v, 4);
  h.low = v[0] ^ v[1] ^ v[2] ^ v[3];
  v[1] ^= 0xdd;
  mix(v, 4);
  h.high = v[0] ^ v[1] ^ v[2] ^ v[3];
  return h;
}
