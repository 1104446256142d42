// SPDX-License-Identifier: Apache-2.0
/* sb_values: which message of a key stays; what is done where memory is short; what the doctor finds in the index. The
 * header "k" of a message is its key. */
#include "sb_values.h"

#include <string.h>

#include "../value_operations.h"
#include "checkup.h"
#include "dead.h"
#include "queues.h"
#include "sb_holdings.h"
#include "sb_move.h"
#include "sb_release.h"
#include "sb_slab.h"
#include "surroundings.h"
#include "ticks.h"

enum { NODE, WORD, SETTING, UNSETTLED }; /* SB_BAD_VALUE */

static sb_queue *q;
static const sb_settings SETTINGS = VALUED;

static sb_put_options options(char *properties, unsigned key) {
  memcpy(properties, "\x20\0\0\0\0\7\1kI\0\0\0", 12);
  properties[12] = (char)key;
  return (sb_put_options){.properties = properties, .properties_length = 13};
}
static sb_status try_key(unsigned key) {
  char properties[13];
  sb_put_options o = options(properties, key);
  return put_sized(&t, q, 1, 64, &o);
}
static void put_key(unsigned key) { expect_is(try_key(key), SB_OK, "the status of a put"); }
static void begin(void) { q = queue_named("q", SETTINGS); }
static unsigned state(uint64_t n) { return cell_state(q, n); }
static uint64_t take(sb_taken *taken) {
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  expect_is(sb_take_for_consumer(q, token, taken), SB_OK, "the status of a take");
  return token;
}
static sb_value_key key_hash(unsigned key) {
  char properties[13];
  (void)options(properties, key);
  sb_properties p = {.at = (const uint8_t *)properties, .length = 13};
  sb_value_key hash = {0, 0};
  if (!sb_value_key_read(&p, q->value_key, q->value_key_length, &hash)) die("the hash of a key", 0);
  return hash;
}
/* The word that names the newest message of the key. */
static sb_word *word_of_key(unsigned key) {
  sb_value_key hash = key_hash(key);
  sb_value_place place;
  if (sb_value_index_look(q, &hash, &place) != SB_OK) die("the word of a key", 0);
  return place.word;
}

static void a_handle_knows_the_header(void) {
  begin();
  expect_is(q->value_key_length, 1, "the bytes of the name");
  expect_is(q->value_key[0], 'k', "the name");
  sb_queue *plain = queue_named("plain", (sb_settings)FREELY);
  expect(!sb_queue_has_values(plain), "a plain queue has last values");
  sb_settings texts = VALUED;
  texts.flags = 0;
  expect(!sb_queue_has_values(queue_named("texts", texts)), "a queue without the flag has last values");
  sb_settings flag = FREELY;
  flag.flags = SB_QUEUE_LAST_VALUE;
  expect(!sb_queue_has_values(queue_named("flag", flag)), "a queue without the text has last values");
  sb_settings damaged = VALUED;
  damaged.texts_length = 6;
  expect(!sb_queue_has_values(queue_named("damaged", damaged)), "a queue with half a text has last values");
}
static void a_newer_message_replaces(void) {
  begin();
  put_key(1);
  put_key(2);
  put_key(1);
  expect_is(state(0), SB_CELL_TOMBSTONE, "the state of the older message");
  expect_is(state(1), SB_CELL_AVAILABLE, "the state of another key");
  expect_is(state(2), SB_CELL_AVAILABLE, "the state of the newer message");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "what was replaced");
}
static void what_expired_is_not_replaced(void) {
  begin();
  char properties[13];
  sb_put_options o = options(properties, 1);
  o.ttl_ns = 1;
  expect_is(put_sized(&t, q, 1, 64, &o), SB_OK, "the status of a put");
  put_key(1);
  expect_is(counted(q, SB_COUNT_EXPIRED), 1, "what expired");
  expect_is(counted(q, SB_COUNT_REPLACED), 0, "what was replaced");
}
static void a_message_that_waits_is_not_settled(void) {
  begin();
  char properties[13];
  sb_put_options o = options(properties, 1);
  put_key(1);
  o.delay_ns = UINT64_C(3600000000000);
  expect_is(put_sized(&t, q, 1, 64, &o), SB_OK, "the status of a put");
  expect_is(sb_values_settle_at(q, q->base + 1), 0, "what a delayed message replaces");
  expect_is(state(0), SB_CELL_AVAILABLE, "the state of the message before it");
  expect_is(sb_values_settle_at(q, q->base + 7), 0, "what no message replaces");
}
static bool share_a_byte(unsigned a, unsigned b) {
  sb_value_key one = key_hash(a), other = key_hash(b);
  return ((one.low ^ other.low) & 0xff) == 0;
}
/* A key whose path begins as that of key 1 does: both share the word of the root, until both have messages. */
static unsigned neighbour(void) {
  unsigned key = 2;
  while (word_of_key(key) != word_of_key(1)) key++;
  return key;
}
/* Who ends a message frees its slot before the cell changes. Meanwhile the slot may have a message of any other key. */
static void a_slot_that_was_used_again(void) {
  begin();
  sb_taken held;
  put_key(1);
  (void)take(&held);
  unsigned near = neighbour(), far = 2;
  while (word_of_key(far) == word_of_key(1)) far++;
  ((char *)held.message)[sizeof *held.message + 12] = (char)far;
  put_key(near);
  expect_is(SB_LOAD(word_of_key(near), SB_RELAXED) & 3u, SB_VALUE_POSITION, "what the word of the key is");
  expect_is(SB_BITS(SB_LOAD(word_of_key(near), SB_RELAXED), 2, 46), 1, "the position that the word names");
  expect(word_of_key(near) == word_of_key(1), "the word was split for a key whose path does not lead to it");
}
static void a_slot_that_was_used_again_settles_nothing(void) {
  begin();
  put_key(2);
  put_key(1);
  uint64_t token;
  sb_taken held;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  expect_is(sb_take_at(q, q->base + 1, SB_CELL_AVAILABLE, token, &held), SB_OK, "the status of a take");
  ((char *)held.message)[sizeof *held.message + 12] = 2;
  SB_STORE(sb_slot_header(t.b, held.slot), sb_slot_word(SB_SLOT_PUBLISHED, 1, held.gen + 1), SB_RELAXED);
  expect_is(sb_values_settle_at(q, q->base + 1), 0, "what a message that ended replaces");
  expect_is(state(0), SB_CELL_AVAILABLE, "the state of a message of another key");
}
/* The position of a message that is settled again, as a reaper does. */
static void settled_twice(void) {
  begin();
  put_key(1);
  put_key(1);
  uint64_t word = SB_LOAD(word_of_key(1), SB_RELAXED);
  expect_is(sb_values_settle_at(q, q->base + 1), 0, "what is replaced");
  expect_is(SB_LOAD(word_of_key(1), SB_RELAXED), word, "the word of the key");
  expect_is(state(1), SB_CELL_AVAILABLE, "the state of the message");
}
/* A killed process put a message, and did not settle its key. */
static void forget(unsigned key) { SB_STORE(word_of_key(key), 0, SB_RELAXED); }

static void all_messages_are_settled(void) {
  begin();
  for (unsigned n = 0; n < 3; n++) {
    put_key(1);
    forget(1);
  }
  put_key(2);
  forget(2);
  sb_taken held;
  (void)take(&held);
  expect_is(sb_values_settle_all(q), 1, "what is replaced");
  expect_is(state(0), SB_CELL_ACQUIRED, "the state of what is held");
  expect_is(state(1), SB_CELL_TOMBSTONE, "the state of the older message");
  expect_is(state(2), SB_CELL_AVAILABLE, "the state of the newer message");
  expect_is(state(3), SB_CELL_AVAILABLE, "the state of another key");
}
static void a_put_without_memory_for_the_index(void) {
  begin();
  put_key(0);
  uint64_t used = 1;
  use_all_chunks();
  use_all_slots(SB_KIND_VALUE_NODE);
  sb_status status = SB_OK;
  for (unsigned key = 1; key < 100 && status == SB_OK; key++, used++) status = try_key(key);
  expect_is(status, SB_NO_MEMORY, "the status of a put whose key needs a node");
  expect(used > 2, "no put had room");
  expect_is(counted(q, SB_COUNT_ADDED), used - 1, "what was added");
  expect_is(SB_LOAD(&q->shm->values_lost, SB_RELAXED), 0, "what is to be settled later");
}
/* Another process took the room that was prepared: the message stays, and the housekeeper settles it. */
static void what_was_not_settled_is_settled_by_a_tick(void) {
  q = begin_ticks(SETTINGS);
  put_key(0);
  put_key(0);
  sb_word *word = word_of_key(0);
  SB_STORE(word, SB_VALUE_NODE | SB_FIELD(q->slot, 2), SB_RELAXED); /* no search comes through */
  char properties[13];
  (void)options(properties, 0);
  sb_properties p = {.at = (const uint8_t *)properties, .length = 13};
  sb_value_key key;
  expect(sb_value_key_read(&p, q->value_key, 1, &key), "no key");
  expect_is(sb_values_came(q, q->base + 1, &key), 0, "what is replaced");
  expect_is(SB_LOAD(&q->shm->values_lost, SB_RELAXED), 1, "what is to be settled later");
  SB_STORE(word, 0, SB_RELAXED);
  tick_queue();
  expect(SB_LOAD(word, SB_RELAXED) != 0, "the tick settled nothing");
  expect_is(remembered.values_lost, 1, "what the housekeeper remembers");
  SB_STORE(word, 0, SB_RELAXED);
  tick_queue();
  expect_is(SB_LOAD(word, SB_RELAXED), 0, "a second tick settled again");
}
static void no_holding_for_what_is_replaced(void) {
  begin();
  put_key(1);
  use_all_chunks();
  leave_holdings(1);
  put_key(1);
  expect_is(state(0), SB_CELL_AVAILABLE, "the state of the older message");
  expect(SB_LOAD(&q->shm->values_lost, SB_RELAXED) > 0, "nobody settles the key later");
}
static void no_holding_for_what_is_superseded(void) {
  begin();
  sb_taken held;
  put_key(1);
  (void)take(&held);
  use_all_chunks();
  leave_holdings(1);
  put_key(1);
  expect_is(SB_LOAD(&q->shm->values_lost, SB_RELAXED), 1, "what is to be settled later");
}
/* An older message returns while the newer one rests, as its side record says. */
static unsigned state_beside_one_that_rests(uint64_t side) {
  begin();
  put_key(1);
  sb_taken held, newer;
  uint64_t token = take(&held);
  put_key(1);
  (void)take(&newer);
  SB_STORE(&sb_leaf_cell(&q->lanes[0].tail_leaf, newer.position)->side, sb_side_word(newer.gen, 1, side), SB_RELAXED);
  set_cell_word(q, 1, open_word(q, 1, SB_CELL_SCHEDULED, newer.slot));
  expect_is(sb_release_unmarked(q, token), SB_OK, "the status of a return");
  return state(0);
}
static void a_newer_message_is_delayed(void) {
  expect_is(state_beside_one_that_rests(SB_SIDE_DELAYED), SB_CELL_TOMBSTONE, "the state of the older message");
}
static void a_newer_message_is_a_dead_letter(void) {
  expect_is(state_beside_one_that_rests(sb_side_why(SB_WHY_REJECTED)), SB_CELL_AVAILABLE,
            "the state of the older message");
}
/* A killed process put the newer message, and a consumer took it before the reaper came. */
static void a_message_that_was_taken_is_settled(void) {
  begin();
  put_key(1);
  uint64_t older = SB_LOAD(word_of_key(1), SB_RELAXED), token;
  forget(1);
  put_key(1);
  SB_STORE(word_of_key(1), older, SB_RELAXED);
  sb_taken held;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  expect_is(sb_take_at(q, q->base + 1, SB_CELL_AVAILABLE, token, &held), SB_OK, "the status of a take");
  expect_is(sb_values_settle_at(q, q->base + 1), 1, "what is replaced");
  expect_is(state(0), SB_CELL_TOMBSTONE, "the state of the older message");
}
static void no_memory_for_a_message_that_is_moved(void) {
  sb_queue *plain = queue_named("plain", (sb_settings)FREELY);
  begin();
  put_key(1);
  sb_queue *target = q;
  unsigned near = neighbour();
  q = plain;
  put_key(near);
  q = target;
  use_all_slots(SB_KIND_VALUE_NODE);
  uint64_t size;
  expect_is(sb_move_one(plain, q, SB_ANY_POSITION, &size), SB_NO_MEMORY, "the status of a move");
  expect_is(SB_LOAD(&q->shm->values_lost, SB_RELAXED), 0, "what is to be settled later");
  expect_is(cell_state(plain, 0), SB_CELL_AVAILABLE, "the state of the message");
}
/* Keys whose paths part at the third level: the put needs two nodes, and there is one. */
static void one_node_where_two_are_needed(void) {
  begin();
  unsigned first = 0, second = 1;
  while (!share_a_byte(first, second)) {
    if (++second == 256) second = ++first + 1;
  }
  put_key(first);
  uint64_t token, gen;
  uint32_t slot;
  expect_is(sb_holding_object(t.c, SB_KIND_VALUE_NODE, &token, &slot, &gen), SB_OK, "the status of a node");
  use_all_slots(SB_KIND_VALUE_NODE);
  (void)sb_slab_free_gen(t.b, slot, gen);
  sb_holding_give(t.c, token);
  expect_is(try_key(second), SB_NO_MEMORY, "the status of a put");
  expect_is(counted(q, SB_COUNT_ADDED), 1, "what was added");
  expect_is(SB_LOAD(&q->shm->values_lost, SB_RELAXED), 0, "what is to be settled later");
}
static void a_tick_tells_of_the_room_that_it_makes(void) {
  q = begin_ticks((sb_settings)VALUED_LENGTH(2));
  put_key(1);
  forget(1);
  put_key(1);
  uint32_t node = wait_at(q, FOR_ROOM, 64);
  SB_STORE(&q->shm->values_lost, 1u, SB_RELAXED);
  tick_queue();
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "what is replaced");
  expect(was_told(node), "a producer that waits for room is not told");
}
static void a_reaper_without_memory_leaves_it_to_the_housekeeper(void) {
  begin();
  begin_dead();
  put_key(1);
  use_all_chunks();
  use_all_slots(SB_KIND_LEDGER);
  sb_intent_settle_value(&w, q->slot, q->base);
  expect_is(SB_LOAD(&q->shm->values_lost, SB_RELAXED), 1, "what is to be settled later");
  sb_queue *plain = q;
  sb_intent_settle_value(&w, plain->slot + 1, q->base);
  expect_is(SB_LOAD(&q->shm->values_lost, SB_RELAXED), 1, "what is to be settled later of no queue");
}

/* ---- the doctor ---- */

static void look(void) {
  forget_what_was_seen();
  sb_check_connections(&checkup);
  checkup.count = 0;
  sb_check_queue(&checkup, q->slot, false);
}
static void expect_one(sb_finding should, const char *what) {
  look();
  expect_finding(should, what);
}
/* Keys enough for a tree of several levels. */
static void begin_checked(void) {
  begin();
  for (unsigned key = 0; key < 60; key++) put_key(key);
  sb_taken held;
  (void)take(&held);
  put_key(0);
  start_checkup(t.b->mapped_chunks);
  look();
  expect_no_finding("an index");
}
/* The word of the root that names a node. */
static sb_word *link_in_root(unsigned *branch) {
  sb_value_node_shm *root = sb_slot_at(t.b, q->shm->value_index);
  unsigned n = 0;
  while ((SB_LOAD(&root->words[n], SB_RELAXED) & 3u) != SB_VALUE_NODE) n++;
  *branch = n;
  return &root->words[n];
}
static void the_nodes_that_were_seen(void) {
  begin_checked();
  unsigned branch;
  uint32_t below = (uint32_t)SB_BITS(SB_LOAD(link_in_root(&branch), SB_RELAXED), 2, 28);
  look();
  expect_is(checkup.seen[q->shm->value_index] & 1, 1, "what was seen of the root");
  expect_is(checkup.seen[below] & 1, 1, "what was seen of a node");
}
static void nodes_that_do_not_fit(void) {
  begin_checked();
  unsigned branch;
  uint32_t root = q->shm->value_index;
  sb_word *link = link_in_root(&branch);
  uint64_t word = SB_LOAD(link, SB_RELAXED);
  uint32_t below = (uint32_t)SB_BITS(word, 2, 28);
  sb_value_node_shm *node = sb_slot_at(t.b, below);
  sb_finding here = {SB_BAD_VALUE, q->slot, below, NODE, 0, root, SB_KIND_VALUE_NODE, SB_KIND_VALUE_NODE};
  SB_STORE(&node->branch, branch + 1, SB_RELAXED);
  expect_one(here, "a node of another word");
  SB_STORE(&node->branch, branch, SB_RELAXED);
  SB_STORE(&node->parent, below, SB_RELAXED);
  expect_one(here, "a node of another node");
  SB_STORE(&node->parent, root, SB_RELAXED);
  SB_STORE(&node->queue, below, SB_RELAXED);
  expect_one(here, "a node of another queue");
  SB_STORE(&node->queue, q->slot, SB_RELAXED);
  SB_STORE(link, SB_VALUE_NODE | SB_FIELD(q->slot, 2), SB_RELAXED);
  expect_one((sb_finding){SB_BAD_VALUE, q->slot, q->slot, NODE, 0, root, SB_KIND_LONG_QUEUE, SB_KIND_VALUE_NODE},
             "a word that names a queue as a node");
  SB_STORE(link, word, SB_RELAXED);
  SB_STORE(&q->shm->value_index, below, SB_RELAXED);
  expect_one((sb_finding){SB_BAD_VALUE, q->slot, below, NODE, 0, 0, SB_KIND_VALUE_NODE, SB_KIND_VALUE_NODE},
             "a root that is a node below another one");
}
static void words_that_cannot_be(void) {
  begin_checked();
  sb_word *word = word_of_key(7);
  uint64_t was = SB_LOAD(word, SB_RELAXED);
  uint32_t node = (uint32_t)(((char *)(void *)word - (char *)sb_slot_at(t.b, 0)) / (ptrdiff_t)SB_UNIT);
  const uint64_t bad[] = {3, 4, SB_VALUE_POSITION | SB_FIELD(61, 2)};
  for (unsigned i = 0; i < 3; i++) {
    SB_STORE(word, bad[i], SB_RELAXED);
    expect_one((sb_finding){SB_BAD_VALUE, q->slot, node, WORD, 0, 0, bad[i], 0}, "a word that cannot be");
  }
  SB_STORE(word, was, SB_RELAXED);
  look();
  expect_no_finding("the word as it was");
}
static void a_message_that_the_index_does_not_name(void) {
  begin_checked();
  uint64_t was = SB_LOAD(word_of_key(7), SB_RELAXED);
  forget(7);
  uint32_t slot = sb_cell_slot(word_at(q, 7));
  expect_one((sb_finding){SB_BAD_VALUE, q->slot, slot, UNSETTLED, 0, q->base + 7, 0, 0}, "a message nobody names");
  SB_STORE(word_of_key(7), was ^ SB_FIELD(1, 2), SB_RELAXED);
  expect_one((sb_finding){SB_BAD_VALUE, q->slot, slot, UNSETTLED, 0, q->base + 7, was ^ SB_FIELD(1, 2), 0},
             "a message beside another one of its key");
}
static void a_flag_that_does_not_agree(void) {
  begin_checked();
  uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED), root = q->shm->value_index;
  SB_STORE(&q->shm->flags, flags & ~(uint32_t)SB_QUEUE_LAST_VALUE, SB_RELAXED);
  expect_one((sb_finding){SB_BAD_VALUE, q->slot, root, SETTING, 0, 0, 0, 0}, "an index without the flag");
  SB_STORE(&q->shm->flags, flags, SB_RELAXED);
  sb_long_queue_shm *texts = sb_slot_at(t.b, q->slot);
  texts->texts[5] ^= 1;
  expect_one((sb_finding){SB_BAD_VALUE, q->slot, root, SETTING, 0, 0, 1, 0}, "a flag without the name of a header");
}

/* A table, a line or two for each. */
/* clang-format off */
static const test_case CASES[] = {
    {"values: handle", "a handle knows the header that is the key", a_handle_knows_the_header},
    {"values: replaced", "a newer message replaces an older one", a_newer_message_replaces},
    {"values: expired", "what has expired ends as expired", what_expired_is_not_replaced},
    {"values: delayed", "what waits replaces nothing", a_message_that_waits_is_not_settled},
    {"values: twice", "a key may be settled again", settled_twice},
    {"values: used again", "a slot that has another message already", a_slot_that_was_used_again},
    {"values: used again, settled", "... replaces nothing", a_slot_that_was_used_again_settles_nothing},
    {"values: all", "all ready messages are settled", all_messages_are_settled},
    {"values: no memory", "without memory for the index a put does nothing", a_put_without_memory_for_the_index},
    {"values: tick", "the housekeeper settles what was left", what_was_not_settled_is_settled_by_a_tick},
    {"values: no holding", "without a holding the housekeeper replaces", no_holding_for_what_is_replaced},
    {"values: no holding, held", "... also what is held", no_holding_for_what_is_superseded},
    {"values: rests", "a message that returns is replaced by a newer one that is delayed", a_newer_message_is_delayed},
    {"values: dead", "... and not by one that waits for its dead-letter queue", a_newer_message_is_a_dead_letter},
    {"values: taken", "a message that was taken is settled all the same", a_message_that_was_taken_is_settled},
    {"values: moved", "without memory for the index a move does nothing", no_memory_for_a_message_that_is_moved},
    {"values: two nodes", "a put that needs two nodes, and there is one", one_node_where_two_are_needed},
    {"values: room", "the housekeeper tells of the room that it makes", a_tick_tells_of_the_room_that_it_makes},
    {"values: reaper", "a reaper without memory leaves it to the housekeeper",
     a_reaper_without_memory_leaves_it_to_the_housekeeper},
    {"values checked: seen", "the doctor sees all nodes", the_nodes_that_were_seen},
    {"values checked: nodes", "the doctor finds nodes that do not fit", nodes_that_do_not_fit},
    {"values checked: words", "the doctor finds words that cannot be", words_that_cannot_be},
    {"values checked: settled", "the doctor finds what the index does not name", a_message_that_the_index_does_not_name},
    {"values checked: flag", "the doctor finds a flag that does not agree", a_flag_that_does_not_agree},
};
/* clang-format on */
SUBJECT(CASES)
