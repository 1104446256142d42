// SPDX-License-Identifier: Apache-2.0
/* Other processes in the table of the broker: one that is stopped, one that is dead, one that runs. */
#ifndef HALTED_H
#define HALTED_H

#include <sys/types.h>

#include "calls.h"

/* A child that has stopped itself. It ends with the case. */
pid_t start_stopped(void);
void end_stopped(pid_t pid);
/* A child that has ended. */
pid_t ended_process(void);

/* Process slot `i` is LIVE, and of that process. */
void take_process_slot(uint32_t i, pid_t pid, uint32_t flags);
/* Connection `id` is LIVE, of the process in slot `i`. It has no record. */
void take_connection(unsigned id, uint32_t i);
/* The node is one of that connection. */
void give_node_to(uint32_t node, unsigned id);

#endif
