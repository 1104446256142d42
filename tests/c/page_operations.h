// SPDX-License-Identifier: Apache-2.0
/* Operations of moves of a page: 64 messages go to the queue "other" by one CAS. */
#ifndef PAGE_OPERATIONS_H
#define PAGE_OPERATIONS_H

#define PAGE 64u
#define PAGE_AND_SIX 70u

/* Fills and empties the first page of "other", so that its tail is at the beginning of the second one. */
void have_room_for_a_page(void);
/* The same; also takes the first three messages of "q". The row then lies in two pages of "q". */
void have_room_and_take_three(void);
void move_page(void); /* from "q" to "other" */
/* All of it: for a process that is killed in between. */
void have_room_and_move_page(void);
/* Takes all messages of "other", and puts as many again: the slots have other messages then. Then reaps. */
void use_the_page_then_reap(void);

#endif
