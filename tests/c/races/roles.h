// SPDX-License-Identifier: Apache-2.0
/* Parts that scenarios of several subjects share: initial states, roles, and conditions that must hold afterwards. */
#ifndef ROLES_H
#define ROLES_H

#include "cast.h"

#define RING(n) {{(n), -1, -1, 0, -1, -1}, 0}
#define ONE_AT_MOST {{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}
#define LONG_BODY 5000u

/* ---- before ---- */

void nothing(void);
void put_by_keeper(uint64_t first, uint64_t last);
void one_ready(void);
void two_ready(void);
void one_in_a_ring(void);
void first_holds_one(void);
/* The second has passed that place: it finds what comes back by its bit only. */
void first_holds_one_behind(void);
void hold_newest(void);
void consume_as(unsigned player, uint32_t prefetch, int32_t priority);
void second_consumes(void);
void first_holds_one_of_a_ring(void);
/* As a consumer leaves it that dies before it took what it counted already. */
void hint_is_wrong(void);

/* ---- roles ---- */

/* Is it put where another one lay, which was held? */
void note_slot(void);
void put_1(void);
void put_2(void);
void put_3(void);
void put_1_2(void);
void put_2_3(void);
void take_then_ack(void);
void take_twice(void);
void wait_then_ack(void);
void ack_held(void);
void nack_held(void);
void put_when_there_is_room(uint64_t id);
void put_2_when_room(void);
void take_from_other(void);
void delete_queue(void);
void delete_if_empty(void);
void serve(void);
void consume_one(void);
void take_long_from(sb_queue *q);
void put_long(void);
void browse(void);

/* ---- afterwards ---- */

/* Counted beside others, hints may be too high; a tick sets them right. */
void hints_are_set_right(void);
void newest_is_there(void);
void nobody_sleeps_beside_room(void);
void newest_is_there_in_time(void);

#endif
