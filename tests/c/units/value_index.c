// SPDX-License-Identifier: Apache-2.0
/* sb_value_index: keys and their hashes, and the tree of words that name positions. */
#include "sb_value_index.h"

#include <string.h>

#include "meanwhile.h"
#include "../value_operations.h"
#include "queues.h"
#include "sb_slab.h"
#include "selecting.h"
#include "surroundings.h"

static sb_queue *q;
static const sb_settings SETTINGS = VALUED;

static void begin(void) { q = make_queue("q", SETTINGS); }

/* ---- keys ---- */

/* Properties whose header "k" has this value, its type letter in front. */
static coded with_key(const char *value, uint32_t length) {
  coded c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&c);
  add_header(&c, "other", "I\0\0\0\7", 5);
  add_header(&c, "k", value, length);
  end_headers(&c, begun);
  return c;
}
static bool read(const coded *c, sb_value_key *key) {
  sb_properties p = stored(c);
  return sb_value_key_read(&p, (const uint8_t *)"k", 1, key);
}
static sb_value_key key_of(const char *value, uint32_t length) {
  coded c = with_key(value, length);
  sb_value_key key = {0, 0};
  expect(read(&c, &key), "a value is no key: %.1s", value);
  return key;
}
#define KEY(value) key_of((value), sizeof(value) - 1)

static void integers_of_all_sizes_are_one_type(void) {
  sb_value_key five = KEY("b\5"), other;
  static const char *const forms[] = {"s\0\5", "B\5", "u\0\5", "I\0\0\0\5", "i\0\0\0\5", "l\0\0\0\0\0\0\0\5"};
  static const uint32_t lengths[] = {3, 2, 3, 5, 5, 9};
  for (unsigned i = 0; i < 6; i++) {
    other = key_of(forms[i], lengths[i]);
    expect(sb_hash_equal(&five, &other), "the 5 of type %.1s is another key", forms[i]);
  }
}
static void other_values_are_other_keys(void) {
  sb_value_key keys[] = {KEY("b\5"),
                         KEY("b\6"),
                         KEY("t\1"),
                         KEY("t\0"),
                         KEY("d\x40\x14\0\0\0\0\0\0"),
                         KEY("S\0\0\0\0"),
                         KEY("S\0\0\0\0015"),
                         KEY("S\0\0\0\0025\0"),
                         KEY("S\0\0\0\12abcdefghij"),
                         KEY("S\0\0\0\12abcdefghiJ"),
                         KEY("S\0\0\0\12Abcdefghij"),
                         KEY("x\0\0\0\0"),
                         KEY("x\0\0\0\0015")};
  for (unsigned i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    for (unsigned j = 0; j < i; j++) {
      expect(keys[i].low != keys[j].low && keys[i].high != keys[j].high, "the values %u and %u have a hash in common",
             i, j);
    }
  }
}
static void what_is_no_key(void) {
  sb_value_key key;
  static const char *const forms[] = {"V", "A\0\0\0\0", "F\0\0\0\0"};
  static const uint32_t lengths[] = {1, 5, 5};
  for (unsigned i = 0; i < 3; i++) {
    coded c = with_key(forms[i], lengths[i]);
    expect(!read(&c, &key), "a value of type %.1s is a key", forms[i]);
  }
  coded without = properties_of(0);
  expect(!read(&without, &key), "properties without headers name a key");
  coded damaged = with_key("b\5", 2);
  damaged.length--;
  expect(!read(&damaged, &key), "damaged properties name a key");
}

/* ---- the tree ---- */

static sb_value_place find(sb_value_key key) {
  sb_value_place place = {.word = NULL};
  sb_status status = sb_value_index_find(q, &key, &place);
  if (status != SB_OK) die("sb_value_index_find", (int)status);
  return place;
}
/* Makes the word of the key name cell n; false: the word names another key. */
static bool name_cell(sb_value_key key, uint64_t n) {
  sb_value_place place = find(key);
  return sb_value_index_set(q, &place, &key, q->base + n);
}
static uint64_t named(sb_value_key key) {
  uint64_t position;
  sb_value_place place = find(key);
  return sb_value_index_names(q, place.found, &position) ? position - q->base : UINT64_MAX;
}

static void the_first_search_makes_the_root(void) {
  begin();
  sb_value_key key = {1, 2};
  sb_value_place place;
  expect_is(sb_value_index_look(q, &key, &place), SB_EMPTY, "a look at no index");
  place = find(key);
  expect_is(place.node, q->shm->value_index, "the node of the first key");
  expect_is(place.depth, 0, "its depth");
  expect_is(place.found, 0, "its word");
  expect(sb_value_index_links(t.b, place.node), "the root is not linked");
  expect_is(find(key).node, place.node, "the node of a second search");
  expect_is(sb_value_index_look(q, &key, &place), SB_OK, "a look at the index");
}
static void a_word_names_a_position(void) {
  begin();
  sb_value_key key = {1, UINT64_C(0xabcd) << 48}, twin = {1, UINT64_C(0xabce) << 48};
  uint64_t far = (UINT64_C(1) << 46) - 1;
  expect_is(named(key), UINT64_MAX, "the position of no message");
  expect(name_cell(key, far), "the word did not change");
  expect_is(named(key), far, "the position");
  expect(sb_value_index_fits(find(key).found, &key), "the word is of another key");
  expect(!sb_value_index_fits(find(twin).found, &twin), "the word is of another key that begins alike");
  sb_value_place old = find(key);
  expect(name_cell(key, 0), "the word did not change");
  expect(!sb_value_index_set(q, &old, &key, q->base + 5), "a word that has changed was set");
  expect_is(named(key), 0, "the position");
}
static void keys_that_begin_alike_are_split(void) {
  begin();
  sb_value_key one = {0x21, 0}, two = {0x31, 0}, three = {0x2231, 0}, four = {0x22, 0};
  (void)name_cell(one, 1);
  (void)name_cell(four, 4);
  sb_value_place place = find(two);
  expect_is(sb_value_index_split(q, &place, &one), SB_OK, "the status of a split");
  expect_is(named(two), UINT64_MAX, "the position of the second key");
  expect_is(find(two).depth, 1, "its depth");
  expect(find(two).node != q->shm->value_index && find(two).node == find(one).node, "the node of both");
  expect(sb_value_index_links(t.b, find(two).node), "the node is not linked");
  (void)name_cell(two, 2);
  place = find(three);
  expect_is(sb_value_index_split(q, &place, &two), SB_OK, "the status of a second split");
  (void)name_cell(three, 3);
  expect_is(named(one), 1, "the position of the first key");
  expect_is(named(two), 2, "the position of the second key");
  expect_is(named(three), 3, "the position of the third key");
  expect_is(named(four), 4, "the position of the fourth key");
  expect_is(find(three).depth, 2, "the depth of the third key");
}
/* Their hashes differ in the last four bits only: a node for each of the levels. */
static void keys_that_differ_at_the_end(void) {
  begin();
  sb_value_key one = {7, UINT64_C(1) << 60}, two = {7, UINT64_C(2) << 60};
  (void)name_cell(one, 1);
  for (unsigned level = 1; level < 32; level++) {
    sb_value_place place = find(two);
    expect_is(sb_value_index_split(q, &place, &one), SB_OK, "the status of a split");
    expect_is(find(two).depth, level, "the depth");
  }
  (void)name_cell(two, 2);
  expect_is(named(one), 1, "the position of the one");
  expect_is(named(two), 2, "the position of the other");
  sb_value_place place = find(one);
  expect_is(sb_value_index_split(q, &place, &one), SB_CORRUPT, "the status of a split below the last level");
}
static void a_split_that_is_too_late(void) {
  begin();
  sb_value_key one = {0x21, 0}, two = {0x31, 0};
  (void)name_cell(one, 1);
  sb_value_place place = find(two);
  (void)name_cell(one, 5);
  note_rest(q);
  expect_is(sb_value_index_split(q, &place, &one), SB_OK, "the status");
  expect_is(find(two).depth, 0, "the depth");
  expect_is(named(one), 5, "the position");
  expect_calm("a split that is too late");
}
static void no_memory_for_a_node(void) {
  begin();
  sb_value_key one = {0x21, 0}, two = {0x31, 0};
  sb_value_place place;
  (void)name_cell(one, 1);
  leave_chunks(0);
  take_slots(sb_class_of_kind(t.b, SB_KIND_VALUE_NODE));
  note_rest(q);
  place = find(two);
  expect_is(sb_value_index_split(q, &place, &one), SB_NO_MEMORY, "the status of a split");
  expect_is(named(one), 1, "the position");
  expect_is(find(two).depth, 0, "the depth");
  expect_calm("a split without memory");
}
static void damaged_nodes(void) {
  begin();
  sb_value_key one = {0x21, 0};
  sb_value_place place = find(one);
  SB_STORE(place.word, SB_VALUE_NODE | SB_FIELD(q->slot, 2), SB_RELAXED);
  expect_is(sb_value_index_find(q, &one, &place), SB_CORRUPT, "a search that comes to no node");
  SB_STORE(place.word, SB_VALUE_NODE | SB_FIELD(place.node, 2), SB_RELAXED);
  expect_is(sb_value_index_find(q, &one, &place), SB_OK, "a search that comes to the root again");
  sb_value_key same = {UINT64_C(0x1111111111111111), UINT64_C(0x1111111111111111)};
  expect_is(sb_value_index_find(q, &same, &place), SB_CORRUPT, "a search that goes in a circle");
}
static void which_nodes_are_linked(void) {
  begin();
  sb_value_key one = {0x21, 0}, two = {0x31, 0};
  (void)name_cell(one, 1);
  sb_value_place place = find(two);
  (void)sb_value_index_split(q, &place, &one);
  uint32_t below = find(two).node, root = q->shm->value_index;
  sb_value_node_shm *node = sb_slot_at(t.b, below);
  SB_STORE(&node->branch, 2, SB_RELAXED);
  expect(!sb_value_index_links(t.b, below), "a node is linked in another word");
  SB_STORE(&node->branch, 1, SB_RELAXED);
  expect(sb_value_index_links(t.b, below), "a node is not linked");
  SB_STORE(&node->parent, q->slot, SB_RELAXED);
  expect(!sb_value_index_links(t.b, below), "a queue links a node");
  SB_STORE(&node->queue, below, SB_RELAXED);
  expect(!sb_value_index_links(t.b, below), "a node of no queue is linked");
  SB_STORE(&q->shm->value_index, below, SB_RELAXED);
  expect(!sb_value_index_links(t.b, root), "a root of which the queue does not know is linked");
}

/* When it is freed, another queue may have it as a node. */
static sb_word *link_of_node;
static uint64_t link_when_freed;
static void note_link(void) { link_when_freed = SB_LOAD(link_of_node, SB_RELAXED); }
static void a_node_is_unlinked_before_it_is_freed(void) {
  begin();
  sb_value_key one = {0x21, 0}, two = {0x31, 0};
  (void)name_cell(one, 1);
  sb_value_place place = find(two);
  link_of_node = place.word;
  (void)sb_value_index_split(q, &place, &one);
  uint32_t below = find(two).node;
  meanwhile(sb_slot_header(t.b, below), BEFORE_CAS, 1, note_link);
  sb_value_index_free(t.c, q->shm);
  if (has_acted()) expect_is(link_when_freed, 0, "what names the node when it is freed");
}

/* A table, a line or two for each. */
/* clang-format off */
static const test_case CASES[] = {
    {"value index: integers", "integers of all sizes are one type", integers_of_all_sizes_are_one_type},
    {"value index: keys", "other values are other keys", other_values_are_other_keys},
    {"value index: no key", "what has no single value is no key", what_is_no_key},
    {"value index: root", "the first search makes the root", the_first_search_makes_the_root},
    {"value index: word", "a word names a position, and a part of its key", a_word_names_a_position},
    {"value index: split", "keys that begin alike get words of their own", keys_that_begin_alike_are_split},
    {"value index: levels", "all bits of two hashes are used", keys_that_differ_at_the_end},
    {"value index: late", "a split of a word that has changed does nothing", a_split_that_is_too_late},
    {"value index: memory", "without memory nothing changes", no_memory_for_a_node},
    {"value index: damage", "a damaged tree ends the search", damaged_nodes},
    {"value index: freed", "a node is unlinked before it is freed", a_node_is_unlinked_before_it_is_freed},
    {"value index: links", "a node is linked where it says", which_nodes_are_linked},
};
/* clang-format on */
SUBJECT(CASES)
