// SPDX-License-Identifier: Apache-2.0
/* Recovery: completes or undoes the operations of dead processes.
 *
 * What: a reaper walks the holdings of each connection of a dead process: intents first (roll forward or back), a
 * commit, then slots, pages and chunks, cells (returned in place), nodes (removed), ledgers (left to the next owner);
 * then it notifies the queues. The process that holds the dead process's byte lock is its reaper. A reaper may itself
 * die anywhere; the next one starts over.
 *
 * Invariants:
 *  I33 each step is a CAS that expects the dead owner (or a generation, or a counter before): repeating it is harmless.
 *  I34 an intent is resolved before anything that it names is changed, and cleared (CAS) before its cells are released:
 *      a second reaper that finds the intent unchanged after it read the cell has read the truth. The target of a move
 *      is released before that, since no holding may name it yet: a second reaper that does not find the target knows
 *      this by the source, which is gone.
 *  I35 the connection id becomes FREE last, the process slot after its last connection.
 *
 * Ordering pairs: P8: the kernel's lock orders the stores of the dead before the loads of the reaper.
 *
 * Death: of the reaper at any step: the next holder of the lock repeats the walk.
 *
 * Concurrency: beside any traffic. The lock excludes two walks of one connection; the steps allow for them anyway.
 */
#ifndef SB_RECOVER_H
#define SB_RECOVER_H

#include "sb_waiter.h"

/* Reaps all dead processes with the connection `by`; returns their number. Takes the lock of `by` for each of them. */
uint32_t sb_recover_all(sb_connection *by);
bool sb_recover_process(sb_connection *by, uint32_t process);
/* Cleanly ends a connection of this process: frees its holdings and its record. False while views of its messages
 * live. */
bool sb_recover_close(sb_connection *c);
/* Corrects a queue's hints and wakes nodes that should be awake. */
void sb_recover_queue(sb_connection *by, uint32_t slot);

#endif
