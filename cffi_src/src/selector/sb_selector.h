// SPDX-License-Identifier: Apache-2.0
/* Selector: runs a program over a message.
 *
 * What: sb_selector_message says whether a program selects a message, which the caller need not hold. It reads the
 * properties where they are stored. Only those of a message whose body lies in parts (sb_parts.h) are copied first, to
 * memory of the caller.
 *
 * Layout, Ordering pairs: none here; sb_program.h has the format of a program, sb_properties.h that of properties.
 *
 * Invariants: I81 of sb_program.h is why a run checks nothing of its program. A message is selected if the value of the
 *  program is true: not if it is false, unknown, or no boolean. A message whose properties are damaged, as far as the
 *  run reads them, is never selected: the result is SB_SELECTED_DAMAGED, and the caller decides what that means.
 *
 * Death: a run writes nothing shared, so a killed reader leaves nothing.
 *
 * Concurrency: any thread. Of a message that the caller does not hold, the result is a guess until the caller's second
 *  look at the cell (I43 of sb_peek.h): a changed message may give any result, and harms nothing. A program is selected
 *  by nothing but what never changes of a message, so a result stays right while the cell names the message: a scan may
 *  keep one result for each message and distinct program.
 *
 * Cost: no lock, no allocation, no shared write; SB_PROGRAM_DEPTH values of stack (768 bytes). At most a step for
 *  each instruction; HEADER walks over the headers in front of its own, 4 to 8 ns each; LIKE is bounded by
 *  sb_operators.h. A comparison of one header costs 30 to 80 ns, beside the cache misses of the slot.
 */
#ifndef SB_SELECTOR_H
#define SB_SELECTOR_H

#include "sb_program.h"
#include "sb_properties.h"

typedef enum { SB_SELECTED_NO, SB_SELECTED_YES, SB_SELECTED_DAMAGED } sb_selected;

/* The properties of a message. `m`: a copy of its header, from sb_peek_message, or that of a message that the caller
 * holds; `slot`: its slot. `memory`: SB_MAX_PREFIX bytes, used only if the body is in parts. False: the lengths in the
 * header are impossible, or the parts are damaged. */
bool sb_selector_properties(sb_broker *b, uint32_t slot, const sb_message_shm *m, char *memory, sb_properties *p);
/* The value of a program. False: the properties are damaged, as far as the run read them. */
bool sb_selector_value(const sb_program *program, sb_properties *p, sb_value *value);
/* Whether the program selects a message with these properties. */
sb_selected sb_selector_run(const sb_program *program, sb_properties *p);
/* Whether the program selects the message in `slot`. Arguments as above. */
sb_selected sb_selector_message(sb_broker *b, const sb_program *program, uint32_t slot, const sb_message_shm *m,
                                char *memory);
/* Appends a value at to[*used] as a value of an AMQP table, of which at most `room` bytes are there: an integer as l, a
 * double as d, a string as S, bytes as they are; NULL, an array or a table as V. False: there is no room. */
bool sb_selector_encode(const sb_value *v, char *to, uint64_t room, uint64_t *used);

#endif
