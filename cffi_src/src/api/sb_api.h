// SPDX-License-Identifier: Apache-2.0
/* API: the functions of shmbroker.cdef.h, shared helpers.
 *
 * What: each public call checks the handle (fork, close), takes the connection's lock, composes the core, and returns a
 * status. Process-local memory (handles, rows of consumers) is allocated here and nowhere below.
 *
 * Layout, Invariants, Ordering pairs, Death: none of its own: what is shared is declared below.
 *
 * Concurrency: any thread; handles must outlive their calls, which the Python side sees to.
 */
#ifndef SB_API_H
#define SB_API_H

#include "sb_directory.h"
#include "sb_grace.h"
#include "sb_handles.h"
#include "sb_housekeeping.h"
#include "sb_io.h"
#include "sb_liveness.h"
#include "sb_parts.h"
#include "sb_release.h"
#include "sb_scatter.h"
#include "sb_slab.h"
#include "sb_view.h"
#include "sb_wait.h"

#define SB_MAX_FRONT 65536u     /* message header, key and properties */
#define SB_UNLOCKED_COPY 16384u /* longer bodies are copied without holding the connection's lock */
#define SB_TAG_PLACE 40
#define SB_TAG_TOKEN ((UINT64_C(1) << SB_TAG_PLACE) - 1)

/* Forked or closed? Then not one word is touched. */
static inline sb_status sb_usable(const sb_connection *c) {
  if (sb_closed(c)) { /* first: a closed connection may have no broker mapped any more */
    return SB_CLOSED;
  }
  return sb_forked(c->b) ? SB_FORKED : SB_LOAD(&c->b->header->closing, SB_RELAXED) != 0 ? SB_STOPPING : SB_OK;
}
sb_status sb_api_enter(sb_connection *c); /* usable, and its lock taken */
static inline void sb_api_leave(sb_connection *c) { sb_unlock(c); }
/* What stands in front of a body: message header, exchange, key, properties. */
static inline uint64_t sb_api_front(const sb_put_options *o) {
  return sizeof(sb_message_shm) + o->exchange_length + o->key_length + (uint64_t)o->properties_length;
}
/* Where the body begins in its slot, with so many more bytes between those and its viewers' words. */
static inline uint64_t sb_api_body_offset(uint64_t length, const sb_put_options *o, uint64_t more) {
  return (sb_api_front(o) + more + 63) / 64 * 64 + (length > SB_INLINE_BODY ? SB_VIEWERS_BYTES : 0);
}
/* An ALLOC slot of at least so many bytes, in a holding of its own; and back. */
sb_status sb_api_claim_slot(sb_connection *c, uint64_t need, sb_reservation *r);
/* After that one failed: a longer slot, or a head and parts. `more`: as in sb_api_body_offset. Else the same status. */
sb_status sb_api_claim_elsewhere(sb_connection *c, sb_status status, uint64_t length, const sb_put_options *o,
                                 uint64_t more, sb_reservation *r);
/* The body of a scattered one, where it belongs. False: its parts cannot be believed. */
bool sb_api_write_parts(sb_connection *c, const sb_reservation *r, const char *body);
/* What stands in front of the body of a message, without its header. */
static inline uint64_t sb_api_names(const sb_message_shm *m) {
  return (uint64_t)m->exchange_length + m->key_length + m->properties_length;
}
void sb_api_give_slot(sb_connection *c, const sb_reservation *r);
/* Writes what stands in front of the body; ttl_ns in place of that of the options. */
void sb_api_fill(sb_connection *c, sb_reservation *r, uint64_t length, const sb_put_options *o, uint64_t ttl_ns,
                 uint64_t more);
/* The housekeeper sleeps until the next timer it knows: tells it of an earlier one. */
void sb_api_ring_housekeeper(sb_connection *c, const sb_message_shm *m);
/* Where the body of a message lies, or SB_IN_PARTS. */
uint64_t sb_api_address(const sb_message_shm *m);
/* Writes the record of a taken message; returns its length, or minus SB_CORRUPT. */
int64_t sb_api_record(const sb_queue *q, const sb_taken *t, uint64_t tag, uint32_t subscription, char *buffer);
/* Does the message header fit its slot, and a caller's buffer? */
bool sb_api_plausible(sb_broker *b, const sb_taken *t);
/* Lock held. A message that was taken, and whose record cannot be believed: it ends as one that is rejected. Nobody could
 * ever read it, and at its place it would be the next one again. SB_CORRUPT. */
sb_status sb_api_drop_corrupt(sb_queue *q, uint64_t token);
/* A released or removed message: enforce limits, wake who waits. */
void sb_api_returned(sb_queue *q);
/* Lock held, but not while somebody is reaped who was killed. Evicts what a queue that evicts has too many. */
void sb_api_keep_bound(sb_queue *q);
/* The same of any queue, for calls that put nothing. False: the connection was closed meanwhile. */
bool sb_api_look_at_bound(sb_queue *q);
/* Lock held. Ends a consumer; with `return_everything` also what the application holds goes back. */
void sb_api_cancel(sb_consumer *k, bool return_everything);
sb_status sb_api_end(sb_queue *q, uint64_t token, uint32_t how);

#endif
