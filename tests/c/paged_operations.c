// SPDX-License-Identifier: Apache-2.0
#include "paged_operations.h"

#include <string.h>
#include <sys/mman.h>

#include "child.h"
#include "operations.h"
#ifdef SB_TEST_HOOKS
#include "sb_queue.h"
#endif

#define LANE_END (UINT64_C(1) << 40) /* a sequence number behind all messages of a lane */
#define CHANGES 8u
#define LEAF 64u
#define SIZE 16384u

/* What the store has of the leaf after a turn. */
typedef struct {
  uint64_t heads_length, bodies_length, ended;
  char heads[SIZE], bodies[SIZE];
} version;
/* A turn writes the other version, then says so: a storekeeper that dies in between has changed nothing. */
typedef struct {
  version versions[2];
  volatile uint32_t current;
  volatile bool afresh; /* the last turn did not come to its end */
} store;

static store *disk;

#ifdef SB_TEST_HOOKS /* without them, a program is linked against the public functions only */
static void mark_first_leaf(sb_queue *of) {
  const sb_ring *r = &of->lanes[0].ring;
  sb_requeued_mark(of->c->b, r, SB_LOAD(r->base, SB_RELAXED));
}
#else
static void mark_first_leaf(sb_queue *of) { (void)of; }
#endif

static void gather(sb_queue *of, version *to) {
  sb_store_row row = {.heads = to->heads, .bodies = to->bodies, .heads_size = SIZE, .bodies_size = SIZE};
  uint64_t at = 0;
  if (sb_store_gather(of, &at, LEAF, &row) != SB_OK || at != LEAF) die("sb_store_gather", (int)at);
  to->heads_length = row.heads_length;
  to->bodies_length = row.bodies_length;
}

/* Lets the leaf come back, if it is not there. */
static void load(sb_queue *into) {
  uint64_t sequence = 0, link;
  sb_status status = sb_store_absent(into, &sequence, LEAF, &link);
  while (status == SB_OK) {
    const version *v = &disk->versions[disk->current % 2];
    sb_stored_row row = {v->heads, v->bodies, v->heads_length, v->bodies_length, v->ended};
    do {
      status = sb_store_come_back(into, 0, link, &row, 1);
    } while (again(status));
    if (status != SB_OK && status != SB_DONE) return;
    sequence = 0;
    status = sb_store_absent(into, &sequence, LEAF, &link);
  }
}

static bool load_what_is_wanted(test_broker *t, sb_queue *into) {
  uint32_t slot;
  uint64_t sequence;
  if (!sb_store_wanting(t->b, &slot, &sequence)) return false;
  load(into);
  return true;
}

void begin_a_store(test_broker *t, sb_queue *of) {
  (void)t;
  disk = mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (disk == MAP_FAILED) die("mmap", 0);
  gather(of, &disk->versions[0]);
  sb_store_advance(of, PAGED_MESSAGES);
  load_wanted = load_what_is_wanted;
}

static void turn(void) {
  sb_store_change changes[CHANGES];
  uint32_t count, number = sb_store_turn_begin(kid.c);
  version *next = &disk->versions[(disk->current + 1) % 2];
  bool afresh = disk->afresh;
  memcpy(next, &disk->versions[disk->current % 2], sizeof *next);
  disk->afresh = true;
  (void)sb_store_changes(q, 0, afresh, changes, CHANGES, &count);
  for (uint32_t i = 0; i < count; i++) {
    if (changes[i].first == 0) next->ended |= changes[i].whole ? UINT64_MAX : changes[i].ended;
  }
  disk->current++;
  disk->afresh = false;
  sb_store_turn_end(kid.c, number);
}

void let_leaf_leave(void) {
  turn();
  (void)sb_store_leave(q, LANE_END, 0, 1, NULL, NULL);
}
void let_leaf_come_back(void) { load(q); }
void leave_and_come_back(void) {
  let_leaf_leave();
  load(q);
}
void leave_and_come_back_marked(void) {
  let_leaf_leave();
  mark_first_leaf(q);
  load(q);
}
void hold_one_loading(void) { (void)get(&kid, q, buffer, false); }
void get_loading_and_ack(void) {
  if (get(&kid, q, buffer, false) != 0) settle(SB_ACK);
}
void browse_loading(void) {
  uint64_t position = 0;
  int64_t length;
  while ((length = sb_queue_browse(q, &position, spare, BUFFER)) > 0 ||
         (length == -(int64_t)SB_GROW && (load_what_is_wanted(&kid, q) || grow(kid.b, kid.path)))) {
  }
}
void purge_loading(void) {
  uint64_t removed = 0;
  while (sb_queue_purge(q, &removed) == SB_GROW && (load_what_is_wanted(&kid, q) || grow(kid.b, kid.path))) {
  }
}
void leave_and_delete(void) {
  int32_t holder;
  uint64_t removed;
  let_leaf_leave();
  (void)sb_queue_delete(q, false, false, FOREVER, &holder, &removed);
}
