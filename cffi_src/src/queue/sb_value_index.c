// SPDX-License-Identifier: Apache-2.0
#include "sb_value_index.h"

#include "sb_holdings.h"
#include "sb_slab.h"

#define LEVELS 32u /* of four bits each: all 128 bits of a hash */

/* ---- keys ---- */

bool sb_value_key_read(sb_properties *p, const uint8_t *name, unsigned name_length, sb_value_key *key) {
  sb_value v;
  if (!sb_properties_header(p, name, name_length, &v)) {
    return false;
  }
  const void *bytes = &v.is;
  uint64_t length = sizeof v.is.integer;
  switch (v.kind) {
    case SB_VALUE_BOOLEAN: v.is.integer = v.is.boolean; break;
    case SB_VALUE_INTEGER:
    case SB_VALUE_DOUBLE: break;
    case SB_VALUE_OTHER:
      if (sb_peek_byte(v.at) != 'x') return false;
      /* fallthrough */
    case SB_VALUE_STRING:
      bytes = v.at;
      length = v.length;
      break;
    default: return false;
  }
  *key = sb_hash_of(bytes, length, v.kind, 0);
  return true;
}

static unsigned branch(const sb_value_key *key, unsigned depth) {
  return (unsigned)SB_BITS(depth < 16 ? key->low : key->high, depth % 16 * 4, 4);
}

bool sb_value_index_leads(const sb_value_place *place, const sb_value_key *key, const sb_value_key *other) {
  unsigned depth = 0;
  while (depth <= place->depth && branch(key, depth) == branch(other, depth)) depth++;
  return depth > place->depth;
}

/* ---- nodes ---- */

static sb_value_node_shm *node_at(sb_broker *b, uint32_t slot) { return sb_slab_object(b, slot, SB_KIND_VALUE_NODE); }

static bool is_node(uint64_t word) { return (word & 3u) == SB_VALUE_NODE; }
static uint32_t slot_of(uint64_t word) { return (uint32_t)SB_BITS(word, 2, 28); }
static uint64_t word_of_node(uint32_t slot) { return SB_VALUE_NODE | SB_FIELD((uint64_t)slot, 2); }

/* The word that links a node; *linked: its value if it does. NULL: the node names no queue, or no node above it. */
static sb_word *link_of(sb_broker *b, const sb_value_node_shm *node) {
  uint32_t parent = SB_LOAD(&node->parent, SB_RELAXED);
  sb_value_node_shm *above = parent != 0 ? node_at(b, parent) : NULL;
  return above != NULL ? &above->words[SB_LOAD(&node->branch, SB_RELAXED) % SB_VALUE_BRANCHES] : NULL;
}

bool sb_value_index_links(sb_broker *b, uint32_t slot) {
  const sb_value_node_shm *node = sb_slot_at(b, slot);
  const sb_queue_shm *q = sb_slab_queue(b, SB_LOAD(&node->queue, SB_RELAXED));
  if (q == NULL) {
    return false;
  }
  if (SB_LOAD(&node->parent, SB_RELAXED) == 0) {
    return SB_LOAD(&q->value_index, SB_ACQUIRE) == slot;
  }
  const sb_word *link = link_of(b, node);
  return link != NULL && SB_LOAD(link, SB_ACQUIRE) == word_of_node(slot);
}

static void start(sb_value_node_shm *node, uint32_t queue, const sb_value_place *place, unsigned branch_above) {
  SB_STORE(&node->queue, queue, SB_RELAXED);
  SB_STORE(&node->parent, place != NULL ? place->node : 0u, SB_RELAXED);
  SB_STORE(&node->branch, branch_above, SB_RELAXED);
  for (unsigned n = 0; n < SB_VALUE_BRANCHES; n++) SB_STORE(&node->words[n], 0, SB_RELAXED);
}

typedef struct {
  uint64_t token, gen;
  uint32_t slot;
} fresh_node;

static sb_status allocate(sb_queue *q, fresh_node *fresh) {
  return sb_holding_object(q->c, SB_KIND_VALUE_NODE, &fresh->token, &fresh->slot, &fresh->gen);
}

/* Ends the making of a node: publishes it if it was linked, else frees it. */
static void finish(sb_queue *q, const fresh_node *fresh, bool linked) {
  sb_broker *b = q->c->b;
  if (linked) {
    SB_CRASHPOINT("values.node.linked");
    uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, q->c->id, fresh->gen);
    (void)SB_CAS(sb_slot_header(b, fresh->slot), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, fresh->gen), SB_ACQ_REL);
  } else {
    (void)sb_slab_free_gen(b, fresh->slot, fresh->gen);
  }
  sb_holding_give(q->c, fresh->token);
}

static sb_status make_root(sb_queue *q, uint32_t *slot) {
  fresh_node fresh;
  sb_status status = allocate(q, &fresh);
  if (status == SB_OK) {
    start(sb_slot_at(q->c->b, fresh.slot), q->slot, NULL, 0);
    *slot = 0;
    bool linked = SB_CAS(&q->shm->value_index, slot, fresh.slot, SB_SEQ_CST); /* P28 */
    if (linked) *slot = fresh.slot;
    finish(q, &fresh, linked);
  }
  return status;
}

static sb_status descend(const sb_queue *q, uint32_t slot, const sb_value_key *key, sb_value_place *place) {
  for (unsigned depth = 0; depth < LEVELS; depth++) {
    sb_value_node_shm *node = node_at(q->c->b, slot);
    if (node == NULL) {
      return SB_CORRUPT;
    }
    sb_word *word = &node->words[branch(key, depth)];
    uint64_t found = SB_LOAD(word, SB_SEQ_CST);
    if (!is_node(found)) {
      *place = (sb_value_place){word, found, slot, depth};
      return SB_OK;
    }
    slot = slot_of(found);
  }
  return SB_CORRUPT; /* the last level has no nodes below it */
}

sb_status sb_value_index_look(const sb_queue *q, const sb_value_key *key, sb_value_place *place) {
  uint32_t slot = SB_LOAD(&q->shm->value_index, SB_SEQ_CST);
  return slot == 0 ? SB_EMPTY : descend(q, slot, key, place);
}

sb_status sb_value_index_find(sb_queue *q, const sb_value_key *key, sb_value_place *place) {
  uint32_t slot = SB_LOAD(&q->shm->value_index, SB_SEQ_CST);
  sb_status status = slot == 0 ? make_root(q, &slot) : SB_OK;
  return status == SB_OK ? descend(q, slot, key, place) : status;
}

bool sb_value_index_set(sb_queue *q, const sb_value_place *place, const sb_value_key *key, uint64_t position) {
  uint64_t expected = place->found, relative = SB_BITS(position - q->base, 0, 46);
  return SB_CAS(place->word, &expected,
                SB_VALUE_POSITION | SB_FIELD(relative, 2) | SB_FIELD(SB_BITS(key->high, 48, 16), 48), SB_SEQ_CST);
}

sb_status sb_value_index_split(sb_queue *q, const sb_value_place *place, const sb_value_key *other) {
  fresh_node fresh;
  if (place->depth + 1 >= LEVELS) {
    return SB_CORRUPT; /* the path is the whole hash: equal keys do not come here */
  }
  sb_status status = allocate(q, &fresh);
  if (status == SB_OK) {
    sb_value_node_shm *node = sb_slot_at(q->c->b, fresh.slot);
    start(node, q->slot, place, branch(other, place->depth));
    SB_STORE(&node->words[branch(other, place->depth + 1)], place->found, SB_RELAXED);
    uint64_t expected = place->found;
    finish(q, &fresh, SB_CAS(place->word, &expected, word_of_node(fresh.slot), SB_SEQ_CST)); /* P28 */
  }
  return status;
}

/* Finds a node below `slot`, or `slot` itself, that has no node below it. *link: the word that names it, NULL for the
 * root. A damaged link counts as empty. */
static uint32_t lowest(sb_broker *b, uint32_t slot, sb_word **link) {
  *link = NULL;
  for (unsigned depth = 0; depth < LEVELS; depth++) {
    sb_value_node_shm *node = node_at(b, slot);
    uint32_t below = 0;
    for (unsigned n = 0; n < SB_VALUE_BRANCHES && below == 0; n++) {
      uint64_t word = SB_LOAD(&node->words[n], SB_ACQUIRE);
      if (is_node(word) && node_at(b, slot_of(word)) != NULL) {
        below = slot_of(word);
        *link = &node->words[n];
      }
    }
    if (below == 0) {
      break;
    }
    slot = below;
  }
  return slot;
}

void sb_value_index_free(sb_connection *c, sb_queue_shm *q) {
  sb_broker *b = c->b;
  uint32_t root;
  while ((root = SB_LOAD(&q->value_index, SB_ACQUIRE)) != 0) {
    sb_word *link = NULL;
    uint32_t slot = node_at(b, root) != NULL ? lowest(b, root, &link) : 0;
    uint64_t header = slot != 0 ? SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE) : 0;
    if (slot != 0) sb_holding_set(b, c->page_token, sb_holding_what(SB_HOLD_SLOT, slot, sb_slot_gen(header)), 0);
    if (link != NULL) {
      SB_STORE(link, 0, SB_RELEASE);
    } else {
      SB_STORE(&q->value_index, 0u, SB_RELEASE);
    }
    SB_CRASHPOINT("values.node.unlinked");
    if (slot != 0) (void)sb_slab_free_gen(b, slot, sb_slot_gen(header));
  }
}
