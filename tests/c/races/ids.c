// SPDX-License-Identifier: Apache-2.0
/* Scenarios of a queue that remembers ids. Message 9 has the id "a", message 17 the id "b". After each run the keeper puts
 * message 9 with its id once more: it is there once, whatever came between. */
#include "roles.h"
#include "sb_duplicates.h"
#include "scenarios.h"

#define REMEMBERING {{-1, -1, -1, SB_OVERFLOW_BLOCK, -1, -1, [SB_SETTING_DUPLICATE_IDS] = 2}, 0}
#define WITH_ID(letter) \
  {.properties = "\x20\x00\x00\x00\x00\x15" \
                 "\x0ex-duplicate-idS\x00\x00\x00\x01" letter, \
   .properties_length = 27, \
   .duplicates = SB_DUPLICATES_FAIL}

static const sb_put_options A = WITH_ID("a"), B = WITH_ID("b");

/* ---- before ---- */

/* The first block is there. */
static void ids_are_there(void) {
  sb_claim claim;
  act_as(KEEPER);
  if (sb_duplicates_claim(me()->q, sb_id_of("z", 1), &claim) != SB_OK) die("a claim", 0);
  sb_duplicates_withdraw(me()->t.c, &claim);
}
static void first_has_put(void) {
  act_as(0);
  uint64_t body[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  note_put(9, false);
  note_put(9, sb_queue_put_with(me()->q, (const char *)body, sizeof body, &A) == SB_OK);
}

/* ---- roles ---- */

static void put_9_once(void) {
  uint64_t body[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  note_put(9, false);
  sb_status status = sb_queue_put_with(me()->q, (const char *)body, sizeof body, &A);
  if (status == SB_OK) note_put(9, true);
  scheduler_note(status == SB_OK ? "put" : status == SB_UNDECIDED ? "undecided" : "not-put");
}
static void commit_in_order(uint64_t first, uint64_t second) {
  uint64_t one[8], two[8];
  sb_publication p[2] = {{(const char *)one, sizeof one, first == 9 ? &A : &B, &me()->q, 1},
                         {(const char *)two, sizeof two, second == 9 ? &A : &B, &me()->q, 1}};
  uint32_t publication, target;
  for (unsigned i = 0; i < 8; i++) {
    one[i] = first;
    two[i] = second;
  }
  note_put(9, false);
  note_put(17, false);
  sb_status status = sb_transaction_commit(me()->t.c, p, 2, NULL, 0, &publication, &target);
  if (status == SB_OK) {
    note_put(9, true);
    note_put(17, true);
  }
  scheduler_note(status == SB_OK          ? "committed"
                 : status == SB_UNDECIDED ? "undecided"
                 : status == SB_DUPLICATE ? "known"
                                          : "not-committed");
}
static void commit_both(void) { commit_in_order(9, 17); }
static void commit_both_the_other_way(void) { commit_in_order(17, 9); }

/* ---- afterwards ---- */

static void keeper_puts_again(void) {
  uint64_t body[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  note_put(9, false);
  if (sb_queue_put_with(me()->q, (const char *)body, sizeof body, &A) != SB_OK) complain("the keeper cannot put");
  note_put(9, true);
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"ids, two puts", "one of two puts of an id stores its message", REMEMBERING, ids_are_there,
     {{"a", put_9_once, 0, "put"}, {"b", put_9_once, 1, "put"}}, keeper_puts_again, KEEPS_ALL},
    {"ids, two first puts", "the first block is made once, or twice", REMEMBERING, nothing,
     {{"a", put_9_once, 0, "put"}, {"b", put_9_once, 1, "put"}}, keeper_puts_again, KEEPS_ALL},
    {"ids, three puts", "and one of three", REMEMBERING, ids_are_there,
     {{"a", put_9_once, 0, "put"}, {"b", put_9_once, 1, "put"}, {"c", put_9_once, 2, "put"}}, keeper_puts_again,
     KEEPS_ALL},
    {"ids, put, take", "an id is known longer than its message is there", REMEMBERING, first_has_put,
     {{"take", take_then_ack, 0, "got acked"}, {"put", put_9_once, 1, "put"}}, keeper_puts_again, KEEPS_ALL},
    {"ids, put, commit", "a commit fails with all it has, or the put is in vain", REMEMBERING, ids_are_there,
     {{"commit", commit_both, 0, "committed"}, {"put", put_9_once, 1, "put"}}, keeper_puts_again, KEEPS_ALL},
    {"ids, two commits", "ids in another order", REMEMBERING, ids_are_there,
     {{"a", commit_both, 0, "committed"}, {"b", commit_both_the_other_way, 1, "known"}}, keeper_puts_again, KEEPS_ALL},
};
/* clang-format on */
const subject ID_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
