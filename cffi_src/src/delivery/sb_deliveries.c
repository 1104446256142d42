// SPDX-License-Identifier: Apache-2.0
#include "sb_deliveries.h"

#include <stdlib.h>

#define FIRST_ROOM 8u
#define MOST_ROOM (1u << 30)

static uint32_t link_of(const sb_deliveries *d, const sb_unacked *h) { return (uint32_t)(h - d->slots) + 1; }

static uint32_t *bucket_of(const sb_deliveries *d, uint64_t tag) {
  uint64_t mixed = tag * UINT64_C(0x9e3779b97f4a7c15); /* for few collisions, whatever tags are unacked */
  return &d->table[(uint32_t)(mixed >> 32) & (d->room - 1)];
}

/* ---- lists ---- */

static void insert_last(sb_deliveries *d, sb_unacked_list *list, sb_unacked *h) {
  uint32_t me = link_of(d, h);
  h->previous = list->last;
  h->next = 0;
  if (list->last != 0) {
    d->slots[list->last - 1].next = me;
  } else {
    list->first = me;
  }
  list->last = me;
  list->count++;
}

static void insert_first(sb_deliveries *d, sb_unacked_list *list, sb_unacked *h) {
  uint32_t me = link_of(d, h);
  h->next = list->first;
  h->previous = 0;
  if (list->first != 0) {
    d->slots[list->first - 1].previous = me;
  } else {
    list->last = me;
  }
  list->first = me;
  list->count++;
}

static void leave(sb_deliveries *d, sb_unacked_list *list, sb_unacked *h) {
  if (h->previous != 0) {
    d->slots[h->previous - 1].next = h->next;
  } else {
    list->first = h->next;
  }
  if (h->next != 0) {
    d->slots[h->next - 1].previous = h->previous;
  } else {
    list->last = h->previous;
  }
  list->count--;
}

/* ---- the table ---- */

static void enter_table(sb_deliveries *d, sb_unacked *h) {
  uint32_t *bucket = bucket_of(d, h->tag);
  h->chain = *bucket;
  *bucket = link_of(d, h);
}

static void leave_table(sb_deliveries *d, const sb_unacked *h) {
  uint32_t *link = bucket_of(d, h->tag), me = link_of(d, h);
  while (*link != me) link = &d->slots[*link - 1].chain;
  *link = h->chain;
}

sb_unacked *sb_deliveries_find(sb_deliveries *d, uint64_t tag) {
  if (d->room == 0 || tag == 0) {
    return NULL;
  }
  sb_unacked *h = sb_deliveries_at(d, *bucket_of(d, tag));
  while (h != NULL && h->tag != tag) h = sb_deliveries_at(d, h->chain);
  return h;
}

/* ---- room ---- */

static void free_slot(sb_deliveries *d, sb_unacked *h) {
  h->token = h->tag = 0;
  h->next = d->free;
  d->free = link_of(d, h);
}

static void copy_list(sb_deliveries *to, sb_unacked_list *list, const sb_deliveries *from, const sb_unacked_list *old) {
  for (const sb_unacked *h = sb_deliveries_at(from, old->first); h != NULL; h = sb_deliveries_at(from, h->next)) {
    sb_unacked *copy = &to->slots[to->row.count + to->given.count];
    *copy = *h;
    insert_last(to, list, copy);
    if (copy->tag != 0) enter_table(to, copy);
  }
}

static bool resize(sb_deliveries *d, uint32_t room) {
  sb_deliveries to = {.room = room, .last_tag = d->last_tag};
  to.slots = malloc(room * sizeof *to.slots);
  to.table = calloc(room, sizeof *to.table);
  if (to.slots == NULL || to.table == NULL) {
    free(to.slots);
    free(to.table);
    return false;
  }
  copy_list(&to, &to.row, d, &d->row);
  copy_list(&to, &to.given, d, &d->given);
  for (uint32_t i = room; i > to.row.count + to.given.count; i--) free_slot(&to, &to.slots[i - 1]);
  sb_deliveries_free(d);
  *d = to;
  return true;
}

bool sb_deliveries_reserve(sb_deliveries *d) {
  return d->free != 0 || (d->room < MOST_ROOM && resize(d, d->room == 0 ? FIRST_ROOM : 2 * d->room));
}

void sb_deliveries_trim(sb_deliveries *d) {
  uint32_t room = d->room, count = d->row.count + d->given.count;
  while (room > FIRST_ROOM && room / 8 > count) room /= 2;
  if (room < d->room) (void)resize(d, room); /* if that fails, `d` keeps its larger memory */
}

void sb_deliveries_free(sb_deliveries *d) {
  free(d->slots);
  free(d->table);
  *d = (sb_deliveries){.last_tag = d->last_tag};
}

/* ---- deliveries ---- */

static sb_unacked *take_slot(sb_deliveries *d, uint64_t token, struct sb_queue *q, struct sb_member *of) {
  sb_unacked *h = sb_deliveries_at(d, d->free);
  d->free = h->next;
  h->token = token;
  h->q = q;
  h->of = of;
  return h;
}

static uint64_t given(sb_deliveries *d, sb_unacked *h) {
  h->tag = ++d->last_tag;
  insert_last(d, &d->given, h);
  enter_table(d, h);
  return h->tag;
}

void sb_deliveries_pulled(sb_deliveries *d, uint64_t token, struct sb_queue *q, struct sb_member *of) {
  insert_last(d, &d->row, take_slot(d, token, q, of));
}

uint64_t sb_deliveries_got(sb_deliveries *d, uint64_t token, struct sb_queue *q) {
  return given(d, take_slot(d, token, q, NULL));
}

uint64_t sb_deliveries_give(sb_deliveries *d) {
  sb_unacked *h = sb_deliveries_at(d, d->row.first);
  leave(d, &d->row, h);
  return given(d, h);
}

static void leave_given(sb_deliveries *d, sb_unacked *h) {
  leave_table(d, h);
  leave(d, &d->given, h);
  h->tag = 0;
}

void sb_deliveries_take_back(sb_deliveries *d, sb_unacked *h) {
  if (h->tag == d->last_tag) d->last_tag--;
  leave_given(d, h);
  insert_first(d, &d->row, h);
}

void sb_deliveries_drop(sb_deliveries *d, sb_unacked *h) {
  if (h->tag != 0) {
    leave_given(d, h);
  } else {
    leave(d, &d->row, h);
  }
  free_slot(d, h);
}
