// SPDX-License-Identifier: Apache-2.0
/* Row: the form in which messages of a stored queue lie in the store.
 *
 * What: a row has the messages of some successive positions of one leaf, at most SB_PAGE_CELLS. It consists of two
 * values: the heads and the bodies. A reader that selects messages reads the heads only. Positions of a row that have no
 * message (it ended before), or none of the kind that is written (sb_gather.h), are left out.
 *
 * Layout: the heads begin with sb_row_head. For each message follows an sb_row_entry, then the bytes of exchange, routing
 *  key and properties. The bodies lie one after the other, in the same order. Numbers are little endian, as in shared
 *  memory. Nothing in a row is aligned. The times are those of CLOCK_REALTIME, because CLOCK_MONOTONIC begins again when
 *  the machine does. `written_ns` lets a reader bound what remains of a delay or a life: even if the clock was set back
 *  meanwhile, not more remains than there was when the row was written.
 *
 * Invariants: none.
 *
 * Ordering pairs: none; rows are process-local.
 *
 * Death: a row that was not written is gathered again by the next storekeeper.
 *
 * Concurrency: any thread, each with its own buffers.
 */
#ifndef SB_ROW_H
#define SB_ROW_H

#include "sb_layout.h"

#define SB_ROW_FORMAT 2u

typedef struct {
  uint16_t format, count; /* count: the number of messages */
  uint32_t flags;         /* SB_ROW_... */
  uint64_t first;         /* the sequence number of the first position */
  uint64_t members;       /* bit i: there is a message at first + i */
  uint64_t bodies_length;
  uint64_t written_ns;
} sb_row_head;
_Static_assert(sizeof(sb_row_head) == 40, "head of a row");

/* Bits of `flags` of a row. A store that an earlier version wrote has WAITS for messages that expire, too. */
#define SB_ROW_WAITS 1u   /* a message is delayed, or waits as dead */
#define SB_ROW_EXPIRES 2u /* a message expires */

/* Bits of `marks` of an entry. The four bits above them are the reason why the message is dead (sb_why). */
#define SB_ROW_REDELIVERED 1u
#define SB_ROW_DELAYED 2u /* `due_ns` is the end of a redelivery delay */
#define SB_ROW_WHY 4u     /* a shift */

typedef struct {
  uint64_t body_length;
  uint64_t expires_ns, due_ns; /* 0 = none */
  uint64_t timestamp_ns;
  uint64_t origin; /* the sequence number in the queue that the message was moved from; SB_NO_ORIGIN: none */
  uint32_t key_length, properties_length, group_hash;
  uint16_t exchange_length, delivery_count;
  uint8_t index;                  /* the position minus `first` */
  uint8_t priority, flags, marks; /* flags: SB_MESSAGE_... */
  uint32_t reserved;
} sb_row_entry;
_Static_assert(sizeof(sb_row_entry) == 64, "entry of a row");

#endif
