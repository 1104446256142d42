// SPDX-License-Identifier: Apache-2.0
#include "admission_operations.h"

#include "child.h"

static sb_channel *first, *second;

static sb_channel *opened(uint64_t number) {
  sb_status status;
  sb_channel *channel = sb_channel_open(kid.c, number, &status);
  if (channel == NULL) die("sb_channel_open", (int)status);
  return channel;
}
static void consume(sb_channel *channel) {
  uint32_t subscription;
  while (again(sb_channel_consume(channel, q, 2, 0, 0, &subscription))) {
  }
}
static void configure(sb_settings s) {
  int32_t holder;
  (void)sb_queue_configure(q, &s, false, FOREVER, &holder);
}

static void look(sb_channel *channel) {
  while (again((sb_status)-sb_channel_next(channel, buffer))) {
  }
}

void take_a_seat(void) {
  int32_t holder;
  first = opened(1);
  if (sb_topology_begin(kid.c, FOREVER, &holder) != SB_OK) return;
  consume(first);
  sb_topology_end(kid.c);
}
void one_waits(void) {
  first = opened(1);
  consume(first);
  look(first);
}
void second_comes(void) {
  second = opened(2);
  consume(second);
  look(second);
}
void both_come(void) {
  one_waits();
  second_comes();
}
void first_looks(void) { look(first); }
void get_seats(void) { configure((sb_settings)SEATED(3)); }
void give_seats_away(void) { configure((sb_settings)FREELY); }
void begin_and_end_gate(void) {
  configure((sb_settings)GATED(2));
  configure((sb_settings)FREELY);
}
