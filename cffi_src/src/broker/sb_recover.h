// SPDX-License-Identifier: Apache-2.0
/* Recovery: completes or undoes the operations of dead processes.
 *
 * What: a reaper walks the holdings of each connection of a dead process. First it rolls the intents forward or back,
 * then a commit. Then it publishes or frees the slots and pages, recovers the chunks, and removes nodes from their
 * queues. Then it drops views, and makes the cells AVAILABLE, each at its old position. Last it takes over each ledger,
 * corrects the hints of the ledger's queue, notifies the nodes of that queue, and leaves the ledger to the next
 * connection that opens the queue. Without memory to take over a ledger it corrects and notifies all the same. The
 * process that holds the byte lock of the dead process is the reaper. A reaper may itself die anywhere; the next one
 * starts over.
 *
 * Invariants:
 *  I33 if a reaper is killed, its successor can repeat each step without harm. Most steps are a CAS that expects the
 *      dead owner (or a generation, or the earlier value of a counter). The steps that carry out a commit raise
 *      counters by stores, but under an intent, which the successor resolves first. Other stores may be made again.
 *  I34 a reaper resolves an intent before it changes anything that the intent names, and clears the intent (CAS) before
 *      it releases the cells that the intent names. So if a second reaper reads a cell, and then finds the intent
 *      unchanged, the cell was as the dead connection left it. Only the target cell of a move is released before the
 *      intent is cleared, since perhaps no holding names that cell. A second reaper that finds neither the target cell
 *      nor the source cell of the move knows that the target was released.
 *  I35 the reaper makes the id of a connection FREE after all else of that connection, and the process slot after the
 *      last connection of the process.
 *
 * Ordering pairs: P8: the kernel's lock orders the stores of the dead process before the loads of the reaper.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step of the reaper -> some holdings recovered -> the next process that gets the byte lock of the dead process
 *   repeats the walk.
 *
 * Concurrency: beside any traffic. The byte lock of the dead process excludes two walks over one connection at a time.
 */
#ifndef SB_RECOVER_H
#define SB_RECOVER_H

#include "sb_waiter.h"

/* Reaps all dead processes by means of the connection `by`; returns how many this call reaped. Takes the lock of `by`
 * for each of them. */
uint32_t sb_recover_all(sb_connection *by);
bool sb_recover_process(sb_connection *by, uint32_t process);
/* Ends a connection of this process that closes: frees its holdings and its record. Frees nothing and returns false
 * while a view of one of its messages, or one of its reservations, lives. */
bool sb_recover_close(sb_connection *c);
/* Does for a queue what a reaper does last: corrects its hints, ends it if its time has come, evicts what exceeds its
 * limits, and wakes nodes that should be awake. Empties a closed queue instead. Without memory it ends, evicts and
 * empties nothing. The caller knows that the queue object is not freed meanwhile. */
void sb_recover_queue(sb_connection *by, uint32_t slot);

#endif
