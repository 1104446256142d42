// SPDX-License-Identifier: Apache-2.0
/* IO loop: the thread of a connection that is notified and pulls.
 *
 * What: it takes the target bits that notifiers left, gives each consumer turns in rotation, and sleeps on the
 * connection's wake word when there is nothing to do. It also is one of those who notice the dead and a missing
 * housekeeper, which is the business of the lowest live process. That one looks every 500 ms, as does whoever is awake
 * anyhow; the others look every 5 s, and see to it themselves if there was no housekeeper for so long: the lowest one may
 * be stopped. A housekeeper that is stopped is not replaced: the lowest live process reaps the dead, parks the consumers of
 * stopped processes, and has somebody started who does the rest beside it until it goes on. Whether it is stopped says /proc,
 * at each look. The others look whether the lowest one is stopped, unless that has left its beat in the header within a second.
 *
 * Invariants: P9's order (connection, target, node, then look) lives here and in sb_consumer.c.
 *
 * Ordering pairs: P6 and P9. Before it sleeps it looks at `work`, `closed` and `ready`.
 *
 * Death: nothing here is shared but the flags; a dead connection's flags go with its record.
 *
 * Concurrency: one thread per connection; it takes the connection's lock for a few turns at a time, or for a few queues when
 *  it does the work of a stopped housekeeper.
 */
#ifndef SB_IO_H
#define SB_IO_H

#include "sb_channel.h"
#include "sb_handles.h"
#include "sb_recover.h"

sb_status sb_io_prepare(sb_connection *c);
/* Runs until the connection closes (SB_CLOSED), the broker is being stopped (SB_STOPPING), its housekeeper is missing or stopped
 * (SB_NO_HOUSEKEEPER), a channel is to be handed over (SB_READY), or there is no room for what a channel is to pull (SB_GROW). */
sb_status sb_io_run(sb_connection *c);
/* In all queues: parks the consumers of stopped processes, a few queues for each hold of the lock. */
void sb_io_visit_stopped(sb_connection *c);
bool sb_io_housekeeper_missing(sb_connection *c);

#endif
