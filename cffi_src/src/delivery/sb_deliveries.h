// SPDX-License-Identifier: Apache-2.0
/* Deliveries: what a channel holds: pulled and not given to the application yet, or given and unacked.
 *
 * What: the first wait in a row, in the order they were pulled. Whoever takes the first of the row gives it the next
 * delivery tag: 1, 2, 3 ..., of which none is used twice, except that of the last one if it is put back. Given ones are
 * found by their tag, and followed in its order.
 *
 * Layout: places in one array, linked into the row, the given ones, or the free ones; and a table from tag to place.
 * Both grow and shrink with what is held: 52 to 420 bytes a delivery, nothing while there never was one.
 *
 * Invariants: a place is in one of the three lists. Links are numbers of places plus one.
 *
 * Ordering pairs: none; nothing is shared.
 *
 * Death: the holdings of the connection name the same messages.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_DELIVERIES_H
#define SB_DELIVERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sb_queue;
struct sb_member;

typedef struct {
  uint64_t token; /* the holding */
  uint64_t tag;   /* 0: in the row */
  struct sb_queue *q;
  struct sb_member *of; /* the consumer it was pulled for; NULL: it was taken by a get */
  uint32_t previous, next;
  uint32_t chain; /* the next one whose tag has the same hash */
} sb_held;

typedef struct {
  uint32_t first, last, count;
} sb_held_list;

typedef struct {
  sb_held *places;
  uint32_t *table; /* as long as `places` */
  uint32_t room, free;
  sb_held_list row, given;
  uint64_t last_tag;
} sb_deliveries;

/* Makes sure that there is a free place; false: this process has no memory for it. Moves what it holds. */
bool sb_deliveries_reserve(sb_deliveries *d);
/* Takes a free place: at the end of the row, ... */
void sb_deliveries_pulled(sb_deliveries *d, uint64_t token, struct sb_queue *q, struct sb_member *of);
/* ... or for something that is given at once; its tag. */
uint64_t sb_deliveries_got(sb_deliveries *d, uint64_t token, struct sb_queue *q);
/* The first of the row becomes the last given one; its tag. */
uint64_t sb_deliveries_give(sb_deliveries *d);
/* A given one becomes the first of the row; its tag is used again if it was the last. */
void sb_deliveries_take_back(sb_deliveries *d, sb_held *h);
/* A given one, NULL when there is none of that tag. */
sb_held *sb_deliveries_find(sb_deliveries *d, uint64_t tag);
/* Forgets one, wherever it is. */
void sb_deliveries_drop(sb_deliveries *d, sb_held *h);
/* After many were dropped: memory goes back. Moves what it holds. */
void sb_deliveries_trim(sb_deliveries *d);
void sb_deliveries_free(sb_deliveries *d);

static inline sb_held *sb_deliveries_at(const sb_deliveries *d, uint32_t link) {
  return link != 0 ? &d->places[link - 1] : NULL;
}

#endif
