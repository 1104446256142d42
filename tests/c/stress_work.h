// SPDX-License-Identifier: Apache-2.0
/* The work of the threads of stress.c, and the oracle to which they report each message that they settled. */
#ifndef STRESS_WORK_H
#define STRESS_WORK_H

#include "broker_fixture.h"

enum { JOBS, MOVED, LIMITED, LONG, RING, QUEUES };
typedef struct {
  const char *name;
  sb_settings settings;
} queue_kind;
extern const queue_kind KINDS[QUEUES];

/* What a thread works with. Several may share a connection and its handles. */
typedef struct {
  test_broker t;
  sb_queue *q[QUEUES];
  uint64_t random;
  char *buffer;
} worker;

extern uint64_t amount; /* messages of each producer */
extern _Atomic uint64_t next_id;
extern _Atomic uint64_t producing; /* how many are at it */
extern _Atomic uint8_t *settled;   /* by id: how often */
extern _Atomic bool failed;

/* Printed immediately by the first thread that calls it; the other threads run to their end. */
__attribute__((format(printf, 1, 2))) void fail(const char *format, ...);

void join_all(worker *w);

/* Each until it has put its amount, */
void produce_jobs(worker *w);
void produce_limited(worker *w);
void produce_long(worker *w);
void produce_ring(worker *w);
void come_and_go(worker *w); /* connections, queues and consumers */
void configure(worker *w);   /* limits that change beside the traffic */
/* or until all that was put is settled. */
void take(worker *w);
void take_batches(worker *w);
void take_waiting(worker *w);
void consume(worker *w);
void move(worker *w);
void browse(worker *w);
void examine(worker *w); /* what the doctor finds beside traffic may be under way: it only reads */
void swell(worker *w);   /* memory of pages, which is memory of bodies again when they are gone */
void keep_house(worker *w);
void keep_house_of(worker *w, sb_queue_memory memories[QUEUES]); /* once */

#endif
