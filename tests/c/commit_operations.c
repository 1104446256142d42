// SPDX-License-Identifier: Apache-2.0
#include "commit_operations.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "child.h"
#include "operations.h"

static void commit_with(uint64_t id, uint32_t count, uint64_t bytes, const sb_put_options *o, const sb_settlement *ends,
                        uint32_t end_count) {
  sb_queue *forth[2] = {q, other}, *back[2] = {other, q};
  sb_publication publications[2];
  uint32_t publication, target;
  uint64_t *bodies = calloc(count, bytes);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t *body = bodies + i * (bytes / sizeof id);
    fill_body(body, bytes, id + i);
    publications[i] = (sb_publication){(const char *)body, bytes, o, i == 0 ? forth : back, 2};
  }
  while (again(sb_transaction_commit(kid.c, publications, count, ends, end_count, &publication, &target))) {
  }
  free(bodies);
}
void commit_as(uint64_t id, const sb_put_options *o) { commit_with(id, 1, 64, o, NULL, 0); }
void commit_one(void) { commit_with(FRESH, 1, 64, NULL, NULL, 0); }
void commit_two(void) { commit_with(FRESH, 2, 64, NULL, NULL, 0); }
void commit_bytes(uint64_t bytes) { commit_with(FRESH, 1, bytes, NULL, NULL, 0); }
void commit_long(void) { commit_bytes(20000); }
void commit_delayed(void) {
  sb_put_options o = {.delay_ns = 3600000000000u, .key = "key", .key_length = 3};
  commit_with(FRESH, 1, 64, &o, NULL, 0);
}
void commit_expiring(void) {
  sb_put_options o = {.ttl_ns = 3600000000000u};
  commit_with(FRESH, 1, 64, &o, NULL, 0);
}

/* ---- beside a commit that another thread of the connection never ends ---- */

static sem_t in_copy;
static void stay_there(int signal_number) {
  (void)signal_number;
  sem_post(&in_copy);
  for (;;) pause();
}
/* Its body cannot be read, so the thread stays in the copy, which needs no lock. */
static void *commit_unreadable(void *unused) {
  size_t bytes = 20000;
  sb_queue *both[2] = {q, other};
  uint32_t publication, target;
  void *body = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sb_publication one = {body, bytes, NULL, both, 2};
  (void)sb_transaction_commit(kid.c, &one, 1, NULL, 0, &publication, &target);
  return unused;
}
void begin_another_commit(void) {
  pthread_t thread;
  struct sigaction stay = {.sa_handler = stay_there};
  if (sem_init(&in_copy, 0, 0) != 0 || sigaction(SIGSEGV, &stay, NULL) != 0 ||
      pthread_create(&thread, NULL, commit_unreadable, NULL) != 0)
    die("another commit", 0);
  while (sem_wait(&in_copy) != 0) {
  }
}

/* ---- to twelve queues: more than there are references in the header of a slot for ---- */

static sb_queue *many[MANY + 2];
static uint64_t many_bytes = 64;
void open_many(void) {
  for (unsigned i = 0; i < MANY; i++) {
    char name[16];
    snprintf(name, sizeof name, "t%u", i);
    (void)declare(&kid, name, (sb_settings)FREELY);
    many[i] = open_queue(&kid, name);
  }
  many[MANY] = q;
  many[MANY + 1] = other;
}
void commit_to_many(void) {
  static uint64_t body[LONG / sizeof(uint64_t)];
  uint32_t publication, target;
  for (size_t i = 0; i < LONG / sizeof *body; i++) body[i] = FRESH;
  sb_publication one = {(const char *)body, many_bytes, NULL, many, MANY + 2};
  while (again(sb_transaction_commit(kid.c, &one, 1, NULL, 0, &publication, &target))) {
  }
}
void hold_the_last_of_many(void) {
  many_bytes = LONG;
  open_many();
  commit_to_many();
  for (unsigned i = 0; i < MANY + 2; i++) {
    if (many[i] != q) (void)get(&kid, many[i], spare, true);
  }
  get_one();
}
void hold_one_of_many(void) {
  many_bytes = LONG;
  open_many();
  commit_to_many();
  get_one();
}
void return_one_of_many(void) {
  hold_one_of_many();
  settle(SB_REQUEUE);
}

/* ---- with acknowledgements ---- */

static uint64_t token_in(const char *record) {
  return ((const sb_record *)(const void *)record)->tag & ((UINT64_C(1) << 40) - 1);
}
void take_two(void) {
  (void)get(&kid, q, buffer, false);
  (void)get(&kid, q, spare, false);
}
static void transact_as(sb_disposition first, sb_disposition second) {
  sb_settlement ends[2] = {{q, token_in(buffer), first}, {q, token_in(spare), second}};
  commit_with(FRESH, 1, 64, NULL, ends, 2);
}
void transact(void) { transact_as(SB_ACK, SB_REJECT); }
void transact_and_requeue(void) { transact_as(SB_ACK, SB_REQUEUE); }
void transact_in_vain(void) {
  sb_settlement ends[2] = {{q, token_in(buffer), SB_ACK}, {q, token_in(buffer), SB_ACK}};
  commit_with(FRESH, 1, 64, NULL, ends, 2);
}
void acknowledge_together(void) {
  sb_settlement ends[2] = {{q, token_in(buffer), SB_ACK}, {q, token_in(spare), SB_ACK}};
  uint32_t publication, target;
  (void)sb_transaction_commit(kid.c, NULL, 0, ends, 2, &publication, &target);
}
void take_part_in_a_transaction(bool with_many) {
  if (with_many) {
    open_many();
    commit_to_many();
  }
  take_two();
  transact();
}

/* ---- a body that two queues have ---- */

void get_shared(void) {
  commit_long();
  get_one();
}
void get_other_shared(void) {
  commit_long();
  (void)get(&kid, other, spare, false);
  (void)get(&kid, q, buffer, false);
}
void move_one_viewed(void) {
  sb_record r;
  uint64_t view, used;
  uint32_t index[3 + 1];
  memcpy(&r, buffer, sizeof r);
  (void)sb_queue_get_many(other, 1, true, spare, BUFFER, index, &used);
  (void)sb_view_begin(kid.c, r.tag, r.sequence, r.body_address, &view); /* lives on */
  settle(SB_REQUEUE);
  move();
}
void share_others(void) { commit_with(OTHERS, 1, 64, NULL, NULL, 0); }
