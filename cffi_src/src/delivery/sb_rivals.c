// SPDX-License-Identifier: Apache-2.0
#include "sb_rivals.h"

#include <stdlib.h>

#include "sb_chunk.h"
#include "sb_slab.h"

/* ---- the part of the rival ---- */

sb_status sb_rivals_announce(sb_connection *c, uint32_t node, const sb_choice *choice, uint64_t *token) {
  sb_node_shm *n = sb_slot_at(c->b, node);
  uint32_t slot;
  uint64_t gen;
  *token = 0;
  if (choice->no_local) (void)SB_OR(&n->flags, SB_NODE_NO_LOCAL, SB_RELAXED);
  if (choice->wish == NULL) {
    return SB_OK;
  }
  sb_status status = sb_holding_take(c, token);
  if (status == SB_OK) {
    status = sb_slab_alloc(c, sb_class_for(c->b, choice->wish->program.length), *token, &slot, &gen);
    if (status != SB_OK) sb_holding_give(c, *token);
  }
  if (status != SB_OK) {
    *token = 0;
    return status;
  }
  memcpy(sb_slot_at(c->b, slot), choice->wish->program.code, choice->wish->program.length);
  SB_STORE(&n->wish, slot, SB_RELAXED);
  SB_STORE(&n->wish_length, choice->wish->program.length, SB_RELAXED);
  SB_STORE(&n->wish_gen, gen, SB_RELAXED); /* relaxed: the move of the node publishes them, and the program */
  return SB_OK;
}

void sb_rivals_withdraw(sb_connection *c, uint64_t token) {
  if (token != 0) {
    sb_slab_free_now(c->b, sb_holding_slot(SB_LOAD(&sb_holding_at(c->b, token)->what, SB_RELAXED)));
    sb_holding_give(c, token);
  }
}

/* Notifies the NON_ACQUIRING nodes of lower priorities. */
static void tell_choosy_below(sb_queue *q, int32_t priority) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  if (SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) <= 0 ||
      !sb_ring_open(q->c->b, q->slot, SB_RING_NON_ACQUIRING, &list)) {
    return;
  }
  while ((node = sb_nodes_next(q->c, &list, SB_NODE_NON_ACQUIRING, &position)) != 0) {
    const sb_node_shm *n = sb_slot_at(q->c->b, node);
    if (SB_LOAD(&n->priority, SB_RELAXED) < priority) sb_notify_node(q->c->b, node);
  }
}

void sb_rivals_left(sb_queue *q, int32_t priority) {
  sb_level_cursor at = sb_levels_of(q->shm);
  const sb_consumer_level_shm *first = sb_level_next(q->c->b, &at);
  if (q->groups != NULL || first == NULL || sb_level_next(q->c->b, &at) == NULL) {
    return; /* all consumers have one priority */
  }
  tell_choosy_below(q, priority);
  sb_notify_held_back_below(q, priority);
  if (SB_LOAD(&q->shm->interested, SB_SEQ_CST) > 0 && sb_notify_looks_ready(q)) { /* P33 */
    (void)sb_notify_one(q->c, q->slot, false);
  }
}

/* ---- the part of the others ---- */

static void drop(sb_rival *r) {
  free(r->wish);
  r->wish = NULL;
}

void sb_rivals_forget(sb_choice *choice) {
  for (uint32_t i = 0; i < choice->rivals.count; i++) drop(&choice->rivals.list[i]);
  free(choice->rivals.list);
  choice->rivals = (sb_rivals){.list = NULL};
}

/* Copies the program of a node. SB_EMPTY: there is none any more, or it is damaged. */
static sb_status copy_program(sb_broker *b, const sb_node_shm *n, sb_rival *r) {
  uint32_t slot = SB_LOAD(&n->wish, SB_RELAXED), length = SB_LOAD(&n->wish_length, SB_RELAXED);
  uint64_t gen = SB_LOAD(&n->wish_gen, SB_RELAXED);
  r->wish = NULL;
  if (slot == 0) {
    return SB_OK;
  }
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot) || length == 0 || length > SB_PROGRAM_BYTES ||
      length > sb_slab_slot_bytes(b, slot)) {
    return SB_EMPTY;
  }
  r->wish = malloc(sizeof *r->wish + length);
  if (r->wish == NULL) {
    return SB_NO_MEMORY;
  }
  sb_peek_bytes(r->wish->code, sb_slot_at(b, slot), length);
  if (sb_slot_gen(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE)) != gen ||
      !sb_program_open(r->wish->code, length, &r->wish->program)) {
    drop(r);
    return SB_EMPTY;
  }
  return SB_OK;
}

/* Looks at a node of the list. SB_EMPTY: it is no rival. */
static sb_status look_at(sb_queue *q, uint32_t node, int32_t priority, const sb_rivals *known, sb_rival *r) {
  const sb_node_shm *n = sb_slot_at(q->c->b, node);
  uint64_t word = SB_LOAD(&n->word, SB_SEQ_CST); /* P33 */
  if (sb_node_state(word) != SB_NODE_NON_ACQUIRING || SB_LOAD(&n->priority, SB_RELAXED) <= priority) {
    return SB_EMPTY;
  }
  for (uint32_t i = 0; i < known->count; i++) {
    if (known->list[i].node == node && known->list[i].word == word) {
      *r = known->list[i];
      known->list[i].wish = NULL; /* moved */
      known->list[i].node = 0;
      return SB_OK;
    }
  }
  *r = (sb_rival){.node = node,
                  .word = word,
                  .connection = sb_node_conn(word),
                  .no_local = (SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_NO_LOCAL) != 0};
  sb_status status = copy_program(q->c->b, n, r);
  if (status == SB_OK && SB_LOAD(&n->word, SB_SEQ_CST) != word) {
    drop(r);
    status = SB_EMPTY;
  }
  return status;
}

static bool make_room(sb_rivals *rivals) {
  uint32_t room = rivals->room == 0 ? 4 : rivals->room * 2;
  sb_rival *list = realloc(rivals->list, room * sizeof *list);
  if (list == NULL) {
    return false;
  }
  rivals->list = list;
  rivals->room = room;
  return true;
}

/* True if all rivals of the earlier list are in the new one, where look_at moved them. */
static bool all_moved(const sb_rivals *earlier) {
  uint32_t i = 0;
  while (i < earlier->count && earlier->list[i].node == 0) i++;
  return i == earlier->count;
}

sb_status sb_rivals_find(sb_queue *q, int32_t priority, sb_choice *choice) {
  sb_choice earlier = {.rivals = choice->rivals};
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  sb_status status = SB_OK;
  choice->rivals = (sb_rivals){.list = NULL};
  if (!sb_ring_open(q->c->b, q->slot, SB_RING_NON_ACQUIRING, &list)) {
    status = SB_DELETED;
  }
  while ((status == SB_OK || status == SB_EMPTY) &&
         (node = sb_nodes_next(q->c, &list, SB_NODE_NON_ACQUIRING, &position)) != 0) {
    sb_rival r;
    status = look_at(q, node, priority, &earlier.rivals, &r);
    if (status != SB_OK) continue;
    if (choice->rivals.count == choice->rivals.room && !make_room(&choice->rivals)) {
      drop(&r);
      status = SB_NO_MEMORY;
    } else {
      choice->rivals.list[choice->rivals.count++] = r;
    }
  }
  if (status == SB_EMPTY) status = SB_OK;
  if (status != SB_OK || !all_moved(&earlier.rivals)) { /* it has passed messages that it may take now */
    choice->cursor = SB_LOAD(&q->shm->head, SB_ACQUIRE);
    memset(choice->others, 0, sizeof choice->others);
    sb_sorted_free(&choice->sorted);
  } else if (choice->rivals.count > earlier.rivals.count) {
    sb_sorted_free(&choice->sorted); /* its index has messages that a new rival wants */
  }
  sb_rivals_forget(&earlier);
  return status;
}
