// SPDX-License-Identifier: Apache-2.0
/* Liveness: which processes are attached to the broker, and which of them are dead.
 *
 * What: each attached process owns a process slot. It holds an open-file-description lock on byte 64+i of the lock file
 * for as long as slot i is LIVE. The kernel releases the lock after the last thread of the process has ended, so no
 * store of the process follows the release.
 *
 * Layout: `sb_process_shm`; the lock file lies beside the segments.
 *
 * Invariants:
 *  I8 only a process that holds the byte lock of a process slot changes that slot from FREE to LIVE, or back. This
 *      process is the owner of the slot, or the reaper of the owner.
 *  I9 a process counts as dead only if its byte lock is free AND /proc does not show the process. Only the lock decides
 *      about a process of another pid namespace, whose processes our /proc does not show.
 *
 * Ordering pairs: the kernel's lock orders the last store of the owner before the first load of its reaper.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the byte lock was taken -> the slot is FREE, the lock is free -> nothing to repair: the next process takes the slot.
 *  the slot became LIVE -> the slot is LIVE, the lock is free -> the process that takes the lock is the reaper
 *   (sb_recover.h).
 * A process that SIGSTOP stopped keeps its lock, and is not dead.
 *
 * Concurrency: the lock belongs to the file description, so it does not exclude other threads of the same process;
 * `reap_lock` does. A forked child would keep its parent's locks alive, so the child closes its copies of the
 * descriptors. A fork waits until no other thread is attaching or detaching, so the child knows all descriptors. The
 * child recognises that it is a child by `guard`, which the kernel wipes in children.
 */
#ifndef SB_LIVENESS_H
#define SB_LIVENESS_H

#include "sb_segment.h"

/* Mutexes of this process. sb_topology_mutex admits one thread at a time to the topology's byte lock, sb_connect_mutex
 * to the entry `boot` of the process slot. A fork handler makes sure that a child finds them free. */
extern pthread_mutex_t sb_topology_mutex, sb_connect_mutex;

sb_status sb_liveness_attach(sb_broker *b);
/* Ends the attachment of this process: frees its process slot, unless this process is a forked child, and closes the
 * descriptors of the lock file. The caller has already released everything that this process owned in the broker. */
void sb_liveness_detach(sb_broker *b);
bool sb_liveness_is_dead(sb_broker *b, uint32_t process);
/* True if the process is dead, or if /proc does not show it, although its byte lock is held: another process or thread
 * is reaping it, or the kernel is ending it. */
bool sb_liveness_is_gone(sb_broker *b, uint32_t process);
/* True if /proc shows that the process is stopped, by a signal or by a tracer. A hint: the process may continue. False
 * for the caller's own process, and for a process of another pid namespace, which our /proc does not show. */
bool sb_liveness_is_stopped(sb_broker *b, uint32_t process);
/* True if a thread of the process, other than the calling thread, runs or waits for a processor or a disk. Such a
 * thread may be inside an operation. Also true for a process that /proc does not show. A hint. */
bool sb_liveness_is_awake(sb_broker *b, uint32_t process);
/* True if a housekeeper exists and its process is stopped. */
bool sb_liveness_housekeeper_stopped(sb_broker *b);
/* Takes the byte lock of a dead process. True: the caller is its reaper until sb_liveness_end_reaping. False: the
 * process is not dead, or another thread or process is reaping. */
bool sb_liveness_begin_reaping(sb_broker *b, uint32_t process);
/* Ends the reaping of the process, and releases its byte lock. reaped: true if the caller recovered everything that the
 * process owned; the process slot then becomes FREE. */
void sb_liveness_end_reaping(sb_broker *b, uint32_t process, bool reaped);
bool sb_lock_byte(int fd, long byte); /* write lock; does not wait */
void sb_unlock_byte(int fd, long byte);
bool sb_liveness_has_housekeeper(sb_broker *b);
int32_t sb_byte_holder(int fd, long byte); /* 0: free, or locked through `fd` itself; 1: locked by others, or unknown */
/* Three fields of /proc/PID/stat: start time (0 = no such process), state, and the start of the program's stack. */
typedef struct {
  uint64_t start_ticks, stack;
  char state;
} sb_process_facts;
sb_process_facts sb_process_look(int32_t pid);
static inline bool sb_forked(const sb_broker *b) { return SB_LOAD(b->guard, SB_RELAXED) != 1u; }

#endif
