// SPDX-License-Identifier: Apache-2.0
/* Scenarios of a queue with last values. The header "k" of a message is its key. */
#include "../value_operations.h"
#include "roles.h"
#include "sb_holdings.h"
#include "sb_slab.h"
#include "sb_values.h"
#include "scenarios.h"

static char properties[] = "\x20\0\0\0\0\7\1kI\0\0\0\1";
#define PROPERTIES_LENGTH 13u
#define KEY (PROPERTIES_LENGTH - 1)

static sb_value_key hash_of(unsigned key) {
  static const uint8_t name[] = "k";
  sb_value_key hash = {0, 0};
  properties[KEY] = (char)key;
  sb_properties p = {.at = (const uint8_t *)properties, .length = PROPERTIES_LENGTH};
  if (!sb_value_key_read(&p, name, 1, &hash)) die("sb_value_key_read", 0);
  return hash;
}
static void put_keyed(uint64_t id, unsigned key) {
  char own[sizeof properties];
  for (unsigned i = 0; i < sizeof own; i++) own[i] = properties[i];
  own[KEY] = (char)key;
  sb_put_options o = {.properties = own, .properties_length = PROPERTIES_LENGTH};
  (void)put_message_with(id, 64, &o);
}
/* A key whose hash begins as that of key 1 does, but goes on otherwise. */
static unsigned neighbour(void) {
  unsigned key = 2;
  while (((hash_of(key).low ^ hash_of(1).low) & 0xf) != 0 || ((hash_of(key).low ^ hash_of(1).low) & 0xf0) == 0) key++;
  return key;
}

/* ---- before ---- */

/* A chunk for nodes exists: to make one touches more words than all that is looked at here. */
static void values(void) {
  everything_may_go();
  for (unsigned n = 0; n < PLAYERS; n++) {
    uint64_t token, gen;
    uint32_t slot;
    act_as(n);
    sb_status status = sb_holding_object(me()->t.c, SB_KIND_VALUE_NODE, &token, &slot, &gen);
    if (status != SB_OK || !sb_slab_free_gen(me()->t.b, slot, gen)) die("a node", (int)status);
    sb_holding_give(me()->t.c, token);
  }
}
static void one_value(void) {
  values();
  act_as(KEEPER);
  put_keyed(1, 1);
}
static void first_holds_the_value(void) {
  one_value();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}

/* ---- roles ---- */

static void put_value_1(void) { put_keyed(1, 1); }
static void put_value_2(void) { put_keyed(2, 1); }
static void put_value_8(void) { put_keyed(8, 1); }
static void put_two_values(void) {
  put_keyed(2, 1);
  put_keyed(3, 1);
}
static void put_neighbour(void) { put_keyed(8, neighbour()); }

/* ---- afterwards ---- */

/* The messages of both keys stay. */
static void both_are_there(void) {
  if (ready_messages() != 2 && !scheduler_somebody_died())
    complain("of two keys are ready %llu", (unsigned long long)ready_messages());
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"values, first put", "two make the index of a queue", VALUED, values,
     {{"a", put_value_1, 0, "put"}, {"b", put_value_8, 1, "put"}}, newest_is_there, .bound = 1},
    {"values, two puts", "one value of two is left, beside an older one", VALUED, one_value,
     {{"a", put_value_2, 0, "put"}, {"b", put_value_8, 1, "put"}}, newest_is_there, .bound = 1},
    {"values, three puts", "each value replaces the one before", VALUED, one_value,
     {{"a", put_two_values, 0, "put put"}, {"b", put_value_8, 1, "put"}}, newest_is_there, .bound = 1},
    {"values, put, take", "who takes a value gets the old one or the new one", VALUED, one_value,
     {{"put", put_value_2, 0, "put"}, {"take", take_twice, 1, "got acked nothing"}}, NULL, .bound = 1},
    {"values, put, nack", "an old value that returns is replaced", VALUED, first_holds_the_value,
     {{"put", put_value_2, 1, "put"}, {"nack", nack_held, 0, "returned"}}, newest_is_there, .bound = 1},
    {"values, put, nack, put", "whoever comes last", VALUED, first_holds_the_value,
     {{"put", put_value_2, 1, "put"}, {"nack", nack_held, 0, "returned"}, {"b", put_value_8, 2, "put"}},
     newest_is_there, .bound = 1},
    {"values, put, ack", "a value that was held is acknowledged", VALUED, first_holds_the_value,
     {{"put", put_value_2, 1, "put"}, {"ack", ack_held, 0, "acked"}}, newest_is_there, .bound = 1},
    {"values, two keys", "keys that share a word of the index get words of their own", VALUED, values,
     {{"a", put_value_1, 0, "put"}, {"b", put_neighbour, 1, "put"}}, both_are_there, .bound = 2},
    {"values, two keys, and again", "a split beside a replacement", VALUED, one_value,
     {{"a", put_value_2, 0, "put"}, {"b", put_neighbour, 1, "put"}}, NULL, .bound = 2},
};
/* clang-format on */
const subject VALUE_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
