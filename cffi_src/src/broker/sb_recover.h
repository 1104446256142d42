// SPDX-License-Identifier: Apache-2.0
/* Recovery: completes or undoes the operations of dead processes.
 *
 * What: the *reaper* is the process that holds the byte lock of a dead process (sb_liveness.h). It walks the holdings
 * of each connection of the dead process. First it rolls the intents forward or back, then a commit. Then it publishes
 * or frees the slots and pages, recovers the chunks, and removes nodes from their queues. Then it drops views, and
 * makes the cells AVAILABLE, each at its old position. Last it corrects the hints of the queue of each ledger,
 * takes over the ledger, notifies the nodes of that queue, and leaves the ledger to the next connection that opens the
 * queue. Without memory to take over a ledger it corrects and notifies all the same. A reaper may itself be killed at any
 * step; the next reaper starts over.
 *
 * Invariants:
 *  I33 if a reaper is killed, its successor can repeat each step without harm. Most steps are a CAS that expects the
 *      dead owner (or a generation, or the earlier value of a counter). The steps that carry out a commit raise
 *      counters by stores, but under an intent, which the successor resolves first. Other stores may be made again.
 *  I34 a reaper resolves an intent before it changes anything that the intent names, and clears the intent (CAS) before
 *      it releases the cells that the intent names. So if a second reaper reads a cell, and then finds the intent
 *      unchanged, the cell was as the dead connection left it. Only the target cell of a move is released before the
 *      intent is cleared, since perhaps no holding names that cell. If a second reaper finds that the dead connection
 *      owns neither the target cell nor the source cell of the move, it knows that the target was released.
 *  I35 the reaper makes the id of a connection FREE after it recovered all else that the connection owned. It makes the
 *      process slot FREE after the last connection of the process.
 *
 * Ordering pairs: P8 of sb_connection.h: the reaper reads the holdings after it has the byte lock of the dead process.
 *  The kernel's lock orders the stores of the dead process before these loads.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step of the reaper -> some holdings recovered -> the next process that gets the byte lock of the dead process
 *   repeats the walk. Until the hints of a queue are right, `hinting` of the ledger is raised, and the ledger has a dead
 *   owner. So a call that doubts the counts of a queue that evicts (sb_api_bound.c) finds the ledger meanwhile, and waits
 *   for the reaper. If the reaper was killed, the call reaps.
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
/* Ends a connection of this process that closes: frees the blocks of its holdings, and its record. The caller has
 * released what the holdings list. Frees nothing and returns false while a view of one of its messages, or one of its
 * reservations, lives. */
bool sb_recover_close(sb_connection *c);
/* Corrects the hints of a queue, as a reaper does for each queue of a dead connection. Also ends the queue if its time
 * has come, evicts the messages that exceed its limits, and notifies nodes that missed a notification. If the queue is
 * closed, removes its messages and wakes its nodes instead. Without memory for a ledger, ends, evicts and removes
 * nothing. The caller knows that the queue object is not freed meanwhile. */
void sb_recover_queue(sb_connection *by, uint32_t slot);

#endif
