// SPDX-License-Identifier: Apache-2.0
/* Layout: the structs in shared memory. This header and sb_words.h declare what other processes can see, except the
 * block of references (sb_reference.h) and the viewers' words (sb_view.h).
 *
 * What: shared structs (`_shm`) and their asserted sizes. Shared memory holds no pointers. A *slot id* is an offset in
 * the arena in units of 256 bytes: 28 bits, hence 64 GiB. sb_words.h declares the fields inside a word.
 *
 * Layout: segment 0 holds the header, the process table, the connection table, the chunk table, the classes and the
 * queue directory. The *arena* is the memory for bodies and structures, in chunks of 2 MiB (sb_chunk.h). Each later
 * segment holds `chunks_per_segment` chunks of the arena: first the metadata of these chunks (slot headers and free
 * hints, 68 KiB a chunk), then their contents.
 *
 * Invariants:
 *  I1 each object has one authoritative word, which decides the object's state. Every other field of the object is
 *      guarded by that word, or is a *hint*, which may be wrong.
 *  I2 the CAS by which a connection takes a slot or a cell also writes that connection into the word, as its owner.
 *  I3 the slot of a structure (page, ledger ...) keeps its kind while any call may still reach the slot (sb_grace.h);
 *      the slot of a node keeps its kind for ever. The generation of a slot never repeats.
 *  I4 a ring (sb_ring.h) never has the same position twice. The rings of a queue object that is reused continue after
 *      the positions of its earlier use: see `base`.
 *
 * Ordering pairs are declared in the header of the module that owns them.
 *
 * Death: this header only declares; it has no steps between which a process could die.
 *
 * Concurrency: only the macros of sb_atomic.h change words, except that plain stores fill a new structure or a claimed
 *  chunk, which no other process uses yet.
 */
#ifndef SB_LAYOUT_H
#define SB_LAYOUT_H

#include "sb_atomic.h"
#include "sb_status.h"
#include "sb_words.h"

#define SB_MAGIC UINT64_C(0x72656b6f72626d68) /* "hmbroker" */

#define SB_UNIT 256u
/* shmbroker.cdef.h has these two numbers. Here they get 64 bits, so that sums and products of them do not overflow. */
#define SB_CHUNK_BYTES ((uint64_t)SB_CHUNK_BYTES)
#define SB_MAX_BODY ((uint64_t)SB_MAX_BODY)
#define SB_CHUNK_UNITS 8192u
#define SB_CHUNK_META_BYTES (UINT64_C(68) << 10)
#define SB_DIRECTORY_SIZE 65536u
#define SB_BROKER_NAME_MAX 64u
#define SB_PAGE_CELLS 64u
#define SB_MAX_TARGETS 4096u
/* A walk of a queue's consumer levels (sb_consumer_level_shm) stops after so many: broken links may form a loop. */
#define SB_MAX_LEVELS 4096u
#define SB_MAX_CLASSES 64u
#define SB_MESSAGE_CLASSES 42u /* messages have the classes 1 to 42; structures of the kind k have class 42 + k */
#define SB_REPAIRS 6u          /* kinds of repairs, see sb_repairs.h */

/* Bytes of the lock file: the topology lock, the housekeeper's lock, the lock of the process that stands in for a
 * stopped housekeeper, SB_LOCK_SUCCESSOR, SB_LOCK_STARTING and SB_LOCK_STOREKEEPER of shmbroker.cdef.h, and from 64 on one for each process
 * slot. */
#define SB_LOCK_TOPOLOGY 0
#define SB_LOCK_HOUSEKEEPER 1
#define SB_LOCK_STAND_IN 2
#define SB_LOCK_PROCESS 64

/* An entry of the holdings of a connection: names one object that the connection takes, owns or releases, for the
 * reaper of the connection. The numbers are widths in bits, from the lowest bit up. `what`: 4 kind | 28 slot | 32 low
 * bits of the generation; for a cell: 4 kind | 28 slot of the queue | 32 slot of the leaf; for a LEDGER: 4 kind | 28
 * slot of the queue, also for a READING; for an ID: 4 kind | 28 slot of the queue | 32 slot of the block; for a CHUNK only the kind. `where`: for a cell its position; for a PAGE its first position; for a
 * CHUNK the chunk; for a LEDGER the slot of the ledger; for a VIEW see sb_view.h; for an
 * ID see sb_words.h; else not used. */
enum {
  SB_HOLD_NONE = 0,
  SB_HOLD_CELL = 1,
  SB_HOLD_SLOT = 2,
  SB_HOLD_PAGE = 3,
  SB_HOLD_LEDGER = 4,
  SB_HOLD_CHUNK = 5,
  SB_HOLD_VIEW = 6,
  SB_HOLD_STAGED = 7,      /* a cell of a commit: as for CELL; names no leaf until the append is done */
  SB_HOLD_PUBLICATION = 8, /* the body of a commit's message */
  /* a cell that a commit settles: as for CELL, but the slot of the leaf has 28 bits; the 4 bits above it are the number
   * of the counter that the settlement raises */
  SB_HOLD_SETTLING = 9,
  SB_HOLD_ID = 10,      /* the claim of a message's id, by a commit that puts the message (sb_duplicates.h) */
  SB_HOLD_READING = 11, /* a message that a consumer reads; `where` means nothing to other processes (sb_reading.h) */
  SB_HOLD_LEAVING = 12  /* a leaf that leaves the memory (sb_paged.h); `where`: its first position */
};
typedef struct {
  sb_word what;
  sb_word where;
} sb_holding_shm;

/* The commit in the holdings of a connection (sb_transaction.h): undecided, or none; decided; decided, and counted in
 * `commits_begun` and `commits_done`, since it changes several messages of stored queues (sb_turns.h). MOVING: there is no
 * commit; the connection moves a message from a stored queue to another one, which is counted as well. */
enum { SB_COMMIT_NONE = 0, SB_COMMIT_DECIDED = 1, SB_COMMIT_STORED = 2, SB_COMMIT_MOVING = 3 };

#define SB_PROC_WATCHES 1u /* the process has an IO thread: such threads watch the housekeeper (sb_io.h) */
typedef struct {
  alignas(64) sb_word word;
  _Atomic int32_t pid;
  sb_half flags;
  sb_word start_ticks;   /* field 22 of /proc/pid/stat */
  sb_word pid_namespace; /* inode of /proc/self/ns/pid; 0 = unknown */
  sb_word attached_ns;
  sb_holding_shm boot; /* the holding of a connection that is being opened */
  sb_word stack;       /* field 28 of /proc/pid/stat; an exec changes it */
} sb_process_shm;
_Static_assert(sizeof(sb_process_shm) == 64, "process slot");

typedef struct {
  alignas(64) sb_half units;
  sb_half kind;
  sb_half slots_per_chunk;
  sb_half hint_chunk; /* the chunk of the class that got hint bits last, or was opened last, plus one; 0 = none */
  sb_word groups;     /* bit g: some chunk of group g (chunk >> groups_shift) may have a free slot of this class */
  sb_word chunks;     /* number of chunks of the class (hint) */
  sb_word reserved[4];
} sb_class_shm;
_Static_assert(sizeof(sb_class_shm) == 64, "class");

typedef struct {
  alignas(64) sb_word magic;
  sb_half layout_major, layout_minor;
  sb_word layout_hash;
  sb_word instance;     /* random; differs between a broker and a later one of the same name */
  sb_word memory_limit; /* bytes of arena */
  sb_word created_ns;   /* CLOCK_REALTIME */
  sb_half chunks_per_segment, chunk_limit;
  sb_half mode, uid;
  /* --- changing --- */
  alignas(64) sb_half segments; /* arena segments that exist */
  sb_half closing;              /* 1: stop(purge=True) was called */
  sb_half housekeeper_waiter;   /* slot of the node of the housekeeper, or of its stand-in; 0 = none */
  sb_half housekeeper_pid;
  sb_word next_due_ns; /* hint: time of the earliest timer that the housekeeper knows */
  sb_word housekeeper_ticks;
  sb_word topology_epoch;
  /* the change in progress of a queue; 0 = none: 32 slot of the queue | 32 kind (1: the queue is being deleted, 2: it
   * is being configured, 3: its bindings are being removed) */
  sb_word topology_intent;
  sb_word journal; /* of exchanges and bindings: 48 number of valid bytes in its file | 16 number of the file */
  sb_half topology_pid, queue_count;
  sb_half memory_waiting,
      queues_ended;      /* raised when a queue ended by itself, or when its deleter may have left bindings to it */
  sb_half queues_closed; /* incremented when a queue becomes CLOSED; connections then detach their handles of it */
  sb_half housekeeper_process;     /* process slot, plus one; valid only while byte SB_LOCK_HOUSEKEEPER is locked */
  alignas(64) sb_word memory_root; /* the list of nodes that wait for memory */
  sb_word memory_tail, memory_head, memory_base;
  sb_half next_connection, next_process;
  sb_half watched; /* hint: time of the last look of the *lowest process* at the housekeeper (sb_io.h), in 2^20 ns */
  sb_half stopped; /* 1: the housekeeper must end, and no client may start another one */
  sb_word rescues, stopped_rescues, reaped;
  sb_half spinners;  /* count of threads inside `spin` (sb_waiter.c); kept off the cache lines that every call reads */
  sb_half scattered; /* 1: some body was stored in parts since the broker began */
  sb_half grouped;   /* 1: some queue has message groups, so messages are stored with the hash of their group */
  char name[SB_BROKER_NAME_MAX + 64];
  sb_half repairs[SB_REPAIRS], explained_repairs[SB_REPAIRS]; /* by kind, see sb_repairs.h */
  /* the new settings of the queue that `topology_intent` names (sb_settings.h) */
  alignas(64) _Atomic int64_t new_settings[SB_SETTINGS];
  sb_half new_flags, new_trim;
  /* in thousandths of the arena; 0 = none: what plain puts may take at most (sb_reserve.h), and from where on the broker
   * warns */
  sb_half memory_high_watermark, memory_warning;
  sb_half no_room; /* hint: 1: a client had no room for another segment, and none was added since (sb_reserve.h) */
  /* The store (sb_turns.h). stores: SB_STORES_..., not NONE: the broker has a store, so its durable queues are stored.
   * turns_asked, turns_begun, turns_done: numbers of turns of the storekeeper; turns_done is a futex.
   * storekeeper_waiter: slot of the node of the storekeeper; 0 = none
   * commits_begun, commits_done: how often the carrying out of a commit of several stored messages began, and ended */
  alignas(64) sb_half stores;
  sb_half turns_asked, turns_begun, turns_done;
  sb_half storekeeper_waiter, storekeeper_pid;
  sb_half commits_begun, commits_done;
  sb_word commits_held_ns;            /* CLOCK_MONOTONIC: until then, no such commit is decided */
  sb_half sync;                       /* SB_SYNC_...: what publishers to stored queues wait for */
  sb_half departures;                 /* how many leaves have left the memory (sb_paged.h) */
  char data_dir[SB_DATA_DIR_MAX + 1]; /* the folder of the store; written before the broker has a name */
  sb_word arrivals;                   /* how many leaves have come back (sb_paged.h) */
  sb_half store_full;    /* futex; 1: the disk of the store is full, so stored queues get no message (sb_limits.h) */
  sb_half store_refuses; /* 1: a put then fails; 0: it waits */
  sb_word sync_ns, synced_messages; /* of turns of the storekeeper that wrote messages: moving averages (sb_turns.h) */
  sb_half wishes;                   /* how often a process wished for messages (sb_wishes.h) */
  sb_half stalled;                  /* hint: how many consumers make no progress, and were told of (sb_waits.h) */
  sb_word store_id;                 /* random; made with the store, and the same after each start from it */
} sb_header_shm;
_Static_assert(sizeof(sb_header_shm) <= 4096, "header page");

#define SB_OFF_CLASSES 4096u
#define SB_OFF_PROCESSES (SB_OFF_CLASSES + SB_MAX_CLASSES * 64u)
#define SB_OFF_CONNECTIONS (SB_OFF_PROCESSES + SB_MAX_PROCESSES * 64u)
#define SB_OFF_CHUNKS (SB_OFF_CONNECTIONS + SB_MAX_CONNECTIONS * 8u)
#define SB_OFF_DIRECTORY (SB_OFF_CHUNKS + SB_MAX_CHUNKS * 8u)
#define SB_SEGMENT0_BYTES (SB_OFF_DIRECTORY + SB_DIRECTORY_SIZE * 8u)

typedef struct {
  sb_word headers[SB_CHUNK_UNITS];
  sb_word hints[SB_CHUNK_UNITS / 64]; /* bit i set: slot i of the chunk may be free */
  sb_word summary[2];                 /* bit w set: a bit of hints[w] may be set */
  sb_word parts;                      /* 1: the chunk may have parts; a sweep then looks for their heads (sb_parts.h) */
  sb_word floors[2];                  /* incarnation, position: new objects continue from these numbers (sb_floors.h) */
  sb_word written;                    /* 1: the chunk was opened before, so its memory may have other bytes than 0 */
  sb_word reserved[378];
} sb_chunk_meta_shm;
_Static_assert(sizeof(sb_chunk_meta_shm) == SB_CHUNK_META_BYTES, "chunk metadata");

/* The header of a message, in front of its body. Written while the slot is ALLOC, read-only after it is published: but for
 * `expires_ns`, which the owner of the only cell of the message may lower (sb_schedule_limit). */
typedef struct {
  uint64_t body_length;
  uint32_t body_offset; /* from the start of the slot */
  uint32_t properties_length;
  uint64_t expires_ns;   /* CLOCK_MONOTONIC, 0 = never */
  uint64_t due_ns;       /* CLOCK_MONOTONIC, 0 = ready immediately */
  uint64_t timestamp_ns; /* CLOCK_REALTIME at publishing */
  uint32_t key_length;
  uint32_t group_hash; /* of the name of its group (sb_groups.h); 0: it has none, or no queue had groups yet */
  uint16_t publisher;
  uint8_t priority;
  uint8_t flags; /* SB_MESSAGE_... */
  uint32_t units;
  uint16_t exchange_length; /* exchange name, routing key and properties lie in front of the body */
  uint16_t targets;         /* of a commit's message: number of its queues, with those that refuse it; else 0 */
  uint32_t reserved;
} sb_message_shm;
_Static_assert(sizeof(sb_message_shm) == 64, "message header");
/* Flag of a message whose exchange name, routing key, properties and body lie in parts (sb_parts.h). Behind its header,
 * the slot of the message has only the block of references and the viewers' words (sb_reference.h), which end at
 * body_offset. The last bytes of the slot are sb_parts_shm. */
#define SB_MESSAGE_IN_PARTS 1u
#define SB_MESSAGE_REJECTED 2u /* its queue had no room: the message is dead from the start (I90 of sb_park.h) */
/* Flag of the last message of its group (sb_groups.h). */
#define SB_MESSAGE_LAST 4u

/* The last bytes of the slot of a message whose body lies in parts. They name the slot of the first part. */
typedef struct {
  sb_half first, reserved0;
  sb_word reserved1;
} sb_parts_shm;
_Static_assert(sizeof(sb_parts_shm) == 16, "parts");

/* The header of a part: a slot with a piece of such a body. `head` is the slot of the message. */
typedef struct {
  uint32_t head, next; /* slots; next 0: the last part */
  uint64_t head_gen;
} sb_part_shm;
_Static_assert(sizeof(sb_part_shm) == 16, "part");

typedef struct {
  sb_half object;   /* slot of the queue or consumer level that has the ring; 0: the ring is SB_RING_MEMORY */
  sb_half ring;     /* number of the ring | height << 8 */
  sb_word first;    /* first position covered */
  sb_word done;     /* hint: bit i set: child or cell i is finished; all set: a call tries to retire the page */
  sb_word requeued; /* bit i set: cell i, or a cell below child i, may have become AVAILABLE again */
  /* of a stored queue: bit i set: the store may lack the end or the return of cell i, or of a cell below child i
   * (sb_changed.h) */
  sb_word changed;
  sb_word paging;    /* of a leaf: SB_PAGING_... (sb_paged.h) */
  sb_word departure; /* of a leaf that leaves the memory: the number of its departure */
  sb_word reserved;
} sb_page_shm;
_Static_assert(sizeof(sb_page_shm) == 64, "page header");

typedef struct {
  sb_word word;
  sb_word side;
} sb_cell_shm;

typedef struct {
  sb_page_shm page;
  sb_word finished[SB_PAGE_CELLS /
                   8]; /* a byte for each cell: 1 = finished. A hint like `done` that needs no read-modify-write */
  sb_cell_shm cells[SB_PAGE_CELLS];
} sb_leaf_shm;
#define SB_LEAF_UNITS 5u
_Static_assert(sizeof(sb_leaf_shm) <= SB_LEAF_UNITS * SB_UNIT, "leaf");

/* A leaf of a queue with SB_QUEUE_KEEPS. Messages that were moved there keep their earlier sequence numbers. */
typedef struct {
  sb_leaf_shm leaf;
  sb_word origins[SB_PAGE_CELLS]; /* the sequence number that the message had in the queue it was moved from */
} sb_long_leaf_shm;
#define SB_LONG_LEAF_UNITS 7u
_Static_assert(sizeof(sb_long_leaf_shm) <= SB_LONG_LEAF_UNITS * SB_UNIT, "long leaf");
#define SB_NO_ORIGIN UINT64_MAX /* value in `origins`: the message was put into this queue, not moved there */

typedef struct {
  sb_page_shm page;
  sb_word children[SB_PAGE_CELLS];
} sb_inner_shm;
_Static_assert(sizeof(sb_inner_shm) <= 3 * SB_UNIT, "inner page");

typedef struct {
  sb_word root;
  sb_word tail; /* hint: the first position that may be FREE */
  sb_word head; /* hint: in lists of nodes, all entries before this position are dead; the schedule does not use it */
  sb_word base; /* first position of this use of the object (queue or consumer level), a multiple of 64 */
} sb_ring_shm;

typedef struct {
  /* read by every operation; written when the queue is declared, configured or opened, or ends, and when its tree of
   * pages gets a new root */
  alignas(64) sb_word state;
  sb_word root, base; /* of the ring of cells: as in sb_ring_shm */
  sb_half flags;
  sb_half ledgers;                       /* first ledger, linked by `next`; SB_LEDGERS_SEALED: none will be linked */
  _Atomic int64_t settings[SB_SETTINGS]; /* the first four lie in this cache line */
  sb_word created_ns;
  sb_half name_length, owner_connection; /* owner_connection, owner_epoch: of the owner of an exclusive queue */
  sb_word owner_epoch;
  /* written by producers */
  alignas(64) sb_word tail;
  sb_word admitted; /* hint: `tail` plus the number of messages for which room is reserved, but not yet used */
  sb_word bytes_in; /* hint: body bytes that became ready, or that have room reserved */
  sb_word bound;    /* with ring_size: evict the oldest while more than max(bound, ring_size) messages are ready */
  sb_word ready[SB_LANES / 64]; /* with SB_QUEUE_LANES: bit n: lane n may have a ready message (I77 of sb_lanes.h) */
  /* notification: read by producers, so this cache line lies beside theirs (processors fetch lines in pairs) */
  alignas(64) _Atomic int32_t interested;
  _Atomic int32_t notified, not_interested, non_acquiring, consumers, room_waiting;
  /* raised for each message with a timer that has, or may have, no schedule entry, since memory was short, or a process
   * died. When it changes, the housekeeper scans all cells */
  _Atomic int32_t timers_lost;
  /* 1: calls maintain `taken`, `admitted` and the byte hints; 2: the same, but these hints may still be wrong
   * (SB_TRACKING_UNSURE of sb_queue.h) */
  _Atomic int32_t tracking;
  sb_half consumer_levels; /* first level, by descending priority */
  sb_half stops;           /* odd: producers that find no room wait until the queue has emptied (sb_resume.h) */
  sb_word rescues;
  /* the claim of the exclusive or the single active consumer (sb_exclusive.h): 28 slot of its node | bit 31: tentative
   * | 32 registration of the node */
  sb_word exclusive;
  sb_half held_back; /* 1: the next message may be too large for a consumer that waits for another one (sb_window.h) */
  /* written by consumers */
  alignas(64) sb_word head;
  /* hint, maintained while `tracking` is not 0: number of positions below the tail that are not AVAILABLE. If the queue
   * evicts, a take raises it before its CAS, else afterwards (I23 of sb_queue.h) */
  sb_word taken;
  sb_word bytes_out;
  sb_word requeued;  /* 1: some page may have a `requeued` bit */
  sb_word last_take; /* position of the last take, for the check for missed notifications */
  sb_word staged;    /* 1: a commit has staged a cell here, so takes look for STAGED cells (I53 of sb_take.h) */
  sb_word turn_until_ns, turn_needs; /* the turn of a producer that others would pass (sb_turn.h) */
  alignas(64) sb_ring_shm all;
  sb_ring_shm non_acquiring_list, not_interested_list, room, schedule;
  /* CLOCK_MONOTONIC. With SB_QUEUE_EXPIRES: the last declare, get, wait or watch, or the last end of a consumer. Else
   * only the creation of the queue, or the last end of a consumer */
  sb_word used_ns;
  sb_half had_consumer;
  /* 1: a watch for room began here. Its program may react late, which explains an SB_REPAIR_ROOM (sb_repairs.h) */
  sb_half room_watched;
  char name[SB_NAME_MAX + 1];
  sb_word wanted; /* 1 + the sequence number of a message that a process needs; 0 = none (sb_wishes.h) */
  sb_word misses; /* how often a get or a consumer needed a message that was in the store only (sb_waits.h) */
  /* of a queue with SB_QUEUE_LANES. `came`: hint: `base` plus the number of cells in all lanes; stands for `tail` in the
   * counts of such a queue */
  alignas(64) sb_word came;
  sb_word closing; /* whether a deletion was asked for, and is decided (sb_closing.h) */
  sb_half lanes;   /* first lane but lane 0, by ascending number */
  sb_half groups;  /* of a queue with SB_QUEUE_GROUPS: the claims of its consumers; 0 = none yet */
  /* of a queue with SB_QUEUE_LAST_VALUE. value_index: the root of its index; 0 = none yet. values_lost: raised for each
   * message that may be ready without being settled (I103 of sb_values.h) */
  sb_half value_index, values_lost;
  /* which consumers get messages (sb_dispatch.h). tickets: the last ticket that a consumer drew. open_before: consumers
   * with an earlier ticket get messages, though the queue is gated */
  sb_word tickets, open_before;
  sb_half ids;                 /* the first block of the ids of its messages (sb_duplicates.h); 0 = none yet */
  sb_word id_numbers, id_tags; /* 1 + how many ids became known; how many claims were made */
  sb_word id_floor;            /* ids up to this number are forgotten */
  sb_word duplicates;          /* how many messages were not stored, since their ids were known */
  sb_word early;               /* raised for each message that becomes ready before its time (sb_following.h) */
  /* of a queue with SB_QUEUE_SORTED: raised for each message that returned, and when `requeued` bits were set again */
  sb_word returned;
  /* of a stored queue. changed: 1: some page may have a `changed` bit. stored: the storekeeper has written, and synced,
   * what was appended before this position (sb_gather.h) */
  sb_word changed, stored;
  sb_word
      from; /* the first position of the tree: `base`, unless the queue was made again from the store (sb_restore.h) */
} sb_queue_shm;
#define SB_QUEUE_UNITS 4u
_Static_assert(sizeof(sb_queue_shm) <= SB_QUEUE_UNITS * SB_UNIT, "queue");
_Static_assert(offsetof(sb_queue_shm, settings[SB_SETTING_MESSAGE_TTL_MS]) == 64, "the cache line of puts and gets");

/* A queue with settings that are texts. They stay as they were declared. No setting is a text today; the name of a
 * dead-letter exchange would be one. */
typedef struct {
  sb_queue_shm queue;
  sb_half texts_length;
  char texts[SB_TEXTS_MAX]; /* encoded by the callers of the core; the core does not decode it */
} sb_long_queue_shm;
#define SB_LONG_QUEUE_UNITS 10u
_Static_assert(sizeof(sb_long_queue_shm) <= SB_LONG_QUEUE_UNITS * SB_UNIT, "long queue");

static inline int64_t sb_setting(const sb_queue_shm *q, unsigned which) {
  return SB_LOAD(&q->settings[which], SB_RELAXED);
}

/* The ring of the messages of one priority (sb_lanes.h). A lane is never removed while the queue exists. */
typedef struct {
  alignas(64) sb_word root, base; /* as in sb_ring_shm */
  sb_half queue, number;
  sb_half next;
  alignas(64) sb_word tail;
  alignas(64) sb_word head;
  sb_word requeued; /* this one and those below: as in sb_queue_shm */
  sb_word changed, stored, from;
} sb_lane_shm;
_Static_assert(sizeof(sb_lane_shm) <= SB_UNIT, "lane");

#define SB_BUCKETS 256u
/* The claims on the buckets of message groups (sb_groups.h). Never removed while the queue exists. */
typedef struct {
  alignas(64) sb_half queue;
  sb_half joins; /* incremented by each consumer that comes */
  sb_word freed[SB_BUCKETS / 64];
  sb_word reserved1[3];
  /* of each bucket: 0, or 12 connection | 22 epoch of the connection | bit 63: PASSED */
  sb_word claims[SB_BUCKETS];
  sb_word low[SB_BUCKETS], high[SB_BUCKETS]; /* positions */
} sb_groups_shm;
#define SB_GROUPS_UNITS 25u
_Static_assert(sizeof(sb_groups_shm) <= SB_GROUPS_UNITS * SB_UNIT, "groups");

#define SB_VALUE_BRANCHES 16u
/* Tags of the words of a node. */
enum { SB_VALUE_POSITION = 1, SB_VALUE_NODE = 2 };
/* A node of the index of last values (sb_value_index.h). Never removed while the queue exists. */
typedef struct {
  alignas(64) sb_half queue;
  sb_half parent, branch; /* the node that links this one, and in which word; parent 0: this is the root */
  sb_half reserved0;
  sb_word reserved1[6];
  sb_word words[SB_VALUE_BRANCHES];
} sb_value_node_shm;
_Static_assert(sizeof(sb_value_node_shm) <= SB_UNIT, "node of values");
/* The id of a message (sb_duplicates.h), as a hash. */
typedef struct {
  sb_word word;
  sb_word low, high;
} sb_id_shm;
#define SB_IDS_PER_BLOCK 2728u
/* Ids of the messages of a queue. A block is never removed while the queue exists. */
typedef struct {
  alignas(64) sb_half queue;
  sb_half next;
  sb_word reserved[7];
  sb_id_shm ids[SB_IDS_PER_BLOCK];
} sb_ids_shm;
#define SB_IDS_UNITS 256u
_Static_assert(sizeof(sb_ids_shm) == SB_IDS_UNITS * SB_UNIT, "ids");

/* The consumers of one priority. A level is never removed while the queue exists. */
typedef struct {
  alignas(64) _Atomic int32_t priority;
  sb_half next;
  sb_half queue;
  _Atomic int32_t interested_count, notified_count; /* hints */
  sb_ring_shm interested, notified;
} sb_consumer_level_shm;
_Static_assert(sizeof(sb_consumer_level_shm) <= SB_UNIT, "level");

/* Flags of a node, beside SB_NODE_COUNTED (1) and SB_NODE_DIRECT (2) of shmbroker.cdef.h. 8 is not used. */
#define SB_NODE_ROOM 4u    /* waits for room in the queue or for memory, not for messages */
#define SB_NODE_MEMORY 16u /* with ROOM: waits for memory of the broker */
/* notified in a rescue (sb_housekeeping.h): takes a message although consumers of higher priority exist */
#define SB_NODE_RESCUED 32u
#define SB_NODE_MEMBER 64u     /* a consumer of a channel; a channel may have several consumers at one queue */
#define SB_NODE_EXCLUSIVE 128u /* requests to be, or is, the only consumer */
/* at a queue with a single active consumer: is not the active one, or does not know yet that it is */
#define SB_NODE_STANDBY 256u
/* at a gated queue (sb_dispatch.h): gets no messages, or does not know yet that it does */
#define SB_NODE_GATED 512u
#define SB_NODE_NO_LOCAL 1024u  /* wants no message that its own connection published */
#define SB_NODE_HELD_BACK 2048u /* the next message is too large for its window (sb_window.h) */

/* The node of a consumer or a watch at one queue, of a waiting call, or of the IO thread of a connection (`queue` is
 * then 0). Its connection owns it: the slot stays ALLOC until the node is destroyed. */
typedef struct {
  alignas(64) sb_word word;
  sb_half queue, level;
  sb_half flags, target; /* target: number of the consumer, channel or watch of the node (sb_target.h) */
  sb_half waiter;        /* slot of the node itself; no process reads it */
  /* if the node waits for room: prefetch is the number of bytes that it needs room for, unacked the number of messages;
   * 0 messages count as 1 */
  sb_half prefetch, unacked;
  _Atomic int32_t priority;
  sb_word delivered;
  /* 1: a notifier asks for a turn of the target (sb_target.h). The turn sets it to 0, then looks at the queue, or, for
   * a watch, writes the event descriptor */
  sb_word flagged;
  sb_half wake; /* the wake word, a futex */
  sb_half pid;
  alignas(64) sb_word wakes; /* number of notifications */
  sb_word created_ns;
  sb_half registration; /* epoch of the node's entry in the queue's list `all` */
  sb_half channel;      /* number of its channel, for listings; 0 = none */
  /* of a consumer (sb_dispatch.h). ticket: 0 = the queue has not admitted it yet. attached_ns: CLOCK_MONOTONIC of when
   * the first of the consumers that it found was attached, as far as it knows; or when it was attached itself */
  sb_word ticket, attached_ns;
  /* the program of its selector, for consumers of lower priorities (sb_rivals.h). wish: its slot; 0 = none */
  sb_half wish, wish_length;
  sb_word wish_gen;
  sb_word prefetch_bytes; /* the window of a consumer, for listings; 0 = none */
  /* what a consumer waits for (sb_waits.h). Its owner writes the first three: how its last search ended; 1 + the
   * position that it has reached; 1 + the position of the message that it needs, and that is in the store only */
  alignas(64) sb_word searched;
  sb_word reached, away;
  /* the housekeeper writes these: a sum of what the consumer has done; since when that and the need stay the same
   * (CLOCK_MONOTONIC), 0 = it makes progress; 1: this was told */
  sb_word looked, still_ns, told;
} sb_node_shm;
_Static_assert(sizeof(sb_node_shm) <= SB_UNIT, "node");

enum {
  SB_COUNT_ADDED = 0,
  SB_COUNT_ADDED_BYTES,
  SB_COUNT_ACKED,
  SB_COUNT_EXPIRED,
  SB_COUNT_KILLED,
  SB_COUNT_REPLACED,
  SB_COUNT_DROPPED,
  SB_COUNT_DEAD_LETTERED,
  SB_COUNT_MOVED,
  SB_COUNT_REMOVED_BYTES,
  SB_COUNT_REDELIVERED,
  SB_COUNT_SCHEDULED,   /* entered SCHEDULED */
  SB_COUNT_UNSCHEDULED, /* left SCHEDULED */
  SB_COUNT_DELIVERED,
  SB_COUNT_REFUSED, /* refused by overflow "drop"; the statistics count it as `added` and as `dropped` */
  SB_COUNTERS
};

enum {
  SB_INTENT_NONE = 0,
  SB_INTENT_ENQUEUE = 1,
  SB_INTENT_SETTLE = 2,
  SB_INTENT_DUE = 3,
  SB_INTENT_MOVE = 4,
  SB_INTENT_COMMIT = 5,
  SB_INTENT_MOVE_PAGE = 6,
  SB_INTENT_PARK = 7
};

/* The counters of one connection at one queue, and the intent of its operation in progress. Only the owner writes the
 * ledger; after the death of the owner its reapers do. A ledger belongs to its queue: when its owner leaves, the next
 * connection continues the counters. */
typedef struct {
  alignas(64) sb_word owner; /* 12 connection | 52 epoch; 0 connection = free */
  sb_half queue, next;
  sb_word holding; /* 32 number of cells that the owner holds | 32 low half of the epoch in `owner` */
  /* of the intent: kind | counter << 8 | sequence << 16. Stored after the rest of the intent, except the position of an
   * append (P11 of sb_ledger.h) */
  sb_word kind;
  sb_word position;
  sb_word slot; /* slot | reference << 32 | reference in the target queue << 40 */
  sb_word gen;
  sb_word before; /* value of the intent's counter before the operation */
  alignas(64) sb_word before_bytes;
  sb_word bytes;
  sb_word target_queue,
      /* Of a move: its target. An enqueue or commit stores other values: target_queue 1 if the message becomes
       * SCHEDULED, and in target_position the counter SB_COUNT_SCHEDULED before the operation */
      target_position;
  sb_word target_ledger, target_before, target_before_bytes;
  /* low 32 bits: depth, above 0 while the owner makes two changes of hints that belong together (I23 of sb_queue.h);
   * high 32 bits: how often all owners of the ledger have raised the depth */
  sb_word hinting;
  sb_word counters[SB_COUNTERS];
  /* the messages that the owner has reserved room for, and not published yet (sb_limits.h): low 40 bits: their bytes;
   * high 24 bits: their number, modulo 2^24 */
  sb_word admitting;
} sb_ledger_shm;
_Static_assert(sizeof(sb_ledger_shm) <= SB_UNIT, "ledger");

#define SB_HOLDINGS_PER_CHUNK 255u
/* The first entry for holdings. Entry 0 of a block is for the next block: it names that block before `next` links it,
 * so that a reaper finds the block in between. */
#define SB_HOLDINGS_FIRST 1u
typedef struct {
  sb_half next, used; /* next: the next block; used: number of entries that were ever used */
  sb_word reserved;
  sb_holding_shm entries[SB_HOLDINGS_PER_CHUNK];
} sb_holdings_shm;
_Static_assert(sizeof(sb_holdings_shm) == 16 * SB_UNIT, "holdings");

/* The gate of a connection: whether one of the connection's calls is inside the core, see sb_grace.h. */
typedef struct {
  sb_word inside; /* 1: a call is inside the core, or is about to take the lock of the connection */
  /* incremented by each connection that drains chunks of structures. A call of this connection that sees a new value
   * drops the pages that the connection's handles remember */
  sb_word asked;
} sb_gate_shm;

typedef struct {
  alignas(64) sb_half id, process;
  sb_half holdings; /* first block, 0 = none yet */
  sb_half waiter;   /* node slot of the IO thread, or 0 */
  sb_half channels; /* number of open channels, for listings */
  sb_half reserved1;
  sb_word created_ns;
  sb_word delivered, published;
  /* SB_COMMIT_...: DECIDED or STORED: the commit in its holdings is decided; a reaper carries it out if the connection
   * dies (sb_transaction.h) */
  sb_word commit;
  sb_word reserved0;
  alignas(64) sb_gate_shm gate;
  /* set by notifiers, cleared by the IO thread: bit w of `work`: work_targets[w] has a bit. Bit i of work_targets[w]: a
   * target whose number is 64 w + i, modulo SB_MAX_TARGETS, needs a turn (sb_target.h) */
  alignas(64) sb_word work;
  alignas(64) sb_word work_targets[SB_MAX_TARGETS / 64];
  /* claims[class]: the hint word from which this connection took bits, as chunk * 128 + word + 1; 0 = none. claims[0],
   * in the same form: the hint word in which this connection must still set the bits of slots that it freed. If the
   * connection dies, its reaper sets the bits of these words */
  sb_half claims[SB_MAX_CLASSES];
  char name[SB_NAME_MAX + 1];
} sb_connection_shm;
_Static_assert(sizeof(sb_connection_shm) <= 6 * SB_UNIT, "connection");

#endif
