// SPDX-License-Identifier: Apache-2.0
/* sb_watch and sb_api_watches: when and of what a watch is notified, and what it leaves to other nodes. */
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "sb_api.h"

#define HIGHEST 9u /* length of a limited queue */

static sb_node_shm *node_of(const sb_watch *w) { return sb_slot_at(t.b, w->node); }
/* A watch that was not begun. */
static sb_watch a_watch(sb_queue *q, bool room) {
  static const sb_target_kind *kind;
  sb_status status;
  if (kind == NULL) {
    sb_watch *other = sb_watch_open(open_new("other", UNLIMITED), false, -1, &status);
    if (other == NULL) die("watch", (int)status);
    kind = other->target.kind;
    sb_watch_free(other);
  }
  return (sb_watch){.target = {.c = t.c, .kind = kind}, .q = q, .room = room, .event_fd = -1};
}
/* No chunk is FREE, and none of that kind has a free slot. */
static void use_up_kind(unsigned kind) {
  for (uint32_t i = 0; i < t.b->mapped_chunks; i++) {
    uint64_t word = SB_LOAD(&t.b->chunks[i], SB_RELAXED);
    if (sb_chunk_state(word) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1), SB_RELAXED);
    if (sb_chunk_state(word) == SB_CHUNK_CLASS && sb_chunk_class(word) == sb_class_of_kind(t.b, kind)) use_up(i);
  }
  sb_slab_return_cache(t.c);
  for (uint32_t i = 0; i < t.b->mapped_chunks; i++) {
    uint64_t word = SB_LOAD(&t.b->chunks[i], SB_RELAXED);
    if (sb_chunk_state(word) == SB_CHUNK_CLASS && sb_chunk_class(word) == sb_class_of_kind(t.b, kind)) use_up(i);
  }
}

/* ---- beginning ---- */

static void a_watch_begins(void) {
  sb_queue *q = open_new("q", AT_MOST(HIGHEST));
  sb_watch work = a_watch(q, false), room = a_watch(q, true);
  expect_is(sb_watch_begin(&work), SB_OK, "the status");
  expect_is(node_of(&work)->flags, 0, "the flags of its node");
  expect_is(node_of(&work)->queue, q->slot, "the queue of its node");
  expect_is(node_state(work.node), SB_NODE_NOT_INTERESTED, "the state of its node");
  expect_is(q->busy, 1, "how often the handle is used");
  expect_is(q->shm->room_watched, 0, "whether room is watched");
  expect(work.target.listed && t.c->target_count == 1, "the connection does not know it");
  expect_is(sb_watch_begin(&room), SB_OK, "the status of another one");
  expect_is(node_of(&room)->flags, SB_NODE_ROOM, "the flags of a node that waits for room");
  expect_is(node_of(&room)->target, room.target.number, "the target of its node");
  expect_is(q->shm->room_watched, 1, "whether room is watched");
  expect_is(q->busy, 2, "how often the handle is used");
}
static void expect_not_begun(sb_watch *w, sb_status should) {
  w->node = 77;
  expect_is(sb_watch_begin(w), should, "the status");
  expect_is(w->q->busy, 0, "how often the handle is used");
  expect_is(t.c->target_count, 0, "how many targets there are");
  expect(!w->target.listed, "it is a target");
}
static void a_watch_that_does_not_begin(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  sb_watch w = a_watch(q, false);
  close_by_hand(q);
  expect_not_begun(&w, SB_DELETED);
  SB_STORE(&q->shm->state, q->state, SB_SEQ_CST);
  sb_broker_grow_again(t.b, FOREVER);
  use_up_kind(SB_KIND_LEAF); /* its node is there, and no page for a list to name it */
  expect_not_begun(&w, SB_NO_MEMORY);
  expect_is(w.node, 0, "its node");
  use_up_kind(SB_KIND_NODE);
  expect_not_begun(&w, SB_NO_MEMORY);
  expect_is(w.node, 0, "its node");
}

/* ---- wanting ---- */

static void a_watch_wants_to_be_told(void) {
  sb_queue *q = open_new("q", AT_MOST(HIGHEST));
  sb_watch work = a_watch(q, false), room = a_watch(q, true);
  (void)sb_watch_begin(&work);
  (void)sb_watch_begin(&room);
  expect(!sb_watch_was_told(&work), "it was told before");
  expect_is(sb_watch_want(&work, 7), SB_OK, "the status");
  expect_is(node_state(work.node), SB_NODE_INTERESTED, "its state");
  expect_is(node_of(&work)->prefetch, 0, "the bytes of one that waits for a message");
  uint64_t word = node_of(&work)->word;
  expect_is(sb_watch_want(&work, 7), SB_OK, "the status once more");
  expect_is(node_of(&work)->word, word, "its word once more");
  expect(!sb_watch_was_told(&work), "it was told too soon");
  put(&t, q, 1);
  expect(sb_watch_was_told(&work), "it was not told");
  expect_is(sb_watch_want(&work, 7), SB_OK, "the status after it was told");
  expect_is(node_state(work.node), SB_NODE_INTERESTED, "its state after it was told");
  expect_is(sb_watch_want(&room, 8), SB_OK, "the status of one that waits for room");
  expect_is(node_of(&room)->prefetch, 8, "the bytes that it waits for");
  expect_is(sb_watch_want(&room, 9), SB_OK, "the status with more bytes");
  expect_is(node_of(&room)->prefetch, 9, "the bytes when there are more");
}
static void a_watch_that_is_not_told(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  sb_watch w = a_watch(q, false), none = w;
  (void)sb_watch_begin(&w);
  none.node = 0;
  expect_is(sb_watch_want(&none, 0), SB_CLOSED, "the status of one that ended");
  use_up_kind(SB_KIND_LEAF);
  expect_is(sb_watch_want(&w, 0), SB_GROW, "the status without a page, where the broker may grow");
  sb_broker_grow_again(t.b, FOREVER);
  expect_is(sb_watch_want(&w, 0), SB_NO_MEMORY, "the status without a page, where it may not");
  close_by_hand(q);
  expect_is(sb_watch_want(&w, 0), SB_DELETED, "the status of a deleted queue");
  expect_is(sb_watch_want(&none, 0), SB_CLOSED, "the status of one that ended, of a deleted queue");
  expect_is(node_state(w.node), SB_NODE_NOT_INTERESTED, "the state of its node");
}

/* ---- leaving, ending: what it was told of goes on ---- */

static void a_watch_that_leaves(void) {
  sb_queue *q = open_new("q", AT_MOST(HIGHEST));
  sb_watch *first = armed_watch(q, false), *second = armed_watch(q, false), none = *first;
  none.node = 0;
  put(&t, q, 1);
  expect_told(first, "the first one");
  expect_not_told(second, "the second one");
  sb_watch_leave(&none);
  expect_not_told(second, "the second one, after one left that had ended");
  sb_watch_leave(first);
  expect_is(node_state(first->node), SB_NODE_NOT_INTERESTED, "the state of the first one");
  expect_told(second, "the second one, after the first one left");
}
static void a_watch_for_room_that_leaves(void) {
  sb_queue *q = open_new("q", AT_MOST(HIGHEST));
  sb_watch *first = armed_watch(q, true), *second = armed_watch(q, true), *work = armed_watch(q, false);
  sb_watch none = *first;
  none.node = 0;
  sb_watch_leave(&none);
  expect_not_told(first, "the first one, after one left that had ended");
  sb_watch_leave(first);
  expect_is(node_state(first->node), SB_NODE_NOT_INTERESTED, "the state of the first one");
  expect_told(second, "the second one");
  expect_not_told(work, "one that waits for a message");
}
static void a_watch_that_ends(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  sb_watch *first = armed_watch(q, false), *second = armed_watch(q, false);
  uint32_t node = first->node;
  put(&t, q, 1);
  sb_watch_end(first);
  expect_told(second, "the other one");
  expect_is(first->node, 0, "its node");
  expect_is(sb_slot_state(*sb_slot_header(t.b, node)), SB_SLOT_FREE, "the slot of its node");
  expect_is(q->busy, 1, "how often the handle is used");
  expect(!first->target.listed && t.c->target_count == 1, "it is a target");
  sb_watch_end(first);
  expect_is(q->busy, 1, "how often the handle is used, when it ends twice");
}
static void a_watch_is_told(void) {
  uint64_t n = 0;
  sb_watch *w = armed_watch(open_new("q", UNLIMITED), false);
  w->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  SB_STORE(&node_of(w)->flagged, 1, SB_RELAXED);
  expect(!w->target.kind->wants_work(&w->target), "it wants a turn before");
  note_order(&node_of(w)->flagged);
  sb_watch_tell(w);
  expect_all_see("its flag");
  expect_is(node_of(w)->flagged, 0, "the flag of its node");
  expect(read(w->event_fd, &n, sizeof n) == sizeof n && n == 1, "its descriptor says %llu", (unsigned long long)n);
  SB_STORE(&node_of(w)->flagged, 1, SB_RELAXED);
  expect(!w->target.kind->turn(&w->target), "it wants another turn");
  w->target.kind->signal(&w->target);
  expect_is(node_of(w)->flagged, 0, "the flag after a turn");
  expect(read(w->event_fd, &n, sizeof n) == sizeof n && n == 2, "its descriptor says %llu", (unsigned long long)n);
  SB_STORE(&node_of(w)->word, sb_node_word(SB_NODE_NOTIFIED, t.c->id, 9), SB_SEQ_CST);
  expect(w->target.kind->wants_work(&w->target), "it wants no turn when it was notified");
  close(w->event_fd);
}

/* ---- public calls ---- */

static void a_watch_is_opened(void) {
  sb_status status = SB_SYSTEM;
  sb_queue *q = open_new("q", UNLIMITED);
  uint32_t handles = t.c->handles;
  begin_watching(t.c);
  sb_watch *w = sb_watch_open(q, true, 5, &status);
  expect_is(status, SB_OK, "the status");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect(w != NULL && w->q == q && w->room && w->event_fd == 5 && w->target.c == t.c, "it is another one");
  expect_is(t.c->handles, handles + 1, "how many handles there are");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    status = SB_OK;
    expect(sb_watch_open(q, true, 5, &status) == NULL, "there is one in state %u", i);
    expect_is(status, REFUSAL[i], "the status of a refusal");
    expect_is(sb_watch_arm(w, 1), REFUSAL[i], "the status of a refusal to arm");
    sb_watch_disarm(w);
    expect_untouched(t.c, "a refused watch");
  }
  refuse(t.c, SB_OK);
  expect_is(sb_watch_arm(w, 1), SB_OK, "the status of an armed one");
  refuse(t.c, SB_STOPPING);
  sb_watch_disarm(w);
  expect_is(node_state(w->node), SB_NODE_INTERESTED, "its state when it was refused");
  refuse(t.c, SB_OK);
  sb_watch_disarm(w);
  expect_is(node_state(w->node), SB_NODE_NOT_INTERESTED, "its state when it is disarmed");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  close_by_hand(q);
  expect_is(sb_watch_arm(w, 1), SB_DELETED, "the status of a deleted queue");
}
static sb_queue *watched;
static void open_with_nothing(void) {
  sb_status status = SB_OK;
  expect(sb_watch_open(watched, false, 5, &status) == NULL, "there is one without memory");
  expect_is(status, SB_SYSTEM, "the status without memory");
}
static void a_watch_that_is_not_opened(void) {
  uint64_t before = 0;
  sb_status status;
  watched = open_new("q", UNLIMITED);
  without_memory(open_with_nothing);
  uint32_t handles = t.c->handles;
  close_by_hand(watched);
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes(); /* the first ones fill lists of malloc */
    status = SB_OK;
    expect(sb_watch_open(watched, true, 5, &status) == NULL, "there is one of a deleted queue");
    expect_is(status, SB_DELETED, "the status of a deleted queue");
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
  expect_is(t.c->handles, handles, "how many handles there are");
}
static void close_when_locked(sb_connection *c) { SB_STORE(&c->closed, 1u, SB_SEQ_CST); }
static void a_watch_is_closed(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  sb_watch *w = armed_watch(q, false);
  uint32_t node = w->node;
  refuse(t.c, SB_CLOSED);
  sb_watch_close(w);
  expect_untouched(t.c, "a watch of a closed connection");
  refuse(t.c, SB_FORKED);
  sb_watch_close(w);
  expect_untouched(t.c, "a watch of a child");
  refuse(t.c, SB_OK);
  t.c->renew = close_when_locked;
  sb_watch_close(w);
  expect_is(w->node, node, "its node when the connection is closed meanwhile");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  refuse(t.c, SB_STOPPING);
  sb_watch_close(w);
  expect_is(w->node, 0, "its node");
  expect_is(times_locked(), 1, "how often the lock was taken");
}
static void a_watch_is_freed(void) {
  uint64_t before = 0;
  sb_queue *q = open_new("q", UNLIMITED);
  uint32_t handles = t.c->handles;
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes(); /* the first ones fill lists of malloc */
    sb_watch *w = armed_watch(q, false);
    expect_is(t.c->handles, handles + 1, "how many handles there are");
    sb_watch_free(w);
    expect_is(q->busy, 0, "how often the handle is used");
    expect_is(t.c->handles, handles, "how many handles there are without it");
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
}
static void a_watch_ends_with_its_connection(void) {
  sb_watch *w = armed_watch(open_new("q", UNLIMITED), false);
  expect(w->target.kind->overlooked == NULL && !w->target.kind->is_consumer, "it is a consumer");
  w->target.kind->end(&w->target);
  expect_is(w->node, 0, "its node");
  expect_is(t.c->target_count, 0, "how many targets there are");
}

static const test_case CASES[] = {
    {"watch: begin", "a watch has a node, a target, and its handle", a_watch_begins},
    {"watch: no begin", "a watch that does not begin leaves nothing", a_watch_that_does_not_begin},
    {"watch: want", "a watch that wants to be told is told once", a_watch_wants_to_be_told},
    {"watch: no want", "a watch that cannot be told says why", a_watch_that_is_not_told},
    {"watch: leave", "a watch that leaves passes on what it was told", a_watch_that_leaves},
    {"watch: room", "a watch for room that leaves tells the next one", a_watch_for_room_that_leaves},
    {"watch: end", "a watch ends once", a_watch_that_ends},
    {"watch: tell", "a watch writes its descriptor, and clears its flag before", a_watch_is_told},
    {"watch: open", "a watch is opened, armed and disarmed, or it is refused", a_watch_is_opened},
    {"watch: no open", "a watch that is not opened keeps no memory", a_watch_that_is_not_opened},
    {"watch: close", "a watch is closed while its connection is open", a_watch_is_closed},
    {"watch: free", "a watch that is freed gives all back", a_watch_is_freed},
    {"watch: connection", "a watch ends with its connection", a_watch_ends_with_its_connection},
};
SUBJECT(CASES)
