// SPDX-License-Identifier: Apache-2.0
/* Puts a stream, then gets and acknowledges it, in one process: for counting instructions with callgrind. */
#include "bench_core.h"

int main(int argc, char **argv) {
  arguments a = parse(argc, argv);
  sb_queue *q = open_queue(a.broker, a.queue);
  uint64_t start = clock_ns();
  produce(q, a.count, a.size);
  uint64_t between = clock_ns();
  uint64_t sum = consume(q, a.count);
  uint64_t end = clock_ns();
  printf("{\"count\": %llu, \"checksum\": %llu, \"put_ns\": %.1f, \"get_ack_ns\": %.1f}\n", (unsigned long long)a.count,
         (unsigned long long)sum, (double)(between - start) / (double)a.count,
         (double)(end - between) / (double)a.count);
  return 0;
}
