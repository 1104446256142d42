// SPDX-License-Identifier: Apache-2.0
#include "page_operations.h"

#include "child.h"
#include "operations.h"

static void put_and_take_others(unsigned count) {
  for (unsigned i = 0; i < count; i++) (void)put(&kid, other, OTHERS);
  while (get(&kid, other, spare, true) != 0) {
  }
}
void have_room_for_a_page(void) { put_and_take_others(PAGE); }
void have_room_and_take_three(void) {
  have_room_for_a_page();
  for (int i = 0; i < 3; i++) (void)get(&kid, q, spare, true);
}
void move_page(void) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  do {
    (void)sb_queue_move(q, other, PAGE, &bytes, &status);
  } while (again(status));
}
void have_room_and_move_page(void) {
  have_room_for_a_page();
  move_page();
}
void use_the_page_then_reap(void) {
  put_and_take_others(0);
  put_and_take_others(PAGE);
  while (sb_housekeeper_reap(kid.c) > 0) {
  }
}
