# SPDX-License-Identifier: Apache-2.0
"""`shmbroker top`: its parts, one snapshot, and a live screen."""

from __future__ import annotations

import dataclasses
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from scenario_support.inside import connection_of

import shmbroker
from shmbroker_cli.top.fields import TABLES
from shmbroker_cli.top.keyboard import split_keys
from shmbroker_cli.top.model import ChannelRow, ClientRow, ExchangeRow, Row, Sample, Snapshot, compare
from shmbroker_cli.top.screen import Screen
from shmbroker_cli.top.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def counters(kind: type[Any], **given: object) -> Any:  # noqa: ANN401 (of that kind)
    """Return statistics with these values and zeros."""
    values = dict.fromkeys((field.name for field in dataclasses.fields(kind)), 0)
    return kind(**{**values, **given})


BROKER = counters(shmbroker.BrokerStatistics, name="b", memory_state="normal", store=None)


def sample(taken: float, **queues: dict[str, int]) -> Sample:
    """Return a sample of queues with these counters."""
    return Sample(
        taken,
        BROKER,
        {name: counters(shmbroker.QueueStatistics, name=name, memory=None, **given) for name, given in queues.items()},
    )


FIELDS = TABLES["queues"]


def row(queue: str, **given: float | None) -> Row:
    """Return a row with these values and zeros."""
    return counters(Row, queue=queue, **given)


def drawn(view: View, *rows: Row, width: int = 130, height: int = 20) -> list[str]:
    """Return the screen as lines of text."""
    return drawn_all(view, Snapshot(BROKER, rows), width, height)


def drawn_all(view: View, snapshot: Snapshot, width: int = 130, height: int = 20) -> list[str]:
    """Return the screen of all tables as lines of text."""
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(Screen(snapshot, view))
    return console.file.getvalue().splitlines()


def test_rates_are_per_second_between_two_samples() -> None:
    """Out counts whatever left: acknowledged, expired, moved and so on."""
    before = sample(10.0, q={"added": 100, "acked": 50})
    now = sample(12.0, q={"added": 110, "acked": 52, "moved": 1, "killed": 1})
    (one,) = compare(before, now).rows
    assert (one.rate_in, one.rate_out) == (5.0, 2.0)


def test_a_new_queue_has_no_rates_and_a_remade_one_no_negative_ones() -> None:
    """The first look at a queue knows only its depth."""
    now = sample(2.0, new={"added": 5}, remade={"added": 1})
    new, remade = compare(sample(1.0, remade={"added": 9}), now).rows
    assert (new.rate_in, new.rate_out) == (None, None)
    assert remade.rate_in == 0.0


def test_the_first_sample_has_no_rates() -> None:
    """There is nothing to compare with."""
    (one,) = compare(None, sample(1.0, q={"ready": 3})).rows
    assert (one.ready, one.rate_in) == (3, None)


def channel(number: int, **given: Any) -> shmbroker.ChannelInfo:  # noqa: ANN401 (of any attribute)
    """Return a channel with these values and zeros."""
    values = {"connection": 1, "connection_name": "worker", "count": 1}
    return counters(shmbroker.ChannelInfo, **{**values, "number": number, **given})


def test_channels_have_rates_of_their_own() -> None:
    """Known by connection and number; a consumer that went makes no negative one."""
    before = Sample(10.0, BROKER, {}, (), (channel(1, delivered=5), channel(2, delivered=9)))
    now = Sample(12.0, BROKER, {}, (), (channel(1, delivered=9), channel(2), channel(1, connection=2, delivered=3)))
    assert [one.rate_out for one in compare(before, now).channels] == [2.0, 0.0, None]


def test_a_key_goes_through_the_tables() -> None:
    """In their order, and queues again; each begins in its usual order, the filter stays."""
    view = View(text="a", sort=3, reverse=True, offset=7)
    seen = []
    for _ in range(6):
        view.press("e")
        seen.append((view.table, view.sort, view.reverse, view.offset, view.text))
        view.press("s")
    tables = ("exchanges", "channels", "clients", "consumers", "memory", "queues")
    assert seen == [(table, 0, False, 0, "a") for table in tables]


def test_the_head_counts_channels_and_exchanges() -> None:
    """Channels without consumers as well."""
    sample_now = Sample(1.0, BROKER, {}, (exchange("x"), exchange("")), (channel(1), channel(0, count=40)))
    assert "channels 41   exchanges 2" in drawn_all(View(), compare(None, sample_now))[0]


def exchange(name: str, **given: Any) -> shmbroker.ExchangeInfo:  # noqa: ANN401 (of any attribute)
    """Return an exchange with these values."""
    values = {"type": "topic", "alternate": None, "arguments": {}, "durable": False, "auto_delete": False}
    return counters(shmbroker.ExchangeInfo, **{**values, "name": name, "internal": False, **given})


def test_exchanges_show_what_they_are() -> None:
    """Sorted by name, and by any column: text upwards."""
    exchanges = (
        exchange("b", alternate="lost", auto_delete=True, internal=True, bindings_in=1, bindings_out=12),
        exchange("", type="direct", durable=True),
    )
    snapshot = compare(None, Sample(1.0, BROKER, {}, exchanges))
    view = View(table="exchanges")
    lines = [line.split() for line in drawn_all(view, snapshot, width=80)]
    assert lines[4:6] == [
        ["(default)", "direct", "0", "0", "durable"],
        ["b", "topic", "1", "12", "lost", "auto-delete", "internal"],
    ]
    assert lines[1][:3] == ["2", "of", "2"]
    view.press("s")
    assert [one.type for one in view.arrange(snapshot.exchanges)] == ["direct", "topic"]
    view.press("r")
    assert [one.type for one in view.arrange(snapshot.exchanges)] == ["topic", "direct"]


def test_channels_show_whose_they_are() -> None:
    """Those without consumers are one line of a connection; the filter is for names of connections."""
    channels = (
        channel(5, consumers=2, prefetch=20, unacked=3, delivered=7),
        channel(0, count=12),
        channel(1, connection=2, connection_name="other", pid=4711),
    )
    snapshot = compare(None, Sample(1.0, BROKER, {}, (), channels))
    lines = [line.split() for line in drawn_all(View(table="channels"), snapshot, width=80)]
    assert lines[4:7] == [
        ["other", "2", "4711", "1", *"0000", "-"],
        ["worker", "1", "0", "5", "2", "20", "3", "7", "-"],
        ["worker", "1", "0", "12", "idle", *"0000", "-"],
    ]
    shown = View(table="channels", text="OTH").arrange(snapshot.channels)
    assert [one.connection for one in shown] == ["other"]


@pytest.mark.parametrize(
    ("table", "whole"),
    [
        ("exchanges", ["headers", "65,536", "1,000"]),
        ("channels", ["4,095", "4000000", "65535", "1,000,000,000"]),
        ("clients", ["4000000", "4,095", "65,535", "1,600", "1023.9", "MiB", "1000.0", "MiB", "999d23h"]),
    ],
)
def test_long_names_give_way_in_each_table(table: str, whole: list[str]) -> None:
    """Not numbers, on a screen of 80 characters."""
    named = {"exchange": "n" * 99, "type": "headers", "alternate": "a" * 99, "flags": "durable auto-delete internal"}
    long = counters(ExchangeRow, **named, bindings_in=65_536, bindings_out=1000)
    wide = counters(ChannelRow, connection="n" * 99, pid=4_000_000, id=4095, channel=65535, delivered=10**9, count=1)
    numbers = {"pid": 4_000_000, "connections": 4095, "consumers": 65535, "cpu_percent": 1600.2, "holding": 1}
    sizes = {"memory": int(1023.9 * (1 << 20)), "memory_shared": 1000 << 20, "age": 999.99 * 86400}
    client = counters(ClientRow, client="n" * 99, **numbers, **sizes)
    snapshot = Snapshot(BROKER, (), (long,), (wide,), (client,))
    (line,) = (line for line in drawn_all(View(table=table), snapshot, width=80) if "nnn" in line)
    assert len(line) <= 80
    assert [word for word in line.split() if word in whole] == whole


def test_keys_are_told_apart() -> None:
    """Characters, and the sequences of special keys."""
    assert split_keys("qé\x1b[A\x1b[B\x1bOC\x7f\r\x1b") == [
        *("q", "é", "up", "down", "right", "backspace", "enter", "escape")
    ]


def test_unknown_keys_do_nothing() -> None:
    """Nor do sequences of keys that no one asked for."""
    view = View()
    for key in split_keys("x\x1b[15~\x01"):
        view.press(key)
    assert view == View()


def test_sorting_goes_through_the_columns_both_ways() -> None:
    """Names upwards, numbers downwards; `r` turns that round."""
    view = View()
    rows = [row("b", ready=1), row("a", ready=2), row("c", ready=2)]
    assert [one.queue for one in view.arrange(rows)] == ["a", "b", "c"]
    view.press("s")
    assert FIELDS[view.sort].name == "ready"
    assert [one.queue for one in view.arrange(rows)] == ["a", "c", "b"]
    view.press("r")
    assert view.arrange(rows)[0].queue == "b"
    view.press("S")
    view.press("S")
    assert FIELDS[view.sort].name == "non_acquiring"


def test_unknown_rates_sort_as_nothing() -> None:
    """A queue that has just come is no reason to fail."""
    view = View(sort=[field.name for field in FIELDS].index("rate_in"))
    rows = [row("a", rate_in=None), row("b", rate_in=1.0)]
    assert [one.queue for one in view.arrange(rows)] == ["b", "a"]


def test_the_filter_is_typed_and_kept_or_dropped() -> None:
    """While it is typed, letters are not commands; case does not matter."""
    view = View()
    for key in ["/", "q", "X", "backspace", "enter"]:
        view.press(key)
    assert (view.text, view.editing, view.ended) == ("q", False, False)
    assert [one.queue for one in view.arrange([row("Q1"), row("x")])] == ["Q1"]
    for key in ["/", "s", "escape"]:
        view.press(key)
    assert (view.text, view.editing) == ("", False)


def test_pause_and_quit() -> None:
    """`p` stops the picture and lets it go on, `q` quits."""
    view = View()
    view.press("p")
    assert view.paused
    view.press("p")
    view.press("q")
    assert (view.paused, view.ended) == (False, True)


def test_the_screen_shows_what_fits_and_says_what_does_not() -> None:
    """The rest can be scrolled to, and no further."""
    rows = [row(f"queue-{number:02}") for number in range(20)]
    view = View()
    lines = drawn(view, *rows, height=11)
    assert len(lines) == 11
    assert sum("queue-" in line for line in lines) == 5
    assert "15 more below" in lines[-2]
    for _ in range(100):
        view.press("down")
    lines = drawn(view, *rows, height=11)
    assert "queue-19" in lines[-3]


def test_a_narrow_screen_shortens_names_not_numbers() -> None:
    """All columns are there at 80 characters."""
    (line,) = [line for line in drawn(View(), row("n" * 99, bytes=1 << 30, non_acquiring=7), width=80) if "nnn" in line]
    assert len(line) <= 80
    assert line.split()[1:] == ["0", "0", "0", "0", "0", "1.0", "GiB", *"0007"]


def test_a_name_cannot_steer_the_terminal() -> None:
    """Neither by control characters nor by markup."""
    lines = drawn(View(), row("\x1b[2J[red]"))
    assert any("\\x1b[2J[red]" in line for line in lines)


def test_without_a_terminal_it_is_one_snapshot(cli: Callable[..., Any], jobs: shmbroker.Queue) -> None:
    """As a table, or as JSON with the same numbers."""
    jobs.put(b"12345")
    shown = cli("top", "--interval", "0.1")
    assert shown.code == 0
    assert shown.lines[-1].split()[:2] == ["jobs", "1"]
    (one,) = cli("top", "--interval", "0.1", "--json").facts["queues"]
    assert (one["queue"], one["ready"], one["bytes"]) == ("jobs", 1, 5)
    assert one["rate_in"] == 0.0


def test_a_snapshot_has_all_tables(cli: Callable[..., Any], jobs: shmbroker.Queue, broker: shmbroker.Broker) -> None:
    """As JSON; the table for people is one of them, which is also the one that is sorted and filtered."""
    with broker.connect(client_name="worker") as connection:
        busy = connection.channel(3)
        busy.exchange_declare("events", "topic", internal=True)
        busy.queue_bind(jobs.name, "events", "#")
        busy.basic_consume(jobs.name, print)
        facts = cli("top", "--interval", "0.1", "--json", "--filter", "jobs").facts
        assert [one["queue"] for one in facts["queues"]] == ["jobs"]
        assert [one["exchange"] for one in facts["exchanges"] if "amq." not in one["exchange"]] == ["", "events"]
        (one,) = (one for one in facts["exchanges"] if one["exchange"] == "events")
        assert (one["type"], one["bindings_out"], one["flags"]) == ("topic", 1, "internal")
        (one,) = facts["channels"]
        assert (one["connection"], one["channel"], one["consumers"], one["rate_out"]) == ("worker", 3, 1, 0.0)
        shown = cli("top", "--interval", "0.1", "--table", "exchanges", "--sort", "bindings_out")
        assert shown.lines[3].split() == ["events", "topic", "0", "1", "internal"]
        shown = cli("top", "--interval", "0.1", "--table", "channels", "--filter", "work")
        assert shown.lines[-1].split()[:4] == ["worker", str(facts["channels"][0]["id"]), str(os.getpid()), "3"]
        (one,) = (one for one in facts["clients"] if one["pid"] == os.getpid())
        assert one["client"] == f"{connection_of(jobs).name} +2"  # the others are the command's own, and this one
        assert (one["connections"], one["consumers"], one["holding"]) == (3, 1, 0)
        assert one["cpu_percent"] >= 0.0
        assert one["memory"] > one["memory_shared"] > 0
        shown = cli("top", "--interval", "0.1", "--table", "clients", "--filter", connection_of(jobs).name)
        assert shown.lines[-1].split()[2:6] == [str(os.getpid()), "3", "1", "0"]


@pytest.mark.parametrize("arguments", [("--table", "bindings"), ("--table", "exchanges", "--sort", "ready")])
def test_a_table_or_column_that_does_not_exist_is_wrong_usage(
    cli: Callable[..., Any], arguments: tuple[str, ...]
) -> None:
    """The line names what there is."""
    assert cli("top", *arguments).is_refused("exchange" if "--sort" not in arguments else "bindings_out", code=2)


class Terminal:
    """A terminal of 100 columns and a program in it."""

    def __init__(self, *command: str, kind: str = "xterm") -> None:
        """Start the program."""
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        environment = {**os.environ, "TERM": kind, "COLUMNS": "", "LINES": ""}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = b""

    def expect(self, text: str) -> None:
        """Read until the program has written a text, and forget it."""
        self.expect_match(re.escape(text))

    def expect_match(self, pattern: str) -> None:
        """Read until the program has written something that matches, and forget it."""
        while (found := re.search(pattern.encode(), self.seen)) is None:
            got = os.read(self.master, 65536)
            assert got
            self.seen += got
        self.seen = self.seen[found.end() :]

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.master, text.encode())

    def close(self) -> None:
        """End the program, if it still runs, and the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def live(jobs: shmbroker.Queue, broker_name: str) -> Iterator[Terminal]:  # noqa: ARG001 (the queue must exist)
    """Start `top` in a terminal."""
    terminal = Terminal(
        *(sys.executable, "-m", "shmbroker_cli"),
        *("top", "--broker", broker_name, "--interval", "0.1"),
    )
    yield terminal
    terminal.close()


def test_live_it_follows_the_broker_and_the_keys(
    live: Terminal, jobs: shmbroker.Queue, broker: shmbroker.Broker
) -> None:
    """It shows what is published, sorts, filters, goes to other tables, pauses and quits."""
    live.expect("sort: queue")
    jobs.put(b"x" * 2048)
    live.expect("2.0 KiB")
    live.type("s")
    live.expect("sort: ready")
    live.type("r")
    live.expect("sort: ready reversed")
    live.type("/nothing")
    live.expect("0 of 1 queues")
    live.type("\x1b")
    live.expect("1 of 1 queues")
    live.type("e")
    live.expect("6 of 6 exchanges")
    live.expect("amq.topic")
    with broker.connect() as connection:
        connection.channel().exchange_declare("events", "topic")
        live.expect("7 of 7 exchanges")
        live.type("e")
        live.expect("1 of 1 channels")
        live.expect("1 idle")
    live.expect("0 of 0 channels")
    live.type("p")
    live.expect("PAUSED")
    live.type("q")
    assert live.process.wait() == 0
    assert termios.tcgetattr(live.slave)[3] == live.modes[3]


BUSY = """
import sys, shmbroker
connection = shmbroker.connect(sys.argv[1], create=False, client_name="busy")
print("ready", flush=True)
while True:
    pass
"""


def test_live_it_follows_what_clients_use(live: Terminal, broker_name: str) -> None:
    """The processor and memory of each process, from one refresh to the next."""
    live.expect("sort: queue")
    for _ in range(3):
        live.type("e")
    live.expect("clients   sort: client")
    live.type("/busy\r")
    live.expect("0 of ")
    with subprocess.Popen([sys.executable, "-c", BUSY, broker_name], stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            row = rf"busy +{client.pid} +1 +0 +0"
            live.expect_match(rf"{row} +- +[\d.]+ MiB +[\d.]+ MiB +\d+s")  # no earlier look to compare with
            live.expect_match(rf"{row} +(?!0\.0 )[\d.,]+ +[\d.]+ MiB +[\d.]+ MiB +\d+s")
        finally:
            client.kill()
    live.expect("0 of ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_live_a_signal_leaves_the_terminal_as_it_was(live: Terminal, number: int) -> None:
    """It leaves the other screen, and echo is on again."""
    live.expect("sort: queue")
    live.process.send_signal(number)
    live.expect("\x1b[?1049l")
    assert live.process.wait() == 0
    assert termios.tcgetattr(live.slave)[3] == live.modes[3]


@pytest.mark.usefixtures("jobs")
def test_a_dumb_terminal_gets_one_snapshot(broker_name: str) -> None:
    """Nothing could be drawn there: it would be empty, and wait for keys."""
    command = (sys.executable, "-m", "shmbroker_cli", "top", "--broker", broker_name, "--interval", "0.1")
    terminal = Terminal(*command, kind="dumb")
    try:
        terminal.expect("jobs")
        assert terminal.process.wait() == 0
    finally:
        terminal.close()


SIGNALLED_EARLY = """
import os, signal, sys
import rich.live
import shmbroker_cli

def refresh(live, drawn=rich.live.Live.refresh):
    drawn(live)
    if live._alt_screen and not getattr(live, "signalled", False):
        live.signalled = True
        os.kill(os.getpid(), signal.SIGTERM)

rich.live.Live.refresh = refresh
shmbroker_cli.main()
"""


@pytest.mark.usefixtures("jobs")
def test_live_a_signal_while_the_screen_is_switched_over(broker_name: str) -> None:
    """It leaves the other screen again, and does not wait for the next look at the broker."""
    terminal = Terminal(
        *(sys.executable, "-c", SIGNALLED_EARLY), *("top", "--broker", broker_name, "--interval", "3600")
    )
    try:
        terminal.expect("sort: queue")
        terminal.expect("\x1b[?1049l")
        assert terminal.process.wait() == 0
        assert termios.tcgetattr(terminal.slave)[3] == terminal.modes[3]
    finally:
        terminal.close()


def test_live_it_ends_when_the_broker_goes(live: Terminal, broker: shmbroker.Broker) -> None:
    """With one line and exit code 1."""
    live.expect("sort: queue")
    broker.stop(purge=True)
    live.expect("shmbroker: ")
    assert live.process.wait() == 1
