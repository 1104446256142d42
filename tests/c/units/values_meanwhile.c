// SPDX-License-Identifier: Apache-2.0
/* sb_values beside others that change the message between two steps of a call: what it reads, what it lists before another
 * process can kill it, and what stays where the value whose room it wants is gone. The header "k" of a message is its key. */
#include <string.h>

#include "../value_operations.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_holdings.h"
#include "sb_values.h"

#define BOUND_TO(n) \
  {{(n), (n), -1, SB_OVERFLOW_BLOCK, -1, -1}, SB_QUEUE_LAST_VALUE, sizeof VALUED_TEXTS - 1, VALUED_TEXTS}

static sb_queue *q;
static sb_taken held;

static sb_status put_key(unsigned key) {
  char properties[13];
  memcpy(properties, "\x20\0\0\0\0\7\1kI\0\0\0", 12);
  properties[12] = (char)key;
  sb_put_options o = {.properties = properties, .properties_length = 13};
  return put_sized(&t, q, 1, 64, &o);
}
static void begin(const sb_settings *settings) { q = queue_named("q", *settings); }
static const sb_settings UNBOUNDED = VALUED;

/* ---- what is read of a message ---- */

/* The message at the second position ended, and its slot has a message of the first one's key, in another queue. */
static void the_slot_is_used_again(void) {
  ((char *)message_at(q, 1))[sizeof(sb_message_shm) + 12] = 1;
  set_cell_word(q, 1, tombstone_at(q, 1));
}
static void a_slot_is_used_again_after_the_first_look(void) {
  begin(&UNBOUNDED);
  expect_is(put_key(1), SB_OK, "the status of a put");
  expect_is(put_key(2), SB_OK, "the status of a put of another key");
  meanwhile(&sb_leaf_cell(&q->lanes[0].tail_leaf, q->base + 1)->side, BEFORE_LOAD, 1, the_slot_is_used_again);
  expect_is(sb_values_settle_at(q, q->base + 1), 0, "what a message that has ended replaces");
  (void)has_acted();
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the state of a message of the key that was read too late");
}

/* ---- what is listed ---- */

static unsigned lists_of_the_older;
static void count_what_lists_the_older(void) {
  lists_of_the_older = 0;
  sb_entries_walk w = sb_entries_of(t.b, t.c->shm, t.c->id, SB_HOLDINGS_FIRST);
  const sb_holding_shm *h;
  while ((h = sb_entries_next(&w)) != NULL) {
    lists_of_the_older +=
        sb_holding_kind(SB_LOAD(&h->what, SB_RELAXED)) == SB_HOLD_CELL && SB_LOAD(&h->where, SB_RELAXED) == q->base;
  }
}
/* I103: its holder may return it now, and the process may be killed. The holder lists it, too. */
static void what_is_superseded_is_listed(void) {
  begin(&UNBOUNDED);
  expect_is(put_key(1), SB_OK, "the status of a put");
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  expect_is(sb_take_for_consumer(q, token, &held), SB_OK, "the status of a take");
  count_what_lists_the_older();
  unsigned by_holder = lists_of_the_older;
  sb_value_key key;
  sb_value_place place;
  if (!sb_values_key_of(q, held.slot, held.message, &key) || sb_value_index_look(q, &key, &place) != SB_OK)
    die("the word of a key", 0);
  meanwhile(place.word, BEFORE_CAS, 1, count_what_lists_the_older);
  expect_is(put_key(1), SB_OK, "the status of a newer value");
  if (has_acted()) expect_is(lists_of_the_older, by_holder + 1, "how many holdings list what is superseded");
  count_what_lists_the_older();
  expect_is(lists_of_the_older, by_holder, "how many list it afterwards");
}

/* ---- the room of a value ---- */

static test_broker their;
static sb_queue *theirs;
static uint64_t their_token;
/* A consumer takes the value; then two puts believe that there is room for both. */
static void the_value_is_taken_and_others_come(void) {
  if (sb_take_for_consumer(theirs, their_token, &held) != SB_OK) die("a take beside", 0);
  expect_is(put(&their, theirs, 8), SB_OK, "the status of a put beside");
  expect_is(put(&their, theirs, 9), SB_OK, "the status of another put beside");
}
/* I42: the put had raised `taken`. */
static void a_put_that_gets_no_room_leaves_none_too_many(void) {
  static const sb_settings bound = BOUND_TO(1);
  begin(&bound);
  their = t;
  their.c = connect_to(&their);
  theirs = open_queue(&their, "q");
  if (sb_holding_take(their.c, &their_token) != SB_OK) die("sb_holding_take", 0);
  expect_is(put_key(1), SB_OK, "the status of a put");
  meanwhile(cell_at(q, 0), BEFORE_CAS, 1, the_value_is_taken_and_others_come);
  expect_is(put_key(1), SB_FULL, "the status of a put whose value is taken");
  if (has_acted()) expect_is(q->shm->admitted - q->shm->taken - q->base, 1, "how many are ready");
}

static const test_case CASES[] = {
    {"values meanwhile: used again", "a key that is read in a slot that is used again settles nothing",
     a_slot_is_used_again_after_the_first_look},
    {"values meanwhile: listed", "an older value that is superseded is listed before that",
     what_is_superseded_is_listed},
    {"values meanwhile: room", "a put that does not get the room of a value leaves none too many",
     a_put_that_gets_no_room_leaves_none_too_many},
};
SUBJECT(CASES)
