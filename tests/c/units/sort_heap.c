// SPDX-License-Identifier: Apache-2.0
/* sb_sort_heap: the keys that headers give, their order, and a heap of them. */
#include "sb_sort_heap.h"

#include <stdlib.h>
#include <string.h>

#include "../sort_operations.h"
#include "calls.h"
#include "queues.h"
#include "selecting.h"

static const sb_settings SETTINGS = SORTED;
static sb_queue *q;
static uint64_t puts_made;

static void begin(void) {
  q = queue_named("q", SETTINGS);
  puts_made = 0;
}
/* A message whose header "k" has that content, the type letter first; its key. */
static sb_sort_key key_of(const void *value, uint32_t length) {
  coded properties = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&properties);
  add_header(&properties, "k", value, length);
  end_headers(&properties, begun);
  sb_put_options o = {.properties = (const char *)properties.bytes, .properties_length = properties.length};
  expect_is(put_sized(&t, q, 1, 64, &o), SB_OK, "the status of a put");
  const sb_message_shm *m = message_at(q, puts_made);
  sb_sort_key key;
  uint32_t slot = sb_cell_slot(word_at(q, puts_made));
  expect_is(sb_sort_key_read(q, slot, m, puts_made, &key), SB_OK, "the status of a read");
  puts_made++;
  return key;
}
#define KEY(text) key_of((text), sizeof(text) - 1)

static void a_handle_knows_the_header(void) {
  begin();
  expect(sb_queue_has_values(q) == false && q->sort_key_length == 1 && q->sort_key[0] == 'k', "the name of the header");
  expect_is(queue_named("plain", (sb_settings)FREELY)->sort_key_length, 0, "that of a plain queue");
  sb_settings texts = SORTED;
  texts.flags = 0;
  expect_is(queue_named("texts", texts)->sort_key_length, 0, "that of a queue without the flag");
  sb_settings flag = FREELY;
  flag.flags = SB_QUEUE_SORTED;
  expect_is(queue_named("flag", flag)->sort_key_length, 0, "that of a queue without the text");
}
/* Each key comes before all later ones, and not the other way round. */
static void the_order_of_kinds(void) {
  begin();
  static const struct {
    const char *value;
    uint32_t length;
  } ORDER[] = {
      {"V", 1}, /* no key: nothing, a NaN, an array, a table */
      {"d\x7f\xf8\0\0\0\0\0\0", 9},
      {"A\0\0\0\0", 5},
      {"F\0\0\0\0", 5},
      {"d\xff\xf0\0\0\0\0\0\0", 9}, /* minus infinity */
      {"l\x80\0\0\0\0\0\0\0", 9},   /* -2**63 */
      {"I\xff\xff\xff\xff", 5},     /* -1 */
      {"t\0", 2},                   /* false */
      {"d\x3f\xe0\0\0\0\0\0\0", 9}, /* 0.5 */
      {"t\1", 2},                   /* true */
      {"l\0\x20\0\0\0\0\0\0", 9},   /* 2**53 */
      {"l\0\x20\0\0\0\0\0\1", 9},   /* 2**53 + 1, which no double is */
      {"d\x43\x40\0\0\0\0\0\1", 9}, /* 2**53 + 2 */
      {"d\x7f\xf0\0\0\0\0\0\0", 9}, /* infinity */
      {"S\0\0\0\0", 5},
      {"S\0\0\0\1\0", 6},
      {"S\0\0\0\1a", 6},
      {"S\0\0\0\2a\0", 7},
      {"S\0\0\0\x08"
       "abcdefgh",
       13},
      {"S\0\0\0\x09"
       "abcdefgh\0",
       14},
      {"S\0\0\0\x0a"
       "abcdefghij",
       15},
      {"S\0\0\0\x0a"
       "abcdefghik",
       15},
      {"S\0\0\0\x0b"
       "abcdefghikl",
       16},
      {"S\0\0\0\1b", 6},
      {"S\0\0\0\1\xff", 6},
      {"x\0\0\0\0", 5},
      {"x\0\0\0\1a", 6},
  };
  enum { COUNT = sizeof ORDER / sizeof ORDER[0] };
  sb_sort_key keys[COUNT];
  for (unsigned i = 0; i < COUNT; i++) keys[i] = key_of(ORDER[i].value, ORDER[i].length);
  for (unsigned i = 0; i < COUNT; i++) {
    for (unsigned k = 0; k < COUNT; k++) {
      if (sb_sort_key_before(&keys[i], &keys[k]) != (i < k)) complain("key %u before key %u", i, k);
    }
  }
  for (unsigned i = 0; i < COUNT; i++) sb_sort_key_free(&keys[i]);
}
static void equal_keys_in_their_order(void) {
  begin();
  sb_sort_key first = KEY("I\0\0\0\1"), second = KEY("d\x3f\xf0\0\0\0\0\0\0"), third = KEY("S\0\0\0\1a"),
              fourth = KEY("S\0\0\0\1a");
  expect(sb_sort_key_before(&first, &second) && !sb_sort_key_before(&second, &first), "1 and 1.0");
  expect(sb_sort_key_before(&third, &fourth) && !sb_sort_key_before(&fourth, &third), "equal strings");
}
static void damaged_properties_are_no_key(void) {
  begin();
  (void)KEY("I\0\0\0\1");
  message_at(q, 0)->properties_length = UINT32_MAX;
  sb_sort_key key;
  uint32_t slot = sb_cell_slot(word_at(q, 0));
  expect_is(sb_sort_key_read(q, slot, message_at(q, 0), 0, &key), SB_OK, "the status");
  expect_is(key.rank, SB_SORT_NONE, "the rank");
}
static sb_sort_key numbered(uint64_t number) {
  sb_sort_key key = {.position = number, .rank = SB_SORT_NUMBER};
  key.is.integer = (int64_t)(number * UINT64_C(7919) % 1000);
  return key;
}
static bool is_odd(void *context, uint64_t position) {
  ++*(unsigned *)context;
  return position % 2 == 1;
}
static void expect_ascending(sb_sort_heap *heap, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    const sb_sort_key *first = sb_sort_heap_first(heap);
    expect(first != NULL, "the heap ends at %u", i);
    if (first == NULL) return;
    sb_sort_key is = *first;
    sb_sort_heap_drop(heap);
    first = sb_sort_heap_first(heap);
    if (first != NULL) expect(sb_sort_key_before(&is, first), "number %u is not before the next one", i);
  }
  expect(sb_sort_heap_first(heap) == NULL, "the heap has more");
}
static void a_heap_gives_the_first(void) {
  sb_sort_heap heap = {.keys = NULL};
  expect(sb_sort_heap_first(&heap) == NULL, "an empty heap has a key");
  for (uint64_t i = 0; i < 1000; i++) expect_is(sb_sort_heap_add(&heap, numbered(i)), SB_OK, "the status");
  expect_ascending(&heap, 1000);
  sb_sort_heap_clear(&heap);
}
static void a_heap_is_filtered(void) {
  sb_sort_heap heap = {.keys = NULL};
  unsigned asked = 0;
  for (uint64_t i = 0; i < 1000; i++) (void)sb_sort_heap_add(&heap, numbered(i));
  sb_sort_heap_filter(&heap, is_odd, &asked);
  expect_is(asked, 1000, "the keys that were asked about");
  expect_is(heap.count, 500, "the keys that are left");
  expect_ascending(&heap, 500);
  sb_sort_heap_clear(&heap);
}
/* Strings of more than 8 bytes have memory: drop, filter and clear give it back. */
static void memory_is_freed(void) {
  begin();
  sb_sort_heap heap = {.keys = NULL};
  unsigned asked = 0;
  uint64_t before = allocated_bytes();
  char text[3005] = "S\0\0\x0b\xb8"; /* 3000 bytes */
  for (unsigned i = 0; i < 30; i++) (void)sb_sort_heap_add(&heap, key_of(text, sizeof text));
  expect(before == 0 || allocated_bytes() - before > 30u * 2900, "keys take no memory");
  for (unsigned i = 0; i < 10; i++) sb_sort_heap_drop(&heap);
  sb_sort_heap_filter(&heap, is_odd, &asked);
  sb_sort_heap_clear(&heap);
  expect(allocated_bytes() - before < 1024, "keys keep memory"); /* malloc keeps a little of what was freed */
}
static sb_sort_heap full;
static void add_beyond(void) { expect_is(sb_sort_heap_add(&full, numbered(1)), SB_NO_MEMORY, "the status"); }
static void without_memory_nothing_is_added(void) {
  full = (sb_sort_heap){.keys = NULL};
  without_memory(add_beyond);
  expect_is(full.count, 0, "the keys");
}

static const test_case CASES[] = {
    {"sort_heap: handle", "a handle knows the header that sort_key names", a_handle_knows_the_header},
    {"sort_heap: kinds", "no key, numbers, strings, bytes", the_order_of_kinds},
    {"sort_heap: equal", "equal keys come in the order of their positions", equal_keys_in_their_order},
    {"sort_heap: damaged", "damaged properties are no key", damaged_properties_are_no_key},
    {"sort_heap: first", "a heap gives the first key", a_heap_gives_the_first},
    {"sort_heap: filter", "what a filter keeps is a heap", a_heap_is_filtered},
    {"sort_heap: memory", "long strings are freed", memory_is_freed},
    {"sort_heap: no memory", "without memory a key is refused", without_memory_nothing_is_added},
};
SUBJECT(CASES)
