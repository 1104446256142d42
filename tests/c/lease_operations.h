// SPDX-License-Identifier: Apache-2.0
/* Operations of leases: messages that are moved to a queue that KEEPS, on from there, and back. */
#ifndef LEASE_OPERATIONS_H
#define LEASE_OPERATIONS_H

void move_back(void); /* two, from the other queue */

#endif
