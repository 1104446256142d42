// SPDX-License-Identifier: Apache-2.0
/* sb_api_connections, sb_api_queues: connections that are closed, forgotten and freed, and handles of queues that no
 * call uses any more. */
#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "sb_api.h"
#include "sb_wait.h"

#define LONG_BODY (4 * SB_INLINE_BODY) /* is read in place */
#define BY_ANOTHER 9u

static sb_connection *other; /* of the same process */
static sb_queue *open_by(sb_connection *c, const char *name) {
  sb_connection *own = t.c;
  t.c = c;
  sb_queue *q = open_queue(&t, name);
  if (q == NULL) die("open", 0);
  t.c = own;
  return q;
}
static sb_half *wake_of(uint32_t node) { return &((sb_node_shm *)sb_slot_at(t.b, node))->wake; }
static uint32_t armed_node(sb_connection *c, sb_queue *q) {
  uint32_t node;
  uint64_t token;
  sb_status status;
  while ((status = sb_node_create(c, q->slot, 0, SB_NODE_DIRECT, 0, 0, &node, &token)) == SB_GROW)
    (void)grow(t.b, t.path);
  expect_is(status, SB_OK, "the status of a node");
  (void)sb_wake_arm(wake_of(node));
  return node;
}
static unsigned wake_state(uint32_t node) { return SB_LOAD(wake_of(node), SB_SEQ_CST) & 3u; }
static unsigned connection_state(unsigned id) { return sb_conn_state(SB_LOAD(&t.b->connections[id], SB_SEQ_CST)); }
static void list_as(unsigned kind, uint32_t slot) {
  uint64_t token;
  expect_is(sb_holding_take(t.c, &token), SB_OK, "the status of an entry");
  sb_holding_set(t.b, token, sb_holding_what(kind, slot, 0), 0);
}
static void list_behind_the_last(unsigned kind, uint32_t slot) {
  sb_holding_shm *entry = &t.c->last->entries[SB_LOAD(&t.c->last->used, SB_RELAXED)];
  SB_STORE(&entry->what, sb_holding_what(kind, slot, 0), SB_RELAXED);
}
static uint64_t ready(const sb_queue *q) { return sb_queue_count_ready(t.b, q->shm); }

/* ---- closing ---- */

static void a_connection_that_closes_wakes_its_threads(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  other = connect_to(&t);
  uint32_t own = armed_node(t.c, q), strange = armed_node(other, q);
  list_as(SB_HOLD_PAGE, strange);
  list_as(SB_HOLD_SLOT, 0);
  list_behind_the_last(SB_HOLD_SLOT, strange);
  (void)sb_wake_arm(wake_of(t.c->io_node));
  refuse(t.c, SB_FORKED);
  expect_is(sb_connection_close(t.c), SB_FORKED, "the status of a child");
  expect_untouched(t.c, "a child that closes");
  expect(!sb_closed(t.c) && wake_state(own) == SB_WAKE_ARMED, "a child closed it");
  refuse(t.c, SB_STOPPING);
  note_order(&t.c->closed);
  expect_is(sb_connection_close(t.c), SB_OK, "the status");
  expect_all_see("that it is closed");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect(sb_closed(t.c), "it is not closed");
  expect_is(wake_state(own), SB_WAKE_NOTIFIED, "the wake word of a thread that waits");
  expect_is(wake_state(t.c->io_node), SB_WAKE_NOTIFIED, "the wake word of its IO thread");
  expect_is(wake_state(strange), SB_WAKE_ARMED, "the wake word of another connection");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void what_a_connection_holds_goes_back(void) {
  char record[4096];
  sb_queue *q = open_new("q", UNLIMITED), *closed = open_new("closed", UNLIMITED);
  other = connect_to(&t);
  sb_watch *w = armed_watch(open_by(other, "q"), false);
  put(&t, q, 1);
  expect_told(w, "what waits for the first message");
  (void)get(&t, q, record, false);
  (void)sb_watch_arm(w, 0);
  list_as(SB_HOLD_CELL, other->record); /* of a queue that it has not open */
  expect_is(sb_ledger_holding(t.b, q->shm), 1, "how many are held before");
  expect_is(sb_connection_close(t.c), SB_OK, "the status");
  expect_is(sb_ledger_holding(t.b, q->shm), 0, "how many are held");
  expect_is(ready(q), 1, "how many are ready");
  expect_is(node_wakes(w->node), 2, "how often the watch of another connection was told");
  expect(sb_queue_is_open(closed), "a queue ended that does not end by itself");
}
static void what_its_table_does_not_list_stays(void) {
  char record[4096];
  sb_queue *q = open_new("q", UNLIMITED);
  put(&t, q, 1);
  (void)get(&t, q, record, false);
  uint64_t token = ((const sb_record *)(const void *)record)->tag & SB_TAG_TOKEN;
  uint32_t index = (uint32_t)(sb_holding_at(t.b, token) - t.c->last->entries);
  SB_STORE(&t.c->last->used, index, SB_RELAXED);
  expect_is(sb_connection_close(t.c), SB_OK, "the status");
  expect_is(sb_ledger_holding(t.b, q->shm), 1, "how many are held");
}
static void its_io_thread_wakes_beside_a_damaged_table(void) {
  (void)armed_node(t.c, open_new("q", UNLIMITED));
  SB_STORE(&((sb_node_shm *)sb_slot_at(t.b, t.c->io_node))->wake, SB_WAKE_ARMED, SB_RELAXED);
  SB_STORE(&sb_holding_at(t.b, t.c->io_token)->what, 0, SB_RELAXED);
  expect_is(sb_connection_close(t.c), SB_OK, "the status");
  expect_is(wake_state(t.c->io_node), SB_WAKE_NOTIFIED, "the wake word of its IO thread");
}
/* The commit that it names does that, or the call that takes it back. */
static void what_a_commit_settles_stays(void) {
  char record[4096];
  sb_queue *q = open_new("q", UNLIMITED);
  put(&t, q, 1);
  (void)get(&t, q, record, false);
  sb_holding_shm *entry = sb_holding_at(t.b, ((const sb_record *)(const void *)record)->tag & SB_TAG_TOKEN);
  SB_STORE(&entry->what, (entry->what & ~UINT64_C(15)) | SB_HOLD_SETTLING, SB_RELAXED);
  expect_is(sb_connection_close(t.c), SB_OK, "the status");
  expect_is(sb_ledger_holding(t.b, q->shm), 1, "how many are held");
}
static void a_closed_connection_is_closed_once(void) {
  char record[4096];
  sb_queue *q = open_new("q", UNLIMITED);
  put(&t, q, 1);
  (void)get(&t, q, record, false);
  uint32_t own = armed_node(t.c, q);
  refuse(t.c, SB_CLOSED);
  expect_is(sb_connection_close(t.c), SB_OK, "the status");
  expect_is(sb_ledger_holding(t.b, q->shm), 1, "how many are held");
  expect_is(wake_state(own), SB_WAKE_NOTIFIED, "the wake word of a thread that waits");
}
static void exclusive_queues_end_with_it(void) {
  sb_queue *q = open_new("q", UNLIMITED),
           *own = open_new("own", ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_EXCLUSIVE}));
  uint32_t ended = t.b->header->queues_ended;
  sb_watch *w = armed_watch(q, false);
  expect_is(sb_connection_close(t.c), SB_OK, "the status");
  expect(!sb_queue_is_open(own), "its exclusive queue is open");
  expect(sb_queue_is_open(q), "another queue ended");
  expect_is(t.b->header->queues_ended, ended + 1, "how many queues ended");
  expect_is(w->node, 0, "the node of its watch");
  expect_is(t.c->target_count, 0, "how many targets it has");
}

/* ---- forgetting ---- */

static void a_connection_is_forgotten(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  sb_broker *b = t.b;
  sb_connection_shm *shm = t.c->shm;
  uint32_t id = t.c->id;
  (void)sb_connection_close(t.c);
  refuse(t.c, SB_FORKED);
  expect(sb_connection_release(t.c), "a child waits for views");
  expect(!t.c->forgotten && t.c->queues == q && connection_state(id) == SB_CONN_LIVE, "a child forgot it");
  refuse(t.c, SB_CLOSED);
  expect(sb_connection_release(t.c), "it was not forgotten");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect(t.c->forgotten && t.c->queues == NULL && q->ledger == NULL, "it is still there");
  expect_is(t.c->io_node, 0, "the node of its IO thread");
  expect_is(shm->waiter, 0, "the node that is woken");
  expect_is(connection_state(id), SB_CONN_FREE, "the state of its number");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  t.c->b = NULL; /* its broker may not be mapped any more */
  expect(sb_connection_release(t.c), "it was not forgotten once more");
  t.c->b = b;
}
/* A signal handler that raises can keep a program from the close. */
static void what_was_never_closed_goes_back(void) {
  char record[4096];
  sb_queue *q = open_new("q", UNLIMITED);
  test_broker another = t;
  another.c = connect_to(&t);
  for (uint64_t id = 1; id <= 3; id++) (void)put(&t, q, id);
  for (unsigned i = 0; i < 2; i++) (void)get(&t, q, record, false);
  expect(sb_connection_release(t.c), "it was not forgotten");
  expect(sb_closed(t.c), "it was not closed");
  sb_queue *theirs = open_queue(&another, "q");
  for (uint64_t id = 1; id <= 3; id++) expect_is(get(&another, theirs, record, false), id, "the next message");
  expect_is(get(&another, theirs, record, false), 0, "the message after the last one");
}
static uint64_t a_view(sb_queue *q) {
  static char record[1u << 16];
  const sb_put_options none = {0};
  uint64_t view = 0;
  expect_is(put_sized(&t, q, 1, LONG_BODY, &none), SB_OK, "the status of a long message");
  expect(sb_queue_get(q, record, false) > 0, "there is no message");
  const sb_record *r = (const sb_record *)(const void *)record;
  expect_is(sb_view_begin(t.c, r->tag, r->sequence, r->body_address, &view), SB_OK, "the status of a view");
  return view;
}
/* The slot of its node may be another connection's by then. */
static void views_keep_a_connection(void) {
  uint64_t view = a_view(open_new("q", UNLIMITED));
  uint32_t node = t.c->io_node, id = t.c->id;
  sb_word *header = sb_slot_header(t.b, node);
  (void)sb_connection_close(t.c);
  expect(!sb_connection_release(t.c), "it was forgotten beside a view");
  expect(!t.c->forgotten && t.c->io_node == 0, "it has still a thread, or nothing any more");
  expect_is(t.c->shm->waiter, 0, "the node that is woken");
  expect_is(sb_slot_state(*header), SB_SLOT_FREE, "the slot of its node");
  uint64_t anothers = sb_slot_word(SB_SLOT_ALLOC, BY_ANOTHER, sb_slot_gen(*header));
  SB_STORE(header, anothers, SB_SEQ_CST);
  expect(!sb_connection_release(t.c), "it was forgotten beside a view, the second time");
  expect_is(*header, anothers, "the slot of its node when it is another connection's");
  expect(sb_view_end(t.c, view), "it waits for more than the view");
  expect(sb_connection_release(t.c), "it was not forgotten after the view");
  expect_is(connection_state(id), SB_CONN_FREE, "the state of its number");
}
static uint32_t begin_draining(void) {
  uint32_t chunk = t.b->mapped_chunks - 1;
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(SB_CHUNK_CLASS, 0, sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL), 0),
           SB_SEQ_CST);
  other = connect_to(&t);
  SB_STORE(&other->gate->inside, 1, SB_SEQ_CST); /* it may know the chunk */
  for (unsigned i = 0; i < 3; i++) (void)sb_housekeeper_reclaim(t.c);
  expect_is(sb_chunk_state(t.b->chunks[chunk]), SB_CHUNK_DRAINING, "the state of a chunk that is drained");
  return chunk;
}
static void what_it_drains_goes_back(void) {
  uint32_t chunk = begin_draining();
  (void)sb_connection_close(t.c);
  expect(sb_connection_release(t.c), "it was not forgotten");
  expect_is(sb_chunk_state(t.b->chunks[chunk]), SB_CHUNK_CLASS, "the state of the chunk");
}

/* ---- freeing ---- */

static void a_connection_that_is_dropped(void) {
  sb_connection *place = NULL;
  uint64_t before = 0;
  sb_connection_discard(&place);
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes(); /* the first ones fill lists of malloc */
    sb_connection *c = place = connect_to(&t);
    unsigned id = c->id;
    (void)sb_housekeeper_reclaim(c); /* it has memory for what it drains */
    c->handles++;
    sb_connection_discard(&place);
    expect(place == NULL, "the place still has it");
    expect(c->handles == 1 && c->forgotten && sb_closed(c), "it was not forgotten, or a handle does not keep it");
    expect_is(connection_state(id), SB_CONN_FREE, "the state of its number");
    sb_connection_free(c);
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
}
static void dropped_when_it_was_forgotten(void) {
  sb_connection *c = t.c, *place = c;
  sb_broker *b = t.b;
  (void)sb_connection_close(c);
  (void)sb_connection_release(c);
  c->handles++;
  c->b = NULL; /* its broker may not be mapped any more */
  sb_connection_discard(&place);
  expect(place == NULL && c->handles == 1, "it was not freed");
  c->b = b;
}
static void dropped_by_a_child(void) {
  sb_connection *c = t.c, *place = c;
  c->handles++;
  refuse(c, SB_FORKED);
  sb_connection_discard(&place);
  expect(place == NULL && c->handles == 1, "it was not freed");
  expect(!c->forgotten && !sb_closed(c), "a child closed it");
  expect_is(connection_state(c->id), SB_CONN_LIVE, "the state of its number");
}
static void dropped_beside_a_view(void) {
  sb_connection *c = t.c, *place = c;
  (void)a_view(open_new("q", UNLIMITED));
  c->handles++;
  uint32_t handles = c->handles;
  sb_connection_discard(&place);
  expect(place == c && c->handles == handles, "it was freed");
  expect(!c->forgotten && sb_closed(c), "it is not closed, or nothing any more");
}
static void a_handle_that_is_freed(void) {
  uint64_t before = 0;
  uint32_t handles = t.c->handles;
  if (declare(&t, "q", UNLIMITED) != SB_OK) die("declare", 0);
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes();
    sb_queue *q = open_queue(&t, "q");
    sb_queue_shm *shm = q->shm;
    expect_is(sb_ledger_owned(t.b, shm), 1, "whether the queue is open");
    sb_queue_free(q);
    expect_is(sb_ledger_owned(t.b, shm), 0, "whether the queue is still open");
    expect(t.c->queues == NULL, "the connection still has it open");
    expect_is(t.c->handles, handles, "how many handles there are");
    expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
}
static void a_handle_whose_message_is_held(void) {
  char record[4096];
  sb_queue *q = open_new("q", UNLIMITED);
  uint32_t handles = t.c->handles;
  put(&t, q, 1);
  (void)get(&t, q, record, false);
  refuse(t.c, SB_FORKED);
  sb_queue_free(q);
  expect_untouched(t.c, "a handle that a child frees");
  expect(!q->orphaned && t.c->handles == handles, "a child freed it");
  refuse(t.c, SB_OK);
  sb_queue_free(q);
  expect(q->orphaned && q->ledger != NULL && t.c->queues == q, "it did not stay");
  expect_is(t.c->handles, handles - 1, "how many handles there are");
}
/* Also while the mapping of the broker says that it is a child's: nothing is read of that. */
static void a_handle_of_a_closed_connection(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  uint32_t handles = t.c->handles;
  (void)sb_connection_close(t.c);
  refuse(t.c, SB_CLOSED);
  sb_queue_free(q);
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect(q->orphaned, "a handle with a ledger was freed before its connection was forgotten");
  expect_is(t.c->handles, handles - 1, "how many handles there are");
  expect(sb_connection_release(t.c), "it was not forgotten");
  expect(t.c->queues == NULL, "the handle is still there");
}

/* Python ends a daemon thread between two calls of one wait. Another waiter gets the notification that its node had. */
static void a_wait_that_nobody_goes_on_with(void) {
  sb_queue *q = open_new("left", UNLIMITED);
  other = connect_to(&t);
  sb_queue *others = open_by(other, "left");
  char buffer[sizeof(sb_record) + SB_MAX_PREFIX + SB_INLINE_BODY];
  sb_wait w = {.deadline_ns = UINT64_MAX, .look_ns = 1};
  expect_is((uint64_t)-sb_queue_get_wait(q, buffer, false, &w), SB_TICK,
            "the status of a wait that is to be continued");
  uint32_t next = armed_node(other, others);
  (void)sb_node_move(other, next, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  (void)put(&t, others, 1);
  sb_node_shm *node = sb_node_at(t.b, w.node);
  expect_is(sb_node_state(SB_LOAD(&node->word, SB_SEQ_CST)), SB_NODE_NOTIFIED, "the state of its node");
  expect_is(sb_connection_close(t.c), SB_OK, "the status of the close");
  expect(sb_connection_release(t.c), "the connection stays");
  expect_is(sb_node_state(SB_LOAD(&node->word, SB_SEQ_CST)), SB_NODE_REMOVED, "the state of its node afterwards");
  expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, w.node), SB_SEQ_CST)), SB_SLOT_FREE, "the slot of its node");
  uint64_t word = SB_LOAD(&sb_node_at(t.b, next)->word, SB_SEQ_CST);
  expect_is(sb_node_state(word), SB_NODE_NOTIFIED, "the state of the next waiter's node");
  expect_is(SB_LOAD(&others->shm->notified, SB_SEQ_CST), 1, "how many are notified");
}

static const test_case CASES[] = {
    {"api: left", "a wait that its thread left ends with the connection", a_wait_that_nobody_goes_on_with},
    {"api: disconnect", "a connection that closes wakes its own threads", a_connection_that_closes_wakes_its_threads},
    {"api: returned", "messages of a connection that closes go back, and others are told",
     what_a_connection_holds_goes_back},
    {"api: IO thread", "its IO thread wakes although its table is damaged", its_io_thread_wakes_beside_a_damaged_table},
    {"api: unlisted", "what the table does not list does not go back", what_its_table_does_not_list_stays},
    {"api: settling", "what a commit is about to settle does not go back", what_a_commit_settles_stays},
    {"api: once", "a connection is closed once, and its threads are woken each time",
     a_closed_connection_is_closed_once},
    {"api: exclusive", "exclusive queues and targets end with their connection", exclusive_queues_end_with_it},
    {"api: forget", "a connection that is forgotten gives all back", a_connection_is_forgotten},
    {"api: unclosed", "a connection that was never closed gives back what it holds", what_was_never_closed_goes_back},
    {"api: views", "views keep a connection, but not its thread", views_keep_a_connection},
    {"api: draining", "a chunk that is drained goes back to its class", what_it_drains_goes_back},
    {"api: dropped", "a connection that is dropped is closed, forgotten and freed", a_connection_that_is_dropped},
    {"api: dropped late", "a connection that was forgotten is only freed", dropped_when_it_was_forgotten},
    {"api: dropped, child", "a child frees a connection, and does not close it", dropped_by_a_child},
    {"api: dropped, view", "a connection that is dropped beside a view stays", dropped_beside_a_view},
    {"api: free", "a handle that is freed leaves its queue", a_handle_that_is_freed},
    {"api: orphan", "a handle whose message is held stays", a_handle_whose_message_is_held},
    {"api: late", "a handle goes with its connection", a_handle_of_a_closed_connection},
};
SUBJECT(CASES)
