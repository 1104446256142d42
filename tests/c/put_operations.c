// SPDX-License-Identifier: Apache-2.0
#include "put_operations.h"

#include <unistd.h>

#include "child.h"
#include "operations.h"

static sb_reservation reservation;
static const sb_put_options NO_OPTIONS;

void put_one(void) { (void)put(&kid, q, FRESH); }
void put_another(void) { (void)put(&kid, q, OTHERS); }
static void put_options(uint64_t bytes, uint64_t ttl, uint64_t delay) {
  sb_put_options o = {.ttl_ns = ttl, .delay_ns = delay, .key = "key", .key_length = 3};
  (void)put_sized(&kid, q, FRESH, bytes, &o);
}
void put_delayed(void) { put_options(64, 0, 3600000000000u); }
void put_dead(void) { /* a full queue rejects the message, and sends it to its dead-letter exchange */
  sb_put_options o = {.dead = 1, .key = "key", .key_length = 3};
  (void)put_sized(&kid, q, FRESH, 64, &o);
}
void put_expiring(void) { put_options(64, 3600000000000u, 0); }
void put_middle(void) { put_options(3000, 0, 0); }
static uint64_t long_body[(5u << 20) / sizeof(uint64_t)];
void write_long_body(void) {
  for (size_t i = 0; i < sizeof long_body / sizeof *long_body; i++) long_body[i] = FRESH;
}
void put_long(void) {
  while (again(sb_queue_put(q, (const char *)long_body, sizeof long_body))) {
  }
}
void put_due(void) {
  put_options(64, 0, 1);
  usleep(10);
}
void put_expired(void) {
  put_options(64, 1, 0);
  usleep(10);
}
void put_three(void) {
  uint64_t bodies[3] = {FRESH, FRESH + 1, FRESH + 2};
  sb_piece pieces[3];
  for (int i = 0; i < 3; i++) pieces[i] = (sb_piece){(const char *)&bodies[i], sizeof bodies[i]};
  int64_t done = 0;
  sb_status status;
  do {
    done += sb_queue_put_many(q, pieces + done, (uint32_t)(3 - done), &NO_OPTIONS, &status);
  } while (again(status));
}
void reserve(void) {
  while (again(sb_reservation_begin(q, 64, &NO_OPTIONS, &reservation))) {
  }
  uint64_t *body = reservation.body;
  for (int i = 0; i < 8; i++) body[i] = FRESH;
}
static void commit(void) {
  while (again(sb_reservation_publish(q, &reservation))) {
  }
}
void reserve_and_commit(void) {
  reserve();
  commit();
}
void reserve_and_abandon(void) {
  reserve();
  sb_reservation_abandon(q, &reservation, false);
}
/* A view of the reserved memory still exists: a copy is put, and the memory is given back when the view ends. */
void commit_copy(void) {
  sb_reservation viewed = reservation;
  while (again(sb_reservation_copy(q, &viewed, &reservation))) {
  }
  commit();
  sb_reservation_end_view(kid.c, &viewed);
}
void abandon_viewed(void) {
  sb_reservation_abandon(q, &reservation, true);
  sb_reservation_end_view(kid.c, &reservation);
}
void wait_for_room(void) { (void)sb_queue_wait_for_room(q, false, 64, 1); }
void reserve_more(void) { (void)sb_reservation_begin(q, 100, &NO_OPTIONS, &reservation); }
