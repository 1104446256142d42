// SPDX-License-Identifier: Apache-2.0
/* Puts a numbered stream, one message at a time. See README.md. */
#include "bench_core.h"

int main(int argc, char **argv) {
  arguments a = parse(argc, argv);
  sb_queue *q = open_queue(a.broker, a.queue);
  wait_until(a.start_ns);
  produce(q, a.count, a.size);
  return 0;
}
