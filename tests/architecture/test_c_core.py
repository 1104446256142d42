# SPDX-License-Identifier: Apache-2.0
"""Rules of the C core: layers, ordering pairs, and forbidden constructs."""

from __future__ import annotations

import re
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "cffi_src"
SOURCES = sorted((CORE / "src").rglob("*.[ch]"))
FOLDERS_WITH_C = (CORE, ROOT / "tests", ROOT / "benchmarks")

# Bottom first. A file includes headers of its folder and of lower folders; includes within a folder have no circle.
FOLDERS = ("platform", "memory", "selector", "ring", "queue", "storage", "delivery", "broker", "check", "api")
FOLDER_OF = {path.stem: path.parent.name for path in SOURCES}
PUBLIC = {"shmbroker", "shmbroker.cdef"}  # of include/: below all folders

FORBIDDEN = {
    "volatile objects": r"(?<!asm )(?<!__asm__ )\bvolatile\b",
    "standalone fences": r"\batomic_(?:thread|signal)_fence\b|\b__sync_synchronize\b|\b__atomic_\w*fence\b",
    "printing": r"\b(?:v?[fds]?n?printf|v?asprintf|f?puts|fputc|putchar|perror)\s*\(",
    "unordered atomics": r"\batomic_(?:load|store|exchange|fetch_\w+|compare_exchange_\w+)(?<!_explicit)\s*\(",
    "setting errno": r"\berrno\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)",
}
# All other files use the macros, so a test build has a hook at each atomic operation, also on process-local words.
MAY_GO_ROUND_THE_HOOKS = {
    "sb_atomic": "defines them",
    "sb_peek": "reads bodies: plain bytes, which no schedule is about, and which ThreadSanitizer leaves out",
}
# Process-local memory. The layer of the handles allocates them; what a channel holds has no bound but memory.
MAY_ALLOCATE = {
    "sb_agenda", "sb_channel", "sb_deliveries", "sb_firsts", "sb_following", "sb_reading", "sb_rivals",
    "sb_round_robin", "sb_sort_heap", "sb_sorted",
}  # fmt: skip
# Only the callers of system calls read errno. No other code reads or writes it: functions return sb_status.
MAY_READ_ERRNO = {
    "sb_segment": "open: not there, or not allowed",
    "sb_wait": "futex: time is up, or a signal came",
    "sb_waiter": "futex: a signal came",
}

COMMENT_OR_LITERAL = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<literal>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)
TOP_COMMENT = re.compile(r"\A(?://[^\n]*\n)*\s*(/\*.*?\*/)", re.DOTALL)
PAIRS_SECTION = re.compile(
    r"^ \* *Ordering pairs:?(.*?)(?=^ \* *[A-Z][a-z]+(?: \([^)\n]*\))?:|\*/)", re.DOTALL | re.MULTILINE
)
# "P4 a page is ..." at the beginning of a line declares P4; "P4, see ...", "P4 and P5 ...", "P4: ..." refer to it.
DECLARED_PAIR = re.compile(r"^(?: \*)? +P(\d+) (?!and\b|of\b|\()", re.MULTILINE)
PAIR = re.compile(r"\bP(\d+)\b")


def name(path: Path) -> str:
    """Return the name of a file in failure messages and test ids."""
    return str(path.relative_to(ROOT))


def code_of(path: Path) -> str:
    """Return a file's text without comments, and with its literals empty."""
    text = path.read_text(encoding="utf-8")
    return COMMENT_OR_LITERAL.sub(lambda match: " " if match["comment"] else '""', text)


def comments_below_the_top(path: Path) -> str:
    """Return the comments of a file except its top comment."""
    text = TOP_COMMENT.sub("", path.read_text(encoding="utf-8"), count=1)
    return "\n".join(match["comment"] for match in COMMENT_OR_LITERAL.finditer(text) if match["comment"])


def includes_of(path: Path) -> list[str]:
    """Return the modules whose headers a file includes."""
    return re.findall(r'^\s*#\s*include\s+"(?:[^"]*/)?([^"]+)\.h"', path.read_text(encoding="utf-8"), re.MULTILINE)


def declared_pairs() -> Counter[int]:
    """Return how often each ordering pair is declared in the headers' top comments."""
    found: Counter[int] = Counter()
    for path in SOURCES:
        top = TOP_COMMENT.match(path.read_text(encoding="utf-8"))
        if path.suffix == ".h" and top:
            for section in PAIRS_SECTION.findall(top[1]):
                found.update(int(number) for number in DECLARED_PAIR.findall(section))
    return found


def mentioned_pairs(text: str) -> list[int]:
    """Return the ordering pairs a text mentions, in order."""
    return [int(number) for number in PAIR.findall(text)]


def test_there_is_a_core() -> None:
    """The checks below look at files that exist."""
    assert len(SOURCES) > 1


def test_a_file_says_its_layer_by_where_it_lies() -> None:
    """The folders are those of FOLDERS, and CMake names the same; no file lies beside or below them."""
    lists = (CORE / "CMakeLists.txt").read_text(encoding="utf-8")
    assert {path.parent for path in SOURCES} == {CORE / "src" / folder for folder in FOLDERS}
    assert f"set(SB_FOLDERS {' '.join(FOLDERS)})" in lists


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_includes_point_down(path: Path) -> None:
    """A file includes no header of a higher folder."""
    lower = FOLDERS[: FOLDERS.index(path.parent.name) + 1]
    included = set(includes_of(path)) - PUBLIC
    assert [module for module in included if FOLDER_OF[module] not in lower] == []


def test_modules_do_not_need_each_other_in_circles() -> None:
    """The includes, of headers and sources together, have no circle."""
    graph: dict[str, set[str]] = {}
    for path in SOURCES:
        graph.setdefault(path.stem, set()).update(set(includes_of(path)) - {path.stem})
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_mentioned_ordering_pair_is_declared(path: Path) -> None:
    """Each P<n> in a file is declared in the section "Ordering pairs" of a header."""
    assert set(mentioned_pairs(path.read_text(encoding="utf-8"))) <= set(declared_pairs())


def test_an_ordering_pair_is_declared_once() -> None:
    """A number means one pair: with two pairs, one end of each would pass for both ends of one pair."""
    assert [number for number, times in declared_pairs().items() if times > 1] == []


@pytest.mark.parametrize("number", sorted(declared_pairs()), ids=lambda number: f"P{number}")
def test_an_ordering_pair_has_two_ends(number: int) -> None:
    """Both ends of a declared pair are marked where the code is."""
    ends = [name(path) for path in SOURCES for pair in mentioned_pairs(comments_below_the_top(path)) if pair == number]
    assert len(ends) > 1


@pytest.mark.parametrize("path", SOURCES, ids=name)
@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_core_does_without(path: Path, what: str) -> None:
    """The core has none of the forbidden constructs."""
    assert re.findall(FORBIDDEN[what], code_of(path)) == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_atomic_operations_have_hooks(path: Path) -> None:
    """Atomic operations use the macros of `sb_atomic.h`: the schedulers of the C tests see each operation."""
    calls = re.findall(r"\b(?:atomic|__atomic|__sync)_\w+\s*\(", code_of(path))
    assert calls == [] or path.stem in MAY_GO_ROUND_THE_HOOKS


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_memory_is_allocated_at_the_top_only(path: Path) -> None:
    """No file below the layer that makes handles calls malloc or its relatives, except those of MAY_ALLOCATE."""
    calls = re.findall(r"\b(?:m|c|re|aligned_)alloc\s*\(|\b(?:posix_memalign|strn?dup|alloca)\s*\(", code_of(path))
    assert calls == [] or path.parent.name == FOLDERS[-1] or path.stem in MAY_ALLOCATE


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_errno_is_read_beside_system_calls_only(path: Path) -> None:
    """Other code reads no errno: the returned status says what went wrong."""
    assert not re.search(r"\berrno\b(?!\.h)", code_of(path)) or path.stem in MAY_READ_ERRNO


def test_a_message_ends_in_one_way() -> None:
    """Only `sb_dispose` ends a message; no other code chooses the counter."""
    mechanism = {"sb_settle", "sb_dispose"}
    assert [name(path) for path in SOURCES if "sb_settle_message" in code_of(path) and path.stem not in mechanism] == []


@pytest.mark.parametrize("path", sorted(path for folder in FOLDERS_WITH_C for path in folder.rglob("*.[ch]")), ids=name)
def test_a_file_names_its_licence(path: Path) -> None:
    """Each C file has one SPDX line, in its first lines."""
    text = path.read_text(encoding="utf-8")
    lines = [number for number, line in enumerate(text.splitlines()) if "SPDX-License-Identifier: Apache-2.0" in line]
    assert len(lines) == 1
    assert lines[0] < 3
