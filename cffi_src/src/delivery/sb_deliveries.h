// SPDX-License-Identifier: Apache-2.0
/* Deliveries: the messages that a channel holds. They wait in its row, or were given to the application and are
 * unacked.
 *
 * What: pulled messages wait in the row, in the order in which they were pulled. Giving the first message of the row
 * to the application assigns the next delivery tag: 1, 2, 3 ... No tag is used twice, except the last one if its
 * message is put back. A message is *given* while the application has it, unacked. Given messages are found by their
 * tag, and listed in the order of their tags.
 *
 * Layout: slots in one array, each linked into one of three lists: the row, the given messages, the free slots; and a
 * hash table from tag to slot. Both grow when no slot is free. They shrink when the application settles deliveries:
 * then they have 52 to 416 bytes for each delivery that is left, and 416 bytes if none is left. They have no memory
 * before the channel first tries to take a message.
 *
 * Invariants: each slot is in exactly one of the three lists. A link (`first`, `next`, `chain` ...) is the number of a
 * slot plus one; 0 = none.
 *
 * Ordering pairs: none; nothing is shared.
 *
 * Death: nothing is left here, since all of this is process-local. The reaper finds the same messages in the holdings
 * of the connection.
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
  uint64_t token; /* of the holding */
  uint64_t tag;   /* 0 = in the row */
  struct sb_queue *q;
  struct sb_member *of; /* the consumer that the message was pulled for; NULL: a get took it */
  uint32_t previous, next;
  uint32_t chain; /* the next delivery whose tag has the same hash */
} sb_unacked;

typedef struct {
  uint32_t first, last, count;
} sb_unacked_list;

typedef struct {
  sb_unacked *slots;
  uint32_t *table; /* has as many entries as `slots` */
  uint32_t room, free;
  sb_unacked_list row, given;
  uint64_t last_tag;
} sb_deliveries;

/* Makes sure that there is a free slot. False: this process has no memory, or there are 2^30 slots. Invalidates
 * pointers to deliveries. */
bool sb_deliveries_reserve(sb_deliveries *d);
/* Puts a pulled message into a free slot, at the end of the row. */
void sb_deliveries_pulled(sb_deliveries *d, uint64_t token, struct sb_queue *q, struct sb_member *of);
/* Puts a message that a get took into a free slot, and appends it to the given messages. Returns its new tag. */
uint64_t sb_deliveries_got(sb_deliveries *d, uint64_t token, struct sb_queue *q);
/* Moves the first message of the row to the end of the given messages. Returns its new tag. The row must not be
 * empty. */
uint64_t sb_deliveries_give(sb_deliveries *d);
/* Makes a given message the first of the row. If its tag was the last one, the tag is used again. */
void sb_deliveries_take_back(sb_deliveries *d, sb_unacked *h);
/* Finds a message by its tag among those given to the application; NULL: there is none. */
sb_unacked *sb_deliveries_find(sb_deliveries *d, uint64_t tag);
/* Removes a message from the row, or from the given messages, and frees its slot. */
void sb_deliveries_drop(sb_deliveries *d, sb_unacked *h);
/* Frees memory if only few of the slots are in use. Invalidates pointers to deliveries. */
void sb_deliveries_trim(sb_deliveries *d);
void sb_deliveries_free(sb_deliveries *d);

static inline sb_unacked *sb_deliveries_at(const sb_deliveries *d, uint32_t link) {
  return link != 0 ? &d->slots[link - 1] : NULL;
}

#endif
