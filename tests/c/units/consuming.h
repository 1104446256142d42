// SPDX-License-Identifier: Apache-2.0
/* Consumers of up to three queues, the messages that they hold, and the states of their nodes. */
#ifndef CONSUMING_H
#define CONSUMING_H

#include "calls.h"
#include "cases.h"
#include "sb_consumer.h"

#define ALONE 1u                      /* a batch of one acknowledgement */
#define PATIENCE UINT64_C(1000000000) /* how long a batch of acknowledgements waits */

extern sb_queue *queues[3]; /* NULL until it is used */

/* Declares and opens it. */
sb_queue *new_queue(const char *name, sb_settings settings);
/* The queue of that index; it is made when it is used for the first time. */
sb_queue *queue_number(unsigned which);
/* Of the first `count` queues. */
sb_consumer *consume(uint32_t count, uint32_t prefetch, int32_t priority, uint32_t batch);
void put_some(unsigned which, uint64_t first, uint64_t last);
/* Messages of that queue that are ready. */
uint64_t ready_in(unsigned which);
void remove_queue(unsigned which);

sb_node_shm *node_shm(uint32_t node);
uint32_t node_epoch(uint32_t node);
/* Moves the node unless it is in that state already. */
void set_node_state(uint32_t node, unsigned state);
sb_node_shm *consumer_node(const sb_consumer *k, uint32_t i);
unsigned consumer_state(const sb_consumer *k, uint32_t i);
void set_consumer_state(const sb_consumer *k, uint32_t i, unsigned state);
/* A node of the test's own connection; SB_NODE_DIRECT is woken by its own word. */
uint32_t make_node(uint32_t queue, int32_t priority, uint32_t flags, uint32_t prefetch, unsigned state);

uint32_t in_row(const sb_consumer *k);
uint32_t place_in_row(const sb_consumer *k, uint64_t i);
uint64_t id_in_row(const sb_consumer *k, uint64_t i);
/* The application takes the first message of the row, and does not settle it. Returns its place. */
uint32_t hand_out(sb_consumer *k);
uint32_t local_of(const sb_consumer *k);

#endif
