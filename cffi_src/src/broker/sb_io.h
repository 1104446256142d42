// SPDX-License-Identifier: Apache-2.0
/* IO loop: the thread of a connection that receives its notifications and pulls messages.
 *
 * What: the thread takes the target bits that notifiers set, gives each target turns in rotation, and sleeps on the
 * connection's wake word when there is nothing to do. If no housekeeper exists, IO threads also reap dead processes,
 * and ask for a new housekeeper. That is the task of the *lowest process*: of the live processes that have an IO thread
 * and are not stopped, the one with the lowest process slot. Its IO threads look for a housekeeper every 500 ms. The IO
 * threads of other processes look every 500 ms while they are awake, else every 5 s. They act themselves if they found
 * no housekeeper for 5 s, since the lowest process may have been stopped meanwhile.
 *
 * A stopped housekeeper is not replaced: the lowest process reaps dead processes, parks the consumers of stopped ones
 * (sb_stopped.h), and asks for a stand-in, which does the other work until the housekeeper continues. At each look the
 * lowest process reads in /proc whether the housekeeper is stopped, unless the housekeeper or a stand-in took a turn
 * since the previous look. The lowest process also stores the time of its look, its beat, in the header (`watched`). If
 * the beat is older than a second, the other processes determine the lowest process again, since it may be stopped or
 * dead.
 *
 * Invariants: the IO thread keeps the order of P9 of sb_notify.h, so that it loses no notification. It clears `work` of
 *  the connection's record, then the bits of the targets in `work_targets` of the same record (a target is a consumer,
 *  a channel or a watch, see sb_target.h), then the flag of the target's node. Only then it looks for a message in the
 *  queue; for a watch it writes the event descriptor. The bits are cleared here, the flags in sb_consumer_turn, in
 *  has_turn of sb_channel.c, and in sb_watch_tell.
 *
 * Ordering pairs: P6 of sb_wait.h, P9 of sb_notify.h. After the thread armed its wake word, and before it sleeps, it
 *  reads `work`, `closed` and `ready`.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step -> the work bits in the connection's record, and the node of the thread -> the reaper of the connection
 *   frees the record and the node.
 *  storing the beat of the lowest process -> `watched`, which is out of date after a second -> nothing to repair.
 *
 * Concurrency: one thread for each connection. It takes the connection's lock for a few turns at a time, for a look at
 *  all targets, to reap one dead process, or for a few queues when it does the work of a stopped housekeeper.
 */
#ifndef SB_IO_H
#define SB_IO_H

#include "sb_channel.h"
#include "sb_handles.h"
#include "sb_recover.h"

sb_status sb_io_prepare(sb_connection *c);
/* Runs the IO thread until it must end, or needs its caller, and returns why: the connection closed (SB_CLOSED), the
 * broker stops (SB_STOPPING), a housekeeper or a stand-in must be started (SB_NO_HOUSEKEEPER), a channel is ready for
 * its hand-over (SB_READY), or a consumer or a channel needs another segment (SB_GROW). */
sb_status sb_io_run(sb_connection *c);
/* Lock held. Notes that the connection has an IO thread, from the thread's first run until the connection closes. While
 * a connection of the process has one, the process counts among those of which the lowest looks after the housekeeper
 * (SB_PROC_WATCHES). */
void sb_io_set_watching(sb_connection *c, bool watching);
/* In each queue with a ready message, parks the consumers of stopped processes, and notifies another node if it parked
 * any. Takes the connection's lock for a few queues at a time. */
void sb_io_visit_stopped(sb_connection *c);
bool sb_io_housekeeper_missing(sb_connection *c);

#endif
