// SPDX-License-Identifier: Apache-2.0
/* Words: the fields that are packed into one word, so that one CAS changes them together. A word has 64 bits, the wake
 * word 32.
 *
 * What: the states of a kind of word, a function that packs it, and functions that read its fields, as far as a kind
 * needs them. sb_layout.h declares the structs that contain the words, and has the fields of some simple ones.
 *
 * Layout: given beside each kind, from the lowest bit up. In most kinds the highest bits are a generation or an epoch,
 * so that a CAS that expects an outdated word fails.
 *
 * Invariants: I1, I2 and I3 of sb_layout.h. The numbers of the states are part of the layout, since other processes
 * read them.
 *
 * Ordering pairs: none; the code that loads and stores a word names its pair.
 *
 * Death, Concurrency: these functions compute values and change no shared memory.
 */
#ifndef SB_WORDS_H
#define SB_WORDS_H

#include "shmbroker.h"

#define SB_BITS(value, shift, width) (((uint64_t)(value) >> (shift)) & ((UINT64_C(1) << (width)) - 1u))
#define SB_FIELD(value, shift) ((uint64_t)(value) << (shift))

/* ---- slot header, by state. PUBLISHED: 2 state | 24 references | 38 generation.
 *      ALLOC: 2 state | 12 owner | 8 spare | 1 of run | 1 drained | 1 part | 1 in parts | 38 generation.
 *      READ (published, and being read in place): 2 state | 12 references | 12 reader | 38 generation ---- */
enum { SB_SLOT_FREE = 0, SB_SLOT_ALLOC = 1, SB_SLOT_READ = 2, SB_SLOT_PUBLISHED = 3 };
#define SB_MAX_REFS 24u
#define SB_READ_REFS 12u /* references that a READ slot can have */
/* The reference bit that every head has: a head is a slot whose body lies in parts. The bit is set from ALLOC on, and
 * is never the reference of a cell of the head. Other published slots may use the bit as an ordinary reference
 * (sb_parts_is_head). */
#define SB_PARTS_REF 23u
#define SB_GEN_MASK ((UINT64_C(1) << SB_GENERATION_BITS) - 1u)
static inline unsigned sb_slot_state(uint64_t h) { return (unsigned)SB_BITS(h, 0, 2); }
/* the bits of state and references: a FREE slot has none of them */
#define SB_SLOT_IN_USE ((UINT64_C(1) << (2 + SB_MAX_REFS)) - 1u)
static inline bool sb_slot_is_published(uint64_t h) { return sb_slot_state(h) >= SB_SLOT_READ; }
static inline uint64_t sb_slot_refs(uint64_t h) {
  return SB_BITS(h, 2, 24) & (sb_slot_state(h) == SB_SLOT_READ ? (1u << SB_READ_REFS) - 1u : (1u << SB_MAX_REFS) - 1u);
}
static inline unsigned sb_slot_owner(uint64_t h) { return (unsigned)SB_BITS(h, 2, 12); }
static inline unsigned sb_slot_reader(uint64_t h) { return (unsigned)SB_BITS(h, 14, 12); }
static inline uint64_t sb_slot_gen(uint64_t h) { return h >> 26; }
/* True if the slot may be a head, whose body lies in other slots; sb_parts_is_head decides. In a READ slot the bit of
 * SB_PARTS_REF belongs to the reader's id. */
static inline bool sb_slot_in_parts(uint64_t h) {
  unsigned state = sb_slot_state(h);
  return (state == SB_SLOT_ALLOC || state == SB_SLOT_PUBLISHED) && SB_BITS(h, 2 + SB_PARTS_REF, 1) != 0;
}
/* The bit that marks a part: an ALLOC slot with this bit and no owner. A part belongs to the head that it names
 * (sb_parts.h). This bit and the next two count from bit 2 of the header, as `field` of sb_slot_word. */
#define SB_SLOT_PART (UINT64_C(1) << 22)
static inline bool sb_slot_is_part(uint64_t h) {
  return sb_slot_state(h) == SB_SLOT_ALLOC && SB_BITS(h, 2, SB_MAX_REFS) == SB_SLOT_PART;
}
/* The bit that marks a drained slot: an ALLOC slot with this bit and an owner. The owner is the connection that took
 * the slot in order to drain its chunk (sb_drained.h). */
#define SB_SLOT_DRAINED (UINT64_C(1) << 21)
static inline bool sb_slot_is_drained(uint64_t h) {
  return sb_slot_state(h) == SB_SLOT_ALLOC && SB_BITS(h, 14, 12) == SB_SLOT_DRAINED >> 12;
}
/* The bit that marks the slot of a run that is being drained: an ALLOC slot with this bit and an owner. The owner is
 * the connection that took the slot in order to drain the run (sb_chunk_drain). No other slot has the bit, so a reaper
 * of the owner may free the slot, even if the chunk has another use by then. */
#define SB_SLOT_OF_RUN (UINT64_C(1) << 20)
static inline uint64_t sb_slot_word(unsigned state, uint64_t field, uint64_t gen) {
  return (uint64_t)state | SB_FIELD(field, 2) | SB_FIELD(gen & SB_GEN_MASK, 26);
}

/* ---- ring cell, by state; the generation is that of the page. AVAILABLE, SCHEDULED, FROZEN: 4 state | 28 slot | 5 reference |
 *      27 generation. ACQUIRED, REMOVING, STAGED: 4 state | 28 slot | 5 reference | 12 owner | 15 generation.
 *      FREE, TOMBSTONE, CLOSING, CLOSED: 4 state | 38 generation | flags ---- */
enum {
  SB_CELL_FREE = 1,
  SB_CELL_AVAILABLE = 2,
  SB_CELL_SCHEDULED = 3,
  SB_CELL_ACQUIRED = 4,
  SB_CELL_REMOVING = 5,
  SB_CELL_STAGED = 6, /* part of a commit that is undecided, or decided and not yet carried out here */
  SB_CELL_TOMBSTONE = 7,
  SB_CELL_CLOSING = 8,
  SB_CELL_CLOSED = 9,
  SB_CELL_ENTRY = 10, /* lists: 4 state | 28 node | 32 epoch; schedule: 4 state | 60 position */
  SB_CELL_FROZEN = 11 /* AVAILABLE, in a leaf that is about to leave the memory (sb_paged.h) */
};
#define SB_CLOSING_IF_UNUSED (UINT64_C(1) << 42)
#define SB_CLOSING_IF_EMPTY (UINT64_C(1) << 43)
#define SB_CLOSING_IF_SETTLED (UINT64_C(1) << 44)
static inline unsigned sb_cell_state(uint64_t c) { return (unsigned)SB_BITS(c, 0, 4); }
static inline uint32_t sb_cell_slot(uint64_t c) { return (uint32_t)SB_BITS(c, 4, SB_SLOT_BITS); }
static inline unsigned sb_cell_ref(uint64_t c) { return (unsigned)SB_BITS(c, 32, 5); }
static inline unsigned sb_cell_owner(uint64_t c) { return (unsigned)SB_BITS(c, 37, 12); }
static inline uint64_t sb_cell_bare(unsigned state, uint64_t gen) {
  return (uint64_t)state | SB_FIELD(gen & SB_GEN_MASK, 4);
}
static inline uint64_t sb_cell_bare_gen(uint64_t c) { return SB_BITS(c, 4, 38); }
static inline uint64_t sb_cell_open(unsigned state, uint32_t slot, unsigned ref, uint64_t gen) {
  return (uint64_t)state | SB_FIELD(slot, 4) | SB_FIELD(ref, 32) | SB_FIELD(gen & 0x7ffffffu, 37);
}
static inline uint64_t sb_cell_owned(unsigned state, uint32_t slot, unsigned ref, unsigned owner, uint64_t gen) {
  return (uint64_t)state | SB_FIELD(slot, 4) | SB_FIELD(ref, 32) | SB_FIELD(owner, 37) | SB_FIELD(gen & 0x7fffu, 49);
}
static inline bool sb_cell_has_message(uint64_t c) {
  unsigned s = sb_cell_state(c);
  return (s >= SB_CELL_AVAILABLE && s <= SB_CELL_STAGED) || s == SB_CELL_FROZEN;
}
static inline bool sb_cell_is_owned(uint64_t c) {
  unsigned s = sb_cell_state(c);
  return s >= SB_CELL_ACQUIRED && s <= SB_CELL_STAGED;
}
/* True if the word belongs to generation `gen` of the page. Always true for an ENTRY, which has no generation. */
static inline bool sb_cell_of(uint64_t c, uint64_t gen) {
  switch (sb_cell_state(c)) {
    case SB_CELL_AVAILABLE:
    case SB_CELL_SCHEDULED:
    case SB_CELL_FROZEN: return (c >> 37) == (gen & 0x7ffffffu);
    case SB_CELL_ACQUIRED:
    case SB_CELL_REMOVING:
    case SB_CELL_STAGED: return (c >> 49) == (gen & 0x7fffu);
    case SB_CELL_ENTRY: return true;
    default: return sb_cell_bare_gen(c) == gen;
  }
}
static inline uint64_t sb_entry_word(uint32_t node, uint32_t epoch) {
  return (uint64_t)SB_CELL_ENTRY | SB_FIELD(node, 4) | SB_FIELD(epoch, 32);
}

/* ---- cell side record: 38 slot generation | 16 delivery count | flags; written only while the cell is ACQUIRED or
 *      REMOVING ---- */
#define SB_SIDE_REDELIVERED (UINT64_C(1) << 54)
/* Of a parked message (sb_park.h). DELAYED: the low 38 bits are the end of its delay, in units of SB_DELAY_NS of
 * CLOCK_MONOTONIC. Bits 56 to 59: why it is dead. */
#define SB_SIDE_DELAYED (UINT64_C(1) << 55)
#define SB_DELAY_NS UINT64_C(1000000)
typedef enum { SB_WHY_ALIVE, SB_WHY_REJECTED, SB_WHY_EXPIRED, SB_WHY_MAX_LENGTH, SB_WHY_DELIVERY_LIMIT } sb_why;
#define SB_SIDE_WHY (UINT64_C(15) << 56)
/* Of a held message: the first one of its group that its consumer got (sb_firsts.h). */
#define SB_SIDE_GROUP_FIRST (UINT64_C(1) << 60)
static inline uint64_t sb_side_why(sb_why why) { return SB_FIELD((unsigned)why, 56); }
static inline sb_why sb_side_why_of(uint64_t s) { return (sb_why)SB_BITS(s, 56, 4); }
static inline uint64_t sb_side_gen(uint64_t s) { return s & SB_GEN_MASK; }
static inline unsigned sb_side_count(uint64_t s) { return (unsigned)SB_BITS(s, 38, 16); }
#define SB_SIDE_MOST_COUNTED 0xffffu
static inline uint64_t sb_side_word(uint64_t gen, unsigned count, uint64_t flags) {
  return (gen & SB_GEN_MASK) | SB_FIELD(count > SB_SIDE_MOST_COUNTED ? SB_SIDE_MOST_COUNTED : count, 38) | flags;
}

/* ---- entry of the id of a message (sb_duplicates.h), by state. FREE: 2 state. WRITING, CLAIMED: 2 state | 12 owner |
 *      50 tag. KNOWN: 2 state | 62 number. In the holdings, its place: 12 index in its block | 52 tag ---- */
enum { SB_ID_FREE = 0, SB_ID_WRITING = 1, SB_ID_CLAIMED = 2, SB_ID_KNOWN = 3 };
static inline unsigned sb_id_state(uint64_t w) { return (unsigned)SB_BITS(w, 0, 2); }
static inline unsigned sb_id_owner(uint64_t w) { return (unsigned)SB_BITS(w, 2, 12); }
static inline uint64_t sb_id_tag(uint64_t w) { return w >> 14; }
static inline uint64_t sb_id_number(uint64_t w) { return w >> 2; }
static inline uint64_t sb_id_word(unsigned state, unsigned owner, uint64_t tag) {
  return (uint64_t)state | SB_FIELD(owner, 2) | SB_FIELD(tag, 14);
}
static inline uint64_t sb_id_known(uint64_t number) { return (uint64_t)SB_ID_KNOWN | SB_FIELD(number, 2); }
static inline uint64_t sb_id_place(uint32_t index, uint64_t tag) { return (uint64_t)index | SB_FIELD(tag, 12); }
static inline uint32_t sb_id_place_index(uint64_t place) { return (uint32_t)SB_BITS(place, 0, 12); }
static inline uint64_t sb_id_place_tag(uint64_t place) { return place >> 12; }

/* ---- position of a message: 60 bits, as many as an entry of the schedule has room for: 52 place in its lane | 8 number
 *      of the lane (sb_lanes.h). A queue without priorities has only lane 0 ---- */
#define SB_POSITION_BITS 60u
#define SB_LANE_BITS 8u
#define SB_LANES (1u << SB_LANE_BITS)
#define SB_PLACE_BITS (SB_POSITION_BITS - SB_LANE_BITS)
static inline unsigned sb_position_lane(uint64_t p) { return (unsigned)SB_BITS(p, SB_PLACE_BITS, SB_LANE_BITS); }
static inline uint64_t sb_position_place(uint64_t p) { return SB_BITS(p, 0, SB_PLACE_BITS); }
static inline uint64_t sb_position_in(unsigned lane, uint64_t place) {
  return SB_BITS(place, 0, SB_PLACE_BITS) | SB_FIELD(lane, SB_PLACE_BITS);
}

/* ---- closing word of a queue with several lanes (sb_closing.h): 2 state | 3 conditions | 59 number of the last deletion
 *      that was asked for ---- */
enum { SB_ASKED_NOT = 0, SB_ASKED = 1, SB_ASKED_CLOSED = 2 };
static inline unsigned sb_closing_state(uint64_t w) { return (unsigned)SB_BITS(w, 0, 2); }
static inline unsigned sb_closing_conditions(uint64_t w) { return (unsigned)SB_BITS(w, 2, 3); }
static inline uint64_t sb_closing_number(uint64_t w) { return w >> 5; }
static inline uint64_t sb_closing_word(unsigned state, unsigned conditions, uint64_t number) {
  return (uint64_t)state | SB_FIELD(conditions, 2) | SB_FIELD(number, 5);
}

/* ---- page link (root and children), by state. EMPTY: 2 state | 62 generation of the page that contains the link; in a
 *      root instead the `base` of the ring, divided by 64. DONE: 2 state. PAGE: 2 state | 4 height | 28 slot |
 *      30 low bits of the linked page's generation. PAGED: 2 state | 1 marked | 29 low bits of the generation of the page
 *      that contains the link | 32 number of the departure (sb_paged.h) ---- */
enum { SB_LINK_EMPTY = 0, SB_LINK_DONE = 1, SB_LINK_PAGE = 2, SB_LINK_PAGED = 3 };
#define SB_LINK_MARKED UINT64_C(4) /* of a PAGED link: searches may have passed a message that it leads to */
static inline uint64_t sb_link_paged(uint64_t parent_gen, uint32_t number) {
  return (uint64_t)SB_LINK_PAGED | SB_FIELD(parent_gen & 0x1fffffffu, 3) | SB_FIELD(number, 32);
}
static inline unsigned sb_link_state(uint64_t l) { return (unsigned)SB_BITS(l, 0, 2); }
static inline uint64_t sb_link_empty(uint64_t gen) { return SB_FIELD(gen, 2); }
static inline uint64_t sb_link_base(uint64_t root) { return root >> 2; } /* of an EMPTY root: the base, divided by 64 */
static inline uint64_t sb_link_word(unsigned height, uint32_t slot, uint64_t gen) {
  return UINT64_C(2) | SB_FIELD(height, 2) | SB_FIELD(slot, 6) | SB_FIELD(gen & 0x3fffffffu, 34);
}
static inline unsigned sb_link_height(uint64_t l) { return (unsigned)SB_BITS(l, 2, 4); }
static inline uint32_t sb_link_slot(uint64_t l) { return (uint32_t)SB_BITS(l, 6, SB_SLOT_BITS); }
static inline uint64_t sb_link_gen(uint64_t l) { return l >> 34; }

/* ---- consumer node: 3 state (SB_NODE_..., see shmbroker.cdef.h) | 12 connection | 17 spare | 32 epoch (raised by
 *      every move of the node, never reset) ---- */
static inline unsigned sb_node_state(uint64_t n) { return (unsigned)SB_BITS(n, 0, 3); }
static inline unsigned sb_node_conn(uint64_t n) { return (unsigned)SB_BITS(n, 3, 12); }
static inline uint32_t sb_node_epoch(uint64_t n) { return (uint32_t)(n >> 32); }
static inline uint64_t sb_node_word(unsigned state, unsigned conn, uint32_t epoch) {
  return (uint64_t)state | SB_FIELD(conn, 3) | SB_FIELD(epoch, 32);
}

/* ---- wake word (u32 futex): 2 state | 30 sequence ---- */
enum { SB_WAKE_RUN = 0, SB_WAKE_ARMED = 1, SB_WAKE_PENDING = 2, SB_WAKE_NOTIFIED = 3 };

/* ---- process slot: 2 state | 62 epoch;  connection: 2 state | 12 process | 28 record slot | 22 epoch ---- */
enum { SB_PROC_FREE = 0, SB_PROC_LIVE = 1 };
static inline unsigned sb_proc_state(uint64_t w) { return (unsigned)SB_BITS(w, 0, 2); }
static inline uint64_t sb_proc_epoch(uint64_t w) { return w >> 2; }
static inline uint64_t sb_proc_word(unsigned state, uint64_t epoch) { return (uint64_t)state | SB_FIELD(epoch, 2); }
enum { SB_CONN_FREE = 0, SB_CONN_LIVE = 1 };
static inline unsigned sb_conn_state(uint64_t w) { return (unsigned)SB_BITS(w, 0, 2); }
static inline unsigned sb_conn_process(uint64_t w) { return (unsigned)SB_BITS(w, 2, 12); }
static inline uint32_t sb_conn_slot(uint64_t w) { return (uint32_t)SB_BITS(w, 14, SB_SLOT_BITS); }
static inline uint64_t sb_conn_epoch(uint64_t w) { return w >> 42; }
static inline uint64_t sb_conn_word(unsigned state, unsigned process, uint32_t slot, uint64_t epoch) {
  return (uint64_t)state | SB_FIELD(process, 2) | SB_FIELD(slot, 14) | SB_FIELD(epoch, 42);
}

/* ---- chunk: 3 state | 12 owner (while draining or claiming) | 6 class | 16 run length (of a TAIL: its distance to the
 *      head) | 1 opened out of the reserve | 1 taken over while draining | 25 low bits of a generation: in a RUN, of
 *      the one that its slot had when the run was made ---- */
enum {
  SB_CHUNK_FREE = 0,
  SB_CHUNK_CLASS = 1,
  SB_CHUNK_RUN = 2,
  SB_CHUNK_TAIL = 3,
  SB_CHUNK_DRAINING = 4,
  SB_CHUNK_CLAIMED = 5
};
static inline unsigned sb_chunk_state(uint64_t w) { return (unsigned)SB_BITS(w, 0, 3); }
static inline unsigned sb_chunk_owner(uint64_t w) { return (unsigned)SB_BITS(w, 3, 12); }
static inline unsigned sb_chunk_class(uint64_t w) { return (unsigned)SB_BITS(w, 15, 6); }
static inline unsigned sb_chunk_run(uint64_t w) { return (unsigned)SB_BITS(w, 21, 16); }
#define SB_CHUNK_OF_RESERVE (UINT64_C(1) << 37) /* plain puts take no slot of this chunk (sb_reserve.h) */
#define SB_CHUNK_TAKEN_OVER (UINT64_C(1) << 38) /* the owner took the chunk over from its drainer (sb_drained.h) */
/* True if the chunk has slots of a class. A chunk that is being drained still has them: draining may fail. */
static inline bool sb_chunk_has_slots(uint64_t w) {
  return sb_chunk_state(w) == SB_CHUNK_CLASS || (sb_chunk_state(w) == SB_CHUNK_DRAINING && sb_chunk_run(w) == 0);
}
static inline uint64_t sb_chunk_word(unsigned state, unsigned owner, unsigned cls, unsigned run) {
  return (uint64_t)state | SB_FIELD(owner, 3) | SB_FIELD(cls, 15) | SB_FIELD(run, 21);
}
/* The word of the head of a run. Runs that follow each other in the same chunks have different words, since their slots
 * have different generations. */
static inline uint64_t sb_run_word(unsigned run, uint64_t gen) {
  return sb_chunk_word(SB_CHUNK_RUN, 0, 0, run) | SB_FIELD(gen, 39);
}

/* ---- queue: 2 state | 62 incarnation ---- */
enum { SB_QUEUE_NONE = 0, SB_QUEUE_OPEN = 1, SB_QUEUE_CLOSED = 2, SB_QUEUE_FREEING = 3 };
static inline unsigned sb_queue_state(uint64_t w) { return (unsigned)SB_BITS(w, 0, 2); }
static inline bool sb_queue_is_deleted(uint64_t w) {
  return sb_queue_state(w) == SB_QUEUE_CLOSED || sb_queue_state(w) == SB_QUEUE_FREEING;
}
static inline uint64_t sb_queue_incarnation(uint64_t w) { return w >> 2; }
static inline uint64_t sb_queue_word(unsigned state, uint64_t incarnation) {
  return (uint64_t)state | SB_FIELD(incarnation, 2);
}

/* ---- directory entry: 2 state | 28 queue slot | 34 name hash. CLOSED: the queue was deleted and is not freed yet.
 *      DEAD: the entry was removed; a search for a name continues with the next entry ---- */
enum { SB_DIR_EMPTY = 0, SB_DIR_LIVE = 1, SB_DIR_DEAD = 2, SB_DIR_CLOSED = 3 };
static inline unsigned sb_dir_state(uint64_t e) { return (unsigned)SB_BITS(e, 0, 2); }
static inline uint32_t sb_dir_slot(uint64_t e) { return (uint32_t)SB_BITS(e, 2, 28); }
static inline uint64_t sb_dir_hash(uint64_t e) { return e >> 30; }
static inline uint64_t sb_dir_word(unsigned state, uint32_t slot, uint64_t hash) {
  return (uint64_t)state | SB_FIELD(slot, 2) | SB_FIELD(hash, 30);
}

/* ---- topology intent: 32 queue slot | 32 change that is under way, 0 none ---- */
enum { SB_CHANGE_DELETE = 1, SB_CHANGE_CONFIGURE = 2, SB_CHANGE_UNBIND = 3 };
static inline uint64_t sb_topology_word(unsigned change, uint32_t slot) {
  return (uint64_t)slot | SB_FIELD(change, 32);
}

#endif
