// SPDX-License-Identifier: Apache-2.0
/* A broker that contains every kind of object, in the state where one process has died and another one is stopped.
 *
 * Three processes create it, one after the other. The first declares and fills the queues, and leaves. The second is
 * killed while it holds objects of all kinds. The third holds messages, sleeps in lists, and is stopped, so that it
 * lives and does nothing while its memory is restored and damaged. None of them has threads, so the image is the same
 * each time.
 */
#ifndef FUZZ_IMAGE_H
#define FUZZ_IMAGE_H

#include "broker_fixture.h"

#define LONG_BODY 5000u
#define RUN_BODY (3u << 20)
#define ONE_HOUR UINT64_C(3600000000000)
#define MOST_SEGMENTS 6u

enum { PLAIN, RING, LIMITED, BYTES, LONG, TIMED, IDLE, CLOSED, LEASE, QUEUES };
typedef struct {
  const char *name;
  sb_settings settings;
} queue_kind;
extern const queue_kind KINDS[QUEUES];

/* One attachment at work, with what it has in hand. */
typedef struct {
  test_broker t;
  sb_queue *q[QUEUES];
  sb_consumer *consumer;
  sb_reservation reserved;
  sb_queue *reserved_in;
  uint64_t view;
  char *held; /* the record of a message */
  sb_queue *held_of;
} session;

typedef struct {
  uint8_t *memory, *copy; /* of the file as it is mapped, and as it was */
  uint64_t bytes;
} segment;
extern segment segments[MOST_SEGMENTS];
extern uint32_t segment_count;

extern char *records; /* where a message is copied to; as long as a call may ask for, not a byte longer */
#define RECORD_BYTES (sizeof(sb_record) + 65536u + SB_INLINE_BODY)

void make_image(test_broker *t, const char *name);
void restore(const test_broker *t);
void drop_image(test_broker *t);

/* ---- what a process does that comes to it ---- */

void enter(session *s);
void open_all(session *s);
void take_in_hand(session *s, int32_t priority);
/* Takes a message, unless it has one in hand. */
bool hold(session *s, sb_queue *q);
void view_held(session *s);
/* Puts a message with that id into the queue that remembers ids, and takes one. */
void put_with_id(session *s, char id);

#endif
