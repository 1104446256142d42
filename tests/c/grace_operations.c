// SPDX-License-Identifier: Apache-2.0
#include "grace_operations.h"

#include "child.h"
#include "operations.h"

#define PAGES 70u /* messages that need an inner page */

static void use_pages(const char *name) {
  int32_t holder;
  uint64_t removed;
  if (declare(&kid, name, (sb_settings)FREELY) != SB_OK) die("declare", 0);
  sb_queue *many = open_queue(&kid, name);
  for (unsigned i = 0; i < PAGES; i++) (void)put(&kid, many, OTHERS);
  for (unsigned i = 0; i < PAGES; i++) (void)get(&kid, many, spare, true);
  (void)sb_queue_delete(many, false, false, FOREVER, &holder, &removed);
  (void)sb_queue_close(many);
  for (int i = 0; i < 2; i++) (void)sb_housekeeper_sweep(kid.c, FOREVER);
}

void rest_pages(void) {
  use_pages("unrelated");
  (void)sb_housekeeper_reclaim(kid.c);
}
void reclaim(void) {
  if (sb_housekeeper_reclaim(kid.c)) die("somebody is inside", 0);
}
void reclaim_beside_the_dead(void) {
  if (!sb_housekeeper_reclaim(kid.c)) die("nobody is inside", 0);
  (void)sb_housekeeper_reap(kid.c);
  reclaim();
}
void reclaim_and_give_up(void) {
  if (!sb_housekeeper_reclaim(kid.c)) die("nobody is inside", 0);
  (void)sb_connection_close(kid.c);
  (void)sb_connection_release(kid.c);
}
void reclaim_and_use(void) {
  reclaim();
  use_pages("unrelated");
}
void die_inside(void) { (void)put(&kid, q, OTHERS); }
