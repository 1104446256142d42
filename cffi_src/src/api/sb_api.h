// SPDX-License-Identifier: Apache-2.0
/* API: the functions of shmbroker.cdef.h, shared helpers.
 *
 * What: most public calls check the handle (fork, close), take the connection's lock, compose functions of the core,
 * and return a status. Calls about a whole broker, and calls that only read hints or the directory, take no lock.
 * Process-local memory (handles, the consumers' rows of pulled messages) is allocated in this layer; below it only
 * channels allocate (sb_round_robin.c, sb_deliveries.c).
 *
 * Layout, Invariants, Ordering pairs, Death: none here; the layers below declare all that is shared.
 *
 * Concurrency: any thread. A handle must outlive its calls, which the Python side ensures.
 */
#ifndef SB_API_H
#define SB_API_H

#include "sb_directory.h"
#include "sb_row.h"
#include "sb_duplicates.h"
#include "sb_grace.h"
#include "sb_groups.h"
#include "sb_handles.h"
#include "sb_housekeeping.h"
#include "sb_io.h"
#include "sb_liveness.h"
#include "sb_parts.h"
#include "sb_reading.h"
#include "sb_release.h"
#include "sb_scatter.h"
#include "sb_selector.h"
#include "sb_slab.h"
#include "sb_topology.h"
#include "sb_turns.h"
#include "sb_view.h"
#include "sb_wait.h"

#define SB_UNLOCKED_COPY 16384u /* bytes; a put or a commit drops the connection's lock to copy a longer body */
#define SB_TAG_ACK_SLOT 40
#define SB_TAG_TOKEN ((UINT64_C(1) << SB_TAG_ACK_SLOT) - 1)

/* SB_OK if calls may use the connection. After a fork or a close, this check reads no shared memory. */
static inline sb_status sb_usable(const sb_connection *c) {
  if (sb_closed(c)) { /* first: the broker of a closed connection may be unmapped */
    return SB_CLOSED;
  }
  return sb_forked(c->b) ? SB_FORKED : SB_LOAD(&c->b->header->closing, SB_RELAXED) != 0 ? SB_STOPPING : SB_OK;
}
sb_status sb_api_enter(sb_connection *c); /* as sb_usable; takes the connection's lock if it returns SB_OK */
static inline void sb_api_leave(sb_connection *c) { sb_unlock(c); }
/* The pid of the process in process slot `process`, if it is attached; else 0. */
int32_t sb_api_process_pid(sb_broker *b, uint32_t process);
/* The number of bytes of the prefix: message header, exchange, key, properties. Other bytes may lie between the prefix
 * and the body (sb_api_body_offset). */
static inline uint64_t sb_api_prefix_bytes(const sb_put_options *o) {
  return sizeof(sb_message_shm) + o->exchange_length + o->key_length + (uint64_t)o->properties_length;
}
/* Offset of the body in its slot. `length`: that of the body. `more`: the bytes of the block, in which many queues that
 * share a body count their references (sb_reference.h); 0 = no block. The block lies between the prefix and the
 * viewers' words (sb_view.h). */
static inline uint64_t sb_api_body_offset(uint64_t length, const sb_put_options *o, uint64_t more) {
  return (sb_api_prefix_bytes(o) + more + 63) / 64 * 64 + (length > SB_INLINE_BODY ? SB_VIEWERS_BYTES : 0);
}
/* Allocates a slot of at least `need` bytes, which becomes ALLOC (sb_slab.h), and a holding that lists the slot
 * (sb_holdings.h); stores both in *r. */
sb_status sb_api_claim_slot(sb_connection *c, uint64_t need, sb_reservation *r);
/* Called after sb_api_claim_slot failed with `status`. If that is SB_NO_MEMORY, claims a free slot of the same class or
 * of a larger one, or else a head and parts for a scattered message (sb_parts.h); stores the slot or the head in *r.
 * Returns any other status unchanged. `more`: as in sb_api_body_offset. */
sb_status sb_api_claim_elsewhere(sb_connection *c, sb_status status, uint64_t length, const sb_put_options *o,
                                 uint64_t more, sb_reservation *r);
/* Writes the body of a scattered message into its parts. False: the parts are damaged. */
bool sb_api_write_parts(sb_connection *c, const sb_reservation *r, const char *body);
/* The number of bytes that exchange, key and properties of a message have together. */
static inline uint64_t sb_api_names(const sb_message_shm *m) {
  return (uint64_t)m->exchange_length + m->key_length + m->properties_length;
}
/* A message of a row that got a slot: ALLOC, and listed by `place.token`. `scheduled`: its cell is SCHEDULED. `timer`: it
 * needs an entry in the schedule. due_ns: the end of a redelivery delay, CLOCK_MONOTONIC. */
typedef struct {
  sb_reservation place;
  uint64_t due_ns;
  bool scheduled, timer;
} sb_unpacked;
/* Copies the message of an entry, whose names and body are given, into a slot. */
sb_status sb_api_unpack(sb_queue *q, const sb_row_entry *e, const char *names, const char *body, uint64_t written_ns,
                        sb_unpacked *u);
/* A walk over the entries of a row; begins as {.n = 0}. The entry begins at `at` of the heads, and its body at `body` of
 * the bodies. */
typedef struct {
  sb_row_head head;
  sb_row_entry entry;
  uint64_t at, body, behind, body_behind;
  uint32_t n; /* how many entries the walk has shown */
  bool head_ok;
} sb_row_walk;
/* False: that was the last entry, or, if head_ok is false, the row is damaged. */
bool sb_api_next_entry(const sb_stored_row *row, sb_row_walk *w);
/* Frees the slot of a reservation, and its holding. */
void sb_api_give_slot(sb_connection *c, const sb_reservation *r);
/* Writes the prefix: message header, exchange, key, properties. Leaves room for the block (`more` bytes, see
 * sb_api_body_offset), but does not write it. Stores in r->body the address to write the body to; NULL: the body goes
 * into parts. `ttl_ns` replaces o->ttl_ns. */
void sb_api_fill(sb_connection *c, sb_reservation *r, uint64_t length, const sb_put_options *o, uint64_t ttl_ns,
                 uint64_t more);
/* Notifies the housekeeper if a timer of the message is due before the next timer that the housekeeper knows. */
void sb_api_ring_housekeeper(sb_connection *c, const sb_message_shm *m);
/* The address of the body of a message in this process; SB_IN_PARTS if the body is in parts. */
uint64_t sb_api_address(const sb_message_shm *m);
/* Writes the record of a taken message to `buffer`, which has room for any record. `tag`, `subscription`: stored in the
 * record. Returns the length of the record; minus SB_CORRUPT if the parts of the message are damaged. */
int64_t sb_api_record(sb_queue *q, const sb_taken *t, uint64_t tag, uint32_t subscription, char *buffer);
/* True if the lengths in the message header are possible: the message fits its slot or parts, and its record fits the
 * buffer that a caller passes. */
static inline bool sb_api_plausible(sb_broker *b, const sb_taken *t) {
  return sb_settle_is_sound(b, t->slot, t->message);
}
/* Describes what the holding `token` lists: a message that the connection holds, or one that it reads (sb_reading.h).
 * False: neither, or its header is damaged. */
bool sb_api_held(sb_connection *c, uint64_t token, sb_taken *t);
/* Keeps the long body of such a message until sb_api_view_drop: as sb_view_take. The token of a view may be that of the
 * message. */
sb_status sb_api_view(sb_connection *c, const sb_taken *t, uint64_t *view);
void sb_api_view_drop(sb_connection *c, uint64_t view);
/* Lock held. Removes a taken message that is damaged, and counts it as dropped. Returns SB_CORRUPT. No call could ever
 * read the message. If it returned to its queue, the next take would find it again. */
sb_status sb_api_drop_corrupt(sb_queue *q, uint64_t token);
/* Called after a message was released. Enforces the limits of the queue; if they removed messages, wakes a producer
 * that waits for room. Notifies the nodes of choosy consumers, and one node that waits for messages. */
void sb_api_returned(sb_queue *q);
/* Lock held, but dropped while a killed process is reaped. Evicts the messages beyond the bound of a queue that
 * evicts. */
void sb_api_keep_bound(sb_queue *q);
/* As sb_api_keep_bound, for a get without waiting, a browse, a count, and the end of a commit: first corrects a tail
 * that a killed producer did not advance. Does nothing to a queue that does not evict. False: the connection is closed,
 * since another thread may have closed it while the lock was dropped. */
bool sb_api_look_at_bound(sb_queue *q);
/* The most dead processes that one call reaps. */
#define SB_DEAD_AT_ONCE 16u
/* Lock held. If the counts of a queue that evicts show `ready` messages, more than its bound: a connection that has the
 * queue open and whose process was killed, perhaps before its ledger counted a victim. 0: there is none. */
unsigned sb_api_killed_at(sb_broker *b, const sb_queue_shm *q, uint64_t ready);
/* For a call that counts more ready messages than the bound: another process may be counting an eviction at this moment.
 * Lock not held. Reaps the process of the connection `dead`; if `dead` is 0, waits a moment. True: the caller counts
 * again. False: the patience of this call is at its end. `p` begins as zero. */
typedef struct {
  unsigned reaped;
  uint64_t until;
} sb_patience;
bool sb_api_look_again(sb_connection *c, unsigned dead, sb_patience *p);
/* Lock held. Ends a consumer. Puts the messages of its row (pulled, but not given to the application) back into their
 * queues; with `return_everything` also the messages that the application holds. */
void sb_api_cancel(sb_consumer *k, bool return_everything);
/* Which messages a call looks for: those in any of `states` (SB_STATE_...) that a program selects, with sequence numbers
 * below `end` (SB_ANY_POSITION: all). `memory`: as of sb_selector_message. */
typedef struct {
  sb_program selector;
  char *memory;
  uint64_t end;
  uint32_t states;
} sb_sought;
/* Lock not held. Finds the next message that is sought, from *sequence on. *found: its position; *sequence: that of the
 * message behind it. A position has one message, for ever (I4 of sb_layout.h): the caller that takes the message at the
 * position gets the message that was selected, or none. SB_EMPTY: there is none. SB_CORRUPT: a message, or its
 * properties, are damaged. */
sb_status sb_api_find_selected(sb_queue *q, const sb_sought *sought, uint64_t *sequence, uint64_t *found);
/* Copies and verifies the compiled selector of a consumer; *wish NULL: its length is 0, so there is none. The caller
 * frees it. SB_INVALID: it is no valid program. */
sb_status sb_api_wish(const char *selector, uint32_t length, sb_wish **wish);
/* True if the process of the connection was killed, and is not reaped yet. */
bool sb_api_was_killed(sb_broker *b, unsigned connection);
/* Lock held. Called before a message is moved. True: the caller calls sb_turns_move_ends afterwards (I125 of sb_turns.h). */
static inline bool sb_api_move_begins(sb_queue *q, const sb_queue *target) {
  bool counts = sb_queue_stores(q) && sb_queue_stores(target);
  if (counts) sb_turns_move_begins(q->c);
  return counts;
}
/* The id of a message for a queue that remembers ids; SB_NO_ID: the queue remembers none, or the message has none, or is
 * dead. */
static inline sb_id sb_api_id(const sb_queue *q, const sb_put_options *o) {
  return sb_duplicates_wanted(q->shm) && o->dead == 0 ? sb_duplicates_id(o->properties, o->properties_length)
                                                      : SB_NO_ID;
}
/* True if the queue knows the id. Counts the message, which is not stored. */
bool sb_api_is_known(const sb_queue *q, sb_id id);
static inline bool sb_api_is_duplicate(const sb_queue *q, sb_id id) {
  return sb_id_given(id) && sb_api_is_known(q, id);
}
/* Lock held. Puts the message of an admitted reservation as sb_queue_enqueue does, but only if its id is new: by a commit
 * of its own (sb_duplicates.h), which also ends the reservation's holding and its claim on room. SB_DUPLICATE,
 * SB_UNDECIDED: as of sb_duplicates_claim. After a failure the caller still has the reservation. */
sb_status sb_api_enqueue_once(sb_queue *q, const sb_reservation *r);
/* Ends a delivery: settles the message, or returns it to its position. */
sb_status sb_api_end(sb_queue *q, uint64_t token, sb_disposition disposition);

#endif
