// SPDX-License-Identifier: Apache-2.0
/* Liveness: who is attached, and who is dead.
 *
 * What: process slot i is LIVE exactly while its tenant holds an open-file-description lock on byte 64+i of the lock
 * file. The kernel frees that lock when the last thread is gone: no store of the process can follow.
 *
 * Layout: `sb_process_shm`; the lock file beside the segments.
 *
 * Invariants:
 *  I8 a slot is taken (FREE -> LIVE) and given back (LIVE -> FREE) only under its byte lock.
 *  I9 a process is dead only if its byte is free AND /proc of the same pid namespace does not show it.
 *
 * Ordering pairs: the kernel's lock orders a tenant's last store before its reaper's first load.
 *
 * Death: killed between taking the lock and LIVE: the slot is FREE, the next one takes it. Killed while LIVE: the lock
 *  is free and the word LIVE: whoever gets the lock is its reaper (sb_recover.h). SIGSTOP is not death.
 *
 * Concurrency: locks belong to the description, so threads of one process are kept apart by `reap_lock`.
 * A forked child closes its copy of the descriptors (it would keep the parent's locks) and finds `guard` wiped.
 */
#ifndef SB_LIVENESS_H
#define SB_LIVENESS_H

#include "sb_segment.h"

/* Mutexes of this process that a forked child must find free. The topology's byte lock and the process slot's announcement
 * are for one thread at a time. */
extern pthread_mutex_t sb_topology_mutex, sb_connect_mutex;

sb_status sb_liveness_attach(sb_broker *b);
void sb_liveness_detach(sb_broker *b); /* gives the slot back; everything it owned must be recovered already */
bool sb_liveness_is_dead(sb_broker *b, uint32_t process);
/* Whether it is stopped, or in the hands of a debugger, as /proc of the same pid namespace says. A hint: it may go on. */
bool sb_liveness_is_stopped(sb_broker *b, uint32_t process);
/* Whether a thread of it, but for the caller, runs, or waits for a processor or a disk: it may be in the middle of something;
 * so may one that /proc does not show us. A hint, too. */
bool sb_liveness_is_awake(sb_broker *b, uint32_t process);
/* Whether there is a housekeeper, and its process is stopped. */
bool sb_liveness_housekeeper_stopped(sb_broker *b);
/* Takes the byte lock of a dead process: true makes the caller its reaper until sb_liveness_end_reaping. */
bool sb_liveness_begin_reaping(sb_broker *b, uint32_t process);
void sb_liveness_end_reaping(sb_broker *b, uint32_t process, bool reaped);
bool sb_lock_byte(int fd, long byte); /* write lock, without waiting */
void sb_unlock_byte(int fd, long byte);
bool sb_liveness_has_housekeeper(sb_broker *b);
int32_t sb_byte_holder(int fd, long byte); /* 0 = free, else > 0 */
/* What /proc/PID/stat says: start time (0 = no such process), state, and where the stack of its program begins. */
typedef struct {
  uint64_t start_ticks, stack;
  char state;
} sb_process_facts;
sb_process_facts sb_process_look(int32_t pid);
static inline bool sb_forked(const sb_broker *b) { return SB_LOAD(b->guard, SB_RELAXED) != 1u; }

#endif
