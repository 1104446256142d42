// SPDX-License-Identifier: Apache-2.0
#include "lease_operations.h"

#include "child.h"

void move_back(void) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  do {
    (void)sb_queue_move(other, q, 2, &bytes, &status);
  } while (again(status));
}
