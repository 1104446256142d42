// SPDX-License-Identifier: Apache-2.0
#include "sort_operations.h"

#include "child.h"
#include "commit_operations.h"
#include "operations.h"

#define LARGE 200u
#define SMALL 3u

static void put_keyed(uint64_t id, unsigned key) {
  char properties[13];
  sb_put_options o = sort_options(properties, key);
  (void)put_sized(&kid, q, id, 64, &o);
}

void nack_last(void) { settle(SB_REQUEUE); }
void put_sorted(void) { put_keyed(FRESH, LARGE); }
void put_sorted_and_get(void) {
  put_sorted();
  get_one();
}
void put_get_and_return(void) {
  put_sorted_and_get();
  nack_last();
}
void put_two_sorted(void) {
  put_sorted();
  put_keyed(FRESH + 1, SMALL);
}
void put_two_sorted_hold(void) {
  put_two_sorted();
  while (get(&kid, q, buffer, false) != 0) {
  }
}

void get_all_sorted(void) {
  while (get(&kid, q, buffer, true) != 0) {
  }
}
void commit_sorted(void) {
  char properties[13];
  sb_put_options o = sort_options(properties, LARGE);
  commit_as(FRESH, &o);
}
