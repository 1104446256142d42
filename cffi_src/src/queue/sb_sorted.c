// SPDX-License-Identifier: Apache-2.0
#include "sb_sorted.h"

#include <stdlib.h>

#include "sb_closing.h"
#include "sb_slab.h"

#define LEAST_SWEEP 1024u

struct sb_sorted {
  sb_sort_heap came;     /* of the cells that the cursor passed */
  sb_sort_heap returned; /* of the cells with `requeued` bits */
  uint64_t cursor;       /* all cells before it were read */
  uint64_t seen;
  size_t sweep_at; /* when `came` has this number of keys, those of messages that are gone are removed */
};

typedef struct {
  sb_queue *q;
  sb_sorted *index;
  const sb_sorted_reader *reader;
} search;

static sb_status find_index(const sb_queue *q, sb_sorted **index) {
  if (*index != NULL) {
    return SB_OK;
  }
  *index = calloc(1, sizeof **index);
  if (*index == NULL) {
    return SB_NO_MEMORY;
  }
  (*index)->cursor = SB_LOAD(q->lanes[0].ring.head, SB_ACQUIRE);
  (*index)->sweep_at = LEAST_SWEEP;
  (*index)->seen = SB_LOAD(q->lanes[0].ring.returned, SB_SEQ_CST) - 1;
  return SB_OK;
}

/* Adds the message of an AVAILABLE cell to a heap, if the reader wants it. SB_DONE: the cell changed meanwhile.
 * SB_CORRUPT: the cell names no slot. */
static sb_status add(const search *s, sb_sort_heap *heap, const sb_cell_shm *cell, uint64_t word, uint64_t position) {
  sb_broker *b = s->q->c->b;
  uint32_t slot = sb_cell_slot(word);
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return SB_LOAD(&cell->word, SB_SEQ_CST) == word ? SB_CORRUPT : SB_DONE;
  }
  sb_message_shm m = sb_peek_message(b, slot);
  sb_sort_key key = {.rank = SB_SORT_NONE};
  bool wanted = s->reader->wants == NULL || s->reader->wants(s->q, s->reader->who, slot, &m);
  sb_status status = wanted ? sb_sort_key_read(s->q, slot, &m, position, &key) : SB_OK;
  bool same = SB_LOAD(&cell->word, SB_SEQ_CST) == word; /* I109: the second look */
  if (!same || !wanted || status != SB_OK) {
    sb_sort_key_free(&key);
    return same ? status : SB_DONE;
  }
  return sb_sort_heap_add(heap, key);
}

/* The word of the cell at `position` if it is AVAILABLE; else 0. */
static uint64_t available(const sb_queue *q, uint64_t position) {
  sb_leaf_ref leaf = SB_NO_LEAF;
  if (sb_ring_locate(q->c->b, NULL, &q->lanes[0].ring, position, &leaf) != SB_OK) {
    return 0;
  }
  uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_SEQ_CST);
  return sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE ? word : 0;
}

static bool is_available(void *queue, uint64_t position) { return available(queue, position) != 0; }

/* Keeps the heap from growing with messages that other processes removed, which may never come to its front. A message
 * that is not AVAILABLE now gets `requeued` bits before it is again (I108). */
static void sweep(const search *s) {
  sb_sorted *x = s->index;
  if (x->came.count < x->sweep_at) {
    return;
  }
  if (x->came.count / 2 > (size_t)sb_queue_ready(s->q->c->b, s->q->shm)) {
    sb_sort_heap_filter(&x->came, is_available, s->q);
  }
  x->sweep_at = x->came.count < LEAST_SWEEP / 2 ? LEAST_SWEEP : 2 * x->came.count;
}

/* Reads the cell at the cursor. SB_OK: the cursor may pass it. SB_EMPTY: it is FREE. SB_DONE: look again. */
static sb_status read_cell(const search *s, sb_leaf_ref *leaf, uint64_t at) {
  sb_queue *q = s->q;
  const sb_cell_shm *cell = sb_leaf_cell(leaf, at);
  uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST); /* P1, P2: acquire; P3: the consumer's look */
  if (!sb_cell_of(word, leaf->gen)) {               /* the page was reused: find the leaf again */
    *leaf = SB_NO_LEAF;
    return SB_DONE;
  }
  switch (sb_cell_state(word)) {
    case SB_CELL_FREE: return SB_EMPTY;
    case SB_CELL_CLOSED: return SB_DELETED;
    case SB_CELL_CLOSING:
      return sb_closing_resolve(q->c->b, q->c, q->shm, &q->lanes[0].ring, at) ? SB_DONE : SB_CORRUPT;
    case SB_CELL_STAGED: sb_take_pass_staged(q, at); return SB_OK;
    case SB_CELL_AVAILABLE: sweep(s); return add(s, &s->index->came, cell, word, at);
    default: return SB_OK;
  }
}

/* Reads the cells that came since the last call. */
static sb_status read_new(const search *s) {
  sb_queue *q = s->q;
  sb_lane *lane = &q->lanes[0];
  uint64_t *at = &s->index->cursor;
  unsigned retries = 0;
  while (sb_leaf_covers(&lane->tail_leaf, *at) || sb_ring_next_leaf(q->c->b, &lane->ring, *at, &lane->tail_leaf, at)) {
    sb_status status = read_cell(s, &lane->tail_leaf, *at);
    if (status == SB_OK) {
      (*at)++;
      retries = 0;
    } else if (status == SB_EMPTY) {
      return SB_OK;
    } else if (status != SB_DONE) {
      return status;
    } else if (++retries > SB_MAX_RETRIES) {
      return SB_CORRUPT;
    }
  }
  return SB_OK;
}

/* Reads all cells with `requeued` bits, unless `returned` says that there are no others since the last call. */
static sb_status read_returned(const search *s, bool anyway) {
  sb_queue *q = s->q;
  sb_broker *b = q->c->b;
  sb_sorted *x = s->index;
  const sb_ring *r = &q->lanes[0].ring;
  uint64_t now = SB_LOAD(r->returned, SB_SEQ_CST), from = 0, position; /* P5: before the looks at bits and cells */
  sb_leaf_ref leaf;
  if (now == x->seen && !anyway) {
    return SB_OK;
  }
  sb_sort_heap_clear(&x->returned);
  x->seen = now;
  while (sb_requeued_next(b, r, from, &leaf, &position) && position < x->cursor) {
    const sb_cell_shm *cell = sb_leaf_cell(&leaf, position);
    uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST);
    from = position + 1;
    if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {
      sb_status status = add(s, &x->returned, cell, word, position);
      if (status == SB_NO_MEMORY || status == SB_CORRUPT) {
        x->seen = now - 1; /* the next call reads them again */
        return status;
      }
    } else if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_TOMBSTONE) {
      sb_requeued_clear(b, &leaf, position); /* else the queue would look ready until the page is retired */
    }
  }
  return SB_OK;
}

/* The heap with the first key of both. NULL: both are empty. */
static sb_sort_heap *first_heap(sb_sorted *x) {
  const sb_sort_key *came = sb_sort_heap_first(&x->came), *returned = sb_sort_heap_first(&x->returned);
  if (came == NULL || returned == NULL) {
    return came != NULL ? &x->came : returned != NULL ? &x->returned : NULL;
  }
  return sb_sort_key_before(returned, came) ? &x->returned : &x->came;
}

static void pass_all(const search *s) {
  sb_queue *q = s->q;
  sb_lane *lane = &q->lanes[0];
  uint64_t cursor = s->index->cursor, head = SB_LOAD(lane->ring.head, SB_ACQUIRE);
  sb_sort_heap_clear(&s->index->came);
  sb_sort_heap_clear(&s->index->returned);
  if (s->reader->wants == NULL) {
    if (cursor > lane->cursor) lane->cursor = cursor;
    if (cursor > head) sb_ring_advance(lane->ring.head, head, cursor);
  }
  sb_slab_flush_freed(q->c); /* the caller may sleep now: other connections can take the slots that it freed */
}

static bool is_held_back(const search *s, uint64_t position) {
  if (s->reader->is_held_back == NULL) {
    return false;
  }
  uint64_t word = available(s->q, position);
  return word != 0 && s->reader->is_held_back(s->q, s->reader->who, sb_cell_slot(word));
}

static sb_status take(const search *s, uint64_t token, sb_taken *t) {
  sb_queue *q = s->q;
  unsigned retries = 0;
  bool anyway = false;
  for (;;) {
    sb_status status = read_new(s);
    if (status == SB_OK) status = read_returned(s, anyway); /* after the tail: I53 */
    if (status != SB_OK) {
      return status;
    }
    sb_sort_heap *heap = first_heap(s->index);
    if (heap == NULL && !anyway && SB_LOAD(q->lanes[0].ring.requeued, SB_SEQ_CST) != 0) {
      anyway = true;
      continue;
    }
    if (heap == NULL) {
      pass_all(s);
      return SB_EMPTY;
    }
    uint64_t position = sb_sort_heap_first(heap)->position;
    if (is_held_back(s, position)) {
      return SB_NO_CREDIT;
    }
    if (sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, position, false, token, t) == SB_OK) {
      sb_sort_heap_drop(heap);
      return SB_OK;
    }
    if (!is_available(q, position)) { /* else another process took and returned it, or it can never be taken */
      sb_sort_heap_drop(heap);
      retries = 0;
    } else if (++retries > SB_MAX_RETRIES) {
      return SB_CORRUPT;
    }
  }
}

sb_status sb_sorted_take(sb_queue *q, sb_sorted **index, const sb_sorted_reader *reader, uint64_t token, sb_taken *t) {
  sb_status status = find_index(q, index);
  const search s = {q, *index, reader};
  return status == SB_OK ? take(&s, token, t) : status;
}

void sb_sorted_free(sb_sorted **index) {
  if (*index != NULL) {
    sb_sort_heap_clear(&(*index)->came);
    sb_sort_heap_clear(&(*index)->returned);
    free(*index);
    *index = NULL;
  }
}
