// SPDX-License-Identifier: Apache-2.0
/* sb_duplicates: ids, claims, what is remembered and forgotten, blocks, and the claims of the dead; what the doctor finds
 * (sb_check_ids). `q` is the handle of `t.c`, `theirs` that of another connection, whose commit word a case sets. */
#include "sb_duplicates.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "checkup.h"
#include "sb_slab.h"
#include "sb_wait.h"

#define KEEPS(number) ((sb_settings){{-1, -1, -1, 0, -1, -1, [SB_SETTING_DUPLICATE_IDS] = (number)}, 0})
#define HEADERS "\x20\x00\x00\x00\x00"
#define NAME "\x0ex-duplicate-id"

static sb_queue *q, *theirs;
static sb_connection *other;

static void begin(int64_t number) {
  q = open_new("q", KEEPS(number));
  test_broker their = t;
  other = their.c = connect_to(&their);
  theirs = open_queue(&their, "q");
}
static sb_id id(uint64_t number) { return (sb_id){number, 4711}; }
static sb_status claim(sb_queue *of, uint64_t number, sb_claim *c) {
  sb_status status;
  while ((status = sb_duplicates_claim(of, id(number), c)) == SB_GROW && grow(t.b, t.path)) {
  }
  return status;
}
static void remember(sb_queue *of, uint64_t number) {
  sb_claim c;
  expect_is(claim(of, number, &c), SB_OK, "the status of a claim");
  sb_duplicates_remember(of, &c);
  sb_holding_give(of->c, c.token);
}
static sb_id_verdict look(uint64_t number) {
  unsigned owner;
  return sb_duplicates_look(q, id(number), &owner);
}
static sb_ids_shm *block(void) { return sb_duplicates_at(t.b, SB_LOAD(&q->shm->ids, SB_RELAXED)); }
static unsigned block_count(void) {
  unsigned count = 0;
  for (const sb_ids_shm *at = block(); at != NULL; at = sb_duplicates_at(t.b, SB_LOAD(&at->next, SB_RELAXED))) count++;
  return count;
}

/* ---- ids ---- */

static void the_hash_of_an_id(void) {
  sb_id none = sb_id_of("", 0), one = sb_id_of("a", 1), ten = sb_id_of("0123456789", 10);
  expect_is(one.low, UINT64_C(0xbea0379c744eccff), "the low half of the hash of a");
  expect_is(one.high, UINT64_C(0x2573cd0e8904c4e6), "the high half of the hash of a");
  expect_is(ten.low, UINT64_C(0x96fc0ed8874d9dad), "the low half of the hash of ten bytes");
  expect_is(ten.high, UINT64_C(0x17f0e1760ddd57e4), "the high half of the hash of ten bytes");
  expect(sb_id_given(none), "an empty id has the hash of no id");
}
static sb_id named(const char *properties, uint32_t length) { return sb_duplicates_id(properties, length); }
#define NAMED(properties) named(properties, sizeof(properties) - 1)
static void the_id_that_a_header_names(void) {
  sb_id a = sb_id_of("a", 1),
        text = NAMED(HEADERS "\x15" NAME "S\x00\x00\x00\x01"
                             "a"),
        bytes = NAMED(HEADERS "\x15" NAME "x\x00\x00\x00\x01"
                              "a");
  expect(text.low == a.low && text.high == a.high, "a text has another id");
  expect(bytes.low == a.low && bytes.high == a.high, "bytes have another id");
  expect(!sb_id_given(NAMED(HEADERS "\x14" NAME "S\x00\x00\x00\x00")), "an empty text is an id");
  expect(!sb_id_given(NAMED(HEADERS "\x14" NAME "x\x00\x00\x00\x00")), "no bytes are an id");
  expect(!sb_id_given(NAMED(HEADERS "\x14" NAME "I\x00\x00\x00\x07")), "a number is an id");
  expect(!sb_id_given(NAMED(HEADERS "\x14" NAME "A\x00\x00\x00\x00")), "an array is an id");
  expect(!sb_id_given(NAMED(HEADERS "\x00")), "a message without headers has an id");
  expect(!sb_id_given(named(NULL, 0)), "a message without properties has an id");
  expect(!sb_id_given(named("\x20\x00\x00", 3)), "damaged properties have an id");
}

/* ---- claims ---- */

static void a_claim_becomes_known_or_is_given_back(void) {
  sb_claim c;
  begin(3);
  expect_is(look(1), SB_ID_IS_NEW, "the verdict on an id that nobody put");
  expect_is(claim(q, 1, &c), SB_OK, "the status of a claim");
  expect_is(sb_id_state(c.word), SB_ID_CLAIMED, "the state of the claim");
  uint64_t token = c.token;
  expect_is(sb_holding_kind(SB_LOAD(&sb_holding_at(t.b, token)->what, SB_RELAXED)), SB_HOLD_ID, "the holding");
  sb_duplicates_withdraw(t.c, &c);
  expect_is(c.token, 0, "the token of a claim that was given back");
  expect_is(sb_holding_kind(SB_LOAD(&sb_holding_at(t.b, token)->what, SB_RELAXED)), SB_HOLD_NONE, "its holding");
  expect_is(look(1), SB_ID_IS_NEW, "the verdict on an id that was given back");
  sb_duplicates_withdraw(t.c, &c); /* again: nothing happens */
  remember(q, 1);
  expect_is(look(1), SB_ID_IS_DUPLICATE, "the verdict on a known id");
  expect_is(claim(q, 1, &c), SB_DUPLICATE, "the status of a claim of a known id");
  expect_is(c.token, 0, "the token of a claim that was refused");
  expect_is(look(2), SB_ID_IS_NEW, "the verdict on another id of the same block");
}
static void a_commit_claims_an_id_once(void) {
  sb_claim c, again;
  begin(3);
  expect_is(claim(q, 1, &c), SB_OK, "the status of a claim");
  expect_is(claim(q, 1, &again), SB_DUPLICATE, "the status of the same claim of the same commit");
  expect_is(claim(q, 2, &again), SB_OK, "the status of another claim of the same commit");
}
static void the_claim_of_another_commit(void) {
  sb_claim c, mine;
  unsigned owner = 0;
  begin(3);
  expect_is(claim(theirs, 1, &c), SB_OK, "the status of a claim");
  expect_is(sb_duplicates_look(q, id(1), &owner), SB_ID_IS_UNDECIDED, "the verdict on the claim of another commit");
  expect_is(owner, other->id, "the connection that has the claim");
  expect_is(claim(q, 1, &mine), SB_UNDECIDED, "the status of a claim beside it");
  expect(q->undecided_low == 1 && q->undecided_high == 4711, "the handle does not know what is undecided");
  expect_is(mine.token, 0, "the token of a claim that was given up");
  SB_STORE(&other->shm->commit, 1, SB_RELAXED);
  expect_is(look(1), SB_ID_IS_DUPLICATE, "the verdict on the claim of a commit that was decided");
  SB_STORE(&other->shm->commit, 0, SB_RELAXED);
  sb_duplicates_withdraw(other, &c);
  expect_is(claim(q, 1, &mine), SB_OK, "the status of a claim after it was given back");
}
static void a_cell_that_is_being_written_says_nothing(void) {
  sb_claim c;
  begin(3);
  expect_is(claim(theirs, 1, &c), SB_OK, "the status of a claim");
  SB_STORE(&c.entry->word, sb_id_word(SB_ID_WRITING, other->id, sb_id_tag(c.word)), SB_RELAXED);
  expect_is(look(1), SB_ID_IS_NEW, "the verdict on a hash that is not all there");
  SB_STORE(&c.entry->word, c.word, SB_RELAXED);
  SB_STORE(&c.entry->high, 4712, SB_RELAXED);
  expect_is(look(1), SB_ID_IS_NEW, "the verdict beside a hash that differs in its high half");
  SB_STORE(&c.entry->high, 4711, SB_RELAXED);
  SB_STORE(&c.entry->low, 1 + SB_IDS_PER_BLOCK, SB_RELAXED);
  expect_is(look(1), SB_ID_IS_NEW, "the verdict beside a hash that differs in its low half");
}

/* ---- numbers ---- */

static void the_last_ids_are_remembered(void) {
  begin(3);
  for (uint64_t n = 1; n <= 3; n++) remember(q, n);
  expect_is(look(1), SB_ID_IS_DUPLICATE, "the verdict on the oldest of three");
  remember(q, 4);
  expect_is(look(1), SB_ID_IS_NEW, "the verdict on it after a fourth");
  for (uint64_t n = 2; n <= 4; n++) expect_is(look(n), SB_ID_IS_DUPLICATE, "the verdict on the last three");
  expect_is(SB_LOAD(&q->shm->id_numbers, SB_RELAXED), 5, "the number of the latest");
}
static void a_larger_number_in_between_brings_nothing_back(void) {
  begin(2);
  for (uint64_t n = 1; n <= 9; n++) remember(q, n);
  const sb_settings five = KEEPS(5), three = KEEPS(3);
  int32_t holder;
  expect_is(sb_queue_configure(q, &five, false, FOREVER, &holder), SB_OK, "the status of a change to 5");
  expect_is(sb_queue_configure(q, &three, false, FOREVER, &holder), SB_OK, "the status of a change to 3");
  expect_is(look(7), SB_ID_IS_NEW, "the verdict on what two did not keep");
  expect_is(look(8), SB_ID_IS_DUPLICATE, "the verdict on what two kept");
}
/* Of two claims in the cells of an id, the older one decides: its commit does not wait for the younger one. */
static void the_oldest_of_several_rivals(void) {
  begin(3);
  sb_claim c;
  expect_is(claim(theirs, 1, &c), SB_OK, "the status of a claim");
  sb_id_shm *next = c.entry + 1; /* also a cell of the id */
  SB_STORE(&next->low, 1, SB_RELAXED);
  SB_STORE(&next->high, 4711, SB_RELAXED);
  SB_STORE(&next->word, sb_id_word(SB_ID_CLAIMED, other->id + 1, sb_id_tag(c.word) + 1), SB_RELAXED);
  unsigned owner;
  expect_is(sb_duplicates_look(q, id(1), &owner), SB_ID_IS_UNDECIDED, "the verdict beside two claims");
  expect_is(owner, other->id, "whose claim is older");
  SB_STORE(&next->word, sb_id_word(SB_ID_FREE, 0, 0), SB_RELAXED);
}
static void a_change_of_the_setting_brings_nothing_back(void) {
  begin(3);
  for (uint64_t n = 1; n <= 4; n++) remember(q, n);
  sb_settings more = KEEPS(10), one = KEEPS(1), none = KEEPS(0);
  int32_t holder;
  expect_is(sb_queue_configure(q, &more, false, FOREVER, &holder), SB_OK, "the status of a change to 10");
  expect_is(look(1), SB_ID_IS_NEW, "the verdict on what three did not keep");
  expect_is(look(2), SB_ID_IS_DUPLICATE, "the verdict on what three did keep");
  expect_is(sb_queue_configure(q, &one, false, FOREVER, &holder), SB_OK, "the status of a change to 1");
  expect_is(look(3), SB_ID_IS_NEW, "the verdict on what one does not keep");
  expect_is(look(4), SB_ID_IS_DUPLICATE, "the verdict on what one keeps");
  expect_is(sb_queue_configure(q, &none, false, FOREVER, &holder), SB_OK, "the status of a change to 0");
  expect(!sb_duplicates_wanted(q->shm), "a queue with 0 still looks at ids");
  expect_is(sb_queue_configure(q, &more, false, FOREVER, &holder), SB_OK, "the status of a change back to 10");
  expect_is(look(4), SB_ID_IS_NEW, "the verdict on what 0 did not keep");
  expect(sb_duplicates_wanted(q->shm), "a queue with 10 looks at no ids");
}
static void a_full_window_gets_another_block(void) {
  begin(1000);
  for (uint64_t n = 0; n <= SB_IDS_WINDOW; n++) {
    expect_is(block_count(), n != 0, "the number of blocks");
    remember(q, 7 + n * SB_IDS_PER_BLOCK); /* they all have the same cells */
  }
  expect_is(block_count(), 2, "the number of blocks after one too many");
  for (uint64_t n = 0; n <= SB_IDS_WINDOW; n++)
    expect_is(look(7 + n * SB_IDS_PER_BLOCK), SB_ID_IS_DUPLICATE, "the verdict on one of them");
  expect(sb_duplicates_links(t.b, SB_LOAD(&q->shm->ids, SB_RELAXED)), "a block that is linked is not");
  SB_STORE(&block()->next, SB_LOAD(&q->shm->ids, SB_RELAXED), SB_RELAXED);
  expect_is(look(7), SB_ID_IS_NEW, "the verdict behind a chain with a loop");
}
static void a_forgotten_id_gives_its_cell(void) {
  begin(1);
  for (uint64_t n = 0; n < 3 * SB_IDS_WINDOW; n++) remember(q, 7 + n * SB_IDS_PER_BLOCK);
  expect_is(block_count(), 1, "the number of blocks");
}

/* ---- the dead ---- */

static void end_claim(const sb_claim *c, uint64_t tag, bool decided) {
  uint32_t slot = SB_LOAD(&q->shm->ids, SB_RELAXED);
  sb_duplicates_end_dead(t.b, other->id, sb_holding_what(SB_HOLD_ID, q->slot, slot),
                         sb_id_place((uint32_t)(c->entry - block()->ids), tag), decided);
}
static void claims_of_the_dead(void) {
  sb_claim c;
  begin(3);
  remember(q, 1);
  expect_is(claim(theirs, 2, &c), SB_OK, "the status of a claim");
  end_claim(&c, sb_id_tag(c.word) + 1, false);
  expect_is(look(2), SB_ID_IS_UNDECIDED, "the verdict after the end of another claim");
  end_claim(&c, sb_id_tag(c.word), false);
  expect_is(SB_LOAD(&c.entry->word, SB_RELAXED), 0, "the word of a claim that was given back");
  SB_STORE(&c.entry->word, sb_id_word(SB_ID_WRITING, other->id, sb_id_tag(c.word)), SB_RELAXED);
  end_claim(&c, sb_id_tag(c.word), true);
  expect_is(sb_id_state(SB_LOAD(&c.entry->word, SB_RELAXED)), SB_ID_WRITING, "what cannot be decided");
  end_claim(&c, sb_id_tag(c.word), false);
  expect_is(SB_LOAD(&c.entry->word, SB_RELAXED), 0, "the word of a claim that was being written");
  SB_STORE(&c.entry->word, c.word, SB_RELAXED);
  end_claim(&c, sb_id_tag(c.word), true);
  expect_is(SB_LOAD(&c.entry->word, SB_RELAXED), sb_id_known(2), "the word of a claim that was decided");
  expect_is(SB_LOAD(&q->shm->id_numbers, SB_RELAXED), 2, "the number of the latest id");
}
static void holdings_that_are_damaged(void) {
  sb_claim c;
  begin(3);
  expect_is(claim(theirs, 2, &c), SB_OK, "the status of a claim");
  uint32_t slot = SB_LOAD(&q->shm->ids, SB_RELAXED);
  uint64_t place = sb_id_place((uint32_t)(c.entry - block()->ids), sb_id_tag(c.word));
  const uint64_t whats[] = {sb_holding_what(SB_HOLD_ID, slot, slot), sb_holding_what(SB_HOLD_ID, q->slot, q->slot),
                            sb_holding_what(SB_HOLD_ID, 0, slot)};
  for (unsigned i = 0; i < 3; i++) sb_duplicates_end_dead(t.b, other->id, whats[i], place, false);
  sb_duplicates_end_dead(t.b, other->id, sb_holding_what(SB_HOLD_ID, q->slot, slot), 4095, false);
  SB_STORE(&block()->queue, 0, SB_RELAXED);
  end_claim(&c, sb_id_tag(c.word), false);
  SB_STORE(&block()->queue, q->slot, SB_RELAXED);
  expect_is(SB_LOAD(&c.entry->word, SB_RELAXED), c.word, "the word of the claim");
}

/* ---- waiting ---- */

static void a_wait_for_an_id(void) {
  sb_claim c, mine;
  int32_t pid = 4711;
  begin(3);
  expect_is(sb_queue_wait_for_id(q, AT_ONCE, &pid), SB_OK, "the status of a wait for nothing");
  expect_is(pid, 0, "the process that is waited for");
  expect_is(claim(theirs, 1, &c), SB_OK, "the status of a claim");
  expect_is(claim(q, 1, &mine), SB_UNDECIDED, "the status of a claim beside it");
  expect_is(sb_queue_wait_for_id(q, AT_ONCE, &pid), SB_TIMEOUT, "the status of a wait in vain");
  expect_is(pid, getpid(), "the process that is waited for");
  expect_is(q->busy, 0, "the uses of the handle");
  SB_STORE(&other->shm->commit, 1, SB_RELAXED);
  expect_is(sb_queue_wait_for_id(q, AT_ONCE, &pid), SB_OK, "the status of a wait for what is decided");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_queue_wait_for_id(q, AT_ONCE, &pid), REFUSAL[i], "the status for an unusable connection");
    refuse(t.c, SB_OK);
  }
}

/* ---- puts and commits ---- */

static const char *stops_at;
static void stop_there(const char *site) {
  if (strcmp(site, stops_at) == 0) {
    at_step = NULL;
    raise(SIGSTOP);
  }
}

static const sb_put_options WITH_A = {.properties = HEADERS "\x15" NAME "S\x00\x00\x00\x01"
                                                            "a",
                                      .properties_length = 27};

static uint64_t ready(sb_queue *of) { return sb_queue_count_ready(t.b, of->shm); }
static void a_put_of_a_known_id_stores_nothing(void) {
  begin(3);
  expect_is(put_sized(&t, q, 1, 64, &WITH_A), SB_OK, "the status of a put");
  expect_is(put_sized(&t, q, 1, 64, &WITH_A), SB_OK, "the status of the same put");
  expect_is(ready(q), 1, "the number of messages");
  expect_is(SB_LOAD(&q->shm->duplicates, SB_RELAXED), 1, "the number of duplicates");
}
static sb_status commit(unsigned duplicates, const sb_settlement *ends, uint32_t end_count) {
  sb_put_options o = WITH_A;
  o.duplicates = (uint8_t)duplicates;
  uint64_t body[8] = {0};
  sb_publication p = {(const char *)body, sizeof body, &o, &q, 1};
  uint32_t publication, target;
  return sb_transaction_commit(t.c, &p, 1, ends, end_count, &publication, &target);
}
/* A process that puts the message with the id "a", and stops there. */
static pid_t stop_a_put(const char *site) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    test_broker own = t;
    attach(&own);
    own.c = connect_to(&own);
    sb_queue *its = open_queue(&own, "q");
    stops_at = site;
    at_step = stop_there;
    _exit(put_sized(&own, its, 1, 64, &WITH_A) == SB_OK ? 0 : 1);
  }
  if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) die("stopping a put", status);
  return pid;
}
static const sb_put_options WITH_B = {.properties = HEADERS "\x15" NAME "S\x00\x00\x00\x01"
                                                            "b",
                                      .properties_length = 27};
static void another_process_is_stopped_in_a_put(void) {
  int status = 1;
  int32_t pid = 0;
  if (!has_steps()) return;
  begin(3);
  pid_t stopped = stop_a_put("duplicates.claimed");
  expect_is(put_sized(&t, q, 1, 64, &WITH_A), SB_UNDECIDED, "the status of a put of the same id");
  expect_is(sb_queue_wait_for_id(q, sb_now_ns() + 1000000, &pid), SB_TIMEOUT, "the status of a wait");
  expect_is(pid, stopped, "the process that it waits for");
  expect_is(put_sized(&t, q, 2, 64, &WITH_B), SB_OK, "the status of a put of another id");
  expect_is(ready(q), 1, "the number of messages while it is stopped");
  (void)kill(stopped, SIGCONT);
  expect(waitpid(stopped, &status, 0) == stopped && WIFEXITED(status) && WEXITSTATUS(status) == 0, "its put failed");
  expect_is(sb_queue_wait_for_id(q, FOREVER, &pid), SB_OK, "the status of a wait when it goes on");
  expect_is(put_sized(&t, q, 1, 64, &WITH_A), SB_OK, "the status of a put of a known id");
  expect_is(ready(q), 2, "the number of messages at last");
}
static void another_process_is_stopped_after_its_decision(void) {
  if (!has_steps()) return;
  begin(3);
  pid_t stopped = stop_a_put("commit.decided");
  expect_is(put_sized(&t, q, 1, 64, &WITH_A), SB_OK, "the status of a put of the same id");
  expect_is(SB_LOAD(&q->shm->duplicates, SB_RELAXED), 1, "the number of duplicates");
  expect_is(ready(q), 0, "the number of messages while it is stopped");
  end_process(stopped);
  while (sb_housekeeper_reap(t.c) > 0) {
  }
  expect_is(ready(q), 1, "the number of messages after its death");
}
static void a_commit_skips_fails_or_ignores(void) {
  begin(3);
  expect_is(commit(SB_DUPLICATES_IGNORE, NULL, 0), SB_OK, "the status of a commit that remembers nothing");
  expect_is(commit(SB_DUPLICATES_SKIP, NULL, 0), SB_OK, "the status of a commit of a new id");
  expect_is(ready(q), 2, "the number of messages");
  expect_is(commit(SB_DUPLICATES_SKIP, NULL, 0), SB_OK, "the status of a commit that skips");
  expect_is(commit(SB_DUPLICATES_FAIL, NULL, 0), SB_DUPLICATE, "the status of a commit that fails");
  expect_is(ready(q), 2, "the number of messages afterwards");
  expect_is(SB_LOAD(&q->shm->duplicates, SB_RELAXED), 1, "the number of duplicates");
  expect_is(commit(SB_DUPLICATES_IGNORE, NULL, 0), SB_OK, "the status of a commit that ignores");
  expect_is(ready(q), 3, "the number of messages at last");
}
static void a_commit_beside_another_claim(void) {
  sb_claim c;
  begin(3);
  while (sb_duplicates_claim(theirs, sb_id_of("a", 1), &c) == SB_GROW && grow(t.b, t.path)) {
  }
  expect_is(commit(SB_DUPLICATES_FAIL, NULL, 0), SB_UNDECIDED, "the status of a commit beside a claim");
  expect_is(put_sized(&t, q, 1, 64, &WITH_A), SB_UNDECIDED, "the status of a put beside a claim");
  expect_is(ready(q), 0, "the number of messages");
  sb_reservation r;
  expect_is(sb_reservation_begin(q, 8, &WITH_A, &r), SB_OK, "the status of a reservation");
  expect_is(sb_reservation_publish(q, &r), SB_UNDECIDED, "the status of its publish");
  expect(r.admitted && r.kept, "the reservation is gone");
  SB_STORE(&other->shm->commit, 1, SB_RELAXED);
  expect_is(sb_reservation_publish(q, &r), SB_OK, "the status of its publish when the other one is decided");
  expect(!r.admitted && !r.kept, "the reservation is still there");
  expect_is(ready(q), 0, "the number of messages");
  expect_is(q->busy, 0, "the uses of the handle");
}

/* What fails after the claim gives it back. */
static sb_id_verdict look_for_a(void) {
  unsigned owner;
  return sb_duplicates_look(q, sb_id_of("a", 1), &owner);
}
static void a_commit_that_fails_later(void) {
  char record[256];
  begin(3);
  expect_is(put(&t, q, 1), SB_OK, "the status of a put");
  expect(sb_queue_get(q, record, false) > 0, "there is no message");
  uint64_t token = ((const sb_record *)(const void *)record)->tag;
  const sb_settlement twice[2] = {{q, token, SB_ACK, 0}, {q, token, SB_ACK, 0}};
  expect_is(commit(SB_DUPLICATES_FAIL, twice, 2), SB_SETTLED, "the status of a commit that settles twice");
  expect_is(look_for_a(), SB_ID_IS_NEW, "the verdict on its id");
  expect_is(commit(SB_DUPLICATES_FAIL, twice, 1), SB_OK, "the status of the commit that settles once");
  expect_is(look_for_a(), SB_ID_IS_DUPLICATE, "the verdict on its id");
}
static void a_put_that_finds_the_queue_closed(void) {
  sb_reservation r;
  begin(3);
  remember(q, 1); /* there is a block */
  while (sb_reservation_begin(q, 8, &WITH_A, &r) == SB_GROW && grow(t.b, t.path)) {
  }
  int32_t holder;
  uint64_t removed;
  expect_is(sb_queue_delete(theirs, false, false, FOREVER, &holder, &removed), SB_OK, "the status of a deletion");
  expect_is(sb_reservation_publish(q, &r), SB_DELETED, "the status of a publish to a closed queue");
  expect_is(look_for_a(), SB_ID_IS_NEW, "the verdict on its id");
  expect(r.admitted && r.kept, "the reservation is gone");
  uint64_t listed = SB_LOAD(&sb_holding_at(t.b, r.token)->what, SB_RELAXED);
  expect_is(sb_holding_kind(listed), SB_HOLD_SLOT, "the holding of its body");
}

/* ---- the doctor ---- */

enum { BLOCK, CLAIM, NUMBER, SETTING, TWICE, PLACE };
static void check(void) {
  forget_what_was_seen();
  sb_check_ids(&checkup, q->slot);
}
static void damage(sb_word *word, uint64_t to, sb_finding should, const char *what) {
  uint64_t was = SB_LOAD(word, SB_RELAXED);
  SB_STORE(word, to, SB_RELAXED);
  check();
  expect_finding(should, what);
  SB_STORE(word, was, SB_RELAXED);
}
#define FOUND(which, where, found, expected) \
  ((sb_finding){SB_BAD_ID, q->slot, 0, (which), 0, (where), (found), (expected)})
static void what_the_doctor_finds(void) {
  sb_claim c;
  begin(3);
  remember(q, 5);
  remember(q, 6);
  expect_is(claim(theirs, 9, &c), SB_OK, "the status of a claim");
  start_checkup(t.b->mapped_chunks);
  check();
  expect_no_finding("a sound queue");
  forget_what_was_seen();
  sb_check_connections(&checkup);
  checkup.count = 0;
  expect_is(checkup.named[other->id], 1, "the claims that their holdings list");
  sb_check_ids(&checkup, q->slot);
  expect_is(checkup.owned[other->id], 1, "the claims that name them");
  sb_id_shm *ids = block()->ids;
  damage(&ids[9].word, sb_id_word(SB_ID_CLAIMED, 99, 1), FOUND(CLAIM, 9, 99, 0), "a claim of nobody");
  damage(&ids[9].word, sb_id_word(SB_ID_WRITING, other->id, 99), FOUND(NUMBER, 9, 99, 3), "a tag that was not given");
  damage(&ids[5].word, sb_id_known(99), FOUND(NUMBER, 5, 99, 3), "a number that was not given");
  damage(&ids[5].low, 6, FOUND(PLACE, 5, 6, SB_IDS_WINDOW), "an id in front of its cells");
  damage(&ids[6].low, 5, FOUND(TWICE, 5, 2, 0), "an id twice");
  expect_no_finding("the second finding of it");
  uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED), slot = SB_LOAD(&q->shm->ids, SB_RELAXED);
  SB_STORE(&q->shm->flags, flags & ~(uint32_t)SB_QUEUE_IDS, SB_RELAXED);
  check();
  expect_finding(FOUND(SETTING, 0, 3, 0), "a flag that is missing");
  SB_STORE(&q->shm->flags, flags, SB_RELAXED);
  SB_STORE(&q->shm->ids, q->slot, SB_RELAXED);
  check();
  expect_finding((sb_finding){SB_BAD_ID, q->slot, q->slot, BLOCK, 0, 0, SB_KIND_QUEUE, SB_KIND_IDS}, "no block");
  SB_STORE(&q->shm->ids, slot, SB_RELAXED);
  SB_STORE(&block()->next, slot, SB_RELAXED);
  check();
  expect_finding((sb_finding){SB_BAD_ID, q->slot, slot, BLOCK, 0, 0, SB_KIND_IDS, SB_KIND_IDS}, "a loop of blocks");
}

/* A table, a line or two for each. */
/* clang-format off */
static const test_case CASES[] = {
    {"duplicates: hash", "an id has the hash of SipHash-2-4-128", the_hash_of_an_id},
    {"duplicates: header", "a text or bytes are an id", the_id_that_a_header_names},
    {"duplicates: claim", "a claim becomes known, or is given back", a_claim_becomes_known_or_is_given_back},
    {"duplicates: same commit", "a commit claims an id once", a_commit_claims_an_id_once},
    {"duplicates: other commit", "the commit word decides about a claim", the_claim_of_another_commit},
    {"duplicates: writing", "a hash counts when all of it is there", a_cell_that_is_being_written_says_nothing},
    {"duplicates: last", "the last ids are remembered, and no others", the_last_ids_are_remembered},
    {"duplicates: between", "a larger number in between brings nothing back", a_larger_number_in_between_brings_nothing_back},
    {"duplicates: rivals", "of several claims the oldest one counts", the_oldest_of_several_rivals},
    {"duplicates: setting", "what is forgotten stays forgotten", a_change_of_the_setting_brings_nothing_back},
    {"duplicates: blocks", "a full window gets another block", a_full_window_gets_another_block},
    {"duplicates: cells", "a forgotten id gives its cell", a_forgotten_id_gives_its_cell},
    {"duplicates: dead", "a claim of the dead ends as its commit did", claims_of_the_dead},
    {"duplicates: damaged", "a holding that is damaged ends no claim", holdings_that_are_damaged},
    {"duplicates: wait", "a wait ends with the claim of the other commit", a_wait_for_an_id},
    {"duplicates: put", "a put of a known id stores nothing", a_put_of_a_known_id_stores_nothing},
    {"duplicates: stopped", "a put that is stopped delays those of its id only", another_process_is_stopped_in_a_put},
    {"duplicates: stopped later", "a decision counts, whoever is stopped", another_process_is_stopped_after_its_decision},
    {"duplicates: commit", "a commit skips, fails, or ignores", a_commit_skips_fails_or_ignores},
    {"duplicates: beside", "a put beside a claim changes nothing", a_commit_beside_another_claim},
    {"duplicates: later", "a commit that fails after its claim gives it back", a_commit_that_fails_later},
    {"duplicates: closed", "a put that fails after its claim gives it back", a_put_that_finds_the_queue_closed},
    {"duplicates: doctor", "the doctor finds what is wrong", what_the_doctor_finds},
};
/* clang-format on */
SUBJECT(CASES)
