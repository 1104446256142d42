// SPDX-License-Identifier: Apache-2.0
#include "words.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (1u << 14)

static struct {
  uintptr_t word;
  uint8_t readers, writers; /* bits of actors */
  bool shared;              /* as far as this round knows */
} words[WORDS];
static unsigned count, shared_count;
static bool more;

static unsigned find(const volatile void *address) {
  uintptr_t word = (uintptr_t)address / 8;
  unsigned at = (unsigned)(word * UINT64_C(0x9e3779b97f4a7c15) >> 50);
  while (words[at].word != 0 && words[at].word != word) at = (at + 1) % WORDS;
  if (words[at].word == 0) {
    if (++count > WORDS * 3 / 4) {
      fprintf(stderr, "too many words are touched\n");
      abort();
    }
    words[at].word = word;
  }
  return at;
}

static bool several_use(unsigned at) {
  unsigned users = words[at].readers | words[at].writers;
  return words[at].writers != 0 && (users & (users - 1)) != 0;
}

bool words_note(const volatile void *address, unsigned actor, bool write) {
  unsigned at = find(address);
  *(write ? &words[at].writers : &words[at].readers) |= (uint8_t)(1u << actor);
  more = more || (several_use(at) && !words[at].shared);
  return words[at].shared;
}

bool words_is_shared(const volatile void *address) { return words[find(address)].shared; }
bool words_found_more(void) { return more; }
unsigned words_shared(void) { return shared_count; }

void words_begin_round(void) {
  shared_count = 0;
  for (unsigned i = 0; i < WORDS; i++) {
    words[i].shared = several_use(i);
    shared_count += words[i].shared;
  }
  more = false;
}

void words_forget(void) {
  memset(words, 0, sizeof words);
  count = 0;
  words_begin_round();
}
