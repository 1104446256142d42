// SPDX-License-Identifier: Apache-2.0
/* A body may extend over two segments: a process that has mapped only the first one, and takes the message, maps the
 * second one, too. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker_fixture.h"
#include "sb_slab.h"

#define LONG ((4u << 20) + 1) /* three chunks */
#define BODIES 8u

static bool crosses(const sb_broker *b, uint64_t address) {
  uint64_t first = (address - (uint64_t)(uintptr_t)b->arena) / SB_CHUNK_BYTES;
  return first / CHUNKS_PER_SEGMENT != (first + 2) / CHUNKS_PER_SEGMENT;
}

int main(void) {
  test_broker writer, reader;
  char name[64], *buffer = malloc(BUFFER);
  sb_put_options none = {0};
  unsigned crossed = 0, wrong = 0;
  alarm(600);
  snprintf(name, sizeof name, "segments-%d", (int)getpid());
  make_broker(&writer, name, 48);
  attach(&writer);
  writer.c = connect_to(&writer);
  if (declare(&writer, "q", (sb_settings)FREELY) != SB_OK) die("sb_queue_declare", 0);
  sb_queue *in = open_queue(&writer, "q");
  reader = writer;
  attach(&reader); /* there is one segment yet */
  reader.c = connect_to(&reader);
  sb_queue *out = open_queue(&reader, "q");
  (void)put(&writer, in, 1);
  (void)get(&reader, out, buffer, true);
  for (uint64_t id = 1; id <= BODIES; id++) {
    if (put_sized(&writer, in, id, LONG, &none) != SB_OK) die("put", (int)id);
  }
  for (uint64_t id = 1; id <= BODIES; id++) {
    wrong += get(&reader, out, buffer, true) != id;
    crossed += crosses(reader.b, ((sb_record *)(void *)buffer)->body_address);
  }
  test_broker *both[] = {&reader, &writer};
  for (int i = 0; i < 2; i++) {
    sb_queue_free(i == 0 ? out : in);
    leave_broker(both[i]);
  }
  free(buffer);
  remove_files(writer.path);
  printf("%u bodies lie across two segments, %u are wrong\n", crossed, wrong);
  return crossed == 0 || wrong != 0;
}
