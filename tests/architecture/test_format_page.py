# SPDX-License-Identifier: Apache-2.0
"""The page on the format of the shared memory agrees with `sb_layout.h` as the compiler sees it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shmbroker._core import native

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "cffi_src/src"
LAYOUT = (SOURCES / "platform" / "sb_layout.h").read_text(encoding="utf-8")
PAGE = (ROOT / "docs/reference/shm-format.md").read_text(encoding="utf-8")

# The headings of the page, and their structs.
STRUCTS = {
    "Header": "sb_header_shm",
    "Process slot": "sb_process_shm",
    "Class": "sb_class_shm",
    "Chunk metadata": "sb_chunk_meta_shm",
    "Message header": "sb_message_shm",
    "Parts": "sb_parts_shm",
    "Part": "sb_part_shm",
    "Ring": "sb_ring_shm",
    "Page header": "sb_page_shm",
    "Leaf": "sb_leaf_shm",
    "Long leaf": "sb_long_leaf_shm",
    "Inner page": "sb_inner_shm",
    "Cell": "sb_cell_shm",
    "Queue": "sb_queue_shm",
    "Long queue": "sb_long_queue_shm",
    "Lane": "sb_lane_shm",
    "Groups": "sb_groups_shm",
    "Value node": "sb_value_node_shm",
    "Ids": "sb_ids_shm",
    "Id": "sb_id_shm",
    "Consumer level": "sb_consumer_level_shm",
    "Node": "sb_node_shm",
    "Ledger": "sb_ledger_shm",
    "Connection record": "sb_connection_shm",
    "Gate": "sb_gate_shm",
    "Holdings": "sb_holdings_shm",
    "Holding": "sb_holding_shm",
}
SECTION = re.compile(r"^##+ ([\w ]+): (\d+) bytes\n(.*?)(?=^##+ |\Z)", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| (\d+) \| (\d+) \|(?: [^|]+ \|)? `(\w+)(?:\[\d+\])?` \|", re.MULTILINE)
STRUCT = re.compile(r"typedef struct \{(.*?)\n\} (sb_\w+_shm);", re.DOTALL)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
NAME = re.compile(r"\b(\w+)(?:\[[^\]]*\])?$")
COMPILER = shutil.which("cc") or shutil.which("gcc")


def fields_of(body: str) -> list[str]:
    """Return the names of a struct's fields, except reserved fields."""
    statements = re.sub(r"alignas\(\d+\)", "", COMMENT.sub("", body)).split(";")
    names = [NAME.search(part.strip()) for statement in statements for part in statement.split(",")]
    return [name[1] for name in names if name and not name[1].startswith("reserved")]


FIELDS = {struct: fields_of(body) for body, struct in STRUCT.findall(LAYOUT)}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, dict[str, tuple[int, int]]]]:
    """Ask the compiler for the size of each struct, and the offsets and sizes of its fields."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("format")
    lines = [
        f'printf("{struct} {field} %zu %zu\\n", offsetof({struct}, {field}), sizeof((({struct} *)0)->{field}));'
        for struct, fields in FIELDS.items()
        for field in fields
    ] + [f'printf("{struct} - %zu 0\\n", sizeof({struct}));' for struct in FIELDS]
    source = folder / "format.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n"
        '#include "sb_layout.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0;\n}\n",
        encoding="utf-8",
    )
    folders = [*SOURCES.iterdir(), SOURCES.parent / "include"]
    flags = ["-std=c11", "-D_GNU_SOURCE", *(f"-I{folder}" for folder in folders)]
    subprocess.run([COMPILER, *flags, str(source), "-o", str(folder / "format")], check=True)
    printed = subprocess.run([str(folder / "format")], check=True, capture_output=True, text=True).stdout
    found: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {struct: (0, {}) for struct in FIELDS}
    for line in printed.splitlines():
        struct, field, offset, size = line.split()
        if field == "-":
            found[struct] = (int(offset), found[struct][1])
        else:
            found[struct][1][field] = (int(offset), int(size))
    return found


def test_the_page_names_the_version() -> None:
    """The first line and the row of the header name the layout of the core."""
    major, minor = native.slow.SB_LAYOUT_MAJOR, native.slow.SB_LAYOUT_MINOR
    assert f"layout version {major}.{minor}. " in PAGE
    assert f"`layout_minor` | {minor} |" in PAGE


def test_every_struct_has_its_place() -> None:
    """Each shared struct has a heading with its size."""
    headings = {heading for heading, _, _ in SECTION.findall(PAGE)}
    assert set(STRUCTS) <= headings
    assert set(FIELDS) == set(STRUCTS.values())


@pytest.mark.parametrize("heading", STRUCTS)
def test_a_struct_is_described_field_by_field(
    heading: str, compiled: dict[str, tuple[int, dict[str, tuple[int, int]]]]
) -> None:
    """The table has each field that is not reserved, with its offset and size; the heading has the struct's size."""
    size, fields = compiled[STRUCTS[heading]]
    described = {name: (length, table) for name, length, table in SECTION.findall(PAGE)}[heading]
    rows = {name: (int(offset), int(length)) for offset, length, name in ROW.findall(described[1])}
    assert (int(described[0]), rows) == (size, fields)
