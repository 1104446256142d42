# SPDX-License-Identifier: Apache-2.0
"""The screen of `shmbroker top`, character by character, and the rows that it shows."""

from __future__ import annotations

import dataclasses
import io
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from scenario_support.inside import connection_of

import shmbroker
from shmbroker_cli.processes import ProcessFacts, ProcessId
from shmbroker_cli.top.fields import TABLES, Field, _field
from shmbroker_cli.top.model import ChannelRow, ClientRow, ExchangeRow, Row, Sample, Snapshot, compare, take_sample
from shmbroker_cli.top.screen import Screen, headline
from shmbroker_cli.top.view import View
from shmbroker_cli.top.waiting import ConsumerRow, MemoryRow

if TYPE_CHECKING:
    from collections.abc import Sequence


def zeros(kind: type[Any], **given: object) -> Any:  # noqa: ANN401 (of that kind)
    """Return statistics with these values and zeros."""
    return kind(**{**dict.fromkeys((field.name for field in dataclasses.fields(kind)), 0), **given})


BROKER = zeros(
    shmbroker.BrokerStatistics,
    name="b\x1b",
    memory_state="normal",
    memory_used=1536,
    memory_limit=64 << 20,
    connection_count=3,
    process_count=4,
    housekeeper_pid=4711,
    rescues=5,
    store=None,
)
SNAPSHOT = Snapshot(
    BROKER,
    (
        Row("orders", 1234, 2, 3, 0.5, 1234.5, 4096, 5, 6, 7, 8),
        Row("jobs", 0, 0, 0, None, 100.0, 512, 0, 0, 0, 0),
        Row("new\n", 0, 0, 0, 99.94, 0.0, 0, 0, 0, 0, 0),
    ),
    (
        ExchangeRow("", "direct", 0, 12, "", "durable"),
        ExchangeRow("events", "topic", 1, 0, "a-name-that-is-longer-than-22", "auto-delete internal"),
    ),
    (
        ChannelRow("worker", 1, 47110, 5, 1, 2, 20, 3, 1234, 2.5),
        ChannelRow("other\x1b", 2, 4712, 0, 12, 0, 0, 0, 0, None),
    ),
    (
        ClientRow("worker +1", 47110, 2, 12, 1234, 150.4, 3 << 20, 1536, 7384.0),
        ClientRow("other\x1b", 4712, 1, 0, 0, 99.94, 512, 0, 5.9),
        ClientRow("hidden", 7, 1, 0, 0, None, None, None, None),
    ),
    (
        ConsumerRow("jobs", 1, 47110, "producer", None, 0, 64, 1234, 0, None),
        ConsumerRow("orders", 2, 4712, "load", 75.0, 3, 64, 5, 1024, 12345),
        ConsumerRow("old", 3, 7, "dispatch", None, 0, 1, 0, None, None),
    ),
    (
        MemoryRow("orders", 512, 1536, 0, 3 << 20, 10, 5 << 30, 1234, 5, 12345),
        MemoryRow("jobs", 0, 0, 0, 0, 0, 0, 0, 0, None),
    ),
)
HEAD = "broker b\\x1b   memory 1.5 KiB of 64.0 MiB   connections 3   channels 13   exchanges 2   processes 4   "
KEYS = "e table  s/S sort  r reverse  / filter  p pause  up/down scroll  q quit"


def picture(view: View, width: int, height: int = 14, *, styles: bool = False) -> list[str]:
    """Return the lines of the screen."""
    file = io.StringIO()
    console = Console(
        file=file,
        width=width,
        height=height,
        force_terminal=styles,
        color_system="standard" if styles else None,
        legacy_windows=False,
    )
    console.print(Screen(SNAPSHOT, view))
    return file.getvalue().splitlines()


WIDE = [
    f"{HEAD}housekeeper 4711   rescues 5",
    "3 of 3 queues   sort: queue",
    "queue     ready  delivering  scheduled  in/s  out/s    bytes  interested  notified  not interested  no local",
    "\u2500" * 108,
    "jobs          0           0          0     -    100    512 B           0         0               0         0",
    "new\\n         0           0          0  99.9    0.0      0 B           0         0               0         0",
    "orders    1,234           2          3   0.5  1,234  4.0 KiB           5         6               7         8",
    "",
    KEYS,
]
NARROW = [
    "queue     ready  deliv  sched  in/s  out/s    bytes  inter  notif  not  nloc",
    "\u2500" * 76,
    "jobs          0      0      0     -    100    512 B      0      0    0     0",
    "new\\n         0      0      0  99.9    0.0      0 B      0      0    0     0",
    "orders    1,234      2      3   0.5  1,234  4.0 KiB      5      6    7     8",
]
EXCHANGES = [
    "exchange   type    in  out  altern                  flags               ",
    "\u2500" * 72,
    "(default)  direct   0   12                          durable             ",
    "events     topic    1    0  a-name-that-is-longer\u2026  auto-delete internal",
]
CHANNELS = [
    "connection  id    pid  channel  consumers  prefetch  unacked  delivered  out/s",
    "\u2500" * 78,
    "other\\x1b    2   4712  12 idle          0         0        0          0      -",
    "worker       1  47110        5          2        20        3      1,234    2.5",
]
CONSUMERS = [
    "queue     connection    pid  waits for  stalled  unacked  prefetch  delivered  scan lag  watermark",
    "\u2500" * 98,
    "jobs               1  47110  producer         -        0        64      1,234         0          -",
    "old                3      7  dispatch         -        0         1          0         -          -",
    "orders             2   4712  load         1m15s        3        64          5     1,024     12,345",
]
MEMORY = [
    "queue     direct     head  pend      acq  sched     away   hits  miss   wmark",
    "\u2500" * 77,
    "jobs         0 B      0 B   0 B      0 B    0 B      0 B      0     0       -",
    "orders     512 B  1.5 KiB   0 B  3.0 MiB   10 B  5.0 GiB  1,234     5  12,345",
]
CLIENTS = [
    "client       pid  connections  consumers  holding  cpu %   memory   shared    age",
    "\u2500" * 81,
    "worker +1  47110            2         12    1,234    150  3.0 MiB  1.5 KiB  2h03m",
    "other\\x1b   4712            1          0        0   99.9    512 B      0 B     5s",
    "hidden         7            1          0        0      -        -        -      -",
]


def test_a_wide_screen_of_queues() -> None:
    """Headings in full, numbers to the right, units for bytes, whole numbers for large rates."""
    assert picture(View(), 130) == WIDE
    assert picture(View(), 120)[1:] == WIDE[1:]
    assert picture(View(), 120)[0] == f"{HEAD}housekeeper 4711 \u2026"


def test_a_screen_that_is_not_wide() -> None:
    """Short headings; what does not fit of the first line is left out."""
    assert picture(View(), 119)[2:7] == NARROW
    assert picture(View(), 80) == [f"{HEAD[:79]}\u2026", WIDE[1], *NARROW, "", KEYS]


def test_a_screen_that_was_chosen() -> None:
    """Order, filter and pause are told; what is typed has a cursor, and another line of help."""
    view = View(sort=1, reverse=True, text="o", paused=True)
    assert picture(view, 119)[1] == "2 of 3 queues   sort: ready reversed   filter: o   PAUSED"
    assert picture(view, 119)[4:6] == [NARROW[2], NARROW[4]]
    lines = picture(View(text="w\n", editing=True), 80)
    assert lines[1] == "1 of 3 queues   sort: queue   filter: w\\n_"
    assert lines[-1] == "type a part of the name, Enter keeps it, Esc drops it"
    assert picture(View(editing=True), 80)[1] == "3 of 3 queues   sort: queue   filter: _"


def test_screens_of_the_other_tables() -> None:
    """The default exchange has a name, long names are cut, channels without consumers are counted; "-" is unknown."""
    lines = picture(View(table="exchanges"), 80)
    assert (lines[1], lines[2:6]) == ("2 of 2 exchanges   sort: exchange", EXCHANGES)
    lines = picture(View(table="channels"), 120)
    assert (lines[1], lines[2:6]) == ("2 of 2 channels   sort: connection", CHANNELS)
    lines = picture(View(table="clients", sort=5), 120)
    assert (lines[1], lines[2:7]) == ("3 of 3 clients   sort: cpu %", CLIENTS)
    lines = picture(View(table="consumers"), 120)
    assert (lines[1], lines[2:7]) == ("3 of 3 consumers   sort: queue", CONSUMERS)
    lines = picture(View(table="memory"), 80)
    assert (lines[1], lines[2:6]) == ("2 of 2 memory   sort: queue", MEMORY)


def words(lines: list[str]) -> list[str]:
    """Return lines with single spaces: columns are as wide as the rows that are shown need."""
    return [" ".join(line.split()) for line in lines]


def test_a_screen_that_is_scrolled() -> None:
    """Down to the last row and no further; without room there is one row."""
    view, first, second, third, keys = View(), *words([*NARROW[2:], KEYS])
    assert words(picture(view, 80, 8)[4:]) == [first, second, "1 more below", keys]
    view.offset = 1
    assert words(picture(view, 80, 8)[4:]) == [second, third, "", keys]
    view.offset = 9
    assert words(picture(view, 80, 8)[4:]) == [second, third, "", keys]
    assert view.offset == 1
    view.offset = 0
    assert words(picture(view, 80, 3)[4:6]) == [first, "2 more below"]
    assert (view.offset, picture(view, 80, 9)[-2]) == (0, "")


def test_styles_of_a_screen() -> None:
    """Bold is what counts, reversed is the column that is sorted by, and dim is the help."""
    lines = picture(View(sort=1), 80, 8, styles=True)
    assert lines[0].startswith("\x1b[1mbroker ")
    assert lines[1] == "3 of 3 queues   sort: ready"
    assert "\x1b[1;7mready\x1b[0m" in lines[2]
    assert lines[2].count("7m") == 1
    assert [lines[-2], lines[-1]] == ["\x1b[2m1 more below\x1b[0m", f"\x1b[2m{KEYS}\x1b[0m"]
    assert picture(View(paused=True), 80, styles=True)[1] == "\x1b[1m3 of 3 queues   sort: queue   PAUSED\x1b[0m"


@pytest.mark.parametrize(("state", "shown"), [("warning", "MiB (WARNING)   "), ("blocked", "MiB (BLOCKED)   ")])
def test_the_state_of_the_memory(state: str, shown: str) -> None:
    """The first line says if the memory reaches a mark."""
    snapshot = dataclasses.replace(SNAPSHOT, broker=dataclasses.replace(BROKER, memory_state=state))
    assert shown in headline(snapshot).plain


def test_consumers_without_progress_are_in_the_first_line() -> None:
    """How many; nothing is said if there is none."""
    snapshot = dataclasses.replace(SNAPSHOT, broker=dataclasses.replace(BROKER, stalled=2))
    assert headline(snapshot).plain.endswith("rescues 5   STALLED 2")
    assert "STALLED" not in headline(SNAPSHOT).plain


def test_a_row_of_a_consumer() -> None:
    """How long it makes no progress is shown when the housekeeper has warned."""
    one = zeros(shmbroker.ConsumerInfo, queue="q", connection=1, pid=2, waits_for="load", stalled_seconds=75.0,
                scan_lag=9, stalled=False, watermark=None, unacked=3, prefetch=4, delivered=5)  # fmt: skip
    now = Sample(1.0, BROKER, {}, consumers=[one, dataclasses.replace(one, stalled=True, watermark=7)])
    assert compare(None, now).consumers == (
        ConsumerRow("q", 1, 2, "load", None, 3, 4, 5, 9, None),
        ConsumerRow("q", 1, 2, "load", 75.0, 3, 4, 5, 9, 7),
    )


def test_a_row_of_the_memory() -> None:
    """Queues that are not stored have none."""
    names = ("direct", "head", "pending", "acquired", "scheduled", "away", "hits", "misses", "watermark")
    memory = shmbroker.QueueMemory(**{name: number for number, name in enumerate(names, start=1)})
    snapshot = compare(None, sample(1.0, queue("plain"), queue("stored", memory=memory)))
    assert snapshot.memory == (MemoryRow("stored", *range(1, 10)),)


def test_a_broker_without_a_housekeeper() -> None:
    """That is told."""
    file = io.StringIO()
    console = Console(file=file, width=200, height=9)
    console.print(Screen(dataclasses.replace(SNAPSHOT, broker=dataclasses.replace(BROKER, housekeeper_pid=0)), View()))
    assert "housekeeper none   rescues 5" in file.getvalue()


@pytest.mark.parametrize(
    ("state", "full", "keeper", "shown"),
    [
        ("ready", False, 7, "rescues 5   store ready   sync 1.5 ms   storekeeper 7"),
        ("ready", True, 0, "   store ready (FULL)   sync 1.5 ms   storekeeper none"),
        ("damaged", False, 7, "   store DAMAGED   sync 1.5 ms"),
    ],
)
def test_the_state_of_the_store(state: str, full: bool, keeper: int, shown: str) -> None:  # noqa: FBT001 - a parameter
    """The first line has it, if the broker has a store."""
    store = zeros(shmbroker.StoreStatistics, state=state, is_full=full, storekeeper_pid=keeper, sync_seconds=0.0015)
    snapshot = dataclasses.replace(SNAPSHOT, broker=dataclasses.replace(BROKER, store=store))
    assert shown in headline(snapshot).plain
    assert "store" not in headline(SNAPSHOT).plain


def queue(name: str, **given: Any) -> shmbroker.QueueStatistics:  # noqa: ANN401 (of any attribute)
    """Return counters of a queue."""
    made: shmbroker.QueueStatistics = zeros(shmbroker.QueueStatistics, name=name, **{"memory": None, **given})
    return made


def sample(taken: float, *queues: shmbroker.QueueStatistics, channels: Sequence[shmbroker.ChannelInfo] = ()) -> Sample:
    """Return a sample with these."""
    return Sample(taken, BROKER, {one.name: one for one in queues}, (), channels)


def test_a_row_of_a_queue() -> None:
    """Out is all that left, for whatever reason; rates are of seconds, however few these are."""
    reasons = ("acked", "expired", "killed", "replaced", "dropped", "dead_lettered", "moved")
    counters = {"ready": 1, "delivering": 2, "scheduled": 3, "bytes": 4, "interested": 5, "notified": 6}
    now = queue(
        "q",
        **counters,
        not_interested=7,
        non_acquiring=8,
        added=20,
        **{reason: 1 << place for place, reason in enumerate(reasons)},
    )
    before = sample(10.0, queue("q", added=10, acked=1))
    assert compare(before, sample(10.5, now)).rows == (Row("q", 1, 2, 3, 20.0, 252.0, 4, 5, 6, 7, 8),)
    unknown = (Row("q", 1, 2, 3, None, None, 4, 5, 6, 7, 8),)
    assert compare(None, sample(10.5, now)).rows == unknown
    assert compare(before, sample(10.0, now)).rows == unknown
    assert compare(sample(10.0), sample(10.5, now)).rows == unknown
    (remade,) = compare(before, sample(10.5, queue("q"))).rows
    assert (remade.rate_in, remade.rate_out) == (0.0, 0.0)


def test_a_row_of_a_channel() -> None:
    """Known by the number of its connection and its own."""
    now = shmbroker.ChannelInfo(1, "worker", 2, 3, 4, 5, 6, 7, 18)
    before = sample(10.0, channels=[dataclasses.replace(now, delivered=8)])
    assert compare(before, sample(10.5, channels=[now])).channels == (
        ChannelRow("worker", 1, 2, 3, 4, 5, 6, 7, 18, 20.0),
    )
    unknown = (ChannelRow("worker", 1, 2, 3, 4, 5, 6, 7, 18, None),)
    assert compare(None, sample(10.5, channels=[now])).channels == unknown
    assert compare(before, sample(10.0, channels=[now])).channels == unknown
    for other in (dataclasses.replace(now, connection=2), dataclasses.replace(now, number=2)):
        assert compare(before, sample(10.5, channels=[other])).channels[0].rate_out is None
    (remade,) = compare(before, sample(10.5, channels=[dataclasses.replace(now, delivered=1)])).channels
    assert remade.rate_out == 0.0


def test_a_row_of_a_client() -> None:
    """A process, with the sums over its connections; what it used is of the time between the two looks."""

    def connection(number: int, name: str, pid: int, **given: int) -> shmbroker.ConnectionInfo:
        made: shmbroker.ConnectionInfo = zeros(
            shmbroker.ConnectionInfo, id=number, name=name, pid=pid, start_ticks=pid, **given
        )
        return made

    def facts(cpu_seconds: float, age: float) -> ProcessFacts:
        made: ProcessFacts = zeros(ProcessFacts, cpu_seconds=cpu_seconds, age=age, memory=300, memory_shared=100)
        return made

    connections = [
        connection(1, "first", 20, consumers=1, holding=2),
        connection(2, "other", 30),
        connection(3, "second", 20, consumers=3, holding=4),
        connection(4, "first", 20),
    ]
    first = ProcessId(20, 20, 0)
    now = dataclasses.replace(sample(12.0), connections=connections, processes={first: facts(7.0, 52.0)})
    before = dataclasses.replace(sample(10.0), processes={first: facts(6.0, 50.0)})
    assert compare(before, now).clients == (
        ClientRow("first +1", 20, 3, 4, 6, 50.0, 300, 100, 52.0),
        ClientRow("other", 30, 1, 0, 0, None, None, None, None),
    )
    again = dataclasses.replace(before, processes={first._replace(start_ticks=19): facts(6.0, 50.0)})
    for earlier in (None, sample(10.0), again):
        assert compare(earlier, now).clients[0] == ClientRow("first +1", 20, 3, 4, 6, None, 300, 100, 52.0)


def test_a_row_of_an_exchange() -> None:
    """Without an alternate it has none to show."""
    one = shmbroker.ExchangeInfo("e", "topic", durable=True, auto_delete=False, internal=True, alternate=None,
                                 arguments={}, bindings_in=1, bindings_out=2)  # fmt: skip
    other = dataclasses.replace(one, alternate="lost", durable=False)
    snapshot = compare(None, Sample(1.0, BROKER, {}, [one, other]))
    assert snapshot.exchanges == (
        ExchangeRow("e", "topic", 1, 2, "", "durable internal"),
        ExchangeRow("e", "topic", 1, 2, "lost", "internal"),
    )
    tables = [snapshot.rows, snapshot.exchanges, snapshot.channels, snapshot.clients, snapshot.consumers]
    tables.append(snapshot.memory)
    assert [snapshot.table(name) for name in TABLES] == tables
    assert snapshot.broker is BROKER


def test_a_sample_is_what_the_broker_says(jobs: shmbroker.Queue) -> None:
    """At one moment, on the monotonic clock."""
    jobs.put(b"x")
    begin = time.monotonic()
    taken = take_sample(connection_of(jobs), connection_of(jobs).broker_name)
    assert begin <= taken.taken <= time.monotonic()
    assert taken.broker.name == connection_of(jobs).broker_name
    assert taken.queues == {one.name: one for one in connection_of(jobs).queue_statistics()}
    assert taken.queues["jobs"].ready == 1
    assert (taken.exchanges, taken.channels) == (connection_of(jobs).exchanges(), connection_of(jobs).channels())
    assert taken.connections == connection_of(jobs).connections()
    assert {one.pid for one in taken.processes} == {os.getpid(), taken.broker.housekeeper_pid}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("e", {"table": "exchanges", "sort": 0, "reverse": False, "offset": 0}),
        ("s", {"sort": 3, "offset": 0}),
        ("right", {"sort": 3, "offset": 0}),
        ("S", {"sort": 1, "offset": 0}),
        ("left", {"sort": 1, "offset": 0}),
        ("r", {"reverse": False}),
        ("/", {"editing": True}),
        ("p", {"paused": True}),
        (" ", {"paused": True}),
        ("down", {"offset": 5}),
        ("up", {"offset": 3}),
        ("escape", {"text": "", "offset": 0}),
        ("q", {"ended": True}),
        ("x", {}),
        ("enter", {}),
    ],
)
def test_what_a_key_changes(key: str, changes: dict[str, object]) -> None:
    """And nothing else; keys that turn something round do so again."""
    view = View(sort=2, reverse=True, text="o", offset=4)
    before = dataclasses.asdict(view)
    view.press(key)
    assert dataclasses.asdict(view) == {**before, **changes}
    if key in {"r", "p", " "}:
        view.press(key)
        assert dataclasses.asdict(view) == before


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("q", {"text": "oq", "offset": 0}),
        (" ", {"text": "o ", "offset": 0}),
        ("backspace", {"text": "", "offset": 0}),
        ("enter", {"editing": False}),
        ("escape", {"editing": False, "text": "", "offset": 0}),
        ("up", {}),
        ("\x01", {}),
    ],
)
def test_what_a_key_changes_while_a_filter_is_typed(key: str, changes: dict[str, object]) -> None:
    """Characters that can be shown are part of it; special keys are none."""
    view = View(text="o", editing=True, offset=4)
    before = dataclasses.asdict(view)
    view.press(key)
    assert dataclasses.asdict(view) == {**before, **changes}


def test_columns_and_rows_have_ends() -> None:
    """The columns go round; the first row does not."""
    view = View(sort=10)
    view.press("s")
    assert view.sort == 0
    view.press("S")
    assert view.sort == 10
    view.press("up")
    assert view.offset == 0


def test_the_order_of_rows() -> None:
    """Names upwards and numbers downwards, equal ones by name in either case; names are looked for in any case."""
    rows = [Row(name, ready, 0, 0, None, 0, 0, 0, 0, 0, 0) for name, ready in (("b", 1), ("C", 2), ("a", 1))]

    def names(**chosen: Any) -> str:  # noqa: ANN401 (of any attribute)
        return "".join(row.queue for row in View(**chosen).arrange(rows))

    assert (names(), names(reverse=True)) == ("Cab", "baC")
    assert (names(sort=1), names(sort=1, reverse=True)) == ("Cab", "abC")
    assert (names(sort=4), names(text="c"), names(text="x")) == ("Cab", "C", "")


def test_a_column() -> None:
    """It is text only if that is said, and has a short heading and another attribute only if it is given them."""
    assert _field("a b") == Field("a b", "a b", "a_b", text=False)
    assert _field("a b", name="c", short="d", text=True) == Field("a b", "d", "c", text=True)
