// SPDX-License-Identifier: Apache-2.0
/* What every function of the core returns; the numbers are part of the cffi contract. */
#ifndef SB_STATUS_H
#define SB_STATUS_H
#include "shmbroker.h"
#endif
