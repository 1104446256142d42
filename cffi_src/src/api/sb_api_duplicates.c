// SPDX-License-Identifier: Apache-2.0
/* Puts of messages with an id into queues that remember ids (sb_duplicates.h). */
#include "sb_api.h"
#include "sb_transaction.h"

bool sb_api_is_known(const sb_queue *q, sb_id id) {
  unsigned owner;
  bool known = sb_duplicates_look(q, id, &owner) == SB_ID_IS_DUPLICATE;
  if (known) sb_duplicates_count(q);
  return known;
}

sb_status sb_api_enqueue_once(sb_queue *q, const sb_reservation *r) {
  sb_connection *c = q->c;
  const sb_message_shm *m = sb_slot_at(c->b, r->slot);
  sb_transaction_body body = {.token = r->token,
                              .gen = r->gen,
                              .bytes = r->size,
                              .slot = r->slot,
                              .due_ns = m->due_ns,
                              .expires_ns = m->expires_ns,
                              .scheduled = m->due_ns != 0};
  sb_transaction_cell cell = {.q = q, .body = &body, .admitted = true};
  sb_transaction_plan plan = {.c = c, .bodies = &body, .cells = &cell, .body_count = 1, .cell_count = 1};
  sb_status status = sb_duplicates_claim(q, (sb_id){r->id_low, r->id_high}, &cell.claim);
  if (status != SB_OK) {
    return status;
  }
  sb_transaction_list(c, &body, true);
  status = sb_transaction_stage_cell(c, &cell);
  if (status != SB_OK) {
    sb_transaction_list(c, &body, false);
    sb_duplicates_withdraw(c, &cell.claim);
    return status;
  }
  sb_transaction_decide(&plan);
  sb_transaction_carry_out(&plan);
  return SB_OK;
}

/* The connection whose commit has claimed the id that the handle waits for; 0: it is decided, or given back. */
static unsigned rival_of(const sb_queue *q) {
  unsigned owner = 0;
  (void)sb_duplicates_look(q, (sb_id){q->undecided_low, q->undecided_high}, &owner);
  return owner;
}

sb_status sb_queue_wait_for_id(sb_queue *q, uint64_t deadline_ns, int32_t *pid) {
  sb_connection *c = q->c;
  sb_broker *b = c->b;
  sb_status status = sb_api_enter(c);
  *pid = 0;
  if (status != SB_OK) {
    return status;
  }
  unsigned rival;
  q->busy++; /* I60 of sb_handles.h */
  while (status == SB_OK && sb_queue_is_open(q) && (rival = rival_of(q)) != 0) {
    unsigned dead = sb_api_was_killed(b, rival) ? rival : 0;
    *pid = sb_api_process_pid(b, sb_conn_process(SB_LOAD(&b->connections[rival], SB_ACQUIRE)));
    sb_patience p = {0};
    sb_api_leave(c);
    (void)sb_api_look_again(c, dead, &p);
    if (sb_now_ns() >= deadline_ns) status = SB_TIMEOUT;
    sb_lock(c);
    if (sb_closed(c)) status = SB_CLOSED;
  }
  q->busy--;
  sb_api_leave(c);
  return status;
}
