// SPDX-License-Identifier: Apache-2.0
/* sb_turn: whose turn ends with what was admitted. (waiter_room.c: who waits for a turn.) */
#include "sb_turn.h"

#include "cases.h"
#include "queues.h"
#include "system.h"

static sb_queue *q;

static void a_turn_ends_with_all_that_it_needs(void) {
  static const struct {
    uint64_t count, bytes;
    bool ends;
  } admitted[] = {{1, 100, false}, {4, 99, false}, {3, 100, false}, {4, 100, true}};
  answer_for_the_system();
  q = queue_named("q", (sb_settings){{-1, 9, 900, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  uint64_t mine = 0;
  sb_turn_take(q->shm, 4, 100, &mine);
  for (unsigned i = 0; i < 4; i++) {
    expect(sb_turn_ends(q->shm, admitted[i].count, admitted[i].bytes) == admitted[i].ends, "row %u", i);
    expect(sb_turn_there(q->shm) != admitted[i].ends, "row %u: the turn", i);
  }
}

static const test_case CASES[] = {
    {"turn: ends", "a turn ends with the messages and the bytes that it needs", a_turn_ends_with_all_that_it_needs},
};
SUBJECT(CASES)
