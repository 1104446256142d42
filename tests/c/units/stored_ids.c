// SPDX-License-Identifier: Apache-2.0
/* sb_duplicates and the calls of sb_api_store.c and sb_api_restore.c that bring ids into the store and back: what the
 * storekeeper finds, and that an id is known only after its message is there (I132). */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "queues.h"
#include "sb_duplicates.h"
#include "sb_gather.h"
#include "sb_wait.h"

#define KEEPS(number) ((sb_settings){{-1, -1, -1, 0, -1, -1, [SB_SETTING_DUPLICATE_IDS] = (number)}, SB_QUEUE_DURABLE})
#define MOST 8000u
#define WITH_ID(letter) \
  ((sb_put_options){.properties = "\x20\x00\x00\x00\x00\x15" \
                                  "\x0ex-duplicate-idS\x00\x00\x00\x01" letter, \
                    .properties_length = 27})

static sb_queue *q;
static sb_store_id ids[MOST];
static uint64_t latest, forgotten;

static void begin(int64_t number) {
  sb_broker_set_stores(t.b, SB_STORES_READY);
  q = queue_named("q", KEEPS(number));
}
static sb_status put_as(sb_put_options o) {
  sb_status status;
  while ((status = put_sized(&t, q, 1, 64, &o)) == SB_GROW && grow(t.b, t.path)) {
  }
  return status;
}
static void put_all(const char *letters) {
  static const sb_put_options OPTIONS[] = {WITH_ID("a"), WITH_ID("b"), WITH_ID("c"), WITH_ID("d")};
  for (; *letters != 0; letters++) expect_is(put_as(OPTIONS[*letters - 'a']), SB_OK, "the status of a put");
}
static sb_store_id id_of(const char *letter) {
  sb_id id = sb_id_of(letter, 1);
  return (sb_store_id){id.low, id.high, 0};
}
/* The number with which the list has the id; 99: it has it not. */
static uint64_t listed(const char *letter, uint32_t count) {
  sb_store_id id = id_of(letter);
  for (uint32_t i = 0; i < count; i++) {
    if (ids[i].low == id.low && ids[i].high == id.high) return ids[i].number;
  }
  return 99;
}
/* The number of the id, 99: the queue does not know it. */
static uint64_t number_of(const char *letter) {
  sb_store_id id = id_of(letter);
  return sb_store_knows(q, &id) ? id.number : 99;
}
static sb_status restore(sb_queue *of, uint32_t count) {
  uint32_t done = 0;
  sb_status status;
  while ((status = sb_store_restore_ids(of, ids, count, &done)) == SB_GROW && grow(t.b, t.path)) {
  }
  expect_is(done, status == SB_OK ? count : done, "how many are done");
  return status;
}

/* ---- what there is ---- */

static void a_list_has_what_is_remembered(void) {
  begin(2);
  expect(!sb_store_id_numbers(q, &latest, &forgotten), "a queue without an id has some");
  put_all("abc");
  expect(sb_store_id_numbers(q, &latest, &forgotten), "a queue with ids has none");
  expect_is(latest, 4, "the latest number");
  expect_is(forgotten, 2, "the latest number that is forgotten");
  expect_is(sb_store_ids(q, 0, ids, MOST), 2, "how many there are");
  expect_is(listed("b", 2), 3, "the number of b");
  expect_is(listed("c", 2), 4, "the number of c");
  expect_is(sb_store_ids(q, 4, ids, MOST), 1, "how many there are from a number on");
  expect_is(listed("c", 1), 4, "the number of the last one");
  expect_is(sb_store_ids(q, 0, ids, 0), 2, "how many there are without room for one");
  expect_is(number_of("a"), 99, "the number of one that is forgotten");
  expect_is(number_of("b"), 3, "the number of one that is known");
}
static void a_list_has_claims(void) {
  sb_claim c;
  begin(2);
  expect_is(sb_duplicates_claim(q, sb_id_of("a", 1), &c), SB_OK, "the status of a claim");
  expect_is(sb_store_ids(q, 9, ids, MOST), 1, "how many there are");
  expect_is(listed("a", 1), 0, "the number of a claim");
  SB_STORE(&c.entry->word, sb_id_word(SB_ID_WRITING, t.c->id, sb_id_tag(c.word)), SB_RELAXED);
  expect_is(sb_store_ids(q, 0, ids, MOST), 0, "how many there are while the hash is written");
  SB_STORE(&c.entry->word, c.word, SB_RELAXED);
  sb_duplicates_withdraw(t.c, &c);
  expect_is(sb_store_ids(q, 0, ids, MOST), 0, "how many there are when the claim was given back");
}
static void a_row_names_the_ids_of_its_messages(void) {
  static char heads[65536], bodies[65536];
  sb_store_id found[64];
  uint64_t next = 0;
  sb_store_row row = {.heads = heads, .bodies = bodies, .heads_size = 65536, .bodies_size = 65536, .ids = found};
  begin(9);
  put_all("ab");
  put_up_to(q, 3);
  expect_is(sb_store_gather(q, &next, 5, &row), SB_OK, "the status of a gathering");
  expect_is(row.count, 5, "how many messages there are");
  expect_is(row.id_count, 2, "how many ids there are");
  expect(found[0].low == id_of("a").low && found[1].high == id_of("b").high, "the ids are others");
  row.ids = NULL;
  next = 0;
  expect_is(sb_store_gather(q, &next, 5, &row), SB_OK, "the status without room for ids");
  expect_is(row.id_count, 0, "how many ids there are without room for them");
  row.ids = found;
  next = 0;
  SB_STORE(&q->shm->flags, SB_LOAD(&q->shm->flags, SB_RELAXED) & ~(uint32_t)SB_QUEUE_IDS, SB_RELAXED);
  expect_is(sb_store_gather(q, &next, 5, &row), SB_OK, "the status of a queue that remembers none");
  expect_is(row.id_count, 0, "how many ids there are of a queue that remembers none");
}

/* ---- a queue that is made again ---- */

static void ids_come_back_with_their_numbers(void) {
  begin(2);
  for (unsigned i = 0; i < 3; i++) {
    ids[i] = id_of(i == 0 ? "a" : i == 1 ? "b" : "c");
    ids[i].number = 10 + i;
  }
  expect_is(restore(q, 3), SB_OK, "the status of a restore");
  expect_is(number_of("a"), 99, "the number of one that is too old");
  expect_is(number_of("b"), 11, "the number of the one before the last");
  expect_is(number_of("c"), 12, "the number of the last one");
  put_all("cd");
  expect_is(number_of("d"), 13, "the number of a new one");
  expect_is(number_of("b"), 99, "the number of the one that it evicts");
  expect_is(restore(q, 0), SB_OK, "the status of a restore of none");
}
static void many_ids_come_back(void) {
  begin(MOST);
  for (uint32_t i = 0; i < MOST; i++) {
    sb_id id = sb_id_of(&i, sizeof i);
    ids[i] = (sb_store_id){id.low, id.high, 2 + i};
  }
  expect_is(restore(q, MOST), SB_OK, "the status of a restore");
  expect_is(sb_store_ids(q, 0, ids, MOST), MOST, "how many came back");
  for (uint32_t i = 0; i < MOST; i++) {
    sb_id id = sb_id_of(&i, sizeof i);
    sb_store_id found = {id.low, id.high, 0};
    expect(sb_store_knows(q, &found) && found.number == 2 + i, "id %u did not come back", i);
  }
}

/* ---- a reaper ---- */

static void end_there(const char *site) {
  if (strcmp(site, "commit.decided") == 0) _exit(0);
}
/* A process puts the message with the id "a", and ends after it has decided. */
static void put_in_part(void) {
  int status = 1;
  pid_t pid = fork();
  if (pid == 0) {
    test_broker own = t;
    attach(&own);
    own.c = connect_to(&own);
    sb_queue *its = open_queue(&own, "q");
    sb_put_options o = WITH_ID("a");
    at_step = end_there;
    (void)put_sized(&own, its, 1, 64, &o);
    _exit(1);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) die("a put that ends in the middle", status);
}
static unsigned flips, early;
static void look_at_id(const char *site) {
  if (strcmp(site, "recover.commit.flipped") == 0) {
    flips++;
    uint64_t number; /* the caller of the step has the lock */
    early += !sb_duplicates_number(q, sb_id_of("a", 1), &number) || number != 0;
  }
}
static void a_reaper_flips_before_it_remembers(void) {
  if (!has_steps()) return;
  begin(9);
  put_in_part();
  expect_is(number_of("a"), 0, "the number of an id that is decided");
  flips = early = 0;
  at_step = look_at_id;
  while (sb_housekeeper_reap(t.c) > 0) {
  }
  at_step = NULL;
  expect_is(flips, 1, "the number of messages that the reaper made ready");
  expect_is(early, 0, "the number of ids that were known before their message was ready");
  expect_is(number_of("a"), 1, "the number that the reaper gave");
}
static void an_unusable_connection(void) {
  begin(2);
  put_all("a");
  sb_store_id id = id_of("a");
  for (unsigned i = 0; i < REFUSALS; i++) {
    uint32_t done = 0;
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_store_restore_ids(q, ids, 0, &done), REFUSAL[i], "the status of a restore");
    expect_is(sb_store_ids(q, 0, ids, MOST), 0, "how many ids there are");
    expect(!sb_store_knows(q, &id), "an id is known");
    expect(!sb_store_id_numbers(q, &latest, &forgotten), "there are ids");
    refuse(t.c, SB_OK);
  }
}

/* clang-format off */
static const test_case CASES[] = {
    {"stored ids: list", "a list has what is remembered", a_list_has_what_is_remembered},
    {"stored ids: claims", "a list has claims, without a number", a_list_has_claims},
    {"stored ids: rows", "a row names the ids of its messages", a_row_names_the_ids_of_its_messages},
    {"stored ids: restored", "ids come back with their numbers", ids_come_back_with_their_numbers},
    {"stored ids: many", "ids come back into several blocks", many_ids_come_back},
    {"stored ids: reaper", "a reaper makes a message ready before its id is known", a_reaper_flips_before_it_remembers},
    {"stored ids: refused", "a connection that is closed finds nothing", an_unusable_connection},
};
/* clang-format on */
SUBJECT(CASES)
