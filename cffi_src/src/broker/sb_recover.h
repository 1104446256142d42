// SPDX-License-Identifier: Apache-2.0
/* Recovery: completes or undoes the operations of dead processes.
 *
 * What: a reaper walks the holdings of each connection of a dead process. It resolves intents first (rolls them forward
 * or back), then a commit, then slots, pages and chunks; it removes nodes with their slots. Then follow views, cells
 * (made AVAILABLE in place), and ledgers (left to the next owner), each with a notification of its queue. The process
 * that holds the dead process's byte lock is its reaper. A reaper may itself die anywhere; the next one starts over.
 *
 * Invariants:
 *  I33 each step is a CAS that expects the dead owner (or a generation, or the earlier value of a counter): it can
 *      be repeated without harm.
 *  I34 an intent is resolved before anything that it names is changed, and cleared (CAS) before its cells are released:
 *      a second reaper that finds the intent unchanged after it read the cell has read the truth. The target of a move
 *      is released before the intent is cleared, since perhaps no holding names the target. If a second reaper finds
 *      neither target nor source, it knows that the target was released.
 *  I35 the connection id becomes FREE last, the process slot after its last connection.
 *
 * Ordering pairs: P8: the kernel's lock orders the stores of the dead process before the loads of the reaper.
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
/* Cleanly ends a connection of this process: frees its holdings and its record. False, and nothing is freed, while a
 * view of one of its messages or a reservation lives. */
bool sb_recover_close(sb_connection *c);
/* Corrects a queue's hints and wakes nodes that should be awake. */
void sb_recover_queue(sb_connection *by, uint32_t slot);

#endif
