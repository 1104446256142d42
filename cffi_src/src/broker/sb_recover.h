// SPDX-License-Identifier: Apache-2.0
/* Recovery: the ordinary operations, run by somebody else.
 *
 * What: a reaper walks the holdings of each connection of a dead process: intents first (roll forward or back), a commit, then
 * slots, pages and chunks, cells (returned in place), nodes (removed), ledgers (left to the next owner); then it tells
 * the queues. Holding the process's byte lock makes it the reaper; it may itself die anywhere, the next one starts over.
 *
 * Invariants:
 *  I33 each step is a CAS that expects the dead owner (or a generation, or a counter before): repeating it is harmless.
 *  I34 an intent is judged before anything it names is changed, and cleared (CAS) before its cells are released: a second
 *      reaper that finds the intent unchanged after reading the cell has read the truth. The target of a move is released
 *      first, since no holding may name it yet: a second reaper that does not find it knows by the source, which is gone.
 *  I35 the connection id becomes FREE last, the process slot after its last connection.
 *
 * Ordering pairs: P8: the kernel's lock orders the dead's stores before the reaper's loads.
 *
 * Death: of the reaper at any step: the same walk again by the next holder of the lock.
 *
 * Concurrency: beside any traffic. Two walks of one connection cannot happen by the lock; its steps allow for it anyway.
 */
#ifndef SB_RECOVER_H
#define SB_RECOVER_H

#include "sb_waiter.h"

/* Reaps what is dead; returns how many processes. `by` needs a connection of its own. Takes by's lock in steps. */
uint32_t sb_recover_all(sb_connection *by);
bool sb_recover_process(sb_connection *by, uint32_t process);
/* Clean end of a connection of this process: everything goes back. False while views of its messages live. */
bool sb_recover_close(sb_connection *c);
/* Sets a queue's hints right and wakes who should be awake. */
void sb_recover_queue(sb_connection *by, uint32_t slot);

#endif
