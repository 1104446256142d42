// SPDX-License-Identifier: Apache-2.0
/* The public C header: the declarations of shmbroker.cdef.h, which cffi reads as well, inside an include guard. */
#ifndef SHMBROKER_H
#define SHMBROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#include "shmbroker.cdef.h"
#pragma GCC visibility pop

#endif
