// SPDX-License-Identifier: Apache-2.0
/* The shared memory, word by word. Everything other processes can see is declared here, or in sb_words.h, and nowhere else.
 *
 * What: shared structs (`_shm`) and their asserted sizes. No pointer is ever stored: a *slot id* is an arena offset in
 * units of 256 bytes (28 bits, so 64 GiB). What is packed into one word is told apart by sb_words.h.
 *
 * Layout: segment 0 holds the header, the process table, the connection table, the chunk table, the classes and
 * the queue directory. Every later segment n holds `chunks_per_segment` chunks of the arena: first their metadata
 * (slot headers and free hints, 68 KiB a chunk), then their bodies (2 MiB a chunk).
 *
 * Invariants:
 *  I1 an object's one authoritative word decides its state; every other field is a hint or is guarded by that word.
 *  I2 the owner of a slot or cell is written by the CAS that takes it.
 *  I3 a structural slot (page, ledger ...) keeps its kind of memory as long as any call may know it (sb_grace.h), a node for
 *      ever; and its generation never repeats.
 *  I4 positions of a ring never repeat, not even when its queue object is used again: see `base`.
 *
 * Ordering pairs are declared in the header of the module that owns them.
 * Death: nothing is executed here. Concurrency: words are changed only through sb_atomic.h.
 */
#ifndef SB_LAYOUT_H
#define SB_LAYOUT_H

#include "sb_atomic.h"
#include "sb_words.h"

#define SB_MAGIC UINT64_C(0x72656b6f72626d68) /* "hmbroker" */

#define SB_UNIT 256u
#define SB_CHUNK_BYTES (UINT64_C(2) << 20)
#define SB_CHUNK_UNITS 8192u
#define SB_CHUNK_META_BYTES (UINT64_C(68) << 10)
#define SB_MAX_CHUNKS 32768u
#define SB_MAX_SEGMENTS 255u
#define SB_MAX_BODY (UINT64_C(1) << 30)
#define SB_MAX_PROCESSES 4096u
#define SB_MAX_CONNECTIONS 4096u /* id 0 is nobody */
#define SB_DIRECTORY_SIZE 65536u
#define SB_MAX_QUEUES 49152u
#define SB_NAME_MAX 255u
#define SB_BROKER_NAME_MAX 64u
#define SB_PAGE_CELLS 64u
#define SB_MAX_TARGETS 4096u
#define SB_MAX_CLASSES 64u
#define SB_REPAIRS 6u /* kinds of them, see sb_repairs.h */

/* Lock file: byte 0 is the topology lock, byte 1 the housekeeper's, 2 that of one who stands in for a stopped housekeeper, 64+i
 * that of process slot i. */
#define SB_LOCK_TOPOLOGY 0
#define SB_LOCK_HOUSEKEEPER 1
#define SB_LOCK_STAND_IN 2
#define SB_LOCK_PROCESS 64

/* Structural kinds have classes of their own, after those of the messages. */
enum {
  SB_KIND_MESSAGE = 0,
  SB_KIND_LEAF,
  SB_KIND_INNER,
  SB_KIND_QUEUE,
  SB_KIND_NODE,
  SB_KIND_LEVEL,
  SB_KIND_LEDGER,
  SB_KIND_CONNECTION,
  SB_KIND_HOLDINGS,
  SB_KIND_LONG_LEAF,
  SB_KIND_COUNT
};

/* What a connection holds: 16 bytes an entry. kind 4 | slot 28 | generation 32, and a position or chunk. */
enum {
  SB_HOLD_NONE = 0,
  SB_HOLD_CELL = 1,
  SB_HOLD_SLOT = 2,
  SB_HOLD_PAGE = 3,
  SB_HOLD_LEDGER = 4,
  SB_HOLD_CHUNK = 5,
  SB_HOLD_VIEW = 6,
  SB_HOLD_STAGED = 7,      /* a cell of a commit: queue, leaf, and the position, noted before it is appended */
  SB_HOLD_PUBLICATION = 8, /* the body of one */
  SB_HOLD_SETTLING = 9     /* as CELL, to be settled with it: the leaf's slot, and the counter above its 28 bits */
};
typedef struct {
  sb_word what;
  sb_word where;
} sb_holding_shm;

#define SB_PROC_WATCHES 1u /* it has an IO thread, which looks after the dead now and then */
typedef struct {
  alignas(64) sb_word word;
  _Atomic int32_t pid;
  sb_half flags;
  sb_word start_ticks;   /* field 22 of /proc/pid/stat */
  sb_word pid_namespace; /* inode */
  sb_word attached_ns;
  sb_holding_shm boot; /* what a connection that is being opened takes */
  sb_word stack;       /* field 28: another one after an exec */
} sb_process_shm;
_Static_assert(sizeof(sb_process_shm) == 64, "process slot");

typedef struct {
  alignas(64) sb_half units;
  sb_half kind;
  sb_half slots_per_chunk;
  sb_half hint_chunk; /* where a slot was freed last, plus one */
  sb_word groups;     /* bit g: a chunk of the g-th 64th of the arena may have a free slot */
  sb_word chunks;     /* how many chunks the class owns (hint) */
  sb_word reserved[4];
} sb_class_shm;
_Static_assert(sizeof(sb_class_shm) == 64, "class");

typedef struct {
  alignas(64) sb_word magic;
  sb_half layout_major, layout_minor;
  sb_word layout_hash;
  sb_word instance;     /* random: tells one broker from a later one of the same name */
  sb_word memory_limit; /* bytes of arena */
  sb_word created_ns;   /* CLOCK_REALTIME */
  sb_half chunks_per_segment, chunk_limit;
  sb_half mode, uid;
  /* --- changing --- */
  alignas(64) sb_half segments; /* arena segments that exist */
  sb_half closing;              /* 1: stop(purge=True) was asked */
  sb_half housekeeper_waiter;   /* slot of the housekeeper's node, or 0 */
  sb_half housekeeper_pid;
  sb_word next_due_ns; /* hint: the earliest timer the housekeeper knows */
  sb_word housekeeper_ticks;
  sb_word topology_epoch;
  sb_word topology_intent; /* 32 slot of the queue | 1: being deleted, 2: being configured */
  sb_word journal;         /* of exchanges and bindings: 16 number of its file | 48 bytes of it that count */
  sb_half topology_pid, queue_count;
  sb_half memory_waiting, queues_ended; /* how many queues ended by themselves: bindings to them are to be removed */
  sb_half queues_closed;                /* raised for each queue that is CLOSED: handles of it are to be let go */
  sb_half housekeeper_process;          /* slot of the housekeeper's process plus one; believed like its pid */
  alignas(64) sb_word memory_root;      /* list of nodes that wait for memory */
  sb_word memory_tail, memory_head, memory_base;
  sb_half next_connection, next_process;
  sb_half
      watched; /* hint: when the lowest process with an IO thread looked last, in units of 2^20 ns of CLOCK_MONOTONIC */
  sb_half stopped; /* 1 = somebody asked for no housekeeper */
  sb_word rescues, stopped_rescues, reaped;
  sb_half spinners,
      scattered; /* scattered: 1 = a body was stored in parts. spinners changes often: not in a line that every call reads */
  char name[SB_BROKER_NAME_MAX + 64];
  sb_half repairs[SB_REPAIRS], explained_repairs[SB_REPAIRS]; /* by kind, see sb_repairs.h */
  alignas(64) sb_word
      new_settings[8]; /* of the queue being configured: ring_size, max_length, max_bytes, overflow, flags, trim,
                          message_ttl_ms, expires_ms */
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
  sb_word hints[SB_CHUNK_UNITS / 64]; /* bit set: the slot of that index may be free */
  sb_word summary[2];                 /* bit set: that hint word may have a bit */
  sb_word parts;                      /* 1: it may have parts, whose owner is to be looked for (sb_parts.h) */
  sb_word floors[2];                  /* where objects begin that are opened here, see sb_floors.h */
  sb_word reserved[379];
} sb_chunk_meta_shm;
_Static_assert(sizeof(sb_chunk_meta_shm) == SB_CHUNK_META_BYTES, "chunk metadata");

/* In front of every body. Written under ALLOC, read-only once published. */
typedef struct {
  uint64_t body_length;
  uint32_t body_offset; /* from the start of the slot */
  uint32_t properties_length;
  uint64_t expires_ns;   /* CLOCK_MONOTONIC, 0 = never */
  uint64_t due_ns;       /* CLOCK_MONOTONIC, 0 = at once */
  uint64_t timestamp_ns; /* CLOCK_REALTIME at publishing */
  uint32_t key_length;
  uint32_t group_hash;
  uint16_t publisher;
  uint8_t priority;
  uint8_t flags; /* SB_MESSAGE_IN_PARTS */
  uint32_t units;
  uint16_t exchange_length; /* the name of the exchange comes first, then the key, then the properties */
  uint16_t targets;         /* how many queues it was put into in one commit; 0 like 1 */
  uint32_t reserved;
} sb_message_shm;
_Static_assert(sizeof(sb_message_shm) == 64, "message header");
#define SB_MESSAGE_IN_PARTS 1u /* names, properties and body lie in parts; body_offset is the end of what does not */

/* The last bytes of a slot whose body lies in parts: where the row of them begins. */
typedef struct {
  sb_half first, reserved0;
  sb_word reserved1;
} sb_parts_shm;
_Static_assert(sizeof(sb_parts_shm) == 16, "parts");

/* In front of what a part holds. */
typedef struct {
  uint32_t head, next; /* slots; next 0: the last one */
  uint64_t head_gen;
} sb_part_shm;
_Static_assert(sizeof(sb_part_shm) == 16, "part");
#define SB_INLINE_BODY 4096u /* bodies up to here are copied to the caller, longer ones are read in place (sb_view.h) */

typedef struct {
  sb_half object;   /* slot of the queue or level the ring belongs to */
  sb_half ring;     /* which of its rings, and the height: ring | height << 8 */
  sb_word first;    /* first position covered */
  sb_word done;     /* hint: bit set when that child or cell is finished; verified before a page is retired */
  sb_word returned; /* bit set: that child or cell may have been returned to AVAILABLE */
  sb_word reserved[4];
} sb_page_shm;
_Static_assert(sizeof(sb_page_shm) == 64, "page header");

typedef struct {
  sb_word word;
  sb_word side;
} sb_cell_shm;

typedef struct {
  sb_page_shm page;
  sb_word finished[SB_PAGE_CELLS /
                   8]; /* a byte for each cell: 1 = finished. A hint like `done`, without its atomic operation */
  sb_cell_shm cells[SB_PAGE_CELLS];
} sb_leaf_shm;
#define SB_LEAF_UNITS 5u
_Static_assert(sizeof(sb_leaf_shm) <= SB_LEAF_UNITS * SB_UNIT, "leaf");

/* A leaf of the cells of a queue with SB_QUEUE_KEEPS, whose messages were moved there. */
typedef struct {
  sb_leaf_shm leaf;
  sb_word origins[SB_PAGE_CELLS]; /* the sequence that the message of that cell was given when it was put */
} sb_long_leaf_shm;
#define SB_LONG_LEAF_UNITS 7u
_Static_assert(sizeof(sb_long_leaf_shm) <= SB_LONG_LEAF_UNITS * SB_UNIT, "long leaf");
#define SB_NO_ORIGIN UINT64_MAX /* it was put here */

typedef struct {
  sb_page_shm page;
  sb_word children[SB_PAGE_CELLS];
} sb_inner_shm;
_Static_assert(sizeof(sb_inner_shm) <= 3 * SB_UNIT, "inner page");

typedef struct {
  sb_word root;
  sb_word tail; /* hint: the first position that may be FREE */
  sb_word head; /* hint: nothing interesting before it, except what `returned` bits say */
  sb_word base; /* first position of this incarnation, a multiple of 64 */
} sb_ring_shm;

enum {
  SB_RING_CELLS = 0,
  SB_RING_ALL,
  SB_RING_NON_ACQUIRING,
  SB_RING_NOT_INTERESTED,
  SB_RING_ROOM,
  SB_RING_SCHEDULE,
  SB_RING_INTERESTED, /* of a level */
  SB_RING_NOTIFIED,   /* of a level */
  SB_RING_MEMORY      /* of the broker */
};

enum { SB_OVERFLOW_BLOCK = 0, SB_OVERFLOW_DROP = 1, SB_OVERFLOW_DROP_HEAD = 2, SB_OVERFLOW_REJECT = 3 };

typedef struct {
  /* read by everybody, written by configuration */
  alignas(64) sb_word state;
  sb_word root, base; /* of the cells */
  _Atomic int64_t ring_size, max_length, max_bytes;
  sb_half overflow, flags;
  sb_half ledgers; /* first ledger, linked by `next` */
  sb_half levels;  /* first level, by descending priority */
  /* written by producers */
  alignas(64) sb_word tail;
  sb_word admitted; /* hint: places taken by producers; never below what is published */
  sb_word bytes_in; /* hint: body bytes that became ready */
  sb_word bound;    /* ring: evict while pending > bound */
  sb_word reserved0[4];
  /* written by consumers */
  alignas(64) sb_word head;
  sb_word taken; /* hint: cells that left AVAILABLE minus those that came back; raised before the CAS */
  sb_word bytes_out;
  sb_word returned;  /* 1: some page may have a `returned` bit */
  sb_word last_take; /* position of the last acquisition, for the missed-notification check */
  sb_word staged;    /* 1: commits put messages here, see I53 */
  sb_word reserved1[2];
  /* notification */
  alignas(64) _Atomic int32_t interested;
  _Atomic int32_t notified, not_interested, non_acquiring, consumers, room_waiting;
  _Atomic int32_t timers_lost,
      tracking; /* tracking: `taken`, `admitted` and the byte hints are kept; 2: and are to be set right. timers_lost: how often a message with a timer got no schedule entry: each housekeeper scans the cells then */
  sb_word rescues;
  sb_word exclusive; /* whose the queue is, see sb_claim.h: 28 node slot | bit 31: tentative | 32 its registration */
  alignas(64) sb_ring_shm all;
  sb_ring_shm non_acquiring_list, not_interested_list, room, schedule;
  sb_word created_ns;
  sb_half name_length, owner_connection; /* of an exclusive queue: whose it is, and the low bits of that one's epoch */
  sb_word owner_epoch;
  sb_word message_ttl_ms, expires_ms; /* count if their flags say so */
  sb_word used_ns;                    /* CLOCK_MONOTONIC: when it was last declared, read or consumed */
  sb_half had_consumer;
  sb_half room_watched; /* 1: a watch has waited for room: told of it, its program may do nothing for long */
  char name[SB_NAME_MAX + 1];
} sb_queue_shm;
_Static_assert(sizeof(sb_queue_shm) <= 3 * SB_UNIT, "queue");

/* One priority of consumers. Levels are added, never removed while the queue lives. */
typedef struct {
  alignas(64) _Atomic int32_t priority;
  sb_half next;
  sb_half queue;
  _Atomic int32_t interested_count, notified_count; /* hints */
  sb_ring_shm interested, notified;
} sb_level_shm;
_Static_assert(sizeof(sb_level_shm) <= SB_UNIT, "level");

#define SB_NODE_COUNTED 1u /* shows up in `consumers` */
#define SB_NODE_DIRECT 2u  /* a waiting call: woken by its own wake word */
#define SB_NODE_ROOM 4u    /* waits for room in the queue or for memory, not for messages */
#define SB_NODE_BROWSER 8u
#define SB_NODE_MEMORY 16u     /* ... and it is memory of the broker that it waits for */
#define SB_NODE_RESCUED 32u    /* notified by the housekeeper: takes a message although better consumers exist */
#define SB_NODE_MEMBER 64u     /* of a channel, which may have several at one queue */
#define SB_NODE_EXCLUSIVE 128u /* wants to be, or is, the only consumer */
#define SB_NODE_STANDBY 256u /* of a queue with a single active consumer, which it is not, or does not know yet to be */

/* A consumer of one queue, or a call that waits. Owned by its connection: ALLOC for its whole life. */
typedef struct {
  alignas(64) sb_word word;
  sb_half queue, level;
  sb_half flags, target;     /* index of the target in its connection */
  sb_half waiter;            /* node slot whose wake word is rung */
  sb_half prefetch, unacked; /* of a node that waits for room: prefetch is the bytes it waits for */
  _Atomic int32_t priority;
  sb_word delivered;
  sb_word flagged; /* 1: wants a turn; cleared by the IO thread before it looks */
  sb_half wake;    /* the wake word, a futex */
  sb_half pid;
  alignas(64) sb_word wakes; /* how often it was notified */
  sb_word created_ns;
  sb_half registration; /* epoch of its entry in All */
  sb_half channel;      /* number of the channel it is a member of, for whoever looks on; 0 = of none */
  sb_word reserved[5];
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
  SB_COUNT_SCHEDULED,   /* entered HELD */
  SB_COUNT_UNSCHEDULED, /* left HELD */
  SB_COUNT_DELIVERED,
  SB_COUNT_REFUSED, /* overflow "drop": came, and went nowhere; both `added` and `dropped` of the statistics */
  SB_COUNTERS = 16
};

enum {
  SB_INTENT_NONE = 0,
  SB_INTENT_ENQUEUE = 1,
  SB_INTENT_SETTLE = 2,
  SB_INTENT_DUE = 3,
  SB_INTENT_MOVE = 4,
  SB_INTENT_COMMIT = 5
};

/* One connection's account with one queue: single-writer counters and the intent of the operation under way.
 * It belongs to the queue; a connection owns it for a while, the next one carries the counters on. */
typedef struct {
  alignas(64) sb_word owner; /* 12 connection | 52 epoch; 0 connection = free */
  sb_half queue, next;
  sb_word holding; /* 32 epoch (low bits) | 32 cells held */
  sb_word kind;    /* intent: kind | counter << 8 | seq << 16, stored last */
  sb_word position;
  sb_word slot; /* slot | ref << 32 | ref of the target << 40 */
  sb_word gen;
  sb_word before; /* of the counter */
  alignas(64) sb_word before_bytes;
  sb_word bytes;
  sb_word target_queue,
      target_position; /* of a move; an enqueue, and a commit, notes here whether it is held, and that counter before */
  sb_word target_ledger, target_before, target_before_bytes;
  sb_word
      hinting; /* 32 how often raised | 32 depth: its owner is between two changes of hints that belong together, I23 */
  sb_word counters[SB_COUNTERS];
} sb_ledger_shm;
_Static_assert(sizeof(sb_ledger_shm) <= SB_UNIT, "ledger");

#define SB_HOLDINGS_PER_CHUNK 255u
#define SB_HOLDINGS_FIRST 1u /* entry 0 of a chunk announces the next chunk */
typedef struct {
  sb_half next, used; /* next chunk; entries ever used */
  sb_word reserved;
  sb_holding_shm entries[SB_HOLDINGS_PER_CHUNK];
} sb_holdings_shm;
_Static_assert(sizeof(sb_holdings_shm) == 16 * SB_UNIT, "holdings");

/* Whether a call of a connection is inside, see sb_grace.h. */
typedef struct {
  sb_word inside; /* 1: one is, or is about to take the lock of the connection */
  sb_word
      asked; /* how often somebody asked who drains: a call that finds more forgets what handles remember of pages */
} sb_gate_shm;

typedef struct {
  alignas(64) sb_half id, process;
  sb_half holdings; /* first chunk, 0 = none yet */
  sb_half waiter;   /* node slot of the IO thread, or 0 */
  sb_half channels; /* how many are open, for whoever looks on */
  sb_half reserved1;
  sb_word created_ns;
  sb_word delivered, published;
  sb_word commit; /* 1: what its holdings say of a commit happens, whoever does it (sb_commit.h) */
  sb_word reserved0;
  alignas(64) sb_gate_shm gate;
  alignas(64) sb_word work; /* bit w: work_targets[w] has a bit; the connection's flag */
  alignas(64) sb_word work_targets[SB_MAX_TARGETS / 64];
  sb_half claims[SB_MAX_CLASSES]; /* chunk*128+word whose hints this connection took, plus one; [0] whose it owes */
  char name[SB_NAME_MAX + 1];
} sb_connection_shm;
_Static_assert(sizeof(sb_connection_shm) <= 6 * SB_UNIT, "connection");

#endif
