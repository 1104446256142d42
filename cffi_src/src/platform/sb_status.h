// SPDX-License-Identifier: Apache-2.0
/* What every function of the core returns; the numbers are part of the cffi contract. */
#ifndef SB_STATUS_H
#define SB_STATUS_H
#include "shmbroker.h"
/* On the way of every message: put into its few callers, also where the compiler finds it too long for that. */
#define SB_HOT static inline __attribute__((always_inline))
/* Out of the way of a hot function that calls it. */
#define SB_COLD static __attribute__((noinline, cold))

#endif
