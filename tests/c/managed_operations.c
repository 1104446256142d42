// SPDX-License-Identifier: Apache-2.0
#include "managed_operations.h"

#include <string.h>

#include "child.h"
#include "operations.h"

static const char OF_PRIORITY_2[] = {
    SB_PROGRAM_VERSION, SB_OP_PROPERTY_U8, SB_PROPERTY_PRIORITY, SB_OP_INTEGER_I64, 2, 0, 0, 0, 0, 0, 0, 0,
    SB_OP_EQUAL};
static char memory[SB_MAX_PREFIX];

static void manage(sb_manage_action action, const char *selector, uint32_t length) {
  sb_manage work = {.action = action,
                    .selector = selector,
                    .selector_length = length,
                    .target = other,
                    .end = UINT64_MAX,
                    .limit = 2,
                    .bytes = UINT64_MAX,
                    .memory = memory};
  sb_status status;
  do {
    (void)sb_queue_manage(q, &work, &status);
  } while (again(status));
}
void purge_selected(void) { manage(SB_MANAGE_REMOVE, OF_PRIORITY_2, sizeof OF_PRIORITY_2); }
void move_selected(void) { manage(SB_MANAGE_MOVE, OF_PRIORITY_2, sizeof OF_PRIORITY_2); }
void expire_selected(void) { manage(SB_MANAGE_EXPIRE, OF_PRIORITY_2, sizeof OF_PRIORITY_2); }
void expire_two(void) { manage(SB_MANAGE_EXPIRE, NULL, 0); }
static void end_scheduled(sb_manage_action action) {
  sb_manage work = {.action = action, .end = UINT64_MAX, .limit = 2, .memory = memory, .scheduled = true};
  sb_status status;
  do {
    (void)sb_queue_manage(q, &work, &status);
  } while (again(status));
}
void remove_scheduled(void) { end_scheduled(SB_MANAGE_REMOVE); }
void expire_scheduled(void) { end_scheduled(SB_MANAGE_EXPIRE); }
void deliver_scheduled(void) { manage(SB_MANAGE_DELIVER, NULL, 0); }

void limit_two(void) {
  sb_manage work = {
      .action = SB_MANAGE_LIMIT, .end = UINT64_MAX, .limit = 2, .memory = memory, .life_ns = 3600000000000u};
  sb_status status;
  do {
    (void)sb_queue_manage(q, &work, &status);
  } while (again(status));
}

static int64_t take_first(void) {
  int64_t length;
  do {
    length = sb_queue_take(q, 0, buffer);
  } while (length < 0 && again((sb_status)-length));
  return length;
}
void take_and_put_back(void) {
  if (take_first() > 0) sb_queue_put_back(q, buffer);
}
void transfer(void) {
  uint64_t body[8];
  uint32_t publication, target;
  sb_record r;
  if (take_first() < 0) return;
  memcpy(&r, buffer, sizeof r);
  fill_body(body, sizeof body, FRESH);
  sb_queue *both[2] = {q, other};
  sb_publication p = {.body = (const char *)body, .length = sizeof body, .targets = both, .target_count = 2};
  sb_settlement end = {.queue = q, .token = r.tag, .disposition = SB_TRANSFER};
  while (again(sb_transaction_commit(kid.c, &p, 1, &end, 1, &publication, &target))) {
  }
}
