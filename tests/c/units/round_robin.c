// SPDX-License-Identifier: Apache-2.0
/* sb_round_robin: which consumer of a connection's channels gets the next message of a queue. The case creates queues
 * and consumers; dealing reads nothing else of them. */
#include "sb_round_robin.h"

#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "heap.h"

#define MEMBERS 4u
#define FIRST_QUEUE 6u
#define SAME_HASH (FIRST_QUEUE + 3 * SB_ROUND_ROBINS)
#define BUCKET (FIRST_QUEUE / 3)

static sb_queue queues[2];
static sb_member m[MEMBERS];

static void begin(void) {
  memset(m, 0, sizeof m);
  for (unsigned i = 0; i < 2; i++) queues[i] = (sb_queue){.c = t.c, .slot = i == 0 ? FIRST_QUEUE : SAME_HASH};
}
static void join(unsigned i, unsigned queue, int32_t priority) {
  m[i].s.q = &queues[queue];
  m[i].s.priority = priority;
  expect(sb_round_robin_join(&m[i]), "a consumer cannot join");
}
static void join_willing(unsigned i, unsigned queue, int32_t priority) {
  join(i, queue, priority);
  sb_round_robin_willing(&m[i], true);
}
static sb_round_robin *deal_of(unsigned i) { return m[i].rank->deal; }
static const sb_member *next(unsigned i) { return sb_round_robin_next(deal_of(i)); }

/* Those that are willing, in both directions. */
static void expect_circle(const sb_round_robin_rank *rank, const char *what, unsigned n, const unsigned *order) {
  const sb_member *at = rank->first;
  for (unsigned i = 0; i < n; i++, at = at->next) {
    if (at != &m[order[i]]) {
      complain("%s: another one is at place %u", what, i);
      return;
    }
  }
  expect(at == NULL, "%s: there are more than %u", what, n);
  at = rank->last;
  for (unsigned i = n; i-- > 0; at = at->previous) {
    if (at != &m[order[i]]) {
      complain("%s: backwards another one is at place %u", what, i);
      return;
    }
  }
  expect(at == NULL, "%s: backwards there are more than %u", what, n);
}
#define expect_willing(rank, what, n, ...) expect_circle(rank, what, n, (const unsigned[]){__VA_ARGS__})

static void each_queue_has_its_own_turns(void) {
  begin();
  join_willing(0, 0, 0);
  join_willing(1, 1, 0);
  join_willing(2, 1, 0);
  expect(deal_of(0) != deal_of(1) && deal_of(1) == deal_of(2), "queues of one hash are dealt together");
  expect_is(deal_of(0)->queue, FIRST_QUEUE, "the first queue");
  expect_is(deal_of(1)->queue, SAME_HASH, "the second queue");
  expect(t.c->round_robins[BUCKET] == deal_of(0) && deal_of(0)->next == deal_of(1), "they are not in one chain");
  for (unsigned i = 0; i < SB_ROUND_ROBINS; i++)
    expect(i == BUCKET || t.c->round_robins[i] == NULL, "another chain has something");
  sb_round_robin *second = deal_of(1);
  sb_round_robin_leave(&m[0]);
  expect(t.c->round_robins[BUCKET] == second, "the first queue is still there");
  expect(m[0].rank == NULL && !m[0].willing, "what left has a rank");
  sb_round_robin_leave(&m[1]);
  expect(t.c->round_robins[BUCKET] == second, "a queue was forgotten before its last consumer left");
  expect(next(2) == &m[2], "another one has the turn");
  expect_willing(m[2].rank, "what is left", 1, 2);
  expect_is(m[2].rank->members, 1, "how many are left");
  sb_round_robin_leave(&m[2]);
  expect(t.c->round_robins[BUCKET] == NULL, "the last queue is still there");
}
static void the_highest_priority_is_first(void) {
  begin();
  join_willing(0, 0, 1);
  join_willing(1, 0, 7);
  join_willing(2, 0, -3);
  join_willing(3, 0, 4);
  const sb_round_robin_rank *rank = deal_of(0)->ranks;
  const int32_t priorities[] = {7, 4, 1, -3};
  for (unsigned i = 0; i < 4 && rank != NULL; i++, rank = rank->lower) {
    expect(rank->priority == priorities[i], "rank %u has priority %d", i, rank->priority);
    expect(rank->deal == deal_of(0), "a rank is of another queue");
    expect_is(rank->members, 1, "its consumers");
  }
  expect(rank == NULL, "there are more ranks");
  expect(next(0) == &m[1], "another one is first");
  sb_round_robin_willing(&m[1], false);
  expect(next(0) == &m[3], "it is not the turn of the next priority");
  sb_round_robin_leave(&m[3]);
  expect(next(0) == &m[0], "it is not the turn of the priority after it");
  sb_round_robin_willing(&m[0], false);
  expect(next(0) == &m[2], "it is not the turn of the lowest priority");
  sb_round_robin_willing(&m[2], false);
  expect(next(0) == NULL, "it is the turn of what is not willing");
  sb_round_robin_leave(&m[1]);
  expect(deal_of(0)->ranks == m[0].rank, "the rank of what left is still there");
  expect(m[0].rank->lower == m[2].rank, "the ranks that are left are not in a row");
}
static void turns_go_round(void) {
  begin();
  for (unsigned i = 0; i < 3; i++) join_willing(i, 0, 0);
  sb_round_robin_rank *rank = m[0].rank;
  expect_is(rank->members, 3, "consumers of a rank");
  expect_willing(rank, "at first", 3, 0, 1, 2);
  sb_round_robin_served(&m[0]);
  expect_willing(rank, "after the first was served", 3, 1, 2, 0);
  sb_round_robin_served(&m[2]);
  expect_willing(rank, "after the second was served", 3, 1, 0, 2);
  sb_round_robin_served(&m[2]);
  expect_willing(rank, "after the last was served", 3, 1, 0, 2);
  sb_round_robin_willing(&m[0], true);
  expect_willing(rank, "after it was willing once more", 3, 1, 0, 2);
  sb_round_robin_willing(&m[0], false);
  expect_willing(rank, "after one is not willing", 2, 1, 2);
  sb_round_robin_willing(&m[0], false);
  expect_willing(rank, "after it is not willing once more", 2, 1, 2);
  sb_round_robin_willing(&m[1], false);
  sb_round_robin_served(&m[1]); /* the last one that it took was all it may have */
  expect_willing(rank, "after one was served that is not willing", 1, 2);
  sb_round_robin_willing(&m[0], true);
  expect_willing(rank, "after one came back", 2, 2, 0);
  expect_is(rank->members, 3, "consumers, willing or not");
  sb_round_robin_leave(&m[2]);
  expect_willing(rank, "after a willing one left", 1, 0);
  expect_is(rank->members, 2, "consumers after one left");
}
/* What takes nothing of its own connection goes its own way through the queue. */
static void foreign_ones_have_no_turn(void) {
  begin();
  m[0].s.choosy = true;
  join_willing(0, 0, 0);
  expect(m[0].willing, "it is not willing");
  expect_willing(m[0].rank, "a foreign one", 0, 0);
  expect(next(0) == NULL, "it is its turn");
  join_willing(1, 0, 0);
  join_willing(2, 0, 0);
  m[0].next = &m[2];
  sb_round_robin_served(&m[0]);
  m[0].next = NULL;
  expect_willing(m[0].rank, "after the foreign one was served", 2, 1, 2);
  sb_round_robin_willing(&m[0], false);
  expect(!m[0].willing, "it is willing");
  expect_willing(m[0].rank, "after the foreign one is not willing", 2, 1, 2);
}
static void join_and_leave(void) {
  for (unsigned i = 0; i < MEMBERS; i++) join_willing(i, i % 2, (int32_t)i / 2);
  for (unsigned i = 0; i < MEMBERS; i++) sb_round_robin_leave(&m[i]);
}
static void memory_goes_back(void) {
  begin();
  expect_is(heap_kept_by(join_and_leave), 0, "what is kept");
}
/* A queue is forgotten if there is no memory for its rank. */
static void without_memory_none_joins(void) {
  void *small[64];
  begin();
  m[0].s.q = m[1].s.q = &queues[0];
  join_willing(2, 1, 0);
  m[3].s.q = &queues[1];
  m[3].s.priority = 5;
  sb_round_robin *other = deal_of(2);
  for (unsigned i = 0; i < 64; i++) small[i] = malloc(sizeof(sb_round_robin));
  if (!heap_exhaust()) return;
  bool joined = sb_round_robin_join(&m[0]);
  bool rank_joined = sb_round_robin_join(&m[3]);
  bool chained = t.c->round_robins[BUCKET] == other && other->next == NULL;
  for (unsigned i = 0; i < 64; i += 2) free(small[i]); /* room for some queues, and between them for no rank */
  bool joined_half = sb_round_robin_join(&m[1]);
  bool chained_half = t.c->round_robins[BUCKET] == other && other->next == NULL;
  heap_relieve();
  expect(!joined, "it joined without memory");
  expect(!rank_joined && other->ranks == m[2].rank && m[2].rank->lower == NULL, "it joined without memory for a rank");
  expect(chained, "the queue of one that did not join is known");
  expect(!joined_half, "it joined without memory for the rank of a new queue");
  expect(chained_half, "a queue without ranks is known");
  join_willing(0, 0, 0);
  expect(next(0) == &m[0], "it cannot join when there is memory");
}

static const test_case CASES[] = {
    {"round_robin: queues", "each queue has its own turns", each_queue_has_its_own_turns},
    {"round_robin: priorities", "the highest priority that is willing is first", the_highest_priority_is_first},
    {"round_robin: turns", "what was served is the last of its rank", turns_go_round},
    {"round_robin: foreign", "a consumer of foreign messages has no turn", foreign_ones_have_no_turn},
    {"round_robin: memory", "memory goes back to the process", memory_goes_back},
    {"round_robin: no memory", "a consumer that has no memory leaves nothing behind", without_memory_none_joins},
};
SUBJECT(CASES)
