// SPDX-License-Identifier: Apache-2.0
#include "committing.h"

const char BODY[BYTES] = "a body";
char got[BUFFER];
sb_queue *target[MOST_TARGETS];
sb_settlement settling[4];
uint32_t failed_publication, failed_target;

void make_targets(unsigned count, sb_settings settings) {
  for (unsigned i = 0; i < count; i++) target[i] = make_queue((char[]){(char)('a' + i), 0}, settings);
  note_rest(target[0]);
}
sb_publication first_targets(uint32_t first, uint32_t count) {
  return (sb_publication){.body = BODY, .length = BYTES, .targets = target + first, .target_count = count};
}
sb_status commit_now(const sb_publication *p, uint32_t count, uint32_t end_count) {
  failed_publication = failed_target = 4711;
  return sb_transaction_commit(t.c, p, count, settling, end_count, &failed_publication, &failed_target);
}
void expect_blamed(sb_status is, sb_status should, uint32_t publication, uint32_t blamed, const char *what) {
  expect_is(is, should, what);
  expect(failed_publication == publication && failed_target == blamed, "%s: to blame are %d and %d", what,
         (int)failed_publication, (int)failed_target);
}
void hold_for(unsigned queue, unsigned end, sb_disposition disposition) {
  expect(sb_queue_get(target[queue], got, false) > 0, "there is no message to hold");
  settling[end] = (sb_settlement){
      .queue = target[queue], .token = ((const sb_record *)(const void *)got)->tag, .disposition = disposition};
}
void put_into(unsigned queue) { expect_is(sb_queue_put(target[queue], BODY, BYTES), SB_OK, "the status of a put"); }
uint64_t added_to(unsigned queue) { return counted(target[queue], SB_COUNT_ADDED); }
uint32_t slot_in(unsigned queue, uint64_t number) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, &target[queue]->lanes[0].ring, target[queue]->base + number, &leaf) != SB_OK)
    die("sb_ring_locate", 0);
  return sb_cell_slot(SB_LOAD(&sb_leaf_cell(&leaf, target[queue]->base + number)->word, SB_RELAXED));
}
