// SPDX-License-Identifier: Apache-2.0
/* The actors, their operations on messages, and the account that is compared after all actors ended.
 *
 * A player is a process: it has an entry in the table of processes, its locks, and a connection. All players are in
 * this one process, on one mapping. An actor is a thread of a player. A player that dies loses its locks, as a process
 * does.
 */
#ifndef CAST_H
#define CAST_H

#include "../broker_fixture.h"
#include "../harness.h"
#include "sb_channel.h"
#include "sb_consumer.h"
#include "scheduler.h"

#define PLAYERS 5u
#define KEEPER (PLAYERS - 1) /* does what follows a run, and never acts in one */
#define LAST (KEEPER - 1)    /* reaps */
#define MESSAGES 48u
#define PRODUCED_BY(id) ((id) / 8) /* messages 1 to 7 come from one producer, 8 to 15 from the next */

typedef struct {
  test_broker t;
  sb_queue *q, *other;
  sb_consumer *consumer;
  sb_channel *channel, *second_channel;
  uint32_t subscription;
  bool consumes, waits; /* its channel may consume; an actor waits in a get of its channel */
  char *first, *second; /* records */
  int lock_fd, topology_fd;
} player;

extern player *players; /* part of the world */
extern unsigned player_of[ACTORS];

/* Broker, players, their queues "q" and "other"; all of it is part of the world. */
void cast_make(const char *name, const sb_settings *settings);
void cast_remove(void);
/* The player of the current actor; between runs the keeper, or the player that `act_as` named. */
player *me(void);
void act_as(unsigned which);
/* Its process ends, with all its threads; other processes find its locks free. */
void player_dies(unsigned which);
bool player_is_dead(unsigned which);
/* Forgets the run before, and gives the dead their locks back. */
void cast_begin(void);
/* After a run, before the memory goes back to what it was. */
void cast_end(void);

/* ---- what actors do; each is noted ---- */

bool put_message(uint64_t id);
bool put_message_with(uint64_t id, uint64_t bytes, const sb_put_options *options);
void put_messages(uint64_t first, unsigned count); /* in one call */
/* A commit to both queues; what lies in the other one is accounted for as another message, of that id plus this. */
#define IN_OTHER 32u
sb_status commit_message(uint64_t id, uint64_t bytes, const sb_settlement *ends, uint32_t count);
/* The same with the acknowledgement of a message that is held: gone exactly if the new one is there. */
sb_status commit_with_ack(uint64_t id, char *record);
/* The holding of a record's message. */
uint64_t token_of_record(const char *record);
/* A put of another kind: it is tried, or done. */
void note_put(uint64_t id, bool done);
/* What some producer put last; with two of them, either is the newest. */
bool newest_was_taken(void);
/* The id of what came, 0 for none. */
uint64_t get_message(sb_queue *q, char *record);
uint64_t get_and_ack(sb_queue *q);
uint64_t wait_for_message(sb_queue *q, char *record);
uint64_t next_message(char *record); /* of the consumer's row */
void ack(sb_queue *q, char *record);
void nack(sb_queue *q, char *record);
void ack_next(char *record); /* by the consumer */
uint64_t next_delivery(sb_channel *channel, char *record);
uint64_t wait_for_delivery(sb_channel *channel, char *record); /* a get */
void ack_delivery(sb_channel *channel, char *record);
/* From now on this message may be gone, and it is all right. */
void may_go(uint64_t id);
void everything_may_go(void);
/* What a consumer was given and never looked at is marked when it comes again. */
void consumers_may_return(void);
/* Two may move messages: the later one comes first, perhaps. */
void any_order(void);

/* Every dead process is reaped. */
void reap(void);

/* ---- when no actor runs any more ---- */

/* After a death, runs the reaper and the housekeeper; then `verify`, unless it is NULL; then all living players
 * disconnect, and what is left is compared with what was noted. `bound`: at most this many are ready, -1: any number.
 * `idle`: an actor may sleep although messages are ready. */
void cast_settle(void (*verify)(void), int64_t bound, bool idle);
/* One tick, which knows what the one before saw; and enough of them that hints are right, if no process works. */
void have_tick(void);
void come_to_rest(void); /* the next tick sets hints right, if nothing happens before */
void have_ticks(void);
/* Messages ready in "q"; an actor that asks takes no step. */
uint64_t ready_messages(void);

#endif
