# SPDX-License-Identifier: Apache-2.0
"""Numbers and layouts that Python repeats agree with those of the core."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from shmbroker import _native_message, message, statistics
from shmbroker._amqp.utf8 import check_queue_name
from shmbroker._broker.making import check_name
from shmbroker._core import columns, facts, findings, native, occupancy, record
from shmbroker.channel.deliveries import Subscription
from shmbroker.storage import messages as stored
from shmbroker.storage import rows

SOURCES = Path(__file__).parents[2] / "cffi_src"
CODE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.h")))
LIB, FFI = native.slow, native.ffi

# ---- words for enumerators ----

# The keys of a table are the enumerators with a prefix, except the names in the last column.
TABLES: dict[str, tuple[dict[int, str], str, set[str]]] = {
    "kinds in findings": (findings._KINDS, "SB_KIND_", set()),  # noqa: SLF001
    "kinds of a full broker": (occupancy._STRUCTURES, "SB_KIND_", {"SB_KIND_MESSAGE", "SB_KIND_COUNT"}),  # noqa: SLF001
    "rings in findings": (findings._RINGS, "SB_RING_", set()),  # noqa: SLF001
    "states in findings": (findings._STATES, "SB_NODE_", {"SB_NODE_COUNTED", "SB_NODE_DIRECT"}),  # noqa: SLF001
    "states of consumers": (facts._STATES, "SB_NODE_", {"SB_NODE_COUNTED", "SB_NODE_DIRECT"}),  # noqa: SLF001
}


@pytest.mark.parametrize("name", TABLES)
def test_each_enumerator_has_its_word(name: str) -> None:
    """Each member of the enumeration of the core has a word, and no two members share a word."""
    table, prefix, others = TABLES[name]
    members = {one: getattr(LIB, one) for one in dir(LIB) if one.startswith(prefix) and one not in others}
    assert set(table) == set(members.values())
    assert len(set(table.values())) == len(members)


def enumerators(prefix: str) -> list[str]:
    """Return the enumerators with a prefix in the core's headers, in order, in lower case and without the prefix."""
    body = next(body for body in re.findall(r"enum \{(.*?)\}", CODE, re.DOTALL) if prefix in body)
    return [name.lower().replace("_", "-") for name in re.findall(rf"\b{prefix}(\w+)", body)]


def test_repairs_are_in_the_order_of_the_core() -> None:
    """The fields of the statistics have the order of the core's array, which they take by position."""
    fields = statistics.Repairs.__dataclass_fields__
    assert [field.removesuffix("s") for field in fields] == enumerators("SB_REPAIR_")


# ---- structures that Python decodes without cffi ----

# The structure, the format, and the fields in the order of the format.
FORMATS: dict[str, tuple[struct.Struct, tuple[str, ...]]] = {
    "sb_record": (record._HEADER, record.Header._fields),  # noqa: SLF001
    "sb_place": (columns._PLACES, ("generation", "length", "slot", "reserved")),  # noqa: SLF001
}


@pytest.mark.parametrize("structure", FORMATS)
def test_a_format_is_that_of_the_structure(structure: str) -> None:
    """The format has the size of the structure and the offset and size of each field; all fields are unsigned."""
    form, fields = FORMATS[structure]
    order, codes = form.format[0], form.format[1:]
    described = dict(FFI.typeof(structure).fields)
    assert set(fields) == set(described)
    assert len(fields) == len(codes)
    assert form.size == FFI.sizeof(structure)
    for at, (field, code) in enumerate(zip(fields, codes, strict=True)):
        assert (field, struct.calcsize(order + codes[:at])) == (field, FFI.offsetof(structure, field))
        assert (field, struct.calcsize(order + code)) == (field, FFI.sizeof(described[field].type))
        assert code.isupper()


def test_parts_of_a_record() -> None:
    """The size of the front, and the slice that shows whether a body is read in place, are those of the core."""
    address = record._ADDRESS  # noqa: SLF001
    assert FFI.sizeof("sb_record") == record.SIZE
    assert address.start == FFI.offsetof("sb_record", "body_address")
    assert address.stop - address.start == FFI.sizeof("uint64_t")


# ---- structures that Python copies ----

# The structure, the fields of the copy, and the fields that the copy omits.
COPIES: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "sb_queue_facts": ((*facts.QueueFacts._fields, *facts._STATISTICS), {"name_length", "reading", "misses"}),  # noqa: SLF001
    "sb_settings": (facts.SettingsFacts._fields, {"texts"}),
    "sb_broker_facts": ((*facts.BrokerFacts._fields, *facts._BROKER_STATISTICS.values()), {"name"}),  # noqa: SLF001
    "sb_regions": (facts._REGIONS, {"watermark", "has_watermark", "gap", "incarnation", "at", "run"}),  # noqa: SLF001
    "sb_finding": (findings.Finding._fields, set()),
}


@pytest.mark.parametrize("structure", COPIES)
def test_a_copy_has_each_field(structure: str) -> None:
    """The fields are compared by name: their order may differ, but no field may be missing."""
    fields, omitted = COPIES[structure]
    assert set(fields) | omitted == {name for name, _ in FFI.typeof(structure).fields}


# ---- numbers ----

# The number in Python, and the number in C.
NUMBERS: dict[str, tuple[Any, Any]] = {
    "no deadline": (native.FOR_EVER, int(FFI.cast("uint64_t", -1))),
    "the longest record": (native.RECORD_BYTES, record.SIZE + LIB.SB_MAX_PREFIX + LIB.SB_INLINE_BODY),
    "an open message": (message.OPEN, _native_message.OPEN),
    "a settled message": (message.SETTLED, _native_message.SETTLED),
    "a browsed message": (message._BROWSED, _native_message.BROWSED),  # noqa: SLF001
    "a message on its way": (message.FRESH, _native_message.FRESH),
    "the names of a subscription": (Subscription._fields.index("names"), _native_message.NAMES),
    "the callback of a subscription": (Subscription._fields.index("callback"), _native_message.CALLBACK),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_that_of_the_core(name: str) -> None:
    """A number that Python and C both define is the same in both."""
    here, there = NUMBERS[name]
    assert here == there


def defined(name: str) -> int:
    """Return the number of a macro of the core."""
    return int(re.findall(rf"^#define {name} (\d+)u?\b", CODE, re.MULTILINE)[0])


def test_names_have_the_length_that_the_core_stores() -> None:
    """The checks allow the longest names of a queue and of a broker that the core stores, and no longer names."""
    for check, most in ((check_queue_name, LIB.SB_NAME_MAX), (check_name, defined("SB_BROKER_NAME_MAX"))):
        assert check("n" * most) == "n" * most
        with pytest.raises(ValueError, match="are allowed"):
            check("n" * (most + 1))


def test_spark_knows_the_sizes_of_slots() -> None:
    """The sizes in Spark's hand-over are those of the core, from the shortest that it lists on."""
    memory = pytest.importorskip("shmbroker.spark.handover.memory_share")
    source = (SOURCES / "src" / "memory" / "sb_chunk.c").read_text(encoding="utf-8")
    units = re.findall(r"CLASS\((\d+)\)", source.partition("CLASS(SB_LEAF_UNITS)")[0])
    sizes = [int(number) * defined("SB_UNIT") for number in units]
    known = memory._SLOTS  # noqa: SLF001
    assert list(known) == sizes[sizes.index(known[0]) :]


def test_the_head_of_a_stored_message_is_that_of_the_core() -> None:
    """The format has the fields of the structure, in their order and with their sizes; the bits are the core's."""
    body = re.findall(r"typedef struct \{([^}]*)\} sb_row_entry;", CODE)[0]
    fields = [
        (name.strip(), int(bits) // 8)
        for bits, names in re.findall(r"uint(\d+)_t ([^;]*);", body)
        for name in names.split(",")
    ]
    sizes = [struct.calcsize(f"<{code}") for code in stored.ENTRY.format[1:]]
    assert list(zip(stored.FIELDS, sizes, strict=True)) == fields
    assert stored.ENTRY.size == rows.ENTRY
    assert (defined("SB_ROW_REDELIVERED"), defined("SB_ROW_WHY")) == (stored.REDELIVERED, stored.WHY)
    assert defined("SB_MESSAGE_REJECTED") == stored.REJECTED
