// SPDX-License-Identifier: Apache-2.0
/* Status codes, which every function of the core returns. Their numbers are part of the cffi contract
 * (shmbroker.cdef.h). */
#ifndef SB_STATUS_H
#define SB_STATUS_H
#include "shmbroker.h"
/* On the path of every message: inlined into its few callers, even where the compiler would not. */
#define SB_HOT static inline __attribute__((always_inline))
/* Rarely called from a hot function: kept out of its code. */
#define SB_COLD static __attribute__((noinline, cold))

#endif
