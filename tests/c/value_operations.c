// SPDX-License-Identifier: Apache-2.0
#include "value_operations.h"

#include <string.h>
#include <unistd.h>

#include "child.h"
#include "commit_operations.h"
#include "operations.h"

#define KEYS 40u

/* Properties: one header, "k", whose value is the number `key`. */
static sb_put_options keyed(char *properties, unsigned key) {
  static const char form[] = "\x20\0\0\0\0\7\1kI\0\0\0";
  memcpy(properties, form, 12);
  properties[12] = (char)key;
  return (sb_put_options){.properties = properties, .properties_length = 13};
}
static void put_keyed(uint64_t id, unsigned key, uint64_t delay_ns) {
  char properties[16];
  sb_put_options o = keyed(properties, key);
  o.delay_ns = delay_ns;
  (void)put_sized(&kid, q, id, 64, &o);
}

void put_value(void) { put_keyed(FRESH, 1, 0); }
void put_newer(void) { put_keyed(FRESH + 1, 1, 0); }
void put_values(void) {
  put_value();
  put_newer();
}
void hold_value(void) {
  put_value();
  get_one();
}
void hold_superseded_value(void) {
  hold_value();
  put_newer();
}
void nack_value(void) { settle(SB_REQUEUE); }
void put_value_due(void) {
  put_keyed(FRESH, 1, 1);
  usleep(10);
}
void put_due_and_newer(void) {
  put_value_due();
  put_newer();
}
static void put_keys(unsigned first) {
  for (unsigned key = first; key < first + KEYS; key++) put_keyed(OTHERS, key, 0);
}
void put_many_keys(void) { put_keys(10); }
void put_many_more_keys(void) { put_keys(10 + KEYS); }
void value_there_and_newer_here(void) {
  put_value();
  move();
  put_newer();
}
static void commit_keyed(uint64_t id) {
  char properties[16];
  sb_put_options o = keyed(properties, 1);
  commit_as(id, &o);
}
void commit_value(void) { commit_keyed(FRESH); }
void commit_newer(void) { commit_keyed(FRESH + 1); }
void commit_values(void) {
  commit_value();
  commit_newer();
}
