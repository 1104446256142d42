// SPDX-License-Identifier: Apache-2.0
/* Sort heap: the keys of messages, and which of them comes first.
 *
 * What: the *key* of a message is the value of the header that the setting sort_key names. Messages without a key come
 * first. Numbers follow, then strings, then bytes. Integers, doubles, decimals and timestamps are numbers, and are
 * compared exactly; booleans are the numbers 0 and 1. Strings are ordered by their bytes of UTF-8. A NaN, an array, a table
 * and damaged properties are no key. Of two messages with equal keys the one with the lower position comes first. A heap
 * has the keys of a number of messages, and gives the first.
 *
 * Layout: process-local. A key has the first 8 bytes of a string itself, and the others in memory of its own.
 *
 * Invariants: none of its own. The key does not point into the message, which may be freed.
 *
 * Ordering pairs: none of their own. The header is read by sb_peek_byte: of a message that the caller does not hold, the
 *  key is a guess until the second look (I43 of sb_peek.h).
 *
 * Death: nothing shared is written, so a killed process leaves nothing.
 *
 * Concurrency: one thread for one heap. A heap of n keys takes log n steps for a change.
 */
#ifndef SB_SORT_HEAP_H
#define SB_SORT_HEAP_H

#include "sb_queue.h"

typedef enum { SB_SORT_NONE, SB_SORT_NUMBER, SB_SORT_STRING, SB_SORT_BYTES } sb_sort_rank;
typedef struct {
  uint64_t position;
  union {
    int64_t integer;
    double number;
    uint64_t start; /* of a string: its first bytes, the first one highest; 0 behind its end */
  } is;
  char *rest;      /* of a string of more than 8 bytes: the others; the heap frees them */
  uint32_t length; /* of a string */
  uint8_t rank;
  bool is_double; /* of a number */
} sb_sort_key;

typedef struct {
  sb_sort_key *keys;
  size_t count, room;
} sb_sort_heap;

/* Reads the key of the message in `slot`. `m`: its header, or a copy of it. SB_NO_MEMORY: the process has no memory for a
 * long string. */
sb_status sb_sort_key_read(const sb_queue *q, uint32_t slot, const sb_message_shm *m, uint64_t position,
                           sb_sort_key *key);
/* Frees what a key has that is in no heap. */
void sb_sort_key_free(sb_sort_key *key);
/* True if the message of `left` comes before that of `right`. */
bool sb_sort_key_before(const sb_sort_key *left, const sb_sort_key *right);

/* Adds a key. SB_NO_MEMORY: the process has no memory for it, and the key is freed. */
sb_status sb_sort_heap_add(sb_sort_heap *heap, sb_sort_key key);
/* The key that comes first; NULL: the heap is empty. */
static inline const sb_sort_key *sb_sort_heap_first(const sb_sort_heap *heap) {
  return heap->count > 0 ? &heap->keys[0] : NULL;
}
/* Removes the first key. */
void sb_sort_heap_drop(sb_sort_heap *heap);
/* Removes the keys for whose messages `keeps` is false. */
void sb_sort_heap_filter(sb_sort_heap *heap, bool (*keeps)(void *context, uint64_t position), void *context);
/* Removes all keys, and frees their memory. */
void sb_sort_heap_clear(sb_sort_heap *heap);

#endif
