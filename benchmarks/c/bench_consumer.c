// SPDX-License-Identifier: Apache-2.0
/* Gets and acknowledges a numbered stream, one message at a time. See README.md. */
#include "bench_core.h"

int main(int argc, char **argv) {
  arguments a = parse(argc, argv);
  sb_queue *q = open_queue(a.broker, a.queue);
  wait_until(a.start_ns);
  uint64_t sum = consume(q, a.count);
  double seconds = (double)(clock_ns() - a.start_ns) * 1e-9;
  printf("{\"count\": %llu, \"checksum\": %llu, \"seconds\": %.9f}\n", (unsigned long long)a.count,
         (unsigned long long)sum, seconds);
  return 0;
}
