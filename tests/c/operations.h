// SPDX-License-Identifier: Apache-2.0
/* The operations inside which a process is killed or stopped, and what must be left of the messages then.
 *
 * An operation runs in a child, with a connection of the child, on the queue "q"; a second queue "other" exists, too.
 * Ids identify messages: 1 .. SETUP are in "q" before, the operation puts FRESH and the following ones, all other ids
 * are OTHERS.
 */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "broker_fixture.h"

#define SETUP 6u
#define OTHERS 7u
#define FINISHED \
  2u /* of an operation that leases: this many were put and taken before, so the sequence of id i is i + 1 */
#define FRESH 8u
#define MANY 10u
#define LONG 5000u /* bytes of a body that is read in place */
#define ID(i) (UINT64_C(1) << (i))

enum { NO_NEXT, NEXT_LOOKS, NEXT_PUTS };
enum { NOT_AGAIN, AGAIN_PUT, AGAIN_COMMIT };

typedef struct {
  const char *name;
  sb_settings settings;  /* of "q" */
  uint32_t messages;     /* lie there before */
  void (*prepare)(void); /* the child, before it is watched */
  void (*run)(void);
  /* Ids (bit i: id i) that must be left, and that may be left, while the operation is under way and after it came back. */
  uint64_t must, may, must_done, may_done;
  uint64_t must_beside;  /* must_done, where others had the messages in their hands meanwhile; 0: the same */
  uint64_t exactly;      /* number of messages that must be left in "q", 0: the sets say enough */
  uint64_t total;        /* number of messages that must be left in both queues together, 0: the sets say enough */
  uint64_t both;         /* ids that are left in both queues or in none */
  uint64_t instead;      /* ids that are left exactly if those are not */
  uint32_t many;         /* number of further queues, "t0" and so on, that have what is in both */
  uint64_t twice;        /* ids that may be left in both queues */
  uint64_t bytes;        /* of each message that lies there before, 0: 64 */
  uint32_t chunks;       /* of memory, 0: plenty */
  bool reaps;            /* a process was killed before, and the operation reaps it */
  const char *dies_at;   /* at that crash point: a build without hooks leaves the operation out */
  void (*dies_in)(void); /* doing this, NULL: in a transaction */
  unsigned next;         /* before anybody is reaped another process looks, or puts: the bound holds */
  bool leases;           /* "other" KEEPS; who was killed before was moving messages there */
  bool resizes;          /* the operation changes the limits of the queue */
  bool deletes;          /* it may delete the queue */
  bool deletes_beside;   /* the same, where others had the messages in their hands meanwhile: what is held counts not */
  bool disturbed;   /* others worked while it stood still, and so did upkeep: what both touched may be to be mended */
  bool keeps_group; /* who stands still keeps a message group from all others: only kills are tried */
  unsigned again;   /* after the reaping another process puts FRESH with its id once more: AGAIN_... */
  bool takes_all;   /* while it is under way there may be no memory left for a put */
  bool has_store;   /* for the first leaf of "q": its messages may leave the memory */
  bool slow;        /* a hundred thousand instructions, or nearly what another one does */
} operation;

extern const operation OPERATIONS[];
extern const size_t OPERATION_COUNT;

/* Makes this process, a child, one that can run operations: attached, connected, both queues open. */
void become_child(const test_broker *t);
/* Gets, publishes to both queues, acknowledges: all in one commit; or publishes to many. */
void take_part_in_a_transaction(bool with_many);
/* A process that comes to that crash point ends there, NULL: none does. */
extern const char *die_at;
/* Takes, returns, puts, consumes, reserves: for a process that is to die with all sorts of things in hand. */
void take_all_sorts_of_things(void);

#endif
