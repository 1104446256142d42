// SPDX-License-Identifier: Apache-2.0
/* An IO thread that a case runs itself, without sleeping: the case defines what happens while it would sleep. */
#ifndef IO_THREAD_H
#define IO_THREAD_H

#include "consuming.h"
#include "sb_io.h"
#include "system.h"

#define MILLISECONDS UINT64_C(1000000)
#define LOWEST_SLEEP (500 * MILLISECONDS)
#define LONG_SLEEP (5000 * MILLISECONDS)

/* A target that notes what it is asked. It looks like a consumer whose acknowledgements are due, and is none. */
typedef struct fake_target {
  sb_consumer as_consumer; /* `target` is its first member */
  bool more, wants;        /* what it answers */
  uint64_t entry;          /* what it says to be overlooked, of that queue */
  const sb_queue *queue;
  void (*in_turn)(struct fake_target *f), (*looked)(struct fake_target *f); /* what it does, NULL: nothing */
  unsigned turns, wants_asked, overlooked_asked, signals;
  bool locked; /* the connection's lock was held whenever it was asked */
} fake_target;

fake_target *add_fake(sb_connection *c);
/* One that is not asked for what is overlooked, and that no thread waits for. */
fake_target *add_plain_fake(sb_connection *c);
/* A notifier tells of work for that target. */
void tell(sb_connection *c, uint32_t number);
/* The numbers of the fakes that had a turn, in order. */
extern uint32_t turn_of[64];
extern unsigned turns;

/* Runs the IO thread of that connection, as sb_connection_open prepared it. While it sleeps `during` is called with the
 * number of the sleep, from 1 on; the time is up unless that rings. In sleep number `sleeps` the connection is
 * closed. */
sb_status run_io(sb_connection *c, unsigned sleeps, void (*during)(unsigned sleep));
/* How long the IO thread would have slept, by number. */
extern uint64_t slept_ns[128];
/* The IO thread is rung, after this time. */
void ring_after(uint64_t ns);
unsigned io_word_state(const sb_connection *c);

#endif
