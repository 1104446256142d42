// SPDX-License-Identifier: Apache-2.0
/* Duplicates: the ids of the last messages of a queue, so that a message that is put twice is stored once (Artemis:
 * duplicate detection, _AMQ_DUPL_ID).
 *
 * What: a message names its id in the header x-duplicate-id. A queue with the setting duplicate_ids = N remembers the ids
 * of the last N messages that had one, also after the messages ended. Such a message is put by a commit
 * (sb_transaction.h) of one message: the put *claims* the id, stages the message, decides, then makes the message ready
 * and the id *known*. So the commit word decides about the message and its id with one store. A put that finds its id
 * known stores nothing. One that finds it claimed by an undecided commit waits, or gives up its own claim.
 *
 * Layout: the queue links blocks of entries. An entry is a word and a hash of 128 bits, which stands for the id: two of N
 * ids are taken for one another with a probability of N * N / 2^129. An entry has its place in one of SB_IDS_WINDOW
 * cells, from the cell on that the hash gives, in any block. `id_numbers` of the queue counts the ids that became known.
 * A known id has the number of its turn. It is remembered while less than N others have a later number; after that, its
 * cell is free for the next id. So the oldest id is forgotten without a step of any process, and a smaller N keeps the
 * newest. When N changes, `id_floor` gets the latest number that is forgotten: a larger N brings none of these back. A claim has a tag from `id_tags`, which no other claim of the queue has.
 *
 * Invariants:
 *  I96 a put decides only after it saw, while its claim was visible, no other entry of the id that is known, or whose
 *      commit is decided or undecided. So of several puts of one id one decides.
 *  I97 a claim is listed in the holdings of its connection before it is made, and is given back, or becomes known, before
 *      its holding is. A claim becomes known only while the commit word of its owner is 1, and is given back only while
 *      that is 0. So the id is known exactly if the message came into the queue.
 *  I98 an id that became known without a kill has a number of its own. A reaper gives the number of the latest one: at
 *      least the last N ids are remembered, and one more for each kill among them.
 *  I132 an id becomes known only after the cell of its message has been flipped (sb_transaction.h). So the storekeeper,
 *      which lists the ids and then gathers the messages, finds the message of each known id, or it has ended.
 *
 * Ordering pairs:
 *  P26 a put stores its claim, then looks at all cells of the id, each with seq_cst. So of two puts at least one sees the
 *      claim of the other. A block is linked before a claim is made in it, and a look begins at the newest block, both with
 *      seq_cst. The hash is stored (release) between the words WRITING and CLAIMED. A reader loads the word, the hash
 *      (acquire), and the word again.
 *  P47 the owner of a claim, or its reaper, flips the cell of the message, then stores the word KNOWN. The storekeeper
 *  loads the words of the ids, then the tails and the cells. All are seq_cst.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a block was allocated, or linked -> as for a lane (sb_lanes.h).
 *  the cell became WRITING or CLAIMED, and the commit is undecided -> the holding names the cell and the tag -> the reaper
 *   makes the cell FREE, with the rest of the commit. Other puts of the id wait for it, or reap.
 *  the commit was decided -> a CLAIMED cell, which other puts take for known -> the reaper makes it known.
 *  a number was taken -> a number without an id, and a CLAIMED cell -> the reaper gives it the latest number (I98).
 * A stopped owner: as long as its commit is undecided, other puts of the same id fail after SB_ID_PATIENCE_NS. Puts of
 * other ids do not notice.
 *
 * Concurrency: any process. Claims are made and ended under the lock of the connection, or by its reaper; all other
 *  functions need no lock.
 */
#ifndef SB_DUPLICATES_H
#define SB_DUPLICATES_H

#include "sb_hash.h"
#include "sb_queue.h"

#define SB_IDS_WINDOW 16u
#define SB_ID_PATIENCE_NS UINT64_C(10000000000) /* how long a put waits for the put of the same id */
#define SB_DUPLICATE_HEADER "x-duplicate-id"

/* What stands for an id: a hash of it. Both 0: the message has no id. */
typedef sb_hash sb_id;
#define SB_NO_ID ((sb_id){0, 0})
static inline bool sb_id_given(sb_id id) { return (id.low | id.high) != 0; }

/* A claim of the connection. token 0: none. */
typedef struct {
  uint64_t token, word;
  sb_id_shm *entry;
} sb_claim;

/* True if the queue remembers ids. */
static inline bool sb_duplicates_wanted(const sb_queue_shm *q) {
  return (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_IDS) != 0;
}
/* With a key of zeros. */
sb_id sb_id_of(const void *bytes, uint64_t length);
/* The id that the encoded properties name: a header that is a text or bytes. SB_NO_ID: there is none. */
sb_id sb_duplicates_id(const char *properties, uint32_t length);

/* Whether the queue knows an id. UNDECIDED: another commit has a claim; *owner is its connection. */
typedef enum { SB_ID_IS_NEW, SB_ID_IS_UNDECIDED, SB_ID_IS_DUPLICATE } sb_id_verdict;
sb_id_verdict sb_duplicates_look(const sb_queue *q, sb_id id, unsigned *owner);

/* Counts a message that was not stored. */
static inline void sb_duplicates_count(const sb_queue *q) {
  (void)SB_ADD(&q->shm->duplicates, 1, SB_RELAXED); /* relaxed: a statistic */
}

/* Claims an id for a commit that is not decided. SB_DUPLICATE: the queue knows the id, or the commit has claimed it
 * already. SB_UNDECIDED: another commit has claimed it, and was not decided while this call waited a moment. In both
 * cases, and after SB_GROW, SB_NO_MEMORY or SB_CORRUPT, there is no claim. */
sb_status sb_duplicates_claim(sb_queue *q, sb_id id, sb_claim *claim);
/* Gives a claim back: the commit was not decided. Also gives the holding back. */
void sb_duplicates_withdraw(sb_connection *c, sb_claim *claim);
/* Makes the claimed id known: the commit was decided. The caller then gives the holding back. */
void sb_duplicates_remember(sb_queue *q, sb_claim *claim);

/* The reaper's part: ends a claim that a holding of the dead connection `id` names. */
void sb_duplicates_end_dead(sb_broker *b, unsigned id, uint64_t what, uint64_t where, bool decided);

/* ---- the store: the storekeeper's part ---- */

/* Lists the ids that are remembered and have a number from `from` on, and all that are claimed, with the number 0. Returns how
 * many there are; the first `most` are in `ids`, in no order. Every id that becomes known and is not listed has a number that
 * is at least `id_numbers` from before the call. */
uint32_t sb_duplicates_list(const sb_queue *q, uint64_t from, sb_store_id *ids, uint32_t most);
/* True if the queue knows the id. *number: its number; 0: its commit is decided, and it has none yet. */
bool sb_duplicates_number(const sb_queue *q, sb_id id, uint64_t *number);
/* The latest number that is not remembered any more. */
uint64_t sb_duplicates_forgotten(const sb_queue_shm *q);
/* Makes ids known, by ascending number, in a queue that no other process has yet. *done: how many are done, 0 at first; after
 * SB_GROW the caller lets the broker grow, and calls again. */
sb_status sb_duplicates_restore(sb_queue *q, const sb_store_id *ids, uint32_t count, uint32_t *done);

/* ---- blocks ---- */

/* The block in a slot; NULL: there is none. */
sb_ids_shm *sb_duplicates_at(sb_broker *b, uint32_t slot);
/* True if the block is linked in the queue that it names. */
bool sb_duplicates_links(sb_broker *b, uint32_t slot);
/* True if the id with this number is remembered. */
bool sb_duplicates_remembers(const sb_queue_shm *q, uint64_t number);
/* Before duplicate_ids changes: what is forgotten by now stays forgotten. Under the topology lock. */
void sb_duplicates_forget(sb_queue_shm *q);

#endif
