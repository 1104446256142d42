// SPDX-License-Identifier: Apache-2.0
/* Operations of leases: messages are moved to a queue that KEEPS, from there to another queue, and back. */
#ifndef LEASE_OPERATIONS_H
#define LEASE_OPERATIONS_H

void move_back(void); /* two, from the other queue */

#endif
