// SPDX-License-Identifier: Apache-2.0
/* The status codes that functions of the core return. Their numbers are part of the cffi contract
 * (shmbroker.cdef.h). */
#ifndef SB_STATUS_H
#define SB_STATUS_H
#include "shmbroker.h"

#endif
