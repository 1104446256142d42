// SPDX-License-Identifier: Apache-2.0
/* sb_segment.h: which chunks and slots may be touched. */
#include "sb_segment.h"

#include "cases.h"

#define UNITS 4u

static void a_segment_is_mapped_when_it_is_needed(void) {
  test_broker other = t;
  attach(&other);
  uint32_t chunk = SB_LOAD(&other.b->mapped_chunks, SB_RELAXED);
  expect(!sb_chunk_ready(other.b, chunk), "a chunk of a segment that is not there may be touched");
  grow_to(chunk);
  expect_is(other.b->mapped_chunks, chunk, "the chunks that the other attachment has mapped");
  expect(sb_chunk_ready(other.b, chunk), "a chunk of a new segment may not be touched");
  expect(other.b->mapped_chunks > chunk, "its segment is not mapped");
  expect(!sb_chunk_ready(other.b, BROKER_CHUNKS), "a chunk behind the last one may be touched");
  leave_broker(&other);
}
static void slots_end_with_their_chunk(void) {
  expect(sb_slot_holds(t.b, SB_CHUNK_UNITS - UNITS, UNITS), "the last slot of a chunk may not be touched");
  expect(!sb_slot_holds(t.b, SB_CHUNK_UNITS - UNITS + 1, UNITS), "a slot may go on in the next chunk");
  expect(!sb_slot_holds(t.b, (BROKER_CHUNKS - 1) * SB_CHUNK_UNITS, UNITS), "a slot of no segment may be touched");
}

static const test_case CASES[] = {
    {"segment: needed", "a chunk of a segment that another process made is mapped first",
     a_segment_is_mapped_when_it_is_needed},
    {"segment: slots", "a slot ends with its chunk", slots_end_with_their_chunk},
};
SUBJECT(CASES)
