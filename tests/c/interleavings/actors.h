// SPDX-License-Identifier: Apache-2.0
/* Actors: connections of one process to one queue, and their operations on messages. */
#ifndef ACTORS_H
#define ACTORS_H

#include "../broker_fixture.h"
#include "sb_consumer.h"

#define RING(n) {{(n), -1, -1, 0, -1, -1}, 0}

typedef struct {
  sb_connection *c;
  sb_queue *q;
} actor;

extern test_broker t;
extern actor one, two, three, keeper; /* the step of `one` is interrupted */
extern char *buffer, *held_a, *held_b;
extern uint64_t got; /* what another actor took meanwhile */
extern sb_consumer *waiting;
extern sb_queue_memory memory; /* of the housekeeper */

void join(actor *a);
void put_by(actor *a, uint64_t id);
void put_small_by(actor *a, uint64_t id);
uint64_t take(actor *a);
/* What is left, the oldest first, as a number: 234 are the messages 2, 3 and 4. */
uint64_t left(void);
void expect_left(uint64_t should);
void expect_at_most(int64_t bound);
unsigned state_of(uint32_t node);
sb_consumer *consume(actor *a, int32_t priority);
uint64_t next(sb_consumer *k);
bool told(const sb_consumer *k);
bool asleep(sb_consumer *k);
void tick(void);

/* Fills the broker until this many chunks are left; and removes what fills it. */
void fill_up_to(uint32_t left);
void empty_again(void);

#endif
