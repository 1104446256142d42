// SPDX-License-Identifier: Apache-2.0
#include "sb_duplicates.h"

#include <string.h>

#include "sb_properties.h"
#include "sb_slab.h"
#include "sb_wait.h"

/* ---- ids ---- */

sb_id sb_id_of(const void *bytes, uint64_t length) {
  sb_id id = sb_hash_of(bytes, length, 0, 0);
  if (!sb_id_given(id)) id.low = 1;
  return id;
}

sb_id sb_duplicates_id(const char *properties, uint32_t length) {
  sb_properties p = {.at = (const uint8_t *)properties, .length = length};
  sb_value v;
  if (length == 0 ||
      !sb_properties_header(&p, (const uint8_t *)SB_DUPLICATE_HEADER, sizeof SB_DUPLICATE_HEADER - 1, &v)) {
    return SB_NO_ID;
  }
  if (v.kind == SB_VALUE_STRING && v.length > 0) {
    return sb_id_of(v.at, v.length);
  }
  /* bytes: behind their type letter and the four bytes of their length */
  bool bytes = v.kind == SB_VALUE_OTHER && v.length > 5 && sb_peek_byte(v.at) == 'x';
  return bytes ? sb_id_of(v.at + 5, v.length - 5) : SB_NO_ID;
}

/* ---- blocks ---- */

sb_ids_shm *sb_duplicates_at(sb_broker *b, uint32_t slot) { return sb_slab_object(b, slot, SB_KIND_IDS); }

typedef struct {
  sb_broker *b;
  uint32_t slot;
  sb_chain chain;
} blocks;

static blocks blocks_of(sb_broker *b, const sb_queue_shm *q) {
  return (blocks){b, SB_LOAD(&q->ids, SB_SEQ_CST), {0}}; /* P26 */
}

/* The next block; its slot in *slot. NULL: there is none, or the chain is broken. */
static sb_ids_shm *next_block(blocks *all, uint32_t *slot) {
  *slot = all->slot;
  sb_ids_shm *block =
      all->slot == 0 || sb_chain_bites(&all->chain, all->slot) ? NULL : sb_duplicates_at(all->b, all->slot);
  if (block != NULL) all->slot = SB_LOAD(&block->next, SB_ACQUIRE);
  return block;
}

bool sb_duplicates_links(sb_broker *b, uint32_t slot) {
  const sb_ids_shm *block = sb_slot_at(b, slot);
  const sb_queue_shm *q = sb_slab_queue(b, SB_LOAD(&block->queue, SB_RELAXED));
  if (q == NULL) {
    return false;
  }
  uint32_t at;
  blocks all = blocks_of(b, q);
  while (next_block(&all, &at) != NULL) {
    if (at == slot) return true;
  }
  return false;
}

/* Links an empty block in the queue, in front of the others. */
static sb_status add_block(sb_queue *q) {
  sb_connection *c = q->c;
  uint64_t token = 0, gen = 0;
  uint32_t slot = 0;
  sb_status status = sb_holding_object(c, SB_KIND_IDS, &token, &slot, &gen);
  sb_slab_return_class(c,
                       sb_class_of_kind(c->b, SB_KIND_IDS)); /* cached slots would lie idle: blocks are seldom made */
  if (status != SB_OK) {
    return status;
  }
  sb_ids_shm *block = sb_slot_at(c->b, slot);
  memset(block, 0, sizeof *block); /* no other process can find it */
  SB_STORE(&block->queue, q->slot, SB_RELAXED);
  uint32_t first = SB_LOAD(&q->shm->ids, SB_SEQ_CST);
  do {
    SB_STORE(&block->next, first, SB_RELAXED);
  } while (!SB_CAS(&q->shm->ids, &first, slot, SB_SEQ_CST)); /* P26 */
  SB_CRASHPOINT("duplicates.linked");
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, gen);
  (void)SB_CAS(sb_slot_header(c->b, slot), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_ACQ_REL);
  sb_holding_give(c, token);
  return SB_OK;
}

/* ---- looking ---- */

/* Which numbers are remembered; read once for all cells of a look. */
typedef struct {
  uint64_t latest, floor;
  int64_t most;
} memory;

static memory memory_of(const sb_queue_shm *q) {
  return (memory){SB_LOAD(&q->id_numbers, SB_SEQ_CST), SB_LOAD(&q->id_floor, SB_ACQUIRE),
                  sb_setting(q, SB_SETTING_DUPLICATE_IDS)};
}

static bool has(const memory *m, uint64_t number) {
  return (int64_t)(m->latest - number) < m->most && (int64_t)(number - m->floor) > 0;
}

/* The latest number that is not remembered any more. */
static uint64_t forgotten(const memory *m) {
  uint64_t kept = m->most > 0 ? (uint64_t)m->most : 0, last = m->latest > kept ? m->latest - kept : 0;
  return last > m->floor ? last : m->floor;
}

bool sb_duplicates_remembers(const sb_queue_shm *q, uint64_t number) {
  memory m = memory_of(q);
  return has(&m, number);
}

void sb_duplicates_forget(sb_queue_shm *q) {
  memory m = memory_of(q);
  uint64_t last = forgotten(&m);
  if (last > m.floor) SB_STORE(&q->id_floor, last, SB_RELEASE);
}

/* Whether the commit of a connection is decided. The caller then looks at its claim again. */
static bool is_decided(sb_broker *b, unsigned connection) {
  const sb_connection_shm *shm = sb_connection_record(b, connection);
  return shm != NULL && SB_LOAD(&shm->commit, SB_SEQ_CST) != 0;
}

static sb_id_shm *cell_of(sb_ids_shm *block, sb_id id, unsigned n) {
  return &block->ids[(id.low + n) % SB_IDS_PER_BLOCK];
}

/* A search for the entries of an id, except the claim `mine`. */
typedef struct {
  const sb_queue *q;
  sb_id id;
  uint64_t mine;
  memory memory;
} search;

/* What an entry says about the id; *word: the word that says so. */
static sb_id_verdict verdict_of(const search *s, sb_id_shm *entry, uint64_t *word) {
  for (unsigned n = 0; n < SB_MAX_RETRIES; n++) {
    *word = SB_LOAD(&entry->word, SB_SEQ_CST); /* P26 */
    unsigned state = sb_id_state(*word);
    if (*word == s->mine || (state != SB_ID_CLAIMED && state != SB_ID_KNOWN) ||
        SB_LOAD(&entry->low, SB_ACQUIRE) != s->id.low || SB_LOAD(&entry->high, SB_ACQUIRE) != s->id.high) {
      return SB_ID_IS_NEW;
    }
    unsigned owner = sb_id_owner(*word);
    bool known = state == SB_ID_KNOWN ? has(&s->memory, sb_id_number(*word))
                                      : owner == s->q->c->id || is_decided(s->q->c->b, owner);
    if (SB_LOAD(&entry->word, SB_SEQ_CST) == *word) { /* else the hash, or the commit, may be another one's */
      return known ? SB_ID_IS_DUPLICATE : state == SB_ID_KNOWN ? SB_ID_IS_NEW : SB_ID_IS_UNDECIDED;
    }
  }
  return SB_ID_IS_UNDECIDED; /* the cell changes all the time */
}

/* Looks at all cells of an id except the claim `mine`. *found_in: the word that makes the id a duplicate, or that of an
 * undecided claim; of several claims, the oldest. */
static sb_id_verdict look(const sb_queue *q, sb_id id, uint64_t mine, uint64_t *found_in) {
  search s = {q, id, mine, memory_of(q->shm)};
  sb_id_verdict found = SB_ID_IS_NEW;
  uint32_t slot;
  blocks all = blocks_of(q->c->b, q->shm);
  for (sb_ids_shm *block; (block = next_block(&all, &slot)) != NULL;) {
    for (unsigned n = 0; n < SB_IDS_WINDOW; n++) {
      uint64_t word;
      sb_id_verdict one = verdict_of(&s, cell_of(block, id, n), &word);
      if (one == SB_ID_IS_DUPLICATE) {
        *found_in = word;
        return one;
      }
      if (one == SB_ID_IS_UNDECIDED && (found == SB_ID_IS_NEW || sb_id_tag(word) < sb_id_tag(*found_in))) {
        *found_in = word;
        found = one;
      }
    }
  }
  return found;
}

sb_id_verdict sb_duplicates_look(const sb_queue *q, sb_id id, unsigned *owner) {
  uint64_t rival = 0;
  sb_id_verdict found = look(q, id, 0, &rival);
  *owner = found == SB_ID_IS_UNDECIDED ? sb_id_owner(rival) : 0;
  return found;
}

/* ---- claims ---- */

/* How often a claim looks for the end of another one. A commit that runs ends within that time: some microseconds. */
#define PATIENCE 200u

/* Takes a cell for the id, as WRITING. False: all its cells are in use. */
static bool take_cell(sb_queue *q, sb_id id, uint64_t tag, sb_claim *claim) {
  sb_broker *b = q->c->b;
  uint64_t writing = sb_id_word(SB_ID_WRITING, q->c->id, tag);
  uint32_t slot;
  memory m = memory_of(q->shm);
  blocks all = blocks_of(b, q->shm);
  for (sb_ids_shm *block; (block = next_block(&all, &slot)) != NULL;) {
    for (unsigned n = 0; n < SB_IDS_WINDOW; n++) {
      sb_id_shm *entry = cell_of(block, id, n);
      uint64_t word = SB_LOAD(&entry->word, SB_SEQ_CST);
      unsigned state = sb_id_state(word);
      if (state != SB_ID_FREE && (state != SB_ID_KNOWN || has(&m, sb_id_number(word)))) {
        continue;
      }
      sb_holding_set(b, claim->token, sb_holding_what(SB_HOLD_ID, q->slot, slot),
                     sb_id_place((uint32_t)(entry - block->ids), tag)); /* P8 of sb_connection.h */
      if (SB_CAS(&entry->word, &word, writing, SB_SEQ_CST)) {
        claim->entry = entry;
        return true;
      }
    }
  }
  return false;
}

static sb_status make(sb_queue *q, sb_id id, sb_claim *claim) {
  sb_status status = sb_holding_take(q->c, &claim->token);
  if (status != SB_OK) {
    claim->token = 0;
    return status;
  }
  uint64_t tag = SB_ADD(&q->shm->id_tags, 1, SB_RELAXED) + 1; /* relaxed: only its value matters */
  while (status == SB_OK && !take_cell(q, id, tag, claim)) status = add_block(q);
  if (status != SB_OK) {
    sb_holding_give(q->c, claim->token);
    claim->token = 0;
    return status;
  }
  SB_CRASHPOINT("duplicates.taken");
  SB_STORE(&claim->entry->low, id.low, SB_RELEASE);
  SB_STORE(&claim->entry->high, id.high, SB_RELEASE);
  claim->word = sb_id_word(SB_ID_CLAIMED, q->c->id, tag);
  SB_STORE(&claim->entry->word, claim->word, SB_SEQ_CST); /* P26 */
  SB_CRASHPOINT("duplicates.claimed");
  return SB_OK;
}

void sb_duplicates_withdraw(sb_connection *c, sb_claim *claim) {
  if (claim->token != 0) {
    SB_STORE(&claim->entry->word, sb_id_word(SB_ID_FREE, 0, 0), SB_SEQ_CST);
    sb_holding_give(c, claim->token);
    claim->token = 0;
  }
}

/* Looks at the other entries of a claimed id. While there are only claims that are younger, waits for them to be given
 * back. */
static sb_id_verdict look_beside(const sb_queue *q, sb_id id, const sb_claim *claim, unsigned *looks) {
  uint64_t rival = 0;
  sb_id_verdict found;
  while ((found = look(q, id, claim->word, &rival)) == SB_ID_IS_UNDECIDED &&
         sb_id_tag(rival) > sb_id_tag(claim->word) && ++*looks < PATIENCE) {
    sb_pause();
  }
  return found;
}

sb_status sb_duplicates_claim(sb_queue *q, sb_id id, sb_claim *claim) {
  unsigned looks = 0, owner;
  sb_id_verdict found;
  *claim = (sb_claim){0};
  do {
    sb_status status = make(q, id, claim);
    if (status != SB_OK) {
      return status;
    }
    found = look_beside(q, id, claim, &looks); /* I96 */
    if (found == SB_ID_IS_NEW) {
      return SB_OK;
    }
    sb_duplicates_withdraw(q->c, claim);
    while (found == SB_ID_IS_UNDECIDED && ++looks < PATIENCE) {
      sb_pause();
      found = sb_duplicates_look(q, id, &owner);
    }
  } while (found == SB_ID_IS_NEW);
  if (found == SB_ID_IS_DUPLICATE) {
    return SB_DUPLICATE;
  }
  q->undecided_low = id.low;
  q->undecided_high = id.high;
  return SB_UNDECIDED;
}

void sb_duplicates_remember(sb_queue *q, sb_claim *claim) {
  uint64_t number = SB_ADD(&q->shm->id_numbers, 1, SB_SEQ_CST) + 1;
  SB_CRASHPOINT("duplicates.numbered");
  SB_STORE(&claim->entry->word, sb_id_known(number), SB_SEQ_CST); /* P47 */
  SB_CRASHPOINT("duplicates.known");
}

void sb_duplicates_end_dead(sb_broker *b, unsigned id, uint64_t what, uint64_t where, bool decided) {
  uint32_t at = sb_id_place_index(where);
  sb_ids_shm *block = sb_duplicates_at(b, sb_holding_leaf(what));
  const sb_queue_shm *q = sb_slab_queue(b, sb_holding_slot(what));
  if (block == NULL || q == NULL || at >= SB_IDS_PER_BLOCK ||
      SB_LOAD(&block->queue, SB_RELAXED) != sb_holding_slot(what)) {
    return;
  }
  uint64_t tag = sb_id_place_tag(where), claimed = sb_id_word(SB_ID_CLAIMED, id, tag),
           writing = sb_id_word(SB_ID_WRITING, id, tag);
  uint64_t latest = SB_LOAD(&q->id_numbers, SB_SEQ_CST); /* I98 */
  uint64_t to = decided ? sb_id_known(latest) : sb_id_word(SB_ID_FREE, 0, 0);
  sb_word *word = &block->ids[at].word;
  if (!SB_CAS(word, &claimed, to, SB_SEQ_CST) && !decided) (void)SB_CAS(word, &writing, to, SB_SEQ_CST);
  SB_CRASHPOINT("recover.id.ended");
}

/* ---- the store ---- */

/* Reads an entry that is known or claimed, as a whole; *word: its word. False: it is neither. One that changes all the
 * time was claimed after this call began. */
static bool read_entry(sb_id_shm *entry, sb_store_id *id, uint64_t *word) {
  for (unsigned n = 0; n < SB_MAX_RETRIES; n++) {
    *word = SB_LOAD(&entry->word, SB_SEQ_CST); /* P47 */
    if (sb_id_state(*word) != SB_ID_CLAIMED && sb_id_state(*word) != SB_ID_KNOWN) {
      return false;
    }
    id->low = SB_LOAD(&entry->low, SB_ACQUIRE);
    id->high = SB_LOAD(&entry->high, SB_ACQUIRE);
    if (SB_LOAD(&entry->word, SB_SEQ_CST) == *word) {
      return true;
    }
  }
  return false;
}

uint32_t sb_duplicates_list(const sb_queue *q, uint64_t from, sb_store_id *ids, uint32_t most) {
  uint32_t slot, count = 0;
  memory m = memory_of(q->shm);
  blocks all = blocks_of(q->c->b, q->shm);
  for (sb_ids_shm *block; (block = next_block(&all, &slot)) != NULL;) {
    for (uint32_t at = 0; at < SB_IDS_PER_BLOCK; at++) {
      sb_store_id id;
      uint64_t word;
      if (!read_entry(&block->ids[at], &id, &word)) {
        continue;
      }
      id.number = sb_id_state(word) == SB_ID_KNOWN ? sb_id_number(word) : 0;
      if (id.number != 0 && (id.number < from || !has(&m, id.number))) continue;
      if (count < most) ids[count] = id;
      count++;
    }
  }
  return count;
}

bool sb_duplicates_number(const sb_queue *q, sb_id id, uint64_t *number) {
  uint64_t word = 0;
  bool known = look(q, id, 0, &word) == SB_ID_IS_DUPLICATE;
  *number = known && sb_id_state(word) == SB_ID_KNOWN ? sb_id_number(word) : 0;
  return known;
}

uint64_t sb_duplicates_forgotten(const sb_queue_shm *q) {
  memory m = memory_of(q);
  return forgotten(&m);
}

/* A cell of the id that is free. NULL: there is none. */
static sb_id_shm *free_cell(const sb_queue *q, sb_id id) {
  uint32_t slot;
  blocks all = blocks_of(q->c->b, q->shm);
  for (sb_ids_shm *block; (block = next_block(&all, &slot)) != NULL;) {
    for (unsigned n = 0; n < SB_IDS_WINDOW; n++) {
      sb_id_shm *entry = cell_of(block, id, n);
      if (sb_id_state(SB_LOAD(&entry->word, SB_RELAXED)) == SB_ID_FREE) return entry; /* relaxed: see the header */
    }
  }
  return NULL;
}

sb_status sb_duplicates_restore(sb_queue *q, const sb_store_id *ids, uint32_t count, uint32_t *done) {
  if (count > 0) SB_STORE(&q->shm->id_numbers, ids[count - 1].number, SB_SEQ_CST);
  memory m = memory_of(q->shm);
  for (; *done < count; ++*done) {
    sb_id id = {ids[*done].low, ids[*done].high};
    sb_id_shm *entry = NULL;
    if (!has(&m, ids[*done].number)) {
      continue;
    }
    while ((entry = free_cell(q, id)) == NULL) {
      sb_status status = add_block(q);
      if (status != SB_OK) return status;
    }
    SB_STORE(&entry->low, id.low, SB_RELEASE);
    SB_STORE(&entry->high, id.high, SB_RELEASE);
    SB_STORE(&entry->word, sb_id_known(ids[*done].number), SB_SEQ_CST);
  }
  return SB_OK;
}
