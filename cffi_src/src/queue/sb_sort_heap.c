// SPDX-License-Identifier: Apache-2.0
#include "sb_sort_heap.h"

#include <stdlib.h>

#include "sb_operators.h"
#include "sb_program.h"
#include "sb_selector.h"

#define START 8u      /* bytes of a string that a key has itself */
#define BYTES_HEAD 5u /* encoded bytes begin with their type letter, and a length of 4 bytes */
#define LEAST_ROOM 64u

/* ---- keys ---- */

static sb_status copy_string(const uint8_t *at, uint32_t length, sb_sort_key *key) {
  uint32_t inside = length < START ? length : START;
  key->length = length;
  key->is.start = inside == 0 ? 0 : sb_value_big_endian(at, inside) << 8 * (START - inside);
  if (length > START) {
    key->rest = malloc(length - START);
    if (key->rest == NULL) return SB_NO_MEMORY;
    sb_peek_bytes(key->rest, at + START, length - START);
  }
  return SB_OK;
}

static sb_status key_of_value(const sb_value *v, sb_sort_key *key) {
  switch (v->kind) {
    case SB_VALUE_BOOLEAN:
    case SB_VALUE_INTEGER:
      key->rank = SB_SORT_NUMBER;
      key->is.integer = v->kind == SB_VALUE_BOOLEAN ? v->is.boolean : v->is.integer;
      return SB_OK;
    case SB_VALUE_DOUBLE:
      if (v->is.number != v->is.number) return SB_OK;
      key->rank = SB_SORT_NUMBER;
      key->is_double = true;
      key->is.number = v->is.number;
      return SB_OK;
    case SB_VALUE_STRING: key->rank = SB_SORT_STRING; return copy_string(v->at, v->length, key);
    case SB_VALUE_OTHER:
      if (v->length < BYTES_HEAD || sb_peek_byte(v->at) != 'x') return SB_OK;
      key->rank = SB_SORT_BYTES;
      return copy_string(v->at + BYTES_HEAD, v->length - BYTES_HEAD, key);
    default: return SB_OK;
  }
}

static sb_status read_key(const sb_queue *q, sb_properties *p, sb_sort_key *key) {
  sb_value v;
  bool found = p->length > 0 && sb_properties_header(p, q->sort_key, q->sort_key_length, &v);
  return found ? key_of_value(&v, key) : SB_OK;
}

/* Apart, for its stack. */
static __attribute__((noinline)) sb_status read_in_parts(const sb_queue *q, uint32_t slot, const sb_message_shm *m,
                                                         sb_sort_key *key) {
  char memory[SB_MAX_PREFIX];
  sb_properties p;
  return sb_selector_properties(q->c->b, slot, m, memory, &p) ? read_key(q, &p, key) : SB_OK;
}

sb_status sb_sort_key_read(const sb_queue *q, uint32_t slot, const sb_message_shm *m, uint64_t position,
                           sb_sort_key *key) {
  sb_properties p;
  *key = (sb_sort_key){.position = position, .rank = SB_SORT_NONE};
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    return read_in_parts(q, slot, m, key);
  }
  return sb_selector_properties(q->c->b, slot, m, NULL, &p) ? read_key(q, &p, key) : SB_OK;
}

void sb_sort_key_free(sb_sort_key *key) {
  free(key->rest);
  key->rest = NULL;
}

static int order_of_numbers(const sb_sort_key *left, const sb_sort_key *right) {
  if (!left->is_double && !right->is_double) {
    return left->is.integer < right->is.integer ? -1 : left->is.integer > right->is.integer;
  }
  sb_value l = left->is_double ? sb_value_double(left->is.number) : sb_value_integer(left->is.integer);
  sb_value r = right->is_double ? sb_value_double(right->is.number) : sb_value_integer(right->is.integer);
  return sb_operators_compare(SB_OP_LESS, &l, &r) == SB_TRUE      ? -1
         : sb_operators_compare(SB_OP_GREATER, &l, &r) == SB_TRUE ? 1
                                                                  : 0;
}

static int order_of_strings(const sb_sort_key *left, const sb_sort_key *right) {
  if (left->is.start != right->is.start) {
    return left->is.start < right->is.start ? -1 : 1;
  }
  uint32_t shorter = left->length < right->length ? left->length : right->length;
  int order = shorter > START ? memcmp(left->rest, right->rest, shorter - START) : 0;
  return order != 0 ? order : left->length < right->length ? -1 : left->length > right->length;
}

bool sb_sort_key_before(const sb_sort_key *left, const sb_sort_key *right) {
  if (left->rank != right->rank) {
    return left->rank < right->rank;
  }
  int order = left->rank == SB_SORT_NONE     ? 0
              : left->rank == SB_SORT_NUMBER ? order_of_numbers(left, right)
                                             : order_of_strings(left, right);
  return order != 0 ? order < 0 : left->position < right->position;
}

/* ---- the heap ---- */

static bool make_room(sb_sort_heap *heap) {
  size_t room = heap->room == 0 ? LEAST_ROOM : heap->room * 2;
  sb_sort_key *keys = realloc(heap->keys, room * sizeof *keys);
  if (keys == NULL) {
    return false;
  }
  heap->keys = keys;
  heap->room = room;
  return true;
}

/* Puts a key behind the others, which are a heap, then up to its place. */
static void push(sb_sort_heap *heap, sb_sort_key key) {
  size_t at = heap->count++;
  while (at > 0 && sb_sort_key_before(&key, &heap->keys[(at - 1) / 2])) {
    heap->keys[at] = heap->keys[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap->keys[at] = key;
}

sb_status sb_sort_heap_add(sb_sort_heap *heap, sb_sort_key key) {
  if (heap->count == heap->room && !make_room(heap)) {
    sb_sort_key_free(&key);
    return SB_NO_MEMORY;
  }
  push(heap, key);
  return SB_OK;
}

void sb_sort_heap_filter(sb_sort_heap *heap, bool (*keeps)(void *context, uint64_t position), void *context) {
  size_t count = heap->count;
  heap->count = 0;
  for (size_t i = 0; i < count; i++) { /* the keys that were kept lie in front of key i */
    sb_sort_key key = heap->keys[i];
    if (keeps(context, key.position)) {
      push(heap, key);
    } else {
      sb_sort_key_free(&key);
    }
  }
}

void sb_sort_heap_drop(sb_sort_heap *heap) {
  sb_sort_key_free(&heap->keys[0]);
  sb_sort_key last = heap->keys[--heap->count];
  size_t at = 0, child;
  while ((child = 2 * at + 1) < heap->count) {
    if (child + 1 < heap->count && sb_sort_key_before(&heap->keys[child + 1], &heap->keys[child])) child++;
    if (!sb_sort_key_before(&heap->keys[child], &last)) {
      break;
    }
    heap->keys[at] = heap->keys[child];
    at = child;
  }
  if (heap->count > 0) heap->keys[at] = last;
}

void sb_sort_heap_clear(sb_sort_heap *heap) {
  for (size_t i = 0; i < heap->count; i++) sb_sort_key_free(&heap->keys[i]);
  free(heap->keys);
  *heap = (sb_sort_heap){.keys = NULL};
}
