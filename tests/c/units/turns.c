// SPDX-License-Identifier: Apache-2.0
/* sb_turns and the storekeeper's place in sb_api_store: numbers of turns, who waits for which, who rings whom. */
#include "sb_turns.h"

#include <unistd.h>

#include "calls.h"
#include "sb_wait.h"
#include "system.h"

#define SOON (sb_now_ns() + UINT64_C(1000000))
#define LONG (sb_now_ns() + UINT64_C(60000000000))

static void set_turns(uint32_t begun, uint32_t done, uint32_t asked) {
  SB_STORE(&t.b->header->turns_begun, begun, SB_RELAXED);
  SB_STORE(&t.b->header->turns_done, done, SB_RELAXED);
  SB_STORE(&t.b->header->turns_asked, asked, SB_RELAXED);
}

static void a_wait_is_for_the_turn_after_the_last_that_began(void) {
  expect_is(sb_store_ask(t.c), 1, "the first turn");
  expect(sb_turns_are_asked(t.b), "no turn is asked for");
  expect_is(sb_store_await(t.c, 1, SOON), SB_TIMEOUT, "the status of a wait in vain");
  expect_is(sb_store_turn_begin(t.c), 1, "the turn that begins");
  expect_is(sb_store_ask(t.c), 2, "the turn for later changes");
  expect(!sb_turns_are_done(t.b, 1), "a turn that began is done");
  sb_store_turn_end(t.c, 1);
  expect(sb_turns_are_done(t.b, 1), "the turn is not done");
  expect(!sb_turns_are_done(t.b, 2), "the next turn is done");
  expect(sb_turns_are_asked(t.b), "the next turn is not asked for");
  expect_is(sb_store_await(t.c, 1, LONG), SB_OK, "the status of a wait");
  expect_is(sb_store_turn_begin(t.c), 2, "the next turn");
  sb_store_turn_end(t.c, 2);
  expect(!sb_turns_are_asked(t.b), "a turn is asked for that is done");
}
static void numbers_go_on_after_the_last_one(void) {
  set_turns(UINT32_MAX, UINT32_MAX, UINT32_MAX);
  expect_is(sb_store_ask(t.c), 0, "the turn after the last number");
  expect(sb_turns_are_asked(t.b), "it is not asked for");
  expect(!sb_turns_are_done(t.b, 0), "it is done");
  expect_is(sb_store_turn_begin(t.c), 0, "the turn that begins");
  sb_store_turn_end(t.c, 0);
  expect(sb_turns_are_done(t.b, 0), "it is not done");
  expect(sb_turns_are_done(t.b, UINT32_MAX), "the one before is not done");
}
static void an_earlier_question_changes_nothing(void) {
  set_turns(4, 4, 9);
  expect_is(sb_store_ask(t.c), 5, "the turn");
  expect_is(SB_LOAD(&t.b->header->turns_asked, SB_RELAXED), 9, "the highest turn that is asked for");
}
static void a_purge_ends_the_wait(void) {
  (void)sb_store_ask(t.c);
  SB_STORE(&t.b->header->closing, 1u, SB_SEQ_CST);
  expect_is(sb_turns_wait(t.b, 1, LONG), SB_STOPPING, "the status of the wait");
  expect_is(sb_store_await(t.c, 1, LONG), SB_STOPPING, "the status of the call");
}
static void one_storekeeper_at_a_time(void) {
  expect_is(sb_store_keeper(t.b), 0, "the storekeeper of a broker without one");
  expect_is(sb_store_begin(t.c), SB_OK, "the status of the first");
  expect_is(sb_store_begin(t.c), SB_EXISTS, "the status of the second");
  expect(sb_store_keeper(t.b) > 0, "there is no storekeeper");
  expect_is(SB_LOAD(&t.b->header->storekeeper_waiter, SB_RELAXED), t.c->io_node, "the node that it sleeps on");
  sb_store_end(t.c);
  expect_is(sb_store_keeper(t.b), 0, "the storekeeper after its end");
  expect_is(SB_LOAD(&t.b->header->storekeeper_waiter, SB_RELAXED), 0, "its node then");
  int other = hold_byte(SB_LOCK_STOREKEEPER);
  expect_is(sb_store_begin(t.c), SB_EXISTS, "the status beside another process");
  (void)close(other);
  expect_is(sb_store_begin(t.c), SB_OK, "the status when that has ended");
  sb_store_end(t.c);
}
static void the_storekeeper_rests_until_it_is_asked(void) {
  expect_is(sb_store_begin(t.c), SB_OK, "the status of the begin");
  expect_is(sb_store_rest(t.c, SOON), SB_TIMEOUT, "the status of a rest");
  (void)sb_store_ask(t.c);
  expect_is(sb_store_rest(t.c, LONG), SB_OK, "the status when a turn is asked for");
  SB_STORE(&t.b->header->stopped, 1u, SB_SEQ_CST);
  expect_is(sb_store_rest(t.c, LONG), SB_STOPPING, "the status when the broker is stopped");
  sb_store_end(t.c);
}

static void set_commits(uint32_t begun, uint32_t done) {
  SB_STORE(&t.b->header->commits_begun, begun, SB_RELAXED);
  SB_STORE(&t.b->header->commits_done, done, SB_RELAXED);
}
static uint32_t commits_done(void) { return SB_LOAD(&t.b->header->commits_done, SB_RELAXED); }
static void a_commit_that_is_carried_out_is_awaited(void) {
  set_commits(UINT32_MAX, UINT32_MAX);
  expect_is(sb_store_await_commits(t.c), UINT32_MAX, "the commits when none is carried out");
  sb_turns_commit_begins(t.b);
  SB_STORE(&t.c->shm->commit, SB_COMMIT_STORED, SB_RELAXED);
  uint64_t before = sb_now_ns();
  expect_is(sb_store_await_commits(t.c), 0, "the commits with one whose process is stopped");
  expect(sb_now_ns() - before >= 20000000, "it was not awaited");
  expect_is(commits_done(), UINT32_MAX, "how many have ended");
  sb_turns_commit_ends(t.b);
  expect_is(sb_store_await_commits(t.c), 0, "the commits when it has ended");
  expect_is(sb_store_commits(t.c), 0, "the same, without a wait");
}
static void a_commit_that_was_counted_twice_is_made_up_for(void) {
  set_commits(7, 5);
  SB_STORE(&t.c->shm->commit, SB_COMMIT_DECIDED, SB_RELAXED);
  expect_is(sb_store_await_commits(t.c), 7, "the commits");
  expect_is(commits_done(), 7, "how many have ended, when nobody carries one out");
}
static void a_move_is_awaited(void) {
  set_commits(3, 3);
  sb_turns_move_begins(t.c);
  expect_is(SB_LOAD(&t.c->shm->commit, SB_RELAXED), SB_COMMIT_MOVING, "the commit word during a move");
  expect_is(sb_store_await_commits(t.c), 4, "the commits with a move");
  expect_is(commits_done(), 3, "how many have ended");
  sb_turns_move_ends(t.c);
  expect_is(SB_LOAD(&t.c->shm->commit, SB_RELAXED), SB_COMMIT_NONE, "the commit word afterwards");
  expect_is(commits_done(), 4, "how many have ended then");
}
static void a_move_of_the_dead_is_made_up_for(void) {
  set_commits(4, 3);
  SB_STORE(&t.c->shm->commit, SB_COMMIT_NONE, SB_RELAXED);
  expect_is(sb_store_await_commits(t.c), 4, "the commits");
  expect_is(commits_done(), 4, "how many have ended, when no connection moves a message");
}
static uint64_t held_until(void) { return SB_LOAD(&t.b->header->commits_held_ns, SB_RELAXED); }
static void commits_are_held_back_for_a_while(void) {
  uint64_t before = sb_now_ns();
  sb_store_hold_commits(t.c, true);
  expect(held_until() >= before + 20000000, "commits are not held back for 20 ms");
  expect(held_until() <= sb_now_ns() + 20000000, "they are held back for longer");
  sb_turns_pass_hold(t.b);
  expect(sb_now_ns() - before >= 20000000, "a commit that is held back does not wait");
  sb_store_hold_commits(t.c, true);
  sb_store_hold_commits(t.c, false);
  expect_is(held_until(), 0, "the end of a hold that was given up");
}

static const test_case CASES[] = {
    {"turns: a wait", "is for the turn after the last one that began",
     a_wait_is_for_the_turn_after_the_last_that_began},
    {"turns: numbers", "go on after the last one", numbers_go_on_after_the_last_one},
    {"turns: an earlier question", "changes nothing", an_earlier_question_changes_nothing},
    {"turns: a purge", "ends the wait", a_purge_ends_the_wait},
    {"turns: the storekeeper", "is one at a time", one_storekeeper_at_a_time},
    {"turns: commits", "that are being carried out are awaited", a_commit_that_is_carried_out_is_awaited},
    {"turns: a commit", "that was counted twice is made up for", a_commit_that_was_counted_twice_is_made_up_for},
    {"turns: moves", "that are under way are awaited", a_move_is_awaited},
    {"turns: a dead move", "is made up for", a_move_of_the_dead_is_made_up_for},
    {"turns: a hold", "keeps commits back for a while", commits_are_held_back_for_a_while},
    {"turns: the storekeeper's rest", "lasts until a turn is asked for", the_storekeeper_rests_until_it_is_asked},
};
SUBJECT(CASES)
