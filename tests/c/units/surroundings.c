// SPDX-License-Identifier: Apache-2.0
#include "surroundings.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sb_nodes.h"
#include "sb_parts.h"
#include "sb_reserve.h"

/* ---- queues ---- */

sb_queue *make_queue(const char *name, sb_settings settings) {
  if (declare(&t, name, settings) != SB_OK) die("sb_queue_declare", 0);
  sb_queue *q = open_queue(&t, name);
  if (q == NULL) die("sb_queue_open", 0);
  return q;
}
void mark_closed(const sb_queue *q) {
  SB_STORE(&q->shm->state, (q->state & ~UINT64_C(3)) | SB_QUEUE_CLOSED, SB_RELAXED);
}
uint64_t counted(const sb_queue *q, unsigned counter) { return sb_ledger_sum(t.b, q->shm, counter); }
void die_in_debt(const char *queue) {
  pid_t pid = fork();
  if (pid == 0) {
    test_broker other = t;
    attach(&other);
    other.c = connect_to(&other);
    sb_queue *its = open_queue(&other, queue);
    sb_ledger_hinting(its->ledger, 1);
    (void)SB_ADD(&its->shm->taken, 1, SB_SEQ_CST);
    _exit(0);
  }
  if (waitpid(pid, NULL, 0) != pid) die("waitpid", 0);
}

/* ---- at rest ---- */

static struct {
  sb_queue *q;
  uint32_t busy;
  uint64_t held;
} rest;

/* Holdings that were taken and not given back, whatever they say. */
static uint64_t held(void) {
  uint64_t n = 0;
  sb_holdings_walk w;
  for (sb_holdings_shm *k = sb_holdings_first(&w, t.b, t.c->shm, t.c->id); k != NULL; k = sb_holdings_next(&w, k))
    n += sb_holdings_used(k) - SB_HOLDINGS_FIRST;
  for (uint64_t free = t.c->free_holding; free != 0; free = SB_LOAD(&sb_holding_at(t.b, free)->where, SB_RELAXED)) n--;
  return n;
}
void note_rest(sb_queue *q) {
  rest.q = q;
  rest.busy = q->busy;
  rest.held = held();
}
void expect_calm(const char *after) {
  expect(held() == rest.held, "after %s: %d things are held, not %d", after, (int)held(), (int)rest.held);
  expect(rest.q->busy == rest.busy, "after %s: the queue is busy %u times, not %u", after, rest.q->busy, rest.busy);
  expect(t.c->lock == 0 && t.c->gate->inside == 0, "after %s: the connection is locked", after);
  expect(t.c->use == SB_USE_DRAIN, "after %s: memory is taken for use %u", after, t.c->use);
  expect((rest.q->ledger->hinting & SB_HINTING_DEPTH) == 0, "after %s: hints are being changed", after);
}
void expect_rest(const char *after) {
  expect_calm(after);
  const char *trouble = findings(t.c);
  expect(trouble == NULL, "after %s: %s", after, trouble);
}

/* ---- waiters ---- */

uint32_t wait_at(sb_queue *q, uint32_t flags, uint32_t bytes) {
  uint32_t node;
  uint64_t token;
  sb_status status;
  do {
    status = sb_node_create(q->c, q->slot, 0, SB_NODE_DIRECT | flags, 0, bytes, &node, &token);
  } while (status == SB_GROW && grow(t.b, t.path));
  if (status != SB_OK || !sb_node_move(q->c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED))
    die("sb_node_create", (int)status);
  return node;
}
bool was_told(uint32_t node) { return sb_node_move(t.c, node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED); }

/* ---- memory ---- */

/* For what is taken for good. */
static uint64_t token_of_its_own(void) {
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  return token;
}
void leave_chunks(uint32_t chunks) {
  uint32_t slot;
  uint64_t gen;
  while (grow(t.b, t.path)) {
  }
  while (sb_chunk_spare(t.b) > chunks) {
    if (sb_slab_alloc(t.c, SB_MESSAGE_CLASSES, token_of_its_own(), &slot, &gen) != SB_OK) die("sb_slab_alloc", 0);
  }
}
void take_slots(unsigned cls) {
  uint32_t slot;
  uint64_t gen, token = token_of_its_own();
  while (sb_slab_alloc_spare(t.c, cls, true, token, &slot, &gen)) token = token_of_its_own();
  sb_holding_give(t.c, token);
}
void leave_none_of(unsigned kind, bool may_grow) {
  uint32_t slot;
  uint64_t gen;
  SB_STORE(&t.b->grow_again_ns, may_grow ? 0 : UINT64_MAX, SB_RELAXED);
  for (uint32_t i = 0; i < SB_LOAD(&t.b->mapped_chunks, SB_RELAXED); i++) {
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
  while (sb_slab_alloc(t.c, sb_class_of_kind(t.b, kind), SB_TOKEN_BOOT, &slot, &gen) == SB_OK) {
  }
}
static void move_to(uint32_t node, unsigned state) {
  if (!sb_node_move(t.c, node, SB_ANY_STATE & ~SB_IN(state), state)) die("sb_node_move", (int)state);
}
void leave_no_page_to(uint32_t node, uint32_t owner, unsigned ring, unsigned state, bool may_grow) {
  const sb_node_shm *n = sb_slot_at(t.b, node);
  unsigned before = sb_node_state(SB_LOAD(&n->word, SB_RELAXED));
  sb_ring list;
  if (!sb_ring_open(t.b, owner, ring, &list)) die("sb_ring_open", (int)ring);
  do {
    move_to(node, state);
    move_to(node, before);
  } while ((sb_ring_exact_tail(t.b, &list) - SB_LOAD(list.base, SB_RELAXED)) % SB_PAGE_CELLS != 0);
  leave_none_of(SB_KIND_LEAF, may_grow);
}
void break_parts(uint32_t head) {
  const sb_part_shm *first = sb_slot_at(t.b, sb_parts_first(t.b, head));
  ((sb_part_shm *)sb_slot_at(t.b, first->next))->head = 0;
}

/* ---- in the middle of a call ---- */

unsigned touches;
static struct {
  uintptr_t page;
  void (*what)(void);
} watched;

static uintptr_t page_bytes(void) { return (uintptr_t)sysconf(_SC_PAGESIZE); }
static void noticed(int number, siginfo_t *info, void *context) {
  (void)context;
  uintptr_t address = (uintptr_t)info->si_addr;
  if (watched.what == NULL || address < watched.page || address >= watched.page + page_bytes()) {
    (void)signal(number, SIG_DFL); /* and again, where it ends the case */
    return;
  }
  void (*what)(void) = watched.what;
  watched.what = NULL;
  touches++;
  if (mprotect((void *)watched.page, page_bytes(), PROT_READ | PROT_WRITE) != 0) die("mprotect", 0);
  what();
}
char *untouched(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap", 0);
  return memory;
}
void at_touch(const volatile void *address, void (*what)(void)) {
  struct sigaction action = {.sa_sigaction = noticed, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSEGV, &action, NULL) != 0) die("sigaction", 0);
  watched.page = (uintptr_t)address / page_bytes() * page_bytes();
  watched.what = what;
  if (mprotect((void *)watched.page, page_bytes(), PROT_NONE) != 0) die("mprotect", 0);
}
