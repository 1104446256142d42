// SPDX-License-Identifier: Apache-2.0
/* Value index: finds the newest message of a key, in a queue that keeps only the last value of each key (sb_values.h).
 *
 * What: a tree whose paths are the hashes of keys, four bits for each level. A word of a node is empty, names a
 * position, or names the node below it. Two keys whose hashes begin alike share a word until both have a ready message:
 * then the word becomes a node, which has a word for each of them (*split*). A word whose message is gone is empty for
 * whoever wants it. So nobody removes keys, and the tree grows with the number of keys that have messages at a time.
 *
 * A key is known by its hash (sb_hash.h), and by nothing else: two keys with one hash would replace each other's messages.
 *
 * Layout: `value_index` of the queue is 0, or the slot of the root. A node has 16 words: 0 | 2 tag POSITION, 46 position
 * from the base of the queue, 16 fingerprint | 2 tag NODE, 28 slot. The fingerprint is a part of the hash that the path
 * does not use before level 28.
 *
 * Invariants:
 *  I102 a word that names a node never changes again, and no node is freed while the queue exists. So a word that a
 *      search has found stays the word of its key, or of the node that leads to it.
 *
 * Ordering pairs:
 *  P28 a node is written, then linked by a CAS (seq_cst); a search that loads its link (seq_cst) reads the node.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a node was allocated -> an ALLOC slot in the holdings -> the reaper frees it, or publishes it if it is linked.
 *  a node was linked -> the same.
 *  a node of a deleted queue was unlinked -> a slot in the holdings that nothing links -> the reaper frees it.
 *
 * Concurrency: any process, with its connection's lock. sb_value_index_free needs a queue that no other process reaches.
 */
#ifndef SB_VALUE_INDEX_H
#define SB_VALUE_INDEX_H

#include "sb_hash.h"
#include "sb_properties.h"
#include "sb_queue.h"

typedef sb_hash sb_value_key;
/* The key that the properties name: the hash of the header `name`. False: they have no such header, its value is NULL, an
 * array or a table, or they are damaged. Integers of all sizes are one type; a value of another type is another key. */
bool sb_value_key_read(sb_properties *p, const uint8_t *name, unsigned name_length, sb_value_key *key);

/* Where the index names the newest message of a key. */
typedef struct {
  sb_word *word;
  uint64_t found; /* the value of the word, which is no node */
  uint32_t node;  /* the slot of its node */
  unsigned depth;
} sb_value_place;
/* Finds the word of a key; makes the root of the index if there is none. */
sb_status sb_value_index_find(sb_queue *q, const sb_value_key *key, sb_value_place *place);
/* The same, but writes nothing. SB_EMPTY: there is no index. */
sb_status sb_value_index_look(const sb_queue *q, const sb_value_key *key, sb_value_place *place);
/* True if the word names a position, which is then in *position. */
static inline bool sb_value_index_names(const sb_queue *q, uint64_t word, uint64_t *position) {
  *position = q->base + SB_BITS(word, 2, 46);
  return (word & 3u) == SB_VALUE_POSITION;
}
/* True if the word may name a message of the key. */
static inline bool sb_value_index_fits(uint64_t word, const sb_value_key *key) {
  return SB_BITS(word, 48, 16) == SB_BITS(key->high, 48, 16);
}
/* True if the path of `other` leads to the word that the search for `key` has found. */
bool sb_value_index_leads(const sb_value_place *place, const sb_value_key *key, const sb_value_key *other);
/* Makes the word name `position`, unless another process has changed it. */
bool sb_value_index_set(sb_queue *q, const sb_value_place *place, const sb_value_key *key, uint64_t position);
/* Makes the word a node, in which another key, the one that the word names, has a word of its own. The path of that key
 * leads to the word. Another process may have changed the word: the caller searches again. */
sb_status sb_value_index_split(sb_queue *q, const sb_value_place *place, const sb_value_key *other);
/* True if the node is linked in the index of the queue that it names. */
bool sb_value_index_links(sb_broker *b, uint32_t slot);
/* Frees the index of a queue that no other process reaches. */
void sb_value_index_free(sb_connection *c, sb_queue_shm *q);

#endif
