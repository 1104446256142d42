# SPDX-License-Identifier: Apache-2.0
"""The shared memory as the C core sees it: its structs, constants and words, compiled out of its own headers.

Only what is named here has to exist there; where it lies, how wide it is and how a word is put together is what the
compiler says, so that a test which looks into a broker's memory has no numbers of its own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from cffi import FFI

CORE = Path(__file__).parents[3] / "cffi_src"
NAME = "_shmbroker_layout"

CONSTANTS = """
    SB_SETTING_RING_SIZE SB_SETTING_MAX_LENGTH SB_SETTING_MAX_BYTES SB_SETTING_OVERFLOW SB_SETTING_MAX_PRIORITY
    SB_SETTING_MAX_DELIVERY_ATTEMPTS SB_SETTING_REDELIVERY_DELAY_MS SB_SETTING_REDELIVERY_MULTIPLIER
    SB_SETTING_MAX_REDELIVERY_DELAY_MS SB_QUEUE_DEAD_LETTERS SB_SIDE_DELAYED SB_SIDE_WHY SB_WHY_DELIVERY_LIMIT
    SB_WHY_REJECTED
    SB_UNIT SB_CHUNK_UNITS SB_CHUNK_BYTES SB_CHUNK_META_BYTES SB_MAX_CHUNKS SB_MAX_CONNECTIONS SB_DIRECTORY_SIZE
    SB_OFF_CLASSES SB_OFF_PROCESSES SB_OFF_CONNECTIONS SB_OFF_CHUNKS SB_OFF_DIRECTORY SB_SEGMENT0_BYTES
    SB_PAGE_CELLS SB_HOLDINGS_PER_CHUNK SB_COUNTERS
    SB_SLOT_FREE SB_SLOT_ALLOC SB_SLOT_READ SB_SLOT_PUBLISHED
    SB_CELL_FREE SB_CELL_AVAILABLE SB_CELL_SCHEDULED SB_CELL_ACQUIRED SB_CELL_TOMBSTONE SB_CELL_ENTRY
    SB_LINK_PAGE SB_LINK_DONE SB_CONN_LIVE SB_DIR_EMPTY SB_DIR_LIVE SB_DIR_DEAD
    SB_CHUNK_FREE SB_CHUNK_CLASS SB_CHUNK_RUN SB_CHUNK_TAIL SB_CHUNK_CLAIMED
    SB_NODE_INTERESTED SB_HOLD_NONE SB_HOLD_CELL SB_HOLD_SLOT SB_HOLD_LEDGER SB_HOLD_VIEW
    SB_KIND_LEAF SB_KIND_INNER SB_KIND_QUEUE SB_KIND_NODE
    SB_COUNT_ADDED SB_COUNT_ADDED_BYTES SB_COUNT_ACKED SB_COUNT_SCHEDULED SB_COUNT_DEAD_LETTERED
"""

# "...;": there may be more fields, in any place.
STRUCTS = """
    typedef struct { uint64_t magic, layout_hash, memory_limit; uint32_t layout_major, layout_minor;
                     uint32_t chunks_per_segment, chunk_limit, segments, housekeeper_waiter, queue_count;
                     uint32_t memory_waiting; uint64_t housekeeper_ticks, rescues;
                     uint32_t repairs[...], explained_repairs[...]; ...; } sb_header_shm;
    typedef struct { uint32_t units, kind, hint_chunk; ...; } sb_class_shm;
    typedef struct { uint64_t word; int32_t pid; ...; } sb_process_shm;
    typedef struct { uint64_t headers[...]; uint64_t hints[...]; uint64_t summary[...]; ...; } sb_chunk_meta_shm;
    typedef struct { uint64_t body_length, due_ns; uint32_t body_offset, properties_length, key_length;
                     uint8_t priority; ...; } sb_message_shm;
    typedef struct { uint32_t object, ring; uint64_t first, done, requeued; ...; } sb_page_shm;
    typedef struct { uint64_t word, side; ...; } sb_cell_shm;
    typedef struct { sb_page_shm page; sb_cell_shm cells[...]; ...; } sb_leaf_shm;
    typedef struct { sb_page_shm page; uint64_t children[...]; ...; } sb_inner_shm;
    typedef struct { uint64_t root, tail, head, base; ...; } sb_ring_shm;
    typedef struct { uint64_t state, root, base, tail, head, admitted, taken, bytes_in, bytes_out, requeued;
                     int64_t settings[...]; uint32_t flags, ledgers, consumer_levels, name_length;
                     int32_t interested, notified, not_interested, non_acquiring, consumers, room_waiting;
                     int32_t tracking, timers_lost;
                     sb_ring_shm all, non_acquiring_list, not_interested_list, room, schedule;
                     uint64_t ready[...], came, closing; uint32_t lanes;
                     char name[...]; ...; } sb_queue_shm;
    typedef struct { sb_queue_shm queue; uint32_t texts_length; char texts[...]; ...; } sb_long_queue_shm;
    typedef struct { uint64_t root, base, tail, head, requeued; uint32_t queue, number, next; ...; } sb_lane_shm;
    typedef struct { int32_t priority; uint32_t next, queue; int32_t interested_count, notified_count;
                     sb_ring_shm interested, notified; ...; } sb_consumer_level_shm;
    typedef struct { uint64_t word; uint32_t queue, level, flags, registration; ...; } sb_node_shm;
    typedef struct { uint64_t owner, holding, kind; uint32_t queue, next; uint64_t counters[...]; ...; } sb_ledger_shm;
    typedef struct { uint64_t what, where; ...; } sb_holding_shm;
    typedef struct { uint32_t next, used; sb_holding_shm entries[...]; ...; } sb_holdings_shm;
    typedef struct { uint32_t id, process, holdings, waiter; ...; } sb_connection_shm;
"""

WORDS = """
    unsigned sb_slot_state(uint64_t); uint64_t sb_slot_refs(uint64_t); unsigned sb_slot_owner(uint64_t);
    uint64_t sb_slot_gen(uint64_t); uint64_t sb_slot_word(unsigned, uint64_t, uint64_t);
    unsigned sb_cell_state(uint64_t); uint32_t sb_cell_slot(uint64_t); unsigned sb_cell_ref(uint64_t);
    unsigned sb_cell_owner(uint64_t); uint64_t sb_cell_bare(unsigned, uint64_t);
    uint64_t sb_cell_open(unsigned, uint32_t, unsigned, uint64_t);
    uint64_t sb_cell_owned(unsigned, uint32_t, unsigned, unsigned, uint64_t);
    uint64_t sb_entry_word(uint32_t, uint32_t);
    unsigned sb_link_state(uint64_t); unsigned sb_link_height(uint64_t); uint32_t sb_link_slot(uint64_t);
    uint64_t sb_link_gen(uint64_t); uint64_t sb_link_word(unsigned, uint32_t, uint64_t);
    unsigned sb_node_state(uint64_t); unsigned sb_node_conn(uint64_t); uint32_t sb_node_epoch(uint64_t);
    uint64_t sb_node_word(unsigned, unsigned, uint32_t);
    unsigned sb_conn_state(uint64_t); unsigned sb_conn_process(uint64_t); uint32_t sb_conn_slot(uint64_t);
    uint64_t sb_conn_epoch(uint64_t); uint64_t sb_conn_word(unsigned, unsigned, uint32_t, uint64_t);
    unsigned sb_chunk_state(uint64_t); unsigned sb_chunk_class(uint64_t); unsigned sb_chunk_run(uint64_t);
    uint64_t sb_chunk_word(unsigned, unsigned, unsigned, unsigned);
    unsigned sb_side_why_of(uint64_t); unsigned sb_side_count(uint64_t); uint64_t sb_side_gen(uint64_t);
    uint64_t sb_position_in(unsigned, uint64_t); unsigned sb_position_lane(uint64_t);
    uint64_t sb_holding_what(unsigned, uint32_t, uint64_t); unsigned sb_holding_kind(uint64_t);
    uint32_t sb_holding_slot(uint64_t);
"""

# Atomic types have the size and place of plain ones; to look at memory that rests, plain ones do.
PROLOGUE = """
    #include <stdatomic.h>
    #include <pthread.h>
    #define _Atomic
    #include "sb_connection.h"
"""


@functools.cache
def compiled() -> Any:  # noqa: ANN401 (a module of cffi)
    """Return the module with `ffi` and `lib`; made once in a process."""
    ffi = FFI()
    ffi.cdef("\n".join(f"#define {name} ..." for name in CONSTANTS.split()) + STRUCTS + WORDS)
    ffi.set_source(NAME, PROLOGUE)
    with tempfile.TemporaryDirectory() as folder:
        source, native = Path(folder, f"{NAME}.c"), Path(folder, f"{NAME}.so")
        with contextlib.redirect_stdout(None):  # it says what it writes
            ffi.emit_c_code(str(source))
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        includes = [sysconfig.get_path("include"), CORE / "include", *(CORE / "src").iterdir()]
        options = ["-shared", "-fPIC", "-D_GNU_SOURCE", *(f"-I{include}" for include in includes)]
        subprocess.run([*compiler, *options, str(source), "-o", str(native)], check=True)
        loader = importlib.machinery.ExtensionFileLoader(NAME, str(native))
        spec = importlib.util.spec_from_loader(NAME, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module
