// SPDX-License-Identifier: Apache-2.0
#include "sb_reading.h"

#include <stdlib.h>
#include <string.h>

#include "sb_parts.h"
#include "sb_release.h"
#include "sb_view.h"
#include "sb_wait.h"

/* In front of the copy of a short message: its header, exchange, key, properties and body. */
typedef struct {
  sb_notes *notes;
  uint64_t position, side, gen, view; /* view: token of its holding; 0: the message was copied */
  uint32_t slot, lent;
  bool ended; /* settled or returned, while the body is lent */
  sb_message_shm message;
} sb_reading;

/* ---- notes ---- */

bool sb_note_reserve(sb_note_heap *h, uint32_t more) {
  if (h->room - h->count >= more) {
    return true;
  }
  uint64_t room = 2 * ((uint64_t)h->count + more) + 6;
  sb_note *heap = room <= UINT32_MAX ? calloc(room, sizeof *heap) : NULL;
  if (heap == NULL) {
    return false;
  }
  if (h->count > 0) memcpy(heap, h->heap, h->count * sizeof *heap);
  free(h->heap);
  h->heap = heap;
  h->room = (uint32_t)room;
  return true;
}

void sb_note_add(sb_note_heap *h, sb_note note) {
  uint32_t at = h->count++;
  for (; at > 0 && h->heap[(at - 1) / 2].key > note.key; at = (at - 1) / 2) h->heap[at] = h->heap[(at - 1) / 2];
  h->heap[at] = note;
}

sb_note sb_note_first(sb_note_heap *h) {
  sb_note first = h->heap[0], last = h->heap[--h->count];
  uint32_t at = 0;
  for (uint32_t child = 1; child < h->count; child = 2 * at + 1) {
    if (child + 1 < h->count && h->heap[child + 1].key < h->heap[child].key) child++;
    if (last.key <= h->heap[child].key) break;
    h->heap[at] = h->heap[child];
    at = child;
  }
  if (h->count > 0) h->heap[at] = last;
  return first;
}

void sb_notes_leave(sb_notes *notes) {
  if (--notes->users == 0) {
    free(notes->passed.heap);
    free(notes->waiting.heap);
    free(notes);
  }
}

/* ---- readings ---- */

static sb_reading *holding_of(sb_connection *c, uint64_t token) {
  sb_broker *b = c->b;
  if (token == 0 || token * sizeof(sb_holding_shm) >= b->arena_bytes || !sb_slot_ready(b, (uint32_t)(token / 16))) {
    return NULL;
  }
  const sb_holding_shm *h = sb_holding_at(b, token);
  bool reading = sb_holding_kind(SB_LOAD(&h->what, SB_RELAXED)) == SB_HOLD_READING;
  return reading ? (sb_reading *)(uintptr_t)SB_LOAD(&h->where, SB_RELAXED) : NULL;
}

/* The reading of a holding, unless it has ended. */
static sb_reading *reading_of(sb_connection *c, uint64_t token) {
  sb_reading *r = holding_of(c, token);
  return r != NULL && !r->ended ? r : NULL;
}

static void describe(sb_broker *b, sb_reading *r, uint64_t token, sb_taken *t) {
  *t = (sb_taken){.token = token, .position = r->position, .gen = r->gen, .side = r->side, .slot = r->slot};
  t->message = r->view != 0 ? sb_slot_at(b, r->slot) : &r->message;
  t->delivered = true;
}

bool sb_reading_find(sb_connection *c, uint64_t token, sb_taken *t) {
  sb_reading *r = reading_of(c, token);
  if (r != NULL) describe(c->b, r, token, t);
  return r != NULL;
}

static uint64_t names_of(const sb_message_shm *m) {
  return (uint64_t)m->exchange_length + m->key_length + m->properties_length;
}

/* Makes a reading that has a copy of the message, or a view of its body. NULL: the process has no memory. */
static sb_reading *make(sb_broker *b, const sb_message_shm *m, uint32_t slot, bool viewed) {
  uint64_t names = names_of(m), copied = viewed ? 0 : names + m->body_length;
  sb_reading *r = calloc(1, sizeof *r + copied);
  if (r == NULL) {
    return NULL;
  }
  *r = (sb_reading){.slot = slot, .message = *m};
  char *to = (char *)(&r->message + 1);
  const uint8_t *from = sb_slot_at(b, slot);
  if (viewed) {
    return r;
  }
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    (void)sb_parts_copy(b, slot, 0, to, copied);
  } else {
    sb_peek_bytes(to, from + sizeof *m, names);
    sb_peek_bytes(to + names, from + m->body_offset, m->body_length);
  }
  r->message.flags &= (uint8_t)~SB_MESSAGE_IN_PARTS;
  r->message.body_offset = (uint32_t)(sizeof *m + names);
  return r;
}

/* Takes the message at a position. SB_SETTLED: another process has it. */
static sb_status take_for_a_moment(sb_queue *q, uint64_t position, uint64_t *token, sb_taken *t) {
  sb_status status = sb_holding_take(q->c, token);
  if (status == SB_OK && sb_take_at(q, position, SB_CELL_AVAILABLE, *token, t) != SB_OK) {
    sb_holding_give(q->c, *token);
    status = SB_SETTLED;
  }
  return status;
}

/* Takes the message for a moment, to add a view of its body. */
static sb_status add_view(sb_queue *q, uint64_t position, uint64_t *view, bool *released) {
  uint64_t token;
  sb_taken t;
  sb_status status = take_for_a_moment(q, position, &token, &t);
  if (status != SB_OK) {
    return status;
  }
  SB_CRASHPOINT("reading.taken");
  status = sb_view_take(q->c, &t, view);
  SB_CRASHPOINT("reading.viewed");
  (void)sb_release_unmarked(q, token);
  *released = true;
  return status;
}

static sb_status remove_damaged(sb_queue *q, uint64_t position, bool *released) {
  uint64_t token;
  sb_taken t;
  sb_status status = take_for_a_moment(q, position, &token, &t);
  if (status != SB_OK) {
    return status;
  }
  (void)sb_dispose(q, token, SB_REASON_UNREADABLE);
  *released = true;
  return SB_EMPTY;
}

sb_status sb_reading_take(sb_queue *q, sb_notes *notes, const sb_reading_filter *filter, const sb_leaf_ref *leaf,
                          const sb_note *note, uint64_t word, uint64_t token, sb_taken *t, bool *released) {
  sb_broker *b = q->c->b;
  const sb_cell_shm *cell = sb_leaf_cell(leaf, note->position);
  uint32_t slot = sb_cell_slot(word);
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return SB_SETTLED;
  }
  uint64_t gen = sb_slot_gen(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE)), view = 0;
  sb_message_shm m = sb_peek_message(b, slot);
  bool sound = sb_settle_is_sound(b, slot, &m), expired = m.expires_ns != 0 && m.expires_ns <= sb_now_ns();
  bool reads = sound && !expired && filter->wants(q, filter->who, slot, &m),
       viewed = reads && m.body_length > SB_INLINE_BODY;
  if (reads && !sb_note_reserve(&notes->passed, notes->out + 1)) {
    return SB_SYSTEM;
  }
  sb_reading *r = reads ? make(b, &m, slot, viewed) : NULL;
  if (reads && r == NULL) {
    return SB_SYSTEM;
  }
  bool same =
      SB_LOAD(&cell->word, SB_SEQ_CST) == word && sb_slot_gen(SB_LOAD(sb_slot_header(b, slot), SB_SEQ_CST)) == gen;
  sb_status status = same ? SB_OK : SB_SETTLED;
  if (same && !sound) status = remove_damaged(q, note->position, released);
  if (same && sound && !reads) status = SB_EMPTY;
  if (same && viewed) status = add_view(q, note->position, &view, released);
  if (status != SB_OK) {
    free(r);
    return status;
  }
  bool redelivered = note->deliveries > 0;
  r->notes = notes;
  r->position = note->position;
  r->side = sb_side_word(gen, note->deliveries + 1, redelivered ? SB_SIDE_REDELIVERED : 0);
  r->gen = gen;
  r->view = view;
  notes->users++;
  notes->out++;
  q->c->end_reading = sb_reading_end;
  sb_holding_set(b, token, sb_holding_what(SB_HOLD_READING, q->slot, 0), (uint64_t)(uintptr_t)r);
  describe(b, r, token, t);
  return SB_OK;
}

/* Frees a reading that has ended, if nothing is lent. */
static void free_if_over(sb_connection *c, sb_reading *r, uint64_t token) {
  if (r->ended && r->lent == 0) {
    if (r->view != 0) sb_view_drop(c, r->view);
    sb_holding_give(c, token);
    free(r);
  }
}

sb_status sb_reading_end(sb_connection *c, uint64_t token, bool again) {
  sb_reading *r = reading_of(c, token);
  if (r == NULL) {
    return SB_SETTLED;
  }
  if (again && !r->notes->over) {
    sb_note_add(&r->notes->passed, (sb_note){r->position, r->position, sb_side_count(r->side)});
  }
  r->notes->out--;
  sb_notes_leave(r->notes);
  r->ended = true;
  free_if_over(c, r, token);
  return SB_OK;
}

sb_status sb_reading_lend(sb_connection *c, uint64_t token) {
  sb_reading *r = reading_of(c, token);
  if (r == NULL || r->view == 0) {
    return r == NULL ? SB_SETTLED : SB_CORRUPT;
  }
  r->lent++;
  return SB_OK;
}

uint32_t sb_reading_slot(sb_connection *c, uint64_t token) {
  const sb_reading *r = holding_of(c, token);
  return r != NULL && r->lent > 0 ? r->slot : 0;
}

bool sb_reading_unlend(sb_connection *c, uint64_t token) {
  sb_reading *r = holding_of(c, token);
  if (r != NULL && r->lent > 0) {
    r->lent--;
    free_if_over(c, r, token);
  }
  return r != NULL;
}
