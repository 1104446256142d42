// SPDX-License-Identifier: Apache-2.0
#include "parts_operations.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "child.h"
#include "commit_operations.h"
#include "operations.h"

#define SLOT 60000u /* a body that takes a slot of 64 KiB */
#define FREED 8u
#define IN_PARTS 150000u

static const sb_put_options NO_OPTIONS, KEY = {.key = "key", .key_length = 3};
static sb_reservation reservation;

void crowd(void) {
  static sb_record held[2 * FREED];
  while (put_sized(&kid, other, OTHERS, SLOT, &NO_OPTIONS) == SB_OK) {
  }
  for (unsigned i = 0; i < 2 * FREED; i++) {
    (void)get(&kid, other, spare, false);
    memcpy(&held[i], spare, sizeof held[i]);
  }
  for (unsigned i = 0; i < 2 * FREED; i++)
    (void)sb_queue_settle(other, (const char *)&held[i], i % 2 == 0 ? SB_ACK : SB_REQUEUE);
}

void put_in_parts(void) { (void)put_sized(&kid, q, FRESH, IN_PARTS, &KEY); }
void put_what_does_not_fit(void) { (void)put_sized(&kid, q, FRESH, 2 * FREED * SLOT, &KEY); }
void commit_in_parts(void) { commit_bytes(IN_PARTS); }

void have_parts(void) {
  crowd();
  put_in_parts();
}
void hold_parts(void) {
  have_parts();
  get_one();
}

static void reserve(void) {
  while (again(sb_reservation_begin(q, IN_PARTS, &KEY, &reservation))) {
  }
  uint64_t *body = reservation.body;
  for (unsigned i = 0; i < IN_PARTS / sizeof *body; i++) body[i] = FRESH;
}
static void publish(void) {
  while (again(sb_reservation_publish(q, &reservation))) {
  }
}
/* What was looked for in vain is not looked for again for 50 ms: that is over, however slow the next step is. */
void reserve_in_parts(void) {
  static const struct timespec over = {.tv_nsec = 60000000};
  crowd();
  reserve();
  (void)nanosleep(&over, NULL);
}
void reserve_in_parts_and_commit(void) {
  reserve();
  publish();
}
void commit_copy_of_parts(void) {
  sb_reservation viewed = reservation;
  while (again(sb_reservation_copy(q, &viewed, &reservation))) {
  }
  publish();
  sb_reservation_end_view(kid.c, &viewed);
}

/* As one who holds nothing. */
void copy_parts(void) {
  sb_place place;
  uint64_t position = 0, view, address;
  char *body = malloc(IN_PARTS);
  if (sb_queue_browse_place(q, &position, buffer, BUFFER, &place) > 0 && place.length == IN_PARTS &&
      (sb_place_begin_view(kid.c, &place, &view, &address) != SB_IN_USE ||
       sb_place_copy_body(kid.c, &place, body) != SB_OK || id_at(body, IN_PARTS) != FRESH))
    die("the body was not copied", 0);
  free(body);
}

void die_putting(void) {
  const char *where = die_at;
  die_at = NULL;
  crowd();
  die_at = where;
  put_in_parts();
}
void die_acknowledging(void) {
  const char *where = die_at;
  die_at = NULL;
  hold_parts();
  die_at = where;
  settle(SB_ACK);
}
