// SPDX-License-Identifier: Apache-2.0
#include "sb_target.h"

#include "sb_slab.h"
#include "sb_wait.h"

static uint32_t bit_of(const sb_target *t) { return t->number % SB_MAX_TARGETS; }

static uint32_t new_number(sb_connection *c) {
  if (c->target_count >= SB_MAX_TARGETS) {
    return c->next_target++;
  }
  uint32_t bit = 0;
  while (c->targets[bit] != NULL) bit++;
  return bit;
}

void sb_target_add(sb_target *t) {
  sb_connection *c = t->c;
  t->number = new_number(c);
  t->next = NULL;
  t->listed = true;
  sb_target **link = &c->targets[bit_of(t)];
  while (*link != NULL) link = &(*link)->next;
  *link = t;
  c->target_count++;
  if (bit_of(t) >= c->target_bits) c->target_bits = bit_of(t) + 1;
}

void sb_target_remove(sb_target *t) {
  if (!t->listed) {
    return;
  }
  sb_target **link = &t->c->targets[bit_of(t)];
  while (*link != t) link = &(*link)->next;
  *link = t->next;
  t->listed = false;
  t->c->target_count--;
}

sb_target *sb_target_after(const sb_connection *c, const sb_target *t) {
  if (t != NULL && t->next != NULL) {
    return t->next;
  }
  for (uint32_t bit = t == NULL ? 0 : bit_of(t) + 1; bit < c->target_bits; bit++) {
    if (c->targets[bit] != NULL) return c->targets[bit];
  }
  return NULL;
}

void sb_target_ring_io(sb_connection *c) {
  if (c->io_node != 0) {
    (void)sb_wake_ring(&((sb_node_shm *)sb_slot_at(c->b, c->io_node))->wake);
  }
}

void sb_target_ring_housekeeper(sb_broker *b) {
  sb_node_shm *keeper = sb_slab_object(b, SB_LOAD(&b->header->housekeeper_waiter, SB_ACQUIRE), SB_KIND_NODE);
  if (keeper != NULL) (void)sb_wake_ring(&keeper->wake);
}
