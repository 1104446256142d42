// SPDX-License-Identifier: Apache-2.0
/* Stored queues whose leaves leave the memory, and come back: the case plays the storekeeper, and keeps the rows. Leaves
 * have numbers: 0 is the first one of the queue. */
#ifndef PAGING_H
#define PAGING_H

#include "cases.h"
#include "sb_departure.h"
#include "sb_gather.h"

#define STORED ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE})
#define LEAF 64u

/* A queue of a broker with a store, with that many messages. The functions below are about the queue that was begun last. */
sb_queue *begin_stored(sb_settings settings, unsigned messages);
/* The same for another ring of the queue: that of a priority. */
void look_at_lane(unsigned number);
const sb_ring *stored_ring(void);
sb_leaf_ref leaf_numbered(unsigned n);
sb_word *link_to(unsigned n);
uint64_t link_of(unsigned n);
/* The first sequence number of the leaf. */
uint64_t sequence_of(unsigned n);
uint64_t paging_of(unsigned n);

/* The store gets everything: the rows of all leaves that are in the memory, and the changes. */
void store_everything(void);
/* The row of the leaf. */
const sb_stored_row *row_of(unsigned n);
/* Lets the leaf leave, if it may; true: it has left. */
bool let_leave(unsigned n);
/* Puts `messages`, stores everything, and lets leaf 0 leave. */
sb_queue *begin_left(sb_settings settings, unsigned messages);
/* Lets it come back by the row that the store has. */
sb_status let_come_back(unsigned n);
/* Gets a message, and lets come back what it needs; its id, 0: there is none. */
uint64_t get_loading(char *record, bool auto_ack);
/* The state of the slot that the word of a cell names. */
unsigned state_of_slot(uint64_t word);

#endif
