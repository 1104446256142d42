// SPDX-License-Identifier: Apache-2.0
#include "sb_following.h"

#include <sched.h>
#include <stdlib.h>

#include "sb_closing.h"
#include "sb_notify.h"
#include "sb_schedule.h"
#include "sb_wait.h"

/* What a search has and does. */
typedef struct {
  sb_queue *q;
  sb_following *f;
  sb_choice *choice;
  uint64_t token, now_ns;
  sb_taken *t;
  bool released; /* it owned a cell for a moment, where others may have stopped */
} search;

sb_following *sb_following_begin(const sb_queue *q) {
  sb_following *f = calloc(1, sizeof *f);
  sb_notes *notes = calloc(1, sizeof *notes);
  if (f == NULL || notes == NULL) {
    free(f);
    free(notes);
    return NULL;
  }
  notes->users = 1;
  *f = (sb_following){.notes = notes,
                      .cursor = SB_LOAD(&q->shm->base, SB_RELAXED), /* not the head: scheduled messages lie before it */
                      .early = SB_LOAD(&q->shm->early, SB_SEQ_CST),
                      .leaf = SB_NO_LEAF};
  return f;
}

void sb_following_end(sb_following *f) {
  f->notes->over = true;
  sb_notes_leave(f->notes);
  free(f);
}

static bool wants(const sb_queue *q, void *who, uint32_t slot, const sb_message_shm *m) {
  return sb_choice_wants(q, who, slot, m);
}

/* True if the consumer wants the message of an AVAILABLE cell, and it holds the consumer back (sb_window.h). */
static bool is_held_back(const search *s, uint64_t word) {
  sb_broker *b = s->q->c->b;
  uint32_t slot = sb_cell_slot(word);
  if (s->choice->window == NULL || !sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return false;
  }
  sb_message_shm m = sb_peek_message(b, slot);
  return sb_choice_wants(s->q, s->choice, slot, &m) && sb_choice_holds_back(s->q, s->choice, slot);
}

static bool note(sb_following *f, bool waits, sb_note n) {
  sb_note_heap *heap = waits ? &f->notes->waiting : &f->notes->passed;
  bool room = sb_note_reserve(heap, waits ? 1 : f->notes->out + 1);
  if (room) sb_note_add(heap, n);
  return room;
}

/* Looks at the end of the delay of a SCHEDULED message. SB_SETTLED: the cell changed meanwhile. SB_EMPTY: the message is
 * dead. SB_TICK: it becomes ready at *due_ns. */
static sb_status look_at_delay(const search *s, const sb_cell_shm *cell, uint64_t word, uint64_t *due_ns) {
  sb_broker *b = s->q->c->b;
  uint32_t slot = sb_cell_slot(word);
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return SB_SETTLED;
  }
  sb_message_shm m = sb_peek_message(b, slot);
  uint64_t side = SB_LOAD(&cell->side, SB_ACQUIRE);
  *due_ns = sb_schedule_due(side, &m);
  if (SB_LOAD(&cell->word, SB_SEQ_CST) != word) {
    return SB_SETTLED;
  }
  return sb_park_why(side, m.flags) != SB_WHY_ALIVE ? SB_EMPTY : SB_TICK;
}

/* Looks at a cell that is neither FREE nor an end of the queue. SB_OK: the message was read. SB_EMPTY: nothing for this
 * consumer comes from there any more. SB_IN_USE: the cell is owned. SB_TICK: it is SCHEDULED until *due_ns. SB_DONE: its
 * page was reused, so the caller finds it again. SB_NO_CREDIT: it does not fit. Any other status: that of
 * sb_reading_take. */
static sb_status look_at(search *s, const sb_leaf_ref *leaf, const sb_note *n, uint64_t *due_ns) {
  const sb_reading_filter filter = {wants, s->choice};
  const sb_cell_shm *cell = sb_leaf_cell(leaf, n->position);
  sb_status status = SB_SETTLED;
  for (unsigned tries = 0; status == SB_SETTLED; tries++) {
    uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST); /* P1, P2: acquire; P32 */
    if (tries > SB_MAX_RETRIES) {
      return SB_CORRUPT;
    }
    if (!sb_cell_of(word, leaf->gen)) {
      return SB_DONE;
    }
    switch (sb_cell_state(word)) {
      case SB_CELL_AVAILABLE:
        if (is_held_back(s, word)) {
          return SB_NO_CREDIT;
        }
        status = sb_reading_take(s->q, s->f->notes, &filter, leaf, n, word, s->token, s->t, &s->released);
        break;
      case SB_CELL_SCHEDULED: status = look_at_delay(s, cell, word, due_ns); break;
      case SB_CELL_TOMBSTONE: status = SB_EMPTY; break;
      default: status = SB_IN_USE; break;
    }
  }
  return status;
}

/* Looks again at the positions before the cursor, the lowest first. Those that are owned stay noted. */
static sb_status look_behind(search *s) {
  sb_notes *notes = s->f->notes;
  sb_note_heap owned = {NULL, 0, 0};
  sb_leaf_ref leaf = SB_NO_LEAF;
  sb_status status = SB_EMPTY;
  while (status == SB_EMPTY && notes->passed.count > 0) {
    uint64_t due = 0;
    sb_note n = notes->passed.heap[0];
    sb_status located = sb_leaf_covers(&leaf, n.position)
                            ? SB_OK
                            : sb_ring_locate(s->q->c->b, NULL, &s->q->lanes[0].ring, n.position, &leaf);
    sb_status seen =
        located == SB_OK ? look_at(s, &leaf, &n, &due) : SB_EMPTY; /* the page is freed: so is the message */
    if (seen == SB_DONE) {                                         /* the page was freed since it was found */
      leaf = SB_NO_LEAF;
      continue;
    }
    bool waits = seen == SB_TICK && due > s->now_ns, stays = seen == SB_IN_USE || (seen == SB_TICK && !waits);
    if ((waits && !sb_note_reserve(&notes->waiting, 1)) || (stays && !sb_note_reserve(&owned, 1))) {
      status = SB_SYSTEM;
      break;
    }
    if (seen == SB_OK || seen == SB_EMPTY || waits || stays) {
      (void)sb_note_first(&notes->passed);
      if (waits) sb_note_add(&notes->waiting, (sb_note){due, n.position, n.deliveries});
      if (stays) sb_note_add(&owned, n);
      notes->out += stays; /* `passed` keeps room for it */
      if (seen == SB_OK) status = SB_OK;
    } else {
      status = seen; /* it stays noted */
    }
  }
  for (uint32_t i = 0; i < owned.count; i++) sb_note_add(&notes->passed, owned.heap[i]);
  notes->out -= owned.count;
  free(owned.heap);
  return status;
}

/* Moves the notes whose delay is over, or all if `early` has changed, to those that may be ready. */
static sb_status look_at_waiting(const search *s) {
  sb_following *f = s->f;
  uint64_t early = SB_LOAD(&s->q->shm->early, SB_SEQ_CST);
  bool all = early != f->early;
  while (f->notes->waiting.count > 0 && (all || f->notes->waiting.heap[0].key <= s->now_ns)) {
    sb_note n = f->notes->waiting.heap[0];
    if (!note(f, false, (sb_note){n.position, n.position, n.deliveries})) return SB_SYSTEM;
    (void)sb_note_first(&f->notes->waiting);
  }
  f->early = early;
  return SB_EMPTY;
}

/* Handles what was seen at the cursor. SB_EMPTY: the cursor may go on. SB_IN_USE: it stops here for now. */
static sb_status pass(const search *s, sb_status seen, uint64_t due_ns) {
  sb_following *f = s->f;
  if (seen == SB_IN_USE) {
    if (f->since_ns == 0) f->since_ns = s->now_ns;
    if (++f->stops < SB_FOLLOWING_STOPS || s->now_ns < f->since_ns + SB_FOLLOWING_PATIENCE_NS) {
      (void)sched_yield(); /* the owner may wait for a processor */
      s->choice->unfinished = true;
      return SB_IN_USE;
    }
  }
  if ((seen == SB_IN_USE || seen == SB_TICK) &&
      !note(f, seen == SB_TICK, (sb_note){seen == SB_TICK ? due_ns : f->cursor, f->cursor, 0})) {
    return SB_SYSTEM;
  }
  f->stops = 0;
  f->cursor++;
  return SB_EMPTY;
}

/* Reads on from the cursor. */
static sb_status look_on(search *s) {
  sb_queue *q = s->q;
  sb_following *f = s->f;
  sb_lane *lane = &q->lanes[0];
  uint64_t base = SB_LOAD(lane->ring.base, SB_RELAXED);
  unsigned retries = 0, passed = 0;
  if (f->cursor < base) f->cursor = base;
  while (sb_leaf_covers(&f->leaf, f->cursor) ||
         sb_ring_next_leaf(q->c->b, &lane->ring, f->cursor, &f->leaf, &f->cursor)) {
    while (sb_leaf_covers(&f->leaf, f->cursor)) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&f->leaf, f->cursor)->word, SB_SEQ_CST), due = 0; /* P3 */
      unsigned state = sb_cell_of(word, f->leaf.gen) ? sb_cell_state(word) : SB_CELL_TOMBSTONE;
      if (state == SB_CELL_FREE) {
        return SB_EMPTY;
      }
      if (state == SB_CELL_CLOSING) {
        if (!sb_closing_resolve(q->c->b, q->c, q->shm, &lane->ring, f->cursor) || ++retries > SB_MAX_RETRIES)
          return SB_CORRUPT;
        continue;
      }
      if (state == SB_CELL_CLOSED) {
        return SB_DELETED;
      }
      if (f->notes->passed.count > 0 && state == SB_CELL_AVAILABLE) {
        sb_status behind = look_behind(s);
        if (behind != SB_EMPTY) return behind;
      }
      sb_status status = look_at(s, &f->leaf, &(sb_note){f->cursor, f->cursor, 0}, &due);
      if (status == SB_DONE) {
        f->leaf = SB_NO_LEAF;
        if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
        break;
      }
      if (status == SB_OK) {
        f->stops = 0;
        f->since_ns = 0;
        f->cursor++;
        return SB_OK;
      }
      if (status == SB_EMPTY || status == SB_IN_USE || status == SB_TICK) status = pass(s, status, due);
      if (status != SB_EMPTY) return status == SB_IN_USE ? SB_EMPTY : status;
      if (++passed == SB_CHOICE_LOOKS) {
        s->choice->unfinished = true;
        return SB_EMPTY;
      }
    }
  }
  return SB_EMPTY;
}

sb_status sb_following_take(sb_queue *q, sb_following *f, sb_choice *choice, uint64_t token, sb_taken *t) {
  search s = {.q = q, .f = f, .choice = choice, .token = token, .now_ns = sb_now_ns(), .t = t};
  choice->unfinished = false;
  if (!sb_queue_is_open(q)) {
    return SB_DELETED;
  }
  if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0) {
    return SB_EMPTY;
  }
  sb_status status = look_at_waiting(&s);
  if (status == SB_EMPTY) status = look_behind(&s);
  if (status == SB_EMPTY) status = look_on(&s);
  f->stuck = status == SB_LIMIT;
  if (s.released) {
    if (sb_limits_enforce(q) > 0) sb_notify_room_made(q->c, q->shm, q->slot); /* I42 of sb_queue.h */
    sb_notify_work_arrived(q);
  }
  return status;
}
