// SPDX-License-Identifier: Apache-2.0
/* Public calls: connections. */
#include <stdlib.h>
#include <string.h>

#include "sb_api.h"
#include "sb_peek.h"

sb_connection *sb_connection_open(sb_broker *b, const char *name, uint32_t length, sb_status *status) {
  sb_connection *c = calloc(1, sizeof *c);
  struct sb_target **targets = calloc(SB_MAX_TARGETS, sizeof *targets);
  *status = c == NULL || targets == NULL ? SB_SYSTEM : sb_forked(b) ? SB_FORKED : SB_OK;
  if (*status == SB_OK) {
    pthread_mutex_lock(&sb_connect_mutex);
    *status = sb_holdings_open(b, c, name, length);
    c->targets = targets;
    c->renew = sb_handles_forget_pages;
    SB_STORE(&c->handles, 1u, SB_RELAXED);
    if (*status == SB_OK) {
      *status = sb_io_prepare(c);
      sb_slab_return_cache(c); /* the connection keeps no cached slots: other connections may need them */
    }
    if (*status != SB_OK && c->shm != NULL) {
      (void)sb_recover_close(c);
    }
    pthread_mutex_unlock(&sb_connect_mutex);
  }
  if (*status != SB_OK) {
    free((void *)targets);
    free(c);
    return NULL;
  }
  return c;
}

sb_status sb_connection_open_at(sb_broker *b, const char *name, uint32_t length, sb_connection **handle) {
  sb_status status;
  *handle = sb_connection_open(b, name, length, &status);
  return status;
}

/* Wakes the IO thread, and each thread that sleeps on the wake word of a node of this connection. Threads that wait for
 * a message in the row of a consumer (sb_consumer.h) sleep on another word: the end of the consumer has woken them. */
static void ring_own(sb_connection *c) {
  sb_target_ring_io(c);
  sb_entries_walk all = sb_entries_of(c->b, c->shm, c->id, SB_HOLDINGS_FIRST);
  for (sb_holding_shm *h; (h = sb_entries_next(&all)) != NULL;) {
    uint64_t what = SB_LOAD(&h->what, SB_ACQUIRE);
    sb_node_shm *node = sb_holding_kind(what) == SB_HOLD_SLOT ? sb_node_at(c->b, sb_holding_slot(what)) : NULL;
    if (node != NULL) (void)sb_wake_ring(&node->wake);
  }
}

static sb_queue *handle_of(sb_connection *c, uint32_t slot) {
  sb_queue *q = c->queues;
  while (q != NULL && q->slot != slot) q = q->next;
  return q;
}

/* Ends the waits that no thread will go on with. Python ends a daemon thread, as the program ends, between two calls of
 * one wait (SB_TICK): the node of the wait is still in the lists. */
static void end_waits(sb_connection *c) {
  for (sb_queue *q = c->queues; q != NULL; q = q->next) sb_waiter_close(q); /* nodes that are kept for later waits */
  sb_entries_walk all = sb_entries_of(c->b, c->shm, c->id, SB_HOLDINGS_FIRST);
  for (sb_holding_shm *h; (h = sb_entries_next(&all)) != NULL;) {
    uint64_t what = SB_LOAD(&h->what, SB_RELAXED);
    uint32_t slot = sb_holding_slot(what);
    sb_node_shm *node = sb_holding_kind(what) == SB_HOLD_SLOT && slot != c->io_node ? sb_node_at(c->b, slot) : NULL;
    if (node != NULL) {
      sb_queue *q = handle_of(c, SB_LOAD(&node->queue, SB_RELAXED));
      uint64_t token = (uint64_t)((uint8_t *)h - c->b->arena) / sizeof(sb_holding_shm);
      if (q != NULL) sb_waiter_leave(q, slot, SB_LOAD(&node->flags, SB_RELAXED)); /* passes the baton */
      sb_node_destroy(c, slot, token);
    }
  }
}

/* Returns every message that the application still holds to its position in its queue, and ends what it reads. */
static void return_all(sb_connection *c) {
  sb_entries_walk all = sb_entries_of(c->b, c->shm, c->id, SB_HOLDINGS_FIRST);
  for (sb_holding_shm *h; (h = sb_entries_next(&all)) != NULL;) {
    uint64_t what = SB_LOAD(&h->what, SB_RELAXED);
    sb_queue *q = sb_holding_kind(what) == SB_HOLD_CELL ? handle_of(c, sb_holding_slot(what)) : NULL;
    uint64_t token = (uint64_t)((uint8_t *)h - c->b->arena) / sizeof(sb_holding_shm);
    if (sb_holding_kind(what) == SB_HOLD_READING) (void)sb_reading_end(c, token, false);
    if (q != NULL && sb_release_message(q, token, SB_UNDELIVER) == SB_OK) {
      sb_api_returned(q);
    }
  }
}

/* Ends the connection for its users, with its consumers and channels. Threads that wait inside calls return. */
sb_status sb_connection_close(sb_connection *c) {
  if (sb_forked(c->b)) {
    return SB_FORKED;
  }
  sb_lock(c);
  if (!sb_closed(c)) {
    for (sb_target *t; (t = sb_target_after(c, NULL)) != NULL;) {
      t->kind->end(t);
    }
    SB_STORE(&c->closed, 1u, SB_SEQ_CST); /* P6 of sb_wait.h: before ring_own wakes the threads */
    sb_io_set_watching(c, false);
    return_all(c);
    for (sb_queue *q = c->queues; q != NULL; q = q->next) {
      if (q->ledger != NULL) (void)sb_lifetime_end(q, c->id);
    }
  }
  sb_unlock(c);
  ring_own(c);
  return SB_OK;
}

/* Frees everything that the connection has in shared memory. The caller makes sure that no thread uses the connection.
 * False: views of its messages, or slots of its reservations, still exist. The caller calls again when these have
 * ended. */
bool sb_connection_release(sb_connection *c) {
  if (c->forgotten || sb_forked(c->b)) { /* in this order: the broker of a forgotten connection may be unmapped */
    return true;
  }
  /* If a signal handler raised in the caller, the caller may have skipped the close. After the release no reaper finds
   * the connection, so no process would return the messages that the connection holds. */
  if (!sb_closed(c)) (void)sb_connection_close(c);
  sb_lock(c);
  SB_STORE(&c->shm->waiter, 0u, SB_RELEASE);
  end_waits(c);
  while (c->queues != NULL) sb_handle_leave(c->queues);
  if (c->io_node != 0) {
    sb_node_destroy(c, c->io_node, c->io_token);
    c->io_node = 0;
  }
  sb_grace_give_up(c);
  c->forgotten = sb_recover_close(c);
  sb_unlock(c);
  return c->forgotten;
}

void sb_connection_discard(sb_connection **handle) {
  sb_connection *c = *handle;
  if (c == NULL) {
    return;
  }
  if (!sb_connection_release(c)) {
    return; /* views or reservations keep the record, until a later sb_connection_release, or the end of the process */
  }
  *handle = NULL;
  sb_connection_free(c);
}

void sb_connection_free(sb_connection *c) {
  if (SB_SUB(&c->handles, 1u, SB_ACQ_REL) == 1) {
    free((void *)c->targets);
    free(c->grace);
    free(c);
  }
}

uint32_t sb_connection_id(sb_connection *c) { return c->id; }
sb_status sb_connection_run_io(sb_connection *c) { return sb_forked(c->b) ? SB_FORKED : sb_io_run(c); }

/* Stores the number of open channels, for sb_connection_describe. Relaxed: no call depends on the number. Does nothing
 * for a closed connection, whose record may be gone. */
void sb_connection_set_channels(sb_connection *c, uint32_t count) {
  if (sb_api_enter(c) == SB_OK) {
    SB_STORE(&c->shm->channels, count, SB_RELAXED);
    sb_api_leave(c);
  }
}

/* True if the holding `what` is a node that counts as one more consumer. The nodes of a consumer of several queues have
 * the same `target`, and only the first one counts: `targets` has a bit for each target counted so far. The owner of
 * the node may free it during the call. */
static bool counts_as_consumer(sb_broker *b, uint64_t what, uint64_t *targets) {
  const sb_node_shm *n = sb_holding_kind(what) == SB_HOLD_SLOT ? sb_node_at(b, sb_holding_slot(what)) : NULL;
  if (n == NULL || (SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_COUNTED) == 0 ||
      sb_node_state(SB_LOAD(&n->word, SB_ACQUIRE)) == SB_NODE_REMOVED) {
    return false;
  }
  if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_MEMBER) != 0) {
    return true; /* each node of a channel is a consumer */
  }
  uint32_t target = SB_LOAD(&n->target, SB_RELAXED) % SB_MAX_TARGETS;
  uint64_t bit = UINT64_C(1) << (target % 64), before = targets[target / 64];
  targets[target / 64] |= bit;
  return (before & bit) == 0;
}

static void describe(sb_broker *b, uint32_t id, sb_connection_shm *shm, sb_connection_facts *f) {
  uint64_t targets[SB_MAX_TARGETS / 64] = {0};
  sb_peek_bytes(f->name, (const uint8_t *)shm->name, sizeof f->name);
  f->name[sizeof f->name - 1] = 0;
  f->id = id;
  f->created_ns = SB_LOAD(&shm->created_ns, SB_RELAXED);
  f->channels = SB_LOAD(&shm->channels, SB_RELAXED);
  uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
  uint32_t process = sb_conn_process(word);
  f->pid = (uint32_t)sb_api_process_pid(b, process);
  if (f->pid != 0) {
    f->start_ticks = SB_LOAD(&b->processes[process].start_ticks, SB_RELAXED);
    f->pid_namespace = SB_LOAD(&b->processes[process].pid_namespace, SB_RELAXED);
  }
  sb_entries_walk all = sb_entries_of(b, shm, id, 0);
  for (const sb_holding_shm *h; (h = sb_entries_next(&all)) != NULL;) {
    uint64_t what = SB_LOAD(&h->what, SB_RELAXED);
    f->holding += sb_holding_kind(what) == SB_HOLD_CELL;
    f->consumers += counts_as_consumer(b, what, targets);
  }
}

/* Describes a connection. The caller need not have a connection itself, so no gate (sb_grace.h) protects its reads: the
 * record may be freed during the read, and the memory of the record may then hold a body. What was read is valid only
 * if the record is still that of the same connection afterwards, and the header of the record's slot is unchanged
 * (I43 of sb_peek.h). */
sb_status sb_connection_describe(sb_broker *b, uint32_t id, sb_connection_facts *f) {
  memset(f, 0, sizeof *f);
  sb_connection_shm *shm = sb_connection_record(b, id);
  if (shm == NULL) {
    return SB_NOT_FOUND;
  }
  sb_word *header = sb_slot_header(b, sb_slot_of(b, shm));
  uint64_t before = SB_LOAD(header, SB_ACQUIRE), word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
  if (sb_connection_record(b, id) == shm) describe(b, id, shm, f);
  bool same = sb_connection_record(b, id) == shm && SB_LOAD(header, SB_ACQUIRE) == before &&
              SB_LOAD(&b->connections[id], SB_ACQUIRE) == word;
  if (!same) memset(f, 0, sizeof *f);
  return same ? SB_OK : SB_NOT_FOUND;
}
