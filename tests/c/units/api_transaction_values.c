// SPDX-License-Identifier: Apache-2.0
/* sb_api_transaction in a queue with last values: what a commit replaces, which nodes it notifies, and what it does without
 * memory for the index. The header "k" of a message is its key. */
#include <string.h>

#include "../value_operations.h"
#include "committing.h"
#include "queues.h"

static sb_status commit_key(unsigned key, uint64_t delay_ns) {
  char properties[13];
  memcpy(properties, "\x20\0\0\0\0\7\1kI\0\0\0", 12);
  properties[12] = (char)key;
  sb_put_options o = {.properties = properties, .properties_length = 13, .delay_ns = delay_ns};
  sb_publication p = first_targets(0, 1);
  p.options = &o;
  return commit_now(&p, 1, 0);
}
static void begin(sb_settings settings) {
  make_targets(1, settings);
  expect_is(commit_key(1, 0), SB_OK, "the status of a commit");
}

static void a_delayed_value_replaces_nothing(void) {
  begin((sb_settings)VALUED);
  expect_is(commit_key(1, UINT64_C(3600000000000)), SB_OK, "the status of a commit");
  expect_is(cell_state(target[0], 0), SB_CELL_AVAILABLE, "the state of the older value");
  expect_is(cell_state(target[0], 1), SB_CELL_SCHEDULED, "the state of the delayed value");
  expect_is(counted(target[0], SB_COUNT_REPLACED), 0, "what was replaced");
  expect_is(commit_key(1, 0), SB_OK, "the status of a commit");
  expect_is(counted(target[0], SB_COUNT_REPLACED), 1, "what the next value replaced");
}
static void a_producer_is_told_of_what_was_replaced(void) {
  begin((sb_settings)VALUED_LENGTH(2));
  uint32_t node = wait_at(target[0], FOR_ROOM, BYTES);
  (void)was_told(node);
  expect_is(commit_key(1, 0), SB_OK, "the status of a commit");
  expect_is(counted(target[0], SB_COUNT_REPLACED), 1, "what was replaced");
  expect(was_told(node), "a producer that waits for room is not told");
}
static void no_memory_for_the_index(void) {
  begin((sb_settings)VALUED);
  uint64_t done = 1;
  sb_status status = SB_OK;
  use_all_slots(SB_KIND_VALUE_NODE);
  for (unsigned key = 2; key < 100 && status == SB_OK; key++) {
    status = commit_key(key, 0);
    done += status == SB_OK;
  }
  expect_is(status, SB_NO_MEMORY, "the status of a commit whose key needs a node");
  expect_is(added_to(0), done, "what was added");
  expect_is(SB_LOAD(&target[0]->shm->values_lost, SB_RELAXED), 0, "what is to be settled later");
}

/* A table, a line or two for each. */
/* clang-format off */
static const test_case CASES[] = {
    {"api_transaction values: delayed", "a delayed value of a commit replaces nothing", a_delayed_value_replaces_nothing},
    {"api_transaction values: told", "who waits is told of the room of a value that a commit replaced",
     a_producer_is_told_of_what_was_replaced},
    {"api_transaction values: memory", "without memory for the index a commit does nothing", no_memory_for_the_index},
};
/* clang-format on */
SUBJECT(CASES)
