// SPDX-License-Identifier: Apache-2.0
#include "sb_stopped.h"

#include "sb_liveness.h"

/* What the last look at a process found. The next node uses it again if it belongs to the same process, as consumers
 * often do. */
typedef struct {
  uint32_t process;
  bool stopped;
} look;

static bool is_stopped(sb_broker *b, uint32_t node, look *last) {
  unsigned owner = sb_node_conn(SB_LOAD(&((sb_node_shm *)sb_slot_at(b, node))->word, SB_ACQUIRE));
  uint64_t word = SB_LOAD(&b->connections[owner], SB_ACQUIRE);
  uint32_t process = sb_conn_process(word);
  if (sb_conn_state(word) != SB_CONN_LIVE || process == b->process) {
    return false;
  }
  if (process != last->process) *last = (look){process, sb_liveness_is_stopped(b, process)};
  return last->stopped;
}

/* Why `visit` walks over a list. FIND_RUNNING: to find a node of a running process; `visit` returns 1, or 0 if there is
 * none. PARK_STOPPED: to park all nodes of stopped processes; `visit` returns how many it parked. */
typedef enum { FIND_RUNNING, PARK_STOPPED } purpose;

static uint32_t visit(sb_connection *by, uint32_t level, uint32_t id, unsigned state, look *last, purpose why) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node, found = 0;
  if (!sb_ring_open(by->b, level, id, &list)) {
    return 0;
  }
  /* The walk ends where the list ended when the walk began. Nodes of running processes may enter the list again and
   * again, so a walk that followed the growing list might never finish. */
  uint64_t end = sb_ring_exact_tail(by->b, &list);
  while ((node = sb_nodes_next(by, &list, state, &position)) != 0 && position <= end) {
    SB_CRASHPOINT("stopped.visited");
    bool stopped = is_stopped(by->b, node, last);
    if (why == FIND_RUNNING) {
      if (!stopped) return 1;
    } else if (stopped && sb_node_move(by, node, SB_IN(state), SB_NODE_NOT_INTERESTED)) {
      SB_CRASHPOINT("stopped.parked");
      sb_notify_node(by->b, node); /* I61 */
      found++;
    }
  }
  return found;
}

static uint32_t visit_all(sb_connection *by, uint32_t queue, look *last, purpose why) {
  sb_level_cursor at = sb_levels_of(sb_slot_at(by->b, queue));
  uint32_t found = 0, levels = 0;
  while (sb_level_next(by->b, &at) != NULL) {
    if (why == FIND_RUNNING && found > 0) break;
    found += visit(by, at.slot, SB_RING_INTERESTED, SB_NODE_INTERESTED, last, why);
    found += visit(by, at.slot, SB_RING_NOTIFIED, SB_NODE_NOTIFIED, last, why);
    levels++;
  }
  if (levels > 1 && !(why == FIND_RUNNING && found > 0)) { /* they may be rivals of others (sb_rivals.h) */
    found += visit(by, queue, SB_RING_NON_ACQUIRING, SB_NODE_NON_ACQUIRING, last, why);
  }
  return found;
}

uint32_t sb_stopped_park(sb_connection *by, uint32_t queue) {
  look last = {UINT32_MAX, false};
  return visit_all(by, queue, &last, FIND_RUNNING) > 0 ? visit_all(by, queue, &last, PARK_STOPPED) : 0;
}
