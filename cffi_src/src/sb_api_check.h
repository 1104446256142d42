// SPDX-License-Identifier: Apache-2.0
/* Check: walks every structure of a broker at rest and says what is wrong.
 *
 * What: header, chunks, slot headers, queues (pages, cells, references, counters), node lists, connections. Findings are
 * codes with numbers; the Python side puts them into words. Beside traffic it may report what is only under way.
 *
 * Invariants: it changes nothing and believes nothing it has not bounds-checked.
 * Ordering pairs: none.   Death: nothing shared is written.   Concurrency: reads only.
 */
#ifndef SB_API_CHECK_H
#define SB_API_CHECK_H

#include "sb_api.h"

enum {
  SB_BAD_HEADER = 1,   /* magic, layout or limits */
  SB_BAD_CHUNK,        /* chunk word */
  SB_BAD_SLOT,         /* slot header in an impossible state */
  SB_BAD_OWNER,        /* a slot or cell of a connection that does not exist */
  SB_LEAKED_SLOT,      /* a published message no cell names */
  SB_BAD_CELL,         /* a cell word in an impossible state */
  SB_LOST_BODY,        /* a cell names a slot that is not published, or not its reference */
  SB_SHARED_REFERENCE, /* two cells hold the same reference */
  SB_BAD_PAGE,         /* a page that does not fit its place */
  SB_BAD_COUNT,        /* ready by the ledgers differs from the cells */
  SB_BAD_HINT,         /* taken or admitted differ from the truth */
  SB_BAD_LIST,         /* interested, notified ... differ from the lists */
  SB_BAD_DIRECTORY,    /* an entry that leads nowhere */
  SB_BAD_MESSAGE,      /* a message header that does not fit its slot */
  SB_BAD_CONNECTION,   /* a connection record that cannot be */
  SB_BAD_TAIL,         /* a FREE cell before the tail */
  SB_HIDDEN_CELL       /* an AVAILABLE cell before the head that no bit leads to */
};

#endif
