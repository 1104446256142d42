// SPDX-License-Identifier: Apache-2.0
#include "sb_firsts.h"

#include <stdlib.h>
#include <string.h>

#define FEWEST 256u

/* The place of the group; or the free one where it belongs. At least half of the places are free. */
static sb_first *place_of(const sb_firsts *f, uint32_t hash) {
  uint32_t at = (hash ^ hash >> 16) & (f->count - 1);
  while (f->places[at].hash != 0 && f->places[at].hash != hash) at = (at + 1) & (f->count - 1);
  return &f->places[at];
}

static uint32_t claim_of(sb_firsts_claims claims, uint32_t hash) { return claims.numbers[hash % claims.buckets]; }

static uint32_t count_live(const sb_firsts *f, sb_firsts_claims claims) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->count; i++)
    n += f->places[i].hash != 0 && f->places[i].claim == claim_of(claims, f->places[i].hash);
  return n;
}

/* Drops the groups of claims that have ended, and makes more places if few would be free. Without memory, or if there are
 * too many groups, drops all. False: there is no table. */
static bool make_room(sb_firsts *f, sb_firsts_claims claims) {
  uint32_t live = f->places != NULL ? count_live(f, claims) : 0, count = f->count < FEWEST ? FEWEST : f->count;
  if (live > count / 4 && count < SB_FIRSTS_PLACES) count *= 2;
  sb_firsts next = {live < count / 2 ? calloc(count, sizeof(sb_first)) : NULL, count, 0};
  if (next.places == NULL) {
    if (f->places != NULL) memset(f->places, 0, f->count * sizeof(sb_first));
    f->used = 0;
    return f->places != NULL;
  }
  for (uint32_t i = 0; i < f->count; i++) {
    if (f->places[i].hash != 0 && f->places[i].claim == claim_of(claims, f->places[i].hash)) {
      *place_of(&next, f->places[i].hash) = f->places[i];
      next.used++;
    }
  }
  free(f->places);
  *f = next;
  return true;
}

bool sb_firsts_add(sb_firsts *f, uint32_t hash, sb_firsts_claims claims) {
  sb_first *place = f->places != NULL ? place_of(f, hash) : NULL;
  if (place == NULL || (place->hash == 0 && f->used >= f->count / 2)) {
    if (!make_room(f, claims)) return true;
    place = place_of(f, hash);
  }
  uint32_t claim = claim_of(claims, hash);
  bool first = place->claim != claim || place->hash == 0;
  f->used += place->hash == 0;
  *place = (sb_first){hash, claim};
  return first;
}

void sb_firsts_forget(sb_firsts *f, uint32_t hash) {
  if (f->places != NULL) place_of(f, hash)->claim = 0; /* a free place stays free */
}

void sb_firsts_free(sb_firsts *f) {
  free(f->places);
  *f = (sb_firsts){0};
}
