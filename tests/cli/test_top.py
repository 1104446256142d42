# SPDX-License-Identifier: Apache-2.0
"""`shmbroker top`: its parts, one snapshot, and a live screen."""

from __future__ import annotations

import dataclasses
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import shmbroker
from shmbroker_cli.top.keyboard import split_keys
from shmbroker_cli.top.model import Row, Sample, Snapshot, compare
from shmbroker_cli.top.screen import Screen
from shmbroker_cli.top.view import FIELDS, View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def counters(kind: type[Any], **given: object) -> Any:  # noqa: ANN401 (of that kind)
    """Return statistics with these values and zeros."""
    values = dict.fromkeys((field.name for field in dataclasses.fields(kind)), 0)
    return kind(**{**values, **given})


BROKER = counters(shmbroker.BrokerStatistics, name="b")


def sample(taken: float, **queues: dict[str, int]) -> Sample:
    """Return a sample of queues with these counters."""
    return Sample(
        taken,
        BROKER,
        {name: counters(shmbroker.QueueStatistics, name=name, **given) for name, given in queues.items()},
    )


def row(queue: str, **given: float | None) -> Row:
    """Return a row with these values and zeros."""
    return counters(Row, queue=queue, **given)


def drawn(view: View, *rows: Row, width: int = 130, height: int = 20) -> list[str]:
    """Return the screen as lines of text."""
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(Screen(Snapshot(BROKER, rows), view))
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
    assert FIELDS[view.sort].name == "browsers"


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
    (line,) = [line for line in drawn(View(), row("n" * 99, bytes=1 << 30, browsers=7), width=80) if "nnn" in line]
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


class Terminal:
    """A terminal of 100 columns and a program in it."""

    def __init__(self, *command: str) -> None:
        """Start the program."""
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = b""

    def expect(self, text: str) -> None:
        """Read until the program has written a text, and forget it."""
        while text.encode() not in self.seen:
            got = os.read(self.master, 65536)
            assert got
            self.seen += got
        self.seen = self.seen.partition(text.encode())[2]

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


def test_live_it_follows_the_queue_and_the_keys(live: Terminal, jobs: shmbroker.Queue) -> None:
    """It shows what is published, sorts, filters, pauses and quits."""
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
    live.type("p")
    live.expect("PAUSED")
    live.type("q")
    assert live.process.wait() == 0
    assert termios.tcgetattr(live.slave)[3] == live.modes[3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_live_a_signal_leaves_the_terminal_as_it_was(live: Terminal, number: int) -> None:
    """It leaves the other screen, and echo is on again."""
    live.expect("sort: queue")
    live.process.send_signal(number)
    live.expect("\x1b[?1049l")
    assert live.process.wait() == 0
    assert termios.tcgetattr(live.slave)[3] == live.modes[3]


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
